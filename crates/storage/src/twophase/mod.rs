//! Transactions that wait for their second phase: preparing them, ending them by name.
//!
//! Rules, crash argument: `README.md` in this directory.
//!
//! ```text
//!   Engine::prepare ── name taken ── Prepare record ── locks and xids to an heir ──> Waiting
//!   Engine::end_prepared   Waiting ──> Busy ── end record ── locks go ──> name free
//! ```
//!
//! # Invariants
//!
//! - A name in the registry is a transaction that is being prepared, waits, or is being ended. Only
//!   one that waits is found by name.
//! - `logged` and not `ended`: the transaction must outlive a crash, so a checkpoint writes its
//!   record anew.
//! - The heir holds the xids and the transaction's locks from the moment in which the session's
//!   owner does not.

mod restore;
mod rows;
mod state;

pub(crate) use restore::{log_again, restore, xids_of};
pub use state::PreparedState;

use crate::engine::Engine;
use crate::error::StorageError;
use crate::ids::{Lsn, RelId, Xid};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};
use crate::txn::{
    CommitPayload, EndKind, Testament, Transaction, TxnLog, TxnSession, Written, encode_end_record,
};
use crate::wal::{RecordBuilder, RecordKind};
use std::collections::{BTreeMap, BTreeSet};

/// Why a transaction could not be prepared, or ended by name.
#[derive(Debug, thiserror::Error)]
pub enum TwoPhaseError {
    #[error("another transaction has this name")]
    InUse,
    #[error("as many transactions are prepared as may be: {0}")]
    Full(usize),
    #[error("no prepared transaction has this name")]
    Unknown,
    #[error("somebody else is ending it")]
    Busy,
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Preparing,
    Waiting,
    Busy,
}

/// One name's transaction.
pub(crate) struct Entry {
    xid: Xid,
    state: PreparedState,
    /// Who holds its locks.
    heir: Arc<TxnSession>,
    stage: Mutex<Stage>,
    /// Its record is in the log.
    logged: AtomicBool,
    /// Its end record is; changed and asked under the commit mutex (rule 2P4).
    ended: AtomicBool,
}

/// What views show of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedInfo {
    pub xid: Xid,
    pub name: String,
    pub role: u32,
    pub time_micros: i64,
}

/// What is left to do when one has ended.
#[derive(Debug)]
#[must_use]
pub struct Ended {
    /// The client is told when the log is durable up to here.
    pub lsn: Lsn,
    /// Files to be removed then.
    pub unlinks: Vec<RelId>,
    pub written: Written,
}

/// What the session says of a transaction that it prepares.
#[derive(Clone, Debug)]
pub struct PrepareRequest<'a> {
    pub name: &'a str,
    pub role: u32,
    /// It changed the catalog.
    pub defines: bool,
}

/// All prepared transactions of an engine.
pub(crate) struct Registry {
    limit: usize,
    entries: Mutex<BTreeMap<String, Arc<Entry>>>,
}

impl Registry {
    pub fn new(limit: usize) -> Self {
        Registry { limit, entries: Mutex::new(BTreeMap::new()) }
    }

    fn add(&self, entry: Arc<Entry>) -> Result<(), TwoPhaseError> {
        let mut entries = self.entries.lock();
        if entries.contains_key(&entry.state.name) {
            return Err(TwoPhaseError::InUse);
        }
        if entries.len() >= self.limit {
            return Err(TwoPhaseError::Full(self.limit));
        }
        entries.insert(entry.state.name.clone(), entry);
        Ok(())
    }

    /// Whether the name could be taken now: to be asked before anything is written.
    fn check(&self, name: &str) -> Result<(), TwoPhaseError> {
        let entries = self.entries.lock();
        match entries.contains_key(name) {
            true => Err(TwoPhaseError::InUse),
            false if entries.len() >= self.limit => Err(TwoPhaseError::Full(self.limit)),
            false => Ok(()),
        }
    }

    fn remove(&self, name: &str) {
        self.entries.lock().remove(name);
    }

    fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Takes the transaction of this name for the caller to end.
    fn take(
        &self,
        name: &str,
        may: impl FnOnce(&PreparedState) -> bool,
    ) -> Result<Option<Arc<Entry>>, TwoPhaseError> {
        let entry = self.entries.lock().get(name).cloned().ok_or(TwoPhaseError::Unknown)?;
        let mut stage = entry.stage.lock();
        match *stage {
            Stage::Preparing => return Err(TwoPhaseError::Unknown),
            Stage::Busy => return Err(TwoPhaseError::Busy),
            Stage::Waiting if !may(&entry.state) => return Ok(None),
            Stage::Waiting => *stage = Stage::Busy,
        }
        drop(stage);
        Ok(Some(entry))
    }
}

impl Entry {
    fn set_stage(&self, stage: Stage) {
        *self.stage.lock() = stage;
    }

    /// The Prepare record.
    fn record(&self) -> RecordBuilder {
        let mut record = RecordBuilder::new(RecordKind::Prepare, self.xid);
        record.data(&self.state.encode(self.xid));
        record
    }

    fn xids(&self) -> BTreeSet<Xid> {
        self.state.children.iter().copied().chain([self.xid]).collect()
    }

    /// After the fate is published: wakes waiters, gives up the locks.
    fn settle(&self) {
        let heir = &self.heir;
        heir.owner().drop_xids(true);
        heir.locks.xids_ended(self.xids());
        heir.locks.release_all(heir.owner());
        heir.slot().advance(None);
    }
}

impl Engine {
    /// Takes the transaction from its session (rules 2P1, 2P3, 2P5). It is prepared on return, and
    /// survives a crash when the log is durable up to the position returned. On an error it has
    /// been rolled back.
    pub fn prepare(
        &self,
        mut tx: Transaction,
        request: &PrepareRequest<'_>,
    ) -> Result<Lsn, TwoPhaseError> {
        let entry = match self.prepare_entry(&mut tx, request) {
            Ok(entry) => entry,
            Err(error) => {
                tx.abort(self);
                return Err(error);
            }
        };
        if let Err(error) = self.prepared.add(Arc::clone(&entry)) {
            tx.abort(self);
            return Err(error);
        }
        match self.log_prepared(&entry) {
            Ok(lsn) => {
                tx.leave_to(&entry.heir);
                entry.set_stage(Stage::Waiting);
                Ok(lsn)
            }
            Err(error) => {
                tx.abort(self);
                self.prepared.remove(&entry.state.name);
                Err(error.into())
            }
        }
    }

    /// What will be written down. Nothing else has happened yet.
    fn prepare_entry(
        &self,
        tx: &mut Transaction,
        request: &PrepareRequest<'_>,
    ) -> Result<Arc<Entry>, TwoPhaseError> {
        self.prepared.check(request.name)?;
        let xid = match tx.top_xid() {
            Some(xid) => xid,
            None => {
                tx.xid(self)?;
                tx.top_xid().ok_or(TwoPhaseError::Unknown)?
            }
        };
        let Testament { children, created, dropped, written } = tx.testament();
        let heir = TxnSession::with(&self.txns, &self.locks, 0);
        let xids: BTreeSet<Xid> = children.iter().copied().chain([xid]).collect();
        let rows = rows::to_write_down(self, &heir, &xids)?;
        let mut locks = self.locks.transaction_locks(tx.lock_owner());
        locks.retain(|(tag, _)| state::is_kept(tag));
        let state = PreparedState {
            name: request.name.to_owned(),
            role: request.role,
            time_micros: self.clock.now_unix_micros(),
            defines: request.defines,
            children,
            created,
            dropped,
            written: written.to_vec(),
            locks,
            rows,
        };
        Ok(Arc::new(Entry::new(xid, state, heir, Stage::Preparing)))
    }

    fn log_prepared(&self, entry: &Entry) -> Result<Lsn, StorageError> {
        let record = entry.record();
        let room = self.wal.reserve(record.encoded_len())?;
        let _gate = self.redo_gate.read();
        match self.wal.insert(&record, room, Lsn::INVALID) {
            Ok(lsn) => {
                entry.logged.store(true, Ordering::Release);
                Ok(lsn)
            }
            Err(_) => unreachable!("the redo point concerns records with pages only"),
        }
    }

    /// What is prepared now, by name.
    pub fn prepared_transactions(&self) -> Vec<PreparedInfo> {
        let waiting = |entry: &Arc<Entry>| *entry.stage.lock() != Stage::Preparing;
        let info = |entry: Arc<Entry>| PreparedInfo {
            xid: entry.xid,
            name: entry.state.name.clone(),
            role: entry.state.role,
            time_micros: entry.state.time_micros,
        };
        self.prepared.all().into_iter().filter(waiting).map(info).collect()
    }

    /// Commits the prepared transaction of this name, if `may` says so of it; `None` if not.
    /// `published` runs between publication and the release of its locks, with whether it changed
    /// the catalog. On an error it is as it was.
    pub fn commit_prepared(
        &self,
        name: &str,
        may: impl FnOnce(&PreparedState) -> bool,
        published: impl FnOnce(bool),
    ) -> Result<Option<Ended>, TwoPhaseError> {
        let Some(entry) = self.prepared.take(name, may)? else { return Ok(None) };
        let PreparedState { children, dropped, written, defines, .. } = &entry.state;
        let payload = CommitPayload {
            sync: true,
            time_micros: self.clock.now_unix_micros(),
            unlinks: dropped.clone(),
        };
        let also = || entry.ended.store(true, Ordering::Release);
        let lsn = self
            .txns
            .commit_and(&*self.wal, entry.xid, children, &payload, also)
            .inspect_err(|_| entry.set_stage(Stage::Waiting))?;
        published(*defines);
        entry.settle();
        self.prepared.remove(name);
        let written = written.iter().copied().collect();
        Ok(Some(Ended { lsn, unlinks: payload.unlinks, written }))
    }

    /// Rolls the prepared transaction of this name back, if `may` says so of it; `None` if not.
    /// Flushes the log first (rule 2P6). On an error it is as it was, or the log has failed.
    pub fn rollback_prepared(
        &self,
        name: &str,
        may: impl FnOnce(&PreparedState) -> bool,
    ) -> Result<Option<Ended>, TwoPhaseError> {
        let Some(entry) = self.prepared.take(name, may)? else { return Ok(None) };
        let children = &entry.state.children;
        let payload = CommitPayload {
            sync: true,
            time_micros: self.clock.now_unix_micros(),
            unlinks: entry.state.created.clone(),
        };
        let body = encode_end_record(entry.xid, children, &payload);
        let record = self
            .wal
            .prepare_end(EndKind::Abort, entry.xid, &body)
            .inspect_err(|_| entry.set_stage(Stage::Waiting))?;
        let lsn = self.txns.with_commit_mutex(|| {
            entry.ended.store(true, Ordering::Release);
            self.wal.insert_end(record)
        });
        self.wal.flush_patiently(lsn)?;
        self.txns.abort_unlogged(entry.xid, children);
        entry.settle();
        self.prepared.remove(name);
        Ok(Some(Ended { lsn, unlinks: payload.unlinks, written: Written::new() }))
    }
}

impl Entry {
    fn new(xid: Xid, state: PreparedState, heir: Arc<TxnSession>, stage: Stage) -> Self {
        let (logged, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Entry { xid, state, heir, stage: Mutex::new(stage), logged, ended }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
