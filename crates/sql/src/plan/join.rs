//! The order and method of joins.
//!
//! Inner joins are put together greedily: of all pairs that a condition connects, the one that is
//! cheapest to join and leaves fewest rows is joined first, until one unit is left. A pair is
//! joined by the cheapest of
//!
//! - a nested loop whose inner side is an index probe by the outer row's columns,
//! - a hash join on the equalities between the two sides,
//! - a nested loop over kept rows.
//!
//! When the query wants few rows in an order that an index gives, a second plan starts from that
//! index and only probes the other tables; the cheaper of the two for that many rows is taken.

use super::compile::comparison;
use super::estimate::*;
use super::path::{Path, cheapest, reversed};
use super::planner::{Columns, Planner};
use super::rewrite::has_volatile;
use super::tree::{Rels, Tree, bit, rels_of};
use super::*;
use crate::analyze::bound::*;
use crate::error::Result;
use crate::exec::build::{Around, inputs};
use crate::exec::expr::CompareOp;

/// The order that ORDER BY asks for, and how many rows the query stops after.
#[derive(Clone)]
pub(super) struct Wanted {
    pub keys: Vec<(Var, bool, bool)>,
    pub limit: Option<f64>,
}

/// A part of the join that has been put together, or one table still to be read.
#[derive(Clone)]
struct Unit {
    rels: Rels,
    /// Entries outside that must be current while it is read (LATERAL).
    needs: Rels,
    rows: f64,
    cost: Cost,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// A table, with the conditions on it alone and the cheapest path.
    Base {
        rte: u16,
        quals: Vec<Expr>,
        path: Box<Path>,
    },
    Built(Box<Plan>),
}

/// One way to join two units.
struct Choice {
    cost: Cost,
    rows: f64,
    method: Method,
}

enum Method {
    /// Probe the inner table by this path.
    Probe(Box<Path>),
    Hash {
        keys: Vec<(Expr, Expr, Oid)>,
        rest: Vec<Expr>,
        cond: Vec<Expr>,
    },
    Loop,
}

impl Planner<'_> {
    pub(super) fn plan_tree(&mut self, tree: Tree, wanted: Option<Wanted>) -> Result<Plan> {
        if let (Tree::Inner { items, quals }, None) = (&tree, &wanted)
            && items.is_empty()
            && quals.is_empty()
        {
            return Ok(Plan::new(Op::Result, 1.0, Cost::default()));
        }
        let plain = self.alternative(&tree, None)?;
        let Some(wanted) = wanted else { return Ok(plain) };
        let ordered = self.ordered_alternative(&tree, &wanted)?;
        Ok(match ordered {
            Some(ordered) if self.price(&ordered, &wanted) <= self.price(&plain, &wanted) => {
                ordered
            }
            _ => plain,
        })
    }

    fn alternative(&mut self, tree: &Tree, start: Option<(u16, Path)>) -> Result<Plan> {
        let unit = self.plan_item(tree.clone(), Vec::new(), start.as_ref())?;
        self.built(unit)
    }

    /// The cost of the first `limit` rows in the wanted order.
    fn price(&mut self, plan: &Plan, wanted: &Wanted) -> f64 {
        let limit = wanted.limit.unwrap_or(plan.rows).min(plan.rows);
        if self.is_ordered(plan, wanted) {
            let share = limit / plan.rows.max(1.0);
            plan.cost.startup + (plan.cost.total - plan.cost.startup) * share
        } else {
            plan.cost.total + plan.rows * (plan.rows.max(2.0).log2() * 2.0 * OPERATOR + TUPLE)
        }
    }

    fn is_ordered(&mut self, plan: &Plan, wanted: &Wanted) -> bool {
        let mut have = plan.ordering.iter();
        wanted.keys.iter().all(|(v, descending, nulls_first)| {
            let Ok(reg) = self.scope().register(v) else { return false };
            let key = OrderKey { reg, descending: *descending, nulls_first: *nulls_first };
            have.next() == Some(&key)
        })
    }

    /// A plan that starts from an index in the wanted order.
    fn ordered_alternative(&mut self, tree: &Tree, wanted: &Wanted) -> Result<Option<Plan>> {
        let Some((first, ..)) = wanted.keys.first() else { return Ok(None) };
        let rte = first.rte;
        if wanted.keys.iter().any(|k| k.0.rte != rte || k.0.col < 0) {
            return Ok(None);
        }
        let (Tree::Leaf(_) | Tree::Inner { .. }) = tree else { return Ok(None) };
        if !matches!(self.scope().columns.get(usize::from(rte)), Some(Columns::Table(_))) {
            return Ok(None);
        }
        let mut quals = Vec::new();
        if let Tree::Inner { items, quals: all } = tree {
            if !items.iter().any(|i| matches!(i, Tree::Leaf(r) if *r == rte)) {
                return Ok(None);
            }
            quals.extend(all.iter().filter(|q| rels_of(q) == bit(rte)).cloned());
        }
        let keys: Vec<_> = wanted.keys.iter().map(|k| (k.0.col, k.1, k.2)).collect();
        let mut best: Option<Path> = None;
        for path in self.paths(rte, &quals, 0)? {
            for path in [Some(path.clone()), reversed(&path)].into_iter().flatten() {
                let fits = order_fits(&path, &keys);
                if fits && best.as_ref().is_none_or(|b| path.cost.total < b.cost.total) {
                    best = Some(path);
                }
            }
        }
        let Some(mut path) = best else { return Ok(None) };
        // Rows come as the keys say; constant columns among the index's do not count.
        path.order = keys;
        self.alternative(tree, Some((rte, path))).map(Some)
    }

    /// Makes the plan of a unit.
    fn built(&mut self, unit: Unit) -> Result<Plan> {
        match unit.source {
            Source::Built(plan) => Ok(*plan),
            Source::Base { rte, path, .. } => self.build_path(rte, &path),
        }
    }

    /// Plans one item of the tree; `above` are conditions on it from outside.
    fn plan_item(
        &mut self,
        tree: Tree,
        above: Vec<Expr>,
        start: Option<&(u16, Path)>,
    ) -> Result<Unit> {
        match tree {
            Tree::Leaf(rte) => self.plan_leaf(rte, above, start),
            Tree::Inner { items, mut quals } => {
                quals.extend(above);
                self.plan_inner(items, quals, start)
            }
            Tree::Join { kind, left, right, on } => self.plan_outer(kind, *left, *right, on, above),
        }
    }

    fn plan_leaf(
        &mut self,
        rte: u16,
        quals: Vec<Expr>,
        start: Option<&(u16, Path)>,
    ) -> Result<Unit> {
        let needs = self.scope().needs[usize::from(rte)];
        let rels = bit(rte);
        if let Some(plan) = self.scope().leaves[usize::from(rte)].clone() {
            let rows = plan.rows * 0.33f64.powi(quals.len() as i32);
            let plan = self.filtered(plan, &quals, rows)?;
            let (rows, cost) = (plan.rows, plan.cost);
            return Ok(Unit { rels, needs, rows, cost, source: Source::Built(Box::new(plan)) });
        }
        let path = match start {
            Some((r, path)) if *r == rte => path.clone(),
            _ => self.best_path(rte, &quals)?,
        };
        let (rows, cost) = (path.rows, path.cost);
        let source = Source::Base { rte, quals, path: Box::new(path) };
        Ok(Unit { rels, needs, rows, cost, source })
    }

    pub(super) fn filtered(&mut self, child: Plan, quals: &[Expr], rows: f64) -> Result<Plan> {
        let Some(filter) = self.filter(quals)? else { return Ok(child) };
        let extra = child.rows * OPERATOR * quals.len() as f64;
        let mut plan = Plan::over(&child, Op::Result, rows, extra);
        plan.op = Op::Filter { child: Box::new(child), filter, once: false };
        Ok(plan)
    }

    // ---- outer, semi and anti joins ----

    fn plan_outer(
        &mut self,
        kind: JoinType,
        left: Tree,
        right: Tree,
        on: Vec<Expr>,
        above: Vec<Expr>,
    ) -> Result<Unit> {
        let (left_rels, right_rels) = (left.rels(), right.rels());
        let mut to_left = Vec::new();
        let mut after = Vec::new();
        for q in above {
            let inside = rels_of(&q) & !left_rels == 0 && rels_of(&q) != 0;
            if inside && kind != JoinType::Full && !has_volatile(&q) {
                to_left.push(q);
            } else {
                after.push(q);
            }
        }
        let mut to_right = Vec::new();
        let mut join = Vec::new();
        for q in on {
            let inside = rels_of(&q) & !right_rels == 0 && rels_of(&q) != 0;
            let only_left = rels_of(&q) & !left_rels == 0 && rels_of(&q) != 0;
            if inside && kind != JoinType::Full && !has_volatile(&q) {
                to_right.push(q);
            } else if only_left && kind == JoinType::Semi {
                to_left.push(q);
            } else {
                join.push(q);
            }
        }
        let left = self.plan_item(left, to_left, None)?;
        let right = self.plan_item(right, to_right, None)?;
        let unit = match self.unique_probe(kind, &left, &right, &join)? {
            Some(unit) => unit,
            None => {
                let choice = self.choose(kind, &left, &right, &join)?;
                self.join(kind, left, right, join, choice)?
            }
        };
        if after.is_empty() {
            return Ok(unit);
        }
        let (rels, needs) = (unit.rels, unit.needs);
        let rows = unit.rows * 0.33f64.powi(after.len() as i32);
        let plan = self.built(unit)?;
        let plan = self.filtered(plan, &after, rows)?;
        Ok(Unit {
            rels,
            needs,
            rows: plan.rows,
            cost: plan.cost,
            source: Source::Built(Box::new(plan)),
        })
    }

    /// `x in (few rows)` over a large table with an index on x: the few rows without duplicates,
    /// then a probe for each.
    fn unique_probe(
        &mut self,
        kind: JoinType,
        left: &Unit,
        right: &Unit,
        quals: &[Expr],
    ) -> Result<Option<Unit>> {
        if kind != JoinType::Semi || !matches!(left.source, Source::Base { .. }) {
            return Ok(None);
        }
        if right.needs & left.rels != 0 {
            return Ok(None);
        }
        let Some((keys, rest)) = hash_keys(left.rels, right.rels, quals) else { return Ok(None) };
        if !rest.is_empty() {
            return Ok(None);
        }
        let mut regs = Vec::new();
        for (_, inner, ty) in &keys {
            let Expr::Var(v) = inner else { return Ok(None) };
            regs.push((self.column(v)?, *ty));
        }
        let choice = self.choose(JoinType::Inner, right, left, quals)?;
        let plain = self.choose(JoinType::Semi, left, right, quals)?;
        let probes = matches!(choice.method, Method::Probe(_));
        if !probes || choice.cost.total + right.rows * TUPLE >= plain.cost.total {
            return Ok(None);
        }
        let child = self.built(right.clone())?;
        let texts = Vec::new();
        let mut plan = Plan::over(&child, Op::Result, child.rows, child.rows * TUPLE);
        plan.op = Op::Unique { child: Box::new(child), keys: regs, texts };
        let outer = Unit {
            rels: right.rels,
            needs: right.needs,
            rows: plan.rows,
            cost: plan.cost,
            source: Source::Built(Box::new(plan)),
        };
        self.join(JoinType::Inner, outer, left.clone(), quals.to_vec(), choice).map(Some)
    }

    // ---- inner joins ----

    fn plan_inner(
        &mut self,
        items: Vec<Tree>,
        quals: Vec<Expr>,
        start: Option<&(u16, Path)>,
    ) -> Result<Unit> {
        let rels: Vec<Rels> = items.iter().map(Tree::rels).collect();
        let mut own: Vec<Vec<Expr>> = vec![Vec::new(); items.len()];
        let (mut between, mut once, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for q in quals {
            let r = rels_of(&q);
            if r == 0 && has_volatile(&q) {
                last.push(q);
            } else if r == 0 {
                once.push(q);
            } else if let Some(i) = rels.iter().position(|item| r & !item == 0) {
                own[i].push(q);
            } else {
                between.push(q);
            }
        }
        let mut units = Vec::with_capacity(items.len());
        for (item, quals) in items.into_iter().zip(own) {
            units.push(self.plan_item(item, quals, start)?);
        }
        let mut unit = if units.is_empty() {
            let plan = Plan::new(Op::Result, 1.0, Cost::default());
            let source = Source::Built(Box::new(plan));
            Unit { rels: 0, needs: 0, rows: 1.0, cost: Cost::default(), source }
        } else {
            self.join_all(units, between, start.map(|s| bit(s.0)))?
        };
        if !last.is_empty() || !once.is_empty() {
            let mut plan = self.built(unit.clone())?;
            let rows = plan.rows;
            plan = self.filtered(plan, &last, rows)?;
            if let Some(filter) = self.filter(&once)? {
                let mut over = Plan::over(&plan, Op::Result, plan.rows, 0.0);
                over.op = Op::Filter { child: Box::new(plan), filter, once: true };
                plan = over;
            }
            unit.source = Source::Built(Box::new(plan));
        }
        Ok(unit)
    }

    fn join_all(
        &mut self,
        mut units: Vec<Unit>,
        mut quals: Vec<Expr>,
        start: Option<Rels>,
    ) -> Result<Unit> {
        while units.len() > 1 {
            let (i, j, choice, used) = self.next_pair(&units, &quals, start)?;
            let outer = units[i].clone();
            let inner = units[j].clone();
            let rels = outer.rels | inner.rels;
            let used: Vec<Expr> = used;
            quals.retain(|q| rels_of(q) & !rels != 0);
            let joined = self.join(JoinType::Inner, outer, inner, used, choice)?;
            let (high, low) = (i.max(j), i.min(j));
            units.remove(high);
            units.remove(low);
            units.push(joined);
        }
        Ok(units.remove(0))
    }

    /// The pair to join next: connected before not, then cheapest. With `start`, only joins that
    /// extend the unit with these entries, which stays outermost.
    fn next_pair(
        &mut self,
        units: &[Unit],
        quals: &[Expr],
        start: Option<Rels>,
    ) -> Result<(usize, usize, Choice, Vec<Expr>)> {
        let mut best: Option<((bool, f64), usize, usize, Choice, Vec<Expr>)> = None;
        for i in 0..units.len() {
            for j in 0..units.len() {
                let (outer, inner) = (&units[i], &units[j]);
                if i == j || outer.needs & inner.rels != 0 {
                    continue;
                }
                let both = outer.rels | inner.rels;
                if inner.needs & !both != 0 || outer.needs & !both != 0 {
                    continue;
                }
                if start.is_some_and(|s| outer.rels & s == 0) {
                    continue;
                }
                let used: Vec<Expr> = quals
                    .iter()
                    .filter(|q| {
                        let r = rels_of(q);
                        r & !both == 0 && r & outer.rels != 0 && r & inner.rels != 0
                    })
                    .cloned()
                    .collect();
                let linked = !used.is_empty() || inner.needs & outer.rels != 0;
                if let Some((key, ..)) = &best
                    && !linked
                    && !key.0
                {
                    continue;
                }
                let choice = self.choose(JoinType::Inner, outer, inner, &used)?;
                // Small results first, as long as getting them is not dear.
                let key = (!linked, choice.cost.total + choice.rows * TUPLE);
                if best.as_ref().is_none_or(|b| key < b.0) {
                    best = Some((key, i, j, choice, used));
                }
            }
        }
        let (_, i, j, choice, used) = best.ok_or_else(|| {
            crate::error::SqlError::internal("no join order satisfies the LATERAL references")
        })?;
        Ok((i, j, choice, used))
    }

    // ---- one join ----

    /// The cheapest way to join; `outer` stays outer.
    fn choose(
        &mut self,
        kind: JoinType,
        outer: &Unit,
        inner: &Unit,
        quals: &[Expr],
    ) -> Result<Choice> {
        let rows = self.join_rows(kind, outer, inner, quals);
        let mut best: Option<Choice> = None;
        let mut offer = |c: Choice| {
            if best.as_ref().is_none_or(|b| c.cost.total < b.cost.total) {
                best = Some(c);
            }
        };
        if !matches!(kind, JoinType::Right | JoinType::Full)
            && let Some(path) = self.probe_path(outer, inner, quals)?
        {
            let cost = Cost {
                startup: outer.cost.startup + path.cost.startup,
                total: outer.cost.total + outer.rows * path.cost.total + rows * TUPLE,
            };
            offer(Choice { cost, rows, method: Method::Probe(Box::new(path)) });
        }
        let lateral = inner.needs & outer.rels != 0;
        if !lateral
            && let Some((keys, rest)) = hash_keys(outer.rels, inner.rels, quals)
            && (self.env.enabled("enable_hashjoin") || kind == JoinType::Full)
        {
            let cond = keys.iter().map(|k| find_cond(quals, k)).collect();
            // Values that are kept must be copied, which a hash join does for its inner side.
            let build = inner.cost.total + inner.rows * (TUPLE * 2.0);
            let probe = outer.rows * (OPERATOR * 2.0 * keys.len() as f64);
            let cost = Cost {
                startup: build + outer.cost.startup,
                total: build + outer.cost.total + probe + rows * TUPLE,
            };
            offer(Choice { cost, rows, method: Method::Hash { keys, rest, cond } });
        }
        if !matches!(kind, JoinType::Right | JoinType::Full) {
            let again = if lateral { inner.cost.total } else { inner.rows * TUPLE * 0.5 };
            let tests = inner.rows * OPERATOR * quals.len().max(1) as f64;
            let cost = Cost {
                startup: outer.cost.startup + inner.cost.startup,
                total: outer.cost.total
                    + inner.cost.total
                    + outer.rows * (again + tests)
                    + rows * TUPLE,
            };
            offer(Choice { cost, rows, method: Method::Loop });
        }
        best.ok_or_else(|| {
            crate::error::SqlError::new(
                crate::error::State::FEATURE_NOT_SUPPORTED,
                "FULL JOIN is only supported with merge-joinable or hash-joinable join conditions",
            )
        })
    }

    fn join_rows(&mut self, kind: JoinType, outer: &Unit, inner: &Unit, quals: &[Expr]) -> f64 {
        let mut share = 1.0;
        for q in quals {
            share *= self.join_selectivity(q, outer, inner);
        }
        let pairs = (outer.rows * inner.rows * share).max(1.0);
        match kind {
            JoinType::Inner => pairs,
            JoinType::Left => pairs.max(outer.rows),
            JoinType::Right => pairs.max(inner.rows),
            JoinType::Full => pairs.max(outer.rows).max(inner.rows),
            JoinType::Semi => (outer.rows * 0.5).min(pairs).max(1.0),
            JoinType::Anti => (outer.rows * 0.5).max(1.0),
        }
    }

    /// The cheapest way to look the inner table up by the outer row's columns.
    fn probe_path(&mut self, outer: &Unit, inner: &Unit, quals: &[Expr]) -> Result<Option<Path>> {
        let Source::Base { rte, quals: own, .. } = &inner.source else { return Ok(None) };
        let mut all = own.clone();
        all.extend(quals.iter().cloned());
        let paths = self.paths(*rte, &all, outer.rels)?;
        let paths: Vec<Path> = paths.into_iter().filter(Path::uses_index).collect();
        Ok(if paths.is_empty() { None } else { Some(cheapest(paths)) })
    }

    fn join_selectivity(&mut self, q: &Expr, outer: &Unit, inner: &Unit) -> f64 {
        let Expr::Call { function, args, .. } = q else { return 1.0 / 3.0 };
        match comparison(function) {
            Some((CompareOp::Eq, _)) => {
                let mut most = 1.0f64;
                for a in args {
                    let rows = if rels_of(a) & outer.rels != 0 { outer.rows } else { inner.rows };
                    most = most.max(self.distinct_of(a, rows));
                }
                1.0 / most
            }
            _ => 1.0 / 3.0,
        }
    }

    fn distinct_of(&mut self, e: &Expr, rows: f64) -> f64 {
        let Expr::Var(v) = e else { return rows.clamp(1.0, 200.0) };
        match self.table_of(v.rte) {
            Some(scan) => {
                let (_, all) = self.env.size(&scan.table);
                distinct_values(&scan.table, all, v.col)
            }
            None => rows.clamp(1.0, 200.0),
        }
    }

    /// The inner side of a plain loop: its rows are kept, unless each outer row brings others.
    fn looped(&mut self, inner: Unit, lateral: bool) -> Result<Plan> {
        let plan = self.built(inner)?;
        if lateral || matches!(plan.op, Op::CteScan { .. } | Op::Result) {
            return Ok(plan);
        }
        let fixed = !self.reads_outside(&plan);
        let mut kept = Plan::over(&plan, Op::Result, plan.rows, 0.0);
        kept.op = Op::Materialize { child: Box::new(plan), fixed };
        Ok(kept)
    }

    /// Whether a plan reads registers that it does not write, or anything that changes while the
    /// statement runs: then what was kept of it cannot be used after a rescan.
    fn reads_outside(&self, plan: &Plan) -> bool {
        let around = Around { subplans: &self.subplans, ctes: &self.ctes };
        !inputs(plan, around).is_empty()
    }

    fn join(
        &mut self,
        kind: JoinType,
        outer: Unit,
        inner: Unit,
        quals: Vec<Expr>,
        choice: Choice,
    ) -> Result<Unit> {
        let rels = outer.rels | inner.rels;
        let needs = (outer.needs | inner.needs) & !rels;
        let lateral = inner.needs & outer.rels != 0;
        let outer_plan = self.built(outer)?;
        let ordering = outer_plan.ordering.clone();
        let op = match choice.method {
            Method::Probe(path) => {
                let Source::Base { rte, .. } = inner.source else {
                    return Err(crate::error::SqlError::internal("a probe of no table"));
                };
                let inner_plan = self.build_path(rte, &path)?;
                Op::NestedLoop {
                    kind,
                    outer: Box::new(outer_plan),
                    inner: Box::new(inner_plan),
                    filter: None,
                }
            }
            Method::Loop => Op::NestedLoop {
                kind,
                outer: Box::new(outer_plan),
                inner: Box::new(self.looped(inner, lateral)?),
                filter: self.filter(&quals)?,
            },
            Method::Hash { keys, rest, cond } => {
                let inner_plan = self.built(inner)?;
                let mut compiled = Vec::with_capacity(keys.len());
                for (l, r, ty) in &keys {
                    compiled.push((self.pexpr(l)?, self.pexpr(r)?, *ty));
                }
                let cond = match cond.as_slice() {
                    [one] => self.text(one),
                    many => self.text(&Expr::And(many.to_vec())),
                };
                let fixed = !self.reads_outside(&inner_plan);
                Op::HashJoin {
                    kind,
                    outer: Box::new(outer_plan),
                    inner: Box::new(inner_plan),
                    keys: compiled,
                    cond,
                    filter: self.filter(&rest)?,
                    fixed,
                }
            }
        };
        let mut plan = Plan::new(op, choice.rows, choice.cost);
        let keeps_order = !matches!(kind, JoinType::Right | JoinType::Full);
        plan.ordering = if keeps_order { ordering } else { Vec::new() };
        plan.width = plan.op.children().iter().map(|c| c.width).sum();
        let (rows, cost) = (plan.rows, plan.cost);
        Ok(Unit { rels, needs, rows, cost, source: Source::Built(Box::new(plan)) })
    }
}

type HashKey = (Expr, Expr, Oid);

/// The equalities between the two sides, as (outer, inner, type), and the other conditions.
fn hash_keys(outer: Rels, inner: Rels, quals: &[Expr]) -> Option<(Vec<HashKey>, Vec<Expr>)> {
    let mut keys = Vec::new();
    let mut rest = Vec::new();
    for q in quals {
        match hash_key(outer, inner, q) {
            Some(key) => keys.push(key),
            None => rest.push(q.clone()),
        }
    }
    (!keys.is_empty()).then_some((keys, rest))
}

fn hash_key(outer: Rels, inner: Rels, q: &Expr) -> Option<HashKey> {
    let Expr::Call { function, args, .. } = q else { return None };
    let (op, ty) = comparison(function)?;
    let [a, b] = args.as_slice() else { return None };
    if op != CompareOp::Eq || has_volatile(q) {
        return None;
    }
    let (ra, rb) = (rels_of(a), rels_of(b));
    if ra == 0 || rb == 0 {
        return None;
    }
    if ra & !outer == 0 && rb & !inner == 0 {
        Some((a.clone(), b.clone(), ty))
    } else if rb & !outer == 0 && ra & !inner == 0 {
        Some((b.clone(), a.clone(), ty))
    } else {
        None
    }
}

/// The condition that a key came from, for EXPLAIN.
fn find_cond(quals: &[Expr], key: &HashKey) -> Expr {
    let made_of = |q: &&Expr| match q {
        Expr::Call { args, .. } => {
            args.len() == 2 && args.contains(&key.0) && args.contains(&key.1)
        }
        _ => false,
    };
    let found = quals.iter().find(made_of).cloned();
    match found {
        Some(Expr::Call { function, args, ty }) if args[0] != key.0 => {
            // Written the other way round: shown with the outer side first if that reads the same.
            let same = function.args.first() == function.args.last();
            let args = if same { vec![key.0.clone(), key.1.clone()] } else { args };
            Expr::Call { function, args, ty }
        }
        Some(q) => q,
        None => key.0.clone(),
    }
}

/// Whether rows by this path come in the order of `keys`.
fn order_fits(path: &Path, keys: &[(i16, bool, bool)]) -> bool {
    let constant = path.constant_columns();
    let mut have = path.order.iter().filter(|o| !constant.contains(&o.0));
    keys.iter()
        .filter(|k| !constant.contains(&k.0))
        .all(|key| have.next().is_some_and(|o| o == key))
}
