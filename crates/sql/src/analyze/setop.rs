//! UNION, INTERSECT, EXCEPT, and WITH.
//!
//! Both sides of a set operation are queries one level further in; its targets name the result
//! columns. A recursive CTE is a UNION whose right side reads the working table: its column
//! types are those of the left side.

use super::bound::*;
use super::node::{self, Node, need};
use super::scope::{Binder, Clause, CteName};
use super::select::is_set_operation;
use crate::error::{Result, State};
use crate::functions::CastContext;
use crate::types::{Oid, TypeRef};
use pg_query::protobuf::{self, CommonTableExpr, CteMaterialize, SelectStmt, WithClause};

impl Binder<'_> {
    pub(crate) fn set_operation(&mut self, s: &SelectStmt) -> Result<Query> {
        let left = s.larg.as_deref().ok_or_else(node::missing)?;
        let left = self.select(left, false)?;
        self.set_operation_with(s, left)
    }

    /// The rest of a set operation, its left side bound.
    fn set_operation_with(&mut self, s: &SelectStmt, left: Query) -> Result<Query> {
        use protobuf::SetOperation as Op;
        if !s.locking_clause.is_empty() {
            return Err(self.lock_refused(s, "UNION/INTERSECT/EXCEPT"));
        }
        let (op, name) = match s.op() {
            Op::SetopUnion => (SetOperator::Union, "UNION"),
            Op::SetopIntersect => (SetOperator::Intersect, "INTERSECT"),
            _ => (SetOperator::Except, "EXCEPT"),
        };
        let right_node = s.rarg.as_deref().ok_or_else(node::missing)?;
        let mut right = self.select(right_node, false)?;
        let mut left = left;
        if left.targets.len() != right.targets.len() {
            let at = node::each(&right_node.target_list).next().map_or(-1, node::location);
            let message = format!("each {name} query must have the same number of columns");
            return Err(self.error(State::SYNTAX_ERROR, message, at));
        }
        let mut q = Query::default();
        for i in 0..left.targets.len() {
            let l_at = target_location(s.larg.as_deref(), i);
            let r_at = target_location(Some(right_node), i);
            let (l, r) = (left.targets[i].expr.ty(), right.targets[i].expr.ty());
            let kinds = [(l.oid, l_at), (r.oid, r_at)];
            let oid = self.common_type(&kinds, Some(name))?.unwrap_or(Oid::TEXT);
            let target = TypeRef::plain(oid);
            self.to_common_column(&mut left, i, target, name, l_at)?;
            self.to_common_column(&mut right, i, target, name, r_at)?;
            if !s.all || op != SetOperator::Union {
                self.need_equality(oid, l_at)?;
            }
            let (l, r) = (left.targets[i].expr.ty(), right.targets[i].expr.ty());
            let ty = TypeRef::new(oid, if l == r { l.typmod } else { -1 });
            let expr = Expr::Var(Var { level: 0, rte: 0, col: i as i16, ty });
            let name = left.targets[i].name.clone();
            q.targets.push(Target { expr, name, origin: None });
        }
        q.set_operation = Some(Box::new(SetOperation { op, all: s.all, left, right }));
        q.order_by = self.set_order_by(&s.sort_clause, &q.targets)?;
        self.limits(s, &mut q)?;
        Ok(q)
    }

    fn to_common_column(
        &mut self,
        q: &mut Query,
        i: usize,
        target: TypeRef,
        context: &str,
        location: i32,
    ) -> Result<()> {
        let from = q.targets[i].expr.ty().oid;
        if !super::coerce::can_coerce(from, target.oid, CastContext::Implicit) {
            let (from, to) = (self.type_text(from), self.type_text(target.oid));
            let message = format!("{context} could not convert type {from} to {to}");
            return Err(self.error(State::CANNOT_COERCE, message, location));
        }
        self.coerce_column(q, i, target, CastContext::Implicit, location)
    }

    /// Converts one output column of a query, on both sides of a set operation.
    pub(crate) fn coerce_column(
        &mut self,
        q: &mut Query,
        i: usize,
        target: TypeRef,
        context: CastContext,
        location: i32,
    ) -> Result<()> {
        if q.targets[i].expr.ty().oid == target.oid {
            return Ok(());
        }
        self.deeper(|b| {
            if let Some(set) = &mut q.set_operation {
                b.coerce_column(&mut set.left, i, target, context, location)?;
                b.coerce_column(&mut set.right, i, target, context, location)?;
                if let Expr::Var(v) = &mut q.targets[i].expr {
                    v.ty = target;
                }
                for key in &mut q.order_by {
                    if let Expr::Var(v) = &mut key.expr
                        && usize::try_from(v.col).is_ok_and(|c| c == i)
                    {
                        v.ty = target;
                    }
                }
                return Ok(());
            }
            let e = std::mem::replace(&mut q.targets[i].expr, Expr::And(Vec::new()));
            q.targets[i].expr = b.coerce(e, target, context, location)?;
            Ok(())
        })
    }

    /// ORDER BY of a set operation: names and positions of its columns.
    fn set_order_by(&mut self, list: &[node::Boxed], targets: &[Target]) -> Result<Vec<SortKey>> {
        let mut out: Vec<SortKey> = Vec::with_capacity(list.len());
        for n in node::each(list) {
            let Node::SortBy(s) = n else { return Err(node::missing()) };
            let key = need(&s.node)?;
            let location = node::location(key);
            let index = match key {
                Node::AConst(c) => match c.val.as_ref() {
                    Some(protobuf::a_const::Val::Ival(i)) => {
                        let found = usize::try_from(i.ival - 1).ok();
                        let found = found.filter(|i| *i < targets.len());
                        if found.is_none() {
                            let message =
                                format!("ORDER BY position {} is not in select list", i.ival);
                            let state = State::INVALID_COLUMN_REFERENCE;
                            return Err(self.error(state, message, location));
                        }
                        found
                    }
                    _ => {
                        let message = "non-integer constant in ORDER BY";
                        return Err(self.error(State::SYNTAX_ERROR, message, location));
                    }
                },
                Node::ColumnRef(c) => match node::names(&c.fields).as_slice() {
                    [name] => {
                        let found = targets.iter().position(|t| t.name == *name);
                        if found.is_none() && c.fields.len() == 1 {
                            return Err(self.missing_column(None, name, location));
                        }
                        found
                    }
                    _ => None,
                },
                _ => None,
            };
            let Some(index) = index else {
                let message = "invalid UNION/INTERSECT/EXCEPT ORDER BY clause";
                return Err(self
                    .error(State::FEATURE_NOT_SUPPORTED, message, location)
                    .detail("Only result column names can be used, not expressions or functions.")
                    .hint(
                        "Add the expression/function to every SELECT, or move the UNION into a \
                         FROM clause.",
                    ));
            };
            let e = targets[index].expr.clone();
            out.push(self.sort_key(e, s, location)?);
        }
        Ok(out)
    }

    // ----- WITH.

    /// Binds WITH in the innermost scope. `ctes` are those that it already has.
    pub(crate) fn with_clause(
        &mut self,
        with: Option<&WithClause>,
        mut ctes: Vec<Cte>,
    ) -> Result<Vec<Cte>> {
        let Some(with) = with else { return Ok(ctes) };
        let inherited = ctes.len();
        let list: Vec<&Node> = node::each(&with.ctes).collect();
        for (i, n) in list.iter().enumerate() {
            let Node::CommonTableExpr(c) = n else { return Err(node::missing()) };
            if ctes[inherited..].iter().any(|x| x.name == c.ctename) {
                let message = format!("WITH query name \"{}\" specified more than once", c.ctename);
                return Err(self.error(State::DUPLICATE_ALIAS, message, c.location));
            }
            if with.recursive {
                self.refuse_forward(c, &list[i + 1..])?;
            }
            let index = ctes.len();
            let cte = self.bind_cte(c, index, with.recursive)?;
            let name = CteName {
                name: cte.name.clone(),
                columns: cte.columns.clone(),
                index,
                working: false,
                unknown: false,
            };
            self.scope()?.ctes.retain(|x| x.index != index);
            self.scope()?.ctes.push(name);
            ctes.push(cte);
        }
        Ok(ctes)
    }

    /// WITH RECURSIVE lets queries refer to later ones; we do not, and say so.
    fn refuse_forward(&self, c: &CommonTableExpr, later: &[&Node]) -> Result<()> {
        let body = need(&c.ctequery)?;
        for n in later {
            let Node::CommonTableExpr(other) = n else { continue };
            if mentions(body, &other.ctename, 0) {
                return Err(
                    self.unsupported("a reference to a later query of WITH RECURSIVE", c.location)
                );
            }
        }
        Ok(())
    }

    fn bind_cte(&mut self, c: &CommonTableExpr, index: usize, recursive: bool) -> Result<Cte> {
        if c.search_clause.is_some() || c.cycle_clause.is_some() {
            return Err(self.unsupported("SEARCH and CYCLE", c.location));
        }
        let body = need(&c.ctequery)?;
        let Node::SelectStmt(select) = body else {
            return Err(self.unsupported("a data-modifying statement in WITH", c.location));
        };
        let materialized = match c.ctematerialized() {
            CteMaterialize::Always => Some(true),
            CteMaterialize::Never => Some(false),
            _ => None,
        };
        let mut cte = Cte {
            name: c.ctename.clone(),
            query: Query::default(),
            recursive: false,
            materialized,
            columns: Vec::new(),
        };
        if recursive && mentions(body, &c.ctename, 0) {
            self.recursive_cte(c, select, index, &mut cte)?;
        } else {
            cte.query = self.sub_select(select)?;
            cte.columns = self.cte_columns(c, &cte.query)?;
        }
        Ok(cte)
    }

    fn cte_columns(&self, c: &CommonTableExpr, q: &Query) -> Result<Vec<RangeColumn>> {
        let column = |t: &Target| {
            let mut ty = t.expr.ty();
            if ty.oid == Oid::UNKNOWN {
                ty = TypeRef::plain(Oid::TEXT);
            }
            RangeColumn { name: t.name.clone(), ty, dropped: false }
        };
        let mut columns: Vec<RangeColumn> = q.targets.iter().map(column).collect();
        let names = node::names(&c.aliascolnames);
        if names.len() > columns.len() {
            let message = format!(
                "WITH query \"{}\" has {} columns available but {} columns specified",
                c.ctename,
                columns.len(),
                names.len()
            );
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, c.location));
        }
        self.rename_columns(&mut columns, &names, &c.ctename, "WITH query")?;
        Ok(columns)
    }

    fn recursive_cte(
        &mut self,
        c: &CommonTableExpr,
        s: &SelectStmt,
        index: usize,
        cte: &mut Cte,
    ) -> Result<()> {
        let union = s.op() == protobuf::SetOperation::SetopUnion;
        if !is_set_operation(s) || !union {
            let message = format!(
                "recursive query \"{}\" does not have the form non-recursive-term UNION [ALL] \
                 recursive-term",
                c.ctename
            );
            return Err(self.error(State::INVALID_RECURSION, message, c.location));
        }
        let refused = if !s.sort_clause.is_empty() {
            Some("ORDER BY in a recursive query is not implemented")
        } else if s.limit_count.is_some() {
            Some("LIMIT in a recursive query is not implemented")
        } else if s.limit_offset.is_some() {
            Some("OFFSET in a recursive query is not implemented")
        } else {
            None
        };
        if let Some(message) = refused {
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, c.location));
        }
        self.scope()?.ctes.push(CteName {
            name: c.ctename.clone(),
            columns: Vec::new(),
            index,
            working: false,
            unknown: true,
        });
        let query = self.deeper(|b| {
            b.push_scope(&[])?;
            let clause = std::mem::replace(&mut b.clause, Clause::Other);
            let result = b.recursive_union(c, s, index, cte);
            b.clause = clause;
            b.scopes.pop();
            result
        })?;
        for (i, t) in query.targets.iter().enumerate() {
            let (found, declared) = (t.expr.ty(), cte.columns[i].ty);
            if found.oid != declared.oid {
                let message = format!(
                    "recursive query \"{}\" column {} has type {} in non-recursive term but type \
                     {} overall",
                    c.ctename,
                    i + 1,
                    self.type_text(declared.oid),
                    self.type_text(found.oid)
                );
                let at = target_location(s.larg.as_deref(), i);
                return Err(self
                    .error(State::DATATYPE_MISMATCH, message, at)
                    .hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        cte.query = query;
        cte.recursive = true;
        Ok(())
    }

    fn recursive_union(
        &mut self,
        c: &CommonTableExpr,
        s: &SelectStmt,
        index: usize,
        cte: &mut Cte,
    ) -> Result<Query> {
        let ctes = self.with_clause(s.with_clause.as_ref(), Vec::new())?;
        let mut left = self.select(s.larg.as_deref().ok_or_else(node::missing)?, false)?;
        self.resolve_query_unknowns(&mut left)?;
        cte.columns = self.cte_columns(c, &left)?;
        let owner = self.scopes.len() - 2;
        for x in self.scopes[owner].ctes.iter_mut().filter(|x| x.index == index) {
            x.columns = cte.columns.clone();
            x.unknown = false;
            x.working = true;
        }
        let mut query = self.set_operation_with(s, left)?;
        query.ctes = ctes;
        Ok(query)
    }

    fn resolve_query_unknowns(&mut self, q: &mut Query) -> Result<()> {
        for i in 0..q.targets.len() {
            if q.targets[i].expr.ty().oid == Oid::UNKNOWN {
                let text = TypeRef::plain(Oid::TEXT);
                self.coerce_column(q, i, text, CastContext::Implicit, -1)?;
            }
        }
        Ok(())
    }
}

/// Where the ith target of a query is written, as far as that can be told.
fn target_location(s: Option<&SelectStmt>, i: usize) -> i32 {
    let mut s = s;
    while let Some(left) = s.and_then(|s| s.larg.as_deref()) {
        s = Some(left);
    }
    let Some(s) = s else { return -1 };
    let list = match node::each(&s.values_lists).next() {
        Some(Node::List(l)) => &l.items,
        _ => &s.target_list,
    };
    match node::each(list).nth(i) {
        Some(Node::ResTarget(r)) => node::some(&r.val).map_or(r.location, node::location),
        Some(other) => node::location(other),
        None => -1,
    }
}

/// Whether a query names `table` unqualified anywhere in it. (A CTE of that name inside it would
/// hide it; that only makes us treat it as recursive, which is then found not to be.)
fn mentions(n: &Node, table: &str, depth: usize) -> bool {
    if depth > super::MAX_BOUND_DEPTH {
        return false;
    }
    super::with_stack(0, || match n {
        Node::RangeVar(r) => r.schemaname.is_empty() && r.relname == table,
        Node::SelectStmt(s) => select_mentions(s, table, depth + 1),
        _ => child_nodes(n).into_iter().any(|c| mentions(c, table, depth + 1)),
    })
}

fn select_mentions(s: &SelectStmt, table: &str, depth: usize) -> bool {
    let lists = [
        &s.target_list,
        &s.from_clause,
        &s.values_lists,
        &s.sort_clause,
        &s.group_clause,
        &s.distinct_clause,
    ];
    let clauses = [&s.where_clause, &s.having_clause, &s.limit_count, &s.limit_offset];
    let sides = [s.larg.as_deref(), s.rarg.as_deref()];
    lists.into_iter().flat_map(|l| node::each(l)).any(|n| mentions(n, table, depth))
        || clauses.into_iter().filter_map(node::some).any(|n| mentions(n, table, depth))
        || sides.into_iter().flatten().any(|s| {
            depth < super::MAX_BOUND_DEPTH
                && super::with_stack(0, || select_mentions(s, table, depth + 1))
        })
        || s.with_clause.iter().flat_map(|w| node::each(&w.ctes)).any(|n| match n {
            Node::CommonTableExpr(c) => {
                node::some(&c.ctequery).is_some_and(|n| mentions(n, table, depth))
            }
            _ => false,
        })
}

/// The children of nodes that can hold a FROM item somewhere below.
fn child_nodes(n: &Node) -> Vec<&Node> {
    let mut out: Vec<&Node> = Vec::new();
    match n {
        Node::JoinExpr(j) => {
            out.extend([&j.larg, &j.rarg, &j.quals].into_iter().filter_map(node::some))
        }
        Node::RangeSubselect(r) => out.extend(node::some(&r.subquery)),
        Node::RangeFunction(r) => out.extend(node::each(&r.functions)),
        Node::List(l) => out.extend(node::each(&l.items)),
        Node::ResTarget(r) => out.extend(node::some(&r.val)),
        Node::SortBy(s) => out.extend(node::some(&s.node)),
        Node::SubLink(s) => {
            out.extend([&s.testexpr, &s.subselect].into_iter().filter_map(node::some))
        }
        Node::AExpr(e) => out.extend([&e.lexpr, &e.rexpr].into_iter().filter_map(node::some)),
        Node::BoolExpr(e) => out.extend(node::each(&e.args)),
        Node::FuncCall(f) => {
            out.extend(node::each(&f.args));
            out.extend(node::some(&f.agg_filter));
        }
        Node::TypeCast(c) => out.extend(node::some(&c.arg)),
        Node::CaseExpr(c) => {
            out.extend([&c.arg, &c.defresult].into_iter().filter_map(node::some));
            out.extend(node::each(&c.args));
        }
        Node::CaseWhen(w) => out.extend([&w.expr, &w.result].into_iter().filter_map(node::some)),
        Node::CoalesceExpr(c) => out.extend(node::each(&c.args)),
        Node::MinMaxExpr(m) => out.extend(node::each(&m.args)),
        Node::NullTest(t) => out.extend(node::some(&t.arg)),
        Node::BooleanTest(t) => out.extend(node::some(&t.arg)),
        Node::AArrayExpr(a) => out.extend(node::each(&a.elements)),
        Node::AIndirection(i) => out.extend(node::some(&i.arg)),
        Node::RowExpr(r) => out.extend(node::each(&r.args)),
        Node::CollateClause(c) => out.extend(node::some(&c.arg)),
        _ => {}
    }
    out
}
