//! Random work, power failures at random moments, and an exact oracle.
//!
//! Every record's effect is noted with its LSN. Recovery says where the log ends; the state after
//! it must be the effects of exactly the records up to there, and "there" must not lie before what
//! was reported durable. The same for files: a relation exists iff its creator's commit is in that
//! prefix and no dropper's is.

use super::toy::{self, SLOTS, add, add_page, begin};
use crate::buffer::Persistence;
use crate::engine::control::ControlFile;
use crate::engine::testing::Sim;
use crate::engine::{CheckpointKind, Engine, OpenOutcome};
use crate::error::Result;
use crate::ids::{Fork, Lsn, PageId, RelId, Xid};
use crate::txn::{CommitMode, Transaction};
use crate::vfs::Vfs;
use crate::wal::WalReader;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A small generator; seeds are printed when a run fails.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

#[derive(Clone)]
pub enum Effect {
    NewPage(PageId),
    Add {
        pages: Vec<PageId>,
        slot: u8,
        delta: u64,
    },
    Cut {
        rel: RelId,
        blocks: u32,
    },
    /// The relation's creator committed.
    Born(RelId),
    /// Its dropper committed.
    Gone(RelId),
}

/// What happened, in log order.
#[derive(Clone, Default)]
pub struct History(Vec<(Lsn, Effect)>);

#[derive(Default)]
struct State {
    rels: BTreeMap<RelId, Vec<[u64; SLOTS]>>,
    alive: BTreeMap<RelId, bool>,
}

impl History {
    fn state_at(&self, end: Lsn) -> State {
        let mut state = State::default();
        for (_, effect) in self.0.iter().filter(|(lsn, _)| *lsn <= end) {
            match effect {
                Effect::NewPage(id) => {
                    let pages = state.rels.entry(id.rel).or_default();
                    assert_eq!(pages.len(), id.block as usize);
                    pages.push([0; SLOTS]);
                }
                Effect::Add { pages, slot, delta } => {
                    for id in pages {
                        let rel = state.rels.get_mut(&id.rel).expect("the relation has pages");
                        rel[id.block as usize][usize::from(*slot)] += delta;
                    }
                }
                Effect::Cut { rel, blocks } => {
                    state.rels.entry(*rel).or_default().truncate(*blocks as usize);
                }
                Effect::Born(rel) => drop(state.alive.insert(*rel, true)),
                Effect::Gone(rel) => drop(state.alive.insert(*rel, false)),
            }
        }
        state
    }
}

impl History {
    /// Prints what happened to a page, for a run that failed.
    fn describe(&self, id: PageId, end: Lsn) {
        for (lsn, effect) in self.0.iter().filter(|(lsn, _)| *lsn <= end) {
            match effect {
                Effect::NewPage(page) if *page == id => println!("{lsn} made"),
                Effect::Add { pages, slot, delta } if pages.contains(&id) => {
                    println!("{lsn} slot {slot} + {delta}");
                }
                Effect::Cut { rel, blocks } if *rel == id.rel => {
                    println!("{lsn} cut to {blocks}");
                }
                Effect::Born(rel) | Effect::Gone(rel) if *rel == id.rel => {
                    println!("{lsn} born or gone");
                }
                _ => {}
            }
        }
    }
}

pub struct Work {
    engine: Arc<Engine>,
    dice: Dice,
    history: History,
    /// Relations that committed transactions made and nobody dropped.
    rels: Vec<RelId>,
    /// Nothing before this may be lost.
    promised: Lsn,
}

impl Work {
    pub fn new(engine: Arc<Engine>, seed: u64, history: History, rels: Vec<RelId>) -> Self {
        Work { engine, dice: Dice::new(seed), history, rels, promised: Lsn::INVALID }
    }

    fn note(&mut self, lsn: Lsn, effect: Effect) {
        self.history.0.push((lsn, effect));
    }

    fn pages_of(&self, rel: RelId) -> Result<u32> {
        self.engine.pool.block_count(rel, Fork::Main)
    }

    fn new_page(&mut self, rel: RelId, xid: Xid) -> Result<()> {
        let id = add_page(&self.engine, rel, xid)?;
        let lsn = self.engine.pool.share(id)?.lsn();
        self.note(lsn, Effect::NewPage(id));
        Ok(())
    }

    fn some_adds(&mut self, rel: RelId, xid: Xid) -> Result<()> {
        for _ in 0..=self.dice.roll(6) {
            let blocks = self.pages_of(rel)?;
            if blocks == 0 || self.dice.roll(5) == 0 && blocks < 60 {
                self.new_page(rel, xid)?;
                continue;
            }
            let mut pages: Vec<PageId> = (0..=self.dice.roll(3))
                .map(|_| PageId::main(rel, self.dice.roll(blocks as usize) as u32))
                .collect();
            pages.sort_by_key(|id| id.block);
            pages.dedup();
            let slot = self.dice.roll(SLOTS) as u8;
            let delta = 1 + self.dice.roll(1000) as u64;
            let lsn = add(&self.engine, xid, &pages, slot, delta)?;
            self.note(lsn, Effect::Add { pages, slot, delta });
        }
        Ok(())
    }

    fn transaction(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let mut tx = begin(&engine);
        let xid = tx.xid(&*engine)?;
        let mut made = Vec::new();
        let mut dropped = Vec::new();
        if self.rels.is_empty() || self.dice.roll(8) == 0 && self.rels.len() < 6 {
            let rel = engine.create_rel(&mut tx, Persistence::Permanent)?;
            made.push(rel);
            self.some_adds(rel, xid)?;
        } else if self.dice.roll(12) == 0 {
            let at = self.dice.roll(self.rels.len());
            dropped.push(self.rels[at]);
            engine.drop_rel_at_commit(&mut tx, self.rels[at])?;
        } else {
            let rel = self.rels[self.dice.roll(self.rels.len())];
            self.some_adds(rel, xid)?;
        }
        match self.dice.roll(6) {
            0 => tx.abort(&*engine),
            // Still running when the power goes, or for ever.
            1 if dropped.is_empty() => std::mem::forget(tx),
            _ => self.commit(tx, &made, &dropped)?,
        }
        Ok(())
    }

    fn commit(&mut self, tx: Transaction, made: &[RelId], dropped: &[RelId]) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let sync = !dropped.is_empty() || self.dice.roll(2) == 0;
        let mode =
            if sync { CommitMode::Sync } else { CommitMode::Async { max_loss_micros: 1_000_000 } };
        let outcome = tx.commit(&*engine, mode)?;
        let lsn = outcome.lsn.expect("it has an xid");
        for rel in made {
            self.note(lsn, Effect::Born(*rel));
            self.rels.push(*rel);
        }
        for rel in dropped {
            self.note(lsn, Effect::Gone(*rel));
            self.rels.retain(|r| r != rel);
        }
        if sync {
            engine.wal.flush(lsn)?;
            self.promised = self.promised.max(lsn);
            engine.remove_rels(&outcome.unlinks);
        }
        Ok(())
    }

    fn cut(&mut self) -> Result<()> {
        if self.rels.is_empty() {
            return Ok(());
        }
        let rel = self.rels[self.dice.roll(self.rels.len())];
        let blocks = self.pages_of(rel)?;
        let keep = blocks - (blocks / 3).min(self.dice.roll(8) as u32);
        if keep == blocks {
            return Ok(());
        }
        // Noted beforehand: it may be logged and fail to cut the file.
        let at = self.engine.wal.inserted().advance(1);
        self.note(at, Effect::Cut { rel, blocks: keep });
        self.engine.truncate_rel(rel, Fork::Main, keep)
    }

    fn step(&mut self) -> Result<()> {
        match self.dice.roll(40) {
            0 => self.engine.checkpoint(CheckpointKind::Immediate).map(|_| ())?,
            1 | 2 => self.engine.background_round()?,
            3 => self.cut()?,
            4 => {
                let lsn = self.engine.wal.inserted();
                self.engine.wal.flush(lsn)?;
                self.promised = self.promised.max(lsn);
            }
            _ => self.transaction()?,
        }
        Ok(())
    }

    /// Works until something fails (the power) or enough was done.
    pub fn run(&mut self, steps: usize) -> bool {
        (0..steps).all(|_| self.step().is_ok())
    }
}

/// Compares what is there with what the history says for the prefix up to `end`.
fn verify(sim: &Sim, engine: &Engine, history: &History, end: Lsn) -> Vec<RelId> {
    let state = history.state_at(end);
    let mut alive = Vec::new();
    for (rel, pages) in &state.rels {
        let path = format!("base/{rel}");
        if !state.alive.get(rel).copied().unwrap_or(false) {
            assert!(!sim.disk.exists(&path), "{path} belongs to nobody");
            continue;
        }
        let blocks = engine.pool.block_count(*rel, Fork::Main).expect("count");
        assert_eq!(blocks as usize, pages.len(), "length of {path}");
        for (block, counters) in pages.iter().enumerate() {
            let id = PageId::main(*rel, block as u32);
            let page = engine.pool.share(id).expect("page");
            toy::check(&page);
            let wrong = (0..SLOTS).any(|slot| toy::counter(&page, slot as u8) != counters[slot]);
            if wrong {
                println!("{id:?} has LSN {}; its history:", page.lsn());
                history.describe(id, end);
            }
            for (slot, expected) in counters.iter().enumerate() {
                assert_eq!(toy::counter(&page, slot as u8), *expected, "{id:?} slot {slot}");
            }
        }
    }
    for (rel, lives) in &state.alive {
        assert_eq!(sim.disk.exists(&format!("base/{rel}")), *lives, "base/{rel}");
        if *lives {
            alive.push(*rel);
        }
    }
    alive
}

/// Where the log on a disk ends, by the reader alone.
fn log_end(sim: &Sim) -> Lsn {
    let vfs: Arc<dyn Vfs> = Arc::new(sim.disk.clone());
    let control = ControlFile::open(&*vfs, false).expect("the control file");
    let size = control.data().wal_segment_size;
    let mut reader = WalReader::with_segment_size(vfs, control.data().redo, size);
    while reader.next().expect("the log is readable").is_some() {}
    reader.position()
}

/// Rounds of work, power failure in the middle of something, recovery, comparison.
fn crash_rounds(seed: u64, rounds: usize, change: impl Fn(&mut Sim)) {
    let mut sim = toy::sim(seed, 20);
    change(&mut sim);
    let mut dice = Dice::new(seed ^ 0xABCD);
    let mut history = History::default();
    let mut rels = Vec::new();
    let mut engine = sim.open();
    for round in 0..rounds {
        let mut work = Work::new(engine, seed * 1000 + round as u64, history, rels);
        sim.disk.power_off_after(20 + dice.roll(1500) as u64);
        work.run(20 + dice.roll(200));
        let promised = work.promised;
        history = work.history;
        let mut next = sim.crash(seed * 77 + round as u64);
        let end = log_end(&next);
        // Recovery is cut short now and then, too.
        let attempts = dice.roll(3);
        for attempt in 0..attempts {
            next.disk.power_off_after(1 + dice.roll(60) as u64);
            drop(next.try_open());
            next = next.crash(seed * 31 + attempt as u64);
        }
        sim = next;
        let (opened, outcome) = sim
            .try_open()
            .unwrap_or_else(|e| panic!("seed {seed} round {round}: the engine did not open: {e}"));
        engine = opened;
        match outcome {
            OpenOutcome::Recovered(stats) => assert!(stats.to == end || attempts > 0),
            other => panic!("seed {seed} round {round}: {other:?}"),
        }
        println!("seed {seed} round {round}: {} effects, log ends at {end}", history.0.len());
        assert!(end >= promised, "durable up to {promised} was promised, the log ends at {end}");
        history.0.retain(|(lsn, _)| *lsn <= end);
        rels = verify(&sim, &engine, &history, end);
    }
}

#[test]
fn recovered_state_is_exactly_a_prefix_of_the_log() {
    for seed in 1..=12 {
        crash_rounds(seed, 6, |_| {});
    }
}

#[test]
fn compressed_images_restore_torn_pages_as_well() {
    for seed in 100..=103 {
        crash_rounds(seed, 4, |sim| {
            sim.options.wal.compression = crate::wal::WalCompression::Lz4;
        });
    }
}

#[test]
fn torn_pages_are_repaired_from_images() {
    let mut torn = 0;
    for seed in 0..30 {
        let sim = toy::sim(seed, 64);
        let engine = sim.open();
        let mut tx = begin(&engine);
        let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
        let xid = tx.xid(&*engine).expect("xid");
        let ids: Vec<PageId> = (0..8).map(|_| add_page(&engine, rel, xid).expect("page")).collect();
        toy::commit(&engine, tx).expect("commit");
        toy::checkpoint(&engine);
        for n in 0..SLOTS as u8 {
            add(&engine, Xid::INVALID, &ids, n, 3).expect("add");
        }
        engine.wal.flush(engine.wal.inserted()).expect("flush");
        // Written and not synced: what is on disk afterwards is anybody's guess.
        engine.pool.flush_rel(rel).expect("write");
        let after = sim.crash(seed);
        let bytes = after.disk.contents(&format!("base/{rel}")).expect("the file");
        for (block, chunk) in bytes.chunks_exact(crate::page::PAGE_SIZE).enumerate().take(8) {
            let mut page = crate::page::Page::zeroed();
            page.bytes_mut().copy_from_slice(chunk);
            torn += usize::from(page.verify(ids[block], true).is_err());
        }
        let engine = after.open();
        for id in &ids {
            assert_eq!(toy::read(&engine, *id, 17), 3, "seed {seed}");
        }
    }
    assert!(torn > 10, "the disk tore only {torn} pages: this test tested little");
}
