//! `json`: text that has been checked to be JSON. No operators, no `jsonb`.

use crate::error::{Result, SqlError, State};

/// Deepest nesting of arrays and objects.
const MAX_DEPTH: usize = 6_000;

/// Whether `s` is one JSON value.
pub fn validate(s: &str) -> Result<()> {
    let mut c = Checker { b: s.as_bytes(), at: 0 };
    if c.document() { Ok(()) } else { Err(c.error(s)) }
}

struct Checker<'a> {
    b: &'a [u8],
    at: usize,
}

impl Checker<'_> {
    fn error(&self, s: &str) -> SqlError {
        let mut start = self.at.min(s.len());
        while !s.is_char_boundary(start) {
            start -= 1;
        }
        let token: String = s[start..].chars().take(20).collect();
        let e =
            SqlError::new(State::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json");
        if token.is_empty() {
            e.detail("The input string ended unexpectedly.")
        } else {
            e.detail(format!("Token \"{token}\" is invalid."))
        }
    }

    fn blanks(&mut self) {
        while matches!(self.b.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let found = self.b.get(self.at) == Some(&wanted);
        self.at += usize::from(found);
        found
    }

    /// A loop with its own stack of closing brackets: input may nest deeper than ours allows.
    fn document(&mut self) -> bool {
        let mut open: Vec<u8> = Vec::new();
        loop {
            self.blanks();
            let opened = match self.b.get(self.at) {
                Some(b'{') => {
                    self.at += 1;
                    self.blanks();
                    open.push(b'}');
                    self.b.get(self.at) != Some(&b'}')
                }
                Some(b'[') => {
                    self.at += 1;
                    self.blanks();
                    open.push(b']');
                    self.b.get(self.at) != Some(&b']')
                }
                _ => {
                    if !self.scalar() {
                        return false;
                    }
                    false
                }
            };
            if open.len() > MAX_DEPTH {
                return false;
            }
            if opened {
                if open.last() == Some(&b'}') && !self.key() {
                    return false;
                }
                continue;
            }
            loop {
                self.blanks();
                match (open.last().copied(), self.b.get(self.at)) {
                    (None, end) => return end.is_none(),
                    (Some(close), Some(b)) if *b == close => {
                        self.at += 1;
                        open.pop();
                    }
                    (Some(close), Some(b',')) => {
                        self.at += 1;
                        if close == b'}' && !self.key() {
                            return false;
                        }
                        break;
                    }
                    _ => return false,
                }
            }
        }
    }

    fn key(&mut self) -> bool {
        self.blanks();
        if !self.string() {
            return false;
        }
        self.blanks();
        self.eat(b':')
    }

    fn scalar(&mut self) -> bool {
        match self.b.get(self.at) {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => ["true", "false", "null"].iter().any(|word| {
                let found = self.b[self.at..].starts_with(word.as_bytes());
                let end = self.at + word.len();
                let whole = found && !self.b.get(end).is_some_and(u8::is_ascii_alphanumeric);
                self.at = if whole { end } else { self.at };
                whole
            }),
        }
    }

    fn string(&mut self) -> bool {
        if !self.eat(b'"') {
            return false;
        }
        loop {
            match self.b.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return true;
                }
                Some(b'\\') => {
                    match self.b.get(self.at + 1) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                            self.at += 2;
                        }
                        Some(b'u')
                            if self
                                .b
                                .get(self.at + 2..self.at + 6)
                                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) =>
                        {
                            self.at += 6;
                        }
                        _ => return false,
                    };
                }
                Some(0x20..) => self.at += 1,
                _ => return false,
            }
        }
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.b.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self) -> bool {
        self.eat(b'-');
        if !self.eat(b'0') && !self.digits() {
            return false;
        }
        if self.eat(b'.') && !self.digits() {
            return false;
        }
        if matches!(self.b.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            return self.digits();
        }
        !self.b.get(self.at).is_some_and(|b| b.is_ascii_alphanumeric())
    }
}

#[cfg(test)]
mod tests {
    use super::validate;

    #[test]
    fn accepts_json_and_nothing_else() {
        for good in [
            "1",
            " null ",
            "[]",
            "{}",
            "[1,[2,{\"a\":-0.5e+3}],\"\\u00e9\"]",
            "{\"a\":{},\"b\":[]}",
        ] {
            assert!(validate(good).is_ok(), "{good}");
        }
        for bad in ["", "01", "[1,]", "{a:1}", "{\"a\" 1}", "'x'", "[1", "1 2", "\"\\x\"", "nul"] {
            assert!(validate(bad).is_err(), "{bad}");
        }
    }
}
