//! Rust values as parameters, and out of columns.
//!
//! A parameter is turned into the type that the statement wants:
//!
//! | Rust                        | SQL                                                        |
//! |-----------------------------|------------------------------------------------------------|
//! | `i16`, `i32`, `i64`, `u32`  | integers (in range), numeric, floats, oid                   |
//! | `f32`, `f64`                | floats, numeric                                             |
//! | `bool`                      | boolean                                                    |
//! | `str`, `String`             | any type, read as its text (`'2024-01-31'`, `'{1,2}'`)       |
//! | `[u8]`, `Vec<u8>`           | bytea                                                      |
//! | `[u8; 16]`                  | uuid                                                       |
//! | [`SystemTime`]              | timestamp with time zone                                   |
//! | `Option<T>`                 | `None` is NULL                                             |
//! | [`Datum`]                   | as it is; must be of the parameter's type                  |
//!
//! Out of a column: integers into wide enough integers, floats into floats, everything into
//! `String` (its text, as `psql` shows it), bytea into `Vec<u8>`, uuid into `[u8; 16]`,
//! timestamptz into `SystemTime`. NULL only goes into `Option`.

use crate::Result;
use crate::rows::Shape;
use inkling_sql::error::{SqlError, State};
use inkling_sql::types::{self, Datum, Oid, TypeRef};
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A parameter on its way into a statement.
#[derive(Clone, Debug)]
pub enum SqlValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    Uuid([u8; 16]),
    /// Microseconds since 2000-01-01 UTC.
    Timestamp(i64),
    Datum(Datum),
}

/// What can be a parameter.
pub trait ToSql {
    fn to_sql(&self) -> SqlValue<'_>;
}

/// What can come out of a column.
pub trait FromSql: Sized {
    fn from_sql(value: ValueRef<'_>) -> Result<Self>;
}

/// A column's value in a row.
#[derive(Clone, Copy)]
pub struct ValueRef<'a> {
    datum: &'a Datum,
    ty: TypeRef,
    shape: &'a Shape,
}

impl<'a> ValueRef<'a> {
    pub(crate) fn new(datum: &'a Datum, ty: TypeRef, shape: &'a Shape) -> Self {
        ValueRef { datum, ty, shape }
    }

    pub fn datum(&self) -> &'a Datum {
        self.datum
    }

    pub fn type_oid(&self) -> Oid {
        self.ty.oid
    }

    /// The value's text, as `psql` shows it.
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        types::text_out(self.datum, self.ty.oid, &self.shape.style, &self.shape.zone, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn cannot_be(&self, what: &str) -> SqlError {
        if self.datum.is_null() {
            let text = format!("a null value cannot be read as {what}; read it as an Option");
            return SqlError::new(State::NULL_VALUE_NOT_ALLOWED, text);
        }
        let ty = types::format_type(self.ty.oid, self.ty.typmod);
        SqlError::new(
            State::DATATYPE_MISMATCH,
            format!("a value of type {ty} cannot be read as {what}"),
        )
    }
}

// ---- Into statements -------------------------------------------------------------------------

macro_rules! to_sql {
    ($($ty:ty => |$v:ident| $value:expr;)*) => {
        $(impl ToSql for $ty {
            fn to_sql(&self) -> SqlValue<'_> {
                let $v = self;
                $value
            }
        })*
    };
}

to_sql! {
    bool => |v| SqlValue::Bool(*v);
    i16 => |v| SqlValue::Int(i64::from(*v));
    i32 => |v| SqlValue::Int(i64::from(*v));
    i64 => |v| SqlValue::Int(*v);
    u32 => |v| SqlValue::Int(i64::from(*v));
    f32 => |v| SqlValue::Float(f64::from(*v));
    f64 => |v| SqlValue::Float(*v);
    str => |v| SqlValue::Text(Cow::Borrowed(v));
    String => |v| SqlValue::Text(Cow::Borrowed(v));
    [u8] => |v| SqlValue::Bytes(Cow::Borrowed(v));
    Vec<u8> => |v| SqlValue::Bytes(Cow::Borrowed(v));
    [u8; 16] => |v| SqlValue::Uuid(*v);
    SystemTime => |v| SqlValue::Timestamp(micros_of(*v));
    Datum => |v| SqlValue::Datum(v.clone());
}

impl<T: ToSql + ?Sized> ToSql for &T {
    fn to_sql(&self) -> SqlValue<'_> {
        (**self).to_sql()
    }
}

impl<T: ToSql> ToSql for Option<T> {
    fn to_sql(&self) -> SqlValue<'_> {
        self.as_ref().map_or(SqlValue::Null, ToSql::to_sql)
    }
}

/// Microseconds from 1970-01-01 to 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

fn micros_of(time: SystemTime) -> i64 {
    let micros = |d: Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
    let since_1970 = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => micros(after),
        Err(before) => -micros(before.duration()),
    };
    since_1970.saturating_sub(EPOCH_MICROS)
}

/// Reads a type's text form, with the session's settings.
pub(crate) type TextIn<'a> = &'a dyn Fn(Oid, &str) -> Result<Datum>;

impl SqlValue<'_> {
    /// The value as the parameter's type `ty` wants it.
    pub(crate) fn into_datum(self, ty: Oid, text_in: TextIn<'_>) -> Result<Datum> {
        let what = match &self {
            SqlValue::Null => return Ok(Datum::Null),
            SqlValue::Datum(d) => return Ok(d.clone()),
            SqlValue::Text(text) => return text_in(ty, text),
            SqlValue::Int(n) => match integer(*n, ty)? {
                Some(datum) => return Ok(datum),
                None if ty == Oid::NUMERIC => return text_in(ty, &n.to_string()),
                None => "an integer",
            },
            SqlValue::Float(x) => match ty {
                Oid::FLOAT8 => return Ok(Datum::Float8(*x)),
                Oid::FLOAT4 => return narrow(*x),
                Oid::NUMERIC => return text_in(ty, &x.to_string()),
                _ => "a floating-point number",
            },
            SqlValue::Bool(b) if ty == Oid::BOOL => return Ok(Datum::Bool(*b)),
            SqlValue::Bool(_) => "a truth value",
            SqlValue::Bytes(b) if ty == Oid::BYTEA => return Ok(Datum::Bytea((&**b).into())),
            SqlValue::Bytes(_) => "bytes",
            SqlValue::Uuid(u) if ty == Oid::UUID => return Ok(Datum::Uuid(*u)),
            SqlValue::Uuid(u) if ty == Oid::BYTEA => return Ok(Datum::Bytea(u[..].into())),
            SqlValue::Uuid(_) => "a UUID",
            SqlValue::Timestamp(t) if ty == Oid::TIMESTAMPTZ => return Ok(Datum::Timestamp(*t)),
            SqlValue::Timestamp(_) => "a system time",
        };
        let wanted = types::format_type(ty, -1);
        Err(SqlError::new(
            State::DATATYPE_MISMATCH,
            format!("a parameter of type {wanted} cannot be given as {what}"),
        )
        .hint("Give it as text, or cast the parameter in the statement."))
    }
}

fn out_of_range(n: impl std::fmt::Display, ty: Oid) -> SqlError {
    SqlError::new(
        State::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value \"{n}\" is out of range for type {}", types::format_type(ty, -1)),
    )
}

fn integer(n: i64, ty: Oid) -> Result<Option<Datum>> {
    let range = |_| out_of_range(n, ty);
    Ok(Some(match ty {
        Oid::INT2 => Datum::Int2(i16::try_from(n).map_err(range)?),
        Oid::INT4 => Datum::Int4(i32::try_from(n).map_err(range)?),
        Oid::INT8 => Datum::Int8(n),
        Oid::OID => Datum::Oid(u32::try_from(n).map_err(range)?),
        Oid::FLOAT4 => Datum::Float4(n as f32),
        Oid::FLOAT8 => Datum::Float8(n as f64),
        _ => return Ok(None),
    }))
}

fn narrow(x: f64) -> Result<Datum> {
    let narrowed = x as f32;
    match narrowed.is_infinite() && x.is_finite() {
        true => Err(out_of_range(x, Oid::FLOAT4)),
        false => Ok(Datum::Float4(narrowed)),
    }
}

// ---- Out of columns --------------------------------------------------------------------------

macro_rules! integer_from_sql {
    ($($ty:ty),*) => {
        $(impl FromSql for $ty {
            fn from_sql(value: ValueRef<'_>) -> Result<Self> {
                let wide = match value.datum {
                    Datum::Int2(n) => i64::from(*n),
                    Datum::Int4(n) => i64::from(*n),
                    Datum::Int8(n) => *n,
                    Datum::Oid(n) => i64::from(*n),
                    _ => return Err(value.cannot_be(stringify!($ty))),
                };
                <$ty>::try_from(wide).map_err(|_| SqlError::new(
                    State::NUMERIC_VALUE_OUT_OF_RANGE,
                    format!("value \"{wide}\" is out of range for {}", stringify!($ty)),
                ))
            }
        })*
    };
}

integer_from_sql!(i16, i32, i64, u32);

impl FromSql for f64 {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        Ok(match value.datum {
            Datum::Float8(x) => *x,
            Datum::Float4(x) => f64::from(*x),
            Datum::Int2(n) => f64::from(*n),
            Datum::Int4(n) => f64::from(*n),
            // The nearest one: a decimal's text is what Rust reads.
            Datum::Numeric(_) => value.text().parse().map_err(|_| value.cannot_be("f64"))?,
            _ => return Err(value.cannot_be("f64")),
        })
    }
}

impl FromSql for f32 {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        match value.datum {
            Datum::Float4(x) => Ok(*x),
            _ => Err(value.cannot_be("f32")),
        }
    }
}

impl FromSql for bool {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        match value.datum {
            Datum::Bool(b) => Ok(*b),
            _ => Err(value.cannot_be("bool")),
        }
    }
}

impl FromSql for String {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        match value.datum {
            Datum::Null => Err(value.cannot_be("String")),
            Datum::Text(text) => Ok(text.as_str().to_owned()),
            _ => Ok(value.text()),
        }
    }
}

impl FromSql for Vec<u8> {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        match value.datum {
            Datum::Bytea(bytes) => Ok(bytes.to_vec()),
            _ => Err(value.cannot_be("bytes")),
        }
    }
}

impl FromSql for [u8; 16] {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        match value.datum {
            Datum::Uuid(bytes) => Ok(*bytes),
            _ => Err(value.cannot_be("a UUID")),
        }
    }
}

impl FromSql for SystemTime {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        let (Datum::Timestamp(micros), Oid::TIMESTAMPTZ) = (value.datum, value.ty.oid) else {
            return Err(value.cannot_be("a system time"));
        };
        let since_1970 = micros.saturating_add(EPOCH_MICROS);
        let distance = Duration::from_micros(since_1970.unsigned_abs());
        let time = match since_1970 >= 0 {
            true => UNIX_EPOCH.checked_add(distance),
            false => UNIX_EPOCH.checked_sub(distance),
        };
        time.ok_or_else(|| value.cannot_be("a system time"))
    }
}

impl FromSql for Datum {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        Ok(value.datum.clone())
    }
}

impl<T: FromSql> FromSql for Option<T> {
    fn from_sql(value: ValueRef<'_>) -> Result<Self> {
        match value.datum {
            Datum::Null => Ok(None),
            _ => T::from_sql(value).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_text(_: Oid, text: &str) -> Result<Datum> {
        Ok(Datum::text(text))
    }

    fn put(value: &dyn ToSql, ty: Oid) -> Result<Datum> {
        value.to_sql().into_datum(ty, &no_text)
    }

    #[test]
    fn parameters_become_what_the_statement_wants_or_say_why_not() {
        assert_eq!(put(&7i64, Oid::INT4), Ok(Datum::Int4(7)));
        assert_eq!(put(&7i16, Oid::FLOAT8), Ok(Datum::Float8(7.0)));
        assert_eq!(put(&7, Oid::NUMERIC), Ok(Datum::text("7")));
        assert_eq!(put(&None::<i32>, Oid::INT4), Ok(Datum::Null));
        assert_eq!(put(&Some("x"), Oid::DATE), Ok(Datum::text("x")));
        assert_eq!(put(&[1u8; 16], Oid::UUID), Ok(Datum::Uuid([1; 16])));
        assert_eq!(put(&70_000, Oid::INT2).map_err(|e| e.state), Err(State::from_code("22003")));
        assert_eq!(put(&1e300, Oid::FLOAT4).map_err(|e| e.state), Err(State::from_code("22003")));
        assert_eq!(put(&true, Oid::INT4).map_err(|e| e.state), Err(State::DATATYPE_MISMATCH));
    }

    #[test]
    fn columns_become_what_the_caller_wants_or_say_why_not() {
        let shape = Shape::default();
        let of = |datum: &Datum, ty: Oid| {
            let ty = TypeRef::plain(ty);
            let value = ValueRef::new(datum, ty, &shape);
            (i16::from_sql(value), String::from_sql(value), Option::<f64>::from_sql(value))
        };
        let (small, text, float) = of(&Datum::Int4(12), Oid::INT4);
        assert_eq!((small, text, float), (Ok(12), Ok("12".to_owned()), Ok(Some(12.0))));
        let (small, text, float) = of(&Datum::Null, Oid::INT4);
        assert!(small.is_err() && text.is_err());
        assert_eq!(float, Ok(None));
        assert!(of(&Datum::Int4(40_000), Oid::INT4).0.is_err());
        let now = SystemTime::now();
        let datum = put(&now, Oid::TIMESTAMPTZ).expect("a time");
        let value = ValueRef::new(&datum, TypeRef::plain(Oid::TIMESTAMPTZ), &shape);
        let back = SystemTime::from_sql(value).expect("a time");
        assert!(now.duration_since(back).expect("not later") < Duration::from_micros(1));
    }
}
