//! Inkling in a program of your own: the same database that the server serves, without a socket.
//!
//! ```
//! # fn main() -> Result<(), inkling::Error> {
//! # let dir = std::env::temp_dir().join(format!("inkling-doc-{}", std::process::id()));
//! let db = inkling::Database::open(&dir)?;
//! let mut session = db.session()?;
//! session.execute("create table account (id bigint primary key, owner text, cents bigint)", &[])?;
//! session.execute("insert into account values ($1, $2, $3)", &[&1, &"ada", &1_000])?;
//! session.execute("insert into account values ($1, $2, $3)", &[&2, &"bob", &0])?;
//!
//! let mut tx = session.transaction()?;
//! tx.execute("update account set cents = cents - $1 where id = $2", &[&250, &1])?;
//! tx.execute("update account set cents = cents + $1 where id = $2", &[&250, &2])?;
//! tx.commit()?;
//!
//! for row in session.query("select owner, cents from account order by id", &[])? {
//!     let (owner, cents): (String, i64) = (row.get("owner")?, row.get(1)?);
//!     println!("{owner}: {cents}");
//! #   assert!(cents == 750 || cents == 250);
//! }
//! # drop(session);
//! db.close()?;
//! # let _ = std::fs::remove_dir_all(&dir);
//! # Ok(())
//! # }
//! ```
//!
//! What it guarantees
//!
//! - When a call returns, what it tells is durable as the server's answer would be: a committed
//!   transaction at its level, and nothing that was read can be taken back by a crash.
//! - Errors are [`Error`]s with PostgreSQL's SQLSTATE (`e.state.code()`), never panics.
//! - A [`Session`] is [`Send`]: it may move between threads, and be used by one at a time.
//! - One process owns a data directory at a time, this one or a server.
//!
//! | module        | what it is about                                                  |
//! |---------------|-------------------------------------------------------------------|
//! | `database`    | opening and closing, options                                      |
//! | `session`     | statements, and waiting for what they wait for                    |
//! | `transaction` | the guard that rolls back when it is dropped                      |
//! | `rows`        | results                                                           |
//! | `value`       | Rust values as parameters and out of columns                      |
//! | `options`     | settings by name to what the engine wants                         |
//! | [`check`]     | walks every structure of an open database                         |

pub mod check;
mod database;
mod options;
mod rows;
mod session;
mod transaction;
mod value;

pub use database::{Database, Options};
pub use inkling_sql::error::{Severity, SqlError as Error, State};
pub use inkling_sql::session::CommandTag;
pub use inkling_sql::types::{Datum, Oid};
pub use options::{apply_to, engine_options};
pub use rows::{Column, Row, RowIndex, Rows};
pub use session::{CancelHandle, Session};
pub use transaction::Transaction;
pub use value::{FromSql, SqlValue, ToSql, ValueRef};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
