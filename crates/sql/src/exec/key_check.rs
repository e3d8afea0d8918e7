//! Looking a key up in a unique index, as of now, and locking the row that has it.
//!
//! ```text
//!   snapshot ──> entries with the key ──> the version that it sees ──> lock it FOR KEY SHARE
//!      ^                                                                 │ being changed: wait
//!      └──────────────── changed meanwhile (READ COMMITTED) ─────────────┘
//! ```
//!
//! The snapshot comes before the look into the index: a version that it sees had its entry by then,
//! and keeps it. The lock is in memory (`storage/heap/rowlock.rs`): nothing is written for it, and
//! others' locks of the same strength and updates that leave the key alone do not meet it.

use super::Store;
use super::table::TableExec;
use super::wait::{Queue, RowWait};
use crate::error::{Result, SqlError, State};
use crate::types::Datum;
use inkling_storage::btree::{self, IndexBatch};
use inkling_storage::heap::{self, ReadCx, RowLock, TupleBuf, TupleResult};
use inkling_storage::ids::RowId;
use inkling_storage::txn::{IsolationLevel, Transaction};
use inkling_storage::wait::WaitHandle;

/// What looking for a key came to.
pub enum Found {
    /// There is a row with it, locked.
    Yes,
    No,
    Wait(WaitHandle),
}

/// One look-up, with what it keeps while it waits.
#[derive(Default)]
pub struct KeyCheck {
    key: Vec<u8>,
    batch: IndexBatch,
    row: TupleBuf,
    wait: RowWait,
}

impl KeyCheck {
    /// Looks for the row whose columns `columns` have these values. After a wait the same call is
    /// made again. `latest`: as of now at every isolation level; else above READ COMMITTED as of
    /// the transaction's snapshot.
    pub fn find(
        &mut self,
        store: &Store<'_>,
        table: &TableExec,
        index: usize,
        (columns, values): (&[usize], &[Datum]),
        latest: bool,
    ) -> Result<Found> {
        if let Some(handle) = self.wait.poll(store)? {
            return Ok(Found::Wait(handle));
        }
        self.encode(table, index, columns, values)?;
        // A row whose other columns were changed since the snapshot is taken as it is now.
        let mut moved = false;
        loop {
            let store = Self::as_of(store, latest || moved);
            let entries = &table.indexes[index].btree;
            btree::lookup(store.engine, entries, &self.key, &mut self.batch)?;
            let mut again = false;
            for at in 0..self.batch.len() {
                match self.lock(&store, table, self.batch.rows()[at])? {
                    Locked::Not => {}
                    Locked::Again => again = true,
                    Locked::Moved => (again, moved) = (true, true),
                    Locked::Wait(handle) => return Ok(Found::Wait(handle)),
                    Locked::Yes => {
                        self.wait.done(&store);
                        return Ok(Found::Yes);
                    }
                }
            }
            if !again && moved {
                return Err(not_as_seen());
            }
            if !again {
                self.wait.done(&store);
                return Ok(Found::No);
            }
        }
    }

    fn as_of<'s>(store: &Store<'s>, latest: bool) -> Store<'s> {
        let mut tx = store.tx.borrow_mut();
        let kept = match tx.isolation() {
            IsolationLevel::ReadCommitted => None,
            _ => tx.snapshot().filter(|_| !latest),
        };
        let snapshot = kept.unwrap_or_else(|| tx.latest_snapshot());
        Store { snapshot, command: tx.command_id(), ..*store }
    }

    fn encode(
        &mut self,
        table: &TableExec,
        index: usize,
        columns: &[usize],
        values: &[Datum],
    ) -> Result<()> {
        let index = &table.indexes[index];
        self.key.clear();
        for (part, (ty, descending, nulls_first)) in index.def.columns.iter().zip(&index.columns) {
            let column = usize::try_from(part.attnum - 1).ok();
            let at = columns.iter().position(|c| Some(*c) == column);
            let value = at.and_then(|at| values.get(at));
            let value = value.ok_or_else(|| {
                SqlError::internal(format!("index {} is not of that key", index.def.name))
            })?;
            crate::keycode::encode_column(value, *ty, *descending, *nulls_first, &mut self.key)?;
        }
        Ok(())
    }

    fn lock(&mut self, store: &Store<'_>, table: &TableExec, root: RowId) -> Result<Locked> {
        let seen = {
            let tx = store.tx.borrow();
            let read = unwatched(store, &tx);
            heap::fetch_hot(store.engine, &read, &table.heap, root, &mut self.row)?
        };
        if !seen {
            return Ok(Locked::Not);
        }
        let row = self.row.row();
        loop {
            let result = {
                let mut tx = store.tx.borrow_mut();
                heap::lock_row(store.engine, &mut tx, &table.heap, row, RowLock::KeyShare)?
            };
            match result {
                TupleResult::Ok(()) => return Ok(Locked::Yes),
                TupleResult::SelfModified | TupleResult::Invisible => return Ok(Locked::Not),
                TupleResult::BeingModified(xid) => {
                    let rel = table.heap.rel;
                    if let Some(h) = self.wait.begin(store, rel, row, Queue::KeyShare, xid)? {
                        return Ok(Locked::Wait(h));
                    }
                }
                TupleResult::Updated { .. } | TupleResult::Deleted => {
                    let isolation = store.tx.borrow().isolation();
                    return match isolation {
                        IsolationLevel::ReadCommitted => Ok(Locked::Again),
                        _ if self.kept_its_key(store, table, row)? => Ok(Locked::Moved),
                        _ => Err(not_as_seen()),
                    };
                }
            }
        }
    }

    /// Whether a version that was replaced, or deleted, left its key to the next one.
    fn kept_its_key(&mut self, store: &Store<'_>, table: &TableExec, row: RowId) -> Result<bool> {
        let tx = store.tx.borrow();
        let read = unwatched(store, &tx);
        let seen = heap::fetch(store.engine, &read, &table.heap, row, &mut self.row)?;
        let strength = self.row.tuple().map(|t| t.lock_strength());
        Ok(seen && strength.is_some_and(|s| s < RowLock::Update))
    }
}

/// No serializable transaction notes the row: the lock on it says more, and says it to everybody.
fn unwatched<'t>(store: &'t Store<'_>, tx: &'t Transaction) -> ReadCx<'t> {
    ReadCx { watch: None, ..store.read(tx) }
}

fn not_as_seen() -> SqlError {
    let text = "could not serialize access due to concurrent update";
    SqlError::new(State::SERIALIZATION_FAILURE, text)
}

enum Locked {
    Yes,
    /// Not to be seen, or gone by one's own doing.
    Not,
    /// Changed since the snapshot: with another one.
    Again,
    /// Changed since the transaction's snapshot, but for its key: as it is now.
    Moved,
    Wait(WaitHandle),
}
