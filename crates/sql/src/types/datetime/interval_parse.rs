//! Reading intervals: `1 year 2 days 03:04:05`, `1-2`, `3 4:05`, `P1Y2M3DT4H`, `5 days ago`.
//!
//! Fields are read from the right, because a unit follows its number and because what a bare
//! number means depends on what stands after it (days before a time, the modifier's unit at the
//! end).

use super::lex::{self, Field, Kind};
use super::parse::Bad;
use super::{USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MINUTE, USECS_PER_SEC};
use crate::error::{Result, SqlError, State};
use crate::types::style::IntervalStyle;
use crate::types::{Interval, scalar};

pub const DAY_SECONDS: f64 = 86_400.0;

/// A unit of time in intervals (and in extract and date_trunc).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

/// A unit's name: only the first ten letters count.
pub fn unit(word: &str) -> Option<Unit> {
    let word = word.get(..10).unwrap_or(word);
    Some(match word {
        "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" => Unit::Microsecond,
        "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecon" => Unit::Millisecond,
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
        "d" | "day" | "days" => Unit::Day,
        "w" | "week" | "weeks" => Unit::Week,
        "mon" | "mons" | "month" | "months" => Unit::Month,
        "qtr" | "quarter" => Unit::Quarter,
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
        "dec" | "decs" | "decade" | "decades" => Unit::Decade,
        "c" | "cent" | "century" | "centuries" => Unit::Century,
        "mil" | "mils" | "millennium" | "millennia" => Unit::Millennium,
        _ => return None,
    })
}

type Step<T = ()> = std::result::Result<T, Fault>;

enum Fault {
    Format,
    /// A number too large for its field.
    Overflow,
    /// The sum too large for an interval.
    Range,
}

impl Fault {
    fn error(self, s: &str) -> SqlError {
        match self {
            Fault::Format => Bad::Format.error(s, "interval"),
            Fault::Range => super::interval_range(),
            Fault::Overflow => SqlError::new(
                State::INTERVAL_FIELD_OVERFLOW,
                format!("interval field value out of range: \"{s}\""),
            ),
        }
    }
}

/// Reads an interval; the modifier decides what a bare number counts and what is cut off.
pub fn parse(s: &str, typmod: i32, style: IntervalStyle) -> Result<Interval> {
    let range = if typmod < 0 { 0x7fff } else { (typmod >> 16) & 0x7fff };
    let first = decode(s, range, style);
    let read = match first {
        Err(Fault::Format) => decode_iso(scalar::trim(s)),
        other => other,
    };
    Ok(read.map_err(|f| f.error(s))?.apply_typmod(typmod))
}

#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
    /// Units seen, one bit each.
    seen: u16,
}

impl Sum {
    fn add_micros(&mut self, count: i64, fraction: f64, unit: i64) -> Step {
        let whole = count.checked_mul(unit).ok_or(Fault::Overflow)?;
        let part = (fraction * unit as f64).round_ties_even() as i64;
        self.micros = self
            .micros
            .checked_add(whole)
            .and_then(|m| m.checked_add(part))
            .ok_or(Fault::Overflow)?;
        Ok(())
    }

    /// Days, the fraction becoming time.
    fn add_days(&mut self, count: i64, fraction: f64, unit: i64) -> Step {
        let part = fraction * unit as f64;
        let whole = count.checked_mul(unit).ok_or(Fault::Overflow)?;
        self.days = self
            .days
            .checked_add(whole)
            .and_then(|d| d.checked_add(part as i64))
            .ok_or(Fault::Overflow)?;
        self.add_micros(0, part - part.trunc(), USECS_PER_DAY)
    }

    fn add_months(&mut self, count: i64, fraction: f64, unit: i64) -> Step {
        let whole = count.checked_mul(unit).ok_or(Fault::Overflow)?;
        let part = (fraction * unit as f64).round_ties_even() as i64;
        self.months = self
            .months
            .checked_add(whole)
            .and_then(|m| m.checked_add(part))
            .ok_or(Fault::Overflow)?;
        Ok(())
    }

    fn add(&mut self, unit: Unit, count: i64, fraction: f64) -> Step {
        match unit {
            Unit::Microsecond => self.add_micros(count, fraction, 1),
            Unit::Millisecond => self.add_micros(count, fraction, 1000),
            Unit::Second => self.add_micros(count, fraction, USECS_PER_SEC),
            Unit::Minute => self.add_micros(count, fraction, USECS_PER_MINUTE),
            Unit::Hour => self.add_micros(count, fraction, USECS_PER_HOUR),
            Unit::Day => self.add_days(count, fraction, 1),
            Unit::Week => self.add_days(count, fraction, 7),
            Unit::Month => {
                self.add_months(count, 0.0, 1)?;
                self.add_days(0, fraction, 30)
            }
            Unit::Quarter => self.add_months(count, fraction, 3),
            Unit::Year => self.add_months(count, fraction, 12),
            Unit::Decade => self.add_months(count, fraction, 120),
            Unit::Century => self.add_months(count, fraction, 1200),
            Unit::Millennium => self.add_months(count, fraction, 12_000),
        }
    }

    /// Each unit may occur once; seconds and their fractions share nothing with each other.
    fn once(&mut self, unit: Unit) -> Step {
        let bit = 1u16 << unit as u16;
        if self.seen & bit != 0 {
            return Err(Fault::Format);
        }
        self.seen |= bit;
        Ok(())
    }

    fn finish(self, negate: bool) -> Step<Interval> {
        let sign = if negate { -1 } else { 1 };
        Ok(Interval {
            months: i32::try_from(self.months * sign).map_err(|_| Fault::Range)?,
            days: i32::try_from(self.days * sign).map_err(|_| Fault::Overflow)?,
            micros: self.micros.checked_mul(sign).ok_or(Fault::Overflow)?,
        })
    }
}

/// What a number without a unit counts, by the modifier's fields.
fn default_unit(range: i32) -> Unit {
    match range {
        0x0004 => Unit::Year,
        0x0002 | 0x0006 => Unit::Month,
        0x0008 => Unit::Day,
        0x0400 | 0x0408 => Unit::Hour,
        0x0800 | 0x0c00 | 0x0c08 => Unit::Minute,
        _ => Unit::Second,
    }
}

/// In `sql_standard` style a leading minus covers all parts, unless another part has a sign.
fn leading_minus_covers_all(fields: &[Field], style: IntervalStyle) -> bool {
    style == IntervalStyle::SqlStandard
        && fields.first().is_some_and(|f| f.text.starts_with('-'))
        && !fields[1..].iter().any(|f| f.text.starts_with(['-', '+']))
}

fn decode(s: &str, range: i32, style: IntervalStyle) -> Step<Interval> {
    let fields = lex::split(s).ok_or(Fault::Format)?;
    let force_negative = leading_minus_covers_all(&fields, style);
    let mut sum = Sum::default();
    let mut ago = false;
    let mut unit: Option<Unit> = None;
    let mut any = false;
    for field in fields.iter().rev() {
        let text = field.text.as_str();
        match field.kind {
            Kind::Time => {
                clock(&mut sum, text, range, force_negative)?;
                unit = Some(Unit::Day);
                any = true;
            }
            Kind::Zone if text.contains(':') => {
                let negative = text.starts_with('-') || force_negative;
                clock(&mut sum, &text[1..], range, negative)?;
                unit = Some(Unit::Day);
                any = true;
            }
            Kind::Zone | Kind::Date | Kind::Number => {
                let counted = unit.unwrap_or_else(|| default_unit(range));
                amount(&mut sum, text, counted, force_negative)?;
                any = true;
            }
            Kind::Word | Kind::SignedWord => {
                if text == "ago" {
                    ago = true;
                } else if text != "at" && text != "on" {
                    unit = Some(self::unit(text).ok_or(Fault::Format)?);
                }
            }
        }
    }
    if !any {
        return Err(Fault::Format);
    }
    sum.finish(ago)
}

/// Digits as a number, and the fraction after the point.
fn split_number(text: &str) -> Step<(i64, f64)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) {
        return Err(Fault::Format);
    }
    let count = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| Fault::Overflow)? };
    let fraction = format!("0.{part}0").parse().map_err(|_| Fault::Format)?;
    Ok((count, fraction))
}

/// A number with its unit, or `years-months`.
fn amount(sum: &mut Sum, text: &str, unit: Unit, force_negative: bool) -> Step {
    let (negative, body) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let sign = if negative || force_negative { -1 } else { 1 };
    if let Some((years, months)) = body.split_once('-') {
        let (years, months) = (split_number(years)?, split_number(months)?);
        if years.1 != 0.0 || months.1 != 0.0 || months.0 >= 12 {
            return Err(if months.0 >= 12 { Fault::Overflow } else { Fault::Format });
        }
        sum.once(Unit::Month)?;
        let total = years.0.checked_mul(12).and_then(|y| y.checked_add(months.0));
        return sum.add(Unit::Month, sign * total.ok_or(Fault::Overflow)?, 0.0);
    }
    let (count, fraction) = split_number(body)?;
    sum.once(unit)?;
    sum.add(unit, sign * count, sign as f64 * fraction)
}

/// `h:m[:s[.f]]`; `m:s` for MINUTE TO SECOND.
fn clock(sum: &mut Sum, text: &str, range: i32, negative: bool) -> Step {
    const MINUTE_TO_SECOND: i32 = 0x1800;
    let (body, fraction) = match text.split_once('.') {
        Some((body, part)) => (body, split_number(&format!("0.{part}"))?.1),
        None => (text, 0.0),
    };
    let numbers = body.split(':').map(|p| split_number(p).map(|(n, _)| n));
    let numbers: Vec<i64> = numbers.collect::<Step<_>>()?;
    let (h, m, s) = match numbers[..] {
        [m, s] if range == MINUTE_TO_SECOND || text.contains('.') => (0, m, s),
        [h, m] => (h, m, 0),
        [h, m, s] => (h, m, s),
        _ => return Err(Fault::Format),
    };
    if m > 59 || s > 60 {
        return Err(Fault::Overflow);
    }
    sum.once(Unit::Hour)?;
    sum.once(Unit::Minute)?;
    sum.once(Unit::Second)?;
    let sign = if negative { -1 } else { 1 };
    sum.add(Unit::Hour, sign * h, 0.0)?;
    sum.add(Unit::Minute, sign * m, 0.0)?;
    sum.add(Unit::Second, sign * s, sign as f64 * fraction)
}

/// A signed decimal number at the start: (count, fraction, rest).
fn iso_number(s: &str) -> Step<(i64, f64, &str)> {
    let body = s.strip_prefix(['-', '+']).unwrap_or(s);
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let (count, fraction) = split_number(&body[..end])?;
    let sign = if s.starts_with('-') { -1 } else { 1 };
    Ok((sign * count, sign as f64 * fraction, &body[end..]))
}

/// `PnYnMnDTnHnMnS`, `PnW`, and the alternative `PYYYY-MM-DDThh:mm:ss`.
fn decode_iso(s: &str) -> Step<Interval> {
    let mut rest = s.strip_prefix(['P', 'p']).filter(|r| !r.is_empty()).ok_or(Fault::Format)?;
    let mut sum = Sum::default();
    let mut in_time = false;
    let mut any = false;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix(['T', 't']) {
            if in_time {
                return Err(Fault::Format);
            }
            (in_time, any) = (true, true);
            rest = tail;
            continue;
        }
        let (count, fraction, tail) = iso_number(rest)?;
        let designator = tail.as_bytes().first().map(u8::to_ascii_uppercase);
        let unit = match (in_time, designator) {
            (false, Some(b'Y')) => Unit::Year,
            (false, Some(b'M')) => Unit::Month,
            (false, Some(b'W')) => Unit::Week,
            (false, Some(b'D')) => Unit::Day,
            (true, Some(b'H')) => Unit::Hour,
            (true, Some(b'M')) => Unit::Minute,
            (true, Some(b'S')) => Unit::Second,
            _ => return alternative(&mut sum, rest, in_time).and_then(|()| sum.finish(false)),
        };
        sum.add(unit, count, fraction)?;
        any = true;
        rest = &tail[1..];
    }
    if any { sum.finish(false) } else { Err(Fault::Format) }
}

/// `0001-02-03T04:05:06` or `04:05:06`.
fn alternative(sum: &mut Sum, text: &str, in_time: bool) -> Step {
    let (date, time) = match text.split_once(['T', 't']) {
        Some((date, time)) => (Some(date), Some(time)),
        None if in_time => (None, Some(text)),
        None => (Some(text), None),
    };
    if let Some(date) = date {
        let units = [Unit::Year, Unit::Month, Unit::Day];
        parts(sum, date, '-', &units)?;
    }
    if let Some(time) = time {
        parts(sum, time, ':', &[Unit::Hour, Unit::Minute, Unit::Second])?;
    }
    Ok(())
}

fn parts(sum: &mut Sum, text: &str, separator: char, units: &[Unit]) -> Step {
    let words: Vec<&str> = text.split(separator).collect();
    if words.len() > units.len() {
        return Err(Fault::Format);
    }
    for (word, unit) in words.iter().zip(units) {
        let (count, fraction, rest) = iso_number(word)?;
        if !rest.is_empty() {
            return Err(Fault::Format);
        }
        sum.add(*unit, count, fraction)?;
    }
    Ok(())
}
