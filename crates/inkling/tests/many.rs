//! Ten thousand savepoints in one transaction, a thousand sessions in one queue: what each costs must
//! not grow with their number.
//!
//! A test compares a tenth of the number with the whole: in proportion is ten times as long, a walk
//! over all for each would be a hundred times. The bound lies between, far enough from both for a
//! busy machine. `cargo test --release --test many -- --nocapture` prints the times.

use inkling::{Database, Options, Session};
use inkling_sql::analyze::statement::ParamTypes;
use inkling_sql::error::Result;
use inkling_sql::functions::FnContext;
use inkling_sql::session as sql;
use inkling_sql::types::{Datum, TypeRef};
use inkling_storage::wait::WaitHandle;
use std::thread;
use std::time::{Duration, Instant};

const MANY: usize = 10_000;
/// Ten times as many may take this many times as long.
const BOUND: u32 = 40;

/// Processor time of this thread: what other programs do meanwhile does not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Bench {
    database: Database,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::Builder::new().prefix("inkling-many-").tempdir().expect("a directory");
        let options = Options::new().set("synchronous_commit", "off").expect("a setting");
        let database = Database::open_with(dir.path().join("data"), options).expect("a database");
        let bench = Bench { database, _dir: dir };
        let table = "create table t (id int primary key, v int); create table one (v int); \
                     insert into one values (0)";
        bench.session().batch(table).expect("tables");
        bench
    }

    fn session(&self) -> Session {
        self.database.session().expect("a session")
    }
}

fn run(session: &mut Session, sql: &str) {
    if let Err(e) = session.execute(sql, &[]) {
        panic!("{sql}: {e}");
    }
}

fn number(session: &mut Session, sql: &str) -> i64 {
    session.query_one(sql, &[]).expect(sql).get(0).expect("a number")
}

/// The quicker of two runs, with a tenth and with all.
fn compare(what: &str, work: impl Fn(&Bench, usize)) {
    let bench = Bench::new();
    let time = |n| {
        let once = || {
            let began = processor_time();
            work(&bench, n);
            processor_time() - began
        };
        once().min(once())
    };
    let (few, many) = (time(MANY / 10), time(MANY));
    println!("{what}: {} {few:?}, {MANY} {many:?}", MANY / 10);
    assert!(many < few * BOUND, "{what}: {few:?} became {many:?}");
}

#[test]
fn savepoints_without_writes() {
    compare("nested savepoints, released at once", |bench, n| {
        let mut s = bench.session();
        run(&mut s, "begin");
        (0..n).for_each(|at| run(&mut s, &format!("savepoint s{at}")));
        run(&mut s, "release s0");
        run(&mut s, "commit");
    });
    compare("nested savepoints, released one by one", |bench, n| {
        let mut s = bench.session();
        run(&mut s, "begin");
        (0..n).for_each(|at| run(&mut s, &format!("savepoint s{at}")));
        (0..n).rev().for_each(|at| run(&mut s, &format!("release s{at}")));
        run(&mut s, "commit");
    });
}

#[test]
fn savepoints_with_a_row_in_each() {
    compare("nested savepoints with a row each, committed", |bench, n| {
        let mut s = bench.session();
        run(&mut s, "truncate t");
        run(&mut s, "begin");
        for at in 0..n {
            run(&mut s, "savepoint s");
            s.execute("insert into t values ($1, 0)", &[&(at as i32)]).expect("inserted");
        }
        run(&mut s, "commit");
        assert_eq!(number(&mut s, "select count(*) from t"), n as i64);
    });
    compare("savepoints with a row each, every second rolled back", |bench, n| {
        let mut s = bench.session();
        run(&mut s, "truncate t");
        run(&mut s, "begin");
        for at in 0..n {
            run(&mut s, "savepoint s");
            s.execute("insert into t values ($1, 0)", &[&(at as i32)]).expect("inserted");
            run(&mut s, if at % 2 == 0 { "release s" } else { "rollback to s" });
        }
        run(&mut s, "commit");
        assert_eq!(number(&mut s, "select count(*) from t"), n.div_ceil(2) as i64);
    });
    compare("nested savepoints with a row each, rolled back one by one", |bench, n| {
        let mut s = bench.session();
        run(&mut s, "truncate t");
        run(&mut s, "begin");
        for at in 0..n {
            run(&mut s, &format!("savepoint s{at}"));
            s.execute("insert into t values ($1, 0)", &[&(at as i32)]).expect("inserted");
        }
        for at in (0..n).rev() {
            run(&mut s, &format!("rollback to s{at}"));
            run(&mut s, &format!("release s{at}"));
        }
        run(&mut s, "commit");
        assert_eq!(number(&mut s, "select count(*) from t"), 0);
    });
}

/// Who reads what such a transaction has written so far does not pay for its savepoints.
#[test]
fn readers_beside_keep_their_speed() {
    let bench = Bench::new();
    let (mut s, mut reader) = (bench.session(), bench.session());
    let fill = format!("insert into t select n, 0 from generate_series(0, {}) n", MANY - 1);
    run(&mut s, &fill);
    let read = |reader: &mut Session| {
        let once = |reader: &mut Session| {
            let began = processor_time();
            assert_eq!(number(reader, "select count(*) from t where v = 0"), MANY as i64);
            processor_time() - began
        };
        (0..7).map(|_| once(reader)).min().expect("times")
    };
    let write = |s: &mut Session, in_savepoints: bool| {
        run(s, "begin");
        for at in 0..MANY {
            if in_savepoints {
                run(s, "savepoint s");
            }
            s.execute("update t set v = 1 where id = $1", &[&(at as i32)]).expect("updated");
        }
    };
    write(&mut s, false);
    let plain = read(&mut reader);
    run(&mut s, "rollback");
    run(&mut s, "vacuum t");
    write(&mut s, true);
    let beside = read(&mut reader);
    println!("a scan beside {MANY} updates: {plain:?}; the same in {MANY} savepoints: {beside:?}");
    run(&mut s, "rollback");
    assert!(beside < plain * 10, "{plain:?} became {beside:?}");
}

// ---- A thousand sessions ---------------------------------------------------------------------

/// A session that one thread drives together with others: a statement that has to wait is left.
struct Player {
    session: sql::Session,
    waits: Option<WaitHandle>,
    answer: Answer,
}

#[derive(Default)]
struct Answer(Vec<i64>);

impl sql::RowSink for Answer {
    fn row(&mut self, values: &[Datum], _: &[TypeRef], _: &dyn FnContext) -> Result<()> {
        if let Some(Datum::Int4(v)) = values.first() {
            self.0.push(i64::from(*v));
        }
        Ok(())
    }
    fn copy_out_begin(&mut self, _: sql::CopyInfo) -> Result<()> {
        Ok(())
    }
    fn copy_data(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn full(&self) -> bool {
        false
    }
    fn notice(&mut self, _: inkling_sql::error::SqlError) {}
}

impl Player {
    fn new(bench: &Bench, pid: i32) -> Player {
        let params = sql::SessionParams {
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            pid,
            ..sql::SessionParams::default()
        };
        let session = sql::Session::new(bench.database.sql(), params).expect("a session");
        Player { session, waits: None, answer: Answer::default() }
    }

    fn begin(&mut self, text: &str) {
        let mut statements = self.session.parse_statements(text).expect(text);
        let prepared =
            self.session.prepare_parsed(statements.pop(), ParamTypes::none()).expect(text);
        self.session.close_portal("");
        self.session.bind("", prepared, Vec::new()).expect(text);
        self.go_on();
    }

    /// Until it waits, or is done and committed.
    fn go_on(&mut self) {
        loop {
            match self.session.step("", &mut self.answer, 0).expect("a step") {
                sql::Progress::Wait(handle) if handle.is_ready() => {}
                sql::Progress::Wait(handle) => {
                    self.waits = Some(handle);
                    return;
                }
                sql::Progress::Complete(_) => break,
                _ => {}
            }
        }
        self.waits = None;
        self.session.finish_implicit().expect("committed");
    }

    fn is_ready(&self) -> bool {
        self.waits.as_ref().is_some_and(WaitHandle::is_ready)
    }
}

/// How long it takes `n` sessions to come, wait for one row, and be let through in order.
fn queue(bench: &Bench, n: usize) -> Duration {
    let mut holder = bench.session();
    run(&mut holder, "begin");
    run(&mut holder, "update one set v = 0");
    let mut players: Vec<Player> =
        (0..n).map(|at| Player::new(bench, 10_000 + at as i32)).collect();
    let began = processor_time();
    for player in &mut players {
        player.begin("update one set v = v + 1 returning v");
        assert!(player.waits.is_some(), "the row is held");
    }
    run(&mut holder, "commit");
    for at in 0..n {
        // A wait has two parts, the queue's and the transaction's: each is woken when it is its turn.
        let patience = Instant::now() + Duration::from_secs(60);
        while players[at].waits.is_some() {
            assert!(Instant::now() < patience, "{at} was not woken");
            if players[at].is_ready() {
                players[at].go_on();
            } else {
                thread::yield_now();
            }
            // Its turn came, so the one behind it may ask for the row now.
            if let Some(next) = players.get_mut(at + 1).filter(|next| next.is_ready()) {
                next.go_on();
            }
        }
        assert_eq!(players[at].answer.0, [at as i64 + 1], "the order of the queue");
    }
    processor_time() - began
}

#[test]
fn a_thousand_sessions_wait_for_one_row() {
    let bench = Bench::new();
    let few = queue(&bench, 100).min(queue(&bench, 100));
    let many = queue(&bench, 1000).min(queue(&bench, 1000));
    println!("100 sessions in one queue: {few:?}; 1000: {many:?}");
    assert!(many < few * BOUND, "{few:?} became {many:?}");
    assert_eq!(number(&mut bench.session(), "select v::bigint from one"), 1000);
}
