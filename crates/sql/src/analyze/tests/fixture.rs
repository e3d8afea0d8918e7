//! A catalog and a session by hand: the system relations, and a few tables.

use crate::analyze::{self, BindContext, ParamTypes, Statement, Utility};
use crate::catalog::relations::SYSTEM_RELATIONS;
use crate::catalog::views::SYSTEM_VIEWS;
use crate::catalog::{
    CatalogSnapshot, ColumnDef, ConstraintDef, ConstraintKind, IndexColumn, IndexDef, Persistence,
    RelationKind, RoleDef, SchemaDef, TableDef,
};
use crate::error::{Result, SqlError, State};
use crate::functions::{FnContext, SessionFunctions};
use crate::types::{self, Datum, Oid, OutputStyle, TypeRef};
use inkling_storage::ids::RelId;
use std::sync::Arc;

pub struct Fixture {
    pub catalog: CatalogSnapshot,
    /// System views that do not bind, and why.
    pub broken_views: Vec<String>,
    style: OutputStyle,
    zone: jiff::tz::TimeZone,
}

const PATH: &[Oid] = &[Oid::PG_CATALOG_SCHEMA, Oid::PUBLIC_SCHEMA];

impl Fixture {
    pub fn new() -> Fixture {
        let mut f = Fixture {
            catalog: CatalogSnapshot::default(),
            broken_views: Vec::new(),
            style: OutputStyle::default(),
            zone: jiff::tz::TimeZone::UTC,
        };
        for (oid, name) in [
            (Oid::PG_CATALOG_SCHEMA, "pg_catalog"),
            (Oid::PUBLIC_SCHEMA, "public"),
            (Oid::INFORMATION_SCHEMA, "information_schema"),
            (Oid(16390), "other"),
        ] {
            let def = SchemaDef { oid, name: name.into(), owner: Oid::BOOTSTRAP_ROLE };
            f.catalog.schemas.insert(oid, Arc::new(def));
            f.catalog.schema_names.insert(name.into(), oid);
        }
        let role = RoleDef {
            oid: Oid::BOOTSTRAP_ROLE,
            name: "postgres".into(),
            superuser: true,
            can_login: true,
            password: None,
        };
        f.catalog.role_names.insert(role.name.clone(), role.oid);
        f.catalog.roles.insert(role.oid, Arc::new(role));
        f.system();
        f.system_views();
        f.user_tables();
        f
    }

    fn system(&mut self) {
        for r in SYSTEM_RELATIONS {
            let columns: Vec<(&str, TypeRef, bool)> =
                r.columns.iter().map(|c| (c.name, TypeRef::plain(c.ty), c.not_null)).collect();
            let mut t = table(r.oid.0, r.name, &columns);
            t.schema = Oid::PG_CATALOG_SCHEMA;
            t.schema_name = "pg_catalog".into();
            t.system = true;
            t.row_type = r.row_type;
            self.add(t);
        }
    }

    /// The system views, made as the bootstrap makes them.
    fn system_views(&mut self) {
        for (i, (schema, name, query)) in SYSTEM_VIEWS.iter().enumerate() {
            let schema_oid = self.catalog.schema_names[*schema];
            let sql = format!("create view {name} as {query}");
            let parsed = analyze::parse(&sql).expect(name);
            let path = [Oid::PG_CATALOG_SCHEMA, schema_oid];
            let cx =
                BindContext { search_path: &path, creation_schema: Some(schema_oid), ..self.cx() };
            let bound = analyze::bind(&cx, &parsed[0], &mut ParamTypes::none());
            let view = match bound {
                Ok(Statement::Utility(Utility::CreateView(v))) => v,
                Ok(other) => panic!("{name}: {other:?}"),
                Err(e) => {
                    self.broken_views.push(format!("{name}: {}", super::describe_error(&e)));
                    continue;
                }
            };
            let columns: Vec<(&str, TypeRef, bool)> =
                view.columns.iter().map(|c| (c.name.as_str(), c.ty, false)).collect();
            let mut t = table(12_500 + 2 * i as u32, name, &columns);
            t.kind = RelationKind::View;
            t.view = Some(view.text);
            t.schema = schema_oid;
            t.schema_name = (*schema).into();
            t.system = true;
            t.row_type = Oid(13_501 + 2 * i as u32);
            self.add(t);
        }
    }

    /// The tables that PostgreSQL had when the golden files were made.
    fn user_tables(&mut self) {
        let plain = |oid| TypeRef::plain(oid);
        let mut t = table(
            20000,
            "t",
            &[
                ("a", plain(Oid::INT4), true),
                ("b", plain(Oid::TEXT), false),
                ("c", TypeRef::new(Oid::VARCHAR, 14), false),
                ("d", TypeRef::new(Oid::NUMERIC, ((10 << 16) | 2) + 4), false),
                ("e", plain(Oid::INT8), false),
                ("f", plain(Oid::BOOL), false),
                ("g", plain(Oid::INT4_ARRAY), false),
                ("h", plain(Oid::TIMESTAMPTZ), false),
                ("i", plain(Oid::DATE), false),
                ("j", plain(Oid::FLOAT8), false),
                ("k", plain(Oid::INT2), false),
            ],
        );
        t.columns[4].default = Some("7".into());
        t.columns[1].default = Some("'x'::text".into());
        primary(&mut t, 20001, &[1]);
        t.constraints.push(Arc::new(ConstraintDef {
            oid: Oid(20003),
            name: "t_e_check".into(),
            table: t.oid,
            kind: ConstraintKind::Check { expr: "(e > 0)".into() },
            columns: vec![5],
            deferrable: false,
            deferred: false,
            validated: true,
        }));
        self.add(t);
        let mut u = table(
            20100,
            "u",
            &[
                ("id", plain(Oid::INT4), true),
                ("a", plain(Oid::INT4), false),
                ("name", plain(Oid::TEXT), false),
            ],
        );
        primary(&mut u, 20101, &[1]);
        self.add(u);
        let mut v =
            table(20200, "v", &[("a", plain(Oid::INT4), false), ("n", plain(Oid::INT8), false)]);
        v.kind = RelationKind::View;
        v.view = Some("SELECT t.a, count(*) AS n FROM public.t GROUP BY t.a".into());
        self.add(v);
        let mut s = table(20300, "s", &[("last_value", plain(Oid::INT8), true)]);
        s.kind = RelationKind::Sequence;
        self.add(s);
        let mut o = table(20400, "o", &[("x", plain(Oid::INT4), false)]);
        o.schema = Oid(16390);
        o.schema_name = "other".into();
        self.add(o);
    }

    fn add(&mut self, t: TableDef) {
        self.catalog.relations.insert((t.schema, t.name.clone()), t.oid);
        for i in &t.indexes {
            self.catalog.relations.insert((t.schema, i.name.clone()), i.oid);
            self.catalog.indexes.insert(i.oid, i.clone());
        }
        self.catalog.tables.insert(t.oid, Arc::new(t));
    }

    pub fn cx(&self) -> BindContext<'_> {
        BindContext {
            catalog: &self.catalog,
            search_path: PATH,
            creation_schema: Some(Oid::PUBLIC_SCHEMA),
            temp_schema: None,
            create_temporary: false,
            user: Oid::BOOTSTRAP_ROLE,
            functions: self,
        }
    }

    pub fn bind(&self, sql: &str) -> Result<Statement> {
        self.bind_with(sql, &mut ParamTypes::none())
    }

    pub fn bind_with(&self, sql: &str, params: &mut ParamTypes) -> Result<Statement> {
        let parsed = analyze::parse(sql)?;
        analyze::bind(&self.cx(), parsed.first().expect("a statement"), params)
    }
}

fn table(oid: u32, name: &str, columns: &[(&str, TypeRef, bool)]) -> TableDef {
    let column = |(i, (name, ty, not_null)): (usize, &(&str, TypeRef, bool))| ColumnDef {
        name: (*name).into(),
        attnum: i as i16 + 1,
        ty: *ty,
        not_null: *not_null,
        dropped: false,
        default: None,
        identity: None,
        missing: None,
        collation: types::info(ty.oid).map_or(Oid::INVALID, |t| t.collation),
    };
    TableDef {
        oid: Oid(oid),
        rel: RelId::new(oid),
        toast: None,
        name: name.into(),
        schema: Oid::PUBLIC_SCHEMA,
        schema_name: "public".into(),
        kind: RelationKind::Table,
        persistence: Persistence::Permanent,
        owner: Oid::BOOTSTRAP_ROLE,
        row_type: Oid(oid + 50),
        columns: columns.iter().enumerate().map(column).collect(),
        indexes: Vec::new(),
        constraints: Vec::new(),
        referenced_by: Vec::new(),
        fillfactor: 100,
        options: Vec::new(),
        view: None,
        sequence: None,
        reltuples: -1.0,
        relpages: 0,
        system: false,
    }
}

fn primary(t: &mut TableDef, oid: u32, attnums: &[i16]) {
    let columns = attnums
        .iter()
        .map(|a| IndexColumn {
            attnum: *a,
            expr: None,
            ty: t.columns[*a as usize - 1].ty,
            descending: false,
            nulls_first: false,
        })
        .collect::<Vec<_>>();
    t.indexes.push(Arc::new(IndexDef {
        oid: Oid(oid),
        rel: RelId::new(oid),
        name: format!("{}_pkey", t.name),
        schema: t.schema,
        table: t.oid,
        key_columns: columns.len(),
        columns,
        unique: true,
        nulls_not_distinct: false,
        primary: true,
        immediate: true,
        predicate: None,
        fillfactor: 90,
        valid: true,
    }));
    t.constraints.push(Arc::new(ConstraintDef {
        oid: Oid(oid + 1),
        name: format!("{}_pkey", t.name),
        table: t.oid,
        kind: ConstraintKind::Primary { index: Oid(oid) },
        columns: attnums.to_vec(),
        deferrable: false,
        deferred: false,
        validated: true,
    }));
}

impl FnContext for Fixture {
    fn transaction_timestamp(&self) -> i64 {
        0
    }
    fn statement_timestamp(&self) -> i64 {
        0
    }
    fn clock_timestamp(&self) -> i64 {
        0
    }
    fn time_zone(&self) -> &jiff::tz::TimeZone {
        &self.zone
    }
    fn setting(&self, _: &str) -> Option<String> {
        None
    }
    fn style(&self) -> &OutputStyle {
        &self.style
    }
    fn session(&self) -> &dyn SessionFunctions {
        self
    }
    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }
}

impl SessionFunctions for Fixture {
    fn call(&self, name: &str, args: &[Datum]) -> Result<Datum> {
        let text = match args.first() {
            Some(Datum::Text(t)) => t.as_str(),
            _ => "",
        };
        match name {
            "current_database" => Ok(Datum::text("postgres")),
            "regclassin" => {
                let (schema, relation) = match text.split_once('.') {
                    Some((s, r)) => (self.catalog.schema_names.get(s).copied(), r),
                    None => (None, text),
                };
                let found = match schema {
                    Some(s) => self.catalog.find_in_schema(s, relation),
                    None => self.catalog.find_relation(PATH, relation),
                };
                found.map(|o| Datum::Oid(o.0)).ok_or_else(|| {
                    let message = format!("relation \"{text}\" does not exist");
                    SqlError::new(State::UNDEFINED_TABLE, message)
                })
            }
            "regprocin" => {
                let name = text.rsplit('.').next().unwrap_or(text);
                let found = crate::functions::lookup(name).first();
                Ok(Datum::Oid(found.map_or(0, |f| f.oid.0)))
            }
            "regtypein" => {
                let found = types::info_by_name(text);
                Ok(Datum::Oid(found.map_or(0, |t| t.oid.0)))
            }
            other => Err(SqlError::internal(format!("no {other} here"))),
        }
    }

    fn call_set(&self, name: &str, _: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        Err(SqlError::internal(format!("no {name} here")))
    }
}
