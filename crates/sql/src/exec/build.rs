//! From a plan to running operators.
//!
//! The tree is walked from the root with the set of registers that are *live*: read by something
//! above. A scan decodes the live columns of its table and those of its filter; a sort keeps the
//! live registers of its input. What a sub-plan reads counts where its expression stands.

use super::aggregate::{Aggregate, HashAggregate};
use super::basic::{Append, Branch, Filter, Limit, Materialize, OneRow, Output, Project};
use super::expr::Ex;
use super::join::{HashJoin, HashJoinParts, NestedLoop};
use super::scan::{self, IndexScan, Load, SeqScan, TidScan};
use super::sets::{CteScan, CteState, RecursiveUnion, SetOp, Unique, WorkTableScan};
use super::sort::Sort;
use super::source::{FunctionScan, ProjectSet, SetCall, ValuesScan};
use super::subplan::SubPlanState;
use super::table::TableExec;
use super::window::{Call, Window};
use super::write::{
    Conflict, ConflictUpdate, Delete, Insert, LockRows, Mark, Recheck, Target, Update,
};
use super::{ExecCx, Node, Reg, Step};
use crate::catalog::TableDef;
use crate::error::{Result, SqlError, State};
use crate::functions::Implementation;
use crate::plan::*;
use crate::types::Datum;
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A set of registers.
#[derive(Clone, Default)]
pub struct RegSet(Vec<u64>);

/// Stands for "what a work table holds", which no plan writes.
const OUTSIDE: Reg = 1 << 24;

impl RegSet {
    pub fn insert(&mut self, r: Reg) {
        let word = r as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (r % 64);
    }

    fn insert_all(&mut self, regs: &[Reg]) {
        regs.iter().for_each(|r| self.insert(*r));
    }

    pub fn contains(&self, r: Reg) -> bool {
        self.0.get(r as usize / 64).is_some_and(|w| w & (1 << (r % 64)) != 0)
    }

    fn add(&mut self, other: &RegSet) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    fn remove(&mut self, other: &RegSet) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= !b;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// Registers in both, ascending.
    fn common(&self, other: &RegSet) -> Vec<Reg> {
        let mut out = Vec::new();
        for (i, (a, b)) in self.0.iter().zip(&other.0).enumerate() {
            let mut bits = a & b;
            while bits != 0 {
                out.push((i * 64) as u32 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        out
    }
}

/// Plans beside the main one, for what expressions and CTE scans read through them.
#[derive(Clone, Copy)]
pub struct Around<'p> {
    pub subplans: &'p [SubPlan],
    pub ctes: &'p [CtePlan],
}

/// The registers that a plan reads and does not write itself.
pub fn inputs(plan: &Plan, around: Around<'_>) -> RegSet {
    let mut reads = RegSet::default();
    let mut writes = RegSet::default();
    all_io(plan, around, &mut reads, &mut writes);
    reads.remove(&writes);
    reads
}

fn all_io(plan: &Plan, around: Around<'_>, reads: &mut RegSet, writes: &mut RegSet) {
    own_io(plan, around, reads, writes);
    for child in plan.op.children() {
        all_io(child, around, reads, writes);
    }
}

fn ex_io(ex: &Ex, around: Around<'_>, reads: &mut RegSet, writes: &mut RegSet) {
    ex.visit(&mut |e| match e {
        Ex::Reg(r) => reads.insert(*r),
        Ex::Case { operand: Some((_, r)), .. } | Ex::CoerceArray { reg: r, .. } => {
            writes.insert(*r);
        }
        Ex::SubPlan { index, .. } => {
            if let Some(sub) = around.subplans.get(*index) {
                reads.add(&inputs(&sub.plan, around));
            }
        }
        _ => {}
    });
}

/// What the operator itself reads and writes.
fn own_io(plan: &Plan, around: Around<'_>, reads: &mut RegSet, writes: &mut RegSet) {
    let mut exprs: Vec<&Ex> = Vec::new();
    match &plan.op {
        Op::Result | Op::SubqueryScan { .. } | Op::Materialize { .. } => {}
        Op::SeqScan { .. } | Op::TidScan { .. } | Op::IndexScan(_) => {
            table_io(&plan.op, &mut exprs, writes);
        }
        Op::FunctionScan { .. }
        | Op::ProjectSet { .. }
        | Op::ValuesScan { .. }
        | Op::CteScan { .. }
        | Op::WorkTableScan { .. } => source_io(&plan.op, around, &mut exprs, reads, writes),
        Op::NestedLoop { filter, .. } => exprs.extend(filter.iter().map(|f| &f.ex)),
        Op::HashJoin { keys, filter, .. } => {
            exprs.extend(filter.iter().map(|f| &f.ex));
            exprs.extend(keys.iter().flat_map(|(l, r, _)| [&l.ex, &r.ex]));
        }
        Op::Filter { filter, .. } => exprs.push(&filter.ex),
        Op::Project { outputs, .. } => {
            for (e, r) in outputs {
                exprs.push(&e.ex);
                writes.insert(*r);
            }
        }
        Op::Aggregate { .. } | Op::Window { .. } => group_io(&plan.op, &mut exprs, writes),
        Op::Sort { keys, .. } => exprs.extend(keys.iter().map(|k| &k.0.ex)),
        Op::Limit { limit, offset, .. } => {
            exprs.extend(limit.iter().chain(offset).map(|e| &e.ex));
        }
        Op::Unique { keys, .. } => keys.iter().for_each(|k| reads.insert(k.0)),
        Op::Append { children, out } => {
            writes.insert_all(out);
            children.iter().for_each(|c| reads.insert_all(&c.1));
        }
        Op::SetOp { left, right, out, .. }
        | Op::RecursiveUnion { first: left, step: right, out, .. } => {
            writes.insert_all(out);
            reads.insert_all(&left.1);
            reads.insert_all(&right.1);
        }
        Op::LockRows { marks, recheck, .. } => {
            marks.iter().for_each(|m| reads.insert(m.scan.ctid()));
            exprs.extend(recheck.iter().map(|e| &e.ex));
        }
        Op::Modify { modify, .. } => modify_io(modify, &mut exprs, reads, writes),
    }
    for ex in exprs {
        ex_io(ex, around, reads, writes);
    }
}

/// The scans of tables.
fn table_io<'p>(op: &'p Op, exprs: &mut Vec<&'p Ex>, writes: &mut RegSet) {
    let scan = match op {
        Op::SeqScan { scan, filter } => {
            exprs.extend(filter.iter().map(|f| &f.ex));
            scan
        }
        Op::TidScan { scan, tids, filter, .. } => {
            exprs.extend(tids.iter().chain(filter).map(|f| &f.ex));
            scan
        }
        Op::IndexScan(i) => {
            exprs.extend(i.filter.iter().map(|f| &f.ex));
            exprs.extend(i.lower.iter().chain(&i.upper).map(|b| &b.value.ex));
            for key in &i.prefix {
                match key {
                    KeyCond::Equal(e) | KeyCond::AnyOf(e) => exprs.push(&e.ex),
                    KeyCond::In(items) => exprs.extend(items.iter().map(|e| &e.ex)),
                    KeyCond::IsNull => {}
                }
            }
            &i.scan
        }
        _ => return,
    };
    (scan.base..scan.end()).for_each(|r| writes.insert(r));
}

/// The other sources of rows.
fn source_io<'p>(
    op: &'p Op,
    around: Around<'_>,
    exprs: &mut Vec<&'p Ex>,
    reads: &mut RegSet,
    writes: &mut RegSet,
) {
    match op {
        Op::FunctionScan { functions, .. } | Op::ProjectSet { functions, .. } => {
            for f in functions {
                writes.insert_all(&f.out);
                exprs.extend(f.args.iter().map(|a| &a.ex));
            }
            if let Op::FunctionScan { ordinality: Some(reg), .. } = op {
                writes.insert(*reg);
            }
        }
        Op::ValuesScan { rows, out, .. } => {
            writes.insert_all(out);
            exprs.extend(rows.iter().flatten().map(|e| &e.ex));
        }
        Op::CteScan { cte, out, .. } => {
            writes.insert_all(out);
            if let Some(cte) = around.ctes.get(*cte) {
                reads.add(&inputs(&cte.plan, around));
            }
        }
        Op::WorkTableScan { out, .. } => {
            writes.insert_all(out);
            reads.insert(OUTSIDE);
        }
        _ => {}
    }
}

fn group_io<'p>(op: &'p Op, exprs: &mut Vec<&'p Ex>, writes: &mut RegSet) {
    match op {
        Op::Aggregate { keys, aggregates, .. } => {
            for (e, r, _) in keys {
                exprs.push(&e.ex);
                writes.insert(*r);
            }
            for a in aggregates {
                writes.insert(a.out);
                exprs.extend(a.args.iter().chain(&a.filter).map(|e| &e.ex));
                exprs.extend(a.order.iter().map(|o| &o.0.ex));
            }
        }
        Op::Window { window, .. } => {
            exprs.extend(window.partition.iter().map(|p| &p.0.ex));
            exprs.extend(window.order.iter().map(|p| &p.0.ex));
            for c in &window.calls {
                writes.insert(c.out);
                exprs.extend(c.args.iter().chain(&c.filter).map(|e| &e.ex));
            }
        }
        _ => {}
    }
}

fn modify_io<'p>(
    m: &'p ModifyPlan,
    exprs: &mut Vec<&'p Ex>,
    reads: &mut RegSet,
    writes: &mut RegSet,
) {
    exprs.extend(m.checks.iter().map(|c| &c.1.ex));
    exprs.extend(m.returning.iter().flatten().map(|r| &r.0.ex));
    m.returning.iter().flatten().for_each(|r| writes.insert(r.1));
    match &m.action {
        ModifyAction::Insert { values, conflict } => {
            (m.scan.base..m.scan.end()).for_each(|r| writes.insert(r));
            exprs.extend(values.iter().map(|v| &v.1.ex));
            if let Some(ConflictPlan { update: Some(u), .. }) = conflict {
                (u.existing.base..u.existing.end()).for_each(|r| writes.insert(r));
                exprs.extend(u.assignments.iter().map(|a| &a.1.ex));
                exprs.extend(u.filter.iter().map(|f| &f.ex));
                exprs.extend(u.checks.iter().map(|c| &c.1.ex));
                exprs.extend(u.returning.iter().flatten().map(|r| &r.0.ex));
            }
        }
        ModifyAction::Update { assignments, recheck } => {
            reads.insert(m.scan.ctid());
            exprs.extend(assignments.iter().map(|a| &a.1.ex));
            exprs.extend(recheck.iter().map(|e| &e.ex));
        }
        ModifyAction::Delete { recheck } => {
            reads.insert(m.scan.ctid());
            exprs.extend(recheck.iter().map(|e| &e.ex));
        }
    }
}

/// Time and rows of one operator, for EXPLAIN ANALYZE.
#[derive(Clone, Copy, Default, Debug)]
pub struct NodeStats {
    pub loops: u64,
    pub rows: u64,
    pub total: Duration,
    /// Until the first row, all loops together.
    pub startup: Duration,
}

/// Measures what it wraps.
struct Measured {
    node: Box<dyn Node>,
    index: usize,
    fresh: bool,
}

impl Node for Measured {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        let start = Instant::now();
        let step = self.node.next(cx);
        let took = start.elapsed();
        let stats = &mut cx.stats[self.index];
        stats.total += took;
        if std::mem::replace(&mut self.fresh, false) {
            stats.loops += 1;
            stats.startup += took;
        }
        if matches!(step, Ok(Step::Row)) {
            stats.rows += 1;
        }
        step
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.fresh = true;
        let start = Instant::now();
        let result = self.node.rescan(cx);
        cx.stats[self.index].total += start.elapsed();
        result
    }

    fn set_bound(&mut self, rows: Option<u64>) {
        self.node.set_bound(rows);
    }
}

/// A statement ready to run; kept with its prepared statement between runs.
pub struct Execution {
    pub root: Box<dyn Node>,
    pub registers: Vec<Datum>,
    pub subplans: Vec<Option<Box<SubPlanState>>>,
    pub ctes: Vec<Option<Box<CteState>>>,
    pub work_tables: Vec<super::rows::RowStore>,
    /// Sub-plans that take row locks: run first.
    pub first: Vec<usize>,
    pub stats: Vec<NodeStats>,
    /// Where EXPLAIN ANALYZE finds an operator's numbers: by the address of its plan.
    pub measured: HashMap<usize, usize>,
    pub raw: inkling_storage::heap::TupleBuf,
    pub run: u64,
}

/// What building needs besides the plan.
pub trait BuildEnv {
    fn table(&self, def: &Arc<TableDef>) -> Result<Arc<TableExec>>;
}

pub fn build(plan: &StatementPlan, env: &dyn BuildEnv, measure: bool) -> Result<Execution> {
    let around = Around { subplans: &plan.subplans, ctes: &plan.ctes };
    let mut b = Builder { env, around, measure, measured: HashMap::new() };
    let mut live = RegSet::default();
    if let Some((first, types)) = &plan.output {
        (*first..*first + types.len() as u32).for_each(|r| live.insert(r));
    }
    let root = b.node(&plan.root, &live)?;
    let mut subplans = Vec::with_capacity(plan.subplans.len());
    for sub in &plan.subplans {
        let mut live = RegSet::default();
        sub.output.iter().for_each(|r| live.insert(*r));
        let node = b.node(&sub.plan, &live)?;
        let (kind, output) = (sub.kind.kind(), sub.output.clone());
        subplans.push(Some(Box::new(SubPlanState::new(node, kind, output, sub.correlated))));
    }
    let mut ctes = Vec::with_capacity(plan.ctes.len());
    for cte in &plan.ctes {
        let mut live = RegSet::default();
        cte.output.iter().for_each(|r| live.insert(*r));
        let node = b.node(&cte.plan, &live)?;
        ctes.push(Some(Box::new(CteState::new(node, cte.output.clone(), cte.correlated))));
    }
    let first = (0..plan.subplans.len()).filter(|i| plan.subplans[*i].locks_rows).collect();
    Ok(Execution {
        root,
        registers: vec![Datum::Null; plan.registers as usize],
        subplans,
        ctes,
        work_tables: (0..plan.work_tables).map(|_| Default::default()).collect(),
        first,
        stats: vec![NodeStats::default(); b.measured.len()],
        measured: b.measured,
        raw: Default::default(),
        run: 0,
    })
}

struct Builder<'p> {
    env: &'p dyn BuildEnv,
    around: Around<'p>,
    measure: bool,
    measured: HashMap<usize, usize>,
}

fn exes(list: &[PExpr]) -> Vec<Ex> {
    list.iter().map(|e| e.ex.clone()).collect()
}

fn ex(e: &Option<PExpr>) -> Option<Ex> {
    e.as_ref().map(|e| e.ex.clone())
}

impl Builder<'_> {
    /// `live`: what is read above.
    fn node(&mut self, plan: &Plan, live: &RegSet) -> Result<Box<dyn Node>> {
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || {
            let node = self.operator(plan, live)?;
            let transparent = matches!(plan.op, Op::SubqueryScan { .. });
            if !self.measure || transparent {
                return Ok(node);
            }
            let index = self.measured.len();
            self.measured.insert(std::ptr::from_ref(plan) as usize, index);
            Ok(Box::new(Measured { node, index, fresh: true }) as Box<dyn Node>)
        })
    }

    /// What is read above the operator's inputs: `live` and what it reads itself.
    fn below(&self, plan: &Plan, live: &RegSet) -> RegSet {
        let mut reads = live.clone();
        let mut writes = RegSet::default();
        own_io(plan, self.around, &mut reads, &mut writes);
        reads
    }

    /// The live registers that a plan writes.
    fn produced(&self, plan: &Plan, live: &RegSet) -> Vec<Reg> {
        let (mut reads, mut writes) = (RegSet::default(), RegSet::default());
        all_io(plan, self.around, &mut reads, &mut writes);
        writes.common(live)
    }

    fn operator(&mut self, plan: &Plan, live: &RegSet) -> Result<Box<dyn Node>> {
        let below = self.below(plan, live);
        Ok(match &plan.op {
            Op::Result => Box::new(OneRow::default()),
            Op::SeqScan { scan, filter } => {
                Box::new(SeqScan::new(self.load(scan, live, ex(filter))?))
            }
            Op::TidScan { scan, tids, filter, .. } => {
                Box::new(TidScan::new(self.load(scan, live, ex(filter))?, exes(tids)))
            }
            Op::IndexScan(i) => self.index_scan(i, live)?,
            Op::FunctionScan { functions, ordinality, .. } => {
                Box::new(FunctionScan::new(set_calls(functions), *ordinality))
            }
            Op::ValuesScan { rows, out, .. } => {
                let rows = rows.iter().map(|r| exes(r)).collect();
                Box::new(ValuesScan::new(rows, out.clone()))
            }
            Op::CteScan { cte, out, leader, .. } => {
                Box::new(CteScan::new(*cte, out.clone(), *leader))
            }
            Op::WorkTableScan { work, out, .. } => Box::new(WorkTableScan::new(*work, out.clone())),
            Op::SubqueryScan { child, .. } => self.node(child, live)?,
            Op::NestedLoop { .. } | Op::HashJoin { .. } => self.join(plan, &below)?,
            Op::Materialize { child, fixed } => {
                let saved = self.produced(child, live);
                Box::new(Materialize::new(self.node(child, live)?, saved, *fixed))
            }
            Op::Filter { child, filter, once } => {
                Box::new(Filter::new(self.node(child, &below)?, filter.ex.clone(), *once))
            }
            Op::Project { child, outputs } => self.project(child, outputs, live, &below)?,
            Op::ProjectSet { child, functions } => {
                Box::new(ProjectSet::new(self.node(child, &below)?, set_calls(functions)))
            }
            Op::Aggregate { .. } => self.aggregate(plan, live, &below)?,
            Op::Window { child, window } => self.window(child, window, &below)?,
            Op::Sort { child, keys } => {
                let saved = self.produced(child, live);
                let child = self.node(child, &below)?;
                let orders = keys.iter().map(|k| k.1).collect();
                let keys = keys.iter().map(|k| k.0.ex.clone()).collect();
                Box::new(Sort::new(child, keys, orders, saved))
            }
            Op::Limit { child, limit, offset } => {
                Box::new(Limit::new(self.node(child, &below)?, ex(limit), ex(offset)))
            }
            Op::Unique { child, keys, .. } => {
                let child = self.node(child, &below)?;
                let (regs, types) = keys.iter().copied().unzip();
                Box::new(Unique::new(child, regs, types))
            }
            Op::LockRows { child, marks, recheck } => {
                let child = self.node(child, &below)?;
                let mut built = Vec::with_capacity(marks.len());
                for m in marks {
                    let load = self.load(&m.scan, &below, None)?;
                    built.push(Mark {
                        ctid: m.scan.ctid(),
                        strength: m.strength,
                        policy: m.wait,
                        recheck: Recheck::new(load, ex(recheck)),
                    });
                }
                Box::new(LockRows::new(child, built))
            }
            Op::Modify { child, modify } => self.modify(child, modify, &below)?,
            Op::Append { .. } | Op::SetOp { .. } | Op::RecursiveUnion { .. } => self.sets(plan)?,
        })
    }

    /// How a table's rows are loaded: the filter's columns first, then the other live ones.
    fn load(&self, scan: &ScanTable, live: &RegSet, filter: Option<Ex>) -> Result<Load> {
        let table = self.env.table(&scan.table)?;
        let mut early = RegSet::default();
        if let Some(f) = &filter {
            ex_io(f, self.around, &mut early, &mut RegSet::default());
        }
        let columns = scan.columns();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for i in 0..columns {
            let reg = scan.base + i;
            if early.contains(reg) {
                first.push(i as usize);
            } else if live.contains(reg) {
                rest.push(i as usize);
            }
        }
        let wanted = |col: u32| {
            let reg = scan.base + columns + col;
            live.contains(reg) || early.contains(reg)
        };
        let system = (1..SYSTEM_COLUMNS).filter(|c| wanted(*c)).map(|c| -(c as i16) - 1).collect();
        let ctid = wanted(0).then(|| scan.ctid());
        let waits = filter.as_ref().is_some_and(Ex::may_wait);
        Ok(Load { table, base: scan.base, first, rest, filter, waits, system, ctid })
    }

    fn index_scan(&self, i: &IndexScanPlan, live: &RegSet) -> Result<Box<dyn Node>> {
        let load = self.load(&i.scan, live, ex(&i.filter))?;
        let index = load.table.index(i.index.oid)?;
        let key = |k: &KeyCond| match k {
            KeyCond::Equal(e) => scan::Key::Equal(e.ex.clone()),
            KeyCond::In(items) => scan::Key::In(exes(items)),
            KeyCond::AnyOf(e) => scan::Key::AnyOf(e.ex.clone()),
            KeyCond::IsNull => scan::Key::IsNull,
        };
        let limit = |b: &Option<KeyBound>| {
            b.as_ref().map(|b| scan::Limit { value: b.value.ex.clone(), inclusive: b.inclusive })
        };
        let prefix = i.prefix.iter().map(key).collect();
        // The bytes of rows are wanted by UPDATE and DELETE, which read the row's address.
        let keep = load.ctid.is_some();
        Ok(Box::new(IndexScan::new(
            load,
            index,
            prefix,
            limit(&i.lower),
            limit(&i.upper),
            i.not_null,
            i.backward,
            keep,
        )))
    }

    fn join(&mut self, plan: &Plan, below: &RegSet) -> Result<Box<dyn Node>> {
        match &plan.op {
            Op::NestedLoop { kind, outer, inner, filter } => {
                let mut outer_live = below.clone();
                outer_live.add(&inputs(inner, self.around));
                let inner_regs = self.produced(inner, below);
                let outer = self.node(outer, &outer_live)?;
                let inner = self.node(inner, below)?;
                Ok(Box::new(NestedLoop::new(*kind, outer, inner, ex(filter), inner_regs)))
            }
            Op::HashJoin { kind, outer, inner, keys, filter, fixed, .. } => {
                let saved = self.produced(inner, below);
                let outer_regs = self.produced(outer, below);
                Ok(Box::new(HashJoin::new(HashJoinParts {
                    kind: *kind,
                    outer: self.node(outer, below)?,
                    inner: self.node(inner, below)?,
                    outer_keys: keys.iter().map(|k| k.0.ex.clone()).collect(),
                    inner_keys: keys.iter().map(|k| k.1.ex.clone()).collect(),
                    key_types: keys.iter().map(|k| k.2).collect(),
                    filter: ex(filter),
                    saved,
                    outer_regs,
                    fixed: *fixed,
                })))
            }
            _ => Err(SqlError::internal("not a join")),
        }
    }

    fn project(
        &mut self,
        child: &Plan,
        outputs: &[(PExpr, Reg)],
        live: &RegSet,
        below: &RegSet,
    ) -> Result<Box<dyn Node>> {
        // A value may be moved out of its register when the next row brings a new one: directly
        // over a scan, for the last reader, if nobody above reads it.
        let fresh = matches!(
            child.op,
            Op::SeqScan { .. } | Op::IndexScan(_) | Op::TidScan { .. } | Op::Sort { .. }
        );
        let mut built: Vec<Output> = Vec::with_capacity(outputs.len());
        for (i, (e, reg)) in outputs.iter().enumerate() {
            let take = match e.ex {
                Ex::Reg(r) if fresh && !live.contains(r) => {
                    let mut later = RegSet::default();
                    for (e, _) in &outputs[i + 1..] {
                        ex_io(&e.ex, self.around, &mut later, &mut RegSet::default());
                    }
                    !later.contains(r)
                }
                _ => false,
            };
            let waits = e.ex.may_wait();
            built.push(Output { ex: e.ex.clone(), reg: *reg, take, waits });
        }
        Ok(Box::new(Project::new(self.node(child, below)?, built)))
    }

    fn aggregate(&mut self, plan: &Plan, live: &RegSet, below: &RegSet) -> Result<Box<dyn Node>> {
        let Op::Aggregate { child, keys, aggregates } = &plan.op else {
            return Err(SqlError::internal("not an aggregate"));
        };
        let mut carried = self.produced(child, live);
        carried.retain(|r| !keys.iter().any(|k| k.1 == *r));
        let mut built = Vec::with_capacity(aggregates.len());
        for a in aggregates {
            let Implementation::Aggregate(make) = a.function.imp else {
                return Err(SqlError::internal("not an aggregate function"));
            };
            built.push(Aggregate {
                make,
                arg_types: a.arg_types.clone(),
                args: exes(&a.args),
                filter: ex(&a.filter),
                distinct: a.distinct,
                order: a.order.iter().map(|(e, o)| (e.ex.clone(), *o)).collect(),
                counts_rows: counts_rows(a.function, a.args.len()),
                out: a.out,
            });
        }
        let child = self.node(child, below)?;
        let exprs = keys.iter().map(|k| (k.0.ex.clone(), k.1)).collect();
        let types = keys.iter().map(|k| k.2).collect();
        Ok(Box::new(HashAggregate::new(child, exprs, types, built, carried)))
    }

    fn window(&mut self, child: &Plan, w: &WindowPlan, below: &RegSet) -> Result<Box<dyn Node>> {
        let saved = self.produced(child, below);
        let call = |c: &WindowCallPlan| Call {
            function: c.function,
            args: exes(&c.args),
            arg_types: c.arg_types.clone(),
            filter: ex(&c.filter),
            frame: c.frame.clone(),
            out: c.out,
        };
        Ok(Box::new(Window::new(
            self.node(child, below)?,
            w.partition.iter().map(|(e, t)| (e.ex.clone(), *t)).collect(),
            w.order.iter().map(|(e, o)| (e.ex.clone(), *o)).collect(),
            w.calls.iter().map(call).collect(),
            saved,
        )))
    }

    /// One input of a set operation: only its output columns are live.
    fn branch(&mut self, plan: &Plan, regs: &[Reg]) -> Result<Box<dyn Node>> {
        let mut live = RegSet::default();
        regs.iter().for_each(|r| live.insert(*r));
        self.node(plan, &live)
    }

    fn sets(&mut self, plan: &Plan) -> Result<Box<dyn Node>> {
        match &plan.op {
            Op::Append { children, out } => {
                let mut branches = Vec::with_capacity(children.len());
                for (child, from) in children {
                    branches.push(Branch { node: self.branch(child, from)?, from: from.clone() });
                }
                Ok(Box::new(Append::new(branches, out.clone())))
            }
            Op::SetOp { left, right, out, types, except, all } => {
                let l = (self.branch(&left.0, &left.1)?, left.1.clone());
                let r = (self.branch(&right.0, &right.1)?, right.1.clone());
                Ok(Box::new(SetOp::new([l, r], out.clone(), types.clone(), *except, *all)))
            }
            Op::RecursiveUnion { first, step, out, distinct, work } => {
                let f = (self.branch(&first.0, &first.1)?, first.1.clone());
                let s = (self.branch(&step.0, &step.1)?, step.1.clone());
                Ok(Box::new(RecursiveUnion::new(f, s, out.clone(), distinct.clone(), *work)))
            }
            _ => Err(SqlError::internal("not a set operation")),
        }
    }

    fn modify(&mut self, child: &Plan, m: &ModifyPlan, below: &RegSet) -> Result<Box<dyn Node>> {
        let table = self.env.table(&m.scan.table)?;
        let checks = m.checks.iter().map(|(n, e)| (n.clone(), e.ex.clone())).collect();
        let returning =
            m.returning.as_ref().map(|l| l.iter().map(|(e, r)| (e.ex.clone(), *r)).collect());
        let target = Target::new(table, m.scan.base, checks, returning);
        let input = self.node(child, below)?;
        let assigned = |l: &[(usize, PExpr)]| l.iter().map(|(c, e)| (*c, e.ex.clone())).collect();
        Ok(match &m.action {
            ModifyAction::Insert { values, conflict } => {
                let conflict = match conflict {
                    None => None,
                    Some(c) => Some(self.conflict(c, &target, below)?),
                };
                Box::new(Insert::new(input, target, assigned(values), conflict))
            }
            ModifyAction::Update { assignments, recheck } => {
                let load = self.load(&m.scan, below, None)?;
                let recheck = Recheck::new(load, ex(recheck));
                let updater = super::write::Updater::new(target, assigned(assignments));
                Box::new(Update::new(input, updater, recheck))
            }
            ModifyAction::Delete { recheck } => {
                let load = self.load(&m.scan, below, None)?;
                Box::new(Delete::new(input, target, Recheck::new(load, ex(recheck))))
            }
        })
    }

    fn conflict(&self, c: &ConflictPlan, target: &Target, below: &RegSet) -> Result<Conflict> {
        let table = &target.table;
        let arbiters = match c.arbiters.is_empty() {
            true => (0..table.indexes.len()).filter(|i| table.indexes[*i].def.unique).collect(),
            false => c.arbiters.iter().map(|o| table.index(*o)).collect::<Result<Vec<_>>>()?,
        };
        if arbiters.iter().any(|i| !table.indexes[*i].def.immediate) {
            return Err(SqlError::new(
                State::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "ON CONFLICT does not support deferrable unique constraints/exclusion constraints \
                 as arbiters",
            ));
        }
        let update = match &c.update {
            None => None,
            Some(u) => {
                let load = self.load(&u.existing, below, None)?;
                let checks = u.checks.iter().map(|(n, e)| (n.clone(), e.ex.clone())).collect();
                let inner = Target::new(table.clone(), u.existing.base, checks, None);
                let assigned = u.assignments.iter().map(|(c, e)| (*c, e.ex.clone())).collect();
                let updater = super::write::Updater::new(inner, assigned);
                let returning = u
                    .returning
                    .as_ref()
                    .map(|l| l.iter().map(|(e, r)| (e.ex.clone(), *r)).collect());
                Some(ConflictUpdate::new(load, ex(&u.filter), updater, returning))
            }
        };
        Ok(Conflict::new(arbiters, update))
    }
}

fn set_calls(functions: &[SetFunction]) -> Vec<SetCall> {
    functions
        .iter()
        .map(|f| SetCall {
            function: f.function,
            args: exes(&f.args),
            arg_types: f.function.args.to_vec(),
            out: f.out.clone(),
        })
        .collect()
}
