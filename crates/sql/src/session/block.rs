//! Transaction blocks: what BEGIN, COMMIT, ROLLBACK, savepoints and errors do.
//!
//! ```text
//!            BEGIN                     error
//!   Idle ----------> Open ----------------------------> Failed
//!    ^ \              |  COMMIT, ROLLBACK                 |  ROLLBACK, COMMIT (rolls back)
//!    |  `-- a statement begins an implicit transaction:   |  ROLLBACK TO: back to Open
//!    |      Implicit, ended by `finish_implicit`          |
//!    '----------------------------------------------------'
//! ```
//!
//! | state    | facts                                                                        |
//! |----------|------------------------------------------------------------------------------|
//! | Idle     | no transaction object                                                        |
//! | Implicit | a transaction object that the end of the query string or Sync commits         |
//! | Open     | a transaction object that only COMMIT or ROLLBACK ends                        |
//! | Failed   | statements are refused (25P02); the transaction is rolled back already, except |
//! |          | for what is left for ROLLBACK TO SAVEPOINT                                   |

use super::{Session, no_transaction};
use crate::analyze::statement::{IsolationLevel as SqlIsolation, TransactionModes};
use crate::catalog::CatalogCache;
use crate::error::{Result, Severity, SqlError, State};
use inkling_storage::durability::{SessionLevel, decide};
use inkling_storage::engine::{Engine, LogLevel};
use inkling_storage::ids::{Lsn, RelId, Xid};
use inkling_storage::lock::LockManager;
use inkling_storage::txn::{CommitMode, IsolationLevel, Transaction, TxnHost, TxnManager};
use inkling_storage::wal::Wal;
use std::cell::RefCell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Block {
    Idle,
    Implicit,
    Open,
    Failed,
}

impl Block {
    pub fn status(self) -> u8 {
        match self {
            Block::Idle | Block::Implicit => b'I',
            Block::Open => b'T',
            Block::Failed => b'E',
        }
    }
}

/// The engine, for a commit that changed the catalog: tells the cache between publication and
/// release of the locks.
struct CatalogChange<'a> {
    engine: &'a Engine,
    cache: &'a CatalogCache,
}

impl TxnHost for CatalogChange<'_> {
    type Log = Wal;

    fn txns(&self) -> &TxnManager {
        self.engine.txns()
    }
    fn locks(&self) -> &LockManager {
        TxnHost::locks(self.engine)
    }
    fn txn_log(&self) -> &Wal {
        self.engine.txn_log()
    }
    fn monotonic_micros(&self) -> u64 {
        self.engine.monotonic_micros()
    }
    fn unix_micros(&self) -> i64 {
        self.engine.unix_micros()
    }
    fn unlink_rels(&self, rels: &[RelId]) {
        self.engine.unlink_rels(rels);
    }
    fn published(&self) {
        self.cache.bump();
    }
}

fn warning(state: State, text: &str) -> SqlError {
    SqlError::new(state, text).severity(Severity::Warning)
}

pub(super) fn isolation_name(level: IsolationLevel) -> &'static str {
    match level {
        IsolationLevel::ReadCommitted => "read committed",
        IsolationLevel::RepeatableRead => "repeatable read",
        IsolationLevel::Serializable => "serializable",
    }
}

/// The engine's level for SQL's.
fn engine_isolation(level: SqlIsolation) -> IsolationLevel {
    match level {
        SqlIsolation::ReadUncommitted | SqlIsolation::ReadCommitted => {
            IsolationLevel::ReadCommitted
        }
        SqlIsolation::RepeatableRead => IsolationLevel::RepeatableRead,
        SqlIsolation::Serializable => IsolationLevel::Serializable,
    }
}

fn isolation_of_name(name: &str) -> SqlIsolation {
    match name {
        "serializable" => SqlIsolation::Serializable,
        "repeatable read" => SqlIsolation::RepeatableRead,
        "read uncommitted" => SqlIsolation::ReadUncommitted,
        _ => SqlIsolation::ReadCommitted,
    }
}

impl Session {
    /// The error for statements in a failed block.
    pub(super) fn check_not_failed(&self) -> Result<()> {
        match self.block {
            Block::Failed => Err(SqlError::new(
                State::IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )),
            _ => Ok(()),
        }
    }

    /// Makes sure that there is a transaction for a statement.
    pub(super) fn ensure_transaction(&mut self) -> Result<()> {
        if self.tx.is_some() {
            return Ok(());
        }
        self.start_transaction(TransactionModes::default())?;
        self.block = Block::Implicit;
        Ok(())
    }

    fn start_transaction(&mut self, modes: TransactionModes) -> Result<()> {
        let (isolation, read_only, deferrable) = self.around.with_decoded(|d| {
            let default = isolation_of_name(&d.default_isolation);
            (
                modes.isolation.unwrap_or(default),
                modes.read_only.unwrap_or(d.default_read_only),
                modes.deferrable.unwrap_or(d.default_deferrable),
            )
        });
        let isolation = engine_isolation(isolation);
        let mut tx = Transaction::begin(&self.txn_session, isolation, read_only);
        tx.set_deferrable(deferrable);
        self.tx = Some(RefCell::new(tx));
        self.around.read_only.set(read_only);
        self.around.sequences.begin_transaction();
        self.around.transaction_start.set(self.around.statement_start.get());
        self.registered.set_transaction(Some(self.around.statement_start.get()));
        Ok(())
    }

    /// BEGIN.
    pub(super) fn begin(&mut self, modes: TransactionModes) -> Result<()> {
        match self.block {
            Block::Open => {
                self.notice(warning(
                    State::ACTIVE_SQL_TRANSACTION,
                    "there is already a transaction in progress",
                ));
                return self.set_transaction(modes);
            }
            Block::Failed => return self.check_not_failed(),
            Block::Idle => self.start_transaction(modes)?,
            // What the string did so far becomes part of the block.
            Block::Implicit => self.set_transaction(modes)?,
        }
        self.block = Block::Open;
        self.around.in_transaction.set(true);
        Ok(())
    }

    /// SET TRANSACTION.
    pub(super) fn set_transaction(&mut self, modes: TransactionModes) -> Result<()> {
        let Some(tx) = self.tx.as_mut().map(RefCell::get_mut) else {
            self.notice(warning(
                State::NO_ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            ));
            return Ok(());
        };
        if let Some(deferrable) = modes.deferrable
            && deferrable != tx.is_deferrable()
        {
            if tx.snapshot().is_some() || tx.top_xid().is_some() {
                return Err(SqlError::new(
                    State::ACTIVE_SQL_TRANSACTION,
                    "SET TRANSACTION [NOT] DEFERRABLE must be called before any query",
                ));
            }
            tx.set_deferrable(deferrable);
        }
        if let Some(level) = modes.isolation {
            let level = engine_isolation(level);
            if level != tx.isolation() {
                if tx.snapshot().is_some() || tx.top_xid().is_some() {
                    return Err(SqlError::new(
                        State::ACTIVE_SQL_TRANSACTION,
                        "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                    ));
                }
                tx.set_isolation(level);
            }
        }
        if let Some(read_only) = modes.read_only {
            if !read_only && tx.is_read_only() && tx.snapshot().is_some() {
                return Err(SqlError::new(
                    State::ACTIVE_SQL_TRANSACTION,
                    "transaction read-write mode must be set before any query",
                ));
            }
            tx.set_read_only(read_only);
            self.around.read_only.set(read_only);
        }
        Ok(())
    }

    /// COMMIT. True: it committed; false: the block had failed, so it was rolled back.
    pub(super) fn commit(&mut self, chain: bool) -> Result<bool> {
        if chain && !matches!(self.block, Block::Open | Block::Failed) {
            return Err(SqlError::new(
                State::NO_ACTIVE_SQL_TRANSACTION,
                "COMMIT AND CHAIN can only be used in transaction blocks",
            ));
        }
        let modes = self.chain_modes(chain);
        let committed = match self.block {
            Block::Failed => {
                self.abort_transaction();
                false
            }
            Block::Idle => {
                self.no_transaction_warning();
                true
            }
            Block::Implicit => {
                self.no_transaction_warning();
                self.commit_transaction()?;
                true
            }
            Block::Open => {
                self.commit_transaction()?;
                true
            }
        };
        self.chain(modes)?;
        Ok(committed)
    }

    /// ROLLBACK.
    pub(super) fn rollback(&mut self, chain: bool) -> Result<()> {
        if chain && !matches!(self.block, Block::Open | Block::Failed) {
            return Err(SqlError::new(
                State::NO_ACTIVE_SQL_TRANSACTION,
                "ROLLBACK AND CHAIN can only be used in transaction blocks",
            ));
        }
        let modes = self.chain_modes(chain);
        if matches!(self.block, Block::Idle | Block::Implicit) {
            self.no_transaction_warning();
        }
        self.abort_transaction();
        self.chain(modes)
    }

    fn chain_modes(&self, chain: bool) -> Option<TransactionModes> {
        let tx = self.tx.as_ref().filter(|_| chain)?.borrow();
        let isolation = match tx.isolation() {
            IsolationLevel::RepeatableRead => SqlIsolation::RepeatableRead,
            IsolationLevel::Serializable => SqlIsolation::Serializable,
            IsolationLevel::ReadCommitted => SqlIsolation::ReadCommitted,
        };
        let read_only = Some(tx.is_read_only());
        let deferrable = Some(tx.is_deferrable());
        Some(TransactionModes { isolation: Some(isolation), read_only, deferrable })
    }

    fn chain(&mut self, modes: Option<TransactionModes>) -> Result<()> {
        match modes {
            Some(modes) => self.begin(modes),
            None => Ok(()),
        }
    }

    pub(super) fn no_transaction_warning(&mut self) {
        self.notice(warning(
            State::NO_ACTIVE_SQL_TRANSACTION,
            "there is no transaction in progress",
        ));
    }

    /// What the session says about the durability of what it commits now.
    fn session_level(&self) -> SessionLevel {
        let sync = self.around.with_decoded(|d| d.synchronous_commit);
        SessionLevel { sync, default_loss_micros: self.around.db.default_loss_micros }
    }

    /// A transaction is about to end: what it saw must be durable before its client is told,
    /// be it rows or the error that they led to.
    pub(super) fn note_seen(&mut self, tx: &Transaction) {
        let mut seen = tx.undurable_seen().get();
        if tx.top_xid().is_some() && self.around.with_decoded(|d| d.read_durable) {
            // Writers look beyond their snapshot: at rows to be changed, at keys in the way.
            seen = seen.max(self.around.db.engine.txns.published());
        }
        self.barrier = self.barrier.max(seen);
    }

    /// Commits what there is; afterwards the session is idle, whatever happens.
    fn commit_transaction(&mut self) -> Result<()> {
        self.portals.clear();
        if self.tx.is_none() {
            self.block = Block::Idle;
            return Ok(());
        }
        if let Err(e) = self.before_commit() {
            self.abort_transaction();
            return Err(e);
        }
        let mut tx = self.take_transaction().ok_or_else(no_transaction)?;
        for rel in self.around.sequences.take_written() {
            tx.note_write(rel);
        }
        let session = self.session_level();
        self.note_seen(&tx);
        let written = tx.written().iter().map(|rel| self.level_of(*rel));
        let mode = decide(session, tx.drops_files(), written);
        let levels = &self.around.catalog().levels;
        let engine = &self.around.db.engine;
        let outcome = if self.catalog_changed && self.permanent_definition {
            tx.commit(&CatalogChange { engine, cache: &self.around.db.catalog }, mode)
        } else {
            tx.commit(engine.as_ref(), mode)
        };
        if let Ok(outcome) = &outcome
            && let Some(lsn) = outcome.lsn
        {
            let sync = mode == CommitMode::Sync;
            let bound = |rel| if sync { None } else { levels.of(rel).bound(session) };
            engine.note_commit(lsn, &outcome.written, bound);
            if sync {
                self.barrier = self.barrier.max(lsn);
            }
        }
        self.block = Block::Idle;
        self.after_transaction(outcome.is_ok());
        let cut = self.clog_cut.take();
        let outcome = outcome?;
        self.asked = outcome.wait;
        self.cut_clog(cut);
        if !outcome.unlinks.is_empty() {
            // Files may go only when the commit that dropped them cannot be lost any more.
            let engine = &self.around.db.engine;
            engine.wal.flush_patiently(self.barrier)?;
            engine.remove_rels(&outcome.unlinks);
        }
        Ok(())
    }

    /// Lets go of the commit log that a VACUUM made needless. Its work stands if that fails.
    fn cut_clog(&self, cut: Option<(Xid, Lsn)>) {
        let Some((oldest, resolved_at)) = cut else { return };
        let engine = &self.around.db.engine;
        if let Err(e) = engine.cut_clog(oldest, resolved_at) {
            let message = format!("could not cut the commit log below {oldest}: {e}");
            engine.options().log(LogLevel::Warning, &message);
        }
    }

    /// Rolls back what there is.
    pub(super) fn abort_transaction(&mut self) {
        self.portals.clear();
        self.clog_cut = None;
        self.give_up_transaction();
        self.block = Block::Idle;
        self.after_transaction(false);
    }

    /// Aborts the transaction, if there is one. What it has told, or the error that ended it is
    /// about to tell, is told all the same: that waits for what it has seen (semantics 29).
    fn give_up_transaction(&mut self) {
        self.after.clear();
        if let Some(tx) = self.tx.take().map(RefCell::into_inner) {
            self.note_seen(&tx);
            tx.abort(self.around.db.engine.as_ref());
        }
    }

    /// The transaction is another's now, or was rolled back instead. What it set is set; what it
    /// defined is not there, for this session either.
    pub(super) fn leave_transaction(&mut self, prepared: bool) {
        self.block = Block::Idle;
        self.clog_cut = None;
        self.after_transaction_as(prepared, false);
    }

    fn after_transaction(&mut self, committed: bool) {
        self.after_transaction_as(committed, committed);
    }

    /// `kept`: what the transaction set stays. `defined`: what it defined is there.
    fn after_transaction_as(&mut self, kept: bool, defined: bool) {
        self.around.in_transaction.set(false);
        self.after.clear();
        self.registered.set_transaction(None);
        match kept {
            true => self.around.settings_mut().commit(),
            false => self.around.settings_mut().rollback(),
        }
        self.around.refresh();
        self.settle_temporary(defined);
        self.permanent_definition = false;
        if std::mem::take(&mut self.catalog_changed) {
            // Should it fail, the next statement meets the same.
            let _read_again = self.adopt_catalog();
        }
    }

    /// The end of a query string, or Sync: ends an implicit transaction.
    pub fn finish_implicit(&mut self) -> Result<()> {
        match self.block {
            Block::Implicit => {
                self.settle_here(true)?;
                self.commit_transaction()
            }
            _ => Ok(()),
        }
    }

    /// A statement failed: an implicit transaction is rolled back, a block fails.
    pub fn statement_failed(&mut self) {
        self.around.waiting.reset();
        if self.after.committing {
            return self.abort_transaction();
        }
        match self.block {
            Block::Idle | Block::Implicit => self.abort_transaction(),
            Block::Open => {
                self.portals.clear();
                self.block = Block::Failed;
                match self.tx.as_mut().map(RefCell::get_mut) {
                    Some(tx) if tx.depth() > 1 => {
                        tx.rollback_innermost(self.around.db.engine.as_ref());
                        self.around.sequences.locks_may_have_gone();
                        self.after.rollback_to(1);
                    }
                    // Nothing can bring it back: give up its locks and snapshot at once.
                    _ => self.give_up_transaction(),
                }
            }
            Block::Failed => {}
        }
    }

    /// Whether the statement at hand is part of a transaction that does not end with it: in a
    /// block, or in a query string of several statements.
    pub(super) fn in_longer_transaction(&self) -> bool {
        self.block == Block::Open || self.in_string.get()
    }

    fn in_block(&self, what: &str) -> Result<()> {
        match self.block {
            Block::Open | Block::Failed => Ok(()),
            _ => Err(SqlError::new(
                State::NO_ACTIVE_SQL_TRANSACTION,
                format!("{what} can only be used in transaction blocks"),
            )),
        }
    }

    pub(super) fn savepoint(&mut self, name: &str) -> Result<()> {
        self.in_block("SAVEPOINT")?;
        self.tx_mut()?.savepoint(name);
        self.after.queue.get_mut().savepoint();
        self.around.settings_mut().savepoint();
        Ok(())
    }

    fn savepoint_depth(&self, name: &str) -> Result<usize> {
        self.tx.as_ref().and_then(|tx| tx.borrow().find_savepoint(name)).ok_or_else(|| {
            SqlError::new(
                State::INVALID_SAVEPOINT_SPECIFICATION,
                format!("savepoint \"{name}\" does not exist"),
            )
        })
    }

    pub(super) fn release_savepoint(&mut self, name: &str) -> Result<()> {
        self.in_block("RELEASE SAVEPOINT")?;
        let depth = self.savepoint_depth(name)?;
        let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
        let levels = tx.depth() + 1 - depth;
        tx.release(name);
        self.after.queue.get_mut().release(levels);
        for _ in 0..levels {
            self.around.settings_mut().release_savepoint();
        }
        Ok(())
    }

    pub(super) fn rollback_to_savepoint(&mut self, name: &str) -> Result<()> {
        self.in_block("ROLLBACK TO SAVEPOINT")?;
        let depth = self.savepoint_depth(name)?;
        let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
        let levels = tx.depth() + 1 - depth;
        tx.rollback_to(self.around.db.engine.as_ref(), name);
        self.after.rollback_to(levels);
        self.around.sequences.locks_may_have_gone();
        for _ in 0..levels {
            self.around.settings_mut().rollback_savepoint();
        }
        self.around.settings_mut().savepoint();
        self.around.refresh();
        self.portals.clear();
        self.block = Block::Open;
        if self.catalog_changed {
            self.reload_own_catalog()?;
        }
        Ok(())
    }
}
