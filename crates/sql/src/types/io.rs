//! Input and output of values, as text and as the binary protocol's bytes, for every type.
//!
//! One `match` a direction, on the type's identifier; the work is in the modules beside this
//! one. Text output appends to the caller's buffer and allocates nothing for a scalar.
//!
//! - [`text_out`] needs no session: a `regclass` comes out as its number. [`output`] asks the
//!   session for names (through `regclassout` and its like).
//! - Binary input checks lengths and contents: the bytes come from the network.

use super::numeric::Numeric;
use super::{
    ArrayValue, Datum, Interval, Oid, OutputStyle, TimeTz, TypeRef, array, datetime, info, scalar,
};
use crate::error::{Result, SqlError, State};
use crate::functions::{FnContext, SessionFunctions};
use compact_str::CompactString;
use inkling_storage::ids::{RowId, SlotNo};
use jiff::tz::TimeZone;

/// What text output depends on.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    pub style: &'a OutputStyle,
    pub tz: &'a TimeZone,
    /// Gives names to `reg*` values; without it they are numbers.
    pub session: Option<&'a dyn SessionFunctions>,
}

/// Reads a value of type `ty` (modifier applied) from its text form.
pub fn text_in(ty: TypeRef, s: &str, cx: &dyn FnContext) -> Result<Datum> {
    let value = text_in_plain(ty, s, cx)?;
    if ty.typmod < 0 { Ok(value) } else { apply_typmod(value, ty, false) }
}

fn text_in_plain(ty: TypeRef, s: &str, cx: &dyn FnContext) -> Result<Datum> {
    Ok(match ty.oid {
        Oid::INT4 => Datum::Int4(scalar::parse_i32(s)?),
        Oid::INT8 => Datum::Int8(scalar::parse_i64(s)?),
        Oid::TEXT
        | Oid::VARCHAR
        | Oid::BPCHAR
        | Oid::UNKNOWN
        | Oid::CSTRING
        | Oid::REFCURSOR
        | Oid::ACLITEM
        | Oid::PG_NODE_TREE => {
            scalar::check_text(s)?;
            Datum::text(s)
        }
        Oid::NAME => {
            scalar::check_text(s)?;
            Datum::text(scalar::truncate_name(s))
        }
        Oid::JSON => {
            scalar::check_text(s)?;
            super::json::validate(s)?;
            Datum::text(s)
        }
        Oid::BOOL => Datum::Bool(scalar::parse_bool(s)?),
        Oid::INT2 => Datum::Int2(scalar::parse_i16(s)?),
        Oid::FLOAT4 => Datum::Float4(scalar::parse_f32(s)?),
        Oid::FLOAT8 => Datum::Float8(scalar::parse_f64(s)?),
        Oid::NUMERIC => Datum::Numeric(Numeric::parse(s)?.into()),
        Oid::DATE => Datum::Date(datetime::parse::date(s, cx)?),
        Oid::TIMESTAMP => Datum::Timestamp(datetime::parse::timestamp(s, cx)?),
        Oid::TIMESTAMPTZ => Datum::Timestamp(datetime::parse::timestamptz(s, cx)?),
        Oid::TIME => Datum::Time(datetime::parse::time(s, cx)?),
        Oid::TIMETZ => Datum::TimeTz(datetime::parse::timetz(s, cx)?),
        Oid::INTERVAL => {
            let style = cx.style().interval;
            Datum::Interval(datetime::interval_parse::parse(s, ty.typmod, style)?)
        }
        Oid::OID => Datum::Oid(scalar::parse_oid(s, "oid")?),
        Oid::XID | Oid::CID => Datum::Oid(scalar::parse_xid(s) as u32),
        Oid::XID8 => Datum::Int8(scalar::parse_xid(s) as i64),
        Oid::PG_LSN => Datum::Int8(scalar::parse_lsn(s)?),
        Oid::CHAR => Datum::Char(scalar::parse_char(s)),
        Oid::BYTEA => Datum::Bytea(scalar::parse_bytea(s)?.into()),
        Oid::UUID => Datum::Uuid(scalar::parse_uuid(s)?),
        Oid::TID => scalar::parse_tid(s)?,
        Oid::VOID => Datum::text(""),
        Oid::INT2VECTOR | Oid::OIDVECTOR => array::parse_vector(ty.oid, s)?,
        _ => return text_in_other(ty, s, cx),
    })
}

/// Types that need the session, their elements, or that cannot be read at all.
fn text_in_other(ty: TypeRef, s: &str, cx: &dyn FnContext) -> Result<Datum> {
    if let Some((input, _)) = reg_functions(ty.oid) {
        return reg_in(input, s, cx);
    }
    match info(ty.oid) {
        Some(t) if t.is_array() => array::parse(ty, s, cx),
        Some(t) if t.oid == Oid::RECORD => {
            Err(SqlError::unsupported("input of anonymous composite types"))
        }
        Some(t) if t.is_pseudo() => Err(SqlError::new(
            State::FEATURE_NOT_SUPPORTED,
            format!("cannot accept a value of type {}", t.name),
        )),
        _ => Err(no_type(ty.oid)),
    }
}

fn no_type(oid: Oid) -> SqlError {
    SqlError::new(State::UNDEFINED_OBJECT, format!("type with OID {oid} has no input function"))
}

/// Names of the session functions that read and write object names.
fn reg_functions(oid: Oid) -> Option<(&'static str, &'static str)> {
    Some(match oid {
        Oid::REGCLASS => ("regclassin", "regclassout"),
        Oid::REGTYPE => ("regtypein", "regtypeout"),
        Oid::REGPROC => ("regprocin", "regprocout"),
        Oid::REGPROCEDURE => ("regprocedurein", "regprocedureout"),
        Oid::REGOPER => ("regoperin", "regoperout"),
        Oid::REGOPERATOR => ("regoperatorin", "regoperatorout"),
        Oid::REGNAMESPACE => ("regnamespacein", "regnamespaceout"),
        Oid::REGROLE => ("regrolein", "regroleout"),
        Oid::REGCOLLATION => ("regcollationin", "regcollationout"),
        _ => return None,
    })
}

/// A number and `-` mean themselves; everything else is a name.
fn reg_in(function: &str, s: &str, cx: &dyn FnContext) -> Result<Datum> {
    if s == "-" {
        return Ok(Datum::Oid(0));
    }
    if !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Datum::Oid(scalar::parse_oid(s, "oid")?));
    }
    cx.session().call(function, &[Datum::text(s)])
}

/// Appends a value's text form; nothing for NULL. Without a session: see [`output`].
pub fn text_out(d: &Datum, ty: Oid, style: &OutputStyle, tz: &TimeZone, out: &mut Vec<u8>) {
    write(d, ty, &Output { style, tz, session: None }, out);
}

/// [`text_out`] with the session's settings, and with names for `reg*` values.
pub fn output(d: &Datum, ty: Oid, cx: &dyn FnContext, out: &mut Vec<u8>) {
    let settings = Output { style: cx.style(), tz: cx.time_zone(), session: Some(cx.session()) };
    write(d, ty, &settings, out);
}

/// A value's text form as a string.
pub fn to_text(d: &Datum, ty: Oid, cx: &dyn FnContext) -> CompactString {
    if let Datum::Text(s) = d {
        return s.clone();
    }
    let mut out = Vec::new();
    output(d, ty, cx, &mut out);
    String::from_utf8_lossy(&out).into()
}

/// Appends a value's text form.
pub fn write(d: &Datum, ty: Oid, cx: &Output<'_>, out: &mut Vec<u8>) {
    match d {
        Datum::Null => {}
        Datum::Int4(v) => scalar::write_int(*v, out),
        Datum::Text(v) => out.extend_from_slice(v.as_bytes()),
        Datum::Int8(v) => match ty {
            Oid::PG_LSN => scalar::write_lsn(*v, out),
            Oid::XID8 => scalar::write_int(*v as u64, out),
            _ => scalar::write_int(*v, out),
        },
        Datum::Int2(v) => scalar::write_int(*v, out),
        Datum::Bool(v) => out.push(if *v { b't' } else { b'f' }),
        Datum::Float4(v) => scalar::write_f32(*v, cx.style.extra_float_digits, out),
        Datum::Float8(v) => scalar::write_f64(*v, cx.style.extra_float_digits, out),
        Datum::Bytea(v) => scalar::write_bytea(v, cx.style.bytea_hex, out),
        Datum::Uuid(v) => scalar::write_uuid(v, out),
        Datum::Oid(v) => write_oid(*v, ty, cx, out),
        Datum::Char(v) => scalar::write_char(*v, out),
        Datum::Tid(v) => write_tid(*v, out),
        Datum::Array(v) if matches!(ty, Oid::INT2VECTOR | Oid::OIDVECTOR) => {
            array::write_vector(v, cx, out);
        }
        Datum::Array(v) => array::write(v, cx, out),
        Datum::Record(v) => super::record::write(v, cx, out),
        Datum::Numeric(v) => v.write(out),
        Datum::Date(v) => datetime::output::write_date(*v, cx.style, out),
        Datum::Time(v) => datetime::output::write_time(*v, out),
        Datum::TimeTz(v) => datetime::output::write_timetz(v, out),
        Datum::Timestamp(v) if ty == Oid::TIMESTAMPTZ => {
            datetime::output::write_timestamptz(*v, cx.style, cx.tz, out);
        }
        Datum::Timestamp(v) => datetime::output::write_timestamp(*v, cx.style, out),
        Datum::Interval(v) => datetime::interval::write(v, cx.style.interval, out),
    }
}

fn write_tid(v: RowId, out: &mut Vec<u8>) {
    out.push(b'(');
    scalar::write_int(v.block, out);
    out.push(b',');
    scalar::write_int(v.slot.raw(), out);
    out.push(b')');
}

/// A `reg*` value as the session names it; its number when there is no session or it fails.
fn write_oid(v: u32, ty: Oid, cx: &Output<'_>, out: &mut Vec<u8>) {
    if let (Some((_, function)), Some(session)) = (reg_functions(ty), cx.session)
        && let Ok(Datum::Text(name)) = session.call(function, &[Datum::Oid(v)])
    {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    scalar::write_int(v, out);
}

/// Makes a value obey its type's modifier. An explicit cast cuts texts silently; otherwise only
/// blanks may be cut.
pub fn apply_typmod(d: Datum, ty: TypeRef, explicit: bool) -> Result<Datum> {
    if ty.typmod < 0 {
        return Ok(d);
    }
    match d {
        Datum::Text(s) => match ty.oid {
            Oid::VARCHAR => limit_varchar(s, ty.typmod - 4, explicit).map(Datum::Text),
            Oid::BPCHAR => pad_bpchar(s, ty.typmod - 4, explicit).map(Datum::Text),
            _ => Ok(Datum::Text(s)),
        },
        Datum::Timestamp(v) => Ok(Datum::Timestamp(datetime::round_micros(v, ty.typmod))),
        Datum::Time(v) => Ok(Datum::Time(datetime::round_micros(v, ty.typmod))),
        Datum::TimeTz(v) => {
            let micros = datetime::round_micros(v.micros, ty.typmod);
            Ok(Datum::TimeTz(TimeTz { micros, ..v }))
        }
        Datum::Interval(v) => Ok(Datum::Interval(v.apply_typmod(ty.typmod))),
        Datum::Numeric(n) if ty.oid == Oid::NUMERIC => {
            Ok(Datum::Numeric(n.apply_typmod(ty.typmod)?.into()))
        }
        Datum::Array(a) => {
            let element = TypeRef::new(a.element, ty.typmod);
            let items = a.items.iter().cloned();
            let items =
                items.map(|v| apply_typmod(v, element, explicit)).collect::<Result<Vec<_>>>()?;
            let (element, dims) = (a.element, a.dims.clone());
            Ok(Datum::Array(ArrayValue { element, dims, items }.into()))
        }
        d => Ok(d),
    }
}

/// Byte position after `limit` characters, or `None` when there are no more than that.
fn end_of(s: &str, limit: i32) -> Option<usize> {
    let limit = limit.max(0) as usize;
    if s.len() <= limit { None } else { s.char_indices().nth(limit).map(|(at, _)| at) }
}

fn too_long(what: &str, limit: i32) -> SqlError {
    SqlError::new(
        State::STRING_DATA_RIGHT_TRUNCATION,
        format!("value too long for type {what}({limit})"),
    )
}

fn limit_varchar(mut s: CompactString, limit: i32, explicit: bool) -> Result<CompactString> {
    let Some(end) = end_of(&s, limit) else { return Ok(s) };
    if !explicit && s.as_bytes()[end..].iter().any(|b| *b != b' ') {
        return Err(too_long("character varying", limit));
    }
    s.truncate(end);
    Ok(s)
}

fn pad_bpchar(mut s: CompactString, limit: i32, explicit: bool) -> Result<CompactString> {
    const BLANKS: &str = "                                                                ";
    if let Some(end) = end_of(&s, limit) {
        if !explicit && s.as_bytes()[end..].iter().any(|b| *b != b' ') {
            return Err(too_long("character", limit));
        }
        s.truncate(end);
        return Ok(s);
    }
    let mut missing = limit.max(0) as usize - s.chars().count();
    s.reserve(missing);
    while missing > 0 {
        let run = missing.min(BLANKS.len());
        s.push_str(&BLANKS[..run]);
        missing -= run;
    }
    Ok(s)
}

fn bad_binary(what: &str) -> SqlError {
    SqlError::new(
        State::INVALID_BINARY_REPRESENTATION,
        format!("incorrect binary data format for type {what}"),
    )
}

fn fixed<const N: usize>(bytes: &[u8], ty: Oid) -> Result<[u8; N]> {
    <[u8; N]>::try_from(bytes).map_err(|_| bad_binary(info(ty).map_or("unknown", |t| t.name)))
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    let s = std::str::from_utf8(bytes).map_err(|e| {
        let bad = &bytes[e.valid_up_to()..(e.valid_up_to() + 4).min(bytes.len())];
        let hex: Vec<String> = bad.iter().map(|b| format!("0x{b:02x}")).collect();
        SqlError::new(
            State::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", hex.join(" ")),
        )
    })?;
    scalar::check_text(s)?;
    Ok(s)
}

/// Reads a value of type `ty` (modifier applied) from the protocol's binary form.
pub fn binary_in(ty: TypeRef, bytes: &[u8]) -> Result<Datum> {
    let value = binary_in_plain(ty, bytes)?;
    if ty.typmod < 0 { Ok(value) } else { apply_typmod(value, ty, false) }
}

fn binary_in_plain(ty: TypeRef, b: &[u8]) -> Result<Datum> {
    let oid = ty.oid;
    Ok(match oid {
        Oid::INT4 => Datum::Int4(i32::from_be_bytes(fixed(b, oid)?)),
        Oid::INT8 | Oid::PG_LSN | Oid::XID8 => Datum::Int8(i64::from_be_bytes(fixed(b, oid)?)),
        Oid::INT2 => Datum::Int2(i16::from_be_bytes(fixed(b, oid)?)),
        Oid::TEXT | Oid::VARCHAR | Oid::BPCHAR | Oid::UNKNOWN | Oid::CSTRING | Oid::REFCURSOR => {
            Datum::text(utf8(b)?)
        }
        Oid::NAME => {
            let s = utf8(b)?;
            if s.len() > scalar::NAME_LEN {
                return Err(SqlError::new(State::NAME_TOO_LONG, "identifier too long")
                    .detail("Identifier must be less than 64 characters."));
            }
            Datum::text(s)
        }
        Oid::JSON => {
            let s = utf8(b)?;
            super::json::validate(s)?;
            Datum::text(s)
        }
        Oid::BOOL => Datum::Bool(fixed::<1>(b, oid)?[0] != 0),
        Oid::FLOAT4 => Datum::Float4(f32::from_be_bytes(fixed(b, oid)?)),
        Oid::FLOAT8 => Datum::Float8(f64::from_be_bytes(fixed(b, oid)?)),
        Oid::CHAR => Datum::Char(fixed::<1>(b, oid)?[0]),
        Oid::BYTEA => Datum::Bytea(b.into()),
        Oid::UUID => Datum::Uuid(fixed(b, oid)?),
        Oid::TID => {
            let [a, b, c, d, e, f] = fixed(b, oid)?;
            let slot = SlotNo::new(u16::from_be_bytes([e, f]));
            Datum::Tid(RowId::new(u32::from_be_bytes([a, b, c, d]), slot))
        }
        Oid::NUMERIC => Datum::Numeric(Numeric::read_binary(b)?.into()),
        Oid::DATE | Oid::TIME | Oid::TIMESTAMP | Oid::TIMESTAMPTZ | Oid::TIMETZ | Oid::INTERVAL => {
            datetime_in(oid, b)?
        }
        Oid::VOID => Datum::text(""),
        Oid::OID | Oid::XID | Oid::CID => Datum::Oid(u32::from_be_bytes(fixed(b, oid)?)),
        _ if reg_functions(oid).is_some() => Datum::Oid(u32::from_be_bytes(fixed(b, oid)?)),
        _ => return binary_in_other(ty, b),
    })
}

fn datetime_in(oid: Oid, b: &[u8]) -> Result<Datum> {
    let range =
        |what: &str| SqlError::new(State::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"));
    let time = |micros: i64| {
        let fits = (0..=datetime::USECS_PER_DAY).contains(&micros);
        if fits { Ok(micros) } else { Err(range("time")) }
    };
    Ok(match oid {
        Oid::DATE => {
            let days = i32::from_be_bytes(fixed(b, oid)?);
            if !datetime::is_infinite_date(days) && !datetime::valid_date(days.into()) {
                return Err(range("date"));
            }
            Datum::Date(days)
        }
        Oid::TIME => Datum::Time(time(i64::from_be_bytes(fixed(b, oid)?))?),
        Oid::TIMETZ => {
            let all: [u8; 12] = fixed(b, oid)?;
            let [a @ .., w, x, y, z] = all;
            let zone = i32::from_be_bytes([w, x, y, z]);
            if !(-57_600..=57_600).contains(&zone) {
                return Err(SqlError::new(
                    State::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
                    "time zone displacement out of range",
                ));
            }
            Datum::TimeTz(TimeTz { micros: time(i64::from_be_bytes(a))?, zone })
        }
        Oid::INTERVAL => {
            let all: [u8; 16] = fixed(b, oid)?;
            let micros = i64::from_be_bytes(fixed(&all[..8], oid)?);
            let days = i32::from_be_bytes(fixed(&all[8..12], oid)?);
            let months = i32::from_be_bytes(fixed(&all[12..], oid)?);
            Datum::Interval(Interval { months, days, micros })
        }
        _ => {
            let micros = i64::from_be_bytes(fixed(b, oid)?);
            if !datetime::is_infinite(micros) && !datetime::valid_timestamp(micros) {
                return Err(datetime::timestamp_range());
            }
            Datum::Timestamp(micros)
        }
    })
}

fn binary_in_other(ty: TypeRef, bytes: &[u8]) -> Result<Datum> {
    match info(ty.oid) {
        Some(t) if t.is_array() || matches!(t.oid, Oid::INT2VECTOR | Oid::OIDVECTOR) => {
            array::binary_in(t.element, bytes)
        }
        Some(t) if t.oid == Oid::RECORD => {
            Err(SqlError::unsupported("input of anonymous composite types"))
        }
        Some(t) => Err(SqlError::new(
            State::UNDEFINED_FUNCTION,
            format!("no binary input function available for type {}", t.display),
        )),
        None => Err(no_type(ty.oid)),
    }
}

/// Appends a value's binary form; nothing for NULL. The value's variant says all there is to
/// know; the type is taken for symmetry with [`text_out`].
pub fn binary_out(d: &Datum, _ty: Oid, out: &mut Vec<u8>) -> Result<()> {
    match d {
        Datum::Null => {}
        Datum::Int4(v) => out.extend(v.to_be_bytes()),
        Datum::Int8(v) => out.extend(v.to_be_bytes()),
        Datum::Text(v) => out.extend_from_slice(v.as_bytes()),
        Datum::Int2(v) => out.extend(v.to_be_bytes()),
        Datum::Bool(v) => out.push(u8::from(*v)),
        Datum::Float4(v) => out.extend(v.to_be_bytes()),
        Datum::Float8(v) => out.extend(v.to_be_bytes()),
        Datum::Bytea(v) => out.extend_from_slice(v),
        Datum::Uuid(v) => out.extend_from_slice(v),
        Datum::Oid(v) => out.extend(v.to_be_bytes()),
        Datum::Char(v) => out.push(*v),
        Datum::Tid(v) => {
            out.extend(v.block.to_be_bytes());
            out.extend(v.slot.raw().to_be_bytes());
        }
        Datum::Array(v) => array::binary_out(v, out)?,
        Datum::Record(v) => super::record::binary_out(v, out)?,
        Datum::Numeric(v) => v.write_binary(out),
        Datum::Date(v) => out.extend(v.to_be_bytes()),
        Datum::Time(v) | Datum::Timestamp(v) => out.extend(v.to_be_bytes()),
        Datum::TimeTz(v) => {
            out.extend(v.micros.to_be_bytes());
            out.extend(v.zone.to_be_bytes());
        }
        Datum::Interval(v) => {
            out.extend(v.micros.to_be_bytes());
            out.extend(v.days.to_be_bytes());
            out.extend(v.months.to_be_bytes());
        }
    }
    Ok(())
}
