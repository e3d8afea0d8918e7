//! Portals: statements being executed, by name.
//!
//! ```text
//!   bind ---> Ready --step--> Locking --> Running --> Done
//!                               | Wait      | Wait, Suspended, FlushRows; at the end Finishing
//! ```

use super::Session;
use super::api::{ColumnDesc, CommandTag, Progress};
use super::copy::{CopyFrom, CopyTo};
use super::prepared::Prepared;
use crate::error::{Result, SqlError, State};
use crate::exec::run::Running;
use crate::plan::StatementPlan;
use crate::types::{self, Datum, Oid, TypeRef};
use inkling_storage::lock::LockWait;
use inkling_storage::txn::SnapshotHold;
use std::sync::Arc;

/// Where a portal's execution stands.
pub(super) enum Execution {
    /// Not begun.
    Ready,
    /// Waiting for a lock on a relation; then begins anew.
    Locking(LockWait),
    Running {
        plan: Arc<StatementPlan>,
        running: Box<Running>,
        /// A row was made that the sink has not taken yet.
        pending: bool,
        rows: u64,
    },
    /// The last row was made; checks and cascades are under way.
    Finishing {
        plan: Arc<StatementPlan>,
        running: Box<Running>,
        rows: u64,
    },
    /// Rows that are there already (SHOW, EXPLAIN, FETCH).
    Rows {
        rows: std::vec::IntoIter<Vec<Datum>>,
        types: Vec<TypeRef>,
        tag: Option<CommandTag>,
        sent: u64,
    },
    CopyIn(Box<CopyFrom>),
    CopyOut(Box<CopyTo>),
    /// EXECUTE: the portal of the prepared statement.
    Nested(Box<Portal>),
    Done(CommandTag),
}

/// A statement bound to its parameters. See the module's essay.
pub struct Portal {
    pub(super) prepared: Arc<Prepared>,
    pub(super) params: Vec<Datum>,
    pub(super) execution: Execution,
    /// DECLAREd rather than bound: lives until the transaction ends or CLOSE.
    pub(super) is_cursor: bool,
    /// Keeps the snapshot of a portal that was suspended: other statements may run in between.
    pub(super) held: Option<SnapshotHold>,
    /// Its plan fills the table of a CREATE TABLE AS: the tag counts the query's rows.
    pub(super) fills_table: bool,
    pub(super) types: Arc<[TypeRef]>,
}

impl Portal {
    pub(super) fn new(prepared: Arc<Prepared>, params: Vec<Datum>) -> Self {
        let types = Arc::clone(&prepared.types);
        Portal {
            prepared,
            params,
            execution: Execution::Ready,
            is_cursor: false,
            held: None,
            fills_table: false,
            types,
        }
    }

    /// Waits for a lock, then begins anew.
    pub(super) fn wait_for_lock(&mut self, wait: LockWait) -> Progress {
        let handle = wait.handle();
        self.execution = Execution::Locking(wait);
        Progress::Wait(handle)
    }

    /// The columns of its rows; `None` when it returns none.
    pub fn columns(&self) -> Option<&[ColumnDesc]> {
        self.prepared.columns()
    }

    /// It tells its columns to the sink when it runs (EXECUTE, FETCH): a driver that describes
    /// results before running must leave that to the sink.
    pub fn tells_columns(&self) -> bool {
        self.prepared.tells_columns()
    }

    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }
}

impl Session {
    /// A parameter value as it came over the wire: text, or binary.
    pub fn decode_param(&self, ty: Oid, binary: bool, bytes: &[u8]) -> Result<Datum> {
        let ty = TypeRef::plain(ty);
        if binary {
            return types::binary_in(ty, bytes);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| {
            SqlError::new(
                State::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\"",
            )
        })?;
        types::text_in(ty, text, &self.around)
    }

    /// Makes a portal. The unnamed one is replaced; another must not exist yet.
    pub fn bind(&mut self, name: &str, prepared: Arc<Prepared>, params: Vec<Datum>) -> Result<()> {
        if params.len() != prepared.params().len() {
            return Err(SqlError::new(
                State::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement requires {}",
                    params.len(),
                    prepared.params().len()
                ),
            ));
        }
        if self.block == super::block::Block::Failed && !prepared.ends_transaction() {
            self.check_not_failed()?;
        }
        if !name.is_empty() && self.portals.contains_key(name) {
            return Err(SqlError::new(
                State::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        // The unnamed portal is by far the commonest: its place in the map stays.
        let portal = Portal::new(prepared, params);
        match self.portals.get_mut(name) {
            Some(place) => *place = portal,
            None => {
                self.portals.insert(name.to_owned(), portal);
            }
        }
        Ok(())
    }

    pub fn portal(&self, name: &str) -> Result<&Portal> {
        self.portals.get(name).ok_or_else(|| {
            SqlError::new(State::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
        })
    }

    /// Forgets a portal; one that is not there is no error.
    pub fn close_portal(&mut self, name: &str) -> bool {
        let closed = self.portals.remove(name);
        if let (Some(hold), Some(tx)) = (closed.as_ref().and_then(|p| p.held), &self.tx) {
            tx.borrow_mut().release_snapshot(hold);
        }
        closed.is_some()
    }
}
