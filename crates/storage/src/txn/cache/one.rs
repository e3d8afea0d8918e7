//! One entry: the xid asked about last. What PostgreSQL has (`cachedFetchXid`).

use super::super::status::XidStatus;
use crate::ids::Xid;
use std::cell::Cell;

/// The last final answer.
#[derive(Debug, Default)]
pub struct OneXid {
    /// The xid and its status word; 0 = nothing yet.
    entry: Cell<(u64, u64)>,
}

impl OneXid {
    #[inline]
    pub(super) fn known(&self, xid: Xid) -> Option<XidStatus> {
        let (known, word) = self.entry.get();
        (known == xid.raw() && word != 0).then(|| XidStatus::from_word(word))
    }

    #[inline]
    pub(super) fn remember(&self, xid: Xid, fate: XidStatus) {
        debug_assert!(fate.is_final(), "only final fates are remembered");
        self.entry.set((xid.raw(), fate.word()));
    }
}
