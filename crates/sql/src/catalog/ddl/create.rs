//! CREATE TABLE.

use super::foreign::add_foreign_key;
use super::index::{NewIndex, make_index};
use super::sequence::{default_depends, make_for_column, own};
use super::{DdlContext, already_exists};
use crate::analyze::statement::{ColumnSpec, ConstraintSpec, ConstraintSpecKind, CreateTable};
use crate::catalog::describe::{NewColumn, NewRelation, attribute_row, system_attribute_rows};
use crate::catalog::load::nextval_text;
use crate::catalog::rows::{CatalogRow, array, system_relation};
use crate::catalog::{ColumnDef, RelationKind, SequenceOwner, TableDef, durability, frozen};
use crate::error::{Result, Severity, SqlError, State};
use crate::types::{self, Datum, Oid};
use inkling_storage::ids::RelId;
use std::sync::Arc;

/// Makes the table; `None` when it exists and IF NOT EXISTS was said.
pub fn create_table(cx: &mut DdlContext<'_>, c: &CreateTable) -> Result<Option<Arc<TableDef>>> {
    let schema = cx.place(c.schema)?;
    if cx.catalog.find_in_schema(schema, &c.name).is_some() {
        if !c.if_not_exists {
            return Err(already_exists(&c.name));
        }
        let text = format!("relation \"{}\" already exists, skipping", c.name);
        cx.notices.push(SqlError::new(State::DUPLICATE_TABLE, text).severity(Severity::Notice));
        return Ok(None);
    }
    let sequences = column_sequences(cx, schema, c)?;
    let table = describe_table(cx, schema, c, &sequences)?;
    write_rows(cx, &table, c)?;
    for ((sequence, column), spec) in sequences.iter().zip(&table.columns).zip(&c.columns) {
        if let (Some(sequence), Some(wanted)) = (sequence, &spec.sequence) {
            let identity = wanted.kind.identity().is_some();
            let (table, attnum) = (table.oid, column.attnum);
            own(cx, *sequence, SequenceOwner { table, attnum, identity })?;
        }
    }
    let is_foreign = |k: &&ConstraintSpec| matches!(k.kind, ConstraintSpecKind::Foreign { .. });
    for constraint in c.constraints.iter().filter(|k| !is_foreign(k)) {
        add_constraint(cx, &table, constraint)?;
    }
    for index in &c.indexes {
        make_index(cx, &table, &NewIndex::plain(index.clone()))?;
    }
    // Last: they may refer to the table's own keys. There are no rows to be checked.
    for constraint in c.constraints.iter().filter(is_foreign) {
        let valid = ConstraintSpec { not_valid: false, ..constraint.clone() };
        add_constraint(cx, &table, &valid)?;
    }
    cx.next_command()?;
    Ok(Some(table))
}

/// Makes the sequences of serial and identity columns.
fn column_sequences(
    cx: &mut DdlContext<'_>,
    schema: Oid,
    c: &CreateTable,
) -> Result<Vec<Option<Oid>>> {
    let mut made = Vec::with_capacity(c.columns.len());
    for column in &c.columns {
        made.push(match &column.sequence {
            Some(wanted) => Some(make_for_column(cx, schema, c.persistence, cx.user, wanted)?),
            None => None,
        });
    }
    Ok(made)
}

fn describe_table(
    cx: &mut DdlContext<'_>,
    schema: Oid,
    c: &CreateTable,
    sequences: &[Option<Oid>],
) -> Result<Arc<TableDef>> {
    durability::check(&c.options, c.persistence)?;
    let persistence = super::storage_persistence(c.persistence);
    let rel = cx.engine.create_rel(cx.tx, persistence)?;
    let toast = match c.columns.iter().any(|col| may_be_long(col.ty.oid)) {
        true => Some((cx.engine.create_rel(cx.tx, persistence)?, RelId::INVALID)),
        false => None,
    };
    let primary: Vec<usize> = c
        .constraints
        .iter()
        .flat_map(|k| match &k.kind {
            ConstraintSpecKind::Primary { columns, .. } => columns.clone(),
            _ => Vec::new(),
        })
        .collect();
    let columns = c
        .columns
        .iter()
        .enumerate()
        .map(|(at, col)| column_def(at, col, primary.contains(&at), sequences[at]))
        .collect();
    let fillfactor = c.options.iter().find(|(n, _)| n == "fillfactor");
    Ok(Arc::new(TableDef {
        oid: Oid(rel.raw()),
        rel,
        toast,
        name: c.name.clone(),
        schema,
        schema_name: cx.catalog.schemas.get(&schema).map_or_else(String::new, |s| s.name.clone()),
        kind: RelationKind::Table,
        persistence: c.persistence,
        owner: cx.user,
        row_type: cx.new_oid()?,
        columns,
        indexes: Vec::new(),
        constraints: Vec::new(),
        referenced_by: Vec::new(),
        fillfactor: fillfactor.and_then(|(_, v)| v.parse().ok()).unwrap_or(100),
        options: c.options.clone(),
        view: None,
        sequence: None,
        reltuples: -1.0,
        relpages: 0,
        system: false,
    }))
}

/// The default that is kept for a column; an identity column's goes without saying.
pub fn stored_default(column: &ColumnSpec, sequence: Option<Oid>) -> Option<String> {
    match (&column.sequence, sequence) {
        (Some(wanted), Some(oid)) if wanted.kind.identity().is_none() => Some(nextval_text(oid)),
        _ => column.default.as_ref().map(|d| d.text.clone()),
    }
}

fn column_def(
    at: usize,
    column: &ColumnSpec,
    in_primary_key: bool,
    sequence: Option<Oid>,
) -> ColumnDef {
    ColumnDef {
        name: column.name.clone(),
        attnum: at as i16 + 1,
        ty: column.ty,
        not_null: column.not_null || in_primary_key,
        dropped: false,
        default: stored_default(column, sequence),
        identity: column.sequence.as_ref().and_then(|s| s.kind.identity()),
        missing: None,
        collation: column.collation,
    }
}

/// Whether values of a type can outgrow a page.
fn may_be_long(ty: Oid) -> bool {
    types::info(ty).is_none_or(|t| t.len < 0)
}

fn write_rows(cx: &mut DdlContext<'_>, table: &TableDef, c: &CreateTable) -> Result<()> {
    let checks = c.constraints.iter();
    let checks = checks.filter(|k| matches!(k.kind, ConstraintSpecKind::Check { .. })).count();
    let toast = table.toast.map_or(Oid::INVALID, |(rel, _)| Oid(rel.raw()));
    let keyed = |k: &ConstraintSpec| {
        matches!(k.kind, ConstraintSpecKind::Primary { .. } | ConstraintSpecKind::Unique { .. })
    };
    let relation = NewRelation {
        oid: table.oid,
        rel: table.rel,
        name: &table.name,
        schema: table.schema,
        owner: table.owner,
        row_type: table.row_type,
        kind: 'r',
        persistence: super::persistence_char(c.persistence),
        toast,
        shared: false,
        has_index: c.constraints.iter().any(keyed) || !c.indexes.is_empty(),
        checks,
        options: &table.options,
        frozen: frozen::bound(cx.engine),
    };
    let array_type = cx.new_oid()?;
    let mut rows = vec![relation.class_row(table.columns.len())];
    rows.extend(relation.type_rows(array_type));
    for column in &table.columns {
        rows.extend(column_rows(cx, table.oid, column)?);
    }
    rows.extend(system_attribute_rows(table.oid));
    if toast.is_valid() {
        let name = format!("pg_toast_{}", table.oid);
        let relation = NewRelation {
            oid: toast,
            rel: RelId::new(toast.0),
            name: &name,
            schema: cx.toast_place(c.persistence),
            row_type: Oid::INVALID,
            kind: 't',
            toast: Oid::INVALID,
            has_index: false,
            checks: 0,
            options: &[],
            ..relation
        };
        rows.push(relation.class_row(0));
    }
    cx.insert(rows)
}

/// A column's rows in pg_attribute and, for its default, pg_attrdef.
pub fn column_rows(cx: &DdlContext<'_>, table: Oid, column: &ColumnDef) -> Result<Vec<CatalogRow>> {
    let new = NewColumn {
        name: &column.name,
        ty: column.ty,
        collation: column.collation,
        not_null: column.not_null,
        has_default: column.default.is_some(),
    };
    let mut row = attribute_row(table, column.attnum, &new);
    if let Some(identity) = column.identity {
        row = row.char("attidentity", identity.code());
    }
    if let Some(missing) = &column.missing {
        row = row
            .bool("atthasmissing", true)
            .set("attmissingval", array(column.ty.oid, vec![missing.clone()]));
    }
    let mut rows = vec![row];
    if let Some(text) = &column.default {
        rows.extend(default_rows(cx.new_oid()?, table, column.attnum, text));
    }
    Ok(rows)
}

/// A row of pg_attrdef, and what it depends on.
pub fn default_rows(oid: Oid, table: Oid, attnum: i16, text: &str) -> Vec<CatalogRow> {
    let default = CatalogRow::new(system_relation(Oid::PG_ATTRDEF))
        .oid("oid", oid)
        .oid("adrelid", table)
        .int2("adnum", attnum)
        .name("adbin", text);
    let mut rows = vec![default];
    rows.extend(default_depends(oid, text));
    rows
}

/// Makes a constraint of a table, with its index where it has one. Existing rows are the
/// caller's concern for CHECK; an index build checks its own.
pub fn add_constraint(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    constraint: &ConstraintSpec,
) -> Result<()> {
    let (kind, columns) = match &constraint.kind {
        ConstraintSpecKind::Primary { columns, .. } => ('p', columns),
        ConstraintSpecKind::Unique { columns, .. } => ('u', columns),
        ConstraintSpecKind::Check { columns, .. } => ('c', columns),
        ConstraintSpecKind::UsingIndex { .. } => {
            return Err(SqlError::unsupported("ADD CONSTRAINT ... USING INDEX"));
        }
        ConstraintSpecKind::Foreign { .. } => return add_foreign_key(cx, table, constraint),
    };
    let index = match NewIndex::of_constraint(table, constraint) {
        Some(new) => make_index(cx, table, &new)?,
        None => Oid::INVALID,
    };
    let key = columns.iter().map(|c| Datum::Int2(*c as i16 + 1)).collect();
    let mut row = CatalogRow::new(system_relation(Oid::PG_CONSTRAINT))
        .oid("oid", cx.new_oid()?)
        .name("conname", &constraint.name)
        .oid("connamespace", table.schema)
        .char("contype", kind)
        .bool("condeferrable", constraint.deferrable)
        .bool("condeferred", constraint.initially_deferred)
        .bool("convalidated", true)
        .oid("conrelid", table.oid)
        .oid("conindid", index)
        .bool("conislocal", true)
        .bool("connoinherit", kind != 'c')
        .char("confupdtype", ' ')
        .char("confdeltype", ' ')
        .char("confmatchtype", ' ')
        .set("conkey", array(Oid::INT2, key));
    if let ConstraintSpecKind::Check { check, no_inherit, .. } = &constraint.kind {
        row = row.name("conbin", &check.text).bool("connoinherit", *no_inherit);
    }
    cx.insert(vec![row])
}
