//! Changing rows that are there: update, delete, withdraw.
//!
//! ```text
//!   same page, no index column changed (HOT)       elsewhere
//!   lp1 -> v1 --next--> v2 (heap-only)              (4,1) v1 --next--> (9,3) v2   + index entries
//! ```
//!
//! - The verdict ("may I?") and the change happen under one exclusive latch. When the latch has
//!   to be given up in between (another page is needed), the verdict is asked for again.
//! - Two heap pages are latched in the order of their block numbers.
//! - An update never waits: `BeingModified` names the transaction to wait for.
//! - A lock of this transaction in xmax that a subtransaction's change replaces, and the shared
//!   locks of others, go to the in-memory table (rule R3 of `rowlock`).

use super::ops::{Birth, Death, HeapOp, PruneLists};
use super::page;
use super::prune::{add_prune, make_expressible, plan_for_room, prune_as_planned, room_after};
use super::state::HeapCounters;
use super::tuple::{TupleBody, TupleRef};
use super::visibility::{VisState, held_strength};
use super::watch::check_change;
use super::write::{
    Latched, Target, VmClear, admit, apply, check_body, check_class, judge, latch, pin_block,
    target, xid_offset,
};
use super::{HeapRel, RowLock, TupleResult};
use crate::buffer::{CriticalSection, ExclusiveGuard};
use crate::engine::Engine;
use crate::error::{Result, StorageError};
use crate::ids::{RowId, SlotNo, Xid};
use crate::txn::{OwnXid, Transaction};

/// What kind of update it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateOpts {
    /// No column that any index uses changes: the new version may be heap-only.
    pub hot_ok: bool,
    /// A column of a unique index that foreign keys may reference changes: takes the row lock
    /// UPDATE instead of NO KEY UPDATE.
    pub key_change: bool,
}

impl UpdateOpts {
    const fn strength(self) -> RowLock {
        if self.key_change { RowLock::Update } else { RowLock::NoKeyUpdate }
    }
}

/// A row that may be written: its page is latched, and this is what its change needs to know.
pub(super) struct Writable {
    pub cmin: Option<crate::ids::CommandId>,
    /// This transaction's own lock in xmax, under another of its xids.
    pub own_lock: Option<(Xid, RowLock)>,
    /// The lock UPDATE stands in xmax under the current xid: a weaker change keeps the strength.
    pub holds_update: bool,
}

/// Asks whether the row in a latched page may be written; looks at in-memory locks too.
pub(super) fn verdict(
    e: &Engine,
    tx: &Transaction,
    h: &HeapRel,
    guard: &ExclusiveGuard<'_>,
    slot: SlotNo,
    wanted: RowLock,
) -> Result<TupleResult<Writable>> {
    check_class(guard, guard.id())?;
    let Some(t) = page::tuple(guard, slot) else {
        return match page::line(guard, slot).map(page::Line::state) {
            Some(page::LineState::Normal) => {
                Err(StorageError::corrupt_page(guard.id(), "tuple exceeds the page"))
            }
            // Removed, or never there: a row that the caller's snapshot sees cannot be.
            _ => Ok(TupleResult::Invisible),
        };
    };
    let base = guard.base();
    let state = VisState::passing();
    let judge = judge(e, tx, &state);
    let answer = judge.update(&t, base, guard.frame().hint(slot), wanted);
    if !answer.is_ok() {
        return Ok(answer.map(|()| unreachable!("only Ok carries a value")));
    }
    let row = RowId::new(guard.id().block, slot);
    if let Some(xid) = e.heap.row_locks.conflict(&e.txns, tx, h.rel, row, wanted) {
        return Ok(TupleResult::BeingModified(xid));
    }
    let cmin = (tx.is_own(t.xmin(base)) == OwnXid::Live).then(|| judge.cmin(&t));
    let own = own_lock(tx, &t, base);
    let holds_update = own == tx.current_xid().map(|xid| (xid, RowLock::Update));
    let own_lock = own.filter(|(xid, _)| tx.current_xid() != Some(*xid));
    Ok(TupleResult::Ok(Writable { cmin, own_lock, holds_update: own.is_some() && holds_update }))
}

/// A live lock of this transaction in xmax.
fn own_lock(tx: &Transaction, t: &TupleRef<'_>, base: u64) -> Option<(Xid, RowLock)> {
    let xmax = t.xmax(base);
    let own = xmax.is_normal() && t.is_lock_only() && tx.is_own(xmax) == OwnXid::Live;
    own.then(|| (xmax, held_strength(t)))
}

/// The end of a tuple, with a combined command id when this transaction made it too.
fn death(
    tx: &mut Transaction,
    guard: &ExclusiveGuard<'_>,
    xid: Xid,
    row: &Writable,
    keys: bool,
) -> Result<Death> {
    let cmax = tx.command_id();
    let (cid, combo) = match row.cmin {
        Some(cmin) => (tx.combo(cmin, cmax)?, true),
        None => (cmax, false),
    };
    let xmax = xid_offset(guard, xid)?;
    let keys = keys || row.holds_update;
    Ok(Death { xmax, cid: cid.raw(), combo, keys, moved: false })
}

/// Keeps row locks that the change of xmax would lose, and hands the row's in-memory locks on
/// to its next version. Before the section begins, because it may fail for lack of memory.
fn keep_locks(
    e: &Engine,
    h: &HeapRel,
    row: RowId,
    writable: &Writable,
    next: Option<RowId>,
) -> Result<()> {
    let locks = &e.heap.row_locks;
    if let Some((xid, strength)) = writable.own_lock {
        locks.add(&e.txns, h.rel, row, xid, strength)?;
    }
    if let Some(next) = next {
        for (xid, strength) in locks.live_holders(&e.txns, h.rel, row) {
            locks.add(&e.txns, h.rel, next, xid, strength)?;
        }
    }
    Ok(())
}

/// Deletes a row.
pub fn delete(
    e: &Engine,
    tx: &mut Transaction,
    h: &HeapRel,
    row: RowId,
) -> Result<TupleResult<()>> {
    let xid = tx.xid(e)?;
    tx.note_write(h.rel);
    let Some(pin) = pin_block(e, h, row.block)? else { return Ok(TupleResult::Invisible) };
    let Latched { mut guard, vm } = latch(e, pin)?;
    let writable = match verdict(e, tx, h, &guard, row.slot, RowLock::Update)? {
        TupleResult::Ok(writable) => writable,
        other => return Ok(other.map(|_| ())),
    };
    check_change(e, tx, h, row)?;
    guard = make_expressible(e, guard, xid)?;
    let death = death(tx, &guard, xid, &writable, true)?;
    keep_locks(e, h, row, &writable, None)?;
    let mut clear = VmClear::default();
    clear.plan(&guard, vm, 0);
    let mut cs = CriticalSection::begin(e.log(), xid)?;
    let at = cs.add(guard);
    apply(&mut cs, at, &HeapOp::Delete { slot: row.slot, death });
    clear.apply(&mut cs);
    cs.finish();
    Ok(TupleResult::Ok(()))
}

/// Takes back a row that this transaction just inserted and that lost the race for a unique key
/// (ON CONFLICT): from now on it is invalid for everybody.
pub fn withdraw(e: &Engine, tx: &mut Transaction, h: &HeapRel, row: RowId) -> Result<()> {
    let xid = tx.xid(e)?;
    let Some(pin) = pin_block(e, h, row.block)? else {
        return Err(StorageError::corrupt("the row to take back is not there"));
    };
    let Latched { guard, .. } = latch(e, pin)?;
    let own = page::tuple(&guard, row.slot)
        .is_some_and(|t| tx.is_own(t.xmin(guard.base())) == OwnXid::Live);
    if !own {
        return Err(StorageError::corrupt_page(guard.id(), "the row to take back is another's"));
    }
    let mut cs = CriticalSection::begin(e.log(), xid)?;
    let at = cs.add(guard);
    apply(&mut cs, at, &HeapOp::Withdraw { slot: row.slot });
    cs.finish();
    Ok(())
}

/// Replaces a row. On success: the new version's address, and whether it is heap-only (then no
/// index needs an entry for it).
pub fn update(
    e: &Engine,
    tx: &mut Transaction,
    h: &HeapRel,
    old: RowId,
    body: &TupleBody<'_>,
    opts: UpdateOpts,
) -> Result<TupleResult<(RowId, bool)>> {
    check_body(body)?;
    let xid = tx.xid(e)?;
    tx.note_write(h.rel);
    let need = page::aligned(body.stored_len());
    loop {
        let Some(pin) = pin_block(e, h, old.block)? else { return Ok(TupleResult::Invisible) };
        let Latched { mut guard, vm } = latch(e, pin)?;
        let writable = match verdict(e, tx, h, &guard, old.slot, opts.strength())? {
            TupleResult::Ok(writable) => writable,
            other => return Ok(other.map(|_| unreachable!("only Ok carries a value"))),
        };
        guard = make_expressible(e, guard, xid)?;
        let mut prune = plan_for_room(e, &guard, need);
        let after = prune.as_ref().map_or_else(|| page::room(&guard), |l| room_after(&guard, l));
        // In-memory locks are handed on to an address that must be known before the section.
        if (after < need || !e.heap.row_locks.is_empty())
            && let Some(lists) = prune.take()
        {
            guard = prune_as_planned(e, guard, lists)?;
        }
        if prune.is_some() || page::room(&guard) >= need {
            let at = Latched { guard, vm };
            return update_here(e, tx, h, old, at, &writable, Change { body, opts, prune });
        }
        drop((guard, vm));
        if let Some(done) = update_elsewhere(e, tx, h, old, body, opts)? {
            return Ok(done);
        }
    }
}

/// What an update does to a page.
struct Change<'b> {
    body: &'b TupleBody<'b>,
    opts: UpdateOpts,
    /// To be removed first, in the same section.
    prune: Option<PruneLists>,
}

/// Both versions on one page.
fn update_here<'e>(
    e: &'e Engine,
    tx: &mut Transaction,
    h: &HeapRel,
    old: RowId,
    at: Latched<'e>,
    writable: &Writable,
    change: Change<'_>,
) -> Result<TupleResult<(RowId, bool)>> {
    let Change { body, opts, prune } = change;
    let xid = tx.xid(e)?;
    let Latched { guard, vm } = at;
    check_change(e, tx, h, old)?;
    let death = death(tx, &guard, xid, writable, opts.key_change)?;
    let next = prune.is_none().then(|| RowId::new(old.block, page::free_slot(&guard)));
    keep_locks(e, h, old, writable, next)?;
    let hot = opts.hot_ok;
    let cid = tx.command_id().raw();
    let birth = Birth { xmin: death.xmax, cid, heap_only: hot, updated: true };
    let mut clear = VmClear::default();
    clear.plan(&guard, vm, 0);
    let mut cs = CriticalSection::begin(e.log(), xid)?;
    let id = guard.id();
    let at = cs.add(guard);
    if let Some(lists) = prune {
        add_prune(e, id, &mut cs, at, lists);
    }
    let slot = page::free_slot(cs.page(at));
    let new = RowId::new(old.block, slot);
    let insert = HeapOp::insert_like(cs.page(at), old.slot, slot, birth, *body);
    apply(&mut cs, at, &insert);
    apply(&mut cs, at, &HeapOp::UpdateOld { slot: old.slot, death, next: new, hot });
    clear.apply(&mut cs);
    cs.finish();
    let counters = &e.heap.counters;
    HeapCounters::add(if hot { &counters.hot_updates } else { &counters.other_updates }, 1);
    Ok(TupleResult::Ok((new, hot)))
}

/// The old page and a page with room, both latched in block order. `None`: the target filled up
/// meanwhile.
fn latch_both<'e>(
    e: &'e Engine,
    h: &HeapRel,
    old: RowId,
    need: usize,
    xid: Xid,
) -> Result<Option<(Latched<'e>, Target<'e>)>> {
    let space = e.heap.space(h.rel);
    let mut target = target(e, h, &space, need, Some(old.block))?;
    let block = target.at.guard.id().block;
    let Some(pin) = pin_block(e, h, old.block)? else { return Ok(None) };
    let old = if old.block > block {
        latch(e, pin)?
    } else {
        // Block order: the target has to be latched after the old page.
        let target_pin = target.at.guard.unlatch();
        let old = latch(e, pin)?;
        target.at = latch(e, target_pin)?;
        target.fresh = !check_class(&target.at.guard, target.at.guard.id())?;
        if !target.fresh && page::room(&target.at.guard) < need {
            return Ok(None);
        }
        old
    };
    if !target.fresh {
        target.at.guard = make_expressible(e, target.at.guard, xid)?;
    }
    let guard = make_expressible(e, old.guard, xid)?;
    Ok(Some((Latched { guard, vm: old.vm }, target)))
}

/// The new version on another page. `None`: start again.
fn update_elsewhere(
    e: &Engine,
    tx: &mut Transaction,
    h: &HeapRel,
    old: RowId,
    body: &TupleBody<'_>,
    opts: UpdateOpts,
) -> Result<Option<TupleResult<(RowId, bool)>>> {
    let xid = tx.xid(e)?;
    let need = page::aligned(body.stored_len());
    let Some((from, to)) = latch_both(e, h, old, need, xid)? else { return Ok(None) };
    let writable = match verdict(e, tx, h, &from.guard, old.slot, opts.strength())? {
        TupleResult::Ok(writable) => writable,
        other => return Ok(Some(other.map(|_| unreachable!("only Ok carries a value")))),
    };
    check_change(e, tx, h, old)?;
    let death = death(tx, &from.guard, xid, &writable, opts.key_change)?;
    let slot = if to.fresh { SlotNo::FIRST } else { page::free_slot(&to.at.guard) };
    let new = RowId::new(to.at.guard.id().block, slot);
    keep_locks(e, h, old, &writable, Some(new))?;
    let mut clear = VmClear::default();
    clear.plan(&from.guard, from.vm, 0);
    clear.plan(&to.at.guard, to.at.vm, 0);
    let mut cs = CriticalSection::begin(e.log(), xid)?;
    let old_at = cs.add(from.guard);
    let new_at = admit(&mut cs, to.at.guard, to.fresh, xid);
    let cid = tx.command_id().raw();
    let xmin = page::offset_of(cs.page(new_at).base(), xid)
        .expect("the page was made able to express the xid");
    let birth = Birth { xmin, cid, heap_only: false, updated: true };
    apply(&mut cs, new_at, &HeapOp::Insert { slot, birth, body: *body });
    apply(&mut cs, old_at, &HeapOp::UpdateOld { slot: old.slot, death, next: new, hot: false });
    clear.apply(&mut cs);
    cs.finish();
    HeapCounters::add(&e.heap.counters.other_updates, 1);
    Ok(Some(TupleResult::Ok((new, false))))
}
