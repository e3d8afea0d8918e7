//! Data definition: CREATE, ALTER, DROP, TRUNCATE, carried out on the catalog relations.
//!
//! A statement goes through two stages. [`lock`] takes every lock that the statement needs and may
//! have to wait for them; the session then binds the statement anew if the catalog has changed
//! meanwhile. [`execute`] does the work and never waits.
//!
//! ```text
//!   bind -> lock ... Wait ... lock -> (bind again) -> execute -> rows in pg_class, ...
//!                                                             -> files made, or gone at commit
//! ```
//!
//! - Two transactions cannot make the same name: creating takes an exclusive lock on the name.
//! - Everything is ordinary transactional writing: an abort leaves no trace but an unused number.
//! - What a statement asks for and is not implemented is refused before anything is written.

mod alter;
mod create;
mod drop;
pub mod foreign;
mod index;
mod misc;
mod persistence;
mod readers;
mod sequence;
mod truncate;

pub use alter::fills;

use super::rows::{CatalogRow, system_relation};
use super::temp::TempSchemas;
use super::{CatalogSnapshot, Persistence, TableDef};
use super::{role_settings, store};
use crate::analyze::bound::Expr;
use crate::analyze::statement::{
    AlterAction, AlterTable, ConstraintSpec, ConstraintSpecKind, ObjectKind, TargetSchema, Utility,
};
use crate::error::{Result, SqlError, State};
use crate::functions::FnContext;
use crate::types::{Datum, Oid};
use inkling_storage::engine::Engine;
use inkling_storage::ids::RowId;
use inkling_storage::lock::{LockMode, LockResult, LockTag, LockWait};
use inkling_storage::txn::Transaction;
use std::sync::Arc;

/// A compiled expression over a table's row.
pub type RowFn<'a> = Box<dyn Fn(&[Datum]) -> Result<Datum> + 'a>;

/// What the session lends to data definition.
pub trait DdlHost {
    /// Compiles an expression over `Var(0, 0, col)` of a table's row.
    fn compile(&self, expr: &Expr) -> Result<RowFn<'_>>;
    /// A value as text, for a message.
    fn show(&self, value: &Datum, ty: Oid) -> String;
    fn check_interrupt(&self) -> Result<()>;
    /// What casts of values ask of the session.
    fn functions(&self) -> &dyn FnContext;
}

/// One data definition statement's surroundings.
pub struct DdlContext<'a> {
    pub engine: &'a Arc<Engine>,
    pub tx: &'a mut Transaction,
    /// The catalog as this transaction sees it.
    pub catalog: Arc<CatalogSnapshot>,
    pub user: Oid,
    /// The session's temporary schemas; there when a statement makes something temporary.
    pub temp: Option<TempSchemas>,
    pub host: &'a dyn DdlHost,
    pub notices: Vec<SqlError>,
}

/// Takes the locks that `statement` needs; a wait means: wait for it, then ask again.
pub fn lock(
    engine: &Engine,
    tx: &mut Transaction,
    catalog: &CatalogSnapshot,
    statement: &Utility,
) -> Result<Option<LockWait>> {
    for (tag, mode) in wanted_locks(engine, catalog, statement) {
        match engine.locks.acquire(tx.lock_owner(), tag, mode) {
            LockResult::Granted => {}
            LockResult::Wait(wait) => return Ok(Some(wait)),
        }
    }
    Ok(None)
}

/// The name of a relation to be made, as something that can be locked.
fn name_tag(schema: Oid, name: &str) -> LockTag {
    let mut hash = crc32_of(name);
    hash ^= schema.0.rotate_left(16);
    LockTag::Object(Oid::PG_NAMESPACE.0, hash)
}

fn crc32_of(name: &str) -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(name.as_bytes());
    hasher.finish() as u32
}

fn wanted_locks(
    _engine: &Engine,
    catalog: &CatalogSnapshot,
    statement: &Utility,
) -> Vec<(LockTag, LockMode)> {
    use LockMode::{AccessExclusive, Share, ShareRowExclusive};
    let relation = |oid: Oid, mode| (LockTag::Relation(oid.0), mode);
    // Nobody else makes names in a session's temporary schema.
    let new_name = |target: TargetSchema, name: &str| match target {
        TargetSchema::Named(schema) => vec![(name_tag(schema, name), AccessExclusive)],
        TargetSchema::Temporary => Vec::new(),
    };
    match statement {
        Utility::CreateTable(c) => {
            let sequences = c.columns.iter().filter_map(|col| col.sequence.as_ref());
            let names = std::iter::once(&c.name).chain(sequences.map(|s| &s.name));
            let names = names.flat_map(|name| new_name(c.schema, name));
            let referenced = c.constraints.iter().filter_map(referenced_table);
            names.chain(referenced.map(|oid| relation(oid, ShareRowExclusive))).collect()
        }
        Utility::CreateSequence(c) => new_name(c.schema, &c.name),
        Utility::AlterSequence(a) => vec![relation(a.sequence, ShareRowExclusive)],
        Utility::CreateTableAs(c) => new_name(c.schema, &c.name),
        Utility::CreateView(c) => new_name(c.schema, &c.name),
        Utility::CreateIndex(c) => vec![
            // The first index changes the table's own row, which one at a time may do.
            relation(
                c.table.oid,
                if c.table.indexes.is_empty() { ShareRowExclusive } else { Share },
            ),
            (name_tag(c.table.schema, &c.index.name), AccessExclusive),
        ],
        Utility::AlterTable(a) => alter_locks(catalog, a),
        Utility::Rename(r) => vec![
            relation(r.object.oid, AccessExclusive),
            (name_tag(schema_of(catalog, r.object.oid), &r.new_name), AccessExclusive),
        ],
        Utility::Drop(d) if d.kind == ObjectKind::Schema => {
            let inside = catalog.tables.values().filter(|t| d.objects.contains(&t.schema));
            inside.flat_map(|t| locks_to_drop(catalog, t.oid)).collect()
        }
        Utility::Drop(d) => d.objects.iter().flat_map(|oid| locks_to_drop(catalog, *oid)).collect(),
        Utility::Truncate(t) => {
            let all = foreign::truncated(catalog, &t.tables, t.cascade);
            let of = |table: &Arc<TableDef>| match t.restart_identity {
                true => with_sequences(catalog, table.oid),
                false => vec![relation(table.oid, AccessExclusive)],
            };
            all.iter().flat_map(of).collect()
        }
        Utility::CreateSchema(c) => vec![(name_tag(Oid(1), &c.name), AccessExclusive)],
        Utility::CreateRole(c) => vec![(name_tag(Oid(2), &c.name), AccessExclusive)],
        Utility::AlterRole(a) => {
            vec![(LockTag::Object(Oid::PG_AUTHID.0, a.role.0), AccessExclusive)]
        }
        Utility::AlterRoleSet(a) => {
            let role = a.role.unwrap_or_default();
            vec![(LockTag::Object(Oid::PG_DB_ROLE_SETTING.0, role.0), AccessExclusive)]
        }
        _ => Vec::new(),
    }
}

/// A relation to be dropped, with what goes along and the tables that foreign keys tie to it.
fn locks_to_drop(catalog: &CatalogSnapshot, oid: Oid) -> Vec<(LockTag, LockMode)> {
    let exclusive = |oid: Oid| (LockTag::Relation(oid.0), LockMode::AccessExclusive);
    if let Some(index) = catalog.indexes.get(&oid) {
        return vec![exclusive(index.table), exclusive(oid)];
    }
    let mut locks = with_sequences(catalog, oid);
    locks.extend(foreign::tied_to(catalog, oid).into_iter().map(exclusive));
    locks
}

/// A table and the sequences that go with it.
fn with_sequences(catalog: &CatalogSnapshot, table: Oid) -> Vec<(LockTag, LockMode)> {
    let owned = sequence::owned(catalog, table).into_iter().map(|s| s.oid);
    let all = std::iter::once(table).chain(owned);
    all.map(|oid| (LockTag::Relation(oid.0), LockMode::AccessExclusive)).collect()
}

fn alter_locks(catalog: &CatalogSnapshot, a: &AlterTable) -> Vec<(LockTag, LockMode)> {
    let mut locks = with_sequences(catalog, a.table.oid);
    for action in &a.actions {
        locks.extend(foreign_locks(catalog, a, action));
        let sequence = match action {
            AlterAction::AddColumn(c) => c.sequence.as_ref(),
            AlterAction::AddIdentity { sequence, .. } => Some(sequence),
            _ => None,
        };
        if let Some(sequence) = sequence {
            let tag = name_tag(a.table.schema, &sequence.name);
            locks.push((tag, LockMode::AccessExclusive));
        }
    }
    locks
}

/// The table that a foreign key to be made refers to, another than its own.
fn referenced_table(constraint: &ConstraintSpec) -> Option<Oid> {
    match constraint.kind {
        ConstraintSpecKind::Foreign { referenced, .. } => referenced,
        _ => None,
    }
}

/// Tables at the other end of foreign keys that an action makes, checks or may drop.
fn foreign_locks(
    catalog: &CatalogSnapshot,
    a: &AlterTable,
    action: &AlterAction,
) -> Vec<(LockTag, LockMode)> {
    let (tables, mode) = match action {
        AlterAction::AddConstraint(c) => {
            (referenced_table(c).into_iter().collect(), LockMode::ShareRowExclusive)
        }
        AlterAction::ValidateConstraint { .. } => {
            (foreign::tied_to(catalog, a.table.oid), LockMode::RowShare)
        }
        AlterAction::DropConstraint { .. } | AlterAction::DropColumn { .. } => {
            (foreign::tied_to(catalog, a.table.oid), LockMode::AccessExclusive)
        }
        _ => return Vec::new(),
    };
    tables.into_iter().map(|oid: Oid| (LockTag::Relation(oid.0), mode)).collect()
}

/// The schema of a relation, which its name has to be free in.
fn schema_of(catalog: &CatalogSnapshot, relation: Oid) -> Oid {
    let table = catalog.tables.get(&relation).map(|t| t.schema);
    table.or_else(|| catalog.indexes.get(&relation).map(|i| i.schema)).unwrap_or_default()
}

/// Carries out a data definition statement whose locks are held.
pub fn execute(cx: &mut DdlContext<'_>, statement: &Utility) -> Result<()> {
    match statement {
        Utility::CreateTable(c) => create::create_table(cx, c).map(|_| ()),
        Utility::CreateIndex(c) => index::create_index(cx, c),
        Utility::CreateSchema(c) => misc::create_schema(cx, c),
        Utility::CreateSequence(c) => sequence::create_sequence(cx, c),
        Utility::AlterSequence(a) => sequence::alter_sequence(cx, a),
        Utility::CreateView(c) => misc::create_view(cx, c),
        Utility::AlterTable(a) => alter::alter_table(cx, a),
        Utility::Rename(r) => misc::rename(cx, r),
        Utility::Drop(d) => drop::drop_objects(cx, d),
        Utility::Truncate(t) => truncate::truncate(cx, t),
        Utility::CreateRole(c) => misc::create_role(cx, c),
        Utility::AlterRole(a) => misc::alter_role(cx, a),
        Utility::AlterRoleSet(a) => role_settings::alter(cx, a),
        Utility::DropRole(d) => misc::drop_role(cx, d),
        Utility::Comment(c) => misc::comment(cx, c),
        other => Err(SqlError::unsupported(other.tag())),
    }
}

impl DdlContext<'_> {
    /// A new OID; files of relations are numbered from the same counter.
    fn new_oid(&self) -> Result<Oid> {
        Ok(Oid(self.engine.next_rel_id()?.raw()))
    }

    pub(super) fn insert(&mut self, rows: Vec<CatalogRow>) -> Result<()> {
        store::insert(self.engine, self.tx, rows)
    }

    /// The rows of a system relation that satisfy `wanted`, as this command sees them.
    pub(super) fn find(
        &mut self,
        relation: Oid,
        wanted: impl Fn(&CatalogRow) -> bool,
    ) -> Result<Vec<(RowId, CatalogRow)>> {
        let mut rows = store::scan(self.engine, self.tx, system_relation(relation))?;
        rows.retain(|(_, row)| wanted(row));
        Ok(rows)
    }

    pub(super) fn update(&mut self, at: RowId, row: CatalogRow) -> Result<()> {
        store::update(self.engine, self.tx, at, row)
    }

    pub(super) fn delete(&mut self, relation: Oid, at: RowId) -> Result<()> {
        store::delete(self.engine, self.tx, system_relation(relation), at)
    }

    pub(super) fn delete_where(
        &mut self,
        relation: Oid,
        wanted: impl Fn(&CatalogRow) -> bool,
    ) -> Result<usize> {
        let rows = self.find(relation, wanted)?;
        for (at, _) in &rows {
            self.delete(relation, *at)?;
        }
        Ok(rows.len())
    }

    /// Changes the one row of `relation` whose `oid` column is `oid`.
    fn change(
        &mut self,
        relation: Oid,
        oid: Oid,
        change: impl FnOnce(&mut CatalogRow),
    ) -> Result<()> {
        let found = self.find(relation, |r| r.get_oid("oid") == oid)?.into_iter().next();
        let (at, mut row) = found.ok_or_else(|| gone(relation, oid))?;
        change(&mut row);
        self.update(at, row)
    }

    /// The schema that a new relation goes to.
    fn place(&self, target: TargetSchema) -> Result<Oid> {
        let temporary = || SqlError::internal("the session has no temporary schema");
        match target {
            TargetSchema::Named(schema) => Ok(schema),
            TargetSchema::Temporary => self.temp.map(|t| t.main).ok_or_else(temporary),
        }
    }

    /// The schema for the large values of tables that live so.
    fn toast_place(&self, persistence: Persistence) -> Oid {
        match (persistence, self.temp) {
            (Persistence::Temporary, Some(temp)) => temp.toast,
            _ => Oid::PG_TOAST_SCHEMA,
        }
    }

    /// Makes what was written visible to the rest of the statement and to the next one.
    fn next_command(&mut self) -> Result<()> {
        Ok(self.tx.next_command()?)
    }

    /// Refuses a name that a relation of the schema has already.
    fn check_name_free(&self, schema: Oid, name: &str) -> Result<()> {
        match self.catalog.find_in_schema(schema, name) {
            Some(_) => Err(already_exists(name)),
            None => Ok(()),
        }
    }
}

/// pg_class.relpersistence.
fn persistence_char(persistence: Persistence) -> char {
    match persistence {
        Persistence::Permanent => 'p',
        Persistence::Unlogged => 'u',
        Persistence::Temporary => 't',
    }
}

/// What the engine has to promise about a relation's files.
fn storage_persistence(persistence: Persistence) -> inkling_storage::buffer::Persistence {
    use inkling_storage::buffer::Persistence as Storage;
    match persistence {
        Persistence::Permanent => Storage::Permanent,
        Persistence::Unlogged => Storage::Unlogged,
        Persistence::Temporary => Storage::Temporary,
    }
}

fn already_exists(name: &str) -> SqlError {
    SqlError::new(State::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

fn gone(relation: Oid, oid: Oid) -> SqlError {
    SqlError::internal(format!(
        "object {oid} is not in {} any more",
        system_relation(relation).name
    ))
}
