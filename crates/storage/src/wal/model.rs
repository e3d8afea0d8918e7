//! The kernel under the model checker: small programs run under thousands of thread schedules.
//!
//! What is checked: nobody who waits is forgotten (a forgotten waiter is a deadlock, which the
//! checker reports), the device gets the stream of records whole and in order, `flushed` is never
//! ahead of the device's sync, deadlines are not lost between two flushes, a flush that ends after
//! one is told of once, a full ring is never overrun, and a failed sync reaches everybody. How to
//! run: `README.md`.
//!
//! The checker explores sequentially consistent schedules; the fences that weaker memory needs
//! are argued where they stand.

use super::kernel::{Claim, Kernel, LateFlush, LogDevice, NEVER, Priority};
use super::record::{DecodedRecord, RecordBuilder, RecordKind, padded};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, Xid};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, thread};
use shuttle::future::block_on;

const START: u64 = 4096;
const SCHEDULES: usize = 10_000;

/// What reached the device. Not a primitive of the checker: the device lock guards it.
#[derive(Default)]
struct Stored {
    bytes: Vec<u8>,
    synced: u64,
    syncs: u32,
}

struct FakeDevice {
    stored: std::sync::Arc<parking_lot::Mutex<Stored>>,
    /// The sync that fails, counted from 1; 0: none.
    fails: u32,
}

impl LogDevice for FakeDevice {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut stored = self.stored.lock();
        assert_eq!(at, START + stored.bytes.len() as u64, "written without gaps");
        stored.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        // A sync takes its time.
        for _ in 0..4 {
            thread::yield_now();
        }
        let mut stored = self.stored.lock();
        stored.syncs += 1;
        if self.fails > 0 && stored.syncs >= self.fails {
            let source = std::io::Error::from_raw_os_error(libc::EIO);
            return Err(StorageError::io("fdatasync", "model", source));
        }
        stored.synced = START + stored.bytes.len() as u64;
        Ok(())
    }

    /// Time is what syncs take: a hundred each.
    fn now(&self) -> u64 {
        u64::from(self.stored.lock().syncs) * 100
    }
}

struct Model {
    kernel: Kernel<FakeDevice>,
    stored: std::sync::Arc<parking_lot::Mutex<Stored>>,
    stop: AtomicBool,
}

impl Model {
    fn new(capacity: usize, fails: u32) -> Arc<Self> {
        let stored = std::sync::Arc::default();
        let device = FakeDevice { stored: std::sync::Arc::clone(&stored), fails };
        let kernel = Kernel::new(START, capacity, NEVER, 0, device);
        Arc::new(Model { kernel, stored, stop: AtomicBool::new(false) })
    }

    /// Claims room as `Wal::reserve` does, but waits in the checker's way.
    fn claim(&self, room: u64) {
        let mut waited = None;
        loop {
            match self.kernel.try_claim(room, Priority::Ordinary) {
                Claim::Granted => return,
                Claim::NoSegment => unreachable!("the model's disk is endless"),
                Claim::RingFull if self.kernel.try_make_room().expect("no failure") => {}
                Claim::RingFull => match waited.take() {
                    None => waited = Some(self.kernel.wait_for_room()),
                    Some(handle) => block_on(handle),
                },
            }
        }
    }

    fn insert(&self, xid: u64, data: &[u8]) -> u64 {
        let mut record = RecordBuilder::new(RecordKind::Noop, Xid::new(xid));
        record.data(data);
        let room = padded(record.encoded_len()) as u64 + 8;
        self.claim(room);
        self.kernel.insert(&record.seal(), (0, 0), room, None).expect("no redo point to miss")
    }

    /// Waits for a flush as a session does.
    fn wait_flushed(&self, end: u64) {
        while let Some(handle) = self.kernel.request_flush(end) {
            block_on(handle);
            if self.kernel.check_poisoned().is_err() {
                return;
            }
        }
        assert!(self.kernel.flushed() >= end);
        assert!(self.stored.lock().synced >= end, "flushed is never ahead of the sync");
    }

    /// The writer thread's loop, without time.
    fn run_writer(&self) {
        let kernel = &self.kernel;
        kernel.sleeper.adopt();
        let due = || kernel.check_poisoned().is_ok() && kernel.has_waiters();
        loop {
            if due() {
                let _ = kernel.flush_blocking(NEVER);
                continue;
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            kernel.sleeper.announce();
            if due() || self.stop.load(Ordering::SeqCst) {
                kernel.sleeper.stay();
            } else {
                kernel.sleeper.sleep(None);
            }
        }
    }

    fn stop_writer(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.kernel.sleeper.wake();
    }

    /// Everything that reached the device, decoded; panics unless it is whole records in order.
    fn records(&self) -> Vec<u64> {
        let stored = self.stored.lock();
        let mut at = 0;
        let mut xids = Vec::new();
        while at < stored.bytes.len() {
            let raw = &stored.bytes[at..];
            let len = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]) as usize;
            let record = DecodedRecord::decode(&raw[..len], Lsn::new(START + at as u64));
            xids.push(record.expect("a whole record").xid.raw());
            at += padded(len);
        }
        xids
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(model, SCHEDULES);
}

#[test]
fn shuttle_every_flush_waiter_is_woken() {
    check(|| {
        let model = Model::new(4096, 0);
        let writer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.run_writer())
        };
        let sessions: Vec<_> = (1..=3)
            .map(|xid| {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    let end = model.insert(xid, b"payload");
                    if xid == 1 {
                        // A blocking committer takes the device itself when it is free.
                        model.kernel.try_flush(end).expect("no failure");
                    }
                    model.wait_flushed(end);
                })
            })
            .collect();
        for session in sessions {
            session.join().expect("session");
        }
        model.stop_writer();
        writer.join().expect("writer");
        let mut xids = model.records();
        xids.sort_unstable();
        assert_eq!(xids, [1, 2, 3]);
    });
}

#[test]
fn shuttle_a_full_ring_is_never_overrun_and_nobody_waits_for_ever() {
    check(|| {
        // One record and a half fit.
        let model = Model::new(64, 0);
        let sessions: Vec<_> = (1..=3)
            .map(|xid| {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    for _ in 0..2 {
                        model.insert(xid, b"sixteen bytes...");
                        if xid == 3 {
                            // Keeps the device busy for a while, without writing for the others.
                            model.kernel.flush_blocking(NEVER).expect("no failure");
                        }
                    }
                })
            })
            .collect();
        for session in sessions {
            session.join().expect("session");
        }
        model.kernel.flush_blocking(NEVER).expect("no failure");
        assert_eq!(model.records().len(), 6);
        assert_eq!(model.kernel.claimed(), model.kernel.inserted());
    });
}

#[test]
fn shuttle_no_deadline_is_lost_between_flushes() {
    check(|| {
        let model = Model::new(4096, 0);
        let sessions: Vec<_> = (1..=2)
            .map(|xid| {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    let end = model.insert(xid, b"async");
                    model.kernel.note_deadline(end, 10 + xid);
                    end
                })
            })
            .collect();
        let flusher = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                for _ in 0..2 {
                    model.kernel.flush_blocking(NEVER).expect("no failure");
                }
            })
        };
        let ends = sessions.into_iter().map(|s| s.join().expect("session"));
        let last = ends.max().expect("two sessions");
        flusher.join().expect("flusher");
        let (flushed, deadline) = (model.kernel.flushed(), model.kernel.deadline());
        assert!(flushed >= last || deadline <= 12, "{flushed} of {last}, deadline {deadline}");
    });
}

#[test]
fn shuttle_every_late_flush_is_told_once() {
    check(|| {
        let model = Model::new(4096, 0);
        let told: std::sync::Arc<parking_lot::Mutex<Vec<LateFlush>>> = std::sync::Arc::default();
        let listener = std::sync::Arc::clone(&told);
        model.kernel.on_late_flush(Box::new(move |late| listener.lock().push(late)));
        let first = model.insert(1, b"promised");
        model.kernel.note_deadline(first, 50);
        let second = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                let end = model.insert(2, b"promised too");
                model.kernel.note_deadline(end, 60);
            })
        };
        let flushers: Vec<_> = (0..2)
            .map(|_| {
                let model = Arc::clone(&model);
                thread::spawn(move || model.kernel.flush_blocking(NEVER).expect("no failure"))
            })
            .collect();
        second.join().expect("session");
        for flusher in flushers {
            flusher.join().expect("flusher");
        }
        model.kernel.flush_blocking(NEVER).expect("no failure");
        let told = told.lock();
        let covers = |l: &&LateFlush| l.from.raw() < first && first <= l.to.raw();
        assert_eq!(told.iter().filter(covers).count(), 1, "{told:?}");
        for late in told.iter() {
            assert!(late.from < late.to && late.deadline < late.ended, "{late:?}");
        }
        assert!(told.windows(2).all(|w| w[0].to <= w[1].from || w[1].to <= w[0].from));
    });
}

/// Three sessions commit while the `fails`th sync fails.
fn failing_sync(fails: u32) {
    let model = Model::new(4096, fails);
    let writer = {
        let model = Arc::clone(&model);
        thread::spawn(move || model.run_writer())
    };
    let sessions: Vec<_> = (1..=3)
        .map(|xid| {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                let end = model.insert(xid, b"payload");
                model.wait_flushed(end);
                (end, model.kernel.flushed() >= end)
            })
        })
        .collect();
    for session in sessions {
        let (end, told) = session.join().expect("session");
        assert_eq!(told, model.stored.lock().synced >= end, "told only the truth");
    }
    model.stop_writer();
    writer.join().expect("writer");
    let synced = model.stored.lock().synced.max(START);
    assert_eq!(model.kernel.flushed(), synced);
}

#[test]
fn shuttle_a_failed_sync_reaches_everybody() {
    check(|| failing_sync(1));
    check(|| failing_sync(2));
}

#[test]
fn shuttle_the_redo_point_never_moves_under_a_record_that_relied_on_it() {
    check(|| {
        let model = Model::new(4096, 0);
        model.insert(1, b"earlier");
        let seen = model.kernel.redo_point();
        let checkpointer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.kernel.advance_redo_point())
        };
        let mut record = RecordBuilder::new(RecordKind::Noop, Xid::new(1));
        record.data(b"x");
        model.claim(64);
        let inserted = model.kernel.insert(&record.seal(), (0, 0), 64, Some(seen));
        let redo = checkpointer.join().expect("checkpointer");
        match inserted {
            // Inserted by the old redo point: the new one lies behind the record.
            Ok(end) => assert_eq!(redo, end),
            Err(now) => assert!(now == redo && now != seen),
        }
        assert_eq!(model.kernel.redo_point(), redo);
    });
}
