//! Hints on the way out: what a page's copy learns just before it is written.
//!
//! ```text
//!   frame ──copy under the share latch──> copy ──log flushed to its LSN──> HERE ──> checksum, file
//! ```
//!
//! The page is dirty and will be written anyway, its image has been in the log since the last
//! checkpoint, and the copy is private: so the hints cost no write, no record and no latch. The
//! page in memory stays as it is.
//!
//! Rules:
//! - B1. "Committed" is set only when the commit record is durable: at or before `flushed`
//!   (semantics 17). "Aborted" is set whenever the abort is final.
//! - B2. The all-visible flag is set when every tuple's inserter committed durably at or before the
//!   horizon and no deletion counts or may count. Every snapshot in use or to come is at or
//!   after the horizon, so to all of them the page is what the flag says. A page with dead line
//!   pointers does not get it (rule V1 of `vmap.rs`). The bit in the visibility map is another
//!   matter: setting that takes a record, and is vacuum's.
//! - B3. What redo does to such a page is right, because every operation that changes xmin or xmax
//!   clears the hints about it, and every one that changes what is visible clears the flag,
//!   whether or not memory had them ([`super::ops`]).

use super::counters::VisTotals;
use super::hints::HintPolicy;
use super::page::{self, ALL_VISIBLE, HeaderMut, Line};
use super::tuple::TupleRef;
use super::visibility::ALWAYS;
use crate::ids::{Lsn, Xid};
use crate::page::{Page, PageClass};
use crate::txn::{TxnManager, XidStatus};

/// What became of a transaction, as far as a page on disk may say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Running, or committed and not durable.
    Open,
    Aborted,
    Durable(Lsn),
}

/// Looks fates up, remembering the last.
struct Fates<'a> {
    txns: &'a TxnManager,
    flushed: Lsn,
    last: (Xid, Fate),
}

impl Fates<'_> {
    #[inline]
    fn of(&mut self, xid: Xid) -> Fate {
        if self.last.0 != xid {
            let fate = match self.txns.status(xid) {
                XidStatus::InProgress => Fate::Open,
                XidStatus::Aborted => Fate::Aborted,
                XidStatus::Committed(stamp) if stamp.lsn() <= self.flushed => {
                    Fate::Durable(stamp.lsn())
                }
                XidStatus::Committed(_) => Fate::Open,
            };
            self.last = (xid, fate);
        }
        self.last.1
    }
}

/// Sets hints, and the all-visible flag, in the copy of a page that is about to be written while
/// the log is flushed to `flushed`. Under the older policies a page is written as it is in memory.
///
/// The result: the position from which on every snapshot sees every tuple of the page; invalid
/// when that is not so, or not known.
pub fn prepare_copy(
    copy: &mut Page,
    txns: &TxnManager,
    flushed: Lsn,
    policy: HintPolicy,
    totals: &VisTotals,
) -> Lsn {
    if !policy.uses_frames()
        || copy.class() != Some(PageClass::Heap)
        || page::check_bounds(copy).is_err()
    {
        return Lsn::INVALID;
    }
    let base = copy.base();
    let horizon = txns.recent_horizon();
    let mut fates = Fates { txns, flushed, last: (Xid::INVALID, Fate::Open) };
    let (mut set, mut tuples, mut dead) = (0u64, 0u32, false);
    let mut since = Some(ALWAYS);
    for slot in page::slots(copy) {
        let Some(t) = page::tuple(copy, slot) else {
            dead |= page::line(copy, slot) == Some(Line::DEAD);
            continue;
        };
        tuples += 1;
        let (hints, from) = hints_of(&mut fates, &t, base);
        since = since.zip(from).map(|(a, b)| a.max(b)).filter(|since| *since <= horizon);
        let new = hints & !t.mask();
        if new != 0
            && let Ok(mut head) = HeaderMut::new(copy, slot)
        {
            head.set_mask(head.mask() | new);
            set += u64::from(new.count_ones());
        }
    }
    totals.note_write_back(set);
    match since {
        Some(since) if tuples > 0 => {
            if !dead {
                copy.set_flags(copy.flags() | ALL_VISIBLE);
            }
            since
        }
        _ => Lsn::INVALID,
    }
}

/// The hints that hold for a tuple, and the position from which on it is visible, if it is there
/// for good.
#[inline]
fn hints_of(fates: &mut Fates<'_>, t: &TupleRef<'_>, base: u64) -> (u16, Option<Lsn>) {
    let (xmin, xmax, mask) = (t.xmin(base), t.xmax(base), t.mask());
    let mut hints = 0;
    let mut since = (t.xmin_offset() == page::OFFSET_FROZEN).then_some(ALWAYS);
    if xmin.is_normal() {
        match fates.of(xmin) {
            Fate::Open => {}
            Fate::Aborted => hints |= page::XMIN_ABORTED,
            Fate::Durable(at) => {
                hints |= page::XMIN_COMMITTED;
                since = Some(at.max(ALWAYS));
            }
        }
    }
    if xmax.is_normal() {
        let lock = mask & page::XMAX_LOCK_ONLY != 0;
        match fates.of(xmax) {
            Fate::Open => since = since.filter(|_| lock),
            Fate::Durable(_) if !lock => {
                hints |= page::XMAX_COMMITTED;
                since = None;
            }
            // The lock is over, or the deletion never was: nobody need ask about it again.
            Fate::Aborted | Fate::Durable(_) => hints |= page::XMAX_ABORTED,
        }
    }
    (hints, since)
}
