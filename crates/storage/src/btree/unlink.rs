//! Taking an empty leaf out of the tree, with the parents that had only it.
//!
//! ```text
//!   before   P [ .. | k1 -> T | k2 -> R | .. ]       L <-> T <-> R
//!   after    P [ .. | k1 -> R | .. ]                 L <-> R          T: deleted, on the free list
//! ```
//!
//! T's key space goes to its right sibling R, by the parent too: T's separator now leads to R. So T
//! must not be its parent's last child, for then R hangs under another parent; except when T is the
//! only child: then the parent goes as well, and the same is asked one level up.
//!
//! The attempt has two parts. *Survey*, latching one page at a time, finds which pages have to go.
//! *Seizure* latches them with their neighbours (left to right, bottom up) and verifies all of it;
//! whatever is not as expected, e.g. because of a split just now, ends the attempt until the next
//! vacuum. Then one record changes everything.

use super::descend::{Held, Path, Side, Tree};
use super::node::*;
use super::ops::{Op, encode_indexes};
use crate::buffer::{CriticalSection, ExclusiveGuard, ShareGuard};
use crate::error::Result;
use crate::ids::BlockNo;

type Latched<'e> = Held<ExclusiveGuard<'e>>;

/// A page to delete, latched with its neighbours.
struct Seized<'e> {
    left: Option<Latched<'e>>,
    page: Latched<'e>,
    right: Latched<'e>,
    right_link: Link,
    /// The right sibling is the last of its level and will be the only one.
    leaves_one: bool,
}

impl<'e> Tree<'e> {
    /// Tries to delete a leaf that was seen empty; `high` was its high key. Returns how many pages
    /// went: none, the leaf, or the leaf and parents that had only it.
    pub(super) fn unlink(&self, leaf: Link, high: Pos<'_>) -> Result<u64> {
        let Some(doomed) = self.survey(leaf, high)? else { return Ok(0) };
        let mut seized = Vec::with_capacity(doomed.len());
        for (level, link) in doomed.iter().enumerate() {
            let below = level.checked_sub(1).map(|l| doomed[l]);
            match self.seize(*link, level as u16, below)? {
                Some(page) => seized.push(page),
                None => return Ok(0),
            }
        }
        let top = seized.last().expect("at least the leaf");
        let Some((parent, at)) = self.seize_parent(&doomed, top, high)? else {
            return Ok(0);
        };
        self.delete_seized(seized, parent, at)?;
        Ok(doomed.len() as u64)
    }

    /// Which pages go, from the leaf up. `None`: not now.
    fn survey(&self, leaf: Link, high: Pos<'_>) -> Result<Option<Vec<Link>>> {
        let mut doomed = vec![leaf];
        loop {
            let level = doomed.len() as u16;
            if level > self.read_meta()?.root_level as u16 {
                return Ok(None);
            }
            let parent: Held<ShareGuard<'e>> =
                self.descend(high, Side::Below, level, &mut Path::default())?;
            let node = self.node(&parent)?;
            let at = self.ok(parent.block, node.child_before(high))?;
            let item = self.ok(parent.block, node.item(at))?;
            if Some(&item.child) != doomed.last() {
                return Ok(None);
            }
            if at + 1 < node.len() {
                return Ok(Some(doomed));
            }
            // The last child: only if it is the only one, and then with the parent.
            if at > 0 || node.right().is_none() {
                return Ok(None);
            }
            doomed.push(Link::new(parent.block, node.generation()));
        }
    }

    /// Latches a page to be deleted and its neighbours, left to right, and verifies them.
    fn seize(&self, link: Link, level: u16, below: Option<Link>) -> Result<Option<Seized<'e>>> {
        let left_block: BlockNo = {
            let held: Held<ShareGuard<'e>> = self.latch(link.block)?;
            match self.live(&held, link, level)? {
                Some(node) => node.left(),
                None => return Ok(None),
            }
        };
        if left_block == link.block {
            return Err(self.stray(link));
        }
        let left = if left_block == 0 { None } else { Some(self.latch(left_block)?) };
        if let Some(left) = &left {
            let node = self.node(left)?;
            let ready = !node.has(DELETED | INCOMPLETE) && node.right() == link;
            if !ready || node.level() != level {
                return Ok(None);
            }
        }
        let page: Latched<'e> = self.latch(link.block)?;
        let Some(node) = self.live(&page, link, level)? else { return Ok(None) };
        let as_expected = node.left() == left_block && !node.has(INCOMPLETE | ROOT);
        let childless = match below {
            None => node.is_empty(),
            Some(child) => node.len() == 1 && self.ok(page.block, node.item(0))?.child == child,
        };
        let right_link = node.right();
        if !as_expected || !childless || right_link.is_none() {
            return Ok(None);
        }
        let right: Latched<'e> = self.sibling(right_link, level, &[left_block, page.block])?;
        let right_node = self.node(&right)?;
        if right_node.left() != page.block {
            return Err(self.corrupt(right.block, "an index page's left link is wrong"));
        }
        let leaves_one = left_block == 0 && right_node.right().is_none();
        Ok(Some(Seized { left, page, right, right_link, leaves_one }))
    }

    /// Latches the page with the downlink to the topmost doomed page; returns it and the index.
    fn seize_parent(
        &self,
        doomed: &[Link],
        top: &Seized<'e>,
        high: Pos<'_>,
    ) -> Result<Option<(Latched<'e>, usize)>> {
        let level = doomed.len() as u16;
        let parent: Latched<'e> = self.descend_from_below(high, Side::Below, level)?;
        let node = self.node(&parent)?;
        let at = self.ok(parent.block, node.child_before(high))?;
        if node.has(INCOMPLETE) || at + 1 >= node.len() {
            return Ok(None);
        }
        let (this, next) =
            (self.ok(parent.block, node.item(at))?, self.ok(parent.block, node.item(at + 1))?);
        let expected = Some(&this.child) == doomed.last() && next.child == top.right_link;
        Ok(expected.then_some((parent, at)))
    }

    /// One record: see the picture above.
    fn delete_seized(&self, seized: Vec<Seized<'e>>, parent: Latched<'e>, at: usize) -> Result<()> {
        let (meta_held, mut meta) = self.latch_meta()?;
        let lonely = seized.iter().position(|s| s.leaves_one);
        if let Some(level) = lonely.filter(|l| (*l as u32) < meta.fast_level) {
            (meta.fast, meta.fast_level) = (seized[level].right_link, level as u32);
        }
        let top_right = seized.last().expect("at least the leaf").right_link;
        let gone = encode_indexes(&[at + 1]);
        let parent_ops = [Op::Child { at: at as u16, child: top_right }, Op::Remove(&gone)];
        self.rehearse(parent.block, &parent.guard, &parent_ops)?;

        if let Some(leaf) = seized.first() {
            self.carry_unlinked(leaf.page.block, leaf.right_link.block);
        }
        let mut cs: CriticalSection<'e> = self.section(3 * seized.len() + 2)?;
        for Seized { left, page, right, right_link, .. } in seized {
            let left_block = left.as_ref().map_or(0, |l| l.block);
            if let Some(left) = left {
                let at = cs.add(left.guard);
                cs.apply(at, &Op::Right(right_link));
            }
            let at = cs.add(page.guard);
            cs.apply(at, &Op::Delete { next: meta.free_head });
            meta.free_head = page.block;
            meta.free_count += 1;
            let at = cs.add(right.guard);
            cs.apply(at, &Op::Left(left_block));
        }
        let parent_at = cs.add(parent.guard);
        parent_ops.iter().for_each(|op| cs.apply(parent_at, op));
        let at = cs.add(meta_held.guard);
        cs.apply(at, &Op::Meta(meta));
        cs.finish();
        Ok(())
    }
}
