//! Calls that fail: full disks, I/O errors, failed fsyncs. Nothing crashes, nothing is lost.

use super::toy::{self, add, add_page, begin, checkpoint, commit, read};
use crate::buffer::Persistence;
use crate::engine::testing::Sim;
use crate::engine::{CheckpointKind, Engine, OpenOutcome, ShutdownMode};
use crate::error::StorageError;
use crate::ids::{Fork, PageId, RelId, Xid};
use crate::vfs::Fault;
use crate::vfs::sim::Op;
use std::sync::Arc;

fn with_pages(seed: u64, frames: usize, pages: u32) -> (Sim, Arc<Engine>, RelId, Vec<PageId>) {
    let sim = toy::sim(seed, frames);
    let engine = sim.open();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let ids = (0..pages).map(|_| add_page(&engine, rel, xid).expect("page")).collect();
    commit(&engine, tx).expect("commit");
    (sim, engine, rel, ids)
}

#[test]
fn a_full_disk_shows_when_a_relation_grows_and_passes() {
    let (sim, engine, rel, ids) = with_pages(1, 64, 4);
    checkpoint(&engine);
    sim.disk.set_capacity(Some(sim.disk.used()));
    let mut grown = 0;
    let err = loop {
        match add_page(&engine, rel, Xid::INVALID) {
            Ok(_) => grown += 1,
            Err(e) => break e,
        }
        assert!(grown < 10_000, "the disk has no end");
    };
    assert!(matches!(err, StorageError::DiskFull { .. }), "{err}");
    assert_eq!(engine.pool.block_count(rel, Fork::Main).expect("count"), 4 + grown);
    assert_eq!(read(&engine, ids[0], 0), 0, "reading goes on");
    sim.disk.set_capacity(None);
    add_page(&engine, rel, Xid::INVALID).expect("there is room again");
    checkpoint(&engine);
}

#[test]
fn every_failing_call_of_a_checkpoint_leaves_the_previous_one_in_force() {
    for op in [Op::Write, Op::Sync, Op::Open, Op::Rename, Op::Remove, Op::Allocate] {
        for nth in 1..=12 {
            let (sim, engine, _, ids) = with_pages(2, 64, 6);
            checkpoint(&engine);
            for slot in 0..3 {
                add(&engine, Xid::INVALID, &ids, slot, 5).expect("add");
            }
            engine.wal.flush(engine.wal.inserted()).expect("flush");
            let fault = if op == Op::Sync { Fault::eio(op) } else { Fault::enospc(op) };
            sim.disk.inject(fault.nth(nth));
            let outcome = engine.checkpoint(CheckpointKind::Immediate);
            sim.disk.clear_faults();
            let what = format!("{op:?} {nth}: {outcome:?}");
            if outcome.is_err() && engine.check_health().is_ok() {
                checkpoint(&engine);
            }
            for id in &ids {
                assert_eq!(read(&engine, *id, 2), 5, "{what}");
            }
            for seed in 0..3 {
                let (_, engine) = toy::reopened(&sim, seed);
                for id in &ids {
                    assert_eq!(read(&engine, *id, 2), 5, "after a crash, {what}");
                }
            }
        }
    }
}

#[test]
fn a_failed_fsync_of_data_is_remembered() {
    let (sim, engine, rel, ids) = with_pages(3, 64, 6);
    checkpoint(&engine);
    add(&engine, Xid::INVALID, &ids, 1, 5).expect("add");
    sim.disk.inject(Fault::eio(Op::Sync).on("base/"));
    let err = engine.checkpoint(CheckpointKind::Immediate).expect_err("fsync fails");
    assert!(matches!(err, StorageError::Poisoned { .. }), "{err}");
    sim.disk.clear_faults();
    let again =
        engine.checkpoint(CheckpointKind::Immediate).expect_err("no later success hides it");
    assert_eq!(err.to_string(), again.to_string());
    assert!(engine.check_health().is_err());
    assert_eq!(read(&engine, ids[0], 1), 5, "what is in memory is right");
    engine.pool.drop_rel_buffers(rel);
    assert!(engine.pool.share(ids[0]).is_err(), "what is on disk is not believed");
    assert!(engine.shutdown(ShutdownMode::Fast).is_err());
    drop(engine);
    for seed in 0..6 {
        let (_, engine) = toy::reopened(&sim, seed);
        assert_eq!(read(&engine, ids[0], 1), 5, "a restart replays the log");
    }
}

#[test]
fn a_failed_write_of_a_victim_is_somebody_elses_error_only_when_there_is_no_other() {
    let (sim, engine, _, ids) = with_pages(4, 16, 60);
    sim.disk.inject(Fault::enospc(Op::Write).on("base/").forever());
    let mut failed = 0;
    for id in &ids {
        match engine.pool.share(*id) {
            Ok(page) => toy::check(&page),
            Err(StorageError::DiskFull { action, .. }) => {
                assert_eq!(action, "write file");
                failed += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(failed > 0, "most frames are dirty");
    sim.disk.clear_faults();
    for id in &ids {
        assert_eq!(read(&engine, *id, 0), 0);
    }
    checkpoint(&engine);
}

/// One thing that fails once, for good, and what has to be done for the engine to meet it.
fn final_failures() -> Vec<(&'static str, Fault)> {
    let sync = || Fault::eio(Op::Sync);
    vec![
        ("fsync of the log", sync().on("pg_wal/0")),
        ("fsync of the log on a full disk", Fault::enospc(Op::Sync).on("pg_wal/0")),
        ("write to the log", Fault::eio(Op::Write).on("pg_wal/0")),
        ("fsync of data", sync().on("base/")),
        ("fsync of data on a full disk", Fault::enospc(Op::Sync).on("base/")),
        ("write of data", Fault::eio(Op::Write).on("base/")),
        ("fsync of names", Fault::eio(Op::SyncDir).on("base")),
        ("fsync of the commit log", sync().on("pg_xact/")),
        ("write to the commit log", Fault::eio(Op::Write).on("pg_xact/")),
        ("fsync of the control file", sync().on("pg_control")),
        ("write to the control file", Fault::eio(Op::Write).on("pg_control")),
    ]
}

#[test]
fn after_a_final_failure_no_commit_is_accepted_until_a_restart() {
    for (what, fault) in final_failures() {
        let (sim, engine, rel, ids) = with_pages(7, 64, 6);
        checkpoint(&engine);
        let mut tx = begin(&engine);
        let xid = tx.xid(&*engine).expect("xid");
        add(&engine, xid, &ids, 1, 5).expect("add");
        commit(&engine, tx).expect("acknowledged");
        // Begun before the failure, to be committed after it.
        let mut late = begin(&engine);
        let xid = late.xid(&*engine).expect("xid");
        add(&engine, xid, &ids, 2, 9).expect("add");
        sim.disk.inject(fault);
        let err = engine.checkpoint(CheckpointKind::Immediate).expect_err(what);
        assert!(matches!(err, StorageError::Poisoned { .. }), "{what}: {err:?}");
        assert!(!err.to_string().contains("os error"), "{err}");
        sim.disk.clear_faults();
        let refused = commit(&engine, late).expect_err(what);
        assert_eq!(refused.to_string(), err.to_string(), "{what}: the first failure is told");
        let mut tx = begin(&engine);
        let refused = match tx.xid(&*engine).and_then(|xid| add(&engine, xid, &ids, 3, 1)) {
            Err(e) => e,
            Ok(_) => commit(&engine, tx).expect_err(what),
        };
        assert!(matches!(refused, StorageError::Poisoned { .. }), "{what}: {refused}");
        assert!(engine.check_health().is_err(), "{what}");
        assert!(engine.checkpoint(CheckpointKind::Immediate).is_err(), "{what}");
        assert_eq!(read(&engine, ids[0], 1), 5, "{what}: reading goes on");
        assert!(engine.shutdown(ShutdownMode::Fast).is_err(), "{what}");
        drop(engine);
        for seed in 0..6 {
            let (_, engine) = toy::reopened(&sim, seed);
            assert_eq!(read(&engine, ids[0], 1), 5, "{what}: acknowledged before");
            let mut tx = begin(&engine);
            let xid = tx.xid(&*engine).expect("xid");
            add_page(&engine, rel, xid).expect("page");
            commit(&engine, tx).expect("the new start accepts commits");
        }
    }
}

#[test]
fn a_failure_is_told_once_and_a_shortage_when_it_begins_and_ends() {
    let mut sim = toy::sim(8, 64);
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    sim.options.log_sink = Arc::new(move |level, text: &str| {
        if level >= crate::engine::LogLevel::Log {
            sink.lock().push(text.to_owned());
        }
    });
    let engine = sim.open();
    let mut tx = begin(&engine);
    let xid = tx.xid(&*engine).expect("xid");
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    add_page(&engine, rel, xid).expect("page");
    sim.disk.inject(Fault::enospc(Op::Write).on("pg_wal/0").times(3));
    let lsn = tx
        .commit(&*engine, crate::txn::CommitMode::Async { max_loss_micros: 10 })
        .expect("asynchronous")
        .lsn
        .expect("written");
    for _ in 0..6 {
        sim.clock.advance(100_000);
        let _full = engine.wal.run_writer_once();
    }
    assert_eq!(engine.wal.flushed(), lsn, "there is space again");
    sim.disk.inject(Fault::eio(Op::Sync).on("base/").forever());
    for _ in 0..3 {
        engine.checkpoint(CheckpointKind::Immediate).expect_err("fsync fails");
    }
    let told = told.lock();
    let count = |part: &str| told.iter().filter(|t| t.contains(part)).count();
    assert_eq!(count("No space left on device; commits wait until there is space"), 1, "{told:?}");
    assert_eq!(count("the write-ahead log can be written again"), 1, "{told:?}");
    assert_eq!(count("could not fsync file \"base/"), 1, "{told:?}");
    assert_eq!(count("no commit is accepted until the server is restarted"), 1, "{told:?}");
}

#[test]
fn a_cut_that_was_logged_and_failed_is_followed_by_no_change() {
    for op in [Op::SetLen, Op::Sync] {
        let (sim, engine, rel, ids) = with_pages(9, 64, 6);
        checkpoint(&engine);
        let on = if op == Op::Sync { "pg_wal/0" } else { "base/" };
        sim.disk.inject(Fault::eio(op).on(on));
        engine.truncate_rel(rel, Fork::Main, 3).expect_err("the cut fails");
        sim.disk.clear_faults();
        // A change of a page that replay will have cut off would be damage to it.
        add(&engine, Xid::INVALID, &ids[4..5], 1, 1).expect_err("refused");
        for seed in 0..4 {
            let (_, engine) = toy::reopened(&sim, seed);
            let blocks = engine.pool.block_count(rel, Fork::Main).expect("count");
            assert!(blocks == 3 || op == Op::Sync && blocks == 6, "{op:?}: {blocks}");
        }
    }
}

#[test]
fn every_failing_call_of_a_start_is_an_error_and_the_next_start_works() {
    for op in [
        Op::Open,
        Op::Write,
        Op::Sync,
        Op::Read,
        Op::Allocate,
        Op::SyncDir,
        Op::CreateDir,
        Op::List,
    ] {
        for nth in 1..=10 {
            let sim = toy::sim(5, 32);
            sim.disk.inject(Fault::eio(op).nth(nth));
            let first = sim.try_open().map(drop);
            sim.disk.clear_faults();
            let (engine, _) = sim
                .try_open()
                .unwrap_or_else(|e| panic!("creation after {op:?} {nth} ({first:?}): {e}"));
            let mut tx = begin(&engine);
            let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
            let xid = tx.xid(&*engine).expect("xid");
            let id = add_page(&engine, rel, xid).expect("page");
            add(&engine, xid, &[id], 3, 4).expect("add");
            commit(&engine, tx).expect("commit");
            drop(engine);
            sim.disk.inject(Fault::eio(op).nth(nth));
            let second = sim.try_open().map(drop);
            sim.disk.clear_faults();
            let (engine, outcome) = sim
                .try_open()
                .unwrap_or_else(|e| panic!("recovery after {op:?} {nth} ({second:?}): {e}"));
            assert!(matches!(outcome, OpenOutcome::Recovered(_)));
            assert_eq!(read(&engine, id, 3), 4, "{op:?} {nth}");
        }
    }
}

#[test]
fn creating_and_dropping_files_survives_every_failing_call() {
    for op in [Op::Open, Op::SetLen, Op::Remove, Op::Write, Op::Allocate] {
        for nth in 1..=4 {
            let (sim, engine, _, _) = with_pages(6, 32, 2);
            sim.disk.inject(Fault::enospc(op).nth(nth));
            let mut tx = begin(&engine);
            let made = engine.create_rel(&mut tx, Persistence::Permanent);
            if let Ok(rel) = made {
                let _ = add_page(&engine, rel, Xid::INVALID);
                let _ = engine.drop_rel_at_commit(&mut tx, rel);
            }
            tx.abort(&*engine);
            sim.disk.clear_faults();
            // A file whose record is lost with the end of the log may stay (semantics 54).
            engine.wal.flush(engine.wal.inserted()).expect("flush");
            let (after, engine) = toy::reopened(&sim, nth);
            let files = crate::vfs::Vfs::list(&after.disk, "base").expect("list");
            assert_eq!(files.len(), 1, "{op:?} {nth}: {files:?}");
            drop(engine);
        }
    }
}
