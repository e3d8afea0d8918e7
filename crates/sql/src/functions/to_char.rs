//! `to_char` and `to_number` of numbers: pictures such as `FM9,999.00`.
//!
//! A picture is read twice: first for its properties ([`Picture`]: how many digits before and after
//! the point, which sign), then element by element while the number's digits are laid into it
//! ([`Layout`]). Output keeps the picture's width unless `FM` is given; a number too large for it
//! is shown as `#`s.

use super::args::fns;
use super::numeric::to_i32;
use crate::error::{Result, SqlError, State};
use crate::types::numeric::{Numeric, arith};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    /// `9`: a digit, blank when leading.
    Nine,
    /// `0`: a digit, shown even when leading.
    Zero,
    Point,
    Group,
    Currency,
    /// `MI`: a minus here for negative numbers.
    Minus,
    Plus,
    /// `SG`: the sign here.
    SignHere,
    /// `S`: the sign beside the number.
    Sign,
    /// `PR`: negative numbers in angle brackets.
    Brackets,
    /// `RN`; the flag: lower case.
    Roman(bool),
    /// `TH`; the flag: lower case.
    Ordinal(bool),
    Shift,
    Exponent,
    Fill,
    Blank,
    Literal(char),
}

const WORDS: &[(&str, Key)] = &[
    ("EEEE", Key::Exponent),
    ("FM", Key::Fill),
    ("MI", Key::Minus),
    ("PL", Key::Plus),
    ("PR", Key::Brackets),
    ("RN", Key::Roman(false)),
    ("SG", Key::SignHere),
    ("TH", Key::Ordinal(false)),
    ("B", Key::Blank),
    ("C", Key::Currency),
    ("D", Key::Point),
    ("G", Key::Group),
    ("L", Key::Currency),
    ("S", Key::Sign),
    ("V", Key::Shift),
    (",", Key::Group),
    (".", Key::Point),
    ("0", Key::Zero),
    ("9", Key::Nine),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SignPlace {
    None,
    Before,
    After,
}

/// A picture and what it asks for.
struct Picture {
    keys: Vec<Key>,
    pre: usize,
    post: usize,
    /// Digits after `V`.
    multi: usize,
    /// First and last position with a `0`, counted from 1; `None`: no zeros before the point.
    zero_start: Option<usize>,
    zero_end: usize,
    point: bool,
    fill: bool,
    brackets: bool,
    minus: bool,
    plus: bool,
    sign: SignPlace,
    sign_at: usize,
    roman: Option<bool>,
    exponent: bool,
}

fn syntax(message: &str) -> SqlError {
    SqlError::new(State::SYNTAX_ERROR, message)
}

impl Picture {
    fn parse(text: &str) -> Result<Picture> {
        let mut p = Picture {
            keys: Vec::new(),
            pre: 0,
            post: 0,
            multi: 0,
            zero_start: None,
            zero_end: 0,
            point: false,
            fill: false,
            brackets: false,
            minus: false,
            plus: false,
            sign: SignPlace::None,
            sign_at: 0,
            roman: None,
            exponent: false,
        };
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if first == '"' {
                rest = p.quoted(&rest[1..]);
                continue;
            }
            let starts =
                |word: &str| rest.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word));
            if let Some((word, key)) = WORDS.iter().find(|(word, _)| starts(word)) {
                let lower = first.is_ascii_lowercase();
                let key = match key {
                    Key::Roman(_) => Key::Roman(lower),
                    Key::Ordinal(_) => Key::Ordinal(lower),
                    key => *key,
                };
                p.note(key)?;
                p.keys.push(key);
                rest = &rest[word.len()..];
                continue;
            }
            let (c, len) = match rest.as_bytes() {
                [b'\\', b'"', ..] => ('"', 2),
                _ => (first, first.len_utf8()),
            };
            p.keys.push(Key::Literal(c));
            rest = &rest[len..];
        }
        if p.roman.is_some() && (p.point || p.sign != SignPlace::None || p.multi > 0) {
            return Err(syntax("\"RN\" is incompatible with other formats"));
        }
        Ok(p)
    }

    fn quoted<'a>(&mut self, text: &'a str) -> &'a str {
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            let c = match c {
                '"' => return &text[at + 1..],
                '\\' => chars.next().map_or('\\', |(_, c)| c),
                c => c,
            };
            self.keys.push(Key::Literal(c));
        }
        ""
    }

    /// What one element says about the whole.
    fn note(&mut self, key: Key) -> Result<()> {
        if self.exponent && key != Key::Exponent {
            return Err(syntax("\"EEEE\" must be the last pattern used"));
        }
        let shifted = self.keys.contains(&Key::Shift);
        match key {
            Key::Nine | Key::Zero if self.brackets => {
                let which = if key == Key::Nine { "9" } else { "0" };
                return Err(syntax(&format!("\"{which}\" must be ahead of \"PR\"")));
            }
            Key::Nine if shifted => self.multi += 1,
            Key::Nine if self.point => self.post += 1,
            Key::Nine => self.pre += 1,
            Key::Zero => {
                if !self.point {
                    self.zero_start.get_or_insert(self.pre + 1);
                    self.pre += 1;
                } else {
                    self.post += 1;
                }
                self.zero_end = self.pre + self.post;
            }
            Key::Point => {
                if self.point {
                    return Err(syntax("multiple decimal points"));
                }
                if shifted {
                    return Err(syntax("cannot use \"V\" and decimal point together"));
                }
                self.point = true;
            }
            Key::Fill => self.fill = true,
            Key::Sign | Key::Minus | Key::Plus | Key::SignHere | Key::Brackets => {
                self.note_sign(key)?;
            }
            Key::Roman(lower) => self.roman = Some(lower),
            Key::Shift if self.point => {
                return Err(syntax("cannot use \"V\" and decimal point together"));
            }
            Key::Exponent => {
                if self.exponent {
                    return Err(syntax("cannot use \"EEEE\" twice"));
                }
                self.exponent = true;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Picture {
    /// Only one way to show the sign may be asked for.
    fn note_sign(&mut self, key: Key) -> Result<()> {
        let beside = self.sign != SignPlace::None;
        let alone = |found: bool, message: &str| if found { Err(syntax(message)) } else { Ok(()) };
        match key {
            Key::Sign => {
                alone(beside, "cannot use \"S\" twice")?;
                alone(
                    self.plus || self.minus || self.brackets,
                    "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together",
                )?;
                self.sign = if self.point { SignPlace::After } else { SignPlace::Before };
                self.sign_at = self.pre;
            }
            Key::Brackets => {
                alone(
                    beside || self.plus || self.minus,
                    "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together",
                )?;
                self.brackets = true;
            }
            key => {
                let name = match key {
                    Key::Minus => "MI",
                    Key::Plus => "PL",
                    _ => "SG",
                };
                alone(beside, &format!("cannot use \"S\" and \"{name}\" together"))?;
                self.minus |= key != Key::Plus;
                self.plus |= key != Key::Minus;
            }
        }
        Ok(())
    }
}

const ROMAN: [(i32, &str); 13] = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
];

fn roman(p: &Picture, value: Option<i32>, lower: bool) -> String {
    let text = match value {
        Some(mut n @ 1..=3999) => {
            let mut out = String::new();
            for (unit, letters) in ROMAN {
                while n >= unit {
                    out.push_str(letters);
                    n -= unit;
                }
            }
            out
        }
        _ => "#".repeat(15),
    };
    let text = if lower { text.to_ascii_lowercase() } else { text };
    let mut out = String::new();
    for key in &p.keys {
        match key {
            Key::Roman(_) if p.fill => out.push_str(&text),
            Key::Roman(_) => out.push_str(&format!("{text:>15}")),
            Key::Literal(c) => out.push(*c),
            _ => {}
        }
    }
    out
}

/// Lays digits into a picture.
struct Layout<'a> {
    p: &'a Picture,
    /// The magnitude: digits, perhaps a point and digits.
    number: Vec<u8>,
    at: usize,
    negative: bool,
    sign: SignPlace,
    brackets: bool,
    sign_written: bool,
    digits_begun: bool,
    /// Positions before the number's first digit.
    spaces: usize,
    position: usize,
    /// With FM: last character of the number that is shown.
    last: Option<usize>,
    out: String,
}

/// `number` is the rounded magnitude as text.
fn lay_out(p: &Picture, number: &str, negative: bool, pre: usize) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let (spaces, number) = if whole > pre {
        let mut sharps = vec![b'#'; pre + p.post + 1];
        sharps[pre] = b'.';
        (0, sharps)
    } else {
        (pre - whole, number.as_bytes().to_vec())
    };
    let mut l = Layout {
        p,
        number,
        at: 0,
        negative,
        sign: p.sign,
        brackets: p.brackets,
        sign_written: false,
        digits_begun: false,
        spaces,
        position: 0,
        last: None,
        out: String::new(),
    };
    l.prepare(pre);
    for key in &p.keys {
        l.element(*key);
    }
    l.out
}

impl Layout<'_> {
    fn prepare(&mut self, pre: usize) {
        let p = self.p;
        if p.plus || p.minus {
            // MI and SG write the sign themselves; PL leaves the minus to the number.
            self.sign_written = p.minus;
        } else {
            if !self.negative && p.fill {
                self.brackets = false;
            }
            self.sign_written = !self.negative && p.fill && self.sign == SignPlace::None;
            if self.sign == SignPlace::Before && pre == p.sign_at {
                self.sign = SignPlace::After;
            }
        }
        if p.fill && p.point {
            let point = self.number.iter().position(|b| *b == b'.');
            self.last = point.map(|at| {
                let zeros = self.number.iter().rev().take_while(|b| **b == b'0').count();
                let mut last = (self.number.len() - 1 - zeros).max(at);
                if p.zero_end > self.spaces {
                    let zero = (self.number.len() - 1).min(p.zero_end - self.spaces);
                    last = last.max(zero);
                }
                last
            });
        }
    }

    /// The zero before the point, which a `9` leaves blank: `.5`.
    fn is_blank_zero(&self) -> bool {
        self.p.zero_start.is_none()
            && self.at == 0
            && self.number.first() == Some(&b'0')
            && self.p.post != 0
    }

    fn last_is_point(&self) -> bool {
        self.last.is_some_and(|at| self.number[at] == b'.')
    }

    fn write_sign(&mut self) {
        let zero_here = self.p.zero_start.is_some_and(|z| z - 1 == self.position);
        let begins = self.position >= self.spaces || zero_here;
        if self.sign_written || !begins || (self.is_blank_zero() && !self.last_is_point()) {
            return;
        }
        if self.sign != SignPlace::None {
            if self.sign == SignPlace::Before {
                self.out.push(if self.negative { '-' } else { '+' });
                self.sign_written = true;
            }
            return;
        }
        let c = match (self.brackets, self.negative) {
            (true, true) => '<',
            (false, true) => '-',
            (true, false) => ' ',
            (false, false) if self.p.fill => {
                self.sign_written = true;
                return;
            }
            (false, false) => ' ',
        };
        self.out.push(c);
        self.sign_written = true;
    }

    /// One position of the number: a digit or the point.
    fn digit(&mut self, key: Key) {
        self.write_sign();
        let zero_from = self.p.zero_start.map(|z| z - 1);
        let padded = zero_from.is_some_and(|z| z <= self.position);
        if self.position < self.spaces && !padded {
            if !self.p.fill {
                self.out.push(' ');
            }
        } else if self.position < self.spaces {
            self.out.push('0');
            self.digits_begun = true;
        } else {
            self.stored_digit(key);
        }
        let mut end = self.p.pre + self.p.multi + self.p.post + usize::from(self.p.point);
        if self.last.is_some_and(|last| last + 1 == self.at) {
            end = end.min(self.position + 1);
        }
        if self.position + 1 == end {
            if self.sign_written && self.brackets {
                self.out.push(if self.negative { '>' } else { ' ' });
            } else if self.sign == SignPlace::After {
                self.out.push(if self.negative { '-' } else { '+' });
            }
        }
        self.position += 1;
    }

    fn stored_digit(&mut self, key: Key) {
        let Some(&c) = self.number.get(self.at) else { return };
        let beyond = self.last.is_some_and(|last| self.at > last);
        if c == b'.' {
            if !self.last_is_point() || self.p.fill {
                self.out.push('.');
            }
        } else if beyond && key != Key::Zero {
            // An irrelevant zero under FM.
        } else if self.is_blank_zero() {
            if !self.p.fill {
                self.out.push(' ');
            } else if self.last_is_point() {
                self.out.push('0');
            }
        } else {
            self.out.push(char::from(c));
            self.digits_begun = true;
        }
        self.at += 1;
    }

    fn element(&mut self, key: Key) {
        match key {
            Key::Nine | Key::Zero | Key::Point => self.digit(key),
            Key::Group => {
                if self.digits_begun {
                    self.out.push(',');
                } else if !self.p.fill {
                    self.out.push(' ');
                }
            }
            Key::Currency if !self.p.fill => self.out.push(' '),
            Key::Minus | Key::Plus => {
                let shown = self.negative == (key == Key::Minus);
                if shown {
                    self.out.push(if key == Key::Minus { '-' } else { '+' });
                } else if !self.p.fill {
                    self.out.push(' ');
                }
            }
            Key::SignHere => self.out.push(if self.negative { '-' } else { '+' }),
            Key::Ordinal(lower) => self.ordinal(lower),
            Key::Literal(c) => self.out.push(c),
            _ => {}
        }
    }

    fn ordinal(&mut self, lower: bool) {
        if self.negative || self.p.point || self.number.first() == Some(&b'#') {
            return;
        }
        let teen = self.number.len() > 1 && self.number[self.number.len() - 2] == b'1';
        let ending = match self.number.last() {
            Some(b'1') if !teen => "ST",
            Some(b'2') if !teen => "ND",
            Some(b'3') if !teen => "RD",
            _ => "TH",
        };
        let ending = if lower { ending.to_ascii_lowercase() } else { ending.to_string() };
        self.out.push_str(&ending);
    }
}

/// `1.23e+04` with a blank for the plus sign.
fn scientific(p: &Picture, n: &Numeric) -> Result<String> {
    if !n.is_finite() {
        let width = p.pre + p.post + 6;
        let mut sharps = vec!['#'; width];
        sharps[0] = ' ';
        if p.pre + 1 < width {
            sharps[p.pre + 1] = '.';
        }
        return Ok(sharps.into_iter().collect());
    }
    let sign = if n.is_negative() { '-' } else { ' ' };
    let magnitude = n.clone().abs();
    let first = magnitude.digits().first().copied().unwrap_or(0);
    let lead = first.checked_ilog10().unwrap_or(0) as i32;
    let mut exponent = if magnitude.is_zero() { 0 } else { magnitude.weight() * 4 + lead };
    let scaled = |exponent: i32| -> Result<Numeric> {
        let power = Numeric::parse(&format!("1e{}", -exponent))?;
        arith::mul(&magnitude, &power)?.round(p.post as i32)
    };
    let mut mantissa = scaled(exponent)?;
    if mantissa.compare(&Numeric::from(10i64)).is_ge() {
        exponent += 1;
        mantissa = scaled(exponent)?;
    }
    let e_sign = if exponent < 0 { '-' } else { '+' };
    Ok(format!("{sign}{mantissa}e{e_sign}{:02}", exponent.abs()))
}

fn numeric_to_char(n: &Numeric, picture: &str) -> Result<String> {
    let p = Picture::parse(picture)?;
    if let Some(lower) = p.roman {
        let whole = if n.is_finite() { Some(to_i32(n)?) } else { None };
        return Ok(roman(&p, whole, lower));
    }
    if p.exponent {
        return scientific(&p, n);
    }
    let mut value = n.clone();
    let mut pre = p.pre;
    if p.multi > 0 {
        value = arith::mul(&value, &Numeric::parse(&format!("1e{}", p.multi))?)?;
        pre += p.multi;
    }
    let rounded = value.round(p.post as i32)?;
    let text = rounded.clone().abs().to_string();
    Ok(lay_out(&p, &text, rounded.is_negative(), pre))
}

/// A float shows at most as many digits as it surely has.
fn float_to_char(v: f64, digits: usize, picture: &str) -> Result<String> {
    let p = Picture::parse(picture)?;
    if p.roman.is_some() || p.exponent || !v.is_finite() {
        return numeric_to_char(&Numeric::parse(&format!("{v:e}"))?, picture);
    }
    let v = if p.multi > 0 { v * 10f64.powi(p.multi as i32) } else { v };
    let whole = format!("{:.0}", v.abs()).len();
    let post = if whole >= digits { 0 } else { p.post.min(digits - whole) };
    let text = format!("{:.post$}", v.abs());
    let negative = v.is_sign_negative() && v != 0.0;
    Ok(lay_out(&p, &text, negative, p.pre + p.multi))
}

/// Reads a number by a picture: separators and literals are stepped over.
fn number_from(text: &str, picture: &str) -> Result<Numeric> {
    let p = Picture::parse(picture)?;
    if p.exponent {
        return Err(SqlError::unsupported("\"EEEE\" for input"));
    }
    if p.roman.is_some() {
        return Err(SqlError::unsupported("\"RN\" for input"));
    }
    let mut input = text.chars().peekable();
    let mut digits = String::new();
    let mut negative = false;
    let mut sign = |input: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        while input.next_if_eq(&' ').is_some() {}
        if let Some(c) = input.next_if(|c| matches!(c, '-' | '+' | '<')) {
            negative = c != '+';
        }
    };
    for key in &p.keys {
        match key {
            Key::Nine | Key::Zero => {
                if digits.is_empty() {
                    sign(&mut input);
                }
                // With fewer digits than places the point waits for its own place.
                digits.extend(input.next_if(char::is_ascii_digit));
            }
            Key::Point => {
                while !digits.contains('.') {
                    match input.next_if(|c| matches!(c, ',' | ' ') || c.is_ascii_digit()) {
                        Some(c) if c.is_ascii_digit() => digits.push(c),
                        Some(_) => {}
                        None => break,
                    }
                }
                if input.next_if_eq(&'.').is_some() {
                    digits.push('.');
                }
            }
            Key::Group => {
                input.next_if_eq(&',');
            }
            Key::Currency | Key::Literal(_) => {
                input.next_if(|c| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '-' | '+'));
            }
            Key::Sign | Key::SignHere | Key::Minus | Key::Plus | Key::Brackets => {
                sign(&mut input);
            }
            Key::Ordinal(_) => {
                input.next();
                input.next();
            }
            _ => {}
        }
    }
    if digits.chars().all(|c| c == '.') {
        return Err(SqlError::new(
            State::INVALID_TEXT_REPRESENTATION,
            "invalid input syntax for type numeric: \" \"",
        ));
    }
    let value = Numeric::parse(&digits)?;
    let value = if p.multi > 0 {
        arith::div(&value, &Numeric::parse(&format!("1e{}", p.multi))?)?
    } else {
        value
    };
    Ok(if negative { value.negated() } else { value })
}

fns! {
    fn to_char_numeric(_cx; n: &Numeric, picture: &str) -> String { numeric_to_char(n, picture)? }
    fn to_char_int4(_cx; n: i32, picture: &str) -> String {
        numeric_to_char(&i64::from(n).into(), picture)?
    }
    fn to_char_int8(_cx; n: i64, picture: &str) -> String { numeric_to_char(&n.into(), picture)? }
    fn to_char_float8(_cx; v: f64, picture: &str) -> String { float_to_char(v, 15, picture)? }
    fn to_char_float4(_cx; v: f32, picture: &str) -> String {
        float_to_char(v.into(), 6, picture)?
    }
    fn to_number(_cx; text: &str, picture: &str) -> Option<Numeric> {
        if picture.is_empty() { None } else { Some(number_from(text, picture)?) }
    }
}
