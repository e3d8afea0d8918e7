//! Guesses: how many rows a condition leaves, and what things cost.
//!
//! Costs are in PostgreSQL's unit (reading one page in sequence). There are no column statistics;
//! what is known is the number of pages and rows, and which columns are unique.

use super::compile::comparison;
use crate::analyze::bound::*;
use crate::catalog::{IndexDef, TableDef};
use crate::exec::expr::CompareOp;
use crate::types::Datum;

/// Handling one row.
pub(super) const TUPLE: f64 = 0.01;
/// Evaluating one condition.
pub(super) const OPERATOR: f64 = 0.0025;
/// Following one index entry.
pub(super) const INDEX_TUPLE: f64 = 0.005;
/// Reading one page somewhere. Most are in memory, hence less than PostgreSQL's 4.
pub(super) const RANDOM_PAGE: f64 = 1.5;
/// What a LIMIT whose value is not known yet is taken for.
pub(super) const UNKNOWN_LIMIT: f64 = 100.0;
/// How many different values a column without a unique index is taken to have.
const DISTINCT: f64 = 200.0;

/// Whether a unique index makes `attnum` alone a key.
pub(super) fn is_unique(table: &TableDef, attnum: i16) -> bool {
    let alone = |i: &IndexDef| {
        i.unique
            && i.immediate
            && i.valid
            && i.predicate.is_none()
            && i.key_columns == 1
            && i.columns.first().is_some_and(|c| c.attnum == attnum)
    };
    table.indexes.iter().any(|i| alone(i))
}

/// How many different values a column has.
pub(super) fn distinct_values(table: &TableDef, rows: f64, col: i16) -> f64 {
    if col >= 0 && is_unique(table, col + 1) { rows } else { rows.min(DISTINCT) }.max(1.0)
}

/// The part of the rows that a condition on one table leaves.
pub(super) fn selectivity(e: &Expr, table: &TableDef, rows: f64) -> f64 {
    match e {
        Expr::Const { value: Datum::Bool(false) | Datum::Null, .. } => 0.0,
        Expr::And(items) => items.iter().map(|i| selectivity(i, table, rows)).product(),
        Expr::Or(items) => items.iter().map(|i| selectivity(i, table, rows)).sum::<f64>().min(1.0),
        Expr::Not(arg) => 1.0 - selectivity(arg, table, rows),
        Expr::IsNull { negated, .. } => {
            if *negated {
                0.995
            } else {
                0.005
            }
        }
        Expr::InList { left, items, .. } => {
            (column_share(left, table, rows) * items.len() as f64).min(1.0)
        }
        Expr::ArrayCompare { left, all: false, function, .. }
            if comparison(function).is_some_and(|c| c.0 == CompareOp::Eq) =>
        {
            (column_share(left, table, rows) * 10.0).min(1.0)
        }
        Expr::Call { function, args, .. } => match comparison(function) {
            Some((CompareOp::Eq, _)) => {
                let share = args.iter().map(|a| column_share(a, table, rows));
                share.fold(1.0, f64::min).min(1.0)
            }
            Some((CompareOp::Ne, _)) => 0.995,
            Some(_) => 1.0 / 3.0,
            None if function.name.contains("like") => 0.05,
            None => 1.0 / 3.0,
        },
        Expr::Var(_) => 0.5,
        _ => 1.0 / 3.0,
    }
}

/// The part of the rows that has one value of an expression.
fn column_share(e: &Expr, table: &TableDef, rows: f64) -> f64 {
    match e {
        Expr::Var(v) if v.level == 0 => 1.0 / distinct_values(table, rows, v.col),
        Expr::Relabel { arg, .. } | Expr::Collate { arg, .. } => column_share(arg, table, rows),
        Expr::Const { .. } | Expr::Param { .. } => 1.0,
        _ => 1.0 / rows.clamp(1.0, DISTINCT),
    }
}

/// A column's width in bytes, for EXPLAIN.
pub(super) fn width(table: &TableDef) -> u32 {
    let one = |len: i16| if len > 0 { len as u32 } else { 32 };
    table.live_columns().map(|c| crate::types::info(c.ty.oid).map_or(32, |i| one(i.len))).sum()
}
