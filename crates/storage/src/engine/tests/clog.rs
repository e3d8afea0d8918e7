//! The commit log of a whole engine: more xids than files hold, mapped, cut, crashed.

use super::toy::{begin, commit};
use crate::buffer::Persistence;
use crate::engine::testing::{Sim, restart_from_xid};
use crate::engine::{CheckpointKind, Engine, ShutdownMode};
use crate::ids::{Lsn, Xid};
use crate::vfs::Vfs;
use std::sync::Arc;

/// Xids in a file of the commit log.
const FILE: u64 = 32 * 32_256;

/// Transactions that committed and that aborted.
#[derive(Default)]
struct Fates {
    committed: Vec<Xid>,
    aborted: Vec<Xid>,
}

impl Fates {
    fn run(&mut self, engine: &Arc<Engine>) {
        for n in 0..6 {
            let mut tx = begin(engine);
            let xid = tx.xid(&**engine).expect("xid");
            if n % 3 == 0 {
                tx.abort(&**engine);
                self.aborted.push(xid);
            } else {
                commit(engine, tx).expect("commit");
                self.committed.push(xid);
            }
        }
    }

    #[track_caller]
    fn check(&self, engine: &Engine) {
        let kept = engine.txns.clog().page_range().start * 32_256;
        for xid in &self.committed {
            assert!(engine.txns.status(*xid).commit().is_some(), "{xid:?} committed");
        }
        for xid in self.aborted.iter().filter(|xid| xid.raw() >= kept) {
            assert!(engine.txns.status(*xid).commit().is_none(), "{xid:?} aborted");
        }
    }
}

/// A host whose transactions lie in four files, the engine open on it.
fn four_files(seed: u64) -> (Sim, Arc<Engine>, Fates) {
    let sim = Sim::new(seed);
    let mut engine = sim.open();
    let mut fates = Fates::default();
    fates.run(&engine);
    for file in 1..4 {
        restart_from_xid(&engine, Xid::new(file * FILE - 3)).expect("logged");
        drop(engine);
        engine = sim.open();
        fates.run(&engine);
    }
    settle(&engine);
    engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    (sim, engine, fates)
}

/// Everything has ended, been flushed, and is covered by every snapshot.
fn settle(engine: &Engine) {
    engine.wal.flush(engine.wal.inserted()).expect("flush");
    engine.txns.maintain(engine.wal.flushed());
}

#[test]
fn full_files_are_mapped_by_checkpoints_and_at_start() {
    let (sim, engine, mut fates) = four_files(1);
    assert_eq!(engine.txns.clog().mapped_files(), 3, "all that are full");
    fates.check(&engine);
    engine.shutdown(ShutdownMode::Fast).expect("shutdown");
    drop(engine);
    let engine = sim.open();
    assert_eq!(engine.txns.clog().mapped_files(), 3);
    fates.check(&engine);
    fates.run(&engine);
    settle(&engine);
    fates.check(&engine);
    for seed in 0..5 {
        let after = sim.crash(seed);
        fates.check(&after.open());
    }
}

#[test]
fn a_cut_needs_whole_files_and_waits_for_old_readers() {
    let (sim, engine, mut fates) = four_files(2);
    settle(&engine);
    assert!(!engine.cut_clog(Xid::new(FILE - 1), Lsn::new(8)).expect("nothing to do"));
    let oldest = Xid::new(2 * FILE + 9);
    let reader = engine.txns.session_slot();
    engine.txns.snapshot(&reader);
    fates.run(&engine);
    settle(&engine);
    let resolved_at = engine.txns.published();
    assert!(!engine.cut_clog(oldest, resolved_at).expect("too early"));
    engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    assert_eq!(engine.control_data().oldest_xid, Xid::FIRST_NORMAL);
    reader.advance(None);
    // Noted: the next checkpoint makes the cut.
    engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    assert_eq!(sim.disk.list("pg_xact").expect("list"), ["0002", "0003"]);
    assert_eq!(engine.control_data().oldest_xid, oldest);
    fates.check(&engine);
    drop(engine);
    let engine = sim.open();
    assert_eq!(engine.txns.clog().oldest(), oldest);
    fates.check(&engine);
}

#[test]
fn a_crash_at_any_step_of_a_cut_loses_nothing() {
    let oldest = Xid::new(3 * FILE - 1);
    let mut steps = 0;
    loop {
        let (sim, engine, mut fates) = four_files(steps);
        fates.run(&engine);
        settle(&engine);
        sim.disk.power_off_after(steps);
        let done = engine.cut_clog(oldest, engine.txns.published()).is_ok_and(|done| done)
            && !sim.disk.is_off();
        drop(engine);
        for seed in 0..3 {
            let after = sim.crash(seed);
            let engine = after.open();
            fates.check(&engine);
            let files = after.disk.list("pg_xact").expect("list");
            let named = engine.control_data().oldest_xid.raw() / FILE;
            assert_eq!(files[0], format!("{named:04X}"), "what is not needed is gone");
            settle(&engine);
            engine.cut_clog(oldest, Lsn::new(8)).expect("again");
            assert_eq!(after.disk.list("pg_xact").expect("list"), ["0002", "0003"]);
            fates.check(&engine);
        }
        if done {
            break;
        }
        steps += 1;
    }
    assert!(steps > 5, "only {steps} steps");
}

/// K1: after the cut nobody asks what became of a transaction below it; were its dropper taken for
/// committed, a relation that is in use would go.
#[test]
fn what_an_old_transaction_did_not_drop_survives_the_cut() {
    let sim = Sim::new(7);
    let engine = sim.open();
    restart_from_xid(&engine, Xid::new(FILE - 3)).expect("logged");
    drop(engine);
    let engine = sim.open();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    commit(&engine, tx).expect("commit");
    let mut dropper = begin(&engine);
    engine.drop_rel_at_commit(&mut dropper, rel).expect("noted");
    assert!(dropper.xid(&*engine).expect("xid") < Xid::new(FILE));
    let mut maker = begin(&engine);
    let never = engine.create_rel(&mut maker, Persistence::Permanent).expect("create");
    // Replay from here learns of both as of transactions that run.
    engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    dropper.abort(&*engine);
    maker.abort(&*engine);
    Fates::default().run(&engine);
    settle(&engine);
    assert!(engine.cut_clog(Xid::new(FILE + 1), Lsn::new(8)).expect("cut"));
    assert!(engine.txns.status(Xid::new(FILE - 2)).commit().is_some(), "nobody knows any more");
    for seed in 0..5 {
        let after = sim.crash(seed);
        drop(after.open());
        assert!(after.disk.exists(&format!("base/{rel}")));
        assert!(!after.disk.exists(&format!("base/{never}")));
    }
}
