//! Four questions about a tuple, and where the answers come from.
//!
//! | question                          | function              | answer                          |
//! |-----------------------------------|-----------------------|---------------------------------|
//! | does my snapshot see it?          | [`Judge::mvcc`]       | yes or no                       |
//! | may I write it now?               | [`Judge::update`]     | yes; or who is in the way       |
//! | does it count as there, dirty?    | [`Judge::dirty`]      | yes, no, or whom to wait for    |
//! | is it dead to all?                | [`Judge::vacuum`]     | live, dead, not yet known        |
//!
//! Each needs to know what became of xmin and xmax. The sources, cheapest first, each filled
//! from the one below:
//!
//! ```text
//!   page:    ALL_VISIBLE flag, frame summary, sole inserter     no tuple is looked at
//!   tuple:   hints on the page | their twins in the frame       "committed" / "aborted"
//!   session: StatusCache                                        recent (xid, fate)
//!   engine:  status window, then commit log                     TxnManager::status
//! ```
//!
//! The first is the business of `page_visibility`, which decides a page for all its tuples and
//! comes here with those that hints do not decide.
//!
//! - A hint says "committed", not when. It suffices below the snapshot's floor, where
//!   every commit is covered by the snapshot (and durable, if it was synchronous). At or
//!   above the floor the status word is asked for its position.
//! - Only final fates are kept anywhere. "Not visible to my snapshot" is no fate (semantics 5).
//! - One's own writes are judged by command ids before anybody else is asked (semantics 6).
//! - A reader that sees the work of a synchronous commit that is not flushed yet remembers its
//!   position in [`Transaction::undurable_seen`] (semantics 29).
//! - With [`HintPolicy::Off`] and no session cache only the last line of the picture is used;
//!   answers are the same.

use super::counters::{Level, VisCounters, VisTotals};
use super::hints::HintPolicy;
use super::page::{self, HINT_SHIFT, OFFSET_FROZEN, OFFSET_INVALID};
use super::tuple::TupleRef;
use super::{RowLock, TupleResult};
use crate::engine::Engine;
use crate::ids::{CommandId, Lsn, Xid};
use crate::sync::Arc;
use crate::txn::{
    CommitStamp, Fates, OwnXid, Snapshot, StatusCache, StatusCacheKind, Transaction, TxnManager,
    XidStatus,
};

/// The four hint bits of a slot, as the buffer frame keeps them.
pub(super) const XMIN_COMMITTED: u8 = 1;
pub(super) const XMIN_ABORTED: u8 = 2;
pub(super) const XMAX_COMMITTED: u8 = 4;
pub(super) const XMAX_ABORTED: u8 = 8;

const _: () = assert!(page::XMIN_COMMITTED >> HINT_SHIFT == XMIN_COMMITTED as u16);
const _: () = assert!(page::XMIN_ABORTED >> HINT_SHIFT == XMIN_ABORTED as u16);
const _: () = assert!(page::XMAX_COMMITTED >> HINT_SHIFT == XMAX_COMMITTED as u16);
const _: () = assert!(page::XMAX_ABORTED >> HINT_SHIFT == XMAX_ABORTED as u16);

/// What a session keeps between statements for the sake of visibility.
///
/// It belongs to one engine: fates of another's transactions must not be mixed in.
#[derive(Debug)]
pub struct VisState {
    pub(super) cache: StatusCache,
    /// This session's counters, and the totals that they are part of.
    counted: Option<(Arc<VisCounters>, Arc<VisTotals>)>,
}

impl VisState {
    /// For a session: what it counts shows in the engine's totals, and it remembers fates in the
    /// way that the engine was opened with.
    pub fn new(e: &Engine) -> Self {
        let totals = Arc::clone(&e.heap.visibility);
        let cache = StatusCache::new(e.options().status_cache);
        VisState { cache, counted: Some((totals.join(), totals)) }
    }

    /// For a few questions of the engine's own: counted nowhere, remembering nothing.
    pub fn passing() -> Self {
        VisState { cache: StatusCache::None, counted: None }
    }

    #[inline]
    pub(super) fn counters(&self) -> Option<&VisCounters> {
        self.counted.as_ref().map(|(counters, _)| &**counters)
    }

    /// With another way of remembering, for comparisons.
    pub fn with_cache(mut self, kind: StatusCacheKind) -> Self {
        self.cache = StatusCache::new(kind);
        self
    }
}

impl Drop for VisState {
    fn drop(&mut self) {
        if let Some((counters, totals)) = &self.counted {
            totals.leave(counters);
        }
    }
}

/// Who is asking, and what it may use.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    pub txns: &'a TxnManager,
    pub tx: &'a Transaction,
    /// Effects of earlier commands of `tx` are visible; of this one and later ones not.
    pub command: CommandId,
    pub state: &'a VisState,
    pub policy: HintPolicy,
    /// The log was durable up to here a moment ago.
    pub flushed: Lsn,
}

/// The verdict of [`Judge::mvcc`] and what was learned on the way.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub visible: bool,
    /// Hints that are true about this tuple from now on.
    pub learned: u8,
    /// If visible: the position from which on every snapshot sees it, as far as the page summary
    /// is concerned. Invalid: not to be summarised.
    pub since: Lsn,
    /// The deepest level that was asked.
    pub level: Level,
}

impl Seen {
    const fn no(learned: u8, level: Level) -> Self {
        Seen { visible: false, learned, since: Lsn::INVALID, level }
    }
}

/// The position that a summary uses for "always".
pub(super) const ALWAYS: Lsn = Lsn::new(Lsn::ALIGN);

/// Whether a tuple counts, whoever looks, for a unique check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// It is there: committed or one's own.
    There,
    /// It is not, or no longer, and that is final.
    Gone,
    /// That depends on how this transaction ends.
    WaitFor(Xid),
}

/// What vacuum wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Inserted for good and not deleted.
    Live,
    /// Nobody can see it, now or later.
    Dead,
    /// Deleted for good, but some snapshot may still see it.
    RecentlyDead(Xid),
    InsertInProgress(Xid),
    DeleteInProgress(Xid),
}

/// Whether a transaction's work lies beyond a snapshot.
enum Beyond {
    Yes(Xid),
    No,
    Void,
}

/// One side of a tuple: what became of xmin, or of xmax.
#[derive(Clone, Copy)]
enum Side {
    /// Committed, and nothing more need be known: frozen or hinted.
    Settled,
    /// No transaction at all.
    Never,
    Own,
    Running(Xid),
    Aborted,
    /// The stamp is known, or the hint says "committed" and the xid is below the floor.
    Committed(CommitStamp),
}

impl<'a> Judge<'a> {
    /// What became of a transaction that is not one's own, asked by a snapshot with this floor
    /// (0: asked about now), and which level knew.
    #[inline]
    pub(super) fn fate(&self, xid: Xid, floor: Xid) -> (XidStatus, Level) {
        let (status, source) = self.state.cache.status(self.txns, xid, floor);
        (status, Level::of(source))
    }

    /// As [`Self::fate`], one of many questions in a row.
    #[inline]
    pub(super) fn next_fate(
        &self,
        fates: &mut Fates<'_>,
        xid: Xid,
        floor: Xid,
    ) -> (XidStatus, Level) {
        let ask = |xid| fates.status(xid);
        let (status, source) = self.state.cache.status_by(self.txns, xid, floor, ask);
        (status, Level::of(source))
    }

    /// The hints of a tuple that this policy allows to use.
    #[inline]
    pub(super) fn hints(&self, mask: u16, volatile: u8) -> u8 {
        if !self.policy.uses_hints() {
            return 0;
        }
        ((mask & page::HINTS) >> HINT_SHIFT) as u8 | volatile
    }

    /// Which of the two kinds of hints knew, for a tuple with this mask.
    #[inline]
    pub(super) fn hint_level(mask: u16, bit: u8) -> Level {
        let on_page = ((mask & page::HINTS) >> HINT_SHIFT) as u8 & bit != 0;
        if on_page { Level::TupleHint } else { Level::FrameHint }
    }

    #[inline]
    pub(super) fn note_if_undurable(&self, stamp: CommitStamp) -> bool {
        let undurable = stamp.is_sync() && stamp.lsn() > self.flushed;
        if undurable {
            let seen = self.tx.undurable_seen();
            seen.set(seen.get().max(stamp.lsn()));
        }
        undurable
    }

    /// The hint bit for a commit, if it may be kept now, given the page's last change.
    #[inline]
    pub(super) fn committed(&self, stamp: CommitStamp, page_lsn: Lsn, bit: u8) -> u8 {
        if self.policy.may_keep(stamp, page_lsn, self.flushed) {
            return bit;
        }
        if self.policy.uses_hints()
            && let Some(counters) = self.state.counters()
        {
            counters.hint_refused();
        }
        0
    }

    /// The hint bit for an abort, unless nothing is kept.
    #[inline]
    pub(super) fn aborted(&self, bit: u8) -> u8 {
        if self.policy.uses_hints() { bit } else { 0 }
    }

    #[inline]
    fn pair(&self, t: &TupleRef<'_>) -> (CommandId, CommandId) {
        let cid = t.cid();
        if t.mask() & page::COMBO_CID == 0 {
            return (cid, cid);
        }
        self.tx.cmin_cmax(cid).unwrap_or((cid, cid))
    }

    /// cmin of a tuple that this transaction inserted.
    #[inline]
    pub(super) fn cmin(&self, t: &TupleRef<'_>) -> CommandId {
        self.pair(t).0
    }

    /// cmax of a tuple that this transaction deleted.
    #[inline]
    fn cmax(&self, t: &TupleRef<'_>) -> CommandId {
        self.pair(t).1
    }

    /// Does the snapshot see this tuple? `volatile` are the slot's bits in the frame, read under
    /// the latch under which the tuple is read.
    #[inline]
    pub fn mvcc(
        &self,
        snapshot: &Snapshot,
        t: &TupleRef<'_>,
        base: u64,
        volatile: u8,
        page_lsn: Lsn,
    ) -> Seen {
        let hints = self.hints(t.mask(), volatile);
        let born = self.mvcc_xmin(snapshot, t, base, hints, page_lsn);
        if !born.visible
            || t.xmax_offset() == OFFSET_INVALID
            || t.is_lock_only()
            || hints & XMAX_ABORTED != 0
        {
            return born;
        }
        let dead = self.mvcc_xmax(snapshot, t, base, hints, page_lsn, born.since);
        Seen { learned: born.learned | dead.learned, level: born.level.max(dead.level), ..dead }
    }

    /// The first half: was it inserted, as far as the snapshot can see?
    #[inline]
    pub(super) fn mvcc_xmin(
        &self,
        snapshot: &Snapshot,
        t: &TupleRef<'_>,
        base: u64,
        hints: u8,
        page_lsn: Lsn,
    ) -> Seen {
        let yes = |learned, since, level| Seen { visible: true, learned, since, level };
        let xid = match t.xmin_offset() {
            OFFSET_FROZEN => return yes(0, ALWAYS, Level::TupleHint),
            OFFSET_INVALID => return Seen::no(0, Level::Own),
            offset => page::xid_at(base, offset),
        };
        if hints & XMIN_ABORTED != 0 {
            return Seen::no(0, Self::hint_level(t.mask(), XMIN_ABORTED));
        }
        if hints & XMIN_COMMITTED != 0 && snapshot.is_below_floor(xid) {
            return yes(0, snapshot.s, Self::hint_level(t.mask(), XMIN_COMMITTED));
        }
        match self.tx.is_own(xid) {
            OwnXid::Live if self.cmin(t) >= self.command => return Seen::no(0, Level::Own),
            OwnXid::Live => return yes(0, Lsn::INVALID, Level::Own),
            OwnXid::RolledBack => return Seen::no(self.aborted(XMIN_ABORTED), Level::Own),
            OwnXid::NotOwn => {}
        }
        let (fate, level) = self.fate(xid, snapshot.floor);
        match fate {
            XidStatus::InProgress => Seen::no(0, level),
            XidStatus::Aborted => Seen::no(self.aborted(XMIN_ABORTED), level),
            XidStatus::Committed(stamp) => {
                let learned = self.committed(stamp, page_lsn, XMIN_COMMITTED);
                if !snapshot.covers(stamp) {
                    return Seen::no(learned, level);
                }
                yes(learned, self.since(stamp), level)
            }
        }
    }

    /// From which position on every snapshot sees the work of a commit that this one sees, as far
    /// as page summaries are concerned; notes the commit if it is promised and not yet durable.
    #[inline]
    pub(super) fn since(&self, stamp: CommitStamp) -> Lsn {
        if self.note_if_undurable(stamp) { Lsn::INVALID } else { stamp.lsn().max(ALWAYS) }
    }

    /// The second half: inserted visibly, and xmax is there to be asked about.
    #[inline]
    fn mvcc_xmax(
        &self,
        snapshot: &Snapshot,
        t: &TupleRef<'_>,
        base: u64,
        hints: u8,
        page_lsn: Lsn,
        since: Lsn,
    ) -> Seen {
        let still = |learned, since, level| Seen { visible: true, learned, since, level };
        let xid = page::xid_at(base, t.xmax_offset());
        if hints & XMAX_COMMITTED != 0 && snapshot.is_below_floor(xid) {
            return Seen::no(0, Self::hint_level(t.mask(), XMAX_COMMITTED));
        }
        match self.tx.is_own(xid) {
            OwnXid::Live if self.cmax(t) < self.command => return Seen::no(0, Level::Own),
            OwnXid::Live => return still(0, Lsn::INVALID, Level::Own),
            OwnXid::RolledBack => return still(self.aborted(XMAX_ABORTED), since, Level::Own),
            OwnXid::NotOwn => {}
        }
        let (fate, level) = self.fate(xid, snapshot.floor);
        match fate {
            XidStatus::InProgress => still(0, Lsn::INVALID, level),
            XidStatus::Aborted => still(self.aborted(XMAX_ABORTED), since, level),
            XidStatus::Committed(stamp) => {
                let learned = self.committed(stamp, page_lsn, XMAX_COMMITTED);
                if snapshot.covers(stamp) {
                    self.note_if_undurable(stamp);
                    return Seen::no(learned, level);
                }
                still(learned, Lsn::INVALID, level)
            }
        }
    }

    /// Whose work on this tuple the snapshot does not see: its inserter, if that runs or committed
    /// later; else its deleter, if that does. `None`: there is nothing of that kind, or it is one's
    /// own, or void.
    pub(super) fn beyond(&self, snapshot: &Snapshot, t: &TupleRef<'_>, base: u64) -> Option<Xid> {
        let born = match t.xmin_offset() {
            OFFSET_FROZEN => true,
            OFFSET_INVALID => return None,
            offset => match self.is_beyond(snapshot, page::xid_at(base, offset)) {
                Beyond::Yes(xid) => return Some(xid),
                Beyond::No => true,
                Beyond::Void => false,
            },
        };
        if !born || t.xmax_offset() == OFFSET_INVALID || t.is_lock_only() {
            return None;
        }
        match self.is_beyond(snapshot, page::xid_at(base, t.xmax_offset())) {
            Beyond::Yes(xid) => Some(xid),
            Beyond::No | Beyond::Void => None,
        }
    }

    fn is_beyond(&self, snapshot: &Snapshot, xid: Xid) -> Beyond {
        match self.tx.is_own(xid) {
            OwnXid::Live => return Beyond::No,
            OwnXid::RolledBack => return Beyond::Void,
            OwnXid::NotOwn => {}
        }
        match self.fate(xid, snapshot.floor).0 {
            XidStatus::Aborted => Beyond::Void,
            XidStatus::Committed(stamp) if snapshot.covers(stamp) => Beyond::No,
            XidStatus::Committed(_) | XidStatus::InProgress => Beyond::Yes(xid),
        }
    }

    /// What became of xmin, asked about now, not about a snapshot.
    fn xmin_side(&self, t: &TupleRef<'_>, base: u64, hints: u8) -> Side {
        match t.xmin_offset() {
            OFFSET_FROZEN => Side::Settled,
            OFFSET_INVALID => Side::Never,
            _ if hints & XMIN_COMMITTED != 0 => Side::Settled,
            _ if hints & XMIN_ABORTED != 0 => Side::Aborted,
            offset => self.side(page::xid_at(base, offset)),
        }
    }

    fn xmax_side(&self, t: &TupleRef<'_>, base: u64, hints: u8) -> Side {
        match t.xmax_offset() {
            OFFSET_INVALID => Side::Never,
            _ if hints & XMAX_ABORTED != 0 => Side::Aborted,
            _ if hints & XMAX_COMMITTED != 0 => Side::Settled,
            offset => self.side(page::xid_at(base, offset)),
        }
    }

    fn side(&self, xid: Xid) -> Side {
        match self.tx.is_own(xid) {
            OwnXid::Live => Side::Own,
            OwnXid::RolledBack => Side::Aborted,
            OwnXid::NotOwn => match self.fate(xid, Xid::INVALID).0 {
                XidStatus::InProgress => Side::Running(xid),
                XidStatus::Aborted => Side::Aborted,
                XidStatus::Committed(stamp) => Side::Committed(stamp),
            },
        }
    }

    /// May this transaction take `wanted` on the tuple now? In-memory lock holders are another
    /// question (`rowlock`). `Ok` carries whether xmax is this transaction's own live lock.
    pub fn update(
        &self,
        t: &TupleRef<'_>,
        base: u64,
        volatile: u8,
        wanted: RowLock,
    ) -> TupleResult<()> {
        let hints = self.hints(t.mask(), volatile);
        match self.xmin_side(t, base, hints) {
            Side::Settled => {}
            Side::Committed(stamp) => {
                self.note_if_undurable(stamp);
            }
            Side::Own if self.cmin(t) >= self.command => return TupleResult::Invisible,
            Side::Own => {}
            Side::Never | Side::Aborted | Side::Running(_) => return TupleResult::Invisible,
        }
        let xmax = t.xmax(base);
        let held = held_strength(t);
        match self.xmax_side(t, base, hints) {
            Side::Never | Side::Aborted => TupleResult::Ok(()),
            Side::Own if t.is_lock_only() => TupleResult::Ok(()),
            Side::Own if self.cmax(t) >= self.command => TupleResult::SelfModified,
            Side::Own => TupleResult::Invisible,
            Side::Running(xid) if held.conflicts(wanted) => TupleResult::BeingModified(xid),
            Side::Running(_) => TupleResult::Ok(()),
            Side::Settled | Side::Committed(_) if t.is_lock_only() => TupleResult::Ok(()),
            Side::Settled => replaced(t, xmax),
            Side::Committed(stamp) => {
                self.note_if_undurable(stamp);
                replaced(t, xmax)
            }
        }
    }

    /// Does the tuple count for a unique check? Own changes count whatever their command.
    pub fn dirty(&self, t: &TupleRef<'_>, base: u64, volatile: u8) -> Dirty {
        let hints = self.hints(t.mask(), volatile);
        match self.xmin_side(t, base, hints) {
            Side::Settled | Side::Own => {}
            Side::Committed(stamp) => {
                self.note_if_undurable(stamp);
            }
            Side::Never | Side::Aborted => return Dirty::Gone,
            Side::Running(xid) => return Dirty::WaitFor(xid),
        }
        if t.is_lock_only() {
            return Dirty::There;
        }
        match self.xmax_side(t, base, hints) {
            Side::Never | Side::Aborted => Dirty::There,
            Side::Own | Side::Settled => Dirty::Gone,
            Side::Running(xid) => Dirty::WaitFor(xid),
            Side::Committed(stamp) => {
                self.note_if_undurable(stamp);
                Dirty::Gone
            }
        }
    }
}

fn replaced(t: &TupleRef<'_>, xmax: Xid) -> TupleResult<()> {
    match t.next() {
        Some(next) => TupleResult::Updated { next, xmax },
        None => TupleResult::Deleted,
    }
}

/// The strength of what stands in xmax: a lock's own, or that of the change.
pub(super) fn held_strength(t: &TupleRef<'_>) -> RowLock {
    if t.is_lock_only() {
        RowLock::from_bits((t.mask2() & page::STRENGTH_MASK) >> page::STRENGTH_SHIFT)
    } else if t.mask2() & page::KEYS_UPDATED != 0 {
        RowLock::Update
    } else {
        RowLock::NoKeyUpdate
    }
}

/// What a deletion must be at or before so that the version can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Every snapshot in use or to come is at or after this.
    pub seen: Lsn,
    /// The log is durable up to here.
    pub flushed: Lsn,
}

impl Horizon {
    /// Which deletions have happened at all, whoever may still see what they deleted.
    pub const ALL: Horizon = Horizon { seen: Lsn::MAX, flushed: Lsn::MAX };

    /// Computed now.
    pub fn of(e: &Engine) -> Self {
        Horizon { seen: e.txns.horizon(), flushed: e.wal.flushed() }
    }

    /// One that may lag, for opportunistic removal.
    pub fn recent(e: &Engine) -> Self {
        Horizon { seen: e.txns.recent_horizon(), flushed: e.wal.flushed() }
    }

    /// Whether a version that `stamp` deleted can go. As long as the deletion is promised and not
    /// durable, whoever misses the row has to learn of it and wait (semantics 29), so the version
    /// stays as the evidence, unless its successor in a HOT chain is (`has_heir`): that one bears
    /// the same xid.
    #[inline]
    pub(super) fn passed(&self, stamp: CommitStamp, has_heir: bool) -> bool {
        stamp.lsn() <= self.seen && (!stamp.is_sync() || stamp.lsn() <= self.flushed || has_heir)
    }
}

/// Is the tuple dead to all, given a horizon? Nobody's own writes are special here.
pub fn vacuum_fate(
    txns: &TxnManager,
    t: &TupleRef<'_>,
    base: u64,
    hints: u8,
    horizon: Horizon,
) -> Fate {
    fate_by(|xid| txns.status(xid), t, base, hints, horizon)
}

/// As [`vacuum_fate`], with the status asked of `status`.
#[inline]
pub(super) fn fate_by(
    mut status: impl FnMut(Xid) -> XidStatus,
    t: &TupleRef<'_>,
    base: u64,
    hints: u8,
    horizon: Horizon,
) -> Fate {
    let xmin = t.xmin(base);
    match t.xmin_offset() {
        OFFSET_FROZEN => {}
        OFFSET_INVALID => return Fate::Dead,
        _ if hints & XMIN_ABORTED != 0 => return Fate::Dead,
        _ if hints & XMIN_COMMITTED != 0 => {}
        _ => match status(xmin) {
            XidStatus::InProgress => return Fate::InsertInProgress(xmin),
            XidStatus::Aborted => return Fate::Dead,
            XidStatus::Committed(_) => {}
        },
    }
    let xmax = t.xmax(base);
    if !xmax.is_normal() || t.is_lock_only() || hints & XMAX_ABORTED != 0 {
        return Fate::Live;
    }
    match status(xmax) {
        XidStatus::InProgress => Fate::DeleteInProgress(xmax),
        XidStatus::Aborted => Fate::Live,
        XidStatus::Committed(stamp) if horizon.passed(stamp, t.is_hot_updated()) => Fate::Dead,
        XidStatus::Committed(_) => Fate::RecentlyDead(xmax),
    }
}
