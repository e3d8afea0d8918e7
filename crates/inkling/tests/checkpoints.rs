//! Checkpoints as they are seen from outside: the views, their resets, and the server's log.

mod common;

use common::{PATIENCE, Server};
use inkling::{Database, FromSql, Options, Session};
use inkling_storage::engine::testing::Sim;
use std::time::Instant;

fn scalar<T: FromSql>(s: &mut Session, sql: &str) -> T {
    s.query(sql, &[]).and_then(|rows| rows.scalar()).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn open() -> (Database, Session) {
    let db = Database::over(Sim::new(1).open(), Options::new()).expect("a database");
    let session = db.session().expect("a session");
    (db, session)
}

fn columns(s: &mut Session, view: &str) -> String {
    scalar(
        s,
        &format!(
            "select string_agg(attname || ' ' || format_type(atttypid, null), ', ' order by attnum) \
             from pg_attribute where attrelid = 'pg_catalog.{view}'::regclass and attnum > 0"
        ),
    )
}

#[test]
fn the_views_have_postgresqls_columns() {
    let (_db, mut s) = open();
    assert_eq!(
        columns(&mut s, "pg_stat_checkpointer"),
        "num_timed bigint, num_requested bigint, num_done bigint, restartpoints_timed bigint, \
         restartpoints_req bigint, restartpoints_done bigint, write_time double precision, \
         sync_time double precision, buffers_written bigint, slru_written bigint, \
         stats_reset timestamp with time zone"
    );
    assert_eq!(
        columns(&mut s, "pg_stat_bgwriter"),
        "buffers_clean bigint, maxwritten_clean bigint, buffers_alloc bigint, \
         stats_reset timestamp with time zone"
    );
}

#[test]
fn checkpoints_are_counted_and_the_counters_reset() {
    let (_db, mut s) = open();
    let get = |s: &mut Session, what: &str| -> i64 {
        scalar(s, &format!("select {what} from pg_stat_checkpointer"))
    };
    let (requested, written) = (get(&mut s, "num_requested"), get(&mut s, "buffers_written"));
    s.batch("create table t (x int); insert into t values (1); checkpoint").expect("checkpoint");
    assert_eq!(get(&mut s, "num_requested"), requested + 1);
    assert_eq!(get(&mut s, "num_done"), get(&mut s, "num_requested"));
    assert_eq!(get(&mut s, "num_timed"), 0);
    assert!(get(&mut s, "buffers_written") > written && get(&mut s, "slru_written") > 0);
    let old = "select pg_stat_get_bgwriter_requested_checkpoints()";
    assert_eq!(scalar::<i64>(&mut s, old), requested + 1);
    assert!(scalar::<i64>(&mut s, "select buffers_alloc from pg_stat_bgwriter") > 0);
    assert!(scalar::<i64>(&mut s, "select wal_records from pg_stat_wal") > 0);

    s.batch("select pg_stat_reset_shared('checkpointer')").expect("reset");
    assert_eq!(get(&mut s, "num_requested + num_done + buffers_written + slru_written"), 0);
    assert!(scalar::<i64>(&mut s, "select buffers_alloc from pg_stat_bgwriter") > 0);
    s.batch("select pg_stat_reset_shared('bgwriter')").expect("reset");
    assert_eq!(scalar::<i64>(&mut s, "select buffers_alloc from pg_stat_bgwriter"), 0);
    assert!(scalar::<i64>(&mut s, "select wal_records from pg_stat_wal") > 0);
    s.batch("select pg_stat_reset_shared('wal')").expect("reset");
    assert_eq!(scalar::<i64>(&mut s, "select wal_records from pg_stat_wal"), 0);
    s.batch("insert into t values (2); checkpoint").expect("checkpoint");
    assert!(scalar::<i64>(&mut s, "select wal_records from pg_stat_wal") > 0);
    // Without a name, all of them.
    s.batch("select pg_stat_reset_shared()").expect("reset");
    assert_eq!(get(&mut s, "num_done"), 0);
    assert_eq!(scalar::<i64>(&mut s, "select wal_records from pg_stat_wal"), 0);
    for (target, code) in [("nothing", "22023"), ("io", "0A000"), ("archiver", "0A000")] {
        let error = s.batch(&format!("select pg_stat_reset_shared('{target}')")).expect_err(target);
        assert_eq!(error.state.code(), code, "{target}");
    }
}

#[test]
fn the_settings_are_there_with_postgresqls_defaults() {
    let (_db, mut s) = open();
    for (name, value) in [
        ("checkpoint_timeout", "5min"),
        ("checkpoint_completion_target", "0.9"),
        ("checkpoint_flush_after", "256kB"),
        ("checkpoint_warning", "30s"),
        ("log_checkpoints", "on"),
        ("max_wal_size", "1GB"),
        ("min_wal_size", "80MB"),
        ("bgwriter_delay", "200ms"),
        ("bgwriter_lru_maxpages", "100"),
        ("bgwriter_lru_multiplier", "2"),
        ("bgwriter_flush_after", "512kB"),
    ] {
        assert_eq!(scalar::<String>(&mut s, &format!("show {name}")), value, "{name}");
    }
}

#[test]
fn the_servers_log_tells_of_checkpoints() {
    let mut server = Server::start();
    server
        .psql("create table t (x int); insert into t select generate_series(1, 5000); checkpoint");
    let log = server.log();
    let starting =
        log.lines().position(|l| l.ends_with("LOG:  checkpoint starting: immediate force wait"));
    let complete = log.lines().position(|l| l.contains("LOG:  checkpoint complete: wrote "));
    assert!(starting.is_some() && starting < complete, "{log}");
    server.stop();
    let log = server.log();
    assert!(log.contains("LOG:  checkpoint starting: shutdown immediate"), "{log}");

    let quiet = Server::start_with(&["log_checkpoints=off"]);
    quiet.psql("create table t (x int); checkpoint");
    assert!(!quiet.log().contains("checkpoint starting"), "{}", quiet.log());
}

#[test]
fn checkpoints_forced_by_the_log_come_with_advice() {
    let server = Server::start_with(&["max_wal_size=16MB", "checkpoint_completion_target=0"]);
    server.psql("create table t (x int, y text)");
    let begun = Instant::now();
    let warned = |log: &str| log.contains("HINT:  ") && log.contains("checkpoint complete");
    while !warned(&server.log()) {
        server.psql("insert into t select g, repeat('x', 1000) from generate_series(1, 5000) g");
        assert!(begun.elapsed() < PATIENCE, "no checkpoint by size");
    }
    let log = server.log();
    assert!(log.contains("LOG:  checkpoints are occurring too frequently ("), "{log}");
    let hint = "HINT:  Consider increasing the configuration parameter \"max_wal_size\".";
    assert!(log.contains(hint), "{log}");
    assert!(log.contains("LOG:  checkpoint starting: wal"), "{log}");
}
