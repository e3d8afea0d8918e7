//! Temporary and unlogged tables: what goes to the log and what is waited for, who sees what of
//! them, and what is left after the end of a session, a clean stop, a kill and a power failure.

mod common;

use common::{Server, from_env, runtime, temporary};
use inkling::{Database, Options, Result, Session};
use inkling_storage::engine::CheckpointKind;
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::{Random, SeededRandom};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

fn scalar<T: inkling::FromSql>(s: &mut Session, sql: &str) -> T {
    s.query(sql, &[]).and_then(|rows| rows.scalar()).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn batch(s: &mut Session, sql: &str) {
    s.batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// Records, bytes and fsyncs of the log since start-up.
fn log_of(s: &mut Session) -> (i64, i64, i64) {
    let rows = s
        .query("select wal_records, wal_bytes::int8, wal_sync from pg_stat_wal", &[])
        .expect("pg_stat_wal");
    let row = rows.into_iter().next().expect("a row");
    (row.get(0).expect("records"), row.get(1).expect("bytes"), row.get(2).expect("syncs"))
}

/// Files of temporary relations in a data directory.
fn temporary_files(root: &Path) -> Vec<String> {
    let names = fs::read_dir(root.join("base")).expect("base");
    let names = names.map(|f| f.expect("a file").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('t')).collect()
}

const COUNT_TEMPORARY: &str = "select count(*) from pg_class where relpersistence = 't'";

/// What fills a table `w` with rows, index entries and large values, and changes them.
const WORK: [&str; 7] = [
    "insert into w select i, md5(i::text) from generate_series(1, 100000) i",
    "update w set y = y || '!' where x % 3 = 0",
    "delete from w where x % 10 = 0",
    "insert into w select i, repeat(md5(i::text), 500) from generate_series(200000, 200100) i",
    "update w set x = -x where x > 90000",
    "create index on w (y) where length(y) < 100",
    "vacuum w",
];

#[test]
fn data_of_temporary_tables_is_not_logged() {
    let dir = temporary();
    // Few frames: pages are written back in the middle of it.
    let options = Options::new().set("shared_buffers", "2MB").expect("a setting");
    let db = Database::open_with(dir.path().join("data"), options).expect("a database");
    let mut s = db.session().expect("a session");
    let mut grown = |create: &str| {
        batch(&mut s, create);
        batch(&mut s, "checkpoint");
        let (records, bytes, _) = log_of(&mut s);
        for sql in WORK {
            batch(&mut s, sql);
        }
        let sum: i64 = scalar(&mut s, "select sum(x) from w where x > 0");
        let found: i64 = scalar(&mut s, "select count(*) from w where x = 77");
        assert_eq!((sum, found), (3_645_000_000, 1), "{create}");
        let (r, b, _) = log_of(&mut s);
        batch(&mut s, "drop table w");
        (r - records, b - bytes)
    };
    let table = "table w (x int primary key, y text)";
    let (records, bytes) = grown(&format!("create {table}"));
    assert!(records > 1000 && bytes > 20_000_000, "{records} records of {bytes} bytes");
    for kind in ["temp", "unlogged"] {
        // Commits, xids handed out, and the rows of the catalog about the index, with images of
        // their pages.
        let (records, bytes) = grown(&format!("create {kind} {table}"));
        assert!(records < 60 && bytes < 200_000, "{kind}: {records} records of {bytes} bytes");
    }
    assert_eq!(temporary_files(&dir.path().join("data")), Vec::<String>::new());
    drop(s);
    db.close().expect("closed");
}

#[test]
fn nobody_flushes_for_temporary_tables() {
    let dir = temporary();
    let db = Database::open(dir.path().join("data")).expect("a database");
    let mut s = db.session().expect("a session");
    batch(&mut s, "set synchronous_commit = on; create table l (x int)");
    batch(&mut s, "create temp table w (x int primary key, y text)");
    batch(&mut s, "checkpoint");
    let mut syncs = |sql: &str| {
        let (_, _, before) = log_of(&mut s);
        for _ in 0..20 {
            batch(&mut s, sql);
        }
        // Beyond the delay after which the log's writer flushes what nobody waits for.
        thread::sleep(Duration::from_millis(500));
        log_of(&mut s).2 - before
    };
    assert_eq!(syncs("truncate w; insert into w select 1, repeat('x', 10000)"), 0);
    assert_eq!(syncs("update w set y = 'x'"), 0);
    assert_eq!(syncs("create temp table z (x int primary key, y text); drop table z"), 0);
    assert_eq!(syncs("begin; create temp table z on commit drop as select 1; commit"), 0);
    assert_eq!(syncs("create temp view v as select * from w; drop view v"), 0);
    assert_eq!(syncs("alter table w add column c int; alter table w drop column c"), 0);
    assert_eq!(syncs("create temp table z as select 1; discard temp"), 0);
    batch_again(&mut syncs, "begin; create temp table z (x int); insert into l values (1); commit");
    batch_again(&mut syncs, "discard temp; create table n (x int); drop table n");
    drop(s);
    db.close().expect("closed");
}

/// The same, of something that has to be waited for, once.
fn batch_again(syncs: &mut impl FnMut(&str) -> i64, sql: &str) {
    let sql = format!("{sql}; discard temp");
    assert!(syncs(&sql) >= 20, "{sql}");
}

#[test]
fn other_sessions_do_not_notice() {
    let dir = temporary();
    let db = Database::open(dir.path().join("data")).expect("a database");
    let (mut a, mut b) = (db.session().expect("a"), db.session().expect("b"));
    batch(&mut a, "create table t (x int); insert into t values (1)");
    let shared = db.sql().catalog.version();
    for _ in 0..5 {
        batch(&mut a, "create temp table t (x int primary key, y text) on commit drop");
        batch(&mut a, "create temp table u as select 1 as x; create view v as select * from u");
        batch(&mut a, "begin; create temp table t (x int); insert into t values (2); rollback");
        assert_eq!(scalar::<i32>(&mut b, "select x from t"), 1);
        batch(&mut a, "discard temp");
    }
    assert_eq!(db.sql().catalog.version(), shared, "nobody reads the catalog anew");
    // What others define reaches a session with temporary tables.
    batch(&mut a, "create temp table u as select 5 as x");
    batch(&mut b, "alter table t add column y int default 3; create table n (x int)");
    assert_eq!(scalar::<i32>(&mut a, "select t.x + t.y + u.x from t, u"), 9);
    batch(&mut a, "begin; create temp table k (x int)");
    batch(&mut b, "drop table n");
    let missing = a.batch("select * from n").expect_err("gone");
    assert_eq!(missing.state.code(), "42P01");
    batch(&mut a, "rollback");
    assert_eq!(scalar::<i32>(&mut a, "select x from u"), 5);
    // A view of theirs that reads a permanent table stands in the way of its end.
    batch(&mut a, "create temp view tv as select x from t");
    let blocked = b.batch("drop table t").expect_err("a view reads it");
    assert_eq!(blocked.state.code(), "2BP01");
    drop(a);
    batch(&mut b, "drop table t");
}

async fn count(watcher: &tokio_postgres::Client) -> i64 {
    watcher.query_one(COUNT_TEMPORARY, &[]).await.expect("a count").get(0)
}

/// Waits until nothing temporary is left.
async fn gone(server: &Server, watcher: &tokio_postgres::Client, how: &str) {
    let begun = Instant::now();
    while count(watcher).await > 0 || !temporary_files(server.root()).is_empty() {
        assert!(begun.elapsed() < common::PATIENCE, "after {how}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn the_end_of_a_session_is_the_end_of_its_tables() {
    let mut server = Server::start();
    runtime().block_on(async {
        let watcher = server.connect().await;
        let make = "create temp table w (x int primary key, y text); \
                    insert into w select i, repeat('x', 5000) from generate_series(1, 500) i; \
                    create temp view v as select * from w";
        // Terminated, idle.
        let client = server.connect().await;
        client.batch_execute(make).await.expect("made");
        assert_eq!(count(&watcher).await, 4, "table, large values, index, view");
        assert!(!temporary_files(server.root()).is_empty());
        let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.expect("pid").get(0);
        watcher.query("select pg_terminate_backend($1)", &[&pid]).await.expect("terminated");
        gone(&server, &watcher, "termination").await;
        assert!(client.query("select * from w", &[]).await.is_err());
        // In a transaction, with a table that is not committed.
        let client = server.connect().await;
        client.batch_execute(make).await.expect("made");
        client.batch_execute("begin; create temp table z as select 1").await.expect("made");
        let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.expect("pid").get(0);
        watcher.query("select pg_terminate_backend($1)", &[&pid]).await.expect("terminated");
        gone(&server, &watcher, "termination in a transaction").await;
        // The client says good-bye; the client is gone without a word.
        let client = server.connect().await;
        client.batch_execute(make).await.expect("made");
        drop(client);
        gone(&server, &watcher, "its end").await;
        let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
            .await
            .expect("a connection");
        let driver = tokio::spawn(connection);
        client.batch_execute(make).await.expect("made");
        driver.abort();
        gone(&server, &watcher, "a lost connection").await;
        // A statement that panics or fails ends as well as others: the number is free again.
        let client = server.connect().await;
        client.batch_execute(make).await.expect("made");
        let row = client
            .query_one(
                "select min(nspname) from pg_namespace where \
             oid = pg_my_temp_schema()",
                &[],
            )
            .await
            .expect("a name");
        assert_eq!(row.get::<_, String>(0), "pg_temp_1");
    });
    assert!(server.stop().success());
    server.must_be_sound();
    server.restart();
    assert_eq!(server.psql(COUNT_TEMPORARY), "0\n");
}

const UNLOGGED: &str = "create unlogged table u (x int primary key, y text); \
     insert into u select i, repeat(md5(i::text), 200) from generate_series(1, 300) i; \
     create index u_y on u (left(y, 5)); \
     create unlogged table ua as select x, y from u; \
     create table was (x int primary key, y text); \
     insert into was select i, repeat(md5(i::text), 200) from generate_series(1, 300) i; \
     alter table was set unlogged; \
     create unlogged table now (x int primary key, y text); create index now_y on now (left(y, 5));\
     insert into now select i, repeat(md5(i::text), 200) from generate_series(1, 300) i; \
     alter table now set logged";
const COUNTS: &str = "select (select count(*) from u), (select count(*) from ua), \
     (select count(*) from was), (select count(*) from now), (select sum(length(y)) from now)";

#[test]
fn a_kill_empties_unlogged_tables_and_takes_temporary_ones() {
    let mut server = Server::start();
    server.psql(UNLOGGED);
    assert_eq!(server.psql(COUNTS), "300|300|300|300|1920000\n");
    // A clean stop keeps everything, files included.
    assert!(server.stop().success());
    server.must_be_sound();
    server.restart();
    assert_eq!(server.psql(COUNTS), "300|300|300|300|1920000\n");
    let by_index = "select count(*) from u where left(y, 5) = left(md5('7'), 5) and x = 7";
    assert_eq!(server.psql(by_index), "1\n");
    server.psql("insert into now values (0, 'x'); checkpoint");
    runtime().block_on(async {
        let client = server.connect().await;
        client
            .batch_execute("create temp table w as select generate_series(1, 1000) as x")
            .await
            .expect("made");
        // Makes the catalog's rows about it durable.
        client.batch_execute("create table l (x int)").await.expect("made");
        assert_eq!(temporary_files(server.root()).len(), 1);
        server.kill();
    });
    server.must_be_sound();
    server.restart();
    assert_eq!(server.psql(COUNT_TEMPORARY), "0\n");
    assert_eq!(temporary_files(server.root()), Vec::<String>::new());
    assert_eq!(server.psql(COUNTS), "0|0|0|301|1920001\n");
    assert_eq!(server.psql(by_index), "0\n");
    assert_eq!(server.psql("select count(*) from now where left(y, 5) >= ''"), "301\n");
    // They work again.
    server.psql("insert into u values (1, repeat('y', 50000)); insert into was values (1, 'x')");
    let out = server.try_psql("insert into u values (1, '')");
    assert!(common::text(&out).contains("u_pkey"), "{}", common::text(&out));
    server.kill();
    server.restart();
    assert_eq!(server.psql(COUNTS), "0|0|0|301|1920001\n");
    assert!(server.stop().success());
    server.must_be_sound();
}

/// What a table `t` of one chain is to hold after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    logged: bool,
    rows: Vec<i32>,
}

/// Runs one statement; false when the power went.
fn step(s: &mut Session, sql: &str) -> bool {
    match s.batch(sql) {
        Ok(()) => true,
        Err(e) if e.state.code().starts_with("58") || e.state.code() == "XX000" => false,
        Err(e) => panic!("{sql}: {e} {}", e.state.code()),
    }
}

/// Works on a table whose persistence changes, until the power goes. The states that a crash may
/// leave: the last acknowledged one, or also the one being committed.
fn work(db: &Database, random: &SeededRandom, at: &Expected) -> Vec<Expected> {
    let Ok(mut s) = db.session() else { return vec![at.clone()] };
    let mut now = at.clone();
    for n in 0..12 {
        let mut next = now.clone();
        let sql = match random.below(7) {
            0 | 1 => {
                next.logged = !next.logged;
                let word = if next.logged { "logged" } else { "unlogged" };
                format!("alter table t set {word}")
            }
            2 => {
                next.rows.clear();
                "truncate t".to_owned()
            }
            3 => "begin; alter table t set unlogged; insert into t values (0, ''); rollback".into(),
            4 => {
                if db.engine().checkpoint(CheckpointKind::Immediate).is_err() {
                    return vec![now];
                }
                "create temp table w as select * from t; discard temp".to_owned()
            }
            _ => {
                let id = next.rows.iter().max().map_or(1, |m| m + 1);
                next.rows.push(id);
                let len = random.below(9000);
                format!("insert into t values ({id}, repeat(md5('{n}{id}'), {}))", len / 32)
            }
        };
        if !step(&mut s, &sql) {
            return vec![now, next];
        }
        now = next;
    }
    vec![now]
}

fn rows(s: &mut Session, sql: &str) -> Vec<i32> {
    let rows = s.query(sql, &[]).unwrap_or_else(|e| panic!("{sql}: {e}"));
    rows.into_iter().map(|row| row.get(0).expect("an int")).collect()
}

fn compare(db: &Database, seed: u64, candidates: &[Expected], crashed: bool) -> Expected {
    let mut s = db.session().expect("a session");
    let logged: bool =
        scalar(&mut s, "select relpersistence = 'p' from pg_class where relname = 't'");
    let found = Expected { logged, rows: rows(&mut s, "select x from t order by x") };
    let after = |e: &Expected| match e.logged || !crashed {
        true => e.clone(),
        false => Expected { logged: false, rows: Vec::new() },
    };
    let possible: Vec<Expected> = candidates.iter().map(after).collect();
    assert!(possible.contains(&found), "seed {seed}: {found:?} is none of {possible:?}");
    assert_eq!(rows(&mut s, "select x from t where left(y, 3) >= '' order by x"), found.rows);
    let long: i64 = scalar(&mut s, "select count(*) from t where md5(y) is not null");
    assert_eq!(long as usize, found.rows.len(), "seed {seed}: large values");
    assert_eq!(scalar::<i64>(&mut s, COUNT_TEMPORARY), 0, "seed {seed}");
    let kinds = "select count(distinct relpersistence) from pg_class \
                 where relname in ('t', 't_pkey', 't_y') or oid in \
                 (select reltoastrelid from pg_class where relname = 't')";
    assert_eq!(scalar::<i64>(&mut s, kinds), 1, "seed {seed}: all of one kind");
    let report = inkling::check::check(db.sql()).expect("a check");
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "seed {seed}: {}", problems.join("\n"));
    found
}

fn open(sim: &Sim) -> Result<Database> {
    let (engine, _) = sim.try_open()?;
    Database::over(engine, Options::new())
}

/// `INKLING_UNLOGGED_CRASHES`: how many power failures (400 by default).
#[test]
fn a_power_failure_keeps_what_is_logged_by_then() {
    let crashes = from_env("INKLING_UNLOGGED_CRASHES", 400);
    for seed in 0..crashes.div_ceil(5) {
        let random = SeededRandom::new(seed);
        let mut sim = Sim::new(random.next_u64());
        sim.options.shared_buffers_bytes = (40 + random.below(100) as usize) * 8192;
        let db = open(&sim).expect("opens");
        let mut s = db.session().expect("a session");
        batch(&mut s, "create unlogged table t (x int primary key, y text)");
        batch(&mut s, "create index t_y on t (left(y, 3))");
        drop(s);
        db.close().expect("closed");
        let mut at = Expected { logged: false, rows: Vec::new() };
        for _ in 0..5 {
            let db = open(&sim).expect("opens");
            if random.below(3) > 0 {
                sim.disk.power_off_after(random.below(500));
            }
            let candidates = work(&db, &random, &at);
            // A power failure after a clean stop takes nothing.
            let stopped = random.below(4) == 0 && candidates.len() == 1 && db.close().is_ok();
            sim = sim.crash(random.next_u64());
            let db = open(&sim).unwrap_or_else(|e| panic!("seed {seed}: does not open: {e}"));
            at = compare(&db, seed, &candidates, !stopped);
            db.close().expect("closed");
        }
    }
}
