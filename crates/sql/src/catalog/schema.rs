//! What a session knows of tables, indexes and columns: immutable definitions.
//!
//! A [`TableDef`] is built from the catalog relations by `catalog/load.rs` and shared by all
//! sessions of one catalog version; nothing here is ever changed in place.

use crate::types::{Oid, TypeRef};
use inkling_storage::ids::RelId;
use inkling_storage::seq::SeqParams;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelationKind {
    Table,
    Index,
    Sequence,
    View,
    Toast,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    Permanent,
    Unlogged,
    Temporary,
}

/// GENERATED ... AS IDENTITY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    Always,
    ByDefault,
}

impl Identity {
    /// As pg_attribute.attidentity shows it.
    pub fn code(self) -> char {
        match self {
            Identity::Always => 'a',
            Identity::ByDefault => 'd',
        }
    }

    pub fn of_code(code: char) -> Option<Identity> {
        match code {
            'a' => Some(Identity::Always),
            'd' => Some(Identity::ByDefault),
            _ => None,
        }
    }
}

/// The column that a sequence goes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceOwner {
    pub table: Oid,
    pub attnum: i16,
    /// An identity column's: part of the column rather than its companion.
    pub identity: bool,
}

/// What pg_sequence says of a sequence, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceDef {
    /// int2, int4 or int8.
    pub ty: Oid,
    pub start: i64,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cache: i64,
    pub cycle: bool,
    pub owner: Option<SequenceOwner>,
}

impl SequenceDef {
    /// What the storage engine needs to know.
    pub fn params(&self) -> SeqParams {
        let SequenceDef { increment, min, max, cycle, .. } = *self;
        SeqParams { increment, min, max, cycle }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct ColumnDef {
    pub name: String,
    /// 1-based, as in pg_attribute; dropped columns keep theirs.
    pub attnum: i16,
    pub ty: TypeRef,
    pub not_null: bool,
    pub dropped: bool,
    /// The default as SQL text in canonical form (what pg_get_expr shows); an identity column's is
    /// its sequence's next value.
    pub default: Option<String>,
    pub identity: Option<Identity>,
    /// What rows older than the column read (ALTER TABLE ADD COLUMN ... DEFAULT constant).
    pub missing: Option<crate::types::Datum>,
    pub collation: Oid,
}

#[derive(Clone, PartialEq, Debug)]
pub struct IndexColumn {
    /// Column number in the table (1-based), or 0 for an expression.
    pub attnum: i16,
    /// Canonical SQL of an expression column.
    pub expr: Option<String>,
    pub ty: TypeRef,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct IndexDef {
    pub oid: Oid,
    pub rel: RelId,
    pub name: String,
    pub schema: Oid,
    pub table: Oid,
    /// Key columns first, then INCLUDE columns.
    pub columns: Vec<IndexColumn>,
    pub key_columns: usize,
    pub unique: bool,
    pub nulls_not_distinct: bool,
    pub primary: bool,
    /// Checked at once, not at commit.
    pub immediate: bool,
    /// Canonical SQL of a partial index's condition.
    pub predicate: Option<String>,
    pub fillfactor: u8,
    pub valid: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ConstraintDef {
    pub oid: Oid,
    pub name: String,
    pub table: Oid,
    pub kind: ConstraintKind,
    pub columns: Vec<i16>,
    pub deferrable: bool,
    pub deferred: bool,
    /// All rows satisfy it; false after NOT VALID.
    pub validated: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ConstraintKind {
    Primary {
        index: Oid,
    },
    Unique {
        index: Oid,
    },
    /// Canonical SQL of the condition.
    Check {
        expr: String,
    },
    Foreign {
        referenced: Oid,
        referenced_columns: Vec<i16>,
        on_update: char,
        on_delete: char,
        match_type: char,
        /// The unique index of the referenced columns.
        index: Oid,
        /// Columns of ON DELETE SET NULL / SET DEFAULT (columns); none: all of the key.
        set_columns: Vec<i16>,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct TableDef {
    pub oid: Oid,
    pub rel: RelId,
    /// The TOAST table's files and the index on them, when there is one.
    pub toast: Option<(RelId, RelId)>,
    pub name: String,
    pub schema: Oid,
    pub schema_name: String,
    pub kind: RelationKind,
    pub persistence: Persistence,
    pub owner: Oid,
    pub row_type: Oid,
    /// In attnum order, dropped ones included: column `attnum` is at `attnum - 1`.
    pub columns: Vec<ColumnDef>,
    pub indexes: Vec<Arc<IndexDef>>,
    pub constraints: Vec<Arc<ConstraintDef>>,
    /// Foreign keys that refer to this table, its own included, by age.
    pub referenced_by: Vec<Arc<ConstraintDef>>,
    pub fillfactor: u8,
    /// WITH (...) options as written, for pg_class.reloptions.
    pub options: Vec<(String, String)>,
    /// A view's query, canonical SQL.
    pub view: Option<String>,
    /// What makes it a sequence.
    pub sequence: Option<SequenceDef>,
    /// Rows and pages as of the last VACUUM or ANALYZE; -1: never.
    pub reltuples: f32,
    pub relpages: i32,
    /// Part of the system catalog: not for user DML.
    pub system: bool,
}

impl TableDef {
    pub fn column(&self, name: &str) -> Option<&ColumnDef> {
        self.columns.iter().find(|c| !c.dropped && c.name == name)
    }

    pub fn live_columns(&self) -> impl Iterator<Item = &ColumnDef> {
        self.columns.iter().filter(|c| !c.dropped)
    }

    pub fn primary_key(&self) -> Option<&Arc<IndexDef>> {
        self.indexes.iter().find(|i| i.primary)
    }
}
