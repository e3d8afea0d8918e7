//! Checkpoints: everything that the log says up to some point reaches the files, so that replay
//! need not start before it.
//!
//! ```text
//!   1  redo point := insert position      (commit mutex, insertion lock: no commit is half done)
//!   2  commit log written
//!   3  pages that are dirty now, in file order, spread over the interval
//!   4  fsync of every file written since the last checkpoint
//!   5  checkpoint record, flushed
//!   6  control file
//!   7  commit log files below the oldest xid go; other full, settled ones are mapped
//!   8  old log files go
//! ```
//!
//! A failure at any step leaves the previous checkpoint in force: its redo point is older, its log
//! is still there, and nothing that was done is wrong. The next attempt starts afresh.

use super::threads::Threads;
use super::truncate::PendingCut;
use crate::buffer::{DirtyPages, ToWrite};
use crate::engine::{ControlData, ControlState, Engine, LogLevel, insert_checkpoint};
use crate::error::{Result, StorageError};
use crate::ids::{Fork, Lsn, RelId, Xid};
use crate::recovery::CheckpointData;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Why a checkpoint is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointKind {
    /// Due: spread over the interval, skipped when nothing was logged since the last.
    Timed,
    /// Asked for: as fast as possible.
    Immediate,
    /// The engine stops: unlogged pages are written too.
    Shutdown,
    /// Replay is over.
    EndOfRecovery,
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// False: there was nothing to do.
    pub made: bool,
    pub redo: Lsn,
    pub pages_written: u64,
    pub clog_pages_written: u64,
    pub files_synced: u64,
    pub write_micros: u64,
    pub sync_micros: u64,
}

/// What all checkpoints since start-up did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointTotals {
    /// Made because they were due.
    pub timed: u64,
    /// Made because somebody asked, the engine itself included.
    pub requested: u64,
    pub pages_written: u64,
    pub files_synced: u64,
    pub write_micros: u64,
    pub sync_micros: u64,
}

struct Last {
    redo: Lsn,
    /// End of its record, to see whether anything followed.
    record: Lsn,
    started_micros: u64,
}

/// The checkpoints of one engine.
pub(crate) struct Checkpoints {
    /// One at a time.
    running: Mutex<()>,
    /// Callers who wait for the one that is running, or for their own: it must not dawdle.
    waiting: AtomicUsize,
    totals: Mutex<CheckpointTotals>,
    last: Mutex<Last>,
    /// Commit log to be given up with the next one that may.
    pub(super) cut: PendingCut,
}

/// How long a checkpoint that is ahead of its schedule rests.
const NAP: Duration = Duration::from_millis(100);

impl Checkpoints {
    pub fn new(redo: Lsn, now_micros: u64) -> Self {
        Checkpoints {
            running: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            totals: Mutex::new(CheckpointTotals::default()),
            last: Mutex::new(Last { redo, record: Lsn::INVALID, started_micros: now_micros }),
            cut: PendingCut::default(),
        }
    }

    pub fn totals(&self) -> CheckpointTotals {
        *self.totals.lock()
    }

    fn count(&self, kind: CheckpointKind, stats: &CheckpointStats) {
        let mut totals = self.totals.lock();
        match kind {
            CheckpointKind::Timed => totals.timed += 1,
            _ => totals.requested += 1,
        }
        totals.pages_written += stats.pages_written;
        totals.files_synced += stats.files_synced;
        totals.write_micros += stats.write_micros;
        totals.sync_micros += stats.sync_micros;
    }

    /// Whether the interval has passed, or so much was logged.
    pub fn is_due(&self, engine: &Engine) -> bool {
        let last = self.last.lock();
        let elapsed = engine.clock.monotonic_micros().saturating_sub(last.started_micros);
        let logged = engine.wal.inserted().bytes_since(last.redo);
        Duration::from_micros(elapsed) >= engine.options().checkpoint_timeout
            || logged >= wal_budget(engine)
    }
}

/// Log bytes from one redo point to the next such that two intervals fit `max_wal_size`.
fn wal_budget(engine: &Engine) -> u64 {
    let options = engine.options();
    let parts = 1.0 + options.checkpoint_completion_target.clamp(0.0, 1.0);
    (options.max_wal_size as f64 / parts) as u64
}

/// Makes a checkpoint in this thread.
pub(crate) fn checkpoint(engine: &Engine, kind: CheckpointKind) -> Result<CheckpointStats> {
    let all = &engine.checkpoints;
    let impatient = kind != CheckpointKind::Timed;
    if impatient {
        all.waiting.fetch_add(1, Ordering::Relaxed);
    }
    let running = all.running.lock();
    let outcome = run(engine, kind);
    if impatient {
        all.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    drop(running);
    if let Ok(stats) = &outcome
        && stats.made
    {
        all.count(kind, stats);
        report(engine, kind, stats);
    }
    outcome
}

fn report(engine: &Engine, kind: CheckpointKind, stats: &CheckpointStats) {
    let message = format!(
        "checkpoint complete ({kind:?}): redo at {}, {} pages and {} commit log pages written in {} ms, {} files synced in {} ms",
        stats.redo,
        stats.pages_written,
        stats.clog_pages_written,
        stats.write_micros / 1000,
        stats.files_synced,
        stats.sync_micros / 1000
    );
    engine.options().log(LogLevel::Debug, &message);
}

fn run(engine: &Engine, kind: CheckpointKind) -> Result<CheckpointStats> {
    engine.check_health()?;
    let started = engine.clock.monotonic_micros();
    if kind == CheckpointKind::Timed
        && engine.wal.inserted() == engine.checkpoints.last.lock().record
    {
        engine.checkpoints.last.lock().started_micros = started;
        return Ok(CheckpointStats::default());
    }
    // Both before the redo point: what is settled or given up then is not asked for by replay.
    let cut = engine.checkpoints.cut.take(engine);
    engine.txns.maintain(engine.wal.flushed());
    let settled = engine.txns.oldest_unsettled();
    let redo = {
        let _gate = engine.redo_gate.write();
        engine.txns.with_commit_mutex(|| engine.wal.advance_redo_point())
    };
    let (created, dropped) = engine.pending.lists(&engine.txns);
    let data = CheckpointData {
        redo,
        next_xid: engine.txns.next_xid(),
        oldest_xid: cut.map_or(Xid::INVALID, |cut| cut.oldest).max(engine.txns.clog().oldest()),
        next_rel: engine.rel_ids.bound(),
        shutdown: kind == CheckpointKind::Shutdown,
        time_micros: engine.clock.now_unix_micros(),
        created,
        dropped,
    };
    let mut stats = CheckpointStats { made: true, redo, ..CheckpointStats::default() };
    stats.clog_pages_written = engine.txns.clog().write_dirty(&*engine.wal)?;
    let which = match kind {
        CheckpointKind::Timed | CheckpointKind::Immediate => DirtyPages::Logged,
        CheckpointKind::Shutdown | CheckpointKind::EndOfRecovery => DirtyPages::All,
    };
    stats.pages_written = write_pages(engine, kind, which, started, redo)?;
    let written = engine.clock.monotonic_micros();
    stats.write_micros = written.saturating_sub(started);
    stats.files_synced = engine.pool.sync_files()?;
    stats.sync_micros = engine.clock.monotonic_micros().saturating_sub(written);
    let record = insert_checkpoint(&engine.wal, &data)?;
    engine.wal.flush(record)?;
    publish(engine, kind, &data, record)?;
    *engine.checkpoints.last.lock() = Last { redo, record, started_micros: started };
    if let Some(cut) = cut {
        engine.checkpoints.cut.finish(engine, cut);
    }
    if let Err(e) = engine.txns.clog().map_settled(settled) {
        // They stay in memory, and are tried again with the next one.
        engine
            .options()
            .log(LogLevel::Warning, &format!("could not map old commit log files: {e}"));
    }
    if let Err(e) = engine.wal.remove_segments_before(redo) {
        // The checkpoint stands; the files go with the next one.
        engine.options().log(LogLevel::Warning, &format!("could not remove old log files: {e}"));
    }
    Ok(stats)
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
    which: DirtyPages,
    started: u64,
    redo: Lsn,
) -> Result<u64> {
    let pages = engine.pool.mark_dirty_pages(which);
    let mut hints = WriteBackHints::new(engine);
    let mut written = 0;
    for (done, page) in pages.iter().enumerate() {
        if engine.threads().abandoned() {
            return Err(StorageError::Canceled);
        }
        if engine.pool.write_marked(*page)? {
            written += 1;
            hints.note(page);
        }
        if kind == CheckpointKind::Timed {
            let progress = (done + 1) as f64 / pages.len() as f64;
            rest_while_early(engine, progress, started, redo);
        }
    }
    hints.flush();
    Ok(written)
}

/// Rests as long as the work is further than the interval, by the clock and by the log.
fn rest_while_early(engine: &Engine, progress: f64, started: u64, redo: Lsn) {
    let threads: &Threads = engine.threads();
    let options = engine.options();
    while threads.enabled() && engine.checkpoints.waiting.load(Ordering::Relaxed) == 0 {
        let elapsed = engine.clock.monotonic_micros().saturating_sub(started);
        let by_clock = elapsed as f64 / options.checkpoint_timeout.as_micros().max(1) as f64;
        let logged = engine.wal.inserted().bytes_since(redo) as f64;
        let by_log = logged / wal_budget(engine).max(1) as f64;
        let early = progress * options.checkpoint_completion_target > by_clock.max(by_log);
        if !early || threads.wait(NAP) {
            return;
        }
    }
}

/// Collects neighbouring writes to one file, and asks the kernel to begin with them.
struct WriteBackHints<'e> {
    engine: &'e Engine,
    after: u32,
    file: (RelId, Fork),
    first: u32,
    end: u32,
    count: u32,
}

impl<'e> WriteBackHints<'e> {
    fn new(engine: &'e Engine) -> Self {
        let after = engine.options().checkpoint_flush_after;
        WriteBackHints {
            engine,
            after,
            file: (RelId::INVALID, Fork::Main),
            first: 0,
            end: 0,
            count: 0,
        }
    }

    fn note(&mut self, page: &ToWrite) {
        let (file, block) = ((page.id.rel, page.id.fork), page.id.block);
        if self.after == 0 {
            return;
        }
        if file != self.file || self.count >= self.after {
            self.flush();
            (self.file, self.first) = (file, block);
        }
        self.end = block + 1;
        self.count += 1;
    }

    fn flush(&mut self) {
        if self.count > 0 {
            let blocks = self.end - self.first;
            self.engine.pool.start_write_back(self.file.0, self.file.1, self.first, blocks);
        }
        self.count = 0;
    }
}
