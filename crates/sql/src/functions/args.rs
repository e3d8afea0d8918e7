//! Typed access to arguments, and the macro that turns plain Rust functions into built-ins.
//!
//! ```ignore
//! fns! {
//!     fn int4pl(_cx; a: i32, b: i32) -> i32 { a.checked_add(b).ok_or_else(out_of_range)? }
//! }
//! ```
//!
//! The analyser guarantees the argument types, so a value of another variant is a defect of ours
//! and becomes an internal error, never a panic. `Option<T>` takes a NULL.

use crate::error::{Result, SqlError};
use crate::types::numeric::Numeric;
use crate::types::{ArrayValue, Datum, Interval, TimeTz};
use compact_str::CompactString;
use inkling_storage::ids::RowId;
use std::sync::Arc;

#[cold]
pub fn mismatch(d: &Datum) -> SqlError {
    SqlError::internal(format!("unexpected argument {d:?}"))
}

#[cold]
pub fn arity() -> SqlError {
    SqlError::internal("wrong number of arguments")
}

pub trait FromDatum<'a>: Sized {
    fn get(d: &'a Datum) -> Result<Self>;
}

macro_rules! from_datum {
    ($($ty:ty: $pattern:pat => $value:expr;)*) => {
        $(impl<'a> FromDatum<'a> for $ty {
            #[inline]
            fn get(d: &'a Datum) -> Result<Self> {
                match d {
                    $pattern => Ok($value),
                    other => Err(mismatch(other)),
                }
            }
        })*
    };
}

/// Days since 2000-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Date(pub i32);
/// Microseconds since midnight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(pub i64);
/// Microseconds since 2000-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stamp(pub i64);
/// "char".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Char(pub u8);
/// A value to hand on as it is.
pub struct Any<'a>(pub &'a Datum);

from_datum! {
    bool: Datum::Bool(v) => *v;
    i16: Datum::Int2(v) => *v;
    i32: Datum::Int4(v) => *v;
    i64: Datum::Int8(v) => *v;
    u32: Datum::Oid(v) => *v;
    f32: Datum::Float4(v) => *v;
    f64: Datum::Float8(v) => *v;
    &'a str: Datum::Text(v) => v;
    &'a [u8]: Datum::Bytea(v) => v;
    &'a Numeric: Datum::Numeric(v) => v;
    &'a ArrayValue: Datum::Array(v) => v;
    &'a [Datum]: Datum::Record(v) => v;
    &'a [u8; 16]: Datum::Uuid(v) => v;
    Interval: Datum::Interval(v) => *v;
    TimeTz: Datum::TimeTz(v) => *v;
    Date: Datum::Date(v) => Date(*v);
    Time: Datum::Time(v) => Time(*v);
    Stamp: Datum::Timestamp(v) => Stamp(*v);
    Char: Datum::Char(v) => Char(*v);
    RowId: Datum::Tid(v) => *v;
}

impl<'a> FromDatum<'a> for Any<'a> {
    #[inline]
    fn get(d: &'a Datum) -> Result<Self> {
        Ok(Any(d))
    }
}

impl<'a, T: FromDatum<'a>> FromDatum<'a> for Option<T> {
    #[inline]
    fn get(d: &'a Datum) -> Result<Self> {
        if d.is_null() { Ok(None) } else { T::get(d).map(Some) }
    }
}

pub trait IntoDatum {
    fn into_datum(self) -> Datum;
}

macro_rules! into_datum {
    ($($ty:ty: $name:ident => $value:expr;)*) => {
        $(impl IntoDatum for $ty {
            #[inline]
            fn into_datum(self) -> Datum {
                let $name = self;
                $value
            }
        })*
    };
}

into_datum! {
    Datum: v => v;
    bool: v => Datum::Bool(v);
    i16: v => Datum::Int2(v);
    i32: v => Datum::Int4(v);
    i64: v => Datum::Int8(v);
    u32: v => Datum::Oid(v);
    f32: v => Datum::Float4(v);
    f64: v => Datum::Float8(v);
    &str: v => Datum::text(v);
    String: v => Datum::text(v);
    CompactString: v => Datum::Text(v);
    Vec<u8>: v => Datum::Bytea(v.into());
    &[u8]: v => Datum::Bytea(v.into());
    Numeric: v => Datum::Numeric(Arc::new(v));
    ArrayValue: v => Datum::Array(Arc::new(v));
    [u8; 16]: v => Datum::Uuid(v);
    Interval: v => Datum::Interval(v);
    TimeTz: v => Datum::TimeTz(v);
    Date: v => Datum::Date(v.0);
    Time: v => Datum::Time(v.0);
    Stamp: v => Datum::Timestamp(v.0);
    Char: v => Datum::Char(v.0);
    RowId: v => Datum::Tid(v);
}

impl<T: IntoDatum> IntoDatum for Option<T> {
    #[inline]
    fn into_datum(self) -> Datum {
        self.map_or(Datum::Null, T::into_datum)
    }
}

/// Defines built-ins of the common form; see the module's essay. Arguments beyond those named
/// are ignored.
macro_rules! fns {
    ($($(#[$meta:meta])* fn $name:ident($cx:ident; $($arg:ident: $ty:ty),* $(,)?) -> $ret:ty
        $body:block)*) => {
        $($(#[$meta])*
        #[allow(unused_variables, irrefutable_let_patterns, clippy::needless_question_mark)]
        pub(crate) fn $name(
            $cx: &dyn $crate::functions::FnContext,
            args: &[$crate::types::Datum],
        ) -> $crate::error::Result<$crate::types::Datum> {
            let [$($arg,)* ..] = args else { return Err($crate::functions::args::arity()) };
            $(let $arg = <$ty as $crate::functions::args::FromDatum<'_>>::get($arg)?;)*
            let result: $ret = $body;
            Ok($crate::functions::args::IntoDatum::into_datum(result))
        })*
    };
}
pub(crate) use fns;

/// Argument `i` or NULL: for trailing arguments that may be absent.
pub fn arg(args: &[Datum], i: usize) -> &Datum {
    args.get(i).unwrap_or(&Datum::Null)
}
