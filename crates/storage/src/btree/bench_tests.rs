//! Costs of the hot paths, for people to read:
//! `BENCH=1 cargo test --release -p inkling-storage --lib btree::bench -- --nocapture`.
//! Without `BENCH` the tree is small: the benchmark runs as an ordinary test, so it cannot rot.

#![allow(clippy::unwrap_used)]

use super::testing::*;
use super::{Cursor, Direction, IndexBatch};

fn int_key(n: u64) -> [u8; 9] {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Processor time of this thread, so that a busy machine does not matter much.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn report(what: &str, count: u64, begin: u64) {
    let each = (cpu_nanos() - begin) as f64 / count as f64;
    println!("{what:<44} {each:>9.1} ns");
}

fn run(entries: u64, rounds: u64) {
    let f = Fixture::new(8192);
    let begin = cpu_nanos();
    let mut builder = f.builder();
    for n in 0..entries {
        builder.push(&int_key(n * 2), row_id(n)).unwrap();
    }
    builder.finish().unwrap();
    report("bulk load, an entry", entries, begin);
    println!("height {}, {} blocks", f.height(), f.blocks());
    let (tree, mut batch, mut dice) = (f.tree(), IndexBatch::new(), Dice(1));
    let keys: Vec<u64> = (0..rounds).map(|_| dice.roll(entries) * 2).collect();
    for _ in 0..2 {
        let begin = cpu_nanos();
        for n in &keys {
            assert!(tree.lookup(&int_key(*n), &mut batch).unwrap());
        }
        report("look-up of a random key", rounds, begin);
    }
    let hot: Vec<u64> = keys.iter().map(|n| n % 2000 * 2).collect();
    let begin = cpu_nanos();
    for n in &hot {
        assert!(tree.lookup(&int_key(*n), &mut batch).unwrap());
    }
    report("look-up of a key on few pages", rounds, begin);
    let begin = cpu_nanos();
    let (mut cursor, mut count) = (Cursor::all(Direction::Forward), 0);
    while cursor.next_leaf(&tree, &mut batch).unwrap() {
        count += batch.len() as u64;
    }
    assert_eq!(count, entries);
    report("forward scan, an entry", count, begin);
    let begin = cpu_nanos();
    for n in &keys {
        tree.insert(&int_key(n + 1), row_id(*n), None).unwrap();
    }
    report("insertion of a random key", rounds, begin);
    let begin = cpu_nanos();
    for n in 0..rounds {
        tree.insert(&int_key((entries + n) * 2), row_id(n), None).unwrap();
    }
    report("insertion of an ascending key", rounds, begin);
    f.check();
}

#[test]
fn the_benchmark_works() {
    match std::env::var_os("BENCH") {
        Some(_) => run(1_000_000, 300_000),
        None => run(5_000, 500),
    }
}
