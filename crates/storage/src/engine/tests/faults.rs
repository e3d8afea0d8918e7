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
    sim.disk.inject(Fault::eio(Op::Write).on("base/").forever());
    let mut failed = 0;
    for id in &ids {
        match engine.pool.share(*id) {
            Ok(page) => toy::check(&page),
            Err(StorageError::Io { action, .. }) => {
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
