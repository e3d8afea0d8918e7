//! What PostgreSQL's catalog functions say: definitions as SQL, visibility, comments, sizes.

use super::rows::system_relation;
use super::{CatalogSnapshot, ConstraintDef, ConstraintKind, IndexDef, RelationKind, TableDef};
use crate::analyze::quote::quote_ident;
use crate::error::{Result, SqlError, State};
use crate::functions;
use crate::types::{self, Datum, Oid};
use inkling_storage::engine::Engine;
use inkling_storage::ids::{Fork, RelId};
use inkling_storage::txn::{IsolationLevel, Transaction, TxnSession};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

/// The catalog as a session sees it.
pub struct View<'a> {
    pub catalog: &'a Arc<CatalogSnapshot>,
    /// Schemas in search order.
    pub path: &'a [Oid],
    /// What pg_temp means.
    pub temp: Option<Oid>,
    pub engine: &'a Arc<Engine>,
}

fn oid_arg(args: &[Datum], at: usize) -> Oid {
    match args.get(at) {
        Some(Datum::Oid(v)) => Oid(*v),
        Some(Datum::Int4(v)) => Oid(*v as u32),
        Some(Datum::Int8(v)) => Oid(*v as u32),
        _ => Oid::INVALID,
    }
}

fn text_arg(args: &[Datum], at: usize) -> &str {
    match args.get(at) {
        Some(Datum::Text(t)) => t,
        _ => "",
    }
}

fn optional(text: Option<String>) -> Datum {
    text.map_or(Datum::Null, Datum::text)
}

/// Cuts `a.b."C d"` into its parts, folded to lower case where they are not in quotes.
fn split_name(text: &str) -> Result<Vec<String>> {
    let bad = || SqlError::new(State::INVALID_NAME, format!("invalid name syntax: \"{text}\""));
    let mut parts = Vec::new();
    let mut rest = text.trim();
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = quoted.find('"').ok_or_else(bad)?;
                (quoted[..end].to_owned(), &quoted[end + 1..])
            }
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].trim().to_ascii_lowercase(), &rest[end..])
            }
        };
        if part.is_empty() {
            return Err(bad());
        }
        parts.push(part);
        match after.trim_start().strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None if after.trim().is_empty() => return Ok(parts),
            None => return Err(bad()),
        }
    }
}

/// A built-in type by catalog name or SQL spelling, with or without pg_catalog.
fn find_type(text: &str) -> Result<Oid> {
    let name = text.trim().to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let alias = match name {
        "int" => "integer",
        "varchar" => "character varying",
        "decimal" => "numeric",
        "float" => "double precision",
        other => other,
    };
    let found = types::info_by_name(name)
        .or_else(|| types::all().find(|t| types::format_type(t.oid, -1) == alias));
    found.map(|t| t.oid).ok_or_else(|| {
        SqlError::new(State::UNDEFINED_OBJECT, format!("type \"{text}\" does not exist"))
    })
}

/// A name as SQL writes it: in quotes where it needs them.
fn quote_identifier(name: &str) -> String {
    quote_ident(name).into_owned()
}

/// Answers a scalar catalog function; `None`: not one of these.
pub fn call(view: &View<'_>, name: &str, args: &[Datum]) -> Result<Option<Datum>> {
    if let Some(answer) = reg_call(view, name, args)? {
        return Ok(Some(answer));
    }
    let oid = oid_arg(args, 0);
    Ok(Some(match name {
        "pg_get_expr" => match args.first() {
            Some(Datum::Text(t)) => Datum::text(&*view.shown(t)),
            _ => Datum::Null,
        },
        "pg_get_serial_sequence" => view.serial_sequence(text_arg(args, 0), text_arg(args, 1))?,
        "pg_get_indexdef" => view.index_definition(oid, args),
        "pg_get_constraintdef" => view.constraint_definition(oid),
        "pg_get_viewdef" => view.view_definition(args),
        "pg_get_userbyid" => match view.catalog.roles.get(&oid) {
            Some(role) => Datum::text(role.name.as_str()),
            None => Datum::text(format!("unknown (OID={oid})")),
        },
        "pg_table_is_visible" => Datum::Bool(view.is_visible(oid)),
        _ if name.ends_with("_is_visible") => Datum::Bool(true),
        "obj_description" => {
            let class = match text_arg(args, 1) {
                "" => None,
                class => view.class_oid(class),
            };
            view.description(oid, class, 0)?
        }
        "col_description" => {
            let column = if let Some(Datum::Int4(v)) = args.get(1) { *v } else { 0 };
            view.description(oid, Some(Oid::PG_CLASS), column)?
        }
        "shobj_description" => Datum::Null,
        "pg_relation_size" => view.relation_size(oid, args)?,
        "pg_table_size" => Datum::Int8(view.table_size(oid)?),
        "pg_indexes_size" => Datum::Int8(view.indexes_size(oid)?),
        "pg_total_relation_size" => Datum::Int8(view.table_size(oid)? + view.indexes_size(oid)?),
        "pg_database_size" => Datum::Int8(view.database_size()?),
        "pg_relation_filenode" => match view.rel_of(oid) {
            Some(rel) => Datum::Oid(rel.raw()),
            None => Datum::Null,
        },
        "pg_get_function_arguments" | "pg_get_function_identity_arguments" => {
            optional(functions::by_oid(oid).map(|f| {
                let types = f.args.iter().map(|t| types::format_type(*t, -1));
                types.collect::<Vec<_>>().join(", ")
            }))
        }
        "pg_get_function_result" => optional(functions::by_oid(oid).map(|f| {
            let set = if f.is_set() { "SETOF " } else { "" };
            format!("{set}{}", types::format_type(f.result, -1))
        })),
        "pg_get_partkeydef"
        | "pg_get_triggerdef"
        | "pg_get_ruledef"
        | "pg_get_statisticsobjdef_columns"
        | "pg_get_functiondef"
        | "pg_get_partition_constraintdef"
        | "pg_get_replica_identity_index"
        | "pg_tablespace_location"
        | "pg_get_function_sqlbody"
        | "pg_get_statisticsobjdef" => Datum::Null,
        "pg_relation_is_publishable" => Datum::Bool(oid >= Oid::FIRST_USER),
        "pg_stat_get_live_tuples" => {
            let rows = view.catalog.table(oid).map_or(0.0, |t| t.reltuples.max(0.0));
            Datum::Int8(rows as i64)
        }
        _ => return Ok(None),
    }))
}

/// Names to OIDs and back: regclassin, regtypeout, to_regclass, ...
fn reg_call(view: &View<'_>, name: &str, args: &[Datum]) -> Result<Option<Datum>> {
    let (text, oid) = (text_arg(args, 0), oid_arg(args, 0));
    let number = || text.parse::<u32>().ok().or((text == "-").then_some(0)).map(Datum::Oid);
    Ok(Some(match name {
        "regclassin" | "regclass" => match number() {
            Some(d) => d,
            None => Datum::Oid(view.find_class(text)?.ok_or_else(|| no_relation(text))?.0),
        },
        "to_regclass" => view.find_class(text)?.map_or(Datum::Null, |o| Datum::Oid(o.0)),
        "regclassout" => Datum::text(view.class_name(oid)),
        "regtypein" => match number() {
            Some(d) => d,
            None => Datum::Oid(find_type(text)?.0),
        },
        "to_regtype" => find_type(text).map_or(Datum::Null, |t| Datum::Oid(t.0)),
        "regtypeout" => match oid.0 {
            0 => Datum::text("-"),
            _ => Datum::text(types::format_type(oid, -1)),
        },
        "regprocin" | "regprocedurein" => match number() {
            Some(d) => d,
            None => Datum::Oid(find_function(text)?),
        },
        "to_regproc" => find_function(text).map_or(Datum::Null, Datum::Oid),
        "regprocout" => match (oid.0, functions::by_oid(oid)) {
            (0, _) => Datum::text("-"),
            (_, Some(f)) => Datum::text(f.name),
            (n, None) => Datum::text(n.to_string()),
        },
        "regprocedureout" => match (oid.0, functions::by_oid(oid)) {
            (0, _) => Datum::text("-"),
            (_, Some(f)) => {
                let args: Vec<String> = f.args.iter().map(|t| types::format_type(*t, -1)).collect();
                Datum::text(format!("{}({})", f.name, args.join(",")))
            }
            (n, None) => Datum::text(n.to_string()),
        },
        "regoperout" | "regoperatorout" => match (oid.0, functions::operator_by_oid(oid)) {
            (0, _) => Datum::text("0"),
            (_, Some(o)) => Datum::text(o.name),
            (n, None) => Datum::text(n.to_string()),
        },
        _ => return reg_object_call(view, name, args),
    }))
}

/// The same for roles, schemas and collations.
fn reg_object_call(view: &View<'_>, name: &str, args: &[Datum]) -> Result<Option<Datum>> {
    let (text, oid) = (text_arg(args, 0), oid_arg(args, 0));
    let number = || text.parse::<u32>().ok().or((text == "-").then_some(0)).map(Datum::Oid);
    Ok(Some(match name {
        "regrolein" => match number() {
            Some(d) => d,
            None => named(view.catalog.role_names.get(text), "role", text)?,
        },
        "to_regrole" => view.catalog.role_names.get(text).map_or(Datum::Null, |o| Datum::Oid(o.0)),
        "regroleout" => match view.catalog.roles.get(&oid) {
            Some(r) => Datum::text(quote_identifier(&r.name)),
            None if oid.0 == 0 => Datum::text("-"),
            None => Datum::text(oid.to_string()),
        },
        "regnamespacein" => match number() {
            Some(d) => d,
            None => named(view.catalog.schema_names.get(text), "schema", text)?,
        },
        "to_regnamespace" => {
            view.catalog.schema_names.get(text).map_or(Datum::Null, |o| Datum::Oid(o.0))
        }
        "regnamespaceout" => match view.catalog.schemas.get(&oid) {
            Some(s) => Datum::text(quote_identifier(&s.name)),
            None if oid.0 == 0 => Datum::text("-"),
            None => Datum::text(oid.to_string()),
        },
        "regcollationout" => match oid {
            Oid::DEFAULT_COLLATION => Datum::text("\"default\""),
            Oid::C_COLLATION => Datum::text("\"C\""),
            Oid(0) => Datum::text("-"),
            other => Datum::text(other.to_string()),
        },
        _ => return Ok(None),
    }))
}

fn named(found: Option<&Oid>, noun: &str, name: &str) -> Result<Datum> {
    found.map(|o| Datum::Oid(o.0)).ok_or_else(|| {
        SqlError::new(State::UNDEFINED_OBJECT, format!("{noun} \"{name}\" does not exist"))
    })
}

fn no_relation(name: &str) -> SqlError {
    SqlError::new(State::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

/// A function by name, with or without schema and argument list.
fn find_function(text: &str) -> Result<u32> {
    let name = text.strip_prefix("pg_catalog.").unwrap_or(text);
    let name = name.split('(').next().unwrap_or(name).trim();
    match functions::lookup(name) {
        [] => Err(SqlError::new(
            State::UNDEFINED_FUNCTION,
            format!("function \"{text}\" does not exist"),
        )),
        [one] => Ok(one.oid.0),
        [first, ..] if text.contains('(') => Ok(first.oid.0),
        _ => Err(SqlError::new(
            State::AMBIGUOUS_FUNCTION,
            format!("more than one function named \"{text}\""),
        )),
    }
}

impl View<'_> {
    fn class_oid(&self, name: &str) -> Option<Oid> {
        self.catalog.find_in_schema(Oid::PG_CATALOG_SCHEMA, name)
    }

    /// `name`, `schema.name`, with quotes where they are.
    fn find_class(&self, text: &str) -> Result<Option<Oid>> {
        let parts = split_name(text)?;
        Ok(match parts.as_slice() {
            [name] => self.catalog.find_relation(self.path, name),
            [schema, name] | [_, schema, name] => {
                let schema = match schema.as_str() {
                    "pg_temp" => self.temp,
                    schema => self.catalog.schema_names.get(schema).copied(),
                };
                schema.and_then(|s| self.catalog.find_in_schema(s, name))
            }
            _ => None,
        })
    }

    fn name_of(&self, oid: Oid) -> Option<(Oid, &str)> {
        match (self.catalog.tables.get(&oid), self.catalog.indexes.get(&oid)) {
            (Some(t), _) => Some((t.schema, &t.name)),
            (None, Some(i)) => Some((i.schema, &i.name)),
            (None, None) => None,
        }
    }

    fn is_visible(&self, oid: Oid) -> bool {
        self.name_of(oid)
            .is_some_and(|(_, name)| self.catalog.find_relation(self.path, name) == Some(oid))
    }

    fn class_name(&self, oid: Oid) -> String {
        let Some((schema, name)) = self.name_of(oid) else {
            return if oid.0 == 0 { "-".to_owned() } else { oid.to_string() };
        };
        match self.is_visible(oid) {
            true => quote_identifier(name),
            false => self.qualified(schema, name),
        }
    }

    /// A stored expression with today's names.
    fn shown<'t>(&self, text: &'t str) -> Cow<'t, str> {
        super::stored_names::shown(text, |oid| self.name_of(oid).map(|_| self.class_name(oid)))
    }

    fn serial_sequence(&self, table: &str, column: &str) -> Result<Datum> {
        let found = self.find_class(table)?.and_then(|oid| self.catalog.table(oid));
        let table = found.ok_or_else(|| no_relation(table))?;
        let column = table.column(column).ok_or_else(|| {
            let text = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            SqlError::new(State::UNDEFINED_COLUMN, text)
        })?;
        let owned = |t: &&Arc<TableDef>| {
            let owner = t.sequence.and_then(|def| def.owner);
            owner.is_some_and(|o| (o.table, o.attnum) == (table.oid, column.attnum))
        };
        // The oldest, should there be several.
        let sequence = self.catalog.tables.values().filter(owned).min_by_key(|t| t.oid);
        Ok(optional(sequence.map(|s| self.qualified(s.schema, &s.name))))
    }

    fn qualified(&self, schema: Oid, name: &str) -> String {
        let schema = self.catalog.schemas.get(&schema).map_or("?", |s| s.name.as_str());
        format!("{}.{}", quote_identifier(schema), quote_identifier(name))
    }

    fn index_column(&self, index: &IndexDef, at: usize) -> Option<String> {
        let column = index.columns.get(at)?;
        let table = self.catalog.table(index.table)?;
        Some(match &column.expr {
            Some(text) if text.ends_with(')') && !text.starts_with('(') => text.clone(),
            Some(text) => format!("({text})"),
            None => quote_identifier(&table.columns.get(column.attnum as usize - 1)?.name),
        })
    }

    fn index_definition(&self, oid: Oid, args: &[Datum]) -> Datum {
        let Some(index) = self.catalog.indexes.get(&oid) else { return Datum::Null };
        if let Some(Datum::Int4(column)) = args.get(1)
            && *column > 0
        {
            return optional(self.index_column(index, *column as usize - 1));
        }
        let Some(table) = self.catalog.table(index.table) else { return Datum::Null };
        let column = |at: usize| {
            let mut text = self.index_column(index, at).unwrap_or_default();
            let c = &index.columns[at];
            if c.descending {
                text.push_str(" DESC");
            }
            if c.nulls_first != c.descending {
                text.push_str(if c.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
            }
            text
        };
        let keys: Vec<String> = (0..index.key_columns).map(column).collect();
        let mut text = format!(
            "CREATE {}INDEX {} ON {} USING btree ({})",
            if index.unique { "UNIQUE " } else { "" },
            quote_identifier(&index.name),
            self.qualified(table.schema, &table.name),
            keys.join(", ")
        );
        if index.columns.len() > index.key_columns {
            let included: Vec<String> = (index.key_columns..index.columns.len())
                .filter_map(|at| self.index_column(index, at))
                .collect();
            let _infallible = write!(text, " INCLUDE ({})", included.join(", "));
        }
        if index.nulls_not_distinct {
            text.push_str(" NULLS NOT DISTINCT");
        }
        if index.fillfactor != 90 {
            let _infallible = write!(text, " WITH (fillfactor='{}')", index.fillfactor);
        }
        if let Some(predicate) = &index.predicate {
            let _infallible = write!(text, " WHERE {}", self.shown(predicate));
        }
        Datum::text(text)
    }

    fn column_list(&self, table: &TableDef, attnums: &[i16]) -> String {
        let names = attnums.iter().filter_map(|n| table.columns.get(*n as usize - 1));
        names.map(|c| quote_identifier(&c.name)).collect::<Vec<_>>().join(", ")
    }

    fn constraint_definition(&self, oid: Oid) -> Datum {
        let found = self
            .catalog
            .tables
            .values()
            .find_map(|t| t.constraints.iter().find(|c| c.oid == oid).map(|c| (t, c)));
        let Some((table, constraint)) = found else { return Datum::Null };
        let columns = self.column_list(table, &constraint.columns);
        let mut text = match &constraint.kind {
            ConstraintKind::Primary { .. } => format!("PRIMARY KEY ({columns})"),
            ConstraintKind::Unique { index } => {
                let distinct =
                    self.catalog.indexes.get(index).is_some_and(|i| i.nulls_not_distinct);
                let clause = if distinct { " NULLS NOT DISTINCT" } else { "" };
                format!("UNIQUE{clause} ({columns})")
            }
            ConstraintKind::Check { expr } => format!("CHECK ({})", self.shown(expr)),
            ConstraintKind::Foreign { .. } => self.foreign_key(table, constraint, &columns),
        };
        if constraint.deferrable {
            text.push_str(" DEFERRABLE");
        }
        if constraint.deferred {
            text.push_str(" INITIALLY DEFERRED");
        }
        if !constraint.validated {
            text.push_str(" NOT VALID");
        }
        Datum::text(text)
    }

    /// `FOREIGN KEY (a) REFERENCES t(id) ...`, as far as it is peculiar to foreign keys.
    fn foreign_key(&self, table: &TableDef, constraint: &ConstraintDef, columns: &str) -> String {
        let ConstraintKind::Foreign {
            referenced,
            referenced_columns,
            on_update,
            on_delete,
            match_type,
            set_columns,
            ..
        } = &constraint.kind
        else {
            return String::new();
        };
        let other = self.catalog.table(*referenced);
        let (name, keys) = other.map_or_else(Default::default, |t| {
            (self.class_name(t.oid), self.column_list(t, referenced_columns))
        });
        let mut text = format!("FOREIGN KEY ({columns}) REFERENCES {name}({keys})");
        if *match_type == 'f' {
            text.push_str(" MATCH FULL");
        }
        for (event, code) in [("UPDATE", on_update), ("DELETE", on_delete)] {
            let action = match code {
                'r' => "RESTRICT",
                'c' => "CASCADE",
                'n' => "SET NULL",
                'd' => "SET DEFAULT",
                _ => continue,
            };
            let _infallible = write!(text, " ON {event} {action}");
        }
        if !set_columns.is_empty() {
            let _infallible = write!(text, " ({})", self.column_list(table, set_columns));
        }
        text
    }

    fn view_definition(&self, args: &[Datum]) -> Datum {
        let oid = match args.first() {
            Some(Datum::Text(name)) => self.find_class(name).ok().flatten(),
            _ => Some(oid_arg(args, 0)),
        };
        let table = oid.and_then(|o| self.catalog.table(o));
        let text = table.and_then(|t| t.view.as_ref());
        optional(text.map(|text| format!(" {};", self.shown(text))))
    }

    fn rel_of(&self, oid: Oid) -> Option<RelId> {
        match (self.catalog.tables.get(&oid), self.catalog.indexes.get(&oid)) {
            (Some(t), _) if t.kind != RelationKind::View => Some(t.rel),
            (None, Some(i)) => Some(i.rel),
            _ => None,
        }
    }

    fn fork_size(&self, rel: RelId, fork: Fork) -> Result<i64> {
        let blocks = self.engine.pool.block_count(rel, fork).unwrap_or(0);
        Ok(i64::from(blocks) * 8192)
    }

    fn relation_size(&self, oid: Oid, args: &[Datum]) -> Result<Datum> {
        let fork = match text_arg(args, 1) {
            "" | "main" => Fork::Main,
            "fsm" => Fork::Fsm,
            "vm" => Fork::Vm,
            "init" => Fork::Init,
            other => {
                return Err(SqlError::new(
                    State::INVALID_PARAMETER_VALUE,
                    format!("invalid fork name: \"{other}\""),
                )
                .hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\"."));
            }
        };
        match self.rel_of(oid) {
            Some(rel) => Ok(Datum::Int8(self.fork_size(rel, fork)?)),
            None => Ok(Datum::Null),
        }
    }

    fn all_forks(&self, rel: RelId) -> Result<i64> {
        [Fork::Main, Fork::Fsm, Fork::Vm, Fork::Init].iter().map(|f| self.fork_size(rel, *f)).sum()
    }

    fn table_size(&self, oid: Oid) -> Result<i64> {
        let toast = self.catalog.table(oid).and_then(|t| t.toast);
        let own = self.rel_of(oid).map_or(Ok(0), |rel| self.all_forks(rel))?;
        Ok(own + toast.map_or(Ok(0), |(rel, _)| self.all_forks(rel))?)
    }

    fn indexes_size(&self, oid: Oid) -> Result<i64> {
        let Some(table) = self.catalog.table(oid) else { return Ok(0) };
        table.indexes.iter().map(|i| self.all_forks(i.rel)).sum()
    }

    fn database_size(&self) -> Result<i64> {
        let mut total = 0;
        for oid in self.catalog.tables.keys() {
            total += self.table_size(*oid)? + self.indexes_size(*oid)?;
        }
        Ok(total)
    }

    fn description(&self, object: Oid, class: Option<Oid>, column: i32) -> Result<Datum> {
        let session = TxnSession::new(self.engine.as_ref(), 0);
        let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, true);
        let rows = super::store::scan(self.engine, &mut tx, system_relation(Oid::PG_DESCRIPTION));
        tx.abort(self.engine.as_ref());
        let found = rows?.into_iter().find(|(_, row)| {
            row.get_oid("objoid") == object
                && class.is_none_or(|c| row.get_oid("classoid") == c)
                && row.get_int("objsubid") == i64::from(column)
        });
        Ok(optional(found.map(|(_, row)| row.get_text("description").to_owned())))
    }
}
