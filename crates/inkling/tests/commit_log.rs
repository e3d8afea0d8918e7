//! Millions of transactions, as the commit log sees them: VACUUM resolves old xids, the catalog says
//! how far, and files of the commit log go. Seen from SQL, on a disk that can lose power.

use inkling::{Database, FromSql, Options, Session, check};
use inkling_storage::engine::testing::{Sim, options, restart_from_xid};
use inkling_storage::ids::Xid;
use inkling_storage::vfs::{Op, Vfs};

/// Xids in a file of the commit log.
const FILE: u64 = 32 * 32_256;

fn scalar<T: FromSql>(s: &mut Session, sql: &str) -> T {
    s.query(sql, &[]).and_then(|rows| rows.scalar()).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn sim(seed: u64) -> Sim {
    Sim { options: options(4096), ..Sim::new(seed) }
}

fn open(sim: &Sim) -> Database {
    Database::over(sim.open(), Options::new()).expect("a database")
}

fn files(sim: &Sim) -> Vec<String> {
    sim.disk.list("pg_xact").expect("list")
}

/// Rows that committed, rows that did not, rows of savepoints, long values.
fn write(db: &Database, table: &str, round: i32) {
    let mut s = db.session().expect("a session");
    for sql in [
        format!(
            "insert into {table} select {round} * 100 + g, 'kept' from generate_series(1, 50) g"
        ),
        format!("insert into {table} values ({round}, repeat('long ', 4000))"),
        format!("begin; insert into {table} values (-{round}, 'never'); rollback"),
        format!(
            "begin; savepoint s; update {table} set b = 'never' where a = {round}; rollback to s; \
             delete from {table} where a = {round} * 100 + 7; commit"
        ),
        format!("begin; delete from {table} where a = {round} * 100 + 8; rollback"),
    ] {
        s.batch(&sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}

fn check_rows(db: &Database, table: &str, rounds: i64) {
    let mut s = db.session().expect("a session");
    let count = format!("select count(*) from {table}");
    assert_eq!(scalar::<i64>(&mut s, &count), rounds * 50);
    assert_eq!(scalar::<i64>(&mut s, &format!("{count} where b = 'never'")), 0);
    let long = format!("select sum(length(b)) from {table} where a < 100");
    assert_eq!(scalar::<i64>(&mut s, &long), rounds * 20_000);
    let report = check::check(db.sql()).expect("a check");
    assert!(report.is_clean(), "{:?}", report.problems);
}

/// A database whose transactions lie in four files of the commit log.
fn four_files(seed: u64) -> (Sim, Database) {
    let mut sim = sim(seed);
    let mut db = open(&sim);
    db.session().expect("a session").batch("create table t (a int, b text)").expect("create");
    write(&db, "t", 1);
    for round in 2..=4 {
        restart_from_xid(db.engine(), Xid::new((round - 1) * FILE + 500)).expect("logged");
        sim = sim.crash(seed);
        db = open(&sim);
        write(&db, "t", round as i32);
    }
    (sim, db)
}

#[test]
fn vacuum_freeze_of_everything_lets_old_files_go() {
    let (sim, db) = four_files(1);
    let mut s = db.session().expect("a session");
    s.batch("checkpoint").expect("checkpoint");
    assert_eq!(files(&sim).len(), 4);
    assert_eq!(db.engine().txns.clog().mapped_files(), 3);
    let age = "select age(relfrozenxid) from pg_class where relname = 't'";
    assert!(scalar::<i32>(&mut s, age) > 3_000_000);
    // One table is not all.
    s.batch("vacuum freeze t").expect("vacuum");
    assert!(scalar::<i32>(&mut s, age) < 1000);
    assert_eq!(files(&sim).len(), 4, "the system relations were not vacuumed");
    s.batch("vacuum freeze").expect("vacuum");
    let all = "select max(age(relfrozenxid)) from pg_class where relkind in ('r', 't')";
    assert!(scalar::<i32>(&mut s, all) < 1000);
    assert!(scalar::<i32>(&mut s, "select age(datfrozenxid) from pg_database") < 1000);
    assert_eq!(files(&sim), ["0003"]);
    assert!(db.engine().control_data().oldest_xid >= Xid::new(3 * FILE));
    check_rows(&db, "t", 4);
    drop((s, db));
    let db = open(&sim);
    check_rows(&db, "t", 4);
    write(&db, "t", 5);
    check_rows(&db, "t", 5);
}

#[test]
fn a_table_that_nobody_vacuums_and_an_old_reader_hold_it_back() {
    let (sim, db) = four_files(2);
    let mut s = db.session().expect("a session");
    s.batch("create table young (a int); create table other (a int, b text)").expect("create");
    let age =
        |table: &str| format!("select age(relfrozenxid) from pg_class where relname = '{table}'");
    assert!(
        scalar::<i32>(&mut s, &age("young")) < 1000,
        "it cannot have what is older than itself"
    );
    let mut reader = db.session().expect("a session");
    reader.batch("begin isolation level repeatable read; select count(*) from t").expect("read");
    s.batch("vacuum freeze").expect("vacuum");
    s.batch("checkpoint").expect("checkpoint");
    assert_eq!(files(&sim).len(), 4, "the reader may hold what was on the pages before");
    assert_eq!(scalar::<i64>(&mut reader, "select count(*) from t"), 200);
    reader.batch("commit").expect("commit");
    s.batch("insert into other values (1, 'x')").expect("insert");
    s.batch("checkpoint").expect("checkpoint");
    assert_eq!(files(&sim), ["0003"], "a later checkpoint does it");
    check_rows(&db, "t", 4);
}

#[test]
fn a_plain_vacuum_freezes_what_is_old_enough() {
    let (_sim, db) = four_files(3);
    let mut s = db.session().expect("a session");
    let age = "select age(relfrozenxid) from pg_class where relname = 't'";
    s.batch("vacuum t").expect("vacuum");
    assert!(scalar::<i32>(&mut s, "select age(3::text::xid)") > 3_000_000);
    s.batch("set vacuum_freeze_min_age = 1500000; set vacuum_freeze_table_age = 0").expect("set");
    s.batch("vacuum t").expect("vacuum");
    let left: i32 = scalar(&mut s, age);
    assert!(left < 1_600_000, "{left}");
    check_rows(&db, "t", 4);
}

/// Calls that change the disk, as they are counted for a power failure.
fn changes(sim: &Sim) -> u64 {
    let ops = [Op::Open, Op::Write, Op::Sync, Op::Allocate, Op::SetLen, Op::Remove, Op::SyncDir];
    ops.map(|op| sim.disk.calls(op)).iter().sum()
}

#[test]
fn a_crash_while_files_go_changes_no_answer() {
    let (whole, db) = four_files(0);
    let before = changes(&whole);
    db.session().expect("a session").batch("vacuum freeze").expect("vacuum");
    let total = changes(&whole) - before;
    drop(db);
    // Somewhere on the way, and after each of the last steps, where the files go.
    let somewhere = (1..6).map(|part| part * total / 6);
    for (seed, step) in somewhere.chain(total - 14..total).zip(0..).map(|(a, b)| (b, a)) {
        let (sim, db) = four_files(0);
        let mut s = db.session().expect("a session");
        sim.disk.power_off_after(step);
        let _ = s.batch("vacuum freeze");
        assert!(sim.disk.is_off(), "step {step} of {total}");
        let after = sim.crash(seed);
        drop((s, db));
        let db = open(&after);
        check_rows(&db, "t", 4);
        let mut s = db.session().expect("a session");
        s.batch("vacuum freeze").expect("vacuum");
        assert_eq!(files(&after), ["0003"], "step {step} of {total}");
        check_rows(&db, "t", 4);
    }
}

#[test]
fn the_counters_are_those_of_the_view() {
    let (sim, db) = four_files(4);
    let mut s = db.session().expect("a session");
    let get = |s: &mut Session, column: &str| -> i64 {
        scalar(s, &format!("select {column} from pg_stat_slru where name = 'transaction'"))
    };
    s.batch("checkpoint; vacuum freeze").expect("vacuum");
    for column in ["blks_zeroed", "blks_hit", "blks_read", "blks_written", "flushes", "truncates"] {
        assert!(get(&mut s, column) > 0, "{column}");
    }
    let reset = "select stats_reset from pg_stat_slru";
    let at: std::time::SystemTime = scalar(&mut s, reset);
    sim.clock.advance(5_000_000);
    s.batch("select pg_stat_reset_slru('transaction')").expect("reset");
    assert_eq!(get(&mut s, "truncates"), 0);
    assert_eq!(get(&mut s, "blks_written"), 0);
    assert_ne!(scalar::<std::time::SystemTime>(&mut s, reset), at);
}
