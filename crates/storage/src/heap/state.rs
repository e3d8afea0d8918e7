//! What the heap keeps per engine: free space by relation, in-memory row locks, the hint policy.

use super::rowlock::RowLocks;
use super::space::RelSpace;
use super::visibility::HintPolicy;
use crate::ids::RelId;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, RwLock};
use hashbrown::HashMap;

/// How often things happened, for views and the dashboard.
#[derive(Debug, Default)]
pub struct HeapCounters {
    pub hot_updates: AtomicU64,
    pub other_updates: AtomicU64,
    pub pages_pruned: AtomicU64,
    pub versions_pruned: AtomicU64,
}

impl HeapCounters {
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// One per engine.
#[derive(Default)]
pub struct HeapState {
    spaces: RwLock<HashMap<RelId, Arc<RelSpace>, foldhash::fast::FixedState>>,
    pub row_locks: RowLocks,
    pub counters: HeapCounters,
    /// 0 = the default policy, otherwise policy + 1.
    policy: AtomicU8,
}

impl HeapState {
    pub fn new() -> Self {
        Self::default()
    }

    /// The free space of a relation.
    pub fn space(&self, rel: RelId) -> Arc<RelSpace> {
        if let Some(space) = self.spaces.read().get(&rel) {
            return Arc::clone(space);
        }
        Arc::clone(self.spaces.write().entry(rel).or_default())
    }

    /// The relation is gone, or was given new files: forget what was known about it.
    pub fn forget(&self, rel: RelId) {
        self.spaces.write().remove(&rel);
    }

    /// The policy of writers and of whoever sets no other.
    pub fn hint_policy(&self) -> HintPolicy {
        match self.policy.load(Ordering::Relaxed) {
            0 => HintPolicy::default(),
            n => HintPolicy::from_raw(n - 1),
        }
    }

    pub fn set_hint_policy(&self, policy: HintPolicy) {
        self.policy.store(policy as u8 + 1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for HeapState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapState")
            .field("relations", &self.spaces.read().len())
            .field("row_locks", &self.row_locks.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
