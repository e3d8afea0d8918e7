//! The tables of built-ins, one file a family.
//!
//! A row reads as `oid name(argument types) result "flags" { output columns } = implementation;`.
//! Flags: `s`trict or `n`ot; `i`mmutable, `s`table or `v`olatile; `V` variadic; a digit: how many
//! of the last arguments may be left out; `w` a window function.

use super::{AggFn, Builtin, CastContext, Implementation, ScalarFn, SetFn, TypedFn, Volatility};
use crate::types::Oid;

pub(super) mod aggregate;
pub(super) mod array;
pub(super) mod casts;
pub(super) mod compare;
pub(super) mod datetime;
pub(super) mod float;
pub(super) mod inspect;
pub(super) mod int;
pub(super) mod io;
pub(super) mod misc;
pub(super) mod numeric;
pub(super) mod operators;
pub(super) mod regexp;
pub(super) mod session;
pub(super) mod string;
pub(super) mod text;

/// All tables of functions.
pub(super) static ALL: &[&[Builtin]] = &[
    aggregate::AGGREGATE,
    array::ARRAY,
    compare::COMPARE,
    datetime::DATETIME,
    float::FLOAT,
    inspect::INSPECT,
    int::INT,
    io::IO,
    misc::MISC,
    numeric::NUMERIC,
    regexp::REGEXP,
    session::SESSIONS,
    string::STRING,
    text::TEXT,
];

pub(super) const fn scalar(f: ScalarFn) -> Implementation {
    Implementation::Scalar(f)
}

pub(super) const fn typed(f: TypedFn) -> Implementation {
    Implementation::Typed(f)
}

pub(super) const fn agg(f: AggFn) -> Implementation {
    Implementation::Aggregate(f)
}

pub(super) const fn set(f: SetFn) -> Implementation {
    Implementation::Set(f)
}

pub(super) const SESSION: Implementation = Implementation::Session;
pub(super) const SESSION_SET: Implementation = Implementation::SessionSet;
pub(super) const WINDOW: Implementation = Implementation::Window;

pub(super) const fn volatility(flags: &str) -> Volatility {
    match flags.as_bytes()[1] {
        b'i' => Volatility::Immutable,
        b's' => Volatility::Stable,
        _ => Volatility::Volatile,
    }
}

pub(super) const fn optional(flags: &str) -> u8 {
    let last = flags.as_bytes()[flags.len() - 1];
    if last.is_ascii_digit() { last - b'0' } else { 0 }
}

pub(super) const fn variadic(flags: &str) -> bool {
    let mut i = 2;
    while i < flags.len() {
        if flags.as_bytes()[i] == b'V' {
            return true;
        }
        i += 1;
    }
    false
}

macro_rules! builtins {
    ($table:ident $($oid:literal $name:ident($($arg:ident)*) $result:ident $flags:literal
        $({ $($column:ident $column_type:ident)* })? = $imp:expr;)*) => {
        pub(in crate::functions) static $table: &[crate::functions::Builtin] = {
            #[allow(unused_imports)]
            use super::{SESSION, SESSION_SET, WINDOW, agg, scalar, set, typed};
            use crate::types::Oid;
            &[$(crate::functions::Builtin {
                oid: Oid($oid),
                name: stringify!($name),
                args: &[$(Oid::$arg),*],
                variadic: super::variadic($flags),
                optional: super::optional($flags),
                result: Oid::$result,
                columns: &[$($((stringify!($column), Oid::$column_type)),*)?],
                strict: $flags.as_bytes()[0] == b's',
                volatility: super::volatility($flags),
                imp: $imp,
            }),*]
        };
    };
}
use builtins;

/// An operator before its function is looked up.
pub(super) struct OperatorRow {
    pub oid: u32,
    pub name: &'static str,
    pub left: Oid,
    pub right: Oid,
    pub result: Oid,
    pub function: u32,
    pub commutator: &'static str,
    pub negator: &'static str,
}

macro_rules! operator_rows {
    ($($oid:literal $name:literal $left:ident $right:ident $result:ident $function:literal
       $commutator:literal $negator:literal;)*) => {
        pub(in crate::functions) static ROWS: &[super::OperatorRow] = {
            use crate::types::Oid;
            const NONE: Oid = Oid::INVALID;
            &[$(super::OperatorRow {
                oid: $oid,
                name: $name,
                left: super::operand!(NONE $left),
                right: Oid::$right,
                result: Oid::$result,
                function: $function,
                commutator: $commutator,
                negator: $negator,
            }),*]
        };
    };
}
use operator_rows;

/// `NONE`, a prefix operator's left side, is not a type.
macro_rules! operand {
    ($none:ident NONE) => {
        $none
    };
    ($none:ident $ty:ident) => {
        Oid::$ty
    };
}
use operand;

/// A cast before its function is looked up.
pub(super) enum How {
    Relabel,
    Function(u32),
}

pub(super) struct CastRow {
    pub source: Oid,
    pub target: Oid,
    pub context: CastContext,
    pub how: How,
}

macro_rules! cast_rows {
    ($($source:ident $target:ident $context:ident $how:ident $($function:literal)?;)*) => {
        pub(in crate::functions) static ROWS: &[super::CastRow] = {
            use crate::functions::CastContext;
            use crate::types::Oid;
            &[$(super::CastRow {
                source: Oid::$source,
                target: Oid::$target,
                context: CastContext::$context,
                how: super::How::$how$(($function))?,
            }),*]
        };
    };
}
use cast_rows;
