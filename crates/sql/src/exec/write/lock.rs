//! SELECT ... FOR UPDATE and its weaker kin: locks each row that comes by.

use super::{Followed, Recheck, must_not_follow, row_locked, strength};
use crate::analyze::bound::{LockStrength, LockWaitPolicy};
use crate::error::{Result, State};
use crate::exec::wait::RowWait;
use crate::exec::{ExecCx, Node, Reg, Step, Store};
use crate::types::Datum;
use inkling_storage::heap::{self, TupleResult};
use inkling_storage::ids::{RowId, Xid};
use inkling_storage::wait::WaitHandle;

/// One table whose rows are locked.
pub struct Mark {
    pub ctid: Reg,
    pub strength: LockStrength,
    pub policy: LockWaitPolicy,
    pub recheck: Recheck,
}

pub struct LockRows {
    pub child: Box<dyn Node>,
    pub marks: Vec<Mark>,
    /// The mark that is being locked for the current row.
    at: Option<usize>,
    row: Option<RowId>,
    follow: Option<(RowId, Xid)>,
    wait: RowWait,
}

enum Outcome {
    Locked,
    Skip,
    Wait(WaitHandle),
}

impl LockRows {
    pub fn new(child: Box<dyn Node>, marks: Vec<Mark>) -> Self {
        let wait = RowWait::default();
        LockRows { child, marks, at: None, row: None, follow: None, wait }
    }

    fn lock(&mut self, cx: &mut ExecCx<'_>, at: usize) -> Result<Outcome> {
        let store = *cx.store()?;
        if let Some(handle) = self.wait.poll(&store)? {
            return Ok(Outcome::Wait(handle));
        }
        let mark = &mut self.marks[at];
        let mut row = match (self.row, cx.reg(mark.ctid)) {
            (Some(row), _) => row,
            (None, Datum::Tid(row)) => *row,
            // The nullable side of an outer join without a row.
            (None, _) => return Ok(Outcome::Locked),
        };
        let (lock, queue) = strength(mark.strength);
        let block = mark.policy == LockWaitPolicy::Block;
        loop {
            if let Some((next, xmax)) = self.follow {
                let wait = &mut self.wait;
                let followed = mark.recheck.follow(cx, wait, next, xmax, lock, queue, block);
                match followed {
                    Err(e)
                        if mark.policy == LockWaitPolicy::SkipLocked
                            && e.state == State::LOCK_NOT_AVAILABLE =>
                    {
                        return Ok(Outcome::Skip);
                    }
                    Err(e) => return Err(e),
                    Ok(Followed::Wait(h)) => return Ok(Outcome::Wait(h)),
                    Ok(Followed::Skip) => return Ok(Outcome::Skip),
                    Ok(Followed::Row(newest)) => {
                        self.follow = None;
                        row = newest;
                    }
                }
            }
            self.row = Some(row);
            let heap = mark.recheck.load.table.heap;
            let result = {
                let mut tx = store.tx.borrow_mut();
                heap::lock_row(store.engine, &mut tx, &heap, row, lock)?
            };
            match result {
                TupleResult::Ok(()) => return Ok(Outcome::Locked),
                // Changed by this command: not to be looked at again.
                TupleResult::SelfModified | TupleResult::Invisible => return Ok(Outcome::Skip),
                TupleResult::BeingModified(xid) => {
                    if let Some(outcome) = blocked(mark, &mut self.wait, &store, row, xid)? {
                        return Ok(outcome);
                    }
                }
                TupleResult::Updated { next, xmax } => {
                    must_not_follow(&store, false)?;
                    self.follow = Some((next, xmax));
                }
                TupleResult::Deleted => {
                    // PostgreSQL speaks of an update here, whatever it was.
                    must_not_follow(&store, false)?;
                    return Ok(Outcome::Skip);
                }
            }
        }
    }
}

/// Somebody holds the row: waits, skips or refuses, as the statement says.
fn blocked(
    mark: &Mark,
    wait: &mut RowWait,
    store: &Store<'_>,
    row: RowId,
    xid: Xid,
) -> Result<Option<Outcome>> {
    let table = &mark.recheck.load.table;
    match mark.policy {
        LockWaitPolicy::SkipLocked => Ok(Some(Outcome::Skip)),
        LockWaitPolicy::NoWait => Err(row_locked(table)),
        LockWaitPolicy::Block => {
            let (_, queue) = strength(mark.strength);
            let handle = wait.begin(store, table.heap.rel, row, queue, xid)?;
            Ok(handle.map(Outcome::Wait))
        }
    }
}

impl Node for LockRows {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            if self.at.is_none() {
                match self.child.next(cx)? {
                    Step::Row => self.at = Some(0),
                    other => return Ok(other),
                }
            }
            while let Some(at) = self.at {
                if at == self.marks.len() {
                    self.at = None;
                    return Ok(Step::Row);
                }
                let outcome = self.lock(cx, at)?;
                if let Outcome::Wait(h) = outcome {
                    return Ok(Step::Wait(h));
                }
                self.wait.done(cx.store()?);
                self.row = None;
                self.follow = None;
                self.at = match outcome {
                    Outcome::Locked => Some(at + 1),
                    _ => None,
                };
            }
            cx.tick()?;
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.at = None;
        self.row = None;
        self.follow = None;
        self.child.rescan(cx)
    }
}
