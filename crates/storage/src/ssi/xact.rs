//! One serializable transaction, and where it stands in the commit order.
//!
//! ```text
//!   Running ──prepare──> Prepared ──(published)──> commit──> Committed(L) ──> forgotten
//!      │  └─doom─> (doomed)  │                                     └──> summarised
//!      └──────── abort ──────┴──> forgotten at once
//! ```

use super::Order;
use super::locks::Held;
use crate::ids::{Lsn, Xid};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::wait::Event;
use smallvec::SmallVec;

/// Names a transaction within the kernel; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SxId(pub(super) u64);

/// What a transaction looks at without the mutex.
#[derive(Debug)]
pub(super) struct Marks {
    pub id: SxId,
    bits: AtomicU8,
}

const DOOMED: u8 = 1;
const SAFE: u8 = 2;

impl Marks {
    pub fn new(id: SxId) -> Arc<Self> {
        Arc::new(Marks { id, bits: AtomicU8::new(0) })
    }

    fn has(&self, bit: u8) -> bool {
        self.bits.load(Ordering::Acquire) & bit != 0
    }

    /// With the mutex held.
    fn set(&self, bit: u8) {
        self.bits.fetch_or(bit, Ordering::AcqRel);
    }

    pub fn is_doomed(&self) -> bool {
        self.has(DOOMED)
    }
    pub fn is_safe(&self) -> bool {
        self.has(SAFE)
    }
    pub fn doom(&self) {
        self.set(DOOMED);
    }
    pub fn make_safe(&self) {
        self.set(SAFE);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Running,
    /// Has passed its last check: it will commit, or wait as a prepared transaction.
    Prepared,
    /// At its commit's position; at its snapshot if it wrote nothing.
    Committed(Lsn),
}

/// A place in the commit order (rule D2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Running,
    Prepared,
    At(Lsn),
}

impl Place {
    /// Whether `self`, as Tout, may have committed before `other`. The same position is the same
    /// transaction: Tin may be Tout.
    pub fn may_precede(self, other: Place) -> bool {
        match (self, other) {
            (Place::Running, _) => false,
            (Place::At(a), Place::At(b)) => a <= b,
            (Place::Prepared, Place::At(_)) => false,
            (Place::At(_) | Place::Prepared, Place::Prepared | Place::Running) => true,
        }
    }

    /// The earlier of two, for the first of several Touts.
    pub fn earlier(self, other: Place) -> Place {
        match (self, other) {
            (Place::At(a), Place::At(b)) => Place::At(a.min(b)),
            (at @ Place::At(_), _) | (_, at @ Place::At(_)) => at,
            (Place::Prepared, _) | (_, Place::Prepared) => Place::Prepared,
            (Place::Running, Place::Running) => Place::Running,
        }
    }
}

pub(super) type Edges = SmallVec<[SxId; 4]>;

#[derive(Debug)]
pub(super) struct Xact {
    pub marks: Arc<Marks>,
    pub pid: i32,
    pub snapshot: Lsn,
    /// Declared so, or found so at its end.
    pub read_only: bool,
    pub stage: Stage,
    /// Its own and its subtransactions', the top one first.
    pub xids: SmallVec<[Xid; 1]>,
    /// Who read what this one overwrote.
    pub ins: Edges,
    /// Whose writes this one did not see.
    pub outs: Edges,
    /// The first commit among those that it has, or had, an edge to; MAX: none.
    pub earliest_out: Lsn,
    /// The newest commit among summarised transactions with an edge to it; invalid: none.
    pub summary_in: Lsn,
    pub held: Held,
    /// Of a read-only one: running writers that could still make its snapshot unsafe.
    pub unsafe_with: Edges,
    /// Of a writer: read-only ones that it is on the list of.
    pub watchers: Edges,
    /// A DEFERRABLE one that waits.
    pub waits: Option<Event>,
}

impl Xact {
    pub fn new(marks: Arc<Marks>, pid: i32, snapshot: Lsn, read_only: bool) -> Self {
        Xact {
            marks,
            pid,
            snapshot,
            read_only,
            stage: Stage::Running,
            xids: SmallVec::new(),
            ins: Edges::new(),
            outs: Edges::new(),
            earliest_out: Lsn::MAX,
            summary_in: Lsn::INVALID,
            held: Held::default(),
            unsafe_with: Edges::new(),
            watchers: Edges::new(),
            waits: None,
        }
    }

    pub fn is_doomed(&self) -> bool {
        self.marks.is_doomed()
    }

    pub fn place(&self, order: &impl Order) -> Place {
        match (self.stage, self.xids.first()) {
            (Stage::Running, _) => Place::Running,
            (Stage::Committed(lsn), _) => Place::At(lsn),
            (Stage::Prepared, None) => Place::Prepared,
            (Stage::Prepared, Some(top)) => {
                order.committed_at(*top).map_or(Place::Prepared, Place::At)
            }
        }
    }
}

/// Adds to a sorted list; false: it was there.
pub(super) fn join(list: &mut Edges, id: SxId) -> bool {
    match list.binary_search(&id) {
        Ok(_) => false,
        Err(at) => {
            list.insert(at, id);
            true
        }
    }
}

pub(super) fn leave(list: &mut Edges, id: SxId) {
    if let Ok(at) = list.binary_search(&id) {
        list.remove(at);
    }
}
