//! The structural checker: reads a whole index and names everything that breaks a rule of the
//! README.
//!
//! Level by level from the root: what a level's pages say about their children is the list that the
//! next level is compared with. Then the free list, then the blocks that neither reached.
//!
//! It latches one page at a time; the caller keeps writers away (an index in motion would look
//! broken).

use super::Problem;
use super::descend::{Held, Tree};
use super::node::*;
use crate::buffer::ShareGuard;
use crate::ids::{BlockNo, Fork, RowId};
use crate::page::{HEADER_SIZE, Page};

/// Stop after so many problems: one damaged page can cause thousands.
const MAX_PROBLEMS: usize = 100;

impl Tree<'_> {
    pub(super) fn check(&self, visit: &mut dyn FnMut(&[u8], RowId)) -> Vec<Problem> {
        let blocks = match self.pool.block_count(self.rel.rel, Fork::Main) {
            Ok(blocks) => blocks,
            Err(e) => return vec![Problem { block: 0, what: e.to_string() }],
        };
        let mut checker = Checker {
            tree: self,
            problems: Vec::new(),
            seen: vec![false; blocks as usize],
            visit,
            fast_seen: false,
        };
        checker.run();
        checker.problems
    }
}

type Bound = Option<(Vec<u8>, u64)>;

/// A child as its parent describes it.
struct Expected {
    low: (Vec<u8>, u64),
    link: Link,
}

struct Checker<'c, 'e> {
    tree: &'c Tree<'e>,
    problems: Vec<Problem>,
    seen: Vec<bool>,
    visit: &'c mut dyn FnMut(&[u8], RowId),
    fast_seen: bool,
}

/// What is carried from page to page along a level.
struct Along {
    level: u16,
    left: BlockNo,
    low: (Vec<u8>, u64),
    /// The previous page waits for its parent entry: this one is in no parent.
    pending: bool,
}

impl Checker<'_, '_> {
    fn problem(&mut self, block: BlockNo, what: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { block, what: what.into() });
        }
    }

    fn load(&mut self, block: BlockNo) -> Option<Box<Page>> {
        if block as usize >= self.seen.len() {
            self.problem(block, "a link leads beyond the end of the file");
            return None;
        }
        match self.tree.latch::<ShareGuard<'_>>(block) {
            Ok(Held { guard, .. }) => Some(Box::new((*guard).clone())),
            Err(e) => {
                self.problem(block, e.to_string());
                None
            }
        }
    }

    /// Marks a block as reached; false if it was before.
    fn reach(&mut self, block: BlockNo) -> bool {
        let twice = std::mem::replace(&mut self.seen[block as usize], true);
        if twice {
            self.problem(block, "reached on two ways");
        }
        !twice
    }

    fn run(&mut self) {
        let Some(page) = self.load(0) else { return };
        let meta = match Meta::read(&page) {
            Ok(meta) => meta,
            Err(damage) => return self.problem(0, damage.0),
        };
        self.reach(0);
        let low = (Vec::new(), 0);
        let mut expected = vec![Expected { low, link: meta.root }];
        let Ok(root_level) = u16::try_from(meta.root_level) else {
            return self.problem(0, "the root's level is impossible");
        };
        for level in (0..=root_level.min(MAX_LEVEL)).rev() {
            expected = self.level(level, expected, &meta);
        }
        if !self.fast_seen {
            self.problem(0, "the fast root is not the first page of its level");
        }
        self.free_list(&meta);
        self.leftovers();
    }

    /// Walks one level; returns what it says about the next one.
    fn level(&mut self, level: u16, expected: Vec<Expected>, meta: &Meta) -> Vec<Expected> {
        let mut children = Vec::new();
        let Some(first) = expected.first() else { return children };
        let mut link = first.link;
        if u32::from(level) == meta.fast_level {
            self.fast_seen = link == meta.fast;
        }
        let mut along = Along { level, left: 0, low: (Vec::new(), 0), pending: false };
        let mut expected = expected.into_iter();
        loop {
            if !along.pending {
                match expected.next() {
                    Some(e) if e.link == link && e.low == along.low => {}
                    Some(e) => {
                        let what = format!(
                            "the parents expect block {} from {:?}, the level has {} from {:?}",
                            e.link.block,
                            Pos { key: &e.low.0, row: e.low.1 },
                            link.block,
                            Pos { key: &along.low.0, row: along.low.1 },
                        );
                        self.problem(link.block, what);
                    }
                    None => self.problem(link.block, "in no parent"),
                }
            }
            let Some(page) = self.load(link.block) else { return children };
            if !self.reach(link.block) {
                return children;
            }
            let node = match Node::new(&page) {
                Ok(node) => node,
                Err(damage) => {
                    self.problem(link.block, damage.0);
                    return children;
                }
            };
            let high = self.page(&page, &node, link, &along, meta, &mut children);
            match (high, node.right()) {
                (None, Link::NONE) => break,
                (Some(high), right) if !right.is_none() => {
                    let pending = node.has(INCOMPLETE);
                    along = Along { level, left: link.block, low: high, pending };
                    link = right;
                }
                _ => {
                    self.problem(link.block, "high key and right link contradict each other");
                    break;
                }
            }
        }
        if expected.next().is_some() {
            self.problem(link.block, "the level ends before its parents' entries do");
        }
        children
    }

    /// Checks one page; returns its high key.
    fn page(
        &mut self,
        page: &Page,
        node: &Node<'_>,
        link: Link,
        along: &Along,
        meta: &Meta,
        children: &mut Vec<Expected>,
    ) -> Bound {
        let block = link.block;
        let rules = [
            (node.generation() != link.generation, "another generation than its link says"),
            (node.level() != along.level, "on the wrong level"),
            (node.has(DELETED), "deleted, and still in the tree"),
            (node.left() != along.left, "its left link is wrong"),
            (node.has(ROOT) != (link == meta.root), "its root mark is wrong"),
            (node.has(INCOMPLETE) && node.right().is_none(), "split without a right sibling"),
        ];
        for (broken, what) in rules {
            if broken {
                self.problem(block, what);
            }
        }
        let high = match node.high() {
            Ok(high) => high,
            Err(damage) => {
                self.problem(block, damage.0);
                None
            }
        };
        let low = Pos { key: &along.low.0, row: along.low.1 };
        if high.is_some_and(|high| high <= low) {
            self.problem(block, "its high key is not above its low bound");
        }
        if let Err(what) = self.items(node, low, high, children) {
            self.problem(block, what);
        }
        if let Err(what) = layout(page, node) {
            self.problem(block, what);
        }
        high.map(|high| (high.key.to_vec(), high.row))
    }

    fn items(
        &mut self,
        node: &Node<'_>,
        low: Pos<'_>,
        high: Option<Pos<'_>>,
        children: &mut Vec<Expected>,
    ) -> std::result::Result<(), String> {
        let mut previous: Option<Pos<'_>> = None;
        for i in 0..node.len() {
            let item = node.item(i).map_err(|damage| damage.0.to_owned())?;
            let mut pos = item.pos();
            if i < node.first() {
                if !item.key.is_empty() || item.row != 0 {
                    return Err("item 0 of an internal page has a key".to_owned());
                }
                pos = low;
            }
            if node.is_leaf() && item.row == 0 {
                return Err(format!("item {i} has no row"));
            }
            if pos < low || previous.is_some_and(|p| p >= pos) {
                return Err(format!("item {i} is out of order: {pos:?} after {previous:?}"));
            }
            if high.is_some_and(|high| pos >= high) {
                return Err(format!("item {i}, {pos:?}, is not below the high key {high:?}"));
            }
            previous = Some(pos);
            if node.is_leaf() {
                (self.visit)(item.key, row_id(item.row));
            } else {
                children.push(Expected { low: (pos.key.to_vec(), pos.row), link: item.child });
            }
        }
        Ok(())
    }

    fn free_list(&mut self, meta: &Meta) {
        let (mut block, mut count) = (meta.free_head, 0u32);
        while block != 0 {
            let Some(page) = self.load(block) else { return };
            if !self.reach(block) {
                return;
            }
            count += 1;
            match Node::new(&page) {
                Ok(node) if node.has(DELETED) => block = node.left(),
                _ => return self.problem(block, "on the free list, and not deleted"),
            }
        }
        if count != meta.free_count {
            let what = format!("{count} pages on the free list, counted as {}", meta.free_count);
            self.problem(0, what);
        }
    }

    /// Blocks that are neither in the tree nor free: only pages of zeros may be left over.
    fn leftovers(&mut self) {
        if !self.problems.is_empty() {
            return;
        }
        for block in 0..self.seen.len() as BlockNo {
            if !self.seen[block as usize]
                && let Some(page) = self.load(block)
                && !page.is_zeroed()
            {
                self.problem(block, "neither in the tree nor on the free list");
            }
        }
    }
}

/// What the layout promises beyond what reading needs: exact heads, skip and garbage.
fn layout(page: &Page, node: &Node<'_>) -> std::result::Result<(), String> {
    let damage = |d: Damage| d.0.to_owned();
    let mut used = node.high().map_err(damage)?.map_or(0, |high| high.key.len());
    let mut extents = Vec::with_capacity(node.len());
    for i in 0..node.len() {
        let item = node.item(i).map_err(damage)?;
        let slot_at = HEADER_SIZE + i * SLOT_SIZE;
        let head = match item.key.get(node.skip()..) {
            Some(rest) => head_of(rest),
            None if i < node.first() => 0,
            None => return Err(format!("item {i} is shorter than the common prefix")),
        };
        if page.u32_at(slot_at) != head {
            return Err(format!("item {i} has a wrong head"));
        }
        let offset = usize::from(page.u16_at(slot_at + 4));
        extents.push((offset, offset + item.data_size()));
        used += item.data_size();
    }
    extents.sort_unstable();
    if extents.windows(2).any(|w| w[0].1 > w[1].0) {
        return Err("items overlap".to_owned());
    }
    if extents.first().is_some_and(|first| first.0 < usize::from(page.upper())) {
        return Err("an item lies in the free space".to_owned());
    }
    if used + node.garbage() != TRAILER_AT - usize::from(page.upper()) {
        return Err("the count of garbage bytes is wrong".to_owned());
    }
    if node.len() > node.first() + 1 {
        let first = node.item(node.first()).map_err(damage)?.key;
        let last = node.item(node.len() - 1).map_err(damage)?.key;
        if common_prefix(first, last) < node.skip() {
            return Err("keys differ within the common prefix".to_owned());
        }
    }
    Ok(())
}
