//! From SQL text to the bound tree.
//!
//! ```text
//!   parse.rs      the grammar (PostgreSQL's own), statement ranges, syntax errors
//!   literals.rs   texts that differ in their literals alone, as one text with parameters
//!   bind          names -> tables and columns, types, functions:
//!     scope.rs      what a name means here: range-table entries, levels, CTEs
//!     expr.rs, operator.rs, call.rs, sublink.rs                expressions
//!     resolve.rs    overloads      coerce.rs  conversions      typename.rs  type names
//!     select.rs, from.rs, setop.rs, aggregate.rs               queries
//!     dml.rs        writes
//!     ddl.rs, table.rs, constraint.rs, index.rs, alter.rs, utility.rs, copy.rs: the rest,
//!                   as plain structs
//!   deparse.rs    bound expressions and queries back to canonical SQL
//! ```
//!
//! Guarantees: every error has PostgreSQL's SQLSTATE and, where PostgreSQL gives one, a position;
//! everything that is not implemented is refused by name (0A000); no statement text, however deeply
//! nested, can overflow the stack.

use crate::catalog::{ColumnDef, TableDef};
use crate::error::{Result, SqlError, State};
use crate::functions::CastContext;
use crate::types::{Oid, TypeRef};
use bound::Expr;
use node::Node;
use scope::Binder;
use std::sync::Arc;

mod aggregate;
mod alter;
pub mod bound;
mod call;
mod coerce;
mod constraint;
mod copy;
mod ddl;
pub mod ddl_types;
pub mod deparse;
mod deparse_query;
mod dml;
mod expr;
mod from;
mod index;
pub(crate) mod literals;
mod node;
mod operator;
pub mod parse;
pub(crate) mod quote;
mod resolve;
mod scope;
mod select;
mod setop;
pub mod statement;
mod sublink;
mod table;
mod target;
pub(crate) use target::other_sessions;
mod typename;
mod utility;
pub(crate) mod walk;

#[cfg(test)]
mod tests;

pub use parse::parse;
pub use statement::*;

/// Stack kept free before a step of a recursion over user input.
const RED_ZONE: usize = 128 * 1024;
/// Size of a new stack segment.
const SEGMENT: usize = 4 * 1024 * 1024;
/// What cloning or dropping the deepest accepted syntax tree takes.
pub(crate) const DEEP_STACK: usize = 1024 * 1024;
/// Levels of expressions and sub-selects in one statement.
pub const MAX_BOUND_DEPTH: usize = 1_000;

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
    let node = statement.node.as_deref().ok_or_else(node::missing)?;
    let mut binder = Binder::new(*cx, &statement.source, params);
    let mut bound = bind_node(&mut binder, node)?;
    if binder.open_params {
        settle_params(&binder, &mut bound)?;
    }
    // A gap: $2 without $1.
    if binder.params.mode == statement::ParamMode::Variable
        && let Some(i) = binder.params.types.iter().position(|t| !t.is_valid())
    {
        return Err(scope::undetermined(u16::try_from(i + 1).unwrap_or(u16::MAX)));
    }
    Ok(bound)
}

/// Binds a statement that may also stand inside EXPLAIN.
pub(crate) fn bind_node(b: &mut Binder<'_>, node: &Node) -> Result<Statement> {
    match node {
        Node::SelectStmt(s) if s.into_clause.is_some() => b.select_into(s).map(Statement::Utility),
        Node::SelectStmt(s) => b.select(s, true).map(Statement::Select),
        Node::InsertStmt(s) => b.insert(s).map(Statement::Insert),
        Node::UpdateStmt(s) => b.update(s).map(Statement::Update),
        Node::DeleteStmt(s) => b.delete(s).map(Statement::Delete),
        other => b.utility(other).map(Statement::Utility),
    }
}

/// Gives parameters that were bound before their type was known the type found later.
fn settle_params(b: &Binder<'_>, statement: &mut Statement) -> Result<()> {
    let mut failed = None;
    let f = &mut |e: &mut Expr, _: u16| b.settle_param(e, &mut failed);
    match statement {
        Statement::Select(q) => walk::transform_query(q, 0, f),
        Statement::Insert(i) => {
            walk::transform_query(&mut i.source, 0, f);
            i.returning.iter_mut().flatten().for_each(|t| walk::transform(&mut t.expr, 0, f));
            if let Some(c) = &mut i.on_conflict
                && let bound::ConflictAction::Update { assignments, filter } = &mut c.action
            {
                assignments.iter_mut().for_each(|a| walk::transform(&mut a.1, 0, f));
                filter.iter_mut().for_each(|e| walk::transform(e, 0, f));
            }
        }
        Statement::Update(u) => {
            walk::transform_query(&mut u.query, 0, f);
            u.assignments.iter_mut().for_each(|a| walk::transform(&mut a.1, 0, f));
            u.returning.iter_mut().flatten().for_each(|t| walk::transform(&mut t.expr, 0, f));
        }
        Statement::Delete(d) => {
            walk::transform_query(&mut d.query, 0, f);
            d.returning.iter_mut().flatten().for_each(|t| walk::transform(&mut t.expr, 0, f));
        }
        Statement::Utility(Utility::Explain(e)) => return settle_params(b, &mut e.statement),
        Statement::Utility(Utility::DeclareCursor(c)) => walk::transform_query(&mut c.query, 0, f),
        Statement::Utility(Utility::CreateTableAs(c)) => walk::transform_query(&mut c.query, 0, f),
        Statement::Utility(Utility::Copy(c)) => {
            if let CopySource::Query(q) = &mut c.source {
                walk::transform_query(q, 0, f);
            }
        }
        Statement::Utility(_) => {}
    }
    failed.map_or(Ok(()), Err)
}

/// Converts EXECUTE's arguments to the prepared statement's parameter types.
pub fn coerce_arguments(
    cx: &BindContext<'_>,
    execute: &Execute,
    types: &[Oid],
) -> Result<Vec<Expr>> {
    if execute.args.len() != types.len() {
        return Err(SqlError::new(
            State::SYNTAX_ERROR,
            format!("wrong number of parameters for prepared statement \"{}\"", execute.name),
        )
        .detail(format!(
            "Expected {} parameters but got {}.",
            types.len(),
            execute.args.len()
        )));
    }
    let mut params = ParamTypes::none();
    let mut b = Binder::new(*cx, "", &mut params);
    let mut out = Vec::with_capacity(types.len());
    for (i, (e, oid)) in execute.args.iter().zip(types).enumerate() {
        let from = e.ty().oid;
        let target = TypeRef::plain(*oid);
        match b.try_coerce(e.clone(), target, CastContext::Assignment, -1)? {
            Some(e) => out.push(e),
            None => {
                return Err(SqlError::new(
                    State::DATATYPE_MISMATCH,
                    format!(
                        "parameter ${} of type {} cannot be coerced to the expected type {}",
                        i + 1,
                        b.type_text(from),
                        b.type_text(*oid)
                    ),
                )
                .hint("You will need to rewrite or cast the expression."));
            }
        }
    }
    Ok(out)
}

/// Binds an expression that the catalog keeps as text (an index column, a predicate, a CHECK)
/// over `Var(0, 0, col)` of its table.
pub fn bind_stored_expr(cx: &BindContext<'_>, table: &Arc<TableDef>, text: &str) -> Result<Expr> {
    let mut params = ParamTypes::none();
    Binder::new(*cx, text, &mut params).stored_expr(text, Some(table), scope::Clause::Check)
}

/// Binds a column default that the catalog keeps as text, converted to the column's type.
pub fn bind_default(cx: &BindContext<'_>, column: &ColumnDef) -> Result<Expr> {
    let mut params = ParamTypes::none();
    Binder::new(*cx, "", &mut params).column_default(column)
}
