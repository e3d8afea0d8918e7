//! A device that fails once: at every single fsync, and at every single write.
//!
//! ```text
//!   D0 ─1─> D1 ─2─> ... ─k─x                    the n-th call fails during step k
//!                          │  58030 "could not fsync file ...": nothing was acknowledged
//!                          ├─ every later statement that writes: 58030, and so is its commit
//!                          ├─ reading goes on
//!                          └─ restart: D(k-1), or Dk; nothing that was acknowledged is gone
//! ```
//!
//! After such a failure the kernel may have dropped what it could not write, and a later success
//! would say nothing about that (fault 8 of the simulated disk): whoever believed it would lose
//! commits here. Log, data files, commit log, control file and directories are all met. What is
//! not final is the preparation of a segment of the log, and of what an unlogged relation restarts
//! from: nothing relies on them yet, so they are thrown away and made again.

mod common;

use common::from_env;
use common::workload::{
    Checkpoint, Sql, Tables, WORK, after_crash, open, perform, prepared, reference, tables,
};
use inkling::{Error, Session};
use inkling_storage::engine::Engine;
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::{Fault, Op};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a run met: the file, and whether that was final.
struct Met {
    path: String,
    was_final: bool,
    /// Reading went on.
    read: bool,
}

/// Whatever writes is refused; whatever only reads is not, unless it meets a commit that is not
/// durable and now never will be, or a file that is not believed any more. True: it was read.
fn check_refusals(engine: &Arc<Engine>, session: &mut Session, what: &str) -> bool {
    assert!(engine.check_health().is_err(), "{what}");
    let refused = |e: Error, doing: &str| {
        assert_eq!(e.state.code(), "58030", "{what}, {doing}: {e}");
        assert!(e.message().starts_with("could not "), "{what}: {e}");
        assert!(e.get_hint().is_some_and(|h| h.contains("Restart the server")), "{what}: {e}");
    };
    for sync in ["on", "off"] {
        session.execute(&format!("set synchronous_commit = {sync}"), &[]).expect("a setting");
        let sql = "insert into a values (5000, 1, 'late')";
        refused(session.execute(sql, &[]).expect_err(what), sql);
        session.execute("begin", &[]).expect("begin");
        let outcome = session
            .execute("update a set v = v + 1 where id = 1", &[])
            .and_then(|_| session.execute("commit", &[]));
        refused(outcome.expect_err(what), "a block");
        if session.in_transaction() {
            session.execute("rollback", &[]).expect("a rollback");
        }
    }
    refused(session.execute("checkpoint", &[]).expect_err(what), "a checkpoint");
    let count = session.query("select count(*) from a", &[]).and_then(|rows| rows.scalar::<i64>());
    match count {
        Ok(count) => count > 0,
        Err(e) => {
            let may = what.contains("pg_wal") || what.contains("base");
            assert!(may && e.state.code() == "58030", "{what}: {e}");
            false
        }
    }
}

/// Runs the workload until something is refused for good, and sees what a restart finds.
fn run(base: &Sim, states: &[Tables], fault: Fault, what: &str, seed: u64) -> Option<Met> {
    let sim = base.crash(1);
    let db = open(&sim).expect("opened");
    let mut session = db.session().expect("a session");
    sim.disk.inject(fault);
    let (mut durable, mut sync) = (0, true);
    for (at, step) in WORK.iter().enumerate() {
        let outcome = perform(step, db.engine(), &mut session);
        let failed = sim.disk.failures();
        let what = format!("{what}, step {at}, {failed:?}");
        if db.engine().check_health().is_err() {
            sim.disk.clear_faults();
            if let Err(e) = &outcome {
                assert_eq!(e.state.code(), "58030", "{what}: {e}");
            }
            let read = check_refusals(db.engine(), &mut session, &what);
            drop(session);
            check_restart(&sim, &states[durable..=at + 1], &what, seed);
            drop(db);
            return Some(Met { path: failed.first()?.1.clone(), was_final: true, read });
        }
        if let Err(e) = outcome {
            // Not final: again, and it works.
            let unused = |path: &str| path.contains("pg_wal") || path.ends_with("_init");
            assert!(failed.iter().any(|(_, path)| unused(path)), "{what}: {e}");
            perform(step, db.engine(), &mut session).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        match step {
            Sql(["set synchronous_commit = off"]) => sync = false,
            Sql(["set synchronous_commit = on"]) => sync = true,
            Checkpoint => durable = at + 1,
            Sql(_) if sync => durable = at + 1,
            _ => {}
        }
    }
    let path = sim.disk.failures().first()?.1.clone();
    Some(Met { path, was_final: false, read: true })
}

/// After the process ended, and after a power failure, there is one of these states.
fn check_restart(sim: &Sim, states: &[Tables], what: &str, seed: u64) {
    for crash in [seed, seed + 1, seed + 2] {
        let after = sim.crash(crash);
        let db = open(&after).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut session = db.session().expect("a session");
        let found = tables(&mut session).expect("readable");
        assert!(states.iter().any(|state| after_crash(state) == found), "{what}: {found:?}");
        let report = inkling::check::check(db.sql()).expect("checked");
        assert!(report.is_clean(), "{what}: {:?}", report.problems);
        session.execute("insert into a values (5000, 1, 'after')", &[]).expect("writes again");
    }
}

fn kind_of(path: &str) -> &str {
    match path {
        "" => "the directory",
        _ if path.ends_with("new-segment") => "new segment",
        _ if path.ends_with("_init") => "init fork",
        _ => path.split('/').next().unwrap_or(path),
    }
}

fn every(op: Op, must_be_final: &[&str]) {
    let base = prepared(5);
    let states = reference(&base);
    let before = base.crash(1);
    let db = open(&before).expect("opened");
    let mut session = db.session().expect("a session");
    let started = before.disk.calls(op);
    for step in WORK {
        perform(step, db.engine(), &mut session).expect("no fault is planned");
    }
    let all = before.disk.calls(op) - started;
    let (mut passing, mut lasting, mut read) = (BTreeSet::new(), BTreeSet::new(), 0);
    for n in (1..=all).step_by(from_env("INKLING_FAULT_STEP", 1) as usize) {
        let what = format!("{op:?} {n} of {all}");
        let met = run(&base, &states, Fault::eio(op).nth(n), &what, n).expect("it was met");
        read += u64::from(met.read);
        let set = if met.was_final { &mut lasting } else { &mut passing };
        set.insert(kind_of(&met.path).to_owned());
    }
    assert!(read > all / 4, "{read} of {all} runs could go on reading");
    println!(
        "{op:?}: {all} calls, {read} times reading went on, final in {lasting:?}, passing in {passing:?}"
    );
    for kind in must_be_final {
        assert!(lasting.contains(*kind), "{kind} is not among {lasting:?}");
        assert!(!passing.contains(*kind) || *kind == "pg_wal", "{kind} is among {passing:?}");
    }
}

#[test]
fn an_fsync_that_fails_once_is_final() {
    every(Op::Sync, &["pg_wal", "base", "pg_xact", "global"]);
}

#[test]
fn a_write_that_fails_once_is_final() {
    every(Op::Write, &["pg_wal", "base", "pg_xact", "global"]);
}

#[test]
fn a_directorys_fsync_that_fails_once_loses_nothing() {
    every(Op::SyncDir, &["base", "pg_xact"]);
}
