//! Tests of whole trees: against a model, of scans, uniqueness, deletion, reuse, bulk load.

#![allow(clippy::unwrap_used)]

use super::node::Pos;
use super::testing::*;
use super::{Cursor, Direction, IndexBatch, InsertOutcome, MAX_KEY, UniqueVerdict};
use crate::error::StorageError;
use crate::ids::{RowId, Xid};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Bound;

fn int_key(n: u64) -> Vec<u8> {
    let mut key = vec![1];
    key.extend_from_slice(&n.to_be_bytes());
    key
}

fn range(
    model: &BTreeSet<(Vec<u8>, u64)>,
    low: &Bound<Vec<u8>>,
    high: &Bound<Vec<u8>>,
) -> Vec<(Vec<u8>, u64)> {
    let above = |key: &Vec<u8>| match low {
        Bound::Included(l) => key >= l,
        Bound::Excluded(l) => key > l,
        Bound::Unbounded => true,
    };
    let below = |key: &Vec<u8>| match high {
        Bound::Included(h) => key <= h,
        Bound::Excluded(h) => key < h,
        Bound::Unbounded => true,
    };
    model.iter().filter(|(key, _)| above(key) && below(key)).cloned().collect()
}

#[test]
fn ascending_inserts_fill_pages_and_grow_the_tree() {
    let f = Fixture::new(200);
    for n in 0..130_000 {
        f.insert(&int_key(n), n + 1);
    }
    f.check();
    assert_eq!(f.height(), 2);
    let per_page = 130_000 / f.blocks();
    assert!(per_page > 300, "{per_page} entries a page");
    let mut batch = IndexBatch::new();
    for n in (0..130_000).step_by(997) {
        assert!(f.tree().lookup(&int_key(n), &mut batch).unwrap());
        assert_eq!(batch.rows(), [row_id(n + 1)]);
    }
    assert!(!f.tree().lookup(&int_key(130_000), &mut batch).unwrap());
    assert!(!f.tree().lookup(&[], &mut batch).unwrap());
}

#[test]
fn a_hundred_thousand_equal_keys_cost_little() {
    let f = Fixture::new(400);
    let before = f.log.wal().stats().bytes;
    let mut dice = Dice(5);
    for n in 0..100_000u64 {
        f.insert(b"same", (dice.roll(3000) * 100_000) + n + 1);
    }
    let bytes = f.log.wal().stats().bytes - before;
    assert!(bytes / 100_000 < 400, "{} bytes of log an entry", bytes / 100_000);
    f.check();
    let mut batch = IndexBatch::new();
    assert!(f.tree().lookup(b"same", &mut batch).unwrap());
    assert_eq!(batch.len(), 100_000);
    assert!(batch.rows().windows(2).all(|w| row_number(w[0]) < row_number(w[1])));
}

#[test]
fn keys_of_the_greatest_length_fit_and_longer_ones_are_refused() {
    let f = Fixture::new(100);
    for n in 0..60u8 {
        let mut key = vec![n.wrapping_mul(7); MAX_KEY];
        key[MAX_KEY - 1] = n;
        f.insert(&key, u64::from(n) + 1);
        f.check();
    }
    let e = f.tree().insert(&[1; MAX_KEY + 1], row_id(1), None).unwrap_err();
    assert!(matches!(e, StorageError::Limit { .. }), "{e}");
}

#[test]
fn a_unique_check_sees_every_equal_key_wherever_it_is() {
    let f = Fixture::new(200);
    for n in 0..2000u64 {
        f.insert(b"k", n + 10);
        f.insert(&int_key(n), n + 1);
    }
    let mut seen = BTreeSet::new();
    let mut all_dead = |row: RowId| {
        seen.insert(row_number(row));
        Ok(UniqueVerdict::Dead)
    };
    let tree = f.tree();
    let done = tree.insert(b"k", row_id(5000), Some(&mut all_dead)).unwrap();
    assert_eq!(done, InsertOutcome::Done);
    assert_eq!(seen.len(), 2000);
    let mut last_counts = |row: RowId| {
        Ok(match row_number(row) {
            5000 => UniqueVerdict::Conflict,
            _ => UniqueVerdict::Dead,
        })
    };
    let found = tree.insert(b"k", row_id(6000), Some(&mut last_counts)).unwrap();
    assert_eq!(found, InsertOutcome::Duplicate(row_id(5000)));
    let mut running = |row: RowId| {
        Ok(if row_number(row) == 1200 {
            UniqueVerdict::WaitFor(Xid::new(99))
        } else {
            UniqueVerdict::Dead
        })
    };
    let wait = tree.insert(b"k", row_id(6000), Some(&mut running)).unwrap();
    assert_eq!(wait, InsertOutcome::WaitFor(Xid::new(99)));
    assert_eq!(f.all().len(), 4001);
    f.check();
}

#[test]
fn an_insert_takes_out_dead_duplicates() {
    let f = Fixture::new(100);
    // The same key over and over, each time with the old version dead to all: no growth.
    let mut alive = 0;
    for n in 1..5000u64 {
        let mut check = |row: RowId| {
            assert_eq!(row_number(row), alive, "older ones are gone");
            Ok(UniqueVerdict::DeadToAll)
        };
        let outcome = f.tree().insert(&int_key(7), row_id(n), Some(&mut check)).unwrap();
        assert_eq!(outcome, InsertOutcome::Done);
        alive = n;
    }
    assert_eq!(f.all(), [(int_key(7), 4999)]);
    assert_eq!(f.blocks(), 2);
    f.check();
}

#[test]
fn vacuum_deletes_emptied_pages_and_inserts_reuse_them() {
    let f = Fixture::new(300);
    for n in 0..30_000u64 {
        f.insert(&int_key(n), n + 1);
    }
    let blocks = f.blocks();
    let stats = f.vacuum(&|row| row_number(row) <= 29_000).unwrap();
    assert_eq!((stats.removed, stats.entries), (29_000, 1_000));
    assert!(stats.pages_deleted > 70, "{stats:?}");
    assert_eq!(stats.pages_free, stats.pages_deleted);
    f.check();
    assert_eq!(f.all().len(), 1000);
    // Queue-like: new keys at the right end, old ones go at the left. The file does not grow.
    for round in 0..6u64 {
        for n in 0..10_000 {
            let n = 30_000 + round * 10_000 + n;
            f.insert(&int_key(n), n + 1);
        }
        let limit = 30_000 + round * 10_000 + 9_000;
        f.vacuum(&|row| row_number(row) <= limit).unwrap();
        f.check();
    }
    assert!(f.blocks() <= blocks, "{} blocks, once {blocks}", f.blocks());
    // Everything goes: one leaf stays.
    let stats = f.vacuum(&|_| true).unwrap();
    assert_eq!(stats.entries, 0);
    f.check();
    assert!(f.all().is_empty());
    for n in 0..5000u64 {
        f.insert(&int_key(n), n + 1);
    }
    f.check();
}

#[test]
fn blocks_that_nobody_initialised_are_collected() {
    let f = Fixture::new(100);
    for _ in 0..5 {
        drop(f.pool.extend(REL, crate::ids::Fork::Main).unwrap());
    }
    f.check();
    let stats = f.vacuum(&|_| false).unwrap();
    assert_eq!((stats.pages_free, stats.pages_total), (5, 7));
    f.check();
    for n in 0..2000u64 {
        f.insert(&int_key(n), n + 1);
    }
    assert_eq!(f.blocks(), 9, "the collected blocks were used first");
    f.check();
}

#[test]
fn a_bulk_load_equals_inserts() {
    for count in [0u64, 1, 2, 300, 400, 5_000, 120_000] {
        let f = Fixture::new(300);
        let mut builder = f.builder();
        for n in 0..count {
            builder.push(&int_key(n / 3), row_id(n + 1)).unwrap();
        }
        builder.finish().unwrap();
        f.check();
        let all = f.all();
        assert_eq!(all.len() as u64, count);
        assert!(all.iter().enumerate().all(|(i, e)| *e == (int_key(i as u64 / 3), i as u64 + 1)));
        f.insert(&int_key(77), 1 << 30);
        f.check();
    }
    let f = Fixture::new(100);
    let mut builder = f.builder();
    builder.push(b"b", row_id(1)).unwrap();
    assert!(builder.push(b"b", row_id(1)).is_err());
    assert!(builder.push(b"a", row_id(2)).is_err());
}

#[test]
fn a_bulk_load_of_long_keys_is_sound() {
    let mut dice = Dice(3);
    for _ in 0..30 {
        let f = Fixture::new(200);
        let mut keys = BTreeSet::new();
        for _ in 0..200 {
            let len = if dice.roll(3) == 0 { dice.roll(10) } else { 2000 + dice.roll(701) };
            keys.insert((0..len).map(|_| dice.roll(3) as u8).collect::<Vec<_>>());
        }
        let mut builder = f.builder();
        for key in &keys {
            builder.push(key, row_id(9)).unwrap();
        }
        builder.finish().unwrap();
        f.check();
        assert!(f.all().into_iter().map(|e| e.0).eq(keys));
    }
}

#[test]
fn cursors_keep_their_place_while_pages_split_and_go() {
    for direction in [Direction::Forward, Direction::Backward] {
        let f = Fixture::new(300);
        // Even keys stay throughout; odd ones come and go.
        for n in 0..5000u64 {
            f.insert(&int_key(n * 10), n * 10 + 1);
        }
        let mut cursor = Cursor::all(direction);
        let (mut batch, mut stay) = (IndexBatch::with_keys(), Vec::new());
        let mut dice = Dice(11);
        let mut round = 0;
        while cursor.next_leaf(&f.tree(), &mut batch).unwrap() {
            stay.extend(batch_entries(&batch).into_iter().filter(|e| e.1 % 10 == 1));
            round += 1;
            for _ in 0..400 {
                let n = dice.roll(50_000);
                if !n.is_multiple_of(10) {
                    f.insert(&int_key(n), n + 1);
                }
            }
            if round % 3 == 0 {
                // Whole pages of passengers go.
                f.vacuum(&|row| row_number(row) % 10 != 1).unwrap();
            }
            if round == 10 {
                let edge = 20_000;
                f.vacuum(&|row| row_number(row) < edge).unwrap();
            }
        }
        f.check();
        let forward: Vec<_> = match direction {
            Direction::Forward => stay,
            Direction::Backward => stay.into_iter().rev().collect(),
        };
        assert!(forward.windows(2).all(|w| w[0] < w[1]), "in order, none twice");
        let lasting = |e: &&(Vec<u8>, u64)| e.1 > 20_000;
        let count = forward.iter().filter(lasting).count();
        assert_eq!(count, 3000, "{direction:?}: every lasting entry, once");
    }
}

#[test]
fn an_unchanged_leaf_proves_that_a_batch_is_current() {
    let f = Fixture::new(100);
    f.insert(b"a", 1);
    let mut batch = IndexBatch::new();
    f.tree().lookup(b"a", &mut batch).unwrap();
    assert!(f.tree().still_current(&batch).unwrap());
    f.vacuum(&|_| true).unwrap();
    assert!(!f.tree().still_current(&batch).unwrap());
}

#[test]
fn a_full_disk_is_an_error_and_harms_nothing() {
    let f = Fixture::new(60);
    for n in 0..2000u64 {
        f.insert(&int_key(n), n + 1);
    }
    f.pool.flush_rel(REL).unwrap();
    f.disk.set_capacity(Some(f.disk.used()));
    let mut failed = 0;
    for n in 2000..8000u64 {
        match f.tree().insert(&int_key(n), row_id(n + 1), None) {
            Ok(_) => {}
            Err(StorageError::DiskFull { .. }) => failed += 1,
            Err(e) => panic!("{e}"),
        }
        if failed > 3 {
            break;
        }
    }
    assert!(failed > 3);
    f.disk.set_capacity(None);
    f.check();
    f.insert(&int_key(9000), 1);
    f.check();
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        5 => prop::collection::vec(0u8..3, 0..7),
        2 => prop::collection::vec(any::<u8>(), 0..60),
        2 => (any::<u8>(), 0usize..=2700).prop_map(|(b, n)| vec![b % 3; n]),
    ]
}

fn any_bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        any_key().prop_map(Bound::Included),
        any_key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<(Vec<u8>, u64)>),
    /// Rows congruent to the first, modulo the second, are dead.
    Vacuum(u64, u64),
    /// Keys of this range are dead.
    VacuumRange(Vec<u8>, Vec<u8>),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Lookup(Vec<u8>),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec((any_key(), 1u64..30), 1..80).prop_map(Step::Insert),
        1 => (0u64..4, 1u64..4).prop_map(|(a, b)| Step::Vacuum(a, b)),
        1 => (any_key(), any_key()).prop_map(|(a, b)| Step::VacuumRange(a, b)),
        3 => (any_bound(), any_bound()).prop_map(|(a, b)| Step::Scan(a, b)),
        3 => any_key().prop_map(Step::Lookup),
    ]
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_tree_is_a_sorted_set(steps in prop::collection::vec(any_step(), 1..25)) {
        let f = Fixture::new(64);
        let mut model: BTreeSet<(Vec<u8>, u64)> = BTreeSet::new();
        // Vacuum knows rows, not keys: rows are made to tell their key's number.
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(entries) => {
                    for (key, n) in entries {
                        let number = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                            keys.push(key.clone());
                            keys.len() - 1
                        });
                        let row = (number as u64) * 32 + n;
                        f.insert(&key, row);
                        model.insert((key, row));
                    }
                }
                Step::Vacuum(a, b) => {
                    f.vacuum(&|row| row_number(row) % b == a).unwrap();
                    model.retain(|e| e.1 % b != a);
                }
                Step::VacuumRange(a, b) => {
                    let dead = |row: u64| {
                        let key = &keys[(row / 32) as usize];
                        a <= *key && *key <= b
                    };
                    f.vacuum(&|row| dead(row_number(row))).unwrap();
                    model.retain(|e| !dead(e.1));
                }
                Step::Scan(low, high) => {
                    let expected = range(&model, &low, &high);
                    let forward = f.scan(low.clone(), high.clone(), Direction::Forward);
                    prop_assert!(forward == expected);
                    let mut backward = f.scan(low, high, Direction::Backward);
                    backward.reverse();
                    prop_assert!(backward == expected);
                }
                Step::Lookup(key) => {
                    let mut batch = IndexBatch::with_keys();
                    f.tree().lookup(&key, &mut batch).unwrap();
                    let exactly = Bound::Included(key);
                    prop_assert!(batch_entries(&batch) == range(&model, &exactly, &exactly));
                }
            }
        }
        f.check();
        prop_assert!(f.all().into_iter().eq(model));
    }
}

#[test]
fn positions_compare_as_documented() {
    assert!(Pos::before(b"a") < Pos { key: b"a", row: 1 });
    assert!(Pos { key: b"a", row: 1 } < Pos::after(b"a"));
    assert!(Pos::after(b"a") < Pos::before(b"a\0"));
}

/// A tree of three levels with some of its bytes overwritten, on a pool that checks no checksums.
fn damaged(seed: u64) -> Fixture {
    let f = Fixture::new(200);
    let mut dice = Dice(seed);
    for n in 0..400u64 {
        let mut key = vec![b'p'; 350];
        key.extend_from_slice(&dice.roll(300).to_be_bytes());
        f.insert(&key, n);
    }
    let end = f.log.wal().inserted();
    f.log.wal().flush(end).unwrap();
    f.pool.flush_rel(REL).unwrap();
    let blocks = u64::from(f.blocks());
    for _ in 0..1 + dice.roll(12) {
        let block = dice.roll(blocks);
        // Headers, line pointers and trailers more often than keys.
        let at = match dice.roll(3) {
            0 => dice.roll(8192),
            1 => 12 + dice.roll(200),
            _ => 8168 + dice.roll(24),
        };
        f.disk.corrupt("base/16500", block * 8192 + at, 1 << dice.roll(8));
    }
    Fixture::open_unchecked(f.disk.clone(), 200, end).unwrap()
}

#[test]
fn damaged_pages_end_in_errors() {
    let (mut found, mut worked) = (0, 0);
    let mut note = |result: Result<(), StorageError>| match result {
        Ok(()) => worked += 1,
        Err(StorageError::Corrupt { .. }) => found += 1,
        // A block number out of nowhere.
        Err(e) => panic!("{e}"),
    };
    for seed in 0..80 {
        let f = damaged(seed);
        let mut dice = Dice(seed);
        let problems = f.tree().check(&mut |_, _| {});
        for direction in [Direction::Forward, Direction::Backward] {
            let mut batch = IndexBatch::with_keys();
            let mut cursor = Cursor::all(direction);
            note(loop {
                match cursor.next_leaf(&f.tree(), &mut batch) {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(e) => break Err(e),
                }
            });
        }
        for n in 0..60 {
            let mut key = vec![b'p'; 350];
            key.extend_from_slice(&dice.roll(300).to_be_bytes());
            note(f.tree().lookup(&key, &mut IndexBatch::new()).map(drop));
            note(f.tree().insert(&key, row_id(1000 + n), None).map(drop));
        }
        note(f.vacuum(&|row| row_number(row) % 2 == 1).map(drop));
        assert!(problems.len() <= 100);
    }
    assert!(found > 60 && worked > 600, "{found} errors, {worked} successes");
}
