//! The log's files: their names, and having the next one ready before it is needed.
//!
//! ```text
//!   pg_wal/  ..0007  ..0008   ..0009   ..000A   new-segment
//!            full    current  ready    ready    being filled with zeros
//!                                  ^ end
//! ```
//!
//! A segment becomes usable (`end` moves past it) only when it has its full length, its space is
//! allocated, its contents are durable and its name is durable: it is made under a temporary name,
//! filled, synced, renamed, and the directory is synced. From then on writing into it needs no
//! space and no change of the file system's own structures, so the log itself cannot run into a
//! full disk; *preparing* can, and that shows in `reserve`.
//!
//! An old segment is reused by renaming it to the next number: its bytes are records sealed for
//! other positions, which no reader accepts.
//!
//! [`clean_up`] runs at opening, before the first insertion: the rest of the current segment is
//! made zeros and later segments are removed, durably. Otherwise records that a previous run wrote
//! beyond the end of the log, at their own right positions, might one day follow seamlessly on a
//! new record of just the fitting length.

use super::options::WalOptions;
use crate::error::{Result, StorageError};
use crate::ids::Lsn;
use crate::vfs::{OpenMode, Vfs, VfsFile};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Where the log's files live, below the data directory.
pub const WAL_DIR: &str = "pg_wal";
/// There is one timeline.
const TIMELINE: u32 = 1;
/// A segment that is being made.
const NEW_SEGMENT: &str = "pg_wal/new-segment";
/// Bytes of zeros written at a time.
const ZERO_CHUNK: usize = 1 << 20;

/// The path of the segment with number `segno`: PostgreSQL's 24 hexadecimal digits.
pub fn segment_path(segno: u64, segment_size: u64) -> String {
    let per_id = (1u64 << 32) / segment_size;
    format!("{WAL_DIR}/{TIMELINE:08X}{:08X}{:08X}", segno / per_id, segno % per_id)
}

/// The number in a segment's file name; `None` for any other name.
pub fn parse_segment_name(name: &str, segment_size: u64) -> Option<u64> {
    let digit = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
    if name.len() != 24 || !name.bytes().all(digit) {
        return None;
    }
    let part = |at: usize| u32::from_str_radix(&name[at..at + 8], 16).ok();
    let (timeline, high, low) = (part(0)?, part(8)?, part(16)?);
    let per_id = (1u64 << 32) / segment_size;
    let fits = timeline == TIMELINE && u64::from(low) < per_id;
    fits.then(|| u64::from(high) * per_id + u64::from(low))
}

/// The segment that holds the byte at `lsn`.
pub fn segment_of(lsn: Lsn, segment_size: u64) -> u64 {
    lsn.raw() / segment_size
}

/// What became of segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SegmentStats {
    pub created: u64,
    pub recycled: u64,
    pub removed: u64,
}

/// How far the preparation of a segment got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// A piece was written; call again.
    Going,
    /// Segments are ready up to this position.
    Ready(u64),
}

/// Prepares, reuses and removes segments.
pub(super) struct Segments {
    vfs: Arc<dyn Vfs>,
    size: u64,
    fsync: bool,
    init_zero: bool,
    state: Mutex<State>,
}

struct State {
    /// Everything below this is ready; a multiple of the segment size.
    end: u64,
    /// The segment being made, and how much of it is zeros.
    unfinished: Option<(Arc<dyn VfsFile>, u64)>,
    stats: SegmentStats,
}

impl Segments {
    /// `end`: where the segments that `clean_up` left end.
    pub fn new(vfs: Arc<dyn Vfs>, options: &WalOptions, end: u64) -> Self {
        let stats = SegmentStats::default();
        Segments {
            vfs,
            size: options.segment_size,
            fsync: options.fsync,
            init_zero: options.init_zero,
            state: Mutex::new(State { end, unfinished: None, stats }),
        }
    }

    pub fn stats(&self) -> SegmentStats {
        self.state.lock().stats
    }

    /// Prepares segments until they reach `position`; answers where they end.
    pub fn ensure(&self, position: u64) -> Result<u64> {
        let mut state = self.state.lock();
        while state.end < position {
            self.step(&mut state)?;
        }
        Ok(state.end)
    }

    /// Does a piece of the work of preparing one more segment.
    pub fn prepare_piece(&self) -> Result<Progress> {
        self.step(&mut self.state.lock())
    }

    fn step(&self, state: &mut State) -> Result<Progress> {
        let progress = self.try_step(state);
        if progress.is_err() && state.unfinished.take().is_some() {
            // Give the space back: somebody else may be waiting for it.
            let _ = self.vfs.remove(NEW_SEGMENT);
        }
        progress
    }

    fn try_step(&self, state: &mut State) -> Result<Progress> {
        let wrap = |action| move |e| StorageError::io(action, NEW_SEGMENT, e);
        let Some((file, filled)) = &mut state.unfinished else {
            let file =
                self.vfs.open(NEW_SEGMENT, OpenMode::OpenOrCreate).map_err(wrap("create"))?;
            state.unfinished = Some((Arc::clone(&file), 0));
            file.allocate(0, self.size).map_err(wrap("extend"))?;
            return Ok(Progress::Going);
        };
        if self.init_zero && *filled < self.size {
            let piece = (self.size - *filled).min(ZERO_CHUNK as u64);
            file.write_at(&vec![0; piece as usize], *filled).map_err(wrap("extend"))?;
            file.start_write_back(*filled, piece);
            *filled += piece;
            return Ok(Progress::Going);
        }
        if self.fsync {
            file.sync().map_err(wrap("fsync"))?;
        }
        let path = segment_path(state.end / self.size, self.size);
        self.vfs.rename(NEW_SEGMENT, &path).map_err(wrap("rename"))?;
        state.unfinished = None;
        self.sync_dir()?;
        state.end += self.size;
        state.stats.created += 1;
        Ok(Progress::Ready(state.end))
    }

    /// Removes all segments that end at or before `position`, which must be flushed, or reuses them
    /// as long as those from there on hold less than `keep` bytes; answers where the ready segments
    /// end now.
    pub fn remove_before(&self, position: u64, keep: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let keep_from = position / self.size;
        let full = keep_from.saturating_add(keep.div_ceil(self.size)).saturating_mul(self.size);
        let names = list(&*self.vfs)?;
        let old = names.iter().filter_map(|name| parse_segment_name(name, self.size));
        let old: Vec<u64> = old.filter(|segno| *segno < keep_from).collect();
        if old.is_empty() {
            return Ok(state.end);
        }
        let mut end = state.end;
        for segno in old {
            let path = segment_path(segno, self.size);
            if end < full && self.has_full_length(&path) {
                let next = segment_path(end / self.size, self.size);
                let renamed = self.vfs.rename(&path, &next);
                renamed.map_err(|e| StorageError::io("rename", path, e))?;
                end += self.size;
                state.stats.recycled += 1;
            } else {
                self.vfs.remove(&path).map_err(|e| StorageError::io("remove", path, e))?;
                state.stats.removed += 1;
            }
        }
        // Only now may the log flow into the renamed ones.
        self.sync_dir()?;
        state.end = end;
        Ok(end)
    }

    fn has_full_length(&self, path: &str) -> bool {
        let len = self.vfs.open(path, OpenMode::Open).and_then(|file| file.len());
        len.is_ok_and(|len| len == self.size)
    }

    fn sync_dir(&self) -> Result<()> {
        if !self.fsync {
            return Ok(());
        }
        self.vfs.sync_dir(WAL_DIR).map_err(|e| StorageError::io("fsync", WAL_DIR, e))
    }
}

fn list(vfs: &dyn Vfs) -> Result<Vec<String>> {
    vfs.list(WAL_DIR).map_err(|e| StorageError::io("list", WAL_DIR, e))
}

/// Makes the files ready for appending at `start`: the directory and the segment of `start` exist,
/// that segment holds zeros from `start` on, later ones are gone; all of it durable. Answers the
/// end of that segment.
pub(super) fn clean_up(vfs: &dyn Vfs, options: &WalOptions, start: Lsn) -> Result<u64> {
    let size = options.segment_size;
    let current = segment_of(start, size);
    let sync_dir = |dir: &str| {
        if !options.fsync {
            return Ok(());
        }
        vfs.sync_dir(dir).map_err(|e| StorageError::io("fsync", dir, e))
    };
    vfs.create_dir_all(WAL_DIR).map_err(|e| StorageError::io("create", WAL_DIR, e))?;
    sync_dir("")?;
    for name in list(vfs)? {
        let path = format!("{WAL_DIR}/{name}");
        let later = parse_segment_name(&name, size).is_some_and(|segno| segno > current);
        if later || path == NEW_SEGMENT {
            vfs.remove(&path).map_err(|e| StorageError::io("remove", path, e))?;
        }
    }
    let path = segment_path(current, size);
    let offset = start.raw() % size;
    // In the middle of a segment the log's earlier part must be there.
    let mode = if offset == 0 { OpenMode::OpenOrCreate } else { OpenMode::Open };
    let file = vfs.open(&path, mode).map_err(|e| StorageError::io("open", &path, e))?;
    clear_from(&*file, offset, options).map_err(|e| StorageError::io("extend", &path, e))?;
    if options.fsync {
        file.sync().map_err(|e| StorageError::io("fsync", &path, e))?;
    }
    sync_dir(WAL_DIR)?;
    Ok((current + 1) * size)
}

/// Gives the file its full length and zeros from `offset` on.
fn clear_from(file: &dyn VfsFile, offset: u64, options: &WalOptions) -> io::Result<()> {
    let size = options.segment_size;
    let len = file.len()?;
    file.allocate(0, size)?;
    let zeros = vec![0; ZERO_CHUNK];
    let mut found = vec![0; ZERO_CHUNK];
    let mut at = offset;
    while at < size {
        let piece = usize::try_from(size - at).unwrap_or(ZERO_CHUNK).min(ZERO_CHUNK);
        file.read_exact_at(&mut found[..piece], at)?;
        // What is new is zeros already, but is written too if its blocks are to be there for good.
        let fresh = options.init_zero && at + piece as u64 > len;
        if fresh || found[..piece].iter().any(|b| *b != 0) {
            file.write_at(&zeros[..piece], at)?;
        }
        at += piece as u64;
    }
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::vfs::{Fault, Op, SimDisk};

    #[test]
    fn names_are_postgresqls() {
        const SIZE: u64 = 16 << 20;
        assert_eq!(segment_path(1, SIZE), "pg_wal/000000010000000000000001");
        assert_eq!(segment_path(0x3_05, SIZE), "pg_wal/000000010000000300000005");
        for segno in [0, 1, 255, 256, 100_000] {
            let path = segment_path(segno, SIZE);
            assert_eq!(parse_segment_name(&path[7..], SIZE), Some(segno));
        }
        for bad in ["new-segment", "000000020000000000000001", "0000000100000000000001FF"] {
            assert_eq!(parse_segment_name(bad, SIZE), None, "{bad}");
        }
    }

    fn options() -> WalOptions {
        WalOptions { segment_size: 8192, ..WalOptions::default() }
    }

    fn names(disk: &SimDisk) -> Vec<u64> {
        let names = disk.list(WAL_DIR).expect("list");
        names.iter().filter_map(|name| parse_segment_name(name, 8192)).collect()
    }

    #[test]
    fn a_prepared_segment_survives_any_crash() {
        let disk = SimDisk::new(1);
        let start = Lsn::new(8192);
        let end = clean_up(&disk, &options(), start).expect("clean up");
        let segments = Segments::new(Arc::new(disk.clone()), &options(), end);
        assert_eq!(segments.ensure(end + 1).expect("prepare"), end + 8192);
        for seed in 0..100 {
            let after = disk.crash(seed);
            assert_eq!(names(&after), [1, 2]);
            let bytes = after.contents(&segment_path(2, 8192)).expect("exists");
            assert!(bytes.len() == 8192 && bytes.iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn a_full_disk_leaves_no_half_segment_behind() {
        let disk = SimDisk::new(1);
        let end = clean_up(&disk, &options(), Lsn::new(8192)).expect("clean up");
        let segments = Segments::new(Arc::new(disk.clone()), &options(), end);
        disk.set_capacity(Some(12_000));
        let full = segments.ensure(end + 1).expect_err("no space");
        assert!(matches!(full, StorageError::DiskFull { .. }), "{full}");
        assert_eq!(disk.used(), 8192);
        disk.set_capacity(None);
        for fault in [Op::Write, Op::Sync, Op::Rename, Op::SyncDir] {
            disk.inject(Fault::eio(fault));
            segments.ensure(end + 1).expect_err("fails once");
        }
        assert_eq!(segments.ensure(end + 1).expect("space"), end + 8192);
        assert!(!disk.exists(NEW_SEGMENT));
    }

    #[test]
    fn old_segments_are_reused_then_removed() {
        let disk = SimDisk::new(1);
        let end = clean_up(&disk, &options(), Lsn::new(8192)).expect("clean up");
        let segments = Segments::new(Arc::new(disk.clone()), &options(), end);
        segments.ensure(8192 * 6).expect("prepare");
        assert_eq!(names(&disk), [1, 2, 3, 4, 5]);
        // Segment 5 is current: two of the four old ones become 6 and 7.
        assert_eq!(segments.remove_before(8192 * 5 + 100, 8192 * 3).expect("remove"), 8192 * 8);
        assert_eq!(names(&disk), [5, 6, 7]);
        assert_eq!(segments.stats().recycled, 2);
        assert_eq!(segments.stats().removed, 2);
        for seed in 0..50 {
            assert_eq!(names(&disk.crash(seed)), [5, 6, 7]);
        }
    }

    #[test]
    fn opening_clears_what_lies_beyond_the_end() {
        let disk = SimDisk::new(1);
        clean_up(&disk, &options(), Lsn::new(8192)).expect("clean up");
        for segno in 1..4 {
            let file = disk.open(&segment_path(segno, 8192), OpenMode::OpenOrCreate);
            file.expect("open").write_at(&[7; 8192], 0).expect("write");
        }
        clean_up(&disk, &options(), Lsn::new(8192 + 800)).expect("clean up");
        for seed in 0..50 {
            let after = disk.crash(seed);
            assert_eq!(names(&after), [1]);
            let bytes = after.contents(&segment_path(1, 8192)).expect("exists");
            assert!(bytes[800..].iter().all(|b| *b == 0));
        }
        assert_eq!(disk.contents(&segment_path(1, 8192)).expect("exists")[..800], [7; 800]);
    }
}
