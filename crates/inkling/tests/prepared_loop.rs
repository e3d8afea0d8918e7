//! Power failures with prepared transactions about.
//!
//! ```text
//!   chain = one seed: open, work, crash, recover, compare, work, crash, ...
//!
//!   model:  committed rows, and what each prepared transaction would make of them
//!   after a crash: exactly that; or that with the one step that the power cut, done or not done
//! ```
//!
//! Every step waits until it is durable, so everything acknowledged is there after each crash, and a
//! PREPARE that was cut is there whole or not at all. That it is there means: its name is listed, its
//! rows cannot be had by others, nor can the rows that it only locked (shared locks live in memory
//! and come back from its record), nobody may lock its table against writers, the tables that it
//! made are not there, and COMMIT PREPARED and ROLLBACK PREPARED do what they say. In between others
//! update the rows that it locked KEY SHARE, vacuum, checkpoint, and fill the room that this makes.
//!
//! - `INKLING_CRASHES`: how many crashes (600 by default).
//! - `INKLING_CRASH_SEED`: replays one chain.

mod common;

use common::run_chains;
use inkling::{Database, Error, Options, Session};
use inkling_storage::engine::CheckpointKind;
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::{Random, SeededRandom};
use std::collections::{BTreeMap, BTreeSet};

const CRASHES_A_CHAIN: u64 = 20;
const IDS: u64 = 24;
const PREPARED_MAX: usize = 5;

/// What a transaction does to one row; `None` deletes it.
type Changes = BTreeMap<i32, Option<i32>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Prepared {
    changes: Changes,
    /// Rows that it locked FOR SHARE, and FOR KEY SHARE.
    shared: BTreeSet<i32>,
    keys: BTreeSet<i32>,
    /// A table that it made.
    made: Option<String>,
}

impl Prepared {
    fn touches(&self, id: i32) -> bool {
        self.changes.contains_key(&id) || self.shared.contains(&id)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    rows: BTreeMap<i32, i32>,
    tables: BTreeSet<String>,
    prepared: BTreeMap<String, Prepared>,
}

impl Model {
    fn apply(&mut self, changes: &Changes) {
        for (id, v) in changes {
            match v {
                Some(v) => self.rows.insert(*id, *v),
                None => self.rows.remove(id),
            };
        }
    }

    /// Rows that nobody has prepared anything about.
    fn free(&self, id: i32) -> bool {
        !self.prepared.values().any(|p| p.touches(id) || p.keys.contains(&id))
    }

    /// Rows that may be updated, if not deleted.
    fn writable(&self, id: i32) -> bool {
        !self.prepared.values().any(|p| p.touches(id))
    }
}

struct Chain {
    random: SeededRandom,
    sim: Sim,
    model: Model,
    /// What the step that the power cut would have made of it.
    otherwise: Option<Model>,
    names: u64,
    trace: Vec<String>,
}

fn run(session: &mut Session, sql: &str) -> Result<(), Error> {
    session.execute(sql, &[]).map(|_| ())
}

fn code(session: &mut Session, sql: &str) -> String {
    session.query(sql, &[]).expect_err(sql).state.code().to_string()
}

impl Chain {
    fn new(seed: u64) -> Chain {
        let random = SeededRandom::new(seed);
        let mut sim = Sim::new(random.next_u64());
        sim.options.shared_buffers_bytes = (40 + random.below(200) as usize) * 8192;
        sim.options.max_prepared_transactions = PREPARED_MAX;
        let (model, trace) = (Model::default(), Vec::new());
        Chain { random, sim, model, otherwise: None, names: 0, trace }
    }

    fn chance(&self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn id(&self) -> i32 {
        self.random.below(IDS) as i32
    }

    fn open(&self) -> Result<Database, Error> {
        let (engine, _) = self.sim.try_open()?;
        Database::over(engine, Options::new())
    }

    fn told(&self) -> String {
        self.trace.join("\n")
    }

    /// Works until the power goes, or for so many steps.
    fn work(&mut self, db: &Database) {
        let Ok(mut session) = db.session() else { return };
        for _ in 0..3 + self.random.below(25) {
            let next = self.step(db, &mut session);
            match next {
                Ok(model) => self.model = model,
                Err((error, model)) => {
                    assert!(self.sim.disk.is_off(), "{error}\n{}", self.told());
                    self.otherwise = Some(model);
                    return;
                }
            }
        }
    }

    /// One step, and the model after it; with an error, the model if it happened all the same.
    fn step(&mut self, db: &Database, session: &mut Session) -> Result<Model, (Error, Model)> {
        let mut next = self.model.clone();
        let done = match self.random.below(12) {
            0 => self.housekeeping(db, session),
            1..=4 => self.write(session, &mut next),
            5..=8 if next.prepared.len() < PREPARED_MAX => self.prepare(session, &mut next),
            _ => self.end(session, &mut next),
        };
        done.map(|()| next.clone()).map_err(|e| (e, next))
    }

    fn housekeeping(&mut self, db: &Database, session: &mut Session) -> Result<(), Error> {
        let engine = db.engine();
        let kind = self.random.below(5);
        self.trace.push(format!("housekeeping {kind}"));
        match kind {
            0 | 1 => engine.checkpoint(CheckpointKind::Immediate).map(|_| ())?,
            2 => engine.background_round()?,
            3 => {
                self.sim.clock.advance(300_000);
                engine.wal.run_writer_once().map(|_| ())?;
            }
            _ => run(session, "vacuum t")?,
        }
        Ok(())
    }

    fn said(&mut self, session: &mut Session, sql: &str) -> Result<(), Error> {
        self.trace.push(sql.to_owned());
        run(session, sql)
    }

    /// A statement by itself, about a row that is free for it.
    fn write(&mut self, session: &mut Session, next: &mut Model) -> Result<(), Error> {
        let (id, v) = (self.id(), self.random.below(1000) as i32);
        if next.rows.contains_key(&id) && next.writable(id) && self.chance(60) {
            next.apply(&Changes::from([(id, Some(v))]));
            return self.said(session, &format!("update t set v = {v} where id = {id}"));
        }
        if !next.free(id) {
            return Ok(());
        }
        let (sql, change) = match next.rows.contains_key(&id) {
            true => (format!("delete from t where id = {id}"), None),
            false => (format!("insert into t values ({id}, {v})"), Some(v)),
        };
        next.apply(&Changes::from([(id, change)]));
        self.said(session, &sql)
    }

    fn prepare(&mut self, session: &mut Session, next: &mut Model) -> Result<(), Error> {
        self.names += 1;
        let name = format!("p{}", self.names);
        let mut p = Prepared::default();
        self.said(session, "begin")?;
        for n in 0..self.random.below(5) {
            let undone = self.chance(25);
            let before = p.changes.clone();
            if undone || self.chance(30) {
                self.said(session, &format!("savepoint s{n}"))?;
            }
            self.write_in(session, next, &mut p)?;
            if undone {
                self.said(session, &format!("rollback to s{n}"))?;
                p.changes = before;
            }
        }
        for _ in 0..self.random.below(4) {
            let id = self.id();
            let there = next.rows.contains_key(&id) && !p.changes.contains_key(&id);
            let shared = self.chance(50);
            // A key share goes beside updates of others that are prepared, a share does not.
            let changed = |o: &Prepared| o.changes.contains_key(&id);
            if !there || next.prepared.values().any(changed) {
                continue;
            }
            let how = if shared { "share" } else { "key share" };
            self.said(session, &format!("select v from t where id = {id} for {how}"))?;
            if shared {
                p.shared.insert(id)
            } else {
                p.keys.insert(id)
            };
        }
        if self.chance(20) {
            let table = format!("made{}", self.names);
            self.said(session, &format!("create table {table} as select 7 as x"))?;
            p.made = Some(table);
        }
        next.prepared.insert(name.clone(), p);
        self.said(session, &format!("prepare transaction '{name}'"))
    }

    /// A write inside a transaction that will be prepared.
    fn write_in(
        &mut self,
        session: &mut Session,
        next: &Model,
        p: &mut Prepared,
    ) -> Result<(), Error> {
        let (id, v) = (self.id(), self.random.below(1000) as i32);
        if !next.free(id) {
            return Ok(());
        }
        let there = match p.changes.get(&id) {
            Some(change) => change.is_some(),
            None => next.rows.contains_key(&id),
        };
        let (sql, change) = match there {
            false => (format!("insert into t values ({id}, {v})"), Some(v)),
            true if self.chance(30) => (format!("delete from t where id = {id}"), None),
            true => (format!("update t set v = {v} where id = {id}"), Some(v)),
        };
        p.changes.insert(id, change);
        self.said(session, &sql)
    }

    fn end(&mut self, session: &mut Session, next: &mut Model) -> Result<(), Error> {
        let names: Vec<String> = next.prepared.keys().cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        let name = &names[self.random.below(names.len() as u64) as usize];
        let p = next.prepared.remove(name).expect("it was listed");
        let commits = self.chance(60);
        if commits {
            next.apply(&p.changes);
            next.tables.extend(p.made);
        }
        let how = if commits { "commit" } else { "rollback" };
        self.said(session, &format!("{how} prepared '{name}'"))
    }

    // ---- crash -------------------------------------------------------------------------------

    fn crash_and_compare(&mut self) {
        self.sim = self.sim.crash(self.random.next_u64());
        if self.chance(25) {
            // Again, in the middle of coming back.
            self.sim.disk.power_off_after(self.random.below(120));
            drop(self.open());
            self.sim = self.sim.crash(self.random.next_u64());
        }
        let db = self.open().unwrap_or_else(|e| panic!("does not open: {e}\n{}", self.told()));
        let mut session = db.session().expect("a session");
        let found = self.read(&mut session);
        let seen = |model: &Model| {
            let names: BTreeSet<String> = model.prepared.keys().cloned().collect();
            (model.rows.clone(), model.tables.clone(), names)
        };
        let candidates = [Some(self.model.clone()), self.otherwise.take()];
        let model = candidates.iter().flatten().find(|model| seen(model) == found);
        let Some(model) = model else {
            let expected: Vec<_> = candidates.iter().flatten().map(seen).collect();
            panic!("found\n{found:?}\nexpected one of\n{expected:#?}\n{}", self.told());
        };
        self.model = model.clone();
        self.check_locks(&mut session);
        drop(session);
        let report = inkling::check::check(db.sql()).expect("check");
        assert!(report.is_clean(), "{:?}\n{}", report.problems, self.told());
        self.trace.push("-- crash".to_owned());
    }

    fn read(
        &self,
        session: &mut Session,
    ) -> (BTreeMap<i32, i32>, BTreeSet<String>, BTreeSet<String>) {
        let mut rows = BTreeMap::new();
        for row in session.query("select id, v from t", &[]).expect("rows") {
            rows.insert(row.get(0).expect("id"), row.get(1).expect("v"));
        }
        for (id, v) in &rows {
            let by_key = format!("select v from t where id = {id}");
            let found: i32 = session.query_one(&by_key, &[]).expect("by key").get(0).expect("v");
            assert_eq!(found, *v, "{id} by primary key\n{}", self.told());
        }
        let mut list = |sql: &str| -> BTreeSet<String> {
            let rows = session.query(sql, &[]).expect(sql);
            rows.iter().map(|row| row.get(0).expect("a name")).collect()
        };
        let tables = list("select relname::text from pg_class where relname like 'made%'");
        (rows, tables, list("select gid from pg_prepared_xacts"))
    }

    /// What is prepared is kept from others, row by row, and nothing else is.
    fn check_locks(&self, session: &mut Session) {
        let told = || format!("{:#?}\n{}", self.model, self.told());
        for id in self.model.rows.keys() {
            let locks = |strength: &str| format!("select 1 from t where id = {id} for {strength}");
            let all = || self.model.prepared.values();
            let changed = all().any(|p| p.changes.contains_key(id));
            let shared = all().any(|p| p.shared.contains(id));
            let key = all().any(|p| p.keys.contains(id));
            for (strength, refused) in [
                ("update", changed || shared || key),
                ("no key update", changed || shared),
                ("share", changed),
            ] {
                let sql = format!("{} nowait", locks(strength));
                match session.query(&sql, &[]) {
                    Ok(_) => assert!(!refused, "{sql}\n{}", told()),
                    Err(e) => {
                        assert!(refused && e.state.code() == "55P03", "{sql}: {e}\n{}", told())
                    }
                }
            }
        }
        if self.model.prepared.values().any(|p| !p.changes.is_empty()) {
            run(session, "begin").expect("begin");
            assert_eq!(code(session, "lock table t in share mode nowait"), "55P03", "{}", told());
            run(session, "rollback").expect("rollback");
        }
    }

    fn run_chain(&mut self) -> u64 {
        let db = self.open().expect("opens");
        let mut session = db.session().expect("a session");
        let table = "create table t (id int primary key, v int); create index on t (v)";
        session.batch(table).expect("a table");
        drop((session, db));
        for _ in 0..CRASHES_A_CHAIN {
            let db = self.open().expect("opens");
            if self.chance(60) {
                self.sim.disk.power_off_after(self.random.below(250));
            }
            self.work(&db);
            if self.otherwise.is_none() && self.chance(20) {
                // Stopped properly, for a change.
                db.close().unwrap_or_else(|e| assert!(self.sim.disk.is_off(), "{e}"));
                self.crash_and_compare();
                continue;
            }
            self.crash_and_compare();
            // The old engine's end, after its crash, must not disturb anybody.
            drop(db);
        }
        CRASHES_A_CHAIN
    }
}

const CRASHES: u64 = 600;

#[test]
fn what_is_prepared_survives_every_crash() {
    run_chains(1, CRASHES, |seed| Chain::new(seed).run_chain());
}

#[test]
fn what_is_prepared_survives_every_crash_again() {
    run_chains(2, CRASHES, |seed| Chain::new(seed).run_chain());
}
