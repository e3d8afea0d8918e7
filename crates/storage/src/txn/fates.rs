//! Asking about many transactions in a row, as a page scan does.
//!
//! ```text
//!   xids of a page   8001 8002 8003 ...   8192 8193 ...
//!   window           one look-up of the chunk ────┘ another
//!   commit log       one look-up a word: 32 xids
//! ```
//!
//! A page whose rows came one by one, each from a transaction of its own, can be asked about as
//! one: did all from the first to the last commit? In the commit log that is a comparison a word.
//!
//! The answers are those of [`TxnManager::status`]; what is saved is the way to the chunk or word,
//! which neighbours share. A [`Fates`] lives for one page: the published position is read once, so
//! a commit that comes after that is still "in progress" here. No snapshot taken before can see it
//! anyway.

use super::clog::{committed_in, fate_in};
use super::manager::{StatusSource, TxnManager};
use super::status::XidStatus;
use super::window::{CHUNK_XIDS, Found, WindowChunk};
use crate::ids::{Lsn, Xid};

/// Xids whose bits are in one word of the commit log.
const WORD_XIDS: u64 = 32;
const NONE: u64 = u64::MAX;

/// What a number of transactions have in common, all of which committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllCommitted {
    /// The newest of their positions; invalid when all are settled.
    pub newest: Lsn,
    /// The newest position of those whose clients wait for the flush; invalid: none is known.
    pub newest_sync: Lsn,
    /// The deepest level that was asked.
    pub source: StatusSource,
}

/// A reader of fates with a memory for places.
pub struct Fates<'t> {
    txns: &'t TxnManager,
    published: Lsn,
    /// The chunk asked last, by its number; none when it is settled.
    chunk_number: u64,
    chunk: Option<&'t WindowChunk>,
    /// The word of the commit log asked last, by `xid / 32`.
    word_number: u64,
    word: u64,
}

impl<'t> Fates<'t> {
    pub fn new(txns: &'t TxnManager) -> Self {
        Fates {
            txns,
            published: txns.published(),
            chunk_number: NONE,
            chunk: None,
            word_number: NONE,
            word: 0,
        }
    }

    /// What became of `xid`, and which level knew.
    #[inline]
    pub fn status(&mut self, xid: Xid) -> (XidStatus, StatusSource) {
        let number = xid.raw() / CHUNK_XIDS as u64;
        if number != self.chunk_number && !self.find_chunk(xid, number) {
            return (XidStatus::InProgress, StatusSource::Window);
        }
        if let Some(chunk) = self.chunk {
            match chunk.word_of(xid) {
                Some(word) => return (self.by_word(word), StatusSource::Window),
                // Settled since it was found.
                None => self.chunk = None,
            }
        }
        (self.settled(xid), StatusSource::CommitLog)
    }

    /// Whether every transaction from `first` to `last` committed. Costs about a nanosecond for
    /// each in the window, and one for 32 in the commit log.
    pub fn all_committed(&mut self, first: Xid, last: Xid) -> Option<AllCommitted> {
        let source = StatusSource::Window;
        let mut all = AllCommitted { newest: Lsn::INVALID, newest_sync: Lsn::INVALID, source };
        let mut at = first;
        while at.is_normal() && at <= last {
            let (status, source) = self.status(at);
            let stamp = status.commit()?;
            if source == StatusSource::CommitLog {
                all.source = source;
                // The word that was just looked at answers for the rest of its xids.
                let end = Xid::new((at.raw() | (WORD_XIDS - 1)).min(last.raw()));
                if !committed_in(self.word, bit_of(at), bit_of(end)) {
                    return None;
                }
                at = Xid::new(end.raw() + 1);
                continue;
            }
            all.newest = all.newest.max(stamp.lsn());
            if stamp.is_sync() {
                all.newest_sync = all.newest_sync.max(stamp.lsn());
            }
            at = Xid::new(at.raw() + 1);
        }
        (first.is_normal() && first <= last).then_some(all)
    }

    #[inline]
    fn by_word(&self, word: u64) -> XidStatus {
        match XidStatus::from_word(word) {
            XidStatus::Committed(stamp) if stamp.lsn() > self.published => XidStatus::InProgress,
            status => status,
        }
    }

    /// False: no such xid was handed out yet.
    #[cold]
    fn find_chunk(&mut self, xid: Xid, number: u64) -> bool {
        match self.txns.window_chunk(xid) {
            Found::Here(chunk) => self.chunk = Some(chunk),
            Found::Dropped => self.chunk = None,
            Found::Absent => return false,
        }
        self.chunk_number = number;
        true
    }

    #[inline]
    fn settled(&mut self, xid: Xid) -> XidStatus {
        let number = xid.raw() / WORD_XIDS;
        if number != self.word_number || !xid.is_normal() {
            if !xid.is_normal() {
                return self.txns.clog().settled_status(xid);
            }
            self.word = self.txns.clog().settled_word(xid).0;
            self.word_number = number;
        }
        fate_in(self.word, bit_of(xid))
    }
}

/// Where the two bits of `xid` are in its word of the commit log.
#[inline]
fn bit_of(xid: Xid) -> u32 {
    (xid.raw() % WORD_XIDS) as u32 * 2
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::txn::CommitPayload;
    use crate::txn::testing::TestLog;

    /// Settled, recent, running and not yet known xids, in order and in jumps.
    #[test]
    fn the_answers_are_the_managers() {
        let txns = TxnManager::in_memory(Lsn::new(0x1000000)).expect("new");
        let log = TestLog::new();
        for n in 0..(2 * CHUNK_XIDS as u64 + 500) {
            let xid = txns.assign_xid(None).expect("xid");
            match n % 7 {
                0 => txns.abort_unlogged(xid, &[]),
                6 if n > 2 * CHUNK_XIDS as u64 => {}
                _ => {
                    txns.commit(&log, xid, &[], &CommitPayload::default()).expect("commit");
                }
            }
        }
        log.flush_all();
        txns.maintain(txns.published());
        let last = txns.next_xid().raw() + 10;
        for stride in [1, 31, 33, 4095, 4097] {
            let mut fates = Fates::new(&txns);
            let mut sources = [false; 2];
            for n in 0..last {
                let xid = Xid::new(n * stride % last);
                let found = fates.status(xid);
                assert_eq!(found, txns.status_and_source(xid), "{xid:?}, stride {stride}");
                sources[usize::from(found.1 == StatusSource::CommitLog)] = true;
            }
            assert_eq!(sources, [true, true], "both levels answered");
        }
    }

    /// Ranges with and without aborted, running and unborn transactions, across chunks and words.
    #[test]
    fn a_range_committed_if_each_of_it_did() {
        let txns = TxnManager::in_memory(Lsn::new(0x1000000)).expect("new");
        let log = TestLog::new();
        for n in 0..(2 * CHUNK_XIDS as u64 + 500) {
            let xid = txns.assign_xid(None).expect("xid");
            match n % 97 {
                0 => txns.abort_unlogged(xid, &[]),
                50 if n > 2 * CHUNK_XIDS as u64 => {}
                k => {
                    let payload = CommitPayload { sync: k % 3 == 0, ..CommitPayload::default() };
                    txns.commit(&log, xid, &[], &payload).expect("commit");
                }
            }
        }
        log.flush_all();
        txns.maintain(txns.published());
        let mut seen = [0u32; 2];
        for first in (1..txns.next_xid().raw() + 5).step_by(7) {
            for len in [1, 2, 31, 32, 33, 64, 95, 96, 97, 130] {
                let each = (first..first + len).map(|n| txns.status_and_source(Xid::new(n)));
                let stamps: Option<Vec<_>> = each.clone().map(|(s, _)| s.commit()).collect();
                let newest = |sync: bool| {
                    let stamps = stamps.iter().flatten().filter(|s| s.is_sync() || !sync);
                    stamps.map(|s| s.lsn()).max().unwrap_or(Lsn::INVALID)
                };
                let deep = each.clone().any(|(_, source)| source == StatusSource::CommitLog);
                let expected = stamps.as_ref().map(|_| AllCommitted {
                    newest: newest(false),
                    newest_sync: newest(true),
                    source: if deep { StatusSource::CommitLog } else { StatusSource::Window },
                });
                let last = Xid::new(first + len - 1);
                let found = Fates::new(&txns).all_committed(Xid::new(first), last);
                // Xids below the first normal one have no bits; nobody asks about them.
                if Xid::new(first).is_normal() {
                    assert_eq!(found, expected, "{first} and {len} in all");
                    seen[usize::from(found.is_some())] += 1;
                } else {
                    assert_eq!(found, None);
                }
            }
        }
        assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
    }
}
