//! Functions and operators of regular expressions over [`super::pattern`].

use super::FnContext;
use super::args::{FromDatum, arg, fns};
use super::pattern::{Options, compile, similar_to_are};
use super::string::char_at;
use crate::error::{Result, SqlError, State};
use crate::types::{ArrayValue, Datum, Oid};
use regex::{Captures, Regex};
use std::rc::Rc;

fn is_match(text: &str, pattern: &str, ignore_case: bool) -> Result<bool> {
    Ok(compile(pattern, Options { ignore_case, ..Options::default() })?.is_match(text))
}

fns! {
    fn regexeq(_cx; a: &str, p: &str) -> bool { is_match(a, p, false)? }
    fn regexne(_cx; a: &str, p: &str) -> bool { !is_match(a, p, false)? }
    fn icregexeq(_cx; a: &str, p: &str) -> bool { is_match(a, p, true)? }
    fn icregexne(_cx; a: &str, p: &str) -> bool { !is_match(a, p, true)? }

    /// substring(text from pattern): the first group if there is one, else the whole match.
    fn substring(_cx; s: &str, p: &str) -> Option<String> { first_part(s, p)? }
    fn substring_similar(_cx; s: &str, p: &str, escape: &str) -> Option<String> {
        first_part(s, &similar_to_are(p, Some(escape))?)?
    }
    fn similar_to_escape(_cx; p: &str, escape: &str) -> String {
        similar_to_are(p, Some(escape))?
    }
    fn similar_to_escape_default(_cx; p: &str) -> String { similar_to_are(p, None)? }
}

/// similar_escape(pattern, escape): a NULL escape means the backslash.
pub(crate) fn similar_escape(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let Some(pattern) = Option::<&str>::get(arg(args, 0))? else { return Ok(Datum::Null) };
    let escape = Option::<&str>::get(arg(args, 1))?;
    similar_to_are(pattern, escape).map(Datum::text)
}

fn first_part(s: &str, pattern: &str) -> Result<Option<String>> {
    let regex = compile(pattern, Options::default())?;
    let Some(found) = regex.captures(s) else { return Ok(None) };
    let part = if found.len() > 1 { found.get(1) } else { found.get(0) };
    Ok(part.map(|m| m.as_str().to_string()))
}

/// The groups of a match, or the whole of it when there are none.
fn groups(found: &Captures<'_>) -> Datum {
    let item = |i: usize| found.get(i).map_or(Datum::Null, |m| Datum::text(m.as_str()));
    let items = if found.len() > 1 { (1..found.len()).map(item).collect() } else { vec![item(0)] };
    Datum::Array(ArrayValue::from_items(Oid::TEXT, items).into())
}

/// Text, pattern and options of a function's first arguments.
struct Call<'a> {
    text: &'a str,
    regex: Rc<Regex>,
    options: Options,
}

fn no_global(function: &str) -> SqlError {
    SqlError::new(
        State::INVALID_PARAMETER_VALUE,
        format!("{function} does not support the \"global\" option"),
    )
}

impl<'a> Call<'a> {
    fn new(args: &'a [Datum], flags_at: usize) -> Result<Call<'a>> {
        let flags = Option::<&str>::get(arg(args, flags_at))?.unwrap_or("");
        let options = Options::parse(flags)?;
        let text = <&str>::get(arg(args, 0))?;
        Ok(Call { text, regex: compile(<&str>::get(arg(args, 1))?, options)?, options })
    }

    fn single(args: &'a [Datum], flags_at: usize, function: &str) -> Result<Call<'a>> {
        let call = Call::new(args, flags_at)?;
        if call.options.global { Err(no_global(function)) } else { Ok(call) }
    }

    /// The rest of the text from a character position, counted from 1.
    fn start(&self, position: i32) -> Result<usize> {
        if position < 1 {
            return Err(bad_parameter("start", position));
        }
        Ok(char_at(self.text, position as usize - 1))
    }
}

fn bad_parameter(name: &str, value: i32) -> SqlError {
    SqlError::new(
        State::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": {value}"),
    )
}

pub(crate) fn regexp_match(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let call = Call::new(args, 2)?;
    if call.options.global {
        return Err(no_global("regexp_match()").hint("Use the regexp_matches function instead."));
    }
    Ok(call.regex.captures(call.text).map_or(Datum::Null, |found| groups(&found)))
}

pub(crate) fn regexp_like(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let call = Call::single(args, 2, "regexp_like()")?;
    Ok(Datum::Bool(call.regex.is_match(call.text)))
}

type Rows = Box<dyn Iterator<Item = Result<Vec<Datum>>> + Send>;

fn rows(values: Vec<Datum>) -> Rows {
    Box::new(values.into_iter().map(|v| Ok(vec![v])))
}

pub(crate) fn regexp_matches(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let call = Call::new(args, 2)?;
    let limit = if call.options.global { usize::MAX } else { 1 };
    Ok(rows(call.regex.captures_iter(call.text).take(limit).map(|c| groups(&c)).collect()))
}

/// Pieces between matches. An empty match at the text's ends or right after another match splits
/// nothing.
fn pieces(call: &Call<'_>) -> Vec<Datum> {
    let mut out = Vec::new();
    let mut from = 0;
    for m in call.regex.find_iter(call.text) {
        if m.is_empty() && (m.start() == from && m.start() == 0 || m.start() == call.text.len()) {
            continue;
        }
        if m.is_empty() && m.start() == from {
            continue;
        }
        out.push(Datum::text(&call.text[from..m.start()]));
        from = m.end();
    }
    out.push(Datum::text(&call.text[from..]));
    out
}

pub(crate) fn split_to_array(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let call = Call::single(args, 2, "regexp_split_to_array()")?;
    Ok(Datum::Array(ArrayValue::from_items(Oid::TEXT, pieces(&call)).into()))
}

pub(crate) fn split_to_table(_cx: &dyn FnContext, args: &[Datum]) -> Result<Rows> {
    let call = Call::single(args, 2, "regexp_split_to_table()")?;
    Ok(rows(pieces(&call)))
}

/// `\1`..`\9` are groups, `\&` the match, `\\` a backslash.
fn expand(template: &str, found: &Captures<'_>, out: &mut String) {
    let mut rest = template;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        rest = match tail.chars().next() {
            Some(d @ '1'..='9') => {
                if let Some(group) = found.get(d as usize - '0' as usize) {
                    out.push_str(group.as_str());
                }
                &tail[1..]
            }
            Some('&') => {
                out.push_str(&found[0]);
                &tail[1..]
            }
            Some('\\') => {
                out.push('\\');
                &tail[1..]
            }
            _ => {
                out.push('\\');
                tail
            }
        };
    }
    out.push_str(rest);
}

/// Replaces the `nth` match from a byte position on, or all of them for 0.
fn replaced(call: &Call<'_>, template: &str, from: usize, nth: usize) -> String {
    let mut out = String::with_capacity(call.text.len());
    let mut last = 0;
    let mut count = 0;
    let mut at = from;
    while let Some(found) = captures_at(&call.regex, call.text, at) {
        let whole = found.get(0).map_or(at..at, |m| m.range());
        count += 1;
        if nth == 0 || count == nth {
            out.push_str(&call.text[last..whole.start]);
            expand(template, &found, &mut out);
            last = whole.end;
            if nth != 0 {
                break;
            }
        }
        match next_search(call.text, &whole) {
            Some(next) => at = next,
            None => break,
        }
    }
    out.push_str(&call.text[last..]);
    out
}

fn captures_at<'t>(regex: &Regex, text: &'t str, at: usize) -> Option<Captures<'t>> {
    regex.captures_at(text, at)
}

/// Where to look for the next match: one character on after an empty one.
fn next_search(text: &str, found: &std::ops::Range<usize>) -> Option<usize> {
    if !found.is_empty() {
        return Some(found.end);
    }
    text[found.end..].chars().next().map(|c| found.end + c.len_utf8())
}

/// regexp_replace(text, pattern, replacement [, flags]).
pub(crate) fn replace(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let flags = Option::<&str>::get(arg(args, 3))?.unwrap_or("");
    if flags.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(SqlError::new(
            State::INVALID_PARAMETER_VALUE,
            format!("invalid regular expression option: \"{}\"", &flags[..1]),
        )
        .hint(
            "If you meant to use regexp_replace() with a start parameter, cast the fourth \
             argument to integer explicitly.",
        ));
    }
    let call = Call::new(args, 3)?;
    let nth = usize::from(!call.options.global);
    Ok(Datum::text(replaced(&call, <&str>::get(arg(args, 2))?, 0, nth)))
}

/// regexp_replace(text, pattern, replacement, start [, n [, flags]]).
pub(crate) fn replace_from(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let call = Call::new(args, 5)?;
    let from = call.start(i32::get(arg(args, 3))?)?;
    let nth = match Option::<i32>::get(arg(args, 4))? {
        Some(n) if n < 0 => return Err(bad_parameter("n", n)),
        Some(n) => n as usize,
        None => 1,
    };
    let nth = if call.options.global && args.len() < 5 { 0 } else { nth };
    Ok(Datum::text(replaced(&call, <&str>::get(arg(args, 2))?, from, nth)))
}

/// Non-overlapping matches from a byte position on.
fn matches_from<'t>(call: &Call<'t>, from: usize) -> Vec<Captures<'t>> {
    let mut found = Vec::new();
    let mut at = Some(from);
    while let Some(captures) = at.and_then(|at| captures_at(&call.regex, call.text, at)) {
        at = captures.get(0).and_then(|m| next_search(call.text, &m.range()));
        found.push(captures);
    }
    found
}

/// regexp_count(text, pattern [, start [, flags]]).
pub(crate) fn count(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let call = Call::single(args, 3, "regexp_count()")?;
    let from = call.start(Option::<i32>::get(arg(args, 2))?.unwrap_or(1))?;
    Ok(Datum::Int4(matches_from(&call, from).len() as i32))
}

/// The `n`th match's group `subexpr` as a byte range.
fn nth_part(
    call: &Call<'_>,
    start: i32,
    n: i32,
    subexpr: i32,
) -> Result<Option<std::ops::Range<usize>>> {
    if n < 1 {
        return Err(bad_parameter("n", n));
    }
    if subexpr < 0 {
        return Err(bad_parameter("subexpr", subexpr));
    }
    let from = call.start(start)?;
    if subexpr as usize >= call.regex.captures_len() {
        return Ok(None);
    }
    let found = matches_from(call, from);
    let captures = found.get(n as usize - 1);
    Ok(captures.and_then(|c| c.get(subexpr as usize)).map(|m| m.range()))
}

fn int_or(args: &[Datum], at: usize, default: i32) -> Result<i32> {
    Ok(Option::<i32>::get(arg(args, at))?.unwrap_or(default))
}

/// regexp_instr(text, pattern [, start [, n [, endoption [, flags [, subexpr]]]]]).
pub(crate) fn instr(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let call = Call::single(args, 5, "regexp_instr()")?;
    let end = int_or(args, 4, 0)?;
    if !(0..=1).contains(&end) {
        return Err(bad_parameter("endoption", end));
    }
    let part = nth_part(&call, int_or(args, 2, 1)?, int_or(args, 3, 1)?, int_or(args, 6, 0)?)?;
    let position = part.map_or(0, |r| {
        let at = if end == 1 { r.end } else { r.start };
        call.text[..at].chars().count() as i32 + 1
    });
    Ok(Datum::Int4(position))
}

/// regexp_substr(text, pattern [, start [, n [, flags [, subexpr]]]]).
pub(crate) fn substr(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    let call = Call::single(args, 4, "regexp_substr()")?;
    let part = nth_part(&call, int_or(args, 2, 1)?, int_or(args, 3, 1)?, int_or(args, 5, 0)?)?;
    Ok(part.map_or(Datum::Null, |r| Datum::text(&call.text[r])))
}
