//! Hint policies: what a reader may keep of what it learned, and where.
//!
//! | policy             | kept where     | "committed" may be kept when                          |
//! |--------------------|----------------|-------------------------------------------------------|
//! | `off`              | nowhere        | never                                                 |
//! | `flushed`          | on the page    | the commit record is flushed                          |
//! | `page_lsn`         | on the page    | ... or, if asynchronous, the page's LSN covers it     |
//! | `frame` (default)  | in the frame   | asynchronous: at once; synchronous: flushed           |
//! | `unsafe_immediate` | on the page    | at once, whatever a crash may say later               |
//!
//! "Aborted" may be kept whenever anything may. The answers to queries are the same under every
//! policy; a difference is a bug. What differs is the price, and `inkling lab` measures it.
//!
//! On the page means what it has always meant in PostgreSQL: the bits go into the page in memory,
//! the page is dirty from then on and will be written, and if this is its first change since the
//! checkpoint's redo point the log gets an image of it (a torn write of a page with checksums
//! would otherwise be damage that nothing repairs). That is what the older policies cost, so here
//! they really do it ([`crate::buffer::set_bits_unlogged`]). In the frame means: volatile, free,
//! gone with the frame or in a crash, together with any commit that was not durable.
//!
//! Why `page_lsn` is safe: a page is written only after the log is flushed up to the page's LSN,
//! so a commit at or before that LSN is durable when the hint reaches the disk. Why synchronous
//! commits wait for their flush under `page_lsn` and `frame`: a hint has no room for the commit's
//! position, and whoever meets an unflushed synchronous commit must learn it (semantics 29).
//!
//! `unsafe_immediate` is for measuring only. After a crash a page may say "committed" of a
//! transaction that the log has never heard of. An engine runs under it only in a data directory
//! that its owner marked as disposable by a file named [`DISPOSABLE_PATH`].

use super::counters::VisCounters;
use super::page::{HINT_SHIFT, HeaderMut};
use crate::buffer::{OpError, PageOp, ShareGuard, set_bits_unlogged};
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{Lsn, SlotNo};
use crate::page::Page;
use crate::txn::CommitStamp;

/// The file, in the data directory, that allows `unsafe_immediate`.
pub const DISPOSABLE_PATH: &str = "inkling.disposable";

/// Which knowledge about fates may be kept beside the status window and the commit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HintPolicy {
    Off = 0,
    Flushed = 1,
    PageLsn = 2,
    #[default]
    Frame = 3,
    UnsafeImmediate = 4,
}

impl HintPolicy {
    pub const ALL: [HintPolicy; 5] =
        [Self::Frame, Self::PageLsn, Self::Flushed, Self::Off, Self::UnsafeImmediate];
    /// Those whose pages on disk never claim a commit that a crash may take back.
    pub const SAFE: [HintPolicy; 4] = [Self::Frame, Self::PageLsn, Self::Flushed, Self::Off];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Flushed => "flushed",
            Self::PageLsn => "page_lsn",
            Self::Frame => "frame",
            Self::UnsafeImmediate => "unsafe_immediate",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }

    pub(super) const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Off,
            1 => Self::Flushed,
            2 => Self::PageLsn,
            4 => Self::UnsafeImmediate,
            _ => Self::Frame,
        }
    }

    /// Whether hints and the all-visible flag are looked at.
    #[inline]
    pub const fn uses_hints(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether frames know things about their pages: summaries, sole inserters, twins of hints.
    #[inline]
    pub const fn uses_frames(self) -> bool {
        matches!(self, Self::Frame)
    }

    /// Whether hints are written into pages in memory.
    #[inline]
    pub const fn writes_pages(self) -> bool {
        matches!(self, Self::Flushed | Self::PageLsn | Self::UnsafeImmediate)
    }

    /// Whether "committed" may be kept now about a transaction with this stamp, seen on a page
    /// whose last change is at `page_lsn`, while the log is flushed to `flushed`.
    #[inline]
    pub fn may_keep(self, stamp: CommitStamp, page_lsn: Lsn, flushed: Lsn) -> bool {
        let durable = stamp.lsn() <= flushed;
        match self {
            Self::Off => false,
            Self::Flushed => durable,
            Self::PageLsn => durable || (!stamp.is_sync() && stamp.lsn() <= page_lsn),
            Self::Frame => durable || !stamp.is_sync(),
            Self::UnsafeImmediate => true,
        }
    }
}

/// A hint that a reader found to be true: slot, and bits as in [`super::visibility`].
pub(super) type Learned = (SlotNo, u8);

/// Sets hint bits of several slots, and nothing else.
struct SetHints<'a>(&'a [Learned]);

impl PageOp for SetHints<'_> {
    /// Never part of a record: what the log says of such a page, it says by an image.
    fn encode(&self, _: &mut Vec<u8>) {}

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        for (slot, bits) in self.0 {
            let mut head = HeaderMut::new(page, *slot)?;
            head.set_mask(head.mask() | u16::from(*bits) << HINT_SHIFT);
        }
        Ok(())
    }
}

/// Keeps what a reader learned about the page that it holds, as the policy says. `seen` is the
/// frame's change counter under the latch under which it was learned: if another change came in
/// between, nothing is kept.
pub(super) fn keep(
    e: &Engine,
    policy: HintPolicy,
    page: ShareGuard<'_>,
    seen: u64,
    learned: &[Learned],
    counters: Option<&VisCounters>,
) -> Result<()> {
    if learned.is_empty() {
        return Ok(());
    }
    if policy.uses_frames() {
        let frame = page.frame();
        learned.iter().for_each(|(slot, bits)| frame.set_hint(*slot, *bits));
        return Ok(());
    }
    if !policy.writes_pages() {
        return Ok(());
    }
    // Not waited for: whoever holds the page has more urgent things to do to it.
    let Ok(guard) = page.unlatch().try_exclusive() else { return Ok(()) };
    if guard.frame().change_counter() != seen {
        return Ok(());
    }
    if set_bits_unlogged(e.log(), guard, &SetHints(learned))?
        && let Some(counters) = counters
    {
        counters.page_dirtied();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for policy in HintPolicy::ALL {
            assert_eq!(HintPolicy::from_name(policy.name()), Some(policy));
            assert_eq!(HintPolicy::from_raw(policy as u8), policy);
        }
        assert_eq!(HintPolicy::from_name("Page_LSN"), Some(HintPolicy::PageLsn));
        assert_eq!(HintPolicy::from_name("immediate"), None);
    }

    /// The table at the top, case by case.
    #[test]
    fn a_commit_may_be_kept_when_the_table_says_so() {
        let (at, before) = (Lsn::new(800), Lsn::new(792));
        let stamp = |sync| CommitStamp::new(at, sync);
        let keeps = |policy: HintPolicy, sync, page_lsn, flushed| {
            policy.may_keep(stamp(sync), page_lsn, flushed)
        };
        use HintPolicy::*;
        //            sync   page    flushed   off    flushed page_lsn frame  unsafe
        for (sync, page_lsn, flushed, answers) in [
            (false, before, before, [false, false, false, true, true]),
            (false, at, before, [false, false, true, true, true]),
            (false, before, at, [false, true, true, true, true]),
            (true, before, before, [false, false, false, false, true]),
            (true, at, before, [false, false, false, false, true]),
            (true, before, at, [false, true, true, true, true]),
        ] {
            let found = [Off, Flushed, PageLsn, Frame, UnsafeImmediate]
                .map(|policy| keeps(policy, sync, page_lsn, flushed));
            assert_eq!(found, answers, "sync {sync}, page {page_lsn}, flushed {flushed}");
        }
    }
}
