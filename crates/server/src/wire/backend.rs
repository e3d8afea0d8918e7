//! Messages to the client, appended to an output buffer.

use super::frontend::Formats;
use inkling_sql::error::SqlError;
use inkling_sql::session::ColumnDesc;
use inkling_sql::types::{self, Oid};

/// Bytes on their way to the client.
pub type Out = Vec<u8>;

/// Starts a message; [`finish`] fills in its length.
#[inline]
pub fn start(out: &mut Out, kind: u8) -> usize {
    out.push(kind);
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

#[inline]
pub fn finish(out: &mut Out, at: usize) {
    let length = (out.len() - at) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn message(out: &mut Out, kind: u8, body: impl FnOnce(&mut Out)) {
    let at = start(out, kind);
    body(out);
    finish(out, at);
}

pub fn put_i16(out: &mut Out, v: i16) {
    out.extend_from_slice(&v.to_be_bytes());
}

pub fn put_i32(out: &mut Out, v: i32) {
    out.extend_from_slice(&v.to_be_bytes());
}

/// A string and its terminator; a zero byte inside would end it early, so it is left out.
fn put_cstr(out: &mut Out, s: &str) {
    out.extend(s.bytes().filter(|b| *b != 0));
    out.push(0);
}

pub fn authentication_ok(out: &mut Out) {
    message(out, b'R', |o| put_i32(o, 0));
}

pub fn authentication_sasl(out: &mut Out, mechanisms: &[&str]) {
    message(out, b'R', |o| {
        put_i32(o, 10);
        mechanisms.iter().for_each(|m| put_cstr(o, m));
        o.push(0);
    });
}

pub fn authentication_sasl_continue(out: &mut Out, data: &str) {
    message(out, b'R', |o| {
        put_i32(o, 11);
        o.extend_from_slice(data.as_bytes());
    });
}

pub fn authentication_sasl_final(out: &mut Out, data: &str) {
    message(out, b'R', |o| {
        put_i32(o, 12);
        o.extend_from_slice(data.as_bytes());
    });
}

pub fn parameter_status(out: &mut Out, name: &str, value: &str) {
    message(out, b'S', |o| {
        put_cstr(o, name);
        put_cstr(o, value);
    });
}

pub fn backend_key_data(out: &mut Out, pid: i32, secret: i32) {
    message(out, b'K', |o| {
        put_i32(o, pid);
        put_i32(o, secret);
    });
}

/// Tells a client that asked for a newer minor version, or for options, what it gets.
pub fn negotiate_protocol_version(out: &mut Out, unknown: &[&str]) {
    message(out, b'v', |o| {
        put_i32(o, 3 << 16);
        put_i32(o, unknown.len() as i32);
        unknown.iter().for_each(|name| put_cstr(o, name));
    });
}

pub fn ready_for_query(out: &mut Out, status: u8) {
    message(out, b'Z', |o| o.push(status));
}

pub fn parse_complete(out: &mut Out) {
    message(out, b'1', |_| ());
}

pub fn bind_complete(out: &mut Out) {
    message(out, b'2', |_| ());
}

pub fn close_complete(out: &mut Out) {
    message(out, b'3', |_| ());
}

pub fn no_data(out: &mut Out) {
    message(out, b'n', |_| ());
}

pub fn empty_query(out: &mut Out) {
    message(out, b'I', |_| ());
}

pub fn portal_suspended(out: &mut Out) {
    message(out, b's', |_| ());
}

pub fn command_complete(out: &mut Out, tag: &dyn std::fmt::Display) {
    use std::io::Write;
    message(out, b'C', |o| {
        // Writing to a Vec cannot fail.
        let _infallible = write!(o, "{tag}\0");
    });
}

pub fn parameter_description(out: &mut Out, types: &[Oid]) {
    message(out, b't', |o| {
        put_i16(o, types.len() as i16);
        types.iter().for_each(|t| put_i32(o, t.0 as i32));
    });
}

pub fn row_description(out: &mut Out, columns: &[ColumnDesc], formats: &Formats) {
    message(out, b'T', |o| {
        put_i16(o, columns.len() as i16);
        for (i, c) in columns.iter().enumerate() {
            put_cstr(o, &c.name);
            put_i32(o, c.table.0 as i32);
            put_i16(o, c.attnum);
            put_i32(o, c.ty.oid.0 as i32);
            put_i16(o, types::info(c.ty.oid).map_or(-1, |t| t.len));
            put_i32(o, c.ty.typmod);
            put_i16(o, i16::from(formats.is_binary(i)));
        }
    });
}

/// CopyInResponse (`G`) or CopyOutResponse (`H`).
pub fn copy_response(out: &mut Out, kind: u8, columns: usize, binary: bool) {
    message(out, kind, |o| {
        o.push(u8::from(binary));
        put_i16(o, columns as i16);
        (0..columns).for_each(|_| put_i16(o, i16::from(binary)));
    });
}

pub fn copy_data(out: &mut Out, data: &[u8]) {
    message(out, b'd', |o| o.extend_from_slice(data));
}

pub fn copy_done(out: &mut Out) {
    message(out, b'c', |_| ());
}

/// ErrorResponse or NoticeResponse, as the severity says.
pub fn error(out: &mut Out, e: &SqlError) {
    use inkling_sql::error::Severity;
    let kind = if matches!(e.severity, Severity::Error | Severity::Fatal) { b'E' } else { b'N' };
    message(out, kind, |o| {
        let mut field = |code: u8, text: &str| {
            o.push(code);
            put_cstr(o, text);
        };
        field(b'S', e.severity.as_str());
        field(b'V', e.severity.as_str());
        field(b'C', e.state.code());
        field(b'M', e.message());
        let object = e.get_object();
        let optional = [
            (b'D', e.get_detail()),
            (b'H', e.get_hint()),
            (b'W', e.get_context()),
            (b's', object.schema.as_deref()),
            (b't', object.table.as_deref()),
            (b'c', object.column.as_deref()),
            (b'd', object.data_type.as_deref()),
            (b'n', object.constraint.as_deref()),
        ];
        for (code, text) in optional {
            if let Some(text) = text {
                field(code, text);
            }
        }
        if let Some(position) = e.get_position() {
            field(b'P', &position.to_string());
        }
        // Some drivers insist on the place in the source; ours is the crate.
        field(b'F', "inkling");
        field(b'L', "0");
        field(b'R', "inkling");
        o.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkling_sql::error::State;

    #[test]
    fn lengths_are_filled_in() {
        let mut out = Out::new();
        ready_for_query(&mut out, b'I');
        assert_eq!(out, b"Z\0\0\0\x05I");
        out.clear();
        command_complete(&mut out, &"SELECT 1");
        assert_eq!(out, b"C\0\0\0\x0dSELECT 1\0");
    }

    #[test]
    fn errors_carry_their_fields() {
        let mut out = Out::new();
        error(&mut out, &SqlError::new(State::SYNTAX_ERROR, "bad\0text").hint("mend it").at(7));
        let text = String::from_utf8_lossy(&out).replace('\0', "|");
        assert!(text.starts_with('E'));
        assert!(text.contains("SERROR|VERROR|C42601|Mbadtext|Hmend it|P7|"), "{text}");
    }
}
