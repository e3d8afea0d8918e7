//! Checkpoints: everything that the log says up to some point reaches the files, so that replay
//! need not start before it.
//!
//! ```text
//!   1  redo point := insert position      (commit mutex, insertion lock: no commit is half done)
//!   2  commit log written
//!   3  pages that are dirty now, in file order, spread over the interval
//!   4  fsync of every file written since the last checkpoint
//!   5  what is prepared, and the checkpoint record, flushed
//!   6  control file
//!   7  commit log files below the oldest xid go; other full, settled ones are mapped
//!   8  old log files go
//! ```
//!
//! A failure at any step leaves the previous checkpoint in force: its redo point is older, its log
//! is still there, and nothing that was done is wrong. The next attempt starts afresh.

use super::pace::{Distance, Pace};
use super::report;
use super::truncate::PendingCut;
use super::write_back::WriteBackHints;
use crate::buffer::DirtyPages;
use crate::engine::{ControlData, ControlState, Engine, LogLevel, insert_checkpoint};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, Xid};
use crate::recovery::CheckpointData;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Why a checkpoint is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointKind {
    /// Due by the clock: spread over the interval, skipped when nothing was logged since the last.
    Timed,
    /// Due because so much was logged: spread as well.
    LogSize,
    /// Asked for: as fast as possible.
    Immediate,
    /// The engine stops: unlogged pages are written too.
    Shutdown,
    /// Replay is over.
    EndOfRecovery,
}

impl CheckpointKind {
    /// Whether its writes are spread over the interval.
    fn is_paced(self) -> bool {
        matches!(self, CheckpointKind::Timed | CheckpointKind::LogSize)
    }
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// False: there was nothing to do.
    pub made: bool,
    pub redo: Lsn,
    /// Where its record is, as the control file says it.
    pub record: Lsn,
    pub pages_written: u64,
    pub clog_pages_written: u64,
    /// Log files that were made since the checkpoint before.
    pub segments_added: u64,
    pub segments_removed: u64,
    pub segments_recycled: u64,
    pub files_synced: u64,
    pub write_micros: u64,
    pub sync_micros: u64,
    /// All fsyncs of files together, without those of directories.
    pub file_sync_micros: u64,
    /// The longest fsync of one file.
    pub longest_sync_micros: u64,
    /// From the first step to the last.
    pub total_micros: u64,
    /// Log from the redo point before to this one.
    pub distance_bytes: u64,
    /// What the next distance is expected to be.
    pub estimate_bytes: u64,
}

/// What all checkpoints since start-up, or since the last reset, did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointTotals {
    /// Begun because they were due by the clock, idle ones included.
    pub timed: u64,
    /// Begun because somebody asked, the log's size and the engine itself included.
    pub requested: u64,
    /// Brought to their end.
    pub done: u64,
    /// Counted while a checkpoint goes on.
    pub pages_written: u64,
    pub clog_pages_written: u64,
    pub files_synced: u64,
    pub write_micros: u64,
    pub sync_micros: u64,
    /// When the counters were set to zero, in microseconds since 1970.
    pub reset_micros: Option<i64>,
}

struct Last {
    redo: Lsn,
    /// End of its record, to see whether anything followed.
    record: Lsn,
    started_micros: u64,
    distance: Distance,
    /// Log files made since start-up, when it ended.
    segments_created: u64,
}

/// The checkpoints of one engine.
pub(crate) struct Checkpoints {
    /// One at a time.
    running: Mutex<()>,
    /// Callers who wait for the one that is running, or for their own: it must not dawdle.
    pub(super) waiting: AtomicUsize,
    totals: Mutex<CheckpointTotals>,
    last: Mutex<Last>,
    /// Commit log to be given up with the next one that may.
    pub(super) cut: PendingCut,
}

/// How long a checkpoint that is ahead of its schedule rests: short, so that what it then does in
/// one go holds up nobody who shares its processor.
const NAP: Duration = Duration::from_millis(10);

impl Checkpoints {
    pub fn new(redo: Lsn, now_micros: u64) -> Self {
        let last = Last {
            redo,
            record: Lsn::INVALID,
            started_micros: now_micros,
            distance: Distance::default(),
            segments_created: 0,
        };
        Checkpoints {
            running: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            totals: Mutex::new(CheckpointTotals::default()),
            last: Mutex::new(last),
            cut: PendingCut::default(),
        }
    }

    pub fn totals(&self) -> CheckpointTotals {
        *self.totals.lock()
    }

    /// Sets the counters to zero.
    pub fn reset_totals(&self, now_unix_micros: i64) {
        let zero = CheckpointTotals::default();
        *self.totals.lock() = CheckpointTotals { reset_micros: Some(now_unix_micros), ..zero };
    }

    fn count(&self, add: impl FnOnce(&mut CheckpointTotals)) {
        add(&mut self.totals.lock());
    }

    /// Which checkpoint is due: so much was logged, or the interval has passed.
    pub fn due(&self, engine: &Engine) -> Option<CheckpointKind> {
        let last = self.last.lock();
        let elapsed = engine.clock.monotonic_micros().saturating_sub(last.started_micros);
        let logged = engine.wal.inserted().bytes_since(last.redo);
        if logged >= Pace::log_budget(engine.options()) {
            return Some(CheckpointKind::LogSize);
        }
        let over = Duration::from_micros(elapsed) >= engine.options().checkpoint_timeout;
        over.then_some(CheckpointKind::Timed)
    }

    /// Since the beginning of the last one.
    fn since_last(&self, now_micros: u64) -> Duration {
        Duration::from_micros(now_micros.saturating_sub(self.last.lock().started_micros))
    }
}

/// Makes a checkpoint in this thread.
pub(crate) fn checkpoint(engine: &Engine, kind: CheckpointKind) -> Result<CheckpointStats> {
    checkpoint_resting(engine, kind, &|time| {
        !engine.threads().enabled() || engine.threads().wait(time)
    })
}

/// The same, with a way to rest; `rest` tells whether there is to be no more resting.
pub(super) fn checkpoint_resting(
    engine: &Engine,
    kind: CheckpointKind,
    rest: &dyn Fn(Duration) -> bool,
) -> Result<CheckpointStats> {
    let all = &engine.checkpoints;
    if !kind.is_paced() {
        all.waiting.fetch_add(1, Ordering::Relaxed);
    }
    let running = all.running.lock();
    let outcome = run(engine, kind, rest);
    if !kind.is_paced() {
        all.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    drop(running);
    if let Err(e) = &outcome {
        engine.note_failure(e);
    }
    if let Ok(stats) = &outcome
        && stats.made
    {
        all.count(|totals| {
            totals.done += 1;
            totals.files_synced += stats.files_synced;
            totals.write_micros += stats.write_micros;
            totals.sync_micros += stats.sync_micros;
        });
        report::complete(engine, stats);
    }
    outcome
}

fn run(
    engine: &Engine,
    kind: CheckpointKind,
    rest: &dyn Fn(Duration) -> bool,
) -> Result<CheckpointStats> {
    engine.check_health()?;
    let started = engine.clock.monotonic_micros();
    let all = &engine.checkpoints;
    all.count(|totals| match kind {
        CheckpointKind::Timed => totals.timed += 1,
        _ => totals.requested += 1,
    });
    if kind == CheckpointKind::Timed && engine.wal.inserted() == all.last.lock().record {
        all.last.lock().started_micros = started;
        return Ok(CheckpointStats::default());
    }
    report::starting(engine, kind, all.since_last(started));
    // Both before the redo point: what is settled or given up then is not asked for by replay.
    let cut = all.cut.take(engine);
    engine.txns.maintain(engine.wal.flushed());
    let settled = engine.txns.oldest_unsettled();
    let data = begin(engine, kind, cut.as_ref().map_or(Xid::INVALID, |cut| cut.oldest));
    let redo = data.redo;
    let mut stats = CheckpointStats { made: true, redo, ..CheckpointStats::default() };
    stats.clog_pages_written = engine.txns.clog().write_dirty(&*engine.wal)?;
    all.count(|totals| totals.clog_pages_written += stats.clog_pages_written);
    let pace = Pace::new(engine.options(), started, redo);
    stats.pages_written = write_pages(engine, kind, &pace, rest)?;
    let written = engine.clock.monotonic_micros();
    stats.write_micros = written.saturating_sub(started);
    let synced = engine.pool.sync_files(&*engine.clock)?;
    (stats.files_synced, stats.longest_sync_micros) = (synced.files, synced.longest_micros);
    stats.file_sync_micros = synced.micros;
    stats.sync_micros = engine.clock.monotonic_micros().saturating_sub(written);
    crate::twophase::log_again(engine)?;
    let record = insert_checkpoint(&engine.wal, &data)?;
    engine.wal.flush(record)?;
    publish(engine, kind, &data, record)?;
    stats.record = record;
    finish(engine, started, &mut stats);
    if let Some(cut) = cut {
        all.cut.finish(engine, cut);
    }
    if let Err(e) = engine.txns.clog().map_settled(settled) {
        // They stay in memory, and are tried again with the next one.
        engine
            .options()
            .log(LogLevel::Warning, &format!("could not map old commit log files: {e}"));
    }
    remove_old_log(engine, &mut stats);
    stats.total_micros = engine.clock.monotonic_micros().saturating_sub(started);
    Ok(stats)
}

/// Takes the redo point, and collects what the record will say.
fn begin(engine: &Engine, kind: CheckpointKind, cut: Xid) -> CheckpointData {
    let redo = {
        let _gate = engine.redo_gate.write();
        engine.txns.with_commit_mutex(|| engine.wal.advance_redo_point())
    };
    let (created, dropped) = engine.pending.lists(&engine.txns);
    CheckpointData {
        redo,
        next_xid: engine.txns.next_xid(),
        oldest_xid: cut.max(engine.txns.clog().oldest()),
        next_rel: engine.rel_ids.bound(),
        shutdown: kind == CheckpointKind::Shutdown,
        time_micros: engine.clock.now_unix_micros(),
        created,
        dropped,
    }
}

/// It stands: the next one is measured from here.
fn finish(engine: &Engine, started: u64, stats: &mut CheckpointStats) {
    let mut last = engine.checkpoints.last.lock();
    stats.distance_bytes = stats.redo.bytes_since(last.redo);
    last.distance.note(stats.distance_bytes);
    stats.estimate_bytes = last.distance.estimate();
    (last.redo, last.record, last.started_micros) = (stats.redo, stats.record, started);
}

/// Old log files go, or become the next ones: as many as the log is expected to fill.
fn remove_old_log(engine: &Engine, stats: &mut CheckpointStats) {
    let ready = Distance::log_to_keep(stats.estimate_bytes, engine.options());
    let before = engine.wal.stats();
    if let Err(e) = engine.wal.remove_segments_before(stats.redo, ready) {
        // The checkpoint stands; the files go with the next one.
        engine.options().log(LogLevel::Warning, &format!("could not remove old log files: {e}"));
    }
    let after = engine.wal.stats();
    stats.segments_removed = after.segments_removed - before.segments_removed;
    stats.segments_recycled = after.segments_recycled - before.segments_recycled;
    let mut last = engine.checkpoints.last.lock();
    stats.segments_added = after.segments_created - last.segments_created;
    last.segments_created = after.segments_created;
}

fn publish(
    engine: &Engine,
    kind: CheckpointKind,
    data: &CheckpointData,
    record: Lsn,
) -> Result<()> {
    let mut control = engine.control.lock();
    let state = match kind {
        CheckpointKind::Shutdown => ControlState::ShutDown,
        _ => ControlState::InProduction,
    };
    let new = ControlData {
        state,
        redo: data.redo,
        checkpoint: record,
        next_xid: data.next_xid,
        oldest_xid: data.oldest_xid,
        next_rel: data.next_rel,
        time_micros: data.time_micros,
        ..*control.data()
    };
    control.update(new)
}

fn write_pages(
    engine: &Engine,
    kind: CheckpointKind,
    pace: &Pace,
    rest: &dyn Fn(Duration) -> bool,
) -> Result<u64> {
    let which = match kind {
        CheckpointKind::Shutdown | CheckpointKind::EndOfRecovery => DirtyPages::All,
        _ => DirtyPages::Logged,
    };
    let pages = engine.pool.mark_dirty_pages(which);
    let mut hints = WriteBackHints::new(engine.options().checkpoint_flush_after);
    let mut written = 0;
    for (done, page) in pages.iter().enumerate() {
        if engine.threads().abandoned() {
            return Err(StorageError::Canceled);
        }
        if engine.pool.write_marked(*page)? {
            written += 1;
            engine.checkpoints.count(|totals| totals.pages_written += 1);
            hints.note(&engine.pool, page.id);
        }
        if kind.is_paced() {
            let progress = (done + 1) as f64 / pages.len() as f64;
            rest_while_early(engine, pace, progress, rest);
        }
    }
    hints.flush(&engine.pool);
    Ok(written)
}

/// Rests as long as the work is further than the interval, by the clock and by the log.
fn rest_while_early(engine: &Engine, pace: &Pace, progress: f64, rest: &dyn Fn(Duration) -> bool) {
    while engine.checkpoints.waiting.load(Ordering::Relaxed) == 0 {
        let (now, end) = (engine.clock.monotonic_micros(), engine.wal.inserted());
        if !pace.is_early(progress, now, end) || rest(NAP) {
            return;
        }
    }
}
