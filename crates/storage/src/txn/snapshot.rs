//! What a statement may see: one log position and one xid.

use super::manager::TxnManager;
use super::status::{CommitStamp, XidStatus};
use crate::ids::{Lsn, Xid};

/// A moment in the order of commits.
///
/// It is a plain value; what keeps it *usable* is that a [`super::SessionSlot`] announces it or
/// an older one. A transaction's registered snapshots are (see [`super::Transaction`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Commits at or before this position are visible.
    pub s: Lsn,
    /// Every xid below had ended when the snapshot was taken, its commit, if any, at or before
    /// `s`, and durable if it was synchronous. For these "committed" is enough to know.
    pub floor: Xid,
}

impl Snapshot {
    /// Whether a writer with this fate is visible. One's own writes are another question.
    #[inline]
    pub fn covers(self, stamp: CommitStamp) -> bool {
        stamp.lsn() <= self.s
    }

    /// Whether "committed", from a hint or a cache, already means visible for `xid`.
    #[inline]
    pub fn is_below_floor(self, xid: Xid) -> bool {
        xid < self.floor
    }

    /// Whether the writes of `xid`, not one's own, are visible.
    #[inline]
    pub fn sees(self, txns: &TxnManager, xid: Xid) -> bool {
        match txns.status(xid) {
            XidStatus::Committed(stamp) => self.covers(stamp),
            XidStatus::InProgress | XidStatus::Aborted => false,
        }
    }
}
