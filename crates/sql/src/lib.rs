//! Inkling's SQL layer: catalog, analysis, planning, execution, types and functions.
//!
//! No network and no async runtime here: a statement is driven step by step, and a step that
//! cannot go on returns a wait handle.

pub mod alarms;
pub mod analyze;
pub mod catalog;
pub mod error;
pub mod exec;
pub mod functions;
pub mod keycode;
pub mod plan;
pub mod row;
pub mod session;
pub mod settings;
pub mod types;

pub use error::{Result, SqlError};
