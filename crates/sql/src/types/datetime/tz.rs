//! Time zones: names, abbreviations, offsets; local time to UTC and back.
//!
//! Offsets are seconds *east* of Greenwich here (`timetz` stores seconds west, as PostgreSQL does).
//! jiff knows the rules of the years -9999 to 9999; later years use those of an equal year of the
//! 400-year cycle before. A local time that a change of clocks skips is read with the offset
//! before the change, one that occurs twice with the offset after it.

use super::{Fields, UNIX_EPOCH_USECS, USECS_PER_DAY, USECS_PER_SEC, abbrev, timestamp_range};
use crate::error::{Result, SqlError, State};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// 400 years.
const CYCLE: i64 = 146_097 * USECS_PER_DAY;
/// Timestamps from here on are moved back into jiff's years: 9000-01-01.
const LATE: i64 = 7000 * 365 * USECS_PER_DAY;

/// How many cycles to go back to land in years that jiff knows.
fn cycles_back(micros: i64) -> i64 {
    if micros < LATE { 0 } else { (micros - LATE) / CYCLE + 1 }
}

fn to_jiff(micros: i64) -> Timestamp {
    let micros = micros - cycles_back(micros) * CYCLE;
    Timestamp::from_microsecond(micros + UNIX_EPOCH_USECS).unwrap_or(Timestamp::MIN)
}

/// Seconds east of Greenwich at a moment in UTC.
pub fn offset_at(tz: &TimeZone, utc: i64) -> i64 {
    i64::from(tz.to_offset(to_jiff(utc)).seconds())
}

/// Offset, abbreviation and whether daylight saving is in force at a moment.
pub fn info_at(tz: &TimeZone, utc: i64) -> (i64, String, bool) {
    let info = tz.to_offset_info(to_jiff(utc));
    (i64::from(info.offset().seconds()), info.abbreviation().to_string(), info.dst().is_dst())
}

/// UTC to the zone's local time.
pub fn to_local(tz: &TimeZone, utc: i64) -> i64 {
    utc.saturating_add(offset_at(tz, utc) * USECS_PER_SEC)
}

/// The offset that applies to a local time.
pub fn offset_of_local(tz: &TimeZone, local: i64) -> i64 {
    let f = Fields::from_timestamp(local - cycles_back(local) * CYCLE);
    let civil = DateTime::new(
        f.year as i16,
        f.month as i8,
        f.day as i8,
        f.hour as i8,
        f.minute as i8,
        f.second as i8,
        (f.micros * 1000) as i32,
    );
    let Ok(civil) = civil else { return 0 };
    let offset = match tz.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } => before,
        AmbiguousOffset::Fold { after, .. } => after,
    };
    i64::from(offset.seconds())
}

/// Local time to UTC, checked against the range of timestamps.
pub fn to_utc(tz: &TimeZone, local: i64) -> Result<i64> {
    if super::is_infinite(local) {
        return Ok(local);
    }
    let utc = local.checked_sub(offset_of_local(tz, local) * USECS_PER_SEC);
    super::checked_timestamp(utc)
}

/// [`to_utc`] with a fixed offset east.
pub fn to_utc_fixed(offset: i64, local: i64) -> Result<i64> {
    local
        .checked_sub(offset * USECS_PER_SEC)
        .filter(|m| super::valid_timestamp(*m))
        .ok_or_else(timestamp_range)
}

/// A zone of a fixed offset east.
pub fn fixed(offset: i64) -> Option<TimeZone> {
    Offset::from_seconds(i32::try_from(offset).ok()?).ok().map(TimeZone::fixed)
}

pub fn not_recognized(name: &str) -> SqlError {
    SqlError::new(State::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
}

/// A named zone: an IANA name in any case, or a POSIX specification (`EST5EDT`, `UTC+3`, `<x>-2`),
/// whose offsets count west.
pub fn find(name: &str) -> Option<TimeZone> {
    if name.eq_ignore_ascii_case("gmt") || name.eq_ignore_ascii_case("utc") {
        return Some(TimeZone::UTC);
    }
    if name.is_empty() || name.contains('\0') {
        return None;
    }
    TimeZone::get(name).ok().or_else(|| posix(name))
}

/// POSIX with PostgreSQL's leniency: the abbreviation may be missing (`+3`), and a daylight name
/// without rules takes those of the United States.
fn posix(name: &str) -> Option<TimeZone> {
    let first = name.chars().next()?;
    let spec = if first == '+' || first == '-' || first.is_ascii_digit() {
        return hours_west(name);
    } else {
        let upper_ok = name.bytes().all(|b| {
            b.is_ascii_alphanumeric()
                || matches!(b, b'+' | b'-' | b':' | b'<' | b'>' | b',' | b'.' | b'/')
        });
        if !upper_ok || !name.bytes().any(|b| b.is_ascii_digit()) {
            return None;
        }
        name.to_string()
    };
    TimeZone::posix(&spec).or_else(|_| TimeZone::posix(&format!("{spec},M3.2.0,M11.1.0"))).ok()
}

/// `+3`, `-5:30`: a number of hours west.
fn hours_west(text: &str) -> Option<TimeZone> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut seconds = 0;
    for (part, unit) in body.split(':').zip([3600, 60, 1, 0]) {
        if unit == 0 || part.is_empty() || part.len() > 3 {
            return None;
        }
        seconds += part.parse::<i64>().ok()? * unit;
    }
    fixed(if text.starts_with('-') { seconds } else { -seconds })
}

/// What a zone given to `AT TIME ZONE` or inside a literal means.
#[derive(Clone, Debug)]
pub enum Zone {
    /// Seconds east.
    Fixed(i64),
    Named(TimeZone),
}

impl Zone {
    /// An abbreviation, else a named zone.
    pub fn parse(name: &str) -> Result<Zone> {
        Zone::lookup(name).ok_or_else(|| not_recognized(name))
    }

    pub fn lookup(name: &str) -> Option<Zone> {
        if let Some((offset, _)) = abbrev::find(&name.to_ascii_lowercase()) {
            return Some(Zone::Fixed(offset.into()));
        }
        find(name).map(Zone::Named)
    }

    /// Local time in this zone to UTC.
    pub fn to_utc(&self, local: i64) -> Result<i64> {
        match self {
            _ if super::is_infinite(local) => Ok(local),
            Zone::Fixed(offset) => to_utc_fixed(*offset, local),
            Zone::Named(tz) => to_utc(tz, local),
        }
    }

    /// UTC to local time in this zone.
    pub fn to_local(&self, utc: i64) -> Result<i64> {
        match self {
            _ if super::is_infinite(utc) => Ok(utc),
            Zone::Fixed(offset) => {
                super::checked_timestamp(utc.checked_add(offset * USECS_PER_SEC))
            }
            Zone::Named(tz) => {
                super::checked_timestamp(utc.checked_add(offset_at(tz, utc) * USECS_PER_SEC))
            }
        }
    }

    /// Seconds east at a moment in UTC.
    pub fn offset_at(&self, utc: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(tz) => offset_at(tz, utc),
        }
    }

    /// Seconds east for a local time.
    pub fn offset_of_local(&self, local: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(tz) => offset_of_local(tz, local),
        }
    }
}

/// The zone that `SET timezone` means: a name, a POSIX specification, or a number of hours east.
pub fn from_setting(value: &str) -> Result<TimeZone> {
    let invalid = || {
        SqlError::new(
            State::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"TimeZone\": \"{value}\""),
        )
    };
    if let Ok(hours) = value.trim().parse::<f64>() {
        return fixed((hours * 3600.0) as i64).ok_or_else(invalid);
    }
    find(value).ok_or_else(invalid)
}

/// Appends `+05:30`: minutes and seconds only where they are not zero.
pub fn write_offset(offset: i64, out: &mut Vec<u8>) {
    let size = offset.abs();
    out.push(if offset < 0 { b'-' } else { b'+' });
    push_two(size / 3600, out);
    if size % 3600 != 0 {
        out.push(b':');
        push_two(size / 60 % 60, out);
        if size % 60 != 0 {
            out.push(b':');
            push_two(size % 60, out);
        }
    }
}

/// At least two digits.
pub fn push_two(v: i64, out: &mut Vec<u8>) {
    if v < 10 {
        out.push(b'0');
    }
    crate::types::scalar::write_int(v, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::datetime::days_from_civil;

    #[test]
    fn clock_changes() {
        let berlin = find("europe/berlin").unwrap();
        let at = |y, m, d, h: i64| days_from_civil(y, m, d) * USECS_PER_DAY + h * 3_600_000_000;
        assert_eq!(offset_of_local(&berlin, at(2024, 1, 15, 12)), 3600);
        assert_eq!(offset_of_local(&berlin, at(2024, 7, 15, 12)), 7200);
        // Skipped hour: the offset before; repeated hour: the offset after.
        assert_eq!(offset_of_local(&berlin, at(2024, 3, 31, 2)), 3600);
        assert_eq!(offset_of_local(&berlin, at(2024, 10, 27, 2)), 3600);
        // Far beyond jiff's years the rules go on.
        assert_eq!(offset_of_local(&berlin, at(12024, 7, 15, 12)), 7200);
        assert_eq!(offset_at(&berlin, at(290_000, 1, 15, 12)), 3600);
        assert_eq!(offset_of_local(&berlin, at(-4000, 1, 1, 0)), 3208);
    }

    #[test]
    fn zone_spellings() {
        assert!(matches!(Zone::parse("PST").unwrap(), Zone::Fixed(-28_800)));
        let east = |name: &str| Zone::parse(name).unwrap().offset_at(0);
        assert_eq!(east("+3"), -10_800);
        assert_eq!(east("UTC-5"), 18_000);
        assert_eq!(east("EST5EDT"), -18_000);
        assert!(Zone::parse("Nowhere/Land").is_err());
        assert_eq!(offset_at(&from_setting("-3.5").unwrap(), 0), -12_600);
    }
}
