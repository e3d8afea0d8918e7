//! The engine: everything below SQL, opened from a data directory, started and stopped.
//!
//! ```text
//!   Engine ── pool ───> relation files        base/
//!          ── wal ────> log                   pg_wal/
//!          ── txns ───> commit log            pg_xact/
//!          ── locks     (memory only)
//!          ── control ─> redo point           global/pg_control
//!          ── checkpointer, background writer (maint/)
//! ```
//!
//! [`Engine::open`] makes a new directory or brings an old one up to the end of its log;
//! [`Engine::open_dir`] also takes the directory's lock. [`Engine::shutdown`] stops with or without
//! a last checkpoint; an engine that is merely dropped stops like one that crashed, which is safe.
//!
//! Rules, lock order and the crash argument: `README.md` here, and those of `buffer/`, `maint/`,
//! `recovery/`.

mod control;
mod dirlock;
mod late;
mod open;
mod options;
mod rels;
pub mod testing;
#[cfg(all(test, not(shuttle)))]
pub(crate) mod tests;

pub use control::{CONTROL_PATH, ControlData, ControlState, FORMAT_VERSION};
pub use dirlock::{DirLock, LOCK_FILE, PID_FILE};
pub(crate) use open::insert_checkpoint;
pub use open::{OpenOutcome, VERSION_PATH, VERSION_TEXT};
pub use options::{EngineOptions, LogLevel, LogSink};

use crate::buffer::{BufferPool, ChangeLog};
use crate::durability::Ledger;
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, RelId};
use crate::lock::LockManager;
use crate::maint::{Baselines, CheckpointStats, Checkpoints, Cleaner, Threads};
use crate::txn::{TxnHost, TxnManager, Written};
use crate::vfs::{Clock, Vfs};
use crate::wal::Wal;
use control::ControlFile;
use parking_lot::{Mutex, RwLock};
use rels::{PendingFiles, RelIds};
use std::sync::Arc;

pub use crate::maint::{BackgroundWriterStats, Baseline, CheckpointKind, StatsTarget};

/// What the control file of a directory says, read without opening the directory.
pub fn read_control(vfs: &dyn Vfs) -> Result<ControlData> {
    // Never written through: the syncing of this handle does not matter.
    Ok(*ControlFile::open(vfs, false)?.data())
}

/// How to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShutdownMode {
    /// With a checkpoint: the next start has nothing to replay.
    Fast,
    /// At once: the next start replays the log.
    Immediate,
}

/// One data directory, open. See the module's essay.
pub struct Engine {
    pub pool: Arc<BufferPool>,
    pub wal: Arc<Wal>,
    pub txns: TxnManager,
    pub locks: LockManager,
    /// What tables' last commits wait for, and which promises were missed.
    pub durability: Arc<Ledger>,
    /// Free space, in-memory row locks, hint policy.
    pub heap: Arc<crate::heap::HeapState>,
    /// Positions of the sequences in use.
    pub(crate) seqs: crate::seq::Sequences,
    pub(crate) options: EngineOptions,
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) control: Mutex<ControlFile>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) cleaner: Cleaner,
    pub(crate) baselines: Baselines,
    /// Transactions that wait for their second phase.
    pub(crate) prepared: crate::twophase::Registry,
    pub(crate) rel_ids: RelIds,
    pub(crate) pending: PendingFiles,
    /// Read-held from a creation's or a truncation's record to its end on the file, write-held
    /// while the redo point moves: replay sees the record, or the file is made or cut.
    pub(crate) redo_gate: RwLock<()>,
    log: ChangeLog,
    threads: Threads,
    _dir_lock: Option<DirLock>,
}

impl Engine {
    /// What critical sections need.
    #[inline]
    pub fn log(&self) -> &ChangeLog {
        &self.log
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.vfs
    }

    /// Identifies the data directory and its copies.
    pub fn system_id(&self) -> u64 {
        self.control.lock().data().system_id
    }

    /// What the control file says now.
    pub fn control_data(&self) -> ControlData {
        *self.control.lock().data()
    }

    /// Makes a checkpoint in this thread; one that is under way is hurried and waited for.
    pub fn checkpoint(&self, kind: CheckpointKind) -> Result<CheckpointStats> {
        crate::maint::checkpoint(self, kind)
    }

    /// Checkpoints made since start-up or the last reset of their counters.
    pub fn checkpoint_count(&self) -> u64 {
        self.checkpoints.totals().done
    }

    /// Notes in the ledger of promises that a commit at `lsn` wrote these relations. `bound`:
    /// within how many microseconds a relation's commit is promised to be durable; `None` when
    /// somebody waits for that.
    #[inline]
    pub fn note_commit(&self, lsn: Lsn, written: &Written, bound: impl Fn(RelId) -> Option<u64>) {
        let positions = self.wal.flush_positions();
        for rel in written {
            let now = || self.clock.monotonic_micros();
            self.durability.committed(*rel, lsn, bound(*rel), positions, now);
        }
    }

    /// Whether the log and the data files are still to be trusted: no write of the log and no
    /// fsync has failed.
    pub fn check_health(&self) -> Result<()> {
        self.wal.check_poisoned()?;
        self.pool.check_failed()
    }

    /// What failed for good somewhere below is a failure of the whole: no commit is accepted until
    /// a restart.
    pub(crate) fn note_failure(&self, error: &StorageError) {
        if let StorageError::Poisoned { at, what } = error {
            self.wal.fail(StorageError::Poisoned { at: *at, what: what.clone() });
        }
    }

    /// Housekeeping of the background writer, for callers without background threads.
    pub fn background_round(&self) -> Result<()> {
        crate::maint::background_round(self).map(|_| ())
    }

    /// Stops. Sessions are the caller's affair: none is running a statement any more.
    pub fn shutdown(&self, mode: ShutdownMode) -> Result<()> {
        self.threads.stop(mode == ShutdownMode::Immediate);
        match mode {
            ShutdownMode::Fast => {
                crate::seq::settle(self);
                self.checkpoint(CheckpointKind::Shutdown)?;
                self.wal.shutdown()
            }
            ShutdownMode::Immediate => Ok(()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.threads.stop(true);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("inserted", &self.wal.inserted())
            .field("control", &self.control_data())
            .finish_non_exhaustive()
    }
}

impl TxnHost for Engine {
    type Log = Wal;

    fn txns(&self) -> &TxnManager {
        &self.txns
    }

    fn locks(&self) -> &LockManager {
        &self.locks
    }

    fn txn_log(&self) -> &Wal {
        &self.wal
    }

    fn monotonic_micros(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    fn unix_micros(&self) -> i64 {
        self.clock.now_unix_micros()
    }

    fn unlink_rels(&self, rels: &[RelId]) {
        self.remove_rels(rels);
    }

    fn is_temporary(&self, rel: RelId) -> bool {
        self.pool.persistence(rel) == crate::buffer::Persistence::Temporary
    }
}
