//! Operators and comparisons: `a op b`, rows, ANY/ALL over arrays, IN lists, BETWEEN, IS DISTINCT
//! FROM, NULLIF.

use super::bound::*;
use super::coerce::array_element;
use super::node::{self, Node, need, some};
use super::scope::Binder;
use crate::error::{Result, State};
use crate::functions::{Builtin, CastContext};
use crate::types::{self, Oid, TypeRef};
use pg_query::protobuf::{self, AExprKind, SubLinkType};

type Located = (Expr, i32);

impl Binder<'_> {
    pub(crate) fn operator_expr(&mut self, e: &protobuf::AExpr) -> Result<Expr> {
        let name = self.operator_name(&e.name, e.location)?;
        match e.kind() {
            AExprKind::AexprOp => self.plain_operator(&name, e),
            AExprKind::AexprOpAny => self.array_operator(&name, e, false),
            AExprKind::AexprOpAll => self.array_operator(&name, e, true),
            AExprKind::AexprDistinct => self.distinct(e, false),
            AExprKind::AexprNotDistinct => self.distinct(e, true),
            AExprKind::AexprNullif => self.null_if(e),
            AExprKind::AexprIn => self.in_list(e, name == "<>"),
            AExprKind::AexprLike | AExprKind::AexprIlike | AExprKind::AexprSimilar => {
                let (l, r) = self.both(e)?;
                self.operator_call(&name, Some(l), r, e.location)
            }
            AExprKind::AexprBetween => self.between(e, false, false),
            AExprKind::AexprNotBetween => self.between(e, true, false),
            AExprKind::AexprBetweenSym => self.between(e, false, true),
            AExprKind::AexprNotBetweenSym => self.between(e, true, true),
            AExprKind::Undefined => Err(node::missing()),
        }
    }

    /// An operator's own name; only pg_catalog has operators.
    pub(crate) fn operator_name(&self, names: &[node::Boxed], location: i32) -> Result<String> {
        let names = node::names(names);
        match node::qualified(&names) {
            (None | Some("pg_catalog"), name) => Ok(name.to_owned()),
            (Some(schema), name) => {
                if self.schema_oid(schema, location)?.is_none() {
                    let message = format!("schema \"{schema}\" does not exist");
                    return Err(self.error(State::INVALID_SCHEMA_NAME, message, location));
                }
                let message = format!("operator does not exist: {schema}.{name}");
                Err(self.error(State::UNDEFINED_FUNCTION, message, location))
            }
        }
    }

    fn both(&mut self, e: &protobuf::AExpr) -> Result<(Located, Located)> {
        let (l, r) = (need(&e.lexpr)?, need(&e.rexpr)?);
        let left = (self.expr(l)?, node::location(l));
        Ok((left, (self.expr(r)?, node::location(r))))
    }

    fn plain_operator(&mut self, name: &str, e: &protobuf::AExpr) -> Result<Expr> {
        let right = need(&e.rexpr)?;
        let left = some(&e.lexpr);
        match (left, right) {
            (Some(Node::RowExpr(_)), Node::SubLink(s))
                if s.sub_link_type() == SubLinkType::ExprSublink =>
            {
                self.row_sub_link(name, left.ok_or_else(node::missing)?, s, e.location)
            }
            (Some(l @ Node::RowExpr(_)), r @ Node::RowExpr(_)) => {
                let (l, r) = (self.row_items(l)?, self.row_items(r)?);
                self.row_compare(name, l, r, e.location)
            }
            (Some(_), _) => {
                let (l, r) = self.both(e)?;
                self.operator_call(name, Some(l), r, e.location)
            }
            (None, r) => {
                let r = (self.expr(r)?, node::location(r));
                self.operator_call(name, None, r, e.location)
            }
        }
    }

    /// The items of a row constructor, unknown literals left open.
    pub(crate) fn row_items(&mut self, n: &Node) -> Result<Vec<Located>> {
        let Node::RowExpr(r) = n else { return Ok(vec![(self.expr(n)?, node::location(n))]) };
        let mut out = Vec::with_capacity(r.args.len());
        for n in node::each(&r.args) {
            match self.star_columns(n)? {
                Some(columns) => {
                    out.extend(columns.into_iter().map(|c| (c.1, node::location(n))));
                }
                None => out.push((self.expr(n)?, node::location(n))),
            }
        }
        Ok(out)
    }

    /// `(a, b) op (c, d)`.
    pub(crate) fn row_compare(
        &mut self,
        name: &str,
        left: Vec<Located>,
        right: Vec<Located>,
        location: i32,
    ) -> Result<Expr> {
        if left.len() != right.len() {
            let message = "unequal number of entries in row expressions";
            return Err(self.error(State::SYNTAX_ERROR, message, location));
        }
        if left.is_empty() {
            let message = "cannot compare rows of zero length";
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, location));
        }
        let op = match name {
            "=" | "<>" => return self.row_equality(name, left, right, location),
            "<" => RowCompareOp::Lt,
            "<=" => RowCompareOp::Le,
            ">" => RowCompareOp::Gt,
            ">=" => RowCompareOp::Ge,
            _ => {
                let message =
                    format!("could not determine interpretation of row comparison operator {name}");
                return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, location).hint(
                    "Row comparison operators must be associated with btree operator families.",
                ));
            }
        };
        if left.len() == 1 {
            let mut pairs = left.into_iter().zip(right);
            let (l, r) = pairs.next().ok_or_else(node::missing)?;
            return self.operator_call(name, Some(l), r, location);
        }
        let (mut ls, mut rs, mut equal, mut less) = (vec![], vec![], vec![], vec![]);
        for (l, r) in left.into_iter().zip(right) {
            let (lt, rt) = (l.0.ty().oid, r.0.ty().oid);
            let (_, by_less) = self.find_operator("<", Some(lt), rt, location)?;
            let kinds = (by_less.args[0], by_less.args[1]);
            let (_, by_equal) = self.find_operator("=", Some(kinds.0), kinds.1, location)?;
            let mut args = self.function_args(&by_less, vec![l.0, r.0], &[l.1, r.1])?;
            rs.extend(args.pop());
            ls.extend(args.pop());
            less.push(by_less.function);
            equal.push(by_equal.function);
        }
        Ok(Expr::RowCompare { op, left: ls, right: rs, equal, less })
    }

    fn row_equality(
        &mut self,
        name: &str,
        left: Vec<Located>,
        right: Vec<Located>,
        location: i32,
    ) -> Result<Expr> {
        let mut parts = Vec::with_capacity(left.len());
        for (l, r) in left.into_iter().zip(right) {
            parts.push(self.operator_call(name, Some(l), r, location)?);
        }
        Ok(match (parts.len(), name) {
            (1, _) => parts.remove(0),
            (_, "=") => Expr::And(parts),
            _ => Expr::Or(parts),
        })
    }

    /// `x op ANY (array)`.
    fn array_operator(&mut self, name: &str, e: &protobuf::AExpr, all: bool) -> Result<Expr> {
        let (l, r) = self.both(e)?;
        let (left_type, right_type) = (l.0.ty().oid, r.0.ty().oid);
        let misuse = |b: &Self| {
            let message = "op ANY/ALL (array) requires array on right side";
            b.error(State::WRONG_OBJECT_TYPE, message, e.location)
        };
        let element = match right_type {
            Oid::UNKNOWN => Oid::UNKNOWN,
            other => array_element(other).ok_or_else(|| misuse(self))?,
        };
        let (op, found) = self.find_operator(name, Some(left_type), element, e.location)?;
        if found.result != Oid::BOOL {
            let message = "op ANY/ALL (array) requires operator to yield boolean";
            return Err(self.error(State::WRONG_OBJECT_TYPE, message, e.location));
        }
        let wanted = types::array_type(found.args[1]);
        if !wanted.is_valid() {
            let name = self.type_text(found.args[1]);
            let message = format!("could not find array type for data type {name}");
            return Err(self.error(State::UNDEFINED_OBJECT, message, e.location));
        }
        let target = TypeRef::plain(found.args[0]);
        let left = self.coerce(l.0, target, CastContext::Implicit, l.1)?;
        let array = if array_element(right_type) == Some(found.args[1]) {
            r.0
        } else {
            self.coerce(r.0, TypeRef::plain(wanted), CastContext::Implicit, r.1)?
        };
        let function = op.function;
        Ok(Expr::ArrayCompare { left: Box::new(left), array: Box::new(array), function, all })
    }

    /// IS [NOT] DISTINCT FROM.
    fn distinct(&mut self, e: &protobuf::AExpr, negated: bool) -> Result<Expr> {
        let (l, r) = (need(&e.lexpr)?, need(&e.rexpr)?);
        // Against NULL it is a null test.
        let is_null = |n: &Node| matches!(n, Node::AConst(c) if c.isnull);
        if is_null(r) || is_null(l) {
            let arg = Box::new(self.expr(if is_null(r) { l } else { r })?);
            return Ok(Expr::IsNull { arg, negated: !negated });
        }
        if let (Node::RowExpr(_), Node::RowExpr(_)) = (l, r) {
            let (ls, rs) = (self.row_items(l)?, self.row_items(r)?);
            if ls.len() != rs.len() {
                let message = "unequal number of entries in row expressions";
                return Err(self.error(State::SYNTAX_ERROR, message, e.location));
            }
            let mut parts = Vec::with_capacity(ls.len());
            for (l, r) in ls.into_iter().zip(rs) {
                parts.push(self.distinct_pair(l, r, negated, e.location)?);
            }
            return Ok(if negated { Expr::And(parts) } else { Expr::Or(parts) });
        }
        let (l, r) = self.both(e)?;
        self.distinct_pair(l, r, negated, e.location)
    }

    fn distinct_pair(&mut self, l: Located, r: Located, negated: bool, at: i32) -> Result<Expr> {
        let (left, right, equal) = self.equality(l, r, "IS DISTINCT FROM", at)?;
        Ok(Expr::Distinct { left: Box::new(left), right: Box::new(right), equal, negated })
    }

    /// Both sides converted for `=`, and its function.
    fn equality(
        &mut self,
        l: Located,
        r: Located,
        construct: &str,
        location: i32,
    ) -> Result<(Expr, Expr, &'static Builtin)> {
        let (lt, rt) = (l.0.ty().oid, r.0.ty().oid);
        let (_, found) = self.find_operator("=", Some(lt), rt, location)?;
        if found.result != Oid::BOOL {
            let message = format!("{construct} requires = operator to yield boolean");
            return Err(self.error(State::DATATYPE_MISMATCH, message, location));
        }
        let args = self.function_args(&found, vec![l.0, r.0], &[l.1, r.1])?;
        let mut args = args.into_iter();
        match (args.next(), args.next()) {
            (Some(l), Some(r)) => Ok((l, r, found.function)),
            _ => Err(node::missing()),
        }
    }

    fn null_if(&mut self, e: &protobuf::AExpr) -> Result<Expr> {
        let (l, r) = self.both(e)?;
        let (left, right, equal) = self.equality(l, r, "NULLIF", e.location)?;
        let ty = left.ty();
        Ok(Expr::NullIf { left: Box::new(left), right: Box::new(right), equal, ty })
    }

    /// `x [NOT] IN (a, b, ...)`.
    fn in_list(&mut self, e: &protobuf::AExpr, negated: bool) -> Result<Expr> {
        let left = need(&e.lexpr)?;
        let Node::List(list) = need(&e.rexpr)? else { return Err(node::missing()) };
        let result = if matches!(left, Node::RowExpr(_)) {
            self.row_in_list(left, list, e.location)?
        } else {
            let left = (self.expr(left)?, node::location(left));
            let mut items = Vec::with_capacity(list.items.len());
            for n in node::each(&list.items) {
                items.push((self.expr(n)?, node::location(n)));
            }
            if let [_] = items.as_slice()
                && negated
            {
                let item = items.remove(0);
                return self.operator_call("<>", Some(left), item, e.location);
            }
            self.scalar_in_list(left, items, e.location)?
        };
        Ok(if negated { Expr::Not(Box::new(result)) } else { result })
    }

    fn row_in_list(&mut self, left: &Node, list: &protobuf::List, location: i32) -> Result<Expr> {
        let left = self.row_items(left)?;
        let mut parts = Vec::with_capacity(list.items.len());
        for n in node::each(&list.items) {
            let right = self.row_items(n)?;
            parts.push(self.row_compare("=", left.clone(), right, location)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Or(parts) })
    }

    fn scalar_in_list(
        &mut self,
        left: Located,
        items: Vec<Located>,
        location: i32,
    ) -> Result<Expr> {
        let mut kinds: Vec<(Oid, i32)> = items.iter().map(|i| (i.0.ty().oid, i.1)).collect();
        kinds.insert(0, (left.0.ty().oid, left.1));
        let common = self.common_type(&kinds, None)?.filter(|t| *t != Oid::RECORD);
        let Some(common) = common.filter(|_| items.len() > 1) else {
            let mut parts = Vec::with_capacity(items.len());
            for item in items {
                parts.push(self.operator_call("=", Some(left.clone()), item, location)?);
            }
            return Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Or(parts) });
        };
        let (_, found) = self.find_operator("=", Some(left.0.ty().oid), common, location)?;
        let target = TypeRef::plain(found.args[0]);
        let subject = self.coerce(left.0, target, CastContext::Implicit, left.1)?;
        let target = TypeRef::plain(found.args[1]);
        let mut converted = Vec::with_capacity(items.len());
        for (item, at) in items {
            let item = self.to_common(item, common, "IN", at)?;
            converted.push(self.coerce(item, target, CastContext::Implicit, at)?);
        }
        let equal = found.function;
        Ok(Expr::InList { left: Box::new(subject), items: converted, equal })
    }

    fn between(&mut self, e: &protobuf::AExpr, negated: bool, symmetric: bool) -> Result<Expr> {
        let left = need(&e.lexpr)?;
        let Node::List(list) = need(&e.rexpr)? else { return Err(node::missing()) };
        let mut bounds = Vec::with_capacity(2);
        let subject = (self.expr(left)?, node::location(left));
        for n in node::each(&list.items) {
            bounds.push((self.expr(n)?, node::location(n)));
        }
        let [a, b] = bounds.as_slice() else { return Err(node::missing()) };
        let mut range = |low: &Located, high: &Located| -> Result<Expr> {
            let (low_op, high_op) = if negated { ("<", ">") } else { (">=", "<=") };
            let x = Some(subject.clone());
            let above = self.operator_call(low_op, x.clone(), low.clone(), e.location)?;
            let below = self.operator_call(high_op, x, high.clone(), e.location)?;
            let both = vec![above, below];
            Ok(if negated { Expr::Or(both) } else { Expr::And(both) })
        };
        let first = range(a, b)?;
        if !symmetric {
            return Ok(first);
        }
        let both = vec![first, range(b, a)?];
        Ok(if negated { Expr::And(both) } else { Expr::Or(both) })
    }
}
