//! Writing pages: on the way out of memory, ahead of the clock hand, and for checkpoints.
//!
//! ```text
//!   frame ──copy, share latch──> copy ──log flushed to its LSN──> hints ──> checksum ──> file
//! ```
//!
//! Whoever prepares the copy looks at every tuple and may find that all of them are visible to
//! everybody; the frame then gets that as its summary, unless the page has changed meanwhile.
//!
//! The page in memory is not touched, and can change again as soon as the copy is taken. `DIRTY`
//! stays until the write has succeeded, so that a checkpoint that meets the frame meanwhile waits
//! for it; it stays for good if the page changed since the copy, or if the write failed.
//!
//! Order of locks: a frame's `io` mutex, then its latch. A writer that was asked not to wait tries
//! both: it may be a reader in need of a frame, whose other latches the page's holder waits for.

use super::frames::{CHECKPOINT, DIRTY, JUST_DIRTIED, PIN_MASK, TAGGED, UNLOGGED, USAGE_MASK};
use super::guards::PinGuard;
use super::pool::BufferPool;
use super::relfiles::Persistence;
use crate::error::Result;
use crate::ids::{Lsn, PageId, RelId};
use crate::page::Page;
use crate::sync::atomic::Ordering;

/// Whether a write-back may wait for the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    Try,
}

/// Which dirty pages a checkpoint writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DirtyPages {
    /// Those that replay would have to bring back.
    Logged,
    /// Unlogged ones too: the server stops, and they survive a clean stop. Temporary ones are left
    /// alone: their sessions are gone, or end with the server.
    All,
}

/// A page that a checkpoint has to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToWrite {
    pub id: PageId,
    frame: u32,
}

/// What making files durable took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    pub files: u64,
    pub micros: u64,
    pub longest_micros: u64,
}

/// What the background writer found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cleaned {
    /// Pages written.
    pub written: usize,
    /// Frames that can be taken at once, clean.
    pub reusable: usize,
    /// It ended because it had written as many as it might.
    pub cut_short: bool,
}

impl BufferPool {
    /// Writes a frame's page if it is dirty. The caller holds a pin. `Ok(false)`: nothing written,
    /// either because it was clean or, with `Patience::Try`, because it is in use.
    pub(crate) fn write_back(&self, frame: u32, patience: Patience) -> Result<bool> {
        let desc = self.frames.desc(frame);
        let _io = match patience {
            Patience::Wait => desc.io.lock(),
            Patience::Try => match desc.io.try_lock() {
                Some(lock) => lock,
                None => return Ok(false),
            },
        };
        let page = match patience {
            Patience::Wait => self.frames.share(frame),
            Patience::Try => match self.frames.try_share(frame) {
                Some(page) => page,
                None => return Ok(false),
            },
        };
        let flags = desc.flags();
        if flags & DIRTY == 0 {
            return Ok(false);
        }
        let id = desc.tag();
        desc.clear(JUST_DIRTIED);
        let mut copy = Page::clone(&page);
        let changes = desc.extras.change_counter();
        drop(page);
        let summary = self.write_copy(&mut copy, id, flags & UNLOGGED == 0)?;
        if summary.is_valid()
            && let Some(_page) = self.frames.try_share(frame)
        {
            desc.extras.set_summary(summary, changes);
        }
        let mut seen = desc.flags();
        loop {
            // What changed since the copy is not in the file: a checkpoint that has begun meanwhile
            // still has to write it.
            let done = if seen & JUST_DIRTIED == 0 { DIRTY | CHECKPOINT } else { 0 };
            if desc.swap_state(seen, seen & !done) {
                break;
            }
            seen = desc.flags();
        }
        Ok(true)
    }

    /// WAL, hints, checksum, write: in this order, on a private copy. The result is the page's
    /// summary, if looking at it gave one.
    fn write_copy(&self, copy: &mut Page, id: PageId, logged: bool) -> Result<Lsn> {
        if logged && let Some(log) = self.log.get() {
            log.flush_to(copy.lsn())?;
        }
        let summary = self.hook.get().map_or(Lsn::INVALID, |hook| hook(copy, id));
        copy.stamp_checksum(id.block);
        let file = self.files.get(id.rel, id.fork)?;
        self.counters.writes.add();
        self.files.write(&file, id.block, copy)?;
        Ok(summary)
    }

    /// Writes one page now, if it is in memory and dirty.
    pub fn flush_page(&self, id: PageId) -> Result<bool> {
        match self.read_resident(id) {
            Some(pin) => self.write_back(pin.frame_no(), Patience::Wait),
            None => Ok(false),
        }
    }

    /// Marks and lists the pages that are dirty now, in file order.
    pub(crate) fn mark_dirty_pages(&self, which: DirtyPages) -> Vec<ToWrite> {
        let mut found = Vec::new();
        for frame in 0..self.frames.len() as u32 {
            let desc = self.frames.desc(frame);
            let flags = desc.flags();
            if flags & DIRTY == 0 || flags & UNLOGGED != 0 && which == DirtyPages::Logged {
                continue;
            }
            // The pin keeps the tag in place while it is read.
            let before = desc.pin_quietly();
            let pin = PinGuard::adopt(self, frame);
            let wanted = before & TAGGED != 0 && before & DIRTY != 0;
            let temporary = || self.files.persistence(pin.id().rel) == Persistence::Temporary;
            if wanted && !(before & UNLOGGED != 0 && temporary()) {
                desc.set(CHECKPOINT);
                found.push(ToWrite { id: pin.id(), frame });
            }
        }
        found.sort_unstable_by_key(|w| (w.id.rel, w.id.fork as u8, w.id.block));
        found
    }

    /// Writes one of the pages listed, unless somebody has done so since. May wait for its latch.
    pub(crate) fn write_marked(&self, page: ToWrite) -> Result<bool> {
        let desc = self.frames.desc(page.frame);
        let before = desc.pin_quietly();
        let pin = PinGuard::adopt(self, page.frame);
        if before & TAGGED == 0 || before & CHECKPOINT == 0 {
            return Ok(false);
        }
        self.write_back(pin.frame_no(), Patience::Wait)
    }

    /// Writes dirty pages that the clock hand will come to soon, so that whoever needs a frame
    /// finds clean ones: at most `max_writes`, looking at `look` frames. `pages` gets what was
    /// written.
    pub(crate) fn clean_ahead(
        &self,
        look: usize,
        max_writes: usize,
        pages: &mut Vec<PageId>,
    ) -> Result<Cleaned> {
        let count = self.frames.len();
        let start = self.hand.load(Ordering::Relaxed);
        let mut cleaned = Cleaned::default();
        for ahead in 0..look.min(count) {
            let frame = ((start + ahead) % count) as u32;
            let desc = self.frames.desc(frame);
            let flags = desc.flags();
            if flags & (PIN_MASK | USAGE_MASK) != 0 {
                continue;
            }
            if flags & DIRTY != 0 {
                if cleaned.written >= max_writes {
                    cleaned.cut_short = true;
                    break;
                }
                desc.pin_quietly();
                let pin = PinGuard::adopt(self, frame);
                let id = pin.id();
                if self.write_back(pin.frame_no(), Patience::Try)? {
                    self.counters.cleaner_writes.add();
                    cleaned.written += 1;
                    pages.push(id);
                }
            }
            cleaned.reusable += 1;
        }
        Ok(cleaned)
    }

    /// Has the kernel map frames that nobody has used yet, by their numbers.
    pub(crate) fn map_frames(&self, from: usize, to: usize) {
        self.frames.populate(from, to);
    }

    /// Frames handed out since start-up: how far the clock hand has come.
    pub(crate) fn hand_position(&self) -> usize {
        self.hand.load(Ordering::Relaxed)
    }

    /// Writes all dirty pages of one relation, whatever their persistence.
    pub fn flush_rel(&self, rel: RelId) -> Result<()> {
        for frame in 0..self.frames.len() as u32 {
            let desc = self.frames.desc(frame);
            if desc.flags() & DIRTY == 0 || desc.tag().rel != rel {
                continue;
            }
            desc.pin_quietly();
            let pin = PinGuard::adopt(self, frame);
            if desc.flags() & TAGGED != 0 && pin.id().rel == rel {
                self.write_back(frame, Patience::Wait)?;
            }
        }
        Ok(())
    }
}
