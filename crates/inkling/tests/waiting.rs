//! Sessions that wait of their own will or for each other, and how that ends: pg_sleep, advisory
//! locks, time-outs, cancellation, and what the views show meanwhile.

use inkling::{Database, Session};
use std::thread;
use std::time::{Duration, Instant};

struct Bench {
    database: Database,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::Builder::new().prefix("inkling-waits-").tempdir().expect("a directory");
        let database = Database::open(dir.path().join("data")).expect("a database");
        Bench { database, _dir: dir }
    }

    fn session(&self) -> Session {
        self.database.session().expect("a session")
    }
}

fn text(session: &mut Session, sql: &str) -> String {
    session.query_one(sql, &[]).expect(sql).get::<String>(0).expect("text")
}

fn code(session: &mut Session, sql: &str) -> String {
    session.query(sql, &[]).expect_err(sql).state.code().to_string()
}

/// Asks until the answer is `wanted`.
fn until(session: &mut Session, sql: &str, wanted: &str) {
    let begun = Instant::now();
    loop {
        let answer = text(session, sql);
        if answer == wanted {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{sql}: {answer}, not {wanted}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn sleep_takes_its_time_and_no_more() {
    let bench = Bench::new();
    let mut s = bench.session();
    for sql in [
        "select pg_sleep(0.05)",
        "select pg_sleep_for('50 milliseconds')",
        "select pg_sleep_until(clock_timestamp() + interval '50 milliseconds')",
        "select * from pg_sleep(0.05)",
        "select 1 where pg_sleep(0.05) is not null",
    ] {
        let begun = Instant::now();
        s.query(sql, &[]).expect(sql);
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(50), "{sql} took {took:?}");
        assert!(took < Duration::from_secs(20), "{sql} took {took:?}");
    }
    let begun = Instant::now();
    s.query("select pg_sleep(-1), pg_sleep(null), pg_sleep_until('2001-01-01')", &[]).expect("now");
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Once a row, not once a statement and not twice a row.
    let begun = Instant::now();
    s.query("select g, pg_sleep(0.02), pg_sleep(0.02) from generate_series(1, 3) g", &[])
        .expect("rows");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(120), "{took:?}");
}

#[test]
fn effects_before_a_wait_happen_once() {
    let bench = Bench::new();
    let mut s = bench.session();
    s.batch("create sequence q; create table t (id int); insert into t values (1), (2), (3)")
        .expect("setup");
    let rows = s
        .query("select coalesce(nextval('q')::text || pg_sleep(0.01)::text, '') from t", &[])
        .expect("rows");
    let values = rows.into_iter().map(|r| r.get::<String>(0).expect("text")).collect::<Vec<_>>();
    assert_eq!(values, ["1", "2", "3"]);
    s.query("select 1 from t where nextval('q') + length(pg_sleep(0.01)::text) > 0", &[])
        .expect("rows");
    assert_eq!(text(&mut s, "select nextval('q')::text"), "7");
}

#[test]
fn a_wait_that_its_operator_could_not_come_back_to_is_refused() {
    let bench = Bench::new();
    let mut s = bench.session();
    assert_eq!(code(&mut s, "select count(pg_sleep(0.01)) from generate_series(1, 2)"), "0A000");
    // Nothing of it is left behind.
    s.query("select pg_sleep(0.001)", &[]).expect("a sleep");
}

#[test]
fn statement_timeout_and_cancel_end_a_sleep_and_lock_timeout_does_not() {
    let bench = Bench::new();
    let mut s = bench.session();
    s.batch("set lock_timeout = '20ms'").expect("set");
    s.query("select pg_sleep(0.1)", &[]).expect("lock_timeout is not for sleep");
    s.batch("set statement_timeout = '30ms'").expect("set");
    let begun = Instant::now();
    assert_eq!(code(&mut s, "select pg_sleep(60)"), "57014");
    assert!(begun.elapsed() < Duration::from_secs(30));
    s.batch("set statement_timeout = 0").expect("set");

    let handle = s.cancel_handle();
    let mut watcher = bench.session();
    let pid = text(&mut s, "select pg_backend_pid()::text");
    let event = format!(
        "select coalesce(wait_event_type || '/' || wait_event, '-') from pg_stat_activity \
         where pid = {pid}"
    );
    thread::scope(|scope| {
        scope.spawn(move || {
            until(&mut watcher, &event, "Timeout/PgSleep");
            handle.cancel();
            until(&mut watcher, &event, "Client/ClientRead");
        });
        assert_eq!(code(&mut s, "select pg_sleep(60)"), "57014");
    });
}

#[test]
fn a_wait_for_an_advisory_lock_is_shown_limited_and_cancelled() {
    let bench = Bench::new();
    let (mut a, mut b) = (bench.session(), bench.session());
    a.query("select pg_advisory_lock(7)", &[]).expect("free");
    b.batch("set lock_timeout = '20ms'").expect("set");
    assert_eq!(code(&mut b, "select pg_advisory_lock(7)"), "55P03");
    b.batch("set lock_timeout = 0").expect("set");
    let pid = text(&mut b, "select pg_backend_pid()::text");
    let holder = text(&mut a, "select pg_backend_pid()::text");
    thread::scope(|scope| {
        scope.spawn(|| {
            let waits = format!("select wait_event_type || '/' || wait_event from pg_stat_activity where pid = {pid}");
            let event = format!("select coalesce(({waits}), '-')");
            until(&mut a, &event, "Lock/advisory");
            let blockers = format!("select pg_blocking_pids({pid})::text");
            assert_eq!(text(&mut a, &blockers), format!("{{{holder}}}"));
            let blocked = |by: &str| {
                format!("select pg_isolation_test_session_is_blocked({pid}, '{{{by}}}')::text")
            };
            assert_eq!(text(&mut a, &blocked(&holder)), "true");
            assert_eq!(text(&mut a, &blocked("999999")), "false");
            assert_eq!(text(&mut a, &format!("select pg_cancel_backend({pid})::text")), "true");
        });
        assert_eq!(code(&mut b, "select pg_advisory_lock(7)"), "57014");
    });
    // The cancelled request has left the queue: the lock goes to whoever asks next.
    assert_eq!(text(&mut a, "select pg_advisory_unlock(7)::text"), "true");
    assert_eq!(text(&mut a, "select pg_try_advisory_lock(7)::text"), "true");
    drop(a);
    assert_eq!(text(&mut b, "select pg_try_advisory_lock(7)::text"), "true");
}

#[test]
fn lock_timeout_ends_waits_for_tables_and_rows() {
    let bench = Bench::new();
    let (mut a, mut b) = (bench.session(), bench.session());
    a.batch("create table t (id int primary key); insert into t values (1)").expect("setup");
    b.batch("set lock_timeout = '20ms'").expect("set");
    a.batch("begin; lock table t").expect("locked");
    assert_eq!(code(&mut b, "select * from t"), "55P03");
    a.batch("rollback; begin; select * from t for update").expect("locked");
    assert_eq!(code(&mut b, "update t set id = 2"), "55P03");
    assert_eq!(code(&mut b, "select * from t for share"), "55P03");
    a.batch("rollback").expect("rolled back");
    b.execute("update t set id = 2", &[]).expect("free");
}

#[test]
fn a_deferrable_transaction_waits_visibly_and_can_be_interrupted() {
    const DEFERRED: &str = "begin isolation level serializable read only deferrable";
    let bench = Bench::new();
    let (mut a, mut b) = (bench.session(), bench.session());
    a.batch("create table t (id int primary key); insert into t values (1)").expect("setup");
    let [a_pid, b_pid] = [&mut a, &mut b].map(|s| text(s, "select pg_backend_pid()::text"));
    a.batch("begin isolation level serializable; select * from t; update t set id = 2")
        .expect("a writer runs");
    // No lock is waited for, so lock_timeout does not count.
    b.batch("set lock_timeout = '5ms'; set statement_timeout = '60ms'").expect("set");
    b.batch(DEFERRED).expect("begun");
    assert_eq!(code(&mut b, "select * from t"), "57014");
    b.batch("rollback; set statement_timeout = 0").expect("rolled back");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            b.batch(DEFERRED).expect("begun");
            let seen = text(&mut b, "select id::text from t");
            b.batch("commit").expect("committed");
            seen
        });
        let event =
            format!("select coalesce(wait_event, '') from pg_stat_activity where pid = {b_pid}");
        let mut watch = bench.session();
        until(&mut watch, &event, "SafeSnapshot");
        let blockers = format!("select pg_safe_snapshot_blocking_pids({b_pid})::text");
        assert_eq!(text(&mut watch, &blockers), format!("{{{a_pid}}}"));
        let blocked =
            format!("select pg_isolation_test_session_is_blocked({b_pid}, '{{{a_pid}}}')::text");
        assert_eq!(text(&mut watch, &blocked), "true");
        a.batch("commit").expect("committed");
        assert_eq!(waiting.join().expect("the waiter"), "1", "the snapshot from before");
        assert_eq!(text(&mut watch, &blockers), "{}");
    });
}
