//! Window functions: one sort and one window operator for each (PARTITION BY, ORDER BY).

use super::estimate::*;
use super::planner::Planner;
use super::walk::visit;
use super::*;
use crate::analyze::bound::*;
use crate::error::Result;
use crate::exec::window::{Bound, Frame};

impl Planner<'_> {
    pub(super) fn windows(&mut self, q: &Query, child: Plan) -> Result<Plan> {
        let mut calls: Vec<WindowCall> = Vec::new();
        let mut collect = |e: &Expr, level: u16| {
            if let Expr::Window(w) = e
                && level == 0
            {
                if !calls.contains(w) {
                    calls.push((**w).clone());
                }
                return false;
            }
            true
        };
        q.targets.iter().for_each(|t| visit(&t.expr, 0, &mut collect));
        q.order_by.iter().for_each(|k| visit(&k.expr, 0, &mut collect));
        if let Some(Distinct::On(exprs)) = &q.distinct {
            exprs.iter().for_each(|e| visit(e, 0, &mut collect));
        }
        let mut plan = child;
        while let Some(first) = calls.first().cloned() {
            let same = |w: &WindowCall| {
                w.partition_by == first.partition_by && w.order_by == first.order_by
            };
            let (now, later): (Vec<_>, Vec<_>) = calls.into_iter().partition(same);
            calls = later;
            plan = self.window(&now, plan)?;
        }
        Ok(plan)
    }

    fn window(&mut self, calls: &[WindowCall], child: Plan) -> Result<Plan> {
        let first = &calls[0];
        let mut partition = Vec::new();
        let mut keys = Vec::new();
        for e in &first.partition_by {
            let compiled = self.pexpr(e)?;
            let ty = e.ty().oid;
            let order = Order { ty, descending: false, nulls_first: false };
            keys.push((compiled.clone(), order));
            partition.push((compiled, ty));
        }
        let order = self.sort_keys(&first.order_by)?;
        keys.extend(order.iter().cloned());
        let mut plan = child;
        if !keys.is_empty() {
            let n = plan.rows.max(2.0);
            let startup = plan.cost.total + n * n.log2() * 2.0 * OPERATOR;
            let cost = Cost { startup, total: startup + n * OPERATOR };
            let mut sorted = Plan::new(Op::Result, plan.rows, cost);
            sorted.width = plan.width;
            sorted.op = Op::Sort { child: Box::new(plan), keys };
            plan = sorted;
        }
        let mut planned = Vec::with_capacity(calls.len());
        for call in calls {
            let filter = match &call.filter {
                Some(f) => Some(self.pexpr(f)?),
                None => None,
            };
            let out = self.new_reg();
            planned.push(WindowCallPlan {
                function: call.function,
                args: self.pexprs(&call.args)?,
                arg_types: call.args.iter().map(|a| a.ty().oid).collect(),
                filter,
                frame: self.frame(call)?,
                out,
            });
            self.scope().computed.push((Expr::Window(Box::new(call.clone())), out));
        }
        let mut over = Plan::over(&plan, Op::Result, plan.rows, plan.rows * TUPLE);
        let window = WindowPlan { partition, order, calls: planned };
        over.ordering.clear();
        over.op = Op::Window { child: Box::new(plan), window };
        Ok(over)
    }

    fn frame(&mut self, call: &WindowCall) -> Result<Frame> {
        let Some(frame) = &call.frame else { return Ok(Frame::default()) };
        let mut bound = |b: &FrameBound| -> Result<Bound> {
            Ok(match b {
                FrameBound::UnboundedPreceding => Bound::UnboundedPreceding,
                FrameBound::Preceding(e) => Bound::Preceding(self.compile(e)?),
                FrameBound::CurrentRow => Bound::CurrentRow,
                FrameBound::Following(e) => Bound::Following(self.compile(e)?),
                FrameBound::UnboundedFollowing => Bound::UnboundedFollowing,
            })
        };
        let offset =
            |b: &FrameBound| matches!(b, FrameBound::Preceding(_) | FrameBound::Following(_));
        if frame.mode == FrameMode::Range && (offset(&frame.start) || offset(&frame.end)) {
            return Err(crate::error::SqlError::unsupported(
                "RANGE with offset PRECEDING/FOLLOWING",
            ));
        }
        Ok(Frame {
            mode: frame.mode,
            start: bound(&frame.start)?,
            end: bound(&frame.end)?,
            exclude: frame.exclude,
        })
    }
}
