//! Levels of tables end to end, on a simulated disk with a simulated clock.
//!
//! There are no background threads: the log's writer runs when a test says so, time passes when a
//! test says so. What nobody asks to be flushed is not; so a commit was synchronous if the log is
//! durable when its client is answered.

mod common;

use common::Each;
use inkling_sql::error::Result;
use inkling_sql::functions::FnContext;
use inkling_sql::session::{Database, Progress, RowSink, Session};
use inkling_sql::settings::{ChangeSource, ServerSettings};
use inkling_sql::types::{self, Datum, TypeRef};
use inkling_storage::engine::Engine;
use inkling_storage::engine::testing::Sim;
use inkling_storage::ids::Lsn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Runs one statement; its answer is not held back yet. Columns of a row are separated by a bar.
fn run(session: &mut Session, sql: &str) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    let mut sink = Each(|values: &[Datum], tys: &[TypeRef], cx: &dyn FnContext| {
        let mut line = Vec::new();
        for (i, (value, ty)) in values.iter().zip(tys).enumerate() {
            if i > 0 {
                line.push(b'|');
            }
            if !value.is_null() {
                types::output(value, ty.oid, cx, &mut line);
            }
        }
        rows.push(String::from_utf8_lossy(&line).into_owned());
    });
    session.begin_message();
    let outcome = drive(session, sql, &mut sink);
    if outcome.is_err() {
        session.statement_failed();
    }
    outcome.map(|()| rows)
}

fn drive(session: &mut Session, sql: &str, rows: &mut impl RowSink) -> Result<()> {
    let (sql, data) = sql.split_once('\n').unwrap_or((sql, ""));
    let mut parsed = session.parse_statements(sql)?;
    let params = inkling_sql::analyze::ParamTypes::none();
    let prepared = session.prepare_parsed(parsed.pop(), params)?;
    session.bind("", prepared, Vec::new())?;
    loop {
        match session.step("", rows, 0)? {
            Progress::Complete(_) => return session.finish_implicit(),
            Progress::CopyIn(_) => {
                session.copy_data("", std::iter::once(data.as_bytes()))?;
                session.copy_done("")?;
            }
            Progress::Wait(handle) => handle.block(),
            Progress::FlushRows | Progress::Suspended => {}
        }
    }
}

struct World {
    sim: Sim,
    db: Arc<Database>,
}

const SEGMENT: u64 = 1 << 20;

impl World {
    fn new() -> World {
        Self::on(Sim::new(7), ServerSettings::default())
    }

    fn on(sim: Sim, settings: ServerSettings) -> World {
        let db = Database::open(sim.open(), settings).expect("a database");
        let world = World { sim, db };
        world.engine().wal.flush(world.engine().wal.inserted()).expect("flush");
        world.settle();
        world
    }

    fn engine(&self) -> &Engine {
        &self.db.engine
    }

    fn session(&self) -> Session {
        common::session(&self.db, 1)
    }

    /// Lets the writer do all that is due now.
    fn settle(&self) {
        while self.engine().wal.run_writer_once().expect("the writer") {}
    }

    fn flushed(&self) -> Lsn {
        self.engine().wal.flushed()
    }

    /// Runs statements, each to its end and answer; the last one's rows.
    fn all(&self, session: &mut Session, statements: &[&str]) -> Vec<String> {
        let mut rows = Vec::new();
        for sql in statements {
            rows = run(session, sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
            self.answer(session);
        }
        rows
    }

    /// Waits as a driver does before it sends an answer.
    fn answer(&self, session: &mut Session) {
        while let Some(handle) = session.answer_barrier().expect("the log works") {
            handle.block();
        }
    }

    /// Whether the last of these statements commits synchronously: its answer leaves the log
    /// durable. Everything before it is made durable first.
    fn is_sync(&self, session: &mut Session, statements: &[&str]) -> bool {
        let (last, before) = statements.split_last().expect("a statement");
        self.all(session, before);
        let wal = &self.engine().wal;
        wal.flush(wal.inserted()).expect("flush");
        let from = wal.inserted();
        run(session, last).unwrap_or_else(|e| panic!("{last}: {e}"));
        assert!(wal.inserted() > from, "{last}: wrote nothing");
        self.answer(session);
        let flushed = self.flushed() > from;
        assert!(!flushed || self.flushed() == wal.inserted(), "{last}: flushed in part");
        flushed
    }
}

const TABLES: &[&str] = &[
    "create table s (a int primary key, t text) with (durability = sync)",
    "create table e (a int primary key, t text) with (durability = async, max_loss = '500ms')",
    "create table f (a int primary key, t text) with (durability = async, max_loss = '100ms')",
    "create table d (a int primary key, t text) with (durability = async)",
    "create table i (a int primary key, t text)",
    "create unlogged table u (a int primary key, t text)",
];

#[test]
fn the_strictest_table_decides() {
    let world = World::new();
    let mut session = world.session();
    world.all(&mut session, TABLES);
    let mut n = 0;
    for session_says in [true, false] {
        let value = if session_says { "on" } else { "off" };
        world.all(&mut session, &[&format!("set synchronous_commit = {value}")]);
        for (tables, sync) in [
            ("s", true),
            ("e", false),
            ("d", false),
            ("i", session_says),
            ("u", false),
            ("ef", false),
            ("es", true),
            ("se", true),
            ("ei", session_says),
            ("ue", false),
            ("us", true),
            ("ui", session_says),
        ] {
            let mut statements = vec!["begin".to_owned()];
            for table in tables.chars() {
                n += 1;
                statements.push(format!("insert into {table} values ({n}, 'x')"));
            }
            statements.push("commit".to_owned());
            let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
            assert_eq!(world.is_sync(&mut session, &statements), sync, "{tables}, {value}");
        }
    }
}

#[test]
fn every_way_to_write_counts_and_locking_does_not() {
    let world = World::new();
    let mut session = world.session();
    world.all(&mut session, TABLES);
    world.all(&mut session, &["set synchronous_commit = off"]);
    let long = format!("update s set t = repeat('{}', 400) where a = 1", "0123456789abcdef");
    for (sql, sync) in [
        ("insert into s values (1, 'x'), (2, 'y')", true),
        ("insert into s values (1, 'z') on conflict (a) do update set t = 'w'", true),
        (&long, true),
        ("update s set t = 'short' where a = 1", true),
        ("copy s from stdin\n7\tseven\n8\teight\n", true),
        ("delete from s where a = 7", true),
        ("select * from s for update", false),
        ("truncate e", true),
        ("create table later (a int)", false),
        ("alter table i set (fillfactor = 90)", false),
        ("drop table later", true),
        ("insert into e select g, 'x' from generate_series(1, 9) g", false),
    ] {
        assert_eq!(world.is_sync(&mut session, &[sql]), sync, "{sql}");
    }
    // A session that waits for what it says itself does not wait for row locks either.
    world.all(&mut session, &["set synchronous_commit = on"]);
    assert!(!world.is_sync(&mut session, &["select * from s for update"]));
    assert!(world.is_sync(&mut session, &["create table later (a int)"]));
}

#[test]
fn what_a_savepoint_took_back_does_not_count() {
    let world = World::new();
    let mut session = world.session();
    world.all(&mut session, TABLES);
    let undone = [
        "begin",
        "insert into e values (1)",
        "savepoint p",
        "insert into s values (1)",
        "rollback to p",
        "insert into e values (2)",
        "commit",
    ];
    assert!(!world.is_sync(&mut session, &undone));
    let kept = [
        "begin",
        "insert into e values (3)",
        "savepoint p",
        "savepoint q",
        "insert into s values (1)",
        "release q",
        "commit",
    ];
    assert!(world.is_sync(&mut session, &kept));
    let again = [
        "begin",
        "savepoint p",
        "insert into s values (2)",
        "rollback to p",
        "insert into s values (2)",
        "commit",
    ];
    assert!(world.is_sync(&mut session, &again));
}

#[test]
fn raising_a_level_applies_to_commits_after_it() {
    let world = World::new();
    let (mut writer, mut owner) = (world.session(), world.session());
    world.all(&mut writer, TABLES);
    // Kept by its text from now on, so that the plan is not made anew for each.
    for n in 0..4 {
        let insert = format!("insert into e values ({n}, 'x')");
        assert!(!world.is_sync(&mut writer, &[&insert]));
    }
    world.all(&mut owner, &["alter table e reset (max_loss), set (durability = sync)"]);
    assert!(world.is_sync(&mut writer, &["insert into e values (10, 'x')"]));
    // One that is rolled back never was.
    world.all(&mut owner, &["begin", "alter table e set (durability = async)", "rollback"]);
    assert!(world.is_sync(&mut writer, &["insert into e values (11, 'x')"]));
    world.all(&mut owner, &["alter table e set (durability = async, max_loss = '1s')"]);
    assert!(!world.is_sync(&mut writer, &["insert into e values (12, 'x')"]));
    // The transaction's own change counts at its commit, as does that of a new file.
    let own = [
        "begin",
        "insert into e values (13, 'x')",
        "alter table e reset (max_loss), set (durability = sync)",
        "commit",
    ];
    world.all(&mut writer, &["set synchronous_commit = off"]);
    assert!(world.is_sync(&mut writer, &own));
    assert!(world.is_sync(&mut writer, &["truncate e"]));
    assert!(world.is_sync(&mut writer, &["insert into e values (14, 'x')"]));
}

#[test]
fn local_settings_hold_at_the_commit_of_their_transaction() {
    let world = World::new();
    let mut session = world.session();
    world.all(&mut session, TABLES);
    let local = |value: &str| format!("set local synchronous_commit = {value}");
    let off = local("off");
    let statements = ["begin", "insert into i values (1)", &off, "commit"];
    assert!(!world.is_sync(&mut session, &statements));
    assert!(world.is_sync(&mut session, &["insert into i values (2)"]));
    for value in ["local", "remote_write", "remote_apply"] {
        world.all(&mut session, &["set synchronous_commit = off"]);
        let statements = ["begin", &local(value), "delete from i", "insert into i values (1)"];
        let statements: Vec<&str> = statements.into_iter().chain(["commit"]).collect();
        assert!(world.is_sync(&mut session, &statements), "{value}");
    }
}

fn micros(world: &World) -> u64 {
    world.engine().clock().monotonic_micros()
}

/// Lets time pass in small steps until everything is durable; how long it took.
fn until_durable(world: &World, step: u64) -> u64 {
    let target = world.engine().wal.inserted();
    let mut passed = 0;
    while world.flushed() < target {
        world.sim.clock.advance(step);
        passed += step;
        world.settle();
        assert!(passed < 10_000_000, "never durable");
    }
    passed
}

#[test]
fn asynchronous_commits_are_durable_within_their_bound() {
    let sim = Sim::new(7);
    let clock = Arc::clone(&sim.clock);
    let slow = Arc::new(AtomicU64::new(0));
    let takes = Arc::clone(&slow);
    sim.disk.watch_syncs(Box::new(move |path| {
        if path.starts_with("pg_wal/0") {
            clock.advance(takes.load(Ordering::SeqCst));
        }
    }));
    let world = World::on(sim, ServerSettings::default());
    let mut session = world.session();
    world.all(&mut session, TABLES);
    // What a sync takes is learned, then kept in mind.
    slow.store(20_000, Ordering::SeqCst);
    for _ in 0..40 {
        world.all(&mut session, &["insert into s values (1)", "delete from s"]);
    }
    let mut n = 0;
    for (tables, bound) in
        [("e", 500_000), ("f", 100_000), ("d", 200_000), ("ef", 100_000), ("de", 200_000)]
    {
        world.all(&mut session, &["begin"]);
        for table in tables.chars() {
            n += 1;
            world.all(&mut session, &[&format!("insert into {table} values ({n}, 'x')")]);
        }
        let started = micros(&world);
        run(&mut session, "commit").expect("commit");
        assert!(session.answer_barrier().expect("the log works").is_none(), "nobody waits");
        until_durable(&world, 1_000);
        let took = micros(&world) - started;
        assert!(took <= bound, "{tables}: durable after {took} us");
        // Nor much earlier: the device is not to be bothered.
        assert!(took + 45_000 > bound, "{tables}: durable after {took} us already");
    }
    let missed = "select sum(missed) from inkling_durability";
    assert_eq!(world.all(&mut session, &[missed]), ["0"]);
    // A device that takes longer than the bound: nothing helps, but it is told.
    slow.store(300_000, Ordering::SeqCst);
    world.all(&mut session, &["insert into f values (1000, 'x')"]);
    until_durable(&world, 1_000);
    let rows = "select relname, missed, worst_late_ms > 190 from inkling_durability \
                where missed > 0 order by relname";
    assert_eq!(world.all(&mut session, &[rows]), ["f|1|t"]);
}

#[test]
fn the_view_tells_how_far_behind_durable_a_table_is() {
    let world = World::new();
    let mut session = world.session();
    world.all(&mut session, TABLES);
    world.all(&mut session, &["insert into e values (1, 'x')"]);
    world.sim.clock.advance(12_500);
    world.all(&mut session, &["insert into e values (2, 'x')"]);
    world.sim.clock.advance(1_000);
    let view = "select level, max_loss, last_commit_lsn is not null, \
                bytes_behind between 1 and 10000, ms_behind, missed from inkling_durability \
                where relname in ('e', 's') order by relname";
    let found = world.all(&mut session, &[view]);
    assert_eq!(found, ["async|00:00:00.5|t|t|13.5|0", "sync||f|f|0|0"]);
    until_durable(&world, 1_000);
    let found = world.all(&mut session, &[view]);
    assert_eq!(found, ["async|00:00:00.5|t|f|0|0", "sync||f|f|0|0"]);
}

#[test]
fn a_crash_takes_no_more_than_was_promised() {
    for seed in 0..20 {
        let world = World::new();
        let mut session = world.session();
        world.all(&mut session, TABLES);
        world.all(
            &mut session,
            &[
                "begin",
                "insert into e values (1, 'with the order')",
                "insert into s values (1, 'an order')",
                "commit",
                "insert into u values (1, 'gone')",
                "insert into e values (2, 'perhaps')",
            ],
        );
        let after = World::on(world.sim.crash(seed), ServerSettings::default());
        let mut session = after.session();
        assert_eq!(after.all(&mut session, &["select a from s"]), ["1"]);
        assert_eq!(after.all(&mut session, &["select a from u"]), [""; 0]);
        let events = after.all(&mut session, &["select a from e order by a"]);
        assert!(events == ["1"] || events == ["1", "2"], "{events:?}");
        let levels = "select level from inkling_durability where relname in ('s', 'e') order by 1";
        assert_eq!(after.all(&mut session, &[levels]), ["async", "sync"]);
    }
}

/// A device whose log syncs wait until they are let through.
#[derive(Default)]
struct Gate {
    held: AtomicBool,
    waiting: AtomicU64,
    changed: Condvar,
    lock: Mutex<()>,
}

impl Gate {
    fn pass(&self) {
        let mut guard = self.lock.lock().expect("the gate");
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.held.load(Ordering::SeqCst) {
            guard = self.changed.wait(guard).expect("the gate");
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn hold(&self, held: bool) {
        let _guard = self.lock.lock().expect("the gate");
        self.held.store(held, Ordering::SeqCst);
        self.changed.notify_all();
    }
}

/// A gate's handle: a test that fails lets the writer through, who would hold its end up.
struct Handle(Arc<Gate>);

impl std::ops::Deref for Handle {
    type Target = Gate;
    fn deref(&self) -> &Gate {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

/// With the log's writer as a thread, behind a gate.
fn gated() -> (World, Handle) {
    let mut sim = Sim::new(7);
    sim.options.background_threads = true;
    sim.options.wal.background_writer = true;
    sim.options.wal.segment_size = SEGMENT;
    let gate = Arc::new(Gate::default());
    let behind = Arc::clone(&gate);
    sim.disk.watch_syncs(Box::new(move |path| {
        if path.starts_with("pg_wal/0") {
            behind.pass();
        }
    }));
    let mut settings = ServerSettings::default();
    settings.set("wal_writer_delay", "10s", ChangeSource::CommandLine).expect("a setting");
    (World::on(sim, settings), Handle(gate))
}

const SOON: Duration = Duration::from_millis(100);

/// What an answer waits for is held back as long as the log is; then it is free.
fn held_back(world: &World, gate: &Gate, session: &mut Session) -> bool {
    let Some(handle) = session.answer_barrier().expect("the log works") else { return false };
    assert!(!handle.block_for(SOON), "answered before it was durable");
    gate.hold(false);
    world.answer(session);
    true
}

#[test]
fn nobody_is_told_what_a_synchronous_commit_could_still_lose() {
    let (world, gate) = gated();
    let (mut writer, mut reader) = (world.session(), world.session());
    world.all(&mut writer, TABLES);
    for (say, sync) in
        [("insert into s values (1, 'x')", true), ("insert into e values (1)", false)]
    {
        gate.hold(true);
        run(&mut writer, say).expect("visible at once");
        let table = if sync { "s" } else { "e" };
        let rows = run(&mut reader, &format!("select a from {table}")).expect("read");
        assert_eq!(rows, ["1"], "locks and visibility do not wait for the flush");
        assert_eq!(held_back(&world, &gate, &mut reader), sync, "{say}");
        gate.hold(false);
        world.answer(&mut writer);
    }
    // An error tells as much as a row.
    gate.hold(true);
    run(&mut writer, "insert into s values (2, 'x')").expect("insert");
    let error = run(&mut reader, "insert into s values (2, 'y')").expect_err("duplicate");
    assert_eq!(error.state.code(), "23505");
    assert!(held_back(&world, &gate, &mut reader));
    world.answer(&mut writer);
}

#[test]
fn read_durable_waits_for_asynchronous_commits_too() {
    let (world, gate) = gated();
    let (mut writer, mut reader) = (world.session(), world.session());
    world.all(&mut writer, TABLES);
    world.all(&mut reader, &["set read_durable = on"]);
    gate.hold(true);
    run(&mut writer, "insert into e values (1, 'x')").expect("insert");
    world.answer(&mut writer);
    assert_eq!(run(&mut reader, "select a from e").expect("read"), ["1"]);
    assert!(held_back(&world, &gate, &mut reader));
    // What is durable is not waited for again.
    gate.hold(true);
    assert_eq!(run(&mut reader, "select a from e").expect("read"), ["1"]);
    assert!(!held_back(&world, &gate, &mut reader));
    // A later scan meets hints and summaries, not statuses: the snapshot is what counts.
    run(&mut writer, "insert into e select g, 'x' from generate_series(2, 500) g").expect("insert");
    world.answer(&mut writer);
    let mut passing = world.session();
    for _ in 0..3 {
        assert_eq!(run(&mut passing, "select count(*) from e").expect("read"), ["500"]);
        assert!(!held_back(&world, &gate, &mut passing));
    }
    assert_eq!(run(&mut reader, "select count(*) from e").expect("read"), ["500"]);
    assert!(held_back(&world, &gate, &mut reader));
    // A writer looks beyond its snapshot, but what others commit while its answer is held back
    // does not hold it back any longer.
    gate.hold(true);
    run(&mut writer, "update e set t = 'y' where a = 1").expect("update");
    world.answer(&mut writer);
    run(&mut reader, "begin").expect("begin");
    run(&mut reader, "select a from e where a = 1 for update").expect("read");
    let handle = reader.answer_barrier().expect("the log works").expect("held back");
    while gate.waiting.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    run(&mut writer, "insert into e values (999, 'x')").expect("insert");
    world.answer(&mut writer);
    gate.hold(false);
    handle.block();
    assert!(world.flushed() < world.engine().wal.inserted());
    assert!(reader.answer_barrier().expect("the log works").is_none());
    run(&mut reader, "commit").expect("commit");
    world.answer(&mut reader);
    gate.hold(true);
    run(&mut writer, "insert into e values (1000, 'x')").expect("insert");
    world.answer(&mut writer);
    let error = run(&mut reader, "insert into e values (1000, 'y')").expect_err("duplicate");
    assert_eq!(error.state.code(), "23505");
    assert!(held_back(&world, &gate, &mut reader));
}
