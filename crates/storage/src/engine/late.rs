//! Promises of asynchronous commits that the device could not keep: counted, and said now and then.
//!
//! A late flush is told by the thread that flushed, outside of all locks of the log. The figures
//! are in the ledger, for the view; the server's log gets a line at most once a minute, because a
//! device that is too slow is too slow many times a second.

use super::options::{EngineOptions, LogLevel};
use crate::durability::Ledger;
use crate::wal::{LateFlush, Wal};
use parking_lot::Mutex;
use std::sync::Arc;

/// Between two lines in the server's log.
const QUIET_MICROS: u64 = 60_000_000;

/// What was not said since the last line.
#[derive(Default)]
struct Unsaid {
    flushes: u64,
    worst_micros: u64,
    said_at: Option<u64>,
}

impl Unsaid {
    /// Takes note of a late flush; answers the line to be said now, if any.
    fn add(&mut self, rel: crate::ids::RelId, late: u64, now: u64) -> Option<String> {
        self.flushes += 1;
        self.worst_micros = self.worst_micros.max(late);
        if self.said_at.is_some_and(|said| now.saturating_sub(said) < QUIET_MICROS) {
            return None;
        }
        let line = format!(
            "asynchronous commits became durable later than promised, flushes: {}, at most \
             {}.{:03} ms late, the last time those of relation {rel}; the WAL device does not keep up",
            self.flushes,
            self.worst_micros / 1000,
            self.worst_micros % 1000,
        );
        *self = Unsaid { said_at: Some(now), ..Unsaid::default() };
        Some(line)
    }
}

/// Has the ledger and the server's log told of late flushes.
pub(super) fn listen(wal: &Wal, ledger: &Arc<Ledger>, options: &EngineOptions) {
    let (ledger, sink) = (Arc::clone(ledger), Arc::clone(&options.log_sink));
    let unsaid = Mutex::new(Unsaid::default());
    wal.on_late_flush(Box::new(move |flush: LateFlush| {
        let Some((rel, late)) = ledger.flushed_late(flush.from, flush.to, flush.ended) else {
            return;
        };
        let line = unsaid.lock().add(rel, late, flush.ended);
        if let Some(line) = line {
            sink(LogLevel::Warning, &line);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RelId;

    #[test]
    fn the_log_is_told_at_once_and_then_once_a_minute() {
        let mut unsaid = Unsaid::default();
        let rel = RelId::new(16_400);
        let first = unsaid.add(rel, 1_500, 7).expect("the first is said");
        assert!(first.contains("flushes: 1,") && first.contains("1.500 ms"), "{first}");
        for i in 0..10 {
            assert_eq!(unsaid.add(rel, 2_000 + i, 1_000_000 * i), None);
        }
        let next = unsaid.add(rel, 900, QUIET_MICROS + 7).expect("a minute later");
        assert!(next.contains("flushes: 11,") && next.contains("2.009 ms"), "{next}");
    }
}
