//! Row locks that do not fit xmax: shared ones, and those that an update must carry along.
//!
//! An exclusive lock (NO KEY UPDATE, UPDATE) stands in the tuple's xmax, where it costs no
//! memory. A tuple has one xmax, so the others live here: all KEY SHARE and SHARE locks, and a
//! transaction's own lock when one of its subtransactions writes the row and takes the xmax over.
//! All of them die with a crash, like their holders.
//!
//! ```text
//!   (rel, (7,3)) -> [ x100 KeyShare, x104 KeyShare ]       the updater, if any, is in xmax
//! ```
//!
//! Rules:
//! - R1. An entry is added and looked up under a latch on the tuple's page: exclusive for whoever
//!   wants to write, share or exclusive for a shared locker. So a writer either sees a locker or
//!   has changed xmax before the locker looks at it.
//! - R2. The holder is the (sub)transaction's xid. The entry is void as soon as that xid has
//!   ended: nobody need remove it for correctness, and rolling back a subtransaction gives up
//!   its locks (semantics 35). Void entries are dropped when their bucket is met, when the table
//!   has doubled, and when their transaction says so.
//! - R3. An update copies the entries of the old version to the new one in the section that chains
//!   them (semantics 39); the old one keeps them, because the update may abort.
//! - R4. When a version is pruned, its entries go with it: nobody can want to write it any more,
//!   and another row may come to the slot. (An update copied them to the next version.)
//! - R5. The number of entries is bounded; beyond it the caller gets an error with SQLSTATE 53200.

use super::RowLock;
use crate::error::{Result, StorageError};
use crate::ids::{RelId, RowId, Xid};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::txn::{OwnXid, Transaction, TxnManager};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;

const SHARDS: usize = 64;
/// Entries allowed unless the setting says otherwise.
pub const DEFAULT_LIMIT: usize = 1 << 20;

type Holders = SmallVec<[(Xid, RowLock); 2]>;
type Shard = HashMap<(RelId, RowId), Holders, foldhash::fast::FixedState>;

/// All in-memory row locks of an engine.
pub struct RowLocks {
    shards: Box<[Mutex<Shard>]>,
    entries: AtomicUsize,
    /// Sweep void entries when this many are there.
    sweep_at: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for RowLocks {
    fn default() -> Self {
        RowLocks {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            entries: AtomicUsize::new(0),
            sweep_at: AtomicUsize::new(1024),
            limit: AtomicUsize::new(DEFAULT_LIMIT),
        }
    }
}

impl RowLocks {
    fn shard(&self, rel: RelId, row: RowId) -> &Mutex<Shard> {
        let mix = u64::from(rel.raw()) ^ (u64::from(row.block) << 16) ^ u64::from(row.slot.raw());
        let hash = mix.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(hash >> 58) as usize % SHARDS]
    }

    /// How many entries there are, void ones included.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// One relaxed load: most of the time nobody holds a shared lock.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit.max(1), Ordering::Relaxed);
    }

    /// Another transaction whose lock on the row conflicts with `wanted`, if there is one.
    pub fn conflict(
        &self,
        txns: &TxnManager,
        tx: &Transaction,
        rel: RelId,
        row: RowId,
        wanted: RowLock,
    ) -> Option<Xid> {
        if self.is_empty() {
            return None;
        }
        let mut shard = self.shard(rel, row).lock();
        let holders = shard.get_mut(&(rel, row))?;
        let before = holders.len();
        holders.retain(|(xid, _)| !txns.status(*xid).is_final());
        self.entries.fetch_sub(before - holders.len(), Ordering::Relaxed);
        let found = holders
            .iter()
            .find(|(xid, held)| held.conflicts(wanted) && tx.is_own(*xid) == OwnXid::NotOwn)
            .map(|(xid, _)| *xid);
        if holders.is_empty() {
            shard.remove(&(rel, row));
        }
        found
    }

    /// The version is gone, and its slot may be another row's before long.
    pub fn forget(&self, rel: RelId, row: RowId) {
        if self.is_empty() {
            return;
        }
        if let Some(holders) = self.shard(rel, row).lock().remove(&(rel, row)) {
            self.entries.fetch_sub(holders.len(), Ordering::Relaxed);
        }
    }

    /// Whether `xid` itself holds at least `wanted` here.
    pub fn holds(&self, rel: RelId, row: RowId, xid: Xid, wanted: RowLock) -> bool {
        if self.is_empty() {
            return false;
        }
        let shard = self.shard(rel, row).lock();
        shard
            .get(&(rel, row))
            .is_some_and(|all| all.iter().any(|(x, held)| *x == xid && *held >= wanted))
    }

    /// What these transactions hold.
    pub(crate) fn of(&self, xids: &BTreeSet<Xid>) -> Vec<(RelId, RowId, Xid, RowLock)> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for shard in &self.shards {
            for ((rel, row), holders) in shard.lock().iter() {
                let theirs = holders.iter().filter(|(xid, _)| xids.contains(xid));
                found.extend(theirs.map(|(xid, lock)| (*rel, *row, *xid, *lock)));
            }
        }
        found
    }

    /// Adds a lock that was granted before a restart; the limit does not matter.
    pub(crate) fn restore(&self, rel: RelId, row: RowId, xid: Xid, lock: RowLock) {
        let mut shard = self.shard(rel, row).lock();
        let holders = shard.entry((rel, row)).or_default();
        match holders.iter_mut().find(|(x, _)| *x == xid) {
            Some((_, held)) => *held = (*held).max(lock),
            None => {
                holders.push((xid, lock));
                self.entries.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Adds a lock, or strengthens the one that `xid` has; returns what it had.
    pub fn add(
        &self,
        txns: &TxnManager,
        rel: RelId,
        row: RowId,
        xid: Xid,
        lock: RowLock,
    ) -> Result<Option<RowLock>> {
        self.make_room(txns)?;
        let mut shard = self.shard(rel, row).lock();
        let holders = shard.entry((rel, row)).or_default();
        match holders.iter_mut().find(|(x, _)| *x == xid) {
            Some((_, held)) => {
                let before = *held;
                *held = before.max(lock);
                Ok(Some(before))
            }
            None => {
                holders.push((xid, lock));
                self.entries.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Takes an [`Self::add`] back: `before` is what it returned.
    pub fn undo_add(&self, rel: RelId, row: RowId, xid: Xid, before: Option<RowLock>) {
        let mut shard = self.shard(rel, row).lock();
        let Some(holders) = shard.get_mut(&(rel, row)) else { return };
        let Some(at) = holders.iter().position(|(x, _)| *x == xid) else { return };
        match before {
            Some(lock) => holders[at].1 = lock,
            None => {
                holders.swap_remove(at);
                self.entries.fetch_sub(1, Ordering::Relaxed);
                if holders.is_empty() {
                    shard.remove(&(rel, row));
                }
            }
        }
    }

    /// The locks of others and of oneself that an update of `from` has to carry on.
    pub fn live_holders(&self, txns: &TxnManager, rel: RelId, row: RowId) -> Vec<(Xid, RowLock)> {
        if self.is_empty() {
            return Vec::new();
        }
        let shard = self.shard(rel, row).lock();
        let live = |(xid, _): &&(Xid, RowLock)| !txns.status(*xid).is_final();
        shard
            .get(&(rel, row))
            .map_or_else(Vec::new, |all| all.iter().filter(live).copied().collect())
    }

    /// Room for one more: sweeps when the table has grown, refuses at the limit.
    pub fn make_room(&self, txns: &TxnManager) -> Result<()> {
        let (now, limit) = (self.len(), self.limit.load(Ordering::Relaxed));
        if now < self.sweep_at.load(Ordering::Relaxed) && now < limit {
            return Ok(());
        }
        self.sweep(txns);
        let left = self.len();
        self.sweep_at.store((left * 2).clamp(1024, limit.max(1024)), Ordering::Relaxed);
        if left < limit {
            return Ok(());
        }
        Err(StorageError::Resource {
            what: "out of memory for shared row locks".to_owned(),
            hint: "You might need to increase \"max_shared_row_locks\".",
        })
    }

    /// Drops the entries of transactions that have ended.
    pub fn sweep(&self, txns: &TxnManager) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut gone = 0;
            shard.retain(|_, holders| {
                let before = holders.len();
                holders.retain(|(xid, _)| !txns.status(*xid).is_final());
                gone += before - holders.len();
                !holders.is_empty()
            });
            self.entries.fetch_sub(gone, Ordering::Relaxed);
        }
    }

    /// Every live entry, for `pg_locks`-like views: relation, row, holder, strength.
    pub fn list(&self, txns: &TxnManager) -> Vec<(RelId, RowId, Xid, RowLock)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            for ((rel, row), holders) in shard.lock().iter() {
                for (xid, lock) in holders {
                    if !txns.status(*xid).is_final() {
                        all.push((*rel, *row, *xid, *lock));
                    }
                }
            }
        }
        all
    }
}
