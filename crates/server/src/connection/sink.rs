//! Where a statement's rows go: straight into the output buffer, as DataRow messages.

use super::OUTPUT_HIGH;
use crate::wire::backend::{self, Out};
use crate::wire::frontend::Formats;
use inkling_sql::error::{Result, SqlError};
use inkling_sql::functions::FnContext;
use inkling_sql::session::{ColumnDesc, CopyInfo, Progress, RowSink};
use inkling_sql::types::{self, Datum, TypeRef};

pub struct WireSink<'a> {
    out: &'a mut Out,
    formats: &'a Formats,
    /// RowDescription goes before the rows of statements that tell their columns only now.
    describe: bool,
    rows: u64,
    copying: bool,
}

impl<'a> WireSink<'a> {
    pub fn new(out: &'a mut Out, formats: &'a Formats, describe: bool) -> Self {
        WireSink { out, formats, describe, rows: 0, copying: false }
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// COPY TO ends with CopyDone.
    pub fn finish(self, progress: &Result<Progress>) {
        let is_copy =
            matches!(progress, Ok(Progress::Complete(inkling_sql::session::CommandTag::Copy(_))));
        if is_copy && self.copying {
            backend::copy_done(self.out);
        }
    }
}

impl RowSink for WireSink<'_> {
    #[inline]
    fn row(&mut self, values: &[Datum], tys: &[TypeRef], cx: &dyn FnContext) -> Result<()> {
        let out = &mut *self.out;
        let row_at = backend::start(out, b'D');
        backend::put_i16(out, values.len() as i16);
        for (i, (value, ty)) in values.iter().zip(tys).enumerate() {
            if value.is_null() {
                backend::put_i32(out, -1);
                continue;
            }
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            if self.formats.is_binary(i) {
                types::binary_out(value, ty.oid, out)?;
            } else {
                types::output(value, ty.oid, cx, out);
            }
            let length = (out.len() - at - 4) as i32;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        backend::finish(out, row_at);
        self.rows += 1;
        Ok(())
    }

    fn copy_out_begin(&mut self, info: CopyInfo) -> Result<()> {
        backend::copy_response(self.out, b'H', info.columns, info.binary);
        self.copying = true;
        Ok(())
    }

    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        self.copying = true;
        backend::copy_data(self.out, data);
        Ok(())
    }

    fn full(&self) -> bool {
        self.out.len() > OUTPUT_HIGH
    }

    fn columns(&mut self, columns: &[ColumnDesc]) -> Result<()> {
        if self.describe {
            backend::row_description(self.out, columns, self.formats);
        }
        Ok(())
    }

    fn notice(&mut self, notice: SqlError) {
        backend::error(self.out, &notice);
    }
}
