//! Messages from the client, borrowed from the input buffer.

use inkling_sql::error::{SqlError, State};
use inkling_sql::types::Oid;

/// Most bytes of an ordinary message, PostgreSQL's limit.
pub const MAX_MESSAGE: usize = 0x3FFF_FFFF;
/// Most bytes of a start-up packet, PostgreSQL's limit.
pub const MAX_STARTUP: usize = 10_000;

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

type Result<T> = std::result::Result<T, SqlError>;

fn violation(what: impl Into<String>) -> SqlError {
    SqlError::new(State::PROTOCOL_VIOLATION, what)
}

/// What may come before a session exists.
#[derive(Debug, PartialEq, Eq)]
pub enum Startup {
    Ssl,
    Gss,
    Cancel { pid: i32, secret: i32 },
    Session { minor: u16, parameters: Vec<(String, String)> },
}

/// A parameter value of Bind; `None` is NULL.
pub type RawValue<'a> = Option<&'a [u8]>;

#[derive(Debug, PartialEq)]
pub enum Frontend<'a> {
    Query(&'a str),
    Parse {
        name: &'a str,
        sql: &'a str,
        types: Vec<Oid>,
    },
    Bind(Bind<'a>),
    DescribeStatement(&'a str),
    DescribePortal(&'a str),
    Execute {
        portal: &'a str,
        max_rows: u32,
    },
    CloseStatement(&'a str),
    ClosePortal(&'a str),
    Sync,
    Flush,
    CopyData(&'a [u8]),
    CopyDone,
    CopyFail(&'a str),
    /// PasswordMessage, SASLInitialResponse or SASLResponse: the state tells which.
    Password(&'a [u8]),
    FunctionCall,
    Terminate,
}

#[derive(Debug, PartialEq)]
pub struct Bind<'a> {
    pub portal: &'a str,
    pub statement: &'a str,
    pub formats: Formats,
    pub values: Vec<RawValue<'a>>,
    pub results: Formats,
}

/// Format codes as sent: none (all text), one for all, or one each.
#[derive(Debug, PartialEq, Eq, Clone, Default)]
pub struct Formats(smallvec::SmallVec<[bool; 8]>);

impl Formats {
    /// Whether value `i` is binary.
    #[inline]
    pub fn is_binary(&self, i: usize) -> bool {
        match self.0.as_slice() {
            [] => false,
            [all] => *all,
            each => each.get(i).copied().unwrap_or(false),
        }
    }

    /// The number of codes must be none, one or `count`.
    pub fn check(&self, count: usize, what: &str) -> Result<()> {
        match self.0.len() {
            0 | 1 => Ok(()),
            n if n == count => Ok(()),
            n => Err(violation(format!("bind message has {n} {what} formats but {count} {what}s"))),
        }
    }

    pub fn all_text() -> Self {
        Self::default()
    }
}

/// Bounds-checked reading of a message's body.
struct Body<'a> {
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self
            .bytes
            .split_at_checked(n)
            .ok_or_else(|| violation("insufficient data left in message"))?;
        self.bytes = rest;
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn i16(&mut self) -> Result<i16> {
        let b = self.take(2)?;
        Ok(i16::from_be_bytes([b[0], b[1]]))
    }

    fn i32(&mut self) -> Result<i32> {
        let b = self.take(4)?;
        Ok(i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A string that ends with a zero byte; must be UTF-8.
    fn cstr(&mut self) -> Result<&'a str> {
        let end = self
            .bytes
            .iter()
            .position(|b| *b == 0)
            .ok_or_else(|| violation("invalid string in message"))?;
        let text = self.take(end)?;
        self.take(1)?;
        utf8(text)
    }

    fn count(&mut self) -> Result<usize> {
        Ok(usize::from(self.i16()? as u16))
    }

    fn formats(&mut self) -> Result<Formats> {
        let count = self.count()?;
        let code = |raw: i16| match raw {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(SqlError::new(
                State::INVALID_PARAMETER_VALUE,
                format!("unsupported format code: {other}"),
            )),
        };
        (0..count).map(|_| code(self.i16()?)).collect::<Result<_>>().map(Formats)
    }

    fn end(&self) -> Result<()> {
        match self.bytes.is_empty() {
            true => Ok(()),
            false => Err(violation("invalid message format")),
        }
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| {
        let bad = &bytes
            [e.valid_up_to()..(e.valid_up_to() + e.error_len().unwrap_or(1)).min(bytes.len())];
        let hex: Vec<String> = bad.iter().map(|b| format!("0x{b:02x}")).collect();
        SqlError::new(
            State::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", hex.join(" ")),
        )
    })
}

/// The length of the first whole message in `buffer` (type byte included): `None` when more bytes
/// are needed, an error when the length cannot be.
pub fn message_length(buffer: &[u8]) -> Result<Option<usize>> {
    let Some(&[kind, a, b, c, d]) = buffer.get(..5).and_then(|h| <&[u8; 5]>::try_from(h).ok())
    else {
        return match buffer.first() {
            Some(kind) if !is_known(*kind) => Err(unknown_type(*kind)),
            _ => Ok(None),
        };
    };
    if !is_known(kind) {
        return Err(unknown_type(kind));
    }
    let length = i32::from_be_bytes([a, b, c, d]);
    if length < 4 || length as usize > MAX_MESSAGE {
        return Err(violation("invalid message length"));
    }
    let total = length as usize + 1;
    Ok((buffer.len() >= total).then_some(total))
}

/// The whole CopyData messages at the start of `buffer`.
pub fn copy_frames(buffer: &[u8]) -> &[u8] {
    let mut at = 0;
    while buffer.get(at) == Some(&b'd')
        && let Ok(Some(length)) = message_length(&buffer[at..])
    {
        at += length;
    }
    &buffer[..at]
}

/// The contents of the messages that [`copy_frames`] found.
pub struct CopyFrames<'a>(&'a [u8]);

impl<'a> CopyFrames<'a> {
    pub fn new(frames: &'a [u8]) -> Self {
        CopyFrames(frames)
    }
}

impl<'a> Iterator for CopyFrames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = message_length(self.0).ok().flatten()?;
        let (frame, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(&frame[5..])
    }
}

fn is_known(kind: u8) -> bool {
    matches!(
        kind,
        b'Q' | b'P'
            | b'B'
            | b'D'
            | b'E'
            | b'C'
            | b'S'
            | b'H'
            | b'd'
            | b'c'
            | b'f'
            | b'p'
            | b'F'
            | b'X'
    )
}

fn unknown_type(kind: u8) -> SqlError {
    violation(format!("invalid frontend message type {kind}"))
}

/// Decodes one whole message, as measured by [`message_length`].
pub fn decode(message: &[u8]) -> Result<Frontend<'_>> {
    let Some((kind, rest)) = message.split_first() else {
        return Err(violation("empty message"));
    };
    let mut body = Body { bytes: rest.get(4..).unwrap_or_default() };
    let decoded = match kind {
        b'Q' => Frontend::Query(body.cstr()?),
        b'P' => parse(&mut body)?,
        b'B' => Frontend::Bind(bind(&mut body)?),
        b'D' | b'C' => described(*kind, &mut body)?,
        b'E' => Frontend::Execute { portal: body.cstr()?, max_rows: body.i32()?.max(0) as u32 },
        b'S' => Frontend::Sync,
        b'H' => Frontend::Flush,
        b'd' => Frontend::CopyData(std::mem::take(&mut body.bytes)),
        b'c' => Frontend::CopyDone,
        b'f' => Frontend::CopyFail(body.cstr()?),
        b'p' => Frontend::Password(std::mem::take(&mut body.bytes)),
        b'F' => {
            body.bytes = &[];
            Frontend::FunctionCall
        }
        b'X' => Frontend::Terminate,
        other => return Err(unknown_type(*other)),
    };
    body.end()?;
    Ok(decoded)
}

fn parse<'a>(body: &mut Body<'a>) -> Result<Frontend<'a>> {
    let (name, sql) = (body.cstr()?, body.cstr()?);
    let count = body.count()?;
    let types = (0..count).map(|_| body.i32().map(|o| Oid(o as u32))).collect::<Result<_>>()?;
    Ok(Frontend::Parse { name, sql, types })
}

fn bind<'a>(body: &mut Body<'a>) -> Result<Bind<'a>> {
    let (portal, statement) = (body.cstr()?, body.cstr()?);
    let formats = body.formats()?;
    let count = body.count()?;
    // Every value has at least four bytes; the count alone must not make us allocate.
    let mut values = Vec::with_capacity(count.min(body.bytes.len() / 4));
    for _ in 0..count {
        values.push(match body.i32()? {
            -1 => None,
            n if n >= 0 => Some(body.take(n as usize)?),
            _ => return Err(violation("invalid parameter length in bind message")),
        });
    }
    formats.check(values.len(), "parameter")?;
    Ok(Bind { portal, statement, formats, values, results: body.formats()? })
}

fn described<'a>(kind: u8, body: &mut Body<'a>) -> Result<Frontend<'a>> {
    let (what, name) = (body.u8()?, body.cstr()?);
    Ok(match (kind, what) {
        (b'D', b'S') => Frontend::DescribeStatement(name),
        (b'D', b'P') => Frontend::DescribePortal(name),
        (_, b'S') => Frontend::CloseStatement(name),
        (_, b'P') => Frontend::ClosePortal(name),
        (b'D', other) => {
            return Err(violation(format!("invalid DESCRIBE message subtype {other}")));
        }
        (_, other) => return Err(violation(format!("invalid CLOSE message subtype {other}"))),
    })
}

/// The length of a start-up packet: `None` when more bytes are needed.
pub fn startup_length(buffer: &[u8]) -> Result<Option<usize>> {
    let Some(raw) = buffer.get(..4).and_then(|h| <[u8; 4]>::try_from(h).ok()) else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(raw);
    if length < 8 || length as usize > MAX_STARTUP {
        return Err(violation("invalid length of startup packet"));
    }
    Ok((buffer.len() >= length as usize).then_some(length as usize))
}

/// Decodes a whole start-up packet.
pub fn decode_startup(packet: &[u8]) -> Result<Startup> {
    let mut body = Body { bytes: packet.get(4..).unwrap_or_default() };
    let code = body.i32()?;
    match code {
        SSL_REQUEST => Ok(Startup::Ssl),
        GSS_REQUEST => Ok(Startup::Gss),
        CANCEL_REQUEST => Ok(Startup::Cancel { pid: body.i32()?, secret: body.i32()? }),
        _ if code >> 16 == 3 => {
            let mut parameters = Vec::new();
            while body.bytes.first().is_some_and(|b| *b != 0) {
                parameters.push((body.cstr()?.to_owned(), body.cstr()?.to_owned()));
            }
            if body.u8()? != 0 || !body.bytes.is_empty() {
                return Err(violation(
                    "invalid startup packet layout: expected terminator as last byte",
                ));
            }
            Ok(Startup::Session { minor: (code & 0xFFFF) as u16, parameters })
        }
        _ => Err(SqlError::new(
            State::FEATURE_NOT_SUPPORTED,
            format!(
                "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
                code >> 16,
                code & 0xFFFF
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_copy_messages_are_found() {
        // Three whole messages and the start of a fourth.
        let buffer = b"d\0\0\0\x06abd\0\0\0\x04d\0\0\0\x05cd\0\0\0\x07e";
        let frames = copy_frames(buffer);
        assert_eq!(frames.len(), buffer.len() - 6);
        let pieces: Vec<&[u8]> = CopyFrames::new(frames).collect();
        assert_eq!(pieces, [&b"ab"[..], b"", b"c"]);
        assert!(copy_frames(b"c\0\0\0\x04").is_empty());
        assert!(copy_frames(b"d\0\0\0\x01").is_empty());
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut m = vec![kind];
        m.extend((body.len() as i32 + 4).to_be_bytes());
        m.extend(body);
        m
    }

    #[test]
    fn whole_messages_decode() {
        let m = message(b'Q', b"select 1\0");
        assert_eq!(message_length(&m), Ok(Some(m.len())));
        assert_eq!(decode(&m), Ok(Frontend::Query("select 1")));
        let m = message(b'P', b"s\0select $1\0\0\x01\0\0\0\x17");
        assert_eq!(
            decode(&m),
            Ok(Frontend::Parse { name: "s", sql: "select $1", types: vec![Oid::INT4] })
        );
        let m = message(b'B', b"\0s\0\0\0\0\x02\xff\xff\xff\xff\0\0\0\x01x\0\x01\0\x01");
        let Ok(Frontend::Bind(b)) = decode(&m) else { panic!("a Bind") };
        assert_eq!(b.values, vec![None, Some(&b"x"[..])]);
        assert!(b.results.is_binary(5));
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        let bodies: [(u8, &[u8]); 5] = [
            (b'P', b"s\0select $1\0\0\x01\0\0\0\x17"),
            (b'B', b"\0s\0\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x01x\0\x01\0\x01"),
            (b'E', b"p\0\0\0\0\x05"),
            (b'D', b"Sname\0"),
            (b'f', b"why\0"),
        ];
        for (kind, body) in bodies {
            assert!(decode(&message(kind, body)).is_ok(), "{}", kind as char);
            for cut in 0..body.len() {
                assert!(decode(&message(kind, &body[..cut])).is_err(), "{} {cut}", kind as char);
            }
            let mut longer = body.to_vec();
            longer.push(0);
            assert!(decode(&message(kind, &longer)).is_err(), "{} longer", kind as char);
        }
    }

    #[test]
    fn impossible_lengths_and_types_are_refused_at_once() {
        assert!(message_length(b"Q\0\0\0\x03").is_err());
        assert!(message_length(b"Q\x7f\xff\xff\xff").is_err());
        assert!(message_length(b"\x16\x03").is_err());
        assert_eq!(message_length(b"Q\0\0"), Ok(None));
        assert!(startup_length(b"\0\0\0\x07").is_err());
        assert!(startup_length(b"\0\x01\0\0").is_err());
    }

    #[test]
    fn a_huge_value_count_does_not_allocate() {
        let m = message(b'B', b"\0\0\0\0\xff\xff");
        assert!(decode(&m).is_err());
    }

    #[test]
    fn startup_packets_decode() {
        let mut p = vec![0, 0, 0, 0, 0, 3, 0, 0];
        p.extend(b"user\0bob\0database\0app\0\0");
        p[3] = p.len() as u8;
        let Ok(Startup::Session { minor: 0, parameters }) = decode_startup(&p) else {
            panic!("a session")
        };
        assert_eq!(parameters[1], ("database".into(), "app".into()));
        assert_eq!(decode_startup(&[0, 0, 0, 8, 4, 210, 22, 47]), Ok(Startup::Ssl));
        p.pop();
        assert!(decode_startup(&p).is_err());
    }
}
