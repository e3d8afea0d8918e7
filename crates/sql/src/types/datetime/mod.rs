//! Dates, times, timestamps: the calendar, and how they are read and written.
//!
//! A date counts days, a timestamp microseconds, both from 2000-01-01 in the proleptic Gregorian
//! calendar; `timestamptz` counts in UTC. The smallest and largest integer stand for -infinity
//! and infinity. Dates reach from 4713 BC to 5874897 AD, timestamps to 294276 AD, beyond what
//! `jiff` knows, hence the calendar arithmetic here is ours; only the zones' rules are jiff's
//! ([`tz`]).
//!
//! | module      | what                                                       |
//! |-------------|------------------------------------------------------------|
//! | [`parse`]   | reading dates, times and timestamps                         |
//! | [`output`]  | writing them in every DateStyle                             |
//! | [`interval`]| intervals: reading, writing, arithmetic                     |
//! | [`tz`]      | zone names, abbreviations, offsets, local time to UTC       |
//! | [`format`]  | to_char, to_date, to_timestamp                              |

use crate::error::{Result, SqlError, State};

pub mod abbrev;
pub mod format;
pub mod format_parse;
pub mod interval;
pub mod interval_parse;
pub mod lex;
pub mod output;
pub mod parse;
pub mod tz;

pub const USECS_PER_SEC: i64 = 1_000_000;
pub const USECS_PER_MINUTE: i64 = 60 * USECS_PER_SEC;
pub const USECS_PER_HOUR: i64 = 60 * USECS_PER_MINUTE;
pub const USECS_PER_DAY: i64 = 24 * USECS_PER_HOUR;

/// Julian day of 2000-01-01.
pub const EPOCH_JULIAN: i64 = 2_451_545;
/// Days from 1970-01-01 to 2000-01-01.
pub const UNIX_EPOCH_DAYS: i64 = 10_957;
pub const UNIX_EPOCH_USECS: i64 = UNIX_EPOCH_DAYS * USECS_PER_DAY;

/// First date: Julian day 0, 4714-11-24 BC.
pub const MIN_DATE: i64 = -EPOCH_JULIAN;
/// First day after the last date: 5874898-01-01.
pub const END_DATE: i64 = 2_147_483_494 - EPOCH_JULIAN;
/// First timestamp, 4714-11-24 BC.
pub const MIN_TIMESTAMP: i64 = -211_813_488_000_000_000;
/// First moment after the last timestamp: 294277-01-01.
pub const END_TIMESTAMP: i64 = 9_223_371_331_200_000_000;

pub const DATE_INFINITY: i32 = i32::MAX;
pub const DATE_NEG_INFINITY: i32 = i32::MIN;
pub const INFINITY: i64 = i64::MAX;
pub const NEG_INFINITY: i64 = i64::MIN;

pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A timestamp taken apart. Years are astronomical: 0 is 1 BC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub micros: i64,
}

/// Days since 2000-01-01 of a calendar day; month and day may be out of their ranges.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    // Years start in March, so that the leap day is the last.
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let of_era = y.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    // 0000-03-01 is 730,425 days before 2000-01-01.
    era * 146_097 + days - 730_425
}

/// Year, month, day of a day since 2000-01-01.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 730_425;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let mp = (5 * of_year + 2) / 153;
    let day = of_year - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// 0 is Sunday.
pub fn day_of_week(days: i64) -> i64 {
    (days + 6).rem_euclid(7)
}

/// 1 is the first of January.
pub fn day_of_year(year: i64, month: i64, day: i64) -> i64 {
    days_from_civil(year, month, day) - days_from_civil(year, 1, 1) + 1
}

/// First Monday of the ISO year, as days since 2000-01-01.
pub fn iso_year_start(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (day_of_week(fourth) + 6) % 7
}

/// ISO year and week of a day.
pub fn iso_week(days: i64) -> (i64, i64) {
    let (year, ..) = civil_from_days(days);
    let year = if days >= iso_year_start(year + 1) {
        year + 1
    } else if days < iso_year_start(year) {
        year - 1
    } else {
        year
    };
    (year, (days - iso_year_start(year)) / 7 + 1)
}

impl Fields {
    /// Takes a finite timestamp (or local time) apart.
    pub fn from_timestamp(micros: i64) -> Fields {
        let days = micros.div_euclid(USECS_PER_DAY);
        let mut f = Fields::from_time(micros.rem_euclid(USECS_PER_DAY));
        (f.year, f.month, f.day) = civil_from_days(days);
        f
    }

    /// A time of day on no date.
    pub fn from_time(micros: i64) -> Fields {
        Fields {
            hour: micros / USECS_PER_HOUR,
            minute: micros / USECS_PER_MINUTE % 60,
            second: micros / USECS_PER_SEC % 60,
            micros: micros % USECS_PER_SEC,
            ..Fields::default()
        }
    }

    pub fn from_date(days: i64) -> Fields {
        let (year, month, day) = civil_from_days(days);
        Fields { year, month, day, ..Fields::default() }
    }

    pub fn time(&self) -> i64 {
        ((self.hour * 60 + self.minute) * 60 + self.second) * USECS_PER_SEC + self.micros
    }

    pub fn days(&self) -> i64 {
        days_from_civil(self.year, self.month, self.day)
    }

    /// Microseconds since 2000-01-01, in range or not.
    pub fn micros_since_epoch(&self) -> Option<i64> {
        self.days().checked_mul(USECS_PER_DAY)?.checked_add(self.time())
    }

    /// The timestamp, if there is one.
    pub fn timestamp(&self) -> Option<i64> {
        self.micros_since_epoch().filter(|t| valid_timestamp(*t))
    }
}

pub fn valid_timestamp(micros: i64) -> bool {
    (MIN_TIMESTAMP..END_TIMESTAMP).contains(&micros)
}

pub fn valid_date(days: i64) -> bool {
    (MIN_DATE..END_DATE).contains(&days)
}

pub fn is_infinite(micros: i64) -> bool {
    micros == INFINITY || micros == NEG_INFINITY
}

pub fn is_infinite_date(days: i32) -> bool {
    days == DATE_INFINITY || days == DATE_NEG_INFINITY
}

#[cold]
pub fn timestamp_range() -> SqlError {
    SqlError::new(State::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

#[cold]
pub fn date_range() -> SqlError {
    SqlError::new(State::DATETIME_FIELD_OVERFLOW, "date out of range")
}

#[cold]
pub fn interval_range() -> SqlError {
    SqlError::new(State::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

/// A timestamp that arithmetic came to, if it is in range.
pub fn checked_timestamp(micros: Option<i64>) -> Result<i64> {
    micros.filter(|m| valid_timestamp(*m)).ok_or_else(timestamp_range)
}

/// Midnight of a date as a timestamp.
pub fn date_to_timestamp(days: i32) -> Result<i64> {
    match days {
        DATE_INFINITY => Ok(INFINITY),
        DATE_NEG_INFINITY => Ok(NEG_INFINITY),
        _ => i64::from(days).checked_mul(USECS_PER_DAY).filter(|m| valid_timestamp(*m)).ok_or_else(
            || SqlError::new(State::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp"),
        ),
    }
}

/// Rounds microseconds to `precision` fractional digits, halves away from zero.
pub fn round_micros(micros: i64, precision: i32) -> i64 {
    if !(0..6).contains(&precision) || is_infinite(micros) {
        return micros;
    }
    let unit = 10i64.pow((6 - precision) as u32);
    let half = unit / 2;
    let shifted =
        if micros >= 0 { micros.saturating_add(half) } else { micros.saturating_sub(half) };
    shifted / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_days() {
        assert_eq!(days_from_civil(2000, 1, 1), 0);
        assert_eq!(days_from_civil(1970, 1, 1), -UNIX_EPOCH_DAYS);
        assert_eq!(days_from_civil(-4713, 11, 24), MIN_DATE);
        assert_eq!(days_from_civil(5_874_898, 1, 1), END_DATE);
        assert_eq!(days_from_civil(294_277, 1, 1) * USECS_PER_DAY, END_TIMESTAMP);
        assert_eq!(days_from_civil(-4713, 11, 24) * USECS_PER_DAY, MIN_TIMESTAMP);
        assert_eq!(day_of_week(0), 6);
        assert_eq!(iso_week(days_from_civil(2021, 1, 3)), (2020, 53));
        assert_eq!(iso_week(days_from_civil(2024, 12, 30)), (2025, 1));
    }

    proptest! {
        #[test]
        fn the_calendar_is_its_own_inverse(days in MIN_DATE..END_DATE) {
            let (y, m, d) = civil_from_days(days);
            prop_assert_eq!(days_from_civil(y, m, d), days);
            prop_assert!((1..=12).contains(&m) && (1..=days_in_month(y, m)).contains(&d));
            let next = civil_from_days(days + 1);
            prop_assert!(next > (y, m, d));
        }

        #[test]
        fn timestamps_come_apart_and_together(t in MIN_TIMESTAMP..END_TIMESTAMP) {
            prop_assert_eq!(Fields::from_timestamp(t).timestamp(), Some(t));
        }
    }
}
