//! The planner: from the bound tree to a tree of physical operators.
//!
//! ```text
//!   Query --rewrite--> simpler Query --tree--> joins and conditions --path, join--> Plan
//!            |                           |                             |
//!            views and plain sub-selects |  EXISTS/IN -> semi joins     access paths, join order
//!            pulled up, CTEs inlined     |  LEFT -> INNER where possible
//! ```
//!
//! - A [`Plan`] is immutable and says everything: `exec::build` makes operators from it, EXPLAIN
//!   prints it. Expressions in it are compiled ([`PExpr`]); their text is kept only for EXPLAIN.
//! - Registers are assigned here: a table gets one for each column and system column, a
//!   sub-select that is not pulled up one for each output column.
//! - Costs are estimates in PostgreSQL's unit (one sequential page read), from the number of
//!   pages and rows and guesses about the rest. They decide the order of joins and the choice of
//!   index; nothing depends on them for correctness.

use crate::analyze::bound::{LockStrength, LockWaitPolicy, SortKey};
use crate::catalog::{IndexDef, TableDef};

use crate::exec::expr::{Ex, Function};
use crate::exec::join::JoinType;
use crate::exec::rows::Order;
use crate::exec::{Reg, subplan::SubPlanKind};
use crate::functions::Builtin;
use crate::types::{Oid, TypeRef};
use std::sync::Arc;

mod compile;
mod dml;
mod estimate;
mod explain;
mod group;
mod join;
mod path;
mod planner;
mod rewrite;
mod setop;
mod tree;
pub mod walk;
mod window;

pub use explain::{ExplainOptions, Summary, explain};
pub use planner::{IndexParts, PlanEnv, compile_row_expr, plan_statement};

/// A compiled expression, and its SQL text when EXPLAIN asked for the plan.
#[derive(Clone)]
pub struct PExpr {
    pub ex: Ex,
    pub text: Option<Box<str>>,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    pub startup: f64,
    pub total: f64,
}

/// One column that a plan's rows come ordered by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OrderKey {
    pub reg: Reg,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Clone)]
pub struct Plan {
    pub op: Op,
    pub rows: f64,
    pub cost: Cost,
    pub width: u32,
    pub ordering: Vec<OrderKey>,
}

/// A table as one scan sees it.
#[derive(Clone)]
pub struct ScanTable {
    pub table: Arc<TableDef>,
    pub alias: String,
    /// Column `i` is in register `base + i`, system column `-k` in `base + columns + k - 1`.
    pub base: Reg,
}

/// How many system columns a table's block of registers ends with.
pub const SYSTEM_COLUMNS: u32 = 6;

impl ScanTable {
    pub fn columns(&self) -> u32 {
        self.table.columns.len() as u32
    }

    pub fn ctid(&self) -> Reg {
        self.base + self.columns()
    }

    pub fn end(&self) -> Reg {
        self.base + self.columns() + SYSTEM_COLUMNS
    }
}

/// What an index scan asks of one column of its key prefix.
#[derive(Clone)]
pub enum KeyCond {
    Equal(PExpr),
    /// One probe for each value; NULLs are left out.
    In(Vec<PExpr>),
    /// The same for the elements of an array.
    AnyOf(PExpr),
    IsNull,
}

/// A bound on the key column after the prefix.
#[derive(Clone)]
pub struct KeyBound {
    pub value: PExpr,
    pub inclusive: bool,
}

#[derive(Clone)]
pub struct IndexScanPlan {
    pub scan: ScanTable,
    pub index: Arc<IndexDef>,
    pub prefix: Vec<KeyCond>,
    /// In terms of SQL values, whatever the column's direction.
    pub lower: Option<KeyBound>,
    pub upper: Option<KeyBound>,
    /// NULLs of the column after the prefix are left out.
    pub not_null: bool,
    pub backward: bool,
    /// The conditions' text, for EXPLAIN.
    pub cond: Option<Box<str>>,
    pub filter: Option<PExpr>,
    /// Every column that is read is in the index: the visibility map may save the heap fetch.
    pub index_only: bool,
}

#[derive(Clone)]
pub struct SetFunction {
    pub function: &'static Builtin,
    pub args: Vec<PExpr>,
    /// Registers of its output columns.
    pub out: Vec<Reg>,
}

#[derive(Clone)]
pub struct AggregatePlan {
    pub function: &'static Builtin,
    pub args: Vec<PExpr>,
    pub arg_types: Vec<Oid>,
    pub filter: Option<PExpr>,
    pub distinct: bool,
    pub order: Vec<(PExpr, Order)>,
    pub out: Reg,
}

#[derive(Clone)]
pub struct WindowPlan {
    pub partition: Vec<(PExpr, Oid)>,
    pub order: Vec<(PExpr, Order)>,
    pub calls: Vec<WindowCallPlan>,
}

#[derive(Clone)]
pub struct WindowCallPlan {
    pub function: &'static Builtin,
    pub args: Vec<PExpr>,
    pub arg_types: Vec<Oid>,
    pub filter: Option<PExpr>,
    pub frame: crate::exec::window::Frame,
    pub out: Reg,
}

/// One table of FOR UPDATE and friends.
#[derive(Clone)]
pub struct RowMarkPlan {
    pub scan: ScanTable,
    pub strength: LockStrength,
    pub wait: LockWaitPolicy,
}

#[derive(Clone)]
pub struct ModifyPlan {
    pub scan: ScanTable,
    pub action: ModifyAction,
    /// (constraint name, condition) over the new row.
    pub checks: Vec<(String, PExpr)>,
    /// The output row, when there is RETURNING.
    pub returning: Option<Vec<(PExpr, Reg)>>,
}

#[derive(Clone)]
pub enum ModifyAction {
    Insert {
        /// The value of each live column, by position: what the source or the default gives.
        values: Vec<(usize, PExpr)>,
        conflict: Option<ConflictPlan>,
    },
    Update {
        assignments: Vec<(usize, PExpr)>,
        recheck: Option<PExpr>,
    },
    Delete {
        recheck: Option<PExpr>,
    },
}

#[derive(Clone)]
pub struct ConflictPlan {
    pub arbiters: Vec<Oid>,
    /// None: DO NOTHING. The existing row is in `existing`, EXCLUDED in the insert's own block.
    pub update: Option<ConflictUpdate>,
}

#[derive(Clone)]
pub struct ConflictUpdate {
    pub existing: ScanTable,
    pub assignments: Vec<(usize, PExpr)>,
    pub filter: Option<PExpr>,
    pub checks: Vec<(String, PExpr)>,
    pub returning: Option<Vec<(PExpr, Reg)>>,
}

#[derive(Clone)]
pub enum Op {
    /// One row without columns, or none when the condition does not hold.
    Result,
    SeqScan {
        scan: ScanTable,
        filter: Option<PExpr>,
    },
    IndexScan(Box<IndexScanPlan>),
    TidScan {
        scan: ScanTable,
        tids: Vec<PExpr>,
        cond: Option<Box<str>>,
        filter: Option<PExpr>,
    },
    FunctionScan {
        alias: String,
        functions: Vec<SetFunction>,
        ordinality: Option<Reg>,
    },
    ValuesScan {
        alias: String,
        rows: Vec<Vec<PExpr>>,
        out: Vec<Reg>,
    },
    CteScan {
        name: String,
        alias: String,
        cte: usize,
        out: Vec<Reg>,
        leader: bool,
    },
    WorkTableScan {
        alias: String,
        work: usize,
        out: Vec<Reg>,
    },
    /// Nothing to execute: marks where a sub-select of the range table starts.
    SubqueryScan {
        alias: String,
        child: Box<Plan>,
    },
    NestedLoop {
        kind: JoinType,
        outer: Box<Plan>,
        inner: Box<Plan>,
        filter: Option<PExpr>,
    },
    HashJoin {
        kind: JoinType,
        outer: Box<Plan>,
        inner: Box<Plan>,
        keys: Vec<(PExpr, PExpr, Oid)>,
        cond: Option<Box<str>>,
        filter: Option<PExpr>,
        fixed: bool,
    },
    Materialize {
        child: Box<Plan>,
        fixed: bool,
    },
    Filter {
        child: Box<Plan>,
        filter: PExpr,
        once: bool,
    },
    Project {
        child: Box<Plan>,
        outputs: Vec<(PExpr, Reg)>,
    },
    ProjectSet {
        child: Box<Plan>,
        functions: Vec<SetFunction>,
    },
    Aggregate {
        child: Box<Plan>,
        keys: Vec<(PExpr, Reg, Oid)>,
        aggregates: Vec<AggregatePlan>,
    },
    Window {
        child: Box<Plan>,
        window: WindowPlan,
    },
    Sort {
        child: Box<Plan>,
        keys: Vec<(PExpr, Order)>,
    },
    Limit {
        child: Box<Plan>,
        limit: Option<PExpr>,
        offset: Option<PExpr>,
    },
    Unique {
        child: Box<Plan>,
        keys: Vec<(Reg, Oid)>,
        texts: Vec<Box<str>>,
    },
    Append {
        children: Vec<(Plan, Vec<Reg>)>,
        out: Vec<Reg>,
    },
    SetOp {
        left: (Box<Plan>, Vec<Reg>),
        right: (Box<Plan>, Vec<Reg>),
        out: Vec<Reg>,
        types: Vec<Oid>,
        except: bool,
        all: bool,
    },
    RecursiveUnion {
        first: (Box<Plan>, Vec<Reg>),
        step: (Box<Plan>, Vec<Reg>),
        out: Vec<Reg>,
        distinct: Option<Vec<Oid>>,
        work: usize,
    },
    LockRows {
        child: Box<Plan>,
        marks: Vec<RowMarkPlan>,
        recheck: Option<PExpr>,
    },
    Modify {
        child: Box<Plan>,
        modify: Box<ModifyPlan>,
    },
}

impl Op {
    pub fn children(&self) -> Vec<&Plan> {
        match self {
            Op::Result
            | Op::SeqScan { .. }
            | Op::IndexScan(_)
            | Op::TidScan { .. }
            | Op::FunctionScan { .. }
            | Op::ValuesScan { .. }
            | Op::CteScan { .. }
            | Op::WorkTableScan { .. } => vec![],
            Op::SubqueryScan { child, .. }
            | Op::Materialize { child, .. }
            | Op::Filter { child, .. }
            | Op::Project { child, .. }
            | Op::ProjectSet { child, .. }
            | Op::Aggregate { child, .. }
            | Op::Window { child, .. }
            | Op::Sort { child, .. }
            | Op::Limit { child, .. }
            | Op::Unique { child, .. }
            | Op::LockRows { child, .. }
            | Op::Modify { child, .. } => vec![child],
            Op::NestedLoop { outer, inner, .. } | Op::HashJoin { outer, inner, .. } => {
                vec![outer, inner]
            }
            Op::Append { children, .. } => children.iter().map(|c| &c.0).collect(),
            Op::SetOp { left, right, .. } => vec![&left.0, &right.0],
            Op::RecursiveUnion { first, step, .. } => vec![&first.0, &step.0],
        }
    }
}

/// A sub-select inside an expression.
#[derive(Clone)]
pub struct SubPlan {
    pub plan: Plan,
    pub kind: SubPlanSpec,
    pub output: Vec<Reg>,
    pub correlated: bool,
    /// It takes row locks: run before the statement proper, where waiting is possible.
    pub locks_rows: bool,
}

#[derive(Clone)]
pub enum SubPlanSpec {
    Scalar,
    Exists,
    Quantified { functions: Vec<Function>, all: bool, hash: Option<Vec<Oid>> },
    Array { element: Oid, nested: bool },
    Row,
}

impl SubPlanSpec {
    pub fn kind(&self) -> SubPlanKind {
        match self {
            SubPlanSpec::Scalar => SubPlanKind::Scalar,
            SubPlanSpec::Exists => SubPlanKind::Exists,
            SubPlanSpec::Quantified { functions, all, hash } => SubPlanKind::Quantified {
                functions: functions.clone().into(),
                all: *all,
                hash: hash.clone(),
            },
            SubPlanSpec::Array { element, nested } => {
                SubPlanKind::Array { element: *element, nested: *nested }
            }
            SubPlanSpec::Row => SubPlanKind::Row,
        }
    }
}

#[derive(Clone)]
pub struct CtePlan {
    pub name: String,
    pub plan: Plan,
    pub output: Vec<Reg>,
    pub correlated: bool,
}

/// What a statement does with a table, for its lock and for read-only transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TableUse {
    Read,
    /// SELECT FOR UPDATE and friends.
    LockRows,
    /// A sequence whose values it takes.
    Sequence,
    Write,
}

/// A planned SELECT, INSERT, UPDATE or DELETE.
pub struct StatementPlan {
    pub root: Plan,
    /// How many registers it needs.
    pub registers: u32,
    /// The first register of the output row, and the columns' types.
    pub output: Option<(Reg, Vec<TypeRef>)>,
    pub subplans: Vec<SubPlan>,
    pub ctes: Vec<CtePlan>,
    pub work_tables: usize,
    pub tables: Vec<(Arc<TableDef>, TableUse)>,
    pub kind: StatementKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementKind {
    Select,
    Insert,
    Update,
    Delete,
}

impl StatementPlan {
    /// The estimate for the whole statement.
    pub fn cost(&self) -> f64 {
        self.root.cost.total
    }

    /// Whether the estimate may be far off: rows come from functions or a recursion.
    pub fn is_unpredictable(&self) -> bool {
        fn any(plan: &Plan) -> bool {
            matches!(
                plan.op,
                Op::FunctionScan { .. } | Op::ProjectSet { .. } | Op::RecursiveUnion { .. }
            ) || plan.op.children().into_iter().any(any)
        }
        any(&self.root)
            || self.subplans.iter().any(|s| any(&s.plan))
            || self.ctes.iter().any(|c| any(&c.plan))
    }
}

/// The order that a sort key asks for.
pub(crate) fn order_of(key: &SortKey) -> Order {
    Order { ty: key.expr.ty().oid, descending: key.descending, nulls_first: key.nulls_first }
}

/// What [`Aggregate`] an aggregate call runs as.
pub fn counts_rows(function: &Builtin, args: usize) -> bool {
    args == 0 && function.name == "count"
}
