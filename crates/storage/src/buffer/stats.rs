//! Counters of the pool, for statistics views. Relaxed: they say how much, not when.

use std::sync::atomic::{AtomicU64, Ordering};

/// A monotone count.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const HIT_STRIPES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct PoolCounters {
    /// One of several, by frame: hits are too frequent for one cache line.
    hits: [Counter; HIT_STRIPES],
    pub reads: Counter,
    pub writes: Counter,
    pub evictions: Counter,
    pub evict_writes: Counter,
    pub cleaner_writes: Counter,
    pub allocations: Counter,
}

/// What the pool has done since start-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Requests answered from memory.
    pub hits: u64,
    /// Pages read from files.
    pub reads: u64,
    /// Pages written, by whomever.
    pub writes: u64,
    /// Pages that left memory to make room.
    pub evictions: u64,
    /// Pages written by somebody who needed their frame.
    pub evict_writes: u64,
    /// Pages written by the background writer.
    pub cleaner_writes: u64,
    /// Frames handed out for pages that were not in memory.
    pub allocations: u64,
}

/// How many frames are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    pub frames: usize,
    /// Frames that hold a page.
    pub used: usize,
    pub dirty: usize,
    pub pinned: usize,
}

impl PoolCounters {
    #[inline]
    pub fn hit(&self, frame: u32) {
        self.hits[frame as usize % HIT_STRIPES].add();
    }

    pub fn read(&self) -> PoolStats {
        PoolStats {
            hits: self.hits.iter().map(Counter::get).sum(),
            reads: self.reads.get(),
            writes: self.writes.get(),
            evictions: self.evictions.get(),
            evict_writes: self.evict_writes.get(),
            cleaner_writes: self.cleaner_writes.get(),
            allocations: self.allocations.get(),
        }
    }
}
