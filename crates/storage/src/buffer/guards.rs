//! The four ways to hold a page.
//!
//! ```text
//!                    share()           ┌─> ShareGuard      read the bytes
//!   PinGuard ────────exclusive()───────┼─> ExclusiveGuard  change them, inside a CriticalSection
//!   (stays put)      cleanup()         └─> CleanupGuard    ... and nobody else has even a pin
//!                    <── unlatch()
//! ```
//!
//! A *pin* keeps the page in its frame; nothing about its bytes. A *latch* is a pin plus the right
//! to look (share) or to change (exclusive). A *cleanup* latch is an exclusive one taken when no
//! other pin exists, so nobody holds slot numbers or offsets into the page across it.
//!
//! Converting consumes the guard, so one thread does not come to hold two latches on a page; clone
//! a [`PinGuard`] to keep a pin beside a latch. Guards are short-lived: none is held across a wait
//! handle, an fsync or, latched, across the read of another page that might block for long.
//!
//! None of them gives `&mut Page`: pages change only through
//! [`CriticalSection`](super::CriticalSection).

use super::extras::FrameExtras;
use super::frames::{ExclusivePage, SharedPage};
use super::pool::BufferPool;
use crate::ids::PageId;
use crate::page::Page;
use std::ops::Deref;

/// Keeps a page in memory.
pub struct PinGuard<'p> {
    pool: &'p BufferPool,
    frame: u32,
}

impl<'p> PinGuard<'p> {
    /// Takes over a pin that was counted already.
    pub(super) fn adopt(pool: &'p BufferPool, frame: u32) -> Self {
        PinGuard { pool, frame }
    }

    #[inline]
    pub(super) fn frame_no(&self) -> u32 {
        self.frame
    }

    #[inline]
    pub(super) fn pool(&self) -> &'p BufferPool {
        self.pool
    }

    #[inline]
    pub fn id(&self) -> PageId {
        self.pool.frames().desc(self.frame).tag()
    }

    /// What is known about the page besides its bytes.
    #[inline]
    pub fn extras(&self) -> &FrameExtras {
        &self.pool.frames().desc(self.frame).extras
    }

    #[inline]
    pub fn share(self) -> ShareGuard<'p> {
        let page = self.pool.frames().share(self.frame);
        ShareGuard { page, pin: self }
    }

    pub fn try_share(self) -> Result<ShareGuard<'p>, PinGuard<'p>> {
        match self.pool.frames().try_share(self.frame) {
            Some(page) => Ok(ShareGuard { page, pin: self }),
            None => Err(self),
        }
    }

    #[inline]
    pub fn exclusive(self) -> ExclusiveGuard<'p> {
        let page = self.pool.frames().exclusive(self.frame);
        ExclusiveGuard { page, pin: self }
    }

    pub fn try_exclusive(self) -> Result<ExclusiveGuard<'p>, PinGuard<'p>> {
        match self.pool.frames().try_exclusive(self.frame) {
            Some(page) => Ok(ExclusiveGuard { page, pin: self }),
            None => Err(self),
        }
    }

    /// Waits until this is the only pin, and latches exclusively. The caller holds no other latch.
    pub fn cleanup(self) -> CleanupGuard<'p> {
        loop {
            let guard = PinGuard::adopt_clone(&self).exclusive();
            match guard.into_cleanup_beside(&self) {
                Ok(cleanup) => return cleanup,
                Err(guard) => {
                    drop(guard);
                    self.pool.wait_for_sole_pin(self.frame);
                }
            }
        }
    }

    pub fn try_cleanup(self) -> Result<CleanupGuard<'p>, PinGuard<'p>> {
        match self.try_exclusive()?.try_into_cleanup() {
            Ok(cleanup) => Ok(cleanup),
            Err(guard) => Err(guard.unlatch()),
        }
    }

    fn adopt_clone(other: &PinGuard<'p>) -> Self {
        other.pool.frames().desc(other.frame).pin_quietly();
        PinGuard { pool: other.pool, frame: other.frame }
    }
}

impl Clone for PinGuard<'_> {
    /// One more pin on the same page.
    fn clone(&self) -> Self {
        PinGuard::adopt_clone(self)
    }
}

impl Drop for PinGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.unpin(self.frame);
    }
}

/// A page that may be read. Others may read it too.
///
/// Field order is drop order: the latch goes before the pin that keeps the frame in place.
pub struct ShareGuard<'p> {
    page: SharedPage<'p>,
    pin: PinGuard<'p>,
}

impl<'p> ShareGuard<'p> {
    pub fn id(&self) -> PageId {
        self.pin.id()
    }

    #[inline]
    pub fn frame(&self) -> &FrameExtras {
        self.pin.extras()
    }

    /// Keeps the pin, gives up the latch.
    pub fn unlatch(self) -> PinGuard<'p> {
        self.pin
    }
}

impl Deref for ShareGuard<'_> {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        &self.page
    }
}

/// A page that nobody else can read or change. To change it, give the guard to a
/// [`CriticalSection`](super::CriticalSection).
pub struct ExclusiveGuard<'p> {
    page: ExclusivePage<'p>,
    pin: PinGuard<'p>,
}

impl<'p> ExclusiveGuard<'p> {
    pub(super) fn from_parts(page: ExclusivePage<'p>, pin: PinGuard<'p>) -> Self {
        ExclusiveGuard { page, pin }
    }

    pub fn id(&self) -> PageId {
        self.pin.id()
    }

    #[inline]
    pub fn frame(&self) -> &FrameExtras {
        self.pin.extras()
    }

    /// Lets readers in, without a moment in which a writer could come first.
    pub fn downgrade(self) -> ShareGuard<'p> {
        ShareGuard { page: self.page.downgrade(), pin: self.pin }
    }

    /// Keeps the pin, gives up the latch.
    pub fn unlatch(self) -> PinGuard<'p> {
        self.pin
    }

    /// A cleanup latch, if nobody else has a pin right now.
    pub fn try_into_cleanup(self) -> Result<CleanupGuard<'p>, ExclusiveGuard<'p>> {
        if self.pin.pool.pin_count(self.pin.frame) == 1 {
            Ok(CleanupGuard { inner: self })
        } else {
            Err(self)
        }
    }

    /// As above when `beside` is a second pin of this same thread on this page; that pin is given
    /// up by the caller on success.
    fn into_cleanup_beside(self, beside: &PinGuard<'p>) -> Result<CleanupGuard<'p>, Self> {
        debug_assert_eq!(self.pin.frame, beside.frame);
        if self.pin.pool.pin_count(self.pin.frame) == 2 {
            Ok(CleanupGuard { inner: self })
        } else {
            Err(self)
        }
    }

    pub(super) fn page_mut(&mut self) -> &mut Page {
        self.page.page_mut()
    }

    pub(super) fn pin(&self) -> &PinGuard<'p> {
        &self.pin
    }
}

impl Deref for ExclusiveGuard<'_> {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        &self.page
    }
}

/// An exclusive latch on a page that nobody else had pinned when it was taken. Pins may come while
/// it is held, but whoever brings them has not seen the page yet.
pub struct CleanupGuard<'p> {
    inner: ExclusiveGuard<'p>,
}

impl<'p> CleanupGuard<'p> {
    pub fn id(&self) -> PageId {
        self.inner.id()
    }

    pub fn frame(&self) -> &FrameExtras {
        self.inner.frame()
    }

    /// An exclusive guard like any other, for a critical section.
    pub fn into_exclusive(self) -> ExclusiveGuard<'p> {
        self.inner
    }

    pub fn unlatch(self) -> PinGuard<'p> {
        self.inner.unlatch()
    }
}

impl Deref for CleanupGuard<'_> {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.inner
    }
}

impl<'p> From<CleanupGuard<'p>> for ExclusiveGuard<'p> {
    fn from(guard: CleanupGuard<'p>) -> Self {
        guard.inner
    }
}
