//! A session's temporary relations: their schemas, ON COMMIT, and their end.
//!
//! ```text
//!   CREATE TEMP TABLE ──> a number of its own ──> pg_temp_N, made or emptied
//!   COMMIT            ──> ON COMMIT DROP: removed; DELETE ROWS: files cut to nothing
//!   DISCARD TEMP, end of the session ──> all of them removed
//! ```
//!
//! - What defines temporary relations only ([`Session::concerns_temporary`]) is not told to other
//!   sessions, and its commit is waited for by nobody: catalog rows about temporary relations may
//!   be lost in a crash together with them.
//! - A transaction that has done so sees the shared catalog with its own temporary relations, under
//!   a version of its own, so its statements are planned once and kept like others.
//! - ON COMMIT DELETE ROWS cuts files before the commit is certain. If the commit fails the rows
//!   are gone as well; the transaction began with none.

use super::Session;
use super::database::TempNumber;
use super::no_transaction;
use crate::analyze::statement::{AlterTable, OnCommit, TargetSchema, Utility};
use crate::catalog::temp::{self, Files, TempSchemas};
use crate::catalog::{CatalogSnapshot, Persistence, TableDef};
use crate::error::{Result, SqlError, State};
use crate::types::Oid;
use inkling_storage::btree::{self, BtreeRel};
use inkling_storage::durability::TableLevel;
use inkling_storage::engine::LogLevel;
use inkling_storage::ids::RelId;
use inkling_storage::lock::{LockMode, LockTag};
use inkling_storage::txn::{CommitMode, IsolationLevel, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a session knows of its temporary relations.
#[derive(Default)]
pub(super) struct Temporary {
    /// Its number, once it needed one.
    number: Option<TempNumber>,
    /// The running transaction is the first that needed it.
    fresh: bool,
    /// A catalog that has its temporary relations as of the last commit.
    committed: Option<Arc<CatalogSnapshot>>,
    /// What happens to which at commit.
    on_commit: Vec<(Oid, OnCommit)>,
}

impl Temporary {
    /// Whether the running transaction is the one that made the schemas.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Whether `catalog` has other relations in the session's temporary schemas than the last
    /// commit left there.
    pub fn differs_from(&self, catalog: &CatalogSnapshot, schemas: TempSchemas) -> bool {
        let of = |catalog: &CatalogSnapshot| -> BTreeSet<u32> {
            let inside = catalog.tables.values().filter(|t| schemas.both().contains(&t.schema));
            inside.map(|table| table.oid.0).collect()
        };
        self.committed.as_ref().is_none_or(|committed| of(committed) != of(catalog))
    }
}

impl Session {
    /// Makes sure that the session has its temporary schemas, in the running transaction.
    fn ensure_temp_schemas(&mut self) -> Result<()> {
        if self.around.temp_schemas().is_some() {
            return Ok(());
        }
        let db = Arc::clone(&self.around.db);
        if self.temp.number.is_none() {
            self.temp.number = Some(db.temp_number());
            self.temp.fresh = true;
        }
        let number = self.temp.number.as_ref().map_or(0, TempNumber::get);
        let schemas = temp::ensure_schemas(&db.engine, self.tx_mut()?, number)?;
        self.around.set_temp_schemas(Some(schemas));
        self.reload_own_catalog()
    }

    /// Before a definition: makes the schemas that it needs.
    pub(super) fn prepare_definition(&mut self, utility: &Utility) -> Result<()> {
        match new_relation(utility) {
            Some(TargetSchema::Temporary) => self.ensure_temp_schemas(),
            _ => Ok(()),
        }
    }

    /// After a definition: remembers what is to be done at commit.
    pub(super) fn note_definition(&mut self, utility: &Utility) {
        if let Utility::CreateTable(c) = utility
            && c.on_commit != OnCommit::PreserveRows
            && let Some(temp) = self.around.temp_schemas()
            && let Some(oid) = self.around.catalog().find_in_schema(temp.main, &c.name)
        {
            self.temp.on_commit.push((oid, c.on_commit));
        }
    }

    /// Whether a definition is about temporary relations and nothing else.
    pub(super) fn concerns_temporary(&self, utility: &Utility) -> bool {
        if let Some(target) = new_relation(utility) {
            return target == TargetSchema::Temporary;
        }
        let catalog = self.around.catalog();
        let is_temporary = |table: &TableDef| table.persistence == Persistence::Temporary;
        let of_oid = |oid: &Oid| {
            let of_index = || catalog.indexes.get(oid).and_then(|i| catalog.tables.get(&i.table));
            catalog.tables.get(oid).or_else(of_index).is_some_and(|t| is_temporary(t))
        };
        match utility {
            Utility::CreateIndex(c) => is_temporary(&c.table),
            Utility::AlterTable(a) => {
                let AlterTable { table, .. } = &**a;
                is_temporary(table)
            }
            Utility::Truncate(t) => t.tables.iter().all(|t| is_temporary(t)),
            Utility::Drop(d) => !d.objects.is_empty() && d.objects.iter().all(of_oid),
            Utility::Rename(r) => of_oid(&r.object.oid),
            Utility::Comment(c) => of_oid(&c.object.oid),
            _ => false,
        }
    }

    /// The catalog as this session's transactions find it: the shared one, with the session's
    /// temporary relations; and the shared one's version.
    pub(super) fn committed_catalog(&self) -> Result<(Arc<CatalogSnapshot>, u64)> {
        let cache = &self.around.db.catalog;
        let shared = cache.current()?;
        let version = shared.version;
        match (self.around.temp(), &self.temp.committed) {
            (Some(temp), Some(from)) => {
                let own = shared.with_schemas_of(from, &temp.both(), cache.own_version());
                Ok((Arc::new(own), version))
            }
            _ => Ok((shared, version)),
        }
    }

    /// The catalog inside a transaction that changed `own` of it.
    pub(super) fn overlaid(&self, own: Arc<CatalogSnapshot>) -> Result<Arc<CatalogSnapshot>> {
        match self.around.temp() {
            Some(temp) if !self.permanent_definition => {
                let cache = &self.around.db.catalog;
                let shared = cache.current()?;
                Ok(Arc::new(shared.with_schemas_of(&own, &temp.both(), cache.own_version())))
            }
            _ => Ok(own),
        }
    }

    /// The level of a relation that the running transaction wrote. What the catalog says of
    /// temporary relations is worth as much as they are; a temporary relation that was dropped
    /// since is not in the catalog, and known by its files.
    pub(super) fn level_of(&self, rel: RelId) -> TableLevel {
        let level = self.around.catalog().levels.of(rel);
        if level != TableLevel::Inherit || self.around.temp().is_none() {
            return level;
        }
        let of_catalog = rel.raw() < Oid::FIRST_USER.0 && !self.permanent_definition;
        match of_catalog || !self.around.db.engine.pool.persistence(rel).is_logged() {
            true => TableLevel::Volatile,
            false => level,
        }
    }

    /// ON COMMIT's actions, in the transaction that is about to commit.
    pub(super) fn before_commit(&mut self) -> Result<()> {
        if self.temp.on_commit.is_empty() {
            return Ok(());
        }
        let catalog = Arc::clone(self.around.catalog());
        let engine = Arc::clone(&self.around.db.engine);
        let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
        let mut doomed = Vec::new();
        for (oid, action) in &self.temp.on_commit {
            let Some(table) = catalog.table(*oid) else { continue };
            match action {
                OnCommit::PreserveRows => {}
                OnCommit::Drop => doomed.push(*oid),
                OnCommit::DeleteRows => empty(&engine, tx, table)?,
            }
        }
        if doomed.is_empty() {
            return Ok(());
        }
        let gone = temp::remove_tables(&engine, tx, &doomed)?;
        tx.next_command()?;
        self.around.db.tables.retain(|oid| !gone.contains(&oid));
        self.reload_own_catalog()
    }

    /// The transaction is over: what it left of temporary relations is what there is now.
    pub(super) fn settle_temporary(&mut self, committed: bool) {
        if self.around.temp().is_none() {
            return;
        }
        if committed {
            self.temp.fresh = false;
            if self.catalog_changed {
                self.temp.committed = Some(Arc::clone(self.around.catalog()));
                if !self.permanent_definition {
                    self.around.db.catalog.note_temporary();
                }
            }
        } else if std::mem::take(&mut self.temp.fresh) {
            self.temp.number = None;
            self.around.set_temp_schemas(None);
        }
        let catalog = self.temp.committed.as_deref();
        let exists = |oid: &Oid| catalog.is_some_and(|c| c.tables.contains_key(oid));
        self.temp.on_commit.retain(|(oid, _)| exists(oid));
    }

    /// DISCARD TEMP.
    pub(super) fn discard_temporary(&mut self) -> Result<()> {
        let Some(schemas) = self.around.temp_schemas() else { return Ok(()) };
        self.ensure_transaction()?;
        let catalog = Arc::clone(self.around.catalog());
        let engine = Arc::clone(&self.around.db.engine);
        let tx = self.tx_mut()?;
        lock_contents(&engine.locks, tx, &catalog, schemas)?;
        let gone = temp::remove_contents(&engine, tx, &schemas.both(), Files::Drop)?;
        if gone.is_empty() {
            return Ok(());
        }
        self.around.db.tables.retain(|oid| !gone.contains(&oid));
        self.finish_temporary_definition()
    }

    /// The session ends. What cannot be removed now is when the number is used again, or the engine
    /// starts.
    pub(super) fn remove_temporary(&mut self) {
        let (Some(schemas), Some(catalog)) = (self.around.temp(), self.temp.committed.take())
        else {
            return;
        };
        if schemas.both().iter().all(|schema| catalog.is_schema_empty(*schema)) {
            return;
        }
        let engine = Arc::clone(&self.around.db.engine);
        let level = IsolationLevel::ReadCommitted;
        let mut tx = Transaction::begin(&self.txn_session, level, false);
        let locked = lock_contents(&engine.locks, &tx, &catalog, schemas);
        let removed = locked
            .and_then(|()| temp::remove_contents(&engine, &mut tx, &schemas.both(), Files::Drop));
        let ended = removed.and_then(|gone| {
            let _visible = tx.commit(engine.as_ref(), CommitMode::NothingToLose)?;
            Ok(gone)
        });
        match ended {
            Ok(gone) => {
                self.around.db.tables.retain(|oid| !gone.contains(&oid));
                self.around.db.catalog.note_temporary();
            }
            Err(e) => {
                let text = format!("could not remove temporary tables: {}", e.message());
                engine.options().log(LogLevel::Warning, &text);
            }
        }
    }
}

/// Where the relation goes that a statement makes.
fn new_relation(utility: &Utility) -> Option<TargetSchema> {
    match utility {
        Utility::CreateTable(c) => Some(c.schema),
        Utility::CreateTableAs(c) => Some(c.schema),
        Utility::CreateView(c) => Some(c.schema),
        Utility::CreateSequence(c) => Some(c.schema),
        _ => None,
    }
}

/// Takes the locks on all of a session's temporary relations. Nobody else uses them, so nobody has
/// one that is in the way.
fn lock_contents(
    locks: &inkling_storage::lock::LockManager,
    tx: &Transaction,
    catalog: &CatalogSnapshot,
    schemas: TempSchemas,
) -> Result<()> {
    let inside = catalog.tables.values().filter(|t| schemas.both().contains(&t.schema));
    for table in inside {
        let tag = LockTag::Relation(table.oid.0);
        if !locks.try_acquire(tx.lock_owner(), tag, LockMode::AccessExclusive) {
            return Err(SqlError::new(
                State::LOCK_NOT_AVAILABLE,
                format!("could not obtain lock on relation \"{}\"", table.name),
            ));
        }
    }
    Ok(())
}

/// Takes all rows out of a temporary table that the transaction has written to; another one has
/// none.
fn empty(
    engine: &inkling_storage::engine::Engine,
    tx: &mut Transaction,
    table: &TableDef,
) -> Result<()> {
    let toast = table.toast.map(|(rel, _)| rel);
    let written = |rel| tx.written().contains(&rel);
    if !written(table.rel) && !toast.is_some_and(written) {
        return Ok(());
    }
    engine.empty_temporary(table.rel)?;
    if let Some(toast) = toast {
        engine.empty_temporary(toast)?;
    }
    for index in &table.indexes {
        engine.empty_temporary(index.rel)?;
        btree::create(engine, tx, &BtreeRel::new(index.rel))?;
    }
    Ok(())
}
