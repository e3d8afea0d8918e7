//! The ordered index: a B-link tree (Lehman and Yao) over order-preserving byte strings.
//!
//! What it guarantees
//!
//! - An *entry* is (key bytes, [`RowId`]). Keys compare as unsigned bytes; among equal keys the
//!   row id decides, so no two entries are equal and a million duplicates cost what a
//!   million different keys cost. The SQL layer folds NULLs, descending columns and
//!   collations into the bytes; nothing here knows about types.
//! - Searches latch one page at a time. A split that a search runs into is noticed by the
//!   page's *high key* and stepped over by its *right link*; a deleted or reused page by the
//!   *generation* that every link carries.
//! - Changes are physical and outlive the transaction that made them: an aborted insert leaves
//!   its entry to vacuum. A crash at any point leaves a tree that every operation accepts; the next
//!   writer that meets a split without its parent entry completes it.
//!
//! ```text
//!   meta (block 0) -> root, fast root, free pages
//!
//!   level 1         [ -inf->3 | "m"->4 ]
//!                      /           \
//!   level 0     [a c k | <m] <-> [m q z | end]      "<m" is the high key: every entry is below it
//! ```
//!
//! What it does not do: it never looks at the heap (whether an entry's row is visible is asked
//! through [`UniqueCheck`] or by the caller), never waits for a transaction and never holds a
//! latch when it returns.
//!
//! Start with the README of this directory; the layout of a page has its one home in `node`.

mod api;
#[cfg(test)]
mod bench_tests;
mod build;
mod check;
#[cfg(test)]
mod crash_tests;
mod descend;
mod edit;
#[cfg(test)]
mod engine_tests;
mod insert;
mod node;
mod ops;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod race_tests;
mod scan;
mod space;
mod split;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tree_tests;
mod unlink;
mod vacuum;
mod watch;

pub use api::{
    build, bulk_delete, bulk_delete_paced, check, check_entries, create, create_as, insert,
    insert_watched, lookup, lookup_watched, still_current,
};
pub use build::Builder;
pub use node::dump as dump_page;
pub use ops::{describe as describe_ops, redo};
pub use scan::Cursor;

use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Lsn, PageId, RelId, RowId, Xid};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The longest key, in bytes. Three entries of this size and a high key fit a page's split.
pub const MAX_KEY: usize = 2700;
/// How full a page is left when keys arrive in ascending order, in percent.
pub const DEFAULT_FILLFACTOR: u8 = 90;

/// One index, as the functions of this module want it.
///
/// It remembers where the tree's top page was seen, so that most descents need not read the meta
/// page; the memory is checked against the page itself and never needed for correctness.
#[derive(Debug)]
pub struct BtreeRel {
    pub rel: RelId,
    /// How full pages are left behind by ascending inserts and by the bulk load, in percent.
    pub fillfactor: u8,
    /// Serializable transactions note what they look up in it and check where they insert.
    pub watched: bool,
    /// `generation << 32 | block` of the top page seen last; 0 = not yet.
    top: AtomicU64,
    top_level: AtomicU32,
}

impl BtreeRel {
    pub fn new(rel: RelId) -> Self {
        Self::with_fillfactor(rel, DEFAULT_FILLFACTOR)
    }

    pub fn with_fillfactor(rel: RelId, fillfactor: u8) -> Self {
        let fillfactor = fillfactor.clamp(10, 100);
        let (top, top_level) = (AtomicU64::new(0), AtomicU32::new(0));
        BtreeRel { rel, fillfactor, watched: false, top, top_level }
    }

    /// An index whose look-ups matter to serializable transactions.
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }
}

impl Clone for BtreeRel {
    fn clone(&self) -> Self {
        let copy = BtreeRel::with_fillfactor(self.rel, self.fillfactor);
        BtreeRel { watched: self.watched, ..copy }
    }
}

/// What became of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertOutcome {
    /// The entry is in the index.
    Done,
    /// Nothing was inserted: whether there is a duplicate depends on how this transaction ends.
    /// Wait for it, then insert again.
    WaitFor(Xid),
    /// Nothing was inserted: this row has the same key and counts.
    Duplicate(RowId),
}

/// What the heap says about a row whose index key equals the one being inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UniqueVerdict {
    /// No version of the row counts as a duplicate (deleted, or its inserter aborted).
    Dead,
    /// A live duplicate.
    Conflict,
    /// Its inserter or deleter is still running.
    WaitFor(Xid),
    /// Dead, and nobody can ever see any version behind this entry: the entry may go.
    DeadToAll,
}

/// The heap's side of a unique check. Called with a leaf latched: it may read heap pages, and
/// must not touch the index, wait, or change anything.
pub trait UniqueCheck {
    fn check(&mut self, row: RowId) -> Result<UniqueVerdict>;
}

impl<F: FnMut(RowId) -> Result<UniqueVerdict>> UniqueCheck for F {
    fn check(&mut self, row: RowId) -> Result<UniqueVerdict> {
        self(row)
    }
}

/// Which way a cursor moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
    Backward,
}

/// Matching entries of one leaf, copied out, in scan order.
#[derive(Default, Debug)]
pub struct IndexBatch {
    rows: Vec<RowId>,
    /// End of each key in `bytes`; empty when keys are not wanted.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    want_keys: bool,
    leaf: Option<(PageId, Lsn)>,
}

impl IndexBatch {
    /// A batch that receives row ids only.
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch that receives the keys as well (index-only scans, re-checks).
    pub fn with_keys() -> Self {
        IndexBatch { want_keys: true, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn rows(&self) -> &[RowId] {
        &self.rows
    }

    /// The key of entry `i`, if keys were asked for.
    pub fn key(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        Some(&self.bytes[start..end])
    }

    /// The leaf that the entries (the last of them, after a lookup) came from, and its LSN then.
    pub fn leaf(&self) -> Option<(PageId, Lsn)> {
        self.leaf
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.ends.clear();
        self.bytes.clear();
        self.leaf = None;
    }

    fn push(&mut self, key: &[u8], row: RowId) {
        self.rows.push(row);
        if self.want_keys {
            self.bytes.extend_from_slice(key);
            self.ends.push(self.bytes.len() as u32);
        }
    }
}

/// What a vacuum of the index did and found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct BulkDeleteStats {
    /// Entries left.
    pub entries: u64,
    /// Entries removed.
    pub removed: u64,
    /// Leaf pages visited.
    pub leaves: u64,
    /// Pages taken out of the tree by this run.
    pub pages_deleted: u64,
    /// Pages that wait for reuse, afterwards.
    pub pages_free: u64,
    /// Blocks of the file, afterwards.
    pub pages_total: u64,
}

/// Something that `check` found wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub block: BlockNo,
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {}: {}", self.block, self.what)
    }
}

fn key_too_long(len: usize) -> StorageError {
    StorageError::Limit { what: format!("index row size {len} exceeds btree maximum {MAX_KEY}") }
}
