//! Results: rows of typed columns.

use crate::Result;
use crate::value::{FromSql, ValueRef};
use inkling_sql::error::{SqlError, State};
use inkling_sql::functions::FnContext;
use inkling_sql::session::ColumnDesc;
use inkling_sql::types::{Datum, Oid, OutputStyle};
use std::sync::Arc;

/// A column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Column(ColumnDesc);

impl Column {
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn type_oid(&self) -> Oid {
        self.0.ty.oid
    }

    /// The type's name as SQL writes it: `character varying(10)`.
    pub fn type_name(&self) -> String {
        inkling_sql::types::format_type(self.0.ty.oid, self.0.ty.typmod)
    }
}

/// What the rows of a result have in common: columns, and how the session writes values.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub columns: Vec<Column>,
    pub style: OutputStyle,
    pub zone: jiff::tz::TimeZone,
}

impl Default for Shape {
    fn default() -> Self {
        let (style, zone) = (OutputStyle::default(), jiff::tz::TimeZone::UTC);
        Shape { columns: Vec::new(), style, zone }
    }
}

impl Shape {
    pub fn new(columns: &[ColumnDesc], cx: &dyn FnContext) -> Self {
        let columns = columns.iter().cloned().map(Column).collect();
        Shape { columns, style: cx.style().clone(), zone: cx.time_zone().clone() }
    }
}

/// One row of a result.
#[derive(Clone, Debug)]
pub struct Row {
    shape: Arc<Shape>,
    values: Vec<Datum>,
}

/// A column by number (from 0) or by name.
pub trait RowIndex {
    fn find(&self, row: &Row) -> Option<usize>;
    fn describe(&self) -> String;
}

impl RowIndex for usize {
    fn find(&self, row: &Row) -> Option<usize> {
        (*self < row.len()).then_some(*self)
    }
    fn describe(&self) -> String {
        self.to_string()
    }
}

impl RowIndex for str {
    fn find(&self, row: &Row) -> Option<usize> {
        row.shape.columns.iter().position(|c| c.name() == self)
    }
    fn describe(&self) -> String {
        format!("\"{self}\"")
    }
}

impl<T: RowIndex + ?Sized> RowIndex for &T {
    fn find(&self, row: &Row) -> Option<usize> {
        (**self).find(row)
    }
    fn describe(&self) -> String {
        (**self).describe()
    }
}

impl Row {
    pub(crate) fn new(shape: &Arc<Shape>, values: Vec<Datum>) -> Self {
        Row { shape: Arc::clone(shape), values }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn columns(&self) -> &[Column] {
        &self.shape.columns
    }

    /// The raw values.
    pub fn values(&self) -> &[Datum] {
        &self.values
    }

    /// A column's value as `T`. An error when there is no such column, when `T` does not fit its
    /// type, and for a null unless `T` is an [`Option`].
    pub fn get<T: FromSql>(&self, column: impl RowIndex) -> Result<T> {
        let at = column.find(self).ok_or_else(|| {
            let text = format!("the result has no column {}", column.describe());
            SqlError::new(State::UNDEFINED_COLUMN, text)
        })?;
        let name = |e: SqlError| e.context(format!("column \"{}\"", self.shape.columns[at].name()));
        let ty = self.shape.columns[at].0.ty;
        T::from_sql(ValueRef::new(&self.values[at], ty, &self.shape)).map_err(name)
    }
}

/// The rows of a result, in order.
#[derive(Clone, Debug)]
pub struct Rows {
    shape: Arc<Shape>,
    rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn new(shape: Arc<Shape>, values: Vec<Vec<Datum>>) -> Self {
        let rows = values.into_iter().map(|values| Row::new(&shape, values)).collect();
        Rows { shape, rows }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn columns(&self) -> &[Column] {
        &self.shape.columns
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Row> {
        self.rows.iter()
    }

    pub fn first(&self) -> Option<&Row> {
        self.rows.first()
    }

    /// The one value of a result of one row and one column.
    pub fn scalar<T: FromSql>(&self) -> Result<T> {
        match (self.rows.as_slice(), self.shape.columns.len()) {
            ([row], 1) => row.get(0),
            (rows, columns) => Err(SqlError::new(
                State::CARDINALITY_VIOLATION,
                format!("expected one value, found {} rows of {columns} columns", rows.len()),
            )),
        }
    }
}

impl IntoIterator for Rows {
    type Item = Row;
    type IntoIter = std::vec::IntoIter<Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<'a> IntoIterator for &'a Rows {
    type Item = &'a Row;
    type IntoIter = std::slice::Iter<'a, Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl std::ops::Index<usize> for Rows {
    type Output = Row;

    fn index(&self, at: usize) -> &Row {
        &self.rows[at]
    }
}
