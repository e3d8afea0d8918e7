//! Reading: one row, the row behind an index entry, a page at a time, the newest version.
//!
//! All of these take a share latch, decide, copy, and let go. Nothing here changes a page, and
//! nothing here can: a share guard gives `&Page` only. Hints and summaries that are learned on the
//! way go to the buffer frame, under the same latch.
//!
//! ```text
//!   scan_page:   flag ALL_VISIBLE?  ─┐
//!                summary <= my S?   ─┴─> every tuple: list line pointers, copy the page
//!                otherwise           ──> judge each tuple; all visible to me and settled enough?
//!                                        then leave a summary for the next one, else hints
//! ```
//!
//! A summary at position L says: each tuple here is visible to every snapshot at or after L. It is
//! left only when no tuple is one's own, none was seen before its synchronous commit was flushed,
//! and no deletion, not even one in progress, stands in an xmax. So a page taken by its summary
//! adds nothing to `undurable_seen` (semantics 22), and a session's own changes are never missed,
//! because every change clears the summary.

use super::HeapRel;
use super::hints::{self, HintPolicy, Learned};
use super::page::{self, Line, LineState};
use super::page_visibility::{self, Slots, Visible};
use super::tuple::{PageScan, ScanItem, TupleBuf, TupleRef};
use super::visibility::{Dirty, Fate, Horizon, Judge, VisState, vacuum_fate};
use super::write::{bad_page, check_class, judge, pin_block, pin_scanned};
use super::{RowLock, TupleResult};
use crate::btree::UniqueVerdict;
use crate::buffer::{PinGuard, ShareGuard};
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{BlockNo, CommandId, Lsn, PageId, RowId, SlotNo, Xid};
use crate::page::Page;
use crate::ssi::Sx;
use crate::txn::{Snapshot, Transaction};
use smallvec::SmallVec;

/// Who reads, and as of when.
#[derive(Clone, Copy)]
pub struct ReadCx<'a> {
    pub snapshot: Snapshot,
    pub tx: &'a Transaction,
    /// Effects of earlier commands of `tx` are visible. A cursor keeps the command that opened it.
    pub command: CommandId,
    /// The session's cache and counters.
    pub state: &'a VisState,
    pub policy: HintPolicy,
    /// Set: what is read of a watched table is noted (rules R2-R5 of `ssi`).
    pub watch: Option<&'a Sx>,
}

impl<'a> ReadCx<'a> {
    /// Reads as the current command of `tx`, with the engine's hint policy.
    pub fn new(e: &Engine, tx: &'a Transaction, snapshot: Snapshot, state: &'a VisState) -> Self {
        let policy = e.heap.hint_policy();
        ReadCx { snapshot, tx, command: tx.command_id(), state, policy, watch: None }
    }

    /// Who watches the reading of `h`.
    #[inline]
    fn watch_of(&self, h: &HeapRel) -> Option<&'a Sx> {
        if h.watched { self.watch } else { None }
    }

    pub(super) fn judge(&self, e: &'a Engine) -> Judge<'a> {
        Judge {
            txns: &e.txns,
            tx: self.tx,
            command: self.command,
            state: self.state,
            policy: self.policy,
            flushed: e.wal.flushed(),
        }
    }
}

/// What was learned by looking at single tuples of a latched page; kept when the look is over.
#[derive(Default)]
struct Notes {
    learned: SmallVec<[Learned; 4]>,
}

/// Whether the snapshot sees a tuple in a latched page.
#[inline]
fn sees(
    judge: &Judge<'_>,
    cx: &ReadCx<'_>,
    page: &ShareGuard<'_>,
    slot: SlotNo,
    t: &TupleRef<'_>,
    notes: &mut Notes,
) -> bool {
    let (visible, level) = match page_visibility::whole_for_one(judge, &cx.snapshot, page) {
        Some(answer) => answer,
        None => {
            let twins = if cx.policy.uses_frames() { page.frame().hint(slot) } else { 0 };
            let seen = judge.mvcc(&cx.snapshot, t, page.base(), twins, page.lsn());
            if seen.learned != 0 {
                notes.learned.push((slot, seen.learned));
            }
            (seen.visible, seen.level)
        }
    };
    if let Some(counters) = cx.state.counters() {
        counters.tuples(level, 1);
    }
    visible
}

impl Notes {
    /// Ends the look at a page.
    #[inline]
    fn keep(self, e: &Engine, cx: &ReadCx<'_>, page: ShareGuard<'_>) -> Result<()> {
        if self.learned.is_empty() {
            return Ok(());
        }
        let seen = page.frame().change_counter();
        hints::keep(e, cx.policy, page, seen, &self.learned, cx.state.counters())
    }
}

/// The tuple of a slot, if it has one; corrupt ones are errors.
fn tuple_of<'p>(page: &'p Page, id: PageId, slot: SlotNo) -> Result<Option<TupleRef<'p>>> {
    match page::line(page, slot) {
        Some(l) if l.state() == LineState::Normal => page::tuple_at(page, l)
            .map(Some)
            .ok_or(page::bad("tuple exceeds the page", slot))
            .map_err(bad_page(id)),
        _ => Ok(None),
    }
}

fn share(pin: PinGuard<'_>) -> Result<Option<ShareGuard<'_>>> {
    let page = pin.share();
    let heap = check_class(&page, page.id())?;
    Ok(heap.then_some(page))
}

/// Copies the version at `row` if the snapshot sees it.
pub fn fetch(
    e: &Engine,
    cx: &ReadCx<'_>,
    h: &HeapRel,
    row: RowId,
    out: &mut TupleBuf,
) -> Result<bool> {
    let Some(pin) = pin_block(e, h, row.block)? else { return Ok(false) };
    let Some(page) = share(pin)? else { return Ok(false) };
    let Some(t) = tuple_of(&page, page.id(), row.slot)? else { return Ok(false) };
    let mut notes = Notes::default();
    let judge = cx.judge(e);
    let visible = sees(&judge, cx, &page, row.slot, &t, &mut notes);
    if let Some(sx) = cx.watch_of(h) {
        let writer = judge.beyond(&cx.snapshot, &t, page.base());
        let read = visible.then_some((h.rel, row));
        e.txns.ssi().read_versions(&e.txns, sx, read, writer.as_slice())?;
    }
    if visible {
        out.set(row, page.base(), t.bytes());
    }
    notes.keep(e, cx, page)?;
    Ok(visible)
}

/// Walks a HOT chain in a latched page. `f` returns true to stop. False: the chain ended.
fn walk_chain(
    page: &Page,
    id: PageId,
    root: SlotNo,
    mut f: impl FnMut(SlotNo, &TupleRef<'_>) -> bool,
) -> Result<bool> {
    let base = page.base();
    let mut at = root;
    let mut redirected = false;
    if let Some(l) = page::line(page, root)
        && l.state() == LineState::Redirect
    {
        at = l.target();
        redirected = true;
    }
    let mut prior = Xid::INVALID;
    for _ in 0..page::MAX_SLOTS {
        let Some(t) = tuple_of(page, id, at)? else { return Ok(false) };
        // The root's slot may be another row's by now, the tail's too.
        if t.is_heap_only() != (redirected || at != root) {
            return Ok(false);
        }
        if prior.is_valid() && t.xmin(base) != prior {
            return Ok(false);
        }
        if f(at, &t) {
            return Ok(true);
        }
        match t.next() {
            Some(next) if t.is_hot_updated() && next.block == id.block => at = next.slot,
            _ => return Ok(false),
        }
        prior = t.xmax(base);
    }
    Err(bad_page(id)(page::bad("endless chain of row versions", root)))
}

/// Copies the visible member of the chain that an index entry names. When none is visible,
/// [`TupleBuf::all_dead`] tells whether the entry is of use to anybody.
pub fn fetch_hot(
    e: &Engine,
    cx: &ReadCx<'_>,
    h: &HeapRel,
    root: RowId,
    out: &mut TupleBuf,
) -> Result<bool> {
    out.all_dead = false;
    let Some(pin) = pin_block(e, h, root.block)? else { return Ok(false) };
    let Some(page) = share(pin)? else { return Ok(false) };
    let judge = cx.judge(e);
    let base = page.base();
    let mut notes = Notes::default();
    let watch = cx.watch_of(h);
    let mut writers: SmallVec<[Xid; 4]> = SmallVec::new();
    let found = walk_chain(&page, page.id(), root.slot, |slot, t| {
        let visible = sees(&judge, cx, &page, slot, t, &mut notes);
        if watch.is_some() {
            writers.extend(judge.beyond(&cx.snapshot, t, base));
        }
        if visible {
            out.set(RowId::new(root.block, slot), base, t.bytes());
        }
        visible
    })?;
    if let Some(sx) = watch {
        let read = found.then(|| (h.rel, out.row()));
        e.txns.ssi().read_versions(&e.txns, sx, read, &writers)?;
    }
    if !found {
        out.all_dead = chain_is_dead(e, &page, root.slot)?;
    }
    notes.keep(e, cx, page)?;
    Ok(found)
}

/// Whether nobody can see any version behind a root, now or later.
fn chain_is_dead(e: &Engine, page: &ShareGuard<'_>, root: SlotNo) -> Result<bool> {
    match page::line(page, root).map(Line::state) {
        Some(LineState::Dead) => return Ok(true),
        Some(LineState::Normal | LineState::Redirect) => {}
        // Freed and perhaps about to be another row's: the entry is vacuum's business.
        _ => return Ok(false),
    }
    let horizon = Horizon::recent(e);
    let base = page.base();
    let mut members = 0;
    let alive = walk_chain(page, page.id(), root, |_, t| {
        members += 1;
        vacuum_fate(&e.txns, t, base, 0, horizon) != Fate::Dead
    })?;
    Ok(!alive && members > 0)
}

/// Whether a row with an equal key counts as a duplicate, for a unique index. Walks the chain of
/// the entry; own changes count at once, others' by how their transactions end.
pub fn unique_verdict(
    e: &Engine,
    tx: &Transaction,
    h: &HeapRel,
    root: RowId,
) -> Result<UniqueVerdict> {
    let Some(pin) = pin_block(e, h, root.block)? else { return Ok(UniqueVerdict::Dead) };
    let Some(page) = share(pin)? else { return Ok(UniqueVerdict::Dead) };
    let state = VisState::passing();
    let judge = judge(e, tx, &state);
    let base = page.base();
    let mut answer = UniqueVerdict::Dead;
    if h.watched
        && let Some(sx) = tx.watched()
    {
        watch_unique(e, tx, sx, &judge, h, root, &page)?;
    }
    walk_chain(&page, page.id(), root.slot, |slot, t| {
        match judge.dirty(t, base, page.frame().hint(slot)) {
            Dirty::There => answer = UniqueVerdict::Conflict,
            Dirty::WaitFor(xid) => answer = UniqueVerdict::WaitFor(xid),
            Dirty::Gone => return false,
        }
        true
    })?;
    if answer == UniqueVerdict::Dead && chain_is_dead(e, &page, root.slot)? {
        answer = UniqueVerdict::DeadToAll;
    }
    Ok(answer)
}

/// What a unique check of a serializable transaction reads, and what it sees beyond its snapshot
/// (rule R6 of `ssi`).
#[cold]
fn watch_unique(
    e: &Engine,
    tx: &Transaction,
    sx: &Sx,
    judge: &Judge<'_>,
    h: &HeapRel,
    root: RowId,
    page: &ShareGuard<'_>,
) -> Result<()> {
    let Some(snapshot) = tx.snapshot() else { return Ok(()) };
    let (ssi, base) = (e.txns.ssi(), page.base());
    let mut seen = Ok(());
    walk_chain(page, page.id(), root.slot, |slot, t| {
        let row = RowId::new(root.block, slot);
        seen =
            match (judge.dirty(t, base, page.frame().hint(slot)), judge.beyond(&snapshot, t, base))
            {
                (Dirty::WaitFor(_), _) | (Dirty::Gone, None) => Ok(()),
                (Dirty::There, None) => ssi.read_versions(&e.txns, sx, Some((h.rel, row)), &[]),
                (Dirty::There | Dirty::Gone, Some(xid)) => ssi.observe(&e.txns, sx, xid),
            };
        seen.is_err()
    })?;
    seen
}

/// Notes whose changes of a page a serializable reader does not see.
#[cold]
fn watch_page(e: &Engine, cx: &ReadCx<'_>, sx: &Sx, page: &Page) -> Result<()> {
    let judge = cx.judge(e);
    let mut writers: SmallVec<[Xid; 8]> = SmallVec::new();
    for (_, line) in page::lines(page).filter(|(_, l)| l.state() == LineState::Normal) {
        let Some(t) = page::tuple_at(page, line) else { continue };
        if let Some(xid) = judge.beyond(&cx.snapshot, &t, page.base())
            && !writers.contains(&xid)
        {
            writers.push(xid);
        }
    }
    e.txns.ssi().read_versions(&e.txns, sx, None, &writers)
}

/// Copies a page and lists the tuples on it that the snapshot sees, in line pointer order.
pub fn scan_page(
    e: &Engine,
    cx: &ReadCx<'_>,
    h: &HeapRel,
    block: BlockNo,
    out: &mut PageScan,
) -> Result<()> {
    out.items.clear();
    out.block = block;
    let Some(pin) = pin_scanned(e, h, block, out.ring.as_mut())? else { return Ok(()) };
    let Some(page) = share(pin)? else { return Ok(()) };
    let mut watched = Ok(());
    page_visibility::decide(e, cx, page, |page, visible| {
        if let Some(sx) = cx.watch_of(h)
            && !matches!(visible, Visible::All)
        {
            watched = watch_page(e, cx, sx, page);
        }
        match visible {
            Visible::All => list_all(page, &mut out.items),
            Visible::None => {}
            Visible::These(slots) => list_these(page, slots, &mut out.items),
        }
        copy_page(page, &mut out.page, out.items.is_empty());
        out.items.len()
    })?;
    watched
}

/// How many tuples of a page the snapshot sees. Nothing is copied: `scan` only lends its ring.
pub fn count_page(
    e: &Engine,
    cx: &ReadCx<'_>,
    h: &HeapRel,
    block: BlockNo,
    scan: &mut PageScan,
) -> Result<usize> {
    let Some(pin) = pin_scanned(e, h, block, scan.ring.as_mut())? else { return Ok(0) };
    let Some(page) = share(pin)? else { return Ok(0) };
    let mut watched = Ok(());
    let count = page_visibility::decide(e, cx, page, |page, visible| {
        if let Some(sx) = cx.watch_of(h)
            && !matches!(visible, Visible::All)
        {
            watched = watch_page(e, cx, sx, page);
        }
        visible.count(page)
    })?;
    watched.map(|()| count)
}

/// How many tuples a page has, whoever may see them: [`count_page`] without visibility, for
/// measuring what that costs.
pub fn count_lines(e: &Engine, h: &HeapRel, block: BlockNo, scan: &mut PageScan) -> Result<usize> {
    let Some(pin) = pin_scanned(e, h, block, scan.ring.as_mut())? else { return Ok(0) };
    Ok(share(pin)?.map_or(0, |page| page::tuple_count(&page)))
}

/// Copies what a scan can look at: header, line pointers, tuples. Not the free space.
fn copy_page(from: &Page, to: &mut Page, header_only: bool) {
    let (lower, upper) = (usize::from(from.lower()), usize::from(from.upper()));
    to.bytes_mut()[..lower].copy_from_slice(&from.bytes()[..lower]);
    if !header_only {
        to.bytes_mut()[upper..].copy_from_slice(&from.bytes()[upper..]);
    }
}

/// Every tuple, without a look at any.
fn list_all(page: &Page, items: &mut Vec<ScanItem>) {
    const NONE: ScanItem = ScanItem { slot: SlotNo::INVALID, offset: 0, len: 0 };
    items.resize(page::slot_count(page), NONE);
    let mut count = 0;
    for (slot, l) in page::lines(page) {
        // Written always, counted when it is a tuple: no branch to mispredict.
        items[count] = ScanItem { slot, offset: l.offset(), len: l.len() };
        count += usize::from(l.state() == LineState::Normal);
    }
    items.truncate(count);
}

fn list_these(page: &Page, slots: &Slots, items: &mut Vec<ScanItem>) {
    items.extend(slots.iter().filter_map(|slot| {
        let line = page::line(page, slot)?;
        Some(ScanItem { slot, offset: line.offset(), len: line.len() })
    }));
}

/// The state of a tuple, for building an index over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildItem {
    pub item: ScanItem,
    /// What the index entry has to name.
    pub root: SlotNo,
    /// Live, or inserted by a transaction that still runs: must count for uniqueness. Other writers
    /// are locked out, so a version that is being deleted is by whoever builds the index.
    pub alive: bool,
}

/// Like [`scan_page`], for an index build: lists every tuple that some snapshot may see, with the
/// root that the entry has to name. True in the result: some chain has a version that is deleted
/// but still visible to an older snapshot, so the index, having only the newest version's key for
/// it, must not be used by snapshots older than its own creation.
pub fn scan_for_build(
    e: &Engine,
    h: &HeapRel,
    block: BlockNo,
    out: &mut PageScan,
    items: &mut Vec<BuildItem>,
) -> Result<bool> {
    out.items.clear();
    items.clear();
    out.block = block;
    let Some(pin) = pin_block(e, h, block)? else { return Ok(false) };
    let Some(page) = share(pin)? else { return Ok(false) };
    let horizon = Horizon::of(e);
    let base = page.base();
    let mut broken = false;
    let roots = page::root_map(&page);
    for (slot, l) in page::lines(&page).filter(|(_, l)| l.state() == LineState::Normal) {
        let t = page::tuple_at(&page, l)
            .ok_or(page::bad("tuple exceeds the page", slot))
            .map_err(bad_page(page.id()))?;
        let root = match roots[slot.index()] {
            SlotNo::INVALID => continue,
            root => root,
        };
        let alive = match vacuum_fate(&e.txns, &t, base, 0, horizon) {
            Fate::Dead => continue,
            Fate::RecentlyDead(_) if t.is_hot_updated() => {
                broken = true;
                continue;
            }
            Fate::DeleteInProgress(_) if t.is_hot_updated() => {
                broken = true;
                continue;
            }
            Fate::RecentlyDead(_) | Fate::DeleteInProgress(_) => false,
            Fate::Live | Fate::InsertInProgress(_) => true,
        };
        let item = ScanItem { slot, offset: l.offset(), len: l.len() };
        out.items.push(item);
        items.push(BuildItem { item, root, alive });
    }
    copy_page(&page, &mut out.page, out.items.is_empty());
    Ok(broken)
}

/// What following an update chain ended at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newest {
    /// The newest version; it was copied out and may be written (ask again when writing).
    Row(RowId),
    /// The row was deleted.
    Gone,
    /// Somebody is changing the newest version: wait, then follow again.
    Busy(Xid),
}

/// Follows a row that a committed transaction updated to its newest version (READ COMMITTED).
/// `next` and `xmax` are those of `TupleResult::Updated`; a step counts only when the next
/// version's xmin is the xmax of the one before (semantics 42).
pub fn follow_update_chain(
    e: &Engine,
    tx: &Transaction,
    h: &HeapRel,
    next: RowId,
    xmax: Xid,
    wanted: RowLock,
    out: &mut TupleBuf,
) -> Result<Newest> {
    let (mut row, mut prior) = (next, xmax);
    let state = VisState::passing();
    loop {
        let Some(pin) = pin_block(e, h, row.block)? else { return Ok(Newest::Gone) };
        let Some(page) = share(pin)? else { return Ok(Newest::Gone) };
        let Some(t) = tuple_of(&page, page.id(), row.slot)? else { return Ok(Newest::Gone) };
        let base = page.base();
        if t.xmin(base) != prior {
            return Ok(Newest::Gone);
        }
        let judge = judge(e, tx, &state);
        match judge.update(&t, base, page.frame().hint(row.slot), wanted) {
            TupleResult::Ok(()) => {
                out.set(row, base, t.bytes());
                return Ok(Newest::Row(row));
            }
            TupleResult::BeingModified(xid) => return Ok(Newest::Busy(xid)),
            TupleResult::Updated { next, xmax } => (row, prior) = (next, xmax),
            TupleResult::Deleted | TupleResult::Invisible | TupleResult::SelfModified => {
                return Ok(Newest::Gone);
            }
        }
    }
}

/// The log position of a page, for tests and tools.
pub fn page_lsn(e: &Engine, h: &HeapRel, block: BlockNo) -> Result<Lsn> {
    Ok(e.pool.share(PageId::main(h.rel, block))?.lsn())
}
