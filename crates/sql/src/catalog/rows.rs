//! Rows of catalog relations, built and read by column name.
//!
//! ```
//! use inkling_sql::catalog::rows::{system_relation, CatalogRow};
//! use inkling_sql::types::{Datum, Oid};
//! let row = CatalogRow::new(system_relation(Oid::PG_NAMESPACE))
//!     .oid("oid", Oid(16384))
//!     .name("nspname", "app")
//!     .oid("nspowner", Oid(10));
//! assert_eq!(row.values()[1], Datum::text("app"));
//! ```
//!
//! A new row starts with NULL in nullable columns and with zero, false or the empty string in the
//! others, which is what PostgreSQL stores for "not used".

use super::relations::{SYSTEM_RELATIONS, SystemRelation};
use crate::types::{ArrayValue, Datum, Oid};
use std::sync::{Arc, LazyLock};

/// The system relation with this OID; the OIDs are fixed, so a wrong one is a mistake in code.
pub fn system_relation(oid: Oid) -> &'static SystemRelation {
    static BY_OID: LazyLock<hashbrown::HashMap<Oid, &'static SystemRelation>> =
        LazyLock::new(|| SYSTEM_RELATIONS.iter().map(|r| (r.oid, r)).collect());
    BY_OID.get(&oid).copied().expect("a system relation's OID")
}

impl SystemRelation {
    /// Position of a column; naming one that is not there is a mistake in code.
    pub fn position(&self, column: &str) -> usize {
        self.columns.iter().position(|c| c.name == column).expect("a system relation's column")
    }
}

/// What an unused NOT NULL column holds.
fn unused(ty: Oid) -> Datum {
    match ty {
        Oid::BOOL => Datum::Bool(false),
        Oid::INT2 => Datum::Int2(0),
        Oid::INT4 => Datum::Int4(0),
        Oid::INT8 => Datum::Int8(0),
        Oid::FLOAT4 => Datum::Float4(0.0),
        Oid::CHAR => Datum::Char(0),
        Oid::OID | Oid::XID | Oid::REGPROC => Datum::Oid(0),
        Oid::INT2VECTOR => vector(Oid::INT2, Vec::new()),
        Oid::OIDVECTOR => vector(Oid::OID, Vec::new()),
        _ => Datum::text(""),
    }
}

/// A one-dimensional array counted from 0, as int2vector and oidvector are.
pub fn vector(element: Oid, items: Vec<Datum>) -> Datum {
    let dims = vec![(items.len() as i32, 0)];
    Datum::Array(Arc::new(ArrayValue { element, dims, items }))
}

/// A one-dimensional array counted from 1.
pub fn array(element: Oid, items: Vec<Datum>) -> Datum {
    let dims = if items.is_empty() { Vec::new() } else { vec![(items.len() as i32, 1)] };
    Datum::Array(Arc::new(ArrayValue { element, dims, items }))
}

/// A row of a system relation.
#[derive(Clone, Debug)]
pub struct CatalogRow {
    relation: &'static SystemRelation,
    values: Vec<Datum>,
}

impl CatalogRow {
    pub fn new(relation: &'static SystemRelation) -> Self {
        let values = relation
            .columns
            .iter()
            .map(|c| if c.not_null { unused(c.ty) } else { Datum::Null })
            .collect();
        CatalogRow { relation, values }
    }

    /// A row that was read.
    pub fn from_values(relation: &'static SystemRelation, values: Vec<Datum>) -> Self {
        debug_assert_eq!(relation.columns.len(), values.len());
        CatalogRow { relation, values }
    }

    pub fn relation(&self) -> &'static SystemRelation {
        self.relation
    }

    pub fn values(&self) -> &[Datum] {
        &self.values
    }

    pub fn into_values(self) -> Vec<Datum> {
        self.values
    }

    pub fn put(&mut self, column: &str, value: Datum) {
        let at = self.relation.position(column);
        self.values[at] = value;
    }

    pub fn set(mut self, column: &str, value: Datum) -> Self {
        self.put(column, value);
        self
    }

    pub fn oid(self, column: &str, value: Oid) -> Self {
        self.set(column, Datum::Oid(value.0))
    }

    pub fn name(self, column: &str, value: &str) -> Self {
        self.set(column, Datum::text(value))
    }

    pub fn bool(self, column: &str, value: bool) -> Self {
        self.set(column, Datum::Bool(value))
    }

    pub fn char(self, column: &str, value: char) -> Self {
        self.set(column, Datum::Char(value as u8))
    }

    pub fn int2(self, column: &str, value: i16) -> Self {
        self.set(column, Datum::Int2(value))
    }

    pub fn int4(self, column: &str, value: i32) -> Self {
        self.set(column, Datum::Int4(value))
    }

    pub fn get(&self, column: &str) -> &Datum {
        &self.values[self.relation.position(column)]
    }

    pub fn get_oid(&self, column: &str) -> Oid {
        match self.get(column) {
            Datum::Oid(v) => Oid(*v),
            _ => Oid::INVALID,
        }
    }

    pub fn get_text(&self, column: &str) -> &str {
        self.get_text_opt(column).unwrap_or("")
    }

    pub fn get_text_opt(&self, column: &str) -> Option<&str> {
        match self.get(column) {
            Datum::Text(v) => Some(v),
            _ => None,
        }
    }

    pub fn get_bool(&self, column: &str) -> bool {
        matches!(self.get(column), Datum::Bool(true))
    }

    pub fn get_char(&self, column: &str) -> char {
        match self.get(column) {
            Datum::Char(v) => *v as char,
            _ => '\0',
        }
    }

    pub fn get_int(&self, column: &str) -> i64 {
        match self.get(column) {
            Datum::Int2(v) => i64::from(*v),
            Datum::Int4(v) => i64::from(*v),
            Datum::Int8(v) => *v,
            _ => 0,
        }
    }

    /// The items of an array column; none when it is NULL.
    pub fn get_items(&self, column: &str) -> &[Datum] {
        match self.get(column) {
            Datum::Array(a) => &a.items,
            _ => &[],
        }
    }

    pub fn get_int2_items(&self, column: &str) -> Vec<i16> {
        let number = |d: &Datum| if let Datum::Int2(v) = d { *v } else { 0 };
        self.get_items(column).iter().map(number).collect()
    }
}
