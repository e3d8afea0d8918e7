//! Row values as text and as bytes: `(1,"a b",,)`.
//!
//! A record carries no column types, so a field is written as the type that its value shows
//! ([`natural_type`]): a timestamp with time zone inside a record comes out in UTC without a
//! zone. Columns of tables never take this way.

use super::io::{self, Output};
use super::{Datum, Oid, array, array_type, scalar};
use crate::error::Result;

/// The type that a value's variant stands for first of all.
pub fn natural_type(d: &Datum) -> Oid {
    match d {
        Datum::Null | Datum::Text(_) => Oid::TEXT,
        Datum::Bool(_) => Oid::BOOL,
        Datum::Int2(_) => Oid::INT2,
        Datum::Int4(_) => Oid::INT4,
        Datum::Int8(_) => Oid::INT8,
        Datum::Float4(_) => Oid::FLOAT4,
        Datum::Float8(_) => Oid::FLOAT8,
        Datum::Numeric(_) => Oid::NUMERIC,
        Datum::Bytea(_) => Oid::BYTEA,
        Datum::Date(_) => Oid::DATE,
        Datum::Time(_) => Oid::TIME,
        Datum::TimeTz(_) => Oid::TIMETZ,
        Datum::Timestamp(_) => Oid::TIMESTAMP,
        Datum::Interval(_) => Oid::INTERVAL,
        Datum::Uuid(_) => Oid::UUID,
        Datum::Oid(_) => Oid::OID,
        Datum::Char(_) => Oid::CHAR,
        Datum::Tid(_) => Oid::TID,
        Datum::Array(a) => array_type(a.element),
        Datum::Record(_) => Oid::RECORD,
    }
}

pub fn write(fields: &[Datum], cx: &Output<'_>, out: &mut Vec<u8>) {
    out.push(b'(');
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if field.is_null() {
            continue;
        }
        let start = out.len();
        io::write(field, natural_type(field), cx, out);
        let text = &out[start..];
        let special =
            |b: &u8| matches!(b, b'"' | b'\\' | b'(' | b')' | b',') || scalar::is_space(*b as char);
        if text.is_empty() || text.iter().any(special) {
            let plain = out.split_off(start);
            out.push(b'"');
            for b in plain {
                if matches!(b, b'"' | b'\\') {
                    out.push(b);
                }
                out.push(b);
            }
            out.push(b'"');
        }
    }
    out.push(b')');
}

/// Number of fields, then (type, length, bytes) each.
pub fn binary_out(fields: &[Datum], out: &mut Vec<u8>) -> Result<()> {
    out.extend((fields.len() as i32).to_be_bytes());
    for field in fields {
        let ty = natural_type(field);
        out.extend(ty.0.to_be_bytes());
        array::write_sized(field, ty, out)?;
    }
    Ok(())
}
