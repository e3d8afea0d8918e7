//! DROP of tables, indexes, views and schemas.

use super::DdlContext;
use crate::analyze::statement::{DropObjects, ObjectKind};
use crate::catalog::{IndexDef, RelationKind, TableDef};
use crate::error::{Result, Severity, SqlError, State};
use crate::types::Oid;
use inkling_storage::ids::RelId;
use std::sync::Arc;

pub fn drop_objects(cx: &mut DdlContext<'_>, statement: &DropObjects) -> Result<()> {
    cx.notices.extend(statement.notices.iter().cloned());
    if statement.concurrently {
        return Err(SqlError::unsupported("DROP INDEX CONCURRENTLY"));
    }
    for oid in &statement.objects {
        match statement.kind {
            ObjectKind::Table | ObjectKind::View => {
                let Some(table) = cx.catalog.table(*oid).cloned() else { continue };
                let others = &statement.objects;
                drop_relation(cx, &table, statement.cascade, others)?;
            }
            ObjectKind::Index => {
                let Some(index) = cx.catalog.indexes.get(oid).cloned() else { continue };
                refuse_constraint_index(cx, &index)?;
                drop_index(cx, &index)?;
            }
            ObjectKind::Schema => drop_schema(cx, *oid, statement.cascade)?,
            other => return Err(SqlError::unsupported(other.drop_tag())),
        }
        cx.next_command()?;
    }
    Ok(())
}

/// The views that read `oid`, directly.
fn dependents(cx: &mut DdlContext<'_>, oid: Oid) -> Result<Vec<Arc<TableDef>>> {
    let rows = cx.find(Oid::PG_DEPEND, |row| {
        row.get_oid("refclassid") == Oid::PG_CLASS
            && row.get_oid("refobjid") == oid
            && row.get_oid("classid") == Oid::PG_CLASS
    })?;
    let views = rows.iter().filter_map(|(_, row)| cx.catalog.table(row.get_oid("objid")).cloned());
    Ok(views.collect())
}

/// Drops what depends on `oid` under CASCADE, refuses otherwise.
pub fn check_dependents(
    cx: &mut DdlContext<'_>,
    oid: Oid,
    name: &str,
    noun: &str,
    cascade: bool,
) -> Result<()> {
    let views = dependents(cx, oid)?;
    if views.is_empty() {
        return Ok(());
    }
    if !cascade {
        let lines: Vec<String> =
            views.iter().map(|v| format!("view {} depends on {noun} {name}", v.name)).collect();
        return Err(SqlError::new(
            State::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop {noun} {name} because other objects depend on it"),
        )
        .detail(lines.join("\n"))
        .hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    for view in views {
        let text = format!("drop cascades to view {}", view.name);
        cx.notices
            .push(SqlError::new(State::SUCCESSFUL_COMPLETION, text).severity(Severity::Notice));
        drop_relation(cx, &view, true, &[])?;
    }
    Ok(())
}

/// Drops a table or view with everything that is part of it. `also`: dropped by the same
/// statement, so they do not stand in the way.
fn drop_relation(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    cascade: bool,
    also: &[Oid],
) -> Result<()> {
    let noun = if table.kind == RelationKind::View { "view" } else { "table" };
    let blocked = dependents(cx, table.oid)?.iter().any(|v| !also.contains(&v.oid));
    if blocked {
        check_dependents(cx, table.oid, &table.name, noun, cascade)?;
    }
    for index in &table.indexes {
        drop_index(cx, index)?;
    }
    let oid = table.oid;
    if let Some((rel, _)) = table.toast {
        cx.delete_where(Oid::PG_CLASS, |r| r.get_oid("relfilenode") == Oid(rel.raw()))?;
        cx.engine.drop_rel_at_commit(cx.tx, rel)?;
    }
    cx.delete_where(Oid::PG_CLASS, |r| r.get_oid("oid") == oid)?;
    cx.delete_where(Oid::PG_ATTRIBUTE, |r| r.get_oid("attrelid") == oid)?;
    cx.delete_where(Oid::PG_ATTRDEF, |r| r.get_oid("adrelid") == oid)?;
    cx.delete_where(Oid::PG_CONSTRAINT, |r| r.get_oid("conrelid") == oid)?;
    cx.delete_where(Oid::PG_REWRITE, |r| r.get_oid("ev_class") == oid)?;
    cx.delete_where(Oid::PG_DEPEND, |r| r.get_oid("objid") == oid)?;
    cx.delete_where(Oid::PG_DESCRIPTION, |r| {
        r.get_oid("objoid") == oid && r.get_oid("classoid") == Oid::PG_CLASS
    })?;
    let row_type = table.row_type;
    cx.delete_where(Oid::PG_TYPE, |r| {
        row_type.is_valid() && (r.get_oid("oid") == row_type || r.get_oid("typelem") == row_type)
    })?;
    if table.rel != RelId::INVALID {
        cx.engine.drop_rel_at_commit(cx.tx, table.rel)?;
    }
    Ok(())
}

fn refuse_constraint_index(cx: &mut DdlContext<'_>, index: &IndexDef) -> Result<()> {
    let found = cx.find(Oid::PG_CONSTRAINT, |r| r.get_oid("conindid") == index.oid)?;
    let Some((_, row)) = found.first() else { return Ok(()) };
    let table = cx.catalog.table(index.table).map_or_else(String::new, |t| t.name.clone());
    let constraint = row.get_text("conname");
    Err(SqlError::new(
        State::DEPENDENT_OBJECTS_STILL_EXIST,
        format!(
            "cannot drop index {} because constraint {constraint} on table {table} requires it",
            index.name
        ),
    )
    .hint(format!("You can drop constraint {constraint} on table {table} instead.")))
}

pub fn drop_index(cx: &mut DdlContext<'_>, index: &IndexDef) -> Result<()> {
    let oid = index.oid;
    cx.delete_where(Oid::PG_CLASS, |r| r.get_oid("oid") == oid)?;
    cx.delete_where(Oid::PG_ATTRIBUTE, |r| r.get_oid("attrelid") == oid)?;
    cx.delete_where(Oid::PG_INDEX, |r| r.get_oid("indexrelid") == oid)?;
    cx.delete_where(Oid::PG_DESCRIPTION, |r| {
        r.get_oid("objoid") == oid && r.get_oid("classoid") == Oid::PG_CLASS
    })?;
    cx.engine.drop_rel_at_commit(cx.tx, index.rel)?;
    Ok(())
}

fn drop_schema(cx: &mut DdlContext<'_>, oid: Oid, cascade: bool) -> Result<()> {
    let name = cx.catalog.schemas.get(&oid).map_or_else(String::new, |s| s.name.clone());
    if oid < Oid::FIRST_USER && oid != Oid::PUBLIC_SCHEMA {
        return Err(SqlError::new(
            State::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop schema {name} because it is required by the database system"),
        ));
    }
    let inside: Vec<Arc<TableDef>> =
        cx.catalog.tables.values().filter(|t| t.schema == oid).cloned().collect();
    if !inside.is_empty() && !cascade {
        let lines: Vec<String> = inside
            .iter()
            .map(|t| format!("table {}.{} depends on schema {name}", name, t.name))
            .collect();
        return Err(SqlError::new(
            State::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop schema {name} because other objects depend on it"),
        )
        .detail(lines.join("\n"))
        .hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    let oids: Vec<Oid> = inside.iter().map(|t| t.oid).collect();
    // Views first: they depend on the tables, never the other way round.
    let (views, tables): (Vec<_>, Vec<_>) =
        inside.into_iter().partition(|t| t.kind == RelationKind::View);
    for table in views.iter().chain(&tables) {
        drop_relation(cx, table, true, &oids)?;
        cx.next_command()?;
    }
    cx.delete_where(Oid::PG_NAMESPACE, |r| r.get_oid("oid") == oid)?;
    Ok(())
}
