//! What goes into the heap and what comes out of it: row bodies, row copies, page scans.
//!
//! The SQL layer owns the encoding of column values. The heap stores `(number of columns, null
//! bitmap, bytes)` and hands the same three back, with the row's address and system columns.
//!
//! ```text
//!   SQL ──TupleBody──> insert / update ──> page
//!   SQL <──TupleRef── TupleBuf  (one row: fetch)        a private copy: no latch, no pin
//!   SQL <──TupleRef── PageScan  (one page: scan_page)   a private copy of the whole page
//! ```

use super::RowLock;
use super::page::{self, LineState, TUPLE_HEADER};
use crate::buffer::ScanRing;
use crate::ids::{BlockNo, CommandId, RowId, SlotNo, Xid};
use crate::page::Page;

/// A row to be stored: what the SQL layer encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TupleBody<'a> {
    /// Number of columns; at most [`page::MAX_ATTRS`].
    pub natts: u16,
    /// One bit a column, lowest bit of the first byte first, set = the value is present. Empty
    /// when no column is null; otherwise exactly `natts.div_ceil(8)` bytes.
    pub nulls: &'a [u8],
    pub data: &'a [u8],
    /// Some value lives in the TOAST table, so deleting the row must delete it there too.
    pub has_external: bool,
}

impl TupleBody<'_> {
    /// Bytes that the row takes on a page, without line pointer and alignment.
    #[inline]
    pub fn stored_len(&self) -> usize {
        page::header_len(self.nulls.len()) + self.data.len()
    }
}

/// A view of one stored tuple. Reading it can give nonsense on a corrupt page, never a panic:
/// the constructor checked the bounds.
#[derive(Clone, Copy, Debug)]
pub struct TupleRef<'a> {
    head: &'a [u8; TUPLE_HEADER],
    bytes: &'a [u8],
    data_at: usize,
}

impl<'a> TupleRef<'a> {
    /// Wraps the bytes of a tuple. `None` when they cannot be one.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.first_chunk::<TUPLE_HEADER>()?;
        let data_at = usize::from(head[page::HOFF_AT]);
        let mask2 = u16::from_le_bytes([head[page::MASK2_AT], head[page::MASK2_AT + 1]]);
        let mask = u16::from_le_bytes([head[page::MASK_AT], head[page::MASK_AT + 1]]);
        let natts = usize::from(mask2 & page::NATTS_MASK);
        let need =
            if mask & page::HAS_NULLS != 0 { page::BITMAP_AT + natts.div_ceil(8) } else { 0 };
        if data_at < TUPLE_HEADER || data_at > bytes.len() || data_at < need {
            return None;
        }
        Some(TupleRef { head, bytes, data_at })
    }

    #[inline]
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.head[at], self.head[at + 1]])
    }

    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        let h = self.head;
        u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])
    }

    /// Number of columns stored.
    #[inline]
    pub fn natts(&self) -> u16 {
        self.mask2() & page::NATTS_MASK
    }

    /// The null bitmap (bit set = present), or `None` when every column is present.
    #[inline]
    pub fn nulls(&self) -> Option<&'a [u8]> {
        if self.mask() & page::HAS_NULLS == 0 {
            return None;
        }
        let len = usize::from(self.natts()).div_ceil(8);
        self.bytes.get(page::BITMAP_AT..page::BITMAP_AT + len)
    }

    /// The column values as the SQL layer encoded them.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        self.bytes.get(self.data_at..).unwrap_or(&[])
    }

    #[inline]
    pub fn has_external(&self) -> bool {
        self.mask() & page::HAS_EXTERNAL != 0
    }

    /// The body as it was given to insert or update.
    pub fn body(&self) -> TupleBody<'a> {
        TupleBody {
            natts: self.natts(),
            nulls: self.nulls().unwrap_or(&[]),
            data: self.data(),
            has_external: self.has_external(),
        }
    }

    /// All bytes, header included.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the column values start in [`Self::bytes`].
    #[inline]
    pub fn data_offset(&self) -> usize {
        self.data_at
    }

    #[inline]
    pub fn mask(&self) -> u16 {
        self.u16_at(page::MASK_AT)
    }

    #[inline]
    pub fn mask2(&self) -> u16 {
        self.u16_at(page::MASK2_AT)
    }

    /// xmin as it is stored: an offset from the page's base.
    #[inline]
    pub fn xmin_offset(&self) -> u32 {
        self.u32_at(page::XMIN_AT)
    }

    #[inline]
    pub fn xmax_offset(&self) -> u32 {
        self.u32_at(page::XMAX_AT)
    }

    #[inline]
    pub fn xmin(&self, base: u64) -> Xid {
        page::xid_at(base, self.xmin_offset())
    }

    #[inline]
    pub fn xmax(&self, base: u64) -> Xid {
        page::xid_at(base, self.xmax_offset())
    }

    /// cmin, cmax or, when [`page::COMBO_CID`] is set, the id of a pair of both.
    #[inline]
    pub fn cid(&self) -> CommandId {
        CommandId::new(self.u32_at(page::CID_AT))
    }

    /// The version that replaced this one, if an update did.
    #[inline]
    pub fn next(&self) -> Option<RowId> {
        let slot = SlotNo::new(self.u16_at(page::NEXT_SLOT_AT));
        (slot != SlotNo::INVALID).then(|| RowId::new(self.u32_at(page::NEXT_BLOCK_AT), slot))
    }

    #[inline]
    pub fn is_heap_only(&self) -> bool {
        self.mask() & page::HEAP_ONLY != 0
    }

    /// The next version is a heap-only tuple on the same page.
    #[inline]
    pub fn is_hot_updated(&self) -> bool {
        self.mask() & page::HOT_UPDATED != 0
    }

    /// How strong the lock is, or what the change in xmax locks.
    pub fn lock_strength(&self) -> RowLock {
        super::visibility::held_strength(self)
    }

    /// xmax is a row lock, not a deletion.
    #[inline]
    pub fn is_lock_only(&self) -> bool {
        self.mask() & page::XMAX_LOCK_ONLY != 0
    }
}

/// A private copy of one row, reusable from fetch to fetch.
#[derive(Clone, Debug, Default)]
pub struct TupleBuf {
    pub(super) bytes: Vec<u8>,
    pub(super) row: RowId,
    pub(super) base: u64,
    pub(super) all_dead: bool,
}

impl TupleBuf {
    pub fn new() -> Self {
        Self::default()
    }

    /// The version's own address (for an index fetch: the chain member, not the root).
    #[inline]
    pub fn row(&self) -> RowId {
        self.row
    }

    /// The copied tuple; `None` before the first successful fetch.
    #[inline]
    pub fn tuple(&self) -> Option<TupleRef<'_>> {
        TupleRef::new(&self.bytes)
    }

    /// After an index fetch that found nothing visible: nothing there is visible to anybody any
    /// more, so the index entry may be removed.
    #[inline]
    pub fn all_dead(&self) -> bool {
        self.all_dead
    }

    /// The base of the page that it was copied from, for [`TupleRef::xmin`] and `xmax`.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn xmin(&self) -> Xid {
        self.tuple().map_or(Xid::INVALID, |t| t.xmin(self.base))
    }

    pub fn xmax(&self) -> Xid {
        self.tuple().map_or(Xid::INVALID, |t| t.xmax(self.base))
    }

    pub(super) fn set(&mut self, row: RowId, base: u64, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.row = row;
        self.base = base;
        self.all_dead = false;
    }
}

/// One visible tuple of a [`PageScan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanItem {
    pub slot: SlotNo,
    pub offset: u16,
    pub len: u16,
}

/// A private copy of one page and the list of its tuples that the snapshot sees.
#[derive(Clone, Debug)]
pub struct PageScan {
    pub(super) page: Box<Page>,
    pub(super) block: BlockNo,
    pub(super) items: Vec<ScanItem>,
    /// Frames that a large scan reuses.
    pub(super) ring: Option<ScanRing>,
}

impl Default for PageScan {
    fn default() -> Self {
        Self::new()
    }
}

impl PageScan {
    pub fn new() -> Self {
        PageScan {
            page: Box::new(Page::zeroed()),
            block: 0,
            items: Vec::with_capacity(page::MAX_SLOTS),
            ring: None,
        }
    }

    /// Reads what is not in memory through these frames from now on
    /// ([`crate::buffer::BufferPool::ring_for`]).
    pub fn set_ring(&mut self, ring: Option<ScanRing>) {
        self.ring = ring;
    }

    #[inline]
    pub fn block(&self) -> BlockNo {
        self.block
    }

    /// How many visible tuples there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    #[inline]
    pub fn items(&self) -> &[ScanItem] {
        &self.items
    }

    #[inline]
    pub fn row(&self, index: usize) -> RowId {
        RowId::new(self.block, self.items[index].slot)
    }

    /// The `index`-th visible tuple; `None` when the page is corrupt there.
    #[inline]
    pub fn tuple(&self, index: usize) -> Option<TupleRef<'_>> {
        let item = self.items.get(index)?;
        let from = usize::from(item.offset);
        TupleRef::new(self.page.bytes().get(from..from + usize::from(item.len))?)
    }

    /// The page's base for [`TupleRef::xmin`] and [`TupleRef::xmax`].
    #[inline]
    pub fn base(&self) -> u64 {
        self.page.base()
    }

    /// The address that index entries for the chain of `slot` carry: its root line pointer.
    /// `slot` itself when it is no heap-only tuple, or when its root cannot be found.
    pub fn root_of(&self, slot: SlotNo) -> RowId {
        let root = match page::line(&self.page, slot) {
            Some(line) if line.state() == LineState::Normal => {
                page::root_map(&self.page).get(slot.index()).copied().unwrap_or(slot)
            }
            _ => slot,
        };
        RowId::new(self.block, if root == SlotNo::INVALID { slot } else { root })
    }

    /// The roots of all line pointers at once: `roots[slot.index()]`, invalid where none.
    pub fn roots(&self) -> Vec<SlotNo> {
        page::root_map(&self.page)
    }
}
