//! What all sessions of a process share: the engine, the catalog, the server's settings, and who
//! is connected.

use super::CancelFlag;
use super::waiting::Sleepers;
use crate::alarms::Alarms;
use crate::analyze::statement::{BindContext, ParamTypes, Statement, Utility};
use crate::analyze::{self, bound::Expr};
use crate::catalog::create::{self, ViewBinder};
use crate::catalog::ddl::{DdlHost, RowFn};
use crate::catalog::{CatalogCache, CatalogSnapshot, temp};
use crate::error::{Result, SqlError};
use crate::exec::table::TableCache;
use crate::session::around::Bare;
use crate::settings::ServerSettings;
use crate::types::{Datum, Oid};
use inkling_storage::engine::Engine;
use inkling_storage::ids::Xid;
use inkling_storage::txn::TxnSession;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a session is at, as pg_stat_activity names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    Active,
    Idle,
    IdleInTransaction,
    IdleInFailedTransaction,
}

impl Activity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Activity::Active => "active",
            Activity::Idle => "idle",
            Activity::IdleInTransaction => "idle in transaction",
            Activity::IdleInFailedTransaction => "idle in transaction (aborted)",
        }
    }
}

/// Who a session is for.
#[derive(Clone, Default)]
pub struct SessionParams {
    pub user: String,
    pub database: String,
    /// Settings of the start-up packet, in order.
    pub settings: Vec<(String, String)>,
    pub pid: i32,
    pub cancel: Arc<CancelFlag>,
    /// Where the client is; empty for an embedded session.
    pub client: String,
}

/// One row of pg_stat_activity, roughly.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    pub pid: i32,
    pub user: String,
    pub client: String,
    pub activity: Activity,
    pub query: String,
    /// Microseconds since 2000-01-01, as all of these.
    pub started: i64,
    /// When it began to be at what it is at.
    pub changed: i64,
    pub query_start: Option<i64>,
    pub transaction_start: Option<i64>,
    /// Below this xid its snapshot sees nobody running.
    pub xmin: Option<Xid>,
}

pub(super) struct Entry {
    pub info: Mutex<SessionInfo>,
    pub cancel: Arc<CancelFlag>,
    /// When the running transaction began; 0: there is none.
    transaction_start: AtomicI64,
    txn_session: OnceLock<Arc<TxnSession>>,
}

impl Entry {
    fn describe(&self) -> SessionInfo {
        let mut info = self.info.lock().clone();
        let start = self.transaction_start.load(Ordering::Relaxed);
        info.transaction_start = (start != 0).then_some(start);
        info.xmin = self.txn_session.get().and_then(|session| session.slot().announced_floor());
        info
    }
}

type Sessions = Mutex<BTreeMap<i32, Arc<Entry>>>;
type TempNumbers = Mutex<BTreeSet<u32>>;

/// One open database. See the module's essay.
pub struct Database {
    pub engine: Arc<Engine>,
    pub catalog: CatalogCache,
    pub settings: Arc<ServerSettings>,
    /// How long what is asynchronous, and says nothing else, may stay undurable.
    pub(super) default_loss_micros: u64,
    /// Tables made ready for execution, shared by all sessions.
    pub(super) tables: TableCache,
    /// When the process opened it, microseconds since 2000-01-01.
    pub started: i64,
    sessions: Arc<Sessions>,
    /// The numbers of sessions with temporary schemas.
    temp_numbers: Arc<TempNumbers>,
    /// For sessions that sleep, and limits of statements that no server watches over.
    pub alarms: Alarms,
    pub(super) sleepers: Sleepers,
}

/// A session's number among those with temporary schemas, for as long as it lives.
pub(super) struct TempNumber {
    number: u32,
    all: Arc<TempNumbers>,
}

impl TempNumber {
    pub fn get(&self) -> u32 {
        self.number
    }
}

impl Drop for TempNumber {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}

/// A session's entry, removed when the session ends.
pub(super) struct Registration {
    pid: i32,
    pub entry: Arc<Entry>,
    sessions: Arc<Sessions>,
}

impl Registration {
    /// `now`: when a query begins, or the session is at something else.
    pub fn set(&self, activity: Activity, query: Option<&str>, now: i64) {
        let mut info = self.entry.info.lock();
        if query.is_some() || info.activity != activity {
            info.changed = now;
        }
        info.activity = activity;
        if let Some(query) = query {
            info.query_start = Some(now);
            info.query.clear();
            let end = query.char_indices().nth(1024).map_or(query.len(), |(at, _)| at);
            info.query.push_str(&query[..end]);
        }
    }
}

impl Registration {
    /// A transaction begins, or is over. It begins with its query, as people see it.
    pub fn set_transaction(&self, start: Option<i64>) {
        let query = || self.entry.info.lock().query_start;
        let start = start.map_or(0, |start| query().map_or(start, |query| query.min(start)));
        self.entry.transaction_start.store(start, Ordering::Relaxed);
    }

    /// Whose snapshots and locks the session's are.
    pub fn identify(&self, session: &Arc<TxnSession>) {
        // Once, when the session begins.
        let _first = self.entry.txn_session.set(Arc::clone(session));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.pid);
    }
}

/// Microseconds from 1970-01-01 to 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

impl Database {
    /// Opens the database in an open engine; makes the catalog when the directory is new.
    pub fn open(engine: Arc<Engine>, settings: ServerSettings) -> Result<Arc<Database>> {
        create::ensure_relations(&engine)?;
        create::ensure_views(&engine, &Binder::default())?;
        temp::remove_orphans(&engine)?;
        let catalog = CatalogCache::open(&engine)?;
        engine.locks.set_database(Oid::POSTGRES_DATABASE.0);
        let default_loss_micros = settings.int("wal_writer_delay").max(1) as u64 * 1000;
        let started = engine.clock().now_unix_micros() - EPOCH_MICROS;
        Ok(Arc::new(Database {
            catalog,
            settings: Arc::new(settings),
            default_loss_micros,
            tables: TableCache::default(),
            started,
            sessions: Arc::default(),
            temp_numbers: Arc::default(),
            alarms: Alarms::default(),
            sleepers: Sleepers::default(),
            engine,
        }))
    }

    /// Microseconds since 2000-01-01 UTC.
    pub fn now(&self) -> i64 {
        self.engine.clock().now_unix_micros() - EPOCH_MICROS
    }

    pub(super) fn register(&self, params: &SessionParams) -> Registration {
        let now = self.now();
        let info = SessionInfo {
            pid: params.pid,
            user: params.user.clone(),
            client: params.client.clone(),
            activity: Activity::Idle,
            query: String::new(),
            started: now,
            changed: now,
            query_start: None,
            transaction_start: None,
            xmin: None,
        };
        let entry = Arc::new(Entry {
            info: Mutex::new(info),
            cancel: Arc::clone(&params.cancel),
            transaction_start: AtomicI64::new(0),
            txn_session: OnceLock::new(),
        });
        self.sessions.lock().insert(params.pid, Arc::clone(&entry));
        Registration { pid: params.pid, entry, sessions: Arc::clone(&self.sessions) }
    }

    /// The smallest number that no other session has.
    pub(super) fn temp_number(&self) -> TempNumber {
        let mut all = self.temp_numbers.lock();
        let free = all.iter().zip(1..).find(|(taken, at)| **taken != *at).map(|(_, at)| at);
        let number = free.unwrap_or(all.len() as u32 + 1);
        all.insert(number);
        TempNumber { number, all: Arc::clone(&self.temp_numbers) }
    }

    /// Who is connected, by pid.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sessions.lock().values().map(|e| e.describe()).collect()
    }

    /// Interrupts a session; false when there is none with this pid.
    pub fn interrupt(&self, pid: i32, reason: super::CancelReason) -> bool {
        match self.sessions.lock().get(&pid) {
            Some(entry) => {
                entry.cancel.request(reason);
                true
            }
            None => false,
        }
    }
}

/// Binds the system views when there is no session yet.
#[derive(Default)]
struct Binder {
    bare: Bare,
}

impl ViewBinder for Binder {
    fn bind_view(
        &self,
        catalog: &CatalogSnapshot,
        schema: Oid,
        name: &str,
        query: &str,
    ) -> Result<Utility> {
        let sql = format!("create view {name} as {query}");
        let parsed = analyze::parse(&sql)?;
        let parsed = parsed.first().ok_or_else(|| SqlError::internal("no statement"))?;
        let bare = Bare::default();
        let cx = BindContext {
            catalog,
            search_path: &[Oid::PG_CATALOG_SCHEMA, schema],
            creation_schema: Some(schema),
            temp_schema: None,
            create_temporary: false,
            user: Oid::BOOTSTRAP_ROLE,
            functions: &bare,
        };
        match analyze::bind(&cx, parsed, &mut ParamTypes::none())? {
            Statement::Utility(utility) => Ok(utility),
            _ => Err(SqlError::internal("not a view definition")),
        }
    }

    fn host(&self) -> &dyn DdlHost {
        self
    }
}

impl DdlHost for Binder {
    fn compile(&self, expr: &Expr) -> Result<RowFn<'_>> {
        Err(SqlError::internal(format!("views compile no expression, such as {expr:?}")))
    }

    fn show(&self, value: &Datum, ty: Oid) -> String {
        crate::types::io::to_text(value, ty, &Bare::default()).to_string()
    }

    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }

    fn functions(&self) -> &dyn crate::functions::FnContext {
        &self.bare
    }
}
