//! LIKE: `%` for any text, `_` for one character, a backslash makes the next one literal.
//!
//! The matcher walks both texts once and, at a mismatch, goes back to the last `%` only, so it
//! needs no recursion and at worst length times length steps.

use super::args::fns;
use super::string::lowered;
use crate::error::{Result, SqlError, State};

/// Whether `text` matches `pattern`, byte by byte; `same` compares two bytes.
fn matches(text: &[u8], pattern: &[u8], same: impl Fn(u8, u8) -> bool) -> Result<bool> {
    let (mut t, mut p) = (0, 0);
    // Where to resume: pattern after the last %, and the text position it was tried at.
    let mut resume: Option<(usize, usize)> = None;
    loop {
        let fits = match pattern.get(p) {
            Some(b'%') => {
                p += 1;
                if p == pattern.len() {
                    return Ok(true);
                }
                resume = Some((p, t));
                continue;
            }
            None if t == text.len() => return Ok(true),
            None => None,
            Some(_) if t == text.len() => {
                // Only a % could match nothing; but the pattern's end must be well formed.
                check_escape(&pattern[p..])?;
                return Ok(false);
            }
            Some(b'_') => Some((character_len(text, t), 1)),
            Some(b'\\') => {
                let literal = *pattern.get(p + 1).ok_or_else(dangling)?;
                same(text[t], literal).then_some((1, 2))
            }
            Some(b) => same(text[t], *b).then_some((1, 1)),
        };
        match (fits, &mut resume) {
            (Some((dt, dp)), _) => (t, p) = (t + dt, p + dp),
            (None, Some((at, from))) => {
                if *from == text.len() {
                    return Ok(false);
                }
                *from += character_len(text, *from);
                (p, t) = (*at, *from);
            }
            (None, None) => return Ok(false),
        }
    }
}

/// Length of the UTF-8 character at a position.
fn character_len(text: &[u8], at: usize) -> usize {
    let tail = text.get(at + 1..).unwrap_or(&[]);
    1 + tail.iter().take_while(|b| **b & 0xc0 == 0x80).count()
}

#[cold]
fn dangling() -> SqlError {
    SqlError::new(State::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")
}

fn check_escape(pattern: &[u8]) -> Result<()> {
    match pattern {
        [b'\\'] => Err(dangling()),
        _ => Ok(()),
    }
}

pub fn like(text: &str, pattern: &str) -> Result<bool> {
    matches(text.as_bytes(), pattern.as_bytes(), |a, b| a == b)
}

/// Without regard to case: both sides in lower case first, unless all is ASCII.
pub fn ilike(text: &str, pattern: &str) -> Result<bool> {
    if text.is_ascii() && pattern.is_ascii() {
        return matches(text.as_bytes(), pattern.as_bytes(), |a, b| a.eq_ignore_ascii_case(&b));
    }
    like(&lowered(text), &lowered(pattern))
}

/// What a LIKE pattern must begin with, and whether that is all of it: for index ranges.
pub fn fixed_prefix(pattern: &str) -> (String, bool) {
    let mut prefix = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' | '_' => return (prefix, false),
            '\\' => prefix.extend(chars.next()),
            c => prefix.push(c),
        }
    }
    (prefix, true)
}

/// A pattern with its own escape character rewritten to use the backslash; an empty escape means
/// that there is none.
pub fn with_escape(pattern: &str, escape: &str) -> Result<String> {
    let mut chars = escape.chars();
    let (escape, more) = (chars.next(), chars.next());
    if more.is_some() {
        return Err(SqlError::new(State::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .hint("Escape string must be empty or one character."));
    }
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut after_escape = false;
    for c in pattern.chars() {
        if Some(c) == escape && !after_escape {
            out.push('\\');
            after_escape = true;
            continue;
        }
        if c == '\\' && escape != Some('\\') {
            out.push('\\');
            if after_escape {
                // An escaped backslash: one is there already.
                after_escape = false;
                continue;
            }
        }
        out.push(c);
        after_escape = false;
    }
    Ok(out)
}

fns! {
    fn text_like(_cx; a: &str, p: &str) -> bool { like(a, p)? }
    fn text_nlike(_cx; a: &str, p: &str) -> bool { !like(a, p)? }
    fn text_iclike(_cx; a: &str, p: &str) -> bool { ilike(a, p)? }
    fn text_icnlike(_cx; a: &str, p: &str) -> bool { !ilike(a, p)? }
    fn bytea_like(_cx; a: &[u8], p: &[u8]) -> bool { bytes_like(a, p)? }
    fn bytea_nlike(_cx; a: &[u8], p: &[u8]) -> bool { !bytes_like(a, p)? }
    fn like_escape(_cx; pattern: &str, escape: &str) -> String { with_escape(pattern, escape)? }
}

/// Bytes are not characters: `_` is one byte.
fn bytes_like(text: &[u8], pattern: &[u8]) -> Result<bool> {
    // Continuation bytes would be skipped as parts of characters, so each byte becomes a char.
    let widen = |b: &[u8]| b.iter().map(|b| char::from(*b)).collect::<String>();
    like(&widen(text), &widen(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, by recursion.
    fn model(t: &[char], p: &[char]) -> bool {
        match p {
            [] => t.is_empty(),
            ['%', rest @ ..] => (0..=t.len()).any(|n| model(&t[n..], rest)),
            ['_', rest @ ..] => !t.is_empty() && model(&t[1..], rest),
            ['\\', c, rest @ ..] | [c, rest @ ..] => t.first() == Some(c) && model(&t[1..], rest),
        }
    }

    proptest! {
        #[test]
        fn like_is_its_definition(t in "[ab\u{e9}]{0,8}", p in "([ab%_\u{e9}]|\\\\[ab%_]){0,6}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            prop_assert_eq!(like(&t, &p).unwrap(), model(&chars(&t), &chars(&p)));
        }
    }

    #[test]
    fn escapes() {
        assert!(like("a%", "a\\%").unwrap());
        assert!(!like("ab", "a\\%").unwrap());
        assert_eq!(like("a", "a\\").unwrap_err().state.code(), "22025");
        assert_eq!(with_escape("a#%b#_", "#").unwrap(), "a\\%b\\_");
        assert_eq!(with_escape("a\\b", "").unwrap(), "a\\\\b");
        assert!(ilike("\u{c4}B", "\u{e4}_").unwrap());
        assert_eq!(fixed_prefix("ab\\%c%d"), ("ab%c".into(), false));
    }
}
