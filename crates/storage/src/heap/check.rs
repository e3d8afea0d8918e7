//! The structural checker: does a table's every page keep the rules of this directory?
//!
//! It takes one page at a time under the share latch, so it may run beside anything; what it
//! reports was wrong at that moment. It is the second oracle of the crash tests and part of
//! `inkling check`.

use super::page::{self, ALL_VISIBLE, Line, LineState};
use super::tuple::TupleRef;
use super::visibility::{Fate, Horizon, vacuum_fate};
use super::vmap::{self, VM_FROZEN, VM_VISIBLE};
use super::{HeapRel, HintPolicy};
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{BlockNo, Fork, PageId, SlotNo, Xid};
use crate::page::{PAGE_SIZE, Page, PageClass};
use crate::txn::XidStatus;
use std::fmt;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub page: PageId,
    /// Invalid: the page as a whole.
    pub slot: SlotNo,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {:?}", self.page)?;
        if self.slot != SlotNo::INVALID {
            write!(f, " line pointer {}", self.slot.raw())?;
        }
        write!(f, ": {}", self.what)
    }
}

struct Checker<'a> {
    e: &'a Engine,
    id: PageId,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn report(&mut self, slot: SlotNo, what: impl Into<String>) {
        self.problems.push(Problem { page: self.id, slot, what: what.into() });
    }

    fn page(&mut self, p: &Page, vm_bits: u8) {
        match p.class() {
            Some(PageClass::Heap) => {}
            Some(PageClass::Free) => {
                if vm_bits != 0 {
                    self.report(SlotNo::INVALID, "map bits are set for a page never written");
                }
                return;
            }
            _ => return self.report(SlotNo::INVALID, "not a page of a table"),
        }
        if let Err(bad) = page::check_bounds(p) {
            return self.report(bad.slot, bad.what);
        }
        self.placement(p);
        for slot in page::slots(p) {
            match page::line(p, slot).map(|l| (l, l.state())) {
                Some((l, LineState::Normal)) => self.tuple(p, slot, l),
                Some((l, LineState::Redirect)) => self.redirect(p, slot, l.target()),
                Some((l, LineState::Unused))
                    if l == Line::UNUSED && p.flags() & page::FREE_LINES == 0 =>
                {
                    self.report(slot, "unused line pointer on a page that says it has none");
                }
                _ => {}
            }
        }
        self.visibility(p, vm_bits);
    }

    /// Tuples lie between `upper` and the end, aligned, apart from each other.
    fn placement(&mut self, p: &Page) {
        let mut spans: Vec<(usize, usize, SlotNo)> = page::slots(p)
            .filter_map(|slot| Some((slot, page::line(p, slot)?)))
            .filter(|(_, l)| l.state() == LineState::Normal)
            .map(|(slot, l)| (usize::from(l.offset()), usize::from(l.len()), slot))
            .collect();
        spans.sort_unstable();
        let mut end = usize::from(p.upper());
        for (from, len, slot) in spans {
            if !from.is_multiple_of(8) || from < end || from + len > PAGE_SIZE {
                self.report(slot, format!("tuple at {from}, {len} bytes, is misplaced"));
            }
            end = end.max(from + len);
        }
    }

    fn redirect(&mut self, p: &Page, slot: SlotNo, to: SlotNo) {
        if !page::tuple(p, to).is_some_and(|t| t.is_heap_only()) {
            self.report(slot, format!("redirect to {to:?}, which is no heap-only tuple"));
        }
    }

    fn tuple(&mut self, p: &Page, slot: SlotNo, l: Line) {
        let Some(t) = page::tuple_at(p, l) else {
            return self.report(slot, "tuple header does not fit the tuple");
        };
        let base = p.base();
        for (name, xid) in [("xmin", t.xmin(base)), ("xmax", t.xmax(base))] {
            if xid.is_normal() && xid >= self.e.txns.next_xid() {
                self.report(slot, format!("{name} {xid} was never handed out"));
            }
            // What vacuum said, and the commit log was cut by, must be so.
            let oldest = self.e.txns.clog().oldest();
            if xid.is_normal() && xid < oldest {
                self.report(
                    slot,
                    format!("{name} {xid} is below the commit log's oldest, {oldest}"),
                );
            }
        }
        if t.xmax(base) == Xid::FROZEN {
            self.report(slot, "xmax is frozen");
        }
        if t.data_offset() != page::header_len(t.nulls().map_or(0, <[u8]>::len)) {
            self.report(slot, "column values start at the wrong place");
        }
        self.hints(&t, base, slot);
        self.chain(p, &t, slot);
    }

    /// A persistent hint never contradicts the commit log.
    fn hints(&mut self, t: &TupleRef<'_>, base: u64, slot: SlotNo) {
        let sides = [
            ("xmin", t.xmin(base), page::XMIN_COMMITTED, page::XMIN_ABORTED),
            ("xmax", t.xmax(base), page::XMAX_COMMITTED, page::XMAX_ABORTED),
        ];
        for (name, xid, committed, aborted) in sides {
            let mask = t.mask();
            if mask & (committed | aborted) == 0 {
                continue;
            }
            let lock = name == "xmax" && t.is_lock_only();
            let right = match self.e.txns.status(xid) {
                XidStatus::InProgress => false,
                XidStatus::Aborted => mask & committed == 0,
                XidStatus::Committed(_) => mask & aborted == 0 || lock,
            };
            if !xid.is_normal() || !right {
                self.report(slot, format!("hint about {name} {xid} contradicts its fate"));
            }
        }
    }

    fn chain(&mut self, p: &Page, t: &TupleRef<'_>, slot: SlotNo) {
        let base = p.base();
        if t.is_hot_updated() {
            let Some(next) = t.next() else {
                return self.report(slot, "HOT-updated without a next version");
            };
            if next.block != self.id.block || next.slot == slot {
                return self.report(slot, format!("HOT chain leads to {next}"));
            }
            let aborted = self.e.txns.status(t.xmax(base)) == XidStatus::Aborted;
            let same = page::tuple(p, next.slot).filter(|n| n.xmin(base) == t.xmax(base));
            match same {
                Some(n) if !n.is_heap_only() => {
                    self.report(slot, "next version of a HOT update is not heap-only");
                }
                // An aborted successor may have been pruned, and its slot reused.
                None if !aborted => self.report(slot, "next version of a HOT update is missing"),
                _ => {}
            }
        }
        if t.is_lock_only() && (t.next().is_some() || t.is_hot_updated()) {
            self.report(slot, "a row lock with a next version");
        }
    }

    fn visibility(&mut self, p: &Page, vm_bits: u8) {
        let flag = p.flags() & ALL_VISIBLE != 0;
        if vm_bits & VM_VISIBLE != 0 && !flag {
            self.report(SlotNo::INVALID, "map says all-visible, page does not");
        }
        if vm_bits & VM_FROZEN != 0 && vm_bits & VM_VISIBLE == 0 {
            self.report(SlotNo::INVALID, "map says all-frozen but not all-visible");
        }
        let base = p.base();
        for slot in page::slots(p) {
            let state = page::line(p, slot).map(Line::state);
            // The flag alone, which write-back sets, speaks of tuples only.
            if vm_bits & VM_VISIBLE != 0 && state == Some(LineState::Dead) {
                self.report(slot, "dead line pointer on a page that the map says is all-visible");
            }
            let Some(t) = page::tuple(p, slot) else { continue };
            if flag && vacuum_fate(&self.e.txns, &t, base, 0, Horizon::ALL) != Fate::Live {
                self.report(slot, "tuple that is not live on an all-visible page");
            }
            let resolved = t.xmin(base) == Xid::FROZEN && !t.xmax(base).is_valid();
            if vm_bits & VM_FROZEN != 0 && !resolved {
                self.report(slot, "unresolved xid on an all-frozen page");
            }
        }
    }
}

/// Checks every page of a table.
pub fn check(e: &Engine, h: &HeapRel) -> Result<Vec<Problem>> {
    let blocks = e.pool.block_count(h.rel, Fork::Main)?;
    let mut problems = Vec::new();
    for block in 0..blocks {
        problems.extend(check_block(e, h, block)?);
    }
    let maps = e.pool.block_count(h.rel, Fork::Vm)?;
    for number in 0..maps {
        let id = PageId::new(h.rel, Fork::Vm, number);
        let map = e.pool.share(id)?;
        let first = number * vmap::BLOCKS_PER_VM_PAGE;
        for block in first.max(blocks)..first + vmap::BLOCKS_PER_VM_PAGE {
            if vmap::bits_of(&map, block) != 0 {
                let what = format!("map bits are set for block {block} beyond the table's end");
                problems.push(Problem { page: id, slot: SlotNo::INVALID, what });
            }
        }
    }
    Ok(problems)
}

/// Checks one page, its map bits read under the same latch.
pub fn check_block(e: &Engine, h: &HeapRel, block: BlockNo) -> Result<Vec<Problem>> {
    let id = PageId::main(h.rel, block);
    let vm = vmap::pin(&e.pool, h.rel, block)?;
    let guard = e.pool.share(id)?;
    let bits = vm.map_or(0, |pin| vmap::bits_of(&pin.share(), block));
    let mut checker = Checker { e, id, problems: Vec::new() };
    checker.page(&guard, bits);
    // Whole-page knowledge in the frame must not claim more than the tuples say.
    let summary = guard.frame().summary();
    if summary.is_valid() && e.heap.hint_policy() == HintPolicy::Frame {
        for slot in page::slots(&guard) {
            let Some(t) = page::tuple(&guard, slot) else { continue };
            let fate = vacuum_fate(&e.txns, &t, guard.base(), 0, Horizon::ALL);
            if fate != Fate::Live {
                checker.report(
                    slot,
                    format!("frame summary {summary} covers a tuple that is {fate:?}"),
                );
            }
        }
    }
    Ok(checker.problems)
}
