//! Foreign keys against a model of plain sets: random statements over tables that refer to each
//! other, with every kind of action, one statement at a time, put off to COMMIT, and by several
//! sessions at once.
//!
//! ```text
//!   p (id) <── c (id, pid)      actions drawn by lot for each run
//!     ^         ^
//!     └─────────┴── g (id, cid, pid)
//! ```
//!
//! The model keeps three maps, does what the statement says, then works off the keys that went, first
//! come first served. `INKLING_SEED` repeats one run.

mod common;

use common::temporary;
use inkling::{Database, Session};
use std::collections::{BTreeMap, VecDeque};

/// Small numbers that repeat for a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn key(&mut self) -> i64 {
        self.below(8) as i64
    }

    fn key_or_null(&mut self) -> Option<i64> {
        (self.below(6) > 0).then(|| self.key())
    }
}

fn seeds(default: std::ops::Range<u64>) -> Vec<u64> {
    match std::env::var("INKLING_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => default.collect(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Nothing,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

const ACTIONS: [(Action, &str); 5] = [
    (Action::Nothing, "no action"),
    (Action::Restrict, "restrict"),
    (Action::Cascade, "cascade"),
    (Action::SetNull, "set null"),
    (Action::SetDefault, "set default"),
];

/// One foreign key: on delete, on update.
#[derive(Clone, Copy)]
struct Key {
    delete: (Action, &'static str),
    update: (Action, &'static str),
}

impl Key {
    fn draw(rng: &mut Rng) -> Key {
        let mut one = || ACTIONS[rng.below(5) as usize];
        Key { delete: one(), update: one() }
    }

    fn text(&self) -> String {
        format!("on delete {} on update {}", self.delete.1, self.update.1)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Model {
    p: Vec<i64>,
    /// id -> pid
    c: BTreeMap<i64, Option<i64>>,
    /// id -> (cid, pid)
    g: BTreeMap<i64, (Option<i64>, Option<i64>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    P,
    C,
}

/// Keys that went, and rows whose references are to be checked.
enum Event {
    Removed { from: Table, old: i64, new: Option<i64>, key: usize },
    C { id: i64 },
    G { id: i64 },
}

struct Refused;

#[derive(Clone, Debug)]
enum Statement {
    InsertP(i64),
    InsertC(i64, Option<i64>),
    InsertG(i64, Option<i64>, Option<i64>),
    DeleteP(i64, i64),
    DeleteC(i64, i64),
    MoveP(i64, i64),
    MoveC(i64, i64),
    PointC(i64, Option<i64>),
}

fn sql(v: Option<i64>) -> String {
    v.map_or("null".to_owned(), |v| v.to_string())
}

impl Statement {
    fn draw(rng: &mut Rng) -> Statement {
        match rng.below(14) {
            0..3 => Statement::InsertP(rng.key()),
            3..6 => Statement::InsertC(rng.key(), rng.key_or_null()),
            6..9 => Statement::InsertG(rng.key(), rng.key_or_null(), rng.key_or_null()),
            9 => {
                let from = rng.key();
                Statement::DeleteP(from, from + rng.below(3) as i64)
            }
            10 => {
                let from = rng.key();
                Statement::DeleteC(from, from + rng.below(2) as i64)
            }
            11 => Statement::MoveP(rng.key(), rng.key()),
            12 => Statement::MoveC(rng.key(), rng.key()),
            _ => Statement::PointC(rng.key(), rng.key_or_null()),
        }
    }

    fn text(&self) -> String {
        match self {
            Statement::InsertP(id) => format!("insert into p values ({id})"),
            Statement::InsertC(id, pid) => format!("insert into c values ({id}, {})", sql(*pid)),
            Statement::InsertG(id, cid, pid) => {
                format!("insert into g values ({id}, {}, {})", sql(*cid), sql(*pid))
            }
            Statement::DeleteP(a, b) => format!("delete from p where id between {a} and {b}"),
            Statement::DeleteC(a, b) => format!("delete from c where id between {a} and {b}"),
            Statement::MoveP(a, b) => format!("update p set id = {b} where id = {a}"),
            Statement::MoveC(a, b) => format!("update c set id = {b} where id = {a}"),
            Statement::PointC(id, pid) => {
                format!("update c set pid = {} where id = {id}", sql(*pid))
            }
        }
    }
}

impl Model {
    fn has(&self, table: Table, id: i64) -> bool {
        match table {
            Table::P => self.p.contains(&id),
            Table::C => self.c.contains_key(&id),
        }
    }

    /// The keys that refer to a table, in the order of their making: c to p, g to c, g to p.
    fn went(queue: &mut VecDeque<Event>, from: Table, old: i64, new: Option<i64>) {
        let keys: &[usize] = if from == Table::P { &[0, 2] } else { &[1] };
        queue.extend(keys.iter().map(|key| Event::Removed { from, old, new, key: *key }));
    }

    /// The statement's own changes, and what they leave to be done.
    fn write(&mut self, s: &Statement) -> Result<VecDeque<Event>, Refused> {
        let mut queue = VecDeque::new();
        match *s {
            Statement::InsertP(id) if self.has(Table::P, id) => return Err(Refused),
            Statement::InsertP(id) => self.p.push(id),
            Statement::InsertC(id, _) if self.has(Table::C, id) => return Err(Refused),
            Statement::InsertC(id, pid) => {
                self.c.insert(id, pid);
                queue.push_back(Event::C { id });
            }
            Statement::InsertG(id, ..) if self.g.contains_key(&id) => return Err(Refused),
            Statement::InsertG(id, cid, pid) => {
                self.g.insert(id, (cid, pid));
                queue.push_back(Event::G { id });
            }
            Statement::DeleteP(a, b) => {
                let (gone, stay) = self.p.iter().partition(|id| (a..=b).contains(*id));
                self.p = stay;
                let gone: Vec<i64> = gone;
                gone.iter().for_each(|id| Self::went(&mut queue, Table::P, *id, None));
            }
            Statement::DeleteC(a, b) => {
                let gone: Vec<i64> = self.c.range(a..=b).map(|(id, _)| *id).collect();
                for id in gone {
                    self.c.remove(&id);
                    Self::went(&mut queue, Table::C, id, None);
                }
            }
            Statement::MoveP(a, b) if a != b && self.has(Table::P, a) => {
                if self.has(Table::P, b) {
                    return Err(Refused);
                }
                self.p.retain(|id| *id != a);
                self.p.push(b);
                Self::went(&mut queue, Table::P, a, Some(b));
            }
            Statement::MoveC(a, b) if a != b && self.has(Table::C, a) => {
                if self.has(Table::C, b) {
                    return Err(Refused);
                }
                let pid = self.c.remove(&a).expect("it is there");
                self.c.insert(b, pid);
                Self::went(&mut queue, Table::C, a, Some(b));
            }
            Statement::PointC(id, pid) if self.c.contains_key(&id) => {
                self.c.insert(id, pid);
                queue.push_back(Event::C { id });
            }
            _ => {}
        }
        Ok(queue)
    }

    fn settle(&mut self, keys: &[Key; 3], mut queue: VecDeque<Event>) -> Result<(), Refused> {
        while let Some(event) = queue.pop_front() {
            let there = |table, id: Option<i64>| id.is_none_or(|id| self.has(table, id));
            match event {
                Event::C { id } => {
                    if self.c.get(&id).is_some_and(|pid| !there(Table::P, *pid)) {
                        return Err(Refused);
                    }
                }
                Event::G { id } => {
                    let g = self.g.get(&id);
                    if g.is_some_and(|g| !there(Table::C, g.0) || !there(Table::P, g.1)) {
                        return Err(Refused);
                    }
                }
                Event::Removed { from, old, new, key } => {
                    self.removed(keys, &mut queue, (from, old, new), key)?;
                }
            }
        }
        Ok(())
    }

    fn referring(&self, key: usize, old: i64) -> Vec<i64> {
        let c = self.c.iter().filter(|(_, pid)| **pid == Some(old)).map(|(id, _)| *id);
        let g = self.g.iter().filter(|(_, g)| (if key == 1 { g.0 } else { g.1 }) == Some(old));
        if key == 0 { c.collect() } else { g.map(|(id, _)| *id).collect() }
    }

    fn removed(
        &mut self,
        keys: &[Key; 3],
        queue: &mut VecDeque<Event>,
        (from, old, new): (Table, i64, Option<i64>),
        key: usize,
    ) -> Result<(), Refused> {
        let action = if new.is_none() { keys[key].delete.0 } else { keys[key].update.0 };
        let ids = self.referring(key, old);
        let set = match action {
            Action::Nothing if ids.is_empty() || self.has(from, old) => return Ok(()),
            Action::Restrict if ids.is_empty() => return Ok(()),
            Action::Nothing | Action::Restrict => return Err(Refused),
            Action::Cascade => new,
            Action::SetNull => None,
            Action::SetDefault => Some(0),
        };
        for id in ids {
            let delete = action == Action::Cascade && new.is_none();
            match key {
                0 if delete => {
                    self.c.remove(&id);
                    Self::went(queue, Table::C, id, None);
                }
                0 => {
                    self.c.insert(id, set);
                    queue.push_back(Event::C { id });
                }
                _ if delete => {
                    self.g.remove(&id);
                }
                _ => {
                    let g = self.g.get_mut(&id).expect("found just now");
                    if key == 1 {
                        g.0 = set
                    } else {
                        g.1 = set
                    }
                    queue.push_back(Event::G { id });
                }
            }
        }
        // Set to a default that is the very key that went.
        let still = !self.referring(key, old).is_empty() && !self.has(from, old);
        if action == Action::SetDefault && still { Err(Refused) } else { Ok(()) }
    }

    fn orphans(&self) -> bool {
        let there = |table, id: Option<i64>| id.is_none_or(|id| self.has(table, id));
        self.c.values().any(|pid| !there(Table::P, *pid))
            || self.g.values().any(|g| !there(Table::C, g.0) || !there(Table::P, g.1))
    }
}

fn database() -> (tempfile::TempDir, Database) {
    let dir = temporary();
    let db = Database::open(dir.path().join("data")).expect("a database");
    (dir, db)
}

fn make(s: &mut Session, keys: &[Key; 3], suffix: &str) {
    let sql = format!(
        "set synchronous_commit = off;
         drop table if exists g, c, p;
         create table p (id int primary key);
         create table c (id int primary key, pid int default 0 references p {} {suffix});
         create table g (id int primary key, cid int default 0 references c {} {suffix},
                         pid int default 0 references p {} {suffix});
         create index on c (pid)",
        keys[0].text(),
        keys[1].text(),
        keys[2].text()
    );
    s.batch(&sql).expect("tables");
}

fn read(s: &mut Session) -> Model {
    let mut model = Model::default();
    for row in &s.query("select id from p order by id", &[]).expect("rows") {
        model.p.push(i64::from(row.get::<i32>(0).expect("id")));
    }
    for row in &s.query("select id, pid from c", &[]).expect("rows") {
        let pid = row.get::<Option<i32>>(1).expect("pid").map(i64::from);
        model.c.insert(i64::from(row.get::<i32>(0).expect("id")), pid);
    }
    for row in &s.query("select id, cid, pid from g", &[]).expect("rows") {
        let at = |n| row.get::<Option<i32>>(n).expect("a key").map(i64::from);
        model.g.insert(i64::from(row.get::<i32>(0).expect("id")), (at(1), at(2)));
    }
    model
}

fn compare(s: &mut Session, model: &Model, why: &dyn Fn() -> String) {
    let mut wanted = model.clone();
    wanted.p.sort_unstable();
    assert_eq!(read(s), wanted, "{}", why());
}

#[test]
fn statements_end_as_in_the_model() {
    let (_dir, db) = database();
    let mut s = db.session().expect("a session");
    let mut refused = 0;
    for seed in seeds(1..41) {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let keys = [Key::draw(&mut rng), Key::draw(&mut rng), Key::draw(&mut rng)];
        make(&mut s, &keys, "");
        let mut model = Model::default();
        let mut history = Vec::new();
        for _ in 0..60 {
            let statement = Statement::draw(&mut rng);
            history.push(statement.text());
            let mut after = model.clone();
            let expected =
                after.write(&statement).and_then(|queue| after.settle(&keys, queue)).is_ok();
            let why = || {
                let keys: Vec<String> = keys.iter().map(Key::text).collect();
                format!("seed {seed}, keys {keys:?}\n{}", history.join("\n"))
            };
            let done = s.execute(&statement.text(), &[]);
            assert_eq!(done.is_ok(), expected, "{done:?} {}", why());
            if expected {
                model = after;
            } else {
                refused += 1;
            }
            compare(&mut s, &model, &why);
            assert!(!model.orphans(), "{}", why());
        }
    }
    assert!(refused > 0, "something was refused");
}

#[test]
fn what_is_put_off_is_judged_by_what_commit_finds() {
    let (_dir, db) = database();
    let mut s = db.session().expect("a session");
    let plain = Key { delete: ACTIONS[0], update: ACTIONS[0] };
    make(&mut s, &[plain; 3], "deferrable initially deferred");
    let mut committed = 0;
    let mut model = Model::default();
    for seed in seeds(1..201) {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut after = model.clone();
        let mut undo: Option<Model> = None;
        let mut history = vec!["begin".to_owned()];
        s.batch("begin").expect("begin");
        for _ in 0..2 + rng.below(8) {
            match rng.below(8) {
                0 => {
                    undo = Some(after.clone());
                    history.push("savepoint s".to_owned());
                }
                1 if undo.is_some() => {
                    after = undo.clone().expect("set before");
                    history.push("rollback to s".to_owned());
                }
                _ => {
                    let statement = Statement::draw(&mut rng);
                    let mut next = after.clone();
                    if next.write(&statement).is_err() {
                        continue;
                    }
                    after = next;
                    history.push(statement.text());
                }
            }
            let last = history.last().expect("pushed");
            s.batch(last).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", history.join("\n")));
        }
        let done = s.batch("commit");
        let why = || format!("seed {seed}\n{}", history.join("\n"));
        assert_eq!(done.is_ok(), !after.orphans(), "{done:?} {}", why());
        if done.is_ok() {
            committed += 1;
            model = after;
        }
        compare(&mut s, &model, &why);
    }
    assert!(committed > 0 || seeds(0..2).len() == 1, "something was committed");
}

/// Every error here is one that concurrency or a constraint explains.
fn explained(state: &str) -> bool {
    matches!(state, "23503" | "23505" | "40001" | "40P01")
}

#[test]
fn no_row_is_left_without_the_one_that_it_refers_to() {
    let (_dir, db) = database();
    let mut s = db.session().expect("a session");
    for (seed, level) in [(1, "read committed"), (2, "repeatable read"), (3, "read committed")] {
        let mut rng = Rng(seed * 77_777 + 5);
        let keys = [Key::draw(&mut rng), Key::draw(&mut rng), Key::draw(&mut rng)];
        make(&mut s, &keys, if seed == 3 { "deferrable initially deferred" } else { "" });
        let done: Vec<u64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4u64)
                .map(|worker| {
                    let mut own = db.session().expect("a session");
                    scope.spawn(move || work(&mut own, seed * 100 + worker, level))
                })
                .collect();
            workers.into_iter().map(|w| w.join().expect("a worker")).collect()
        });
        assert!(done.iter().sum::<u64>() > 20, "{done:?} transactions committed");
        let model = read(&mut s);
        assert!(!model.orphans(), "{level}, keys {:?}: {model:?}", keys.map(|k| k.text()));
    }
}

/// Short transactions of random statements; how many committed.
fn work(s: &mut Session, seed: u64, level: &str) -> u64 {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut committed = 0;
    s.batch("set deadlock_timeout = '10ms'; set synchronous_commit = off").expect("settings");
    for _ in 0..120 {
        s.batch(&format!("begin isolation level {level}")).expect("begin");
        let statements = 1 + rng.below(3);
        let mut outcome = Ok(());
        for _ in 0..statements {
            outcome = outcome.and_then(|()| s.batch(&Statement::draw(&mut rng).text()));
        }
        // So that transactions overlap, also on few processors.
        if rng.below(2) == 0 {
            outcome = outcome.and_then(|()| s.batch("select pg_sleep(0.002)"));
        }
        match outcome.and_then(|()| s.batch("commit")) {
            Ok(()) => committed += 1,
            Err(e) => {
                assert!(explained(e.state.code()), "{e}");
                s.batch("rollback").expect("rollback");
            }
        }
    }
    committed
}
