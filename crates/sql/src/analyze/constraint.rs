//! Constraints of tables, the names that PostgreSQL would choose for what has none, and WITH
//! options.

use super::bound::Expr;
use super::node::{self, need};
use super::scope::{Binder, Clause};
use super::statement::*;
use super::table::Shape;
use super::utility::defs;
use super::walk;
use crate::catalog::durability::parse_max_loss;
use crate::catalog::{ConstraintKind, Persistence, RelationKind, TableDef};
use crate::error::{Result, SqlError, State};
use crate::exec::foreign::{Fit, fit};
use crate::types::Oid;
use pg_query::protobuf::{ConstrType, Constraint, DefElem};
use std::sync::Arc;

/// The longest identifier, in bytes.
const NAME_LENGTH: usize = 63;

/// Names that this statement has given out already.
#[derive(Default)]
pub(crate) struct Names {
    pub relations: Vec<String>,
    pub constraints: Vec<String>,
}

/// What a foreign key refers to. `table` None: the table that is being made.
struct ForeignTarget {
    table: Option<Oid>,
    columns: Vec<usize>,
    /// Names and types of the columns.
    kinds: Vec<(String, Oid)>,
}

impl Binder<'_> {
    /// A name for an index or sequence: `table_columns_label`, made unique.
    pub(crate) fn choose_relation_name(
        &self,
        shape: &mut Shape,
        middle: Option<&str>,
        label: &str,
    ) -> String {
        let taken = |name: &str, names: &Names| {
            names.relations.iter().any(|n| n == name)
                || shape.schema.is_some_and(|s| self.cx.catalog.find_in_schema(s, name).is_some())
        };
        let name = first_free(&shape.name, middle, label, |n| taken(n, &shape.names));
        shape.names.relations.push(name.clone());
        name
    }

    fn choose_constraint_name(
        &self,
        shape: &mut Shape,
        middle: Option<&str>,
        label: &str,
    ) -> String {
        let in_schema = |name: &str| {
            let mut tables = self.cx.catalog.tables.values();
            tables.any(|t| {
                Some(t.schema) == shape.schema && t.constraints.iter().any(|c| c.name == name)
            })
        };
        let taken = |name: &str, names: &Names| {
            names.constraints.iter().any(|n| n == name) || in_schema(name)
        };
        let name = first_free(&shape.name, middle, label, |n| taken(n, &shape.names));
        shape.names.constraints.push(name.clone());
        name
    }

    /// A name that the user gave, checked against the table's constraints.
    fn given_name(&self, c: &Constraint, shape: &mut Shape) -> Result<Option<String>> {
        if c.conname.is_empty() {
            return Ok(None);
        }
        let of_table = shape.existing.as_ref();
        let exists = shape.names.constraints.contains(&c.conname)
            || of_table.is_some_and(|t| t.constraints.iter().any(|k| k.name == c.conname));
        if exists {
            let check = c.contype() == ConstrType::ConstrCheck;
            let message = if check && shape.existing.is_none() {
                format!("check constraint \"{}\" already exists", c.conname)
            } else {
                format!(
                    "constraint \"{}\" for relation \"{}\" already exists",
                    c.conname, shape.name
                )
            };
            return Err(self.error(State::DUPLICATE_OBJECT, message, -1));
        }
        shape.names.constraints.push(c.conname.clone());
        Ok(Some(c.conname.clone()))
    }

    /// A constraint; `column`: of the column that it was written at.
    pub(crate) fn constraint_spec(
        &mut self,
        c: &Constraint,
        column: Option<&str>,
        shape: &mut Shape,
    ) -> Result<ConstraintSpec> {
        let (name, kind) = match c.contype() {
            ConstrType::ConstrCheck => self.check_constraint(c, shape)?,
            ConstrType::ConstrPrimary | ConstrType::ConstrUnique => {
                self.key_constraint(c, column, shape)?
            }
            ConstrType::ConstrForeign => self.foreign_constraint(c, column, shape)?,
            ConstrType::ConstrExclusion => {
                return Err(self.unsupported("an exclusion constraint", c.location));
            }
            ConstrType::ConstrNotnull => {
                return Err(self.unsupported("NOT NULL as a table constraint", c.location));
            }
            _ => return Err(self.unsupported("this constraint", c.location)),
        };
        Ok(ConstraintSpec {
            name,
            kind,
            deferrable: c.deferrable || c.initdeferred,
            initially_deferred: c.initdeferred,
            not_valid: c.skip_validation,
        })
    }

    fn check_constraint(
        &mut self,
        c: &Constraint,
        shape: &mut Shape,
    ) -> Result<(String, ConstraintSpecKind)> {
        if !c.is_enforced {
            return Err(self.unsupported("NOT ENFORCED", c.location));
        }
        let n = need(&c.raw_expr)?;
        let expr = self.quietly(shape.existing.is_some(), |b| {
            b.over_shape(shape, |b| {
                b.in_clause(Clause::Check, |b| {
                    let e = b.expr(n)?;
                    b.coerce_boolean(e, "CHECK", node::location(n))
                })
            })
        })?;
        let columns = read_columns(&expr);
        let middle = match columns.as_slice() {
            [one] => Some(shape.columns[*one].name.clone()),
            _ => None,
        };
        let name = match self.given_name(c, shape)? {
            Some(name) => name,
            None => self.choose_constraint_name(shape, middle.as_deref(), "check"),
        };
        let check = self.stored(expr, shape);
        Ok((name, ConstraintSpecKind::Check { check, columns, no_inherit: c.is_no_inherit }))
    }

    fn key_constraint(
        &mut self,
        c: &Constraint,
        column: Option<&str>,
        shape: &mut Shape,
    ) -> Result<(String, ConstraintSpecKind)> {
        let primary = c.contype() == ConstrType::ConstrPrimary;
        if c.without_overlaps {
            return Err(self.unsupported("WITHOUT OVERLAPS", c.location));
        }
        if !c.indexspace.is_empty() && c.indexspace != "pg_default" {
            return Err(self.unsupported("USING INDEX TABLESPACE", c.location));
        }
        if primary {
            if shape.has_primary {
                let message =
                    format!("multiple primary keys for table \"{}\" are not allowed", shape.name);
                let at = if shape.existing.is_some() { -1 } else { c.location };
                return Err(self.error(State::INVALID_TABLE_DEFINITION, message, at));
            }
            shape.has_primary = true;
        }
        if !c.indexname.is_empty() {
            return self.constraint_from_index(c, primary, shape);
        }
        let what = if primary { "primary key" } else { "unique" };
        let keys = match column {
            Some(name) if c.keys.is_empty() => vec![name],
            _ => node::names(&c.keys),
        };
        let columns = self.key_columns(&keys, what, shape, c.location)?;
        let include = self.key_columns(&node::names(&c.including), "unique", shape, c.location)?;
        for i in &columns {
            self.need_btree(shape.columns[*i].ty.oid)?;
        }
        let mut key = columns.clone();
        key.sort_unstable();
        shape.keys.push(key);
        if primary {
            shape.primary = Some(columns.clone());
        }
        let list = keys.join("_");
        let name = match self.given_name(c, shape)? {
            Some(name) => {
                let schema = shape.schema;
                let exists = schema
                    .is_some_and(|s| self.cx.catalog.find_in_schema(s, &name).is_some())
                    || shape.names.relations.contains(&name);
                if exists {
                    return Err(self.already_exists(&name));
                }
                shape.names.relations.push(name.clone());
                name
            }
            None if primary => self.choose_relation_name(shape, None, "pkey"),
            None => self.choose_relation_name(shape, Some(&list), "key"),
        };
        let options = self.index_options(&c.options)?;
        let kind = if primary {
            ConstraintSpecKind::Primary { columns, include, options }
        } else {
            let nulls_not_distinct = c.nulls_not_distinct;
            ConstraintSpecKind::Unique { columns, include, nulls_not_distinct, options }
        };
        Ok((name, kind))
    }

    fn constraint_from_index(
        &mut self,
        c: &Constraint,
        primary: bool,
        shape: &mut Shape,
    ) -> Result<(String, ConstraintSpecKind)> {
        let table = shape.existing.as_ref().ok_or_else(node::missing)?;
        let Some(index) = table.indexes.iter().find(|i| i.name == c.indexname).cloned() else {
            let message = format!("index \"{}\" does not exist", c.indexname);
            return Err(self.error(State::UNDEFINED_OBJECT, message, c.location));
        };
        let plain = index.unique
            && index.predicate.is_none()
            && index.columns.iter().all(|x| x.expr.is_none());
        if !plain {
            let message = format!("\"{}\" is not a unique index", c.indexname);
            return Err(self
                .error(State::WRONG_OBJECT_TYPE, message, c.location)
                .detail("Cannot create a primary key or unique constraint using such an index."));
        }
        let name = match self.given_name(c, shape)? {
            Some(name) => name,
            None => c.indexname.clone(),
        };
        Ok((name, ConstraintSpecKind::UsingIndex { index: index.oid, primary }))
    }

    fn key_columns(
        &self,
        names: &[&str],
        what: &str,
        shape: &Shape,
        location: i32,
    ) -> Result<Vec<usize>> {
        let mut out = Vec::with_capacity(names.len());
        for name in names {
            let Some(i) = shape.position(name) else {
                let message = format!("column \"{name}\" named in key does not exist");
                return Err(self.error(State::UNDEFINED_COLUMN, message, location));
            };
            if out.contains(&i) {
                let message = format!("column \"{name}\" appears twice in {what} constraint");
                return Err(self.error(State::DUPLICATE_COLUMN, message, location));
            }
            out.push(i);
        }
        Ok(out)
    }

    // ----- Foreign keys.

    fn foreign_constraint(
        &mut self,
        c: &Constraint,
        column: Option<&str>,
        shape: &mut Shape,
    ) -> Result<(String, ConstraintSpecKind)> {
        if !c.is_enforced {
            return Err(self.unsupported("NOT ENFORCED", c.location));
        }
        if c.fk_with_period || c.pk_with_period {
            return Err(self.unsupported("PERIOD", c.location));
        }
        if c.fk_matchtype == "p" {
            let message = "MATCH PARTIAL not yet implemented";
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, c.location));
        }
        let keys = match column {
            Some(name) if c.fk_attrs.is_empty() => vec![name],
            _ => node::names(&c.fk_attrs),
        };
        let columns = self.foreign_columns(&keys, shape)?;
        let target = self.foreign_target(c, shape)?;
        if columns.len() != target.columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(self.error(State::INVALID_FOREIGN_KEY, message, -1));
        }
        let list = keys.join("_");
        let name = match self.given_name(c, shape)? {
            Some(name) => name,
            None => self.choose_constraint_name(shape, Some(&list), "fkey"),
        };
        self.check_foreign_types(&name, &columns, &target, shape)?;
        let set_names = node::names(&c.fk_del_set_cols);
        let set_columns = self.foreign_columns(&set_names, shape)?;
        if let Some(at) = set_columns.iter().position(|c| !columns.contains(c)) {
            let message = format!(
                "column \"{}\" referenced in ON DELETE SET action must be part of foreign key",
                set_names[at]
            );
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, -1));
        }
        Ok((
            name,
            ConstraintSpecKind::Foreign {
                columns,
                referenced: target.table,
                referenced_columns: target.columns,
                on_update: foreign_action(&c.fk_upd_action),
                on_delete: foreign_action(&c.fk_del_action),
                set_columns,
                match_full: c.fk_matchtype == "f",
            },
        ))
    }

    /// The key that a foreign key refers to.
    fn foreign_target(&mut self, c: &Constraint, shape: &Shape) -> Result<ForeignTarget> {
        let target = c.pktable.as_ref().ok_or_else(node::missing)?;
        let names = node::names(&c.pk_attrs);
        let own = shape.existing.is_none()
            && target.relname == shape.name
            && (target.schemaname.is_empty()
                || self.schema_oid(&target.schemaname, -1)? == shape.schema);
        if !own {
            let table = self.named_table(target)?;
            self.check_referenced(&table, shape)?;
            let columns = self.referenced_columns(&table, &names)?;
            let kind = |i: &usize| (table.columns[*i].name.clone(), table.columns[*i].ty.oid);
            let kinds = columns.iter().map(kind).collect();
            return Ok(ForeignTarget { table: Some(table.oid), columns, kinds });
        }
        let columns = if names.is_empty() {
            shape.primary.clone().ok_or_else(|| self.no_primary(&shape.name))?
        } else {
            self.foreign_columns(&names, shape)?
        };
        let mut sorted = columns.clone();
        sorted.sort_unstable();
        if !shape.keys.contains(&sorted) {
            return Err(self.no_matching_key(&shape.name));
        }
        let kind = |i: &usize| (shape.columns[*i].name.clone(), shape.columns[*i].ty.oid);
        let kinds = columns.iter().map(kind).collect();
        Ok(ForeignTarget { table: None, columns, kinds })
    }

    fn no_primary(&self, table: &str) -> SqlError {
        let message = format!("there is no primary key for referenced table \"{table}\"");
        self.error(State::UNDEFINED_OBJECT, message, -1)
    }

    fn deferrable_key(&self, what: &str, table: &str) -> SqlError {
        let message = format!("cannot use a deferrable {what} for referenced table \"{table}\"");
        self.error(State::OBJECT_NOT_IN_PREREQUISITE_STATE, message, -1)
    }

    fn no_matching_key(&self, table: &str) -> SqlError {
        let message = format!(
            "there is no unique constraint matching given keys for referenced table \"{table}\""
        );
        self.error(State::INVALID_FOREIGN_KEY, message, -1)
    }

    fn check_foreign_types(
        &self,
        name: &str,
        columns: &[usize],
        target: &ForeignTarget,
        shape: &Shape,
    ) -> Result<()> {
        for (own, (other_name, other)) in columns.iter().zip(&target.kinds) {
            let ty = shape.columns[*own].ty.oid;
            match fit(*other, ty) {
                Fit::Yes => continue,
                Fit::Unsupported => {
                    let (own, other) = (self.type_text(ty), self.type_text(*other));
                    let what = format!("a foreign key from {own} to {other}");
                    return Err(self.unsupported(&what, -1));
                }
                Fit::No => {}
            }
            let message = format!("foreign key constraint \"{name}\" cannot be implemented");
            let detail = format!(
                "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                shape.columns[*own].name,
                other_name,
                self.type_text(ty),
                self.type_text(*other)
            );
            return Err(self.error(State::DATATYPE_MISMATCH, message, -1).detail(detail));
        }
        Ok(())
    }

    fn foreign_columns(&self, names: &[&str], shape: &Shape) -> Result<Vec<usize>> {
        let mut out = Vec::with_capacity(names.len());
        for name in names {
            let found = shape.position(name).ok_or_else(|| {
                let message = format!(
                    "column \"{name}\" referenced in foreign key constraint does not exist"
                );
                self.error(State::UNDEFINED_COLUMN, message, -1)
            })?;
            out.push(found);
        }
        Ok(out)
    }

    fn check_referenced(&self, table: &TableDef, shape: &Shape) -> Result<()> {
        if table.kind != RelationKind::Table {
            let message = format!("referenced relation \"{}\" is not a table", table.name);
            return Err(self.error(State::WRONG_OBJECT_TYPE, message, -1));
        }
        if table.system {
            return Err(super::dml::system_catalog(&table.name));
        }
        let message = match (shape.persistence, table.persistence) {
            (Persistence::Permanent, Persistence::Permanent) => return Ok(()),
            (Persistence::Permanent, _) => {
                "constraints on permanent tables may reference only permanent tables"
            }
            (Persistence::Unlogged, Persistence::Temporary) => {
                "constraints on unlogged tables may reference only permanent or unlogged tables"
            }
            (Persistence::Unlogged, _) => return Ok(()),
            (Persistence::Temporary, Persistence::Temporary) => return Ok(()),
            (Persistence::Temporary, _) => {
                "constraints on temporary tables may reference only temporary tables"
            }
        };
        Err(self.error(State::INVALID_TABLE_DEFINITION, message, -1))
    }

    /// Positions of the referenced columns, which must be some unique key.
    fn referenced_columns(&self, table: &Arc<TableDef>, names: &[&str]) -> Result<Vec<usize>> {
        let key = |c: &crate::catalog::ConstraintDef| -> Vec<usize> {
            c.columns.iter().map(|a| *a as usize - 1).collect()
        };
        if names.is_empty() {
            let primary =
                table.constraints.iter().find(|c| matches!(c.kind, ConstraintKind::Primary { .. }));
            let primary = primary.ok_or_else(|| self.no_primary(&table.name))?;
            if primary.deferrable {
                return Err(self.deferrable_key("primary key", &table.name));
            }
            return Ok(key(primary));
        }
        let mut out = Vec::with_capacity(names.len());
        for name in names {
            let Some(c) = table.column(name) else {
                let message = format!(
                    "column \"{name}\" referenced in foreign key constraint does not exist"
                );
                return Err(self.error(State::UNDEFINED_COLUMN, message, -1));
            };
            out.push(c.attnum as usize - 1);
        }
        let mut sorted = out.clone();
        sorted.sort_unstable();
        let mut put_off = false;
        let unique = table.indexes.iter().any(|i| {
            let keys = &i.columns[..i.key_columns.min(i.columns.len())];
            let mut have: Vec<usize> =
                keys.iter().filter(|c| c.attnum > 0).map(|c| c.attnum as usize - 1).collect();
            have.sort_unstable();
            let usable = i.unique && i.valid && i.predicate.is_none() && have == sorted;
            let usable = usable && keys.len() == have.len();
            put_off |= usable && !i.immediate;
            usable && i.immediate
        });
        if put_off && !unique {
            return Err(self.deferrable_key("unique constraint", &table.name));
        }
        if !unique {
            return Err(self.no_matching_key(&table.name));
        }
        Ok(out)
    }

    // ----- WITH options.

    pub(crate) fn table_options(&self, list: &[node::Boxed]) -> Result<Vec<(String, String)>> {
        self.options(list, &["fillfactor", "durability", "max_loss"], KNOWN_TABLE_OPTIONS)
    }

    pub(crate) fn index_options(&self, list: &[node::Boxed]) -> Result<Vec<(String, String)>> {
        self.options(list, &["fillfactor"], &["deduplicate_items", "buffering", "fastupdate"])
    }

    fn options(
        &self,
        list: &[node::Boxed],
        supported: &[&str],
        known: &[&str],
    ) -> Result<Vec<(String, String)>> {
        let mut out: Vec<(String, String)> = Vec::new();
        for d in defs(list) {
            let name = d.defname.as_str();
            if !d.defnamespace.is_empty() {
                if d.defnamespace == "toast" {
                    let what = format!("storage parameter \"toast.{name}\"");
                    return Err(self.unsupported(&what, -1));
                }
                let message = format!("unrecognized parameter namespace \"{}\"", d.defnamespace);
                return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
            }
            if !supported.contains(&name) {
                if known.contains(&name) {
                    let what = format!("storage parameter \"{name}\"");
                    return Err(self.unsupported(&what, -1));
                }
                let message = format!("unrecognized parameter \"{name}\"");
                return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
            }
            if out.iter().any(|o| o.0 == name) {
                let message = format!("parameter \"{name}\" specified more than once");
                return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
            }
            out.push((name.to_owned(), self.option_value(d)?));
        }
        Ok(out)
    }

    fn option_value(&self, d: &DefElem) -> Result<String> {
        let value = node::def_text(d).unwrap_or_else(|| "true".into());
        let invalid = |m: String| self.error(State::INVALID_PARAMETER_VALUE, m, -1);
        match d.defname.as_str() {
            "fillfactor" => {
                let Ok(n) = value.parse::<i64>() else {
                    let message =
                        format!("invalid value for integer option \"fillfactor\": {value}");
                    return Err(invalid(message));
                };
                if !(10..=100).contains(&n) {
                    let message = format!("value {value} out of bounds for option \"fillfactor\"");
                    return Err(
                        invalid(message).detail("Valid values are between \"10\" and \"100\".")
                    );
                }
            }
            "durability" if !matches!(value.as_str(), "sync" | "async" | "inherit") => {
                let message = format!("invalid value for enum option \"durability\": {value}");
                return Err(invalid(message)
                    .detail("Valid values are \"sync\", \"async\", and \"inherit\"."));
            }
            "max_loss" => {
                parse_max_loss(&value)?;
            }
            _ => {}
        }
        Ok(value)
    }

    pub(crate) fn option_names(&self, list: &[node::Boxed]) -> Vec<String> {
        defs(list).map(|d| d.defname.clone()).collect()
    }
}

/// Storage parameters of PostgreSQL's tables that have no meaning here.
const KNOWN_TABLE_OPTIONS: &[&str] = &[
    "autovacuum_enabled",
    "autovacuum_analyze_scale_factor",
    "autovacuum_analyze_threshold",
    "autovacuum_freeze_max_age",
    "autovacuum_freeze_min_age",
    "autovacuum_freeze_table_age",
    "autovacuum_multixact_freeze_max_age",
    "autovacuum_multixact_freeze_min_age",
    "autovacuum_multixact_freeze_table_age",
    "autovacuum_vacuum_cost_delay",
    "autovacuum_vacuum_cost_limit",
    "autovacuum_vacuum_insert_scale_factor",
    "autovacuum_vacuum_insert_threshold",
    "autovacuum_vacuum_scale_factor",
    "autovacuum_vacuum_threshold",
    "log_autovacuum_min_duration",
    "parallel_workers",
    "toast_tuple_target",
    "user_catalog_table",
    "vacuum_index_cleanup",
    "vacuum_truncate",
];

fn foreign_action(code: &str) -> ForeignAction {
    match code {
        "r" => ForeignAction::Restrict,
        "c" => ForeignAction::Cascade,
        "n" => ForeignAction::SetNull,
        "d" => ForeignAction::SetDefault,
        _ => ForeignAction::NoAction,
    }
}

/// Positions of the columns that an expression over one row reads.
pub(crate) fn read_columns(e: &Expr) -> Vec<usize> {
    let mut out = Vec::new();
    walk::visit(e, 0, &mut |e, depth| {
        if let Expr::Var(v) = e
            && v.level == depth
            && let Ok(i) = usize::try_from(v.col)
            && !out.contains(&i)
        {
            out.push(i);
        }
        true
    });
    out.sort_unstable();
    out
}

/// `name1_name2_label`, shortened to fit, then with numbers until it is free.
fn first_free(
    name1: &str,
    name2: Option<&str>,
    label: &str,
    taken: impl Fn(&str) -> bool,
) -> String {
    let mut pass = 0;
    loop {
        let numbered = if pass == 0 { label.to_owned() } else { format!("{label}{pass}") };
        let name = object_name(name1, name2, &numbered);
        if !taken(&name) {
            return name;
        }
        pass += 1;
    }
}

/// Joins the parts, taking from the longer of the first two what is too much.
fn object_name(name1: &str, name2: Option<&str>, label: &str) -> String {
    let overhead = label.len() + 1 + usize::from(name2.is_some());
    let room = NAME_LENGTH.saturating_sub(overhead);
    let (mut a, mut b) = (name1.len(), name2.map_or(0, str::len));
    while a + b > room {
        if a > b { a -= 1 } else { b -= 1 }
    }
    let cut = |s: &str, mut n: usize| {
        while !s.is_char_boundary(n) {
            n -= 1;
        }
        s[..n].to_owned()
    };
    let mut out = cut(name1, a);
    if let Some(name2) = name2 {
        out.push('_');
        out.push_str(&cut(name2, b));
    }
    out.push('_');
    out.push_str(label);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_like_postgresql_does() {
        assert_eq!(object_name("t", Some("a"), "key"), "t_a_key");
        let long = "x".repeat(70);
        assert_eq!(object_name(&long, None, "pkey").len(), NAME_LENGTH);
        let name = object_name(&long, Some("abc"), "fkey");
        assert!(name.ends_with("_abc_fkey") && name.len() == NAME_LENGTH);
        assert_eq!(first_free("t", Some("a"), "key", |n| n == "t_a_key"), "t_a_key1");
    }
}
