//! The session as functions, analysis and planning see it: settings, catalog, times, identity.
//!
//! Kept apart from the transaction, so that a running plan can borrow both. What functions may
//! change (`set_config`) sits behind a `RefCell`; a session is used by one thread at a time.

use super::database::{Database, SessionParams};
use super::sequences::Sequences;
use super::waiting::Waiting;
use super::{CancelFlag, functions};
use crate::analyze::statement::BindContext;
use crate::catalog::temp::TempSchemas;
use crate::catalog::{CatalogSnapshot, Persistence, TableDef};
use crate::error::{Result, Severity, SqlError, State};
use crate::functions::{FnContext, SessionFunctions};
use crate::settings::{ChangeSource, Decoded, SessionSettings};
use crate::types::{Datum, Oid, OutputStyle};
use inkling_storage::txn::TxnSession;
use inkling_storage::wait::WaitHandle;
use jiff::tz::TimeZone;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

pub(super) struct Around {
    pub db: Arc<Database>,
    pub pid: i32,
    pub user: Oid,
    pub user_name: String,
    pub database: String,
    pub cancel: Arc<CancelFlag>,
    settings: RefCell<SessionSettings>,
    /// Copies of decoded settings that are handed out by reference.
    style: OutputStyle,
    time_zone: TimeZone,
    catalog: Arc<CatalogSnapshot>,
    /// The session's temporary schemas, once it has needed them.
    temp: Option<TempSchemas>,
    search_path: RefCell<Path>,
    pub transaction_start: Cell<i64>,
    pub statement_start: Cell<i64>,
    /// A transaction block is open: set_config(.., true) and the like ask.
    pub in_transaction: Cell<bool>,
    /// The transaction must not write.
    pub read_only: Cell<bool>,
    pub sequences: Sequences,
    pub waiting: Waiting,
    /// What functions had to tell the client.
    pub warnings: RefCell<Vec<SqlError>>,
    /// Whose locks this session's are.
    pub txn_session: Arc<TxnSession>,
    /// The version that the shared catalog had when this one was read.
    pub catalog_seen: Cell<u64>,
    /// The version of the settings that the copies are of.
    copied: u64,
}

/// The search path resolved against one catalog version.
#[derive(Default)]
struct Path {
    version: Option<u64>,
    /// Searched in order, pg_catalog and the temporary schema included.
    schemas: Vec<Oid>,
    /// How many of them lead without being in the setting.
    implicit: usize,
    creation: Option<Oid>,
    /// The setting begins with pg_temp.
    create_temporary: bool,
}

impl Around {
    pub fn new(
        db: &Arc<Database>,
        catalog: Arc<CatalogSnapshot>,
        params: &SessionParams,
    ) -> Result<Self> {
        let fatal = |state, text: String| Err(SqlError::new(state, text).severity(Severity::Fatal));
        let role = catalog.role_names.get(&params.user).and_then(|oid| catalog.roles.get(oid));
        let Some(role) = role.cloned() else {
            let text = format!("role \"{}\" does not exist", params.user);
            return fatal(State::INVALID_AUTHORIZATION_SPECIFICATION, text);
        };
        if !role.can_login {
            let text = format!("role \"{}\" is not permitted to log in", params.user);
            return fatal(State::INVALID_AUTHORIZATION_SPECIFICATION, text);
        }
        if params.database != crate::catalog::bootstrap::POSTGRES {
            let text = format!("database \"{}\" does not exist", params.database);
            return fatal(State::INVALID_CATALOG_NAME, text);
        }
        let mut settings = SessionSettings::new(Arc::clone(&db.settings));
        settings.fact("session_authorization", params.user.clone());
        settings.fact("is_superuser", if role.superuser { "on" } else { "off" });
        let decoded = settings.decoded();
        let now = db.now();
        Ok(Around {
            read_only: Cell::new(false),
            sequences: Sequences::default(),
            waiting: Waiting::default(),
            warnings: RefCell::default(),
            txn_session: TxnSession::new(db.engine.as_ref(), params.pid),
            catalog_seen: Cell::new(catalog.version),
            style: decoded.style.clone(),
            time_zone: decoded.time_zone.clone(),
            db: Arc::clone(db),
            pid: params.pid,
            user: role.oid,
            user_name: params.user.clone(),
            database: params.database.clone(),
            cancel: Arc::clone(&params.cancel),
            settings: RefCell::new(settings),
            catalog,
            temp: None,
            search_path: RefCell::default(),
            transaction_start: Cell::new(now),
            statement_start: Cell::new(now),
            in_transaction: Cell::new(false),
            copied: 0,
        })
    }

    /// Takes over what ALTER ROLE and ALTER DATABASE have stored. What is not legal is passed over.
    pub fn apply_role_settings(&mut self) -> Vec<SqlError> {
        let catalog = Arc::clone(&self.catalog);
        let stored = catalog.role_settings.of_session(Oid::POSTGRES_DATABASE, self.user);
        let mut warnings = Vec::new();
        for (source, name, value) in stored {
            if let Err(e) = self.set(name, value, source, false, false) {
                warnings.push(e.severity(Severity::Warning));
            }
        }
        warnings
    }

    /// Reads decoded settings.
    pub fn with_decoded<T>(&self, f: impl FnOnce(&Decoded) -> T) -> T {
        f(self.settings.borrow().decoded())
    }

    pub fn settings(&self) -> std::cell::Ref<'_, SessionSettings> {
        self.settings.borrow()
    }

    pub fn settings_mut(&mut self) -> &mut SessionSettings {
        self.settings.get_mut()
    }

    pub fn set(
        &mut self,
        name: &str,
        value: &str,
        source: ChangeSource,
        local: bool,
        in_transaction: bool,
    ) -> Result<()> {
        self.settings.get_mut().set(name, value, source, local, in_transaction)?;
        self.refresh();
        Ok(())
    }

    /// A function's `set_config`.
    pub fn set_from_function(&self, name: &str, value: &str, local: bool) -> Result<()> {
        let in_transaction = self.in_transaction.get();
        let mut settings = self.settings.borrow_mut();
        settings.set(name, value, ChangeSource::Session, local, in_transaction)
    }

    /// A function's warning.
    pub fn warn(&self, warning: SqlError) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Takes over what changed in the settings, if anything did: after SET, after a statement
    /// whose functions may have called `set_config`, after a transaction that undid it.
    pub fn refresh(&mut self) {
        let settings = self.settings.get_mut();
        if settings.version() == self.copied {
            return;
        }
        self.copied = settings.version();
        let decoded = settings.decoded();
        if self.style != decoded.style {
            self.style = decoded.style.clone();
        }
        self.time_zone = decoded.time_zone.clone();
        self.txn_session.owner().set_tells_waits(decoded.log_lock_waits);
        self.search_path.get_mut().version = None;
    }

    pub fn catalog(&self) -> &Arc<CatalogSnapshot> {
        &self.catalog
    }

    pub fn catalog_version(&self) -> u64 {
        self.catalog.version
    }

    /// `seen`: the version that the shared catalog had then.
    pub fn set_catalog(&mut self, catalog: Arc<CatalogSnapshot>, seen: u64) {
        self.search_path.get_mut().version = None;
        self.catalog_seen.set(seen);
        self.catalog = catalog;
    }

    /// The session's temporary schemas, where the catalog in hand has them.
    pub fn temp_schemas(&self) -> Option<TempSchemas> {
        self.temp_schemas_in(&self.catalog)
    }

    fn temp_schemas_in(&self, catalog: &CatalogSnapshot) -> Option<TempSchemas> {
        self.temp.filter(|temp| catalog.schemas.contains_key(&temp.main))
    }

    /// Whether a relation's pages are this session's business: not those of another's temporary
    /// one.
    pub fn may_read_pages(&self, table: &TableDef) -> bool {
        table.persistence != Persistence::Temporary
            || self.temp_schemas().is_some_and(|temp| temp.main == table.schema)
    }

    /// The session's temporary schemas; the transaction that made them may have been rolled back.
    pub fn temp(&self) -> Option<TempSchemas> {
        self.temp
    }

    pub fn set_temp_schemas(&mut self, temp: Option<TempSchemas>) {
        self.search_path.get_mut().version = None;
        self.temp = temp;
    }

    /// Resolves the search path, if the catalog or the setting changed. Of the temporary schema
    /// and pg_catalog, those that the setting does not name come first.
    fn resolve_path(&self, catalog: &CatalogSnapshot) {
        let mut path = self.search_path.borrow_mut();
        if path.version == Some(catalog.version) && catalog.version != CatalogSnapshot::OWN {
            return;
        }
        let names = self.with_decoded(|d| d.search_path.clone());
        let temp = self.temp_schemas_in(catalog).map(|temp| temp.main);
        let mut named: Vec<Oid> = Vec::with_capacity(names.len());
        path.create_temporary = false;
        for name in &names {
            let found = match name.as_str() {
                "$user" => catalog.schema_names.get(&self.user_name).copied(),
                "pg_temp" => {
                    path.create_temporary |= named.is_empty();
                    temp
                }
                name => catalog.schema_names.get(name).copied(),
            };
            named.extend(found.filter(|schema| !named.contains(schema)));
        }
        path.create_temporary |= temp.is_some() && named.first().copied() == temp;
        path.creation = named.iter().copied().find(|s| *s != Oid::PG_CATALOG_SCHEMA);
        path.schemas.clear();
        let implicit = temp.into_iter().chain([Oid::PG_CATALOG_SCHEMA]);
        path.schemas.extend(implicit.filter(|schema| !named.contains(schema)));
        path.implicit = path.schemas.len();
        path.schemas.extend(named);
        path.version = Some(catalog.version);
    }

    /// Schemas in search order, pg_catalog included.
    pub fn search_path(&self) -> Vec<Oid> {
        let catalog = self.catalog();
        self.resolve_path(catalog);
        self.search_path.borrow().schemas.clone()
    }

    /// Whether this is the search path, as resolved now.
    pub fn is_path(&self, schemas: &[Oid]) -> bool {
        let path = self.search_path.borrow();
        if path.version == Some(self.catalog_version()) {
            return path.schemas == schemas;
        }
        drop(path);
        self.search_path() == schemas
    }

    /// The schemas that the setting names and that exist, without implicit ones.
    pub fn named_schemas(&self) -> Vec<Oid> {
        let mut path = self.search_path();
        path.drain(..self.search_path.borrow().implicit);
        path
    }

    /// Binds with what the session knows.
    pub fn with_bind_context<T>(
        &self,
        catalog: &CatalogSnapshot,
        f: impl FnOnce(&BindContext<'_>) -> Result<T>,
    ) -> Result<T> {
        self.resolve_path(catalog);
        // A copy: input functions called while binding (regclass) look at the path themselves.
        let (schemas, creation, create_temporary) = {
            let path = self.search_path.borrow();
            (path.schemas.clone(), path.creation, path.create_temporary)
        };
        f(&BindContext {
            catalog,
            search_path: &schemas,
            creation_schema: creation,
            temp_schema: self.temp_schemas_in(catalog).map(|temp| temp.main),
            create_temporary,
            user: self.user,
            functions: self,
        })
    }
}

impl FnContext for Around {
    fn transaction_timestamp(&self) -> i64 {
        self.transaction_start.get()
    }
    fn statement_timestamp(&self) -> i64 {
        self.statement_start.get()
    }
    fn clock_timestamp(&self) -> i64 {
        self.db.now()
    }
    fn time_zone(&self) -> &TimeZone {
        &self.time_zone
    }
    fn setting(&self, name: &str) -> Option<String> {
        self.settings.borrow().get(name)
    }
    fn style(&self) -> &OutputStyle {
        &self.style
    }
    fn session(&self) -> &dyn SessionFunctions {
        self
    }
    #[inline]
    fn check_interrupt(&self) -> Result<()> {
        self.cancel.check()
    }
}

impl SessionFunctions for Around {
    fn call(&self, name: &str, args: &[Datum]) -> Result<Datum> {
        functions::call(self, name, args)
    }
    fn call_set(&self, name: &str, args: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        functions::call_set(self, name, args)
    }
    fn begin_row(&self) -> bool {
        self.waiting.begin_row()
    }
    fn end_row(&self, waits: bool) -> Option<WaitHandle> {
        self.waiting.end_row(waits)
    }
}

/// A context without a session: for binding the system views.
#[derive(Default)]
pub(super) struct Bare {
    style: OutputStyle,
    time_zone: Utc,
}

/// UTC, as a default.
struct Utc(TimeZone);

impl Default for Utc {
    fn default() -> Self {
        Utc(TimeZone::UTC)
    }
}

impl FnContext for Bare {
    fn transaction_timestamp(&self) -> i64 {
        0
    }
    fn statement_timestamp(&self) -> i64 {
        0
    }
    fn clock_timestamp(&self) -> i64 {
        0
    }
    fn time_zone(&self) -> &TimeZone {
        &self.time_zone.0
    }
    fn setting(&self, _name: &str) -> Option<String> {
        None
    }
    fn style(&self) -> &OutputStyle {
        &self.style
    }
    fn session(&self) -> &dyn SessionFunctions {
        self
    }
    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }
}

impl SessionFunctions for Bare {
    fn call(&self, name: &str, _args: &[Datum]) -> Result<Datum> {
        Err(SqlError::internal(format!("{name} was called without a session")))
    }
    fn call_set(&self, name: &str, _args: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        Err(SqlError::internal(format!("{name} was called without a session")))
    }
}
