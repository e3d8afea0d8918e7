//! A few frames that a large scan uses over and over.
//!
//! ```text
//!   scan of a table larger than a quarter of the pool:
//!     page in memory?  ── yes ──> used where it is
//!          no ──> the ring's next frame, if nobody else has come to want its page; else a new one
//! ```
//!
//! A page that a scan reads once and needs no more must not push out pages that others need
//! (PostgreSQL's buffer access strategies say the same); and a ring that fits the processor's
//! cache is read into faster than memory is. A frame belongs to the pool all the same: anybody may
//! find its page, pin it, change it; then the ring takes another frame instead.

use super::frames::{DIRTY, PIN_MASK, USAGE_MASK, USAGE_ONE};
use super::guards::PinGuard;
use super::pool::{BufferPool, Claimed};
use crate::error::Result;
use crate::ids::PageId;

/// 256 KiB of pages: fits the second-level cache of what servers run on.
const FRAMES: usize = 32;
const NONE: u32 = u32::MAX;

/// The frames of one scan. Holds no pins: it may be dropped, or kept unused, at any time.
#[derive(Clone, Debug)]
pub struct ScanRing {
    frames: [u32; FRAMES],
    next: usize,
}

impl Default for ScanRing {
    fn default() -> Self {
        ScanRing { frames: [NONE; FRAMES], next: 0 }
    }
}

impl BufferPool {
    /// A ring for a scan of `blocks` pages, if it is large enough to need one.
    pub fn ring_for(&self, blocks: u32) -> Option<ScanRing> {
        (blocks as usize > self.frame_count() / 4 && self.frame_count() > 4 * FRAMES)
            .then(ScanRing::default)
    }

    /// As [`Self::read`], putting what has to be read into the ring.
    pub fn read_through(&self, id: PageId, ring: &mut ScanRing) -> Result<PinGuard<'_>> {
        if let Some(pin) = self.read_resident(id) {
            return Ok(pin);
        }
        self.read_missing(id, || self.claim_in(ring))
    }

    fn claim_in(&self, ring: &mut ScanRing) -> Result<Claimed<'_>> {
        let at = ring.next;
        ring.next = (at + 1) % FRAMES;
        if let Some(claimed) = self.reclaim(ring.frames[at])? {
            return Ok(claimed);
        }
        let claimed = self.claim()?;
        ring.frames[at] = claimed.frame();
        Ok(claimed)
    }

    /// Takes a frame that this ring used before, unless it has become of use to somebody else.
    fn reclaim(&self, frame: u32) -> Result<Option<Claimed<'_>>> {
        if frame == NONE {
            return Ok(None);
        }
        let desc = self.frames.desc(frame);
        let seen = desc.flags();
        let wanted = seen & USAGE_MASK > USAGE_ONE || seen & (PIN_MASK | DIRTY) != 0;
        if wanted || !desc.swap_state(seen, seen + 1) {
            return Ok(None);
        }
        match self.evict(frame) {
            Ok(true) => Ok(Some(Claimed::adopt(self, frame))),
            Ok(false) => {
                self.unpin(frame);
                Ok(None)
            }
            Err(e) => {
                self.unpin(frame);
                Err(e)
            }
        }
    }
}
