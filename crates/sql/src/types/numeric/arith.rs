//! Addition, subtraction, multiplication, division, remainder.
//!
//! Values of up to some 36 digits are computed in an `i128`; larger ones digit by digit (sums,
//! products) or with big integers (division). Both paths give the same result, which the property
//! tests check.

use super::{BASE, DIGITS, Digits, MAX_DISPLAY_SCALE, MAX_DSCALE, MIN_SIG_DIGITS, Numeric, Sign};
use crate::error::Result;
use crate::functions::int::division_by_zero;
use num_bigint::BigUint;
use num_integer::Integer;
use smallvec::{SmallVec, smallvec};

/// Sum or difference of infinities and NaN; `None` when both are finite.
fn special_sum(a: &Numeric, b: &Numeric) -> Option<Numeric> {
    if a.is_finite() && b.is_finite() {
        return None;
    }
    Some(match (a.sign, b.sign) {
        (Sign::Nan, _) | (_, Sign::Nan) => Numeric::NAN,
        (Sign::PositiveInfinity, Sign::NegativeInfinity)
        | (Sign::NegativeInfinity, Sign::PositiveInfinity) => Numeric::NAN,
        _ if a.is_infinite() => a.clone(),
        _ => b.clone(),
    })
}

pub fn add(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    if let Some(special) = special_sum(a, b) {
        return Ok(special);
    }
    let scale = a.dscale().max(b.dscale());
    if let (Some(x), Some(y)) = (a.to_i128(scale), b.to_i128(scale)) {
        return Ok(Numeric::from_i128(x + y, scale));
    }
    if a.sign == b.sign {
        return add_magnitudes(a, b, a.sign == Sign::Negative, scale);
    }
    match a.compare_magnitude(b) {
        std::cmp::Ordering::Equal => Ok(Numeric::zero(scale)),
        std::cmp::Ordering::Greater => subtract_magnitudes(a, b, a.sign == Sign::Negative, scale),
        std::cmp::Ordering::Less => subtract_magnitudes(b, a, b.sign == Sign::Negative, scale),
    }
}

pub fn sub(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    add(a, &b.clone().negated())
}

/// Weights of the first and last digit of either value.
fn span(a: &Numeric, b: &Numeric) -> (i32, i32) {
    let low = |n: &Numeric| n.weight + 1 - n.digits.len() as i32;
    match (a.digits.is_empty(), b.digits.is_empty()) {
        (true, _) => (b.weight, low(b)),
        (_, true) => (a.weight, low(a)),
        _ => (a.weight.max(b.weight), low(a).min(low(b))),
    }
}

fn add_magnitudes(a: &Numeric, b: &Numeric, negative: bool, scale: i32) -> Result<Numeric> {
    let (high, low) = span(a, b);
    let mut digits: Digits = smallvec![0; (high - low + 2) as usize];
    let mut carry = 0;
    for (slot, w) in digits.iter_mut().rev().zip(low..) {
        let sum = a.digit_at(w) + b.digit_at(w) + carry;
        carry = u16::from(sum >= BASE);
        *slot = sum - carry * BASE;
    }
    Numeric::from_parts(negative, high + 1, &digits, scale)
}

/// `a - b` where the magnitude of `a` is the larger.
fn subtract_magnitudes(a: &Numeric, b: &Numeric, negative: bool, scale: i32) -> Result<Numeric> {
    let (high, low) = span(a, b);
    let mut digits: Digits = smallvec![0; (high - low + 1) as usize];
    let mut borrow = 0;
    for (slot, w) in digits.iter_mut().rev().zip(low..) {
        let (x, y) = (a.digit_at(w), b.digit_at(w) + borrow);
        borrow = u16::from(x < y);
        *slot = x + borrow * BASE - y;
    }
    Numeric::from_parts(negative, high, &digits, scale)
}

fn special_product(a: &Numeric, b: &Numeric) -> Option<Numeric> {
    if a.is_finite() && b.is_finite() {
        return None;
    }
    if a.is_nan() || b.is_nan() || a.is_zero() || b.is_zero() {
        return Some(Numeric::NAN);
    }
    let negative = a.is_negative() != b.is_negative();
    Some(if negative { Numeric::NEG_INFINITY } else { Numeric::INFINITY })
}

pub fn mul(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    if let Some(special) = special_product(a, b) {
        return Ok(special);
    }
    let scale = a.dscale() + b.dscale();
    if a.digits.len() + b.digits.len() <= 9
        && let (Some(x), Some(y)) = (a.to_i128(a.dscale()), b.to_i128(b.dscale()))
        && let Some(product) = x.checked_mul(y)
    {
        return finish_scale(Numeric::from_i128(product, scale), scale);
    }
    let mut acc: SmallVec<[u64; 32]> = smallvec![0; a.digits.len() + b.digits.len()];
    for (i, x) in a.digits.iter().enumerate() {
        for (j, y) in b.digits.iter().enumerate() {
            // Below 10^8 each, at most 32,768 of them meet: no overflow.
            acc[i + j + 1] += u64::from(*x) * u64::from(*y);
        }
    }
    let mut digits: Digits = smallvec![0; acc.len()];
    let mut carry = 0;
    for (slot, v) in digits.iter_mut().zip(&acc).rev() {
        let v = v + carry;
        *slot = (v % u64::from(BASE)) as u16;
        carry = v / u64::from(BASE);
    }
    let weight = a.weight + b.weight + 1;
    finish_scale(Numeric::from_parts(a.sign != b.sign, weight, &digits, MAX_DSCALE)?, scale)
}

/// Gives a product its scale, rounding to what the format can hold.
fn finish_scale(n: Numeric, scale: i32) -> Result<Numeric> {
    if scale > MAX_DSCALE { n.round(MAX_DSCALE) } else { Ok(n.with_dscale(scale)) }
}

/// Fractional digits of a quotient: at least 16 significant ones, and no fewer than the operands
/// show.
pub fn select_div_scale(a: &Numeric, b: &Numeric) -> i32 {
    let first = |n: &Numeric| (n.weight, n.digits.first().copied().unwrap_or(0));
    let ((wa, fa), (wb, fb)) = (first(a), first(b));
    let weight = wa - wb - i32::from(fa <= fb);
    (MIN_SIG_DIGITS - weight * DIGITS).max(a.dscale()).max(b.dscale()).clamp(0, MAX_DISPLAY_SCALE)
}

fn special_quotient(a: &Numeric, b: &Numeric) -> Result<Option<Numeric>> {
    if a.is_nan() || b.is_nan() {
        return Ok(Some(Numeric::NAN));
    }
    if a.is_infinite() {
        if b.is_infinite() {
            return Ok(Some(Numeric::NAN));
        }
        if b.is_zero() {
            return Err(division_by_zero());
        }
        let negative = a.is_negative() != b.is_negative();
        return Ok(Some(if negative { Numeric::NEG_INFINITY } else { Numeric::INFINITY }));
    }
    if b.is_infinite() {
        return Ok(Some(Numeric::ZERO));
    }
    if b.is_zero() { Err(division_by_zero()) } else { Ok(None) }
}

pub fn div(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    if let Some(special) = special_quotient(a, b)? {
        return Ok(special);
    }
    div_scale(a, b, select_div_scale(a, b), true)
}

/// The quotient of finite values with `scale` fractional digits, rounded or cut.
pub fn div_scale(a: &Numeric, b: &Numeric, scale: i32, round: bool) -> Result<Numeric> {
    // Both times 10^common are whole; the dividend gets `scale` digits more.
    let common = a.min_scale().max(b.min_scale());
    if let (Some(x), Some(y)) = (a.to_i128(common + scale), b.to_i128(common)) {
        let (mut q, r) = (x / y, x % y);
        if round && r.unsigned_abs() * 2 >= y.unsigned_abs() {
            q += if (x < 0) == (y < 0) { 1 } else { -1 };
        }
        return Ok(Numeric::from_i128(q, scale));
    }
    let (x, y) = (a.to_biguint(common + scale), b.to_biguint(common));
    let (mut q, r) = x.div_rem(&y);
    if round && r * 2u32 >= y {
        q += 1u32;
    }
    Numeric::from_biguint(a.sign != b.sign, &q, scale)
}

/// The quotient without its fraction: `div(a, b)`.
pub fn div_trunc(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    if let Some(special) = special_quotient(a, b)? {
        return Ok(special);
    }
    div_scale(a, b, 0, false)
}

/// Remainder with the dividend's sign.
pub fn modulo(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    if a.is_nan() || b.is_nan() {
        return Ok(Numeric::NAN);
    }
    if a.is_infinite() {
        return if b.is_zero() { Err(division_by_zero()) } else { Ok(Numeric::NAN) };
    }
    if b.is_infinite() {
        return Ok(a.clone());
    }
    if b.is_zero() {
        return Err(division_by_zero());
    }
    let scale = a.dscale().max(b.dscale());
    if let (Some(x), Some(y)) = (a.to_i128(scale), b.to_i128(scale)) {
        return Ok(Numeric::from_i128(x % y, scale));
    }
    let rest = a.to_biguint(scale) % b.to_biguint(scale);
    Numeric::from_biguint(a.sign == Sign::Negative, &rest, scale)
}

pub fn gcd(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    if !a.is_finite() || !b.is_finite() {
        return Ok(Numeric::NAN);
    }
    let scale = a.dscale().max(b.dscale());
    let divisor: BigUint = a.to_biguint(scale).gcd(&b.to_biguint(scale));
    Numeric::from_biguint(false, &divisor, scale)
}

pub fn lcm(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    if !a.is_finite() || !b.is_finite() {
        return Ok(Numeric::NAN);
    }
    let scale = a.dscale().max(b.dscale());
    if a.is_zero() || b.is_zero() {
        return Ok(Numeric::zero(scale));
    }
    let multiple = a.to_biguint(scale).lcm(&b.to_biguint(scale));
    Numeric::from_biguint(false, &multiple, scale)
}

/// Towards positive or negative infinity, to a whole number.
pub fn to_whole(a: &Numeric, up: bool) -> Result<Numeric> {
    let cut = a.trunc(0)?;
    if !a.is_finite() || cut.compare(a).is_eq() || a.is_negative() == up {
        return Ok(cut);
    }
    add(&cut, &Numeric::from(if up { 1i64 } else { -1 }))
}
