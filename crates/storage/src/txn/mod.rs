//! Transactions: ids, status, snapshots, commit.
//!
//! Rules, proofs and the crash argument: `README.md` in this directory.
//!
//! ```text
//!   Transaction ──> TxnManager ──> StatusWindow (recent)  ──settled──> CommitLog (durable)
//!        │               └──────> SlotRegistry (announced snapshots, horizon)
//!        └──> LockManager (../lock)
//! ```

mod cache;
mod clog;
mod clog_file;
mod clog_map;
mod clog_stats;
mod combo;
mod fates;
mod log;
mod manager;
mod record;
mod session;
mod slots;
mod snapshot;
mod status;
mod transaction;
mod window;

#[cfg(all(test, not(shuttle)))]
mod clog_tests;
#[cfg(all(test, shuttle))]
mod models;
#[cfg(all(test, not(shuttle)))]
mod property_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use cache::{StatusCache, StatusCacheKind};
pub use clog::CommitLog;
pub use clog_stats::SlruStats;
pub use fates::Fates;
pub use log::{EndKind, TxnHost, TxnLog};
pub use manager::{StatusSource, TxnManager, TxnStats};
pub use record::{CommitPayload, EndRecord, decode as decode_end_record};
pub(crate) use record::{encode as encode_end_record, put_varint, take_varint};
pub use session::{SnapshotHold, TxnSession};
pub use slots::SessionSlot;
pub use snapshot::Snapshot;
pub use status::{CommitStamp, XidStatus};
pub(crate) use transaction::Testament;
pub use transaction::{CommitMode, CommitOutcome, IsolationLevel, OwnXid, Transaction, Written};
