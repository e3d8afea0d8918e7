//! Lists that many clients append to and read at once, and a checker that looks for cycles in what
//! they saw ([`checker`]).
//!
//! ```text
//!   32 sessions ── random transactions ──> history ── checker ──> anomalies, by name
//!      reads by key, by a secondary key, of everything; upserts, updates, deletes with
//!      re-insertion; savepoints released and rolled back; rollbacks; 40001 and 40P01 on the way
//! ```
//!
//! - READ COMMITTED must show none of G0, G1a, G1b, G1c, REPEATABLE READ nothing beyond snapshot
//!   isolation, SERIALIZABLE no cycle at all.
//! - READ COMMITTED and REPEATABLE READ are expected to show what they allow: a workload in which
//!   nothing ever meets would prove nothing.
//! - With crashes (a simulated disk loses power under the sessions; a server is killed): what was
//!   acknowledged is there, and the order of everything is one order across the crashes.
//!
//! `INKLING_APPEND_ROUNDS` makes the runs longer.

#[path = "list_append/checker.rs"]
mod checker;
mod common;

use checker::{Anomaly, Fate, Key, Level, Op, Txn, Value};
use common::from_env;
use inkling::{Database, Error, Options, Session};
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::{Random, SeededRandom};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

const CLIENTS: u64 = 32;
const KEYS: u64 = 10;
const GROUPS: i32 = 3;

/// Where statements go: an embedded session or a connection.
trait Talk {
    /// The rows, as (key, list).
    fn ask(&mut self, sql: &str) -> Result<Vec<(Key, Vec<Value>)>, Failed>;
}

/// Why a statement failed.
#[derive(Debug)]
enum Failed {
    /// Run the transaction again: 40001, 40P01, 23505 by a race.
    Again,
    /// The server or its disk is gone.
    Gone,
}

fn list(text: &str) -> Vec<Value> {
    text.split(',').filter(|part| !part.is_empty()).map(|p| p.parse().expect("a value")).collect()
}

struct Embedded<'d> {
    session: Session,
    /// The simulated disk of the crashing variant.
    sim: Option<&'d Sim>,
}

impl Talk for Embedded<'_> {
    fn ask(&mut self, sql: &str) -> Result<Vec<(Key, Vec<Value>)>, Failed> {
        let answer = self.session.query(sql, &[]);
        match answer {
            Ok(rows) if rows.columns().len() == 2 => {
                let row = |row: &inkling::Row| {
                    let text: String = row.get(1).expect("text");
                    (row.get(0).expect("a key"), list(&text))
                };
                Ok(rows.iter().map(row).collect())
            }
            Ok(_) => Ok(Vec::new()),
            Err(e) => Err(self.failed(sql, &e)),
        }
    }
}

impl Embedded<'_> {
    fn failed(&self, sql: &str, e: &Error) -> Failed {
        match e.state.code() {
            "40001" | "40P01" => Failed::Again,
            _ if self.sim.is_some_and(|sim| sim.disk.is_off()) => Failed::Gone,
            _ => panic!("{sql}: {e} [{}]", e.state.code()),
        }
    }
}

const TABLE: &str = "create table lists (k int primary key, grp int not null, n int not null, \
                     items text not null); \
                     create index on lists (grp); create index on lists (n)";

/// One client's transactions, one after another.
struct Client<'a> {
    random: SeededRandom,
    next: &'a AtomicI64,
    level: &'static str,
    history: Vec<Txn>,
    retries: u64,
}

impl Client<'_> {
    fn key(&self) -> Key {
        self.random.below(KEYS) as Key
    }

    /// One transaction to its end. False: the server is gone.
    fn transaction(&mut self, talk: &mut impl Talk) -> bool {
        let mut ops = Vec::new();
        let done = self.body(talk, &mut ops);
        let (fate, goes_on) = match done {
            Ok(()) if self.random.below(12) == 0 => {
                let gone = matches!(talk.ask("rollback"), Err(Failed::Gone));
                (Fate::Aborted, !gone)
            }
            Ok(()) => match talk.ask("commit") {
                Ok(_) => (Fate::Committed, true),
                Err(Failed::Again) => (Fate::Aborted, true),
                Err(Failed::Gone) => (Fate::Unknown, false),
            },
            Err(Failed::Again) => {
                self.retries += 1;
                (Fate::Aborted, !matches!(talk.ask("rollback"), Err(Failed::Gone)))
            }
            Err(Failed::Gone) => (Fate::Aborted, false),
        };
        self.history.push(Txn { ops, fate });
        goes_on
    }

    fn body(&mut self, talk: &mut impl Talk, ops: &mut Vec<Op>) -> Result<(), Failed> {
        talk.ask(&format!("begin isolation level {}", self.level))?;
        for n in 0..1 + self.random.below(5) {
            if self.random.below(5) == 0 {
                self.in_savepoint(talk, ops, n)?;
            } else {
                self.step(talk, ops)?;
            }
        }
        Ok(())
    }

    fn in_savepoint(
        &mut self,
        talk: &mut impl Talk,
        ops: &mut Vec<Op>,
        n: u64,
    ) -> Result<(), Failed> {
        talk.ask(&format!("savepoint s{n}"))?;
        let from = ops.len();
        for _ in 0..1 + self.random.below(2) {
            self.step(talk, ops)?;
        }
        if self.random.below(2) == 0 {
            return talk.ask(&format!("release s{n}")).map(|_| ());
        }
        talk.ask(&format!("rollback to s{n}"))?;
        // What was read is known; what was read of one's own undone appends is nobody's business.
        let mut touched = Vec::new();
        let inside = ops.split_off(from);
        for op in inside {
            match op {
                Op::Append(key, value) => {
                    touched.push(key);
                    ops.push(Op::Undone(key, value));
                }
                Op::Read(key, _) if touched.contains(&key) => {}
                op => ops.push(op),
            }
        }
        Ok(())
    }

    fn step(&mut self, talk: &mut impl Talk, ops: &mut Vec<Op>) -> Result<(), Failed> {
        match self.random.below(10) {
            0..=2 => self.read(talk, ops, Some(self.key())),
            3 => self.read_group(talk, ops),
            4 => self.read(talk, ops, None),
            _ => self.append(talk, ops),
        }
    }

    /// One list by its key, or all of them.
    fn read(
        &mut self,
        talk: &mut impl Talk,
        ops: &mut Vec<Op>,
        key: Option<Key>,
    ) -> Result<(), Failed> {
        let condition = key.map_or(String::new(), |key| format!(" where k = {key}"));
        let found = talk.ask(&format!("select k, items from lists{condition}"))?;
        self.note(ops, &found, |k| key.is_none_or(|key| key == k));
        Ok(())
    }

    fn read_group(&mut self, talk: &mut impl Talk, ops: &mut Vec<Op>) -> Result<(), Failed> {
        let group = self.random.below(GROUPS as u64) as i32;
        let found = talk.ask(&format!("select k, items from lists where grp = {group}"))?;
        self.note(ops, &found, |key| key % GROUPS == group);
        Ok(())
    }

    /// A list that a read should have shown and did not is empty.
    fn note(&self, ops: &mut Vec<Op>, found: &[(Key, Vec<Value>)], asked: impl Fn(Key) -> bool) {
        let lists: BTreeMap<Key, Vec<Value>> = found.iter().cloned().collect();
        assert_eq!(lists.len(), found.len(), "a row was shown twice: {found:?}");
        for key in (0..KEYS as Key).filter(|key| asked(*key)) {
            ops.push(Op::Read(key, lists.get(&key).cloned().unwrap_or_default()));
        }
    }

    fn append(&mut self, talk: &mut impl Talk, ops: &mut Vec<Op>) -> Result<(), Failed> {
        let key = self.key();
        let value = self.next.fetch_add(1, Ordering::Relaxed);
        let group = key % GROUPS;
        // Appended even if the answer does not come: that is for the fate to say.
        let did = |ops: &mut Vec<Op>, rows: Vec<(Key, Vec<Value>)>| {
            if let Some((key, list)) = rows.into_iter().next() {
                assert_eq!(list.last(), Some(&value), "what RETURNING shows");
                ops.push(Op::Append(key, value));
            }
        };
        match self.random.below(4) {
            0 => {
                // Gone and there again, at another place.
                let sql = format!("delete from lists where k = {key} returning k, items");
                let deleted = talk.ask(&sql)?;
                let Some((_, mut items)) = deleted.into_iter().next() else { return Ok(()) };
                items.push(value);
                let text: String = items.iter().map(|v| format!("{v},")).collect();
                let sql = format!(
                    "insert into lists values ({key}, {group}, {}, '{text}') returning k, items",
                    items.len()
                );
                let rows = talk.ask(&sql)?;
                did(ops, rows);
            }
            1 => {
                let sql = format!(
                    "update lists set items = items || '{value},', n = n + 1 where k = {key} \
                     returning k, items"
                );
                let rows = talk.ask(&sql)?;
                did(ops, rows);
            }
            _ => {
                let sql = format!(
                    "insert into lists values ({key}, {group}, 1, '{value},') \
                     on conflict (k) do update set items = lists.items || excluded.items, \
                     n = lists.n + 1 returning k, items"
                );
                let rows = talk.ask(&sql)?;
                did(ops, rows);
            }
        }
        Ok(())
    }
}

/// What all clients together did.
#[derive(Default)]
struct Run {
    history: Vec<Txn>,
    retries: u64,
}

impl Run {
    fn add(&mut self, client: Client<'_>) {
        self.history.extend(client.history);
        self.retries += client.retries;
    }

    /// The last word: a transaction of its own that reads every list.
    fn read_all(&mut self, talk: &mut impl Talk) {
        let found = talk.ask("select k, items from lists").expect("the lists");
        let lists: BTreeMap<Key, Vec<Value>> = found.into_iter().collect();
        let read = |key| Op::Read(key, lists.get(&key).cloned().unwrap_or_default());
        let ops = (0..KEYS as Key).map(read).collect();
        self.history.push(Txn { ops, fate: Fate::Committed });
    }

    fn judge(&self, level: Level, what: &str) -> Vec<Anomaly> {
        let committed = self.history.iter().filter(|t| t.fate == Fate::Committed).count();
        let found = checker::check(&self.history);
        let mut names: Vec<&str> = found.iter().map(|a| a.name).collect();
        names.dedup();
        println!(
            "{what}: {} transactions, {committed} committed, {} to be run again; {names:?}",
            self.history.len(),
            self.retries
        );
        let wrong: Vec<&Anomaly> = found.iter().filter(|a| level.forbids(a.name)).collect();
        assert!(wrong.is_empty(), "{what}: {:#?}", &wrong[..wrong.len().min(5)]);
        assert!(committed as u64 > CLIENTS, "{what}: hardly anything happened");
        found
    }
}

fn client<'a>(random: u64, next: &'a AtomicI64, level: &'static str) -> Client<'a> {
    Client { random: SeededRandom::new(random), next, level, history: Vec::new(), retries: 0 }
}

fn options() -> Options {
    Options::new()
        .set("deadlock_timeout", "20ms")
        .and_then(|o| o.set("synchronous_commit", "off"))
        .expect("settings")
}

/// Clients that have nothing else to do, on a directory of their own.
fn run(level: &'static str) -> Run {
    let dir = tempfile::Builder::new().prefix("inkling-lists-").tempdir().expect("a directory");
    let database = Database::open_with(dir.path().join("data"), options()).expect("a database");
    database.session().expect("a session").batch(TABLE).expect("a table");
    let next = AtomicI64::new(1);
    let rounds = 40 * from_env("INKLING_APPEND_ROUNDS", 1);
    let mut run = Run::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|who| {
                let (database, next) = (&database, &next);
                scope.spawn(move || {
                    let session = database.session().expect("a session");
                    let mut talk = Embedded { session, sim: None };
                    let mut client = client(who, next, level);
                    (0..rounds).for_each(|_| {
                        client.transaction(&mut talk);
                    });
                    client
                })
            })
            .collect();
        clients.into_iter().for_each(|c| run.add(c.join().expect("a client")));
    });
    let session = database.session().expect("a session");
    run.read_all(&mut Embedded { session, sim: None });
    let report = inkling::check::check(database.sql()).expect("check");
    assert!(report.is_clean(), "{:?}", report.problems);
    run
}

fn has(found: &[Anomaly], names: &[&str]) -> bool {
    found.iter().any(|anomaly| names.contains(&anomaly.name))
}

#[test]
fn read_committed_shows_nothing_uncommitted() {
    let found = run("read committed").judge(Level::ReadCommitted, "read committed");
    assert!(has(&found, &["G-single", "G-nonadjacent"]), "nothing ever met: {found:?}");
}

#[test]
fn repeatable_read_is_snapshot_isolation() {
    let found = run("repeatable read").judge(Level::RepeatableRead, "repeatable read");
    assert!(has(&found, &["G2"]), "no write skew ever: {found:?}");
}

/// Whether the level exists.
fn serializable_is_there() -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let database = Database::open(dir.path().join("data")).expect("a database");
    let mut session = database.session().expect("a session");
    match session.execute("begin isolation level serializable", &[]) {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e.state.code(), "0A000", "{e}");
            false
        }
    }
}

#[test]
fn serializable_has_no_cycle() {
    if serializable_is_there() {
        run("serializable").judge(Level::Serializable, "serializable");
    }
}

/// The power goes under working clients, several times; what one disk has lived through is one
/// history.
fn run_with_crashes(level: &'static str, seed: u64) -> Run {
    let random = SeededRandom::new(seed);
    let mut sim = Sim::new(seed);
    sim.options.shared_buffers_bytes = 100 * 8192;
    let next = AtomicI64::new(1);
    let mut run = Run::default();
    let options = Options::new().set("deadlock_timeout", "5ms").expect("a setting");
    for round in 0..6 {
        let (engine, _) = sim.try_open().expect("opens");
        let database = Database::over(engine, options.clone()).expect("a database");
        if round == 0 {
            database.session().expect("a session").batch(TABLE).expect("a table");
        }
        sim.disk.power_off_after(200 + random.below(800));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // There are no background threads on this host: deadlocks are looked for here.
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    database.engine().locks.detect_deadlocks();
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let clients: Vec<_> = (0..CLIENTS / 4)
                .map(|who| {
                    let (database, next, sim) = (&database, &next, &sim);
                    scope.spawn(move || {
                        let mut client = client(seed * 1000 + round * 100 + who, next, level);
                        let Ok(session) = database.session() else { return client };
                        let mut talk = Embedded { session, sim: Some(sim) };
                        while client.transaction(&mut talk) {}
                        client
                    })
                })
                .collect();
            clients.into_iter().for_each(|c| run.add(c.join().expect("a client")));
            over.store(true, Ordering::Relaxed);
        });
        let after = sim.crash(random.next_u64());
        drop(database);
        sim = after;
    }
    let (engine, _) = sim.try_open().expect("opens");
    let database = Database::over(engine, options).expect("a database");
    let session = database.session().expect("a session");
    run.read_all(&mut Embedded { session, sim: None });
    let report = inkling::check::check(database.sql()).expect("check");
    assert!(report.is_clean(), "{:?}", report.problems);
    run
}

#[test]
fn crashes_lose_nothing_acknowledged_and_reorder_nothing() {
    for seed in 1..=from_env("INKLING_APPEND_ROUNDS", 2) {
        run_with_crashes("read committed", seed).judge(Level::ReadCommitted, "crashes");
        run_with_crashes("repeatable read", seed)
            .judge(Level::RepeatableRead, "crashes, snapshots");
    }
    if serializable_is_there() {
        run_with_crashes("serializable", 77).judge(Level::Serializable, "crashes, serializable");
    }
}
