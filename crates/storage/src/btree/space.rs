//! Pages for the tree: from the free list, else from the end of the file.
//!
//! The list is headed in the meta page and runs through the `left` field of deleted pages. A page
//! is taken off, or put on, in the same record that starts or ends its life in the tree.

use super::descend::{Held, Tree};
use super::node::*;
use super::ops::Op;
use crate::buffer::{CriticalSection, ExclusiveGuard};
use crate::error::Result;
use crate::ids::{BlockNo, Fork};
use crate::page::PageClass;

/// A page about to be initialised, and what that does to the meta page.
pub(super) struct Fresh<'e> {
    pub page: Held<ExclusiveGuard<'e>>,
    pub generation: u32,
    /// Latched when the page came from the free list (or the caller had it): with the page taken
    /// off already, in the value.
    pub meta: Option<(Held<ExclusiveGuard<'e>>, Meta)>,
}

impl Fresh<'_> {
    pub fn link(&self) -> Link {
        Link::new(self.page.block, self.generation)
    }
}

impl<'e> Tree<'e> {
    /// Finds a page; the caller holds tree pages latched, not the meta page.
    pub fn allocate(&self) -> Result<Fresh<'e>> {
        if self.read_meta()?.free_head != 0 {
            let (held, meta) = self.latch_meta()?;
            return self.allocate_under(held, meta);
        }
        self.extend(None)
    }

    /// The same with the meta page latched already, and given back.
    pub fn allocate_under(
        &self,
        held: Held<ExclusiveGuard<'e>>,
        mut meta: Meta,
    ) -> Result<Fresh<'e>> {
        if meta.free_head == 0 {
            return self.extend(Some((held, meta)));
        }
        let page = self.latch::<ExclusiveGuard<'e>>(meta.free_head)?;
        let node = self.node(&page)?;
        if !node.has(DELETED) {
            return Err(self.corrupt(page.block, "a page in use is on the index's free list"));
        }
        let generation = node.generation().wrapping_add(1);
        meta.free_head = node.left();
        meta.free_count = meta.free_count.saturating_sub(1);
        Ok(Fresh { page, generation, meta: Some((held, meta)) })
    }

    fn extend(&self, meta: Option<(Held<ExclusiveGuard<'e>>, Meta)>) -> Result<Fresh<'e>> {
        let guard = self.pool.extend(self.rel.rel, Fork::Main)?;
        let block = guard.id().block;
        Ok(Fresh { page: Held { guard, block }, generation: 1, meta })
    }

    /// Puts blocks on the free list that the file was extended by and that no record ever used.
    /// Returns how many.
    pub fn collect_orphans(&self) -> Result<u64> {
        let mut found = 0;
        for block in 1..self.pool.block_count(self.rel.rel, Fork::Main)? {
            if self.latch::<crate::buffer::ShareGuard<'e>>(block)?.guard.is_zeroed() {
                found += u64::from(self.collect(block)?);
            }
        }
        Ok(found)
    }

    /// Whoever extends the file holds the new page latched until it is initialised; so a page of
    /// zeros under our latch belongs to nobody.
    fn collect(&self, block: BlockNo) -> Result<bool> {
        let page = self.latch::<ExclusiveGuard<'e>>(block)?;
        if !page.guard.is_zeroed() {
            return Ok(false);
        }
        // The page is in nobody's way: it is not in the tree and not on the list.
        let (held, mut meta) = self.latch_meta()?;
        let mut cs: CriticalSection<'e> = self.section(2)?;
        let page = cs.add_init(page.guard, PageClass::BTree);
        cs.apply(page, &Op::Delete { next: meta.free_head });
        meta.free_head = block;
        meta.free_count += 1;
        let at = cs.add(held.guard);
        cs.apply(at, &Op::Meta(meta));
        cs.finish();
        Ok(true)
    }
}
