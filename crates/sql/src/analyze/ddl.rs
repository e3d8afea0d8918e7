//! Data definition, all but tables: views, sequences, schemas, roles, DROP, RENAME, OWNER TO, SET
//! SCHEMA, COMMENT, TRUNCATE, CREATE TABLE AS.

use super::bound::{Query, RangeColumn};
use super::deparse;
use super::from::STORED_PATH;
use super::node::{self, Node, need, some};
use super::scope::Binder;
use super::statement::*;
use super::target::other_sessions;
use super::utility::{def_bool, defs};
use crate::catalog::{RelationKind, TableDef};
use crate::error::{Result, Severity, SqlError, State};
use crate::types::{Oid, TypeRef};
use pg_query::protobuf::{self, DefElem, DropBehavior, ObjectType, RangeVar, RoleSpec};
use std::sync::Arc;

pub(crate) fn notice(state: State, message: String) -> SqlError {
    SqlError::new(state, message).severity(Severity::Notice)
}

impl Binder<'_> {
    pub(crate) fn definition(&mut self, n: &Node) -> Result<Utility> {
        Ok(match n {
            Node::CreateStmt(s) => return self.create_table(s),
            Node::IndexStmt(s) => return self.create_index(s),
            Node::AlterTableStmt(s) => return self.alter_table(s),
            Node::ViewStmt(s) => Utility::CreateView(Box::new(self.create_view(s)?)),
            Node::CreateTableAsStmt(s) => return self.create_table_as(s),
            Node::CreateSeqStmt(s) => return self.create_sequence(s),
            Node::AlterSeqStmt(s) => return self.alter_sequence(s),
            Node::CreateSchemaStmt(s) => return self.create_schema(s),
            Node::DropStmt(s) => return self.drop_objects(s),
            Node::TruncateStmt(s) => Utility::Truncate(self.truncate(s)?),
            Node::RenameStmt(s) => return self.rename(s),
            Node::AlterOwnerStmt(s) => return self.alter_owner(s),
            Node::AlterObjectSchemaStmt(s) => return self.alter_schema(s),
            Node::CommentStmt(s) => Utility::Comment(self.comment(s)?),
            Node::CreateRoleStmt(s) => Utility::CreateRole(self.create_role(s)?),
            Node::AlterRoleStmt(s) => Utility::AlterRole(self.alter_role(s)?),
            Node::AlterRoleSetStmt(s) => return self.alter_role_set(s),
            Node::AlterDatabaseSetStmt(s) => {
                let set = s.setstmt.as_ref().ok_or_else(node::missing)?;
                let set = self.stored_setting(set)?;
                Utility::AlterRoleSet(AlterRoleSet {
                    role: None,
                    database: Some(s.dbname.clone()),
                    of_database: true,
                    set,
                })
            }
            Node::DropRoleStmt(s) => return self.drop_role(s),
            other => return Err(SqlError::unsupported(node::statement_name(other))),
        })
    }

    // ----- Names.

    pub(crate) fn need_schema(&self, name: &str, location: i32) -> Result<Oid> {
        self.schema_oid(name, location)?.ok_or_else(|| {
            let message = format!("schema \"{name}\" does not exist");
            self.error(State::INVALID_SCHEMA_NAME, message, location)
        })
    }

    pub(crate) fn is_system_schema(&self, oid: Oid) -> bool {
        oid == Oid::PG_CATALOG_SCHEMA || oid == Oid::PG_TOAST_SCHEMA
    }

    /// An existing relation's OID where the new one would be.
    pub(crate) fn existing(&self, target: TargetSchema, name: &str) -> Option<Oid> {
        let schema = match target {
            TargetSchema::Named(s) => s,
            TargetSchema::Temporary => self.cx.temp_schema?,
        };
        self.cx.catalog.find_in_schema(schema, name)
    }

    pub(crate) fn already_exists(&self, name: &str) -> SqlError {
        SqlError::new(State::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
    }

    /// IF NOT EXISTS: the notice and nothing else.
    pub(crate) fn skip_existing(
        tag: &'static str,
        what: &str,
        name: &str,
        state: State,
    ) -> Utility {
        let message = format!("{what} \"{name}\" already exists, skipping");
        Utility::Nothing { tag, notice: notice(state, message) }
    }

    pub(crate) fn role(&self, r: &RoleSpec) -> Result<Oid> {
        use protobuf::RoleSpecType as Kind;
        match r.roletype() {
            Kind::RolespecCstring => self.role_named(&r.rolename),
            Kind::RolespecCurrentRole | Kind::RolespecCurrentUser | Kind::RolespecSessionUser => {
                Ok(self.cx.user)
            }
            _ => {
                let message = "role name \"public\" is reserved";
                Err(self.error(State::RESERVED_NAME, message, r.location))
            }
        }
    }

    pub(crate) fn role_named(&self, name: &str) -> Result<Oid> {
        self.cx.catalog.role_names.get(name).copied().ok_or_else(|| {
            let message = format!("role \"{name}\" does not exist");
            self.error(State::UNDEFINED_OBJECT, message, -1)
        })
    }

    // ----- Views, CREATE TABLE AS.

    fn create_view(&mut self, s: &protobuf::ViewStmt) -> Result<CreateView> {
        let name = s.view.as_ref().ok_or_else(node::missing)?;
        if s.with_check_option() != protobuf::ViewCheckOption::NoCheckOption {
            return Err(self.unsupported("WITH CHECK OPTION", -1));
        }
        if let Some(d) = defs(&s.options).next() {
            let message = match d.defname.as_str() {
                "security_barrier" | "security_invoker" | "check_option" => {
                    return Err(self.unsupported(&format!("view option {}", d.defname), -1));
                }
                other => format!("unrecognized parameter \"{other}\""),
            };
            return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
        }
        if name.relpersistence == "u" {
            let message = "views cannot be unlogged because they do not have storage";
            return Err(self.error(State::SYNTAX_ERROR, message, -1));
        }
        let Node::SelectStmt(select) = need(&s.query)? else { return Err(node::missing()) };
        if select.into_clause.is_some() {
            let message = "views must not contain SELECT INTO";
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1));
        }
        let before = std::mem::take(&mut self.relations);
        let mut query = self.select(select, true)?;
        let depends_on = std::mem::replace(&mut self.relations, before);
        let columns = self.new_columns(&query, &node::names(&s.aliases), "CREATE VIEW")?;
        for (t, c) in query.targets.iter_mut().zip(&columns) {
            t.name = c.name.clone();
        }
        let (name, notices) = self.view_name(name, &depends_on);
        let (schema, persistence) = self.creation_target(&name)?;
        if let Some(old) = self.existing(schema, &name.relname) {
            self.check_replaced(s.replace, old, &name.relname, &columns)?;
        }
        let text = deparse::query(&query, self.cx.catalog, STORED_PATH);
        Ok(CreateView {
            schema,
            name: name.relname.clone(),
            persistence,
            replace: s.replace,
            columns,
            query,
            text,
            options: Vec::new(),
            depends_on,
            notices,
        })
    }

    /// CREATE OR REPLACE VIEW may only add columns.
    fn check_replaced(
        &self,
        replace: bool,
        old: Oid,
        name: &str,
        columns: &[RangeColumn],
    ) -> Result<()> {
        if !replace {
            return Err(self.already_exists(name));
        }
        let fail = |message: String| Err(self.error(State::INVALID_TABLE_DEFINITION, message, -1));
        let Some(view) = self.cx.catalog.tables.get(&old).filter(|t| t.kind == RelationKind::View)
        else {
            let message = format!("\"{name}\" is not a view");
            return Err(self.error(State::WRONG_OBJECT_TYPE, message, -1));
        };
        if columns.len() < view.columns.len() {
            return fail("cannot drop columns from view".into());
        }
        for (was, now) in view.columns.iter().zip(columns) {
            if was.name != now.name {
                return fail(format!(
                    "cannot change name of view column \"{}\" to \"{}\"",
                    was.name, now.name
                ));
            }
            if was.ty != now.ty {
                let (a, b) = (self.type_ref_text(was.ty), self.type_ref_text(now.ty));
                return fail(format!(
                    "cannot change data type of view column \"{}\" from {a} to {b}",
                    was.name
                ));
            }
        }
        Ok(())
    }

    fn type_ref_text(&self, ty: TypeRef) -> String {
        if crate::types::info(ty.oid).is_some() {
            crate::types::format_type(ty.oid, ty.typmod)
        } else {
            self.type_text(ty.oid)
        }
    }

    /// The columns of a relation made from a query.
    fn new_columns(&self, q: &Query, names: &[&str], what: &str) -> Result<Vec<RangeColumn>> {
        if names.len() > q.targets.len() {
            let message = if what == "CREATE VIEW" {
                "CREATE VIEW specifies more column names than columns"
            } else {
                "too many column names were specified"
            };
            return Err(self.error(State::SYNTAX_ERROR, message, -1));
        }
        let mut columns: Vec<RangeColumn> = Vec::with_capacity(q.targets.len());
        for (i, t) in q.targets.iter().enumerate() {
            let name = names.get(i).map_or_else(|| t.name.clone(), |n| (*n).to_owned());
            if columns.iter().any(|c| c.name == name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(self.error(State::DUPLICATE_COLUMN, message, -1));
            }
            let ty = t.expr.ty();
            if ty.oid == Oid::RECORD || ty.oid == Oid::VOID {
                let message =
                    format!("column \"{name}\" has pseudo-type {}", self.type_text(ty.oid));
                return Err(self.error(State::INVALID_TABLE_DEFINITION, message, -1));
            }
            columns.push(RangeColumn { name, ty, dropped: false });
        }
        Ok(columns)
    }

    fn create_table_as(&mut self, s: &protobuf::CreateTableAsStmt) -> Result<Utility> {
        if s.objtype() != ObjectType::ObjectTable {
            return Err(self.unsupported("CREATE MATERIALIZED VIEW", -1));
        }
        let into = s.into.as_deref().ok_or_else(node::missing)?;
        let Node::SelectStmt(select) = need(&s.query)? else {
            return Err(self.unsupported("CREATE TABLE AS EXECUTE", -1));
        };
        let query = self.select(select, true)?;
        self.table_from_query(into, query, s.if_not_exists, s.is_select_into)
    }

    /// SELECT ... INTO.
    pub(crate) fn select_into(&mut self, s: &protobuf::SelectStmt) -> Result<Utility> {
        let mut plain = s.clone();
        let into = plain.into_clause.take().ok_or_else(node::missing)?;
        let query = self.select(&plain, true)?;
        self.table_from_query(&into, query, false, true)
    }

    fn table_from_query(
        &mut self,
        into: &protobuf::IntoClause,
        query: Query,
        if_not_exists: bool,
        is_into: bool,
    ) -> Result<Utility> {
        let name = into.rel.as_ref().ok_or_else(node::missing)?;
        self.refuse_storage(&into.access_method, &into.table_space_name)?;
        let (schema, persistence) = self.creation_target(name)?;
        if self.existing(schema, &name.relname).is_some() {
            if if_not_exists {
                let state = State::DUPLICATE_TABLE;
                return Ok(Self::skip_existing(
                    "CREATE TABLE AS",
                    "relation",
                    &name.relname,
                    state,
                ));
            }
            return Err(self.already_exists(&name.relname));
        }
        let names = node::names(&into.col_names);
        let columns = self.new_columns(&query, &names, "CREATE TABLE AS")?;
        let options = self.table_options(&into.options)?;
        let on_commit = self.on_commit(into.on_commit(), persistence)?;
        Ok(Utility::CreateTableAs(Box::new(CreateTableAs {
            schema,
            name: name.relname.clone(),
            if_not_exists,
            persistence,
            columns,
            options,
            on_commit,
            query,
            with_data: !into.skip_data,
            into: is_into,
        })))
    }

    // ----- Sequences and schemas.

    fn create_sequence(&mut self, s: &protobuf::CreateSeqStmt) -> Result<Utility> {
        let name = s.sequence.as_ref().ok_or_else(node::missing)?;
        let (schema, persistence) = self.creation_target(name)?;
        if self.existing(schema, &name.relname).is_some() {
            if s.if_not_exists {
                let state = State::DUPLICATE_TABLE;
                return Ok(Self::skip_existing(
                    "CREATE SEQUENCE",
                    "relation",
                    &name.relname,
                    state,
                ));
            }
            return Err(self.already_exists(&name.relname));
        }
        let (options, owned_by) = self.sequence_options(&s.options)?;
        Ok(Utility::CreateSequence(CreateSequence {
            schema,
            name: name.relname.clone(),
            if_not_exists: s.if_not_exists,
            persistence,
            options,
            owned_by,
        }))
    }

    fn alter_sequence(&mut self, s: &protobuf::AlterSeqStmt) -> Result<Utility> {
        let name = s.sequence.as_ref().ok_or_else(node::missing)?;
        let found =
            self.relation_of_kind(name, ObjectKind::Sequence, s.missing_ok, "ALTER SEQUENCE")?;
        let sequence = match found {
            Ok(oid) => oid,
            Err(nothing) => return Ok(nothing),
        };
        let (options, owned_by) = self.sequence_options(&s.options)?;
        Ok(Utility::AlterSequence(AlterSequence { sequence, options, owned_by }))
    }

    pub(crate) fn sequence_options(
        &mut self,
        list: &[node::Boxed],
    ) -> Result<(SequenceOptions, Option<OwnedBy>)> {
        let mut o = SequenceOptions::default();
        let mut owned_by = None;
        let mut seen: Vec<&str> = Vec::new();
        for d in defs(list) {
            if seen.contains(&d.defname.as_str()) {
                let message = "conflicting or redundant options";
                return Err(self.error(State::SYNTAX_ERROR, message, d.location));
            }
            seen.push(&d.defname);
            let number = || {
                let text = node::def_text(d).unwrap_or_default();
                text.parse::<i64>().map_err(|_| {
                    let message = format!("value \"{text}\" is out of range for type bigint");
                    self.error(State::NUMERIC_VALUE_OUT_OF_RANGE, message, d.location)
                })
            };
            match d.defname.as_str() {
                "as" => {
                    let Some(Node::TypeName(t)) = some(&d.arg) else { return Err(node::missing()) };
                    let oid = self.type_name(t)?.oid;
                    if !matches!(oid, Oid::INT2 | Oid::INT4 | Oid::INT8) {
                        let message = "sequence type must be smallint, integer, or bigint";
                        return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
                    }
                    o.ty = Some(oid);
                }
                "increment" => match number()? {
                    0 => {
                        let message = "INCREMENT must not be zero";
                        return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
                    }
                    n => o.increment = Some(n),
                },
                "start" => o.start = Some(number()?),
                "restart" => {
                    o.restart = Some(if d.arg.is_some() { Some(number()?) } else { None });
                }
                "minvalue" => o.min = Some(if d.arg.is_some() { Some(number()?) } else { None }),
                "maxvalue" => o.max = Some(if d.arg.is_some() { Some(number()?) } else { None }),
                "cache" => match number()? {
                    n if n <= 0 => {
                        let message = format!("CACHE ({n}) must be greater than zero");
                        return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
                    }
                    n => o.cache = Some(n),
                },
                "cycle" => o.cycle = Some(def_bool(d)?),
                "owned_by" => owned_by = Some(self.owned_by(d)?),
                other => {
                    return Err(self.unsupported(&format!("sequence option {other}"), d.location));
                }
            }
        }
        Ok((o, owned_by))
    }

    fn owned_by(&mut self, d: &DefElem) -> Result<OwnedBy> {
        let Some(Node::List(l)) = some(&d.arg) else { return Err(node::missing()) };
        let names = node::names(&l.items);
        if names == ["none"] {
            return Ok(OwnedBy::None);
        }
        let Some((column, table)) = names.split_last().filter(|x| !x.1.is_empty()) else {
            return Err(self
                .error(State::SYNTAX_ERROR, "invalid OWNED BY option", -1)
                .hint("Specify OWNED BY table.column or OWNED BY NONE."));
        };
        let (schema, name) = node::qualified(table);
        let table = self.table_def(schema, name, -1)?;
        let Some(c) = table.column(column) else {
            return Err(self.no_column(&table, column, -1));
        };
        Ok(OwnedBy::Column { table: table.oid, attnum: c.attnum })
    }

    fn create_schema(&mut self, s: &protobuf::CreateSchemaStmt) -> Result<Utility> {
        if !s.schema_elts.is_empty() {
            return Err(self.unsupported("CREATE SCHEMA with elements", -1));
        }
        let owner = match &s.authrole {
            Some(r) => self.role(r)?,
            None => self.cx.user,
        };
        let name = if s.schemaname.is_empty() {
            let role = self.cx.catalog.roles.get(&owner);
            role.map(|r| r.name.clone()).ok_or_else(node::missing)?
        } else {
            s.schemaname.clone()
        };
        if name.starts_with("pg_") {
            let message = format!("unacceptable schema name \"{name}\"");
            return Err(self
                .error(State::RESERVED_NAME, message, -1)
                .detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        if self.cx.catalog.schema_names.contains_key(&name) {
            if s.if_not_exists {
                let state = State::DUPLICATE_SCHEMA;
                return Ok(Self::skip_existing("CREATE SCHEMA", "schema", &name, state));
            }
            let message = format!("schema \"{name}\" already exists");
            return Err(self.error(State::DUPLICATE_SCHEMA, message, -1));
        }
        Ok(Utility::CreateSchema(CreateSchema { name, if_not_exists: s.if_not_exists, owner }))
    }

    // ----- DROP, TRUNCATE.

    fn drop_objects(&mut self, s: &protobuf::DropStmt) -> Result<Utility> {
        let kind = match s.remove_type() {
            ObjectType::ObjectTable => ObjectKind::Table,
            ObjectType::ObjectIndex => ObjectKind::Index,
            ObjectType::ObjectSequence => ObjectKind::Sequence,
            ObjectType::ObjectView => ObjectKind::View,
            ObjectType::ObjectSchema => ObjectKind::Schema,
            other => {
                let words = other.as_str_name().trim_start_matches("OBJECT_").replace('_', " ");
                return Err(SqlError::unsupported(format!("DROP {words}")));
            }
        };
        let mut objects = Vec::new();
        let mut notices = Vec::new();
        for n in node::each(&s.objects) {
            let found = match (kind, n) {
                (ObjectKind::Schema, n) => {
                    let name = node::text(n).ok_or_else(node::missing)?;
                    self.dropped_schema(name)?
                }
                (_, Node::List(l)) => {
                    let names = node::names(&l.items);
                    let (schema, name) = node::qualified(&names);
                    self.dropped_relation(kind, schema, name, s.missing_ok, &mut notices)?
                }
                _ => return Err(node::missing()),
            };
            match found {
                Some(oid) if !objects.contains(&oid) => objects.push(oid),
                Some(_) => {}
                None if kind == ObjectKind::Schema => {
                    let name = node::text(n).unwrap_or_default();
                    let message = format!("schema \"{name}\" does not exist");
                    if !s.missing_ok {
                        return Err(self.error(State::INVALID_SCHEMA_NAME, message, -1));
                    }
                    let message = message + ", skipping";
                    notices.push(notice(State::SUCCESSFUL_COMPLETION, message));
                }
                None => {}
            }
        }
        let cascade = s.behavior() == DropBehavior::DropCascade;
        if s.concurrent && (objects.len() > 1 || cascade) {
            let message = if cascade {
                "DROP INDEX CONCURRENTLY does not support CASCADE"
            } else {
                "DROP INDEX CONCURRENTLY does not support dropping multiple objects"
            };
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1));
        }
        Ok(Utility::Drop(DropObjects {
            kind,
            objects,
            cascade,
            concurrently: s.concurrent,
            notices,
        }))
    }

    fn dropped_schema(&self, name: &str) -> Result<Option<Oid>> {
        let oid = self.schema_oid(name, -1)?;
        if oid.is_some_and(|o| self.cx.catalog.is_temporary_schema(o)) {
            return Err(self.unsupported("DROP SCHEMA of a temporary schema", -1));
        }
        if oid.is_some_and(|o| o.0 < Oid::FIRST_USER.0 && o != Oid::PUBLIC_SCHEMA) {
            let message =
                format!("cannot drop schema {name} because it is required by the database system");
            return Err(self.error(State::DEPENDENT_OBJECTS_STILL_EXIST, message, -1));
        }
        Ok(oid)
    }

    fn dropped_relation(
        &self,
        kind: ObjectKind,
        schema: Option<&str>,
        name: &str,
        missing_ok: bool,
        notices: &mut Vec<SqlError>,
    ) -> Result<Option<Oid>> {
        if let Some(s) = schema
            && self.schema_oid(s, -1)?.is_none()
        {
            let message = format!("schema \"{s}\" does not exist");
            if !missing_ok {
                return Err(self.error(State::INVALID_SCHEMA_NAME, message, -1));
            }
            notices.push(notice(State::SUCCESSFUL_COMPLETION, message + ", skipping"));
            return Ok(None);
        }
        let Some(oid) = self.find_relation(schema, name, -1)? else {
            let noun = kind.noun();
            if !missing_ok {
                let message = format!("{noun} \"{name}\" does not exist");
                let state = if kind == ObjectKind::Index {
                    State::UNDEFINED_OBJECT
                } else {
                    State::UNDEFINED_TABLE
                };
                return Err(self.error(state, message, -1));
            }
            let message = format!("{noun} \"{name}\" does not exist, skipping");
            notices.push(notice(State::SUCCESSFUL_COMPLETION, message));
            return Ok(None);
        };
        self.check_kind(oid, kind, name, true)?;
        if let Some(table) = self.table_behind(oid)
            && self.is_other_temporary(table)
        {
            return Err(other_sessions("drop"));
        }
        let system =
            self.cx.catalog.tables.get(&oid).is_some_and(|t| t.system) || oid.0 < Oid::FIRST_USER.0;
        if system {
            return Err(super::dml::system_catalog(name));
        }
        Ok(Some(oid))
    }

    /// Refuses an object of another kind than the statement speaks of.
    pub(crate) fn check_kind(
        &self,
        oid: Oid,
        kind: ObjectKind,
        name: &str,
        dropping: bool,
    ) -> Result<()> {
        let actual = match self.cx.catalog.tables.get(&oid).map(|t| t.kind) {
            Some(RelationKind::Table | RelationKind::Toast) => ObjectKind::Table,
            Some(RelationKind::View) => ObjectKind::View,
            Some(RelationKind::Sequence) => ObjectKind::Sequence,
            Some(RelationKind::Index) | None => ObjectKind::Index,
        };
        if actual == kind {
            return Ok(());
        }
        let noun = kind.noun();
        let article = if noun.starts_with('i') { "an" } else { "a" };
        let message = format!("\"{name}\" is not {article} {noun}");
        let error = self.error(State::WRONG_OBJECT_TYPE, message, -1);
        if !dropping {
            return Err(error);
        }
        let words = actual.drop_tag();
        let actual = actual.noun();
        let article = if actual.starts_with('i') { "an" } else { "a" };
        Err(error.hint(format!("Use {words} to remove {article} {actual}.")))
    }

    fn truncate(&mut self, s: &protobuf::TruncateStmt) -> Result<Truncate> {
        let mut tables: Vec<Arc<TableDef>> = Vec::with_capacity(s.relations.len());
        for n in node::each(&s.relations) {
            let Node::RangeVar(r) = n else { return Err(node::missing()) };
            self.refuse_others_temporary(r, "truncate")?;
            let table = self.named_table(r)?;
            if table.kind != RelationKind::Table {
                let message = format!("\"{}\" is not a table", table.name);
                return Err(self.error(State::WRONG_OBJECT_TYPE, message, -1));
            }
            if table.system {
                return Err(super::dml::system_catalog(&table.name));
            }
            if tables.iter().all(|t| t.oid != table.oid) {
                tables.push(table);
            }
        }
        let cascade = s.behavior() == DropBehavior::DropCascade;
        Ok(Truncate { tables, restart_identity: s.restart_seqs, cascade })
    }

    // ----- RENAME, OWNER, SET SCHEMA, COMMENT.

    /// A relation of a kind; Err inside: what to do instead (IF EXISTS of nothing).
    pub(crate) fn relation_of_kind(
        &mut self,
        r: &RangeVar,
        kind: ObjectKind,
        missing_ok: bool,
        tag: &'static str,
    ) -> Result<std::result::Result<Oid, Utility>> {
        let schema = (!r.schemaname.is_empty()).then_some(r.schemaname.as_str());
        let Some(oid) = self.find_relation(schema, &r.relname, r.location)? else {
            if !missing_ok {
                return Err(self.missing_relation(schema, &r.relname, -1));
            }
            let message = format!("relation \"{}\" does not exist, skipping", r.relname);
            let notice = notice(State::SUCCESSFUL_COMPLETION, message);
            return Ok(Err(Utility::Nothing { tag, notice }));
        };
        if let Some(table) = self.table_behind(oid)
            && self.is_other_temporary(table)
        {
            return Err(other_sessions("alter"));
        }
        // ALTER TABLE works on every kind of relation.
        if kind != ObjectKind::Table {
            self.check_kind(oid, kind, &r.relname, false)?;
        }
        let system = self.cx.catalog.tables.get(&oid).is_some_and(|t| t.system);
        if system || oid.0 < Oid::FIRST_USER.0 {
            return Err(super::dml::system_catalog(&r.relname));
        }
        Ok(Ok(oid))
    }

    /// What kind of relation an OID is.
    fn actual_kind(&self, oid: Oid) -> ObjectKind {
        match self.cx.catalog.tables.get(&oid).map(|t| t.kind) {
            Some(RelationKind::View) => ObjectKind::View,
            Some(RelationKind::Sequence) => ObjectKind::Sequence,
            Some(RelationKind::Table | RelationKind::Toast) => ObjectKind::Table,
            _ => ObjectKind::Index,
        }
    }

    fn rename(&mut self, s: &protobuf::RenameStmt) -> Result<Utility> {
        let new_name = s.newname.clone();
        let object = |kind, oid, attnum| ObjectRef { kind, oid, attnum };
        let kind = match s.rename_type() {
            ObjectType::ObjectSchema => {
                let oid = self.need_schema(&s.subname, -1)?;
                if self.cx.catalog.schema_names.contains_key(&new_name) {
                    let message = format!("schema \"{new_name}\" already exists");
                    return Err(self.error(State::DUPLICATE_SCHEMA, message, -1));
                }
                let object = object(ObjectKind::Schema, oid, 0);
                return Ok(Utility::Rename(Rename { object, new_name }));
            }
            ObjectType::ObjectRole => {
                let object = object(ObjectKind::Role, self.role_named(&s.subname)?, 0);
                return Ok(Utility::Rename(Rename { object, new_name }));
            }
            ObjectType::ObjectTable
            | ObjectType::ObjectColumn
            | ObjectType::ObjectTabconstraint => ObjectKind::Table,
            ObjectType::ObjectIndex => ObjectKind::Index,
            ObjectType::ObjectSequence => ObjectKind::Sequence,
            ObjectType::ObjectView => ObjectKind::View,
            other => {
                let words = other.as_str_name().trim_start_matches("OBJECT_").replace('_', " ");
                return Err(SqlError::unsupported(format!("ALTER {words} ... RENAME")));
            }
        };
        let relation = s.relation.as_ref().ok_or_else(node::missing)?;
        let found = self.relation_of_kind(relation, kind, s.missing_ok, kind.alter_tag())?;
        let oid = match found {
            Ok(oid) => oid,
            Err(nothing) => return Ok(nothing),
        };
        let object = match s.rename_type() {
            ObjectType::ObjectColumn => self.renamed_column(oid, &s.subname, &new_name)?,
            ObjectType::ObjectTabconstraint => self.named_constraint(oid, &s.subname)?,
            _ => {
                let schema = match self.cx.catalog.tables.get(&oid) {
                    Some(t) => t.schema,
                    None => self.cx.catalog.indexes.get(&oid).map_or(Oid::INVALID, |i| i.schema),
                };
                if self.cx.catalog.find_in_schema(schema, &new_name).is_some() {
                    return Err(self.already_exists(&new_name));
                }
                object(self.actual_kind(oid), oid, 0)
            }
        };
        Ok(Utility::Rename(Rename { object, new_name }))
    }

    fn renamed_column(&self, oid: Oid, old: &str, new: &str) -> Result<ObjectRef> {
        let table = self.cx.catalog.tables.get(&oid).ok_or_else(node::missing)?;
        let Some(c) = table.column(old) else {
            let message = format!("column \"{old}\" does not exist");
            return Err(self.error(State::UNDEFINED_COLUMN, message, -1));
        };
        if table.column(new).is_some() || super::scope::system_column(new).is_some() {
            let message = format!("column \"{new}\" of relation \"{}\" already exists", table.name);
            return Err(self.error(State::DUPLICATE_COLUMN, message, -1));
        }
        Ok(ObjectRef { kind: ObjectKind::Column, oid, attnum: c.attnum })
    }

    fn named_constraint(&self, oid: Oid, name: &str) -> Result<ObjectRef> {
        let table = self.cx.catalog.tables.get(&oid).ok_or_else(node::missing)?;
        let Some(c) = table.constraints.iter().find(|c| c.name == name) else {
            let message =
                format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
            return Err(self.error(State::UNDEFINED_OBJECT, message, -1));
        };
        Ok(ObjectRef { kind: ObjectKind::Constraint, oid: c.oid, attnum: 0 })
    }

    fn alter_owner(&mut self, s: &protobuf::AlterOwnerStmt) -> Result<Utility> {
        let owner = self.role(s.newowner.as_ref().ok_or_else(node::missing)?)?;
        let name = some(&s.object).and_then(node::value_text).unwrap_or_default();
        let object = match s.object_type() {
            ObjectType::ObjectSchema => {
                let oid = self.need_schema(&name, -1)?;
                ObjectRef { kind: ObjectKind::Schema, oid, attnum: 0 }
            }
            ObjectType::ObjectDatabase => {
                ObjectRef { kind: ObjectKind::Database, oid: self.database(&name)?, attnum: 0 }
            }
            other => {
                let words = other.as_str_name().trim_start_matches("OBJECT_").replace('_', " ");
                return Err(SqlError::unsupported(format!("ALTER {words} ... OWNER TO")));
            }
        };
        Ok(Utility::AlterOwner(AlterOwner { object, owner }))
    }

    /// The database by name; there is one.
    fn database(&self, name: &str) -> Result<Oid> {
        let current = self.cx.functions.session().call("current_database", &[]);
        if matches!(&current, Ok(crate::types::Datum::Text(n)) if n.as_str() == name) {
            return Ok(Oid::POSTGRES_DATABASE);
        }
        let message = format!("database \"{name}\" does not exist");
        Err(self.error(State::INVALID_CATALOG_NAME, message, -1))
    }

    fn alter_schema(&mut self, s: &protobuf::AlterObjectSchemaStmt) -> Result<Utility> {
        let kind = match s.object_type() {
            ObjectType::ObjectTable => ObjectKind::Table,
            ObjectType::ObjectSequence => ObjectKind::Sequence,
            ObjectType::ObjectView => ObjectKind::View,
            other => {
                let words = other.as_str_name().trim_start_matches("OBJECT_").replace('_', " ");
                return Err(SqlError::unsupported(format!("ALTER {words} ... SET SCHEMA")));
            }
        };
        let relation = s.relation.as_ref().ok_or_else(node::missing)?;
        let found = self.relation_of_kind(relation, kind, s.missing_ok, kind.alter_tag())?;
        let oid = match found {
            Ok(oid) => oid,
            Err(nothing) => return Ok(nothing),
        };
        let schema = self.need_schema(&s.newschema, -1)?;
        let temporary = |s: Oid| self.cx.catalog.is_temporary_schema(s);
        if temporary(schema) || self.table_behind(oid).is_some_and(|t| temporary(t.schema)) {
            let message = "cannot move objects into or out of temporary schemas";
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1));
        }
        if self.is_system_schema(schema) {
            let message = format!("cannot move objects into schema \"{}\"", s.newschema);
            return Err(self.error(State::INSUFFICIENT_PRIVILEGE, message, -1));
        }
        let object = ObjectRef { kind: self.actual_kind(oid), oid, attnum: 0 };
        Ok(Utility::AlterSchema(AlterObjectSchema { object, schema }))
    }

    fn comment(&mut self, s: &protobuf::CommentStmt) -> Result<Comment> {
        let text = (!s.comment.is_empty()).then(|| s.comment.clone());
        let n = need(&s.object)?;
        let names: Vec<&str> = match n {
            Node::List(l) => node::names(&l.items),
            Node::String(t) => vec![&t.sval],
            _ => Vec::new(),
        };
        let plain = |kind, oid| ObjectRef { kind, oid, attnum: 0 };
        let object = match s.objtype() {
            ObjectType::ObjectSchema => {
                plain(ObjectKind::Schema, self.need_schema(names.first().unwrap_or(&""), -1)?)
            }
            ObjectType::ObjectRole => {
                plain(ObjectKind::Role, self.role_named(names.first().unwrap_or(&""))?)
            }
            ObjectType::ObjectDatabase => {
                plain(ObjectKind::Database, self.database(names.first().unwrap_or(&""))?)
            }
            ObjectType::ObjectColumn | ObjectType::ObjectTabconstraint => {
                let Some((last, of)) = names.split_last() else { return Err(node::missing()) };
                let (schema, name) = node::qualified(of);
                let table = self.table_def(schema, name, -1)?;
                if s.objtype() == ObjectType::ObjectTabconstraint {
                    self.named_constraint(table.oid, last)?
                } else {
                    let Some(c) = table.column(last) else {
                        return Err(self.no_column(&table, last, -1));
                    };
                    ObjectRef { kind: ObjectKind::Column, oid: table.oid, attnum: c.attnum }
                }
            }
            kind => {
                let kind = match kind {
                    ObjectType::ObjectTable => ObjectKind::Table,
                    ObjectType::ObjectIndex => ObjectKind::Index,
                    ObjectType::ObjectView => ObjectKind::View,
                    ObjectType::ObjectSequence => ObjectKind::Sequence,
                    other => {
                        let words =
                            other.as_str_name().trim_start_matches("OBJECT_").replace('_', " ");
                        return Err(SqlError::unsupported(format!("COMMENT ON {words}")));
                    }
                };
                let (schema, name) = node::qualified(&names);
                let Some(oid) = self.find_relation(schema, name, -1)? else {
                    return Err(self.missing_relation(schema, name, -1));
                };
                self.check_kind(oid, kind, name, false)?;
                plain(kind, oid)
            }
        };
        Ok(Comment { object, text })
    }

    // ----- Roles.

    fn create_role(&mut self, s: &protobuf::CreateRoleStmt) -> Result<CreateRole> {
        if s.role.starts_with("pg_") {
            let message = format!("role name \"{}\" is reserved", s.role);
            return Err(self
                .error(State::RESERVED_NAME, message, -1)
                .detail("Role names starting with \"pg_\" are reserved."));
        }
        if self.cx.catalog.role_names.contains_key(&s.role) {
            let message = format!("role \"{}\" already exists", s.role);
            return Err(self.error(State::DUPLICATE_OBJECT, message, -1));
        }
        let mut options = self.role_options(&s.options)?;
        if s.stmt_type() == protobuf::RoleStmtType::RolestmtUser && options.login.is_none() {
            options.login = Some(true);
        }
        Ok(CreateRole { name: s.role.clone(), options })
    }

    fn alter_role(&mut self, s: &protobuf::AlterRoleStmt) -> Result<AlterRole> {
        let role = self.role(s.role.as_ref().ok_or_else(node::missing)?)?;
        Ok(AlterRole { role, options: self.role_options(&s.options)? })
    }

    fn role_options(&self, list: &[node::Boxed]) -> Result<RoleOptions> {
        let mut o = RoleOptions::default();
        for d in defs(list) {
            let flag = || def_bool(d).map(Some);
            match d.defname.as_str() {
                "superuser" => o.superuser = flag()?,
                "createdb" => o.create_db = flag()?,
                "createrole" => o.create_role = flag()?,
                "inherit" => o.inherit = flag()?,
                "canlogin" => o.login = flag()?,
                "isreplication" => o.replication = flag()?,
                "bypassrls" => o.bypass_rls = flag()?,
                "password" => o.password = Some(node::def_text(d)),
                "validUntil" => o.valid_until = node::def_text(d),
                "connectionlimit" => {
                    let limit = node::def_text(d).and_then(|t| t.parse::<i32>().ok());
                    match limit.filter(|n| *n >= -1) {
                        Some(n) => o.connection_limit = Some(n),
                        None => {
                            let message = "invalid connection limit";
                            let state = State::INVALID_PARAMETER_VALUE;
                            return Err(self.error(state, message, d.location));
                        }
                    }
                }
                other => {
                    return Err(self.unsupported(&format!("role option {other}"), d.location));
                }
            }
        }
        Ok(o)
    }

    fn stored_setting(&mut self, s: &protobuf::VariableSetStmt) -> Result<Option<SetVariable>> {
        match self.utility(&Node::VariableSetStmt(s.clone()))? {
            Utility::Set(v) => Ok(Some(v)),
            Utility::Reset(ResetTarget::Name(name)) => {
                Ok(Some(SetVariable { name, values: None, local: false }))
            }
            Utility::Reset(ResetTarget::All) => Ok(None),
            _ => Err(self.unsupported("this setting", -1)),
        }
    }

    fn alter_role_set(&mut self, s: &protobuf::AlterRoleSetStmt) -> Result<Utility> {
        let role = match &s.role {
            Some(r) => Some(self.role(r)?),
            None => None,
        };
        let set = self.stored_setting(s.setstmt.as_ref().ok_or_else(node::missing)?)?;
        let database = (!s.database.is_empty()).then(|| s.database.clone());
        Ok(Utility::AlterRoleSet(AlterRoleSet { role, database, of_database: false, set }))
    }

    fn drop_role(&mut self, s: &protobuf::DropRoleStmt) -> Result<Utility> {
        let mut roles = Vec::new();
        let mut notices = Vec::new();
        for n in node::each(&s.roles) {
            let Node::RoleSpec(r) = n else { return Err(node::missing()) };
            if r.roletype() != protobuf::RoleSpecType::RolespecCstring {
                let message = "cannot use special role specifier in DROP ROLE";
                return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
            }
            match self.cx.catalog.role_names.get(&r.rolename) {
                Some(oid) => roles.push(*oid),
                None if s.missing_ok => {
                    let message = format!("role \"{}\" does not exist, skipping", r.rolename);
                    notices.push(notice(State::SUCCESSFUL_COMPLETION, message));
                }
                None => roles.push(self.role_named(&r.rolename)?),
            }
        }
        Ok(Utility::DropRole(DropRole { roles, notices }))
    }
}
