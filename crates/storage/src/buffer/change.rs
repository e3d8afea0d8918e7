//! The one way to change a page.
//!
//! ```text
//!   let mut cs = CriticalSection::begin(engine.log(), xid)?;  // room in the log, or an error
//!   let i = cs.add(guard);                                    // page dirty, summary forgotten
//!   cs.apply(i, &op);                                         // page changes, record grows
//!   let (lsn, guards) = cs.finish();                          // record in the log, LSNs stamped
//! ```
//!
//! Everything that can fail, fails before the first `apply`: look at the pages, reserve space, take
//! the latches. From the first `apply` to `finish` the pages in memory are ahead of the log; an
//! error there has no way out but to end the process, and recovery brings the pages back. That is
//! what the drop of an unfinished section does.
//!
//! The same `PageOp::apply` runs here and in replay, so the two cannot drift apart.
//!
//! A block's part of the record is the operations' encoding, or, when this is the page's first
//! change since the redo point, an image of the page *after* the change (a torn write may have left
//! nothing on disk that operations could be applied to). Pages initialised by the operations need
//! no image: replay starts them from zeros.
//!
//! A checkpoint may move the redo point between the choice and the insertion. The log then refuses
//! the record, and the choice is made again: only ever from operations to image, as the redo point
//! only moves on.
//!
//! Pages of relations that are not logged take part like others, except that they are not in the
//! record; their LSN is a stand-in that only tells one version from the next.

use super::extras::FrameExtras;
use super::frames::{DIRTY, JUST_DIRTIED, UNLOGGED};
use super::guards::ExclusiveGuard;
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, SlotNo, Xid};
use crate::page::{PAGE_SIZE, Page, PageClass};
use crate::sync::Arc;
use crate::wal::{BlockBody, RecordBuilder, RecordKind, Reservation, Wal};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt;

/// An operation does not fit the page: the page, or the operation in the log, is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct OpError {
    pub what: String,
}

impl OpError {
    pub fn new(what: impl Into<String>) -> Self {
        OpError { what: what.into() }
    }
}

impl From<&str> for OpError {
    fn from(what: &str) -> Self {
        OpError::new(what)
    }
}

impl From<String> for OpError {
    fn from(what: String) -> Self {
        OpError { what }
    }
}

/// One change of one page, as it is made and as it is replayed.
pub trait PageOp {
    /// Appends the operation to a block's part of the record.
    fn encode(&self, out: &mut Vec<u8>);
    /// Makes the change. Checks first: an error leaves the page as it was.
    fn apply(&self, page: &mut Page) -> Result<(), OpError>;
}

/// What a critical section needs of the engine.
#[derive(Clone, Debug)]
pub struct ChangeLog {
    wal: Arc<Wal>,
    full_page_writes: bool,
}

impl ChangeLog {
    pub fn new(wal: Arc<Wal>, full_page_writes: bool) -> Self {
        ChangeLog { wal, full_page_writes }
    }

    pub fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }

    /// Inserts a record that names no page.
    pub fn insert(&self, kind: RecordKind, xid: Xid, data: &[u8]) -> Result<Lsn> {
        let mut record = RecordBuilder::new(kind, xid);
        record.data(data);
        let room = self.wal.reserve(record.encoded_len())?;
        match self.wal.insert(&record, room, Lsn::INVALID) {
            Ok(lsn) => Ok(lsn),
            Err(_) => unreachable!("the redo point concerns records with pages only"),
        }
    }
}

/// What one page can need in a record, headers included.
const PAGE_ROOM: usize = PAGE_SIZE + 64;
/// Room for main data and for operations longer than a page.
const DATA_ROOM: usize = 8192;
/// Pages that [`CriticalSection::begin`] reserves for.
const PAGES_DEFAULT: usize = 8;

struct Entry<'e> {
    guard: ExclusiveGuard<'e>,
    /// The page starts from zeros in replay.
    init: Option<PageClass>,
    logged: bool,
    image: bool,
    started: bool,
    ops: Vec<u8>,
}

impl Entry<'_> {
    /// Zeroes a page to be initialised, before its first operation.
    fn start(&mut self) {
        if !self.started && self.init.is_some() {
            self.guard.frame().clear_all_hints();
            self.guard.page_mut().bytes_mut().fill(0);
        }
        self.started = true;
    }
}

/// Memory that sections of one thread hand on to each other.
struct Scratch {
    record: RecordBuilder,
    ops: Vec<Vec<u8>>,
}

thread_local! {
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

/// Pages being changed and the record that says how. See the module's essay.
pub struct CriticalSection<'e> {
    log: &'e ChangeLog,
    xid: Xid,
    reservation: Option<Reservation<'e>>,
    redo_seen: Lsn,
    pages: SmallVec<[Entry<'e>; 4]>,
    data: Vec<u8>,
    scratch: Option<Box<Scratch>>,
    changed: bool,
}

impl<'e> CriticalSection<'e> {
    /// Reserves room in the log for a record about a handful of pages. A full disk and a failed
    /// log show here.
    pub fn begin(log: &'e ChangeLog, xid: Xid) -> Result<Self> {
        Self::begin_sized(log, xid, PAGES_DEFAULT, DATA_ROOM)
    }

    /// As [`Self::begin`], for a record about up to `pages` pages with up to `extra` bytes of main
    /// data and of operations beyond a page's size.
    pub fn begin_sized(log: &'e ChangeLog, xid: Xid, pages: usize, extra: usize) -> Result<Self> {
        let reservation = log.wal.reserve(pages * PAGE_ROOM + extra + DATA_ROOM)?;
        let scratch = SCRATCH.with(|s| s.borrow_mut().take()).unwrap_or_else(|| {
            let record = RecordBuilder::new(RecordKind::PageChange, xid);
            Box::new(Scratch { record, ops: Vec::new() })
        });
        Ok(CriticalSection {
            log,
            xid,
            reservation: Some(reservation),
            redo_seen: log.wal.redo_point(),
            pages: SmallVec::new(),
            data: Vec::new(),
            scratch: Some(scratch),
            changed: false,
        })
    }

    /// Takes a page in. From here on it counts as changed: it is dirty before its record is in the
    /// log, so a checkpoint whose redo point comes after the record will write it.
    pub fn add(&mut self, guard: ExclusiveGuard<'e>) -> usize {
        self.admit(guard, None)
    }

    /// Takes in a page that the operations build anew: both here and in replay the first operation
    /// finds zeros.
    pub fn add_init(&mut self, guard: ExclusiveGuard<'e>, class: PageClass) -> usize {
        self.admit(guard, Some(class))
    }

    fn admit(&mut self, guard: ExclusiveGuard<'e>, init: Option<PageClass>) -> usize {
        let pin = guard.pin();
        let desc = pin.pool().frames().desc(pin.frame_no());
        let logged = desc.flags() & UNLOGGED == 0;
        desc.set(DIRTY | JUST_DIRTIED);
        desc.extras.note_change();
        let image =
            logged && init.is_none() && self.log.full_page_writes && guard.lsn() <= self.redo_seen;
        let ops = self.scratch.as_mut().and_then(|s| s.ops.pop()).unwrap_or_default();
        self.pages.push(Entry { guard, init, logged, image, started: false, ops });
        self.pages.len() - 1
    }

    pub fn page(&self, at: usize) -> &Page {
        &self.pages[at].guard
    }

    /// The volatile knowledge about a page of this section.
    pub fn frame(&self, at: usize) -> &FrameExtras {
        self.pages[at].guard.frame()
    }

    /// Forgets what memory knows about a slot whose xmin or xmax changes.
    pub fn clear_hints(&self, at: usize, slot: SlotNo) {
        self.pages[at].guard.frame().clear_hints(slot);
    }

    /// Changes a page. An operation that does not fit was not checked beforehand, and ends the
    /// process.
    pub fn apply(&mut self, at: usize, op: &dyn PageOp) {
        self.changed = true;
        let entry = &mut self.pages[at];
        entry.start();
        if let Err(e) = op.apply(entry.guard.page_mut()) {
            end_process(&format!("page {:?} refused a change: {e}", entry.guard.id()));
        }
        // Once an image, always an image: the redo point does not move back.
        if entry.logged && !entry.image {
            op.encode(&mut entry.ops);
        }
    }

    /// Adds to the record's main data.
    pub fn data(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    /// Inserts the record and stamps the pages with its LSN. The pages stay latched: the guards
    /// come back in the order in which they were added.
    pub fn finish(mut self) -> (Lsn, SmallVec<[ExclusiveGuard<'e>; 4]>) {
        self.pages.iter_mut().for_each(Entry::start);
        let logged = self.pages.iter().any(|p| p.logged) || !self.data.is_empty();
        let lsn = if logged { self.insert() } else { Lsn::INVALID };
        self.reservation = None;
        let mut scratch = self.scratch.take();
        let mut guards = SmallVec::new();
        for mut entry in std::mem::take(&mut self.pages) {
            let pool = entry.guard.pin().pool();
            let stamp = if entry.logged { lsn } else { pool.next_fake_lsn() };
            entry.guard.page_mut().set_lsn(stamp);
            guards.push(entry.guard);
            if let Some(scratch) = &mut scratch {
                entry.ops.clear();
                scratch.ops.push(entry.ops);
            }
        }
        self.changed = false;
        SCRATCH.with(|s| *s.borrow_mut() = scratch);
        (lsn, guards)
    }

    fn insert(&mut self) -> Lsn {
        let mut reservation = self.reservation.take().expect("held from begin to finish");
        let scratch = self.scratch.as_mut().expect("held from begin to finish");
        loop {
            let record = &mut scratch.record;
            record.reset(RecordKind::PageChange, self.xid);
            record.set_compression(self.log.wal.options().compression);
            for entry in self.pages.iter().filter(|e| e.logged) {
                let page: &Page = &entry.guard;
                let class = page.class().unwrap_or(PageClass::Free);
                debug_assert!(entry.init.is_none_or(|c| c == class), "init of another class");
                let body =
                    if entry.image { BlockBody::Image(page) } else { BlockBody::Ops(&entry.ops) };
                record.block(entry.guard.id(), class, entry.init.is_some(), body);
            }
            record.data(&self.data);
            match self.log.wal.insert(record, reservation, self.redo_seen) {
                Ok(lsn) => return lsn,
                Err(moved) => {
                    reservation = moved.reservation;
                    self.redo_seen = moved.redo_point;
                }
            }
            for entry in self.pages.iter_mut().filter(|e| e.logged && e.init.is_none()) {
                entry.image |= self.log.full_page_writes && entry.guard.lsn() <= self.redo_seen;
            }
        }
    }
}

/// Sets bits that say nothing new, such as hints, in a page in memory, as the older hint policies
/// do. The page is dirty afterwards; true if it was clean before. The operation is not logged, so
/// it must be harmless to lose; but when this is the page's first change since the redo point, an
/// image of it is, because a torn write would otherwise be damage that nothing repairs.
///
/// The order is that of a critical section: dirty first, then the look at the redo point. A
/// checkpoint whose redo point comes after the look therefore meets a dirty page, waits for the
/// latch, and writes it; its own torn write is repaired from the image before that redo point.
pub fn set_bits_unlogged<'e>(
    log: &'e ChangeLog,
    mut guard: ExclusiveGuard<'e>,
    op: &dyn PageOp,
) -> Result<bool> {
    let desc = guard.pin().pool().frames().desc(guard.pin().frame_no());
    let flags = desc.flags();
    // No room for the image, or a log that failed: the bits can wait, the reader need not know.
    let Ok(room) = log.wal.reserve(PAGE_ROOM + DATA_ROOM) else { return Ok(false) };
    let mut room = Some(room);
    desc.set(DIRTY | JUST_DIRTIED);
    let id = guard.id();
    if let Err(e) = op.apply(guard.page_mut()) {
        return Err(StorageError::corrupt_page(id, e.what));
    }
    if flags & UNLOGGED == 0 && log.full_page_writes {
        let mut redo = log.wal.redo_point();
        while let Some(reservation) = room.take().filter(|_| guard.lsn() <= redo) {
            let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::INVALID);
            record.set_compression(log.wal.options().compression);
            let page: &Page = &guard;
            let class = page.class().unwrap_or(PageClass::Free);
            record.block(id, class, false, BlockBody::Image(page));
            match log.wal.insert(&record, reservation, redo) {
                Ok(lsn) => guard.page_mut().set_lsn(lsn),
                Err(moved) => {
                    redo = moved.redo_point;
                    room = Some(moved.reservation);
                }
            }
        }
    }
    Ok(flags & DIRTY == 0)
}

/// Puts a copy of another relation's page in place of this one, and its image into the log if this
/// relation is logged: how files are copied to change their persistence. An image says all, so it
/// does not matter what the page held, nor on which side of it the redo point moves.
pub fn install_page(
    log: &ChangeLog,
    xid: Xid,
    mut guard: ExclusiveGuard<'_>,
    source: &Page,
) -> Result<()> {
    let desc = guard.pin().pool().frames().desc(guard.pin().frame_no());
    let logged = desc.flags() & UNLOGGED == 0;
    let mut room = match logged {
        true => Some(log.wal.reserve(PAGE_ROOM + DATA_ROOM)?),
        false => None,
    };
    desc.set(DIRTY | JUST_DIRTIED);
    desc.extras.note_change();
    desc.extras.clear_all_hints();
    *guard.page_mut().bytes_mut() = *source.bytes();
    let mut stamp = guard.pin().pool().next_fake_lsn();
    let mut redo = log.wal.redo_point();
    while let Some(reservation) = room.take() {
        let mut record = RecordBuilder::new(RecordKind::PageChange, xid);
        record.set_compression(log.wal.options().compression);
        let class = source.class().unwrap_or(PageClass::Free);
        record.block(guard.id(), class, false, BlockBody::Image(source));
        match log.wal.insert(&record, reservation, redo) {
            Ok(lsn) => stamp = lsn,
            Err(moved) => {
                redo = moved.redo_point;
                room = Some(moved.reservation);
            }
        }
    }
    guard.page_mut().set_lsn(stamp);
    Ok(())
}

/// Changes a page the way a record says: replay's counterpart of a critical section. An error is
/// a damaged page or log; replay ends with it, and the page is not used.
pub(crate) fn replay_page(
    guard: &mut ExclusiveGuard<'_>,
    end: Lsn,
    change: impl FnOnce(&mut Page) -> Result<(), OpError>,
) -> Result<()> {
    let pin = guard.pin();
    let desc = pin.pool().frames().desc(pin.frame_no());
    desc.set(DIRTY | JUST_DIRTIED);
    desc.extras.note_change();
    desc.extras.clear_all_hints();
    change(guard.page_mut()).map_err(|e| StorageError::corrupt(e.what))?;
    guard.page_mut().set_lsn(end);
    Ok(())
}

impl fmt::Debug for CriticalSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriticalSection")
            .field("xid", &self.xid)
            .field("pages", &self.pages.iter().map(|p| p.guard.id()).collect::<Vec<_>>())
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}

impl Drop for CriticalSection<'_> {
    fn drop(&mut self) {
        if self.changed {
            end_process("a page was changed and its record not inserted");
        }
    }
}

/// Pages in memory say what the log does not: nothing may be read from them or written any more.
fn end_process(what: &str) -> ! {
    eprintln!("PANIC:  {what}");
    std::process::abort();
}
