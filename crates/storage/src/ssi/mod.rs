//! Serializable snapshot isolation: who has read what, and which transaction has to give way.
//!
//! What it guarantees: the committed SERIALIZABLE transactions have an order in which, run one
//! after the other, they read what they read and leave what they left. Nobody waits for a reader,
//! and whoever does not use SERIALIZABLE pays nothing but one load where index pages are split.
//!
//! ```text
//!   write skew       A: reads x and y, writes x         B: reads x and y, writes y
//!
//!   A reads x, y     locks on x, y
//!   B reads x, y     locks on x, y
//!   A writes x       B's lock: edge B -> A
//!   B writes y       A's lock: edge A -> B
//!   A commits        prepare: A is Tout of A -> B -> A, the pivot B is doomed
//!   B commits        40001; B's retry sees A's x
//! ```
//!
//! - Locks block nobody and are coarsened, never refused (rules G1, G2 of the README).
//! - An edge is found by whoever comes second: the writer that meets a lock, or the reader that
//!   meets a version. Latches see to it that one of them comes second.
//! - The order of commits is the order of their positions in the log.
//!
//! What it does not do: it does not know rows or keys, does not wait, and does not touch pages.
//! Those who weaken their isolation level get no guarantee from those who do not.
//!
//! Start with the README of this directory for the numbered rules.

mod conflict;
mod life;
mod locks;
#[cfg(all(test, shuttle))]
mod models;
mod prepared;
mod summary;
mod tag;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod view;
mod xact;

pub use prepared::Persisted;
pub use tag::Tag;
pub use view::{SireadView, SsiStats};

use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Lsn, RelId, RowId, Xid};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};
use crate::wait::{Event, WaitHandle};
use hashbrown::HashMap;
use locks::Targets;
use std::collections::BTreeSet;
use summary::Summary;
use xact::{Marks, SxId, Xact};

/// The commit order, as transactions know it.
pub trait Order {
    /// The position of a commit that is published.
    fn committed_at(&self, xid: Xid) -> Option<Lsn>;
}

/// How much is remembered before it is coarsened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Tuples of one page (`max_pred_locks_per_page`).
    pub per_page: usize,
    /// Locks in one relation (`max_pred_locks_per_relation`).
    pub per_relation: usize,
    /// Locks of all transactions.
    pub total: usize,
    /// Ended transactions that are remembered one by one.
    pub ended: usize,
}

/// However many sessions there may be: each takes a few hundred bytes.
const MOST_ENDED: usize = 8192;

impl Limits {
    /// From the settings of that name; a negative number a relation is a fraction of those of a
    /// transaction.
    pub fn of(per_transaction: i64, per_relation: i64, per_page: i64, sessions: i64) -> Limits {
        let count = |n: i64| usize::try_from(n).unwrap_or(0);
        let per_relation = match per_relation {
            n if n < 0 => (per_transaction / n.saturating_neg().max(1) - 1).max(0),
            n => n,
        };
        let sessions = sessions.max(1);
        Limits {
            per_page: count(per_page),
            per_relation: count(per_relation),
            total: count(per_transaction.saturating_mul(sessions)).max(1),
            ended: count(sessions.saturating_mul(10)).min(MOST_ENDED),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits::of(64, -2, 2, 100)
    }
}

/// Why a transaction has to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Failure(&'static str);

impl From<Failure> for StorageError {
    fn from(failure: Failure) -> Self {
        StorageError::ReadWriteDependencies { reason: failure.0 }
    }
}

/// Everything that the mutex guards.
#[derive(Default, Debug)]
struct State {
    next: u64,
    limits: Limits,
    xacts: HashMap<SxId, Xact>,
    by_xid: HashMap<Xid, SxId>,
    /// Running and prepared ones by their snapshots; of those, the ones that may write.
    active: BTreeSet<(Lsn, SxId)>,
    writers: BTreeSet<(Lsn, SxId)>,
    /// Committed ones by their positions; of those, the ones that may still have locks.
    committed: BTreeSet<(Lsn, SxId)>,
    locking: BTreeSet<(Lsn, SxId)>,
    targets: Targets,
    summary: Summary,
    /// To be woken when the mutex is let go.
    wakes: Vec<Event>,
    dooms: u64,
    summarised: u64,
}

impl State {
    /// What the counter shows: not zero while there is anything to carry or to meet.
    fn tracked(&self) -> usize {
        self.xacts.len() + self.targets.old.len() + self.summary.len()
    }
}

/// A serializable transaction that is watched, as its session holds it.
#[derive(Clone, Debug)]
pub struct Sx(Arc<Marks>);

impl Sx {
    /// Its snapshot has turned out to be safe: it need not lock or check any more.
    #[inline]
    pub fn is_safe(&self) -> bool {
        self.0.is_safe()
    }

    /// Fails if it has become a victim.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.0.is_doomed() {
            true => Err(Failure("Canceled on identification as a pivot, by another.").into()),
            false => Ok(()),
        }
    }
}

/// What became of a DEFERRABLE transaction's snapshot.
#[derive(Debug)]
pub enum Safety {
    /// Use it.
    Safe,
    /// Give it up and take another.
    Unsafe,
    Wait(WaitHandle),
}

/// See the module's essay.
pub struct Ssi {
    state: Mutex<State>,
    tracked: AtomicUsize,
}

impl Ssi {
    pub fn new() -> Self {
        Ssi { state: Mutex::new(State::default()), tracked: AtomicUsize::new(0) }
    }

    pub fn configure(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// Nobody has read anything that a change of structure would have to carry. To be asked with
    /// the latch (or the lock) held that keeps readers away (rule L5).
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.tracked.load(Ordering::Relaxed) == 0
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let (answer, wakes) = {
            let mut state = self.state.lock();
            let answer = f(&mut state);
            self.tracked.store(state.tracked(), Ordering::Release);
            (answer, std::mem::take(&mut state.wakes))
        };
        wakes.iter().for_each(Event::wake);
        answer
    }

    // --- life ---

    /// Begins to watch a transaction whose snapshot `take` takes; `xids` are those that it has
    /// already. `None`: it is READ ONLY and its snapshot is safe.
    pub fn begin(
        &self,
        order: &impl Order,
        pid: i32,
        read_only: bool,
        xids: &[Xid],
        take: impl FnOnce() -> Lsn,
    ) -> Option<Sx> {
        self.with(|state| {
            let snapshot = take();
            state.begin(snapshot, pid, read_only, xids, order).map(Sx)
        })
    }

    /// The transaction writes under this xid from now on.
    pub fn note_xid(&self, sx: &Sx, xid: Xid) {
        self.with(|state| state.note_xid(sx.0.id, xid));
    }

    /// Whether a DEFERRABLE transaction may begin to read.
    pub fn safety(&self, sx: &Sx) -> Safety {
        self.with(|state| {
            if sx.is_safe() {
                return Safety::Safe;
            }
            match state.is_unsafe(sx.0.id) {
                true => Safety::Unsafe,
                false => state.await_safe(sx.0.id).map_or(Safety::Unsafe, Safety::Wait),
            }
        })
    }

    /// The last check. Afterwards the transaction is no victim of anybody: it commits, or it waits
    /// as a prepared one.
    pub fn prepare(&self, order: &impl Order, sx: &Sx) -> Result<()> {
        Ok(self.with(|state| state.prepare(sx.0.id, order))?)
    }

    /// The prepared transaction is published at `lsn` (any, if it wrote nothing). Called while its
    /// snapshot is still announced.
    pub fn commit(&self, order: &impl Order, sx: &Sx, lsn: Lsn) {
        self.with(|state| state.commit(sx.0.id, lsn, order));
    }

    pub fn abort(&self, order: &impl Order, sx: &Sx) {
        self.with(|state| state.abort(sx.0.id, order));
    }

    // --- reading ---

    /// It reads what `tag` speaks of (rule R2 says when this is to be called).
    pub fn read(&self, sx: &Sx, tag: Tag) -> Result<()> {
        sx.check()?;
        self.with(|state| state.lock(sx.0.id, tag));
        Ok(())
    }

    /// It looks `key` up in an index.
    pub fn read_key(&self, sx: &Sx, rel: RelId, key: &[u8]) -> Result<()> {
        self.read(sx, Tag::key(rel, key))
    }

    /// It reads a row version, or none, and meets the work of `writers`, which run or committed
    /// beyond its snapshot (rule R4).
    pub fn read_versions(
        &self,
        order: &impl Order,
        sx: &Sx,
        row: Option<(RelId, RowId)>,
        writers: &[Xid],
    ) -> Result<()> {
        sx.check()?;
        if row.is_none() && writers.is_empty() {
            return Ok(());
        }
        Ok(self.with(|state| {
            if let Some((rel, row)) = row {
                state.lock(sx.0.id, Tag::Tuple(rel, row));
            }
            writers.iter().try_for_each(|xid| state.conflict_out(sx.0.id, *xid, order))
        })?)
    }

    // --- writing ---

    /// It is about to change what `tags` speak of, with the latch held under which it does.
    /// `own`: the row version that it replaces for good, so that its own lock on it can go.
    pub fn write(
        &self,
        order: &impl Order,
        sx: &Sx,
        tags: &[Tag],
        own: Option<(RelId, RowId)>,
    ) -> Result<()> {
        sx.check()?;
        Ok(self.with(|state| {
            for tag in tags {
                state.check_target(sx.0.id, *tag, order)?;
            }
            if let Some((rel, row)) = own {
                state.release_tuple(sx.0.id, rel, row);
            }
            Ok::<(), Failure>(())
        })?)
    }

    /// It empties or drops a relation: whoever has read anything in it comes before.
    pub fn write_all(&self, order: &impl Order, sx: &Sx, rel: RelId) -> Result<()> {
        sx.check()?;
        Ok(self.with(|state| {
            let tags = state.tags_in(rel);
            tags.into_iter().try_for_each(|tag| state.check_target(sx.0.id, tag, order))
        })?)
    }

    /// It acts on the work of a transaction that its snapshot does not cover (rule R6).
    pub fn observe(&self, order: &impl Order, sx: &Sx, xid: Xid) -> Result<()> {
        sx.check()?;
        Ok(self.with(|state| match state.by_xid.get(&xid).copied() {
            Some(other) => state.edge(other, sx.0.id, sx.0.id, order),
            None if state.summary.find(xid).is_some() => {
                let at = order.committed_at(xid).unwrap_or(Lsn::INVALID);
                state.conflict_in_old(sx.0.id, at, order)
            }
            None => Ok(()),
        })?)
    }

    // --- carrying (rules G3, G4) ---

    /// The keys of page `to` were on page `from` before; both are latched.
    #[inline]
    pub fn page_split(&self, rel: RelId, from: BlockNo, to: BlockNo) {
        if !self.is_idle() {
            self.with(|state| state.carry_page(rel, from, to, false));
        }
    }

    /// The range of `page` is `right`'s from now on; both are latched.
    #[inline]
    pub fn page_unlinked(&self, rel: RelId, page: BlockNo, right: BlockNo) {
        if !self.is_idle() {
            self.with(|state| state.carry_page(rel, page, right, true));
        }
    }

    /// What was read in `from` counts as read in all of `to`. Nobody else uses either meanwhile.
    pub fn carry_relation(&self, from: RelId, to: RelId) {
        if !self.is_idle() {
            self.with(|state| state.carry_relation(from, to));
        }
    }
}

impl State {
    /// `writer` changes what `tag` speaks of.
    fn check_target(&mut self, writer: SxId, tag: Tag, order: &impl Order) -> Result<(), Failure> {
        let Some(target) = self.targets.map.get(&tag) else { return Ok(()) };
        let (holders, old) = (target.holders.clone(), target.old);
        for reader in holders {
            self.conflict_in(writer, reader, order)?;
        }
        match old.is_valid() {
            true => self.conflict_in_old(writer, old, order),
            false => Ok(()),
        }
    }
}

impl Default for Ssi {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Ssi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ssi").field("idle", &self.is_idle()).finish_non_exhaustive()
    }
}
