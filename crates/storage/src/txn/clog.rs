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
//! Readers load one word and take no lock. Pages below the truncation point are gone; every tuple
//! that could ask about them has been resolved (rule C4).

use super::record::EndRecord;
use super::status::{CommitStamp, XidStatus};
use super::window::{Found, WordTable, XID_LIMIT};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, Xid};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::vfs::Vfs;
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

const _: () = assert!(SECTOR_WORDS == 63 && (cfg!(shuttle) || PAGE_XIDS == 32_256));

const COMMITTED: u64 = 1;
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
    /// The first page in memory.
    pub(crate) first: u64,
    /// The page after the last one.
    pub(crate) end: u64,
}

/// Two bits per xid. See the module's essay.
pub struct CommitLog {
    pages: Pages,
    pub(crate) extent: Mutex<Extent>,
    /// Xids below have been resolved wherever they occurred.
    oldest: AtomicU64,
    /// Where the pages are kept.
    pub(crate) vfs: Option<Arc<dyn Vfs>>,
}

/// Where the two bits of `xid` are: page, word in the page, shift in the word.
#[inline]
pub(super) fn place_in_page(xid: Xid) -> (u64, usize, u32) {
    let (page, index) = (xid.raw() / PAGE_XIDS, xid.raw() % PAGE_XIDS);
    (page, (index / WORD_XIDS) as usize, 2 * (index % WORD_XIDS) as u32)
}

/// The page that holds the bits of `xid`.
pub(crate) fn page_of(xid: Xid) -> u64 {
    xid.raw() / PAGE_XIDS
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
        let mut extent = self.extent.lock();
        while extent.end <= page {
            // Dirty, so that it is written even if nothing ends here: files have no holes.
            self.create_page(extent.end, true);
            extent.end += 1;
        }
        Ok(())
    }

    fn create_page(&self, page: u64, dirty: bool) {
        let made = self.pages.create(page, |chunk| {
            chunk.meta.newest.store(0, Ordering::Relaxed);
            chunk.meta.dirty.store(dirty, Ordering::Relaxed);
        });
        assert!(made.is_ok(), "pages below the xid limit fit the directory");
    }

    /// Puts a page read from disk in place. Only at start.
    pub(crate) fn install(&self, page: u64, words: &[u64]) {
        self.create_page(page, false);
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
        let (page, index, shift) = place_in_page(xid);
        match self.pages.load(page, index) {
            Found::Here(word) if (word >> shift) & COMMITTED != 0 => {
                XidStatus::Committed(CommitStamp::SETTLED)
            }
            // Resolved everywhere: what is left of such a transaction was kept as committed.
            Found::Dropped => XidStatus::Committed(CommitStamp::SETTLED),
            Found::Here(_) | Found::Absent => XidStatus::Aborted,
        }
    }

    /// Copies a page's bits as they are now. False when there is no such page (any more).
    pub(super) fn copy_page(&self, page: u64, out: &mut PageWords) -> bool {
        for (index, word) in out.iter_mut().enumerate() {
            match self.pages.load(page, index) {
                Found::Here(bits) => *word = bits,
                Found::Dropped | Found::Absent => return false,
            }
        }
        true
    }

    /// Replays a Commit record that ends at `at`.
    pub fn redo_commit(&self, top: Xid, record: &EndRecord, at: Lsn) -> Result<()> {
        let last = record.children.last().copied().unwrap_or(top);
        self.ensure(last)?;
        for &xid in record.children.iter().chain([&top]) {
            if !self.is_truncated(xid) {
                self.set_committed(xid, at);
            }
        }
        Ok(())
    }

    /// Replays an Abort record.
    pub fn redo_abort(&self, top: Xid, record: &EndRecord) -> Result<()> {
        let last = record.children.last().copied().unwrap_or(top);
        self.ensure(last)?;
        for &xid in record.children.iter().chain([&top]) {
            if !self.is_truncated(xid) {
                self.set_aborted(xid);
            }
        }
        Ok(())
    }

    fn is_truncated(&self, xid: Xid) -> bool {
        matches!(self.pages.chunk(page_of(xid)), Found::Dropped)
    }

    /// Wipes the bits of `next` and all after it: aborts whose record was lost with the end of
    /// the log while their page was written. These xids are handed out anew. Only at start.
    /// (Should another crash come before the wiped page is written, C1 still decides rightly.)
    pub(crate) fn forget_from(&self, next: Xid) {
        let (first, index, shift) = place_in_page(next);
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

    /// Forgets the pages that lie entirely below `oldest`, in memory. Returns the range of pages.
    pub(crate) fn drop_pages_below(&self, oldest: Xid) -> std::ops::Range<u64> {
        let mut extent = self.extent.lock();
        self.oldest.fetch_max(oldest.raw(), Ordering::AcqRel);
        let first = extent.first;
        let keep = page_of(oldest).min(extent.end).max(first);
        for page in first..keep {
            self.pages.drop_chunk(page);
        }
        extent.first = keep;
        first..keep
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

    /// The pages in memory.
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
    fn truncation_keeps_the_page_of_the_oldest() {
        let clog = CommitLog::in_memory();
        clog.ensure(Xid::new(3 * PAGE_XIDS)).expect("room");
        assert_eq!(clog.drop_pages_below(Xid::new(2 * PAGE_XIDS + 5)), 0..2);
        assert_eq!(clog.page_range(), 2..4);
        assert_eq!(clog.oldest(), Xid::new(2 * PAGE_XIDS + 5));
        assert_eq!(clog.drop_pages_below(Xid::new(PAGE_XIDS)), 2..2);
    }
}
