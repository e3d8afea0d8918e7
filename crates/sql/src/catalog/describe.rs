//! How a relation is described in the catalog: its rows in pg_class, pg_attribute and pg_type.
//!
//! The bootstrap describes the system relations with it and CREATE TABLE the user's, so both look
//! the same to whoever reads the catalog.

use super::rows::{CatalogRow, array, system_relation};
use crate::types::{self, Datum, Oid, TypeRef};
use inkling_storage::ids::{RelId, Xid};

/// A relation to be described.
#[derive(Clone, Debug)]
pub struct NewRelation<'a> {
    pub oid: Oid,
    pub rel: RelId,
    pub name: &'a str,
    pub schema: Oid,
    pub owner: Oid,
    /// OID of its row type; invalid for indexes and TOAST tables.
    pub row_type: Oid,
    /// pg_class.relkind.
    pub kind: char,
    /// pg_class.relpersistence.
    pub persistence: char,
    pub toast: Oid,
    pub shared: bool,
    pub has_index: bool,
    pub checks: usize,
    pub options: &'a [(String, String)],
    /// No xid below will be in it; invalid for what has no rows.
    pub frozen: Xid,
}

#[derive(Clone, Debug)]
pub struct NewColumn<'a> {
    pub name: &'a str,
    pub ty: TypeRef,
    pub collation: Oid,
    pub not_null: bool,
    pub has_default: bool,
}

/// `reloptions` as PostgreSQL keeps them: `{name=value,...}`, NULL when there are none.
pub fn options_array(options: &[(String, String)]) -> Datum {
    if options.is_empty() {
        return Datum::Null;
    }
    let items = options.iter().map(|(n, v)| Datum::text(format!("{n}={v}"))).collect();
    array(Oid::TEXT, items)
}

impl NewRelation<'_> {
    pub fn class_row(&self, columns: usize) -> CatalogRow {
        let access_method = match self.kind {
            'r' | 't' => Oid::HEAP_AM,
            'i' => Oid::BTREE_AM,
            _ => Oid::INVALID,
        };
        CatalogRow::new(system_relation(Oid::PG_CLASS))
            .oid("oid", self.oid)
            .name("relname", self.name)
            .oid("relnamespace", self.schema)
            .oid("reltype", self.row_type)
            .oid("relowner", self.owner)
            .oid("relam", access_method)
            .oid("relfilenode", Oid(self.rel.raw()))
            .oid("reltablespace", if self.shared { Oid::GLOBAL_TABLESPACE } else { Oid::INVALID })
            .oid("reltoastrelid", self.toast)
            .set("reltuples", Datum::Float4(if self.kind == 'i' { 0.0 } else { -1.0 }))
            .bool("relhasindex", self.has_index)
            .bool("relisshared", self.shared)
            .char("relpersistence", self.persistence)
            .char("relkind", self.kind)
            .int2("relnatts", columns as i16)
            .int2("relchecks", self.checks as i16)
            .bool("relispopulated", true)
            .bool("relhasrules", self.kind == 'v')
            .char("relreplident", if self.oid < Oid::FIRST_USER { 'n' } else { 'd' })
            .set("relfrozenxid", super::frozen::stored(self.frozen))
            .set("relminmxid", Datum::Oid(1))
            .set("reloptions", options_array(self.options))
    }

    /// The pg_type rows of the row type and of its array type.
    pub fn type_rows(&self, array_type: Oid) -> Vec<CatalogRow> {
        let row_type = composite_type_row(self, self.row_type, self.name)
            .oid("typarray", array_type)
            .oid("typrelid", self.oid)
            .char("typtype", 'c')
            .char("typcategory", 'C')
            .set("typinput", proc("record_in"))
            .set("typoutput", proc("record_out"))
            .set("typreceive", proc("record_recv"))
            .set("typsend", proc("record_send"));
        if !array_type.is_valid() {
            return vec![row_type];
        }
        let array_name = format!("_{}", self.name);
        let array_row = composite_type_row(self, array_type, &array_name)
            .oid("typelem", self.row_type)
            .char("typtype", 'b')
            .char("typcategory", 'A')
            .set("typsubscript", proc("array_subscript_handler"))
            .set("typinput", proc("array_in"))
            .set("typoutput", proc("array_out"))
            .set("typreceive", proc("array_recv"))
            .set("typsend", proc("array_send"));
        vec![row_type, array_row]
    }
}

fn composite_type_row(relation: &NewRelation<'_>, oid: Oid, name: &str) -> CatalogRow {
    CatalogRow::new(system_relation(Oid::PG_TYPE))
        .oid("oid", oid)
        .name("typname", name)
        .oid("typnamespace", relation.schema)
        .oid("typowner", relation.owner)
        .int2("typlen", -1)
        .bool("typisdefined", true)
        .char("typdelim", ',')
        .char("typalign", 'd')
        .char("typstorage", 'x')
        .int4("typtypmod", -1)
}

/// A column that has the OID of the built-in function called `name`.
pub fn proc(name: &str) -> Datum {
    let found = crate::functions::lookup(name).first().map_or(0, |f| f.oid.0);
    Datum::Oid(found)
}

/// The pg_attribute row of a column (`attnum` from 1) of relation `oid`.
pub fn attribute_row(oid: Oid, attnum: i16, column: &NewColumn<'_>) -> CatalogRow {
    let info = types::info(column.ty.oid);
    let row = CatalogRow::new(system_relation(Oid::PG_ATTRIBUTE))
        .oid("attrelid", oid)
        .name("attname", column.name)
        .oid("atttypid", column.ty.oid)
        .int4("attstattarget", -1)
        .int2("attnum", attnum)
        .int4("attcacheoff", -1)
        .int4("atttypmod", column.ty.typmod)
        .bool("attnotnull", column.not_null)
        .bool("atthasdef", column.has_default)
        .bool("attislocal", true)
        .oid("attcollation", column.collation);
    match info {
        Some(t) => row
            .int2("attlen", t.len)
            .int4("attndims", i32::from(t.is_array()))
            .bool("attbyval", t.by_value)
            .char("attalign", t.align)
            .char("attstorage", t.storage),
        None => row.int2("attlen", -1).char("attalign", 'd').char("attstorage", 'x'),
    }
}

const SYSTEM_COLUMNS: [(&str, Oid, i16); 6] = [
    ("ctid", Oid::TID, -1),
    ("xmin", Oid::XID, -2),
    ("cmin", Oid::CID, -3),
    ("xmax", Oid::XID, -4),
    ("cmax", Oid::CID, -5),
    ("tableoid", Oid::OID, -6),
];

/// The pg_attribute rows of the columns that every table has.
pub fn system_attribute_rows(oid: Oid) -> impl Iterator<Item = CatalogRow> {
    SYSTEM_COLUMNS.iter().map(move |(name, ty, attnum)| {
        let column = NewColumn {
            name,
            ty: TypeRef::plain(*ty),
            collation: Oid::INVALID,
            not_null: true,
            has_default: false,
        };
        attribute_row(oid, *attnum, &column)
    })
}
