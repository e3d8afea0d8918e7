//! Schemas, views, roles, names and comments.

use super::DdlContext;
use crate::analyze::statement::{
    AlterRole, Comment, CreateRole, CreateSchema, CreateView, DropRole, ObjectKind, Rename,
    RoleOptions,
};
use crate::catalog::bootstrap::namespace_row;
use crate::catalog::describe::{NewColumn, NewRelation, attribute_row};
use crate::catalog::rows::{CatalogRow, system_relation};
use crate::catalog::{RelationKind, role_settings, scram};
use crate::error::{Result, Severity, SqlError, State};
use crate::types::{self, Datum, Oid};
use inkling_storage::ids::{RelId, Xid};

pub fn create_schema(cx: &mut DdlContext<'_>, c: &CreateSchema) -> Result<()> {
    if cx.catalog.schema_names.contains_key(&c.name) {
        let text = format!("schema \"{}\" already exists", c.name);
        if !c.if_not_exists {
            return Err(SqlError::new(State::DUPLICATE_SCHEMA, text));
        }
        let notice = SqlError::new(State::DUPLICATE_SCHEMA, format!("{text}, skipping"));
        cx.notices.push(notice.severity(Severity::Notice));
        return Ok(());
    }
    if c.name.starts_with("pg_") {
        return Err(SqlError::new(
            State::RESERVED_NAME,
            format!("unacceptable schema name \"{}\"", c.name),
        )
        .detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    let row = namespace_row(cx.new_oid()?, &c.name, c.owner);
    cx.insert(vec![row])
}

pub fn create_view(cx: &mut DdlContext<'_>, c: &CreateView) -> Result<()> {
    let schema = cx.place(c.schema)?;
    cx.notices.extend(c.notices.iter().cloned());
    let oid = match cx.catalog.find_in_schema(schema, &c.name) {
        Some(old) => {
            check_replaceable(cx, c, old)?;
            cx.delete_where(Oid::PG_REWRITE, |r| r.get_oid("ev_class") == old)?;
            cx.delete_where(Oid::PG_DEPEND, |r| r.get_oid("objid") == old)?;
            let count = c.columns.len() as i16;
            cx.change(Oid::PG_CLASS, old, |row| row.put("relnatts", Datum::Int2(count)))?;
            old
        }
        None => cx.new_oid()?,
    };
    let existing = cx.catalog.table(oid).map_or(0, |t| t.columns.len());
    let mut rows = view_rows(cx, oid, schema, c, existing)?;
    // Relations that it reads, and sequences and others that it names.
    let mut references = c.depends_on.clone();
    for named in crate::catalog::stored_names::relations(&c.text) {
        if !references.contains(&named) {
            references.push(named);
        }
    }
    for reference in &references {
        rows.push(
            CatalogRow::new(system_relation(Oid::PG_DEPEND))
                .oid("classid", Oid::PG_CLASS)
                .oid("objid", oid)
                .oid("refclassid", Oid::PG_CLASS)
                .oid("refobjid", *reference)
                .char("deptype", 'n'),
        );
    }
    cx.insert(rows)?;
    cx.next_command()
}

/// CREATE OR REPLACE may only append columns, as in PostgreSQL.
fn check_replaceable(cx: &DdlContext<'_>, c: &CreateView, old: Oid) -> Result<()> {
    let table = cx.catalog.table(old).filter(|t| t.kind == RelationKind::View);
    if !c.replace {
        return Err(super::already_exists(&c.name));
    }
    let Some(table) = table else {
        return Err(SqlError::new(
            State::WRONG_OBJECT_TYPE,
            format!("\"{}\" is not a view", c.name),
        ));
    };
    if c.columns.len() < table.columns.len() {
        return Err(SqlError::new(
            State::INVALID_TABLE_DEFINITION,
            "cannot drop columns from view",
        ));
    }
    for (new, old) in c.columns.iter().zip(&table.columns) {
        if new.name != old.name {
            return Err(SqlError::new(
                State::INVALID_TABLE_DEFINITION,
                format!("cannot change name of view column \"{}\" to \"{}\"", old.name, new.name),
            )
            .hint("Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead."));
        }
        if new.ty != old.ty {
            return Err(SqlError::new(
                State::INVALID_TABLE_DEFINITION,
                format!(
                    "cannot change data type of view column \"{}\" from {} to {}",
                    old.name,
                    types::format_type(old.ty.oid, old.ty.typmod),
                    types::format_type(new.ty.oid, new.ty.typmod)
                ),
            ));
        }
    }
    Ok(())
}

fn view_rows(
    cx: &DdlContext<'_>,
    oid: Oid,
    schema: Oid,
    c: &CreateView,
    existing: usize,
) -> Result<Vec<CatalogRow>> {
    let mut rows = Vec::new();
    if existing == 0 {
        let relation = NewRelation {
            oid,
            rel: RelId::INVALID,
            name: &c.name,
            schema,
            owner: cx.user,
            row_type: cx.new_oid()?,
            kind: 'v',
            persistence: super::persistence_char(c.persistence),
            toast: Oid::INVALID,
            shared: false,
            has_index: false,
            checks: 0,
            options: &c.options,
            frozen: Xid::INVALID,
        };
        rows.push(relation.class_row(c.columns.len()));
        rows.extend(relation.type_rows(cx.new_oid()?));
    }
    for (at, column) in c.columns.iter().enumerate().skip(existing) {
        let column = NewColumn {
            name: &column.name,
            ty: column.ty,
            collation: types::info(column.ty.oid).map_or(Oid::INVALID, |t| t.collation),
            not_null: false,
            has_default: false,
        };
        rows.push(attribute_row(oid, at as i16 + 1, &column));
    }
    rows.push(
        CatalogRow::new(system_relation(Oid::PG_REWRITE))
            .oid("oid", cx.new_oid()?)
            .name("rulename", "_RETURN")
            .oid("ev_class", oid)
            .char("ev_type", '1')
            .char("ev_enabled", 'O')
            .bool("is_instead", true)
            .name("ev_qual", "<>")
            .name("ev_action", &c.text),
    );
    Ok(rows)
}

pub fn rename(cx: &mut DdlContext<'_>, r: &Rename) -> Result<()> {
    let (oid, name) = (r.object.oid, r.new_name.as_str());
    match r.object.kind {
        ObjectKind::Table | ObjectKind::View | ObjectKind::Index | ObjectKind::Sequence => {
            let schema = match (cx.catalog.table(oid), cx.catalog.indexes.get(&oid)) {
                (Some(t), _) => t.schema,
                (None, Some(i)) => i.schema,
                (None, None) => return Err(super::gone(Oid::PG_CLASS, oid)),
            };
            cx.check_name_free(schema, name)?;
            cx.change(Oid::PG_CLASS, oid, |row| row.put("relname", Datum::text(name)))?;
            let row_type = cx.catalog.table(oid).map_or(Oid::INVALID, |t| t.row_type);
            if row_type.is_valid() {
                cx.change(Oid::PG_TYPE, row_type, |row| row.put("typname", Datum::text(name)))?;
            }
            rename_constraint_of(cx, oid, name)
        }
        ObjectKind::Column => rename_column(cx, oid, r.object.attnum, name),
        ObjectKind::Constraint => {
            let found = cx.find(Oid::PG_CONSTRAINT, |row| row.get_oid("oid") == oid)?;
            let index = found.first().map_or(Oid::INVALID, |(_, row)| row.get_oid("conindid"));
            cx.change(Oid::PG_CONSTRAINT, oid, |row| row.put("conname", Datum::text(name)))?;
            match index.is_valid() {
                true => cx.change(Oid::PG_CLASS, index, |r| r.put("relname", Datum::text(name))),
                false => Ok(()),
            }
        }
        ObjectKind::Schema => {
            cx.change(Oid::PG_NAMESPACE, oid, |row| row.put("nspname", Datum::text(name)))
        }
        ObjectKind::Role => {
            cx.change(Oid::PG_AUTHID, oid, |row| row.put("rolname", Datum::text(name)))
        }
        other => Err(SqlError::unsupported(format!("{} ... RENAME", other.alter_tag()))),
    }
}

/// The constraint behind an index goes by the index's name.
fn rename_constraint_of(cx: &mut DdlContext<'_>, index: Oid, name: &str) -> Result<()> {
    for (at, mut row) in cx.find(Oid::PG_CONSTRAINT, |r| r.get_oid("conindid") == index)? {
        row.put("conname", Datum::text(name));
        cx.update(at, row)?;
    }
    Ok(())
}

fn rename_column(cx: &mut DdlContext<'_>, table: Oid, attnum: i16, name: &str) -> Result<()> {
    if let Some(t) = cx.catalog.table(table)
        && t.column(name).is_some()
    {
        return Err(SqlError::new(
            State::DUPLICATE_COLUMN,
            format!("column \"{name}\" of relation \"{}\" already exists", t.name),
        ));
    }
    let reads = cx.find(Oid::PG_DEPEND, |row| {
        row.get_oid("refobjid") == table
            && row.get_oid("classid") == Oid::PG_CLASS
            && row.get_char("deptype") == 'n'
    })?;
    let stored = cx.catalog.table(table).is_some_and(|t| {
        t.constraints.iter().any(|c| matches!(c.kind, crate::catalog::ConstraintKind::Check { .. }))
            || t.indexes
                .iter()
                .any(|i| i.predicate.is_some() || i.columns.iter().any(|c| c.attnum == 0))
    });
    if !reads.is_empty() || stored {
        // Views, checks and index expressions keep text that names the column.
        return Err(SqlError::unsupported(
            "RENAME COLUMN of a column of a table with views, checks or index expressions",
        ));
    }
    let found = cx.find(Oid::PG_ATTRIBUTE, |row| {
        row.get_oid("attrelid") == table && row.get_int("attnum") == i64::from(attnum)
    })?;
    for (at, mut row) in found {
        row.put("attname", Datum::text(name));
        cx.update(at, row)?;
    }
    Ok(())
}

fn put_role_options(row: &mut CatalogRow, options: &RoleOptions) -> Result<()> {
    if options.valid_until.is_some() {
        return Err(SqlError::unsupported("VALID UNTIL"));
    }
    let flags = [
        ("rolsuper", options.superuser),
        ("rolcreatedb", options.create_db),
        ("rolcreaterole", options.create_role),
        ("rolinherit", options.inherit),
        ("rolcanlogin", options.login),
        ("rolreplication", options.replication),
        ("rolbypassrls", options.bypass_rls),
    ];
    for (column, value) in flags {
        if let Some(value) = value {
            row.put(column, Datum::Bool(value));
        }
    }
    if let Some(limit) = options.connection_limit {
        row.put("rolconnlimit", Datum::Int4(limit));
    }
    match &options.password {
        Some(Some(text)) => row.put("rolpassword", Datum::text(scram::verifier(text))),
        Some(None) => row.put("rolpassword", Datum::Null),
        None => {}
    }
    Ok(())
}

pub fn create_role(cx: &mut DdlContext<'_>, c: &CreateRole) -> Result<()> {
    if cx.catalog.role_names.contains_key(&c.name) {
        return Err(SqlError::new(
            State::DUPLICATE_OBJECT,
            format!("role \"{}\" already exists", c.name),
        ));
    }
    let mut row = CatalogRow::new(system_relation(Oid::PG_AUTHID))
        .oid("oid", cx.new_oid()?)
        .name("rolname", &c.name)
        .bool("rolinherit", true)
        .int4("rolconnlimit", -1);
    put_role_options(&mut row, &c.options)?;
    cx.insert(vec![row])
}

pub fn alter_role(cx: &mut DdlContext<'_>, a: &AlterRole) -> Result<()> {
    let mut outcome = Ok(());
    cx.change(Oid::PG_AUTHID, a.role, |row| outcome = put_role_options(row, &a.options))?;
    outcome
}

pub fn drop_role(cx: &mut DdlContext<'_>, d: &DropRole) -> Result<()> {
    cx.notices.extend(d.notices.iter().cloned());
    for role in &d.roles {
        let name = cx.catalog.roles.get(role).map_or_else(String::new, |r| r.name.clone());
        if *role == cx.user {
            return Err(SqlError::new(State::OBJECT_IN_USE, "current user cannot be dropped"));
        }
        let owns = cx.catalog.tables.values().find(|t| t.owner == *role);
        if *role == Oid::BOOTSTRAP_ROLE || owns.is_some() {
            let error = SqlError::new(
                State::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("role \"{name}\" cannot be dropped because some objects depend on it"),
            );
            return Err(match owns {
                Some(t) => error.detail(format!("owner of table {}", t.name)),
                None => error,
            });
        }
        cx.delete_where(Oid::PG_AUTHID, |r| r.get_oid("oid") == *role)?;
        role_settings::drop_role(cx, *role)?;
    }
    Ok(())
}

pub fn comment(cx: &mut DdlContext<'_>, c: &Comment) -> Result<()> {
    let (class, sub) = match c.object.kind {
        ObjectKind::Table | ObjectKind::View | ObjectKind::Index | ObjectKind::Sequence => {
            (Oid::PG_CLASS, 0)
        }
        ObjectKind::Column => (Oid::PG_CLASS, i64::from(c.object.attnum)),
        ObjectKind::Schema => (Oid::PG_NAMESPACE, 0),
        ObjectKind::Constraint => (Oid::PG_CONSTRAINT, 0),
        ObjectKind::Role | ObjectKind::Database => {
            return Err(SqlError::unsupported("COMMENT ON a shared object"));
        }
    };
    cx.delete_where(Oid::PG_DESCRIPTION, |row| {
        row.get_oid("objoid") == c.object.oid
            && row.get_oid("classoid") == class
            && row.get_int("objsubid") == sub
    })?;
    let Some(text) = &c.text else { return Ok(()) };
    let row = CatalogRow::new(system_relation(Oid::PG_DESCRIPTION))
        .oid("objoid", c.object.oid)
        .oid("classoid", class)
        .int4("objsubid", sub as i32)
        .name("description", text);
    cx.insert(vec![row])
}
