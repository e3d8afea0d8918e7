//! Regular expressions: PostgreSQL's syntax (ARE) translated for the `regex` crate.
//!
//! What differs, and how it is handled:
//!
//! | PostgreSQL                            | here                                              |
//! |---------------------------------------|---------------------------------------------------|
//! | `.`, `[^x]` match newlines; `^ $` only at the ends (until option `n`) | flags `s`, no `m` |
//! | `\m \M \y \Y \A \Z`, `[[:<:]]`         | `\b{start} \b{end} \b \B \A \z`                    |
//! | `\w \s`, classes such as `[:alpha:]`    | Unicode's, as under C.UTF-8; `\d` is 0 to 9       |
//! | `***=`, `***:`, `(?i)` at the start     | literal text, plain, options                     |
//! | back-references, look-around           | refused (0A000): they need backtracking           |
//! | leftmost-*longest* among alternatives  | leftmost-first: `a|ab` finds `a`                   |
//!
//! Matching is linear in the text; the size of a compiled expression is limited. Compiled
//! expressions are kept per thread, most recently used first.

use crate::error::{Result, SqlError, State};
use regex::{Regex, RegexBuilder};
use std::cell::RefCell;
use std::iter::Peekable;
use std::rc::Rc;
use std::str::Chars;

/// Options of one expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    pub ignore_case: bool,
    /// `^` and `$` match at lines (options `n`, `w`).
    pub line_anchors: bool,
    /// `.` and `[^...]` do not match newlines (options `n`, `p`).
    pub line_dots: bool,
    /// White space and comments are ignored (option `x`).
    pub expanded: bool,
    /// No metacharacters at all (option `q`).
    pub literal: bool,
    /// All matches (option `g`), for the functions that take it.
    pub global: bool,
}

impl Options {
    /// Reads an option string; `g` only where `allow_global`.
    pub fn parse(flags: &str) -> Result<Options> {
        let mut o = Options::default();
        for c in flags.chars() {
            match c {
                'g' => o.global = true,
                'i' => o.ignore_case = true,
                'c' => o.ignore_case = false,
                'm' | 'n' => (o.line_anchors, o.line_dots) = (true, true),
                'p' => (o.line_anchors, o.line_dots) = (false, true),
                's' => (o.line_anchors, o.line_dots) = (false, false),
                'w' => (o.line_anchors, o.line_dots) = (true, false),
                't' => o.expanded = false,
                'x' => o.expanded = true,
                'q' => o.literal = true,
                'e' => {}
                'b' => {
                    return Err(SqlError::unsupported("basic regular expressions (option \"b\")"));
                }
                c => {
                    return Err(SqlError::new(
                        State::INVALID_PARAMETER_VALUE,
                        format!("invalid regular expression option: \"{c}\""),
                    ));
                }
            }
        }
        Ok(o)
    }
}

fn invalid(what: &str) -> SqlError {
    SqlError::new(State::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {what}"))
}

struct Cached {
    pattern: String,
    options: Options,
    regex: Rc<Regex>,
}

const CACHE_SIZE: usize = 32;
/// Bytes that one compiled expression may take.
const SIZE_LIMIT: usize = 8 << 20;

thread_local! {
    static CACHE: RefCell<Vec<Cached>> = const { RefCell::new(Vec::new()) };
}

/// The compiled expression, from the cache if it was used lately.
pub fn compile(pattern: &str, options: Options) -> Result<Rc<Regex>> {
    let options = Options { global: false, ..options };
    CACHE.with(|cache| {
        let mut cache = cache.borrow_mut();
        let found = cache.iter().position(|c| c.pattern == pattern && c.options == options);
        if let Some(at) = found {
            cache[..=at].rotate_right(1);
            return Ok(cache[0].regex.clone());
        }
        let regex = Rc::new(build(pattern, options)?);
        cache.truncate(CACHE_SIZE - 1);
        cache.insert(0, Cached { pattern: pattern.into(), options, regex: regex.clone() });
        Ok(regex)
    })
}

fn build(pattern: &str, mut options: Options) -> Result<Regex> {
    let translated = translate(pattern, &mut options)?;
    RegexBuilder::new(&translated)
        .case_insensitive(options.ignore_case)
        .multi_line(options.line_anchors)
        .dot_matches_new_line(!options.line_dots)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|e| match e {
            regex::Error::CompiledTooBig(_) => invalid("regular expression is too complex"),
            _ => invalid("invalid syntax"),
        })
}

/// Rewrites an ARE in the `regex` crate's syntax; embedded options change `options`.
fn translate(pattern: &str, options: &mut Options) -> Result<String> {
    let mut body = pattern;
    if let Some(literal) = body.strip_prefix("***=") {
        return Ok(regex::escape(literal));
    }
    body = body.strip_prefix("***:").unwrap_or(body);
    if options.literal {
        return Ok(regex::escape(body));
    }
    // (?xyz) at the very start sets options.
    if let Some(rest) = body.strip_prefix("(?") {
        let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
        if end > 0 && rest[end..].starts_with(')') {
            let given =
                Options::parse(&rest[..end]).map_err(|_| invalid("invalid embedded option"))?;
            for c in rest[..end].chars() {
                match c {
                    'i' => options.ignore_case = true,
                    'c' => options.ignore_case = false,
                    'm' | 'n' | 'p' | 's' | 'w' => {
                        options.line_anchors = given.line_anchors;
                        options.line_dots = given.line_dots;
                    }
                    'x' => options.expanded = true,
                    't' => options.expanded = false,
                    'q' => return Ok(regex::escape(&rest[end + 1..])),
                    _ => {}
                }
            }
            body = &rest[end + 1..];
        }
    }
    let mut t = Translator {
        input: body.chars().peekable(),
        out: String::with_capacity(body.len() + 8),
        options: *options,
        depth: 0,
        can_repeat: false,
    };
    t.run()?;
    Ok(t.out)
}

struct Translator<'a> {
    input: Peekable<Chars<'a>>,
    out: String,
    options: Options,
    depth: u32,
    /// The last thing written can take a quantifier.
    can_repeat: bool,
}

const DIGIT: &str = "0-9";
const WORD: &str = "\\p{Alphabetic}\\p{Nd}_";
const SPACE: &str = "\\s";

impl Translator<'_> {
    fn run(&mut self) -> Result<()> {
        while let Some(c) = self.input.next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.bracket()?,
                '(' => self.open()?,
                ')' => {
                    self.depth = self
                        .depth
                        .checked_sub(1)
                        .ok_or_else(|| invalid("parentheses () not balanced"))?;
                    self.out.push(')');
                    self.can_repeat = true;
                }
                '*' | '+' | '?' => {
                    self.quantifier()?;
                    self.out.push(c);
                    self.lazy();
                }
                '{' if self.input.peek().is_some_and(char::is_ascii_digit) => self.bounds()?,
                '{' | '}' => self.atom_literal(c),
                '|' => {
                    self.out.push('|');
                    self.can_repeat = false;
                }
                '^' | '$' => {
                    self.out.push(c);
                    self.can_repeat = false;
                }
                '.' => {
                    self.out.push('.');
                    self.can_repeat = true;
                }
                '#' if self.options.expanded => {
                    while self.input.next_if(|c| *c != '\n').is_some() {}
                }
                c if self.options.expanded && c.is_ascii_whitespace() => {}
                c => self.atom_literal(c),
            }
        }
        if self.depth > 0 {
            return Err(invalid("parentheses () not balanced"));
        }
        Ok(())
    }

    fn atom_literal(&mut self, c: char) {
        push_escaped(c, &mut self.out);
        self.can_repeat = true;
    }

    fn quantifier(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.can_repeat) {
            return Err(invalid("quantifier operand invalid"));
        }
        Ok(())
    }

    fn lazy(&mut self) {
        if self.input.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
    }

    fn number(&mut self) -> Option<u32> {
        let mut value = None;
        while let Some(d) = self.input.peek().and_then(|c| c.to_digit(10)) {
            self.input.next();
            value = Some(value.unwrap_or(0u32).saturating_mul(10).saturating_add(d));
        }
        value
    }

    /// `{m}`, `{m,}`, `{m,n}` up to 255.
    fn bounds(&mut self) -> Result<()> {
        self.quantifier()?;
        let bad = || invalid("invalid repetition count(s)");
        let low = self.number().ok_or_else(bad)?;
        let mut high = Some(low);
        if self.input.next_if_eq(&',').is_some() {
            high = self.number();
        }
        if self.input.next() != Some('}') {
            return Err(invalid("braces {} not balanced"));
        }
        if low > 255 || high.is_some_and(|h| h > 255 || h < low) {
            return Err(bad());
        }
        match high {
            Some(h) => self.out.push_str(&format!("{{{low},{h}}}")),
            None => self.out.push_str(&format!("{{{low},}}")),
        }
        self.lazy();
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.can_repeat = false;
        if self.input.next_if_eq(&'?').is_none() {
            self.depth += 1;
            self.out.push('(');
            return Ok(());
        }
        match self.input.next() {
            Some(':') => {
                self.depth += 1;
                self.out.push_str("(?:");
                Ok(())
            }
            Some('#') => {
                // A comment; what stood before may still be repeated.
                while self.input.next_if(|c| *c != ')').is_some() {}
                self.can_repeat = !self.out.is_empty();
                self.input.next().map(|_| ()).ok_or_else(|| invalid("parentheses () not balanced"))
            }
            Some('=' | '!' | '<') => {
                Err(SqlError::unsupported("regular expression look-around constraints"))
            }
            _ => Err(invalid("quantifier operand invalid")),
        }
    }

    fn class(&mut self, set: &str, negated: bool) {
        self.out.push_str(if negated { "[^" } else { "[" });
        self.out.push_str(set);
        self.out.push(']');
        self.can_repeat = true;
    }

    fn constraint(&mut self, text: &str) {
        self.out.push_str(text);
        self.can_repeat = false;
    }

    fn escape(&mut self) -> Result<()> {
        let c = self.input.next().ok_or_else(|| invalid("invalid escape \\ sequence"))?;
        match c {
            'd' => self.class(DIGIT, false),
            'D' => self.class(DIGIT, true),
            'w' => self.class(WORD, false),
            'W' => self.class(WORD, true),
            's' => self.class(SPACE, false),
            'S' => self.class(SPACE, true),
            'm' => self.constraint("\\b{start}"),
            'M' => self.constraint("\\b{end}"),
            'y' => self.constraint("\\b"),
            'Y' => self.constraint("\\B"),
            'A' => self.constraint("\\A"),
            'Z' => self.constraint("\\z"),
            '1'..='9' => {
                return Err(SqlError::unsupported("regular expression back-references"));
            }
            c => {
                let literal = escaped_char(c, &mut self.input)?;
                self.atom_literal(literal);
            }
        }
        Ok(())
    }

    fn bracket(&mut self) -> Result<()> {
        let unbalanced = || invalid("brackets [] not balanced");
        // Word boundaries in disguise.
        for (text, boundary) in [("[:<:]]", "\\b{start}"), ("[:>:]]", "\\b{end}")] {
            if self.input.clone().take(6).eq(text.chars()) {
                for _ in 0..6 {
                    self.input.next();
                }
                self.constraint(boundary);
                return Ok(());
            }
        }
        let mut set = String::from("[");
        let negated = self.input.next_if_eq(&'^').is_some();
        if negated {
            set.push('^');
            if self.options.line_dots {
                set.push_str("\\n");
            }
        }
        let mut first = true;
        let mut low: Option<char> = None;
        loop {
            let c = self.input.next().ok_or_else(unbalanced)?;
            let item = match c {
                ']' if !first => break,
                '[' if matches!(self.input.peek(), Some(':' | '.' | '=')) => {
                    match self.named(&mut set)? {
                        Some(c) => c,
                        None => {
                            first = false;
                            low = None;
                            continue;
                        }
                    }
                }
                '\\' => match self.escape_in_set(&mut set)? {
                    Some(c) => c,
                    None => {
                        (first, low) = (false, None);
                        continue;
                    }
                },
                '-' if low.is_some() && self.input.peek().is_some_and(|c| *c != ']') => {
                    self.range_end(low.take(), &mut set)?;
                    continue;
                }
                c => c,
            };
            push_escaped(item, &mut set);
            (first, low) = (false, Some(item));
        }
        set.push(']');
        self.out.push_str(&set);
        self.can_repeat = true;
        Ok(())
    }

    /// What follows a backslash in brackets: a class goes into the set, a character comes back.
    fn escape_in_set(&mut self, set: &mut String) -> Result<Option<char>> {
        let e = self.input.next().ok_or_else(|| invalid("brackets [] not balanced"))?;
        match e {
            'd' => set.push_str(DIGIT),
            'w' => set.push_str(WORD),
            's' => set.push_str(SPACE),
            'D' | 'W' | 'S' => return Err(invalid("invalid escape \\ sequence")),
            _ => return escaped_char(e, &mut self.input).map(Some),
        }
        Ok(None)
    }

    /// The upper end of a range, after its hyphen.
    fn range_end(&mut self, low: Option<char>, set: &mut String) -> Result<()> {
        let unbalanced = || invalid("brackets [] not balanced");
        let mut c = self.input.next().ok_or_else(unbalanced)?;
        if c == '\\' {
            let e = self.input.next().ok_or_else(unbalanced)?;
            c = escaped_char(e, &mut self.input)?;
        } else if c == '[' && self.input.peek() == Some(&'.') {
            c = self.named(set)?.ok_or_else(|| invalid("invalid character range"))?;
        }
        if low.is_some_and(|l| l > c) {
            return Err(invalid("invalid character range"));
        }
        set.push('-');
        push_escaped(c, set);
        Ok(())
    }

    /// `[:class:]` goes into the set; `[.x.]` and `[=x=]` are their character.
    fn named(&mut self, set: &mut String) -> Result<Option<char>> {
        let kind = self.input.next().ok_or_else(|| invalid("brackets [] not balanced"))?;
        let mut name = String::new();
        loop {
            let c = self.input.next().ok_or_else(|| invalid("brackets [] not balanced"))?;
            if c == kind && self.input.peek() == Some(&']') && !name.is_empty() {
                self.input.next();
                break;
            }
            name.push(c);
        }
        if kind == ':' {
            set.push_str(match name.as_str() {
                "alnum" => "\\p{Alphabetic}\\p{Nd}",
                "alpha" => "\\p{Alphabetic}",
                "blank" => " \\t",
                "cntrl" => "\\p{Cc}",
                "digit" => DIGIT,
                "graph" => "[[:^cntrl:]--\\s]",
                "lower" => "\\p{Lowercase}",
                "print" => "[[:^cntrl:]--[\\t\\n\\r]]",
                "punct" => "\\p{P}\\p{S}",
                "space" => SPACE,
                "upper" => "\\p{Uppercase}",
                "word" => WORD,
                "xdigit" => "0-9A-Fa-f",
                "ascii" => "\\x00-\\x7f",
                _ => return Err(invalid("invalid character class")),
            });
            return Ok(None);
        }
        let mut chars = name.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(Some(c)),
            _ => Err(invalid("invalid collating element")),
        }
    }
}

/// Writes a character so that it stands for itself, inside brackets and outside.
fn push_escaped(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        c if c.is_ascii_punctuation() => {
            out.push('\\');
            out.push(c);
        }
        c => out.push(c),
    }
}

/// What a backslash and `c` (and perhaps more) mean as a character.
fn escaped_char(c: char, input: &mut Peekable<Chars<'_>>) -> Result<char> {
    let bad = || invalid("invalid escape \\ sequence");
    let mut hex = |least: usize, most: usize| {
        let mut value: u32 = 0;
        let mut count = 0;
        while let (true, Some(d)) = (count < most, input.peek().and_then(|c| c.to_digit(16))) {
            input.next();
            value = value << 4 | d;
            count += 1;
        }
        if count < least { Err(bad()) } else { char::from_u32(value).ok_or_else(bad) }
    };
    Ok(match c {
        'a' => '\x07',
        'b' => '\x08',
        'B' => '\\',
        'e' => '\x1b',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        'u' => hex(4, 4)?,
        'U' => hex(8, 8)?,
        'x' => hex(1, 8)?,
        'c' => char::from(input.next().ok_or_else(bad)? as u8 & 0x1f),
        '0' => {
            let mut value = 0;
            for _ in 0..2 {
                let Some(d) = input.peek().and_then(|c| c.to_digit(8)) else { break };
                input.next();
                value = value * 8 + d;
            }
            char::from_u32(value).ok_or_else(bad)?
        }
        c if c.is_ascii_alphanumeric() => return Err(bad()),
        c => c,
    })
}

/// The character that SIMILAR TO escapes with: the backslash by default, none if empty.
fn escape_character(escape: Option<&str>) -> Result<Option<char>> {
    let Some(text) = escape else { return Ok(Some('\\')) };
    let mut chars = text.chars();
    let first = chars.next();
    if chars.next().is_some() {
        return Err(SqlError::new(State::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .hint("Escape string must be empty or one character."));
    }
    Ok(first)
}

/// A SQL regular expression (SIMILAR TO) as an ARE that matches the whole text.
pub fn similar_to_are(pattern: &str, escape: Option<&str>) -> Result<String> {
    let escape = escape_character(escape)?;
    let mut out = String::from("^(?:");
    let mut separators = 0;
    let mut in_set = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let Some(next) = chars.next() else { break };
            if next == '"' && !in_set {
                // escape-double-quote: the part between two of them is what substring returns.
                out.push_str(match separators {
                    0 => "){1,1}?(",
                    1 => "){1,1}(?:",
                    _ => {
                        return Err(SqlError::new(
                            State::SYNTAX_ERROR,
                            "SQL regular expression may not contain more than two \
                             escape-double-quote separators",
                        ));
                    }
                });
                separators += 1;
                continue;
            }
            if next.is_ascii_alphanumeric() {
                // Escapes such as \d keep their meaning.
                out.push('\\');
                out.push(next);
            } else {
                push_escaped(next, &mut out);
            }
            continue;
        }
        match c {
            ']' if in_set => {
                out.push(c);
                in_set = false;
            }
            '\\' => out.push_str("\\\\"),
            _ if in_set => out.push(c),
            '[' => {
                in_set = true;
                out.push('[');
                for first in ['^', ']'] {
                    if chars.next_if_eq(&first).is_some() {
                        out.push(first);
                    }
                }
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push_str(")$");
    Ok(out)
}
