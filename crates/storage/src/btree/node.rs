//! The layout of an index page and reading it: the one home of the format.
//!
//! ```text
//!  0        12      16      18      20        24     28      40
//!  | common | flags | lower | upper | special | left | right | slot slot slot ..
//!     .. lower | free | upper .. items, high key | 8168: trailer | 8192
//!
//!  slot (8 bytes)      | head u32 | offset u16 | key length u16, bit 15: a row follows the link |
//!  leaf item           | row 6 | key .. |
//!  internal item       | child u32 | generation u32 | [row 6] | key .. |
//!  row                 | slot u16 | block u32 |  little-endian of `block << 16 | slot`
//!  trailer (24 bytes)  | generation u32 | right's generation u32
//!                      | high key offset u16 (0 = none) | length u16 | row 6
//!                      | skip u16 | level u16 | garbage u16 |
//!  meta page, from 40  | magic u32 | root u32, generation u32, level u32
//!                      | fast root u32, generation u32, level u32
//!                      | free head u32 | free count u32 |
//! ```
//!
//! Slots are sorted by (key, row). `skip` bytes are common to all keys of the page; a slot's
//! `head` is the four key bytes after them, as a big-endian number, padded with zeros. So
//! most steps of a search compare two integers, and only equal heads send it to the
//! keys. Item 0 of an internal page stands for "everything below item 1": its key is
//! empty, and `skip` and searches leave it out.
//!
//! Nothing here trusts the bytes: whatever they are, reading ends in a value or in [`Damage`].

use crate::ids::{BlockNo, RowId, SlotNo};
use crate::page::{HEADER_SIZE, PAGE_SIZE, Page, PageClass};

/// Flags, in the common header.
pub const LEAF: u16 = 1;
/// Root of the tree: a split of it grows the tree by a level.
pub const ROOT: u16 = 2;
/// Out of the tree, on the free list; `left` is the next free page.
pub const DELETED: u16 = 4;
/// Split, and the right sibling has no entry in the parent yet.
pub const INCOMPLETE: u16 = 8;
/// Block 0.
pub const META: u16 = 16;

pub const TRAILER_SIZE: usize = 24;
pub const TRAILER_AT: usize = PAGE_SIZE - TRAILER_SIZE;
pub(super) const GENERATION_AT: usize = TRAILER_AT;
pub(super) const RIGHT_GENERATION_AT: usize = GENERATION_AT + 4;
pub(super) const HIGH_OFFSET_AT: usize = RIGHT_GENERATION_AT + 4;
pub(super) const HIGH_LEN_AT: usize = HIGH_OFFSET_AT + 2;
pub(super) const HIGH_ROW_AT: usize = HIGH_LEN_AT + 2;
pub(super) const SKIP_AT: usize = HIGH_ROW_AT + ROW_SIZE;
pub(super) const LEVEL_AT: usize = SKIP_AT + 2;
pub(super) const GARBAGE_AT: usize = LEVEL_AT + 2;
/// `left` and `right` use the common header's `base`.
const LEFT_AT: usize = 24;
const RIGHT_AT: usize = 28;

pub const SLOT_SIZE: usize = 8;
pub const ROW_SIZE: usize = 6;
pub const LINK_SIZE: usize = 8;
/// Bit of a slot's length field: the (internal) item has a row.
pub(super) const HAS_ROW: u16 = 0x8000;
/// Bytes that slots, items and the high key share.
pub const USABLE: usize = TRAILER_AT - HEADER_SIZE;
/// Levels that a tree can have; more are damage.
pub const MAX_LEVEL: u16 = 40;

const META_MAGIC: u32 = 0x6274_7231;
const META_AT: usize = HEADER_SIZE;
pub(super) const META_SIZE: usize = 9 * 4;

const _: () = assert!(GARBAGE_AT + 2 == PAGE_SIZE);
const _: () = assert!(TRAILER_AT.is_multiple_of(8));
// A page that overflows by one entry of maximal size can always be cut in two (see `split`).
const MAX_ITEM: usize = SLOT_SIZE + ROW_SIZE + super::MAX_KEY;
const _: () = assert!(USABLE >= 2 * MAX_ITEM + super::MAX_KEY - 1);
const MAX_PIVOT: usize = SLOT_SIZE + LINK_SIZE + ROW_SIZE + super::MAX_KEY;
const _: () = assert!(USABLE >= MAX_PIVOT + 2 * (SLOT_SIZE + LINK_SIZE) + super::MAX_KEY);
const _: () = assert!(super::MAX_KEY < HAS_ROW as usize);

/// What is wrong with a page's bytes, or with a logged change in relation to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage(pub &'static str);

pub type Read<T> = std::result::Result<T, Damage>;

/// A reference to a page that names its incarnation. Block 0 (the meta page): no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link {
    pub block: BlockNo,
    pub generation: u32,
}

impl Link {
    pub const NONE: Link = Link { block: 0, generation: 0 };

    pub const fn new(block: BlockNo, generation: u32) -> Self {
        Link { block, generation }
    }

    pub const fn is_none(self) -> bool {
        self.block == 0
    }
}

/// A position among entries: a key, and a row (as a number) that decides among equal keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pos<'k> {
    pub key: &'k [u8],
    pub row: u64,
}

impl<'k> Pos<'k> {
    /// Before every entry with this key.
    pub const fn before(key: &'k [u8]) -> Self {
        Pos { key, row: 0 }
    }

    /// After every entry with this key.
    pub const fn after(key: &'k [u8]) -> Self {
        Pos { key, row: u64::MAX }
    }

    pub fn of(key: &'k [u8], row: RowId) -> Self {
        Pos { key, row: row_number(row) }
    }
}

impl std::fmt::Debug for Pos<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", show_key(self.key))?;
        match self.row {
            0 => Ok(()),
            u64::MAX => write!(f, "+"),
            row => write!(f, "@{}", row_id(row)),
        }
    }
}

/// A row as a number that compares as the row does; never 0 for a valid row.
#[inline]
pub const fn row_number(row: RowId) -> u64 {
    ((row.block as u64) << 16) | row.slot.raw() as u64
}

#[inline]
pub const fn row_id(number: u64) -> RowId {
    RowId::new((number >> 16) as u32, SlotNo::new(number as u16))
}

#[inline]
pub(super) fn row_at(bytes: &[u8]) -> Option<u64> {
    let raw = bytes.first_chunk::<ROW_SIZE>()?;
    Some(u64::from_le_bytes([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], 0, 0]))
}

#[inline]
pub(super) fn row_bytes(row: u64) -> [u8; ROW_SIZE] {
    let raw = row.to_le_bytes();
    [raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]]
}

/// The first four bytes of what is left of a key, as a number that compares like them.
#[inline]
pub(super) fn head_of(rest: &[u8]) -> u32 {
    if let Some(four) = rest.first_chunk::<4>() {
        return u32::from_be_bytes(*four);
    }
    (0..4).fold(0, |head, i| (head << 8) | u32::from(rest.get(i).copied().unwrap_or(0)))
}

/// How many leading bytes two keys share.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// One entry of a page: of a leaf when `child` is none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Item<'p> {
    pub key: &'p [u8],
    pub row: u64,
    pub child: Link,
}

impl<'p> Item<'p> {
    pub fn pos(&self) -> Pos<'p> {
        Pos { key: self.key, row: self.row }
    }

    /// Bytes that the item takes on a page, its slot included.
    pub fn size(&self) -> usize {
        SLOT_SIZE + self.data_size()
    }

    pub(super) fn data_size(&self) -> usize {
        if self.child.is_none() {
            ROW_SIZE + self.key.len()
        } else {
            LINK_SIZE + if self.row != 0 { ROW_SIZE } else { 0 } + self.key.len()
        }
    }
}

#[inline]
pub(super) fn slot_head(slot: &[u8; SLOT_SIZE]) -> u32 {
    u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]])
}

#[inline]
pub(super) fn slot_offset(slot: &[u8; SLOT_SIZE]) -> usize {
    usize::from(u16::from_le_bytes([slot[4], slot[5]]))
}

#[inline]
pub(super) fn slot_len_field(slot: &[u8; SLOT_SIZE]) -> u16 {
    u16::from_le_bytes([slot[6], slot[7]])
}

/// How many slots, which are sorted, have a head below this one. Each round reads seven slots that
/// do not depend on each other, so that on a page that is not in the processor's cache
/// the misses overlap: a binary search waits for each in turn.
#[inline]
fn heads_below(slots: &[[u8; SLOT_SIZE]], head: u32) -> usize {
    const WAYS: usize = 8;
    let (mut base, mut window) = (0, slots);
    while window.len() > WAYS {
        let step = window.len() / WAYS;
        let below = |i: usize| usize::from(slot_head(&window[i * step - 1]) < head);
        let count: usize = (1..WAYS).map(below).sum();
        let from = count * step;
        let to = if count == WAYS - 1 { window.len() } else { from + step - 1 };
        window = &window[from..to];
        base += from;
    }
    base + window.iter().filter(|slot| slot_head(slot) < head).count()
}

/// A page of the tree (not the meta page), read.
#[derive(Clone, Copy)]
pub struct Node<'p> {
    page: &'p Page,
    slots: &'p [[u8; SLOT_SIZE]],
    skip: usize,
    leaf: bool,
}

impl<'p> Node<'p> {
    /// Checks what every use relies on; the items are checked when they are read.
    #[inline]
    pub fn new(page: &'p Page) -> Read<Self> {
        let node = Self::unfilled(page)?;
        if node.is_empty() && !node.leaf && node.flags() & DELETED == 0 {
            return Err(Damage("an internal index page without children"));
        }
        Ok(node)
    }

    /// The same for a page that may have been initialised and not filled yet.
    #[inline]
    pub(super) fn unfilled(page: &'p Page) -> Read<Self> {
        if page.class() != Some(PageClass::BTree) {
            return Err(Damage("not an index page"));
        }
        let (lower, upper) = (usize::from(page.lower()), usize::from(page.upper()));
        if usize::from(page.special()) != TRAILER_AT
            || lower < HEADER_SIZE
            || lower > upper
            || upper > TRAILER_AT
        {
            return Err(Damage("wrong bounds in the header of an index page"));
        }
        let (slots, rest) = page.bytes()[HEADER_SIZE..lower].as_chunks::<SLOT_SIZE>();
        let flags = page.flags();
        let leaf = flags & LEAF != 0;
        let level = page.u16_at(LEVEL_AT);
        if !rest.is_empty() || flags & META != 0 || leaf != (level == 0) || level > MAX_LEVEL {
            return Err(Damage("an index page's flags contradict its contents"));
        }
        Ok(Node { page, slots, skip: usize::from(page.u16_at(SKIP_AT)), leaf })
    }

    /// The node of a page that `new` has accepted since it was latched: not checked again.
    #[inline]
    pub(super) fn again(page: &'p Page) -> Self {
        let slots = page.bytes().get(HEADER_SIZE..usize::from(page.lower())).unwrap_or(&[]);
        let (slots, _) = slots.as_chunks::<SLOT_SIZE>();
        let leaf = page.flags() & LEAF != 0;
        Node { page, slots, skip: usize::from(page.u16_at(SKIP_AT)), leaf }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    #[inline]
    pub fn flags(&self) -> u16 {
        self.page.flags()
    }

    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.page.flags() & flag != 0
    }

    #[inline]
    pub fn is_leaf(&self) -> bool {
        self.leaf
    }

    #[inline]
    pub fn level(&self) -> u16 {
        self.page.u16_at(LEVEL_AT)
    }

    #[inline]
    pub fn generation(&self) -> u32 {
        self.page.u32_at(GENERATION_AT)
    }

    /// The left sibling; 0 = none. On a deleted page: the next free one.
    #[inline]
    pub fn left(&self) -> BlockNo {
        self.page.u32_at(LEFT_AT)
    }

    #[inline]
    pub fn right(&self) -> Link {
        Link::new(self.page.u32_at(RIGHT_AT), self.page.u32_at(RIGHT_GENERATION_AT))
    }

    pub(super) fn skip(&self) -> usize {
        self.skip
    }

    pub fn garbage(&self) -> usize {
        usize::from(self.page.u16_at(GARBAGE_AT))
    }

    /// Bytes that new items may take, after compaction if need be.
    pub fn room(&self) -> usize {
        self.page.free_space() + self.garbage()
    }

    /// Whether this page is the only one of its level, so that a descent may start here.
    pub fn is_alone(&self) -> bool {
        self.left() == 0 && self.right().is_none() && !self.has(DELETED)
    }

    /// The first item that has a key: internal pages' item 0 has none.
    #[inline]
    pub fn first(&self) -> usize {
        usize::from(!self.leaf)
    }

    /// The upper bound of the page; `None` = rightmost.
    #[inline]
    pub fn high(&self) -> Read<Option<Pos<'p>>> {
        let offset = usize::from(self.page.u16_at(HIGH_OFFSET_AT));
        if offset == 0 {
            return Ok(None);
        }
        let len = usize::from(self.page.u16_at(HIGH_LEN_AT));
        let key = self.data(offset, len).ok_or(Damage("the high key lies outside the page"))?;
        let row = row_at(&self.page.bytes()[HIGH_ROW_AT..]).unwrap_or(0);
        Ok(Some(Pos { key, row }))
    }

    /// Whether `target` belongs to a page further right.
    #[inline]
    pub fn is_beyond(&self, target: Pos<'_>) -> Read<bool> {
        Ok(self.high()?.is_some_and(|high| target >= high))
    }

    #[inline]
    fn data(&self, offset: usize, len: usize) -> Option<&'p [u8]> {
        if offset < HEADER_SIZE || offset + len > TRAILER_AT {
            return None;
        }
        self.page.bytes().get(offset..offset + len)
    }

    #[inline]
    pub fn item(&self, i: usize) -> Read<Item<'p>> {
        let slot = self.slots.get(i).ok_or(Damage("no such item on the index page"))?;
        let (offset, field) = (slot_offset(slot), slot_len_field(slot));
        let len = usize::from(field & !HAS_ROW);
        let parts = if self.leaf {
            self.data(offset, ROW_SIZE + len).and_then(|raw| {
                Some(Item { key: &raw[ROW_SIZE..], row: row_at(raw)?, child: Link::NONE })
            })
        } else {
            self.pivot(offset, len, field & HAS_ROW != 0)
        };
        parts.ok_or(Damage("an index item lies outside the page"))
    }

    fn pivot(&self, offset: usize, len: usize, has_row: bool) -> Option<Item<'p>> {
        let row_size = if has_row { ROW_SIZE } else { 0 };
        let raw = self.data(offset, LINK_SIZE + row_size + len)?;
        let child = Link::new(self.page.u32_at(offset), self.page.u32_at(offset + 4));
        let row = if has_row { row_at(&raw[LINK_SIZE..])? } else { 0 };
        Some(Item { key: &raw[LINK_SIZE + row_size..], row, child })
    }

    /// Index of the first item at or after `target`; `len()` if there is none.
    #[inline]
    pub fn lower_bound(&self, target: Pos<'_>) -> Read<usize> {
        self.partition(target, false)
    }

    /// Index of the first item after `target`; `len()` if there is none.
    #[inline]
    pub fn upper_bound(&self, target: Pos<'_>) -> Read<usize> {
        self.partition(target, true)
    }

    /// The child whose range has `target` in it (or lies nearest on the left).
    #[inline]
    pub fn child_for(&self, target: Pos<'_>) -> Read<usize> {
        Ok(self.upper_bound(target)?.saturating_sub(1))
    }

    /// The child whose range has the entries just below `target`.
    #[inline]
    pub fn child_before(&self, target: Pos<'_>) -> Read<usize> {
        Ok(self.lower_bound(target)?.saturating_sub(1))
    }

    /// How many items, item 0 of internal pages always included, are below `target` (or at it).
    #[inline]
    fn partition(&self, target: Pos<'_>, or_equal: bool) -> Read<usize> {
        let first = self.first();
        let Some(slots) = self.slots.get(first..).filter(|s| !s.is_empty()) else {
            return Ok(first.min(self.len()));
        };
        let rest = target.key.get(self.skip..).unwrap_or(&[]);
        let head = head_of(rest);
        let low = heads_below(slots, head);
        let same = slots[low..].iter().take(2).take_while(|s| slot_head(s) == head).count();
        if self.skip > 0 {
            // Any item shows the common prefix; this one is going to be read anyway.
            let witness = if same > 0 { low } else { low.saturating_sub(1) };
            let key = self.item(first + witness)?.key;
            let prefix = key.get(..self.skip).ok_or(Damage("an index key is too short"))?;
            match target.key[..self.skip.min(target.key.len())].cmp(prefix) {
                std::cmp::Ordering::Less => return Ok(first),
                std::cmp::Ordering::Greater => return Ok(self.len()),
                std::cmp::Ordering::Equal => {}
            }
        }
        let high = match same {
            2 => low + slots[low..].partition_point(|slot| slot_head(slot) <= head),
            n => low + n,
        };
        self.partition_keys(target, or_equal, first + low, first + high)
    }

    /// The same among items `low..high`, whose heads tell nothing.
    fn partition_keys(
        &self,
        target: Pos<'_>,
        or_equal: bool,
        mut low: usize,
        mut high: usize,
    ) -> Read<usize> {
        while low < high {
            let middle = low.midpoint(high);
            let item = self.item(middle)?.pos();
            if item < target || (or_equal && item == target) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// What the meta page says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    pub root: Link,
    pub root_level: u32,
    /// The lowest page known to be alone on its level: where descents start.
    pub fast: Link,
    pub fast_level: u32,
    /// First of the list of deleted pages; 0 = none.
    pub free_head: BlockNo,
    pub free_count: u32,
}

impl Meta {
    pub fn read(page: &Page) -> Read<Self> {
        let at = |i: usize| page.u32_at(META_AT + 4 * i);
        if page.class() != Some(PageClass::BTree) || page.flags() != META || at(0) != META_MAGIC {
            return Err(Damage("not the meta page of an index"));
        }
        let meta = Meta {
            root: Link::new(at(1), at(2)),
            root_level: at(3),
            fast: Link::new(at(4), at(5)),
            fast_level: at(6),
            free_head: at(7),
            free_count: at(8),
        };
        if meta.root.is_none() || meta.fast.is_none() || meta.fast_level > meta.root_level {
            return Err(Damage("the meta page of an index names no root"));
        }
        Ok(meta)
    }

    pub(super) fn write(&self, page: &mut Page) {
        page.init(PageClass::BTree, TRAILER_SIZE);
        page.set_flags(META);
        let fields = [
            META_MAGIC,
            self.root.block,
            self.root.generation,
            self.root_level,
            self.fast.block,
            self.fast.generation,
            self.fast_level,
            self.free_head,
            self.free_count,
        ];
        for (i, value) in fields.into_iter().enumerate() {
            page.put_u32(META_AT + 4 * i, value);
        }
        page.set_lower((META_AT + META_SIZE) as u16);
    }
}

pub(super) fn put_left(page: &mut Page, left: BlockNo) {
    page.put_u32(LEFT_AT, left);
}

pub(super) fn put_right(page: &mut Page, right: Link) {
    page.put_u32(RIGHT_AT, right.block);
    page.put_u32(RIGHT_GENERATION_AT, right.generation);
}

/// A key for people: text where it is printable, hexadecimal otherwise.
pub fn show_key(key: &[u8]) -> String {
    if key.iter().all(|b| (0x20..0x7F).contains(b)) {
        return format!("{:?}", String::from_utf8_lossy(key));
    }
    key.iter().fold("x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// A page for people, one item a line. Never fails: damage is part of the picture.
pub fn dump(page: &Page) -> String {
    if let Ok(meta) = Meta::read(page) {
        return format!("{meta:?}\n");
    }
    let node = match Node::new(page) {
        Ok(node) => node,
        Err(damage) => return format!("damaged: {}\n", damage.0),
    };
    let names = [(LEAF, "leaf"), (ROOT, "root"), (DELETED, "deleted"), (INCOMPLETE, "incomplete")];
    let flags: Vec<_> = names.iter().filter(|(f, _)| node.has(*f)).map(|(_, n)| *n).collect();
    let mut text = format!(
        "level {} [{}] gen {} left {} right {}.{} skip {} garbage {} high {:?}\n",
        node.level(),
        flags.join(" "),
        node.generation(),
        node.left(),
        node.right().block,
        node.right().generation,
        node.skip,
        node.garbage(),
        node.high(),
    );
    for i in 0..node.len() {
        let line = match node.item(i) {
            Ok(item) if node.is_leaf() => format!("{i}: {:?}", item.pos()),
            Ok(item) => {
                format!("{i}: {:?} -> {}.{}", item.pos(), item.child.block, item.child.generation)
            }
            Err(damage) => format!("{i}: damaged: {}", damage.0),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}
