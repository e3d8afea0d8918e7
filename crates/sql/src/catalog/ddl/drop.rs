//! DROP of tables, indexes, views, sequences and schemas.

use super::foreign::{self, Support};
use super::{DdlContext, alter};
use crate::analyze::statement::{DropObjects, ObjectKind};
use crate::catalog::{ConstraintDef, IndexDef, RelationKind, TableDef};
use crate::error::{Result, Severity, SqlError, State};
use crate::types::{Datum, Oid};
use inkling_storage::ids::RelId;
use std::sync::Arc;

pub fn drop_objects(cx: &mut DdlContext<'_>, statement: &DropObjects) -> Result<()> {
    let dropped = drop_each(cx, statement);
    match statement.objects.len() {
        0 | 1 => dropped,
        _ => dropped.map_err(of_several),
    }
}

/// The error of one of several objects, in the words for all of them.
fn of_several(e: SqlError) -> SqlError {
    if !e.message().ends_with("because other objects depend on it") {
        return e;
    }
    let text = "cannot drop desired object(s) because other objects depend on them";
    SqlError::new(e.state, text)
        .detail(e.get_detail().unwrap_or_default())
        .hint(e.get_hint().unwrap_or_default())
}

fn drop_each(cx: &mut DdlContext<'_>, statement: &DropObjects) -> Result<()> {
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
            ObjectKind::Sequence => {
                let Some(table) = cx.catalog.table(*oid).cloned() else { continue };
                refuse_identity_sequence(cx, &table)?;
                let what = ("sequence", table.name.as_str());
                drop_owned(cx, &table, what, statement.cascade, &[])?;
            }
            ObjectKind::Index => {
                let Some(index) = cx.catalog.indexes.get(oid).cloned() else { continue };
                refuse_constraint_index(cx, &index)?;
                let what = format!("index {}", index.name);
                let (support, names) = (Support::Index(*oid), (what.as_str(), what.as_str()));
                drop_foreign_keys(cx, support, names, statement.cascade, |_| false)?;
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
    let reading = rows.iter().filter_map(|(_, row)| cx.catalog.table(row.get_oid("objid")));
    Ok(reading.filter(|t| t.kind == RelationKind::View).cloned().collect())
}

fn still_depended_on(what: &str, lines: &[String]) -> SqlError {
    SqlError::new(
        State::DEPENDENT_OBJECTS_STILL_EXIST,
        format!("cannot drop {what} because other objects depend on it"),
    )
    .detail(lines.join("\n"))
    .hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// Drops the views and foreign keys (`keys`) that depend on a relation, called `noun name`, under
/// CASCADE; refuses otherwise. Views in `also` go anyhow.
pub fn check_dependents(
    cx: &mut DdlContext<'_>,
    oid: Oid,
    (name, noun): (&str, &str),
    cascade: bool,
    (keys, also): (Vec<Arc<ConstraintDef>>, &[Oid]),
) -> Result<()> {
    let mut views = dependents(cx, oid)?;
    views.retain(|v| !also.contains(&v.oid));
    let view = |v: &Arc<TableDef>| format!("view {}", v.name);
    let constraint = |k: &Arc<ConstraintDef>| foreign::words(&cx.catalog, k);
    let words: Vec<String> = keys.iter().map(constraint).chain(views.iter().map(view)).collect();
    if words.is_empty() {
        return Ok(());
    }
    if !cascade {
        let lines: Vec<String> =
            words.iter().map(|w| format!("{w} depends on {noun} {name}")).collect();
        return Err(still_depended_on(&format!("{noun} {name}"), &lines));
    }
    cx.notices.push(cascade_notice(&words));
    for key in keys {
        foreign::drop_foreign_key(cx, &key)?;
    }
    for view in views {
        drop_relation(cx, &view, true, &[])?;
    }
    Ok(())
}

/// The foreign keys that hang on something that goes: refused, or dropped with CASCADE. `names`:
/// what is dropped, and what they depend on, which goes with it. Those that `own` says go anyhow.
pub fn drop_foreign_keys(
    cx: &mut DdlContext<'_>,
    support: Support,
    (what, on): (&str, &str),
    cascade: bool,
    own: impl Fn(&ConstraintDef) -> bool,
) -> Result<()> {
    let mut keys = foreign::hanging_on(&cx.catalog, support, &[]);
    keys.retain(|k| !own(k));
    if keys.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = keys.iter().map(|k| foreign::words(&cx.catalog, k)).collect();
    if !cascade {
        let lines: Vec<String> = words.iter().map(|w| format!("{w} depends on {on}")).collect();
        return Err(still_depended_on(what, &lines));
    }
    cx.notices.push(cascade_notice(&words));
    keys.iter().try_for_each(|key| foreign::drop_foreign_key(cx, key))
}

/// A default of some column.
struct DefaultOf {
    table: Arc<TableDef>,
    attnum: i16,
}

impl DefaultOf {
    fn words(&self) -> String {
        let column = self.table.columns.get(self.attnum as usize - 1);
        let column = column.map_or("?", |c| c.name.as_str());
        format!("default value for column {column} of table {}", self.table.name)
    }
}

/// The defaults that take values from a sequence, but for those of the tables in `also`.
fn defaults_from(cx: &mut DdlContext<'_>, sequence: Oid, also: &[Oid]) -> Result<Vec<DefaultOf>> {
    let depends = cx.find(Oid::PG_DEPEND, |row| {
        row.get_oid("classid") == Oid::PG_ATTRDEF && row.get_oid("refobjid") == sequence
    })?;
    let defaults: Vec<Oid> = depends.iter().map(|(_, row)| row.get_oid("objid")).collect();
    let rows = cx.find(Oid::PG_ATTRDEF, |row| defaults.contains(&row.get_oid("oid")))?;
    let mut found = Vec::new();
    for (_, row) in rows {
        let (table, attnum) = (row.get_oid("adrelid"), row.get_int("adnum") as i16);
        if let Some(table) = cx.catalog.table(table).filter(|t| !also.contains(&t.oid)) {
            found.push(DefaultOf { table: Arc::clone(table), attnum });
        }
    }
    Ok(found)
}

fn cascade_notice(words: &[String]) -> SqlError {
    let each: Vec<String> = words.iter().map(|w| format!("drop cascades to {w}")).collect();
    let notice =
        |text: String| SqlError::new(State::SUCCESSFUL_COMPLETION, text).severity(Severity::Notice);
    match each.as_slice() {
        [one] => notice(one.clone()),
        many => {
            notice(format!("drop cascades to {} other objects", many.len())).detail(many.join("\n"))
        }
    }
}

/// Drops a sequence, alone or because `what` (noun, name) goes that it belongs to. Defaults that
/// use it stand in the way, or go with CASCADE; those of the tables in `also` go anyhow.
pub fn drop_owned(
    cx: &mut DdlContext<'_>,
    sequence: &Arc<TableDef>,
    what: (&str, &str),
    cascade: bool,
    also: &[Oid],
) -> Result<()> {
    let defaults = defaults_from(cx, sequence.oid, also)?;
    let mut views = dependents(cx, sequence.oid)?;
    views.retain(|view| !also.contains(&view.oid));
    if !defaults.is_empty() || !views.is_empty() {
        let view = |v: &Arc<TableDef>| format!("view {}", v.name);
        let words: Vec<String> =
            views.iter().map(view).chain(defaults.iter().map(DefaultOf::words)).collect();
        if !cascade {
            let (noun, name) = what;
            let name_of = &sequence.name;
            let lines: Vec<String> =
                words.iter().map(|w| format!("{w} depends on sequence {name_of}")).collect();
            return Err(SqlError::new(
                State::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop {noun} {name} because other objects depend on it"),
            )
            .detail(lines.join("\n"))
            .hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        cx.notices.push(cascade_notice(&words));
        for view in views {
            drop_relation(cx, &view, true, &[])?;
        }
        for default in defaults {
            alter::drop_default(cx, default.table.oid, default.attnum)?;
            alter::change_attribute(cx, &default.table, default.attnum, |row| {
                row.put("atthasdef", Datum::Bool(false));
            })?;
        }
    }
    drop_relation(cx, sequence, cascade, also)
}

fn refuse_identity_sequence(cx: &DdlContext<'_>, sequence: &TableDef) -> Result<()> {
    let owner = sequence.sequence.and_then(|def| def.owner).filter(|owner| owner.identity);
    let Some(owner) = owner else { return Ok(()) };
    let table = cx.catalog.table(owner.table);
    let column = table.and_then(|t| t.columns.get(owner.attnum as usize - 1));
    let column = column.map_or("?", |c| c.name.as_str());
    let column = format!("column {column} of table {}", table.map_or("?", |t| t.name.as_str()));
    Err(SqlError::new(
        State::DEPENDENT_OBJECTS_STILL_EXIST,
        format!("cannot drop sequence {} because {column} requires it", sequence.name),
    )
    .hint(format!("You can drop {column} instead.")))
}

/// Drops a table, view or sequence with everything that is part of it. `also`: dropped by the same
/// statement, so they do not stand in the way.
fn drop_relation(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    cascade: bool,
    also: &[Oid],
) -> Result<()> {
    let noun = noun_of(table.kind);
    super::readers::check_readers(cx, table)?;
    let keys = foreign::hanging_on(&cx.catalog, Support::Table(table.oid), also);
    check_dependents(cx, table.oid, (&table.name, noun), cascade, (keys, also))?;
    for index in &table.indexes {
        drop_index(cx, index)?;
    }
    let oid = table.oid;
    if table.kind == RelationKind::Table {
        for sequence in super::sequence::owned(&cx.catalog, oid) {
            let mut also = also.to_vec();
            also.push(oid);
            drop_owned(cx, &sequence, (noun, &table.name), cascade, &also)?;
        }
        for column in table.columns.iter().filter(|c| c.default.is_some()) {
            alter::drop_default(cx, oid, column.attnum)?;
        }
    }
    if table.sequence.is_some() {
        cx.delete_where(Oid::PG_SEQUENCE, |r| r.get_oid("seqrelid") == oid)?;
    }
    if let Some((rel, _)) = table.toast {
        cx.delete_where(Oid::PG_CLASS, |r| r.get_oid("relfilenode") == Oid(rel.raw()))?;
        cx.engine.drop_rel_at_commit(cx.tx, rel)?;
    }
    cx.delete_where(Oid::PG_CLASS, |r| r.get_oid("oid") == oid)?;
    cx.delete_where(Oid::PG_ATTRIBUTE, |r| r.get_oid("attrelid") == oid)?;
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

fn noun_of(kind: RelationKind) -> &'static str {
    match kind {
        RelationKind::View => "view",
        RelationKind::Sequence => "sequence",
        RelationKind::Table | RelationKind::Toast | RelationKind::Index => "table",
    }
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
    // Who looked into it has read the table: no writer passes by the index any more.
    if let Some(table) = cx.catalog.tables.get(&index.table) {
        cx.engine.txns.ssi().carry_relation(index.rel, table.rel);
    }
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
    let mut inside: Vec<Arc<TableDef>> =
        cx.catalog.tables.values().filter(|t| t.schema == oid).cloned().collect();
    inside.sort_by_key(|t| t.oid);
    if !inside.is_empty() && !cascade {
        // A column's sequence goes with its table.
        let alone = |t: &&Arc<TableDef>| t.sequence.is_none_or(|def| def.owner.is_none());
        let lines: Vec<String> = inside
            .iter()
            .filter(alone)
            .map(|t| format!("{} {}.{} depends on schema {name}", noun_of(t.kind), name, t.name))
            .collect();
        return Err(SqlError::new(
            State::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop schema {name} because other objects depend on it"),
        )
        .detail(lines.join("\n"))
        .hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    let oids: Vec<Oid> = inside.iter().map(|t| t.oid).collect();
    // Views first: they depend on the tables, never the other way round. Sequences last, as many
    // as did not go with a table.
    let (views, others): (Vec<_>, Vec<_>) =
        inside.into_iter().partition(|t| t.kind == RelationKind::View);
    let (sequences, tables): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|t| t.kind == RelationKind::Sequence);
    for table in views.iter().chain(&tables) {
        drop_relation(cx, table, true, &oids)?;
        cx.next_command()?;
    }
    for sequence in sequences {
        let owner = sequence.sequence.and_then(|def| def.owner);
        if owner.is_none_or(|owner| !oids.contains(&owner.table)) {
            drop_owned(cx, &sequence, ("schema", &name), true, &oids)?;
            cx.next_command()?;
        }
    }
    cx.delete_where(Oid::PG_NAMESPACE, |r| r.get_oid("oid") == oid)?;
    Ok(())
}
