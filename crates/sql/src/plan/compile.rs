//! Bound expressions to compiled ones.
//!
//! Columns become registers through the scope of their query level; calls of immutable functions
//! over constants are made now; comparisons of built-in types are told from other calls. What a
//! grouped query has computed below ([`super::planner::Scope::computed`]) is read from its
//! register instead of being computed again.

use super::planner::Planner;
use super::walk::visit;
use super::{PExpr, SubPlan, SubPlanSpec, TableUse};
use crate::analyze::bound::*;
use crate::error::{Result, SqlError};
use crate::exec::expr::{CompareOp, Ex, Function, Index, RowCompare};
use crate::exec::rows::KeyTable;
use crate::exec::{ExecCx, Reg};
use crate::functions::{self, Builtin, Volatility};
use crate::types::{self, Datum, Oid, TypeRef};
use hashbrown::HashMap;
use std::sync::{Arc, LazyLock};

type Comparisons = HashMap<Oid, (CompareOp, Oid)>;

/// The comparison functions that agree with the btree order of their type.
static COMPARISONS: LazyLock<Comparisons> = LazyLock::new(|| {
    let mut map = Comparisons::new();
    let names = [
        ("=", CompareOp::Eq),
        ("<>", CompareOp::Ne),
        ("<", CompareOp::Lt),
        ("<=", CompareOp::Le),
        (">", CompareOp::Gt),
        (">=", CompareOp::Ge),
    ];
    for (name, op) in names {
        for operator in functions::operators(name) {
            if let Some(left) = operator.left
                && let Some(ty) = common_order(left, operator.right)
                && operator.result == Oid::BOOL
            {
                map.insert(operator.function.oid, (op, ty));
            }
        }
    }
    map
});

/// The type whose order two operand types share.
fn common_order(left: Oid, right: Oid) -> Option<Oid> {
    let is = |set: &[Oid]| set.contains(&left) && set.contains(&right);
    if is(&[Oid::INT2, Oid::INT4, Oid::INT8]) {
        return Some(Oid::INT8);
    }
    if is(&[Oid::TEXT, Oid::NAME, Oid::VARCHAR]) {
        return Some(Oid::TEXT);
    }
    let own = [
        Oid::BOOL,
        Oid::FLOAT4,
        Oid::FLOAT8,
        Oid::NUMERIC,
        Oid::BPCHAR,
        Oid::BYTEA,
        Oid::DATE,
        Oid::TIME,
        Oid::TIMESTAMP,
        Oid::TIMESTAMPTZ,
        Oid::INTERVAL,
        Oid::UUID,
        Oid::OID,
        Oid::CHAR,
        Oid::TID,
    ];
    (left == right && own.contains(&left)).then_some(left)
}

/// What a function compares, if it is a comparison by the type's own order.
pub(super) fn comparison(function: &Builtin) -> Option<(CompareOp, Oid)> {
    COMPARISONS.get(&function.oid).copied()
}

/// The operator with its operands exchanged.
pub(super) fn commuted(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        same => same,
    }
}

impl Planner<'_> {
    /// Compiles an expression and keeps its text if EXPLAIN wants it.
    pub(super) fn pexpr(&mut self, e: &Expr) -> Result<PExpr> {
        let text = self.text(e);
        Ok(PExpr { ex: self.compile(e)?, text })
    }

    pub(super) fn pexprs(&mut self, list: &[Expr]) -> Result<Vec<PExpr>> {
        list.iter().map(|e| self.pexpr(e)).collect()
    }

    /// The conjunction of `quals`, or nothing.
    pub(super) fn filter(&mut self, quals: &[Expr]) -> Result<Option<PExpr>> {
        match quals {
            [] => Ok(None),
            [one] => self.pexpr(one).map(Some),
            many => {
                // Cheap ones first, as long as the order cannot matter.
                let mut sorted: Vec<&Expr> = many.iter().collect();
                sorted.sort_by_key(|e| expensive(e));
                let all = Expr::And(sorted.into_iter().cloned().collect());
                self.pexpr(&all).map(Some)
            }
        }
    }

    pub(super) fn compile(&mut self, e: &Expr) -> Result<Ex> {
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || self.compile_here(e))
    }

    fn compile_all(&mut self, list: &[Expr]) -> Result<Box<[Ex]>> {
        list.iter().map(|e| self.compile(e)).collect()
    }

    fn boxed(&mut self, e: &Expr) -> Result<Box<Ex>> {
        self.compile(e).map(Box::new)
    }

    fn compile_here(&mut self, e: &Expr) -> Result<Ex> {
        if let Some(reg) = self.computed(e) {
            return Ok(Ex::Reg(reg));
        }
        match e {
            Expr::Const { value, .. } => Ok(Ex::Const(value.clone())),
            Expr::Param { index, .. } => Ok(Ex::Param(usize::from(*index).saturating_sub(1))),
            Expr::Var(v) => self.column(v).map(Ex::Reg),
            Expr::Call { function, args, .. } => self.call(function, args),
            Expr::And(items) => Ok(Ex::And(self.compile_all(items)?)),
            Expr::Or(items) => Ok(Ex::Or(self.compile_all(items)?)),
            Expr::Not(arg) => Ok(Ex::Not(self.boxed(arg)?)),
            Expr::IsNull { arg, negated } => {
                Ok(Ex::IsNull { arg: self.boxed(arg)?, negated: *negated })
            }
            Expr::IsBool { arg, test } => Ok(Ex::IsBool { arg: self.boxed(arg)?, test: *test }),
            Expr::Relabel { arg, ty } => self.relabel(arg, ty.oid),
            Expr::Collate { arg, .. } => self.compile(arg),
            Expr::Coalesce { args, .. } => Ok(Ex::Coalesce(self.compile_all(args)?)),
            Expr::MinMax { greatest, args, ty } => {
                Ok(Ex::MinMax { greatest: *greatest, ty: ty.oid, args: self.compile_all(args)? })
            }
            Expr::Case { operand, arms, otherwise, .. } => self.case(operand, arms, otherwise),
            Expr::CaseOperand { .. } => match self.case_operands.last() {
                Some(reg) => Ok(Ex::Reg(*reg)),
                None => Err(SqlError::internal("CASE operand outside of CASE")),
            },
            Expr::Subquery(s) => self.sub_select(s),
            Expr::Aggregate(_) | Expr::Window(_) | Expr::SetCall { .. } => {
                Err(SqlError::internal("an aggregate or set call that nobody computes"))
            }
            _ => self.compile_rare(e),
        }
    }

    fn compile_rare(&mut self, e: &Expr) -> Result<Ex> {
        match e {
            Expr::Distinct { left, right, equal, negated } => Ok(Ex::Distinct {
                equal: pair_function(equal, left, right)?,
                left: self.boxed(left)?,
                right: self.boxed(right)?,
                negated: *negated,
            }),
            Expr::NullIf { left, right, equal, .. } => Ok(Ex::NullIf {
                equal: pair_function(equal, left, right)?,
                left: self.boxed(left)?,
                right: self.boxed(right)?,
            }),
            Expr::ArrayCompare { left, array, function, all } => Ok(Ex::ArrayCompare {
                function: Function::of(function, &[left.ty().oid, function.args[1]])?,
                left: self.boxed(left)?,
                array: self.boxed(array)?,
                all: *all,
            }),
            Expr::InList { left, items, equal } => self.in_list(left, items, equal),
            Expr::Array { items, element, nested, .. } => Ok(Ex::Array {
                items: self.compile_all(items)?,
                element: *element,
                nested: *nested,
            }),
            Expr::Subscript { array, index, .. } => {
                let array = self.boxed(array)?;
                let index = index.iter().map(|i| self.subscript(i)).collect::<Result<_>>()?;
                Ok(Ex::Subscript { array, index })
            }
            Expr::Row { items, .. } => Ok(Ex::Row(self.compile_all(items)?)),
            Expr::RowCompare { op, left, right, equal, less } => {
                let list = |fs: &[&'static Builtin]| -> Result<Box<[Function]>> {
                    fs.iter().map(|f| Function::of(f, f.args)).collect()
                };
                Ok(Ex::RowCompare(Box::new(RowCompare {
                    op: *op,
                    left: self.compile_all(left)?,
                    right: self.compile_all(right)?,
                    equal: list(equal)?,
                    less: list(less)?,
                })))
            }
            Expr::Field { arg, index, .. } => {
                Ok(Ex::Field { arg: self.boxed(arg)?, index: *index })
            }
            Expr::CoerceViaText { arg, ty } => {
                Ok(Ex::CoerceViaText { source: arg.ty().oid, arg: self.boxed(arg)?, ty: *ty })
            }
            Expr::ApplyTypmod { arg, ty, explicit } => {
                let ex = Ex::ApplyTypmod { arg: self.boxed(arg)?, ty: *ty, explicit: *explicit };
                Ok(self.fold(ex, matches!(**arg, Expr::Const { .. })))
            }
            Expr::CoerceArray { arg, element, ty } => {
                let reg = self.new_reg();
                let arg = self.boxed(arg)?;
                self.case_operands.push(reg);
                let element = self.boxed(element);
                self.case_operands.pop();
                let element_type = types::element_type(ty.oid).unwrap_or(Oid::INVALID);
                Ok(Ex::CoerceArray { arg, element: element?, reg, element_type })
            }
            Expr::SqlValue { what, ty, .. } => self.sql_value(*what, *ty),
            other => Err(SqlError::internal(format!("cannot compile {other:?}"))),
        }
    }
    /// The same value under another type's name. Integers and OIDs are the same four bytes to
    /// PostgreSQL, but two kinds of [`Datum`] here.
    fn relabel(&mut self, arg: &Expr, target: Oid) -> Result<Ex> {
        let source = arg.ty().oid;
        let to_oid = source == Oid::INT4 && target != Oid::INT4;
        let from_oid = source != Oid::INT4 && target == Oid::INT4;
        match (self.compile(arg)?, to_oid, from_oid) {
            (ex, false, false) => Ok(ex),
            (Ex::Const(Datum::Int4(v)), true, _) => Ok(Ex::Const(Datum::Oid(v as u32))),
            (Ex::Const(Datum::Oid(v)), _, true) => Ok(Ex::Const(Datum::Int4(v as i32))),
            (ex, to_oid, _) => Ok(Ex::CoerceViaText {
                arg: Box::new(ex),
                source: if to_oid { Oid::INT4 } else { Oid::OID },
                ty: TypeRef::plain(if to_oid { Oid::OID } else { Oid::INT4 }),
            }),
        }
    }

    fn call(&mut self, function: &'static Builtin, args: &[Expr]) -> Result<Ex> {
        if let Some((op, ty)) = comparison(function)
            && let [left, right] = args
        {
            let (left, right) = (self.boxed(left)?, self.boxed(right)?);
            return Ok(Ex::Compare { op, ty, left, right });
        }
        if let Some(oid) = super::walk::named_sequence(function, args)
            && let Some(sequence) = self.env.relation(oid)
        {
            self.uses(&sequence, TableUse::Sequence);
        }
        let arg_types: Vec<Oid> = args.iter().map(|a| a.ty().oid).collect();
        let compiled = self.compile_all(args)?;
        let constant = function.volatility == Volatility::Immutable
            && compiled.iter().all(|a| matches!(a, Ex::Const(_)));
        let function = Function::of(function, &arg_types)?;
        Ok(self.fold(Ex::Call { function, args: compiled }, constant))
    }

    /// Evaluates what depends on nothing; an error is left to happen when the row needs it.
    fn fold(&self, ex: Ex, constant: bool) -> Ex {
        if !constant {
            return ex;
        }
        let mut cx = ExecCx::new(self.env.functions(), &[]);
        match ex.eval(&mut cx) {
            Ok(value) => Ex::Const(value),
            Err(_) => ex,
        }
    }

    fn case(
        &mut self,
        operand: &Option<Box<Expr>>,
        arms: &[(Expr, Expr)],
        otherwise: &Option<Box<Expr>>,
    ) -> Result<Ex> {
        let operand = match operand {
            Some(o) => Some((self.boxed(o)?, self.new_reg())),
            None => None,
        };
        let reg = operand.as_ref().map(|o| o.1);
        let mut compiled = Vec::with_capacity(arms.len());
        for (when, then) in arms {
            self.case_operands.extend(reg);
            let when = self.compile(when);
            if reg.is_some() {
                self.case_operands.pop();
            }
            compiled.push((when?, self.compile(then)?));
        }
        let otherwise = match otherwise {
            Some(e) => Some(self.boxed(e)?),
            None => None,
        };
        Ok(Ex::Case { operand, arms: compiled.into(), otherwise })
    }

    fn in_list(&mut self, left: &Expr, items: &[Expr], equal: &'static Builtin) -> Result<Ex> {
        let left_type = left.ty().oid;
        let left = self.boxed(left)?;
        let items = self.compile_all(items)?;
        let constants = items.iter().all(|i| matches!(i, Ex::Const(_)));
        if let Some((CompareOp::Eq, ty)) = comparison(equal)
            && constants
            && items.len() > 6
        {
            let mut set = KeyTable::new(vec![ty]);
            let mut null = false;
            for item in items {
                match item {
                    Ex::Const(d) if !d.is_null() => {
                        set.insert(&mut [d])?;
                    }
                    _ => null = true,
                }
            }
            return Ok(Ex::InSet { left, set: Arc::new(set), null });
        }
        let equal = Function::of(equal, &[left_type, equal.args[1]])?;
        Ok(Ex::InList { left, items, equal })
    }

    fn subscript(&mut self, i: &SubscriptIndex) -> Result<Index> {
        let mut bound = |e: &Option<Expr>| e.as_ref().map(|e| self.compile(e)).transpose();
        Ok(match i {
            SubscriptIndex::At(e) => Index::At(self.compile(e)?),
            SubscriptIndex::Slice(a, b) => Index::Slice(bound(a)?, bound(b)?),
        })
    }

    fn sql_value(&mut self, what: SqlValue, ty: TypeRef) -> Result<Ex> {
        let name = match what {
            SqlValue::CurrentUser => "current_user",
            SqlValue::SessionUser => "session_user",
            SqlValue::CurrentCatalog => "current_database",
            SqlValue::CurrentSchema => "current_schema",
            _ => {
                let cast = functions::find_cast(Oid::TIMESTAMPTZ, ty.oid);
                let cast = match cast.map(|c| &c.how) {
                    Some(functions::CastHow::Function(f)) if ty.oid != Oid::TIMESTAMPTZ => {
                        Some(Function::of(f, &[Oid::TIMESTAMPTZ])?)
                    }
                    _ if ty.oid == Oid::TIMESTAMPTZ => None,
                    _ => return Err(SqlError::unsupported(format!("{what:?}"))),
                };
                return Ok(Ex::Now { cast, ty });
            }
        };
        let function = Function { callee: crate::exec::expr::Callee::Session(name), strict: false };
        Ok(Ex::Call { function, args: Box::new([]) })
    }

    /// Plans a sub-select of an expression. The same sub-select is planned once in a query.
    fn sub_select(&mut self, s: &SubqueryExpr) -> Result<Ex> {
        let left = match &s.kind {
            SubqueryKind::Quantified { left, .. } => self.compile_all(left)?,
            _ => Box::new([]),
        };
        if let Some(index) = self.known_sub_select(s) {
            return Ok(Ex::SubPlan { index, left });
        }
        let kind = match &s.kind {
            SubqueryKind::Scalar => SubPlanSpec::Scalar,
            SubqueryKind::Exists => SubPlanSpec::Exists,
            SubqueryKind::Row => SubPlanSpec::Row,
            SubqueryKind::Array => {
                let nested =
                    s.query.targets.first().is_some_and(|t| {
                        types::info(t.expr.ty().oid).is_some_and(|i| i.is_array())
                    });
                let element = types::element_type(s.ty.oid).unwrap_or(Oid::INVALID);
                SubPlanSpec::Array { element, nested }
            }
            SubqueryKind::Quantified { functions, all, .. } => {
                let order = |f: &&'static Builtin| match comparison(f) {
                    Some((CompareOp::Eq, ty)) if !*all => Some(ty),
                    _ => None,
                };
                SubPlanSpec::Quantified {
                    hash: functions.iter().map(order).collect(),
                    functions: functions
                        .iter()
                        .map(|f| Function::of(f, f.args))
                        .collect::<Result<_>>()?,
                    all: *all,
                }
            }
        };
        let planned = self.plan_nested(&s.query)?;
        let locks_rows = locks_rows(&s.query);
        if locks_rows && planned.correlated {
            return Err(crate::exec::cannot_wait());
        }
        let index = self.subplans.len();
        self.subplans.push(SubPlan {
            plan: planned.plan,
            kind,
            output: planned.out,
            correlated: planned.correlated,
            locks_rows,
        });
        self.remember_sub_select(s, index);
        Ok(Ex::SubPlan { index, left })
    }

    /// The register of a column.
    pub(super) fn column(&mut self, v: &Var) -> Result<Reg> {
        let depth = self
            .scopes
            .len()
            .checked_sub(1 + usize::from(v.level))
            .ok_or_else(|| SqlError::internal("a column of no query"))?;
        self.reaches(depth);
        self.scopes[depth].register(v)
    }
}

fn pair_function(f: &'static Builtin, left: &Expr, right: &Expr) -> Result<Function> {
    Function::of(f, &[left.ty().oid, right.ty().oid])
}

/// Conditions with sub-selects are asked last.
fn expensive(e: &Expr) -> bool {
    let mut found = false;
    visit(e, 0, &mut |e, _| {
        found |= matches!(e, Expr::Subquery(_));
        !found
    });
    found
}

/// Whether running the query may have to wait for row locks.
pub(super) fn locks_rows(q: &Query) -> bool {
    if !q.row_marks.is_empty() {
        return true;
    }
    let mut found = false;
    super::walk::query_parts(q, &mut |_| {}, &mut |sub| found |= locks_rows(sub));
    found
}
