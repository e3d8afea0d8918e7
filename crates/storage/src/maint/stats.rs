//! Counters for the views, counted from the last reset on.
//!
//! What counts goes on counting: others take differences of it. A reset remembers where the
//! counters stood, and readers subtract.

use super::checkpoint::CheckpointTotals;
use crate::engine::Engine;
use crate::wal::WalStats;
use parking_lot::Mutex;

/// What the background writer did, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundWriterStats {
    /// Pages written ahead of need.
    pub buffers_clean: u64,
    /// Rounds that ended because they had written as much as one may.
    pub maxwritten_clean: u64,
    /// Frames that were handed out.
    pub buffers_alloc: u64,
}

impl BackgroundWriterStats {
    fn since(&self, base: &Self) -> Self {
        BackgroundWriterStats {
            buffers_clean: self.buffers_clean.saturating_sub(base.buffers_clean),
            maxwritten_clean: self.maxwritten_clean.saturating_sub(base.maxwritten_clean),
            buffers_alloc: self.buffers_alloc.saturating_sub(base.buffers_alloc),
        }
    }
}

/// Whose counters begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsTarget {
    Checkpointer,
    BackgroundWriter,
    Wal,
}

/// Counters with the moment from which they count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline<T> {
    pub counters: T,
    /// When they began, in microseconds since 1970; `None`: with the engine.
    pub reset_micros: Option<i64>,
}

/// Where the counters stood at their resets.
#[derive(Default)]
pub(crate) struct Baselines {
    background_writer: Mutex<Baseline<BackgroundWriterStats>>,
    wal: Mutex<Baseline<WalStats>>,
}

impl Engine {
    /// What the checkpoints did since start-up or the last reset.
    pub fn checkpoint_totals(&self) -> CheckpointTotals {
        self.checkpoints.totals()
    }

    /// What the background writer did since start-up or the last reset.
    pub fn background_writer_stats(&self) -> Baseline<BackgroundWriterStats> {
        let base = *self.baselines.background_writer.lock();
        Baseline { counters: self.background_writer_counters().since(&base.counters), ..base }
    }

    /// What the log did since start-up or the last reset.
    pub fn wal_stats(&self) -> Baseline<WalStats> {
        let base = *self.baselines.wal.lock();
        Baseline { counters: self.wal.stats().since(&base.counters), ..base }
    }

    /// Has counters begin anew.
    pub fn reset_stats(&self, target: StatsTarget) {
        let now = self.clock.now_unix_micros();
        let reset_micros = Some(now);
        match target {
            StatsTarget::Checkpointer => self.checkpoints.reset_totals(now),
            StatsTarget::BackgroundWriter => {
                let counters = self.background_writer_counters();
                *self.baselines.background_writer.lock() = Baseline { counters, reset_micros };
            }
            StatsTarget::Wal => {
                let counters = self.wal.stats();
                *self.baselines.wal.lock() = Baseline { counters, reset_micros };
            }
        }
    }

    fn background_writer_counters(&self) -> BackgroundWriterStats {
        let pool = self.pool.stats();
        BackgroundWriterStats {
            buffers_clean: pool.cleaner_writes,
            maxwritten_clean: self.cleaner.cut_short(),
            buffers_alloc: pool.allocations,
        }
    }
}
