//! Power failures under the whole database: SQL on a disk that loses what was not synced.
//!
//! ```text
//!   chain = one seed: open, work, crash, recover, compare, check, work, crash, ...
//!
//!   model:   S0 ── S1 ── S2 ── S3 ── S4        states after each commit, in commit order
//!                        ^ last acknowledged synchronous commit
//!   after a crash the database must equal one of S2, S3, S4 (or S5, whose commit the power cut)
//! ```
//!
//! Several sessions work in turn, so that transactions are open when the power goes; their rows
//! never meet, so that the model knows the outcome of every statement. Tables with secondary
//! indexes, long values, inserts, updates (heap-only and not), deletes, savepoints, rollbacks,
//! tables and indexes made and dropped, columns added, synchronous and asynchronous commits,
//! vacuum, checkpoints, the log's writer, and few frames, so that pages are written back in the
//! middle of everything. The disk drops, tears and reorders unsynced writes, and may lose power
//! inside any call. Everything follows from the seed; there are no threads.
//!
//! - `INKLING_CRASHES`: how many crashes (2,000 by default).
//! - `INKLING_CRASH_SEED`: replays one chain.

mod common;

use common::run_chains;
use inkling::{Database, Options, Result, Session};
use inkling_storage::engine::CheckpointKind;
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::{Random, SeededRandom};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const CRASHES_A_CHAIN: u64 = 25;
const SESSIONS: u64 = 3;
/// Ids are below this; session `s` writes those that leave remainder `s`.
const IDS: u64 = 60;
/// The tables that are always there, and those that come and go.
const FIXED: [&str; 2] = ["a", "b"];
const PASSING: [&str; 2] = ["p", "q"];
/// Indexes that come and go.
const INDEXES: [(&str, &str); 3] =
    [("a_w", "a (left(w, 10), v)"), ("b_v", "b (v desc, id)"), ("b_big", "b (id) where v > 50")];

/// What a row holds besides its id.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    v: i32,
    w: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State {
    /// Table name to rows.
    tables: BTreeMap<String, BTreeMap<i32, Row>>,
    indexes: BTreeSet<String>,
    /// Columns added to `a`.
    added: usize,
}

impl State {
    fn describe(&self) -> String {
        let mut out = String::new();
        for (name, rows) in &self.tables {
            let _ = write!(out, "{name}:");
            for (id, row) in rows {
                let _ = write!(out, " {id}={},{}", row.v, &row.w[..row.w.len().min(6)]);
            }
            out.push('\n');
        }
        let _ = write!(out, "indexes {:?}, columns added {}", self.indexes, self.added);
        out
    }
}

/// A change that a transaction made, to be applied to the committed state.
#[derive(Clone, Debug)]
enum Change {
    Put(String, i32, Row),
    Remove(String, i32),
    Create(String),
    Drop(String),
    MakeIndex(String),
    DropIndex(String),
    AddColumn,
}

fn apply(state: &mut State, changes: &[Change]) {
    for change in changes {
        match change.clone() {
            Change::Put(table, id, row) => {
                state.tables.entry(table).or_default().insert(id, row);
            }
            Change::Remove(table, id) => {
                state.tables.entry(table).or_default().remove(&id);
            }
            Change::Create(table) => {
                state.tables.insert(table, BTreeMap::new());
            }
            Change::Drop(table) => {
                state.tables.remove(&table);
            }
            Change::MakeIndex(name) => {
                state.indexes.insert(name);
            }
            Change::DropIndex(name) => {
                state.indexes.remove(&name);
            }
            Change::AddColumn => state.added += 1,
        }
    }
}

/// A session and what its open transaction did.
struct Actor {
    session: Session,
    open: bool,
    changes: Vec<Change>,
    /// (name, length of `changes`).
    savepoints: Vec<(String, usize)>,
    sync: bool,
}

/// Why a chain's work stopped.
enum Stop {
    /// The power is gone.
    PowerOff,
}

/// One chain: everything from one seed.
struct Chain {
    random: SeededRandom,
    sim: Sim,
    /// States in commit order; those before `durable` cannot be what a crash leaves.
    states: Vec<State>,
    durable: usize,
    /// What was done since the last crash, for the message of a failure.
    trace: Vec<String>,
}

fn one_of<'a, T: ?Sized>(random: &SeededRandom, of: &[&'a T]) -> &'a T {
    of[random.below(of.len() as u64) as usize]
}

fn options() -> Options {
    // A lock that another session holds is not waited for: there is nobody to give it up.
    Options::new().set("lock_timeout", "1ms").expect("a setting")
}

impl Chain {
    fn new(seed: u64) -> Chain {
        let random = SeededRandom::new(seed);
        let mut sim = Sim::new(random.next_u64());
        sim.options.shared_buffers_bytes = (40 + random.below(200) as usize) * 8192;
        sim.options.full_page_writes = true;
        Chain { random, sim, states: vec![State::default()], durable: 0, trace: Vec::new() }
    }

    fn chance(&self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn committed(&self) -> &State {
        self.states.last().expect("the first state")
    }

    fn open(&self) -> Result<Database> {
        let (engine, _) = self.sim.try_open()?;
        Database::over(engine, options())
    }

    // ---- work --------------------------------------------------------------------------------

    /// The tables of a new database, each with a primary key and an index.
    fn first_tables(&mut self, db: &Database) -> Result<()> {
        let mut session = db.session()?;
        for table in FIXED {
            session.batch(&format!(
                "create table {table} (id int primary key, v int not null, w text); \
                 create index {table}_i on {table} (v)"
            ))?;
            self.commit_state(&[Change::Create(table.to_owned())], true);
        }
        Ok(())
    }

    fn commit_state(&mut self, changes: &[Change], durable: bool) {
        let mut next = self.committed().clone();
        apply(&mut next, changes);
        self.states.push(next);
        // What changed nothing waits for nothing.
        if durable && !changes.is_empty() {
            self.durable = self.states.len() - 1;
        }
    }

    /// Works until the steps are over or the power goes.
    fn work(&mut self, db: &Database) -> Result<(), Stop> {
        let mut actors: Vec<Actor> = Vec::new();
        for _ in 0..SESSIONS {
            let session = db.session().map_err(|e| self.failed("session", &e))?;
            let (changes, savepoints) = (Vec::new(), Vec::new());
            actors.push(Actor { session, open: false, changes, savepoints, sync: true });
        }
        for _ in 0..5 + self.random.below(40) {
            if self.chance(12) {
                self.housekeeping(db, &mut actors)?;
            }
            let who = self.random.below(SESSIONS) as usize;
            self.turn(who as i32, &mut actors[who])?;
        }
        Ok(())
    }

    /// An error: the power is gone, or the test has found something.
    fn failed(&self, what: &str, e: &inkling::Error) -> Stop {
        assert!(
            self.sim.disk.is_off(),
            "{what}: {e} [{}] {:?}\n{}",
            e.state.code(),
            e.get_detail(),
            self.trace.join("\n")
        );
        Stop::PowerOff
    }

    fn housekeeping(&mut self, db: &Database, actors: &mut [Actor]) -> Result<(), Stop> {
        let engine = db.engine();
        let kind = self.random.below(6);
        self.trace.push(format!("housekeeping {kind}"));
        let done = match kind {
            0 => engine.checkpoint(CheckpointKind::Immediate).map(|_| ()),
            1 => engine.background_round(),
            2 => engine.wal.run_writer_once().map(|_| ()),
            3 => {
                self.sim.clock.advance(300_000);
                engine.wal.run_writer_once().map(|_| ())
            }
            _ => {
                let Some(actor) = actors.iter_mut().find(|a| !a.open) else { return Ok(()) };
                let table = one_of(&self.random, &FIXED);
                return match actor.session.execute(&format!("vacuum {table}"), &[]) {
                    Err(e) if e.state.code() == "55P03" => Ok(()),
                    Err(e) => Err(self.failed("vacuum", &e)),
                    Ok(_) => Ok(()),
                };
            }
        };
        done.map_err(|e| self.failed("housekeeping", &e.into()))
    }

    /// A session's next step.
    fn turn(&mut self, who: i32, actor: &mut Actor) -> Result<(), Stop> {
        if !actor.open {
            actor.sync = self.chance(50);
            let level = if actor.sync { "on" } else { "off" };
            self.run(actor, &format!("set synchronous_commit = {level}"))?;
            if self.chance(60) {
                self.run(actor, "begin")?;
                actor.open = true;
            }
        }
        if actor.open && self.chance(25) {
            return self.end(actor);
        }
        if actor.open && self.chance(20) {
            return self.savepoint(actor);
        }
        let (sql, changes) = self.statement(who, actor);
        self.trace.push(format!("{who}: {}", &sql[..sql.len().min(120)]));
        match actor.session.execute(&sql, &[]) {
            Ok(_) if actor.open => actor.changes.extend(changes),
            Ok(_) => self.commit_state(&changes, actor.sync),
            Err(e) if e.state.code() == "55P03" => {
                self.trace.push("   locked".to_owned());
                self.give_up(actor)?;
            }
            Err(e) => {
                let stop = self.failed(&sql, &e);
                if !actor.open {
                    // The commit record may have reached the disk all the same.
                    self.commit_state(&changes, false);
                }
                return Err(stop);
            }
        }
        self.look(who, actor)
    }

    fn run(&mut self, actor: &mut Actor, sql: &str) -> Result<(), Stop> {
        self.trace.push(sql.to_owned());
        actor.session.execute(sql, &[]).map(|_| ()).map_err(|e| self.failed(sql, &e))
    }

    fn give_up(&mut self, actor: &mut Actor) -> Result<(), Stop> {
        actor.changes.clear();
        actor.savepoints.clear();
        match std::mem::take(&mut actor.open) {
            true => self.run(actor, "rollback"),
            false => Ok(()),
        }
    }

    fn end(&mut self, actor: &mut Actor) -> Result<(), Stop> {
        if self.chance(25) {
            return self.give_up(actor);
        }
        actor.open = false;
        actor.savepoints.clear();
        let changes = std::mem::take(&mut actor.changes);
        let outcome = self.run(actor, "commit");
        self.commit_state(&changes, actor.sync && outcome.is_ok());
        outcome
    }

    fn savepoint(&mut self, actor: &mut Actor) -> Result<(), Stop> {
        let nested = actor.savepoints.len();
        if nested == 0 || self.chance(50) {
            let name = format!("s{nested}");
            self.run(actor, &format!("savepoint {name}"))?;
            actor.savepoints.push((name, actor.changes.len()));
            return Ok(());
        }
        let at = self.random.below(nested as u64) as usize;
        let (name, length) = actor.savepoints[at].clone();
        if self.chance(50) {
            self.run(actor, &format!("release savepoint {name}"))?;
            actor.savepoints.truncate(at);
        } else {
            self.run(actor, &format!("rollback to savepoint {name}"))?;
            actor.savepoints.truncate(at + 1);
            actor.changes.truncate(length);
        }
        Ok(())
    }

    /// What this session sees: what is committed, and its own changes.
    fn seen(&self, actor: &Actor) -> State {
        let mut state = self.committed().clone();
        apply(&mut state, &actor.changes);
        state
    }

    /// A statement and what it does, for session `who`.
    fn statement(&mut self, who: i32, actor: &Actor) -> (String, Vec<Change>) {
        let state = self.seen(actor);
        if self.chance(8)
            && let Some(found) = self.definition(&state)
        {
            return found;
        }
        let names: Vec<&str> = state.tables.keys().map(String::as_str).collect();
        let table = one_of(&self.random, &names);
        let rows = &state.tables[table];
        let mine = |id: &i32| *id % SESSIONS as i32 == who;
        let id = (self.random.below(IDS / SESSIONS) * SESSIONS) as i32 + who;
        let word = self.word();
        let v = self.random.below(100) as i32;
        match self.random.below(10) {
            0..=3 => self.insert(table, rows, who, id, v, word),
            4 | 5 => {
                let changes = rows.get(&id).map(|row| {
                    Change::Put(table.to_owned(), id, Row { v: row.v, w: word.clone() })
                });
                let sql = format!("update {table} set w = '{word}' where id = {id}");
                (sql, changes.into_iter().collect())
            }
            6 | 7 => {
                // By the secondary index, changing its key.
                let hit = rows.iter().filter(|(id, row)| mine(id) && row.v >= v);
                let changes = hit.map(|(id, row)| {
                    let row = Row { v: row.v - 1, w: row.w.clone() };
                    Change::Put(table.to_owned(), *id, row)
                });
                let sql = format!("update {table} set v = v - 1 where v >= {v} and id % 3 = {who}");
                (sql, changes.collect())
            }
            8 => {
                let change = rows.get(&id).map(|_| Change::Remove(table.to_owned(), id));
                (format!("delete from {table} where id = {id}"), change.into_iter().collect())
            }
            _ => {
                let hit = rows.iter().filter(|(id, row)| mine(id) && row.v < v / 3);
                let changes = hit.map(|(id, _)| Change::Remove(table.to_owned(), *id)).collect();
                (format!("delete from {table} where v < {} and id % 3 = {who}", v / 3), changes)
            }
        }
    }

    fn insert(
        &self,
        table: &str,
        rows: &BTreeMap<i32, Row>,
        who: i32,
        id: i32,
        v: i32,
        word: String,
    ) -> (String, Vec<Change>) {
        let count = 1 + self.random.below(6) as i32;
        let ids = (0..count).map(|n| (id + n * SESSIONS as i32) % IDS as i32);
        let free: BTreeSet<i32> = ids.filter(|id| !rows.contains_key(id)).collect();
        if free.is_empty() {
            let row = Row { v, w: word.clone() };
            let sql = format!(
                "insert into {table} (id, v, w) values ({id}, {v}, '{word}') \
                 on conflict (id) do update set v = excluded.v, w = excluded.w"
            );
            return (sql, vec![Change::Put(table.to_owned(), id, row)]);
        }
        debug_assert!(free.iter().all(|id| id % SESSIONS as i32 == who));
        let values: Vec<String> = free.iter().map(|id| format!("({id}, {v}, '{word}')")).collect();
        let put = |id: &i32| Change::Put(table.to_owned(), *id, Row { v, w: word.clone() });
        let sql = format!("insert into {table} (id, v, w) values {}", values.join(", "));
        (sql, free.iter().map(put).collect())
    }

    /// Short words mostly; now and then one that is compressed, or moved out of the row.
    fn word(&self) -> String {
        let length = match self.random.below(40) {
            0 => 9000,
            1 | 2 => 1500,
            n => n as usize,
        };
        let noisy = length < 9000 || self.chance(70);
        let letter = |n: usize| match noisy {
            true => char::from(b'a' + self.random.below(26) as u8),
            false => char::from(b'a' + (n % 7) as u8),
        };
        (0..length).map(letter).collect()
    }

    fn definition(&self, state: &State) -> Option<(String, Vec<Change>)> {
        let pick = self.random.below(10);
        Some(match pick {
            0..=3 => {
                let name = one_of(&self.random, &PASSING).to_owned();
                match state.tables.contains_key(&name) {
                    true => (format!("drop table {name}"), vec![Change::Drop(name)]),
                    false => {
                        let sql =
                            format!("create table {name} (id int primary key, v int, w text)");
                        (sql, vec![Change::Create(name)])
                    }
                }
            }
            4..=7 => {
                let at = self.random.below(INDEXES.len() as u64) as usize;
                let (name, on) = INDEXES[at];
                match state.indexes.contains(name) {
                    true => (format!("drop index {name}"), vec![Change::DropIndex(name.into())]),
                    false => (
                        format!("create index {name} on {on}"),
                        vec![Change::MakeIndex(name.into())],
                    ),
                }
            }
            8 if state.added < 6 => {
                let n = state.added;
                (format!("alter table a add column c{n} int default {n}"), vec![Change::AddColumn])
            }
            _ => return None,
        })
    }

    /// Compares what the session sees of its own rows with the model, now and then.
    fn look(&mut self, who: i32, actor: &mut Actor) -> Result<(), Stop> {
        if !self.chance(30) {
            return Ok(());
        }
        let state = self.seen(actor);
        let names: Vec<&str> = state.tables.keys().map(String::as_str).collect();
        let table = one_of(&self.random, &names).to_owned();
        let sql = format!("select id, v, w from {table} where id % 3 = {who} order by id");
        match rows_of(&mut actor.session, &sql) {
            Ok(found) => {
                let mut expected = state.tables[&table].clone();
                expected.retain(|id, _| *id % SESSIONS as i32 == who);
                assert_eq!(found, expected, "{table} before the crash\n{}", self.trace.join("\n"));
                Ok(())
            }
            Err(e) if e.state.code() == "55P03" => self.give_up(actor),
            Err(e) => Err(self.failed(&sql, &e)),
        }
    }

    // ---- crash -------------------------------------------------------------------------------

    /// The power goes; the database comes back as one of the states it may be in.
    fn crash_and_compare(&mut self, number: u64) {
        self.sim = self.sim.crash(self.random.next_u64());
        if self.chance(25) {
            // Again, in the middle of coming back.
            self.sim.disk.power_off_after(self.random.below(120));
            drop(self.open());
            self.sim = self.sim.crash(self.random.next_u64());
        }
        let db = self.open().unwrap_or_else(|e| {
            panic!(
                "crash {number}: does not open: {e} {:?}\n{}",
                e.get_detail(),
                self.trace.join("\n")
            )
        });
        let found = read_state(&db).unwrap_or_else(|e| {
            panic!("crash {number}: unreadable: {e}\n{}", self.trace.join("\n"))
        });
        let candidates = &self.states[self.durable..];
        let Some(at) = candidates.iter().rposition(|s| *s == found) else {
            let newest = candidates.last().expect("a state").describe();
            panic!(
                "crash {number}: no committed prefix (durable {} of {})\nfound\n{}\nnewest\n{newest}\n\
                 older is among the lost: {}\n{}",
                self.durable,
                self.states.len() - 1,
                found.describe(),
                self.states[..self.durable].contains(&found),
                self.trace.join("\n")
            );
        };
        let state = candidates[at].clone();
        let report = inkling::check::check(db.sql())
            .unwrap_or_else(|e| panic!("crash {number}: check: {e}\n{}", self.trace.join("\n")));
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        assert!(
            report.is_clean(),
            "crash {number}:\n{}\n{}",
            problems.join("\n"),
            self.trace.join("\n")
        );
        self.states = vec![state];
        self.durable = 0;
        self.trace.clear();
        if self.chance(50) {
            // Recovery made it durable: the next power failure changes nothing.
            self.sim = self.sim.crash(self.random.next_u64());
        }
    }

    /// A new database whose making is cut short, perhaps more than once.
    fn interrupted_start(&mut self) -> u64 {
        let mut crashes = 0;
        while self.chance(60) && crashes < 3 {
            self.sim.disk.power_off_after(1 + self.random.below(600));
            if let Ok(db) = self.open() {
                let _cut_short = self.first_tables(&db);
            }
            // Which of the first statements count is unknown: any prefix of them will do.
            let mut all = vec![State::default()];
            for table in FIXED {
                let mut next = all.last().expect("a state").clone();
                apply(&mut next, &[Change::Create(table.to_owned())]);
                all.push(next);
            }
            (self.states, self.durable) = (all, 0);
            crashes += 1;
            self.after_interrupted_start(crashes);
        }
        crashes
    }

    /// After an interrupted start the tables are dropped again, whatever there is of them.
    fn after_interrupted_start(&mut self, number: u64) {
        self.crash_and_compare(number);
        let db = self.open().expect("opens");
        let mut session = db.session().expect("a session");
        for table in FIXED {
            session.batch(&format!("drop table if exists {table}")).expect("dropped");
        }
        drop(session);
        db.close().expect("closed");
        self.states = vec![State::default()];
    }

    fn run_chain(&mut self) -> u64 {
        let mut crashes = self.interrupted_start();
        let db = self.open().expect("opens");
        self.first_tables(&db).expect("the first tables");
        drop(db);
        let mut first = true;
        while crashes < CRASHES_A_CHAIN {
            if !std::mem::take(&mut first) || self.chance(50) {
                self.sim.options.shared_buffers_bytes =
                    (40 + self.random.below(200) as usize) * 8192;
            }
            let db = self.open().expect("opens");
            let cut = self.chance(50);
            if cut {
                self.sim.disk.power_off_after(self.random.below(400));
            }
            let _worked_or_cut = self.work(&db);
            // One moment, crashed in several ways; the last one is gone on with.
            let (states, durable, trace) = (self.states.clone(), self.durable, self.trace.clone());
            let moment = Sim {
                disk: self.sim.disk.clone(),
                clock: self.sim.clock.clone(),
                options: self.sim.options.clone(),
            };
            for way in 0..3 {
                if way > 0 {
                    self.sim = Sim {
                        disk: moment.disk.clone(),
                        clock: moment.clock.clone(),
                        options: moment.options.clone(),
                    };
                    (self.states, self.durable) = (states.clone(), durable);
                    self.trace = trace.clone();
                }
                crashes += 1;
                self.crash_and_compare(crashes);
            }
            // The old engine's end, after its crash, must not disturb anybody.
            drop(db);
        }
        crashes
    }
}

/// Rows of a query for id, v, w.
fn rows_of(session: &mut Session, sql: &str) -> Result<BTreeMap<i32, Row>> {
    let mut rows = BTreeMap::new();
    for row in session.query(sql, &[])? {
        rows.insert(row.get("id")?, Row { v: row.get("v")?, w: row.get("w")? });
    }
    Ok(rows)
}

fn read_state(db: &Database) -> Result<State> {
    let mut session = db.session()?;
    let mut state = State::default();
    let tables =
        "select relname from pg_class where relkind = 'r' and relnamespace = 2200 order by 1";
    for row in session.query(tables, &[])? {
        let name: String = row.get(0)?;
        let rows = rows_of(&mut session, &format!("select id, v, w from {name}"))?;
        // The same through the primary key, one by one.
        for (id, row) in &rows {
            let by_key = format!("select id, v, w from {name} where id = {id}");
            let found = rows_of(&mut session, &by_key)?;
            assert_eq!(found.get(id), Some(row), "{name} by primary key");
        }
        state.tables.insert(name, rows);
    }
    let indexes = "select relname from pg_class where relkind = 'i' and relnamespace = 2200";
    for row in session.query(indexes, &[])? {
        let name: String = row.get(0)?;
        if INDEXES.iter().any(|(known, _)| *known == name) {
            state.indexes.insert(name);
        }
    }
    if state.tables.contains_key("a") {
        let added =
            "select count(*) from pg_attribute where attrelid = 'a'::regclass and attnum > 3";
        state.added = session.query(added, &[])?.scalar::<i64>()? as usize;
    }
    Ok(state)
}

const CRASHES: u64 = 2000;

#[test]
fn a_crash_leaves_a_committed_prefix_with_everything_acknowledged() {
    run_chains(1, CRASHES, |seed| Chain::new(seed).run_chain());
}

#[test]
fn a_crash_leaves_a_committed_prefix_again() {
    run_chains(2, CRASHES, |seed| Chain::new(seed).run_chain());
}
