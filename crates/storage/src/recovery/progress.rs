//! Saying how far a start is, now and then, as PostgreSQL says it.

use crate::ids::Lsn;
use crate::vfs::Clock;

/// Tells at most once in an interval.
pub(super) struct Progress<'a> {
    clock: &'a dyn Clock,
    tell: &'a dyn Fn(&str),
    interval: u64,
    began: u64,
    next: u64,
}

impl<'a> Progress<'a> {
    /// `interval`: microseconds (`log_startup_progress_interval`); 0 tells nothing.
    pub fn new(clock: &'a dyn Clock, interval: u64, tell: &'a dyn Fn(&str)) -> Self {
        let began = clock.monotonic_micros();
        let next = if interval == 0 { u64::MAX } else { began.saturating_add(interval) };
        Progress { clock, tell, interval, began, next }
    }

    pub fn elapsed_micros(&self) -> u64 {
        self.clock.monotonic_micros().saturating_sub(self.began)
    }

    fn look(&mut self, message: impl FnOnce(u64, u64) -> String) {
        let now = self.clock.monotonic_micros();
        if now < self.next {
            return;
        }
        // What was slept over is not made up for.
        while self.next <= now {
            self.next = self.next.saturating_add(self.interval);
        }
        let centis = now.saturating_sub(self.began) / 10_000;
        (self.tell)(&message(centis / 100, centis % 100));
    }

    pub fn redo(&mut self, at: Lsn) {
        self.look(|s, cs| {
            format!("redo in progress, elapsed time: {s}.{cs:02} s, current LSN: {at}")
        });
    }

    pub fn reset(&mut self, path: &str) {
        self.look(|s, cs| {
            format!(
                "resetting unlogged relations, elapsed time: {s}.{cs:02} s, current path: {path}"
            )
        });
    }
}
