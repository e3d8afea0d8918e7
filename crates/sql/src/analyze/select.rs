//! SELECT: clauses in the order PostgreSQL binds them, target lists, ORDER BY and GROUP BY items,
//! DISTINCT, LIMIT, VALUES, row locks.
//!
//! ```text
//!   WITH -> FROM -> targets -> WHERE -> HAVING -> ORDER BY -> GROUP BY -> DISTINCT -> LIMIT
//!                                                  then: grouping is checked, rows are locked
//! ```

use super::bound::*;
use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause, Scope};
use super::walk;
use crate::error::{Result, State};
use crate::types::{Datum, Oid, TypeRef};
use pg_query::protobuf::{self, LimitOption, LockClauseStrength, SelectStmt};

impl Binder<'_> {
    /// A sub-select in an expression or in FROM: its output has no unknown types.
    pub(crate) fn sub_select(&mut self, s: &SelectStmt) -> Result<Query> {
        self.select(s, true)
    }

    /// Binds a query in a scope of its own. `resolve`: unknown outputs become text.
    pub(crate) fn select(&mut self, s: &SelectStmt, resolve: bool) -> Result<Query> {
        self.select_with(s, resolve, Vec::new())
    }

    /// `ctes`: what an enclosing INSERT's WITH declared, visible here as if it were this query's.
    pub(crate) fn select_with(
        &mut self,
        s: &SelectStmt,
        resolve: bool,
        ctes: Vec<Cte>,
    ) -> Result<Query> {
        self.deeper(|b| {
            b.push_scope(&ctes)?;
            let clause = std::mem::replace(&mut b.clause, Clause::Other);
            let result = b.select_body(s, resolve, ctes);
            b.clause = clause;
            b.scopes.pop();
            result
        })
    }

    pub(crate) fn push_scope(&mut self, ctes: &[Cte]) -> Result<()> {
        let mut scope = Scope::default();
        for (index, cte) in ctes.iter().enumerate() {
            scope.ctes.push(super::scope::CteName {
                name: cte.name.clone(),
                columns: cte.columns.clone(),
                index,
                working: false,
                unknown: false,
            });
        }
        self.scopes.push(scope);
        Ok(())
    }

    fn select_body(&mut self, s: &SelectStmt, resolve: bool, ctes: Vec<Cte>) -> Result<Query> {
        if let Some(into) = &s.into_clause {
            let at = into.rel.as_ref().map_or(-1, |r| r.location);
            let message = "SELECT ... INTO is not allowed here";
            return Err(self.error(State::SYNTAX_ERROR, message, at));
        }
        let ctes = self.with_clause(s.with_clause.as_ref(), ctes)?;
        let mut query = if is_set_operation(s) {
            self.set_operation(s)?
        } else if !s.values_lists.is_empty() {
            self.values(s, resolve)?
        } else {
            self.plain_select(s, resolve)?
        };
        query.ctes = ctes;
        Ok(query)
    }

    fn plain_select(&mut self, s: &SelectStmt, resolve: bool) -> Result<Query> {
        self.window_clause(s)?;
        let from = self.from_clause(&s.from_clause)?;
        let mut q = Query { from, ..Query::default() };
        q.targets = self.target_list(&s.target_list, Clause::Select)?;
        if let Some(n) = some(&s.where_clause) {
            q.filter = Some(self.condition(n, Clause::Where)?);
        }
        if let Some(n) = some(&s.having_clause) {
            q.having = Some(self.condition(n, Clause::Having)?);
        }
        q.order_by = self.order_by(&s.sort_clause, &mut q.targets)?;
        let grouped = self.group_by(s, &mut q)?;
        q.distinct = self.distinct_clause(s, &mut q)?;
        self.limits(s, &mut q)?;
        if resolve {
            self.resolve_targets(&mut q.targets)?;
        }
        q.grouped = grouped || q.having.is_some() || self.scope()?.aggregates;
        q.rtes = std::mem::take(&mut self.scope()?.rtes);
        if q.grouped {
            self.check_grouping(&mut q)?;
        }
        self.check_distinct(s, &q)?;
        self.set_origins(&mut q);
        self.locking(s, &mut q)?;
        Ok(q)
    }

    pub(crate) fn resolve_targets(&mut self, targets: &mut [Target]) -> Result<()> {
        for t in targets {
            if t.expr.ty().oid == Oid::UNKNOWN {
                let e = std::mem::replace(&mut t.expr, Expr::And(Vec::new()));
                t.expr = self.resolve_unknown(e, -1)?;
            }
        }
        Ok(())
    }

    fn window_clause(&mut self, s: &SelectStmt) -> Result<()> {
        for n in node::each(&s.window_clause) {
            let Node::WindowDef(w) = n else { return Err(node::missing()) };
            if self.scope()?.windows.iter().any(|x| x.0 == w.name) {
                let message = format!("window \"{}\" is already defined", w.name);
                return Err(self.error(State::WINDOWING_ERROR, message, w.location));
            }
            // Its own name must not make it look like a reference.
            let mut definition = (**w).clone();
            definition.name.clear();
            self.scope()?.windows.push((w.name.clone(), definition));
        }
        Ok(())
    }

    // ----- Target lists.

    pub(crate) fn target_list(
        &mut self,
        list: &[node::Boxed],
        clause: Clause,
    ) -> Result<Vec<Target>> {
        self.in_clause(clause, |b| {
            let mut out = Vec::with_capacity(list.len());
            for n in node::each(list) {
                let Node::ResTarget(r) = n else { return Err(node::missing()) };
                let value = need(&r.val)?;
                if let Some(columns) = b.star_columns(value)? {
                    let star = columns.into_iter();
                    out.extend(star.map(|(name, expr)| Target { expr, name, origin: None }));
                    continue;
                }
                let name = if r.name.is_empty() { column_name(value) } else { r.name.clone() };
                out.push(Target { expr: b.expr(value)?, name, origin: None });
            }
            if out.len() > 1664 {
                let message = "target lists can have at most 1664 entries";
                return Err(b.error(State::TOO_MANY_COLUMNS, message, -1));
            }
            Ok(out)
        })
    }

    /// What `*`, `t.*` or `(row).*` stands for; None: `n` is none of these.
    pub(crate) fn star_columns(&mut self, n: &Node) -> Result<Option<Vec<(String, Expr)>>> {
        match n {
            Node::ColumnRef(c) => {
                if !matches!(node::each(&c.fields).last(), Some(Node::AStar(_))) {
                    return Ok(None);
                }
                let names = node::names(&c.fields);
                if names.is_empty() {
                    return self.all_columns(c.location).map(Some);
                }
                let (scope, item) = self.named_item(&names, c.location)?;
                Ok(Some(self.item_star(scope, &item, c.location)))
            }
            Node::AIndirection(i) => {
                if !matches!(node::each(&i.indirection).last(), Some(Node::AStar(_))) {
                    return Ok(None);
                }
                let mut inner = (**i).clone();
                inner.indirection.pop();
                let e = self.expr(&Node::AIndirection(Box::new(inner)))?;
                self.expand_row(e, node::location(n)).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn expand_row(&mut self, e: Expr, location: i32) -> Result<Vec<(String, Expr)>> {
        let Some(columns) = self.record_columns(&e) else {
            let name = self.type_text(e.ty().oid);
            let (state, message) = if e.ty().oid == Oid::RECORD {
                (State::WRONG_OBJECT_TYPE, "record type has not been registered".to_owned())
            } else {
                (State::WRONG_OBJECT_TYPE, format!("type {name} is not composite"))
            };
            return Err(self.error(state, message, location));
        };
        if let Expr::Row { items, .. } = e {
            return Ok(columns.into_iter().map(|c| c.0).zip(items).collect());
        }
        let field = |(index, (name, ty)): (usize, (String, TypeRef))| {
            (name, Expr::Field { arg: Box::new(e.clone()), index, ty })
        };
        Ok(columns.into_iter().enumerate().map(field).collect())
    }

    fn all_columns(&mut self, location: i32) -> Result<Vec<(String, Expr)>> {
        let scope = self.scopes.len() - 1;
        let items: Vec<_> =
            self.scopes[scope].items.iter().filter(|i| i.cols_visible).cloned().collect();
        if items.is_empty() {
            let message = "SELECT * with no tables specified is not valid";
            return Err(self.error(State::SYNTAX_ERROR, message, location));
        }
        let mut out = Vec::new();
        for item in &items {
            out.extend(self.item_star(scope, item, location));
        }
        Ok(out)
    }

    /// Tells each target which table column it is, for RowDescription.
    pub(crate) fn set_origins(&self, q: &mut Query) {
        for i in 0..q.targets.len() {
            q.targets[i].origin = match &q.targets[i].expr {
                Expr::Var(v) if v.level == 0 => origin(&q.rtes, v),
                _ => None,
            };
        }
    }

    // ----- ORDER BY, GROUP BY, DISTINCT.

    /// An item of ORDER BY, GROUP BY or DISTINCT ON: a position, an output name, or an expression.
    fn listed_expr(&mut self, n: &Node, targets: &mut [Target], clause: Clause) -> Result<Expr> {
        let location = node::location(n);
        let place = clause.place();
        let index = match n {
            Node::ColumnRef(c) => match node::names(&c.fields).as_slice() {
                [name] if c.fields.len() == 1 => {
                    self.output_name(name, targets, clause, location)?
                }
                _ => None,
            },
            Node::AConst(c) => match c.val.as_ref() {
                Some(protobuf::a_const::Val::Ival(i)) => {
                    let index = usize::try_from(i.ival).ok().and_then(|i| i.checked_sub(1));
                    let found = index.filter(|i| *i < targets.len());
                    if found.is_none() {
                        let message = format!("{place} position {} is not in select list", i.ival);
                        return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, location));
                    }
                    found
                }
                _ => {
                    let message = format!("non-integer constant in {place}");
                    return Err(self.error(State::SYNTAX_ERROR, message, location));
                }
            },
            _ => None,
        };
        match index {
            Some(i) => {
                if targets[i].expr.ty().oid == Oid::UNKNOWN {
                    self.resolve_targets(&mut targets[i..=i])?;
                }
                let e = targets[i].expr.clone();
                self.check_listed(&e, clause, location)?;
                Ok(e)
            }
            None => self.in_clause(clause, |b| b.typed_expr(n)),
        }
    }

    /// Aggregates that an output column brings into GROUP BY.
    fn check_listed(&self, e: &Expr, clause: Clause, location: i32) -> Result<()> {
        if clause != Clause::GroupBy {
            return Ok(());
        }
        if walk::has_aggregate(e) {
            let message = "aggregate functions are not allowed in GROUP BY";
            return Err(self.error(State::GROUPING_ERROR, message, location));
        }
        if walk::has_window(e) {
            let message = "window functions are not allowed in GROUP BY";
            return Err(self.error(State::WINDOWING_ERROR, message, location));
        }
        Ok(())
    }

    fn output_name(
        &mut self,
        name: &str,
        targets: &[Target],
        clause: Clause,
        location: i32,
    ) -> Result<Option<usize>> {
        // GROUP BY prefers an input column, as the standard has it.
        if clause == Clause::GroupBy && self.own_column(name) {
            return Ok(None);
        }
        let mut found: Option<usize> = None;
        for (i, t) in targets.iter().enumerate().filter(|(_, t)| t.name == name) {
            match found {
                Some(first) if targets[first].expr != t.expr => {
                    let message = format!("{} \"{name}\" is ambiguous", clause.place());
                    return Err(self.error(State::AMBIGUOUS_COLUMN, message, location));
                }
                Some(_) => {}
                None => found = Some(i),
            }
        }
        Ok(found)
    }

    /// Whether FROM of the innermost query has a column of this name.
    fn own_column(&self, name: &str) -> bool {
        self.scopes.last().is_some_and(|s| {
            s.items
                .iter()
                .filter(|i| i.cols_visible)
                .any(|i| i.columns.iter().any(|c| c.name == name))
        })
    }

    fn order_by(&mut self, list: &[node::Boxed], targets: &mut [Target]) -> Result<Vec<SortKey>> {
        let mut out: Vec<SortKey> = Vec::with_capacity(list.len());
        for n in node::each(list) {
            let Node::SortBy(s) = n else { return Err(node::missing()) };
            let key = need(&s.node)?;
            let e = self.listed_expr(key, targets, Clause::OrderBy)?;
            let key = self.sort_key(e, s, node::location(key))?;
            if !out.iter().any(|k| k.expr == key.expr) {
                out.push(key);
            }
        }
        Ok(out)
    }

    /// Fills in GROUP BY; answers whether there was one (GROUP BY () has no expressions).
    fn group_by(&mut self, s: &SelectStmt, q: &mut Query) -> Result<bool> {
        for n in node::each(&s.group_clause) {
            if let Node::GroupingSet(set) = n {
                if set.kind() == protobuf::GroupingSetKind::GroupingSetEmpty
                    && s.group_clause.len() == 1
                {
                    continue;
                }
                return Err(self.unsupported("GROUPING SETS, CUBE and ROLLUP", set.location));
            }
            let items: Vec<&Node> = match n {
                Node::RowExpr(r)
                    if r.row_format() != protobuf::CoercionForm::CoerceExplicitCall =>
                {
                    node::each(&r.args).collect()
                }
                other => vec![other],
            };
            for n in items {
                let e = self.listed_expr(n, &mut q.targets, Clause::GroupBy)?;
                self.need_equality(e.ty().oid, node::location(n))?;
                if !q.group_by.contains(&e) {
                    q.group_by.push(e);
                }
            }
        }
        Ok(!s.group_clause.is_empty())
    }

    fn distinct_clause(&mut self, s: &SelectStmt, q: &mut Query) -> Result<Option<Distinct>> {
        if s.distinct_clause.is_empty() {
            return Ok(None);
        }
        let on: Vec<&Node> = node::each(&s.distinct_clause).collect();
        if on.is_empty() {
            self.resolve_targets(&mut q.targets)?;
            for t in &q.targets {
                self.need_equality(t.expr.ty().oid, -1)?;
            }
            return Ok(Some(Distinct::All));
        }
        let mut list = Vec::with_capacity(on.len());
        for n in on {
            let e = self.listed_expr(n, &mut q.targets, Clause::DistinctOn)?;
            self.need_equality(e.ty().oid, node::location(n))?;
            if !list.contains(&e) {
                list.push(e);
            }
        }
        Ok(Some(Distinct::On(list)))
    }

    /// ORDER BY must go with DISTINCT.
    fn check_distinct(&self, s: &SelectStmt, q: &Query) -> Result<()> {
        let wrong = |message: &str, at: i32| {
            Err(self.error(State::INVALID_COLUMN_REFERENCE, message.to_owned(), at))
        };
        match &q.distinct {
            None => Ok(()),
            Some(Distinct::All) => {
                let listed = |k: &SortKey| q.targets.iter().any(|t| t.expr == k.expr);
                let Some(bad) = q.order_by.iter().position(|k| !listed(k)) else { return Ok(()) };
                let at = node::each(&s.sort_clause).nth(bad).map_or(-1, node::location);
                wrong("for SELECT DISTINCT, ORDER BY expressions must appear in select list", at)
            }
            Some(Distinct::On(list)) => {
                let matched = q.order_by.iter().take_while(|k| list.contains(&k.expr)).count();
                if matched >= list.len() || matched == q.order_by.len() {
                    return Ok(());
                }
                let used = |e: &Expr| q.order_by[..matched].iter().any(|k| k.expr == *e);
                let bad = list.iter().position(|e| !used(e)).unwrap_or(0);
                let at = node::each(&s.distinct_clause).nth(bad).map_or(-1, node::location);
                wrong("SELECT DISTINCT ON expressions must match initial ORDER BY expressions", at)
            }
        }
    }

    // ----- LIMIT.

    pub(crate) fn limits(&mut self, s: &SelectStmt, q: &mut Query) -> Result<()> {
        if s.limit_option() == LimitOption::WithTies {
            return Err(self.unsupported("FETCH FIRST ... WITH TIES", -1));
        }
        q.offset = self.limit(some(&s.limit_offset), Clause::Offset)?;
        q.limit = self.limit(some(&s.limit_count), Clause::Limit)?;
        Ok(())
    }

    fn limit(&mut self, n: Option<&Node>, clause: Clause) -> Result<Option<Expr>> {
        let Some(n) = n else { return Ok(None) };
        let location = node::location(n);
        let e = self.in_clause(clause, |b| b.expr(n))?;
        let place = clause.place();
        let e = self.coerce_specific(e, Oid::INT8, place, location)?;
        if walk::has_own_vars(&e) {
            let message = format!("argument of {place} must not contain variables");
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, location));
        }
        // LIMIT ALL, LIMIT NULL.
        let none = matches!(e, Expr::Const { value: Datum::Null, .. });
        Ok((!none).then_some(e))
    }

    // ----- VALUES.

    fn values(&mut self, s: &SelectStmt, resolve: bool) -> Result<Query> {
        let rows = self.values_rows(&s.values_lists)?;
        let width = rows.first().map_or(0, Vec::len);
        let mut columns: Vec<Vec<(Expr, i32)>> = (0..width).map(|_| Vec::new()).collect();
        let count = rows.len();
        for row in rows {
            for (i, cell) in row.into_iter().enumerate() {
                columns[i].push(cell);
            }
        }
        let mut unified = Vec::with_capacity(width);
        for list in columns {
            let single = list.len() == 1 && !resolve;
            unified.push(match single {
                // INSERT and set operations give a literal its type later.
                true => {
                    let ty = list[0].0.ty();
                    (list.into_iter().map(|c| c.0).collect(), ty)
                }
                false => self.unify(list, "VALUES")?,
            });
        }
        let name = |i: usize| format!("column{}", i + 1);
        let mut q = Query::default();
        if count == 1 {
            for (i, (mut items, _)) in unified.into_iter().enumerate() {
                let expr = items.pop().ok_or_else(node::missing)?;
                q.targets.push(Target { expr, name: name(i), origin: None });
            }
        } else {
            let columns: Vec<RangeColumn> = unified
                .iter()
                .enumerate()
                .map(|(i, (_, ty))| RangeColumn { name: name(i), ty: *ty, dropped: false })
                .collect();
            let mut cells: Vec<_> = unified.into_iter().map(|u| u.0.into_iter()).collect();
            let rows =
                (0..count).map(|_| cells.iter_mut().filter_map(Iterator::next).collect()).collect();
            let source = RangeSource::Values { rows, lateral: false };
            let entry = RangeEntry { name: "*VALUES*".into(), columns, source };
            let rte = self.add_rte(entry.clone())?;
            let item = self.item_of(rte, &entry, false);
            for c in item.columns.iter() {
                let (expr, name) = (c.expr.clone(), c.name.clone());
                q.targets.push(Target { expr, name, origin: None });
            }
            self.scope()?.items.push(item);
            q.from.push(FromItem::Rte(rte));
        }
        q.order_by = self.order_by(&s.sort_clause, &mut q.targets)?;
        self.limits(s, &mut q)?;
        if !s.locking_clause.is_empty() {
            return Err(self.lock_refused(s, "VALUES"));
        }
        q.rtes = std::mem::take(&mut self.scope()?.rtes);
        Ok(q)
    }

    fn values_rows(&mut self, lists: &[node::Boxed]) -> Result<Vec<Vec<(Expr, i32)>>> {
        let mut rows: Vec<Vec<(Expr, i32)>> = Vec::with_capacity(lists.len());
        for n in node::each(lists) {
            let Node::List(l) = n else { return Err(node::missing()) };
            let mut row = Vec::with_capacity(l.items.len());
            for n in node::each(&l.items) {
                match self.star_columns(n)? {
                    Some(c) => row.extend(c.into_iter().map(|c| (c.1, node::location(n)))),
                    None => {
                        let e = self.in_clause(Clause::Values, |b| b.expr(n))?;
                        row.push((e, node::location(n)));
                    }
                }
            }
            if rows.first().is_some_and(|first| first.len() != row.len()) {
                let at = row.first().map_or(-1, |c| c.1);
                let message = "VALUES lists must all be the same length";
                return Err(self.error(State::SYNTAX_ERROR, message, at));
            }
            rows.push(row);
        }
        Ok(rows)
    }

    // ----- Row locks.

    fn locking(&mut self, s: &SelectStmt, q: &mut Query) -> Result<()> {
        for n in node::each(&s.locking_clause) {
            let Node::LockingClause(l) = n else { return Err(node::missing()) };
            let refused = if q.distinct.is_some() {
                Some("DISTINCT clause")
            } else if !q.group_by.is_empty() {
                Some("GROUP BY clause")
            } else if q.having.is_some() {
                Some("HAVING clause")
            } else if q.grouped {
                Some("aggregate functions")
            } else if q.targets.iter().any(|t| walk::has_window(&t.expr)) {
                Some("window functions")
            } else if q.targets.iter().any(|t| walk::has_set_call(&t.expr)) {
                Some("set-returning functions in the target list")
            } else {
                None
            };
            if let Some(what) = refused {
                return Err(self.lock_refused(s, what));
            }
            let (strength, name) = lock_strength(l);
            let wait = lock_wait(l);
            if l.locked_rels.is_empty() {
                for rte in 0..q.rtes.len() {
                    lock_entry(q, rte, strength, wait);
                }
                continue;
            }
            for n in node::each(&l.locked_rels) {
                let Node::RangeVar(r) = n else { return Err(node::missing()) };
                let rte = self.locked_relation(r, name)?;
                let what = match &q.rtes[rte].source {
                    RangeSource::Table(_) | RangeSource::Subquery { .. } => {
                        lock_entry(q, rte, strength, wait);
                        continue;
                    }
                    RangeSource::Function { .. } | RangeSource::RowsFrom { .. } => "a function",
                    RangeSource::Values { .. } => "VALUES",
                    RangeSource::Cte { .. } | RangeSource::WorkTable { .. } => "a WITH query",
                    RangeSource::Join => "a join",
                };
                let message = format!("{name} cannot be applied to {what}");
                return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, r.location));
            }
        }
        Ok(())
    }

    fn locked_relation(&self, r: &protobuf::RangeVar, name: &str) -> Result<usize> {
        if !r.schemaname.is_empty() {
            let message = format!("{name} must specify unqualified relation names");
            return Err(self.error(State::SYNTAX_ERROR, message, r.location));
        }
        let scope = self.scopes.last().ok_or_else(node::missing)?;
        let item = scope.items.iter().find(|i| i.rel_visible && i.name == r.relname);
        match item.map(|i| i.rte) {
            Some(Some(rte)) => Ok(usize::from(rte)),
            Some(None) => {
                let message = format!("{name} cannot be applied to a join");
                Err(self.error(State::FEATURE_NOT_SUPPORTED, message, r.location))
            }
            None => {
                let message =
                    format!("relation \"{}\" in {name} clause not found in FROM clause", r.relname);
                Err(self.error(State::UNDEFINED_TABLE, message, r.location))
            }
        }
    }

    pub(crate) fn lock_refused(&self, s: &SelectStmt, what: &str) -> crate::error::SqlError {
        let name = match node::each(&s.locking_clause).next() {
            Some(Node::LockingClause(l)) => lock_strength(l).1,
            _ => "FOR UPDATE",
        };
        let message = if what == "VALUES" {
            format!("{name} cannot be applied to VALUES")
        } else {
            format!("{name} is not allowed with {what}")
        };
        self.error(State::FEATURE_NOT_SUPPORTED, message, -1)
    }
}

pub(crate) fn is_set_operation(s: &SelectStmt) -> bool {
    use protobuf::SetOperation as Op;
    matches!(s.op(), Op::SetopUnion | Op::SetopIntersect | Op::SetopExcept)
}

fn lock_strength(l: &protobuf::LockingClause) -> (LockStrength, &'static str) {
    match l.strength() {
        LockClauseStrength::LcsForkeyshare => (LockStrength::KeyShare, "FOR KEY SHARE"),
        LockClauseStrength::LcsForshare => (LockStrength::Share, "FOR SHARE"),
        LockClauseStrength::LcsFornokeyupdate => (LockStrength::NoKeyUpdate, "FOR NO KEY UPDATE"),
        _ => (LockStrength::Update, "FOR UPDATE"),
    }
}

fn lock_wait(l: &protobuf::LockingClause) -> LockWaitPolicy {
    match l.wait_policy() {
        protobuf::LockWaitPolicy::LockWaitSkip => LockWaitPolicy::SkipLocked,
        protobuf::LockWaitPolicy::LockWaitError => LockWaitPolicy::NoWait,
        _ => LockWaitPolicy::Block,
    }
}

/// Marks a table; a sub-select's tables in turn. Of several marks the strongest holds.
fn lock_entry(q: &mut Query, rte: usize, strength: LockStrength, wait: LockWaitPolicy) {
    match &mut q.rtes[rte].source {
        RangeSource::Table(_) => {
            let rte = rte as u16;
            match q.row_marks.iter_mut().find(|m| m.rte == rte) {
                Some(m) => {
                    m.strength = stronger(m.strength, strength);
                    m.wait = stricter(m.wait, wait);
                }
                None => q.row_marks.push(RowMark { rte, strength, wait }),
            }
        }
        RangeSource::Subquery { query, .. } => {
            super::with_stack(0, || {
                for inner in 0..query.rtes.len() {
                    lock_entry(query, inner, strength, wait);
                }
            });
        }
        _ => {}
    }
}

fn stronger(a: LockStrength, b: LockStrength) -> LockStrength {
    if (a as u8) > (b as u8) { a } else { b }
}

/// NOWAIT beats SKIP LOCKED beats waiting.
fn stricter(a: LockWaitPolicy, b: LockWaitPolicy) -> LockWaitPolicy {
    if (a as u8) > (b as u8) { a } else { b }
}

fn origin(rtes: &[RangeEntry], v: &Var) -> Option<(Oid, i16)> {
    let entry = rtes.get(usize::from(v.rte))?;
    match &entry.source {
        RangeSource::Table(t) if v.col < 0 => Some((t.oid, v.col)),
        RangeSource::Table(t) => Some((t.oid, v.col + 1)),
        RangeSource::Subquery { query, .. } => {
            query.targets.get(usize::try_from(v.col).ok()?)?.origin
        }
        _ => None,
    }
}

/// The name that a select-list expression without AS gets.
pub(crate) fn column_name(n: &Node) -> String {
    figure(n, 0).map_or_else(|| "?column?".into(), |f| f.0)
}

/// A name and how much it is worth: 2 for what the user wrote, 1 for a type's name.
fn figure(n: &Node, depth: usize) -> Option<(String, u8)> {
    if depth > 200 {
        return None;
    }
    let certain = |name: &str| Some((name.to_owned(), 2));
    match n {
        Node::ColumnRef(c) => node::names(&c.fields).last().and_then(|s| certain(s)),
        Node::AIndirection(i) => match node::names(&i.indirection).last() {
            Some(name) => certain(name),
            None => figure(some(&i.arg)?, depth + 1),
        },
        Node::FuncCall(f) => node::names(&f.funcname).last().and_then(|s| certain(s)),
        Node::AExpr(e) if e.kind() == protobuf::AExprKind::AexprNullif => certain("nullif"),
        Node::TypeCast(c) => {
            let inner = some(&c.arg).and_then(|n| figure(n, depth + 1));
            match inner {
                Some((name, 2)) => Some((name, 2)),
                _ => {
                    let ty = c.type_name.as_ref()?;
                    Some(((*node::names(&ty.names).last()?).to_owned(), 1))
                }
            }
        }
        Node::CollateClause(c) => figure(some(&c.arg)?, depth + 1),
        Node::GroupingFunc(_) => certain("grouping"),
        Node::SubLink(s) => match s.sub_link_type() {
            protobuf::SubLinkType::ExistsSublink => certain("exists"),
            protobuf::SubLinkType::ArraySublink => certain("array"),
            protobuf::SubLinkType::ExprSublink => sub_select_name(some(&s.subselect)?, depth),
            _ => None,
        },
        Node::CaseExpr(c) => match some(&c.defresult).and_then(|n| figure(n, depth + 1)) {
            Some((name, 2)) => Some((name, 2)),
            _ => Some(("case".into(), 1)),
        },
        Node::AArrayExpr(_) => certain("array"),
        Node::RowExpr(_) => certain("row"),
        Node::CoalesceExpr(_) => certain("coalesce"),
        Node::MinMaxExpr(m) => certain(match m.op() {
            protobuf::MinMaxOp::IsGreatest => "greatest",
            _ => "least",
        }),
        Node::SqlvalueFunction(f) => certain(sql_value_name(f.op())),
        _ => None,
    }
}

fn sub_select_name(n: &Node, depth: usize) -> Option<(String, u8)> {
    let Node::SelectStmt(s) = n else { return None };
    let mut s: &SelectStmt = s;
    while let Some(left) = s.larg.as_deref() {
        s = left;
    }
    if !s.values_lists.is_empty() {
        return Some(("column1".into(), 2));
    }
    let Some(Node::ResTarget(r)) = node::each(&s.target_list).next() else { return None };
    if r.name.is_empty() { figure(some(&r.val)?, depth + 1) } else { Some((r.name.clone(), 2)) }
}

fn sql_value_name(op: protobuf::SqlValueFunctionOp) -> &'static str {
    use protobuf::SqlValueFunctionOp as Op;
    match op {
        Op::SvfopCurrentDate => "current_date",
        Op::SvfopCurrentTime | Op::SvfopCurrentTimeN => "current_time",
        Op::SvfopCurrentTimestamp | Op::SvfopCurrentTimestampN => "current_timestamp",
        Op::SvfopLocaltime | Op::SvfopLocaltimeN => "localtime",
        Op::SvfopLocaltimestamp | Op::SvfopLocaltimestampN => "localtimestamp",
        Op::SvfopCurrentRole => "current_role",
        Op::SvfopCurrentUser => "current_user",
        Op::SvfopUser => "user",
        Op::SvfopSessionUser => "session_user",
        Op::SvfopCurrentCatalog => "current_catalog",
        Op::SvfopCurrentSchema => "current_schema",
        Op::SqlvalueFunctionOpUndefined => "?column?",
    }
}
