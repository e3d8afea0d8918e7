//! The write-ahead log: records, insertion, flushing, reading. Rules: `README.md` here.
//!
//! ```text
//!  reserve ──> change pages ──> insert ──┐                    ┌─> flush / request_flush: wait
//!                                        v                    │
//!                     ring (wal_buffers) ──write──> pg_wal/ ──sync──> flushed
//! ```
//!
//! # What it guarantees
//!
//! - After [`Wal::reserve`] succeeded, [`Wal::insert`] cannot fail: full disks and failed devices
//!   show before any page is changed.
//! - Records lie in the log in the order of insertion, and a crash leaves a prefix of them that
//!   holds at least everything below [`Wal::flushed`].
//! - After a failed write or sync nothing more is ever reported as flushed. A write that finds the
//!   disk full is tried again until there is space; meanwhile who waits, waits.
//!
//! # Example
//!
//! ```text
//! let room = wal.reserve(max_len)?;                      // may wait, may fail
//! ... change pages ...
//! let lsn = wal.insert(&record, room, redo_seen)?;       // RedoMoved: rebuild with images, again
//! ... stamp page LSNs, unlatch ...
//! wal.flush(lsn)?;                                       // or await wal.request_flush(lsn)
//! ```
//!
//! # What it does not do
//!
//! It does not know what records mean (`recovery/` replays them), which pages need images (the
//! caller compares with [`Wal::redo_point`]), nor when old segments may go (checkpoints say).

mod batch;
mod describe;
mod device;
mod kernel;
#[cfg(all(test, shuttle))]
mod model;
mod options;
mod pace;
mod padded;
mod reader;
mod record;
mod ring;
mod segment;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod waiters;
mod writer;

pub use batch::LogBatch;
pub use describe::{Describe, NoDetails, describe, describe_with};
pub use kernel::LateFlush;
pub use options::WalOptions;
pub use reader::{EndOfLog, WalReader};
pub use record::{
    BLOCK_HEADER_SIZE, BlockBody, BlockRef, Blocks, BodyRef, DecodedBlock, DecodedBody,
    DecodedRecord, ImageRef, MAX_RECORD_LEN, RECORD_HEADER_SIZE, RecordBuilder, RecordError,
    RecordKind, RecordRef, WalCompression,
};
pub use segment::{WAL_DIR, parse_segment_name, segment_of, segment_path};

use crate::durability::FlushPositions;
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, Xid};
use crate::sync::thread::{self, JoinHandle};
use crate::vfs::{Clock, Vfs};
use crate::wait::WaitHandle;
use device::{DeviceStats, SegmentDevice};
use kernel::{Claim, Kernel, Priority};
use parking_lot::Mutex;
use segment::Segments;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use writer::Step;

/// Where the first record of a new cluster starts: segment 1.
pub const FIRST_LSN: Lsn = Lsn::new(0x0100_0000);

/// Room in the log for one record. Given back when dropped.
#[must_use = "room that is not used is given back at once"]
pub struct Reservation<'w> {
    wal: &'w Wal,
    room: u64,
}

impl Reservation<'_> {
    /// The longest record that fits.
    pub fn bytes(&self) -> usize {
        self.room as usize
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.wal.shared.kernel.release(self.room);
    }
}

impl std::fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reservation({})", self.room)
    }
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

impl WalStats {
    /// What came to these counters since they were `base`.
    pub fn since(&self, base: &WalStats) -> WalStats {
        WalStats {
            records: self.records.saturating_sub(base.records),
            page_images: self.page_images.saturating_sub(base.page_images),
            page_image_bytes: self.page_image_bytes.saturating_sub(base.page_image_bytes),
            bytes: self.bytes.saturating_sub(base.bytes),
            writes: self.writes.saturating_sub(base.writes),
            syncs: self.syncs.saturating_sub(base.syncs),
            write_micros: self.write_micros.saturating_sub(base.write_micros),
            sync_micros: self.sync_micros.saturating_sub(base.sync_micros),
            buffers_full: self.buffers_full.saturating_sub(base.buffers_full),
            segments_created: self.segments_created.saturating_sub(base.segments_created),
            segments_recycled: self.segments_recycled.saturating_sub(base.segments_recycled),
            segments_removed: self.segments_removed.saturating_sub(base.segments_removed),
        }
    }
}

/// What the writer thread and the callers have in common.
struct Shared {
    kernel: Kernel<SegmentDevice>,
    segments: Segments,
    clock: Arc<dyn Clock>,
    options: WalOptions,
    device_stats: Arc<DeviceStats>,
    buffers_full: AtomicU64,
    /// When the writer last wrote.
    last_write: AtomicU64,
    /// Not before this does the writer try again to prepare a segment.
    prepare_retry: AtomicU64,
    /// Nor to write, after a write that found the disk full.
    write_retry: AtomicU64,
    /// Told when that begins (with the error) and when it is over.
    on_shortage: OnceLock<Box<Shortage>>,
    stop: AtomicBool,
    /// Whether there is a thread that serves flush requests.
    writer_runs: AtomicBool,
}

/// Told that the log cannot be written for want of space (with what was found), or can again.
pub type Shortage = dyn Fn(Option<&StorageError>) + Send + Sync;

/// How long a blocking flush leaves the device to others before it tries for itself.
const SHORTAGE_LOOK: Duration = Duration::from_millis(200);
/// Between two attempts to write to a full disk.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);

/// The log. Shared by `Arc`.
pub struct Wal {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal")
            .field("inserted", &self.inserted())
            .field("written", &self.written())
            .field("flushed", &self.flushed())
            .finish_non_exhaustive()
    }
}

impl Wal {
    /// Opens the log for appending at `start`, the end of the valid log (a [`WalReader`] finds
    /// it), and removes what lies beyond. The redo point starts there too.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        options: WalOptions,
        start: Lsn,
    ) -> Result<Arc<Wal>> {
        let options = options.checked()?;
        if !start.raw().is_multiple_of(Lsn::ALIGN) || !start.is_valid() {
            return Err(StorageError::corrupt(format!("the log cannot go on at {start}")));
        }
        let disk_end = segment::clean_up(&*vfs, &options, start)?;
        let device_stats = Arc::new(DeviceStats::default());
        let device = SegmentDevice::new(
            Arc::clone(&vfs),
            Arc::clone(&clock),
            Arc::clone(&device_stats),
            options.segment_size,
            options.fsync,
        );
        let (capacity, margin) = (options.buffer_size, options.safety_margin);
        let background = options.background_writer;
        let served = background || options.driven_writer;
        let shared = Arc::new(Shared {
            kernel: Kernel::new(start.raw(), capacity, disk_end, margin, device),
            segments: Segments::new(vfs, &options, disk_end),
            last_write: AtomicU64::new(clock.monotonic_micros()),
            clock,
            options,
            device_stats,
            buffers_full: AtomicU64::new(0),
            prepare_retry: AtomicU64::new(0),
            write_retry: AtomicU64::new(0),
            on_shortage: OnceLock::new(),
            stop: AtomicBool::new(false),
            writer_runs: AtomicBool::new(served),
        });
        let writer = if background { Some(spawn_writer(&shared)?) } else { None };
        Ok(Arc::new(Wal { shared, writer: Mutex::new(writer) }))
    }

    pub fn options(&self) -> &WalOptions {
        &self.shared.options
    }

    /// An empty record with this log's compression setting.
    pub fn new_record(&self, kind: RecordKind, xid: Xid) -> RecordBuilder {
        let mut record = RecordBuilder::new(kind, xid);
        record.set_compression(self.shared.options.compression);
        record
    }

    // ---- insertion ----

    /// Reserves room for a record of at most `bytes` bytes. A full disk, a failed log and a full
    /// ring show here, before any page is changed; the last by waiting. Do not hold one
    /// reservation while asking for another.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation<'_>> {
        self.reserve_as(bytes, Priority::Ordinary)
    }

    /// `reserve` for records that must get through when the disk is full: checkpoints, aborts.
    pub fn reserve_essential(&self, bytes: usize) -> Result<Reservation<'_>> {
        self.reserve_as(bytes, Priority::Essential)
    }

    fn reserve_as(&self, bytes: usize, priority: Priority) -> Result<Reservation<'_>> {
        let kernel = &self.shared.kernel;
        kernel.check_poisoned()?;
        let room = record::padded(bytes) as u64;
        if room > kernel.capacity() || bytes > MAX_RECORD_LEN {
            let what = format!("log record of {bytes} bytes does not fit the WAL buffers");
            return Err(StorageError::Limit { what });
        }
        if kernel.try_claim(room, priority) != Claim::Granted {
            self.claim_slowly(room, priority)?;
        }
        Ok(Reservation { wal: self, room })
    }

    /// Claims room, making or awaiting it.
    #[cold]
    fn claim_slowly(&self, room: u64, priority: Priority) -> Result<()> {
        let kernel = &self.shared.kernel;
        let mut waited = None;
        loop {
            kernel.check_poisoned()?;
            match kernel.try_claim(room, priority) {
                Claim::Granted => return Ok(()),
                Claim::NoSegment => {
                    let margin = if priority == Priority::Essential { 0 } else { kernel.margin() };
                    let end = self.shared.segments.ensure(kernel.claimed() + room + margin)?;
                    kernel.extend_disk(end);
                    kernel.wake_room();
                }
                Claim::RingFull if kernel.try_make_room()? => {}
                Claim::RingFull => match waited.take() {
                    None => {
                        self.shared.buffers_full.fetch_add(1, Ordering::Relaxed);
                        waited = Some(kernel.wait_for_room());
                    }
                    Some(handle) => WaitHandle::block(&handle),
                },
            }
        }
    }

    /// Appends a record and answers its LSN. `redo_seen`: the redo point by which the caller chose
    /// between images and operations; it only matters for records with blocks.
    ///
    /// Panics when the record is longer than the reservation: that is a bug above, and the page
    /// changes that the record describes must not outlive it.
    pub fn insert<'w>(
        &'w self,
        record: &RecordBuilder,
        mut reservation: Reservation<'w>,
        redo_seen: Lsn,
    ) -> Result<Lsn, RedoMoved<'w>> {
        let images = (record.image_count(), record.image_bytes());
        let seen = (record.block_count() > 0).then_some(redo_seen.raw());
        let room = reservation.room;
        match self.shared.kernel.insert(&record.seal(), images, room, seen) {
            Ok(end) => {
                // The kernel has taken or released all of it.
                reservation.room = 0;
                Ok(Lsn::new(end))
            }
            Err(redo_point) => Err(RedoMoved { reservation, redo_point: Lsn::new(redo_point) }),
        }
    }

    /// Pages whose LSN is not beyond this need an image in their next record.
    #[inline]
    pub fn redo_point(&self) -> Lsn {
        Lsn::new(self.shared.kernel.redo_point())
    }

    /// Moves the redo point to the insert position, while no insertion is under way.
    pub fn advance_redo_point(&self) -> Lsn {
        Lsn::new(self.shared.kernel.advance_redo_point())
    }

    // ---- positions ----

    /// The end of the last inserted record.
    #[inline]
    pub fn inserted(&self) -> Lsn {
        Lsn::new(self.shared.kernel.inserted())
    }

    /// Everything before this was handed to the kernel.
    #[inline]
    pub fn written(&self) -> Lsn {
        Lsn::new(self.shared.kernel.written())
    }

    /// Everything before this survives a power failure.
    #[inline]
    pub fn flushed(&self) -> Lsn {
        Lsn::new(self.shared.kernel.flushed())
    }

    /// How far flushes are: done, and begun.
    #[inline]
    pub fn flush_positions(&self) -> FlushPositions {
        let kernel = &self.shared.kernel;
        FlushPositions { flushed: self.flushed(), begun: Lsn::new(kernel.begun()) }
    }

    // ---- flushing ----

    /// Asks for a flush up to `lsn`; `None`: it is flushed. Otherwise the handle is woken when it
    /// is, or when the log fails: look at `flushed` and `check_poisoned` again.
    ///
    /// Panics on a position that was never inserted.
    pub fn request_flush(&self, lsn: Lsn) -> Option<WaitHandle> {
        let handle = self.shared.kernel.request_flush(lsn.raw())?;
        if !self.shared.writer_runs.load(Ordering::SeqCst) {
            // Nobody else will do it. Success and failure alike wake the handle, but for a full
            // disk: then the caller is to come again.
            if let Err(StorageError::DiskFull { .. }) = self.shared.kernel.flush_blocking(lsn.raw())
            {
                std::thread::sleep(SHORTAGE_PAUSE);
                self.shared.kernel.wake_flush_waiters();
            }
        }
        Some(handle)
    }

    /// Flushes in this thread if nobody else uses the device; tells whether `lsn` is flushed now.
    /// Spares a thread switch where there is nothing better to do than to wait anyway.
    pub fn try_flush_inline(&self, lsn: Lsn) -> Result<bool> {
        if self.flushed() >= lsn {
            return Ok(true);
        }
        self.check_position(lsn)?;
        self.shared.kernel.try_flush(lsn.raw())?;
        Ok(self.flushed() >= lsn)
    }

    /// Blocks until everything before `lsn` is durable: in this thread when the device is free,
    /// else with the next flush of the writer.
    pub fn flush(&self, lsn: Lsn) -> Result<()> {
        while !self.try_flush_inline(lsn)? {
            if let Some(handle) = self.request_flush(lsn) {
                // Whoever has the device may wait for space: look now and then.
                handle.block_for(SHORTAGE_LOOK);
            }
            // Woken, but not flushed: the log has failed, or the writer has ended.
            self.check_poisoned()?;
        }
        Ok(())
    }

    /// As [`Self::flush`], for what cannot be taken back: a full disk is waited for. Fails only
    /// when the log has failed.
    pub fn flush_patiently(&self, lsn: Lsn) -> Result<()> {
        loop {
            match self.flush(lsn) {
                Err(StorageError::DiskFull { .. }) => std::thread::sleep(SHORTAGE_PAUSE),
                done => return done,
            }
        }
    }

    /// Positions may come from pages, and pages from a disk: beyond the log means damage.
    fn check_position(&self, lsn: Lsn) -> Result<()> {
        let end = self.inserted();
        if lsn <= end {
            return Ok(());
        }
        let what = format!("flush of {lsn} was asked for, but the log ends at {end}");
        Err(StorageError::corrupt(what))
    }

    /// Tells the writer that everything before `lsn` has to be durable by `deadline_micros` of
    /// the monotonic clock.
    pub fn note_async_commit(&self, lsn: Lsn, deadline_micros: u64) {
        self.shared.kernel.note_deadline(lsn.raw(), deadline_micros);
    }

    /// From now on `listener` is told of flushes that end after a deadline, by the thread that
    /// flushed. One listener a log.
    pub fn on_late_flush(&self, listener: Box<dyn Fn(LateFlush) + Send + Sync>) {
        self.shared.kernel.on_late_flush(listener);
    }

    /// How long before a deadline the writer begins to flush, as of now.
    pub fn flush_lead_micros(&self) -> u64 {
        self.shared.kernel.pace.lead()
    }

    /// Fails once a write or a sync of the log has failed.
    #[inline]
    pub fn check_poisoned(&self) -> Result<()> {
        self.shared.kernel.check_poisoned()
    }

    /// Something else that commits rely on has failed (a data file's fsync, say): from now on this
    /// log fails as if it had been its own. The first failure stays the one that is told.
    pub fn fail(&self, error: StorageError) {
        self.shared.kernel.fail(error);
    }

    /// Has failures told: `failed` once, with the first one; `shortage` whenever the writer finds
    /// the disk full, and when there is space again. Called once, and must not use the log.
    pub fn tell(&self, failed: Box<dyn Fn(&str) + Send + Sync>, shortage: Box<Shortage>) {
        self.shared.kernel.on_failure(failed);
        assert!(self.shared.on_shortage.set(shortage).is_ok(), "the log has its listener already");
    }

    // ---- housekeeping ----

    /// Removes segments that end at or before `lsn`, or recycles them as long as the ones from
    /// there on hold less than `keep` bytes, used and ready ones together. What is not flushed yet
    /// stays, whatever `lsn` says.
    pub fn remove_segments_before(&self, lsn: Lsn, keep: u64) -> Result<()> {
        let shared = &self.shared;
        let position = lsn.raw().min(shared.kernel.flushed());
        let end = shared.segments.remove_before(position, keep)?;
        shared.kernel.extend_disk(end);
        Ok(())
    }

    /// Does what the writer thread would do next, for a log opened without one. `Ok(false)`:
    /// nothing is due at this moment of the clock.
    pub fn run_writer_once(&self) -> Result<bool> {
        let now = self.shared.clock.monotonic_micros();
        let step = self.shared.next_step(now);
        self.shared.perform(step, now)?;
        Ok(!matches!(step, Step::Sleep(_)))
    }

    pub fn stats(&self) -> WalStats {
        let shared = &self.shared;
        let inserts = shared.kernel.insert_stats();
        let segments = shared.segments.stats();
        let device = &shared.device_stats;
        WalStats {
            records: inserts.records,
            page_images: inserts.page_images,
            page_image_bytes: inserts.page_image_bytes,
            bytes: inserts.bytes,
            writes: device.writes.load(Ordering::Relaxed),
            syncs: device.syncs.load(Ordering::Relaxed),
            write_micros: device.write_micros.load(Ordering::Relaxed),
            sync_micros: device.sync_micros.load(Ordering::Relaxed),
            buffers_full: shared.buffers_full.load(Ordering::Relaxed),
            segments_created: segments.created,
            segments_recycled: segments.recycled,
            segments_removed: segments.removed,
        }
    }

    /// Flushes everything and stops the writer thread. The log still works afterwards, inline.
    pub fn shutdown(&self) -> Result<()> {
        let flushed = self.flush(self.inserted());
        self.stop_writer();
        flushed
    }

    fn stop_writer(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.kernel.sleeper.wake();
        if let Some(writer) = self.writer.lock().take() {
            // A panic of the writer was reported when it happened; nobody waits for it.
            let _ = writer.join();
        }
    }
}

impl Drop for Wal {
    /// Stops the thread. Unflushed records are lost, as in a crash: flushing is `shutdown`'s.
    fn drop(&mut self) {
        self.stop_writer();
    }
}

fn spawn_writer(shared: &Arc<Shared>) -> Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let spawned =
        thread::Builder::new().name("wal writer".to_owned()).spawn(move || shared.run_writer());
    spawned.map_err(|e| StorageError::Resource {
        what: format!("could not start the WAL writer: {e}"),
        hint: "raise the limit on threads",
    })
}
