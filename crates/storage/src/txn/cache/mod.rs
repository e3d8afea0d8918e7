//! The session status cache: recent final answers, private to one session.
//!
//! Three designs, because which one pays is a matter of measuring (`inkling lab status-path`);
//! `status_cache` chooses. They differ in what they remember, never in what they answer:
//!
//! ```text
//!   one     the last xid asked about, with its fate                    (PostgreSQL's)
//!   few     16 xids with their fates, direct-mapped by their low bits  (the default)
//!   pages   four pages of the commit log, chosen by where the last 100 misses fell
//!   none    nothing: every question goes to the window
//! ```
//!
//! Rules:
//! - Q1. Only final fates are remembered (semantics 1); nothing is recorded for a transaction that
//!   runs. A fate never changes, so nothing is ever taken out for being wrong.
//! - Q2. A remembered stamp stays right when its chunk settles later: the position was real.
//! - Q3. `pages` knows "committed" but not when. It answers only below the floor of the snapshot
//!   that asks, where every snapshot covers every commit, as a hint does (txn README, F2).
//! - Q4. A miss behaves as if there were no cache. The worst case costs a compare or two.

mod few;
mod one;
mod pages;

use super::manager::{StatusSource, TxnManager};
use super::status::XidStatus;
use crate::ids::Xid;
use few::FewXids;
use one::OneXid;
use pages::LogPages;

/// The designs, by the names that `status_cache` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusCacheKind {
    None,
    One,
    #[default]
    Few,
    Pages,
}

impl StatusCacheKind {
    pub const ALL: [StatusCacheKind; 4] = [Self::None, Self::One, Self::Few, Self::Pages];

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::One => "one",
            Self::Few => "few",
            Self::Pages => "pages",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

/// Recent final answers. Not shared between threads.
#[derive(Debug, Default)]
pub enum StatusCache {
    #[default]
    None,
    One(OneXid),
    Few(FewXids),
    Pages(Box<LogPages>),
}

impl StatusCache {
    pub fn new(kind: StatusCacheKind) -> Self {
        match kind {
            StatusCacheKind::None => StatusCache::None,
            StatusCacheKind::One => StatusCache::One(OneXid::default()),
            StatusCacheKind::Few => StatusCache::Few(FewXids::default()),
            StatusCacheKind::Pages => StatusCache::Pages(Box::default()),
        }
    }

    /// Whether anything may be remembered, even from one tuple to the next.
    #[inline]
    pub fn is_on(&self) -> bool {
        !matches!(self, StatusCache::None)
    }

    /// What became of `xid`, and which level said so. `floor` is that of the snapshot that asks,
    /// or 0 when the question is about now.
    #[inline]
    pub fn status(&self, txns: &TxnManager, xid: Xid, floor: Xid) -> (XidStatus, StatusSource) {
        self.status_by(txns, xid, floor, |xid| txns.status_and_source(xid))
    }

    /// As [`Self::status`], asking `ask` about what is not remembered here.
    #[inline]
    pub fn status_by(
        &self,
        txns: &TxnManager,
        xid: Xid,
        floor: Xid,
        ask: impl FnOnce(Xid) -> (XidStatus, StatusSource),
    ) -> (XidStatus, StatusSource) {
        let known = match self {
            StatusCache::None => return ask(xid),
            StatusCache::One(cache) => cache.known(xid),
            StatusCache::Few(cache) => cache.known(xid),
            StatusCache::Pages(cache) if xid < floor => cache.known(xid),
            StatusCache::Pages(_) => None,
        };
        if let Some(status) = known {
            return (status, StatusSource::SessionCache);
        }
        let answer = ask(xid);
        if answer.0.is_final() {
            self.remember(txns, xid, floor, answer.0);
        }
        answer
    }

    #[inline]
    fn remember(&self, txns: &TxnManager, xid: Xid, floor: Xid, fate: XidStatus) {
        match self {
            StatusCache::None => {}
            StatusCache::One(cache) => cache.remember(xid, fate),
            StatusCache::Few(cache) => cache.remember(xid, fate),
            StatusCache::Pages(cache) if xid < floor => cache.note_miss(txns, xid),
            StatusCache::Pages(_) => {}
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::ids::Lsn;
    use crate::txn::testing::TestLog;
    use crate::txn::{CommitPayload, CommitStamp};

    #[test]
    fn a_running_transaction_is_asked_about_again() {
        for kind in StatusCacheKind::ALL {
            let txns = TxnManager::in_memory(Lsn::new(0x1000000)).expect("new");
            let cache = StatusCache::new(kind);
            let xid = txns.assign_xid(None).expect("xid");
            assert_eq!(cache.status(&txns, xid, Xid::INVALID).0, XidStatus::InProgress);
            txns.abort_unlogged(xid, &[]);
            for _ in 0..3 {
                assert_eq!(cache.status(&txns, xid, txns.floor()).0, XidStatus::Aborted);
            }
            // Another xid of the same entry.
            let other = Xid::new(xid.raw() + 16);
            assert_eq!(cache.status(&txns, other, Xid::INVALID).0, XidStatus::InProgress);
        }
    }

    /// Every design, asked at random about a mixture of fates, says what the manager says.
    #[test]
    fn all_designs_agree_with_the_manager() {
        let txns = TxnManager::in_memory(Lsn::new(0x1000000)).expect("new");
        let log = TestLog::new();
        for n in 0..3_000u64 {
            let xid = txns.assign_xid(None).expect("xid");
            match n % 5 {
                0 => txns.abort_unlogged(xid, &[]),
                4 if n > 2_900 => {}
                _ => {
                    let payload = CommitPayload::default();
                    txns.commit(&log, xid, &[], &payload).expect("commit");
                }
            }
        }
        txns.maintain(txns.published());
        let (floor, next) = (txns.floor(), txns.next_xid());
        for kind in StatusCacheKind::ALL {
            let cache = StatusCache::new(kind);
            let mut at = 7u64;
            let mut hits = 0;
            for _ in 0..50_000 {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
                let span = next.raw() - 3;
                // Half the questions about a small range: something to remember.
                let xid = Xid::new(3 + (at >> 33) % if at & 1 == 0 { 10 } else { span });
                let (found, source) = cache.status(&txns, xid, floor);
                let truth = txns.status(xid);
                let settled = XidStatus::Committed(CommitStamp::SETTLED);
                let same =
                    found == truth || (found == settled && xid < floor && truth.commit().is_some());
                assert!(same, "{kind:?} says {found:?} of {xid:?}, which is {truth:?}");
                hits += u32::from(source == StatusSource::SessionCache);
            }
            assert_eq!(hits > 0, kind != StatusCacheKind::None, "{kind:?}");
        }
    }
}
