//! Functions of `numeric`, and the casts between it and the other numbers.

use super::args::fns;
use super::int::{bigint_range, integer_range, smallint_range};
use crate::error::{Result, SqlError, State};
use crate::types::numeric::{Numeric, arith, math};

/// A numeric rounded to a whole number of a machine type.
fn to_integer<T: TryFrom<i128>>(n: &Numeric, name: &str, range: fn() -> SqlError) -> Result<T> {
    if !n.is_finite() {
        let what = if n.is_nan() { "NaN" } else { "infinity" };
        return Err(SqlError::new(
            State::FEATURE_NOT_SUPPORTED,
            format!("cannot convert {what} to {name}"),
        ));
    }
    let whole = n.round(0)?.to_i128(0).ok_or_else(range)?;
    T::try_from(whole).map_err(|_| range())
}

pub fn to_i64(n: &Numeric) -> Result<i64> {
    to_integer(n, "bigint", bigint_range)
}

pub fn to_i32(n: &Numeric) -> Result<i32> {
    to_integer(n, "integer", integer_range)
}

fns! {
    fn add(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::add(a, b)? }
    fn sub(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::sub(a, b)? }
    fn mul(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::mul(a, b)? }
    fn div(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::div(a, b)? }
    fn div_trunc(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::div_trunc(a, b)? }
    fn modulo(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::modulo(a, b)? }
    fn power(_cx; a: &Numeric, b: &Numeric) -> Numeric { math::power(a, b)? }
    fn sqrt(_cx; a: &Numeric) -> Numeric { math::sqrt(a)? }
    fn exp(_cx; a: &Numeric) -> Numeric { math::exp(a)? }
    fn ln(_cx; a: &Numeric) -> Numeric { math::ln(a)? }
    fn log(_cx; base: &Numeric, a: &Numeric) -> Numeric { math::log(base, a)? }
    fn log10(_cx; a: &Numeric) -> Numeric { math::log(&Numeric::from(10i64), a)? }
    fn gcd(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::gcd(a, b)? }
    fn lcm(_cx; a: &Numeric, b: &Numeric) -> Numeric { arith::lcm(a, b)? }
    fn factorial(_cx; a: i64) -> Numeric { math::factorial(a)? }
    fn abs(_cx; a: &Numeric) -> Numeric { a.clone().abs() }
    fn uminus(_cx; a: &Numeric) -> Numeric { a.clone().negated() }
    fn uplus(_cx; a: &Numeric) -> Numeric { a.clone() }
    fn inc(_cx; a: &Numeric) -> Numeric { arith::add(a, &Numeric::from(1i64))? }
    fn sign(_cx; a: &Numeric) -> Numeric {
        if a.is_nan() {
            Numeric::NAN
        } else if a.is_negative() {
            Numeric::from(-1i64)
        } else {
            Numeric::from(i64::from(!a.is_zero()))
        }
    }
    fn ceil(_cx; a: &Numeric) -> Numeric { arith::to_whole(a, true)? }
    fn floor(_cx; a: &Numeric) -> Numeric { arith::to_whole(a, false)? }
    fn round(_cx; a: &Numeric, scale: i32) -> Numeric { a.round(scale.clamp(-2000, 2000))? }
    fn round_whole(_cx; a: &Numeric) -> Numeric { a.round(0)? }
    fn trunc(_cx; a: &Numeric, scale: i32) -> Numeric { a.trunc(scale.clamp(-2000, 2000))? }
    fn trunc_whole(_cx; a: &Numeric) -> Numeric { a.trunc(0)? }
    fn scale(_cx; a: &Numeric) -> Option<i32> { a.is_finite().then(|| a.dscale()) }
    fn min_scale(_cx; a: &Numeric) -> Option<i32> { a.is_finite().then(|| a.min_scale()) }
    fn trim_scale(_cx; a: &Numeric) -> Numeric {
        if a.is_finite() { a.clone().with_dscale(a.min_scale()) } else { a.clone() }
    }
    fn apply_typmod(_cx; a: &Numeric, typmod: i32) -> Numeric {
        if typmod < 0 { a.clone() } else { a.apply_typmod(typmod)? }
    }
    fn to_int2(_cx; a: &Numeric) -> i16 { to_integer(a, "smallint", smallint_range)? }
    fn to_int4(_cx; a: &Numeric) -> i32 { to_i32(a)? }
    fn to_int8(_cx; a: &Numeric) -> i64 { to_i64(a)? }
    fn to_float4(_cx; a: &Numeric) -> f32 {
        if a.is_finite() {
            crate::types::scalar::parse_f32(&a.to_string())?
        } else {
            a.to_f64()? as f32
        }
    }
    fn to_float8(_cx; a: &Numeric) -> f64 { a.to_f64()? }
    fn from_int2(_cx; a: i16) -> Numeric { i64::from(a).into() }
    fn from_int4(_cx; a: i32) -> Numeric { i64::from(a).into() }
    fn from_int8(_cx; a: i64) -> Numeric { a.into() }
    fn from_float4(_cx; a: f32) -> Numeric { Numeric::from_f32(a)? }
    fn from_float8(_cx; a: f64) -> Numeric { Numeric::from_f64(a)? }
}

fns! {
    fn width_bucket(_cx; operand: &Numeric, low: &Numeric, high: &Numeric, count: i32) -> i32 {
        let bad = |m: &str| SqlError::new(State::from_code("2201G"), m);
        if count <= 0 {
            return Err(bad("count must be greater than zero"));
        }
        if operand.is_nan() || low.is_nan() || high.is_nan() {
            return Err(bad("operand, lower bound, and upper bound cannot be NaN"));
        }
        if low.is_infinite() || high.is_infinite() {
            return Err(bad("lower and upper bounds must be finite"));
        }
        let order = low.compare(high);
        if order.is_eq() {
            return Err(bad("lower bound cannot equal upper bound"));
        }
        if operand.compare(low) == order && !operand.compare(low).is_eq() {
            0
        } else if operand.compare(high) != order {
            count.checked_add(1).ok_or_else(integer_range)?
        } else {
            let part = arith::sub(operand, low)?;
            let whole = arith::sub(high, low)?;
            let scaled = arith::mul(&part, &Numeric::from(i64::from(count)))?;
            to_i32(&arith::div_trunc(&scaled, &whole)?)? + 1
        }
    }

    fn lsn_minus(_cx; a: i64, b: i64) -> Numeric { (i128::from(a) - i128::from(b)).into() }
    fn lsn_plus(_cx; a: i64, b: &Numeric) -> i64 { shift_lsn(a, b, false)? }
    fn lsn_back(_cx; a: i64, b: &Numeric) -> i64 { shift_lsn(a, b, true)? }
    fn plus_lsn(_cx; a: &Numeric, b: i64) -> i64 { shift_lsn(b, a, false)? }
}

fn shift_lsn(lsn: i64, bytes: &Numeric, back: bool) -> Result<i64> {
    if bytes.is_nan() {
        let verb = if back { "subtract NaN from" } else { "add NaN to" };
        return Err(SqlError::new(State::FEATURE_NOT_SUPPORTED, format!("cannot {verb} pg_lsn")));
    }
    let base = Numeric::from(i128::from(lsn));
    let moved = if back { arith::sub(&base, bytes)? } else { arith::add(&base, bytes)? };
    let range = || SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "pg_lsn out of range");
    let raw = moved.round(0)?.to_i128(0).ok_or_else(range)?;
    i64::try_from(raw).ok().filter(|v| *v >= 0).ok_or_else(range)
}

/// A size in bytes with a unit: the largest that leaves at least ten of it.
fn pretty(size: &Numeric) -> Result<String> {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let limit = Numeric::from(10i64 * 1024);
    if size.clone().abs().compare(&limit).is_lt() {
        return Ok(format!("{size} bytes"));
    }
    // Halves are kept until the last step, where they round away from zero.
    let halves = Numeric::from(20i64 * 1024 - 1);
    let mut value = arith::div_trunc(size, &Numeric::from(512i64))?;
    for (i, unit) in UNITS.iter().enumerate() {
        if i + 1 == UNITS.len() || value.clone().abs().compare(&halves).is_lt() {
            let away = Numeric::from(if value.is_negative() { -1i64 } else { 1 });
            let rounded = arith::div_trunc(&arith::add(&value, &away)?, &Numeric::from(2i64))?;
            return Ok(format!("{rounded} {unit}"));
        }
        value = arith::div_trunc(&value, &Numeric::from(1024i64))?;
    }
    Err(SqlError::internal("no unit of size"))
}

fns! {
    fn size_pretty(_cx; size: &Numeric) -> String { pretty(size)? }
    fn size_pretty_int(_cx; size: i64) -> String { pretty(&Numeric::from(size))? }
    fn size_bytes(_cx; text: &str) -> i64 { parse_size(text)? }
}

/// `10 GB`, `1.5kB`, `512`.
fn parse_size(text: &str) -> Result<i64> {
    let fail =
        || SqlError::new(State::INVALID_PARAMETER_VALUE, format!("invalid size: \"{text}\""));
    let s = text.trim_matches(crate::types::scalar::is_space);
    let unit_at = s
        .char_indices()
        .find(|(at, c)| c.is_alphabetic() && !is_exponent(s, *at))
        .map_or(s.len(), |(at, _)| at);
    let number = Numeric::parse(s[..unit_at].trim_end()).map_err(|_| fail())?;
    let unit = s[unit_at..].trim();
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "bytes" | "b" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        "tb" => 40,
        "pb" => 50,
        _ => {
            return Err(fail().detail(format!("Invalid size unit: \"{unit}\".")).hint(
                "Valid units are \"bytes\", \"B\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\".",
            ));
        }
    };
    to_i64(&arith::mul(&number, &Numeric::from(1i64 << shift))?)
}

/// The `e` of `1.5e3 kB` belongs to the number.
fn is_exponent(s: &str, at: usize) -> bool {
    let rest = &s.as_bytes()[at..];
    matches!(rest, [b'e' | b'E', b'0'..=b'9', ..] | [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..])
}

fns! {
    /// gen_random_uuid(): version 4.
    fn random_uuid(_cx;) -> [u8; 16] { *uuid::Uuid::new_v4().as_bytes() }
}
