//! nextval, currval, lastval, setval: sequences as one session uses them.
//!
//! ```text
//!   nextval ─> values cached here (CACHE n)? ─> take one
//!                   └── else: relation lock, then a batch from the storage engine
//!              the position of the log that it hangs on ─> the session's answer waits for it
//!              the relation, if this call logged ────────> Transaction::written, at commit
//! ```
//!
//! - A sequence is locked (ROW EXCLUSIVE, until the transaction ends) before a value is taken:
//!   whoever gives it another file holds a stronger lock, and two files must not both hand out.
//!   Statements that name the sequence take the lock before they begin and wait for it; a call
//!   whose argument is computed cannot wait, and fails when the lock is not to be had (55P03).
//! - A sequence has the durability level of the table whose column owns it
//!   (`catalog/durability.rs`): who numbers the rows of an asynchronous table waits for no flush.
//! - Values cached here are gone when the session ends, as in PostgreSQL.

use super::around::Around;
use super::run::read_only_error;
use crate::analyze::other_sessions;
use crate::catalog::{CatalogSnapshot, Persistence, RelationKind, SequenceDef, TableDef};
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid};
use hashbrown::HashMap;
use inkling_storage::durability::TableLevel;
use inkling_storage::ids::{Lsn, RelId};
use inkling_storage::lock::{LockMode, LockTag};
use inkling_storage::seq::{self, SeqState, SeqView};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What the session knows of one sequence.
#[derive(Clone, Copy)]
struct Known {
    /// The file that the cached values are from.
    rel: RelId,
    /// What currval says, once it says something.
    last: Option<i64>,
    /// Cached values after `last`, up to here.
    cached: i64,
    increment: i64,
    /// What the cached values hang on.
    lsn: Lsn,
    /// The lock level in which the relation was locked last.
    locked_in: u64,
}

/// The sequences that a session has used.
#[derive(Default)]
pub(super) struct Sequences {
    known: RefCell<HashMap<Oid, Known>>,
    /// Whose value lastval tells.
    last_used: Cell<Option<Oid>>,
    /// No value taken is told before the log is durable up to here.
    told: Cell<Lsn>,
    /// Sequences for which this transaction wrote log records.
    written: RefCell<SmallVec<[RelId; 4]>>,
    /// Changes when locks may have gone: with every transaction and every rollback to a savepoint.
    lock_level: Cell<u64>,
}

impl Sequences {
    /// DISCARD SEQUENCES.
    pub fn discard(&self) {
        self.known.borrow_mut().clear();
        self.last_used.set(None);
    }

    pub fn begin_transaction(&self) {
        self.written.borrow_mut().clear();
        self.locks_may_have_gone();
    }

    pub fn locks_may_have_gone(&self) {
        self.lock_level.set(self.lock_level.get() + 1);
    }

    /// What the next answer has to wait for.
    #[inline]
    pub fn take_told(&self) -> Lsn {
        self.told.replace(Lsn::INVALID)
    }

    /// The relations that count as written by this transaction.
    pub fn take_written(&self) -> SmallVec<[RelId; 4]> {
        std::mem::take(&mut *self.written.borrow_mut())
    }
}

/// A sequence that may be used now.
struct Open {
    table: Arc<TableDef>,
    def: SequenceDef,
}

fn no_relation(oid: Oid) -> SqlError {
    SqlError::new(State::INTERNAL_ERROR, format!("could not open relation with OID {oid}"))
}

fn definition(catalog: &CatalogSnapshot, oid: Oid) -> Result<Open> {
    match catalog.table(oid) {
        Some(table) => match table.sequence {
            Some(def) => Ok(Open { table: Arc::clone(table), def }),
            None => Err(not_a_sequence(&table.name)),
        },
        None => match catalog.indexes.get(&oid) {
            Some(index) => Err(not_a_sequence(&index.name)),
            None => Err(no_relation(oid)),
        },
    }
}

fn not_a_sequence(name: &str) -> SqlError {
    SqlError::new(State::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence"))
}

/// Finds the sequence and locks it, once a transaction.
fn open(around: &Around, oid: Oid) -> Result<Open> {
    let sequences = &around.sequences;
    let level = sequences.lock_level.get();
    let known = sequences.known.borrow().get(&oid).copied();
    if known.is_some_and(|k| k.locked_in == level) {
        return definition(around.catalog(), oid);
    }
    let mut open = definition(around.catalog(), oid)?;
    if !around.may_read_pages(&open.table) {
        return Err(other_sessions("access"));
    }
    let locks = &around.db.engine.locks;
    let tag = LockTag::Relation(oid.0);
    let owner = around.txn_session.owner();
    // A lock from before the statement began was there when it looked at the catalog.
    let held = locks.holds(owner, &tag, LockMode::RowExclusive);
    if !held && !locks.try_acquire(owner, tag, LockMode::RowExclusive) {
        return Err(not_to_be_had(&open.table.name));
    }
    let shared = open.table.persistence != Persistence::Temporary;
    if shared && !held && around.catalog_seen.get() != around.db.catalog.version() {
        // Somebody changed it, perhaps, before the lock was there.
        if around.catalog_version() == CatalogSnapshot::OWN {
            return Err(not_to_be_had(&open.table.name));
        }
        let current = around.db.catalog.current()?;
        sequences.told.set(sequences.told.get().max(current.undurable));
        open = definition(&current, oid)?;
    }
    let rel = open.table.rel;
    let mut known = sequences.known.borrow_mut();
    let known = known.entry(oid).or_insert(Known {
        rel,
        last: None,
        cached: 0,
        increment: 0,
        lsn: Lsn::INVALID,
        locked_in: level,
    });
    known.locked_in = level;
    if known.rel != rel {
        // Another file: what was cached is of the old one.
        known.rel = rel;
        known.increment = 0;
    }
    Ok(open)
}

fn not_to_be_had(name: &str) -> SqlError {
    let text = format!("could not obtain lock on relation \"{name}\"");
    SqlError::new(State::LOCK_NOT_AVAILABLE, text)
}

fn check_may_write(around: &Around, open: &Open, what: &str) -> Result<()> {
    let temporary = open.table.persistence == Persistence::Temporary;
    match around.read_only.get() && !temporary {
        true => Err(read_only_error(what)),
        false => Ok(()),
    }
}

/// Makes the next answer wait for a position of the log, if the session would wait for a commit
/// that wrote the sequence.
fn tell_after(around: &Around, rel: RelId, lsn: Lsn) {
    let told = &around.sequences.told;
    if lsn <= told.get() || lsn <= around.db.engine.wal.flushed() {
        return;
    }
    let waits = match around.catalog().levels.of(rel) {
        TableLevel::Sync => true,
        TableLevel::Inherit => around.with_decoded(|d| d.synchronous_commit),
        TableLevel::Async { .. } | TableLevel::Volatile => false,
    };
    if waits {
        told.set(lsn);
    }
}

fn note_written(around: &Around, rel: RelId) {
    let mut written = around.sequences.written.borrow_mut();
    if !written.contains(&rel) {
        written.push(rel);
    }
}

fn update(around: &Around, oid: Oid, change: impl FnOnce(&mut Known)) {
    if let Some(known) = around.sequences.known.borrow_mut().get_mut(&oid) {
        change(known);
    }
}

fn nextval(around: &Around, oid: Oid) -> Result<i64> {
    let open = open(around, oid)?;
    check_may_write(around, &open, "nextval()")?;
    around.sequences.last_used.set(Some(oid));
    if let Some(known) = around.sequences.known.borrow_mut().get_mut(&oid)
        && let Some(last) = known.last
        && known.increment != 0
        && last != known.cached
    {
        let value = last + known.increment;
        known.last = Some(value);
        tell_after(around, known.rel, known.lsn);
        return Ok(value);
    }
    let engine = &around.db.engine;
    let (rel, def) = (open.table.rel, &open.def);
    let Some(batch) = seq::next(engine, rel, &def.params(), def.cache)? else {
        let (word, limit) = match def.increment > 0 {
            true => ("maximum", def.max),
            false => ("minimum", def.min),
        };
        let text =
            format!("nextval: reached {word} value of sequence \"{}\" ({limit})", open.table.name);
        return Err(SqlError::new(State::SEQUENCE_GENERATOR_LIMIT_EXCEEDED, text));
    };
    update(around, oid, |known| {
        known.last = Some(batch.first);
        known.cached = batch.last;
        known.increment = def.increment;
        known.lsn = batch.lsn;
    });
    if batch.logged && batch.lsn.is_valid() {
        note_written(around, rel);
    }
    tell_after(around, rel, batch.lsn);
    Ok(batch.first)
}

fn undefined(text: String) -> SqlError {
    SqlError::new(State::OBJECT_NOT_IN_PREREQUISITE_STATE, text)
}

fn currval(around: &Around, oid: Oid) -> Result<i64> {
    let open = open(around, oid)?;
    let known = around.sequences.known.borrow().get(&oid).copied();
    known.and_then(|k| k.last).ok_or_else(|| {
        let name = &open.table.name;
        undefined(format!("currval of sequence \"{name}\" is not yet defined in this session"))
    })
}

fn lastval(around: &Around) -> Result<i64> {
    let found = around.sequences.last_used.get().filter(|oid| {
        // It may have been dropped.
        around.catalog().table(*oid).is_some_and(|t| t.kind == RelationKind::Sequence)
    });
    let value = match found {
        Some(oid) => {
            open(around, oid)?;
            around.sequences.known.borrow().get(&oid).and_then(|k| k.last)
        }
        None => None,
    };
    value.ok_or_else(|| undefined("lastval is not yet defined in this session".to_owned()))
}

fn setval(around: &Around, oid: Oid, value: i64, called: bool) -> Result<i64> {
    let open = open(around, oid)?;
    check_may_write(around, &open, "setval()")?;
    let def = &open.def;
    if value < def.min || value > def.max {
        let text = format!(
            "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
            open.table.name, def.min, def.max
        );
        return Err(SqlError::new(State::NUMERIC_VALUE_OUT_OF_RANGE, text));
    }
    let rel = open.table.rel;
    let lsn = seq::set(&around.db.engine, rel, SeqState { last: value, called })?;
    update(around, oid, |known| {
        if called {
            known.last = Some(value);
        }
        // Nothing is cached any more.
        known.increment = 0;
    });
    if lsn.is_valid() {
        note_written(around, rel);
    }
    tell_after(around, rel, lsn);
    Ok(value)
}

fn view(around: &Around, open: &Open) -> Result<SeqView> {
    let view = seq::read(&around.db.engine, open.table.rel)?;
    tell_after(around, open.table.rel, view.lsn);
    Ok(view)
}

/// pg_sequence_last_value: NULL before the first value.
fn last_value(around: &Around, oid: Oid) -> Result<Datum> {
    let open = definition(around.catalog(), oid)?;
    let view = view(around, &open)?;
    Ok(if view.state.called { Datum::Int8(view.state.last) } else { Datum::Null })
}

/// The one row of `SELECT * FROM sequence`.
pub(super) fn row(around: &Around, oid: Oid) -> Result<Vec<Datum>> {
    let open = definition(around.catalog(), oid)?;
    let view = view(around, &open)?;
    let SeqState { last, called } = view.state;
    Ok(vec![Datum::Int8(last), Datum::Int8(view.log_cnt), Datum::Bool(called)])
}

fn parameters(around: &Around, oid: Oid) -> Result<Datum> {
    let def = definition(around.catalog(), oid)?.def;
    let fields = vec![
        Datum::Int8(def.start),
        Datum::Int8(def.min),
        Datum::Int8(def.max),
        Datum::Int8(def.increment),
        Datum::Bool(def.cycle),
        Datum::Int8(def.cache),
        Datum::Oid(def.ty.0),
    ];
    Ok(Datum::Record(fields.into()))
}

/// Answers the functions of this module; `None`: not one of them.
pub(super) fn call(around: &Around, name: &str, args: &[Datum]) -> Result<Option<Datum>> {
    let oid = match args.first() {
        Some(Datum::Oid(oid)) => Oid(*oid),
        _ => Oid::INVALID,
    };
    Ok(Some(match name {
        "nextval" => Datum::Int8(nextval(around, oid)?),
        "currval" => Datum::Int8(currval(around, oid)?),
        "lastval" => Datum::Int8(lastval(around)?),
        "setval" => {
            let Some(Datum::Int8(value)) = args.get(1) else {
                return Err(SqlError::internal("setval without a value"));
            };
            let called = !matches!(args.get(2), Some(Datum::Bool(false)));
            Datum::Int8(setval(around, oid, *value, called)?)
        }
        "pg_sequence_last_value" => last_value(around, oid)?,
        "pg_sequence_parameters" => parameters(around, oid)?,
        _ => return Ok(None),
    }))
}
