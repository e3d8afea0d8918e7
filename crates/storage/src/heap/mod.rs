//! The heap: tables as unordered pages of row versions.
//!
//! A row version (a *tuple*) carries the transaction that inserted it (`xmin`) and the one that
//! deleted or replaced it (`xmax`). An update writes a new version and chains the old one to it;
//! which version a reader sees is decided by its snapshot (`visibility`), and versions that
//! nobody can see any more are removed by later writers of the page (`prune`) and by `vacuum`.
//!
//! ```text
//!   insert ----.                                   .---- scan_page, fetch, fetch_hot
//!   update ----+--> plan under the latch --> ops --+--> page --> private copy, then decide
//!   delete ----'    (visibility, room)        |
//!                                             `--> log record (the same ops, replayed by redo)
//! ```
//!
//! - `page` and `tuple`: the bytes, bounds-checked;
//! - `ops`: every change of a page as a value that is applied, logged and replayed;
//! - `visibility`: the four questions about a tuple; `page_visibility`: the first of them, for a
//!   whole page; `hints`: what may be kept of the answers; `write_back`: what goes to disk;
//! - README.md: the numbered rules.
//!
//! The heap does not know columns, types or indexes: the caller encodes rows, says whether an
//! update may be heap-only, and maintains the indexes.

mod check;
pub mod codec;
mod counters;
pub mod dump;
mod hints;
mod lockrow;
pub mod ops;
pub mod page;
mod page_visibility;
pub mod prune;
mod read;
mod rowlock;
pub mod space;
mod state;
pub mod toast;
mod tuple;
mod update;
mod vacuum;
pub mod visibility;
pub mod vmap;
mod watch;
mod write;
mod write_back;

pub use check::{Problem, check, check_block};
pub use counters::{Level, VisStats, VisTotals};
pub use hints::{DISPOSABLE_PATH, HintPolicy};
pub use lockrow::lock_row;
pub use page::{BadPage, MAX_ATTRS, MAX_TUPLE};
pub use read::{
    BuildItem, Newest, ReadCx, count_lines, count_page, fetch, fetch_hot, follow_update_chain,
    page_lsn, scan_for_build, scan_page, unique_verdict,
};
pub use rowlock::RowLocks;
pub use state::{HeapCounters, HeapState};
pub use tuple::{PageScan, ScanItem, TupleBody, TupleBuf, TupleRef};
pub use update::{UpdateOpts, delete, update, withdraw};
pub use vacuum::{DeadRows, VacuumOpts, VacuumStats, vacuum};
pub use visibility::VisState;
pub use write::{insert, insert_many};
pub(crate) use write_back::prepare_copy;

use crate::buffer::OpError;
use crate::ids::{RelId, RowId, Xid};
use crate::page::Page;

/// Replays a block's part of a record on a page of a table.
pub fn redo(ops: &[u8], page: &mut Page) -> Result<(), OpError> {
    Ok(ops::redo(ops, page)?)
}

/// ... on a page of a free-space map.
pub fn redo_fsm(ops: &[u8], page: &mut Page) -> Result<(), OpError> {
    Ok(space::redo(ops, page)?)
}

/// ... on a page of a visibility map.
pub fn redo_vm(ops: &[u8], page: &mut Page) -> Result<(), OpError> {
    Ok(vmap::redo(ops, page)?)
}

/// What the heap needs to know about a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapRel {
    pub rel: RelId,
    /// Where values that are too long for a row go; a heap of its own without indexes.
    pub toast: Option<RelId>,
    /// Percentage of a page that inserts may fill; the rest is for updates.
    pub fillfactor: u8,
    /// Serializable transactions note what they read of it and check what they write.
    pub watched: bool,
}

impl HeapRel {
    pub const fn new(rel: RelId) -> Self {
        HeapRel { rel, toast: None, fillfactor: 100, watched: false }
    }

    pub const fn with_toast(mut self, toast: RelId) -> Self {
        self.toast = Some(toast);
        self
    }

    /// A table whose reads matter to serializable transactions.
    pub const fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    pub const fn with_fillfactor(mut self, percent: u8) -> Self {
        self.fillfactor = percent;
        self
    }
}

/// How an insert is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsertOpts {
    /// Rows are born frozen (COPY ... FREEZE); refused unless this transaction created the
    /// table's file, because otherwise older snapshots would see them.
    pub freeze: bool,
}

/// The four strengths of a row lock, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RowLock {
    KeyShare = 0,
    Share = 1,
    NoKeyUpdate = 2,
    Update = 3,
}

impl RowLock {
    /// Whether two different transactions cannot hold these on one row at a time.
    pub const fn conflicts(self, other: RowLock) -> bool {
        use RowLock::*;
        match (self, other) {
            (KeyShare, Update) | (Update, KeyShare) => true,
            (KeyShare, _) | (_, KeyShare) => false,
            (Share, Share) => false,
            _ => true,
        }
    }

    pub(crate) const fn from_bits(bits: u16) -> Self {
        match bits & 3 {
            0 => RowLock::KeyShare,
            1 => RowLock::Share,
            2 => RowLock::NoKeyUpdate,
            _ => RowLock::Update,
        }
    }
}

/// The answer to "may I write this row now?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TupleResult<T> {
    /// Done.
    Ok(T),
    /// Not there for this command: inserted later, or by a transaction that did not commit, or
    /// deleted by an earlier command of this transaction.
    Invisible,
    /// This very command (or one it fired) has modified it already.
    SelfModified,
    /// Another transaction holds it; wait for its end, then ask again.
    BeingModified(Xid),
    /// Replaced by a committed transaction.
    Updated { next: RowId, xmax: Xid },
    /// Deleted by a committed transaction.
    Deleted,
}

impl<T> TupleResult<T> {
    pub fn is_ok(&self) -> bool {
        matches!(self, TupleResult::Ok(_))
    }

    /// The same verdict with another success value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> TupleResult<U> {
        match self {
            TupleResult::Ok(v) => TupleResult::Ok(f(v)),
            TupleResult::Invisible => TupleResult::Invisible,
            TupleResult::SelfModified => TupleResult::SelfModified,
            TupleResult::BeingModified(xid) => TupleResult::BeingModified(xid),
            TupleResult::Updated { next, xmax } => TupleResult::Updated { next, xmax },
            TupleResult::Deleted => TupleResult::Deleted,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
