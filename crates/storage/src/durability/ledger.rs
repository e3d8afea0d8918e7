//! The ledger of promises: per relation, its last commit, what of it is not durable yet, and how
//! often it became durable later than promised.
//!
//! ```text
//!   RelId ─8 bits─> . ─8─> . ─8─> . ─8─> Entry { last commit, first marks, misses, worst }
//!
//!   ──── flushed ──── begun ──────────> log
//!            | running  |  next             a flush under way covers up to `begun`: two sets
//!            |  mark A  |  mark B           of commits are open, a mark for the first of each
//! ```
//!
//! - Finding an entry is four loads; entries are made once and stay while the engine is open.
//! - A commit stores its position. Only the first commit of a relation in each set (or one with an
//!   earlier deadline) takes the entry's own lock; there is no lock that all committers share.
//! - A flush that ends in time costs nothing here. One that ends late walks over the relations
//!   that ever promised anything and counts those with a mark that it covered too late.
//!
//! Two threads that meet in the moment in which a flush begins may put a mark in the wrong set.
//! Then a figure is off by one flush; nothing but the view depends on it.

use crate::ids::{Lsn, RelId};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

const NEVER: u64 = u64::MAX;

/// A quarter of an id's bits.
struct Branch<T>(Box<[OnceLock<T>]>);

impl<T> Default for Branch<T> {
    fn default() -> Self {
        Branch((0..256).map(|_| OnceLock::new()).collect())
    }
}

impl<T: Default> Branch<T> {
    #[inline]
    fn get(&self, at: u8) -> Option<&T> {
        self.0[usize::from(at)].get()
    }

    #[inline]
    fn get_or_make(&self, at: u8) -> &T {
        self.0[usize::from(at)].get_or_init(T::default)
    }
}

/// The earliest of a set of commits that one flush will make durable together.
#[derive(Clone, Copy)]
struct Mark {
    lsn: u64,
    /// When the first of them was made, on the monotonic clock.
    since: u64,
    /// By when all of them should be durable.
    deadline: u64,
}

const NO_MARK: Mark = Mark { lsn: 0, since: NEVER, deadline: NEVER };

struct Entry {
    last: AtomicU64,
    /// The newest mark, for a look without the lock.
    marked: AtomicU64,
    marked_deadline: AtomicU64,
    misses: AtomicU64,
    worst_late: AtomicU64,
    marks: Mutex<[Mark; 2]>,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            last: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            marked_deadline: AtomicU64::new(NEVER),
            misses: AtomicU64::new(0),
            worst_late: AtomicU64::new(0),
            marks: Mutex::new([NO_MARK; 2]),
        }
    }
}

/// How far the log's flushes are.
#[derive(Clone, Copy, Debug)]
pub struct FlushPositions {
    pub flushed: Lsn,
    /// What the flush that began last covers when it is done.
    pub begun: Lsn,
}

/// What the ledger knows about a relation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableDurability {
    /// The newest commit that wrote it since the engine was opened.
    pub last_commit: Option<Lsn>,
    /// Log between the durable position and that commit.
    pub bytes_behind: u64,
    /// How long its oldest undurable commit has been waiting.
    pub micros_behind: u64,
    /// Flushes that made commits of it durable later than promised.
    pub misses: u64,
    /// The longest such delay.
    pub worst_late_micros: u64,
}

/// See the module's essay.
#[derive(Default)]
pub struct Ledger {
    entries: Branch<Branch<Branch<Branch<Entry>>>>,
    /// Relations that ever had a deadline.
    promised: Mutex<Vec<RelId>>,
}

impl Ledger {
    #[inline]
    fn entry(&self, rel: RelId) -> &Entry {
        let [a, b, c, d] = rel.raw().to_be_bytes();
        self.entries.get_or_make(a).get_or_make(b).get_or_make(c).get_or_make(d)
    }

    fn find(&self, rel: RelId) -> Option<&Entry> {
        let [a, b, c, d] = rel.raw().to_be_bytes();
        self.entries.get(a)?.get(b)?.get(c)?.get(d)
    }

    /// A commit at `lsn` that wrote `rel` is visible. `bound`: within how many microseconds from
    /// now it is promised to be durable; `None` when somebody waits for that.
    #[inline]
    pub fn committed(
        &self,
        rel: RelId,
        lsn: Lsn,
        bound: Option<u64>,
        log: FlushPositions,
        now: impl FnOnce() -> u64,
    ) {
        let entry = self.entry(rel);
        let lsn = lsn.raw();
        if entry.last.load(Ordering::Relaxed) < lsn {
            entry.last.fetch_max(lsn, Ordering::Relaxed);
        }
        if lsn <= log.flushed.raw() {
            return;
        }
        // An earlier commit of the same set has the earlier deadline, unless it had none.
        let covered = entry.marked.load(Ordering::Acquire) > log.begun.raw()
            && (bound.is_none() || entry.marked_deadline.load(Ordering::Relaxed) != NEVER);
        if !covered {
            let now = now();
            let deadline = bound.map_or(NEVER, |bound| now.saturating_add(bound));
            self.mark(rel, entry, Mark { lsn, since: now, deadline }, log);
        }
    }

    #[cold]
    fn mark(&self, rel: RelId, entry: &Entry, new: Mark, log: FlushPositions) {
        let (flushed, begun) = (log.flushed.raw(), log.begun.raw());
        let mut marks = entry.marks.lock();
        let is_next = new.lsn > begun;
        let same_set = |m: &Mark| m.lsn > flushed && (m.lsn > begun) == is_next;
        let at = match marks.iter().position(same_set) {
            Some(at) => at,
            // A covered mark is free; if both are open, `log` is out of date: join the older one.
            None => usize::from(marks[1].lsn < marks[0].lsn),
        };
        let mark = &mut marks[at];
        let joins = mark.lsn > flushed;
        let had_deadline = joins && mark.deadline != NEVER;
        *mark = match joins {
            true => Mark {
                lsn: mark.lsn.min(new.lsn),
                since: mark.since.min(new.since),
                deadline: mark.deadline.min(new.deadline),
            },
            false => new,
        };
        if is_next {
            entry.marked_deadline.store(mark.deadline, Ordering::Relaxed);
            entry.marked.store(mark.lsn, Ordering::Release);
        }
        drop(marks);
        if new.deadline != NEVER && !had_deadline {
            let mut promised = self.promised.lock();
            if !promised.contains(&rel) {
                promised.push(rel);
            }
        }
    }

    /// A flush from `from` to `to` ended at `ended`, after a deadline. Counts the promises that it
    /// missed; answers the relation that was missed by most, and by how much.
    pub fn flushed_late(&self, from: Lsn, to: Lsn, ended: u64) -> Option<(RelId, u64)> {
        let promised = self.promised.lock().clone();
        let mut worst = None;
        for rel in promised {
            let Some(entry) = self.find(rel) else { continue };
            let due = {
                let marks = entry.marks.lock();
                let covered = |m: &&Mark| m.lsn > from.raw() && m.lsn <= to.raw();
                marks.iter().filter(covered).map(|m| m.deadline).min().unwrap_or(NEVER)
            };
            if due >= ended {
                continue;
            }
            let late = ended - due;
            entry.misses.fetch_add(1, Ordering::Relaxed);
            entry.worst_late.fetch_max(late, Ordering::Relaxed);
            if worst.is_none_or(|(_, most)| late > most) {
                worst = Some((rel, late));
            }
        }
        worst
    }

    /// What is known about a relation, given how far the log is durable.
    pub fn look(&self, rel: RelId, flushed: Lsn, now: u64) -> TableDurability {
        let Some(entry) = self.find(rel) else { return TableDurability::default() };
        let last = Lsn::new(entry.last.load(Ordering::Relaxed));
        let oldest = {
            let marks = entry.marks.lock();
            marks.iter().filter(|m| m.lsn > flushed.raw()).map(|m| m.since).min()
        };
        TableDurability {
            last_commit: last.is_valid().then_some(last),
            bytes_behind: last.raw().saturating_sub(flushed.raw()),
            micros_behind: oldest.map_or(0, |since| now.saturating_sub(since)),
            misses: entry.misses.load(Ordering::Relaxed),
            worst_late_micros: entry.worst_late.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const T: RelId = RelId::new(16_400);

    fn at(flushed: u64, begun: u64) -> FlushPositions {
        FlushPositions { flushed: Lsn::new(flushed), begun: Lsn::new(begun) }
    }

    fn commit(ledger: &Ledger, lsn: u64, bound: u64, log: FlushPositions, now: u64) {
        ledger.committed(T, Lsn::new(lsn), Some(bound), log, || now);
    }

    #[test]
    fn behind_is_measured_from_the_oldest_undurable_commit() {
        let ledger = Ledger::default();
        let look = |flushed, now| ledger.look(T, Lsn::new(flushed), now);
        assert_eq!(look(800, 5), TableDurability::default());
        commit(&ledger, 1_000, 100, at(800, 800), 10);
        commit(&ledger, 1_200, 100, at(800, 800), 30);
        // A flush up to 1,200 begins; these are for the next.
        commit(&ledger, 1_400, 100, at(800, 1_200), 50);
        commit(&ledger, 1_600, 100, at(800, 1_200), 60);
        let all = look(800, 70);
        assert_eq!((all.bytes_behind, all.micros_behind), (800, 60));
        let rest = look(1_200, 70);
        assert_eq!((rest.bytes_behind, rest.micros_behind), (400, 20));
        let none = look(1_600, 70);
        assert_eq!((none.bytes_behind, none.micros_behind), (0, 0));
        assert_eq!(none.last_commit, Some(Lsn::new(1_600)));
        // What is durable already leaves no mark.
        commit(&ledger, 1_800, 100, at(1_800, 1_800), 80);
        assert_eq!(look(1_600, 90).micros_behind, 0);
    }

    #[test]
    fn only_promises_that_were_missed_are_counted() {
        let ledger = Ledger::default();
        commit(&ledger, 1_000, 100, at(800, 800), 10);
        commit(&ledger, 1_400, 100, at(800, 1_200), 50);
        let (from, to) = (Lsn::new(800), Lsn::new(1_200));
        assert_eq!(ledger.flushed_late(from, to, 110), None, "just in time");
        assert_eq!(ledger.flushed_late(from, to, 111), Some((T, 1)));
        // The second set was covered by another flush, on time.
        assert_eq!(ledger.flushed_late(to, Lsn::new(1_600), 140), None);
        assert_eq!(ledger.flushed_late(to, Lsn::new(1_600), 190), Some((T, 40)));
        // Covered long ago, by whatever flush: no concern of this one.
        assert_eq!(ledger.flushed_late(Lsn::new(1_600), Lsn::new(2_000), 9_000), None);
        let seen = ledger.look(T, Lsn::new(1_600), 200);
        assert_eq!((seen.misses, seen.worst_late_micros), (2, 40));
    }

    #[test]
    fn a_commit_that_is_waited_for_promises_nothing_but_does_not_hide_one_that_does() {
        let ledger = Ledger::default();
        let log = at(800, 800);
        ledger.committed(T, Lsn::new(900), None, log, || 5);
        assert_eq!(ledger.flushed_late(Lsn::new(800), Lsn::new(1_000), 9_000), None);
        commit(&ledger, 1_000, 100, log, 10);
        assert_eq!(ledger.flushed_late(Lsn::new(800), Lsn::new(1_000), 9_000), Some((T, 8_890)));
        assert_eq!(ledger.look(T, Lsn::new(800), 20).micros_behind, 15);
    }

    #[test]
    fn ids_do_not_meet() {
        let ledger = Ledger::default();
        let ids = [1, 256, 65_536, 16_777_216, 16_400, 16_401, u32::MAX].map(RelId::new);
        for (i, rel) in ids.iter().enumerate() {
            ledger.committed(*rel, Lsn::new(8 * (i as u64 + 1)), None, at(0, 0), || 0);
        }
        for (i, rel) in ids.iter().enumerate() {
            let last = ledger.look(*rel, Lsn::INVALID, 0).last_commit;
            assert_eq!(last, Some(Lsn::new(8 * (i as u64 + 1))));
        }
    }
}
