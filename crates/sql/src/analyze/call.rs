//! Function calls: plain, set-returning, aggregate, window; and casts written as calls.

use super::bound::*;
use super::node::{self, Node, need, some};
use super::resolve::{Found, Resolved};
use super::scope::{Binder, Clause};
use super::walk;
use crate::error::{Result, SqlError, State};
use crate::functions::{self, Builtin};
use crate::types::{Oid, TypeRef};
use pg_query::protobuf::{self, FuncCall, SortByDir, SortByNulls, WindowDef};

/// A call with its function found and its arguments converted.
pub(crate) struct BoundCall {
    pub found: Resolved,
    pub args: Vec<Expr>,
}

pub(crate) enum CallOrCast {
    Call(BoundCall),
    Cast(Expr),
}

const SET_HINT: &str =
    "You might be able to move the set-returning function into a LATERAL FROM item.";

impl Binder<'_> {
    pub(crate) fn func_call(&mut self, f: &FuncCall) -> Result<Expr> {
        let call = match self.bind_call(f)? {
            CallOrCast::Cast(e) => return Ok(e),
            CallOrCast::Call(call) => call,
        };
        let function = call.found.function;
        let ty = TypeRef::plain(call.found.result);
        let name = function.name;
        if f.over.is_some() {
            return self.window_call(f, call);
        }
        if function.is_aggregate() {
            return self.aggregate_call(f, call);
        }
        if function.is_window() {
            let message = format!("window function {name} requires an OVER clause");
            return Err(self.error(State::WRONG_OBJECT_TYPE, message, f.location));
        }
        let args = call.args;
        if function.is_set() {
            self.check_set_allowed(f.location)?;
            return Ok(Expr::SetCall { function, args, ty });
        }
        Ok(Expr::Call { function, args, ty })
    }

    fn check_set_allowed(&self, location: i32) -> Result<()> {
        let nested = self.scopes.len().checked_sub(1);
        if nested.is_some_and(|s| self.in_aggregate.contains(&s)) {
            let message = "aggregate function calls cannot contain set-returning function calls";
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, location).hint(SET_HINT));
        }
        match self.clause.refuses_sets() {
            None => Ok(()),
            Some(place) => {
                let message = format!("set-returning functions are not allowed in {place}");
                Err(self.error(State::FEATURE_NOT_SUPPORTED, message, location))
            }
        }
    }

    /// Finds the function and converts the arguments; what kind of function it is, is the
    /// caller's business.
    pub(crate) fn bind_call(&mut self, f: &FuncCall) -> Result<CallOrCast> {
        let names = node::names(&f.funcname);
        let (schema, name) = node::qualified(&names);
        self.refuse_call_options(f, name)?;
        let searched = self.function_schema(schema, name, f.location)?;
        let aggregate = searched && functions::lookup(name).iter().any(|b| b.is_aggregate());
        let scope = self.scopes.len().checked_sub(1);
        let track = scope.filter(|_| aggregate && f.over.is_none());
        if let Some(s) = track {
            if self.in_aggregate.contains(&s) {
                let message = "aggregate function calls cannot be nested";
                return Err(self.error(State::GROUPING_ERROR, message, f.location));
            }
            self.in_aggregate.push(s);
        }
        let window = scope.filter(|_| f.over.is_some());
        if let Some(s) = window {
            if self.in_window.contains(&s) {
                let message = "window function calls cannot be nested";
                return Err(self.error(State::WINDOWING_ERROR, message, f.location));
            }
            self.in_window.push(s);
        }
        let bound = self.call_args(f);
        if track.is_some() {
            self.in_aggregate.pop();
        }
        if window.is_some() {
            self.in_window.pop();
        }
        let (given, locations) = bound?;
        let actual: Vec<Oid> = given.iter().map(|e| e.ty().oid).collect();
        let shown = names.join(".");
        let found = match searched {
            true => self.find_function(name, &actual, f.func_variadic, f.location)?,
            false => None,
        };
        match found {
            Some(Found::Cast(target)) => {
                self.refuse_plain_decoration(f, name)?;
                let arg = given.into_iter().next().ok_or_else(node::missing)?;
                let at = locations.first().copied().unwrap_or(-1);
                let target = TypeRef::plain(target);
                Ok(CallOrCast::Cast(self.cast(arg, target, at, f.location)?))
            }
            Some(Found::Function(found)) => {
                self.check_decoration(f, found.function)?;
                let args = self.function_args(&found, given, &locations)?;
                Ok(CallOrCast::Call(BoundCall { found, args }))
            }
            None => Err(self.no_function(&shown, &actual, f.location)),
        }
    }

    fn call_args(&mut self, f: &FuncCall) -> Result<(Vec<Expr>, Vec<i32>)> {
        let mut given = Vec::with_capacity(f.args.len());
        let mut locations = Vec::with_capacity(f.args.len());
        for n in node::each(&f.args) {
            given.push(self.expr(n)?);
            locations.push(node::location(n));
        }
        Ok((given, locations))
    }

    fn refuse_call_options(&self, f: &FuncCall, name: &str) -> Result<()> {
        if f.agg_within_group {
            let what = format!("WITHIN GROUP (aggregate {name})");
            return Err(self.unsupported(&what, f.location));
        }
        if f.args.len() > 100 {
            let message = "cannot pass more than 100 arguments to a function";
            return Err(self.error(State::TOO_MANY_ARGUMENTS, message, f.location));
        }
        Ok(())
    }

    /// Whether built-in functions answer to this schema.
    fn function_schema(&self, schema: Option<&str>, name: &str, location: i32) -> Result<bool> {
        match schema {
            None => Ok(true),
            Some("pg_catalog") => Ok(true),
            Some("information_schema") => Ok(name.starts_with("_pg_")),
            Some(other) => match self.schema_oid(other, location)? {
                Some(_) => Ok(false),
                None => {
                    let message = format!("schema \"{other}\" does not exist");
                    Err(self.error(State::INVALID_SCHEMA_NAME, message, location))
                }
            },
        }
    }

    fn no_function(&self, name: &str, actual: &[Oid], location: i32) -> SqlError {
        let message = format!("function {} does not exist", self.call_text(name, actual));
        self.error(State::UNDEFINED_FUNCTION, message, location).hint(
            "No function matches the given name and argument types. You might need to add \
             explicit type casts.",
        )
    }

    /// DISTINCT, ORDER BY, FILTER, OVER and `*` belong to aggregates and window functions.
    fn check_decoration(&self, f: &FuncCall, function: &Builtin) -> Result<()> {
        let name = function.name;
        let wrong = |m: String| Err(self.error(State::WRONG_OBJECT_TYPE, m, f.location));
        if function.is_aggregate() {
            if f.args.is_empty() && !f.agg_star && function.args.is_empty() {
                return wrong(format!(
                    "{name}(*) must be used to call a parameterless aggregate function"
                ));
            }
            return Ok(());
        }
        if f.over.is_some() && !function.is_window() {
            return wrong(format!(
                "OVER specified, but {name} is not a window function nor an aggregate function"
            ));
        }
        self.refuse_plain_decoration(f, name)
    }

    fn refuse_plain_decoration(&self, f: &FuncCall, name: &str) -> Result<()> {
        let what = if f.agg_star {
            return Err(self.error(
                State::WRONG_OBJECT_TYPE,
                format!("{name}(*) specified, but {name} is not an aggregate function"),
                f.location,
            ));
        } else if f.agg_distinct {
            "DISTINCT"
        } else if !f.agg_order.is_empty() {
            "ORDER BY"
        } else if f.agg_filter.is_some() {
            "FILTER"
        } else {
            return Ok(());
        };
        let message = format!("{what} specified, but {name} is not an aggregate function");
        Err(self.error(State::WRONG_OBJECT_TYPE, message, f.location))
    }

    // ----- Aggregates.

    fn aggregate_call(&mut self, f: &FuncCall, call: BoundCall) -> Result<Expr> {
        if let Some(place) = self.clause.refuses_aggregates() {
            let message = format!("aggregate functions are not allowed in {place}");
            return Err(self.error(State::GROUPING_ERROR, message, f.location));
        }
        let scope = self.scopes.len() - 1;
        self.in_aggregate.push(scope);
        let rest = self.aggregate_rest(f);
        self.in_aggregate.pop();
        let (order_by, filter) = rest?;
        let ty = TypeRef::plain(call.found.result);
        let function = call.found.function;
        if f.agg_distinct {
            self.check_distinct_aggregate(f, &call, &order_by)?;
        }
        let aggregate = AggregateCall {
            function,
            args: call.args,
            distinct: f.agg_distinct,
            order_by,
            filter,
            ty,
        };
        if aggregate.args.iter().any(walk::has_window) {
            let message = "aggregate function calls cannot contain window function calls";
            return Err(self.error(State::GROUPING_ERROR, message, f.location));
        }
        let e = Expr::Aggregate(Box::new(aggregate));
        if walk::lowest_level(&e).is_some_and(|l| l > 0) {
            let what = "an aggregate over an outer query's columns";
            return Err(self.unsupported(what, f.location));
        }
        self.scopes[scope].aggregates = true;
        Ok(e)
    }

    fn aggregate_rest(&mut self, f: &FuncCall) -> Result<(Vec<SortKey>, Option<Expr>)> {
        let mut order_by = Vec::with_capacity(f.agg_order.len());
        for n in node::each(&f.agg_order) {
            let Node::SortBy(s) = n else { return Err(node::missing()) };
            let key = need(&s.node)?;
            let e = self.typed_expr(key)?;
            order_by.push(self.sort_key(e, s, node::location(key))?);
        }
        let filter = match some(&f.agg_filter) {
            Some(n) => Some(self.condition(n, Clause::Filter)?),
            None => None,
        };
        Ok((order_by, filter))
    }

    fn check_distinct_aggregate(
        &self,
        f: &FuncCall,
        call: &BoundCall,
        order_by: &[SortKey],
    ) -> Result<()> {
        if call.args.is_empty() {
            let message = "DISTINCT is not allowed for parameterless aggregates";
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, f.location));
        }
        for arg in &call.args {
            self.need_equality(arg.ty().oid, f.location)?;
        }
        if order_by.iter().any(|k| !call.args.contains(&k.expr)) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in \
                           argument list";
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, f.location));
        }
        Ok(())
    }

    pub(crate) fn need_equality(&self, oid: Oid, location: i32) -> Result<()> {
        if functions::equality(oid).is_some() {
            return Ok(());
        }
        let name = self.type_text(oid);
        let message = format!("could not identify an equality operator for type {name}");
        Err(self.error(State::UNDEFINED_FUNCTION, message, location))
    }

    /// A sort key from an expression that has a type.
    pub(crate) fn sort_key(
        &mut self,
        e: Expr,
        s: &protobuf::SortBy,
        location: i32,
    ) -> Result<SortKey> {
        let descending = match s.sortby_dir() {
            SortByDir::SortbyDesc => true,
            SortByDir::SortbyUsing => match self.operator_name(&s.use_op, s.location)?.as_str() {
                "<" => false,
                ">" => true,
                other => {
                    let message = format!("operator {other} is not a valid ordering operator");
                    return Err(self.error(State::WRONG_OBJECT_TYPE, message, s.location).hint(
                        "Ordering operators must be \"<\" or \">\" members of btree operator \
                             families.",
                    ));
                }
            },
            _ => false,
        };
        let oid = e.ty().oid;
        if functions::less(oid).is_none() {
            let name = self.type_text(oid);
            let message = format!("could not identify an ordering operator for type {name}");
            return Err(self
                .error(State::UNDEFINED_FUNCTION, message, location)
                .hint("Use an explicit ordering operator or modify the query."));
        }
        let nulls_first = match s.sortby_nulls() {
            SortByNulls::SortbyNullsFirst => true,
            SortByNulls::SortbyNullsLast => false,
            _ => descending,
        };
        Ok(SortKey { expr: e, descending, nulls_first })
    }

    // ----- Window functions.

    fn window_call(&mut self, f: &FuncCall, call: BoundCall) -> Result<Expr> {
        let function = call.found.function;
        if !function.is_window() && !function.is_aggregate() {
            return Err(node::missing());
        }
        if let Some(place) = self.clause.refuses_windows() {
            let message = format!("window functions are not allowed in {place}");
            return Err(self.error(State::WINDOWING_ERROR, message, f.location));
        }
        if self.in_aggregate.contains(&(self.scopes.len() - 1)) {
            let message = "aggregate function calls cannot contain window function calls";
            return Err(self.error(State::GROUPING_ERROR, message, f.location));
        }
        let refused =
            |what: &str| Err(self.error(State::FEATURE_NOT_SUPPORTED, what.to_owned(), f.location));
        if f.agg_distinct {
            return refused("DISTINCT is not implemented for window functions");
        }
        if !f.agg_order.is_empty() {
            return refused("aggregate ORDER BY is not implemented for window functions");
        }
        if f.agg_filter.is_some() && !function.is_aggregate() {
            return refused("FILTER is not implemented for non-aggregate window functions");
        }
        let filter = match some(&f.agg_filter) {
            Some(n) => Some(self.condition(n, Clause::Filter)?),
            None => None,
        };
        let over = f.over.as_deref().ok_or_else(node::missing)?;
        let scope = self.scopes.len() - 1;
        self.in_window.push(scope);
        let window = self.window_definition(over, 0);
        self.in_window.pop();
        let window = window?;
        Ok(Expr::Window(Box::new(WindowCall {
            function,
            args: call.args,
            partition_by: window.partition_by,
            order_by: window.order_by,
            filter,
            frame: window.frame,
            ty: TypeRef::plain(call.found.result),
        })))
    }

    fn named_window(&self, name: &str, location: i32) -> Result<WindowDef> {
        let scope = self.scopes.last();
        let found = scope.and_then(|s| s.windows.iter().find(|w| w.0 == name));
        found.map(|w| w.1.clone()).ok_or_else(|| {
            let message = format!("window \"{name}\" does not exist");
            self.error(State::UNDEFINED_OBJECT, message, location)
        })
    }

    fn window_definition(&mut self, w: &WindowDef, depth: usize) -> Result<BoundWindow> {
        if depth > 64 {
            return Err(super::parse::too_deep());
        }
        // OVER name.
        if !w.name.is_empty() && w.refname.is_empty() && w.partition_clause.is_empty() && depth == 0
        {
            let named = self.named_window(&w.name, w.location)?;
            return self.window_definition(&named, depth + 1);
        }
        let base = if w.refname.is_empty() {
            None
        } else {
            let named = self.named_window(&w.refname, w.location)?;
            Some(self.window_definition(&named, depth + 1)?)
        };
        let mut partition_by = Vec::new();
        for n in node::each(&w.partition_clause) {
            let e = self.in_clause(Clause::WindowPartition, |b| b.typed_expr(n))?;
            self.need_equality(e.ty().oid, node::location(n))?;
            partition_by.push(e);
        }
        let mut order_by = Vec::new();
        for n in node::each(&w.order_clause) {
            let Node::SortBy(s) = n else { return Err(node::missing()) };
            let key = need(&s.node)?;
            let e = self.in_clause(Clause::WindowOrder, |b| b.typed_expr(key))?;
            order_by.push(self.sort_key(e, s, node::location(key))?);
        }
        if let Some(base) = base {
            let name = &w.refname;
            let refuse = |what: String| Err(self.error(State::WINDOWING_ERROR, what, w.location));
            if !partition_by.is_empty() {
                return refuse(format!("cannot override PARTITION BY clause of window \"{name}\""));
            }
            if !order_by.is_empty() && !base.order_by.is_empty() {
                return refuse(format!("cannot override ORDER BY clause of window \"{name}\""));
            }
            if base.frame.is_some() {
                return refuse(format!(
                    "cannot copy window \"{name}\" because it has a frame clause"
                ));
            }
            partition_by = base.partition_by;
            if order_by.is_empty() {
                order_by = base.order_by;
            }
        }
        let frame = self.window_frame(w)?;
        Ok(BoundWindow { partition_by, order_by, frame })
    }

    fn window_frame(&mut self, w: &WindowDef) -> Result<Option<WindowFrame>> {
        let has = |bit: i32| w.frame_options & bit != 0;
        if !has(0x1) {
            return Ok(None);
        }
        let mode = if has(0x4) {
            FrameMode::Rows
        } else if has(0x8) {
            FrameMode::Groups
        } else {
            FrameMode::Range
        };
        let start = self.frame_offset(some(&w.start_offset), mode)?;
        let end = self.frame_offset(some(&w.end_offset), mode)?;
        let bound = |shift: i32, offset: Option<Expr>| match offset {
            Some(e) if has(0x800 << shift) => FrameBound::Preceding(e),
            Some(e) => FrameBound::Following(e),
            None if has(0x20 << shift) => FrameBound::UnboundedPreceding,
            None if has(0x80 << shift) => FrameBound::UnboundedFollowing,
            None => FrameBound::CurrentRow,
        };
        let exclude = if has(0x8000) {
            FrameExclusion::CurrentRow
        } else if has(0x10000) {
            FrameExclusion::Group
        } else if has(0x20000) {
            FrameExclusion::Ties
        } else {
            FrameExclusion::NoOthers
        };
        Ok(Some(WindowFrame { mode, start: bound(0, start), end: bound(1, end), exclude }))
    }

    fn frame_offset(&mut self, n: Option<&Node>, mode: FrameMode) -> Result<Option<Expr>> {
        let Some(n) = n else { return Ok(None) };
        let location = node::location(n);
        let place = match mode {
            FrameMode::Rows => "ROWS",
            FrameMode::Groups => "GROUPS",
            FrameMode::Range => {
                return Err(self.unsupported("RANGE with an offset", location));
            }
        };
        let e = self.in_clause(Clause::WindowFrame, |b| b.expr(n))?;
        if walk::has_own_vars(&e) {
            let message = format!("argument of {place} must not contain variables");
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, location));
        }
        Ok(Some(self.coerce_specific(e, Oid::INT8, place, location)?))
    }
}

struct BoundWindow {
    partition_by: Vec<Expr>,
    order_by: Vec<SortKey>,
    frame: Option<WindowFrame>,
}
