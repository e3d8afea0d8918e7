//! A full disk, at every single call that may find it full.
//!
//! ```text
//!   a workload of steps, each all or nothing:   D0 ─1─> D1 ─2─> D2 ─3─> ...   (what tables hold)
//!   for every n: the n-th call that takes space fails, and those after it
//!     step k fails:  SQLSTATE 53100, the message names the file, the tables are D(k-1)
//!     power fails:   recovery finds D(k-1), or what was never acknowledged to be durable
//!     space is back: step k and the rest of the workload succeed, in the same session
//! ```
//!
//! The workload is `common/workload.rs`. Two kinds of file system:
//!
//! - one that overwrites in place: what takes space is making a file, making one longer, reserving,
//!   renaming. From the n-th such call on all fail, until space is given back;
//! - one that does not (copy on write, thin provisioning): any write may find it full, in a segment
//!   of the log that was prepared, too. Some calls in a row fail. A commit that is in the log's
//!   buffers and visible is not refused for that: it waits.
//!
//! That every n was met is asserted, and that all kinds of files were among them.

mod common;

use common::from_env;
use common::workload::{
    Checkpoint, Sql, Step, Tables, WORK, after_crash, open, perform, prepared, reference, tables,
};
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::{Fault, MAY_TAKE_SPACE, Op, TAKES_SPACE};
use std::collections::BTreeSet;

/// How many calls of these kinds the workload makes.
fn calls(base: &Sim, kinds: &[Op]) -> u64 {
    let sim = base.crash(1);
    let db = open(&sim).expect("opened");
    let count = || kinds.iter().map(|op| sim.disk.calls(*op)).sum::<u64>();
    let before = count();
    let mut session = db.session().expect("a session");
    for step in WORK {
        perform(step, db.engine(), &mut session).expect("no fault is planned");
    }
    count() - before
}

/// One run of the workload, with one shortage of space in it.
struct Run<'a> {
    sim: Sim,
    states: &'a [Tables],
    what: String,
    /// The last state that a crash may not undo.
    durable: usize,
    sync: bool,
    /// Where the shortage was met.
    met: BTreeSet<String>,
}

/// The kind of file, for the list of places that were met.
fn place(op: Op, path: &str) -> String {
    let kind = match path.split('/').next() {
        Some("pg_wal") if path.ends_with("new-segment") => "new segment",
        Some("pg_wal") => "segment",
        Some("pg_xact") => "commit log",
        Some("global") => "control file",
        Some("base") if path.ends_with("_fsm") => "free space map",
        Some("base") if path.ends_with("_vm") => "visibility map",
        Some("base") if path.ends_with("_init") => "init fork",
        Some("base") => "relation",
        _ => path,
    };
    format!("{op:?} {kind}")
}

impl Run<'_> {
    fn note(&mut self, at: usize, step: &Step) {
        match step {
            Sql(["set synchronous_commit = off"]) => self.sync = false,
            Sql(["set synchronous_commit = on"]) => self.sync = true,
            // A checkpoint makes everything before it durable.
            Checkpoint => self.durable = at + 1,
            Sql(_) if self.sync => self.durable = at + 1,
            _ => {}
        }
    }

    /// The step failed, and rightly so.
    fn check_refusal(&mut self, at: usize, e: &inkling::Error) {
        let what = &self.what;
        assert_eq!(e.state.code(), "53100", "{what}, step {at}: {e} {:?}", e.get_detail());
        let failed = self.sim.disk.failures();
        let named = failed.iter().any(|(_, path)| e.message().contains(path));
        assert!(named, "{what}, step {at}: {e} names none of {failed:?}");
    }

    /// What a power failure at this moment would leave is one of the states up to `newest`.
    fn check_crash(&self, newest: usize, seed: u64) {
        let after = self.sim.crash(seed);
        let db = open(&after).unwrap_or_else(|e| panic!("{}: recovery: {e}", self.what));
        let found = tables(&mut db.session().expect("a session")).expect("readable");
        let fits = (self.durable..=newest).any(|at| after_crash(&self.states[at]) == found);
        assert!(fits, "{}: {} .. {newest} after a crash: {found:?}", self.what, self.durable);
        let report = inkling::check::check(db.sql()).expect("checked");
        assert!(report.is_clean(), "{}: {:?}", self.what, report.problems);
    }

    /// Runs the workload; true: some step was refused.
    fn go(&mut self, fault: Fault, seed: u64) -> bool {
        let db = open(&self.sim).expect("opened");
        let mut session = db.session().expect("a session");
        self.sim.disk.inject(fault);
        let mut refused = false;
        for (at, step) in WORK.iter().enumerate() {
            let mut outcome = perform(step, db.engine(), &mut session);
            if let Err(e) = &outcome {
                self.check_refusal(at, e);
                refused = true;
                // Still no space: the same, or it gets through.
                self.check_crash(at, seed);
                outcome = perform(step, db.engine(), &mut session);
                if let Err(e) = &outcome {
                    self.check_refusal(at, e);
                }
            }
            if refused {
                self.sim.disk.clear_faults();
            }
            if outcome.is_err() {
                let found = tables(&mut session).expect("readable");
                assert!(found == self.states[at], "{}, step {at} left something", self.what);
                perform(step, db.engine(), &mut session)
                    .unwrap_or_else(|e| panic!("{}, step {at} with space: {e}", self.what));
            }
            self.note(at, step);
        }
        self.sim.disk.clear_faults();
        for (op, path) in self.sim.disk.failures() {
            self.met.insert(place(op, &path));
        }
        let found = tables(&mut session).expect("readable");
        assert!(found == self.states[WORK.len()], "{}: the end", self.what);
        self.check_crash(WORK.len(), seed + 1);
        refused
    }
}

/// Every n, or every so many of them.
fn every_call(kinds: &[Op], fault: impl Fn(u64) -> Fault, must_meet: &[&str], step: u64) {
    let base = prepared(3);
    let states = reference(&base);
    let all = calls(&base, kinds);
    let mut met = BTreeSet::new();
    let mut refused = 0;
    for n in (1..=all).step_by(from_env("INKLING_SPACE_STEP", step) as usize) {
        let mut run = Run {
            sim: base.crash(1),
            states: &states,
            what: format!("call {n} of {all}"),
            durable: 0,
            sync: true,
            met: BTreeSet::new(),
        };
        refused += u64::from(run.go(fault(n), n));
        assert!(!run.met.is_empty(), "call {n} of {all} was never made");
        met.append(&mut run.met);
    }
    println!("{all} calls, {refused} runs with a refusal, met: {met:?}");
    for place in must_meet {
        assert!(met.contains(*place), "{place} was never met: {met:?}");
    }
}

#[test]
fn every_call_that_takes_space_may_fail_for_a_while() {
    let must_meet = [
        "Create new segment",
        "Allocate new segment",
        "Rename new segment",
        "Create commit log",
        "Extend commit log",
        "Create relation",
        "Allocate relation",
        "Create init fork",
    ];
    every_call(&TAKES_SPACE, |n| Fault::full(&TAKES_SPACE).nth(n).forever(), &must_meet, 1);
}

#[test]
fn every_write_may_find_the_disk_full() {
    let must_meet = [
        "Write segment",
        "Write new segment",
        "Write commit log",
        "Write relation",
        "Write control file",
    ];
    let some = |n| Fault::full(&MAY_TAKE_SPACE).nth(n).times(1 + n % 7);
    every_call(&MAY_TAKE_SPACE, some, &must_meet, 1);
}
