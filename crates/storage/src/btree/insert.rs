//! Insertion: the unique check, the place, splits, parents, new roots.
//!
//! ```text
//!   descend ─> leaf latched ─> unique check ─> move right to the place ─> fits? ── yes ─> one
//! record
//!                                                                          │ no
//!        ┌── complete <── split (record; left page INCOMPLETE) <───────────┘
//!        ├─ left is the root: grow (record: new root, meta)
//!        └─ else: parent latched, separator placed there (record clears INCOMPLETE) ─ fits? ...
//! ```

use super::descend::{Held, Path, Side, Tree};
use super::node::*;
use super::ops::{Op, encode_indexes};
use super::split::Overflow;
use super::{InsertOutcome, MAX_KEY, UniqueCheck, UniqueVerdict, edit, key_too_long};
use crate::buffer::{ExclusiveGuard, ShareGuard};
use crate::error::Result;
use crate::ids::RowId;
use crate::page::{Page, PageClass};

/// How full internal pages are left by ascending inserts, in percent.
const INTERNAL_FILLFACTOR: u8 = 90;

type Latched<'e> = Held<ExclusiveGuard<'e>>;

enum Check {
    /// No duplicate; the entries at these indexes of the first leaf are dead to everybody.
    Clear(Vec<usize>),
    Not(InsertOutcome),
}

impl<'e> Tree<'e> {
    pub(super) fn insert(
        &self,
        key: &[u8],
        row: RowId,
        mut unique: Option<&mut dyn UniqueCheck>,
    ) -> Result<InsertOutcome> {
        if key.len() > MAX_KEY {
            return Err(key_too_long(key.len()));
        }
        assert!(row.is_valid(), "an index entry needs a row");
        let place = Pos::of(key, row);
        let mut path = Path::default();
        loop {
            let target = if unique.is_some() { Pos::before(key) } else { place };
            let mut leaf: Latched<'e> = self.descend(target, Side::At, 0, &mut path)?;
            if self.node(&leaf)?.has(INCOMPLETE) {
                self.complete_found(leaf, &path)?;
                continue;
            }
            if let Some(check) = &mut unique {
                match self.look_for_duplicates(&leaf, key, &mut **check)? {
                    Check::Clear(dead) if dead.is_empty() => {}
                    Check::Clear(dead) => leaf = self.remove_items(leaf, &dead)?,
                    Check::Not(outcome) => return Ok(outcome),
                }
                leaf = self.move_right(leaf, place)?;
                if self.node(&leaf)?.has(INCOMPLETE) {
                    self.complete_found(leaf, &path)?;
                    continue;
                }
            }
            let node = self.node(&leaf)?;
            let at = self.ok(leaf.block, node.lower_bound(place))?;
            if at < node.len() && self.ok(leaf.block, node.item(at))?.pos() == place {
                return Ok(InsertOutcome::Done);
            }
            self.watch_insert(leaf.block, key)?;
            let item = Item { key, row: place.row, child: Link::NONE };
            self.place(leaf, at, item, None, &path)?;
            if let Some((level, link)) = path.take_detour() {
                self.mend(level, link, &path)?;
            }
            return Ok(InsertOutcome::Done);
        }
    }

    /// Completes the split of a page that a descent met, if it is one that somebody left behind.
    fn mend(&self, level: u16, link: Link, path: &Path) -> Result<()> {
        let held: Latched<'e> = self.latch(link.block)?;
        match self.live(&held, link, level)? {
            Some(node) if node.has(INCOMPLETE) => self.complete_found(held, path),
            _ => Ok(()),
        }
    }

    /// Asks the heap about every entry with this key: first those of the latched leaf, then, moving
    /// right, those of the next ones. The first leaf stays latched: rule 17.
    fn look_for_duplicates(
        &self,
        first: &Latched<'e>,
        key: &[u8],
        check: &mut dyn UniqueCheck,
    ) -> Result<Check> {
        let mut dead = Vec::new();
        let node = self.node(first)?;
        let start = self.ok(first.block, node.lower_bound(Pos::before(key)))?;
        for i in start..node.len() {
            let item = self.ok(first.block, node.item(i))?;
            if item.key != key {
                return Ok(Check::Clear(dead));
            }
            match check.check(row_id(item.row))? {
                UniqueVerdict::Dead => {}
                UniqueVerdict::DeadToAll => dead.push(i),
                verdict => return Ok(Check::not(verdict, item.row)),
            }
        }
        let mut next = self.right_with(first.block, &node, key)?;
        let mut previous: Option<Held<ShareGuard<'e>>> = None;
        while let Some(link) = next {
            let latched = [first.block, previous.as_ref().map_or(0, |p| p.block)];
            let held = self.sibling::<ShareGuard<'e>>(link, 0, &latched)?;
            // Let go only now: nobody gets past us.
            drop(previous.take());
            let node = self.node(&held)?;
            for i in 0..node.len() {
                let item = self.ok(held.block, node.item(i))?;
                if item.key != key {
                    return Ok(Check::Clear(dead));
                }
                match check.check(row_id(item.row))? {
                    UniqueVerdict::Dead | UniqueVerdict::DeadToAll => {}
                    verdict => return Ok(Check::not(verdict, item.row)),
                }
            }
            next = self.right_with(held.block, &node, key)?;
            previous = Some(held);
        }
        Ok(Check::Clear(dead))
    }

    /// The right sibling, if entries with this key can be there.
    fn right_with(&self, block: u32, node: &Node<'_>, key: &[u8]) -> Result<Option<Link>> {
        let high = self.ok(block, node.high())?;
        Ok(high.is_some_and(|high| high.key == key).then(|| node.right()))
    }

    /// From a latched page to the one on the right that `place` belongs to, always latching the
    /// next before letting go.
    fn move_right(&self, mut held: Latched<'e>, place: Pos<'_>) -> Result<Latched<'e>> {
        loop {
            let node = self.node(&held)?;
            if !self.ok(held.block, node.is_beyond(place))? {
                return Ok(held);
            }
            held = self.sibling(node.right(), node.level(), &[held.block])?;
        }
    }

    /// Takes entries out of a latched leaf, in a record of its own.
    pub(super) fn remove_items(&self, held: Latched<'e>, indexes: &[usize]) -> Result<Latched<'e>> {
        let encoded = encode_indexes(indexes);
        let op = Op::Remove(&encoded);
        self.rehearse(held.block, &held.guard, &[op])?;
        let mut cs = self.section(1)?;
        let at = cs.add(held.guard);
        cs.apply(at, &op);
        let (_, guards) = cs.finish();
        let guard = guards.into_iter().next().expect("the section had one page");
        Ok(Held { guard, block: held.block })
    }

    /// Puts an item on a latched page, splitting it if need be. `below` is the left page of the
    /// split that `item` leads to the right page of: its mark goes with the same record.
    fn place(
        &self,
        page: Latched<'e>,
        at: usize,
        item: Item<'_>,
        below: Option<Below<'e>>,
        path: &Path,
    ) -> Result<()> {
        let node = self.node(&page)?;
        if item.size() <= node.room() {
            return self.put(page, at, item, below);
        }
        let alone = node.is_alone();
        let left = self.split(page, at, item, below)?;
        self.complete(left, alone, path)
    }

    /// Puts an item on a page that has room.
    fn put(
        &self,
        page: Latched<'e>,
        at: usize,
        item: Item<'_>,
        below: Option<Below<'e>>,
    ) -> Result<()> {
        let node = self.node(&page)?;
        let op = Op::insert(at, item);
        if !self.is_plain(&page.guard, &node, &item) {
            self.rehearse(page.block, &page.guard, &[op])?;
        }
        let mut new_top = None;
        if below.as_ref().is_some_and(|b| b.was_alone) {
            let (held, mut meta) = self.latch_meta()?;
            let level = u32::from(node.level());
            if meta.fast_level < level {
                meta.fast = Link::new(page.block, node.generation());
                meta.fast_level = level;
                new_top = Some((held, meta));
            }
        }
        let pages = 1 + usize::from(below.is_some()) + usize::from(new_top.is_some());
        let mut cs = self.section(pages)?;
        let main = cs.add(page.guard);
        cs.apply(main, &op);
        if let Some(below) = below {
            let at = cs.add(below.left.guard);
            cs.apply(at, &Op::ClearFlags(INCOMPLETE));
        }
        if let Some((held, meta)) = new_top {
            let at = cs.add(held.guard);
            cs.apply(at, &Op::Meta(meta));
        }
        cs.finish();
        Ok(())
    }

    /// Cuts a full page in two, the new item included, and returns the left page, still latched and
    /// waiting for [`Self::complete`].
    fn split(
        &self,
        page: Latched<'e>,
        at: usize,
        item: Item<'_>,
        below: Option<Below<'e>>,
    ) -> Result<Latched<'e>> {
        let old = self.node(&page)?;
        let plan = self.ok(page.block, self.plan_split(&old, at, item))?;
        let neighbour = match old.right() {
            Link::NONE => None,
            link => {
                let mut latched = vec![page.block];
                latched.extend(below.as_ref().map(|b| b.left.block));
                Some(self.sibling::<ExclusiveGuard<'e>>(link, old.level(), &latched)?)
            }
        };
        let fresh = self.allocate()?;
        self.carry_split(&old, page.block, fresh.page.block);
        let separator = Pos { key: &plan.key, row: plan.row };
        let mut left_ops = vec![Op::truncate(plan.kept, fresh.link(), separator)];
        if plan.new_goes_left {
            left_ops.push(Op::insert(at, item));
        }
        let init = edit::NodeInit {
            level: old.level(),
            flags: 0,
            generation: fresh.generation,
            left: page.block,
            right: old.right(),
        };
        let mut right_ops = vec![Op::Init(init), Op::Load(plan.right.bytes())];
        let high = plan.old_high.as_ref().map(|(key, row)| Pos { key, row: *row });
        right_ops.extend(high.map(Op::high));
        self.rehearse(page.block, &page.guard, &left_ops)?;
        self.rehearse(page.block, &Page::zeroed(), &right_ops)?;

        let mut cs = self.section(5)?;
        let left_at = cs.add(page.guard);
        left_ops.iter().for_each(|op| cs.apply(left_at, op));
        let fresh_link = fresh.link();
        let right_at = cs.add_init(fresh.page.guard, PageClass::BTree);
        right_ops.iter().for_each(|op| cs.apply(right_at, op));
        if let Some(held) = neighbour {
            let at = cs.add(held.guard);
            cs.apply(at, &Op::Left(fresh_link.block));
        }
        if let Some((held, meta)) = fresh.meta {
            let at = cs.add(held.guard);
            cs.apply(at, &Op::Meta(meta));
        }
        if let Some(below) = below {
            let at = cs.add(below.left.guard);
            cs.apply(at, &Op::ClearFlags(INCOMPLETE));
        }
        let (_, guards) = cs.finish();
        let guard = guards.into_iter().next().expect("the left page came first");
        Ok(Held { guard, block: page.block })
    }

    fn plan_split(&self, node: &Node<'_>, at: usize, new: Item<'_>) -> Read<SplitPlan> {
        let over = Overflow { node: *node, at, new };
        let fillfactor = if node.is_leaf() { self.rel.fillfactor } else { INTERNAL_FILLFACTOR };
        let cut = over.choose(fillfactor)?;
        let separator = over.separator(cut.left_count)?;
        let mut right = edit::ItemList::default();
        for i in cut.left_count..over.len() {
            let mut item = over.item(i)?;
            if i == cut.left_count && !node.is_leaf() {
                (item.key, item.row) = (&[], 0);
            }
            right.push(&item);
        }
        Ok(SplitPlan {
            kept: cut.left_count - usize::from(cut.new_goes_left),
            new_goes_left: cut.new_goes_left,
            key: separator.key.to_vec(),
            row: separator.row,
            right,
            old_high: node.high()?.map(|high| (high.key.to_vec(), high.row)),
        })
    }

    /// Completes a split that somebody else began, and lets go of the page.
    pub(super) fn complete_found(&self, left: Latched<'e>, path: &Path) -> Result<()> {
        let node = self.node(&left)?;
        let right: Held<ShareGuard<'e>> =
            self.sibling(node.right(), node.level(), &[left.block])?;
        let alone = node.left() == 0 && self.node(&right)?.right().is_none();
        drop(right);
        self.complete(left, alone, path)
    }

    /// Gives the right page of a split its place in the parent. `left` stays latched until then.
    fn complete(&self, left: Latched<'e>, was_alone: bool, path: &Path) -> Result<()> {
        let node = self.node(&left)?;
        let (right, level) = (node.right(), node.level() + 1);
        let high = self.ok(left.block, node.high())?;
        let Some(high) = high.filter(|_| !right.is_none()) else {
            return Err(self.corrupt(left.block, "a split index page without a right sibling"));
        };
        let (key, row) = (high.key.to_vec(), high.row);
        let separator = Pos { key: &key, row };
        if node.has(ROOT) {
            return self.grow(left, right, separator);
        }
        loop {
            let parent = self.parent(separator, level, path)?;
            let node = self.node(&parent)?;
            if node.has(INCOMPLETE) {
                self.complete_found(parent, path)?;
                continue;
            }
            let at = self.ok(parent.block, node.lower_bound(separator))?;
            if at < node.len() && self.ok(parent.block, node.item(at))?.pos() == separator {
                return Err(self.corrupt(parent.block, "an index page is in its parent twice"));
            }
            let item = Item { key: &key, row, child: right };
            let below = Below { left, was_alone };
            return self.place(parent, at, item, Some(below), path);
        }
    }

    /// A new root over the halves of the old one.
    fn grow(&self, left: Latched<'e>, right: Link, separator: Pos<'_>) -> Result<()> {
        let node = self.node(&left)?;
        let level = node.level() + 1;
        let left_link = Link::new(left.block, node.generation());
        let (held, meta) = self.latch_meta()?;
        if meta.root != left_link || level > MAX_LEVEL {
            return Err(self.corrupt(left.block, "a root of the index that the meta page denies"));
        }
        let fresh = self.allocate_under(held, meta)?;
        let mut items = edit::ItemList::default();
        items.push(&Item { key: &[], row: 0, child: left_link });
        items.push(&Item { key: separator.key, row: separator.row, child: right });
        let init = edit::NodeInit {
            level,
            flags: ROOT,
            generation: fresh.generation,
            left: 0,
            right: Link::NONE,
        };
        let root = fresh.link();
        let (held, mut meta) = fresh.meta.expect("given to the allocation");
        (meta.root, meta.root_level) = (root, u32::from(level));
        (meta.fast, meta.fast_level) = (root, u32::from(level));

        let mut cs = self.section(3)?;
        let at = cs.add(left.guard);
        cs.apply(at, &Op::ClearFlags(ROOT | INCOMPLETE));
        let at = cs.add_init(fresh.page.guard, PageClass::BTree);
        cs.apply(at, &Op::Init(init));
        cs.apply(at, &Op::Load(items.bytes()));
        let at = cs.add(held.guard);
        cs.apply(at, &Op::Meta(meta));
        cs.finish();
        self.remember_top(root, level);
        Ok(())
    }
}

/// The left page of a split, on its way to completion.
struct Below<'e> {
    left: Latched<'e>,
    /// Before the split it was the only page of its level: its parent becomes the fast root.
    was_alone: bool,
}

struct SplitPlan {
    /// How many of the page's own items stay.
    kept: usize,
    new_goes_left: bool,
    key: Vec<u8>,
    row: u64,
    right: edit::ItemList,
    old_high: Option<(Vec<u8>, u64)>,
}

impl Check {
    fn not(verdict: UniqueVerdict, row: u64) -> Self {
        Check::Not(match verdict {
            UniqueVerdict::WaitFor(xid) => InsertOutcome::WaitFor(xid),
            _ => InsertOutcome::Duplicate(row_id(row)),
        })
    }
}
