//! Walking bound trees.
//!
//! Every visitor is told how many query levels lie between it and where the walk began, so that
//! `var.level == depth` means "a column of the query where the walk began". Recursion runs on
//! growable stack.

use super::bound::*;
use super::with_stack;

/// Calls `f` for each direct sub-expression; a sub-select's query is not entered.
pub(crate) fn children<'e>(e: &'e Expr, f: &mut dyn FnMut(&'e Expr)) {
    match e {
        Expr::Const { .. }
        | Expr::Param { .. }
        | Expr::Var(_)
        | Expr::CaseOperand { .. }
        | Expr::SqlValue { .. } => {}
        Expr::Call { args, .. }
        | Expr::SetCall { args, .. }
        | Expr::Coalesce { args, .. }
        | Expr::MinMax { args, .. }
        | Expr::And(args)
        | Expr::Or(args) => args.iter().for_each(f),
        Expr::Array { items, .. } | Expr::Row { items, .. } => items.iter().for_each(f),
        Expr::Not(arg)
        | Expr::IsNull { arg, .. }
        | Expr::IsBool { arg, .. }
        | Expr::Field { arg, .. }
        | Expr::CoerceViaText { arg, .. }
        | Expr::Relabel { arg, .. }
        | Expr::ApplyTypmod { arg, .. }
        | Expr::Collate { arg, .. } => f(arg),
        Expr::CoerceArray { arg, element, .. } => {
            f(arg);
            f(element);
        }
        Expr::Distinct { left, right, .. } | Expr::NullIf { left, right, .. } => {
            f(left);
            f(right);
        }
        Expr::ArrayCompare { left, array, .. } => {
            f(left);
            f(array);
        }
        Expr::InList { left, items, .. } => {
            f(left);
            items.iter().for_each(f);
        }
        Expr::Case { operand, arms, otherwise, .. } => {
            operand.iter().for_each(|e| f(e));
            for (when, then) in arms {
                f(when);
                f(then);
            }
            otherwise.iter().for_each(|e| f(e));
        }
        Expr::Subscript { array, index, .. } => {
            f(array);
            for i in index {
                match i {
                    SubscriptIndex::At(e) => f(e),
                    SubscriptIndex::Slice(a, b) => a.iter().chain(b).for_each(&mut *f),
                }
            }
        }
        Expr::RowCompare { left, right, .. } => left.iter().chain(right).for_each(f),
        Expr::Subquery(s) => {
            if let SubqueryKind::Quantified { left, .. } = &s.kind {
                left.iter().for_each(f);
            }
        }
        Expr::Aggregate(a) => {
            a.args.iter().for_each(&mut *f);
            a.order_by.iter().for_each(|k| f(&k.expr));
            a.filter.iter().for_each(f);
        }
        Expr::Window(w) => window_children(w, f),
    }
}

fn window_children<'e>(w: &'e WindowCall, f: &mut dyn FnMut(&'e Expr)) {
    w.args.iter().for_each(&mut *f);
    w.partition_by.iter().for_each(&mut *f);
    w.order_by.iter().for_each(|k| f(&k.expr));
    w.filter.iter().for_each(&mut *f);
    if let Some(frame) = &w.frame {
        for bound in [&frame.start, &frame.end] {
            if let FrameBound::Preceding(e) | FrameBound::Following(e) = bound {
                f(e);
            }
        }
    }
}

/// [`children`], to change them.
pub(crate) fn children_mut(e: &mut Expr, f: &mut dyn FnMut(&mut Expr)) {
    match e {
        Expr::Const { .. }
        | Expr::Param { .. }
        | Expr::Var(_)
        | Expr::CaseOperand { .. }
        | Expr::SqlValue { .. } => {}
        Expr::Call { args, .. }
        | Expr::SetCall { args, .. }
        | Expr::Coalesce { args, .. }
        | Expr::MinMax { args, .. }
        | Expr::And(args)
        | Expr::Or(args) => args.iter_mut().for_each(f),
        Expr::Array { items, .. } | Expr::Row { items, .. } => items.iter_mut().for_each(f),
        Expr::Not(arg)
        | Expr::IsNull { arg, .. }
        | Expr::IsBool { arg, .. }
        | Expr::Field { arg, .. }
        | Expr::CoerceViaText { arg, .. }
        | Expr::Relabel { arg, .. }
        | Expr::ApplyTypmod { arg, .. }
        | Expr::Collate { arg, .. } => f(arg),
        Expr::CoerceArray { arg, element, .. } => {
            f(arg);
            f(element);
        }
        Expr::Distinct { left, right, .. } | Expr::NullIf { left, right, .. } => {
            f(left);
            f(right);
        }
        Expr::ArrayCompare { left, array, .. } => {
            f(left);
            f(array);
        }
        Expr::InList { left, items, .. } => {
            f(left);
            items.iter_mut().for_each(f);
        }
        Expr::Case { operand, arms, otherwise, .. } => {
            operand.iter_mut().for_each(|e| f(e));
            for (when, then) in arms {
                f(when);
                f(then);
            }
            otherwise.iter_mut().for_each(|e| f(e));
        }
        Expr::Subscript { array, index, .. } => {
            f(array);
            for i in index {
                match i {
                    SubscriptIndex::At(e) => f(e),
                    SubscriptIndex::Slice(a, b) => a.iter_mut().chain(b).for_each(&mut *f),
                }
            }
        }
        Expr::RowCompare { left, right, .. } => left.iter_mut().chain(right).for_each(f),
        Expr::Subquery(s) => {
            if let SubqueryKind::Quantified { left, .. } = &mut s.kind {
                left.iter_mut().for_each(f);
            }
        }
        Expr::Aggregate(a) => {
            a.args.iter_mut().for_each(&mut *f);
            a.order_by.iter_mut().for_each(|k| f(&mut k.expr));
            a.filter.iter_mut().for_each(f);
        }
        Expr::Window(w) => window_children_mut(w, f),
    }
}

fn window_children_mut(w: &mut WindowCall, f: &mut dyn FnMut(&mut Expr)) {
    w.args.iter_mut().for_each(&mut *f);
    w.partition_by.iter_mut().for_each(&mut *f);
    w.order_by.iter_mut().for_each(|k| f(&mut k.expr));
    w.filter.iter_mut().for_each(&mut *f);
    if let Some(frame) = &mut w.frame {
        for bound in [&mut frame.start, &mut frame.end] {
            if let FrameBound::Preceding(e) | FrameBound::Following(e) = bound {
                f(e);
            }
        }
    }
}

/// Visits an expression and everything below it, sub-selects included; `f` answers whether to go
/// below the expression that it was shown.
pub(crate) fn visit(e: &Expr, depth: u16, f: &mut dyn FnMut(&Expr, u16) -> bool) {
    if !f(e, depth) {
        return;
    }
    with_stack(0, || {
        children(e, &mut |c| visit(c, depth, f));
        if let Expr::Subquery(s) = e {
            visit_query(&s.query, depth + 1, f);
        }
    });
}

/// Visits every expression of a query, whose own columns are at level `depth`.
pub(crate) fn visit_query(q: &Query, depth: u16, f: &mut dyn FnMut(&Expr, u16) -> bool) {
    with_stack(0, || {
        for cte in &q.ctes {
            visit_query(&cte.query, depth + 1, f);
        }
        for rte in &q.rtes {
            match &rte.source {
                RangeSource::Subquery { query, .. } => visit_query(query, depth + 1, f),
                RangeSource::Function { args, .. } => {
                    args.iter().for_each(|e| visit(e, depth, f));
                }
                RangeSource::RowsFrom { functions, .. } => {
                    functions.iter().flat_map(|x| &x.1).for_each(|e| visit(e, depth, f));
                }
                RangeSource::Values { rows, .. } => {
                    rows.iter().flatten().for_each(|e| visit(e, depth, f));
                }
                _ => {}
            }
        }
        q.from.iter().for_each(|item| visit_from(item, depth, f));
        query_exprs(q, &mut |e| visit(e, depth, f));
        if let Some(set) = &q.set_operation {
            visit_query(&set.left, depth + 1, f);
            visit_query(&set.right, depth + 1, f);
        }
    });
}

fn visit_from(item: &FromItem, depth: u16, f: &mut dyn FnMut(&Expr, u16) -> bool) {
    if let FromItem::Join { left, right, on, .. } = item {
        with_stack(0, || {
            visit_from(left, depth, f);
            visit_from(right, depth, f);
        });
        on.iter().for_each(|e| visit(e, depth, f));
    }
}

/// The expressions of a query's own clauses, FROM left out.
pub(crate) fn query_exprs<'q>(q: &'q Query, f: &mut dyn FnMut(&'q Expr)) {
    q.filter.iter().for_each(&mut *f);
    q.targets.iter().for_each(|t| f(&t.expr));
    q.group_by.iter().for_each(&mut *f);
    q.having.iter().for_each(&mut *f);
    if let Some(Distinct::On(list)) = &q.distinct {
        list.iter().for_each(&mut *f);
    }
    q.order_by.iter().for_each(|k| f(&k.expr));
    q.limit.iter().for_each(&mut *f);
    q.offset.iter().for_each(f);
}

/// Changes every expression at and below `e`, children first, sub-selects included.
pub(crate) fn transform(e: &mut Expr, depth: u16, f: &mut dyn FnMut(&mut Expr, u16)) {
    with_stack(0, || {
        children_mut(e, &mut |c| transform(c, depth, f));
        if let Expr::Subquery(s) = e {
            transform_query(&mut s.query, depth + 1, f);
        }
    });
    f(e, depth);
}

pub(crate) fn transform_query(q: &mut Query, depth: u16, f: &mut dyn FnMut(&mut Expr, u16)) {
    with_stack(0, || {
        for cte in &mut q.ctes {
            transform_query(&mut cte.query, depth + 1, f);
        }
        for rte in &mut q.rtes {
            match &mut rte.source {
                RangeSource::Subquery { query, .. } => transform_query(query, depth + 1, f),
                RangeSource::Function { args, .. } => {
                    args.iter_mut().for_each(|e| transform(e, depth, f));
                }
                RangeSource::RowsFrom { functions, .. } => {
                    functions
                        .iter_mut()
                        .flat_map(|x| &mut x.1)
                        .for_each(|e| transform(e, depth, f));
                }
                RangeSource::Values { rows, .. } => {
                    rows.iter_mut().flatten().for_each(|e| transform(e, depth, f));
                }
                _ => {}
            }
        }
        q.from.iter_mut().for_each(|item| transform_from(item, depth, f));
        let own = &mut |e: &mut Expr| transform(e, depth, f);
        q.filter.iter_mut().for_each(&mut *own);
        q.targets.iter_mut().for_each(|t| own(&mut t.expr));
        q.group_by.iter_mut().for_each(&mut *own);
        q.having.iter_mut().for_each(&mut *own);
        if let Some(Distinct::On(list)) = &mut q.distinct {
            list.iter_mut().for_each(&mut *own);
        }
        q.order_by.iter_mut().for_each(|k| own(&mut k.expr));
        q.limit.iter_mut().for_each(&mut *own);
        q.offset.iter_mut().for_each(own);
        if let Some(set) = &mut q.set_operation {
            transform_query(&mut set.left, depth + 1, f);
            transform_query(&mut set.right, depth + 1, f);
        }
    });
}

fn transform_from(item: &mut FromItem, depth: u16, f: &mut dyn FnMut(&mut Expr, u16)) {
    if let FromItem::Join { left, right, on, .. } = item {
        with_stack(0, || {
            transform_from(left, depth, f);
            transform_from(right, depth, f);
        });
        on.iter_mut().for_each(|e| transform(e, depth, f));
    }
}

/// Moves an expression `by` query levels inward: its columns are that much further out.
pub(crate) fn shifted(mut e: Expr, by: u16) -> Expr {
    if by > 0 {
        transform(&mut e, 0, &mut |e, depth| {
            if let Expr::Var(v) = e
                && v.level >= depth
            {
                v.level += by;
            }
        });
    }
    e
}

/// The smallest level of a column in `e`, seen from where `e` stands; None: no columns.
pub(crate) fn lowest_level(e: &Expr) -> Option<u16> {
    let mut lowest: Option<u16> = None;
    visit(e, 0, &mut |e, depth| {
        if let Expr::Var(v) = e
            && v.level >= depth
        {
            let level = v.level - depth;
            lowest = Some(lowest.map_or(level, |l| l.min(level)));
        }
        true
    });
    lowest
}

/// Whether `e` reads a column of the query that it stands in.
pub(crate) fn has_own_vars(e: &Expr) -> bool {
    lowest_level(e) == Some(0)
}

/// Whether `found` holds anywhere in `e` itself (not inside its sub-selects).
pub(crate) fn any(e: &Expr, found: &mut dyn FnMut(&Expr) -> bool) -> bool {
    let mut hit = false;
    visit(e, 0, &mut |e, depth| {
        hit = hit || (depth == 0 && found(e));
        !hit && depth == 0
    });
    hit
}

pub(crate) fn has_aggregate(e: &Expr) -> bool {
    any(e, &mut |e| matches!(e, Expr::Aggregate(_)))
}

pub(crate) fn has_window(e: &Expr) -> bool {
    any(e, &mut |e| matches!(e, Expr::Window(_)))
}

pub(crate) fn has_set_call(e: &Expr) -> bool {
    any(e, &mut |e| matches!(e, Expr::SetCall { .. }))
}
