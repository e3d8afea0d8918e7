//! INSERT, UPDATE, DELETE, row locks.
//!
//! ```text
//!   row to write (its ctid, its columns in registers)
//!     compute the new values -> NOT NULL, CHECK -> encode -> heap
//!        BeingModified(xid)   wait for it, then the same row again
//!        Updated{next}        READ COMMITTED: newest version, condition again, then that row
//!                             else 40001
//!        Ok(new row)          an entry in each index that needs one
//!           WaitFor(xid)      wait, then the same index again
//!           Duplicate         23505
//!     RETURNING
//! ```
//!
//! Everything that may wait keeps where it was; the same call is made again after the wait.

pub mod bulk;
mod conflict;
mod delete;
mod insert;
mod lock;
mod update;

pub use conflict::{Conflict, ConflictUpdate};
pub use delete::Delete;
pub use insert::Insert;
pub use lock::{LockRows, Mark};
pub use update::{Update, Updater};

use super::after::Event;
use super::expr::Ex;
use super::scan::Load;
use super::table::{IndexExec, TableExec};
use super::wait::{Queue, RowWait, Waiting};
use super::{ExecCx, Reg, Step, Store};
use crate::analyze::bound::LockStrength;
use crate::catalog::{ConstraintDef, ConstraintKind, TableDef};
use crate::error::{Result, SqlError, State};
use crate::row::EncodedRow;
use crate::types::{self, Datum};
use inkling_storage::btree::{self, InsertOutcome, UniqueVerdict};
use inkling_storage::heap::{self, Newest, RowLock, TupleBuf};
use inkling_storage::ids::{RowId, Xid};
use inkling_storage::txn::IsolationLevel;
use inkling_storage::wait::WaitHandle;
use std::sync::Arc;

/// What is common to all writes of one table.
pub struct Target {
    pub table: Arc<TableExec>,
    pub base: Reg,
    /// (constraint name, condition) over the new row.
    pub checks: Vec<(String, Ex)>,
    pub returning: Option<Vec<(Ex, Reg)>>,
    key: Vec<u8>,
}

impl Target {
    pub fn new(
        table: Arc<TableExec>,
        base: Reg,
        checks: Vec<(String, Ex)>,
        returning: Option<Vec<(Ex, Reg)>>,
    ) -> Target {
        Target { table, base, checks, returning, key: Vec::new() }
    }

    fn ctid(&self) -> Reg {
        self.base + self.table.def.columns.len() as u32
    }

    fn block<'r>(&self, cx: &'r ExecCx<'_>) -> &'r [Datum] {
        let base = self.base as usize;
        &cx.regs[base..base + self.table.def.columns.len()]
    }

    /// NOT NULL of the columns at these positions; the new row is in the registers.
    fn check_nulls(
        &self,
        cx: &ExecCx<'_>,
        columns: impl Iterator<Item = usize>,
        row: &dyn Fn() -> Result<Vec<Datum>>,
    ) -> Result<()> {
        let block = self.block(cx);
        for i in columns {
            let column = &self.table.def.columns[i];
            if column.not_null && !column.dropped && block[i].is_null() {
                let def = &self.table.def;
                let message = format!(
                    "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                    column.name, def.name
                );
                let detail = failing_row(cx, &self.table, &row()?);
                return Err(SqlError::new(State::NOT_NULL_VIOLATION, message)
                    .detail(detail)
                    .object(|o| {
                        o.schema = Some(def.schema_name.clone());
                        o.table = Some(def.name.clone());
                        o.column = Some(column.name.clone());
                    }));
            }
        }
        Ok(())
    }

    /// CHECK conditions; the new row is in the registers.
    fn check_conditions(
        &self,
        cx: &mut ExecCx<'_>,
        checks: &[(String, Ex)],
        row: &dyn Fn() -> Result<Vec<Datum>>,
    ) -> Result<()> {
        for (name, ex) in checks {
            if ex.truth(cx)? == Some(false) {
                let def = &self.table.def;
                let message = format!(
                    "new row for relation \"{}\" violates check constraint \"{name}\"",
                    def.name
                );
                let detail = failing_row(cx, &self.table, &row()?);
                return Err(SqlError::new(State::CHECK_VIOLATION, message).detail(detail).object(
                    |o| {
                        o.schema = Some(def.schema_name.clone());
                        o.table = Some(def.name.clone());
                        o.constraint = Some(name.clone());
                    },
                ));
            }
        }
        Ok(())
    }

    fn give_back(&self, cx: &mut ExecCx<'_>) -> Result<bool> {
        give_back(self.returning.as_deref(), cx)
    }
}

/// Evaluates RETURNING; false: there is none.
fn give_back(returning: Option<&[(Ex, Reg)]>, cx: &mut ExecCx<'_>) -> Result<bool> {
    let Some(list) = returning else { return Ok(false) };
    for (ex, reg) in list {
        let value = ex.eval(cx)?;
        cx.set(*reg, value);
    }
    Ok(true)
}

/// "Failing row contains (1, null, ...)."
pub fn failing_row(cx: &ExecCx<'_>, table: &TableExec, row: &[Datum]) -> String {
    let mut out = Vec::from(&b"Failing row contains ("[..]);
    let live = table.def.columns.iter().zip(row).filter(|(c, _)| !c.dropped);
    for (i, (column, value)) in live.enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        write_value(cx, value, column.ty.oid, 64, &mut out);
    }
    out.extend_from_slice(b").");
    String::from_utf8_lossy(&out).into_owned()
}

fn write_value(cx: &ExecCx<'_>, value: &Datum, ty: types::Oid, limit: usize, out: &mut Vec<u8>) {
    if value.is_null() {
        return out.extend_from_slice(b"null");
    }
    let mut text = Vec::new();
    types::output(value, ty, cx.fx, &mut text);
    let text = String::from_utf8_lossy(&text);
    let cut = text.char_indices().nth(limit).map_or(text.len(), |(at, _)| at);
    out.extend_from_slice(&text.as_bytes()[..cut]);
    if cut < text.len() {
        out.extend_from_slice(b"...");
    }
}

/// 23505 for an index, with the key that is there already.
pub fn duplicate(cx: &ExecCx<'_>, table: &TableExec, index: usize, row: &[Datum]) -> SqlError {
    let def = &table.indexes[index].def;
    let message = format!("duplicate key value violates unique constraint \"{}\"", def.name);
    SqlError::new(State::UNIQUE_VIOLATION, message)
        .detail(format!("Key {} already exists.", key_text(cx, table, index, row)))
        .object(|o| {
            o.schema = Some(table.def.schema_name.clone());
            o.table = Some(table.def.name.clone());
            o.constraint = Some(def.name.clone());
        })
}

/// The same, for a check that came later, when only the key is there: in the index's order.
pub fn duplicate_key(cx: &ExecCx<'_>, table: &TableExec, index: usize, key: &[Datum]) -> SqlError {
    let mut row = vec![Datum::Null; table.def.columns.len()];
    for (column, value) in table.indexes[index].def.columns.iter().zip(key) {
        row[column.attnum.max(1) as usize - 1] = value.clone();
    }
    duplicate(cx, table, index, &row)
}

/// `(id, name)=(1, x)`.
pub fn columns_text(cx: &ExecCx<'_>, table: &TableDef, columns: &[usize], key: &[Datum]) -> String {
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (at, value) in columns.iter().zip(key) {
        let column = &table.columns[*at];
        names.push(column.name.as_str());
        write_value(cx, value, column.ty.oid, usize::MAX, &mut values);
        values.extend_from_slice(b", ");
    }
    values.truncate(values.len().saturating_sub(2));
    format!("({})=({})", names.join(", "), String::from_utf8_lossy(&values))
}

/// The same for an index's key.
fn key_text(cx: &ExecCx<'_>, table: &TableExec, index: usize, row: &[Datum]) -> String {
    let index = &table.indexes[index];
    let mut names = Vec::new();
    let mut values = Vec::new();
    for column in index.def.columns.iter().take(index.def.key_columns) {
        if column.attnum > 0 {
            let i = column.attnum as usize - 1;
            names.push(table.def.columns[i].name.clone());
            write_value(cx, &row[i], column.ty.oid, usize::MAX, &mut values);
        } else {
            names.push(column.expr.clone().unwrap_or_default());
            values.extend_from_slice(b"...");
        }
        values.extend_from_slice(b", ");
    }
    values.truncate(values.len().saturating_sub(2));
    format!("({})=({})", names.join(", "), String::from_utf8_lossy(&values))
}

/// What became of an attempt at the indexes of a new row version.
enum Entries {
    Done,
    Wait(WaitHandle),
    /// A row with the same key is there: which index.
    Duplicate(usize),
}

/// The indexes of one new row version, and how far they are.
#[derive(Default)]
struct IndexWork {
    row: RowId,
    next: usize,
    waiting: Waiting,
}

impl IndexWork {
    fn start(&mut self, row: RowId) {
        self.row = row;
        self.next = 0;
        self.waiting.cancel();
    }

    /// Adds the missing entries. `values` is the whole row; `unique` tells whether an index may
    /// meet a duplicate. With `withdraws` a wait is answered as a duplicate, for the caller takes
    /// the row back first.
    fn go_on(
        &mut self,
        store: &Store<'_>,
        cx: &ExecCx<'_>,
        table: &TableExec,
        values: &[Datum],
        unique: &dyn Fn(usize) -> bool,
        key: &mut Vec<u8>,
    ) -> Result<Entries> {
        if let Some(handle) = self.waiting.poll()? {
            return Ok(Entries::Wait(handle));
        }
        while let Some(index) = table.indexes.get(self.next) {
            let mut null = false;
            if !index.key(cx.fx, values, key, &mut null)? {
                self.next += 1;
                continue;
            }
            let may_count = index.def.unique && (!null || index.def.nulls_not_distinct);
            if may_count && !index.def.immediate {
                // Also when the key stayed: the check of the old version will find that gone.
                let new_key = unique(self.next);
                if add_entry_noting(store, table, self.next, key, self.row, new_key)? {
                    check_later(store, index, table, values, self.row)?;
                }
                self.next += 1;
                continue;
            }
            let new_key = unique(self.next);
            let counts = may_count && new_key;
            match add_entry(store, table, self.next, key, self.row, (counts, new_key))? {
                InsertOutcome::Done => self.next += 1,
                InsertOutcome::Duplicate(_) => return Ok(Entries::Duplicate(self.next)),
                InsertOutcome::WaitFor(xid) => {
                    if let Some(handle) = self.waiting.for_xid(store, xid)? {
                        return Ok(Entries::Wait(handle));
                    }
                }
            }
        }
        Ok(Entries::Done)
    }
}

/// Adds one entry to an index. `unique`: it may meet a duplicate; `new_key`: the row had another
/// key in it, or none.
fn add_entry(
    store: &Store<'_>,
    table: &TableExec,
    index: usize,
    key: &[u8],
    row: RowId,
    (unique, new_key): (bool, bool),
) -> Result<InsertOutcome> {
    let engine = store.engine;
    let xid = store.tx.borrow_mut().xid(engine)?;
    let btree = &table.indexes[index].btree;
    let tx = store.tx.borrow();
    let mut check = |other: RowId| heap::unique_verdict(engine, &tx, &table.heap, other);
    let check: Option<&mut dyn btree::UniqueCheck> = if unique { Some(&mut check) } else { None };
    // Who looked for this key and saw the row with it has the row.
    let sx = if new_key { tx.watched() } else { None };
    Ok(btree::insert_watched(engine, xid, sx, btree, key, row, check)?)
}

/// Adds one entry to an index whose keys need be unique only later. True: another row with this
/// key is there, or may be: to be looked at again.
fn add_entry_noting(
    store: &Store<'_>,
    table: &TableExec,
    index: usize,
    key: &[u8],
    row: RowId,
    new_key: bool,
) -> Result<bool> {
    let engine = store.engine;
    let xid = store.tx.borrow_mut().xid(engine)?;
    let btree = &table.indexes[index].btree;
    let tx = store.tx.borrow();
    let mut met = false;
    // Asked with the leaf latched: of two who add the same key the later one notices.
    let mut check = |other: RowId| {
        let verdict = heap::unique_verdict(engine, &tx, &table.heap, other)?;
        Ok(match verdict {
            UniqueVerdict::Conflict | UniqueVerdict::WaitFor(_) => {
                met = true;
                UniqueVerdict::Dead
            }
            dead => dead,
        })
    };
    let sx = if new_key { tx.watched() } else { None };
    match btree::insert_watched(engine, xid, sx, btree, key, row, Some(&mut check))? {
        InsertOutcome::Done => Ok(met),
        _ => Err(SqlError::internal("an entry was refused although nothing spoke against it")),
    }
}

/// Leaves the check of a unique key for after the statement.
fn check_later(
    store: &Store<'_>,
    index: &IndexExec,
    table: &TableExec,
    values: &[Datum],
    row: RowId,
) -> Result<()> {
    let oid = index.def.oid;
    let is_its = |k: &&Arc<ConstraintDef>| match k.kind {
        ConstraintKind::Primary { index } | ConstraintKind::Unique { index } => index == oid,
        _ => false,
    };
    let Some(constraint) = table.def.constraints.iter().find(is_its).cloned() else {
        return Err(SqlError::internal(format!("index {oid} belongs to no constraint")));
    };
    let keys = index.def.columns.iter().take(index.def.key_columns);
    let values = keys.map(|c| values[c.attnum.max(1) as usize - 1].clone()).collect();
    store.after.borrow_mut().push(Event::Unique { constraint, index: oid, row, values })
}

/// What a row is locked for, as the heap and the queue have it.
fn strength(s: LockStrength) -> (RowLock, Queue) {
    match s {
        LockStrength::KeyShare => (RowLock::KeyShare, Queue::KeyShare),
        LockStrength::Share => (RowLock::Share, Queue::Share),
        LockStrength::NoKeyUpdate => (RowLock::NoKeyUpdate, Queue::NoKeyUpdate),
        LockStrength::Update => (RowLock::Update, Queue::Update),
    }
}

/// The re-check of a row that a committed transaction has changed.
pub struct Recheck {
    /// Loads the newest version into the registers.
    pub load: Load,
    pub quals: Option<Ex>,
    /// Where to follow from, while the newest version is busy.
    following: Option<(RowId, Xid)>,
}

/// What following a changed row came to.
enum Followed {
    /// The newest version is in the registers and still satisfies the condition.
    Row(RowId),
    /// Gone, or it does not satisfy the condition any more.
    Skip,
    Wait(WaitHandle),
}

impl Recheck {
    pub fn new(load: Load, quals: Option<Ex>) -> Recheck {
        Recheck { load, quals, following: None }
    }

    /// The row was changed by `xmax`, its next version is `next`.
    #[allow(clippy::too_many_arguments)]
    fn follow(
        &mut self,
        cx: &mut ExecCx<'_>,
        wait: &mut RowWait,
        next: RowId,
        xmax: Xid,
        lock: RowLock,
        queue: Queue,
        block: bool,
    ) -> Result<Followed> {
        let store = *cx.store()?;
        let heap = self.load.table.heap;
        loop {
            let mut buf = std::mem::take(&mut cx.raw);
            let newest = {
                let tx = store.tx.borrow();
                heap::follow_update_chain(store.engine, &tx, &heap, next, xmax, lock, &mut buf)
            };
            cx.raw = buf;
            match newest? {
                Newest::Gone => {
                    self.following = None;
                    return Ok(Followed::Skip);
                }
                Newest::Busy(xid) if block => {
                    self.following = Some((next, xmax));
                    let tag = next;
                    if let Some(h) = wait.begin(&store, heap.rel, tag, queue, xid)? {
                        return Ok(Followed::Wait(h));
                    }
                }
                Newest::Busy(_) => return Err(row_locked(&self.load.table)),
                Newest::Row(row) => {
                    self.following = None;
                    let raw = std::mem::take(&mut cx.raw);
                    let loaded = self.load.reload(cx, &raw);
                    cx.raw = raw;
                    loaded?;
                    let passes = match &self.quals {
                        Some(q) => q.passes(cx)?,
                        None => true,
                    };
                    return Ok(if passes { Followed::Row(row) } else { Followed::Skip });
                }
            }
        }
    }
}

fn row_locked(table: &TableExec) -> SqlError {
    SqlError::new(
        State::LOCK_NOT_AVAILABLE,
        format!("could not obtain lock on row in relation \"{}\"", table.def.name),
    )
}

/// In READ COMMITTED a changed row is followed; above it is an error.
fn must_not_follow(store: &Store<'_>, deleted: bool) -> Result<()> {
    if store.tx.borrow().isolation() == IsolationLevel::ReadCommitted {
        return Ok(());
    }
    let what = if deleted { "delete" } else { "update" };
    Err(SqlError::new(
        State::SERIALIZATION_FAILURE,
        format!("could not serialize access due to concurrent {what}"),
    ))
}

fn invisible(table: &TableExec) -> SqlError {
    SqlError::new(
        State::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("attempted to write an invisible row of relation \"{}\"", table.def.name),
    )
}

/// The bytes of the row at `row`: those that the scan left, or read again.
fn raw_row(cx: &mut ExecCx<'_>, table: &TableExec, row: RowId) -> Result<TupleBuf> {
    let mut buf = std::mem::take(&mut cx.raw);
    if buf.row() == row && cx.raw_of == table.def.oid && buf.tuple().is_some() {
        return Ok(buf);
    }
    let store = cx.store()?;
    let found = {
        let tx = store.tx.borrow();
        let read = store.read(&tx);
        heap::fetch(store.engine, &read, &table.heap, row, &mut buf)?
    };
    // Not there: a newer version than the snapshot's, found by following the row.
    match found || store.fetch_latest(&table.heap, row, &mut buf)? {
        true => Ok(buf),
        false => Err(invisible(table)),
    }
}

/// A finished statement without RETURNING answers once, with the number of rows.
fn counted(cx: &mut ExecCx<'_>, written: &mut u64) -> Step {
    cx.written += std::mem::take(written);
    Step::Done
}

/// Encodes a whole row, long values made short.
fn encode(
    store: &Store<'_>,
    table: &TableExec,
    values: &[Datum],
    row: &mut EncodedRow,
    spare: &mut EncodedRow,
) -> Result<()> {
    table.codec.encode(values, row)?;
    let mut tx = store.tx.borrow_mut();
    super::long::shorten(store.engine, &mut tx, table, row, spare)
}
