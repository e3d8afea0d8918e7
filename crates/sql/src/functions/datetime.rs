//! Dates, times, timestamps and intervals: arithmetic, comparison across types, casts.

use super::FnContext;
use super::args::{Date, Stamp, Time, fns};
use crate::error::{Result, SqlError, State};
use crate::types::datetime::{
    self as dt, INFINITY, NEG_INFINITY, USECS_PER_DAY, USECS_PER_SEC, interval, tz,
};
use crate::types::{Interval, TimeTz};
use std::cmp::Ordering;

fn cannot_subtract(what: &str) -> SqlError {
    SqlError::new(State::DATETIME_FIELD_OVERFLOW, format!("cannot subtract infinite {what}"))
}

fn shift_date(d: Date, days: i64) -> Result<Date> {
    if dt::is_infinite_date(d.0) {
        return Ok(d);
    }
    let moved = i64::from(d.0) + days;
    match i32::try_from(moved) {
        Ok(v) if dt::valid_date(moved) => Ok(Date(v)),
        _ => Err(dt::date_range()),
    }
}

/// A local timestamp plus an interval.
pub fn add_local(t: i64, i: &Interval) -> Result<i64> {
    if dt::is_infinite(t) {
        return Ok(t);
    }
    interval::add_to_timestamp(t, i).ok_or_else(dt::timestamp_range)
}

/// A moment plus an interval: months and days by the zone's calendar, time by the clock.
pub fn add_zoned(utc: i64, i: &Interval, zone: &jiff::tz::TimeZone) -> Result<i64> {
    if dt::is_infinite(utc) {
        return Ok(utc);
    }
    let mut t = utc;
    if i.months != 0 || i.days != 0 {
        let by_calendar = Interval { micros: 0, ..*i };
        let local = interval::add_to_timestamp(tz::to_local(zone, t), &by_calendar);
        t = tz::to_utc(zone, local.ok_or_else(dt::timestamp_range)?)?;
    }
    dt::checked_timestamp(t.checked_add(i.micros))
}

/// The difference of two moments in days and time.
fn difference(a: i64, b: i64) -> Result<Interval> {
    if dt::is_infinite(a) || dt::is_infinite(b) {
        return Err(cannot_subtract("timestamps"));
    }
    let micros = a.checked_sub(b).ok_or_else(dt::interval_range)?;
    Interval::new(0, 0, micros).justify_hours()
}

fn in_day(micros: i64) -> i64 {
    micros.rem_euclid(USECS_PER_DAY)
}

fns! {
    fn date_mi(_cx; a: Date, b: Date) -> i32 {
        if dt::is_infinite_date(a.0) || dt::is_infinite_date(b.0) {
            return Err(cannot_subtract("dates"));
        }
        a.0.wrapping_sub(b.0)
    }
    fn date_pli(_cx; a: Date, days: i32) -> Date { shift_date(a, days.into())? }
    fn date_mii(_cx; a: Date, days: i32) -> Date { shift_date(a, -i64::from(days))? }
    fn integer_pl_date(_cx; days: i32, a: Date) -> Date { shift_date(a, days.into())? }
    fn date_pl_interval(_cx; a: Date, i: Interval) -> Stamp {
        Stamp(add_local(dt::date_to_timestamp(a.0)?, &i)?)
    }
    fn date_mi_interval(_cx; a: Date, i: Interval) -> Stamp {
        Stamp(add_local(dt::date_to_timestamp(a.0)?, &i.checked_neg()?)?)
    }
    fn interval_pl_date(_cx; i: Interval, a: Date) -> Stamp {
        Stamp(add_local(dt::date_to_timestamp(a.0)?, &i)?)
    }

    fn timestamp_pl_interval(_cx; a: Stamp, i: Interval) -> Stamp { Stamp(add_local(a.0, &i)?) }
    fn timestamp_mi_interval(_cx; a: Stamp, i: Interval) -> Stamp {
        Stamp(add_local(a.0, &i.checked_neg()?)?)
    }
    fn interval_pl_timestamp(_cx; i: Interval, a: Stamp) -> Stamp { Stamp(add_local(a.0, &i)?) }
    fn timestamp_mi(_cx; a: Stamp, b: Stamp) -> Interval { difference(a.0, b.0)? }
    fn timestamptz_pl_interval(cx; a: Stamp, i: Interval) -> Stamp {
        Stamp(add_zoned(a.0, &i, cx.time_zone())?)
    }
    fn timestamptz_mi_interval(cx; a: Stamp, i: Interval) -> Stamp {
        Stamp(add_zoned(a.0, &i.checked_neg()?, cx.time_zone())?)
    }
    fn interval_pl_timestamptz(cx; i: Interval, a: Stamp) -> Stamp {
        Stamp(add_zoned(a.0, &i, cx.time_zone())?)
    }

    fn interval_pl(_cx; a: Interval, b: Interval) -> Interval { a.checked_add(b)? }
    fn interval_mi(_cx; a: Interval, b: Interval) -> Interval { a.checked_sub(b)? }
    fn interval_um(_cx; a: Interval) -> Interval { a.checked_neg()? }
    fn interval_mul(_cx; a: Interval, by: f64) -> Interval { a.multiply(by)? }
    fn mul_d_interval(_cx; by: f64, a: Interval) -> Interval { a.multiply(by)? }
    fn interval_div(_cx; a: Interval, by: f64) -> Interval { a.divide(by)? }
    fn justify_hours(_cx; a: Interval) -> Interval { a.justify_hours()? }
    fn justify_days(_cx; a: Interval) -> Interval { a.justify_days()? }
    fn justify_interval(_cx; a: Interval) -> Interval { a.justify()? }

    fn time_pl_interval(_cx; a: Time, i: Interval) -> Time { Time(in_day(a.0 + in_day(i.micros))) }
    fn time_mi_interval(_cx; a: Time, i: Interval) -> Time { Time(in_day(a.0 - in_day(i.micros))) }
    fn interval_pl_time(_cx; i: Interval, a: Time) -> Time { Time(in_day(a.0 + in_day(i.micros))) }
    fn time_mi_time(_cx; a: Time, b: Time) -> Interval { Interval::new(0, 0, a.0 - b.0) }
    fn timetz_pl_interval(_cx; a: TimeTz, i: Interval) -> TimeTz {
        TimeTz { micros: in_day(a.micros + in_day(i.micros)), ..a }
    }
    fn timetz_mi_interval(_cx; a: TimeTz, i: Interval) -> TimeTz {
        TimeTz { micros: in_day(a.micros - in_day(i.micros)), ..a }
    }
    fn interval_pl_timetz(_cx; i: Interval, a: TimeTz) -> TimeTz {
        TimeTz { micros: in_day(a.micros + in_day(i.micros)), ..a }
    }
    fn datetime_pl(_cx; a: Date, t: Time) -> Stamp { Stamp(date_and_time(a, t.0)?) }
    fn timedate_pl(_cx; t: Time, a: Date) -> Stamp { Stamp(date_and_time(a, t.0)?) }
    fn datetimetz_pl(_cx; a: Date, t: TimeTz) -> Stamp { Stamp(date_and_timetz(a, t)?) }
    fn timetzdate_pl(_cx; t: TimeTz, a: Date) -> Stamp { Stamp(date_and_timetz(a, t)?) }
}

fn date_and_time(d: Date, micros: i64) -> Result<i64> {
    let midnight = dt::date_to_timestamp(d.0)?;
    if dt::is_infinite(midnight) {
        return Ok(midnight);
    }
    dt::checked_timestamp(midnight.checked_add(micros))
}

fn date_and_timetz(d: Date, t: TimeTz) -> Result<i64> {
    date_and_time(d, t.micros + i64::from(t.zone) * USECS_PER_SEC)
}

/// Midnight in the session's zone.
pub fn date_to_timestamptz(cx: &dyn FnContext, d: Date) -> Result<i64> {
    tz::to_utc(cx.time_zone(), dt::date_to_timestamp(d.0)?)
}

fn timestamp_to_date(t: i64) -> Date {
    Date(match t {
        INFINITY => dt::DATE_INFINITY,
        NEG_INFINITY => dt::DATE_NEG_INFINITY,
        t => t.div_euclid(USECS_PER_DAY) as i32,
    })
}

fn local(cx: &dyn FnContext, utc: i64) -> i64 {
    if dt::is_infinite(utc) { utc } else { tz::to_local(cx.time_zone(), utc) }
}

/// Rounds a time of day; it may round up to 24:00.
fn round_time(micros: i64, precision: i32) -> i64 {
    dt::round_micros(micros, precision)
}

fns! {
    fn timestamp_date(_cx; t: Stamp) -> Date { timestamp_to_date(t.0) }
    fn timestamptz_date(cx; t: Stamp) -> Date { timestamp_to_date(local(cx, t.0)) }
    fn date_timestamp(_cx; d: Date) -> Stamp { Stamp(dt::date_to_timestamp(d.0)?) }
    fn date_timestamptz(cx; d: Date) -> Stamp { Stamp(date_to_timestamptz(cx, d)?) }
    fn date_time_timestamptz(cx; d: Date, t: Time) -> Stamp {
        Stamp(tz::to_utc(cx.time_zone(), date_and_time(d, t.0)?)?)
    }
    fn timestamptz_timestamp(cx; t: Stamp) -> Stamp { Stamp(local(cx, t.0)) }
    fn timestamp_timestamptz(cx; t: Stamp) -> Stamp { Stamp(tz::to_utc(cx.time_zone(), t.0)?) }
    fn timestamp_scale(_cx; t: Stamp, precision: i32) -> Stamp {
        Stamp(dt::round_micros(t.0, precision))
    }
    fn timestamp_time(_cx; t: Stamp) -> Option<Time> {
        (!dt::is_infinite(t.0)).then(|| Time(in_day(t.0)))
    }
    fn timestamptz_time(cx; t: Stamp) -> Option<Time> {
        (!dt::is_infinite(t.0)).then(|| Time(in_day(local(cx, t.0))))
    }
    fn timestamptz_timetz(cx; t: Stamp) -> Option<TimeTz> {
        (!dt::is_infinite(t.0)).then(|| {
            let zone = -(tz::offset_at(cx.time_zone(), t.0) as i32);
            TimeTz { micros: in_day(local(cx, t.0)), zone }
        })
    }
    fn interval_time(_cx; i: Interval) -> Time { Time(in_day(i.micros)) }
    fn time_interval(_cx; t: Time) -> Interval { Interval::new(0, 0, t.0) }
    fn time_scale(_cx; t: Time, precision: i32) -> Time { Time(round_time(t.0, precision)) }
    fn timetz_scale(_cx; t: TimeTz, precision: i32) -> TimeTz {
        TimeTz { micros: round_time(t.micros, precision), ..t }
    }
    fn time_timetz(cx; t: Time) -> TimeTz {
        let now = tz::to_local(cx.time_zone(), cx.transaction_timestamp());
        let moment = now - in_day(now) + t.0;
        TimeTz { micros: t.0, zone: -(tz::offset_of_local(cx.time_zone(), moment) as i32) }
    }
    fn timetz_time(_cx; t: TimeTz) -> Time { Time(t.micros) }
    fn interval_scale(_cx; i: Interval, typmod: i32) -> Interval { i.apply_typmod(typmod) }
}

/// A date as a timestamp for comparison: beyond the range of timestamps it is above them all.
fn date_order(d: Date) -> i128 {
    match d.0 {
        dt::DATE_INFINITY => i128::from(INFINITY),
        dt::DATE_NEG_INFINITY => i128::from(NEG_INFINITY),
        d => i128::from(d) * i128::from(USECS_PER_DAY),
    }
}

fn date_vs_timestamp(d: Date, t: i64) -> Ordering {
    match t {
        INFINITY if d.0 != dt::DATE_INFINITY => Ordering::Less,
        t => date_order(d).cmp(&i128::from(t)),
    }
}

fn date_vs_timestamptz(cx: &dyn FnContext, d: Date, t: i64) -> Ordering {
    date_to_timestamptz(cx, d).map_or_else(|_| date_vs_timestamp(d, t), |utc| utc.cmp(&t))
}

fn timestamp_vs_timestamptz(cx: &dyn FnContext, a: i64, b: i64) -> Ordering {
    tz::to_utc(cx.time_zone(), a).map_or_else(|_| a.cmp(&b), |utc| utc.cmp(&b))
}

/// Comparisons between two types, both ways round.
macro_rules! mixed {
    ($(($a:ty, $b:ty, $order:path) $eq:ident $ne:ident $lt:ident $le:ident $gt:ident $ge:ident
        $cmp:ident, $req:ident $rne:ident $rlt:ident $rle:ident $rgt:ident $rge:ident
        $rcmp:ident;)*) => {
        $(fns! {
            fn $eq(cx; a: $a, b: $b) -> bool { $order(cx, a, b).is_eq() }
            fn $ne(cx; a: $a, b: $b) -> bool { $order(cx, a, b).is_ne() }
            fn $lt(cx; a: $a, b: $b) -> bool { $order(cx, a, b).is_lt() }
            fn $le(cx; a: $a, b: $b) -> bool { $order(cx, a, b).is_le() }
            fn $gt(cx; a: $a, b: $b) -> bool { $order(cx, a, b).is_gt() }
            fn $ge(cx; a: $a, b: $b) -> bool { $order(cx, a, b).is_ge() }
            fn $cmp(cx; a: $a, b: $b) -> i32 { $order(cx, a, b) as i32 }
            fn $req(cx; b: $b, a: $a) -> bool { $order(cx, a, b).is_eq() }
            fn $rne(cx; b: $b, a: $a) -> bool { $order(cx, a, b).is_ne() }
            fn $rlt(cx; b: $b, a: $a) -> bool { $order(cx, a, b).is_gt() }
            fn $rle(cx; b: $b, a: $a) -> bool { $order(cx, a, b).is_ge() }
            fn $rgt(cx; b: $b, a: $a) -> bool { $order(cx, a, b).is_lt() }
            fn $rge(cx; b: $b, a: $a) -> bool { $order(cx, a, b).is_le() }
            fn $rcmp(cx; b: $b, a: $a) -> i32 { $order(cx, a, b).reverse() as i32 }
        })*
    };
}

fn order_date_timestamp(_: &dyn FnContext, a: Date, b: Stamp) -> Ordering {
    date_vs_timestamp(a, b.0)
}
fn order_date_timestamptz(cx: &dyn FnContext, a: Date, b: Stamp) -> Ordering {
    date_vs_timestamptz(cx, a, b.0)
}
fn order_timestamp_timestamptz(cx: &dyn FnContext, a: Stamp, b: Stamp) -> Ordering {
    timestamp_vs_timestamptz(cx, a.0, b.0)
}

mixed! {
    (Date, Stamp, order_date_timestamp)
        date_eq_timestamp date_ne_timestamp date_lt_timestamp date_le_timestamp
        date_gt_timestamp date_ge_timestamp date_cmp_timestamp,
        timestamp_eq_date timestamp_ne_date timestamp_lt_date timestamp_le_date
        timestamp_gt_date timestamp_ge_date timestamp_cmp_date;
    (Date, Stamp, order_date_timestamptz)
        date_eq_timestamptz date_ne_timestamptz date_lt_timestamptz date_le_timestamptz
        date_gt_timestamptz date_ge_timestamptz date_cmp_timestamptz,
        timestamptz_eq_date timestamptz_ne_date timestamptz_lt_date timestamptz_le_date
        timestamptz_gt_date timestamptz_ge_date timestamptz_cmp_date;
    (Stamp, Stamp, order_timestamp_timestamptz)
        timestamp_eq_timestamptz timestamp_ne_timestamptz timestamp_lt_timestamptz
        timestamp_le_timestamptz timestamp_gt_timestamptz timestamp_ge_timestamptz
        timestamp_cmp_timestamptz,
        timestamptz_eq_timestamp timestamptz_ne_timestamp timestamptz_lt_timestamp
        timestamptz_le_timestamp timestamptz_gt_timestamp timestamptz_ge_timestamp
        timestamptz_cmp_timestamp;
}

fns! {
    fn now(cx;) -> Stamp { Stamp(cx.transaction_timestamp()) }
    fn statement_timestamp(cx;) -> Stamp { Stamp(cx.statement_timestamp()) }
    fn clock_timestamp(cx;) -> Stamp { Stamp(cx.clock_timestamp()) }
    fn timeofday(cx;) -> String {
        let utc = cx.clock_timestamp();
        let (offset, name, _) = tz::info_at(cx.time_zone(), utc);
        let m = dt::format::Moment {
            fields: dt::Fields::from_timestamp(utc + offset * USECS_PER_SEC),
            interval: false,
            zone: Some((offset, name)),
        };
        dt::format::to_char(&m, "Dy Mon DD HH24:MI:SS.US YYYY TZ")?
    }
    fn isfinite_date(_cx; d: Date) -> bool { !dt::is_infinite_date(d.0) }
    fn isfinite_timestamp(_cx; t: Stamp) -> bool { !dt::is_infinite(t.0) }
    fn isfinite_interval(_cx; i: Interval) -> bool { true }

    fn age(_cx; a: Stamp, b: Stamp) -> Interval { age_between(a.0, b.0)? }
    fn age_zoned(cx; a: Stamp, b: Stamp) -> Interval {
        age_between(local(cx, a.0), local(cx, b.0))?
    }
    fn age_today(cx; a: Stamp) -> Interval { age_between(today(cx), a.0)? }
    fn age_zoned_today(cx; a: Stamp) -> Interval { age_between(today(cx), local(cx, a.0))? }

    fn zone_of_timestamp(_cx; zone: &str, t: Stamp) -> Stamp {
        Stamp(tz::Zone::parse(zone)?.to_utc(t.0)?)
    }
    fn zone_of_timestamptz(_cx; zone: &str, t: Stamp) -> Stamp {
        Stamp(tz::Zone::parse(zone)?.to_local(t.0)?)
    }
    fn zone_of_timetz(cx; zone: &str, t: TimeTz) -> TimeTz {
        let offset = tz::Zone::parse(zone)?.offset_at(cx.transaction_timestamp());
        move_timetz(t, offset)
    }
    fn offset_of_timestamp(_cx; zone: Interval, t: Stamp) -> Stamp {
        Stamp(interval_zone(&zone)?.to_utc(t.0)?)
    }
    fn offset_of_timestamptz(_cx; zone: Interval, t: Stamp) -> Stamp {
        Stamp(interval_zone(&zone)?.to_local(t.0)?)
    }
    fn offset_of_timetz(cx; zone: Interval, t: TimeTz) -> TimeTz {
        move_timetz(t, interval_zone(&zone)?.offset_at(0))
    }
}

fn today(cx: &dyn FnContext) -> i64 {
    let now = tz::to_local(cx.time_zone(), cx.transaction_timestamp());
    now - in_day(now)
}

fn age_between(a: i64, b: i64) -> Result<Interval> {
    if dt::is_infinite(a) || dt::is_infinite(b) {
        return Err(dt::timestamp_range());
    }
    Ok(interval::age(a, b))
}

/// The same moment in another zone.
fn move_timetz(t: TimeTz, offset: i64) -> TimeTz {
    let utc = t.micros + i64::from(t.zone) * USECS_PER_SEC;
    TimeTz { micros: in_day(utc + offset * USECS_PER_SEC), zone: -(offset as i32) }
}

fn interval_zone(i: &Interval) -> Result<tz::Zone> {
    if i.months != 0 || i.days != 0 {
        let mut text = Vec::new();
        interval::write(i, crate::types::style::IntervalStyle::Postgres, &mut text);
        return Err(SqlError::new(
            State::INVALID_PARAMETER_VALUE,
            format!(
                "interval time zone \"{}\" must not include months or days",
                String::from_utf8_lossy(&text)
            ),
        ));
    }
    Ok(tz::Zone::Fixed(i.micros / USECS_PER_SEC))
}
