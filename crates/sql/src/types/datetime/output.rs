//! Writing dates, times and timestamps in every DateStyle.
//!
//! | style    | timestamp with time zone           |
//! |----------|------------------------------------|
//! | ISO      | `1997-12-17 07:37:16.5-08`         |
//! | SQL      | `12/17/1997 07:37:16.5 PST`        |
//! | Postgres | `Wed Dec 17 07:37:16.5 1997 PST`   |
//! | German   | `17.12.1997 07:37:16.5 PST`        |

use super::tz::{self, push_two};
use super::{DAYS, Fields, MONTHS, day_of_week, is_infinite, is_infinite_date};
use crate::types::scalar::write_int;
use crate::types::style::{DateOrder, DateStyle};
use crate::types::{OutputStyle, TimeTz};
use jiff::tz::TimeZone;

fn write_infinity(positive: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if positive { b"infinity" } else { b"-infinity" });
}

/// At least four digits.
fn push_year(year: i64, out: &mut Vec<u8>) {
    // Year 0 is 1 BC.
    let shown = if year > 0 { year } else { 1 - year };
    for limit in [1000, 100, 10] {
        if shown < limit {
            out.push(b'0');
        }
    }
    write_int(shown, out);
}

fn push_era(year: i64, out: &mut Vec<u8>) {
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// Fractional digits without trailing zeros, the point included; nothing for zero.
pub fn push_fraction(micros: i64, out: &mut Vec<u8>) {
    if micros == 0 {
        return;
    }
    let mut digits = [0u8; 6];
    let mut rest = micros;
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let kept = 6 - digits.iter().rev().take_while(|d| **d == b'0').count();
    out.push(b'.');
    out.extend_from_slice(&digits[..kept]);
}

fn push_clock(f: &Fields, out: &mut Vec<u8>) {
    push_two(f.hour, out);
    out.push(b':');
    push_two(f.minute, out);
    out.push(b':');
    push_two(f.second, out);
    push_fraction(f.micros, out);
}

fn push_ymd(f: &Fields, style: &OutputStyle, out: &mut Vec<u8>) {
    let day_first = style.date_order == DateOrder::Dmy;
    match style.date {
        DateStyle::Iso => {
            push_year(f.year, out);
            out.push(b'-');
            push_two(f.month, out);
            out.push(b'-');
            push_two(f.day, out);
        }
        DateStyle::German => {
            push_two(f.day, out);
            out.push(b'.');
            push_two(f.month, out);
            out.push(b'.');
            push_year(f.year, out);
        }
        DateStyle::Sql | DateStyle::Postgres => {
            let separator = if style.date == DateStyle::Sql { b'/' } else { b'-' };
            let (a, b) = if day_first { (f.day, f.month) } else { (f.month, f.day) };
            push_two(a, out);
            out.push(separator);
            push_two(b, out);
            out.push(separator);
            push_year(f.year, out);
        }
    }
}

pub fn write_date(days: i32, style: &OutputStyle, out: &mut Vec<u8>) {
    if is_infinite_date(days) {
        return write_infinity(days > 0, out);
    }
    let f = Fields::from_date(days.into());
    push_ymd(&f, style, out);
    push_era(f.year, out);
}

pub fn write_time(micros: i64, out: &mut Vec<u8>) {
    push_clock(&Fields::from_time(micros), out);
}

pub fn write_timetz(t: &TimeTz, out: &mut Vec<u8>) {
    push_clock(&Fields::from_time(t.micros), out);
    tz::write_offset(-i64::from(t.zone), out);
}

/// Date and time of day, without a zone and without the era.
fn push_moment(f: &Fields, style: &OutputStyle, out: &mut Vec<u8>) {
    if style.date != DateStyle::Postgres {
        push_ymd(f, style, out);
        out.push(b' ');
        push_clock(f, out);
        return;
    }
    let weekday = day_of_week(f.days()) as usize;
    out.extend_from_slice(&DAYS[weekday].as_bytes()[..3]);
    out.push(b' ');
    let month = &MONTHS[(f.month - 1) as usize].as_bytes()[..3];
    if style.date_order == DateOrder::Dmy {
        push_two(f.day, out);
        out.push(b' ');
        out.extend_from_slice(month);
    } else {
        out.extend_from_slice(month);
        out.push(b' ');
        push_two(f.day, out);
    }
    out.push(b' ');
    push_clock(f, out);
    out.push(b' ');
    push_year(f.year, out);
}

pub fn write_timestamp(micros: i64, style: &OutputStyle, out: &mut Vec<u8>) {
    if is_infinite(micros) {
        return write_infinity(micros > 0, out);
    }
    let f = Fields::from_timestamp(micros);
    push_moment(&f, style, out);
    push_era(f.year, out);
}

pub fn write_timestamptz(utc: i64, style: &OutputStyle, zone: &TimeZone, out: &mut Vec<u8>) {
    if is_infinite(utc) {
        return write_infinity(utc > 0, out);
    }
    if style.date == DateStyle::Iso {
        let offset = tz::offset_at(zone, utc);
        let f = Fields::from_timestamp(utc.saturating_add(offset * super::USECS_PER_SEC));
        push_moment(&f, style, out);
        tz::write_offset(offset, out);
        return push_era(f.year, out);
    }
    let (offset, name, _) = tz::info_at(zone, utc);
    let f = Fields::from_timestamp(utc.saturating_add(offset * super::USECS_PER_SEC));
    push_moment(&f, style, out);
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    push_era(f.year, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::datetime::{USECS_PER_DAY, days_from_civil};

    #[test]
    fn all_styles() {
        let la = tz::find("America/Los_Angeles").unwrap();
        let utc = days_from_civil(1997, 12, 17) * USECS_PER_DAY
            + ((15 * 60 + 37) * 60 + 16) * 1_000_000
            + 500_000;
        let mut style = OutputStyle::default();
        let mut seen = Vec::new();
        for (date, order) in [
            (DateStyle::Iso, DateOrder::Mdy),
            (DateStyle::Sql, DateOrder::Mdy),
            (DateStyle::Sql, DateOrder::Dmy),
            (DateStyle::Postgres, DateOrder::Mdy),
            (DateStyle::Postgres, DateOrder::Dmy),
            (DateStyle::German, DateOrder::Dmy),
        ] {
            (style.date, style.date_order) = (date, order);
            let mut out = Vec::new();
            write_timestamptz(utc, &style, &la, &mut out);
            seen.push(String::from_utf8(out).unwrap());
        }
        assert_eq!(
            seen,
            [
                "1997-12-17 07:37:16.5-08",
                "12/17/1997 07:37:16.5 PST",
                "17/12/1997 07:37:16.5 PST",
                "Wed Dec 17 07:37:16.5 1997 PST",
                "Wed 17 Dec 07:37:16.5 1997 PST",
                "17.12.1997 07:37:16.5 PST",
            ]
        );
    }
}
