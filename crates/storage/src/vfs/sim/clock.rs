//! A clock that only a test moves.

use crate::vfs::Clock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Noon of 2024-01-01 UTC: where simulated wall time starts.
const START_UNIX_MICROS: i64 = 1_704_110_400_000_000;

/// Time stands still until [`advance`](Self::advance).
#[derive(Debug, Default)]
pub struct SimClock(AtomicU64);

impl SimClock {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn advance(&self, micros: u64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now_unix_micros(&self) -> i64 {
        START_UNIX_MICROS.saturating_add_unsigned(self.monotonic_micros())
    }

    fn monotonic_micros(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
