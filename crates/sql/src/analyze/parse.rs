//! The grammar: PostgreSQL's own, by way of libpg_query.
//!
//! Guarantees:
//! - accepts and rejects what PostgreSQL does, with its message, SQLSTATE and position;
//! - statement ranges as PostgreSQL computes them: without the separators, so that a
//!   statement's text can be logged alone;
//! - no input can overflow the stack: beyond [`MAX_DEPTH`] the answer is 54001.
//!
//! The library hands its tree over as protobuf. Three stages recurse over it - the encoder in C,
//! which measures its own stack, the decoder, and we - so all run on a stack that is known to be
//! large enough for what they may meet.
#![allow(unsafe_code)]

use super::statement::ParsedStatement;
use super::with_stack;
use crate::error::{Result, SqlError, State};
use pg_query::protobuf;
use prost::Message;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

/// Levels of nesting accepted in one statement's syntax tree.
pub const MAX_DEPTH: usize = 1_500;

/// How deep libpg_query may recurse, and the stack it gets for that (it may itself decide for
/// 2 MiB on a large thread stack).
const C_STACK_LIMIT_KB: c_int = 1536;
const C_STACK: usize = 3 * 1024 * 1024;

#[repr(C)]
struct CError {
    message: *mut c_char,
    funcname: *mut c_char,
    filename: *mut c_char,
    lineno: c_int,
    cursorpos: c_int,
    context: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CProtobuf {
    len: usize,
    data: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CResult {
    parse_tree: CProtobuf,
    stderr_buffer: *mut c_char,
    error: *mut CError,
}

// The crate's own wrapper drops the error's position, hence this declaration of the same symbols.
unsafe extern "C" {
    fn pg_query_parse_protobuf_opts(input: *const c_char, options: c_int) -> CResult;
    fn pg_query_free_protobuf_parse_result(result: CResult);
    fn assign_max_stack_depth(kilobytes: c_int, extra: *mut c_void);
}

/// Owns what the library allocated.
struct RawResult(CResult);

impl Drop for RawResult {
    fn drop(&mut self) {
        // SAFETY: the result came from pg_query_parse_protobuf_opts and is freed exactly once.
        unsafe { pg_query_free_protobuf_parse_result(self.0) }
    }
}

impl RawResult {
    fn new(sql: &CStr) -> RawResult {
        // On a stack that it does not know to be the thread's own the library would assume 100 kB.
        // SAFETY: sets a thread-local limit; the caller guarantees C_STACK bytes, which is more.
        unsafe { assign_max_stack_depth(C_STACK_LIMIT_KB, std::ptr::null_mut()) };
        // SAFETY: a NUL-terminated string; the library copies what it keeps and reports every
        // failure in the result. 64: no warnings about escapes (they would go to stderr).
        RawResult(unsafe { pg_query_parse_protobuf_opts(sql.as_ptr(), 64) })
    }

    fn error(&self, sql: &str) -> Option<SqlError> {
        // SAFETY: null, or a pointer to an error that lives as long as the result.
        let error = unsafe { self.0.error.as_ref() }?;
        let message = if error.message.is_null() {
            "syntax error".to_owned()
        } else {
            // SAFETY: a NUL-terminated string owned by the result.
            unsafe { CStr::from_ptr(error.message) }.to_string_lossy().into_owned()
        };
        Some(syntax_error(message, error.cursorpos, sql))
    }

    fn tree(&self) -> &[u8] {
        let tree = &self.0.parse_tree;
        if tree.data.is_null() {
            return &[];
        }
        // SAFETY: data points to len bytes owned by the result.
        unsafe { std::slice::from_raw_parts(tree.data as *const u8, tree.len) }
    }
}

/// Words of the grammar's errors about what PostgreSQL itself does not support.
const UNSUPPORTED: &[&str] = &[
    "not implemented",
    "not yet implemented",
    "is not supported",
    "only supported for ON DELETE",
    "constraints cannot be marked",
];

/// The library drops the SQLSTATE; the message tells it.
fn state_of(message: &str) -> State {
    if message.starts_with("stack depth limit exceeded") {
        State::STATEMENT_TOO_COMPLEX
    } else if message.starts_with("out of memory") {
        State::OUT_OF_MEMORY
    } else if UNSUPPORTED.iter().any(|words| message.contains(words)) {
        State::FEATURE_NOT_SUPPORTED
    } else if message.starts_with("invalid byte sequence") {
        State::CHARACTER_NOT_IN_REPERTOIRE
    } else if message.starts_with("unsafe use of ") || message == "invalid Unicode escape" {
        State::INVALID_ESCAPE_SEQUENCE
    } else if message.contains("value too long for type") {
        State::NAME_TOO_LONG
    } else {
        State::SYNTAX_ERROR
    }
}

fn syntax_error(message: String, position: c_int, sql: &str) -> SqlError {
    let mut error = SqlError::new(state_of(&message), message);
    if error.state == State::STATEMENT_TOO_COMPLEX {
        error = too_deep();
    }
    // The library counts characters from 1 already, except that it takes its input for bytes
    // when it cannot tell; clamp to be safe.
    match u32::try_from(position) {
        Ok(p) if p > 0 => error.at(p.min(sql.chars().count() as u32 + 1)),
        _ => error,
    }
}

/// 54001, as PostgreSQL words it.
pub(crate) fn too_deep() -> SqlError {
    SqlError::new(State::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .hint("The statement is nested too deeply; simplify it.")
}

/// Parses a query string into its statements.
pub fn parse(sql: &str) -> Result<Vec<ParsedStatement>> {
    let input = CString::new(sql).map_err(|_| {
        SqlError::new(
            State::CHARACTER_NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        )
    })?;
    let raw = with_stack(C_STACK, || RawResult::new(&input));
    drop(input);
    if let Some(error) = raw.error(sql) {
        return Err(error);
    }
    split(raw.tree(), sql)
}

fn split(tree: &[u8], sql: &str) -> Result<Vec<ParsedStatement>> {
    let decode = || protobuf::ParseResult::decode(tree);
    let result = with_stack(decoder_stack(tree.len()), decode)
        .map_err(|e| SqlError::internal(format!("the parser's answer is malformed: {e}")))?;
    let source: Arc<str> = Arc::from(sql);
    let mut statements = Vec::with_capacity(result.stmts.len());
    for stmt in result.stmts {
        let Some(node) = stmt.stmt.and_then(|n| n.node) else { continue };
        let (start, len) = range(sql, stmt.stmt_location, stmt.stmt_len);
        let node = Some(Box::new(node));
        statements.push(ParsedStatement { node, source: source.clone(), start, len });
    }
    Ok(statements)
}

/// The bytes of a statement without white space around it; a zero length means "to the end".
fn range(sql: &str, location: i32, len: i32) -> (usize, usize) {
    let start = (location.max(0) as usize).min(sql.len());
    let end = if len > 0 { (start + len as usize).min(sql.len()) } else { sql.len() };
    let Some(text) = sql.get(start..end) else { return (0, sql.len()) };
    let lead = text.len() - text.trim_start().len();
    (start + lead, text.trim().len())
}

/// Stack that decoding may take: a message level takes at least a few bytes of input.
fn decoder_stack(len: usize) -> usize {
    256 * 1024 + (len.min(64 * 1024) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_bombs_are_errors() {
        for n in [1_000, 4_000, 100_000] {
            for sql in [
                format!("select {}", vec!["a"; n].join("||")),
                format!("select {}1{}", "(".repeat(n), ")".repeat(n)),
                vec!["select 1"; n].join(" union all "),
                format!("{}select 1{}", "select (".repeat(n), ")".repeat(n)),
                format!("select {} 1", "not ".repeat(n)),
                format!("select {}1{}", "array[".repeat(n), "]".repeat(n)),
                format!("select {}1{}", "f(".repeat(n), ")".repeat(n)),
                format!("select {}1{}", "case when true then ".repeat(n), " end".repeat(n)),
            ] {
                // Either way, but alive.
                if let Err(e) = parse(&sql) {
                    assert!(matches!(e.state.code(), "54001" | "42601"), "{e}");
                }
            }
        }
        assert!(parse(&format!("select {}", vec!["a"; 900].join("||"))).is_ok());
    }

    #[test]
    fn ranges_and_positions() {
        let parsed = parse("  select 1 ;; select 'é' ; ").unwrap();
        let texts: Vec<_> = parsed.iter().map(ParsedStatement::text).collect();
        assert_eq!(texts, ["select 1", "select 'é'"]);
        assert!(parse("  ; -- nothing\n").unwrap().is_empty());
        let e = parse("select 'é' frmo t where").unwrap_err();
        assert_eq!((e.state.code(), e.get_position()), ("42601", Some(17)));
        assert_eq!(e.message(), "syntax error at or near \"t\"");
        let e = parse("select 1;\nselct 2").unwrap_err();
        assert_eq!(
            (e.message(), e.get_position()),
            ("syntax error at or near \"selct\"", Some(11))
        );
        let e = parse("select 'a").unwrap_err();
        assert_eq!(
            (e.message(), e.get_position()),
            ("unterminated quoted string at or near \"'a\"", Some(8))
        );
        assert_eq!(parse("select 1\0").unwrap_err().state.code(), "22021");
    }

    #[test]
    fn ten_megabytes() {
        let sql = format!("select 1 where 1 in ({}1)", "1234567,".repeat(1_300_000));
        assert_eq!(parse(&sql).unwrap()[0].text().len(), sql.len());
    }
}
