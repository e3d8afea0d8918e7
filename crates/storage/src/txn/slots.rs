//! Announced snapshots, and the horizon that they hold back.
//!
//! ```text
//!   session 1  [ S=40 ]                       published ──> 70
//!   session 2  [ none ]     horizon = min(40, 55, 70) = 40
//!   session 3  [ S=55 ]     a version deleted at L <= 40 is dead to all
//! ```
//!
//! # Announcing races with computing
//!
//! A session stores S, fences, and looks at `bound`; the computation stores the published
//! position to `bound`, fences, and looks at the slots. One fence comes first. If the session's:
//! the computation meets S and stays at or below it. If the computation's: the session meets the
//! bound, and takes a newer snapshot when S is below it. Either way no accepted snapshot is
//! below a horizon that was ever returned. A refused announcement may hold a horizon back for a
//! moment, which is harmless, because a horizon may lag.
//!
//! Slots are found through a list that grows; each is a cache line of its own, so that taking a
//! snapshot shares nothing with other sessions but the two words that it reads.

use crate::ids::{Lsn, Xid};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Arc, Mutex, RwLock};

/// One session's announcement; 0 is none. Beside it, for views only, the floor of the snapshot.
#[repr(align(64))]
#[derive(Default)]
struct SlotCell(AtomicU64, AtomicU64);

/// All announcements.
pub(crate) struct SlotRegistry {
    cells: RwLock<Vec<Arc<SlotCell>>>,
    free: Mutex<Vec<Arc<SlotCell>>>,
    /// No horizon beyond this was computed. Snapshots below it are refused.
    bound: AtomicU64,
    /// The newest horizon computed; changed with `computing` held.
    horizon: AtomicU64,
    computing: Mutex<()>,
}

impl SlotRegistry {
    /// `start`: no snapshot before it will ever be asked for.
    pub(crate) fn new(start: Lsn) -> Self {
        SlotRegistry {
            cells: RwLock::new(Vec::new()),
            free: Mutex::new(Vec::new()),
            bound: AtomicU64::new(start.raw()),
            horizon: AtomicU64::new(start.raw()),
            computing: Mutex::new(()),
        }
    }

    pub(crate) fn register(self: &Arc<Self>) -> SessionSlot {
        let reused = self.free.lock().pop();
        let cell = reused.unwrap_or_else(|| {
            let cell = Arc::new(SlotCell::default());
            self.cells.write().push(Arc::clone(&cell));
            cell
        });
        SessionSlot { registry: Arc::clone(self), cell }
    }

    /// The newest horizon, computed now: the smallest announced position, at most `published`.
    pub(crate) fn compute(&self, published: &AtomicU64) -> Lsn {
        let _computing = self.computing.lock();
        let limit = published.load(Ordering::Acquire);
        self.bound.store(limit, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut least = limit;
        for cell in self.cells.read().iter() {
            let announced = cell.0.load(Ordering::Acquire);
            if announced != 0 {
                least = least.min(announced);
            }
        }
        // An announcement about to be refused may lie below: what was once dead stays dead.
        let horizon = least.max(self.horizon.load(Ordering::Relaxed));
        self.horizon.store(horizon, Ordering::Release);
        Lsn::new(horizon)
    }

    /// The horizon of the last computation, and the published position that it knew.
    #[inline]
    pub(crate) fn last(&self) -> (Lsn, Lsn) {
        let horizon = self.horizon.load(Ordering::Acquire);
        (Lsn::new(horizon), Lsn::new(self.bound.load(Ordering::Relaxed)))
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.read().len()
    }
}

/// A session's place among the announcements. Given back when dropped.
pub struct SessionSlot {
    registry: Arc<SlotRegistry>,
    cell: Arc<SlotCell>,
}

impl SessionSlot {
    /// Announces `at`. False: a horizon beyond it may have been computed; take a newer one.
    #[inline]
    pub(crate) fn announce(&self, at: Lsn) -> bool {
        self.cell.0.store(at.raw(), Ordering::Release);
        fence(Ordering::SeqCst);
        self.registry.bound.load(Ordering::Acquire) <= at.raw()
    }

    /// The floor of the snapshot that was announced, for views.
    #[inline]
    pub(crate) fn note_floor(&self, floor: Xid) {
        self.cell.1.store(floor.raw(), Ordering::Relaxed);
    }

    /// Below this xid the announced snapshot sees nobody running; about what PostgreSQL calls its
    /// xmin.
    pub fn announced_floor(&self) -> Option<Xid> {
        self.announced()?;
        Some(Xid::new(self.cell.1.load(Ordering::Relaxed))).filter(|xid| xid.is_valid())
    }

    /// Moves the announcement forward to a snapshot that was taken while it stood, or ends it.
    #[inline]
    pub(crate) fn advance(&self, to: Option<Lsn>) {
        let now = self.cell.0.load(Ordering::Relaxed);
        let to = to.map_or(0, Lsn::raw);
        debug_assert!(to == 0 || (now != 0 && now <= to), "an announcement moves forward");
        if now != to {
            self.cell.0.store(to, Ordering::Release);
        }
    }

    /// Announces a snapshot that another session took. False when it is too late: something that
    /// the snapshot needs may be gone.
    pub(crate) fn import(&self, at: Lsn) -> bool {
        let _computing = self.registry.computing.lock();
        let current = self.announced();
        if self.registry.horizon.load(Ordering::Relaxed) > at.raw() {
            return false;
        }
        if current.is_none_or(|now| at < now) {
            self.cell.0.store(at.raw(), Ordering::Release);
        }
        true
    }

    /// What this session holds back, if anything.
    #[inline]
    pub fn announced(&self) -> Option<Lsn> {
        let raw = self.cell.0.load(Ordering::Relaxed);
        (raw != 0).then(|| Lsn::new(raw))
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.cell.0.store(0, Ordering::Release);
        self.registry.free.lock().push(Arc::clone(&self.cell));
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn at(raw: u64) -> Lsn {
        Lsn::new(raw)
    }

    #[test]
    fn the_horizon_is_the_oldest_announcement() {
        let registry = Arc::new(SlotRegistry::new(at(8)));
        let published = AtomicU64::new(80);
        let (a, b) = (registry.register(), registry.register());
        assert!(a.announce(at(80)));
        published.store(160, Ordering::Release);
        assert!(b.announce(at(160)));
        assert_eq!(registry.compute(&published), at(80));
        a.advance(None);
        assert_eq!(registry.compute(&published), at(160));
        drop(b);
        published.store(240, Ordering::Release);
        assert_eq!(registry.compute(&published), at(240));
    }

    #[test]
    fn a_stale_announcement_is_refused_and_moves_no_horizon_back() {
        let registry = Arc::new(SlotRegistry::new(at(8)));
        let published = AtomicU64::new(80);
        let slot = registry.register();
        assert_eq!(registry.compute(&published), at(80));
        assert!(!slot.announce(at(72)));
        assert_eq!(registry.compute(&published), at(80));
        assert!(!slot.import(at(72)));
    }

    #[test]
    fn an_import_needs_the_horizon_not_to_have_passed() {
        let registry = Arc::new(SlotRegistry::new(at(8)));
        let published = AtomicU64::new(80);
        let (source, sink) = (registry.register(), registry.register());
        assert!(source.announce(at(80)));
        published.store(160, Ordering::Release);
        assert_eq!(registry.compute(&published), at(80));
        assert!(sink.import(at(80)));
        drop(source);
        assert_eq!(registry.compute(&published), at(80), "the importer holds it now");
    }

    #[test]
    fn slots_are_reused() {
        let registry = Arc::new(SlotRegistry::new(at(8)));
        for _ in 0..100 {
            let _slots = [registry.register(), registry.register()];
        }
        assert_eq!(registry.len(), 2);
    }
}
