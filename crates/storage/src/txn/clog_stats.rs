//! Counters of the commit log, as `pg_stat_slru` names them.
//!
//! | counter   | counts                                                                   |
//! |-----------|--------------------------------------------------------------------------|
//! | `zeroed`  | pages made empty for xids to come                                        |
//! | `hit`     | look-ups that the commit log answered, from memory or from a mapping     |
//! | `read`    | pages read from files: at start, and verified when a mapping takes over  |
//! | `written` | pages written to files                                                   |
//! | `exists`  | files looked for before they were opened for writing                     |
//! | `flushes` | rounds of writing that synced a file                                     |
//! | `truncates` | cuts that removed pages                                                |
//!
//! Only what reaches the commit log is a hit: hints, a session's cache and the status window answer
//! first, and they count nothing. A hit is one addition to a line that few threads share. There is
//! never a miss: every page is in memory or mapped, so `read` says nothing about look-ups.
//!
//! A reset remembers the sums of that moment; readers subtract.

use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What the commit log did since the counters were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlruStats {
    pub zeroed: u64,
    pub hit: u64,
    pub read: u64,
    pub written: u64,
    pub exists: u64,
    pub flushes: u64,
    pub truncates: u64,
    /// When they were reset, in microseconds since 1970; `None`: never since the start.
    pub reset_micros: Option<i64>,
}

const STRIPES: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// The counters behind [`SlruStats`].
#[derive(Default)]
pub(crate) struct Counters {
    hits: [Stripe; STRIPES],
    pub(crate) zeroed: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) exists: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) truncates: AtomicU64,
    /// The sums at the last reset.
    base: Mutex<SlruStats>,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// The stripe of this thread.
#[inline]
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    })
}

impl Counters {
    #[inline]
    pub(crate) fn hit(&self) {
        self.hits[stripe()].0.fetch_add(1, Ordering::Relaxed);
    }

    fn sums(&self) -> SlruStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SlruStats {
            zeroed: of(&self.zeroed),
            hit: self.hits.iter().map(|stripe| of(&stripe.0)).sum(),
            read: of(&self.read),
            written: of(&self.written),
            exists: of(&self.exists),
            flushes: of(&self.flushes),
            truncates: of(&self.truncates),
            reset_micros: None,
        }
    }

    pub(crate) fn stats(&self) -> SlruStats {
        let base = self.base.lock();
        let now = self.sums();
        SlruStats {
            zeroed: now.zeroed - base.zeroed,
            hit: now.hit - base.hit,
            read: now.read - base.read,
            written: now.written - base.written,
            exists: now.exists - base.exists,
            flushes: now.flushes - base.flushes,
            truncates: now.truncates - base.truncates,
            reset_micros: base.reset_micros,
        }
    }

    pub(crate) fn reset(&self, now_micros: i64) {
        let mut base = self.base.lock();
        *base = SlruStats { reset_micros: Some(now_micros), ..self.sums() };
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn hits_of_all_threads_add_up_and_a_reset_begins_anew() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| counters.hit()));
            }
        });
        add(&counters.written, 3);
        let stats = counters.stats();
        assert_eq!((stats.hit, stats.written, stats.reset_micros), (2000, 3, None));
        counters.reset(77);
        counters.hit();
        let stats = counters.stats();
        assert_eq!((stats.hit, stats.written, stats.reset_micros), (1, 0, Some(77)));
    }
}
