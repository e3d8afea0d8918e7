//! `to_timestamp` and `to_date` with a template: reading by the nodes that `to_char` writes by.
//!
//! Without `FX` blanks before fields are skipped and any separator stands for any other. A number
//! field takes as many digits as its template letters say, or all of them when what follows cannot
//! be a digit.

use super::format::{Key, Node, template};
use super::{
    DAYS, EPOCH_JULIAN, Fields, MONTHS, civil_from_days, days_from_civil, days_in_month,
    iso_year_start,
};
use crate::error::{Result, SqlError, State};

/// What was read: local fields and, if the template had one, the zone's offset east.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    pub fields: Fields,
    pub offset: Option<i64>,
}

#[derive(Default)]
struct Values {
    year: Option<i64>,
    /// Digits that the template gives the year.
    year_digits: u8,
    century: Option<i64>,
    bc: bool,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    week: Option<i64>,
    week_of_month: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    iso_day_of_year: Option<i64>,
    hour: i64,
    twelve: bool,
    pm: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
    second_of_day: Option<i64>,
    zone_hour: Option<i64>,
    zone_minute: i64,
    zone_negative: bool,
}

struct Reader<'a> {
    rest: &'a str,
    source: &'a str,
    fixed: bool,
    v: Values,
}

fn is_separator(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphanumeric() && !c.is_ascii_control()
}

fn invalid(value: &str, name: &str, detail: &str) -> SqlError {
    SqlError::new(
        State::INVALID_DATETIME_FORMAT,
        format!("invalid value \"{value}\" for \"{name}\""),
    )
    .detail(detail.to_string())
}

fn field_range(source: &str) -> SqlError {
    SqlError::new(
        State::DATETIME_FIELD_OVERFLOW,
        format!("date/time field value out of range: \"{source}\""),
    )
}

/// Reads `source` by the template `format`.
pub fn read(source: &str, format: &str) -> Result<Read> {
    let nodes = template(format);
    let fixed = nodes.iter().any(|n| matches!(n, Node::Field { key: Key::Fixed, .. }));
    let mut r = Reader { rest: source, source, fixed, v: Values::default() };
    for (i, node) in nodes.iter().enumerate() {
        match node {
            Node::Literal { c, quoted } => r.literal(*c, *quoted),
            Node::Field { key, name, ordinal, .. } => {
                if !r.fixed {
                    r.skip_blanks();
                    r.skip_stray_separators(i, &nodes, *key);
                }
                if r.rest.is_empty() && !matches!(key, Key::Fixed) {
                    break;
                }
                r.field(*key, name, may_run_on(&nodes[i + 1..]))?;
                if ordinal.is_some() {
                    r.rest = r.rest.get(2..).unwrap_or("");
                }
            }
        }
    }
    r.finish()
}

/// Whether a number may take all digits: what follows in the template is no number.
fn may_run_on(rest: &[Node]) -> bool {
    match rest.first() {
        None => true,
        Some(Node::Literal { c, .. }) => !c.is_ascii_digit(),
        Some(Node::Field { key, .. }) => matches!(
            key,
            Key::Meridiem(_)
                | Key::Era(_)
                | Key::Day
                | Key::DayAbbrev
                | Key::Month
                | Key::MonthAbbrev
                | Key::Roman
                | Key::Zone
                | Key::ZoneHour
                | Key::Offset
        ),
    }
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    }

    /// A field may come after separators that the template does not have, at the beginning.
    fn skip_stray_separators(&mut self, at: usize, nodes: &[Node], key: Key) {
        let first = at == 0 || matches!(nodes[at - 1], Node::Field { .. });
        let signed = matches!(key, Key::ZoneHour | Key::Year(_) | Key::Offset);
        if first && !signed {
            self.rest = self.rest.trim_start_matches(is_separator);
        }
    }

    fn literal(&mut self, c: char, quoted: bool) {
        let Some(found) = self.rest.chars().next() else { return };
        let wanted_separator = !quoted && (is_separator(c) || c.is_ascii_whitespace());
        if self.fixed || !wanted_separator {
            self.rest = &self.rest[found.len_utf8()..];
            return;
        }
        // A blank or separator in the template matches one or more of either, or nothing.
        self.skip_blanks();
        if let Some(found) = self.rest.chars().next()
            && is_separator(found)
            && !(matches!(found, '-' | '+') && c.is_ascii_whitespace())
        {
            self.rest = &self.rest[1..];
        }
    }

    /// A whole number of at most `width` digits, or of all there are.
    fn number(&mut self, width: usize, name: &str, run_on: bool) -> Result<i64> {
        let negative = self.rest.starts_with('-');
        let body = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
        let all = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
        let taken = if run_on && !self.fixed { all } else { all.min(width) };
        if taken == 0 {
            let shown: String = self.rest.chars().take(width).collect();
            return Err(invalid(&shown, name, "Value must be an integer."));
        }
        let value: i64 = body[..taken].parse::<i32>().map(i64::from).map_err(|_| {
            SqlError::new(
                State::DATETIME_FIELD_OVERFLOW,
                format!("value for \"{name}\" in source string is out of range"),
            )
            .detail("Value must be in the range -2147483648 to 2147483647.")
        })?;
        self.rest = &body[taken..];
        Ok(if negative { -value } else { value })
    }

    /// Digits as a fraction of a second, in microseconds.
    fn fraction(&mut self, width: usize, name: &str, run_on: bool) -> Result<i64> {
        let before = self.rest;
        let value = self.number(width, name, run_on)?;
        let digits = (before.len() - self.rest.len()) as u32;
        Ok(if digits <= 6 { value * 10i64.pow(6 - digits) } else { value / 10i64.pow(digits - 6) })
    }

    /// The place of the word at hand in a list of names, whole or by the first three letters.
    fn name(&mut self, names: &[&str], short: bool, field: &str) -> Result<i64> {
        let matches = |name: &str| {
            let name = if short { &name[..3] } else { name };
            self.rest.get(..name.len()).is_some_and(|t| t.eq_ignore_ascii_case(name))
        };
        match names.iter().position(|n| matches(n)) {
            Some(at) => {
                let len = if short { 3 } else { names[at].len() };
                self.rest = &self.rest[len..];
                Ok(at as i64)
            }
            None => {
                let word: String = self.rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                Err(invalid(
                    &word,
                    field,
                    "The given value did not match any of the allowed values for this field.",
                ))
            }
        }
    }

    fn field(&mut self, key: Key, name: &str, run_on: bool) -> Result<()> {
        match key {
            Key::Fixed | Key::Quarter => {
                if key == Key::Quarter {
                    self.number(1, name, run_on)?;
                }
            }
            Key::Meridiem(points) => {
                let names: &[&str] = if points { &["A.M.", "P.M."] } else { &["AM", "PM"] };
                let pm = self.name(names, false, name)? == 1;
                self.v.pm = Some(pm);
                self.v.twelve = true;
            }
            Key::Era(points) => {
                let names: &[&str] = if points { &["A.D.", "B.C."] } else { &["AD", "BC"] };
                self.v.bc = self.name(names, false, name)? == 1;
            }
            Key::Hour24 => self.v.hour = self.number(2, name, run_on)?,
            Key::Hour12 => {
                self.v.hour = self.number(2, name, run_on)?;
                self.v.twelve = true;
            }
            Key::Minute => self.v.minute = self.number(2, name, run_on)?,
            Key::Second => self.v.second = self.number(2, name, run_on)?,
            Key::Millis => self.v.micros += self.fraction(3, name, run_on)?,
            Key::Micros => self.v.micros += self.fraction(6, name, run_on)?,
            Key::Fraction(digits) => {
                self.v.micros += self.fraction(digits.into(), name, run_on)?;
            }
            Key::SecondOfDay => self.v.second_of_day = Some(self.number(5, name, run_on)?),
            Key::Zone | Key::Offset => {
                return Err(SqlError::unsupported(format!(
                    "formatting field \"{name}\" is only supported in to_char; its input"
                )));
            }
            Key::ZoneHour => {
                self.v.zone_negative = self.rest.starts_with('-');
                self.v.zone_hour = Some(self.number(2, name, false)?.abs());
            }
            Key::ZoneMinute => self.v.zone_minute = self.number(2, name, false)?,
            _ => self.date_field(key, name, run_on)?,
        }
        Ok(())
    }

    fn date_field(&mut self, key: Key, name: &str, run_on: bool) -> Result<()> {
        match key {
            Key::Month | Key::MonthAbbrev => {
                let short = key == Key::MonthAbbrev;
                self.v.month = Some(self.name(&MONTHS, short, name)? + 1);
            }
            Key::Day | Key::DayAbbrev => {
                let day = self.name(&DAYS, key == Key::DayAbbrev, name)?;
                self.v.iso_day = Some((day + 6) % 7 + 1);
            }
            Key::Roman => {
                const ROMAN: [&str; 12] =
                    ["XII", "XI", "X", "IX", "VIII", "VII", "VI", "V", "IV", "III", "II", "I"];
                self.v.month = Some(12 - self.name(&ROMAN, false, name)?);
            }
            Key::MonthNumber => self.v.month = Some(self.number(2, name, run_on)?),
            Key::DayOfMonth => self.v.day = Some(self.number(2, name, run_on)?),
            Key::DayOfYear => self.v.day_of_year = Some(self.number(3, name, run_on)?),
            Key::IsoDayOfYear => self.v.iso_day_of_year = Some(self.number(3, name, run_on)?),
            Key::DayOfWeek => {
                let day = self.number(1, name, run_on)?;
                self.v.iso_day = Some((day + 5) % 7 + 1);
            }
            Key::IsoDayOfWeek => self.v.iso_day = Some(self.number(1, name, run_on)?),
            Key::WeekOfYear => self.v.week = Some(self.number(2, name, run_on)?),
            Key::WeekOfMonth => self.v.week_of_month = Some(self.number(1, name, run_on)?),
            Key::IsoWeek => self.v.iso_week = Some(self.number(2, name, run_on)?),
            Key::Century => self.v.century = Some(self.number(2, name, run_on)?),
            Key::Julian => self.v.julian = Some(self.number(10, name, run_on)?),
            Key::YearComma => {
                let thousands = self.number(9, name, true)?;
                self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
                let rest = self.number(3, name, run_on)?;
                self.set_year(thousands * 1000 + rest, 4);
            }
            Key::Year(digits) => {
                let before = self.rest.len();
                let year = self.number(digits.into(), name, run_on)?;
                let taken = before - self.rest.len();
                self.set_year(near_2020(year, digits, taken), digits);
            }
            Key::IsoYear(digits) => {
                let before = self.rest.len();
                let year = self.number(digits.into(), name, run_on)?;
                let taken = before - self.rest.len();
                self.v.iso_year = Some(near_2020(year, digits, taken));
            }
            _ => {}
        }
        Ok(())
    }

    fn set_year(&mut self, year: i64, digits: u8) {
        self.v.year = Some(year);
        self.v.year_digits = digits;
    }

    fn finish(self) -> Result<Read> {
        let source = self.source;
        let v = &self.v;
        let mut f = Fields { year: 0, month: 1, day: 1, ..Fields::default() };
        f.year = v.full_year();
        v.place_date(&mut f);
        v.place_time(&mut f, source)?;
        let date_given = f.month >= 1 && f.month <= 12;
        if !date_given || f.day < 1 || f.day > days_in_month(f.year, f.month) {
            return Err(field_range(source));
        }
        if f.hour > 23 || f.minute > 59 || f.second > 59 || f.hour < 0 || f.minute < 0 {
            return Err(field_range(source));
        }
        let offset = v.zone_hour.map(|h| {
            let size = h * 3600 + v.zone_minute * 60;
            if v.zone_negative { -size } else { size }
        });
        Ok(Read { fields: f, offset })
    }
}

/// A year of fewer than four digits means the one nearest to 2020.
fn near_2020(year: i64, digits: u8, taken: usize) -> i64 {
    if digits >= 4 || taken >= 4 {
        return year;
    }
    match taken.max(digits.into()) {
        3 if year < 520 => year + 2000,
        3 => year + 1000,
        _ if year < 70 => year + 2000,
        _ if year < 100 => year + 1900,
        _ if year < 520 => year + 2000,
        _ if year < 1000 => year + 1000,
        _ => year,
    }
}

impl Values {
    fn full_year(&self) -> i64 {
        let year = match (self.year, self.century) {
            (Some(year), Some(century)) if self.year_digits <= 2 => {
                let short = year % 100;
                if short == 0 { century * 100 } else { (century - 1) * 100 + short }
            }
            (Some(year), _) => year,
            (None, Some(century)) => (century - 1) * 100 + 1,
            // Without any year PostgreSQL takes 1 BC.
            (None, None) => return self.iso_year.unwrap_or(0),
        };
        match (self.bc, year) {
            (true, y) if y > 0 => 1 - y,
            (false, y) if y < 0 => y + 1,
            (_, y) => y,
        }
    }

    fn place_date(&self, f: &mut Fields) {
        let year = f.year;
        let mut set = |days: i64| (f.year, f.month, f.day) = civil_from_days(days);
        if let Some(julian) = self.julian {
            return set(julian - EPOCH_JULIAN);
        }
        if let Some(week) = self.iso_week {
            let day = self.iso_day.unwrap_or(1);
            let year = self.iso_year.or(self.year).unwrap_or(0);
            return set(iso_year_start(year) + (week - 1) * 7 + day - 1);
        }
        if let Some(day) = self.iso_day_of_year {
            let year = self.iso_year.or(self.year).unwrap_or(0);
            return set(iso_year_start(year) + day - 1);
        }
        let year_day = self.day_of_year.or(self.week.map(|w| (w - 1) * 7 + 1));
        if let (Some(day), None) = (year_day, self.month) {
            let start = days_from_civil(year, 1, 1);
            return set(start + day - 1);
        }
        f.month = self.month.unwrap_or(1);
        let by_week = self.week_of_month.map(|w| (w - 1) * 7 + 1);
        f.day = self.day.or(by_week).unwrap_or(1);
    }

    fn place_time(&self, f: &mut Fields, source: &str) -> Result<()> {
        (f.hour, f.minute, f.second, f.micros) = (self.hour, self.minute, self.second, self.micros);
        if let Some(seconds) = self.second_of_day {
            if !(0..86_400).contains(&seconds) {
                return Err(field_range(source));
            }
            (f.hour, f.minute, f.second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        }
        if self.twelve {
            if !(1..=12).contains(&f.hour) {
                return Err(SqlError::new(
                    State::INVALID_DATETIME_FORMAT,
                    format!("hour \"{}\" is invalid for the 12-hour clock", f.hour),
                )
                .hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            match self.pm {
                Some(true) if f.hour < 12 => f.hour += 12,
                Some(false) | None if f.hour == 12 => f.hour = 0,
                _ => {}
            }
        }
        Ok(())
    }
}
