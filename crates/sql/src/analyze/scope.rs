//! What a name means: query levels, range-table entries, column references, CTE names.
//!
//! ```text
//!   Binder.scopes:  [outer query] [sub-select] [its sub-select]      innermost last
//!   Scope.items:    what FROM made visible: (name, columns -> expressions over the entries)
//! ```
//!
//! A joined table with USING or an alias is an item whose columns are expressions over the entries
//! below it, so that no join entry exists in the bound tree. While FROM is being bound, items to
//! the left are visible to LATERAL items only.

use super::bound::*;
use super::parse::too_deep;
use super::statement::{BindContext, ParamMode, ParamTypes};
use super::walk;
use super::{MAX_BOUND_DEPTH, with_stack};
use crate::catalog::{RelationKind, TableDef};
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid, TypeRef};
use std::rc::Rc;
use std::sync::Arc;

const AMBIGUOUS_ALIAS: State = State::from_code("42P09");

/// The clause that an expression stands in: decides what is allowed there, and error texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clause {
    Other,
    FromSubselect,
    FromFunction,
    JoinOn,
    Where,
    Having,
    Filter,
    WindowPartition,
    WindowOrder,
    WindowFrame,
    Select,
    UpdateSource,
    GroupBy,
    OrderBy,
    DistinctOn,
    Limit,
    Offset,
    Returning,
    Values,
    Check,
    ColumnDefault,
    IndexExpression,
    IndexPredicate,
    Transform,
    Execute,
    CopyWhere,
}

impl Clause {
    /// As it follows "aggregate functions are not allowed in"; None: allowed.
    pub(crate) fn refuses_aggregates(self) -> Option<&'static str> {
        Some(match self {
            Clause::Select
            | Clause::Having
            | Clause::OrderBy
            | Clause::DistinctOn
            | Clause::WindowPartition
            | Clause::WindowOrder => return None,
            Clause::FromSubselect => "FROM clause of their own query level",
            other => other.place(),
        })
    }

    /// As it follows "window functions are not allowed in"; None: allowed.
    pub(crate) fn refuses_windows(self) -> Option<&'static str> {
        Some(match self {
            Clause::Select | Clause::OrderBy | Clause::DistinctOn => return None,
            Clause::WindowPartition | Clause::WindowOrder | Clause::WindowFrame => {
                "window definitions"
            }
            other => other.place(),
        })
    }

    /// As it follows "set-returning functions are not allowed in"; None: allowed.
    pub(crate) fn refuses_sets(self) -> Option<&'static str> {
        Some(match self {
            Clause::Select | Clause::OrderBy | Clause::DistinctOn | Clause::GroupBy => return None,
            Clause::WindowPartition | Clause::WindowOrder | Clause::WindowFrame => {
                "window definitions"
            }
            other => other.place(),
        })
    }

    /// The whole message about a sub-select where none may be.
    pub(crate) fn refuses_subqueries(self) -> Option<&'static str> {
        Some(match self {
            Clause::Check => "cannot use subquery in check constraint",
            Clause::ColumnDefault => "cannot use subquery in DEFAULT expression",
            Clause::IndexExpression => "cannot use subquery in index expression",
            Clause::IndexPredicate => "cannot use subquery in index predicate",
            Clause::Transform => "cannot use subquery in transform expression",
            Clause::Execute => "cannot use subquery in EXECUTE parameter",
            Clause::CopyWhere => "cannot use subquery in COPY FROM WHERE condition",
            _ => return None,
        })
    }

    pub(crate) fn place(self) -> &'static str {
        match self {
            Clause::Other => "this context",
            Clause::FromSubselect => "FROM",
            Clause::FromFunction => "functions in FROM",
            Clause::JoinOn => "JOIN conditions",
            Clause::Where => "WHERE",
            Clause::Having => "HAVING",
            Clause::Filter => "FILTER",
            Clause::WindowPartition => "window PARTITION BY",
            Clause::WindowOrder => "window ORDER BY",
            Clause::WindowFrame => "window RANGE",
            Clause::Select => "SELECT",
            Clause::UpdateSource => "UPDATE",
            Clause::GroupBy => "GROUP BY",
            Clause::OrderBy => "ORDER BY",
            Clause::DistinctOn => "DISTINCT ON",
            Clause::Limit => "LIMIT",
            Clause::Offset => "OFFSET",
            Clause::Returning => "RETURNING",
            Clause::Values => "VALUES",
            Clause::Check => "check constraints",
            Clause::ColumnDefault => "DEFAULT expressions",
            Clause::IndexExpression => "index expressions",
            Clause::IndexPredicate => "index predicates",
            Clause::Transform => "transform expressions",
            Clause::Execute => "EXECUTE parameters",
            Clause::CopyWhere => "COPY FROM WHERE conditions",
        }
    }
}

/// A column as FROM made it visible.
#[derive(Clone, Debug)]
pub(crate) struct NsColumn {
    pub name: String,
    pub expr: Expr,
}

/// Something that can be named in FROM.
#[derive(Clone, Debug)]
pub(crate) struct NsItem {
    pub name: String,
    /// `name.column` and `name.*` work.
    pub rel_visible: bool,
    /// Unqualified column names work.
    pub cols_visible: bool,
    pub columns: Rc<Vec<NsColumn>>,
    /// The entry, unless this is a join.
    pub rte: Option<u16>,
    /// The table behind it: for `schema.table.column`, system columns and its row type.
    pub table: Option<Arc<TableDef>>,
    /// The name is an alias, which hides the table's own.
    pub aliased: bool,
}

/// A common table expression that can be named.
#[derive(Clone, Debug)]
pub(crate) struct CteName {
    pub name: String,
    pub columns: Vec<RangeColumn>,
    pub index: usize,
    /// Inside its own recursive term: names the working table.
    pub working: bool,
    /// WITH RECURSIVE, before its columns are known.
    pub unknown: bool,
}

/// Where a column was mentioned, for the errors of GROUP BY.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VarUse {
    pub scope: usize,
    pub rte: u16,
    pub col: i16,
    pub location: i32,
}

/// One query level.
#[derive(Default, Debug)]
pub(crate) struct Scope {
    pub rtes: Vec<RangeEntry>,
    pub items: Vec<NsItem>,
    pub ctes: Vec<CteName>,
    pub aggregates: bool,
    pub windows: Vec<(String, pg_query::protobuf::WindowDef)>,
    /// Items stand here while FROM is bound; only LATERAL sees them.
    pub lateral: Vec<NsItem>,
    pub lateral_active: bool,
    /// FOR UPDATE applies to this query from outside (a sub-select of a locked one).
    pub uses: Vec<VarUse>,
}

pub(crate) struct Binder<'a> {
    pub cx: BindContext<'a>,
    pub source: &'a str,
    pub params: &'a mut ParamTypes,
    pub scopes: Vec<Scope>,
    pub clause: Clause,
    pub depth: usize,
    /// Text from the catalog (a view, a default): positions in it mean nothing to the client.
    pub stored: bool,
    /// Scope numbers whose aggregate's arguments are being bound.
    pub in_aggregate: Vec<usize>,
    pub in_window: Vec<usize>,
    /// A parameter was bound before its type was known.
    pub open_params: bool,
    /// Relations that were read, for dependencies.
    pub relations: Vec<Oid>,
    /// Where INSERT names its columns.
    pub target_locations: Vec<i32>,
}

impl<'a> Binder<'a> {
    pub(crate) fn new(cx: BindContext<'a>, source: &'a str, params: &'a mut ParamTypes) -> Self {
        Binder {
            cx,
            source,
            params,
            scopes: Vec::new(),
            clause: Clause::Other,
            depth: 0,
            stored: false,
            in_aggregate: Vec::new(),
            in_window: Vec::new(),
            open_params: false,
            relations: Vec::new(),
            target_locations: Vec::new(),
        }
    }

    /// One level deeper into user input: bounded, on growable stack.
    pub(crate) fn deeper<R>(&mut self, f: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        if self.depth >= MAX_BOUND_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        let result = with_stack(0, || f(self));
        self.depth -= 1;
        result
    }

    /// Adds a position to an error, from a byte offset in the source.
    pub(crate) fn at(&self, error: SqlError, location: i32) -> SqlError {
        match self.position(location) {
            Some(p) => error.at(p),
            None => error,
        }
    }

    pub(crate) fn position(&self, location: i32) -> Option<u32> {
        let location = usize::try_from(location).ok().filter(|_| !self.stored)?;
        let before = self.source.get(..location)?;
        u32::try_from(before.chars().count() + 1).ok()
    }

    pub(crate) fn error(
        &self,
        state: State,
        message: impl Into<String>,
        location: i32,
    ) -> SqlError {
        self.at(SqlError::new(state, message), location)
    }

    pub(crate) fn unsupported(&self, what: &str, location: i32) -> SqlError {
        self.at(SqlError::unsupported(what), location)
    }

    /// Runs `f`, whose errors have no position if `quiet`.
    pub(crate) fn quietly<R>(
        &mut self,
        quiet: bool,
        f: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let before = self.stored;
        self.stored |= quiet;
        let result = f(self);
        self.stored = before;
        result
    }

    /// Runs `f` with another clause in force.
    pub(crate) fn in_clause<R>(
        &mut self,
        clause: Clause,
        f: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let before = std::mem::replace(&mut self.clause, clause);
        let result = f(self);
        self.clause = before;
        result
    }

    pub(crate) fn scope(&mut self) -> Result<&mut Scope> {
        self.scopes.last_mut().ok_or_else(|| SqlError::internal("no query is being bound"))
    }

    /// Adds an entry to the innermost query's range table.
    pub(crate) fn add_rte(&mut self, rte: RangeEntry) -> Result<u16> {
        let scope = self.scope()?;
        let index = u16::try_from(scope.rtes.len()).map_err(|_| {
            SqlError::new(State::PROGRAM_LIMIT_EXCEEDED, "too many range table entries")
        })?;
        scope.rtes.push(rte);
        Ok(index)
    }

    /// The item that shows an entry under its own name.
    pub(crate) fn item_of(&self, rte: u16, entry: &RangeEntry, aliased: bool) -> NsItem {
        let columns = entry.columns.iter().enumerate().filter(|(_, c)| !c.dropped);
        let columns = columns.map(|(i, c)| NsColumn {
            name: c.name.clone(),
            expr: Expr::Var(Var { level: 0, rte, col: i as i16, ty: c.ty }),
        });
        NsItem {
            name: entry.name.clone(),
            rel_visible: true,
            cols_visible: true,
            columns: Rc::new(columns.collect()),
            rte: Some(rte),
            table: match &entry.source {
                RangeSource::Table(t) => Some(t.clone()),
                _ => None,
            },
            aliased,
        }
    }

    fn visible(&self, scope: usize) -> impl Iterator<Item = &NsItem> {
        let s = &self.scopes[scope];
        let lateral = if s.lateral_active { s.lateral.as_slice() } else { &[] };
        s.items.iter().chain(lateral)
    }

    /// A column expression of scope number `scope`, seen from the innermost one.
    fn from_scope(&mut self, expr: &Expr, scope: usize, location: i32) -> Expr {
        let level = (self.scopes.len() - 1 - scope) as u16;
        if let Expr::Var(v) = expr
            && self.in_aggregate.iter().all(|s| *s != scope)
        {
            let of = VarUse { scope, rte: v.rte, col: v.col, location };
            if let Some(inner) = self.scopes.get_mut(scope) {
                inner.uses.push(of);
            }
        }
        walk::shifted(expr.clone(), level)
    }

    /// An unqualified column; None when no query level has it.
    pub(crate) fn find_column(&mut self, name: &str, location: i32) -> Result<Option<Expr>> {
        for scope in (0..self.scopes.len()).rev() {
            let mut found: Option<Expr> = None;
            for item in self.visible(scope).filter(|i| i.cols_visible) {
                for expr in item_columns(item, name) {
                    if found.is_some() {
                        return Err(self.ambiguous(name, location));
                    }
                    found = Some(expr);
                }
            }
            if let Some(expr) = found {
                return Ok(Some(self.from_scope(&expr, scope, location)));
            }
        }
        Ok(None)
    }

    fn ambiguous(&self, name: &str, location: i32) -> SqlError {
        let message = format!("column reference \"{name}\" is ambiguous");
        self.error(State::AMBIGUOUS_COLUMN, message, location)
    }

    /// The item that `[schema.]name` means: (scope number, item).
    pub(crate) fn find_item(
        &self,
        schema: Option<&str>,
        name: &str,
        location: i32,
    ) -> Result<Option<(usize, NsItem)>> {
        for scope in (0..self.scopes.len()).rev() {
            let mut found: Option<&NsItem> = None;
            for item in self.visible(scope).filter(|i| i.rel_visible && i.name == name) {
                let matches = match (schema, &item.table) {
                    (None, _) => true,
                    (Some(s), Some(t)) => !item.aliased && t.schema_name == s,
                    (Some(_), None) => false,
                };
                if !matches {
                    continue;
                }
                if found.is_some() {
                    let message = format!("table reference \"{name}\" is ambiguous");
                    return Err(self.error(AMBIGUOUS_ALIAS, message, location));
                }
                found = Some(item);
            }
            if let Some(item) = found {
                return Ok(Some((scope, item.clone())));
            }
        }
        Ok(None)
    }

    /// `table.column` of an item already found.
    pub(crate) fn qualified_column(
        &mut self,
        scope: usize,
        item: &NsItem,
        column: &str,
        location: i32,
    ) -> Result<Option<Expr>> {
        let mut found = item_columns(item, column);
        let Some(expr) = found.next() else { return Ok(None) };
        if found.next().is_some() {
            return Err(self.ambiguous(column, location));
        }
        drop(found);
        Ok(Some(self.from_scope(&expr, scope, location)))
    }

    /// All columns of an item, as `item.*`.
    pub(crate) fn item_star(
        &mut self,
        scope: usize,
        item: &NsItem,
        location: i32,
    ) -> Vec<(String, Expr)> {
        let columns = item.columns.clone();
        let star = |c: &NsColumn| (c.name.clone(), self.from_scope(&c.expr, scope, location));
        columns.iter().map(star).collect()
    }

    /// A whole-row value of an item.
    pub(crate) fn whole_row(&mut self, scope: usize, item: &NsItem, location: i32) -> Expr {
        let single = match (&item.table, item.rte) {
            (None, Some(rte)) => self.scalar_function(scope, rte),
            _ => false,
        };
        let mut items: Vec<Expr> =
            self.item_star(scope, item, location).into_iter().map(|c| c.1).collect();
        if single && items.len() == 1 {
            return items.remove(0);
        }
        let oid = item.table.as_ref().map_or(Oid::RECORD, |t| t.row_type);
        let oid = if oid.is_valid() { oid } else { Oid::RECORD };
        Expr::Row { items, ty: TypeRef::plain(oid) }
    }

    /// A function in FROM that returns a scalar: its name means the value itself.
    fn scalar_function(&self, scope: usize, rte: u16) -> bool {
        match self.scopes[scope].rtes.get(rte as usize).map(|r| &r.source) {
            Some(RangeSource::Function { function, ordinality, .. }) => {
                !ordinality && function.columns.is_empty() && function.result != Oid::RECORD
            }
            _ => false,
        }
    }

    /// The error for a table name that is not in FROM where it would have to be.
    pub(crate) fn missing_from(&self, name: &str, location: i32) -> SqlError {
        for scope in self.scopes.iter().rev() {
            let hidden = scope.items.iter().chain(&scope.lateral).find(|i| i.name == name);
            let by_table = || {
                let mut all = scope.items.iter().chain(&scope.lateral);
                all.find(|i| i.aliased && i.table.as_ref().is_some_and(|t| t.name == name))
            };
            let message = format!("invalid reference to FROM-clause entry for table \"{name}\"");
            let invalid = || self.error(State::UNDEFINED_TABLE, message.clone(), location);
            if hidden.is_some() {
                return invalid().hint(format!(
                    "There is an entry for table \"{name}\", but it cannot be referenced from \
                     this part of the query."
                ));
            }
            if let Some(item) = by_table() {
                return invalid().hint(format!(
                    "Perhaps you meant to reference the table alias \"{}\".",
                    item.name
                ));
            }
        }
        let message = format!("missing FROM-clause entry for table \"{name}\"");
        self.error(State::UNDEFINED_TABLE, message, location)
    }

    /// The error for a column that does not exist, with a near miss as its hint.
    pub(crate) fn missing_column(
        &self,
        table: Option<&str>,
        name: &str,
        location: i32,
    ) -> SqlError {
        let message = match table {
            Some(t) => format!("column {t}.{name} does not exist"),
            None => format!("column \"{name}\" does not exist"),
        };
        let error = self.error(State::UNDEFINED_COLUMN, message, location);
        match self.near_miss(table, name) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    fn near_miss(&self, table: Option<&str>, name: &str) -> Option<String> {
        let mut best: Option<(usize, Vec<String>)> = None;
        let scopes = self.scopes.iter().rev();
        for item in scopes.flat_map(|s| s.items.iter().chain(&s.lateral)) {
            // Another table than the one named costs as much as its name is off.
            let penalty = table.map_or(0, |t| distance(t, &item.name));
            for column in item.columns.iter() {
                let off = distance(name, &column.name);
                let d = off + penalty;
                if d > 3 || off > name.chars().count() / 2 {
                    continue;
                }
                let full = format!("{}.{}", item.name, column.name);
                match &mut best {
                    Some((b, list)) if *b == d => list.push(full),
                    Some((b, _)) if *b < d => {}
                    _ => best = Some((d, vec![full])),
                }
            }
        }
        match best?.1.as_slice() {
            [one] => Some(format!("Perhaps you meant to reference the column \"{one}\".")),
            [a, b] => Some(format!(
                "Perhaps you meant to reference the column \"{a}\" or the column \"{b}\"."
            )),
            _ => None,
        }
    }

    /// The CTE that a name means: (levels out, its description).
    pub(crate) fn find_cte(&self, name: &str) -> Option<(u16, CteName)> {
        for (level, scope) in self.scopes.iter().rev().enumerate() {
            if let Some(cte) = scope.ctes.iter().rev().find(|c| c.name == name) {
                return Some((level as u16, cte.clone()));
            }
        }
        None
    }

    /// The relation `[schema.]name`, as the search path has it.
    pub(crate) fn find_relation(
        &self,
        schema: Option<&str>,
        name: &str,
        location: i32,
    ) -> Result<Option<Oid>> {
        let Some(schema) = schema else {
            return Ok(self.cx.catalog.find_relation(self.cx.search_path, name));
        };
        let namespace = self.schema_oid(schema, location)?;
        Ok(namespace.and_then(|s| self.cx.catalog.find_in_schema(s, name)))
    }

    /// A schema by name; `pg_temp` is the session's own. None: there is no such schema.
    pub(crate) fn schema_oid(&self, schema: &str, _location: i32) -> Result<Option<Oid>> {
        if schema == "pg_temp" {
            return Ok(self.cx.temp_schema);
        }
        Ok(self.cx.catalog.schema_names.get(schema).copied())
    }

    pub(crate) fn missing_relation(
        &self,
        schema: Option<&str>,
        name: &str,
        location: i32,
    ) -> SqlError {
        let message = match schema {
            Some(s) => format!("relation \"{s}.{name}\" does not exist"),
            None => format!("relation \"{name}\" does not exist"),
        };
        self.error(State::UNDEFINED_TABLE, message, location)
    }

    /// The definition of a relation that holds or yields rows.
    pub(crate) fn table_def(
        &mut self,
        schema: Option<&str>,
        name: &str,
        location: i32,
    ) -> Result<Arc<TableDef>> {
        let Some(oid) = self.find_relation(schema, name, location)? else {
            return Err(self.missing_relation(schema, name, location));
        };
        match self.cx.catalog.tables.get(&oid) {
            Some(t) if t.kind != RelationKind::Index => {
                if self.is_other_temporary(t) {
                    return Err(super::target::other_sessions("access"));
                }
                if !self.relations.contains(&oid) {
                    self.relations.push(oid);
                }
                Ok(t.clone())
            }
            _ => Err(self.error(
                State::WRONG_OBJECT_TYPE,
                format!("\"{name}\" is an index"),
                location,
            )),
        }
    }

    /// The table with this row type.
    pub(crate) fn table_of_row_type(&self, ty: Oid) -> Option<&Arc<TableDef>> {
        if !ty.is_valid() || crate::types::info(ty).is_some() {
            return None;
        }
        self.cx.catalog.tables.values().find(|t| t.row_type == ty)
    }

    /// `$n`.
    pub(crate) fn parameter(&mut self, number: i32, location: i32) -> Result<Expr> {
        let none = || {
            self.error(
                State::UNDEFINED_PARAMETER,
                format!("there is no parameter ${number}"),
                location,
            )
        };
        let index = match u16::try_from(number) {
            Ok(i) if i > 0 => i,
            _ => return Err(none()),
        };
        let slot = usize::from(index) - 1;
        match self.params.mode {
            ParamMode::None => return Err(none()),
            ParamMode::Fixed if slot >= self.params.types.len() => return Err(none()),
            ParamMode::Fixed => {}
            ParamMode::Variable => {
                if slot >= self.params.types.len() {
                    self.params.types.resize(slot + 1, Oid::INVALID);
                }
            }
        }
        let known = self.params.types[slot];
        let oid = if known.is_valid() { known } else { Oid::UNKNOWN };
        self.open_params |= oid == Oid::UNKNOWN;
        Ok(Expr::Param { index, ty: TypeRef::plain(oid) })
    }

    /// Gives parameters that were bound early the types that were found later, and refuses those
    /// that have none.
    pub(crate) fn settle_param(&self, e: &mut Expr, failed: &mut Option<SqlError>) {
        let Expr::Param { index, ty } = e else { return };
        if ty.oid != Oid::UNKNOWN {
            return;
        }
        let known = self.params.types.get(usize::from(*index) - 1).copied().unwrap_or_default();
        if known.is_valid() && known != Oid::UNKNOWN {
            ty.oid = known;
        } else if failed.is_none() {
            *failed = Some(undetermined(*index));
        }
    }
}

pub(crate) fn undetermined(index: u16) -> SqlError {
    SqlError::new(
        State::INDETERMINATE_DATATYPE,
        format!("could not determine data type of parameter ${index}"),
    )
}

/// The expressions that `name` means within an item: its columns, else a system column.
fn item_columns<'i>(item: &'i NsItem, name: &'i str) -> impl Iterator<Item = Expr> + 'i {
    let own = item.columns.iter().filter(move |c| c.name == name).map(|c| c.expr.clone());
    let system = match (&item.table, item.rte) {
        (Some(t), Some(rte)) if has_system_columns(t) => system_column(name)
            .filter(|_| item.columns.iter().all(|c| c.name != name))
            .map(|(col, oid)| Expr::Var(Var { level: 0, rte, col, ty: TypeRef::plain(oid) })),
        _ => None,
    };
    own.chain(system)
}

fn has_system_columns(table: &TableDef) -> bool {
    matches!(table.kind, RelationKind::Table | RelationKind::Sequence | RelationKind::Toast)
}

pub(crate) fn system_column(name: &str) -> Option<(i16, Oid)> {
    Some(match name {
        "ctid" => (system_column::CTID, Oid::TID),
        "xmin" => (system_column::XMIN, Oid::XID),
        "cmin" => (system_column::CMIN, Oid::CID),
        "xmax" => (system_column::XMAX, Oid::XID),
        "cmax" => (system_column::CMAX, Oid::CID),
        "tableoid" => (system_column::TABLEOID, Oid::OID),
        _ => return None,
    })
}

/// The name of a system column.
pub(crate) fn system_column_name(col: i16) -> &'static str {
    match col {
        system_column::CTID => "ctid",
        system_column::XMIN => "xmin",
        system_column::CMIN => "cmin",
        system_column::XMAX => "xmax",
        system_column::CMAX => "cmax",
        _ => "tableoid",
    }
}

/// Edit distance, for hints.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// NULL of a type.
pub(crate) fn null(oid: Oid) -> Expr {
    Expr::Const { value: Datum::Null, ty: TypeRef::plain(oid) }
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn edit_distance() {
        assert_eq!(distance("nmae", "name"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
