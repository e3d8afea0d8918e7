//! UNION, INTERSECT, EXCEPT, and recursive common table expressions.

use super::estimate::*;
use super::planner::{Columns, CteRef, Output, Planned, Planner};
use super::*;
use crate::analyze::bound::*;
use crate::error::{Result, SqlError};

impl Planner<'_> {
    /// A set operation. ORDER BY refers to its columns as entry 0.
    pub(super) fn plan_set_operation(&mut self, q: &Query, output: Output) -> Result<Planned> {
        let types: Vec<Oid> = q.targets.iter().map(|t| t.expr.ty().oid).collect();
        let out = self.new_regs(q.targets.len());
        let mut plan = self.combine(q, &types, &out)?;
        let columns: Vec<RangeColumn> = q
            .targets
            .iter()
            .map(|t| RangeColumn { name: t.name.clone(), ty: t.expr.ty(), dropped: false })
            .collect();
        let source = RangeSource::Values { rows: vec![], lateral: false };
        let scope = self.scope();
        scope.rtes = vec![RangeEntry { name: String::new(), columns, source }];
        scope.columns = vec![Columns::Listed(out.clone())];
        plan = self.sort(q, plan)?;
        plan = self.limit(&q.limit, &q.offset, plan)?;
        let together = out.windows(2).all(|w| w[0] + 1 == w[1]);
        debug_assert!(together || output == Output::Anywhere, "registers are given in a row");
        Ok(Planned { plan, out, correlated: false })
    }

    fn combine(&mut self, q: &Query, types: &[Oid], out: &[Reg]) -> Result<Plan> {
        let op = q.set_operation.as_ref();
        let op = op.ok_or_else(|| SqlError::internal("not a set operation"))?;
        if op.op == SetOperator::Union {
            let mut children = Vec::new();
            self.union_branches(&op.left, op.all, &mut children)?;
            self.union_branches(&op.right, op.all, &mut children)?;
            let rows: f64 = children.iter().map(|c| c.0.rows).sum();
            let total: f64 = children.iter().map(|c| c.0.cost.total).sum();
            let width = children.first().map_or(0, |c| c.0.width);
            let cost = Cost { startup: 0.0, total: total + rows * TUPLE * 0.5 };
            let mut plan = Plan::new(Op::Append { children, out: out.to_vec() }, rows, cost);
            plan.width = width;
            if op.all {
                return Ok(plan);
            }
            let keys = out.iter().copied().zip(types.iter().copied()).collect();
            let texts = q.targets.iter().map(|t| t.name.clone().into_boxed_str()).collect();
            let mut unique = Plan::over(&plan, Op::Result, rows, rows * TUPLE);
            unique.op = Op::Unique { child: Box::new(plan), keys, texts };
            return Ok(unique);
        }
        let left = self.plan_query(&op.left, Output::Anywhere)?;
        let right = self.plan_query(&op.right, Output::Anywhere)?;
        let rows = left.plan.rows;
        let cost = Cost {
            startup: right.plan.cost.total,
            total: left.plan.cost.total + right.plan.cost.total + rows * TUPLE,
        };
        let width = left.plan.width;
        let op = Op::SetOp {
            left: (Box::new(left.plan), left.out),
            right: (Box::new(right.plan), right.out),
            out: out.to_vec(),
            types: types.to_vec(),
            except: op.op == SetOperator::Except,
            all: op.all,
        };
        let mut plan = Plan::new(op, rows, cost);
        plan.width = width;
        Ok(plan)
    }

    /// UNIONs of UNIONs are one append, when duplicates are treated alike.
    fn union_branches(
        &mut self,
        side: &Query,
        all: bool,
        children: &mut Vec<(Plan, Vec<Reg>)>,
    ) -> Result<()> {
        if let Some(op) = &side.set_operation
            && op.op == SetOperator::Union
            && (op.all == all || !all)
            && side.ctes.is_empty()
            && side.order_by.is_empty()
            && side.limit.is_none()
            && side.offset.is_none()
        {
            // The sides count levels through this set operation.
            self.scopes.push(super::planner::Scope::default());
            let result = self
                .union_branches(&op.left, all, children)
                .and_then(|()| self.union_branches(&op.right, all, children));
            self.scopes.pop();
            return result;
        }
        let planned = self.plan_query(side, Output::Anywhere)?;
        children.push((planned.plan, planned.out));
        Ok(())
    }

    /// WITH RECURSIVE name AS (first UNION [ALL] step).
    pub(super) fn plan_recursive(&mut self, cte: &Cte, i: usize) -> Result<Planned> {
        let q = &cte.query;
        let op = match &q.set_operation {
            Some(op) if op.op == SetOperator::Union => op,
            // Declared recursive but does not speak of itself.
            _ => return self.plan_query(q, Output::Anywhere),
        };
        if !q.order_by.is_empty() || q.limit.is_some() || q.offset.is_some() {
            let what = "ORDER BY, LIMIT or OFFSET in a recursive query";
            return Err(SqlError::unsupported(what));
        }
        let work = self.work_tables;
        self.work_tables += 1;
        let depth = self.scopes.len() - 1;
        let around = self.scopes[depth].ctes.len() - 1;
        debug_assert_eq!(around, i, "CTEs are planned in order");
        self.scopes[depth].ctes[i] =
            Some(CteRef { index: usize::MAX, depth: usize::MAX, read: false, work: Some(work) });
        self.scopes.push(super::planner::Scope::default());
        let result = self.plan_ctes(q).and_then(|()| {
            let first = self.plan_query(&op.left, Output::Anywhere)?;
            let step = self.plan_query(&op.right, Output::Anywhere)?;
            Ok((first, step))
        });
        self.scopes.pop();
        let (first, step) = result?;
        let types: Vec<Oid> = q.targets.iter().map(|t| t.expr.ty().oid).collect();
        let out = self.new_regs(types.len());
        let rows = first.plan.rows + step.plan.rows * 10.0;
        let total = first.plan.cost.total + step.plan.cost.total * 10.0;
        let width = first.plan.width;
        let op = Op::RecursiveUnion {
            first: (Box::new(first.plan), first.out),
            step: (Box::new(step.plan), step.out),
            out: out.clone(),
            distinct: (!op.all).then_some(types),
            work,
        };
        let mut plan = Plan::new(op, rows, Cost { startup: 0.0, total });
        plan.width = width;
        Ok(Planned { plan, out, correlated: false })
    }
}
