//! The executor: a pull tree of operators over one register file.
//!
//! Every column that a statement's plan can speak of has a *register*, a slot of [`ExecCx::regs`].
//! A scan decodes a row's needed columns into its table's registers, an expression reads them by
//! number, a projection writes others. Nothing is copied from operator to operator: a join leaves
//! both sides where they are.
//!
//! ```text
//!   select a.id, b.x + 1 from a join b on b.id = a.id
//!
//!   registers   0..3 = a's columns     4..7 = b's columns     8, 9 = the output row
//!
//!   Project    8 := r0, 9 := r5 + 1
//!     HashJoin  r0 = r4      (keeps b's live registers of all rows, restores them at a match)
//!       SeqScan a  -> r0..r3
//!       SeqScan b  -> r4..r7
//! ```
//!
//! - [`Node::next`] makes the next row current, or says that there is none, or that somebody must
//!   be waited for. After a wait the same call is made again: operators keep their state.
//! - Operators that keep rows (sort, hash, materialise) keep the registers that are *live* above
//!   them, found when the tree is built.
//! - A correlated sub-plan reads the outer query's registers directly; it is started anew for
//!   each evaluation. An uncorrelated one is evaluated once a statement.
//! - No latch is held when `next` returns.

use crate::error::{Result, SqlError, State};
use crate::functions::FnContext;
use crate::types::{Datum, Oid};
use inkling_storage::engine::Engine;
use inkling_storage::heap::{self, HeapRel, ReadCx, TupleBuf, VisState};
use inkling_storage::ids::{CommandId, RowId};
use inkling_storage::ssi::Tag;
use inkling_storage::txn::{Snapshot, Transaction};
use inkling_storage::wait::WaitHandle;
use std::cell::RefCell;

pub mod after;
pub mod aggregate;
pub mod basic;
pub mod build;
pub mod expr;
pub mod foreign;
pub mod join;
pub mod key_check;
pub mod long;
pub mod references;
pub mod rows;
pub mod run;
pub mod scan;
pub mod sets;
pub mod sort;
pub mod source;
pub mod subplan;
pub mod table;
pub mod wait;
pub mod window;
pub mod write;

pub use expr::Ex;
pub use run::{RowExpr, compile_row_expr, eval_const};
pub use subplan::SubPlanState;
pub use write::bulk;

/// A register's number.
pub type Reg = u32;

/// What became of a call for the next row.
#[derive(Debug)]
pub enum Step {
    /// A row is in the registers.
    Row,
    Done,
    /// Wait, then call again.
    Wait(WaitHandle),
}

/// What became of computing a row.
pub enum Computed<T> {
    Value(T),
    Wait(WaitHandle),
}

/// One operator of a running plan.
pub trait Node: Send {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step>;

    /// Back to before the first row; registers and parameters that it reads may have changed.
    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()>;

    /// Counts the remaining rows without making them current, when that is cheaper.
    fn count_rest(&mut self, _cx: &mut ExecCx<'_>) -> Option<Result<u64>> {
        None
    }

    /// Only the first `rows` rows will be asked for (a sort can then forget the others).
    fn set_bound(&mut self, _rows: Option<u64>) {}
}

/// The storage engine as one statement uses it.
#[derive(Clone, Copy)]
pub struct Store<'a> {
    pub engine: &'a Engine,
    pub tx: &'a RefCell<Transaction>,
    pub visibility: &'a VisState,
    pub snapshot: Snapshot,
    /// Effects of earlier commands are visible.
    pub command: CommandId,
    /// What rows written leave to be done after the statement.
    pub after: &'a RefCell<after::AfterQueue>,
    /// A row that this does not see must not be written: above READ COMMITTED, where a cascade
    /// looks for rows as of now.
    pub crosscheck: Option<Snapshot>,
}

impl<'a> Store<'a> {
    #[inline]
    pub fn read<'t>(&'t self, tx: &'t Transaction) -> ReadCx<'t> {
        ReadCx {
            snapshot: self.snapshot,
            tx,
            command: self.command,
            state: self.visibility,
            policy: self.engine.heap.hint_policy(),
            watch: tx.watched(),
        }
    }

    /// A serializable transaction is about to read all of a table.
    pub fn read_all(&self, h: &HeapRel) -> Result<()> {
        let tx = self.tx.borrow();
        match tx.watched() {
            Some(sx) if h.watched => Ok(self.engine.txns.ssi().read(sx, Tag::Relation(h.rel))?),
            _ => Ok(()),
        }
    }

    /// Whether a row may be written as far as [`Store::crosscheck`] goes.
    pub fn admits(&self, h: &HeapRel, row: RowId) -> Result<()> {
        let Some(snapshot) = self.crosscheck else { return Ok(()) };
        let tx = self.tx.borrow();
        let read = ReadCx { snapshot, watch: None, ..self.read(&tx) };
        match heap::fetch(self.engine, &read, h, row, &mut TupleBuf::new())? {
            true => Ok(()),
            false => Err(SqlError::new(
                State::SERIALIZATION_FAILURE,
                "could not serialize access due to concurrent update",
            )),
        }
    }

    /// A row version as of now, whatever the statement's snapshot. Whoever asks has read or locked
    /// the row before: no serializable transaction need note it.
    pub fn fetch_latest(&self, h: &HeapRel, row: RowId, buf: &mut TupleBuf) -> Result<bool> {
        let snapshot = self.tx.borrow_mut().latest_snapshot();
        let tx = self.tx.borrow();
        let read = ReadCx { snapshot, watch: None, ..self.read(&tx) };
        Ok(heap::fetch(self.engine, &read, h, row, buf)?)
    }

    /// The same for the chain that an index entry names.
    pub fn fetch_latest_hot(&self, h: &HeapRel, root: RowId, buf: &mut TupleBuf) -> Result<bool> {
        let snapshot = self.tx.borrow_mut().latest_snapshot();
        let tx = self.tx.borrow();
        let read = ReadCx { snapshot, watch: None, ..self.read(&tx) };
        Ok(heap::fetch_hot(self.engine, &read, h, root, buf)?)
    }
}

/// The SQLSTATE of the pretended error by which a function says that it has to wait; never seen
/// by a client.
pub const MUST_WAIT: State = State::from_code("XXWAT");

/// What a running statement's operators share.
pub struct ExecCx<'a> {
    /// The session, as functions see it.
    pub fx: &'a dyn FnContext,
    pub params: &'a [Datum],
    store: Option<Store<'a>>,
    pub regs: Vec<Datum>,
    /// Taken out while one of them runs, so that it can use the rest of the context.
    pub subplans: Vec<Option<Box<SubPlanState>>>,
    pub ctes: Vec<Option<Box<sets::CteState>>>,
    pub work_tables: Vec<rows::RowStore>,
    /// The bytes of the row that a scan last gave to the operator that writes its table.
    pub raw: TupleBuf,
    pub raw_of: Oid,
    /// Rows written by statements without RETURNING.
    pub written: u64,
    /// Differs from run to run of a kept plan: what is "fixed" is so within one run.
    pub run: u64,
    /// Counts rows between looks at the cancel flag.
    ticks: u32,
    pub stats: Vec<build::NodeStats>,
}

impl<'a> ExecCx<'a> {
    /// A context without storage: for expressions over values.
    pub fn new(fx: &'a dyn FnContext, params: &'a [Datum]) -> Self {
        ExecCx {
            fx,
            params,
            store: None,
            regs: Vec::new(),
            subplans: Vec::new(),
            ctes: Vec::new(),
            work_tables: Vec::new(),
            raw: TupleBuf::new(),
            raw_of: Oid::INVALID,
            written: 0,
            run: 0,
            ticks: 0,
            stats: Vec::new(),
        }
    }

    pub fn with_store(mut self, store: Store<'a>) -> Self {
        self.store = Some(store);
        self
    }

    #[inline]
    pub fn store(&self) -> Result<&Store<'a>> {
        self.store.as_ref().ok_or_else(|| SqlError::internal("no storage in this context"))
    }

    /// Computes something of a row. With `may_wait` a function in it may have to wait; then the
    /// operator returns `Step::Wait`, keeps the row, and computes the same again when it is
    /// called next (`session/waiting.rs`).
    #[inline]
    pub fn compute<T>(
        &mut self,
        may_wait: bool,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Computed<T>> {
        match may_wait {
            false => f(self).map(Computed::Value),
            true => self.compute_waiting(f),
        }
    }

    #[cold]
    fn compute_waiting<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Computed<T>> {
        self.fx.session().begin_row();
        let value = f(self);
        let waits = value.as_ref().is_err_and(|e| e.state == MUST_WAIT);
        match self.fx.session().end_row(waits) {
            Some(handle) => Ok(Computed::Wait(handle)),
            None => value.map(Computed::Value),
        }
    }

    #[inline]
    pub fn reg(&self, reg: Reg) -> &Datum {
        &self.regs[reg as usize]
    }

    #[inline]
    pub fn set(&mut self, reg: Reg, value: Datum) {
        self.regs[reg as usize] = value;
    }

    pub fn set_null(&mut self, regs: &[Reg]) {
        for r in regs {
            self.regs[*r as usize] = Datum::Null;
        }
    }

    /// Looks at the cancel flag now and then; called once a row by every loop that can go on
    /// without returning.
    #[inline]
    pub fn tick(&mut self) -> Result<()> {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks & 255 == 0 { self.fx.check_interrupt() } else { Ok(()) }
    }
}

/// Where a call was made that would have to wait although its operator cannot.
pub(crate) fn cannot_wait() -> SqlError {
    SqlError::new(
        State::FEATURE_NOT_SUPPORTED,
        "waiting in a sub-select that depends on the outer row is not supported",
    )
}
