//! Random histories against a simple model: maps and sets instead of pages and chains.
//!
//! Several transactions, each with one snapshot and savepoints, insert, update (HOT or not),
//! delete and lock rows of one table while pages are pruned, vacuumed, evicted and read back
//! with the hints that write-back gave them. At any moment what a transaction sees, by page scan
//! and through a toy index, under every hint policy and session cache, must be the model's map; and every verdict
//! about a write must be the model's.
//!
//! The crash loop ends such a history with a power failure: what recovery brings back must be the
//! state after some commit, not before the last one that was flushed.

use super::*;
use crate::ids::Lsn;
use crate::txn::StatusCacheKind;
use std::collections::{BTreeMap, BTreeSet};

/// A small generator; the same seed gives the same history.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

type Rows = BTreeMap<u32, Vec<u8>>;

/// What can be undone by a rollback to a savepoint.
#[derive(Clone, Default)]
struct Work {
    view: Rows,
    /// Keys written, with the strength of the strongest write.
    writes: BTreeMap<u32, RowLock>,
    locks: BTreeMap<u32, RowLock>,
}

struct Actor<'d> {
    tx: Tx<'d>,
    snapshot_seq: u64,
    now: Work,
    saved: Vec<Work>,
}

pub struct World<'d> {
    db: &'d Db,
    rng: Rng,
    actors: Vec<Actor<'d>>,
    committed: Rows,
    /// When each key was last changed by a commit.
    changed: BTreeMap<u32, u64>,
    seq: u64,
    next_key: u32,
    /// key -> roots that an index would name.
    index: BTreeSet<(u32, RowId)>,
    /// The committed rows after each commit, with its position.
    history: Vec<(Lsn, Rows)>,
    /// One session memory of each kind, shared by all who look: fates are nobody's secret.
    states: [VisState; StatusCacheKind::ALL.len()],
    /// The policies that those who look choose from.
    policies: Vec<HintPolicy>,
}

/// A row's data: its key, then padding of a length that varies.
fn encode(key: u32, value: &[u8]) -> Vec<u8> {
    let mut data = key.to_be_bytes().to_vec();
    data.extend_from_slice(value);
    data
}

fn decode(data: &[u8]) -> (u32, Vec<u8>) {
    (u32::from_be_bytes([data[0], data[1], data[2], data[3]]), data[4..].to_vec())
}

fn as_rows(found: &[(RowId, Vec<u8>)]) -> Rows {
    let rows: Rows = found.iter().map(|(_, data)| decode(data)).collect();
    assert_eq!(rows.len(), found.len(), "no key twice");
    rows
}

#[derive(Debug, PartialEq, Eq)]
enum Expect {
    Ok,
    Changed,
    Busy,
}

impl<'d> World<'d> {
    pub fn new(db: &'d Db, seed: u64) -> Self {
        World {
            db,
            rng: Rng::new(seed),
            actors: Vec::new(),
            committed: Rows::new(),
            changed: BTreeMap::new(),
            seq: 0,
            next_key: 0,
            index: BTreeSet::new(),
            history: vec![(Lsn::INVALID, Rows::new())],
            states: StatusCacheKind::ALL.map(|kind| VisState::new(&db.e).with_cache(kind)),
            policies: HintPolicy::ALL.to_vec(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(10) {
            0 => 2000,
            1..=3 => 300,
            _ => 20,
        };
        let len = self.rng.below(len) + 1;
        vec![self.rng.below(250) as u8; len]
    }

    fn begin(&mut self) {
        let mut tx = self.db.begin();
        tx.snapshot();
        let now = Work { view: self.committed.clone(), ..Work::default() };
        self.actors.push(Actor { tx, snapshot_seq: self.seq, now, saved: Vec::new() });
    }

    /// What the model says about a write or lock of `key` by actor `at`.
    fn expect(&self, at: usize, key: u32, wanted: RowLock) -> Expect {
        let me = &self.actors[at];
        let mine = me.now.writes.contains_key(&key);
        if !mine && self.changed.get(&key).is_some_and(|seq| *seq > me.snapshot_seq) {
            return Expect::Changed;
        }
        let others = self.actors.iter().enumerate().filter(|(other, _)| *other != at);
        let busy = others.into_iter().any(|(_, other)| {
            let held = [other.now.writes.get(&key), other.now.locks.get(&key)];
            held.into_iter().flatten().any(|held| held.conflicts(wanted))
        });
        if busy { Expect::Busy } else { Expect::Ok }
    }

    fn check_verdict<T: std::fmt::Debug>(&self, found: &TupleResult<T>, expected: &Expect) {
        let fits = match found {
            TupleResult::Ok(_) => *expected == Expect::Ok,
            TupleResult::BeingModified(_) => *expected == Expect::Busy,
            TupleResult::Updated { .. } | TupleResult::Deleted => *expected == Expect::Changed,
            TupleResult::Invisible | TupleResult::SelfModified => false,
        };
        assert!(fits, "verdict {found:?}, model says {expected:?}");
    }

    fn pick(&mut self, at: usize) -> Option<(u32, RowId)> {
        let found = self.actors[at].tx.scan();
        assert_eq!(as_rows(&found), self.actors[at].now.view);
        if found.is_empty() {
            return None;
        }
        let (row, data) = &found[self.rng.below(found.len())];
        Some((decode(data).0, *row))
    }

    fn insert(&mut self, at: usize) {
        let (key, value) = (self.next_key, self.value());
        self.next_key += 1;
        let actor = &mut self.actors[at];
        let row = actor.tx.insert(&encode(key, &value));
        actor.now.view.insert(key, value);
        actor.now.writes.insert(key, RowLock::Update);
        self.index.insert((key, row));
    }

    fn update(&mut self, at: usize) {
        let Some((key, row)) = self.pick(at) else { return };
        let value = self.value();
        let opts = UpdateOpts { hot_ok: self.rng.below(3) > 0, key_change: self.rng.below(4) == 0 };
        let wanted = if opts.key_change { RowLock::Update } else { RowLock::NoKeyUpdate };
        let expected = self.expect(at, key, wanted);
        let data = encode(key, &value);
        let actor = &mut self.actors[at];
        let (e, h) = (&self.db.e, &self.db.h);
        let done = update(e, &mut actor.tx.tx, h, row, &row_body(&data), opts).expect("update");
        actor.tx.tx.next_command().expect("command");
        self.check_verdict(&done, &expected);
        let actor = &mut self.actors[at];
        if let TupleResult::Ok((new, hot)) = done {
            assert!(!hot || (opts.hot_ok && new.block == row.block));
            actor.now.view.insert(key, value);
            let strength = actor.now.writes.entry(key).or_insert(wanted);
            *strength = (*strength).max(wanted);
            if !hot {
                self.index.insert((key, new));
            }
        }
    }

    fn delete(&mut self, at: usize) {
        let Some((key, row)) = self.pick(at) else { return };
        let expected = self.expect(at, key, RowLock::Update);
        let done = self.actors[at].tx.delete(row);
        self.check_verdict(&done, &expected);
        if done.is_ok() {
            let actor = &mut self.actors[at];
            actor.now.view.remove(&key);
            actor.now.writes.insert(key, RowLock::Update);
        }
    }

    fn lock(&mut self, at: usize) {
        use RowLock::*;
        let Some((key, row)) = self.pick(at) else { return };
        let wanted = [KeyShare, Share, NoKeyUpdate, Update][self.rng.below(4)];
        let expected = self.expect(at, key, wanted);
        let done = self.actors[at].tx.lock(row, wanted);
        self.check_verdict(&done, &expected);
        if done.is_ok() {
            let held = self.actors[at].now.locks.entry(key).or_insert(wanted);
            *held = (*held).max(wanted);
        }
    }

    fn savepoint(&mut self, at: usize) {
        let actor = &mut self.actors[at];
        actor.tx.tx.savepoint("s");
        actor.saved.push(actor.now.clone());
    }

    fn end_savepoint(&mut self, at: usize) {
        let keep = self.rng.below(2) == 0;
        let actor = &mut self.actors[at];
        let Some(saved) = actor.saved.pop() else { return };
        if keep {
            assert!(actor.tx.tx.release("s"));
        } else {
            assert!(actor.tx.tx.rollback_to(&*self.db.e, "s"));
            assert!(actor.tx.tx.release("s"));
            actor.now = saved;
        }
    }

    fn end(&mut self, at: usize) {
        let actor = self.actors.swap_remove(at);
        if self.rng.below(3) == 0 {
            actor.tx.abort();
            return;
        }
        self.seq += 1;
        for key in actor.now.writes.keys() {
            self.changed.insert(*key, self.seq);
            match actor.now.view.get(key) {
                Some(value) => self.committed.insert(*key, value.clone()),
                None => self.committed.remove(key),
            };
        }
        let sync = self.rng.below(4) == 0;
        let mode = if sync { CommitMode::Sync } else { ASYNC };
        let outcome = actor.tx.tx.commit(&*self.db.e, mode).expect("commit");
        if let Some(lsn) = outcome.lsn {
            self.history.push((lsn, self.committed.clone()));
        }
    }

    fn vacuum(&mut self) {
        let index = &mut self.index;
        let opts = VacuumOpts {
            freeze_below: crate::ids::Xid::new(self.rng.below(200) as u64),
            aggressive: self.rng.below(2) == 0,
            truncate: self.rng.below(2) == 0,
            max_dead: 1 + self.rng.below(50),
        };
        let mut clean = |dead: &DeadRows| {
            index.retain(|(_, row)| !dead.contains(*row));
            Ok(())
        };
        vacuum(&self.db.e, &self.db.h, opts, &mut clean, &mut |_| Ok(())).expect("vacuum");
    }

    /// What an actor sees under a policy, by scan and by index.
    fn look(&mut self, at: usize, policy: HintPolicy, cache: usize) {
        let actor = &mut self.actors[at];
        let snapshot = actor.tx.snapshot();
        let mut cx = ReadCx::new(&self.db.e, &actor.tx.tx, snapshot, &self.states[cache]);
        cx.policy = policy;
        let found = scan_all(self.db, &cx);
        let how = (policy, StatusCacheKind::ALL[cache]);
        assert_eq!(as_rows(&found), actor.now.view, "{how:?}");
        let mut scan = PageScan::new();
        let counted: usize = (0..self.db.blocks())
            .map(|block| count_page(&self.db.e, &cx, &self.db.h, block, &mut scan).expect("count"))
            .sum();
        assert_eq!(counted, found.len(), "{how:?}");
        let mut by_index = Vec::new();
        let mut buf = TupleBuf::new();
        for (key, root) in &self.index {
            if fetch_hot(&self.db.e, &cx, &self.db.h, *root, &mut buf).expect("fetch") {
                let (found, value) = decode(buf.tuple().expect("fetched").data());
                if found == *key {
                    by_index.push((buf.row(), encode(found, &value)));
                }
            }
        }
        by_index.sort();
        let mut found = found;
        found.sort();
        assert_eq!(by_index, found, "index and scan agree");
    }

    fn step(&mut self) {
        if self.actors.len() < 2 || (self.actors.len() < 5 && self.rng.below(8) == 0) {
            self.begin();
        }
        let at = self.rng.below(self.actors.len());
        match self.rng.below(100) {
            0..=24 => self.insert(at),
            25..=54 => self.update(at),
            55..=64 => self.delete(at),
            65..=71 => self.lock(at),
            72..=76 => self.savepoint(at),
            77..=82 => self.end_savepoint(at),
            83..=91 => self.end(at),
            92..=93 => self.vacuum(),
            94 => {
                self.db.e.checkpoint(crate::engine::CheckpointKind::Immediate).expect("checkpoint");
            }
            _ => {
                let policy = self.policies[self.rng.below(self.policies.len())];
                let cache = self.rng.below(StatusCacheKind::ALL.len());
                self.look(at, policy, cache);
            }
        }
    }

    /// Steps that all look under one policy, with pages written in between.
    pub fn run_with(&mut self, policy: HintPolicy, steps: usize) {
        self.policies = vec![policy];
        for _ in 0..steps {
            self.step();
            let at = self.rng.below(self.actors.len().max(1));
            if self.rng.below(3) == 0 && at < self.actors.len() {
                self.look(at, policy, StatusCacheKind::default() as usize);
            }
            match self.rng.below(12) {
                0 => self.db.e.wal.flush(self.db.e.wal.inserted()).expect("flush"),
                1..=2 => self.db.e.pool.flush_rel(self.db.h.rel).expect("write back"),
                3 => self.db.e.background_round().expect("round"),
                _ => {}
            }
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }
}

fn report_seed<T>(seed: u64, f: impl FnOnce() -> T) -> T {
    struct Say(u64);
    impl Drop for Say {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("seed {}", self.0);
            }
        }
    }
    let _say = Say(seed);
    f()
}

/// Few frames, so that pages leave and come back with the hints that write-back set.
fn small_host(seed: u64) -> testing::Sim {
    let mut sim = testing::Sim::new(seed);
    sim.options = testing::options(20);
    sim
}

fn history(seed: u64) {
    let sim = small_host(seed);
    let db = Db::on(sim.open());
    db.e.heap.set_hint_policy(HintPolicy::ALL[seed as usize % HintPolicy::ALL.len()]);
    let mut world = World::new(&db, seed);
    for _ in 0..6 {
        world.run(60);
        db.check();
        for at in 0..world.actors.len() {
            for policy in HintPolicy::ALL {
                for cache in 0..StatusCacheKind::ALL.len() {
                    world.look(at, policy, cache);
                }
            }
        }
    }
}

#[test]
fn every_snapshot_sees_what_the_model_says() {
    for seed in 1..=100 {
        report_seed(seed, || history(seed));
    }
}

fn crash_loop(seed: u64) {
    let mut sim = small_host(seed);
    let mut rel = None;
    let mut start = Rows::new();
    for life in 0..3 {
        let mut db = match rel {
            None => Db::on(sim.open()),
            Some(h) => Db { h, ..Db::on(sim.open()) },
        };
        db.h = *rel.get_or_insert(db.h);
        db.e.wal.flush(db.e.wal.inserted()).expect("flush");
        let mut world = World::new(&db, seed * 10 + life);
        world.committed = start.clone();
        world.next_key = start.keys().last().map_or(0, |k| k + 1) + 1000 * life as u32;
        world.history = vec![(Lsn::INVALID, start.clone())];
        // The toy index does not survive; scans do not use it.
        let steps = 40 + world.rng.below(200);
        for _ in 0..steps {
            let at = world.rng.below(10);
            if world.actors.len() < 3 {
                world.begin();
            }
            let actor = world.rng.below(world.actors.len());
            match at {
                0..=3 => world.insert(actor),
                4..=6 => world.update(actor),
                7 => world.delete(actor),
                8 => world.end(actor),
                _ => world.step_without_index(actor),
            }
        }
        let flushed = db.e.wal.flushed();
        let crashed = sim.crash(seed * 100 + life);
        let history = std::mem::take(&mut world.history);
        world.actors.drain(..).for_each(std::mem::drop);
        drop(world);
        let h = db.h;
        drop(db);
        sim = crashed;
        start = check_recovered(&sim, h, &history, flushed);
    }
}

impl World<'_> {
    /// Pages go to disk, with what write-back adds to them, and come back.
    fn reread(&mut self) {
        let (e, rel) = (&self.db.e, self.db.h.rel);
        e.wal.flush(e.wal.inserted()).expect("flush");
        e.txns.maintain(e.wal.flushed());
        e.pool.flush_rel(rel).expect("write back");
        e.pool.drop_rel_buffers(rel);
    }

    fn step_without_index(&mut self, at: usize) {
        match self.rng.below(8) {
            0 => self.vacuum(),
            6 => self.reread(),
            7 => {
                // With nobody else around, pages are all that everybody sees.
                while !self.actors.is_empty() {
                    self.end(0);
                }
                self.reread();
                self.vacuum();
            }
            1 => {
                self.db.e.checkpoint(crate::engine::CheckpointKind::Immediate).expect("checkpoint");
            }
            2 => self.db.e.background_round().expect("round"),
            3 => self.savepoint(at),
            4 => self.end_savepoint(at),
            _ => self.lock(at),
        }
    }
}

fn check_recovered(sim: &testing::Sim, h: HeapRel, history: &[(Lsn, Rows)], flushed: Lsn) -> Rows {
    let e = sim.open();
    let db = Db { h, ..Db::on(Arc::clone(&e)) };
    let rows = as_rows(&db.begin().scan());
    let least = history.iter().rposition(|(lsn, _)| *lsn <= flushed).unwrap_or(0);
    let found = history[least..].iter().any(|(_, state)| *state == rows);
    assert!(found, "recovered {} rows are no committed prefix from {least} on", rows.len());
    db.check();
    e.shutdown(crate::engine::ShutdownMode::Fast).expect("shutdown");
    rows
}

#[test]
fn recovery_brings_back_a_committed_prefix() {
    for seed in 1..=40 {
        report_seed(seed, || crash_loop(seed));
    }
}
