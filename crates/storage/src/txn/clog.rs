//! The commit log: two durable bits per xid, the answer for everything settled.
//!
//! | bits | meaning                                                                  |
//! |------|--------------------------------------------------------------------------|
//! | 00   | nothing known: running, or lost in a crash, which is the same as aborted |
//! | 01   | committed                                                                |
//! | 10   | aborted                                                                  |
//! | 11   | committed: the other bit is from an earlier life of the xid              |
//!
//! Bits only appear. The "aborted" bit may reach the disk before anything that names the xid is
//! durable; after a crash such an xid is handed out again, and may then commit. The "committed"
//! bit cannot, so it decides alone.
//!
//! ```text
//!   page of 8192 bytes = 16 sectors of 512:   | crc u32 | magic u32 | 63 words of 32 xids |
//!   xid 40,000 = page 1, word 242, bits 0-1   file pg_xact/0000, 32 pages to a file
//! ```
//!
//! # On disk
//!
//! Every 512-byte sector carries its own checksum. A sector is written whole or not at all, so a
//! torn page is a mixture of older and newer *valid* sectors, and since bits only ever appear,
//! redo from the checkpoint's redo point brings back whatever the older ones lack. Hence no
//! images of these pages in the log and no second copy. A sector of zeros was never written.
//!
//! WAL before data: a page knows the newest commit whose bits it holds, and is written when the
//! log is flushed that far (semantics 23). The committer raises that position before it sets the
//! bits; the writer copies the bits before it reads the position.
//!
//! # Where a page is
//!
//! ```text
//!   pg_xact/0000   pg_xact/0001   pg_xact/0002   pg_xact/0003
//!   truncated      mapped         mapped         pages in memory
//!                  read-only      read-only      <── bits are set here
//! ```
//!
//! A file of 32 pages that is *settled* never changes again: none of its xids runs, so nobody has
//! a bit left to set. Once it was written and synced, a read-only mapping of it takes over and its
//! pages serve later xids (`clog_map.rs`, rules C7 and C8). At start every full file is mapped
//! instead of loaded; its checksums are verified once.
//!
//! Two things write to the past, both at start and before the first reader. *Redo* sets bits of
//! commits after the redo point. A bit that it finds set says nothing: it may be in the kernel's
//! memory only, of a write that was never synced, or one whose sync failed. So whatever redo
//! touches comes back to memory, whether its bit is there or not, is dirty, and is written by the
//! checkpoint that ends recovery. What it does not touch was synced by the checkpoint that replay
//! starts from. *Wiping* what lies beyond the next xid (C6) brings back the file of that xid and
//! all later ones.
//!
//! Readers load one word and take no lock, wherever it is. Pages below the truncation point are
//! gone; every tuple that could ask about them has been resolved (rule C4).

use super::clog_map::{FileTable, Held};
use super::clog_stats::{Counters, SlruStats, add};
use super::record::EndRecord;
use super::status::{CommitStamp, XidStatus};
use super::window::{Found, WordTable, XID_LIMIT};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, Xid};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::vfs::{FileMap, Vfs};
use std::sync::Arc;

/// Bytes in the unit that a disk writes whole.
pub(crate) const SECTOR: usize = 512;
/// Words of status bits in a sector.
pub(crate) const SECTOR_WORDS: usize = (SECTOR - 8) / 8;
/// Sectors in a page, the unit of writing.
#[cfg(not(shuttle))]
pub(crate) const PAGE_SECTORS: usize = 16;
#[cfg(shuttle)]
pub(crate) const PAGE_SECTORS: usize = 1;
pub(crate) const PAGE_BYTES: usize = SECTOR * PAGE_SECTORS;
const PAGE_WORDS: usize = SECTOR_WORDS * PAGE_SECTORS;
const WORD_XIDS: u64 = 32;
/// Xids in a page.
pub(crate) const PAGE_XIDS: u64 = PAGE_WORDS as u64 * WORD_XIDS;

/// Pages in a file, the unit of mapping and truncation.
#[cfg(not(shuttle))]
pub(crate) const FILE_PAGES: u64 = 32;
#[cfg(shuttle)]
pub(crate) const FILE_PAGES: u64 = 2;
/// Xids in a file.
pub(crate) const FILE_XIDS: u64 = FILE_PAGES * PAGE_XIDS;

const _: () = assert!(SECTOR_WORDS == 63 && (cfg!(shuttle) || PAGE_XIDS == 32_256));

const COMMITTED: u64 = 1;
const ALL_COMMITTED: u64 = u64::MAX / 3 * COMMITTED;
const ABORTED: u64 = 2;

/// What a page knows about itself.
#[derive(Default)]
pub(crate) struct PageState {
    /// The newest commit whose bits it holds: flush the log that far before writing it.
    newest: AtomicU64,
    dirty: AtomicBool,
}

type Pages = WordTable<PAGE_WORDS, PageState>;

/// Which pages exist.
#[derive(Default)]
pub(crate) struct Extent {
    /// The first page that is not truncated.
    pub(crate) first: u64,
    /// The page after the last one.
    pub(crate) end: u64,
}

/// Two bits per xid. See the module's essay.
pub struct CommitLog {
    pages: Pages,
    pub(crate) files: FileTable,
    pub(crate) extent: Mutex<Extent>,
    /// Xids below have been resolved wherever they occurred.
    oldest: AtomicU64,
    /// Where the pages are kept.
    pub(crate) vfs: Option<Arc<dyn Vfs>>,
    /// Held by whoever writes files, maps them or removes them.
    pub(crate) filing: Mutex<()>,
    pub(crate) counters: Counters,
}

/// Where the two bits of `xid` are: page, word in the page, shift in the word.
#[inline]
pub(super) fn place_in_page(xid: Xid) -> (u64, usize, u32) {
    let (page, index) = (xid.raw() / PAGE_XIDS, xid.raw() % PAGE_XIDS);
    (page, (index / WORD_XIDS) as usize, 2 * (index % WORD_XIDS) as u32)
}

/// The file that holds the bits of `xid`.
pub(crate) fn file_of(xid: Xid) -> u64 {
    xid.raw() / FILE_XIDS
}

/// Where a word of a page lies in its file.
#[inline]
fn offset_in_file(page: u64, index: usize) -> usize {
    let (sector, word) = (index / SECTOR_WORDS, index % SECTOR_WORDS);
    (page % FILE_PAGES) as usize * PAGE_BYTES
        + sector * SECTOR
        + (SECTOR - 8 * SECTOR_WORDS)
        + 8 * word
}

/// The page that holds the bits of `xid`.
pub(crate) fn page_of(xid: Xid) -> u64 {
    xid.raw() / PAGE_XIDS
}

/// What two bits of a settled transaction say.
#[inline]
pub(super) fn fate_in(word: u64, shift: u32) -> XidStatus {
    if (word >> shift) & COMMITTED != 0 {
        XidStatus::Committed(CommitStamp::SETTLED)
    } else {
        XidStatus::Aborted
    }
}

/// Whether all from the one whose bits are at `first` to the one at `last` committed.
#[inline]
pub(super) fn committed_in(word: u64, first: u32, last: u32) -> bool {
    let asked = (ALL_COMMITTED << first) & (ALL_COMMITTED >> (u64::BITS - 2 - last));
    word & asked == asked
}

impl CommitLog {
    /// A log that is only in memory, for tests and measurements.
    pub fn in_memory() -> Self {
        Self::starting_at(0, None)
    }

    /// A log whose pages below `first` are truncated.
    pub(crate) fn starting_at(first: u64, vfs: Option<Arc<dyn Vfs>>) -> Self {
        CommitLog {
            vfs,
            pages: WordTable::new(first),
            files: FileTable::new(),
            filing: Mutex::new(()),
            counters: Counters::default(),
            extent: Mutex::new(Extent { first, end: first }),
            oldest: AtomicU64::new((first * PAGE_XIDS).max(Xid::FIRST_NORMAL.raw())),
        }
    }

    /// Makes room for the bits of `xid` and of all before it.
    pub(crate) fn ensure(&self, xid: Xid) -> Result<()> {
        let page = page_of(xid);
        if let Found::Here(_) = self.pages.chunk(page) {
            return Ok(());
        }
        if xid.raw() >= XID_LIMIT {
            return Err(StorageError::Limit { what: "transaction ids are used up".to_owned() });
        }
        self.grow_to(page);
        Ok(())
    }

    /// Makes all pages up to `page`.
    pub(crate) fn grow_to(&self, page: u64) {
        let mut extent = self.extent.lock();
        while extent.end <= page {
            // Dirty, so that it is written even if nothing ends here: files have no holes.
            self.create_page(extent.end, true);
            add(&self.counters.zeroed, 1);
            extent.end += 1;
        }
    }

    fn create_page(&self, page: u64, dirty: bool) {
        let made = self.pages.create(page, |chunk| {
            chunk.meta.newest.store(0, Ordering::Relaxed);
            chunk.meta.dirty.store(dirty, Ordering::Relaxed);
        });
        assert!(made.is_ok(), "pages below the xid limit fit the directory");
    }

    /// Puts a page read from disk in place. Only at start.
    pub(crate) fn install(&self, page: u64, words: &[u64], dirty: bool) {
        self.create_page(page, dirty);
        let Found::Here(chunk) = self.pages.chunk(page) else {
            unreachable!("the page was just made")
        };
        for (index, word) in words.iter().enumerate() {
            chunk.word(index).store(*word, Ordering::Relaxed);
        }
        let mut extent = self.extent.lock();
        extent.end = extent.end.max(page + 1);
    }

    fn set(&self, xid: Xid, bits: u64, at: Lsn) {
        let (page, index, shift) = place_in_page(xid);
        let Found::Here(chunk) = self.pages.chunk(page) else {
            debug_assert!(false, "{xid:?} has no room in the commit log");
            return;
        };
        // Before the bits: whoever copies the bits must find this position.
        chunk.meta.newest.fetch_max(at.raw(), Ordering::Relaxed);
        chunk.word(index).fetch_or(bits << shift, Ordering::Release);
        // After the bits: whoever clears this copies the bits afterwards.
        chunk.meta.dirty.store(true, Ordering::Release);
    }

    /// Notes a commit whose record ends at `at`. Room was made when the xid was handed out.
    #[inline]
    pub(crate) fn set_committed(&self, xid: Xid, at: Lsn) {
        self.set(xid, COMMITTED, at);
    }

    /// Notes an abort. May reach the disk at any time.
    #[inline]
    pub(crate) fn set_aborted(&self, xid: Xid) {
        self.set(xid, ABORTED, Lsn::INVALID);
    }

    /// The fate of an xid that has ended: settled, or from before the last start.
    pub fn settled_status(&self, xid: Xid) -> XidStatus {
        if !xid.is_valid() {
            return XidStatus::Aborted;
        }
        if !xid.is_normal() {
            return XidStatus::Committed(CommitStamp::SETTLED);
        }
        let (word, shift) = self.settled_word(xid);
        fate_in(word, shift)
    }

    /// The word that holds the bits of `xid` and of its neighbours (those with the same
    /// `xid / 32`), and where the bits of `xid` are in it. A truncated word says "committed" of
    /// all, one that was never made "aborted".
    #[inline]
    pub(super) fn settled_word(&self, xid: Xid) -> (u64, u32) {
        self.counters.hit();
        let (page, index, shift) = place_in_page(xid);
        let word = match self.load(page, index) {
            Found::Here(word) => word,
            // Resolved everywhere: what is left of such a transaction was kept as committed.
            Found::Dropped => ALL_COMMITTED,
            Found::Absent => 0,
        };
        (word, shift)
    }

    /// Copies a page's bits as they are now. False, and nothing is copied, when there is no such
    /// page (any more).
    pub(super) fn copy_page(&self, page: u64, out: &mut PageWords) -> bool {
        let mut words = NO_WORDS;
        for (index, word) in words.iter_mut().enumerate() {
            match self.load(page, index) {
                Found::Here(bits) => *word = bits,
                Found::Dropped | Found::Absent => return false,
            }
        }
        *out = words;
        true
    }

    /// One word, wherever it is; `Dropped` when it is truncated. The protocol is explained in
    /// `clog_map.rs`.
    #[inline]
    pub(crate) fn load(&self, page: u64, index: usize) -> Found<u64> {
        let file = page / FILE_PAGES;
        let mut gone_from_memory = false;
        loop {
            let slot = self.files.slot(file);
            match slot.map_or(Held::Memory, |slot| slot.held()) {
                Held::Mapped(map, time) => {
                    let word = map.word(offset_in_file(page, index));
                    if slot.is_some_and(|slot| slot.still(time)) {
                        return Found::Here(word);
                    }
                }
                Held::Truncated => return Found::Dropped,
                // Looked at twice: below the first page that ever was here.
                Held::Memory if gone_from_memory => return Found::Dropped,
                Held::Memory => match self.pages.load(page, index) {
                    Found::Dropped => {
                        // Makes the next look at the state see what the page's removal followed.
                        fence(Ordering::Acquire);
                        gone_from_memory = true;
                    }
                    found => return found,
                },
            }
        }
    }

    /// Replays a Commit record that ends at `at`.
    pub fn redo_commit(&self, top: Xid, record: &EndRecord, at: Lsn) -> Result<()> {
        self.redo(top, record, |xid| self.set_committed(xid, at))
    }

    /// Replays an Abort record.
    pub fn redo_abort(&self, top: Xid, record: &EndRecord) -> Result<()> {
        self.redo(top, record, |xid| self.set_aborted(xid))
    }

    /// Ends `top` and its children in memory, where their pages are brought if need be: a bit that
    /// is in a mapping already need not be on the disk, see the module's essay.
    fn redo(&self, top: Xid, record: &EndRecord, end: impl Fn(Xid)) -> Result<()> {
        let last = record.children.last().copied().unwrap_or(top);
        self.ensure(last)?;
        for &xid in record.children.iter().chain([&top]) {
            let (page, index, _) = place_in_page(xid);
            if !matches!(self.load(page, index), Found::Dropped) {
                self.bring_back(file_of(xid));
                end(xid);
            }
        }
        Ok(())
    }

    /// Wipes the bits of `next` and all after it: aborts whose record was lost with the end of
    /// the log while their page was written. These xids are handed out anew. Only at start.
    /// (Should another crash come before the wiped page is written, C1 still decides rightly.)
    pub(crate) fn forget_from(&self, next: Xid) {
        let (first, index, shift) = place_in_page(next);
        for file in file_of(next)..self.page_range().end.div_ceil(FILE_PAGES) {
            self.bring_back(file);
        }
        for page in first..self.page_range().end {
            let Found::Here(chunk) = self.pages.chunk(page) else { continue };
            for at in 0..PAGE_WORDS {
                let keep = match (page == first, at.cmp(&index)) {
                    (true, std::cmp::Ordering::Less) => continue,
                    (true, std::cmp::Ordering::Equal) => (1u64 << shift) - 1,
                    _ => 0,
                };
                if chunk.word(at).fetch_and(keep, Ordering::AcqRel) & !keep != 0 {
                    chunk.meta.dirty.store(true, Ordering::Release);
                }
            }
        }
    }

    /// The smallest xid that somebody may still ask about.
    pub fn oldest(&self) -> Xid {
        Xid::new(self.oldest.load(Ordering::Acquire))
    }

    /// Says that every xid below `oldest` has been resolved wherever it occurred.
    pub(crate) fn advance_oldest(&self, oldest: Xid) {
        self.oldest.fetch_max(oldest.raw(), Ordering::AcqRel);
    }

    /// Whether a cut at `oldest` would remove a file.
    pub(crate) fn has_files_below(&self, oldest: Xid) -> bool {
        self.page_range().start < file_of(oldest) * FILE_PAGES
    }

    /// Forgets the files that lie entirely below `oldest`, in memory. Returns the range of files.
    pub(crate) fn drop_files_below(&self, oldest: Xid) -> std::ops::Range<u64> {
        self.advance_oldest(oldest);
        let mut extent = self.extent.lock();
        let first = extent.first / FILE_PAGES;
        let keep = file_of(oldest).min(extent.end / FILE_PAGES).max(first);
        for file in first..keep {
            // The state before the words: see `clog_map.rs`.
            self.files.truncated(file);
            self.drop_pages_of(file);
        }
        extent.first = extent.first.max(keep * FILE_PAGES);
        first..keep
    }

    /// Gives the pages of a file back to the pool, after its state was stored.
    fn drop_pages_of(&self, file: u64) {
        fence(Ordering::Release);
        for page in file * FILE_PAGES..(file + 1) * FILE_PAGES {
            self.pages.drop_chunk(page);
        }
    }

    /// Lets a verified mapping of `file` take over from its pages. False: there were two already.
    pub(crate) fn take_over(&self, file: u64, map: FileMap) -> bool {
        let done = self.files.map(file, map);
        if done {
            self.drop_pages_of(file);
        }
        done
    }

    /// As [`Self::take_over`] for a file that has no pages in memory. Only at start.
    pub(crate) fn map_at_start(&self, file: u64, map: FileMap) -> bool {
        let done = self.files.map(file, map);
        if done {
            let mut extent = self.extent.lock();
            extent.end = extent.end.max((file + 1) * FILE_PAGES);
        }
        done
    }

    /// Makes pages in memory of a mapped file that is about to be written to. Only at start: the
    /// pages of a file that was mapped later than that are gone for good, and nobody sets bits in
    /// them.
    fn bring_back(&self, file: u64) {
        let Held::Mapped(map, _) = self.files.held(file) else { return };
        for page in file * FILE_PAGES..(file + 1) * FILE_PAGES {
            let mut words = NO_WORDS;
            for (index, word) in words.iter_mut().enumerate() {
                *word = map.word(offset_in_file(page, index));
            }
            self.install(page, &words, false);
        }
        self.files.back_to_memory(file);
    }

    /// Makes sure that the bits of a transaction that still runs can be set. Only at start.
    pub(crate) fn keep_in_memory(&self, xid: Xid) {
        self.bring_back(file_of(xid));
    }

    /// Whether a page waits to be written, or is not in memory.
    pub(crate) fn is_dirty(&self, page: u64) -> bool {
        match self.pages.chunk(page) {
            Found::Here(chunk) => chunk.meta.dirty.load(Ordering::Acquire),
            _ => true,
        }
    }

    /// Whether a page is in memory, written, and holds just these words.
    pub(crate) fn is_written_as(&self, page: u64, words: &PageWords) -> bool {
        let Found::Here(chunk) = self.pages.chunk(page) else { return false };
        !chunk.meta.dirty.load(Ordering::Acquire)
            && words.iter().enumerate().all(|(at, w)| chunk.word(at).load(Ordering::Acquire) == *w)
    }

    /// What it did since its counters were reset.
    pub fn stats(&self) -> SlruStats {
        self.counters.stats()
    }

    /// Begins counting anew.
    pub fn reset_stats(&self, now_micros: i64) {
        self.counters.reset(now_micros);
    }

    /// How many files are read through a mapping.
    pub fn mapped_files(&self) -> u32 {
        self.files.mapped()
    }

    /// Takes a page for writing: its words now and the position to flush the log to first.
    /// `None` when it is clean or gone. The page counts as clean from here on.
    pub(crate) fn take_dirty(&self, page: u64, words: &mut [u64; PAGE_WORDS]) -> Option<Lsn> {
        let Found::Here(chunk) = self.pages.chunk(page) else { return None };
        if !chunk.meta.dirty.swap(false, Ordering::AcqRel) {
            return None;
        }
        for (index, word) in words.iter_mut().enumerate() {
            *word = chunk.word(index).load(Ordering::Acquire);
        }
        let newest = Lsn::new(chunk.meta.newest.load(Ordering::Acquire));
        Pages::still(chunk, page).then_some(newest)
    }

    /// Undoes [`Self::take_dirty`] after a failed write.
    pub(crate) fn mark_dirty(&self, page: u64) {
        if let Found::Here(chunk) = self.pages.chunk(page) {
            chunk.meta.dirty.store(true, Ordering::Release);
        }
    }

    /// The pages that are not truncated.
    pub(crate) fn page_range(&self) -> std::ops::Range<u64> {
        let extent = self.extent.lock();
        extent.first..extent.end
    }
}

/// A page's worth of words, for [`CommitLog::take_dirty`].
pub(crate) type PageWords = [u64; PAGE_WORDS];
pub(crate) const NO_WORDS: PageWords = [0; PAGE_WORDS];

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn bits_of_neighbours_do_not_mix() {
        let clog = CommitLog::in_memory();
        clog.ensure(Xid::new(PAGE_XIDS + 40)).expect("room");
        clog.set_committed(Xid::new(7), Lsn::new(64));
        clog.set_aborted(Xid::new(8));
        clog.set_committed(Xid::new(PAGE_XIDS), Lsn::new(72));
        let committed = |xid| clog.settled_status(Xid::new(xid)).commit().is_some();
        assert!(committed(7) && committed(PAGE_XIDS));
        assert!(!committed(6) && !committed(8) && !committed(9));
        assert!(!committed(PAGE_XIDS - 1) && !committed(PAGE_XIDS + 1));
        assert!(committed(Xid::FROZEN.raw()) && !committed(0));
    }

    #[test]
    fn an_xid_that_aborted_in_an_earlier_life_can_commit() {
        let clog = CommitLog::in_memory();
        clog.ensure(Xid::new(10)).expect("room");
        clog.set_aborted(Xid::new(7));
        clog.set_committed(Xid::new(7), Lsn::new(64));
        assert!(clog.settled_status(Xid::new(7)).commit().is_some());
    }

    #[test]
    fn a_page_is_taken_once_and_says_how_far_to_flush() {
        let clog = CommitLog::in_memory();
        clog.ensure(Xid::new(10)).expect("room");
        let mut words = NO_WORDS;
        assert_eq!(clog.take_dirty(0, &mut words), Some(Lsn::INVALID), "a new page is written");
        assert_eq!(clog.take_dirty(0, &mut words), None);
        clog.set_committed(Xid::new(4), Lsn::new(128));
        clog.set_committed(Xid::new(5), Lsn::new(64));
        assert_eq!(clog.take_dirty(0, &mut words), Some(Lsn::new(128)));
        assert_eq!(words[0], (COMMITTED << 8) | (COMMITTED << 10));
        assert_eq!(clog.take_dirty(0, &mut words), None);
        clog.mark_dirty(0);
        assert!(clog.take_dirty(0, &mut words).is_some());
    }

    #[test]
    fn what_lies_beyond_the_end_is_wiped() {
        let clog = CommitLog::in_memory();
        clog.ensure(Xid::new(PAGE_XIDS + 9)).expect("room");
        clog.set_committed(Xid::new(70), Lsn::new(64));
        for xid in [71, 72, 200, PAGE_XIDS + 3] {
            clog.set_aborted(Xid::new(xid));
        }
        clog.forget_from(Xid::new(72));
        for xid in [72, 200, PAGE_XIDS + 3] {
            clog.set_committed(Xid::new(xid), Lsn::new(72));
            assert!(clog.settled_status(Xid::new(xid)).commit().is_some(), "{xid}");
        }
        assert!(clog.settled_status(Xid::new(70)).commit().is_some());
        assert!(clog.settled_status(Xid::new(71)).commit().is_none());
    }

    #[test]
    fn truncation_keeps_the_file_of_the_oldest() {
        let clog = CommitLog::in_memory();
        clog.ensure(Xid::new(3 * FILE_XIDS)).expect("room");
        clog.set_committed(Xid::new(2 * FILE_XIDS), Lsn::new(64));
        assert!(clog.has_files_below(Xid::new(FILE_XIDS)));
        assert!(!clog.has_files_below(Xid::new(FILE_XIDS - 1)));
        assert_eq!(clog.drop_files_below(Xid::new(2 * FILE_XIDS + 5)), 0..2);
        assert_eq!(clog.page_range(), 2 * FILE_PAGES..3 * FILE_PAGES + 1);
        assert_eq!(clog.oldest(), Xid::new(2 * FILE_XIDS + 5));
        assert_eq!(clog.drop_files_below(Xid::new(FILE_XIDS)), 2..2);
        let committed = |xid| clog.settled_status(Xid::new(xid)).commit().is_some();
        assert!(committed(7) && committed(2 * FILE_XIDS - 1) && committed(2 * FILE_XIDS));
        assert!(!committed(2 * FILE_XIDS + 1));
    }
}
