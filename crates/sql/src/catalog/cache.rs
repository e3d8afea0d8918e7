//! The versions of the catalog that sessions read.
//!
//! ```text
//!   commit of a DDL transaction: publish -> bump the version -> release its locks
//!   a statement starts: version unchanged? use the snapshot in hand
//!                       else: read the catalog anew (one session does, the others take its)
//!   a relation lock was granted: ask again, because a DDL transaction may have held it
//! ```
//!
//! A transaction that changed the catalog itself reads its own version, which nobody else sees. A
//! session with temporary relations sees a version of its own always: the shared one with them. So
//! a commit that changed nothing but temporary relations bumps no version: others read nothing anew
//! and keep their plans.
//!
//! Guarantee: a snapshot handed out by [`CatalogCache::current`] contains every change whose
//! transaction bumped the version before the call.

use super::{CatalogSnapshot, store};
use crate::error::Result;
use inkling_storage::engine::Engine;
use inkling_storage::txn::{IsolationLevel, Transaction, TxnSession};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No bump comes so far.
const FIRST_OWN: u64 = 1 << 62;

pub struct CatalogCache {
    engine: Arc<Engine>,
    /// Bumped by every commit that changed the catalog.
    version: AtomicU64,
    current: RwLock<Arc<CatalogSnapshot>>,
    /// Numbers for catalogs that one session sees, unlike any version.
    own: AtomicU64,
    /// Temporary relations changed since the version was bumped.
    untold: AtomicBool,
    /// Held by the one session that reads the catalog; owns the transactions it is read with.
    loader: Mutex<Arc<TxnSession>>,
}

impl CatalogCache {
    /// Reads the catalog for the first time.
    pub fn open(engine: &Arc<Engine>) -> Result<Self> {
        let session = TxnSession::new(engine.as_ref(), 0);
        let cache = CatalogCache {
            engine: Arc::clone(engine),
            version: AtomicU64::new(1),
            current: RwLock::default(),
            own: AtomicU64::new(FIRST_OWN),
            untold: AtomicBool::new(false),
            loader: Mutex::new(session),
        };
        cache.current()?;
        Ok(cache)
    }

    /// The version that a session compares its snapshot's with: one load.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A catalog change was committed and published.
    pub fn bump(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// A version for a catalog that one session sees.
    pub fn own_version(&self) -> u64 {
        self.own.fetch_add(1, Ordering::Relaxed)
    }

    /// Temporary relations have changed, and nobody else is told.
    pub fn note_temporary(&self) {
        self.untold.store(true, Ordering::Release);
    }

    /// For whoever asks about other sessions' temporary relations: the newest snapshot knows those
    /// of this moment.
    pub fn tell_temporary(&self) {
        if self.untold.swap(false, Ordering::AcqRel) {
            self.bump();
        }
    }

    /// The newest snapshot.
    pub fn current(&self) -> Result<Arc<CatalogSnapshot>> {
        let wanted = self.version();
        if let Some(snapshot) = self.at_least(wanted) {
            return Ok(snapshot);
        }
        let session = self.loader.lock();
        // Whoever held the loader before us may have read what we want.
        if let Some(snapshot) = self.at_least(wanted) {
            return Ok(snapshot);
        }
        let version = self.version();
        let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, true);
        let loaded = store::load_snapshot(&self.engine, &mut tx, version);
        let undurable = tx.undurable_seen().get();
        tx.abort(self.engine.as_ref());
        let snapshot = Arc::new(CatalogSnapshot { undurable, ..loaded? });
        *self.current.write() = Arc::clone(&snapshot);
        Ok(snapshot)
    }

    fn at_least(&self, version: u64) -> Option<Arc<CatalogSnapshot>> {
        let current = self.current.read();
        (current.version >= version).then(|| Arc::clone(&current))
    }

    /// The catalog as a transaction that changed it sees it. Its version is that of no other.
    pub fn for_transaction(&self, tx: &mut Transaction) -> Result<Arc<CatalogSnapshot>> {
        store::load_snapshot(&self.engine, tx, CatalogSnapshot::OWN).map(Arc::new)
    }
}
