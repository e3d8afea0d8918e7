//! INSERT.

use super::conflict::{Conflict, Found};
use super::{Entries, IndexWork, Target, counted, duplicate, encode};
use crate::error::Result;
use crate::exec::expr::Ex;
use crate::exec::{ExecCx, Node, Step};
use crate::row::EncodedRow;
use crate::types::Datum;
use inkling_storage::heap::{self, InsertOpts};
use inkling_storage::wait::WaitHandle;

pub struct Insert {
    pub child: Box<dyn Node>,
    pub target: Target,
    /// The value of each column that has one, by position; the others are NULL.
    pub values: Vec<(usize, Ex)>,
    pub conflict: Option<Conflict>,
    encoded: EncodedRow,
    spare: EncodedRow,
    phase: Phase,
    work: IndexWork,
    written: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next source row.
    Next,
    /// The new row is in the registers and encoded: look for conflicts, then write it.
    Write,
    /// It is in the heap: index entries.
    Index,
    /// ON CONFLICT DO UPDATE of an existing row is under way.
    Update,
}

enum Outcome {
    Written,
    Skipped,
    Wait(WaitHandle),
}

impl Insert {
    pub fn new(
        child: Box<dyn Node>,
        target: Target,
        values: Vec<(usize, Ex)>,
        conflict: Option<Conflict>,
    ) -> Self {
        Insert {
            child,
            target,
            values,
            conflict,
            encoded: EncodedRow::default(),
            spare: EncodedRow::default(),
            phase: Phase::Next,
            work: IndexWork::default(),
            written: 0,
        }
    }

    /// Computes and checks the row that the source's current row gives.
    fn prepare(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        let base = self.target.base as usize;
        let width = self.target.table.def.columns.len();
        let mut values = self.values.iter().peekable();
        for i in 0..width {
            let value = match values.next_if(|v| v.0 == i) {
                Some((_, ex)) => ex.eval(cx)?,
                None => Datum::Null,
            };
            cx.regs[base + i] = value;
        }
        let row = self.target.block(cx).to_vec_if(!self.target.checks.is_empty());
        let whole = |cx: &ExecCx<'_>| self.target.block(cx).to_vec();
        {
            let shown = &*cx;
            self.target.check_nulls(shown, 0..width, &|| Ok(whole(shown)))?;
        }
        if let Some(row) = row {
            self.target.check_conditions(cx, &self.target.checks, &|| Ok(row.clone()))?;
        }
        let store = cx.store()?;
        encode(store, &self.target.table, self.target.block(cx), &mut self.encoded, &mut self.spare)
    }

    fn write(&mut self, cx: &mut ExecCx<'_>) -> Result<Outcome> {
        loop {
            match self.phase {
                Phase::Next | Phase::Write => {
                    if let Some(outcome) = self.place(cx)? {
                        return Ok(outcome);
                    }
                }
                Phase::Index => {
                    if let Some(outcome) = self.enter(cx)? {
                        return Ok(outcome);
                    }
                }
                Phase::Update => {
                    let Some(conflict) = &mut self.conflict else { return Ok(Outcome::Skipped) };
                    match conflict.go_on(cx, &self.target)? {
                        Found::Wait(h) => return Ok(Outcome::Wait(h)),
                        Found::Updated => return Ok(Outcome::Written),
                        Found::Skip => return Ok(Outcome::Skipped),
                        Found::Nothing => self.phase = Phase::Write,
                    }
                }
            }
        }
    }

    /// Looks for a conflicting row, then puts the new one into the heap.
    fn place(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Outcome>> {
        if let Some(conflict) = &mut self.conflict {
            match conflict.look(cx, &self.target)? {
                Found::Nothing => {}
                Found::Wait(h) => return Ok(Some(Outcome::Wait(h))),
                Found::Skip => return Ok(Some(Outcome::Skipped)),
                Found::Updated => {
                    self.phase = Phase::Update;
                    return Ok(None);
                }
            }
        }
        let store = cx.store()?;
        let row = {
            let mut tx = store.tx.borrow_mut();
            let (heap, body) = (&self.target.table.heap, self.encoded.body());
            heap::insert(store.engine, &mut tx, heap, &body, InsertOpts::default())?
        };
        self.work.start(row);
        self.phase = Phase::Index;
        Ok(None)
    }

    fn enter(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Outcome>> {
        let store = *cx.store()?;
        let table = self.target.table.clone();
        let block = self.target.block(cx);
        let key = &mut self.target.key;
        let entries = self.work.go_on(&store, cx, &table, block, &|_| true, key)?;
        match (entries, &self.conflict) {
            (Entries::Done, _) => {
                if let Some(watch) = &table.watch {
                    watch.inserted(&mut store.after.borrow_mut(), self.work.row, block)?;
                }
                Ok(Some(Outcome::Written))
            }
            (Entries::Wait(h), None) => Ok(Some(Outcome::Wait(h))),
            (Entries::Duplicate(i), None) => Err(duplicate(cx, &table, i, block)),
            (Entries::Duplicate(i), Some(c)) if !c.arbitrates(i) => {
                Err(duplicate(cx, &table, i, block))
            }
            // Somebody was faster: take the row back and look for theirs.
            (_, Some(_)) => {
                self.work.waiting.cancel();
                let mut tx = store.tx.borrow_mut();
                heap::withdraw(store.engine, &mut tx, &table.heap, self.work.row)?;
                self.phase = Phase::Write;
                Ok(None)
            }
        }
    }
}

trait ToVecIf {
    fn to_vec_if(&self, wanted: bool) -> Option<Vec<Datum>>;
}

impl ToVecIf for [Datum] {
    fn to_vec_if(&self, wanted: bool) -> Option<Vec<Datum>> {
        wanted.then(|| self.to_vec())
    }
}

impl Node for Insert {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            if self.phase == Phase::Next {
                match self.child.next(cx)? {
                    Step::Row => {}
                    Step::Done => return Ok(counted(cx, &mut self.written)),
                    wait => return Ok(wait),
                }
                self.prepare(cx)?;
                self.phase = Phase::Write;
            }
            let updated = self.phase == Phase::Update;
            let outcome = self.write(cx)?;
            let updated = updated || self.phase == Phase::Update;
            match outcome {
                Outcome::Wait(h) => return Ok(Step::Wait(h)),
                Outcome::Skipped => self.phase = Phase::Next,
                Outcome::Written => {
                    self.phase = Phase::Next;
                    self.written += 1;
                    if updated {
                        if let Some(c) = &self.conflict
                            && c.give_back(cx)?
                        {
                            return Ok(Step::Row);
                        }
                        continue;
                    }
                    if self.target.returning.is_some() {
                        let ctid = self.target.ctid() as usize;
                        cx.regs[ctid] = Datum::Tid(self.work.row);
                        self.target.give_back(cx)?;
                        return Ok(Step::Row);
                    }
                    cx.tick()?;
                }
            }
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.phase = Phase::Next;
        self.written = 0;
        self.work.waiting.cancel();
        if let Some(c) = &mut self.conflict {
            c.reset();
        }
        self.child.rescan(cx)
    }
}
