//! Sub-selects inside expressions: scalar, EXISTS, IN / ANY / ALL, ARRAY, and rows.

use super::bound::*;
use super::node::{self, Node, need};
use super::scope::Binder;
use crate::error::{Result, State};
use crate::functions::CastContext;
use crate::types::{Oid, TypeRef};
use pg_query::protobuf::{SubLink, SubLinkType};

impl Binder<'_> {
    pub(crate) fn sub_link(&mut self, s: &SubLink) -> Result<Expr> {
        if let Some(message) = self.clause.refuses_subqueries() {
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, s.location));
        }
        match s.sub_link_type() {
            SubLinkType::ExistsSublink => {
                let query = self.sub_query(s)?;
                Ok(subquery(SubqueryKind::Exists, query, TypeRef::plain(Oid::BOOL)))
            }
            SubLinkType::ExprSublink => {
                let query = self.sub_query(s)?;
                let ty = self.only_column(&query, s)?;
                Ok(subquery(SubqueryKind::Scalar, query, ty))
            }
            SubLinkType::ArraySublink => {
                let query = self.sub_query(s)?;
                let ty = self.only_column(&query, s)?;
                let array = self.array_type_of(ty.oid, s.location)?;
                let ty = TypeRef::new(array, ty.typmod);
                Ok(subquery(SubqueryKind::Array, query, ty))
            }
            SubLinkType::AnySublink => self.quantified(s, false),
            SubLinkType::AllSublink => self.quantified(s, true),
            _ => Err(self.unsupported("this kind of sub-select", s.location)),
        }
    }

    fn sub_query(&mut self, s: &SubLink) -> Result<Query> {
        let Node::SelectStmt(select) = need(&s.subselect)? else { return Err(node::missing()) };
        self.sub_select(select)
    }

    fn only_column(&self, q: &Query, s: &SubLink) -> Result<TypeRef> {
        match q.targets.as_slice() {
            [one] => Ok(one.expr.ty()),
            _ => Err(self.error(
                State::SYNTAX_ERROR,
                "subquery must return only one column",
                s.location,
            )),
        }
    }

    fn column_count(&self, wanted: usize, q: &Query, location: i32) -> Result<()> {
        let message = match q.targets.len() {
            n if n > wanted => "subquery has too many columns",
            n if n < wanted => "subquery has too few columns",
            _ => return Ok(()),
        };
        Err(self.error(State::SYNTAX_ERROR, message, location))
    }

    /// `x op ANY (select ...)`, `(x, y) IN (select ...)`.
    fn quantified(&mut self, s: &SubLink, all: bool) -> Result<Expr> {
        let name = if s.oper_name.is_empty() {
            "=".to_owned()
        } else {
            self.operator_name(&s.oper_name, s.location)?
        };
        let items = self.row_items(need(&s.testexpr)?)?;
        let mut query = self.sub_query(s)?;
        self.column_count(items.len(), &query, s.location)?;
        if items.len() > 1 && name != "=" && name != "<>" {
            let what = format!("a row compared by {name} with the rows of a sub-select");
            return Err(self.unsupported(&what, s.location));
        }
        let mut left = Vec::with_capacity(items.len());
        let mut functions = Vec::with_capacity(items.len());
        for (i, (e, at)) in items.into_iter().enumerate() {
            let right = query.targets[i].expr.ty().oid;
            let (_, found) = self.find_operator(&name, Some(e.ty().oid), right, s.location)?;
            if found.result != Oid::BOOL {
                let result = self.type_text(found.result);
                let message =
                    format!("row comparison operator must yield type boolean, not type {result}");
                return Err(self.error(State::DATATYPE_MISMATCH, message, s.location));
            }
            let target = TypeRef::plain(found.args[0]);
            left.push(self.coerce(e, target, CastContext::Implicit, at)?);
            let target = TypeRef::plain(found.args[1]);
            self.coerce_column(&mut query, i, target, CastContext::Implicit, s.location)?;
            functions.push(found.function);
        }
        let kind = SubqueryKind::Quantified { left, functions, all };
        Ok(subquery(kind, query, TypeRef::plain(Oid::BOOL)))
    }

    /// `(a, b) op (select c, d)`.
    pub(crate) fn row_sub_link(
        &mut self,
        name: &str,
        left: &Node,
        s: &SubLink,
        location: i32,
    ) -> Result<Expr> {
        if let Some(message) = self.clause.refuses_subqueries() {
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, s.location));
        }
        let left = self.row_items(left)?;
        let query = self.sub_query(s)?;
        self.column_count(left.len(), &query, s.location)?;
        let right = row_fields(query).into_iter().map(|e| (e, s.location)).collect();
        self.row_compare(name, left, right, location)
    }

    /// The query of `SET (a, b) = (select ...)`, as one expression a column.
    pub(crate) fn row_source(&mut self, s: &SubLink, columns: usize) -> Result<Vec<Expr>> {
        let query = self.sub_query(s)?;
        if query.targets.len() != columns {
            let message = "number of columns does not match number of values";
            return Err(self.error(State::SYNTAX_ERROR, message, s.location));
        }
        Ok(row_fields(query))
    }
}

fn subquery(kind: SubqueryKind, query: Query, ty: TypeRef) -> Expr {
    Expr::Subquery(Box::new(SubqueryExpr { kind, query, ty }))
}

/// Each column of a one-row sub-select. A single column is a scalar sub-select.
fn row_fields(query: Query) -> Vec<Expr> {
    let types: Vec<TypeRef> = query.targets.iter().map(|t| t.expr.ty()).collect();
    if let [ty] = types.as_slice() {
        return vec![subquery(SubqueryKind::Scalar, query, *ty)];
    }
    let row = subquery(SubqueryKind::Row, query, TypeRef::plain(Oid::RECORD));
    let field = |(index, ty)| Expr::Field { arg: Box::new(row.clone()), index, ty };
    types.into_iter().enumerate().map(field).collect()
}
