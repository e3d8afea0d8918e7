//! SIREAD locks: what each transaction has read, and who has read a thing.
//!
//! ```text
//!   State::targets   tag -> holders, and the newest commit of summarised ones
//!   Xact::held       relation -> whole | pages -> whole | slots;  keys
//! ```
//!
//! Both are kept equal under the one mutex. A lock that a coarser one covers is not taken, and
//! goes when the coarser one comes (rules G1, G2).

use super::State;
use super::tag::Tag;
use super::xact::SxId;
use crate::ids::{BlockNo, Lsn, RelId, RowId, SlotNo};
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

/// Who has read a thing.
#[derive(Default, Debug)]
pub(super) struct Target {
    pub holders: SmallVec<[SxId; 2]>,
    /// The newest commit of summarised holders; invalid: none.
    pub old: Lsn,
}

/// What one transaction has read.
#[derive(Default, Debug)]
pub(super) struct Held {
    pub rels: HashMap<RelId, HeldRel>,
}

#[derive(Default, Debug)]
pub(super) struct HeldRel {
    pub whole: bool,
    pages: HashMap<BlockNo, HeldPage>,
    keys: HashSet<u64>,
    /// Locks below the relation's.
    count: usize,
}

#[derive(Default, Debug)]
struct HeldPage {
    whole: bool,
    slots: SmallVec<[SlotNo; 4]>,
}

impl HeldRel {
    /// The locks in it, each with the page to show it with.
    pub fn tags(&self, rel: RelId) -> impl Iterator<Item = (Tag, Option<BlockNo>)> + '_ {
        let whole = self.whole.then_some((Tag::Relation(rel), None));
        let pages = self.pages.iter().flat_map(move |(block, page)| {
            let whole = page.whole.then_some((Tag::Page(rel, *block), Some(*block)));
            let tuple = move |slot: &SlotNo| Tag::Tuple(rel, RowId::new(*block, *slot));
            whole.into_iter().chain(page.slots.iter().map(move |s| (tuple(s), Some(*block))))
        });
        let keys = self.keys.iter().map(move |key| (Tag::Key(rel, *key), None));
        whole.into_iter().chain(pages).chain(keys)
    }
}

impl Held {
    pub fn tags(&self) -> impl Iterator<Item = (Tag, Option<BlockNo>)> + '_ {
        self.rels.iter().flat_map(|(rel, held)| held.tags(*rel))
    }
}

/// The table of targets, apart from the transactions so that both can be borrowed.
#[derive(Default, Debug)]
pub(super) struct Targets {
    pub map: HashMap<Tag, Target>,
    /// Holders in all targets.
    pub held: usize,
    /// Targets with summarised holders.
    pub old: HashSet<Tag>,
    /// The newest of their positions.
    pub old_newest: Lsn,
}

impl Targets {
    fn add(&mut self, tag: Tag, id: SxId) {
        self.map.entry(tag).or_default().holders.push(id);
        self.held += 1;
    }

    fn remove(&mut self, tag: Tag, id: SxId) {
        let Some(target) = self.map.get_mut(&tag) else { return };
        let Some(at) = target.holders.iter().position(|h| *h == id) else { return };
        target.holders.swap_remove(at);
        self.held -= 1;
        if target.holders.is_empty() && !target.old.is_valid() {
            self.map.remove(&tag);
        }
    }

    /// Notes that summarised transactions, committed up to `newest`, have read `tag`.
    pub fn add_old(&mut self, tag: Tag, newest: Lsn) {
        let target = self.map.entry(tag).or_default();
        target.old = target.old.max(newest);
        self.old.insert(tag);
        self.old_newest = self.old_newest.max(newest);
    }

    fn remove_old(&mut self, tag: Tag) {
        self.old.remove(&tag);
        let Some(target) = self.map.get_mut(&tag) else { return };
        target.old = Lsn::INVALID;
        if target.holders.is_empty() {
            self.map.remove(&tag);
        }
    }

    /// Forgets summarised locks of commits at or before `covered`, and makes relations of the
    /// rest when they are more than `limit`.
    pub fn trim_old(&mut self, covered: Lsn, limit: usize) {
        if self.old.is_empty() {
            return;
        }
        let all = self.old_newest <= covered;
        if !all && self.old.len() <= limit {
            return;
        }
        let tags: Vec<Tag> = self.old.iter().copied().collect();
        for tag in tags {
            let old = self.map.get(&tag).map_or(Lsn::INVALID, |t| t.old);
            if old <= covered {
                self.remove_old(tag);
            } else if self.old.len() > limit && tag != Tag::Relation(tag.rel()) {
                self.remove_old(tag);
                self.add_old(Tag::Relation(tag.rel()), old);
            }
        }
        if self.old.is_empty() {
            self.old_newest = Lsn::INVALID;
        }
    }
}

impl State {
    /// Takes a lock unless a coarser one is held.
    pub(super) fn lock(&mut self, id: SxId, tag: Tag) {
        let limits = self.limits;
        let Some(xact) = self.xacts.get_mut(&id) else { return };
        let targets = &mut self.targets;
        let rel = tag.rel();
        let held = xact.held.rels.entry(rel).or_default();
        if held.whole {
            return;
        }
        match tag {
            Tag::Relation(_) => return coarsen(held, rel, id, targets),
            Tag::Page(_, block) => {
                let page = held.pages.entry(block).or_default();
                if page.whole {
                    return;
                }
                whole_page(page, rel, block, id, targets, &mut held.count);
            }
            Tag::Tuple(_, row) => {
                let page = held.pages.entry(row.block).or_default();
                if page.whole || page.slots.contains(&row.slot) {
                    return;
                }
                if page.slots.len() >= limits.per_page {
                    whole_page(page, rel, row.block, id, targets, &mut held.count);
                } else {
                    page.slots.push(row.slot);
                    held.count += 1;
                    targets.add(tag, id);
                }
            }
            Tag::Key(_, key) => {
                if !held.keys.insert(key) {
                    return;
                }
                held.count += 1;
                targets.add(tag, id);
            }
        }
        if held.count > limits.per_relation {
            coarsen(held, rel, id, targets);
        }
        if targets.held > limits.total {
            self.relieve(id);
        }
    }

    /// Too many locks in all: makes relations of the asker's, then of ended ones', then of
    /// everybody's.
    #[cold]
    fn relieve(&mut self, asker: SxId) {
        let ended = self.committed.iter().map(|(_, id)| *id);
        let running = self.active.iter().map(|(_, id)| *id);
        let order: Vec<SxId> = [asker].into_iter().chain(ended).chain(running).collect();
        for id in order {
            if self.targets.held <= self.limits.total {
                return;
            }
            let Some(xact) = self.xacts.get_mut(&id) else { continue };
            for (rel, held) in &mut xact.held.rels {
                if !held.whole {
                    coarsen(held, *rel, id, &mut self.targets);
                }
            }
        }
    }

    /// Gives up what a transaction has read.
    pub(super) fn release_locks(&mut self, id: SxId) {
        let Some(xact) = self.xacts.get_mut(&id) else { return };
        let held = std::mem::take(&mut xact.held);
        for (tag, _) in held.tags() {
            self.targets.remove(tag, id);
        }
    }

    /// Gives up the lock on one row version: its holder has written it itself.
    pub(super) fn release_tuple(&mut self, id: SxId, rel: RelId, row: RowId) {
        let Some(xact) = self.xacts.get_mut(&id) else { return };
        let Some(held) = xact.held.rels.get_mut(&rel) else { return };
        let Some(page) = held.pages.get_mut(&row.block) else { return };
        let Some(at) = page.slots.iter().position(|slot| *slot == row.slot) else { return };
        page.slots.swap_remove(at);
        if page.slots.is_empty() && !page.whole {
            held.pages.remove(&row.block);
        }
        held.count -= 1;
        self.targets.remove(Tag::Tuple(rel, row), id);
    }

    /// Whoever has read page `from` has read page `to` as well; with `gone`, `from` is no more.
    pub(super) fn carry_page(&mut self, rel: RelId, from: BlockNo, to: BlockNo, gone: bool) {
        let Some(target) = self.targets.map.get(&Tag::Page(rel, from)) else { return };
        let (holders, old) = (target.holders.clone(), target.old);
        for id in holders {
            self.lock(id, Tag::Page(rel, to));
            if gone {
                self.forget_page(id, rel, from);
            }
        }
        if old.is_valid() {
            self.targets.add_old(Tag::Page(rel, to), old);
            if gone {
                self.targets.remove_old(Tag::Page(rel, from));
            }
        }
    }

    fn forget_page(&mut self, id: SxId, rel: RelId, block: BlockNo) {
        let Some(xact) = self.xacts.get_mut(&id) else { return };
        let Some(held) = xact.held.rels.get_mut(&rel) else { return };
        // Promoted meanwhile: the page's lock is gone already.
        if held.pages.get(&block).is_some_and(|page| page.whole) {
            held.pages.remove(&block);
            held.count -= 1;
            self.targets.remove(Tag::Page(rel, block), id);
        }
    }

    /// Whoever has read anything in `from` has read all of `to` (rule G4).
    pub(super) fn carry_relation(&mut self, from: RelId, to: RelId) {
        let readers = self.xacts.iter().filter(|(_, x)| x.held.rels.contains_key(&from));
        let readers: Vec<SxId> = readers.map(|(id, _)| *id).collect();
        for id in readers {
            self.lock(id, Tag::Relation(to));
        }
        let old = self.targets.old.iter().filter(|tag| tag.rel() == from);
        let newest = old.filter_map(|tag| self.targets.map.get(tag)).map(|t| t.old).max();
        if let Some(newest) = newest {
            self.targets.add_old(Tag::Relation(to), newest);
        }
    }

    /// Everything that is locked in a relation.
    pub(super) fn tags_in(&self, rel: RelId) -> Vec<Tag> {
        self.targets.map.keys().filter(|tag| tag.rel() == rel).copied().collect()
    }
}

/// One lock on the relation in place of all finer ones.
fn coarsen(held: &mut HeldRel, rel: RelId, id: SxId, targets: &mut Targets) {
    targets.add(Tag::Relation(rel), id);
    let finer: Vec<Tag> = held.tags(rel).map(|(tag, _)| tag).collect();
    for tag in finer {
        targets.remove(tag, id);
    }
    *held = HeldRel { whole: true, ..HeldRel::default() };
}

/// One lock on the page in place of those on its tuples.
fn whole_page(
    page: &mut HeldPage,
    rel: RelId,
    block: BlockNo,
    id: SxId,
    targets: &mut Targets,
    count: &mut usize,
) {
    targets.add(Tag::Page(rel, block), id);
    for slot in &page.slots {
        targets.remove(Tag::Tuple(rel, RowId::new(block, *slot)), id);
    }
    *count = *count + 1 - page.slots.len();
    *page = HeldPage { whole: true, slots: SmallVec::new() };
}
