//! Intervals: arithmetic, modifiers, and writing them in every IntervalStyle.

use super::interval_parse::DAY_SECONDS;
use super::output::push_fraction;
use super::{
    Fields, USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MINUTE, USECS_PER_SEC, interval_range,
};
use super::{round_micros, tz::push_two};
use crate::error::Result;
use crate::functions::int::division_by_zero;
use crate::types::Interval;
use crate::types::scalar::write_int;
use crate::types::style::IntervalStyle;

impl Interval {
    pub const ZERO: Interval = Interval { months: 0, days: 0, micros: 0 };

    pub const fn new(months: i32, days: i32, micros: i64) -> Interval {
        Interval { months, days, micros }
    }

    pub fn checked_neg(self) -> Result<Interval> {
        Ok(Interval {
            months: self.months.checked_neg().ok_or_else(interval_range)?,
            days: self.days.checked_neg().ok_or_else(interval_range)?,
            micros: self.micros.checked_neg().ok_or_else(interval_range)?,
        })
    }

    pub fn checked_add(self, other: Interval) -> Result<Interval> {
        Ok(Interval {
            months: self.months.checked_add(other.months).ok_or_else(interval_range)?,
            days: self.days.checked_add(other.days).ok_or_else(interval_range)?,
            micros: self.micros.checked_add(other.micros).ok_or_else(interval_range)?,
        })
    }

    pub fn checked_sub(self, other: Interval) -> Result<Interval> {
        Ok(Interval {
            months: self.months.checked_sub(other.months).ok_or_else(interval_range)?,
            days: self.days.checked_sub(other.days).ok_or_else(interval_range)?,
            micros: self.micros.checked_sub(other.micros).ok_or_else(interval_range)?,
        })
    }

    /// Fractions of months become days, of days seconds.
    pub fn scale(self, by: impl Fn(f64) -> f64) -> Result<Interval> {
        let (months, days) = (by(self.months.into()), by(self.days.into()));
        let whole_months = to_i32(months)?;
        let whole_days = to_i32(days)?;
        let month_days = to_micro((months - f64::from(whole_months)) * 30.0);
        let mut seconds = to_micro(
            (days - f64::from(whole_days) + month_days - month_days.trunc()) * DAY_SECONDS,
        );
        let mut extra_days = 0;
        if seconds.abs() >= DAY_SECONDS {
            extra_days = (seconds / DAY_SECONDS) as i32;
            seconds -= f64::from(extra_days) * DAY_SECONDS;
        }
        let days = whole_days
            .checked_add(extra_days)
            .and_then(|d| d.checked_add(month_days as i32))
            .ok_or_else(interval_range)?;
        let micros = (by(self.micros as f64) + seconds * 1e6).round_ties_even();
        if micros.is_nan() || micros.abs() >= 9.223_372_036_854_775e18 {
            return Err(interval_range());
        }
        Ok(Interval { months: whole_months, days, micros: micros as i64 })
    }

    pub fn multiply(self, factor: f64) -> Result<Interval> {
        self.scale(|v| v * factor)
    }

    pub fn divide(self, factor: f64) -> Result<Interval> {
        if factor == 0.0 {
            return Err(division_by_zero());
        }
        self.scale(|v| v / factor)
    }

    /// Whole days out of the time.
    pub fn justify_hours(self) -> Result<Interval> {
        let mut days = i64::from(self.days) + self.micros / USECS_PER_DAY;
        let mut micros = self.micros % USECS_PER_DAY;
        if days > 0 && micros < 0 {
            micros += USECS_PER_DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= USECS_PER_DAY;
            days += 1;
        }
        let days = i32::try_from(days).map_err(|_| interval_range())?;
        Ok(Interval { micros, days, ..self })
    }

    /// Whole 30-day months out of the days.
    pub fn justify_days(self) -> Result<Interval> {
        let mut months = i64::from(self.months) + i64::from(self.days / 30);
        let mut days = self.days % 30;
        if months > 0 && days < 0 {
            days += 30;
            months -= 1;
        } else if months < 0 && days > 0 {
            days -= 30;
            months += 1;
        }
        let months = i32::try_from(months).map_err(|_| interval_range())?;
        Ok(Interval { months, days, ..self })
    }

    /// Both, with one sign throughout.
    pub fn justify(self) -> Result<Interval> {
        let mut days = i64::from(self.days) + self.micros / USECS_PER_DAY;
        let mut micros = self.micros % USECS_PER_DAY;
        let mut months = i64::from(self.months) + days / 30;
        days %= 30;
        if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
            days += 30;
            months -= 1;
        } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
            days -= 30;
            months += 1;
        }
        if days > 0 && micros < 0 {
            micros += USECS_PER_DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= USECS_PER_DAY;
            days += 1;
        }
        let months = i32::try_from(months).map_err(|_| interval_range())?;
        Ok(Interval { months, days: days as i32, micros })
    }

    /// Cuts to the fields of a modifier and rounds to its precision.
    pub fn apply_typmod(mut self, typmod: i32) -> Interval {
        if typmod < 0 {
            return self;
        }
        match (typmod >> 16) & 0x7fff {
            0x0004 => self = Interval::new(self.months / 12 * 12, 0, 0),
            0x0002 | 0x0006 => self = Interval::new(self.months, 0, 0),
            0x0008 => self.micros = 0,
            0x0400 | 0x0408 => self.micros -= self.micros % USECS_PER_HOUR,
            0x0800 | 0x0c00 | 0x0c08 => self.micros -= self.micros % USECS_PER_MINUTE,
            _ => {}
        }
        let precision = typmod & 0xffff;
        if precision < 6 {
            self.micros = round_micros(self.micros, precision);
        }
        self
    }

    /// Seconds with 30-day months and 365.25-day years: what extract(epoch) tells.
    pub fn epoch_seconds(self) -> f64 {
        let years = self.months / 12;
        let months = self.months % 12;
        self.micros as f64 / 1e6
            + 365.25 * DAY_SECONDS * f64::from(years)
            + 30.0 * DAY_SECONDS * f64::from(months)
            + DAY_SECONDS * f64::from(self.days)
    }
}

fn to_i32(v: f64) -> Result<i32> {
    if !(-2_147_483_648.0..2_147_483_648.0).contains(&v) {
        return Err(interval_range());
    }
    Ok(v as i32)
}

/// Rounded to the microsecond, so that binary noise does not make fractions.
fn to_micro(v: f64) -> f64 {
    (v * 1e6).round_ties_even() / 1e6
}

/// The parts that are shown.
struct Parts {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl Parts {
    fn of(i: &Interval) -> Parts {
        let t = i.micros;
        Parts {
            years: i64::from(i.months / 12),
            months: i64::from(i.months % 12),
            days: i.days.into(),
            hours: t / USECS_PER_HOUR,
            minutes: t % USECS_PER_HOUR / USECS_PER_MINUTE,
            seconds: t % USECS_PER_MINUTE / USECS_PER_SEC,
            micros: t % USECS_PER_SEC,
        }
    }

    /// Seconds with their fraction, without a sign.
    fn push_seconds(&self, two_digits: bool, out: &mut Vec<u8>) {
        if two_digits {
            push_two(self.seconds.abs(), out);
        } else {
            write_int(self.seconds.abs(), out);
        }
        push_fraction(self.micros.abs(), out);
    }

    /// `[-]hh:mm:ss.f` without the sign.
    fn push_clock(&self, pad_hours: bool, out: &mut Vec<u8>) {
        if pad_hours {
            push_two(self.hours.abs(), out);
        } else {
            write_int(self.hours.unsigned_abs(), out);
        }
        out.push(b':');
        push_two(self.minutes.abs(), out);
        out.push(b':');
        self.push_seconds(true, out);
    }
}

/// Appends an interval in a style.
pub fn write(i: &Interval, style: IntervalStyle, out: &mut Vec<u8>) {
    match style {
        IntervalStyle::Postgres => write_postgres(i, out),
        IntervalStyle::PostgresVerbose => write_verbose(i, out),
        IntervalStyle::SqlStandard => write_sql(i, out),
        IntervalStyle::Iso8601 => write_iso(i, out),
    }
}

/// `1 year 2 mons 3 days 04:05:06`.
fn write_postgres(i: &Interval, out: &mut Vec<u8>) {
    let p = Parts::of(i);
    let start = out.len();
    let mut before_negative = false;
    for (value, unit) in [(p.years, "year"), (p.months, "mon"), (p.days, "day")] {
        if value == 0 {
            continue;
        }
        if out.len() > start {
            out.push(b' ');
        }
        if before_negative && value > 0 {
            out.push(b'+');
        }
        write_int(value, out);
        out.push(b' ');
        out.extend_from_slice(unit.as_bytes());
        if value != 1 {
            out.push(b's');
        }
        before_negative = value < 0;
    }
    if i.micros == 0 && out.len() > start {
        return;
    }
    if out.len() > start {
        out.push(b' ');
    }
    if i.micros < 0 {
        out.push(b'-');
    } else if before_negative {
        out.push(b'+');
    }
    p.push_clock(true, out);
}

/// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs ago`: the first part decides the sign.
fn write_verbose(i: &Interval, out: &mut Vec<u8>) {
    let p = Parts::of(i);
    out.push(b'@');
    let start = out.len();
    let mut ago: Option<bool> = None;
    let parts = [
        (p.years, "year"),
        (p.months, "mon"),
        (p.days, "day"),
        (p.hours, "hour"),
        (p.minutes, "min"),
    ];
    for (value, unit) in parts {
        if value == 0 {
            continue;
        }
        let flip = *ago.get_or_insert(value < 0);
        let shown = if flip { -value } else { value };
        out.push(b' ');
        write_int(shown, out);
        out.push(b' ');
        out.extend_from_slice(unit.as_bytes());
        if shown != 1 {
            out.push(b's');
        }
    }
    if p.seconds != 0 || p.micros != 0 {
        let negative = p.seconds < 0 || p.micros < 0;
        let flip = *ago.get_or_insert(negative);
        out.push(b' ');
        if negative != flip {
            out.push(b'-');
        }
        p.push_seconds(false, out);
        out.extend_from_slice(b" sec");
        if p.seconds.abs() != 1 || p.micros != 0 {
            out.push(b's');
        }
    }
    if out.len() == start {
        out.extend_from_slice(b" 0");
    }
    if ago == Some(true) {
        out.extend_from_slice(b" ago");
    }
}

/// `1-2 3 4:05:06`, with signs on every part when they are mixed.
fn write_sql(i: &Interval, out: &mut Vec<u8>) {
    let p = Parts::of(i);
    let negative = i.months < 0 || i.days < 0 || i.micros < 0;
    let positive = i.months > 0 || i.days > 0 || i.micros > 0;
    let (has_ym, has_day, has_time) = (i.months != 0, i.days != 0, i.micros != 0);
    if !negative && !positive {
        return out.push(b'0');
    }
    let simple = !(negative && positive) && !(has_ym && (has_day || has_time));
    if simple {
        if negative {
            out.push(b'-');
        }
        if has_ym {
            write_int(p.years.abs(), out);
            out.push(b'-');
            write_int(p.months.abs(), out);
        } else {
            if has_day {
                write_int(p.days.abs(), out);
                out.push(b' ');
            }
            p.push_clock(false, out);
        }
        return;
    }
    let sign = |negative: bool| if negative { b'-' } else { b'+' };
    out.push(sign(i.months < 0));
    write_int(p.years.abs(), out);
    out.push(b'-');
    write_int(p.months.abs(), out);
    out.push(b' ');
    out.push(sign(i.days < 0));
    write_int(p.days.abs(), out);
    out.push(b' ');
    out.push(sign(i.micros < 0));
    p.push_clock(false, out);
}

/// `P1Y2M3DT4H5M6S`.
fn write_iso(i: &Interval, out: &mut Vec<u8>) {
    if *i == Interval::ZERO {
        return out.extend_from_slice(b"PT0S");
    }
    let p = Parts::of(i);
    let part = |value: i64, unit: u8, out: &mut Vec<u8>| {
        if value != 0 {
            write_int(value, out);
            out.push(unit);
        }
    };
    out.push(b'P');
    part(p.years, b'Y', out);
    part(p.months, b'M', out);
    part(p.days, b'D', out);
    if i.micros != 0 {
        out.push(b'T');
        part(p.hours, b'H', out);
        part(p.minutes, b'M', out);
        if p.seconds != 0 || p.micros != 0 {
            if p.seconds < 0 || p.micros < 0 {
                out.push(b'-');
            }
            p.push_seconds(false, out);
            out.push(b'S');
        }
    }
}

/// Adds an interval to a local timestamp: months first (the day kept within the month), then
/// days, then time.
pub fn add_to_timestamp(micros: i64, i: &Interval) -> Option<i64> {
    let mut t = micros;
    if i.months != 0 {
        let mut f = Fields::from_timestamp(t);
        let months = f.year * 12 + f.month - 1 + i64::from(i.months);
        (f.year, f.month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        f.day = f.day.min(super::days_in_month(f.year, f.month));
        t = f.timestamp()?;
    }
    if i.days != 0 {
        t = t.checked_add(i64::from(i.days) * USECS_PER_DAY)?;
        if !super::valid_timestamp(t) {
            return None;
        }
    }
    t.checked_add(i.micros).filter(|t| super::valid_timestamp(*t))
}

/// The difference in years, months, days and time between two local timestamps.
pub fn age(later: i64, earlier: i64) -> Interval {
    let negative = later < earlier;
    let (high, low) = if negative { (earlier, later) } else { (later, earlier) };
    let (a, b) = (Fields::from_timestamp(high), Fields::from_timestamp(low));
    let mut micros = a.time() - b.time();
    let mut days = a.day - b.day;
    let mut months = (a.year - b.year) * 12 + a.month - b.month;
    if micros < 0 {
        micros += USECS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // A month borrowed has the length of the earlier one's month.
        days += super::days_in_month(b.year, b.month);
        months -= 1;
    }
    let i = Interval::new(months as i32, days as i32, micros);
    if negative { i.checked_neg().unwrap_or(i) } else { i }
}
