//! Taking, waiting for and giving up locks.
//!
//! ```text
//!   acquire ─ held already? ──────────── count it ───────────────> Granted
//!      │      weak relation lock, no strong one about? ─ own list ─> Granted     (fast path)
//!      │      shared table: free and nobody in front? ────────────> Granted
//!      └───── queue ──────────────────────────────────────────────> Wait(LockWait)
//! ```
//!
//! # Fast path
//!
//! Weak relation modes do not conflict with each other. While nobody holds or wants a strong mode
//! on a relation (a counter per hash bucket of relations says so), a weak lock is recorded only
//! with its owner. A strong request raises the counter, then visits every owner and moves
//! matching fast entries into the shared table. Owner's mutex orders the two: either the
//! visitor finds the entry, or the owner finds the counter raised.
//!
//! # Transactions
//!
//! A running transaction has no entry anywhere. Whoever waits for it puts a waiter into the
//! queue of its xid, fences, and looks whether it still runs; whoever ends a transaction fences
//! after storing the status and looks at the partition's count of such waiters. One of the two
//! sees the other.
//!
//! # Lock order
//!
//! owner's state mutex, then one partition (or all, ascending). Never the reverse, and events are
//! woken with no partition held.

use super::mode::LockMode;
use super::owner::{Held, Home, LockOwner, LockScope};
use super::queue::{LockHead, Place, Woken};
use super::tag::LockTag;
use super::wait::{CANCELED, GRANTED, LockResult, LockWait, WAITING, WaitNode};
use crate::ids::Xid;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{Arc, Mutex, MutexGuard, RwLock};
use crate::txn::TxnManager;
use hashbrown::HashMap;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(not(shuttle))]
const PARTITIONS: usize = 64;
#[cfg(shuttle)]
const PARTITIONS: usize = 1;
/// Buckets of relations for the counters of strong locks.
#[cfg(not(shuttle))]
const STRONG_BUCKETS: usize = 1024;
#[cfg(shuttle)]
const STRONG_BUCKETS: usize = 2;

/// PostgreSQL's default of `deadlock_timeout`.
const DEADLOCK_TIMEOUT_MICROS: u64 = 1_000_000;

pub(crate) type Heads = HashMap<LockTag, LockHead, foldhash::fast::FixedState>;

#[repr(align(64))]
pub(crate) struct Partition {
    pub(crate) heads: Mutex<Heads>,
    /// Waiters for the end of some transaction of this partition.
    xid_waiters: AtomicU32,
}

pub(crate) struct Shared {
    pub(crate) partitions: Box<[Partition]>,
    strong: Box<[AtomicU32]>,
    pub(crate) owners: RwLock<Vec<LockOwner>>,
    free_ids: Mutex<Vec<u32>>,
    hasher: foldhash::fast::FixedState,
    waits: AtomicU64,
    pub(crate) database: AtomicU32,
    pub(crate) deadlocks: AtomicU64,
    deadlock_timeout_micros: AtomicU64,
    pub(crate) wait_log: OnceLock<Box<super::tell::WaitLog>>,
}

/// All locks of one engine. Cheap to clone; clones are the same manager.
#[derive(Clone)]
pub struct LockManager(pub(crate) Arc<Shared>);

impl Default for LockManager {
    fn default() -> Self {
        Self::new()
    }
}

/// A registered session. Gives up all its locks when dropped.
pub struct OwnerHandle {
    manager: LockManager,
    owner: LockOwner,
}

impl Deref for OwnerHandle {
    type Target = LockOwner;
    fn deref(&self) -> &LockOwner {
        &self.owner
    }
}

impl Drop for OwnerHandle {
    fn drop(&mut self) {
        self.manager.release_all(&self.owner);
        self.manager.release_session_locks(&self.owner);
        self.manager.0.owners.write().retain(|o| *o != self.owner);
        self.manager.0.free_ids.lock().push(self.owner.id());
    }
}

impl LockManager {
    pub fn new() -> Self {
        let partition =
            || Partition { heads: Mutex::new(Heads::default()), xid_waiters: AtomicU32::new(0) };
        LockManager(Arc::new(Shared {
            partitions: (0..PARTITIONS).map(|_| partition()).collect(),
            strong: (0..STRONG_BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            owners: RwLock::new(Vec::new()),
            free_ids: Mutex::new(Vec::new()),
            hasher: foldhash::fast::FixedState::default(),
            waits: AtomicU64::new(0),
            database: AtomicU32::new(0),
            deadlocks: AtomicU64::new(0),
            deadlock_timeout_micros: AtomicU64::new(DEADLOCK_TIMEOUT_MICROS),
            wait_log: OnceLock::new(),
        }))
    }

    /// The database's OID, for deadlock reports and views.
    pub fn set_database(&self, oid: u32) {
        self.0.database.store(oid, Ordering::Relaxed);
    }

    /// How long a wait lasts before [`Self::detect_deadlocks`] examines it.
    pub fn set_deadlock_timeout(&self, timeout: Duration) {
        let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        self.0.deadlock_timeout_micros.store(micros, Ordering::Relaxed);
    }

    pub fn deadlock_timeout(&self) -> Duration {
        Duration::from_micros(self.0.deadlock_timeout_micros.load(Ordering::Relaxed))
    }

    /// One round of the detector's thread; returns the number of victims.
    pub fn detect_deadlocks(&self) -> usize {
        self.run_deadlock_check(self.deadlock_timeout())
    }

    /// Makes a session known. `pid` is what views and messages show.
    pub fn register(&self, pid: i32) -> OwnerHandle {
        let mut owners = self.0.owners.write();
        let id = self.0.free_ids.lock().pop().unwrap_or(owners.len() as u32);
        let owner = LockOwner::new(id, pid);
        owners.push(owner.clone());
        drop(owners);
        OwnerHandle { manager: self.clone(), owner }
    }

    fn partition(&self, tag: &LockTag) -> &Partition {
        let at = match tag {
            // No hash: the end of every transaction comes by here.
            LockTag::Xid(xid) => xid.raw() as usize,
            _ => self.0.hasher.hash_one(tag) as usize >> 7,
        };
        &self.0.partitions[at % PARTITIONS]
    }

    fn strong_count(&self, oid: u32) -> &AtomicU32 {
        let mixed = oid.wrapping_mul(0x9E37_79B1) >> 16;
        &self.0.strong[mixed as usize % STRONG_BUCKETS]
    }

    /// Takes `mode` on `tag` until the end of the transaction (or the savepoint).
    #[inline]
    pub fn acquire(&self, owner: &LockOwner, tag: LockTag, mode: LockMode) -> LockResult {
        self.acquire_for(owner, tag, mode, LockScope::Transaction)
    }

    /// Takes `mode` on `tag`, or says what to wait for.
    pub fn acquire_for(
        &self,
        owner: &LockOwner,
        tag: LockTag,
        mode: LockMode,
        scope: LockScope,
    ) -> LockResult {
        if self.acquire_locally(owner, tag, mode, scope) {
            return LockResult::Granted;
        }
        match self.acquire_shared(owner, tag, mode, scope, true) {
            Ok(()) => LockResult::Granted,
            Err(node) => {
                let node = node.expect("a request that may wait is queued");
                LockResult::Wait(LockWait::new(self.clone(), node, scope))
            }
        }
    }

    /// Takes `mode` on `tag` if nobody is in the way (NOWAIT, SKIP LOCKED, try-functions).
    pub fn try_acquire(&self, owner: &LockOwner, tag: LockTag, mode: LockMode) -> bool {
        self.try_acquire_for(owner, tag, mode, LockScope::Transaction)
    }

    pub fn try_acquire_for(
        &self,
        owner: &LockOwner,
        tag: LockTag,
        mode: LockMode,
        scope: LockScope,
    ) -> bool {
        self.acquire_locally(owner, tag, mode, scope)
            || self.acquire_shared(owner, tag, mode, scope, false).is_ok()
    }

    /// The two ways that touch nothing but the owner.
    #[inline]
    fn acquire_locally(
        &self,
        owner: &LockOwner,
        tag: LockTag,
        mode: LockMode,
        scope: LockScope,
    ) -> bool {
        let mut state = owner.0.state.lock();
        if state.again(&tag, mode, scope) {
            return true;
        }
        if let LockTag::Relation(oid) = tag
            && mode.is_weak()
            && self.strong_count(oid).load(Ordering::Relaxed) == 0
        {
            state.add(tag, mode, scope, Home::Fast);
            return true;
        }
        false
    }

    /// Through the shared table. `Err` holds the queued request, if it may wait.
    fn acquire_shared(
        &self,
        owner: &LockOwner,
        tag: LockTag,
        mode: LockMode,
        scope: LockScope,
        may_wait: bool,
    ) -> Result<(), Option<Arc<WaitNode>>> {
        self.begin_strong(&tag, mode);
        let mut heads = self.partition(&tag).heads.lock();
        let head = heads.entry(tag).or_default();
        match head.place(owner, mode) {
            Place::Now => {
                head.grant(owner, mode);
                drop(heads);
                owner.0.state.lock().add(tag, mode, scope, Home::Shared);
                Ok(())
            }
            Place::Queue(at) if may_wait => {
                let number = self.0.waits.fetch_add(1, Ordering::Relaxed);
                let node = WaitNode::new(owner, tag, mode, number);
                head.queue.insert(at, Arc::clone(&node));
                Err(Some(node))
            }
            Place::Queue(_) => {
                drop(heads);
                self.end_strong(&tag, mode);
                Err(None)
            }
        }
    }

    /// Before a strong request looks at the shared table: weak locks must show there.
    fn begin_strong(&self, tag: &LockTag, mode: LockMode) {
        let LockTag::Relation(oid) = *tag else { return };
        if !mode.is_strong() {
            return;
        }
        self.strong_count(oid).fetch_add(1, Ordering::SeqCst);
        for owner in self.0.owners.read().iter() {
            let mut state = owner.0.state.lock();
            for held in state.fast_mut(*tag) {
                let mut heads = self.partition(tag).heads.lock();
                heads.entry(*tag).or_default().grant(owner, held.mode);
                held.home = Home::Shared;
            }
        }
    }

    fn end_strong(&self, tag: &LockTag, mode: LockMode) {
        if let LockTag::Relation(oid) = *tag
            && mode.is_strong()
        {
            let before = self.strong_count(oid).fetch_sub(1, Ordering::SeqCst);
            debug_assert!(before > 0, "strong requests are counted");
        }
    }

    /// Gives back one count of a transaction-scope lock before the transaction ends. False when
    /// it is not held.
    pub fn release(&self, owner: &LockOwner, tag: LockTag, mode: LockMode) -> bool {
        self.release_for(owner, tag, mode, LockScope::Transaction)
    }

    pub fn release_for(
        &self,
        owner: &LockOwner,
        tag: LockTag,
        mode: LockMode,
        scope: LockScope,
    ) -> bool {
        let gone = owner.0.state.lock().release(&tag, mode, scope);
        match gone {
            None => false,
            Some(None) => true,
            Some(Some(held)) => {
                self.take_back(owner, &[held]);
                true
            }
        }
    }

    /// The transaction has ended: gives up what it held.
    pub fn release_all(&self, owner: &LockOwner) {
        let gone = owner.0.state.lock().end_transaction();
        self.take_back(owner, &gone);
    }

    /// Gives up what the session held for itself.
    pub fn release_session_locks(&self, owner: &LockOwner) {
        let gone = owner.0.state.lock().end_session_locks();
        self.take_back(owner, &gone);
    }

    /// A savepoint begins.
    pub fn begin_level(&self, owner: &LockOwner) {
        owner.0.state.lock().begin_level();
    }

    /// Savepoints are released, `levels` of them: their locks stay with the level outside.
    pub fn merge_levels(&self, owner: &LockOwner, levels: usize) {
        owner.0.state.lock().merge_levels(levels);
    }

    /// Savepoints are rolled back, `levels` of them: what was first locked inside is given up.
    pub fn rollback_levels(&self, owner: &LockOwner, levels: usize) {
        let gone = owner.0.state.lock().rollback_levels(levels);
        self.take_back(owner, &gone);
    }

    /// Makes the locks of `from`'s transaction, and its xids, those of `to`, which has none: at no
    /// moment does anybody find them free (rule L9). Locks that the session holds for itself stay.
    pub fn pass_on(&self, from: &LockOwner, to: &LockOwner) {
        // Whoever looks for weak locks walks over this list, and would miss what moves from an
        // owner that comes later to one that it has seen.
        let _owners = self.0.owners.write();
        let mut old = from.0.state.lock();
        let mut new = to.0.state.lock();
        let given = old.give_away();
        for held in given.iter().filter(|held| held.home == Home::Shared) {
            let mut heads = self.partition(&held.tag).heads.lock();
            heads.entry(held.tag).or_default().pass_on(from, to, held.mode);
        }
        new.receive(given);
        to.take_xids(from);
    }

    /// Whether an object is locked for the session and for its transaction at once.
    pub fn holds_in_both_scopes(&self, owner: &LockOwner) -> bool {
        owner.0.state.lock().holds_in_both_scopes()
    }

    /// What the owner's transaction holds.
    pub fn transaction_locks(&self, owner: &LockOwner) -> Vec<(LockTag, LockMode)> {
        let state = owner.0.state.lock();
        let of_transaction = state.iter().filter(|h| h.scope() == LockScope::Transaction);
        of_transaction.map(|held| (held.tag, held.mode)).collect()
    }

    fn take_back(&self, owner: &LockOwner, gone: &[Held]) {
        for held in gone {
            if held.home == Home::Shared {
                self.ungrant(owner, held.tag, held.mode);
            }
            self.end_strong(&held.tag, held.mode);
        }
    }

    fn ungrant(&self, owner: &LockOwner, tag: LockTag, mode: LockMode) {
        let mut woken = Woken::new();
        let mut heads = self.partition(&tag).heads.lock();
        if let Some(head) = heads.get_mut(&tag) {
            head.ungrant(owner, mode);
            settle_queue(head, &mut woken);
            if head.is_unused() {
                heads.remove(&tag);
            }
        }
        drop(heads);
        wake(woken);
    }

    /// The driver of a granted wait takes the lock into its owner's list.
    pub(crate) fn take_over(&self, node: &Arc<WaitNode>, scope: LockScope) {
        if !matches!(node.tag, LockTag::Xid(_)) {
            let mut state = node.owner.0.state.lock();
            state.add(node.tag, node.mode, scope, Home::Shared);
        }
    }

    /// The driver dropped a wait without having taken the lock over.
    pub(crate) fn abandon(&self, node: &Arc<WaitNode>) {
        let partition = self.partition(&node.tag);
        let mut woken = Woken::new();
        let mut heads = partition.heads.lock();
        let state = node.state();
        if let Some(head) = heads.get_mut(&node.tag) {
            if state == WAITING {
                self.unqueue(head, node);
                node.set_state(CANCELED);
            } else if state == GRANTED {
                head.ungrant(&node.owner, node.mode);
            }
            settle_queue(head, &mut woken);
            if head.is_unused() {
                heads.remove(&node.tag);
            }
        }
        drop(heads);
        self.end_strong(&node.tag, node.mode);
        wake(woken);
    }

    /// Takes a waiter out of its queue. With the partition held.
    pub(crate) fn unqueue(&self, head: &mut LockHead, node: &Arc<WaitNode>) {
        let Some(at) = head.position(node) else { return };
        head.queue.remove(at);
        if let LockTag::Xid(_) = node.tag {
            self.partition(&node.tag).xid_waiters.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits for `xid` to end, in the sense that the next snapshot tells its fate.
    pub fn wait_for_xid(&self, txns: &TxnManager, owner: &LockOwner, xid: Xid) -> LockResult {
        if !txns.is_running(xid) {
            return LockResult::Granted;
        }
        let tag = LockTag::Xid(xid);
        let partition = self.partition(&tag);
        let number = self.0.waits.fetch_add(1, Ordering::Relaxed);
        let node = WaitNode::new(owner, tag, LockMode::Share, number);
        {
            let mut heads = partition.heads.lock();
            partition.xid_waiters.fetch_add(1, Ordering::SeqCst);
            let queue = &mut heads.entry(tag).or_default().queue;
            queue.insert(queue.len(), Arc::clone(&node));
        }
        let wait = LockWait::new(self.clone(), node, LockScope::Transaction);
        // After the count: pairs with the fence in `xids_ended`.
        fence(Ordering::SeqCst);
        if txns.is_running(xid) {
            LockResult::Wait(wait)
        } else {
            // Dropping the wait takes it out of the queue, if the ending has not done so.
            LockResult::Granted
        }
    }

    /// Wakes whoever waits for these transactions, whose fate has been published.
    pub fn xids_ended(&self, xids: impl IntoIterator<Item = Xid>) {
        fence(Ordering::SeqCst);
        for xid in xids {
            let tag = LockTag::Xid(xid);
            let partition = self.partition(&tag);
            if partition.xid_waiters.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut heads = partition.heads.lock();
            let Some(head) = heads.remove(&tag) else { continue };
            partition.xid_waiters.fetch_sub(head.queue.len() as u32, Ordering::SeqCst);
            for node in head.queue.iter() {
                node.set_state(GRANTED);
            }
            drop(heads);
            wake(head.queue.into_nodes());
        }
    }

    /// Whether this owner holds `mode` (or a mode that is at least one of `modes`).
    pub fn holds(&self, owner: &LockOwner, tag: &LockTag, mode: LockMode) -> bool {
        owner.0.state.lock().holds(tag, mode)
    }

    /// Looks at one object, if anybody holds or wants it.
    pub(crate) fn with_head(&self, tag: &LockTag, look: impl FnOnce(&LockHead)) {
        if let Some(head) = self.partition(tag).heads.lock().get(tag) {
            look(head);
        }
    }

    /// Every partition at once, in order: nothing moves while these are held.
    pub(crate) fn lock_everything(&self) -> Vec<MutexGuard<'_, Heads>> {
        self.0.partitions.iter().map(|p| p.heads.lock()).collect()
    }
}

/// Lets the queue of `head` go on, except for a transaction's, which ends all at once.
pub(crate) fn settle_queue(head: &mut LockHead, woken: &mut Woken) {
    let from = woken.len();
    if head.queue.front().is_some_and(|n| !matches!(n.tag, LockTag::Xid(_))) {
        head.advance(woken);
    }
    for node in &woken[from..] {
        node.set_state(GRANTED);
    }
}

/// Wakes drivers; with no partition held.
pub(crate) fn wake(nodes: impl IntoIterator<Item = Arc<WaitNode>>) {
    for node in nodes {
        node.event.wake();
    }
}
