//! Series, types, encodings, hashes: what belongs to no other family.

use super::args::{FromDatum, arg, arity, fns};
use super::datetime::{add_local, add_zoned};
use super::{FnContext, SetFn};
use crate::error::{Result, SqlError, State};
use crate::types::compare::interval_key;
use crate::types::datetime::{abbrev, is_infinite, tz};
use crate::types::numeric::{Numeric, arith};
use crate::types::{self, Datum, Interval, Oid};
use std::sync::Arc;

type Rows = Box<dyn Iterator<Item = Result<Vec<Datum>>> + Send>;

fn series_error(message: &str) -> SqlError {
    SqlError::new(State::INVALID_PARAMETER_VALUE, message)
}

fn zero_step() -> SqlError {
    series_error("step size cannot equal zero")
}

/// generate_series over integers: stops rather than overflow.
macro_rules! integer_series {
    ($($name:ident: $t:ty, $variant:ident;)*) => {
        $(pub(crate) fn $name(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
            let (start, stop) = (<$t>::get(arg(args, 0))?, <$t>::get(arg(args, 1))?);
            let step = if args.len() > 2 { <$t>::get(arg(args, 2))? } else { 1 };
            if step == 0 {
                return Err(zero_step());
            }
            let within = move |v: &$t| if step > 0 { *v <= stop } else { *v >= stop };
            let next = move |v: &$t| v.checked_add(step).filter(within);
            let values = std::iter::successors(Some(start).filter(within), next);
            Ok(Box::new(values.map(|v| Ok(vec![Datum::$variant(v)]))))
        }
        const _: SetFn = $name;)*
    };
}

integer_series! {
    series_int4: i32, Int4;
    series_int8: i64, Int8;
}

pub(crate) fn series_numeric(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let bound = |i: usize, what: &str| -> Result<Numeric> {
        let n = <&Numeric>::get(arg(args, i))?;
        if n.is_finite() {
            return Ok(n.clone());
        }
        let value = if n.is_nan() { "NaN" } else { "infinity" };
        Err(series_error(&format!("{what} cannot be {value}")))
    };
    let (start, stop) = (bound(0, "start value")?, bound(1, "stop value")?);
    let step = if args.len() > 2 { bound(2, "step size")? } else { Numeric::from(1i64) };
    if step.is_zero() {
        return Err(zero_step());
    }
    let mut next = Some(start);
    Ok(Box::new(std::iter::from_fn(move || {
        let value = next.take()?;
        let order = value.compare(&stop);
        if if step.is_negative() { order.is_lt() } else { order.is_gt() } {
            return None;
        }
        match arith::add(&value, &step) {
            Ok(v) => next = Some(v),
            Err(e) => return Some(Err(e)),
        }
        Some(Ok(vec![Datum::Numeric(Arc::new(value))]))
    })))
}

/// Moments from start to stop by an interval, months counted by the calendar.
fn series_stamp(
    args: &[Datum],
    step: impl Fn(i64, &Interval) -> Result<i64> + Send + 'static,
) -> Result<Rows> {
    let stamp = |i: usize| super::args::Stamp::get(arg(args, i)).map(|s| s.0);
    let (start, stop, by) = (stamp(0)?, stamp(1)?, Interval::get(arg(args, 2))?);
    let size = interval_key(&by);
    if size == 0 {
        return Err(zero_step());
    }
    let mut next = Some(start);
    Ok(Box::new(std::iter::from_fn(move || {
        let value = next.take()?;
        if (size > 0 && value > stop) || (size < 0 && value < stop) {
            return None;
        }
        if !is_infinite(value) {
            match step(value, &by) {
                Ok(v) => next = Some(v),
                Err(e) => return Some(Err(e)),
            }
        }
        Some(Ok(vec![Datum::Timestamp(value)]))
    })))
}

pub(crate) fn series_timestamp(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    series_stamp(args, add_local)
}

pub(crate) fn series_timestamptz(cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let zone = cx.time_zone().clone();
    series_stamp(args, move |t, i| add_zoned(t, i, &zone))
}

pub(crate) fn type_of(_cx: &dyn FnContext, types: &[Oid], _args: &[Datum]) -> Result<Datum> {
    Ok(Datum::Oid(types.first().ok_or_else(arity)?.0))
}

/// Bytes that the value takes in a row.
pub(crate) fn column_size(_cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let (Some(value), Some(ty)) = (args.first(), types.first()) else { return Err(arity()) };
    if value.is_null() {
        return Ok(Datum::Null);
    }
    let ty = if types::info(*ty).is_some_and(|t| t.is_pseudo()) {
        types::record::natural_type(value)
    } else {
        *ty
    };
    let codec = crate::row::RowCodec::new(&[(types::TypeRef::plain(ty), false)]);
    let row = crate::row::EncodedRow::new(&codec, std::slice::from_ref(value))?;
    Ok(Datum::Int4(row.data().len() as i32))
}

pub(crate) fn num_nulls(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int4(args.iter().filter(|d| d.is_null()).count() as i32))
}

pub(crate) fn num_nonnulls(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int4(args.iter().filter(|d| !d.is_null()).count() as i32))
}

/// format_type(oid, typmod): what is not built in goes to the session, which knows row types.
pub(crate) fn format_type(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(oid) = Option::<u32>::get(arg(args, 0))? else { return Ok(Datum::Null) };
    let typmod = Option::<i32>::get(arg(args, 1))?.unwrap_or(-1);
    let oid = Oid(oid);
    if oid.is_valid() && types::info(oid).is_none() {
        let known = cx.session().call("regtypeout", &[Datum::Oid(oid.0)]);
        if let Ok(Datum::Text(name)) = known
            && !name.bytes().all(|b| b.is_ascii_digit())
        {
            return Ok(Datum::Text(name));
        }
    }
    Ok(Datum::text(types::format_type(oid, typmod)))
}

/// PostgreSQL's numbers of character encodings.
const ENCODINGS: [&str; 42] = [
    "SQL_ASCII",
    "EUC_JP",
    "EUC_CN",
    "EUC_KR",
    "EUC_TW",
    "EUC_JIS_2004",
    "UTF8",
    "MULE_INTERNAL",
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "WIN1256",
    "WIN1258",
    "WIN866",
    "WIN874",
    "KOI8R",
    "WIN1251",
    "WIN1252",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "WIN1250",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1257",
    "KOI8U",
    "SJIS",
    "BIG5",
    "GBK",
    "UHC",
    "GB18030",
    "JOHAB",
    "SHIFT_JIS_2004",
];

fns! {
    fn encoding_to_char(_cx; id: i32) -> &'static str {
        usize::try_from(id).ok().and_then(|i| ENCODINGS.get(i)).copied().unwrap_or("")
    }
    fn char_to_encoding(_cx; name: &str) -> i32 {
        let plain = |s: &str| {
            s.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
        };
        let wanted = match plain(name).as_str() {
            "unicode" => "utf8".into(),
            other => other.to_string(),
        };
        ENCODINGS.iter().position(|e| plain(e) == wanted).map_or(-1, |i| i as i32)
    }
    fn encoding_max_length(_cx; id: i32) -> Option<i32> {
        match id {
            6 => Some(4),
            0..=41 => Some(if (8..=34).contains(&id) || id == 0 { 1 } else { 4 }),
            _ => None,
        }
    }
    fn database_encoding(_cx;) -> &'static str { "UTF8" }
}

/// oidvectortypes: the names of a function's argument types.
pub(crate) fn vector_types(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(Datum::Array(list)) = args.first() else { return Err(arity()) };
    let mut names = Vec::new();
    for item in &list.items {
        if let Datum::Text(name) = format_type(cx, &[item.clone(), Datum::Null])? {
            names.push(name.to_string());
        }
    }
    Ok(Datum::text(names.join(", ")))
}

/// Rows of pg_timezone_abbrevs: abbreviation, offset, daylight saving.
pub(crate) fn timezone_abbrevs(_cx: &dyn FnContext, _args: &[Datum]) -> Result<Rows> {
    Ok(Box::new(abbrev::all().iter().map(|(name, offset, dst)| {
        let offset = Interval::new(0, 0, i64::from(*offset) * 1_000_000);
        Ok(vec![Datum::text(name.to_ascii_uppercase()), Datum::Interval(offset), Datum::Bool(*dst)])
    })))
}

/// Rows of pg_timezone_names: name, abbreviation, offset, daylight saving, as of now.
pub(crate) fn timezone_names(cx: &dyn FnContext, _args: &[Datum]) -> Result<Rows> {
    let now = cx.transaction_timestamp();
    let names: Vec<String> = jiff::tz::db().available().map(|n| n.as_str().to_string()).collect();
    Ok(Box::new(names.into_iter().filter_map(move |name| {
        let zone = tz::find(&name)?;
        let (offset, abbreviation, dst) = tz::info_at(&zone, now);
        let offset = Interval::new(0, 0, offset * 1_000_000);
        Some(Ok(vec![
            Datum::text(name),
            Datum::text(abbreviation),
            Datum::Interval(offset),
            Datum::Bool(dst),
        ]))
    })))
}
