//! Types and values.
//!
//! A type is named by its PostgreSQL OID and modifier ([`TypeRef`]); a value is a [`Datum`].
//! Which OID uses which variant:
//!
//! | variant        | types                                                                      |
//! |----------------|----------------------------------------------------------------------------|
//! | `Bool`         | bool                                                                       |
//! | `Int2/4/8`     | int2; int4; int8, and pg_lsn, xid8 (never beyond 2^63 here)                 |
//! | `Float4/8`     | float4; float8                                                             |
//! | `Numeric`      | numeric                                                                    |
//! | `Text`         | text, varchar, bpchar (padded), name, unknown, cstring, refcursor, json,    |
//! |                | pg_node_tree, aclitem                                                       |
//! | `Bytea`        | bytea                                                                      |
//! | `Date`         | date: days since 2000-01-01; i32::MIN/MAX are -infinity/infinity            |
//! | `Time`         | time: microseconds since midnight                                          |
//! | `TimeTz`       | timetz: microseconds since midnight, seconds west of Greenwich              |
//! | `Timestamp`    | timestamp, timestamptz: microseconds since 2000-01-01 (UTC for timestamptz) |
//! | `Interval`     | interval                                                                   |
//! | `Uuid`         | uuid                                                                       |
//! | `Oid`          | oid, regclass, regtype, regproc, regrole, regnamespace, ..., xid, cid       |
//! | `Char`         | "char" (one byte)                                                          |
//! | `Tid`          | tid                                                                        |
//! | `Array`        | every array type, int2vector, oidvector                                    |
//! | `Record`       | record, row types                                                          |

use compact_str::CompactString;
use inkling_storage::ids::RowId;
use std::sync::Arc;

#[cfg(test)]
pub mod arbitrary;
pub mod array;
pub mod compare;
pub mod datetime;
pub mod io;
pub mod json;
pub mod numeric;
pub mod oid;
pub mod record;
pub mod registry;
pub mod scalar;
pub mod style;
pub mod typmod;

pub use compare::{compare, hash};
pub use io::{apply_typmod, binary_in, binary_out, output, text_in, text_out};
pub use oid::Oid;
pub use registry::{
    TypeInfo, all, array_type, element_type, format_type, info, info_by_name, numeric_typmod,
};
pub use style::OutputStyle;

/// A type with its modifier (-1: none), e.g. `varchar(10)` is `(VARCHAR, 14)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TypeRef {
    pub oid: Oid,
    pub typmod: i32,
}

impl TypeRef {
    pub const fn new(oid: Oid, typmod: i32) -> Self {
        TypeRef { oid, typmod }
    }

    /// The type without a modifier.
    pub const fn plain(oid: Oid) -> Self {
        TypeRef { oid, typmod: -1 }
    }
}

/// An interval: three parts that do not convert into each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

/// A time of day with its zone: `zone` counts seconds *west* of Greenwich, as PostgreSQL's does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimeTz {
    pub micros: i64,
    pub zone: i32,
}

/// An array: dimensions as (length, lower bound), elements in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub struct ArrayValue {
    pub element: Oid,
    pub dims: Vec<(i32, i32)>,
    pub items: Vec<Datum>,
}

/// One SQL value. 24 bytes; texts up to 24 bytes live inside.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Datum {
    #[default]
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(Arc<numeric::Numeric>),
    Text(CompactString),
    Bytea(Arc<[u8]>),
    Date(i32),
    Time(i64),
    TimeTz(TimeTz),
    Timestamp(i64),
    Interval(Interval),
    Uuid([u8; 16]),
    Oid(u32),
    Char(u8),
    Tid(RowId),
    Array(Arc<ArrayValue>),
    Record(Arc<[Datum]>),
}

impl Datum {
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    pub fn text(s: impl Into<CompactString>) -> Datum {
        Datum::Text(s.into())
    }
}

const _: () = assert!(size_of::<Datum>() == 24);
