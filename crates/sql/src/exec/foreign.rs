//! Foreign keys as the executor meets them: which rows have to be looked at after the statement.
//!
//! ```text
//!   insert into child       every row whose key is not NULL        Event::Reference
//!   update child            rows whose key changed                 Event::Reference
//!   delete from parent      every row                              Event::Removed, new: None
//!   update parent           rows whose referenced key changed      Event::Removed, new: Some
//! ```
//!
//! A table without foreign keys, its own or others', pays one test of a pointer a row. Rules A1
//! to A4 of the directory's README.

use super::after::{AfterQueue, Event};
use super::{ExecCx, expr::Callee};
use crate::analyze::statement::ForeignAction;
use crate::catalog::{ConstraintDef, ConstraintKind, TableDef};
use crate::error::{Result, SqlError};
use crate::functions::{self, CastHow};
use crate::types::{Datum, Oid};
use inkling_storage::ids::RowId;
use std::sync::Arc;

/// One foreign key.
#[derive(Debug)]
pub struct ForeignKey {
    pub def: Arc<ConstraintDef>,
    pub referenced: Oid,
    /// The unique index of the referenced columns.
    pub index: Oid,
    /// Positions in the referencing table.
    pub columns: Vec<usize>,
    /// Positions in the referenced table, in the same order.
    pub referenced_columns: Vec<usize>,
    pub on_update: ForeignAction,
    pub on_delete: ForeignAction,
    /// Positions of ON DELETE SET NULL / SET DEFAULT (columns); none: the whole key.
    pub set_columns: Vec<usize>,
    pub match_full: bool,
}

fn positions(attnums: &[i16]) -> Vec<usize> {
    attnums.iter().map(|a| (*a).max(1) as usize - 1).collect()
}

/// Whether all, none or some of a key's values are NULL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    None,
    Some,
    All,
}

pub fn nulls(values: &[Datum]) -> Nulls {
    match values.iter().filter(|v| v.is_null()).count() {
        0 => Nulls::None,
        n if n == values.len() => Nulls::All,
        _ => Nulls::Some,
    }
}

impl ForeignKey {
    /// `None`: the constraint is of another kind.
    pub fn of(def: &Arc<ConstraintDef>) -> Option<ForeignKey> {
        let ConstraintKind::Foreign {
            referenced,
            referenced_columns,
            on_update,
            on_delete,
            match_type,
            index,
            set_columns,
        } = &def.kind
        else {
            return None;
        };
        Some(ForeignKey {
            referenced: *referenced,
            index: *index,
            columns: positions(&def.columns),
            referenced_columns: positions(referenced_columns),
            on_update: ForeignAction::of_code(*on_update),
            on_delete: ForeignAction::of_code(*on_delete),
            set_columns: positions(set_columns),
            match_full: *match_type == 'f',
            def: Arc::clone(def),
        })
    }

    /// What happens to referencing rows when the referenced one gets another key, or goes.
    pub fn action(&self, deleted: bool) -> ForeignAction {
        if deleted { self.on_delete } else { self.on_update }
    }

    /// A row that refers to its own table may be satisfied by a row of the same statement.
    pub fn refers_to_itself(&self) -> bool {
        self.def.table == self.referenced
    }

    /// Whether a new row with this key has to be checked.
    fn concerns(&self, values: &[Datum]) -> bool {
        match nulls(values) {
            Nulls::None => true,
            Nulls::Some => self.match_full,
            Nulls::All => false,
        }
    }
}

fn pick(values: &[Datum], columns: &[usize]) -> Box<[Datum]> {
    columns.iter().map(|c| values[*c].clone()).collect()
}

/// The foreign keys that rows of a table are part of.
#[derive(Debug)]
pub struct Watch {
    /// Those of the table.
    outgoing: Vec<Arc<ForeignKey>>,
    /// Those that refer to it.
    incoming: Vec<Arc<ForeignKey>>,
    /// Columns of the table that any of them names, ascending.
    pub columns: Vec<usize>,
}

/// A row's values before and after an update, with only the watched columns filled in.
#[derive(Default)]
pub struct Change {
    pub old: Vec<Datum>,
    pub new: Vec<Datum>,
    /// The old version was made by this transaction: a check that is still to come will find it
    /// gone, so the new one is checked in any case.
    pub own: bool,
}

impl Watch {
    /// `None`: there is nothing to watch.
    pub fn of(table: &TableDef) -> Option<Box<Watch>> {
        let of = |list: &[Arc<ConstraintDef>]| -> Vec<Arc<ForeignKey>> {
            let mut keys: Vec<_> = list.iter().filter_map(ForeignKey::of).map(Arc::new).collect();
            keys.sort_by_key(|k| k.def.oid);
            keys
        };
        let (outgoing, incoming) = (of(&table.constraints), of(&table.referenced_by));
        if outgoing.is_empty() && incoming.is_empty() {
            return None;
        }
        let own = outgoing.iter().flat_map(|k| &k.columns);
        let mut columns: Vec<usize> =
            own.chain(incoming.iter().flat_map(|k| &k.referenced_columns)).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        Some(Box::new(Watch { outgoing, incoming, columns }))
    }

    pub fn outgoing(&self) -> &[Arc<ForeignKey>] {
        &self.outgoing
    }

    /// Whether deleting a row may make events.
    pub fn concerns_delete(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Whether an update that assigns these columns may make events. `own`: of a row that this
    /// transaction made.
    pub fn concerns_update(&self, mut assigned: impl Iterator<Item = usize>, own: bool) -> bool {
        (own && !self.outgoing.is_empty()) || assigned.any(|c| self.columns.contains(&c))
    }

    /// A row was inserted.
    pub fn inserted(&self, queue: &mut AfterQueue, row: RowId, values: &[Datum]) -> Result<()> {
        for key in &self.outgoing {
            let values = pick(values, &key.columns);
            if key.concerns(&values) {
                queue.push(Event::Reference { key: Arc::clone(key), row, values })?;
            }
        }
        Ok(())
    }

    /// A row was deleted; `old` has the watched columns' values.
    pub fn deleted(&self, queue: &mut AfterQueue, old: &[Datum]) -> Result<()> {
        for key in &self.incoming {
            let old = pick(old, &key.referenced_columns);
            if nulls(&old) == Nulls::None {
                queue.push(Event::Removed { key: Arc::clone(key), old, new: None })?;
            }
        }
        Ok(())
    }

    /// A row was updated; `row` is the new version.
    pub fn updated(&self, queue: &mut AfterQueue, row: RowId, change: &Change) -> Result<()> {
        let same = |columns: &[usize]| columns.iter().all(|c| change.old[*c] == change.new[*c]);
        for key in &self.incoming {
            let old = pick(&change.old, &key.referenced_columns);
            if nulls(&old) != Nulls::None || same(&key.referenced_columns) {
                continue;
            }
            let new = Some(pick(&change.new, &key.referenced_columns));
            queue.push(Event::Removed { key: Arc::clone(key), old, new })?;
        }
        for key in &self.outgoing {
            let values = pick(&change.new, &key.columns);
            let mixed = nulls(&values) == Nulls::Some;
            if key.concerns(&values) && (change.own || mixed || !same(&key.columns)) {
                queue.push(Event::Reference { key: Arc::clone(key), row, values })?;
            }
        }
        Ok(())
    }
}

/// How a foreign key's column of one type can refer to one of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    Yes,
    /// No equality that an index of the referenced column knows.
    No,
    /// PostgreSQL has one, we do not.
    Unsupported,
}

fn family(ty: Oid) -> u8 {
    match ty {
        Oid::INT2 | Oid::INT4 | Oid::INT8 => 1,
        Oid::FLOAT4 | Oid::FLOAT8 => 2,
        Oid::DATE | Oid::TIMESTAMP | Oid::TIMESTAMPTZ => 3,
        _ => 0,
    }
}

/// The cast by which a value of the referencing column is looked up as one of the referenced.
fn implicit_cast(from: Oid, to: Oid) -> Option<&'static functions::Cast> {
    functions::find_cast(from, to).filter(|c| c.context == functions::CastContext::Implicit)
}

pub fn fit(referenced: Oid, referencing: Oid) -> Fit {
    let same = |a: Oid, b: Oid| {
        a == b || functions::equality(a).map(|o| o.oid) == functions::equality(b).map(|o| o.oid)
    };
    let is_known = functions::equality(referenced).is_some();
    let families = (family(referenced), family(referencing));
    let implicit = implicit_cast(referencing, referenced).is_some();
    match families {
        _ if is_known && same(referenced, referencing) => Fit::Yes,
        (1, 1) | (2, 2) => Fit::Yes,
        (3, 3) if !implicit => Fit::Unsupported,
        _ if is_known && implicit => Fit::Yes,
        _ => Fit::No,
    }
}

/// A referencing column's value as one of the referenced column's type. `None`: no value of that
/// type is equal to it.
pub fn convert(cx: &ExecCx<'_>, value: &Datum, from: Oid, to: Oid) -> Result<Option<Datum>> {
    if from == to || value.is_null() {
        return Ok(Some(value.clone()));
    }
    let whole = match value {
        Datum::Int2(v) => Some(i64::from(*v)),
        Datum::Int4(v) => Some(i64::from(*v)),
        Datum::Int8(v) => Some(*v),
        _ => None,
    };
    match (whole, to, value) {
        (Some(v), Oid::INT2, _) => Ok(i16::try_from(v).ok().map(Datum::Int2)),
        (Some(v), Oid::INT4, _) => Ok(i32::try_from(v).ok().map(Datum::Int4)),
        (Some(v), Oid::INT8, _) => Ok(Some(Datum::Int8(v))),
        (_, Oid::FLOAT4, Datum::Float8(v)) => {
            let short = *v as f32;
            let exact = v.is_nan() || f64::from(short) == *v;
            Ok(exact.then_some(Datum::Float4(short)))
        }
        _ => cast(cx, value, from, to).map(Some),
    }
}

fn cast(cx: &ExecCx<'_>, value: &Datum, from: Oid, to: Oid) -> Result<Datum> {
    match implicit_cast(from, to).map(|c| &c.how) {
        Some(CastHow::Function(function)) => {
            let mut args = vec![value.clone()];
            // Casts with a length take "none given" and "not explicit".
            args.extend(
                [Datum::Int4(-1), Datum::Bool(false)].into_iter().take(function.args.len() - 1),
            );
            Callee::of(function, function.args)?.call(cx, &args)
        }
        Some(CastHow::Relabel) => Ok(value.clone()),
        _ if functions::equality(from).map(|o| o.oid) == functions::equality(to).map(|o| o.oid) => {
            Ok(value.clone())
        }
        _ => Err(SqlError::internal(format!("no cast of a key from {from} to {to}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_fit_when_the_referenced_index_knows_an_equality() {
        for (referenced, referencing, expected) in [
            (Oid::INT4, Oid::INT4, Fit::Yes),
            (Oid::INT8, Oid::INT4, Fit::Yes),
            (Oid::INT4, Oid::INT8, Fit::Yes),
            (Oid::TEXT, Oid::VARCHAR, Fit::Yes),
            (Oid::NUMERIC, Oid::INT4, Fit::Yes),
            (Oid::INT4, Oid::NUMERIC, Fit::No),
            (Oid::INT4, Oid::TEXT, Fit::No),
            (Oid::TIMESTAMP, Oid::DATE, Fit::Yes),
            (Oid::DATE, Oid::TIMESTAMP, Fit::Unsupported),
        ] {
            assert_eq!(fit(referenced, referencing), expected, "{referenced} <- {referencing}");
        }
    }

    #[test]
    fn nulls_are_counted() {
        let one = Datum::Int4(1);
        assert!(nulls(&[one.clone(), one.clone()]) == Nulls::None);
        assert!(nulls(&[one, Datum::Null]) == Nulls::Some);
        assert!(nulls(&[Datum::Null]) == Nulls::All);
    }
}
