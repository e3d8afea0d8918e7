//! From the top page to the page that a key belongs to.
//!
//! One latch at a time: read the child's link, give the page up, latch the child. What may have
//! happened in between shows on the child itself: split (the key is beyond its high key: go
//! right), deleted or reused (flag, generation: start again). See rules 5 to 7 of the README.

use super::node::*;
use super::watch::Watch;
use super::{BtreeRel, edit};
use crate::buffer::{BufferPool, ChangeLog, CriticalSection, ExclusiveGuard, ShareGuard};
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, PageId, Xid};
use crate::page::Page;
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::atomic::Ordering;

/// How often a search may find that the tree has changed under it before that is not believable.
const MAX_RESTARTS: u32 = 1_000;

/// A kind of latch to end a descent with.
pub(super) trait Latch<'e>: Deref<Target = Page> + Sized {
    fn take(pool: &'e BufferPool, id: PageId) -> Result<Self>;
}

impl<'e> Latch<'e> for ShareGuard<'e> {
    #[inline]
    fn take(pool: &'e BufferPool, id: PageId) -> Result<Self> {
        pool.share(id)
    }
}

impl<'e> Latch<'e> for ExclusiveGuard<'e> {
    #[inline]
    fn take(pool: &'e BufferPool, id: PageId) -> Result<Self> {
        pool.exclusive(id)
    }
}

/// Which neighbour of a position a search is after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// The page that the position itself belongs to.
    At,
    /// The page of the entries just below it.
    Below,
}

/// The pages that a descent came through, for finding parents: a hint, by level.
#[derive(Default, Debug)]
pub(super) struct Path {
    passed: SmallVec<[(u16, Link); 8]>,
    /// A page that the descent had to step off to the right: perhaps a split without parent entry.
    detour: Option<(u16, Link)>,
}

impl Path {
    fn note(&mut self, level: u16, link: Link) {
        self.passed.push((level, link));
    }

    fn at(&self, level: u16) -> Option<Link> {
        self.passed.iter().find(|(l, _)| *l == level).map(|(_, link)| *link)
    }

    fn clear(&mut self) {
        self.passed.clear();
        self.detour = None;
    }

    /// The detour, once.
    pub fn take_detour(&mut self) -> Option<(u16, Link)> {
        self.detour.take()
    }
}

/// Where a descent starts.
#[derive(Clone, Copy)]
struct Top {
    link: Link,
    level: u16,
    /// From memory rather than from the meta page.
    remembered: bool,
}

/// A latched page and its block number.
pub(super) struct Held<G> {
    pub guard: G,
    pub block: BlockNo,
}

/// One operation's view of one index.
#[derive(Clone, Copy)]
pub(super) struct Tree<'e> {
    pub pool: &'e BufferPool,
    pub log: &'e ChangeLog,
    pub rel: &'e BtreeRel,
    pub xid: Xid,
    /// `None` in tests of the tree alone.
    pub watch: Option<Watch<'e>>,
}

impl<'e> Tree<'e> {
    #[inline]
    pub fn id(&self, block: BlockNo) -> PageId {
        PageId::new(self.rel.rel, Fork::Main, block)
    }

    /// Turns damage found on a page into the caller's error.
    #[inline]
    pub fn ok<T>(&self, block: BlockNo, read: Read<T>) -> Result<T> {
        read.map_err(|damage| self.corrupt(block, damage.0))
    }

    #[cold]
    pub fn corrupt(&self, block: BlockNo, what: &str) -> StorageError {
        StorageError::corrupt_page(self.id(block), what)
    }

    #[inline]
    pub fn latch<G: Latch<'e>>(&self, block: BlockNo) -> Result<Held<G>> {
        Ok(Held { guard: G::take(self.pool, self.id(block))?, block })
    }

    #[inline]
    pub fn node<'g, G: Latch<'e>>(&self, held: &'g Held<G>) -> Result<Node<'g>> {
        self.ok(held.block, Node::new(&held.guard))
    }

    /// A critical section about up to `pages` pages.
    pub fn section(&self, pages: usize) -> Result<CriticalSection<'e>> {
        CriticalSection::begin_sized(self.log, self.xid, pages, 0)
    }

    pub fn read_meta(&self) -> Result<Meta> {
        let held = self.latch::<ShareGuard<'e>>(0)?;
        self.ok(0, Meta::read(&held.guard))
    }

    /// The meta page for changing. Latched after every page of the tree (rule 15).
    pub fn latch_meta(&self) -> Result<(Held<ExclusiveGuard<'e>>, Meta)> {
        let held = self.latch::<ExclusiveGuard<'e>>(0)?;
        let meta = self.ok(0, Meta::read(&held.guard))?;
        Ok((held, meta))
    }

    /// Where to start for a page of `level`.
    fn top(&self, level: u16) -> Result<Top> {
        let packed = self.rel.top.load(Ordering::Acquire);
        let known = self.rel.top_level.load(Ordering::Acquire) as u16;
        if packed != 0 && known >= level {
            let link = Link::new(packed as u32, (packed >> 32) as u32);
            return Ok(Top { link, level: known, remembered: true });
        }
        self.top_from_meta(level)
    }

    #[cold]
    fn top_from_meta(&self, level: u16) -> Result<Top> {
        let meta = self.read_meta()?;
        let level_of = |raw: u32| {
            u16::try_from(raw).ok().filter(|l| *l <= MAX_LEVEL).ok_or(Damage("a tree too high"))
        };
        let (root_level, fast_level) =
            (self.ok(0, level_of(meta.root_level))?, self.ok(0, level_of(meta.fast_level))?);
        if root_level < level {
            return Err(self.corrupt(0, "an index page above the root is missing"));
        }
        if fast_level < level {
            return Ok(Top { link: meta.root, level: root_level, remembered: false });
        }
        self.remember_top(meta.fast, fast_level);
        Ok(Top { link: meta.fast, level: fast_level, remembered: false })
    }

    pub fn remember_top(&self, top: Link, level: u16) {
        // Not one atomic value, and need not be: a page of another level is refused.
        self.rel.top_level.store(u32::from(level), Ordering::Release);
        let packed = (u64::from(top.generation) << 32) | u64::from(top.block);
        self.rel.top.store(packed, Ordering::Release);
    }

    #[cold]
    fn is_beyond_end(&self, block: BlockNo) -> Result<bool> {
        Ok(block >= self.pool.block_count(self.rel.rel, Fork::Main)?)
    }

    fn forget_top(&self) {
        self.rel.top.store(0, Ordering::Release);
    }

    /// Latches the page of `level` that `target` (or what is just below it) belongs to. Nothing is
    /// latched when this is called.
    #[inline]
    pub fn descend<G: Latch<'e>>(
        &self,
        target: Pos<'_>,
        side: Side,
        level: u16,
        path: &mut Path,
    ) -> Result<Held<G>> {
        self.search::<G, true>(target, side, level, path)
    }

    /// The same for a caller that has pages of a lower level latched.
    pub fn descend_from_below<G: Latch<'e>>(
        &self,
        target: Pos<'_>,
        side: Side,
        level: u16,
    ) -> Result<Held<G>> {
        self.search::<G, false>(target, side, level, &mut Path::default())
    }

    fn search<G: Latch<'e>, const FREE: bool>(
        &self,
        target: Pos<'_>,
        side: Side,
        level: u16,
        path: &mut Path,
    ) -> Result<Held<G>> {
        for _ in 0..MAX_RESTARTS {
            path.clear();
            let top = self.top(level)?;
            match self.walk::<G, FREE>(top, target, side, level, path) {
                Ok(Some(held)) => return Ok(held),
                Ok(None) => {}
                // The index was emptied since (ON COMMIT DELETE ROWS): the page is not there.
                Err(_) if top.remembered && self.is_beyond_end(top.link.block)? => {}
                Err(e) => return Err(e),
            }
            self.forget_top();
        }
        Err(self.corrupt(0, "index links lead to pages that are not in the tree"))
    }

    /// One attempt; `None` when a page on the way is not what the link to it said.
    #[inline]
    fn walk<G: Latch<'e>, const FREE: bool>(
        &self,
        top: Top,
        target: Pos<'_>,
        side: Side,
        level: u16,
        path: &mut Path,
    ) -> Result<Option<Held<G>>> {
        let (mut link, mut at, mut unsure) = (top.link, top.level, top.remembered);
        while at > level {
            let Some(held) = self.step::<ShareGuard<'e>, FREE>(link, at, target, side)? else {
                return Ok(None);
            };
            let node = Node::again(&held.guard);
            // A remembered top page that has got neighbours works, but the meta page knows better.
            if unsure && !node.is_alone() {
                return Ok(None);
            }
            unsure = false;
            if held.block != link.block {
                path.detour = Some((at, link));
            }
            let which = match side {
                Side::At => node.child_for(target),
                Side::Below => node.child_before(target),
            };
            path.note(at, Link::new(held.block, node.generation()));
            link = self.ok(held.block, which.and_then(|i| node.item(i)))?.child;
            at -= 1;
        }
        let held = self.step::<G, FREE>(link, at, target, side)?;
        Ok(match held {
            Some(held) if unsure && !Node::again(&held.guard).is_alone() => None,
            held => held,
        })
    }

    /// Latches the page that `link` names, or the one to its right that `target` has moved to.
    /// `None`: the link is out of date. Nothing is latched when this is called.
    #[inline]
    pub fn arrive<G: Latch<'e>>(
        &self,
        link: Link,
        level: u16,
        target: Pos<'_>,
        side: Side,
    ) -> Result<Option<Held<G>>> {
        self.step::<G, true>(link, level, target, side)
    }

    /// `FREE`: the caller has nothing latched, so anything may happen before this latches its page.
    fn step<G: Latch<'e>, const FREE: bool>(
        &self,
        link: Link,
        level: u16,
        target: Pos<'_>,
        side: Side,
    ) -> Result<Option<Held<G>>> {
        #[cfg(test)]
        if FREE {
            super::testing::between_latches();
        }
        let mut link = link;
        // The last high key stepped over: they ascend, or the links lead in a circle.
        let mut passed: Option<(Vec<u8>, u64)> = None;
        loop {
            let held = self.latch::<G>(link.block)?;
            let Some(node) = self.live(&held, link, level)? else { return Ok(None) };
            let high = self.ok(held.block, node.high())?;
            let beyond = high.filter(|high| match side {
                Side::At => target >= *high,
                Side::Below => target > *high,
            });
            let Some(high) = beyond else { return Ok(Some(held)) };
            if passed.is_some_and(|(key, row)| high <= Pos { key: &key, row }) {
                return Err(self.corrupt(held.block, "right links of an index lead back"));
            }
            passed = Some((high.key.to_vec(), high.row));
            link = node.right();
            if link.is_none() {
                return Err(self.corrupt(held.block, "an index page with a high key is the last"));
            }
        }
    }

    /// Latches a sibling of a latched page, which cannot go away meanwhile. `others`: what is
    /// latched already. Links that a damaged page has must end in an error, not in waiting for
    /// oneself.
    pub fn sibling<G: Latch<'e>>(
        &self,
        link: Link,
        level: u16,
        others: &[BlockNo],
    ) -> Result<Held<G>> {
        if link.is_none() || others.contains(&link.block) {
            return Err(self.stray(link));
        }
        let held = self.latch::<G>(link.block)?;
        self.live(&held, link, level)?.ok_or_else(|| self.stray(link))?;
        Ok(held)
    }

    #[cold]
    pub fn stray(&self, link: Link) -> StorageError {
        self.corrupt(link.block, "a sibling link of the index leads to a page that is not there")
    }

    /// The node, if the page is still the one that `link` meant.
    #[inline]
    pub fn live<'g, G: Latch<'e>>(
        &self,
        held: &'g Held<G>,
        link: Link,
        level: u16,
    ) -> Result<Option<Node<'g>>> {
        let node = self.node(held)?;
        let same = node.generation() == link.generation && !node.has(DELETED);
        Ok((same && node.level() == level).then_some(node))
    }

    /// Latches the page of `level` for a new separator, trying the remembered path first.
    pub fn parent(
        &self,
        separator: Pos<'_>,
        level: u16,
        path: &Path,
    ) -> Result<Held<ExclusiveGuard<'e>>> {
        if let Some(hint) = path.at(level)
            && let Some(held) = self.step::<_, false>(hint, level, separator, Side::At)?
        {
            return Ok(held);
        }
        self.descend_from_below(separator, Side::At, level)
    }

    /// Tries changes on a copy: what would fail on the page fails here, as an error.
    pub fn rehearse(&self, block: BlockNo, page: &Page, ops: &[super::ops::Op<'_>]) -> Result<()> {
        let mut copy = page.clone();
        self.ok(block, ops.iter().try_for_each(|op| op.apply_to(&mut copy)))
    }

    /// Whether an insertion is so plain that it cannot fail: the free space is in one piece, and
    /// the heads stay as they are.
    pub fn is_plain(&self, page: &Page, node: &Node<'_>, item: &Item<'_>) -> bool {
        page.free_space() >= item.size()
            && edit::shared_prefix_with(page, item.key).is_ok_and(|skip| skip == node.skip())
    }
}
