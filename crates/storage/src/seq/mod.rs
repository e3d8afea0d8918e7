//! Sequences: numbers that nobody else gets.
//!
//! ```text
//!   page (logged):   last 33 ─────────────────────────────┐  where a crash resumes
//!   memory:          last 1, 32 left   2  3  4 ...        33
//!                         next() ─────>^   no page, no log until the 32 are used up
//! ```
//!
//! # Guarantees
//!
//! - Two calls of [`next`] never give the same value, whatever threads they come from, unless the
//!   sequence cycles or somebody sets it.
//! - After a crash no value comes again whose [`Batch::lsn`] was durable (rules S1 to S3 of
//!   `README.md` here).
//! - A rollback gives nothing back.
//!
//! # What it does not do
//!
//! It takes no relation locks, knows no permissions and no names, and waits for no flush: the
//! caller does, for the position that it is told.

mod page;
#[cfg(test)]
mod tests;

pub use page::{describe, redo};

use crate::buffer::{CriticalSection, Persistence};
use crate::engine::{Engine, LogLevel};
use crate::error::{Result, StorageError};
use crate::ids::{Fork, Lsn, PageId, RelId, Xid};
use crate::page::PageClass;
use crate::txn::Transaction;
use page::SetSeq;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

/// Values logged ahead of those handed out.
pub const LOG_AHEAD: i64 = 32;

/// Where a sequence is: what its page says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqState {
    pub last: i64,
    /// The last value has been handed out; otherwise it is the next one.
    pub called: bool,
}

/// How a sequence goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqParams {
    /// Not zero.
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cycle: bool,
}

/// Values handed out at once: `first`, `first + increment`, ..., `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub first: i64,
    pub last: i64,
    /// Nobody is told any of the values before the log is durable up to here. Invalid: nothing to
    /// wait for.
    pub lsn: Lsn,
    /// This call wrote the record; otherwise an earlier one did.
    pub logged: bool,
}

/// A sequence as a query sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqView {
    pub state: SeqState,
    /// Values that are logged and not handed out yet.
    pub log_cnt: i64,
    /// As [`Batch::lsn`].
    pub lsn: Lsn,
}

/// The position in use. Ahead of it, `left` values are covered by the page.
#[derive(Clone, Copy, Debug)]
struct Position {
    state: SeqState,
    left: i64,
    lsn: Lsn,
}

/// Nothing: not asked for since the start.
type Cell = Arc<Mutex<Option<Position>>>;

/// The positions of all sequences in use.
#[derive(Default)]
pub(crate) struct Sequences {
    cells: RwLock<HashMap<RelId, Cell>>,
}

impl Sequences {
    fn cell(&self, rel: RelId) -> Cell {
        if let Some(cell) = self.cells.read().get(&rel) {
            return Arc::clone(cell);
        }
        Arc::clone(self.cells.write().entry(rel).or_default())
    }

    /// The relation's files are gone.
    pub fn forget(&self, rel: RelId) {
        self.cells.write().remove(&rel);
    }
}

impl std::fmt::Debug for Sequences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sequences({})", self.cells.read().len())
    }
}

/// What a call of [`next`] comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Taken {
    first: i64,
    last: i64,
    /// Values beyond `last` that are covered afterwards.
    left: i64,
    /// What the page has to say before, if it does not cover the values yet.
    ahead: Option<i64>,
}

impl SeqParams {
    /// How many steps lead from `value` to the limit at most, but no more than `wanted`.
    fn room(&self, value: i64, wanted: i64) -> i64 {
        let limit = if self.increment > 0 { self.max } else { self.min };
        let steps = (i128::from(limit) - i128::from(value)) / i128::from(self.increment);
        steps.clamp(0, i128::from(wanted)) as i64
    }

    /// `steps` further on; within the limits if [`Self::room`] said so.
    fn beyond(&self, value: i64, steps: i64) -> i64 {
        let moved = i128::from(value) + i128::from(self.increment) * i128::from(steps);
        i64::try_from(moved).expect("room() keeps steps within the limits")
    }

    /// The value after `value`; `None` at the limit of a sequence that does not cycle.
    fn following(&self, value: i64) -> Option<i64> {
        if self.room(value, 1) == 1 {
            return Some(self.beyond(value, 1));
        }
        let start = if self.increment > 0 { self.min } else { self.max };
        self.cycle.then_some(start)
    }

    /// Takes up to `count` values from a position.
    fn take(&self, from: &Position, count: i64) -> Option<Taken> {
        let covered = from.state.called && from.left >= count;
        if covered && self.room(from.state.last, count) == count {
            return Some(Taken {
                first: self.beyond(from.state.last, 1),
                last: self.beyond(from.state.last, count),
                left: from.left - count,
                ahead: None,
            });
        }
        let first = match from.state.called {
            true => self.following(from.state.last)?,
            false => from.state.last,
        };
        let last = self.beyond(first, self.room(first, count - 1));
        let left = self.room(last, LOG_AHEAD);
        Some(Taken { first, last, left, ahead: Some(self.beyond(last, left)) })
    }
}

fn page_id(rel: RelId) -> PageId {
    PageId::main(rel, 0)
}

fn write(e: &Engine, xid: Xid, rel: RelId, state: SeqState) -> Result<Lsn> {
    let mut section = CriticalSection::begin_sized(e.log(), xid, 1, 0)?;
    let page = section.add_init(e.pool.exclusive(page_id(rel))?, PageClass::Sequence);
    section.apply(page, &SetSeq(state));
    Ok(section.finish().0)
}

fn load(e: &Engine, rel: RelId) -> Result<Position> {
    let id = page_id(rel);
    let guard = e.pool.share(id)?;
    let state = page::read(&guard).map_err(|what| StorageError::corrupt_page(id, what))?;
    // Nothing is covered, so nobody is told a value before a record is written.
    Ok(Position { state, left: 0, lsn: Lsn::INVALID })
}

/// Makes a sequence in a relation that has no page yet, in the name of the transaction that made
/// the relation. If it is unlogged, it also starts from `state` after a crash.
pub fn create(e: &Engine, tx: &mut Transaction, rel: RelId, state: SeqState) -> Result<()> {
    let mut section = CriticalSection::begin_sized(e.log(), tx.xid(e)?, 1, 0)?;
    let page = section.add_init(e.pool.extend(rel, Fork::Main)?, PageClass::Sequence);
    section.apply(page, &SetSeq(state));
    drop(section.finish());
    match e.pool.persistence(rel) {
        Persistence::Unlogged => e.keep_as_initial(rel),
        Persistence::Permanent | Persistence::Temporary => Ok(()),
    }
}

/// Where the sequence is.
pub fn read(e: &Engine, rel: RelId) -> Result<SeqView> {
    let cell = e.seqs.cell(rel);
    let position = *cell.lock();
    let at = match position {
        Some(position) => position,
        None => load(e, rel)?,
    };
    Ok(SeqView { state: at.state, log_cnt: at.left, lsn: at.lsn })
}

/// Takes up to `count` values (at least one); `None`: the limit is reached.
pub fn next(e: &Engine, rel: RelId, params: &SeqParams, count: i64) -> Result<Option<Batch>> {
    assert!(count > 0 && params.increment != 0, "a sequence moves");
    let cell = e.seqs.cell(rel);
    let mut cell = cell.lock();
    let position = match &mut *cell {
        Some(position) => position,
        empty => empty.insert(load(e, rel)?),
    };
    let Some(taken) = params.take(position, count) else { return Ok(None) };
    if let Some(ahead) = taken.ahead {
        let state = SeqState { last: ahead, called: true };
        position.lsn = write(e, Xid::INVALID, rel, state)?;
    }
    position.state = SeqState { last: taken.last, called: true };
    position.left = taken.left;
    let (lsn, logged) = (position.lsn, taken.ahead.is_some());
    Ok(Some(Batch { first: taken.first, last: taken.last, lsn, logged }))
}

/// `setval`: from here on. The position to wait for before anybody is told.
pub fn set(e: &Engine, rel: RelId, state: SeqState) -> Result<Lsn> {
    let cell = e.seqs.cell(rel);
    let mut cell = cell.lock();
    let lsn = write(e, Xid::INVALID, rel, state)?;
    *cell = Some(Position { state, left: 0, lsn });
    Ok(lsn)
}

/// Before a clean stop: the pages say what memory says (S6).
pub(crate) fn settle(e: &Engine) {
    let cells: Vec<(RelId, Cell)> =
        e.seqs.cells.read().iter().map(|(rel, cell)| (*rel, Arc::clone(cell))).collect();
    for (rel, cell) in cells {
        let mut cell = cell.lock();
        let Some(position) = cell.as_mut().filter(|p| p.left > 0) else { continue };
        match write(e, Xid::INVALID, rel, position.state) {
            Ok(lsn) => (position.left, position.lsn) = (0, lsn),
            Err(error) => {
                let message = format!("sequence {rel} will skip {} values: {error}", position.left);
                e.options().log(LogLevel::Warning, &message);
            }
        }
    }
}

/// What is wrong with a sequence's file, in words.
pub fn check(e: &Engine, rel: RelId, params: &SeqParams) -> Result<Vec<String>> {
    let blocks = e.pool.block_count(rel, Fork::Main)?;
    if blocks != 1 {
        return Ok(vec![format!("a sequence has one page, not {blocks}")]);
    }
    let state = match page::read(&*e.pool.share(page_id(rel))?) {
        Ok(state) => state,
        Err(what) => return Ok(vec![what]),
    };
    let mut problems = Vec::new();
    if state.last < params.min || state.last > params.max {
        let (min, max) = (params.min, params.max);
        problems.push(format!("last value {} is not within {min} .. {max}", state.last));
    }
    // The page is where a crash resumes: never behind what was handed out.
    let view = read(e, rel)?;
    let ahead = params.room(view.state.last, view.log_cnt);
    if params.beyond(view.state.last, ahead) != state.last {
        problems.push(format!(
            "the page says {}, but {} was handed out and {} values are logged ahead",
            state.last, view.state.last, view.log_cnt
        ));
    }
    Ok(problems)
}
