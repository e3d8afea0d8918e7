//! Who holds locks: one owner per session, with what it holds and for how long.
//!
//! An owner's list is changed by its own session, and by one other event: a strong request moves
//! fast-path entries of others into the shared table ([`Home`]). Both happen under the owner's
//! mutex, which is uncontended otherwise; so a weak relation lock costs that mutex and a short
//! search.
//!
//! # How long a lock is held
//!
//! A lock can be held by the session (until it says otherwise) and by the transaction (until that
//! ends), independently, each with a count. For the transaction's share the owner notes the
//! outermost nesting level that took it: rolling back a savepoint gives up what was first taken
//! inside, releasing one passes it to the level outside.

use super::mode::LockMode;
use super::tag::LockTag;
use crate::ids::Xid;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// The nesting level of a top-level transaction. Savepoints count up from it.
pub(crate) const TOP_LEVEL: u32 = 1;

/// Until when a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockScope {
    Transaction,
    Session,
}

/// Where a held lock is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// Only here. Others find it by looking at every owner.
    Fast,
    /// In the shared table too.
    Shared,
}

/// One lock that an owner holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) tag: LockTag,
    pub(crate) mode: LockMode,
    pub(crate) home: Home,
    session: u32,
    transaction: u32,
    /// The outermost level of the transaction's share; meaningless when that is 0.
    level: u32,
}

impl Held {
    fn count(&mut self, scope: LockScope, level: u32) {
        match scope {
            LockScope::Session => self.session += 1,
            LockScope::Transaction => {
                if self.transaction == 0 {
                    self.level = level;
                }
                self.transaction += 1;
            }
        }
    }

    pub(crate) fn scope(&self) -> LockScope {
        if self.session > 0 { LockScope::Session } else { LockScope::Transaction }
    }
}

/// Longer lists get an index.
const SEARCH_LIMIT: usize = 24;

/// What an owner holds, searchable by object and mode.
#[derive(Default)]
pub(crate) struct HeldList {
    list: Vec<Held>,
    index: HashMap<(LockTag, LockMode), usize, foldhash::fast::RandomState>,
}

impl HeldList {
    fn find(&self, tag: &LockTag, mode: LockMode) -> Option<usize> {
        if self.index.is_empty() {
            return self.list.iter().position(|h| h.mode == mode && h.tag == *tag);
        }
        self.index.get(&(*tag, mode)).copied()
    }

    fn push(&mut self, held: Held) {
        self.list.push(held);
        if !self.index.is_empty() {
            self.index.insert((held.tag, held.mode), self.list.len() - 1);
        } else if self.list.len() > SEARCH_LIMIT {
            let keys = self.list.iter().enumerate().map(|(at, h)| ((h.tag, h.mode), at));
            self.index.extend(keys);
        }
    }

    fn remove(&mut self, at: usize) -> Held {
        let held = self.list.swap_remove(at);
        if !self.index.is_empty() {
            self.index.remove(&(held.tag, held.mode));
            if let Some(moved) = self.list.get(at) {
                self.index.insert((moved.tag, moved.mode), at);
            }
        }
        held
    }
}

/// The locks of one owner.
pub(crate) struct OwnerState {
    level: u32,
    /// No lock was taken at a deeper level: a savepoint that took none ends without a walk.
    deepest: u32,
    held: HeldList,
}

/// Locks to take out of the shared table, or to forget, after the owner's mutex is free again.
pub(crate) type Released = SmallVec<[Held; 8]>;

impl OwnerState {
    fn new() -> Self {
        OwnerState { level: TOP_LEVEL, deepest: TOP_LEVEL, held: HeldList::default() }
    }

    /// Counts once more a lock that is held already.
    pub(crate) fn again(&mut self, tag: &LockTag, mode: LockMode, scope: LockScope) -> bool {
        let level = self.level;
        match self.held.find(tag, mode) {
            Some(at) => {
                self.held.list[at].count(scope, level);
                self.deepest = self.deepest.max(self.held.list[at].level);
                true
            }
            None => false,
        }
    }

    pub(crate) fn add(&mut self, tag: LockTag, mode: LockMode, scope: LockScope, home: Home) {
        let mut held = Held { tag, mode, home, session: 0, transaction: 0, level: 0 };
        held.count(scope, self.level);
        self.deepest = self.deepest.max(self.level);
        self.held.push(held);
    }

    /// Gives back one count. `None`: not held in this scope; `Some(None)`: still held.
    pub(crate) fn release(
        &mut self,
        tag: &LockTag,
        mode: LockMode,
        scope: LockScope,
    ) -> Option<Option<Held>> {
        let at = self.held.find(tag, mode)?;
        let held = &mut self.held.list[at];
        let count = match scope {
            LockScope::Session => &mut held.session,
            LockScope::Transaction => &mut held.transaction,
        };
        *count = count.checked_sub(1)?;
        let gone = held.session == 0 && held.transaction == 0;
        Some(gone.then(|| self.held.remove(at)))
    }

    fn release_where(&mut self, mut cut: impl FnMut(&mut Held)) -> Released {
        let mut gone = Released::new();
        let mut at = 0;
        while at < self.held.list.len() {
            let held = &mut self.held.list[at];
            cut(held);
            if held.session == 0 && held.transaction == 0 {
                gone.push(self.held.remove(at));
            } else {
                at += 1;
            }
        }
        if self.held.list.is_empty() {
            self.held.index.clear();
        }
        gone
    }

    /// The transaction ends.
    pub(crate) fn end_transaction(&mut self) -> Released {
        (self.level, self.deepest) = (TOP_LEVEL, TOP_LEVEL);
        self.release_where(|held| held.transaction = 0)
    }

    /// The session gives up what it holds for itself (`pg_advisory_unlock_all`, disconnect).
    pub(crate) fn end_session_locks(&mut self) -> Released {
        self.release_where(|held| held.session = 0)
    }

    /// The transaction's locks, for another owner. What is held twice, for the session as well,
    /// stays.
    pub(super) fn give_away(&mut self) -> Released {
        (self.level, self.deepest) = (TOP_LEVEL, TOP_LEVEL);
        let mut given = Released::new();
        let mut at = 0;
        while at < self.held.list.len() {
            let held = &self.held.list[at];
            if held.transaction > 0 && held.session == 0 {
                given.push(Held { level: TOP_LEVEL, ..self.held.remove(at) });
            } else {
                at += 1;
            }
        }
        if self.held.list.is_empty() {
            self.held.index.clear();
        }
        given
    }

    /// Takes over what another owner gave away.
    pub(super) fn receive(&mut self, given: Released) {
        for held in given {
            self.held.push(held);
        }
    }

    /// Whether some lock is held for the session and for the transaction at once.
    pub(super) fn holds_in_both_scopes(&self) -> bool {
        self.held.list.iter().any(|held| held.session > 0 && held.transaction > 0)
    }

    pub(crate) fn begin_level(&mut self) {
        self.level += 1;
    }

    /// How far out the level `levels` further out is. One walk over the locks does for all.
    fn outwards(&mut self, levels: usize) -> u32 {
        let open = (self.level - TOP_LEVEL) as usize;
        assert!(levels <= open, "{levels} savepoints end, {open} are open");
        self.level -= levels as u32;
        self.level
    }

    /// The innermost levels end well: their locks pass to the one outside.
    pub(crate) fn merge_levels(&mut self, levels: usize) {
        let level = self.outwards(levels);
        if self.deepest > level {
            self.deepest = level;
            for held in &mut self.held.list {
                held.level = held.level.min(level);
            }
        }
    }

    /// The innermost levels are rolled back.
    pub(crate) fn rollback_levels(&mut self, levels: usize) -> Released {
        let level = self.outwards(levels);
        if self.deepest <= level {
            return Released::new();
        }
        self.deepest = level;
        self.release_where(|held| {
            if held.level > level {
                held.transaction = 0;
            }
        })
    }

    pub(crate) fn holds(&self, tag: &LockTag, mode: LockMode) -> bool {
        self.held.find(tag, mode).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.list.iter()
    }

    /// The fast-path entries for `tag`, for moving to the shared table.
    pub(crate) fn fast_mut(&mut self, tag: LockTag) -> impl Iterator<Item = &mut Held> {
        self.held.list.iter_mut().filter(move |h| h.home == Home::Fast && h.tag == tag)
    }
}

/// What others may know about an owner.
pub(crate) struct OwnerRecord {
    pub(crate) id: u32,
    pub(crate) pid: i32,
    /// The running transaction's xid, or 0.
    top_xid: AtomicU64,
    /// Those of its subtransactions; rarely any. Ascending.
    sub_xids: Mutex<Vec<Xid>>,
    /// How many transactions it has begun, times two; one more while one is open.
    transactions: AtomicU64,
    /// Its session wants long waits in the log.
    tells_waits: AtomicBool,
    pub(crate) state: Mutex<OwnerState>,
}

/// A session as the lock manager knows it. Cheap to clone; clones are the same owner.
#[derive(Clone)]
pub struct LockOwner(pub(crate) Arc<OwnerRecord>);

impl LockOwner {
    pub(crate) fn new(id: u32, pid: i32) -> Self {
        LockOwner(Arc::new(OwnerRecord {
            id,
            pid,
            top_xid: AtomicU64::new(0),
            sub_xids: Mutex::new(Vec::new()),
            transactions: AtomicU64::new(0),
            tells_waits: AtomicBool::new(false),
            state: Mutex::new(OwnerState::new()),
        }))
    }

    /// The process id that views and messages show.
    pub fn pid(&self) -> i32 {
        self.0.pid
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id
    }

    /// The session's transaction runs under `xid` from now on: it holds that transaction's lock.
    pub fn hold_xid(&self, xid: Xid, is_top: bool) {
        if is_top {
            self.0.top_xid.store(xid.raw(), Ordering::Release);
        } else {
            self.0.sub_xids.lock().push(xid);
        }
    }

    /// The whole transaction has ended.
    pub fn drop_xids(&self, had_children: bool) {
        self.0.top_xid.store(0, Ordering::Release);
        if had_children {
            self.0.sub_xids.lock().clear();
        }
    }

    /// Subtransactions were rolled back: all from this one on.
    pub fn drop_sub_xids(&self, first: Xid) {
        let mut xids = self.0.sub_xids.lock();
        let keep = xids.partition_point(|xid| *xid < first);
        xids.truncate(keep);
    }

    /// A transaction begins. Only its own session calls this, and [`Self::end_transaction`].
    #[inline]
    pub fn begin_transaction(&self) {
        let before = self.0.transactions.load(Ordering::Relaxed);
        self.0.transactions.store((before | 1) + 2, Ordering::Relaxed);
    }

    #[inline]
    pub fn end_transaction(&self) {
        let before = self.0.transactions.load(Ordering::Relaxed);
        self.0.transactions.store(before & !1, Ordering::Relaxed);
    }

    /// The number of the running transaction among the owner's.
    pub(crate) fn local_transaction(&self) -> Option<u64> {
        let now = self.0.transactions.load(Ordering::Relaxed);
        (now & 1 == 1).then_some(now >> 1)
    }

    /// `log_lock_waits` of its session.
    pub fn set_tells_waits(&self, on: bool) {
        self.0.tells_waits.store(on, Ordering::Relaxed);
    }

    pub(super) fn tells_waits(&self) -> bool {
        self.0.tells_waits.load(Ordering::Relaxed)
    }

    /// Takes over the xids that `from` runs under: what waits for them waits for this owner.
    pub(super) fn take_xids(&self, from: &LockOwner) {
        self.0.sub_xids.lock().append(&mut from.0.sub_xids.lock());
        let top = from.0.top_xid.swap(0, Ordering::AcqRel);
        self.0.top_xid.store(top, Ordering::Release);
    }

    /// The running transaction's xid, if it has one.
    pub fn top_xid(&self) -> Option<Xid> {
        Some(Xid::new(self.0.top_xid.load(Ordering::Acquire))).filter(|xid| xid.is_valid())
    }

    /// The xids that this owner's end would end.
    pub(crate) fn xids(&self) -> SmallVec<[Xid; 4]> {
        let mut all = SmallVec::new();
        let top = Xid::new(self.0.top_xid.load(Ordering::Acquire));
        if top.is_valid() {
            all.push(top);
        }
        all.extend(self.0.sub_xids.lock().iter().copied());
        all
    }
}

impl PartialEq for LockOwner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LockOwner {}

impl std::fmt::Debug for LockOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "owner {} (pid {})", self.0.id, self.0.pid)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn state() -> OwnerState {
        OwnerState::new()
    }

    fn tags(released: &Released) -> Vec<LockTag> {
        released.iter().map(|h| h.tag).collect()
    }

    #[test]
    fn a_rolled_back_level_gives_up_what_it_took_first() {
        let (a, b) = (LockTag::Relation(1), LockTag::Relation(2));
        let mut state = state();
        state.add(a, LockMode::Share, LockScope::Transaction, Home::Shared);
        state.begin_level();
        assert!(state.again(&a, LockMode::Share, LockScope::Transaction));
        state.add(b, LockMode::Share, LockScope::Transaction, Home::Shared);
        assert_eq!(tags(&state.rollback_levels(1)), [b]);
        assert!(state.holds(&a, LockMode::Share));
    }

    #[test]
    fn a_released_level_passes_its_locks_out() {
        let b = LockTag::Relation(2);
        let mut state = state();
        state.begin_level();
        state.begin_level();
        state.add(b, LockMode::Share, LockScope::Transaction, Home::Shared);
        state.merge_levels(1);
        state.begin_level();
        assert!(state.rollback_levels(1).is_empty());
        assert_eq!(tags(&state.rollback_levels(1)), [b]);
    }

    #[test]
    fn session_and_transaction_shares_are_independent() {
        let key = LockTag::Advisory(super::super::AdvisoryKey::One(7));
        let mut state = state();
        state.add(key, LockMode::Exclusive, LockScope::Session, Home::Shared);
        assert!(state.again(&key, LockMode::Exclusive, LockScope::Transaction));
        assert!(state.end_transaction().is_empty());
        assert!(state.release(&key, LockMode::Exclusive, LockScope::Transaction).is_none());
        assert!(matches!(
            state.release(&key, LockMode::Exclusive, LockScope::Session),
            Some(Some(_))
        ));
    }

    #[test]
    fn long_lists_stay_consistent_with_their_index() {
        let mut state = state();
        for oid in 0..100 {
            state.add(LockTag::Relation(oid), LockMode::Share, LockScope::Transaction, Home::Fast);
        }
        for oid in (0..100).step_by(3) {
            let tag = LockTag::Relation(oid);
            assert!(state.release(&tag, LockMode::Share, LockScope::Transaction).is_some());
        }
        for oid in 0..100 {
            assert_eq!(state.holds(&LockTag::Relation(oid), LockMode::Share), oid % 3 != 0);
        }
        assert_eq!(state.end_transaction().len(), 66);
        assert!(state.held.index.is_empty());
    }
}
