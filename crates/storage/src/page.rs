//! The 8 KiB page and the header that every class of page shares.
//!
//! ```text
//!  byte 0    8          12      14      15        16      18      20        22    24     32    40
//!  | lsn u64 | checksum | flags | class | version | lower | upper | special | pad | base | hint |
//!                                                    |       |       |
//!    40 ..... lower: grows up (line pointers)  ------+       |       +-- class's trailer .. 8192
//!    lower .. upper: free space                              |
//!    upper .. special: grows down (tuples, keys) ------------+
//! ```
//!
//! All integers are little-endian. This module is the one home of the header's layout; what lies
//! between `lower` and the end belongs to the page's class (`heap/`, `btree/`, ...).
//!
//! - `lsn` is the position after the last record that changed the page.
//! - `checksum` covers the page with this field as zero; it is only valid on disk and in the
//!   copy that is being written (see `buffer/`).
//! - `base` is the xid that a heap page's 32-bit xmin and xmax are offsets from; other classes
//!   may use it as they like. `hint` likewise.
//!
//! A page of zeros is a page that was allocated and never written: valid, of class `Free`.

use crate::ids::{Lsn, PageId};

/// Bytes in a page.
pub const PAGE_SIZE: usize = 8192;
/// Bytes in the common header.
pub const HEADER_SIZE: usize = 40;
/// Layout version stamped on every page.
pub const PAGE_VERSION: u8 = 1;

const LSN_AT: usize = 0;
const CHECKSUM_AT: usize = 8;
const FLAGS_AT: usize = 12;
const CLASS_AT: usize = 14;
const VERSION_AT: usize = 15;
const LOWER_AT: usize = 16;
const UPPER_AT: usize = 18;
const SPECIAL_AT: usize = 20;
const BASE_AT: usize = 24;
const HINT_AT: usize = 32;

const _: () = assert!(HINT_AT + 8 == HEADER_SIZE);
const _: () = assert!(BASE_AT == SPECIAL_AT + 4 && SPECIAL_AT == UPPER_AT + 2);
const _: () = assert!(LOWER_AT == VERSION_AT + 1 && VERSION_AT == CLASS_AT + 1);
const _: () = assert!(CLASS_AT == FLAGS_AT + 2 && FLAGS_AT == CHECKSUM_AT + 4);
const _: () = assert!(size_of::<Page>() == PAGE_SIZE && align_of::<Page>() == 8);

/// What a page holds, and so which module may change it and replays its changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageClass {
    /// All zeros, or given back.
    Free = 0,
    Heap = 1,
    BTree = 2,
    Fsm = 3,
    Vm = 4,
    Sequence = 5,
}

impl PageClass {
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(PageClass::Free),
            1 => Some(PageClass::Heap),
            2 => Some(PageClass::BTree),
            3 => Some(PageClass::Fsm),
            4 => Some(PageClass::Vm),
            5 => Some(PageClass::Sequence),
            _ => None,
        }
    }
}

/// The bytes of one page, 8-byte aligned.
#[derive(Clone)]
#[repr(C, align(8))]
pub struct Page([u8; PAGE_SIZE]);

impl Default for Page {
    fn default() -> Self {
        Page::zeroed()
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page")
            .field("class", &self.class())
            .field("lsn", &self.lsn())
            .field("lower", &self.lower())
            .field("upper", &self.upper())
            .finish_non_exhaustive()
    }
}

impl Page {
    pub const fn zeroed() -> Self {
        Page([0; PAGE_SIZE])
    }

    /// Makes this an empty page of `class` whose trailer has `special_size` bytes.
    pub fn init(&mut self, class: PageClass, special_size: usize) {
        assert!(special_size <= PAGE_SIZE - HEADER_SIZE, "trailer larger than a page");
        self.0.fill(0);
        self.0[CLASS_AT] = class as u8;
        self.0[VERSION_AT] = PAGE_VERSION;
        let special = (PAGE_SIZE - special_size) as u16;
        self.set_lower(HEADER_SIZE as u16);
        self.set_upper(special);
        self.put_u16(SPECIAL_AT, special);
    }

    #[inline]
    pub fn bytes(&self) -> &[u8; PAGE_SIZE] {
        &self.0
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; PAGE_SIZE] {
        &mut self.0
    }

    #[inline]
    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    #[inline]
    pub fn u32_at(&self, at: usize) -> u32 {
        let mut raw = [0; 4];
        raw.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(raw)
    }

    #[inline]
    pub fn u64_at(&self, at: usize) -> u64 {
        let mut raw = [0; 8];
        raw.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(raw)
    }

    #[inline]
    pub fn put_u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    #[inline]
    pub fn put_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    #[inline]
    pub fn put_u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn::new(self.u64_at(LSN_AT))
    }

    #[inline]
    pub fn set_lsn(&mut self, lsn: Lsn) {
        self.put_u64(LSN_AT, lsn.raw());
    }

    #[inline]
    pub fn flags(&self) -> u16 {
        self.u16_at(FLAGS_AT)
    }

    #[inline]
    pub fn set_flags(&mut self, flags: u16) {
        self.put_u16(FLAGS_AT, flags);
    }

    /// The page's class, or `None` when the byte is no class at all.
    #[inline]
    pub fn class(&self) -> Option<PageClass> {
        PageClass::from_raw(self.0[CLASS_AT])
    }

    /// Start of the free space.
    #[inline]
    pub fn lower(&self) -> u16 {
        self.u16_at(LOWER_AT)
    }

    #[inline]
    pub fn set_lower(&mut self, lower: u16) {
        self.put_u16(LOWER_AT, lower);
    }

    /// End of the free space.
    #[inline]
    pub fn upper(&self) -> u16 {
        self.u16_at(UPPER_AT)
    }

    #[inline]
    pub fn set_upper(&mut self, upper: u16) {
        self.put_u16(UPPER_AT, upper);
    }

    /// Start of the class's trailer; `PAGE_SIZE` when there is none.
    #[inline]
    pub fn special(&self) -> u16 {
        self.u16_at(SPECIAL_AT)
    }

    #[inline]
    pub fn base(&self) -> u64 {
        self.u64_at(BASE_AT)
    }

    #[inline]
    pub fn set_base(&mut self, base: u64) {
        self.put_u64(BASE_AT, base);
    }

    #[inline]
    pub fn hint(&self) -> u64 {
        self.u64_at(HINT_AT)
    }

    #[inline]
    pub fn set_hint(&mut self, hint: u64) {
        self.put_u64(HINT_AT, hint);
    }

    /// Bytes between the line pointers and the data.
    #[inline]
    pub fn free_space(&self) -> usize {
        usize::from(self.upper().saturating_sub(self.lower()))
    }

    /// A page that was allocated and never written.
    pub fn is_zeroed(&self) -> bool {
        self.0.iter().all(|b| *b == 0)
    }

    /// The checksum of these bytes, with the checksum field taken as zero and the block number
    /// mixed in, so that a page written to the wrong place is noticed. Never 0.
    pub fn compute_checksum(&self, block: u32) -> u32 {
        let crc = crc32c::crc32c(&self.0[..CHECKSUM_AT]);
        let crc = crc32c::crc32c_append(crc, &block.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &self.0[CHECKSUM_AT + 4..]);
        crc.max(1)
    }

    #[inline]
    pub fn checksum(&self) -> u32 {
        self.u32_at(CHECKSUM_AT)
    }

    /// Stamps the checksum: the last thing done to a copy before it is written.
    pub fn stamp_checksum(&mut self, block: u32) {
        let sum = self.compute_checksum(block);
        self.put_u32(CHECKSUM_AT, sum);
    }

    /// Checks what every page from disk must satisfy. `Err` says what is wrong.
    pub fn verify(&self, id: PageId, checksums: bool) -> Result<(), String> {
        if self.class() == Some(PageClass::Free) && self.is_zeroed() {
            return Ok(());
        }
        if checksums {
            let (found, expected) = (self.checksum(), self.compute_checksum(id.block));
            if found != expected {
                return Err(format!(
                    "page verification failed, calculated checksum {expected:#010x} but expected {found:#010x}"
                ));
            }
        }
        if self.class().is_none() || self.0[VERSION_AT] != PAGE_VERSION {
            return Err("page header has no known class or version".to_owned());
        }
        let (lower, upper, special) =
            (usize::from(self.lower()), usize::from(self.upper()), usize::from(self.special()));
        if lower < HEADER_SIZE || lower > upper || upper > special || special > PAGE_SIZE {
            return Err(format!("page header bounds are wrong: {lower}/{upper}/{special}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RelId;

    fn id() -> PageId {
        PageId::main(RelId::new(7), 3)
    }

    #[test]
    fn a_fresh_page_and_a_zero_page_verify() {
        let mut page = Page::zeroed();
        assert!(page.verify(id(), true).is_ok());
        page.init(PageClass::Heap, 16);
        page.stamp_checksum(3);
        assert!(page.verify(id(), true).is_ok());
        assert_eq!(page.free_space(), PAGE_SIZE - HEADER_SIZE - 16);
    }

    #[test]
    fn any_flipped_bit_and_any_other_block_is_noticed() {
        let mut page = Page::zeroed();
        page.init(PageClass::Heap, 0);
        page.stamp_checksum(3);
        for at in [0, 9, 13, 100, PAGE_SIZE - 1] {
            let mut bad = page.clone();
            bad.bytes_mut()[at] ^= 0x10;
            assert!(bad.verify(id(), true).is_err(), "flip at {at}");
        }
        assert!(page.verify(PageId::main(RelId::new(7), 4), true).is_err());
    }
}
