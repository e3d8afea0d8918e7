//! A workload that comes by every place where the disk is asked for something: steps that are all
//! or nothing, and what the tables hold after each.
//!
//! Inserts, updates, index splits, values out of the row, tables and indexes made and dropped,
//! truncation, columns added, vacuum, checkpoints, the commit log growing into its next page and
//! its next file, the log going from segment to segment, unlogged tables; synchronous and
//! asynchronous commits, blocks and savepoints; few frames, so that pages are written to make room
//! for others.
#![allow(dead_code)]

use inkling::{Database, Options, Result, Session};
use inkling_storage::engine::testing::{Sim, restart_from_xid};
use inkling_storage::engine::{CheckpointKind, Engine};
use inkling_storage::ids::Xid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the tables hold: name to rows of (id, v, w).
pub type Tables = BTreeMap<String, Vec<(i32, i32, String)>>;

pub enum Step {
    /// Statements of one transaction, or a single one.
    Sql(&'static [&'static str]),
    Checkpoint,
    /// The background writer's round, and what the log's writer does next.
    Background,
}

pub use Step::{Background, Checkpoint, Sql};

/// Tables that a crash empties.
const UNLOGGED: [&str; 2] = ["u", "u2"];

const MAKE: &[&str] = &[
    "create table a (id int primary key, v int not null, w text)",
    "create index a_v on a (v, w)",
    "create table b (id int primary key, v int, w text)",
    "create table gone (id int primary key, v int, w text)",
    "create unlogged table u (id int primary key, v int, w text)",
    "insert into a select n, n % 10, repeat('a', 50) from generate_series(1, 40) n",
    "insert into b select n, n, repeat('b', 300) from generate_series(1, 60) n",
    "insert into gone select n, n, 'x' from generate_series(1, 60) n",
    "insert into u select n, n, 'u' from generate_series(1, 20) n",
];

/// A text that does not compress.
macro_rules! noise {
    ($seed:literal, $count:literal) => {
        concat!(
            "(select string_agg(md5((",
            $seed,
            " + i)::text), '') from generate_series(1, ",
            $count,
            ") i)"
        )
    };
}

pub const WORK: &[Step] = &[
    Sql(&["insert into a select n, n % 7, repeat('c', 100) from generate_series(41, 160) n"]),
    // Wide keys: the index splits and grows a level.
    Sql(&["insert into a select n, n % 3, md5(n::text) || repeat('k', 900) \
           from generate_series(161, 230) n"]),
    Sql(&[concat!("insert into b select 100, 1, ", noise!(7, 700))]),
    Sql(&["set synchronous_commit = off"]),
    Sql(&["update a set v = v + 1 where id % 2 = 0"]),
    Sql(&["set synchronous_commit = on"]),
    Checkpoint,
    Sql(&[
        "begin",
        "insert into b select n, n, repeat('d', 1500) from generate_series(101, 115) n",
        "savepoint s",
        "update b set w = w || 'e' where id > 105",
        "rollback to savepoint s",
        "delete from b where id = 101",
        "insert into u select n, n, 'both' from generate_series(21, 25) n",
        "commit",
    ]),
    Sql(&["create table c (id int primary key, v int, w text)"]),
    Sql(&["insert into c select id, v, w from a where id < 60"]),
    Sql(&["create index c_w on c (w, id)"]),
    Sql(&["create unlogged table u2 (id int primary key, v int, w text)"]),
    Sql(&["insert into u2 select n, n, repeat('u', 500) from generate_series(1, 40) n"]),
    Background,
    Sql(&["drop table gone"]),
    Sql(&["truncate b"]),
    Sql(&["insert into b select n, n, repeat('f', 200) from generate_series(1, 100) n"]),
    Sql(&["delete from a where id > 100"]),
    Sql(&["vacuum a"]),
    Checkpoint,
    Sql(&["alter table b add column more int default 5"]),
    Sql(&["begin", "drop table c", "create table c (id int, v int, w text)", "commit"]),
    Sql(&["update b set v = v * 2, w = w || 'g'"]),
    Background,
    Checkpoint,
];

fn options() -> Options {
    Options::new().set("lock_timeout", "1ms").expect("a setting")
}

pub fn open(sim: &Sim) -> Result<Database> {
    let (engine, _) = sim.try_open()?;
    Database::over(engine, options())
}

pub fn tables(session: &mut Session) -> Result<Tables> {
    let mut found = Tables::new();
    let names = "select relname from pg_class where relkind = 'r' and relnamespace = 2200";
    for row in session.query(names, &[])? {
        let name: String = row.get(0)?;
        let mut rows = Vec::new();
        for row in session.query(&format!("select id, v, w from {name} order by id"), &[])? {
            rows.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
        found.insert(name, rows);
    }
    Ok(found)
}

/// What a crash leaves of these tables.
pub fn after_crash(tables: &Tables) -> Tables {
    let mut left = tables.clone();
    for name in UNLOGGED {
        if let Some(rows) = left.get_mut(name) {
            rows.clear();
        }
    }
    left
}

/// A step's outcome. A block that failed is rolled back, which never fails.
pub fn perform(step: &Step, engine: &Arc<Engine>, session: &mut Session) -> Result<()> {
    match step {
        Checkpoint => engine.checkpoint(CheckpointKind::Immediate).map(drop)?,
        Background => {
            engine.background_round()?;
            engine.wal.run_writer_once().map(drop)?;
        }
        Sql(statements) => {
            for sql in *statements {
                if let Err(e) = session.execute(sql, &[]) {
                    if session.in_transaction() {
                        session.execute("rollback", &[]).expect("a rollback needs no space");
                    }
                    return Err(e);
                }
            }
        }
    }
    Ok(())
}

/// The disk that every run starts from: just before the commit log's next file.
pub fn prepared(seed: u64) -> Sim {
    let mut sim = Sim::new(seed);
    sim.options.shared_buffers_bytes = 64 * 8192;
    sim.options.wal.segment_size = 128 << 10;
    let db = open(&sim).expect("made");
    let mut session = db.session().expect("a session");
    for sql in MAKE {
        session.execute(sql, &[]).expect(sql);
    }
    // A page of the commit log has 32,256 transactions, a file 32 pages.
    let next_file = 32 * 32_256;
    restart_from_xid(db.engine(), Xid::new(next_file - 12)).expect("written");
    drop(session);
    let after = sim.crash(seed);
    drop(db);
    // A clean start from here on, as little as possible to replay.
    open(&after).expect("recovered").close().expect("closed");
    after
}

/// The states of the tables before and after each step, without any fault.
pub fn reference(base: &Sim) -> Vec<Tables> {
    let sim = base.crash(1);
    let db = open(&sim).expect("opened");
    let mut session = db.session().expect("a session");
    // What a crash would have emptied is filled again, first of all.
    let mut states = vec![tables(&mut session).expect("read")];
    for (at, step) in WORK.iter().enumerate() {
        perform(step, db.engine(), &mut session).unwrap_or_else(|e| panic!("step {at}: {e}"));
        states.push(tables(&mut session).expect("read"));
    }
    states
}
