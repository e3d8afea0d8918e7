//! Rows as bytes: how the SQL layer fills a heap tuple.
//!
//! ```text
//!   int4 7, text 'ab', int2 NULL, bool t      nulls [0b1011]   data 07 00 00 00 | 05 61 62 | 01
//!                                                                   int4          2<<1|1      t
//! ```
//!
//! - Values stand in column order without padding; a null has its bit cleared and takes no bytes.
//!   The bitmap is empty when nothing is null.
//! - Fixed-width values are little-endian. Variable ones start with a header: one byte
//!   `len << 1 | 1` up to [`SHORT_MAX`] bytes, else four bytes `len << 2 | kind << 1`. Kind 1 is a
//!   *packed* value, whose first byte says how: [`PACKED_LZ4`] (then the raw length and the
//!   compressed bytes) or [`PACKED_TOAST`] (then a pointer into the TOAST table).
//! - While no column is null, the offsets of the leading fixed-width columns are known beforehand.
//! - A tuple may have fewer columns than the table has now: the rest read as the columns' missing
//!   values. A dropped column reads as NULL, but its type is still needed to step over it.
//! - Bytes come from disk: whatever does not decode is `XX001`, never a panic.
//!
//! [`RowCodec::splice`] builds an updated row from the old one's bytes and the changed columns,
//! without decoding the others.

use crate::catalog::TableDef;
use crate::error::{Result, SqlError, State};
use crate::types::numeric::{Numeric, Sign};
use crate::types::record::natural_type;
use crate::types::{self, ArrayValue, Datum, Interval, Oid, TimeTz, TypeRef, array};
use compact_str::CompactString;
use inkling_storage::heap::{TupleBody, TupleRef};
use inkling_storage::ids::{RowId, SlotNo};
use std::sync::Arc;

/// Longest value with a one-byte header.
pub const SHORT_MAX: usize = 126;
/// First byte of a packed value: compressed in place.
pub const PACKED_LZ4: u8 = 1;
/// First byte of a packed value: a pointer to the TOAST table.
pub const PACKED_TOAST: u8 = 2;

const MAX_LEN: usize = (1 << 30) - 1;

/// How a type's values stand in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Date,
    Time,
    Timestamp,
    TimeTz,
    Interval,
    Uuid,
    Oid,
    Char,
    Tid,
    Text,
    Bytea,
    Numeric,
    Array(Oid),
    Record,
}

impl Layout {
    fn of(ty: Oid) -> Layout {
        match ty {
            Oid::BOOL => Layout::Bool,
            Oid::INT2 => Layout::Int2,
            Oid::INT4 => Layout::Int4,
            Oid::INT8 | Oid::PG_LSN | Oid::XID8 => Layout::Int8,
            Oid::FLOAT4 => Layout::Float4,
            Oid::FLOAT8 => Layout::Float8,
            Oid::DATE => Layout::Date,
            Oid::TIME => Layout::Time,
            Oid::TIMESTAMP | Oid::TIMESTAMPTZ => Layout::Timestamp,
            Oid::TIMETZ => Layout::TimeTz,
            Oid::INTERVAL => Layout::Interval,
            Oid::UUID => Layout::Uuid,
            Oid::CHAR => Layout::Char,
            Oid::TID => Layout::Tid,
            Oid::BYTEA => Layout::Bytea,
            Oid::NUMERIC => Layout::Numeric,
            Oid::OID | Oid::XID | Oid::CID => Layout::Oid,
            Oid::REGCLASS
            | Oid::REGTYPE
            | Oid::REGPROC
            | Oid::REGPROCEDURE
            | Oid::REGOPER
            | Oid::REGOPERATOR
            | Oid::REGNAMESPACE
            | Oid::REGROLE
            | Oid::REGCOLLATION => Layout::Oid,
            _ => match types::info(ty) {
                Some(_) if array::is_array_type(ty) => {
                    Layout::Array(types::element_type(ty).unwrap_or(Oid::TEXT))
                }
                // Every array type is one of pg_catalog's; `anyarray` columns say themselves
                // what they hold (pg_statistic), see `put_array`.
                Some(t) if t.oid == Oid::ANYARRAY => Layout::Array(Oid::INVALID),
                Some(t) if t.oid == Oid::RECORD => Layout::Record,
                Some(_) => Layout::Text,
                None => Layout::Record,
            },
        }
    }

    /// Bytes of a fixed-width value.
    #[inline]
    const fn width(self) -> Option<usize> {
        Some(match self {
            Layout::Bool | Layout::Char => 1,
            Layout::Int2 => 2,
            Layout::Int4 | Layout::Float4 | Layout::Date | Layout::Oid => 4,
            Layout::Int8 | Layout::Float8 | Layout::Time | Layout::Timestamp => 8,
            Layout::Tid => 6,
            Layout::TimeTz => 12,
            Layout::Interval | Layout::Uuid => 16,
            Layout::Text | Layout::Bytea | Layout::Numeric | Layout::Array(_) | Layout::Record => {
                return None;
            }
        })
    }
}

#[derive(Clone, Debug)]
struct Column {
    layout: Layout,
    dropped: bool,
    /// What tuples older than the column read.
    missing: Datum,
}

/// A tuple's column values as the heap keeps them.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    pub natts: usize,
    /// Empty: nothing is null.
    pub nulls: &'a [u8],
    pub data: &'a [u8],
}

impl<'a> From<TupleRef<'a>> for RowView<'a> {
    #[inline]
    fn from(t: TupleRef<'a>) -> Self {
        RowView { natts: t.natts().into(), nulls: t.nulls().unwrap_or(&[]), data: t.data() }
    }
}

impl<'a> From<&TupleRef<'a>> for RowView<'a> {
    #[inline]
    fn from(t: &TupleRef<'a>) -> Self {
        RowView::from(*t)
    }
}

impl RowView<'_> {
    #[inline]
    fn is_null(&self, column: usize) -> bool {
        match self.nulls.get(column / 8) {
            Some(bits) => bits & (1 << (column % 8)) == 0,
            None => !self.nulls.is_empty(),
        }
    }
}

/// An encoded row; reusable as a buffer.
#[derive(Clone, Debug, Default)]
pub struct EncodedRow {
    natts: u16,
    nulls: Vec<u8>,
    data: Vec<u8>,
    has_external: bool,
}

impl EncodedRow {
    pub fn new(codec: &RowCodec, values: &[Datum]) -> Result<EncodedRow> {
        let mut row = EncodedRow::default();
        codec.encode(values, &mut row)?;
        Ok(row)
    }

    /// What the heap takes.
    pub fn body(&self) -> TupleBody<'_> {
        TupleBody {
            natts: self.natts,
            nulls: &self.nulls,
            data: &self.data,
            has_external: self.has_external,
        }
    }

    pub fn view(&self) -> RowView<'_> {
        RowView { natts: self.natts.into(), nulls: &self.nulls, data: &self.data }
    }

    pub fn data(&self) -> &[u8] {
        &self.data
    }

    fn begin(&mut self, columns: usize) {
        self.natts = columns as u16;
        self.nulls.clear();
        self.data.clear();
        self.has_external = false;
    }

    fn set_null(&mut self, column: usize) {
        if self.nulls.is_empty() {
            let columns = usize::from(self.natts);
            self.nulls.resize(columns.div_ceil(8), 0xff);
            if columns % 8 != 0
                && let Some(last) = self.nulls.last_mut()
            {
                *last = (1 << (columns % 8)) - 1;
            }
        }
        self.nulls[column / 8] &= !(1 << (column % 8));
    }
}

/// Fetches what a TOAST pointer names.
pub type Fetch<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<u8>>;

/// Encodes and decodes the rows of one table (or of any list of types).
#[derive(Clone, Debug)]
pub struct RowCodec {
    columns: Vec<Column>,
    /// Offsets of the leading fixed-width columns, and where the first other one starts.
    offsets: Vec<u32>,
}

impl RowCodec {
    /// A codec for columns in order: type and whether dropped.
    pub fn new(columns: &[(TypeRef, bool)]) -> RowCodec {
        let columns = columns.iter().map(|(ty, dropped)| Column {
            layout: Layout::of(ty.oid),
            dropped: *dropped,
            missing: Datum::Null,
        });
        RowCodec::build(columns.collect())
    }

    pub fn of_table(table: &TableDef) -> RowCodec {
        let columns = table.columns.iter().map(|c| Column {
            layout: Layout::of(c.ty.oid),
            dropped: c.dropped,
            missing: c.missing.clone().unwrap_or_default(),
        });
        RowCodec::build(columns.collect())
    }

    fn build(columns: Vec<Column>) -> RowCodec {
        let mut offsets = vec![0u32];
        for width in columns.iter().map_while(|c| c.layout.width()) {
            let last = offsets[offsets.len() - 1];
            offsets.push(last + width as u32);
        }
        RowCodec { columns, offsets }
    }

    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Encodes one value for each column; those of dropped columns are stored as NULL.
    pub fn encode(&self, values: &[Datum], out: &mut EncodedRow) -> Result<()> {
        if values.len() != self.columns.len() {
            return Err(SqlError::internal("row has a wrong number of columns"));
        }
        out.begin(values.len());
        for (i, (value, column)) in values.iter().zip(&self.columns).enumerate() {
            if value.is_null() || column.dropped {
                out.set_null(i);
            } else {
                put(column.layout, value, &mut out.data)?;
            }
        }
        Ok(())
    }

    /// Decodes the first `upto` columns into `out`. A value kept out of line is an error here.
    #[inline]
    pub fn decode<'a>(
        &self,
        row: impl Into<RowView<'a>>,
        upto: usize,
        out: &mut [Datum],
    ) -> Result<()> {
        self.decode_with(row, upto, &no_toast, out)
    }

    /// [`Self::decode`] that fetches values kept out of line.
    pub fn decode_with<'a>(
        &self,
        row: impl Into<RowView<'a>>,
        upto: usize,
        fetch: Fetch<'_>,
        out: &mut [Datum],
    ) -> Result<()> {
        let row = row.into();
        let stored = upto.min(row.natts).min(self.columns.len());
        let mut data = row.data;
        for (i, (column, slot)) in self.columns[..stored].iter().zip(out.iter_mut()).enumerate() {
            if row.is_null(i) {
                *slot = Datum::Null;
            } else if column.dropped {
                skip(column.layout, &mut data)?;
                *slot = Datum::Null;
            } else {
                *slot = get(column.layout, &mut data, fetch)?;
            }
        }
        self.fill_missing(stored, upto, out);
        Ok(())
    }

    fn fill_missing(&self, stored: usize, upto: usize, out: &mut [Datum]) {
        let upto = upto.min(self.columns.len());
        for (column, slot) in self.columns.iter().zip(out.iter_mut()).take(upto).skip(stored) {
            *slot = column.missing.clone();
        }
    }

    /// Decodes only the columns `wanted` (ascending) into their places in `out`.
    pub fn decode_columns<'a>(
        &self,
        row: impl Into<RowView<'a>>,
        wanted: &[usize],
        fetch: Fetch<'_>,
        out: &mut [Datum],
    ) -> Result<()> {
        let row = row.into();
        let mut data = row.data;
        let mut at = 0;
        for &i in wanted {
            if i >= row.natts || i >= self.columns.len() {
                let missing = self.columns.get(i).map(|c| c.missing.clone());
                out[i] = missing.unwrap_or_default();
                continue;
            }
            if row.nulls.is_empty() && i < self.offsets.len() {
                data = row.data.get(self.offsets[i] as usize..).ok_or_else(corrupt)?;
            } else {
                for j in at..i {
                    if !row.is_null(j) {
                        skip(self.columns[j].layout, &mut data)?;
                    }
                }
            }
            at = i + 1;
            let column = &self.columns[i];
            out[i] = if row.is_null(i) {
                Datum::Null
            } else {
                let value = get(column.layout, &mut data, fetch)?;
                if column.dropped { Datum::Null } else { value }
            };
        }
        Ok(())
    }

    /// The new version of `old`: `changes` (ascending by column) replace, the other columns'
    /// bytes are copied.
    pub fn splice<'a>(
        &self,
        old: impl Into<RowView<'a>>,
        changes: &[(usize, Datum)],
        out: &mut EncodedRow,
    ) -> Result<()> {
        let old = old.into();
        out.begin(self.columns.len());
        let mut data = old.data;
        // Bytes of unchanged columns collect until something interrupts the run.
        let mut run = data;
        let mut changes = changes.iter().peekable();
        for (i, column) in self.columns.iter().enumerate() {
            let stored = i < old.natts && !old.is_null(i);
            let change = changes.next_if(|(c, _)| *c == i);
            let keep = change.is_none() && stored && !column.dropped;
            if !keep {
                out.data.extend_from_slice(&run[..run.len() - data.len()]);
            }
            let start = data;
            if stored {
                skip(column.layout, &mut data)?;
            }
            if keep {
                out.has_external |= is_external(column.layout, start);
                continue;
            }
            run = data;
            let value = match change {
                Some((_, value)) => value,
                None if i >= old.natts => &column.missing,
                None => &Datum::Null,
            };
            if value.is_null() || column.dropped {
                out.set_null(i);
            } else {
                put(column.layout, value, &mut out.data)?;
            }
        }
        out.data.extend_from_slice(&run[..run.len() - data.len()]);
        match changes.next() {
            Some(_) => Err(SqlError::internal("changed columns are not in order")),
            None => Ok(()),
        }
    }

    /// The bytes of the variable-width values of a row, by column: what may be moved out of line.
    /// Packed values come with their packing byte and are marked.
    pub fn long_values<'a>(&self, row: RowView<'a>) -> Result<Vec<LongValue<'a>>> {
        let mut data = row.data;
        let mut found = Vec::new();
        for (i, column) in self.columns.iter().enumerate().take(row.natts) {
            if row.is_null(i) {
                continue;
            }
            if column.layout.width().is_some() {
                skip(column.layout, &mut data)?;
            } else {
                let (packed, bytes) = take_long(&mut data)?;
                found.push(LongValue { column: i, packed, bytes });
            }
        }
        Ok(found)
    }

    /// Copies `row` with the variable-width values of some columns replaced by packed ones
    /// (ascending by column).
    pub fn repack(
        &self,
        row: RowView<'_>,
        packed: &[(usize, Vec<u8>)],
        out: &mut EncodedRow,
    ) -> Result<()> {
        out.begin(row.natts);
        out.nulls.extend_from_slice(row.nulls);
        let mut data = row.data;
        let mut packed = packed.iter().peekable();
        for (i, column) in self.columns.iter().enumerate().take(row.natts) {
            if row.is_null(i) {
                continue;
            }
            let start = data;
            skip(column.layout, &mut data)?;
            if let Some((_, bytes)) = packed.next_if(|(c, _)| *c == i) {
                put_header(bytes.len(), true, &mut out.data)?;
                out.data.extend_from_slice(bytes);
                out.has_external |= bytes.first() == Some(&PACKED_TOAST);
            } else {
                out.data.extend_from_slice(&start[..start.len() - data.len()]);
                out.has_external |= is_external(column.layout, start);
            }
        }
        Ok(())
    }
}

/// A variable-width value inside a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongValue<'a> {
    pub column: usize,
    pub packed: bool,
    pub bytes: &'a [u8],
}

fn no_toast(_: &[u8]) -> Result<Vec<u8>> {
    Err(SqlError::internal("a value kept out of line was met where none is expected"))
}

#[cold]
fn corrupt() -> SqlError {
    SqlError::new(State::DATA_CORRUPTED, "row data is corrupt")
}

#[inline]
fn take<'a>(data: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (head, tail) = data.split_at_checked(len).ok_or_else(corrupt)?;
    *data = tail;
    Ok(head)
}

#[inline]
fn take_array<const N: usize>(data: &mut &[u8]) -> Result<[u8; N]> {
    let (head, tail) = data.split_first_chunk::<N>().ok_or_else(corrupt)?;
    *data = tail;
    Ok(*head)
}

/// A variable-width value's bytes, and whether they are packed.
#[inline]
fn take_long<'a>(data: &mut &'a [u8]) -> Result<(bool, &'a [u8])> {
    let first = *data.first().ok_or_else(corrupt)?;
    if first & 1 == 1 {
        *data = &data[1..];
        return Ok((false, take(data, usize::from(first >> 1))?));
    }
    let header = u32::from_le_bytes(take_array(data)?);
    Ok((header & 2 != 0, take(data, (header >> 2) as usize)?))
}

fn is_external(layout: Layout, mut data: &[u8]) -> bool {
    layout.width().is_none() && matches!(take_long(&mut data), Ok((true, [PACKED_TOAST, ..])))
}

#[inline]
fn skip(layout: Layout, data: &mut &[u8]) -> Result<()> {
    match layout.width() {
        Some(width) => take(data, width).map(|_| ()),
        None => take_long(data).map(|_| ()),
    }
}

fn put_header(len: usize, packed: bool, out: &mut Vec<u8>) -> Result<()> {
    if len <= SHORT_MAX && !packed {
        out.push((len << 1 | 1) as u8);
    } else if len <= MAX_LEN {
        out.extend(((len as u32) << 2 | u32::from(packed) << 1).to_le_bytes());
    } else {
        return Err(SqlError::new(
            State::PROGRAM_LIMIT_EXCEEDED,
            format!("invalid memory alloc request size {len}"),
        ));
    }
    Ok(())
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    put_header(bytes.len(), false, out)?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn put(layout: Layout, value: &Datum, out: &mut Vec<u8>) -> Result<()> {
    match (layout, value) {
        (Layout::Int4, Datum::Int4(v)) => out.extend(v.to_le_bytes()),
        (Layout::Int8, Datum::Int8(v)) => out.extend(v.to_le_bytes()),
        (Layout::Text, Datum::Text(v)) => put_bytes(v.as_bytes(), out)?,
        (Layout::Bool, Datum::Bool(v)) => out.push(u8::from(*v)),
        (Layout::Int2, Datum::Int2(v)) => out.extend(v.to_le_bytes()),
        (Layout::Float4, Datum::Float4(v)) => out.extend(v.to_le_bytes()),
        (Layout::Float8, Datum::Float8(v)) => out.extend(v.to_le_bytes()),
        (Layout::Date, Datum::Date(v)) => out.extend(v.to_le_bytes()),
        (Layout::Time, Datum::Time(v)) | (Layout::Timestamp, Datum::Timestamp(v)) => {
            out.extend(v.to_le_bytes());
        }
        (Layout::TimeTz, Datum::TimeTz(v)) => {
            out.extend(v.micros.to_le_bytes());
            out.extend(v.zone.to_le_bytes());
        }
        (Layout::Interval, Datum::Interval(v)) => {
            out.extend(v.micros.to_le_bytes());
            out.extend(v.days.to_le_bytes());
            out.extend(v.months.to_le_bytes());
        }
        (Layout::Uuid, Datum::Uuid(v)) => out.extend_from_slice(v),
        (Layout::Oid, Datum::Oid(v)) => out.extend(v.to_le_bytes()),
        (Layout::Char, Datum::Char(v)) => out.push(*v),
        (Layout::Tid, Datum::Tid(v)) => {
            out.extend(v.block.to_le_bytes());
            out.extend(v.slot.raw().to_le_bytes());
        }
        (Layout::Bytea, Datum::Bytea(v)) => put_bytes(v, out)?,
        (Layout::Numeric, Datum::Numeric(v)) => put_numeric(v, out)?,
        (Layout::Array(element), Datum::Array(v)) => put_array(element, v, out)?,
        (Layout::Record, Datum::Record(v)) => put_record(v, out)?,
        _ => {
            return Err(SqlError::internal(format!("{value:?} cannot be stored as {layout:?}")));
        }
    }
    Ok(())
}

fn get(layout: Layout, data: &mut &[u8], fetch: Fetch<'_>) -> Result<Datum> {
    Ok(match layout {
        Layout::Int4 => Datum::Int4(i32::from_le_bytes(take_array(data)?)),
        Layout::Int8 => Datum::Int8(i64::from_le_bytes(take_array(data)?)),
        Layout::Bool => Datum::Bool(take_array::<1>(data)?[0] != 0),
        Layout::Int2 => Datum::Int2(i16::from_le_bytes(take_array(data)?)),
        Layout::Float4 => Datum::Float4(f32::from_le_bytes(take_array(data)?)),
        Layout::Float8 => Datum::Float8(f64::from_le_bytes(take_array(data)?)),
        Layout::Date => Datum::Date(i32::from_le_bytes(take_array(data)?)),
        Layout::Time => Datum::Time(i64::from_le_bytes(take_array(data)?)),
        Layout::Timestamp => Datum::Timestamp(i64::from_le_bytes(take_array(data)?)),
        Layout::TimeTz => Datum::TimeTz(TimeTz {
            micros: i64::from_le_bytes(take_array(data)?),
            zone: i32::from_le_bytes(take_array(data)?),
        }),
        Layout::Interval => Datum::Interval(Interval {
            micros: i64::from_le_bytes(take_array(data)?),
            days: i32::from_le_bytes(take_array(data)?),
            months: i32::from_le_bytes(take_array(data)?),
        }),
        Layout::Uuid => Datum::Uuid(take_array(data)?),
        Layout::Oid => Datum::Oid(u32::from_le_bytes(take_array(data)?)),
        Layout::Char => Datum::Char(take_array::<1>(data)?[0]),
        Layout::Tid => {
            let block = u32::from_le_bytes(take_array(data)?);
            let slot = SlotNo::new(u16::from_le_bytes(take_array(data)?));
            Datum::Tid(RowId::new(block, slot))
        }
        _ => {
            let (packed, bytes) = take_long(data)?;
            if packed {
                return unpack(layout, bytes, fetch);
            }
            return get_long(layout, bytes, fetch);
        }
    })
}

#[cold]
fn unpack(layout: Layout, bytes: &[u8], fetch: Fetch<'_>) -> Result<Datum> {
    let raw = fetch(bytes)?;
    get_long(layout, &raw, fetch)
}

fn get_long(layout: Layout, bytes: &[u8], fetch: Fetch<'_>) -> Result<Datum> {
    match layout {
        Layout::Text => CompactString::from_utf8(bytes).map(Datum::Text).map_err(|_| corrupt()),
        Layout::Bytea => Ok(Datum::Bytea(bytes.into())),
        Layout::Numeric => get_numeric(bytes),
        Layout::Array(element) => get_array(element, bytes, fetch),
        _ => get_record(bytes, fetch),
    }
}

/// Short form: `1 s dddddd wwwwwwww` (sign, dscale below 63, weight as a byte), then digits.
/// dscale 63 marks NaN and the infinities. Long form: `0 s dscale`, then the weight, then digits.
fn put_numeric(v: &Numeric, out: &mut Vec<u8>) -> Result<()> {
    const SPECIAL: u16 = 0xff00;
    let code = match v.sign() {
        Sign::Nan => SPECIAL,
        Sign::PositiveInfinity => SPECIAL + 1,
        Sign::NegativeInfinity => SPECIAL + 2,
        Sign::Positive | Sign::Negative => {
            let negative = u16::from(v.is_negative()) << 14;
            let digits = v.digits();
            let short = v.dscale() < 63 && i8::try_from(v.weight()).is_ok();
            put_header(2 + usize::from(!short) * 2 + digits.len() * 2, false, out)?;
            if short {
                let scale = (v.dscale() as u16) << 8;
                let head = 0x8000 | negative | scale | u16::from(v.weight() as i8 as u8);
                out.extend(head.to_le_bytes());
            } else {
                out.extend((negative | v.dscale() as u16).to_le_bytes());
                out.extend((v.weight() as i16).to_le_bytes());
            }
            for d in digits {
                out.extend(d.to_le_bytes());
            }
            return Ok(());
        }
    };
    put_bytes(&code.to_le_bytes(), out)
}

fn get_numeric(mut bytes: &[u8]) -> Result<Datum> {
    let data = &mut bytes;
    let head = u16::from_le_bytes(take_array(data)?);
    let negative = head & 0x4000 != 0;
    let (weight, dscale) = if head & 0x8000 == 0 {
        (i32::from(i16::from_le_bytes(take_array(data)?)), i32::from(head & 0x3fff))
    } else if head >> 8 & 63 == 63 {
        let special = match head & 0xff {
            0 => Numeric::NAN,
            1 => Numeric::INFINITY,
            _ => Numeric::NEG_INFINITY,
        };
        return Ok(Datum::Numeric(Arc::new(special)));
    } else {
        (i32::from(head as u8 as i8), i32::from(head >> 8 & 63))
    };
    let (words, rest) = data.as_chunks::<2>();
    let digits: types::numeric::Digits = words.iter().map(|w| u16::from_le_bytes(*w)).collect();
    if !rest.is_empty() || digits.iter().any(|d| *d >= types::numeric::BASE) {
        return Err(corrupt());
    }
    let value = Numeric::from_parts(negative, weight, &digits, dscale).map_err(|_| corrupt())?;
    Ok(Datum::Numeric(Arc::new(value)))
}

/// Element type, number of dimensions, (length, lower bound) each, then a presence byte and the
/// value for each item.
fn put_array(element: Oid, v: &ArrayValue, out: &mut Vec<u8>) -> Result<()> {
    let mut body = Vec::with_capacity(8 + v.items.len() * 5);
    let element = if element.is_valid() { element } else { v.element };
    body.extend(element.0.to_le_bytes());
    body.push(v.dims.len() as u8);
    for (len, lower) in &v.dims {
        body.extend(len.to_le_bytes());
        body.extend(lower.to_le_bytes());
    }
    let layout = Layout::of(element);
    for item in &v.items {
        body.push(u8::from(!item.is_null()));
        if !item.is_null() {
            put(layout, item, &mut body)?;
        }
    }
    put_bytes(&body, out)
}

fn get_array(element: Oid, mut bytes: &[u8], fetch: Fetch<'_>) -> Result<Datum> {
    let data = &mut bytes;
    let stored = Oid(u32::from_le_bytes(take_array(data)?));
    let element = if element.is_valid() { element } else { stored };
    let layout = Layout::of(element);
    let [ndim] = take_array(data)?;
    if usize::from(ndim) > array::MAX_DIMS {
        return Err(corrupt());
    }
    let mut dims = Vec::with_capacity(ndim.into());
    for _ in 0..ndim {
        dims.push((i32::from_le_bytes(take_array(data)?), i32::from_le_bytes(take_array(data)?)));
    }
    let mut items = Vec::new();
    while !data.is_empty() {
        let present = take_array::<1>(data)?[0] != 0;
        items.push(if present { get(layout, data, fetch)? } else { Datum::Null });
    }
    let expected = dims.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(d.0).ok()?));
    let expected = if dims.is_empty() { Some(0) } else { expected };
    if expected != Some(items.len()) {
        return Err(corrupt());
    }
    Ok(Datum::Array(Arc::new(ArrayValue { element, dims, items })))
}

/// Type (0: NULL) and value of each field.
fn put_record(fields: &[Datum], out: &mut Vec<u8>) -> Result<()> {
    let mut body = Vec::new();
    for field in fields {
        let ty = if field.is_null() { Oid::INVALID } else { natural_type(field) };
        body.extend(ty.0.to_le_bytes());
        if !field.is_null() {
            put(Layout::of(ty), field, &mut body)?;
        }
    }
    put_bytes(&body, out)
}

fn get_record(mut bytes: &[u8], fetch: Fetch<'_>) -> Result<Datum> {
    let data = &mut bytes;
    let mut fields = Vec::new();
    while !data.is_empty() {
        let ty = Oid(u32::from_le_bytes(take_array(data)?));
        fields.push(if ty.is_valid() { get(Layout::of(ty), data, fetch)? } else { Datum::Null });
    }
    Ok(Datum::Record(fields.into()))
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
