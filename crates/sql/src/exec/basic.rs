//! Operators without state to speak of: result, filter, projection, limit, append, materialise.

use super::expr::Ex;
use super::rows::RowStore;
use super::{Computed, ExecCx, Node, Reg, Step};
use crate::error::{Result, SqlError, State};
use crate::types::Datum;

/// One empty row: what SELECT without FROM reads.
#[derive(Default)]
pub struct OneRow {
    done: bool,
}

impl Node for OneRow {
    fn next(&mut self, _cx: &mut ExecCx<'_>) -> Result<Step> {
        Ok(if std::mem::replace(&mut self.done, true) { Step::Done } else { Step::Row })
    }

    fn rescan(&mut self, _cx: &mut ExecCx<'_>) -> Result<()> {
        self.done = false;
        Ok(())
    }
}

/// Rows that satisfy a condition. `once`: the condition reads no row; it is asked one time and
/// the input is not touched when it fails.
pub struct Filter {
    pub child: Box<dyn Node>,
    pub filter: Ex,
    pub once: bool,
    asked: Option<bool>,
    waits: bool,
    /// The condition waits for the row that is there.
    again: bool,
}

impl Filter {
    pub fn new(child: Box<dyn Node>, filter: Ex, once: bool) -> Self {
        let waits = filter.may_wait();
        Filter { child, filter, once, asked: None, waits, again: false }
    }
}

impl Node for Filter {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        if self.once {
            if self.asked.is_none() {
                match cx.compute(self.waits, |cx| self.filter.passes(cx))? {
                    Computed::Value(passes) => self.asked = Some(passes),
                    Computed::Wait(handle) => return Ok(Step::Wait(handle)),
                }
            }
            return if self.asked == Some(true) { self.child.next(cx) } else { Ok(Step::Done) };
        }
        loop {
            if !std::mem::take(&mut self.again) {
                match self.child.next(cx)? {
                    Step::Row => {}
                    other => return Ok(other),
                }
            }
            match cx.compute(self.waits, |cx| self.filter.passes(cx))? {
                Computed::Value(true) => return Ok(Step::Row),
                Computed::Value(false) => cx.tick()?,
                Computed::Wait(handle) => {
                    self.again = true;
                    return Ok(Step::Wait(handle));
                }
            }
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.asked = None;
        self.again = false;
        self.child.rescan(cx)
    }
}

/// One column of a projection.
pub struct Output {
    pub ex: Ex,
    pub reg: Reg,
    /// The source register is not read again before the next row: its value may be moved.
    pub take: bool,
    /// A function in it may have to wait.
    pub waits: bool,
}

/// Computes columns. A call that has to wait (an advisory lock) is made again for the same row.
pub struct Project {
    pub child: Box<dyn Node>,
    pub outputs: Vec<Output>,
    /// The row is there, but its columns have not all been computed: where to go on.
    pending: Option<usize>,
}

impl Project {
    pub fn new(child: Box<dyn Node>, outputs: Vec<Output>) -> Self {
        Project { child, outputs, pending: None }
    }
}

impl Node for Project {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        let start = match self.pending.take() {
            Some(i) => i,
            None => match self.child.next(cx)? {
                Step::Row => 0,
                other => return Ok(other),
            },
        };
        for (i, output) in self.outputs.iter().enumerate().skip(start) {
            let value = match &output.ex {
                Ex::Reg(r) if output.take => std::mem::take(&mut cx.regs[*r as usize]),
                ex => match cx.compute(output.waits, |cx| ex.eval(cx))? {
                    Computed::Value(value) => value,
                    Computed::Wait(handle) => {
                        self.pending = Some(i);
                        return Ok(Step::Wait(handle));
                    }
                },
            };
            cx.regs[output.reg as usize] = value;
        }
        Ok(Step::Row)
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.pending = None;
        self.child.rescan(cx)
    }

    fn set_bound(&mut self, rows: Option<u64>) {
        self.child.set_bound(rows);
    }

    fn count_rest(&mut self, cx: &mut ExecCx<'_>) -> Option<Result<u64>> {
        if self.pending.is_none() && self.outputs.iter().all(|o| matches!(o.ex, Ex::Reg(_))) {
            self.child.count_rest(cx)
        } else {
            None
        }
    }
}

/// LIMIT and OFFSET.
pub struct Limit {
    pub child: Box<dyn Node>,
    pub limit: Option<Ex>,
    pub offset: Option<Ex>,
    state: Option<(u64, u64)>,
}

impl Limit {
    pub fn new(child: Box<dyn Node>, limit: Option<Ex>, offset: Option<Ex>) -> Self {
        Limit { child, limit, offset, state: None }
    }

    fn bounds(&self, cx: &mut ExecCx<'_>) -> Result<(u64, u64)> {
        let count = |ex: &Option<Ex>, cx: &mut ExecCx<'_>| -> Result<Option<i64>> {
            let Some(ex) = ex else { return Ok(None) };
            Ok(match ex.eval(cx)? {
                Datum::Int8(n) => Some(n),
                Datum::Int4(n) => Some(i64::from(n)),
                _ => None,
            })
        };
        let limit = match count(&self.limit, cx)? {
            Some(n) => u64::try_from(n).map_err(|_| {
                let state = State::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE;
                SqlError::new(state, "LIMIT must not be negative")
            })?,
            None => u64::MAX,
        };
        let offset = match count(&self.offset, cx)? {
            Some(n) => u64::try_from(n).map_err(|_| {
                let state = State::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE;
                SqlError::new(state, "OFFSET must not be negative")
            })?,
            None => 0,
        };
        Ok((offset, limit))
    }
}

impl Node for Limit {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        let (mut skip, mut left) = match self.state {
            Some(state) => state,
            None => {
                let (skip, left) = self.bounds(cx)?;
                self.child.set_bound(skip.checked_add(left));
                (skip, left)
            }
        };
        self.state = Some((skip, left));
        if left == 0 {
            return Ok(Step::Done);
        }
        loop {
            match self.child.next(cx)? {
                Step::Row if skip > 0 => {
                    skip -= 1;
                    self.state = Some((skip, left));
                    cx.tick()?;
                }
                Step::Row => {
                    left -= 1;
                    self.state = Some((0, left));
                    return Ok(Step::Row);
                }
                other => return Ok(other),
            }
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.state = None;
        self.child.rescan(cx)
    }
}

/// One input of an append: where its columns are and where they go.
pub struct Branch {
    pub node: Box<dyn Node>,
    pub from: Vec<Reg>,
}

/// All rows of each input in turn (UNION ALL).
pub struct Append {
    pub branches: Vec<Branch>,
    pub to: Vec<Reg>,
    current: usize,
}

impl Append {
    pub fn new(branches: Vec<Branch>, to: Vec<Reg>) -> Self {
        Append { branches, to, current: 0 }
    }
}

impl Node for Append {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        while let Some(branch) = self.branches.get_mut(self.current) {
            match branch.node.next(cx)? {
                Step::Row => {
                    for (from, to) in branch.from.iter().zip(&self.to) {
                        cx.regs[*to as usize] = cx.regs[*from as usize].clone();
                    }
                    return Ok(Step::Row);
                }
                Step::Done => self.current += 1,
                wait => return Ok(wait),
            }
        }
        Ok(Step::Done)
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.current = 0;
        self.branches.iter_mut().try_for_each(|b| b.node.rescan(cx))
    }
}

/// Keeps its input's rows, to give them again at each rescan.
pub struct Materialize {
    pub child: Box<dyn Node>,
    pub saved: Vec<Reg>,
    /// The input reads nothing that changes during a statement.
    pub fixed: bool,
    rows: RowStore,
    complete: bool,
    position: usize,
    run: u64,
}

impl Materialize {
    pub fn new(child: Box<dyn Node>, saved: Vec<Reg>, fixed: bool) -> Self {
        let rows = RowStore::new(saved.len());
        Materialize { child, saved, fixed, rows, complete: false, position: 0, run: 0 }
    }
}

impl Node for Materialize {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        if self.position < self.rows.len() {
            self.rows.restore(self.position, 0, &self.saved, cx);
            self.position += 1;
            return Ok(Step::Row);
        }
        if self.complete {
            return Ok(Step::Done);
        }
        match self.child.next(cx)? {
            Step::Row => {
                self.rows.push(None, &self.saved, cx)?;
                self.position += 1;
                Ok(Step::Row)
            }
            Step::Done => {
                self.complete = true;
                Ok(Step::Done)
            }
            wait => Ok(wait),
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.position = 0;
        if self.fixed && self.run == cx.run {
            return Ok(());
        }
        self.run = cx.run;
        self.rows.clear();
        self.complete = false;
        self.child.rescan(cx)
    }
}
