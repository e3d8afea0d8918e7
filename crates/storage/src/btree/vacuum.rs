//! Vacuum's part: removing the entries of dead rows, in key order along the right links.
//!
//! An entry can move only to the right of where it is (README, rule 6), so walking right passes
//! every entry that was there at the start, whatever is split or deleted meanwhile.

use super::BulkDeleteStats;
use super::descend::{Held, Path, Side, Tree};
use super::node::*;
use crate::buffer::{ExclusiveGuard, ShareGuard};
use crate::error::Result;
use crate::ids::{BlockNo, Fork, RowId};

/// Where the walk stands after a leaf.
struct Next {
    link: Link,
    /// The leaf's high key: everything below it has been seen.
    key: Vec<u8>,
    row: u64,
}

impl Next {
    fn pos(&self) -> Pos<'_> {
        Pos { key: &self.key, row: self.row }
    }
}

impl<'e> Tree<'e> {
    /// `pause` is called after every leaf, with nothing latched.
    pub(super) fn bulk_delete(
        &self,
        dead: &dyn Fn(RowId) -> bool,
        pause: &mut dyn FnMut() -> Result<()>,
    ) -> Result<BulkDeleteStats> {
        let blocks = self.pool.block_count(self.rel.rel, Fork::Main)?;
        let mut stats = BulkDeleteStats::default();
        let mut next = Next { link: Link::NONE, key: Vec::new(), row: 0 };
        while let Some(after) = self.vacuum_leaf(next, dead, &mut stats)? {
            next = after;
            pause()?;
        }
        let internal = self.count_internal(u64::from(blocks))?;
        let known = 1 + stats.leaves + internal;
        if known.saturating_add(u64::from(self.read_meta()?.free_count)) < u64::from(blocks) {
            self.collect_orphans()?;
        }
        stats.pages_free = u64::from(self.read_meta()?.free_count);
        stats.pages_total = u64::from(self.pool.block_count(self.rel.rel, Fork::Main)?);
        Ok(stats)
    }

    /// Cleans one leaf; returns where to go on.
    fn vacuum_leaf(
        &self,
        at: Next,
        dead: &dyn Fn(RowId) -> bool,
        stats: &mut BulkDeleteStats,
    ) -> Result<Option<Next>> {
        let held: Held<ShareGuard<'e>> = self.leaf_at(&at)?;
        let doomed = self.doomed(&held, dead)?;
        if doomed.is_empty() && !self.node(&held)?.is_empty() {
            return self.leave(&held, stats);
        }
        drop(held);
        // With the exclusive latch everything is looked at again; it may even be another page.
        let mut held: Held<ExclusiveGuard<'e>> = self.leaf_at(&at)?;
        let doomed = self.doomed(&held, dead)?;
        if !doomed.is_empty() {
            held = self.remove_items(held, &doomed)?;
            stats.removed += doomed.len() as u64;
        }
        let next = self.leave(&held, stats)?;
        let node = self.node(&held)?;
        if node.is_empty() && !node.is_alone() {
            let this = Link::new(held.block, node.generation());
            drop(held);
            if let Some(next) = &next {
                let gone = self.unlink(this, next.pos())?;
                stats.pages_deleted += gone;
                stats.leaves -= u64::from(gone > 0);
            }
        }
        Ok(next)
    }

    /// The leaf that the walk goes on with: by link if that still holds, else by key.
    fn leaf_at<G: super::descend::Latch<'e>>(&self, at: &Next) -> Result<Held<G>> {
        if !at.link.is_none()
            && let Some(held) = self.arrive(at.link, 0, at.pos(), Side::At)?
        {
            return Ok(held);
        }
        self.descend(at.pos(), Side::At, 0, &mut Path::default())
    }

    fn doomed<G: super::descend::Latch<'e>>(
        &self,
        held: &Held<G>,
        dead: &dyn Fn(RowId) -> bool,
    ) -> Result<Vec<usize>> {
        let node = self.node(held)?;
        let mut doomed = Vec::new();
        for i in 0..node.len() {
            if dead(row_id(self.ok(held.block, node.item(i))?.row)) {
                doomed.push(i);
            }
        }
        Ok(doomed)
    }

    fn leave<G: super::descend::Latch<'e>>(
        &self,
        held: &Held<G>,
        stats: &mut BulkDeleteStats,
    ) -> Result<Option<Next>> {
        let node = self.node(held)?;
        stats.leaves += 1;
        stats.entries += node.len() as u64;
        let high = self.ok(held.block, node.high())?;
        Ok(high.map(|high| Next { link: node.right(), key: high.key.to_vec(), row: high.row }))
    }

    /// How many internal pages there are, level by level; more than `limit` need not be exact.
    fn count_internal(&self, limit: u64) -> Result<u64> {
        let mut count = 0;
        for level in 1..=self.read_meta()?.root_level as u16 {
            let mut held: Held<ShareGuard<'e>> =
                self.descend(Pos::before(&[]), Side::At, level, &mut Path::default())?;
            loop {
                count += 1;
                let right = self.node(&held)?.right();
                if count > limit {
                    return Ok(count);
                }
                if right.is_none() {
                    break;
                }
                drop(held);
                held = self.latch(right.block)?;
                if self.live(&held, right, level)?.is_none() {
                    // In motion: an estimate is enough, and too many is on the safe side.
                    return Ok(u64::from(BlockNo::MAX));
                }
            }
        }
        Ok(count)
    }
}
