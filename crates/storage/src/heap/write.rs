//! The common part of all changes: latching, choosing a page, sections, inserts.
//!
//! Every change has the same shape (README, rules W1-W5):
//!
//! ```text
//!   pin map page if the flag says so ─> latch heap page(s), by block number ─> verdict, room, base
//!        ^                                            │ not possible as it is
//!        └────────────── let go, start again ─────────┘
//!   ─> CriticalSection: begin (log room) ─> ops ─> map bits ─> finish ─> unlatch
//! ```

use super::ops::{Birth, HeapOp, InsertMany};
use super::page::{self, ALL_VISIBLE, BadPage};
use super::prune::make_expressible;
use super::space::RelSpace;
use super::tuple::TupleBody;
use super::visibility::{Judge, VisState};
use super::vmap::{self, VmOp};
use super::watch::check_insert;
use super::{HeapRel, InsertOpts, MAX_TUPLE};
use crate::buffer::{CriticalSection, ExclusiveGuard, OpError, PageOp, PinGuard, ScanRing};
use crate::engine::Engine;
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, PageId, RowId, SlotNo, Xid};
use crate::page::{PAGE_SIZE, Page, PageClass};
use crate::txn::Transaction;
use smallvec::SmallVec;

impl From<BadPage> for OpError {
    fn from(bad: BadPage) -> Self {
        OpError::new(bad.to_string())
    }
}

impl PageOp for HeapOp<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        HeapOp::encode(self, out);
    }

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        Ok(HeapOp::apply(self, page)?)
    }
}

impl PageOp for InsertMany<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        InsertMany::encode(self, out);
    }

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        Ok(InsertMany::apply(self, page)?)
    }
}

/// Pages that are looked at before the file is extended instead.
const TRIES: usize = 6;

/// Applies an operation and forgets what memory knew about the slots it touches.
pub(super) fn apply(cs: &mut CriticalSection<'_>, at: usize, op: &HeapOp<'_>) {
    op.for_each_touched(|slot| cs.clear_hints(at, slot));
    cs.apply(at, op);
}

/// The judge for writers: their verdicts are about "now", so they keep no session state.
pub(super) fn judge<'a>(e: &'a Engine, tx: &'a Transaction, state: &'a VisState) -> Judge<'a> {
    Judge {
        txns: &e.txns,
        tx,
        command: tx.command_id(),
        state,
        policy: e.heap.hint_policy(),
        flushed: e.wal.flushed(),
    }
}

pub(super) fn bad_page(id: PageId) -> impl Fn(BadPage) -> StorageError {
    move |bad| StorageError::corrupt_page(id, bad.to_string())
}

/// A heap page, or one that was never written; anything else is corrupt.
pub(super) fn check_class(page: &Page, id: PageId) -> Result<bool> {
    match page.class() {
        Some(PageClass::Heap) => {
            page::check_bounds(page).map_err(bad_page(id))?;
            Ok(true)
        }
        Some(PageClass::Free) => Ok(false),
        _ => Err(StorageError::corrupt_page(id, "not a page of a table")),
    }
}

/// Pins a page that a row id names; `None` when the table has no such block (any more).
pub(super) fn pin_block<'e>(
    e: &'e Engine,
    h: &HeapRel,
    block: BlockNo,
) -> Result<Option<PinGuard<'e>>> {
    let id = PageId::main(h.rel, block);
    if let Some(pin) = e.pool.read_resident(id) {
        return Ok(Some(pin));
    }
    if block >= e.pool.block_count(h.rel, id.fork)? {
        return Ok(None);
    }
    e.pool.read(id).map(Some)
}

/// As [`pin_block`], for a scan: what has to be read goes through its ring, if it has one.
pub(super) fn pin_scanned<'e>(
    e: &'e Engine,
    h: &HeapRel,
    block: BlockNo,
    ring: Option<&mut ScanRing>,
) -> Result<Option<PinGuard<'e>>> {
    let Some(ring) = ring else { return pin_block(e, h, block) };
    if block >= e.pool.block_count(h.rel, Fork::Main)? {
        return Ok(None);
    }
    e.pool.read_through(PageId::main(h.rel, block), ring).map(Some)
}

/// Checks what every new row must satisfy.
pub(super) fn check_body(body: &TupleBody<'_>) -> Result<()> {
    let bitmap = usize::from(body.natts).div_ceil(8);
    assert!(
        body.nulls.is_empty() || body.nulls.len() == bitmap,
        "a null bitmap has one bit a column"
    );
    if body.natts > page::MAX_ATTRS {
        return Err(StorageError::Limit {
            what: format!("number of columns ({}) exceeds limit ({})", body.natts, page::MAX_ATTRS),
        });
    }
    let len = body.stored_len();
    if len > MAX_TUPLE {
        return Err(StorageError::Limit {
            what: format!("row is too big: size {len}, maximum size {MAX_TUPLE}"),
        });
    }
    Ok(())
}

/// A heap page latched for change, with its map page pinned if a change has to clear bits.
pub(super) struct Latched<'e> {
    pub guard: ExclusiveGuard<'e>,
    pub vm: Option<PinGuard<'e>>,
}

/// Latches a pinned page (rule V3 of `vmap`).
pub(super) fn latch<'e>(e: &'e Engine, pin: PinGuard<'e>) -> Result<Latched<'e>> {
    latch_with(e, pin, || ())
}

/// As [`latch`]; `meanwhile` runs when the page had to be let go.
///
/// The flag may be there without a bit, or even a map: write-back sets it in the file. Whether the
/// map reaches this page is asked under the latch, so no answer is older than the last bit set.
pub(super) fn latch_with<'e>(
    e: &'e Engine,
    pin: PinGuard<'e>,
    mut meanwhile: impl FnMut(),
) -> Result<Latched<'e>> {
    let id = pin.id();
    let mut guard = pin.exclusive();
    let mut vm = None;
    while guard.flags() & ALL_VISIBLE != 0
        && vm.is_none()
        && vmap::reaches(&e.pool, id.rel, id.block)?
    {
        let pin = guard.unlatch();
        vm = vmap::pin(&e.pool, id.rel, id.block)?;
        meanwhile();
        guard = pin.exclusive();
    }
    Ok(Latched { guard, vm })
}

/// The map pages whose bits a section clears.
#[derive(Default)]
pub(super) struct VmClear<'e> {
    /// Map page, and the heap blocks on it with the bits that stay.
    pages: SmallVec<[(PinGuard<'e>, SmallVec<[VmOp; 2]>); 2]>,
}

impl<'e> VmClear<'e> {
    /// Plans to leave only `keep` of a block's bits. To be called with its page latched.
    pub(super) fn plan(&mut self, heap: &ExclusiveGuard<'e>, vm: Option<PinGuard<'e>>, keep: u8) {
        let Some(vm) = vm.filter(|_| heap.flags() & ALL_VISIBLE != 0) else { return };
        let op = VmOp { block: heap.id().block, bits: keep };
        match self.pages.iter_mut().find(|(pin, _)| pin.id() == vm.id()) {
            Some((_, ops)) => ops.push(op),
            None => self.pages.push((vm, SmallVec::from_iter([op]))),
        }
    }

    /// Latches the map pages and clears the bits that are set.
    pub(super) fn apply(self, cs: &mut CriticalSection<'e>) {
        let mut pages = self.pages;
        pages.sort_by_key(|(pin, _)| pin.id().block);
        for (pin, ops) in pages {
            let guard = pin.exclusive();
            let due: SmallVec<[VmOp; 2]> = ops
                .into_iter()
                .filter(|op| vmap::bits_of(&guard, op.block) & !op.bits != 0)
                .collect();
            if !due.is_empty() {
                let at = cs.add(guard);
                due.iter().for_each(|op| cs.apply(at, op));
            }
        }
    }
}

/// Bytes that inserts leave free on a page, for updates.
fn reserve_of(h: &HeapRel) -> usize {
    PAGE_SIZE * usize::from(100 - h.fillfactor.clamp(10, 100)) / 100
}

/// Where a new tuple goes: a latched page with room, and whether it has to be initialised.
pub(super) struct Target<'e> {
    pub at: Latched<'e>,
    pub fresh: bool,
}

/// Whether a latched page can take `need` bytes; notes what it has when it cannot.
fn has_room(guard: &ExclusiveGuard<'_>, need: usize, reserve: usize) -> Result<bool> {
    if !check_class(guard, guard.id())? {
        return Ok(true);
    }
    let room = page::room(guard);
    let empty = page::slot_count(guard) == 0;
    Ok(room >= need && (empty || room >= need + reserve))
}

/// Tries one block as a target.
fn try_target<'e>(
    e: &'e Engine,
    h: &HeapRel,
    space: &RelSpace,
    block: BlockNo,
    need: usize,
) -> Result<Option<Target<'e>>> {
    let Some(pin) = pin_block(e, h, block)? else {
        space.note(block, 0);
        return Ok(None);
    };
    let at = latch(e, pin)?;
    if has_room(&at.guard, need, reserve_of(h))? {
        let fresh = at.guard.class() == Some(PageClass::Free);
        return Ok(Some(Target { at, fresh }));
    }
    space.note(block, page::room(&at.guard).saturating_sub(reserve_of(h)));
    Ok(None)
}

/// Finds, or makes, a page with room for `need` bytes (aligned), other than `not`, and latches
/// it. The caller holds no heap page latched.
pub(super) fn target<'e>(
    e: &'e Engine,
    h: &HeapRel,
    space: &RelSpace,
    need: usize,
    not: Option<BlockNo>,
) -> Result<Target<'e>> {
    let mut candidate = space.target();
    for _ in 0..TRIES {
        let block = match candidate.take() {
            Some(block) => block,
            None => match space.find(&e.pool, h.rel, need + reserve_of(h))? {
                Some(block) => block,
                None => break,
            },
        };
        if Some(block) == not {
            space.note(block, 0);
            continue;
        }
        if let Some(found) = try_target(e, h, space, block, need)? {
            space.set_target(Some(block));
            return Ok(found);
        }
    }
    let guard = e.pool.extend(h.rel, Fork::Main)?;
    space.set_target(Some(guard.id().block));
    Ok(Target { at: Latched { guard, vm: None }, fresh: true })
}

/// Takes the target into a section, initialised for `xid` if it is fresh.
pub(super) fn admit<'e>(
    cs: &mut CriticalSection<'e>,
    guard: ExclusiveGuard<'e>,
    fresh: bool,
    xid: Xid,
) -> usize {
    if !fresh {
        return cs.add(guard);
    }
    let at = cs.add_init(guard, PageClass::Heap);
    cs.apply(at, &HeapOp::Init { base: page::base_for(xid) });
    at
}

/// The xmin that a new tuple gets on a page.
pub(super) fn xid_offset(page: &Page, xid: Xid) -> Result<u32> {
    // The page was made able to express it.
    page::offset_of(page.base(), xid)
        .ok_or_else(|| StorageError::corrupt("a page cannot express a running transaction's id"))
}

fn check_freeze(tx: &Transaction, h: &HeapRel, opts: InsertOpts) -> Result<()> {
    if !opts.freeze || tx.created_here(h.rel) {
        return Ok(());
    }
    Err(StorageError::Prerequisite {
        what: "cannot perform COPY FREEZE because the table was not created or truncated in the \
               current subtransaction",
    })
}

/// The birth of a tuple of this transaction's current command on a page with this base.
fn birth(base: u64, xid: Xid, tx: &Transaction, opts: InsertOpts) -> Birth {
    let xmin = if opts.freeze {
        page::OFFSET_FROZEN
    } else {
        page::offset_of(base, xid).expect("the page was made able to express the xid")
    };
    Birth { xmin, cid: tx.command_id().raw(), heap_only: false, updated: false }
}

/// Whether, after an insert by `xid`, all that is on the page is its work alone.
fn stays_sole(guard: &ExclusiveGuard<'_>, fresh: bool, xid: Xid, opts: InsertOpts) -> bool {
    !opts.freeze && (fresh || guard.frame().sole_inserter() == xid)
}

/// Inserts a row; returns its address.
pub fn insert(
    e: &Engine,
    tx: &mut Transaction,
    h: &HeapRel,
    body: &TupleBody<'_>,
    opts: InsertOpts,
) -> Result<RowId> {
    check_body(body)?;
    check_freeze(tx, h, opts)?;
    let xid = tx.xid(e)?;
    tx.note_write(h.rel);
    let space = e.heap.space(h.rel);
    let Target { at: Latched { mut guard, vm }, fresh } =
        target(e, h, &space, page::aligned(body.stored_len()), None)?;
    check_insert(e, tx, h)?;
    if !fresh {
        guard = make_expressible(e, guard, xid)?;
    }
    let block = guard.id().block;
    let mut clear = VmClear::default();
    clear.plan(&guard, vm, 0);
    let sole = stays_sole(&guard, fresh, xid, opts);
    let mut cs = CriticalSection::begin(e.log(), xid)?;
    let at = admit(&mut cs, guard, fresh, xid);
    let slot = page::free_slot(cs.page(at));
    let birth = birth(cs.page(at).base(), xid, tx, opts);
    apply(&mut cs, at, &HeapOp::Insert { slot, birth, body: *body });
    if sole {
        cs.frame(at).set_sole_inserter(xid);
    }
    clear.apply(&mut cs);
    cs.finish();
    Ok(RowId::new(block, slot))
}

/// Which slots a run of rows gets on a page, as many as fit.
fn assign_slots<'b>(
    page: &Page,
    rows: &[TupleBody<'b>],
    reserve: usize,
    out: &mut Vec<(SlotNo, TupleBody<'b>)>,
) {
    out.clear();
    let count = page::slot_count(page);
    let mut free = page.free_space();
    let mut unused = page::slots(page).filter(|s| page::line(page, *s) == Some(page::Line::UNUSED));
    let mut next = count + 1;
    if page.flags() & page::FREE_LINES == 0 {
        unused.by_ref().for_each(drop);
    }
    for row in rows {
        let len = page::aligned(row.stored_len());
        let reused = unused.next();
        let line = if reused.is_some() { 0 } else { page::LINE_SIZE };
        let first = count == 0 && out.is_empty();
        let keep = if first { 0 } else { reserve };
        if len + line + keep > free || (reused.is_none() && next > page::MAX_SLOTS) {
            break;
        }
        let slot = reused.unwrap_or_else(|| {
            next += 1;
            SlotNo::new(next as u16 - 1)
        });
        free -= len + line;
        out.push((slot, *row));
    }
}

/// Inserts many rows, one log record a page; appends their addresses to `out` in order.
pub fn insert_many(
    e: &Engine,
    tx: &mut Transaction,
    h: &HeapRel,
    rows: &[TupleBody<'_>],
    opts: InsertOpts,
    out: &mut Vec<RowId>,
) -> Result<()> {
    rows.iter().try_for_each(check_body)?;
    check_freeze(tx, h, opts)?;
    if rows.is_empty() {
        return Ok(());
    }
    let xid = tx.xid(e)?;
    tx.note_write(h.rel);
    let space = e.heap.space(h.rel);
    let mut rest = rows;
    let mut placed: Vec<(SlotNo, TupleBody<'_>)> = Vec::new();
    while let Some(first) = rest.first() {
        let Target { at: Latched { mut guard, vm }, fresh } =
            target(e, h, &space, page::aligned(first.stored_len()), None)?;
        check_insert(e, tx, h)?;
        if !fresh {
            guard = make_expressible(e, guard, xid)?;
        }
        let block = guard.id().block;
        let mut clear = VmClear::default();
        clear.plan(&guard, vm, 0);
        let sole = stays_sole(&guard, fresh, xid, opts);
        let mut cs = CriticalSection::begin(e.log(), xid)?;
        let at = admit(&mut cs, guard, fresh, xid);
        assign_slots(cs.page(at), rest, reserve_of(h), &mut placed);
        assert!(!placed.is_empty(), "the target has room for the first row");
        placed.iter().for_each(|(slot, _)| cs.clear_hints(at, *slot));
        let birth = birth(cs.page(at).base(), xid, tx, opts);
        cs.apply(at, &InsertMany { birth, rows: &placed });
        if sole {
            cs.frame(at).set_sole_inserter(xid);
        }
        clear.apply(&mut cs);
        cs.finish();
        out.extend(placed.iter().map(|(slot, _)| RowId::new(block, *slot)));
        rest = &rest[placed.len()..];
    }
    Ok(())
}
