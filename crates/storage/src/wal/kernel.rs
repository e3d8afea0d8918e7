//! The log's heart: claim, insert, write, flush, wake. No files, no clock, no thread of its own,
//! so that it can be model-checked whole (`model.rs`).
//!
//! ```text
//!                 claimed  -------------------------------------------------------.
//!   flushed     written          inserted                                         v
//! ----+------------+----------------+----- reserved, not yet inserted -------------+---- disk_end
//!     |  kernel's  |   the ring's   |                                       <= written + capacity
//! ```
//!
//! # Invariants
//!
//! - `flushed <= written <= inserted <= claimed`; the first three only grow. `claimed` is
//!   `inserted` plus the reservations that are out.
//! - `claimed <= written + capacity` and `claimed <= disk_end`: whoever holds a reservation can
//!   insert without waiting and without failing.
//! - Bytes enter the ring under `insertion`, in log order, and leave it under `device`.
//! - `flushed` is stored after a successful sync that began after those bytes were written, under
//!   `device`.
//! - A failed write or sync sets the poison before `device` is released; with the poison set
//!   nothing is written, synced or counted as flushed any more. The one exception is a *write* that
//!   finds the disk full: its bytes are still in the ring, and the next attempt begins with them.
//!
//! Lock order: `device` before the queues' locks; `insertion` is a leaf. No lock is held while
//! somebody is woken.

use super::pace::Pace;
use super::padded::Padded;
use super::record::{Sealed, padded};
use super::ring::{Consumer, Producer, Ring, ring};
use super::waiters::{FlushQueue, Sleeper, SpaceQueue};
use crate::error::{Result, StorageError};
use crate::ids::Lsn;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::wait::{Event, WaitHandle};
use std::sync::OnceLock;

/// Bytes handed to the device in one write.
const WRITE_CHUNK: usize = 1 << 20;
/// "No deadline", "do not kick".
pub(super) const NEVER: u64 = u64::MAX;

const PADDING: [u8; Lsn::ALIGN as usize] = [0; Lsn::ALIGN as usize];

/// What the log is written to.
pub(super) trait LogDevice: Send {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()>;
    /// Makes everything written durable.
    fn sync(&mut self) -> Result<()>;
    /// Asks for early write-out of what was written.
    fn hint_write_back(&mut self) {}
    /// The monotonic clock that deadlines are given by.
    fn now(&self) -> u64;
}

/// A flush that made asynchronous commits durable after their deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LateFlush {
    /// What was durable before.
    pub from: Lsn,
    pub to: Lsn,
    /// The earliest deadline that it was to keep.
    pub deadline: u64,
    pub ended: u64,
}

/// Is told of late flushes, by whichever thread flushed, with no lock held.
pub type LateListener = dyn Fn(LateFlush) + Send + Sync;

/// Counters kept under the insertion lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InsertStats {
    pub records: u64,
    pub page_images: u64,
    pub page_image_bytes: u64,
    pub bytes: u64,
}

struct Insertion {
    producer: Producer,
    stats: InsertStats,
}

struct Device<D> {
    consumer: Consumer,
    disk: D,
}

/// The answer to a claim for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    Granted,
    /// The ring holds too many unwritten or reserved bytes.
    RingFull,
    /// No segment is prepared that far ahead.
    NoSegment,
}

/// Who asks for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Priority {
    Ordinary,
    /// May use the safety margin of a full disk.
    Essential,
}

pub(super) struct Kernel<D> {
    ring: Arc<Ring>,
    insertion: Padded<Mutex<Insertion>>,
    device: Padded<Mutex<Device<D>>>,
    claimed: Padded<AtomicU64>,
    flushed: Padded<AtomicU64>,
    /// What the flush that began last covers when it is done.
    begun: AtomicU64,
    /// Read by every change of a page, written by checkpoints.
    redo_point: AtomicU64,
    /// Segments are prepared up to here.
    disk_end: AtomicU64,
    margin: u64,
    /// The earliest deadline of an asynchronous commit that no flush has taken on.
    deadline: AtomicU64,
    /// How long flushes take.
    pub(super) pace: Pace,
    late: OnceLock<Box<LateListener>>,
    /// An insertion that ends beyond this wakes the writer.
    kick_at: AtomicU64,
    flushes: FlushQueue,
    space: SpaceQueue,
    pub(super) sleeper: Sleeper,
    poisoned: AtomicBool,
    poison: Mutex<Option<(Lsn, String)>>,
    /// Who is told of the first failure.
    on_failure: OnceLock<Box<dyn Fn(&str) + Send + Sync>>,
}

impl<D: LogDevice> Kernel<D> {
    pub fn new(start: u64, capacity: usize, disk_end: u64, margin: u64, disk: D) -> Self {
        let (ring, producer, consumer) = ring(start, capacity);
        Kernel {
            ring,
            insertion: Padded(Mutex::new(Insertion { producer, stats: InsertStats::default() })),
            device: Padded(Mutex::new(Device { consumer, disk })),
            claimed: Padded(AtomicU64::new(start)),
            flushed: Padded(AtomicU64::new(start)),
            begun: AtomicU64::new(start),
            redo_point: AtomicU64::new(start),
            disk_end: AtomicU64::new(disk_end),
            margin,
            deadline: AtomicU64::new(NEVER),
            pace: Pace::default(),
            late: OnceLock::new(),
            kick_at: AtomicU64::new(NEVER),
            flushes: FlushQueue::default(),
            space: SpaceQueue::default(),
            sleeper: Sleeper::default(),
            poisoned: AtomicBool::new(false),
            poison: Mutex::new(None),
            on_failure: OnceLock::new(),
        }
    }

    // ---- positions ----

    #[inline]
    pub fn inserted(&self) -> u64 {
        self.ring.inserted()
    }

    #[inline]
    pub fn written(&self) -> u64 {
        self.ring.written()
    }

    #[inline]
    pub fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// A flush up to here has begun; it may be done.
    #[inline]
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    #[inline]
    pub fn redo_point(&self) -> u64 {
        self.redo_point.load(Ordering::Acquire)
    }

    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::SeqCst)
    }

    pub fn capacity(&self) -> u64 {
        self.ring.capacity()
    }

    pub fn margin(&self) -> u64 {
        self.margin
    }

    pub fn disk_end(&self) -> u64 {
        self.disk_end.load(Ordering::SeqCst)
    }

    /// Segments are durably there up to `end`.
    pub fn extend_disk(&self, end: u64) {
        self.disk_end.fetch_max(end, Ordering::SeqCst);
    }

    /// Moves the redo point to the insert position; no insertion is half done at that moment.
    pub fn advance_redo_point(&self) -> u64 {
        let insertion = self.insertion.lock();
        let position = insertion.producer.position();
        self.redo_point.store(position, Ordering::Release);
        position
    }

    pub fn insert_stats(&self) -> InsertStats {
        self.insertion.lock().stats
    }

    // ---- room ----

    /// Claims `bytes` (a multiple of the alignment) of the log's future.
    #[inline]
    pub fn try_claim(&self, bytes: u64, priority: Priority) -> Claim {
        let mut claimed = self.claimed.load(Ordering::SeqCst);
        loop {
            let end = claimed + bytes;
            let margin = if priority == Priority::Essential { 0 } else { self.margin };
            if end + margin > self.disk_end() {
                return Claim::NoSegment;
            }
            if end > self.written() + self.capacity() {
                return Claim::RingFull;
            }
            // Meanwhile `written` and `disk_end` can only have grown, so the test still holds.
            let swapped = self.claimed.compare_exchange_weak(
                claimed,
                end,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match swapped {
                Ok(_) => return Claim::Granted,
                Err(now) => claimed = now,
            }
        }
    }

    /// Gives back room that will not be used.
    #[inline]
    pub fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.claimed.fetch_sub(bytes, Ordering::SeqCst);
            self.space.wake();
        }
    }

    /// Wakes whoever waits for room.
    pub fn wake_room(&self) {
        self.space.wake();
    }

    /// Wakes everybody who waits for a flush, flushed or not: to look for themselves.
    pub fn wake_flush_waiters(&self) {
        self.flushes.wake_all();
    }

    /// Announces a waiter for room: try to claim once more, then block.
    pub fn wait_for_room(&self) -> WaitHandle {
        self.space.enlist()
    }

    /// Empties the ring in this thread if the device is free and there is something to write.
    pub fn try_make_room(&self) -> Result<bool> {
        if self.written() == self.inserted() {
            return Ok(false);
        }
        let Some(mut device) = self.device.try_lock() else { return Ok(false) };
        let target = self.inserted();
        let result = self.write_up_to(&mut device, target);
        drop(device);
        self.finish(result)?;
        Ok(true)
    }

    // ---- insertion ----

    /// Appends a record for which `room` bytes were claimed; answers its end. `redo_seen` is the
    /// redo point that the caller relied on: if it has moved, nothing happens and the new one
    /// comes back.
    #[inline]
    pub fn insert(
        &self,
        record: &Sealed<'_>,
        images: (u32, u64),
        room: u64,
        redo_seen: Option<u64>,
    ) -> Result<u64, u64> {
        let len = record.len();
        let used = padded(len) as u64;
        assert!(used <= room, "record of {used} bytes in a reservation of {room}");
        let pad = &PADDING[..padded(len) - len];
        let mut insertion = self.insertion.lock();
        let redo_point = self.redo_point.load(Ordering::Relaxed);
        if redo_seen.is_some_and(|seen| seen != redo_point) {
            return Err(redo_point);
        }
        let header = record.header_at(Lsn::new(insertion.producer.position()));
        let end = insertion.producer.append([&header, record.parts[0], record.parts[1], pad]);
        let stats = &mut insertion.stats;
        stats.records += 1;
        stats.bytes += used;
        stats.page_images += u64::from(images.0);
        stats.page_image_bytes += images.1;
        drop(insertion);
        self.release(room - used);
        if end >= self.kick_at.load(Ordering::Relaxed) {
            self.kick_at.store(NEVER, Ordering::Relaxed);
            self.sleeper.wake();
        }
        Ok(end)
    }

    /// From now on an insertion beyond `position` wakes the writer.
    pub fn kick_beyond(&self, position: u64) {
        self.kick_at.store(position, Ordering::SeqCst);
    }

    // ---- flushing ----

    /// Whether somebody waits for a flush.
    pub fn has_waiters(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// How many wait for a flush, and how many ever did.
    pub fn waiters(&self) -> (usize, u64) {
        (self.flushes.len(), self.flushes.enlisted())
    }

    pub fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::SeqCst)
    }

    /// `None`: flushed. Otherwise a handle that a flush past `position`, or failure, wakes.
    pub fn request_flush(&self, position: u64) -> Option<WaitHandle> {
        if self.flushed() >= position {
            return None;
        }
        assert!(position <= self.inserted(), "flush of a position that was never inserted");
        let settled = || self.flushed() >= position || self.poisoned.load(Ordering::SeqCst);
        if let Some(handle) = self.flushes.enlist(position, settled) {
            self.sleeper.wake();
            return Some(handle);
        }
        if self.flushed() >= position {
            return None;
        }
        // The log has failed: the caller is to find that out, not to wait.
        let event = Event::new();
        event.wake();
        Some(event.handle())
    }

    /// Flushes in this thread if the device is free. `Ok(false)`: it is not.
    pub fn try_flush(&self, position: u64) -> Result<bool> {
        match self.device.try_lock() {
            Some(device) => self.flush_with(device, position).map(|()| true),
            None => Ok(false),
        }
    }

    /// Flushes in this thread, after waiting for the device.
    pub fn flush_blocking(&self, position: u64) -> Result<()> {
        self.flush_with(self.device.lock(), position)
    }

    /// Hands the inserted bytes to the device without syncing, and starts their write-out.
    pub fn write_ahead(&self) -> Result<()> {
        let mut device = self.device.lock();
        let target = self.inserted();
        let result = self.write_up_to(&mut device, target);
        if result.is_ok() {
            device.disk.hint_write_back();
        }
        drop(device);
        self.finish(result)
    }

    /// Takes note of an asynchronous commit that ends at `position` and has to be durable by
    /// `deadline`. Any flush that begins later covers it.
    pub fn note_deadline(&self, position: u64, deadline: u64) {
        if self.flushed() >= position {
            return;
        }
        // Pairs with the fence in `flush_device`: either that flush sees our insertion, or we see
        // that it has taken the old deadline away and set ours.
        fence(Ordering::SeqCst);
        if self.deadline.load(Ordering::SeqCst) <= deadline {
            return;
        }
        if self.deadline.fetch_min(deadline, Ordering::SeqCst) > deadline {
            self.sleeper.wake();
        }
    }

    /// Flushes everything, unless somebody else has meanwhile got past `position`.
    fn flush_with(&self, mut device: MutexGuard<'_, Device<D>>, position: u64) -> Result<()> {
        if self.flushed() >= position {
            drop(device);
            return self.finish(Ok(()));
        }
        let result = self.flush_device(&mut device);
        // Let the next flush begin before anybody is woken.
        drop(device);
        match result {
            Ok(late) => {
                self.finish(Ok(()))?;
                if let (Some(late), Some(listener)) = (late, self.late.get()) {
                    listener(late);
                }
                Ok(())
            }
            Err(error) => self.finish(Err(error)),
        }
    }

    /// Whom to tell of late flushes; the first who asks.
    pub fn on_late_flush(&self, listener: Box<LateListener>) {
        let _the_first_stays = self.late.set(listener);
    }

    /// Takes the deadline on, then everything inserted; so a commit is covered, or finds no
    /// deadline and leaves its own.
    fn flush_device(&self, device: &mut Device<D>) -> Result<Option<LateFlush>> {
        self.check_poisoned()?;
        let deadline = self.deadline.swap(NEVER, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let (from, target) = (self.flushed(), self.inserted());
        self.begun.store(target, Ordering::Release);
        let started = device.disk.now();
        self.write_up_to(device, target).inspect_err(|_| {
            // Whose deadline it was is still waiting.
            self.deadline.fetch_min(deadline, Ordering::SeqCst);
        })?;
        if from >= target {
            return Ok(None);
        }
        device.disk.sync().map_err(|e| self.latch(e))?;
        let ended = device.disk.now();
        self.flushed.store(target, Ordering::SeqCst);
        self.pace.record(ended.saturating_sub(started));
        let (from, to) = (Lsn::new(from), Lsn::new(target));
        Ok((deadline < ended).then_some(LateFlush { from, to, deadline, ended }))
    }

    fn write_up_to(&self, device: &mut Device<D>, target: u64) -> Result<()> {
        self.check_poisoned()?;
        loop {
            let at = device.consumer.position();
            let bytes = device.consumer.readable(target, WRITE_CHUNK);
            if bytes.is_empty() {
                return Ok(());
            }
            device.disk.write(at, bytes).map_err(|e| match e {
                full @ StorageError::DiskFull { .. } => full,
                other => self.latch(other),
            })?;
            let len = bytes.len();
            device.consumer.consume(len);
            // The ring's position is stored with release only; see `SpaceQueue::wake`.
            fence(Ordering::SeqCst);
            self.space.wake();
        }
    }

    /// Wakes whoever the outcome concerns. Called without locks.
    fn finish(&self, result: Result<()>) -> Result<()> {
        match &result {
            Ok(()) => {
                self.flushes.wake_covered(self.flushed());
                // Who found the device busy while the ring was full may use it now.
                self.space.wake();
            }
            // Who waits for a flush goes on waiting; who needs room is to have the error.
            Err(StorageError::DiskFull { .. }) => self.space.wake(),
            Err(_) => self.wake_everybody(),
        }
        result
    }

    // ---- failure ----

    /// Remembers the first failure, for good. A failure of the log's own device is latched with
    /// the device locked.
    fn latch(&self, error: StorageError) -> StorageError {
        let position = Lsn::new(self.flushed());
        let mut poison = self.poison.lock();
        let first = poison.is_none();
        let (at, what) = poison.get_or_insert_with(|| (position, error.to_string()));
        let error = StorageError::Poisoned { at: *at, what: what.clone() };
        self.poisoned.store(true, Ordering::SeqCst);
        drop(poison);
        if first && let Some(tell) = self.on_failure.get() {
            tell(&error.to_string());
        }
        error
    }

    /// Something else that commits rely on has failed: from now on none is accepted. A flush that
    /// is under way may still succeed, and then says so.
    pub fn fail(&self, error: StorageError) {
        self.latch(error);
        self.wake_everybody();
    }

    /// Has `tell` called once, with the first failure. At most one listener.
    pub fn on_failure(&self, tell: Box<dyn Fn(&str) + Send + Sync>) {
        assert!(self.on_failure.set(tell).is_ok(), "the log has its listener already");
    }

    fn wake_everybody(&self) {
        self.flushes.wake_all();
        self.space.wake();
        self.sleeper.wake();
    }

    #[inline]
    pub fn check_poisoned(&self) -> Result<()> {
        if self.poisoned.load(Ordering::SeqCst) { Err(self.poison_error()) } else { Ok(()) }
    }

    #[cold]
    fn poison_error(&self) -> StorageError {
        let poison = self.poison.lock();
        let (at, what) = poison.as_ref().expect("the flag is set after the reason");
        StorageError::Poisoned { at: *at, what: what.clone() }
    }
}
