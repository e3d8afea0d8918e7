//! A new index: empty, or loaded from sorted entries.
//!
//! The load builds all levels at once, left to right. Each level has one open page; when it is
//! full, the next block is taken (its number is the full page's right link), the full page is
//! written in one record, and its downlink goes to the level above, which may fill up in turn.
//!
//! ```text
//!   level 1            [ 1 2 3 ..        open
//!   level 0   1 - 2 - 3 - 4 - [ k l m .. open: block 5
//! ```
//!
//! Nobody else uses the index yet: it is made in the transaction that loads it. If that fails, its
//! file goes.

use super::descend::{Held, Tree};
use super::edit::{ItemList, NodeInit};
use super::node::*;
use super::ops::Op;
use super::split::separator;
use super::{MAX_KEY, key_too_long};
use crate::buffer::ExclusiveGuard;
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, RowId};
use crate::page::PageClass;

/// Block of an empty tree's only leaf.
const FIRST_LEAF: Link = Link::new(1, 1);
/// How full the load leaves internal pages, in percent.
const INTERNAL_FILL: usize = 90;

impl<'e> Tree<'e> {
    /// Makes an empty index in a relation that has no page yet: a meta page and a leaf that is the
    /// root.
    pub(super) fn create(&self) -> Result<()> {
        let meta_guard = self.pool.extend(self.rel.rel, Fork::Main)?;
        let leaf_guard = self.pool.extend(self.rel.rel, Fork::Main)?;
        if (meta_guard.id().block, leaf_guard.id().block) != (0, FIRST_LEAF.block) {
            return Err(self.corrupt(0, "a relation to hold a new index is not empty"));
        }
        let meta = Meta { root: FIRST_LEAF, fast: FIRST_LEAF, ..Meta::default() };
        let mut cs = self.section(2)?;
        let at = cs.add_init(leaf_guard, PageClass::BTree);
        cs.apply(at, &Op::Init(root_leaf()));
        let at = cs.add_init(meta_guard, PageClass::BTree);
        cs.apply(at, &Op::Meta(meta));
        cs.finish();
        Ok(())
    }
}

fn root_leaf() -> NodeInit {
    let generation = FIRST_LEAF.generation;
    NodeInit { level: 0, flags: ROOT, generation, left: 0, right: Link::NONE }
}

/// The page of a level that is being filled.
struct Open<'e> {
    page: Held<ExclusiveGuard<'e>>,
    left: BlockNo,
    items: ItemList,
    /// The page's low bound: its separator in the level above.
    low_key: Vec<u8>,
    low_row: u64,
}

impl<'e> Open<'e> {
    fn new(page: Held<ExclusiveGuard<'e>>, left: BlockNo, low: Pos<'_>) -> Self {
        let (low_key, low_row) = (low.key.to_vec(), low.row);
        Open { page, left, items: ItemList::default(), low_key, low_row }
    }

    /// The position between the page's last item and the one to come after it.
    fn bound_before(&self, next: &Item<'_>) -> (Vec<u8>, u64) {
        let bound = match self.items.last() {
            Some(last) if next.child.is_none() => separator(last.pos(), next.pos()),
            _ => next.pos(),
        };
        (bound.key.to_vec(), bound.row)
    }
}

/// A written page's entry in the level above.
struct Downlink {
    key: Vec<u8>,
    row: u64,
    child: Link,
}

/// A bulk load in progress: push the entries in order, then finish.
pub struct Builder<'e> {
    tree: Tree<'e>,
    /// From the leaves up; `None` once a level is complete.
    levels: Vec<Option<Open<'e>>>,
    leaf_limit: usize,
}

impl<'e> Builder<'e> {
    pub(super) fn over(tree: Tree<'e>) -> Result<Self> {
        let page: Held<ExclusiveGuard<'e>> = tree.latch(FIRST_LEAF.block)?;
        let node = tree.node(&page)?;
        if !node.is_empty() || !node.has(ROOT) || !node.is_leaf() {
            return Err(tree.corrupt(page.block, "an index to be loaded is not empty"));
        }
        let leaf_limit = USABLE * usize::from(tree.rel.fillfactor) / 100;
        let leaf = Open::new(page, 0, Pos::before(&[]));
        Ok(Builder { tree, levels: vec![Some(leaf)], leaf_limit })
    }

    fn open(&mut self, level: usize) -> &mut Open<'e> {
        self.levels[level].as_mut().expect("levels are completed from the leaves up")
    }

    /// Adds the next entry.
    pub fn push(&mut self, key: &[u8], row: RowId) -> Result<()> {
        if key.len() > MAX_KEY {
            return Err(key_too_long(key.len()));
        }
        let pos = Pos::of(key, row);
        if self.open(0).items.last().is_some_and(|last| last.pos() >= pos) || !row.is_valid() {
            return Err(StorageError::corrupt("entries for a new index do not come in order"));
        }
        self.add(0, &Item { key, row: pos.row, child: Link::NONE })
    }

    /// Adds an item to the open page of a level, starting a new page when that is full.
    fn add(&mut self, level: usize, item: &Item<'_>) -> Result<()> {
        let limit = if level == 0 { self.leaf_limit } else { USABLE * INTERNAL_FILL / 100 };
        let open = self.open(level);
        if open.items.is_empty() || open.items.size() + item.size() <= limit {
            open.items.push(item);
            return Ok(());
        }
        // The full page needs room for its high key; if need be its last item moves on.
        let mut carried = None;
        let mut bound = open.bound_before(item);
        if open.items.size() + bound.0.len() > USABLE {
            let last = open.items.pop().expect("one item and a high key always fit");
            bound = open.bound_before(&last.last().expect("a list of one"));
            carried = Some(last);
        }
        self.turn_page(level, bound)?;
        let open = self.open(level);
        let carried = carried.as_ref().and_then(ItemList::last);
        for item in carried.iter().chain([item]) {
            // The first item of an internal page has no key: the page's low bound says it.
            let bare = level > 0 && open.items.is_empty();
            let (key, row) = if bare { (&[][..], 0) } else { (item.key, item.row) };
            open.items.push(&Item { key, row, child: item.child });
        }
        Ok(())
    }

    fn extend(&self) -> Result<Held<ExclusiveGuard<'e>>> {
        let guard = self.tree.pool.extend(self.tree.rel.rel, Fork::Main)?;
        Ok(Held { block: guard.id().block, guard })
    }

    /// Writes a level's open page, up to the given bound, and opens the next one.
    fn turn_page(&mut self, level: usize, bound: (Vec<u8>, u64)) -> Result<()> {
        let next = self.extend()?;
        let right = Link::new(next.block, 1);
        let high = Pos { key: &bound.0, row: bound.1 };
        let open = Open::new(next, self.open(level).page.block, high);
        let full = std::mem::replace(self.open(level), open);
        let downlink = self.write(full, level, 0, Some((high, right)))?;
        self.add_downlink(level, &downlink)
    }

    fn add_downlink(&mut self, level: usize, downlink: &Downlink) -> Result<()> {
        if self.levels.len() == level + 1 {
            let page = self.extend()?;
            self.levels.push(Some(Open::new(page, 0, Pos::before(&[]))));
        }
        let item = Item { key: &downlink.key, row: downlink.row, child: downlink.child };
        self.add(level + 1, &item)
    }

    /// Writes a page; it ends at the bound, or is the last of its level.
    fn write(
        &self,
        open: Open<'e>,
        level: usize,
        flags: u16,
        end: Option<(Pos<'_>, Link)>,
    ) -> Result<Downlink> {
        let right = end.map_or(Link::NONE, |(_, right)| right);
        let level = level as u16;
        let init = NodeInit { level, flags, generation: 1, left: open.left, right };
        let child = Link::new(open.page.block, 1);
        let mut cs = self.tree.section(1)?;
        let at = cs.add_init(open.page.guard, PageClass::BTree);
        cs.apply(at, &Op::Init(init));
        cs.apply(at, &Op::Load(open.items.bytes()));
        if let Some((high, _)) = end {
            cs.apply(at, &Op::high(high));
        }
        cs.finish();
        Ok(Downlink { key: open.low_key, row: open.low_row, child })
    }

    /// Writes what is open, from the leaves up, and makes the topmost page the root.
    pub fn finish(mut self) -> Result<()> {
        let mut level = 0;
        let root = loop {
            let open = self.levels[level].take().expect("each level is completed once");
            let flags = if self.levels.len() == level + 1 { ROOT } else { 0 };
            let downlink = self.write(open, level, flags, None)?;
            if flags == ROOT {
                break downlink.child;
            }
            self.add_downlink(level, &downlink)?;
            level += 1;
        };
        let (held, mut meta) = self.tree.latch_meta()?;
        let root_level = level as u32;
        meta = Meta { root, root_level, fast: root, fast_level: root_level, ..meta };
        let mut cs = self.tree.section(1)?;
        let at = cs.add(held.guard);
        cs.apply(at, &Op::Meta(meta));
        cs.finish();
        Ok(())
    }
}
