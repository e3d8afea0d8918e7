//! Rows that do not come from tables: functions, VALUES, set-returning targets.

use super::expr::{Callee, Ex};
use super::{Computed, ExecCx, Node, Reg, Step};
use crate::error::{Result, SqlError};
use crate::functions::{Builtin, Implementation};
use crate::types::Datum;

/// A function in FROM or a set-returning one among the targets.
pub struct SetCall {
    pub function: &'static Builtin,
    pub args: Vec<Ex>,
    pub arg_types: Vec<crate::types::Oid>,
    pub out: Vec<Reg>,
}

type Rows = Box<dyn Iterator<Item = Result<Vec<Datum>>> + Send>;

impl SetCall {
    fn may_wait(&self) -> bool {
        self.args.iter().any(Ex::may_wait)
            || matches!(self.function.imp, Implementation::Session)
                && crate::session::may_wait(self.function.name)
    }

    fn start(&self, cx: &mut ExecCx<'_>) -> Result<Rows> {
        let args = super::expr::eval_all(&self.args, cx)?;
        if self.function.strict && args.iter().any(Datum::is_null) {
            return match self.function.is_set() {
                true => Ok(Box::new(std::iter::empty())),
                false => Ok(Box::new(std::iter::once(Ok(vec![Datum::Null; self.out.len()])))),
            };
        }
        match self.function.imp {
            Implementation::Set(f) => f(cx.fx, &args),
            Implementation::SessionSet => {
                let rows = cx.fx.session().call_set(self.function.name, &args)?;
                Ok(Box::new(rows.into_iter().map(Ok)))
            }
            _ => {
                let value = Callee::of(self.function, &self.arg_types)?.call(cx, &args)?;
                let row = match value {
                    Datum::Record(fields) if self.out.len() > 1 => fields.to_vec(),
                    value => vec![value],
                };
                Ok(Box::new(std::iter::once(Ok(row))))
            }
        }
    }

    /// Puts a row into the output registers; NULLs when there is none.
    fn give(&self, row: Option<Vec<Datum>>, cx: &mut ExecCx<'_>) -> Result<()> {
        let Some(row) = row else {
            cx.set_null(&self.out);
            return Ok(());
        };
        if row.len() == self.out.len() {
            for (reg, value) in self.out.iter().zip(row) {
                cx.set(*reg, value);
            }
            return Ok(());
        }
        match (self.out.as_slice(), row.len()) {
            // Several columns where one is wanted: the row as a value.
            ([one], n) if n > 1 => cx.set(*one, Datum::Record(row.into())),
            _ => {
                return Err(SqlError::internal(format!(
                    "function {} returned a row of {} columns instead of {}",
                    self.function.name,
                    row.len(),
                    self.out.len()
                )));
            }
        }
        Ok(())
    }
}

/// Functions side by side; the shorter ones are filled up with NULLs.
pub struct FunctionScan {
    pub calls: Vec<SetCall>,
    pub ordinality: Option<Reg>,
    rows: Vec<Rows>,
    count: i64,
    started: bool,
}

impl FunctionScan {
    pub fn new(calls: Vec<SetCall>, ordinality: Option<Reg>) -> Self {
        FunctionScan { calls, ordinality, rows: Vec::new(), count: 0, started: false }
    }
}

/// The next row of each; false when none has one.
fn advance(calls: &[SetCall], rows: &mut [Rows], cx: &mut ExecCx<'_>) -> Result<bool> {
    let mut any = false;
    let mut got = Vec::with_capacity(rows.len());
    for iter in rows.iter_mut() {
        let row = iter.next().transpose()?;
        any |= row.is_some();
        got.push(row);
    }
    if any {
        for (call, row) in calls.iter().zip(got) {
            call.give(row, cx)?;
        }
    }
    Ok(any)
}

impl Node for FunctionScan {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        if !self.started {
            for call in self.calls.iter().skip(self.rows.len()) {
                match cx.compute(call.may_wait(), |cx| call.start(cx))? {
                    Computed::Value(rows) => self.rows.push(rows),
                    Computed::Wait(handle) => return Ok(Step::Wait(handle)),
                }
            }
            self.started = true;
            self.count = 0;
        }
        if !advance(&self.calls, &mut self.rows, cx)? {
            return Ok(Step::Done);
        }
        self.count += 1;
        if let Some(reg) = self.ordinality {
            cx.set(reg, Datum::Int8(self.count));
        }
        cx.tick()?;
        Ok(Step::Row)
    }

    fn rescan(&mut self, _cx: &mut ExecCx<'_>) -> Result<()> {
        self.started = false;
        self.rows.clear();
        Ok(())
    }
}

/// Set-returning functions among the targets: one output row for each of their rows.
pub struct ProjectSet {
    pub child: Box<dyn Node>,
    pub calls: Vec<SetCall>,
    /// Registers of the input row, which evaluation of later rows must find unchanged.
    rows: Vec<Rows>,
}

impl ProjectSet {
    pub fn new(child: Box<dyn Node>, calls: Vec<SetCall>) -> Self {
        ProjectSet { child, calls, rows: Vec::new() }
    }
}

impl Node for ProjectSet {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            if !self.rows.is_empty() {
                if advance(&self.calls, &mut self.rows, cx)? {
                    return Ok(Step::Row);
                }
                self.rows.clear();
            }
            match self.child.next(cx)? {
                Step::Row => {}
                other => return Ok(other),
            }
            for call in &self.calls {
                let rows = call.start(cx)?;
                self.rows.push(rows);
            }
            cx.tick()?;
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.rows.clear();
        self.child.rescan(cx)
    }
}

/// VALUES (...), (...).
pub struct ValuesScan {
    pub rows: Vec<Vec<Ex>>,
    pub out: Vec<Reg>,
    position: usize,
}

impl ValuesScan {
    pub fn new(rows: Vec<Vec<Ex>>, out: Vec<Reg>) -> Self {
        ValuesScan { rows, out, position: 0 }
    }
}

impl Node for ValuesScan {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        let Some(row) = self.rows.get(self.position) else { return Ok(Step::Done) };
        self.position += 1;
        for (ex, reg) in row.iter().zip(&self.out) {
            let value = ex.eval(cx)?;
            cx.regs[*reg as usize] = value;
        }
        Ok(Step::Row)
    }

    fn rescan(&mut self, _cx: &mut ExecCx<'_>) -> Result<()> {
        self.position = 0;
        Ok(())
    }
}
