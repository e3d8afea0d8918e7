//! Checkpoints on a simulated host: how fast they go, what they say, what they leave.

use super::checkpoint::{CheckpointKind, CheckpointTotals, checkpoint_resting};
use crate::buffer::Persistence;
use crate::engine::testing::Sim;
use crate::engine::tests::toy::{self, add, add_page, begin, commit};
use crate::engine::{Engine, LogLevel, StatsTarget};
use crate::ids::{PageId, Xid};
use crate::vfs::{Clock, Vfs};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MB: u64 = 1 << 20;

/// A host whose engine's messages are kept.
struct Host {
    sim: Sim,
    said: Arc<Mutex<Vec<(LogLevel, String)>>>,
}

impl Host {
    fn new(seed: u64, frames: usize) -> Host {
        let mut sim = toy::sim(seed, frames);
        let said: Arc<Mutex<Vec<(LogLevel, String)>>> = Arc::default();
        let sink = Arc::clone(&said);
        sim.options.log_sink = Arc::new(move |level, message| {
            sink.lock().push((level, message.to_owned()));
        });
        sim.options.log_checkpoints = true;
        sim.options.checkpoint_timeout = Duration::from_secs(100);
        Host { sim, said }
    }

    fn said(&self) -> Vec<String> {
        let said = self.said.lock();
        said.iter().map(|(level, message)| format!("{level:?}: {message}")).collect()
    }

    fn seconds(&self) -> f64 {
        self.sim.clock.monotonic_micros() as f64 / 1e6
    }
}

/// So many dirty pages of a relation.
fn dirty(engine: &Engine, pages: u32) -> Vec<PageId> {
    let mut tx = begin(engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(engine).expect("xid");
    let ids = (0..pages).map(|_| add_page(engine, rel, xid).expect("page")).collect();
    commit(engine, tx).expect("commit");
    ids
}

#[test]
fn a_timed_checkpoint_is_even_and_done_at_its_target() {
    let host = Host::new(1, 512);
    let engine = host.sim.open();
    dirty(&engine, 400);
    let begun = host.seconds();
    let worst = Mutex::new(0.0f64);
    let stats = checkpoint_resting(&engine, CheckpointKind::Timed, &|time| {
        let due = (host.seconds() - begun) / 90.0;
        let done = engine.checkpoint_totals().pages_written as f64 / 400.0;
        let mut worst = worst.lock();
        *worst = worst.max((done - due).abs());
        host.sim.clock.advance(time.as_micros() as u64);
        false
    })
    .expect("checkpoint");
    let took = host.seconds() - begun;
    assert!((89.0..91.0).contains(&took), "{took} s of 100, target 0.9");
    assert!(*worst.lock() < 0.01, "ahead or behind by {}", worst.lock());
    assert_eq!(stats.pages_written, 400);
    assert!(stats.write_micros >= 89_000_000 && stats.total_micros >= stats.write_micros);
}

#[test]
fn log_that_comes_quickly_hurries_it() {
    let mut host = Host::new(2, 512);
    host.sim.options.max_wal_size = 19 * MB;
    let engine = host.sim.open();
    let ids = dirty(&engine, 400);
    let begun = host.seconds();
    // The budget is 10 MB; 1 MB a second fills it in 10 seconds.
    checkpoint_resting(&engine, CheckpointKind::LogSize, &|time| {
        let end = engine.wal.inserted().advance(time.as_micros() as u64 * MB / 1_000_000);
        while engine.wal.inserted() < end {
            add(&engine, Xid::INVALID, &ids[..1], 0, 1).expect("add");
        }
        host.sim.clock.advance(time.as_micros() as u64);
        false
    })
    .expect("checkpoint");
    let took = host.seconds() - begun;
    assert!((8.0..10.0).contains(&took), "{took} s of 10, target 0.9");
}

#[test]
fn whoever_asks_for_one_hurries_the_one_under_way() {
    let host = Host::new(3, 512);
    let engine = host.sim.open();
    dirty(&engine, 400);
    let naps = Mutex::new(0);
    checkpoint_resting(&engine, CheckpointKind::Timed, &|time| {
        *naps.lock() += 1;
        host.sim.clock.advance(time.as_micros() as u64);
        if *naps.lock() == 50 {
            engine.checkpoints.waiting.fetch_add(1, Ordering::Relaxed);
        }
        false
    })
    .expect("checkpoint");
    assert_eq!(*naps.lock(), 50);
    assert!(host.seconds() < 10.0, "{}", host.seconds());
}

#[test]
fn only_paced_ones_rest() {
    let host = Host::new(4, 512);
    let engine = host.sim.open();
    for kind in [CheckpointKind::Immediate, CheckpointKind::Shutdown] {
        dirty(&engine, 50);
        let never = |_| panic!("{kind} rests");
        let stats = checkpoint_resting(&engine, kind, &never).expect("checkpoint");
        assert!(stats.pages_written >= 50);
    }
}

#[test]
fn the_clock_and_the_log_make_one_due() {
    let mut host = Host::new(5, 64);
    host.sim.options.max_wal_size = MB;
    let engine = host.sim.open();
    toy::checkpoint(&engine);
    let due = || engine.checkpoints.due(&engine);
    assert_eq!(due(), None);
    host.sim.clock.advance(99_999_999);
    assert_eq!(due(), None);
    host.sim.clock.advance(1);
    assert_eq!(due(), Some(CheckpointKind::Timed));
    let ids = dirty(&engine, 1);
    let redo = engine.wal.redo_point();
    while engine.wal.inserted().bytes_since(redo) < MB * 10 / 19 {
        assert_eq!(due(), Some(CheckpointKind::Timed));
        add(&engine, Xid::INVALID, &ids, 0, 1).expect("add");
    }
    assert_eq!(due(), Some(CheckpointKind::LogSize));
    toy::checkpoint(&engine);
    assert_eq!(due(), None);
}

#[test]
fn the_log_tells_why_and_what() {
    let host = Host::new(6, 64);
    let engine = host.sim.open();
    toy::checkpoint(&engine);
    host.said.lock().clear();
    // Nothing was logged since: nothing is said, and nothing done.
    engine.checkpoint(CheckpointKind::Timed).expect("checkpoint");
    assert_eq!(host.said(), Vec::<String>::new());
    for (kind, why) in [
        (CheckpointKind::Timed, "time"),
        (CheckpointKind::Immediate, "immediate force wait"),
        (CheckpointKind::Shutdown, "shutdown immediate"),
    ] {
        dirty(&engine, 16);
        host.said.lock().clear();
        let stats = engine.checkpoint(kind).expect("checkpoint");
        let said = host.said();
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], format!("Log: checkpoint starting: {why}"));
        // The new relation's pages are a quarter of the 64 frames.
        let begins = "Log: checkpoint complete: wrote 16 buffers (25.0%), wrote 1 SLRU buffers; ";
        assert!(said[1].starts_with(begins), "{}", said[1]);
        let control = engine.control_data();
        let ends = format!("; lsn={}, redo lsn={}", control.checkpoint, control.redo);
        assert!(said[1].ends_with(&ends), "{} {ends}", said[1]);
        assert!(stats.files_synced >= 1);
    }
}

#[test]
fn without_log_checkpoints_only_the_warning_is_left() {
    let mut host = Host::new(7, 64);
    host.sim.options.log_checkpoints = false;
    let engine = host.sim.open();
    let warned = |seconds: u64, kind| {
        toy::checkpoint(&engine);
        dirty(&engine, 1);
        host.sim.clock.advance(seconds * 1_000_000);
        host.said.lock().clear();
        engine.checkpoint(kind).expect("checkpoint");
        host.said()
    };
    let warning = [
        "Log: checkpoints are occurring too frequently (29 seconds apart)",
        "Hint: Consider increasing the configuration parameter \"max_wal_size\".",
    ];
    assert_eq!(warned(29, CheckpointKind::LogSize), warning);
    assert!(warned(1, CheckpointKind::LogSize)[0].ends_with("(1 second apart)"));
    assert!(warned(30, CheckpointKind::LogSize).is_empty());
    assert!(warned(29, CheckpointKind::Immediate).is_empty());
    assert!(warned(29, CheckpointKind::Timed).is_empty());
}

#[test]
fn after_a_crash_the_first_one_says_that_recovery_ended() {
    let host = Host::new(8, 64);
    let engine = host.sim.open();
    dirty(&engine, 3);
    drop(engine);
    host.said.lock().clear();
    let engine = host.sim.open();
    let said = host.said();
    let starting = "Log: checkpoint starting: end-of-recovery immediate wait".to_owned();
    assert!(said.contains(&starting), "{said:?}");
    let totals = engine.checkpoint_totals();
    assert_eq!((totals.timed, totals.requested, totals.done), (0, 1, 1));
}

#[test]
fn log_files_are_kept_for_the_next_burst_within_the_bounds() {
    let mut host = Host::new(9, 64);
    // Files of 1 MB.
    (host.sim.options.min_wal_size, host.sim.options.max_wal_size) = (4 * MB, 40 * MB);
    let engine = host.sim.open();
    let ids = dirty(&engine, 1);
    let burst = |megabytes: u64| {
        let end = engine.wal.inserted().advance(megabytes * MB);
        while engine.wal.inserted() < end {
            add(&engine, Xid::INVALID, &ids, 0, 1).expect("add");
        }
        engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint")
    };
    let files = || host.sim.disk.list("pg_wal").expect("list").len() as u64;
    let stats = burst(1);
    assert!(stats.segments_added >= 1, "{stats:?}");
    // 10 MB come, and 10 * 1.9 * 1.1 MB are expected: all old files become new ones.
    let stats = burst(10);
    assert_eq!(stats.segments_removed, 0, "{stats:?}");
    assert!(stats.segments_recycled >= 9 && stats.segments_added >= 8, "{stats:?}");
    assert_eq!(stats.distance_bytes / MB, 10);
    assert_eq!(stats.estimate_bytes, stats.distance_bytes);
    let after_burst = files();
    // One quiet interval does not change that much; many do, down to the least.
    let stats = burst(1);
    assert!(stats.estimate_bytes / MB == 9 && files() >= after_burst - 1, "{stats:?}");
    for _ in 0..60 {
        burst(1);
    }
    assert!((4..=5).contains(&files()), "{} files", files());
}

#[test]
fn counters_begin_anew_one_by_one() {
    let host = Host::new(10, 64);
    let engine = host.sim.open();
    dirty(&engine, 40);
    toy::checkpoint(&engine);
    dirty(&engine, 40);
    engine.background_round().expect("round");
    let totals = engine.checkpoint_totals();
    assert!(totals.done == 1 && totals.pages_written >= 40 && totals.reset_micros.is_none());
    let writer = engine.background_writer_stats();
    assert!(writer.counters.buffers_alloc >= 80 && writer.reset_micros.is_none(), "{writer:?}");
    assert!(engine.wal_stats().counters.records >= 80);
    host.sim.clock.advance(5);
    let now = Some(host.sim.clock.now_unix_micros());
    engine.reset_stats(StatsTarget::Checkpointer);
    let zero = CheckpointTotals { reset_micros: now, ..CheckpointTotals::default() };
    assert_eq!(engine.checkpoint_totals(), zero);
    assert_eq!(engine.background_writer_stats().counters, writer.counters);
    engine.reset_stats(StatsTarget::BackgroundWriter);
    let writer = engine.background_writer_stats();
    assert_eq!((writer.counters, writer.reset_micros), (Default::default(), now));
    assert!(engine.wal_stats().counters.records >= 80);
    engine.reset_stats(StatsTarget::Wal);
    let wal = engine.wal_stats();
    assert_eq!((wal.counters.records, wal.counters.bytes, wal.reset_micros), (0, 0, now));
    // What others take differences of goes on.
    assert!(engine.wal.stats().records >= 80);
    dirty(&engine, 1);
    assert!(engine.wal_stats().counters.records >= 1);
}

#[test]
fn the_background_writer_counts_what_it_wrote_and_where_it_stopped() {
    let mut host = Host::new(11, 64);
    host.sim.options.bgwriter_max_pages = 4;
    host.sim.options.bgwriter_flush_after = 4;
    let engine = host.sim.open();
    for _ in 0..30 {
        dirty(&engine, 10);
        engine.background_round().expect("round");
    }
    let stats = engine.background_writer_stats().counters;
    assert!(stats.buffers_clean > 0, "{stats:?}");
    assert!(stats.maxwritten_clean > 0 && stats.maxwritten_clean <= stats.buffers_clean / 4);
    assert!(stats.buffers_alloc >= 300, "{stats:?}");
}
