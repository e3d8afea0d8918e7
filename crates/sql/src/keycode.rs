//! Index keys: byte strings whose order is the order of the values.
//!
//! ```text
//!   (int4 5, text 'ab') ascending, nulls last    01 80 00 00 05 | 01 61 62 00
//!   int4 NULL                                    02
//!   text 'ab' descending                         01 9e 9d ff
//! ```
//!
//! Each column starts with a marker byte, 1 for a value; NULL is 0 (nulls first) or 2 (nulls
//! last). DESC inverts the value's bytes, not the marker. Every column is prefix-free, so keys of
//! several columns compare column by column, and a prefix of columns is a prefix of bytes.
//!
//! | type             | bytes                                                                  |
//! |------------------|------------------------------------------------------------------------|
//! | integers, dates  | big-endian, sign bit flipped                                            |
//! | floats           | IEEE bits made monotone; NaN above all, -0 as 0                         |
//! | text             | the bytes and a zero (text holds none); char(n) without trailing blanks |
//! | bytea            | bytes with 00 as `00 ff`, then `00 00`                                  |
//! | numeric          | class, weight, digits + 1, zero digit; complemented below zero          |
//! | interval         | microseconds with 30-day months, 16 bytes                               |
//! | arrays, records  | items with markers, an end marker below them, then the shape            |
//!
//! Equal values have equal keys: the key of 1.0 is that of 1.00. [`decode_key`] therefore gives
//! values back only for types in which equality means identity ([`decodable`]).

use crate::error::{Result, SqlError, State};
use crate::types::compare::{interval_key, timetz_key};
use crate::types::numeric::{Numeric, Sign};
use crate::types::record::natural_type;
use crate::types::{ArrayValue, Datum, Oid};
use compact_str::CompactString;
use inkling_storage::ids::{RowId, SlotNo};

const NULL_FIRST: u8 = 0;
const VALUE: u8 = 1;
const NULL_LAST: u8 = 2;

/// Marks the end of an array's or record's items: below a value and a NULL.
const END: u8 = 0;

/// Appends the key of `values`; `cols` says type, descending, nulls first for each.
pub fn encode_key(values: &[Datum], cols: &[(Oid, bool, bool)], out: &mut Vec<u8>) -> Result<()> {
    for (value, (ty, descending, nulls_first)) in values.iter().zip(cols) {
        encode_column(value, *ty, *descending, *nulls_first, out)?;
    }
    Ok(())
}

/// Appends one column's key.
#[inline]
pub fn encode_column(
    value: &Datum,
    ty: Oid,
    descending: bool,
    nulls_first: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    if value.is_null() {
        out.push(if nulls_first { NULL_FIRST } else { NULL_LAST });
        return Ok(());
    }
    out.push(VALUE);
    let start = out.len();
    encode_value(value, ty, out)?;
    if descending {
        for b in &mut out[start..] {
            *b = !*b;
        }
    }
    Ok(())
}

#[inline]
fn put_i32(v: i32, out: &mut Vec<u8>) {
    out.extend((v as u32 ^ 0x8000_0000).to_be_bytes());
}

#[inline]
fn put_i64(v: i64, out: &mut Vec<u8>) {
    out.extend((v as u64 ^ (1 << 63)).to_be_bytes());
}

fn encode_value(value: &Datum, ty: Oid, out: &mut Vec<u8>) -> Result<()> {
    match value {
        Datum::Int4(v) | Datum::Date(v) => put_i32(*v, out),
        Datum::Int8(v) | Datum::Time(v) | Datum::Timestamp(v) => put_i64(*v, out),
        Datum::Text(v) => {
            let text = if ty == Oid::BPCHAR { v.trim_end_matches(' ') } else { v.as_str() };
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
        Datum::Bool(v) => out.push(u8::from(*v)),
        Datum::Int2(v) => out.extend((*v as u16 ^ 0x8000).to_be_bytes()),
        Datum::Float4(v) => out.extend(float_key(f64::from(*v)).to_be_bytes()),
        Datum::Float8(v) => out.extend(float_key(*v).to_be_bytes()),
        Datum::Numeric(v) => put_numeric(v, out),
        Datum::Bytea(v) => {
            for &b in v.iter() {
                out.push(b);
                if b == 0 {
                    out.push(0xff);
                }
            }
            out.extend([0, 0]);
        }
        Datum::TimeTz(v) => {
            let (moment, zone) = timetz_key(v);
            put_i64(moment, out);
            put_i32(zone, out);
        }
        Datum::Interval(v) => {
            out.extend((interval_key(v) as u128 ^ (1 << 127)).to_be_bytes());
        }
        Datum::Uuid(v) => out.extend_from_slice(v),
        Datum::Oid(v) => out.extend(v.to_be_bytes()),
        Datum::Char(v) => out.push(*v),
        Datum::Tid(v) => {
            out.extend(v.block.to_be_bytes());
            out.extend(v.slot.raw().to_be_bytes());
        }
        Datum::Array(v) => put_array(v, out)?,
        Datum::Record(v) => put_items(v, None, out)?,
        Datum::Null => return Err(SqlError::internal("NULL has no key")),
    }
    Ok(())
}

/// Bits that order as the values do.
fn float_key(v: f64) -> u64 {
    if v.is_nan() {
        return u64::MAX;
    }
    let bits = if v == 0.0 { 0 } else { v.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

fn put_numeric(v: &Numeric, out: &mut Vec<u8>) {
    let class = match v.sign() {
        Sign::NegativeInfinity => 0,
        Sign::Negative => 1,
        Sign::Positive if v.is_zero() => 2,
        Sign::Positive => 3,
        Sign::PositiveInfinity => 4,
        Sign::Nan => 5,
    };
    out.push(class);
    if !matches!(class, 1 | 3) {
        return;
    }
    let start = out.len();
    out.extend((v.weight() as i16 as u16 ^ 0x8000).to_be_bytes());
    for d in v.digits() {
        out.extend((d + 1).to_be_bytes());
    }
    out.extend([0, 0]);
    if class == 1 {
        for b in &mut out[start..] {
            *b = !*b;
        }
    }
}

fn put_items(items: &[Datum], element: Option<Oid>, out: &mut Vec<u8>) -> Result<()> {
    for item in items {
        if item.is_null() {
            out.push(NULL_LAST);
        } else {
            out.push(VALUE);
            encode_value(item, element.unwrap_or_else(|| natural_type(item)), out)?;
        }
    }
    out.push(END);
    Ok(())
}

fn put_array(v: &ArrayValue, out: &mut Vec<u8>) -> Result<()> {
    put_items(&v.items, Some(v.element), out)?;
    out.push(v.dims.len() as u8);
    for (len, _) in &v.dims {
        put_i32(*len, out);
    }
    for (_, lower) in &v.dims {
        put_i32(*lower, out);
    }
    Ok(())
}

/// Whether [`decode_key`] gives back exactly what went in.
pub fn decodable(ty: Oid) -> bool {
    matches!(
        ty,
        Oid::BOOL
            | Oid::INT2
            | Oid::INT4
            | Oid::INT8
            | Oid::PG_LSN
            | Oid::XID8
            | Oid::TEXT
            | Oid::VARCHAR
            | Oid::NAME
            | Oid::BYTEA
            | Oid::DATE
            | Oid::TIME
            | Oid::TIMESTAMP
            | Oid::TIMESTAMPTZ
            | Oid::UUID
            | Oid::CHAR
            | Oid::TID
            | Oid::OID
            | Oid::REGCLASS
            | Oid::REGTYPE
            | Oid::REGPROC
            | Oid::REGPROCEDURE
            | Oid::REGOPER
            | Oid::REGOPERATOR
            | Oid::REGNAMESPACE
            | Oid::REGROLE
            | Oid::REGCOLLATION
    )
}

fn corrupt() -> SqlError {
    SqlError::new(State::INDEX_CORRUPTED, "index key is corrupt")
}

/// Reads a key's columns back. All of them must be [`decodable`].
pub fn decode_key(key: &[u8], cols: &[(Oid, bool, bool)], out: &mut [Datum]) -> Result<()> {
    let mut reader = Reader { key, descending: false };
    for ((ty, descending, _), slot) in cols.iter().zip(out.iter_mut()) {
        reader.descending = false;
        *slot = match reader.byte()? {
            VALUE => {
                reader.descending = *descending;
                reader.value(*ty)?
            }
            NULL_FIRST | NULL_LAST => Datum::Null,
            _ => return Err(corrupt()),
        };
    }
    Ok(())
}

struct Reader<'a> {
    key: &'a [u8],
    descending: bool,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8> {
        Ok(self.take::<1>()?[0])
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.key.split_first_chunk::<N>().ok_or_else(corrupt)?;
        self.key = tail;
        Ok(if self.descending { head.map(|b| !b) } else { *head })
    }

    fn i32(&mut self) -> Result<i32> {
        Ok((u32::from_be_bytes(self.take()?) ^ 0x8000_0000) as i32)
    }

    fn i64(&mut self) -> Result<i64> {
        Ok((u64::from_be_bytes(self.take()?) ^ (1 << 63)) as i64)
    }

    fn value(&mut self, ty: Oid) -> Result<Datum> {
        Ok(match ty {
            Oid::INT4 => Datum::Int4(self.i32()?),
            Oid::DATE => Datum::Date(self.i32()?),
            Oid::INT8 | Oid::PG_LSN | Oid::XID8 => Datum::Int8(self.i64()?),
            Oid::TIME => Datum::Time(self.i64()?),
            Oid::TIMESTAMP | Oid::TIMESTAMPTZ => Datum::Timestamp(self.i64()?),
            Oid::BOOL => Datum::Bool(self.byte()? != 0),
            Oid::INT2 => Datum::Int2((u16::from_be_bytes(self.take()?) ^ 0x8000) as i16),
            Oid::TEXT | Oid::VARCHAR | Oid::NAME => self.text()?,
            Oid::BYTEA => self.bytes()?,
            Oid::UUID => Datum::Uuid(self.take()?),
            Oid::CHAR => Datum::Char(self.byte()?),
            Oid::TID => {
                let block = u32::from_be_bytes(self.take()?);
                Datum::Tid(RowId::new(block, SlotNo::new(u16::from_be_bytes(self.take()?))))
            }
            ty if decodable(ty) => Datum::Oid(u32::from_be_bytes(self.take()?)),
            _ => return Err(SqlError::internal("this type's keys cannot be decoded")),
        })
    }

    fn text(&mut self) -> Result<Datum> {
        let end_mark = if self.descending { 0xff } else { 0 };
        let end = self.key.iter().position(|b| *b == end_mark).ok_or_else(corrupt)?;
        let (text, rest) = self.key.split_at(end);
        self.key = &rest[1..];
        let text = if self.descending {
            let plain: Vec<u8> = text.iter().map(|b| !b).collect();
            CompactString::from_utf8(plain)
        } else {
            CompactString::from_utf8(text)
        };
        text.map(Datum::Text).map_err(|_| corrupt())
    }

    fn bytes(&mut self) -> Result<Datum> {
        let mut out = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    0 => return Ok(Datum::Bytea(out.into())),
                    0xff => out.push(0),
                    _ => return Err(corrupt()),
                },
                b => out.push(b),
            }
        }
    }
}

#[cfg(test)]
#[path = "keycode_tests.rs"]
mod tests;
