//! From joined rows to a query's output: grouping, windows, targets, DISTINCT, ORDER BY, LIMIT,
//! row locks.
//!
//! ```text
//!   joins -> Aggregate -> HAVING -> Window -> ProjectSet -> Unique -> Sort -> LockRows -> Limit
//!         -> Project
//! ```
//!
//! Output columns are computed last, for the rows that are really given out, unless DISTINCT or
//! set-returning functions need them before.

use super::estimate::*;
use super::planner::{Columns, Output, Planned, Planner};
use super::walk::{self, visit};
use super::*;
use crate::analyze::bound::*;
use crate::error::{Result, SqlError, State};

impl Planner<'_> {
    pub(super) fn finish_select(
        &mut self,
        q: &Query,
        input: Plan,
        recheck: Vec<Expr>,
        output: Output,
    ) -> Result<Planned> {
        let mut plan = input;
        if q.grouped || !q.group_by.is_empty() {
            plan = self.group(q, plan)?;
        }
        if let Some(having) = &q.having {
            let mut quals = Vec::new();
            super::tree::conjuncts(having.clone(), &mut quals);
            let rows = plan.rows * 0.33;
            plan = self.filtered(plan, &quals, rows)?;
        }
        plan = self.windows(q, plan)?;
        plan = self.set_functions(q, plan)?;
        let mut out = None;
        if q.distinct == Some(Distinct::All) {
            let (projected, regs) = self.project(q, plan, output)?;
            plan = self.unique(q, projected, &regs)?;
            out = Some(regs);
        }
        plan = self.sort(q, plan)?;
        if let Some(Distinct::On(keys)) = &q.distinct {
            plan = self.distinct_on(keys, plan)?;
        }
        if !q.row_marks.is_empty() {
            plan = self.lock_rows(q, plan, &recheck)?;
        }
        plan = self.limit(&q.limit, &q.offset, plan)?;
        let (plan, out) = match out {
            Some(out) => (plan, out),
            None => self.project(q, plan, output)?,
        };
        Ok(Planned { plan, out, correlated: false })
    }

    // ---- grouping ----

    fn group(&mut self, q: &Query, child: Plan) -> Result<Plan> {
        let mut calls: Vec<AggregateCall> = Vec::new();
        let mut collect = |e: &Expr, level: u16| {
            if let Expr::Aggregate(a) = e
                && level == 0
            {
                if !calls.contains(a) {
                    calls.push((**a).clone());
                }
                return false;
            }
            true
        };
        q.targets.iter().for_each(|t| visit(&t.expr, 0, &mut collect));
        q.having.iter().for_each(|e| visit(e, 0, &mut collect));
        q.order_by.iter().for_each(|k| visit(&k.expr, 0, &mut collect));
        if let Some(Distinct::On(exprs)) = &q.distinct {
            exprs.iter().for_each(|e| visit(e, 0, &mut collect));
        }
        let mut keys: Vec<(PExpr, Reg, Oid)> = Vec::new();
        let mut computed = Vec::new();
        for e in &q.group_by {
            if computed.iter().any(|(known, _)| known == e) {
                continue;
            }
            let reg = match e {
                // The group's value goes back to where the column's is read.
                Expr::Var(v) if v.level == 0 => self.column(v)?,
                _ => self.new_reg(),
            };
            keys.push((self.pexpr(e)?, reg, e.ty().oid));
            computed.push((e.clone(), reg));
        }
        let mut aggregates = Vec::with_capacity(calls.len());
        for call in calls {
            let planned = self.aggregate(&call)?;
            computed.push((Expr::Aggregate(Box::new(call)), planned.out));
            aggregates.push(planned);
        }
        self.scope().computed.extend(computed);
        let rows = if keys.is_empty() {
            1.0
        } else {
            (200f64.powi(keys.len().min(3) as i32)).min(child.rows / 2.0).max(1.0)
        };
        let extra = child.rows * OPERATOR * (keys.len() + aggregates.len()) as f64;
        let total = child.cost.total + extra + rows * TUPLE;
        let cost = Cost { startup: child.cost.total + extra, total };
        let child = Box::new(child);
        Ok(Plan::new(Op::Aggregate { child, keys, aggregates }, rows, cost))
    }

    fn aggregate(&mut self, call: &AggregateCall) -> Result<AggregatePlan> {
        let order = self.sort_keys(&call.order_by)?;
        let filter = match &call.filter {
            Some(f) => Some(self.pexpr(f)?),
            None => None,
        };
        Ok(AggregatePlan {
            function: call.function,
            args: self.pexprs(&call.args)?,
            arg_types: call.args.iter().map(|a| a.ty().oid).collect(),
            filter,
            distinct: call.distinct,
            order,
            out: self.new_reg(),
        })
    }

    pub(super) fn sort_keys(&mut self, keys: &[SortKey]) -> Result<Vec<(PExpr, Order)>> {
        keys.iter().map(|k| Ok((self.pexpr(&k.expr)?, order_of(k)))).collect()
    }

    // ---- targets ----

    /// Runs the set-returning functions of the target list; targets then read their results.
    fn set_functions(&mut self, q: &Query, child: Plan) -> Result<Plan> {
        let mut calls: Vec<Expr> = Vec::new();
        let mut nested = false;
        let mut collect = |e: &Expr, level: u16| {
            if let Expr::SetCall { args, .. } = e
                && level == 0
            {
                nested |= args
                    .iter()
                    .any(|a| walk::any(a, &mut |e, _| matches!(e, Expr::SetCall { .. })));
                if !calls.contains(e) {
                    calls.push(e.clone());
                }
                return false;
            }
            true
        };
        q.targets.iter().for_each(|t| visit(&t.expr, 0, &mut collect));
        q.order_by.iter().for_each(|k| visit(&k.expr, 0, &mut collect));
        if calls.is_empty() {
            return Ok(child);
        }
        if nested {
            return Err(SqlError::unsupported("a set-returning function inside another one"));
        }
        let mut functions = Vec::with_capacity(calls.len());
        for call in calls {
            let Expr::SetCall { function, args, .. } = &call else { continue };
            let reg = self.new_reg();
            functions.push(SetFunction { function, args: self.pexprs(args)?, out: vec![reg] });
            self.scope().computed.push((call, reg));
        }
        let rows = child.rows * 1000.0;
        let mut plan = Plan::over(&child, Op::Result, rows, rows * TUPLE);
        plan.op = Op::ProjectSet { child: Box::new(child), functions };
        plan.ordering.clear();
        Ok(plan)
    }

    /// Computes the output columns.
    fn project(&mut self, q: &Query, child: Plan, output: Output) -> Result<(Plan, Vec<Reg>)> {
        let exprs: Vec<Expr> = q.targets.iter().map(|t| t.expr.clone()).collect();
        self.project_exprs(&exprs, child, output)
    }

    pub(super) fn project_exprs(
        &mut self,
        exprs: &[Expr],
        child: Plan,
        output: Output,
    ) -> Result<(Plan, Vec<Reg>)> {
        let mut out = Vec::with_capacity(exprs.len());
        let mut outputs = Vec::new();
        let together = match output {
            Output::Together => Some(self.new_regs(exprs.len())),
            Output::Anywhere => None,
        };
        for (i, e) in exprs.iter().enumerate() {
            let in_place = match e {
                _ if together.is_some() => None,
                Expr::Var(v) if v.level == 0 => Some(self.column(v)?),
                e => self.computed(e),
            };
            if let Some(reg) = in_place {
                out.push(reg);
                continue;
            }
            let compiled = self.pexpr(e)?;
            let reg = match &together {
                Some(regs) => regs[i],
                None => self.new_reg(),
            };
            outputs.push((compiled, reg));
            out.push(reg);
        }
        if outputs.is_empty() {
            return Ok((child, out));
        }
        let extra = child.rows * OPERATOR * outputs.len() as f64;
        let mut plan = Plan::over(&child, Op::Result, child.rows, extra);
        plan.width = exprs.iter().map(|e| type_width(e.ty().oid)).sum();
        plan.op = Op::Project { child: Box::new(child), outputs };
        Ok((plan, out))
    }

    fn unique(&mut self, q: &Query, child: Plan, regs: &[Reg]) -> Result<Plan> {
        let keys = regs.iter().zip(&q.targets).map(|(r, t)| (*r, t.expr.ty().oid)).collect();
        let texts = q.targets.iter().filter_map(|t| self.text(&t.expr)).collect();
        let computed: Vec<(Expr, Reg)> =
            q.targets.iter().zip(regs).map(|(t, r)| (t.expr.clone(), *r)).collect();
        // ORDER BY of SELECT DISTINCT speaks of the output columns.
        self.scope().computed.extend(computed);
        let mut plan = Plan::over(&child, Op::Result, child.rows * 0.5, child.rows * TUPLE);
        plan.op = Op::Unique { child: Box::new(child), keys, texts };
        Ok(plan)
    }

    fn distinct_on(&mut self, exprs: &[Expr], child: Plan) -> Result<Plan> {
        let mut outputs = Vec::new();
        let mut keys = Vec::new();
        let mut texts = Vec::new();
        for e in exprs {
            let reg = match e {
                Expr::Var(v) if v.level == 0 => self.column(v)?,
                e => match self.computed(e) {
                    Some(reg) => reg,
                    None => {
                        let reg = self.new_reg();
                        outputs.push((self.pexpr(e)?, reg));
                        reg
                    }
                },
            };
            keys.push((reg, e.ty().oid));
            texts.extend(self.text(e));
        }
        let mut child = child;
        if !outputs.is_empty() {
            let mut plan = Plan::over(&child, Op::Result, child.rows, 0.0);
            plan.op = Op::Project { child: Box::new(child), outputs };
            child = plan;
        }
        let mut plan = Plan::over(&child, Op::Result, child.rows * 0.5, child.rows * TUPLE);
        plan.op = Op::Unique { child: Box::new(child), keys, texts };
        Ok(plan)
    }

    // ---- order and limits ----

    pub(super) fn sort(&mut self, q: &Query, child: Plan) -> Result<Plan> {
        // A constant does not order anything.
        let by: Vec<SortKey> =
            q.order_by.iter().filter(|k| !matches!(k.expr, Expr::Const { .. })).cloned().collect();
        if by.is_empty() {
            return Ok(child);
        }
        let keys = self.sort_keys(&by)?;
        let sorted = keys.len() <= child.ordering.len()
            && keys.iter().zip(&child.ordering).all(|((e, o), have)| {
                matches!(e.ex, Ex::Reg(r) if r == have.reg)
                    && o.descending == have.descending
                    && o.nulls_first == have.nulls_first
            });
        if sorted {
            return Ok(child);
        }
        let n = child.rows.max(2.0);
        let startup = child.cost.total + n * n.log2() * 2.0 * OPERATOR;
        let cost = Cost { startup, total: startup + n * OPERATOR };
        let mut plan = Plan::new(Op::Result, child.rows, cost);
        plan.width = child.width;
        plan.op = Op::Sort { child: Box::new(child), keys };
        Ok(plan)
    }

    pub(super) fn limit(
        &mut self,
        limit: &Option<Expr>,
        offset: &Option<Expr>,
        child: Plan,
    ) -> Result<Plan> {
        if limit.is_none() && offset.is_none() {
            return Ok(child);
        }
        let skip = offset.as_ref().and_then(|e| self.row_count(e)).unwrap_or(0.0);
        let most = limit.as_ref().and_then(|e| self.row_count(e));
        let rows = most.map_or(child.rows - skip, |l| l.min(child.rows - skip)).max(1.0);
        let run = (child.cost.total - child.cost.startup) / child.rows.max(1.0);
        let mut plan = Plan::over(&child, Op::Result, rows, 0.0);
        plan.cost.startup = child.cost.startup + run * skip;
        plan.cost.total = plan.cost.startup + run * rows;
        let mut compile = |e: &Option<Expr>| e.as_ref().map(|e| self.pexpr(e)).transpose();
        let (limit, offset) = (compile(limit)?, compile(offset)?);
        plan.op = Op::Limit { child: Box::new(child), limit, offset };
        Ok(plan)
    }

    // ---- row locks ----

    fn lock_rows(&mut self, q: &Query, child: Plan, recheck: &[Expr]) -> Result<Plan> {
        let mut marks = Vec::new();
        for mark in &q.row_marks {
            let entry = self.scope().columns.get(usize::from(mark.rte)).cloned();
            let Some(Columns::Table(scan)) = entry else {
                // A sub-select or function: PostgreSQL locks the rows of a plain sub-select's
                // tables; the analyser has put marks inside where that applies.
                continue;
            };
            self.uses(&scan.table.clone(), TableUse::LockRows);
            marks.push(RowMarkPlan { scan, strength: mark.strength, wait: mark.wait });
        }
        if marks.is_empty() {
            let state = State::FEATURE_NOT_SUPPORTED;
            return Err(SqlError::new(state, "row locks need a table in FROM"));
        }
        let recheck = self.recheck(recheck)?;
        let mut plan = Plan::over(&child, Op::Result, child.rows, child.rows * TUPLE);
        plan.op = Op::LockRows { child: Box::new(child), marks, recheck };
        Ok(plan)
    }

    /// Compiles what a newer version of a row is held against.
    pub(super) fn recheck(&mut self, quals: &[Expr]) -> Result<Option<PExpr>> {
        self.rechecking = true;
        let compiled = self.filter(quals);
        self.rechecking = false;
        compiled
    }
}

pub(super) fn type_width(ty: Oid) -> u32 {
    crate::types::info(ty).map_or(32, |i| if i.len > 0 { i.len as u32 } else { 32 })
}
