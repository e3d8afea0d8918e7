//! Sub-selects inside expressions.
//!
//! | kind                    | value                                                            |
//! |-------------------------|------------------------------------------------------------------|
//! | scalar                  | the one row's column; NULL without a row; 21000 for two           |
//! | EXISTS                  | whether there is a row                                           |
//! | `x op ANY/ALL (select)` | three-valued combination over the rows                           |
//! | `x IN (select)`, hashed | the same for plain equality, rows kept in a hash table           |
//! | ARRAY(select)           | all rows' column                                                 |
//! | row                     | the one row as a record                                          |
//!
//! A sub-plan that reads nothing of the outer query runs once a statement; one that does runs for
//! every evaluation, because the outer registers may have changed.

use super::expr::{Ex, Function, make_array};
use super::rows::{KeyTable, RowStore};
use super::{ExecCx, Node, Reg, Step, cannot_wait};
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid};

pub enum SubPlanKind {
    Scalar,
    Exists,
    /// All columns of at most one row, as a record.
    Row,
    Quantified {
        functions: Box<[Function]>,
        all: bool,
        /// Types to hash by, when the functions are plain equality.
        hash: Option<Vec<Oid>>,
    },
    Array {
        element: Oid,
        nested: bool,
    },
}

/// A sub-plan of a running statement.
pub struct SubPlanState {
    pub node: Box<dyn Node>,
    pub kind: SubPlanKind,
    /// Registers of its output columns.
    pub output: Vec<Reg>,
    pub correlated: bool,
    value: Option<Datum>,
    started: bool,
    /// Rows of an uncorrelated quantified comparison.
    rows: Option<Kept>,
}

enum Kept {
    Flat(RowStore),
    Hashed {
        keys: KeyTable,
        /// Rows with a NULL column: they may make an answer unknown.
        partial: RowStore,
    },
}

impl SubPlanState {
    pub fn new(
        node: Box<dyn Node>,
        kind: SubPlanKind,
        output: Vec<Reg>,
        correlated: bool,
    ) -> SubPlanState {
        SubPlanState { node, kind, output, correlated, value: None, started: false, rows: None }
    }

    /// Before a new run of the statement.
    pub fn reset(&mut self) {
        self.value = None;
        self.rows = None;
        self.started = false;
    }

    fn start(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.started = true;
        self.node.rescan(cx)
    }

    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<bool> {
        match self.node.next(cx)? {
            Step::Row => Ok(true),
            Step::Done => Ok(false),
            Step::Wait(_) => Err(cannot_wait()),
        }
    }

    /// Runs an uncorrelated scalar sub-plan ahead of time, because it takes row locks and may
    /// have to wait. `Some` is what to wait for.
    pub fn prepare_scalar(
        &mut self,
        cx: &mut ExecCx<'_>,
    ) -> Result<Option<inkling_storage::wait::WaitHandle>> {
        if self.value.is_some() || self.rows.is_some() {
            return Ok(None);
        }
        if !self.started {
            self.start(cx)?;
        }
        match &self.kind {
            SubPlanKind::Scalar | SubPlanKind::Row => {
                let mut value = None;
                loop {
                    match self.node.next(cx)? {
                        Step::Wait(h) => return Ok(Some(h)),
                        Step::Done => break,
                        Step::Row if value.is_some() => return Err(too_many_rows()),
                        Step::Row => value = Some(self.row_value(cx)),
                    }
                }
                self.value = Some(value.unwrap_or_default());
            }
            _ => {
                let mut rows = RowStore::new(self.output.len());
                loop {
                    match self.node.next(cx)? {
                        Step::Wait(h) => return Ok(Some(h)),
                        Step::Done => break,
                        Step::Row => rows.push(None, &self.output, cx)?,
                    }
                }
                self.rows = Some(Kept::Flat(rows));
            }
        }
        self.started = false;
        Ok(None)
    }

    fn scalar(&mut self, cx: &mut ExecCx<'_>) -> Result<Datum> {
        self.start(cx)?;
        if !self.next(cx)? {
            return Ok(Datum::Null);
        }
        let value = self.row_value(cx);
        if self.next(cx)? { Err(too_many_rows()) } else { Ok(value) }
    }

    /// The current row: its one column, or all as a record.
    fn row_value(&self, cx: &ExecCx<'_>) -> Datum {
        match self.kind {
            SubPlanKind::Row => {
                Datum::Record(self.output.iter().map(|r| cx.reg(*r).clone()).collect())
            }
            _ => cx.reg(self.output[0]).clone(),
        }
    }

    fn array(&mut self, cx: &mut ExecCx<'_>, element: Oid, nested: bool) -> Result<Datum> {
        let mut values = Vec::new();
        match &self.rows {
            Some(Kept::Flat(rows)) => {
                values.extend((0..rows.len()).map(|i| rows.row(i)[0].clone()))
            }
            _ => {
                self.start(cx)?;
                while self.next(cx)? {
                    values.push(cx.reg(self.output[0]).clone());
                }
            }
        }
        make_array(values, element, nested)
    }

    fn exists(&mut self, cx: &mut ExecCx<'_>) -> Result<Datum> {
        if let Some(Kept::Flat(rows)) = &self.rows {
            return Ok(Datum::Bool(!rows.is_empty()));
        }
        self.start(cx)?;
        Ok(Datum::Bool(self.next(cx)?))
    }

    /// `left op ANY/ALL (rows)`.
    fn quantified(&mut self, cx: &mut ExecCx<'_>, left: &[Datum]) -> Result<Datum> {
        let SubPlanKind::Quantified { functions, all, hash } = &self.kind else {
            return Err(SqlError::internal("not a quantified comparison"));
        };
        let all = *all;
        if !self.correlated && self.rows.is_none() {
            let hash = hash.clone();
            self.keep(cx, hash)?;
            return self.quantified(cx, left);
        }
        let mut verdict = Verdict { all, value: Some(all) };
        match &self.rows {
            Some(Kept::Hashed { keys, partial }) => {
                return Ok(
                    probe(cx, keys, partial, left, functions)?.map_or(Datum::Null, Datum::Bool)
                );
            }
            Some(Kept::Flat(rows)) => {
                for i in 0..rows.len() {
                    if verdict.add(compare_row(cx, functions, left, rows.row(i))?) {
                        break;
                    }
                }
            }
            None => {
                self.started = true;
                self.node.rescan(cx)?;
                let mut row = Vec::with_capacity(self.output.len());
                loop {
                    match self.node.next(cx)? {
                        Step::Done => break,
                        Step::Wait(_) => return Err(cannot_wait()),
                        Step::Row => {}
                    }
                    row.clear();
                    row.extend(self.output.iter().map(|r| cx.reg(*r).clone()));
                    if verdict.add(compare_row(cx, functions, left, &row)?) {
                        break;
                    }
                }
            }
        }
        Ok(verdict.value.map_or(Datum::Null, Datum::Bool))
    }

    fn keep(&mut self, cx: &mut ExecCx<'_>, hash: Option<Vec<Oid>>) -> Result<()> {
        self.start(cx)?;
        let mut flat = RowStore::new(self.output.len());
        let mut keys = hash.map(KeyTable::new);
        while self.next(cx)? {
            let mut row: Vec<Datum> = self.output.iter().map(|r| cx.reg(*r).clone()).collect();
            match &mut keys {
                Some(keys) if !row.iter().any(Datum::is_null) => {
                    keys.insert(&mut row)?;
                }
                _ => flat.push_values(row)?,
            }
        }
        self.rows = Some(match keys {
            Some(keys) => Kept::Hashed { keys, partial: flat },
            None => Kept::Flat(flat),
        });
        Ok(())
    }
}

/// Combines row verdicts: ANY is an OR, ALL an AND.
struct Verdict {
    all: bool,
    value: Option<bool>,
}

impl Verdict {
    /// Adds one row's truth; true when the answer cannot change any more.
    fn add(&mut self, t: Option<bool>) -> bool {
        match t {
            Some(t) if t != self.all => {
                self.value = Some(t);
                true
            }
            Some(_) => false,
            None => {
                self.value = None;
                false
            }
        }
    }
}

fn compare_row(
    cx: &ExecCx<'_>,
    functions: &[Function],
    left: &[Datum],
    right: &[Datum],
) -> Result<Option<bool>> {
    let mut result = Some(true);
    for (i, f) in functions.iter().enumerate() {
        match f.call(cx, &[left[i].clone(), right[i].clone()])? {
            Datum::Bool(true) => {}
            Datum::Bool(false) => return Ok(Some(false)),
            _ => result = None,
        }
    }
    Ok(result)
}

/// `left IN (rows)` by hash. A NULL on either side can only turn "no" into "unknown".
fn probe(
    cx: &ExecCx<'_>,
    keys: &KeyTable,
    partial: &RowStore,
    left: &[Datum],
    functions: &[Function],
) -> Result<Option<bool>> {
    let with_null = left.iter().any(Datum::is_null);
    if !with_null && keys.find(left).is_some() {
        return Ok(Some(true));
    }
    let mut verdict = Verdict { all: false, value: Some(false) };
    for i in 0..partial.len() {
        verdict.add(compare_row(cx, functions, left, partial.row(i))?);
    }
    if with_null {
        for i in 0..keys.len() {
            verdict.add(compare_row(cx, functions, left, keys.key(i))?);
        }
    }
    Ok(verdict.value)
}

fn too_many_rows() -> SqlError {
    SqlError::new(
        State::CARDINALITY_VIOLATION,
        "more than one row returned by a subquery used as an expression",
    )
}

/// The value of sub-plan `index`; `left` is the left side of a quantified comparison.
pub fn eval(cx: &mut ExecCx<'_>, index: usize, left: &[Ex]) -> Result<Datum> {
    if let Some(Some(state)) = cx.subplans.get(index)
        && let Some(value) = &state.value
        && !state.correlated
    {
        return Ok(value.clone());
    }
    let left = super::expr::eval_all(left, cx)?;
    let Some(mut state) = cx.subplans.get_mut(index).and_then(Option::take) else {
        return Err(SqlError::internal("a sub-plan runs inside itself"));
    };
    let result = match &state.kind {
        SubPlanKind::Scalar | SubPlanKind::Row => state.scalar(cx),
        SubPlanKind::Exists => state.exists(cx),
        SubPlanKind::Quantified { .. } => state.quantified(cx, &left),
        SubPlanKind::Array { element, nested } => {
            let (element, nested) = (*element, *nested);
            state.array(cx, element, nested)
        }
    };
    let keeps = !state.correlated && !matches!(state.kind, SubPlanKind::Quantified { .. });
    if keeps && let Ok(value) = &result {
        state.value = Some(value.clone());
    }
    cx.subplans[index] = Some(state);
    result
}
