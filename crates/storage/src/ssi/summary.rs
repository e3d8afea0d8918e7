//! What is left of transactions that ended long ago and that somebody running still overlaps.
//!
//! Their xids, as ranges, each with the earliest commit that one of them had an edge to. When there
//! are too many ranges, neighbours become one with the earlier of their answers: conservative,
//! since an xid in between is taken for one of them.

use crate::ids::{Lsn, Xid};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    first: Xid,
    last: Xid,
    /// The earliest commit that one of them had an edge to; MAX: none.
    pub earliest_out: Lsn,
    /// The newest commit of one of them.
    newest: Lsn,
}

#[derive(Default, Debug)]
pub(super) struct Summary {
    /// Ascending, apart from each other.
    ranges: Vec<Range>,
    /// What was forgotten up to.
    trimmed: Lsn,
}

/// Ranges before neighbours are joined.
const MOST: usize = 4096;

impl Summary {
    pub fn add(&mut self, xid: Xid, earliest_out: Lsn, newest: Lsn) {
        let at = self.ranges.partition_point(|r| r.last < xid);
        match self.ranges.get_mut(at) {
            Some(range) if range.first <= xid => {
                range.earliest_out = range.earliest_out.min(earliest_out);
                range.newest = range.newest.max(newest);
            }
            _ => self.ranges.insert(at, Range { first: xid, last: xid, earliest_out, newest }),
        }
        if self.ranges.len() > MOST {
            self.halve();
        }
    }

    pub fn find(&self, xid: Xid) -> Option<Range> {
        let at = self.ranges.partition_point(|r| r.last < xid);
        self.ranges.get(at).filter(|r| r.first <= xid).copied()
    }

    /// Forgets those whose commits every running transaction sees.
    pub fn trim(&mut self, covered: Lsn) {
        if self.ranges.is_empty() || covered == self.trimmed {
            return;
        }
        self.trimmed = covered;
        self.ranges.retain(|r| r.newest > covered);
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    #[cold]
    fn halve(&mut self) {
        let pairs = self.ranges.chunks(2).map(|pair| match pair {
            [a, b] => Range {
                first: a.first,
                last: b.last,
                earliest_out: a.earliest_out.min(b.earliest_out),
                newest: a.newest.max(b.newest),
            },
            _ => pair[0],
        });
        self.ranges = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_ranges_keep_the_earlier_answer() {
        let mut summary = Summary::default();
        for n in 0..=MOST as u64 {
            summary.add(Xid::new(10 + 2 * n), Lsn::new(8 * (n + 1)), Lsn::new(1000 + n));
        }
        assert!(summary.len() <= MOST / 2 + 1);
        for n in 0..=MOST as u64 {
            let found = summary.find(Xid::new(10 + 2 * n)).expect("never lost");
            assert!(found.earliest_out <= Lsn::new(8 * (n + 1)));
        }
        summary.trim(Lsn::new(1000 + MOST as u64));
        assert_eq!(summary.len(), 0);
        assert_eq!(summary.find(Xid::new(10)), None);
    }
}
