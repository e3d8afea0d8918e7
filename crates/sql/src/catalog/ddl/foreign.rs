//! Foreign keys in the catalog: made, checked against the rows that are there, and what stands in
//! the way when a table, a column or a key goes that they refer to.
//!
//! Both tables are locked against writers while one is made (SHARE ROW EXCLUSIVE on the referenced
//! one), so the check of existing rows finds what commits later would find. VALIDATE CONSTRAINT
//! lets others write the referenced table: rows that come or go meanwhile are checked by those who
//! write them, whether the constraint is validated or not.

use super::DdlContext;
use super::index::TableRows;
use crate::analyze::statement::{ConstraintSpec, ConstraintSpecKind};
use crate::catalog::rows::{CatalogRow, array, system_relation};
use crate::catalog::{
    CatalogSnapshot, ConstraintDef, ConstraintKind, IndexDef, TableDef, heap_rel,
};
use crate::error::{Result, SqlError, State};
use crate::exec::ExecCx;
use crate::exec::foreign::{ForeignKey, Nulls, convert, nulls};
use crate::exec::references::{mixed_nulls, not_present};
use crate::functions;
use crate::keycode;
use crate::types::{Datum, Oid};
use inkling_storage::btree::{self, BtreeRel, IndexBatch};
use inkling_storage::heap::{self, ReadCx, TupleBuf, VisState};
use std::sync::Arc;

/// The referenced table of a foreign key that is being made, and its columns' types.
struct Referenced {
    table: Oid,
    types: Vec<Oid>,
    attnums: Vec<i16>,
    index: Oid,
}

/// Makes the constraint. Existing rows are the caller's concern.
pub fn add_foreign_key(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    constraint: &ConstraintSpec,
) -> Result<()> {
    let ConstraintSpecKind::Foreign {
        columns, on_update, on_delete, set_columns, match_full, ..
    } = &constraint.kind
    else {
        return Err(SqlError::internal("not a foreign key"));
    };
    cx.next_command()?;
    let other = referenced(cx, table, &constraint.kind)?;
    let attnums = |list: &[usize]| -> Vec<Datum> {
        list.iter().map(|c| Datum::Int2(*c as i16 + 1)).collect()
    };
    let own: Vec<Oid> = columns.iter().map(|c| table.columns[*c].ty.oid).collect();
    let operators = |left: &[Oid], right: &[Oid]| {
        let pairs = left.iter().zip(right);
        array(Oid::OID, pairs.map(|(l, r)| Datum::Oid(equality(*l, *r).0)).collect())
    };
    let mut row = CatalogRow::new(system_relation(Oid::PG_CONSTRAINT))
        .oid("oid", cx.new_oid()?)
        .name("conname", &constraint.name)
        .oid("connamespace", table.schema)
        .char("contype", 'f')
        .bool("condeferrable", constraint.deferrable)
        .bool("condeferred", constraint.initially_deferred)
        .bool("convalidated", !constraint.not_valid)
        .oid("conrelid", table.oid)
        .oid("conindid", other.index)
        .oid("confrelid", other.table)
        .bool("conislocal", true)
        .bool("connoinherit", true)
        .char("confupdtype", on_update.code())
        .char("confdeltype", on_delete.code())
        .char("confmatchtype", if *match_full { 'f' } else { 's' })
        .set("conkey", array(Oid::INT2, attnums(columns)))
        .set("confkey", array(Oid::INT2, other.attnums.iter().map(|a| Datum::Int2(*a)).collect()))
        .set("conpfeqop", operators(&other.types, &own))
        .set("conppeqop", operators(&other.types, &other.types))
        .set("conffeqop", operators(&own, &own));
    if !set_columns.is_empty() {
        row = row.set("confdelsetcols", array(Oid::INT2, attnums(set_columns)));
    }
    cx.insert(vec![row])?;
    cx.next_command()?;
    // psql and others look for foreign keys where there are triggers.
    for oid in [table.oid, other.table] {
        let wanted = |r: &CatalogRow| r.get_oid("oid") == oid && !r.get_bool("relhastriggers");
        if let Some((at, mut row)) = cx.find(Oid::PG_CLASS, wanted)?.into_iter().next() {
            row.put("relhastriggers", Datum::Bool(true));
            cx.update(at, row)?;
        }
        cx.next_command()?;
    }
    Ok(())
}

/// The operator that compares a referenced column with a referencing one.
fn equality(left: Oid, right: Oid) -> Oid {
    let all = functions::operators("=").iter();
    let mut exact = all.filter(|o| o.left == Some(left) && o.right == right);
    let found = exact.next().copied().or_else(|| functions::equality(left));
    found.map_or(Oid::INVALID, |o| o.oid)
}

fn referenced(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    kind: &ConstraintSpecKind,
) -> Result<Referenced> {
    let ConstraintSpecKind::Foreign { referenced, referenced_columns, .. } = kind else {
        return Err(SqlError::internal("not a foreign key"));
    };
    let own = referenced.is_none_or(|oid| oid == table.oid);
    let def = match referenced {
        Some(oid) if !own => cx.catalog.table(*oid).cloned(),
        _ => Some(Arc::clone(table)),
    };
    let def = def.ok_or_else(|| SqlError::internal("the referenced table is gone"))?;
    let attnums: Vec<i16> = referenced_columns.iter().map(|c| *c as i16 + 1).collect();
    // From the catalog itself: the index may be as new as the table.
    let rows = cx.find(Oid::PG_INDEX, |r| r.get_oid("indrelid") == def.oid)?;
    let is_key = |r: &CatalogRow, immediate: bool| {
        let mut keys = r.get_int2_items("indkey");
        keys.truncate(r.get_int("indnkeyatts") as usize);
        let same = keys.len() == attnums.len() && attnums.iter().all(|a| keys.contains(a));
        let plain = r.get_text_opt("indpred").is_none();
        same && plain && r.get_bool("indisunique") && r.get_bool("indimmediate") == immediate
    };
    let mut keys: Vec<(bool, Oid)> = rows
        .iter()
        .filter(|(_, r)| is_key(r, true))
        .map(|(_, r)| (!r.get_bool("indisprimary"), r.get_oid("indexrelid")))
        .collect();
    keys.sort_unstable();
    let Some((_, index)) = keys.first().copied() else {
        if rows.iter().any(|(_, r)| is_key(r, false)) {
            let text = format!(
                "cannot use a deferrable unique constraint for referenced table \"{}\"",
                def.name
            );
            return Err(SqlError::new(State::OBJECT_NOT_IN_PREREQUISITE_STATE, text));
        }
        return Err(SqlError::internal("the referenced key has no index"));
    };
    let types = referenced_columns.iter().map(|c| def.columns[*c].ty.oid).collect();
    Ok(Referenced { table: def.oid, types, attnums, index })
}

/// Checks the rows that are there against a foreign key; `table` is the referencing one.
pub fn check_rows(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    constraint: &Arc<ConstraintDef>,
) -> Result<()> {
    let key = ForeignKey::of(constraint).ok_or_else(|| SqlError::internal("not a foreign key"))?;
    let parent = cx.catalog.table(key.referenced).cloned();
    let parent = parent.ok_or_else(|| SqlError::internal("the referenced table is gone"))?;
    let index = parent.indexes.iter().find(|i| i.oid == key.index).cloned();
    let index = index.ok_or_else(|| SqlError::internal("the referenced key has no index"))?;
    let snapshot = cx.tx.latest_snapshot();
    let state = VisState::passing();
    let read = ReadCx::new(cx.engine, cx.tx, snapshot, &state);
    let mut lookup = Lookup {
        engine: cx.engine,
        read,
        heap: heap_rel(&parent),
        btree: BtreeRel::new(index.rel),
        batch: IndexBatch::new(),
        row: TupleBuf::new(),
        last: Vec::new(),
    };
    let (host, fx) = (cx.host, cx.host.functions());
    let values_cx = ExecCx::new(fx, &[]);
    let upto = key.columns.iter().max().map_or(0, |c| c + 1);
    let mut values = Vec::with_capacity(key.columns.len());
    let mut encoded = Vec::new();
    TableRows::new(cx.engine, table).visit(upto, &|| host.check_interrupt(), &mut |row, _, live| {
        if !live {
            return Ok(());
        }
        values.clear();
        values.extend(key.columns.iter().map(|c| row[*c].clone()));
        match nulls(&values) {
            Nulls::All => return Ok(()),
            Nulls::Some if !key.match_full => return Ok(()),
            Nulls::Some => return Err(mixed_nulls(&key, table)),
            Nulls::None => {}
        }
        let found = encode(&values_cx, &key, (table, &parent), &index, &values, &mut encoded)?
            && lookup.finds(&encoded)?;
        match found {
            true => Ok(()),
            false => Err(not_present(&values_cx, &key, table, &parent, &values)),
        }
    })
}

/// The entry that a referencing row's key is looked up as; false: there can be none.
fn encode(
    cx: &ExecCx<'_>,
    key: &ForeignKey,
    (own, parent): (&TableDef, &TableDef),
    index: &IndexDef,
    values: &[Datum],
    out: &mut Vec<u8>,
) -> Result<bool> {
    out.clear();
    for part in &index.columns[..index.key_columns.min(index.columns.len())] {
        let at = key.referenced_columns.iter().position(|c| *c as i16 + 1 == part.attnum);
        let at = at.ok_or_else(|| SqlError::internal("an index of another key"))?;
        let from = own.columns[key.columns[at]].ty.oid;
        let to = parent.columns[key.referenced_columns[at]].ty.oid;
        let Some(value) = convert(cx, &values[at], from, to)? else { return Ok(false) };
        keycode::encode_column(&value, part.ty.oid, part.descending, part.nulls_first, out)?;
    }
    Ok(true)
}

/// Looks keys up in the referenced table.
struct Lookup<'a> {
    engine: &'a inkling_storage::engine::Engine,
    read: ReadCx<'a>,
    heap: heap::HeapRel,
    btree: BtreeRel,
    batch: IndexBatch,
    row: TupleBuf,
    /// The key that was found last: rows in order often repeat it.
    last: Vec<u8>,
}

impl Lookup<'_> {
    fn finds(&mut self, key: &[u8]) -> Result<bool> {
        if !self.last.is_empty() && self.last == key {
            return Ok(true);
        }
        btree::lookup(self.engine, &self.btree, key, &mut self.batch)?;
        for root in self.batch.rows() {
            if heap::fetch_hot(self.engine, &self.read, &self.heap, *root, &mut self.row)? {
                self.last.clear();
                self.last.extend_from_slice(key);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// VALIDATE CONSTRAINT of a foreign key.
pub fn validate(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    constraint: &Arc<ConstraintDef>,
) -> Result<()> {
    check_rows(cx, table, constraint)?;
    cx.change(Oid::PG_CONSTRAINT, constraint.oid, |row| {
        row.put("convalidated", Datum::Bool(true));
    })
}

/// What a foreign key hangs on.
#[derive(Clone, Copy)]
pub enum Support {
    Table(Oid),
    Column(Oid, i16),
    /// The index of a key, be it a constraint's or not.
    Index(Oid),
}

/// The foreign keys of tables not in `also` that hang on something, by age.
pub fn hanging_on(
    catalog: &CatalogSnapshot,
    support: Support,
    also: &[Oid],
) -> Vec<Arc<ConstraintDef>> {
    let table = match support {
        Support::Table(oid) | Support::Column(oid, _) => Some(oid),
        Support::Index(oid) => catalog.indexes.get(&oid).map(|i| i.table),
    };
    let Some(table) = table.and_then(|oid| catalog.table(oid)) else { return Vec::new() };
    let hangs = |c: &&Arc<ConstraintDef>| match (&c.kind, support) {
        (_, Support::Table(oid)) => c.table != oid,
        (ConstraintKind::Foreign { referenced_columns, .. }, Support::Column(_, attnum)) => {
            referenced_columns.contains(&attnum)
        }
        (ConstraintKind::Foreign { index, .. }, Support::Index(oid)) => *index == oid,
        _ => false,
    };
    let stays = |c: &&Arc<ConstraintDef>| !also.contains(&c.table);
    table.referenced_by.iter().filter(hangs).filter(stays).cloned().collect()
}

/// "constraint c on table t", for messages.
pub fn words(catalog: &CatalogSnapshot, constraint: &ConstraintDef) -> String {
    let table = catalog.table(constraint.table).map_or("?", |t| t.name.as_str());
    format!("constraint {} on table {table}", constraint.name)
}

/// The constraint goes.
pub fn drop_foreign_key(cx: &mut DdlContext<'_>, constraint: &ConstraintDef) -> Result<()> {
    let oid = constraint.oid;
    cx.delete_where(Oid::PG_CONSTRAINT, |row| row.get_oid("oid") == oid)?;
    cx.delete_where(Oid::PG_DESCRIPTION, |row| {
        row.get_oid("objoid") == oid && row.get_oid("classoid") == Oid::PG_CONSTRAINT
    })?;
    Ok(())
}

/// The tables that foreign keys tie to one, in either direction.
pub fn tied_to(catalog: &CatalogSnapshot, table: Oid) -> Vec<Oid> {
    let Some(table) = catalog.table(table) else { return Vec::new() };
    let outgoing = table.constraints.iter().filter_map(|c| match c.kind {
        ConstraintKind::Foreign { referenced, .. } => Some(referenced),
        _ => None,
    });
    let mut all: Vec<Oid> = outgoing.chain(table.referenced_by.iter().map(|c| c.table)).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|oid| *oid != table.oid);
    all
}

/// The tables that a TRUNCATE of some empties: with CASCADE those that refer to them too.
pub fn truncated(
    catalog: &CatalogSnapshot,
    tables: &[Arc<TableDef>],
    cascade: bool,
) -> Vec<Arc<TableDef>> {
    let mut all: Vec<Arc<TableDef>> = tables.to_vec();
    let mut at = 0;
    while cascade && at < all.len() {
        let current = catalog.table(all[at].oid).cloned();
        for c in current.iter().flat_map(|t| &t.referenced_by) {
            if !all.iter().any(|t| t.oid == c.table) {
                all.extend(catalog.table(c.table).cloned());
            }
        }
        at += 1;
    }
    all
}

/// Refuses to empty a table that rows of another one refer to.
pub fn check_truncated(catalog: &CatalogSnapshot, tables: &[Arc<TableDef>]) -> Result<()> {
    for table in tables {
        let Some(table) = catalog.table(table.oid) else { continue };
        let listed = |oid: Oid| tables.iter().any(|t| t.oid == oid);
        let Some(c) = table.referenced_by.iter().find(|c| !listed(c.table)) else { continue };
        let other = catalog.table(c.table).map_or("?", |t| t.name.as_str());
        let message = "cannot truncate a table referenced in a foreign key constraint";
        return Err(SqlError::new(State::FEATURE_NOT_SUPPORTED, message)
            .detail(format!("Table \"{other}\" references \"{}\".", table.name))
            .hint(format!(
                "Truncate table \"{other}\" at the same time, or use TRUNCATE ... CASCADE."
            )));
    }
    Ok(())
}
