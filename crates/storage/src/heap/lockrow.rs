//! Locking rows: SELECT ... FOR UPDATE and its weaker forms, and what foreign keys take.
//!
//! | strength       | where it is kept                   | page changed? |
//! |----------------|------------------------------------|---------------|
//! | UPDATE         | xmax, lock-only                    | yes, logged   |
//! | NO KEY UPDATE  | xmax, lock-only                    | yes, logged   |
//! | SHARE          | memory ([`super::rowlock`])        | no            |
//! | KEY SHARE      | memory                             | no            |
//!
//! A KEY SHARE lock goes together with another transaction's update in progress that leaves the
//! key alone; the locker then locks the later versions too, so that whoever comes next and wants
//! to change the key of the newest version meets it (semantics 39).

use super::ops::HeapOp;
use super::page;
use super::prune::make_expressible;
use super::update::{Writable, verdict};
use super::visibility::held_strength;
use super::vmap::VM_VISIBLE;
use super::write::{Latched, VmClear, apply, latch, pin_block, xid_offset};
use super::{HeapRel, RowLock, TupleResult};
use crate::buffer::CriticalSection;
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{RowId, Xid};
use crate::txn::{OwnXid, Transaction};
use smallvec::SmallVec;

/// Locks a row for the current transaction. Never waits; the verdict says whom to wait for.
pub fn lock_row(
    e: &Engine,
    tx: &mut Transaction,
    h: &HeapRel,
    row: RowId,
    strength: RowLock,
) -> Result<TupleResult<()>> {
    let xid = tx.xid(e)?;
    let Some(pin) = pin_block(e, h, row.block)? else { return Ok(TupleResult::Invisible) };
    let at = latch(e, pin)?;
    let writable = match verdict(e, tx, h, &at.guard, row.slot, strength)? {
        TupleResult::Ok(writable) => writable,
        other => return Ok(other.map(|_| ())),
    };
    if strength <= RowLock::Share {
        return lock_shared(e, tx, h, row, at, xid, strength);
    }
    lock_in_xmax(e, tx, h, row, at, xid, strength, &writable)?;
    Ok(TupleResult::Ok(()))
}

/// What stands in xmax while it is this transaction's.
fn own_in_xmax(tx: &Transaction, at: &Latched<'_>, row: RowId) -> Option<(Xid, RowLock)> {
    let t = page::tuple(&at.guard, row.slot)?;
    let xmax = t.xmax(at.guard.base());
    (xmax.is_normal() && tx.is_own(xmax) == OwnXid::Live).then(|| (xmax, held_strength(&t)))
}

/// A lock that is kept in memory. Nothing on the page changes.
fn lock_shared(
    e: &Engine,
    tx: &Transaction,
    h: &HeapRel,
    row: RowId,
    at: Latched<'_>,
    xid: Xid,
    strength: RowLock,
) -> Result<TupleResult<()>> {
    let enough = |(holder, held): (Xid, RowLock)| holder == xid && held >= strength;
    if own_in_xmax(tx, &at, row).is_some_and(enough) {
        return Ok(TupleResult::Ok(()));
    }
    let locks = &e.heap.row_locks;
    let mut added: Added = SmallVec::new();
    added.push((row, locks.add(&e.txns, h.rel, row, xid, strength)?));
    // The row is being updated, compatibly: its successor must be locked as well.
    let next = page::tuple(&at.guard, row.slot).and_then(|t| {
        let running = !t.is_lock_only() && t.xmax_offset() != page::OFFSET_INVALID;
        t.next().filter(|_| running).map(|next| (next, t.xmax(at.guard.base())))
    });
    drop(at);
    let Some((next, prior)) = next else { return Ok(TupleResult::Ok(())) };
    let wanted = Wanted { xid, strength };
    let done = lock_successors(e, tx, h, next, prior, wanted, &mut added);
    if !matches!(done, Ok(TupleResult::Ok(()))) {
        for (row, before) in added {
            locks.undo_add(h.rel, row, xid, before);
        }
    }
    done
}

/// Versions that a request has locked so far, with what was held there before.
type Added = SmallVec<[(RowId, Option<RowLock>); 4]>;

#[derive(Clone, Copy)]
struct Wanted {
    xid: Xid,
    strength: RowLock,
}

/// Adds a shared lock to each later version of a row.
fn lock_successors(
    e: &Engine,
    tx: &Transaction,
    h: &HeapRel,
    mut row: RowId,
    mut prior: Xid,
    wanted: Wanted,
    added: &mut Added,
) -> Result<TupleResult<()>> {
    let Wanted { xid, strength } = wanted;
    loop {
        let Some(pin) = pin_block(e, h, row.block)? else { return Ok(TupleResult::Ok(())) };
        let guard = pin.exclusive();
        let Some(t) = page::tuple(&guard, row.slot) else { return Ok(TupleResult::Ok(())) };
        let base = guard.base();
        if t.xmin(base) != prior {
            return Ok(TupleResult::Ok(()));
        }
        let (xmax, lock_only) = (t.xmax(base), t.is_lock_only());
        let running = xmax.is_normal()
            && tx.is_own(xmax) == OwnXid::NotOwn
            && !e.txns.status(xmax).is_final();
        if running && held_strength(&t).conflicts(strength) {
            return Ok(TupleResult::BeingModified(xmax));
        }
        if let Some(holder) = e.heap.row_locks.conflict(&e.txns, tx, h.rel, row, strength) {
            return Ok(TupleResult::BeingModified(holder));
        }
        added.push((row, e.heap.row_locks.add(&e.txns, h.rel, row, xid, strength)?));
        match t.next().filter(|_| !lock_only) {
            Some(next) => (row, prior) = (next, xmax),
            None => return Ok(TupleResult::Ok(())),
        }
    }
}

/// A lock that is kept in the tuple.
#[allow(clippy::too_many_arguments)]
fn lock_in_xmax<'e>(
    e: &'e Engine,
    tx: &Transaction,
    h: &HeapRel,
    row: RowId,
    at: Latched<'e>,
    xid: Xid,
    strength: RowLock,
    writable: &Writable,
) -> Result<()> {
    let own = own_in_xmax(tx, &at, row);
    // A weaker lock of one's own under this xid is simply replaced; a stronger one stays.
    if own.is_some_and(|(_, held)| held >= strength) {
        return Ok(());
    }
    if let Some((holder, held)) = writable.own_lock {
        e.heap.row_locks.add(&e.txns, h.rel, row, holder, held)?;
    }
    let Latched { guard, vm } = at;
    let guard = make_expressible(e, guard, xid)?;
    let xmax = xid_offset(&guard, xid)?;
    let mut clear = VmClear::default();
    clear.plan(&guard, vm, VM_VISIBLE);
    let mut cs = CriticalSection::begin(e.log(), xid)?;
    let at = cs.add(guard);
    apply(&mut cs, at, &HeapOp::Lock { slot: row.slot, xmax, strength });
    clear.apply(&mut cs);
    cs.finish();
    Ok(())
}
