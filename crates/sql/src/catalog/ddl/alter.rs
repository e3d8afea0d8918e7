//! ALTER TABLE.

use super::DdlContext;
use super::create::{add_constraint, column_rows, default_row, refuse_constraint};
use super::index::TableRows;
use crate::analyze::bound::Expr;
use crate::analyze::statement::{
    AlterAction, AlterTable, ColumnSpec, ConstraintSpec, ConstraintSpecKind, StoredExpr,
};
use crate::analyze::walk;
use crate::catalog::describe::options_array;
use crate::catalog::{ColumnDef, ConstraintKind, TableDef, durability};
use crate::error::{Result, SqlError, State};
use crate::functions::Volatility;
use crate::types::{Datum, Oid};
use std::sync::Arc;

pub fn alter_table(cx: &mut DdlContext<'_>, statement: &AlterTable) -> Result<()> {
    cx.notices.extend(statement.notices.iter().cloned());
    statement.actions.iter().try_for_each(refuse_unsupported)?;
    let mut table = Arc::clone(&statement.table);
    for action in &statement.actions {
        alter(cx, &table, action)?;
        cx.next_command()?;
        table = super::store::reload_table(cx.engine, cx.tx, table.oid)?;
    }
    Ok(())
}

fn refuse_unsupported(action: &AlterAction) -> Result<()> {
    let what = match action {
        AlterAction::AddColumn(c) if c.sequence.is_some() => "a serial or identity column",
        AlterAction::SetType { .. } => "ALTER COLUMN ... TYPE",
        AlterAction::AddIdentity { .. } | AlterAction::DropIdentity { .. } => "an identity column",
        AlterAction::SetLogged => "ALTER TABLE ... SET LOGGED",
        AlterAction::SetUnlogged => "ALTER TABLE ... SET UNLOGGED",
        AlterAction::ValidateConstraint { .. } => "VALIDATE CONSTRAINT",
        AlterAction::AddConstraint(c) => return refuse_constraint(c),
        _ => return Ok(()),
    };
    Err(SqlError::unsupported(what))
}

fn alter(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, action: &AlterAction) -> Result<()> {
    match action {
        AlterAction::AddColumn(column) => add_column(cx, table, column),
        AlterAction::DropColumn { attnum, cascade } => drop_column(cx, table, *attnum, *cascade),
        AlterAction::SetDefault { attnum, default } => {
            set_default(cx, table, *attnum, default.as_ref())
        }
        AlterAction::SetNotNull { attnum } => {
            check_no_nulls(cx, table, &[*attnum as usize - 1])?;
            set_not_null(cx, table, *attnum, true)
        }
        AlterAction::DropNotNull { attnum } => drop_not_null(cx, table, *attnum),
        AlterAction::SetStatistics { attnum, target } => {
            change_attribute(cx, table, *attnum, |row| {
                row.put("attstattarget", Datum::Int4(*target));
            })
        }
        AlterAction::AddConstraint(constraint) => add_table_constraint(cx, table, constraint),
        AlterAction::DropConstraint { name, .. } => drop_constraint(cx, table, name),
        AlterAction::SetOptions(set) => change_options(cx, table, |options| {
            for (name, value) in set {
                options.retain(|(n, _)| n != name);
                options.push((name.clone(), value.clone()));
            }
        }),
        AlterAction::ResetOptions(names) => {
            change_options(cx, table, |options| options.retain(|(n, _)| !names.contains(n)))
        }
        other => Err(SqlError::unsupported(format!("{other:?}"))),
    }
}

fn change_attribute(
    cx: &mut DdlContext<'_>,
    table: &TableDef,
    attnum: i16,
    change: impl FnOnce(&mut crate::catalog::rows::CatalogRow),
) -> Result<()> {
    let wanted = |row: &crate::catalog::rows::CatalogRow| {
        row.get_oid("attrelid") == table.oid && row.get_int("attnum") == i64::from(attnum)
    };
    let found = cx.find(Oid::PG_ATTRIBUTE, wanted)?.into_iter().next();
    let (at, mut row) =
        found.ok_or_else(|| SqlError::internal(format!("column {attnum} is gone")))?;
    change(&mut row);
    cx.update(at, row)
}

/// The new column's value in existing rows is evaluated once; a default that would differ from
/// row to row needs a rewrite, which is not there.
fn add_column(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, spec: &ColumnSpec) -> Result<()> {
    let missing = match &spec.default {
        Some(default) if is_volatile(&default.expr) => {
            return Err(SqlError::unsupported("ADD COLUMN with a volatile default"));
        }
        Some(default) => Some(cx.host.compile(&default.expr)?(&[])?),
        None => None,
    };
    let missing = missing.filter(|value| !value.is_null());
    let column = ColumnDef {
        name: spec.name.clone(),
        attnum: table.columns.len() as i16 + 1,
        ty: spec.ty,
        not_null: spec.not_null,
        dropped: false,
        default: spec.default.as_ref().map(|d| d.text.clone()),
        missing,
        collation: spec.collation,
    };
    if column.not_null && column.missing.is_none() && has_rows(cx, table)? {
        return Err(contains_nulls(table, &column.name));
    }
    let count = column.attnum;
    let rows = column_rows(cx, table.oid, &column)?;
    cx.insert(rows)?;
    cx.change(Oid::PG_CLASS, table.oid, |row| row.put("relnatts", Datum::Int2(count)))
}

pub(super) fn contains_nulls(table: &TableDef, column: &str) -> SqlError {
    SqlError::new(
        State::NOT_NULL_VIOLATION,
        format!("column \"{column}\" of relation \"{}\" contains null values", table.name),
    )
    .object(|o| {
        o.schema = Some(table.schema_name.clone());
        o.table = Some(table.name.clone());
        o.column = Some(column.to_owned());
    })
}

/// Calls `visit` with every live row; columns are decoded up to `upto`.
fn each_row(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    upto: usize,
    mut visit: impl FnMut(&[Datum]) -> Result<()>,
) -> Result<()> {
    let host = cx.host;
    TableRows::new(cx.engine, table).visit(upto, &|| host.check_interrupt(), &mut |row, _, live| {
        if live { visit(row) } else { Ok(()) }
    })
}

fn has_rows(cx: &mut DdlContext<'_>, table: &Arc<TableDef>) -> Result<bool> {
    let mut any = false;
    each_row(cx, table, 0, |_| {
        any = true;
        Ok(())
    })?;
    Ok(any)
}

fn check_no_nulls(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, columns: &[usize]) -> Result<()> {
    let upto = columns.iter().max().map_or(0, |c| c + 1);
    each_row(cx, table, upto, |row| match columns.iter().find(|c| row[**c].is_null()) {
        Some(c) => Err(contains_nulls(table, &table.columns[*c].name)),
        None => Ok(()),
    })
}

fn set_not_null(
    cx: &mut DdlContext<'_>,
    table: &TableDef,
    attnum: i16,
    not_null: bool,
) -> Result<()> {
    change_attribute(cx, table, attnum, |row| row.put("attnotnull", Datum::Bool(not_null)))
}

fn drop_not_null(cx: &mut DdlContext<'_>, table: &TableDef, attnum: i16) -> Result<()> {
    let in_key = |k: &TableDef| {
        k.primary_key().is_some_and(|i| i.columns.iter().any(|c| c.attnum == attnum))
    };
    if in_key(table) {
        let name = &table.columns[attnum as usize - 1].name;
        return Err(SqlError::new(
            State::INVALID_TABLE_DEFINITION,
            format!("column \"{name}\" is in a primary key"),
        ));
    }
    set_not_null(cx, table, attnum, false)
}

fn set_default(
    cx: &mut DdlContext<'_>,
    table: &TableDef,
    attnum: i16,
    default: Option<&StoredExpr>,
) -> Result<()> {
    cx.delete_where(Oid::PG_ATTRDEF, |row| {
        row.get_oid("adrelid") == table.oid && row.get_int("adnum") == i64::from(attnum)
    })?;
    if let Some(default) = default {
        let row = default_row(cx.new_oid()?, table.oid, attnum, &default.text);
        cx.insert(vec![row])?;
    }
    let has = default.is_some();
    change_attribute(cx, table, attnum, |row| row.put("atthasdef", Datum::Bool(has)))
}

/// The column stays in the rows and in pg_attribute, unnamed; its indexes and constraints go.
fn drop_column(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    attnum: i16,
    cascade: bool,
) -> Result<()> {
    super::drop::check_dependents(cx, table.oid, &table.name, "table", cascade)?;
    for constraint in table.constraints.iter().filter(|c| c.columns.contains(&attnum)) {
        drop_constraint(cx, table, &constraint.name)?;
    }
    let of_column = |i: &&Arc<crate::catalog::IndexDef>| {
        let is_constraint = table.constraints.iter().any(|c| match c.kind {
            ConstraintKind::Primary { index } | ConstraintKind::Unique { index } => index == i.oid,
            _ => false,
        });
        !is_constraint && i.columns.iter().any(|c| c.attnum == attnum)
    };
    for index in table.indexes.iter().filter(of_column) {
        super::drop::drop_index(cx, index)?;
    }
    cx.delete_where(Oid::PG_ATTRDEF, |row| {
        row.get_oid("adrelid") == table.oid && row.get_int("adnum") == i64::from(attnum)
    })?;
    change_attribute(cx, table, attnum, |row| {
        row.put("attname", Datum::text(format!("........pg.dropped.{attnum}........")));
        row.put("attisdropped", Datum::Bool(true));
        row.put("attnotnull", Datum::Bool(false));
        row.put("atthasdef", Datum::Bool(false));
        row.put("atthasmissing", Datum::Bool(false));
        row.put("attmissingval", Datum::Null);
    })
}

fn add_table_constraint(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    constraint: &ConstraintSpec,
) -> Result<()> {
    match &constraint.kind {
        ConstraintSpecKind::Primary { columns, .. } => {
            // The index's build finds nulls.
            for column in columns {
                set_not_null(cx, table, *column as i16 + 1, true)?;
            }
        }
        ConstraintSpecKind::Check { check, .. } if !constraint.not_valid => {
            let holds = cx.host.compile(&check.expr)?;
            let violated = || {
                SqlError::new(
                    State::CHECK_VIOLATION,
                    format!(
                        "check constraint \"{}\" of relation \"{}\" is violated by some row",
                        constraint.name, table.name
                    ),
                )
            };
            each_row(cx, table, table.columns.len(), |row| match holds(row)? {
                Datum::Bool(false) => Err(violated()),
                _ => Ok(()),
            })?;
        }
        _ if constraint.not_valid => return Err(SqlError::unsupported("NOT VALID")),
        _ => {}
    }
    let is_check = matches!(constraint.kind, ConstraintSpecKind::Check { .. });
    add_constraint(cx, table, constraint)?;
    cx.change(Oid::PG_CLASS, table.oid, |row| match is_check {
        true => row.put("relchecks", Datum::Int2(row.get_int("relchecks") as i16 + 1)),
        false => row.put("relhasindex", Datum::Bool(true)),
    })
}

fn drop_constraint(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, name: &str) -> Result<()> {
    let constraint = table.constraints.iter().find(|c| c.name == name).ok_or_else(|| {
        SqlError::new(
            State::UNDEFINED_OBJECT,
            format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name),
        )
    })?;
    let oid = constraint.oid;
    cx.delete_where(Oid::PG_CONSTRAINT, |row| row.get_oid("oid") == oid)?;
    match &constraint.kind {
        ConstraintKind::Primary { index } | ConstraintKind::Unique { index } => {
            let index = table.indexes.iter().find(|i| i.oid == *index).cloned();
            index.map_or(Ok(()), |i| super::drop::drop_index(cx, &i))
        }
        ConstraintKind::Check { .. } => cx.change(Oid::PG_CLASS, table.oid, |row| {
            row.put("relchecks", Datum::Int2((row.get_int("relchecks") as i16 - 1).max(0)));
        }),
        ConstraintKind::Foreign { .. } => Ok(()),
    }
}

fn change_options(
    cx: &mut DdlContext<'_>,
    table: &TableDef,
    change: impl FnOnce(&mut Vec<(String, String)>),
) -> Result<()> {
    let mut options = table.options.clone();
    change(&mut options);
    durability::check(&options, table.persistence)?;
    cx.change(Oid::PG_CLASS, table.oid, |row| row.put("reloptions", options_array(&options)))
}

/// Whether the expression's value may differ from row to row.
fn is_volatile(expr: &Expr) -> bool {
    let mut found = false;
    walk::visit(expr, 0, &mut |e, _| {
        if let Expr::Call { function, .. } = e {
            found |= function.volatility == Volatility::Volatile;
        }
        !found
    });
    found
}
