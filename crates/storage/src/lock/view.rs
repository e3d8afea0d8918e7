//! What `pg_locks` and `pg_blocking_pids` look at.

use super::manager::LockManager;
use super::mode::LockMode;
use super::owner::{Home, LockScope};
use super::tag::LockTag;
use crate::sync::atomic::Ordering;
use std::time::Instant;

/// One row of `pg_locks`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockView {
    pub tag: LockTag,
    pub mode: LockMode,
    pub pid: i32,
    pub granted: bool,
    /// Recorded only with its owner.
    pub fast_path: bool,
    pub scope: LockScope,
    /// When an ungranted request began to wait.
    pub waiting_since: Option<Instant>,
}

impl LockManager {
    /// All locks held and waited for. Each owner and each partition is seen at one moment, the
    /// whole is not.
    pub fn list(&self) -> Vec<LockView> {
        let mut rows = Vec::new();
        let row = |tag, mode, pid| LockView {
            tag,
            mode,
            pid,
            granted: true,
            fast_path: false,
            scope: LockScope::Transaction,
            waiting_since: None,
        };
        for owner in self.0.owners.read().iter() {
            for xid in owner.xids() {
                rows.push(row(LockTag::Xid(xid), LockMode::Exclusive, owner.pid()));
            }
            for held in owner.0.state.lock().iter() {
                rows.push(LockView {
                    fast_path: held.home == Home::Fast,
                    scope: held.scope(),
                    ..row(held.tag, held.mode, owner.pid())
                });
            }
        }
        for partition in &self.0.partitions {
            for head in partition.heads.lock().values() {
                for node in &head.queue {
                    rows.push(LockView {
                        granted: false,
                        waiting_since: Some(node.since),
                        ..row(node.tag, node.mode, node.owner.pid())
                    });
                }
            }
        }
        rows
    }

    /// The processes that keep process `pid` waiting: who holds what it wants, and who wants it
    /// earlier. Empty when it does not wait for a lock.
    pub fn blocking_pids(&self, pid: i32) -> Vec<i32> {
        let holders = self.xid_holders();
        let partitions = self.lock_everything();
        let mut pids = Vec::new();
        for head in partitions.iter().flat_map(|heads| heads.values()) {
            for (at, node) in head.queue.iter().enumerate() {
                if node.owner.pid() != pid {
                    continue;
                }
                if let LockTag::Xid(xid) = node.tag {
                    pids.extend(holders.get(&xid).map(|owner| owner.pid()));
                } else {
                    pids.extend(head.blockers(at).map(|(owner, _)| owner.pid()));
                }
            }
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Requests waiting now.
    pub fn waiting(&self) -> usize {
        let queued = |heads: &super::manager::Heads| heads.values().map(|h| h.queue.len()).sum();
        self.0.partitions.iter().map(|p| -> usize { queued(&p.heads.lock()) }).sum()
    }

    /// Deadlocks broken since the start (`pg_stat_database.deadlocks`).
    pub fn deadlocks(&self) -> u64 {
        self.0.deadlocks.load(Ordering::Relaxed)
    }

    /// Who runs which transaction. To be taken before the partitions.
    pub(crate) fn xid_holders(
        &self,
    ) -> hashbrown::HashMap<crate::ids::Xid, super::owner::LockOwner> {
        let owners = self.0.owners.read();
        let pairs = owners
            .iter()
            .flat_map(|owner| owner.xids().into_iter().map(move |xid| (xid, owner.clone())));
        pairs.collect()
    }

    /// Entries in the shared table; zero when nothing is held or waited for through it.
    pub fn table_size(&self) -> usize {
        self.0.partitions.iter().map(|p| p.heads.lock().len()).sum()
    }
}
