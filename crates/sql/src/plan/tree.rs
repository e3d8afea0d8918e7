//! The join tree: which relations are joined how, and under what conditions.
//!
//! Inner joins are flat lists of items with one pool of conditions, so that they can be ordered
//! freely; outer, semi and anti joins are nodes. On the way:
//!
//! - EXISTS and IN conditions become semi joins, NOT EXISTS an anti join;
//! - a left join whose right side a condition above needs to be not NULL becomes an inner one;
//! - constants spread through equalities (`a = b and b = 1` also says `a = 1`).

use super::compile::comparison;
use super::rewrite::{Merged, Pulled, has_volatile, is_plain, lift, pull_up};
use super::walk::{any, any_in_query, rewrite, visit};
use crate::analyze::bound::*;
use crate::exec::expr::CompareOp;
use crate::exec::join::JoinType;
use crate::types::{Datum, TypeRef};

/// A set of range-table entries of one query.
pub(super) type Rels = u128;

pub(super) fn bit(rte: u16) -> Rels {
    1u128 << rte.min(127)
}

#[derive(Clone)]
pub(super) enum Tree {
    Leaf(u16),
    Inner { items: Vec<Tree>, quals: Vec<Expr> },
    Join { kind: JoinType, left: Box<Tree>, right: Box<Tree>, on: Vec<Expr> },
}

impl Tree {
    pub fn rels(&self) -> Rels {
        match self {
            Tree::Leaf(r) => bit(*r),
            Tree::Inner { items, .. } => items.iter().fold(0, |s, i| s | i.rels()),
            Tree::Join { left, right, .. } => left.rels() | right.rels(),
        }
    }
}

/// The entries of the query itself that an expression reads.
pub(super) fn rels_of(e: &Expr) -> Rels {
    let mut rels = 0;
    visit(e, 0, &mut |e, level| {
        if let Expr::Var(v) = e
            && v.level == level
        {
            rels |= bit(v.rte);
        }
        true
    });
    rels
}

pub(super) fn conjuncts(e: Expr, out: &mut Vec<Expr>) {
    match e {
        Expr::And(items) => items.into_iter().for_each(|i| conjuncts(i, out)),
        Expr::Const { value: Datum::Bool(true), .. } => {}
        e => out.push(e),
    }
}

/// The query's join tree. Merged sub-selects are expanded; entries of sub-selects that become
/// joins are added to `q`.
pub(super) fn build(q: &mut Query, pulled: &mut Pulled) -> Tree {
    let from = std::mem::take(&mut q.from);
    let mut quals = Vec::new();
    if let Some(f) = q.filter.take() {
        conjuncts(f, &mut quals);
    }
    let items = from.iter().map(|i| from_item(i, pulled)).collect();
    let mut tree = flatten(Tree::Inner { items, quals });
    tree = sub_selects(tree, q, pulled);
    let mut tree = reduce(flatten(tree), &[]);
    lift_quals(&mut tree);
    let mut tree = flatten(tree);
    spread_constants(&mut tree);
    tree
}

fn from_item(item: &FromItem, pulled: &Pulled) -> Tree {
    match item {
        FromItem::Rte(r) => match pulled.get(r) {
            Some(Merged { from, filter }) => {
                let mut quals = Vec::new();
                if let Some(f) = filter {
                    conjuncts(f.clone(), &mut quals);
                }
                Tree::Inner { items: from.iter().map(|i| from_item(i, pulled)).collect(), quals }
            }
            None => Tree::Leaf(*r),
        },
        FromItem::Join { kind, left, right, on } => {
            let (left, right) = (from_item(left, pulled), from_item(right, pulled));
            let mut quals = Vec::new();
            if let Some(on) = on {
                conjuncts(on.clone(), &mut quals);
            }
            let join = |kind, left, right| Tree::Join {
                kind,
                left: Box::new(left),
                right: Box::new(right),
                on: quals.clone(),
            };
            match kind {
                JoinKind::Inner => Tree::Inner { items: vec![left, right], quals },
                JoinKind::Left => join(JoinType::Left, left, right),
                JoinKind::Right => join(JoinType::Left, right, left),
                JoinKind::Full => join(JoinType::Full, left, right),
            }
        }
    }
}

/// Inner joins of inner joins are one.
fn flatten(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Join { kind, left, right, on } => Tree::Join {
            kind,
            left: Box::new(flatten(*left)),
            right: Box::new(flatten(*right)),
            on,
        },
        Tree::Inner { items, mut quals } => {
            let mut flat = Vec::with_capacity(items.len());
            for item in items {
                match flatten(item) {
                    Tree::Inner { items, quals: more } => {
                        flat.extend(items);
                        quals.extend(more);
                    }
                    other => flat.push(other),
                }
            }
            if flat.len() == 1 && quals.is_empty() {
                return flat.remove(0);
            }
            Tree::Inner { items: flat, quals }
        }
    }
}

/// Conditions of a side that speak of the other side (from merged LATERAL sub-selects) belong to
/// the join. What is left over goes further up.
fn lift_quals(tree: &mut Tree) -> Vec<Expr> {
    match tree {
        Tree::Leaf(_) => Vec::new(),
        Tree::Inner { items, quals } => {
            for item in items.iter_mut() {
                quals.extend(lift_quals(item));
            }
            let rels = items.iter().fold(0, |s, i| s | i.rels());
            let (own, up) =
                std::mem::take(quals).into_iter().partition(|q| rels_of(q) & !rels == 0);
            *quals = own;
            up
        }
        Tree::Join { left, right, on, .. } => {
            let up = lift_quals(left);
            on.extend(lift_quals(right));
            up
        }
    }
}

// ---- outer joins that are inner ones ----------------------------------------------------------

/// Turns left joins into inner joins where `above` drops the NULL-extended rows anyway.
fn reduce(tree: Tree, above: &[Expr]) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Inner { items, quals } => {
            let mut all = above.to_vec();
            all.extend(quals.iter().cloned());
            let items = items.into_iter().map(|i| reduce(i, &all)).collect();
            flatten(Tree::Inner { items, quals })
        }
        Tree::Join { kind: JoinType::Left, left, right, on } => {
            let rels = right.rels();
            if above.iter().any(|q| rejects_null(q, rels)) {
                let mut all = above.to_vec();
                all.extend(on.iter().cloned());
                let items = vec![reduce(*left, &all), reduce(*right, &all)];
                return flatten(Tree::Inner { items, quals: on });
            }
            let left = Box::new(reduce(*left, above));
            let right = Box::new(reduce(*right, &on));
            Tree::Join { kind: JoinType::Left, left, right, on }
        }
        Tree::Join { kind: JoinType::Full, left, right, on } => {
            let (l, r) = (left.rels(), right.rels());
            let rejects = |rels| above.iter().any(|q| rejects_null(q, rels));
            match (rejects(l), rejects(r)) {
                (false, false) => Tree::Join { kind: JoinType::Full, left, right, on },
                // Rows without a left side are dropped: the left side is the preserved one.
                (true, _) => reduce(Tree::Join { kind: JoinType::Left, left, right, on }, above),
                (false, true) => {
                    let (left, right) = (right, left);
                    Tree::Join { kind: JoinType::Left, left, right, on }
                }
            }
        }
        Tree::Join { kind, left, right, on } => {
            let left = Box::new(reduce(*left, above));
            let right = Box::new(reduce(*right, &on));
            Tree::Join { kind, left, right, on }
        }
    }
}

/// Whether the condition is never true when all columns of `rels` are NULL.
fn rejects_null(e: &Expr, rels: Rels) -> bool {
    match e {
        Expr::And(items) => items.iter().any(|i| rejects_null(i, rels)),
        Expr::Or(items) => !items.is_empty() && items.iter().all(|i| rejects_null(i, rels)),
        Expr::IsNull { arg, negated: true } => is_null_with(arg, rels),
        Expr::IsBool { arg, test: BoolTest::True } => rejects_null(arg, rels),
        Expr::IsBool { arg, test: BoolTest::False | BoolTest::NotUnknown } => {
            is_null_with(arg, rels)
        }
        e => is_null_with(e, rels),
    }
}

/// Whether the expression is NULL when all columns of `rels` are.
fn is_null_with(e: &Expr, rels: Rels) -> bool {
    match e {
        Expr::Var(v) => v.level == 0 && bit(v.rte) & rels != 0,
        Expr::Call { function, args, .. } => {
            function.strict && args.iter().any(|a| is_null_with(a, rels))
        }
        Expr::Not(arg)
        | Expr::Relabel { arg, .. }
        | Expr::ApplyTypmod { arg, .. }
        | Expr::CoerceViaText { arg, .. }
        | Expr::Collate { arg, .. } => is_null_with(arg, rels),
        Expr::InList { left, .. } => is_null_with(left, rels),
        Expr::ArrayCompare { left, function, all: false, .. } => {
            function.strict && is_null_with(left, rels)
        }
        _ => false,
    }
}

// ---- sub-selects as joins ---------------------------------------------------------------------

/// Makes joins of the EXISTS and IN conditions of each inner join.
fn sub_selects(tree: Tree, q: &mut Query, pulled: &mut Pulled) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Join { kind, left, right, on } => Tree::Join {
            kind,
            left: Box::new(sub_selects(*left, q, pulled)),
            right: Box::new(sub_selects(*right, q, pulled)),
            on,
        },
        Tree::Inner { items, quals } => {
            let items: Vec<Tree> = items.into_iter().map(|i| sub_selects(i, q, pulled)).collect();
            let mut rest = Vec::new();
            let mut joins = Vec::new();
            for qual in quals {
                match as_join(&qual, q) {
                    Some(join) if !items.is_empty() => joins.push(join),
                    _ => rest.push(qual),
                }
            }
            let mut tree = Tree::Inner { items, quals: rest };
            for (kind, right, on) in joins {
                let right = sub_selects(flatten(right), q, pulled);
                tree = Tree::Join { kind, left: Box::new(tree), right: Box::new(right), on };
            }
            tree
        }
    }
}

fn as_join(qual: &Expr, q: &mut Query) -> Option<(JoinType, Tree, Vec<Expr>)> {
    match qual {
        Expr::Subquery(s) => match &s.kind {
            SubqueryKind::Exists => {
                let (tree, on) = exists(&s.query, q)?;
                Some((JoinType::Semi, tree, on))
            }
            SubqueryKind::Quantified { left, functions, all: false } => {
                let equal = |f: &&'static crate::functions::Builtin| {
                    comparison(f).is_some_and(|c| c.0 == CompareOp::Eq)
                };
                let simple = |e: &Expr| {
                    !has_volatile(e) && !any(e, &mut |e, _| matches!(e, Expr::Subquery(_)))
                };
                let local = left.iter().any(|e| rels_of(e) != 0);
                if !local || !functions.iter().all(equal) || !left.iter().all(simple) {
                    return None;
                }
                let (tree, on) = in_list(left, functions, &s.query, q)?;
                Some((JoinType::Semi, tree, on))
            }
            _ => None,
        },
        Expr::Not(arg) => match &**arg {
            Expr::Subquery(s) if s.kind == SubqueryKind::Exists => {
                let (tree, on) = exists(&s.query, q)?;
                Some((JoinType::Anti, tree, on))
            }
            _ => None,
        },
        _ => None,
    }
}

fn outer_var(e: &Expr, level: u16) -> bool {
    matches!(e, Expr::Var(v) if v.level > level)
}

/// References to the query around that are not in conditions: in FROM's own sub-selects.
fn lateral_outward(sub: &Query) -> bool {
    sub.rtes.iter().any(|r| match &r.source {
        RangeSource::Table(_) => false,
        RangeSource::Subquery { query, .. } => {
            any_in_query(query, &mut |e, l| matches!(e, Expr::Var(v) if v.level > l + 1))
        }
        RangeSource::Function { args, .. } => args.iter().any(|a| any(a, &mut outer_var)),
        RangeSource::RowsFrom { functions, .. } => {
            functions.iter().any(|(_, args)| args.iter().any(|a| any(a, &mut outer_var)))
        }
        RangeSource::Values { rows, .. } => rows.iter().flatten().any(|a| any(a, &mut outer_var)),
        _ => false,
    })
}

/// Adds a plain sub-select's entries to `q`: its tree and its output expressions.
fn absorb(sub: &Query, q: &mut Query) -> Option<(Tree, Vec<Expr>)> {
    if q.rtes.len() + sub.rtes.len() > 120 || lateral_outward(sub) {
        return None;
    }
    let mut sub = sub.clone();
    let mut below = pull_up(&mut sub);
    if q.rtes.len() + sub.rtes.len() > 126 {
        return None;
    }
    lift(&mut sub, &mut below, q.rtes.len() as u16);
    q.rtes.append(&mut sub.rtes);
    let mut quals = Vec::new();
    if let Some(f) = sub.filter.take() {
        conjuncts(f, &mut quals);
    }
    let items = sub.from.iter().map(|i| from_item(i, &below)).collect();
    let outputs = sub.targets.into_iter().map(|t| t.expr).collect();
    Some((flatten(Tree::Inner { items, quals }), outputs))
}

fn exists(sub: &Query, q: &mut Query) -> Option<(Tree, Vec<Expr>)> {
    let mut sub = sub.clone();
    // Which columns, in what order, how many beyond one: nothing to EXISTS.
    let one_or_more = match &sub.limit {
        None => true,
        Some(Expr::Const { value: Datum::Int8(n), .. }) => *n > 0,
        Some(_) => false,
    };
    if !one_or_more {
        return None;
    }
    sub.limit = None;
    sub.order_by.clear();
    if !sub.grouped && sub.having.is_none() {
        sub.distinct = None;
        sub.targets.retain(|t| any(&t.expr, &mut |e, _| matches!(e, Expr::SetCall { .. })));
    }
    let correlated = any_in_query(&sub, &mut |e, l| matches!(e, Expr::Var(v) if v.level == l + 1));
    if !correlated || !is_plain(&sub) {
        return None;
    }
    let (tree, _) = absorb(&sub, q)?;
    Some(split(tree))
}

fn in_list(
    left: &[Expr],
    functions: &[&'static crate::functions::Builtin],
    sub: &Query,
    q: &mut Query,
) -> Option<(Tree, Vec<Expr>)> {
    let correlated = any_in_query(sub, &mut outer_var);
    let mut sub = sub.clone();
    if sub.limit.is_none() && sub.offset.is_none() {
        sub.order_by.clear();
        if sub.distinct == Some(Distinct::All) {
            sub.distinct = None;
        }
    }
    let (tree, outputs) = if is_plain(&sub) {
        absorb(&sub, q)?
    } else if !correlated && sub.row_marks.is_empty() && q.rtes.len() < 126 {
        let rte = q.rtes.len() as u16;
        let columns: Vec<RangeColumn> = sub
            .targets
            .iter()
            .map(|t| RangeColumn { name: t.name.clone(), ty: t.expr.ty(), dropped: false })
            .collect();
        let var = |(i, c): (usize, &RangeColumn)| {
            Expr::Var(Var { level: 0, rte, col: i as i16, ty: c.ty })
        };
        let outputs = columns.iter().enumerate().map(var).collect();
        let source = RangeSource::Subquery { query: Box::new(sub), lateral: false };
        q.rtes.push(RangeEntry { name: "ANY_subquery".into(), columns, source });
        (Tree::Leaf(rte), outputs)
    } else {
        return None;
    };
    let (tree, mut on) = split(tree);
    for ((l, f), r) in left.iter().zip(functions).zip(outputs) {
        let ty = TypeRef::plain(f.result);
        on.push(Expr::Call { function: f, args: vec![l.clone(), r], ty });
    }
    Some((tree, on))
}

/// Takes the conditions that speak of something outside the tree out of it.
fn split(mut tree: Tree) -> (Tree, Vec<Expr>) {
    let on = lift_quals(&mut tree);
    (flatten(tree), on)
}

// ---- equalities -------------------------------------------------------------------------------

/// `a = b and b = 1` also says `a = 1`: lets an index on `a` be used.
fn spread_constants(tree: &mut Tree) {
    match tree {
        Tree::Leaf(_) => {}
        Tree::Join { left, right, .. } => {
            spread_constants(left);
            spread_constants(right);
        }
        Tree::Inner { items, quals } => {
            items.iter_mut().for_each(spread_constants);
            let mut added = Vec::new();
            for (i, equality) in quals.iter().enumerate() {
                let Some((a, b)) = var_equality(equality) else { continue };
                for (j, known) in quals.iter().enumerate() {
                    if i == j || has_volatile(known) {
                        continue;
                    }
                    for (from, to) in [(a, b), (b, a)] {
                        if from.ty == to.ty
                            && let Some(new) = constant_for(known, from, to)
                            && !quals.contains(&new)
                            && !added.contains(&new)
                        {
                            added.push(new);
                        }
                    }
                }
            }
            quals.extend(added);
        }
    }
}

/// `var = var` of two entries, by a plain equality.
fn var_equality(e: &Expr) -> Option<(Var, Var)> {
    let Expr::Call { function, args, .. } = e else { return None };
    if comparison(function)?.0 != CompareOp::Eq {
        return None;
    }
    match args.as_slice() {
        [Expr::Var(a), Expr::Var(b)] if a.level == 0 && b.level == 0 && a.rte != b.rte => {
            Some((*a, *b))
        }
        _ => None,
    }
}

/// If `known` compares `from` alone with a constant: the same about `to`.
fn constant_for(known: &Expr, from: Var, to: Var) -> Option<Expr> {
    let Expr::Call { function, args, .. } = known else { return None };
    if comparison(function)?.0 != CompareOp::Eq || args.len() != 2 {
        return None;
    }
    let mentions = args.iter().any(|a| matches!(a, Expr::Var(v) if *v == from));
    if !mentions || rels_of(known) != bit(from.rte) {
        return None;
    }
    let constant = args.iter().all(|a| matches!(a, Expr::Var(v) if *v == from) || rels_of(a) == 0);
    if !constant || any(known, &mut |e, _| matches!(e, Expr::Subquery(_))) {
        return None;
    }
    let mut new = known.clone();
    rewrite(&mut new, 0, &mut |e, _| {
        if let Expr::Var(v) = e
            && *v == from
        {
            *e = Expr::Var(to);
        }
    });
    Some(new)
}

/// Every condition that a row of the tree's result satisfies with the rows it was made from:
/// what a newer version of a row has to be held against. Sides that may be NULL are left out.
pub(super) fn all_quals(tree: &Tree, out: &mut Vec<Expr>) {
    match tree {
        Tree::Leaf(_) => {}
        Tree::Inner { items, quals } => {
            out.extend(quals.iter().cloned());
            items.iter().for_each(|i| all_quals(i, out));
        }
        Tree::Join { kind, left, right, on } => {
            all_quals(left, out);
            if *kind == JoinType::Semi {
                out.extend(on.iter().cloned());
                all_quals(right, out);
            }
        }
    }
}
