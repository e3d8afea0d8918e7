//! The bound tree: what a statement means, with every name, type and function resolved.
//!
//! Produced by the analyser, consumed by the planner. Shaped like PostgreSQL's `Query`: a list of
//! range-table entries ([`RangeEntry`]), a join tree over them ([`FromItem`]), and expressions
//! whose column references are (query level, entry, column).
//!
//! ```text
//!   select a.id, count(*) from t a join u on u.id = a.id where a.x > $1 group by a.id
//!
//!   rtes:   0 = Table t "a", 1 = Table u
//!   from:   [Join(Inner, Rte 0, Rte 1, u.id = a.id)]
//!   filter: Var(0,0,x) > Param 1
//!   targets: Var(0,0,id), Aggregate 0         group_by: [Var(0,0,id)]
//! ```
//!
//! - Types are final: implicit casts are explicit nodes here.
//! - `Var::level` counts query levels outward: 0 is this query, 1 the one around it. Every
//!   [`Query`] is a level: sub-selects, the queries of CTEs (around them: the query that has the
//!   CTE), and the two sides of a set operation (around them: the set operation), nested ones
//!   again.
//! - A whole-row reference is an [`Expr::Row`] of the table's live columns with its row type.
//! - Column numbers are 0-based positions in the entry's column list; negative are system columns.
//! - Aggregates appear as [`Expr::Aggregate`] inside targets, HAVING and ORDER BY of their query.

use crate::catalog::TableDef;
use crate::functions::{Builtin, Operator};
use crate::types::{Datum, Oid, TypeRef};
use std::sync::Arc;

/// System columns, as negative column numbers.
pub mod system_column {
    pub const CTID: i16 = -1;
    pub const XMIN: i16 = -2;
    pub const CMIN: i16 = -3;
    pub const XMAX: i16 = -4;
    pub const CMAX: i16 = -5;
    pub const TABLEOID: i16 = -6;
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Var {
    /// 0: this query; 1: the query around it; ...
    pub level: u16,
    pub rte: u16,
    /// 0-based in the entry's columns; negative: a system column.
    pub col: i16,
    pub ty: TypeRef,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    Const {
        value: Datum,
        ty: TypeRef,
    },
    /// `$n`, counted from 1.
    Param {
        index: u16,
        ty: TypeRef,
    },
    Var(Var),
    /// A call of a scalar function or operator's function.
    Call {
        function: &'static Builtin,
        args: Vec<Expr>,
        ty: TypeRef,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull {
        arg: Box<Expr>,
        negated: bool,
    },
    /// IS [NOT] TRUE / FALSE / UNKNOWN.
    IsBool {
        arg: Box<Expr>,
        test: BoolTest,
    },
    /// IS [NOT] DISTINCT FROM, by the equality function of the common type.
    Distinct {
        left: Box<Expr>,
        right: Box<Expr>,
        equal: &'static Builtin,
        negated: bool,
    },
    Case {
        operand: Option<Box<Expr>>,
        arms: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
        ty: TypeRef,
    },
    /// What a CASE operand's value is called inside its arms' conditions.
    CaseOperand {
        ty: TypeRef,
    },
    Coalesce {
        args: Vec<Expr>,
        ty: TypeRef,
    },
    NullIf {
        left: Box<Expr>,
        right: Box<Expr>,
        equal: &'static Builtin,
        ty: TypeRef,
    },
    MinMax {
        greatest: bool,
        args: Vec<Expr>,
        ty: TypeRef,
    },
    /// `x op ANY (array)` / `x op ALL (array)`; also IN lists.
    ArrayCompare {
        left: Box<Expr>,
        array: Box<Expr>,
        function: &'static Builtin,
        all: bool,
    },
    /// `x IN (a, b, ...)`: sugar kept for planning; NOT IN is Not(InList).
    InList {
        left: Box<Expr>,
        items: Vec<Expr>,
        equal: &'static Builtin,
    },
    Array {
        items: Vec<Expr>,
        element: Oid,
        nested: bool,
        ty: TypeRef,
    },
    Subscript {
        array: Box<Expr>,
        index: Vec<SubscriptIndex>,
        ty: TypeRef,
    },
    Row {
        items: Vec<Expr>,
        ty: TypeRef,
    },
    /// Row-wise comparison `(a,b) op (c,d)`.
    RowCompare {
        op: RowCompareOp,
        left: Vec<Expr>,
        right: Vec<Expr>,
        equal: Vec<&'static Builtin>,
        less: Vec<&'static Builtin>,
    },
    /// A field of a row value.
    Field {
        arg: Box<Expr>,
        index: usize,
        ty: TypeRef,
    },
    Subquery(Box<SubqueryExpr>),
    Aggregate(Box<AggregateCall>),
    Window(Box<WindowCall>),
    /// A set-returning function in the target list.
    SetCall {
        function: &'static Builtin,
        args: Vec<Expr>,
        ty: TypeRef,
    },
    /// Text out, text in (a cast without a function). `explicit` truncates varchar(n) silently.
    CoerceViaText {
        arg: Box<Expr>,
        ty: TypeRef,
    },
    /// Another name for the same representation.
    Relabel {
        arg: Box<Expr>,
        ty: TypeRef,
    },
    /// Apply a type modifier (varchar(n), numeric(p,s), char(n), timestamp(p)).
    ApplyTypmod {
        arg: Box<Expr>,
        ty: TypeRef,
        explicit: bool,
    },
    /// An array coerced element by element.
    CoerceArray {
        arg: Box<Expr>,
        element: Box<Expr>,
        ty: TypeRef,
    },
    /// current_date, current_timestamp, current_user, ... with precision (-1: none).
    SqlValue {
        what: SqlValue,
        precision: i32,
        ty: TypeRef,
    },
    /// `arg COLLATE collation`.
    Collate {
        arg: Box<Expr>,
        collation: Oid,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub enum SubscriptIndex {
    At(Expr),
    Slice(Option<Expr>, Option<Expr>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoolTest {
    True,
    NotTrue,
    False,
    NotFalse,
    Unknown,
    NotUnknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowCompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqlValue {
    CurrentDate,
    CurrentTime,
    CurrentTimestamp,
    LocalTime,
    LocalTimestamp,
    CurrentUser,
    SessionUser,
    CurrentCatalog,
    CurrentSchema,
}

#[derive(Clone, PartialEq, Debug)]
pub struct SubqueryExpr {
    pub kind: SubqueryKind,
    pub query: Query,
    pub ty: TypeRef,
}

#[derive(Clone, PartialEq, Debug)]
pub enum SubqueryKind {
    /// One column, at most one row.
    Scalar,
    Exists,
    /// `left op ANY (select ...)`; for several columns: all `op`s in order. `all`: ALL instead of
    /// ANY. For plain IN: the equality functions. Negation is never folded in: NOT IN is Not(..).
    Quantified {
        left: Vec<Expr>,
        functions: Vec<&'static Builtin>,
        all: bool,
    },
    /// ARRAY(select ...).
    Array,
    /// Several columns, at most one row: a record, or NULL. Only under [`Expr::Field`]
    /// (`(a, b) = (select ...)`, `SET (a, b) = (select ...)`).
    Row,
}

#[derive(Clone, PartialEq, Debug)]
pub struct AggregateCall {
    pub function: &'static Builtin,
    pub args: Vec<Expr>,
    pub distinct: bool,
    pub order_by: Vec<SortKey>,
    pub filter: Option<Expr>,
    pub ty: TypeRef,
}

#[derive(Clone, PartialEq, Debug)]
pub struct WindowCall {
    pub function: &'static Builtin,
    pub args: Vec<Expr>,
    pub partition_by: Vec<Expr>,
    pub order_by: Vec<SortKey>,
    pub filter: Option<Expr>,
    /// None: the default, RANGE UNBOUNDED PRECEDING .. CURRENT ROW.
    pub frame: Option<WindowFrame>,
    pub ty: TypeRef,
}

#[derive(Clone, PartialEq, Debug)]
pub struct WindowFrame {
    pub mode: FrameMode,
    pub start: FrameBound,
    pub end: FrameBound,
    pub exclude: FrameExclusion,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameMode {
    Range,
    Rows,
    Groups,
}

#[derive(Clone, PartialEq, Debug)]
pub enum FrameBound {
    UnboundedPreceding,
    /// bigint for ROWS and GROUPS.
    Preceding(Expr),
    CurrentRow,
    Following(Expr),
    UnboundedFollowing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameExclusion {
    NoOthers,
    CurrentRow,
    Group,
    Ties,
}

#[derive(Clone, PartialEq, Debug)]
pub struct SortKey {
    pub expr: Expr,
    pub descending: bool,
    pub nulls_first: bool,
}

/// One output column of a query.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    pub expr: Expr,
    pub name: String,
    /// The table column that it is, for RowDescription: (table OID, attnum).
    pub origin: Option<(Oid, i16)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct RangeColumn {
    pub name: String,
    pub ty: TypeRef,
    /// Dropped columns keep their place and cannot be referenced.
    pub dropped: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct RangeEntry {
    /// Alias, or the relation's name.
    pub name: String,
    pub columns: Vec<RangeColumn>,
    pub source: RangeSource,
}

#[derive(Clone, PartialEq, Debug)]
pub enum RangeSource {
    Table(Arc<TableDef>),
    /// A sub-select or an expanded view. `lateral`: may refer to entries before it (level 1).
    Subquery {
        query: Box<Query>,
        lateral: bool,
    },
    Function {
        function: &'static Builtin,
        args: Vec<Expr>,
        ordinality: bool,
        lateral: bool,
    },
    /// ROWS FROM (f(..), g(..)), or unnest of several arrays: side by side, NULLs behind the
    /// shorter ones. Columns are those of the functions in order.
    RowsFrom {
        functions: Vec<(&'static Builtin, Vec<Expr>)>,
        ordinality: bool,
        lateral: bool,
    },
    Values {
        rows: Vec<Vec<Expr>>,
        lateral: bool,
    },
    /// A common table expression by its index in `ctes` of the query `level`s out.
    Cte {
        level: u16,
        index: usize,
    },
    /// The self-reference inside a recursive CTE's recursive term.
    WorkTable {
        level: u16,
        index: usize,
    },
    /// Not made: the merged columns of a JOIN ... USING / NATURAL are expressions over the joined
    /// entries' columns.
    Join,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

#[derive(Clone, PartialEq, Debug)]
pub enum FromItem {
    Rte(u16),
    Join { kind: JoinKind, left: Box<FromItem>, right: Box<FromItem>, on: Option<Expr> },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Cte {
    pub name: String,
    pub query: Query,
    pub recursive: bool,
    /// None: planner's choice.
    pub materialized: Option<bool>,
    pub columns: Vec<RangeColumn>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockStrength {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWaitPolicy {
    Block,
    SkipLocked,
    NoWait,
}

#[derive(Clone, PartialEq, Debug)]
pub struct RowMark {
    pub rte: u16,
    pub strength: LockStrength,
    pub wait: LockWaitPolicy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetOperator {
    Union,
    Intersect,
    Except,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Distinct {
    /// SELECT DISTINCT.
    All,
    /// DISTINCT ON (...).
    On(Vec<Expr>),
}

/// A SELECT (or VALUES, or a set operation), or the rows that DML works on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Query {
    pub ctes: Vec<Cte>,
    pub rtes: Vec<RangeEntry>,
    /// Comma-separated items.
    pub from: Vec<FromItem>,
    pub filter: Option<Expr>,
    pub targets: Vec<Target>,
    pub group_by: Vec<Expr>,
    /// Grouped, even without GROUP BY columns (an aggregate or HAVING is present).
    pub grouped: bool,
    pub having: Option<Expr>,
    pub distinct: Option<Distinct>,
    /// For a set operation these refer to output columns as Var(level 0, rte 0, col).
    pub order_by: Vec<SortKey>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub row_marks: Vec<RowMark>,
    /// A set operation: then rtes/from/filter are empty and targets give names and types only.
    pub set_operation: Option<Box<SetOperation>>,
    /// The query is what this view stands for.
    pub view: Option<Arc<TableDef>>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct SetOperation {
    pub op: SetOperator,
    pub all: bool,
    pub left: Query,
    pub right: Query,
}

/// INSERT: `source` yields one value for each of `columns`, already coerced to the column's type.
#[derive(Clone, PartialEq, Debug)]
pub struct Insert {
    pub table: Arc<TableDef>,
    /// attnums the source fills, in order; every other column takes `defaults`.
    pub columns: Vec<i16>,
    /// WITH of the INSERT itself is in `source.ctes`; RETURNING and ON CONFLICT see it as level 0.
    pub source: Query,
    /// Default expression of each column not in `columns` that has one: (attnum, expr).
    pub defaults: Vec<(i16, Expr)>,
    pub on_conflict: Option<OnConflict>,
    /// Over Var(0, 0, col) = the new row.
    pub returning: Option<Vec<Target>>,
    /// CHECK conditions over Var(0, 0, col): (constraint name, expr).
    pub checks: Vec<(String, Expr)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct OnConflict {
    /// The unique indexes that arbitrate; empty: any (DO NOTHING only).
    pub arbiters: Vec<Oid>,
    pub action: ConflictAction,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ConflictAction {
    Nothing,
    /// Over Var(0,0,col) = the existing row, Var(0,1,col) = EXCLUDED.
    Update {
        assignments: Vec<(i16, Expr)>,
        filter: Option<Expr>,
    },
}

/// UPDATE: `query.rtes[target_rte]` is the table; other entries come from FROM.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    pub table: Arc<TableDef>,
    pub target_rte: u16,
    /// Targets of `query` are unused; its from/filter choose the rows.
    pub query: Query,
    pub assignments: Vec<(i16, Expr)>,
    /// Over Var(0, target_rte, col) = the new row, and the other entries.
    pub returning: Option<Vec<Target>>,
    /// Over Var(0, 0, col) = the new row.
    pub checks: Vec<(String, Expr)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Delete {
    pub table: Arc<TableDef>,
    pub target_rte: u16,
    pub query: Query,
    pub returning: Option<Vec<Target>>,
}

/// An operator found by the analyser, for EXPLAIN's text.
pub type OperatorRef = &'static Operator;

impl Expr {
    /// The expression's type.
    pub fn ty(&self) -> TypeRef {
        match self {
            Expr::Const { ty, .. }
            | Expr::Param { ty, .. }
            | Expr::Call { ty, .. }
            | Expr::Case { ty, .. }
            | Expr::CaseOperand { ty }
            | Expr::Coalesce { ty, .. }
            | Expr::NullIf { ty, .. }
            | Expr::MinMax { ty, .. }
            | Expr::Array { ty, .. }
            | Expr::Subscript { ty, .. }
            | Expr::Row { ty, .. }
            | Expr::Field { ty, .. }
            | Expr::SetCall { ty, .. }
            | Expr::CoerceViaText { ty, .. }
            | Expr::Relabel { ty, .. }
            | Expr::ApplyTypmod { ty, .. }
            | Expr::CoerceArray { ty, .. }
            | Expr::SqlValue { ty, .. } => *ty,
            Expr::Var(v) => v.ty,
            Expr::And(_)
            | Expr::Or(_)
            | Expr::Not(_)
            | Expr::IsNull { .. }
            | Expr::IsBool { .. }
            | Expr::Distinct { .. }
            | Expr::ArrayCompare { .. }
            | Expr::InList { .. }
            | Expr::RowCompare { .. } => TypeRef::plain(Oid::BOOL),
            Expr::Subquery(s) => s.ty,
            Expr::Aggregate(a) => a.ty,
            Expr::Window(w) => w.ty,
            Expr::Collate { arg, .. } => arg.ty(),
        }
    }
}
