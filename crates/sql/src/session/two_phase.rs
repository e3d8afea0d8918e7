//! PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED, and pg_prepared_xacts.
//!
//! ```text
//!   BEGIN; ...; PREPARE TRANSACTION 'x'     the transaction leaves this session, with its locks
//!   COMMIT PREPARED 'x'                     here or in any other session, after any restart
//! ```
//!
//! - The client is told of a PREPARE when its record is durable, and of a COMMIT PREPARED when the
//!   commit is, whatever the tables' levels and `synchronous_commit` say: somebody coordinates by
//!   these answers.
//! - A transaction that touched temporary relations is refused, as in PostgreSQL: nobody but their
//!   session could end it.
//! - Who commits a transaction that changed the catalog tells all sessions, like any commit that
//!   does so.

use super::around::Around;
use super::block::Block;
use super::{Session, no_transaction};
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid};
use inkling_storage::lock::LockTag;
use inkling_storage::twophase::{Ended, PrepareRequest, PreparedState, TwoPhaseError};
use inkling_storage::txn::IsolationLevel;

/// Bytes that a name may have.
const NAME_MAX: usize = 199;
/// Microseconds from 1970-01-01 to 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

fn two_phase_error(error: TwoPhaseError, name: &str) -> SqlError {
    match error {
        TwoPhaseError::InUse => SqlError::new(
            State::DUPLICATE_OBJECT,
            format!("transaction identifier \"{name}\" is already in use"),
        ),
        TwoPhaseError::Full(0) => SqlError::new(
            State::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "prepared transactions are disabled",
        )
        .hint("Set max_prepared_transactions to a nonzero value."),
        TwoPhaseError::Full(limit) => {
            SqlError::new(State::OUT_OF_MEMORY, "maximum number of prepared transactions reached")
                .hint(format!("Increase max_prepared_transactions (currently {limit})."))
        }
        TwoPhaseError::Unknown => SqlError::new(
            State::UNDEFINED_OBJECT,
            format!("prepared transaction with identifier \"{name}\" does not exist"),
        ),
        TwoPhaseError::Busy => SqlError::new(
            State::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("prepared transaction with identifier \"{name}\" is busy"),
        ),
        TwoPhaseError::Storage(error) => error.into(),
    }
}

fn not_supported(text: &str) -> SqlError {
    SqlError::new(State::FEATURE_NOT_SUPPORTED, text)
}

impl Session {
    /// PREPARE TRANSACTION. False: there was nothing to prepare, and what there was is over.
    /// Whatever happens, the session is in no transaction afterwards.
    pub(super) fn prepare_transaction(&mut self, name: &str) -> Result<bool> {
        match self.block {
            Block::Failed => {
                self.abort_transaction();
                return Ok(false);
            }
            // Of several statements in one message PostgreSQL prepares what there is, and warns.
            Block::Idle | Block::Implicit if self.in_string.get() => {
                self.no_transaction_warning();
                self.ensure_transaction()?;
            }
            Block::Idle | Block::Implicit => {
                self.no_transaction_warning();
                self.finish_implicit()?;
                return Ok(false);
            }
            Block::Open => {}
        }
        self.portals.clear();
        let checked = self.before_commit().and_then(|()| self.check_preparable(name));
        if let Err(e) = checked {
            self.abort_transaction();
            return Err(e);
        }
        let mut tx = self.take_transaction().ok_or_else(no_transaction)?;
        for rel in self.around.sequences.take_written() {
            tx.note_write(rel);
        }
        self.note_seen(&tx);
        let request =
            PrepareRequest { name, role: self.around.user.0, defines: self.catalog_changed };
        let prepared = self.around.db.engine.prepare(tx, &request);
        if let Ok(lsn) = &prepared {
            self.barrier = self.barrier.max(*lsn);
        }
        self.leave_transaction(prepared.is_ok());
        prepared.map(|_| true).map_err(|e| two_phase_error(e, name))
    }

    /// What PostgreSQL refuses to prepare, and what cannot be yet.
    fn check_preparable(&self, name: &str) -> Result<()> {
        let engine = &self.around.db.engine;
        let tx = self.tx.as_ref().ok_or_else(no_transaction)?.borrow();
        if self.touched_temporary(&tx) {
            let text = "cannot PREPARE a transaction that has operated on temporary objects";
            return Err(not_supported(text));
        }
        if name.len() > NAME_MAX {
            return Err(SqlError::new(
                State::INVALID_PARAMETER_VALUE,
                format!("transaction identifier \"{name}\" is too long"),
            ));
        }
        if tx.isolation() == IsolationLevel::Serializable {
            return Err(SqlError::unsupported("PREPARE TRANSACTION of a SERIALIZABLE transaction"));
        }
        if engine.locks.holds_in_both_scopes(tx.lock_owner()) {
            let text = "cannot PREPARE while holding both session-level and transaction-level \
                        locks on the same object";
            return Err(not_supported(text));
        }
        Ok(())
    }

    fn touched_temporary(&self, tx: &inkling_storage::txn::Transaction) -> bool {
        let engine = &self.around.db.engine;
        let Some(temp) = self.around.temp() else { return false };
        let catalog = self.around.catalog();
        let is_temporary = |tag: &LockTag| match tag {
            LockTag::Relation(oid) => {
                let table = catalog.tables.get(&Oid(*oid));
                table.is_some_and(|table| temp.both().contains(&table.schema))
            }
            _ => false,
        };
        self.temp.is_fresh()
            || tx.defined_temporary(engine.as_ref())
            || (self.catalog_changed && !self.permanent_definition)
            || (self.catalog_changed && self.temp.differs_from(catalog, temp))
            || tx.written().iter().any(|rel| !self.keeps_rows(*rel))
            || engine.locks.transaction_locks(tx.lock_owner()).iter().any(|(t, _)| is_temporary(t))
    }

    /// Whether a relation is more than its session's.
    fn keeps_rows(&self, rel: inkling_storage::ids::RelId) -> bool {
        use inkling_storage::buffer::Persistence;
        self.around.db.engine.pool.persistence(rel) != Persistence::Temporary
    }

    /// COMMIT PREPARED and ROLLBACK PREPARED.
    pub(super) fn end_prepared(&mut self, name: &str, commit: bool) -> Result<()> {
        if self.block != Block::Idle || self.in_string.get() {
            let what = if commit { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" };
            return Err(super::utility::not_in_block(what));
        }
        let catalog = self.catalog()?;
        let user = self.around.user;
        let superuser = catalog.roles.get(&user).is_some_and(|role| role.superuser);
        let may = |state: &PreparedState| superuser || state.role == user.0;
        let db = std::sync::Arc::clone(&self.around.db);
        let published = |defines: bool| {
            if defines {
                db.catalog.bump();
            }
        };
        let engine = &db.engine;
        let ended = match commit {
            true => engine.commit_prepared(name, may, published),
            false => engine.rollback_prepared(name, may),
        };
        let Some(ended) = ended.map_err(|e| two_phase_error(e, name))? else {
            return Err(SqlError::new(
                State::INSUFFICIENT_PRIVILEGE,
                "permission denied to finish prepared transaction",
            )
            .hint("Must be superuser or the user that prepared the transaction."));
        };
        let Ended { lsn, unlinks, written } = ended;
        self.barrier = self.barrier.max(lsn);
        if commit {
            // Its client waits for the flush: no relation promises anything later.
            engine.note_commit(lsn, &written, |_| None);
        }
        if !unlinks.is_empty() {
            // Files may go only when what removed them cannot be lost any more.
            engine.wal.flush_patiently(lsn)?;
            engine.remove_rels(&unlinks);
        }
        Ok(())
    }
}

/// The rows behind pg_prepared_xacts.
pub(super) fn rows(around: &Around) -> Vec<Vec<Datum>> {
    let all = around.db.engine.prepared_transactions();
    let row = |p: inkling_storage::twophase::PreparedInfo| {
        vec![
            Datum::Oid(p.xid.raw() as u32),
            Datum::text(p.name),
            Datum::Timestamp(p.time_micros - EPOCH_MICROS),
            Datum::Oid(p.role),
            Datum::Oid(Oid::POSTGRES_DATABASE.0),
        ]
    };
    all.into_iter().map(row).collect()
}
