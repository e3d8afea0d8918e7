//! Sequences through sessions: what is told, what a crash may take, many sessions at once.
//!
//! A client here does what the server does: it runs a statement to its end, waits for the session's
//! barrier, and only then counts what it got as *told*.

mod common;

use common::Each;
use inkling_sql::error::Result;
use inkling_sql::functions::FnContext;
use inkling_sql::session::{Database, Progress, RowSink, Session};
use inkling_sql::settings::ServerSettings;
use inkling_sql::types::{Datum, TypeRef};
use inkling_storage::engine::testing::Sim;
use inkling_storage::engine::{CheckpointKind, Engine, EngineOptions, ShutdownMode};
use std::collections::BTreeSet;
use std::sync::Arc;

fn integer(value: &Datum) -> Option<i64> {
    match value {
        Datum::Int4(v) => Some(i64::from(*v)),
        Datum::Int8(v) => Some(*v),
        Datum::Bool(v) => Some(i64::from(*v)),
        _ => None,
    }
}

struct Client(Session);

impl Client {
    fn new(db: &Arc<Database>, pid: i32) -> Client {
        Client(common::session(db, pid))
    }

    /// Runs statements to their end, but waits for nothing afterwards.
    fn run(&mut self, sql: &str) -> Result<Vec<i64>> {
        let mut found = Vec::new();
        let mut sink = Each(|values: &[Datum], _: &[TypeRef], _: &dyn FnContext| {
            found.extend(values.iter().filter_map(integer));
        });
        for parsed in self.0.parse_statements(sql)? {
            let outcome = self.run_one(parsed, &mut sink);
            if outcome.is_err() {
                self.0.statement_failed();
                return outcome.map(|()| Vec::new());
            }
        }
        self.0.finish_implicit()?;
        Ok(found)
    }

    fn run_one(
        &mut self,
        parsed: inkling_sql::analyze::ParsedStatement,
        sink: &mut impl RowSink,
    ) -> Result<()> {
        self.0.begin_message();
        let params = inkling_sql::analyze::ParamTypes::none();
        let prepared = self.0.prepare_parsed(Some(parsed), params)?;
        self.0.bind("", prepared, Vec::new())?;
        loop {
            match self.0.step("", sink, 0)? {
                Progress::Wait(handle) => handle.block(),
                Progress::Complete(_) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Runs statements and is told what they say.
    fn told(&mut self, sql: &str) -> Result<Vec<i64>> {
        let found = self.run(sql)?;
        while let Some(handle) = self.0.answer_barrier()? {
            handle.block();
        }
        Ok(found)
    }

    /// Whether the answer that is ready now has to wait for the log.
    fn has_to_wait(&mut self) -> bool {
        self.0.answer_barrier().expect("a sound log").is_some()
    }
}

fn open(sim: &Sim) -> Arc<Database> {
    Database::open(sim.open(), ServerSettings::default()).expect("a database")
}

/// An engine whose log nobody flushes in the background, so that waits can be seen.
fn quiet() -> (Sim, Arc<Database>) {
    let mut sim = Sim::new(9);
    sim.options.shared_buffers_bytes = 8 << 20;
    let db = open(&sim);
    (sim, db)
}

#[test]
fn whoever_takes_from_a_batch_waits_for_its_record() {
    let (_sim, db) = quiet();
    let (mut a, mut b) = (Client::new(&db, 1), Client::new(&db, 2));
    a.told("create sequence s").expect("made");
    // Everything so far is durable: only what follows can be waited for.
    let flush = || db.engine.wal.flush(db.engine.wal.inserted()).expect("flushed");
    flush();
    assert!(!a.has_to_wait());
    assert_eq!(a.run("select nextval('s')").expect("a value"), [1]);
    assert_eq!(b.run("select nextval('s')").expect("a value"), [2]);
    let before = db.engine.wal.flushed();
    assert!(db.engine.wal.inserted() > before, "a batch was logged");
    assert!(b.has_to_wait(), "though another session logged it");
    flush();
    assert!(!a.has_to_wait() && !b.has_to_wait());
    assert_eq!(a.run("select nextval('s')").expect("a value"), [3]);
    assert!(!a.has_to_wait(), "logged long ago");
    // A rollback does not unsay it.
    a.run("select setval('s', 100)").expect("set");
    assert!(a.has_to_wait());
    flush();
    a.run("begin; select nextval('s'); rollback").expect("a value");
    assert!(a.has_to_wait());
    flush();
    // Values cached in the session hang on the record as well.
    a.told("create sequence c cache 3").expect("made");
    flush();
    assert_eq!(a.run("select nextval('c'), nextval('c')").expect("values"), [1, 2]);
    assert!(a.has_to_wait());
    flush();
    // Who does not wait for commits does not wait for this.
    b.told("set synchronous_commit = off").expect("set");
    b.run("select setval('s', 500), nextval('s')").expect("values");
    assert!(!b.has_to_wait());
    // A column's sequence is worth what the table is.
    a.told(
        "create table async (id serial) with (durability = async);
         create table sync (id serial) with (durability = sync)",
    )
    .expect("made");
    flush();
    a.run("insert into async default values returning id").expect("a row");
    assert!(!a.has_to_wait(), "neither for the row nor for its number");
    flush();
    b.run("select nextval('async_id_seq'), nextval('sync_id_seq')").expect("values");
    assert!(b.has_to_wait(), "though its session waits for no commit");
    flush();
    b.run("begin; select setval('sync_id_seq', 40); rollback").expect("a value");
    assert!(b.has_to_wait());
    // Nobody waits for what a crash takes anyway.
    a.told("create unlogged sequence u").expect("made");
    flush();
    a.run("select nextval('u'), setval('u', 7)").expect("values");
    assert!(!a.has_to_wait());
}

#[test]
fn values_are_lost_by_a_crash_but_never_told_twice() {
    for seed in 0..20u64 {
        let mut sim = Sim::new(seed);
        let mut db = open(&sim);
        let mut client = Client::new(&db, 1);
        client
            .told(
                "create sequence s; create sequence c cache 4; create unlogged sequence u start 5;
                 create table t (id serial primary key, k int generated always as identity);",
            )
            .expect("made");
        db.engine.checkpoint(CheckpointKind::Immediate).expect("a checkpoint");
        let mut told: [BTreeSet<i64>; 3] = Default::default();
        for life in 0..4u64 {
            let statements = [
                "select nextval('s')",
                "select nextval('c')",
                "insert into t default values returning id",
            ];
            sim.disk.power_off_after(5 + (seed * 13 + life * 29) % 60);
            'life: for round in 0..120u64 {
                let which = ((round * 7 + seed) % 3) as usize;
                let Ok(values) = client.told(statements[which]) else { break 'life };
                for value in values {
                    assert!(told[which].insert(value), "seed {seed}: {value} was told twice");
                }
                if round % 5 == 0 && client.told("select nextval('u')").is_err() {
                    break 'life;
                }
                if round % 23 == 22 && db.engine.checkpoint(CheckpointKind::Immediate).is_err() {
                    break 'life;
                }
            }
            drop(client);
            drop(db);
            sim = sim.crash(seed * 10 + life);
            db = open(&sim);
            client = Client::new(&db, 1);
            assert_eq!(client.told("select nextval('u')").expect("a value"), [5], "starts again");
            for (which, sql) in statements.into_iter().enumerate() {
                let value = client.told(sql).expect("a value")[0];
                assert!(told[which].insert(value), "seed {seed}: {value} again after a crash");
            }
            let report = inkling_storage_check(&db.engine, &mut client);
            assert_eq!(report, Vec::<String>::new(), "seed {seed}");
        }
    }
}

/// What the storage engine finds wrong with the sequences of the catalog.
fn inkling_storage_check(engine: &Engine, client: &mut Client) -> Vec<String> {
    let files = client
        .told("select relfilenode::int8 from pg_class where relkind = 'S' order by 1")
        .expect("the files");
    let params = inkling_storage::seq::SeqParams {
        increment: 1,
        min: 1,
        max: i64::from(i32::MAX),
        cycle: false,
    };
    let check = |rel: &i64| {
        let rel = inkling_storage::ids::RelId::new(*rel as u32);
        inkling_storage::seq::check(engine, rel, &params).expect("readable")
    };
    files.iter().flat_map(check).collect()
}

#[test]
fn unlogged_sequences_survive_a_clean_stop() {
    let sim = Sim::new(3);
    let db = open(&sim);
    let mut client = Client::new(&db, 1);
    client.told("create unlogged sequence u; create unlogged table t (id serial)").expect("made");
    client.told("select nextval('u'), nextval('u')").expect("values");
    client.told("insert into t select from generate_series(1, 40)").expect("rows");
    drop(client);
    db.engine.shutdown(ShutdownMode::Fast).expect("stopped");
    drop(db);
    let db = open(&sim);
    let mut client = Client::new(&db, 1);
    assert_eq!(client.told("select nextval('u')").expect("a value"), [3]);
    let id = client.told("insert into t default values returning id").expect("a row");
    assert_eq!(id, [41]);
    drop(client);
    drop(db);
    let db = open(&sim.crash(1));
    let mut client = Client::new(&db, 1);
    assert_eq!(client.told("select nextval('u')").expect("a value"), [1]);
    let id = client.told("insert into t default values returning id").expect("a row");
    assert_eq!(id, [1], "the rows went with the crash, so the numbers begin again");
}

#[test]
fn many_sessions_get_every_number_once() {
    const SESSIONS: i32 = 6;
    let dir = tempfile::tempdir().expect("a directory");
    let options = EngineOptions { fsync: false, ..EngineOptions::default() };
    let (engine, _) = Engine::open_dir(dir.path(), options).expect("an engine");
    let db = Database::open(engine, ServerSettings::default()).expect("a database");
    let mut first = Client::new(&db, 100);
    first
        .told(
            "create sequence s; create sequence c cache 10;
             create table t (id bigserial primary key, g int generated by default as identity)",
        )
        .expect("made");
    let work = |pid: i32| {
        let mut client = Client::new(&db, pid);
        let (mut s, mut c) = (Vec::new(), Vec::new());
        for round in 0..100 {
            s.extend(client.told("select nextval('s'), nextval('s')").expect("values"));
            c.extend(client.told("select nextval('c')").expect("a value"));
            client.told("insert into t select from generate_series(1, 3)").expect("rows");
            if round % 10 == 9 {
                client.told("begin; insert into t default values; rollback").expect("undone");
            }
        }
        (s, c)
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (1..=SESSIONS).map(|pid| scope.spawn(move || work(pid))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    let all: Vec<i64> = parts.iter().flat_map(|(s, _)| s.iter().copied()).collect();
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "a value was given twice");
    let count = i64::from(SESSIONS) * 200;
    assert!(distinct.into_iter().eq(1..=count), "none is left out");
    let cached: Vec<i64> = parts.iter().flat_map(|(_, c)| c.iter().copied()).collect();
    let distinct: BTreeSet<i64> = cached.iter().copied().collect();
    assert_eq!(distinct.len(), cached.len());
    assert!(distinct.into_iter().eq(1..=i64::from(SESSIONS) * 100), "caches were used up");
    let rows = i64::from(SESSIONS) * 300;
    let (given, lost) = (rows + i64::from(SESSIONS) * 10, 0);
    let found = first
        .told("select count(*), count(distinct id), count(distinct g), max(id) - min(id) from t")
        .expect("counts");
    assert_eq!(found[..3], [rows, rows, rows]);
    assert!(found[3] < given - lost, "numbers are lost by rollbacks only");
}

#[test]
fn what_is_wanted_of_a_new_file_waits_for_who_takes_values() {
    let (_sim, db) = quiet();
    let (mut a, mut b) = (Client::new(&db, 1), Client::new(&db, 2));
    a.told("create sequence s").expect("made");
    a.told("begin; select nextval('s')").expect("a value");
    std::thread::scope(|scope| {
        let altering = scope.spawn(|| b.told("alter sequence s increment 10").expect("altered"));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!altering.is_finished(), "the lock is held until the transaction ends");
        a.told("select nextval('s'); commit").expect("a value");
        altering.join().expect("no panic");
    });
    assert_eq!(a.told("select nextval('s')").expect("a value"), [12]);
}
