//! How fast a checkpoint goes, and how much log it leaves room for.
//!
//! ```text
//!   redo point                                               next redo point
//!   |------------------ checkpoint_timeout, or the log's budget --------|
//!   |-------- pages written: completion_target of it ------|  rest free |
//! ```
//!
//! Both are arithmetic on the clock and on positions in the log, without either.

use crate::engine::EngineOptions;
use crate::ids::Lsn;

/// The schedule of one checkpoint.
pub(super) struct Pace {
    started_micros: u64,
    redo: Lsn,
    interval_micros: u64,
    log_budget: u64,
    target: f64,
}

impl Pace {
    pub fn new(options: &EngineOptions, started_micros: u64, redo: Lsn) -> Pace {
        Pace {
            started_micros,
            redo,
            interval_micros: options.checkpoint_timeout.as_micros() as u64,
            log_budget: Self::log_budget(options),
            target: options.checkpoint_completion_target.clamp(0.0, 1.0),
        }
    }

    /// Log bytes from one redo point to the next such that what a checkpoint still needs while it
    /// goes on, and what comes meanwhile, fit `max_wal_size`.
    pub fn log_budget(options: &EngineOptions) -> u64 {
        let parts = 1.0 + options.checkpoint_completion_target.clamp(0.0, 1.0);
        (options.max_wal_size as f64 / parts) as u64
    }

    /// Whether `progress` (0 to 1) is ahead of the schedule, by the clock and by the log.
    pub fn is_early(&self, progress: f64, now_micros: u64, log_end: Lsn) -> bool {
        let elapsed = now_micros.saturating_sub(self.started_micros);
        let by_clock = elapsed as f64 / self.interval_micros.max(1) as f64;
        let by_log = log_end.bytes_since(self.redo) as f64 / self.log_budget.max(1) as f64;
        progress * self.target > by_clock.max(by_log)
    }
}

/// Weight of the newest distance when the estimate falls.
const SMOOTHING: f64 = 0.1;
/// Log that is kept ready beyond the estimate.
const RESERVE: f64 = 1.1;

/// How much log lies between redo points: an average that rises at once and falls slowly, so that
/// one quiet interval does not throw away the files that the next busy one needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Distance {
    estimate: f64,
}

impl Distance {
    pub fn note(&mut self, bytes: u64) {
        let newest = bytes as f64;
        self.estimate = match newest > self.estimate {
            true => newest,
            false => self.estimate + (newest - self.estimate) * SMOOTHING,
        };
    }

    pub fn estimate(&self) -> u64 {
        self.estimate as u64
    }

    /// Bytes of log files to have, used and ready ones together, from a redo point on: enough
    /// until the end of the next checkpoint, within `min_wal_size` and `max_wal_size`.
    pub fn log_to_keep(estimate: u64, options: &EngineOptions) -> u64 {
        let parts = 1.0 + options.checkpoint_completion_target.clamp(0.0, 1.0);
        let expected = (estimate as f64 * parts * RESERVE).ceil() as u64;
        expected.min(options.max_wal_size).max(options.min_wal_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000;

    fn options() -> EngineOptions {
        EngineOptions {
            checkpoint_timeout: Duration::from_secs(100),
            checkpoint_completion_target: 0.9,
            max_wal_size: 190 * MB,
            min_wal_size: 80 * MB,
            ..EngineOptions::default()
        }
    }

    #[test]
    fn the_clock_and_the_log_each_push() {
        let redo = Lsn::new(1000);
        let pace = Pace::new(&options(), 5 * SECOND, redo);
        let early = |progress, seconds: u64, logged| {
            pace.is_early(progress, (5 + seconds) * SECOND, redo.advance(logged))
        };
        // Half of the pages are due at 45 of the 100 seconds ...
        assert!(early(0.5, 44, 0) && !early(0.5, 46, 0));
        // ... or at 45 of the 100 MB, whichever comes first.
        assert!(early(0.5, 10, 44 * MB) && !early(0.5, 10, 46 * MB));
        assert!(!early(0.5, 46, 10 * MB));
        assert!(early(1.0, 89, 0) && !early(1.0, 91, 0));
    }

    #[test]
    fn a_target_of_nothing_never_rests() {
        let options = EngineOptions { checkpoint_completion_target: 0.0, ..options() };
        let pace = Pace::new(&options, 0, Lsn::new(0));
        assert!(!pace.is_early(1.0, 0, Lsn::new(0)));
        assert_eq!(Pace::log_budget(&options), 190 * MB);
    }

    #[test]
    fn the_estimate_rises_at_once_and_falls_slowly() {
        let mut distance = Distance::default();
        distance.note(100);
        assert_eq!(distance.estimate(), 100);
        distance.note(0);
        assert_eq!(distance.estimate(), 90);
        distance.note(0);
        assert_eq!(distance.estimate(), 81);
        distance.note(1000);
        assert_eq!(distance.estimate(), 1000);
    }

    #[test]
    fn files_are_kept_for_the_estimate_within_both_bounds() {
        let keep = |estimate| Distance::log_to_keep(estimate, &options());
        assert_eq!(keep(0), 80 * MB);
        assert_eq!(keep(50 * MB) / MB, 104);
        assert_eq!(keep(500 * MB), 190 * MB);
        let odd = EngineOptions { min_wal_size: 300 * MB, ..options() };
        assert_eq!(Distance::log_to_keep(0, &odd), 300 * MB);
    }
}
