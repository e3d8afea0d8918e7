//! Waiting for other transactions.
//!
//! A row that another transaction holds is waited for in two steps: first one's turn in the row's
//! queue (a lock on the row's address), then the end of the holder. Both are asked again after
//! each wake-up; the queue's lock is given back when the row is done with.

use super::Store;
use crate::error::Result;
use inkling_storage::ids::{RelId, RowId, Xid};
use inkling_storage::lock::{LockMode, LockResult, LockTag, LockWait};
use inkling_storage::wait::WaitHandle;

/// A wait for one lock or transaction.
#[derive(Default)]
pub struct Waiting(Option<LockWait>);

impl Waiting {
    /// `Some`: not over yet.
    pub fn poll(&mut self) -> Result<Option<WaitHandle>> {
        let Some(wait) = &mut self.0 else { return Ok(None) };
        if wait.check().into_result()? {
            self.0 = None;
            return Ok(None);
        }
        Ok(Some(wait.handle()))
    }

    pub fn begin(&mut self, result: LockResult) -> Result<Option<WaitHandle>> {
        match result {
            LockResult::Granted => Ok(None),
            LockResult::Wait(wait) => {
                self.0 = Some(wait);
                self.poll()
            }
        }
    }

    /// Waits for a transaction's end.
    pub fn for_xid(&mut self, store: &Store<'_>, xid: Xid) -> Result<Option<WaitHandle>> {
        let tx = store.tx.borrow();
        let engine = store.engine;
        self.begin(engine.locks.wait_for_xid(&engine.txns, tx.lock_owner(), xid))
    }

    pub fn cancel(&mut self) {
        self.0 = None;
    }
}

/// What one wants to do with a row, as a lock of its queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

impl Queue {
    fn mode(self) -> LockMode {
        match self {
            Queue::KeyShare => LockMode::AccessShare,
            Queue::Share => LockMode::RowShare,
            Queue::NoKeyUpdate => LockMode::Exclusive,
            Queue::Update => LockMode::AccessExclusive,
        }
    }
}

/// The wait for one row.
#[derive(Default)]
pub struct RowWait {
    waiting: Waiting,
    /// The queue's lock that is held or waited for.
    queued: Option<(LockTag, LockMode)>,
    /// Whom to wait for once it is one's turn.
    then: Option<Xid>,
}

impl RowWait {
    /// Goes on waiting; `None`: try the row again.
    pub fn poll(&mut self, store: &Store<'_>) -> Result<Option<WaitHandle>> {
        if let Some(handle) = self.waiting.poll()? {
            return Ok(Some(handle));
        }
        match self.then.take() {
            Some(xid) => self.waiting.for_xid(store, xid),
            None => Ok(None),
        }
    }

    /// Somebody holds the row: queues up, then waits for `xid`.
    pub fn begin(
        &mut self,
        store: &Store<'_>,
        rel: RelId,
        row: RowId,
        queue: Queue,
        xid: Xid,
    ) -> Result<Option<WaitHandle>> {
        let (tag, mode) = (LockTag::Tuple(rel, row), queue.mode());
        if self.queued.is_some_and(|q| q.0 == tag) {
            return self.waiting.for_xid(store, xid);
        }
        self.done(store);
        self.queued = Some((tag, mode));
        self.then = Some(xid);
        let result = {
            let tx = store.tx.borrow();
            store.engine.locks.acquire(tx.lock_owner(), tag, mode)
        };
        match self.waiting.begin(result)? {
            Some(handle) => Ok(Some(handle)),
            None => self.poll(store),
        }
    }

    /// The row is done with, one way or the other.
    pub fn done(&mut self, store: &Store<'_>) {
        self.waiting.cancel();
        self.then = None;
        if let Some((tag, mode)) = self.queued.take() {
            let tx = store.tx.borrow();
            store.engine.locks.release(tx.lock_owner(), tag, mode);
        }
    }
}
