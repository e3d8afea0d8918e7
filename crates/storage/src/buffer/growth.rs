//! Pages that come and go: extension, replay's pages, truncation, removal.
//!
//! A fork's length is published only when its new last page can be found in memory, so whoever
//! reads the length can read every page before it.

use super::frames::{ExclusivePage, TAGGED, VALID};
use super::guards::{ExclusiveGuard, PinGuard};
use super::pool::{BufferPool, Entered};
use super::relfiles::{Persistence, RelFile, RelFiles};
use super::writeback::Synced;
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, PageId, RelId};
use crate::page::PAGE_SIZE;
use crate::sync::{Arc, thread};
use crate::vfs::{Clock, OpenMode, Vfs};

impl BufferPool {
    /// How many blocks a fork has; 0 when it was never written.
    pub fn block_count(&self, rel: RelId, fork: Fork) -> Result<BlockNo> {
        Ok(self.files.find(rel, fork)?.map_or(0, |file| file.blocks()))
    }

    /// Whether a fork has a file.
    pub fn fork_exists(&self, rel: RelId, fork: Fork) -> Result<bool> {
        Ok(self.files.find(rel, fork)?.is_some())
    }

    fn growable(&self, rel: RelId, fork: Fork) -> Result<Arc<RelFile>> {
        match fork {
            // Created with its relation, and with nothing else.
            Fork::Main => self.files.get(rel, fork),
            _ => self.files.get_or_create(rel, fork),
        }
    }

    /// Adds a page of zeros at the end. Space on the device is reserved first: a full disk is an
    /// error here, and leaves everything as it was.
    pub fn extend(&self, rel: RelId, fork: Fork) -> Result<ExclusiveGuard<'_>> {
        let file = self.growable(rel, fork)?;
        loop {
            // A victim first: writing it back may take long, and others want to extend.
            let claimed = self.claim()?;
            let mut growing = self.files.grow(&file);
            let block = growing.next_block();
            growing.reserve(block + 1, false)?;
            match self.enter(claimed, PageId::new(rel, fork, block), &file) {
                Entered::Mine(pin, page) => {
                    let guard = self.finish_zeroed(pin, page);
                    growing.publish(block + 1);
                    return Ok(guard);
                }
                // Somebody looked beyond the end just before a truncation. Let them fail.
                Entered::Found(pin) => {
                    drop(growing);
                    drop(pin);
                    self.discard(rel, |id| id.fork == fork && id.block >= file.blocks());
                }
            }
        }
    }

    /// A page for replay: whatever is (or is not) on disk, extending the file to reach it. A page
    /// that fails its checks is an error, as in [`Self::read`].
    pub fn read_or_zero(&self, id: PageId) -> Result<ExclusiveGuard<'_>> {
        let file = self.files.get_or_create(id.rel, id.fork)?;
        if id.block < file.blocks() { self.exclusive(id) } else { self.overwrite(id) }
    }

    /// A page for replay whose old contents do not matter, because the record has all of it. A
    /// torn page on disk is not even looked at; what the guard shows is unspecified.
    pub fn overwrite(&self, id: PageId) -> Result<ExclusiveGuard<'_>> {
        let file = self.files.get_or_create(id.rel, id.fork)?;
        loop {
            if let Some(pin) = self.read_resident(id) {
                return Ok(pin.exclusive());
            }
            let claimed = self.claim()?;
            let mut growing = self.files.grow(&file);
            growing.reserve(id.block.saturating_add(1), false)?;
            if let Entered::Mine(pin, page) = self.enter(claimed, id, &file) {
                let guard = self.finish_zeroed(pin, page);
                growing.publish(id.block + 1);
                return Ok(guard);
            }
        }
    }

    fn finish_zeroed<'p>(
        &'p self,
        pin: PinGuard<'p>,
        mut page: ExclusivePage<'p>,
    ) -> ExclusiveGuard<'p> {
        page.page_mut().bytes_mut().fill(0);
        self.frames.desc(pin.frame_no()).set(VALID);
        ExclusiveGuard::from_parts(page, pin)
    }

    /// Makes an empty relation. Its file must not exist.
    pub fn create_rel(&self, rel: RelId, persistence: Persistence) -> Result<()> {
        self.files.create(rel, persistence, false)
    }

    /// Whether a relation has its main file.
    pub fn rel_exists(&self, rel: RelId) -> bool {
        self.files.exists(rel)
    }

    /// Makes the init fork a copy of the main fork as it is on disk, durably.
    pub(crate) fn copy_main_to_init(&self, rel: RelId, fsync: bool) -> Result<()> {
        let path = |fork| RelFiles::path_of(rel, fork, self.files.persistence(rel));
        let vfs = &**self.files.vfs();
        let blocks = self.block_count(rel, Fork::Main)?;
        copy_file(vfs, &path(Fork::Main), &path(Fork::Init), u64::from(blocks), fsync)?;
        if fsync { self.files.sync_names() } else { Ok(()) }
    }

    /// Makes every file written since it was last synced durable, and the names of all.
    pub(crate) fn sync_files(&self, clock: &dyn Clock) -> Result<Synced> {
        let mut synced = Synced::default();
        for file in &self.files.unsynced() {
            let begun = clock.monotonic_micros();
            self.files.sync(file)?;
            let micros = clock.monotonic_micros().saturating_sub(begun);
            synced.files += 1;
            synced.micros += micros;
            synced.longest_micros = synced.longest_micros.max(micros);
        }
        self.files.sync_names()?;
        Ok(synced)
    }

    /// Asks the kernel to begin writing a range of a fork.
    pub(crate) fn start_write_back(&self, rel: RelId, fork: Fork, block: BlockNo, blocks: u32) {
        if let Ok(Some(file)) = self.files.find(rel, fork) {
            self.files.start_write_back(&file, block, blocks);
        }
    }

    /// Fails once an fsync of a data file has failed.
    pub fn check_failed(&self) -> Result<()> {
        self.files.check_failed()
    }

    /// Makes an empty relation unless its files are there already: replay.
    pub(crate) fn replay_create_rel(&self, rel: RelId, persistence: Persistence) -> Result<()> {
        self.files.create(rel, persistence, true)
    }

    /// Drops pages and handles of a relation whose files are about to be replaced.
    pub(crate) fn forget_rel(&self, rel: RelId) {
        self.drop_rel_buffers(rel);
        self.files.forget(rel);
    }

    /// What a file name in `base/` stands for: relation, fork, whether it is temporary.
    pub(crate) fn parse_file_name(name: &str) -> Option<(RelId, Fork, bool)> {
        RelFiles::parse_name(name)
    }

    pub(crate) fn file_path(rel: RelId, fork: Fork, persistence: Persistence) -> String {
        RelFiles::path_of(rel, fork, persistence)
    }

    /// Cuts a fork to `blocks` blocks. The caller has locked the relation against everybody, holds
    /// no guard on its pages, and has logged the truncation.
    pub fn truncate(&self, rel: RelId, fork: Fork, blocks: BlockNo) -> Result<()> {
        let Some(file) = self.files.find(rel, fork)? else { return Ok(()) };
        let shrinking = self.files.shrink(&file, blocks);
        self.discard(rel, |id| id.fork == fork && id.block >= blocks);
        shrinking.finish()
    }

    /// Forgets a relation's pages, changed or not. Nobody uses the relation any more.
    pub fn drop_rel_buffers(&self, rel: RelId) {
        let forks: Vec<(Fork, BlockNo)> = self.files.opened(rel);
        let blocks: u64 = forks.iter().map(|(_, blocks)| u64::from(*blocks)).sum();
        if blocks > self.frames.len() as u64 / 4 {
            self.discard(rel, |_| true);
            return;
        }
        // A small relation: asking for its pages is less work than looking at all frames. A file
        // that was never opened has no pages in memory.
        for (fork, blocks) in forks {
            for block in 0..blocks {
                let id = PageId::new(rel, fork, block);
                loop {
                    // In a statement of its own, so that the bucket is unlocked afterwards.
                    let found = self.table.bucket(id).find(&self.frames, id);
                    let Some(frame) = found else { break };
                    self.discard_frame(frame, rel, &|_| true);
                }
            }
        }
    }

    /// Cuts all of a relation's forks to nothing. Its pages go unwritten, so this is for a relation
    /// that only its caller uses, and that no log brings back: a temporary one.
    pub fn empty_rel(&self, rel: RelId) -> Result<()> {
        let forks = self.files.opened(rel);
        self.drop_rel_buffers(rel);
        for (fork, _) in forks {
            let file = self.files.get(rel, fork)?;
            self.files.shrink(&file, 0).finish()?;
        }
        Ok(())
    }

    /// Removes a relation's pages from memory and its files from disk. Nobody uses it any more, and
    /// what says so is durable.
    pub fn unlink_rel(&self, rel: RelId) -> Result<()> {
        self.drop_rel_buffers(rel);
        self.files.unlink(rel)
    }

    /// Empties the frames of some of a relation's pages. Waits for writers and others with a short
    /// interest (they hold pins); must not be called with a guard on one of the pages.
    fn discard(&self, rel: RelId, wanted: impl Fn(PageId) -> bool) {
        for frame in 0..self.frames.len() as u32 {
            self.discard_frame(frame, rel, &wanted);
        }
    }

    fn discard_frame(&self, frame: u32, rel: RelId, wanted: &impl Fn(PageId) -> bool) {
        let desc = self.frames.desc(frame);
        if desc.flags() & TAGGED == 0 || desc.tag().rel != rel {
            return;
        }
        let before = desc.pin_quietly();
        let pin = PinGuard::adopt(self, frame);
        let id = pin.id();
        if before & TAGGED == 0 || id.rel != rel || !wanted(id) {
            return;
        }
        while !self.table.bucket(id).remove_if_sole(&self.frames, frame, 0) {
            // A loader whose read failed takes the page out itself.
            if desc.flags() & TAGGED == 0 {
                return;
            }
            thread::yield_now();
        }
    }
}

const COPY_STEP: u64 = 256 << 10;

/// Makes `to` a copy of the first `blocks` blocks of `from`.
pub(crate) fn copy_file(
    vfs: &dyn Vfs,
    from: &str,
    to: &str,
    blocks: u64,
    fsync: bool,
) -> Result<()> {
    let open =
        |path, mode| vfs.open(path, mode).map_err(|e| StorageError::io("open file", path, e));
    let (source, target) = (open(from, OpenMode::Open)?, open(to, OpenMode::OpenOrCreate)?);
    let write = |e| StorageError::io("write file", to, e);
    target.set_len(0).map_err(write)?;
    let mut buffer = vec![0; COPY_STEP as usize];
    let end = blocks * PAGE_SIZE as u64;
    let mut at = 0;
    while at < end {
        let want = COPY_STEP.min(end - at) as usize;
        source
            .read_exact_at(&mut buffer[..want], at)
            .map_err(|e| StorageError::io("read file", from, e))?;
        target.write_at(&buffer[..want], at).map_err(write)?;
        at += want as u64;
    }
    if fsync {
        target.sync().map_err(|e| StorageError::failed_sync("fsync file", to, e))?;
    }
    Ok(())
}
