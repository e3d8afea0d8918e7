//! Compiled expressions: a tree of small operations over registers.
//!
//! The planner turns a bound expression into an [`Ex`] once; evaluating it allocates nothing
//! unless a value itself does. Comparisons of built-in types, which filters consist of, are told
//! from other calls and read their operands in place ([`Ex::peek`]).
//!
//! - Three-valued logic: `truth` gives `None` for unknown; AND and OR stop as soon as they can.
//! - A strict function is not called when an argument is NULL.
//! - A CASE operand lives in a register of its own, so nested CASEs do not meet.

use super::{ExecCx, Reg, rows::KeyTable, subplan};
use crate::analyze::bound::{BoolTest, RowCompareOp};
use crate::error::{Result, SqlError, State};
use crate::functions::{Builtin, Implementation, ScalarFn, TypedFn};
use crate::types::compare::compare_as;
use crate::types::{self, ArrayValue, Datum, Oid, TypeRef};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl CompareOp {
    #[inline]
    pub fn holds(self, o: Ordering) -> bool {
        match self {
            CompareOp::Eq => o.is_eq(),
            CompareOp::Ne => o.is_ne(),
            CompareOp::Lt => o.is_lt(),
            CompareOp::Le => o.is_le(),
            CompareOp::Gt => o.is_gt(),
            CompareOp::Ge => o.is_ge(),
        }
    }
}

/// How a built-in is called.
#[derive(Clone)]
pub enum Callee {
    Scalar(ScalarFn),
    /// With the arguments' types.
    Typed(TypedFn, Arc<[Oid]>),
    /// Answered by the session under this name.
    Session(&'static str),
}

impl Callee {
    pub fn of(function: &'static Builtin, arg_types: &[Oid]) -> Result<Callee> {
        match function.imp {
            Implementation::Scalar(f) => Ok(Callee::Scalar(f)),
            Implementation::Typed(f) => Ok(Callee::Typed(f, arg_types.into())),
            Implementation::Session => Ok(Callee::Session(function.name)),
            _ => Err(SqlError::internal(format!("{} is not a scalar function", function.name))),
        }
    }

    #[inline]
    pub fn call(&self, cx: &ExecCx<'_>, args: &[Datum]) -> Result<Datum> {
        match self {
            Callee::Scalar(f) => f(cx.fx, args),
            Callee::Typed(f, types) => f(cx.fx, types, args),
            Callee::Session(name) => cx.fx.session().call(name, args),
        }
    }
}

/// A function together with its NULL rule.
#[derive(Clone)]
pub struct Function {
    pub callee: Callee,
    pub strict: bool,
}

impl Function {
    pub fn of(function: &'static Builtin, arg_types: &[Oid]) -> Result<Function> {
        Ok(Function { callee: Callee::of(function, arg_types)?, strict: function.strict })
    }

    #[inline]
    pub fn call(&self, cx: &ExecCx<'_>, args: &[Datum]) -> Result<Datum> {
        if self.strict && args.iter().any(Datum::is_null) {
            return Ok(Datum::Null);
        }
        self.callee.call(cx, args)
    }
}

/// A compiled expression.
#[derive(Clone)]
pub enum Ex {
    Const(Datum),
    Reg(Reg),
    /// `$n`, counted from 0 here.
    Param(usize),
    /// A comparison of built-in types by their btree order.
    Compare {
        op: CompareOp,
        ty: Oid,
        left: Box<Ex>,
        right: Box<Ex>,
    },
    Call {
        function: Function,
        args: Box<[Ex]>,
    },
    And(Box<[Ex]>),
    Or(Box<[Ex]>),
    Not(Box<Ex>),
    IsNull {
        arg: Box<Ex>,
        negated: bool,
    },
    IsBool {
        arg: Box<Ex>,
        test: BoolTest,
    },
    Distinct {
        left: Box<Ex>,
        right: Box<Ex>,
        equal: Function,
        negated: bool,
    },
    Case {
        operand: Option<(Box<Ex>, Reg)>,
        arms: Box<[(Ex, Ex)]>,
        otherwise: Option<Box<Ex>>,
    },
    Coalesce(Box<[Ex]>),
    NullIf {
        left: Box<Ex>,
        right: Box<Ex>,
        equal: Function,
    },
    MinMax {
        greatest: bool,
        ty: Oid,
        args: Box<[Ex]>,
    },
    ArrayCompare {
        left: Box<Ex>,
        array: Box<Ex>,
        function: Function,
        all: bool,
    },
    InList {
        left: Box<Ex>,
        items: Box<[Ex]>,
        equal: Function,
    },
    /// IN over many constants: `null` tells that NULL is among them.
    InSet {
        left: Box<Ex>,
        set: Arc<KeyTable>,
        null: bool,
    },
    Array {
        items: Box<[Ex]>,
        element: Oid,
        nested: bool,
    },
    Subscript {
        array: Box<Ex>,
        index: Box<[Index]>,
    },
    Row(Box<[Ex]>),
    RowCompare(Box<RowCompare>),
    Field {
        arg: Box<Ex>,
        index: usize,
    },
    SubPlan {
        index: usize,
        left: Box<[Ex]>,
    },
    CoerceViaText {
        arg: Box<Ex>,
        source: Oid,
        ty: TypeRef,
    },
    ApplyTypmod {
        arg: Box<Ex>,
        ty: TypeRef,
        explicit: bool,
    },
    CoerceArray {
        arg: Box<Ex>,
        element: Box<Ex>,
        reg: Reg,
        element_type: Oid,
    },
    /// The transaction's start, converted (current_date and friends).
    Now {
        cast: Option<Function>,
        ty: TypeRef,
    },
}

#[derive(Clone)]
pub enum Index {
    At(Ex),
    Slice(Option<Ex>, Option<Ex>),
}

#[derive(Clone)]
pub struct RowCompare {
    pub op: RowCompareOp,
    pub left: Box<[Ex]>,
    pub right: Box<[Ex]>,
    pub equal: Box<[Function]>,
    pub less: Box<[Function]>,
}

fn as_truth(d: &Datum) -> Option<bool> {
    match d {
        Datum::Bool(b) => Some(*b),
        _ => None,
    }
}

fn from_truth(t: Option<bool>) -> Datum {
    t.map_or(Datum::Null, Datum::Bool)
}

impl Ex {
    /// The value, if it is there to be looked at.
    #[inline]
    pub fn peek<'v>(&'v self, cx: &'v ExecCx<'_>) -> Option<&'v Datum> {
        match self {
            Ex::Reg(r) => Some(&cx.regs[*r as usize]),
            Ex::Const(d) => Some(d),
            Ex::Param(i) => cx.params.get(*i),
            _ => None,
        }
    }

    /// Whether a filter lets the row pass: true, not false or unknown.
    #[inline]
    pub fn passes(&self, cx: &mut ExecCx<'_>) -> Result<bool> {
        Ok(self.truth(cx)? == Some(true))
    }

    /// The value of a condition; `None` is unknown.
    pub fn truth(&self, cx: &mut ExecCx<'_>) -> Result<Option<bool>> {
        match self {
            Ex::Compare { op, ty, left, right } => compare(*op, *ty, left, right, cx),
            Ex::And(items) => all_of(items, cx),
            Ex::Or(items) => any_of(items, cx),
            Ex::Not(arg) => Ok(arg.truth(cx)?.map(|t| !t)),
            Ex::IsNull { arg, negated } => {
                let null = match arg.peek(cx) {
                    Some(d) => is_null(d, *negated),
                    None => is_null(&arg.eval(cx)?, *negated),
                };
                Ok(Some(null))
            }
            Ex::IsBool { arg, test } => Ok(Some(bool_test(*test, arg.truth(cx)?))),
            Ex::Distinct { left, right, equal, negated } => {
                let args = [left.eval(cx)?, right.eval(cx)?];
                let distinct = match (args[0].is_null(), args[1].is_null()) {
                    (true, true) => false,
                    (false, false) => equal.callee.call(cx, &args)? != Datum::Bool(true),
                    _ => true,
                };
                Ok(Some(distinct != *negated))
            }
            Ex::ArrayCompare { left, array, function, all } => {
                let left = left.eval(cx)?;
                let array = array.eval(cx)?;
                array_compare(cx, &left, &array, function, *all)
            }
            Ex::InList { left, items, equal } => in_list(cx, left, items, equal),
            Ex::InSet { left, set, null } => {
                let value = left.eval(cx)?;
                if value.is_null() {
                    return Ok(None);
                }
                let found = set.find(std::slice::from_ref(&value)).is_some();
                Ok(if found || !*null { Some(found) } else { None })
            }
            Ex::RowCompare(rc) => row_compare(cx, rc),
            _ => match self.peek(cx) {
                Some(d) => Ok(as_truth(d)),
                None => Ok(as_truth(&self.eval(cx)?)),
            },
        }
    }

    pub fn eval(&self, cx: &mut ExecCx<'_>) -> Result<Datum> {
        match self {
            Ex::Const(d) => Ok(d.clone()),
            Ex::Reg(r) => Ok(cx.regs[*r as usize].clone()),
            Ex::Param(i) => cx.params.get(*i).cloned().ok_or_else(|| missing_param(*i)),
            Ex::Call { function, args } => call(function, args, cx),
            Ex::Case { operand, arms, otherwise } => {
                if let Some((ex, reg)) = operand {
                    let value = ex.eval(cx)?;
                    cx.set(*reg, value);
                }
                for (when, then) in arms {
                    if when.passes(cx)? {
                        return then.eval(cx);
                    }
                }
                otherwise.as_ref().map_or(Ok(Datum::Null), |e| e.eval(cx))
            }
            Ex::Coalesce(args) => {
                for arg in args {
                    let value = arg.eval(cx)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Datum::Null)
            }
            Ex::NullIf { left, right, equal } => {
                let [l, r] = [left.eval(cx)?, right.eval(cx)?];
                if l.is_null() || r.is_null() {
                    return Ok(l);
                }
                let args = [l, r];
                let same = equal.callee.call(cx, &args)? == Datum::Bool(true);
                let [l, _] = args;
                Ok(if same { Datum::Null } else { l })
            }
            Ex::MinMax { greatest, ty, args } => min_max(cx, *greatest, *ty, args),
            Ex::SubPlan { index, left } => subplan::eval(cx, *index, left),
            Ex::CoerceViaText { arg, source, ty } => {
                let value = arg.eval(cx)?;
                coerce_via_text(cx, &value, *source, *ty)
            }
            Ex::ApplyTypmod { arg, ty, explicit } => match arg.eval(cx)? {
                Datum::Null => Ok(Datum::Null),
                value => types::apply_typmod(value, *ty, *explicit),
            },
            Ex::Now { cast, ty } => now(cx, cast.as_ref(), *ty),
            Ex::Array { .. }
            | Ex::Subscript { .. }
            | Ex::Row(_)
            | Ex::Field { .. }
            | Ex::CoerceArray { .. } => self.eval_composite(cx),
            _ => Ok(from_truth(self.truth(cx)?)),
        }
    }

    fn eval_composite(&self, cx: &mut ExecCx<'_>) -> Result<Datum> {
        match self {
            Ex::Array { items, element, nested } => {
                let values = eval_all(items, cx)?;
                make_array(values, *element, *nested)
            }
            Ex::Subscript { array, index } => subscript(cx, array, index),
            Ex::Row(items) => Ok(Datum::Record(eval_all(items, cx)?.into())),
            Ex::Field { arg, index } => Ok(match arg.eval(cx)? {
                Datum::Record(fields) => fields.get(*index).cloned().unwrap_or_default(),
                _ => Datum::Null,
            }),
            Ex::CoerceArray { arg, element, reg, element_type } => {
                let Datum::Array(source) = arg.eval(cx)? else { return Ok(Datum::Null) };
                let mut items = Vec::with_capacity(source.items.len());
                for item in &source.items {
                    cx.set(*reg, item.clone());
                    items.push(element.eval(cx)?);
                }
                let dims = source.dims.clone();
                Ok(Datum::Array(Arc::new(ArrayValue { element: *element_type, dims, items })))
            }
            _ => Err(SqlError::internal("not a composite expression")),
        }
    }

    /// Whether a function in it may have to wait: then its operator must be able to compute the
    /// row again. A sub-select may contain anything.
    pub fn may_wait(&self) -> bool {
        let mut waits = false;
        self.visit(&mut |e| match e {
            Ex::SubPlan { .. } => waits = true,
            Ex::Call { function: Function { callee: Callee::Session(name), .. }, .. } => {
                waits |= crate::session::may_wait(name);
            }
            _ => {}
        });
        waits
    }

    /// Calls `f` for every register that the expression itself reads (sub-plans apart).
    pub fn visit(&self, f: &mut dyn FnMut(&Ex)) {
        f(self);
        match self {
            Ex::Const(_) | Ex::Reg(_) | Ex::Param(_) | Ex::Now { .. } => {}
            Ex::Compare { left, right, .. }
            | Ex::Distinct { left, right, .. }
            | Ex::NullIf { left, right, .. } => {
                left.visit(f);
                right.visit(f);
            }
            Ex::ArrayCompare { left, array, .. } => {
                left.visit(f);
                array.visit(f);
            }
            Ex::Call { args, .. }
            | Ex::And(args)
            | Ex::Or(args)
            | Ex::Coalesce(args)
            | Ex::MinMax { args, .. }
            | Ex::Array { items: args, .. }
            | Ex::SubPlan { left: args, .. }
            | Ex::Row(args) => args.iter().for_each(|a| a.visit(f)),
            Ex::Not(arg)
            | Ex::IsNull { arg, .. }
            | Ex::IsBool { arg, .. }
            | Ex::Field { arg, .. }
            | Ex::InSet { left: arg, .. }
            | Ex::CoerceViaText { arg, .. }
            | Ex::ApplyTypmod { arg, .. } => arg.visit(f),
            Ex::CoerceArray { arg, element, .. } => {
                arg.visit(f);
                element.visit(f);
            }
            Ex::InList { left, items, .. } => {
                left.visit(f);
                items.iter().for_each(|a| a.visit(f));
            }
            Ex::Case { operand, arms, otherwise } => {
                operand.iter().for_each(|(o, _)| o.visit(f));
                for (when, then) in arms {
                    when.visit(f);
                    then.visit(f);
                }
                otherwise.iter().for_each(|o| o.visit(f));
            }
            Ex::Subscript { array, index } => {
                array.visit(f);
                for i in index {
                    match i {
                        Index::At(e) => e.visit(f),
                        Index::Slice(a, b) => a.iter().chain(b).for_each(|e| e.visit(f)),
                    }
                }
            }
            Ex::RowCompare(rc) => rc.left.iter().chain(&rc.right).for_each(|e| e.visit(f)),
        }
    }
}

fn missing_param(i: usize) -> SqlError {
    SqlError::new(State::UNDEFINED_PARAMETER, format!("there is no parameter ${}", i + 1))
}

pub fn eval_all(items: &[Ex], cx: &mut ExecCx<'_>) -> Result<Vec<Datum>> {
    items.iter().map(|i| i.eval(cx)).collect()
}

#[inline]
fn compare(
    op: CompareOp,
    ty: Oid,
    left: &Ex,
    right: &Ex,
    cx: &mut ExecCx<'_>,
) -> Result<Option<bool>> {
    if let (Some(l), Some(r)) = (left.peek(cx), right.peek(cx)) {
        return Ok(compare_values(op, ty, l, r));
    }
    let l = left.eval(cx)?;
    let r = right.eval(cx)?;
    Ok(compare_values(op, ty, &l, &r))
}

#[inline]
fn compare_values(op: CompareOp, ty: Oid, l: &Datum, r: &Datum) -> Option<bool> {
    match (l, r) {
        (Datum::Int4(a), Datum::Int4(b)) => Some(op.holds(a.cmp(b))),
        (Datum::Int8(a), Datum::Int8(b)) => Some(op.holds(a.cmp(b))),
        (Datum::Null, _) | (_, Datum::Null) => None,
        _ => Some(op.holds(compare_as(ty, l, r))),
    }
}

fn all_of(items: &[Ex], cx: &mut ExecCx<'_>) -> Result<Option<bool>> {
    let mut result = Some(true);
    for item in items {
        match item.truth(cx)? {
            Some(false) => return Ok(Some(false)),
            None => result = None,
            Some(true) => {}
        }
    }
    Ok(result)
}

fn any_of(items: &[Ex], cx: &mut ExecCx<'_>) -> Result<Option<bool>> {
    let mut result = Some(false);
    for item in items {
        match item.truth(cx)? {
            Some(true) => return Ok(Some(true)),
            None => result = None,
            Some(false) => {}
        }
    }
    Ok(result)
}

/// A row IS NULL when all its fields are, IS NOT NULL when none is.
fn is_null(d: &Datum, negated: bool) -> bool {
    match d {
        Datum::Record(fields) => fields.iter().all(|f| f.is_null() != negated),
        _ => d.is_null() != negated,
    }
}

fn bool_test(test: BoolTest, value: Option<bool>) -> bool {
    match test {
        BoolTest::True => value == Some(true),
        BoolTest::NotTrue => value != Some(true),
        BoolTest::False => value == Some(false),
        BoolTest::NotFalse => value != Some(false),
        BoolTest::Unknown => value.is_none(),
        BoolTest::NotUnknown => value.is_some(),
    }
}

#[inline]
fn call(function: &Function, args: &[Ex], cx: &mut ExecCx<'_>) -> Result<Datum> {
    match args {
        [] => function.callee.call(cx, &[]),
        [a] => {
            let args = [a.eval(cx)?];
            function.call(cx, &args)
        }
        [a, b] => {
            let args = [a.eval(cx)?, b.eval(cx)?];
            function.call(cx, &args)
        }
        _ => {
            let mut values: SmallVec<[Datum; 6]> = SmallVec::with_capacity(args.len());
            for arg in args {
                values.push(arg.eval(cx)?);
            }
            function.call(cx, &values)
        }
    }
}

fn min_max(cx: &mut ExecCx<'_>, greatest: bool, ty: Oid, args: &[Ex]) -> Result<Datum> {
    let mut best = Datum::Null;
    for arg in args {
        let value = arg.eval(cx)?;
        if value.is_null() {
            continue;
        }
        let order = compare_as(ty, &value, &best);
        let better = if greatest { order.is_gt() } else { order.is_lt() };
        if best.is_null() || better {
            best = value;
        }
    }
    Ok(best)
}

fn array_compare(
    cx: &ExecCx<'_>,
    left: &Datum,
    array: &Datum,
    function: &Function,
    all: bool,
) -> Result<Option<bool>> {
    let Datum::Array(array) = array else { return Ok(None) };
    if array.items.is_empty() {
        return Ok(Some(all));
    }
    if left.is_null() && function.strict {
        return Ok(None);
    }
    let mut result = Some(all);
    let mut args = [left.clone(), Datum::Null];
    for item in &array.items {
        args[1].clone_from(item);
        match as_truth(&function.call(cx, &args)?) {
            Some(t) if t != all => return Ok(Some(t)),
            Some(_) => {}
            None => result = None,
        }
    }
    Ok(result)
}

fn in_list(cx: &mut ExecCx<'_>, left: &Ex, items: &[Ex], equal: &Function) -> Result<Option<bool>> {
    let mut args = [left.eval(cx)?, Datum::Null];
    if args[0].is_null() {
        return Ok(None);
    }
    let mut result = Some(false);
    for item in items {
        args[1] = item.eval(cx)?;
        match as_truth(&equal.call(cx, &args)?) {
            Some(true) => return Ok(Some(true)),
            Some(false) => {}
            None => result = None,
        }
    }
    Ok(result)
}

fn row_compare(cx: &mut ExecCx<'_>, rc: &RowCompare) -> Result<Option<bool>> {
    use RowCompareOp::*;
    let mut unknown = false;
    for i in 0..rc.left.len() {
        let args = [rc.left[i].eval(cx)?, rc.right[i].eval(cx)?];
        let equal = as_truth(&rc.equal[i].call(cx, &args)?);
        match (rc.op, equal) {
            (_, Some(true)) => {}
            (Eq, Some(false)) => return Ok(Some(false)),
            (Ne, Some(false)) => return Ok(Some(true)),
            (Eq | Ne, None) => unknown = true,
            (_, None) => return Ok(None),
            (Lt | Le, Some(false)) => return Ok(as_truth(&rc.less[i].call(cx, &args)?)),
            (Gt | Ge, Some(false)) => {
                return Ok(as_truth(&rc.less[i].call(cx, &args)?).map(|t| !t));
            }
        }
    }
    Ok(if unknown { None } else { Some(matches!(rc.op, Eq | Le | Ge)) })
}

pub fn coerce_via_text(cx: &ExecCx<'_>, value: &Datum, source: Oid, ty: TypeRef) -> Result<Datum> {
    match value {
        Datum::Null => Ok(Datum::Null),
        // Texts are their own text form.
        Datum::Text(s) if source != Oid::BPCHAR => types::text_in(ty, s, cx.fx),
        _ => {
            let mut text = Vec::new();
            types::output(value, source, cx.fx, &mut text);
            types::text_in(ty, &String::from_utf8_lossy(&text), cx.fx)
        }
    }
}

fn now(cx: &ExecCx<'_>, cast: Option<&Function>, ty: TypeRef) -> Result<Datum> {
    let start = Datum::Timestamp(cx.fx.transaction_timestamp());
    let value = match cast {
        Some(f) => f.call(cx, &[start])?,
        None => start,
    };
    if ty.typmod >= 0 { types::apply_typmod(value, ty, true) } else { Ok(value) }
}

pub fn make_array(values: Vec<Datum>, element: Oid, nested: bool) -> Result<Datum> {
    let array = |dims, items| Datum::Array(Arc::new(ArrayValue { element, dims, items }));
    if !nested {
        let dims = if values.is_empty() { vec![] } else { vec![(values.len() as i32, 1)] };
        return Ok(array(dims, values));
    }
    let outer = values.len() as i32;
    let mut inner_dims: Option<Vec<(i32, i32)>> = None;
    let mut items = Vec::new();
    for value in values {
        let (dims, more) = match value {
            Datum::Array(a) => (a.dims.clone(), a.items.clone()),
            _ => (vec![], vec![]),
        };
        if inner_dims.as_ref().is_some_and(|d| *d != dims) {
            return Err(SqlError::new(
                State::ARRAY_SUBSCRIPT_ERROR,
                "multidimensional arrays must have array expressions with matching dimensions",
            ));
        }
        inner_dims = Some(dims);
        items.extend(more);
    }
    let inner = inner_dims.unwrap_or_default();
    if inner.is_empty() {
        return Ok(array(vec![], vec![]));
    }
    let mut dims = vec![(outer, 1)];
    dims.extend(inner);
    Ok(array(dims, items))
}

fn int_index(d: &Datum) -> Option<i64> {
    match d {
        Datum::Int4(i) => Some(i64::from(*i)),
        Datum::Int2(i) => Some(i64::from(*i)),
        Datum::Int8(i) => Some(*i),
        _ => None,
    }
}

fn subscript(cx: &mut ExecCx<'_>, array: &Ex, index: &[Index]) -> Result<Datum> {
    let Datum::Array(array) = array.eval(cx)? else { return Ok(Datum::Null) };
    if index.iter().any(|i| matches!(i, Index::Slice(..))) {
        return slice(cx, &array, index);
    }
    if index.len() != array.dims.len() {
        return Ok(Datum::Null);
    }
    let mut at = 0usize;
    for (i, (len, low)) in index.iter().zip(&array.dims) {
        let Index::At(ex) = i else { return Ok(Datum::Null) };
        let Some(n) = int_index(&ex.eval(cx)?) else { return Ok(Datum::Null) };
        let offset = n - i64::from(*low);
        if offset < 0 || offset >= i64::from(*len) {
            return Ok(Datum::Null);
        }
        at = at * *len as usize + offset as usize;
    }
    Ok(array.items.get(at).cloned().unwrap_or_default())
}

/// `a[i:j]...`: a plain subscript among slices means `1:n`.
fn slice(cx: &mut ExecCx<'_>, array: &ArrayValue, index: &[Index]) -> Result<Datum> {
    let empty = || ArrayValue { element: array.element, dims: vec![], items: vec![] };
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for (i, (len, low)) in array.dims.iter().enumerate() {
        let (first, last) = (i64::from(*low), i64::from(*low) + i64::from(*len) - 1);
        let (from, to) = match index.get(i) {
            None => (first, last),
            Some(Index::At(ex)) => match int_index(&ex.eval(cx)?) {
                Some(n) => (1, n),
                None => return Ok(Datum::Null),
            },
            Some(Index::Slice(from, to)) => {
                let mut bound = |ex: &Option<Ex>, default| match ex {
                    None => Ok(Some(default)),
                    Some(ex) => ex.eval(cx).map(|d| int_index(&d)),
                };
                match (bound(from, first)?, bound(to, last)?) {
                    (Some(from), Some(to)) => (from, to),
                    _ => return Ok(Datum::Null),
                }
            }
        };
        let (from, to) = (from.max(first), to.min(last));
        if from > to {
            return Ok(Datum::Array(Arc::new(empty())));
        }
        ranges.push((from - first, to - first));
    }
    if index.len() > array.dims.len() {
        return Ok(Datum::Array(Arc::new(empty())));
    }
    let mut items = Vec::new();
    collect_slice(array, &ranges, 0, 0, &mut items);
    let dims = ranges.iter().map(|(from, to)| ((to - from + 1) as i32, 1)).collect();
    Ok(Datum::Array(Arc::new(ArrayValue { element: array.element, dims, items })))
}

fn collect_slice(
    array: &ArrayValue,
    ranges: &[(i64, i64)],
    depth: usize,
    base: usize,
    out: &mut Vec<Datum>,
) {
    if depth == ranges.len() {
        out.push(array.items[base].clone());
        return;
    }
    for i in ranges[depth].0..=ranges[depth].1 {
        let next = base * array.dims[depth].0 as usize + i as usize;
        collect_slice(array, ranges, depth + 1, next, out);
    }
}
