//! The checks of constraints that come after a row is written, as far as they need no plan: does
//! the referenced row exist, is the key still the only one of its kind.
//!
//! Each function goes on until it knows or has to wait; after the wait it is called again with the
//! same [`KeyCheck`]. The messages are PostgreSQL's.

use super::build::BuildEnv;
use super::foreign::{ForeignKey, Nulls, convert, nulls};
use super::key_check::{Found, KeyCheck};
use super::run::ExecEnv;
use super::table::TableExec;
use super::wait::Waiting;
use super::write::{columns_text, duplicate_key};
use super::{ExecCx, Store};
use crate::catalog::TableDef;
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid};
use inkling_storage::btree::{self, IndexBatch, UniqueVerdict};
use inkling_storage::heap::{self, TupleBuf};
use inkling_storage::ids::RowId;
use inkling_storage::wait::WaitHandle;
use std::sync::Arc;

/// What a check came to that found nothing wrong.
pub enum Checked {
    Fine,
    Wait(WaitHandle),
}

fn table(env: &ExecEnv<'_>, oid: Oid) -> Result<Arc<TableExec>> {
    let def = env.catalog.table(oid);
    let def = def.ok_or_else(|| SqlError::internal(format!("relation {oid} is gone")))?;
    env.table(def)
}

fn context<'c>(env: &'c ExecEnv<'_>, store: Store<'c>) -> ExecCx<'c> {
    ExecCx::new(env.fx, &[]).with_store(store)
}

/// Whether the row version is still there, as far as this transaction is concerned.
pub fn is_live(env: &ExecEnv<'_>, of: Oid, row: RowId) -> Result<bool> {
    let table = table(env, of)?;
    env.latest().fetch_latest(&table.heap, row, &mut TupleBuf::new())
}

/// Looks for the row that `values` refer to and locks it; not finding it is the error.
pub fn referenced_row(
    env: &ExecEnv<'_>,
    check: &mut KeyCheck,
    key: &ForeignKey,
    values: &[Datum],
) -> Result<Checked> {
    let own = env.catalog.table(key.def.table);
    let own = own.ok_or_else(|| SqlError::internal("the referencing table is gone"))?;
    if nulls(values) == Nulls::Some {
        return Err(mixed_nulls(key, own));
    }
    let parent = table(env, key.referenced)?;
    let store = env.latest();
    let cx = context(env, store);
    let mut wanted = Vec::with_capacity(values.len());
    for ((value, from), to) in values.iter().zip(&key.columns).zip(&key.referenced_columns) {
        let (from, to) = (own.columns[*from].ty.oid, parent.def.columns[*to].ty.oid);
        match convert(&cx, value, from, to)? {
            Some(value) => wanted.push(value),
            None => return Err(not_present(&cx, key, own, &parent.def, values)),
        }
    }
    let columns = (key.referenced_columns.as_slice(), wanted.as_slice());
    match check.find(&store, &parent, parent.index(key.index)?, columns, false)? {
        Found::Yes => Ok(Checked::Fine),
        Found::Wait(handle) => Ok(Checked::Wait(handle)),
        Found::No => Err(not_present(&cx, key, own, &parent.def, values)),
    }
}

/// Looks for another row that has the key which a referenced row had.
pub fn replacement(
    env: &ExecEnv<'_>,
    check: &mut KeyCheck,
    key: &ForeignKey,
    values: &[Datum],
) -> Result<Found> {
    let parent = table(env, key.referenced)?;
    let columns = (key.referenced_columns.as_slice(), values);
    check.find(&env.latest(), &parent, parent.index(key.index)?, columns, true)
}

/// Looks at the rows with the key of a row whose key need be unique only now.
pub fn only_one(
    env: &ExecEnv<'_>,
    waiting: &mut Waiting,
    (of, index): (Oid, Oid),
    row: RowId,
    values: &[Datum],
) -> Result<Checked> {
    if let Some(handle) = waiting.poll()? {
        return Ok(Checked::Wait(handle));
    }
    let table = table(env, of)?;
    let at = table.index(index)?;
    let store = env.latest();
    if !store.fetch_latest_hot(&table.heap, row, &mut TupleBuf::new())? {
        return Ok(Checked::Fine);
    }
    let (mut key, mut batch) = (Vec::new(), IndexBatch::new());
    crate::keycode::encode_key(values, &table.indexes[at].columns, &mut key)?;
    btree::lookup(store.engine, &table.indexes[at].btree, &key, &mut batch)?;
    for other in batch.rows().iter().filter(|other| **other != row) {
        loop {
            let verdict = {
                let tx = store.tx.borrow();
                heap::unique_verdict(store.engine, &tx, &table.heap, *other)?
            };
            match verdict {
                UniqueVerdict::Dead | UniqueVerdict::DeadToAll => break,
                UniqueVerdict::Conflict => {
                    return Err(duplicate_key(&context(env, store), &table, at, values));
                }
                UniqueVerdict::WaitFor(xid) => {
                    if let Some(handle) = waiting.for_xid(&store, xid)? {
                        return Ok(Checked::Wait(handle));
                    }
                }
            }
        }
    }
    Ok(Checked::Fine)
}

fn violation(
    referencing: &TableDef,
    key: &ForeignKey,
    message: String,
    detail: String,
) -> SqlError {
    SqlError::new(State::FOREIGN_KEY_VIOLATION, message).detail(detail).object(|o| {
        o.schema = Some(referencing.schema_name.clone());
        o.table = Some(referencing.name.clone());
        o.constraint = Some(key.def.name.clone());
    })
}

fn new_row_message(own: &TableDef, constraint: &str) -> String {
    format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{constraint}\"",
        own.name
    )
}

/// 23503 of the referencing side.
pub fn not_present(
    cx: &ExecCx<'_>,
    key: &ForeignKey,
    own: &TableDef,
    parent: &TableDef,
    values: &[Datum],
) -> SqlError {
    let shown = columns_text(cx, own, &key.columns, values);
    let detail = format!("Key {shown} is not present in table \"{}\".", parent.name);
    violation(own, key, new_row_message(own, &key.def.name), detail)
}

/// 23503 of MATCH FULL.
pub fn mixed_nulls(key: &ForeignKey, own: &TableDef) -> SqlError {
    let detail = "MATCH FULL does not allow mixing of null and nonnull key values.";
    violation(own, key, new_row_message(own, &key.def.name), detail.to_owned())
}

/// 23503 of the referenced side: some row still has the key `old`.
pub fn still_referenced(env: &ExecEnv<'_>, key: &ForeignKey, old: &[Datum]) -> SqlError {
    let tables = (env.catalog.table(key.def.table), env.catalog.table(key.referenced));
    let (Some(own), Some(parent)) = tables else {
        return SqlError::internal("a table of the foreign key is gone");
    };
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
        parent.name, key.def.name, own.name
    );
    let cx = ExecCx::new(env.fx, &[]);
    let shown = columns_text(&cx, parent, &key.referenced_columns, old);
    let detail = format!("Key {shown} is still referenced from table \"{}\".", own.name);
    violation(own, key, message, detail)
}
