//! Power failures, thousands of them: append, sometimes flush, crash, reopen, go on.
//!
//! The oracle is a list of everything appended. After each crash the log must be a prefix of the
//! list that holds everything that was reported as flushed. Sizes are drawn from a short list, so
//! that a new record often ends exactly where a lost one did: what a previous life left beyond
//! the end must never join on.

use super::*;
use crate::vfs::{Fault, Op, Random, SeededRandom};

const SEEDS: u64 = 2_000;
const LIVES: u64 = 4;

struct Appended {
    xid: u64,
    len: usize,
    end: Lsn,
}

struct Run {
    random: SeededRandom,
    disk: SimDisk,
    options: WalOptions,
    /// Everything appended from `floor` on and not known to be lost.
    log: Vec<Appended>,
    /// Reading starts here; segments before it may be gone.
    floor: Lsn,
    flushed: Lsn,
    next_xid: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let options = WalOptions { init_zero: random.one_in(2), ..small_options() };
        let (floor, flushed) = (FIRST_LSN, FIRST_LSN);
        let disk = SimDisk::new(seed);
        Run { random, disk, options, log: Vec::new(), floor, flushed, next_xid: 1 }
    }

    /// One life of the log, ended by the loss of power or by a failure.
    fn live(&mut self) {
        match self.random.below(6) {
            0 => self.disk.power_off_after(self.random.below(40)),
            1 => {
                let nth = 1 + self.random.below(6);
                self.disk.inject(Fault::eio(Op::Sync).nth(nth));
            }
            2 => {
                let nth = 1 + self.random.below(12);
                self.disk.inject(Fault::eio(Op::Write).nth(nth));
            }
            _ => {}
        }
        let start = self.log.last().map_or(self.floor, |last| last.end);
        let Ok(wal) = open_at(&self.disk, &self.options, start) else { return };
        for _ in 0..self.random.below(60) {
            if self.act(&wal).is_err() {
                break;
            }
            self.flushed = self.flushed.max(wal.flushed());
        }
        self.flushed = self.flushed.max(wal.flushed());
    }

    fn act(&mut self, wal: &Wal) -> Result<()> {
        match self.random.below(10) {
            0 => wal.flush(wal.inserted()),
            1 => {
                // A flush of something in the middle flushes at least that.
                let at = self.random.below(self.log.len() as u64 + 1) as usize;
                self.log.get(at).map_or(Ok(()), |record| wal.flush(record.end))
            }
            2..=4 => {
                while wal.run_writer_once()? {}
                wal.shared.kernel.write_ahead()
            }
            5 if self.random.one_in(3) => {
                let settled = self.log.iter().take_while(|r| r.end <= wal.flushed()).count();
                let keep = self.random.below(settled as u64 + 1) as usize;
                if keep > 0 {
                    self.floor = self.log[keep - 1].end;
                    self.log.drain(..keep);
                    wal.remove_segments_before(self.floor, self.random.below(5) * 8192)?;
                }
                Ok(())
            }
            _ => {
                let sizes = [4, 100, 1000, 1000, 1000, 5000, 11_000];
                let len = sizes[self.random.below(sizes.len() as u64) as usize];
                let xid = self.next_xid;
                let end = try_append(wal, xid, &fill(xid, len))?;
                self.next_xid += 1;
                self.log.push(Appended { xid, len, end });
                Ok(())
            }
        }
    }

    /// Loses power and checks what is left.
    fn crash(&mut self, seed: u64) {
        self.disk = self.disk.crash(self.random.next_u64());
        let found = read_all(&self.disk, self.floor);
        let context = format!("seed {seed}, from {}", self.floor);
        assert!(found.len() <= self.log.len(), "{context}: more than was written");
        for (read, written) in found.iter().zip(&self.log) {
            assert_eq!(read.xid.raw(), written.xid, "{context}: not a prefix");
            assert_eq!((read.end, &read.data), (written.end, &fill(written.xid, written.len)));
        }
        let end = found.last().map_or(self.floor, |last| last.end);
        assert!(end >= self.flushed, "{context}: {end}, but {} was flushed", self.flushed);
        self.log.truncate(found.len());
        self.flushed = end.max(self.floor);
    }
}

fn fill(xid: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (xid as usize * 31 + i) as u8).collect()
}

#[test]
fn every_crash_leaves_a_prefix_with_everything_flushed() {
    let mut survived = 0;
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..LIVES {
            run.live();
            run.crash(seed);
            survived += run.log.len();
        }
    }
    assert!(survived > SEEDS as usize * 10, "the runs do something: {survived}");
}
