//! Running a plan: the operators, their registers, and what the session lends for each call.
//!
//! ```text
//!   Running::start ──> next ──> Row (row() is it) ──> next ... Done
//!        ^                 └──> Wait(h): wait, call next again
//!        └── restart: other parameters, another snapshot, the same operators and allocations
//! ```
//!
//! A [`Running`] owns everything but the session: it can be kept between calls while its client
//! fetches rows at leisure. The relation locks of its plan are held by then, and the snapshot is
//! announced; both are the session's affair.

use super::after::AfterQueue;
use super::build::{self, BuildEnv, Execution};
use super::expr::Ex;
use super::table::{CompiledParts, TableCache, TableExec};
use super::{ExecCx, Step, Store};
use crate::analyze::bound::Expr;
use crate::catalog::{CatalogSnapshot, IndexDef, TableDef};
use crate::error::Result;
use crate::functions::FnContext;
use crate::plan::{self, PlanEnv, StatementKind, StatementPlan};
use crate::types::Datum;
use inkling_storage::engine::Engine;
use inkling_storage::heap::VisState;
use inkling_storage::ids::CommandId;
use inkling_storage::txn::{Snapshot, Transaction};
use std::cell::RefCell;
use std::sync::Arc;

/// What the session lends to a running plan for one call.
pub struct ExecEnv<'a> {
    pub fx: &'a dyn FnContext,
    pub engine: &'a Arc<Engine>,
    pub tx: &'a RefCell<Transaction>,
    pub vis: &'a VisState,
    pub catalog: &'a Arc<CatalogSnapshot>,
    pub plan_env: &'a dyn PlanEnv,
    pub tables: &'a TableCache,
    pub after: &'a RefCell<AfterQueue>,
}

impl ExecEnv<'_> {
    pub(super) fn store(&self, snapshot: Snapshot, command: CommandId) -> Store<'_> {
        Store {
            engine: self.engine,
            tx: self.tx,
            visibility: self.vis,
            snapshot,
            command,
            after: self.after,
            crosscheck: None,
        }
    }

    /// The storage engine as of now.
    pub(crate) fn latest(&self) -> Store<'_> {
        let (snapshot, command) = {
            let mut tx = self.tx.borrow_mut();
            (tx.latest_snapshot(), tx.command_id())
        };
        self.store(snapshot, command)
    }

    fn index_parts(&self, table: &Arc<TableDef>, index: &IndexDef) -> Result<CompiledParts> {
        let parts = self.plan_env.index_parts(table, index)?;
        let mut registers = 0;
        let mut compile = |e: &Expr| {
            let (ex, needs) = plan::compile_row_expr(self.plan_env, e)?;
            registers = registers.max(needs);
            Ok(ex)
        };
        let exprs = parts
            .exprs
            .iter()
            .map(|e| e.as_ref().map(&mut compile).transpose())
            .collect::<Result<Vec<_>>>()?;
        let predicate = parts.predicate.as_ref().map(&mut compile).transpose()?;
        Ok(CompiledParts { exprs, predicate, registers })
    }
}

impl BuildEnv for ExecEnv<'_> {
    fn table(&self, def: &Arc<TableDef>) -> Result<Arc<TableExec>> {
        self.tables.get(def, &|index| self.index_parts(def, index))
    }
}

/// One executing statement. See the module's essay.
pub struct Running {
    plan: Arc<StatementPlan>,
    params: Vec<Datum>,
    snapshot: Snapshot,
    command: CommandId,
    crosscheck: Option<Snapshot>,
    execution: Execution,
    /// Sub-plans that run first and have run.
    prepared: usize,
    rows: u64,
    written: u64,
}

impl Running {
    /// Makes the operators; nothing runs yet.
    pub fn start(
        plan: Arc<StatementPlan>,
        params: Vec<Datum>,
        snapshot: Snapshot,
        env: &ExecEnv<'_>,
    ) -> Result<Running> {
        Self::begin(plan, params, snapshot, env, false)
    }

    /// The same, with every operator measured: for EXPLAIN ANALYZE.
    pub fn start_measured(
        plan: Arc<StatementPlan>,
        snapshot: Snapshot,
        env: &ExecEnv<'_>,
    ) -> Result<Running> {
        Self::begin(plan, Vec::new(), snapshot, env, true)
    }

    fn begin(
        plan: Arc<StatementPlan>,
        params: Vec<Datum>,
        snapshot: Snapshot,
        env: &ExecEnv<'_>,
        measure: bool,
    ) -> Result<Running> {
        let execution = build::build(&plan, env, measure)?;
        Ok(Running {
            plan,
            params,
            snapshot,
            command: env.tx.borrow().command_id(),
            crosscheck: None,
            execution,
            prepared: 0,
            rows: 0,
            written: 0,
        })
    }

    /// Runs the same operators once more.
    pub fn restart(
        &mut self,
        params: Vec<Datum>,
        snapshot: Snapshot,
        env: &ExecEnv<'_>,
    ) -> Result<()> {
        self.params = params;
        self.snapshot = snapshot;
        self.command = env.tx.borrow().command_id();
        self.crosscheck = None;
        self.prepared = 0;
        self.rows = 0;
        self.written = 0;
        self.execution.run += 1;
        self.execution.subplans.iter_mut().flatten().for_each(|s| s.reset());
        self.execution.ctes.iter_mut().flatten().for_each(|c| c.reset());
        self.execution.work_tables.iter_mut().for_each(super::rows::RowStore::clear);
        self.with_cx(env, |execution_root, cx| execution_root.rescan(cx))
    }

    /// Rows that this snapshot does not see fail the statement when it would write them.
    pub fn set_crosscheck(&mut self, snapshot: Option<Snapshot>) {
        self.crosscheck = snapshot;
    }

    /// Lends the kept registers and sub-plans to a context for one call.
    fn with_cx<T>(
        &mut self,
        env: &ExecEnv<'_>,
        f: impl FnOnce(&mut dyn super::Node, &mut ExecCx<'_>) -> Result<T>,
    ) -> Result<T> {
        let e = &mut self.execution;
        let store = env.store(self.snapshot, self.command);
        let store = Store { crosscheck: self.crosscheck, ..store };
        let mut cx = ExecCx::new(env.fx, &self.params).with_store(store);
        cx.regs = std::mem::take(&mut e.registers);
        cx.subplans = std::mem::take(&mut e.subplans);
        cx.ctes = std::mem::take(&mut e.ctes);
        cx.work_tables = std::mem::take(&mut e.work_tables);
        cx.stats = std::mem::take(&mut e.stats);
        cx.raw = std::mem::take(&mut e.raw);
        cx.run = e.run;
        cx.written = self.written;
        let outcome = f(e.root.as_mut(), &mut cx);
        self.written = cx.written;
        e.registers = cx.regs;
        e.subplans = cx.subplans;
        e.ctes = cx.ctes;
        e.work_tables = cx.work_tables;
        e.stats = cx.stats;
        e.raw = cx.raw;
        outcome
    }

    /// The next row, the end, or something to wait for.
    pub fn next(&mut self, env: &ExecEnv<'_>) -> Result<Step> {
        let first = std::mem::take(&mut self.execution.first);
        let mut prepared = self.prepared;
        let outcome = self.with_cx(env, |root, cx| {
            while let Some(index) = first.get(prepared) {
                let Some(mut sub) = cx.subplans[*index].take() else { break };
                let waited = sub.prepare_scalar(cx);
                cx.subplans[*index] = Some(sub);
                if let Some(handle) = waited? {
                    return Ok(Step::Wait(handle));
                }
                prepared += 1;
            }
            root.next(cx)
        });
        self.execution.first = first;
        self.prepared = prepared;
        if matches!(outcome, Ok(Step::Row)) {
            self.rows += 1;
        }
        outcome
    }

    /// The output row, after [`Step::Row`]; empty when the statement returns none.
    #[inline]
    pub fn row(&self) -> &[Datum] {
        match &self.plan.output {
            Some((first, types)) => {
                let first = *first as usize;
                &self.execution.registers[first..first + types.len()]
            }
            None => &[],
        }
    }

    /// What it sees.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// Rows written (with or without RETURNING), or returned by a SELECT.
    pub fn processed(&self) -> u64 {
        match self.plan.kind {
            StatementKind::Select => self.rows,
            // Operators that write count every row, given back or not.
            _ => self.written,
        }
    }

    /// What the operators measured, for EXPLAIN ANALYZE.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }
}

/// An expression over the columns of one row: `Var(0, 0, col)`.
pub struct RowExpr {
    ex: Ex,
    registers: usize,
}

/// Compiles an expression over one table's row.
pub fn compile_row_expr(env: &dyn PlanEnv, e: &Expr) -> Result<RowExpr> {
    let (ex, registers) = plan::compile_row_expr(env, e)?;
    Ok(RowExpr { ex, registers })
}

impl RowExpr {
    pub fn eval(&self, row: &[Datum], fx: &dyn FnContext) -> Result<Datum> {
        let mut cx = ExecCx::new(fx, &[]);
        cx.regs = row.to_vec();
        cx.regs.resize(self.registers.max(row.len()), Datum::Null);
        self.ex.eval(&mut cx)
    }
}

/// Evaluates an expression that reads no row, such as an argument of EXECUTE.
pub fn eval_const(
    env: &dyn PlanEnv,
    e: &Expr,
    fx: &dyn FnContext,
    params: &[Datum],
) -> Result<Datum> {
    let (ex, registers) = plan::compile_row_expr(env, e)?;
    let mut cx = ExecCx::new(fx, params);
    cx.regs.resize(registers, Datum::Null);
    ex.eval(&mut cx)
}
