//! Handing out xids, ending transactions, answering for them.
//!
//! ```text
//!   assign_xid ──> word = 0 ... running ... commit: [mutex] record at L, words = L, published = L
//!                                                                 |
//!   snapshot: floor, S = published, announce S <──────────────────+
//!   status(xid): word in the window, else two bits in the commit log
//! ```
//!
//! # Invariants
//!
//! - `published` only grows, and every commit at or before it has its words stored.
//! - `floor` <= every running xid. All xids below have ended, with commits at or before a
//!   position that was published when the floor was stored; their synchronous commits are
//!   durable.
//! - A chunk of the window is dropped only when every accepted snapshot covers its commits and
//!   those are durable, so [`CommitStamp::SETTLED`] answers visibility and durability at once.
//!
//! # Locks
//!
//! `xids` (handing out), `commit` (publishing) and `floor_moving` are leaves with respect to each
//! other: none is taken with another held. Under `commit` the log's insertion lock is taken.

use super::clog::CommitLog;
use super::log::{EndKind, TxnLog};
use super::record::{self, CommitPayload};
use super::slots::{SessionSlot, SlotRegistry};
use super::snapshot::Snapshot;
use super::status::{CommitStamp, XidStatus};
use super::window::{Found, StatusWindow, WindowChunk};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, Xid};
use crate::ssi::{Order, Ssi};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use std::collections::BTreeSet;

/// How many xids one commit may move the floor over: an old transaction's end must not make the
/// next committer walk over millions.
const FLOOR_STEPS: usize = 512;
/// `recent_horizon` is computed anew when this much log was published since.
const HORIZON_SLACK: u64 = 32 * 1024;

/// Which level knew a transaction's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSource {
    SessionCache,
    Window,
    CommitLog,
}

/// A cache line to itself: words that every commit writes are kept from those that all read.
#[repr(align(64))]
struct Line<T>(T);

/// Figures for views and the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnStats {
    pub next_xid: Xid,
    pub floor: Xid,
    pub published: Lsn,
    pub horizon: Lsn,
    /// Chunks of the status window in use, and kept for reuse.
    pub window_chunks: usize,
    pub window_spare: usize,
    /// Sessions that can announce a snapshot.
    pub slots: usize,
}

/// The transactions of one engine. Cheap to clone; clones are the same manager.
#[derive(Clone)]
pub struct TxnManager(Arc<Shared>);

struct Shared {
    window: StatusWindow,
    clog: CommitLog,
    slots: Arc<SlotRegistry>,
    published: Line<AtomicU64>,
    floor: Line<AtomicU64>,
    /// The next xid; written with `xids` held.
    next: Line<AtomicU64>,
    xids: Mutex<()>,
    commit: Line<Mutex<()>>,
    floor_moving: Mutex<()>,
    /// The flushed position that this module heard of last.
    flushed: AtomicU64,
    /// The reads and dependencies of the serializable ones.
    ssi: Ssi,
}

/// Commits stand in the order of their positions.
impl Order for TxnManager {
    fn committed_at(&self, xid: Xid) -> Option<Lsn> {
        self.status(xid).commit().map(|stamp| stamp.lsn())
    }
}

impl TxnManager {
    /// Transactions whose commit log is only in memory, for tests and measurements.
    pub fn in_memory(start: Lsn) -> Result<Self> {
        Self::recover(CommitLog::in_memory(), Xid::FIRST_NORMAL, start)
    }

    /// The transactions after redo: whatever below `next` has no commit bit is aborted, and every
    /// snapshot covers the rest. `end` is the end of the log, all of it durable.
    pub fn recover(clog: CommitLog, next: Xid, end: Lsn) -> Result<Self> {
        Self::recover_with(clog, next, end, &BTreeSet::new())
    }

    /// The same, but for prepared transactions, which go on: `running` are their xids.
    pub fn recover_with(
        clog: CommitLog,
        next: Xid,
        end: Lsn,
        running: &BTreeSet<Xid>,
    ) -> Result<Self> {
        if !end.is_valid() {
            return Err(StorageError::corrupt("the log has no valid end position"));
        }
        let next = next.max(Xid::FIRST_NORMAL);
        clog.ensure(next)?;
        clog.forget_from(next);
        for xid in running {
            clog.keep_in_memory(*xid);
        }
        let floor = running.first().copied().unwrap_or(next);
        let window = StatusWindow::new(next, running, |xid| clog.settled_status(xid));
        Ok(TxnManager(Arc::new(Shared {
            window,
            clog,
            slots: Arc::new(SlotRegistry::new(end)),
            published: Line(AtomicU64::new(end.raw())),
            floor: Line(AtomicU64::new(floor.raw())),
            next: Line(AtomicU64::new(next.raw())),
            xids: Mutex::new(()),
            commit: Line(Mutex::new(())),
            floor_moving: Mutex::new(()),
            flushed: AtomicU64::new(end.raw()),
            ssi: Ssi::new(),
        })))
    }

    /// What became of `xid`. Lock-free; no I/O. Anything but `InProgress` is final.
    ///
    /// A commit counts from its publication on: between its status word and that it is still
    /// `InProgress`. So whoever acts on "committed", keeps a hint of it, or tells a client of it,
    /// and takes a snapshot next, finds it there (semantics 4).
    #[inline]
    pub fn status(&self, xid: Xid) -> XidStatus {
        self.status_and_source(xid).0
    }

    /// As [`Self::status`], with the level that knew.
    #[inline]
    pub fn status_and_source(&self, xid: Xid) -> (XidStatus, StatusSource) {
        let status = match self.0.window.load(xid) {
            Found::Here(word) => match XidStatus::from_word(word) {
                XidStatus::Committed(stamp) if stamp.lsn() > self.published() => {
                    XidStatus::InProgress
                }
                status => status,
            },
            Found::Dropped => return (self.0.clog.settled_status(xid), StatusSource::CommitLog),
            Found::Absent => XidStatus::InProgress,
        };
        (status, StatusSource::Window)
    }

    /// The chunk of the window that `xid` is in.
    pub(super) fn window_chunk(&self, xid: Xid) -> Found<&WindowChunk> {
        self.0.window.chunk(xid)
    }

    /// Whether `xid` still runs: what a waiter asks.
    #[inline]
    pub fn is_running(&self, xid: Xid) -> bool {
        self.status(xid) == XidStatus::InProgress
    }

    /// The next xid, running from now on. `parent` is the enclosing transaction's, if any.
    pub fn assign_xid(&self, parent: Option<Xid>) -> Result<Xid> {
        let shared = &*self.0;
        let (xid, began_chunk) = {
            let _xids = shared.xids.lock();
            let xid = Xid::new(shared.next.0.load(Ordering::Relaxed));
            shared.clog.ensure(xid)?;
            let began_chunk = shared.window.ensure(xid).map_err(|()| StorageError::Limit {
                what: "transaction ids are used up".to_owned(),
            })?;
            shared.next.0.store(xid.next().raw(), Ordering::Release);
            (xid, began_chunk)
        };
        assert!(parent.is_none_or(|p| p < xid), "a child's id is greater than its parent's");
        if began_chunk {
            self.settle();
        }
        Ok(xid)
    }

    /// The xid that the next asker gets.
    pub fn next_xid(&self) -> Xid {
        Xid::new(self.0.next.0.load(Ordering::Acquire))
    }

    /// A place to announce snapshots from, for one session.
    pub fn session_slot(&self) -> SessionSlot {
        self.0.slots.register()
    }

    /// Floor first: the floor that is read was stored when the position read next, or an earlier
    /// one, was published.
    #[inline]
    fn look(&self) -> Snapshot {
        let floor = Xid::new(self.0.floor.0.load(Ordering::Acquire));
        let s = Lsn::new(self.0.published.0.load(Ordering::Acquire));
        Snapshot { s, floor }
    }

    /// A snapshot of now, announced in `slot` in place of what was announced there.
    #[inline]
    pub fn snapshot(&self, slot: &SessionSlot) -> Snapshot {
        loop {
            let snapshot = self.look();
            if slot.announce(snapshot.s) {
                slot.note_floor(snapshot.floor);
                return snapshot;
            }
        }
    }

    /// A snapshot of now, under the protection of the older one that `slot` announces.
    #[inline]
    pub fn snapshot_behind(&self, slot: &SessionSlot) -> Snapshot {
        assert!(slot.announced().is_some(), "an older snapshot is announced");
        self.look()
    }

    /// Makes another session's snapshot usable here. False when it is too old by now.
    pub fn import_snapshot(&self, slot: &SessionSlot, snapshot: &Snapshot) -> bool {
        slot.import(snapshot.s)
    }

    /// The horizon, computed now: no snapshot in use or to come has an S below it. A version is
    /// dead to all iff its deleter committed at or before it (rules H1-H3).
    pub fn horizon(&self) -> Lsn {
        self.0.slots.compute(&self.0.published.0)
    }

    /// A horizon that may lag by a few dozen kilobytes of log: for opportunistic pruning.
    #[inline]
    pub fn recent_horizon(&self) -> Lsn {
        let (horizon, bound) = self.0.slots.last();
        if self.published().bytes_since(bound) <= HORIZON_SLACK { horizon } else { self.horizon() }
    }

    /// Whether what `xid` deleted is dead to all, given a `horizon`.
    #[inline]
    pub fn is_dead_to(&self, deleter: Xid, horizon: Lsn) -> bool {
        self.status(deleter).commit().is_some_and(|stamp| stamp.lsn() <= horizon)
    }

    /// Every xid below has ended. Never greater than the oldest running xid.
    #[inline]
    pub fn floor(&self) -> Xid {
        Xid::new(self.0.floor.0.load(Ordering::Acquire))
    }

    /// Every commit at or before this position can be seen.
    #[inline]
    pub fn published(&self) -> Lsn {
        Lsn::new(self.0.published.0.load(Ordering::Acquire))
    }

    /// The smallest xid for which the status window, not the commit log, may have to answer.
    pub fn oldest_unsettled(&self) -> Xid {
        self.0.window.oldest_unsettled()
    }

    /// Commits `top` and `children` (ascending): one record, one position, visible on return.
    /// On an error nothing has happened and the transaction still runs.
    pub fn commit<L: TxnLog>(
        &self,
        log: &L,
        top: Xid,
        children: &[Xid],
        payload: &CommitPayload,
    ) -> Result<Lsn> {
        self.commit_and(log, top, children, payload, || ())
    }

    /// The same; `also` runs in one step with the record's insertion, as far as those can tell who
    /// look under [`Self::with_commit_mutex`].
    pub(crate) fn commit_and<L: TxnLog>(
        &self,
        log: &L,
        top: Xid,
        children: &[Xid],
        payload: &CommitPayload,
        also: impl FnOnce(),
    ) -> Result<Lsn> {
        let shared = &*self.0;
        let body = record::encode(top, children, payload);
        let record = log.prepare_end(EndKind::Commit, top, &body)?;
        let lsn = {
            let _commit = shared.commit.0.lock();
            let lsn = log.insert_end(record);
            also();
            let fate = XidStatus::Committed(CommitStamp::new(lsn, payload.sync));
            for &xid in children.iter().chain([&top]) {
                shared.clog.set_committed(xid, lsn);
                shared.window.end(xid, fate);
            }
            shared.published.0.store(lsn.raw(), Ordering::Release);
            lsn
        };
        self.note_flushed(log.flushed_to());
        self.move_floor(FLOOR_STEPS);
        Ok(lsn)
    }

    /// Aborts `xid` (a top level or a subtransaction) and `children`. Cannot fail: the record is
    /// left out when the log has no room, since what has no commit record is aborted anyway.
    pub fn abort<L: TxnLog>(
        &self,
        log: &L,
        xid: Xid,
        children: &[Xid],
        payload: &CommitPayload,
    ) -> Option<Lsn> {
        let body = record::encode(xid, children, payload);
        let record = log.prepare_end(EndKind::Abort, xid, &body).ok();
        let lsn = record.map(|record| log.insert_end(record));
        self.abort_unlogged(xid, children);
        lsn
    }

    /// The part of an abort that readers see.
    pub(crate) fn abort_unlogged(&self, xid: Xid, children: &[Xid]) {
        for &xid in children.iter().chain([&xid]) {
            self.0.clog.set_aborted(xid);
            self.0.window.end(xid, XidStatus::Aborted);
        }
        self.move_floor(FLOOR_STEPS);
    }

    /// Runs `f` while no commit is between its record and its status words, so that a position
    /// taken inside is a valid redo point (semantics 28). `f` does no I/O.
    pub fn with_commit_mutex<T>(&self, f: impl FnOnce() -> T) -> T {
        let _commit = self.0.commit.0.lock();
        f()
    }

    /// Housekeeping, called now and then by a background thread: moves the floor over what has
    /// become durable, refreshes the horizon, drops settled chunks.
    pub fn maintain(&self, flushed: Lsn) {
        self.note_flushed(flushed);
        self.move_floor(usize::MAX);
        self.settle();
    }

    fn note_flushed(&self, flushed: Lsn) {
        if self.0.flushed.load(Ordering::Relaxed) < flushed.raw() {
            self.0.flushed.fetch_max(flushed.raw(), Ordering::AcqRel);
        }
    }

    fn settle(&self) -> usize {
        let flushed = Lsn::new(self.0.flushed.load(Ordering::Acquire));
        let covered = self.horizon().min(flushed);
        self.0.window.settle(covered)
    }

    /// Moves the floor over at most `steps` xids that have ended and need no second look.
    fn move_floor(&self, steps: usize) {
        let shared = &*self.0;
        let Some(_moving) = shared.floor_moving.try_lock() else { return };
        let flushed = Lsn::new(shared.flushed.load(Ordering::Acquire));
        // Before the words: a floor over a commit beyond this could meet an older S.
        let published = self.published();
        let next = self.next_xid();
        let start = Xid::new(shared.floor.0.load(Ordering::Relaxed));
        let mut floor = start;
        for _ in 0..steps {
            if floor >= next {
                break;
            }
            match shared.window.load(floor) {
                Found::Here(word) => match XidStatus::from_word(word) {
                    XidStatus::InProgress => break,
                    XidStatus::Aborted => {}
                    XidStatus::Committed(stamp) => {
                        let durable = !stamp.is_sync() || stamp.lsn() <= flushed;
                        if stamp.lsn() > published || !durable {
                            break;
                        }
                    }
                },
                Found::Dropped => {
                    floor = StatusWindow::next_chunk(floor);
                    continue;
                }
                Found::Absent => break,
            }
            floor = floor.next();
        }
        if floor > start {
            shared.floor.0.store(floor.min(next).raw(), Ordering::Release);
        }
    }

    /// Gives up the commit log below `oldest`, whose last occurrences in tuples were resolved
    /// when the log stood at `resolved_at`. False: too early, because a snapshot from before
    /// that is in use (its reader may hold a copy of a page that names such an xid) or a chunk
    /// is not settled. Try again later.
    pub fn truncate_clog(&self, oldest: Xid, resolved_at: Lsn) -> Result<bool> {
        if !self.may_truncate_clog(oldest, resolved_at) {
            return Ok(false);
        }
        self.0.clog.truncate(oldest)?;
        Ok(true)
    }

    /// Whether [`Self::truncate_clog`] would find it late enough. Once true, always true.
    pub fn may_truncate_clog(&self, oldest: Xid, resolved_at: Lsn) -> bool {
        oldest <= self.oldest_unsettled() && self.horizon() >= resolved_at
    }

    /// What serializable transactions have read, and who depends on whom.
    #[inline]
    pub fn ssi(&self) -> &Ssi {
        &self.0.ssi
    }

    /// The two durable bits per xid.
    pub fn clog(&self) -> &CommitLog {
        &self.0.clog
    }

    pub fn stats(&self) -> TxnStats {
        let (window_chunks, window_spare) = self.0.window.chunks();
        TxnStats {
            next_xid: self.next_xid(),
            floor: self.floor(),
            published: self.published(),
            horizon: self.0.slots.last().0,
            window_chunks,
            window_spare,
            slots: self.0.slots.len(),
        }
    }
}
