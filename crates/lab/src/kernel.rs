//! A table inside this process, without SQL and without a wire: what is left of a scan is finding
//! pages, walking line pointers, and visibility.
//!
//! ```text
//!   rows of one integer, 226 a page
//!   Writers::One        x1 x1 x1 x1 ...        one transaction made them all
//!   Writers::Each       x1 x2 x3 x4 ...        one each
//!   Writers::InTurn(4)  x1 x2 x3 x4 x1 x2 ...  a few, side by side
//! ```
//!
//! Frames know things about pages that a first scan could not know. [`Table::forget`] takes that
//! knowledge away, so that a pass can be a first one as often as one likes.

use crate::LabError;
use crate::workplace::Place;
use inkling_storage::buffer::Persistence;
use inkling_storage::engine::{Engine, EngineOptions};
use inkling_storage::error::StorageError;
use inkling_storage::heap::{
    self, HeapRel, HintPolicy, InsertOpts, PageScan, ReadCx, RowLock, TupleBody, VisState, VisStats,
};
use inkling_storage::ids::{BlockNo, Fork, Lsn, PageId, RowId, SlotNo, Xid};
use inkling_storage::txn::{CommitMode, IsolationLevel, StatusCacheKind, Transaction, TxnSession};
use std::sync::Arc;

/// Nobody waits for a flush here.
const ASYNC: CommitMode = CommitMode::Async { max_loss_micros: 10_000_000 };
/// Transactions after which a chunk of the status window is full whatever it began with.
const CHUNK: usize = 4096;
/// Rows inserted at a time.
const BATCH: usize = 4096;

impl From<StorageError> for LabError {
    fn from(error: StorageError) -> LabError {
        LabError::Engine(error.to_string())
    }
}

/// Who made the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// One transaction.
    One,
    /// A transaction a row.
    Each,
    /// So many transactions, a row each in turn.
    InTurn(usize),
}

/// What frames are to know before a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Whatever they know.
    Nothing,
    /// That all tuples are visible: the first scan after a load.
    Summaries,
    /// Who inserted them, too: the first scan after a page came from disk.
    AllButHints,
    /// Everything, and then the pages are written back: the first scan after a checkpoint.
    WriteBack,
}

/// The table and its engine.
pub struct Table {
    engine: Arc<Engine>,
    heap: HeapRel,
    blocks: BlockNo,
    rows: u64,
    /// Holds a snapshot from before the rows: nothing settles.
    _held: Option<Transaction>,
    // Dropped after the engine.
    _place: Place,
}

/// Who looks: one statement's snapshot, and what a session may use.
pub struct Reader<'t> {
    table: &'t Table,
    tx: Transaction,
    state: VisState,
    policy: HintPolicy,
    scan: PageScan,
}

impl Table {
    /// Makes a table of `rows` rows in a new engine. Commits are durable on return. With
    /// `keep_recent` the status window goes on answering for their transactions.
    pub fn load(
        place: Place,
        rows: u64,
        writers: Writers,
        keep_recent: bool,
    ) -> Result<Table, LabError> {
        let bytes = usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(80);
        let options = EngineOptions {
            shared_buffers_bytes: bytes.saturating_add(64 << 20),
            fsync: false,
            max_wal_size: 16 << 30,
            background_threads: false,
            log_sink: Arc::new(|_, _| {}),
            ..EngineOptions::default()
        };
        let (engine, _) = Engine::open_dir(&place.path().join("data"), options)?;
        let session = TxnSession::new(&*engine, 1);
        let mut tx = begin(&session);
        let rel = engine.create_rel(&mut tx, Persistence::Permanent)?;
        let heap = HeapRel::new(rel);
        let _held = keep_recent.then(|| {
            let mut old = begin(&TxnSession::new(&*engine, 1));
            old.statement_snapshot();
            old
        });
        let mut table = Table { engine, heap, blocks: 0, rows, _held, _place: place };
        match writers {
            Writers::One => table.insert_all(&mut tx, rows)?,
            Writers::Each | Writers::InTurn(_) => {}
        }
        table.end(tx)?;
        match writers {
            Writers::One => {}
            Writers::Each => table.insert_each(&session, rows)?,
            Writers::InTurn(count) => table.insert_in_turn(rows, count.max(1))?,
        }
        table.blocks = table.engine.pool.block_count(rel, Fork::Main)?;
        table.flush()?;
        Ok(table)
    }

    fn insert_all(&self, tx: &mut Transaction, rows: u64) -> Result<(), LabError> {
        let data: Vec<[u8; 4]> = (0..rows).map(|n| (n as u32).to_le_bytes()).collect();
        let mut addresses = Vec::new();
        for batch in data.chunks(BATCH) {
            let bodies: Vec<TupleBody<'_>> = batch.iter().map(|d| body(d)).collect();
            addresses.clear();
            let opts = InsertOpts::default();
            heap::insert_many(&self.engine, tx, &self.heap, &bodies, opts, &mut addresses)?;
        }
        Ok(())
    }

    fn insert(&self, tx: &mut Transaction, n: u64) -> Result<RowId, LabError> {
        let data = (n as u32).to_le_bytes();
        Ok(heap::insert(&self.engine, tx, &self.heap, &body(&data), InsertOpts::default())?)
    }

    fn insert_each(&self, session: &Arc<TxnSession>, rows: u64) -> Result<(), LabError> {
        for n in 0..rows {
            let mut tx = begin(session);
            self.insert(&mut tx, n)?;
            self.end(tx)?;
        }
        Ok(())
    }

    fn insert_in_turn(&self, rows: u64, count: usize) -> Result<(), LabError> {
        let sessions: Vec<_> = (0..count).map(|_| TxnSession::new(&*self.engine, 1)).collect();
        let mut open: Vec<_> = sessions.iter().map(begin).collect();
        for n in 0..rows {
            self.insert(&mut open[n as usize % count], n)?;
        }
        open.into_iter().try_for_each(|tx| self.end(tx))
    }

    fn end(&self, tx: Transaction) -> Result<(), LabError> {
        let _visible = tx.commit(&*self.engine, ASYNC)?;
        Ok(())
    }

    fn flush(&self) -> Result<(), LabError> {
        let wal = &self.engine.wal;
        wal.flush(wal.inserted())?;
        self.engine.txns.maintain(wal.flushed());
        Ok(())
    }

    /// Deletes the first row of every page, for good: no page is all visible from now on.
    pub fn delete_one_a_page(&self) -> Result<(), LabError> {
        let session = TxnSession::new(&*self.engine, 1);
        let mut tx = begin(&session);
        for block in 0..self.blocks {
            let row = RowId::new(block, SlotNo::new(1));
            if !heap::delete(&self.engine, &mut tx, &self.heap, row)?.is_ok() {
                return Err(LabError::Engine(format!("row {row} could not be deleted")));
            }
        }
        self.end(tx)?;
        self.flush()
    }

    /// Runs enough transactions for every chunk with a writer of this table in it to settle: from
    /// now on the commit log answers for them.
    pub fn settle(&self) -> Result<(), LabError> {
        let session = TxnSession::new(&*self.engine, 1);
        for _ in 0..=CHUNK {
            let mut tx = begin(&session);
            tx.xid(&*self.engine)?;
            self.end(tx)?;
        }
        self.flush()
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Sessions' counters so far.
    pub fn counted(&self) -> VisStats {
        self.engine.heap.visibility.read()
    }

    pub fn reader(&self, policy: HintPolicy, cache: StatusCacheKind) -> Reader<'_> {
        let session = TxnSession::new(&*self.engine, 1);
        let mut tx = begin(&session);
        tx.statement_snapshot();
        let state = VisState::new(&self.engine).with_cache(cache);
        Reader { table: self, tx, state, policy, scan: PageScan::new() }
    }

    /// Takes away what frames know.
    pub fn forget(&self, what: Forget) -> Result<(), LabError> {
        if what == Forget::Nothing {
            return Ok(());
        }
        for block in 0..self.blocks {
            let page = self.engine.pool.share(PageId::main(self.heap.rel, block))?;
            let frame = page.frame();
            frame.set_summary(Lsn::INVALID, frame.change_counter());
            if what != Forget::Summaries {
                frame.set_sole_inserter(Xid::INVALID);
            }
        }
        if what == Forget::WriteBack {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Makes every page dirty by a change that changes nothing, and writes it back.
    fn rewrite(&self) -> Result<(), LabError> {
        let session = TxnSession::new(&*self.engine, 1);
        let mut tx = begin(&session);
        for block in 0..self.blocks {
            let row = RowId::new(block, SlotNo::new(1));
            // A row lock: void as soon as its transaction has ended.
            let _locked = heap::lock_row(&self.engine, &mut tx, &self.heap, row, RowLock::Update)?;
        }
        self.end(tx)?;
        self.flush()?;
        self.engine.pool.flush_rel(self.heap.rel)?;
        Ok(())
    }

    /// Finds and latches every page, and nothing else.
    pub fn visit(&self) -> Result<u64, LabError> {
        let mut seen = 0;
        for block in 0..self.blocks {
            let page = self.engine.pool.share(PageId::main(self.heap.rel, block))?;
            seen += u64::from(page.lower());
        }
        Ok(seen)
    }

    /// Counts the tuples of every page by the line pointers, whoever may see them.
    pub fn lines(&self) -> Result<u64, LabError> {
        let mut count = 0;
        let mut scan = PageScan::new();
        for block in 0..self.blocks {
            count += heap::count_lines(&self.engine, &self.heap, block, &mut scan)? as u64;
        }
        Ok(count)
    }
}

impl Reader<'_> {
    /// Counts the rows that the snapshot sees.
    pub fn count(&mut self) -> Result<u64, LabError> {
        let table = self.table;
        let snapshot = match self.tx.snapshot() {
            Some(snapshot) => snapshot,
            None => self.tx.statement_snapshot(),
        };
        let (tx, state, policy) = (&self.tx, &self.state, self.policy);
        let cx = ReadCx { snapshot, policy, ..ReadCx::new(&table.engine, tx, snapshot, state) };
        let mut count = 0;
        for block in 0..table.blocks {
            let seen = heap::count_page(&table.engine, &cx, &table.heap, block, &mut self.scan)?;
            count += seen as u64;
        }
        Ok(count)
    }
}

fn begin(session: &Arc<TxnSession>) -> Transaction {
    Transaction::begin(session, IsolationLevel::RepeatableRead, false)
}

fn body(data: &[u8]) -> TupleBody<'_> {
    TupleBody { natts: 1, nulls: &[], data, has_external: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workplace::Workplace;

    #[test]
    fn every_way_of_making_and_reading_counts_the_same() {
        let work = Workplace::new().unwrap();
        for writers in [Writers::One, Writers::Each, Writers::InTurn(3)] {
            let table = Table::load(work.place().unwrap(), 1000, writers, false).unwrap();
            assert_eq!(table.lines().unwrap(), 1000);
            for policy in HintPolicy::ALL {
                for cache in StatusCacheKind::ALL {
                    let mut reader = table.reader(policy, cache);
                    assert_eq!(reader.count().unwrap(), 1000);
                    table.forget(Forget::AllButHints).unwrap();
                    assert_eq!(reader.count().unwrap(), 1000);
                }
            }
            table.settle().unwrap();
            table.delete_one_a_page().unwrap();
            let left = 1000 - u64::from(table.blocks());
            let mut reader = table.reader(HintPolicy::Frame, StatusCacheKind::Few);
            assert_eq!(reader.count().unwrap(), left, "{writers:?}");
        }
    }
}
