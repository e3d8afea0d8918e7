//! UPDATE.
//!
//! The new version is made from the old one's bytes and the assigned columns; the others are
//! copied undecoded. It may be heap-only when no column that an index uses got another value.

use super::{
    Entries, Followed, IndexWork, Recheck, Target, counted, duplicate, invisible, must_not_follow,
    raw_row,
};
use crate::error::{Result, SqlError};
use crate::exec::expr::Ex;
use crate::exec::foreign::Change;
use crate::exec::table::TableExec;
use crate::exec::wait::{Queue, RowWait};
use crate::exec::{ExecCx, Node, Step, Store, long};
use crate::row::EncodedRow;
use crate::types::Datum;
use inkling_storage::heap::{self, RowLock, TupleBuf, TupleResult, UpdateOpts};
use inkling_storage::ids::RowId;
use inkling_storage::txn::OwnXid;
use inkling_storage::wait::WaitHandle;

/// Writes new versions of rows; shared by UPDATE and ON CONFLICT DO UPDATE.
pub struct Updater {
    pub target: Target,
    /// By column position, ascending.
    pub assignments: Vec<(usize, Ex)>,
    /// Assigned columns that an index uses.
    indexed: Vec<usize>,
    /// Whether one of them is a key of a unique index that a foreign key could refer to.
    key_columns: Vec<usize>,
    row: RowId,
    phase: Phase,
    changes: Vec<(usize, Datum)>,
    encoded: EncodedRow,
    spare: EncodedRow,
    /// Columns whose values differ, of those that an index uses.
    changed: Vec<usize>,
    work: IndexWork,
    wait: RowWait,
    values: Vec<Datum>,
    /// What the foreign keys of the table want to know of the row being written.
    keys: Option<Change>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Compute,
    Write,
    /// Another transaction changed the row: its newest version is being waited for.
    Follow(RowId, inkling_storage::ids::Xid),
    Index,
}

pub enum Written {
    Done,
    /// Not to be updated after all.
    Skip,
    Wait(WaitHandle),
}

impl Updater {
    pub fn new(target: Target, assignments: Vec<(usize, Ex)>) -> Self {
        let assigned = assignments.iter().map(|a| a.0);
        let indexed: Vec<usize> = assigned.filter(|c| target.table.indexed[*c]).collect();
        let is_key = |c: &usize| {
            target.table.indexes.iter().any(|i| {
                let keys = &i.def.columns[..i.def.key_columns];
                i.def.unique
                    && i.predicate.is_none()
                    && keys.iter().any(|k| k.attnum == *c as i16 + 1)
            })
        };
        let key_columns = indexed.iter().copied().filter(|c| is_key(c)).collect();
        Updater {
            target,
            assignments,
            indexed,
            key_columns,
            row: RowId::INVALID,
            phase: Phase::Compute,
            changes: Vec::new(),
            encoded: EncodedRow::default(),
            spare: EncodedRow::default(),
            changed: Vec::new(),
            work: IndexWork::default(),
            wait: RowWait::default(),
            values: Vec::new(),
            keys: None,
        }
    }

    /// The row at `row` is in the registers and shall be updated.
    pub fn begin(&mut self, row: RowId) {
        self.row = row;
        self.phase = Phase::Compute;
    }

    pub fn cancel(&mut self) {
        self.phase = Phase::Compute;
        self.work.waiting.cancel();
    }

    /// Goes on until the row is written or somebody must be waited for. `recheck` is for rows
    /// that another transaction has changed meanwhile; without it the row is locked already.
    pub fn go_on(
        &mut self,
        cx: &mut ExecCx<'_>,
        mut recheck: Option<&mut Recheck>,
    ) -> Result<Written> {
        let store = *cx.store()?;
        if let Some(handle) = self.wait.poll(&store)? {
            return Ok(Written::Wait(handle));
        }
        loop {
            match self.phase {
                Phase::Compute => {
                    self.compute(cx)?;
                    self.phase = Phase::Write;
                }
                Phase::Write => {
                    if let Some(written) = self.write(cx, recheck.is_some())? {
                        return Ok(written);
                    }
                }
                Phase::Follow(next, xmax) => {
                    let Some(recheck) = recheck.as_deref_mut() else {
                        return Err(SqlError::internal("a locked row was changed"));
                    };
                    let (lock, queue) = self.strength();
                    let wait = &mut self.wait;
                    match recheck.follow(cx, wait, next, xmax, lock, queue, true)? {
                        Followed::Wait(h) => return Ok(Written::Wait(h)),
                        Followed::Skip => {
                            self.wait.done(&store);
                            return Ok(Written::Skip);
                        }
                        Followed::Row(row) => {
                            cx.raw_of = self.target.table.def.oid;
                            self.row = row;
                            self.phase = Phase::Compute;
                        }
                    }
                }
                Phase::Index => {
                    if let Some(written) = self.enter(cx)? {
                        return Ok(written);
                    }
                }
            }
        }
    }

    fn strength(&self) -> (RowLock, Queue) {
        match self.key_columns.iter().any(|c| self.changed.contains(c)) {
            true => (RowLock::Update, Queue::Update),
            false => (RowLock::NoKeyUpdate, Queue::NoKeyUpdate),
        }
    }

    /// Evaluates the assignments and encodes the new version.
    fn compute(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.changes.clear();
        for (column, ex) in &self.assignments {
            let value = ex.eval(cx)?;
            self.changes.push((*column, value));
        }
        let raw = raw_row(cx, &self.target.table, self.row)?;
        let result = self.make(cx, &raw);
        cx.raw = raw;
        cx.raw_of = self.target.table.def.oid;
        result
    }

    fn make(&mut self, cx: &mut ExecCx<'_>, raw: &TupleBuf) -> Result<()> {
        let table = self.target.table.clone();
        let old = raw.tuple().ok_or_else(|| invisible(&table))?;
        let store = *cx.store()?;
        self.changed.clear();
        if !self.indexed.is_empty() {
            self.values.resize(table.def.columns.len(), Datum::Null);
            table.load(store.engine, old, &self.indexed, &mut self.values, 0)?;
            for (column, value) in &self.changes {
                if self.indexed.contains(column) && self.values[*column] != *value {
                    self.changed.push(*column);
                }
            }
        }
        table.codec.splice(old, &self.changes, &mut self.encoded)?;
        self.keys = self.watch(&store, &table, raw)?;
        self.check(cx)?;
        let mut tx = store.tx.borrow_mut();
        long::shorten(store.engine, &mut tx, &table, &mut self.encoded, &mut self.spare)
    }

    /// The values that foreign keys compare, before and after.
    fn watch(
        &self,
        store: &Store<'_>,
        table: &TableExec,
        raw: &TupleBuf,
    ) -> Result<Option<Change>> {
        let Some(watch) = &table.watch else { return Ok(None) };
        let own = store.tx.borrow().is_own(raw.xmin()) == OwnXid::Live;
        if !watch.concerns_update(self.assignments.iter().map(|a| a.0), own) {
            return Ok(None);
        }
        let width = table.def.columns.len();
        let (mut old, mut new) = (vec![Datum::Null; width], vec![Datum::Null; width]);
        if let Some(tuple) = raw.tuple() {
            table.load(store.engine, tuple, &watch.columns, &mut old, 0)?;
        }
        table.load(store.engine, self.encoded.view(), &watch.columns, &mut new, 0)?;
        Ok(Some(Change { old, new, own }))
    }

    /// The new version and its entries are there.
    fn written(&mut self, store: &Store<'_>, new: RowId) -> Result<()> {
        match (&self.target.table.watch, self.keys.take()) {
            (Some(watch), Some(change)) => {
                watch.updated(&mut store.after.borrow_mut(), new, &change)
            }
            _ => Ok(()),
        }
    }

    /// Exchanges the assigned columns' registers with the new values (and back).
    fn exchange(&mut self, cx: &mut ExecCx<'_>) {
        let base = self.target.base as usize;
        for (column, value) in &mut self.changes {
            std::mem::swap(&mut cx.regs[base + *column], value);
        }
    }

    /// NOT NULL and CHECK of the new version.
    fn check(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        let def = &self.target.table.def;
        let null = |c: &(usize, Datum)| c.1.is_null() && def.columns[c.0].not_null;
        if self.target.checks.is_empty() && !self.changes.iter().any(null) {
            return Ok(());
        }
        self.exchange(cx);
        let store = *cx.store()?;
        let table = self.target.table.clone();
        let encoded = &self.encoded;
        let row = || table.values(store.engine, encoded.view());
        let assigned = self.assignments.iter().map(|a| a.0);
        let result = self
            .target
            .check_nulls(cx, assigned, &row)
            .and_then(|()| self.target.check_conditions(cx, &self.target.checks, &row));
        self.exchange(cx);
        result
    }

    fn write(&mut self, cx: &mut ExecCx<'_>, may_follow: bool) -> Result<Option<Written>> {
        let store = *cx.store()?;
        let table = &self.target.table;
        let (lock, queue) = self.strength();
        store.admits(&table.heap, self.row)?;
        let opts =
            UpdateOpts { hot_ok: self.changed.is_empty(), key_change: lock == RowLock::Update };
        let result = {
            let mut tx = store.tx.borrow_mut();
            let body = self.encoded.body();
            heap::update(store.engine, &mut tx, &table.heap, self.row, &body, opts)?
        };
        match result {
            TupleResult::Ok((new, hot)) => {
                self.wait.done(&store);
                self.clean_long(cx)?;
                self.work.start(new);
                if hot || table.indexes.is_empty() {
                    self.written(&store, new)?;
                    self.show(cx, new);
                    return Ok(Some(Written::Done));
                }
                self.values = table.values(store.engine, self.encoded.view())?;
                self.phase = Phase::Index;
                Ok(None)
            }
            TupleResult::SelfModified => {
                self.wait.done(&store);
                Ok(Some(Written::Skip))
            }
            TupleResult::Invisible => Err(invisible(table)),
            TupleResult::BeingModified(xid) => {
                let handle = self.wait.begin(&store, table.heap.rel, self.row, queue, xid)?;
                Ok(handle.map(Written::Wait))
            }
            TupleResult::Updated { next, xmax } => {
                must_not_follow(&store, false)?;
                if !may_follow {
                    return Err(SqlError::internal("a locked row was changed"));
                }
                self.phase = Phase::Follow(next, xmax);
                Ok(None)
            }
            TupleResult::Deleted => {
                must_not_follow(&store, true)?;
                self.wait.done(&store);
                Ok(Some(Written::Skip))
            }
        }
    }

    /// Long values of the old version that the new one does not share.
    fn clean_long(&self, cx: &ExecCx<'_>) -> Result<()> {
        let Some(old) = cx.raw.tuple().filter(|t| t.has_external()) else { return Ok(()) };
        let store = cx.store()?;
        let mut tx = store.tx.borrow_mut();
        let new = Some(self.encoded.view());
        long::forget(store.engine, &mut tx, &self.target.table, old.into(), new)
    }

    /// Lets RETURNING see the new version.
    fn show(&mut self, cx: &mut ExecCx<'_>, new: RowId) {
        self.exchange(cx);
        let ctid = self.target.ctid() as usize;
        cx.regs[ctid] = Datum::Tid(new);
    }

    fn enter(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Written>> {
        let store = *cx.store()?;
        let table = self.target.table.clone();
        let changed = &self.changed;
        // An index whose columns kept their values cannot meet a new duplicate.
        let unique = |i: usize| table.indexes[i].uses.iter().any(|c| changed.contains(c));
        let key = &mut self.target.key;
        match self.work.go_on(&store, cx, &table, &self.values, &unique, key)? {
            Entries::Wait(h) => Ok(Some(Written::Wait(h))),
            Entries::Duplicate(i) => Err(duplicate(cx, &table, i, &self.values)),
            Entries::Done => {
                self.phase = Phase::Compute;
                let new = self.work.row;
                self.written(&store, new)?;
                self.show(cx, new);
                Ok(Some(Written::Done))
            }
        }
    }
}

pub struct Update {
    pub child: Box<dyn Node>,
    pub updater: Updater,
    pub recheck: Recheck,
    pending: bool,
    written: u64,
}

impl Update {
    pub fn new(child: Box<dyn Node>, updater: Updater, recheck: Recheck) -> Self {
        Update { child, updater, recheck, pending: false, written: 0 }
    }
}

impl Node for Update {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            if !self.pending {
                match self.child.next(cx)? {
                    Step::Row => {}
                    Step::Done => return Ok(counted(cx, &mut self.written)),
                    wait => return Ok(wait),
                }
                let ctid = self.updater.target.ctid();
                let Datum::Tid(row) = *cx.reg(ctid) else { continue };
                self.updater.begin(row);
                self.pending = true;
            }
            match self.updater.go_on(cx, Some(&mut self.recheck))? {
                Written::Wait(h) => return Ok(Step::Wait(h)),
                Written::Skip => self.pending = false,
                Written::Done => {
                    self.pending = false;
                    self.written += 1;
                    if self.updater.target.give_back(cx)? {
                        return Ok(Step::Row);
                    }
                    cx.tick()?;
                }
            }
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.pending = false;
        self.written = 0;
        self.updater.cancel();
        self.child.rescan(cx)
    }
}
