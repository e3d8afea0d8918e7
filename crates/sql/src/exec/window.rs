//! Window functions over sorted input: one partition at a time is kept and answered.
//!
//! Rows with equal ORDER BY keys are *peers*. The default frame runs from the partition's start to
//! the current row's last peer, so aggregates are carried on from row to row; a frame that loses
//! rows at its start is added up anew for each row.

use super::expr::Ex;
use super::rows::{Order, RowStore, compare_rows, same_keys};
use super::{ExecCx, Node, Reg, Step};
use crate::analyze::bound::{FrameExclusion, FrameMode};
use crate::error::{Result, SqlError, State};
use crate::functions::{AggFn, AggState, Builtin, Implementation};
use crate::types::{Datum, Oid};

#[derive(Clone)]
pub enum Bound {
    UnboundedPreceding,
    Preceding(Ex),
    CurrentRow,
    Following(Ex),
    UnboundedFollowing,
}

#[derive(Clone)]
pub struct Frame {
    pub mode: FrameMode,
    pub start: Bound,
    pub end: Bound,
    pub exclude: FrameExclusion,
}

impl Default for Frame {
    fn default() -> Self {
        Frame {
            mode: FrameMode::Range,
            start: Bound::UnboundedPreceding,
            end: Bound::CurrentRow,
            exclude: FrameExclusion::NoOthers,
        }
    }
}

pub struct Call {
    pub function: &'static Builtin,
    pub args: Vec<Ex>,
    pub arg_types: Vec<Oid>,
    pub filter: Option<Ex>,
    pub frame: Frame,
    pub out: Reg,
}

pub struct Window {
    pub child: Box<dyn Node>,
    pub partition: Vec<(Ex, Oid)>,
    pub order: Vec<(Ex, Order)>,
    pub calls: Vec<Call>,
    pub saved: Vec<Reg>,
    state: Partition,
    /// The first row of the next partition was read: its live registers' values.
    next_first: Option<Vec<Datum>>,
    finished: bool,
}

#[derive(Default)]
struct Partition {
    /// Partition keys, order keys, saved registers.
    rows: RowStore,
    /// First row and end of each row's peers.
    peers: Vec<(usize, usize)>,
    /// By call, by row.
    results: Vec<Vec<Datum>>,
    position: usize,
}

impl Window {
    pub fn new(
        child: Box<dyn Node>,
        partition: Vec<(Ex, Oid)>,
        order: Vec<(Ex, Order)>,
        calls: Vec<Call>,
        saved: Vec<Reg>,
    ) -> Self {
        let width = partition.len() + order.len() + saved.len();
        let state = Partition { rows: RowStore::new(width), ..Partition::default() };
        Window { child, partition, order, calls, saved, state, next_first: None, finished: false }
    }

    fn keep(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        let mut head = Vec::with_capacity(self.partition.len() + self.order.len());
        for (ex, _) in &self.partition {
            head.push(ex.eval(cx)?);
        }
        for (ex, _) in &self.order {
            head.push(ex.eval(cx)?);
        }
        self.state.rows.push(head, &self.saved, cx)
    }

    fn same_partition(&self, cx: &mut ExecCx<'_>) -> Result<bool> {
        let mut key = Vec::with_capacity(self.partition.len());
        let mut types = Vec::with_capacity(self.partition.len());
        for (ex, ty) in &self.partition {
            key.push(ex.eval(cx)?);
            types.push(*ty);
        }
        Ok(same_keys(&types, self.state.rows.row(0), &key))
    }

    /// Reads one partition; false when there is none left.
    fn fill(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Step>> {
        if let Some(values) = self.next_first.take() {
            for (reg, value) in self.saved.iter().zip(values) {
                cx.regs[*reg as usize] = value;
            }
            self.keep(cx)?;
        }
        loop {
            match self.child.next(cx)? {
                Step::Wait(h) => return Ok(Some(Step::Wait(h))),
                Step::Done => {
                    self.finished = true;
                    break;
                }
                Step::Row => {}
            }
            if !self.state.rows.is_empty() && !self.same_partition(cx)? {
                let first = self.saved.iter().map(|r| cx.reg(*r).clone()).collect();
                self.next_first = Some(first);
                break;
            }
            self.keep(cx)?;
            cx.tick()?;
        }
        Ok(None)
    }

    fn find_peers(&mut self) {
        let (first, n) = (self.partition.len(), self.state.rows.len());
        let orders: Vec<Order> = self.order.iter().map(|o| o.1).collect();
        let rows = &self.state.rows;
        let same = |a: usize, b: usize| {
            compare_rows(&orders, &rows.row(a)[first..], &rows.row(b)[first..]).is_eq()
        };
        let mut peers = Vec::with_capacity(n);
        let mut start = 0;
        while start < n {
            let mut end = start + 1;
            while end < n && same(start, end) {
                end += 1;
            }
            peers.extend((start..end).map(|_| (start, end)));
            start = end;
        }
        self.state.peers = peers;
    }

    fn restore(&self, row: usize, cx: &mut ExecCx<'_>) {
        let skip = self.partition.len() + self.order.len();
        self.state.rows.restore(row, skip, &self.saved, cx);
    }

    /// A call's argument in a row of the partition.
    fn argument(&self, call: &Call, i: usize, row: usize, cx: &mut ExecCx<'_>) -> Result<Datum> {
        match call.args.get(i) {
            None => Ok(Datum::Null),
            Some(ex) => {
                self.restore(row, cx);
                ex.eval(cx)
            }
        }
    }

    fn compute(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.find_peers();
        let mut results = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            results.push(match call.function.imp {
                Implementation::Aggregate(make) => self.aggregate(call, make, cx)?,
                _ => self.ranking(call, cx)?,
            });
        }
        self.state.results = results;
        Ok(())
    }

    // ---- functions of the position ----

    fn ranking(&self, call: &Call, cx: &mut ExecCx<'_>) -> Result<Vec<Datum>> {
        let n = self.state.rows.len();
        let mut out = Vec::with_capacity(n);
        let mut dense = 0;
        for row in 0..n {
            let (start, end) = self.state.peers[row];
            if start == row {
                dense += 1;
            }
            let share = |part: usize, whole: usize| {
                Datum::Float8(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
            };
            out.push(match call.function.name {
                "row_number" => Datum::Int8(row as i64 + 1),
                "rank" => Datum::Int8(start as i64 + 1),
                "dense_rank" => Datum::Int8(dense),
                "percent_rank" => share(start, n - 1),
                "cume_dist" => share(end, n),
                "ntile" => self.ntile(call, row, cx)?,
                "lag" => self.shifted(call, row, -1, cx)?,
                "lead" => self.shifted(call, row, 1, cx)?,
                "first_value" | "last_value" | "nth_value" => self.nth(call, row, cx)?,
                other => return Err(SqlError::unsupported(format!("window function {other}"))),
            });
        }
        Ok(out)
    }

    fn ntile(&self, call: &Call, row: usize, cx: &mut ExecCx<'_>) -> Result<Datum> {
        let buckets = match integer(&self.argument(call, 0, row, cx)?) {
            None => return Ok(Datum::Null),
            Some(b) if b <= 0 => {
                let state = State::from_code("22014");
                return Err(SqlError::new(state, "argument of ntile must be greater than zero"));
            }
            Some(b) => b as usize,
        };
        let n = self.state.rows.len();
        let (size, extra) = (n / buckets, n % buckets);
        let big = extra * (size + 1);
        let bucket = if row < big { row / (size + 1) } else { extra + (row - big) / size.max(1) };
        Ok(Datum::Int4(bucket as i32 + 1))
    }

    /// lag and lead: (value [, offset [, default]]).
    fn shifted(&self, call: &Call, row: usize, sign: i64, cx: &mut ExecCx<'_>) -> Result<Datum> {
        let offset = match call.args.len() {
            0 | 1 => 1,
            _ => match integer(&self.argument(call, 1, row, cx)?) {
                Some(o) => o,
                None => return Ok(Datum::Null),
            },
        };
        let at = row as i64 + sign * offset;
        match usize::try_from(at) {
            Ok(at) if at < self.state.rows.len() => self.argument(call, 0, at, cx),
            _ => self.argument(call, 2, row, cx),
        }
    }

    fn nth(&self, call: &Call, row: usize, cx: &mut ExecCx<'_>) -> Result<Datum> {
        let frame = self.frame_rows(call, row, cx)?;
        let at = match call.function.name {
            "first_value" => frame.first().copied(),
            "last_value" => frame.last().copied(),
            _ => match integer(&self.argument(call, 1, row, cx)?) {
                None => None,
                Some(n) if n <= 0 => {
                    let text = "argument of nth_value must be greater than zero";
                    return Err(SqlError::new(State::from_code("22016"), text));
                }
                Some(n) => frame.get(n as usize - 1).copied(),
            },
        };
        at.map_or(Ok(Datum::Null), |at| self.argument(call, 0, at, cx))
    }

    // ---- frames ----

    /// Start and end of the frame, before exclusions.
    fn frame_range(&self, call: &Call, row: usize, cx: &mut ExecCx<'_>) -> Result<(usize, usize)> {
        let n = self.state.rows.len();
        let (peer_start, peer_end) = self.state.peers[row];
        let rows = call.frame.mode == FrameMode::Rows;
        let start = match &call.frame.start {
            Bound::UnboundedPreceding => 0,
            Bound::CurrentRow if rows => row,
            Bound::CurrentRow => peer_start,
            Bound::Preceding(e) => self.moved(call, row, -self.offset(e, "starting", cx)?, true),
            Bound::Following(e) => self.moved(call, row, self.offset(e, "starting", cx)?, true),
            Bound::UnboundedFollowing => n,
        };
        let end = match &call.frame.end {
            Bound::UnboundedFollowing => n,
            Bound::CurrentRow if rows => row + 1,
            Bound::CurrentRow => peer_end,
            Bound::Preceding(e) => self.moved(call, row, -self.offset(e, "ending", cx)?, false),
            Bound::Following(e) => self.moved(call, row, self.offset(e, "ending", cx)?, false),
            Bound::UnboundedPreceding => 0,
        };
        Ok((start.min(n), end.min(n).max(start.min(n))))
    }

    fn offset(&self, e: &Ex, which: &str, cx: &mut ExecCx<'_>) -> Result<i64> {
        match integer(&e.eval(cx)?) {
            None => Err(SqlError::new(
                State::NULL_VALUE_NOT_ALLOWED,
                format!("frame {which} offset must not be null"),
            )),
            Some(n) if n < 0 => Err(SqlError::new(
                State::from_code("22013"),
                format!("frame {which} offset must not be negative"),
            )),
            Some(n) => Ok(n),
        }
    }

    /// The row (or the boundary of the peer group) `by` away.
    fn moved(&self, call: &Call, row: usize, by: i64, start: bool) -> usize {
        let n = self.state.rows.len() as i64;
        if call.frame.mode == FrameMode::Rows {
            let at = (row as i64).saturating_add(by).saturating_add(i64::from(!start));
            return at.clamp(0, n) as usize;
        }
        // GROUPS: whole peer groups.
        let mut at = row;
        for _ in 0..by.unsigned_abs() {
            let (first, end) = self.state.peers[at];
            if by < 0 {
                match first.checked_sub(1) {
                    Some(before) => at = before,
                    None => return 0,
                }
            } else if end < n as usize {
                at = end;
            } else {
                return n as usize;
            }
        }
        let (first, end) = self.state.peers[at];
        if start { first } else { end }
    }

    fn frame_rows(&self, call: &Call, row: usize, cx: &mut ExecCx<'_>) -> Result<Vec<usize>> {
        let (start, end) = self.frame_range(call, row, cx)?;
        let peers = self.state.peers[row];
        let is_peer = |i: &usize| *i >= peers.0 && *i < peers.1;
        Ok((start..end)
            .filter(|i| match call.frame.exclude {
                FrameExclusion::NoOthers => true,
                FrameExclusion::CurrentRow => *i != row,
                FrameExclusion::Group => !is_peer(i),
                FrameExclusion::Ties => *i == row || !is_peer(i),
            })
            .collect())
    }

    // ---- aggregates ----

    fn aggregate(&self, call: &Call, make: AggFn, cx: &mut ExecCx<'_>) -> Result<Vec<Datum>> {
        let n = self.state.rows.len();
        let mut out: Vec<Datum> = Vec::with_capacity(n);
        let grows = matches!(call.frame.start, Bound::UnboundedPreceding)
            && call.frame.exclude == FrameExclusion::NoOthers
            && keeps_state(call.function.name);
        let mut state = make(&call.arg_types);
        let mut fed = 0;
        let mut last: Option<(usize, usize)> = None;
        for row in 0..n {
            if grows {
                let range = self.frame_range(call, row, cx)?;
                if last == Some(range) {
                    out.push(out[row - 1].clone());
                    continue;
                }
                for i in fed..range.1 {
                    self.feed(call, state.as_mut(), i, cx)?;
                }
                fed = fed.max(range.1);
                last = Some(range);
                out.push(state.finish()?);
            } else {
                let mut state = make(&call.arg_types);
                for i in self.frame_rows(call, row, cx)? {
                    self.feed(call, state.as_mut(), i, cx)?;
                    cx.tick()?;
                }
                out.push(state.finish()?);
            }
        }
        Ok(out)
    }

    fn feed(
        &self,
        call: &Call,
        state: &mut dyn AggState,
        row: usize,
        cx: &mut ExecCx<'_>,
    ) -> Result<()> {
        self.restore(row, cx);
        if let Some(filter) = &call.filter
            && !filter.passes(cx)?
        {
            return Ok(());
        }
        let args = super::expr::eval_all(&call.args, cx)?;
        state.update(&args)
    }
}

/// Aggregates whose `finish` leaves the state as it was, so that it can be carried on.
fn keeps_state(name: &str) -> bool {
    matches!(name, "count" | "sum" | "min" | "max" | "avg" | "bool_and" | "bool_or" | "every")
}

fn integer(d: &Datum) -> Option<i64> {
    match d {
        Datum::Int8(n) => Some(*n),
        Datum::Int4(n) => Some(i64::from(*n)),
        Datum::Int2(n) => Some(i64::from(*n)),
        _ => None,
    }
}

impl Node for Window {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            if self.state.position < self.state.results.first().map_or(0, Vec::len) {
                let row = self.state.position;
                self.state.position += 1;
                self.restore(row, cx);
                for (call, results) in self.calls.iter().zip(&self.state.results) {
                    cx.set(call.out, results[row].clone());
                }
                return Ok(Step::Row);
            }
            if self.finished {
                return Ok(Step::Done);
            }
            if !self.state.results.is_empty() {
                self.state.results.clear();
                self.state.rows.clear();
                self.state.position = 0;
            }
            if let Some(wait) = self.fill(cx)? {
                return Ok(wait);
            }
            if self.state.rows.is_empty() {
                return Ok(Step::Done);
            }
            self.compute(cx)?;
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.state.rows.clear();
        self.state.results.clear();
        self.state.position = 0;
        self.next_first = None;
        self.finished = false;
        self.child.rescan(cx)
    }
}
