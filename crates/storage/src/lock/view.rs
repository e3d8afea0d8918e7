//! What `pg_locks` and `pg_blocking_pids` look at.

use super::manager::LockManager;
use super::mode::LockMode;
use super::owner::{Home, LockOwner, LockScope};
use super::tag::LockTag;
use crate::sync::atomic::Ordering;
use std::time::Instant;

/// One row of `pg_locks`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockView {
    pub tag: LockTag,
    pub mode: LockMode,
    pub pid: i32,
    /// Who it is by PostgreSQL's `virtualtransaction`: the owner and its running transaction
    /// (0: none), or no owner and the xid of a prepared transaction.
    pub virtual_id: (i64, u64),
    pub granted: bool,
    /// Recorded only with its owner.
    pub fast_path: bool,
    pub scope: LockScope,
    /// When an ungranted request began to wait.
    pub waiting_since: Option<Instant>,
}

fn virtual_id(owner: &LockOwner) -> (i64, u64) {
    match owner.top_xid() {
        Some(xid) if owner.pid() == 0 => (-1, xid.raw()),
        _ => (i64::from(owner.id()) + 1, owner.local_transaction().unwrap_or(0)),
    }
}

impl LockManager {
    /// All locks held and waited for. Each owner and each partition is seen at one moment, the
    /// whole is not.
    pub fn list(&self) -> Vec<LockView> {
        let mut rows = Vec::new();
        let row = |tag, mode, owner: &LockOwner| LockView {
            tag,
            mode,
            pid: owner.pid(),
            virtual_id: virtual_id(owner),
            granted: true,
            fast_path: false,
            scope: LockScope::Transaction,
            waiting_since: None,
        };
        for owner in self.0.owners.read().iter() {
            if owner.local_transaction().is_some() {
                let (id, number) = virtual_id(owner);
                let own = row(LockTag::Virtual(id as u32, number), LockMode::Exclusive, owner);
                rows.push(LockView { fast_path: true, ..own });
            }
            for xid in owner.xids() {
                rows.push(row(LockTag::Xid(xid), LockMode::Exclusive, owner));
            }
            for held in owner.0.state.lock().iter() {
                rows.push(LockView {
                    fast_path: held.home == Home::Fast,
                    scope: held.scope(),
                    ..row(held.tag, held.mode, owner)
                });
            }
        }
        for partition in &self.0.partitions {
            for head in partition.heads.lock().values() {
                for node in head.queue.iter() {
                    rows.push(LockView {
                        granted: false,
                        waiting_since: Some(node.since),
                        ..row(node.tag, node.mode, &node.owner)
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
