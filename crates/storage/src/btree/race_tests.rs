//! Tests of what concurrency does: disturbances planted between two latches of a search, and real
//! threads on a small pool.

#![allow(clippy::unwrap_used)]

use super::testing::*;
use super::{Cursor, Direction, IndexBatch, InsertOutcome, UniqueVerdict};
use crate::ids::RowId;
use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A long common prefix, so that separators are long and trees of three levels small.
fn key(n: u64) -> Vec<u8> {
    let mut key = vec![b'p'; 350];
    key.extend_from_slice(&n.to_be_bytes());
    key
}

/// A tree of 600 lasting entries (even numbers), with room for passengers (odd ones).
fn planted() -> Rc<Fixture> {
    let f = Fixture::new(400);
    for n in 0..600 {
        f.insert(&key(n * 2), n * 2);
    }
    assert!(f.height() >= 2);
    Rc::new(f)
}

type Disturb = fn(&Fixture);

/// What may happen while a search is between two pages.
fn disturbances() -> Vec<(&'static str, Disturb)> {
    fn split(f: &Fixture) {
        for n in 0..600 {
            f.insert(&key(n * 2 + 1), n * 2 + 1);
        }
    }
    fn delete(f: &Fixture) {
        // Whole pages go, some at the left edge, some in the middle.
        f.vacuum(&|r| row_number(r) < 300 || (500..900).contains(&row_number(r))).unwrap();
    }
    fn reuse(f: &Fixture) {
        delete(f);
        for n in 0..2000 {
            f.insert(&key(100_000 + n), 100_000 + n);
        }
    }
    fn all(f: &Fixture) {
        f.vacuum(&|_| true).unwrap();
        for n in 0..1000 {
            f.insert(&key(n * 2 + 1), n * 2 + 1);
        }
    }
    vec![("split", split), ("delete", delete), ("reuse", reuse), ("all", all)]
}

#[test]
fn a_lookup_finds_its_key_whatever_happens_between_two_latches() {
    for (name, disturb) in disturbances() {
        for n in [0, 2, 298, 310, 498, 910, 1198] {
            for gap in 0..8 {
                let f = planted();
                let inner = Rc::clone(&f);
                let was_reached = disturb_at(gap, move || disturb(&inner));
                let mut batch = IndexBatch::new();
                f.tree().lookup(&key(n), &mut batch).unwrap();
                if !was_reached() {
                    break;
                }
                let lasting = match name {
                    "all" => false,
                    "split" => true,
                    _ => n >= 300 && !(500..900).contains(&n),
                };
                if lasting {
                    assert_eq!(batch.rows(), [row_id(n)], "{name} in gap {gap}");
                }
                f.check();
            }
        }
    }
}

#[test]
fn scans_deliver_lasting_entries_once_whatever_happens_between_two_latches() {
    for (name, disturb) in disturbances() {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut gap = 0;
            loop {
                let f = planted();
                let inner = Rc::clone(&f);
                let was_reached = disturb_at(gap, move || disturb(&inner));
                let low = Bound::Included(key(100));
                let mut seen = f.scan(low, Bound::Excluded(key(1100)), direction);
                if !was_reached() {
                    break;
                }
                if direction == Direction::Backward {
                    seen.reverse();
                }
                assert!(seen.windows(2).all(|w| w[0] < w[1]), "{name}, {direction:?}, gap {gap}");
                let lasting = |n: u64| match name {
                    "all" => false,
                    "split" => true,
                    _ => n >= 300 && !(500..900).contains(&n),
                };
                let even: BTreeSet<u64> = seen.iter().map(|e| e.1).filter(|n| n % 2 == 0).collect();
                for n in (100..1100).step_by(2).filter(|n| lasting(*n)) {
                    assert!(even.contains(&n), "{name}, {direction:?}, gap {gap}: {n} was missed");
                }
                f.check();
                gap += 3;
            }
            assert!(gap > 20, "{name}, {direction:?}: only {gap} gaps");
        }
    }
}

#[test]
fn an_insert_reaches_its_place_whatever_happens_between_two_latches() {
    for (name, disturb) in disturbances() {
        for n in [1, 299, 501, 777, 1197] {
            for gap in 0..8 {
                let f = planted();
                let inner = Rc::clone(&f);
                let was_reached = disturb_at(gap, move || disturb(&inner));
                f.insert(&key(n), n);
                if !was_reached() {
                    break;
                }
                assert!(f.all().contains(&(key(n), n)), "{name} in gap {gap}");
                f.check();
            }
        }
    }
}

#[test]
fn vacuum_misses_nothing_whatever_happens_between_two_latches() {
    for (name, disturb) in disturbances() {
        let mut gap = 0;
        loop {
            let f = planted();
            let inner = Rc::clone(&f);
            let was_reached = disturb_at(gap, move || disturb(&inner));
            f.vacuum(&|row| row_number(row).is_multiple_of(4)).unwrap();
            if !was_reached() {
                break;
            }
            let left = f.all();
            if name != "reuse" {
                assert!(left.iter().all(|e| e.1 % 4 != 0), "{name}, gap {gap}");
            }
            f.check();
            gap += 5;
        }
    }
}

const THREADS: u64 = 8;

/// What one thread does in [`threads_work_on_one_index`]: inserts keys of its own, looks them up,
/// scans, marks some dead.
fn work(f: &Fixture, thread: u64, dead: &Mutex<HashSet<u64>>, rounds: u64) -> BTreeSet<u64> {
    let mut dice = Dice(thread + 1);
    let mut mine = BTreeSet::new();
    let (mut next, mut batch) = (0, IndexBatch::with_keys());
    for _ in 0..rounds {
        match dice.roll(10) {
            0..=5 => {
                // Own keys never come back, so a dead row number is dead for good.
                let n = (next * 37 % 4096 + next / 4096 * 4096) * THREADS + thread;
                next += 1;
                f.insert(&key(n), n);
                mine.insert(n);
            }
            6..=7 if !mine.is_empty() => {
                let from = dice.roll(4096 * THREADS);
                let n = mine.range(from..).next().or(mine.first()).copied().unwrap();
                assert!(f.tree().lookup(&key(n), &mut batch).unwrap(), "{n} is missing");
                assert_eq!(batch.rows(), [row_id(n)]);
            }
            8 => {
                let low = dice.roll(4096 * THREADS);
                let direction =
                    if dice.roll(2) == 0 { Direction::Forward } else { Direction::Backward };
                let bounds = (Bound::Included(key(low)), Bound::Included(key(low + 300)));
                let mut cursor = Cursor::new(bounds.0, bounds.1, direction);
                let mut seen = Vec::new();
                while cursor.next_leaf(&f.tree(), &mut batch).unwrap() {
                    seen.extend(batch.rows().iter().map(|r| row_number(*r)));
                }
                if direction == Direction::Backward {
                    seen.reverse();
                }
                assert!(seen.windows(2).all(|w| w[0] < w[1]), "{direction:?} scan out of order");
                let own: Vec<u64> = seen.into_iter().filter(|n| n % THREADS == thread).collect();
                let expected: Vec<u64> = mine.range(low..=low + 300).copied().collect();
                let dead = dead.lock().unwrap();
                let own: Vec<u64> = own.into_iter().filter(|n| !dead.contains(n)).collect();
                assert_eq!(own, expected);
            }
            _ => {
                let from = dice.roll(4096 * THREADS);
                let doomed: Vec<u64> = mine.range(from..).take(60).copied().collect();
                let mut dead = dead.lock().unwrap();
                for n in doomed {
                    mine.remove(&n);
                    dead.insert(n);
                }
            }
        }
    }
    mine
}

#[test]
fn threads_work_on_one_index() {
    let f = Fixture::new(160);
    let dead = Mutex::new(HashSet::new());
    let stop = AtomicBool::new(false);
    let vacuum = |f: &Fixture| {
        let snapshot = dead.lock().unwrap().clone();
        f.vacuum(&|row| snapshot.contains(&row_number(row))).unwrap()
    };
    let deleted = AtomicU64::new(0);
    let mut expected = BTreeSet::new();
    std::thread::scope(|scope| {
        let (f, dead, stop, vacuum, deleted) = (&f, &dead, &stop, &vacuum, &deleted);
        let workers: Vec<_> =
            (0..THREADS).map(|t| scope.spawn(move || work(f, t, dead, 1500))).collect();
        let cleaner = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let stats = vacuum(f);
                deleted.fetch_add(stats.pages_deleted, Ordering::Relaxed);
            }
        });
        for worker in workers {
            expected.extend(worker.join().unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        cleaner.join().unwrap();
    });
    vacuum(&f);
    f.check();
    let all: Vec<u64> = f.all().into_iter().map(|e| e.1).collect();
    assert!(all.into_iter().eq(expected), "the index has exactly what was left in it");
    assert_eq!(f.count_flag(super::node::INCOMPLETE), 0);
    assert!(deleted.load(Ordering::Relaxed) > 0, "no page was ever deleted");
}

#[test]
fn of_many_inserters_of_one_key_exactly_one_wins() {
    let f = Fixture::new(160);
    let wins = AtomicU64::new(0);
    const KEYS: u64 = 400;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (f, wins) = (&f, &wins);
            scope.spawn(move || {
                for n in 0..KEYS {
                    let mut heap = |_: RowId| Ok(UniqueVerdict::Conflict);
                    let row = row_id(n * THREADS + thread);
                    match f.tree().insert(&key(n), row, Some(&mut heap)).unwrap() {
                        InsertOutcome::Done => {
                            wins.fetch_add(1, Ordering::Relaxed);
                        }
                        InsertOutcome::Duplicate(other) => {
                            assert_eq!(row_number(other) / THREADS, n, "the duplicate has the key");
                        }
                        outcome => panic!("{outcome:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(wins.load(Ordering::Relaxed), KEYS);
    assert_eq!(f.all().len() as u64, KEYS);
    f.check();
}
