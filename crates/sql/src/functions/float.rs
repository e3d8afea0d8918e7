//! Floating-point arithmetic and mathematics.
//!
//! As in PostgreSQL a finite result that overflows or underflows is an error (22003), while
//! infinities and NaN that came in go out again. The trigonometric functions in degrees are exact
//! where the result is (`sind(30)` is 0.5).

use super::FnContext;
use super::args::fns;
use super::int::division_by_zero;
use crate::error::{Result, SqlError, State};
use std::cell::Cell;

#[cold]
fn overflow() -> SqlError {
    SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
}

#[cold]
fn underflow() -> SqlError {
    SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow")
}

#[cold]
fn input_range() -> SqlError {
    SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
}

/// An infinite result is an error unless an operand was infinite; so is a zero from non-zeros.
#[inline]
pub fn checked(result: f64, inf_ok: bool, zero_ok: bool) -> Result<f64> {
    if result.is_infinite() && !inf_ok {
        return Err(overflow());
    }
    if result == 0.0 && !zero_ok {
        return Err(underflow());
    }
    Ok(result)
}

#[inline]
fn checked32(result: f32, inf_ok: bool, zero_ok: bool) -> Result<f32> {
    checked(result.into(), inf_ok, zero_ok).map(|_| result)
}

pub fn f8_add(a: f64, b: f64) -> Result<f64> {
    checked(a + b, a.is_infinite() || b.is_infinite(), true)
}

pub fn f8_mul(a: f64, b: f64) -> Result<f64> {
    checked(a * b, a.is_infinite() || b.is_infinite(), a == 0.0 || b == 0.0)
}

pub fn f8_div(a: f64, b: f64) -> Result<f64> {
    if b == 0.0 && !a.is_nan() {
        return Err(division_by_zero());
    }
    checked(a / b, a.is_infinite(), a == 0.0 || b.is_infinite())
}

fns! {
    fn float8pl(_cx; a: f64, b: f64) -> f64 { f8_add(a, b)? }
    fn float8mi(_cx; a: f64, b: f64) -> f64 { f8_add(a, -b)? }
    fn float8mul(_cx; a: f64, b: f64) -> f64 { f8_mul(a, b)? }
    fn float8div(_cx; a: f64, b: f64) -> f64 { f8_div(a, b)? }
    fn float48pl(_cx; a: f32, b: f64) -> f64 { f8_add(a.into(), b)? }
    fn float48mi(_cx; a: f32, b: f64) -> f64 { f8_add(a.into(), -b)? }
    fn float48mul(_cx; a: f32, b: f64) -> f64 { f8_mul(a.into(), b)? }
    fn float48div(_cx; a: f32, b: f64) -> f64 { f8_div(a.into(), b)? }
    fn float84pl(_cx; a: f64, b: f32) -> f64 { f8_add(a, b.into())? }
    fn float84mi(_cx; a: f64, b: f32) -> f64 { f8_add(a, f64::from(-b))? }
    fn float84mul(_cx; a: f64, b: f32) -> f64 { f8_mul(a, b.into())? }
    fn float84div(_cx; a: f64, b: f32) -> f64 { f8_div(a, b.into())? }
    fn float4pl(_cx; a: f32, b: f32) -> f32 {
        checked32(a + b, a.is_infinite() || b.is_infinite(), true)?
    }
    fn float4mi(_cx; a: f32, b: f32) -> f32 {
        checked32(a - b, a.is_infinite() || b.is_infinite(), true)?
    }
    fn float4mul(_cx; a: f32, b: f32) -> f32 {
        checked32(a * b, a.is_infinite() || b.is_infinite(), a == 0.0 || b == 0.0)?
    }
    fn float4div(_cx; a: f32, b: f32) -> f32 {
        if b == 0.0 && !a.is_nan() {
            return Err(division_by_zero());
        }
        checked32(a / b, a.is_infinite(), a == 0.0 || b.is_infinite())?
    }
    fn float4um(_cx; a: f32) -> f32 { -a }
    fn float8um(_cx; a: f64) -> f64 { -a }
    fn float4up(_cx; a: f32) -> f32 { a }
    fn float8up(_cx; a: f64) -> f64 { a }
    fn float4abs(_cx; a: f32) -> f32 { a.abs() }
    fn float8abs(_cx; a: f64) -> f64 { a.abs() }
    fn float4_float8(_cx; a: f32) -> f64 { a.into() }
    fn float8_float4(_cx; a: f64) -> f32 { checked32(a as f32, a.is_infinite(), a == 0.0)? }
}

fns! {
    fn ceil(_cx; a: f64) -> f64 { a.ceil() }
    fn floor(_cx; a: f64) -> f64 { a.floor() }
    fn round(_cx; a: f64) -> f64 { a.round_ties_even() }
    fn trunc(_cx; a: f64) -> f64 { a.trunc() }
    fn sign(_cx; a: f64) -> f64 { if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { 0.0 } }
    fn sqrt(_cx; a: f64) -> f64 {
        if a < 0.0 {
            return Err(SqlError::new(
                State::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "cannot take square root of a negative number",
            ));
        }
        a.sqrt()
    }
    fn cbrt(_cx; a: f64) -> f64 { a.cbrt() }
    fn power(_cx; a: f64, b: f64) -> f64 { pow(a, b)? }
    fn exp(_cx; a: f64) -> f64 {
        if a.is_infinite() {
            if a > 0.0 { a } else { 0.0 }
        } else {
            checked(a.exp(), false, false)?
        }
    }
    fn ln(_cx; a: f64) -> f64 { logarithm(a, f64::ln)? }
    fn log10(_cx; a: f64) -> f64 { logarithm(a, f64::log10)? }
    fn pi(_cx;) -> f64 { std::f64::consts::PI }
    fn degrees(_cx; a: f64) -> f64 { f8_div(a, std::f64::consts::PI / 180.0)? }
    fn radians(_cx; a: f64) -> f64 { f8_mul(a, std::f64::consts::PI / 180.0)? }
}

fn logarithm(a: f64, f: fn(f64) -> f64) -> Result<f64> {
    let bad = |m: &str| SqlError::new(State::INVALID_ARGUMENT_FOR_LOG, m);
    if a == 0.0 {
        return Err(bad("cannot take logarithm of zero"));
    }
    if a < 0.0 {
        return Err(bad("cannot take logarithm of a negative number"));
    }
    checked(f(a), a.is_infinite(), a == 1.0)
}

fn pow(a: f64, b: f64) -> Result<f64> {
    let bad = |m: &str| SqlError::new(State::INVALID_ARGUMENT_FOR_POWER_FUNCTION, m);
    if a.is_nan() {
        return Ok(if b == 0.0 { 1.0 } else { f64::NAN });
    }
    if b.is_nan() {
        return Ok(if a == 1.0 { 1.0 } else { f64::NAN });
    }
    if a == 0.0 && b < 0.0 {
        return Err(bad("zero raised to a negative power is undefined"));
    }
    if a < 0.0 && b.is_finite() && b.floor() != b {
        return Err(bad("a negative number raised to a non-integer power yields a complex result"));
    }
    if a.is_infinite() || b.is_infinite() {
        return Ok(a.powf(b));
    }
    checked(a.powf(b), false, a == 0.0)
}

/// A trigonometric function: infinite arguments are errors.
fn trig(a: f64, f: impl Fn(f64) -> f64) -> Result<f64> {
    if a.is_infinite() { Err(input_range()) } else { Ok(f(a)) }
}

/// An inverse function, defined between -1 and 1.
fn inverse(a: f64, f: impl Fn(f64) -> f64) -> Result<f64> {
    if !a.is_nan() && !(-1.0..=1.0).contains(&a) { Err(input_range()) } else { Ok(f(a)) }
}

fns! {
    fn sin(_cx; a: f64) -> f64 { trig(a, f64::sin)? }
    fn cos(_cx; a: f64) -> f64 { trig(a, f64::cos)? }
    fn tan(_cx; a: f64) -> f64 { trig(a, f64::tan)? }
    fn cot(_cx; a: f64) -> f64 { trig(a, |a| 1.0 / a.tan())? }
    fn asin(_cx; a: f64) -> f64 { inverse(a, f64::asin)? }
    fn acos(_cx; a: f64) -> f64 { inverse(a, f64::acos)? }
    fn atan(_cx; a: f64) -> f64 { a.atan() }
    fn atan2(_cx; a: f64, b: f64) -> f64 { a.atan2(b) }
    fn sinh(_cx; a: f64) -> f64 { a.sinh() }
    fn cosh(_cx; a: f64) -> f64 { a.cosh() }
    fn tanh(_cx; a: f64) -> f64 { a.tanh() }
    fn asinh(_cx; a: f64) -> f64 { a.asinh() }
    fn acosh(_cx; a: f64) -> f64 { if a < 1.0 { return Err(input_range()) } else { a.acosh() } }
    fn atanh(_cx; a: f64) -> f64 {
        if !a.is_nan() && !(-1.0..=1.0).contains(&a) {
            return Err(input_range());
        }
        a.atanh()
    }
    fn sind(_cx; a: f64) -> f64 { trig(a, sin_degrees)? }
    fn cosd(_cx; a: f64) -> f64 { trig(a, cos_degrees)? }
    fn tand(_cx; a: f64) -> f64 { trig(a, |a| tan_degrees(a, false))? }
    fn cotd(_cx; a: f64) -> f64 { trig(a, |a| tan_degrees(a, true))? }
    fn asind(_cx; a: f64) -> f64 {
        inverse(a, |a| if a >= 0.0 { asin_positive(a) } else { -asin_positive(-a) })?
    }
    fn acosd(_cx; a: f64) -> f64 {
        inverse(a, |a| if a >= 0.0 { acos_positive(a) } else { 90.0 + asin_positive(-a) })?
    }
    fn atand(_cx; a: f64) -> f64 { a.atan() / 1f64.atan() * 45.0 }
    fn atan2d(_cx; a: f64, b: f64) -> f64 { a.atan2(b) / 1f64.atan() * 45.0 }
}

/// Scaled so that 30 degrees give exactly one half.
fn sin_to_30(d: f64) -> f64 {
    d.to_radians().sin() / 30f64.to_radians().sin() / 2.0
}

/// Scaled so that 60 degrees give exactly one half.
fn cos_to_60(d: f64) -> f64 {
    1.0 - (1.0 - d.to_radians().cos()) / (1.0 - 60f64.to_radians().cos()) / 2.0
}

/// The sine of an angle between 0 and 90 degrees.
fn sin_first_quadrant(d: f64) -> f64 {
    if d <= 30.0 { sin_to_30(d) } else { cos_to_60(90.0 - d) }
}

/// The arc sine of a value between 0 and 1.
fn asin_positive(a: f64) -> f64 {
    if a <= 0.5 { a.asin() / 0.5f64.asin() * 30.0 } else { 90.0 - a.acos() / 0.5f64.acos() * 60.0 }
}

fn acos_positive(a: f64) -> f64 {
    if a <= 0.5 { 90.0 - a.asin() / 0.5f64.asin() * 30.0 } else { a.acos() / 0.5f64.acos() * 60.0 }
}

fn sin_degrees(a: f64) -> f64 {
    let mut sign = 1f64;
    let mut d = a % 360.0;
    if d < 0.0 {
        d = -d;
        sign = -sign;
    }
    if d > 180.0 {
        d = 360.0 - d;
        sign = -sign;
    }
    if d > 90.0 {
        d = 180.0 - d;
    }
    sign * sin_first_quadrant(d)
}

fn cos_degrees(a: f64) -> f64 {
    let mut d = (a % 360.0).abs();
    if d > 180.0 {
        d = 360.0 - d;
    }
    let sign = if d > 90.0 { -1.0 } else { 1.0 };
    if d > 90.0 {
        d = 180.0 - d;
    }
    sign * if d <= 60.0 { cos_to_60(d) } else { sin_to_30(90.0 - d) }
}

fn tan_degrees(a: f64, cotangent: bool) -> f64 {
    let ratio = |top: f64, bottom: f64| top / bottom;
    let (s, c) = (sin_degrees(a), cos_degrees(a));
    let (at_45_s, at_45_c) = (sin_first_quadrant(45.0), cos_to_60(45.0));
    // Zero without a sign.
    0.0 + if cotangent {
        ratio(c, s) / ratio(at_45_c, at_45_s)
    } else {
        ratio(s, c) / ratio(at_45_s, at_45_c)
    }
}

thread_local! {
    /// Generator of calls without a session state, seeded from the address-space randomness.
    static GENERATOR: Cell<[u64; 2]> = Cell::new(fresh_state());
}

fn fresh_state() -> [u64; 2] {
    let id = uuid::Uuid::new_v4().as_u128();
    // Never all zeros: version bits are set.
    [id as u64, (id >> 64) as u64]
}

/// xoroshiro128**, the generator behind PostgreSQL's random(), so that seeds give its sequence.
fn next_u64(state: &mut [u64; 2]) -> u64 {
    let s0 = state[0];
    let mut s1 = state[1];
    let value = s0.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
    s1 ^= s0;
    state[0] = s0.rotate_left(24) ^ s1 ^ (s1 << 16);
    state[1] = s1.rotate_left(37);
    value
}

fn split_mix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut v = *seed;
    v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

fn with_state<T>(cx: &dyn FnContext, f: impl FnOnce(&mut [u64; 2]) -> T) -> T {
    let run = |cell: &Cell<[u64; 2]>| {
        let mut state = cell.get();
        if state == [0; 2] {
            state = fresh_state();
        }
        let result = f(&mut state);
        cell.set(state);
        result
    };
    match cx.random_state() {
        Some(cell) => run(cell),
        None => GENERATOR.with(run),
    }
}

/// 64 random bits from the session's generator.
pub fn random_bits(cx: &dyn FnContext) -> u64 {
    with_state(cx, next_u64)
}

fns! {
    fn random(cx;) -> f64 { (random_bits(cx) >> 12) as f64 / (1u64 << 52) as f64 }
    fn setseed(cx; seed: f64) -> &'static str {
        if !(-1.0..=1.0).contains(&seed) {
            return Err(SqlError::new(
                State::INVALID_PARAMETER_VALUE,
                format!("setseed parameter {seed} is out of allowed range [-1,1]"),
            ));
        }
        let mut mixed = ((((1u64 << 52) - 1) as f64 * seed) as i64) as u64;
        let state = [split_mix(&mut mixed), split_mix(&mut mixed)];
        with_state(cx, |s| *s = state);
        ""
    }
}

fns! {
    fn width_bucket(_cx; operand: f64, low: f64, high: f64, count: i32) -> i32 {
        let bad = |m: &str| SqlError::new(State::from_code("2201G"), m);
        if count <= 0 {
            return Err(bad("count must be greater than zero"));
        }
        if operand.is_nan() || low.is_nan() || high.is_nan() {
            return Err(bad("operand, lower bound, and upper bound cannot be NaN"));
        }
        if low.is_infinite() || high.is_infinite() {
            return Err(bad("lower and upper bounds must be finite"));
        }
        if low == high {
            return Err(bad("lower bound cannot equal upper bound"));
        }
        let (below, above) = if low < high {
            (operand < low, operand >= high)
        } else {
            (operand > low, operand <= high)
        };
        if below {
            0
        } else if above {
            count.checked_add(1).ok_or_else(super::int::integer_range)?
        } else {
            let part = ((operand - low) / (high - low) * f64::from(count)).floor() as i32;
            part.min(count - 1) + 1
        }
    }
}
