//! Sessions: what a client has on one connection.
//!
//! ```text
//!   Database::open(engine, outcome)          one a process
//!     └─ Session::new(db, SessionParams)     one a connection; Send, used by one thread at a time
//!          parse_statements(sql)             simple protocol: the statements of one string
//!          prepare(..) -> Arc<Prepared>      parse, analyse, plan once
//!          bind(prepared, params) -> Portal  no work yet
//!          step(&mut portal, sink, max)      runs until something is for the driver to do
//!          finish_implicit()                 Sync, or the end of a simple query string
//! ```
//!
//! See [`api`] for what a driver does with each answer.

pub mod api;

pub use api::{CancelFlag, CancelReason, ColumnDesc, CommandTag, CopyInfo, Progress, RowSink};
