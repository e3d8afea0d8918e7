//! Lifting literals out of a statement's text, so that statements that differ in nothing else are
//! one statement with parameters.
//!
//! ```text
//!   update t set n = n + -7 where k = 'a'
//!   update t set n = n + -$1 where k = $2      7 (integer), 'a' (its type is yet to be found)
//! ```
//!
//! A lexer, not a parser: it knows where literals, names and quotes end, and gives up on whatever
//! is rarer than that (comments, dollar quotes, escapes, parameters of its own). The lifted text
//! goes through grammar and analysis like any other; what they refuse, or understand otherwise
//! than the original, is not lifted (`session/statement_cache.rs` sees to that).
//!
//! Left in their place, because they mean more than their value: literals in or after ORDER BY and
//! GROUP BY (positions), of LIMIT, OFFSET and FETCH (they decide the plan), of LIKE (so may they),
//! and integers that are no `integer`.

use crate::types::{Datum, Oid, TypeRef, text_in};

/// A statement with more literals than this is no template.
const MAX_LITERALS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LiteralKind {
    Integer,
    Numeric,
    /// Quoted; the context gives it a type.
    Text,
}

impl LiteralKind {
    /// The type that the parameter is declared with; invalid: to be inferred.
    pub fn declared(self) -> Oid {
        match self {
            LiteralKind::Integer => Oid::INT4,
            LiteralKind::Numeric => Oid::NUMERIC,
            LiteralKind::Text => Oid::INVALID,
        }
    }
}

/// A literal's place in the original text; without its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal {
    pub kind: LiteralKind,
    start: usize,
    end: usize,
}

impl Literal {
    /// Its value as the type that analysis found; None: it has none, and analysis has to say so.
    pub fn value(&self, sql: &str, ty: Oid, fx: &dyn crate::functions::FnContext) -> Option<Datum> {
        let text = &sql[self.start..self.end];
        match self.kind {
            LiteralKind::Integer => text.parse().ok().map(Datum::Int4),
            LiteralKind::Numeric => text_in(TypeRef::plain(ty), text, fx).ok(),
            LiteralKind::Text if text.contains('\'') => {
                text_in(TypeRef::plain(ty), &text.replace("''", "'"), fx).ok()
            }
            LiteralKind::Text => text_in(TypeRef::plain(ty), text, fx).ok(),
        }
    }
}

/// The lifted text and what was lifted; kept, so that its buffers are.
#[derive(Default, Debug)]
pub(crate) struct Lifted {
    pub text: String,
    pub literals: Vec<Literal>,
}

impl Lifted {
    /// Lifts `sql`; false: it is not of the kind that can be.
    pub fn lift(&mut self, sql: &str) -> bool {
        self.text.clear();
        self.literals.clear();
        let bytes = sql.as_bytes();
        let start = bytes.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(bytes.len());
        let word_end =
            start + bytes[start..].iter().take_while(|b| b.is_ascii_alphabetic()).count();
        let lifts = match kind_of(&sql[start..word_end]) {
            Some(lifts) => lifts,
            None => return false,
        };
        let mut lexer = Lexer { sql, bytes, at: start, keep: Keep::Nothing, out: self };
        lexer.run() && (lifts || self.literals.is_empty())
    }

    fn push(&mut self, kind: LiteralKind, start: usize, end: usize) {
        self.literals.push(Literal { kind, start, end });
        self.text.push('$');
        let mut digits = itoa::Buffer::new();
        self.text.push_str(digits.format(self.literals.len()));
    }
}

/// Whether a statement that begins so may have literals lifted; None: it is not looked at.
fn kind_of(word: &str) -> Option<bool> {
    let is = |list: &[&str]| list.iter().any(|w| word.eq_ignore_ascii_case(w));
    if is(&["select", "insert", "update", "delete", "with", "values"]) {
        Some(true)
    } else if is(&["begin", "commit", "end", "rollback", "start", "abort", "savepoint", "release"])
    {
        Some(false)
    } else {
        None
    }
}

/// Which literals stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    Next,
    Rest,
}

struct Lexer<'a> {
    sql: &'a str,
    bytes: &'a [u8],
    at: usize,
    keep: Keep,
    out: &'a mut Lifted,
}

impl Lexer<'_> {
    /// True: the whole text was understood, and is one statement.
    fn run(&mut self) -> bool {
        while let Some(&b) = self.bytes.get(self.at) {
            let next = self.bytes.get(self.at + 1).copied().unwrap_or(0);
            let understood = match b {
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word(),
                b'0'..=b'9' => self.number(),
                b'.' if next.is_ascii_digit() => false,
                b'\'' => self.string(),
                b'"' => self.quoted_name(),
                b';' => return self.bytes[self.at + 1..].iter().all(u8::is_ascii_whitespace),
                b'$' | b'\\' | 0 => false,
                b'-' if next == b'-' => false,
                b'/' if next == b'*' => false,
                _ => {
                    self.copy_to(self.at + 1);
                    true
                }
            };
            if !understood || self.out.literals.len() > MAX_LITERALS {
                return false;
            }
        }
        true
    }

    fn copy_to(&mut self, end: usize) {
        self.out.text.push_str(&self.sql[self.at..end]);
        self.at = end;
    }

    /// A run of bytes that a name may have, from `from`.
    fn name_end(&self, from: usize) -> usize {
        let part = |b: &&u8| b.is_ascii_alphanumeric() || matches!(**b, b'_' | b'$' | 0x80..);
        from + self.bytes[from..].iter().take_while(part).count()
    }

    fn word(&mut self) -> bool {
        let end = self.name_end(self.at);
        // A prefix makes another kind of string: E'..', B'..', U&'..'.
        let follow = (self.bytes.get(end), self.bytes.get(end + 1));
        if matches!(follow, (Some(b'\''), _) | (Some(b'&'), Some(b'\'' | b'"'))) {
            return false;
        }
        let word = &self.sql[self.at..end];
        let is = |list: &[&str]| list.iter().any(|w| word.eq_ignore_ascii_case(w));
        // Names are longer or shorter than these, mostly.
        if matches!(word.len(), 4..=7) && self.keep != Keep::Rest {
            if is(&["order", "group"]) {
                self.keep = Keep::Rest;
            } else if is(&["limit", "offset", "fetch", "like", "ilike", "similar"]) {
                self.keep = Keep::Next;
            }
        }
        self.copy_to(end);
        true
    }

    fn number(&mut self) -> bool {
        let start = self.at;
        let digits = |from: usize| {
            from + self.bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count()
        };
        let mut end = digits(start);
        let mut kind = LiteralKind::Integer;
        if self.bytes.get(end) == Some(&b'.') {
            end = digits(end + 1);
            kind = LiteralKind::Numeric;
        }
        // 0x1F, 1e5, 1_000, 1..2: rare enough.
        if self.name_end(end) != end || self.bytes.get(end) == Some(&b'.') {
            return false;
        }
        // A bigint or numeric by its size: left alone.
        let fits = kind == LiteralKind::Numeric || self.sql[start..end].parse::<i32>().is_ok();
        self.literal(kind, (start, end), end, fits);
        true
    }

    fn string(&mut self) -> bool {
        let start = self.at + 1;
        let mut end = start;
        loop {
            match (self.bytes.get(end), self.bytes.get(end + 1)) {
                (Some(b'\''), Some(b'\'')) => end += 2,
                (Some(b'\''), _) => break,
                (Some(0 | b'\\') | None, _) => return false,
                _ => end += 1,
            }
        }
        self.literal(LiteralKind::Text, (start, end), end + 1, true);
        true
    }

    fn literal(&mut self, kind: LiteralKind, value: (usize, usize), end: usize, liftable: bool) {
        if liftable && self.keep == Keep::Nothing {
            self.out.push(kind, value.0, value.1);
            self.at = end;
        } else {
            self.copy_to(end);
        }
        if self.keep == Keep::Next {
            self.keep = Keep::Nothing;
        }
    }

    fn quoted_name(&mut self) -> bool {
        let rest = &self.bytes[self.at + 1..];
        let Some(len) = rest.iter().position(|b| matches!(b, b'"' | 0)) else { return false };
        // A doubled quote is two names to us; their bytes are copied all the same.
        self.copy_to(self.at + 1 + len + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(sql: &str) -> Option<(String, Vec<(LiteralKind, &str)>)> {
        let mut lifted = Lifted::default();
        lifted.lift(sql).then(|| {
            let values = lifted.literals.iter().map(|l| (l.kind, &sql[l.start..l.end])).collect();
            (lifted.text, values)
        })
    }

    #[test]
    fn literals_become_parameters() {
        use LiteralKind::{Integer, Numeric, Text};
        let (text, values) =
            lifted(" UPDATE t1 SET n=n+-17, s = 'it''s' where \"k 5\" >= 1.50;\n").expect("lifted");
        assert_eq!(text, "UPDATE t1 SET n=n+-$1, s = $2 where \"k 5\" >= $3");
        assert_eq!(values, [(Integer, "17"), (Text, "it''s"), (Numeric, "1.50")]);
        let (text, values) = lifted("commit").expect("lifted");
        assert_eq!((text.as_str(), values.len()), ("commit", 0));
    }

    #[test]
    fn literals_that_mean_more_than_their_value_stay() {
        for sql in [
            "select a from t order by 1",
            "select a, sum(b + 5) from t group by 1 having sum(b) > 7",
        ] {
            let (text, _) = lifted(sql).expect("lifted");
            assert!(text.ends_with(&sql[sql.len() - 3..]), "{text}");
        }
        assert_eq!(
            lifted("select a from t where s like 'a%' and k = 3 limit 10 offset 20").unwrap().0,
            "select a from t where s like 'a%' and k = $1 limit 10 offset 20"
        );
        assert_eq!(lifted("select 99999999999 + 1").unwrap().0, "select 99999999999 + $1");
    }

    #[test]
    fn what_is_rare_is_left_to_the_grammar() {
        for sql in [
            "",
            "set x = 5",
            "create table t (a int)",
            "select 1; select 2",
            "select 1 -- one",
            "select /* one */ 1",
            "select $1",
            "select $$a$$",
            "select e'a\\n'",
            "select 'a\\b'",
            "select b'01'",
            "select u&'a'",
            "select 'open",
            "select \"open",
            "select 1e5",
            "select 0x1f",
            "select 1_000",
            "select .5",
            "select 12abc",
            "savepoint 5",
            "explain select 1",
        ] {
            assert_eq!(lifted(sql), None, "{sql}");
        }
        let many = format!("select {}1", "1, ".repeat(MAX_LITERALS + 1));
        assert_eq!(lifted(&many), None);
    }
}
