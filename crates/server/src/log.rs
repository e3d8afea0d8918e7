//! The server's log: lines on standard error, shaped as PostgreSQL writes them.
//!
//! ```text
//! 2026-01-31 12:00:00.123 UTC [4711] LOG:  database system is ready to accept connections
//! ```

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// How bad a line is, by PostgreSQL's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Log,
    /// More about the line before.
    Detail,
    /// What to do about the line before.
    Hint,
    Warning,
    Error,
    Fatal,
    Panic,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Level::Log => "LOG",
            Level::Detail => "DETAIL",
            Level::Hint => "HINT",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
            Level::Fatal => "FATAL",
            Level::Panic => "PANIC",
        }
    }
}

/// Writes one line. What cannot be written is lost: there is nobody to tell.
pub fn write(level: Level, message: &str) {
    let line = format!(
        "{} [{}] {}:  {message}\n",
        timestamp(SystemTime::now()),
        std::process::id(),
        level.as_str()
    );
    let _lost = std::io::stderr().lock().write_all(line.as_bytes());
}

/// `2026-01-31 12:00:00.123 UTC`.
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:03} UTC",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

/// Days since 1970-01-01 to year, month, day, by counting from a March that starts a 400-year
/// cycle, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timestamps_are_calendar_dates() {
        let at = |s: u64| timestamp(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00.000 UTC");
        assert_eq!(at(1_796_083_199), "2026-11-30 23:59:59.000 UTC");
    }
}
