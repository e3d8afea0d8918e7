//! `to_char` of timestamps and intervals: templates such as `YYYY-MM-DD HH24:MI:SS`.
//!
//! A template is cut into [`Node`]s once per call: fields with their modifiers (`FM` no padding,
//! `TH` ordinal ending, `TM` accepted: names are English), and literal characters. The same nodes
//! drive reading in [`super::format_parse`].

use super::tz::push_two;
use super::{
    DAYS, EPOCH_JULIAN, Fields, MONTHS, day_of_week, day_of_year, iso_week, iso_year_start,
};
use crate::error::{Result, SqlError, State};

/// What a field of a template names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// AM or PM; the flag: with points.
    Meridiem(bool),
    /// BC or AD; the flag: with points.
    Era(bool),
    Century,
    Day,
    DayAbbrev,
    DayOfYear,
    DayOfMonth,
    DayOfWeek,
    /// Fractional seconds with this many digits.
    Fraction(u8),
    Fixed,
    Hour24,
    Hour12,
    IsoDayOfYear,
    IsoDayOfWeek,
    IsoWeek,
    /// ISO year with this many digits.
    IsoYear(u8),
    Julian,
    Minute,
    Month,
    MonthAbbrev,
    MonthNumber,
    Millis,
    Micros,
    Offset,
    Quarter,
    Roman,
    SecondOfDay,
    Second,
    ZoneHour,
    ZoneMinute,
    Zone,
    WeekOfYear,
    WeekOfMonth,
    YearComma,
    /// Year with this many digits.
    Year(u8),
}

/// In which case a name is written, as the field's own letters tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    Upper,
    Capital,
    Lower,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    Field {
        key: Key,
        case: Case,
        /// No padding.
        fill: bool,
        /// Ordinal ending in upper (true) or lower case.
        ordinal: Option<bool>,
        /// As written, for messages.
        name: String,
    },
    /// A character to copy; quoted ones are never separators.
    Literal { c: char, quoted: bool },
}

/// Keywords, longer ones before those that begin them.
const KEYWORDS: &[(&str, Key)] = &[
    ("A.D.", Key::Era(true)),
    ("A.M.", Key::Meridiem(true)),
    ("AD", Key::Era(false)),
    ("AM", Key::Meridiem(false)),
    ("B.C.", Key::Era(true)),
    ("BC", Key::Era(false)),
    ("CC", Key::Century),
    ("DAY", Key::Day),
    ("DDD", Key::DayOfYear),
    ("DD", Key::DayOfMonth),
    ("DY", Key::DayAbbrev),
    ("D", Key::DayOfWeek),
    ("FF1", Key::Fraction(1)),
    ("FF2", Key::Fraction(2)),
    ("FF3", Key::Fraction(3)),
    ("FF4", Key::Fraction(4)),
    ("FF5", Key::Fraction(5)),
    ("FF6", Key::Fraction(6)),
    ("FX", Key::Fixed),
    ("HH24", Key::Hour24),
    ("HH12", Key::Hour12),
    ("HH", Key::Hour12),
    ("IDDD", Key::IsoDayOfYear),
    ("ID", Key::IsoDayOfWeek),
    ("IW", Key::IsoWeek),
    ("IYYY", Key::IsoYear(4)),
    ("IYY", Key::IsoYear(3)),
    ("IY", Key::IsoYear(2)),
    ("I", Key::IsoYear(1)),
    ("J", Key::Julian),
    ("MI", Key::Minute),
    ("MM", Key::MonthNumber),
    ("MONTH", Key::Month),
    ("MON", Key::MonthAbbrev),
    ("MS", Key::Millis),
    ("OF", Key::Offset),
    ("P.M.", Key::Meridiem(true)),
    ("PM", Key::Meridiem(false)),
    ("Q", Key::Quarter),
    ("RM", Key::Roman),
    ("SSSSS", Key::SecondOfDay),
    ("SSSS", Key::SecondOfDay),
    ("SS", Key::Second),
    ("TZH", Key::ZoneHour),
    ("TZM", Key::ZoneMinute),
    ("TZ", Key::Zone),
    ("US", Key::Micros),
    ("WW", Key::WeekOfYear),
    ("W", Key::WeekOfMonth),
    ("Y,YYY", Key::YearComma),
    ("YYYY", Key::Year(4)),
    ("YYY", Key::Year(3)),
    ("YY", Key::Year(2)),
    ("Y", Key::Year(1)),
];

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|t| t.eq_ignore_ascii_case(prefix))
}

fn case_of(written: &str) -> Case {
    let mut letters = written.bytes().filter(u8::is_ascii_alphabetic);
    match (letters.next(), letters.next()) {
        (Some(a), _) if a.is_ascii_lowercase() => Case::Lower,
        (_, Some(b)) if b.is_ascii_lowercase() => Case::Capital,
        _ => Case::Upper,
    }
}

/// Cuts a template into nodes.
pub fn template(text: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            rest = quoted(&rest[1..], &mut nodes);
            continue;
        }
        let mut body = rest;
        let (mut fill, mut translated) = (false, false);
        while let Some(prefix) = ["FM", "TM"].into_iter().find(|p| starts_with(body, p)) {
            fill |= prefix == "FM";
            translated |= prefix == "TM";
            body = &body[2..];
        }
        let found = KEYWORDS.iter().find(|(name, _)| starts_with(body, name));
        if let Some((name, key)) = found {
            let written = &body[..name.len()];
            body = &body[name.len()..];
            let ordinal = starts_with(body, "TH").then(|| body.starts_with('T'));
            if ordinal.is_some() {
                body = &body[2..];
            }
            if starts_with(body, "SP") {
                body = &body[2..];
            }
            nodes.push(Node::Field {
                key: *key,
                case: case_of(written),
                fill: fill || (translated && matches!(key, Key::Month | Key::Day)),
                ordinal,
                name: written.to_string(),
            });
            rest = body;
            continue;
        }
        // A backslash before a quote makes it an ordinary character.
        let (c, len) = match rest.as_bytes() {
            [b'\\', b'"', ..] => ('"', 2),
            _ => (first, first.len_utf8()),
        };
        nodes.push(Node::Literal { c, quoted: false });
        rest = &rest[len..];
    }
    nodes
}

/// Characters up to the closing quote; returns what follows it.
fn quoted<'a>(text: &'a str, nodes: &mut Vec<Node>) -> &'a str {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        let c = match c {
            '"' => return &text[at + 1..],
            '\\' => match chars.next() {
                Some((_, escaped)) => escaped,
                None => return "",
            },
            c => c,
        };
        nodes.push(Node::Literal { c, quoted: true });
    }
    ""
}

/// What `to_char` writes from.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    pub fields: Fields,
    /// An interval: no calendar, hours beyond 23.
    pub interval: bool,
    /// Seconds east and the zone's abbreviation, for timestamps with time zone.
    pub zone: Option<(i64, String)>,
}

/// Formats a moment by a template.
pub fn to_char(m: &Moment, text: &str) -> Result<String> {
    let mut out = Vec::new();
    for node in template(text) {
        match node {
            Node::Literal { c, .. } => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Node::Field { key, case, fill, ordinal, .. } => {
                let start = out.len();
                write_field(m, key, case, fill, &mut out)?;
                if let Some(upper) = ordinal {
                    push_ordinal(start, upper, &mut out);
                }
            }
        }
    }
    String::from_utf8(out).map_err(|_| SqlError::internal("to_char made no text"))
}

/// `st`, `nd`, `rd` or `th` after the number written since `start`.
fn push_ordinal(start: usize, upper: bool, out: &mut Vec<u8>) {
    let digits: Vec<u8> = out[start..].iter().copied().filter(u8::is_ascii_digit).collect();
    let Some(last) = digits.last() else { return };
    let teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    let ending = match last {
        b'1' if !teen => "st",
        b'2' if !teen => "nd",
        b'3' if !teen => "rd",
        _ => "th",
    };
    let ending = if upper { ending.to_ascii_uppercase() } else { ending.to_string() };
    out.extend_from_slice(ending.as_bytes());
}

/// A number with leading zeros up to a width (the sign counted in).
fn push_padded(v: i64, width: usize, fill: bool, out: &mut Vec<u8>) {
    let digits = v.unsigned_abs().to_string();
    if v < 0 {
        out.push(b'-');
    }
    if !fill {
        let used = digits.len() + usize::from(v < 0);
        out.extend(std::iter::repeat_n(b'0', width.saturating_sub(used)));
    }
    out.extend_from_slice(digits.as_bytes());
}

fn push_name(name: &str, case: Case, width: usize, fill: bool, out: &mut Vec<u8>) {
    let name = match case {
        Case::Upper => name.to_ascii_uppercase(),
        Case::Lower => name.to_ascii_lowercase(),
        Case::Capital => name.to_string(),
    };
    out.extend_from_slice(name.as_bytes());
    if !fill {
        out.extend(std::iter::repeat_n(b' ', width.saturating_sub(name.len())));
    }
}

fn write_field(m: &Moment, key: Key, case: Case, fill: bool, out: &mut Vec<u8>) -> Result<()> {
    let f = &m.fields;
    match key {
        Key::Fixed => {}
        Key::Meridiem(points) => {
            let pm = f.hour % 24 >= 12;
            let text = match (pm, points) {
                (true, true) => "P.M.",
                (true, false) => "PM",
                (false, true) => "A.M.",
                (false, false) => "AM",
            };
            push_name(text, if case == Case::Lower { case } else { Case::Upper }, 0, true, out);
        }
        Key::Hour24 => push_padded(f.hour, if f.hour < 0 { 3 } else { 2 }, fill, out),
        Key::Hour12 => {
            let h = if f.hour % 12 == 0 { 12 } else { f.hour % 12 };
            push_padded(h, if h < 0 { 3 } else { 2 }, fill, out);
        }
        Key::Minute => push_padded(f.minute, if f.minute < 0 { 3 } else { 2 }, fill, out),
        Key::Second => push_padded(f.second, if f.second < 0 { 3 } else { 2 }, fill, out),
        Key::Fraction(digits) => {
            let v = f.micros / 10i64.pow(6 - u32::from(digits));
            push_padded(v, digits.into(), false, out);
        }
        Key::Millis => push_padded(f.micros / 1000, 3, false, out),
        Key::Micros => push_padded(f.micros, 6, false, out),
        Key::SecondOfDay => {
            push_padded(f.hour * 3600 + f.minute * 60 + f.second, 1, true, out);
        }
        Key::Zone | Key::ZoneHour | Key::ZoneMinute | Key::Offset => {
            write_zone(m, key, case, fill, out)?;
        }
        _ => write_calendar(m, key, case, fill, out)?,
    }
    Ok(())
}

fn invalid_for_interval() -> SqlError {
    SqlError::new(
        State::INVALID_DATETIME_FORMAT,
        "invalid format specification for an interval value",
    )
    .hint("Intervals are not tied to specific calendar dates.")
}

fn write_zone(m: &Moment, key: Key, case: Case, fill: bool, out: &mut Vec<u8>) -> Result<()> {
    if m.interval {
        return Err(invalid_for_interval());
    }
    let (offset, zone) = m.zone.as_ref().map_or((0, ""), |(o, z)| (*o, z.as_str()));
    match key {
        Key::Zone => push_name(
            zone,
            if case == Case::Lower { Case::Lower } else { Case::Upper },
            0,
            true,
            out,
        ),
        Key::ZoneMinute => push_two(offset.abs() / 60 % 60, out),
        _ => {
            out.push(if offset < 0 { b'-' } else { b'+' });
            push_padded(offset.abs() / 3600, 2, fill && key == Key::Offset, out);
            if key == Key::Offset && offset.abs() % 3600 != 0 {
                out.push(b':');
                push_two(offset.abs() / 60 % 60, out);
                if offset % 60 != 0 {
                    out.push(b':');
                    push_two(offset.abs() % 60, out);
                }
            }
        }
    }
    Ok(())
}

const ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// A year's last digits; four or more when all four are asked for.
fn push_year(year: i64, digits: u8, fill: bool, out: &mut Vec<u8>) {
    let shown = if digits < 4 { year % 10i64.pow(digits.into()) } else { year };
    push_padded(shown, usize::from(digits) + usize::from(year < 0), fill, out);
}

/// Fields that intervals have no answer for are errors there.
fn write_calendar(m: &Moment, key: Key, case: Case, fill: bool, out: &mut Vec<u8>) -> Result<()> {
    let f = &m.fields;
    let calendar_only = matches!(
        key,
        Key::Era(_)
            | Key::Day
            | Key::DayAbbrev
            | Key::DayOfWeek
            | Key::IsoDayOfWeek
            | Key::Month
            | Key::MonthAbbrev
    );
    if m.interval && calendar_only {
        return Err(invalid_for_interval());
    }
    // 1 BC is the year 0.
    let year = if m.interval || f.year > 0 { f.year } else { 1 - f.year };
    let month_name = || MONTHS[(f.month - 1).rem_euclid(12) as usize];
    let weekday = || DAYS[day_of_week(f.days()) as usize];
    match key {
        Key::Era(points) => {
            let text = match (f.year <= 0, points) {
                (true, true) => "B.C.",
                (true, false) => "BC",
                (false, true) => "A.D.",
                (false, false) => "AD",
            };
            push_name(text, if case == Case::Lower { case } else { Case::Upper }, 0, true, out);
        }
        Key::Month if f.month != 0 => push_name(month_name(), case, 9, fill, out),
        Key::MonthAbbrev if f.month != 0 => push_name(&month_name()[..3], case, 3, true, out),
        Key::Month | Key::MonthAbbrev => {}
        Key::Day => push_name(weekday(), case, 9, fill, out),
        Key::DayAbbrev => push_name(&weekday()[..3], case, 3, true, out),
        Key::MonthNumber => push_padded(f.month, if f.month < 0 { 3 } else { 2 }, fill, out),
        Key::DayOfMonth => push_padded(f.day, 2, fill, out),
        Key::DayOfWeek => push_padded(day_of_week(f.days()) + 1, 1, true, out),
        Key::IsoDayOfWeek => {
            push_padded((day_of_week(f.days()) + 6) % 7 + 1, 1, true, out);
        }
        Key::Quarter if f.month != 0 => push_padded((f.month - 1) / 3 + 1, 1, true, out),
        Key::Quarter => {}
        Key::Century => {
            let century = match (m.interval, f.year) {
                (true, y) => y / 100,
                (false, y) if y > 0 => (y - 1) / 100 + 1,
                (false, y) => (y - 1) / 100 - 1 + i64::from((1 - y) % 100 == 0),
            };
            push_padded(century, if century < 0 { 3 } else { 2 }, fill, out);
        }
        Key::YearComma => {
            push_padded(year / 1000, 1, true, out);
            out.push(b',');
            push_padded(year % 1000, 3, false, out);
        }
        Key::Year(digits) => push_year(year, digits, fill, out),
        Key::Roman if f.month != 0 => {
            let month = if f.month < 0 { 12 + f.month } else { f.month - 1 };
            let text = ROMAN[month.rem_euclid(12) as usize];
            push_name(text, if case == Case::Lower { case } else { Case::Upper }, 4, fill, out);
        }
        Key::Roman => {}
        Key::WeekOfMonth => push_padded((f.day - 1) / 7 + 1, 1, true, out),
        _ => write_by_day(m, key, fill, out),
    }
    Ok(())
}

/// Fields computed from the day's number.
fn write_by_day(m: &Moment, key: Key, fill: bool, out: &mut Vec<u8>) {
    let f = &m.fields;
    let day_number = if m.interval {
        (f.year * 12 + f.month) * 30 + f.day
    } else {
        day_of_year(f.year, f.month, f.day)
    };
    let (iso_year, iso_week) = iso_week(f.days());
    match key {
        Key::DayOfYear => push_padded(day_number, 3, fill, out),
        Key::WeekOfYear => push_padded((day_number - 1) / 7 + 1, 2, fill, out),
        Key::IsoWeek => push_padded(iso_week, 2, fill, out),
        Key::IsoDayOfYear => {
            push_padded(f.days() - iso_year_start(iso_year) + 1, 3, fill, out);
        }
        Key::IsoYear(digits) => {
            let year = if m.interval || iso_year > 0 { iso_year } else { 1 - iso_year };
            push_year(year, digits, fill, out);
        }
        _ => push_padded(f.days() + EPOCH_JULIAN, 1, true, out),
    }
}
