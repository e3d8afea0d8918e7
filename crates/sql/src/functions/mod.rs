//! Built-in functions, operators, aggregates and casts: the one registry.
//!
//! The analyser resolves names and operators against it, the executor calls what it found, and
//! the bootstrap writes pg_proc, pg_operator, pg_aggregate and pg_cast from it, so that what the
//! catalog shows is what runs.

use crate::error::Result;
use crate::types::{Datum, Oid};
use inkling_storage::wait::WaitHandle;

pub(crate) mod aggregate;
#[cfg(test)]
mod aggregate_tests;
pub(crate) mod args;
pub(crate) mod array;
pub(crate) mod compare;
pub(crate) mod datetime;
pub(crate) mod datetime_parts;
pub(crate) mod digest;
pub(crate) mod float;
#[cfg(test)]
mod golden;
pub(crate) mod int;
pub(crate) mod io;
pub mod like;
pub(crate) mod misc;
pub(crate) mod numeric;
pub mod pattern;
pub(crate) mod regexp;
mod registry;
pub(crate) mod string;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod text;
pub(crate) mod to_char;

pub use registry::{
    all_operators, by_oid, casts, equality, find_cast, functions, greater, less, lookup,
    operator_by_oid, operators,
};

/// What a function sees of the session that calls it.
pub trait FnContext {
    /// Statement and transaction start, microseconds since 2000-01-01 UTC.
    fn transaction_timestamp(&self) -> i64;
    fn statement_timestamp(&self) -> i64;
    fn clock_timestamp(&self) -> i64;
    /// The session's time zone (an IANA name or a fixed offset, as `SET timezone` took it).
    fn time_zone(&self) -> &jiff::tz::TimeZone;
    /// The current text of a setting, for functions such as `current_setting` and for
    /// DateStyle, IntervalStyle, extra_float_digits and bytea_output in text output.
    fn setting(&self, name: &str) -> Option<String>;
    /// Text output style, kept decoded so that it costs nothing a value.
    fn style(&self) -> &crate::types::OutputStyle;
    /// Catalog, session and system functions go through here (catalog, pids, settings writes).
    fn session(&self) -> &dyn SessionFunctions;
    /// Whether a cancel request or time-out is pending: long loops ask now and then.
    fn check_interrupt(&self) -> Result<()>;
    /// The session's generator of random numbers, which `setseed` sets. All zeros: not seeded
    /// yet. Without one (the default) the thread's is used.
    fn random_state(&self) -> Option<&std::cell::Cell<[u64; 2]>> {
        None
    }
}

/// What catalog and session functions (pg_get_indexdef, set_config, pg_backend_pid, ...) need;
/// implemented by the session. `name` is the built-in's name, arguments are as resolved.
pub trait SessionFunctions {
    fn call(&self, name: &str, args: &[Datum]) -> Result<Datum>;
    /// Set-returning session functions (pg_settings rows, pg_stat_activity rows, ...).
    fn call_set(&self, name: &str, args: &[Datum]) -> Result<Vec<Vec<Datum>>>;
    /// A row is computed whose functions may wait; true for the outermost of nested ones.
    fn begin_row(&self) -> bool {
        true
    }
    /// It is computed, failed, or `waits`: then for what. See `session/waiting.rs`.
    fn end_row(&self, _waits: bool) -> Option<WaitHandle> {
        None
    }
}

pub type ScalarFn = fn(&dyn FnContext, &[Datum]) -> Result<Datum>;
/// For functions of `"any"`: the argument types come along.
pub type TypedFn = fn(&dyn FnContext, &[Oid], &[Datum]) -> Result<Datum>;
pub type SetFn =
    fn(&dyn FnContext, &[Datum]) -> Result<Box<dyn Iterator<Item = Result<Vec<Datum>>> + Send>>;

/// An aggregate's running state.
pub trait AggState: Send {
    fn update(&mut self, args: &[Datum]) -> Result<()>;
    fn finish(&mut self) -> Result<Datum>;
}

pub type AggFn = fn(arg_types: &[Oid]) -> Box<dyn AggState>;

#[derive(Clone, Copy)]
pub enum Implementation {
    Scalar(ScalarFn),
    /// A scalar function that must know its arguments' types (`concat`, `format`, `pg_typeof`).
    Typed(TypedFn),
    /// Computed by the executor's window node under the function's name (`row_number`, `lag`).
    Window,
    Aggregate(AggFn),
    /// Rows of the declared columns.
    Set(SetFn),
    /// Answered by [`SessionFunctions::call`] under the function's name.
    Session,
    /// Answered by [`SessionFunctions::call_set`].
    SessionSet,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Volatility {
    Immutable,
    Stable,
    Volatile,
}

/// A built-in function as pg_proc describes it.
pub struct Builtin {
    pub oid: Oid,
    pub name: &'static str,
    pub args: &'static [Oid],
    /// The last argument type repeats (VARIADIC).
    pub variadic: bool,
    /// How many of the last arguments may be left out (their defaults are NULL to the function).
    pub optional: u8,
    pub result: Oid,
    /// Output columns of a set-returning function that returns rows: (name, type).
    pub columns: &'static [(&'static str, Oid)],
    /// NULL in gives NULL out without a call.
    pub strict: bool,
    pub volatility: Volatility,
    pub imp: Implementation,
}

impl std::fmt::Debug for Builtin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.name, self.args)
    }
}

impl PartialEq for Builtin {
    fn eq(&self, other: &Self) -> bool {
        self.oid == other.oid
    }
}

impl Builtin {
    pub fn is_aggregate(&self) -> bool {
        matches!(self.imp, Implementation::Aggregate(_))
    }
    pub fn is_window(&self) -> bool {
        matches!(self.imp, Implementation::Window)
    }
    pub fn is_set(&self) -> bool {
        matches!(self.imp, Implementation::Set(_) | Implementation::SessionSet)
    }
}

/// An operator as pg_operator describes it. A prefix operator has no left type.
#[derive(Debug)]
pub struct Operator {
    pub oid: Oid,
    pub name: &'static str,
    pub left: Option<Oid>,
    pub right: Oid,
    pub result: Oid,
    pub function: &'static Builtin,
    /// `a op b` is `b commutator a`.
    pub commutator: Option<&'static str>,
    /// `NOT (a op b)` is `a negator b`.
    pub negator: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    Implicit,
    Assignment,
    Explicit,
}

/// A cast between two types as pg_cast describes it.
#[derive(Debug)]
pub struct Cast {
    pub source: Oid,
    pub target: Oid,
    pub context: CastContext,
    pub how: CastHow,
}

#[derive(Debug)]
pub enum CastHow {
    /// Same representation.
    Relabel,
    /// Text out, text in.
    InOut,
    Function(&'static Builtin),
}
