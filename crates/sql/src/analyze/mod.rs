//! From SQL text to the bound tree.
//!
//! ```text
//!   parse.rs      the grammar (PostgreSQL's own), statement ranges, syntax errors
//!   bind          names -> tables and columns, types, functions:
//!     scope.rs      what a name means here: range-table entries, levels, CTEs
//!     expr*.rs      expressions          resolve.rs  overloads       coerce.rs  type conversion
//!     select.rs, from.rs, aggregate.rs   queries     dml.rs          writes
//!     ddl.rs, utility.rs                 the rest, as plain structs
//!   deparse.rs    bound expressions and queries back to canonical SQL
//! ```
//!
//! Guarantees: every error has PostgreSQL's SQLSTATE and, where PostgreSQL gives one, a position;
//! everything that is not implemented is refused by name (0A000); no statement text, however deeply
//! nested, can overflow the stack.

use crate::error::{Result, SqlError};

pub mod bound;
pub mod ddl_types;
pub mod parse;
pub mod statement;

pub use parse::parse;
pub use statement::*;

/// Stack kept free before a step of a recursion over user input.
const RED_ZONE: usize = 128 * 1024;
/// Size of a new stack segment.
const SEGMENT: usize = 4 * 1024 * 1024;
/// What cloning or dropping the deepest accepted syntax tree takes.
pub(crate) const DEEP_STACK: usize = 1024 * 1024;

/// Runs `f` with at least `need` bytes of stack.
pub(crate) fn with_stack<R>(need: usize, f: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(need.max(RED_ZONE), SEGMENT.max(need * 2), f)
}

/// Gives names, types and functions to a parsed statement.
///
/// `params` says what is known of `$n`; what was left open is filled in.
pub fn bind(
    cx: &BindContext<'_>,
    statement: &ParsedStatement,
    params: &mut ParamTypes,
) -> Result<Statement> {
    let _ = (cx, params);
    Err(SqlError::unsupported(format!("statement \"{}\"", statement.text())))
}
