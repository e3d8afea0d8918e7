//! The commit log's files: reading them at start, writing them at a checkpoint, mapping those that
//! are settled, truncation.
//!
//! Layout and the argument why torn pages are harmless are in `clog.rs`. File names are
//! `pg_xact/%04X`, 32 pages each; a file that is missing at the end, or a page beyond a file's
//! end, was never written and reads as zeros. Files are contiguous: truncation removes them in
//! ascending order, each removal made durable before the next. Files below the oldest xid of the
//! control file are left over from a truncation that a crash cut short; nobody reads them.
//!
//! A mapping is compared with the pages that it takes over from, checksums and words: from then on
//! it is all there is. What was written and does not come back as it was is written again.

use super::clog::{
    CommitLog, FILE_PAGES, NO_WORDS, PAGE_BYTES, PAGE_SECTORS, PageWords, SECTOR, SECTOR_WORDS,
    file_of,
};
use super::clog_stats::add;
use super::log::TxnLog;
use crate::error::{Result, StorageError};
use crate::ids::Xid;
use crate::vfs::{FileMap, OpenMode, Vfs, VfsFile};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The directory, relative to the data directory.
pub const CLOG_DIR: &str = "pg_xact";
/// Bytes of a full file.
const FILE_BYTES: usize = FILE_PAGES as usize * PAGE_BYTES;
const MAGIC: u32 = 0x474F_4C43;
const CRC_AT: usize = 0;
const MAGIC_AT: usize = 4;
const WORDS_AT: usize = 8;

const _: () = assert!(WORDS_AT + 8 * SECTOR_WORDS == SECTOR);
const _: () = assert!(SECTOR * PAGE_SECTORS == PAGE_BYTES);

fn file_path(file: u64) -> String {
    format!("{CLOG_DIR}/{file:04X}")
}

fn sector_crc(number: u64, sector: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&number.to_le_bytes());
    crc32c::crc32c_append(crc, &sector[MAGIC_AT..])
}

/// Writes the page's sectors, each with its checksum, into `out`.
fn encode_page(page: u64, words: &PageWords, out: &mut [u8; PAGE_BYTES]) {
    for (index, sector) in out.chunks_exact_mut(SECTOR).enumerate() {
        sector[MAGIC_AT..WORDS_AT].copy_from_slice(&MAGIC.to_le_bytes());
        let words = &words[index * SECTOR_WORDS..][..SECTOR_WORDS];
        for (to, word) in sector[WORDS_AT..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let crc = sector_crc(page * PAGE_SECTORS as u64 + index as u64, sector);
        sector[CRC_AT..MAGIC_AT].copy_from_slice(&crc.to_le_bytes());
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(raw)
}

/// Reads a page's words back. `Err` names the sector that is not what was written.
fn decode_page(page: u64, bytes: &[u8; PAGE_BYTES], words: &mut PageWords) -> Result<(), u64> {
    for (index, sector) in bytes.chunks_exact(SECTOR).enumerate() {
        let number = page * PAGE_SECTORS as u64 + index as u64;
        let words = &mut words[index * SECTOR_WORDS..][..SECTOR_WORDS];
        if sector.iter().all(|byte| *byte == 0) {
            words.fill(0);
            continue;
        }
        let intact = le_u32(&sector[CRC_AT..]) == sector_crc(number, sector);
        if !intact || le_u32(&sector[MAGIC_AT..]) != MAGIC {
            return Err(number);
        }
        for (word, from) in words.iter_mut().zip(sector[WORDS_AT..].chunks_exact(8)) {
            let mut raw = [0; 8];
            raw.copy_from_slice(from);
            *word = u64::from_le_bytes(raw);
        }
    }
    Ok(())
}

/// Reads up to a page; what lies beyond the file's end is zero.
fn read_page(file: &dyn VfsFile, at: u64, out: &mut [u8; PAGE_BYTES]) -> io::Result<bool> {
    out.fill(0);
    let mut done = 0;
    while done < PAGE_BYTES {
        match file.read_at(&mut out[done..], at + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done > 0)
}

/// The numbers of all files present, ascending.
fn file_numbers(vfs: &dyn Vfs) -> Result<Vec<u64>> {
    let names = vfs.list(CLOG_DIR).map_err(|e| StorageError::io("list directory", CLOG_DIR, e))?;
    let mut files: Vec<u64> = Vec::new();
    for name in &names {
        let number = u64::from_str_radix(name, 16).ok().filter(|n| format!("{n:04X}") == *name);
        files.extend(number);
    }
    files.sort_unstable();
    Ok(files)
}

/// The files from `oldest` on; an error when one at their beginning or among them is missing.
fn present_files(vfs: &dyn Vfs, oldest: u64) -> Result<Range<u64>> {
    let mut files = file_numbers(vfs)?;
    files.retain(|number| *number >= oldest);
    let Some(&last) = files.last() else { return Ok(oldest..oldest) };
    if last - oldest + 1 != files.len() as u64 {
        return Err(StorageError::corrupt(format!(
            "a file of the commit log between {} and {} is missing",
            file_path(oldest),
            file_path(last)
        )));
    }
    Ok(oldest..last + 1)
}

/// Removes the files below `keep`, ascending, each for good before the next.
fn remove_files_below(vfs: &dyn Vfs, keep: u64) -> Result<()> {
    for file in file_numbers(vfs)?.into_iter().filter(|number| *number < keep) {
        let path = file_path(file);
        vfs.remove(&path).map_err(|e| StorageError::io("remove file", &path, e))?;
        vfs.sync_dir(CLOG_DIR).map_err(|e| StorageError::io("fsync directory", CLOG_DIR, e))?;
    }
    Ok(())
}

/// A page's bytes in a mapping.
fn copy_page(map: &FileMap, index: u64, out: &mut [u8; PAGE_BYTES]) {
    let start = index as usize * PAGE_BYTES;
    for (at, to) in out.chunks_exact_mut(8).enumerate() {
        to.copy_from_slice(&map.word(start + 8 * at).to_le_bytes());
    }
}

fn bad_sector(path: &str, sector: u64) -> StorageError {
    let what = format!("sector {sector} of the commit log ({path}) fails its checksum");
    StorageError::corrupt(what)
}

impl CommitLog {
    /// Opens the commit log of a data directory that was never truncated; makes an empty one where
    /// there is none.
    pub fn open(vfs: Arc<dyn Vfs>) -> Result<Self> {
        Self::open_from(vfs, Xid::FIRST_NORMAL)
    }

    /// Opens the commit log whose oldest xid is `oldest`, as the control file has it: full files
    /// are mapped, the others are read. Changes nothing that is there.
    pub fn open_from(vfs: Arc<dyn Vfs>, oldest: Xid) -> Result<Self> {
        if !vfs.exists(CLOG_DIR) {
            vfs.create_dir_all(CLOG_DIR)
                .and_then(|()| vfs.sync_dir(""))
                .map_err(|e| StorageError::io("create directory", CLOG_DIR, e))?;
        }
        let files = present_files(&*vfs, file_of(oldest))?;
        let clog = CommitLog::starting_at(files.start * FILE_PAGES, Some(Arc::clone(&vfs)));
        clog.advance_oldest(oldest);
        for number in files.clone() {
            let path = file_path(number);
            vfs.open(&path, OpenMode::Open)
                .and_then(|file| {
                    if clog.map_file(&*file, number)? {
                        return Ok(Ok(()));
                    }
                    clog.load_file(&*file, number, number + 1 == files.end)
                })
                .map_err(|e| StorageError::io("read file", &path, e))?
                .map_err(|sector| bad_sector(&path, sector))?;
        }
        Ok(clog)
    }

    /// Maps a full file at start. False when it has to be loaded: it is not full, its mapping is
    /// refused, or something is wrong with it, which loading then says.
    fn map_file(&self, file: &dyn VfsFile, number: u64) -> io::Result<bool> {
        if file.len()? < FILE_BYTES as u64 || !self.files.can_map(number) {
            return Ok(false);
        }
        let Ok(map) = file.map(FILE_BYTES) else { return Ok(false) };
        let mut bytes = [0; PAGE_BYTES];
        let mut words = NO_WORDS;
        for index in 0..FILE_PAGES {
            copy_page(&map, index, &mut bytes);
            if decode_page(number * FILE_PAGES + index, &bytes, &mut words).is_err() {
                return Ok(false);
            }
        }
        add(&self.counters.read, FILE_PAGES);
        Ok(self.map_at_start(number, map))
    }

    fn load_file(
        &self,
        file: &dyn VfsFile,
        number: u64,
        last: bool,
    ) -> io::Result<Result<(), u64>> {
        let mut bytes = [0; PAGE_BYTES];
        let mut words = NO_WORDS;
        for index in 0..FILE_PAGES {
            let found = read_page(file, index * PAGE_BYTES as u64, &mut bytes)?;
            if !found && last {
                break;
            }
            let page = number * FILE_PAGES + index;
            if let Err(sector) = decode_page(page, &bytes, &mut words) {
                return Ok(Err(sector));
            }
            add(&self.counters.read, u64::from(found));
            // What a file in the middle lacks is written, so that it can be mapped later.
            self.install(page, &words, !found);
        }
        Ok(Ok(()))
    }

    /// Writes and syncs every page changed since the last time; the log is flushed first as far
    /// as each page needs. Returns how many pages were written. After an error the pages count
    /// as changed, so that a later attempt writes them again in full.
    pub fn write_dirty(&self, log: &impl TxnLog) -> Result<u64> {
        let Some(vfs) = &self.vfs else { return Ok(0) };
        let _filing = self.filing.lock();
        let pages = self.page_range();
        let mut written = 0;
        for file in pages.start / FILE_PAGES..pages.end.div_ceil(FILE_PAGES) {
            let mut taken = Vec::new();
            let first = (file * FILE_PAGES).max(pages.start);
            let last = ((file + 1) * FILE_PAGES).min(pages.end);
            let outcome = self.write_file(&**vfs, log, file, first..last, &mut taken);
            if outcome.is_err() {
                taken.iter().for_each(|page| self.mark_dirty(*page));
            }
            outcome?;
            written += taken.len() as u64;
        }
        add(&self.counters.written, written);
        add(&self.counters.flushes, u64::from(written > 0));
        Ok(written)
    }

    /// Lets mappings take over from the files that lie entirely below `settled`, the oldest xid
    /// that is not settled, and have nothing left to write (rule C7). Returns how many.
    pub(crate) fn map_settled(&self, settled: Xid) -> Result<u64> {
        let Some(vfs) = &self.vfs else { return Ok(0) };
        let _filing = self.filing.lock();
        let pages = self.page_range();
        let mut mapped = 0;
        for file in pages.start / FILE_PAGES..file_of(settled).min(pages.end / FILE_PAGES) {
            if self.files.can_map(file) {
                mapped += u64::from(self.map_one(&**vfs, file)?);
            }
        }
        Ok(mapped)
    }

    fn map_one(&self, vfs: &dyn Vfs, file: u64) -> Result<bool> {
        let pages = file * FILE_PAGES..(file + 1) * FILE_PAGES;
        if pages.clone().any(|page| self.is_dirty(page)) {
            return Ok(false);
        }
        let path = file_path(file);
        let map = vfs
            .open(&path, OpenMode::Open)
            .and_then(|file| file.map(FILE_BYTES))
            .map_err(|e| StorageError::io("map file", &path, e))?;
        let mut bytes = [0; PAGE_BYTES];
        let mut words = NO_WORDS;
        for page in pages {
            copy_page(&map, page % FILE_PAGES, &mut bytes);
            let decoded = decode_page(page, &bytes, &mut words);
            if decoded.is_err() || !self.is_written_as(page, &words) {
                // The memory is right: it is written again, and mapped another time.
                self.mark_dirty(page);
                return Err(decoded.map_or_else(
                    |sector| bad_sector(&path, sector),
                    |()| StorageError::corrupt(format!("{path} is not what was written to it")),
                ));
            }
        }
        add(&self.counters.read, FILE_PAGES);
        Ok(self.take_over(file, map))
    }

    fn write_file(
        &self,
        vfs: &dyn Vfs,
        log: &impl TxnLog,
        number: u64,
        pages: Range<u64>,
        taken: &mut Vec<u64>,
    ) -> Result<()> {
        let path = file_path(number);
        let mut file: Option<Arc<dyn VfsFile>> = None;
        let mut words = NO_WORDS;
        let mut bytes = [0; PAGE_BYTES];
        for page in pages {
            let Some(newest) = self.take_dirty(page, &mut words) else { continue };
            taken.push(page);
            log.flush_now(newest)?;
            encode_page(page, &words, &mut bytes);
            let file = match &file {
                Some(file) => file,
                None => {
                    add(&self.counters.exists, 1);
                    file.insert(open_for_writing(vfs, &path)?)
                }
            };
            let at = (page % FILE_PAGES) * PAGE_BYTES as u64;
            let written = file.write_at(&bytes, at);
            written.map_err(|e| StorageError::failed_write("write to file", &path, e))?;
        }
        match file {
            Some(file) => {
                file.sync().map_err(|e| StorageError::failed_sync("fsync file", &path, e))
            }
            None => Ok(()),
        }
    }

    /// Forgets what lies below `oldest`, on disk and in memory, in whole files.
    pub(crate) fn truncate(&self, oldest: Xid) -> Result<()> {
        let _filing = self.filing.lock();
        let dropped = self.drop_files_below(oldest);
        add(&self.counters.truncates, u64::from(!dropped.is_empty()));
        self.remove_leftovers(dropped.end)
    }

    /// Removes files below the first one that is used: of a truncation that did not finish.
    pub(crate) fn remove_old_files(&self) -> Result<()> {
        let _filing = self.filing.lock();
        self.remove_leftovers(self.page_range().start / FILE_PAGES)
    }

    fn remove_leftovers(&self, keep: u64) -> Result<()> {
        self.vfs.as_ref().map_or(Ok(()), |vfs| remove_files_below(&**vfs, keep))
    }
}

/// A new file's name is made durable before anything relies on its contents.
fn open_for_writing(vfs: &dyn Vfs, path: &str) -> Result<Arc<dyn VfsFile>> {
    let existed = vfs.exists(path);
    let file = vfs
        .open(path, OpenMode::OpenOrCreate)
        .map_err(|e| StorageError::io("open file", path, e))?;
    if !existed && let Err(e) = vfs.sync_dir(CLOG_DIR) {
        return Err(StorageError::failed_sync("fsync directory", CLOG_DIR, e));
    }
    Ok(file)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::ids::Lsn;
    use crate::txn::clog::PAGE_XIDS;
    use crate::txn::testing::TestLog;
    use crate::vfs::{Fault, Op, SimDisk};

    fn committed(clog: &CommitLog, xid: u64) -> bool {
        clog.settled_status(Xid::new(xid)).commit().is_some()
    }

    fn filled(disk: &SimDisk) -> CommitLog {
        let clog = CommitLog::open(Arc::new(disk.clone())).expect("open");
        clog.ensure(Xid::new(40 * PAGE_XIDS)).expect("room");
        for xid in [3, 2_015, 2_016, PAGE_XIDS, 33 * PAGE_XIDS + 7] {
            clog.set_committed(Xid::new(xid), Lsn::new(64));
        }
        clog
    }

    #[test]
    fn what_was_written_survives_any_crash() {
        let disk = SimDisk::new(1);
        let clog = filled(&disk);
        assert_eq!(clog.write_dirty(&TestLog::new()).expect("write"), 41);
        assert_eq!(clog.write_dirty(&TestLog::new()).expect("write"), 0);
        clog.set_committed(Xid::new(9), Lsn::new(72));
        for seed in 0..20 {
            let clog = CommitLog::open(Arc::new(disk.crash(seed))).expect("open");
            for xid in [3, 2_015, 2_016, PAGE_XIDS, 33 * PAGE_XIDS + 7] {
                assert!(committed(&clog, xid), "{xid}");
            }
            assert!(!committed(&clog, 9) && !committed(&clog, 2_017));
        }
    }

    #[test]
    fn a_torn_page_is_readable_and_lacks_nothing_that_was_synced() {
        let disk = SimDisk::new(2);
        let clog = filled(&disk);
        clog.write_dirty(&TestLog::new()).expect("write");
        for xid in (5..PAGE_XIDS).step_by(101) {
            clog.set_committed(Xid::new(xid), Lsn::new(80));
        }
        disk.inject(Fault::eio(Op::Sync));
        assert!(clog.write_dirty(&TestLog::new()).is_err());
        let mut torn = 0;
        for seed in 0..50 {
            let after = CommitLog::open(Arc::new(disk.crash(seed))).expect("open");
            assert!(committed(&after, 3) && committed(&after, 2_016));
            let kept = (5..PAGE_XIDS).step_by(101).filter(|xid| committed(&after, *xid)).count();
            torn += usize::from(kept > 0 && kept < 319);
        }
        assert!(torn > 0, "some crash tore the page");
        disk.clear_faults();
        assert_eq!(clog.write_dirty(&TestLog::new()).expect("again"), 1);
        let after = CommitLog::open(Arc::new(disk.crash(7))).expect("open");
        assert!((5..PAGE_XIDS).step_by(101).all(|xid| committed(&after, xid)));
    }

    #[test]
    fn damage_is_noticed_and_a_missing_file_too() {
        let disk = SimDisk::new(3);
        filled(&disk).write_dirty(&TestLog::new()).expect("write");
        let hurt = disk.crash(1);
        hurt.corrupt("pg_xact/0000", 100, 4);
        assert!(CommitLog::open(Arc::new(hurt)).is_err());

        let clog = CommitLog::open(Arc::new(disk.clone())).expect("open");
        clog.ensure(Xid::new(100 * PAGE_XIDS)).expect("room");
        clog.write_dirty(&TestLog::new()).expect("write");
        disk.remove("pg_xact/0001").expect("remove");
        assert!(CommitLog::open(Arc::new(disk)).is_err());
    }

    #[test]
    fn truncation_removes_whole_files() {
        let disk = SimDisk::new(4);
        let clog = filled(&disk);
        clog.write_dirty(&TestLog::new()).expect("write");
        clog.truncate(Xid::new(33 * PAGE_XIDS)).expect("truncate");
        assert_eq!(disk.list(CLOG_DIR).expect("list"), ["0001"]);
        assert!(CommitLog::open(Arc::new(disk.crash(9))).is_err(), "the first file is missing");
        let oldest = Xid::new(33 * PAGE_XIDS);
        let clog = CommitLog::open_from(Arc::new(disk.crash(9)), oldest).expect("open");
        assert_eq!(clog.page_range(), 32..41);
        assert_eq!(clog.oldest(), oldest);
        assert!(committed(&clog, 33 * PAGE_XIDS + 7));
    }

    #[test]
    fn no_bit_is_written_before_its_record_is_durable() {
        let disk = SimDisk::new(5);
        let clog = filled(&disk);
        let log = TestLog::new();
        clog.write_dirty(&log).expect("write");
        assert!(log.flushed_to() >= Lsn::new(64));
    }
}
