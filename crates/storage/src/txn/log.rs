//! The two seams between transactions and the rest of the engine.
//!
//! [`TxnLog`] is the little of the write-ahead log that a commit needs; [`TxnHost`] is the little
//! of the engine that a [`super::Transaction`] needs. Both exist so that commit, snapshots and
//! savepoints can be run against a counter in property tests and in the model checker.

use super::TxnManager;
use crate::error::Result;
use crate::ids::{Lsn, RelId, Xid};
use crate::lock::LockManager;
use crate::sync::Arc;
use crate::wait::WaitHandle;
use crate::wal::{RecordBuilder, RecordKind, Reservation, Wal};

/// How a transaction ended, as a record kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndKind {
    Commit,
    Abort,
}

/// What a commit asks of the write-ahead log.
pub trait TxnLog {
    /// A record with room for it in the log.
    type Prepared<'l>
    where
        Self: 'l;

    /// Builds the record and waits for room. A full disk or a failed log shows here, and only
    /// here. Called before the commit mutex is taken.
    fn prepare_end(&self, kind: EndKind, xid: Xid, data: &[u8]) -> Result<Self::Prepared<'_>>;
    /// Inserts the record and returns its end position. Does no I/O and cannot fail.
    fn insert_end(&self, record: Self::Prepared<'_>) -> Lsn;
    /// Everything up to here survives a crash.
    fn flushed_to(&self) -> Lsn;
    /// Asks for a flush up to `lsn`; `None` when that is durable already.
    fn ask_flush(&self, lsn: Lsn) -> Option<WaitHandle>;
    /// Asks for a flush up to `lsn` by the monotonic time `deadline_micros`.
    fn flush_by(&self, lsn: Lsn, deadline_micros: u64);
    /// Returns when everything up to `lsn` is durable.
    fn flush_now(&self, lsn: Lsn) -> Result<()>;
}

impl TxnLog for Wal {
    type Prepared<'l> = (RecordBuilder, Reservation<'l>);

    fn prepare_end(&self, kind: EndKind, xid: Xid, data: &[u8]) -> Result<Self::Prepared<'_>> {
        let record_kind = match kind {
            EndKind::Commit => RecordKind::Commit,
            EndKind::Abort => RecordKind::Abort,
        };
        let mut record = RecordBuilder::new(record_kind, xid);
        record.data(data);
        let bytes = record.encoded_len();
        let room = match kind {
            EndKind::Commit => self.reserve(bytes)?,
            EndKind::Abort => self.reserve_essential(bytes)?,
        };
        Ok((record, room))
    }

    fn insert_end(&self, (record, room): Self::Prepared<'_>) -> Lsn {
        match self.insert(&record, room, Lsn::INVALID) {
            Ok(lsn) => lsn,
            Err(_) => unreachable!("a record without blocks does not depend on the redo point"),
        }
    }

    fn flushed_to(&self) -> Lsn {
        self.flushed()
    }

    fn ask_flush(&self, lsn: Lsn) -> Option<WaitHandle> {
        self.request_flush(lsn)
    }

    fn flush_by(&self, lsn: Lsn, deadline_micros: u64) {
        self.note_async_commit(lsn, deadline_micros);
    }

    fn flush_now(&self, lsn: Lsn) -> Result<()> {
        self.flush(lsn)
    }
}

/// What a transaction asks of the engine.
pub trait TxnHost {
    type Log: TxnLog;

    fn txns(&self) -> &TxnManager;
    fn locks(&self) -> &LockManager;
    fn txn_log(&self) -> &Self::Log;
    fn monotonic_micros(&self) -> u64;
    fn unix_micros(&self) -> i64;
    /// Removes the files of relations whose creation was rolled back, or of temporary ones that a
    /// commit dropped, and their buffers.
    fn unlink_rels(&self, rels: &[RelId]);
    /// Whether the relation is a temporary one.
    fn is_temporary(&self, _rel: RelId) -> bool {
        false
    }
    /// A commit is visible from now on; its locks are still held. For who must be told before the
    /// next holder of a lock goes on (the catalog's version).
    fn published(&self) {}
}

impl<H: TxnHost> TxnHost for Arc<H> {
    type Log = H::Log;

    fn txns(&self) -> &TxnManager {
        (**self).txns()
    }
    fn locks(&self) -> &LockManager {
        (**self).locks()
    }
    fn txn_log(&self) -> &H::Log {
        (**self).txn_log()
    }
    fn monotonic_micros(&self) -> u64 {
        (**self).monotonic_micros()
    }
    fn unix_micros(&self) -> i64 {
        (**self).unix_micros()
    }
    fn unlink_rels(&self, rels: &[RelId]) {
        (**self).unlink_rels(rels);
    }
    fn is_temporary(&self, rel: RelId) -> bool {
        (**self).is_temporary(rel)
    }
    fn published(&self) {
        (**self).published();
    }
}
