//! What a transaction's fate is, as a value and as the word that stores it.
//!
//! ```text
//!   63 ............................ 3   2   1   0
//!   | commit record's end position   | C | S | A |     all zero: in progress
//!                                      |   |   +-- aborted (nothing else is set)
//!                                      |   +------ committed synchronously
//!                                      +---------- committed
//! ```
//!
//! A commit whose position is zero is *settled*: every snapshot that exists or will exist covers
//! it, and its record is durable. Nobody needs to know more about it.

use crate::ids::Lsn;
use std::fmt;

const ABORTED: u64 = 1;
const SYNC: u64 = 2;
const COMMITTED: u64 = 4;
const FLAGS: u64 = Lsn::ALIGN - 1;

const _: () = assert!(ABORTED | SYNC | COMMITTED == FLAGS);

/// When a transaction committed, and whether its client waits for the flush.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommitStamp(u64);

impl CommitStamp {
    /// Covered by every snapshot, and durable.
    pub const SETTLED: CommitStamp = CommitStamp(COMMITTED);

    #[inline]
    pub fn new(lsn: Lsn, sync: bool) -> Self {
        debug_assert!(lsn.raw() & FLAGS == 0, "a commit position is aligned");
        CommitStamp(lsn.raw() | COMMITTED | if sync { SYNC } else { 0 })
    }

    /// The commit record's end position, which is the commit sequence number;
    /// [`Lsn::INVALID`] when settled. A snapshot at S sees the commit iff this is <= S.
    #[inline]
    pub const fn lsn(self) -> Lsn {
        Lsn::new(self.0 & !FLAGS)
    }

    /// Whether somebody was or will be promised that this commit survives a crash.
    #[inline]
    pub const fn is_sync(self) -> bool {
        self.0 & SYNC != 0
    }

    #[inline]
    pub const fn is_settled(self) -> bool {
        self.0 & !FLAGS == 0
    }
}

impl fmt::Debug for CommitStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_settled() {
            return f.write_str("settled");
        }
        write!(f, "{}{}", self.lsn(), if self.is_sync() { " sync" } else { "" })
    }
}

/// A transaction's fate. Only the last two are final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XidStatus {
    InProgress,
    Aborted,
    Committed(CommitStamp),
}

impl XidStatus {
    #[inline]
    pub const fn is_final(self) -> bool {
        !matches!(self, XidStatus::InProgress)
    }

    /// The stamp, if committed.
    #[inline]
    pub const fn commit(self) -> Option<CommitStamp> {
        match self {
            XidStatus::Committed(stamp) => Some(stamp),
            _ => None,
        }
    }

    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        if word == 0 {
            XidStatus::InProgress
        } else if word & ABORTED != 0 {
            XidStatus::Aborted
        } else {
            XidStatus::Committed(CommitStamp(word))
        }
    }

    #[inline]
    pub(crate) const fn word(self) -> u64 {
        match self {
            XidStatus::InProgress => 0,
            XidStatus::Aborted => ABORTED,
            XidStatus::Committed(stamp) => stamp.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_its_word() {
        let all = [
            XidStatus::InProgress,
            XidStatus::Aborted,
            XidStatus::Committed(CommitStamp::SETTLED),
            XidStatus::Committed(CommitStamp::new(Lsn::new(0x1000040), false)),
            XidStatus::Committed(CommitStamp::new(Lsn::new(0x1000040), true)),
        ];
        for status in all {
            assert_eq!(XidStatus::from_word(status.word()), status);
        }
        assert!(CommitStamp::SETTLED.lsn() <= Lsn::new(8), "every snapshot covers it");
        assert!(!CommitStamp::SETTLED.is_sync());
    }
}
