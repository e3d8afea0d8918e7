//! Access paths: the ways to read one table.
//!
//! ```text
//!   conditions on t        index (a, b, c)
//!     a = 1                  prefix: a = 1
//!     b in (2, 3)                    b in (2, 3)      two probes
//!     c > 5                  bound:  c > 5
//!     d = 7                  filter: d = 7
//! ```
//!
//! A condition can be used when one side is the index column and the other reads nothing of the
//! table: a constant, a parameter, or columns of tables that are joined before (a *parameterised*
//! path, the inner side of a nested loop). What the index cannot answer stays a filter.

use super::compile::{commuted, comparison};
use super::estimate::*;
use super::planner::{Columns, Planner};
use super::rewrite::has_volatile;
use super::tree::{Rels, bit, conjuncts, rels_of};
use super::*;
use crate::analyze::bound::*;
use crate::error::{Result, SqlError};
use crate::exec::expr::CompareOp;
use crate::types::Datum;

#[derive(Clone)]
pub(super) enum PathKind {
    Seq,
    Index(IndexPath),
    Tid(Vec<Expr>),
}

/// An index with what is asked of its columns.
#[derive(Clone)]
pub(super) struct IndexPath {
    index: Arc<IndexDef>,
    prefix: Vec<Key>,
    lower: Option<(Expr, bool)>,
    upper: Option<(Expr, bool)>,
    not_null: bool,
    backward: bool,
    /// The conditions that it answers.
    used: Vec<Expr>,
}

#[derive(Clone)]
enum Key {
    Equal(Expr),
    In(Vec<Expr>),
    AnyOf(Expr),
    IsNull,
}

/// A way to read a table.
#[derive(Clone)]
pub(super) struct Path {
    pub kind: PathKind,
    /// Conditions left to test on each row.
    pub filter: Vec<Expr>,
    pub rows: f64,
    pub cost: Cost,
    /// The order in which rows come: (column, descending, nulls first).
    pub order: Vec<(i16, bool, bool)>,
    /// At most one row, by a unique index.
    pub one_row: bool,
}

/// A condition in the form that an index can use: index column on the left.
enum Usable<'e> {
    Compare(CompareOp, &'e Expr),
    In(&'e [Expr]),
    AnyOf(&'e Expr),
    IsNull,
    NotNull,
    True(bool),
}

fn strip(e: &Expr) -> &Expr {
    match e {
        Expr::Relabel { arg, .. } | Expr::Collate { arg, .. } => strip(arg),
        e => e,
    }
}

impl Planner<'_> {
    pub(super) fn table_of(&mut self, rte: u16) -> Option<ScanTable> {
        match self.scope().columns.get(usize::from(rte)) {
            Some(Columns::Table(scan)) => Some(scan.clone()),
            _ => None,
        }
    }

    /// The ways to read a table. `outer`: what may be read from tables joined before.
    pub(super) fn paths(&mut self, rte: u16, quals: &[Expr], outer: Rels) -> Result<Vec<Path>> {
        let scan = self
            .table_of(rte)
            .ok_or_else(|| SqlError::internal("only tables have access paths"))?;
        let table = scan.table.clone();
        let (pages, rows) = self.env.size(&table);
        let left: f64 = quals.iter().map(|q| selectivity(q, &table, rows)).product();
        let rows_out = (rows * left).max(1.0);
        let mut paths = Vec::new();
        if let Some(path) = tid_path(rte, quals, outer) {
            paths.push(path);
        }
        for index in &table.indexes {
            if !index.valid {
                continue;
            }
            if let Some(path) = self.index_path(rte, &table, index, quals, outer)? {
                paths.push(cost_index(path, &table, quals, pages, rows, rows_out));
            }
        }
        let disabled = if self.env.enabled("enable_seqscan") { 0.0 } else { 1e10 };
        paths.push(Path {
            kind: PathKind::Seq,
            filter: quals.to_vec(),
            rows: rows_out,
            cost: Cost {
                startup: disabled,
                total: disabled + pages + rows * (TUPLE + OPERATOR * quals.len() as f64),
            },
            order: Vec::new(),
            one_row: false,
        });
        Ok(paths)
    }

    /// The cheapest way to read a table.
    pub(super) fn best_path(&mut self, rte: u16, quals: &[Expr]) -> Result<Path> {
        let paths = self.paths(rte, quals, 0)?;
        Ok(cheapest(paths))
    }

    fn index_path(
        &mut self,
        rte: u16,
        table: &Arc<TableDef>,
        index: &Arc<IndexDef>,
        quals: &[Expr],
        outer: Rels,
    ) -> Result<Option<IndexPath>> {
        let parts = self.env.index_parts(table, index)?;
        if let Some(predicate) = &parts.predicate
            && !implied(predicate, rte, quals)
        {
            return Ok(None);
        }
        let mut path = IndexPath {
            index: index.clone(),
            prefix: Vec::new(),
            lower: None,
            upper: None,
            not_null: false,
            backward: false,
            used: Vec::new(),
        };
        for (i, column) in index.columns.iter().take(index.key_columns).enumerate() {
            let expr = match parts.exprs.get(i) {
                Some(Some(e)) => Some(at_entry(e, rte)),
                _ => None,
            };
            let is_column = |e: &Expr| match (&expr, strip(e)) {
                (Some(x), e) => x == e,
                (None, Expr::Var(v)) => v.level == 0 && v.rte == rte && v.col == column.attnum - 1,
                _ => false,
            };
            if !self.match_column(&mut path, column.ty.oid, &is_column, rte, quals, outer) {
                break;
            }
        }
        Ok(Some(path))
    }

    /// Finds the conditions on one index column; true when the next column may be used too.
    fn match_column(
        &self,
        path: &mut IndexPath,
        ty: Oid,
        is_column: &dyn Fn(&Expr) -> bool,
        rte: u16,
        quals: &[Expr],
        outer: Rels,
    ) -> bool {
        let mut range = Vec::new();
        let mut several = None;
        for q in quals {
            let Some(usable) = usable(q, ty, is_column, rte, outer) else { continue };
            let key = match usable {
                Usable::Compare(CompareOp::Eq, value) => Key::Equal(value.clone()),
                Usable::True(b) => Key::Equal(bool_const(b)),
                Usable::IsNull => Key::IsNull,
                Usable::In(items) => {
                    several.get_or_insert((Key::In(items.to_vec()), q));
                    continue;
                }
                Usable::AnyOf(array) => {
                    several.get_or_insert((Key::AnyOf(array.clone()), q));
                    continue;
                }
                Usable::Compare(op, value) => {
                    range.push((Some((op, value.clone())), q));
                    continue;
                }
                Usable::NotNull => {
                    range.push((None, q));
                    continue;
                }
            };
            path.prefix.push(key);
            path.used.push(q.clone());
            return true;
        }
        if let Some((key, q)) = several {
            path.prefix.push(key);
            path.used.push(q.clone());
            return true;
        }
        for (bound, q) in range {
            let slot = match &bound {
                None => {
                    path.not_null = true;
                    path.used.push(q.clone());
                    continue;
                }
                Some((CompareOp::Gt | CompareOp::Ge, _)) => &mut path.lower,
                Some(_) => &mut path.upper,
            };
            if let (None, Some((op, value))) = (&slot, bound) {
                *slot = Some((value, matches!(op, CompareOp::Ge | CompareOp::Le)));
                path.used.push(q.clone());
            }
        }
        false
    }

    /// Makes the plan of a path.
    pub(super) fn build_path(&mut self, rte: u16, path: &Path) -> Result<Plan> {
        let scan = self
            .table_of(rte)
            .ok_or_else(|| SqlError::internal("only tables have access paths"))?;
        let filter = self.filter(&path.filter)?;
        let mut ordering = Vec::new();
        for (col, descending, nulls_first) in &path.order {
            let reg = scan.base + *col as u32;
            ordering.push(OrderKey { reg, descending: *descending, nulls_first: *nulls_first });
        }
        let width = width(&scan.table);
        let op = match &path.kind {
            PathKind::Seq => Op::SeqScan { scan, filter },
            PathKind::Tid(values) => {
                let tids = self.pexprs(values)?;
                let cond = tids
                    .iter()
                    .map(|t| t.text.as_ref().map(|t| format!("(ctid = {t})")))
                    .collect::<Option<Vec<_>>>()
                    .map(|t| t.join(" OR ").into_boxed_str());
                Op::TidScan { scan, tids, cond, filter }
            }
            PathKind::Index(index) => {
                let index = self.build_index_path(scan, index, filter)?;
                Op::IndexScan(Box::new(index))
            }
        };
        let mut plan = Plan::new(op, path.rows, path.cost);
        plan.ordering = ordering;
        plan.width = width;
        Ok(plan)
    }

    fn build_index_path(
        &mut self,
        scan: ScanTable,
        path: &IndexPath,
        filter: Option<PExpr>,
    ) -> Result<IndexScanPlan> {
        let mut prefix = Vec::with_capacity(path.prefix.len());
        for key in &path.prefix {
            prefix.push(match key {
                Key::Equal(e) => KeyCond::Equal(self.pexpr(e)?),
                Key::In(items) => KeyCond::In(self.pexprs(items)?),
                Key::AnyOf(e) => KeyCond::AnyOf(self.pexpr(e)?),
                Key::IsNull => KeyCond::IsNull,
            });
        }
        let mut bound = |b: &Option<(Expr, bool)>| -> Result<Option<KeyBound>> {
            match b {
                None => Ok(None),
                Some((e, inclusive)) => {
                    Ok(Some(KeyBound { value: self.pexpr(e)?, inclusive: *inclusive }))
                }
            }
        };
        let (lower, upper) = (bound(&path.lower)?, bound(&path.upper)?);
        let cond = match path.used.as_slice() {
            [] => None,
            [one] => self.text(one),
            many => self.text(&Expr::And(many.to_vec())),
        };
        Ok(IndexScanPlan {
            scan,
            index: path.index.clone(),
            prefix,
            lower,
            upper,
            not_null: path.not_null,
            backward: path.backward,
            cond,
            filter,
            index_only: false,
        })
    }
}

pub(super) fn cheapest(paths: Vec<Path>) -> Path {
    // A unique lookup beats everything: a small table may be large tomorrow, and a plan is kept.
    let better =
        |a: &Path, b: &Path| (b.one_row, -b.cost.total).partial_cmp(&(a.one_row, -a.cost.total));
    paths
        .into_iter()
        .min_by(|a, b| better(a, b).unwrap_or(std::cmp::Ordering::Equal))
        .expect("a sequential scan is always possible")
}

/// The same path read from the other end.
pub(super) fn reversed(path: &Path) -> Option<Path> {
    let mut path = path.clone();
    let PathKind::Index(index) = &mut path.kind else { return None };
    index.backward = !index.backward;
    for key in &mut path.order {
        key.1 = !key.1;
        key.2 = !key.2;
    }
    Some(path)
}

fn bool_const(value: bool) -> Expr {
    Expr::Const { value: Datum::Bool(value), ty: TypeRef::plain(Oid::BOOL) }
}

/// An index expression over entry 0 as it reads for entry `rte`.
fn at_entry(e: &Expr, rte: u16) -> Expr {
    let mut e = e.clone();
    walk::rewrite(&mut e, 0, &mut |e, level| {
        if let Expr::Var(v) = e
            && v.level == level
        {
            v.rte = rte;
        }
    });
    e
}

/// Whether the conditions say what a partial index's condition says: each part stands among them.
fn implied(predicate: &Expr, rte: u16, quals: &[Expr]) -> bool {
    let mut parts = Vec::new();
    conjuncts(at_entry(predicate, rte), &mut parts);
    let mut known = Vec::new();
    quals.iter().for_each(|q| conjuncts(q.clone(), &mut known));
    let not_null = |p: &Expr| match p {
        // A strict comparison of the column says that it is not NULL.
        Expr::IsNull { arg, negated: true } => known.iter().any(|q| match q {
            Expr::Call { function, args, .. } => {
                comparison(function).is_some() && args.iter().any(|a| strip(a) == strip(arg))
            }
            _ => false,
        }),
        _ => false,
    };
    parts.iter().all(|p| known.contains(p) || not_null(p))
}

fn usable<'e>(
    q: &'e Expr,
    ty: Oid,
    is_column: &dyn Fn(&Expr) -> bool,
    rte: u16,
    outer: Rels,
) -> Option<Usable<'e>> {
    let outside = |e: &Expr| {
        let rels = rels_of(e);
        rels & bit(rte) == 0 && rels & !outer == 0 && !has_volatile(e)
    };
    match q {
        Expr::Call { function, args, .. } => {
            let (op, order) = comparison(function)?;
            let [left, right] = args.as_slice() else { return None };
            if op == CompareOp::Ne || !order_fits(order, ty) {
                return None;
            }
            if is_column(left) && outside(right) {
                Some(Usable::Compare(op, right))
            } else if is_column(right) && outside(left) {
                Some(Usable::Compare(commuted(op), left))
            } else {
                None
            }
        }
        Expr::InList { left, items, equal } => {
            let (op, order) = comparison(equal)?;
            let fits = op == CompareOp::Eq && order_fits(order, ty) && is_column(left);
            (fits && items.iter().all(outside)).then_some(Usable::In(items))
        }
        Expr::ArrayCompare { left, array, function, all: false } => {
            let (op, order) = comparison(function)?;
            let fits = op == CompareOp::Eq && order_fits(order, ty) && is_column(left);
            (fits && outside(array)).then_some(Usable::AnyOf(array))
        }
        Expr::IsNull { arg, negated } if is_column(arg) => {
            Some(if *negated { Usable::NotNull } else { Usable::IsNull })
        }
        Expr::Not(arg) if ty == Oid::BOOL && is_column(arg) => Some(Usable::True(false)),
        e if ty == Oid::BOOL && is_column(e) => Some(Usable::True(true)),
        _ => None,
    }
}

/// Whether an index column of type `ty` is sorted as a comparison in `order` compares.
fn order_fits(order: Oid, ty: Oid) -> bool {
    match order {
        Oid::INT8 => matches!(ty, Oid::INT2 | Oid::INT4 | Oid::INT8),
        Oid::TEXT => matches!(ty, Oid::TEXT | Oid::VARCHAR | Oid::NAME),
        Oid::OID => {
            ty == Oid::OID
                || matches!(ty, Oid::REGCLASS | Oid::REGTYPE | Oid::REGPROC | Oid::REGNAMESPACE)
        }
        same => same == ty,
    }
}

fn tid_path(rte: u16, quals: &[Expr], outer: Rels) -> Option<Path> {
    let is_ctid = |e: &Expr| {
        matches!(e, Expr::Var(v)
        if v.level == 0 && v.rte == rte && v.col == system_column::CTID)
    };
    for (i, q) in quals.iter().enumerate() {
        let tids = match usable(q, Oid::TID, &is_ctid, rte, outer) {
            Some(Usable::Compare(CompareOp::Eq, value)) => vec![value.clone()],
            Some(Usable::In(items)) => items.to_vec(),
            _ => continue,
        };
        let mut filter = quals.to_vec();
        filter.remove(i);
        let rows = tids.len() as f64;
        let cost = Cost { startup: 0.0, total: rows * (RANDOM_PAGE + TUPLE) };
        let kind = PathKind::Tid(tids);
        return Some(Path { kind, filter, rows, cost, order: vec![], one_row: true });
    }
    None
}

fn cost_index(
    mut path: IndexPath,
    table: &TableDef,
    quals: &[Expr],
    pages: f64,
    rows: f64,
    rows_out: f64,
) -> Path {
    let full = path.prefix.len() == path.index.key_columns;
    let exact = path.prefix.iter().all(|k| matches!(k, Key::Equal(_)));
    // A key that is checked later may be there twice for a while.
    let unique = path.index.unique && path.index.immediate;
    let one_row = full && exact && unique && !path.prefix.is_empty();
    let share: f64 = path.used.iter().map(|q| selectivity(q, table, rows)).product();
    let entries = if one_row { 1.0 } else { (rows * share).max(1.0) };
    let probes: f64 = path
        .prefix
        .iter()
        .map(|k| match k {
            Key::In(items) => items.len() as f64,
            Key::AnyOf(_) => 10.0,
            _ => 1.0,
        })
        .product();
    let filter: Vec<Expr> = quals.iter().filter(|q| !path.used.contains(q)).cloned().collect();
    // Fetching rows in index order reads pages here and there, but no page matters twice more
    // often than there are pages.
    let fetches = entries.min(pages * 1.2);
    let descend = 0.1 + 0.05 * rows.max(1.0).log2();
    let total = probes * descend
        + entries * (INDEX_TUPLE + TUPLE + OPERATOR * filter.len() as f64)
        + fetches * RANDOM_PAGE;
    let single = path.prefix.iter().all(|k| matches!(k, Key::Equal(_) | Key::IsNull));
    let skip = path.prefix.len();
    let mut order = Vec::new();
    if single {
        // Columns fixed by the prefix do not matter to the order; see `join::order_fits`.
        for c in path.index.columns[..path.index.key_columns].iter() {
            if c.attnum == 0 {
                break;
            }
            order.push((c.attnum - 1, c.descending, c.nulls_first));
        }
        debug_assert!(skip <= path.index.key_columns);
    }
    path.backward = false;
    let cost = Cost { startup: descend, total };
    let rows = if one_row { 1.0 } else { rows_out };
    Path { kind: PathKind::Index(path), filter, rows, cost, order, one_row }
}

impl Path {
    /// Columns that the path holds to one value each.
    pub fn constant_columns(&self) -> Vec<i16> {
        let PathKind::Index(path) = &self.kind else { return vec![] };
        path.prefix
            .iter()
            .zip(&path.index.columns)
            .filter(|(k, c)| matches!(k, Key::Equal(_) | Key::IsNull) && c.attnum > 0)
            .map(|(_, c)| c.attnum - 1)
            .collect()
    }

    /// Whether an index condition reads another table: only as the inner side of a loop.
    pub fn uses_index(&self) -> bool {
        matches!(&self.kind, PathKind::Index(p) if !p.used.is_empty())
            || matches!(self.kind, PathKind::Tid(_))
    }
}
