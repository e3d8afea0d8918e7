//! Vacuum of one table: remove the dead, resolve old xids, set the visibility map, give space back.
//!
//! ```text
//!   pass 1, a page at a time:  prune ─ freeze ─ set all-visible      one record a page
//!                                └─> dead line pointers (ctid) collected
//!   indexes:                   entries of those ctids removed         (the caller's closure)
//!   pass 2:                    dead line pointers become unused
//!   end:                       free-space map written, empty tail cut off
//! ```
//!
//! Rules:
//! - U1. A dead line pointer becomes unused only after all indexes were cleaned of it: between the
//!   two nobody can put another row there.
//! - U2. Nothing is removed that some snapshot could see: each page is judged by a horizon computed
//!   after the pass began.
//! - U3. A page is marked all-visible only when every xmin committed at or before the horizon and
//!   is durable, no xmax counts, and there is no dead line pointer. Empty pages are not marked, so
//!   a page cut off leaves no bit behind.
//! - U4. Memory for dead rows is bounded; when it is used up, indexes and pass 2 run in between.
//! - U5. `oldest_left` is what lets the commit log be cut: no unresolved xid below it is in the
//!   table. It is known only when no page that may hold one was skipped.

use super::HeapRel;
use super::ops::{CLEAR_XMAX, FREEZE_XMIN, HeapOp};
use super::page::{self, ALL_VISIBLE, Line, LineState};
use super::prune::{self, add_prune};
use super::space::{self, RelSpace};
use super::visibility::Horizon;
use super::vmap::{self, VM_FROZEN, VM_VISIBLE, VmOp};
use super::write::{apply, bad_page, check_class};
use crate::buffer::{CriticalSection, ExclusiveGuard, PinGuard};
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{BlockNo, Fork, Lsn, PageId, RowId, SlotNo, Xid};
use crate::page::Page;
use crate::sync::Arc;
use crate::txn::{TxnManager, XidStatus};

/// How to vacuum.
#[derive(Clone, Copy, Debug)]
pub struct VacuumOpts {
    /// Resolve every xid below this, wherever it is.
    pub freeze_below: Xid,
    /// Look at all-visible pages too (needed to resolve what is on them).
    pub aggressive: bool,
    /// The caller holds the table against everybody: empty pages at the end may be cut off.
    pub truncate: bool,
    /// Dead rows remembered before the indexes are visited.
    pub max_dead: usize,
}

impl Default for VacuumOpts {
    fn default() -> Self {
        VacuumOpts {
            freeze_below: Xid::INVALID,
            aggressive: false,
            truncate: false,
            max_dead: 8 << 20,
        }
    }
}

/// What vacuum found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacuumStats {
    pub pages: u64,
    pub pages_scanned: u64,
    pub pages_truncated: u64,
    /// On the pages scanned.
    pub live_rows: u64,
    /// Deleted, but some snapshot may still see them.
    pub recently_dead_rows: u64,
    /// Versions removed, dead line pointers included.
    pub removed: u64,
    /// Line pointers given back after their index entries went.
    pub freed: u64,
    pub frozen: u64,
    pub pages_all_visible: u64,
    pub pages_all_frozen: u64,
    pub index_passes: u64,
    /// The oldest unresolved xid left on the pages scanned; invalid when there is none.
    pub oldest_left: Xid,
    /// Whether every page was scanned or known to hold no unresolved xid (U5).
    pub complete: bool,
}

/// The rows whose index entries have to go, in order.
#[derive(Debug, Default)]
pub struct DeadRows {
    rows: Vec<RowId>,
}

impl DeadRows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether an index entry names one of them.
    pub fn contains(&self, row: RowId) -> bool {
        self.rows.binary_search(&row).is_ok()
    }

    pub fn rows(&self) -> &[RowId] {
        &self.rows
    }
}

struct Vacuum<'a> {
    e: &'a Engine,
    h: HeapRel,
    opts: VacuumOpts,
    space: Arc<RelSpace>,
    /// Dead to all: committed at or before this.
    horizon: Lsn,
    stats: VacuumStats,
    dead: DeadRows,
    /// The map page of the block at hand.
    vm: Option<PinGuard<'a>>,
}

/// What is left on a page after pruning and freezing.
#[derive(Clone, Copy)]
struct Left {
    visible: bool,
    frozen: bool,
}

/// Pages between two looks at the horizon.
const HORIZON_EVERY: u32 = 64;

/// Vacuums one table. `indexes` is called with dead rows whose entries it must remove from every
/// index; `pace` after every page, to sleep or to cancel.
pub fn vacuum(
    e: &Engine,
    h: &HeapRel,
    opts: VacuumOpts,
    indexes: &mut dyn FnMut(&DeadRows) -> Result<()>,
    pace: &mut dyn FnMut(&VacuumStats) -> Result<()>,
) -> Result<VacuumStats> {
    let blocks = e.pool.block_count(h.rel, Fork::Main)?;
    let mut v = Vacuum {
        e,
        h: *h,
        opts,
        space: e.heap.space(h.rel),
        horizon: e.txns.horizon(),
        stats: VacuumStats { pages: u64::from(blocks), complete: true, ..VacuumStats::default() },
        dead: DeadRows::default(),
        vm: None,
    };
    for block in 0..blocks {
        if block % HORIZON_EVERY == 0 {
            v.horizon = e.txns.horizon();
        }
        if v.skip(block)? {
            continue;
        }
        v.first_pass(block)?;
        if v.dead.len() >= opts.max_dead {
            v.clean_indexes(indexes)?;
        }
        pace(&v.stats)?;
    }
    v.clean_indexes(indexes)?;
    v.vm = None;
    if opts.truncate {
        v.cut_tail()?;
    }
    space::write_map(e, h.rel, &v.space)?;
    Ok(v.stats)
}

impl<'a> Vacuum<'a> {
    /// Whether the map says that there is nothing to do on a page.
    fn skip(&mut self, block: BlockNo) -> Result<bool> {
        let bits = vmap::bits(&self.e.pool, self.h.rel, block)?;
        if bits & VM_FROZEN != 0 {
            return Ok(true);
        }
        let skip = bits & VM_VISIBLE != 0 && !self.opts.aggressive;
        self.stats.complete &= !skip;
        Ok(skip)
    }

    fn map_pin(&mut self, block: BlockNo) -> Result<PinGuard<'a>> {
        let id = vmap::map_page(self.h.rel, block);
        if let Some(pin) = self.vm.as_ref().filter(|pin| pin.id() == id) {
            return Ok(pin.clone());
        }
        let pin = vmap::pin_to_set(&self.e.pool, self.h.rel, block)?;
        self.vm = Some(pin.clone());
        Ok(pin)
    }

    fn first_pass(&mut self, block: BlockNo) -> Result<()> {
        let vm = self.map_pin(block)?;
        let id = PageId::main(self.h.rel, block);
        let guard = self.e.pool.exclusive(id)?;
        self.stats.pages_scanned += 1;
        if !check_class(&guard, id)? {
            // Added to the file, never written: a crash or an error came between.
            self.space.note(block, page::MAX_TUPLE);
            return Ok(());
        }
        let horizon = Horizon { seen: self.horizon, flushed: self.e.wal.flushed() };
        let lists = prune::plan(&self.e.txns, &guard, horizon);
        let mut after = (*guard).clone();
        if !lists.is_empty() {
            HeapOp::Prune(lists.clone()).apply(&mut after).map_err(bad_page(id))?;
        }
        let freeze = self.freeze_plan(&after, !lists.is_empty());
        if !freeze.is_empty() {
            HeapOp::Freeze { slots: freeze.clone() }.apply(&mut after).map_err(bad_page(id))?;
        }
        self.collect(&after, block);
        let left = self.left(&after);
        let guard = self.change(guard, vm, lists, freeze, left)?;
        self.space.note(block, page::room(&guard));
        Ok(())
    }

    /// The old xids, or all of them when that makes the whole page frozen and it is written anyway.
    fn freeze_plan(&self, p: &Page, written: bool) -> Vec<(SlotNo, u8)> {
        let txns = &self.e.txns;
        let durable = self.durable_horizon();
        let horizon = Horizon { seen: durable, flushed: durable };
        let old = |xid: Xid| xid < self.opts.freeze_below;
        if !written && p.flags() & ALL_VISIBLE != 0 {
            return prune::freeze_plan(txns, p, horizon, &[], old);
        }
        let all = prune::freeze_plan(txns, p, horizon, &[], |_| true);
        let resolved = page::slots(p).filter_map(|slot| Some((slot, page::tuple(p, slot)?))).all(
            |(slot, t)| {
                let actions = all.iter().find(|(s, _)| *s == slot).map_or(0, |(_, a)| *a);
                let xmin = !t.xmin(p.base()).is_normal() || actions & FREEZE_XMIN != 0;
                let xmax = !t.xmax(p.base()).is_normal() || actions & CLEAR_XMAX != 0;
                xmin && xmax
            },
        );
        if resolved { all } else { prune::freeze_plan(txns, p, horizon, &[], old) }
    }

    /// Commits at or before this are seen by everybody and durable.
    fn durable_horizon(&self) -> Lsn {
        self.horizon.min(self.e.wal.flushed())
    }

    /// Counts what is on a page as it will be, and notes its dead line pointers.
    fn collect(&mut self, p: &Page, block: BlockNo) {
        let base = p.base();
        for slot in page::slots(p) {
            match page::line(p, slot).map(Line::state) {
                Some(LineState::Dead) => self.dead.rows.push(RowId::new(block, slot)),
                Some(LineState::Normal) => {
                    let Some(t) = page::tuple(p, slot) else { continue };
                    let gone = t.xmax(base).is_normal()
                        && !t.is_lock_only()
                        && matches!(self.e.txns.status(t.xmax(base)), XidStatus::Committed(_));
                    if gone {
                        self.stats.recently_dead_rows += 1;
                    } else {
                        self.stats.live_rows += 1;
                    }
                    for xid in [t.xmin(base), t.xmax(base)] {
                        let oldest = self.stats.oldest_left;
                        if xid.is_normal() && (!oldest.is_valid() || xid < oldest) {
                            self.stats.oldest_left = xid;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn left(&self, p: &Page) -> Left {
        left_on(&self.e.txns, p, self.durable_horizon())
    }

    /// Does to a page what was planned, in one record; nothing if nothing was.
    fn change(
        &mut self,
        guard: ExclusiveGuard<'a>,
        vm: PinGuard<'a>,
        lists: super::ops::PruneLists,
        freeze: Vec<(SlotNo, u8)>,
        left: Left,
    ) -> Result<ExclusiveGuard<'a>> {
        let block = guard.id().block;
        let bits = (u8::from(left.visible) * VM_VISIBLE) | (u8::from(left.frozen) * VM_FROZEN);
        let set_bits = bits & !vmap::bits_of(&vm.clone().share(), block) != 0;
        // A flag that is there already may be write-back's, of which the log knows nothing: the
        // record that sets the bit says it too, lest replay bring back the bit alone (V4).
        let set_flag = left.visible && (set_bits || guard.flags() & ALL_VISIBLE == 0);
        if lists.is_empty() && freeze.is_empty() && !set_flag && !set_bits {
            return Ok(guard);
        }
        self.stats.removed +=
            (lists.unused.len() + lists.dead.len() + lists.redirects.len()) as u64;
        self.stats.frozen += freeze.len() as u64;
        let mut cs = CriticalSection::begin(self.e.log(), Xid::INVALID)?;
        let id = guard.id();
        let at = cs.add(guard);
        if !lists.is_empty() {
            add_prune(self.e, id, &mut cs, at, lists);
        }
        if !freeze.is_empty() {
            apply(&mut cs, at, &HeapOp::Freeze { slots: freeze });
        }
        if set_flag {
            apply(&mut cs, at, &HeapOp::SetAllVisible);
        }
        if set_bits {
            self.stats.pages_all_visible += u64::from(left.visible);
            self.stats.pages_all_frozen += u64::from(left.frozen);
            let vm_at = vmap::admit(&mut cs, vm);
            cs.apply(vm_at, &VmOp { block, bits });
        }
        let (_, guards) = cs.finish();
        Ok(guards.into_iter().next().expect("the heap page was added first"))
    }

    /// Has the indexes cleaned of the dead rows noted, and frees their line pointers (U1).
    fn clean_indexes(&mut self, indexes: &mut dyn FnMut(&DeadRows) -> Result<()>) -> Result<()> {
        if self.dead.is_empty() {
            return Ok(());
        }
        let dead = std::mem::take(&mut self.dead);
        debug_assert!(dead.rows.is_sorted(), "pages were visited in order");
        indexes(&dead)?;
        self.stats.index_passes += 1;
        for rows in dead.rows.chunk_by(|a, b| a.block == b.block) {
            self.second_pass(rows)?;
        }
        Ok(())
    }

    fn second_pass(&mut self, rows: &[RowId]) -> Result<()> {
        let block = rows[0].block;
        let vm = self.map_pin(block)?;
        let id = PageId::main(self.h.rel, block);
        let guard = self.e.pool.exclusive(id)?;
        let slots: Vec<SlotNo> = rows
            .iter()
            .map(|row| row.slot)
            .filter(|slot| page::line(&guard, *slot) == Some(Line::DEAD))
            .collect();
        if slots.is_empty() {
            return Ok(());
        }
        self.stats.freed += slots.len() as u64;
        let free = HeapOp::FreeDead { slots };
        let mut after = (*guard).clone();
        free.apply(&mut after).map_err(bad_page(id))?;
        let left = self.left(&after);
        let mut cs = CriticalSection::begin(self.e.log(), Xid::INVALID)?;
        let at = cs.add(guard);
        apply(&mut cs, at, &free);
        if left.visible {
            apply(&mut cs, at, &HeapOp::SetAllVisible);
            self.stats.pages_all_visible += 1;
            self.stats.pages_all_frozen += u64::from(left.frozen);
            let bits = VM_VISIBLE | (u8::from(left.frozen) * VM_FROZEN);
            let vm_at = vmap::admit(&mut cs, vm);
            cs.apply(vm_at, &VmOp { block, bits });
        }
        let (_, guards) = cs.finish();
        self.space.note(block, page::room(&guards[0]));
        Ok(())
    }

    /// Cuts off the empty pages at the end of the table.
    fn cut_tail(&mut self) -> Result<()> {
        let blocks = self.e.pool.block_count(self.h.rel, Fork::Main)?;
        let mut keep = blocks;
        while keep > 0 {
            let id = PageId::main(self.h.rel, keep - 1);
            let page = self.e.pool.share(id)?;
            if check_class(&page, id)? && page::slot_count(&page) > 0 {
                break;
            }
            keep -= 1;
        }
        if keep < blocks {
            self.e.truncate_rel(self.h.rel, Fork::Main, keep)?;
            self.space.truncated(keep);
            self.stats.pages_truncated = u64::from(blocks - keep);
        }
        Ok(())
    }
}

/// Whether all that is on a page is visible to everybody and durable, and whether an xid is left.
fn left_on(txns: &TxnManager, p: &Page, horizon: Lsn) -> Left {
    let base = p.base();
    let mut left = Left { visible: page::slot_count(p) > 0, frozen: true };
    for slot in page::slots(p) {
        match page::line(p, slot).map(Line::state) {
            Some(LineState::Dead) => left.visible = false,
            Some(LineState::Normal) => {
                let Some(t) = page::tuple(p, slot) else {
                    return Left { visible: false, frozen: false };
                };
                let (xmin, xmax) = (t.xmin(base), t.xmax(base));
                let seen = xmin == Xid::FROZEN
                    || (xmin.is_normal()
                        && txns.status(xmin).commit().is_some_and(|stamp| stamp.lsn() <= horizon));
                let stays = !xmax.is_normal()
                    || t.is_lock_only()
                    || txns.status(xmax) == XidStatus::Aborted;
                left.visible &= seen && stays;
                left.frozen &= xmin == Xid::FROZEN && !xmax.is_valid();
            }
            _ => {}
        }
    }
    left.frozen &= left.visible;
    left
}
