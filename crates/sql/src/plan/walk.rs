//! Walking bound expressions and queries, across query levels.
//!
//! `level` counts the queries entered on the way: a [`Var`] met there with the same `level` is a
//! column of the query that the walk started in.

use crate::analyze::bound::*;
use crate::functions::Builtin;
use crate::types::{Datum, Oid};

/// The sequence that a call moves, when the call names it by a constant.
pub fn named_sequence(function: &Builtin, args: &[Expr]) -> Option<Oid> {
    match (function.name, args.first()) {
        ("nextval" | "setval", Some(Expr::Const { value: Datum::Oid(oid), .. })) => Some(Oid(*oid)),
        _ => None,
    }
}

/// The sequences that an expression moves and names by constants.
pub fn named_sequences(e: &Expr) -> Vec<Oid> {
    let mut found = Vec::new();
    visit(e, 0, &mut |e, _| {
        if let Expr::Call { function, args, .. } = e {
            found.extend(named_sequence(function, args));
        }
        true
    });
    found
}

macro_rules! walkers {
    ($children:ident, $calls:ident, $query:ident, $bound:ident, $set:ident, $iter:ident
     $(, $m:tt)?) => {
        /// Calls `f` for each direct sub-expression; sub-selects are entered by `q`.
        pub fn $children(
            e: & $($m)? Expr,
            f: &mut dyn FnMut(& $($m)? Expr),
            q: &mut dyn FnMut(& $($m)? Query),
        ) {
            match e {
                Expr::Const { .. } | Expr::Param { .. } | Expr::Var(_)
                | Expr::CaseOperand { .. }
                | Expr::SqlValue { .. } => {}
                Expr::Call { args, .. }
                | Expr::And(args)
                | Expr::Or(args)
                | Expr::Coalesce { args, .. }
                | Expr::MinMax { args, .. }
                | Expr::Array { items: args, .. }
                | Expr::Row { items: args, .. }
                | Expr::SetCall { args, .. } => args.$iter().for_each(|a| f(a)),
                Expr::Not(arg)
                | Expr::IsNull { arg, .. }
                | Expr::IsBool { arg, .. }
                | Expr::Field { arg, .. }
                | Expr::CoerceViaText { arg, .. }
                | Expr::Relabel { arg, .. }
                | Expr::ApplyTypmod { arg, .. }
                | Expr::Collate { arg, .. } => f(arg),
                Expr::Distinct { left, right, .. }
                | Expr::NullIf { left, right, .. }
                | Expr::ArrayCompare { left, array: right, .. }
                | Expr::CoerceArray { arg: left, element: right, .. } => {
                    f(left);
                    f(right);
                }
                Expr::Case { operand, arms, otherwise, .. } => {
                    if let Some(e) = operand { f(e) }
                    for (when, then) in arms.$iter() {
                        f(when);
                        f(then);
                    }
                    if let Some(e) = otherwise { f(e) }
                }
                Expr::InList { left, items, .. } => {
                    f(left);
                    items.$iter().for_each(|a| f(a));
                }
                Expr::Subscript { array, index, .. } => {
                    f(array);
                    for i in index.$iter() {
                        match i {
                            SubscriptIndex::At(e) => f(e),
                            SubscriptIndex::Slice(a, b) => {
                                if let Some(e) = a { f(e) }
                                if let Some(e) = b { f(e) }
                            }
                        }
                    }
                }
                Expr::RowCompare { left, right, .. } => {
                    left.$iter().for_each(|a| f(a));
                    right.$iter().for_each(|a| f(a));
                }
                Expr::Subquery(s) => {
                    if let SubqueryKind::Quantified { left, .. } = & $($m)? s.kind {
                        left.$iter().for_each(|a| f(a));
                    }
                    q(& $($m)? s.query);
                }
                Expr::Aggregate(_) | Expr::Window(_) => $calls(e, f),
            }
        }

        /// Aggregate and window calls.
        fn $calls(e: & $($m)? Expr, f: &mut dyn FnMut(& $($m)? Expr)) {
            match e {
                Expr::Aggregate(a) => {
                    let AggregateCall { args, order_by, filter, .. } = &$($m)? **a;
                    args.$iter().for_each(|a| f(a));
                    order_by.$iter().for_each(|k| f(& $($m)? k.expr));
                    if let Some(e) = filter { f(e) }
                }
                Expr::Window(w) => {
                    let WindowCall { args, partition_by, order_by, filter, frame, .. } =
                        &$($m)? **w;
                    args.$iter().for_each(|a| f(a));
                    partition_by.$iter().for_each(|a| f(a));
                    order_by.$iter().for_each(|k| f(& $($m)? k.expr));
                    if let Some(e) = filter { f(e) }
                    if let Some(frame) = frame {
                        $bound(& $($m)? frame.start, f);
                        $bound(& $($m)? frame.end, f);
                    }
                }
                _ => {}
            }
        }

        fn $bound(b: & $($m)? FrameBound, f: &mut dyn FnMut(& $($m)? Expr)) {
            if let FrameBound::Preceding(e) | FrameBound::Following(e) = b {
                f(e);
            }
        }

        /// Calls `f` for each expression of the query's own level and `q` for each query directly
        /// below it.
        pub fn $query(
            query: & $($m)? Query,
            f: &mut dyn FnMut(& $($m)? Expr),
            q: &mut dyn FnMut(& $($m)? Query),
        ) {
            query.ctes.$iter().for_each(|c| q(& $($m)? c.query));
            for rte in query.rtes.$iter() {
                match & $($m)? rte.source {
                    RangeSource::Table(_)
                    | RangeSource::Cte { .. }
                    | RangeSource::WorkTable { .. }
                    | RangeSource::Join => {}
                    RangeSource::Subquery { query, .. } => q(query),
                    RangeSource::Function { args, .. } => args.$iter().for_each(|a| f(a)),
                    RangeSource::RowsFrom { functions, .. } => {
                        for (_, args) in functions.$iter() {
                            args.$iter().for_each(|a| f(a));
                        }
                    }
                    RangeSource::Values { rows, .. } => {
                        rows.$iter().for_each(|r| r.$iter().for_each(|e| f(e)));
                    }
                }
            }
            query.from.$iter().for_each(|i| $set(i, f));
            if let Some(e) = & $($m)? query.filter { f(e) }
            query.targets.$iter().for_each(|t| f(& $($m)? t.expr));
            query.group_by.$iter().for_each(|e| f(e));
            if let Some(e) = & $($m)? query.having { f(e) }
            if let Some(Distinct::On(exprs)) = & $($m)? query.distinct {
                exprs.$iter().for_each(|e| f(e));
            }
            query.order_by.$iter().for_each(|k| f(& $($m)? k.expr));
            if let Some(e) = & $($m)? query.limit { f(e) }
            if let Some(e) = & $($m)? query.offset { f(e) }
            if let Some(s) = & $($m)? query.set_operation {
                q(& $($m)? s.left);
                q(& $($m)? s.right);
            }
        }

        fn $set(item: & $($m)? FromItem, f: &mut dyn FnMut(& $($m)? Expr)) {
            if let FromItem::Join { left, right, on, .. } = item {
                $set(left, f);
                $set(right, f);
                if let Some(e) = on { f(e) }
            }
        }
    };
}

walkers!(children, call_children, query_parts, frame_bound, from_item, iter);
walkers!(
    children_mut,
    call_children_mut,
    query_parts_mut,
    frame_bound_mut,
    from_item_mut,
    iter_mut,
    mut
);

/// Every expression of the tree, sub-selects included: `f(expression, level)`. Returning false
/// leaves out what is below.
pub fn visit(e: &Expr, level: u16, f: &mut dyn FnMut(&Expr, u16) -> bool) {
    if !f(e, level) {
        return;
    }
    // Two closures would both need `f`; sub-selects are collected and visited after.
    let mut queries: Vec<&Query> = Vec::new();
    if let Expr::Subquery(s) = e {
        queries.push(&s.query);
    }
    children(e, &mut |c| visit(c, level, f), &mut |_| {});
    for q in queries {
        visit_query(q, level + 1, f);
    }
}

/// [`visit`] for all of a query; `level` is the query's own.
pub fn visit_query(q: &Query, level: u16, f: &mut dyn FnMut(&Expr, u16) -> bool) {
    query_parts(q, &mut |e| visit(e, level, f), &mut |_| {});
    each_query(q, &mut |sub| visit_query(sub, level + 1, f));
}

fn each_query(q: &Query, f: &mut dyn FnMut(&Query)) {
    query_parts(q, &mut |_| {}, f);
}

/// Changes expressions bottom-up, sub-selects included.
pub fn rewrite(e: &mut Expr, level: u16, f: &mut dyn FnMut(&mut Expr, u16)) {
    children_mut(e, &mut |c| rewrite(c, level, f), &mut |_| {});
    if let Expr::Subquery(s) = e {
        rewrite_query(&mut s.query, level + 1, f);
    }
    f(e, level);
}

pub fn rewrite_query(q: &mut Query, level: u16, f: &mut dyn FnMut(&mut Expr, u16)) {
    query_parts_mut(q, &mut |e| rewrite(e, level, f), &mut |_| {});
    query_parts_mut(q, &mut |_| {}, &mut |sub| rewrite_query(sub, level + 1, f));
}

/// Every query below `q`, with its level (1: directly below).
pub fn queries_below(q: &mut Query, level: u16, f: &mut dyn FnMut(&mut Query, u16)) {
    let mut expressions = |e: &mut Expr| {
        each_subquery(e, &mut |s| {
            f(s, level + 1);
            queries_below(s, level + 1, f);
        })
    };
    query_parts_mut(q, &mut expressions, &mut |_| {});
    query_parts_mut(q, &mut |_| {}, &mut |sub| {
        f(sub, level + 1);
        queries_below(sub, level + 1, f);
    });
}

fn each_subquery(e: &mut Expr, f: &mut dyn FnMut(&mut Query)) {
    children_mut(e, &mut |c| each_subquery(c, f), &mut |_| {});
    if let Expr::Subquery(s) = e {
        f(&mut s.query);
    }
}

/// Moves the references of an expression to queries outside it by `by` levels: used when it is
/// put into a query deeper or less deep than it was written in. `from`: references at or beyond
/// this level move.
pub fn shift_levels(e: &mut Expr, from: u16, by: i32) {
    rewrite(e, 0, &mut |e, level| {
        if let Expr::Var(v) = e
            && v.level >= level + from
        {
            v.level = (i32::from(v.level) + by) as u16;
        }
    });
}

/// Whether anything in the expression satisfies `f`; sub-selects included.
pub fn any(e: &Expr, f: &mut dyn FnMut(&Expr, u16) -> bool) -> bool {
    let mut found = false;
    visit(e, 0, &mut |e, level| {
        found = found || f(e, level);
        !found
    });
    found
}

/// Whether anything in the query satisfies `f`; the query itself is level 0.
pub fn any_in_query(q: &Query, f: &mut dyn FnMut(&Expr, u16) -> bool) -> bool {
    let mut found = false;
    visit_query(q, 0, &mut |e, level| {
        found = found || f(e, level);
        !found
    });
    found
}
