//! Reading dates, times and timestamps in the spellings that PostgreSQL knows.
//!
//! ISO 8601 (`2024-01-02 03:04:05.678+05:30`, `20240102T030405`), traditional (`January 8, 1999`,
//! `1/8/1999` by DateOrder, `08-Jan-99`), day of year (`1999.008`), Julian days (`J2451187`), words
//! (`now`, `today`, `infinity`, `epoch`, `allballs`), AM/PM, BC, zones as offsets, abbreviations or
//! names. A field is read by its looks and by what has been read before it.

use super::lex::{self, Field, Kind};
use super::tz::{self, Zone};
use super::{
    DATE_INFINITY, DATE_NEG_INFINITY, EPOCH_JULIAN, Fields, INFINITY, NEG_INFINITY,
    UNIX_EPOCH_USECS, USECS_PER_DAY, USECS_PER_SEC, abbrev, checked_timestamp, civil_from_days,
    date_range, days_from_civil, days_in_month, valid_date,
};
use crate::error::{Result, SqlError, State};
use crate::functions::FnContext;
use crate::types::TimeTz;
use crate::types::style::DateOrder;

/// Why a literal is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bad {
    Format,
    Field,
    /// Month or day out of range: perhaps the DateStyle is another.
    MonthDay,
    Zone,
    ZoneName(String),
}

impl Bad {
    /// The error as the type's input function words it.
    pub fn error(self, s: &str, ty: &str) -> SqlError {
        match self {
            Bad::Format => SqlError::new(
                State::INVALID_DATETIME_FORMAT,
                format!("invalid input syntax for type {ty}: \"{s}\""),
            ),
            Bad::Field => field_range(s),
            Bad::MonthDay => {
                field_range(s).hint("Perhaps you need a different \"datestyle\" setting.")
            }
            Bad::Zone => SqlError::new(
                State::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
                format!("time zone displacement out of range: \"{s}\""),
            ),
            Bad::ZoneName(name) => tz::not_recognized(&name),
        }
    }
}

fn field_range(s: &str) -> SqlError {
    SqlError::new(
        State::DATETIME_FIELD_OVERFLOW,
        format!("date/time field value out of range: \"{s}\""),
    )
}

/// A moment that a word stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Special {
    None,
    Epoch,
    Infinity,
    NegInfinity,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Meridiem {
    None,
    Am,
    Pm,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    None,
    /// `J`: a Julian day follows.
    Julian,
    /// `T`: a time follows.
    Time,
}

const YEAR: u8 = 1;
const MONTH: u8 = 2;
const DAY: u8 = 4;
const YEAR_DAY: u8 = 8;
const TIME: u8 = 16;
const ZONE: u8 = 32;
const DATE: u8 = YEAR | MONTH | DAY;

/// What a word means.
enum Word {
    Month(i64),
    DayOfWeek,
    Am,
    Pm,
    Bc,
    Ad,
    Ignore,
    T,
    J,
    Now,
    Today,
    Tomorrow,
    Yesterday,
    Epoch,
    Infinity,
    AllBalls,
    Dst,
}

fn keyword(word: &str) -> Option<Word> {
    let months = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let named = |full: &str| word == full || (word.len() == 3 && full.starts_with(word));
    if let Some(m) = months.iter().position(|full| named(full)) {
        return Some(Word::Month(m as i64 + 1));
    }
    Some(match word {
        "sept" => Word::Month(9),
        "sun" | "sunday" | "mon" | "monday" | "tue" | "tues" | "tuesday" | "wed" | "weds"
        | "wednesday" | "thu" | "thur" | "thurs" | "thursday" | "fri" | "friday" | "sat"
        | "saturday" => Word::DayOfWeek,
        "am" => Word::Am,
        "pm" => Word::Pm,
        "bc" => Word::Bc,
        "ad" => Word::Ad,
        "at" | "on" => Word::Ignore,
        "t" => Word::T,
        "j" | "jd" | "julian" => Word::J,
        "now" => Word::Now,
        "today" => Word::Today,
        "tomorrow" => Word::Tomorrow,
        "yesterday" => Word::Yesterday,
        "epoch" => Word::Epoch,
        "infinity" => Word::Infinity,
        "allballs" => Word::AllBalls,
        "dst" => Word::Dst,
        _ => return None,
    })
}

/// Words that a digit may follow without a blank between (`jan8`, `j2451187`).
pub(super) fn is_keyword(word: &str) -> bool {
    keyword(word).is_some() || matches!(word, "d" | "h" | "m" | "s" | "y" | "doy" | "dow")
}

/// A literal, understood.
#[derive(Clone, Debug)]
struct Parsed {
    fields: Fields,
    special: Special,
    seen: u8,
    zone: Option<Zone>,
    /// The zone is given by name: its offset depends on the date.
    zone_is_named: bool,
}

struct Parser<'a> {
    cx: &'a dyn FnContext,
    order: DateOrder,
    f: Fields,
    seen: u8,
    year_day: i64,
    two_digit_year: bool,
    text_month: bool,
    julian: bool,
    bc: bool,
    meridiem: Meridiem,
    prefix: Prefix,
    special: Special,
    zone: Option<Zone>,
    zone_is_named: bool,
}

type Step<T = ()> = std::result::Result<T, Bad>;

fn number(text: &str) -> Step<i64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Format);
    }
    text.parse::<i32>().map(i64::from).map_err(|_| Bad::Field)
}

/// `.5` in microseconds, rounded.
fn fraction(digits: &str) -> Step<i64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Format);
    }
    let value: f64 = format!("0.{digits}0").parse().map_err(|_| Bad::Format)?;
    Ok((value * 1e6).round_ties_even() as i64)
}

fn parse(s: &str, cx: &dyn FnContext) -> Step<Parsed> {
    let fields = lex::split(s).ok_or(Bad::Format)?;
    let mut p = Parser {
        cx,
        order: cx.style().date_order,
        f: Fields::default(),
        seen: 0,
        year_day: 0,
        two_digit_year: false,
        text_month: false,
        julian: false,
        bc: false,
        meridiem: Meridiem::None,
        prefix: Prefix::None,
        special: Special::None,
        zone: None,
        zone_is_named: false,
    };
    if fields.is_empty() {
        return Err(Bad::Format);
    }
    for (i, field) in fields.iter().enumerate() {
        p.field(field, fields.get(i + 1))?;
    }
    p.finish()
}

impl Parser<'_> {
    fn field(&mut self, field: &Field, next: Option<&Field>) -> Step {
        let text = field.text.as_str();
        match field.kind {
            Kind::Date => self.date_like(text),
            Kind::Time => {
                if self.prefix == Prefix::Julian {
                    return Err(Bad::Format);
                }
                self.prefix = Prefix::None;
                self.time(text)
            }
            Kind::Zone => self.offset(text),
            Kind::Number => self.bare_number(text),
            Kind::Word | Kind::SignedWord => self.word(text, next),
        }
    }

    fn mark(&mut self, what: u8) -> Step {
        if self.seen & what != 0 {
            return Err(Bad::Format);
        }
        self.seen |= what;
        Ok(())
    }

    fn date_like(&mut self, text: &str) -> Step {
        if self.prefix == Prefix::Julian {
            return self.julian_with_zone(text);
        }
        let have_date = self.seen & (MONTH | DAY) == MONTH | DAY || self.seen & YEAR_DAY != 0;
        if !have_date && self.prefix == Prefix::None {
            if text.as_bytes()[0].is_ascii_alphabetic()
                && !text.contains(|c: char| c.is_ascii_digit())
            {
                // Only letters: a zone's name before the date.
                return self.named_zone(text);
            }
            return self.date(text);
        }
        if text.as_bytes()[0].is_ascii_digit() {
            // A time run together with its zone: 040506-08.
            if self.seen & TIME != 0 {
                return Err(Bad::Format);
            }
            self.prefix = Prefix::None;
            let at = text.find('-').ok_or(Bad::Format)?;
            self.offset(&text[at..])?;
            return self.number_field(&text[..at]);
        }
        if self.prefix != Prefix::None {
            return Err(Bad::Format);
        }
        self.named_zone(text)
    }

    fn named_zone(&mut self, name: &str) -> Step {
        let zone = tz::find(name).ok_or_else(|| {
            if name.contains('/') { Bad::ZoneName(name.to_string()) } else { Bad::Format }
        })?;
        self.mark(ZONE)?;
        self.zone = Some(Zone::Named(zone));
        self.zone_is_named = true;
        Ok(())
    }

    fn julian_with_zone(&mut self, text: &str) -> Step {
        let at = text.find('-').ok_or(Bad::Format)?;
        self.julian_day(&text[..at])?;
        self.offset(&text[at..])
    }

    /// Whole Julian day, or with a fraction of the day as the time.
    fn julian_day(&mut self, text: &str) -> Step {
        let (day, part) = text.split_once('.').unwrap_or((text, ""));
        let days = number(day)? - EPOCH_JULIAN;
        self.mark(DATE)?;
        (self.f.year, self.f.month, self.f.day) = civil_from_days(days);
        self.julian = true;
        self.prefix = Prefix::None;
        if text.contains('.') {
            self.mark(TIME)?;
            let part: f64 = format!("0.{part}0").parse().map_err(|_| Bad::Format)?;
            let t = Fields::from_time((part * USECS_PER_DAY as f64) as i64);
            self.set_clock(&t);
        }
        Ok(())
    }

    fn set_clock(&mut self, t: &Fields) {
        (self.f.hour, self.f.minute) = (t.hour, t.minute);
        (self.f.second, self.f.micros) = (t.second, t.micros);
    }

    /// `1999-01-08`, `8.1.1999`, `1999.008`, `08-jan-99`.
    fn date(&mut self, text: &str) -> Step {
        let mut parts: Vec<&str> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let kind = rest.as_bytes()[0];
            let same = |b: u8| {
                if kind.is_ascii_digit() { b.is_ascii_digit() } else { b.is_ascii_alphabetic() }
            };
            let end = rest.bytes().position(|b| !same(b)).unwrap_or(rest.len());
            if end == 0 {
                rest = &rest[1..];
                continue;
            }
            parts.push(&rest[..end]);
            rest = &rest[end..];
        }
        if parts.len() > 3 || parts.is_empty() {
            return Err(Bad::Format);
        }
        // The month's name first, so that the numbers know of it.
        let mut numbers = Vec::new();
        for part in parts {
            if !part.as_bytes()[0].is_ascii_alphabetic() {
                numbers.push(part);
                continue;
            }
            match keyword(part) {
                Some(Word::Month(m)) => {
                    self.mark(MONTH)?;
                    self.f.month = m;
                    self.text_month = true;
                }
                Some(Word::Ignore) => {}
                _ => return Err(Bad::Format),
            }
        }
        for part in numbers {
            self.date_number(part)?;
        }
        if self.seen & DATE != DATE && self.seen & (YEAR | YEAR_DAY) != YEAR | YEAR_DAY {
            return Err(Bad::Format);
        }
        Ok(())
    }

    fn set_year(&mut self, value: i64, digits: usize) -> Step {
        self.mark(YEAR)?;
        self.f.year = value;
        self.two_digit_year = digits <= 2;
        Ok(())
    }

    /// A number that is a part of the date: which, depends on what is known already.
    fn date_number(&mut self, text: &str) -> Step {
        let value = number(text)?;
        let digits = text.len();
        if digits == 3 && self.seen & (DATE | YEAR_DAY) == YEAR && (1..=366).contains(&value) {
            self.mark(YEAR_DAY | MONTH | DAY)?;
            self.year_day = value;
            return Ok(());
        }
        match (self.seen & DATE, self.order) {
            (0, order) if digits >= 3 || order == DateOrder::Ymd => self.set_year(value, digits),
            (0, DateOrder::Dmy) | (YEAR_MONTH, _) if !self.text_month => self.set_day(value),
            (0 | YEAR | DAY, _) => self.set_month(value),
            (MONTH, order) if self.text_month && (digits >= 3 || order == DateOrder::Ymd) => {
                self.set_year(value, digits)
            }
            (MONTH, _) => self.set_day(value),
            (YEAR_MONTH, _) => {
                if digits >= 3 && self.two_digit_year {
                    // The number before the month's name was the day: 08-Jan-1999.
                    self.set_day(self.f.year)?;
                    self.seen &= !YEAR;
                    return self.set_year(value, digits);
                }
                self.set_day(value)
            }
            (MONTH_DAY, _) => self.set_year(value, digits),
            (DATE, _) if self.seen & TIME == 0 => self.number_field(text),
            _ => Err(Bad::Format),
        }
    }

    fn set_month(&mut self, value: i64) -> Step {
        self.mark(MONTH)?;
        self.f.month = value;
        Ok(())
    }

    fn set_day(&mut self, value: i64) -> Step {
        self.mark(DAY)?;
        self.f.day = value;
        Ok(())
    }

    /// Run-together digits: yyyymmdd, yymmdd, then hhmmss or hhmm.
    fn number_field(&mut self, text: &str) -> Step {
        let (digits, part) = match text.split_once('.') {
            Some((d, f)) => (d, Some(fraction(f)?)),
            None => (text, None),
        };
        number(digits).or_else(|e| if digits.len() > 9 { Ok(0) } else { Err(e) })?;
        if part.is_none() && self.seen & DATE != DATE {
            if digits.len() < 6 {
                return Err(Bad::Format);
            }
            let split = digits.len() - 4;
            self.mark(DATE)?;
            self.f.year = number(&digits[..split])?;
            self.f.month = number(&digits[split..split + 2])?;
            self.f.day = number(&digits[split + 2..])?;
            self.two_digit_year = split == 2;
            return Ok(());
        }
        self.mark(TIME)?;
        (self.f.hour, self.f.minute, self.f.second) = match digits.len() {
            6 => (number(&digits[..2])?, number(&digits[2..4])?, number(&digits[4..])?),
            4 => (number(&digits[..2])?, number(&digits[2..])?, 0),
            _ => return Err(Bad::Format),
        };
        self.f.micros = part.unwrap_or(0);
        Ok(())
    }

    fn bare_number(&mut self, text: &str) -> Step {
        match self.prefix {
            Prefix::Julian => return self.julian_day(text),
            Prefix::Time => {
                self.prefix = Prefix::None;
                if self.seen & DATE != DATE {
                    return Err(Bad::Format);
                }
                return self.number_field(text);
            }
            Prefix::None => {}
        }
        let point = text.find('.');
        match point {
            Some(_) if self.seen & DATE == 0 => self.date(text),
            Some(at) if at > 2 => self.number_field(text),
            None if text.len() >= 6 && (self.seen & DATE == 0 || self.seen & TIME == 0) => {
                self.number_field(text)
            }
            Some(_) => Err(Bad::Format),
            None => self.date_number(text),
        }
    }

    /// `h:m`, `h:m:s`, `h:m:s.f`; `m:s.f` when a fraction follows the second number.
    fn time(&mut self, text: &str) -> Step {
        self.mark(TIME)?;
        let (clock, part) = match text.split_once('.') {
            Some((c, f)) => (c, Some(fraction(f)?)),
            None => (text, None),
        };
        let parts: Vec<&str> = clock.split(':').collect();
        let values: Vec<i64> = parts.iter().map(|p| number(p)).collect::<Step<_>>()?;
        (self.f.hour, self.f.minute, self.f.second) = match values[..] {
            [h, m] if part.is_none() => (h, m, 0),
            [m, s] => (0, m, s),
            [h, m, s] => (h, m, s),
            _ => return Err(Bad::Format),
        };
        self.f.micros = part.unwrap_or(0);
        Ok(())
    }

    /// `+5`, `-08`, `+0530`, `+05:30:15`.
    fn offset(&mut self, text: &str) -> Step {
        let (sign, body) = (if text.starts_with('-') { -1 } else { 1 }, &text[1..]);
        let parts: Vec<&str> = body.split(':').collect();
        let (h, m, s) = match parts[..] {
            [h] if h.len() > 2 => (number(&h[..h.len() - 2])?, number(&h[h.len() - 2..])?, 0),
            [h] => (number(h)?, 0, 0),
            [h, m] => (number(h)?, number(m)?, 0),
            [h, m, s] => (number(h)?, number(m)?, number(s)?),
            _ => return Err(Bad::Format),
        };
        if h > 15 || m > 59 || s > 59 {
            return Err(Bad::Zone);
        }
        self.mark(ZONE)?;
        self.zone = Some(Zone::Fixed(sign * ((h * 60 + m) * 60 + s)));
        Ok(())
    }

    fn word(&mut self, text: &str, next: Option<&Field>) -> Step {
        if let Some(word) = text.strip_prefix(['+', '-']) {
            if word != "infinity" {
                return Err(Bad::Format);
            }
            self.special =
                if text.starts_with('-') { Special::NegInfinity } else { Special::Infinity };
            return self.mark(DATE | TIME | ZONE);
        }
        let Some(word) = keyword(text) else { return self.zone_word(text) };
        match word {
            Word::Month(m) => self.month_name(m)?,
            Word::DayOfWeek | Word::Ignore | Word::Ad => {}
            Word::Bc => self.bc = true,
            Word::Am => self.meridiem = Meridiem::Am,
            Word::Pm => self.meridiem = Meridiem::Pm,
            Word::T => {
                let time =
                    next.is_some_and(|f| matches!(f.kind, Kind::Number | Kind::Time | Kind::Date));
                if self.seen & DATE == 0 || !time || self.prefix != Prefix::None {
                    return Err(Bad::Format);
                }
                self.prefix = Prefix::Time;
            }
            Word::J => {
                if !next.is_some_and(|f| matches!(f.kind, Kind::Number | Kind::Date)) {
                    return Err(Bad::Format);
                }
                self.prefix = Prefix::Julian;
            }
            Word::Now => {
                self.mark(DATE | TIME | ZONE)?;
                self.now();
            }
            Word::Today => self.day_from_now(0)?,
            Word::Tomorrow => self.day_from_now(1)?,
            Word::Yesterday => self.day_from_now(-1)?,
            Word::Epoch => {
                self.mark(DATE | TIME | ZONE)?;
                self.special = Special::Epoch;
            }
            Word::Infinity => {
                self.mark(DATE | TIME | ZONE)?;
                self.special = Special::Infinity;
            }
            Word::AllBalls => {
                self.mark(TIME | ZONE)?;
                self.zone = Some(Zone::Fixed(0));
            }
            Word::Dst => match &mut self.zone {
                Some(Zone::Fixed(offset)) => *offset += 3600,
                _ => return Err(Bad::Format),
            },
        }
        Ok(())
    }

    fn month_name(&mut self, m: i64) -> Step {
        // A number read as the month was the day: 8 January.
        if self.seen & MONTH != 0
            && !self.text_month
            && self.seen & DAY == 0
            && (1..=31).contains(&self.f.month)
        {
            self.set_day(self.f.month)?;
            self.seen &= !MONTH;
        }
        self.text_month = true;
        self.set_month(m)
    }

    fn now(&mut self) {
        let utc = self.cx.transaction_timestamp();
        let offset = tz::offset_at(self.cx.time_zone(), utc);
        self.f = Fields::from_timestamp(utc + offset * USECS_PER_SEC);
        self.zone = Some(Zone::Fixed(offset));
    }

    fn day_from_now(&mut self, days: i64) -> Step {
        self.mark(DATE)?;
        let local = tz::to_local(self.cx.time_zone(), self.cx.transaction_timestamp());
        let day = local.div_euclid(USECS_PER_DAY) + days;
        (self.f.year, self.f.month, self.f.day) = civil_from_days(day);
        Ok(())
    }

    fn zone_word(&mut self, text: &str) -> Step {
        if let Some((offset, _)) = abbrev::find(text) {
            self.mark(ZONE)?;
            self.zone = Some(Zone::Fixed(offset.into()));
            return Ok(());
        }
        self.named_zone(text)
    }

    fn finish(mut self) -> Step<Parsed> {
        if self.prefix != Prefix::None {
            return Err(Bad::Format);
        }
        if self.special == Special::None {
            self.finish_date()?;
            self.finish_time()?;
        }
        Ok(Parsed {
            fields: self.f,
            special: self.special,
            seen: self.seen,
            zone: self.zone,
            zone_is_named: self.zone_is_named,
        })
    }

    fn finish_date(&mut self) -> Step {
        if self.seen & YEAR != 0 && !self.julian {
            if self.bc {
                if self.f.year <= 0 {
                    return Err(Bad::Field);
                }
                self.f.year = 1 - self.f.year;
            } else if self.two_digit_year {
                self.f.year += if self.f.year < 70 { 2000 } else { 1900 };
            } else if self.f.year <= 0 {
                return Err(Bad::Field);
            }
        }
        if self.seen & YEAR_DAY != 0 {
            let days = days_from_civil(self.f.year, 1, 1) + self.year_day - 1;
            (self.f.year, self.f.month, self.f.day) = civil_from_days(days);
        }
        if self.seen & MONTH != 0 && !(1..=12).contains(&self.f.month) {
            return Err(Bad::MonthDay);
        }
        if self.seen & DAY != 0 && !(1..=31).contains(&self.f.day) {
            return Err(Bad::MonthDay);
        }
        if self.seen & DATE == DATE && self.f.day > days_in_month(self.f.year, self.f.month) {
            return Err(Bad::Field);
        }
        Ok(())
    }

    fn finish_time(&mut self) -> Step {
        if self.meridiem != Meridiem::None {
            if self.f.hour > 12 {
                return Err(Bad::Field);
            }
            let noon = self.f.hour == 12;
            match self.meridiem {
                Meridiem::Am if noon => self.f.hour = 0,
                Meridiem::Pm if !noon => self.f.hour += 12,
                _ => {}
            }
        }
        let f = &self.f;
        let past_midnight = f.hour == 24 && (f.minute > 0 || f.second > 0 || f.micros > 0);
        if f.hour > 24 || f.minute > 59 || f.second > 60 || past_midnight {
            return Err(Bad::Field);
        }
        Ok(())
    }
}

const YEAR_MONTH: u8 = YEAR | MONTH;
const MONTH_DAY: u8 = MONTH | DAY;

fn need_date(p: &Parsed) -> Step {
    if p.seen & DATE == DATE { Ok(()) } else { Err(Bad::Format) }
}

fn timestamp_of(p: &Parsed, s: &str) -> Result<i64> {
    p.fields.timestamp().ok_or_else(|| {
        SqlError::new(State::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{s}\""))
    })
}

pub fn date(s: &str, cx: &dyn FnContext) -> Result<i32> {
    let p = parse(s, cx).and_then(|p| need_date(&p).map(|()| p)).map_err(|b| b.error(s, "date"))?;
    match p.special {
        Special::Infinity => return Ok(DATE_INFINITY),
        Special::NegInfinity => return Ok(DATE_NEG_INFINITY),
        Special::Epoch => return Ok(-(super::UNIX_EPOCH_DAYS as i32)),
        Special::None => {}
    }
    let days = p.fields.days();
    if !valid_date(days) {
        return Err(SqlError::new(
            State::DATETIME_FIELD_OVERFLOW,
            format!("date out of range: \"{s}\""),
        ));
    }
    i32::try_from(days).map_err(|_| date_range())
}

pub fn timestamp(s: &str, cx: &dyn FnContext) -> Result<i64> {
    let p = parse(s, cx)
        .and_then(|p| need_date(&p).map(|()| p))
        .map_err(|b| b.error(s, "timestamp"))?;
    match p.special {
        Special::Infinity => Ok(INFINITY),
        Special::NegInfinity => Ok(NEG_INFINITY),
        Special::Epoch => Ok(-UNIX_EPOCH_USECS),
        Special::None => timestamp_of(&p, s),
    }
}

pub fn timestamptz(s: &str, cx: &dyn FnContext) -> Result<i64> {
    let ty = "timestamp with time zone";
    let p = parse(s, cx).and_then(|p| need_date(&p).map(|()| p)).map_err(|b| b.error(s, ty))?;
    match p.special {
        Special::Infinity => return Ok(INFINITY),
        Special::NegInfinity => return Ok(NEG_INFINITY),
        Special::Epoch => return Ok(-UNIX_EPOCH_USECS),
        Special::None => {}
    }
    let range = || {
        SqlError::new(State::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{s}\""))
    };
    // The local time may lie a little outside the range that UTC must be in.
    let local = p.fields.micros_since_epoch().ok_or_else(range)?;
    let offset = match &p.zone {
        Some(zone) => zone.offset_of_local(local),
        None => tz::offset_of_local(cx.time_zone(), local),
    };
    checked_timestamp(local.checked_sub(offset * USECS_PER_SEC)).map_err(|_| range())
}

pub fn time(s: &str, cx: &dyn FnContext) -> Result<i64> {
    time_parts(s, cx, "time").map(|(micros, _)| micros)
}

pub fn timetz(s: &str, cx: &dyn FnContext) -> Result<TimeTz> {
    let (micros, p) = time_parts(s, cx, "time with time zone")?;
    let today = || tz::to_local(cx.time_zone(), cx.transaction_timestamp());
    let day =
        if p.seen & DATE == DATE { p.fields.days() } else { today().div_euclid(USECS_PER_DAY) };
    let local = day * USECS_PER_DAY + micros;
    let offset = match &p.zone {
        Some(_) if p.zone_is_named && p.seen & DATE != DATE => {
            return Err(Bad::Format.error(s, "time with time zone"));
        }
        Some(zone) => zone.offset_of_local(local),
        None => tz::offset_of_local(cx.time_zone(), local),
    };
    Ok(TimeTz { micros, zone: -(offset as i32) })
}

fn time_parts(s: &str, cx: &dyn FnContext, ty: &str) -> Result<(i64, Parsed)> {
    // Digits alone are a time here, not a date: 0405, 040506.
    let plain = s.trim();
    let after_t = plain.strip_prefix(['t', 'T']);
    let plain = after_t.filter(|r| r.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(plain);
    let run = plain.split(['.', '+', '-', ' ']).next().unwrap_or("");
    let padded;
    let text = if matches!(run.len(), 4 | 6)
        && run.bytes().all(|b| b.is_ascii_digit())
        && !plain[run.len()..].starts_with(':')
        && plain[run.len()..].bytes().filter(|b| *b == b'-').count() < 2
    {
        let (h, m) = (&run[..2], &run[2..4]);
        padded = match &run[4..] {
            "" => format!("{h}:{m}:00{}", &plain[run.len()..]),
            sec => format!("{h}:{m}:{sec}{}", &plain[run.len()..]),
        };
        padded.as_str()
    } else {
        plain
    };
    let p = parse(text, cx).map_err(|b| b.error(s, ty))?;
    if p.special != Special::None || p.seen & TIME == 0 {
        return Err(Bad::Format.error(s, ty));
    }
    Ok((p.fields.time(), p))
}
