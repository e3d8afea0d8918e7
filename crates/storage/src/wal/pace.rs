//! How long a flush takes, and how fast commits ask for one.
//!
//! # The lead: what the writer must keep free before a deadline
//!
//! A moving mean and a moving deviation, as one estimates round trips: the lead is the mean and
//! four deviations, plus what it takes a sleeping thread to run. A device that becomes slower is
//! believed within a few flushes; one slow flush is forgotten within some dozens.
//!
//! ```text
//!   commit ───────────────────────── begin ──── flush ────> deadline
//!          may sleep or do other things     | lead()      |
//! ```
//!
//! # The company: whether a flush is worth a moment's waiting
//!
//! A flush costs a processor some 60 us, which the commits that share it pay together. When
//! commits come so fast that more than two are to be expected within three times what a flush
//! takes, the writer lets that time pass first. It never waits for a lone committer (whose next
//! commit comes after this one's flush), nor longer than [`LONGEST_WAIT`]: a slow device gathers
//! company by being busy.
//!
//! ```text
//!   1 client      one commit every 480 us, a flush takes  90 us      flush at once
//!   8 clients     one every 155 us,        a flush takes 115 us      flush at once
//!   32 clients    one every 118 us,        a flush takes 170 us      wait 300 us, then flush
//! ```
//!
//! One thread at a time records, with the device's lock held (the lead) or as the writer (the
//! company); anybody reads.

use crate::sync::atomic::{AtomicU64, Ordering};

/// What is believed of a device before its first flush.
const FIRST_MEAN: u64 = 2_000;
/// A sleeper runs again this much after it was to, on a busy machine.
const WAKING: u64 = 1_000;

/// The longest time that a flush waits for company, in microseconds.
const LONGEST_WAIT: u64 = 300;
/// So many commits share a flush that a further one makes it no cheaper to speak of.
const COMPANY_ENOUGH: usize = 8;
/// Waiting is worth it when so many more commits (9/4) are to be expected meanwhile.
const EXPECTED: (u64, u64) = (9, 4);
/// A pause counts as no more than this, so that what follows one is learned within some flushes.
const LONGEST_PERIOD: u64 = 2_000;
/// How many flushes are remembered, about.
const MEMORY: u64 = 32;
const PART: u64 = 1 << 10;

pub(super) struct Pace {
    mean: AtomicU64,
    deviation: AtomicU64,
    samples: AtomicU64,
    /// When the writer was last about to flush, and how many had asked for a flush by then.
    taken_up: AtomicU64,
    asked: AtomicU64,
    /// The last times between two such moments, and how many commits (in [`PART`]s) asked in
    /// them: each counts for a [`MEMORY`]th less with every one that follows.
    periods: AtomicU64,
    commits: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            mean: AtomicU64::new(FIRST_MEAN),
            deviation: AtomicU64::new(FIRST_MEAN / 2),
            samples: AtomicU64::new(0),
            taken_up: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            periods: AtomicU64::new(MEMORY * LONGEST_PERIOD),
            commits: AtomicU64::new(MEMORY * PART),
        }
    }
}

impl Pace {
    /// A flush took so long. Called with the device locked.
    pub fn record(&self, micros: u64) {
        let (mean, deviation) = match self.samples.fetch_add(1, Ordering::Relaxed) {
            0 => (micros, micros / 2),
            _ => {
                let mean = self.mean.load(Ordering::Relaxed);
                let deviation = self.deviation.load(Ordering::Relaxed);
                let error = mean.abs_diff(micros);
                ((mean * 7 + micros) / 8, (deviation * 3 + error) / 4)
            }
        };
        self.mean.store(mean, Ordering::Relaxed);
        self.deviation.store(deviation, Ordering::Relaxed);
    }

    /// How long before a deadline a flush has to begin.
    pub fn lead(&self) -> u64 {
        let deviation = self.deviation.load(Ordering::Relaxed);
        self.mean.load(Ordering::Relaxed) + 4 * deviation + WAKING
    }

    /// The writer is about to flush at time `now`, with `waiting` commits waiting, the last of
    /// `asked` since the start: for how many microseconds it should wait for more of them.
    /// Called by the writer alone.
    pub fn wait_for_company(&self, now: u64, waiting: usize, asked: u64) -> Option<u64> {
        if waiting == 0 {
            return None;
        }
        let fade = |sum: &AtomicU64, new: u64| {
            let old = sum.load(Ordering::Relaxed);
            let sum_now = old - old / MEMORY + new;
            sum.store(sum_now, Ordering::Relaxed);
            sum_now
        };
        let before = self.taken_up.swap(now, Ordering::Relaxed);
        let periods = fade(&self.periods, now.saturating_sub(before).min(LONGEST_PERIOD));
        let came = asked.saturating_sub(self.asked.swap(asked, Ordering::Relaxed));
        let commits = fade(&self.commits, came * PART);
        let gap = periods.saturating_mul(PART) / commits.max(1);
        let wait = (3 * self.mean.load(Ordering::Relaxed)).min(LONGEST_WAIT);
        (waiting < COMPANY_ENOUGH && EXPECTED.0 * gap < EXPECTED.1 * wait).then_some(wait)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_lead_follows_the_device() {
        let pace = Pace::default();
        assert!(pace.lead() > FIRST_MEAN);
        for _ in 0..100 {
            pace.record(300);
        }
        assert!((300 + WAKING..=330 + WAKING).contains(&pace.lead()), "{}", pace.lead());
        pace.record(20_000);
        assert!(pace.lead() > 20_000, "one slow flush: {}", pace.lead());
        for _ in 0..5 {
            pace.record(20_000);
        }
        assert!(pace.lead() > 20_000, "slow from now on: {}", pace.lead());
        for _ in 0..60 {
            pace.record(300);
        }
        assert!(pace.lead() < 3_000, "forgotten: {}", pace.lead());
    }

    /// Commits every `gap` microseconds on a device whose flushes take `flush`: how long the
    /// writer waits in the end.
    fn settled_wait(flush: u64, gap: u64) -> Option<u64> {
        let pace = Pace::default();
        let (mut now, mut wait) = (1_000_000, None);
        for _ in 0..200 {
            pace.record(flush);
            let covered = (now + wait.unwrap_or(0)) / gap;
            // When the flush is done, or else at the next commit, it is about to flush again.
            now = (now + wait.unwrap_or(0) + flush).max((covered + 1) * gap);
            let asked = now / gap;
            wait = pace.wait_for_company(now, (asked - covered) as usize, asked);
        }
        wait
    }

    #[test]
    fn a_flush_waits_for_company_only_where_some_is_to_be_expected() {
        assert_eq!(settled_wait(90, 480), None, "a lone client");
        assert_eq!(settled_wait(115, 155), None, "a few");
        assert_eq!(settled_wait(170, 118), Some(LONGEST_WAIT), "many");
        assert_eq!(settled_wait(20, 15), Some(60), "a fast device, very many");
        assert_eq!(settled_wait(20, 100), None, "a fast device, many");
        assert_eq!(settled_wait(5_000, 3_000), None, "a slow device, few");
        assert_eq!(settled_wait(5_000, 50), None, "a slow device, many: a hundred at a time");
        assert_eq!(settled_wait(500, 120), Some(LONGEST_WAIT), "a slow device, four at a time");
    }

    #[test]
    fn when_fewer_commits_come_they_stop_waiting_for_company() {
        let pace = Pace::default();
        pace.record(170);
        let (mut now, mut asked) = (0, 0);
        for _ in 0..200 {
            now += 100;
            asked += 1;
            pace.wait_for_company(now, 1, asked);
        }
        assert!(pace.wait_for_company(now + 100, 1, asked + 1).is_some());
        assert!(pace.wait_for_company(now + 100, 0, asked + 1).is_none(), "nobody waits");
        for _ in 0..8 {
            now += 60_000_000;
            asked += 1;
            pace.wait_for_company(now, 1, asked);
        }
        assert!(pace.wait_for_company(now + 100, 1, asked + 1).is_none());
    }
}
