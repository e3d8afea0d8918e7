//! COPY FROM: bytes to lines to fields to rows.
//!
//! A line ends at a newline (LF, CR LF, or CR) that is not inside CSV quotes; what has not ended
//! yet waits for more bytes. In text format a backslash escapes the next character and `\.` alone
//! on a line ends the data; in CSV a field in quotes may contain anything.

use super::super::Session;
use super::super::api::{CommandTag, CopyInfo, Progress};
use super::super::portal::{Execution, Portal};
use crate::analyze::bound::Expr;
use crate::analyze::statement::{CopyFormat, CopyTable};
use crate::catalog::TableDef;
use crate::error::{Result, SqlError, State};
use crate::exec::RowExpr;
use crate::exec::bulk::BulkInsert;
use crate::exec::run::ExecEnv;
use crate::functions::FnContext;
use crate::plan::PlanEnv;
use crate::types::{self, Datum};
use inkling_storage::wait::WaitHandle;
use std::sync::Arc;

/// A COPY FROM under way.
pub(in crate::session) struct CopyFrom {
    table: Arc<TableDef>,
    /// Positions (0-based) of the columns that a line has.
    columns: Vec<usize>,
    rules: Rules,
    filter: Option<RowExpr>,
    /// Columns that no line has: their defaults.
    defaults: Vec<(usize, RowExpr)>,
    bulk: BulkInsert,
    /// Bytes whose line has not ended.
    rest: Vec<u8>,
    line: u64,
    header_pending: bool,
    header_match: bool,
    /// `\.` was seen: what follows is ignored.
    ended: bool,
    finished: bool,
    rows: u64,
    row: Vec<Datum>,
    fields: Fields,
}

struct Rules {
    csv: bool,
    delimiter: u8,
    null: Vec<u8>,
    quote: u8,
    escape: u8,
    force_not_null: Vec<usize>,
    force_null: Vec<usize>,
}

/// One field: its bytes, unescaped, and whether it was in quotes.
#[derive(Default)]
struct Field {
    bytes: Vec<u8>,
    quoted: bool,
    null: bool,
}

/// The fields of one line; their buffers are kept from line to line.
#[derive(Default)]
struct Fields {
    list: Vec<Field>,
    used: usize,
}

impl Fields {
    fn clear(&mut self) {
        self.used = 0;
    }

    /// An empty field after those there are.
    fn add(&mut self) -> &mut Field {
        if self.used == self.list.len() {
            self.list.push(Field::default());
        }
        let field = &mut self.list[self.used];
        self.used += 1;
        field.bytes.clear();
        field.quoted = false;
        field.null = false;
        field
    }
}

impl std::ops::Deref for Fields {
    type Target = [Field];

    fn deref(&self) -> &[Field] {
        &self.list[..self.used]
    }
}

fn bad_format(text: impl Into<String>) -> SqlError {
    SqlError::new(State::BAD_COPY_FILE_FORMAT, text)
}

impl CopyFrom {
    pub fn new(
        c: &CopyTable,
        table: &Arc<TableDef>,
        columns: &[i16],
        env: &dyn PlanEnv,
    ) -> Result<Self> {
        let positions = |attnums: &[i16]| attnums.iter().map(|n| *n as usize - 1).collect();
        let compile = |e: &Expr| crate::exec::compile_row_expr(env, e);
        let defaults = c
            .defaults
            .iter()
            .map(|(attnum, e)| Ok((*attnum as usize - 1, compile(e)?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(CopyFrom {
            columns: positions(columns),
            rules: Rules {
                csv: c.format == CopyFormat::Csv,
                delimiter: c.delimiter as u8,
                null: c.null.clone().into_bytes(),
                quote: c.quote as u8,
                escape: c.escape as u8,
                force_not_null: positions(&c.force_not_null),
                force_null: positions(&c.force_null),
            },
            filter: c.filter.as_ref().map(compile).transpose()?,
            defaults,
            bulk: BulkInsert::new(table, &c.checks, c.freeze, env)?,
            rest: Vec::new(),
            line: 0,
            header_pending: c.header,
            header_match: c.header_match,
            ended: false,
            finished: false,
            rows: 0,
            row: vec![Datum::Null; table.columns.len()],
            fields: Fields::default(),
            table: Arc::clone(table),
        })
    }

    /// The end of the first line in `bytes` (without its newline) and where the next one starts.
    fn line_end(&self, bytes: &[u8], last: bool) -> Option<(usize, usize)> {
        let mut quoted = false;
        // Text goes on to the first byte that means something.
        let mut at = match self.rules.csv {
            true => 0,
            false => memchr::memchr3(b'\n', b'\r', b'\\', bytes).unwrap_or(bytes.len()),
        };
        while at < bytes.len() {
            match bytes[at] {
                b if self.rules.csv
                    && quoted
                    && b == self.rules.escape
                    && b != self.rules.quote =>
                {
                    at += 1;
                }
                b if self.rules.csv && b == self.rules.quote => quoted = !quoted,
                b'\\' if !self.rules.csv => at += 1,
                b'\n' if !quoted => return Some((at, at + 1)),
                b'\r' if !quoted => {
                    return match bytes.get(at + 1) {
                        Some(b'\n') => Some((at, at + 2)),
                        Some(_) => Some((at, at + 1)),
                        None if last => Some((at, at + 1)),
                        None => None,
                    };
                }
                _ => {}
            }
            at += 1;
        }
        (last && !bytes.is_empty()).then_some((bytes.len(), bytes.len()))
    }

    fn context(&self) -> String {
        format!("COPY {}, line {}", self.table.name, self.line)
    }

    /// An error with the line that it came up at; a missing referenced row is the statement's.
    fn in_context(&self, e: SqlError) -> SqlError {
        match e.state == State::FOREIGN_KEY_VIOLATION {
            true => e,
            false => e.context(self.context()),
        }
    }

    /// Splits a line into fields.
    fn split(&mut self, line: &[u8]) -> Result<()> {
        self.fields.clear();
        match self.rules.csv {
            true => split_csv(&self.rules, line, &mut self.fields),
            false => split_text(&self.rules, line, &mut self.fields),
        }
        .map_err(|e| e.context(self.context()))
    }

    /// Takes one line. True: a row is in `self.row`.
    fn take_line(&mut self, line: &[u8], fx: &dyn FnContext) -> Result<bool> {
        self.line += 1;
        if line == b"\\." {
            self.ended = true;
            return Ok(false);
        }
        if self.rules.csv || self.header_pending || memchr::memchr(b'\\', line).is_some() {
            self.split(line)?;
            if std::mem::take(&mut self.header_pending) {
                return self.check_header().map(|()| false);
            }
            self.check_count(self.fields.len(), line)?;
            self.row.fill(Datum::Null);
            for i in 0..self.columns.len() {
                let value = self.value(i, fx)?;
                let at = self.columns[i];
                self.row[at] = value;
            }
        } else {
            self.take_plain(line, fx)?;
        }
        for (at, default) in &self.defaults {
            self.row[*at] = default.eval(&[], fx)?;
        }
        match &self.filter {
            Some(filter) => Ok(filter.eval(&self.row, fx)? == Datum::Bool(true)),
            None => Ok(true),
        }
    }

    /// A line of the text format without escapes: its fields are as they stand.
    fn take_plain(&mut self, line: &[u8], fx: &dyn FnContext) -> Result<()> {
        self.row.fill(Datum::Null);
        let mut rest = line;
        for i in 0..self.columns.len() {
            let end = memchr::memchr(self.rules.delimiter, rest);
            let (raw, after) = match end {
                Some(end) => (&rest[..end], Some(&rest[end + 1..])),
                None => (rest, None),
            };
            // The last column takes the rest, and every other one leaves some.
            if after.is_some() != (i + 1 < self.columns.len()) {
                let count = line.iter().filter(|b| **b == self.rules.delimiter).count() + 1;
                return self.check_count(count, line);
            }
            if raw != self.rules.null.as_slice() {
                let value = self.text_value(i, raw, fx)?;
                let at = self.columns[i];
                self.row[at] = value;
            }
            rest = after.unwrap_or_default();
        }
        Ok(())
    }

    fn check_count(&self, fields: usize, line: &[u8]) -> Result<()> {
        let error = match fields.cmp(&self.columns.len()) {
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Less => {
                let missing = &self.table.columns[self.columns[fields]].name;
                bad_format(format!("missing data for column \"{missing}\""))
            }
            std::cmp::Ordering::Greater => bad_format("extra data after last expected column"),
        };
        Err(error.context(format!("{}: \"{}\"", self.context(), excerpt(line))))
    }

    fn check_header(&self) -> Result<()> {
        if !self.header_match {
            return Ok(());
        }
        let names = self.columns.iter().map(|at| self.table.columns[*at].name.as_bytes());
        if self.fields.len() == self.columns.len()
            && self.fields.iter().zip(names).all(|(f, name)| f.bytes == name)
        {
            return Ok(());
        }
        Err(bad_format("column name mismatch in header line").context(self.context()))
    }

    fn value(&self, i: usize, fx: &dyn FnContext) -> Result<Datum> {
        let (field, at) = (&self.fields[i], self.columns[i]);
        let is_null = match (self.rules.csv, field.quoted) {
            (false, _) => field.null,
            (true, false) => field.null && !self.rules.force_not_null.contains(&at),
            (true, true) => field.bytes == self.rules.null && self.rules.force_null.contains(&at),
        };
        if is_null {
            return Ok(Datum::Null);
        }
        self.text_value(i, &field.bytes, fx)
    }

    /// A field's bytes, unescaped, as its column's type.
    fn text_value(&self, i: usize, bytes: &[u8], fx: &dyn FnContext) -> Result<Datum> {
        let column = &self.table.columns[self.columns[i]];
        let context = || {
            let shown = excerpt(bytes);
            format!("{}, column {}: \"{shown}\"", self.context(), column.name)
        };
        let text = std::str::from_utf8(bytes).map_err(|_| {
            SqlError::new(
                State::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\"",
            )
            .context(context())
        })?;
        types::text_in(column.ty, text, fx).map_err(|e| e.context(context()))
    }
}

/// At most a hundred characters of a line, for an error's context.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(100) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.into_owned(),
    }
}

fn split_text(rules: &Rules, line: &[u8], fields: &mut Fields) -> Result<()> {
    for raw in split_unescaped(line, rules.delimiter) {
        let field = fields.add();
        field.null = raw == rules.null.as_slice();
        match !field.null && raw.contains(&b'\\') {
            true => unescape(raw, &mut field.bytes),
            false => field.bytes.extend_from_slice(raw),
        }
    }
    Ok(())
}

/// Cuts at delimiters that no backslash precedes.
fn split_unescaped(line: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' => at += 1,
                b if b == delimiter => {
                    rest = Some(&bytes[at + 1..]);
                    return Some(&bytes[..at]);
                }
                _ => {}
            }
            at += 1;
        }
        rest = None;
        Some(bytes)
    })
}

/// Backslash sequences of the text format: letters, octal, hexadecimal, anything else itself.
fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut bytes = raw.iter().copied().peekable();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        match bytes.next() {
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'v') => out.push(11),
            Some(b'x') if bytes.peek().is_some_and(u8::is_ascii_hexdigit) => {
                let mut value = 0u8;
                for _ in 0..2 {
                    let Some(d) = bytes.next_if(u8::is_ascii_hexdigit) else { break };
                    value = value * 16 + (d as char).to_digit(16).unwrap_or(0) as u8;
                }
                out.push(value);
            }
            Some(d @ b'0'..=b'7') => {
                let mut value = u32::from(d - b'0');
                for _ in 0..2 {
                    let Some(d) = bytes.next_if(|d| (b'0'..=b'7').contains(d)) else { break };
                    value = value * 8 + u32::from(d - b'0');
                }
                out.push(value as u8);
            }
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
}

fn split_csv(rules: &Rules, line: &[u8], fields: &mut Fields) -> Result<()> {
    let mut field = fields.add();
    let mut quoted = false;
    let mut at = 0;
    while at < line.len() {
        let b = line[at];
        if quoted {
            let next = line.get(at + 1);
            if b == rules.escape && next.is_some_and(|n| *n == rules.quote || *n == rules.escape) {
                at += 1;
                field.bytes.push(line[at]);
            } else if b == rules.quote {
                quoted = false;
            } else {
                field.bytes.push(b);
            }
        } else if b == rules.quote {
            quoted = true;
            field.quoted = true;
        } else if b == rules.delimiter {
            field.null = !field.quoted && field.bytes == rules.null;
            field = fields.add();
        } else {
            field.bytes.push(b);
        }
        at += 1;
    }
    field.null = !field.quoted && field.bytes == rules.null;
    match quoted {
        true => Err(bad_format("unterminated CSV quoted field")),
        false => Ok(()),
    }
}

impl Session {
    /// Bytes of a COPY FROM, as they come, piece by piece; lines may be split anywhere.
    pub fn copy_data<'d>(
        &mut self,
        portal: &str,
        mut pieces: impl Iterator<Item = &'d [u8]>,
    ) -> Result<()> {
        self.with_copy(portal, |session, copy| {
            session.with_env(|env| pieces.try_for_each(|data| copy.feed(session, env, data, false)))
        })
    }

    /// The client has sent everything.
    pub fn copy_done(&mut self, portal: &str) -> Result<()> {
        self.with_copy(portal, |session, copy| {
            session.with_env(|env| {
                copy.feed(session, env, &[], true)?;
                let finished = copy.bulk.finish(env, &|wait| session.block_on(wait));
                finished.map_err(|e| copy.in_context(e))
            })?;
            copy.finished = true;
            Ok(())
        })
    }

    /// The client gives up.
    pub fn copy_fail(&mut self, message: &str) -> SqlError {
        SqlError::new(State::QUERY_CANCELED, format!("COPY from stdin failed: {message}"))
    }

    /// Waits in this thread (the driver lets COPY have it) until `wait` is over or the statement
    /// is to stop.
    pub(in crate::session) fn block_on(&self, wait: &WaitHandle) -> Result<()> {
        let cancel = Arc::clone(&self.around.cancel);
        let watch = cancel.watch(wait.event());
        wait.block();
        drop(watch);
        cancel.check()
    }

    fn with_copy(
        &mut self,
        name: &str,
        f: impl FnOnce(&mut Session, &mut CopyFrom) -> Result<()>,
    ) -> Result<()> {
        let mut portal: Portal = self
            .portals
            .remove(name)
            .ok_or_else(|| SqlError::internal("COPY data without a COPY statement"))?;
        let outcome = match copying(&mut portal) {
            Some(copy) => f(self, copy),
            None => Err(SqlError::internal("COPY data without a COPY statement")),
        };
        if outcome.is_ok() {
            self.portals.insert(name.to_owned(), portal);
        }
        outcome
    }

    /// After `copy_done`: completes. Before: more data is wanted.
    pub(in crate::session) fn copy_in_step(&mut self, copy: &mut CopyFrom) -> Result<Progress> {
        if !copy.finished {
            return Ok(Progress::CopyIn(CopyInfo { columns: copy.columns.len(), binary: false }));
        }
        if let Some(handle) = self.run_due()? {
            return Ok(Progress::Wait(handle));
        }
        let rows = copy.rows;
        self.end_statement(true)?;
        Ok(Progress::Complete(CommandTag::Copy(rows)))
    }
}

/// The COPY FROM of a portal, also when EXECUTE began it.
fn copying(portal: &mut Portal) -> Option<&mut CopyFrom> {
    match &mut portal.execution {
        Execution::CopyIn(copy) => Some(copy),
        Execution::Nested(inner) => copying(inner),
        _ => None,
    }
}

impl CopyFrom {
    /// Takes bytes; what has no whole line yet is kept for the next ones.
    fn feed(
        &mut self,
        session: &Session,
        env: &ExecEnv<'_>,
        data: &[u8],
        last: bool,
    ) -> Result<()> {
        if self.rest.is_empty() {
            let taken = self.take_lines(session, env, data, last)?;
            self.rest.extend_from_slice(&data[taken..]);
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.rest);
        buffer.extend_from_slice(data);
        let taken = self.take_lines(session, env, &buffer, last)?;
        buffer.drain(..taken);
        self.rest = buffer;
        Ok(())
    }

    /// Inserts the whole lines at the start of `bytes`; tells how many bytes they are.
    fn take_lines(
        &mut self,
        session: &Session,
        env: &ExecEnv<'_>,
        bytes: &[u8],
        last: bool,
    ) -> Result<usize> {
        let mut cx = BulkInsert::context(env)?;
        let mut at = 0;
        while !self.ended {
            let Some((end, next)) = self.line_end(&bytes[at..], last) else { return Ok(at) };
            session.around.cancel.check()?;
            if self.take_line(&bytes[at..at + end], &session.around)? {
                let block = |wait: &WaitHandle| session.block_on(wait);
                let pushed = self.bulk.push(env, &mut cx, &mut self.row, &block);
                pushed.map_err(|e| self.in_context(e))?;
                self.rows += 1;
            }
            at += next;
        }
        // After the end mark nothing counts.
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(csv: bool) -> Rules {
        Rules {
            csv,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { Vec::new() } else { b"\\N".to_vec() },
            quote: b'"',
            escape: b'"',
            force_not_null: Vec::new(),
            force_null: Vec::new(),
        }
    }

    fn texts(fields: &[Field]) -> Vec<Option<String>> {
        fields
            .iter()
            .map(|f| (!f.null).then(|| String::from_utf8_lossy(&f.bytes).into_owned()))
            .collect()
    }

    #[test]
    fn text_fields_unescape() {
        let mut fields = Fields::default();
        split_text(&rules(false), b"a\\tb\t\\N\t\\x41\\102\\\\\t\t\\\tx", &mut fields)
            .expect("fields");
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(texts(&fields), vec![some("a\tb"), None, some("AB\\"), some(""), some("\tx")]);
    }

    #[test]
    fn csv_fields_know_quotes() {
        let mut fields = Fields::default();
        split_csv(&rules(true), b"a,\"b \"\"x\"\", c\",,\"\"", &mut fields).expect("fields");
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(texts(&fields), vec![some("a"), some("b \"x\", c"), None, some("")]);
        assert!(split_csv(&rules(true), b"\"open", &mut Fields::default()).is_err());
    }
}
