//! Tests of sequences through a whole engine: threads, power failures, stops.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::engine::testing::Sim;
use crate::engine::{CheckpointKind, ShutdownMode};
use crate::txn::{CommitMode, IsolationLevel, TxnSession};
use std::collections::BTreeSet;

const UP: SeqParams = SeqParams { increment: 1, min: 1, max: i64::MAX, cycle: false };

fn begin(e: &Arc<Engine>) -> Transaction {
    let session = TxnSession::new(&**e, 1);
    Transaction::begin(&session, IsolationLevel::ReadCommitted, false)
}

fn commit(e: &Arc<Engine>, tx: Transaction) {
    let outcome = tx.commit(&**e, CommitMode::Sync).unwrap();
    e.wal.flush(outcome.lsn.unwrap()).unwrap();
}

fn start(last: i64) -> SeqState {
    SeqState { last, called: false }
}

fn new_sequence(e: &Arc<Engine>, persistence: Persistence, state: SeqState) -> RelId {
    let mut tx = begin(e);
    let rel = e.create_rel(&mut tx, persistence).unwrap();
    create(e, &mut tx, rel, state).unwrap();
    commit(e, tx);
    rel
}

fn one(e: &Engine, rel: RelId, params: &SeqParams) -> Option<i64> {
    next(e, rel, params, 1).unwrap().map(|batch| batch.first)
}

fn sound(e: &Engine, rel: RelId, params: &SeqParams) {
    assert_eq!(check(e, rel, params).unwrap(), Vec::<String>::new());
}

#[test]
fn most_calls_log_nothing() {
    let e = Sim::new(1).open();
    let rel = new_sequence(&e, Persistence::Permanent, start(1));
    let mut logged = Vec::new();
    for n in 1..=100 {
        let before = e.wal.inserted();
        let batch = next(&e, rel, &UP, 1).unwrap().unwrap();
        assert_eq!((batch.first, batch.last), (n, n));
        assert_eq!(batch.logged, e.wal.inserted() > before);
        if batch.logged {
            logged.push(n);
        }
        let view = read(&e, rel).unwrap();
        assert_eq!(view.state, SeqState { last: n, called: true });
        assert_eq!(view.log_cnt, 32 - (n - 1) % 33);
        sound(&e, rel, &UP);
    }
    assert_eq!(logged, [1, 34, 67, 100]);
}

#[test]
fn everybody_who_takes_from_a_batch_learns_what_it_hangs_on() {
    let e = Sim::new(1).open();
    let rel = new_sequence(&e, Persistence::Permanent, start(1));
    let first = next(&e, rel, &UP, 1).unwrap().unwrap();
    assert!(first.logged && first.lsn.is_valid() && first.lsn > e.wal.flushed());
    let second = next(&e, rel, &UP, 1).unwrap().unwrap();
    assert!(!second.logged);
    assert_eq!(second.lsn, first.lsn);
    assert_eq!(read(&e, rel).unwrap().lsn, first.lsn);
}

#[test]
fn limits_stop_and_cycles_begin_again() {
    let e = Sim::new(1).open();
    let up = SeqParams { increment: 3, min: 1, max: 11, cycle: false };
    let rel = new_sequence(&e, Persistence::Permanent, start(2));
    let values: Vec<_> = (0..5).map(|_| one(&e, rel, &up)).collect();
    assert_eq!(values, [Some(2), Some(5), Some(8), Some(11), None]);
    sound(&e, rel, &up);
    let round = SeqParams { cycle: true, ..up };
    let values: Vec<_> = (0..6).filter_map(|_| one(&e, rel, &round)).collect();
    assert_eq!(values, [1, 4, 7, 10, 1, 4]);
    let down = SeqParams { increment: -2, min: i64::MIN, max: -1, cycle: true };
    let rel = new_sequence(&e, Persistence::Permanent, start(i64::MIN + 3));
    let values: Vec<_> = (0..4).filter_map(|_| one(&e, rel, &down)).collect();
    assert_eq!(values, [i64::MIN + 3, i64::MIN + 1, -1, -3]);
    sound(&e, rel, &down);
    let wide = SeqParams { increment: i64::MAX, min: i64::MIN, max: i64::MAX, cycle: false };
    let rel = new_sequence(&e, Persistence::Permanent, start(i64::MIN));
    let values: Vec<_> = (0..4).map(|_| one(&e, rel, &wide)).collect();
    assert_eq!(values, [Some(i64::MIN), Some(-1), Some(i64::MAX - 1), None]);
    sound(&e, rel, &wide);
}

#[test]
fn batches_stop_at_the_limit_and_only_their_first_value_cycles() {
    let e = Sim::new(1).open();
    let params = SeqParams { increment: 1, min: 1, max: 25, cycle: true };
    let rel = new_sequence(&e, Persistence::Permanent, start(1));
    let mut batches = Vec::new();
    for _ in 0..4 {
        let batch = next(&e, rel, &params, 10).unwrap().unwrap();
        batches.push((batch.first, batch.last));
        sound(&e, rel, &params);
    }
    assert_eq!(batches, [(1, 10), (11, 20), (21, 25), (1, 10)]);
}

#[test]
fn set_is_where_it_goes_on_and_a_rollback_gives_nothing_back() {
    let e = Sim::new(1).open();
    let rel = new_sequence(&e, Persistence::Permanent, start(1));
    let tx = begin(&e);
    assert_eq!(one(&e, rel, &UP), Some(1));
    tx.abort(&*e);
    assert_eq!(one(&e, rel, &UP), Some(2));
    let lsn = set(&e, rel, SeqState { last: 50, called: true }).unwrap();
    assert_eq!(lsn, e.wal.inserted());
    assert_eq!(one(&e, rel, &UP), Some(51));
    set(&e, rel, start(7)).unwrap();
    assert_eq!(read(&e, rel).unwrap().log_cnt, 0);
    assert_eq!((one(&e, rel, &UP), one(&e, rel, &UP)), (Some(7), Some(8)));
}

#[test]
fn many_threads_get_every_value_once() {
    const THREADS: usize = 8;
    const EACH: i64 = 500;
    for count in [1, 7, 40] {
        let e = Sim::new(1).open();
        let rel = new_sequence(&e, Persistence::Permanent, start(1));
        let take = |_| {
            let mut mine = Vec::new();
            for _ in 0..EACH {
                let batch = next(&e, rel, &UP, count).unwrap().unwrap();
                assert_eq!(batch.last - batch.first, count - 1);
                assert!(batch.lsn.is_valid());
                mine.extend(batch.first..=batch.last);
            }
            assert!(mine.is_sorted_by(|a, b| a < b), "one thread's values ascend");
            mine
        };
        let all: Vec<i64> = std::thread::scope(|scope| {
            let take = &take;
            let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || take(t))).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        let found: BTreeSet<i64> = all.iter().copied().collect();
        assert_eq!(found.len(), all.len(), "a value was given twice");
        // None was left out either: what is lost, a crash loses.
        assert!(found.into_iter().eq(1..=(THREADS as i64 * EACH * count)));
        sound(&e, rel, &UP);
    }
}

/// What somebody was told: a value, and what had been set before.
struct Told {
    /// The highest value told since the last durable `set`.
    highest: i64,
    /// Set, but perhaps not durable when the power went.
    perhaps: Vec<i64>,
}

/// Takes values and tells them as a session does, until the power goes.
fn live(e: &Arc<Engine>, rel: RelId, seed: u64, told: &mut Told) {
    let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut roll = |n: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % n
    };
    for _ in 0..200 {
        match roll(30) {
            0 if e.checkpoint(CheckpointKind::Immediate).is_err() => return,
            0 => {}
            1 => {
                let value = told.highest + roll(100) as i64 - 20;
                let value = value.max(1);
                told.perhaps.push(value);
                let Ok(lsn) = set(e, rel, SeqState { last: value, called: true }) else { return };
                if e.wal.flush(lsn).is_err() {
                    return;
                }
                told.highest = value;
                told.perhaps.clear();
            }
            n => {
                let count = if n < 5 { 40 } else { 1 };
                let Ok(batch) = next(e, rel, &UP, count) else { return };
                let batch = batch.unwrap();
                assert!(batch.first > told.highest, "{} was told already", batch.first);
                if e.wal.flush(batch.lsn).is_err() {
                    return;
                }
                told.highest = batch.last;
            }
        }
    }
}

#[test]
fn values_told_are_never_told_again() {
    for seed in 0..60 {
        let mut sim = Sim::new(seed);
        let mut e = sim.open();
        let rel = new_sequence(&e, Persistence::Permanent, start(1));
        let mut told = Told { highest: 0, perhaps: Vec::new() };
        for life in 0..5 {
            sim.disk.power_off_after(10 + (seed * 7 + life * 31) % 120);
            live(&e, rel, seed * 10 + life, &mut told);
            drop(e);
            sim = sim.crash(seed * 100 + life);
            e = sim.open();
            sound(&e, rel, &UP);
            let at = read(&e, rel).unwrap().state.last;
            // A set whose record made it to the disk by chance is followed, too.
            let floor = told.perhaps.iter().copied().fold(told.highest, i64::min);
            assert!(at >= floor, "seed {seed}: {} was told, but resumes at {at}", told.highest);
            if !told.perhaps.is_empty() {
                told.highest = at;
                told.perhaps.clear();
            }
            let again = one(&e, rel, &UP).unwrap();
            assert!(again > told.highest, "seed {seed}: {again} was told before the crash");
            told.highest = again;
        }
    }
}

#[test]
fn a_crash_skips_what_was_logged_ahead_and_a_clean_stop_nothing() {
    let sim = Sim::new(3);
    let e = sim.open();
    let rel = new_sequence(&e, Persistence::Permanent, start(1));
    let batch = next(&e, rel, &UP, 1).unwrap().unwrap();
    e.wal.flush(batch.lsn).unwrap();
    drop(e);
    let sim = sim.crash(1);
    let e = sim.open();
    assert_eq!(one(&e, rel, &UP), Some(34));
    e.shutdown(ShutdownMode::Fast).unwrap();
    drop(e);
    let e = sim.open();
    assert_eq!(read(&e, rel).unwrap().state, SeqState { last: 34, called: true });
    sound(&e, rel, &UP);
    assert_eq!(one(&e, rel, &UP), Some(35));
}

#[test]
fn an_unlogged_sequence_starts_again_after_a_crash_only() {
    let sim = Sim::new(4);
    let e = sim.open();
    let rel = new_sequence(&e, Persistence::Unlogged, start(10));
    let before = e.wal.inserted();
    for n in 10..100 {
        let batch = next(&e, rel, &UP, 1).unwrap().unwrap();
        assert_eq!(batch.first, n);
        assert!(!batch.lsn.is_valid(), "nothing to wait for");
    }
    assert_eq!(e.wal.inserted(), before, "nothing is logged");
    e.checkpoint(CheckpointKind::Immediate).unwrap();
    e.shutdown(ShutdownMode::Fast).unwrap();
    drop(e);
    let e = sim.open();
    assert_eq!(one(&e, rel, &UP), Some(100));
    e.checkpoint(CheckpointKind::Immediate).unwrap();
    drop(e);
    let e = sim.crash(5).open();
    assert_eq!(read(&e, rel).unwrap().state, start(10));
    assert_eq!(one(&e, rel, &UP), Some(10));
    sound(&e, rel, &UP);
}

#[test]
fn a_page_that_is_none_is_an_error() {
    let sim = Sim::new(6);
    let e = sim.open();
    let rel = new_sequence(&e, Persistence::Permanent, start(1));
    assert_eq!(one(&e, rel, &UP), Some(1));
    let mut tx = begin(&e);
    let empty = e.create_rel(&mut tx, Persistence::Permanent).unwrap();
    assert!(next(&e, empty, &UP, 1).is_err());
    assert_eq!(check(&e, empty, &UP).unwrap().len(), 1);
    drop(e.pool.extend(empty, Fork::Main).unwrap());
    assert!(matches!(next(&e, empty, &UP, 1), Err(StorageError::Corrupt { .. })));
    assert_eq!(check(&e, empty, &UP).unwrap().len(), 1);
    tx.abort(&*e);
    assert_eq!(one(&e, rel, &UP), Some(2));
    let small = SeqParams { max: 1, ..UP };
    assert!(!check(&e, rel, &small).unwrap().is_empty(), "beyond its limit");
}
