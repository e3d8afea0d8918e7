//! Arrays as text and as bytes, and the space-separated vectors of the catalog.
//!
//! ```text
//!   {1,2,NULL}   {{a,b},{"c d",""}}   [0:1]={1,2}
//! ```
//!
//! An element is quoted in output when it is empty, spells NULL, or holds a brace, quote,
//! backslash, comma or blank. Input reports what is wrong in the detail, as PostgreSQL does.

use super::io::{self, Output};
use super::{ArrayValue, Datum, Oid, TypeRef, element_type, info, scalar};
use crate::error::{Result, SqlError, State};
use crate::functions::FnContext;

/// Most dimensions of an array.
pub const MAX_DIMS: usize = 6;
/// Most elements of an array.
pub const MAX_ITEMS: usize = 134_217_727;

impl ArrayValue {
    /// A one-dimensional array counted from 1; no dimension at all when it is empty.
    pub fn from_items(element: Oid, items: Vec<Datum>) -> ArrayValue {
        let dims = if items.is_empty() { Vec::new() } else { vec![(items.len() as i32, 1)] };
        ArrayValue { element, dims, items }
    }

    pub fn empty(element: Oid) -> ArrayValue {
        ArrayValue { element, dims: Vec::new(), items: Vec::new() }
    }

    /// An int2vector or oidvector: one dimension counted from 0.
    pub fn vector(element: Oid, items: Vec<Datum>) -> ArrayValue {
        ArrayValue { element, dims: vec![(items.len() as i32, 0)], items }
    }
}

fn malformed(s: &str, detail: &str) -> SqlError {
    SqlError::new(State::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{s}\""))
        .detail(detail)
}

pub fn too_large() -> SqlError {
    SqlError::new(
        State::PROGRAM_LIMIT_EXCEEDED,
        format!("array size exceeds the maximum allowed ({MAX_ITEMS})"),
    )
}

pub fn too_many_dims(found: usize) -> SqlError {
    SqlError::new(
        State::PROGRAM_LIMIT_EXCEEDED,
        format!("number of array dimensions ({found}) exceeds the maximum allowed ({MAX_DIMS})"),
    )
}

/// Space-separated numbers: int2vector and oidvector.
pub fn parse_vector(ty: Oid, s: &str) -> Result<Datum> {
    let element = if ty == Oid::INT2VECTOR { Oid::INT2 } else { Oid::OID };
    let items = s.split(scalar::is_space).filter(|w| !w.is_empty()).map(|word| {
        if element == Oid::INT2 {
            scalar::parse_i16(word).map(Datum::Int2)
        } else {
            scalar::parse_oid(word, "oid").map(Datum::Oid)
        }
    });
    let items = items.collect::<Result<Vec<_>>>()?;
    Ok(Datum::Array(ArrayValue::vector(element, items).into()))
}

pub fn write_vector(v: &ArrayValue, cx: &Output<'_>, out: &mut Vec<u8>) {
    for (i, item) in v.items.iter().enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        io::write(item, v.element, cx, out);
    }
}

/// Reads an array of type `ty`; the modifier goes to the elements.
pub fn parse(ty: TypeRef, s: &str, cx: &dyn FnContext) -> Result<Datum> {
    let element = element_type(ty.oid).ok_or_else(|| SqlError::internal("not an array type"))?;
    let mut p = Parser {
        text: s,
        at: 0,
        element: TypeRef::new(element, ty.typmod),
        cx,
        items: Vec::new(),
        lengths: [None; MAX_DIMS],
        depth_seen: None,
    };
    p.blanks();
    let bounds = p.bounds()?;
    if p.peek() != Some(b'{') {
        let detail = if bounds.is_empty() {
            "Array value must start with \"{\" or dimension information."
        } else {
            "Array contents must start with \"{\"."
        };
        return Err(malformed(s, detail));
    }
    p.braces(0)?;
    p.blanks();
    if p.at != s.len() {
        return Err(malformed(s, "Junk after closing right brace."));
    }
    p.finish(&bounds)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    element: TypeRef,
    cx: &'a dyn FnContext,
    items: Vec<Datum>,
    /// Length of each dimension, known once its first brace closed.
    lengths: [Option<i32>; MAX_DIMS],
    /// At which depth the elements are.
    depth_seen: Option<usize>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|b| scalar::is_space(b as char)) {
            self.at += 1;
        }
    }

    fn fail<T>(&self, detail: &str) -> Result<T> {
        Err(malformed(self.text, detail))
    }

    /// `[1:2][0:3]=`: lower and upper bounds.
    fn bounds(&mut self) -> Result<Vec<(i32, i32)>> {
        let mut bounds = Vec::new();
        while self.peek() == Some(b'[') {
            if bounds.len() >= MAX_DIMS {
                return Err(too_many_dims(bounds.len() + 1));
            }
            self.at += 1;
            let mut lower = 1;
            let mut upper = self.bound()?;
            if self.peek() == Some(b':') {
                self.at += 1;
                lower = upper;
                upper = self.bound()?;
            }
            if self.peek() != Some(b']') {
                return self.fail("Missing \"]\" after array dimensions.");
            }
            self.at += 1;
            if upper < lower {
                return Err(SqlError::new(
                    State::ARRAY_SUBSCRIPT_ERROR,
                    "upper bound cannot be less than lower bound",
                ));
            }
            bounds.push((lower, upper));
            self.blanks();
        }
        if !bounds.is_empty() {
            if self.peek() != Some(b'=') {
                return self.fail("Missing \"=\" after array dimensions.");
            }
            self.at += 1;
            self.blanks();
        }
        Ok(bounds)
    }

    fn bound(&mut self) -> Result<i32> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-')) {
            self.at += 1;
        }
        match self.text[start..self.at].parse() {
            Ok(v) => Ok(v),
            Err(_) => self.fail("\"[\" must introduce explicitly-specified array dimensions."),
        }
    }

    /// One `{...}` at a depth.
    fn braces(&mut self, depth: usize) -> Result<()> {
        if depth >= MAX_DIMS {
            return Err(too_many_dims(depth + 1));
        }
        self.at += 1;
        self.blanks();
        let mut count = 0;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return self.close(depth, count);
        }
        loop {
            self.blanks();
            match self.peek() {
                Some(b'{') => {
                    if self.depth_seen.is_some_and(|d| d <= depth) {
                        return self.fail("Unexpected \"{\" character.");
                    }
                    self.braces(depth + 1)?;
                }
                None => return self.fail("Unexpected end of input."),
                _ => self.element(depth)?,
            }
            count += 1;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return self.close(depth, count);
                }
                Some(_) => return self.fail("Unexpected array element."),
                None => return self.fail("Unexpected end of input."),
            }
        }
    }

    fn close(&mut self, depth: usize, count: i32) -> Result<()> {
        match self.lengths[depth] {
            Some(n) if n != count => {
                self.fail("Multidimensional arrays must have sub-arrays with matching dimensions.")
            }
            _ => {
                self.lengths[depth] = Some(count);
                Ok(())
            }
        }
    }

    fn element(&mut self, depth: usize) -> Result<()> {
        if *self.depth_seen.get_or_insert(depth) != depth {
            return self
                .fail("Multidimensional arrays must have sub-arrays with matching dimensions.");
        }
        let (word, quoted) =
            if self.peek() == Some(b'"') { (self.quoted()?, true) } else { self.bare()? };
        if self.items.len() >= MAX_ITEMS {
            return Err(too_large());
        }
        let value = if !quoted && word.eq_ignore_ascii_case("null") {
            Datum::Null
        } else {
            io::text_in(self.element, &word, self.cx)?
        };
        self.items.push(value);
        Ok(())
    }

    fn quoted(&mut self) -> Result<String> {
        self.at += 1;
        let mut word = String::new();
        loop {
            let Some(c) = self.text[self.at..].chars().next() else {
                return self.fail("Unexpected end of input.");
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(word),
                '\\' => {
                    let Some(c) = self.text[self.at..].chars().next() else {
                        return self.fail("Unexpected end of input.");
                    };
                    self.at += c.len_utf8();
                    word.push(c);
                }
                c => word.push(c),
            }
        }
    }

    /// An unquoted element without its trailing blanks, and whether a backslash made it literal.
    fn bare(&mut self) -> Result<(String, bool)> {
        let mut word = String::new();
        let mut keep = 0;
        let mut escaped = false;
        loop {
            let Some(c) = self.text[self.at..].chars().next() else {
                return self.fail("Unexpected end of input.");
            };
            match c {
                ',' | '}' => break,
                '"' => return self.fail("Incorrectly quoted array element."),
                '{' => return self.fail("Unexpected \"{\" character."),
                '\\' => {
                    self.at += 1;
                    let Some(c) = self.text[self.at..].chars().next() else {
                        return self.fail("Unexpected end of input.");
                    };
                    self.at += c.len_utf8();
                    word.push(c);
                    keep = word.len();
                    escaped = true;
                }
                c => {
                    self.at += c.len_utf8();
                    word.push(c);
                    if !scalar::is_space(c) {
                        keep = word.len();
                    }
                }
            }
        }
        word.truncate(keep);
        if word.is_empty() {
            let found = self.peek().map_or(',', |b| b as char);
            return self.fail(&format!("Unexpected \"{found}\" character."));
        }
        Ok((word, escaped))
    }

    fn finish(self, bounds: &[(i32, i32)]) -> Result<Datum> {
        let element = self.element.oid;
        if self.items.is_empty() {
            return Ok(Datum::Array(ArrayValue::empty(element).into()));
        }
        let lengths: Vec<i32> = self.lengths.iter().map_while(|n| *n).collect();
        let dims = if bounds.is_empty() {
            lengths.iter().map(|n| (*n, 1)).collect()
        } else {
            let given: Vec<i32> = bounds.iter().map(|(l, u)| u - l + 1).collect();
            if given != lengths {
                return self.fail("Specified array dimensions do not match array contents.");
            }
            bounds.iter().map(|(l, u)| (u - l + 1, *l)).collect()
        };
        Ok(Datum::Array(ArrayValue { element, dims, items: self.items }.into()))
    }
}

pub fn write(v: &ArrayValue, cx: &Output<'_>, out: &mut Vec<u8>) {
    if v.items.is_empty() {
        out.extend_from_slice(b"{}");
        return;
    }
    if v.dims.iter().any(|d| d.1 != 1) {
        for (len, lower) in &v.dims {
            out.push(b'[');
            scalar::write_int(*lower, out);
            out.push(b':');
            scalar::write_int(lower + len - 1, out);
            out.push(b']');
        }
        out.push(b'=');
    }
    let mut items = v.items.iter();
    write_level(&v.dims, &mut items, v.element, cx, out);
}

fn write_level(
    dims: &[(i32, i32)],
    items: &mut std::slice::Iter<'_, Datum>,
    element: Oid,
    cx: &Output<'_>,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let Some((first, rest)) = dims.split_first() else {
        out.push(b'}');
        return;
    };
    for i in 0..first.0 {
        if i > 0 {
            out.push(b',');
        }
        if rest.is_empty() {
            write_element(items.next().unwrap_or(&Datum::Null), element, cx, out);
        } else {
            write_level(rest, items, element, cx, out);
        }
    }
    out.push(b'}');
}

fn write_element(d: &Datum, element: Oid, cx: &Output<'_>, out: &mut Vec<u8>) {
    if d.is_null() {
        out.extend_from_slice(b"NULL");
        return;
    }
    let start = out.len();
    io::write(d, element, cx, out);
    if needs_quotes(&out[start..]) {
        let plain = out.split_off(start);
        write_quoted(&plain, out);
    }
}

fn needs_quotes(text: &[u8]) -> bool {
    text.is_empty()
        || text.eq_ignore_ascii_case(b"null")
        || text
            .iter()
            .any(|b| matches!(b, b'{' | b'}' | b'"' | b'\\' | b',') || scalar::is_space(*b as char))
}

fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &b in text {
        if matches!(b, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(b);
    }
    out.push(b'"');
}

fn short() -> SqlError {
    SqlError::new(State::PROTOCOL_VIOLATION, "insufficient data left in message")
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(len).ok_or_else(short)?;
    *bytes = tail;
    Ok(head)
}

fn take_i32(bytes: &mut &[u8]) -> Result<i32> {
    let four = take(bytes, 4)?;
    Ok(i32::from_be_bytes(four.try_into().map_err(|_| short())?))
}

/// Dimensions, flags, element type, then (length, lower bound) a dimension, then the elements.
pub fn binary_in(element: Oid, mut bytes: &[u8]) -> Result<Datum> {
    let invalid = |m: String| SqlError::new(State::INVALID_BINARY_REPRESENTATION, m);
    let b = &mut bytes;
    let ndim = take_i32(b)?;
    if ndim < 0 {
        return Err(invalid(format!("invalid number of dimensions: {ndim}")));
    }
    if ndim as usize > MAX_DIMS {
        return Err(too_many_dims(ndim as usize));
    }
    let flags = take_i32(b)?;
    if !matches!(flags, 0 | 1) {
        return Err(invalid("invalid array flags".into()));
    }
    let sent = Oid(take_i32(b)? as u32);
    if sent != element {
        let name = |oid: Oid| super::format_type(oid, -1);
        return Err(SqlError::new(
            State::DATATYPE_MISMATCH,
            format!(
                "binary data has array element type {} ({}) instead of expected {} ({})",
                sent,
                name(sent),
                element,
                name(element)
            ),
        ));
    }
    let mut dims = Vec::with_capacity(ndim as usize);
    let mut count: usize = if ndim == 0 { 0 } else { 1 };
    for _ in 0..ndim {
        let (len, lower) = (take_i32(b)?, take_i32(b)?);
        if len < 0 || lower.checked_add(len).is_none() {
            return Err(too_large());
        }
        count =
            count.checked_mul(len as usize).filter(|n| *n <= MAX_ITEMS).ok_or_else(too_large)?;
        dims.push((len, lower));
    }
    let mut items = Vec::with_capacity(count.min(b.len() / 4 + 1));
    for _ in 0..count {
        let len = take_i32(b)?;
        items.push(match len {
            -1 => Datum::Null,
            len if len >= 0 => io::binary_in(TypeRef::plain(element), take(b, len as usize)?)?,
            _ => return Err(short()),
        });
    }
    if !b.is_empty() {
        return Err(invalid("improper binary format in array".into()));
    }
    if items.is_empty() {
        dims.clear();
    }
    Ok(Datum::Array(ArrayValue { element, dims, items }.into()))
}

pub fn binary_out(v: &ArrayValue, out: &mut Vec<u8>) -> Result<()> {
    let has_null = v.items.iter().any(Datum::is_null);
    out.extend((v.dims.len() as i32).to_be_bytes());
    out.extend(i32::from(has_null).to_be_bytes());
    out.extend(v.element.0.to_be_bytes());
    for (len, lower) in &v.dims {
        out.extend(len.to_be_bytes());
        out.extend(lower.to_be_bytes());
    }
    for item in &v.items {
        write_sized(item, v.element, out)?;
    }
    Ok(())
}

/// A value after its length; NULL is the length -1.
pub fn write_sized(d: &Datum, ty: Oid, out: &mut Vec<u8>) -> Result<()> {
    if d.is_null() {
        out.extend((-1i32).to_be_bytes());
        return Ok(());
    }
    let at = out.len();
    out.extend([0; 4]);
    io::binary_out(d, ty, out)?;
    let len = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Whether values of this type are arrays (the catalog's vectors included).
pub fn is_array_type(oid: Oid) -> bool {
    info(oid).is_some_and(|t| t.is_array() || matches!(oid, Oid::INT2VECTOR | Oid::OIDVECTOR))
}
