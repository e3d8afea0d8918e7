//! Reading: cursors over a key range in either direction, and the exact look-up.
//!
//! A batch is the matching part of one leaf, copied under its share latch. Between batches a
//! cursor holds nothing but keys and links; why that is enough is argued in the README ("why a
//! scan misses nothing").

use super::descend::{Held, Path, Side, Tree};
use super::node::*;
use super::{Direction, IndexBatch};
use crate::buffer::ShareGuard;
use crate::error::Result;
use crate::ids::{BlockNo, Fork};
use std::ops::{Bound, Range};

impl<'e> Tree<'e> {
    pub(super) fn lookup(&self, key: &[u8], out: &mut IndexBatch) -> Result<bool> {
        out.clear();
        self.watch_key(key)?;
        let mut path = Path::default();
        let mut held: Held<ShareGuard<'e>> =
            self.descend(Pos::before(key), Side::At, 0, &mut path)?;
        loop {
            let node = Node::again(&held.guard);
            let start = self.ok(held.block, node.lower_bound(Pos::before(key)))?;
            out.leaf = Some((self.id(held.block), held.guard.lsn()));
            for i in start..node.len() {
                let item = self.ok(held.block, node.item(i))?;
                if item.key != key {
                    return Ok(!out.is_empty());
                }
                out.push(key, row_id(item.row));
            }
            // More of the same key further right?
            let high = self.ok(held.block, node.high())?;
            let Some(row) = high.filter(|high| high.key == key).map(|high| high.row) else {
                return Ok(!out.is_empty());
            };
            let (from, link) = (Pos { key, row }, node.right());
            drop(held);
            held = match self.arrive(link, 0, from, Side::At)? {
                Some(next) => next,
                None => self.descend(from, Side::At, 0, &mut path)?,
            };
        }
    }

    pub(super) fn still_current(&self, batch: &IndexBatch) -> Result<bool> {
        let Some((id, lsn)) = batch.leaf else { return Ok(false) };
        Ok(self.pool.share(id)?.lsn() == lsn)
    }
}

/// A place between entries, owned.
#[derive(Clone, Default, Debug)]
struct Mark {
    key: Vec<u8>,
    row: u64,
}

impl Mark {
    fn set(&mut self, pos: Pos<'_>) {
        self.key.clear();
        self.key.extend_from_slice(pos.key);
        self.row = pos.row;
    }

    fn pos(&self) -> Pos<'_> {
        Pos { key: &self.key, row: self.row }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Descend for the mark (or, backward from an open end, for the last leaf).
    Descend,
    /// Probably this page: forward, the right sibling of the last leaf; backward, the left one,
    /// provided that its right link says so.
    Sibling {
        block: BlockNo,
        link: Link,
    },
    Done,
}

/// A scan of a key range. Owns its position: pages may split and go away between batches.
#[derive(Clone, Debug)]
pub struct Cursor {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
    next: Next,
    /// Forward: entries below it are done. Backward: entries at it or above are done.
    mark: Mark,
    /// Backward from an open upper end: there is no mark yet.
    from_end: bool,
}

impl Cursor {
    pub fn new(lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>, direction: Direction) -> Self {
        let mut mark = Mark::default();
        let mut from_end = false;
        match direction {
            Direction::Forward => {
                if let Some(low) = low_pos(&lower) {
                    mark.set(low);
                }
            }
            Direction::Backward => match high_pos(&upper) {
                Some(high) => mark.set(high),
                None => from_end = true,
            },
        }
        Cursor { lower, upper, direction, next: Next::Descend, mark, from_end }
    }

    /// A scan of everything.
    pub fn all(direction: Direction) -> Self {
        Cursor::new(Bound::Unbounded, Bound::Unbounded, direction)
    }

    pub(super) fn next_leaf(&mut self, tree: &Tree<'_>, out: &mut IndexBatch) -> Result<bool> {
        out.clear();
        let mut leaves = 0u64;
        while out.is_empty() && self.next != Next::Done {
            leaves += 1;
            if leaves.is_multiple_of(1 << 16) {
                // So many leaves without a match are rare; more than there are pages, impossible.
                let blocks = tree.pool.block_count(tree.rel.rel, Fork::Main)?;
                if leaves > 2 * u64::from(blocks) {
                    return Err(tree.corrupt(0, "sibling links of an index lead in a circle"));
                }
            }
            match self.direction {
                Direction::Forward => self.forward(tree, out)?,
                Direction::Backward => self.backward(tree, out)?,
            }
        }
        Ok(!out.is_empty())
    }

    fn forward(&mut self, tree: &Tree<'_>, out: &mut IndexBatch) -> Result<()> {
        let sibling = match self.next {
            Next::Sibling { link, .. } => tree.arrive(link, 0, self.mark.pos(), Side::At)?,
            _ => None,
        };
        let held: Held<ShareGuard<'_>> = match sibling {
            Some(held) => held,
            None => tree.descend(self.mark.pos(), Side::At, 0, &mut Path::default())?,
        };
        tree.watch_leaf(held.block)?;
        let node = tree.node(&held)?;
        let high = tree.ok(held.block, node.high())?;
        let start = tree.ok(held.block, node.lower_bound(self.mark.pos()))?;
        let (end, last) = match high_pos(&self.upper) {
            Some(upper) => {
                let end = tree.ok(held.block, node.lower_bound(upper))?;
                (end, end < node.len() || high.is_some_and(|high| upper <= high))
            }
            None => (node.len(), false),
        };
        copy(tree, &held, &node, start..end, Direction::Forward, out)?;
        self.next = match high {
            Some(high) if !last => {
                self.mark.set(high);
                Next::Sibling { block: node.right().block, link: node.right() }
            }
            _ => Next::Done,
        };
        Ok(())
    }

    fn backward(&mut self, tree: &Tree<'_>, out: &mut IndexBatch) -> Result<()> {
        let held = match self.left_sibling(tree)? {
            Some(held) => held,
            None if self.from_end => last_leaf(tree)?,
            None => tree.descend(self.mark.pos(), Side::Below, 0, &mut Path::default())?,
        };
        tree.watch_leaf(held.block)?;
        let node = tree.node(&held)?;
        let end = match self.from_end {
            true => node.len(),
            false => tree.ok(held.block, node.lower_bound(self.mark.pos()))?,
        };
        let start = match low_pos(&self.lower) {
            Some(low) => tree.ok(held.block, node.lower_bound(low))?,
            None => 0,
        };
        copy(tree, &held, &node, start.min(end)..end, Direction::Backward, out)?;
        if start < end {
            let first = tree.ok(held.block, node.item(start))?.pos();
            if !self.from_end && first >= self.mark.pos() {
                return Err(tree.corrupt(held.block, "index items are out of order"));
            }
            self.mark.set(first);
            self.from_end = false;
        }
        self.next = if start > 0 || node.left() == 0 {
            Next::Done
        } else {
            let here = Link::new(held.block, node.generation());
            Next::Sibling { block: node.left(), link: here }
        };
        Ok(())
    }

    /// The left neighbour of the page that the last batch came from, if it still is that.
    fn left_sibling<'e>(&self, tree: &Tree<'e>) -> Result<Option<Held<ShareGuard<'e>>>> {
        let Next::Sibling { block, link } = self.next else { return Ok(None) };
        #[cfg(test)]
        super::testing::between_latches();
        let held = tree.latch::<ShareGuard<'e>>(block)?;
        let node = tree.node(&held)?;
        let neighbour = node.is_leaf() && !node.has(DELETED) && node.right() == link;
        Ok(neighbour.then_some(held))
    }
}

/// The position that a range starts at: entries at it and above are in.
fn low_pos(bound: &Bound<Vec<u8>>) -> Option<Pos<'_>> {
    match bound {
        Bound::Included(key) => Some(Pos::before(key)),
        Bound::Excluded(key) => Some(Pos::after(key)),
        Bound::Unbounded => None,
    }
}

/// The position that a range ends at: entries below it are in.
fn high_pos(bound: &Bound<Vec<u8>>) -> Option<Pos<'_>> {
    match bound {
        Bound::Included(key) => Some(Pos::after(key)),
        Bound::Excluded(key) => Some(Pos::before(key)),
        Bound::Unbounded => None,
    }
}

fn copy(
    tree: &Tree<'_>,
    held: &Held<ShareGuard<'_>>,
    node: &Node<'_>,
    range: Range<usize>,
    direction: Direction,
    out: &mut IndexBatch,
) -> Result<()> {
    out.leaf = Some((tree.id(held.block), held.guard.lsn()));
    let (start, len) = (range.start, range.len());
    for step in 0..len {
        let i = match direction {
            Direction::Forward => start + step,
            Direction::Backward => start + len - 1 - step,
        };
        let item = tree.ok(held.block, node.item(i))?;
        out.push(item.key, row_id(item.row));
    }
    Ok(())
}

/// The rightmost leaf: down the last links, then right if it has been split meanwhile.
fn last_leaf<'e>(tree: &Tree<'e>) -> Result<Held<ShareGuard<'e>>> {
    // Longer than any key and above all of them: no entry's position comes after it.
    let beyond = [0xFF; super::MAX_KEY + 1];
    tree.descend(Pos::after(&beyond), Side::At, 0, &mut Path::default())
}
