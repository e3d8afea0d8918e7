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
use crate::types::Datum;
use inkling_storage::wait::WaitHandle;

pub mod aggregate;
pub mod basic;
pub mod expr;
pub mod join;
pub mod rows;
pub mod sets;
pub mod sort;
pub mod subplan;

pub use expr::Ex;
pub use subplan::SubPlanState;

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

/// What a running statement's operators share.
pub struct ExecCx<'a> {
    /// The session, as functions see it.
    pub fx: &'a dyn FnContext,
    pub params: &'a [Datum],
    pub regs: Vec<Datum>,
    /// Taken out while one of them runs, so that it can use the rest of the context.
    pub subplans: Vec<Option<Box<SubPlanState>>>,
    pub ctes: Vec<Option<Box<sets::CteState>>>,
    pub work_tables: Vec<rows::RowStore>,
    /// Differs from run to run of a kept plan: what is "fixed" is so within one run.
    pub run: u64,
    /// Counts rows between looks at the cancel flag.
    ticks: u32,
}

impl<'a> ExecCx<'a> {
    pub fn new(fx: &'a dyn FnContext, params: &'a [Datum]) -> Self {
        ExecCx { fx, params, regs: Vec::new(), subplans: Vec::new(), ticks: 0 }
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
        "row locks in a sub-select that depends on the outer row are not supported",
    )
}
