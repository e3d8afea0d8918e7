//! Bound expressions back to SQL, in the form that PostgreSQL shows them.
//!
//! ```text
//!   nextval('t_id_seq'::regclass)      'x'::text      ((a > 0) AND (b < 5))
//! ```
//!
//! Two uses: text kept in the catalog (defaults, checks, index expressions, views), where every
//! name outside pg_catalog is qualified so that it means the same under any search path, and a
//! `regclass` constant is a number, so that it survives renaming (`catalog/stored_names.rs`); and
//! text for people (`pg_get_expr`, EXPLAIN), where names that the search path finds stay short.
//! What is written here parses and binds to the same tree again (up to the form of casts).

use super::bound::*;
use super::from::STORED_PATH;
use super::quote::plain_literal;
pub use super::quote::{quote_ident, quote_literal};
use super::scope::system_column_name;
use super::with_stack;
use crate::catalog::{CatalogSnapshot, TableDef};
use crate::functions::{self, Builtin, CastHow, Operator};
use crate::types::{self, Datum, Oid, OutputStyle, TypeRef};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::LazyLock;

/// An expression over one table's columns, which need no prefix.
///
/// `path`: schemas whose relations need no qualification.
pub fn expr(e: &Expr, table: Option<&TableDef>, catalog: &CatalogSnapshot, path: &[Oid]) -> String {
    let mut d = Deparse::new(catalog, path);
    if let Some(t) = table {
        let columns = t.columns.iter().map(|c| c.name.clone()).collect();
        d.levels.push(Level { prefix: false, entries: vec![(t.name.clone(), columns)] });
    }
    d.expr(e);
    d.out
}

/// An expression over the columns of a relation that may not exist yet.
pub(crate) fn expr_over(
    e: &Expr,
    relation: &str,
    columns: &[String],
    catalog: &CatalogSnapshot,
    path: &[Oid],
) -> String {
    let mut d = Deparse::new(catalog, path);
    let entries = vec![(relation.to_owned(), columns.to_vec())];
    d.levels.push(Level { prefix: false, entries });
    d.expr(e);
    d.out
}

/// An expression of a plan: `levels` are the range tables, innermost first.
pub fn expr_in(e: &Expr, levels: &[Vec<RangeEntry>], catalog: &CatalogSnapshot) -> String {
    let all: Vec<Oid> = catalog.schemas.keys().copied().collect();
    let mut d = Deparse::new(catalog, &all);
    for level in levels.iter().rev() {
        let entries = level.iter().map(|r| (r.name.clone(), column_names(r))).collect();
        d.levels.push(Level { prefix: level.len() > 1 || levels.len() > 1, entries });
    }
    d.expr(e);
    d.out
}

/// A query as canonical SQL on one line.
pub fn query(q: &Query, catalog: &CatalogSnapshot, path: &[Oid]) -> String {
    let mut d = Deparse::new(catalog, path);
    d.query(q, None);
    d.out
}

/// A query laid out over lines, as `pg_get_viewdef` shows it (without the semicolon).
pub fn pretty_query(q: &Query, catalog: &CatalogSnapshot, path: &[Oid]) -> String {
    let mut d = Deparse::new(catalog, path);
    d.pretty = true;
    d.out.push(' ');
    d.query(q, None);
    d.out
}

pub(crate) fn column_names(r: &RangeEntry) -> Vec<String> {
    r.columns.iter().map(|c| c.name.clone()).collect()
}

pub(crate) struct Level {
    /// Columns are written with their entry's name.
    pub prefix: bool,
    /// Name and column names of each entry.
    pub entries: Vec<(String, Vec<String>)>,
}

pub(crate) struct Deparse<'a> {
    pub out: String,
    pub catalog: &'a CatalogSnapshot,
    pub path: &'a [Oid],
    /// Query levels, innermost last.
    pub levels: Vec<Level>,
    /// Names of the CTEs of each level.
    pub ctes: Vec<Vec<String>>,
    pub pretty: bool,
    pub indent: usize,
}

impl<'a> Deparse<'a> {
    fn new(catalog: &'a CatalogSnapshot, path: &'a [Oid]) -> Self {
        Deparse {
            out: String::new(),
            catalog,
            path,
            levels: Vec::new(),
            ctes: Vec::new(),
            pretty: false,
            indent: 0,
        }
    }

    pub(crate) fn push(&mut self, s: &str) {
        self.out.push_str(s);
    }

    pub(crate) fn ident(&mut self, name: &str) {
        let quoted = quote_ident(name);
        self.out.push_str(&quoted);
    }

    pub(crate) fn list(&mut self, items: &[Expr]) {
        for (i, e) in items.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            self.expr(e);
        }
    }

    pub(crate) fn expr(&mut self, e: &Expr) {
        with_stack(0, || self.node(e));
    }

    fn node(&mut self, e: &Expr) {
        match e {
            Expr::Const { value, ty } => self.constant(value, *ty),
            Expr::Param { index, .. } => self.push(&format!("${index}")),
            Expr::Var(v) => self.var(v),
            Expr::Call { function, args, ty } => self.call(function, args, *ty),
            Expr::SetCall { function, args, .. } => self.plain_call(function, args),
            Expr::And(list) => self.junction(list, " AND "),
            Expr::Or(list) => self.junction(list, " OR "),
            Expr::Not(arg) => self.not(arg),
            Expr::Subquery(s) => self.sub_select(s),
            Expr::Aggregate(a) => self.aggregate(a),
            Expr::Window(w) => self.window(w),
            Expr::ApplyTypmod { arg, ty, .. } => self.cast(cast_argument(arg, ty.oid), *ty),
            Expr::CoerceViaText { arg, ty }
            | Expr::Relabel { arg, ty }
            | Expr::CoerceArray { arg, ty, .. } => self.cast(arg, *ty),
            Expr::SqlValue { what, precision, .. } => self.sql_value(*what, *precision),
            Expr::CaseOperand { .. } => self.push("CASE_TEST_EXPR"),
            Expr::Case { operand, arms, otherwise, ty } => {
                self.case(operand.as_deref(), arms, otherwise.as_deref(), *ty);
            }
            Expr::Collate { arg, collation } => {
                self.push("(");
                self.expr(arg);
                self.push(" COLLATE ");
                self.push(collation_name(*collation));
                self.push(")");
            }
            other => self.construct(other),
        }
    }

    /// Tests, comparisons, and what is made of several values.
    fn construct(&mut self, e: &Expr) {
        match e {
            Expr::IsNull { arg, negated } => {
                self.suffixed(arg, if *negated { " IS NOT NULL" } else { " IS NULL" });
            }
            Expr::IsBool { arg, test } => self.suffixed(arg, bool_test(*test)),
            Expr::Distinct { left, right, negated, .. } => {
                self.push(if *negated { "(NOT (" } else { "(" });
                self.expr(left);
                self.push(" IS DISTINCT FROM ");
                self.expr(right);
                self.push(if *negated { "))" } else { ")" });
            }
            Expr::Coalesce { args, .. } => self.keyword_call("COALESCE", args),
            Expr::MinMax { greatest, args, .. } => {
                self.keyword_call(if *greatest { "GREATEST" } else { "LEAST" }, args);
            }
            Expr::NullIf { left, right, .. } => {
                self.push("NULLIF(");
                self.expr(left);
                self.push(", ");
                self.expr(right);
                self.push(")");
            }
            Expr::ArrayCompare { left, array, function, all } => {
                self.quantified(left, function, *all, |d| d.expr(array));
            }
            Expr::InList { left, items, equal } => {
                self.quantified(left, equal, false, |d| d.array_items(items));
            }
            Expr::Array { items, ty, .. } => {
                self.array_items(items);
                if items.is_empty() {
                    self.cast_to(*ty);
                }
            }
            Expr::Subscript { array, index, .. } => self.subscript(array, index),
            Expr::Row { items, ty } => self.row(items, *ty),
            Expr::RowCompare { op, left, right, .. } => {
                self.push("(ROW(");
                self.list(left);
                self.push(row_operator(*op));
                self.list(right);
                self.push("))");
            }
            Expr::Field { arg, index, .. } => self.field(arg, *index),
            _ => {}
        }
    }

    // ----- Leaves.

    fn constant(&mut self, value: &Datum, ty: TypeRef) {
        if value.is_null() {
            self.push("NULL");
            if ty.oid != Oid::UNKNOWN {
                self.cast_to(ty);
            }
            return;
        }
        let text = self.value_text(value, ty.oid);
        match ty.oid {
            Oid::BOOL => self.push(if text.starts_with('t') { "true" } else { "false" }),
            Oid::INT4 if !text.starts_with('-') => self.push(&text),
            Oid::NUMERIC
                if text.starts_with(|c: char| c.is_ascii_digit())
                    && text.contains(['.', 'e', 'E']) =>
            {
                self.push(&text);
                if ty.typmod >= 0 {
                    self.cast_to(ty);
                }
            }
            _ => {
                self.literal(&text);
                if ty.oid != Oid::UNKNOWN {
                    self.cast_to(ty);
                }
            }
        }
    }

    fn value_text(&self, value: &Datum, oid: Oid) -> String {
        let named = match value {
            Datum::Oid(o) => self.object_name(oid, Oid(*o)),
            _ => None,
        };
        named.unwrap_or_else(|| {
            let mut out = Vec::new();
            let style = OutputStyle::default();
            types::text_out(value, oid, &style, &jiff::tz::TimeZone::UTC, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        })
    }

    /// What a reg* constant's output function would say.
    fn object_name(&self, ty: Oid, oid: Oid) -> Option<String> {
        match ty {
            // In the catalog by number: see catalog/stored_names.rs.
            Oid::REGCLASS if self.path == STORED_PATH && oid >= Oid::FIRST_USER => None,
            Oid::REGCLASS => self.relation_text(oid),
            Oid::REGTYPE => Some(self.type_text(TypeRef::plain(oid))),
            Oid::REGNAMESPACE => {
                self.catalog.schemas.get(&oid).map(|s| quote_ident(&s.name).into_owned())
            }
            Oid::REGROLE => self.catalog.roles.get(&oid).map(|r| quote_ident(&r.name).into_owned()),
            Oid::REGPROC => functions::by_oid(oid).map(|f| f.name.to_owned()),
            _ => None,
        }
    }

    /// A relation's name, qualified unless the path finds it.
    fn relation_text(&self, oid: Oid) -> Option<String> {
        let (schema, name) = match self.catalog.tables.get(&oid) {
            Some(t) => (t.schema, t.name.as_str()),
            None => {
                let index = self.catalog.indexes.get(&oid)?;
                (index.schema, index.name.as_str())
            }
        };
        if self.catalog.find_relation(self.path, name) == Some(oid) {
            return Some(quote_ident(name).into_owned());
        }
        let schema = self.catalog.schemas.get(&schema).map_or("pg_temp", |s| s.name.as_str());
        Some(format!("{}.{}", quote_ident(schema), quote_ident(name)))
    }

    pub(crate) fn relation(&mut self, oid: Oid) {
        let text = self.relation_text(oid).unwrap_or_else(|| oid.to_string());
        self.push(&text);
    }

    pub(crate) fn literal(&mut self, text: &str) {
        self.out.push_str(&plain_literal(text));
    }

    pub(crate) fn type_text(&self, ty: TypeRef) -> String {
        if types::info(ty.oid).is_none()
            && let Some(t) = self.catalog.tables.values().find(|t| t.row_type == ty.oid)
        {
            return self.relation_text(t.oid).unwrap_or_else(|| t.name.clone());
        }
        types::format_type(ty.oid, ty.typmod)
    }

    fn cast_to(&mut self, ty: TypeRef) {
        let text = self.type_text(ty);
        self.push("::");
        self.push(&text);
    }

    fn var(&mut self, v: &Var) {
        let level = self.levels.len().checked_sub(1 + usize::from(v.level));
        let found = level.and_then(|l| {
            let level = &self.levels[l];
            level.entries.get(usize::from(v.rte)).map(|e| (level.prefix || v.level > 0, e))
        });
        let Some((prefix, (name, columns))) = found else {
            self.push("?");
            return;
        };
        let column = match usize::try_from(v.col) {
            Ok(i) => columns.get(i).map_or("?", String::as_str),
            Err(_) => system_column_name(v.col),
        };
        let mut text = String::new();
        if prefix && !name.is_empty() {
            text.push_str(&quote_ident(name));
            text.push('.');
        }
        text.push_str(&quote_ident(column));
        self.push(&text);
    }

    fn sql_value(&mut self, what: SqlValue, precision: i32) {
        self.push(match what {
            SqlValue::CurrentDate => "CURRENT_DATE",
            SqlValue::CurrentTime => "CURRENT_TIME",
            SqlValue::CurrentTimestamp => "CURRENT_TIMESTAMP",
            SqlValue::LocalTime => "LOCALTIME",
            SqlValue::LocalTimestamp => "LOCALTIMESTAMP",
            SqlValue::CurrentUser => "CURRENT_USER",
            SqlValue::SessionUser => "SESSION_USER",
            SqlValue::CurrentCatalog => "CURRENT_CATALOG",
            SqlValue::CurrentSchema => "CURRENT_SCHEMA",
        });
        if precision >= 0 {
            self.push(&format!("({precision})"));
        }
    }

    // ----- Operators and calls.

    fn call(&mut self, function: &'static Builtin, args: &[Expr], ty: TypeRef) {
        if let Some(first) = args.first()
            && is_cast(function, first.ty().oid, ty.oid)
        {
            self.cast(first, ty);
            return;
        }
        match (function.name, args) {
            ("timezone", [zone, time]) => {
                self.push("(");
                self.expr(time);
                self.push(" AT TIME ZONE ");
                self.expr(zone);
                self.push(")");
                return;
            }
            ("extract", [Expr::Const { value: Datum::Text(field), .. }, from]) => {
                self.push("EXTRACT(");
                self.push(field);
                self.push(" FROM ");
                self.expr(from);
                self.push(")");
                return;
            }
            _ => {}
        }
        match operator_of(function, args.len()) {
            Some(op) => self.operator(op.name, args),
            None => self.plain_call(function, args),
        }
    }

    fn operator(&mut self, name: &str, args: &[Expr]) {
        self.push("(");
        match args {
            [l, r] => {
                self.expr(l);
                self.push(&format!(" {name} "));
                self.expr(r);
            }
            [r] => {
                self.push(&format!("{name} "));
                self.expr(r);
            }
            _ => self.list(args),
        }
        self.push(")");
    }

    pub(crate) fn function_name(&mut self, function: &Builtin) {
        if function.name.starts_with("_pg_") {
            self.push("information_schema.");
        }
        self.ident(function.name);
    }

    pub(crate) fn plain_call(&mut self, function: &Builtin, args: &[Expr]) {
        self.function_name(function);
        self.push("(");
        // A gathered variadic array is written as its items.
        if function.variadic
            && let Some((Expr::Array { items, nested: false, .. }, before)) = args.split_last()
            && !items.is_empty()
        {
            self.list(before);
            if !before.is_empty() {
                self.push(", ");
            }
            self.list(items);
        } else {
            let left_out = trailing_defaults(function, args);
            if function.variadic && function.args.last() != Some(&Oid::ANY) && !args.is_empty() {
                let (last, before) = args.split_at(args.len() - 1);
                self.list(last);
                self.push(if last.is_empty() { "VARIADIC " } else { ", VARIADIC " });
                self.list(before);
            } else {
                self.list(&args[..args.len() - left_out]);
            }
        }
        self.push(")");
    }

    fn keyword_call(&mut self, name: &str, args: &[Expr]) {
        self.push(name);
        self.push("(");
        self.list(args);
        self.push(")");
    }

    fn cast(&mut self, arg: &Expr, ty: TypeRef) {
        self.push("(");
        self.expr(arg);
        self.push(")");
        self.cast_to(ty);
    }

    fn junction(&mut self, list: &[Expr], word: &str) {
        if list.is_empty() {
            self.push(if word == " AND " { "true" } else { "false" });
            return;
        }
        self.push("(");
        for (i, e) in list.iter().enumerate() {
            if i > 0 {
                self.push(word);
            }
            self.expr(e);
        }
        self.push(")");
    }

    fn not(&mut self, arg: &Expr) {
        if let Expr::InList { left, items, equal } = arg
            && let Some(op) = operator_of(equal, 2)
            && let Some(negator) = op.negator
        {
            self.push("(");
            self.expr(left);
            self.push(&format!(" {negator} ALL ("));
            self.array_items(items);
            self.push("))");
            return;
        }
        self.push("(NOT ");
        self.expr(arg);
        self.push(")");
    }

    fn suffixed(&mut self, arg: &Expr, suffix: &str) {
        self.push("(");
        self.expr(arg);
        self.push(suffix);
        self.push(")");
    }

    fn quantified(
        &mut self,
        left: &Expr,
        function: &Builtin,
        all: bool,
        right: impl FnOnce(&mut Self),
    ) {
        let name = operator_of(function, 2).map_or("=", |o| o.name);
        self.push("(");
        self.expr(left);
        self.push(&format!(" {name} {} (", if all { "ALL" } else { "ANY" }));
        right(self);
        self.push("))");
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        arms: &[(Expr, Expr)],
        otherwise: Option<&Expr>,
        ty: TypeRef,
    ) {
        self.push("CASE");
        if let Some(o) = operand {
            self.push(" ");
            self.expr(o);
        }
        for (when, then) in arms {
            self.push(" WHEN ");
            match (operand, compared(when)) {
                (Some(_), Some(value)) => self.expr(value),
                _ => self.expr(when),
            }
            self.push(" THEN ");
            self.expr(then);
        }
        self.push(" ELSE ");
        match otherwise {
            Some(e) => self.expr(e),
            None => self.constant(&Datum::Null, TypeRef::plain(ty.oid)),
        }
        self.push(" END");
    }

    // ----- Arrays, rows, sub-selects.

    fn array_items(&mut self, items: &[Expr]) {
        self.push("ARRAY[");
        self.list(items);
        self.push("]");
    }

    fn subscript(&mut self, array: &Expr, index: &[SubscriptIndex]) {
        let simple = matches!(array, Expr::Var(_) | Expr::Field { .. });
        if !simple {
            self.push("(");
        }
        self.expr(array);
        if !simple {
            self.push(")");
        }
        for i in index {
            self.push("[");
            match i {
                SubscriptIndex::At(e) => self.expr(e),
                SubscriptIndex::Slice(a, b) => {
                    a.iter().for_each(|e| self.expr(e));
                    self.push(":");
                    b.iter().for_each(|e| self.expr(e));
                }
            }
            self.push("]");
        }
    }

    fn row(&mut self, items: &[Expr], ty: TypeRef) {
        self.push("ROW(");
        self.list(items);
        self.push(")");
        if ty.oid != Oid::RECORD {
            self.cast_to(ty);
        }
    }

    fn field(&mut self, arg: &Expr, index: usize) {
        let name = match arg {
            Expr::Call { function, .. } | Expr::SetCall { function, .. } => {
                function.columns.get(index).map(|c| c.0.to_owned())
            }
            other => {
                let oid = other.ty().oid;
                let table = self.catalog.tables.values().find(|t| t.row_type == oid);
                table.and_then(|t| t.live_columns().nth(index).map(|c| c.name.clone()))
            }
        };
        self.push("(");
        self.expr(arg);
        self.push(").");
        self.ident(&name.unwrap_or_else(|| format!("f{}", index + 1)));
    }

    fn sub_select(&mut self, s: &SubqueryExpr) {
        match &s.kind {
            SubqueryKind::Exists => {
                self.push("(EXISTS ( ");
                self.nested(&s.query);
                self.push("))");
            }
            SubqueryKind::Array => {
                self.push("ARRAY( ");
                self.nested(&s.query);
                self.push(")");
            }
            SubqueryKind::Scalar | SubqueryKind::Row => {
                self.push("( ");
                self.nested(&s.query);
                self.push(")");
            }
            SubqueryKind::Quantified { left, functions, all } => {
                let op = functions.first().and_then(|f| operator_of(f, 2));
                let name = op.map_or("=", |o| o.name);
                self.push("(");
                match left.as_slice() {
                    [one] => self.expr(one),
                    many => {
                        self.push("(");
                        self.list(many);
                        self.push(")");
                    }
                }
                match (name, *all) {
                    ("=", false) => self.push(" IN ( "),
                    (name, false) => self.push(&format!(" {name} ANY ( ")),
                    (name, true) => self.push(&format!(" {name} ALL ( ")),
                }
                self.nested(&s.query);
                self.push("))");
            }
        }
    }

    pub(crate) fn nested(&mut self, q: &Query) {
        self.indent += 8;
        self.query(q, None);
        self.indent -= 8;
    }

    fn aggregate(&mut self, a: &AggregateCall) {
        self.function_name(a.function);
        self.push("(");
        if a.distinct {
            self.push("DISTINCT ");
        }
        if a.args.is_empty() {
            self.push("*");
        } else {
            self.list(&a.args);
        }
        if !a.order_by.is_empty() {
            self.push(" ORDER BY ");
            self.sort_keys(&a.order_by);
        }
        self.push(")");
        self.filter(a.filter.as_ref());
    }

    fn filter(&mut self, filter: Option<&Expr>) {
        if let Some(f) = filter {
            self.push(" FILTER (WHERE ");
            self.expr(f);
            self.push(")");
        }
    }

    pub(crate) fn sort_keys(&mut self, keys: &[SortKey]) {
        for (i, k) in keys.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            self.expr(&k.expr);
            self.push(match (k.descending, k.nulls_first) {
                (false, false) => "",
                (false, true) => " NULLS FIRST",
                (true, true) => " DESC",
                (true, false) => " DESC NULLS LAST",
            });
        }
    }

    fn window(&mut self, w: &WindowCall) {
        self.function_name(w.function);
        self.push("(");
        if w.args.is_empty() && w.function.is_aggregate() {
            self.push("*");
        }
        self.list(&w.args);
        self.push(")");
        self.filter(w.filter.as_ref());
        self.push(" OVER (");
        let mut gap = "";
        if !w.partition_by.is_empty() {
            self.push("PARTITION BY ");
            self.list(&w.partition_by);
            gap = " ";
        }
        if !w.order_by.is_empty() {
            self.push(gap);
            self.push("ORDER BY ");
            self.sort_keys(&w.order_by);
            gap = " ";
        }
        if let Some(f) = &w.frame {
            self.push(gap);
            self.push(match f.mode {
                FrameMode::Range => "RANGE BETWEEN ",
                FrameMode::Rows => "ROWS BETWEEN ",
                FrameMode::Groups => "GROUPS BETWEEN ",
            });
            self.frame_bound(&f.start);
            self.push(" AND ");
            self.frame_bound(&f.end);
            self.push(match f.exclude {
                FrameExclusion::NoOthers => "",
                FrameExclusion::CurrentRow => " EXCLUDE CURRENT ROW",
                FrameExclusion::Group => " EXCLUDE GROUP",
                FrameExclusion::Ties => " EXCLUDE TIES",
            });
        }
        self.push(")");
    }

    fn frame_bound(&mut self, b: &FrameBound) {
        match b {
            FrameBound::UnboundedPreceding => self.push("UNBOUNDED PRECEDING"),
            FrameBound::UnboundedFollowing => self.push("UNBOUNDED FOLLOWING"),
            FrameBound::CurrentRow => self.push("CURRENT ROW"),
            FrameBound::Preceding(e) => {
                self.expr(cast_argument(e, Oid::INT8));
                self.push(" PRECEDING");
            }
            FrameBound::Following(e) => {
                self.expr(cast_argument(e, Oid::INT8));
                self.push(" FOLLOWING");
            }
        }
    }
}

fn bool_test(t: BoolTest) -> &'static str {
    match t {
        BoolTest::True => " IS TRUE",
        BoolTest::NotTrue => " IS NOT TRUE",
        BoolTest::False => " IS FALSE",
        BoolTest::NotFalse => " IS NOT FALSE",
        BoolTest::Unknown => " IS UNKNOWN",
        BoolTest::NotUnknown => " IS NOT UNKNOWN",
    }
}

fn row_operator(op: RowCompareOp) -> &'static str {
    match op {
        RowCompareOp::Eq => ") = ROW(",
        RowCompareOp::Ne => ") <> ROW(",
        RowCompareOp::Lt => ") < ROW(",
        RowCompareOp::Le => ") <= ROW(",
        RowCompareOp::Gt => ") > ROW(",
        RowCompareOp::Ge => ") >= ROW(",
    }
}

/// What a CASE operand is compared with in an arm.
fn compared(when: &Expr) -> Option<&Expr> {
    fn is_operand(e: &Expr) -> bool {
        match e {
            Expr::CaseOperand { .. } => true,
            Expr::Relabel { arg, .. } | Expr::CoerceViaText { arg, .. } => is_operand(arg),
            Expr::Call { args, .. } => matches!(args.as_slice(), [one] if is_operand(one)),
            _ => false,
        }
    }
    match when {
        Expr::Call { args, .. } => match args.as_slice() {
            [l, r] if is_operand(l) => Some(r),
            _ => None,
        },
        _ => None,
    }
}

/// Left-out optional arguments at the end, which are NULL constants.
fn trailing_defaults(function: &Builtin, args: &[Expr]) -> usize {
    let null = |e: &&Expr| matches!(e, Expr::Const { value: Datum::Null, .. });
    args.iter().rev().take(usize::from(function.optional)).take_while(null).count()
}

/// What a cast to a type converts, where the cast goes without saying.
pub(crate) fn cast_argument(e: &Expr, target: Oid) -> &Expr {
    if e.ty().oid != target {
        return e;
    }
    match e {
        Expr::Relabel { arg, .. } | Expr::CoerceViaText { arg, .. } => arg,
        Expr::Call { function, args, ty } => match args.first() {
            Some(first) if is_cast(function, first.ty().oid, ty.oid) => first,
            _ => e,
        },
        _ => e,
    }
}

fn is_cast(function: &Builtin, source: Oid, target: Oid) -> bool {
    matches!(
        functions::find_cast(source, target).map(|c| &c.how),
        Some(CastHow::Function(f)) if f.oid == function.oid
    )
}

/// Operators by the function behind them.
static BY_FUNCTION: LazyLock<HashMap<(Oid, usize), &'static Operator, FixedState>> =
    LazyLock::new(|| {
        let mut map = HashMap::default();
        for op in functions::all_operators() {
            let arity = 1 + usize::from(op.left.is_some());
            map.entry((op.function.oid, arity)).or_insert(op);
        }
        map
    });

/// The operator that a call of this function is written as.
pub(crate) fn operator_of(function: &Builtin, arity: usize) -> Option<&'static Operator> {
    // Functions that users call by name although an operator stands for them too.
    if matches!(function.name, "starts_with" | "abs") {
        return None;
    }
    BY_FUNCTION.get(&(function.oid, arity)).copied()
}

fn collation_name(oid: Oid) -> &'static str {
    match oid {
        Oid::C_COLLATION => "\"C\"",
        Oid(951) => "\"POSIX\"",
        Oid(12547) => "ucs_basic",
        _ => "\"default\"",
    }
}
