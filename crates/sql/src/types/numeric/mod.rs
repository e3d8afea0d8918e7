//! Exact, unbounded decimal numbers: PostgreSQL's `numeric`.
//!
//! A finite value is a sign, base-10000 digits and the power of 10000 of the first digit
//! (`weight`), plus the number of fractional decimal digits to show (`dscale`):
//!
//! ```text
//!   12345.67   digits [1, 2345, 6700]   weight 1   dscale 2
//!    0.0005    digits [5]               weight -1  dscale 4
//!    0.00      digits []                weight 0   dscale 2
//! ```
//!
//! Invariants: no leading and no trailing zero digits; zero is positive and has weight 0; the
//! fractional digits present never exceed `dscale`. `==` compares representations (1.0 and 1.00
//! differ); [`Numeric::compare`] compares values, with NaN above everything and equal to itself.
//!
//! Scales of results, rounding (half away from zero) and limits follow PostgreSQL 15. The
//! arithmetic is in [`arith`], roots, exponentials and logarithms in [`math`].

use crate::error::{Result, SqlError, State};
use crate::types::scalar;
use num_bigint::BigUint;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

pub mod arith;
pub mod math;

/// Decimal digits in a base-10000 digit.
pub const DIGITS: i32 = 4;
pub const BASE: u16 = 10_000;
/// Most fractional digits of a result that has to choose its scale.
pub const MAX_DISPLAY_SCALE: i32 = 1000;
/// Significant digits that such a result has at least.
pub const MIN_SIG_DIGITS: i32 = 16;
/// Limits of the format: digits after the point, and the weight of the first digit.
pub const MAX_DSCALE: i32 = 16_383;
pub const MAX_WEIGHT: i32 = 32_767;

pub type Digits = SmallVec<[u16; 8]>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    Positive,
    Negative,
    Nan,
    PositiveInfinity,
    NegativeInfinity,
}

/// A numeric value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numeric {
    sign: Sign,
    dscale: u16,
    weight: i32,
    digits: Digits,
}

/// Equal values hash alike whatever their scales.
impl Hash for Numeric {
    fn hash<H: Hasher>(&self, h: &mut H) {
        h.write_u8(self.sign as u8);
        h.write_i32(self.weight);
        for d in &self.digits {
            h.write_u16(*d);
        }
    }
}

#[cold]
pub fn overflow() -> SqlError {
    SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

impl Numeric {
    pub const NAN: Numeric = Numeric::special(Sign::Nan);
    pub const INFINITY: Numeric = Numeric::special(Sign::PositiveInfinity);
    pub const NEG_INFINITY: Numeric = Numeric::special(Sign::NegativeInfinity);
    pub const ZERO: Numeric = Numeric::special(Sign::Positive);

    const fn special(sign: Sign) -> Numeric {
        Numeric { sign, dscale: 0, weight: 0, digits: SmallVec::new_const() }
    }

    /// Zero shown with this many fractional digits.
    pub fn zero(dscale: i32) -> Numeric {
        Numeric { dscale: clamp_scale(dscale), ..Numeric::ZERO }
    }

    pub fn sign(&self) -> Sign {
        self.sign
    }
    pub fn dscale(&self) -> i32 {
        i32::from(self.dscale)
    }
    pub fn weight(&self) -> i32 {
        self.weight
    }
    pub fn digits(&self) -> &[u16] {
        &self.digits
    }
    pub fn is_nan(&self) -> bool {
        self.sign == Sign::Nan
    }
    pub fn is_infinite(&self) -> bool {
        matches!(self.sign, Sign::PositiveInfinity | Sign::NegativeInfinity)
    }
    pub fn is_finite(&self) -> bool {
        matches!(self.sign, Sign::Positive | Sign::Negative)
    }
    pub fn is_zero(&self) -> bool {
        self.is_finite() && self.digits.is_empty()
    }
    /// Below zero; NaN is not.
    pub fn is_negative(&self) -> bool {
        matches!(self.sign, Sign::Negative | Sign::NegativeInfinity)
    }

    /// Builds from parts of any shape: strips zero digits at both ends, checks the limits.
    pub fn from_parts(
        negative: bool,
        mut weight: i32,
        digits: &[u16],
        dscale: i32,
    ) -> Result<Self> {
        let leading = digits.iter().take_while(|d| **d == 0).count();
        let digits = &digits[leading..];
        weight -= leading as i32;
        let trailing = digits.iter().rev().take_while(|d| **d == 0).count();
        let digits = &digits[..digits.len() - trailing];
        if digits.is_empty() {
            return Ok(Numeric::zero(dscale));
        }
        if weight > MAX_WEIGHT {
            return Err(overflow());
        }
        let sign = if negative { Sign::Negative } else { Sign::Positive };
        Ok(Numeric { sign, dscale: clamp_scale(dscale), weight, digits: digits.into() })
    }

    /// `value * 10^-scale`, shown with `scale` fractional digits.
    pub fn from_i128(value: i128, scale: i32) -> Numeric {
        let mut rest = value.unsigned_abs();
        // Make the last base-10000 digit start at the decimal point.
        let pad = (DIGITS - scale % DIGITS) % DIGITS;
        let mut buf = [0u16; 12];
        let mut at = buf.len();
        if pad > 0 && rest > 0 {
            let unit = 10u128.pow((DIGITS - pad) as u32);
            at -= 1;
            buf[at] = ((rest % unit) * 10u128.pow(pad as u32)) as u16;
            rest /= unit;
        }
        while rest > 0 {
            at -= 1;
            buf[at] = (rest % u128::from(BASE)) as u16;
            rest /= u128::from(BASE);
        }
        let groups_after = (scale + DIGITS - 1) / DIGITS;
        let weight = (buf.len() - at) as i32 - 1 - groups_after;
        // 39 digits are far inside the limits.
        Numeric::from_parts(value < 0, weight, &buf[at..], scale).unwrap_or(Numeric::NAN)
    }

    /// `magnitude * 10^-scale` with a sign.
    pub fn from_biguint(negative: bool, magnitude: &BigUint, scale: i32) -> Result<Numeric> {
        let pad = (DIGITS - scale.rem_euclid(DIGITS)) % DIGITS;
        let scaled = magnitude * 10u32.pow(pad as u32);
        let bytes = scaled.to_radix_be(100);
        let mut digits: Digits = SmallVec::with_capacity(bytes.len() / 2 + 1);
        let odd = bytes.len() % 2;
        if odd == 1 {
            digits.push(u16::from(bytes[0]));
        }
        digits
            .extend(bytes[odd..].chunks_exact(2).map(|p| u16::from(p[0]) * 100 + u16::from(p[1])));
        let weight = digits.len() as i32 - 1 - (scale + pad) / DIGITS;
        Numeric::from_parts(negative, weight, &digits, scale.max(0))
    }

    /// The magnitude times `10^scale`, which must make it whole: `scale` is at least the dscale.
    pub fn to_biguint(&self, scale: i32) -> BigUint {
        let mut bytes = Vec::with_capacity(self.digits.len() * 2);
        for d in &self.digits {
            bytes.extend([(d / 100) as u8, (d % 100) as u8]);
        }
        let whole = BigUint::from_radix_be(&bytes, 100).unwrap_or_default();
        // The last digit's unit is 10^(4 * exponent).
        let exponent = (self.weight + 1 - self.digits.len() as i32) * DIGITS + scale;
        let power = BigUint::from(10u32).pow(exponent.unsigned_abs());
        if exponent >= 0 { whole * power } else { whole / power }
    }

    /// The value times `10^scale` if it is whole then and fits comfortably (36 digits).
    pub fn to_i128(&self, scale: i32) -> Option<i128> {
        if !self.is_finite() {
            return None;
        }
        if self.digits.is_empty() {
            return Some(0);
        }
        let exponent = (self.weight + 1 - self.digits.len() as i32) * DIGITS + scale;
        if self.digits.len() as i32 * DIGITS + exponent > 36 {
            return None;
        }
        let mut v: i128 = 0;
        for d in &self.digits {
            v = v * i128::from(BASE) + i128::from(*d);
        }
        v = if exponent >= 0 {
            v * 10i128.pow(exponent as u32)
        } else if exponent > -4 {
            let unit = 10i128.pow(exponent.unsigned_abs());
            if v % unit != 0 {
                return None;
            }
            v / unit
        } else {
            return None;
        };
        Some(if self.sign == Sign::Negative { -v } else { v })
    }

    pub fn negated(mut self) -> Numeric {
        self.sign = match self.sign {
            Sign::Positive if !self.digits.is_empty() => Sign::Negative,
            Sign::Negative => Sign::Positive,
            Sign::PositiveInfinity => Sign::NegativeInfinity,
            Sign::NegativeInfinity => Sign::PositiveInfinity,
            same => same,
        };
        self
    }

    pub fn abs(self) -> Numeric {
        if self.is_negative() { self.negated() } else { self }
    }

    pub fn with_dscale(mut self, dscale: i32) -> Numeric {
        self.dscale = clamp_scale(dscale);
        self
    }

    fn rank(&self) -> i8 {
        match self.sign {
            Sign::NegativeInfinity => -2,
            Sign::Negative => -1,
            Sign::Positive if self.digits.is_empty() => 0,
            Sign::Positive => 1,
            Sign::PositiveInfinity => 2,
            Sign::Nan => 3,
        }
    }

    /// Order of values: -Infinity, numbers, Infinity, NaN.
    pub fn compare(&self, other: &Numeric) -> Ordering {
        let ranks = self.rank().cmp(&other.rank());
        if ranks.is_ne() {
            return ranks;
        }
        match self.sign {
            Sign::Positive => self.compare_magnitude(other),
            Sign::Negative => other.compare_magnitude(self),
            _ => Ordering::Equal,
        }
    }

    pub(super) fn compare_magnitude(&self, other: &Numeric) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Without zeros at the ends, a longer run of digits is the larger value.
            (false, false) => {
                self.weight.cmp(&other.weight).then_with(|| self.digits.cmp(&other.digits))
            }
        }
    }

    /// The base-10000 digit of this weight.
    #[inline]
    pub(super) fn digit_at(&self, weight: i32) -> u16 {
        let index = i64::from(self.weight) - i64::from(weight);
        usize::try_from(index).ok().and_then(|i| self.digits.get(i)).copied().unwrap_or(0)
    }

    /// Rounds half away from zero to `scale` fractional digits (negative: before the point).
    pub fn round(&self, scale: i32) -> Result<Numeric> {
        self.cut(scale, true)
    }

    /// Drops digits beyond `scale` fractional digits (negative: before the point).
    pub fn trunc(&self, scale: i32) -> Result<Numeric> {
        self.cut(scale, false)
    }

    fn cut(&self, scale: i32, round: bool) -> Result<Numeric> {
        if !self.is_finite() {
            return Ok(self.clone());
        }
        let shown = scale.max(0);
        // Decimal digits kept, counted from the first base-10000 digit.
        let keep = (self.weight + 1).saturating_mul(DIGITS).saturating_add(scale);
        if keep < 0 || self.digits.is_empty() {
            return Ok(Numeric::zero(shown));
        }
        let total = self.digits.len() as i32 * DIGITS;
        if keep >= total {
            return Ok(self.clone().with_dscale(shown));
        }
        let (whole, part) = ((keep / DIGITS) as usize, keep % DIGITS);
        // A spare leading digit takes the carry.
        let mut digits: Digits = SmallVec::with_capacity(whole + 2);
        digits.push(0);
        digits.extend_from_slice(&self.digits[..whole]);
        let first_dropped = self.digits[whole];
        let unit = 10u16.pow((DIGITS - part) as u32);
        let kept = if part > 0 { first_dropped - first_dropped % unit } else { 0 };
        if part > 0 {
            digits.push(kept);
        }
        if round && (first_dropped - kept) * 2 >= unit {
            add_at_end(&mut digits, if part > 0 { unit } else { 1 });
        }
        Numeric::from_parts(self.sign == Sign::Negative, self.weight + 1, &digits, shown)
    }

    /// Fractional digits needed to write the value exactly.
    pub fn min_scale(&self) -> i32 {
        let Some(last) = self.digits.last() else { return 0 };
        let groups = self.digits.len() as i32 - 1 - self.weight;
        if groups <= 0 {
            return 0;
        }
        let zeros = match last {
            d if d % 1000 == 0 => 3,
            d if d % 100 == 0 => 2,
            d if d % 10 == 0 => 1,
            _ => 0,
        };
        groups * DIGITS - zeros
    }

    pub fn is_integer(&self) -> bool {
        self.is_finite() && self.digits.len() as i32 <= self.weight + 1
    }

    /// Makes the value fit `numeric(precision, scale)`.
    pub fn apply_typmod(&self, typmod: i32) -> Result<Numeric> {
        let (precision, scale) = super::numeric_typmod(typmod);
        let too_big = |detail: String| {
            SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
                .detail(detail)
        };
        if self.is_nan() {
            return Ok(self.clone());
        }
        if self.is_infinite() {
            return Err(too_big(format!(
                "A field with precision {precision}, scale {scale} cannot hold an infinite value."
            )));
        }
        let rounded = self.round(scale)?;
        let limit = precision - scale;
        let Some(first) = rounded.digits.first() else { return Ok(rounded) };
        let decimal = match first {
            1000.. => 4,
            100.. => 3,
            10.. => 2,
            _ => 1,
        };
        if rounded.weight * DIGITS + decimal > limit {
            let bound = if limit == 0 { "1".to_string() } else { format!("10^{limit}") };
            return Err(too_big(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute \
                 value less than {bound}."
            )));
        }
        Ok(rounded)
    }

    /// Reads PostgreSQL's spellings, exponents and the special values included.
    pub fn parse(s: &str) -> Result<Numeric> {
        let fail = || scalar::invalid_syntax("numeric", s);
        let word = scalar::trim(s);
        let (negative, body) = match word.as_bytes().first() {
            Some(b'-') => (true, &word[1..]),
            Some(b'+') => (false, &word[1..]),
            _ => (false, word),
        };
        if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return special_word(body, negative, word).ok_or_else(fail);
        }
        let (mantissa, exponent) = match body.find(['e', 'E']) {
            Some(at) => (&body[..at], parse_exponent(&body[at + 1..]).ok_or_else(fail)?),
            None => (body, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = || whole.bytes().chain(fraction.bytes());
        if whole.is_empty() && fraction.is_empty() || !all().all(|b| b.is_ascii_digit()) {
            return Err(fail());
        }
        if exponent.abs() > i64::from(MAX_WEIGHT) * 8 {
            return Err(overflow());
        }
        let dscale = (fraction.len() as i64 - exponent).max(0);
        if dscale > i64::from(MAX_DSCALE) {
            return Err(overflow());
        }
        // Position of the point, in decimal digits from the left.
        let point = whole.len() as i64 + exponent;
        let weight = (point + 3).div_euclid(4) - 1;
        let lead = ((weight + 1) * 4 - point) as usize;
        let mut digits: Digits = SmallVec::new();
        let (mut group, mut filled) = (0u16, lead);
        for b in all() {
            group = group * 10 + u16::from(b - b'0');
            filled += 1;
            if filled == 4 {
                digits.push(group);
                (group, filled) = (0, 0);
            }
        }
        if filled > 0 {
            digits.push(group * 10u16.pow(4 - filled as u32));
        }
        Numeric::from_parts(negative, weight as i32, &digits, dscale as i32)
    }

    /// Appends the text form.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self.sign {
            Sign::Nan => return out.extend_from_slice(b"NaN"),
            Sign::PositiveInfinity => return out.extend_from_slice(b"Infinity"),
            Sign::NegativeInfinity => return out.extend_from_slice(b"-Infinity"),
            Sign::Negative => out.push(b'-'),
            Sign::Positive => {}
        }
        if self.weight < 0 || self.digits.is_empty() {
            out.push(b'0');
        } else {
            scalar::write_int(self.digit_at(self.weight), out);
            for w in (0..self.weight).rev() {
                out.extend(four(self.digit_at(w)));
            }
        }
        if self.dscale > 0 {
            out.push(b'.');
            let end = out.len() + usize::from(self.dscale);
            let mut w = -1;
            while out.len() < end {
                out.extend(four(self.digit_at(w)));
                w -= 1;
            }
            out.truncate(end);
        }
    }

    /// The protocol's binary form.
    pub fn write_binary(&self, out: &mut Vec<u8>) {
        let sign: u16 = match self.sign {
            Sign::Positive => 0,
            Sign::Negative => 0x4000,
            Sign::Nan => 0xc000,
            Sign::PositiveInfinity => 0xd000,
            Sign::NegativeInfinity => 0xf000,
        };
        out.extend((self.digits.len() as u16).to_be_bytes());
        out.extend((self.weight as i16).to_be_bytes());
        out.extend(sign.to_be_bytes());
        out.extend(self.dscale.to_be_bytes());
        for d in &self.digits {
            out.extend(d.to_be_bytes());
        }
    }

    pub fn read_binary(bytes: &[u8]) -> Result<Numeric> {
        let bad = |what: &str| {
            SqlError::new(
                State::INVALID_BINARY_REPRESENTATION,
                format!("invalid {what} in external \"numeric\" value"),
            )
        };
        let (words, rest) = bytes.as_chunks::<2>();
        let mut words = words.iter().map(|w| u16::from_be_bytes(*w));
        let mut next = || words.next().ok_or_else(|| bad("length"));
        let (count, weight, sign, dscale) = (next()?, next()? as i16, next()?, next()?);
        let negative = match sign {
            0 => false,
            0x4000 => true,
            0xc000 => return Ok(Numeric::NAN),
            0xd000 => return Ok(Numeric::INFINITY),
            0xf000 => return Ok(Numeric::NEG_INFINITY),
            _ => return Err(bad("sign")),
        };
        if i32::from(dscale) > MAX_DSCALE {
            return Err(bad("scale"));
        }
        let digits: Digits = words.collect();
        if digits.len() != usize::from(count) || !rest.is_empty() {
            return Err(bad("length"));
        }
        if digits.iter().any(|d| *d >= BASE) {
            return Err(bad("digit"));
        }
        // Digits beyond the announced scale are dropped, as PostgreSQL does.
        Numeric::from_parts(negative, i32::from(weight), &digits, dscale.into())?
            .trunc(dscale.into())
    }

    /// Nearest float; too large is an error, too small is zero or the nearest denormal.
    pub fn to_f64(&self) -> Result<f64> {
        match self.sign {
            Sign::Nan => return Ok(f64::NAN),
            Sign::PositiveInfinity => return Ok(f64::INFINITY),
            Sign::NegativeInfinity => return Ok(f64::NEG_INFINITY),
            _ => {}
        }
        scalar::parse_f64(&self.to_string())
    }

    /// Nearest float for estimates: infinite when too large.
    pub fn to_f64_lossy(&self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    pub fn from_f64(v: f64) -> Result<Numeric> {
        Numeric::from_float_text(v, 0)
    }

    pub fn from_f32(v: f32) -> Result<Numeric> {
        let mut out = Vec::new();
        scalar::write_f32(v, 0, &mut out);
        Numeric::parse(&String::from_utf8_lossy(&out))
    }

    fn from_float_text(v: f64, extra: i32) -> Result<Numeric> {
        let mut out = Vec::new();
        scalar::write_f64(v, extra, &mut out);
        Numeric::parse(&String::from_utf8_lossy(&out))
    }
}

fn clamp_scale(dscale: i32) -> u16 {
    dscale.clamp(0, MAX_DSCALE) as u16
}

/// Adds `amount` (at most 10000) to the last digit and carries; the first digit is spare.
fn add_at_end(digits: &mut [u16], amount: u16) {
    let mut carry = amount;
    for d in digits.iter_mut().rev() {
        *d += carry;
        if *d < BASE {
            return;
        }
        *d -= BASE;
        carry = 1;
    }
}

fn four(d: u16) -> [u8; 4] {
    [d / 1000, d / 100 % 10, d / 10 % 10, d % 10].map(|v| b'0' + v as u8)
}

fn parse_exponent(s: &str) -> Option<i64> {
    let digits = s.strip_prefix(['+', '-']).unwrap_or(s);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Saturates: the caller reports what is out of bounds.
    Some(s.parse().unwrap_or(i64::from(i32::MAX) * if s.starts_with('-') { -1 } else { 1 }))
}

fn special_word(body: &str, negative: bool, word: &str) -> Option<Numeric> {
    if body.eq_ignore_ascii_case("nan") {
        // A sign before NaN is not accepted.
        (body.len() == word.len()).then_some(Numeric::NAN)
    } else if body.eq_ignore_ascii_case("infinity") || body.eq_ignore_ascii_case("inf") {
        Some(if negative { Numeric::NEG_INFINITY } else { Numeric::INFINITY })
    } else {
        None
    }
}

impl std::fmt::Display for Numeric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = Vec::new();
        self.write(&mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

impl From<i64> for Numeric {
    fn from(v: i64) -> Self {
        Numeric::from_i128(v.into(), 0)
    }
}

impl From<i128> for Numeric {
    fn from(v: i128) -> Self {
        Numeric::from_i128(v, 0)
    }
}

#[cfg(test)]
mod tests;
