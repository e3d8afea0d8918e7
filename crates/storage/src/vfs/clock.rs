//! Time behind a trait: the wall clock for time stamps, a monotonic one for deadlines.
//!
//! Deadlines never use the wall clock: it jumps. Monotonic readings count from an arbitrary
//! origin and are only comparable with readings of the same clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since 1970-01-01 00:00:00 UTC.
    fn now_unix_micros(&self) -> i64;
    /// Microseconds since some fixed moment; never goes back.
    fn monotonic_micros(&self) -> u64;
}

/// The host's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        SystemClock { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_unix_micros(&self) -> i64 {
        let micros = |d: std::time::Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => -micros(before.duration()),
        }
    }

    fn monotonic_micros(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward() {
        let clock = SystemClock::new();
        let first = clock.monotonic_micros();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(clock.monotonic_micros() >= first + 1_000);
        // 2020-01-01; any host that runs this is later.
        assert!(clock.now_unix_micros() > 1_577_836_800_000_000);
    }
}
