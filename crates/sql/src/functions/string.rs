//! Text functions: cases, parts, padding, searching, quoting, encoding.
//!
//! Positions and lengths count characters from 1. Cases and classes of characters are those of the
//! C.UTF-8 locale: Unicode's, one character for one.

use super::FnContext;
use super::args::{arg, arity, fns};
use super::int::integer_range;
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid, io, scalar};
use compact_str::CompactString;

/// Longest text or bytea.
pub const MAX_BYTES: usize = (1 << 30) - 1;

pub fn too_large() -> SqlError {
    SqlError::new(State::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

fn parameter(message: impl Into<String>) -> SqlError {
    SqlError::new(State::INVALID_PARAMETER_VALUE, message)
}

/// Byte position of the `n`th character (counted from 0), or the end.
pub fn char_at(s: &str, n: usize) -> usize {
    if s.is_ascii() {
        return n.min(s.len());
    }
    s.char_indices().nth(n).map_or(s.len(), |(at, _)| at)
}

/// `length` characters from the `start`th (1-based; may begin before the text).
pub fn slice(s: &str, start: i32, length: Option<i32>) -> Result<&str> {
    let from = i64::from(start) - 1;
    let end = match length {
        Some(n) if n < 0 => {
            return Err(SqlError::new(
                State::SUBSTRING_ERROR,
                "negative substring length not allowed",
            ));
        }
        Some(n) => (from + i64::from(n)).max(0) as usize,
        None => usize::MAX,
    };
    let a = char_at(s, from.max(0) as usize);
    let b = if end == usize::MAX { s.len() } else { char_at(s, end) };
    Ok(&s[a..b.max(a)])
}

fn slice_bytes(b: &[u8], start: i32, length: Option<i32>) -> Result<&[u8]> {
    let from = i64::from(start) - 1;
    let end = match length {
        Some(n) if n < 0 => {
            return Err(SqlError::new(
                State::SUBSTRING_ERROR,
                "negative substring length not allowed",
            ));
        }
        Some(n) => (from + i64::from(n)).clamp(0, b.len() as i64) as usize,
        None => b.len(),
    };
    let a = (from.max(0) as usize).min(b.len());
    Ok(&b[a..end.max(a)])
}

/// One character for one, as C.UTF-8 has it: the sharp s has no upper case.
fn upper_char(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(u), None) => u,
        _ => c,
    }
}

fn lower_char(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(l), None) => l,
        _ => c,
    }
}

pub fn lowered(s: &str) -> String {
    if s.is_ascii() { s.to_ascii_lowercase() } else { s.chars().map(lower_char).collect() }
}

pub fn uppered(s: &str) -> String {
    if s.is_ascii() { s.to_ascii_uppercase() } else { s.chars().map(upper_char).collect() }
}

fn capitalize(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut in_word = false;
    for c in s.chars() {
        out.push(if in_word { lower_char(c) } else { upper_char(c) });
        in_word = c.is_alphanumeric();
    }
    out
}

/// Position in characters of `part`, from 1; 0 when it is not there.
fn position_of(s: &str, part: &str) -> i32 {
    s.find(part).map_or(0, |at| s[..at].chars().count() as i32 + 1)
}

fns! {
    fn lower(_cx; s: &str) -> String { lowered(s) }
    fn upper(_cx; s: &str) -> String { uppered(s) }
    fn initcap(_cx; s: &str) -> String { capitalize(s) }
    fn substr(_cx; s: &str, start: i32, n: i32) -> &str { slice(s, start, Some(n))? }
    fn substr_from(_cx; s: &str, start: i32) -> &str { slice(s, start, None)? }
    fn substr_bytes(_cx; s: &[u8], start: i32, n: i32) -> &[u8] { slice_bytes(s, start, Some(n))? }
    fn substr_bytes_from(_cx; s: &[u8], start: i32) -> &[u8] { slice_bytes(s, start, None)? }
    fn overlay(_cx; s: &str, new: &str, start: i32, n: i32) -> String {
        overlaid(s, new, start, n)?
    }
    fn overlay_from(_cx; s: &str, new: &str, start: i32) -> String {
        overlaid(s, new, start, new.chars().count() as i32)?
    }
    fn overlay_bytes(_cx; s: &[u8], new: &[u8], start: i32, n: i32) -> Vec<u8> {
        overlaid_bytes(s, new, start, n)?
    }
    fn overlay_bytes_from(_cx; s: &[u8], new: &[u8], start: i32) -> Vec<u8> {
        overlaid_bytes(s, new, start, new.len() as i32)?
    }
    fn position(_cx; s: &str, part: &str) -> i32 { position_of(s, part) }
    fn position_bytes(_cx; s: &[u8], part: &[u8]) -> i32 {
        if part.is_empty() {
            1
        } else {
            s.windows(part.len()).position(|w| w == part).map_or(0, |at| at as i32 + 1)
        }
    }
    fn trim(_cx; s: &str, set: &str) -> &str { s.trim_matches(|c| set.contains(c)) }
    fn ltrim(_cx; s: &str, set: &str) -> &str { s.trim_start_matches(|c| set.contains(c)) }
    fn rtrim(_cx; s: &str, set: &str) -> &str { s.trim_end_matches(|c| set.contains(c)) }
    fn trim_blanks(_cx; s: &str) -> &str { s.trim_matches(' ') }
    fn ltrim_blanks(_cx; s: &str) -> &str { s.trim_start_matches(' ') }
    fn rtrim_blanks(_cx; s: &str) -> &str { s.trim_end_matches(' ') }
    fn trim_bytes(_cx; s: &[u8], set: &[u8]) -> &[u8] { trimmed_bytes(s, set, true, true) }
    fn ltrim_bytes(_cx; s: &[u8], set: &[u8]) -> &[u8] { trimmed_bytes(s, set, true, false) }
    fn rtrim_bytes(_cx; s: &[u8], set: &[u8]) -> &[u8] { trimmed_bytes(s, set, false, true) }
    fn lpad(_cx; s: &str, n: i32, fill: &str) -> String { padded(s, n, fill, true)? }
    fn rpad(_cx; s: &str, n: i32, fill: &str) -> String { padded(s, n, fill, false)? }
    fn lpad_blanks(_cx; s: &str, n: i32) -> String { padded(s, n, " ", true)? }
    fn rpad_blanks(_cx; s: &str, n: i32) -> String { padded(s, n, " ", false)? }
    fn replace(_cx; s: &str, from: &str, to: &str) -> String {
        if from.is_empty() { s.to_string() } else { s.replace(from, to) }
    }
    fn translate(_cx; s: &str, from: &str, to: &str) -> String {
        let to: Vec<char> = to.chars().collect();
        let from: Vec<char> = from.chars().collect();
        s.chars()
            .filter_map(|c| match from.iter().position(|f| *f == c) {
                Some(at) => to.get(at).copied(),
                None => Some(c),
            })
            .collect()
    }
    fn split_part(_cx; s: &str, by: &str, n: i32) -> String { part_of(s, by, n)?.to_string() }
    fn repeat(_cx; s: &str, n: i32) -> String {
        let n = n.max(0) as usize;
        if s.len().saturating_mul(n) > MAX_BYTES {
            return Err(too_large());
        }
        s.repeat(n)
    }
    fn reverse(_cx; s: &str) -> String { s.chars().rev().collect() }
    fn left(_cx; s: &str, n: i32) -> &str {
        let keep = if n >= 0 { n as usize } else { from_end(s, n) };
        &s[..char_at(s, keep)]
    }
    fn right(_cx; s: &str, n: i32) -> &str {
        let skip = if n >= 0 { from_end(s, -n) } else { n.unsigned_abs() as usize };
        &s[char_at(s, skip)..]
    }
    fn starts_with(_cx; s: &str, prefix: &str) -> bool { s.starts_with(prefix) }
    fn ascii(_cx; s: &str) -> i32 { s.chars().next().map_or(0, |c| c as i32) }
    fn chr(_cx; code: i32) -> String {
        match u32::try_from(code) {
            Ok(0) => {
                return Err(SqlError::new(
                    State::PROGRAM_LIMIT_EXCEEDED,
                    "null character not permitted",
                ));
            }
            Ok(v) => char::from_u32(v).map(String::from).ok_or_else(|| {
                let why = if v > 0x10_ffff { "too large" } else { "not valid" };
                SqlError::new(
                    State::PROGRAM_LIMIT_EXCEEDED,
                    format!("requested character {why} for encoding: {code}"),
                )
            })?,
            Err(_) => {
                return Err(parameter("character number must be positive"));
            }
        }
    }
    fn quote_ident(_cx; s: &str) -> String { quoted_ident(s) }
    fn quote_literal(_cx; s: &str) -> String { quoted_literal(s) }
    fn encode(_cx; data: &[u8], format: &str) -> String { encoded(data, format)? }
    fn decode(_cx; text: &str, format: &str) -> Vec<u8> { decoded(text, format)? }
    fn convert_from(_cx; data: &[u8], encoding: &str) -> String { from_encoding(data, encoding)? }
    fn convert_to(_cx; s: &str, encoding: &str) -> Vec<u8> { to_encoding(s, encoding)? }
    fn convert(_cx; data: &[u8], from: &str, to: &str) -> Vec<u8> {
        to_encoding(&from_encoding(data, from)?, to)?
    }
    fn unistr(_cx; s: &str) -> String { unescaped(s)? }
}

/// How many characters stand before the last `-n`.
fn from_end(s: &str, n: i32) -> usize {
    s.chars().count().saturating_sub(n.unsigned_abs() as usize)
}

fn overlaid(s: &str, new: &str, start: i32, n: i32) -> Result<String> {
    if start <= 0 {
        return Err(SqlError::new(State::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let after = start.checked_add(n).ok_or_else(integer_range)?;
    Ok([slice(s, 1, Some(start - 1))?, new, slice(s, after, None)?].concat())
}

fn overlaid_bytes(s: &[u8], new: &[u8], start: i32, n: i32) -> Result<Vec<u8>> {
    if start <= 0 {
        return Err(SqlError::new(State::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let after = start.checked_add(n).ok_or_else(integer_range)?;
    Ok([slice_bytes(s, 1, Some(start - 1))?, new, slice_bytes(s, after, None)?].concat())
}

fn trimmed_bytes<'a>(mut s: &'a [u8], set: &[u8], left: bool, right: bool) -> &'a [u8] {
    while let (true, [first, rest @ ..]) = (left, s) {
        if !set.contains(first) {
            break;
        }
        s = rest;
    }
    while let (true, [rest @ .., last]) = (right, s) {
        if !set.contains(last) {
            break;
        }
        s = rest;
    }
    s
}

fn padded(s: &str, n: i32, fill: &str, at_start: bool) -> Result<String> {
    let n = n.max(0) as usize;
    if n.saturating_mul(4) > MAX_BYTES {
        return Err(too_large());
    }
    let length = s.chars().count();
    if length >= n || fill.is_empty() {
        return Ok(s[..char_at(s, n)].to_string());
    }
    let padding: String = fill.chars().cycle().take(n - length).collect();
    Ok(if at_start { padding + s } else { [s, &padding].concat() })
}

fn part_of<'a>(s: &'a str, by: &str, n: i32) -> Result<&'a str> {
    if n == 0 {
        return Err(parameter("field position must not be zero"));
    }
    let index = n.unsigned_abs() as usize - 1;
    if by.is_empty() {
        return Ok(if index == 0 { s } else { "" });
    }
    let part = if n > 0 { s.split(by).nth(index) } else { s.rsplit(by).nth(index) };
    Ok(part.unwrap_or(""))
}

/// Quotes a name unless it is a plain lower-case word that is no keyword.
pub fn quoted_ident(s: &str) -> String {
    crate::analyze::quote::quote_ident(s).into_owned()
}

/// `'it''s'`; with backslashes as an escape string.
pub fn quoted_literal(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 3);
    if s.contains('\\') {
        out.push('E');
    }
    out.push('\'');
    for c in s.chars() {
        if c == '\'' || c == '\\' {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
    out
}

/// quote_literal(anyelement).
pub(crate) fn quote_any(cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let (Some(value), Some(ty)) = (args.first(), types.first()) else { return Err(arity()) };
    Ok(Datum::text(quoted_literal(&io::to_text(value, *ty, cx))))
}

/// quote_nullable: NULL becomes the word.
pub(crate) fn quote_nullable(cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    match args.first() {
        Some(Datum::Null) => Ok(Datum::text("NULL")),
        _ => quote_any(cx, types, args),
    }
}

/// An argument's text for concat and its like: booleans are `t` and `f`.
fn shown(cx: &dyn FnContext, types: &[Oid], args: &[Datum], i: usize) -> CompactString {
    io::to_text(&args[i], types.get(i).copied().unwrap_or(Oid::TEXT), cx)
}

/// concat("any", ...): NULLs are skipped.
pub(crate) fn concat(cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let mut out = CompactString::default();
    for i in 0..args.len() {
        if !args[i].is_null() {
            out.push_str(&shown(cx, types, args, i));
        }
    }
    Ok(Datum::Text(out))
}

pub(crate) fn concat_ws(cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let Some(Datum::Text(separator)) = args.first() else { return Ok(Datum::Null) };
    let mut out = CompactString::default();
    let mut first = true;
    for i in 1..args.len() {
        if args[i].is_null() {
            continue;
        }
        if !first {
            out.push_str(separator);
        }
        first = false;
        out.push_str(&shown(cx, types, args, i));
    }
    Ok(Datum::Text(out))
}

fn encoded(data: &[u8], format: &str) -> Result<String> {
    let mut out = Vec::new();
    match format.to_ascii_lowercase().as_str() {
        "hex" => scalar::write_hex(data, &mut out),
        "base64" => write_base64(data, &mut out),
        "escape" => {
            for &b in data {
                match b {
                    b'\\' => out.extend_from_slice(b"\\\\"),
                    0 | 0x80.. => {
                        out.extend([b'\\', b'0' + (b >> 6), b'0' + (b >> 3 & 7), b'0' + (b & 7)]);
                    }
                    _ => out.push(b),
                }
            }
        }
        _ => return Err(unknown_encoding(format)),
    }
    String::from_utf8(out).map_err(|_| SqlError::internal("encode made no text"))
}

fn unknown_encoding(format: &str) -> SqlError {
    parameter(format!("unrecognized encoding: \"{format}\""))
}

fn decoded(text: &str, format: &str) -> Result<Vec<u8>> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => scalar::parse_hex(text),
        "base64" => read_base64(text),
        "escape" => {
            let escaped = text.replace("\\x", "\\\\x");
            let plain = if text.starts_with("\\x") { &escaped } else { text };
            scalar::parse_bytea(plain)
        }
        _ => Err(unknown_encoding(format)),
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// MIME's base64: a line break after 76 characters.
fn write_base64(data: &[u8], out: &mut Vec<u8>) {
    for (i, chunk) in data.chunks(3).enumerate() {
        if i > 0 && i % 19 == 0 {
            out.push(b'\n');
        }
        let b = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let group = b(0) << 16 | b(1) << 8 | b(2);
        for k in 0..4 {
            if k <= chunk.len() {
                out.push(BASE64[(group >> (18 - 6 * k) & 63) as usize]);
            } else {
                out.push(b'=');
            }
        }
    }
}

fn read_base64(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut group, mut count, mut padding) = (0u32, 0, 0);
    for c in text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        let value = if c == '=' {
            padding += 1;
            if count < 2 || padding > 2 {
                return Err(parameter("unexpected \"=\" while decoding base64 sequence"));
            }
            0
        } else {
            let at = BASE64.iter().position(|b| char::from(*b) == c);
            let bad = padding > 0 || at.is_none();
            if bad {
                return Err(parameter(format!(
                    "invalid symbol \"{c}\" found while decoding base64 sequence"
                )));
            }
            at.unwrap_or(0) as u32
        };
        group = group << 6 | value;
        count += 1;
        if count == 4 {
            out.extend_from_slice(&group.to_be_bytes()[1..4 - padding]);
            (group, count) = (0, 0);
        }
    }
    if count != 0 {
        return Err(parameter("invalid base64 end sequence")
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

/// The encodings that can be converted: UTF-8 and its subsets of one byte.
enum Encoding {
    Utf8,
    Latin1,
    Ascii,
}

fn encoding(name: &str) -> Result<Encoding> {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    match plain.as_str() {
        "utf8" | "unicode" => Ok(Encoding::Utf8),
        "latin1" | "iso88591" => Ok(Encoding::Latin1),
        "sqlascii" => Ok(Encoding::Ascii),
        _ => Err(parameter(format!("invalid source encoding name \"{name}\""))),
    }
}

fn from_encoding(data: &[u8], name: &str) -> Result<String> {
    match encoding(name)? {
        Encoding::Latin1 => Ok(data.iter().map(|b| char::from(*b)).collect()),
        Encoding::Utf8 | Encoding::Ascii => {
            let s = std::str::from_utf8(data).map_err(|e| {
                let bad = &data[e.valid_up_to()..(e.valid_up_to() + 1).min(data.len())];
                let hex: Vec<String> = bad.iter().map(|b| format!("0x{b:02x}")).collect();
                SqlError::new(
                    State::CHARACTER_NOT_IN_REPERTOIRE,
                    format!("invalid byte sequence for encoding \"UTF8\": {}", hex.join(" ")),
                )
            })?;
            scalar::check_text(s)?;
            Ok(s.to_string())
        }
    }
}

fn to_encoding(s: &str, name: &str) -> Result<Vec<u8>> {
    match encoding(name)? {
        Encoding::Utf8 | Encoding::Ascii => Ok(s.as_bytes().to_vec()),
        Encoding::Latin1 => s
            .chars()
            .map(|c| {
                u8::try_from(u32::from(c)).map_err(|_| {
                    let bytes: Vec<String> =
                        c.to_string().bytes().map(|b| format!("0x{b:02x}")).collect();
                    SqlError::new(
                        State::UNTRANSLATABLE_CHARACTER,
                        format!(
                            "character with byte sequence {} in encoding \"UTF8\" has no \
                             equivalent in encoding \"LATIN1\"",
                            bytes.join(" ")
                        ),
                    )
                })
            })
            .collect(),
    }
}

/// `\0061`, `\u0061`, `\+000061`, `\U00000061`, `\\`.
fn unescaped(s: &str) -> Result<String> {
    let invalid = || {
        SqlError::new(State::SYNTAX_ERROR, "invalid Unicode escape")
            .hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
    };
    let mut out = String::with_capacity(s.len());
    let mut rest = s;
    let mut high: Option<u32> = None;
    while let Some(at) = rest.find('\\') {
        if high.is_some() && at > 0 {
            return Err(SqlError::new(State::SYNTAX_ERROR, "invalid Unicode surrogate pair"));
        }
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('\\') {
            out.push('\\');
            rest = after;
            continue;
        }
        let (skip, digits) = match tail.as_bytes().first() {
            Some(b'u') => (1, 4),
            Some(b'U') => (1, 8),
            Some(b'+') => (1, 6),
            _ => (0, 4),
        };
        let hex = tail.get(skip..skip + digits).ok_or_else(invalid)?;
        let code = u32::from_str_radix(hex, 16).map_err(|_| invalid())?;
        rest = &tail[skip + digits..];
        let code = match (high.take(), code) {
            (Some(h), 0xdc00..=0xdfff) => 0x10000 + ((h & 0x3ff) << 10) + (code & 0x3ff),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => {
                return Err(SqlError::new(State::SYNTAX_ERROR, "invalid Unicode surrogate pair"));
            }
            (None, 0xd800..=0xdbff) => {
                high = Some(code);
                continue;
            }
            (None, code) => code,
        };
        let c = char::from_u32(code).filter(|c| *c != '\0');
        out.push(c.ok_or_else(|| {
            SqlError::new(
                State::INVALID_PARAMETER_VALUE,
                format!("invalid Unicode code point: {code:04X}"),
            )
        })?);
    }
    if high.is_some() {
        return Err(SqlError::new(State::SYNTAX_ERROR, "invalid Unicode surrogate pair"));
    }
    out.push_str(rest);
    Ok(out)
}

fns! {
    fn get_byte(_cx; data: &[u8], n: i32) -> i32 {
        i32::from(data[index(n.into(), data.len() as i64, data.len() as i64)?])
    }
    fn set_byte(_cx; data: &[u8], n: i32, value: i32) -> Vec<u8> {
        let at = index(n.into(), data.len() as i64, data.len() as i64)?;
        let mut out = data.to_vec();
        out[at] = value as u8;
        out
    }
    fn get_bit(_cx; data: &[u8], n: i64) -> i32 {
        let at = index(n, data.len() as i64 * 8, data.len() as i64 * 8)?;
        i32::from(data[at / 8] >> (at % 8) & 1)
    }
    fn set_bit(_cx; data: &[u8], n: i64, value: i32) -> Vec<u8> {
        let at = index(n, data.len() as i64 * 8, data.len() as i64 * 8)?;
        if !(0..=1).contains(&value) {
            return Err(parameter("new bit must be 0 or 1"));
        }
        let mut out = data.to_vec();
        out[at / 8] = out[at / 8] & !(1 << (at % 8)) | (value as u8) << (at % 8);
        out
    }
    fn bit_count(_cx; data: &[u8]) -> i64 {
        data.iter().map(|b| i64::from(b.count_ones())).sum()
    }
}

fn index(n: i64, limit: i64, shown: i64) -> Result<usize> {
    if !(0..limit).contains(&n) {
        return Err(SqlError::new(
            State::ARRAY_SUBSCRIPT_ERROR,
            format!("index {n} out of valid range, 0..{}", shown - 1),
        ));
    }
    Ok(n as usize)
}

/// `format(text, ...)`: %s, %I, %L, %%, positions, widths, `-`.
pub(crate) fn format(cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let Some(Datum::Text(template)) = args.first() else { return Ok(Datum::Null) };
    let mut out = String::new();
    let mut rest = template.as_str();
    let mut next = 1;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let spec = Spec::parse(rest)?;
        rest = &rest[spec.len..];
        let width = match spec.width {
            Width::Fixed(n) => n,
            Width::Argument(at) => {
                let at = at.unwrap_or(next);
                next = at + 1;
                argument(args, at)?;
                match &args[at] {
                    Datum::Null => 0,
                    Datum::Int4(v) => *v,
                    Datum::Int2(v) => i32::from(*v),
                    other => scalar::parse_i32(&io::to_text(other, types[at], cx))?,
                }
            }
        };
        let at = spec.argument.unwrap_or(next);
        next = at + 1;
        argument(args, at)?;
        let text = match (spec.kind, args[at].is_null()) {
            ('s', true) => String::new(),
            ('s', false) => shown(cx, types, args, at).into(),
            ('I', true) => {
                return Err(SqlError::new(
                    State::NULL_VALUE_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('I', false) => quoted_ident(&shown(cx, types, args, at)),
            ('L', true) => "NULL".into(),
            _ => quoted_literal(&shown(cx, types, args, at)),
        };
        let missing = (width.unsigned_abs() as usize).saturating_sub(text.chars().count());
        if missing > MAX_BYTES {
            return Err(too_large());
        }
        let left = spec.left || width < 0;
        if !left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
        out.push_str(&text);
        if left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
    }
    out.push_str(rest);
    Ok(Datum::text(out))
}

fn argument(args: &[Datum], at: usize) -> Result<()> {
    if at >= args.len() { Err(parameter("too few arguments for format()")) } else { Ok(()) }
}

enum Width {
    Fixed(i32),
    Argument(Option<usize>),
}

/// One `%` specifier, without the percent sign.
struct Spec {
    argument: Option<usize>,
    left: bool,
    width: Width,
    kind: char,
    len: usize,
}

impl Spec {
    fn parse(text: &str) -> Result<Spec> {
        let unterminated = || {
            parameter("unterminated format() type specifier").hint("For a single \"%\" use \"%%\".")
        };
        let number = |s: &str| -> Result<Option<(usize, usize)>> {
            let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
            if end == 0 {
                return Ok(None);
            }
            let value: i32 = s[..end].parse().map_err(|_| {
                SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range")
            })?;
            Ok(Some((value as usize, end)))
        };
        let zero = || parameter("format specifies argument 0, but arguments are numbered from 1");
        let mut at = 0;
        let mut spec =
            Spec { argument: None, left: false, width: Width::Fixed(0), kind: 's', len: 0 };
        if let Some((n, len)) = number(text)?
            && text[len..].starts_with('$')
        {
            if n == 0 {
                return Err(zero());
            }
            spec.argument = Some(n);
            at = len + 1;
        }
        while text[at..].starts_with('-') {
            spec.left = true;
            at += 1;
        }
        if text[at..].starts_with('*') {
            at += 1;
            spec.width = Width::Argument(None);
            if let Some((n, len)) = number(&text[at..])? {
                if !text[at + len..].starts_with('$') {
                    return Err(parameter("width argument position must be ended by \"$\""));
                }
                if n == 0 {
                    return Err(zero());
                }
                spec.width = Width::Argument(Some(n));
                at += len + 1;
            }
        } else if let Some((n, len)) = number(&text[at..])? {
            spec.width = Width::Fixed(n as i32);
            at += len;
        }
        spec.kind = text[at..].chars().next().ok_or_else(unterminated)?;
        if !matches!(spec.kind, 's' | 'I' | 'L') {
            return Err(parameter(format!(
                "unrecognized format() type specifier \"{}\"",
                spec.kind
            ))
            .hint("For a single \"%\" use \"%%\"."));
        }
        spec.len = at + 1;
        Ok(spec)
    }
}

/// `parse_ident('a."B".c')`: an array of the parts. Strict (the default) forbids what follows.
pub(crate) fn parse_ident(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(Datum::Text(source)) = args.first() else { return Ok(Datum::Null) };
    let strict = !matches!(arg(args, 1), Datum::Bool(false));
    let bad = |detail: Option<&str>| {
        let e = parameter(format!("string is not a valid identifier: \"{source}\""));
        match detail {
            Some(d) => e.detail(d.to_string()),
            None => e,
        }
    };
    let blank = |c: char| scalar::is_space(c);
    let mut rest = source.trim_start_matches(blank);
    let mut parts = Vec::new();
    loop {
        let part;
        if let Some(body) = rest.strip_prefix('"') {
            let mut text = String::new();
            let mut tail = body;
            loop {
                let end = tail
                    .find('"')
                    .ok_or_else(|| bad(Some("String has unclosed double quotes.")))?;
                text.push_str(&tail[..end]);
                tail = &tail[end + 1..];
                match tail.strip_prefix('"') {
                    Some(after) => {
                        text.push('"');
                        tail = after;
                    }
                    None => break,
                }
            }
            if text.is_empty() {
                return Err(bad(Some("Quoted identifier must not be empty.")));
            }
            (part, rest) = (text, tail);
        } else {
            let fits = |at: usize, c: char| {
                c.is_alphabetic() || c == '_' || (at > 0 && (c.is_ascii_digit() || c == '$'))
            };
            let end = rest.char_indices().find(|(at, c)| !fits(*at, *c));
            let end = end.map_or(rest.len(), |(at, _)| at);
            if end == 0 {
                let after_dot = !parts.is_empty();
                let detail = if after_dot {
                    "No valid identifier after \".\"."
                } else {
                    "No valid identifier before \".\"."
                };
                let dot = rest.starts_with('.') || after_dot;
                return Err(bad(dot.then_some(detail)));
            }
            (part, rest) = (rest[..end].to_lowercase(), &rest[end..]);
        }
        parts.push(Datum::text(part));
        rest = rest.trim_start_matches(blank);
        match rest.strip_prefix('.') {
            Some(after) => rest = after.trim_start_matches(blank),
            None if rest.is_empty() || !strict => break,
            None => return Err(bad(None)),
        }
    }
    Ok(Datum::Array(crate::types::ArrayValue::from_items(Oid::TEXT, parts).into()))
}
