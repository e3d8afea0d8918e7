//! How often each level of the status hierarchy gave the answer (`inkling_stat_visibility`).
//!
//! A session counts in memory of its own, by plain loads and stores: no read-modify-write, no line
//! shared with another session. Whoever wants the totals walks the sessions. A session that ends
//! adds its counts to those of the ended.
//!
//! ```text
//!   tuples_checked = by_frame_summary + by_frame_hint + by_tuple_hint + by_session_cache
//!                  + by_status_window + by_commit_log + (judged by command ids alone)
//! ```
//!
//! A tuple counts once, for the deepest level that was asked about its xmin or xmax. Tuples taken
//! with their whole page, by the all-visible flag, the frame summary or as the work of one known
//! inserter, count for the level that answered for the page.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use crate::txn::StatusSource;

/// The levels, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// No level: one's own writes, judged by command ids, and slots without an inserter.
    Own,
    /// The page as a whole: frame summary or all-visible flag.
    Summary,
    /// Hint bits on the page, frozen tuples included.
    TupleHint,
    /// Their volatile twins in the frame.
    FrameHint,
    SessionCache,
    Window,
    CommitLog,
}

impl Level {
    #[inline]
    pub(super) fn of(source: StatusSource) -> Level {
        match source {
            StatusSource::SessionCache => Level::SessionCache,
            StatusSource::Window => Level::Window,
            StatusSource::CommitLog => Level::CommitLog,
        }
    }
}

const LEVELS: usize = Level::CommitLog as usize + 1;

/// A count with one writer.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    #[inline]
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One session's counts. Only the session adds to them; anybody may read.
#[derive(Debug, Default)]
pub struct VisCounters {
    levels: [Count; LEVELS],
    refused: Count,
    dirtied: Count,
}

/// Counts of tuples by level, for one page; added to the session's at the end of the page.
#[derive(Debug, Default)]
pub(super) struct PageCounts(pub(super) [u32; LEVELS]);

impl PageCounts {
    #[inline]
    pub(super) fn add(&mut self, level: Level) {
        self.0[level as usize] += 1;
    }
}

impl VisCounters {
    #[inline]
    pub(super) fn tuples(&self, level: Level, n: u64) {
        self.levels[level as usize].add(n);
    }

    pub(super) fn page(&self, counts: &PageCounts) {
        for (level, n) in self.levels.iter().zip(counts.0) {
            if n > 0 {
                level.add(u64::from(n));
            }
        }
    }

    #[inline]
    pub(super) fn hint_refused(&self) {
        self.refused.add(1);
    }

    pub(super) fn page_dirtied(&self) {
        self.dirtied.add(1);
    }

    fn read(&self) -> VisStats {
        let level = |level: Level| self.levels[level as usize].get();
        VisStats {
            tuples_checked: self.levels.iter().map(Count::get).sum(),
            by_frame_summary: level(Level::Summary),
            by_frame_hint: level(Level::FrameHint),
            by_tuple_hint: level(Level::TupleHint),
            by_session_cache: level(Level::SessionCache),
            by_status_window: level(Level::Window),
            by_commit_log: level(Level::CommitLog),
            hints_refused: self.refused.get(),
            pages_dirtied_by_hints: self.dirtied.get(),
            ..VisStats::default()
        }
    }
}

/// What the view shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisStats {
    pub tuples_checked: u64,
    pub by_frame_summary: u64,
    pub by_frame_hint: u64,
    pub by_tuple_hint: u64,
    pub by_session_cache: u64,
    pub by_status_window: u64,
    pub by_commit_log: u64,
    /// "Committed" was known and could not be kept, because of the policy.
    pub hints_refused: u64,
    /// Hint bits set in the copies of pages on their way to disk.
    pub hints_set_on_write_back: u64,
    /// Clean pages that hints made dirty. 0 under the default policy.
    pub pages_dirtied_by_hints: u64,
}

impl VisStats {
    fn add(&mut self, more: &VisStats) {
        self.tuples_checked += more.tuples_checked;
        self.by_frame_summary += more.by_frame_summary;
        self.by_frame_hint += more.by_frame_hint;
        self.by_tuple_hint += more.by_tuple_hint;
        self.by_session_cache += more.by_session_cache;
        self.by_status_window += more.by_status_window;
        self.by_commit_log += more.by_commit_log;
        self.hints_refused += more.hints_refused;
        self.hints_set_on_write_back += more.hints_set_on_write_back;
        self.pages_dirtied_by_hints += more.pages_dirtied_by_hints;
    }
}

#[derive(Debug, Default)]
struct Sessions {
    alive: Vec<Arc<VisCounters>>,
    ended: VisStats,
}

/// The counts of all sessions of one engine, and of its page writers.
#[derive(Debug, Default)]
pub struct VisTotals {
    sessions: Mutex<Sessions>,
    set_on_write_back: AtomicU64,
}

impl VisTotals {
    /// Counters for a session that begins.
    pub(super) fn join(&self) -> Arc<VisCounters> {
        let counters = Arc::<VisCounters>::default();
        self.sessions.lock().alive.push(Arc::clone(&counters));
        counters
    }

    /// The session that counted in these has ended.
    pub(super) fn leave(&self, counters: &Arc<VisCounters>) {
        let mut sessions = self.sessions.lock();
        if let Some(at) = sessions.alive.iter().position(|other| Arc::ptr_eq(other, counters)) {
            sessions.alive.swap_remove(at);
            sessions.ended.add(&counters.read());
        }
    }

    pub(crate) fn note_write_back(&self, hints: u64) {
        if hints > 0 {
            self.set_on_write_back.fetch_add(hints, Ordering::Relaxed);
        }
    }

    /// The totals since the engine was opened.
    pub fn read(&self) -> VisStats {
        let sessions = self.sessions.lock();
        let mut sum = sessions.ended;
        sessions.alive.iter().for_each(|counters| sum.add(&counters.read()));
        sum.hints_set_on_write_back = self.set_on_write_back.load(Ordering::Relaxed);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_ended_session_counted_stays() {
        let totals = VisTotals::default();
        let (one, other) = (totals.join(), totals.join());
        one.tuples(Level::Summary, 226);
        let mut counts = PageCounts::default();
        counts.add(Level::Window);
        counts.add(Level::Own);
        other.page(&counts);
        other.hint_refused();
        let before = totals.read();
        assert_eq!((before.tuples_checked, before.by_frame_summary), (228, 226));
        assert_eq!((before.by_status_window, before.hints_refused), (1, 1));
        totals.leave(&one);
        totals.leave(&one);
        assert_eq!(totals.read(), before);
    }
}
