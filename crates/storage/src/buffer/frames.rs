//! The frames: page memory, one descriptor a frame, and the latched views of a page.
//!
//! ```text
//!   memory:  | page 0 | page 1 | ...          one aligned allocation, zero pages from the kernel
//!   descs:   | state tag next latch | hints summary | ...    first cache line is all a pin needs
//!
//!   state:   63 ........ 48 | flags 40..47 | usage 32..34 | pins 0..31
//! ```
//!
//! A page's bytes are reached only through [`SharedPage`] (many) or [`ExclusivePage`] (one): both
//! hold the frame's latch for as long as they live. That is the whole argument for the `unsafe`
//! here: the latch is the borrow checker's rule at run time.
//!
//! Facts about a descriptor, relied on elsewhere:
//!
//! - F1. `tag` changes only while `TAGGED` is clear, by the one who cleared it (who holds a pin).
//! - F2. A pin whose increment met `TAGGED` keeps tag and contents in place: `TAGGED` is cleared
//!   only by a compare-and-swap that sees exactly one pin, the swapper's own (or by the loader
//!   whose read failed; `VALID` was never set then).
//! - F3. `VALID` is set once, by the loader, before it gives up the exclusive latch.
//! - F4. `DIRTY` is set under the exclusive latch; cleared only by a writer whose write has
//!   succeeded and that saw no `JUST_DIRTIED` since it copied the page.
#![allow(unsafe_code)]

use super::extras::FrameExtras;
use crate::ids::{Fork, PageId, RelId};
use crate::page::Page;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

pub(super) const PIN_ONE: u64 = 1;
pub(super) const PIN_MASK: u64 = 0xFFFF_FFFF;
pub(super) const USAGE_ONE: u64 = 1 << 32;
pub(super) const USAGE_MASK: u64 = 7 << 32;
const USAGE_MAX: u64 = 5 << 32;
/// The frame holds (or is about to hold) the page that `tag` names.
pub(super) const TAGGED: u64 = 1 << 40;
/// The page's bytes are in memory.
pub(super) const VALID: u64 = 1 << 41;
/// The page differs from the file.
pub(super) const DIRTY: u64 = 1 << 42;
/// The page changed since the last writer copied it.
pub(super) const JUST_DIRTIED: u64 = 1 << 43;
/// Changes to this page are not logged, and its LSN is no log position.
pub(super) const UNLOGGED: u64 = 1 << 44;
/// Somebody waits to be the only one with a pin.
pub(super) const CLEANUP_WAIT: u64 = 1 << 45;
/// The checkpoint that is running will write this page.
pub(super) const CHECKPOINT: u64 = 1 << 46;

/// What the processor maps at a time when asked to map much.
const HUGE_PAGE: usize = 2 << 20;

/// One frame's bookkeeping. The first cache line is what a hit touches.
#[repr(C, align(64))]
pub(super) struct FrameDesc {
    pub state: AtomicU64,
    /// `rel << 32 | block`.
    tag: AtomicU64,
    fork: AtomicU32,
    /// Next frame + 1 in the page table's chain; 0 ends it.
    pub next: AtomicU32,
    latch: Latch,
    /// Held while the page is copied and written: one writer a frame, in order.
    pub io: Mutex<()>,
    pub extras: FrameExtras,
}

impl FrameDesc {
    fn new() -> Self {
        FrameDesc {
            state: AtomicU64::new(0),
            tag: AtomicU64::new(0),
            fork: AtomicU32::new(0),
            next: AtomicU32::new(0),
            latch: Latch::new(),
            io: Mutex::new(()),
            extras: FrameExtras::new(),
        }
    }

    /// Stores the tag. Only while `TAGGED` is clear (F1).
    pub fn set_tag(&self, id: PageId) {
        self.tag.store(pack_tag(id), Ordering::Relaxed);
        self.fork.store(id.fork as u32, Ordering::Relaxed);
    }

    /// The tag as it is; meaningful only when pinned and `TAGGED`, or re-checked after pinning.
    #[inline]
    pub fn tag(&self) -> PageId {
        let raw = self.tag.load(Ordering::Relaxed);
        let fork = Fork::from_raw(self.fork.load(Ordering::Relaxed) as u8).unwrap_or(Fork::Main);
        PageId::new(RelId::new((raw >> 32) as u32), fork, raw as u32)
    }

    #[inline]
    pub fn has_tag(&self, id: PageId) -> bool {
        self.tag.load(Ordering::Relaxed) == pack_tag(id)
            && self.fork.load(Ordering::Relaxed) == id.fork as u32
    }

    /// Adds a pin and some usage; returns the state before.
    #[inline]
    pub fn pin(&self) -> u64 {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            if seen & USAGE_MASK >= USAGE_MAX {
                return self.state.fetch_add(PIN_ONE, Ordering::AcqRel);
            }
            match self.state.compare_exchange_weak(
                seen,
                seen + PIN_ONE + USAGE_ONE,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(old) => return old,
                Err(now) => seen = now,
            }
        }
    }

    /// Adds a pin without usage: for writers, whose interest says nothing about the page's worth.
    pub fn pin_quietly(&self) -> u64 {
        self.state.fetch_add(PIN_ONE, Ordering::AcqRel)
    }

    /// Gives a pin back; returns the state after.
    #[inline]
    pub fn unpin(&self) -> u64 {
        let before = self.state.fetch_sub(PIN_ONE, Ordering::AcqRel);
        debug_assert!(before & PIN_MASK > 0, "unpinned a frame without pins");
        before - PIN_ONE
    }

    #[inline]
    pub fn flags(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    pub fn set(&self, flags: u64) {
        if self.state.load(Ordering::Relaxed) & flags != flags {
            self.state.fetch_or(flags, Ordering::AcqRel);
        }
    }

    pub fn clear(&self, flags: u64) {
        self.state.fetch_and(!flags, Ordering::AcqRel);
    }

    /// Swaps the state if it is still `seen`.
    pub fn swap_state(&self, seen: u64, new: u64) -> bool {
        self.state.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[inline]
fn pack_tag(id: PageId) -> u64 {
    (u64::from(id.rel.raw()) << 32) | u64::from(id.block)
}

/// All frames of a pool.
pub(super) struct Frames {
    memory: NonNull<Page>,
    layout: Layout,
    descs: Box<[FrameDesc]>,
}

// SAFETY: the memory is owned, and reached only through latched views: `&Page` by holders of the
// share latch, `&mut Page` by the one holder of the exclusive latch, whatever their threads.
unsafe impl Send for Frames {}
// SAFETY: as above; descriptors are atomics and locks.
unsafe impl Sync for Frames {}

impl Frames {
    /// Memory for `count` frames, zeroed lazily by the kernel.
    pub fn new(count: usize) -> Self {
        assert!(count > 0 && count < u32::MAX as usize, "frame count out of range");
        let large = count * size_of::<Page>() >= 2 * HUGE_PAGE;
        let layout = Layout::array::<Page>(count)
            .and_then(|l| l.align_to(if large { HUGE_PAGE } else { 4096 }))
            .expect("the frame count is bounded, so is the size");
        // SAFETY: the layout is not empty (count > 0).
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(raw.cast::<Page>()) else { handle_alloc_error(layout) };
        #[cfg(target_os = "linux")]
        if large {
            // Fewer TLB misses for random access. Advice: a refusal changes nothing.
            // SAFETY: the range is exactly the allocation, and the advice keeps its contents.
            unsafe { libc::madvise(raw.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        let descs = (0..count).map(|_| FrameDesc::new()).collect();
        Frames { memory, layout, descs }
    }

    /// Has the kernel map the memory of frames `from..to` now, in this thread, rather than when
    /// they are first touched. Contents stay as they are.
    pub fn populate(&self, from: usize, to: usize) {
        let to = to.min(self.len());
        #[cfg(target_os = "linux")]
        if from < to {
            // SAFETY: `from` and `to` are within the allocation (`len` pages), so the range is; the
            // advice reads and writes no byte of it.
            let start = unsafe { self.memory.add(from) };
            let bytes = (to - from) * size_of::<Page>();
            // SAFETY: as above. A kernel that does not know the advice refuses it.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (from, to);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.descs.len()
    }

    #[inline]
    pub fn desc(&self, frame: u32) -> &FrameDesc {
        &self.descs[frame as usize]
    }

    /// Where a frame's bytes are. In range because `descs` is indexed first.
    #[inline]
    fn at(&self, frame: u32) -> NonNull<Page> {
        debug_assert!((frame as usize) < self.descs.len());
        // SAFETY: a view exists only for a frame whose descriptor was indexed with a bounds check;
        // `memory` holds as many pages as there are descriptors.
        unsafe { self.memory.add(frame as usize) }
    }

    #[inline]
    pub fn share(&self, frame: u32) -> SharedPage<'_> {
        self.desc(frame).latch.lock_shared();
        SharedPage { frames: self, frame }
    }

    pub fn try_share(&self, frame: u32) -> Option<SharedPage<'_>> {
        // Lazily: a view that was never taken must not be dropped, as dropping unlocks.
        self.desc(frame).latch.try_lock_shared().then(|| SharedPage { frames: self, frame })
    }

    #[inline]
    pub fn exclusive(&self, frame: u32) -> ExclusivePage<'_> {
        self.desc(frame).latch.lock_exclusive();
        ExclusivePage { frames: self, frame }
    }

    pub fn try_exclusive(&self, frame: u32) -> Option<ExclusivePage<'_>> {
        self.desc(frame).latch.try_lock_exclusive().then(|| ExclusivePage { frames: self, frame })
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; views borrow `self`, so none is left.
        unsafe { dealloc(self.memory.as_ptr().cast(), self.layout) }
    }
}

/// A page under the share latch.
pub(super) struct SharedPage<'p> {
    frames: &'p Frames,
    frame: u32,
}

impl Deref for SharedPage<'_> {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        // SAFETY: the share latch is held until this view is dropped, so nobody has `&mut Page`;
        // the memory was zeroed at allocation, so it is initialised.
        unsafe { self.frames.at(self.frame).as_ref() }
    }
}

impl Drop for SharedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this view took the latch in share mode, once.
        unsafe { self.frames.desc(self.frame).latch.unlock_shared() }
    }
}

/// A page under the exclusive latch.
pub(super) struct ExclusivePage<'p> {
    frames: &'p Frames,
    frame: u32,
}

impl<'p> ExclusivePage<'p> {
    /// The page, to be changed. Private to this module's parent: only the change protocol and the
    /// loader write.
    #[inline]
    pub fn page_mut(&mut self) -> &mut Page {
        // SAFETY: the exclusive latch is held until this view is dropped, and `&mut self` makes
        // this the view's only borrow.
        unsafe { self.frames.at(self.frame).as_mut() }
    }

    /// Lets readers in without letting go.
    pub fn downgrade(self) -> SharedPage<'p> {
        let (frames, frame) = (self.frames, self.frame);
        std::mem::forget(self);
        // SAFETY: this view held the latch exclusively and, forgotten, will not release it; the
        // shared view takes over.
        unsafe { frames.desc(frame).latch.downgrade() };
        SharedPage { frames, frame }
    }
}

impl Deref for ExclusivePage<'_> {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        // SAFETY: the exclusive latch is held; `&self` excludes `page_mut`'s borrow.
        unsafe { self.frames.at(self.frame).as_ref() }
    }
}

impl Drop for ExclusivePage<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this view took the latch exclusively, once.
        unsafe { self.frames.desc(self.frame).latch.unlock_exclusive() }
    }
}

#[cfg(not(shuttle))]
use real_latch::Latch;
#[cfg(shuttle)]
use shuttle_latch::Latch;

/// The page latch: a word, parking when contended.
#[cfg(not(shuttle))]
mod real_latch {
    use parking_lot::RawRwLock;
    use parking_lot::lock_api::{RawRwLock as _, RawRwLockDowngrade as _};

    pub struct Latch(RawRwLock);

    impl Latch {
        pub const fn new() -> Self {
            Latch(RawRwLock::INIT)
        }
        #[inline]
        pub fn lock_shared(&self) {
            self.0.lock_shared();
        }
        pub fn try_lock_shared(&self) -> bool {
            self.0.try_lock_shared()
        }
        #[inline]
        pub fn lock_exclusive(&self) {
            self.0.lock_exclusive();
        }
        pub fn try_lock_exclusive(&self) -> bool {
            self.0.try_lock_exclusive()
        }
        /// # Safety
        /// The caller holds the latch in share mode.
        #[inline]
        pub unsafe fn unlock_shared(&self) {
            // SAFETY: passed on to the caller.
            unsafe { self.0.unlock_shared() }
        }
        /// # Safety
        /// The caller holds the latch exclusively.
        #[inline]
        pub unsafe fn unlock_exclusive(&self) {
            // SAFETY: passed on to the caller.
            unsafe { self.0.unlock_exclusive() }
        }
        /// # Safety
        /// The caller holds the latch exclusively; afterwards in share mode.
        pub unsafe fn downgrade(&self) {
            // SAFETY: passed on to the caller.
            unsafe { self.0.downgrade() }
        }
    }
}

/// The same over the model checker's primitives.
#[cfg(shuttle)]
mod shuttle_latch {
    use crate::sync::{Condvar, Mutex};

    /// Number of readers, or -1 for a writer.
    pub struct Latch {
        holders: Mutex<i64>,
        freed: Condvar,
    }

    impl Latch {
        pub fn new() -> Self {
            Latch { holders: Mutex::new(0), freed: Condvar::new() }
        }
        pub fn lock_shared(&self) {
            let mut holders = self.holders.lock();
            while *holders < 0 {
                self.freed.wait(&mut holders);
            }
            *holders += 1;
        }
        pub fn try_lock_shared(&self) -> bool {
            let mut holders = self.holders.lock();
            if *holders < 0 {
                return false;
            }
            *holders += 1;
            true
        }
        pub fn lock_exclusive(&self) {
            let mut holders = self.holders.lock();
            while *holders != 0 {
                self.freed.wait(&mut holders);
            }
            *holders = -1;
        }
        pub fn try_lock_exclusive(&self) -> bool {
            let mut holders = self.holders.lock();
            if *holders != 0 {
                return false;
            }
            *holders = -1;
            true
        }
        /// # Safety
        /// The caller holds the latch in share mode.
        pub unsafe fn unlock_shared(&self) {
            *self.holders.lock() -= 1;
            self.freed.notify_all();
        }
        /// # Safety
        /// The caller holds the latch exclusively.
        pub unsafe fn unlock_exclusive(&self) {
            *self.holders.lock() = 0;
            self.freed.notify_all();
        }
        /// # Safety
        /// The caller holds the latch exclusively; afterwards in share mode.
        pub unsafe fn downgrade(&self) {
            *self.holders.lock() = 1;
            self.freed.notify_all();
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_hot_part_of_a_descriptor_is_one_cache_line() {
        assert!(std::mem::offset_of!(FrameDesc, extras) <= 64);
        assert!(size_of::<FrameDesc>() <= 256);
    }

    #[test]
    fn usage_saturates_and_pins_count() {
        let frames = Frames::new(1);
        let desc = frames.desc(0);
        for _ in 0..9 {
            desc.pin();
        }
        assert_eq!(desc.flags() & PIN_MASK, 9);
        assert_eq!(desc.flags() & USAGE_MASK, USAGE_MAX);
        for left in (0..9).rev() {
            assert_eq!(desc.unpin() & PIN_MASK, left);
        }
    }
}
