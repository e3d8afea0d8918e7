//! Settings: PostgreSQL's configuration parameters that Inkling has, and their values.
//!
//! [`defs`] is the registry: one row a setting with its type, bounds, default and the moment at
//! which it may change. [`ServerSettings`] are the values that the configuration file and the
//! command line gave; [`SessionSettings`] are one session's, with `SET`, `SET LOCAL`, `RESET` and
//! what transactions and savepoints undo.
//!
//! ```text
//!   default <- postgresql.conf <- -c name=value <- role/database <- start-up packet
//!           <- SET <- SET LOCAL
//! ```
//!
//! - A name that is in no registry is refused (42704), unless it is a custom `prefix.name`.
//! - A setting whose other values would mean something that is not implemented accepts only the
//!   values that are true here; nothing is accepted and ignored.

pub mod defs;
mod session;
mod value;

pub use defs::{Context, Kind, SettingDef, Unit, find};
pub use session::{ChangeSource, Decoded, ServerSettings, SessionSettings, check_stored};
pub use value::{format_value, parse_value};
