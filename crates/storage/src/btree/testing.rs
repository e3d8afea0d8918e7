//! What this module's tests stand on: an index over a simulated disk, a small pool and a log, and a
//! replay of that log.

#![allow(clippy::unwrap_used)]

use super::descend::Tree;
use super::node::Node;
use super::{BtreeRel, Builder, BulkDeleteStats, Cursor, Direction, IndexBatch, redo};
use crate::buffer::{BufferPool, ChangeLog, LogFlush, Persistence, PoolOptions, replay_page};
use crate::error::Result;
use crate::ids::{Fork, Lsn, PageId, RelId, RowId, SlotNo, Xid};
use crate::vfs::{SimClock, SimDisk, Vfs};
use crate::wal::{DecodedBody, DecodedRecord, FIRST_LSN, Wal, WalOptions, WalReader};
use proptest::test_runner::Config as ProptestConfig;
use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

pub const REL: RelId = RelId::new(16500);
const SEGMENT: u64 = 1 << 20;

/// The n-th row: rows in the order of their numbers.
pub fn row_id(n: u64) -> RowId {
    RowId::new((n / 200) as u32, SlotNo::new((n % 200) as u16 + 1))
}

/// Which row it is.
pub fn row_number(row: RowId) -> u64 {
    u64::from(row.block) * 200 + u64::from(row.slot.raw()) - 1
}

pub struct Fixture {
    pub disk: SimDisk,
    pub pool: BufferPool,
    pub log: ChangeLog,
    pub rel: BtreeRel,
}

struct Flusher(Arc<Wal>);

impl LogFlush for Flusher {
    fn flush_to(&self, lsn: Lsn) -> Result<()> {
        self.0.flush(lsn)
    }

    fn fail(&self, error: crate::error::StorageError) {
        self.0.fail(error);
    }
}

impl Fixture {
    /// A new, empty index.
    pub fn new(frames: usize) -> Self {
        Self::on(SimDisk::new(1), frames)
    }

    pub fn on(disk: SimDisk, frames: usize) -> Self {
        let fixture = Self::open(disk, frames, FIRST_LSN).unwrap();
        fixture.pool.create_rel(REL, Persistence::Permanent).unwrap();
        fixture.tree().create().unwrap();
        fixture
    }

    /// Whatever the disk has, with the log ending at `end`.
    pub fn open(disk: SimDisk, frames: usize, end: Lsn) -> Result<Self> {
        Self::with_pool(disk, PoolOptions { frames, ..PoolOptions::default() }, end)
    }

    /// The same without checksums: damage is seen by this module only.
    pub fn open_unchecked(disk: SimDisk, frames: usize, end: Lsn) -> Result<Self> {
        let options = PoolOptions { frames, checksums: false, ..PoolOptions::default() };
        Self::with_pool(disk, options, end)
    }

    fn with_pool(disk: SimDisk, pool: PoolOptions, end: Lsn) -> Result<Self> {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        vfs.create_dir_all("base").unwrap();
        let options = WalOptions {
            segment_size: SEGMENT,
            buffer_size: 1 << 20,
            background_writer: false,
            ..WalOptions::default()
        };
        let wal = Wal::open(Arc::clone(&vfs), Arc::new(SimClock::new()), options, end)?;
        let pool = BufferPool::new(vfs, &pool);
        pool.set_log(Arc::new(Flusher(Arc::clone(&wal))));
        Ok(Fixture { disk, pool, log: ChangeLog::new(wal, true), rel: BtreeRel::new(REL) })
    }

    pub fn tree(&self) -> Tree<'_> {
        Tree { pool: &self.pool, log: &self.log, rel: &self.rel, xid: Xid::new(7), watch: None }
    }

    pub fn insert(&self, key: &[u8], row: u64) {
        let outcome = self.tree().insert(key, row_id(row), None).unwrap();
        assert_eq!(outcome, super::InsertOutcome::Done);
    }

    pub fn vacuum(&self, dead: &dyn Fn(RowId) -> bool) -> Result<BulkDeleteStats> {
        self.tree().bulk_delete(dead, &mut || Ok(()))
    }

    pub fn builder(&self) -> Builder<'_> {
        Builder::over(self.tree()).unwrap()
    }

    pub fn blocks(&self) -> u32 {
        self.pool.block_count(REL, Fork::Main).unwrap()
    }

    /// Every entry, by a scan of the given bounds.
    pub fn scan(
        &self,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        direction: Direction,
    ) -> Vec<(Vec<u8>, u64)> {
        let mut cursor = Cursor::new(lower, upper, direction);
        let (mut batch, mut all) = (IndexBatch::with_keys(), Vec::new());
        while cursor.next_leaf(&self.tree(), &mut batch).unwrap() {
            assert!(!batch.is_empty());
            all.extend(batch_entries(&batch));
        }
        assert!(!cursor.next_leaf(&self.tree(), &mut batch).unwrap(), "the end stays the end");
        all
    }

    pub fn all(&self) -> Vec<(Vec<u8>, u64)> {
        self.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward)
    }

    /// Fails unless the index is sound and the checker sees what a scan sees.
    #[track_caller]
    pub fn check(&self) {
        let mut seen = Vec::new();
        let problems =
            self.tree().check(&mut |key, row| seen.push((key.to_vec(), row_number(row))));
        assert!(problems.is_empty(), "{problems:#?}\n{}", self.dump());
        assert!(seen == self.all(), "scan and check differ");
    }

    pub fn dump(&self) -> String {
        let mut text = String::new();
        for block in 0..self.blocks().min(200) {
            let page = self.pool.share(PageId::main(REL, block)).unwrap();
            text.push_str(&format!("-- block {block}\n{}", super::node::dump(&page)));
        }
        text
    }

    /// How many pages have this flag.
    pub fn count_flag(&self, flag: u16) -> usize {
        (1..self.blocks())
            .filter(|&block| {
                let page = self.pool.share(PageId::main(REL, block)).unwrap();
                Node::new(&page).is_ok_and(|node| node.has(flag))
            })
            .count()
    }

    pub fn height(&self) -> u32 {
        self.tree().read_meta().unwrap().root_level
    }
}

pub fn batch_entries(batch: &IndexBatch) -> Vec<(Vec<u8>, u64)> {
    let number = |row: &RowId| row_number(*row);
    let entry = |(i, row)| (batch.key(i).unwrap().to_vec(), number(row));
    batch.rows().iter().enumerate().map(entry).collect()
}

/// The records of the log, and where it ends.
pub fn records(disk: &SimDisk, from: Lsn) -> (Vec<DecodedRecord>, Lsn) {
    let mut reader = WalReader::with_segment_size(Arc::new(disk.clone()), from, SEGMENT);
    let mut records = Vec::new();
    while let Some((_, record)) = reader.next().unwrap() {
        records.push(record);
    }
    (records, reader.position())
}

/// Applies one record as recovery does.
pub fn replay(pool: &BufferPool, record: &DecodedRecord) {
    for block in &record.blocks {
        let mut guard = match &block.body {
            DecodedBody::Ops(_) if !block.init => pool.exclusive(block.id).unwrap(),
            _ => pool.overwrite(block.id).unwrap(),
        };
        if matches!(&block.body, DecodedBody::Ops(_)) && !block.init && guard.lsn() >= record.end {
            continue;
        }
        replay_page(&mut guard, record.end, |page| match &block.body {
            DecodedBody::Image(image) => {
                *page.bytes_mut() = *image.bytes();
                Ok(())
            }
            DecodedBody::Ops(ops) => {
                if block.init {
                    page.bytes_mut().fill(0);
                }
                redo(ops, page)
            }
        })
        .unwrap();
    }
}

/// So many cases a property; failing ones are printed, not kept in files.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A small generator of numbers, the same for the same seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides.max(1)
    }
}

/// After how many gaps, and what then.
type Disturbance = (usize, Box<dyn FnOnce()>);

thread_local! {
    static DISTURBANCE: RefCell<Option<Disturbance>> = const { RefCell::new(None) };
}

/// Called by searches of this thread whenever they have given up one page and not yet latched the
/// next: runs the planned disturbance when its turn has come.
pub fn between_latches() {
    let due = DISTURBANCE.with(|d| {
        let mut slot = d.borrow_mut();
        match slot.as_mut() {
            Some((0, _)) => slot.take(),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    });
    if let Some((_, disturb)) = due {
        disturb();
    }
}

/// Plans a disturbance for the `n`-th gap between latches from now. Call the result afterwards: it
/// tells whether the gap was reached, and forgets the plan.
pub fn disturb_at(n: usize, disturb: impl FnOnce() + 'static) -> impl FnOnce() -> bool {
    DISTURBANCE.with(|d| *d.borrow_mut() = Some((n, Box::new(disturb))));
    || DISTURBANCE.with(|d| d.borrow_mut().take()).is_none()
}
