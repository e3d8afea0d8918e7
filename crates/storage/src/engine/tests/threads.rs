//! Several threads, with and without the background ones, over a pool that is too small.

use super::toy::{self, add, add_page, begin, commit, read};
use crate::buffer::Persistence;
use crate::engine::testing::Sim;
use crate::engine::{CheckpointKind, Engine, EngineOptions, OpenOutcome, ShutdownMode};
use crate::ids::{Fork, Lsn, PageId, RelId, Xid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PAGES: u32 = 120;

fn filled(engine: &Engine) -> (RelId, Vec<PageId>) {
    let mut tx = begin(engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(engine).expect("xid");
    let ids = (0..PAGES).map(|_| add_page(engine, rel, xid).expect("page")).collect();
    commit(engine, tx).expect("commit");
    (rel, ids)
}

/// Each worker adds 1 to its own counter on pages of its choice; what it knows to be durable is
/// counted.
fn worker(engine: &Engine, ids: &[PageId], slot: u8, steps: u64, durable: &AtomicU64) -> u64 {
    let mut seed = u64::from(slot) * 7919 + 1;
    let mut done = 0;
    for step in 0..steps {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (seed >> 33) as usize % ids.len();
        let other = (seed >> 13) as usize % ids.len();
        let pages = [ids[at], ids[other]];
        let changed = if at == other { 1 } else { 2 };
        let Ok(lsn) = add(engine, Xid::INVALID, &pages, slot, 1) else { break };
        done += changed;
        toy::check(&engine.pool.share(ids[(at + 7) % ids.len()]).expect("share"));
        if step % 16 == 15 {
            if engine.wal.flush(lsn).is_err() {
                break;
            }
            durable.store(done, Ordering::SeqCst);
        }
    }
    done
}

fn total(engine: &Engine, ids: &[PageId], slot: u8) -> u64 {
    ids.iter().map(|id| read(engine, *id, slot)).sum()
}

fn run_workers(sim: &Sim, seed: u64) {
    let engine = sim.open();
    let (_, ids) = filled(&engine);
    let stop = Arc::new(AtomicBool::new(false));
    let checkpointer = {
        let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
                engine.background_round().expect("background round");
                std::thread::sleep(Duration::from_millis(3));
            }
        })
    };
    let durable: Vec<Arc<AtomicU64>> = (0..4).map(|_| Arc::default()).collect();
    let workers: Vec<_> = (0..4u8)
        .map(|slot| {
            let (engine, ids) = (Arc::clone(&engine), ids.clone());
            let durable = Arc::clone(&durable[usize::from(slot)]);
            std::thread::spawn(move || worker(&engine, &ids, slot, 400, &durable))
        })
        .collect();
    // Power failures while they work: each looked at on a copy of the disk.
    for n in 0..3 {
        std::thread::sleep(Duration::from_millis(8));
        let known: Vec<u64> = durable.iter().map(|d| d.load(Ordering::SeqCst)).collect();
        let (_, after) = toy::reopened(sim, seed * 10 + n);
        for slot in 0..4u8 {
            assert!(total(&after, &ids, slot) >= known[usize::from(slot)]);
        }
    }
    let done: Vec<u64> = workers.into_iter().map(|w| w.join().expect("worker")).collect();
    stop.store(true, Ordering::SeqCst);
    checkpointer.join().expect("checkpointer");
    for slot in 0..4u8 {
        assert_eq!(total(&engine, &ids, slot), done[usize::from(slot)]);
    }
    engine.shutdown(ShutdownMode::Fast).expect("shutdown");
    drop(engine);
    let (engine, outcome) = sim.try_open().expect("open");
    assert_eq!(outcome, OpenOutcome::CleanStart);
    for slot in 0..4u8 {
        assert_eq!(total(&engine, &ids, slot), done[usize::from(slot)]);
    }
}

#[test]
fn workers_checkpoints_and_power_failures() {
    for seed in 0..3 {
        run_workers(&toy::sim(seed, 40), seed);
    }
}

#[test]
fn background_threads_make_checkpoints_by_time_and_by_size() {
    let mut sim = toy::sim(9, 64);
    sim.options.background_threads = true;
    sim.options.checkpoint_timeout = Duration::from_secs(3600);
    sim.options.max_wal_size = 1 << 20;
    sim.options.bgwriter_delay = Duration::from_millis(5);
    let engine = sim.open();
    let (_, ids) = filled(&engine);
    let before = engine.checkpoint_count();
    let mut last = Lsn::INVALID;
    for n in 0..20_000u64 {
        last = add(&engine, Xid::INVALID, &ids[(n % 50) as usize..][..2], 0, 1).expect("add");
        if n % 64 == 0 {
            engine.wal.flush(last).expect("flush");
        }
        if engine.checkpoint_count() > before + 1 {
            break;
        }
        if n % 1000 == 999 {
            std::thread::sleep(Duration::from_millis(60));
        }
    }
    assert!(engine.checkpoint_count() > before, "log size alone made a checkpoint");
    engine.wal.flush(last).expect("flush");
    engine.shutdown(ShutdownMode::Immediate).expect("shutdown");
    drop(engine);
    assert!(matches!(sim.try_open().expect("open").1, OpenOutcome::Recovered(_)));
}

fn sim_options() -> EngineOptions {
    toy::sim(0, 16).options
}

#[test]
fn an_engine_that_is_dropped_takes_its_threads_with_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options = EngineOptions {
        shared_buffers_bytes: 1 << 20,
        fsync: false,
        log_sink: Arc::new(|_, _| {}),
        redo: sim_options().redo,
        ..EngineOptions::default()
    };
    for round in 0..3 {
        let (engine, outcome) = Engine::open_dir(dir.path(), options.clone()).expect("open");
        assert_eq!(outcome == OpenOutcome::Created, round == 0);
        let (rel, ids) = filled(&engine);
        add(&engine, Xid::INVALID, &ids[..3], 1, 1).expect("add");
        assert_eq!(engine.pool.block_count(rel, Fork::Main).expect("count"), PAGES);
        drop(engine);
    }
}
