//! Power failures under tables of every durability level: what each level promised is there.
//!
//! ```text
//!   commits, in order:     C1     C2     C3      C4      C5      C6
//!   level:                sync  async  sync   unlogged  sync   async       T: the power goes
//!   told, by its client
//!   or by a reader:        x             x                -
//!   older than max_loss:          x                               -
//!
//!   what must be there:   ───────────────> up to C3, whole; C5 and C6 may be, in this order
//! ```
//!
//! Sessions work in turn in one thread. An answer is held back after the statement was executed, as
//! a server's output buffer does it, and is told later or never: so readers meet commits that are
//! visible and not yet durable. The log of what was told is compared with what recovery finds:
//!
//! - the state is one after some commit: a transaction over several tables is whole or absent;
//! - that commit is not before any synchronous one whose client was told;
//! - nor before an asynchronous one that is older than its `max_loss`, by the simulated clock;
//! - nor before a synchronous one of which a reader was told, by a row or by a row's absence, and
//!   with `read_durable = on` an asynchronous one either;
//! - unlogged tables are empty; after a proper stop they hold what they held.
//!
//! The log's writer runs when its clock says so, in steps of five milliseconds; checkpoints, the
//! background writer and vacuum run in between, and the power may go inside any call of the disk.
//! Everything follows from the seed.
//!
//! The checker is tried on wrong promises, one at a time (`PLANTED`): an answer that leaves before
//! the flush, a reader's that does, a reader who asked for durable answers and does not get them, a
//! writer that sleeps, a level that comes from the session alone, an unlogged table whose rows
//! survive. `wrong_promises_are_found` fails unless each of them is found.
//!
//! - `INKLING_CRASHES`: how many crashes (2,000 by default, all loops together).
//! - `INKLING_CRASH_SEED`: replays one chain.

mod common;

use common::client::{Client, Values, int};
use common::from_env;
use inkling::{Database, Options};
use inkling_sql::error::SqlError;
use inkling_storage::engine::CheckpointKind;
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::{Clock, Random, SeededRandom};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;

const CRASHES_A_CHAIN: u64 = 20;
const SESSIONS: u64 = 3;
/// Ids are below this; session `s` writes those that leave remainder `s`.
const IDS: u64 = 24;
const TICK_MICROS: u64 = 5_000;
/// `wal_writer_delay`: what an asynchronous commit is promised when no table says otherwise.
const SESSION_MAX_LOSS: u64 = 200_000;

/// What a table promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    Sync,
    /// Microseconds.
    Async(u64),
    /// What the session says.
    Inherit,
    Unlogged,
}

struct Table {
    name: &'static str,
    promise: Promise,
    options: &'static str,
}

const fn table(name: &'static str, promise: Promise, options: &'static str) -> Table {
    Table { name, promise, options }
}

const TABLES: &[Table] = &[
    table("plain", Promise::Inherit, ""),
    table("said", Promise::Inherit, "with (durability = inherit)"),
    table("strict", Promise::Sync, "with (durability = sync)"),
    table("fast", Promise::Async(50_000), "with (durability = async, max_loss = '50ms')"),
    table("slow", Promise::Async(400_000), "with (durability = async, max_loss = '400ms')"),
    table("fleeting", Promise::Unlogged, ""),
];

/// Wrong promises that the checker has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// Commits are told before they are flushed.
    ToldEarly,
    /// Readers' answers leave before what they met is flushed.
    ReadEarly,
    /// The log's writer never runs.
    WriterSleeps,
    /// The unlogged table is an ordinary one.
    KeptUnlogged,
    /// The tables say nothing: the session alone decides.
    SessionDecides,
    /// Readers who asked for durable answers only did not.
    ReadsAnything,
}

const PLANTED: [Planted; 6] = [
    Planted::ToldEarly,
    Planted::ReadEarly,
    Planted::WriterSleeps,
    Planted::KeptUnlogged,
    Planted::SessionDecides,
    Planted::ReadsAnything,
];

/// Rows by table and id.
type State = BTreeMap<(&'static str, i64), i64>;
type Change = (&'static str, i64, Option<i64>);

fn is_logged(name: &str) -> bool {
    TABLES.iter().any(|t| t.name == name && t.promise != Promise::Unlogged)
}

/// What a commit was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Sync,
    /// Durable by this time.
    By(u64),
    /// Nothing logged was written.
    Nothing,
}

struct Commit {
    level: Level,
    changes: Vec<Change>,
    /// The logged tables afterwards.
    state: State,
}

struct Actor {
    client: Client,
    open: bool,
    /// REPEATABLE READ: how many commits its snapshot sees, once it has one.
    snapshot: Option<Option<usize>>,
    sync: bool,
    read_durable: bool,
    changes: Vec<Change>,
    /// Commits that must survive if what was executed is told: how many.
    pending: usize,
}

/// The power is gone.
struct PowerOff;

struct Chain {
    random: SeededRandom,
    sim: Sim,
    planted: Planted,
    /// The logged tables before the first commit of `commits`.
    first: State,
    commits: Vec<Commit>,
    unlogged: State,
    /// So many of the commits must survive.
    told: usize,
    trace: Vec<String>,
}

impl Chain {
    fn new(seed: u64, planted: Planted) -> Chain {
        let random = SeededRandom::new(seed);
        let mut sim = Sim::new(random.next_u64());
        sim.options.shared_buffers_bytes = (40 + random.below(100) as usize) * 8192;
        sim.options.wal.segment_size = 64 << 10;
        // Commits wait for the log's writer, which runs when the chain lets it.
        sim.options.wal.driven_writer = true;
        // It would hide a deadline that was missed.
        sim.options.wal.flush_after = 0;
        Chain {
            random,
            sim,
            planted,
            first: State::new(),
            commits: Vec::new(),
            unlogged: State::new(),
            told: 0,
            trace: Vec::new(),
        }
    }

    fn chance(&self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn now(&self) -> u64 {
        self.sim.clock.monotonic_micros()
    }

    fn state_after(&self, commits: usize) -> &State {
        commits.checked_sub(1).map_or(&self.first, |at| &self.commits[at].state)
    }

    fn open(&self) -> Database {
        let (engine, _) =
            self.sim.try_open().unwrap_or_else(|e| panic!("recovery: {e}\n{}", self.story()));
        let options = Options::new().set("lock_timeout", "1ms").expect("a setting");
        Database::over(engine, options).unwrap_or_else(|e| panic!("{e}\n{}", self.story()))
    }

    fn story(&self) -> String {
        self.trace.join("\n")
    }

    fn failed(&self, what: &str, e: &SqlError) -> PowerOff {
        let code = e.state.code();
        assert!(self.sim.disk.is_off(), "{what}: {e} [{code}]\n{}", self.story());
        PowerOff
    }

    fn make_tables(&mut self, db: &Database) {
        let mut client = Client::new(db.sql()).expect("a session");
        for table in TABLES {
            let keep = self.planted == Planted::KeptUnlogged;
            let kind = if table.promise == Promise::Unlogged && !keep { "unlogged" } else { "" };
            let name = table.name;
            let silent = self.planted == Planted::SessionDecides;
            let options = if silent { "" } else { table.options };
            let sql = format!("create {kind} table {name} (id int primary key, v int) {options}");
            client.run(&sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        }
        client.told(|| drop(db.engine().wal.run_writer_once())).expect("told");
    }

    // ---- time --------------------------------------------------------------------------------

    /// Time goes on; the log's writer does what is due as soon as it is.
    fn wait(&mut self, db: &Database, ticks: u64) -> Result<(), PowerOff> {
        self.trace.push(format!("{} ticks pass", ticks));
        for _ in 0..ticks {
            self.sim.clock.advance(TICK_MICROS);
            if self.planted == Planted::WriterSleeps {
                continue;
            }
            while db
                .engine()
                .wal
                .run_writer_once()
                .map_err(|e| self.failed("the log's writer", &e.into()))?
            {}
        }
        Ok(())
    }

    fn housekeeping(&mut self, db: &Database) -> Result<(), PowerOff> {
        let engine = db.engine();
        let pick = self.random.below(5);
        self.trace.push(format!("housekeeping {pick}"));
        let done = match pick {
            0 => engine.checkpoint(CheckpointKind::Immediate).map(drop),
            1 | 2 => engine.background_round(),
            _ => {
                let name = TABLES[self.random.below(TABLES.len() as u64) as usize].name;
                let mut client = Client::new(db.sql()).map_err(|e| self.failed("session", &e))?;
                return match client.run(&format!("vacuum {name}")) {
                    Err(e) if e.state.code() == "55P03" => Ok(()),
                    Err(e) => Err(self.failed("vacuum", &e)),
                    Ok(_) => Ok(()),
                };
            }
        };
        done.map_err(|e| self.failed("housekeeping", &e.into()))
    }

    // ---- work --------------------------------------------------------------------------------

    fn work(&mut self, db: &Database) -> Result<(), PowerOff> {
        let mut actors = Vec::new();
        for _ in 0..SESSIONS {
            let client = Client::new(db.sql()).map_err(|e| self.failed("session", &e))?;
            let (changes, snapshot) = (Vec::new(), None);
            let (open, sync, read_durable) = (false, true, false);
            let pending = 0;
            actors.push(Actor { client, open, snapshot, sync, read_durable, changes, pending });
        }
        for _ in 0..10 + self.random.below(60) {
            if self.chance(20) {
                let ticks = 1 + self.random.below(60);
                self.wait(db, ticks)?;
            }
            if self.chance(8) {
                self.housekeeping(db)?;
            }
            let who = self.random.below(SESSIONS) as usize;
            let actor = &mut actors[who];
            match self.random.below(10) {
                0..=4 => self.write(who as i64, actor)?,
                5..=7 => self.read(actor)?,
                _ => self.tell(db, actor)?,
            }
        }
        Ok(())
    }

    fn run(&mut self, actor: &mut Actor, sql: &str) -> Result<Vec<Values>, PowerOff> {
        self.trace.push(sql.to_owned());
        actor.client.run(sql).map_err(|e| self.failed(sql, &e))
    }

    /// A step of a transaction: its beginning, a change, its end.
    fn write(&mut self, who: i64, actor: &mut Actor) -> Result<(), PowerOff> {
        if actor.open && self.chance(30) {
            return self.end(actor);
        }
        if !actor.open {
            actor.sync = self.chance(50);
            let level = if actor.sync { "on" } else { "off" };
            self.run(actor, &format!("set synchronous_commit = {level}"))?;
            self.choose_reads(actor)?;
            if self.chance(50) {
                let repeatable = self.chance(40);
                let modes = if repeatable { " isolation level repeatable read" } else { "" };
                self.run(actor, &format!("begin{modes}"))?;
                (actor.open, actor.snapshot) = (true, repeatable.then_some(None));
            }
        }
        let name = TABLES[self.random.below(TABLES.len() as u64) as usize].name;
        let id = (self.random.below(IDS / SESSIONS) * SESSIONS) as i64 + who;
        let v = self.random.below(1000) as i64;
        let (sql, change) = match self.chance(70) {
            true => (
                format!(
                    "insert into {name} values ({id}, {v}) \
                     on conflict (id) do update set v = excluded.v"
                ),
                (name, id, Some(v)),
            ),
            false => (format!("delete from {name} where id = {id}"), (name, id, None)),
        };
        // Only this session writes the row; whether there is something to delete, it knows.
        let there = self.current(actor, name, id).is_some();
        self.take_snapshot(actor);
        let outcome = self.run(actor, &sql);
        let changes = match change.2.is_some() || there {
            true => vec![change],
            false => Vec::new(),
        };
        if actor.open {
            outcome?;
            actor.changes.extend(changes);
            return Ok(());
        }
        if !changes.is_empty() {
            self.commit(actor, changes, outcome.is_ok());
        }
        outcome.map(drop)
    }

    /// What this session's next statement would find in a row of its own.
    fn current(&self, actor: &Actor, name: &'static str, id: i64) -> Option<i64> {
        let own = actor.changes.iter().rev().find(|(n, i, _)| *n == name && *i == id);
        match own {
            Some((_, _, v)) => *v,
            None => self.newest(name).get(&(name, id)).copied(),
        }
    }

    fn newest(&self, name: &str) -> &State {
        match is_logged(name) {
            true => self.state_after(self.commits.len()),
            false => &self.unlogged,
        }
    }

    /// The first statement of a REPEATABLE READ block fixes what the block sees.
    fn take_snapshot(&self, actor: &mut Actor) {
        if let Some(seen) = &mut actor.snapshot {
            seen.get_or_insert(self.commits.len());
        }
    }

    fn end(&mut self, actor: &mut Actor) -> Result<(), PowerOff> {
        let changes = std::mem::take(&mut actor.changes);
        (actor.open, actor.snapshot) = (false, None);
        if self.chance(20) {
            return self.run(actor, "rollback").map(drop);
        }
        let outcome = self.run(actor, "commit");
        if !changes.is_empty() {
            self.commit(actor, changes, outcome.is_ok());
        }
        outcome.map(drop)
    }

    /// The model's commit. Cut short by the power it may be there or not.
    fn commit(&mut self, actor: &mut Actor, changes: Vec<Change>, done: bool) {
        let mut state = self.state_after(self.commits.len()).clone();
        for (name, id, v) in &changes {
            let into = if is_logged(name) { &mut state } else { &mut self.unlogged };
            match v {
                Some(v) => into.insert((*name, *id), *v),
                None => into.remove(&(*name, *id)),
            };
        }
        let level = match done {
            true => self.level_of(actor.sync, &changes),
            false => Level::Nothing,
        };
        self.trace.push(format!("   commit {} {level:?}", self.commits.len()));
        self.commits.push(Commit { level, changes, state });
        if level == Level::Sync {
            actor.pending = self.commits.len();
        }
    }

    fn level_of(&self, session_sync: bool, changes: &[Change]) -> Level {
        let mut names: Vec<&str> = changes.iter().map(|(name, _, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        let mut loss = None;
        for table in TABLES.iter().filter(|t| names.contains(&t.name)) {
            let max = match table.promise {
                Promise::Sync => return Level::Sync,
                Promise::Async(max) => max,
                Promise::Inherit if session_sync => return Level::Sync,
                Promise::Inherit => SESSION_MAX_LOSS,
                Promise::Unlogged => continue,
            };
            loss = Some(loss.map_or(max, |least: u64| least.min(max)));
        }
        loss.map_or(Level::Nothing, |loss| Level::By(self.now() + loss))
    }

    /// Whether the session's answers wait for asynchronous commits, too.
    fn choose_reads(&mut self, actor: &mut Actor) -> Result<(), PowerOff> {
        if self.chance(25) {
            actor.read_durable = self.chance(50);
            let on = actor.read_durable && self.planted != Planted::ReadsAnything;
            self.run(actor, &format!("set read_durable = {}", if on { "on" } else { "off" }))?;
        }
        Ok(())
    }

    /// Reads, compares with the model, and remembers what telling it would promise.
    fn read(&mut self, actor: &mut Actor) -> Result<(), PowerOff> {
        let table = &TABLES[self.random.below(TABLES.len() as u64) as usize];
        let name = table.name;
        let by_key = self.chance(50).then(|| self.random.below(IDS) as i64);
        let condition = by_key.map_or(String::new(), |id| format!("where id = {id}"));
        if !actor.open {
            self.choose_reads(actor)?;
        }
        self.take_snapshot(actor);
        let rows = self.run(actor, &format!("select id, v from {name} {condition}"))?;
        let found: BTreeMap<i64, i64> = rows.iter().map(|r| (int(&r[0]), int(&r[1]))).collect();
        if !is_logged(name) {
            return Ok(());
        }
        let seen = actor.snapshot.flatten().unwrap_or(self.commits.len());
        let mut expected = self.state_after(seen).clone();
        for (name, id, v) in &actor.changes {
            match v {
                Some(v) => expected.insert((*name, *id), *v),
                None => expected.remove(&(*name, *id)),
            };
        }
        let about = |n: &str, id: i64| n == name && by_key.is_none_or(|key| key == id);
        let expected: BTreeMap<i64, i64> = expected
            .iter()
            .filter(|((n, i), _)| about(n, *i))
            .map(|((_, i), v)| (*i, *v))
            .collect();
        assert_eq!(found, expected, "{name} {condition}\n{}", self.story());
        let counts = |level: Level| match level {
            Level::Sync => true,
            Level::By(_) => actor.read_durable,
            Level::Nothing => false,
        };
        let met = self.commits[..seen]
            .iter()
            .rposition(|c| counts(c.level) && c.changes.iter().any(|(n, id, _)| about(n, *id)));
        actor.pending = actor.pending.max(met.map_or(0, |at| at + 1));
        if self.planted == Planted::ReadEarly {
            self.told = self.told.max(actor.pending);
        }
        Ok(())
    }

    /// The answers leave.
    fn tell(&mut self, db: &Database, actor: &mut Actor) -> Result<(), PowerOff> {
        if self.planted != Planted::ToldEarly {
            let writer = || drop(db.engine().wal.run_writer_once());
            actor.client.told(writer).map_err(|e| self.failed("barrier", &e))?;
        }
        self.told = self.told.max(std::mem::take(&mut actor.pending));
        self.trace.push(format!("   told up to {}", self.told));
        Ok(())
    }

    // ---- the end -----------------------------------------------------------------------------

    fn read_all(&self, db: &Database) -> (State, State) {
        let mut client = Client::new(db.sql()).expect("a session");
        let (mut logged, mut unlogged) = (State::new(), State::new());
        for table in TABLES {
            let rows = client.run(&format!("select id, v from {}", table.name)).expect("readable");
            let into = if is_logged(table.name) { &mut logged } else { &mut unlogged };
            into.extend(rows.iter().map(|r| ((table.name, int(&r[0])), int(&r[1]))));
        }
        client.told(|| drop(db.engine().wal.run_writer_once())).expect("told");
        (logged, unlogged)
    }

    /// How many of the commits must be there when the power goes now.
    fn promised(&self) -> usize {
        let now = self.now();
        let late = |c: &Commit| matches!(c.level, Level::By(deadline) if deadline < now);
        self.commits.iter().rposition(late).map_or(0, |at| at + 1).max(self.told)
    }

    /// One of the states that may be there is; the chain goes on from it.
    fn compare(&mut self, number: u64, logged: &State, promised: usize) {
        let all = self.commits.len();
        let survived = (promised..=all).rev().find(|n| self.state_after(*n) == logged);
        let Some(survived) = survived else {
            let older = (0..promised).rev().find(|n| self.state_after(*n) == logged);
            panic!(
                "crash {number} at {}: {promised} of {all} commits were promised, found those up \
                 to {older:?}\nfound {logged:?}\nlast {:?}\n{}",
                self.now(),
                self.state_after(all),
                self.story()
            );
        };
        self.first = self.state_after(survived).clone();
        self.commits.clear();
        self.told = 0;
    }

    fn after_crash(&mut self, number: u64) {
        let promised = self.promised();
        self.sim = self.sim.crash(self.random.next_u64());
        if self.chance(20) {
            // Again, in the middle of coming back.
            self.sim.disk.power_off_after(self.random.below(100));
            drop(self.sim.try_open());
            self.sim = self.sim.crash(self.random.next_u64());
        }
        let db = self.open();
        let (logged, unlogged) = self.read_all(&db);
        assert!(
            unlogged.is_empty(),
            "crash {number}: unlogged rows {unlogged:?}\n{}",
            self.story()
        );
        self.compare(number, &logged, promised);
        self.unlogged.clear();
        self.trace.clear();
        if self.chance(30) {
            let report = inkling::check::check(db.sql()).expect("checked");
            assert!(report.is_clean(), "crash {number}: {:?}", report.problems);
        }
        // A second power failure, or a proper stop: both keep what was recovered.
        let again = self.sim.crash(self.random.next_u64());
        drop(db);
        if self.chance(50) {
            self.sim = again;
        }
    }

    /// A proper stop keeps everything, the unlogged tables too, whatever becomes of the machine.
    fn clean_stop(&mut self, db: Database, number: u64) {
        db.close().unwrap_or_else(|e| panic!("close: {e}\n{}", self.story()));
        if self.chance(50) {
            self.sim = self.sim.crash(self.random.next_u64());
        }
        let db = self.open();
        let (logged, unlogged) = self.read_all(&db);
        assert_eq!(unlogged, self.unlogged, "stop {number}\n{}", self.story());
        self.compare(number, &logged, self.commits.len());
        self.trace.clear();
        drop(db);
    }

    fn run_chain(&mut self) -> u64 {
        let db = self.open();
        self.make_tables(&db);
        drop(db);
        let mut crashes = 0;
        while crashes < CRASHES_A_CHAIN {
            let db = self.open();
            if self.chance(50) {
                self.sim.disk.power_off_after(self.random.below(150));
            }
            let cut = self.work(&db).is_err();
            crashes += 1;
            if !cut && !self.sim.disk.is_off() && self.chance(30) {
                self.sim.disk.clear_faults();
                self.clean_stop(db, crashes);
                continue;
            }
            self.after_crash(crashes);
            // The old engine's end, after its crash, must not disturb anybody.
            drop(db);
        }
        crashes
    }
}

fn run_chains(first: u64, crashes: u64) {
    let (mut done, mut seed) = (0, first);
    while done < crashes {
        let chain = || Chain::new(seed, Planted::Nothing).run_chain();
        match std::panic::catch_unwind(AssertUnwindSafe(chain)) {
            Ok(n) => done += n,
            Err(panic) => {
                eprintln!("replay with INKLING_CRASH_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
        seed += 2;
    }
}

fn chains(first: u64) {
    match std::env::var_os("INKLING_CRASH_SEED") {
        None => run_chains(first, from_env("INKLING_CRASHES", 2000) / 4),
        Some(_) if first == 1 => {
            Chain::new(from_env("INKLING_CRASH_SEED", 0), Planted::Nothing).run_chain();
        }
        Some(_) => {}
    }
}

#[test]
fn every_level_keeps_its_promise() {
    chains(1);
}

/// The other half, so that two processors are busy.
#[test]
fn every_level_keeps_its_promise_again() {
    chains(2);
}

#[test]
fn wrong_promises_are_found() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found: BTreeSet<String> = PLANTED
        .iter()
        .filter(|planted| {
            (1..=60).any(|seed| {
                let chain = || Chain::new(seed, **planted).run_chain();
                std::panic::catch_unwind(AssertUnwindSafe(chain)).is_err()
            })
        })
        .map(|planted| format!("{planted:?}"))
        .collect();
    std::panic::set_hook(quiet);
    assert_eq!(found.len(), PLANTED.len(), "found: {found:?}");
}
