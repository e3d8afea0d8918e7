//! Cutting a date or time literal into fields.
//!
//! ```text
//!   1999-01-08 04:05:06.789-8     Date "1999-01-08"  Time "04:05:06.789"  Zone "-8"
//!   Jan 8, 99 4:05 PM PST         Word "jan" Number "8" Number "99" Time "4:05" Word "pm" ...
//! ```

/// What a field looks like; what it means is the parser's affair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Digits, perhaps with a point.
    Number,
    /// Parts joined by `-`, `/` or `.`; also zone names such as `america/new_york`.
    Date,
    /// Parts joined by `:`.
    Time,
    /// Letters.
    Word,
    /// A sign and letters: `+infinity`.
    SignedWord,
    /// A sign and digits.
    Zone,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    pub kind: Kind,
    /// In lower case.
    pub text: String,
}

/// More fields than this are not a date.
const MAX_FIELDS: usize = 25;
const MAX_LEN: usize = 128;

/// The fields of a literal; `None` when a character fits nowhere.
pub fn split(s: &str) -> Option<Vec<Field>> {
    if s.len() > MAX_LEN || !s.is_ascii() {
        return None;
    }
    let mut lexer = Lexer { text: s.to_ascii_lowercase().into_bytes(), at: 0 };
    let mut fields = Vec::new();
    while let Some(b) = lexer.peek() {
        if b.is_ascii_whitespace() || b == 0x0b {
            lexer.at += 1;
            continue;
        }
        let start = lexer.at;
        let kind = match b {
            b'0'..=b'9' => lexer.digits_first(),
            b'.' => {
                lexer.at += 1;
                lexer.eat(|b| b.is_ascii_digit());
                Kind::Number
            }
            b'a'..=b'z' => lexer.letter_first(),
            b'+' | b'-' => {
                fields.push(lexer.signed()?);
                continue;
            }
            b if b.is_ascii_punctuation() => {
                lexer.at += 1;
                continue;
            }
            _ => return None,
        };
        fields.push(Field { kind, text: lexer.since(start) });
        if fields.len() > MAX_FIELDS {
            return None;
        }
    }
    Some(fields)
}

struct Lexer {
    text: Vec<u8>,
    at: usize,
}

impl Lexer {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn since(&self, start: usize) -> String {
        String::from_utf8_lossy(&self.text[start..self.at]).into_owned()
    }

    fn eat(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn digits_first(&mut self) -> Kind {
        self.eat(|b| b.is_ascii_digit());
        match self.peek() {
            Some(b':') => {
                self.eat(|b| b.is_ascii_digit() || matches!(b, b':' | b'.'));
                Kind::Time
            }
            Some(delimiter @ (b'-' | b'/' | b'.')) => {
                self.at += 1;
                if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
                    self.eat(|b| b.is_ascii_alphanumeric() || b == delimiter);
                    return Kind::Date;
                }
                self.eat(|b| b.is_ascii_digit());
                if self.peek() == Some(delimiter) {
                    self.eat(|b| b.is_ascii_digit() || b == delimiter);
                    return Kind::Date;
                }
                if delimiter == b'.' { Kind::Number } else { Kind::Date }
            }
            _ => Kind::Number,
        }
    }

    fn letter_first(&mut self) -> Kind {
        let start = self.at;
        self.eat(|b| b.is_ascii_lowercase());
        let joined = match self.peek() {
            Some(b'-' | b'/' | b'.') => true,
            Some(b'+' | b'0'..=b'9') => !super::parse::is_keyword(&self.since(start)),
            _ => false,
        };
        if !joined {
            return Kind::Word;
        }
        self.eat(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'/' | b'_' | b'.' | b':')
        });
        Kind::Date
    }

    fn signed(&mut self) -> Option<Field> {
        let sign = self.peek()?;
        self.at += 1;
        self.eat(|b| b.is_ascii_whitespace());
        let start = self.at;
        let kind = match self.peek()? {
            b'0'..=b'9' => {
                self.eat(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
                Kind::Zone
            }
            b'a'..=b'z' => {
                self.eat(|b| b.is_ascii_lowercase());
                Kind::SignedWord
            }
            _ => return None,
        };
        Some(Field { kind, text: format!("{}{}", sign as char, self.since(start)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_literals() {
        let show = |s: &str| {
            let fields = split(s).unwrap();
            fields.iter().map(|f| format!("{:?} {}", f.kind, f.text)).collect::<Vec<_>>()
        };
        assert_eq!(
            show("1999-01-08 04:05:06.789-8"),
            ["Date 1999-01-08", "Time 04:05:06.789", "Zone -8"]
        );
        assert_eq!(
            show("Jan 8, 99 4:05 PM"),
            ["Word jan", "Number 8", "Number 99", "Time 4:05", "Word pm"]
        );
        assert_eq!(
            show("20240102T030405 America/New_York"),
            ["Number 20240102", "Word t", "Number 030405", "Date america/new_york"]
        );
        assert_eq!(show("- infinity"), ["SignedWord -infinity"]);
        assert!(split("12\u{e9}").is_none());
    }
}
