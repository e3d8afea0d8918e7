//! DISTINCT, INTERSECT, EXCEPT, recursive unions, and rows kept for common table expressions.

use super::rows::{KeyTable, RowStore};
use super::{ExecCx, Node, Reg, Step};
use crate::error::{Result, SqlError};
use crate::types::{Datum, Oid};
use smallvec::SmallVec;

fn current(regs: &[Reg], cx: &ExecCx<'_>) -> SmallVec<[Datum; 8]> {
    regs.iter().map(|r| cx.reg(*r).clone()).collect()
}

/// The first row of each key, as rows come: DISTINCT, and DISTINCT ON over sorted input.
pub struct Unique {
    pub child: Box<dyn Node>,
    pub keys: Vec<Reg>,
    seen: KeyTable,
}

impl Unique {
    pub fn new(child: Box<dyn Node>, keys: Vec<Reg>, types: Vec<Oid>) -> Self {
        Unique { child, keys, seen: KeyTable::new(types) }
    }
}

impl Node for Unique {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            match self.child.next(cx)? {
                Step::Row => {}
                other => return Ok(other),
            }
            if self.seen.insert(&mut current(&self.keys, cx))?.1 {
                return Ok(Step::Row);
            }
            cx.tick()?;
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.seen.clear();
        self.child.rescan(cx)
    }
}

/// INTERSECT and EXCEPT, with or without ALL: counts the right side's rows, then goes through the
/// left's.
pub struct SetOp {
    pub left: Box<dyn Node>,
    pub right: Box<dyn Node>,
    pub left_regs: Vec<Reg>,
    pub right_regs: Vec<Reg>,
    pub out: Vec<Reg>,
    pub except: bool,
    pub all: bool,
    keys: KeyTable,
    /// How often each key stands on the right and, without ALL, whether it was given out.
    counts: Vec<(u64, bool)>,
    counted: bool,
}

impl SetOp {
    pub fn new(
        sides: [(Box<dyn Node>, Vec<Reg>); 2],
        out: Vec<Reg>,
        types: Vec<Oid>,
        except: bool,
        all: bool,
    ) -> Self {
        let [(left, left_regs), (right, right_regs)] = sides;
        SetOp {
            left,
            right,
            left_regs,
            right_regs,
            out,
            except,
            all,
            keys: KeyTable::new(types),
            counts: Vec::new(),
            counted: false,
        }
    }

    fn number(&mut self, mut key: SmallVec<[Datum; 8]>) -> Result<usize> {
        let (i, new) = self.keys.insert(&mut key)?;
        if new {
            self.counts.push((0, false));
        }
        Ok(i)
    }

    /// Whether a left row of key `i` is part of the result.
    fn gives(&mut self, i: usize) -> bool {
        let (count, given) = &mut self.counts[i];
        if self.all {
            let on_right = *count > 0;
            *count = count.saturating_sub(1);
            return on_right != self.except;
        }
        (*count > 0) != self.except && !std::mem::replace(given, true)
    }
}

impl Node for SetOp {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        while !self.counted {
            match self.right.next(cx)? {
                Step::Row => {
                    let i = self.number(current(&self.right_regs, cx))?;
                    self.counts[i].0 += 1;
                    cx.tick()?;
                }
                Step::Done => self.counted = true,
                wait => return Ok(wait),
            }
        }
        loop {
            match self.left.next(cx)? {
                Step::Row => {}
                other => return Ok(other),
            }
            let i = self.number(current(&self.left_regs, cx))?;
            if self.gives(i) {
                for (from, to) in self.left_regs.iter().zip(&self.out) {
                    cx.regs[*to as usize] = cx.regs[*from as usize].clone();
                }
                return Ok(Step::Row);
            }
            cx.tick()?;
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.keys.clear();
        self.counts.clear();
        self.counted = false;
        self.left.rescan(cx)?;
        self.right.rescan(cx)
    }
}

/// WITH RECURSIVE: the first term's rows, then the recursive term over the rows of the round
/// before, until a round gives none.
pub struct RecursiveUnion {
    pub first: Box<dyn Node>,
    pub step: Box<dyn Node>,
    pub first_regs: Vec<Reg>,
    pub step_regs: Vec<Reg>,
    pub out: Vec<Reg>,
    /// UNION: rows seen before are dropped.
    seen: Option<KeyTable>,
    /// Which work table the recursive term reads.
    pub work: usize,
    next_round: RowStore,
    in_step: bool,
}

impl RecursiveUnion {
    pub fn new(
        first: (Box<dyn Node>, Vec<Reg>),
        step: (Box<dyn Node>, Vec<Reg>),
        out: Vec<Reg>,
        distinct: Option<Vec<Oid>>,
        work: usize,
    ) -> Self {
        let next_round = RowStore::new(out.len());
        RecursiveUnion {
            first: first.0,
            first_regs: first.1,
            step: step.0,
            step_regs: step.1,
            out,
            seen: distinct.map(KeyTable::new),
            work,
            next_round,
            in_step: false,
        }
    }

    /// Takes the current row of either term; false when it was seen before.
    fn take(&mut self, cx: &mut ExecCx<'_>) -> Result<bool> {
        let regs = if self.in_step { &self.step_regs } else { &self.first_regs };
        let row = current(regs, cx);
        if let Some(seen) = &mut self.seen
            && !seen.insert(&mut row.clone())?.1
        {
            return Ok(false);
        }
        for (to, value) in self.out.iter().zip(&row) {
            cx.set(*to, value.clone());
        }
        self.next_round.push_values(row)?;
        Ok(true)
    }
}

impl Node for RecursiveUnion {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            let term = if self.in_step { &mut self.step } else { &mut self.first };
            match term.next(cx)? {
                Step::Row => {
                    if self.take(cx)? {
                        return Ok(Step::Row);
                    }
                    cx.tick()?;
                }
                Step::Done => {
                    if self.next_round.is_empty() {
                        return Ok(Step::Done);
                    }
                    self.in_step = true;
                    let table = &mut cx.work_tables[self.work];
                    std::mem::swap(table, &mut self.next_round);
                    self.next_round = RowStore::new(self.out.len());
                    self.step.rescan(cx)?;
                }
                wait => return Ok(wait),
            }
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.in_step = false;
        self.next_round.clear();
        if let Some(seen) = &mut self.seen {
            seen.clear();
        }
        cx.work_tables[self.work] = RowStore::new(self.out.len());
        self.first.rescan(cx)
    }
}

/// Reads the work table of a recursive union.
pub struct WorkTableScan {
    pub work: usize,
    pub out: Vec<Reg>,
    position: usize,
}

impl WorkTableScan {
    pub fn new(work: usize, out: Vec<Reg>) -> Self {
        WorkTableScan { work, out, position: 0 }
    }
}

impl Node for WorkTableScan {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        let table = &cx.work_tables[self.work];
        if self.position >= table.len() {
            return Ok(Step::Done);
        }
        for (to, value) in self.out.iter().zip(table.row(self.position)) {
            cx.regs[*to as usize].clone_from(value);
        }
        self.position += 1;
        Ok(Step::Row)
    }

    fn rescan(&mut self, _cx: &mut ExecCx<'_>) -> Result<()> {
        self.position = 0;
        Ok(())
    }
}

/// A common table expression that is computed once and read by all who name it.
pub struct CteState {
    pub node: Box<dyn Node>,
    pub output: Vec<Reg>,
    pub correlated: bool,
    rows: RowStore,
    complete: bool,
    started: bool,
}

impl CteState {
    pub fn new(node: Box<dyn Node>, output: Vec<Reg>, correlated: bool) -> Self {
        let rows = RowStore::new(output.len());
        CteState { node, output, correlated, rows, complete: false, started: false }
    }

    /// Before a new run, or because what it depends on changed.
    pub fn reset(&mut self) {
        self.rows.clear();
        self.complete = false;
        self.started = false;
    }
}

/// One reader of a common table expression.
pub struct CteScan {
    pub cte: usize,
    pub out: Vec<Reg>,
    /// Makes the expression start anew at a rescan: it reads outer registers, and this is its
    /// first reader.
    pub leader: bool,
    position: usize,
}

impl CteScan {
    pub fn new(cte: usize, out: Vec<Reg>, leader: bool) -> Self {
        CteScan { cte, out, leader, position: 0 }
    }

    fn state<'c>(&self, cx: &'c mut ExecCx<'_>) -> Result<&'c mut CteState> {
        cx.ctes[self.cte]
            .as_deref_mut()
            .ok_or_else(|| SqlError::internal("a common table expression reads itself"))
    }

    /// Asks for one more row of the expression itself.
    fn pull(&self, cx: &mut ExecCx<'_>) -> Result<Step> {
        let mut state = cx.ctes[self.cte]
            .take()
            .ok_or_else(|| SqlError::internal("a common table expression reads itself"))?;
        let mut advance = || -> Result<Step> {
            if !std::mem::replace(&mut state.started, true) {
                state.node.rescan(cx)?;
            }
            let step = state.node.next(cx)?;
            match step {
                Step::Row => state.rows.push(None, &state.output, cx)?,
                Step::Done => state.complete = true,
                Step::Wait(_) => {}
            }
            Ok(step)
        };
        let step = advance();
        cx.ctes[self.cte] = Some(state);
        step
    }
}

impl Node for CteScan {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        let state = self.state(cx)?;
        if self.position >= state.rows.len() {
            if state.complete {
                return Ok(Step::Done);
            }
            match self.pull(cx)? {
                Step::Row => {}
                other => return Ok(other),
            }
        }
        let row = self.position;
        self.position += 1;
        let Some(state) = cx.ctes[self.cte].take() else { return Ok(Step::Done) };
        state.rows.restore(row, 0, &self.out, cx);
        cx.ctes[self.cte] = Some(state);
        Ok(Step::Row)
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.position = 0;
        if self.leader && self.state(cx)?.correlated {
            self.state(cx)?.reset();
        }
        Ok(())
    }
}
