//! Random histories against a model that is a map.
//!
//! The model numbers commits; a snapshot is the number of commits before it. After every step,
//! every transaction ever begun is asked about under every snapshot in use, and the answer must be
//! the model's, also after a crash of the simulated disk with an arbitrary end of the log.

use super::cache::StatusCacheKind;
use super::testing::{START, TestHost, TestLog, TestRecord};
use super::*;
use crate::ids::{Lsn, Xid};
use crate::sync::Arc;
use crate::vfs::SimDisk;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SESSIONS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Begin {
        session: usize,
        repeatable: bool,
    },
    Write(usize),
    Savepoint(usize),
    Release(usize, usize),
    RollBack(usize, usize),
    Commit {
        session: usize,
        sync: bool,
    },
    Abort(usize),
    Abandon(usize),
    Statement(usize),
    EndStatement(usize),
    Hold(usize),
    Unhold(usize),
    Flush,
    Maintain,
    /// Begins and ends enough transactions to fill a chunk.
    Burn,
    Checkpoint {
        complete: bool,
    },
    Crash {
        seed: u64,
        keep: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let s = 0..SESSIONS;
    prop_oneof![
        6 => (s.clone(), any::<bool>())
            .prop_map(|(session, repeatable)| Step::Begin { session, repeatable }),
        8 => s.clone().prop_map(Step::Write),
        4 => s.clone().prop_map(Step::Savepoint),
        2 => (s.clone(), 0usize..4).prop_map(|(s, n)| Step::Release(s, n)),
        3 => (s.clone(), 0usize..4).prop_map(|(s, n)| Step::RollBack(s, n)),
        4 => (s.clone(), any::<bool>()).prop_map(|(session, sync)| Step::Commit { session, sync }),
        2 => s.clone().prop_map(Step::Abort),
        1 => s.clone().prop_map(Step::Abandon),
        5 => s.clone().prop_map(Step::Statement),
        3 => s.clone().prop_map(Step::EndStatement),
        2 => s.clone().prop_map(Step::Hold),
        1 => s.prop_map(Step::Unhold),
        2 => Just(Step::Flush),
        2 => Just(Step::Maintain),
        1 => Just(Step::Burn),
        1 => any::<bool>().prop_map(|complete| Step::Checkpoint { complete }),
        1 => (any::<u64>(), 0usize..8).prop_map(|(seed, keep)| Step::Crash { seed, keep }),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Running,
    Aborted,
    Committed { number: u64, at: Lsn },
}

#[derive(Default)]
struct ModelLevel {
    own: Option<Xid>,
    /// Its own and those released into it.
    all: Vec<Xid>,
}

struct Running {
    tx: Transaction,
    levels: Vec<ModelLevel>,
    rolled_back: Vec<Xid>,
    current: Option<(Snapshot, u64)>,
    held: Vec<(SnapshotHold, Snapshot, u64)>,
}

struct World {
    host: Arc<TestHost>,
    disk: SimDisk,
    /// Records from before the last crash that survived it.
    history: Vec<TestRecord>,
    /// The last complete checkpoint: where redo starts, and the next xid then.
    redo: Lsn,
    next_at_redo: Xid,
    fates: BTreeMap<Xid, Fate>,
    commits: u64,
    running: [Option<Running>; SESSIONS],
}

fn open(disk: &SimDisk) -> CommitLog {
    CommitLog::open(Arc::new(disk.clone())).expect("the commit log opens")
}

impl World {
    fn new() -> Self {
        let disk = SimDisk::new(11);
        let txns = TxnManager::recover(open(&disk), Xid::FIRST_NORMAL, START).expect("new");
        World {
            host: TestHost::with(txns, TestLog::new()),
            disk,
            history: Vec::new(),
            redo: START,
            next_at_redo: Xid::FIRST_NORMAL,
            fates: BTreeMap::new(),
            commits: 0,
            running: Default::default(),
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Begin { session, repeatable } => self.begin(session, repeatable),
            Step::Commit { session, sync } => self.commit(session, sync),
            Step::Abort(s) => self.abort(s, true),
            Step::Abandon(s) => self.abort(s, false),
            Step::Flush => self.host.log.flush_all(),
            Step::Maintain => self.host.txns.maintain(self.host.log.flushed_to()),
            Step::Burn => self.burn(),
            Step::Checkpoint { complete } => self.checkpoint(complete),
            Step::Crash { seed, keep } => self.crash(seed, keep),
            Step::Write(s)
            | Step::Savepoint(s)
            | Step::Release(s, _)
            | Step::RollBack(s, _)
            | Step::Statement(s)
            | Step::EndStatement(s)
            | Step::Hold(s)
            | Step::Unhold(s) => self.inside(s, step),
        }
    }

    fn begin(&mut self, session: usize, repeatable: bool) {
        if self.running[session].is_some() {
            return;
        }
        let isolation =
            if repeatable { IsolationLevel::RepeatableRead } else { IsolationLevel::ReadCommitted };
        let tx = Transaction::begin(&self.host.session(session as i32), isolation, false);
        self.running[session] = Some(Running {
            tx,
            levels: vec![ModelLevel::default()],
            rolled_back: Vec::new(),
            current: None,
            held: Vec::new(),
        });
    }

    /// A step of a running transaction.
    fn inside(&mut self, session: usize, step: &Step) {
        let commits = self.commits;
        let Some(running) = &mut self.running[session] else { return };
        match *step {
            Step::Write(_) => {
                let xid = running.tx.xid(&self.host).expect("xid");
                self.note_xids(session, xid);
            }
            Step::Savepoint(_) => {
                running.tx.savepoint("s");
                running.levels.push(ModelLevel::default());
            }
            Step::Release(_, n) if running.levels.len() > 1 => {
                let depth = 2 + n % (running.levels.len() - 1);
                running.tx.release_sub(depth);
                let inner = running.levels.split_off(depth - 1);
                let outer = &mut running.levels[depth - 2];
                outer.all.extend(inner.into_iter().flat_map(|level| level.all));
            }
            Step::RollBack(_, n) if running.levels.len() > 1 => {
                let depth = 2 + n % (running.levels.len() - 1);
                running.tx.rollback_sub(&self.host, depth);
                for xid in running.levels.split_off(depth - 1).into_iter().flat_map(|l| l.all) {
                    self.fates.insert(xid, Fate::Aborted);
                    running.rolled_back.push(xid);
                }
            }
            Step::Statement(_) => {
                let snapshot = running.tx.statement_snapshot();
                let keeps = running.tx.isolation().keeps_snapshot();
                if !(keeps && running.current.is_some()) {
                    running.current = Some((snapshot, commits));
                }
                assert_eq!(running.current.map(|c| c.0), Some(snapshot));
            }
            Step::EndStatement(_) => {
                running.tx.end_statement();
                if !running.tx.isolation().keeps_snapshot() {
                    running.current = None;
                }
            }
            Step::Hold(_) => {
                if let Some((snapshot, number)) = running.current {
                    running.held.push((running.tx.hold_snapshot(snapshot), snapshot, number));
                }
            }
            Step::Unhold(_) => {
                if let Some((hold, ..)) = running.held.pop() {
                    running.tx.release_snapshot(hold);
                }
            }
            _ => {}
        }
    }

    /// After a write under `xid`: the levels outside that had no xid have one now.
    fn note_xids(&mut self, session: usize, xid: Xid) {
        let running = self.running[session].as_mut().expect("it runs");
        let missing = running.levels.iter().filter(|level| level.own.is_none()).count() as u64;
        let without = running.levels.iter_mut().filter(|level| level.own.is_none());
        for (level, raw) in without.zip(xid.raw() + 1 - missing..) {
            let taken = Xid::new(raw);
            level.own = Some(taken);
            level.all.push(taken);
            assert!(self.fates.insert(taken, Fate::Running).is_none(), "handed out once");
        }
        assert_eq!(running.levels.last().and_then(|level| level.own), Some(xid));
    }

    fn commit(&mut self, session: usize, sync: bool) {
        let Some(running) = self.running[session].take() else { return };
        let mode =
            if sync { CommitMode::Sync } else { CommitMode::Async { max_loss_micros: 1_000 } };
        let outcome = running.tx.commit(&self.host, mode).expect("room");
        let Some(at) = outcome.lsn else { return };
        self.commits += 1;
        for xid in running.levels.into_iter().flat_map(|level| level.all) {
            self.fates.insert(xid, Fate::Committed { number: self.commits, at });
        }
    }

    fn abort(&mut self, session: usize, politely: bool) {
        let Some(running) = self.running[session].take() else { return };
        if politely {
            running.tx.abort(&self.host);
        } else {
            drop(running.tx);
        }
        for xid in running.levels.into_iter().flat_map(|level| level.all) {
            self.fates.insert(xid, Fate::Aborted);
        }
    }

    fn burn(&mut self) {
        let txns = &self.host.txns;
        for n in 0..window::CHUNK_XIDS {
            let xid = txns.assign_xid(None).expect("xid");
            let first_or_last = n < 2 || n + 2 > window::CHUNK_XIDS;
            if n % 2 == 0 {
                let payload = CommitPayload::default();
                let at = txns.commit(&self.host.log, xid, &[], &payload).expect("room");
                self.commits += 1;
                if first_or_last {
                    self.fates.insert(xid, Fate::Committed { number: self.commits, at });
                }
            } else {
                txns.abort_unlogged(xid, &[]);
                if first_or_last {
                    self.fates.insert(xid, Fate::Aborted);
                }
            }
        }
    }

    fn checkpoint(&mut self, complete: bool) {
        let (txns, log) = (&self.host.txns, &self.host.log);
        let redo = txns.with_commit_mutex(|| log.inserted());
        let next = txns.next_xid();
        txns.clog().write_dirty(log).expect("a healthy disk");
        if complete {
            log.flush_all();
            (self.redo, self.next_at_redo) = (redo, next);
        }
    }

    /// Power fails; of the records after the flushed position the first `keep` survive.
    fn crash(&mut self, seed: u64, keep: usize) {
        let disk = self.disk.crash(seed);
        let flushed = self.host.log.flushed_to();
        let mut records = std::mem::take(&mut self.history);
        records.extend(self.host.log.records());
        let durable = records.iter().filter(|r| r.end <= flushed).count();
        records.truncate(durable + keep);
        let end = records.last().map_or(flushed, |r| r.end.max(flushed));
        self.running = Default::default();

        let clog = open(&disk);
        let mut next = self.next_at_redo;
        for record in records.iter().filter(|r| r.end > self.redo) {
            let body = decode_end_record(record.xid, &record.data).expect("well formed");
            let last = body.children.last().copied().unwrap_or(record.xid);
            next = next.max(last.next());
            match record.kind {
                EndKind::Commit => clog.redo_commit(record.xid, &body, record.end),
                EndKind::Abort => clog.redo_abort(record.xid, &body),
            }
            .expect("room");
        }
        for fate in self.fates.values_mut() {
            match *fate {
                Fate::Committed { at, .. } if at <= end => {}
                _ => *fate = Fate::Aborted,
            }
        }
        self.fates.retain(|xid, _| *xid < next);
        let txns = TxnManager::recover(clog, next, end).expect("recovered");
        self.host = TestHost::with(txns, TestLog::starting(end));
        self.disk = disk;
        self.history = records;
    }

    fn check(&self) {
        let txns = &self.host.txns;
        let caches = StatusCacheKind::ALL.map(StatusCache::new);
        for (&xid, &fate) in &self.fates {
            let matches = match (fate, txns.status(xid)) {
                (Fate::Running, XidStatus::InProgress) | (Fate::Aborted, XidStatus::Aborted) => {
                    true
                }
                (Fate::Committed { at, .. }, XidStatus::Committed(stamp)) => {
                    stamp.is_settled() || stamp.lsn() == at
                }
                _ => false,
            };
            assert!(matches, "{xid:?}: {fate:?}, found {:?}", txns.status(xid));
            for cache in &caches {
                let now = || cache.status(txns, xid, Xid::INVALID).0;
                assert_eq!((now(), now()), (txns.status(xid), txns.status(xid)));
            }
            if fate == Fate::Running {
                assert!(xid >= txns.floor(), "{xid:?} runs below the floor");
            }
        }
        let horizon = txns.horizon();
        for running in self.running.iter().flatten() {
            let held = running.held.iter().map(|(_, snapshot, number)| (*snapshot, *number));
            for (snapshot, number) in running.current.into_iter().chain(held) {
                assert!(horizon <= snapshot.s);
                self.check_snapshot(snapshot, number);
            }
            self.check_own(running);
        }
    }

    fn check_snapshot(&self, snapshot: Snapshot, commits: u64) {
        for (&xid, &fate) in &self.fates {
            let expected = matches!(fate, Fate::Committed { number, .. } if number <= commits);
            assert_eq!(snapshot.sees(&self.host.txns, xid), expected, "{xid:?} {fate:?}");
            if snapshot.is_below_floor(xid) {
                let committed = matches!(fate, Fate::Committed { .. });
                assert_eq!(committed, expected, "below the floor, committed means visible");
            }
        }
    }

    fn check_own(&self, running: &Running) {
        for &xid in self.fates.keys() {
            let live = running.levels.iter().any(|level| level.all.contains(&xid));
            let expected = if live {
                OwnXid::Live
            } else if running.rolled_back.contains(&xid) {
                OwnXid::RolledBack
            } else {
                OwnXid::NotOwn
            };
            assert_eq!(running.tx.is_own(xid), expected, "{xid:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_answer_is_the_models(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
            world.check();
        }
    }
}
