//! What a session keeps between its transactions: a place to announce snapshots, an identity to
//! hold locks under, and the snapshots that it uses now.

use super::log::TxnHost;
use super::manager::TxnManager;
use super::slots::SessionSlot;
use super::snapshot::Snapshot;
use crate::ids::Lsn;
use crate::lock::{LockManager, LockOwner, OwnerHandle};
use crate::sync::Arc;
use smallvec::SmallVec;

/// One session, as transactions see it. Made once, shared by its transactions one after another.
pub struct TxnSession {
    pub(crate) txns: TxnManager,
    pub(crate) locks: LockManager,
    pub(crate) slot: SessionSlot,
    pub(crate) owner: OwnerHandle,
}

impl TxnSession {
    /// `pid` is what views and deadlock reports show.
    pub fn new(host: &impl TxnHost, pid: i32) -> Arc<Self> {
        Self::with(host.txns(), host.locks(), pid)
    }

    pub(crate) fn with(txns: &TxnManager, locks: &LockManager, pid: i32) -> Arc<Self> {
        Arc::new(TxnSession {
            txns: txns.clone(),
            locks: locks.clone(),
            slot: txns.session_slot(),
            owner: locks.register(pid),
        })
    }

    pub fn owner(&self) -> &LockOwner {
        &self.owner
    }

    pub fn slot(&self) -> &SessionSlot {
        &self.slot
    }
}

/// Names a snapshot that is kept beyond its statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct SnapshotHold(u32);

/// The snapshots that a transaction uses. The oldest is announced; that protects the others.
#[derive(Default)]
pub(crate) struct SnapshotSet {
    /// Of the current statement, or of the whole transaction.
    current: Option<Snapshot>,
    /// The oldest of those taken in between, in use until the statement ends.
    extra: Option<Snapshot>,
    /// Of cursors and the like.
    held: SmallVec<[(u32, Snapshot); 2]>,
    next_hold: u32,
}

impl SnapshotSet {
    pub(crate) fn current(&self) -> Option<Snapshot> {
        self.current
    }

    /// A snapshot of now, replacing the current one.
    pub(crate) fn renew(&mut self, session: &TxnSession) -> Snapshot {
        let snapshot = if self.held.is_empty() && self.extra.is_none() {
            session.txns.snapshot(&session.slot)
        } else {
            session.txns.snapshot_behind(&session.slot)
        };
        self.current = Some(snapshot);
        snapshot
    }

    /// A snapshot of now beside the others, in use until the statement ends.
    pub(crate) fn take_extra(&mut self, session: &TxnSession) -> Snapshot {
        if session.slot.announced().is_some() {
            let snapshot = session.txns.snapshot_behind(&session.slot);
            self.extra.get_or_insert(snapshot);
            return snapshot;
        }
        *self.extra.insert(session.txns.snapshot(&session.slot))
    }

    pub(crate) fn set_current(&mut self, snapshot: Snapshot) {
        self.current = Some(snapshot);
    }

    pub(crate) fn hold(&mut self, snapshot: Snapshot) -> SnapshotHold {
        let id = self.next_hold;
        self.next_hold += 1;
        self.held.push((id, snapshot));
        SnapshotHold(id)
    }

    pub(crate) fn unhold(&mut self, hold: SnapshotHold, session: &TxnSession) {
        self.held.retain(|(id, _)| *id != hold.0);
        self.announce_oldest(session);
    }

    /// `keep`: the current snapshot is the transaction's, not the statement's.
    pub(crate) fn end_statement(&mut self, session: &TxnSession, keep: bool) {
        self.extra = None;
        if !keep {
            self.current = None;
        }
        self.announce_oldest(session);
    }

    pub(crate) fn clear(&mut self, session: &TxnSession) {
        self.current = None;
        self.extra = None;
        self.held.clear();
        self.announce_oldest(session);
    }

    fn oldest(&self) -> Option<Lsn> {
        let held = self.held.iter().map(|(_, snapshot)| snapshot);
        held.chain(&self.current).chain(&self.extra).map(|snapshot| snapshot.s).min()
    }

    fn announce_oldest(&self, session: &TxnSession) {
        session.slot.advance(self.oldest());
    }
}
