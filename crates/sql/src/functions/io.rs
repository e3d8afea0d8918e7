//! Input, output, receive and send functions as pg_proc lists them.
//!
//! The server converts values directly through [`crate::types`]; these exist because drivers look
//! them up (`typinput = 'array_in'::regproc`) and because SQL may call some of them.

use super::FnContext;
use super::args::{arg, arity};
use crate::error::{Result, SqlError, State};
use crate::types::{self, Datum, Oid, TypeRef, io};

/// `int4in(cstring)`, `varcharin(cstring, oid, integer)`, ...
pub(crate) fn input<const TYPE: u32>(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(Datum::Text(text)) = args.first() else { return Err(arity()) };
    let typmod = if let Datum::Int4(v) = arg(args, 2) { *v } else { -1 };
    io::text_in(TypeRef::new(Oid(TYPE), typmod), text, cx)
}

/// `array_in(cstring, oid, integer)`: the second argument is the element type.
pub(crate) fn array_in(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let [Datum::Text(text), Datum::Oid(element), Datum::Int4(typmod)] = args else {
        return Err(arity());
    };
    let array = types::array_type(Oid(*element));
    io::text_in(TypeRef::new(array, *typmod), text, cx)
}

pub(crate) fn output<const TYPE: u32>(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let value = args.first().ok_or_else(arity)?;
    Ok(Datum::Text(io::to_text(value, Oid(TYPE), cx)))
}

/// Output of whatever comes: arrays and records know enough of themselves.
pub(crate) fn output_any(cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let (Some(value), Some(ty)) = (args.first(), types.first()) else { return Err(arity()) };
    Ok(Datum::Text(io::to_text(value, *ty, cx)))
}

pub(crate) fn send<const TYPE: u32>(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let mut out = Vec::new();
    io::binary_out(args.first().ok_or_else(arity)?, Oid(TYPE), &mut out)?;
    Ok(Datum::Bytea(out.into()))
}

/// Receive functions read the protocol's buffer, which SQL has no value of; likewise the output
/// of pseudo-types.
pub(crate) fn internal_only(_cx: &dyn FnContext, _args: &[Datum]) -> Result<Datum> {
    Err(SqlError::new(State::FEATURE_NOT_SUPPORTED, "cannot accept a value of type internal"))
}

/// `numerictypmodin(cstring[])`, ...
pub(crate) fn typmod_in<const TYPE: u32>(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(Datum::Array(list)) = args.first() else { return Err(arity()) };
    let mut numbers = Vec::new();
    for item in &list.items {
        let Datum::Text(word) = item else { return Err(arity()) };
        numbers.push(types::scalar::parse_i32(word)?);
    }
    types::typmod::from_list(Oid(TYPE), &numbers).map(Datum::Int4)
}

/// `(10,2)` for numeric(10,2).
pub(crate) fn typmod_out<const TYPE: u32>(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(Datum::Int4(typmod)) = args.first() else { return Err(arity()) };
    Ok(Datum::text(types::typmod::to_suffix(Oid(TYPE), *typmod)))
}
