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
//!   page:   ALL_VISIBLE flag, frame summary      whole page, no tuple is looked at     (read.rs)
//!   tuple:  hints on the page | their twins in the frame       "committed" / "aborted"
//!   session: StatusCache                         a few recent (xid, fate)
//!   engine: status window, then commit log       TxnManager::status
//! ```
//!
//! - A hint says "committed", not when. It suffices below the snapshot's floor, where
//!   every commit is covered by the snapshot (and durable, if it was synchronous). At or
//!   above the floor the status word is asked for its position.
//! - Only final fates are kept anywhere. "Not visible to my snapshot" is no fate (semantics 5).
//! - One's own writes are judged by command ids before anybody else is asked (semantics 6).
//! - A reader that sees the work of a synchronous commit that is not flushed yet remembers its
//!   position in [`Transaction::undurable_seen`] (semantics 29).
//! - With [`HintPolicy::Off`] only the last line of the picture is used; answers are the same.

use super::page::{self, HINT_SHIFT, OFFSET_FROZEN, OFFSET_INVALID};
use super::tuple::TupleRef;
use super::{RowLock, TupleResult};
use crate::ids::{CommandId, Lsn, Xid};
use crate::txn::{CommitStamp, OwnXid, Snapshot, StatusCache, Transaction, TxnManager, XidStatus};
use std::cell::Cell;

/// The four hint bits of a slot, as the buffer frame keeps them.
pub(super) const XMIN_COMMITTED: u8 = 1;
pub(super) const XMIN_ABORTED: u8 = 2;
pub(super) const XMAX_COMMITTED: u8 = 4;
pub(super) const XMAX_ABORTED: u8 = 8;

const _: () = assert!(page::XMIN_COMMITTED >> HINT_SHIFT == XMIN_COMMITTED as u16);
const _: () = assert!(page::XMIN_ABORTED >> HINT_SHIFT == XMIN_ABORTED as u16);
const _: () = assert!(page::XMAX_COMMITTED >> HINT_SHIFT == XMAX_COMMITTED as u16);
const _: () = assert!(page::XMAX_ABORTED >> HINT_SHIFT == XMAX_ABORTED as u16);

/// Which knowledge about fates may be kept beside the status window and the commit log.
/// Answers are the same under every policy; the price is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HintPolicy {
    /// Nothing: every tuple asks the status window or the commit log.
    Off = 0,
    /// Tuple hints, "committed" only once the commit is flushed.
    Flushed = 1,
    /// As `Flushed`, and also when the page's last change is newer than the commit.
    PageLsn = 2,
    /// Tuple hints at once, frame summaries, all-visible flags, the session cache.
    #[default]
    Frame = 3,
}

impl HintPolicy {
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => HintPolicy::Off,
            1 => HintPolicy::Flushed,
            2 => HintPolicy::PageLsn,
            _ => HintPolicy::Frame,
        }
    }

    /// Whether whole-page knowledge may be used.
    #[inline]
    pub const fn page_level(self) -> bool {
        matches!(self, HintPolicy::Frame)
    }
}

/// How often each level gave the answer. Session-local: plain counters.
#[derive(Debug, Default)]
pub struct VisCounters {
    /// Pages taken whole, by the all-visible flag.
    pub pages_all_visible: Cell<u64>,
    /// Pages taken whole, by the frame summary.
    pub pages_by_summary: Cell<u64>,
    /// Tuples judged like the one before: same inserter, nobody deleted them.
    pub by_neighbour: Cell<u64>,
    /// Answers about one xid, by level.
    pub by_hint: Cell<u64>,
    pub by_cache: Cell<u64>,
    pub by_window: Cell<u64>,
    pub by_clog: Cell<u64>,
}

#[inline]
fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl VisCounters {
    pub(super) fn page_all_visible(&self) {
        bump(&self.pages_all_visible);
    }

    pub(super) fn page_by_summary(&self) {
        bump(&self.pages_by_summary);
    }

    pub(super) fn neighbours(&self, n: u64) {
        self.by_neighbour.set(self.by_neighbour.get() + n);
    }
}

/// What a session keeps between statements for the sake of visibility.
///
/// It belongs to one engine: fates of another's transactions must not be mixed in.
#[derive(Debug, Default)]
pub struct VisState {
    pub counters: VisCounters,
    cache: StatusCache,
}

impl VisState {
    pub fn new() -> Self {
        Self::default()
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

/// The verdict of [`Judge::mvcc`] for one tuple that nobody deleted, to be used for the next ones
/// of the same inserter. It is not kept beyond a page.
#[derive(Clone, Copy)]
pub(super) struct Neighbour {
    xmin: u32,
    seen: Seen,
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
}

impl Seen {
    const fn no(learned: u8) -> Self {
        Seen { visible: false, learned, since: Lsn::INVALID }
    }
}

impl Neighbour {
    /// The same verdict, if `t` has the same inserter and nobody deleted it.
    #[inline]
    pub(super) fn judge(this: Option<Self>, t: &TupleRef<'_>) -> Option<Seen> {
        let known = this?;
        (known.xmin == t.xmin_offset() && t.xmax_offset() == OFFSET_INVALID).then_some(known.seen)
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
    /// What became of a transaction that is not one's own.
    #[inline]
    fn fate(&self, xid: Xid) -> XidStatus {
        let cached = self.policy == HintPolicy::Frame;
        if cached && let Some(status) = self.state.cache.known(xid) {
            bump(&self.state.counters.by_cache);
            return status;
        }
        let status =
            if cached { self.state.cache.status(self.txns, xid) } else { self.txns.status(xid) };
        match status {
            XidStatus::Committed(stamp) if stamp.is_settled() => {
                bump(&self.state.counters.by_clog);
            }
            _ => bump(&self.state.counters.by_window),
        }
        status
    }

    /// The hints of a tuple that this policy allows to use.
    #[inline]
    fn hints(&self, t: &TupleRef<'_>, volatile: u8) -> u8 {
        if self.policy == HintPolicy::Off {
            return 0;
        }
        ((t.mask() & page::HINTS) >> HINT_SHIFT) as u8 | volatile
    }

    #[inline]
    fn note_if_undurable(&self, stamp: CommitStamp) -> bool {
        let undurable = stamp.is_sync() && stamp.lsn() > self.flushed;
        if undurable {
            let seen = self.tx.undurable_seen();
            seen.set(seen.get().max(stamp.lsn()));
        }
        undurable
    }

    /// Whether a "committed" hint may be kept now, given the page's last change.
    #[inline]
    pub(super) fn may_hint(&self, stamp: CommitStamp, page_lsn: Lsn) -> bool {
        match self.policy {
            HintPolicy::Off => false,
            HintPolicy::Flushed => stamp.lsn() <= self.flushed,
            // A hint carries no position. Whoever meets a synchronous commit before its flush must
            // learn it (semantics 29), so these get their hint only afterwards.
            HintPolicy::PageLsn => {
                stamp.lsn() <= self.flushed || (!stamp.is_sync() && stamp.lsn() <= page_lsn)
            }
            HintPolicy::Frame => !stamp.is_sync() || stamp.lsn() <= self.flushed,
        }
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
        let hints = self.hints(t, volatile);
        let mut learned = 0;
        let mut since = ALWAYS;
        match t.xmin_offset() {
            OFFSET_FROZEN => {}
            OFFSET_INVALID => return Seen::no(0),
            offset => {
                let xid = page::xid_at(base, offset);
                if hints & XMIN_ABORTED != 0 {
                    bump(&self.state.counters.by_hint);
                    return Seen::no(0);
                }
                if hints & XMIN_COMMITTED != 0 && snapshot.is_below_floor(xid) {
                    bump(&self.state.counters.by_hint);
                    since = snapshot.s;
                } else {
                    match self.tx.is_own(xid) {
                        OwnXid::Live if self.cmin(t) >= self.command => return Seen::no(0),
                        OwnXid::Live => since = Lsn::INVALID,
                        OwnXid::RolledBack => return Seen::no(XMIN_ABORTED & self.keepable()),
                        OwnXid::NotOwn => match self.fate(xid) {
                            XidStatus::InProgress => return Seen::no(0),
                            XidStatus::Aborted => {
                                return Seen::no(XMIN_ABORTED & self.keepable());
                            }
                            XidStatus::Committed(stamp) => {
                                if self.may_hint(stamp, page_lsn) {
                                    learned |= XMIN_COMMITTED;
                                }
                                if !snapshot.covers(stamp) {
                                    return Seen::no(learned);
                                }
                                let undurable = self.note_if_undurable(stamp);
                                since =
                                    if undurable { Lsn::INVALID } else { stamp.lsn().max(ALWAYS) };
                            }
                        },
                    }
                }
            }
        }
        self.mvcc_xmax(snapshot, t, base, hints, page_lsn, Seen { visible: true, learned, since })
    }

    /// The verdict about `t` as one for its neighbours too, if it is: it depends on xmin alone.
    #[inline]
    pub(super) fn for_neighbours(
        &self,
        t: &TupleRef<'_>,
        base: u64,
        seen: Seen,
    ) -> Option<Neighbour> {
        let plain = self.policy == HintPolicy::Frame
            && t.xmax_offset() == OFFSET_INVALID
            && self.tx.is_own(t.xmin(base)) == OwnXid::NotOwn;
        plain.then(|| Neighbour { xmin: t.xmin_offset(), seen })
    }

    /// All bits when hints may be kept at all.
    #[inline]
    fn keepable(&self) -> u8 {
        if self.policy == HintPolicy::Off { 0 } else { u8::MAX }
    }

    /// The second half of [`Self::mvcc`]: inserted visibly, is it also deleted visibly?
    #[inline]
    fn mvcc_xmax(
        &self,
        snapshot: &Snapshot,
        t: &TupleRef<'_>,
        base: u64,
        hints: u8,
        page_lsn: Lsn,
        so_far: Seen,
    ) -> Seen {
        let Seen { mut learned, since, .. } = so_far;
        if t.xmax_offset() == OFFSET_INVALID || t.is_lock_only() || hints & XMAX_ABORTED != 0 {
            return so_far;
        }
        let xid = page::xid_at(base, t.xmax_offset());
        if hints & XMAX_COMMITTED != 0 && snapshot.is_below_floor(xid) {
            bump(&self.state.counters.by_hint);
            return Seen::no(learned);
        }
        match self.tx.is_own(xid) {
            OwnXid::Live => {
                let gone = self.cmax(t) < self.command;
                return Seen { visible: !gone, learned, since: Lsn::INVALID };
            }
            OwnXid::RolledBack => {
                learned |= XMAX_ABORTED & self.keepable();
                return Seen { visible: true, learned, since };
            }
            OwnXid::NotOwn => {}
        }
        match self.fate(xid) {
            XidStatus::InProgress => Seen { visible: true, learned, since: Lsn::INVALID },
            XidStatus::Aborted => {
                learned |= XMAX_ABORTED & self.keepable();
                Seen { visible: true, learned, since }
            }
            XidStatus::Committed(stamp) => {
                if self.may_hint(stamp, page_lsn) {
                    learned |= XMAX_COMMITTED;
                }
                if snapshot.covers(stamp) {
                    self.note_if_undurable(stamp);
                    return Seen::no(learned);
                }
                Seen { visible: true, learned, since: Lsn::INVALID }
            }
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
            OwnXid::NotOwn => match self.fate(xid) {
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
        let hints = self.hints(t, volatile);
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
        let hints = self.hints(t, volatile);
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

/// Is the tuple dead to all, given a horizon? Nobody's own writes are special here.
pub fn vacuum_fate(
    txns: &TxnManager,
    t: &TupleRef<'_>,
    base: u64,
    hints: u8,
    horizon: Lsn,
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
    horizon: Lsn,
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
        XidStatus::Committed(stamp) if stamp.lsn() <= horizon => Fate::Dead,
        XidStatus::Committed(_) => Fate::RecentlyDead(xmax),
    }
}

/// Sets, in the copy of a page that is about to be written, the hints of all transactions whose
/// fate is final and, if committed, durable: the log is flushed to `flushed`.
///
/// The page in memory stays as it is; nothing is dirtied by this. All-visible is not set here:
/// the flag and its map bit go together, and that takes a record.
pub fn hints_on_write_back(copy: &mut crate::page::Page, txns: &TxnManager, flushed: Lsn) {
    if copy.class() != Some(crate::page::PageClass::Heap) || page::check_bounds(copy).is_err() {
        return;
    }
    let base = copy.base();
    let mut last = (Xid::INVALID, None);
    let mut known = |xid: Xid| -> Option<bool> {
        if last.0 != xid {
            let fate = match txns.status(xid) {
                XidStatus::InProgress => None,
                XidStatus::Aborted => Some(false),
                XidStatus::Committed(stamp) => (stamp.lsn() <= flushed).then_some(true),
            };
            last = (xid, fate);
        }
        last.1
    };
    for slot in page::slots(copy) {
        let Some(t) = page::tuple(copy, slot) else { continue };
        let (xmin, xmax, mask) = (t.xmin(base), t.xmax(base), t.mask());
        let mut add = 0;
        if xmin.is_normal() && mask & page::XMIN_HINTS == 0 {
            add |= match known(xmin) {
                Some(true) => page::XMIN_COMMITTED,
                Some(false) => page::XMIN_ABORTED,
                None => 0,
            };
        }
        if xmax.is_normal() && mask & page::XMAX_HINTS == 0 {
            add |= match known(xmax) {
                Some(true) if mask & page::XMAX_LOCK_ONLY == 0 => page::XMAX_COMMITTED,
                // The lock is over: nobody need ask about it again.
                Some(_) => page::XMAX_ABORTED,
                None => 0,
            };
        }
        if add != 0
            && let Ok(mut head) = page::HeaderMut::new(copy, slot)
        {
            head.set_mask(head.mask() | add);
        }
    }
}
