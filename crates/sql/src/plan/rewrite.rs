//! Simpler queries with the same meaning: common table expressions inlined, sub-selects and views
//! merged into the query that reads them, min and max answered from an index.
//!
//! ```text
//!   select v.a from (select t.a, t.b from t where t.c > 0) v where v.b = 1
//!     pulled up:  rtes += t;  v.a -> t.a, v.b -> t.b;  v in FROM -> t with its condition
//! ```
//!
//! What a merged sub-select's place in FROM now stands for is kept beside the query ([`Pulled`]),
//! because FROM items carry no conditions of their own.

use super::walk::{any, any_in_query, children, rewrite, rewrite_query, shift_levels, visit_query};
use crate::analyze::bound::*;
use crate::functions::{Builtin, Volatility};
use crate::types::{Datum, Oid, TypeRef};
use hashbrown::HashMap;

/// What a range-table entry that was merged stands for.
#[derive(Clone, Default)]
pub(super) struct Merged {
    pub from: Vec<FromItem>,
    pub filter: Option<Expr>,
}

pub(super) type Pulled = HashMap<u16, Merged>;

pub(super) fn is_volatile(function: &Builtin) -> bool {
    function.volatility == Volatility::Volatile
}

fn calls_volatile(e: &Expr, _level: u16) -> bool {
    match e {
        Expr::Call { function, .. } | Expr::SetCall { function, .. } => is_volatile(function),
        _ => false,
    }
}

pub(super) fn has_volatile(e: &Expr) -> bool {
    any(e, &mut calls_volatile)
}

/// Everything that can be simplified without knowing the join tree.
pub(super) fn simplify(q: &mut Query) -> Pulled {
    inline_ctes(q);
    min_max(q);
    pull_up(q)
}

// ---- common table expressions ----------------------------------------------------------------

fn inline_ctes(q: &mut Query) {
    for i in 0..q.ctes.len() {
        let cte = &q.ctes[i];
        let wanted = match cte.materialized {
            Some(true) => false,
            Some(false) => true,
            None => count_uses(q, i) == 1,
        };
        let plain = !cte.recursive
            && cte.query.row_marks.is_empty()
            && !any_in_query(&cte.query, &mut calls_volatile);
        if !wanted || !plain {
            continue;
        }
        let body = cte.query.clone();
        replace_cte(q, 0, i, &body);
    }
}

/// How often the query's CTE `index` is read.
pub(super) fn count_uses(q: &Query, index: usize) -> usize {
    fn count(q: &Query, depth: u16, index: usize) -> usize {
        let here = |r: &RangeEntry| match r.source {
            RangeSource::Cte { level, index: i } => level == depth && i == index,
            _ => false,
        };
        let mut n = q.rtes.iter().filter(|r| here(r)).count();
        each_sub(q, &mut |sub| n += count(sub, depth + 1, index));
        n
    }
    count(q, 0, index)
}

/// Calls `f` for every query directly inside `q`: in FROM, CTEs, set operations, expressions.
fn each_sub(q: &Query, f: &mut dyn FnMut(&Query)) {
    fn expr(e: &Expr, f: &mut dyn FnMut(&Query)) {
        children(e, &mut |c| expr(c, f), &mut |_| {});
        if let Expr::Subquery(s) = e {
            f(&s.query);
        }
    }
    super::walk::query_parts(q, &mut |e| expr(e, f), &mut |_| {});
    super::walk::query_parts(q, &mut |_| {}, f);
}

fn each_sub_mut(q: &mut Query, f: &mut dyn FnMut(&mut Query)) {
    fn expr(e: &mut Expr, f: &mut dyn FnMut(&mut Query)) {
        super::walk::children_mut(e, &mut |c| expr(c, f), &mut |_| {});
        if let Expr::Subquery(s) = e {
            f(&mut s.query);
        }
    }
    super::walk::query_parts_mut(q, &mut |e| expr(e, f), &mut |_| {});
    super::walk::query_parts_mut(q, &mut |_| {}, f);
}

fn replace_cte(q: &mut Query, depth: u16, index: usize, body: &Query) {
    for rte in &mut q.rtes {
        let reads = match rte.source {
            RangeSource::Cte { level, index: i } => level == depth && i == index,
            _ => false,
        };
        if reads {
            let mut query = body.clone();
            shift_query(&mut query, 1, i32::from(depth));
            rte.source = RangeSource::Subquery { query: Box::new(query), lateral: false };
        }
    }
    each_sub_mut(q, &mut |sub| replace_cte(sub, depth + 1, index, body));
}

/// Moves a query's references to what lies at least `from` levels out by `by` levels.
pub(super) fn shift_query(q: &mut Query, from: u16, by: i32) {
    if by == 0 {
        return;
    }
    rewrite_query(q, 0, &mut |e, level| {
        if let Expr::Var(v) = e
            && v.level >= level + from
        {
            v.level = (i32::from(v.level) + by) as u16;
        }
    });
    shift_sources(q, 0, from, by);
}

fn shift_sources(q: &mut Query, depth: u16, from: u16, by: i32) {
    for rte in &mut q.rtes {
        if let RangeSource::Cte { level, .. } | RangeSource::WorkTable { level, .. } =
            &mut rte.source
            && *level >= depth + from
        {
            *level = (i32::from(*level) + by) as u16;
        }
    }
    each_sub_mut(q, &mut |sub| shift_sources(sub, depth + 1, from, by));
}

// ---- sub-selects in FROM -----------------------------------------------------------------------

/// Merges the plain sub-selects of FROM.
pub(super) fn pull_up(q: &mut Query) -> Pulled {
    let mut pulled = Pulled::new();
    let nullable = nullable_entries(&q.from);
    let mut position = 0;
    while position < q.rtes.len() {
        let k = position;
        position += 1;
        if pulled.values().any(|m| contains_entry(&m.from, k as u16)) && !in_from(&q.from, k as u16)
        {
            // An entry that came with a merged sub-select was looked at there.
            continue;
        }
        let RangeSource::Subquery { query, .. } = &q.rtes[k].source else { continue };
        if !is_plain(query) || q.rtes.len() + query.rtes.len() > 120 {
            continue;
        }
        if nullable.contains(&(k as u16)) && !only_columns(query) {
            continue;
        }
        let mut sub = (**query).clone();
        let below = pull_up(&mut sub);
        merge(q, k as u16, sub, below, &mut pulled);
    }
    pulled
}

fn contains_entry(items: &[FromItem], rte: u16) -> bool {
    in_from(items, rte)
}

fn in_from(items: &[FromItem], rte: u16) -> bool {
    items.iter().any(|i| match i {
        FromItem::Rte(r) => *r == rte,
        FromItem::Join { left, right, .. } => {
            in_from(std::slice::from_ref(left), rte) || in_from(std::slice::from_ref(right), rte)
        }
    })
}

/// Entries whose columns an outer join may set to NULL.
fn nullable_entries(from: &[FromItem]) -> Vec<u16> {
    fn walk(item: &FromItem, nullable: bool, out: &mut Vec<u16>) {
        match item {
            FromItem::Rte(r) if nullable => out.push(*r),
            FromItem::Rte(_) => {}
            FromItem::Join { kind, left, right, .. } => {
                let (l, r) = match kind {
                    JoinKind::Inner => (false, false),
                    JoinKind::Left => (false, true),
                    JoinKind::Right => (true, false),
                    JoinKind::Full => (true, true),
                };
                walk(left, nullable || l, out);
                walk(right, nullable || r, out);
            }
        }
    }
    let mut out = Vec::new();
    from.iter().for_each(|i| walk(i, false, &mut out));
    out
}

/// Whether a sub-select is nothing but joins, conditions and computed columns.
pub(super) fn is_plain(q: &Query) -> bool {
    let special = |e: &Expr, level: u16| match e {
        Expr::SetCall { .. } | Expr::Window(_) | Expr::Aggregate(_) => level == 0,
        e => calls_volatile(e, level),
    };
    q.ctes.is_empty()
        && q.set_operation.is_none()
        && !q.grouped
        && q.group_by.is_empty()
        && q.having.is_none()
        && q.distinct.is_none()
        && q.limit.is_none()
        && q.offset.is_none()
        && q.row_marks.is_empty()
        && !q.from.is_empty()
        && !q.targets.iter().any(|t| any(&t.expr, &mut { special }))
}

fn only_columns(q: &Query) -> bool {
    q.targets.iter().all(|t| matches!(&t.expr, Expr::Var(v) if v.level == 0 && v.col >= 0))
}

/// Renumbers the expressions of a query that moves into the one around it: its own entries get
/// `offset` added, references outward lose a level.
fn renumber(e: &mut Expr, depth: u16, offset: u16) {
    rewrite(e, depth, &mut |e, level| {
        if let Expr::Var(v) = e {
            if v.level == level {
                v.rte += offset;
            } else if v.level > level {
                v.level -= 1;
            }
        }
    });
}

fn renumber_from(item: &mut FromItem, offset: u16) {
    match item {
        FromItem::Rte(r) => *r += offset,
        FromItem::Join { left, right, on, .. } => {
            renumber_from(left, offset);
            renumber_from(right, offset);
            if let Some(on) = on {
                renumber(on, 0, offset);
                renumber_nested(on, 0);
            }
        }
    }
}

/// Moves CTE references of sub-selects in an expression one level in.
fn renumber_nested(e: &mut Expr, depth: u16) {
    super::walk::children_mut(e, &mut |c| renumber_nested(c, depth), &mut |_| {});
    if let Expr::Subquery(s) = e {
        shift_sources(&mut s.query, depth + 1, 1, -1);
    }
}

/// Makes a query's parts fit the query around it; its entries will be at `offset`.
pub(super) fn lift(sub: &mut Query, below: &mut Pulled, offset: u16) {
    rewrite_query(sub, 0, &mut |e, level| {
        if let Expr::Var(v) = e {
            if v.level == level {
                v.rte += offset;
            } else if v.level > level {
                v.level -= 1;
            }
        }
    });
    shift_sources(sub, 0, 1, -1);
    fn entries(item: &mut FromItem, offset: u16) {
        match item {
            FromItem::Rte(r) => *r += offset,
            FromItem::Join { left, right, .. } => {
                entries(left, offset);
                entries(right, offset);
            }
        }
    }
    sub.from.iter_mut().for_each(|i| entries(i, offset));
    let old = std::mem::take(below);
    for (k, mut m) in old {
        m.from.iter_mut().for_each(|i| renumber_from(i, offset));
        if let Some(f) = &mut m.filter {
            renumber(f, 0, offset);
            renumber_nested(f, 0);
        }
        below.insert(k + offset, m);
    }
}

fn merge(q: &mut Query, k: u16, mut sub: Query, mut below: Pulled, pulled: &mut Pulled) {
    let offset = q.rtes.len() as u16;
    lift(&mut sub, &mut below, offset);
    q.rtes.append(&mut sub.rtes);
    let targets = std::mem::take(&mut sub.targets);
    substitute(q, k, &targets);
    for m in pulled.values_mut() {
        let mut swap = |e: &mut Expr| substitute_in(e, 0, k, &targets);
        m.from.iter_mut().for_each(|i| each_on(i, &mut swap));
        m.filter.iter_mut().for_each(&mut swap);
    }
    pulled.extend(below);
    pulled.insert(k, Merged { from: sub.from, filter: sub.filter });
}

fn each_on(item: &mut FromItem, f: &mut dyn FnMut(&mut Expr)) {
    if let FromItem::Join { left, right, on, .. } = item {
        each_on(left, f);
        each_on(right, f);
        on.iter_mut().for_each(f);
    }
}

/// Puts the targets of a merged entry where its columns are named.
fn substitute(q: &mut Query, k: u16, targets: &[Target]) {
    super::walk::query_parts_mut(q, &mut |e| substitute_in(e, 0, k, targets), &mut |_| {});
    super::walk::query_parts_mut(q, &mut |_| {}, &mut |sub| {
        rewrite_query(sub, 1, &mut |e, level| replace_var(e, level, k, targets));
    });
}

fn substitute_in(e: &mut Expr, level: u16, k: u16, targets: &[Target]) {
    rewrite(e, level, &mut |e, level| replace_var(e, level, k, targets));
}

fn replace_var(e: &mut Expr, level: u16, k: u16, targets: &[Target]) {
    let Expr::Var(v) = e else { return };
    if v.level != level || v.rte != k || v.col < 0 {
        return;
    }
    let mut value = targets[v.col as usize].expr.clone();
    shift_levels(&mut value, 0, i32::from(level));
    if level > 0 {
        // Its sub-selects moved inward with it.
        shift_nested_sources(&mut value, i32::from(level));
    }
    *e = value;
}

fn shift_nested_sources(e: &mut Expr, by: i32) {
    super::walk::children_mut(e, &mut |c| shift_nested_sources(c, by), &mut |_| {});
    if let Expr::Subquery(s) = e {
        shift_sources(&mut s.query, 0, 1, by);
    }
}

// ---- min and max -------------------------------------------------------------------------------

/// `select min(x) from t ...` with an index on x becomes `select (select x from t ... where x is
/// not null order by x limit 1)`, which reads one entry.
fn min_max(q: &mut Query) {
    if !q.grouped || !q.group_by.is_empty() || q.having.is_some() || !q.row_marks.is_empty() {
        return;
    }
    let [FromItem::Rte(rte)] = q.from[..] else { return };
    if q.rtes.len() != 1 || !q.ctes.is_empty() || q.distinct.is_some() {
        return;
    }
    let RangeSource::Table(table) = &q.rtes[rte as usize].source else { return };
    let leads = |col: i16| {
        let of = |i: &crate::catalog::IndexDef| {
            i.valid
                && i.predicate.is_none()
                && i.columns.first().is_some_and(|c| c.attnum == col + 1)
        };
        table.indexes.iter().any(|i| of(i))
    };
    let mut aggregates = Vec::new();
    let mut fits = true;
    for t in &q.targets {
        super::walk::visit(&t.expr, 0, &mut |e, level| {
            match e {
                Expr::Aggregate(a) if level == 0 => {
                    let plain = matches!(a.function.name, "min" | "max")
                        && a.filter.is_none()
                        && matches!(a.args.as_slice(),
                            [Expr::Var(v)] if v.level == 0 && v.col >= 0 && leads(v.col));
                    fits &= plain;
                    aggregates.push((**a).clone());
                    return false;
                }
                Expr::Subquery(_) | Expr::Window(_) | Expr::SetCall { .. } => fits = false,
                _ => {}
            }
            true
        });
    }
    if !fits || aggregates.is_empty() || has_sub_select(q) {
        return;
    }
    let base = Query {
        rtes: std::mem::take(&mut q.rtes),
        from: std::mem::take(&mut q.from),
        filter: q.filter.take(),
        ..Query::default()
    };
    for t in &mut q.targets {
        rewrite(&mut t.expr, 0, &mut |e, _| {
            if let Expr::Aggregate(a) = e {
                *e = first_of(&base, a);
            }
        });
    }
    q.grouped = false;
    q.order_by.clear();
}

fn has_sub_select(q: &Query) -> bool {
    let mut found = false;
    visit_query(q, 0, &mut |e, _| {
        found |= matches!(e, Expr::Subquery(_)) || calls_volatile(e, 0);
        !found
    });
    let outer = |e: &Expr, level: u16| matches!(e, Expr::Var(v) if v.level > level);
    found || any_in_query(q, &mut { outer })
}

fn first_of(base: &Query, a: &AggregateCall) -> Expr {
    let arg = a.args[0].clone();
    let descending = a.function.name == "max";
    let mut query = base.clone();
    let not_null = Expr::IsNull { arg: Box::new(arg.clone()), negated: true };
    query.filter = Some(match query.filter.take() {
        Some(f) => Expr::And(vec![f, not_null]),
        None => not_null,
    });
    let origin = None;
    query.targets = vec![Target { expr: arg.clone(), name: a.function.name.to_owned(), origin }];
    query.order_by = vec![SortKey { expr: arg, descending, nulls_first: descending }];
    let one = Expr::Const { value: Datum::Int8(1), ty: TypeRef::plain(Oid::INT8) };
    query.limit = Some(one);
    Expr::Subquery(Box::new(SubqueryExpr { kind: SubqueryKind::Scalar, query, ty: a.ty }))
}
