//! Text forms of the simple types: booleans, integers, floats, names, bytea, uuid, tid, "char".
//!
//! Parsers accept what PostgreSQL 15 accepts (blanks around numbers, unique prefixes of boolean
//! words, bytea's hex and escape forms) and fail with its messages. Writers append to a buffer
//! and allocate nothing.

use super::Datum;
use crate::error::{Result, SqlError, State};
use inkling_storage::ids::{Lsn, RowId, SlotNo};
use std::io::Write as _;

/// Longest name in bytes.
pub const NAME_LEN: usize = 63;

pub fn invalid_syntax(ty: &str, s: &str) -> SqlError {
    SqlError::new(
        State::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {ty}: \"{s}\""),
    )
}

pub fn out_of_range_for(ty: &str, s: &str) -> SqlError {
    SqlError::new(
        State::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value \"{s}\" is out of range for type {ty}"),
    )
}

/// The blanks that C's `isspace` knows.
pub fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

pub fn trim(s: &str) -> &str {
    s.trim_matches(is_space)
}

pub fn parse_bool(s: &str) -> Result<bool> {
    let word = trim(s);
    let is_prefix = |full: &str, at_least: usize| {
        word.len() >= at_least
            && word.len() <= full.len()
            && full.as_bytes()[..word.len()].eq_ignore_ascii_case(word.as_bytes())
    };
    if is_prefix("true", 1) || is_prefix("yes", 1) || is_prefix("on", 2) || word == "1" {
        Ok(true)
    } else if is_prefix("false", 1) || is_prefix("no", 1) || is_prefix("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(invalid_syntax("boolean", s))
    }
}

/// Sign, then digits; the caller checks the range.
fn parse_digits(s: &str, ty: &str) -> Result<i128> {
    let body = trim(s);
    let (negative, digits) = match body.as_bytes().first() {
        Some(b'-') => (true, &body[1..]),
        Some(b'+') => (false, &body[1..]),
        _ => (false, body),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid_syntax(ty, s));
    }
    let mut value: i128 = 0;
    for b in digits.bytes() {
        value = value * 10 + i128::from(b - b'0');
        if value > i128::from(u64::MAX) {
            return Err(out_of_range_for(ty, s));
        }
    }
    Ok(if negative { -value } else { value })
}

pub fn parse_i16(s: &str) -> Result<i16> {
    i16::try_from(parse_digits(s, "smallint")?).map_err(|_| out_of_range_for("smallint", s))
}

pub fn parse_i32(s: &str) -> Result<i32> {
    i32::try_from(parse_digits(s, "integer")?).map_err(|_| out_of_range_for("integer", s))
}

pub fn parse_i64(s: &str) -> Result<i64> {
    i64::try_from(parse_digits(s, "bigint")?).map_err(|_| out_of_range_for("bigint", s))
}

/// An OID-like number: unsigned, but `-1` is taken as 4294967295, as PostgreSQL does.
pub fn parse_oid(s: &str, ty: &str) -> Result<u32> {
    let value = parse_digits(s, ty)?;
    if let Ok(v) = u32::try_from(value) {
        return Ok(v);
    }
    match i32::try_from(value) {
        Ok(v) => Ok(v as u32),
        Err(_) => Err(out_of_range_for(ty, s)),
    }
}

/// A transaction or command number: what `strtoul` would make of it.
pub fn parse_xid(s: &str) -> u64 {
    let body = trim(s);
    let (negative, digits) = match body.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, body.strip_prefix('+').unwrap_or(body)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    let mut value: u64 = 0;
    for d in digits.chars().map_while(|c| c.to_digit(radix)) {
        value = match value.checked_mul(u64::from(radix)).and_then(|v| v.checked_add(d.into())) {
            Some(v) => v,
            None => return u64::MAX,
        };
    }
    if negative { value.wrapping_neg() } else { value }
}

fn float_word(word: &str) -> Option<f64> {
    let (negative, name) = match word.as_bytes().first()? {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    let value = if name.eq_ignore_ascii_case("nan") {
        f64::NAN
    } else if name.eq_ignore_ascii_case("infinity") || name.eq_ignore_ascii_case("inf") {
        f64::INFINITY
    } else {
        return None;
    };
    Some(if negative { -value } else { value })
}

/// Digits with an optional point and exponent: what both Rust and C read as a decimal number.
fn is_decimal(word: &str) -> bool {
    let mut digits = false;
    let mut bytes = word.bytes().peekable();
    bytes.next_if(|b| matches!(b, b'+' | b'-'));
    while bytes.next_if(u8::is_ascii_digit).is_some() {
        digits = true;
    }
    if bytes.next_if_eq(&b'.').is_some() {
        while bytes.next_if(u8::is_ascii_digit).is_some() {
            digits = true;
        }
    }
    if digits && bytes.next_if(|b| matches!(b, b'e' | b'E')).is_some() {
        bytes.next_if(|b| matches!(b, b'+' | b'-'));
        digits = false;
        while bytes.next_if(u8::is_ascii_digit).is_some() {
            digits = true;
        }
    }
    digits && bytes.next().is_none()
}

fn has_nonzero_digit(word: &str) -> bool {
    word.split(['e', 'E']).next().is_some_and(|m| m.bytes().any(|b| matches!(b, b'1'..=b'9')))
}

fn float_range(ty: &str, word: &str) -> SqlError {
    SqlError::new(
        State::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("\"{word}\" is out of range for type {ty}"),
    )
}

pub fn parse_f64(s: &str) -> Result<f64> {
    const TY: &str = "double precision";
    let word = trim(s);
    if let Some(v) = float_word(word) {
        return Ok(v);
    }
    if !is_decimal(word) {
        return Err(invalid_syntax(TY, s));
    }
    let v: f64 = word.parse().map_err(|_| invalid_syntax(TY, s))?;
    if v.is_infinite() || (v == 0.0 && has_nonzero_digit(word)) {
        return Err(float_range(TY, word));
    }
    Ok(v)
}

pub fn parse_f32(s: &str) -> Result<f32> {
    const TY: &str = "real";
    let word = trim(s);
    if let Some(v) = float_word(word) {
        return Ok(v as f32);
    }
    if !is_decimal(word) {
        return Err(invalid_syntax(TY, s));
    }
    let v: f32 = word.parse().map_err(|_| invalid_syntax(TY, s))?;
    if v.is_infinite() || (v == 0.0 && has_nonzero_digit(word)) {
        return Err(float_range(TY, word));
    }
    Ok(v)
}

pub fn write_int(v: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(v).as_bytes());
}

fn write_special(v: f64, out: &mut Vec<u8>) -> bool {
    if v.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if v.is_infinite() {
        out.extend_from_slice(if v > 0.0 { b"Infinity" } else { b"-Infinity" });
    } else {
        return false;
    }
    true
}

/// Shortest digits that read back as the same value; `extra_float_digits` below 1 rounds to
/// `15 + extra` significant digits instead.
pub fn write_f64(v: f64, extra_float_digits: i32, out: &mut Vec<u8>) {
    if write_special(v, out) {
    } else if extra_float_digits > 0 {
        let mut buffer = ryu::Buffer::new();
        let text = buffer.format_finite(v);
        if v.abs() >= MIDPOINTS_FROM && is_midpoint(v, text) {
            write_off_midpoint(v, out);
        } else {
            write_shortest(text, 15, out);
        }
    } else {
        write_rounded(v, (15 + extra_float_digits).max(1), out);
    }
}

pub fn write_f32(v: f32, extra_float_digits: i32, out: &mut Vec<u8>) {
    if write_special(f64::from(v), out) {
    } else if extra_float_digits > 0 {
        write_shortest(ryu::Buffer::new().format_finite(v), 6, out);
    } else {
        write_rounded(f64::from(v), (6 + extra_float_digits).max(1), out);
    }
}

/// Below this the shortest digits are never half-way between two floats.
const MIDPOINTS_FROM: f64 = 9_007_199_254_740_992.0;

/// Whether decimal digits denote exactly the middle between `v` and a neighbour: `1e23` does. It
/// reads back as `v` only because ties go to the even one; PostgreSQL writes such values with
/// digits that are strictly nearer.
fn is_midpoint(v: f64, text: &str) -> bool {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = whole.bytes().chain(fraction.bytes()).filter(u8::is_ascii_digit);
    let decimal = digits.fold(0u128, |n, d| n * 10 + u128::from(d - b'0'));
    let ten = exponent.parse::<i32>().unwrap_or(0) - fraction.len() as i32;
    let bits = v.to_bits();
    let significand = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    let two = (bits >> 52 & 0x7ff) as i32 - 1075;
    // decimal * 10^ten == (2 * significand +- 1) * 2^(two - 1)
    if !(0..=23).contains(&ten) {
        return false;
    }
    let shift = two - 1 - ten;
    let left = decimal * 5u128.pow(ten as u32);
    if !(0..64).contains(&shift) {
        return false;
    }
    left == (2 * significand + 1) << shift || left == (2 * significand - 1) << shift
}

#[cold]
fn write_off_midpoint(v: f64, out: &mut Vec<u8>) {
    let near = (14..17)
        .map(|precision| format!("{v:.precision$e}"))
        .find(|text| text.parse() == Ok(v) && !is_midpoint(v, text));
    write_shortest(near.as_deref().unwrap_or("0e0"), 15, out);
}

/// Rewrites ryu's spelling in C's: exponents below -4 or from `sci_from` up are scientific.
fn write_shortest(ryu: &str, sci_from: i32, out: &mut Vec<u8>) {
    let (mantissa, exponent) = match ryu.split_once('e') {
        Some((m, e)) => (m, e.parse::<i32>().expect("ryu writes a number as the exponent")),
        None => (ryu, 0),
    };
    let mantissa = match mantissa.strip_prefix('-') {
        Some(rest) => {
            out.push(b'-');
            rest
        }
        None => mantissa,
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = [0u8; 40];
    let mut len = 0;
    for b in whole.bytes().chain(fraction.bytes()) {
        digits[len] = b;
        len += 1;
    }
    let leading = digits[..len].iter().take_while(|b| **b == b'0').count();
    if leading == len {
        out.push(b'0');
        return;
    }
    let point = whole.len() as i32 + exponent - leading as i32;
    let digits = &digits[leading..len];
    let kept = digits.len() - digits.iter().rev().take_while(|b| **b == b'0').count();
    write_digits(&digits[..kept], point, sci_from, out);
}

/// `0.DIGITS * 10^point`, in C's `%g` manner.
fn write_digits(digits: &[u8], point: i32, sci_from: i32, out: &mut Vec<u8>) {
    let exponent = point - 1;
    if exponent < -4 || exponent >= sci_from {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.push(b'e');
        out.push(if exponent < 0 { b'-' } else { b'+' });
        if exponent.abs() < 10 {
            out.push(b'0');
        }
        write_int(exponent.abs(), out);
    } else if point <= 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', -point as usize));
        out.extend_from_slice(digits);
    } else {
        let whole = point as usize;
        out.extend_from_slice(&digits[..digits.len().min(whole)]);
        if digits.len() > whole {
            out.push(b'.');
            out.extend_from_slice(&digits[whole..]);
        } else {
            out.extend(std::iter::repeat_n(b'0', whole - digits.len()));
        }
    }
}

/// C's `%.{precision}g`.
fn write_rounded(v: f64, precision: i32, out: &mut Vec<u8>) {
    let precision = precision.unsigned_abs() as usize;
    let mut buf = [0u8; 48];
    let mut cursor = std::io::Cursor::new(&mut buf[..]);
    let written = write!(cursor, "{:.*e}", precision - 1, v);
    debug_assert!(written.is_ok(), "17 digits fit");
    let len = cursor.position() as usize;
    let text = std::str::from_utf8(&buf[..len]).unwrap_or("0e0");
    write_shortest(text, precision as i32, out);
}

/// Cuts at the last whole character within the length of a name.
pub fn truncate_name(s: &str) -> &str {
    if s.len() <= NAME_LEN {
        return s;
    }
    let mut end = NAME_LEN;
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    &s[..end]
}

/// Text cannot hold a zero byte.
pub fn check_text(s: &str) -> Result<()> {
    if s.as_bytes().contains(&0) {
        return Err(SqlError::new(
            State::CHARACTER_NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    Ok(())
}

/// "char": one byte, or `\ooo` for one above 127.
pub fn parse_char(s: &str) -> u8 {
    let b = s.as_bytes();
    match b {
        [b'\\', x @ b'0'..=b'3', y @ b'0'..=b'7', z @ b'0'..=b'7'] => {
            ((x - b'0') << 6) | ((y - b'0') << 3) | (z - b'0')
        }
        [first, ..] => *first,
        [] => 0,
    }
}

pub fn write_char(c: u8, out: &mut Vec<u8>) {
    if c >= 0x80 {
        out.extend([b'\\', b'0' + (c >> 6), b'0' + ((c >> 3) & 7), b'0' + (c & 7)]);
    } else if c != 0 {
        out.push(c);
    }
}

fn bad_hex(c: char) -> SqlError {
    SqlError::new(State::INVALID_PARAMETER_VALUE, format!("invalid hexadecimal digit: \"{c}\""))
}

/// Hexadecimal digits in pairs, blanks between pairs allowed.
pub fn parse_hex(s: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(s.len() / 2);
    let mut chars = s.chars().filter(|c| !is_space(*c));
    while let Some(high) = chars.next() {
        let high = high.to_digit(16).ok_or_else(|| bad_hex(high))?;
        let low = chars.next().ok_or_else(|| {
            SqlError::new(
                State::INVALID_PARAMETER_VALUE,
                "invalid hexadecimal data: odd number of digits",
            )
        })?;
        let low = low.to_digit(16).ok_or_else(|| bad_hex(low))?;
        out.push((high << 4 | low) as u8);
    }
    Ok(out)
}

pub fn parse_bytea(s: &str) -> Result<Vec<u8>> {
    if let Some(hex) = s.strip_prefix("\\x") {
        return parse_hex(hex);
    }
    let mut out = Vec::with_capacity(s.len());
    let mut rest = s.as_bytes();
    loop {
        rest = match rest {
            [] => return Ok(out),
            [b'\\', b'\\', tail @ ..] => {
                out.push(b'\\');
                tail
            }
            [b'\\', x @ b'0'..=b'3', y @ b'0'..=b'7', z @ b'0'..=b'7', tail @ ..] => {
                out.push(((x - b'0') << 6) | ((y - b'0') << 3) | (z - b'0'));
                tail
            }
            [b'\\', ..] => {
                return Err(SqlError::new(
                    State::INVALID_TEXT_REPRESENTATION,
                    "invalid input syntax for type bytea",
                ));
            }
            [b, tail @ ..] => {
                out.push(*b);
                tail
            }
        };
    }
}

pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(bytes.len() * 2);
    for b in bytes {
        out.push(HEX[usize::from(b >> 4)]);
        out.push(HEX[usize::from(b & 15)]);
    }
}

/// Bytes outside printable ASCII as `\ooo`, the backslash doubled.
pub fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for &b in bytes {
        match b {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(b),
            _ => out.extend([b'\\', b'0' + (b >> 6), b'0' + ((b >> 3) & 7), b'0' + (b & 7)]),
        }
    }
}

pub fn write_bytea(bytes: &[u8], hex: bool, out: &mut Vec<u8>) {
    if hex {
        out.extend_from_slice(b"\\x");
        write_hex(bytes, out);
    } else {
        write_escaped(bytes, out);
    }
}

/// 32 hexadecimal digits, a hyphen allowed after each fourth, braces allowed around.
pub fn parse_uuid(s: &str) -> Result<[u8; 16]> {
    let fail = || invalid_syntax("uuid", s);
    let body = match s.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(fail)?,
        None => s,
    };
    let mut out = [0u8; 16];
    let mut bytes = body.bytes().peekable();
    for (i, slot) in out.iter_mut().enumerate() {
        let high = bytes.next().and_then(|b| (b as char).to_digit(16)).ok_or_else(fail)?;
        let low = bytes.next().and_then(|b| (b as char).to_digit(16)).ok_or_else(fail)?;
        *slot = (high << 4 | low) as u8;
        if i % 2 == 1 && i < 15 {
            bytes.next_if_eq(&b'-');
        }
    }
    if bytes.next().is_some() { Err(fail()) } else { Ok(out) }
}

pub fn write_uuid(v: &[u8; 16], out: &mut Vec<u8>) {
    for (i, part) in [&v[..4], &v[4..6], &v[6..8], &v[8..10], &v[10..]].into_iter().enumerate() {
        if i > 0 {
            out.push(b'-');
        }
        write_hex(part, out);
    }
}

/// `(block,slot)`.
pub fn parse_tid(s: &str) -> Result<Datum> {
    let fail = || invalid_syntax("tid", s);
    let body = trim(s).strip_prefix('(').and_then(|b| b.strip_suffix(')')).ok_or_else(fail)?;
    let (block, slot) = body.split_once(',').ok_or_else(fail)?;
    let block = parse_oid(block, "tid").map_err(|_| fail())?;
    let slot: u16 = trim(slot).parse().map_err(|_| fail())?;
    Ok(Datum::Tid(RowId::new(block, SlotNo::new(slot))))
}

pub fn parse_lsn(s: &str) -> Result<i64> {
    let lsn = Lsn::parse(s).ok_or_else(|| invalid_syntax("pg_lsn", s))?;
    Ok(lsn.raw() as i64)
}

pub fn write_lsn(v: i64, out: &mut Vec<u8>) {
    let v = v as u64;
    let written = write!(out, "{:X}/{:X}", v >> 32, v & 0xffff_ffff);
    debug_assert!(written.is_ok(), "a Vec takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f64_text(v: f64, extra: i32) -> String {
        let mut out = Vec::new();
        write_f64(v, extra, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn f32_text(v: f32) -> String {
        let mut out = Vec::new();
        write_f32(v, 1, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_print_as_postgresql_prints_them() {
        for (v, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (1e20, "1e+20"),
            (1e15, "1e+15"),
            (999_999_999_999_999.0, "999999999999999"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (123.456, "123.456"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (1e23, "9.999999999999999e+22"),
            (1e22, "1e+22"),
            (-9_007_199_254_740_993.0, "-9.007199254740992e+15"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(f64_text(v, 1), text);
        }
        assert_eq!(f64_text(0.1 + 0.2, 0), "0.3");
        assert_eq!(f64_text(1.0 / 3.0, -5), "0.3333333333");
        for (v, text) in
            [(1e6, "1e+06"), (100_000.0, "100000"), (1_234_567.0, "1.234567e+06"), (0.1, "0.1")]
        {
            assert_eq!(f32_text(v), text);
        }
    }

    #[test]
    fn numbers_are_parsed_with_their_errors() {
        assert_eq!(parse_i32(" 42 ").unwrap(), 42);
        assert_eq!(
            parse_i32("2147483648").unwrap_err().message(),
            "value \"2147483648\" is out of range for type integer"
        );
        assert_eq!(
            parse_i16("x").unwrap_err().message(),
            "invalid input syntax for type smallint: \"x\""
        );
        assert_eq!(parse_oid("-1", "oid").unwrap(), u32::MAX);
        assert_eq!(parse_f64("1e400").unwrap_err().state.code(), "22003");
        assert!(parse_f64("1_0").is_err());
        assert_eq!(parse_f64(" -inf ").unwrap(), f64::NEG_INFINITY);
    }

    #[test]
    fn bytes_and_uuids() {
        assert_eq!(parse_bytea("\\xDEad be").unwrap(), [0xde, 0xad, 0xbe]);
        assert_eq!(parse_bytea("a\\\\b\\001").unwrap(), b"a\\b\x01");
        let mut out = Vec::new();
        write_bytea(b"a\\\x01", false, &mut out);
        assert_eq!(out, b"a\\\\\\001");
        let id = parse_uuid("{A0EEBC99-9c0b4ef8bb6d6bb9bd380a11}").unwrap();
        out.clear();
        write_uuid(&id, &mut out);
        assert_eq!(out, b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        assert!(parse_uuid("a0eebc99").is_err());
    }
}
