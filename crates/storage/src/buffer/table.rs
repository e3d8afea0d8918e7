//! The page table: from page id to frame.
//!
//! ```text
//!   hash(id) ──> heads[bucket] ──> frame ──next──> frame ──next──> end
//!                    ^ writers: the bucket's shard mutex     readers: no lock
//! ```
//!
//! A reader walks the chain without a lock, pins the frame that seems to match, and only then
//! decides (facts F1 and F2 of `frames.rs`): a pin that met `TAGGED`, on a frame whose tag is the
//! one looked for, is good whatever happened to the chain meanwhile. A walk can be led astray by a
//! frame that moves to another chain under it; it can then miss a page that is there, never find
//! a wrong one. So a miss is not an answer until it was repeated under the shard's mutex.
//!
//! Chains are short: there are at least as many buckets as frames.

use super::frames::{Frames, PIN_MASK, TAGGED, VALID};
use crate::ids::PageId;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard};

const SHARDS: usize = 128;
/// A walk without the mutex gives up after so many steps; it may be going round in circles.
const HOPS_MAX: usize = 32;

pub(super) struct PageTable {
    heads: Box<[AtomicU32]>,
    shards: Box<[Mutex<()>]>,
}

/// Proof that a bucket's shard mutex is held.
pub(super) struct Bucket<'t> {
    table: &'t PageTable,
    at: usize,
    _lock: MutexGuard<'t, ()>,
}

impl PageTable {
    pub fn new(frames: usize) -> Self {
        let buckets = frames.next_power_of_two().max(SHARDS);
        PageTable {
            heads: (0..buckets).map(|_| AtomicU32::new(0)).collect(),
            shards: (0..SHARDS).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Mixes the id's 66 bits; neighbouring blocks must land in different buckets and shards.
    #[inline]
    fn bucket_of(&self, id: PageId) -> usize {
        let raw = (u64::from(id.rel.raw()) << 32) | u64::from(id.block);
        let mixed = u128::from(raw ^ ((id.fork as u64) << 62)) * 0x9E37_79B9_7F4A_7C15;
        let hash = (mixed as u64) ^ ((mixed >> 64) as u64);
        let hash = hash ^ (hash >> 29);
        hash as usize & (self.heads.len() - 1)
    }

    /// Pins the page's frame if it is in memory, without a lock. `None` may be wrong.
    #[inline]
    pub fn pin_optimistic(&self, frames: &Frames, id: PageId) -> Option<(u32, u64)> {
        let mut at = self.heads[self.bucket_of(id)].load(Ordering::Acquire);
        for _ in 0..HOPS_MAX {
            if at == 0 {
                return None;
            }
            let desc = frames.desc(at - 1);
            if desc.has_tag(id) {
                let before = desc.pin();
                if before & TAGGED != 0 && desc.has_tag(id) {
                    return Some((at - 1, before));
                }
                desc.unpin();
                return None;
            }
            at = desc.next.load(Ordering::Acquire);
        }
        None
    }

    /// Locks the bucket of `id`.
    pub fn bucket(&self, id: PageId) -> Bucket<'_> {
        let at = self.bucket_of(id);
        let lock = self.shards[at & (SHARDS - 1)].lock();
        Bucket { table: self, at, _lock: lock }
    }
}

impl Bucket<'_> {
    /// The frame of `id`, if it is in memory. Final for as long as the bucket is locked.
    pub fn find(&self, frames: &Frames, id: PageId) -> Option<u32> {
        let mut at = self.table.heads[self.at].load(Ordering::Acquire);
        while at != 0 {
            let desc = frames.desc(at - 1);
            if desc.has_tag(id) {
                return Some(at - 1);
            }
            at = desc.next.load(Ordering::Acquire);
        }
        None
    }

    /// Enters a frame whose tag is set and whose `TAGGED` is still clear, then sets `flags` (with
    /// `TAGGED`): from here on it can be found and pinned.
    pub fn insert(&self, frames: &Frames, frame: u32, flags: u64) {
        let desc = frames.desc(frame);
        debug_assert!(flags & TAGGED != 0 && desc.flags() & TAGGED == 0);
        let head = &self.table.heads[self.at];
        desc.next.store(head.load(Ordering::Relaxed), Ordering::Relaxed);
        desc.set(flags);
        head.store(frame + 1, Ordering::Release);
    }

    /// Takes a frame out of the page table for its holder, if the holder's is the only pin and
    /// none of `unless` is set. Afterwards the frame has no page.
    pub fn remove_if_sole(&self, frames: &Frames, frame: u32, unless: u64) -> bool {
        let desc = frames.desc(frame);
        let seen = desc.flags();
        debug_assert!(seen & TAGGED != 0, "the holder's pin keeps the tag");
        if seen & PIN_MASK != 1 || seen & unless != 0 || !desc.swap_state(seen, 1) {
            return false;
        }
        self.unlink(frames, frame);
        true
    }

    /// Takes out a frame whose read failed, whoever else has pinned it: `VALID` was never set, so
    /// the others only find that out and leave.
    pub fn remove_failed(&self, frames: &Frames, frame: u32) {
        let desc = frames.desc(frame);
        debug_assert!(desc.flags() & VALID == 0, "only a frame that was never valid");
        desc.clear(!PIN_MASK);
        self.unlink(frames, frame);
    }

    fn unlink(&self, frames: &Frames, frame: u32) {
        let after = frames.desc(frame).next.load(Ordering::Relaxed);
        let mut link = &self.table.heads[self.at];
        loop {
            let at = link.load(Ordering::Relaxed);
            assert!(at != 0, "a tagged frame is in its bucket's chain");
            if at == frame + 1 {
                link.store(after, Ordering::Release);
                return;
            }
            link = &frames.desc(at - 1).next;
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::ids::{Fork, RelId};

    #[test]
    fn chains_survive_insertions_and_removals_in_any_order() {
        let frames = Frames::new(64);
        let table = PageTable::new(1);
        let id = |n: u32| PageId::new(RelId::new(n % 3), Fork::Main, n);
        for n in 0..64 {
            frames.desc(n).pin();
            frames.desc(n).set_tag(id(n));
            table.bucket(id(n)).insert(&frames, n, TAGGED);
        }
        for n in (0..64).step_by(2).chain((1..64).step_by(2).rev()) {
            assert_eq!(table.bucket(id(n)).find(&frames, id(n)), Some(n));
            assert!(table.bucket(id(n)).remove_if_sole(&frames, n, 0));
            assert_eq!(table.bucket(id(n)).find(&frames, id(n)), None);
            assert!(table.pin_optimistic(&frames, id(n)).is_none());
        }
    }

    #[test]
    fn neighbours_spread() {
        let table = PageTable::new(1 << 14);
        let mut seen = vec![0u32; 1 << 14];
        for block in 0..1u32 << 14 {
            seen[table.bucket_of(PageId::main(RelId::new(16400), block))] += 1;
        }
        assert!(
            seen.iter().max().is_some_and(|m| *m <= 8),
            "longest chain {:?}",
            seen.iter().max()
        );
    }
}
