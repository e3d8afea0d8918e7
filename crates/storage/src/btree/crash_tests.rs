//! Tests of crashes: every prefix of a log, and power failures on the simulated disk.

#![allow(clippy::unwrap_used)]

use super::node::INCOMPLETE;
use super::testing::*;
use crate::buffer::Persistence;
use crate::ids::Lsn;
use crate::vfs::{SimDisk, Vfs};
use crate::wal::{DecodedRecord, FIRST_LSN};
use std::collections::BTreeSet;

type Entries = BTreeSet<(Vec<u8>, u64)>;

fn long_key(n: u64) -> Vec<u8> {
    let mut key = (n.wrapping_mul(0x9E37_79B9) % 100_000).to_be_bytes()[4..].to_vec();
    key.resize(4 + (n % 11) as usize * 200, n as u8);
    key
}

/// Applies records to a new disk.
fn replayed<'r>(records: impl IntoIterator<Item = &'r DecodedRecord>, frames: usize) -> Fixture {
    let f = Fixture::open(SimDisk::new(2), frames, Lsn::new(1 << 40)).unwrap();
    f.pool.create_rel(REL, Persistence::Permanent).unwrap();
    records.into_iter().for_each(|record| replay(&f.pool, record));
    f
}

/// A log with splits on several levels, growth, deletions of pages and their reuse.
fn eventful_log() -> Vec<DecodedRecord> {
    let f = Fixture::new(100);
    for n in 0..350u64 {
        f.insert(&long_key(n), n);
    }
    for n in 0..40 {
        f.insert(b"again", 1000 + n);
    }
    f.vacuum(&|row| row_number(row).is_multiple_of(3)).unwrap();
    f.vacuum(&|row| row_number(row) < 200).unwrap();
    for n in 400..600u64 {
        f.insert(&long_key(n), n);
    }
    f.vacuum(&|_| true).unwrap();
    for n in 600..640u64 {
        f.insert(&long_key(n), n);
    }
    f.check();
    let end = f.log.wal().inserted();
    f.log.wal().flush(end).unwrap();
    let (records, _) = records(&f.disk, FIRST_LSN);
    records
}

#[test]
fn every_prefix_of_the_log_is_a_sound_tree_and_can_be_worked_on() {
    let records = eventful_log();
    assert!(records.len() > 700);
    let f = replayed([], 400);
    let mut left_open = Vec::new();
    for (i, record) in records.iter().enumerate() {
        replay(&f.pool, record);
        f.check();
        if f.count_flag(INCOMPLETE) > 0 {
            left_open.push(i);
        }
    }
    assert!(left_open.len() > 60, "{} prefixes end within a split", left_open.len());
    // Writers complete what a crash there leaves behind; sampled, for time.
    for i in left_open.into_iter().step_by(7) {
        let f = replayed(&records[..=i], 400);
        for n in 0..500u64 {
            let mut key = long_key(n);
            key.truncate(300);
            f.insert(&key, 5000 + n);
        }
        f.check();
        assert_eq!(f.count_flag(INCOMPLETE), 0, "after record {i}");
        f.vacuum(&|_| true).unwrap();
        f.check();
        assert!(f.all().is_empty());
    }
}

/// One operation of the crash loop.
enum Done {
    Insert(Vec<u8>, u64),
    Vacuum(u64, u64),
}

struct Life {
    /// What was done, and where the log ended after it.
    history: Vec<(Done, Lsn)>,
    /// The redo point of the last complete checkpoint.
    redo: Lsn,
    flushed: Lsn,
    next_row: u64,
}

/// Works until the power goes off (or for a while). `None` when it did not.
fn live(f: &Fixture, life: &mut Life, dice: &mut Dice) -> Option<()> {
    for _ in 0..250 {
        match dice.roll(40) {
            0 => {
                let end = f.log.wal().inserted();
                f.log.wal().flush(end).ok()?;
                life.flushed = end;
            }
            1 => checkpoint(f, life)?,
            2 => {
                let (a, b) = (dice.roll(3), 2 + dice.roll(2));
                let result = f.vacuum(&|row| row_number(row) % b == a);
                life.history.push((Done::Vacuum(a, b), end_after(f, result.is_ok())));
                result.ok()?;
            }
            _ => {
                let row = life.next_row;
                life.next_row += 1;
                let key = long_key(dice.roll(300));
                let result = f.tree().insert(&key, super::node::row_id(number_of(row)), None);
                life.history.push((Done::Insert(key, row), end_after(f, result.is_ok())));
                result.ok()?;
            }
        }
    }
    Some(())
}

/// Where the log ends after an operation; one that failed is never complete.
fn end_after(f: &Fixture, complete: bool) -> Lsn {
    if complete { f.log.wal().inserted() } else { Lsn::MAX }
}

fn number_of(row: u64) -> u64 {
    super::node::row_number(row_id(row))
}

fn checkpoint(f: &Fixture, life: &mut Life) -> Option<()> {
    let redo = f.log.wal().advance_redo_point();
    f.pool.flush_rel(REL).ok()?;
    let vfs: &dyn Vfs = &f.disk;
    let file = vfs.open("base/16500", crate::vfs::OpenMode::Open).ok()?;
    file.sync().ok()?;
    vfs.sync_dir("").ok()?;
    vfs.sync_dir("base").ok()?;
    vfs.sync_dir(crate::wal::WAL_DIR).ok()?;
    // The checkpoint's own record must be durable for it to count.
    f.log.wal().flush(redo).ok()?;
    life.redo = redo;
    life.flushed = life.flushed.max(redo);
    Some(())
}

/// What the index must hold when the log ends at `end`: at least, and at most.
fn expected(history: &[(Done, Lsn)], end: Lsn) -> (Entries, Entries) {
    let mut least = Entries::new();
    let mut done = history.iter();
    for (step, lsn) in done.by_ref() {
        let mut after = least.clone();
        match step {
            Done::Insert(key, row) => {
                after.insert((key.clone(), *row));
            }
            Done::Vacuum(a, b) => after.retain(|e| e.1 % b != *a),
        }
        if *lsn > end {
            // This one was cut short.
            let most = least.union(&after).cloned().collect();
            return (least.intersection(&after).cloned().collect(), most);
        }
        least = after;
    }
    (least.clone(), least)
}

fn recover(disk: &SimDisk, life: &Life) -> Fixture {
    let (tail, end) = records(disk, life.redo);
    assert!(end >= life.flushed, "the log lost what was flushed");
    let f = Fixture::open(disk.clone(), 64, end).unwrap();
    f.pool.replay_create_rel(REL, Persistence::Permanent).unwrap();
    tail.iter().for_each(|record| replay(&f.pool, record));
    // From the beginning, on an empty disk: the same contents.
    let (all, _) = records(disk, FIRST_LSN);
    let scratch = replayed(&all, 400);
    f.check();
    scratch.check();
    let contents = f.all();
    assert!(contents == scratch.all(), "replay from the checkpoint and from the start differ");
    let (least, most) = expected(&life.history, end);
    let contents: Entries = contents.into_iter().collect();
    assert!(least.is_subset(&contents), "entries are missing");
    assert!(contents.is_subset(&most), "entries that nobody made, or that were removed");
    f
}

/// The history that the disk remembers, with the vacuum or insert that was cut short resolved.
fn settle(f: &Fixture, life: &mut Life, end: Lsn) {
    life.history.retain(|(_, lsn)| *lsn <= end);
    let (known, _) = expected(&life.history, end);
    let real: Entries = f.all().into_iter().collect();
    // The step in flight at the crash, written down as what it turned out to be.
    for (key, row) in real.difference(&known).cloned().collect::<Vec<_>>() {
        life.history.push((Done::Insert(key, row), end));
    }
    for (_, row) in known.difference(&real) {
        life.history.push((Done::Vacuum(*row, u64::MAX), end));
    }
}

#[test]
fn power_failures_lose_nothing_that_was_flushed() {
    for seed in 0..40u64 {
        let mut dice = Dice(seed * 31 + 7);
        let mut disk = SimDisk::new(seed);
        let mut f = Fixture::on(disk.clone(), 24);
        let mut life =
            Life { history: Vec::new(), redo: FIRST_LSN, flushed: FIRST_LSN, next_row: 1 };
        checkpoint(&f, &mut life).unwrap();
        for generation in 0..4 {
            disk.power_off_after(1 + dice.roll(400));
            let _ = live(&f, &mut life, &mut dice);
            drop(f);
            disk = disk.crash(seed * 10 + generation);
            f = recover(&disk, &life);
            let end = f.log.wal().inserted();
            settle(&f, &mut life, end);
            // As recovery does: what was replayed is made durable before new work.
            checkpoint(&f, &mut life).unwrap();
        }
        for n in 0..60u64 {
            f.insert(&long_key(n + 1000), 90_000 + n);
        }
        f.check();
    }
}
