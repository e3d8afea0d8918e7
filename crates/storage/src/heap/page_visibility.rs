//! Which tuples of a page a snapshot sees: one call decides all of them, level by level.
//!
//! ```text
//!   as a whole   ALL_VISIBLE flag | frame summary | sole inserter     one look: all, or none
//!        | not known
//!   plain        no tuple has an xmax                                 one pass, one question:
//!        | not so, or not all committed                               did all inserters commit?
//!   hints        each tuple by the bits on the page and in the frame  one pass, no look-up
//!        | some left open
//!   status       the open ones: session cache, window, commit log     a look-up per new xid
//!        |
//!   kept         all visible for good -> frame summary; else hints, as the policy says
//! ```
//!
//! A *sole inserter* is what a frame knows from the writer itself: one transaction put every tuple
//! on this page and nobody has touched them since. The first scan after a load then asks about one
//! xid a page, touches no tuple, and leaves a summary: it costs what the tenth scan costs.
//!
//! Nothing here changes the page. Summaries are set under the share latch under which the page was
//! judged (semantics 21); hints are handed to [`super::hints::keep`].

use super::counters::{Level, PageCounts};
use super::hints::{Learned, keep};
use super::page::{self, ALL_VISIBLE, Ids, LineState, MAX_SLOTS, OFFSET_FROZEN, OFFSET_INVALID};
use super::read::ReadCx;
use super::visibility::{
    ALWAYS, Judge, Seen, XMAX_ABORTED, XMAX_COMMITTED, XMIN_ABORTED, XMIN_COMMITTED,
};
use super::write::bad_page;
use crate::buffer::ShareGuard;
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{Lsn, SlotNo, Xid};
use crate::page::Page;
use crate::txn::{Fates, OwnXid, Snapshot, XidStatus};
use smallvec::SmallVec;

const WORDS: usize = MAX_SLOTS.div_ceil(64);
/// How many transactions may be asked about at once, for each tuple on the page: asking about one
/// in a range costs a fraction of asking about a tuple's.
const RANGE_A_TUPLE: u32 = 4;

/// A set of slots.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Slots([u64; WORDS]);

impl Slots {
    #[inline]
    fn add(&mut self, slot: SlotNo) {
        let at = slot.index();
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = SlotNo> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < 64).then(|| SlotNo::new((at * 64) as u16 + bit as u16 + 1))
            })
        })
    }
}

/// The tuples that a snapshot sees.
#[derive(Debug)]
pub(super) enum Visible {
    /// Every tuple on the page.
    All,
    None,
    These(Slots),
}

impl Visible {
    /// How many tuples of `page` that is.
    pub(super) fn count(&self, page: &Page) -> usize {
        match self {
            Visible::All => page::tuple_count(page),
            Visible::None => 0,
            Visible::These(slots) => slots.len(),
        }
    }
}

/// Decides a latched page. `take` gets it with the answer, still latched, and tells how many tuples
/// that was; what was learned is kept afterwards.
pub(super) fn decide(
    e: &Engine,
    cx: &ReadCx<'_>,
    page: ShareGuard<'_>,
    take: impl FnOnce(&Page, &Visible) -> usize,
) -> Result<usize> {
    let judge = cx.judge(e);
    let whole = whole(&judge, &cx.snapshot, &page);
    if let Some((visible, level)) = whole.or_else(|| plain(&judge, &cx.snapshot, &page)) {
        let taken = take(&page, &visible);
        if let Some(counters) = cx.state.counters() {
            let all = matches!(visible, Visible::All);
            let checked = if all { taken } else { page::tuple_count(&page) };
            counters.tuples(level, checked as u64);
        }
        return Ok(taken);
    }
    let mut pass = Pass::new(&judge, &cx.snapshot, &page);
    let changes = page.frame().change_counter();
    pass.by_hints(&page)?;
    pass.by_status(&page);
    if let Some(counters) = cx.state.counters() {
        counters.page(&pass.counts);
    }
    let summarised = judge.policy.uses_frames()
        && pass.summary.is_valid()
        && page.frame().set_summary(pass.summary, changes);
    let learned = std::mem::take(&mut pass.learned);
    let taken = take(&page, &Visible::These(pass.visible));
    if !summarised && !learned.is_empty() {
        keep(e, judge.policy, page, changes, &learned, cx.state.counters())?;
    }
    Ok(taken)
}

/// What is known of the page as a whole, and which level knew.
#[inline]
pub(super) fn whole(
    judge: &Judge<'_>,
    snapshot: &Snapshot,
    page: &ShareGuard<'_>,
) -> Option<(Visible, Level)> {
    if judge.policy.uses_hints() && page.flags() & ALL_VISIBLE != 0 {
        return Some((Visible::All, Level::Summary));
    }
    if !judge.policy.uses_frames() {
        return None;
    }
    let summary = page.frame().summary();
    if summary.is_valid() && summary <= snapshot.s {
        return Some((Visible::All, Level::Summary));
    }
    let inserter = page.frame().sole_inserter();
    if inserter.is_valid() { by_inserter(judge, snapshot, page, inserter) } else { None }
}

/// As [`whole`], for a single tuple: seen or not, and which level knew.
#[inline]
pub(super) fn whole_for_one(
    judge: &Judge<'_>,
    snapshot: &Snapshot,
    page: &ShareGuard<'_>,
) -> Option<(bool, Level)> {
    whole(judge, snapshot, page).map(|(visible, level)| (matches!(visible, Visible::All), level))
}

/// The answer for a page all of whose tuples are one transaction's.
fn by_inserter(
    judge: &Judge<'_>,
    snapshot: &Snapshot,
    page: &ShareGuard<'_>,
    inserter: Xid,
) -> Option<(Visible, Level)> {
    if judge.tx.is_own(inserter) != OwnXid::NotOwn {
        return None;
    }
    let changes = page.frame().change_counter();
    let (fate, level) = judge.fate(inserter, snapshot.floor);
    let visible = match fate {
        XidStatus::InProgress | XidStatus::Aborted => Visible::None,
        XidStatus::Committed(stamp) if !snapshot.covers(stamp) => Visible::None,
        XidStatus::Committed(stamp) => {
            let since = judge.since(stamp);
            if since.is_valid() {
                page.frame().set_summary(since, changes);
            }
            Visible::All
        }
    };
    Some((visible, level))
}

/// The same for a page none of whose tuples was deleted or locked: it came from disk, or others
/// worked on it and took their work back. A look at each tuple's ids, and one question about all
/// of their inserters. If they did not all commit, the tuples are judged one by one.
fn plain(
    judge: &Judge<'_>,
    snapshot: &Snapshot,
    page: &ShareGuard<'_>,
) -> Option<(Visible, Level)> {
    // With something to prune there is an xmax, most likely.
    if !judge.policy.uses_frames() || page.hint() != 0 {
        return None;
    }
    let inserters = page::inserters(page)?;
    let all = |since, level| {
        page.frame().set_summary(since, page.frame().change_counter());
        Some((Visible::All, level))
    };
    if inserters.first > inserters.last {
        return all(ALWAYS, Level::TupleHint);
    }
    let xid = |offset| page::xid_at(page.base(), offset);
    let (first, last) = (xid(inserters.first), xid(inserters.last));
    // Not so on a damaged page, whose base is beyond all xids.
    let span = last.raw().checked_sub(first.raw())?;
    if first == last && inserters.frozen == 0 {
        return by_inserter(judge, snapshot, page, first);
    }
    if inserters.mask & page::XMIN_HINTS == page::XMIN_COMMITTED && last < snapshot.floor {
        return all(snapshot.s, Level::TupleHint);
    }
    // Others of the range may have nothing to do with this page.
    if span > u64::from(RANGE_A_TUPLE * inserters.tuples) {
        return None;
    }
    let range = Fates::new(judge.txns).all_committed(first, last)?;
    if range.newest > snapshot.s || range.newest_sync > judge.flushed {
        return None;
    }
    all(range.newest.max(ALWAYS), Level::of(range.source))
}

/// One page being judged.
struct Pass<'a> {
    judge: &'a Judge<'a>,
    snapshot: &'a Snapshot,
    base: u64,
    lsn: Lsn,
    visible: Slots,
    /// Tuples that hints did not decide.
    open: SmallVec<[Open; 8]>,
    learned: Vec<Learned>,
    counts: PageCounts,
    /// Every snapshot from here on sees every tuple; invalid: some tuple is not of that kind.
    summary: Lsn,
}

/// A tuple that hints did not decide.
#[derive(Clone, Copy)]
struct Open {
    slot: SlotNo,
    /// Inserter, as an offset from the page's base.
    xmin: u32,
    /// Only the inserter is in question: nobody deleted it, or that is known to be void.
    plain: bool,
}

/// What hints say about a tuple.
enum ByHint {
    Seen(Level),
    Unseen(Level),
    Open { plain: bool },
}

impl<'a> Pass<'a> {
    fn new(judge: &'a Judge<'a>, snapshot: &'a Snapshot, page: &Page) -> Self {
        Pass {
            judge,
            snapshot,
            base: page.base(),
            lsn: page.lsn(),
            visible: Slots::default(),
            open: SmallVec::new(),
            learned: Vec::new(),
            counts: PageCounts::default(),
            summary: ALWAYS,
        }
    }

    /// First pass: every tuple by the bits at hand.
    fn by_hints(&mut self, page: &ShareGuard<'_>) -> Result<()> {
        let frame = page.frame();
        let twins = self.judge.policy.uses_frames();
        let uses_hints = self.judge.policy.uses_hints();
        let floor = self.floor_offset();
        // The usual tuple, hinted and not deleted, counts by whose hint it was.
        let mut usual = [0u32; 2];
        for (slot, line) in page::lines(page).filter(|(_, l)| l.state() == LineState::Normal) {
            let ids = page::ids_at(page, line)
                .ok_or(page::bad("tuple exceeds the page", slot))
                .map_err(bad_page(page.id()))?;
            let volatile = if twins { frame.hint(slot) } else { 0 };
            let on_page = ((ids.mask & page::HINTS) >> page::HINT_SHIFT) as u8;
            let committed = (on_page | volatile) & (XMIN_COMMITTED | XMIN_ABORTED);
            if uses_hints
                && committed == XMIN_COMMITTED
                && ids.xmax == OFFSET_INVALID
                && (OFFSET_FROZEN..floor).contains(&ids.xmin)
            {
                usual[usize::from(on_page & XMIN_COMMITTED)] += 1;
                self.visible.add(slot);
                continue;
            }
            self.unusual(slot, ids, volatile, page);
        }
        let [by_frame, by_page] = usual;
        self.counts.0[Level::FrameHint as usize] += by_frame;
        self.counts.0[Level::TupleHint as usize] += by_page;
        if by_frame + by_page > 0 {
            self.raise(self.snapshot.s);
        }
        Ok(())
    }

    /// Offsets below are those of xids below the snapshot's floor.
    fn floor_offset(&self) -> u32 {
        let distance = self.snapshot.floor.raw().saturating_sub(self.base);
        u32::try_from(distance).unwrap_or(u32::MAX)
    }

    /// The first pass over a tuple that is deleted, locked, frozen or not hinted.
    #[inline]
    fn unusual(&mut self, slot: SlotNo, ids: Ids, volatile: u8, page: &Page) {
        match self.hinted(ids, volatile) {
            ByHint::Seen(level) => {
                self.counts.add(level);
                self.visible.add(slot);
                self.raise(self.snapshot.s);
            }
            ByHint::Unseen(level) => {
                self.counts.add(level);
                self.summary = Lsn::INVALID;
            }
            ByHint::Open { plain } => {
                if self.open.is_empty() {
                    self.open.reserve(page::slot_count(page));
                }
                self.open.push(Open { slot, xmin: ids.xmin, plain });
            }
        }
    }

    #[inline]
    fn hinted(&self, ids: Ids, volatile: u8) -> ByHint {
        let hints = self.judge.hints(ids.mask, volatile);
        let level = |bits| Judge::hint_level(ids.mask, bits);
        let below_floor = |offset| page::xid_at(self.base, offset) < self.snapshot.floor;
        let plain = ids.xmax == OFFSET_INVALID
            || ids.mask & page::XMAX_LOCK_ONLY != 0
            || hints & XMAX_ABORTED != 0;
        let born = match ids.xmin {
            OFFSET_FROZEN => Level::TupleHint,
            OFFSET_INVALID => return ByHint::Unseen(Level::Own),
            _ if hints & XMIN_ABORTED != 0 => return ByHint::Unseen(level(XMIN_ABORTED)),
            offset if hints & XMIN_COMMITTED != 0 && below_floor(offset) => level(XMIN_COMMITTED),
            _ => return ByHint::Open { plain },
        };
        if plain {
            ByHint::Seen(born)
        } else if hints & XMAX_COMMITTED != 0 && below_floor(ids.xmax) {
            ByHint::Unseen(born.max(level(XMAX_COMMITTED)))
        } else {
            ByHint::Open { plain: false }
        }
    }

    /// Second pass: the rest, by what became of their transactions.
    fn by_status(&mut self, page: &ShareGuard<'_>) {
        let open = std::mem::take(&mut self.open);
        self.learned.reserve(open.len());
        let mut fates = Fates::new(self.judge.txns);
        let memo = self.judge.state.cache.is_on();
        // Tuples that one transaction inserted side by side are judged together.
        let mut last: Option<(u32, Seen)> = None;
        for tuple in &open {
            let seen = match last {
                Some((xmin, seen)) if tuple.plain && xmin == tuple.xmin => seen,
                _ if tuple.plain => self.inserted(&mut fates, page, *tuple),
                _ => self.judged(page, tuple.slot),
            };
            // One's own are judged by command ids, each by its own.
            if memo && tuple.plain && seen.level != Level::Own {
                let level = seen.level.min(Level::SessionCache);
                last = Some((tuple.xmin, Seen { level, ..seen }));
            }
            self.settle(tuple.slot, seen);
        }
    }

    /// A tuple of which only the inserter is in question.
    #[inline]
    fn inserted(&self, fates: &mut Fates<'_>, page: &ShareGuard<'_>, tuple: Open) -> Seen {
        let judge = self.judge;
        let xid = page::xid_at(self.base, tuple.xmin);
        if tuple.xmin == OFFSET_FROZEN || judge.tx.is_own(xid) != OwnXid::NotOwn {
            return self.judged(page, tuple.slot);
        }
        let (fate, level) = judge.next_fate(fates, xid, self.snapshot.floor);
        let no = |learned| Seen { visible: false, learned, since: Lsn::INVALID, level };
        match fate {
            XidStatus::InProgress => no(0),
            XidStatus::Aborted => no(judge.aborted(XMIN_ABORTED)),
            XidStatus::Committed(stamp) => {
                let learned = judge.committed(stamp, self.lsn, XMIN_COMMITTED);
                if self.snapshot.covers(stamp) {
                    Seen { visible: true, learned, since: judge.since(stamp), level }
                } else {
                    no(learned)
                }
            }
        }
    }

    /// A tuple with more to ask about, asked as single ones are.
    #[cold]
    fn judged(&self, page: &ShareGuard<'_>, slot: SlotNo) -> Seen {
        let Some(t) = page::tuple(page, slot) else {
            let level = Level::Own;
            return Seen { visible: false, learned: 0, since: Lsn::INVALID, level };
        };
        let twins = self.judge.policy.uses_frames();
        let volatile = if twins { page.frame().hint(slot) } else { 0 };
        self.judge.mvcc(self.snapshot, &t, self.base, volatile, self.lsn)
    }

    #[inline]
    fn settle(&mut self, slot: SlotNo, seen: Seen) {
        self.counts.add(seen.level);
        if seen.learned != 0 {
            self.learned.push((slot, seen.learned));
        }
        if seen.visible {
            self.visible.add(slot);
            self.raise(seen.since);
        } else {
            self.summary = Lsn::INVALID;
        }
    }

    /// Another tuple is visible from `since` on; invalid: not for everybody after.
    #[inline]
    fn raise(&mut self, since: Lsn) {
        self.summary = match since.is_valid() && self.summary.is_valid() {
            true => self.summary.max(since),
            false => Lsn::INVALID,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_slots_lists_what_was_added() {
        let mut slots = Slots::default();
        let all = [1u16, 2, 63, 64, 65, 128, 129, 200, MAX_SLOTS as u16];
        all.iter().for_each(|n| slots.add(SlotNo::new(*n)));
        assert_eq!(slots.iter().map(SlotNo::raw).collect::<Vec<_>>(), all);
        assert_eq!(slots.len(), all.len());
        assert_eq!(Slots::default().iter().count(), 0);
    }
}
