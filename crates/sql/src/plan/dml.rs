//! INSERT, UPDATE, DELETE: what chooses the rows, what is written, what comes back.
//!
//! The table has one block of registers. Before the change it holds the row as read (UPDATE,
//! DELETE); while CHECK conditions and RETURNING are evaluated it holds the row as written.

use super::estimate::*;
use super::planner::{Columns, Output, Planned, Planner};
use super::*;
use crate::analyze::bound::*;
use crate::error::{Result, SqlError};

impl Planner<'_> {
    /// A scope in which entry 0 (and 1: EXCLUDED) is the table's row.
    fn row_scope(&mut self, blocks: &[ScanTable]) {
        let scope = super::planner::Scope {
            rtes: blocks.iter().map(entry).collect(),
            columns: blocks.iter().cloned().map(Columns::Table).collect(),
            leaves: vec![None; blocks.len()],
            needs: vec![0; blocks.len()],
            ..Default::default()
        };
        self.scopes.push(scope);
    }

    fn checks(&mut self, checks: &[(String, Expr)]) -> Result<Vec<(String, PExpr)>> {
        checks.iter().map(|(name, e)| Ok((name.clone(), self.pexpr(e)?))).collect()
    }

    fn assignments(&mut self, list: &[(i16, Expr)]) -> Result<Vec<(usize, PExpr)>> {
        let mut out = Vec::with_capacity(list.len());
        for (attnum, e) in list {
            out.push((*attnum as usize - 1, self.pexpr(e)?));
        }
        out.sort_by_key(|a| a.0);
        Ok(out)
    }

    fn returning(&mut self, targets: &[Expr]) -> Result<Vec<(PExpr, Reg)>> {
        let regs = self.new_regs(targets.len());
        targets.iter().zip(regs).map(|(e, r)| Ok((self.pexpr(e)?, r))).collect()
    }

    pub(super) fn plan_insert(&mut self, i: &Insert) -> Result<Planned> {
        self.uses(&i.table, TableUse::Write);
        let scan = self.table_block(&i.table, &i.table.name);
        let sub_select =
            |t: &Target| walk::any(&t.expr, &mut |e, _| matches!(e, Expr::Subquery(_)));
        if !i.source.ctes.is_empty() && i.returning.iter().flatten().any(sub_select) {
            // They would be planned in a scope that does not have the source's WITH.
            return Err(SqlError::unsupported("a sub-select in RETURNING of INSERT with WITH"));
        }
        let child = self.plan_query(&i.source, Output::Anywhere)?;
        self.row_scope(std::slice::from_ref(&scan));
        let result = self.insert_action(i, &scan, &child);
        self.scopes.pop();
        let (action, checks, returning) = result?;
        self.modify(child.plan, scan, action, checks, returning)
    }

    #[allow(clippy::type_complexity)]
    fn insert_action(
        &mut self,
        i: &Insert,
        scan: &ScanTable,
        child: &Planned,
    ) -> Result<(ModifyAction, Vec<(String, PExpr)>, Option<Vec<(PExpr, Reg)>>)> {
        let mut values = Vec::new();
        for (attnum, reg) in i.columns.iter().zip(&child.out) {
            let value = PExpr { ex: Ex::Reg(*reg), text: None };
            values.push((*attnum as usize - 1, value));
        }
        for (attnum, e) in &i.defaults {
            values.push((*attnum as usize - 1, self.pexpr(e)?));
        }
        values.sort_by_key(|v| v.0);
        let checks = self.checks(&i.checks)?;
        let targets: Option<Vec<Expr>> =
            i.returning.as_ref().map(|t| t.iter().map(|t| t.expr.clone()).collect());
        let returning = match &targets {
            Some(t) => Some(self.returning(t)?),
            None => None,
        };
        let conflict = match &i.on_conflict {
            None => None,
            Some(c) => Some(self.conflict(i, c, scan, &targets, &returning)?),
        };
        Ok((ModifyAction::Insert { values, conflict }, checks, returning))
    }

    fn conflict(
        &mut self,
        i: &Insert,
        c: &OnConflict,
        scan: &ScanTable,
        targets: &Option<Vec<Expr>>,
        returning: &Option<Vec<(PExpr, Reg)>>,
    ) -> Result<ConflictPlan> {
        let arbiters = c.arbiters.clone();
        let ConflictAction::Update { assignments, filter } = &c.action else {
            return Ok(ConflictPlan { arbiters, update: None });
        };
        let existing = self.table_block(&i.table, &i.table.name);
        let mut excluded = scan.clone();
        excluded.alias = "excluded".to_owned();
        self.row_scope(&[existing.clone(), excluded]);
        let compile = || -> Result<ConflictUpdate> {
            let assignments = self.assignments(assignments)?;
            let filter = match filter {
                Some(f) => Some(self.pexpr(f)?),
                None => None,
            };
            let checks = self.checks(&i.checks)?;
            // The same output registers, whichever way the row went.
            let returning = match (targets, returning) {
                (Some(t), Some(out)) => {
                    let mut list = Vec::with_capacity(t.len());
                    for (e, (_, reg)) in t.iter().zip(out) {
                        list.push((self.pexpr(e)?, *reg));
                    }
                    Some(list)
                }
                _ => None,
            };
            Ok(ConflictUpdate { existing, assignments, filter, checks, returning })
        };
        let compiled = compile();
        self.scopes.pop();
        Ok(ConflictPlan { arbiters, update: Some(compiled?) })
    }

    pub(super) fn plan_update(&mut self, u: &Update) -> Result<Planned> {
        let assigned = u.assignments.len();
        let mut extra: Vec<Expr> = u.assignments.iter().map(|a| a.1.clone()).collect();
        extra.extend(u.returning.iter().flatten().map(|t| t.expr.clone()));
        self.scopes.push(super::planner::Scope::default());
        let result = self.rows_to_write(&u.table, u.target_rte, &u.query, extra);
        let result = result.and_then(|(plan, recheck, extra, scan)| {
            let (values, targets) = extra.split_at(assigned);
            let list: Vec<(i16, Expr)> =
                u.assignments.iter().zip(values).map(|(a, e)| (a.0, e.clone())).collect();
            let assignments = self.assignments(&list)?;
            let recheck = self.recheck(&recheck)?;
            let returning = match &u.returning {
                Some(_) => Some(self.returning(targets)?),
                None => None,
            };
            self.row_scope(std::slice::from_ref(&scan));
            let checks = self.checks(&u.checks);
            self.scopes.pop();
            let action = ModifyAction::Update { assignments, recheck };
            self.modify(plan, scan, action, checks?, returning)
        });
        self.scopes.pop();
        result
    }

    pub(super) fn plan_delete(&mut self, d: &Delete) -> Result<Planned> {
        let extra: Vec<Expr> = d.returning.iter().flatten().map(|t| t.expr.clone()).collect();
        self.scopes.push(super::planner::Scope::default());
        let result = self.rows_to_write(&d.table, d.target_rte, &d.query, extra);
        let result = result.and_then(|(plan, recheck, targets, scan)| {
            let recheck = self.recheck(&recheck)?;
            let returning = match &d.returning {
                Some(_) => Some(self.returning(&targets)?),
                None => None,
            };
            let action = ModifyAction::Delete { recheck };
            self.modify(plan, scan, action, Vec::new(), returning)
        });
        self.scopes.pop();
        result
    }

    #[allow(clippy::type_complexity)]
    fn rows_to_write(
        &mut self,
        table: &Arc<TableDef>,
        rte: u16,
        q: &Query,
        extra: Vec<Expr>,
    ) -> Result<(Plan, Vec<Expr>, Vec<Expr>, ScanTable)> {
        let (plan, recheck, extra) = self.plan_rows(q, extra)?;
        self.uses(table, TableUse::Write);
        match self.table_of(rte) {
            Some(scan) => Ok((plan, recheck, extra, scan)),
            None => Err(SqlError::internal("the table to write is not in the query")),
        }
    }

    fn modify(
        &mut self,
        child: Plan,
        scan: ScanTable,
        action: ModifyAction,
        checks: Vec<(String, PExpr)>,
        returning: Option<Vec<(PExpr, Reg)>>,
    ) -> Result<Planned> {
        let out = returning.iter().flatten().map(|r| r.1).collect();
        let rows = if returning.is_some() { child.rows } else { 0.0 };
        let mut plan = Plan::over(&child, Op::Result, rows, child.rows * TUPLE);
        plan.ordering.clear();
        let modify = Box::new(ModifyPlan { scan, action, checks, returning });
        plan.op = Op::Modify { child: Box::new(child), modify };
        Ok(Planned { plan, out, correlated: false })
    }
}

fn entry(scan: &ScanTable) -> RangeEntry {
    let columns = scan
        .table
        .columns
        .iter()
        .map(|c| RangeColumn { name: c.name.clone(), ty: c.ty, dropped: c.dropped })
        .collect();
    let source = RangeSource::Table(scan.table.clone());
    RangeEntry { name: scan.alias.clone(), columns, source }
}
