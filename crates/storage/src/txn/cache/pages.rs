//! A few pages of the commit log, chosen by where the misses fall.
//!
//! ```text
//!   miss ──> list of 100 ──full──> sorted, the page named most often (at least 5 times)
//!                                   └──> replaces the bucket with the fewest hits
//!   bucket = page number, hits since it came, a copy of the page's bits
//! ```
//!
//! This is the design that was proposed to PostgreSQL's developers in 2011 as a process-local
//! cache of hint bits, with its constants. A bucket is a copy: bits that appear in the commit log
//! later are misses here, and a miss is asked about as ever. Hits are halved at every roll-up, so
//! that a page that was popular long ago gives way.

use super::super::clog::{PageWords, place_in_page};
use super::super::manager::TxnManager;
use super::super::status::{CommitStamp, XidStatus};
use crate::ids::Xid;
use std::cell::{Cell, RefCell};

const BUCKETS: usize = 4;
/// Misses collected before the choice is made anew.
const MISSES: usize = 100;
/// A page enters when at least so many of them fell on it.
const THRESHOLD: usize = 5;

struct Bucket {
    /// Which page of the commit log; `u64::MAX` = none yet.
    page: Cell<u64>,
    hits: Cell<u32>,
    words: RefCell<Box<PageWords>>,
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket {
            page: Cell::new(u64::MAX),
            hits: Cell::new(0),
            words: RefCell::new(Box::new(super::super::clog::NO_WORDS)),
        }
    }
}

/// Four buckets and the list of misses.
#[derive(Default)]
pub struct LogPages {
    buckets: [Bucket; BUCKETS],
    misses: RefCell<Vec<u64>>,
}

impl LogPages {
    /// What a bucket says of an xid below the asking snapshot's floor.
    #[inline]
    pub(super) fn known(&self, xid: Xid) -> Option<XidStatus> {
        let (page, word, shift) = place_in_page(xid);
        let bucket = self.buckets.iter().find(|bucket| bucket.page.get() == page)?;
        let bits = bucket.words.borrow()[word] >> shift & 3;
        let fate = match bits {
            0 => return None,
            bits if bits & 1 != 0 => XidStatus::Committed(CommitStamp::SETTLED),
            _ => XidStatus::Aborted,
        };
        bucket.hits.set(bucket.hits.get().saturating_add(1));
        Some(fate)
    }

    /// Notes that an xid below the floor was asked about in vain.
    pub(super) fn note_miss(&self, txns: &TxnManager, xid: Xid) {
        let (page, ..) = place_in_page(xid);
        let mut misses = self.misses.borrow_mut();
        misses.push(page);
        if misses.len() >= MISSES {
            self.roll_up(txns, &mut misses);
            misses.clear();
        }
    }

    fn roll_up(&self, txns: &TxnManager, misses: &mut [u64]) {
        misses.sort_unstable();
        let best = misses.chunk_by(|a, b| a == b).max_by_key(|run| run.len());
        let Some((page, count)) = best.map(|run| (run[0], run.len())) else { return };
        for bucket in &self.buckets {
            bucket.hits.set(bucket.hits.get() / 2);
        }
        if count < THRESHOLD {
            return;
        }
        // A page that is here already is copied again: it has bits that it had not then.
        let again = self.buckets.iter().find(|bucket| bucket.page.get() == page);
        let worst = self.buckets.iter().min_by_key(|bucket| bucket.hits.get());
        let Some(bucket) = again.or(worst) else { return };
        if txns.clog().copy_page(page, &mut bucket.words.borrow_mut()) {
            bucket.page.set(page);
            bucket.hits.set(count as u32);
        }
    }
}

impl std::fmt::Debug for LogPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pages: Vec<_> = self.buckets.iter().map(|b| (b.page.get(), b.hits.get())).collect();
        f.debug_struct("LogPages").field("page_and_hits", &pages).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::ids::Lsn;
    use crate::txn::testing::TestLog;
    use crate::txn::{CommitPayload, TxnManager};

    fn committed(count: u64) -> TxnManager {
        let txns = TxnManager::in_memory(Lsn::new(0x1000000)).expect("new");
        let log = TestLog::new();
        for _ in 0..count {
            let xid = txns.assign_xid(None).expect("xid");
            txns.commit(&log, xid, &[], &CommitPayload::default()).expect("commit");
        }
        txns
    }

    #[test]
    fn a_page_enters_with_the_hundredth_miss_and_answers_from_then_on() {
        let txns = committed(500);
        let cache = LogPages::default();
        let first = Xid::FIRST_NORMAL.raw();
        for n in 0..MISSES as u64 {
            let xid = Xid::new(first + n);
            assert_eq!(cache.known(xid), None);
            cache.note_miss(&txns, xid);
        }
        assert!(cache.known(Xid::new(first + 400)).is_some(), "a neighbour never asked about");
    }

    #[test]
    fn a_page_with_few_misses_does_not_enter() {
        let txns = committed(5);
        let cache = LogPages::default();
        for n in 0..MISSES as u64 {
            // Each on a page of its own.
            cache.note_miss(&txns, Xid::new(3 + n * 40_000));
        }
        assert!(cache.buckets.iter().all(|bucket| bucket.page.get() == u64::MAX));
    }

    #[test]
    fn a_copy_is_renewed_when_misses_fall_on_it_again() {
        let txns = committed(200);
        let cache = LogPages::default();
        (0..100).for_each(|n| cache.note_miss(&txns, Xid::new(3 + n)));
        let log = TestLog::new();
        let late = txns.assign_xid(None).expect("xid");
        txns.commit(&log, late, &[], &CommitPayload::default()).expect("commit");
        assert_eq!(cache.known(late), None, "the copy is older");
        (0..100).for_each(|_| cache.note_miss(&txns, late));
        assert!(cache.known(late).is_some());
    }
}
