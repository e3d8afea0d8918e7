//! Relations that stored expressions name by number.
//!
//! A default such as `nextval('t_id_seq'::regclass)` means one sequence, whatever it is called
//! later. The catalog therefore keeps `nextval('16390'::regclass)`, which binds to the same thing
//! for ever, and whoever shows it to people puts today's name in place of the number.

use crate::analyze::quote::quote_literal;
use crate::types::Oid;
use std::borrow::Cow;

const CAST: &str = "::regclass";

/// The end of the quoted piece that starts at `start`: behind its closing quote.
fn quoted_end(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let before = |back: usize| start.checked_sub(back).map(|at| bytes[at]);
    let word = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let escapes = quote == b'\'' && matches!(before(1), Some(b'E' | b'e')) && !word(before(2));
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 1,
            b if b == quote && bytes.get(at + 1) == Some(&quote) => at += 1,
            b if b == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Calls `visit` with the place of each `'123'::regclass` in `text`, and its number.
fn each(text: &str, mut visit: impl FnMut(std::ops::Range<usize>, Oid)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'\'', b'"', &bytes[at..]) {
        let start = at + found;
        at = quoted_end(bytes, start);
        if bytes[start] == b'"' || at < start + 2 {
            continue;
        }
        let rest = &text[at..];
        let follows = rest.strip_prefix(CAST).is_some_and(|after| {
            !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '[')
        });
        let number = &text[start + 1..at - 1];
        if follows
            && number.bytes().all(|b| b.is_ascii_digit())
            && let Ok(oid) = number.parse()
        {
            visit(start..at, Oid(oid));
        }
    }
}

/// The relations that a stored expression names.
pub fn relations(text: &str) -> Vec<Oid> {
    let mut found = Vec::new();
    each(text, |_, oid| {
        if !found.contains(&oid) {
            found.push(oid);
        }
    });
    found
}

/// A stored expression for people: `name` says what a relation is called.
pub fn shown(text: &str, mut name: impl FnMut(Oid) -> Option<String>) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    each(text, |place, oid| {
        if let Some(name) = name(oid) {
            out.push_str(&text[copied..place.start]);
            out.push_str(&quote_literal(&name));
            copied = place.end;
        }
    });
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Cow<'_, str> {
        shown(text, |oid| (oid.0 != 9).then(|| format!("s'{oid}")))
    }

    #[test]
    fn numbers_that_are_regclass_constants_become_names() {
        assert_eq!(named("nextval('17'::regclass)"), "nextval('s''17'::regclass)");
        assert_eq!(named("f('17'::regclass, '18'::regclass)"), {
            "f('s''17'::regclass, 's''18'::regclass)"
        });
        for same in [
            "'17'::text",
            "'17'::regclass[]",
            "'''17''::regclass'::text",
            "\"'17'::regclass\"",
            "E'\\'17'::text || '9'::regclass",
            "'a17'::regclass",
            "'17",
            "",
        ] {
            assert_eq!(named(same), same);
        }
    }

    #[test]
    fn relations_are_listed_once() {
        let text = "(nextval('17'::regclass) + nextval('17'::regclass)) + nextval('3'::regclass)";
        assert_eq!(relations(text), [Oid(17), Oid(3)]);
        assert_eq!(relations("'{17}'::text"), []);
    }
}
