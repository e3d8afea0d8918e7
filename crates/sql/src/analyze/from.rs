//! FROM: tables, views, sub-selects, functions, joins.
//!
//! Each item yields its place in the join tree and what it makes visible. A view becomes the
//! sub-select that it stands for; a join with USING, NATURAL or an alias becomes a name whose
//! columns are expressions.

use super::bound::*;
use super::call::CallOrCast;
use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause, NsColumn, NsItem};
use super::statement::{BindContext, ParamTypes};
use crate::catalog::{RelationKind, TableDef};
use crate::error::{Result, State};
use crate::functions::{Builtin, CastContext};
use crate::types::{Datum, Oid, TypeRef};
use pg_query::protobuf::{self, Alias, JoinExpr, RangeFunction, RangeSubselect, RangeVar};
use std::rc::Rc;
use std::sync::Arc;

/// Stored text names everything outside pg_catalog in full.
pub(crate) const STORED_PATH: &[Oid] = &[Oid::PG_CATALOG_SCHEMA];

type Item = (FromItem, Vec<NsItem>);

impl Binder<'_> {
    /// Binds FROM; afterwards its items are visible.
    pub(crate) fn from_clause(&mut self, list: &[node::Boxed]) -> Result<Vec<FromItem>> {
        let mut out = Vec::with_capacity(list.len());
        for n in node::each(list) {
            let (item, visible) = self.from_item(n)?;
            self.check_names(&visible)?;
            self.scope()?.lateral.extend(visible);
            out.push(item);
        }
        let scope = self.scope()?;
        let visible = std::mem::take(&mut scope.lateral);
        scope.items.extend(visible);
        Ok(out)
    }

    /// A name may appear once in FROM (tables of different schemas excepted).
    fn check_names(&self, new: &[NsItem]) -> Result<()> {
        let Some(scope) = self.scopes.last() else { return Ok(()) };
        let visible = |i: &&NsItem| i.rel_visible;
        for a in new.iter().filter(visible) {
            for b in scope.lateral.iter().chain(&scope.items).filter(visible) {
                self.check_pair(a, b)?;
            }
        }
        Ok(())
    }

    fn check_pair(&self, a: &NsItem, b: &NsItem) -> Result<()> {
        if a.name != b.name {
            return Ok(());
        }
        if let (Some(x), Some(y)) = (&a.table, &b.table)
            && !a.aliased
            && !b.aliased
            && x.oid != y.oid
        {
            return Ok(());
        }
        let message = format!("table name \"{}\" specified more than once", a.name);
        Err(self.error(State::DUPLICATE_ALIAS, message, -1))
    }

    fn from_item(&mut self, n: &Node) -> Result<Item> {
        self.deeper(|b| match n {
            Node::RangeVar(r) => b.range_var(r),
            Node::RangeSubselect(r) => b.range_subselect(r),
            Node::RangeFunction(r) => b.range_function(r),
            Node::JoinExpr(j) => b.join(j),
            Node::RangeTableSample(s) => Err(b.unsupported("TABLESAMPLE", s.location)),
            Node::RangeTableFunc(f) => Err(b.unsupported("XMLTABLE", f.location)),
            Node::JsonTable(f) => Err(b.unsupported("JSON_TABLE", f.location)),
            _ => Err(b.unsupported("this FROM item", -1)),
        })
    }

    /// Adds an entry under an alias and makes it an item.
    fn finish(
        &mut self,
        mut entry: RangeEntry,
        alias: Option<&Alias>,
        table: Option<Arc<TableDef>>,
    ) -> Result<Item> {
        if let Some(a) = alias {
            entry.name = a.aliasname.clone();
            let names = node::names(&a.colnames);
            self.rename_columns(&mut entry.columns, &names, &a.aliasname, "table")?;
        }
        let rte = self.add_rte(entry)?;
        let entry = &self.scope()?.rtes[usize::from(rte)].clone_shell();
        let mut item = self.item_of(rte, entry, alias.is_some());
        item.table = table;
        Ok((FromItem::Rte(rte), vec![item]))
    }

    pub(crate) fn rename_columns(
        &self,
        columns: &mut [RangeColumn],
        names: &[&str],
        of: &str,
        what: &str,
    ) -> Result<()> {
        let live = columns.iter().filter(|c| !c.dropped).count();
        if names.len() > live {
            let message = format!(
                "{what} \"{of}\" has {live} columns available but {} columns specified",
                names.len()
            );
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, -1));
        }
        for (column, name) in columns.iter_mut().filter(|c| !c.dropped).zip(names) {
            column.name = (*name).to_owned();
        }
        Ok(())
    }

    // ----- Tables, views, CTEs.

    fn range_var(&mut self, r: &RangeVar) -> Result<Item> {
        if r.schemaname.is_empty()
            && let Some((level, cte)) = self.find_cte(&r.relname)
        {
            if cte.unknown {
                let message = format!(
                    "recursive reference to query \"{}\" must not appear within its \
                     non-recursive term",
                    r.relname
                );
                return Err(self.error(State::INVALID_RECURSION, message, r.location));
            }
            let source = if cte.working {
                RangeSource::WorkTable { level, index: cte.index }
            } else {
                RangeSource::Cte { level, index: cte.index }
            };
            let entry = RangeEntry { name: cte.name, columns: cte.columns, source };
            return self.finish(entry, r.alias.as_ref(), None);
        }
        let table = self.range_table(r)?;
        let entry = match table.kind {
            RelationKind::View => self.view_entry(&table)?,
            RelationKind::Sequence => {
                return self.finish(sequence_entry(&table)?, r.alias.as_ref(), None);
            }
            _ => table_entry(&table),
        };
        self.finish(entry, r.alias.as_ref(), Some(table))
    }

    /// The relation that a RangeVar names.
    pub(crate) fn range_table(&mut self, r: &RangeVar) -> Result<Arc<TableDef>> {
        self.check_database(r)?;
        let schema = (!r.schemaname.is_empty()).then_some(r.schemaname.as_str());
        self.table_def(schema, &r.relname, r.location)
    }

    /// The relation that a definition or utility statement names: its errors have no position.
    pub(crate) fn named_table(&mut self, r: &RangeVar) -> Result<Arc<TableDef>> {
        self.check_database(r)?;
        let schema = (!r.schemaname.is_empty()).then_some(r.schemaname.as_str());
        self.table_def(schema, &r.relname, -1)
    }

    pub(crate) fn check_database(&self, r: &RangeVar) -> Result<()> {
        if r.catalogname.is_empty() {
            return Ok(());
        }
        let current = self.cx.functions.session().call("current_database", &[]);
        if matches!(&current, Ok(Datum::Text(name)) if name.as_str() == r.catalogname) {
            return Ok(());
        }
        let message = format!(
            "cross-database references are not implemented: \"{}.{}.{}\"",
            r.catalogname, r.schemaname, r.relname
        );
        Err(self.error(State::FEATURE_NOT_SUPPORTED, message, r.location))
    }

    /// A view as the sub-select that it stands for.
    fn view_entry(&mut self, view: &Arc<TableDef>) -> Result<RangeEntry> {
        let text = view.view.as_deref().unwrap_or_default();
        let mut query = self.stored_query(text)?;
        query.view = Some(view.clone());
        let columns: Vec<RangeColumn> = query
            .targets
            .iter()
            .enumerate()
            .map(|(i, t)| RangeColumn {
                name: view.columns.get(i).map_or_else(|| t.name.clone(), |c| c.name.clone()),
                ty: t.expr.ty(),
                dropped: false,
            })
            .collect();
        let source = RangeSource::Subquery { query: Box::new(query), lateral: false };
        Ok(RangeEntry { name: view.name.clone(), columns, source })
    }

    /// Binds a query from the catalog, on its own.
    pub(crate) fn stored_query(&mut self, text: &str) -> Result<Query> {
        let parsed = super::parse(text)?;
        let node = parsed.first().and_then(|p| p.node.as_deref());
        let Some(Node::SelectStmt(select)) = node else {
            return Err(crate::error::SqlError::internal("a view's text is not a query"));
        };
        let depth = self.depth;
        self.with_stored(text, |b| {
            b.depth = depth;
            b.deeper(|b| b.sub_select(select))
        })
    }

    /// Runs `f` with a binder for text from the catalog.
    pub(crate) fn with_stored<R>(
        &mut self,
        text: &str,
        f: impl FnOnce(&mut Binder<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut params = ParamTypes::none();
        let cx = BindContext { search_path: STORED_PATH, ..self.cx };
        let mut inner = Binder::new(cx, text, &mut params);
        inner.stored = true;
        f(&mut inner)
    }

    // ----- Sub-selects.

    fn range_subselect(&mut self, r: &RangeSubselect) -> Result<Item> {
        let Node::SelectStmt(select) = need(&r.subquery)? else { return Err(node::missing()) };
        let before = {
            let scope = self.scope()?;
            std::mem::replace(&mut scope.lateral_active, r.lateral)
        };
        let query = self.in_clause(Clause::FromSubselect, |b| b.sub_select(select));
        self.scope()?.lateral_active = before;
        let query = query?;
        let columns = query
            .targets
            .iter()
            .map(|t| RangeColumn { name: t.name.clone(), ty: t.expr.ty(), dropped: false })
            .collect();
        let source = RangeSource::Subquery { query: Box::new(query), lateral: r.lateral };
        let entry = RangeEntry { name: "unnamed_subquery".into(), columns, source };
        let mut item = self.finish(entry, r.alias.as_ref(), None)?;
        if r.alias.is_none() {
            item.1.iter_mut().for_each(|i| i.rel_visible = false);
        }
        Ok(item)
    }

    // ----- Functions.

    fn range_function(&mut self, r: &RangeFunction) -> Result<Item> {
        if !r.coldeflist.is_empty() {
            return Err(self.unsupported("a column definition list", -1));
        }
        let calls = function_list(r)?;
        let before = std::mem::replace(&mut self.scope()?.lateral_active, true);
        let bound = self.in_clause(Clause::FromFunction, |b| b.range_calls(&calls));
        self.scope()?.lateral_active = before;
        let mut bound = bound?;
        let lateral = bound.iter().any(FromCall::is_lateral);
        let alias = r.alias.as_ref().map(|a| a.aliasname.as_str());
        let mut columns = Vec::new();
        let single = bound.len() == 1;
        for call in &bound {
            columns.extend(call.columns(alias.filter(|_| single)));
        }
        if r.ordinality {
            let ty = TypeRef::plain(Oid::INT8);
            columns.push(RangeColumn { name: "ordinality".into(), ty, dropped: false });
        }
        let name = bound[0].name.clone();
        let ordinality = r.ordinality;
        let source = if single {
            match bound.remove(0).what {
                FromWhat::Value(e) if ordinality => {
                    let _ = e;
                    return Err(self.unsupported("WITH ORDINALITY of an expression", -1));
                }
                FromWhat::Value(e) => {
                    let target = Target { expr: e, name: name.clone(), origin: None };
                    let query = Query { targets: vec![target], ..Query::default() };
                    // The expression now stands one level further in.
                    let query = Box::new(shift_query(query));
                    RangeSource::Subquery { query, lateral }
                }
                FromWhat::Call { function, args, .. } => {
                    RangeSource::Function { function, args, ordinality, lateral }
                }
            }
        } else {
            let mut functions = Vec::with_capacity(bound.len());
            for call in bound {
                match call.what {
                    FromWhat::Call { function, args, .. } => functions.push((function, args)),
                    FromWhat::Value(_) => {
                        return Err(self.unsupported("an expression in ROWS FROM", -1));
                    }
                }
            }
            RangeSource::RowsFrom { functions, ordinality, lateral }
        };
        self.finish(RangeEntry { name, columns, source }, r.alias.as_ref(), None)
    }

    fn range_calls(&mut self, calls: &[Node]) -> Result<Vec<FromCall>> {
        let mut out = Vec::with_capacity(calls.len());
        for n in calls {
            let name = super::select::column_name(n);
            let Node::FuncCall(f) = n else {
                let e = self.typed_expr(n)?;
                out.push(FromCall { name, what: FromWhat::Value(e) });
                continue;
            };
            let call = match self.bind_call(f)? {
                CallOrCast::Cast(e) => {
                    out.push(FromCall { name, what: FromWhat::Value(e) });
                    continue;
                }
                CallOrCast::Call(call) => call,
            };
            let function = call.found.function;
            if function.is_aggregate() {
                let message = "aggregate functions are not allowed in functions in FROM";
                return Err(self.error(State::GROUPING_ERROR, message, f.location));
            }
            if function.is_window() || f.over.is_some() {
                let message = "window functions are not allowed in functions in FROM";
                return Err(self.error(State::WINDOWING_ERROR, message, f.location));
            }
            if call.found.result == Oid::RECORD && function.columns.is_empty() {
                let message = "a column definition list is required for functions returning \
                               \"record\"";
                return Err(self.error(State::SYNTAX_ERROR, message, f.location));
            }
            let columns = call.found.columns;
            let args = call.args;
            let what = FromWhat::Call { function, args, columns, result: call.found.result };
            out.push(FromCall { name, what });
        }
        Ok(out)
    }

    // ----- Joins.

    fn join(&mut self, j: &JoinExpr) -> Result<Item> {
        use protobuf::JoinType;
        let kind = match j.jointype() {
            JoinType::JoinInner => JoinKind::Inner,
            JoinType::JoinLeft => JoinKind::Left,
            JoinType::JoinRight => JoinKind::Right,
            JoinType::JoinFull => JoinKind::Full,
            _ => return Err(node::missing()),
        };
        let (left, left_items) = self.from_item(need(&j.larg)?)?;
        // The right side may refer to the left one, if it is LATERAL.
        let before = self.scope()?.lateral.len();
        if matches!(kind, JoinKind::Inner | JoinKind::Left) {
            self.scope()?.lateral.extend(left_items.iter().cloned());
        }
        let right = self.from_item(need(&j.rarg)?);
        self.scope()?.lateral.truncate(before);
        let (right, right_items) = right?;
        for a in right_items.iter().filter(|i| i.rel_visible) {
            for b in left_items.iter().filter(|i| i.rel_visible) {
                self.check_pair(a, b)?;
            }
        }
        let using = self.using_names(j, &left_items, &right_items)?;
        let (on, merged) = self.join_condition(j, kind, using, &left_items, &right_items)?;
        let item = FromItem::Join { kind, left: Box::new(left), right: Box::new(right), on };
        let mut visible = left_items;
        visible.extend(right_items);
        let visible = self.join_names(j, visible, merged)?;
        Ok((item, visible))
    }

    /// The columns that USING or NATURAL name.
    fn using_names(
        &self,
        j: &JoinExpr,
        left: &[NsItem],
        right: &[NsItem],
    ) -> Result<Option<Vec<String>>> {
        if j.is_natural {
            let mut names = Vec::new();
            for column in visible_columns(left) {
                let common = visible_columns(right).any(|c| c.name == column.name);
                if common && !names.contains(&column.name) {
                    names.push(column.name.clone());
                }
            }
            return Ok(Some(names));
        }
        if j.using_clause.is_empty() {
            return Ok(None);
        }
        let names = node::owned_names(&j.using_clause);
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                let message =
                    format!("column name \"{name}\" appears more than once in USING clause");
                return Err(self.error(State::DUPLICATE_COLUMN, message, -1));
            }
        }
        Ok(Some(names))
    }

    fn join_condition(
        &mut self,
        j: &JoinExpr,
        kind: JoinKind,
        using: Option<Vec<String>>,
        left: &[NsItem],
        right: &[NsItem],
    ) -> Result<(Option<Expr>, Option<Vec<NsColumn>>)> {
        let Some(names) = using else {
            let Some(n) = some(&j.quals) else { return Ok((None, None)) };
            let both: Vec<NsItem> = left.iter().chain(right).cloned().collect();
            let scope = self.scope()?;
            let saved = std::mem::replace(&mut scope.items, both);
            let lateral = std::mem::replace(&mut scope.lateral_active, false);
            let on = self.condition(n, Clause::JoinOn);
            let scope = self.scope()?;
            scope.items = saved;
            scope.lateral_active = lateral;
            return Ok((Some(on?), None));
        };
        let mut parts = Vec::with_capacity(names.len());
        let mut merged = Vec::with_capacity(names.len());
        for name in names {
            let l = self.join_column(left, &name, "left")?;
            let r = self.join_column(right, &name, "right")?;
            parts.push(self.operator_call("=", Some((l.clone(), -1)), (r.clone(), -1), -1)?);
            merged.push(NsColumn { name, expr: self.merge(kind, l, r)? });
        }
        let on = match parts.len() {
            0 => None,
            1 => parts.pop(),
            _ => Some(Expr::And(parts)),
        };
        Ok((on, Some(merged)))
    }

    fn join_column(&self, items: &[NsItem], name: &str, side: &str) -> Result<Expr> {
        let mut found = visible_columns(items).filter(|c| c.name == name);
        let Some(column) = found.next() else {
            let message = format!(
                "column \"{name}\" specified in USING clause does not exist in {side} table"
            );
            return Err(self.error(State::UNDEFINED_COLUMN, message, -1));
        };
        if found.next().is_some() {
            let message =
                format!("common column name \"{name}\" appears more than once in {side} table");
            return Err(self.error(State::AMBIGUOUS_COLUMN, message, -1));
        }
        Ok(column.expr.clone())
    }

    /// The value of a column that both sides have.
    fn merge(&mut self, kind: JoinKind, l: Expr, r: Expr) -> Result<Expr> {
        let kinds = [(l.ty().oid, -1), (r.ty().oid, -1)];
        let oid = self.common_type(&kinds, Some("JOIN/USING"))?.unwrap_or(Oid::TEXT);
        let same = l.ty().typmod == r.ty().typmod && l.ty().oid == r.ty().oid;
        let ty = TypeRef::new(oid, if same { l.ty().typmod } else { -1 });
        let target = TypeRef::plain(oid);
        let mut converted = |e: Expr| self.coerce(e, target, CastContext::Implicit, -1);
        let (lc, rc) = (converted(l.clone())?, converted(r.clone())?);
        Ok(match kind {
            JoinKind::Inner if lc == l => lc,
            JoinKind::Inner if rc == r => rc,
            JoinKind::Inner | JoinKind::Left => lc,
            JoinKind::Right => rc,
            JoinKind::Full => Expr::Coalesce { args: vec![lc, rc], ty },
        })
    }

    /// What stays visible of a join's sides, and the join's own name and columns.
    fn join_names(
        &self,
        j: &JoinExpr,
        mut visible: Vec<NsItem>,
        merged: Option<Vec<NsColumn>>,
    ) -> Result<Vec<NsItem>> {
        if merged.is_none() && j.alias.is_none() {
            return Ok(visible);
        }
        let merged = merged.unwrap_or_default();
        let mut columns = merged.clone();
        let rest = visible_columns(&visible).filter(|c| merged.iter().all(|m| m.name != c.name));
        columns.extend(rest.cloned());
        let mut item = NsItem {
            name: String::new(),
            rel_visible: false,
            cols_visible: true,
            columns: Rc::default(),
            rte: None,
            table: None,
            aliased: true,
        };
        if let Some(a) = &j.alias {
            let names = node::names(&a.colnames);
            if names.len() > columns.len() {
                let message =
                    format!("column alias list for \"{}\" has too many entries", a.aliasname);
                return Err(self.error(State::SYNTAX_ERROR, message, -1));
            }
            for (column, name) in columns.iter_mut().zip(names) {
                column.name = name.to_owned();
            }
            item.name = a.aliasname.clone();
            item.rel_visible = true;
            // They stay only so that errors can say why they cannot be named.
            visible.iter_mut().for_each(|i| i.rel_visible = false);
        }
        item.columns = Rc::new(columns);
        visible.iter_mut().for_each(|i| i.cols_visible = false);
        if let Some(a) = &j.join_using_alias {
            visible.push(NsItem {
                name: a.aliasname.clone(),
                rel_visible: true,
                cols_visible: false,
                columns: Rc::new(merged),
                ..item.clone()
            });
        }
        visible.push(item);
        Ok(visible)
    }
}

fn visible_columns(items: &[NsItem]) -> impl Iterator<Item = &NsColumn> {
    items.iter().filter(|i| i.cols_visible).flat_map(|i| i.columns.iter())
}

/// A sequence's one row, which a function makes.
fn sequence_entry(sequence: &Arc<TableDef>) -> Result<RangeEntry> {
    let columns = table_entry(sequence).columns;
    let function = *crate::functions::lookup("inkling_sequence").first().ok_or_else(|| {
        crate::error::SqlError::internal("the function that shows sequences is missing")
    })?;
    let ty = TypeRef::plain(Oid::REGCLASS);
    let args = vec![Expr::Const { value: Datum::Oid(sequence.oid.0), ty }];
    let source = RangeSource::Function { function, args, ordinality: false, lateral: false };
    Ok(RangeEntry { name: sequence.name.clone(), columns, source })
}

/// A table as a range-table entry; dropped columns keep their places.
pub(crate) fn table_entry(table: &Arc<TableDef>) -> RangeEntry {
    let columns = table
        .columns
        .iter()
        .map(|c| RangeColumn { name: c.name.clone(), ty: c.ty, dropped: c.dropped })
        .collect();
    RangeEntry { name: table.name.clone(), columns, source: RangeSource::Table(table.clone()) }
}

impl RangeEntry {
    /// Name and columns only, for building the item that shows them.
    fn clone_shell(&self) -> RangeEntry {
        RangeEntry {
            name: self.name.clone(),
            columns: self.columns.clone(),
            source: RangeSource::Join,
        }
    }
}

/// Moves a one-level query's own columns one level out: it becomes a LATERAL sub-select.
fn shift_query(mut q: Query) -> Query {
    for t in &mut q.targets {
        let e = std::mem::replace(&mut t.expr, Expr::And(Vec::new()));
        t.expr = super::walk::shifted(e, 1);
    }
    q
}

enum FromWhat {
    Call { function: &'static Builtin, args: Vec<Expr>, columns: Vec<Oid>, result: Oid },
    Value(Expr),
}

struct FromCall {
    name: String,
    what: FromWhat,
}

impl FromCall {
    fn is_lateral(&self) -> bool {
        match &self.what {
            FromWhat::Call { args, .. } => args.iter().any(super::walk::has_own_vars),
            FromWhat::Value(e) => super::walk::has_own_vars(e),
        }
    }

    fn columns(&self, alias: Option<&str>) -> Vec<RangeColumn> {
        let column = |name: &str, ty| RangeColumn { name: name.to_owned(), ty, dropped: false };
        match &self.what {
            FromWhat::Value(e) => vec![column(alias.unwrap_or(&self.name), e.ty())],
            FromWhat::Call { function, columns, .. } if !columns.is_empty() => {
                let names = function.columns.iter().zip(columns);
                names.map(|((name, _), oid)| column(name, TypeRef::plain(*oid))).collect()
            }
            FromWhat::Call { result, .. } => {
                vec![column(alias.unwrap_or(&self.name), TypeRef::plain(*result))]
            }
        }
    }
}

/// The calls of a function item; `unnest(a, b)` is one unnest an array.
fn function_list(r: &RangeFunction) -> Result<Vec<Node>> {
    let mut out = Vec::with_capacity(r.functions.len());
    for n in node::each(&r.functions) {
        let Node::List(l) = n else { return Err(node::missing()) };
        let mut parts = l.items.iter();
        let call = parts.next().and_then(|n| n.node.as_ref()).ok_or_else(node::missing)?;
        if parts.any(|n| matches!(&n.node, Some(Node::List(l)) if !l.items.is_empty())) {
            return Err(crate::error::SqlError::unsupported("a column definition list"));
        }
        match call {
            Node::FuncCall(f) if is_wide_unnest(f) => {
                for arg in &f.args {
                    let mut one = (**f).clone();
                    one.args = vec![arg.clone()];
                    out.push(Node::FuncCall(Box::new(one)));
                }
            }
            other => out.push(other.clone()),
        }
    }
    Ok(out)
}

fn is_wide_unnest(f: &protobuf::FuncCall) -> bool {
    let names = node::names(&f.funcname);
    let (schema, name) = node::qualified(&names);
    name == "unnest" && schema.is_none_or(|s| s == "pg_catalog") && f.args.len() > 1
}
