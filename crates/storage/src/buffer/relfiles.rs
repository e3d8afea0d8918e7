//! Relation files: names, handles, lengths.
//!
//! ```text
//!   base/16400        main fork          base/16400_fsm   free space
//!   base/16400_vm     visibility         base/16400_init  what an unlogged relation restarts from
//!   base/t16401...    a temporary relation's: removed at start-up, whatever is in them
//!
//!   | blocks in use .......... | reserved, zeros |
//!                              ^ blocks()        ^ end of the file
//! ```
//!
//! - A file grows in chunks that are reserved on the device before any page of them is handed
//!   out: a full disk shows when a relation grows, never when a page is written back.
//! - `blocks()` is kept in memory. When a file is first opened, zero pages at its end are taken
//!   for reserved ones (see the README's crash argument).
//! - A file that was written since its last fsync is `needs_sync`; the flag is set *before* the
//!   write, and cleared by the checkpointer *before* the fsync. A temporary relation's never is.
//! - A failed write or fsync stops the log: no commit is accepted until a restart. After a failed
//!   fsync moreover nothing read from data files is believed any more: the kernel may have dropped
//!   the pages that it could not write. A write that finds the disk full is tried again.
//! - Handles are kept open up to a limit; the least recently used that needs no fsync is closed.

use super::pool::LogFlush;
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, Lsn, PageId, RelId};
use crate::page::{PAGE_SIZE, Page};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, RwLock};
use crate::vfs::{OpenMode, Vfs, VfsFile};
use std::collections::HashMap;
use std::io;
use std::sync::OnceLock;

/// How much of a relation outlives a crash, and who sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Persistence {
    /// Logged; survives.
    Permanent = 0,
    /// Not logged; empty (its init fork) after a crash.
    Unlogged = 1,
    /// Not logged, one session's; gone after a restart.
    Temporary = 2,
}

impl Persistence {
    pub const fn is_logged(self) -> bool {
        matches!(self, Persistence::Permanent)
    }

    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Persistence::Permanent),
            1 => Some(Persistence::Unlogged),
            2 => Some(Persistence::Temporary),
            _ => None,
        }
    }
}

pub(crate) const BASE_DIR: &str = "base";
const PAGE_BYTES: u64 = PAGE_SIZE as u64;
/// Largest step by which a file grows: 2 MiB.
const CHUNK_MAX: u32 = 256;
/// PostgreSQL's limit too: one block number stays free to mean "none".
const BLOCKS_MAX: u32 = u32::MAX - 1;

/// One fork's file.
pub(crate) struct RelFile {
    rel: RelId,
    fork: Fork,
    path: String,
    persistence: Persistence,
    blocks: AtomicU32,
    /// Blocks that the file has on disk; locked while it grows or shrinks.
    reserved: Mutex<u32>,
    handle: Mutex<Option<Arc<dyn VfsFile>>>,
    needs_sync: AtomicBool,
    last_used: AtomicU64,
    gone: AtomicBool,
}

impl RelFile {
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    #[inline]
    pub fn blocks(&self) -> BlockNo {
        self.blocks.load(Ordering::Acquire)
    }

    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub fn needs_sync(&self) -> bool {
        self.needs_sync.load(Ordering::Acquire)
    }

    /// The file is about to be written. Nobody wants a temporary relation's after a crash.
    fn note_unsynced(&self) {
        if self.persistence != Persistence::Temporary {
            self.needs_sync.store(true, Ordering::Release);
        }
    }
}

/// The right to grow a file; others who want to wait.
pub(crate) struct Growing<'f> {
    files: &'f RelFiles,
    file: &'f RelFile,
    reserved: MutexGuard<'f, u32>,
}

impl Growing<'_> {
    /// The block that comes next.
    pub fn next_block(&self) -> BlockNo {
        self.file.blocks()
    }

    /// Makes sure that the file has room for `blocks` blocks. `exact`: no more than that.
    pub fn reserve(&mut self, blocks: u32, exact: bool) -> Result<()> {
        if blocks <= *self.reserved {
            return Ok(());
        }
        if blocks > BLOCKS_MAX {
            let what = format!("relation file \"{}\" has its largest size", self.file.path);
            return Err(StorageError::Limit { what });
        }
        let handle = self.files.handle(self.file)?;
        self.file.note_unsynced();
        let step = if exact { 0 } else { (*self.reserved / 8).clamp(0, CHUNK_MAX) };
        let wish = blocks.saturating_add(step).min(BLOCKS_MAX);
        if wish > blocks && self.allocate(&*handle, wish).is_ok() {
            return Ok(());
        }
        self.allocate(&*handle, blocks)
            .map_err(|e| StorageError::io("extend file", &self.file.path, e))
    }

    fn allocate(&mut self, handle: &dyn VfsFile, to: u32) -> io::Result<()> {
        let from = u64::from(*self.reserved) * PAGE_BYTES;
        handle.allocate(from, u64::from(to) * PAGE_BYTES - from)?;
        *self.reserved = to;
        Ok(())
    }

    /// The blocks before `blocks` are in use from now on.
    pub fn publish(&mut self, blocks: BlockNo) {
        debug_assert!(blocks <= *self.reserved);
        if blocks > self.file.blocks() {
            self.file.blocks.store(blocks, Ordering::Release);
        }
    }
}

/// A file being cut: its length is published, its bytes are still there.
pub(crate) struct Shrinking<'f> {
    files: &'f RelFiles,
    file: &'f RelFile,
    reserved: MutexGuard<'f, u32>,
    blocks: BlockNo,
}

impl Shrinking<'_> {
    /// Gives the device space back. No page beyond the new end is in memory.
    pub fn finish(mut self) -> Result<()> {
        if self.blocks >= *self.reserved {
            return Ok(());
        }
        let handle = self.files.handle(self.file)?;
        self.file.note_unsynced();
        handle
            .set_len(u64::from(self.blocks) * PAGE_BYTES)
            .map_err(|e| StorageError::io("truncate file", &self.file.path, e))?;
        *self.reserved = self.blocks;
        Ok(())
    }
}

/// All relation files of a data directory.
pub(crate) struct RelFiles {
    vfs: Arc<dyn Vfs>,
    files: RwLock<HashMap<(RelId, Fork), Arc<RelFile>>>,
    /// Relations created since start-up, and those found unlogged.
    known: RwLock<HashMap<RelId, Persistence>>,
    open: AtomicUsize,
    open_max: usize,
    clock: AtomicU64,
    failed: Mutex<Option<String>>,
    has_failed: AtomicBool,
    sync_enabled: bool,
    log: OnceLock<Arc<dyn LogFlush>>,
}

impl RelFiles {
    pub fn new(vfs: Arc<dyn Vfs>, open_max: usize, sync_enabled: bool) -> Self {
        RelFiles {
            vfs,
            files: RwLock::new(HashMap::new()),
            known: RwLock::new(HashMap::new()),
            open: AtomicUsize::new(0),
            open_max: open_max.max(8),
            clock: AtomicU64::new(0),
            failed: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            sync_enabled,
            log: OnceLock::new(),
        }
    }

    /// Who has to know when a file fails. Once.
    pub fn set_log(&self, log: Arc<dyn LogFlush>) {
        assert!(self.log.set(log).is_ok(), "the files have their log already");
    }

    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.vfs
    }

    pub fn path_of(rel: RelId, fork: Fork, persistence: Persistence) -> String {
        let mark = if persistence == Persistence::Temporary { "t" } else { "" };
        format!("{BASE_DIR}/{mark}{rel}{}", fork.suffix())
    }

    /// What a file name in `base/` stands for.
    pub fn parse_name(name: &str) -> Option<(RelId, Fork, bool)> {
        let (temporary, rest) = match name.strip_prefix('t') {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let (number, fork) = match rest.split_once('_') {
            None => (rest, Fork::Main),
            Some((number, "fsm")) => (number, Fork::Fsm),
            Some((number, "vm")) => (number, Fork::Vm),
            Some((number, "init")) => (number, Fork::Init),
            Some(_) => return None,
        };
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some((RelId::new(number.parse().ok()?), fork, temporary))
    }

    /// The relation's persistence: as created in this run, or as its files tell.
    pub fn persistence(&self, rel: RelId) -> Persistence {
        if let Some(known) = self.known.read().get(&rel) {
            return *known;
        }
        let init = Self::path_of(rel, Fork::Init, Persistence::Permanent);
        let found =
            if self.vfs.exists(&init) { Persistence::Unlogged } else { Persistence::Permanent };
        self.known.write().insert(rel, found);
        found
    }

    /// The file of a fork that exists; `None` when there is none.
    pub fn find(&self, rel: RelId, fork: Fork) -> Result<Option<Arc<RelFile>>> {
        if let Some(file) = self.files.read().get(&(rel, fork)) {
            return Ok(Some(Arc::clone(file)));
        }
        self.open_file(rel, fork, OpenMode::Open)
    }

    /// The file of a fork that must exist.
    pub fn get(&self, rel: RelId, fork: Fork) -> Result<Arc<RelFile>> {
        self.find(rel, fork)?.ok_or_else(|| {
            let path = Self::path_of(rel, fork, self.persistence(rel));
            StorageError::io("open file", path, io::ErrorKind::NotFound.into())
        })
    }

    /// The file of a fork, created if it is not there.
    pub fn get_or_create(&self, rel: RelId, fork: Fork) -> Result<Arc<RelFile>> {
        if let Some(file) = self.files.read().get(&(rel, fork)) {
            return Ok(Arc::clone(file));
        }
        let file = self.open_file(rel, fork, OpenMode::OpenOrCreate)?;
        Ok(file.expect("opened or created, or an error"))
    }

    /// Creates a relation's main file. Must not exist unless `replay`.
    pub fn create(&self, rel: RelId, persistence: Persistence, replay: bool) -> Result<()> {
        self.known.write().insert(rel, persistence);
        let mode = if replay { OpenMode::OpenOrCreate } else { OpenMode::Create };
        self.open_file(rel, Fork::Main, mode)?;
        if persistence == Persistence::Unlogged {
            self.open_file(rel, Fork::Init, mode)?;
        }
        Ok(())
    }

    fn open_file(&self, rel: RelId, fork: Fork, mode: OpenMode) -> Result<Option<Arc<RelFile>>> {
        self.check_failed()?;
        let persistence = self.persistence(rel);
        let path = Self::path_of(rel, fork, persistence);
        let mut files = self.files.write();
        if let Some(file) = files.get(&(rel, fork)) {
            return Ok(Some(Arc::clone(file)));
        }
        let handle = match self.vfs.open(&path, mode) {
            Ok(handle) => handle,
            Err(e) if e.kind() == io::ErrorKind::NotFound && mode == OpenMode::Open => {
                return Ok(None);
            }
            Err(e) => return Err(StorageError::io("open file", path, e)),
        };
        let bytes = handle.len().map_err(|e| StorageError::io("stat file", &path, e))?;
        let reserved = (bytes / PAGE_BYTES).min(u64::from(BLOCKS_MAX)) as u32;
        let blocks =
            used_blocks(&*handle, reserved).map_err(|e| StorageError::io("read file", &path, e))?;
        let file = Arc::new(RelFile {
            rel,
            fork,
            path,
            persistence,
            blocks: AtomicU32::new(blocks),
            reserved: Mutex::new(reserved),
            handle: Mutex::new(Some(handle)),
            // A name that was just made needs its fsync as much as contents do.
            needs_sync: AtomicBool::new(
                mode != OpenMode::Open && persistence != Persistence::Temporary,
            ),
            last_used: AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed)),
            gone: AtomicBool::new(false),
        });
        files.insert((rel, fork), Arc::clone(&file));
        drop(files);
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.open_max {
            self.close_idle();
        }
        Ok(Some(file))
    }

    /// An open handle, opened again if it was closed.
    fn handle(&self, file: &RelFile) -> Result<Arc<dyn VfsFile>> {
        file.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut slot = file.handle.lock();
        if let Some(handle) = &*slot {
            return Ok(Arc::clone(handle));
        }
        let handle = self
            .vfs
            .open(&file.path, OpenMode::Open)
            .map_err(|e| StorageError::io("open file", &file.path, e))?;
        *slot = Some(Arc::clone(&handle));
        drop(slot);
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.open_max {
            self.close_idle();
        }
        Ok(handle)
    }

    /// Closes the less recently used half of the handles that need no fsync.
    fn close_idle(&self) {
        let mut idle: Vec<Arc<RelFile>> = {
            let files = self.files.read();
            files.values().filter(|f| !f.needs_sync()).cloned().collect()
        };
        idle.sort_by_key(|f| f.last_used.load(Ordering::Relaxed));
        let count = idle.len() / 2;
        for file in idle.into_iter().take(count) {
            let Some(mut slot) = file.handle.try_lock() else { continue };
            // Checked again under the lock that writers take after setting the flag.
            if !file.needs_sync() && slot.take().is_some() {
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Reads a page's bytes, unchecked.
    pub fn read(&self, file: &RelFile, block: BlockNo, page: &mut Page) -> Result<()> {
        self.check_failed()?;
        let handle = self.handle(file)?;
        handle
            .read_exact_at(page.bytes_mut(), u64::from(block) * PAGE_BYTES)
            .map_err(|e| StorageError::io("read file", &file.path, e))
    }

    /// Writes a page's bytes.
    pub fn write(&self, file: &RelFile, block: BlockNo, page: &Page) -> Result<()> {
        file.note_unsynced();
        let handle = self.handle(file)?;
        let written = handle.write_at(page.bytes(), u64::from(block) * PAGE_BYTES);
        written.map_err(|e| self.told(StorageError::failed_write("write file", &file.path, e)))
    }

    /// A final failure of a file is one of the log.
    fn told(&self, error: StorageError) -> StorageError {
        if let (StorageError::Poisoned { at, what }, Some(log)) = (&error, self.log.get()) {
            log.fail(StorageError::Poisoned { at: *at, what: what.clone() });
        }
        error
    }

    /// Asks the kernel to begin writing a range out.
    pub fn start_write_back(&self, file: &RelFile, block: BlockNo, blocks: u32) {
        if let Ok(handle) = self.handle(file) {
            let (at, len) = (u64::from(block) * PAGE_BYTES, u64::from(blocks) * PAGE_BYTES);
            handle.start_write_back(at, len);
        }
    }

    pub fn grow<'f>(&'f self, file: &'f RelFile) -> Growing<'f> {
        Growing { files: self, file, reserved: file.reserved.lock() }
    }

    /// Begins to cut a file to `blocks` blocks: from here on nobody reads what is beyond.
    pub fn shrink<'f>(&'f self, file: &'f RelFile, blocks: BlockNo) -> Shrinking<'f> {
        let reserved = file.reserved.lock();
        if blocks < file.blocks() {
            file.blocks.store(blocks, Ordering::Release);
        }
        Shrinking { files: self, file, reserved, blocks }
    }

    /// Removes all of a relation's files. Its pages must have left the pool.
    pub fn unlink(&self, rel: RelId) -> Result<()> {
        let persistence = self.persistence(rel);
        let mut removed = false;
        self.forget(rel);
        for fork in Fork::ALL {
            let path = Self::path_of(rel, fork, persistence);
            match self.vfs.remove(&path) {
                Ok(()) => removed = true,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(StorageError::io("remove file", path, e)),
            }
        }
        if removed {
            self.known.write().remove(&rel);
        }
        Ok(())
    }

    /// The relation's forks that were opened in this run, with their lengths.
    pub fn opened(&self, rel: RelId) -> Vec<(Fork, BlockNo)> {
        let files = self.files.read();
        let length = |fork| files.get(&(rel, fork)).map(|file| (fork, file.blocks()));
        Fork::ALL.into_iter().filter_map(length).collect()
    }

    /// Closes a relation's files. They are opened anew, and measured, when asked for again.
    pub fn forget(&self, rel: RelId) {
        for fork in Fork::ALL {
            let Some(file) = self.files.write().remove(&(rel, fork)) else { continue };
            file.gone.store(true, Ordering::Release);
            file.needs_sync.store(false, Ordering::Release);
            if file.handle.lock().take().is_some() {
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether a relation has any file. A crash may leave some forks of an id and not its main
    /// one; their contents must not become a new relation's.
    pub fn exists(&self, rel: RelId) -> bool {
        let persistence = self.persistence(rel);
        Fork::ALL.iter().any(|fork| self.vfs.exists(&Self::path_of(rel, *fork, persistence)))
    }

    /// The opened files that were written since their last fsync, in name order.
    pub fn unsynced(&self) -> Vec<Arc<RelFile>> {
        let mut found: Vec<Arc<RelFile>> =
            self.files.read().values().filter(|f| f.needs_sync()).cloned().collect();
        found.sort_by_key(|f| (f.rel, f.fork as u8));
        found
    }

    /// Makes a file's contents durable. A failure is latched.
    pub fn sync(&self, file: &RelFile) -> Result<()> {
        self.check_failed()?;
        let handle = self.handle(file)?;
        file.needs_sync.store(false, Ordering::Release);
        if !self.sync_enabled || !file.persistence.is_logged() && file.is_gone() {
            return Ok(());
        }
        match handle.sync() {
            Ok(()) => Ok(()),
            Err(_) if file.is_gone() => Ok(()),
            Err(e) => {
                file.needs_sync.store(true, Ordering::Release);
                Err(self.latch_failure("fsync file", &file.path, e))
            }
        }
    }

    /// Makes the names in `base/` durable.
    pub fn sync_names(&self) -> Result<()> {
        if !self.sync_enabled {
            return Ok(());
        }
        self.vfs.sync_dir(BASE_DIR).map_err(|e| self.latch_failure("fsync directory", BASE_DIR, e))
    }

    fn latch_failure(&self, action: &'static str, path: &str, source: io::Error) -> StorageError {
        let what = StorageError::failed_sync(action, path, source).to_string();
        let mut failed = self.failed.lock();
        let first = failed.get_or_insert(what).clone();
        self.has_failed.store(true, Ordering::Release);
        drop(failed);
        self.told(StorageError::Poisoned { at: Lsn::INVALID, what: first })
    }

    /// An error if an fsync of data has failed in this run.
    #[inline]
    pub fn check_failed(&self) -> Result<()> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let what = self.failed.lock().clone().unwrap_or_default();
        Err(StorageError::Poisoned { at: Lsn::INVALID, what })
    }

    /// "There is no such block", as an error.
    pub fn beyond_end(id: PageId, blocks: BlockNo) -> StorageError {
        StorageError::corrupt_page(id, format!("block does not exist, the file has {blocks}"))
    }
}

/// How many blocks are in use: all but the zero pages at the end.
fn used_blocks(handle: &dyn VfsFile, reserved: u32) -> io::Result<u32> {
    const STEP: u32 = 16;
    let mut end = reserved;
    let mut buffer = Vec::new();
    while end > 0 {
        // The last page alone first: mostly it is in use, and that is the answer.
        let step = if end == reserved { 1 } else { STEP.min(end) };
        buffer.resize(step as usize * PAGE_SIZE, 0);
        let start = end - step;
        handle.read_exact_at(&mut buffer, u64::from(start) * PAGE_BYTES)?;
        for at in (0..step).rev() {
            let bytes = &buffer[at as usize * PAGE_SIZE..][..PAGE_SIZE];
            if bytes.iter().any(|b| *b != 0) {
                return Ok(start + at + 1);
            }
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for persistence in [Persistence::Permanent, Persistence::Temporary] {
            for fork in Fork::ALL {
                let path = RelFiles::path_of(RelId::new(16400), fork, persistence);
                let name = path.strip_prefix("base/").expect("in base");
                let temporary = persistence == Persistence::Temporary;
                let parsed = RelFiles::parse_name(name);
                assert_eq!(parsed, Some((RelId::new(16400), fork, temporary)));
            }
        }
        for bad in ["", "t", "pg_filenode.map", "12_x", "1.1", "+1", "99999999999"] {
            assert_eq!(RelFiles::parse_name(bad), None, "{bad}");
        }
    }
}
