//! One session's running transaction.
//!
//! ```text
//!   begin ──> no xid ──xid()──> running ──┬─ commit ──> visible ──> (flush) ──> answer
//!               │                         ├─ abort
//!               │                         └─ drop: aborted without a record
//!               └── commit of a reader: nothing is written, nothing is waited for
//!
//!   levels:  [top] [a] [b]      savepoint pushes, release merges into the one outside,
//!             x10   -   -       rollback_to ends what was done since and begins the level anew
//! ```
//!
//! # Guarantees
//!
//! - An xid is taken when the first change needs one, parents first, so a child's is greater than
//!   its parent's (semantics 12). A level without changes has none.
//! - Everything at or above a level's xid was begun inside it or a level within. Rolling it back
//!   is "abort my live subtransactions from that xid on".
//! - Commit publishes once, for the top and all live subtransactions (semantics 2).
//! - The session's slot announces the oldest snapshot in use; a snapshot that this type returned
//!   stays usable until the statement, the hold or the transaction that it belongs to ends.
//!
//! # What it does not do
//!
//! It does not know SQL's states ("aborted until end of block"), nor enforce READ ONLY; it does
//! not decide the durability level, but keeps the list of relations written for whoever does.

use super::combo::ComboCids;
use super::log::{TxnHost, TxnLog};
use super::record::CommitPayload;
use super::session::{SnapshotHold, SnapshotSet, TxnSession};
use super::snapshot::Snapshot;
use crate::error::{Result, StorageError};
use crate::ids::{CommandId, Lsn, RelId, Xid};
use crate::lock::LockOwner;
use crate::ssi::{Safety, Sx};
use crate::sync::Arc;
use crate::wait::WaitHandle;
use smallvec::SmallVec;
use std::cell::Cell;

/// SQL's isolation levels. READ UNCOMMITTED is READ COMMITTED.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum IsolationLevel {
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl IsolationLevel {
    /// One snapshot for the whole transaction.
    pub const fn keeps_snapshot(self) -> bool {
        !matches!(self, IsolationLevel::ReadCommitted)
    }
}

/// How much of a commit a crash may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitMode {
    /// Nothing: the client is told after the flush.
    Sync,
    /// The commit is flushed within this time.
    Async { max_loss_micros: u64 },
    /// Everything, and nobody would miss it: a crash empties whatever the transaction wrote
    /// (unlogged and temporary relations). Nobody asks for a flush, now or later.
    NothingToLose,
}

/// What is left to do when a commit has become visible.
#[derive(Debug)]
#[must_use]
pub struct CommitOutcome {
    /// The commit's position; `None` when nothing was written.
    pub lsn: Option<Lsn>,
    /// Tell the client when this completes.
    pub wait: Option<WaitHandle>,
    /// Relations dropped by the transaction: remove their files when `wait` has completed and
    /// the log did not fail.
    pub unlinks: Vec<RelId>,
    /// The relations that it wrote.
    pub written: Written,
}

/// What is left to be done for a transaction whose end is another's business.
pub(crate) struct Testament {
    /// Its live subtransactions, ascending.
    pub children: Vec<Xid>,
    /// Relations whose files go if it is rolled back, and those that go if it commits.
    pub created: Vec<RelId>,
    pub dropped: Vec<RelId>,
    pub written: Written,
}

/// Relations whose rows a transaction wrote, each once.
pub type Written = SmallVec<[RelId; 8]>;

/// Whether an xid belongs to this transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnXid {
    NotOwn,
    /// The top level, or a subtransaction that is open or released.
    Live,
    /// A subtransaction that was rolled back: aborted.
    RolledBack,
}

/// The top level or a savepoint.
struct Level {
    name: Option<String>,
    xid: Option<Xid>,
    /// How many relations had been written when it began.
    written_before: usize,
}

struct SubXid {
    xid: Xid,
    live: bool,
}

/// A relation made or dropped at some level, to be unlinked if that aborts or commits.
#[derive(Clone, Copy)]
struct PendingRel {
    rel: RelId,
    level: usize,
}

/// No xid is at or above this.
const NO_XID: u64 = u64::MAX;

/// See the module's essay.
pub struct Transaction {
    session: Arc<TxnSession>,
    isolation: IsolationLevel,
    read_only: bool,
    /// The top xid, or [`NO_XID`]: the one comparison of the common own-xid test.
    own_from: u64,
    levels: SmallVec<[Level; 2]>,
    /// Subtransactions that took an xid, ascending.
    sub_xids: Vec<SubXid>,
    command: CommandId,
    combos: ComboCids,
    snapshots: SnapshotSet,
    created: Vec<PendingRel>,
    dropped: Vec<PendingRel>,
    dropped_temporary: Vec<PendingRel>,
    written: Written,
    undurable_seen: Cell<Lsn>,
    deferrable: bool,
    /// While it is SERIALIZABLE, has a snapshot, and the snapshot is not known to be safe.
    watched: Option<Sx>,
    /// DEFERRABLE, and nothing was read yet with the snapshot that there is.
    awaits_safe: bool,
    ended: bool,
}

impl Transaction {
    /// Begins a transaction. Costs nothing that others could notice.
    pub fn begin(session: &Arc<TxnSession>, isolation: IsolationLevel, read_only: bool) -> Self {
        session.owner.begin_transaction();
        let top = Level { name: None, xid: None, written_before: 0 };
        Transaction {
            session: Arc::clone(session),
            isolation,
            read_only,
            own_from: NO_XID,
            levels: SmallVec::from_iter([top]),
            sub_xids: Vec::new(),
            command: CommandId::FIRST,
            combos: ComboCids::default(),
            snapshots: SnapshotSet::default(),
            created: Vec::new(),
            dropped: Vec::new(),
            dropped_temporary: Vec::new(),
            written: Written::new(),
            undurable_seen: Cell::new(Lsn::INVALID),
            deferrable: false,
            watched: None,
            awaits_safe: false,
            ended: false,
        }
    }

    pub fn session(&self) -> &Arc<TxnSession> {
        &self.session
    }

    pub fn lock_owner(&self) -> &LockOwner {
        self.session.owner()
    }

    pub fn isolation(&self) -> IsolationLevel {
        self.isolation
    }

    /// Before the first statement only.
    pub fn set_isolation(&mut self, isolation: IsolationLevel) {
        assert!(self.snapshots.current().is_none(), "no snapshot was taken yet");
        self.isolation = isolation;
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
    }

    pub fn is_deferrable(&self) -> bool {
        self.deferrable
    }

    /// Before the first statement only: READ ONLY and SERIALIZABLE, it waits for a safe snapshot.
    pub fn set_deferrable(&mut self, deferrable: bool) {
        self.deferrable = deferrable;
    }

    // --- xids ---

    /// The xid to write under: the current level's, taken now if need be.
    #[inline]
    pub fn xid(&mut self, host: &impl TxnHost) -> Result<Xid> {
        match self.levels.last().and_then(|level| level.xid) {
            Some(xid) => Ok(xid),
            None => self.assign_xids(host),
        }
    }

    /// Takes xids for the current level and the levels outside that have none, outermost first.
    #[cold]
    fn assign_xids(&mut self, host: &impl TxnHost) -> Result<Xid> {
        // The levels that have one are the outermost.
        let first = self.levels.iter().rposition(|level| level.xid.is_some());
        let mut parent = first.and_then(|at| self.levels[at].xid);
        for depth in first.map_or(0, |at| at + 1)..self.levels.len() {
            let xid = host.txns().assign_xid(parent)?;
            self.levels[depth].xid = Some(xid);
            self.session.owner.hold_xid(xid, depth == 0);
            if let Some(sx) = &self.watched {
                self.session.txns.ssi().note_xid(sx, xid);
            }
            if depth == 0 {
                self.own_from = xid.raw();
            } else {
                self.sub_xids.push(SubXid { xid, live: true });
            }
            parent = Some(xid);
        }
        Ok(parent.expect("there is always a top level"))
    }

    /// The top level's xid, if it has one.
    #[inline]
    pub fn top_xid(&self) -> Option<Xid> {
        (self.own_from != NO_XID).then(|| Xid::new(self.own_from))
    }

    /// The current level's xid, if it has one.
    pub fn current_xid(&self) -> Option<Xid> {
        self.levels.last().and_then(|level| level.xid)
    }

    /// Whether `xid` is one of this transaction's. One or two comparisons unless there are
    /// subtransactions.
    #[inline]
    pub fn is_own(&self, xid: Xid) -> OwnXid {
        if xid.raw() < self.own_from {
            OwnXid::NotOwn
        } else if xid.raw() == self.own_from {
            OwnXid::Live
        } else if self.sub_xids.is_empty() {
            OwnXid::NotOwn
        } else {
            self.is_own_sub(xid)
        }
    }

    fn is_own_sub(&self, xid: Xid) -> OwnXid {
        match self.sub_xids.binary_search_by_key(&xid, |sub| sub.xid) {
            Ok(at) if self.sub_xids[at].live => OwnXid::Live,
            Ok(_) => OwnXid::RolledBack,
            Err(_) => OwnXid::NotOwn,
        }
    }

    fn live_sub_xids_from(&self, first: Xid) -> Vec<Xid> {
        let from = self.sub_xids.partition_point(|sub| sub.xid < first);
        self.sub_xids[from..].iter().filter(|sub| sub.live).map(|sub| sub.xid).collect()
    }

    // --- commands ---

    #[inline]
    pub fn command_id(&self) -> CommandId {
        self.command
    }

    /// Makes what was written so far visible to what follows.
    pub fn next_command(&mut self) -> Result<()> {
        self.command = self.command.next().ok_or_else(|| StorageError::Limit {
            what: "cannot have more than 2^32-2 commands in a transaction".to_owned(),
        })?;
        Ok(())
    }

    /// The command id to store in a row of one's own that one deletes.
    pub fn combo(&mut self, cmin: CommandId, cmax: CommandId) -> Result<CommandId> {
        self.combos.number(cmin, cmax)
    }

    /// What a combined command id stands for; `None` when it is not this transaction's.
    #[inline]
    pub fn cmin_cmax(&self, combo: CommandId) -> Option<(CommandId, CommandId)> {
        self.combos.pair(combo)
    }

    // --- snapshots ---

    /// The snapshot for a statement that begins: a new one in READ COMMITTED, else the
    /// transaction's, taken by its first statement.
    #[inline]
    pub fn statement_snapshot(&mut self) -> Snapshot {
        match self.snapshots.current() {
            Some(snapshot) if self.isolation.keeps_snapshot() => snapshot,
            None if self.isolation == IsolationLevel::Serializable => self.watched_snapshot(),
            _ => self.snapshots.renew(&self.session),
        }
    }

    /// The snapshot of a serializable transaction, taken together with its entry among those that
    /// are watched.
    #[cold]
    fn watched_snapshot(&mut self) -> Snapshot {
        let (session, snapshots) = (&self.session, &mut self.snapshots);
        let top = self.levels.first().and_then(|level| level.xid);
        let xids: Vec<Xid> = top.into_iter().chain(self.sub_xids.iter().map(|s| s.xid)).collect();
        let pid = session.owner.pid();
        let take = || snapshots.renew(session).s;
        let (ssi, order) = (session.txns.ssi(), &session.txns);
        self.watched = ssi.begin(order, pid, self.read_only, &xids, take);
        self.snapshots.current().expect("just taken")
    }

    /// What a SERIALIZABLE READ ONLY DEFERRABLE transaction has to wait for before its first
    /// statement: to be asked again after the wait, until there is nothing more.
    pub fn await_safe_snapshot(&mut self) -> Option<WaitHandle> {
        if !self.deferrable || self.isolation != IsolationLevel::Serializable || !self.read_only {
            return None;
        }
        self.awaits_safe |= self.snapshots.current().is_none();
        while self.awaits_safe {
            self.statement_snapshot();
            let Some(sx) = &self.watched else {
                self.awaits_safe = false;
                break;
            };
            match self.session.txns.ssi().safety(sx) {
                Safety::Safe => self.watched = None,
                Safety::Wait(handle) => return Some(handle),
                Safety::Unsafe => {
                    self.session.txns.ssi().abort(&self.session.txns, sx);
                    self.watched = None;
                    self.snapshots.clear(&self.session);
                }
            }
        }
        None
    }

    /// Whether it waits for a safe snapshot now.
    pub fn awaits_safe_snapshot(&self) -> bool {
        self.awaits_safe
    }

    /// Who locks what it reads and checks what it writes: a SERIALIZABLE transaction, unless its
    /// snapshot is safe.
    #[inline]
    pub fn watched(&self) -> Option<&Sx> {
        match &self.watched {
            None => None,
            Some(sx) => (!sx.is_safe()).then_some(sx),
        }
    }

    /// Fails when a serializable transaction has become a victim.
    #[inline]
    pub fn check_victim(&self) -> Result<()> {
        self.watched.as_ref().map_or(Ok(()), Sx::check)
    }

    /// The snapshot of the current statement, or of the transaction.
    #[inline]
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.snapshots.current()
    }

    /// A snapshot of now whatever the isolation level (foreign-key checks, catalog look-ups).
    /// Usable until the statement ends.
    pub fn latest_snapshot(&mut self) -> Snapshot {
        self.snapshots.take_extra(&self.session)
    }

    /// The statement has ended. In READ COMMITTED its snapshot holds nothing back any more.
    pub fn end_statement(&mut self) {
        self.snapshots.end_statement(&self.session, self.isolation.keeps_snapshot());
    }

    /// Keeps a snapshot in use now usable beyond its statement (a cursor's).
    pub fn hold_snapshot(&mut self, snapshot: Snapshot) -> SnapshotHold {
        self.snapshots.hold(snapshot)
    }

    pub fn release_snapshot(&mut self, hold: SnapshotHold) {
        self.snapshots.unhold(hold, &self.session);
    }

    /// Makes an exported snapshot this transaction's. False when it is too old by now.
    pub fn import_snapshot(&mut self, snapshot: Snapshot) -> bool {
        assert!(self.isolation.keeps_snapshot(), "READ COMMITTED keeps no snapshot");
        assert!(self.snapshots.current().is_none(), "no statement has run yet");
        let usable = self.session.txns.import_snapshot(&self.session.slot, &snapshot);
        if usable {
            self.snapshots.set_current(snapshot);
        }
        usable
    }

    // --- what the outcome depends on ---

    /// Notes that a relation was written, for the choice of the durability level (D2).
    #[inline]
    pub fn note_write(&mut self, rel: RelId) {
        if self.written.last() != Some(&rel) && !self.written.contains(&rel) {
            self.written.push(rel);
        }
    }

    /// The relations written so far. What only a rolled-back savepoint wrote is not among them.
    pub fn written(&self) -> &[RelId] {
        &self.written
    }

    /// The relation's files exist from now on, and go if this level is rolled back.
    pub fn note_created(&mut self, rel: RelId) {
        let level = self.levels.len();
        self.created.push(PendingRel { rel, level });
    }

    /// The relation's files go if this level, and all outside, commit.
    pub fn note_dropped(&mut self, rel: RelId) {
        let level = self.levels.len();
        self.dropped.push(PendingRel { rel, level });
    }

    /// Whether a commit would remove files that a crash would not.
    pub fn drops_files(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// As [`Self::note_dropped`], for a temporary relation: its files go with the commit, which
    /// need not be durable.
    pub fn note_dropped_temporary(&mut self, rel: RelId) {
        let level = self.levels.len();
        self.dropped_temporary.push(PendingRel { rel, level });
    }

    /// Whether the current level, or one released into it, made the relation: nobody else can see
    /// it, and what is done to it cannot be undone but together with it.
    pub fn created_here(&self, rel: RelId) -> bool {
        let level = self.levels.len();
        self.created.iter().any(|pending| pending.rel == rel && pending.level == level)
    }

    /// The newest synchronous commit that a visibility check met before it was durable: no byte
    /// of an answer leaves before the log is flushed that far (semantics 29).
    #[inline]
    pub fn undurable_seen(&self) -> &Cell<Lsn> {
        &self.undurable_seen
    }

    /// What the answer has to wait for, if anything.
    pub fn answer_wait(&self, log: &impl TxnLog) -> Option<WaitHandle> {
        let seen = self.undurable_seen.get();
        if !seen.is_valid() || seen <= log.flushed_to() {
            return None;
        }
        log.ask_flush(seen)
    }

    // --- savepoints ---

    /// How many levels are open; 1 outside of any savepoint.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Begins a level. Names may repeat; the innermost is meant.
    pub fn savepoint(&mut self, name: impl Into<String>) {
        self.push_level(Some(name.into()));
    }

    /// Begins a level without a name (an exception block); returns its depth.
    pub fn begin_sub(&mut self) -> usize {
        self.push_level(None);
        self.levels.len()
    }

    fn push_level(&mut self, name: Option<String>) {
        self.levels.push(Level { name, xid: None, written_before: self.written.len() });
        self.session.locks.begin_level(&self.session.owner);
    }

    /// The depth of the innermost savepoint of this name.
    pub fn find_savepoint(&self, name: &str) -> Option<usize> {
        let at = self.levels.iter().rposition(|level| level.name.as_deref() == Some(name))?;
        Some(at + 1)
    }

    /// Releases the savepoint and those inside. False when there is none of this name.
    pub fn release(&mut self, name: &str) -> bool {
        let found = self.find_savepoint(name);
        if let Some(depth) = found {
            self.release_sub(depth);
        }
        found.is_some()
    }

    /// Ends well the level at `depth` and those inside.
    pub fn release_sub(&mut self, depth: usize) {
        assert!(depth > 1 && depth <= self.levels.len(), "a savepoint's depth");
        let levels = self.levels.len() + 1 - depth;
        self.session.locks.merge_levels(&self.session.owner, levels);
        self.levels.truncate(depth - 1);
        for list in [&mut self.created, &mut self.dropped, &mut self.dropped_temporary] {
            // The last were noted at the deepest levels.
            for pending in list.iter_mut().rev().take_while(|p| p.level >= depth) {
                pending.level = depth - 1;
            }
        }
    }

    /// Undoes everything since the savepoint, which stays. False when there is none of this name.
    pub fn rollback_to(&mut self, host: &impl TxnHost, name: &str) -> bool {
        let Some(depth) = self.find_savepoint(name) else { return false };
        let name = self.levels[depth - 1].name.take();
        self.rollback_sub(host, depth);
        self.push_level(name);
        true
    }

    /// Undoes everything since the innermost savepoint, which stays: a statement has failed, and
    /// what was locked since must not keep others waiting until the client has read of it.
    pub fn rollback_innermost(&mut self, host: &impl TxnHost) {
        let depth = self.levels.len();
        let name = self.levels[depth - 1].name.take();
        self.rollback_sub(host, depth);
        self.push_level(name);
    }

    /// Rolls back the level at `depth` and those inside, which are gone then.
    pub fn rollback_sub(&mut self, host: &impl TxnHost, depth: usize) {
        assert!(depth > 1 && depth <= self.levels.len(), "a savepoint's depth");
        let unlinks = take_from(&mut self.created, depth);
        take_from(&mut self.dropped, depth);
        take_from(&mut self.dropped_temporary, depth);
        self.written.truncate(self.levels[depth - 1].written_before);
        if let Some(xid) = self.levels[depth - 1].xid {
            let all = self.live_sub_xids_from(xid);
            debug_assert!(all.first() == Some(&xid), "the level itself is live");
            let payload = CommitPayload {
                time_micros: host.unix_micros(),
                unlinks: unlinks.clone(),
                sync: false,
            };
            host.txns().abort(host.txn_log(), xid, &all[1..], &payload);
            let first = self.sub_xids.partition_point(|sub| sub.xid < xid);
            self.sub_xids[first..].iter_mut().for_each(|sub| sub.live = false);
            self.session.owner.drop_sub_xids(xid);
            self.session.locks.xids_ended(all);
        }
        let levels = self.levels.len() + 1 - depth;
        self.session.locks.rollback_levels(&self.session.owner, levels);
        self.levels.truncate(depth - 1);
        if !unlinks.is_empty() {
            host.unlink_rels(&unlinks);
        }
    }

    // --- the end ---

    /// What somebody has to know who ends the transaction in its place.
    pub(crate) fn testament(&self) -> Testament {
        let rels = |pending: &[PendingRel]| pending.iter().map(|p| p.rel).collect();
        Testament {
            children: self.top_xid().map_or_else(Vec::new, |top| self.live_sub_xids_from(top)),
            created: rels(&self.created),
            dropped: rels(&self.dropped),
            written: self.written.clone(),
        }
    }

    /// Whether it made or dropped temporary relations: nobody else could end that.
    pub fn defined_temporary(&self, host: &impl TxnHost) -> bool {
        let made = |p: &PendingRel| host.is_temporary(p.rel);
        !self.dropped_temporary.is_empty() || self.created.iter().any(made)
    }

    /// Goes on without its session: xids and locks are `heir`'s, who ends it one day.
    pub(crate) fn leave_to(mut self, heir: &TxnSession) {
        let session = &self.session;
        session.locks.pass_on(&session.owner, &heir.owner);
        session.owner.end_transaction();
        self.snapshots.clear(session);
        self.ended = true;
    }

    /// Commits. On return everything is visible and unlocked; `CommitOutcome::wait` says when the
    /// client may be told. On an error the transaction has been aborted.
    pub fn commit(mut self, host: &impl TxnHost, mode: CommitMode) -> Result<CommitOutcome> {
        if let Some(sx) = &self.watched
            && let Err(error) = self.session.txns.ssi().prepare(&self.session.txns, sx)
        {
            self.abort_now(host);
            return Err(error);
        }
        let Some(top) = self.top_xid() else {
            let wait = self.answer_wait(host.txn_log());
            self.watched_committed(Lsn::INVALID);
            self.finish(&[]);
            let (unlinks, written) = Default::default();
            return Ok(CommitOutcome { lsn: None, wait, unlinks, written });
        };
        let children = self.live_sub_xids_from(top);
        let unlinks = take_from(&mut self.dropped, 1);
        let sync = mode == CommitMode::Sync || !unlinks.is_empty();
        let payload =
            CommitPayload { sync, time_micros: host.unix_micros(), unlinks: unlinks.clone() };
        let log = host.txn_log();
        let lsn = match host.txns().commit(log, top, &children, &payload) {
            Ok(lsn) => lsn,
            Err(error) => {
                self.abort_now(host);
                return Err(error);
            }
        };
        self.watched_committed(lsn);
        host.published();
        let wait = if sync {
            log.ask_flush(lsn)
        } else {
            if let CommitMode::Async { max_loss_micros } = mode {
                log.flush_by(lsn, host.monotonic_micros().saturating_add(max_loss_micros));
            }
            self.answer_wait(log)
        };
        let temporary = take_from(&mut self.dropped_temporary, 1);
        if !temporary.is_empty() {
            host.unlink_rels(&temporary);
        }
        self.finish(&children);
        let written = std::mem::take(&mut self.written);
        Ok(CommitOutcome { lsn: Some(lsn), wait, unlinks, written })
    }

    /// Rolls everything back.
    pub fn abort(mut self, host: &impl TxnHost) {
        self.abort_now(host);
    }

    fn abort_now(&mut self, host: &impl TxnHost) {
        let unlinks = take_from(&mut self.created, 1);
        let mut children = Vec::new();
        if let Some(top) = self.top_xid() {
            children = self.live_sub_xids_from(top);
            let payload = CommitPayload {
                sync: false,
                time_micros: host.unix_micros(),
                unlinks: unlinks.clone(),
            };
            host.txns().abort(host.txn_log(), top, &children, &payload);
        }
        self.finish(&children);
        if !unlinks.is_empty() {
            host.unlink_rels(&unlinks);
        }
    }

    /// A serializable transaction is committed; its snapshot is still announced.
    fn watched_committed(&mut self, lsn: Lsn) {
        if let Some(sx) = self.watched.take() {
            self.session.txns.ssi().commit(&self.session.txns, &sx, lsn);
        }
    }

    /// After the fate is published: wakes waiters, gives up locks and snapshots.
    fn finish(&mut self, children: &[Xid]) {
        let session = &self.session;
        if let Some(sx) = self.watched.take() {
            session.txns.ssi().abort(&session.txns, &sx);
        }
        if let Some(top) = self.top_xid() {
            session.owner.drop_xids(!self.sub_xids.is_empty());
            session.locks.xids_ended(children.iter().copied().chain([top]));
        }
        session.locks.release_all(&session.owner);
        session.owner.end_transaction();
        self.snapshots.clear(session);
        self.ended = true;
    }
}

/// Takes out what was noted at `depth` or deeper. The levels in the list ascend.
fn take_from(pending: &mut Vec<PendingRel>, depth: usize) -> Vec<RelId> {
    let from = pending.partition_point(|p| p.level < depth);
    pending.drain(from..).map(|p| p.rel).collect()
}

impl Drop for Transaction {
    /// A transaction that nobody ended is aborted, without a record: after a crash it would be
    /// too. Files that it made stay behind until the next start removes orphans.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut children = Vec::new();
        if let Some(top) = self.top_xid() {
            children = self.live_sub_xids_from(top);
            self.session.txns.abort_unlogged(top, &children);
        }
        self.finish(&children);
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("xid", &self.top_xid())
            .field("isolation", &self.isolation)
            .field("depth", &self.levels.len())
            .field("command", &self.command)
            .field("snapshot", &self.snapshots.current())
            .finish_non_exhaustive()
    }
}
