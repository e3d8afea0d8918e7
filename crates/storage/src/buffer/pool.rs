//! The buffer pool: pages in memory, found by id, replaced by a clock sweep.
//!
//! ```text
//!   hit:   hash -> chain -> pin (one atomic) -> latch (one atomic)
//!   miss:  claim a victim -> write it back if dirty -> enter the new id -> read -> verify
//! ```
//!
//! Whoever enters a page id in the table holds the frame's exclusive latch until the bytes are
//! there, so a second reader of the same page finds the frame, waits for the latch, and looks
//! whether the read succeeded. Only one of them reads.
//!
//! Rules are numbered in `README.md`; facts F1..F4 in `frames.rs`.

use super::frames::{
    CLEANUP_WAIT, DIRTY, ExclusivePage, Frames, PIN_MASK, TAGGED, UNLOGGED, USAGE_MASK, USAGE_ONE,
    VALID,
};
use super::guards::{ExclusiveGuard, PinGuard, ShareGuard};
use super::relfiles::{Persistence, RelFile, RelFiles};
use super::stats::{PoolCounters, PoolStats, PoolUsage};
use super::table::PageTable;
use super::writeback::Patience;
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, PageId, RelId};
use crate::page::Page;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, thread};
use crate::vfs::Vfs;
use crate::wal::Wal;
use std::sync::OnceLock;

/// What the pool needs from the log: WAL before data.
pub trait LogFlush: Send + Sync {
    /// Makes the log durable up to `lsn`.
    fn flush_to(&self, lsn: Lsn) -> Result<()>;

    /// A data file has failed: no commit may be accepted any more.
    fn fail(&self, error: StorageError);
}

impl LogFlush for Wal {
    fn flush_to(&self, lsn: Lsn) -> Result<()> {
        self.flush(lsn)
    }

    fn fail(&self, error: StorageError) {
        Wal::fail(self, error);
    }
}

/// Called with the copy of a page that is about to be written; see `heap/` for its use: hints of
/// transactions whose fate is durable.
pub type WriteBackHook = dyn Fn(&mut Page, PageId) -> Lsn + Send + Sync;

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Number of 8 KiB frames.
    pub frames: usize,
    /// Verify checksums of pages read, and stamp them on pages written.
    pub checksums: bool,
    /// fsync data files. Off only where losing everything in a power failure is accepted.
    pub fsync: bool,
    /// Relation files that may be open at a time.
    pub open_files: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { frames: 16384, checksums: true, fsync: true, open_files: 800 }
    }
}

/// The fewest frames that work: a B-tree split holds a handful of pages, times a few sessions.
pub const FRAMES_MIN: usize = if cfg!(shuttle) { 2 } else { 16 };

/// Passes over all frames, with a pause after each, before "everything is pinned" is an error.
const CLAIM_PASSES: usize = 60;

pub struct BufferPool {
    pub(super) frames: Frames,
    pub(super) table: PageTable,
    pub(super) hand: AtomicUsize,
    pub(super) files: RelFiles,
    checksums: bool,
    pub(super) log: OnceLock<Arc<dyn LogFlush>>,
    pub(super) hook: OnceLock<Box<WriteBackHook>>,
    /// Source of LSNs for pages that are not logged.
    fake_lsn: AtomicU64,
    cleanup: Mutex<()>,
    pin_dropped: Condvar,
    pub(super) counters: PoolCounters,
}

/// A frame without a page, the holder's alone. Dropped, it is free again.
pub(super) struct Claimed<'p> {
    pool: &'p BufferPool,
    frame: u32,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.pool.frames.desc(self.frame).unpin();
    }
}

impl<'p> Claimed<'p> {
    /// Takes over a frame that was pinned and emptied.
    pub(super) fn adopt(pool: &'p BufferPool, frame: u32) -> Self {
        Claimed { pool, frame }
    }

    pub(super) fn frame(&self) -> u32 {
        self.frame
    }
}

/// What came of entering a page id in the table.
pub(super) enum Entered<'p> {
    Mine(PinGuard<'p>, ExclusivePage<'p>),
    Found(PinGuard<'p>),
}

impl BufferPool {
    pub fn new(vfs: Arc<dyn Vfs>, options: &PoolOptions) -> Self {
        let frames = options.frames.max(FRAMES_MIN);
        BufferPool {
            frames: Frames::new(frames),
            table: PageTable::new(frames),
            hand: AtomicUsize::new(0),
            files: RelFiles::new(vfs, options.open_files, options.fsync),
            checksums: options.checksums,
            log: OnceLock::new(),
            hook: OnceLock::new(),
            fake_lsn: AtomicU64::new(Lsn::ALIGN),
            cleanup: Mutex::new(()),
            pin_dropped: Condvar::new(),
            counters: PoolCounters::default(),
        }
    }

    /// Connects the log; until then pages are written without asking it (replay, whose log is
    /// durable already). Once.
    pub fn set_log(&self, log: Arc<dyn LogFlush>) {
        self.files.set_log(Arc::clone(&log));
        assert!(self.log.set(log).is_ok(), "the pool has its log already");
    }

    /// Installs the write-back hook. Once.
    pub fn set_write_back_hook(&self, hook: Box<WriteBackHook>) {
        assert!(self.hook.set(hook).is_ok(), "the pool has its write-back hook already");
    }

    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    pub fn stats(&self) -> PoolStats {
        self.counters.read()
    }

    /// How the frames are used at this moment.
    pub fn usage(&self) -> PoolUsage {
        let mut usage = PoolUsage { frames: self.frames.len(), ..PoolUsage::default() };
        for frame in 0..self.frames.len() as u32 {
            let flags = self.frames.desc(frame).flags();
            usage.used += usize::from(flags & TAGGED != 0);
            usage.dirty += usize::from(flags & DIRTY != 0);
            usage.pinned += usize::from(flags & PIN_MASK != 0);
        }
        usage
    }

    pub(super) fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Whether changes to the relation go to the log.
    pub fn persistence(&self, rel: RelId) -> Persistence {
        self.files.persistence(rel)
    }

    /// The next stand-in for a log position, for pages that are not logged: larger than all before,
    /// and not to be compared with log positions.
    pub(super) fn next_fake_lsn(&self) -> Lsn {
        Lsn::new(self.fake_lsn.fetch_add(Lsn::ALIGN, Ordering::Relaxed) + Lsn::ALIGN)
    }

    // ---- Pins ----------------------------------------------------------------------------

    /// Pins a page, reading it if need be.
    #[inline]
    pub fn read(&self, id: PageId) -> Result<PinGuard<'_>> {
        if let Some((frame, before)) = self.table.pin_optimistic(&self.frames, id) {
            let pin = PinGuard::adopt(self, frame);
            if before & VALID != 0 {
                self.counters.hit(frame);
                return Ok(pin);
            }
            drop(pin);
        }
        self.read_slow(id)
    }

    /// Pins and latches for reading.
    #[inline]
    pub fn share(&self, id: PageId) -> Result<ShareGuard<'_>> {
        Ok(self.read(id)?.share())
    }

    /// Pins and latches for change.
    #[inline]
    pub fn exclusive(&self, id: PageId) -> Result<ExclusiveGuard<'_>> {
        Ok(self.read(id)?.exclusive())
    }

    /// The page if it is in memory already.
    pub fn read_resident(&self, id: PageId) -> Option<PinGuard<'_>> {
        if let Some((frame, before)) = self.table.pin_optimistic(&self.frames, id) {
            let pin = PinGuard::adopt(self, frame);
            if before & VALID != 0 {
                return Some(pin);
            }
        }
        let pin = self.pin_resident(id)?;
        self.wait_loaded(&pin).then_some(pin)
    }

    #[cold]
    fn read_slow(&self, id: PageId) -> Result<PinGuard<'_>> {
        self.read_missing(id, || self.claim())
    }

    /// Reads a page into a frame that `claim` finds, unless somebody else does or has.
    pub(super) fn read_missing<'p>(
        &'p self,
        id: PageId,
        mut claim: impl FnMut() -> Result<Claimed<'p>>,
    ) -> Result<PinGuard<'p>> {
        loop {
            if let Some(pin) = self.pin_resident(id) {
                if self.wait_loaded(&pin) {
                    self.counters.hit(pin.frame_no());
                    return Ok(pin);
                }
                // The other reader failed. Try it ourselves, to have the error ourselves.
                drop(pin);
                thread::yield_now();
                continue;
            }
            let file = self.files.get(id.rel, id.fork)?;
            if id.block >= file.blocks() {
                return Err(RelFiles::beyond_end(id, file.blocks()));
            }
            let claimed = claim()?;
            match self.enter(claimed, id, &file) {
                Entered::Found(pin) => {
                    if self.wait_loaded(&pin) {
                        return Ok(pin);
                    }
                }
                Entered::Mine(pin, page) => return self.load(pin, page, id, &file),
            }
        }
    }

    fn pin_resident(&self, id: PageId) -> Option<PinGuard<'_>> {
        let bucket = self.table.bucket(id);
        let frame = bucket.find(&self.frames, id)?;
        self.frames.desc(frame).pin();
        Some(PinGuard::adopt(self, frame))
    }

    /// Waits until the page's reader is done; tells whether it succeeded.
    pub(super) fn wait_loaded(&self, pin: &PinGuard<'_>) -> bool {
        let desc = self.frames.desc(pin.frame_no());
        if desc.flags() & VALID != 0 {
            return true;
        }
        drop(self.frames.share(pin.frame_no()));
        desc.flags() & VALID != 0
    }

    /// Enters `id` for a claimed frame, unless somebody else has it.
    pub(super) fn enter<'p>(
        &'p self,
        claimed: Claimed<'p>,
        id: PageId,
        file: &RelFile,
    ) -> Entered<'p> {
        let frame = claimed.frame;
        // Nobody else latches a frame without a page.
        let page = self.frames.exclusive(frame);
        let desc = self.frames.desc(frame);
        desc.extras.reset();
        let bucket = self.table.bucket(id);
        if let Some(other) = bucket.find(&self.frames, id) {
            self.frames.desc(other).pin();
            return Entered::Found(PinGuard::adopt(self, other));
        }
        desc.set_tag(id);
        let unlogged = if file.persistence().is_logged() { 0 } else { UNLOGGED };
        bucket.insert(&self.frames, frame, TAGGED | USAGE_ONE | unlogged);
        std::mem::forget(claimed);
        Entered::Mine(PinGuard::adopt(self, frame), page)
    }

    /// Fills a frame that `enter` made ours.
    fn load<'p>(
        &'p self,
        pin: PinGuard<'p>,
        mut page: ExclusivePage<'p>,
        id: PageId,
        file: &RelFile,
    ) -> Result<PinGuard<'p>> {
        self.counters.reads.add();
        let outcome = self.files.read(file, id.block, page.page_mut()).and_then(|()| {
            let found = page.verify(id, self.checksums);
            found.map_err(|what| StorageError::corrupt_page(id, what))
        });
        match outcome {
            Ok(()) => {
                self.frames.desc(pin.frame_no()).set(VALID);
                Ok(pin)
            }
            Err(e) => {
                self.table.bucket(id).remove_failed(&self.frames, pin.frame_no());
                Err(e)
            }
        }
    }

    #[inline]
    pub(super) fn unpin(&self, frame: u32) {
        let after = self.frames.desc(frame).unpin();
        if after & CLEANUP_WAIT != 0 && after & PIN_MASK == 1 {
            self.wake_cleanup(frame);
        }
    }

    #[cold]
    fn wake_cleanup(&self, frame: u32) {
        let _lock = self.cleanup.lock();
        self.frames.desc(frame).clear(CLEANUP_WAIT);
        self.pin_dropped.notify_all();
    }

    pub(super) fn pin_count(&self, frame: u32) -> u64 {
        self.frames.desc(frame).flags() & PIN_MASK
    }

    /// Waits until the caller's is the only pin on the frame; it may not stay so.
    pub(super) fn wait_for_sole_pin(&self, frame: u32) {
        let desc = self.frames.desc(frame);
        let mut lock = self.cleanup.lock();
        while desc.flags() & PIN_MASK > 1 {
            // Set, then look again: whoever unpins in between sees the flag and must come through
            // this mutex.
            desc.set(CLEANUP_WAIT);
            if desc.flags() & PIN_MASK <= 1 {
                break;
            }
            self.pin_dropped.wait(&mut lock);
        }
    }

    // ---- Replacement ---------------------------------------------------------------------

    /// Finds a frame to put a page in: free, or the clock's choice of victim.
    pub(super) fn claim(&self) -> Result<Claimed<'_>> {
        let count = self.frames.len();
        let mut failure = None;
        for _ in 0..CLAIM_PASSES {
            let mut idle = 0;
            while idle <= count {
                let frame = (self.hand.fetch_add(1, Ordering::Relaxed) % count) as u32;
                idle += 1;
                let desc = self.frames.desc(frame);
                let seen = desc.flags();
                if seen & PIN_MASK != 0 {
                    continue;
                }
                if seen & USAGE_MASK != 0 {
                    // Progress: this one is nearer to being a victim.
                    desc.swap_state(seen, seen - USAGE_ONE);
                    idle = 0;
                    continue;
                }
                if seen & DIRTY != 0 && failure.is_some() || !desc.swap_state(seen, seen + 1) {
                    continue;
                }
                match self.evict(frame) {
                    Ok(true) => {
                        self.counters.allocations.add();
                        return Ok(Claimed { pool: self, frame });
                    }
                    Ok(false) => self.unpin(frame),
                    Err(e) => {
                        self.unpin(frame);
                        failure = Some(e);
                    }
                }
            }
            if failure.is_some() {
                break;
            }
            thread::yield_now();
        }
        Err(failure.unwrap_or_else(|| StorageError::Resource {
            what: "no unpinned buffers available".to_owned(),
            hint: "Consider increasing the configuration parameter \"shared_buffers\".",
        }))
    }

    /// Empties a frame that the caller has pinned alone. `false`: somebody else wants the page.
    pub(super) fn evict(&self, frame: u32) -> Result<bool> {
        let desc = self.frames.desc(frame);
        let seen = desc.flags();
        if seen & TAGGED == 0 {
            return Ok(true);
        }
        if seen & DIRTY != 0 {
            // Without waiting for the latch: its holder may wait for a page that we hold.
            if self.write_back(frame, Patience::Try)? {
                self.counters.evict_writes.add();
            }
        }
        let bucket = self.table.bucket(desc.tag());
        let gone = bucket.remove_if_sole(&self.frames, frame, DIRTY);
        if gone {
            self.counters.evictions.add();
        }
        Ok(gone)
    }
}
