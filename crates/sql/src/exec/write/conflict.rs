//! INSERT ... ON CONFLICT.
//!
//! Before a row is inserted its arbiter indexes are looked up: a live row with the same key is the
//! conflict, a row whose transaction is still running is waited for. A conflict that appears
//! between the look-up and the insertion makes the insertion start over.
//!
//! DO UPDATE locks the existing row first. In READ COMMITTED that may be a row which the
//! statement's snapshot does not see; above, that is a serialization failure (semantics 44).

use super::update::{Updater, Written};
use super::{Target, give_back};
use crate::error::{Result, SqlError, State};
use crate::exec::expr::Ex;
use crate::exec::scan::Load;
use crate::exec::table::TableExec;
use crate::exec::wait::{Queue, RowWait, Waiting};
use crate::exec::{ExecCx, Reg, Store};
use inkling_storage::btree::{self, IndexBatch, UniqueVerdict};
use inkling_storage::heap::{self, RowLock, TupleBuf, TupleResult};
use inkling_storage::ids::{PageId, RelId, RowId};
use inkling_storage::txn::{IsolationLevel, OwnXid};
use inkling_storage::wait::WaitHandle;

pub struct Conflict {
    /// Positions of the arbiter indexes.
    pub arbiters: Vec<usize>,
    pub update: Option<ConflictUpdate>,
    waiting: Waiting,
    batch: IndexBatch,
    key: Vec<u8>,
}

pub struct ConflictUpdate {
    /// Loads the existing row into its own block of registers.
    pub load: Load,
    pub filter: Option<Ex>,
    pub(crate) updater: Updater,
    pub returning: Option<Vec<(Ex, Reg)>>,
    wait: RowWait,
    row: Option<RowId>,
    locked: bool,
}

impl ConflictUpdate {
    pub fn new(
        load: Load,
        filter: Option<Ex>,
        updater: Updater,
        returning: Option<Vec<(Ex, Reg)>>,
    ) -> Self {
        let wait = RowWait::default();
        ConflictUpdate { load, filter, updater, returning, wait, row: None, locked: false }
    }
}

/// What looking for a conflict came to.
pub(super) enum Found {
    /// No conflict (any more): insert.
    Nothing,
    Skip,
    /// From `look`: there is a row to update. From `go_on`: it was updated.
    Updated,
    Wait(WaitHandle),
}

impl Conflict {
    pub fn new(arbiters: Vec<usize>, update: Option<ConflictUpdate>) -> Self {
        Conflict {
            arbiters,
            update,
            waiting: Waiting::default(),
            batch: IndexBatch::new(),
            key: Vec::new(),
        }
    }

    pub fn arbitrates(&self, index: usize) -> bool {
        self.arbiters.contains(&index)
    }

    pub fn reset(&mut self) {
        self.waiting.cancel();
        if let Some(u) = &mut self.update {
            u.row = None;
            u.locked = false;
        }
    }

    pub(super) fn give_back(&self, cx: &mut ExecCx<'_>) -> Result<bool> {
        match &self.update {
            Some(u) => give_back(u.returning.as_deref(), cx),
            None => Ok(false),
        }
    }

    /// Looks the proposed row's keys up.
    pub(super) fn look(&mut self, cx: &mut ExecCx<'_>, target: &Target) -> Result<Found> {
        if let Some(h) = self.waiting.poll()? {
            return Ok(Found::Wait(h));
        }
        let store = *cx.store()?;
        let table = target.table.clone();
        for i in 0..self.arbiters.len() {
            let index = &table.indexes[self.arbiters[i]];
            let mut null = false;
            let covered = index.key(cx.fx, target.block(cx), &mut self.key, &mut null)?;
            if !covered || (null && !index.def.nulls_not_distinct) {
                continue;
            }
            btree::lookup(store.engine, &index.btree, &self.key, &mut self.batch)?;
            for at in 0..self.batch.len() {
                let root = self.batch.rows()[at];
                match self.judge(&store, &table, root)? {
                    Found::Nothing => {}
                    other => return Ok(other),
                }
            }
        }
        Ok(Found::Nothing)
    }

    fn judge(&mut self, store: &Store<'_>, table: &TableExec, root: RowId) -> Result<Found> {
        let verdict = {
            let tx = store.tx.borrow();
            heap::unique_verdict(store.engine, &tx, &table.heap, root)?
        };
        match verdict {
            UniqueVerdict::Dead | UniqueVerdict::DeadToAll => Ok(Found::Nothing),
            UniqueVerdict::WaitFor(xid) => match self.waiting.for_xid(store, xid)? {
                Some(h) => Ok(Found::Wait(h)),
                // It has ended by now: look again.
                None => self.judge(store, table, root),
            },
            UniqueVerdict::Conflict => {
                let mut buf = TupleBuf::new();
                let seen = store.fetch_latest_hot(&table.heap, root, &mut buf)?;
                let kept = store.tx.borrow().isolation() != IsolationLevel::ReadCommitted;
                if kept && seen && !self.visible(store, table, buf.row())? {
                    return Err(SqlError::new(
                        State::SERIALIZATION_FAILURE,
                        "could not serialize access due to concurrent update",
                    ));
                }
                let Some(update) = &mut self.update else { return Ok(Found::Skip) };
                if !seen {
                    return Err(twice());
                }
                update.row = Some(buf.row());
                update.locked = false;
                Ok(Found::Updated)
            }
        }
    }

    fn visible(&self, store: &Store<'_>, table: &TableExec, row: RowId) -> Result<bool> {
        let mut buf = TupleBuf::new();
        let tx = store.tx.borrow();
        let read = store.read(&tx);
        Ok(heap::fetch(store.engine, &read, &table.heap, row, &mut buf)?)
    }

    /// Locks and updates the existing row. The proposed row is in the target's registers.
    pub(super) fn go_on(&mut self, cx: &mut ExecCx<'_>, target: &Target) -> Result<Found> {
        let store = *cx.store()?;
        let Some(update) = &mut self.update else { return Ok(Found::Skip) };
        let Some(row) = update.row else { return Ok(Found::Nothing) };
        if let Some(h) = update.wait.poll(&store)? {
            return Ok(Found::Wait(h));
        }
        if !update.locked {
            match update.lock(&store, target, row)? {
                Some(Found::Nothing) => {
                    update.wait.done(&store);
                    update.row = None;
                    return Ok(Found::Nothing);
                }
                Some(other) => return Ok(other),
                None => {}
            }
            update.locked = true;
            let mut raw = std::mem::take(&mut cx.raw);
            let there = store.fetch_latest(&target.table.heap, row, &mut raw)?;
            let loaded = update.load.reload(cx, &raw);
            cx.raw = raw;
            cx.raw_of = target.table.def.oid;
            loaded?;
            if !there {
                return Err(twice());
            }
            if let Some(filter) = &update.filter
                && !filter.passes(cx)?
            {
                update.wait.done(&store);
                update.row = None;
                return Ok(Found::Skip);
            }
            update.updater.begin(row);
        }
        let written = update.updater.go_on(cx, None)?;
        if let Written::Wait(h) = written {
            return Ok(Found::Wait(h));
        }
        update.wait.done(&store);
        update.row = None;
        Ok(if matches!(written, Written::Done) { Found::Updated } else { Found::Skip })
    }
}

impl ConflictUpdate {
    /// `None`: the row is locked. `Nothing`: it is gone, start over.
    fn lock(&mut self, store: &Store<'_>, target: &Target, row: RowId) -> Result<Option<Found>> {
        let heap = &target.table.heap;
        loop {
            let result = {
                let mut tx = store.tx.borrow_mut();
                heap::lock_row(store.engine, &mut tx, heap, row, RowLock::NoKeyUpdate)?
            };
            match result {
                TupleResult::Ok(()) => return Ok(None),
                TupleResult::SelfModified => return Err(twice()),
                TupleResult::Invisible if is_own(store, heap.rel, row)? => return Err(twice()),
                // Its inserter was rolled back since: the key may be free, or another's by now.
                TupleResult::Invisible => return Ok(Some(Found::Nothing)),
                TupleResult::Updated { .. } | TupleResult::Deleted => {
                    super::must_not_follow(store, matches!(result, TupleResult::Deleted))?;
                    return Ok(Some(Found::Nothing));
                }
                TupleResult::BeingModified(xid) => {
                    let wait = self.wait.begin(store, heap.rel, row, Queue::NoKeyUpdate, xid)?;
                    if let Some(h) = wait {
                        return Ok(Some(Found::Wait(h)));
                    }
                }
            }
        }
    }
}

/// Whether the row is this transaction's own: one that cannot be seen is by the same command then.
fn is_own(store: &Store<'_>, rel: RelId, row: RowId) -> Result<bool> {
    let page = store.engine.pool.share(PageId::main(rel, row.block))?;
    let xmin = heap::page::tuple(&page, row.slot).map(|t| t.xmin(page.base()));
    Ok(xmin.is_some_and(|xmin| store.tx.borrow().is_own(xmin) == OwnXid::Live))
}

fn twice() -> SqlError {
    SqlError::new(
        State::CARDINALITY_VIOLATION,
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
    )
    .hint(
        "Ensure that no rows proposed for insertion within the same command have duplicate \
         constrained values.",
    )
}
