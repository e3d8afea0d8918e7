//! The functions of this module that the layers above call.

use super::descend::Tree;
use super::watch::Watch;
use super::{
    BtreeRel, Builder, BulkDeleteStats, Cursor, IndexBatch, InsertOutcome, Problem, UniqueCheck,
};
use crate::buffer::Persistence;
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{Fork, RowId, Xid};
use crate::ssi::Sx;
use crate::txn::Transaction;

impl<'e> Tree<'e> {
    #[inline]
    fn of(e: &'e Engine, rel: &'e BtreeRel, xid: Xid) -> Self {
        let watch = Some(Watch { txns: &e.txns, sx: None });
        Tree { pool: &e.pool, log: e.log(), rel, xid, watch }
    }

    /// For a serializable transaction, if it is one and the index matters to such.
    #[inline]
    fn watched_by(mut self, sx: Option<&'e Sx>) -> Self {
        if self.rel.watched && sx.is_some() {
            self.watch = self.watch.map(|watch| Watch { sx, ..watch });
        }
        self
    }
}

/// Makes an empty index in a relation that has no page yet. If it is unlogged, that is also what it
/// starts from after a crash.
pub fn create(e: &Engine, tx: &mut Transaction, rel: &BtreeRel) -> Result<()> {
    create_as(e, tx.xid(e)?, rel)
}

/// As [`create`], in the name of any transaction or none.
pub fn create_as(e: &Engine, xid: Xid, rel: &BtreeRel) -> Result<()> {
    Tree::of(e, rel, xid).create()?;
    if e.pool.persistence(rel.rel) == Persistence::Unlogged {
        e.keep_as_initial(rel.rel)?;
    }
    Ok(())
}

/// Loads entries, sorted by (key, row) and none twice, into an index that has none yet; a relation
/// without pages is made an index first. Nobody else uses it meanwhile. See [`Builder`] for
/// entries that come one by one.
pub fn build<K: AsRef<[u8]>>(
    e: &Engine,
    tx: &mut Transaction,
    rel: &BtreeRel,
    sorted: impl IntoIterator<Item = (K, RowId)>,
) -> Result<()> {
    let mut builder = Builder::new(e, tx.xid(e)?, rel)?;
    for (key, row) in sorted {
        builder.push(key.as_ref(), row)?;
    }
    builder.finish()
}

impl<'e> Builder<'e> {
    pub fn new(e: &'e Engine, xid: Xid, rel: &'e BtreeRel) -> Result<Self> {
        if e.pool.block_count(rel.rel, Fork::Main)? == 0 {
            create_as(e, xid, rel)?;
        }
        Self::over(Tree::of(e, rel, xid))
    }
}

/// Adds an entry. With `unique`, looks first whether a row with the same key counts as a duplicate;
/// nothing is inserted unless the answer is `Done`. An entry that is there already stays as it is.
///
/// Nothing is latched when this returns, whatever it returns.
pub fn insert(
    e: &Engine,
    xid: Xid,
    rel: &BtreeRel,
    key: &[u8],
    row: RowId,
    unique: Option<&mut dyn UniqueCheck>,
) -> Result<InsertOutcome> {
    Tree::of(e, rel, xid).insert(key, row, unique)
}

/// The same for a transaction that may be serializable: fails when somebody's look-up of the key
/// makes it a victim; nothing is inserted then.
pub fn insert_watched(
    e: &Engine,
    xid: Xid,
    sx: Option<&Sx>,
    rel: &BtreeRel,
    key: &[u8],
    row: RowId,
    unique: Option<&mut dyn UniqueCheck>,
) -> Result<InsertOutcome> {
    Tree::of(e, rel, xid).watched_by(sx).insert(key, row, unique)
}

/// Entries with exactly this key, all of them, into `out` (emptied first). Returns whether there
/// are any. The path of a primary-key look-up: one latch a level, no allocation once `out` has
/// grown.
pub fn lookup(e: &Engine, rel: &BtreeRel, key: &[u8], out: &mut IndexBatch) -> Result<bool> {
    Tree::of(e, rel, Xid::INVALID).lookup(key, out)
}

/// The same for a transaction that may be serializable.
pub fn lookup_watched(
    e: &Engine,
    sx: Option<&Sx>,
    rel: &BtreeRel,
    key: &[u8],
    out: &mut IndexBatch,
) -> Result<bool> {
    Tree::of(e, rel, Xid::INVALID).watched_by(sx).lookup(key, out)
}

/// Whether the leaf that a batch came from is as it was then. True proves that nothing was removed
/// from it since; false proves nothing. After a `lookup` that had to visit several leaves: the
/// last one.
pub fn still_current(e: &Engine, rel: &BtreeRel, batch: &IndexBatch) -> Result<bool> {
    Tree::of(e, rel, Xid::INVALID).still_current(batch)
}

impl Cursor {
    /// Copies the matching entries of the next leaf that has some, in scan order, into `out`
    /// (emptied first). `false`: there are no more.
    pub fn next_batch(&mut self, e: &Engine, rel: &BtreeRel, out: &mut IndexBatch) -> Result<bool> {
        self.next_leaf(&Tree::of(e, rel, Xid::INVALID), out)
    }

    /// The same for a transaction that may be serializable.
    pub fn next_batch_watched(
        &mut self,
        e: &Engine,
        sx: Option<&Sx>,
        rel: &BtreeRel,
        out: &mut IndexBatch,
    ) -> Result<bool> {
        self.next_leaf(&Tree::of(e, rel, Xid::INVALID).watched_by(sx), out)
    }
}

/// Removes every entry whose row is `dead`, takes emptied pages out of the tree, and collects
/// blocks that crashes left unused. Others may read and write meanwhile. At most one vacuum of an
/// index at a time.
pub fn bulk_delete(
    e: &Engine,
    rel: &BtreeRel,
    dead: &dyn Fn(RowId) -> bool,
) -> Result<BulkDeleteStats> {
    bulk_delete_paced(e, rel, dead, &mut || Ok(()))
}

/// The same, with a call to `pause` after every leaf, nothing being latched: to sleep, to report
/// progress, or to stop with an error.
pub fn bulk_delete_paced(
    e: &Engine,
    rel: &BtreeRel,
    dead: &dyn Fn(RowId) -> bool,
    pause: &mut dyn FnMut() -> Result<()>,
) -> Result<BulkDeleteStats> {
    Tree::of(e, rel, Xid::INVALID).bulk_delete(dead, pause)
}

/// Checks an index; an empty answer means that it is sound. The caller keeps writers away.
pub fn check(e: &Engine, rel: &BtreeRel) -> Vec<Problem> {
    check_entries(e, rel, &mut |_, _| {})
}

/// The same, and hands every entry, in order, to `visit` (to compare with the heap).
pub fn check_entries(
    e: &Engine,
    rel: &BtreeRel,
    visit: &mut dyn FnMut(&[u8], RowId),
) -> Vec<Problem> {
    Tree::of(e, rel, Xid::INVALID).check(visit)
}
