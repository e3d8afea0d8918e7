//! Where there is room: the free-space map, and the choice of a page to insert into.
//!
//! In memory a relation has one byte a block (free bytes / 32) and the maximum of each group of
//! 256 blocks, so that a search looks at a few dozen bytes. On disk the same bytes lie in the
//! `_fsm` fork, 8,152 a page; vacuum writes them, and they are read when the relation is first
//! written to.
//!
//! ```text
//!   insert needs 200 bytes ──> groups: [ 3 | 0 | 250 | ... ]  first with max >= 7
//!                                             `──> blocks of that group, first with >= 7
//! ```
//!
//! The map is advice. Whoever follows it latches the page and looks; when the page has less than
//! the map said, the map is told. A lost or old map costs some wasted looks or some unused space
//! until the next vacuum, never a wrong result. Hence the bytes on disk are logged when vacuum
//! writes them and not brought up to date at every insert.

use super::codec::{Reader, put_varint};
use super::page::{BadPage, bad};
use crate::buffer::{BufferPool, CriticalSection, OpError, PageOp};
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::{BlockNo, Fork, PageId, RelId, SlotNo, Xid};
use crate::page::{HEADER_SIZE, PAGE_SIZE, Page, PageClass};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Bytes of free space that one step of a category stands for.
const STEP: usize = 32;
/// Heap blocks that one page of the map covers.
pub const BLOCKS_PER_FSM_PAGE: usize = PAGE_SIZE - HEADER_SIZE;
const GROUP: usize = 256;
/// Sessions spread over this many favourite blocks a relation.
const LANES: usize = 4;
const NO_BLOCK: u32 = u32::MAX;

/// The category that `free` bytes fall into: rounded down.
#[inline]
pub fn category(free: usize) -> u8 {
    (free / STEP).min(255) as u8
}

/// The category that surely has `need` bytes.
fn category_for(need: usize) -> u8 {
    need.div_ceil(STEP).min(255) as u8
}

/// A run of categories on a page of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsmOp<'a> {
    pub first: u16,
    pub categories: &'a [u8],
}

impl FsmOp<'_> {
    fn change(&self, page: &mut Page) -> Result<(), BadPage> {
        if page.class() != Some(PageClass::Fsm) {
            page.init(PageClass::Fsm, 0);
            page.set_lower(PAGE_SIZE as u16);
        }
        let from = HEADER_SIZE + usize::from(self.first);
        let slots = page.bytes_mut().get_mut(from..from + self.categories.len());
        let slots = slots.ok_or(bad("free-space map entry beyond its page", SlotNo::INVALID))?;
        slots.copy_from_slice(self.categories);
        Ok(())
    }
}

impl PageOp for FsmOp<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.first));
        put_varint(out, self.categories.len() as u64);
        out.extend_from_slice(self.categories);
    }

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        self.change(page).map_err(|e| OpError::new(e.to_string()))
    }
}

/// Replays a block's part of a record on a page of the map.
pub fn redo(ops: &[u8], page: &mut Page) -> Result<(), BadPage> {
    const MALFORMED: BadPage = bad("malformed free-space map operation", SlotNo::INVALID);
    let mut r = Reader(ops);
    while !r.is_empty() {
        let first = r.u16().ok_or(MALFORMED)?;
        let len = usize::from(r.u16().ok_or(MALFORMED)?);
        let categories = r.bytes(len).ok_or(MALFORMED)?;
        FsmOp { first, categories }.change(page)?;
    }
    Ok(())
}

/// Free space of one relation, in memory.
#[derive(Debug, Default)]
struct FreeMap {
    loaded: bool,
    categories: Vec<u8>,
    group_max: Vec<u8>,
    /// Where the last search ended, so that inserts do not all meet at the start.
    next_group: usize,
}

impl FreeMap {
    fn set(&mut self, block: BlockNo, category: u8) {
        let at = block as usize;
        if at >= self.categories.len() {
            if category == 0 {
                return;
            }
            self.categories.resize(at + 1, 0);
            self.group_max.resize(at / GROUP + 1, 0);
        }
        let before = std::mem::replace(&mut self.categories[at], category);
        let group = at / GROUP;
        let max = &mut self.group_max[group];
        if category >= *max {
            *max = category;
        } else if before == *max {
            let from = group * GROUP;
            let to = (from + GROUP).min(self.categories.len());
            *max = self.categories[from..to].iter().copied().max().unwrap_or(0);
        }
    }

    fn find(&mut self, least: u8) -> Option<BlockNo> {
        let groups = self.group_max.len();
        for step in 0..groups {
            let group = (self.next_group + step) % groups;
            if self.group_max[group] >= least {
                self.next_group = group;
                let from = group * GROUP;
                let to = (from + GROUP).min(self.categories.len());
                let at = self.categories[from..to].iter().position(|c| *c >= least)?;
                return Some((from + at) as BlockNo);
            }
        }
        None
    }

    fn truncate(&mut self, blocks: BlockNo) {
        self.categories.truncate(blocks as usize);
        self.group_max.truncate((blocks as usize).div_ceil(GROUP));
        if let Some(last) = self.group_max.last_mut() {
            let from = self.categories.len().saturating_sub(1) / GROUP * GROUP;
            *last = self.categories[from..].iter().copied().max().unwrap_or(0);
        }
        self.next_group = 0;
    }
}

/// What the heap remembers about a relation while the engine runs.
#[derive(Debug)]
pub struct RelSpace {
    map: Mutex<FreeMap>,
    /// The block that each lane inserted into last.
    targets: [AtomicU32; LANES],
}

impl Default for RelSpace {
    fn default() -> Self {
        RelSpace {
            map: Mutex::new(FreeMap::default()),
            targets: std::array::from_fn(|_| AtomicU32::new(NO_BLOCK)),
        }
    }
}

/// This thread's lane.
fn lane() -> usize {
    use std::cell::Cell;
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local!(static LANE: Cell<usize> = const { Cell::new(usize::MAX) });
    LANE.with(|lane| {
        if lane.get() == usize::MAX {
            lane.set(NEXT.fetch_add(1, Ordering::Relaxed) % LANES);
        }
        lane.get()
    })
}

impl RelSpace {
    pub(super) fn target(&self) -> Option<BlockNo> {
        let block = self.targets[lane()].load(Ordering::Relaxed);
        (block != NO_BLOCK).then_some(block)
    }

    pub(super) fn set_target(&self, block: Option<BlockNo>) {
        self.targets[lane()].store(block.unwrap_or(NO_BLOCK), Ordering::Relaxed);
    }

    /// Whether another lane inserts into `block`.
    fn is_taken(&self, block: BlockNo) -> bool {
        let mine = lane();
        let other = |(at, t): (usize, &AtomicU32)| at != mine && t.load(Ordering::Relaxed) == block;
        self.targets.iter().enumerate().any(other)
    }

    /// Notes how much a page has free.
    pub fn note(&self, block: BlockNo, free: usize) {
        self.map.lock().set(block, category(free));
    }

    /// A page that should have `need` bytes.
    pub(super) fn find(
        &self,
        pool: &BufferPool,
        rel: RelId,
        need: usize,
    ) -> Result<Option<BlockNo>> {
        self.load(pool, rel)?;
        let found = self.map.lock().find(category_for(need));
        // Two lanes in one page would only wait for each other; the next look goes elsewhere.
        Ok(found.filter(|block| !self.is_taken(*block)))
    }

    /// Reads the map from disk, once. A page that cannot be used counts as "nothing free".
    fn load(&self, pool: &BufferPool, rel: RelId) -> Result<()> {
        if self.map.lock().loaded {
            return Ok(());
        }
        let pages = pool.block_count(rel, Fork::Fsm)?;
        let heap_blocks = pool.block_count(rel, Fork::Main)? as usize;
        let mut read = Vec::new();
        for block in 0..pages {
            let page = pool.share(PageId::new(rel, Fork::Fsm, block))?;
            if page.class() == Some(PageClass::Fsm) {
                read.extend_from_slice(&page.bytes()[HEADER_SIZE..]);
            } else {
                read.resize(read.len() + BLOCKS_PER_FSM_PAGE, 0);
            }
        }
        read.truncate(heap_blocks);
        let mut map = self.map.lock();
        if !map.loaded {
            map.loaded = true;
            for (block, category) in read.into_iter().enumerate() {
                if map.categories.get(block).copied().unwrap_or(0) == 0 {
                    map.set(block as BlockNo, category);
                }
            }
        }
        Ok(())
    }

    /// The relation was cut to `blocks` blocks.
    pub(super) fn truncated(&self, blocks: BlockNo) {
        self.map.lock().truncate(blocks);
        for target in &self.targets {
            if target.load(Ordering::Relaxed) >= blocks {
                target.store(NO_BLOCK, Ordering::Relaxed);
            }
        }
    }

    /// Free bytes that the map knows of, for statistics.
    pub fn known_free(&self) -> u64 {
        self.map.lock().categories.iter().map(|c| u64::from(*c) * STEP as u64).sum()
    }

    fn snapshot(&self) -> Vec<u8> {
        self.map.lock().categories.clone()
    }
}

/// Brings the map on disk up to date: vacuum's last step. Pages that did not change are left.
pub(super) fn write_map(e: &Engine, rel: RelId, space: &RelSpace) -> Result<()> {
    space.load(&e.pool, rel)?;
    let categories = space.snapshot();
    for (number, part) in categories.chunks(BLOCKS_PER_FSM_PAGE).enumerate() {
        let number = number as BlockNo;
        if part.iter().all(|c| *c == 0) && number >= e.pool.block_count(rel, Fork::Fsm)? {
            continue;
        }
        while e.pool.block_count(rel, Fork::Fsm)? <= number {
            drop(e.pool.extend(rel, Fork::Fsm)?);
        }
        let guard = e.pool.exclusive(PageId::new(rel, Fork::Fsm, number))?;
        let fresh = guard.class() != Some(PageClass::Fsm);
        if !fresh && guard.bytes()[HEADER_SIZE..HEADER_SIZE + part.len()] == *part {
            continue;
        }
        let mut cs = CriticalSection::begin(e.log(), Xid::INVALID)?;
        let at = if fresh { cs.add_init(guard, PageClass::Fsm) } else { cs.add(guard) };
        cs.apply(at, &FsmOp { first: 0, categories: part });
        cs.finish();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_finds_room_and_forgets_what_was_taken() {
        let mut map = FreeMap::default();
        assert_eq!(map.find(1), None);
        map.set(700, category(400));
        map.set(3, category(100));
        assert_eq!(map.find(category_for(300)), Some(700));
        map.next_group = 0;
        assert_eq!(map.find(category_for(90)), Some(3));
        map.set(700, 0);
        assert_eq!(map.find(category_for(300)), None);
        assert_eq!(map.group_max[2], 0, "the group's maximum went down with its block");
        map.truncate(4);
        assert_eq!(map.find(category_for(90)), Some(3));
        map.truncate(3);
        assert_eq!(map.find(1), None);
    }

    #[test]
    fn categories_never_promise_too_much() {
        for free in 0..PAGE_SIZE {
            for need in [1, 31, 32, 33, 200, 8000] {
                if category(free) >= category_for(need) {
                    assert!(free >= need, "free {free} need {need}");
                }
            }
        }
    }

    #[test]
    fn map_pages_replay_and_refuse_nonsense() {
        let op = FsmOp { first: 10, categories: &[1, 2, 3] };
        let (mut bytes, mut forward, mut redone) = (Vec::new(), Page::zeroed(), Page::zeroed());
        op.encode(&mut bytes);
        op.apply(&mut forward).expect("fits");
        redo(&bytes, &mut redone).expect("own bytes");
        assert!(forward.bytes() == redone.bytes());
        let beyond = FsmOp { first: BLOCKS_PER_FSM_PAGE as u16, categories: &[1] };
        assert!(beyond.apply(&mut forward).is_err());
        assert!(redo(&bytes[..4], &mut redone).is_err());
    }
}
