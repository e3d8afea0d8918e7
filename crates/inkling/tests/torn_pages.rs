//! Power goes in the middle of a page's write: at every single one of them.
//!
//! ```text
//!   page on disk      AAAAAAAAAAAAAAAA      16 sectors
//!   being written     BBBBBBBBBBBBBBBB
//!   what is left      BBBBBBBAAAAAAAAA  BBBBBBBBBBBBBBBA  ABABABABABABABAB  or any other mixture
//! ```
//!
//! A workload with few frames writes pages to make room, in rounds of the background writer and in
//! checkpoints. Before each write of a page (heap, index, maps, values out of the row) the disk is
//! copied as a power failure would leave it with just some sectors of that write, and recovered: it
//! must hold every commit that was acknowledged, and pass the checks. The same workload without
//! page images (`full_page_writes = off`) is damaged by some of the mixtures: the test can fail.

mod common;

use inkling::{Database, Options, Session};
use inkling_storage::engine::CheckpointKind;
use inkling_storage::engine::testing::Sim;
use inkling_storage::vfs::SimDisk;
use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

const ROUNDS: i32 = 30;

fn open(sim: &Sim) -> inkling::Result<Database> {
    let (engine, _) = sim.try_open()?;
    Database::over(engine, Options::new())
}

/// One commit: half of the rows change, some come, some go, some are long.
fn commit(session: &mut Session, round: i32) {
    let text = format!(
        "update t set v = {round}, w = md5((id + {round})::text) where id % 2 = {};
         insert into t select {round} * 1000 + n, {round}, repeat(md5(n::text), 8) \
            from generate_series(1, 12) n;
         insert into t select {round} * 1000 + 500, {round}, \
            (select string_agg(md5((i * {round})::text), '') from generate_series(1, 200) i);
         delete from t where id % 1000 = 5 and v < {round};
         update last set round = {round}",
        round % 2
    );
    session.batch(&text).expect("committed");
}

/// The round that the database is in, and what the table holds in it.
fn contents(db: &Database) -> inkling::Result<(i32, i64, i64, i64)> {
    let mut session = db.session()?;
    let round = session.query("select round from last", &[])?.scalar::<i32>()?;
    let row = session.query_one("select count(*), sum(v), sum(length(w)) from t", &[])?;
    // The same by the index.
    let by_key = "select count(*) from generate_series(1, 31000) n \
                  where exists (select 1 from t where t.id = n)";
    assert_eq!(session.query(by_key, &[])?.scalar::<i64>()?, row.get::<i64>(0)?, "by the index");
    Ok((round, row.get(0)?, row.get(1)?, row.get(2)?))
}

/// Which sectors of the `n`th write arrive.
fn mixture(n: u64, sector: u64) -> bool {
    match n % 5 {
        0 => sector == 0,
        1 => sector < 15,
        2 => sector % 2 == 1,
        3 => sector >= 8,
        _ => (n / 5).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (sector + 20) & 1 == 1,
    }
}

struct Watch {
    sim: Sim,
    /// What each round's commit left; the last is the newest acknowledged.
    known: Mutex<Vec<(i32, i64, i64, i64)>>,
    /// The newest round whose commit was acknowledged.
    told: AtomicI32,
    on: AtomicBool,
    writes: AtomicU64,
    every: u64,
    wrong: Mutex<Vec<String>>,
}

impl Watch {
    fn look(&self, path: &str, offset: u64, bytes: &[u8]) {
        if !path.starts_with("base/") || !self.on.load(Ordering::Relaxed) {
            return;
        }
        let n = self.writes.fetch_add(1, Ordering::Relaxed);
        if !n.is_multiple_of(self.every) {
            return;
        }
        let torn = self.sim.disk.crash_tearing(n, (path, offset, bytes), |s| mixture(n, s));
        let what = format!("write {n}, {path} at {offset}");
        let verdict = std::panic::catch_unwind(AssertUnwindSafe(|| self.judge(torn)));
        let wrong = verdict.unwrap_or_else(|_| Some("a panic".to_owned()));
        self.wrong.lock().extend(wrong.map(|wrong| format!("{what}: {wrong}")));
    }

    /// What is wrong with a disk after recovery.
    fn judge(&self, disk: SimDisk) -> Option<String> {
        let sim =
            Sim { disk, clock: Arc::clone(&self.sim.clock), options: self.sim.options.clone() };
        let db = match open(&sim) {
            Ok(db) => db,
            Err(e) => return Some(format!("does not open: {e}")),
        };
        let found = match contents(&db) {
            Ok(found) => found,
            Err(e) => return Some(format!("unreadable: {e}")),
        };
        let known = self.known.lock();
        let told = self.told.load(Ordering::Relaxed);
        // The commit under way may be there, too; what it left is not known yet.
        let right = known.iter().find(|k| k.0 == found.0).is_none_or(|k| *k == found);
        if !(told..=told + 1).contains(&found.0) || !right {
            return Some(format!("{found:?} instead of {:?}", known.last()));
        }
        drop(known);
        match inkling::check::check(db.sql()) {
            Ok(report) if report.is_clean() => None,
            Ok(report) => Some(format!("{:?}", report.problems)),
            Err(e) => Some(format!("check: {e}")),
        }
    }
}

/// Works under watch; tells the writes of pages and what was wrong after them.
fn work(seed: u64, full_page_writes: bool, every: u64) -> (u64, Vec<String>) {
    let mut sim = Sim::new(seed);
    sim.options.shared_buffers_bytes = 48 * 8192;
    sim.options.wal.segment_size = 256 << 10;
    sim.options.full_page_writes = full_page_writes;
    let db = open(&sim).expect("opened");
    let mut session = db.session().expect("a session");
    session
        .batch(
            "create table t (id int primary key, v int, w text); create index t_v on t (v, id); \
             create table last (round int); insert into last values (0); \
             insert into t select n, 0, repeat('a', 100) from generate_series(1, 300) n",
        )
        .expect("made");
    db.engine().checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    let watch = Arc::new(Watch {
        sim: Sim {
            disk: sim.disk.clone(),
            clock: Arc::clone(&sim.clock),
            options: sim.options.clone(),
        },
        known: Mutex::new(vec![contents(&db).expect("readable")]),
        told: AtomicI32::new(0),
        on: AtomicBool::new(true),
        writes: AtomicU64::new(0),
        every,
        wrong: Mutex::new(Vec::new()),
    });
    let watcher = Arc::clone(&watch);
    sim.disk.watch_writes(Box::new(move |path, at, bytes| watcher.look(path, at, bytes)));
    for round in 1..=ROUNDS {
        commit(&mut session, round);
        watch.told.store(round, Ordering::Relaxed);
        // Reading writes pages, too.
        let now = contents(&db).expect("readable");
        watch.known.lock().push(now);
        match round % 3 {
            0 => drop(db.engine().checkpoint(CheckpointKind::Immediate).expect("checkpoint")),
            1 => db.engine().background_round().expect("a round"),
            _ => {}
        }
    }
    watch.on.store(false, Ordering::Relaxed);
    drop(session);
    db.close().expect("closed");
    let wrong = std::mem::take(&mut *watch.wrong.lock());
    (watch.writes.load(Ordering::Relaxed), wrong)
}

#[test]
fn a_page_torn_at_any_write_is_repaired() {
    let every = common::from_env("INKLING_TORN_STEP", 1);
    let (writes, wrong) = work(1, true, every);
    println!("{writes} writes of pages");
    assert!(wrong.is_empty(), "{} of {writes}: {}", wrong.len(), wrong.join("\n"));
    assert!(writes > 200, "only {writes} writes of pages");
}

#[test]
fn without_page_images_some_torn_page_is_damage() {
    let (writes, wrong) = work(2, false, 7);
    assert!(!wrong.is_empty(), "none of {writes}");
}
