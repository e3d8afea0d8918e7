//! The embedded API: the same database without a server.

mod common;
#[allow(dead_code)]
#[path = "../examples/embedded.rs"]
mod example;

use common::{Server, temporary};
use inkling::{Database, Error, Options, Result, Session, ToSql};
use std::thread;
use std::time::{Duration, Instant};

fn open() -> (tempfile::TempDir, Database) {
    let dir = temporary();
    let db = Database::open(dir.path().join("data")).expect("a database");
    (dir, db)
}

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    outcome.expect_err("an error").state.code().to_owned()
}

fn scalar<T: inkling::FromSql>(session: &mut Session, sql: &str) -> T {
    session.query(sql, &[]).and_then(|rows| rows.scalar()).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

#[test]
fn the_example_runs() {
    let dir = temporary();
    let root = dir.path().join("notes");
    for count in 1..=3 {
        let lines = example::run(&root).expect("the example");
        assert_eq!(lines.len(), count + 1);
        assert_eq!(lines[0], format!("note {count} added; refused: 23514"));
        assert_eq!(lines[count], format!("{count}: remember the milk (new)"));
    }
}

#[test]
fn values_go_in_and_come_out() {
    let (_dir, db) = open();
    let mut s = db.session().expect("a session");
    s.batch(
        "create table t (id int primary key, s smallint, l bigint, f real, d double precision, \
         n numeric(10, 2), b bool, x text, y bytea, u uuid, w timestamptz, e date, a int[])",
    )
    .expect("create");
    let uuid = *b"0123456789abcdef";
    let now = std::time::SystemTime::now();
    let insert = "insert into t values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    let row: [&dyn ToSql; 13] = [
        &1,
        &2i16,
        &i64::MAX,
        &1.5f32,
        &0.1f64,
        &12.345f64,
        &true,
        &"wörd",
        &vec![1u8, 0, 255],
        &uuid,
        &now,
        &"2024-02-29",
        &"{1,NULL,3}",
    ];
    assert_eq!(s.execute(insert, &row), Ok(1));
    let nulls: [&dyn ToSql; 13] = [
        &2,
        &None::<i16>,
        &None::<i64>,
        &None::<f32>,
        &None::<f64>,
        &None::<f64>,
        &None::<bool>,
        &None::<&str>,
        &None::<Vec<u8>>,
        &None::<[u8; 16]>,
        &None::<std::time::SystemTime>,
        &None::<String>,
        &None::<String>,
    ];
    assert_eq!(s.execute(insert, &nulls), Ok(1));
    let rows = s.query("select * from t order by id", &[]).expect("rows");
    let r = &rows[0];
    assert_eq!(r.get::<i32>("id"), Ok(1));
    assert_eq!(r.get::<i64>("s"), Ok(2));
    assert_eq!(r.get::<i64>("l"), Ok(i64::MAX));
    assert_eq!(r.get::<f32>("f"), Ok(1.5));
    assert_eq!(r.get::<f64>("d"), Ok(0.1));
    assert_eq!(r.get::<String>("n"), Ok("12.35".to_owned()));
    assert_eq!(r.get::<f64>("n"), Ok(12.35));
    assert_eq!(r.get::<bool>("b"), Ok(true));
    assert_eq!(r.get::<String>("x"), Ok("wörd".to_owned()));
    assert_eq!(r.get::<Vec<u8>>("y"), Ok(vec![1, 0, 255]));
    assert_eq!(r.get::<[u8; 16]>("u"), Ok(uuid));
    assert_eq!(r.get::<String>("e"), Ok("2024-02-29".to_owned()));
    assert_eq!(r.get::<String>("a"), Ok("{1,NULL,3}".to_owned()));
    assert!(r.get::<std::time::SystemTime>("w").expect("a time") <= now);
    for (at, column) in rows.columns().iter().enumerate().skip(1) {
        assert_eq!(rows[1].get::<Option<String>>(at), Ok(None), "{}", column.name());
        assert_eq!(code(rows[1].get::<String>(at)), "22004");
    }
    assert_eq!(rows.columns()[5].type_name(), "numeric(10,2)");
    assert_eq!(code(r.get::<i16>("l")), "22003");
    assert_eq!(code(r.get::<bool>("x")), "42804");
    assert_eq!(code(r.get::<i32>("nope")), "42703");
    assert_eq!(code(r.get::<i32>(99)), "42703");
    assert_eq!(code(s.execute("select $1::int", &[&"x"])), "22P02");
    assert_eq!(code(s.execute("select $1::int", &[])), "08P01");
    assert_eq!(code(s.execute("select 1; select 2", &[])), "42601");
}

#[test]
fn transactions_end_as_they_are_told() {
    let (_dir, db) = open();
    let mut s = db.session().expect("a session");
    let mut other = db.connect().expect("another");
    s.batch("create table t (a int)").expect("create");
    let count = "select count(*) from t";
    let mut tx = s.transaction().expect("begin");
    tx.execute("insert into t values (1)", &[]).expect("insert");
    assert_eq!(scalar::<i64>(&mut other, count), 0);
    tx.commit().expect("commit");
    assert_eq!(scalar::<i64>(&mut other, count), 1);
    {
        let mut tx = s.transaction().expect("begin");
        tx.execute("delete from t", &[]).expect("delete");
    }
    assert!(!s.in_transaction());
    assert_eq!(scalar::<i64>(&mut other, count), 1);
    // Savepoints, three deep.
    let mut tx = s.transaction().expect("begin");
    tx.execute("insert into t values (2)", &[]).expect("insert");
    {
        let mut inner = tx.transaction().expect("savepoint");
        inner.execute("insert into t values (3)", &[]).expect("insert");
        let mut third = inner.transaction().expect("savepoint");
        third.execute("insert into t values (4)", &[]).expect("insert");
        third.rollback().expect("rollback");
        inner.commit().expect("release");
    }
    {
        let mut inner = tx.transaction().expect("savepoint");
        assert_eq!(code(inner.execute("insert into t values (1 / 0)", &[])), "22012");
        assert_eq!(code(inner.execute("select 1", &[])), "25P02");
    }
    assert_eq!(
        scalar::<String>(&mut tx, "select string_agg(a::text, ',' order by a) from t"),
        "1,2,3"
    );
    tx.commit().expect("commit");
    assert_eq!(scalar::<i64>(&mut other, count), 3);
    // A block that failed cannot be committed, and says so.
    let mut tx = s.transaction().expect("begin");
    assert_eq!(code(tx.execute("select nope", &[])), "42703");
    assert_eq!(code(tx.commit()), "25P02");
    // Modes.
    let mut tx = s.transaction_with("isolation level repeatable read, read only").expect("begin");
    assert_eq!(code(tx.execute("delete from t", &[])), "25006");
    drop(tx);
    // A batch is all or nothing.
    assert_eq!(code(s.batch("insert into t values (7); insert into t values (8 / 0)")), "22012");
    assert_eq!(scalar::<i64>(&mut s, count), 3);
    s.batch("insert into t values (7); begin; insert into t values (8); rollback; select 1")
        .expect("a batch");
    assert_eq!(scalar::<i64>(&mut s, "select count(*) from t where a > 6"), 0);
}

#[test]
fn kept_statements_follow_the_schema() {
    let (_dir, db) = open();
    let mut s = db.session().expect("a session");
    s.batch("create table t (a int); insert into t values (1)").expect("create");
    let all = "select * from t";
    assert_eq!(s.query(all, &[]).expect("rows").columns().len(), 1);
    s.batch("alter table t add column b text default 'new'").expect("alter");
    let rows = s.query(all, &[]).expect("rows");
    assert_eq!(rows.columns().len(), 2);
    assert_eq!(rows[0].get::<String>("b"), Ok("new".to_owned()));
    s.batch("drop table t").expect("drop");
    assert_eq!(code(s.query(all, &[])), "42P01");
    s.batch("create table t (z bool)").expect("create");
    assert_eq!(s.query(all, &[]).expect("rows").columns()[0].name(), "z");
    // More texts than are kept.
    for n in 0..1000 {
        assert_eq!(scalar::<i32>(&mut s, &format!("select {n}")), n);
    }
}

#[test]
fn large_results_and_copies_pass_through() {
    let (_dir, db) = open();
    let mut s = db.session().expect("a session");
    s.batch("create table t (n int, w text)").expect("create");
    let text: String = (0..20_000).map(|n| format!("{n}\tword {n}\n")).collect();
    assert_eq!(s.copy_in("copy t from stdin", &mut text.as_bytes()), Ok(20_000));
    let mut next = 0;
    let seen = s.query_each("select n, w from t order by n", &[], |row| {
        assert_eq!(row.get::<i32>(0)?, next);
        next += 1;
        Ok(())
    });
    assert_eq!((seen, next), (Ok(20_000), 20_000));
    let mut out = Vec::new();
    assert_eq!(s.copy_out("copy t to stdout", &mut out), Ok(20_000));
    assert_eq!(out.len(), text.len());
    // The caller may stop early; the session goes on.
    let mut calls = 0;
    let stopped = s.query_each("select n from t", &[], |_| {
        calls += 1;
        if calls == 2500 { Err(Error::internal("enough")) } else { Ok(()) }
    });
    assert_eq!((code(stopped), calls), ("XX000".to_owned(), 2500));
    assert_eq!(code(s.copy_in("copy t from stdin", &mut &b"x\ty\n"[..])), "22P02");
    assert_eq!(code(s.copy_in("select 1", &mut &b""[..])), "42601");
    assert_eq!(code(s.copy_out("select 1", &mut Vec::new())), "42601");
    assert_eq!(code(s.execute("copy t from stdin", &[])), "0A000");
    assert_eq!(scalar::<i64>(&mut s, "select count(*) from t"), 20_000);
}

#[test]
fn waits_end_by_commit_by_limit_and_by_cancel() {
    let (_dir, db) = open();
    let mut a = db.session().expect("a session");
    a.batch("create table t (id int primary key, v int); insert into t values (1, 0), (2, 0)")
        .expect("create");
    let mut tx = a.transaction().expect("begin");
    tx.execute("update t set v = 1 where id = 1", &[]).expect("update");
    let mut b = db.session().expect("another");
    let update = "update t set v = v + 10 where id = 1";
    b.batch("set lock_timeout = '50ms'").expect("set");
    assert_eq!(code(b.execute(update, &[])), "55P03");
    b.batch("set lock_timeout = 0; set statement_timeout = '50ms'").expect("set");
    assert_eq!(code(b.execute(update, &[])), "57014");
    let endless = "select count(*) from generate_series(1, 1000000000)";
    assert_eq!(code(b.execute(endless, &[])), "57014");
    b.batch("set statement_timeout = 0").expect("set");
    let cancel = b.cancel_handle();
    let canceler = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        cancel.cancel();
    });
    assert_eq!(code(b.execute(update, &[])), "57014");
    canceler.join().expect("the canceler");
    // And by commit: the update then sees what was committed.
    let waiter = thread::spawn(move || b.execute(update, &[]).map(|n| (n, b)));
    thread::sleep(Duration::from_millis(100));
    tx.commit().expect("commit");
    let (updated, _b) = waiter.join().expect("the waiter").expect("updated");
    assert_eq!(updated, 1);
    assert_eq!(scalar::<i32>(&mut a, "select v from t where id = 1"), 11);
}

#[test]
fn deadlocks_have_one_victim() {
    let (_dir, db) = open();
    let mut s = db.session().expect("a session");
    s.batch("create table t (id int primary key, v int); insert into t values (1, 0), (2, 0)")
        .expect("create");
    let begun = Instant::now();
    let run = |first: i32, second: i32| {
        let mut session = db.session().expect("a session");
        thread::spawn(move || -> Result<()> {
            let mut tx = session.transaction()?;
            let update = "update t set v = v + 1 where id = $1";
            tx.execute(update, &[&first])?;
            thread::sleep(Duration::from_millis(300));
            tx.execute(update, &[&second])?;
            tx.commit()
        })
    };
    let (a, b) = (run(1, 2), run(2, 1));
    let outcomes = [a.join().expect("a thread"), b.join().expect("a thread")];
    let failed: Vec<&Error> = outcomes.iter().filter_map(|o| o.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "{outcomes:?}");
    assert_eq!(failed[0].state.code(), "40P01");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(scalar::<i64>(&mut s, "select sum(v) from t"), 2);
}

#[test]
fn many_threads_lose_no_increment() {
    let (_dir, db) = open();
    let mut s = db.session().expect("a session");
    s.batch("create table t (id int primary key, v int); insert into t select n, 0 from generate_series(1, 10) n")
        .expect("create");
    let threads: Vec<_> = (0..8)
        .map(|t| {
            let mut session = db.session().expect("a session");
            thread::spawn(move || {
                for n in 0..200 {
                    let id = (t * 7 + n) % 10 + 1;
                    let changed = session.execute("update t set v = v + 1 where id = $1", &[&id]);
                    assert_eq!(changed, Ok(1));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("a thread"));
    assert_eq!(scalar::<i64>(&mut s, "select sum(v) from t"), 1600);
    let report = inkling::check::check(db.sql()).expect("a check");
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn closing_and_opening() {
    let dir = temporary();
    let root = dir.path().join("data");
    let db = Database::open(&root).expect("a database");
    let mut s = db.session().expect("a session");
    s.batch("create table t (a int); insert into t values (1)").expect("create");
    let second = Database::open(&root).expect_err("one at a time");
    assert_eq!(second.state.code(), "F0000");
    assert!(second.message().contains("in use"), "{second}");
    let refused = db.clone().close().expect_err("still used");
    assert_eq!(refused.state.code(), "55006");
    // The last session closes it.
    drop(db);
    s.execute("insert into t values (2)", &[]).expect("insert");
    drop(s);
    let options = Options::new().set("shared_buffers", "4MB").expect("a setting");
    let db = Database::open_with(&root, options).expect("opened again");
    let mut s = db.session().expect("a session");
    assert_eq!(scalar::<i64>(&mut s, "select sum(a) from t"), 3);
    assert_eq!(scalar::<String>(&mut s, "show shared_buffers"), "4MB");
    drop(s);
    db.close().expect("closed");
    assert_eq!(
        Options::new().set("no_such", "1").map(|_| ()).map_err(|e| e.state.code().to_owned()),
        Err("42704".to_owned())
    );
    // A server reads the same directory.
    let mut server = Server::start_in(&root, &[]);
    assert!(server.log().contains("shut down cleanly"), "{}", server.log());
    assert_eq!(server.psql("insert into t values (4) returning a"), "4\n");
    assert!(server.stop().success());
    let db = Database::open(&root).expect("opened once more");
    let mut s = db.session().expect("a session");
    assert_eq!(scalar::<i64>(&mut s, "select sum(a) from t"), 7);
}

#[test]
fn settings_of_the_server_reach_sessions() {
    let dir = temporary();
    let options = Options::new()
        .set("synchronous_commit", "off")
        .and_then(|o| o.set("TimeZone", "Europe/Vienna"))
        .expect("settings");
    let db = Database::open_with(dir.path().join("data"), options).expect("a database");
    let mut s = db.session().expect("a session");
    assert_eq!(scalar::<String>(&mut s, "show synchronous_commit"), "off");
    let noon = "select '2024-07-01 12:00:00+00'::timestamptz";
    assert_eq!(scalar::<String>(&mut s, noon), "2024-07-01 14:00:00+02");
    let nobody = Options::new().user("nobody");
    let dir = temporary();
    let db = Database::open_with(dir.path().join("data"), nobody).expect("a database");
    assert_eq!(
        db.session().map(|_| ()).map_err(|e| e.state.code().to_owned()),
        Err("28000".to_owned())
    );
}
