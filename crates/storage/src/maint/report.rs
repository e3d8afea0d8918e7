//! What the log says of checkpoints, in PostgreSQL's words: what reads its logs reads these.
//!
//! ```text
//! LOG:  checkpoint starting: time
//! LOG:  checkpoint complete: wrote 44 buffers (0.3%), wrote 1 SLRU buffers; 0 WAL file(s) added,
//!       0 removed, 1 recycled; write=4.314 s, sync=0.018 s, total=4.351 s; sync files=11,
//!       longest=0.010 s, average=0.002 s; distance=16384 kB, estimate=16384 kB;
//!       lsn=0/5000168, redo lsn=0/5000028
//! ```
//!
//! Each is one line. Every number is counted or measured by the checkpoint that the line is about;
//! "added" are the files that were made since the one before, by whoever needed them.

use super::checkpoint::{CheckpointKind, CheckpointStats};
use crate::engine::{Engine, LogLevel};
use std::fmt;
use std::time::Duration;

impl fmt::Display for CheckpointKind {
    /// PostgreSQL's words for why, and how fast.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckpointKind::Timed => "time",
            CheckpointKind::LogSize => "wal",
            CheckpointKind::Immediate => "immediate force wait",
            CheckpointKind::Shutdown => "shutdown immediate",
            CheckpointKind::EndOfRecovery => "end-of-recovery immediate wait",
        })
    }
}

/// A checkpoint begins, so long after the one before began.
pub(super) fn starting(engine: &Engine, kind: CheckpointKind, since_last: Duration) {
    let options = engine.options();
    // Not only with `log_checkpoints`: somebody should do something.
    if kind == CheckpointKind::LogSize && since_last < options.checkpoint_warning {
        let seconds = since_last.as_secs();
        let unit = if seconds == 1 { "second" } else { "seconds" };
        let what = format!("checkpoints are occurring too frequently ({seconds} {unit} apart)");
        options.log(LogLevel::Log, &what);
        let hint = "Consider increasing the configuration parameter \"max_wal_size\".";
        options.log(LogLevel::Hint, hint);
    }
    if options.log_checkpoints {
        options.log(LogLevel::Log, &format!("checkpoint starting: {kind}"));
    }
}

/// A checkpoint stands.
pub(super) fn complete(engine: &Engine, stats: &CheckpointStats) {
    if engine.options().log_checkpoints {
        engine.options().log(LogLevel::Log, &line(stats, engine.pool.usage().frames));
    }
}

fn line(stats: &CheckpointStats, frames: usize) -> String {
    let share = stats.pages_written as f64 / frames.max(1) as f64 * 100.0;
    let average = stats.file_sync_micros.checked_div(stats.files_synced).unwrap_or(0);
    format!(
        "checkpoint complete: wrote {} buffers ({share:.1}%), wrote {} SLRU buffers; \
         {} WAL file(s) added, {} removed, {} recycled; \
         write={}, sync={}, total={}; sync files={}, longest={}, average={}; \
         distance={} kB, estimate={} kB; lsn={}, redo lsn={}",
        stats.pages_written,
        stats.clog_pages_written,
        stats.segments_added,
        stats.segments_removed,
        stats.segments_recycled,
        Seconds(stats.write_micros),
        Seconds(stats.sync_micros),
        Seconds(stats.total_micros),
        stats.files_synced,
        Seconds(stats.longest_sync_micros),
        Seconds(average),
        stats.distance_bytes / 1024,
        stats.estimate_bytes / 1024,
        stats.record,
        stats.redo,
    )
}

/// Microseconds as `1.234 s`.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0 / 1000;
        write!(f, "{}.{:03} s", millis / 1000, millis % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Lsn;

    #[test]
    fn the_line_is_postgresqls() {
        let stats = CheckpointStats {
            made: true,
            redo: Lsn::new(0x0500_0028),
            record: Lsn::new(0x1_0500_0168),
            pages_written: 44,
            clog_pages_written: 1,
            segments_added: 2,
            segments_removed: 3,
            segments_recycled: 4,
            files_synced: 11,
            write_micros: 4_314_999,
            sync_micros: 28_000,
            file_sync_micros: 22_000,
            longest_sync_micros: 10_000,
            total_micros: 64_351_000,
            distance_bytes: 16 << 20,
            estimate_bytes: 17 << 20,
        };
        assert_eq!(
            line(&stats, 16_384),
            "checkpoint complete: wrote 44 buffers (0.3%), wrote 1 SLRU buffers; \
             2 WAL file(s) added, 3 removed, 4 recycled; \
             write=4.314 s, sync=0.028 s, total=64.351 s; sync files=11, longest=0.010 s, \
             average=0.002 s; distance=16384 kB, estimate=17408 kB; \
             lsn=1/5000168, redo lsn=0/5000028"
        );
        let nothing = line(&CheckpointStats::default(), 16_384);
        assert!(nothing.contains("sync files=0, longest=0.000 s, average=0.000 s"), "{nothing}");
    }
}
