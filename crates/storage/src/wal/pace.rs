//! How long a flush takes: what the writer must keep free before a deadline.
//!
//! A moving mean and a moving deviation, as one estimates round trips: the lead is the mean and
//! four deviations, plus what it takes a sleeping thread to run. A device that becomes slower is
//! believed within a few flushes; one slow flush is forgotten within some dozens.
//!
//! ```text
//!   commit ───────────────────────── begin ──── flush ────> deadline
//!          may sleep or do other things     | lead()      |
//! ```
//!
//! One thread at a time records, with the device's lock held; anybody reads.

use crate::sync::atomic::{AtomicU64, Ordering};

/// What is believed of a device before its first flush.
const FIRST_MEAN: u64 = 2_000;
/// A sleeper runs again this much after it was to, on a busy machine.
const WAKING: u64 = 1_000;

pub(super) struct Pace {
    mean: AtomicU64,
    deviation: AtomicU64,
    samples: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            mean: AtomicU64::new(FIRST_MEAN),
            deviation: AtomicU64::new(FIRST_MEAN / 2),
            samples: AtomicU64::new(0),
        }
    }
}

impl Pace {
    /// A flush took so long. Called with the device locked.
    pub fn record(&self, micros: u64) {
        let (mean, deviation) = match self.samples.fetch_add(1, Ordering::Relaxed) {
            0 => (micros, micros / 2),
            _ => {
                let mean = self.mean.load(Ordering::Relaxed);
                let deviation = self.deviation.load(Ordering::Relaxed);
                let error = mean.abs_diff(micros);
                ((mean * 7 + micros) / 8, (deviation * 3 + error) / 4)
            }
        };
        self.mean.store(mean, Ordering::Relaxed);
        self.deviation.store(deviation, Ordering::Relaxed);
    }

    /// How long before a deadline a flush has to begin.
    pub fn lead(&self) -> u64 {
        let deviation = self.deviation.load(Ordering::Relaxed);
        self.mean.load(Ordering::Relaxed) + 4 * deviation + WAKING
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_lead_follows_the_device() {
        let pace = Pace::default();
        assert!(pace.lead() > FIRST_MEAN);
        for _ in 0..100 {
            pace.record(300);
        }
        assert!((300 + WAKING..=330 + WAKING).contains(&pace.lead()), "{}", pace.lead());
        pace.record(20_000);
        assert!(pace.lead() > 20_000, "one slow flush: {}", pace.lead());
        for _ in 0..5 {
            pace.record(20_000);
        }
        assert!(pace.lead() > 20_000, "slow from now on: {}", pace.lead());
        for _ in 0..60 {
            pace.record(300);
        }
        assert!(pace.lead() < 3_000, "forgotten: {}", pace.lead());
    }
}
