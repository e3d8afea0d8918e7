//! Square root, exponential, logarithms, powers, factorial.
//!
//! Computed in fixed point: an integer stands for itself times `10^-p`, with a dozen guard
//! digits beyond what the result shows. The number of digits shown is PostgreSQL's choice (at
//! least sixteen significant ones).

use super::arith::{self, div_scale, select_div_scale};
use super::{DIGITS, MAX_DISPLAY_SCALE, MIN_SIG_DIGITS, Numeric, Sign, overflow};
use crate::error::{Result, SqlError, State};
use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::f64::consts::LOG10_E;

const GUARD: i32 = 14;
/// exp() of anything beyond is out of the format or invisible.
const MAX_EXPONENT: f64 = 6000.0;
const MAX_RESULT_SCALE: f64 = 2000.0;
/// Exact integer powers are used while the result has fewer decimal digits than this.
const EXACT_POWER_DIGITS: i64 = 20_000;

fn power_of_ten(n: i32) -> BigInt {
    BigInt::from(10).pow(n.max(0) as u32)
}

/// The value times `10^p`, cut.
fn to_fixed(n: &Numeric, p: i32) -> BigInt {
    let scale = n.dscale();
    let magnitude = BigInt::from(n.to_biguint(scale));
    let scaled = if p >= scale {
        magnitude * power_of_ten(p - scale)
    } else {
        magnitude / power_of_ten(scale - p)
    };
    if n.is_negative() { -scaled } else { scaled }
}

/// `fixed * 10^-p` rounded to `scale` digits.
fn from_fixed(fixed: &BigInt, p: i32, scale: i32) -> Result<Numeric> {
    let magnitude = fixed.magnitude();
    let rounded = if p > scale {
        let unit = power_of_ten(p - scale).magnitude().clone();
        let (mut q, r) = magnitude.div_rem(&unit);
        if r * 2u32 >= unit {
            q += 1u32;
        }
        q
    } else {
        magnitude * power_of_ten(scale - p).magnitude()
    };
    Numeric::from_biguint(fixed.is_negative(), &rounded, scale)
}

fn shown(scale: i32, at_least: &[i32]) -> i32 {
    at_least.iter().fold(scale, |s, m| s.max(*m)).clamp(0, MAX_DISPLAY_SCALE)
}

pub fn sqrt(n: &Numeric) -> Result<Numeric> {
    match n.sign() {
        Sign::Nan | Sign::PositiveInfinity => return Ok(n.clone()),
        Sign::Negative | Sign::NegativeInfinity => {
            return Err(SqlError::new(
                State::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "cannot take square root of a negative number",
            ));
        }
        Sign::Positive => {}
    }
    let scale = shown(MIN_SIG_DIGITS - (n.weight() * DIGITS / 2 + 1), &[n.dscale()]);
    sqrt_scale(n, scale)
}

/// The square root rounded to `scale` digits, at least the value's own.
pub fn sqrt_scale(n: &Numeric, scale: i32) -> Result<Numeric> {
    let scale = scale.max((n.min_scale() + 1) / 2);
    let radicand = n.to_biguint(2 * scale);
    let mut root = radicand.sqrt();
    if &radicand - &root * &root > root {
        root += 1u32;
    }
    Numeric::from_biguint(false, &root, scale)
}

pub fn exp(n: &Numeric) -> Result<Numeric> {
    match n.sign() {
        Sign::Nan | Sign::PositiveInfinity => return Ok(n.clone()),
        Sign::NegativeInfinity => return Ok(Numeric::ZERO),
        _ => {}
    }
    let weight = (n.to_f64_lossy() * LOG10_E).clamp(-MAX_RESULT_SCALE, MAX_RESULT_SCALE);
    let scale = shown(MIN_SIG_DIGITS - weight as i32, &[n.dscale()]);
    exp_scale(n, scale)
}

fn exp_scale(n: &Numeric, scale: i32) -> Result<Numeric> {
    let value = n.to_f64_lossy();
    if value.abs() >= MAX_EXPONENT {
        return if value > 0.0 { Err(overflow()) } else { Ok(Numeric::zero(scale)) };
    }
    let whole_digits = (value * LOG10_E).max(0.0) as i32 + 2;
    let p = scale + whole_digits + GUARD;
    from_fixed(&exp_fixed(&to_fixed(n, p), p), p, scale)
}

/// e^x in fixed point: halve the argument until it is small, sum the series, square back.
fn exp_fixed(x: &BigInt, p: i32) -> BigInt {
    let mut halvings = 8u32;
    let whole = (x / power_of_ten(p)).abs().to_u32().unwrap_or(u32::MAX);
    halvings += 32 - whole.leading_zeros();
    // Every squaring doubles the error and adds an ulp of the result's size.
    let extra = i32::try_from(halvings).unwrap_or(64) + (whole as f64 * LOG10_E) as i32;
    let (p, x) = (p + extra, x * power_of_ten(extra));
    let one = power_of_ten(p);
    let x = x >> halvings;
    let (mut sum, mut term, mut k) = (&one + &x, x.clone(), 2u32);
    while !term.is_zero() {
        term = &term * &x / &one / k;
        sum += &term;
        k += 1;
        // A negative term divides towards zero, so it vanishes like a positive one.
    }
    for _ in 0..halvings {
        sum = &sum * &sum / &one;
    }
    sum / power_of_ten(extra)
}

fn log_error(n: &Numeric) -> Option<SqlError> {
    let message = if n.is_negative() {
        "cannot take logarithm of a negative number"
    } else if n.is_zero() {
        "cannot take logarithm of zero"
    } else {
        return None;
    };
    Some(SqlError::new(State::INVALID_ARGUMENT_FOR_LOG, message))
}

/// Decimal weight of ln(n), roughly: how many digits stand before its point.
fn ln_weight(n: &Numeric) -> i32 {
    if n.is_negative() || n.is_zero() {
        return 0;
    }
    let near_one = |text: &str| Numeric::parse(text).unwrap_or(Numeric::ZERO);
    if n.compare(&near_one("0.9")).is_ge() && n.compare(&near_one("1.1")).is_le() {
        // ln(1 + y) is about y.
        let y = arith::sub(n, &Numeric::from(1i64)).unwrap_or(Numeric::ZERO);
        return match y.digits().first() {
            Some(first) => y.weight() * DIGITS + f64::from(*first).log10() as i32,
            None => 0,
        };
    }
    let digits = n.digits();
    let mut leading = f64::from(digits[0]);
    let mut weight = n.weight() * DIGITS;
    if let Some(second) = digits.get(1) {
        leading = leading * 10_000.0 + f64::from(*second);
        weight -= DIGITS;
    }
    let ln = leading.ln() + f64::from(weight) * std::f64::consts::LN_10;
    ln.abs().log10() as i32
}

pub fn ln(n: &Numeric) -> Result<Numeric> {
    if let Some(e) = log_error(n) {
        return Err(e);
    }
    if !n.is_finite() {
        return Ok(n.clone());
    }
    ln_scale(n, shown(MIN_SIG_DIGITS - ln_weight(n), &[n.dscale()]))
}

fn ln_scale(n: &Numeric, scale: i32) -> Result<Numeric> {
    let p = scale + GUARD;
    from_fixed(&ln_of(n, p), p, scale)
}

/// ln(n) in fixed point: n = m * 10^k with m near one.
fn ln_of(n: &Numeric, p: i32) -> BigInt {
    let decimal = n.weight() * DIGITS + digits_of(n.digits().first().copied().unwrap_or(1));
    // Near one the value itself is the mantissa: no cancellation against ln 10.
    let k = if (0..=1).contains(&decimal) { 0 } else { decimal };
    let work = p + GUARD;
    let scale = n.dscale();
    let magnitude = BigInt::from(n.to_biguint(scale));
    let shift = work - scale - k;
    let mantissa =
        if shift >= 0 { magnitude * power_of_ten(shift) } else { magnitude / power_of_ten(-shift) };
    let mut result = ln_near_one(mantissa, work);
    if k != 0 {
        result += ln_ten(work) * k;
    }
    result / power_of_ten(GUARD)
}

fn digits_of(d: u16) -> i32 {
    match d {
        1000.. => 4,
        100.. => 3,
        10.. => 2,
        _ => 1,
    }
}

/// ln of a fixed-point value between 0.1 and 10: square roots until it is close to one, then
/// the series of 2 atanh((x-1)/(x+1)).
fn ln_near_one(mut x: BigInt, p: i32) -> BigInt {
    let one = power_of_ten(p);
    let near = &one / 64;
    let mut doublings = 0u32;
    while (&x - &one).abs() > near {
        x = (x * &one).sqrt();
        doublings += 1;
    }
    let y = (&x - &one) * &one / (&x + &one);
    (atanh_series(&y, &one) * 2) << doublings
}

fn atanh_series(y: &BigInt, one: &BigInt) -> BigInt {
    let square = y * y / one;
    let (mut sum, mut term, mut k) = (y.clone(), y.clone(), 3u32);
    while !term.is_zero() {
        term = term * &square / one;
        sum += &term / k;
        k += 2;
    }
    sum
}

fn ln_ten(p: i32) -> BigInt {
    let extra = 4;
    let one = power_of_ten(p + extra);
    let atanh_of = |d: u32| atanh_series(&(&one / d), &one);
    // ln 2 = 18 atanh(1/26) - 2 atanh(1/4801) + 8 atanh(1/8749); ln 10 = 3 ln 2 + 2 atanh(1/9).
    let ln2 = atanh_of(26) * 18 - atanh_of(4801) * 2 + atanh_of(8749) * 8;
    (ln2 * 3 + atanh_of(9) * 2) / power_of_ten(extra)
}

/// Logarithm of `n` to a base.
pub fn log(base: &Numeric, n: &Numeric) -> Result<Numeric> {
    if base.is_nan() || n.is_nan() {
        return Ok(Numeric::NAN);
    }
    if let Some(e) = log_error(base).or_else(|| log_error(n)) {
        return Err(e);
    }
    if base.is_infinite() || n.is_infinite() {
        return match (base.is_infinite(), n.is_infinite()) {
            (true, true) => Ok(Numeric::NAN),
            (true, false) => Ok(Numeric::ZERO),
            _ => Ok(Numeric::INFINITY),
        };
    }
    let weight = ln_weight(n) - ln_weight(base);
    let scale = shown(MIN_SIG_DIGITS - weight, &[base.dscale(), n.dscale()]);
    let p = scale + GUARD + weight.abs() + ln_weight(base).abs() * 2;
    let divisor = ln_of(base, p);
    if divisor.is_zero() {
        return Err(crate::functions::int::division_by_zero());
    }
    from_fixed(&(ln_of(n, p) * power_of_ten(p) / divisor), p, scale)
}

fn power_error(message: &str) -> SqlError {
    SqlError::new(State::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message)
}

/// Powers with NaN or an infinity involved, by POSIX's rules.
fn special_power(base: &Numeric, exponent: &Numeric) -> Result<Option<Numeric>> {
    let one = Numeric::from(1i64);
    if base.is_finite() && exponent.is_finite() {
        return Ok(None);
    }
    if base.is_nan() {
        return Ok(Some(if exponent.is_zero() { one } else { Numeric::NAN }));
    }
    if exponent.is_nan() {
        return Ok(Some(if base.compare(&one).is_eq() { one } else { Numeric::NAN }));
    }
    if base.is_zero() && exponent.is_negative() {
        return Err(power_error("zero raised to a negative power is undefined"));
    }
    if base.is_finite() && base.is_negative() && !exponent.is_infinite() && !exponent.is_integer() {
        return Err(power_error(
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    if exponent.is_infinite() {
        let size = base.clone().abs().compare(&one);
        return Ok(Some(match (size, exponent.is_negative()) {
            (std::cmp::Ordering::Equal, _) => one,
            (std::cmp::Ordering::Greater, false) | (std::cmp::Ordering::Less, true) => {
                Numeric::INFINITY
            }
            _ => Numeric::ZERO,
        }));
    }
    // An infinite base, a finite exponent.
    if exponent.is_zero() {
        return Ok(Some(one));
    }
    if exponent.is_negative() {
        return Ok(Some(Numeric::ZERO));
    }
    let odd = exponent.is_integer() && !arith::modulo(exponent, &Numeric::from(2i64))?.is_zero();
    Ok(Some(if base.is_negative() && odd { Numeric::NEG_INFINITY } else { Numeric::INFINITY }))
}

pub fn power(base: &Numeric, exponent: &Numeric) -> Result<Numeric> {
    if let Some(special) = special_power(base, exponent)? {
        return Ok(special);
    }
    if base.is_zero() && exponent.is_negative() {
        return Err(power_error("zero raised to a negative power is undefined"));
    }
    if base.is_negative() && !exponent.is_integer() {
        return Err(power_error(
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    if exponent.is_integer()
        && let Some(n) = exponent.to_i128(0).and_then(|v| i32::try_from(v).ok())
    {
        return integer_power(base, n, shown(MIN_SIG_DIGITS, &[base.dscale()]));
    }
    if base.is_zero() {
        return Ok(Numeric::zero(MIN_SIG_DIGITS));
    }
    general_power(base, exponent)
}

fn general_power(base: &Numeric, exponent: &Numeric) -> Result<Numeric> {
    let negative = base.is_negative() && !arith::modulo(exponent, &2i64.into())?.is_zero();
    let base = base.clone().abs();
    let rough = shown(8 - ln_weight(&base), &[0]);
    let ln_base = ln_scale(&base, rough)?;
    let product = arith::mul(&ln_base, exponent)?.round(rough)?.to_f64_lossy();
    if product.abs() > MAX_RESULT_SCALE * 3.01 {
        return if product > 0.0 { Err(overflow()) } else { Ok(Numeric::zero(MAX_DISPLAY_SCALE)) };
    }
    let weight = product * LOG10_E;
    let scale = shown(MIN_SIG_DIGITS - weight as i32, &[base.dscale(), exponent.dscale()]);
    let result = power_by_logarithm(&base, exponent, weight, scale)?;
    Ok(if negative { result.negated() } else { result })
}

/// exp(exponent * ln(base)) with `scale` digits; `weight` is about log10 of the result.
fn power_by_logarithm(
    base: &Numeric,
    exponent: &Numeric,
    weight: f64,
    scale: i32,
) -> Result<Numeric> {
    let exponent_digits = (exponent.weight() + 1).max(0) * DIGITS;
    let p = scale + weight.max(0.0) as i32 + exponent_digits + GUARD;
    let fixed_exponent = BigInt::from(exponent.to_biguint(exponent.dscale()));
    let product = ln_of(base, p) * fixed_exponent / power_of_ten(exponent.dscale());
    let product = if exponent.is_negative() { -product } else { product };
    from_fixed(&exp_fixed(&product, p), p, scale)
}

/// base^n to `scale` digits.
fn integer_power(base: &Numeric, n: i32, scale: i32) -> Result<Numeric> {
    if n == 0 {
        return Ok(Numeric::from(1i64).with_dscale(scale));
    }
    if base.is_zero() {
        return Ok(Numeric::zero(scale));
    }
    let size = i64::from(n.unsigned_abs());
    let weight = ln_estimate(base) * LOG10_E * f64::from(n);
    if weight > f64::from(super::MAX_WEIGHT) * 4.0 + 4.0 {
        return Err(overflow());
    }
    if weight < -f64::from(scale + 2) {
        return Ok(Numeric::zero(scale));
    }
    let negative = base.is_negative() && n % 2 != 0;
    if base.digits().len() as i64 * 4 * size <= EXACT_POWER_DIGITS {
        let fraction = base.min_scale();
        let power: BigUint = base.to_biguint(fraction).pow(n.unsigned_abs());
        // The exact power is `power / 10^(fraction * |n|)`.
        let ten = BigUint::from(10u32).pow(fraction as u32 * n.unsigned_abs());
        let (top, bottom) = if n > 0 { (power, ten) } else { (ten, power) };
        let (mut q, r) = (top * power_of_ten(scale).magnitude()).div_rem(&bottom);
        if r * 2u32 >= bottom {
            q += BigUint::one();
        }
        return Numeric::from_biguint(negative, &q, scale);
    }
    let exponent = Numeric::from(i64::from(n));
    let result = power_by_logarithm(&base.clone().abs(), &exponent, weight, scale)?;
    Ok(if negative { result.negated() } else { result })
}

/// ln of the magnitude, as a float.
fn ln_estimate(n: &Numeric) -> f64 {
    let mut leading = 0.0;
    for d in n.digits().iter().take(4) {
        leading = leading * 10_000.0 + f64::from(*d);
    }
    let used = n.digits().len().min(4) as i32;
    leading.ln() + f64::from((n.weight() + 1 - used) * DIGITS) * std::f64::consts::LN_10
}

pub fn factorial(n: i64) -> Result<Numeric> {
    if n < 0 {
        return Err(SqlError::new(
            State::NUMERIC_VALUE_OUT_OF_RANGE,
            "factorial of a negative number is undefined",
        ));
    }
    if n > 32_177 {
        return Err(overflow());
    }
    let product = (2..=n as u64).fold(BigUint::one(), |acc, k| acc * k);
    Numeric::from_biguint(false, &product, 0)
}

/// Variance (or its root) of `count` values from their sum and sum of squares.
pub fn variance(
    count: i64,
    sum: &Numeric,
    squares: &Numeric,
    sample: bool,
    root: bool,
) -> Result<Option<Numeric>> {
    if count == 0 || (sample && count == 1) {
        return Ok(None);
    }
    if !sum.is_finite() || !squares.is_finite() {
        return Ok(Some(Numeric::NAN));
    }
    let n = Numeric::from(count);
    let spread = arith::sub(&arith::mul(&n, squares)?, &arith::mul(sum, sum)?)?;
    if spread.is_zero() || spread.is_negative() {
        return Ok(Some(Numeric::ZERO));
    }
    let divisor = arith::mul(&n, &Numeric::from(if sample { count - 1 } else { count }))?;
    let scale = select_div_scale(&spread, &divisor);
    let variance = div_scale(&spread, &divisor, scale, true)?;
    Ok(Some(if root { sqrt_scale(&variance, scale)?.round(scale)? } else { variance }))
}
