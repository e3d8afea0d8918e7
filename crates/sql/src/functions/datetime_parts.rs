//! Parts of dates and times: extract, date_trunc, date_bin, make_*, to_char and its inverses,
//! OVERLAPS.

use super::FnContext;
use super::args::{Date, FromDatum, Stamp, Time, arg, fns};
use super::datetime::{add_local, add_zoned};
use crate::error::{Result, SqlError, State};
use crate::types::datetime::format::{Moment, to_char};
use crate::types::datetime::interval_parse::{Unit, unit};
use crate::types::datetime::{
    self as dt, EPOCH_JULIAN, Fields, UNIX_EPOCH_USECS, USECS_PER_DAY, USECS_PER_HOUR,
    USECS_PER_MINUTE, USECS_PER_SEC, format_parse, iso_week, tz,
};
use crate::types::numeric::{Numeric, arith};
use crate::types::{self, Datum, Interval, TimeTz};

const TIMESTAMP: &str = "timestamp without time zone";
const TIMESTAMPTZ: &str = "timestamp with time zone";

/// A unit as extract, date_part and date_trunc name it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Unit(Unit),
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Julian,
    Epoch,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

fn part(name: &str, ty: &str) -> Result<Part> {
    let lower = name.to_ascii_lowercase();
    Ok(match lower.as_str() {
        "dow" => Part::DayOfWeek,
        "isodow" => Part::IsoDayOfWeek,
        "doy" => Part::DayOfYear,
        "isoyear" => Part::IsoYear,
        "julian" | "j" | "jd" => Part::Julian,
        "epoch" => Part::Epoch,
        "timezone" => Part::Timezone,
        "timezone_hour" | "timezone_h" => Part::TimezoneHour,
        "timezone_minute" | "timezone_m" => Part::TimezoneMinute,
        word => Part::Unit(unit(word).ok_or_else(|| not_recognized(name, ty))?),
    })
}

fn not_recognized(name: &str, ty: &str) -> SqlError {
    SqlError::new(
        State::INVALID_PARAMETER_VALUE,
        format!("unit \"{name}\" not recognized for type {ty}"),
    )
}

fn not_supported(name: &str, ty: &str) -> SqlError {
    SqlError::new(
        State::FEATURE_NOT_SUPPORTED,
        format!("unit \"{name}\" not supported for type {ty}"),
    )
}

/// An extracted part before it becomes numeric (extract) or float (date_part).
enum Value {
    /// `value * 10^-scale`.
    Scaled(i128, i32),
    /// Julian day and microseconds of the day.
    Julian(i64, i64),
    Infinite(bool),
    Null,
}

impl Value {
    fn int(v: i64) -> Value {
        Value::Scaled(v.into(), 0)
    }

    fn numeric(self) -> Result<Option<Numeric>> {
        Ok(Some(match self {
            Value::Scaled(v, scale) => Numeric::from_i128(v, scale),
            Value::Julian(day, micros) => {
                let part = arith::div(&Numeric::from(micros), &Numeric::from(USECS_PER_DAY))?;
                arith::add(&Numeric::from(day), &part)?
            }
            Value::Infinite(true) => Numeric::INFINITY,
            Value::Infinite(false) => Numeric::NEG_INFINITY,
            Value::Null => return Ok(None),
        }))
    }

    fn float(self) -> Option<f64> {
        Some(match self {
            Value::Scaled(v, scale) => v as f64 / 10f64.powi(scale),
            Value::Julian(day, micros) => day as f64 + micros as f64 / USECS_PER_DAY as f64,
            Value::Infinite(true) => f64::INFINITY,
            Value::Infinite(false) => f64::NEG_INFINITY,
            Value::Null => return None,
        })
    }
}

/// Seconds and smaller, common to all types.
fn clock_part(u: Unit, f: &Fields) -> Option<Value> {
    let second = f.second * USECS_PER_SEC + f.micros;
    Some(match u {
        Unit::Microsecond => Value::int(second),
        Unit::Millisecond => Value::Scaled(second.into(), 3),
        Unit::Second => Value::Scaled(second.into(), 6),
        Unit::Minute => Value::int(f.minute),
        Unit::Hour => Value::int(f.hour),
        _ => return None,
    })
}

/// Years as people count them: there is no year 0.
fn shown_year(year: i64) -> i64 {
    if year > 0 { year } else { year - 1 }
}

fn calendar_part(p: Part, f: &Fields) -> Option<Value> {
    let y = f.year;
    let days = f.days();
    Some(Value::int(match p {
        Part::Unit(Unit::Day) => f.day,
        Part::Unit(Unit::Month) => f.month,
        Part::Unit(Unit::Quarter) => (f.month - 1) / 3 + 1,
        Part::Unit(Unit::Week) => iso_week(days).1,
        Part::Unit(Unit::Year) => shown_year(y),
        Part::Unit(Unit::Decade) => y.div_euclid(10),
        Part::Unit(Unit::Century) if y > 0 => (y + 99) / 100,
        Part::Unit(Unit::Century) => -((99 - (y - 1)) / 100),
        Part::Unit(Unit::Millennium) if y > 0 => (y + 999) / 1000,
        Part::Unit(Unit::Millennium) => -((999 - (y - 1)) / 1000),
        Part::DayOfWeek => dt::day_of_week(days),
        Part::IsoDayOfWeek => (dt::day_of_week(days) + 6) % 7 + 1,
        Part::DayOfYear => dt::day_of_year(y, f.month, f.day),
        Part::IsoYear => shown_year(iso_week(days).0),
        _ => return None,
    }))
}

/// What of an infinite moment: growing parts are infinite, circling ones unknown.
fn infinite_part(p: Part, positive: bool) -> Value {
    let grows = matches!(
        p,
        Part::IsoYear
            | Part::Julian
            | Part::Epoch
            | Part::Unit(Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium)
    );
    if grows { Value::Infinite(positive) } else { Value::Null }
}

fn from_timestamp(name: &str, t: i64) -> Result<Value> {
    let p = part(name, TIMESTAMP)?;
    if dt::is_infinite(t) {
        return Ok(infinite_part(p, t > 0));
    }
    if matches!(p, Part::Timezone | Part::TimezoneHour | Part::TimezoneMinute) {
        return Err(not_supported(name, TIMESTAMP));
    }
    local_part(p, t, t).ok_or_else(|| not_supported(name, TIMESTAMP))
}

/// A part of a local timestamp; the epoch counts from `utc`.
fn local_part(p: Part, local: i64, utc: i64) -> Option<Value> {
    let f = Fields::from_timestamp(local);
    match p {
        Part::Epoch => Some(Value::Scaled(i128::from(utc) + i128::from(UNIX_EPOCH_USECS), 6)),
        Part::Julian => Some(Value::Julian(f.days() + EPOCH_JULIAN, f.time())),
        Part::Unit(u) => clock_part(u, &f).or_else(|| calendar_part(p, &f)),
        _ => calendar_part(p, &f),
    }
}

fn from_timestamptz(cx: &dyn FnContext, name: &str, t: i64) -> Result<Value> {
    let p = part(name, TIMESTAMPTZ)?;
    if dt::is_infinite(t) {
        return Ok(infinite_part(p, t > 0));
    }
    let offset = tz::offset_at(cx.time_zone(), t);
    match p {
        Part::Timezone => Ok(Value::int(offset)),
        Part::TimezoneHour => Ok(Value::int(offset / 3600)),
        Part::TimezoneMinute => Ok(Value::int(offset / 60 % 60)),
        _ => local_part(p, t.saturating_add(offset * USECS_PER_SEC), t)
            .ok_or_else(|| not_supported(name, TIMESTAMPTZ)),
    }
}

fn from_date(name: &str, d: i32) -> Result<Value> {
    let p = part(name, "date")?;
    let clock = matches!(
        p,
        Part::Timezone
            | Part::TimezoneHour
            | Part::TimezoneMinute
            | Part::Unit(
                Unit::Microsecond | Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour
            )
    );
    if clock {
        return Err(not_supported(name, "date"));
    }
    if dt::is_infinite_date(d) {
        return Ok(infinite_part(p, d > 0));
    }
    let days = i64::from(d);
    match p {
        Part::Epoch => Ok(Value::int((days + dt::UNIX_EPOCH_DAYS) * 86_400)),
        Part::Julian => Ok(Value::int(days + EPOCH_JULIAN)),
        _ => calendar_part(p, &Fields::from_date(days)).ok_or_else(|| not_supported(name, "date")),
    }
}

fn from_time(name: &str, micros: i64) -> Result<Value> {
    const TY: &str = "time without time zone";
    match part(name, TY)? {
        Part::Epoch => Ok(Value::Scaled(micros.into(), 6)),
        Part::Unit(u) => {
            clock_part(u, &Fields::from_time(micros)).ok_or_else(|| not_supported(name, TY))
        }
        _ => Err(not_supported(name, TY)),
    }
}

fn from_timetz(name: &str, t: TimeTz) -> Result<Value> {
    const TY: &str = "time with time zone";
    let offset = -i64::from(t.zone);
    match part(name, TY)? {
        Part::Epoch => Ok(Value::Scaled((t.micros + i64::from(t.zone) * USECS_PER_SEC).into(), 6)),
        Part::Timezone => Ok(Value::int(offset)),
        Part::TimezoneHour => Ok(Value::int(offset / 3600)),
        Part::TimezoneMinute => Ok(Value::int(offset / 60 % 60)),
        Part::Unit(u) => {
            clock_part(u, &Fields::from_time(t.micros)).ok_or_else(|| not_supported(name, TY))
        }
        _ => Err(not_supported(name, TY)),
    }
}

fn from_interval(name: &str, i: &Interval) -> Result<Value> {
    let p = part(name, "interval")?;
    let (years, months) = (i64::from(i.months / 12), i64::from(i.months % 12));
    let f = Fields::from_time(0);
    let t = Fields {
        hour: i.micros / USECS_PER_HOUR,
        minute: i.micros % USECS_PER_HOUR / USECS_PER_MINUTE,
        second: i.micros % USECS_PER_MINUTE / USECS_PER_SEC,
        micros: i.micros % USECS_PER_SEC,
        ..f
    };
    Ok(match p {
        Part::Epoch => {
            // Years of 365.25 days: counted in quarter days.
            let quarters = 1461 * years + 120 * months + 4 * i64::from(i.days);
            let seconds = i128::from(quarters) * (86_400 / 4);
            Value::Scaled(seconds * 1_000_000 + i128::from(i.micros), 6)
        }
        Part::Unit(Unit::Day) => Value::int(i.days.into()),
        Part::Unit(Unit::Month) => Value::int(months),
        Part::Unit(Unit::Quarter) => Value::int(months / 3 + 1),
        Part::Unit(Unit::Year) => Value::int(years),
        Part::Unit(Unit::Decade) => Value::int(years / 10),
        Part::Unit(Unit::Century) => Value::int(years / 100),
        Part::Unit(Unit::Millennium) => Value::int(years / 1000),
        Part::Unit(u) => clock_part(u, &t).ok_or_else(|| not_supported(name, "interval"))?,
        _ => return Err(not_supported(name, "interval")),
    })
}

fns! {
    fn extract_date(_cx; u: &str, d: Date) -> Option<Numeric> { from_date(u, d.0)?.numeric()? }
    fn extract_time(_cx; u: &str, t: Time) -> Option<Numeric> { from_time(u, t.0)?.numeric()? }
    fn extract_timetz(_cx; u: &str, t: TimeTz) -> Option<Numeric> { from_timetz(u, t)?.numeric()? }
    fn extract_timestamp(_cx; u: &str, t: Stamp) -> Option<Numeric> {
        from_timestamp(u, t.0)?.numeric()?
    }
    fn extract_timestamptz(cx; u: &str, t: Stamp) -> Option<Numeric> {
        from_timestamptz(cx, u, t.0)?.numeric()?
    }
    fn extract_interval(_cx; u: &str, i: Interval) -> Option<Numeric> {
        from_interval(u, &i)?.numeric()?
    }
    fn part_date(_cx; u: &str, d: Date) -> Option<f64> {
        from_timestamp(u, dt::date_to_timestamp(d.0)?)?.float()
    }
    fn part_time(_cx; u: &str, t: Time) -> Option<f64> { from_time(u, t.0)?.float() }
    fn part_timetz(_cx; u: &str, t: TimeTz) -> Option<f64> { from_timetz(u, t)?.float() }
    fn part_timestamp(_cx; u: &str, t: Stamp) -> Option<f64> { from_timestamp(u, t.0)?.float() }
    fn part_timestamptz(cx; u: &str, t: Stamp) -> Option<f64> {
        from_timestamptz(cx, u, t.0)?.float()
    }
    fn part_interval(_cx; u: &str, i: Interval) -> Option<f64> {
        if u.eq_ignore_ascii_case("epoch") {
            Some(i.epoch_seconds())
        } else {
            from_interval(u, &i)?.float()
        }
    }
}

/// Cuts a local timestamp down to a unit.
fn truncate(u: Unit, t: i64) -> Result<i64> {
    let f = Fields::from_timestamp(t);
    let down = |unit: i64| t - t.rem_euclid(unit);
    let start = |year: i64, month: i64| {
        Fields { year, month, day: 1, ..Fields::default() }
            .timestamp()
            .ok_or_else(dt::timestamp_range)
    };
    Ok(match u {
        Unit::Microsecond => t,
        Unit::Millisecond => down(1000),
        Unit::Second => down(USECS_PER_SEC),
        Unit::Minute => down(USECS_PER_MINUTE),
        Unit::Hour => down(USECS_PER_HOUR),
        Unit::Day => down(USECS_PER_DAY),
        Unit::Week => {
            let days = t.div_euclid(USECS_PER_DAY);
            (days - (dt::day_of_week(days) + 6) % 7) * USECS_PER_DAY
        }
        Unit::Month => start(f.year, f.month)?,
        Unit::Quarter => start(f.year, (f.month - 1) / 3 * 3 + 1)?,
        Unit::Year => start(f.year, 1)?,
        Unit::Decade => start(f.year.div_euclid(10) * 10, 1)?,
        // Centuries begin with the year 1.
        Unit::Century => start((f.year - 1).div_euclid(100) * 100 + 1, 1)?,
        Unit::Millennium => start((f.year - 1).div_euclid(1000) * 1000 + 1, 1)?,
    })
}

fn trunc_unit(name: &str, ty: &str) -> Result<Unit> {
    match part(name, ty)? {
        Part::Unit(u) => Ok(u),
        Part::Timezone | Part::TimezoneHour | Part::TimezoneMinute => Err(not_supported(name, ty)),
        _ => Err(not_recognized(name, ty)),
    }
}

/// Cuts a moment down in a zone. Below a day the clock's offset stays what it was.
fn truncate_zoned(name: &str, utc: i64, zone: &tz::Zone) -> Result<i64> {
    if dt::is_infinite(utc) {
        return Ok(utc);
    }
    let u = trunc_unit(name, TIMESTAMPTZ)?;
    let offset = zone.offset_at(utc) * USECS_PER_SEC;
    let local = truncate(u, utc.saturating_add(offset))?;
    let fine = matches!(
        u,
        Unit::Microsecond | Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour
    );
    if fine { dt::checked_timestamp(local.checked_sub(offset)) } else { zone.to_utc(local) }
}

fn truncate_interval(name: &str, i: &Interval) -> Result<Interval> {
    let u = trunc_unit(name, "interval")?;
    let months = |unit: i32| Interval::new(i.months - i.months % unit, 0, 0);
    let micros = |unit: i64| Interval { micros: i.micros - i.micros % unit, ..*i };
    Ok(match u {
        Unit::Millennium => months(12_000),
        Unit::Century => months(1200),
        Unit::Decade => months(120),
        Unit::Year => months(12),
        Unit::Quarter => months(3),
        Unit::Month => months(1),
        Unit::Week => {
            return Err(
                not_supported(name, "interval").detail("Months usually have fractional weeks.")
            );
        }
        Unit::Day => Interval { micros: 0, ..*i },
        Unit::Hour => micros(USECS_PER_HOUR),
        Unit::Minute => micros(USECS_PER_MINUTE),
        Unit::Second => micros(USECS_PER_SEC),
        Unit::Millisecond => micros(1000),
        Unit::Microsecond => *i,
    })
}

fn bin(stride: &Interval, t: i64, origin: i64) -> Result<i64> {
    if dt::is_infinite(t) {
        return Ok(t);
    }
    let bad = |m: &str| SqlError::new(State::DATETIME_FIELD_OVERFLOW, m);
    if dt::is_infinite(origin) {
        return Err(bad("origin out of range"));
    }
    if stride.months != 0 {
        return Err(SqlError::new(
            State::FEATURE_NOT_SUPPORTED,
            "timestamps cannot be binned into intervals containing months or years",
        ));
    }
    let width = i64::from(stride.days)
        .checked_mul(USECS_PER_DAY)
        .and_then(|d| d.checked_add(stride.micros))
        .ok_or_else(dt::interval_range)?;
    if width <= 0 {
        return Err(bad("stride must be greater than zero"));
    }
    let distance = t.checked_sub(origin).ok_or_else(dt::interval_range)?;
    dt::checked_timestamp(distance.div_euclid(width).checked_mul(width).map(|d| origin + d))
}

fns! {
    fn trunc_timestamp(_cx; u: &str, t: Stamp) -> Stamp {
        if dt::is_infinite(t.0) { t } else { Stamp(truncate(trunc_unit(u, TIMESTAMP)?, t.0)?) }
    }
    fn trunc_timestamptz(cx; u: &str, t: Stamp) -> Stamp {
        Stamp(truncate_zoned(u, t.0, &tz::Zone::Named(cx.time_zone().clone()))?)
    }
    fn trunc_timestamptz_in(_cx; u: &str, t: Stamp, zone: &str) -> Stamp {
        Stamp(truncate_zoned(u, t.0, &tz::Zone::parse(zone)?)?)
    }
    fn trunc_interval(_cx; u: &str, i: Interval) -> Interval { truncate_interval(u, &i)? }
    fn date_bin(_cx; stride: Interval, t: Stamp, origin: Stamp) -> Stamp {
        Stamp(bin(&stride, t.0, origin.0)?)
    }
}

fn make_days(year: i32, month: i32, day: i32) -> Result<i64> {
    let fail = || {
        SqlError::new(
            State::DATETIME_FIELD_OVERFLOW,
            format!("date field value out of range: {year}-{month:02}-{day:02}"),
        )
    };
    let y = if year < 0 { i64::from(year) + 1 } else { i64::from(year) };
    let (m, d) = (i64::from(month), i64::from(day));
    if year == 0 || !(1..=12).contains(&m) || !(1..=dt::days_in_month(y, m)).contains(&d) {
        return Err(fail());
    }
    let days = dt::days_from_civil(y, m, d);
    if dt::valid_date(days) {
        return Ok(days);
    }
    Err(SqlError::new(
        State::DATETIME_FIELD_OVERFLOW,
        format!("date out of range: {year}-{month:02}-{day:02}"),
    ))
}

fn make_micros(hour: i32, minute: i32, second: f64) -> Result<i64> {
    let micros = (second * 1e6).round_ties_even();
    let fits = (0..=24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..=60_000_000.0).contains(&micros)
        && (hour < 24 || (minute == 0 && micros == 0.0));
    if !fits {
        return Err(SqlError::new(
            State::DATETIME_FIELD_OVERFLOW,
            format!("time field value out of range: {hour}:{minute:02}:{second:02}"),
        ));
    }
    Ok((i64::from(hour) * 60 + i64::from(minute)) * USECS_PER_MINUTE + micros as i64)
}

fn make_stamp(args: &[Datum]) -> Result<i64> {
    let int = |i: usize| i32::get(arg(args, i));
    let days = make_days(int(0)?, int(1)?, int(2)?)?;
    let micros = make_micros(int(3)?, int(4)?, f64::get(arg(args, 5))?)?;
    dt::checked_timestamp(days.checked_mul(USECS_PER_DAY).and_then(|d| d.checked_add(micros)))
}

pub(crate) fn make_timestamp(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    make_stamp(args).map(Datum::Timestamp)
}

/// make_timestamptz, with or without a zone as the seventh argument.
pub(crate) fn make_timestamptz(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let local = make_stamp(args)?;
    let utc = match arg(args, 6) {
        Datum::Text(zone) => {
            let numeric = zone.starts_with(['+', '-']);
            let zone = if numeric { offset_zone(zone)? } else { tz::Zone::parse(zone)? };
            zone.to_utc(local)?
        }
        _ => tz::to_utc(cx.time_zone(), local)?,
    };
    Ok(Datum::Timestamp(utc))
}

/// `+2`, `-10:30`: here, unlike in AT TIME ZONE, east is positive.
fn offset_zone(text: &str) -> Result<tz::Zone> {
    let bad = || {
        SqlError::new(
            State::INVALID_PARAMETER_VALUE,
            format!("invalid input syntax for type numeric time zone: \"{text}\""),
        )
        .hint("Numeric time zones must have \"-\" or \"+\" as first character.")
    };
    let mut parts = text[1..].split(':').map(|p| p.parse::<i64>());
    let mut next = || parts.next().unwrap_or(Ok(0)).map_err(|_| bad());
    let seconds = (next()? * 60 + next()?) * 60 + next()?;
    if seconds >= 16 * 3600 {
        return Err(SqlError::new(
            State::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
            format!("numeric time zone \"{text}\" out of range"),
        ));
    }
    Ok(tz::Zone::Fixed(if text.starts_with('-') { -seconds } else { seconds }))
}

/// make_interval(years, months, weeks, days, hours, mins, secs): absent ones are zero.
pub(crate) fn make_interval(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let int = |i: usize| Option::<i32>::get(arg(args, i)).map(|v| i64::from(v.unwrap_or(0)));
    let seconds = Option::<f64>::get(arg(args, 6))?.unwrap_or(0.0);
    let range = || dt::interval_range();
    if !seconds.is_finite() || seconds.abs() > 9e12 {
        return Err(range());
    }
    let months = int(0)? * 12 + int(1)?;
    let days = int(2)? * 7 + int(3)?;
    let micros = (int(4)? * 60 + int(5)?)
        .checked_mul(USECS_PER_MINUTE)
        .and_then(|m| m.checked_add((seconds * 1e6).round_ties_even() as i64))
        .ok_or_else(range)?;
    Ok(Datum::Interval(Interval {
        months: i32::try_from(months).map_err(|_| range())?,
        days: i32::try_from(days).map_err(|_| range())?,
        micros,
    }))
}

fns! {
    fn make_date(_cx; y: i32, m: i32, d: i32) -> Date { Date(make_days(y, m, d)? as i32) }
    fn make_time(_cx; h: i32, m: i32, s: f64) -> Time { Time(make_micros(h, m, s)?) }

    fn to_char_timestamp(_cx; t: Stamp, format: &str) -> Option<String> {
        if format.is_empty() || dt::is_infinite(t.0) {
            None
        } else {
            let fields = Fields::from_timestamp(t.0);
            Some(to_char(&Moment { fields, ..Moment::default() }, format)?)
        }
    }
    fn to_char_timestamptz(cx; t: Stamp, format: &str) -> Option<String> {
        if format.is_empty() || dt::is_infinite(t.0) {
            None
        } else {
            let (offset, name, _) = tz::info_at(cx.time_zone(), t.0);
            let fields = Fields::from_timestamp(t.0.saturating_add(offset * USECS_PER_SEC));
            let m = Moment { fields, interval: false, zone: Some((offset, name)) };
            Some(to_char(&m, format)?)
        }
    }
    fn to_char_interval(_cx; i: Interval, format: &str) -> Option<String> {
        if format.is_empty() { None } else { Some(to_char(&interval_moment(&i), format)?) }
    }
    fn to_timestamp(cx; text: &str, format: &str) -> Stamp {
        let read = format_parse::read(text, format)?;
        let local = read.fields.timestamp().ok_or_else(dt::timestamp_range)?;
        Stamp(match read.offset {
            Some(offset) => tz::to_utc_fixed(offset, local)?,
            None => tz::to_utc(cx.time_zone(), local)?,
        })
    }
    fn to_date(_cx; text: &str, format: &str) -> Date {
        let days = format_parse::read(text, format)?.fields.days();
        if !dt::valid_date(days) {
            return Err(SqlError::new(
                State::DATETIME_FIELD_OVERFLOW,
                format!("date out of range: \"{text}\""),
            ));
        }
        Date(days as i32)
    }
    fn from_epoch(_cx; seconds: f64) -> Stamp {
        let range = || {
            let mut shown = Vec::new();
            types::scalar::write_f64(seconds, 1, &mut shown);
            let shown = String::from_utf8_lossy(&shown);
            SqlError::new(
                State::DATETIME_FIELD_OVERFLOW,
                format!("timestamp out of range: \"{shown}\""),
            )
        };
        if seconds.is_nan() {
            return Err(SqlError::new(
                State::DATETIME_FIELD_OVERFLOW,
                "timestamp cannot be NaN",
            ));
        }
        if seconds.is_infinite() {
            Stamp(if seconds > 0.0 { dt::INFINITY } else { dt::NEG_INFINITY })
        } else {
            let since = seconds - UNIX_EPOCH_USECS as f64 / 1e6;
            let micros = (since * 1e6).round_ties_even();
            if !(dt::MIN_TIMESTAMP as f64..dt::END_TIMESTAMP as f64).contains(&micros) {
                return Err(range());
            }
            Stamp(micros as i64)
        }
    }
}

fn interval_moment(i: &Interval) -> Moment {
    let t = i.micros;
    let fields = Fields {
        year: i64::from(i.months / 12),
        month: i64::from(i.months % 12),
        day: i.days.into(),
        hour: t / USECS_PER_HOUR,
        minute: t % USECS_PER_HOUR / USECS_PER_MINUTE,
        second: t % USECS_PER_MINUTE / USECS_PER_SEC,
        micros: t % USECS_PER_SEC,
    };
    Moment { fields, interval: true, zone: None }
}

/// `(s1, e1) OVERLAPS (s2, e2)`: an end may be an interval from its start. Periods are half-open,
/// a single moment counts as a period; NULL only where it matters.
fn overlap(cx: &dyn FnContext, args: &[Datum], zoned: bool) -> Result<Datum> {
    let end = |start: &Datum, end: &Datum| match (start, end) {
        (Datum::Timestamp(t), Datum::Interval(i)) if zoned => {
            add_zoned(*t, i, cx.time_zone()).map(Datum::Timestamp)
        }
        (Datum::Timestamp(t), Datum::Interval(i)) => add_local(*t, i).map(Datum::Timestamp),
        (Datum::Time(t), Datum::Interval(i)) => {
            Ok(Datum::Time((t + i.micros).rem_euclid(USECS_PER_DAY)))
        }
        (Datum::Null, Datum::Interval(_)) => Ok(Datum::Null),
        (_, end) => Ok(end.clone()),
    };
    let period = |i: usize| -> Result<Option<(Datum, Datum)>> {
        let (s, e) = (arg(args, i).clone(), end(arg(args, i), arg(args, i + 1))?);
        Ok(match (s.is_null(), e.is_null()) {
            (true, true) => None,
            // The one that is known comes first.
            (true, false) => Some((e, s)),
            (false, true) => Some((s, e)),
            _ if types::compare(&s, &e).is_gt() => Some((e, s)),
            _ => Some((s, e)),
        })
    };
    let (Some((s1, e1)), Some((s2, e2))) = (period(0)?, period(2)?) else {
        return Ok(Datum::Null);
    };
    let less =
        |a: &Datum, b: &Datum| (!a.is_null() && !b.is_null()).then(|| types::compare(a, b).is_lt());
    let known = |v: Option<bool>| v.map_or(Datum::Null, Datum::Bool);
    Ok(match types::compare(&s1, &s2) {
        std::cmp::Ordering::Greater => match less(&s1, &e2) {
            Some(true) => Datum::Bool(true),
            Some(false) if e1.is_null() => Datum::Null,
            other => known(other),
        },
        std::cmp::Ordering::Less => match less(&s2, &e1) {
            Some(true) => Datum::Bool(true),
            Some(false) if e2.is_null() => Datum::Null,
            other => known(other),
        },
        std::cmp::Ordering::Equal if e1.is_null() || e2.is_null() => Datum::Null,
        std::cmp::Ordering::Equal => Datum::Bool(true),
    })
}

pub(crate) fn overlaps(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    overlap(cx, args, false)
}

pub(crate) fn overlaps_zoned(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    overlap(cx, args, true)
}
