//! What sessions tell their clients, and whether it stays true: of commits whose flush is still to
//! come or has failed, and of rows that a suspended portal has yet to send.

mod common;

use common::Each;
use inkling_sql::analyze::ParamTypes;
use inkling_sql::error::Result;
use inkling_sql::functions::FnContext;
use inkling_sql::session::{Database, Progress, Session};
use inkling_sql::settings::ServerSettings;
use inkling_sql::types::{Datum, TypeRef};
use inkling_storage::engine::testing;
use inkling_storage::vfs::{Fault, Op};
use std::sync::Arc;

/// A database on a simulated disk. Nothing runs in the background.
struct World {
    sim: testing::Sim,
    db: Arc<Database>,
}

impl World {
    fn new() -> Self {
        let mut sim = testing::Sim::new(1);
        sim.options = testing::options(2048);
        let db = Database::open(sim.open(), ServerSettings::default()).expect("a database");
        World { sim, db }
    }

    fn client(&self, pid: i32) -> Client {
        Client(common::session(&self.db, pid))
    }

    /// From now on what is committed is seen, and never durable.
    fn log_fails(&self) {
        self.sim.disk.inject(Fault::eio(Op::Sync).on("pg_wal").forever());
    }
}

struct Client(Session);

impl Client {
    fn bind(&mut self, portal: &str, sql: &str) -> Result<()> {
        let statement = self.0.parse_statements(sql)?.pop();
        let prepared = self.0.prepare_parsed(statement, ParamTypes::none())?;
        self.0.bind(portal, prepared, Vec::new())
    }

    /// Rows sent, and whether there may be more.
    fn step(&mut self, portal: &str, max_rows: u64) -> Result<(u64, bool)> {
        let mut rows = 0;
        let mut sink = Each(|_: &[Datum], _: &[TypeRef], _: &dyn FnContext| rows += 1);
        let more = loop {
            match self.0.step(portal, &mut sink, max_rows)? {
                Progress::Wait(handle) => handle.block(),
                Progress::Suspended => break true,
                Progress::Complete(_) => break false,
                _ => {}
            }
        };
        Ok((rows, more))
    }

    fn statement(&mut self, sql: &str) -> Result<u64> {
        self.0.begin_message();
        self.bind("", sql)?;
        Ok(self.step("", 0)?.0)
    }

    /// A query string.
    fn run(&mut self, sql: &str) -> Result<u64> {
        let mut rows = 0;
        let outcome = sql.split(';').try_for_each(|sql| {
            rows += self.statement(sql)?;
            Ok(())
        });
        let outcome = outcome.and_then(|()| self.0.finish_implicit());
        if outcome.is_err() {
            self.0.statement_failed();
        }
        outcome.map(|()| rows)
    }

    /// Whether what was answered so far may be told to the client.
    fn may_tell(&mut self) -> bool {
        matches!(self.0.answer_barrier(), Ok(None))
    }

    fn told(&mut self, sql: &str) -> u64 {
        let rows = self.run(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        while let Some(wait) = self.0.answer_barrier().expect("a durable answer") {
            wait.block();
        }
        rows
    }
}

#[test]
fn nothing_is_told_of_a_commit_whose_flush_failed_however_the_teller_ends() {
    let world = World::new();
    let mut a = world.client(1);
    a.told("create table t (x int primary key)");
    // Each with a session of its own: one that has read what it may not tell stays barred.
    let tellers = [
        ("select * from t", "00000", "a plain reader"),
        ("select 1 / (x - 1) from t", "22012", "the error tells that there is a row with x = 1"),
        ("begin; select * from t; rollback", "00000", "it has told, though it is rolled back"),
        ("begin; select * from t; select 1 / 0", "22012", "a block that failed"),
        ("begin; savepoint s; select * from t; rollback to s", "00000", "a savepoint"),
    ];
    let mut sessions: Vec<Client> =
        (2..).map(|pid| world.client(pid)).take(tellers.len()).collect();
    sessions.iter_mut().for_each(|b| assert_eq!(b.told("select * from t"), 0));
    world.log_fails();
    assert!(a.run("insert into t values (1)").is_ok(), "it is committed and seen");
    assert!(!a.may_tell());
    for (b, (sql, state, why)) in sessions.iter_mut().zip(tellers) {
        let found = b.run(sql).map_or_else(|e| e.state.code().to_owned(), |_| "00000".to_owned());
        assert_eq!(found, state, "{sql}");
        assert!(!b.may_tell(), "{why}");
    }
}

#[test]
fn nothing_is_told_of_a_definition_whose_flush_failed() {
    let world = World::new();
    let (mut a, mut b) = (world.client(1), world.client(2));
    a.told("create table t (x int); create table u (x int)");
    a.told("insert into t values (1)");
    assert_eq!(b.told("select * from t"), 1);
    assert_eq!(b.told("select * from u"), 0);
    world.log_fails();
    let _ = a.run("truncate t");
    assert!(!a.may_tell());
    assert_eq!(b.run("select * from t").expect("the new, empty file is seen"), 0);
    assert!(!b.may_tell(), "a crash would bring the row back");
    let mut late = world.client(3);
    assert_eq!(late.run("select * from t").expect("seen"), 0);
    assert!(!late.may_tell(), "a session that began after it");
}

/// Another statement of the transaction must not let go of the snapshot of a portal that was
/// suspended: what it has yet to send would be swept away.
#[test]
fn a_suspended_portal_keeps_its_rows() {
    let world = World::new();
    let (mut a, mut b) = (world.client(1), world.client(2));
    a.told("create table t (x int)");
    a.told("insert into t select generate_series(1, 2000)");
    a.told("begin");
    a.bind("p", "select x from t").expect("bind");
    assert_eq!(a.step("p", 10).expect("rows"), (10, true));
    a.statement("select 1").expect("another statement");
    b.told("delete from t where x > 1");
    b.told("vacuum t");
    b.told("insert into t select generate_series(1, 500)");
    a.statement("select 2").expect("yet another statement");
    assert_eq!(a.step("p", 100).expect("rows"), (100, true));
    assert_eq!(a.step("p", 0).expect("rows"), (1890, false));
    assert_eq!(a.told("select x from t"), 501);
    a.told("commit");
    b.told("vacuum t");
    assert_eq!(b.told("select x from t"), 501);
}
