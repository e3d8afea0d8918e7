//! INSERT, UPDATE, DELETE.
//!
//! Values are converted to their columns' types here (assignment casts), defaults and CHECK
//! conditions are bound from their canonical text, and DEFAULT items are replaced by what they
//! stand for, so that execution sees plain expressions.

use super::bound::*;
use super::from::table_entry;
use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause, NsItem, null};
use crate::catalog::{ColumnDef, ConstraintKind, Identity, IndexDef, RelationKind, TableDef};
use crate::error::{Result, SqlError, State};
use crate::functions::CastContext;
use crate::types::{Oid, TypeRef};
use pg_query::protobuf::{
    DeleteStmt, InsertStmt, OnConflictAction, OnConflictClause, OverridingKind, RangeVar,
    ReturningClause, SelectStmt, UpdateStmt,
};
use std::sync::Arc;

impl Binder<'_> {
    /// The table that a data-changing statement works on.
    pub(crate) fn target_table(&mut self, r: &RangeVar, verb: &str) -> Result<Arc<TableDef>> {
        let table = self.range_table(r)?;
        let name = &table.name;
        let wrong = |m: String| Err(self.error(State::WRONG_OBJECT_TYPE, m, -1));
        match table.kind {
            RelationKind::Table => {}
            RelationKind::View if table.system => {
                let message = format!("cannot {verb} view \"{name}\"");
                return Err(self.error(State::OBJECT_NOT_IN_PREREQUISITE_STATE, message, -1));
            }
            RelationKind::View => {
                let what = format!("writing to views (\"{name}\")");
                return Err(self.unsupported(&what, -1));
            }
            RelationKind::Sequence => return wrong(format!("cannot change sequence \"{name}\"")),
            RelationKind::Toast => {
                return wrong(format!("cannot change TOAST relation \"{name}\""));
            }
            RelationKind::Index => return wrong(format!("\"{name}\" is an index")),
        }
        if table.system {
            return Err(system_catalog(name));
        }
        Ok(table)
    }

    // ----- Defaults and conditions from the catalog.

    /// The default of a column: its expression, converted; NULL where there is none.
    pub(crate) fn column_default(&mut self, c: &ColumnDef) -> Result<Expr> {
        match &c.default {
            None => self.assign_typed(null(c.ty.oid), c.ty),
            Some(text) => {
                let e = self.stored_expr(text, None, Clause::ColumnDefault)?;
                let from = e.ty().oid;
                let e = self.try_coerce(e, c.ty, CastContext::Assignment, -1)?;
                e.ok_or_else(|| self.cannot_cast(from, c.ty.oid, -1))
            }
        }
    }

    fn assign_typed(&mut self, e: Expr, ty: TypeRef) -> Result<Expr> {
        Ok(match e {
            Expr::Const { value, .. } => Expr::Const { value, ty },
            other => other,
        })
    }

    /// An expression stored as canonical text, over the columns of `table`.
    pub(crate) fn stored_expr(
        &mut self,
        text: &str,
        table: Option<&Arc<TableDef>>,
        clause: Clause,
    ) -> Result<Expr> {
        let sql = format!("SELECT {text}");
        let parsed = super::parse(&sql)?;
        let node = parsed.first().and_then(|p| p.node.as_deref());
        let Some(Node::SelectStmt(s)) = node else { return Err(not_an_expression()) };
        let Some(Node::ResTarget(target)) = node::each(&s.target_list).next() else {
            return Err(not_an_expression());
        };
        let value = need(&target.val)?;
        self.with_stored(&sql, |b| {
            b.scopes.push(super::scope::Scope::default());
            if let Some(t) = table {
                b.table_scope(t, false)?;
            }
            // Its columns were checked when it was stored.
            let clause = if table.is_some() { Clause::Check } else { clause };
            b.in_clause(clause, |b| b.expr(value))
        })
    }

    /// Makes `table` the first entry of the innermost scope, visible under its own name.
    pub(crate) fn table_scope(&mut self, table: &Arc<TableDef>, aliased: bool) -> Result<u16> {
        let entry = table_entry(table);
        let rte = self.add_rte(entry)?;
        let entry = table_entry(table);
        let item = self.item_of(rte, &entry, aliased);
        self.scope()?.items.push(item);
        Ok(rte)
    }

    /// CHECK conditions over the new row.
    pub(crate) fn checks(&mut self, table: &Arc<TableDef>) -> Result<Vec<(String, Expr)>> {
        let mut out = Vec::new();
        for c in &table.constraints {
            if let ConstraintKind::Check { expr } = &c.kind {
                let e = self.stored_expr(expr, Some(table), Clause::Check)?;
                out.push((c.name.clone(), e));
            }
        }
        Ok(out)
    }

    /// Converts a value for a column, or says why not.
    pub(crate) fn assign(&mut self, e: Expr, c: &ColumnDef, location: i32) -> Result<Expr> {
        let from = e.ty().oid;
        match self.try_coerce(e, c.ty, CastContext::Assignment, location)? {
            Some(e) => Ok(e),
            None => Err(self.wrong_type(c, from, location)),
        }
    }

    fn wrong_type(&self, c: &ColumnDef, from: Oid, location: i32) -> SqlError {
        let message = format!(
            "column \"{}\" is of type {} but expression is of type {}",
            c.name,
            self.type_text(c.ty.oid),
            self.type_text(from)
        );
        self.error(State::DATATYPE_MISMATCH, message, location)
            .hint("You will need to rewrite or cast the expression.")
    }

    pub(crate) fn no_column(&self, table: &TableDef, name: &str, location: i32) -> SqlError {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        self.error(State::UNDEFINED_COLUMN, message, location)
    }

    // ----- INSERT.

    pub(crate) fn insert(&mut self, s: &InsertStmt) -> Result<Insert> {
        let relation = s.relation.as_ref().ok_or_else(node::missing)?;
        self.push_scope(&[])?;
        let ctes = self.with_clause(s.with_clause.as_ref(), Vec::new())?;
        let table = self.target_table(relation, "insert into")?;
        let overriding = s.r#override();
        let columns = self.insert_columns(s, &table)?;
        let explicit = !s.cols.is_empty();
        let (columns, source) = match some(&s.select_stmt) {
            None => (Vec::new(), Query { targets: Vec::new(), ctes, ..Query::default() }),
            Some(Node::SelectStmt(select)) => {
                self.insert_source(select, columns, explicit, overriding, ctes)?
            }
            Some(_) => return Err(node::missing()),
        };
        let attnums: Vec<i16> = columns.iter().map(|c| c.attnum).collect();
        let mut defaults = Vec::new();
        for c in table.live_columns().filter(|c| c.default.is_some()) {
            if !attnums.contains(&c.attnum) {
                defaults.push((c.attnum, self.column_default(c)?));
            }
        }
        let checks = self.checks(&table)?;
        self.scope()?.items.clear();
        let name = relation.alias.as_ref().map_or(&relation.relname, |a| &a.aliasname).clone();
        let rte = self.table_scope(&table, relation.alias.is_some())?;
        self.rename_item(&name, relation.alias.is_some())?;
        let on_conflict = match &s.on_conflict_clause {
            Some(c) => Some(self.on_conflict(c, &table, rte)?),
            None => None,
        };
        let returning = self.returning(s.returning_clause.as_ref())?;
        self.scopes.pop();
        Ok(Insert { table, columns: attnums, source, defaults, on_conflict, returning, checks })
    }

    fn rename_item(&mut self, name: &str, aliased: bool) -> Result<()> {
        if let Some(item) = self.scope()?.items.last_mut() {
            item.name = name.to_owned();
            item.aliased = aliased;
        }
        Ok(())
    }

    /// The columns that INSERT names, or all.
    fn insert_columns(&mut self, s: &InsertStmt, table: &TableDef) -> Result<Vec<ColumnDef>> {
        self.target_locations = node::each(&s.cols).map(node::location).collect();
        if s.cols.is_empty() {
            return Ok(table.live_columns().cloned().collect());
        }
        let mut out: Vec<ColumnDef> = Vec::with_capacity(s.cols.len());
        for n in node::each(&s.cols) {
            let Node::ResTarget(r) = n else { return Err(node::missing()) };
            let c = self.target_column(table, &r.name, r.location)?;
            if !r.indirection.is_empty() {
                let what = "assignment to an array element or a field";
                return Err(self.unsupported(what, r.location));
            }
            if out.iter().any(|x| x.attnum == c.attnum) {
                let message = format!("column \"{}\" specified more than once", r.name);
                return Err(self.error(State::DUPLICATE_COLUMN, message, r.location));
            }
            out.push(c.clone());
        }
        Ok(out)
    }

    fn target_column<'t>(
        &self,
        table: &'t TableDef,
        name: &str,
        location: i32,
    ) -> Result<&'t ColumnDef> {
        if let Some(c) = table.column(name) {
            return Ok(c);
        }
        if super::scope::system_column(name).is_some() {
            let message = format!("cannot assign to system column \"{name}\"");
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, location));
        }
        Err(self.no_column(table, name, location))
    }

    fn insert_source(
        &mut self,
        select: &SelectStmt,
        columns: Vec<ColumnDef>,
        explicit: bool,
        overriding: OverridingKind,
        ctes: Vec<Cte>,
    ) -> Result<(Vec<ColumnDef>, Query)> {
        let plain_values = !select.values_lists.is_empty()
            && select.sort_clause.is_empty()
            && select.limit_count.is_none()
            && select.limit_offset.is_none()
            && select.locking_clause.is_empty()
            && select.with_clause.is_none();
        if plain_values {
            return self.insert_values(select, columns, explicit, overriding, ctes);
        }
        let mut query = self.select_with(select, false, ctes)?;
        let locations: Vec<i32> = (0..query.targets.len())
            .map(|i| match node::each(&select.target_list).nth(i) {
                Some(n) => node::location(n),
                None => -1,
            })
            .collect();
        let at = locations.first().copied().unwrap_or(-1);
        let mut columns = self.match_columns(columns, query.targets.len(), explicit, at)?;
        for (i, c) in columns.iter().enumerate() {
            let at = locations.get(i).copied().unwrap_or(-1);
            self.assign_column(&mut query, i, c, at)?;
        }
        for c in &columns {
            check_identity(c, overriding)?;
        }
        if overriding == OverridingKind::OverridingUserValue {
            // What the query says about identity columns is computed and not used.
            let given = |c: &ColumnDef| c.identity.is_none();
            if !columns.iter().all(given) {
                wrap(&mut query);
                let mut kept = columns.iter().map(given);
                query.targets.retain(|_| kept.next().unwrap_or(true));
                columns.retain(given);
            }
        }
        Ok((columns, query))
    }

    /// Converts a query's output column for a table column; a set operation's above it.
    fn assign_column(
        &mut self,
        q: &mut Query,
        i: usize,
        c: &ColumnDef,
        location: i32,
    ) -> Result<()> {
        let ty = q.targets[i].expr.ty();
        if ty == c.ty || (ty.oid == c.ty.oid && c.ty.typmod < 0) {
            return Ok(());
        }
        if q.set_operation.is_none() && q.distinct.is_none() {
            let e = std::mem::replace(&mut q.targets[i].expr, Expr::And(Vec::new()));
            q.targets[i].expr = self.assign(e, c, location)?;
            return Ok(());
        }
        // The conversion must come after the duplicates are gone.
        wrap(q);
        let e = std::mem::replace(&mut q.targets[i].expr, Expr::And(Vec::new()));
        q.targets[i].expr = self.assign(e, c, location)?;
        Ok(())
    }

    fn match_columns(
        &self,
        mut columns: Vec<ColumnDef>,
        values: usize,
        explicit: bool,
        location: i32,
    ) -> Result<Vec<ColumnDef>> {
        let wrong = |m: &str, at| Err(self.error(State::SYNTAX_ERROR, m.to_owned(), at));
        if values > columns.len() {
            return wrong("INSERT has more expressions than target columns", location);
        }
        if explicit && values < columns.len() {
            let at = self.target_locations.get(values).copied().unwrap_or(-1);
            return wrong("INSERT has more target columns than expressions", at);
        }
        columns.truncate(values);
        Ok(columns)
    }

    fn insert_values(
        &mut self,
        select: &SelectStmt,
        columns: Vec<ColumnDef>,
        explicit: bool,
        overriding: OverridingKind,
        ctes: Vec<Cte>,
    ) -> Result<(Vec<ColumnDef>, Query)> {
        // The rows stand in a query of their own, one level in from the INSERT.
        self.push_scope(&ctes)?;
        let result = self
            .in_clause(Clause::Values, |b| b.insert_rows(select, columns, explicit, overriding));
        let rtes = self.scopes.pop().map(|s| s.rtes).unwrap_or_default();
        let (columns, mut rows) = result?;
        let mut q = Query { ctes, rtes, ..Query::default() };
        if rows.len() == 1 {
            let row = rows.pop().unwrap_or_default();
            q.targets = row
                .into_iter()
                .zip(&columns)
                .map(|(expr, c)| Target { expr, name: c.name.clone(), origin: None })
                .collect();
            return Ok((columns, q));
        }
        let shape: Vec<RangeColumn> = columns
            .iter()
            .enumerate()
            .map(|(i, c)| RangeColumn {
                name: format!("column{}", i + 1),
                ty: c.ty,
                dropped: false,
            })
            .collect();
        for (i, c) in columns.iter().enumerate() {
            let var = Var { level: 0, rte: 0, col: i as i16, ty: c.ty };
            q.targets.push(Target { expr: Expr::Var(var), name: c.name.clone(), origin: None });
        }
        let source = RangeSource::Values { rows, lateral: false };
        q.rtes.push(RangeEntry { name: "*VALUES*".into(), columns: shape, source });
        q.from.push(FromItem::Rte(0));
        Ok((columns, q))
    }

    fn insert_rows(
        &mut self,
        select: &SelectStmt,
        columns: Vec<ColumnDef>,
        explicit: bool,
        overriding: OverridingKind,
    ) -> Result<(Vec<ColumnDef>, Vec<Vec<Expr>>)> {
        let mut rows = Vec::with_capacity(select.values_lists.len());
        let mut width: Option<usize> = None;
        let mut columns = columns;
        for n in node::each(&select.values_lists) {
            let Node::List(l) = n else { return Err(node::missing()) };
            let cells: Vec<&Node> = node::each(&l.items).collect();
            let at = cells.first().map_or(-1, |n| node::location(n));
            if *width.get_or_insert(cells.len()) != cells.len() {
                let message = "VALUES lists must all be the same length";
                return Err(self.error(State::SYNTAX_ERROR, message, at));
            }
            if rows.is_empty() {
                let extra = cells.get(columns.len()).map_or(at, |n| node::location(n));
                columns = self.match_columns(columns, cells.len(), explicit, extra)?;
            }
            let mut row = Vec::with_capacity(cells.len());
            for (n, c) in cells.into_iter().zip(&columns) {
                if matches!(n, Node::SetToDefault(_)) {
                    row.push(self.column_default(c)?);
                    continue;
                }
                let e = self.expr(n)?;
                let e = self.assign(e, c, node::location(n))?;
                check_identity(c, overriding)?;
                let ignored =
                    c.identity.is_some() && overriding == OverridingKind::OverridingUserValue;
                row.push(if ignored { self.column_default(c)? } else { e });
            }
            rows.push(row);
        }
        Ok((columns, rows))
    }

    // ----- ON CONFLICT.

    fn on_conflict(
        &mut self,
        c: &OnConflictClause,
        table: &Arc<TableDef>,
        rte: u16,
    ) -> Result<OnConflict> {
        let update = c.action() == OnConflictAction::OnconflictUpdate;
        if update && c.infer.is_none() {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint \
                           name";
            return Err(self
                .error(State::SYNTAX_ERROR, message, c.location)
                .hint("For example, ON CONFLICT (column_name)."));
        }
        let arbiters = match c.infer.as_deref() {
            None => Vec::new(),
            Some(infer) if !infer.conname.is_empty() => {
                vec![self.arbiter_constraint(table, &infer.conname)?]
            }
            Some(infer) => self.infer_arbiters(infer, table)?,
        };
        if !update {
            return Ok(OnConflict { arbiters, action: ConflictAction::Nothing });
        }
        let entry = RangeEntry { name: "excluded".into(), ..table_entry(table) };
        let excluded = self.add_rte(entry.clone())?;
        if excluded != rte + 1 {
            return Err(SqlError::internal("EXCLUDED is not the second entry"));
        }
        let mut item = self.item_of(excluded, &entry, true);
        item.table = None;
        self.scope()?.items.push(item);
        let assignments = self.set_clause(&c.target_list, table)?;
        let filter = match some(&c.where_clause) {
            Some(n) => Some(self.condition(n, Clause::Where)?),
            None => None,
        };
        self.scope()?.items.pop();
        Ok(OnConflict { arbiters, action: ConflictAction::Update { assignments, filter } })
    }

    fn arbiter_constraint(&self, table: &TableDef, name: &str) -> Result<Oid> {
        let found = table.constraints.iter().find(|c| c.name == name);
        let Some(constraint) = found else {
            let message =
                format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
            return Err(self.error(State::UNDEFINED_OBJECT, message, -1));
        };
        match &constraint.kind {
            ConstraintKind::Primary { index } | ConstraintKind::Unique { index } => Ok(*index),
            _ => {
                let message = "constraint in ON CONFLICT clause has no associated index";
                Err(self.error(State::WRONG_OBJECT_TYPE, message, -1))
            }
        }
    }

    /// The unique indexes on exactly the named columns.
    fn infer_arbiters(
        &mut self,
        infer: &pg_query::protobuf::InferClause,
        table: &Arc<TableDef>,
    ) -> Result<Vec<Oid>> {
        let mut attnums: Vec<i16> = Vec::new();
        let mut exprs: Vec<Expr> = Vec::new();
        for n in node::each(&infer.index_elems) {
            let Node::IndexElem(e) = n else { return Err(node::missing()) };
            if !e.collation.is_empty() || !e.opclass.is_empty() {
                let what = "COLLATE or an operator class in ON CONFLICT";
                return Err(self.unsupported(what, infer.location));
            }
            match some(&e.expr) {
                None => {
                    let column = self.find_column(&e.name, infer.location)?;
                    match column {
                        Some(Expr::Var(v)) if v.col >= 0 => attnums.push(v.col + 1),
                        _ => return Err(self.missing_column(None, &e.name, infer.location)),
                    }
                }
                Some(n) => match self.in_clause(Clause::IndexExpression, |b| b.expr(n))? {
                    Expr::Var(v) if v.level == 0 && v.col >= 0 => attnums.push(v.col + 1),
                    other => exprs.push(other),
                },
            }
        }
        let predicate = match some(&infer.where_clause) {
            Some(n) => Some(self.condition(n, Clause::IndexPredicate)?),
            None => None,
        };
        let mut found = Vec::new();
        for index in table.indexes.clone() {
            if self.index_matches(&index, table, &attnums, &exprs, predicate.as_ref())? {
                found.push(index.oid);
            }
        }
        if found.is_empty() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT \
                           specification";
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, -1));
        }
        Ok(found)
    }

    fn index_matches(
        &mut self,
        index: &IndexDef,
        table: &Arc<TableDef>,
        attnums: &[i16],
        exprs: &[Expr],
        predicate: Option<&Expr>,
    ) -> Result<bool> {
        if !index.unique || !index.valid {
            return Ok(false);
        }
        let keys = &index.columns[..index.key_columns.min(index.columns.len())];
        let mut wanted: Vec<i16> = attnums.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut have: Vec<i16> = keys.iter().map(|c| c.attnum).filter(|a| *a > 0).collect();
        have.sort_unstable();
        if wanted != have {
            return Ok(false);
        }
        let mut bound = Vec::new();
        for text in keys.iter().filter_map(|c| c.expr.as_deref()) {
            bound.push(self.stored_expr(text, Some(table), Clause::IndexExpression)?);
        }
        if bound.len() != exprs.len() || !exprs.iter().all(|e| bound.contains(e)) {
            return Ok(false);
        }
        let Some(text) = &index.predicate else { return Ok(true) };
        let needed = self.stored_expr(text, Some(table), Clause::IndexPredicate)?;
        Ok(predicate.is_some_and(|p| implies(p, &needed)))
    }

    // ----- UPDATE, DELETE.

    /// SET's list: (attnum, value).
    fn set_clause(
        &mut self,
        list: &[node::Boxed],
        table: &Arc<TableDef>,
    ) -> Result<Vec<(i16, Expr)>> {
        let mut out: Vec<(i16, Expr)> = Vec::with_capacity(list.len());
        // The columns of the row being assigned from, last first.
        let mut pending: Vec<Expr> = Vec::new();
        for n in node::each(list) {
            let Node::ResTarget(r) = n else { return Err(node::missing()) };
            let value = need(&r.val)?;
            let c = self.target_column(table, &r.name, r.location)?.clone();
            if !r.indirection.is_empty() {
                let what = "assignment to an array element or a field";
                return Err(self.unsupported(what, r.location));
            }
            if out.iter().any(|x| x.0 == c.attnum) {
                let message = format!("multiple assignments to same column \"{}\"", r.name);
                return Err(self.error(State::SYNTAX_ERROR, message, -1));
            }
            let e = match value {
                Node::SetToDefault(_) => self.column_default(&c)?,
                Node::MultiAssignRef(m) => match self.multi_value(m, &c, &mut pending)? {
                    Assigned::Done(e) => e,
                    Assigned::Raw(e, at) => {
                        check_generated(&c)?;
                        self.assign(e, &c, at)?
                    }
                },
                other => {
                    let e = self.in_clause(Clause::UpdateSource, |b| b.expr(other))?;
                    let e = self.assign(e, &c, node::location(other))?;
                    check_generated(&c)?;
                    e
                }
            };
            out.push((c.attnum, e));
        }
        Ok(out)
    }

    fn multi_value(
        &mut self,
        m: &pg_query::protobuf::MultiAssignRef,
        c: &ColumnDef,
        pending: &mut Vec<Expr>,
    ) -> Result<Assigned> {
        let source = need(&m.source)?;
        let at = node::location(source);
        let columns = usize::try_from(m.ncolumns).unwrap_or(0);
        let index = usize::try_from(m.colno - 1).unwrap_or(0);
        match source {
            Node::RowExpr(r) => {
                if r.args.len() != columns {
                    let message = "number of columns does not match number of values";
                    return Err(self.error(State::SYNTAX_ERROR, message, at));
                }
                let item = node::each(&r.args).nth(index).ok_or_else(node::missing)?;
                if matches!(item, Node::SetToDefault(_)) {
                    return Ok(Assigned::Done(self.column_default(c)?));
                }
                let e = self.in_clause(Clause::UpdateSource, |b| b.expr(item))?;
                Ok(Assigned::Raw(e, node::location(item)))
            }
            Node::SubLink(s) => {
                if index == 0 {
                    let clause = Clause::UpdateSource;
                    *pending = self.in_clause(clause, |b| b.row_source(s, columns))?;
                    pending.reverse();
                }
                let e = pending.pop().ok_or_else(node::missing)?;
                Ok(Assigned::Raw(e, at))
            }
            _ => {
                let message = "source for a multiple-column UPDATE item must be a sub-SELECT or \
                               ROW() expression";
                Err(self.error(State::FEATURE_NOT_SUPPORTED, message, at))
            }
        }
    }

    pub(crate) fn update(&mut self, s: &UpdateStmt) -> Result<Update> {
        let relation = s.relation.as_ref().ok_or_else(node::missing)?;
        self.push_scope(&[])?;
        let ctes = self.with_clause(s.with_clause.as_ref(), Vec::new())?;
        let table = self.target_table(relation, "update")?;
        let (target_rte, from) = self.changed_rows(relation, &table, &s.from_clause)?;
        let assignments = self.set_clause(&s.target_list, &table)?;
        let filter = match some(&s.where_clause) {
            Some(n) => Some(self.condition(n, Clause::Where)?),
            None => None,
        };
        let returning = self.returning(s.returning_clause.as_ref())?;
        let checks = self.checks(&table)?;
        let scope = self.scopes.pop().unwrap_or_default();
        let query = Query { ctes, rtes: scope.rtes, from, filter, ..Query::default() };
        Ok(Update { table, target_rte, query, assignments, returning, checks })
    }

    pub(crate) fn delete(&mut self, s: &DeleteStmt) -> Result<Delete> {
        let relation = s.relation.as_ref().ok_or_else(node::missing)?;
        self.push_scope(&[])?;
        let ctes = self.with_clause(s.with_clause.as_ref(), Vec::new())?;
        let table = self.target_table(relation, "delete from")?;
        let (target_rte, from) = self.changed_rows(relation, &table, &s.using_clause)?;
        let filter = match some(&s.where_clause) {
            Some(n) => Some(self.condition(n, Clause::Where)?),
            None => None,
        };
        let returning = self.returning(s.returning_clause.as_ref())?;
        let scope = self.scopes.pop().unwrap_or_default();
        let query = Query { ctes, rtes: scope.rtes, from, filter, ..Query::default() };
        Ok(Delete { table, target_rte, query, returning })
    }

    /// The target table as the first entry, then FROM or USING.
    fn changed_rows(
        &mut self,
        relation: &RangeVar,
        table: &Arc<TableDef>,
        from: &[node::Boxed],
    ) -> Result<(u16, Vec<FromItem>)> {
        let mut entry = table_entry(table);
        if let Some(a) = &relation.alias {
            entry.name = a.aliasname.clone();
        }
        let rte = self.add_rte(entry.clone())?;
        let mut item: NsItem = self.item_of(rte, &entry, relation.alias.is_some());
        item.table = Some(table.clone());
        self.scope()?.items.push(item);
        let mut list = vec![FromItem::Rte(rte)];
        // The target is visible to the whole statement but not to FROM itself.
        let target = std::mem::take(&mut self.scope()?.items);
        let others = self.from_clause(from);
        let scope = self.scope()?;
        let mut items = target;
        items.append(&mut scope.items);
        scope.items = items;
        list.extend(others?);
        self.check_target_name()?;
        Ok((rte, list))
    }

    fn check_target_name(&self) -> Result<()> {
        let Some(scope) = self.scopes.last() else { return Ok(()) };
        let Some((target, others)) = scope.items.split_first() else { return Ok(()) };
        if others.iter().any(|i| i.rel_visible && i.name == target.name) {
            let message = format!("table name \"{}\" specified more than once", target.name);
            return Err(self.error(State::DUPLICATE_ALIAS, message, -1));
        }
        Ok(())
    }

    fn returning(&mut self, r: Option<&ReturningClause>) -> Result<Option<Vec<Target>>> {
        let Some(r) = r else { return Ok(None) };
        if !r.options.is_empty() {
            return Err(self.unsupported("RETURNING WITH (OLD/NEW)", -1));
        }
        let mut targets = self.target_list(&r.exprs, Clause::Returning)?;
        self.resolve_targets(&mut targets)?;
        let rtes = self.scope()?.rtes.clone();
        let mut q = Query { rtes, targets, ..Query::default() };
        self.set_origins(&mut q);
        Ok(Some(q.targets))
    }
}

enum Assigned {
    /// Already of the column's type.
    Done(Expr),
    Raw(Expr, i32),
}

fn generated_always(message: String, c: &ColumnDef) -> SqlError {
    let detail =
        format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", c.name);
    SqlError::new(State::GENERATED_ALWAYS, message).detail(detail)
}

/// Whether INSERT may give a value to a column.
fn check_identity(c: &ColumnDef, overriding: OverridingKind) -> Result<()> {
    let overridden = matches!(
        overriding,
        OverridingKind::OverridingSystemValue | OverridingKind::OverridingUserValue
    );
    if c.identity != Some(Identity::Always) || overridden {
        return Ok(());
    }
    let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", c.name);
    Err(generated_always(message, c).hint("Use OVERRIDING SYSTEM VALUE to override."))
}

/// Whether UPDATE may give a value to a column.
fn check_generated(c: &ColumnDef) -> Result<()> {
    match c.identity {
        Some(Identity::Always) => {
            let message = format!("column \"{}\" can only be updated to DEFAULT", c.name);
            Err(generated_always(message, c))
        }
        _ => Ok(()),
    }
}

/// Puts a query one level further in, under a plain SELECT of its columns.
fn wrap(q: &mut Query) {
    if matches!(q.rtes.as_slice(), [RangeEntry { name, .. }] if name == "*SELECT*") {
        return;
    }
    let inner = std::mem::take(q);
    let columns: Vec<RangeColumn> = inner
        .targets
        .iter()
        .map(|t| RangeColumn { name: t.name.clone(), ty: t.expr.ty(), dropped: false })
        .collect();
    q.targets = columns
        .iter()
        .enumerate()
        .map(|(i, c)| Target {
            expr: Expr::Var(Var { level: 0, rte: 0, col: i as i16, ty: c.ty }),
            name: c.name.clone(),
            origin: None,
        })
        .collect();
    let source = RangeSource::Subquery { query: Box::new(inner), lateral: false };
    q.rtes.push(RangeEntry { name: "*SELECT*".into(), columns, source });
    q.from.push(FromItem::Rte(0));
}

/// Whether a condition contains all of another's parts (a simple, safe test).
fn implies(have: &Expr, needed: &Expr) -> bool {
    let parts = |e: &Expr| match e {
        Expr::And(list) => list.clone(),
        other => vec![other.clone()],
    };
    let have = parts(have);
    parts(needed).iter().all(|n| have.contains(n))
}

pub(crate) fn system_catalog(name: &str) -> SqlError {
    SqlError::new(
        State::INSUFFICIENT_PRIVILEGE,
        format!("permission denied: \"{name}\" is a system catalog"),
    )
}

fn not_an_expression() -> SqlError {
    SqlError::internal("a stored expression's text is not an expression")
}
