//! Text: concatenation, lengths and casts among the character types.

use super::FnContext;
use super::args::{Any, Char, arity, fns};
use crate::error::Result;
use crate::types::{Datum, Oid, TypeRef, apply_typmod, io, scalar};
use compact_str::CompactString;

fns! {
    fn textcat(_cx; a: &str, b: &str) -> CompactString {
        let mut s = CompactString::with_capacity(a.len() + b.len());
        s.push_str(a);
        s.push_str(b);
        s
    }
    fn bytecat(_cx; a: &[u8], b: &[u8]) -> Vec<u8> { [a, b].concat() }
    fn text_length(_cx; a: &str) -> i32 { a.chars().count() as i32 }
    fn bpchar_length(_cx; a: &str) -> i32 { a.trim_end_matches(' ').chars().count() as i32 }
    fn octet_length(_cx; a: &str) -> i32 { a.len() as i32 }
    fn bit_length(_cx; a: &str) -> i32 { a.len() as i32 * 8 }
    fn byte_length(_cx; a: &[u8]) -> i32 { a.len() as i32 }
    fn byte_bit_length(_cx; a: &[u8]) -> i32 { a.len() as i32 * 8 }

    /// Same text under another name.
    fn same(_cx; a: Any<'_>) -> Datum { a.0.clone() }
    /// char(n) to text: trailing blanks do not count.
    fn bpchar_text(_cx; a: &str) -> &str { a.trim_end_matches(' ') }
    fn text_name(_cx; a: &str) -> &str { scalar::truncate_name(a) }
    fn bpchar_name(_cx; a: &str) -> &str { scalar::truncate_name(a).trim_end_matches(' ') }
    fn char_text(_cx; a: Char) -> CompactString { char_to_text(a) }
    fn text_char(_cx; a: &str) -> Char { Char(scalar::parse_char(a)) }
    fn bool_text(_cx; a: bool) -> &'static str { if a { "true" } else { "false" } }
}

fn char_to_text(c: Char) -> CompactString {
    let mut out = Vec::new();
    scalar::write_char(c.0, &mut out);
    String::from_utf8_lossy(&out).into()
}

/// `varchar(varchar, integer, boolean)`: the length cast.
pub(crate) fn varchar_cast(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    length_cast(Oid::VARCHAR, args)
}

pub(crate) fn bpchar_cast(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    length_cast(Oid::BPCHAR, args)
}

fn length_cast(ty: Oid, args: &[Datum]) -> Result<Datum> {
    let [value, Datum::Int4(typmod), Datum::Bool(explicit)] = args else { return Err(arity()) };
    apply_typmod(value.clone(), TypeRef::new(ty, *typmod), *explicit)
}

/// `text || anything`: the other side as its text.
pub(crate) fn text_any_cat(cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let ([a, b], [ta, tb]) = (args, types) else { return Err(arity()) };
    let mut s = io::to_text(a, *ta, cx);
    s.push_str(&io::to_text(b, *tb, cx));
    Ok(Datum::Text(s))
}
