//! A few xids, direct-mapped by their low bits: a look-up is one compare.

use super::super::status::XidStatus;
use crate::ids::Xid;
use std::cell::Cell;

const ENTRIES: usize = 16;

/// Recent final answers about up to 16 xids.
#[derive(Default)]
pub struct FewXids {
    /// The xid and its status word; 0 = nothing yet.
    entries: [Cell<(u64, u64)>; ENTRIES],
}

impl FewXids {
    #[inline]
    pub(super) fn known(&self, xid: Xid) -> Option<XidStatus> {
        let (known, word) = self.entries[xid.raw() as usize % ENTRIES].get();
        (known == xid.raw() && word != 0).then(|| XidStatus::from_word(word))
    }

    #[inline]
    pub(super) fn remember(&self, xid: Xid, fate: XidStatus) {
        debug_assert!(fate.is_final(), "only final fates are remembered");
        self.entries[xid.raw() as usize % ENTRIES].set((xid.raw(), fate.word()));
    }
}

impl std::fmt::Debug for FewXids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.entries.iter().filter(|e| e.get().1 != 0).count();
        write!(f, "FewXids({used} of {ENTRIES} used)")
    }
}
