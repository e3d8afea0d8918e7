//! What analysis hands out: statements with every name, type and expression resolved.
//!
//! ```text
//!   SQL text --parse--> ParsedStatement (grammar only) --bind--> Statement
//!     Select, Insert, Update, Delete: bound trees
//!     Utility: one plain struct a command
//! ```
//!
//! - A [`ParsedStatement`] keeps the whole source string, so that error positions count from the
//!   start of what the client sent, as PostgreSQL's do.
//! - Utility structs carry objects that exist as OIDs or definitions, and objects to be made by
//!   name with a resolved schema. Nothing here looks at the catalog again by name.
//! - What is not implemented never gets here: binding refuses it by name with 0A000.

use super::bound::{Delete, Expr, Insert, Query, RangeColumn, Target, Update};
use crate::catalog::{CatalogSnapshot, Persistence, TableDef};
use crate::error::SqlError;
use crate::functions::FnContext;
use crate::types::{Oid, TypeRef};
use std::sync::Arc;

pub use super::ddl_types::*;

/// One statement of a query string, after the grammar and before names mean anything.
pub struct ParsedStatement {
    pub(crate) node: Option<Box<pg_query::NodeEnum>>,
    pub(crate) source: Arc<str>,
    /// Byte range of the statement in the source.
    pub start: usize,
    pub len: usize,
}

impl Clone for ParsedStatement {
    fn clone(&self) -> Self {
        let node = super::with_stack(super::DEEP_STACK, || self.node.clone());
        ParsedStatement { node, source: self.source.clone(), start: self.start, len: self.len }
    }
}

impl Drop for ParsedStatement {
    fn drop(&mut self) {
        // The tree may be a thousand levels deep, and so would its destructor be.
        if let Some(node) = self.node.take() {
            super::with_stack(super::DEEP_STACK, || drop(node));
        }
    }
}

impl std::fmt::Debug for ParsedStatement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ParsedStatement").field(&self.text()).finish()
    }
}

impl ParsedStatement {
    /// The statement's own text.
    pub fn text(&self) -> &str {
        self.source.get(self.start..self.start + self.len).unwrap_or(&self.source)
    }

    /// COMMIT, ROLLBACK, ROLLBACK TO and PREPARE TRANSACTION: what a failed transaction block still
    /// accepts.
    pub fn ends_transaction(&self) -> bool {
        use pg_query::protobuf::TransactionStmtKind as Kind;
        match self.node.as_deref() {
            Some(pg_query::NodeEnum::TransactionStmt(t)) => matches!(
                t.kind(),
                Kind::TransStmtCommit
                    | Kind::TransStmtRollback
                    | Kind::TransStmtRollbackTo
                    | Kind::TransStmtPrepare
            ),
            _ => false,
        }
    }

    /// The whole string it was parsed from.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }
}

/// What binding needs to know of the session.
#[derive(Clone, Copy)]
pub struct BindContext<'a> {
    pub catalog: &'a CatalogSnapshot,
    /// Schemas in search order, pg_catalog included where it is searched implicitly.
    pub search_path: &'a [Oid],
    /// Where unqualified new objects go; None: nowhere ("no schema has been selected").
    pub creation_schema: Option<Oid>,
    /// The session's temporary schema, once it has one.
    pub temp_schema: Option<Oid>,
    /// The search path begins with it: unqualified new relations are temporary.
    pub create_temporary: bool,
    pub user: Oid,
    /// Input functions of constants see the session through this.
    pub functions: &'a dyn FnContext,
}

/// What is known of a statement's parameters, and what binding finds out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParamTypes {
    pub(crate) types: Vec<Oid>,
    pub(crate) mode: ParamMode,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParamMode {
    None,
    Fixed,
    Variable,
}

impl ParamTypes {
    /// No parameters: the simple protocol.
    pub fn none() -> Self {
        ParamTypes { types: Vec::new(), mode: ParamMode::None }
    }

    /// Exactly these.
    pub fn fixed(types: Vec<Oid>) -> Self {
        ParamTypes { types, mode: ParamMode::Fixed }
    }

    /// As many as the statement mentions; zero (or missing) types are inferred.
    pub fn variable(types: Vec<Oid>) -> Self {
        ParamTypes { types, mode: ParamMode::Variable }
    }

    pub fn types(&self) -> &[Oid] {
        &self.types
    }
}

#[derive(Clone, Debug)]
pub enum Statement {
    Select(Query),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
    Utility(Utility),
}

/// A column of a statement's result, as RowDescription tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputColumn {
    pub name: String,
    pub ty: TypeRef,
    /// The table column behind it, or zero.
    pub table: Oid,
    pub attnum: i16,
}

impl OutputColumn {
    pub fn new(name: impl Into<String>, oid: Oid) -> Self {
        OutputColumn { name: name.into(), ty: TypeRef::plain(oid), table: Oid::INVALID, attnum: 0 }
    }
}

fn output_columns(targets: &[Target]) -> Vec<OutputColumn> {
    let column = |t: &Target| OutputColumn {
        name: t.name.clone(),
        ty: t.expr.ty(),
        table: t.origin.map_or(Oid::INVALID, |o| o.0),
        attnum: t.origin.map_or(0, |o| o.1),
    };
    targets.iter().map(column).collect()
}

impl Statement {
    /// The columns that it returns; None: it returns no rows (or, for EXECUTE and FETCH, what the
    /// prepared statement or cursor returns, which the session knows).
    pub fn columns(&self) -> Option<Vec<OutputColumn>> {
        match self {
            Statement::Select(q) => Some(output_columns(&q.targets)),
            Statement::Insert(i) => i.returning.as_deref().map(output_columns),
            Statement::Update(u) => u.returning.as_deref().map(output_columns),
            Statement::Delete(d) => d.returning.as_deref().map(output_columns),
            Statement::Utility(Utility::Explain(e)) => {
                let ty = if e.format == ExplainFormat::Json { Oid::JSON } else { Oid::TEXT };
                Some(vec![OutputColumn::new("QUERY PLAN", ty)])
            }
            Statement::Utility(Utility::Show(ShowTarget::Name(n))) => {
                Some(vec![OutputColumn::new(n.clone(), Oid::TEXT)])
            }
            Statement::Utility(Utility::Show(ShowTarget::All)) => Some(
                ["name", "setting", "description"]
                    .iter()
                    .map(|n| OutputColumn::new(*n, Oid::TEXT))
                    .collect(),
            ),
            Statement::Utility(_) => None,
        }
    }

    /// The command tag's words; INSERT, UPDATE, SELECT and the like append their row count.
    pub fn tag(&self) -> &'static str {
        match self {
            Statement::Select(_) => "SELECT",
            Statement::Insert(_) => "INSERT",
            Statement::Update(_) => "UPDATE",
            Statement::Delete(_) => "DELETE",
            Statement::Utility(u) => u.tag(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolationLevel {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// BEGIN's, SET TRANSACTION's modes; None: not mentioned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionModes {
    pub isolation: Option<IsolationLevel>,
    pub read_only: Option<bool>,
    pub deferrable: Option<bool>,
}

#[derive(Clone, Debug)]
pub enum Utility {
    Begin {
        modes: TransactionModes,
        /// Spelled START TRANSACTION, which has its own tag.
        start: bool,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    PrepareTransaction(String),
    CommitPrepared(String),
    RollbackPrepared(String),
    /// SET TRANSACTION ... of this transaction.
    SetTransaction(TransactionModes),
    /// SET TRANSACTION SNAPSHOT 'id'.
    SetTransactionSnapshot(String),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION ...
    SetSessionCharacteristics(TransactionModes),
    SetConstraints(SetConstraints),
    Set(SetVariable),
    Reset(ResetTarget),
    Show(ShowTarget),
    AlterSystem(SetVariable),
    AlterSystemReset(ResetTarget),
    CreateTable(Box<CreateTable>),
    CreateTableAs(Box<CreateTableAs>),
    CreateIndex(Box<CreateIndex>),
    CreateSchema(CreateSchema),
    CreateSequence(CreateSequence),
    AlterSequence(AlterSequence),
    CreateView(Box<CreateView>),
    AlterTable(Box<AlterTable>),
    Rename(Rename),
    AlterOwner(AlterOwner),
    AlterSchema(AlterObjectSchema),
    Drop(DropObjects),
    Truncate(Truncate),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    AlterRoleSet(AlterRoleSet),
    DropRole(DropRole),
    Comment(Comment),
    Copy(Box<CopyTable>),
    Vacuum(Vacuum),
    Reindex(Reindex),
    Checkpoint,
    Explain(Explain),
    Prepare(Prepare),
    Execute(Execute),
    /// None: ALL.
    Deallocate(Option<String>),
    DeclareCursor(Box<DeclareCursor>),
    Fetch(Fetch),
    /// None: ALL.
    Close(Option<String>),
    Discard(Discard),
    Lock(Lock),
    /// UNLISTEN *: there is never anything to stop listening to.
    UnlistenAll,
    /// IF EXISTS of something that does not, or IF NOT EXISTS of something that does.
    Nothing {
        tag: &'static str,
        notice: SqlError,
    },
}

impl Utility {
    pub fn tag(&self) -> &'static str {
        match self {
            Utility::Begin { start: true, .. } => "START TRANSACTION",
            Utility::Begin { .. } => "BEGIN",
            Utility::Commit { .. } => "COMMIT",
            Utility::Rollback { .. } | Utility::RollbackTo(_) => "ROLLBACK",
            Utility::Savepoint(_) => "SAVEPOINT",
            Utility::Release(_) => "RELEASE",
            Utility::PrepareTransaction(_) => "PREPARE TRANSACTION",
            Utility::CommitPrepared(_) => "COMMIT PREPARED",
            Utility::RollbackPrepared(_) => "ROLLBACK PREPARED",
            Utility::SetTransaction(_)
            | Utility::SetTransactionSnapshot(_)
            | Utility::SetSessionCharacteristics(_)
            | Utility::Set(_) => "SET",
            Utility::SetConstraints(_) => "SET CONSTRAINTS",
            Utility::Reset(_) => "RESET",
            Utility::Show(_) => "SHOW",
            Utility::AlterSystem(_) | Utility::AlterSystemReset(_) => "ALTER SYSTEM",
            Utility::CreateTable(_) => "CREATE TABLE",
            // The number of rows follows, as after SELECT.
            Utility::CreateTableAs(c) if c.into => "SELECT",
            Utility::CreateTableAs(c) if !c.with_data => "CREATE TABLE AS",
            Utility::CreateTableAs(_) => "SELECT",
            Utility::CreateIndex(_) => "CREATE INDEX",
            Utility::CreateSchema(_) => "CREATE SCHEMA",
            Utility::CreateSequence(_) => "CREATE SEQUENCE",
            Utility::AlterSequence(_) => "ALTER SEQUENCE",
            Utility::CreateView(_) => "CREATE VIEW",
            Utility::AlterTable(_) => "ALTER TABLE",
            Utility::Rename(r) => r.object.alter_tag(),
            Utility::AlterOwner(a) => a.object.alter_tag(),
            Utility::AlterSchema(a) => a.object.alter_tag(),
            Utility::Drop(d) => d.kind.drop_tag(),
            Utility::Truncate(_) => "TRUNCATE TABLE",
            Utility::CreateRole(_) => "CREATE ROLE",
            Utility::AlterRoleSet(a) if a.of_database => "ALTER DATABASE",
            Utility::AlterRole(_) | Utility::AlterRoleSet(_) => "ALTER ROLE",
            Utility::DropRole(_) => "DROP ROLE",
            Utility::Comment(_) => "COMMENT",
            Utility::Copy(_) => "COPY",
            Utility::Vacuum(v) if v.is_vacuum => "VACUUM",
            Utility::Vacuum(_) => "ANALYZE",
            Utility::Reindex(_) => "REINDEX",
            Utility::Checkpoint => "CHECKPOINT",
            Utility::Explain(_) => "EXPLAIN",
            Utility::Prepare(_) => "PREPARE",
            Utility::Execute(_) => "EXECUTE",
            Utility::Deallocate(None) => "DEALLOCATE ALL",
            Utility::Deallocate(Some(_)) => "DEALLOCATE",
            Utility::DeclareCursor(_) => "DECLARE CURSOR",
            Utility::Fetch(f) if f.is_move => "MOVE",
            Utility::Fetch(_) => "FETCH",
            Utility::Close(None) => "CLOSE CURSOR ALL",
            Utility::Close(Some(_)) => "CLOSE CURSOR",
            Utility::Discard(d) => d.tag(),
            Utility::Lock(_) => "LOCK TABLE",
            Utility::UnlistenAll => "UNLISTEN",
            Utility::Nothing { tag, .. } => tag,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetConstraints {
    /// Constraint OIDs; empty: ALL.
    pub constraints: Vec<Oid>,
    pub deferred: bool,
}

/// SET [LOCAL] name = ...; no values: TO DEFAULT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetVariable {
    pub name: String,
    pub values: Option<Vec<String>>,
    pub local: bool,
}

impl SetVariable {
    /// The values as one text, joined as PostgreSQL joins list settings. The elements of lists of
    /// names are quoted where they must be.
    pub fn value(&self) -> Option<String> {
        let values = self.values.as_ref()?;
        let names = matches!(
            self.name.as_str(),
            "search_path"
                | "temp_tablespaces"
                | "local_preload_libraries"
                | "session_preload_libraries"
                | "shared_preload_libraries"
        );
        if !names {
            return Some(values.join(", "));
        }
        let quoted: Vec<_> = values.iter().map(|v| super::deparse::quote_ident(v)).collect();
        Some(quoted.join(", "))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResetTarget {
    Name(String),
    All,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShowTarget {
    Name(String),
    All,
}

#[derive(Clone, PartialEq, Debug)]
pub enum CopySource {
    /// The listed columns, by attnum.
    Table { table: Arc<TableDef>, columns: Vec<i16> },
    /// COPY (query) TO.
    Query(Query),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyEndpoint {
    /// STDIN or STDOUT: the client.
    Client,
    File(String),
    Program(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyFormat {
    Text,
    Csv,
    Binary,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CopyTable {
    pub source: CopySource,
    /// COPY FROM: rows into the table.
    pub from: bool,
    pub endpoint: CopyEndpoint,
    pub format: CopyFormat,
    pub freeze: bool,
    pub delimiter: char,
    pub null: String,
    /// HEADER: first line names columns. `header_match`: it must name these.
    pub header: bool,
    pub header_match: bool,
    pub quote: char,
    pub escape: char,
    /// attnums; for a query: 1-based output columns.
    pub force_quote: Vec<i16>,
    pub force_not_null: Vec<i16>,
    pub force_null: Vec<i16>,
    /// COPY FROM ... WHERE, over Var(0, 0, col) = the new row.
    pub filter: Option<Expr>,
    /// COPY FROM: defaults of columns that are not listed.
    pub defaults: Vec<(i16, Expr)>,
    pub checks: Vec<(String, Expr)>,
}

/// One relation of VACUUM or ANALYZE.
#[derive(Clone, PartialEq, Debug)]
pub struct VacuumTarget {
    pub table: Arc<TableDef>,
    /// attnums; empty: all.
    pub columns: Vec<i16>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Vacuum {
    /// VACUUM (else a plain ANALYZE).
    pub is_vacuum: bool,
    /// Empty: every table of the database.
    pub targets: Vec<VacuumTarget>,
    pub analyze: bool,
    pub full: bool,
    pub freeze: bool,
    pub verbose: bool,
    pub disable_page_skipping: bool,
    pub skip_locked: bool,
    /// None: automatic.
    pub index_cleanup: Option<bool>,
    pub truncate: Option<bool>,
    pub process_toast: Option<bool>,
    pub parallel: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reindex {
    /// Indexes to rebuild; with `system`/`database` empty.
    pub target: ReindexTarget,
    pub concurrently: bool,
    pub verbose: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReindexTarget {
    Index(Oid),
    Table(Oid),
    Schema(Oid),
    Database,
    System,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExplainFormat {
    #[default]
    Text,
    Json,
    Xml,
    Yaml,
}

#[derive(Clone, Debug)]
pub struct Explain {
    pub statement: Box<Statement>,
    pub format: ExplainFormat,
    pub analyze: bool,
    pub verbose: bool,
    pub costs: bool,
    pub buffers: bool,
    pub wal: bool,
    pub settings: bool,
    /// Defaults to ANALYZE's value.
    pub timing: bool,
    pub summary: bool,
}

#[derive(Clone, Debug)]
pub struct Prepare {
    pub name: String,
    /// Declared types; may be fewer than the statement has parameters, the rest is inferred.
    pub types: Vec<Oid>,
    /// To be bound with `ParamTypes::variable(types)`.
    pub statement: ParsedStatement,
}

/// EXECUTE. Arguments have their own types (literals `unknown`): see
/// [`coerce_arguments`](super::coerce_arguments).
#[derive(Clone, PartialEq, Debug)]
pub struct Execute {
    pub name: String,
    pub args: Vec<Expr>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct DeclareCursor {
    pub name: String,
    pub query: Query,
    pub binary: bool,
    /// SCROLL, NO SCROLL; None: unspecified.
    pub scroll: Option<bool>,
    pub insensitive: bool,
    pub hold: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchDirection {
    /// i64::MAX: ALL. 0: the current row again. Negative never: see Backward.
    Forward(i64),
    Backward(i64),
    /// The nth row; negative counts from the end. FIRST is 1, LAST is -1.
    Absolute(i64),
    Relative(i64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    pub cursor: String,
    pub direction: FetchDirection,
    pub is_move: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    All,
    Plans,
    Sequences,
    Temp,
}

impl Discard {
    pub fn tag(self) -> &'static str {
        match self {
            Discard::All => "DISCARD ALL",
            Discard::Plans => "DISCARD PLANS",
            Discard::Sequences => "DISCARD SEQUENCES",
            Discard::Temp => "DISCARD TEMP",
        }
    }
}

/// Table lock modes, weakest first, numbered as PostgreSQL numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum TableLockMode {
    AccessShare = 1,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Lock {
    pub tables: Vec<Arc<TableDef>>,
    pub mode: TableLockMode,
    pub nowait: bool,
}

/// CREATE TABLE AS, SELECT INTO.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateTableAs {
    pub schema: TargetSchema,
    pub name: String,
    pub if_not_exists: bool,
    pub persistence: Persistence,
    pub columns: Vec<RangeColumn>,
    pub options: Vec<(String, String)>,
    pub on_commit: OnCommit,
    pub query: Query,
    pub with_data: bool,
    /// Spelled SELECT INTO.
    pub into: bool,
}
