//! The rows that the catalog of a new data directory starts with.
//!
//! Pure data: the system relations describe themselves, and types, functions, operators, casts
//! and operator classes come from the registries that the analyser and the executor use, so the
//! catalog cannot claim what does not exist. `create.rs` writes them.

use super::describe::{NewColumn, NewRelation, attribute_row, proc, system_attribute_rows};
use super::relations::{SYSTEM_RELATIONS, SystemRelation};
use super::rows::{CatalogRow, array, system_relation, vector};
use crate::functions::{self, Builtin, CastContext, CastHow, Operator, Volatility};
use crate::types::{self, Datum, Oid, TypeRef};
use inkling_storage::ids::{RelId, Xid};

/// The name of the one role and the one database that a new directory has.
pub const POSTGRES: &str = "postgres";

/// Every row of a new catalog.
pub fn rows() -> Vec<CatalogRow> {
    let mut rows = Vec::with_capacity(8192);
    rows.extend(namespaces());
    rows.extend(shared_objects());
    rows.extend(access_methods());
    rows.extend(operator_classes());
    for relation in SYSTEM_RELATIONS {
        rows.extend(relation_rows(relation));
    }
    rows.extend(types::all().map(type_row));
    rows.extend(functions::functions().flat_map(function_rows));
    rows.extend(functions::all_operators().iter().map(operator_row));
    rows.extend(cast_rows());
    rows
}

fn new(oid: Oid) -> CatalogRow {
    CatalogRow::new(system_relation(oid))
}

fn namespaces() -> impl Iterator<Item = CatalogRow> {
    [
        (Oid::PG_CATALOG_SCHEMA, "pg_catalog"),
        (Oid::PG_TOAST_SCHEMA, "pg_toast"),
        (Oid::PUBLIC_SCHEMA, "public"),
        (Oid::INFORMATION_SCHEMA, "information_schema"),
    ]
    .into_iter()
    .map(|(oid, name)| namespace_row(oid, name, Oid::BOOTSTRAP_ROLE))
}

/// A row of pg_namespace.
pub fn namespace_row(oid: Oid, name: &str, owner: Oid) -> CatalogRow {
    new(Oid::PG_NAMESPACE).oid("oid", oid).name("nspname", name).oid("nspowner", owner)
}

fn shared_objects() -> Vec<CatalogRow> {
    let role = new(Oid::PG_AUTHID)
        .oid("oid", Oid::BOOTSTRAP_ROLE)
        .name("rolname", POSTGRES)
        .bool("rolsuper", true)
        .bool("rolinherit", true)
        .bool("rolcreaterole", true)
        .bool("rolcreatedb", true)
        .bool("rolcanlogin", true)
        .bool("rolreplication", true)
        .bool("rolbypassrls", true)
        .int4("rolconnlimit", -1);
    let database = new(Oid::PG_DATABASE)
        .oid("oid", Oid::POSTGRES_DATABASE)
        .name("datname", POSTGRES)
        .oid("datdba", Oid::BOOTSTRAP_ROLE)
        .int4("encoding", 6)
        .char("datlocprovider", 'c')
        .bool("datallowconn", true)
        .int4("datconnlimit", -1)
        .set("datfrozenxid", Datum::Oid(3))
        .set("datminmxid", Datum::Oid(1))
        .oid("dattablespace", Oid::DEFAULT_TABLESPACE)
        .set("datcollate", Datum::text("C"))
        .set("datctype", Datum::text("C"));
    let tablespace = |oid, name| {
        new(Oid::PG_TABLESPACE)
            .oid("oid", oid)
            .name("spcname", name)
            .oid("spcowner", Oid::BOOTSTRAP_ROLE)
    };
    let collation = |oid, name: &str, provider, locale: Option<&str>| {
        let locale = locale.map_or(Datum::Null, Datum::text);
        new(Oid::PG_COLLATION)
            .oid("oid", oid)
            .name("collname", name)
            .oid("collnamespace", Oid::PG_CATALOG_SCHEMA)
            .oid("collowner", Oid::BOOTSTRAP_ROLE)
            .char("collprovider", provider)
            .bool("collisdeterministic", true)
            .int4("collencoding", -1)
            .set("collcollate", locale.clone())
            .set("collctype", locale)
    };
    let language = |oid, name, trusted| {
        new(Oid::PG_LANGUAGE)
            .oid("oid", oid)
            .name("lanname", name)
            .oid("lanowner", Oid::BOOTSTRAP_ROLE)
            .bool("lanpltrusted", trusted)
    };
    vec![
        role,
        database,
        tablespace(Oid::DEFAULT_TABLESPACE, "pg_default"),
        tablespace(Oid::GLOBAL_TABLESPACE, "pg_global"),
        collation(Oid::DEFAULT_COLLATION, "default", 'd', None),
        collation(Oid::C_COLLATION, "C", 'c', Some("C")),
        collation(Oid(951), "POSIX", 'c', Some("POSIX")),
        language(Oid(12), "internal", false),
    ]
}

fn access_methods() -> [CatalogRow; 2] {
    let row =
        |oid, name, kind| new(Oid::PG_AM).oid("oid", oid).name("amname", name).char("amtype", kind);
    [row(Oid::HEAP_AM, "heap", 't'), row(Oid::BTREE_AM, "btree", 'i')]
}

/// Default B-tree operator classes: (type, name, OID, family OID, family name).
pub static OPERATOR_CLASSES: &[(Oid, &str, u32, u32, &str)] = &[
    (Oid::BOOL, "bool_ops", 10003, 424, "bool_ops"),
    (Oid::BYTEA, "bytea_ops", 10006, 428, "bytea_ops"),
    (Oid::CHAR, "char_ops", 10007, 429, "char_ops"),
    (Oid::NAME, "name_ops", 10028, 1994, "text_ops"),
    (Oid::INT8, "int8_ops", 3124, 1976, "integer_ops"),
    (Oid::INT2, "int2_ops", 1979, 1976, "integer_ops"),
    (Oid::INT4, "int4_ops", 1978, 1976, "integer_ops"),
    (Oid::TEXT, "text_ops", 3126, 1994, "text_ops"),
    (Oid::OID, "oid_ops", 1981, 1989, "oid_ops"),
    (Oid::FLOAT4, "float4_ops", 10012, 1970, "float_ops"),
    (Oid::FLOAT8, "float8_ops", 3123, 1970, "float_ops"),
    (Oid::BPCHAR, "bpchar_ops", 10004, 426, "bpchar_ops"),
    (Oid::DATE, "date_ops", 3122, 434, "datetime_ops"),
    (Oid::TIME, "time_ops", 10038, 1996, "time_ops"),
    (Oid::TIMESTAMP, "timestamp_ops", 3128, 434, "datetime_ops"),
    (Oid::TIMESTAMPTZ, "timestamptz_ops", 3127, 434, "datetime_ops"),
    (Oid::INTERVAL, "interval_ops", 10022, 1982, "interval_ops"),
    (Oid::NUMERIC, "numeric_ops", 3125, 1988, "numeric_ops"),
    (Oid::UUID, "uuid_ops", 10065, 2968, "uuid_ops"),
];

/// The default B-tree operator class of a type: varchar uses text's, arrays none of ours.
pub fn operator_class(ty: Oid) -> Oid {
    let ty = if ty == Oid::VARCHAR { Oid::TEXT } else { ty };
    let found = OPERATOR_CLASSES.iter().find(|c| c.0 == ty);
    found.map_or(Oid::INVALID, |c| Oid(c.2))
}

fn operator_classes() -> Vec<CatalogRow> {
    let mut rows = Vec::new();
    let mut families = Vec::new();
    for (ty, name, oid, family, family_name) in OPERATOR_CLASSES {
        rows.push(
            new(Oid::PG_OPCLASS)
                .oid("oid", Oid(*oid))
                .oid("opcmethod", Oid::BTREE_AM)
                .name("opcname", name)
                .oid("opcnamespace", Oid::PG_CATALOG_SCHEMA)
                .oid("opcowner", Oid::BOOTSTRAP_ROLE)
                .oid("opcfamily", Oid(*family))
                .oid("opcintype", *ty)
                .bool("opcdefault", true),
        );
        if !families.contains(family) {
            families.push(*family);
            rows.push(
                new(Oid::PG_OPFAMILY)
                    .oid("oid", Oid(*family))
                    .oid("opfmethod", Oid::BTREE_AM)
                    .name("opfname", family_name)
                    .oid("opfnamespace", Oid::PG_CATALOG_SCHEMA)
                    .oid("opfowner", Oid::BOOTSTRAP_ROLE),
            );
        }
    }
    rows
}

fn collation_of(ty: Oid) -> Oid {
    types::info(ty).map_or(Oid::INVALID, |t| t.collation)
}

/// A system relation's own description. Its files carry its OID as their number.
fn relation_rows(relation: &'static SystemRelation) -> Vec<CatalogRow> {
    let described = NewRelation {
        oid: relation.oid,
        rel: RelId::new(relation.oid.0),
        name: relation.name,
        schema: Oid::PG_CATALOG_SCHEMA,
        owner: Oid::BOOTSTRAP_ROLE,
        row_type: relation.row_type,
        kind: 'r',
        persistence: 'p',
        toast: Oid::INVALID,
        shared: relation.shared,
        has_index: false,
        checks: 0,
        options: &[],
        frozen: Xid::FIRST_NORMAL,
    };
    let mut rows = vec![described.class_row(relation.columns.len())];
    rows.extend(described.type_rows(Oid::INVALID));
    for (at, column) in relation.columns.iter().enumerate() {
        let column = NewColumn {
            name: column.name,
            ty: TypeRef::plain(column.ty),
            collation: collation_of(column.ty),
            not_null: column.not_null,
            has_default: false,
        };
        rows.push(attribute_row(relation.oid, at as i16 + 1, &column));
    }
    rows.extend(system_attribute_rows(relation.oid));
    rows
}

fn type_row(info: &'static types::TypeInfo) -> CatalogRow {
    new(Oid::PG_TYPE)
        .oid("oid", info.oid)
        .name("typname", info.name)
        .oid("typnamespace", Oid::PG_CATALOG_SCHEMA)
        .oid("typowner", Oid::BOOTSTRAP_ROLE)
        .int2("typlen", info.len)
        .bool("typbyval", info.by_value)
        .char("typtype", info.kind)
        .char("typcategory", info.category)
        .bool("typispreferred", info.preferred)
        .bool("typisdefined", true)
        .char("typdelim", info.delimiter)
        .set("typsubscript", proc(info.subscript))
        .oid("typelem", info.element)
        .oid("typarray", info.array)
        .set("typinput", proc(info.input))
        .set("typoutput", proc(info.output))
        .set("typreceive", proc(info.receive))
        .set("typsend", proc(info.send))
        .set("typmodin", proc(info.typmod_in))
        .set("typmodout", proc(info.typmod_out))
        .char("typalign", info.align)
        .char("typstorage", info.storage)
        .int4("typtypmod", -1)
        .oid("typcollation", info.collation)
}

fn oid_items(oids: &[Oid]) -> Vec<Datum> {
    oids.iter().map(|o| Datum::Oid(o.0)).collect()
}

fn function_rows(function: &'static Builtin) -> Vec<CatalogRow> {
    let volatility = match function.volatility {
        Volatility::Immutable => 'i',
        Volatility::Stable => 's',
        Volatility::Volatile => 'v',
    };
    let mut row = new(Oid::PG_PROC)
        .oid("oid", function.oid)
        .name("proname", function.name)
        .oid("pronamespace", Oid::PG_CATALOG_SCHEMA)
        .oid("proowner", Oid::BOOTSTRAP_ROLE)
        .oid("prolang", Oid(12))
        .set("procost", Datum::Float4(1.0))
        .set("prorows", Datum::Float4(if function.is_set() { 1000.0 } else { 0.0 }))
        .char("prokind", if function.is_aggregate() { 'a' } else { 'f' })
        .bool("proisstrict", function.strict)
        .bool("proretset", function.is_set())
        .char("provolatile", volatility)
        .char("proparallel", 's')
        .int2("pronargs", function.args.len() as i16)
        .int2("pronargdefaults", i16::from(function.optional))
        .oid("prorettype", function.result)
        .set("proargtypes", vector(Oid::OID, oid_items(function.args)))
        .name("prosrc", function.name);
    if function.variadic {
        let last = function.args.last().copied().unwrap_or(Oid::ANY);
        row.put("provariadic", Datum::Oid(types::element_type(last).unwrap_or(last).0));
    }
    if !function.columns.is_empty() {
        let mut all = oid_items(function.args);
        let mut modes = vec![Datum::Char(b'i'); all.len()];
        let mut names = vec![Datum::text(""); all.len()];
        for (name, ty) in function.columns {
            all.push(Datum::Oid(ty.0));
            modes.push(Datum::Char(b'o'));
            names.push(Datum::text(*name));
        }
        row.put("proallargtypes", array(Oid::OID, all));
        row.put("proargmodes", array(Oid::CHAR, modes));
        row.put("proargnames", array(Oid::TEXT, names));
    }
    if !function.is_aggregate() {
        return vec![row];
    }
    let aggregate = new(Oid::PG_AGGREGATE)
        .set("aggfnoid", Datum::Oid(function.oid.0))
        .char("aggkind", 'n')
        .char("aggfinalmodify", 'r')
        .char("aggmfinalmodify", 'r');
    vec![row, aggregate]
}

fn operator_row(operator: &'static Operator) -> CatalogRow {
    let named = |name: Option<&str>, left: Option<Oid>, right: Oid| {
        let found = name.and_then(|n| {
            functions::operators(n).iter().find(|o| o.left == left && o.right == right)
        });
        found.map_or(Oid::INVALID, |o| o.oid)
    };
    let commutator = operator
        .left
        .map_or(Oid::INVALID, |left| named(operator.commutator, Some(operator.right), left));
    new(Oid::PG_OPERATOR)
        .oid("oid", operator.oid)
        .name("oprname", operator.name)
        .oid("oprnamespace", Oid::PG_CATALOG_SCHEMA)
        .oid("oprowner", Oid::BOOTSTRAP_ROLE)
        .char("oprkind", if operator.left.is_some() { 'b' } else { 'l' })
        .bool("oprcanhash", operator.name == "=")
        .oid("oprleft", operator.left.unwrap_or(Oid::INVALID))
        .oid("oprright", operator.right)
        .oid("oprresult", operator.result)
        .oid("oprcom", commutator)
        .oid("oprnegate", named(operator.negator, operator.left, operator.right))
        .set("oprcode", Datum::Oid(operator.function.oid.0))
}

fn cast_rows() -> impl Iterator<Item = CatalogRow> {
    functions::casts().iter().enumerate().map(|(at, cast)| {
        let (function, method) = match cast.how {
            CastHow::Relabel => (Oid::INVALID, 'b'),
            CastHow::InOut => (Oid::INVALID, 'i'),
            CastHow::Function(f) => (f.oid, 'f'),
        };
        let context = match cast.context {
            CastContext::Implicit => 'i',
            CastContext::Assignment => 'a',
            CastContext::Explicit => 'e',
        };
        // Casts have no OIDs that anybody knows; these lie in the range for built-in objects.
        new(Oid::PG_CAST)
            .oid("oid", Oid(11_000 + at as u32))
            .oid("castsource", cast.source)
            .oid("casttarget", cast.target)
            .oid("castfunc", function)
            .char("castcontext", context)
            .char("castmethod", method)
    })
}
