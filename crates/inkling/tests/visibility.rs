//! Reads never write: seen from SQL, under every hint policy, and with the views that show it.

mod common;

use common::temporary;
use inkling::{Database, FromSql, Options, Session};

fn scalar<T: FromSql>(s: &mut Session, sql: &str) -> T {
    s.query(sql, &[]).and_then(|rows| rows.scalar()).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Records and bytes of log so far, dirty pages now, pages that hints made dirty so far.
fn traces(s: &mut Session) -> [i64; 4] {
    [
        "select wal_records from pg_stat_wal",
        "select wal_bytes::int8 from pg_stat_wal",
        "select buffers_dirty::int8 from pg_buffercache_summary()",
        "select pages_dirtied_by_hints from inkling_stat_visibility",
    ]
    .map(|sql| scalar(s, sql))
}

fn open(policy: &str) -> (tempfile::TempDir, Database) {
    let dir = temporary();
    let root = dir.path().join("data");
    std::fs::create_dir_all(&root).expect("a directory");
    std::fs::write(root.join("inkling.disposable"), "").expect("a mark");
    let options = Options::new()
        .set("hint_policy", policy)
        .and_then(|o| o.set("synchronous_commit", "off"))
        .expect("settings");
    let db = Database::open_with(&root, options).expect("a database");
    (dir, db)
}

fn load(s: &mut Session) {
    // Three transactions: the checkpoint must find the commit durable.
    for sql in
        ["create table t (x int)", "insert into t select generate_series(1, 20000)", "checkpoint"]
    {
        s.batch(sql).expect(sql);
    }
}

#[test]
fn the_first_scan_after_a_load_writes_nothing() {
    let (_dir, db) = open("frame");
    let mut s = db.session().expect("a session");
    load(&mut s);
    let before = traces(&mut s);
    for _ in 0..3 {
        assert_eq!(scalar::<i64>(&mut s, "select count(*) from t"), 20_000);
        assert_eq!(scalar::<i64>(&mut s, "select count(*) from t where x % 2 = 0"), 10_000);
    }
    assert_eq!(traces(&mut s), before, "records, bytes, dirty pages, dirtied pages");
    let by_page: i64 = scalar(&mut s, "select by_frame_summary from inkling_stat_visibility");
    assert!(by_page >= 100_000, "all but the first scan take pages whole: {by_page}");
}

#[test]
fn the_older_policies_pay_for_the_first_scan_and_say_the_same() {
    for policy in ["flushed", "page_lsn", "unsafe_immediate", "off"] {
        let (_dir, db) = open(policy);
        let mut s = db.session().expect("a session");
        load(&mut s);
        let before = traces(&mut s);
        for _ in 0..3 {
            assert_eq!(scalar::<i64>(&mut s, "select count(*) from t"), 20_000, "{policy}");
        }
        let after = traces(&mut s);
        let pages: i64 = scalar(&mut s, "select pg_relation_size('t') / 8192");
        let writes = policy != "off";
        assert_eq!(after[3] - before[3], if writes { pages } else { 0 }, "{policy}: dirtied");
        assert_eq!(after[0] - before[0], if writes { pages } else { 0 }, "{policy}: page images");
        let hinted = "select count(*) from heap_page_items('t', 0) where t_infomask & 256 > 0";
        assert_eq!(scalar::<i64>(&mut s, hinted) > 0, writes, "{policy}: hints on the page");
    }
}

#[test]
fn what_is_on_disk_is_hinted_and_what_is_in_memory_is_not() {
    let (dir, db) = open("frame");
    let mut s = db.session().expect("a session");
    s.batch("create table t (x int, y int); insert into t values (1, 1), (2, 2), (3, 3)")
        .expect("load");
    s.batch("update t set y = 0 where x = 2").expect("change");
    s.batch("checkpoint").expect("checkpoint");
    let on_page = "select count(*) from heap_page_items('t', 0) where t_infomask & 256 > 0";
    assert_eq!(scalar::<i64>(&mut s, on_page), 0);
    let written = "select hints_set_on_write_back from inkling_stat_visibility";
    assert!(scalar::<i64>(&mut s, written) >= 5);
    drop(s);
    db.close().expect("close");
    let db = Database::open(dir.path().join("data")).expect("again");
    let mut s = db.session().expect("a session");
    assert_eq!(scalar::<i64>(&mut s, on_page), 4, "three rows and a new version");
    let deleted = "select count(*) from heap_page_items('t', 0) where t_infomask & 1024 > 0";
    assert_eq!(scalar::<i64>(&mut s, deleted), 1, "the old version's end is hinted too");
    let flag = "select flags & 4 from page_header('t', 0)";
    assert_eq!(scalar::<i16>(&mut s, flag), 0, "an ended version keeps the flag away");
    assert_eq!(scalar::<i64>(&mut s, "select sum(y) from t"), 4);
}

#[test]
fn a_page_that_all_see_is_marked_on_the_way_out() {
    let (dir, db) = open("frame");
    let mut s = db.session().expect("a session");
    load(&mut s);
    drop(s);
    db.close().expect("close");
    let db = Database::open(dir.path().join("data")).expect("again");
    let mut s = db.session().expect("a session");
    let flag = "select flags & 4 from page_header('t', 0)";
    assert_eq!(scalar::<i16>(&mut s, flag), 4);
    assert!(!scalar::<bool>(&mut s, "select all_visible from pg_visibility_map('t', 0)"));
    s.batch("delete from t where x = 1").expect("delete");
    assert_eq!(scalar::<i16>(&mut s, flag), 0, "a change takes the mark back");
    assert_eq!(scalar::<i64>(&mut s, "select count(*) from t"), 19_999);
}

#[test]
fn the_unsafe_policy_wants_a_mark() {
    let dir = temporary();
    let options = Options::new().set("hint_policy", "unsafe_immediate").expect("a setting");
    let refused = Database::open_with(dir.path().join("data"), options).expect_err("no mark");
    assert!(refused.to_string().contains("inkling.disposable"), "{refused}");
}

#[test]
fn nobody_waits_for_a_commit_that_a_crash_would_empty() {
    let (_dir, db) = open("frame");
    let mut s = db.session().expect("a session");
    s.batch("set synchronous_commit = on").expect("set");
    s.batch("create table l (x int); create unlogged table u (x int)").expect("create");
    let mut syncs = |sql: &str| {
        let count = "select wal_sync from pg_stat_wal";
        let before: i64 = scalar(&mut s, count);
        for _ in 0..20 {
            s.batch(sql).expect(sql);
        }
        scalar::<i64>(&mut s, count) - before
    };
    assert!(syncs("insert into l values (1)") >= 20);
    assert!(syncs("begin; insert into u values (1); insert into l values (1); commit") >= 20);
    // The log's writer may flush on its own account meanwhile, though not for each of them.
    let alone = syncs("insert into u values (1)");
    assert!(alone < 10, "{alone} flushes");
}

#[test]
fn raw_pages_are_for_superusers() {
    let (_dir, db) = open("frame");
    let mut s = db.session().expect("a session");
    s.batch("create table t (x int); insert into t values (1); create index i on t (x)")
        .expect("load");
    for (sql, code) in [
        ("select * from page_header('t', 9)", "22023"),
        ("select * from page_header('t', -1)", "22023"),
        ("select * from heap_page_items('i', 0)", "42809"),
        ("select * from heap_page_items('nothing', 0)", "42P01"),
        ("select * from pg_visibility_map('pg_stat_wal')", "42809"),
    ] {
        let error = s.query(sql, &[]).expect_err(sql);
        assert_eq!(error.state.code(), code, "{sql}");
    }
}
