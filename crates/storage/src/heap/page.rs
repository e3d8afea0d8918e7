//! The bytes of a heap page: line pointers, tuple headers, free space.
//!
//! ```text
//!   0        40                lower        upper                         8192
//!   | header | lp1 lp2 lp3 ... |    free    |  tuple   | tuple |  tuple   |
//!              |    |    `-- unused         ^          ^
//!              |    `------- redirect to 1..n (root of a pruned HOT chain)
//!              `------------ normal: offset 15 bits, state 2 bits, length 15 bits
//! ```
//!
//! A line pointer is 4 bytes: `offset | state << 15 | length << 17`. A redirect keeps its
//! target slot in the offset field; dead and unused pointers keep nothing.
//!
//! Tuple header, 24 bytes; tuples start at multiples of 8:
//!
//! | at | field      | size | meaning                                                      |
//! |----|------------|------|--------------------------------------------------------------|
//! |  0 | xmin       | 4    | inserter: 0 invalid, 1 frozen, else page base + this           |
//! |  4 | xmax       | 4    | deleter or locker, likewise; 0 = none                          |
//! |  8 | cid        | 4    | cmin, cmax, or a combined id (`COMBO_CID`)                     |
//! | 12 | next block | 4    | the version that replaced this one ...                         |
//! | 16 | next slot  | 2    | ... 0 = none                                                   |
//! | 18 | mask       | 2    | flags, among them the four persistent hints (bits 4-7)          |
//! | 20 | mask2      | 2    | number of columns (11 bits), strength of the lock in xmax       |
//! | 22 | hoff       | 1    | where the column values start; a multiple of 8                  |
//! | 23 | bitmap     | n    | null bitmap when `HAS_NULLS`; otherwise one byte of padding      |
//!
//! Page header fields: `base` is the xid base, `hint` the oldest xid whose end may make something
//! here removable (0 = none), `flags` see [`ALL_VISIBLE`] and [`FREE_LINES`].
//!
//! Nothing in this module trusts the page: a wrong byte gives `None` or [`BadPage`], never a
//! panic and never a read beyond the page.

use super::tuple::{TupleBody, TupleRef};
use crate::ids::{RowId, SlotNo, Xid};
use crate::page::{HEADER_SIZE, PAGE_SIZE, Page};
use std::fmt;

/// Bytes of a tuple header without null bitmap.
pub const TUPLE_HEADER: usize = 24;
pub(super) const XMIN_AT: usize = 0;
pub(super) const XMAX_AT: usize = 4;
pub(super) const CID_AT: usize = 8;
pub(super) const NEXT_BLOCK_AT: usize = 12;
pub(super) const NEXT_SLOT_AT: usize = 16;
pub(super) const MASK_AT: usize = 18;
pub(super) const MASK2_AT: usize = 20;
pub(super) const HOFF_AT: usize = 22;
pub(super) const BITMAP_AT: usize = 23;

const _: () = assert!(XMAX_AT == XMIN_AT + 4 && CID_AT == XMAX_AT + 4);
const _: () = assert!(NEXT_BLOCK_AT == CID_AT + 4 && NEXT_SLOT_AT == NEXT_BLOCK_AT + 4);
const _: () = assert!(MASK_AT == NEXT_SLOT_AT + 2 && MASK2_AT == MASK_AT + 2);
const _: () = assert!(HOFF_AT == MASK2_AT + 2 && BITMAP_AT == HOFF_AT + 1);
const _: () = assert!(BITMAP_AT + 1 == TUPLE_HEADER && TUPLE_HEADER.is_multiple_of(8));

/// Bytes of a line pointer.
pub const LINE_SIZE: usize = 4;
/// Line pointers that fit a page together with the smallest tuples. No page has more.
pub const MAX_SLOTS: usize = (PAGE_SIZE - HEADER_SIZE) / (LINE_SIZE + TUPLE_HEADER);
/// The largest tuple: alone on its page, aligned.
pub const MAX_TUPLE: usize = (PAGE_SIZE - HEADER_SIZE - LINE_SIZE) / 8 * 8;
/// Columns that a tuple header can count and a null bitmap can hold.
pub const MAX_ATTRS: u16 = 1600;

const _: () = assert!(header_len(MAX_ATTRS as usize / 8) <= u8::MAX as usize);
const _: () = assert!(MAX_ATTRS < NATTS_MASK);
const _: () = assert!(PAGE_SIZE < 1 << 15);

// mask
/// A null bitmap follows the header.
pub const HAS_NULLS: u16 = 0x0001;
/// Some value lives in the TOAST table.
pub const HAS_EXTERNAL: u16 = 0x0002;
/// The four persistent hints, in the order of their volatile twins in the buffer frame.
pub const XMIN_COMMITTED: u16 = 0x0010;
pub const XMIN_ABORTED: u16 = 0x0020;
pub const XMAX_COMMITTED: u16 = 0x0040;
pub const XMAX_ABORTED: u16 = 0x0080;
pub const HINTS: u16 = XMIN_HINTS | XMAX_HINTS;
pub const XMIN_HINTS: u16 = XMIN_COMMITTED | XMIN_ABORTED;
pub const XMAX_HINTS: u16 = XMAX_COMMITTED | XMAX_ABORTED;
/// How far the persistent hints stand left of the volatile ones.
pub const HINT_SHIFT: u32 = 4;
/// xmax only locks the row.
pub const XMAX_LOCK_ONLY: u16 = 0x0100;
/// The next version is heap-only, on this page.
pub const HOT_UPDATED: u16 = 0x0800;
/// No index entry points here; found from the chain's root only.
pub const HEAP_ONLY: u16 = 0x1000;
/// Inserted by an update.
pub const UPDATED: u16 = 0x2000;
/// `cid` stands for a pair (cmin, cmax) that the transaction remembers.
pub const COMBO_CID: u16 = 0x4000;
/// Deleted because an update moved the row to another partition.
pub const MOVED: u16 = 0x8000;

// mask2
/// The low bits hold the number of columns.
pub const NATTS_MASK: u16 = 0x07FF;
/// Strength of the lock in xmax, 0 (KEY SHARE) to 3 (UPDATE).
pub const STRENGTH_SHIFT: u32 = 11;
pub const STRENGTH_MASK: u16 = 0x1800;
/// The update changed a key column, or the row was deleted.
pub const KEYS_UPDATED: u16 = 0x2000;

// page flags
/// Every tuple is visible to everybody, now and later.
pub const ALL_VISIBLE: u16 = 0x0001;
/// There may be unused line pointers.
pub const FREE_LINES: u16 = 0x0002;

/// xid offsets on the page.
pub const OFFSET_INVALID: u32 = 0;
pub const OFFSET_FROZEN: u32 = 1;
const OFFSET_FIRST: u64 = 2;

/// What is wrong with a page, or with a change that does not fit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPage {
    pub what: &'static str,
    pub slot: SlotNo,
}

impl fmt::Display for BadPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.slot == SlotNo::INVALID {
            f.write_str(self.what)
        } else {
            write!(f, "{} (line pointer {})", self.what, self.slot.raw())
        }
    }
}

impl std::error::Error for BadPage {}

pub(super) const fn bad(what: &'static str, slot: SlotNo) -> BadPage {
    BadPage { what, slot }
}

/// The xid that an offset means on a page with this base.
#[inline]
pub fn xid_at(base: u64, offset: u32) -> Xid {
    match offset {
        OFFSET_INVALID => Xid::INVALID,
        OFFSET_FROZEN => Xid::FROZEN,
        n => Xid::new(base.wrapping_add(u64::from(n))),
    }
}

/// The offset that stands for `xid`, or `None` when this base cannot express it.
#[inline]
pub fn offset_of(base: u64, xid: Xid) -> Option<u32> {
    if !xid.is_normal() {
        return Some(if xid.is_valid() { OFFSET_FROZEN } else { OFFSET_INVALID });
    }
    let distance = xid.raw().checked_sub(base)?;
    if distance < OFFSET_FIRST { None } else { u32::try_from(distance).ok() }
}

/// The base for a page whose newest xid is `xid`: it lies 2^30 to 2^31 below, so that older
/// transactions that still run can write here too, and 2^31 newer ones follow before a rebase.
pub const fn base_for(xid: Xid) -> u64 {
    (xid.raw() & !0x3FFF_FFFF).saturating_sub(1 << 30)
}

/// Where the column values start, given the length of the null bitmap (0 = none).
#[inline]
pub const fn header_len(nulls_len: usize) -> usize {
    (BITMAP_AT + nulls_len).next_multiple_of(8)
}

/// A tuple's length as it counts against free space.
#[inline]
pub const fn aligned(len: usize) -> usize {
    len.next_multiple_of(8)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LineState {
    Unused = 0,
    Normal = 1,
    Redirect = 2,
    Dead = 3,
}

/// A line pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line(u32);

impl Line {
    pub const UNUSED: Line = Line(0);
    pub const DEAD: Line = Line((LineState::Dead as u32) << 15);

    pub const fn normal(offset: u16, len: u16) -> Self {
        Line(offset as u32 | (LineState::Normal as u32) << 15 | (len as u32) << 17)
    }

    pub const fn redirect(to: SlotNo) -> Self {
        Line(to.raw() as u32 | (LineState::Redirect as u32) << 15)
    }

    #[inline]
    pub const fn state(self) -> LineState {
        match (self.0 >> 15) & 3 {
            0 => LineState::Unused,
            1 => LineState::Normal,
            2 => LineState::Redirect,
            _ => LineState::Dead,
        }
    }

    #[inline]
    pub const fn offset(self) -> u16 {
        (self.0 & 0x7FFF) as u16
    }

    /// Bytes of the tuple; 0 for line pointers without one.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // A length in bytes, not a collection.
    pub const fn len(self) -> u16 {
        (self.0 >> 17) as u16
    }

    #[inline]
    pub const fn target(self) -> SlotNo {
        SlotNo::new(self.offset())
    }
}

/// How many line pointers the page has.
#[inline]
pub fn slot_count(page: &Page) -> usize {
    (usize::from(page.lower()).saturating_sub(HEADER_SIZE) / LINE_SIZE).min(MAX_SLOTS)
}

/// All slot numbers of the page, in order.
pub fn slots(page: &Page) -> impl DoubleEndedIterator<Item = SlotNo> + use<> {
    (1..=slot_count(page) as u16).map(SlotNo::new)
}

/// All line pointers with their slots, in order: one bounds check for all of them.
#[inline]
pub fn lines(page: &Page) -> impl Iterator<Item = (SlotNo, Line)> + '_ {
    let bytes = &page.bytes()[HEADER_SIZE..HEADER_SIZE + LINE_SIZE * slot_count(page)];
    let (words, _) = bytes.as_chunks::<LINE_SIZE>();
    words.iter().enumerate().map(|(at, w)| (SlotNo::from_index(at), Line(u32::from_le_bytes(*w))))
}

/// How many tuples there are, by the line pointers alone.
#[inline]
pub fn tuple_count(page: &Page) -> usize {
    lines(page).map(|(_, line)| usize::from(line.state() == LineState::Normal)).sum()
}

const fn line_at(slot: SlotNo) -> usize {
    HEADER_SIZE + LINE_SIZE * (slot.raw() as usize - 1)
}

/// The line pointer `slot`, or `None` when the page has no such.
#[inline]
pub fn line(page: &Page, slot: SlotNo) -> Option<Line> {
    if slot == SlotNo::INVALID || usize::from(slot.raw()) > slot_count(page) {
        return None;
    }
    Some(Line(page.u32_at(line_at(slot))))
}

/// The tuple of a normal line pointer. `None`: no such slot, another state, or corrupt.
#[inline]
pub fn tuple(page: &Page, slot: SlotNo) -> Option<TupleRef<'_>> {
    let line = line(page, slot)?;
    if line.state() != LineState::Normal { None } else { tuple_at(page, line) }
}

/// The tuple that a normal line pointer names; `None` when its bounds are wrong.
#[inline]
pub(super) fn tuple_at(page: &Page, line: Line) -> Option<TupleRef<'_>> {
    let from = usize::from(line.offset());
    if from < HEADER_SIZE {
        return None;
    }
    TupleRef::new(page.bytes().get(from..from + usize::from(line.len()))?)
}

/// What visibility needs of a tuple's header, read without looking at the rest of it.
#[derive(Clone, Copy)]
pub(super) struct Ids {
    /// Offsets from the page's base.
    pub xmin: u32,
    pub xmax: u32,
    pub mask: u16,
}

/// The ids of the tuple that a normal line pointer names; `None` when it exceeds the page.
#[inline]
pub(super) fn ids_at(page: &Page, line: Line) -> Option<Ids> {
    const MASK_END: usize = MASK_AT + 2;
    let head = page.bytes().get(usize::from(line.offset())..)?.first_chunk::<MASK_END>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let mask = u16::from_le_bytes([head[MASK_AT], head[MASK_AT + 1]]);
    Some(Ids { xmin: word(XMIN_AT), xmax: word(XMAX_AT), mask })
}

/// Who inserted the tuples of a page none of which has an xmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inserters {
    /// The lowest and the highest, as offsets; `first > last`: all tuples are frozen.
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) tuples: u32,
    pub(super) frozen: u32,
    /// The bits that the masks of all others have.
    pub(super) mask: u16,
}

/// The page's inserters; `None` if there is no tuple, or one with an xmax or without an xmin.
#[inline]
pub(super) fn inserters(page: &Page) -> Option<Inserters> {
    let (first, last) = (u32::MAX, OFFSET_INVALID);
    let mut all = Inserters { first, last, tuples: 0, frozen: 0, mask: u16::MAX };
    let mut deleted = OFFSET_INVALID;
    for (_, line) in lines(page).filter(|(_, line)| line.state() == LineState::Normal) {
        let ids = ids_at(page, line)?;
        deleted |= ids.xmax;
        all.tuples += 1;
        if ids.xmin == OFFSET_FROZEN {
            all.frozen += 1;
            continue;
        }
        all.first = all.first.min(ids.xmin);
        all.last = all.last.max(ids.xmin);
        all.mask &= ids.mask;
    }
    (deleted == OFFSET_INVALID && all.first != OFFSET_INVALID && all.tuples > 0).then_some(all)
}

/// Like [`tuple`], for a slot that must hold one.
pub fn expect_tuple(page: &Page, slot: SlotNo) -> Result<TupleRef<'_>, BadPage> {
    match line(page, slot) {
        None => Err(bad("no such line pointer", slot)),
        Some(l) if l.state() != LineState::Normal => Err(bad("line pointer is not normal", slot)),
        Some(l) => tuple_at(page, l).ok_or(bad("tuple exceeds the page", slot)),
    }
}

/// Checks what every change relies on: the bounds in the header.
pub fn check_bounds(page: &Page) -> Result<(), BadPage> {
    let (lower, upper) = (usize::from(page.lower()), usize::from(page.upper()));
    let fits = HEADER_SIZE <= lower
        && lower <= upper
        && upper <= PAGE_SIZE
        && (lower - HEADER_SIZE).is_multiple_of(LINE_SIZE)
        && (lower - HEADER_SIZE) / LINE_SIZE <= MAX_SLOTS
        && upper.is_multiple_of(8);
    if fits { Ok(()) } else { Err(bad("page header bounds are wrong", SlotNo::INVALID)) }
}

/// For each slot, the line pointer that index entries for its chain name: itself for a tuple
/// that is not heap-only, the root for a chain member, invalid for unused and unreached ones.
pub fn root_map(page: &Page) -> Vec<SlotNo> {
    let count = slot_count(page);
    let mut roots = vec![SlotNo::INVALID; count];
    for root in slots(page) {
        let Some(l) = line(page, root) else { continue };
        let mut prior = Xid::INVALID;
        let mut at = match l.state() {
            LineState::Redirect => {
                roots[root.index()] = root;
                l.target()
            }
            LineState::Normal if tuple_at(page, l).is_some_and(|t| !t.is_heap_only()) => root,
            _ => continue,
        };
        for _ in 0..count {
            let Some(t) = tuple(page, at) else { break };
            if prior.is_valid() && t.xmin(page.base()) != prior {
                break;
            }
            roots[at.index()] = root;
            match t.next() {
                Some(next) if t.is_hot_updated() => at = next.slot,
                _ => break,
            }
            prior = t.xmax(page.base());
        }
    }
    roots
}

/// An unused line pointer, or the number of the one after the last.
pub fn free_slot(page: &Page) -> SlotNo {
    let count = slot_count(page);
    if page.flags() & FREE_LINES != 0 {
        for slot in slots(page) {
            if line(page, slot) == Some(Line::UNUSED) {
                return slot;
            }
        }
    }
    SlotNo::from_index(count)
}

/// The largest tuple that can be added now (0 when no line pointer is left).
pub fn room(page: &Page) -> usize {
    let free = page.free_space();
    let reuse =
        page.flags() & FREE_LINES != 0 && usize::from(free_slot(page).raw()) <= slot_count(page);
    if reuse {
        return free / 8 * 8;
    }
    if slot_count(page) >= MAX_SLOTS {
        return 0;
    }
    free.saturating_sub(LINE_SIZE) / 8 * 8
}

// --- changes: only from `ops` ---

pub(super) fn set_line(page: &mut Page, slot: SlotNo, to: Line) {
    page.put_u32(line_at(slot), to.0);
}

/// The fixed part of a tuple header as an insert writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewHeader {
    pub xmin: u32,
    pub cid: u32,
    pub mask: u16,
    pub mask2: u16,
}

/// Places a tuple of `len` bytes at a line pointer that is unused or the next one; returns
/// its offset. The bytes are the caller's to fill.
pub(super) fn place(page: &mut Page, slot: SlotNo, len: usize) -> Result<usize, BadPage> {
    let count = slot_count(page);
    let fresh = usize::from(slot.raw()) == count + 1;
    if !fresh && line(page, slot) != Some(Line::UNUSED) {
        return Err(bad("line pointer to insert at is in use", slot));
    }
    if !(TUPLE_HEADER..=MAX_TUPLE).contains(&len) || (fresh && count >= MAX_SLOTS) {
        return Err(bad("tuple cannot be placed", slot));
    }
    let lower = usize::from(page.lower()) + if fresh { LINE_SIZE } else { 0 };
    let upper = usize::from(page.upper());
    if lower + aligned(len) > upper {
        return Err(bad("no room for the tuple", slot));
    }
    let at = upper - aligned(len);
    if fresh {
        page.set_lower(lower as u16);
        page.set_flags(page.flags() & !FREE_LINES);
    }
    page.set_upper(at as u16);
    page.bytes_mut()[at + len..upper].fill(0);
    set_line(page, slot, Line::normal(at as u16, len as u16));
    Ok(at)
}

/// Writes the header of a new tuple at `at`.
pub(super) fn write_header(page: &mut Page, at: usize, head: &NewHeader, hoff: usize) {
    page.put_u32(at + XMIN_AT, head.xmin);
    page.put_u32(at + XMAX_AT, OFFSET_INVALID);
    page.put_u32(at + CID_AT, head.cid);
    page.put_u32(at + NEXT_BLOCK_AT, 0);
    page.put_u16(at + NEXT_SLOT_AT, 0);
    page.put_u16(at + MASK_AT, head.mask & !HINTS);
    page.put_u16(at + MASK2_AT, head.mask2);
    page.bytes_mut()[at + HOFF_AT] = hoff as u8;
    page.bytes_mut()[at + BITMAP_AT] = 0;
}

/// Inserts a tuple.
pub(super) fn insert(
    page: &mut Page,
    slot: SlotNo,
    head: &NewHeader,
    body: &TupleBody<'_>,
) -> Result<(), BadPage> {
    let hoff = header_len(body.nulls.len());
    if hoff > usize::from(u8::MAX) {
        return Err(bad("null bitmap too long", slot));
    }
    let at = place(page, slot, hoff + body.data.len())?;
    write_header(page, at, head, hoff);
    let bitmap = at + BITMAP_AT;
    let bytes = page.bytes_mut();
    bytes[bitmap..bitmap + body.nulls.len()].copy_from_slice(body.nulls);
    bytes[bitmap + body.nulls.len()..at + hoff].fill(0);
    bytes[at + hoff..at + hoff + body.data.len()].copy_from_slice(body.data);
    Ok(())
}

/// A writable tuple header, bounds checked once.
pub(super) struct HeaderMut<'a> {
    page: &'a mut Page,
    at: usize,
}

impl<'a> HeaderMut<'a> {
    pub(super) fn new(page: &'a mut Page, slot: SlotNo) -> Result<Self, BadPage> {
        expect_tuple(page, slot)?;
        let at = line(page, slot).map_or(0, |l| usize::from(l.offset()));
        Ok(HeaderMut { page, at })
    }

    pub(super) fn xmin(&self) -> u32 {
        self.page.u32_at(self.at + XMIN_AT)
    }

    pub(super) fn set_xmin(&mut self, offset: u32) {
        self.page.put_u32(self.at + XMIN_AT, offset);
    }

    pub(super) fn xmax(&self) -> u32 {
        self.page.u32_at(self.at + XMAX_AT)
    }

    pub(super) fn set_xmax(&mut self, offset: u32) {
        self.page.put_u32(self.at + XMAX_AT, offset);
    }

    pub(super) fn set_cid(&mut self, cid: u32) {
        self.page.put_u32(self.at + CID_AT, cid);
    }

    pub(super) fn set_next(&mut self, next: Option<RowId>) {
        let next = next.unwrap_or(RowId::new(0, SlotNo::INVALID));
        self.page.put_u32(self.at + NEXT_BLOCK_AT, next.block);
        self.page.put_u16(self.at + NEXT_SLOT_AT, next.slot.raw());
    }

    pub(super) fn mask(&self) -> u16 {
        self.page.u16_at(self.at + MASK_AT)
    }

    pub(super) fn set_mask(&mut self, mask: u16) {
        self.page.put_u16(self.at + MASK_AT, mask);
    }

    pub(super) fn mask2(&self) -> u16 {
        self.page.u16_at(self.at + MASK2_AT)
    }

    pub(super) fn set_mask2(&mut self, mask2: u16) {
        self.page.put_u16(self.at + MASK2_AT, mask2);
    }
}

/// Drops unused line pointers at the end and moves all tuples together at the end of the page,
/// in the order of their slots, so that the free space is in one piece. Deterministic: the same
/// before gives the same after, to the byte.
pub(super) fn compact(page: &mut Page) -> Result<(), BadPage> {
    let mut count = slot_count(page);
    while count > 0 && line(page, SlotNo::new(count as u16)) == Some(Line::UNUSED) {
        count -= 1;
    }
    let lower = HEADER_SIZE + LINE_SIZE * count;
    let before = page.clone();
    let mut unused = false;
    let mut upper = PAGE_SIZE;
    for (slot, l) in lines(&before).take(count) {
        unused |= l == Line::UNUSED;
        if l.state() != LineState::Normal {
            continue;
        }
        let (from, len) = (usize::from(l.offset()), usize::from(l.len()));
        if tuple_at(&before, l).is_none() {
            return Err(bad("tuple exceeds the page", slot));
        }
        if upper < lower + aligned(len) {
            return Err(bad("tuples overlap", slot));
        }
        let to = upper - aligned(len);
        // Page by page most tuples stay where they are; the copy covers those that do not.
        if to != from {
            let bytes = page.bytes_mut();
            bytes[to..to + len].copy_from_slice(&before.bytes()[from..from + len]);
            set_line(page, slot, Line::normal(to as u16, len as u16));
        }
        page.bytes_mut()[to + len..upper].fill(0);
        upper = to;
    }
    page.set_lower(lower as u16);
    // The free space is zeroed so that redo gives the same bytes whatever lay there before.
    page.bytes_mut()[lower..upper].fill(0);
    page.set_upper(upper as u16);
    let flags = page.flags() & !FREE_LINES;
    page.set_flags(if unused { flags | FREE_LINES } else { flags });
    Ok(())
}
