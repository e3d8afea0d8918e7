//! The plain structs of data definition: what CREATE, ALTER and DROP ask for, resolved.
//!
//! Expressions come twice: bound ([`Expr`], over `Var(0, 0, col)` of the table) for execution, and
//! as canonical text for the catalog. The text is fully qualified (it means the same under every
//! search path); [`deparse`](super::deparse) shortens it for display.

use super::bound::{Expr, Query, RangeColumn};
use crate::catalog::{Identity, Persistence, TableDef};
use crate::types::{Oid, TypeRef};
use std::sync::Arc;

/// Where a new object goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetSchema {
    Named(Oid),
    /// The session's temporary schema, made when needed.
    Temporary,
}

/// A bound expression and its canonical text.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredExpr {
    pub expr: Expr,
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnCommit {
    PreserveRows,
    DeleteRows,
    Drop,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CreateTable {
    pub schema: TargetSchema,
    pub name: String,
    pub if_not_exists: bool,
    pub persistence: Persistence,
    pub columns: Vec<ColumnSpec>,
    /// Every constraint, column constraints too; NOT NULL is in the columns.
    pub constraints: Vec<ConstraintSpec>,
    /// Plain indexes that LIKE ... INCLUDING INDEXES asks for.
    pub indexes: Vec<IndexSpec>,
    /// WITH (...), as (name, value), lower-case names, known ones only.
    pub options: Vec<(String, String)>,
    pub on_commit: OnCommit,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ColumnSpec {
    pub name: String,
    pub ty: TypeRef,
    pub collation: Oid,
    pub not_null: bool,
    pub default: Option<StoredExpr>,
    /// serial and identity columns: make this sequence, owned by the column, and let the default
    /// be its nextval.
    pub sequence: Option<OwnedSequence>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnedSequenceKind {
    Serial,
    IdentityAlways,
    IdentityByDefault,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedSequence {
    /// In the table's schema.
    pub name: String,
    pub kind: OwnedSequenceKind,
    pub options: SequenceOptions,
}

/// A constraint to make. Columns are 0-based positions in the table's column list: for CREATE
/// TABLE in `columns`; for ALTER TABLE attnum - 1 (a column being added counts from the end).
#[derive(Clone, PartialEq, Debug)]
pub struct ConstraintSpec {
    pub name: String,
    pub kind: ConstraintSpecKind,
    pub deferrable: bool,
    pub initially_deferred: bool,
    /// ADD CONSTRAINT ... NOT VALID: existing rows are not checked.
    pub not_valid: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ConstraintSpecKind {
    Primary {
        columns: Vec<usize>,
        include: Vec<usize>,
        options: Vec<(String, String)>,
    },
    Unique {
        columns: Vec<usize>,
        include: Vec<usize>,
        nulls_not_distinct: bool,
        options: Vec<(String, String)>,
    },
    /// ALTER TABLE ADD ... USING INDEX: this index becomes the constraint's.
    UsingIndex {
        index: Oid,
        primary: bool,
    },
    Check {
        check: StoredExpr,
        /// Columns that it reads.
        columns: Vec<usize>,
        no_inherit: bool,
    },
    Foreign {
        columns: Vec<usize>,
        /// None: the table itself, still to be made.
        referenced: Option<Oid>,
        /// Positions in the referenced table's column list.
        referenced_columns: Vec<usize>,
        on_update: ForeignAction,
        on_delete: ForeignAction,
        /// SET NULL / SET DEFAULT (columns) of ON DELETE.
        set_columns: Vec<usize>,
        match_full: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignAction {
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

impl ForeignAction {
    /// As pg_constraint shows it.
    pub fn code(self) -> char {
        match self {
            ForeignAction::NoAction => 'a',
            ForeignAction::Restrict => 'r',
            ForeignAction::Cascade => 'c',
            ForeignAction::SetNull => 'n',
            ForeignAction::SetDefault => 'd',
        }
    }

    pub fn of_code(code: char) -> ForeignAction {
        match code {
            'r' => ForeignAction::Restrict,
            'c' => ForeignAction::Cascade,
            'n' => ForeignAction::SetNull,
            'd' => ForeignAction::SetDefault,
            _ => ForeignAction::NoAction,
        }
    }
}

/// One key column of an index.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexColumnSpec {
    /// attnum, or None for an expression.
    pub attnum: Option<i16>,
    pub expr: Option<StoredExpr>,
    pub ty: TypeRef,
    pub collation: Oid,
    pub descending: bool,
    pub nulls_first: bool,
    /// What the column is called in the index's own pg_attribute rows.
    pub name: String,
}

#[derive(Clone, PartialEq, Debug)]
pub struct IndexSpec {
    pub name: String,
    pub unique: bool,
    pub nulls_not_distinct: bool,
    pub columns: Vec<IndexColumnSpec>,
    /// INCLUDE columns, attnums.
    pub include: Vec<i16>,
    pub predicate: Option<StoredExpr>,
    pub options: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CreateIndex {
    pub table: Arc<TableDef>,
    pub if_not_exists: bool,
    pub concurrently: bool,
    pub index: IndexSpec,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateSchema {
    pub name: String,
    pub if_not_exists: bool,
    pub owner: Oid,
}

/// None: not mentioned, or NO MINVALUE and the like (the default then).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SequenceOptions {
    /// int2, int4 or int8.
    pub ty: Option<Oid>,
    pub start: Option<i64>,
    pub increment: Option<i64>,
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub cache: Option<i64>,
    pub cycle: Option<bool>,
    /// ALTER SEQUENCE RESTART: Some(None) is "at the start value".
    pub restart: Option<Option<i64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnedBy {
    None,
    Column { table: Oid, attnum: i16 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateSequence {
    pub schema: TargetSchema,
    pub name: String,
    pub if_not_exists: bool,
    pub persistence: Persistence,
    pub options: SequenceOptions,
    pub owned_by: Option<OwnedBy>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterSequence {
    pub sequence: Oid,
    pub options: SequenceOptions,
    pub owned_by: Option<OwnedBy>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CreateView {
    pub schema: TargetSchema,
    pub name: String,
    pub persistence: Persistence,
    pub replace: bool,
    pub columns: Vec<RangeColumn>,
    pub query: Query,
    /// Canonical, fully qualified SQL of the query, for [`TableDef::view`].
    pub text: String,
    pub options: Vec<(String, String)>,
    /// Relations that it reads (dependencies).
    pub depends_on: Vec<Oid>,
    /// That it will be a temporary view.
    pub notices: Vec<crate::error::SqlError>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct AlterTable {
    pub table: Arc<TableDef>,
    pub actions: Vec<AlterAction>,
    /// "column ... already exists, skipping" and the like.
    pub notices: Vec<crate::error::SqlError>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum AlterAction {
    /// Constraints declared with the column follow as AddConstraint.
    AddColumn(ColumnSpec),
    DropColumn {
        attnum: i16,
        cascade: bool,
    },
    /// None: DROP DEFAULT.
    SetDefault {
        attnum: i16,
        default: Option<StoredExpr>,
    },
    SetNotNull {
        attnum: i16,
    },
    DropNotNull {
        attnum: i16,
    },
    SetType {
        attnum: i16,
        ty: TypeRef,
        collation: Oid,
        /// From the old row, Var(0, 0, col), to the new value.
        using: Expr,
        /// The default, coerced to the new type.
        default: Option<StoredExpr>,
    },
    SetStatistics {
        attnum: i16,
        target: i32,
    },
    AddIdentity {
        attnum: i16,
        sequence: OwnedSequence,
    },
    /// SET GENERATED ..., and the sequence's options.
    SetIdentity {
        attnum: i16,
        identity: Option<Identity>,
        options: SequenceOptions,
    },
    DropIdentity {
        attnum: i16,
    },
    AddConstraint(ConstraintSpec),
    DropConstraint {
        name: String,
        cascade: bool,
    },
    ValidateConstraint {
        name: String,
    },
    SetOptions(Vec<(String, String)>),
    ResetOptions(Vec<String>),
    SetLogged,
    SetUnlogged,
}

/// Kinds of objects that DROP, RENAME, OWNER TO, COMMENT speak of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    Table,
    Index,
    Sequence,
    View,
    Schema,
    Role,
    Database,
    Column,
    Constraint,
}

impl ObjectKind {
    pub fn drop_tag(self) -> &'static str {
        match self {
            ObjectKind::Table => "DROP TABLE",
            ObjectKind::Index => "DROP INDEX",
            ObjectKind::Sequence => "DROP SEQUENCE",
            ObjectKind::View => "DROP VIEW",
            ObjectKind::Schema => "DROP SCHEMA",
            ObjectKind::Role => "DROP ROLE",
            ObjectKind::Database => "DROP DATABASE",
            ObjectKind::Column | ObjectKind::Constraint => "ALTER TABLE",
        }
    }

    pub fn alter_tag(self) -> &'static str {
        match self {
            ObjectKind::Table | ObjectKind::Column | ObjectKind::Constraint => "ALTER TABLE",
            ObjectKind::Index => "ALTER INDEX",
            ObjectKind::Sequence => "ALTER SEQUENCE",
            ObjectKind::View => "ALTER VIEW",
            ObjectKind::Schema => "ALTER SCHEMA",
            ObjectKind::Role => "ALTER ROLE",
            ObjectKind::Database => "ALTER DATABASE",
        }
    }

    /// "table", "view", ...
    pub fn noun(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::Index => "index",
            ObjectKind::Sequence => "sequence",
            ObjectKind::View => "view",
            ObjectKind::Schema => "schema",
            ObjectKind::Role => "role",
            ObjectKind::Database => "database",
            ObjectKind::Column => "column",
            ObjectKind::Constraint => "constraint",
        }
    }
}

/// An existing object. `sub`: a column's attnum; a constraint is its table's OID plus its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectRef {
    pub kind: ObjectKind,
    pub oid: Oid,
    pub attnum: i16,
}

impl ObjectRef {
    pub fn alter_tag(&self) -> &'static str {
        self.kind.alter_tag()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rename {
    pub object: ObjectRef,
    pub new_name: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterOwner {
    pub object: ObjectRef,
    pub owner: Oid,
}

/// ... SET SCHEMA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterObjectSchema {
    pub object: ObjectRef,
    pub schema: Oid,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropObjects {
    pub kind: ObjectKind,
    pub objects: Vec<Oid>,
    pub cascade: bool,
    pub concurrently: bool,
    /// "... does not exist, skipping".
    pub notices: Vec<crate::error::SqlError>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Truncate {
    pub tables: Vec<Arc<TableDef>>,
    pub restart_identity: bool,
    pub cascade: bool,
}

/// What CREATE/ALTER ROLE says; None: not mentioned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoleOptions {
    pub superuser: Option<bool>,
    pub create_db: Option<bool>,
    pub create_role: Option<bool>,
    pub inherit: Option<bool>,
    pub login: Option<bool>,
    pub replication: Option<bool>,
    pub bypass_rls: Option<bool>,
    pub connection_limit: Option<i32>,
    /// PASSWORD 'text' (clear or a SCRAM verifier); Some(None): PASSWORD NULL.
    pub password: Option<Option<String>>,
    pub valid_until: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateRole {
    pub name: String,
    pub options: RoleOptions,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterRole {
    pub role: Oid,
    pub options: RoleOptions,
}

/// ALTER ROLE / DATABASE ... SET / RESET.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterRoleSet {
    /// None: ALL, or ALTER DATABASE without a role.
    pub role: Option<Oid>,
    pub database: Option<String>,
    /// ALTER DATABASE, not ALTER ROLE ALL IN DATABASE: they differ in their tag only.
    pub of_database: bool,
    /// None: reset all; `values` None: reset this one.
    pub set: Option<super::statement::SetVariable>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropRole {
    pub roles: Vec<Oid>,
    pub notices: Vec<crate::error::SqlError>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    pub object: ObjectRef,
    /// None: remove it.
    pub text: Option<String>,
}
