//! What the heap keeps per engine: free space by relation, in-memory row locks, the hint policy,
//! counters.

use super::counters::VisTotals;
use super::hints::HintPolicy;
use super::rowlock::RowLocks;
use super::space::RelSpace;
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
pub struct HeapState {
    spaces: RwLock<HashMap<RelId, Arc<RelSpace>, foldhash::fast::FixedState>>,
    pub row_locks: RowLocks,
    pub counters: HeapCounters,
    /// Which level of the status hierarchy answered how often.
    pub visibility: Arc<VisTotals>,
    policy: AtomicU8,
}

impl HeapState {
    pub fn new(policy: HintPolicy) -> Self {
        HeapState {
            spaces: RwLock::default(),
            row_locks: RowLocks::default(),
            counters: HeapCounters::default(),
            visibility: Arc::default(),
            policy: AtomicU8::new(policy as u8),
        }
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
    #[inline]
    pub fn hint_policy(&self) -> HintPolicy {
        HintPolicy::from_raw(self.policy.load(Ordering::Relaxed))
    }

    /// From the next question on. Whatever was kept under another policy stays true.
    pub fn set_hint_policy(&self, policy: HintPolicy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
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
