//! Opening, closing, files and their transactions.

use super::toy::{self, add, add_page, begin, commit, read, reopened};
use crate::buffer::Persistence;
use crate::engine::testing::Sim;
use crate::engine::{
    CheckpointKind, ControlState, Engine, EngineOptions, OpenOutcome, ShutdownMode,
};
use crate::ids::{Fork, PageId, RelId, Xid};
use crate::vfs::sim::Op;
use crate::vfs::{OpenMode, Vfs};
use std::time::Instant;

fn outcome_of(sim: &Sim) -> OpenOutcome {
    let (engine, outcome) = sim.try_open().expect("open");
    drop(engine);
    outcome
}

fn exists(sim: &Sim, rel: RelId) -> bool {
    sim.disk.exists(&format!("base/{rel}"))
}

#[test]
fn created_then_clean_then_recovered() {
    let sim = toy::sim(1, 64);
    let (engine, outcome) = sim.try_open().expect("create");
    assert_eq!(outcome, OpenOutcome::Created);
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let id = add_page(&engine, rel, xid).expect("page");
    add(&engine, xid, &[id], 5, 77).expect("add");
    commit(&engine, tx).expect("commit");
    engine.shutdown(ShutdownMode::Fast).expect("shutdown");
    drop(engine);

    let (engine, outcome) = sim.try_open().expect("open");
    assert_eq!(outcome, OpenOutcome::CleanStart);
    assert_eq!(read(&engine, id, 5), 77);
    assert!(engine.txns.status(xid).commit().is_some());
    assert_eq!(engine.control_data().state, ControlState::InProduction);
    add(&engine, Xid::INVALID, &[id], 5, 1).expect("add");
    engine.wal.flush(engine.wal.inserted()).expect("flush");
    engine.shutdown(ShutdownMode::Immediate).expect("shutdown");
    drop(engine);

    let (engine, outcome) = sim.try_open().expect("open");
    let OpenOutcome::Recovered(stats) = outcome else { panic!("{outcome:?}") };
    assert_eq!((stats.images, stats.changes), (1, 0), "an image after the shutdown checkpoint");
    assert_eq!(read(&engine, id, 5), 78);
    drop(engine);
    assert!(matches!(outcome_of(&sim), OpenOutcome::Recovered(_)), "dropped is not shut down");
}

#[test]
fn an_interrupted_creation_is_made_anew_and_strangers_are_refused() {
    let sim = toy::sim(2, 16);
    drop(sim.open());
    sim.disk.remove("PG_VERSION").expect("remove");
    assert_eq!(outcome_of(&sim), OpenOutcome::Created);

    let (_, engine) = reopened(&sim, 3);
    drop(engine);
    sim.disk.open("base/16999", OpenMode::Create).expect("a relation file");
    sim.disk.remove("PG_VERSION").expect("remove");
    let err = sim.try_open().map(drop).expect_err("relation files without a version");
    assert!(err.to_string().contains("has relation files"), "{err}");

    let stranger = toy::sim(3, 16);
    stranger.disk.open("precious.txt", OpenMode::Create).expect("create");
    let err = stranger.try_open().map(drop).expect_err("not empty");
    assert!(err.to_string().contains("precious.txt"), "{err}");
    let postgres = toy::sim(4, 16);
    let file = postgres.disk.open("PG_VERSION", OpenMode::Create).expect("create");
    file.write_at(b"16\n", 0).expect("write");
    let err = postgres.try_open().map(drop).expect_err("PostgreSQL's");
    assert!(err.to_string().contains("PostgreSQL 16"), "{err}");
}

#[test]
fn creation_can_lose_power_at_any_moment() {
    let calls = {
        let sim = toy::sim(0, 16);
        drop(sim.open());
        println!("syncs of a new directory: {}", sim.disk.calls(Op::Sync));
        assert!(sim.disk.calls(Op::Sync) + sim.disk.calls(Op::SyncDir) <= 16, "few fsyncs");
        [Op::Write, Op::Sync, Op::SyncDir, Op::Open, Op::CreateDir, Op::Allocate, Op::Rename]
            .map(|op| sim.disk.calls(op))
            .iter()
            .sum::<u64>()
    };
    for cut in 0..=calls {
        for seed in 0..4 {
            let sim = toy::sim(cut * 10 + seed, 16);
            sim.disk.power_off_after(cut);
            let finished = sim.try_open().is_ok();
            let after = sim.crash(seed);
            let (engine, outcome) =
                after.try_open().unwrap_or_else(|e| panic!("cut after {cut}, seed {seed}: {e}"));
            assert!(outcome != OpenOutcome::Created || !finished, "cut {cut}, seed {seed}");
            let mut tx = begin(&engine);
            engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
            commit(&engine, tx).expect("commit");
        }
    }
}

#[test]
fn an_empty_relation_survives_whenever_its_checkpoint_came() {
    for seed in 0..20 {
        let sim = toy::sim(seed, 32);
        let engine = sim.open();
        let mut tx = begin(&engine);
        let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
        if seed % 2 == 0 {
            toy::checkpoint(&engine);
        }
        commit(&engine, tx).expect("commit");
        if seed % 4 > 1 {
            toy::checkpoint(&engine);
        }
        let (after, engine) = reopened(&sim, seed);
        assert!(exists(&after, rel), "seed {seed}");
        add_page(&engine, rel, Xid::INVALID).expect("page");
    }
}

#[test]
fn files_follow_their_transaction() {
    let sim = toy::sim(5, 64);
    let engine = sim.open();
    let mut tx = begin(&engine);
    let aborted = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    assert!(exists(&sim, aborted));
    tx.abort(&*engine);
    assert!(!exists(&sim, aborted));

    let mut tx = begin(&engine);
    let kept = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    tx.savepoint("s");
    let undone = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    assert!(tx.rollback_to(&*engine, "s"));
    assert!(exists(&sim, kept) && !exists(&sim, undone));
    commit(&engine, tx).expect("commit");

    let mut tx = begin(&engine);
    engine.drop_rel_at_commit(&mut tx, kept).expect("drop");
    tx.abort(&*engine);
    assert!(exists(&sim, kept), "a drop that was rolled back");
    let mut tx = begin(&engine);
    engine.drop_rel_at_commit(&mut tx, kept).expect("drop");
    assert!(exists(&sim, kept), "not before the commit");
    commit(&engine, tx).expect("commit");
    assert!(!exists(&sim, kept));
    assert!(engine.next_rel_id().expect("id") > undone, "ids are not used twice");
}

#[test]
fn files_of_unfinished_transactions_go_even_when_a_checkpoint_came_between() {
    for checkpoint in [false, true] {
        let sim = toy::sim(6, 64);
        let engine = sim.open();
        let mut tx = begin(&engine);
        let orphan = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
        let xid = tx.xid(&*engine).expect("xid");
        let id = add_page(&engine, orphan, xid).expect("page");
        let mut dropping = begin(&engine);
        let mut made = begin(&engine);
        let dropped = engine.create_rel(&mut made, Persistence::Permanent).expect("create");
        commit(&engine, made).expect("commit");
        engine.drop_rel_at_commit(&mut dropping, dropped).expect("drop");
        // Committed, durable, and then the power goes before the file does.
        if checkpoint {
            toy::checkpoint(&engine);
            add(&engine, xid, &[id], 1, 1).expect("add");
        }
        let outcome = dropping.commit(&*engine, crate::txn::CommitMode::Sync).expect("commit");
        engine.wal.flush(outcome.lsn.expect("wrote")).expect("flush");
        if checkpoint {
            toy::checkpoint(&engine);
        }
        assert!(exists(&sim, orphan) && exists(&sim, dropped));
        for seed in 0..5 {
            let (after, engine) = reopened(&sim, seed);
            assert!(!exists(&after, orphan), "seed {seed}, checkpoint {checkpoint}");
            assert!(!exists(&after, dropped), "seed {seed}, checkpoint {checkpoint}");
            drop(engine);
        }
        std::mem::forget(tx);
    }
}

#[test]
fn replay_passes_over_pages_of_files_dropped_later() {
    let sim = toy::sim(7, 64);
    let engine = sim.open();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let ids: Vec<PageId> = (0..20).map(|_| add_page(&engine, rel, xid).expect("page")).collect();
    commit(&engine, tx).expect("commit");
    toy::checkpoint(&engine);
    // Images first, then plain operations; then the end is cut off, then all goes.
    for _ in 0..2 {
        add(&engine, Xid::INVALID, &ids[..5], 1, 1).expect("add");
    }
    engine.truncate_rel(rel, Fork::Main, 3).expect("truncate");
    add(&engine, Xid::INVALID, &ids[..2], 1, 1).expect("add");
    let mut tx = begin(&engine);
    engine.drop_rel_at_commit(&mut tx, rel).expect("drop");
    commit(&engine, tx).expect("commit");
    for seed in 0..20 {
        let (after, engine) = reopened(&sim, seed);
        assert!(!exists(&after, rel), "seed {seed}");
        drop(engine);
    }
}

#[test]
fn truncation_is_replayed() {
    let sim = toy::sim(8, 64);
    let engine = sim.open();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let ids: Vec<PageId> = (0..10).map(|_| add_page(&engine, rel, xid).expect("page")).collect();
    commit(&engine, tx).expect("commit");
    toy::checkpoint(&engine);
    engine.truncate_rel(rel, Fork::Main, 4).expect("truncate");
    for seed in 0..10 {
        let (_, engine) = reopened(&sim, seed);
        assert_eq!(engine.pool.block_count(rel, Fork::Main).expect("count"), 4, "seed {seed}");
        assert_eq!(read(&engine, ids[3], 0), 0);
        let again = add_page(&engine, rel, Xid::INVALID).expect("page");
        assert_eq!(again.block, 4);
    }
}

#[test]
fn unlogged_relations_are_emptied_by_a_crash_only() {
    let sim = toy::sim(9, 64);
    let engine = sim.open();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Unlogged).expect("create");
    let temp = engine.create_rel(&mut tx, Persistence::Temporary).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let id = add_page(&engine, rel, xid).expect("page");
    engine.keep_as_initial(rel).expect("initial contents");
    let before = engine.wal.inserted();
    add(&engine, xid, &[id], 2, 9).expect("add");
    add_page(&engine, rel, xid).expect("page");
    add_page(&engine, temp, xid).expect("page");
    assert_eq!(engine.wal.inserted(), before, "nothing of it is logged");
    commit(&engine, tx).expect("commit");
    toy::checkpoint(&engine);
    let names = |sim: &Sim| sim.disk.list("base").expect("list");
    assert!(names(&sim).contains(&format!("t{temp}")));
    for seed in 0..8 {
        let (after, engine) = reopened(&sim, seed);
        assert_eq!(engine.pool.persistence(rel), Persistence::Unlogged);
        assert_eq!(engine.pool.block_count(rel, Fork::Main).expect("count"), 1, "seed {seed}");
        assert_eq!(read(&engine, id, 2), 0);
        assert!(!names(&after).contains(&format!("t{temp}")));
    }
    engine.shutdown(ShutdownMode::Fast).expect("shutdown");
    drop(engine);
    for seed in 0..8 {
        let (_, engine) = reopened(&sim, seed);
        assert_eq!(read(&engine, id, 2), 9, "a clean stop keeps it");
        assert_eq!(engine.pool.block_count(rel, Fork::Main).expect("count"), 2);
    }
}

#[test]
fn a_missing_log_is_an_error_not_an_empty_database() {
    let sim = toy::sim(10, 64);
    let engine = sim.open();
    toy::checkpoint(&engine);
    engine.shutdown(ShutdownMode::Fast).expect("shutdown");
    drop(engine);
    for name in sim.disk.list("pg_wal").expect("list") {
        sim.disk.remove(&format!("pg_wal/{name}")).expect("remove");
    }
    let err = sim.try_open().map(drop).expect_err("no log");
    assert!(err.to_string().contains("could not find the checkpoint"), "{err}");
}

#[test]
fn an_idle_timed_checkpoint_does_nothing_and_log_files_go() {
    let sim = toy::sim(11, 64);
    let engine = sim.open();
    toy::checkpoint(&engine);
    let stats = engine.checkpoint(CheckpointKind::Timed).expect("checkpoint");
    assert!(!stats.made);
    let id = {
        let mut tx = begin(&engine);
        let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
        let xid = tx.xid(&*engine).expect("xid");
        let id = add_page(&engine, rel, xid).expect("page");
        commit(&engine, tx).expect("commit");
        id
    };
    for _ in 0..40 {
        // Each checkpoint makes the next change log an image: the log grows fast.
        for _ in 0..2000 {
            add(&engine, Xid::INVALID, &[id], 0, 1).expect("add");
        }
        assert!(engine.checkpoint(CheckpointKind::Timed).expect("checkpoint").made);
    }
    let files = sim.disk.list("pg_wal").expect("list").len();
    assert!(files <= 9, "{files} log files are left");
}

#[test]
fn a_real_directory_is_made_quickly_locked_and_runs_threads() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options = EngineOptions {
        shared_buffers_bytes: 1 << 20,
        log_sink: std::sync::Arc::new(|_, _| {}),
        ..EngineOptions::default()
    };
    let began = Instant::now();
    let (engine, outcome) = Engine::open_dir(dir.path(), options.clone()).expect("open");
    println!("new directory to running: {:?}", began.elapsed());
    assert_eq!(outcome, OpenOutcome::Created);
    let err = Engine::open_dir(dir.path(), options.clone()).map(drop).expect_err("taken");
    assert!(err.to_string().contains("in use by another process"), "{err}");
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let id = add_page(&engine, rel, xid).expect("page");
    commit(&engine, tx).expect("commit");
    engine.shutdown(ShutdownMode::Fast).expect("shutdown");
    drop(engine);
    let (engine, outcome) = Engine::open_dir(dir.path(), options).expect("open");
    assert_eq!(outcome, OpenOutcome::CleanStart);
    assert_eq!(read(&engine, id, 0), 0);
    drop(engine);
}
