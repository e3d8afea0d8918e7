//! Tests through the public functions and a whole engine: transactions, checkpoints, recovery.

#![allow(clippy::unwrap_used)]

use super::testing::{Dice, row_id, row_number};
use super::*;
use crate::buffer::Persistence;
use crate::engine::testing::Sim;
use crate::engine::{CheckpointKind, Engine};
use crate::ids::Fork;
use crate::txn::{CommitMode, IsolationLevel, Transaction, TxnSession};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

fn begin(e: &Arc<Engine>) -> Transaction {
    let session = TxnSession::new(&**e, 1);
    Transaction::begin(&session, IsolationLevel::ReadCommitted, false)
}

/// A synchronous commit, waited for.
fn commit(e: &Arc<Engine>, tx: Transaction) -> Result<()> {
    let outcome = tx.commit(&**e, CommitMode::Sync)?;
    if let Some(lsn) = outcome.lsn {
        e.wal.flush(lsn)?;
    }
    Ok(())
}

fn new_index(e: &Arc<Engine>, persistence: Persistence) -> BtreeRel {
    let mut tx = begin(e);
    let rel = BtreeRel::new(e.create_rel(&mut tx, persistence).unwrap());
    create(e, &mut tx, &rel).unwrap();
    commit(e, tx).unwrap();
    rel
}

#[track_caller]
fn contents(e: &Engine, rel: &BtreeRel) -> BTreeSet<u64> {
    let mut checked = Vec::new();
    let problems = check_entries(e, rel, &mut |_, row| checked.push(row_number(row)));
    assert!(problems.is_empty(), "{problems:#?}");
    let (mut batch, mut scanned) = (IndexBatch::new(), Vec::new());
    let mut cursor = Cursor::all(Direction::Forward);
    while cursor.next_batch(e, rel, &mut batch).unwrap() {
        scanned.extend(batch.rows().iter().map(|row| row_number(*row)));
    }
    assert_eq!(checked, scanned);
    scanned.into_iter().collect()
}

fn key(n: u64) -> Vec<u8> {
    let mut key = (n.wrapping_mul(0x9E37_79B9) % 10_000).to_be_bytes().to_vec();
    key.resize(8 + (n % 5) as usize * 150, n as u8);
    key
}

/// Transactions of some inserts each, until the power goes. Rows of committed ones go to `sure`.
fn work(
    e: &Arc<Engine>,
    rel: &BtreeRel,
    dice: &mut Dice,
    next: &mut u64,
    sure: &mut BTreeSet<u64>,
) {
    for _ in 0..60 {
        let mut tx = begin(e);
        let mut mine = Vec::new();
        for _ in 0..dice.roll(12) {
            let n = *next;
            *next += 1;
            let Ok(xid) = tx.xid(&**e) else { return tx.abort(&**e) };
            if insert(e, xid, rel, &key(n), row_id(n), None).is_err() {
                return tx.abort(&**e);
            }
            mine.push(n);
        }
        match dice.roll(8) {
            // The entries of an aborted transaction stay.
            0 => tx.abort(&**e),
            _ if commit(e, tx).is_ok() => sure.extend(mine),
            _ => return,
        }
        if dice.roll(12) == 0 && e.checkpoint(CheckpointKind::Immediate).is_err() {
            return;
        }
    }
}

#[test]
fn recovery_brings_the_index_back() {
    for seed in 0..12 {
        let mut sim = Sim::new(seed);
        let mut e = sim.open();
        let rel = new_index(&e, Persistence::Permanent);
        let (mut dice, mut next, mut sure) = (Dice(seed), 1, BTreeSet::new());
        for life in 0..3 {
            sim.disk.power_off_after(50 + dice.roll(600));
            work(&e, &rel, &mut dice, &mut next, &mut sure);
            drop(e);
            sim = sim.crash(seed * 100 + life);
            e = sim.open();
            let found = contents(&e, &rel);
            assert!(sure.is_subset(&found), "seed {seed}: committed entries are missing");
            assert!(found.iter().all(|n| *n < next));
        }
        let stats = bulk_delete(&e, &rel, &|row| !sure.contains(&row_number(row))).unwrap();
        assert_eq!(stats.entries, sure.len() as u64);
        assert_eq!(contents(&e, &rel), sure);
    }
}

#[test]
fn an_unlogged_index_starts_empty_after_a_crash() {
    let sim = Sim::new(5);
    let e = sim.open();
    let rel = new_index(&e, Persistence::Unlogged);
    for n in 0..3000 {
        insert(&e, Xid::INVALID, &rel, &key(n), row_id(n), None).unwrap();
    }
    e.checkpoint(CheckpointKind::Immediate).unwrap();
    assert_eq!(contents(&e, &rel).len(), 3000);
    drop(e);
    let e = sim.crash(6).open();
    let rel = BtreeRel::new(rel.rel);
    assert!(contents(&e, &rel).is_empty());
    insert(&e, Xid::INVALID, &rel, b"again", row_id(1), None).unwrap();
    assert_eq!(contents(&e, &rel).len(), 1);
}

#[test]
fn a_build_makes_the_index_if_need_be_and_vanishes_with_its_transaction() {
    let sim = Sim::new(7);
    let e = sim.open();
    let mut tx = begin(&e);
    let rel = BtreeRel::with_fillfactor(e.create_rel(&mut tx, Persistence::Permanent).unwrap(), 70);
    let entries = (0..20_000u64).map(|n| (n.to_be_bytes(), row_id(n)));
    build(&e, &mut tx, &rel, entries).unwrap();
    assert_eq!(contents(&e, &rel).len(), 20_000);
    let blocks = e.pool.block_count(rel.rel, Fork::Main).unwrap();
    assert!((80..100).contains(&blocks), "{blocks} blocks at a fill factor of 70");
    commit(&e, tx).unwrap();
    let mut tx = begin(&e);
    let gone = BtreeRel::new(e.create_rel(&mut tx, Persistence::Permanent).unwrap());
    build(&e, &mut tx, &gone, [(b"k", row_id(1))]).unwrap();
    e.checkpoint(CheckpointKind::Immediate).unwrap();
    drop(e);
    let e = sim.crash(8).open();
    assert_eq!(contents(&e, &rel).len(), 20_000);
    assert!(!check(&e, &gone).is_empty(), "its file went with its transaction");
}

#[test]
fn a_range_and_a_look_up_through_the_public_functions() {
    let e = Sim::new(9).open();
    let rel = new_index(&e, Persistence::Permanent);
    for n in 0..1000u64 {
        let unique: &mut dyn UniqueCheck = &mut |_: RowId| Ok(UniqueVerdict::Conflict);
        let xid = Xid::INVALID;
        let outcome = insert(&e, xid, &rel, &n.to_be_bytes(), row_id(n), Some(unique)).unwrap();
        assert_eq!(outcome, InsertOutcome::Done);
    }
    let bound = |n: u64| Bound::Included(n.to_be_bytes().to_vec());
    let mut cursor = Cursor::new(bound(100), bound(199), Direction::Backward);
    let (mut batch, mut rows) = (IndexBatch::with_keys(), Vec::new());
    while cursor.next_batch(&e, &rel, &mut batch).unwrap() {
        assert_eq!(batch.key(0).map(<[u8]>::len), Some(8));
        rows.extend(batch.rows().iter().map(|row| row_number(*row)));
    }
    assert!(rows.into_iter().eq((100..200).rev()));
    assert!(lookup(&e, &rel, &500u64.to_be_bytes(), &mut batch).unwrap());
    assert!(still_current(&e, &rel, &batch).unwrap());
    let mut leaves = 0;
    let mut count = || {
        leaves += 1;
        Ok(())
    };
    bulk_delete_paced(&e, &rel, &|row| row_number(row) == 500, &mut count).unwrap();
    assert!(leaves > 1);
    assert!(!lookup(&e, &rel, &500u64.to_be_bytes(), &mut batch).unwrap());
}
