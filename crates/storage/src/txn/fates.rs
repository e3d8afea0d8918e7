//! Asking about many transactions in a row, as a page scan does.
//!
//! ```text
//!   xids of a page   8001 8002 8003 ...   8192 8193 ...
//!   window           one look-up of the chunk ────┘ another
//!   commit log       one look-up a word: 32 xids
//! ```
//!
//! The answers are those of [`TxnManager::status`]; what is saved is the way to the chunk or word,
//! which neighbours share. A [`Fates`] lives for one page: the published position is read once, so
//! a commit that comes after that is still "in progress" here. No snapshot taken before can see it
//! anyway.

use super::clog::fate_in;
use super::manager::{StatusSource, TxnManager};
use super::status::XidStatus;
use super::window::{CHUNK_XIDS, Found, WindowChunk};
use crate::ids::{Lsn, Xid};

/// Xids whose bits are in one word of the commit log.
const WORD_XIDS: u64 = 32;
const NONE: u64 = u64::MAX;

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
        fate_in(self.word, (xid.raw() % WORD_XIDS) as u32 * 2)
    }
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
}
