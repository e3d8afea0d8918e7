//! COPY TO: one line a row.

use super::super::Session;
use super::super::api::{CommandTag, Progress, RowSink};
use super::super::portal::{Execution, Portal};
use crate::analyze::statement::{CopyFormat, CopyTable};
use crate::error::{Result, SqlError};
use crate::exec::Step;
use crate::exec::run::Running;
use crate::functions::FnContext;
use crate::types::{self, Datum, TypeRef};

/// A COPY TO under way.
pub(in crate::session) struct CopyTo {
    running: Box<Running>,
    types: Vec<TypeRef>,
    names: Vec<String>,
    csv: bool,
    delimiter: u8,
    null: Vec<u8>,
    quote: u8,
    escape: u8,
    /// 0-based columns that are always quoted.
    force_quote: Vec<usize>,
    header: bool,
    rows: u64,
    line: Vec<u8>,
    field: Vec<u8>,
}

impl CopyTo {
    pub fn new(
        c: &CopyTable,
        running: Box<Running>,
        types: Vec<TypeRef>,
        names: Vec<String>,
    ) -> Self {
        CopyTo {
            running,
            types,
            names,
            csv: c.format == CopyFormat::Csv,
            delimiter: c.delimiter as u8,
            null: c.null.clone().into_bytes(),
            quote: c.quote as u8,
            escape: c.escape as u8,
            force_quote: c.force_quote.iter().map(|n| *n as usize - 1).collect(),
            header: c.header,
            rows: 0,
            line: Vec::new(),
            field: Vec::new(),
        }
    }

    fn write_header(&mut self) {
        self.line.clear();
        for i in 0..self.names.len() {
            if i > 0 {
                self.line.push(self.delimiter);
            }
            self.field.clear();
            self.field.extend_from_slice(self.names[i].as_bytes());
            self.put_field(false);
        }
        self.line.push(b'\n');
    }

    fn write_row(&mut self, fx: &dyn FnContext) {
        self.line.clear();
        let row = self.running.row();
        // The fields are written into buffers of ours while the row is borrowed.
        let mut fields = std::mem::take(&mut self.line);
        for (i, value) in row.iter().enumerate() {
            if i > 0 {
                fields.push(self.delimiter);
            }
            if matches!(value, Datum::Null) {
                fields.extend_from_slice(&self.null);
                continue;
            }
            self.field.clear();
            types::output(value, self.types[i].oid, fx, &mut self.field);
            let force = self.force_quote.contains(&i);
            put(self, &mut fields, force);
        }
        fields.push(b'\n');
        self.line = fields;
    }

    fn put_field(&mut self, force: bool) {
        let mut line = std::mem::take(&mut self.line);
        put(self, &mut line, force);
        self.line = line;
    }
}

/// Appends the field in `copy.field`, escaped.
fn put(copy: &CopyTo, line: &mut Vec<u8>, force: bool) {
    match copy.csv {
        true => put_csv(copy, line, force),
        false => put_text(&copy.field, copy.delimiter, line),
    }
}

fn put_text(field: &[u8], delimiter: u8, line: &mut Vec<u8>) {
    for b in field {
        let escaped = match b {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            11 => b'v',
            12 => b'f',
            b if *b == delimiter => *b,
            b => {
                line.push(*b);
                continue;
            }
        };
        line.extend_from_slice(&[b'\\', escaped]);
    }
}

fn put_csv(copy: &CopyTo, line: &mut Vec<u8>, force: bool) {
    let special = |b: &u8| *b == copy.delimiter || *b == copy.quote || matches!(b, b'\n' | b'\r');
    let field = &copy.field;
    let quote = force || *field == copy.null || field.iter().any(special) || field == b"\\.";
    if !quote {
        line.extend_from_slice(field);
        return;
    }
    line.push(copy.quote);
    for b in field {
        if *b == copy.quote || *b == copy.escape {
            line.push(copy.escape);
        }
        line.push(*b);
    }
    line.push(copy.quote);
}

impl Session {
    pub(in crate::session) fn copy_out_step(
        &mut self,
        portal: &mut Portal,
        sink: &mut dyn RowSink,
    ) -> Result<Progress> {
        let Execution::CopyOut(copy) = &mut portal.execution else {
            return Err(SqlError::internal("no COPY TO is under way"));
        };
        if std::mem::take(&mut copy.header) {
            copy.write_header();
            sink.copy_data(&copy.line)?;
        }
        loop {
            if sink.full() {
                return Ok(Progress::FlushRows);
            }
            match self.with_env(|env| copy.running.next(env))? {
                Step::Row => {}
                Step::Wait(handle) => return Ok(Progress::Wait(handle)),
                Step::Done => break,
            }
            copy.write_row(&self.around);
            sink.copy_data(&copy.line)?;
            copy.rows += 1;
        }
        let tag = CommandTag::Copy(copy.rows);
        portal.execution = Execution::Done(tag);
        self.end_statement(false)?;
        Ok(Progress::Complete(tag))
    }
}
