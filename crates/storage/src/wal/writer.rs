//! The writer thread: what it does next, and when it sleeps.
//!
//! | it finds | it does |
//! |---|---|
//! | somebody waiting for a flush | flush: the commits that come meanwhile share the next |
//! | the earliest asynchronous deadline only as far away as a flush takes (`pace.rs`) | flush |
//! | `flush_after` unflushed bytes | flush |
//! | `write_after` unwritten bytes, or any for `writer_delay` | write, without sync |
//! | no whole segment ready beyond the current one, and no deadline near | prepare a piece of one |
//! | nothing | sleep until the next of these is due, or until woken |
//!
//! Before a flush that somebody waits for, the thread may let a moment pass in which others join
//! (`pace.rs`). Nobody has to wake it from that: who needs room in the ring, or a flush without
//! company, finds the device free.
//!
//! One decision is one [`Step`], taken from positions alone, so a simulation without the thread
//! makes the same decisions by calling `run_writer_once`.

use super::Shared;
use super::kernel::NEVER;
use super::segment::Progress;
use crate::error::{Result, StorageError};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// With nothing to do the writer still looks around this often.
const IDLE_MICROS: u64 = 5_000_000;
/// After a failed preparation of a segment the writer waits this long before the next try.
const PREPARE_RETRY_MICROS: u64 = 1_000_000;
/// Preparing a piece of a segment may take this long; a flush that is due earlier goes first.
const PREPARE_MICROS: u64 = 20_000;
/// After a write that found the disk full: commits wait for the next.
const WRITE_RETRY_MICROS: u64 = 50_000;

/// What the writer does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Flush,
    Write,
    /// A piece of the next segment.
    Prepare,
    /// Nothing is due for this many microseconds.
    Sleep(u64),
}

impl Shared {
    /// Decides the next step at time `now`.
    pub(super) fn next_step(&self, now: u64) -> Step {
        let (kernel, options) = (&self.kernel, &self.options);
        if kernel.check_poisoned().is_err() {
            return Step::Sleep(IDLE_MICROS);
        }
        let retry = self.write_retry.load(Ordering::Relaxed);
        if retry > now {
            return Step::Sleep(retry - now);
        }
        // A flush takes its time: begin so early that it ends by the deadline.
        let begin_by = match kernel.deadline() {
            NEVER => NEVER,
            deadline => deadline.saturating_sub(kernel.pace.lead()),
        };
        if kernel.has_waiters() || begin_by <= now {
            return Step::Flush;
        }
        let inserted = kernel.inserted();
        let unflushed = inserted - kernel.flushed();
        if options.flush_after > 0 && unflushed >= options.flush_after {
            return Step::Flush;
        }
        let unwritten = inserted.saturating_sub(kernel.written());
        let write_due = self.last_write.load(Ordering::Relaxed) + options.writer_delay_micros;
        if unwritten > 0 && (unwritten >= options.write_after || write_due <= now) {
            return Step::Write;
        }
        let mut wake = begin_by.min(now.saturating_add(IDLE_MICROS));
        if unwritten > 0 {
            wake = wake.min(write_due);
        }
        let hurry = begin_by < now.saturating_add(PREPARE_MICROS);
        if self.wants_segment() && (!hurry || self.needs_segment_soon()) {
            let retry = self.prepare_retry.load(Ordering::Relaxed);
            if retry <= now {
                return Step::Prepare;
            }
            wake = wake.min(retry);
        }
        Step::Sleep(wake.saturating_sub(now).max(1))
    }

    /// Whether less than one whole segment is ready beyond the current one.
    fn wants_segment(&self) -> bool {
        let size = self.options.segment_size;
        let current_end = (self.kernel.inserted() / size + 1) * size;
        self.kernel.disk_end() < current_end + size
    }

    /// Whether the current segment is half full: whoever would find no next one would have to
    /// make it, so that comes before deadlines.
    fn needs_segment_soon(&self) -> bool {
        let left = self.kernel.disk_end().saturating_sub(self.kernel.inserted());
        left < self.options.segment_size / 2
    }

    /// Does a step other than sleeping.
    pub(super) fn perform(&self, step: Step, now: u64) -> Result<()> {
        match step {
            Step::Flush => {
                self.last_write.store(now, Ordering::Relaxed);
                // Not "up to the last insertion": a reached deadline is also taken off.
                let outcome = self.kernel.flush_blocking(NEVER);
                self.mind_space(now, outcome)
            }
            Step::Write => {
                self.last_write.store(now, Ordering::Relaxed);
                let outcome = self.kernel.write_ahead();
                self.mind_space(now, outcome)
            }
            Step::Prepare => {
                match self.segments.prepare_piece() {
                    Ok(Progress::Going) => {}
                    Ok(Progress::Ready(end)) => {
                        self.kernel.extend_disk(end);
                        self.kernel.wake_room();
                    }
                    Err(error) => {
                        let retry = now.saturating_add(PREPARE_RETRY_MICROS);
                        self.prepare_retry.store(retry, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                Ok(())
            }
            Step::Sleep(_) => Ok(()),
        }
    }

    /// A full disk is no failure of the log: the bytes are in the ring, and are written when there
    /// is space. The beginning and the end of that are told.
    fn mind_space(&self, now: u64, outcome: Result<()>) -> Result<()> {
        let told = self.write_retry.load(Ordering::Relaxed) != 0;
        let tell = |what: Option<&StorageError>| {
            if let Some(listener) = self.on_shortage.get() {
                listener(what);
            }
        };
        match &outcome {
            Err(full @ StorageError::DiskFull { .. }) => {
                self.write_retry.store(now + WRITE_RETRY_MICROS, Ordering::Relaxed);
                if !told {
                    tell(Some(full));
                }
            }
            Ok(()) if told => {
                self.write_retry.store(0, Ordering::Relaxed);
                tell(None);
            }
            _ => {}
        }
        outcome
    }

    /// The position beyond which an insertion is the writer's business.
    fn kick_position(&self) -> u64 {
        let (kernel, options) = (&self.kernel, &self.options);
        let write = kernel.written().saturating_add(options.write_after);
        match options.flush_after {
            0 => write,
            bytes => write.min(kernel.flushed().saturating_add(bytes)),
        }
    }

    /// The thread's body. Failures need no handling here: those of the log are latched and told to
    /// everybody who waits, those of preparing a segment meet whoever reserves.
    pub(super) fn run_writer(&self) {
        let _leaving = Leaving(self);
        self.kernel.sleeper.adopt();
        while !self.stop.load(Ordering::SeqCst) {
            let now = self.clock.monotonic_micros();
            match self.next_step(now) {
                Step::Sleep(_) => self.sleep_unless_due(),
                step => {
                    if step == Step::Flush {
                        self.wait_for_company(now);
                    }
                    let _ = self.perform(step, now);
                }
            }
        }
    }

    fn wait_for_company(&self, now: u64) {
        let (waiting, asked) = self.kernel.waiters();
        if let Some(micros) = self.kernel.pace.wait_for_company(now, waiting, asked) {
            thread::sleep(Duration::from_micros(micros));
        }
    }

    fn sleep_unless_due(&self) {
        let sleeper = &self.kernel.sleeper;
        self.kernel.kick_beyond(self.kick_position());
        sleeper.announce();
        // Whatever came before the announcement is seen here; whatever comes after it wakes.
        match self.next_step(self.clock.monotonic_micros()) {
            Step::Sleep(micros) if !self.stop.load(Ordering::SeqCst) => {
                sleeper.sleep(Some(micros));
            }
            _ => sleeper.stay(),
        }
    }
}

/// Leaves no waiter behind when the thread ends, however it ends: everybody looks again, finds no
/// writer, and flushes inline.
struct Leaving<'a>(&'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.kernel.kick_beyond(NEVER);
        self.0.writer_runs.store(false, Ordering::SeqCst);
        self.0.kernel.wake_flush_waiters();
    }
}
