//! What a frame knows about its page besides the bytes.
//!
//! ```text
//!   summary    every tuple is visible from this position on       set by readers, share latch
//!   inserter   one transaction put every tuple here               set by that writer, exclusive
//!   hints      four bits a slot: committed? aborted? twice        set by readers, share latch
//!   changes    how often the page changed                         guards the summary
//! ```
//!
//! Everything here is volatile: it goes when the page leaves memory, and in a crash. A change of
//! the page forgets summary and inserter before the first byte changes (semantics 21), and the
//! hints of the slots that it touches. Model-checked: `buffer/models.rs`, `tests/loom.rs`.

use crate::ids::{Lsn, SlotNo, Xid};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Volatile knowledge about the page in a frame. It goes when the page leaves memory, and in a
/// crash: nothing may depend on finding it.
///
/// Per slot four bits, twins of the tuple's own hint bits; for the page one *summary*: "every live
/// tuple here is visible to any snapshot at or after this log position"; and the *sole inserter*:
/// "this transaction inserted every tuple here, and nothing else has happened to them".
///
/// The summary is guarded by the change counter. Whoever wants to set it reads the counter under
/// the share latch, looks at the page, and hands the counter back; any change in between (they
/// happen under the exclusive latch) has moved the counter and the summary is not set.
#[derive(Debug)]
pub struct FrameExtras {
    summary: AtomicU64,
    changes: AtomicU64,
    inserter: AtomicU64,
    hints: [AtomicU64; HINT_WORDS],
}

/// Slots whose hints fit; more than a heap page can have.
const HINT_SLOTS: usize = 304;
const HINT_WORDS: usize = HINT_SLOTS / SLOTS_PER_WORD;
const SLOTS_PER_WORD: usize = 16;
const HINT_BITS: u64 = 0xF;

impl FrameExtras {
    pub const XMIN_COMMITTED: u8 = 1;
    pub const XMIN_ABORTED: u8 = 2;
    pub const XMAX_COMMITTED: u8 = 4;
    pub const XMAX_ABORTED: u8 = 8;

    pub(super) fn new() -> Self {
        FrameExtras {
            summary: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            inserter: AtomicU64::new(0),
            hints: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn place(slot: SlotNo) -> Option<(usize, u32)> {
        let raw = usize::from(slot.raw());
        if raw == 0 || raw > HINT_SLOTS {
            return None;
        }
        let at = raw - 1;
        Some((at / SLOTS_PER_WORD, (at % SLOTS_PER_WORD) as u32 * 4))
    }

    /// The four bits of a slot. Relaxed: they are set from final facts only.
    #[inline]
    pub fn hint(&self, slot: SlotNo) -> u8 {
        match Self::place(slot) {
            Some((word, shift)) => {
                ((self.hints[word].load(Ordering::Relaxed) >> shift) & HINT_BITS) as u8
            }
            None => 0,
        }
    }

    /// Adds bits to a slot. The caller holds the page's latch (share is enough).
    #[inline]
    pub fn set_hint(&self, slot: SlotNo, bits: u8) {
        if let Some((word, shift)) = Self::place(slot) {
            self.hints[word].fetch_or((u64::from(bits) & HINT_BITS) << shift, Ordering::Relaxed);
        }
    }

    /// Forgets a slot's bits: its xmin or xmax changes. Under the exclusive latch.
    #[inline]
    pub fn clear_hints(&self, slot: SlotNo) {
        if let Some((word, shift)) = Self::place(slot) {
            self.hints[word].fetch_and(!(HINT_BITS << shift), Ordering::Relaxed);
        }
    }

    /// Forgets every slot's bits: the page was compacted or rewritten. Under the exclusive latch.
    pub fn clear_all_hints(&self) {
        for word in &self.hints {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// "Every live tuple is visible to a snapshot at or after this"; `INVALID` = not known.
    #[inline]
    pub fn summary(&self) -> Lsn {
        Lsn::new(self.summary.load(Ordering::Acquire))
    }

    /// How often the page has changed since it came into this frame.
    #[inline]
    pub fn change_counter(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sets the summary found by whoever saw the page at `seen` (see [`Self::change_counter`]).
    /// To be called under the share latch under which `seen` was read: then it takes effect, and
    /// cannot outlive the next change.
    #[inline]
    pub fn set_summary(&self, at: Lsn, seen: u64) -> bool {
        if self.changes.load(Ordering::Acquire) != seen {
            return false;
        }
        self.summary.store(at.raw(), Ordering::Release);
        true
    }

    /// The transaction that inserted every tuple on the page, if the frame knows that there is
    /// one and that nothing was deleted, locked or moved since. Under a latch.
    #[inline]
    pub fn sole_inserter(&self) -> Xid {
        Xid::new(self.inserter.load(Ordering::Relaxed))
    }

    /// Notes that `xid` inserted all that is on the page. Under the exclusive latch under which
    /// the last of it was inserted, after the change.
    pub fn set_sole_inserter(&self, xid: Xid) {
        self.inserter.store(xid.raw(), Ordering::Relaxed);
    }

    /// The page is about to change: under the exclusive latch, before the first byte.
    pub(super) fn note_change(&self) {
        self.summary.store(0, Ordering::Release);
        self.inserter.store(0, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Another page moves in.
    pub(super) fn reset(&self) {
        self.note_change();
        self.clear_all_hints();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn hints_of_neighbouring_slots_do_not_mix() {
        let extras = FrameExtras::new();
        let slot = |n| SlotNo::new(n);
        extras.set_hint(slot(16), 0b1001);
        extras.set_hint(slot(17), 0b0110);
        assert_eq!((extras.hint(slot(15)), extras.hint(slot(16))), (0, 0b1001));
        assert_eq!((extras.hint(slot(17)), extras.hint(slot(18))), (0b0110, 0));
        extras.clear_hints(slot(16));
        assert_eq!((extras.hint(slot(16)), extras.hint(slot(17))), (0, 0b0110));
        extras.set_hint(slot(9999), 1);
        assert_eq!(extras.hint(slot(9999)), 0, "out of range is not remembered");
    }

    #[test]
    fn a_summary_needs_an_unmoved_change_counter() {
        let extras = FrameExtras::new();
        let seen = extras.change_counter();
        extras.note_change();
        assert!(!extras.set_summary(Lsn::new(64), seen));
        assert_eq!(extras.summary(), Lsn::INVALID);
        assert!(extras.set_summary(Lsn::new(64), extras.change_counter()));
        assert_eq!(extras.summary(), Lsn::new(64));
        extras.note_change();
        assert_eq!(extras.summary(), Lsn::INVALID);
    }
}
