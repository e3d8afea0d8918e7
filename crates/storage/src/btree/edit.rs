//! Changing the bytes of one index page.
//!
//! Every function here is a function of the page's bytes and its arguments and of nothing else, so
//! that redo, which calls the same ones on the same bytes, ends with the same page. On [`Damage`]
//! the page may be half changed: forward, that cannot happen (the caller has checked), and redo
//! stops.
//!
//! - The data area is filled from the end down; removed items stay as garbage, counted, until
//!   somebody needs their room and rewrites the page ([`compact`]).
//! - `skip` and the heads are kept exact on insertion: a key that shares less with the others
//!   than they among themselves shortens `skip` and all heads are computed anew. That
//!   happens at most once a byte of key length between two splits.

use super::node::{self, *};
use crate::ids::BlockNo;
use crate::page::{HEADER_SIZE, Page, PageClass};

/// What a fresh page of the tree starts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInit {
    pub level: u16,
    /// `ROOT` and `INCOMPLETE`; `LEAF` follows from the level.
    pub flags: u16,
    pub generation: u32,
    pub left: BlockNo,
    pub right: Link,
}

/// Makes the page an empty page of the tree, whatever it was.
pub fn init(page: &mut Page, with: NodeInit) -> Read<()> {
    if with.level > MAX_LEVEL || with.flags & !(ROOT | INCOMPLETE) != 0 {
        return Err(Damage("an index page cannot be initialised like that"));
    }
    page.init(PageClass::BTree, TRAILER_SIZE);
    page.set_flags(with.flags | if with.level == 0 { LEAF } else { 0 });
    page.put_u16(LEVEL_AT, with.level);
    page.put_u32(GENERATION_AT, with.generation);
    put_left(page, with.left);
    put_right(page, with.right);
    Ok(())
}

/// Makes the page a deleted one, next on the free list `next`. Its generation stays.
pub fn delete_page(page: &mut Page, next: BlockNo) -> Read<()> {
    let (level, generation) = match Node::new(page) {
        Ok(node) => (node.level(), node.generation()),
        // A block that the file was extended by and that was never initialised.
        Err(_) if page.is_zeroed() => (0, 0),
        Err(damage) => return Err(damage),
    };
    init(page, NodeInit { level, flags: 0, generation, left: next, right: Link::NONE })?;
    page.set_flags(page.flags() | DELETED);
    Ok(())
}

/// Puts an item in at index `at`. The room must be there, counting garbage.
pub fn insert(page: &mut Page, at: usize, item: Item<'_>) -> Read<()> {
    let node = Node::new(page)?;
    if at > node.len() || at < node.first() || item.child.is_none() != node.is_leaf() {
        return Err(Damage("an index item does not belong there"));
    }
    check_item(&item)?;
    if item.size() > node.room() {
        return Err(Damage("an index item does not fit"));
    }
    if item.size() > page.free_space() {
        compact(page)?;
    }
    let skip = shared_prefix_with(page, item.key)?;
    if skip != Node::new(page)?.skip() {
        rebuild_heads(page, skip)?;
    }
    put_item(page, at, &item, skip)
}

/// Writes item and slot; the caller has made room and settled `skip`.
fn put_item(page: &mut Page, at: usize, item: &Item<'_>, skip: usize) -> Read<()> {
    let size = item.data_size();
    if item.size() > page.free_space() {
        return Err(Damage("an index item does not fit"));
    }
    let offset = usize::from(page.upper()) - size;
    let (lower, slot_at) = (usize::from(page.lower()), HEADER_SIZE + at * SLOT_SIZE);
    let bytes = page.bytes_mut();
    let mut out = offset;
    let mut put = |part: &[u8]| {
        bytes[out..out + part.len()].copy_from_slice(part);
        out += part.len();
    };
    let mut field = item.key.len() as u16;
    if item.child.is_none() {
        put(&row_bytes(item.row));
    } else {
        put(&item.child.block.to_le_bytes());
        put(&item.child.generation.to_le_bytes());
        if item.row != 0 {
            field |= HAS_ROW;
            put(&row_bytes(item.row));
        }
    }
    put(item.key);
    bytes.copy_within(slot_at..lower, slot_at + SLOT_SIZE);
    let head = head_of(item.key.get(skip..).unwrap_or(&[]));
    bytes[slot_at..slot_at + 4].copy_from_slice(&head.to_le_bytes());
    bytes[slot_at + 4..slot_at + 6].copy_from_slice(&(offset as u16).to_le_bytes());
    bytes[slot_at + 6..slot_at + 8].copy_from_slice(&field.to_le_bytes());
    page.set_lower((lower + SLOT_SIZE) as u16);
    page.set_upper(offset as u16);
    Ok(())
}

fn check_item(item: &Item<'_>) -> Read<()> {
    if item.key.len() > super::MAX_KEY || item.row >> 48 != 0 {
        return Err(Damage("an index item is too large"));
    }
    if item.child.is_none() && item.row == 0 {
        return Err(Damage("an index entry without a row"));
    }
    Ok(())
}

/// The `skip` that the page has once `key` is among its items.
pub(super) fn shared_prefix_with(page: &Page, key: &[u8]) -> Read<usize> {
    let node = Node::new(page)?;
    if node.len() <= node.first() {
        return Ok(key.len());
    }
    let any = node.item(node.first())?.key;
    Ok(common_prefix(any.get(..node.skip()).ok_or(Damage("an index key is too short"))?, key))
}

/// Sets `skip` and computes every head for it.
fn rebuild_heads(page: &mut Page, skip: usize) -> Read<()> {
    let node = Node::new(page)?;
    let (first, len) = (node.first(), node.len());
    for i in 0..len {
        let key = Node::new(page)?.item(i)?.key;
        let head = match key.get(skip..) {
            Some(rest) => head_of(rest),
            None if i < first => 0,
            None => return Err(Damage("an index key is too short")),
        };
        page.put_u32(HEADER_SIZE + i * SLOT_SIZE, head);
    }
    page.put_u16(SKIP_AT, skip as u16);
    Ok(())
}

/// Makes `skip` as long as the page's keys allow.
fn renew_skip(page: &mut Page) -> Read<()> {
    let node = Node::new(page)?;
    let skip = if node.len() > node.first() {
        common_prefix(node.item(node.first())?.key, node.item(node.len() - 1)?.key)
    } else {
        0
    };
    rebuild_heads(page, skip)
}

/// Takes out the items at these indexes, given in ascending order.
pub fn remove(page: &mut Page, indexes: &[u16]) -> Read<()> {
    let node = Node::new(page)?;
    let (len, first) = (node.len(), node.first());
    let mut freed = 0;
    let mut previous = None;
    for &index in indexes {
        let i = usize::from(index);
        if i < first || i >= len || previous.is_some_and(|p| p >= index) {
            return Err(Damage("removal of an index item that is not there"));
        }
        freed += node.item(i)?.data_size();
        previous = Some(index);
    }
    let garbage = node.garbage() + freed;
    if garbage > USABLE {
        return Err(Damage("an index page's items overlap"));
    }
    let bytes = page.bytes_mut();
    let (mut to, mut doomed) = (HEADER_SIZE, indexes.iter().peekable());
    for i in 0..len {
        if doomed.next_if(|&&d| usize::from(d) == i).is_some() {
            continue;
        }
        let from = HEADER_SIZE + i * SLOT_SIZE;
        bytes.copy_within(from..from + SLOT_SIZE, to);
        to += SLOT_SIZE;
    }
    page.set_lower(to as u16);
    // The room that the slots took is free at once, that of the items as garbage.
    page.put_u16(GARBAGE_AT, garbage as u16);
    Ok(())
}

/// Rewrites the data area without holes.
pub fn compact(page: &mut Page) -> Read<()> {
    let old = page.clone();
    let node = Node::new(&old)?;
    page.set_upper(TRAILER_AT as u16);
    page.put_u16(GARBAGE_AT, 0);
    page.put_u16(HIGH_OFFSET_AT, 0);
    if let Some(high) = node.high()? {
        put_high(page, high)?;
    }
    for i in 0..node.len() {
        let size = node.item(i)?.data_size();
        let from = slot_offset_at(&old, i);
        let upper = usize::from(page.upper());
        if upper < usize::from(page.lower()) + size {
            return Err(Damage("an index page's items overlap"));
        }
        let to = upper - size;
        page.bytes_mut()[to..upper].copy_from_slice(&old.bytes()[from..from + size]);
        page.put_u16(HEADER_SIZE + i * SLOT_SIZE + 4, to as u16);
        page.set_upper(to as u16);
    }
    Ok(())
}

fn slot_offset_at(page: &Page, i: usize) -> usize {
    usize::from(page.u16_at(HEADER_SIZE + i * SLOT_SIZE + 4))
}

/// Writes a high key into free space; the page has none.
fn put_high(page: &mut Page, high: Pos<'_>) -> Read<()> {
    if high.key.len() > page.free_space() || high.key.len() > super::MAX_KEY {
        return Err(Damage("a high key does not fit"));
    }
    let upper = usize::from(page.upper());
    let at = upper - high.key.len();
    page.bytes_mut()[at..upper].copy_from_slice(high.key);
    page.bytes_mut()[HIGH_ROW_AT..HIGH_ROW_AT + ROW_SIZE].copy_from_slice(&row_bytes(high.row));
    page.put_u16(HIGH_OFFSET_AT, at as u16);
    page.put_u16(HIGH_LEN_AT, high.key.len() as u16);
    page.set_upper(at as u16);
    Ok(())
}

/// Gives a page without a high key this one.
pub fn set_high(page: &mut Page, high: Pos<'_>) -> Read<()> {
    let node = Node::new(page)?;
    if node.high()?.is_some() {
        return Err(Damage("an index page has a high key already"));
    }
    if high.key.len() > page.free_space() {
        compact(page)?;
    }
    put_high(page, high)
}

/// The left half of a split: keeps the items before `from`, under a new high key and right link,
/// and is marked as waiting for its parent entry.
pub fn truncate(page: &mut Page, from: usize, right: Link, high: Pos<'_>) -> Read<()> {
    let node = Node::new(page)?;
    if from > node.len() || from < node.first() {
        return Err(Damage("an index page cannot be split there"));
    }
    page.set_lower((HEADER_SIZE + from * SLOT_SIZE) as u16);
    page.put_u16(HIGH_OFFSET_AT, 0);
    compact(page)?;
    renew_skip(page)?;
    put_high(page, high)?;
    put_right(page, right);
    page.set_flags(page.flags() | INCOMPLETE);
    Ok(())
}

/// Sets the right link.
pub fn set_right(page: &mut Page, right: Link) -> Read<()> {
    Node::new(page)?;
    put_right(page, right);
    Ok(())
}

/// Sets the left link.
pub fn set_left(page: &mut Page, left: BlockNo) -> Read<()> {
    Node::new(page)?;
    put_left(page, left);
    Ok(())
}

/// Takes `ROOT` or `INCOMPLETE` off.
pub fn clear_flags(page: &mut Page, flags: u16) -> Read<()> {
    Node::new(page)?;
    if flags & !(ROOT | INCOMPLETE) != 0 {
        return Err(Damage("a flag of an index page that never changes"));
    }
    page.set_flags(page.flags() & !flags);
    Ok(())
}

/// Makes item `at` of an internal page lead to another child.
pub fn set_child(page: &mut Page, at: usize, child: Link) -> Read<()> {
    let node = Node::new(page)?;
    if node.is_leaf() || child.is_none() {
        return Err(Damage("a downlink on a leaf or to nowhere"));
    }
    node.item(at)?;
    let offset = slot_offset_at(page, at);
    page.put_u32(offset, child.block);
    page.put_u32(offset + 4, child.generation);
    Ok(())
}

/// Fills an empty page with items in order.
pub fn load<'a>(page: &mut Page, items: impl Iterator<Item = Read<Item<'a>>>) -> Read<()> {
    let node = Node::unfilled(page)?;
    if !node.is_empty() || node.has(DELETED) {
        return Err(Damage("an index page to be filled is not empty"));
    }
    let leaf = node.is_leaf();
    for (at, item) in items.enumerate() {
        let item = item?;
        check_item(&item)?;
        if item.child.is_none() != leaf || (!leaf && at == 0 && !item.key.is_empty()) {
            return Err(Damage("an index item does not belong there"));
        }
        put_item(page, at, &item, 0)?;
    }
    renew_skip(page)
}

/// Sorted items, encoded one after the other: the argument of a `Load` change.
///
/// ```text
///   | key length u16, bit 15: a child follows | row 6 | [child u32, generation u32] | key .. |
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ItemList {
    bytes: Vec<u8>,
    /// Where each item starts.
    starts: Vec<u32>,
    /// What they take on a page.
    size: usize,
}

const HAS_CHILD: u16 = 0x8000;

impl ItemList {
    pub fn push(&mut self, item: &Item<'_>) {
        self.starts.push(self.bytes.len() as u32);
        let flag = if item.child.is_none() { 0 } else { HAS_CHILD };
        self.bytes.extend_from_slice(&(item.key.len() as u16 | flag).to_le_bytes());
        self.bytes.extend_from_slice(&row_bytes(item.row));
        if flag != 0 {
            self.bytes.extend_from_slice(&item.child.block.to_le_bytes());
            self.bytes.extend_from_slice(&item.child.generation.to_le_bytes());
        }
        self.bytes.extend_from_slice(item.key);
        self.size += item.size();
    }

    /// The last item.
    pub fn last(&self) -> Option<Item<'_>> {
        let start = *self.starts.last()? as usize;
        Self::decode(&self.bytes[start..]).next()?.ok()
    }

    /// Takes the last item out, as a list of one.
    pub fn pop(&mut self) -> Option<ItemList> {
        let mut alone = ItemList::default();
        alone.push(&self.last()?);
        let start = self.starts.pop()? as usize;
        self.bytes.truncate(start);
        self.size -= alone.size;
        Some(alone)
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the items back from their encoding.
    pub fn decode(bytes: &[u8]) -> impl Iterator<Item = Read<Item<'_>>> {
        let mut rest = Some(bytes).filter(|b| !b.is_empty());
        std::iter::from_fn(move || {
            let bytes = rest.take()?;
            let item = decode_item(bytes).ok_or(Damage("a list of index items is cut short"));
            Some(item.map(|(item, after)| {
                rest = Some(after).filter(|b| !b.is_empty());
                item
            }))
        })
    }
}

fn decode_item(bytes: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (field, bytes) = bytes.split_first_chunk::<2>()?;
    let (row, mut bytes) = bytes.split_first_chunk::<ROW_SIZE>()?;
    let field = u16::from_le_bytes(*field);
    let mut child = Link::NONE;
    if field & HAS_CHILD != 0 {
        let (block, rest) = bytes.split_first_chunk::<4>()?;
        let (generation, rest) = rest.split_first_chunk::<4>()?;
        child = Link::new(u32::from_le_bytes(*block), u32::from_le_bytes(*generation));
        bytes = rest;
    }
    let (key, rest) = bytes.split_at_checked(usize::from(field & !HAS_CHILD))?;
    Some((Item { key, row: node::row_at(row)?, child }, rest))
}
