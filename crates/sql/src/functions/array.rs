//! Array functions and operators.

use super::FnContext;
use super::args::{FromDatum, arg, arity, fns};
use super::int::integer_range;
use crate::error::{Result, SqlError, State};
use crate::types::array::{MAX_DIMS, MAX_ITEMS, is_array_type, too_large, too_many_dims};
use crate::types::record::natural_type;
use crate::types::{self, ArrayValue, Datum, Oid, element_type, io};
use std::sync::Arc;

fn subscript(message: &str) -> SqlError {
    SqlError::new(State::ARRAY_SUBSCRIPT_ERROR, message)
}

/// Length and lower bound of a dimension counted from 1.
fn dimension(a: &ArrayValue, n: i32) -> Option<(i32, i32)> {
    a.dims.get(usize::try_from(n).ok()?.checked_sub(1)?).copied()
}

fns! {
    fn length(_cx; a: &ArrayValue, n: i32) -> Option<i32> { dimension(a, n).map(|d| d.0) }
    fn lower(_cx; a: &ArrayValue, n: i32) -> Option<i32> { dimension(a, n).map(|d| d.1) }
    fn upper(_cx; a: &ArrayValue, n: i32) -> Option<i32> {
        dimension(a, n).map(|d| d.0 + d.1 - 1)
    }
    fn ndims(_cx; a: &ArrayValue) -> Option<i32> {
        (!a.dims.is_empty()).then_some(a.dims.len() as i32)
    }
    fn dims(_cx; a: &ArrayValue) -> Option<String> {
        let text = a.dims.iter().map(|(n, low)| format!("[{low}:{}]", low + n - 1));
        (!a.dims.is_empty()).then(|| text.collect())
    }
    fn cardinality(_cx; a: &ArrayValue) -> i32 { a.items.len() as i32 }
    fn contains(_cx; a: &ArrayValue, b: &ArrayValue) -> bool { all_in(b, a) }
    fn contained(_cx; a: &ArrayValue, b: &ArrayValue) -> bool { all_in(a, b) }
    fn overlaps(_cx; a: &ArrayValue, b: &ArrayValue) -> bool {
        a.items.iter().any(|x| !x.is_null() && has(b, x))
    }
    fn trim(_cx; a: &ArrayValue, n: i32) -> ArrayValue { trimmed(a, n)? }
}

fn same(a: &Datum, b: &Datum) -> bool {
    types::compare(a, b).is_eq()
}

fn has(a: &ArrayValue, x: &Datum) -> bool {
    a.items.iter().any(|y| !y.is_null() && same(x, y))
}

/// Whether every item of `a` occurs in `b`; NULL occurs nowhere.
fn all_in(a: &ArrayValue, b: &ArrayValue) -> bool {
    a.items.iter().all(|x| !x.is_null() && has(b, x))
}

fn trimmed(a: &ArrayValue, n: i32) -> Result<ArrayValue> {
    let length = a.dims.first().map_or(0, |d| d.0);
    if n < 0 || n > length {
        return Err(subscript(&format!(
            "number of elements to trim must be between 0 and {length}"
        )));
    }
    if n == length {
        return Ok(ArrayValue::empty(a.element));
    }
    let row = a.items.len() / length as usize;
    let mut out = a.clone();
    out.dims[0] = (length - n, 1);
    for d in &mut out.dims {
        d.1 = 1;
    }
    out.items.truncate(row * (length - n) as usize);
    Ok(out)
}

/// The array among an argument's types, or what the element's value shows.
fn element_of(types: &[Oid], array_at: usize, sample: &Datum) -> Oid {
    let declared = types.get(array_at).copied().filter(|t| is_array_type(*t));
    declared.and_then(element_type).unwrap_or_else(|| natural_type(sample))
}

fn one_dimension(a: &ArrayValue) -> Result<()> {
    if a.dims.len() > 1 {
        return Err(SqlError::new(
            State::from_code("22000"),
            "argument must be empty or one-dimensional array",
        ));
    }
    Ok(())
}

/// array_append(array, element), array_prepend(element, array).
fn add_item(types: &[Oid], args: &[Datum], array_at: usize) -> Result<Datum> {
    let item = arg(args, 1 - array_at);
    let mut out = match Option::<&ArrayValue>::get(arg(args, array_at))? {
        Some(a) => a.clone(),
        None => ArrayValue::empty(element_of(types, array_at, item)),
    };
    one_dimension(&out)?;
    if out.items.len() >= MAX_ITEMS {
        return Err(too_large());
    }
    if out.dims.is_empty() {
        out.dims.push((0, 1));
    }
    let (length, low) = &mut out.dims[0];
    *length += 1;
    if array_at == 0 {
        low.checked_add(*length - 1).ok_or_else(integer_range)?;
        out.items.push(item.clone());
    } else {
        // The lower bound stays what it was, as in PostgreSQL.
        out.items.insert(0, item.clone());
    }
    Ok(Datum::Array(Arc::new(out)))
}

pub(crate) fn append(_cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    add_item(types, args, 0)
}

pub(crate) fn prepend(_cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    add_item(types, args, 1)
}

/// array_cat: arrays of one shape, or one whose items have the other's shape.
pub(crate) fn cat(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let (a, b) = match (arg(args, 0), arg(args, 1)) {
        (Datum::Array(a), Datum::Array(b)) => (a, b),
        (Datum::Null, other) | (other, Datum::Null) => return Ok(other.clone()),
        _ => return Err(arity()),
    };
    if a.dims.is_empty() {
        return Ok(Datum::Array(b.clone()));
    }
    if b.dims.is_empty() {
        return Ok(Datum::Array(a.clone()));
    }
    let incompatible = |detail: &str| {
        subscript("cannot concatenate incompatible arrays").detail(detail.to_string())
    };
    let tail = |v: &[(i32, i32)]| v.iter().map(|d| d.0).collect::<Vec<_>>();
    let mut dims;
    match a.dims.len() as i32 - b.dims.len() as i32 {
        0 => {
            if tail(&a.dims[1..]) != tail(&b.dims[1..]) {
                return Err(incompatible(
                    "Arrays with differing element dimensions are not compatible for \
                     concatenation.",
                ));
            }
            dims = a.dims.clone();
            dims[0].0 += b.dims[0].0;
        }
        1 | -1 => {
            let (outer, inner) = if a.dims.len() > b.dims.len() { (a, b) } else { (b, a) };
            if tail(&outer.dims[1..]) != tail(&inner.dims) {
                return Err(incompatible(
                    "Arrays with differing dimensions are not compatible for concatenation.",
                ));
            }
            dims = outer.dims.clone();
            dims[0].0 += 1;
        }
        _ => {
            return Err(incompatible(&format!(
                "Arrays of {} and {} dimensions are not compatible for concatenation.",
                a.dims.len(),
                b.dims.len()
            )));
        }
    }
    if a.items.len() + b.items.len() > MAX_ITEMS {
        return Err(too_large());
    }
    let items = a.items.iter().chain(&b.items).cloned().collect();
    Ok(Datum::Array(ArrayValue { element: a.element, dims, items }.into()))
}

/// Equality that holds between NULLs: what array_remove and array_position search by.
fn not_distinct(a: &Datum, b: &Datum) -> bool {
    match (a.is_null(), b.is_null()) {
        (false, false) => same(a, b),
        (x, y) => x && y,
    }
}

pub(crate) fn remove(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(a) = Option::<&ArrayValue>::get(arg(args, 0))? else { return Ok(Datum::Null) };
    if a.dims.len() > 1 {
        return Err(SqlError::unsupported("removing elements from multidimensional arrays"));
    }
    let wanted = arg(args, 1);
    let items: Vec<Datum> = a.items.iter().filter(|x| !not_distinct(x, wanted)).cloned().collect();
    if items.len() == a.items.len() {
        return Ok(arg(args, 0).clone());
    }
    let mut out = ArrayValue::from_items(a.element, items);
    if let (Some(d), Some(old)) = (out.dims.first_mut(), a.dims.first()) {
        d.1 = old.1;
    }
    Ok(Datum::Array(out.into()))
}

pub(crate) fn replace(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(a) = Option::<&ArrayValue>::get(arg(args, 0))? else { return Ok(Datum::Null) };
    let (from, to) = (arg(args, 1), arg(args, 2));
    let mut out = a.clone();
    for x in out.items.iter_mut().filter(|x| not_distinct(x, from)) {
        *x = to.clone();
    }
    Ok(Datum::Array(out.into()))
}

/// array_position(array, element [, start]).
pub(crate) fn position(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(a) = Option::<&ArrayValue>::get(arg(args, 0))? else { return Ok(Datum::Null) };
    searchable(a)?;
    let low = a.dims.first().map_or(1, |d| d.1);
    let skip = match args.get(2) {
        None => 0,
        Some(Datum::Null) => {
            return Err(SqlError::new(
                State::NULL_VALUE_NOT_ALLOWED,
                "initial position must not be null",
            ));
        }
        Some(start) => (i64::from(i32::get(start)?) - i64::from(low)).max(0) as usize,
    };
    let found = a.items.iter().skip(skip).position(|x| not_distinct(x, arg(args, 1)));
    Ok(found.map_or(Datum::Null, |at| Datum::Int4(low + (at + skip) as i32)))
}

pub(crate) fn positions(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(a) = Option::<&ArrayValue>::get(arg(args, 0))? else { return Ok(Datum::Null) };
    searchable(a)?;
    let low = a.dims.first().map_or(1, |d| d.1);
    let found = (low..).zip(&a.items).filter(|(_, x)| not_distinct(x, arg(args, 1)));
    let items = found.map(|(at, _)| Datum::Int4(at)).collect();
    Ok(Datum::Array(ArrayValue::from_items(Oid::INT4, items).into()))
}

fn searchable(a: &ArrayValue) -> Result<()> {
    if a.dims.len() > 1 {
        return Err(SqlError::unsupported("searching for elements in multidimensional arrays"));
    }
    Ok(())
}

/// array_fill(value, lengths [, lower bounds]).
pub(crate) fn fill(_cx: &dyn FnContext, types: &[Oid], args: &[Datum]) -> Result<Datum> {
    let null =
        |what: &str| SqlError::new(State::NULL_VALUE_NOT_ALLOWED, format!("{what} cannot be null"));
    let numbers = |at: usize, what: &str| -> Result<Vec<i32>> {
        let list = Option::<&ArrayValue>::get(arg(args, at))?
            .ok_or_else(|| null("dimension array or low bound array"))?;
        if list.dims.len() > 1 {
            return Err(subscript("wrong number of array subscripts")
                .detail(format!("{what} array must be one dimensional.")));
        }
        list.items.iter().map(|d| i32::get(d).map_err(|_| null("dimension values"))).collect()
    };
    let lengths = numbers(1, "Dimension")?;
    let lows = if args.len() > 2 { numbers(2, "Low bound")? } else { vec![1; lengths.len()] };
    if lows.len() != lengths.len() {
        return Err(subscript("wrong number of array subscripts")
            .detail("Low bound array has different size than dimensions array."));
    }
    if lengths.len() > MAX_DIMS {
        return Err(too_many_dims(lengths.len()));
    }
    let value = arg(args, 0);
    let element = types.first().copied().filter(|t| *t != Oid::UNKNOWN);
    let element = element.unwrap_or_else(|| natural_type(value));
    let mut count = 1usize;
    for n in &lengths {
        let n = usize::try_from(*n).map_err(|_| too_large())?;
        count = count.checked_mul(n).filter(|c| *c <= MAX_ITEMS).ok_or_else(too_large)?;
    }
    if lengths.is_empty() || count == 0 {
        return Ok(Datum::Array(ArrayValue::empty(element).into()));
    }
    let dims = lengths.into_iter().zip(lows).collect();
    let items = vec![value.clone(); count];
    Ok(Datum::Array(ArrayValue { element, dims, items }.into()))
}

/// array_to_string(array, separator [, what NULL is]): without the third NULLs are left out.
pub(crate) fn to_string(cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let (Some(a), Some(separator)) =
        (Option::<&ArrayValue>::get(arg(args, 0))?, Option::<&str>::get(arg(args, 1))?)
    else {
        return Ok(Datum::Null);
    };
    let null_text = Option::<&str>::get(arg(args, 2))?;
    let mut out = Vec::new();
    let mut first = true;
    for item in &a.items {
        if item.is_null() && null_text.is_none() {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.extend_from_slice(separator.as_bytes());
        }
        match null_text {
            Some(text) if item.is_null() => out.extend_from_slice(text.as_bytes()),
            _ => io::output(item, a.element, cx, &mut out),
        }
    }
    Ok(Datum::text(String::from_utf8_lossy(&out).into_owned()))
}

/// The pieces of a text: by a separator, into characters for NULL, whole for the empty one.
fn split(args: &[Datum]) -> Result<Option<Vec<Datum>>> {
    let Some(text) = Option::<&str>::get(arg(args, 0))? else { return Ok(None) };
    let null_text = Option::<&str>::get(arg(args, 2))?;
    let piece = |s: &str| if null_text == Some(s) { Datum::Null } else { Datum::text(s) };
    Ok(Some(match Option::<&str>::get(arg(args, 1))? {
        _ if text.is_empty() => Vec::new(),
        None => text.chars().map(|c| piece(c.encode_utf8(&mut [0; 4]))).collect(),
        Some("") => vec![piece(text)],
        Some(by) => text.split(by).map(piece).collect(),
    }))
}

pub(crate) fn from_string(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let items = split(args)?;
    Ok(items
        .map_or(Datum::Null, |items| Datum::Array(ArrayValue::from_items(Oid::TEXT, items).into())))
}

type Rows = Box<dyn Iterator<Item = Result<Vec<Datum>>> + Send>;

pub(crate) fn string_to_table(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let items = split(args)?.unwrap_or_default();
    Ok(Box::new(items.into_iter().map(|v| Ok(vec![v]))))
}

pub(crate) fn unnest(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let Some(Datum::Array(a)) = args.first() else { return Ok(Box::new(std::iter::empty())) };
    let a = a.clone();
    Ok(Box::new((0..a.items.len()).map(move |i| Ok(vec![a.items[i].clone()]))))
}

/// generate_subscripts(array, dimension [, reverse]).
pub(crate) fn subscripts(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let found = match (arg(args, 0), arg(args, 1)) {
        (Datum::Array(a), Datum::Int4(n)) => dimension(a, *n),
        _ => None,
    };
    let Some((length, low)) = found else { return Ok(Box::new(std::iter::empty())) };
    let range = low..low + length;
    if matches!(arg(args, 2), Datum::Bool(true)) {
        return Ok(Box::new(range.rev().map(|v| Ok(vec![Datum::Int4(v)]))));
    }
    Ok(Box::new(range.map(|v| Ok(vec![Datum::Int4(v)]))))
}

/// `{a=b,c}` of pg_class.reloptions and the like as (name, value) rows.
pub(crate) fn options_to_table(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let Some(Datum::Array(a)) = args.first() else { return Ok(Box::new(std::iter::empty())) };
    let mut rows = Vec::new();
    for item in &a.items {
        let text = <&str>::get(item)?;
        rows.push(Ok(match text.split_once('=') {
            Some((name, value)) => vec![Datum::text(name), Datum::text(value)],
            None => vec![Datum::text(text), Datum::Null],
        }));
    }
    Ok(Box::new(rows.into_iter()))
}
