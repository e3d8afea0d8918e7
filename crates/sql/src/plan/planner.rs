//! One statement's planning: registers, scopes of query levels, and a query from FROM to output.

use super::rewrite::{self, count_uses};
use super::tree::{self, Rels};
use super::*;
use crate::analyze::bound::*;
use crate::error::{Result, SqlError, State};
use crate::functions::{FnContext, Implementation};
use crate::types::Datum;

/// What planning needs to know besides the query.
pub trait PlanEnv {
    fn functions(&self) -> &dyn FnContext;
    /// Pages and rows of a table, estimated.
    fn size(&self, table: &TableDef) -> (f64, f64);
    /// The bound form of an index's expressions and condition, over `Var(0, 0, col)`.
    fn index_parts(&self, table: &Arc<TableDef>, index: &IndexDef) -> Result<Arc<IndexParts>>;
    /// SQL text of an expression for EXPLAIN; None: not wanted.
    fn text(&self, e: &Expr, levels: &[Vec<RangeEntry>]) -> Option<Box<str>>;
    /// A relation that the statement names by a constant (nextval's).
    fn relation(&self, _oid: Oid) -> Option<Arc<TableDef>> {
        None
    }
    /// A boolean setting such as `enable_seqscan`.
    fn enabled(&self, _setting: &str) -> bool {
        true
    }
}

/// Expressions of an index, parsed.
#[derive(Clone, Debug, Default)]
pub struct IndexParts {
    /// By key column; None: a plain column.
    pub exprs: Vec<Option<Expr>>,
    pub predicate: Option<Expr>,
}

/// Where the columns of a range-table entry are.
#[derive(Clone)]
pub(super) enum Columns {
    /// Not planned yet.
    Unknown,
    Table(ScanTable),
    Listed(Vec<Reg>),
}

#[derive(Clone, Copy)]
pub(super) struct CteRef {
    pub index: usize,
    /// The outermost query level that it reads; its own depth or more: none outside.
    pub depth: usize,
    pub read: bool,
    /// The work table of a recursive one, while its recursive term is planned.
    pub work: Option<usize>,
}

/// One query level.
#[derive(Default)]
pub(super) struct Scope {
    pub rtes: Vec<RangeEntry>,
    pub columns: Vec<Columns>,
    /// Plans of entries that are not tables.
    pub leaves: Vec<Option<Plan>>,
    /// What reading an entry's plan needs from the others (LATERAL).
    pub needs: Vec<Rels>,
    /// Expressions that have been computed below: grouping keys, aggregates, windows, outputs.
    pub computed: Vec<(Expr, Reg)>,
    pub ctes: Vec<Option<CteRef>>,
    pub sub_selects: Vec<(SubqueryExpr, usize)>,
}

impl Scope {
    pub fn register(&self, v: &Var) -> Result<Reg> {
        let unknown = || SqlError::internal(format!("no register for {v:?}"));
        match self.columns.get(usize::from(v.rte)).ok_or_else(unknown)? {
            Columns::Unknown => Err(unknown()),
            Columns::Table(scan) => Ok(match u32::try_from(v.col) {
                Ok(col) => scan.base + col,
                Err(_) => scan.base + scan.columns() + (-1 - i32::from(v.col)) as u32,
            }),
            Columns::Listed(regs) => {
                let col = usize::try_from(v.col).map_err(|_| unknown())?;
                regs.get(col).copied().ok_or_else(unknown)
            }
        }
    }
}

/// A planned query and where its output columns are.
pub(super) struct Planned {
    pub plan: Plan,
    pub out: Vec<Reg>,
    pub correlated: bool,
}

/// What the query around wants of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Columns may stay in the registers of the tables that they come from.
    Anywhere,
    /// In consecutive registers of their own.
    Together,
}

pub struct Planner<'a> {
    pub(super) env: &'a dyn PlanEnv,
    registers: u32,
    pub(super) scopes: Vec<Scope>,
    pub(super) subplans: Vec<SubPlan>,
    pub(super) ctes: Vec<CtePlan>,
    pub(super) work_tables: usize,
    pub(super) tables: Vec<(Arc<TableDef>, TableUse)>,
    pub(super) case_operands: Vec<Reg>,
    /// The outermost scope that was read while planning the current query.
    reach: usize,
    /// Compiling what a newer row version is held against: sub-selects are not run again.
    pub(super) rechecking: bool,
}

/// Plans a statement that reads or writes tables.
pub fn plan_statement(
    env: &dyn PlanEnv,
    statement: &crate::analyze::Statement,
) -> Result<StatementPlan> {
    use crate::analyze::Statement;
    let mut p = Planner::new(env);
    let (planned, types, kind) = match statement {
        Statement::Select(q) => {
            let planned = p.plan_query(q, Output::Together)?;
            let types = q.targets.iter().map(|t| t.expr.ty()).collect();
            (planned, Some(types), StatementKind::Select)
        }
        Statement::Insert(i) => {
            let planned = p.plan_insert(i)?;
            (planned, target_types(&i.returning), StatementKind::Insert)
        }
        Statement::Update(u) => {
            let planned = p.plan_update(u)?;
            (planned, target_types(&u.returning), StatementKind::Update)
        }
        Statement::Delete(d) => {
            let planned = p.plan_delete(d)?;
            (planned, target_types(&d.returning), StatementKind::Delete)
        }
        Statement::Utility(_) => return Err(SqlError::internal("a utility statement has no plan")),
    };
    let first = planned.out.first().copied().unwrap_or(0);
    Ok(StatementPlan {
        root: planned.plan,
        registers: p.registers,
        output: types.map(|t| (first, t)),
        subplans: p.subplans,
        ctes: p.ctes,
        work_tables: p.work_tables,
        tables: p.tables,
        kind,
    })
}

/// Compiles an expression over the columns of one row: column i of entry 0 is in register i. How
/// many registers it needs comes along. Sub-selects are refused, for there is nobody to run them.
pub fn compile_row_expr(env: &dyn PlanEnv, e: &Expr) -> Result<(Ex, usize)> {
    let mut p = Planner::new(env);
    let mut width = 0;
    walk::visit(e, 0, &mut |e, _| {
        if let Expr::Var(v) = e {
            width = width.max(v.col + 1);
        }
        true
    });
    let regs: Vec<Reg> = p.new_regs(width.max(0) as usize);
    p.scopes.push(Scope { columns: vec![Columns::Listed(regs)], ..Scope::default() });
    let ex = p.compile(e)?;
    match p.subplans.is_empty() {
        true => Ok((ex, p.registers as usize)),
        false => Err(SqlError::unsupported("a sub-select here")),
    }
}

fn target_types(targets: &Option<Vec<Target>>) -> Option<Vec<TypeRef>> {
    targets.as_ref().map(|t| t.iter().map(|t| t.expr.ty()).collect())
}

impl<'a> Planner<'a> {
    fn new(env: &'a dyn PlanEnv) -> Self {
        Planner {
            env,
            registers: 0,
            scopes: Vec::new(),
            subplans: Vec::new(),
            ctes: Vec::new(),
            work_tables: 0,
            tables: Vec::new(),
            case_operands: Vec::new(),
            reach: usize::MAX,
            rechecking: false,
        }
    }

    pub(super) fn new_reg(&mut self) -> Reg {
        self.registers += 1;
        self.registers - 1
    }

    pub(super) fn new_regs(&mut self, n: usize) -> Vec<Reg> {
        (0..n).map(|_| self.new_reg()).collect()
    }

    pub(super) fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a query is being planned")
    }

    /// Notes that the query level at `depth` was read.
    pub(super) fn reaches(&mut self, depth: usize) {
        self.reach = self.reach.min(depth);
    }

    pub(super) fn text(&self, e: &Expr) -> Option<Box<str>> {
        let levels: Vec<Vec<RangeEntry>> = Vec::new();
        self.env.text(e, &levels)?;
        let levels: Vec<Vec<RangeEntry>> =
            self.scopes.iter().rev().map(|s| s.rtes.clone()).collect();
        self.env.text(e, &levels)
    }

    /// The register that an expression of the current query was computed into.
    pub(super) fn computed(&self, e: &Expr) -> Option<Reg> {
        let scope = self.scopes.last()?;
        scope.computed.iter().find(|(known, _)| known == e).map(|c| c.1)
    }

    pub(super) fn known_sub_select(&self, s: &SubqueryExpr) -> Option<usize> {
        let scope = self.scopes.last()?;
        let found = scope.sub_selects.iter().find(|(known, _)| known == s)?;
        let volatile = rewrite::has_volatile(&Expr::Subquery(Box::new(s.clone())));
        (self.rechecking || !volatile).then_some(found.1)
    }

    pub(super) fn remember_sub_select(&mut self, s: &SubqueryExpr, index: usize) {
        self.scope().sub_selects.push((s.clone(), index));
    }

    pub(super) fn uses(&mut self, table: &Arc<TableDef>, how: TableUse) {
        match self.tables.iter_mut().find(|t| t.0.oid == table.oid) {
            Some(known) => known.1 = known.1.max(how),
            None => self.tables.push((table.clone(), how)),
        }
    }

    /// Registers for a table's columns and system columns.
    pub(super) fn table_block(&mut self, table: &Arc<TableDef>, alias: &str) -> ScanTable {
        let base = self.registers;
        self.registers += table.columns.len() as u32 + SYSTEM_COLUMNS;
        ScanTable { table: table.clone(), alias: alias.to_owned(), base }
    }

    /// Plans a query inside an expression or in FROM, and finds out whether it reads outside.
    pub(super) fn plan_nested(&mut self, q: &Query) -> Result<Planned> {
        let depth = self.scopes.len();
        let before = std::mem::replace(&mut self.reach, usize::MAX);
        let operands = std::mem::take(&mut self.case_operands);
        let result = self.plan_query(q, Output::Anywhere);
        self.case_operands = operands;
        let reached = self.reach;
        self.reach = before.min(reached);
        let mut planned = result?;
        planned.correlated = reached < depth;
        Ok(planned)
    }

    pub(super) fn plan_query(&mut self, q: &Query, output: Output) -> Result<Planned> {
        stacker::maybe_grow(128 * 1024, 2 * 1024 * 1024, || {
            let mut q = q.clone();
            let pulled = rewrite::simplify(&mut q);
            self.scopes.push(Scope::default());
            let result = self.plan_ctes(&q).and_then(|()| {
                if q.set_operation.is_some() {
                    self.plan_set_operation(&q, output)
                } else {
                    self.plan_select(q, pulled, output)
                }
            });
            self.scopes.pop();
            result
        })
    }

    // ---- common table expressions ----

    pub(super) fn plan_ctes(&mut self, q: &Query) -> Result<()> {
        for i in 0..q.ctes.len() {
            self.scope().ctes.push(None);
            if count_uses(q, i) == 0 {
                continue;
            }
            let planned = self.plan_cte(&q.ctes[i], i)?;
            self.scope().ctes[i] = Some(planned);
        }
        Ok(())
    }

    fn plan_cte(&mut self, cte: &Cte, i: usize) -> Result<CteRef> {
        let depth = self.scopes.len();
        let before = std::mem::replace(&mut self.reach, usize::MAX);
        let result = if cte.recursive {
            self.plan_recursive(cte, i)
        } else {
            self.plan_query(&cte.query, Output::Anywhere)
        };
        let reached = std::mem::replace(&mut self.reach, before);
        let planned = result?;
        let index = self.ctes.len();
        self.ctes.push(CtePlan {
            name: cte.name.clone(),
            plan: planned.plan,
            output: planned.out,
            correlated: reached < depth - 1,
        });
        Ok(CteRef { index, depth: reached, read: false, work: None })
    }

    /// A reader of a common table expression.
    fn cte_scan(&mut self, level: u16, index: usize, alias: &str) -> Result<(Plan, Vec<Reg>)> {
        let missing = || SqlError::internal("a common table expression that was not planned");
        let depth = self.scopes.len().checked_sub(1 + usize::from(level)).ok_or_else(missing)?;
        let cte = self.scopes[depth].ctes.get_mut(index).and_then(Option::as_mut);
        let cte = cte.ok_or_else(missing)?;
        let leader = !std::mem::replace(&mut cte.read, true);
        let cte = *cte;
        if cte.depth < depth {
            self.reaches(cte.depth);
        }
        let def = &self.ctes[cte.index];
        let (name, rows, cost) = (def.name.clone(), def.plan.rows, def.plan.cost);
        let out = self.ctes[cte.index].output.len();
        let out = self.new_regs(out);
        let op =
            Op::CteScan { name, alias: alias.to_owned(), cte: cte.index, out: out.clone(), leader };
        let total = cost.total + rows * estimate::TUPLE;
        Ok((Plan::new(op, rows, Cost { startup: 0.0, total }), out))
    }

    fn work_table_scan(
        &mut self,
        level: u16,
        index: usize,
        alias: &str,
        columns: usize,
    ) -> Result<(Plan, Vec<Reg>)> {
        let missing = || SqlError::internal("a recursive reference outside of its query");
        let depth = self.scopes.len().checked_sub(1 + usize::from(level)).ok_or_else(missing)?;
        let cte = self.scopes[depth].ctes.get(index).copied().flatten().ok_or_else(missing)?;
        let work = cte.work.ok_or_else(missing)?;
        // It changes from round to round: whoever reads it is not constant.
        self.reaches(depth);
        let out = self.new_regs(columns);
        let op = Op::WorkTableScan { alias: alias.to_owned(), work, out: out.clone() };
        Ok((Plan::new(op, 100.0, Cost { startup: 0.0, total: 1.0 }), out))
    }

    // ---- range table ----

    /// Gives every entry its registers and plans those that are not tables.
    fn plan_entries(&mut self, rtes: &[RangeEntry], used: Rels) -> Result<()> {
        let scope = self.scope();
        scope.rtes = rtes.to_vec();
        scope.columns = vec![Columns::Unknown; rtes.len()];
        scope.leaves = vec![None; rtes.len()];
        scope.needs = vec![0; rtes.len()];
        for (i, rte) in rtes.iter().enumerate() {
            if let RangeSource::Table(table) = &rte.source {
                let block = self.table_block(table, &rte.name);
                self.scope().columns[i] = Columns::Table(block);
                if used & tree::bit(i as u16) != 0 {
                    self.uses(table, TableUse::Read);
                }
            }
        }
        for (i, rte) in rtes.iter().enumerate() {
            if used & tree::bit(i as u16) == 0 || matches!(rte.source, RangeSource::Table(_)) {
                continue;
            }
            let (plan, out, needs) = self.plan_entry(rte)?;
            let scope = self.scope();
            scope.columns[i] = Columns::Listed(out);
            scope.leaves[i] = Some(plan);
            scope.needs[i] = needs;
        }
        Ok(())
    }

    fn plan_entry(&mut self, rte: &RangeEntry) -> Result<(Plan, Vec<Reg>, Rels)> {
        match &rte.source {
            RangeSource::Table(_) | RangeSource::Join => {
                Err(SqlError::internal("not an entry with a plan of its own"))
            }
            RangeSource::Subquery { query, .. } => {
                let planned = self.plan_nested(query)?;
                let needs = outward(query);
                let (rows, cost) = (planned.plan.rows, planned.plan.cost);
                let child = Box::new(planned.plan);
                let ordering = child.ordering.clone();
                let op = Op::SubqueryScan { alias: rte.name.clone(), child };
                let mut plan = Plan::new(op, rows, cost);
                plan.ordering = ordering;
                Ok((plan, planned.out, needs))
            }
            RangeSource::Function { function, args, ordinality, .. } => {
                let functions = [(*function, args.clone())];
                self.function_scan(rte, &functions, *ordinality)
            }
            RangeSource::RowsFrom { functions, ordinality, .. } => {
                self.function_scan(rte, functions, *ordinality)
            }
            RangeSource::Values { rows, .. } => {
                let out = self.new_regs(rte.columns.len());
                let mut needs = 0;
                let mut compiled = Vec::with_capacity(rows.len());
                for row in rows {
                    needs |= row.iter().fold(0, |n, e| n | tree::rels_of(e));
                    compiled.push(self.pexprs(row)?);
                }
                let count = rows.len() as f64;
                let alias = rte.name.clone();
                let op = Op::ValuesScan { alias, rows: compiled, out: out.clone() };
                let total = count * estimate::TUPLE;
                Ok((Plan::new(op, count, Cost { startup: 0.0, total }), out, needs))
            }
            RangeSource::Cte { level, index } => {
                let (plan, out) = self.cte_scan(*level, *index, &rte.name)?;
                Ok((plan, out, 0))
            }
            RangeSource::WorkTable { level, index } => {
                let columns = rte.columns.len();
                let (plan, out) = self.work_table_scan(*level, *index, &rte.name, columns)?;
                Ok((plan, out, 0))
            }
        }
    }

    fn function_scan(
        &mut self,
        rte: &RangeEntry,
        functions: &[(&'static Builtin, Vec<Expr>)],
        ordinality: bool,
    ) -> Result<(Plan, Vec<Reg>, Rels)> {
        let out = self.new_regs(rte.columns.len());
        let width = out.len() - usize::from(ordinality);
        let mut needs = 0;
        let mut compiled = Vec::new();
        let mut at = 0;
        for (i, (function, args)) in functions.iter().enumerate() {
            needs |= args.iter().fold(0, |n, e| n | tree::rels_of(e));
            let left = functions.len() - i - 1;
            // The functions before the last one say how many columns they have.
            let columns = match function.columns.len() {
                _ if left == 0 => width - at,
                0 => 1,
                n => n,
            };
            if let ("inkling_sequence", [Expr::Const { value: Datum::Oid(oid), .. }]) =
                (function.name, args.as_slice())
                && let Some(sequence) = self.env.relation(Oid(*oid))
            {
                self.uses(&sequence, TableUse::Read);
            }
            let args = self.pexprs(args)?;
            let regs = out[at..at + columns].to_vec();
            compiled.push(SetFunction { function, args, out: regs });
            at += columns;
        }
        let sets = functions
            .iter()
            .any(|f| matches!(f.0.imp, Implementation::Set(_) | Implementation::SessionSet));
        let rows = if sets { 1000.0 } else { 1.0 };
        let ordinality = if ordinality { out.last().copied() } else { None };
        let alias = rte.name.clone();
        let op = Op::FunctionScan { alias, functions: compiled, ordinality };
        Ok((Plan::new(op, rows, Cost { startup: 0.0, total: rows * 0.01 }), out, needs))
    }

    // ---- SELECT ----

    fn plan_select(
        &mut self,
        mut q: Query,
        mut pulled: rewrite::Pulled,
        output: Output,
    ) -> Result<Planned> {
        let tree = tree::build(&mut q, &mut pulled);
        if q.rtes.len() > 127 {
            let state = State::STATEMENT_TOO_COMPLEX;
            return Err(SqlError::new(state, "too many range table entries"));
        }
        self.plan_entries(&q.rtes, tree.rels())?;
        let mut recheck = Vec::new();
        if !q.row_marks.is_empty() {
            tree::all_quals(&tree, &mut recheck);
        }
        let order = self.wanted_order(&q);
        let input = self.plan_tree(tree, order)?;
        self.finish_select(&q, input, recheck, output)
    }

    /// Plans the rows that an UPDATE or DELETE works on. `extra` are expressions over them; they
    /// come back as they read after sub-selects were merged.
    pub(super) fn plan_rows(
        &mut self,
        q: &Query,
        extra: Vec<Expr>,
    ) -> Result<(Plan, Vec<Expr>, Vec<Expr>)> {
        let mut q = q.clone();
        let target = |expr| Target { expr, name: String::new(), origin: None };
        q.targets = extra.into_iter().map(target).collect();
        let mut pulled = rewrite::simplify(&mut q);
        self.plan_ctes(&q)?;
        let tree = tree::build(&mut q, &mut pulled);
        self.plan_entries(&q.rtes, tree.rels())?;
        let mut recheck = Vec::new();
        tree::all_quals(&tree, &mut recheck);
        let plan = self.plan_tree(tree, None)?;
        let extra = q.targets.into_iter().map(|t| t.expr).collect();
        Ok((plan, recheck, extra))
    }

    /// How many rows a LIMIT or OFFSET says; `None` for NULL, which means no limit.
    pub(super) fn row_count(&mut self, e: &Expr) -> Option<f64> {
        if walk::any(e, &mut |e, _| matches!(e, Expr::Subquery(_))) {
            return Some(estimate::UNKNOWN_LIMIT);
        }
        match self.compile(e) {
            Ok(Ex::Const(Datum::Int8(n))) => Some(n as f64),
            Ok(Ex::Const(_)) => None,
            _ => Some(estimate::UNKNOWN_LIMIT),
        }
    }

    /// The order that would save a sort, when few rows are wanted in it.
    fn wanted_order(&mut self, q: &Query) -> Option<join::Wanted> {
        if q.grouped || !q.group_by.is_empty() || q.distinct.is_some() || q.order_by.is_empty() {
            return None;
        }
        let limit = q.limit.as_ref().and_then(|e| self.row_count(e));
        let vars: Option<Vec<(Var, bool, bool)>> = q
            .order_by
            .iter()
            .map(|k| match &k.expr {
                Expr::Var(v) if v.level == 0 => Some((*v, k.descending, k.nulls_first)),
                _ => None,
            })
            .collect();
        Some(join::Wanted { keys: vars?, limit })
    }
}

/// The entries of the query around that a sub-select in FROM reads.
fn outward(query: &Query) -> Rels {
    let mut rels = 0;
    walk::visit_query(query, 1, &mut |e, level| {
        if let Expr::Var(v) = e
            && v.level == level
        {
            rels |= tree::bit(v.rte);
        }
        true
    });
    rels
}

impl Plan {
    pub(super) fn new(op: Op, rows: f64, cost: Cost) -> Plan {
        Plan { op, rows: rows.max(1.0).round(), cost, width: 0, ordering: Vec::new() }
    }

    /// A plan over one child that keeps its order and, unless told otherwise, its rows.
    pub(super) fn over(child: &Plan, op: Op, rows: f64, extra: f64) -> Plan {
        let total = child.cost.total + extra;
        let mut plan = Plan::new(op, rows, Cost { startup: child.cost.startup, total });
        plan.ordering = child.ordering.clone();
        plan.width = child.width;
        plan
    }
}
