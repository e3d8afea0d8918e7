//! A log that is a counter and an engine that is nothing else: for tests of this module.

use super::log::{EndKind, TxnHost, TxnLog};
use super::manager::TxnManager;
use super::session::TxnSession;
use super::transaction::{IsolationLevel, Transaction};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, RelId, Xid};
use crate::lock::LockManager;
use crate::sync::Arc;
use crate::wait::{Event, WaitHandle};
use parking_lot::Mutex;

/// Where the log of every test starts.
pub(crate) const START: Lsn = Lsn::new(0x0100_0000);

#[derive(Clone)]
pub(crate) struct TestRecord {
    pub(crate) end: Lsn,
    pub(crate) kind: EndKind,
    pub(crate) xid: Xid,
    pub(crate) data: Vec<u8>,
}

#[derive(Default)]
struct State {
    records: Vec<TestRecord>,
    inserted: Lsn,
    flushed: Lsn,
    full: bool,
    waiters: Vec<(Lsn, Event)>,
    async_flushes: Vec<(Lsn, u64)>,
}

/// Records in memory; flushed when a test says so.
#[derive(Default)]
pub(crate) struct TestLog(Mutex<State>);

impl TestLog {
    pub(crate) fn new() -> Self {
        Self::starting(START)
    }

    pub(crate) fn starting(at: Lsn) -> Self {
        TestLog(Mutex::new(State { inserted: at, flushed: at, ..State::default() }))
    }

    pub(crate) fn inserted(&self) -> Lsn {
        self.0.lock().inserted
    }

    pub(crate) fn records(&self) -> Vec<TestRecord> {
        self.0.lock().records.clone()
    }

    pub(crate) fn async_flushes(&self) -> Vec<(Lsn, u64)> {
        self.0.lock().async_flushes.clone()
    }

    /// From now on no record finds room.
    pub(crate) fn fill_up(&self) {
        self.0.lock().full = true;
    }

    pub(crate) fn flush_all(&self) {
        let mut state = self.0.lock();
        state.flushed = state.inserted;
        let flushed = state.flushed;
        for (_, event) in state.waiters.extract_if(.., |(lsn, _)| *lsn <= flushed) {
            event.wake();
        }
    }
}

impl TxnLog for TestLog {
    type Prepared<'l> = (EndKind, Xid, Vec<u8>);

    fn prepare_end(&self, kind: EndKind, xid: Xid, data: &[u8]) -> Result<Self::Prepared<'_>> {
        if self.0.lock().full {
            return Err(StorageError::DiskFull { action: "extend file", path: "pg_wal".into() });
        }
        Ok((kind, xid, data.to_vec()))
    }

    fn insert_end(&self, (kind, xid, data): Self::Prepared<'_>) -> Lsn {
        let mut state = self.0.lock();
        state.inserted = state.inserted.advance(32 + data.len() as u64);
        let end = state.inserted;
        state.records.push(TestRecord { end, kind, xid, data });
        end
    }

    fn flushed_to(&self) -> Lsn {
        self.0.lock().flushed
    }

    fn ask_flush(&self, lsn: Lsn) -> Option<WaitHandle> {
        let mut state = self.0.lock();
        if state.flushed >= lsn {
            return None;
        }
        let event = Event::new();
        let handle = event.handle();
        state.waiters.push((lsn, event));
        Some(handle)
    }

    fn flush_by(&self, lsn: Lsn, deadline_micros: u64) {
        self.0.lock().async_flushes.push((lsn, deadline_micros));
    }

    fn flush_now(&self, lsn: Lsn) -> Result<()> {
        let mut state = self.0.lock();
        state.flushed = state.flushed.max(lsn);
        Ok(())
    }
}

/// An engine of transactions and locks only.
pub(crate) struct TestHost {
    pub(crate) txns: TxnManager,
    pub(crate) locks: LockManager,
    pub(crate) log: TestLog,
    pub(crate) unlinked: Mutex<Vec<RelId>>,
}

impl TestHost {
    pub(crate) fn new() -> Arc<Self> {
        Self::with(TxnManager::in_memory(START).expect("a new manager"), TestLog::new())
    }

    pub(crate) fn with(txns: TxnManager, log: TestLog) -> Arc<Self> {
        let unlinked = Mutex::new(Vec::new());
        Arc::new(TestHost { txns, locks: LockManager::new(), log, unlinked })
    }

    pub(crate) fn session(&self, pid: i32) -> Arc<TxnSession> {
        TxnSession::new(self, pid)
    }

    pub(crate) fn begin(&self, pid: i32) -> Transaction {
        Transaction::begin(&self.session(pid), IsolationLevel::ReadCommitted, false)
    }
}

impl TxnHost for TestHost {
    type Log = TestLog;

    fn txns(&self) -> &TxnManager {
        &self.txns
    }
    fn locks(&self) -> &LockManager {
        &self.locks
    }
    fn txn_log(&self) -> &TestLog {
        &self.log
    }
    fn monotonic_micros(&self) -> u64 {
        1_000_000
    }
    fn unix_micros(&self) -> i64 {
        1_700_000_000_000_000
    }
    fn unlink_rels(&self, rels: &[RelId]) {
        self.unlinked.lock().extend_from_slice(rels);
    }
}

/// Runs `model` under many random schedules, with room on the stack for the model checker's
/// large atomics.
#[cfg(shuttle)]
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    const RUNS: usize = 10_000;
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 19;
    config.failure_persistence = shuttle::FailurePersistence::Print;
    let scheduler = shuttle::scheduler::RandomScheduler::new(RUNS);
    shuttle::Runner::new(scheduler, config).run(model);
}
