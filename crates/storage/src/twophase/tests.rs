//! Prepared transactions below SQL: what survives what.

use super::*;
use crate::buffer::Persistence;
use crate::engine::testing::{self, Sim};
use crate::engine::{CheckpointKind, OpenOutcome, ShutdownMode};
use crate::heap::{
    self, HeapRel, InsertOpts, PageScan, ReadCx, RowLock, TupleBody, TupleResult, UpdateOpts,
    VacuumOpts, VisState,
};
use crate::ids::{Fork, RowId};
use crate::lock::{AdvisoryKey, LockMode, LockScope, LockTag};
use crate::txn::{CommitMode, IsolationLevel, XidStatus};

const TABLE: LockTag = LockTag::Relation(77);

fn sim(seed: u64) -> Sim {
    let mut sim = Sim::new(seed);
    sim.options.max_prepared_transactions = 4;
    sim
}

fn begin(e: &Engine) -> Transaction {
    Transaction::begin(&TxnSession::new(e, 7), IsolationLevel::ReadCommitted, false)
}

fn commit(e: &Engine, tx: Transaction) {
    let _ = tx.commit(e, CommitMode::Sync).expect("commit");
    e.wal.flush(e.wal.inserted()).expect("flush");
}

fn table(e: &Engine) -> HeapRel {
    let mut tx = begin(e);
    let rel = e.create_rel(&mut tx, Persistence::Permanent).expect("create");
    commit(e, tx);
    HeapRel::new(rel)
}

fn body(data: &[u8]) -> TupleBody<'_> {
    TupleBody { natts: 1, nulls: &[], data, has_external: false }
}

fn insert(e: &Engine, tx: &mut Transaction, h: &HeapRel, data: &[u8]) -> RowId {
    heap::insert(e, tx, h, &body(data), InsertOpts::default()).expect("insert")
}

fn update(e: &Engine, tx: &mut Transaction, h: &HeapRel, row: RowId, hot_ok: bool) -> RowId {
    let opts = UpdateOpts { hot_ok, key_change: false };
    match heap::update(e, tx, h, row, &body(b"newer"), opts).expect("update") {
        TupleResult::Ok((row, _)) => row,
        other => panic!("not updated: {other:?}"),
    }
}

fn rows(e: &Engine, h: &HeapRel) -> Vec<String> {
    let mut tx = begin(e);
    let snapshot = tx.statement_snapshot();
    let state = VisState::new(e);
    let cx = ReadCx::new(e, &tx, snapshot, &state);
    let mut scan = PageScan::new();
    let mut all = Vec::new();
    for block in 0..e.pool.block_count(h.rel, Fork::Main).expect("blocks") {
        heap::scan_page(e, &cx, h, block, &mut scan).expect("scan");
        for at in 0..scan.len() {
            all.push(String::from_utf8_lossy(scan.tuple(at).expect("tuple").data()).into_owned());
        }
    }
    all.sort();
    all
}

fn prepare(e: &Engine, tx: Transaction, name: &str) -> Result<Lsn, TwoPhaseError> {
    e.prepare(tx, &PrepareRequest { name, role: 10, defines: false })
}

fn prepared(e: &Engine, tx: Transaction, name: &str) {
    let lsn = prepare(e, tx, name).expect("prepared");
    e.wal.flush(lsn).expect("flush");
}

fn names(e: &Engine) -> Vec<String> {
    e.prepared_transactions().into_iter().map(|p| p.name).collect()
}

fn commit_prepared(e: &Engine, name: &str) {
    let ended = e.commit_prepared(name, |_| true, |_| ()).expect("committed").expect("allowed");
    e.wal.flush(ended.lsn).expect("flush");
    e.remove_rels(&ended.unlinks);
}

fn rollback_prepared(e: &Engine, name: &str) {
    let ended = e.rollback_prepared(name, |_| true).expect("rolled back").expect("allowed");
    e.remove_rels(&ended.unlinks);
}

#[test]
fn a_prepared_transaction_survives_crashes_with_its_rows_and_locks() {
    for how in 0..3 {
        let mut sim = sim(1);
        let e = sim.open();
        let h = table(&e);
        let mut tx = begin(&e);
        insert(&e, &mut tx, &h, b"top");
        tx.savepoint("s");
        insert(&e, &mut tx, &h, b"lost");
        assert!(tx.rollback_to(&*e, "s"));
        insert(&e, &mut tx, &h, b"child");
        let key = LockTag::Advisory(AdvisoryKey::Two(-1, 5));
        for (tag, mode) in [(TABLE, LockMode::RowExclusive), (key, LockMode::Exclusive)] {
            assert!(e.locks.acquire(tx.lock_owner(), tag, mode).is_granted());
        }
        let xid = tx.top_xid().expect("it wrote");
        prepared(&e, tx, "x");
        if how > 0 {
            e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
        }
        if how > 1 {
            // Its record lies before two redo points.
            commit(&e, begin(&e));
            e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
        }
        drop(e);
        for seed in 0..3 {
            sim = sim.crash(seed);
            let e = sim.open();
            assert_eq!(names(&e), ["x"], "{how} {seed}");
            assert_eq!(e.txns.status(xid), XidStatus::InProgress);
            assert!(rows(&e, &h).is_empty());
            let other = begin(&e);
            assert!(!e.locks.try_acquire(other.lock_owner(), TABLE, LockMode::Share));
            assert!(e.locks.try_acquire(other.lock_owner(), TABLE, LockMode::RowShare));
            assert!(!e.locks.try_acquire(other.lock_owner(), key, LockMode::Share));
        }
        for commits in [true, false] {
            let sim = sim.crash(9);
            let e = sim.open();
            match commits {
                true => commit_prepared(&e, "x"),
                false => rollback_prepared(&e, "x"),
            }
            let expected: &[&str] = if commits { &["child", "top"] } else { &[] };
            assert_eq!(rows(&e, &h), expected);
            let other = begin(&e);
            assert!(e.locks.try_acquire(other.lock_owner(), TABLE, LockMode::AccessExclusive));
            drop((other, e));
            let e = sim.crash(10).open();
            assert!(names(&e).is_empty());
            assert_eq!(rows(&e, &h), expected, "{how}");
        }
    }
}

/// A clean stop is a checkpoint like any other, and a clean start.
#[test]
fn a_clean_stop_keeps_what_is_prepared() {
    let sim = sim(2);
    let e = sim.open();
    let h = table(&e);
    let mut tx = begin(&e);
    insert(&e, &mut tx, &h, b"kept");
    prepared(&e, tx, "x");
    e.shutdown(ShutdownMode::Fast).expect("stopped");
    drop(e);
    let (e, outcome) = sim.try_open().expect("opened");
    assert_eq!(outcome, OpenOutcome::CleanStart);
    commit_prepared(&e, "x");
    assert_eq!(rows(&e, &h), ["kept"]);
}

/// Files follow their transaction, whichever way it ends and whatever happens in between.
#[test]
fn files_wait_for_the_second_phase() {
    for commits in [true, false] {
        let mut sim = sim(3);
        let e = sim.open();
        let old = table(&e);
        let mut tx = begin(&e);
        let made = e.create_rel(&mut tx, Persistence::Permanent).expect("create");
        e.drop_rel_at_commit(&mut tx, old.rel).expect("drop");
        prepared(&e, tx, "x");
        drop(e);
        for _ in 0..2 {
            sim = sim.crash(4);
            let e = sim.open();
            assert!(e.pool.rel_exists(made) && e.pool.rel_exists(old.rel));
            e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
        }
        sim = sim.crash(5);
        let e = sim.open();
        match commits {
            true => commit_prepared(&e, "x"),
            false => rollback_prepared(&e, "x"),
        }
        for e in [e, sim.crash(6).open()] {
            assert_eq!(e.pool.rel_exists(made), commits);
            assert_eq!(e.pool.rel_exists(old.rel), !commits);
        }
    }
}

/// Files whose removal was cut short, by an error or a crash, go with the next start.
#[test]
fn files_of_a_rollback_are_orphans_until_they_are_gone() {
    let sim = sim(11);
    let e = sim.open();
    let mut tx = begin(&e);
    let made = e.create_rel(&mut tx, Persistence::Permanent).expect("create");
    prepared(&e, tx, "x");
    drop(e);
    let sim = sim.crash(1);
    let e = sim.open();
    let _not_removed = e.rollback_prepared("x", |_| true).expect("rolled back");
    e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    assert!(e.pool.rel_exists(made));
    drop(e);
    assert!(!sim.crash(2).open().pool.rel_exists(made));
}

/// A rollback that the log does not have yet has not happened: neither for readers, whose hints
/// could reach the disk, nor for its files.
#[test]
fn a_rollback_is_durable_before_anybody_acts_upon_it() {
    let sim = sim(4);
    let e = sim.open();
    let h = table(&e);
    let mut tx = begin(&e);
    insert(&e, &mut tx, &h, b"row");
    prepared(&e, tx, "x");
    rollback_prepared(&e, "x");
    assert!(e.wal.flushed() >= e.wal.inserted(), "the abort record is durable");
    // The hint that it left goes to the disk with the page.
    assert!(rows(&e, &h).is_empty());
    e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    let e = sim.crash(1).open();
    assert!(names(&e).is_empty());
}

/// A prepared transaction's shared lock on a row holds for every later version of the row, also
/// when the first one's page was cleaned and its place could be another row's.
#[test]
fn shared_row_locks_follow_their_row_over_restarts() {
    for hot_ok in [true, false] {
        let mut sim = sim(5);
        let e = sim.open();
        let h = table(&e);
        let mut tx = begin(&e);
        let mut row = insert(&e, &mut tx, &h, b"row");
        commit(&e, tx);
        let mut tx = begin(&e);
        assert_eq!(
            heap::lock_row(&e, &mut tx, &h, row, RowLock::KeyShare).expect("lock"),
            TupleResult::Ok(())
        );
        // Its first version is another's place before it is even prepared.
        let mut other = begin(&e);
        row = update(&e, &mut other, &h, row, hot_ok);
        commit(&e, other);
        prepared(&e, tx, "x");
        vacuum(&e, &h);
        let mut tx = begin(&e);
        let stranger = insert(&e, &mut tx, &h, b"row");
        commit(&e, tx);
        drop(e);
        for round in 0..6 {
            sim = sim.crash(round);
            let e = sim.open();
            if round == 0 {
                let mut tx = begin(&e);
                let free = heap::delete(&e, &mut tx, &h, stranger).expect("delete");
                assert_eq!(free, TupleResult::Ok(()), "a stranger is locked");
                commit(&e, tx);
            }
            for _ in 0..3 {
                let mut tx = begin(&e);
                row = update(&e, &mut tx, &h, row, hot_ok);
                commit(&e, tx);
                vacuum(&e, &h);
                // Takes a place that a pruned version may have left.
                let mut tx = begin(&e);
                let other = insert(&e, &mut tx, &h, b"row");
                commit(&e, tx);
                let mut tx = begin(&e);
                let free = heap::delete(&e, &mut tx, &h, other).expect("delete");
                assert_eq!(free, TupleResult::Ok(()), "round {round}: a stranger is locked");
                commit(&e, tx);
                vacuum(&e, &h);
            }
            let mut tx = begin(&e);
            let verdict = heap::delete(&e, &mut tx, &h, row).expect("delete");
            assert!(matches!(verdict, TupleResult::BeingModified(_)), "round {round}: {verdict:?}");
            if round == 4 {
                e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
            }
            tx.abort(&*e);
            match round % 2 {
                0 => e.wal.flush(e.wal.inserted()).expect("flush"),
                // Then no recovery writes the new addresses down.
                _ => e.shutdown(ShutdownMode::Fast).expect("stopped"),
            }
        }
        let e = sim.crash(9).open();
        commit_prepared(&e, "x");
        let mut tx = begin(&e);
        let verdict = heap::delete(&e, &mut tx, &h, row).expect("delete");
        assert_eq!(verdict, TupleResult::Ok(()));
    }
}

fn vacuum(e: &Engine, h: &HeapRel) {
    let opts = VacuumOpts::default();
    heap::vacuum(e, h, opts, &mut |_| Ok(()), &mut |_| Ok(())).expect("vacuum");
}

/// Only locked rows make a prepared transaction hold the horizon.
#[test]
fn a_prepared_transaction_without_row_locks_holds_no_horizon() {
    let sim = sim(6);
    let e = sim.open();
    let h = table(&e);
    let mut tx = begin(&e);
    let row = insert(&e, &mut tx, &h, b"row");
    commit(&e, tx);
    let mut tx = begin(&e);
    insert(&e, &mut tx, &h, b"new");
    prepared(&e, tx, "writes");
    commit_something(&e, &h);
    assert_eq!(e.txns.horizon(), e.txns.published());
    let mut tx = begin(&e);
    let locked = heap::lock_row(&e, &mut tx, &h, row, RowLock::Share).expect("lock");
    assert_eq!(locked, TupleResult::Ok(()));
    prepared(&e, tx, "locks");
    let held = e.txns.horizon();
    commit_something(&e, &h);
    assert_eq!(e.txns.horizon(), held);
    rollback_prepared(&e, "locks");
    assert_eq!(e.txns.horizon(), e.txns.published());
}

fn commit_something(e: &Engine, h: &HeapRel) {
    let mut tx = begin(e);
    insert(e, &mut tx, h, b"other");
    commit(e, tx);
}

#[test]
fn names_are_taken_and_bounded() {
    let sim = sim(7);
    let e = sim.open();
    for name in ["a", "b", "c", "d"] {
        prepared(&e, begin(&e), name);
    }
    assert!(matches!(prepare(&e, begin(&e), "a"), Err(TwoPhaseError::InUse)));
    assert!(matches!(prepare(&e, begin(&e), "e"), Err(TwoPhaseError::Full(4))));
    let unknown = e.commit_prepared("e", |_| true, |_| ());
    assert!(matches!(unknown, Err(TwoPhaseError::Unknown)));
    assert!(e.rollback_prepared("a", |state| state.role != 10).expect("asked").is_none());
    commit_prepared(&e, "a");
    prepared(&e, begin(&e), "a");
    drop(e);
    // A start with fewer allowed than there are is refused, and changes nothing.
    let mut sim = sim.crash(1);
    sim.options.max_prepared_transactions = 3;
    let refused = sim.try_open().map(|_| ()).expect_err("too many");
    assert!(matches!(refused, StorageError::Resource { .. }), "{refused}");
    sim.options.max_prepared_transactions = 4;
    assert_eq!(names(&sim.open()), ["a", "b", "c", "d"]);
}

/// The locks go over in one step: a strong request never finds the table free.
#[test]
fn locks_of_the_session_stay_with_it() {
    let sim = sim(8);
    let e = sim.open();
    let session = TxnSession::new(&*e, 7);
    let tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
    let key = LockTag::Advisory(AdvisoryKey::One(-9));
    let locks = &e.locks;
    assert!(
        locks.acquire_for(session.owner(), key, LockMode::Share, LockScope::Session).is_granted()
    );
    assert!(locks.acquire(session.owner(), TABLE, LockMode::RowExclusive).is_granted());
    prepared(&e, tx, "x");
    let other = begin(&e);
    assert!(!locks.try_acquire(other.lock_owner(), TABLE, LockMode::AccessExclusive));
    assert!(!locks.try_acquire(other.lock_owner(), key, LockMode::Exclusive));
    drop(session);
    assert!(locks.try_acquire(other.lock_owner(), key, LockMode::Exclusive));
    assert!(!locks.try_acquire(other.lock_owner(), TABLE, LockMode::AccessExclusive));
    commit_prepared(&e, "x");
    assert!(locks.try_acquire(other.lock_owner(), TABLE, LockMode::AccessExclusive));
}

/// A waiter for a prepared transaction goes on when that ends, by whoever.
#[test]
fn who_waits_for_it_is_woken_by_its_end() {
    let sim = sim(9);
    let e = sim.open();
    let mut tx = begin(&e);
    let xid = tx.xid(&*e).expect("an xid");
    prepared(&e, tx, "x");
    let other = begin(&e);
    let crate::lock::LockResult::Wait(mut wait) =
        e.locks.wait_for_xid(&e.txns, other.lock_owner(), xid)
    else {
        panic!("it runs");
    };
    assert_eq!(e.locks.blocking_pids(7), [0]);
    assert!(!wait.check_deadlock());
    commit_prepared(&e, "x");
    assert_eq!(wait.check(), crate::lock::LockCheck::Granted);
}

/// Millions of transactions later its fate is still its own, and the log of fates is cut no further.
#[test]
fn an_old_one_keeps_its_place_in_the_status_window() {
    let sim = sim(10);
    let e = sim.open();
    let h = table(&e);
    let mut tx = begin(&e);
    insert(&e, &mut tx, &h, b"old");
    let xid = tx.top_xid().expect("it wrote");
    prepared(&e, tx, "x");
    e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    testing::restart_from_xid(&e, Xid::new(5_000_000)).expect("a jump");
    drop(e);
    let sim = sim.crash(1);
    let e = sim.open();
    commit_something(&e, &h);
    e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    assert_eq!(e.txns.status(xid), XidStatus::InProgress);
    assert!(e.txns.oldest_unsettled() <= xid && e.txns.floor() <= xid);
    drop(e);
    let sim = sim.crash(2);
    let e = sim.open();
    assert_eq!(rows(&e, &h), ["other"]);
    commit_prepared(&e, "x");
    assert_eq!(rows(&e, &h), ["old", "other"]);
    e.txns.maintain(e.wal.flushed());
    assert!(e.txns.floor() > xid);
    drop(e);
    assert_eq!(rows(&sim.crash(3).open(), &h), ["old", "other"]);
}

/// PREPARE that nobody was told of is absent or whole.
#[test]
fn an_unflushed_prepare_is_absent_or_whole() {
    let (mut absent, mut whole) = (0, 0);
    for seed in 0..40 {
        let sim = sim(seed);
        let e = sim.open();
        let h = table(&e);
        let mut tx = begin(&e);
        insert(&e, &mut tx, &h, b"row");
        prepare(&e, tx, "x").expect("prepared");
        sim.disk.power_off_after(seed);
        let _cut_short = e.wal.flush(e.wal.inserted());
        let sim = sim.crash(seed);
        drop(e);
        let e = sim.open();
        assert!(rows(&e, &h).is_empty());
        match names(&e).is_empty() {
            true => absent += 1,
            false => {
                whole += 1;
                commit_prepared(&e, "x");
                assert_eq!(rows(&e, &h), ["row"]);
            }
        }
    }
    assert!(absent > 0 && whole > 0, "absent {absent}, whole {whole}");
}
