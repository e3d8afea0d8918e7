//! Order and equality of values: what btree indexes, sorts, DISTINCT and hashing agree on.
//!
//! - Text compares by bytes (collation C); NaN equals NaN and is above every other number; an
//!   interval counts a month as 30 days and a day as 24 hours.
//! - NULLs inside arrays and records are equal to each other and above everything else.
//! - [`hash`] gives equal values equal hashes, for the integer types across their widths too.
//! - `char(n)` ignores trailing blanks only in its own operators and in [`compare_as`], because a
//!   value does not know its type; values of one column are padded alike anyway.

use super::{ArrayValue, Datum, Interval, Oid, TimeTz};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Btree order of two values of one type.
#[inline]
pub fn compare(a: &Datum, b: &Datum) -> Ordering {
    match (a, b) {
        (Datum::Int4(a), Datum::Int4(b)) => a.cmp(b),
        (Datum::Int8(a), Datum::Int8(b)) => a.cmp(b),
        (Datum::Text(a), Datum::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        _ => compare_others(a, b),
    }
}

fn compare_others(a: &Datum, b: &Datum) -> Ordering {
    match (a, b) {
        (Datum::Null, Datum::Null) => Ordering::Equal,
        (Datum::Null, _) => Ordering::Greater,
        (_, Datum::Null) => Ordering::Less,
        (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
        (Datum::Int2(a), Datum::Int2(b)) => a.cmp(b),
        (Datum::Float4(a), Datum::Float4(b)) => float_order(f64::from(*a), f64::from(*b)),
        (Datum::Float8(a), Datum::Float8(b)) => float_order(*a, *b),
        (Datum::Numeric(a), Datum::Numeric(b)) => a.compare(b),
        (Datum::Bytea(a), Datum::Bytea(b)) => a.cmp(b),
        (Datum::Date(a), Datum::Date(b)) => a.cmp(b),
        (Datum::Time(a), Datum::Time(b)) | (Datum::Timestamp(a), Datum::Timestamp(b)) => a.cmp(b),
        (Datum::TimeTz(a), Datum::TimeTz(b)) => timetz_key(a).cmp(&timetz_key(b)),
        (Datum::Interval(a), Datum::Interval(b)) => interval_key(a).cmp(&interval_key(b)),
        (Datum::Uuid(a), Datum::Uuid(b)) => a.cmp(b),
        (Datum::Oid(a), Datum::Oid(b)) => a.cmp(b),
        (Datum::Char(a), Datum::Char(b)) => a.cmp(b),
        (Datum::Tid(a), Datum::Tid(b)) => a.cmp(b),
        (Datum::Array(a), Datum::Array(b)) => compare_arrays(a, b),
        (Datum::Record(a), Datum::Record(b)) => {
            compare_items(a, b).then_with(|| a.len().cmp(&b.len()))
        }
        _ => match (integer(a), integer(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => rank(a).cmp(&rank(b)),
        },
    }
}

/// [`compare`] for a known type: `char(n)` without its trailing blanks.
pub fn compare_as(ty: Oid, a: &Datum, b: &Datum) -> Ordering {
    match (ty, a, b) {
        (Oid::BPCHAR, Datum::Text(a), Datum::Text(b)) => {
            a.trim_end_matches(' ').as_bytes().cmp(b.trim_end_matches(' ').as_bytes())
        }
        _ => compare(a, b),
    }
}

#[inline]
pub fn float_order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// What intervals compare by: microseconds with 30-day months.
#[inline]
pub fn interval_key(i: &Interval) -> i128 {
    const DAY: i128 = 86_400_000_000;
    i128::from(i.micros) + DAY * (i128::from(i.days) + 30 * i128::from(i.months))
}

/// The moment in Greenwich first, then the zone.
#[inline]
pub fn timetz_key(t: &TimeTz) -> (i64, i32) {
    (t.micros + i64::from(t.zone) * 1_000_000, t.zone)
}

fn compare_items(a: &[Datum], b: &[Datum]) -> Ordering {
    a.iter().zip(b).map(|(x, y)| compare(x, y)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// Elements first, then how many, then the shape.
fn compare_arrays(a: &ArrayValue, b: &ArrayValue) -> Ordering {
    let lengths = |v: &ArrayValue| v.dims.iter().map(|d| d.0).collect::<Vec<_>>();
    let bounds = |v: &ArrayValue| v.dims.iter().map(|d| d.1).collect::<Vec<_>>();
    compare_items(&a.items, &b.items)
        .then_with(|| a.items.len().cmp(&b.items.len()))
        .then_with(|| a.dims.len().cmp(&b.dims.len()))
        .then_with(|| lengths(a).cmp(&lengths(b)))
        .then_with(|| bounds(a).cmp(&bounds(b)))
}

fn integer(d: &Datum) -> Option<i64> {
    match d {
        Datum::Int2(v) => Some(i64::from(*v)),
        Datum::Int4(v) => Some(i64::from(*v)),
        Datum::Int8(v) => Some(*v),
        _ => None,
    }
}

/// Where a variant stands among others: only for values whose types should never have met.
fn rank(d: &Datum) -> u8 {
    match d {
        Datum::Bool(_) => 0,
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => 1,
        Datum::Float4(_) => 2,
        Datum::Float8(_) => 3,
        Datum::Numeric(_) => 4,
        Datum::Text(_) => 5,
        Datum::Bytea(_) => 6,
        Datum::Date(_) => 7,
        Datum::Time(_) => 8,
        Datum::TimeTz(_) => 9,
        Datum::Timestamp(_) => 10,
        Datum::Interval(_) => 11,
        Datum::Uuid(_) => 12,
        Datum::Oid(_) => 13,
        Datum::Char(_) => 14,
        Datum::Tid(_) => 15,
        Datum::Array(_) => 16,
        Datum::Record(_) => 17,
        Datum::Null => 18,
    }
}

/// Feeds a value to a hasher; equal values (by [`compare`]) feed the same.
#[inline]
pub fn hash<H: Hasher>(d: &Datum, h: &mut H) {
    match d {
        Datum::Null => h.write_u8(0),
        Datum::Bool(v) => h.write_u8(1 + u8::from(*v)),
        Datum::Int2(v) => h.write_i64(i64::from(*v)),
        Datum::Int4(v) => h.write_i64(i64::from(*v)),
        Datum::Int8(v) => h.write_i64(*v),
        Datum::Float4(v) => h.write_u64(float_bits(f64::from(*v))),
        Datum::Float8(v) => h.write_u64(float_bits(*v)),
        Datum::Numeric(v) => v.hash(h),
        Datum::Text(v) => h.write(v.as_bytes()),
        Datum::Bytea(v) => h.write(v),
        Datum::Date(v) => h.write_i32(*v),
        Datum::Time(v) | Datum::Timestamp(v) => h.write_i64(*v),
        Datum::TimeTz(v) => timetz_key(v).hash(h),
        Datum::Interval(v) => h.write_i128(interval_key(v)),
        Datum::Uuid(v) => h.write(v),
        Datum::Oid(v) => h.write_u32(*v),
        Datum::Char(v) => h.write_u8(*v),
        Datum::Tid(v) => v.hash(h),
        Datum::Array(v) => hash_items(&v.items, h),
        Datum::Record(v) => hash_items(v, h),
    }
}

fn hash_items<H: Hasher>(items: &[Datum], h: &mut H) {
    h.write_usize(items.len());
    for item in items {
        hash(item, h);
    }
}

fn float_bits(v: f64) -> u64 {
    if v.is_nan() {
        f64::NAN.to_bits()
    } else if v == 0.0 {
        0
    } else {
        v.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_the_greatest_and_zeros_are_equal() {
        let f = Datum::Float8;
        assert_eq!(compare(&f(f64::NAN), &f(f64::INFINITY)), Ordering::Greater);
        assert_eq!(compare(&f(f64::NAN), &f(f64::NAN)), Ordering::Equal);
        assert_eq!(compare(&f(0.0), &f(-0.0)), Ordering::Equal);
    }

    #[test]
    fn a_month_is_thirty_days() {
        let month = Datum::Interval(Interval { months: 1, days: 0, micros: 0 });
        let days = Datum::Interval(Interval { months: 0, days: 30, micros: 0 });
        assert_eq!(compare(&month, &days), Ordering::Equal);
    }

    #[test]
    fn char_ignores_trailing_blanks() {
        let (a, b) = (Datum::text("a "), Datum::text("a"));
        assert_eq!(compare_as(Oid::BPCHAR, &a, &b), Ordering::Equal);
        assert_eq!(compare_as(Oid::TEXT, &a, &b), Ordering::Greater);
    }
}
