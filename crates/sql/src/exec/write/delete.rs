//! DELETE.

use super::{Followed, Recheck, Target, counted, invisible, must_not_follow, raw_row};
use crate::error::Result;
use crate::exec::wait::{Queue, RowWait};
use crate::exec::{ExecCx, Node, Step, long};
use crate::types::Datum;
use inkling_storage::heap::{self, RowLock, TupleResult};
use inkling_storage::ids::{RowId, Xid};
use inkling_storage::wait::WaitHandle;

pub struct Delete {
    pub child: Box<dyn Node>,
    pub target: Target,
    pub recheck: Recheck,
    wait: RowWait,
    /// The row to delete, and from where to follow it if it was changed.
    row: Option<RowId>,
    follow: Option<(RowId, Xid)>,
    written: u64,
}

enum Outcome {
    Deleted,
    Skip,
    Wait(WaitHandle),
}

impl Delete {
    pub fn new(child: Box<dyn Node>, target: Target, recheck: Recheck) -> Self {
        let wait = RowWait::default();
        Delete { child, target, recheck, wait, row: None, follow: None, written: 0 }
    }

    fn go_on(&mut self, cx: &mut ExecCx<'_>, mut row: RowId) -> Result<Outcome> {
        let store = *cx.store()?;
        if let Some(handle) = self.wait.poll(&store)? {
            return Ok(Outcome::Wait(handle));
        }
        loop {
            if let Some((next, xmax)) = self.follow {
                let (lock, queue) = (RowLock::Update, Queue::Update);
                let wait = &mut self.wait;
                match self.recheck.follow(cx, wait, next, xmax, lock, queue, true)? {
                    Followed::Wait(h) => return Ok(Outcome::Wait(h)),
                    Followed::Skip => return Ok(Outcome::Skip),
                    Followed::Row(newest) => {
                        cx.raw_of = self.target.table.def.oid;
                        self.follow = None;
                        self.row = Some(newest);
                        row = newest;
                    }
                }
            }
            let heap = &self.target.table.heap;
            store.admits(heap, row)?;
            let result = {
                let mut tx = store.tx.borrow_mut();
                heap::delete(store.engine, &mut tx, heap, row)?
            };
            match result {
                TupleResult::Ok(()) => {
                    self.watch(cx, row)?;
                    self.clean_long(cx, row)?;
                    return Ok(Outcome::Deleted);
                }
                TupleResult::SelfModified => return Ok(Outcome::Skip),
                TupleResult::Invisible => return Err(invisible(&self.target.table)),
                TupleResult::BeingModified(xid) => {
                    let wait = self.wait.begin(&store, heap.rel, row, Queue::Update, xid)?;
                    if let Some(h) = wait {
                        return Ok(Outcome::Wait(h));
                    }
                }
                TupleResult::Updated { next, xmax } => {
                    must_not_follow(&store, false)?;
                    self.follow = Some((next, xmax));
                }
                TupleResult::Deleted => {
                    must_not_follow(&store, true)?;
                    return Ok(Outcome::Skip);
                }
            }
        }
    }

    /// Leaves what referencing rows mean for this one to after the statement.
    fn watch(&self, cx: &mut ExecCx<'_>, row: RowId) -> Result<()> {
        let table = &self.target.table;
        let Some(watch) = table.watch.as_ref().filter(|w| w.concerns_delete()) else {
            return Ok(());
        };
        let raw = raw_row(cx, table, row)?;
        let store = *cx.store()?;
        let mut old = vec![Datum::Null; table.def.columns.len()];
        if let Some(tuple) = raw.tuple() {
            table.load(store.engine, tuple, &watch.columns, &mut old, 0)?;
        }
        cx.raw = raw;
        cx.raw_of = table.def.oid;
        watch.deleted(&mut store.after.borrow_mut(), &old)
    }

    fn clean_long(&self, cx: &mut ExecCx<'_>, row: RowId) -> Result<()> {
        if self.target.table.heap.toast.is_none() {
            return Ok(());
        }
        let raw = raw_row(cx, &self.target.table, row)?;
        let result = match raw.tuple().filter(|t| t.has_external()) {
            None => Ok(()),
            Some(t) => {
                let store = cx.store()?;
                let mut tx = store.tx.borrow_mut();
                long::forget(store.engine, &mut tx, &self.target.table, t.into(), None)
            }
        };
        cx.raw = raw;
        cx.raw_of = self.target.table.def.oid;
        result
    }
}

impl Node for Delete {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            let row = match self.row {
                Some(row) => row,
                None => {
                    match self.child.next(cx)? {
                        Step::Row => {}
                        Step::Done => return Ok(counted(cx, &mut self.written)),
                        wait => return Ok(wait),
                    }
                    let Datum::Tid(row) = *cx.reg(self.target.ctid()) else { continue };
                    self.follow = None;
                    self.row = Some(row);
                    row
                }
            };
            let outcome = self.go_on(cx, row)?;
            if let Outcome::Wait(h) = outcome {
                return Ok(Step::Wait(h));
            }
            self.wait.done(cx.store()?);
            self.row = None;
            self.follow = None;
            if matches!(outcome, Outcome::Deleted) {
                self.written += 1;
                if self.target.give_back(cx)? {
                    return Ok(Step::Row);
                }
            }
            cx.tick()?;
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.row = None;
        self.follow = None;
        self.written = 0;
        self.child.rescan(cx)
    }
}
