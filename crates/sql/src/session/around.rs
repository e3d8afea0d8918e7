//! The session as functions, analysis and planning see it: settings, catalog, times, identity.
//!
//! Kept apart from the transaction, so that a running plan can borrow both. What functions may
//! change (`set_config`) sits behind a `RefCell`; a session is used by one thread at a time.

use super::database::{Database, SessionParams};
use super::sequences::Sequences;
use super::{CancelFlag, functions};
use crate::analyze::statement::BindContext;
use crate::catalog::CatalogSnapshot;
use crate::error::{Result, Severity, SqlError, State};
use crate::functions::{FnContext, SessionFunctions};
use crate::settings::{ChangeSource, Decoded, SessionSettings};
use crate::types::{Datum, Oid, OutputStyle};
use inkling_storage::txn::TxnSession;
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
    search_path: RefCell<Path>,
    pub transaction_start: Cell<i64>,
    pub statement_start: Cell<i64>,
    /// A transaction block is open: set_config(.., true) and the like ask.
    pub in_transaction: Cell<bool>,
    /// The transaction must not write.
    pub read_only: Cell<bool>,
    pub sequences: Sequences,
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
    /// Searched in order, pg_catalog included.
    schemas: Vec<Oid>,
    creation: Option<Oid>,
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

    /// Resolves the search path, if the catalog or the setting changed.
    fn resolve_path(&self, catalog: &CatalogSnapshot) {
        let mut path = self.search_path.borrow_mut();
        if path.version == Some(catalog.version) && catalog.version != CatalogSnapshot::OWN {
            return;
        }
        let names = self.with_decoded(|d| d.search_path.clone());
        let named = names.iter().filter_map(|name| {
            let name = if name == "$user" { &self.user_name } else { name };
            catalog.schema_names.get(name).copied()
        });
        let named: Vec<Oid> = named.collect();
        path.creation = named.iter().copied().find(|s| *s != Oid::PG_CATALOG_SCHEMA);
        path.schemas.clear();
        if !named.contains(&Oid::PG_CATALOG_SCHEMA) {
            path.schemas.push(Oid::PG_CATALOG_SCHEMA);
        }
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
        let explicit = self.with_decoded(|d| d.search_path.iter().any(|n| n == "pg_catalog"));
        let path = self.search_path();
        if explicit { path } else { path.into_iter().skip(1).collect() }
    }

    /// Binds with what the session knows.
    pub fn with_bind_context<T>(
        &self,
        catalog: &CatalogSnapshot,
        f: impl FnOnce(&BindContext<'_>) -> Result<T>,
    ) -> Result<T> {
        self.resolve_path(catalog);
        // A copy: input functions called while binding (regclass) look at the path themselves.
        let (schemas, creation) = {
            let path = self.search_path.borrow();
            (path.schemas.clone(), path.creation)
        };
        f(&BindContext {
            catalog,
            search_path: &schemas,
            creation_schema: creation,
            temp_schema: None,
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
