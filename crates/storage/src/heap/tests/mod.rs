//! Tests of the heap, from the bytes of a page to whole tables.

mod basics;
mod durable_hints;
mod flags;
mod model;
mod pages;
mod threads;

use super::*;
pub use crate::btree::UniqueVerdict;
use crate::buffer::Persistence;
use crate::engine::{Engine, testing};
use crate::ids::{BlockNo, Fork};
use crate::txn::{CommitMode, IsolationLevel, Snapshot, Transaction, TxnSession};
use std::sync::Arc;

pub const ASYNC: CommitMode = CommitMode::Async { max_loss_micros: 200_000 };

/// An engine with one table.
pub struct Db {
    pub e: Arc<Engine>,
    pub h: HeapRel,
}

impl Db {
    pub fn new() -> Self {
        Self::on(testing::open_for_test())
    }

    pub fn on(e: Arc<Engine>) -> Self {
        let session = TxnSession::new(&*e, 1);
        let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
        let rel = e.create_rel(&mut tx, Persistence::Permanent).expect("create");
        let _ = tx.commit(&*e, ASYNC).expect("commit");
        Db { e, h: HeapRel::new(rel) }
    }

    pub fn begin(&self) -> Tx<'_> {
        // A session of its own: several may be open at a time.
        let session = TxnSession::new(&*self.e, 2);
        Tx {
            db: self,
            tx: Transaction::begin(&session, IsolationLevel::RepeatableRead, false),
            state: VisState::new(&self.e),
        }
    }

    pub fn blocks(&self) -> BlockNo {
        self.e.pool.block_count(self.h.rel, Fork::Main).expect("count")
    }

    pub fn check(&self) {
        let problems = check(&self.e, &self.h).expect("check");
        assert!(
            problems.is_empty(),
            "{}",
            problems.iter().map(|p| format!("{p}\n")).collect::<String>()
        );
    }

    pub fn vacuum(&self) -> VacuumStats {
        self.vacuum_with(VacuumOpts { truncate: true, ..VacuumOpts::default() })
    }

    pub fn vacuum_with(&self, opts: VacuumOpts) -> VacuumStats {
        vacuum(&self.e, &self.h, opts, &mut |_| Ok(()), &mut |_| Ok(())).expect("vacuum")
    }

    pub fn dump(&self, block: BlockNo) -> String {
        dump::dump_page(
            &self.e.pool.share(crate::ids::PageId::main(self.h.rel, block)).expect("page"),
        )
    }
}

/// A transaction of a session of its own.
pub struct Tx<'d> {
    pub db: &'d Db,
    pub tx: Transaction,
    pub state: VisState,
}

pub fn row_body(data: &[u8]) -> TupleBody<'_> {
    TupleBody { natts: 1, nulls: &[], data, has_external: false }
}

impl Tx<'_> {
    /// What all sessions together have counted.
    pub fn stats(&self) -> VisStats {
        self.db.e.heap.visibility.read()
    }

    pub fn insert(&mut self, data: &[u8]) -> RowId {
        let row =
            insert(&self.db.e, &mut self.tx, &self.db.h, &row_body(data), InsertOpts::default());
        self.tx.next_command().expect("command");
        row.expect("insert")
    }

    pub fn update(&mut self, row: RowId, data: &[u8], hot_ok: bool) -> TupleResult<(RowId, bool)> {
        let opts = UpdateOpts { hot_ok, key_change: false };
        let done = update(&self.db.e, &mut self.tx, &self.db.h, row, &row_body(data), opts);
        self.tx.next_command().expect("command");
        done.expect("update")
    }

    pub fn delete(&mut self, row: RowId) -> TupleResult<()> {
        let done = delete(&self.db.e, &mut self.tx, &self.db.h, row).expect("delete");
        self.tx.next_command().expect("command");
        done
    }

    pub fn lock(&mut self, row: RowId, strength: RowLock) -> TupleResult<()> {
        lock_row(&self.db.e, &mut self.tx, &self.db.h, row, strength).expect("lock")
    }

    pub fn snapshot(&mut self) -> Snapshot {
        self.tx.statement_snapshot()
    }

    /// Everything visible, as (address, data), in physical order.
    pub fn scan(&mut self) -> Vec<(RowId, Vec<u8>)> {
        let snapshot = self.snapshot();
        let cx = ReadCx::new(&self.db.e, &self.tx, snapshot, &self.state);
        scan_all(self.db, &cx)
    }

    pub fn fetch_hot(&mut self, root: RowId) -> Option<(RowId, Vec<u8>)> {
        let snapshot = self.snapshot();
        let cx = ReadCx::new(&self.db.e, &self.tx, snapshot, &self.state);
        let mut buf = TupleBuf::new();
        let found = fetch_hot(&self.db.e, &cx, &self.db.h, root, &mut buf).expect("fetch");
        found.then(|| (buf.row(), buf.tuple().expect("fetched").data().to_vec()))
    }

    pub fn commit(self) {
        let _ = self.tx.commit(&*self.db.e, ASYNC).expect("commit");
    }

    pub fn abort(self) {
        self.tx.abort(&*self.db.e);
    }
}

pub fn scan_all(db: &Db, cx: &ReadCx<'_>) -> Vec<(RowId, Vec<u8>)> {
    let mut scan = PageScan::new();
    let mut all = Vec::new();
    for block in 0..db.blocks() {
        scan_page(&db.e, cx, &db.h, block, &mut scan).expect("scan");
        for at in 0..scan.len() {
            all.push((scan.row(at), scan.tuple(at).expect("tuple").data().to_vec()));
        }
    }
    all
}

pub fn texts(rows: &[(RowId, Vec<u8>)]) -> Vec<String> {
    let mut texts: Vec<String> =
        rows.iter().map(|(_, d)| String::from_utf8_lossy(d).into_owned()).collect();
    texts.sort();
    texts
}
