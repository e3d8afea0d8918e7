//! CREATE INDEX.

use super::bound::Expr;
use super::node::{self, Node, some};
use super::scope::{Binder, Clause, system_column};
use super::statement::*;
use super::table::Shape;
use crate::catalog::{RelationKind, TableDef};
use crate::error::{Result, State};
use crate::functions;
use crate::types::{self, Oid};
use pg_query::protobuf::{self, IndexElem, IndexStmt};
use std::sync::Arc;

impl Binder<'_> {
    pub(crate) fn create_index(&mut self, s: &IndexStmt) -> Result<Utility> {
        let table = self.indexed_table(s)?;
        self.refuse_index_features(s)?;
        let mut shape = Shape::of(&table);
        if !s.idxname.is_empty()
            && self.cx.catalog.find_in_schema(table.schema, &s.idxname).is_some()
        {
            if s.if_not_exists {
                let state = State::DUPLICATE_TABLE;
                return Ok(Self::skip_existing("CREATE INDEX", "relation", &s.idxname, state));
            }
            return Err(self.already_exists(&s.idxname));
        }
        let columns = self.index_columns(s, &shape)?;
        let include = self.included_columns(s, &shape)?;
        if columns.len() + include.len() > 32 {
            let message = "cannot use more than 32 columns in an index";
            return Err(self.error(State::TOO_MANY_COLUMNS, message, -1));
        }
        let predicate = match some(&s.where_clause) {
            Some(n) => Some(self.index_predicate(n, &shape)?),
            None => None,
        };
        let name = if s.idxname.is_empty() {
            let parts: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
            let list = parts.join("_");
            self.choose_relation_name(&mut shape, Some(&list), "idx")
        } else {
            s.idxname.clone()
        };
        let index = IndexSpec {
            name,
            unique: s.unique,
            nulls_not_distinct: s.nulls_not_distinct,
            columns,
            include,
            predicate,
            options: self.index_options(&s.options)?,
        };
        Ok(Utility::CreateIndex(Box::new(CreateIndex {
            table,
            if_not_exists: s.if_not_exists,
            concurrently: s.concurrent,
            index,
        })))
    }

    fn indexed_table(&mut self, s: &IndexStmt) -> Result<Arc<TableDef>> {
        let relation = s.relation.as_ref().ok_or_else(node::missing)?;
        self.refuse_others_temporary(relation, "create indexes on")?;
        let table = self.named_table(relation)?;
        if table.kind != RelationKind::Table {
            let message = format!("cannot create index on relation \"{}\"", table.name);
            let kind = if table.kind == RelationKind::View { "views" } else { "sequences" };
            return Err(self
                .error(State::WRONG_OBJECT_TYPE, message, -1)
                .detail(format!("This operation is not supported for {kind}.")));
        }
        if table.system {
            return Err(super::dml::system_catalog(&table.name));
        }
        Ok(table)
    }

    fn index_columns(&mut self, s: &IndexStmt, shape: &Shape) -> Result<Vec<IndexColumnSpec>> {
        let mut columns: Vec<IndexColumnSpec> = Vec::with_capacity(s.index_params.len());
        for n in node::each(&s.index_params) {
            let Node::IndexElem(e) = n else { return Err(node::missing()) };
            let mut column = self.index_column(e, shape)?;
            let base = column.name.clone();
            let mut n = 0;
            while columns.iter().any(|c| c.name == column.name) {
                n += 1;
                column.name = format!("{base}{n}");
            }
            columns.push(column);
        }
        Ok(columns)
    }

    fn included_columns(&mut self, s: &IndexStmt, shape: &Shape) -> Result<Vec<i16>> {
        let mut include = Vec::with_capacity(s.index_including_params.len());
        for n in node::each(&s.index_including_params) {
            let Node::IndexElem(e) = n else { return Err(node::missing()) };
            if e.expr.is_some() {
                let message = "expressions are not supported in included columns";
                return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1));
            }
            include.push(self.index_position(&e.name, shape)? as i16 + 1);
        }
        Ok(include)
    }

    fn index_predicate(&mut self, n: &Node, shape: &Shape) -> Result<StoredExpr> {
        let e = self.over_shape(shape, |b| {
            let e = b.in_clause(Clause::IndexPredicate, |b| b.expr(n))?;
            b.coerce_boolean(e, "WHERE", node::location(n))
        })?;
        self.need_immutable(&e, "functions in index predicate must be marked IMMUTABLE")?;
        Ok(self.stored(e, shape))
    }

    fn refuse_index_features(&self, s: &IndexStmt) -> Result<()> {
        if !s.table_space.is_empty() && s.table_space != "pg_default" {
            return Err(self.unsupported("TABLESPACE", -1));
        }
        match s.access_method.as_str() {
            "" | "btree" => Ok(()),
            known @ ("hash" | "gin" | "gist" | "spgist" | "brin") => {
                Err(self.unsupported(&format!("index access method \"{known}\""), -1))
            }
            other => {
                let message = format!("access method \"{other}\" does not exist");
                Err(self.error(State::UNDEFINED_OBJECT, message, -1))
            }
        }
    }

    fn index_position(&self, name: &str, shape: &Shape) -> Result<usize> {
        shape.position(name).ok_or_else(|| {
            if system_column(name).is_some() {
                let message = "index creation on system columns is not supported";
                return self.error(State::FEATURE_NOT_SUPPORTED, message, -1);
            }
            let message = format!("column \"{name}\" does not exist");
            self.error(State::UNDEFINED_COLUMN, message, -1)
        })
    }

    fn index_column(&mut self, e: &IndexElem, shape: &Shape) -> Result<IndexColumnSpec> {
        let (attnum, expr, ty, name) = match some(&e.expr) {
            None => {
                let at = self.index_position(&e.name, shape)?;
                (Some(at as i16 + 1), None, shape.columns[at].ty, e.name.clone())
            }
            Some(n) => {
                let bound = self.over_shape(shape, |b| {
                    b.in_clause(Clause::IndexExpression, |b| b.typed_expr(n))
                })?;
                let message = "functions in index expression must be marked IMMUTABLE";
                self.need_immutable(&bound, message)?;
                let name = super::select::column_name(n);
                let name = if name == "?column?" { "expr".to_owned() } else { name };
                match bound {
                    Expr::Var(v) if v.col >= 0 => (Some(v.col + 1), None, v.ty, name),
                    bound => {
                        let ty = bound.ty();
                        (None, Some(self.stored(bound, shape)), ty, name)
                    }
                }
            }
        };
        let collation = if e.collation.is_empty() {
            types::info(ty.oid).map_or(Oid::INVALID, |t| t.collation)
        } else {
            self.collation(&node::names(&e.collation), -1)?
        };
        self.check_opclass(&node::names(&e.opclass), ty.oid)?;
        let descending = e.ordering() == protobuf::SortByDir::SortbyDesc;
        let nulls_first = match e.nulls_ordering() {
            protobuf::SortByNulls::SortbyNullsFirst => true,
            protobuf::SortByNulls::SortbyNullsLast => false,
            _ => descending,
        };
        self.need_btree(ty.oid)?;
        let name = if e.indexcolname.is_empty() { name } else { e.indexcolname.clone() };
        Ok(IndexColumnSpec { attnum, expr, ty, collation, descending, nulls_first, name })
    }

    pub(crate) fn need_btree(&self, oid: Oid) -> Result<()> {
        if functions::less(oid).is_some() {
            return Ok(());
        }
        let name = self.type_text(oid);
        let message =
            format!("data type {name} has no default operator class for access method \"btree\"");
        Err(self.error(State::UNDEFINED_OBJECT, message, -1).hint(
            "You must specify an operator class for the index or define a default operator class \
             for the data type.",
        ))
    }

    /// Default operator classes, and the pattern ones, which order bytes as all our texts do.
    fn check_opclass(&self, names: &[&str], oid: Oid) -> Result<()> {
        let (_, name) = node::qualified(names);
        if name.is_empty() {
            return Ok(());
        }
        let own = types::info(oid).map_or("", |t| t.name);
        let text = matches!(oid, Oid::TEXT | Oid::VARCHAR | Oid::BPCHAR | Oid::NAME);
        let pattern = ["text_ops", "varchar_ops", "bpchar_ops", "text_pattern_ops"];
        let pattern2 = ["varchar_pattern_ops", "bpchar_pattern_ops", "name_ops"];
        let fits = name.strip_suffix("_ops").is_some_and(|n| n == own)
            || (text && (pattern.contains(&name) || pattern2.contains(&name)))
            || (types::info(oid).is_some_and(|t| t.is_array()) && name == "array_ops");
        if fits {
            return Ok(());
        }
        let message =
            format!("operator class \"{name}\" does not exist for access method \"btree\"");
        Err(self.error(State::UNDEFINED_OBJECT, message, -1))
    }

    fn need_immutable(&self, e: &Expr, message: &str) -> Result<()> {
        let mut found = false;
        super::walk::visit(e, 0, &mut |e, _| {
            found |= match e {
                Expr::Call { function, .. } | Expr::SetCall { function, .. } => {
                    function.volatility != functions::Volatility::Immutable
                }
                Expr::SqlValue { .. } => true,
                _ => false,
            };
            !found
        });
        if found {
            return Err(self.error(State::INVALID_OBJECT_DEFINITION, message.to_owned(), -1));
        }
        Ok(())
    }
}
