//! Expressions: from grammar nodes to typed, resolved ones.
//!
//! One function a node kind; operators and comparisons are in `operator.rs`, function calls in
//! `call.rs`, sub-selects in `sublink.rs`. A literal keeps type `unknown` until its context gives
//! it one; whoever consumes an expression resolves what is left (to text, mostly).

use super::bound::*;
use super::coerce::array_element;
use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause, NsItem, null};
use super::walk;
use crate::error::{Result, SqlError, State};
use crate::functions::CastContext;
use crate::types::{self, Datum, Oid, TypeRef};
use pg_query::protobuf::{self, BoolExprType, BoolTestType, NullTestType, SqlValueFunctionOp};

impl Binder<'_> {
    /// Binds an expression; unknown literals stay unknown.
    pub(crate) fn expr(&mut self, n: &Node) -> Result<Expr> {
        self.deeper(|b| b.expr_node(n))
    }

    fn expr_node(&mut self, n: &Node) -> Result<Expr> {
        match n {
            Node::ColumnRef(c) => self.column_ref(c),
            Node::AConst(c) => self.constant(c),
            Node::ParamRef(p) => self.parameter(p.number, p.location),
            Node::AExpr(e) => self.operator_expr(e),
            Node::BoolExpr(e) => self.bool_expr(e),
            Node::FuncCall(f) => self.func_call(f),
            Node::TypeCast(c) => self.type_cast(c),
            Node::SubLink(s) => self.sub_link(s),
            Node::CaseExpr(c) => self.case(c),
            Node::CoalesceExpr(c) => self.coalesce(c),
            Node::MinMaxExpr(m) => self.min_max(m),
            Node::NullTest(t) => self.null_test(t),
            Node::BooleanTest(t) => self.boolean_test(t),
            Node::AArrayExpr(a) => self.array(a, None),
            Node::AIndirection(i) => self.indirection(i),
            Node::RowExpr(r) => self.row(r),
            Node::SqlvalueFunction(f) => self.sql_value(f),
            Node::CollateClause(c) => self.collate(c),
            other => Err(self.refuse_expr(other)),
        }
    }

    fn refuse_expr(&self, n: &Node) -> SqlError {
        let location = node::location(n);
        let what = match n {
            Node::SetToDefault(_) => {
                let message = "DEFAULT is not allowed in this context";
                return self.error(State::SYNTAX_ERROR, message, location);
            }
            Node::CurrentOfExpr(_) => "WHERE CURRENT OF",
            Node::GroupingFunc(_) => "GROUPING",
            Node::NamedArgExpr(_) => "passing function arguments by name",
            Node::XmlExpr(_) | Node::XmlSerialize(_) => "XML",
            Node::MergeSupportFunc(_) => "MERGE_ACTION",
            Node::JsonObjectConstructor(_)
            | Node::JsonArrayConstructor(_)
            | Node::JsonArrayQueryConstructor(_)
            | Node::JsonObjectAgg(_)
            | Node::JsonArrayAgg(_)
            | Node::JsonFuncExpr(_)
            | Node::JsonParseExpr(_)
            | Node::JsonScalarExpr(_)
            | Node::JsonSerializeExpr(_)
            | Node::JsonIsPredicate(_) => "SQL/JSON",
            Node::MultiAssignRef(_) => "multiple assignment here",
            _ => "this kind of expression",
        };
        self.unsupported(what, location)
    }

    /// An expression with a type: unknown literals become text.
    pub(crate) fn typed_expr(&mut self, n: &Node) -> Result<Expr> {
        let e = self.expr(n)?;
        self.resolve_unknown(e, node::location(n))
    }

    pub(crate) fn resolve_unknown(&mut self, e: Expr, location: i32) -> Result<Expr> {
        if e.ty().oid != Oid::UNKNOWN {
            return Ok(e);
        }
        self.coerce(e, TypeRef::plain(Oid::TEXT), CastContext::Implicit, location)
    }

    /// A condition.
    pub(crate) fn condition(&mut self, n: &Node, clause: Clause) -> Result<Expr> {
        self.in_clause(clause, |b| {
            let e = b.expr(n)?;
            let place = match clause {
                Clause::JoinOn => "JOIN/ON",
                other => other.place(),
            };
            b.coerce_boolean(e, place, node::location(n))
        })
    }

    // ----- Columns.

    pub(crate) fn column_ref(&mut self, c: &protobuf::ColumnRef) -> Result<Expr> {
        if self.clause == Clause::ColumnDefault {
            return Err(self.error(
                State::FEATURE_NOT_SUPPORTED,
                "cannot use column reference in DEFAULT expression",
                c.location,
            ));
        }
        let names = node::names(&c.fields);
        let star = matches!(node::each(&c.fields).last(), Some(Node::AStar(_)));
        if star {
            let (scope, item) = self.named_item(&names, c.location)?;
            return Ok(self.whole_row(scope, &item, c.location));
        }
        match names.as_slice() {
            [name] => self.plain_column(name, c.location),
            [.., _, _] if names.len() <= 4 => {
                let (column, table) = (names[names.len() - 1], &names[..names.len() - 1]);
                self.table_column(table, column, c.location)
            }
            _ => {
                let message =
                    format!("improper qualified name (too many dotted names): {}", names.join("."));
                Err(self.error(State::SYNTAX_ERROR, message, c.location))
            }
        }
    }

    fn plain_column(&mut self, name: &str, location: i32) -> Result<Expr> {
        if let Some(e) = self.find_column(name, location)? {
            return Ok(e);
        }
        // A relation's name alone is its row.
        if let Some((scope, item)) = self.find_item(None, name, location)? {
            return Ok(self.whole_row(scope, &item, location));
        }
        Err(self.missing_column(None, name, location))
    }

    /// The FROM item that `[[database.]schema.]table` means.
    pub(crate) fn named_item(&mut self, table: &[&str], location: i32) -> Result<(usize, NsItem)> {
        let (schema, name) = node::qualified(table);
        self.find_item(schema, name, location)?.ok_or_else(|| self.missing_from(name, location))
    }

    fn table_column(&mut self, table: &[&str], column: &str, location: i32) -> Result<Expr> {
        let (scope, item) = self.named_item(table, location)?;
        match self.qualified_column(scope, &item, column, location)? {
            Some(e) => Ok(e),
            None => {
                let shown = table[table.len() - 1];
                Err(self.missing_column(Some(shown), column, location))
            }
        }
    }

    // ----- Constants.

    pub(crate) fn constant(&mut self, c: &protobuf::AConst) -> Result<Expr> {
        use protobuf::a_const::Val;
        let constant = |value, oid| Ok(Expr::Const { value, ty: TypeRef::plain(oid) });
        match c.val.as_ref() {
            None => constant(Datum::Null, Oid::UNKNOWN),
            Some(Val::Ival(i)) => constant(Datum::Int4(i.ival), Oid::INT4),
            Some(Val::Boolval(b)) => constant(Datum::Bool(b.boolval), Oid::BOOL),
            Some(Val::Sval(s)) => constant(Datum::text(s.sval.as_str()), Oid::UNKNOWN),
            Some(Val::Fval(f)) => self.number(&f.fval, c.location),
            Some(Val::Bsval(_)) => Err(self.unsupported("type bit", c.location)),
        }
    }

    /// A number that the grammar did not take for a four-byte integer.
    fn number(&mut self, text: &str, location: i32) -> Result<Expr> {
        if let Ok(v) = text.parse::<i64>() {
            let (value, oid) = match i32::try_from(v) {
                Ok(v) => (Datum::Int4(v), Oid::INT4),
                Err(_) => (Datum::Int8(v), Oid::INT8),
            };
            return Ok(Expr::Const { value, ty: TypeRef::plain(oid) });
        }
        let ty = TypeRef::plain(Oid::NUMERIC);
        Ok(Expr::Const { value: self.literal(ty, text, location)?, ty })
    }

    fn type_cast(&mut self, c: &protobuf::TypeCast) -> Result<Expr> {
        let name = c.type_name.as_ref().ok_or_else(node::missing)?;
        let target = self.type_name(name)?;
        let arg = need(&c.arg)?;
        let location = if c.location >= 0 { c.location } else { name.location };
        let e = match arg {
            Node::AArrayExpr(a) if types::info(target.oid).is_some_and(|t| t.is_array()) => {
                self.array(a, Some(target))?
            }
            other => self.expr(other)?,
        };
        self.cast(e, target, node::location(arg), location)
    }

    /// An explicit cast. Literals report errors at their own place.
    pub(crate) fn cast(
        &mut self,
        e: Expr,
        target: TypeRef,
        argument: i32,
        location: i32,
    ) -> Result<Expr> {
        let from = e.ty().oid;
        match self.try_coerce(e, target, CastContext::Explicit, argument)? {
            Some(e) => Ok(e),
            None => Err(self.cannot_cast(from, target.oid, location)),
        }
    }

    // ----- Boolean.

    fn bool_expr(&mut self, e: &protobuf::BoolExpr) -> Result<Expr> {
        let place = match e.boolop() {
            BoolExprType::AndExpr => "AND",
            BoolExprType::OrExpr => "OR",
            _ => "NOT",
        };
        let mut args = Vec::with_capacity(e.args.len());
        for n in node::each(&e.args) {
            let arg = self.expr(n)?;
            args.push(self.coerce_boolean(arg, place, node::location(n))?);
        }
        Ok(match e.boolop() {
            BoolExprType::AndExpr => Expr::And(args),
            BoolExprType::OrExpr => Expr::Or(args),
            _ => Expr::Not(Box::new(args.pop().ok_or_else(node::missing)?)),
        })
    }

    fn null_test(&mut self, t: &protobuf::NullTest) -> Result<Expr> {
        let arg = self.expr(need(&t.arg)?)?;
        let negated = t.nulltesttype() == NullTestType::IsNotNull;
        // A row is (not) null when each of its fields is.
        if let Expr::Row { items, .. } = arg {
            let test = |arg| Expr::IsNull { arg: Box::new(arg), negated };
            return Ok(Expr::And(items.into_iter().map(test).collect()));
        }
        Ok(Expr::IsNull { arg: Box::new(arg), negated })
    }

    fn boolean_test(&mut self, t: &protobuf::BooleanTest) -> Result<Expr> {
        let (test, place) = match t.booltesttype() {
            BoolTestType::IsTrue => (BoolTest::True, "IS TRUE"),
            BoolTestType::IsNotTrue => (BoolTest::NotTrue, "IS NOT TRUE"),
            BoolTestType::IsFalse => (BoolTest::False, "IS FALSE"),
            BoolTestType::IsNotFalse => (BoolTest::NotFalse, "IS NOT FALSE"),
            BoolTestType::IsNotUnknown => (BoolTest::NotUnknown, "IS NOT UNKNOWN"),
            _ => (BoolTest::Unknown, "IS UNKNOWN"),
        };
        let n = need(&t.arg)?;
        let arg = self.expr(n)?;
        let arg = Box::new(self.coerce_boolean(arg, place, node::location(n))?);
        Ok(Expr::IsBool { arg, test })
    }

    // ----- Conditional.

    fn case(&mut self, c: &protobuf::CaseExpr) -> Result<Expr> {
        let operand = match some(&c.arg) {
            Some(n) => Some(self.typed_expr(n)?),
            None => None,
        };
        let mut whens = Vec::with_capacity(c.args.len());
        let mut results = Vec::with_capacity(c.args.len() + 1);
        results.push(match some(&c.defresult) {
            Some(n) => (self.expr(n)?, node::location(n)),
            None => (null(Oid::UNKNOWN), -1),
        });
        for n in node::each(&c.args) {
            let Node::CaseWhen(w) = n else { return Err(node::missing()) };
            let when = need(&w.expr)?;
            let cond = match &operand {
                Some(o) => {
                    let left = (Expr::CaseOperand { ty: o.ty() }, -1);
                    let right = (self.expr(when)?, node::location(when));
                    self.operator_call("=", Some(left), right, w.location)?
                }
                None => self.expr(when)?,
            };
            whens.push(self.coerce_boolean(cond, "CASE/WHEN", node::location(when))?);
            let result = need(&w.result)?;
            results.push((self.expr(result)?, node::location(result)));
        }
        let (mut results, ty) = self.unify(results, "CASE")?;
        let otherwise = results.remove(0);
        let otherwise = c.defresult.is_some().then(|| Box::new(otherwise));
        let arms: Vec<(Expr, Expr)> = whens.into_iter().zip(results).collect();
        let case = Expr::Case { operand: operand.map(Box::new), arms, otherwise, ty };
        self.no_sets(case, "CASE", c.location)
    }

    /// Converts expressions to the type they share.
    pub(crate) fn unify(
        &mut self,
        list: Vec<(Expr, i32)>,
        context: &str,
    ) -> Result<(Vec<Expr>, TypeRef)> {
        let kinds: Vec<(Oid, i32)> = list.iter().map(|(e, l)| (e.ty().oid, *l)).collect();
        let oid = self.common_type(&kinds, Some(context))?.unwrap_or(Oid::TEXT);
        let mut out = Vec::with_capacity(list.len());
        for (e, location) in list {
            out.push(self.to_common(e, oid, context, location)?);
        }
        let typmod = Self::common_typmod(oid, out.iter());
        Ok((out, TypeRef::new(oid, typmod)))
    }

    fn no_sets(&self, e: Expr, place: &str, location: i32) -> Result<Expr> {
        if !walk::has_set_call(&e) {
            return Ok(e);
        }
        let message = format!("set-returning functions are not allowed in {place}");
        Err(self
            .error(State::FEATURE_NOT_SUPPORTED, message, location)
            .hint("You might be able to move the set-returning function into a LATERAL FROM item."))
    }

    fn args(&mut self, list: &[node::Boxed]) -> Result<Vec<(Expr, i32)>> {
        let mut out = Vec::with_capacity(list.len());
        for n in node::each(list) {
            out.push((self.expr(n)?, node::location(n)));
        }
        Ok(out)
    }

    fn coalesce(&mut self, c: &protobuf::CoalesceExpr) -> Result<Expr> {
        let list = self.args(&c.args)?;
        let (args, ty) = self.unify(list, "COALESCE")?;
        self.no_sets(Expr::Coalesce { args, ty }, "COALESCE", c.location)
    }

    fn min_max(&mut self, m: &protobuf::MinMaxExpr) -> Result<Expr> {
        let greatest = m.op() == protobuf::MinMaxOp::IsGreatest;
        let name = if greatest { "GREATEST" } else { "LEAST" };
        let list = self.args(&m.args)?;
        let (args, ty) = self.unify(list, name)?;
        if crate::functions::less(ty.oid).is_none() {
            return Err(self.no_comparison(ty.oid, m.location));
        }
        Ok(Expr::MinMax { greatest, args, ty })
    }

    pub(crate) fn no_comparison(&self, oid: Oid, location: i32) -> SqlError {
        let name = self.type_text(oid);
        let message = format!("could not identify a comparison function for type {name}");
        self.error(State::UNDEFINED_FUNCTION, message, location)
    }

    // ----- Arrays, rows and what is taken out of them.

    fn array(&mut self, a: &protobuf::AArrayExpr, target: Option<TypeRef>) -> Result<Expr> {
        self.deeper(|b| b.array_node(a, target))
    }

    fn array_node(&mut self, a: &protobuf::AArrayExpr, target: Option<TypeRef>) -> Result<Expr> {
        let mut nested = false;
        let mut list = Vec::with_capacity(a.elements.len());
        for n in node::each(&a.elements) {
            let e = match n {
                Node::AArrayExpr(inner) => {
                    nested = true;
                    self.array(inner, target)?
                }
                other => self.expr(other)?,
            };
            nested |= types::info(e.ty().oid).is_some_and(|t| t.is_array());
            list.push((e, node::location(n)));
        }
        if let Some(target) = target {
            return self.array_of(list, target, nested);
        }
        if list.is_empty() {
            return Err(self
                .error(
                    State::INDETERMINATE_DATATYPE,
                    "cannot determine type of empty array",
                    a.location,
                )
                .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let (items, ty) = self.unify(list, "ARRAY")?;
        if types::info(ty.oid).is_some_and(|t| t.is_array()) {
            let element = array_element(ty.oid).unwrap_or(Oid::TEXT);
            return Ok(Expr::Array { items, element, nested: true, ty });
        }
        let array = self.array_type_of(ty.oid, a.location)?;
        let ty = TypeRef::new(array, ty.typmod);
        Ok(Expr::Array {
            items,
            element: array_element(array).unwrap_or(Oid::TEXT),
            nested: false,
            ty,
        })
    }

    /// The array type over a type.
    pub(crate) fn array_type_of(&self, oid: Oid, location: i32) -> Result<Oid> {
        if types::info(oid).is_some_and(|t| t.is_array()) {
            return Ok(oid);
        }
        let array = match types::info(oid) {
            Some(_) => types::array_type(oid),
            None => Oid::RECORD_ARRAY,
        };
        if array.is_valid() {
            return Ok(array);
        }
        let name = self.type_text(oid);
        let message = format!("could not find array type for data type {name}");
        Err(self.error(State::UNDEFINED_OBJECT, message, location))
    }

    /// `ARRAY[...]::target`: the elements are cast one by one.
    fn array_of(&mut self, list: Vec<(Expr, i32)>, target: TypeRef, nested: bool) -> Result<Expr> {
        let element = array_element(target.oid).unwrap_or(Oid::TEXT);
        let inner = if nested { target } else { TypeRef::new(element, target.typmod) };
        let mut items = Vec::with_capacity(list.len());
        for (e, location) in list {
            items.push(self.cast(e, inner, location, location)?);
        }
        Ok(Expr::Array { items, element, nested, ty: TypeRef::new(target.oid, -1) })
    }

    fn row(&mut self, r: &protobuf::RowExpr) -> Result<Expr> {
        let mut items = Vec::with_capacity(r.args.len());
        for n in node::each(&r.args) {
            match self.star_columns(n)? {
                Some(columns) => items.extend(columns.into_iter().map(|c| c.1)),
                None => items.push(self.typed_expr(n)?),
            }
        }
        Ok(Expr::Row { items, ty: TypeRef::plain(Oid::RECORD) })
    }

    /// `expr[i].field[...]`.
    fn indirection(&mut self, i: &protobuf::AIndirection) -> Result<Expr> {
        let arg = need(&i.arg)?;
        let mut e = self.expr(arg)?;
        let location = node::location(arg);
        let mut subscripts: Vec<&protobuf::AIndices> = Vec::new();
        for step in node::each(&i.indirection) {
            match step {
                Node::AIndices(s) => subscripts.push(s),
                Node::String(name) => {
                    e = self.subscript(e, &std::mem::take(&mut subscripts), location)?;
                    e = self.field(e, &name.sval, location)?;
                }
                _ => {
                    let message = "row expansion via \"*\" is not supported here";
                    return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, location));
                }
            }
        }
        self.subscript(e, &subscripts, location)
    }

    fn subscript(
        &mut self,
        array: Expr,
        steps: &[&protobuf::AIndices],
        location: i32,
    ) -> Result<Expr> {
        if steps.is_empty() {
            return Ok(array);
        }
        let oid = array.ty().oid;
        let Some(element) = array_element(oid) else {
            let name = self.type_text(oid);
            let message =
                format!("cannot subscript type {name} because it does not support subscripting");
            return Err(self.error(State::DATATYPE_MISMATCH, message, location));
        };
        let slice = steps.iter().any(|s| s.is_slice);
        let mut index = Vec::with_capacity(steps.len());
        for s in steps {
            let lower = self.subscript_bound(some(&s.lidx))?;
            let upper = self.subscript_bound(some(&s.uidx))?;
            index.push(match (slice, s.is_slice, upper) {
                (true, true, upper) => SubscriptIndex::Slice(lower, upper),
                (true, false, upper) => {
                    let one = Datum::Int4(1);
                    let ty = TypeRef::plain(Oid::INT4);
                    SubscriptIndex::Slice(Some(Expr::Const { value: one, ty }), upper)
                }
                (false, _, Some(at)) => SubscriptIndex::At(at),
                (false, _, None) => return Err(node::missing()),
            });
        }
        let ty = if slice { TypeRef::plain(oid) } else { TypeRef::new(element, array.ty().typmod) };
        Ok(Expr::Subscript { array: Box::new(array), index, ty })
    }

    fn subscript_bound(&mut self, n: Option<&Node>) -> Result<Option<Expr>> {
        let Some(n) = n else { return Ok(None) };
        let e = self.expr(n)?;
        let int = TypeRef::plain(Oid::INT4);
        match self.try_coerce(e, int, CastContext::Assignment, node::location(n))? {
            Some(e) => Ok(Some(e)),
            None => Err(self.error(
                State::DATATYPE_MISMATCH,
                "array subscript must have type integer",
                node::location(n),
            )),
        }
    }

    /// `(row).field`.
    fn field(&mut self, arg: Expr, name: &str, location: i32) -> Result<Expr> {
        let oid = arg.ty().oid;
        let Some(columns) = self.record_columns(&arg) else {
            let ty = self.type_text(oid);
            let message = if oid == Oid::RECORD {
                format!("could not identify column \"{name}\" in record data type")
            } else {
                format!(
                    "column notation .{name} applied to type {ty}, which is not a composite type"
                )
            };
            let state =
                if oid == Oid::RECORD { State::UNDEFINED_COLUMN } else { State::WRONG_OBJECT_TYPE };
            return Err(self.error(state, message, location));
        };
        match columns.iter().position(|c| c.0 == name) {
            Some(index) => {
                // Taking a field of a row that is still a constructor needs no row.
                if let Expr::Row { items, .. } = &arg
                    && let Some(item) = items.get(index)
                {
                    return Ok(item.clone());
                }
                Ok(Expr::Field { arg: Box::new(arg), index, ty: columns[index].1 })
            }
            None if oid == Oid::RECORD => {
                let message = format!("could not identify column \"{name}\" in record data type");
                Err(self.error(State::UNDEFINED_COLUMN, message, location))
            }
            None => {
                let message =
                    format!("column \"{name}\" not found in data type {}", self.type_text(oid));
                Err(self.error(State::UNDEFINED_COLUMN, message, location))
            }
        }
    }

    /// Names and types of a row value's fields, where they can be known.
    pub(crate) fn record_columns(&self, e: &Expr) -> Option<Vec<(String, TypeRef)>> {
        if let Some(t) = self.table_of_row_type(e.ty().oid) {
            return Some(t.live_columns().map(|c| (c.name.clone(), c.ty)).collect());
        }
        match e {
            Expr::Row { items, .. } => Some(
                items.iter().enumerate().map(|(i, e)| (format!("f{}", i + 1), e.ty())).collect(),
            ),
            Expr::Call { function, args, .. } | Expr::SetCall { function, args, .. }
                if !function.columns.is_empty() =>
            {
                let actual: Vec<Oid> = args.iter().map(|a| a.ty().oid).collect();
                Some(self.function_columns(function, &actual))
            }
            Expr::Var(v) => {
                let scope = self.scopes.len().checked_sub(1 + usize::from(v.level))?;
                let entry = self.scopes[scope].rtes.get(usize::from(v.rte))?;
                let RangeSource::Subquery { query, .. } = &entry.source else { return None };
                let target = query.targets.get(usize::try_from(v.col).ok()?)?;
                match &target.expr {
                    Expr::Var(_) => None,
                    inner => self.record_columns(inner),
                }
            }
            Expr::Relabel { arg, .. } => self.record_columns(arg),
            _ => None,
        }
    }

    // ----- The rest.

    fn sql_value(&mut self, f: &protobuf::SqlValueFunction) -> Result<Expr> {
        use SqlValueFunctionOp as Op;
        let timetz = types::info_by_name("timetz").map_or(Oid::INVALID, |t| t.oid);
        let (what, oid) = match f.op() {
            Op::SvfopCurrentDate => (SqlValue::CurrentDate, Oid::DATE),
            Op::SvfopCurrentTime | Op::SvfopCurrentTimeN => (SqlValue::CurrentTime, timetz),
            Op::SvfopCurrentTimestamp | Op::SvfopCurrentTimestampN => {
                (SqlValue::CurrentTimestamp, Oid::TIMESTAMPTZ)
            }
            Op::SvfopLocaltime | Op::SvfopLocaltimeN => (SqlValue::LocalTime, Oid::TIME),
            Op::SvfopLocaltimestamp | Op::SvfopLocaltimestampN => {
                (SqlValue::LocalTimestamp, Oid::TIMESTAMP)
            }
            Op::SvfopCurrentRole | Op::SvfopCurrentUser | Op::SvfopUser => {
                (SqlValue::CurrentUser, Oid::NAME)
            }
            Op::SvfopSessionUser => (SqlValue::SessionUser, Oid::NAME),
            Op::SvfopCurrentCatalog => (SqlValue::CurrentCatalog, Oid::NAME),
            Op::SvfopCurrentSchema => (SqlValue::CurrentSchema, Oid::NAME),
            Op::SqlvalueFunctionOpUndefined => return Err(node::missing()),
        };
        let with_precision = matches!(
            f.op(),
            Op::SvfopCurrentTimeN
                | Op::SvfopCurrentTimestampN
                | Op::SvfopLocaltimeN
                | Op::SvfopLocaltimestampN
        );
        let precision = if with_precision { f.typmod.min(6) } else { -1 };
        Ok(Expr::SqlValue { what, precision, ty: TypeRef::new(oid, precision) })
    }

    fn collate(&mut self, c: &protobuf::CollateClause) -> Result<Expr> {
        let arg = self.expr(need(&c.arg)?)?;
        let collation = self.collation(&node::names(&c.collname), c.location)?;
        let oid = arg.ty().oid;
        if oid != Oid::UNKNOWN && !types::info(oid).is_some_and(|t| t.collatable()) {
            let name = self.type_text(oid);
            let message = format!("collations are not supported by type {name}");
            return Err(self.error(State::DATATYPE_MISMATCH, message, c.location));
        }
        let arg = self.resolve_unknown(arg, c.location)?;
        Ok(Expr::Collate { arg: Box::new(arg), collation })
    }

    /// A collation by name: the database's own, C and POSIX compare bytes.
    pub(crate) fn collation(&self, names: &[&str], location: i32) -> Result<Oid> {
        let (schema, name) = node::qualified(names);
        let found = match (schema.unwrap_or("pg_catalog"), name) {
            ("pg_catalog", "default") => Some(Oid::DEFAULT_COLLATION),
            ("pg_catalog", "C") => Some(Oid::C_COLLATION),
            ("pg_catalog", "POSIX") => Some(Oid(951)),
            ("pg_catalog", "ucs_basic") => Some(Oid(12547)),
            _ => None,
        };
        found.ok_or_else(|| {
            let name = names.join(".");
            let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
            self.error(State::UNDEFINED_OBJECT, message, location)
        })
    }
}
