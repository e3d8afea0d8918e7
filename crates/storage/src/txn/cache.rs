//! The session status cache: recent final answers, private to one session.
//!
//! Direct-mapped by the low bits of the xid, so a look-up is one compare. Only final answers
//! enter (semantics 1), and a final answer never changes, so nothing ever has to be taken out.
//! An answer that names a commit position stays right when its chunk is settled later: the
//! position was real.

use super::manager::TxnManager;
use super::status::XidStatus;
use crate::ids::Xid;
use std::cell::Cell;

const ENTRIES: usize = 16;

/// Recent final answers. Not shared between threads.
#[derive(Default)]
pub struct StatusCache {
    entries: [Cell<(u64, u64)>; ENTRIES],
}

impl StatusCache {
    pub fn new() -> Self {
        Self::default()
    }

    /// What became of `xid`, if that is known here.
    #[inline]
    pub fn known(&self, xid: Xid) -> Option<XidStatus> {
        let (known, word) = self.entries[xid.raw() as usize % ENTRIES].get();
        (known == xid.raw() && word != 0).then(|| XidStatus::from_word(word))
    }

    /// What became of `xid`: from here if known, else from the manager.
    #[inline]
    pub fn status(&self, txns: &TxnManager, xid: Xid) -> XidStatus {
        let entry = &self.entries[xid.raw() as usize % ENTRIES];
        let (known, word) = entry.get();
        if known == xid.raw() && word != 0 {
            return XidStatus::from_word(word);
        }
        let status = txns.status(xid);
        if status.is_final() {
            entry.set((xid.raw(), status.word()));
        }
        status
    }
}

impl std::fmt::Debug for StatusCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.entries.iter().filter(|e| e.get().1 != 0).count();
        write!(f, "StatusCache({used} of {ENTRIES} used)")
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::ids::Lsn;

    #[test]
    fn a_running_transaction_is_asked_about_again() {
        let txns = TxnManager::in_memory(Lsn::new(0x1000000)).expect("new");
        let cache = StatusCache::new();
        let xid = txns.assign_xid(None).expect("xid");
        assert_eq!(cache.status(&txns, xid), XidStatus::InProgress);
        txns.abort_unlogged(xid, &[]);
        assert_eq!(cache.status(&txns, xid), XidStatus::Aborted);
        assert_eq!(cache.status(&txns, xid), XidStatus::Aborted);
        // Another xid of the same entry.
        let other = Xid::new(xid.raw() + ENTRIES as u64);
        assert_eq!(cache.status(&txns, other), XidStatus::InProgress);
    }
}
