//! Removing what nobody can see any more, one page at a time.
//!
//! ```text
//!   before:  lp1 -> v1 (dead) -> v2 (dead) -> v3 (live)      v1 .. v3 one HOT chain
//!   after:   lp1 => lp3 -> v3                                lp2 unused, bytes of v1, v2 free
//! ```
//!
//! A *root* is a line pointer that index entries name: a tuple that is not heap-only, or a
//! redirect. From each root the chain is walked; versions up to the last dead one go. If a member
//! is left, the root is redirected to it; if none is, the root becomes dead and waits for vacuum to
//! remove the index entries. Heap-only members become unused at once: no index names them.
//!
//! Rules:
//! - P1. A version goes only when [`super::visibility::vacuum_fate`] says `Dead`: its deleter
//!   committed at or before the horizon, or its inserter aborted. A deletion that its client was
//!   promised, or is about to be, must be durable, too, or have its successor on the page.
//! - P2. The chain is walked over matching xmax/xmin pairs only; a heap-only tuple that no root
//!   reaches goes when it is dead itself.
//! - P3. The exclusive latch is enough. Readers copy what they want under the share latch and
//!   keep no offsets into the page, so moving bytes disturbs nobody. (PostgreSQL hands out
//!   pointers into the page and needs a cleanup lock here.)
//! - P4. Readers never prune. Writers do, when they need the room.
//! - P5. Before an xid is frozen, the dead versions of its page go: what is left of a chain never
//!   has to be matched against an xmin that was replaced by "frozen".

use super::ops::{CLEAR_XMAX, FREEZE_XMIN, HeapOp, PruneLists};
use super::page::{self, LineState};
use super::state::HeapCounters;
use super::tuple::TupleRef;
use super::visibility::{Fate, Horizon, fate_by};
use crate::buffer::{CriticalSection, ExclusiveGuard};
use crate::engine::Engine;
use crate::error::{Result, StorageError};
use crate::ids::{PageId, RowId, SlotNo, Xid};
use crate::page::Page;
use crate::txn::{TxnManager, XidStatus};
use smallvec::SmallVec;

/// Line pointers that a page gains between two looks whether pruning pays.
const GROWTH: usize = 16;

/// The persistent hints of a tuple, as [`vacuum_fate`] takes them.
#[inline]
fn own_hints(t: &TupleRef<'_>) -> u8 {
    ((t.mask() & page::HINTS) >> page::HINT_SHIFT) as u8
}

struct Plan<'a> {
    page: &'a Page,
    base: u64,
    txns: &'a TxnManager,
    horizon: Horizon,
    /// Roots that nobody deleted are taken as live: whether their inserter aborted is left to
    /// vacuum. (What a redirect leads to has a committed inserter, or it would lead elsewhere.)
    quick: bool,
    seen: [bool; page::MAX_SLOTS],
    /// Fates asked for last: neighbours share them.
    asked: [(Xid, XidStatus); 4],
    lists: PruneLists,
}

impl Plan<'_> {
    /// An xid whose end may make more removable later.
    fn note_later(&mut self, xid: Xid) {
        let hint = &mut self.lists.hint;
        if xid.is_normal() && (!hint.is_valid() || xid < *hint) {
            *hint = xid;
        }
    }

    #[inline]
    fn is_untouched(&self, t: &TupleRef<'_>) -> bool {
        self.quick
            && t.xmin_offset() != page::OFFSET_INVALID
            && (t.xmax_offset() == page::OFFSET_INVALID || t.is_lock_only())
    }

    fn fate(&mut self, t: &TupleRef<'_>) -> Fate {
        let (txns, asked) = (self.txns, &mut self.asked);
        let status = |xid: Xid| {
            let entry = &mut asked[(xid.raw() % 4) as usize];
            if entry.0 != xid {
                *entry = (xid, txns.status(xid));
            }
            entry.1
        };
        fate_by(status, t, self.base, own_hints(t), self.horizon)
    }

    /// Walks the chain of one root.
    fn chain(&mut self, root: SlotNo, first: SlotNo) {
        let mut members: SmallVec<[SlotNo; 16]> = SmallVec::new();
        let mut dead_upto = 0;
        let mut prior = Xid::INVALID;
        let mut at = first;
        while let Some(t) = page::tuple(self.page, at) {
            let fits = at == root || t.is_heap_only();
            if self.seen[at.index()] || !fits || (prior.is_valid() && t.xmin(self.base) != prior) {
                break;
            }
            self.seen[at.index()] = true;
            members.push(at);
            match self.fate(&t) {
                Fate::Dead => dead_upto = members.len(),
                Fate::RecentlyDead(xid) => self.note_later(xid),
                Fate::InsertInProgress(xid) | Fate::DeleteInProgress(xid) => {
                    self.note_later(xid);
                    break;
                }
                Fate::Live => break,
            }
            match t.next() {
                Some(next) if t.is_hot_updated() => at = next.slot,
                _ => break,
            }
            prior = t.xmax(self.base);
        }
        if dead_upto > 0 {
            self.remove(root, &members, dead_upto);
        } else if members.is_empty()
            && page::line(self.page, first).is_none_or(|l| l == page::Line::UNUSED)
        {
            // A redirect to nothing.
            self.lists.dead.push(root);
        }
    }

    fn remove(&mut self, root: SlotNo, members: &[SlotNo], dead_upto: usize) {
        for slot in members[..dead_upto].iter().filter(|slot| **slot != root) {
            self.lists.unused.push(*slot);
        }
        match members.get(dead_upto) {
            Some(heir) => self.lists.redirects.push((root, *heir)),
            None => self.lists.dead.push(root),
        }
    }

    fn roots(&mut self) {
        for (slot, l) in page::lines(self.page) {
            match l.state() {
                LineState::Redirect => match page::tuple(self.page, l.target()) {
                    Some(t) if t.is_heap_only() && self.is_untouched(&t) => {
                        self.seen[l.target().index()] = true;
                    }
                    _ => self.chain(slot, l.target()),
                },
                LineState::Normal => {
                    let Some(t) = page::tuple_at(self.page, l) else { continue };
                    if t.is_heap_only() {
                        continue;
                    }
                    if self.is_untouched(&t) {
                        self.seen[slot.index()] = true;
                    } else {
                        self.chain(slot, slot);
                    }
                }
                _ => {}
            }
        }
    }

    /// Heap-only tuples that no chain reached: of updates that aborted.
    fn unreached(&mut self) {
        for (slot, l) in page::lines(self.page) {
            if self.seen[slot.index()] || l.state() != LineState::Normal {
                continue;
            }
            let Some(t) = page::tuple_at(self.page, l) else { continue };
            match self.fate(&t) {
                Fate::Dead => self.lists.unused.push(slot),
                Fate::RecentlyDead(xid)
                | Fate::InsertInProgress(xid)
                | Fate::DeleteInProgress(xid) => self.note_later(xid),
                Fate::Live => {}
            }
        }
    }
}

fn make_plan(txns: &TxnManager, p: &Page, horizon: Horizon, quick: bool) -> PruneLists {
    let mut plan = Plan {
        page: p,
        base: p.base(),
        txns,
        horizon,
        quick,
        seen: [false; page::MAX_SLOTS],
        asked: [(Xid::INVALID, XidStatus::Aborted); 4],
        lists: PruneLists::default(),
    };
    plan.roots();
    plan.unreached();
    plan.lists
}

/// What pruning this page would do.
pub fn plan(txns: &TxnManager, p: &Page, horizon: Horizon) -> PruneLists {
    make_plan(txns, p, horizon, false)
}

/// Whether the page's prune hint says that something may be removable by now.
pub fn worth_a_look(txns: &TxnManager, p: &Page, horizon: Horizon) -> bool {
    let hint = Xid::new(p.hint());
    match hint.is_valid().then(|| txns.status(hint)) {
        None | Some(XidStatus::InProgress) => false,
        Some(XidStatus::Aborted) => true,
        Some(XidStatus::Committed(stamp)) => stamp.lsn() <= horizon.seen,
    }
}

/// Adds a prune to a section, with what has to be forgotten about the slots.
pub(super) fn add_prune(
    e: &Engine,
    id: PageId,
    cs: &mut CriticalSection<'_>,
    at: usize,
    lists: PruneLists,
) {
    count(e, &lists);
    let op = HeapOp::Prune(lists);
    op.for_each_touched(|slot| {
        cs.clear_hints(at, slot);
        e.heap.row_locks.forget(id.rel, RowId::new(id.block, slot));
    });
    cs.apply(at, &op);
}

fn count(e: &Engine, lists: &PruneLists) {
    let gone = lists.unused.len() + lists.dead.len() + lists.redirects.len();
    HeapCounters::add(&e.heap.counters.pages_pruned, 1);
    HeapCounters::add(&e.heap.counters.versions_pruned, gone as u64);
}

/// Prunes a latched page if that removes something. The page comes back latched.
fn prune<'e>(
    e: &'e Engine,
    guard: ExclusiveGuard<'e>,
    horizon: Horizon,
) -> Result<(ExclusiveGuard<'e>, bool)> {
    let lists = plan(&e.txns, &guard, horizon);
    if lists.is_empty() {
        return Ok((guard, false));
    }
    Ok((prune_as_planned(e, guard, lists)?, true))
}

/// What to prune on a latched page before a version of `need` bytes is added: when the hint is
/// promising and the room is needed, or when many versions were added since the last time, because
/// long chains make readers walk.
pub(super) fn plan_for_room(
    e: &Engine,
    guard: &ExclusiveGuard<'_>,
    need: usize,
) -> Option<PruneLists> {
    if guard.hint() == 0 {
        return None;
    }
    let short = page::room(guard) < need;
    if !short && !usize::from(page::free_slot(guard).raw()).is_multiple_of(GROWTH) {
        return None;
    }
    let mut horizon = Horizon::recent(e);
    let mut worth = worth_a_look(&e.txns, guard, horizon);
    if !worth && short {
        // Leaving the page costs index entries: an up-to-date horizon is worth its price.
        horizon = Horizon::of(e);
        worth = worth_a_look(&e.txns, guard, horizon);
    }
    if !worth {
        return None;
    }
    let lists = make_plan(&e.txns, guard, horizon, true);
    // A hint that promised too much is put right, lest everybody look again.
    (!lists.is_empty() || lists.hint.raw() != guard.hint()).then_some(lists)
}

/// The largest tuple that a page can surely take after a prune.
pub(super) fn room_after(p: &Page, lists: &PruneLists) -> usize {
    let roots = lists.redirects.iter().map(|(from, _)| from);
    let freed: usize = lists
        .unused
        .iter()
        .chain(&lists.dead)
        .chain(roots)
        .filter_map(|slot| page::line(p, *slot))
        .filter(|l| l.state() == LineState::Normal)
        .map(|l| page::aligned(usize::from(l.len())))
        .sum();
    if page::slot_count(p) >= page::MAX_SLOTS && lists.unused.is_empty() {
        return page::room(p);
    }
    (p.free_space() + freed).saturating_sub(page::LINE_SIZE) / 8 * 8
}

/// Prunes as planned, in a section of its own.
pub(super) fn prune_as_planned<'e>(
    e: &'e Engine,
    guard: ExclusiveGuard<'e>,
    lists: PruneLists,
) -> Result<ExclusiveGuard<'e>> {
    let mut cs = CriticalSection::begin(e.log(), Xid::INVALID)?;
    let id = guard.id();
    let at = cs.add(guard);
    add_prune(e, id, &mut cs, at, lists);
    let (_, mut guards) = cs.finish();
    Ok(guards.pop().expect("the page that was added"))
}

/// Which xids of a page (after pruning) can be resolved, among those that `old` picks.
///
/// xmin: committed at or before `horizon`, and durable if that was promised, since a frozen row
/// says nothing of its inserter any more (semantics 29). xmax: aborted, or a lock of a transaction
/// that ended; a deletion that counts is never touched (semantics 49).
pub fn freeze_plan(
    txns: &TxnManager,
    p: &Page,
    horizon: Horizon,
    skip: &[SlotNo],
    old: impl Fn(Xid) -> bool,
) -> Vec<(SlotNo, u8)> {
    let base = p.base();
    let mut found = Vec::new();
    for slot in page::slots(p) {
        let Some(t) = page::tuple(p, slot).filter(|_| !skip.contains(&slot)) else { continue };
        let (xmin, xmax) = (t.xmin(base), t.xmax(base));
        let mut actions = 0;
        if xmin.is_normal()
            && old(xmin)
            && txns.status(xmin).commit().is_some_and(|stamp| horizon.passed(stamp, false))
        {
            actions |= FREEZE_XMIN;
        }
        if xmax.is_normal() && old(xmax) {
            let over = match txns.status(xmax) {
                XidStatus::InProgress => false,
                XidStatus::Aborted => true,
                XidStatus::Committed(_) => t.is_lock_only(),
            };
            if over {
                actions |= CLEAR_XMAX;
            }
        }
        if actions != 0 {
            found.push((slot, actions));
        }
    }
    found
}

/// Makes the page able to express `xid`: if its base cannot, prunes, resolves the old xids and
/// moves the base, in one section before the caller's own.
pub(super) fn make_expressible<'e>(
    e: &'e Engine,
    guard: ExclusiveGuard<'e>,
    xid: Xid,
) -> Result<ExclusiveGuard<'e>> {
    if page::offset_of(guard.base(), xid).is_some() {
        return Ok(guard);
    }
    let horizon = Horizon::of(e);
    let (guard, _) = prune(e, guard, horizon)?;
    let frozen = freeze_plan(&e.txns, &guard, horizon, &[], |_| true);
    let mut after = (*guard).clone();
    HeapOp::Freeze { slots: frozen.clone() }
        .apply(&mut after)
        .map_err(|bad| StorageError::corrupt_page(guard.id(), bad.to_string()))?;
    let left = page::slots(&after).filter_map(|slot| page::tuple(&after, slot));
    let all: Vec<Xid> = left
        .flat_map(|t| [t.xmin(after.base()), t.xmax(after.base())])
        .filter(|x| x.is_normal())
        .chain([xid])
        .collect();
    let newest = all.iter().copied().max().unwrap_or(xid);
    let base = page::base_for(newest);
    if all.iter().any(|x| page::offset_of(base, *x).is_none()) {
        return Err(StorageError::Limit {
            what: format!(
                "page {:?} holds rows of transactions too far apart; vacuum the table",
                guard.id()
            ),
        });
    }
    let mut cs = CriticalSection::begin(e.log(), Xid::INVALID)?;
    let at = cs.add(guard);
    for op in [HeapOp::Freeze { slots: frozen }, HeapOp::Rebase { base }] {
        op.for_each_touched(|slot| cs.clear_hints(at, slot));
        cs.apply(at, &op);
    }
    let (_, mut guards) = cs.finish();
    Ok(guards.pop().expect("the page that was added"))
}

#[cfg(test)]
pub(super) fn make_expressible_for_test<'e>(
    e: &'e Engine,
    guard: ExclusiveGuard<'e>,
    xid: Xid,
) -> Result<ExclusiveGuard<'e>> {
    make_expressible(e, guard, xid)
}
