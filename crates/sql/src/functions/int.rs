//! Integers: arithmetic with overflow errors, bits, casts among them and to floats, and oids.

use super::args::{Char, fns};
use crate::error::{SqlError, State};

#[cold]
pub fn smallint_range() -> SqlError {
    SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "smallint out of range")
}

#[cold]
pub fn integer_range() -> SqlError {
    SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range")
}

#[cold]
pub fn bigint_range() -> SqlError {
    SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range")
}

#[cold]
pub fn division_by_zero() -> SqlError {
    SqlError::new(State::DIVISION_BY_ZERO, "division by zero")
}

/// Arithmetic of two integer types in a common one.
macro_rules! arithmetic {
    ($(($a:ty, $b:ty, $t:ty, $range:path) $pl:ident $mi:ident $mul:ident $div:ident;)*) => {
        $(fns! {
            fn $pl(_cx; a: $a, b: $b) -> $t {
                <$t>::from(a).checked_add(<$t>::from(b)).ok_or_else($range)?
            }
            fn $mi(_cx; a: $a, b: $b) -> $t {
                <$t>::from(a).checked_sub(<$t>::from(b)).ok_or_else($range)?
            }
            fn $mul(_cx; a: $a, b: $b) -> $t {
                <$t>::from(a).checked_mul(<$t>::from(b)).ok_or_else($range)?
            }
            fn $div(_cx; a: $a, b: $b) -> $t {
                if b == 0 {
                    return Err(division_by_zero());
                }
                <$t>::from(a).checked_div(<$t>::from(b)).ok_or_else($range)?
            }
        })*
    };
}

arithmetic! {
    (i16, i16, i16, smallint_range) int2pl int2mi int2mul int2div;
    (i32, i32, i32, integer_range) int4pl int4mi int4mul int4div;
    (i64, i64, i64, bigint_range) int8pl int8mi int8mul int8div;
    (i16, i32, i32, integer_range) int24pl int24mi int24mul int24div;
    (i32, i16, i32, integer_range) int42pl int42mi int42mul int42div;
    (i16, i64, i64, bigint_range) int28pl int28mi int28mul int28div;
    (i64, i16, i64, bigint_range) int82pl int82mi int82mul int82div;
    (i32, i64, i64, bigint_range) int48pl int48mi int48mul int48div;
    (i64, i32, i64, bigint_range) int84pl int84mi int84mul int84div;
}

/// What a single integer type has.
macro_rules! single {
    ($(($t:ty, $range:path) $modulo:ident $um:ident $up:ident $abs:ident $and:ident $or:ident
        $xor:ident $not:ident;)*) => {
        $(fns! {
            fn $modulo(_cx; a: $t, b: $t) -> $t {
                if b == 0 {
                    return Err(division_by_zero());
                }
                a.wrapping_rem(b)
            }
            fn $um(_cx; a: $t) -> $t { a.checked_neg().ok_or_else($range)? }
            fn $up(_cx; a: $t) -> $t { a }
            fn $abs(_cx; a: $t) -> $t { a.checked_abs().ok_or_else($range)? }
            fn $and(_cx; a: $t, b: $t) -> $t { a & b }
            fn $or(_cx; a: $t, b: $t) -> $t { a | b }
            fn $xor(_cx; a: $t, b: $t) -> $t { a ^ b }
            fn $not(_cx; a: $t) -> $t { !a }
        })*
    };
}

fns! {
    // A smallint is shifted as an integer and cut again.
    fn int2shl(_cx; a: i16, b: i32) -> i16 { i32::from(a).wrapping_shl(b as u32) as i16 }
    fn int2shr(_cx; a: i16, b: i32) -> i16 { i32::from(a).wrapping_shr(b as u32) as i16 }
    fn int4shl(_cx; a: i32, b: i32) -> i32 { a.wrapping_shl(b as u32) }
    fn int4shr(_cx; a: i32, b: i32) -> i32 { a.wrapping_shr(b as u32) }
    fn int8shl(_cx; a: i64, b: i32) -> i64 { a.wrapping_shl(b as u32) }
    fn int8shr(_cx; a: i64, b: i32) -> i64 { a.wrapping_shr(b as u32) }
}

macro_rules! divisors {
    ($(($t:ty, $range:path) $gcd:ident $lcm:ident;)*) => {
        $(fns! {
            fn $gcd(_cx; a: $t, b: $t) -> $t {
                <$t>::try_from(gcd(a.into(), b.into())).map_err(|_| $range())?
            }
            fn $lcm(_cx; a: $t, b: $t) -> $t {
                if a == 0 || b == 0 {
                    0
                } else {
                    let (a, b) = (i128::from(a), i128::from(b));
                    <$t>::try_from((a / gcd(a, b) * b).abs()).map_err(|_| $range())?
                }
            }
        })*
    };
}

divisors! {
    (i32, integer_range) int4gcd int4lcm;
    (i64, bigint_range) int8gcd int8lcm;
}

fn gcd(a: i128, b: i128) -> i128 {
    num_integer::gcd(a, b)
}

single! {
    (i16, smallint_range) int2mod int2um int2up int2abs int2and int2or int2xor int2not;
    (i32, integer_range) int4mod int4um int4up int4abs int4and int4or int4xor int4not;
    (i64, bigint_range) int8mod int8um int8up int8abs int8and int8or int8xor int8not;
}

/// A float rounded half to even, if the type holds it.
macro_rules! from_float {
    ($($name:ident: $from:ty => $to:ty, $range:path;)*) => {
        $(fns! {
            fn $name(_cx; a: $from) -> $to {
                let rounded = a.round_ties_even();
                // The limits are powers of two, hence exact.
                if !(rounded >= <$to>::MIN as $from && rounded < -(<$to>::MIN as $from)) {
                    return Err($range());
                }
                rounded as $to
            }
        })*
    };
}

from_float! {
    float4_int2: f32 => i16, smallint_range;
    float4_int4: f32 => i32, integer_range;
    float4_int8: f32 => i64, bigint_range;
    float8_int2: f64 => i16, smallint_range;
    float8_int4: f64 => i32, integer_range;
    float8_int8: f64 => i64, bigint_range;
}

fns! {
    fn int4_int2(_cx; a: i32) -> i16 { i16::try_from(a).map_err(|_| smallint_range())? }
    fn int8_int2(_cx; a: i64) -> i16 { i16::try_from(a).map_err(|_| smallint_range())? }
    fn int2_int4(_cx; a: i16) -> i32 { a.into() }
    fn int8_int4(_cx; a: i64) -> i32 { i32::try_from(a).map_err(|_| integer_range())? }
    fn int2_int8(_cx; a: i16) -> i64 { a.into() }
    fn int4_int8(_cx; a: i32) -> i64 { a.into() }
    fn int2_float4(_cx; a: i16) -> f32 { a.into() }
    fn int4_float4(_cx; a: i32) -> f32 { a as f32 }
    fn int8_float4(_cx; a: i64) -> f32 { a as f32 }
    fn int2_float8(_cx; a: i16) -> f64 { a.into() }
    fn int4_float8(_cx; a: i32) -> f64 { a.into() }
    fn int8_float8(_cx; a: i64) -> f64 { a as f64 }
    fn bool_int4(_cx; a: bool) -> i32 { a.into() }
    fn int4_bool(_cx; a: i32) -> bool { a != 0 }
    fn char_int4(_cx; a: Char) -> i32 { i32::from(a.0 as i8) }
    fn int4_char(_cx; a: i32) -> Char {
        Char(i8::try_from(a).map_err(|_| {
            SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "\"char\" out of range")
        })? as u8)
    }
    fn int8_oid(_cx; a: i64) -> u32 {
        u32::try_from(a).map_err(|_| {
            SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, "OID out of range")
        })?
    }
    fn oid_int8(_cx; a: u32) -> i64 { a.into() }
    fn int8inc(_cx; a: i64) -> i64 { a.checked_add(1).ok_or_else(bigint_range)? }
    fn int8dec(_cx; a: i64) -> i64 { a.checked_sub(1).ok_or_else(bigint_range)? }
    fn xid8_xid(_cx; a: i64) -> u32 { a as u32 }
    fn to_hex32(_cx; a: i32) -> String { format!("{a:x}") }
    fn to_hex64(_cx; a: i64) -> String { format!("{a:x}") }

    fn in_bool_and(_cx; a: bool, b: bool) -> bool { a && b }
    fn in_bool_or(_cx; a: bool, b: bool) -> bool { a || b }
}
