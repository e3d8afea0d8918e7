//! ALTER TABLE.

use super::DdlContext;
use super::create::{add_constraint, column_rows, default_rows, stored_default};
use super::foreign::{self, Support};
use super::index::TableRows;
use super::persistence::{refuse_twice, set_persistence};
use super::sequence;
use crate::analyze::bound::Expr;
use crate::analyze::statement::{
    AlterAction, AlterTable, ColumnSpec, ConstraintSpec, ConstraintSpecKind, OwnedSequence,
    SequenceOptions, StoredExpr,
};
use crate::analyze::walk;
use crate::catalog::describe::options_array;
use crate::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Identity, Persistence, SequenceOwner, TableDef,
    durability,
};
use crate::error::{Result, SqlError, State};
use crate::functions::Volatility;
use crate::types::{Datum, Oid};
use std::sync::Arc;

pub fn alter_table(cx: &mut DdlContext<'_>, statement: &AlterTable) -> Result<()> {
    cx.notices.extend(statement.notices.iter().cloned());
    statement.actions.iter().try_for_each(refuse_unsupported)?;
    refuse_twice(statement)?;
    let mut table = Arc::clone(&statement.table);
    for action in &statement.actions {
        alter(cx, &table, action)?;
        cx.next_command()?;
        // What the next action finds is what this one left.
        cx.catalog = Arc::new(super::store::load_snapshot(cx.engine, cx.tx, cx.catalog.version)?);
        let oid = table.oid;
        let reloaded = cx.catalog.table(oid).cloned();
        table = reloaded.ok_or_else(|| SqlError::internal(format!("relation {oid} is gone")))?;
    }
    Ok(())
}

fn refuse_unsupported(action: &AlterAction) -> Result<()> {
    let what = match action {
        AlterAction::SetType { .. } => "ALTER COLUMN ... TYPE",
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
        AlterAction::AddIdentity { attnum, sequence } => add_identity(cx, table, *attnum, sequence),
        AlterAction::SetIdentity { attnum, identity, options } => {
            set_identity(cx, table, *attnum, *identity, options)
        }
        AlterAction::DropIdentity { attnum } => drop_identity(cx, table, *attnum),
        AlterAction::AddConstraint(constraint) => add_table_constraint(cx, table, constraint),
        AlterAction::DropConstraint { name, cascade } => drop_constraint(cx, table, name, *cascade),
        AlterAction::ValidateConstraint { name } => validate_constraint(cx, table, name),
        AlterAction::SetLogged => set_persistence(cx, table, Persistence::Permanent),
        AlterAction::SetUnlogged => set_persistence(cx, table, Persistence::Unlogged),
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

pub(super) fn change_attribute(
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

/// Whether existing rows must be given the new column's value one by one, because it differs from
/// row to row. That is the session's to do, once the column is there.
pub fn fills(action: &AlterAction) -> Option<&ColumnSpec> {
    match action {
        AlterAction::AddColumn(spec) if fills_column(spec) => Some(spec),
        _ => None,
    }
}

fn fills_column(spec: &ColumnSpec) -> bool {
    spec.sequence.is_some() || spec.default.as_ref().is_some_and(|d| is_volatile(&d.expr))
}

/// The new column's value in existing rows is evaluated once, unless it [`fills`].
fn add_column(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, spec: &ColumnSpec) -> Result<()> {
    let missing = match &spec.default {
        Some(_) if fills_column(spec) => None,
        Some(default) => Some(cx.host.compile(&default.expr)?(&[])?),
        None => None,
    };
    let missing = missing.filter(|value| !value.is_null());
    let sequence = match &spec.sequence {
        Some(wanted) => {
            let (schema, persistence) = (table.schema, table.persistence);
            Some(sequence::make_for_column(cx, schema, persistence, table.owner, wanted)?)
        }
        None => None,
    };
    let column = ColumnDef {
        name: spec.name.clone(),
        attnum: table.columns.len() as i16 + 1,
        ty: spec.ty,
        not_null: spec.not_null,
        dropped: false,
        default: stored_default(spec, sequence),
        identity: spec.sequence.as_ref().and_then(|s| s.kind.identity()),
        missing,
        collation: spec.collation,
    };
    let empty = column.missing.is_none() && !fills_column(spec);
    if column.not_null && empty && has_rows(cx, table)? {
        return Err(contains_nulls(table, &column.name));
    }
    let count = column.attnum;
    let rows = column_rows(cx, table.oid, &column)?;
    cx.insert(rows)?;
    if let Some(sequence) = sequence {
        let identity = column.identity.is_some();
        let owner = SequenceOwner { table: table.oid, attnum: column.attnum, identity };
        sequence::own(cx, sequence, owner)?;
    }
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
    drop_default(cx, table.oid, attnum)?;
    if let Some(default) = default {
        let rows = default_rows(cx.new_oid()?, table.oid, attnum, &default.text);
        cx.insert(rows)?;
    }
    let has = default.is_some();
    change_attribute(cx, table, attnum, |row| row.put("atthasdef", Datum::Bool(has)))
}

/// Removes a column's default from the catalog, and what it depended on.
pub fn drop_default(cx: &mut DdlContext<'_>, table: Oid, attnum: i16) -> Result<()> {
    let found = cx.find(Oid::PG_ATTRDEF, |row| {
        row.get_oid("adrelid") == table && row.get_int("adnum") == i64::from(attnum)
    })?;
    for (at, row) in found {
        let default = row.get_oid("oid");
        cx.delete(Oid::PG_ATTRDEF, at)?;
        cx.delete_where(Oid::PG_DEPEND, |row| {
            row.get_oid("classid") == Oid::PG_ATTRDEF && row.get_oid("objid") == default
        })?;
    }
    Ok(())
}

fn add_identity(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    attnum: i16,
    wanted: &OwnedSequence,
) -> Result<()> {
    let (schema, persistence) = (table.schema, table.persistence);
    let sequence = sequence::make_for_column(cx, schema, persistence, table.owner, wanted)?;
    sequence::own(cx, sequence, SequenceOwner { table: table.oid, attnum, identity: true })?;
    let code = wanted.kind.identity().map_or(0, |identity| identity.code() as u8);
    change_attribute(cx, table, attnum, |row| row.put("attidentity", Datum::Char(code)))
}

fn set_identity(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    attnum: i16,
    identity: Option<Identity>,
    options: &SequenceOptions,
) -> Result<()> {
    let sequence = sequence::of_identity(&cx.catalog, table, attnum)?;
    sequence::alter_options(cx, &sequence, options)?;
    let Some(identity) = identity else { return Ok(()) };
    let code = identity.code() as u8;
    change_attribute(cx, table, attnum, |row| row.put("attidentity", Datum::Char(code)))
}

fn drop_identity(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, attnum: i16) -> Result<()> {
    let sequence = sequence::of_identity(&cx.catalog, table, attnum)?;
    let noun = "identity of table";
    super::drop::drop_owned(cx, &sequence, (noun, &table.name), false, &[table.oid])?;
    change_attribute(cx, table, attnum, |row| row.put("attidentity", Datum::Char(0)))
}

/// The column stays in the rows and in pg_attribute, unnamed; its indexes and constraints go.
fn drop_column(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    attnum: i16,
    cascade: bool,
) -> Result<()> {
    super::drop::check_dependents(
        cx,
        table.oid,
        (&table.name, "table"),
        cascade,
        (Vec::new(), &[]),
    )?;
    let name = &table.columns[attnum as usize - 1].name;
    let column = format!("column {name} of table {}", table.name);
    let support = Support::Column(table.oid, attnum);
    super::drop::drop_foreign_keys(cx, support, (&column, &column), cascade, |c| {
        // Those of the column itself go with it.
        c.table == table.oid && c.columns.contains(&attnum)
    })?;
    for constraint in table.constraints.iter().filter(|c| c.columns.contains(&attnum)) {
        remove_constraint(cx, table, constraint)?;
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
    drop_default(cx, table.oid, attnum)?;
    for sequence in sequence::owned_by_column(&cx.catalog, table.oid, attnum) {
        let noun = format!("column {} of table", table.columns[attnum as usize - 1].name);
        super::drop::drop_owned(cx, &sequence, (&noun, &table.name), cascade, &[table.oid])?;
    }
    change_attribute(cx, table, attnum, |row| {
        row.put("attidentity", Datum::Char(0));
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
        ConstraintSpecKind::Foreign { .. } => return add_foreign(cx, table, constraint),
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

/// A foreign key of a table that has rows.
fn add_foreign(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    constraint: &ConstraintSpec,
) -> Result<()> {
    add_constraint(cx, table, constraint)?;
    if constraint.not_valid {
        return Ok(());
    }
    cx.next_command()?;
    cx.catalog = Arc::new(super::store::load_snapshot(cx.engine, cx.tx, cx.catalog.version)?);
    let table = cx.catalog.table(table.oid).cloned();
    let table = table.ok_or_else(|| SqlError::internal("the altered table is gone"))?;
    let made = find_constraint(&table, &constraint.name)?;
    foreign::check_rows(cx, &table, &made)
}

fn find_constraint(table: &TableDef, name: &str) -> Result<Arc<ConstraintDef>> {
    table.constraints.iter().find(|c| c.name == name).cloned().ok_or_else(|| {
        SqlError::new(
            State::UNDEFINED_OBJECT,
            format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name),
        )
    })
}

fn validate_constraint(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, name: &str) -> Result<()> {
    let constraint = find_constraint(table, name)?;
    match constraint.kind {
        ConstraintKind::Foreign { .. } if !constraint.validated => {
            foreign::validate(cx, table, &constraint)
        }
        ConstraintKind::Foreign { .. } | ConstraintKind::Check { .. } => Ok(()),
        ConstraintKind::Primary { .. } | ConstraintKind::Unique { .. } => Err(SqlError::new(
            State::WRONG_OBJECT_TYPE,
            format!(
                "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
                table.name
            ),
        )),
    }
}

/// DROP CONSTRAINT: foreign keys that need the constraint's index stand in the way, or go too.
fn drop_constraint(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    name: &str,
    cascade: bool,
) -> Result<()> {
    let constraint = find_constraint(table, name)?;
    if let ConstraintKind::Primary { index } | ConstraintKind::Unique { index } = constraint.kind {
        let what = format!("constraint {name} on table {}", table.name);
        let support = table.indexes.iter().find(|i| i.oid == index);
        let support = format!("index {}", support.map_or(name, |i| i.name.as_str()));
        let names = (what.as_str(), support.as_str());
        super::drop::drop_foreign_keys(cx, Support::Index(index), names, cascade, |_| false)?;
    }
    remove_constraint(cx, table, &constraint)
}

fn remove_constraint(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    constraint: &ConstraintDef,
) -> Result<()> {
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
