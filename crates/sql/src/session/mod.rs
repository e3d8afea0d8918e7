//! Sessions: what a client has on one connection.
//!
//! ```text
//!   Database::open(engine)                    one a process
//!     └─ Session::new(db, SessionParams)      one a connection; Send, used by one thread at a time
//!          parse_statements(sql)              simple protocol: the statements of one string
//!          prepare(name, sql, types)          parse, bind, plan once; kept by name
//!          bind(portal, statement, values)    no work yet
//!          step(portal, sink, max_rows)       runs until something is for the driver to do
//!          finish_implicit()                  Sync, or the end of a simple query string
//!          answer_barrier()                   before any byte goes to the client
//! ```
//!
//! The parts:
//!
//! | module        | what it is about                                                     |
//! |---------------|----------------------------------------------------------------------|
//! | `api`         | what a driver and a session say to each other                        |
//! | `database`    | what all sessions of a process share                                 |
//! | `around`      | the session as functions and analysis see it                         |
//! | `prepared`    | statements, bound and planned, revalidated by catalog version        |
//! | `statement_cache` | statements found again by their text                             |
//! | `portal`      | a statement being executed                                           |
//! | `two_phase`   | PREPARE TRANSACTION, COMMIT and ROLLBACK PREPARED                    |
//! | `block`       | transaction blocks: BEGIN, COMMIT, savepoints, implicit ones, errors |
//! | `after`       | checks and cascades after statements, SET CONSTRAINTS                |
//! | `run`         | one step of a portal                                                 |
//! | `utility`     | statements without a plan                                            |
//! | `copy`        | COPY, both ways                                                      |
//! | `temp`        | temporary relations: schemas, ON COMMIT, their end                   |
//! | `create_as`   | CREATE TABLE AS, SELECT INTO                                         |
//! | `functions`   | the built-ins that ask the session or the catalog                    |
//! | `durability`  | the view of what tables promise and how that is kept                 |
//! | `sequences`   | nextval and its kin                                                  |
//! | `siread`      | what serializable transactions have read, for `pg_locks`             |
//! | `waiting`     | pg_sleep, advisory locks: functions that wait, effects once          |
//! | `inspect`     | those that show pages, maps and counters                             |
//!
//! See [`api`] for what a driver does with each answer.

mod after;
pub mod api;
mod around;
mod block;
mod copy;
mod create_as;
mod database;
mod durability;
mod functions;
mod inspect;
mod portal;
mod prepared;
mod run;
mod sequences;
mod siread;
mod statement_cache;
mod stats;
mod temp;
mod two_phase;
mod utility;
mod waiting;

pub(crate) use waiting::may_wait;

pub use api::{CancelFlag, CancelReason, ColumnDesc, CommandTag, CopyInfo, Progress, RowSink};
pub use database::{Activity, Database, SessionParams};
pub use portal::Portal;
pub use prepared::Prepared;

use crate::catalog::CatalogSnapshot;
use crate::error::{Result, SqlError, State};
use crate::exec::run::ExecEnv;
use crate::plan::PlanEnv;
use crate::settings::ChangeSource;
use around::Around;
use block::Block;
use hashbrown::HashMap;
use inkling_storage::heap::VisState;
use inkling_storage::ids::{Lsn, Xid};
use inkling_storage::txn::{Transaction, TxnSession};
use inkling_storage::wait::WaitHandle;
use prepared::SessionPlanEnv;
use statement_cache::StatementCache;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

/// One client's session. See the module's essay.
pub struct Session {
    around: Around,
    txn_session: Arc<TxnSession>,
    vis: VisState,
    block: Block,
    tx: Option<RefCell<Transaction>>,
    /// This transaction changed the catalog: it reads its own version.
    catalog_changed: bool,
    /// ... in something else than its own temporary relations.
    permanent_definition: bool,
    /// The shared catalog's version when this session's was read: others' later changes make it
    /// stale.
    catalog_at: u64,
    temp: temp::Temporary,
    after: after::After,
    /// No byte of an answer leaves before the log is durable up to here.
    barrier: Lsn,
    /// The flush that the last commit asked for: its answer waits with it.
    asked: Option<WaitHandle>,
    /// An answer is being held back: what it has to wait for is known.
    held_back: bool,
    /// A VACUUM's find: no table has an xid below, as of a position of the log.
    clog_cut: Option<(Xid, Lsn)>,
    statements: HashMap<String, Arc<Prepared>>,
    cache: StatementCache,
    portals: HashMap<String, Portal>,
    notices: Vec<SqlError>,
    /// The statement at hand is one of several in a query string, which are one transaction.
    in_string: Cell<bool>,
    registered: database::Registration,
}

impl Session {
    /// Starts a session; checks the role, the database and the settings of the start-up packet.
    pub fn new(db: &Arc<Database>, params: SessionParams) -> Result<Session> {
        let catalog = db.catalog.current()?;
        let barrier = catalog.undurable;
        let catalog_at = catalog.version;
        let registered = db.register(&params);
        let mut around = Around::new(db, catalog, &params)?;
        registered.identify(&around.txn_session);
        let notices = around.apply_role_settings();
        for (name, value) in &params.settings {
            around.set(name, value, ChangeSource::Client, false, false)?;
        }
        Ok(Session {
            txn_session: Arc::clone(&around.txn_session),
            around,
            vis: VisState::new(&db.engine),
            block: Block::Idle,
            tx: None,
            catalog_changed: false,
            permanent_definition: false,
            catalog_at,
            temp: temp::Temporary::default(),
            after: after::After::default(),
            barrier,
            asked: None,
            held_back: false,
            clog_cut: None,
            statements: HashMap::new(),
            cache: StatementCache::default(),
            portals: HashMap::new(),
            notices,
            in_string: Cell::new(false),
            registered,
        })
    }

    /// The byte of ReadyForQuery: `I`dle, in a `T`ransaction, or in a failed one (`E`).
    pub fn transaction_status(&self) -> u8 {
        self.block.status()
    }

    /// What must be waited for before bytes of an answer may leave. Ask again after the wait.
    /// An error means that what the client would be told may be lost.
    pub fn answer_barrier(&mut self) -> Result<Option<WaitHandle>> {
        if let Some(tx) = &self.tx {
            let tx = tx.borrow();
            let mut seen = tx.undurable_seen().replace(Lsn::INVALID);
            // Once an answer: while it waits, others commit more, which it does not show.
            if !self.held_back
                && tx.top_xid().is_some()
                && self.around.with_decoded(|d| d.read_durable)
            {
                seen = seen.max(self.around.db.engine.txns.published());
            }
            self.barrier = self.barrier.max(seen);
        }
        self.barrier = self.barrier.max(self.around.sequences.take_told());
        self.held_back = false;
        let asked = self.asked.take();
        if !self.barrier.is_valid() {
            return Ok(None);
        }
        if let Some(handle) = asked.filter(|handle| !handle.is_ready()) {
            self.held_back = true;
            return Ok(Some(handle));
        }
        let wal = &self.around.db.engine.wal;
        match wal.request_flush(self.barrier) {
            None => {
                self.barrier = Lsn::INVALID;
                Ok(None)
            }
            Some(handle) => {
                if let Err(e) = wal.check_poisoned() {
                    // The client learns of it now. What it reads from here on has its own barrier.
                    self.barrier = Lsn::INVALID;
                    return Err(e.into());
                }
                self.held_back = true;
                Ok(Some(handle))
            }
        }
    }

    /// Settings whose change the client has to be told.
    pub fn take_reports(&mut self) -> Vec<(&'static str, String)> {
        self.around.settings_mut().take_reports()
    }

    /// All settings that clients are told at the start.
    pub fn all_reports(&mut self) -> Vec<(&'static str, String)> {
        self.around.settings_mut().all_reports()
    }

    /// Notices and warnings since the last call, in order.
    pub fn take_notices(&mut self) -> Vec<SqlError> {
        self.notices.append(self.around.warnings.get_mut());
        if self.notices.is_empty() {
            return Vec::new();
        }
        let level = self.around.with_decoded(|d| d.min_message_level);
        let mut notices = std::mem::take(&mut self.notices);
        notices.retain(|n| match n.severity {
            crate::error::Severity::Notice => level <= 2,
            crate::error::Severity::Warning => level <= 3,
            _ => true,
        });
        notices
    }

    pub fn cancel_flag(&self) -> &Arc<CancelFlag> {
        &self.around.cancel
    }

    /// `statement_timeout`, when it is set.
    pub fn statement_timeout(&self) -> Option<Duration> {
        positive_millis(self.around.with_decoded(|d| d.statement_timeout_ms))
    }

    /// How long a statement may take without being logged; None: none is.
    pub fn log_min_duration(&self) -> Option<Duration> {
        let ms = self.around.with_decoded(|d| d.log_min_duration_ms);
        u64::try_from(ms).ok().map(Duration::from_millis)
    }

    /// `lock_timeout`, when it is set: how long one wait may last. It does not limit sleep.
    pub fn lock_timeout(&self) -> Option<Duration> {
        let safe = self.tx.as_ref().is_some_and(|tx| tx.borrow().awaits_safe_snapshot());
        if safe || self.around.waiting.sleeps() {
            return None;
        }
        positive_millis(self.around.with_decoded(|d| d.lock_timeout_ms))
    }

    /// How long the session may idle in a transaction block, when that is limited and it does.
    pub fn idle_timeout(&self) -> Option<Duration> {
        match self.block.status() {
            b'I' => None,
            _ => positive_millis(self.around.with_decoded(|d| d.idle_in_transaction_timeout_ms)),
        }
    }

    /// A message of the client begins: a cancel request that came too late for the last one is
    /// forgotten.
    pub fn begin_message(&mut self) {
        self.in_string.set(false);
        self.around.cancel.reset();
        self.around.statement_start.set(self.around.db.now());
    }

    /// Tells the activity view what the session is at.
    pub fn set_activity(&self, activity: Activity, query: Option<&str>) {
        let now = match query {
            Some(_) => self.around.statement_start.get(),
            None => self.around.db.now(),
        };
        self.registered.set(activity, query, now);
    }

    /// The session as functions see it: what output of values needs.
    pub fn context(&self) -> &dyn crate::functions::FnContext {
        &self.around
    }

    /// The catalog that the next statement would see.
    fn catalog(&mut self) -> Result<Arc<CatalogSnapshot>> {
        self.refresh_catalog()?;
        Ok(Arc::clone(self.around.catalog()))
    }

    /// Takes over others' changes of the catalog. Hot: copies no pointer that all sessions share.
    fn refresh_catalog(&mut self) -> Result<()> {
        if self.catalog_is_stale() {
            match self.catalog_changed {
                true => self.reload_own_catalog()?,
                false => self.adopt_catalog()?,
            }
        }
        Ok(())
    }

    /// Takes the shared catalog over. What it says is told together with what it is used for.
    fn adopt_catalog(&mut self) -> Result<()> {
        let (catalog, seen) = self.committed_catalog()?;
        self.barrier = self.barrier.max(catalog.undurable);
        self.catalog_at = seen;
        self.around.set_catalog(catalog, seen);
        Ok(())
    }

    /// Whether others have changed the catalog since this session read it. To be asked again once
    /// locks are held: what was bound before may lack, say, an index that writes must maintain.
    fn catalog_is_stale(&self) -> bool {
        self.catalog_at != self.around.db.catalog.version()
    }

    /// The catalog after this transaction changed it.
    fn reload_own_catalog(&mut self) -> Result<()> {
        let Some(tx) = self.tx.as_mut().map(RefCell::get_mut) else {
            return Err(SqlError::internal("catalog change outside a transaction"));
        };
        let at = self.around.db.catalog.version();
        let own = self.around.db.catalog.for_transaction(tx)?;
        let own = self.overlaid(own)?;
        self.catalog_changed = true;
        self.catalog_at = at;
        self.barrier = self.barrier.max(own.undurable);
        self.around.set_catalog(own, at);
        Ok(())
    }

    fn notice(&mut self, notice: SqlError) {
        self.notices.push(notice);
    }

    /// Lends the session to a running plan or a bulk insert.
    fn with_env<T>(&self, f: impl FnOnce(&ExecEnv<'_>) -> Result<T>) -> Result<T> {
        let tx = self.tx.as_ref().ok_or_else(no_transaction)?;
        let catalog = self.around.catalog();
        let plan_env = SessionPlanEnv::new(&self.around, catalog);
        f(&ExecEnv {
            fx: &self.around,
            engine: &self.around.db.engine,
            tx,
            vis: &self.vis,
            catalog,
            plan_env: &plan_env,
            tables: &self.around.db.tables,
            after: &self.after.queue,
        })
    }

    fn with_plan_env<T>(&self, f: impl FnOnce(&dyn PlanEnv) -> Result<T>) -> Result<T> {
        let catalog = self.around.catalog();
        f(&SessionPlanEnv::new(&self.around, catalog))
    }

    /// The transaction, for its end.
    fn take_transaction(&mut self) -> Option<Transaction> {
        self.tx.take().map(RefCell::into_inner)
    }

    fn tx_mut(&mut self) -> Result<&mut Transaction> {
        Ok(self.tx.as_mut().ok_or_else(no_transaction)?.get_mut())
    }

    /// The snapshot for a statement that is about to run.
    fn take_statement_snapshot(&mut self) -> Result<inkling_storage::txn::Snapshot> {
        let tx = self.tx_mut()?;
        tx.check_victim()?;
        let snapshot = tx.statement_snapshot();
        self.note_snapshot(snapshot);
        Ok(snapshot)
    }

    /// With `read_durable` an answer waits for everything that its snapshot can show (rule H11 of
    /// the heap).
    fn note_snapshot(&mut self, snapshot: inkling_storage::txn::Snapshot) {
        if self.around.with_decoded(|d| d.read_durable) {
            self.barrier = self.barrier.max(snapshot.s);
        }
    }

    fn check_may_write(&self, what: &str) -> Result<()> {
        match self.tx.as_ref().is_some_and(|tx| tx.borrow().is_read_only()) {
            true => Err(run::read_only_error(what)),
            false => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.portals.clear();
        if let Some(tx) = self.take_transaction() {
            tx.abort(self.around.db.engine.as_ref());
        }
        self.remove_temporary();
        self.around.db.engine.locks.release_session_locks(self.txn_session.owner());
    }
}

fn positive_millis(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

fn no_transaction() -> SqlError {
    SqlError::internal("no transaction is in progress")
}

/// A statement name that nobody prepared.
fn unknown_statement(name: &str) -> SqlError {
    let text = match name.is_empty() {
        true => "unnamed prepared statement does not exist".to_owned(),
        false => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(State::INVALID_SQL_STATEMENT_NAME, text)
}
