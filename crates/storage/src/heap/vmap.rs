//! The visibility map: two bits a heap page, in the `_vm` fork.
//!
//! ```text
//!   byte 40 + n/4:  | f a | f a | f a | f a |     a = all-visible, f = all-frozen
//!                      ^ block n ... at bits 2 * (n % 4)
//! ```
//!
//! Rules (semantics 47, 48):
//! - V1. Map bit all-visible set => page flag [`super::page::ALL_VISIBLE`] set => every tuple on
//!   the page is visible to everybody, and there are no dead line pointers. All-frozen implies
//!   all-visible.
//! - V2. A change that clears the flag clears the bits in the same critical section, so in the
//!   same record. Locking a row clears all-frozen only.
//! - V3. The map page is pinned before the heap page is latched and latched after it; whoever
//!   finds, with the heap page latched, that it needs a map page that it did not pin, lets go and
//!   starts again.
//! - V4. Bits are set by vacuum, under the heap page's exclusive latch, in a record that sets the
//!   flag, even if it is there: it may have come from write-back, and replay may not find it.
//! - V5. An index-only scan may trust a bit that it reads after the index entry: a writer clears
//!   the bit before its row can be reached through an index, and a deleter before it commits.

use super::codec::{Reader, put_varint};
use super::page::{BadPage, bad};
use crate::buffer::{BufferPool, CriticalSection, OpError, PageOp, PinGuard};
use crate::error::Result;
use crate::ids::{BlockNo, Fork, PageId, RelId, SlotNo};
use crate::page::{HEADER_SIZE, PAGE_SIZE, Page, PageClass};

/// All tuples are visible to everybody.
pub const VM_VISIBLE: u8 = 1;
/// ... and no xid is left that the commit log would have to be asked about.
pub const VM_FROZEN: u8 = 2;

const BLOCKS_PER_BYTE: u32 = 4;
/// Heap blocks that one page of the map covers.
pub const BLOCKS_PER_VM_PAGE: u32 = (PAGE_SIZE - HEADER_SIZE) as u32 * BLOCKS_PER_BYTE;

/// The page of the map that covers a heap block.
pub fn map_page(rel: RelId, block: BlockNo) -> PageId {
    PageId::new(rel, Fork::Vm, block / BLOCKS_PER_VM_PAGE)
}

fn place(index: u32) -> (usize, u32) {
    (HEADER_SIZE + (index / BLOCKS_PER_BYTE) as usize, (index % BLOCKS_PER_BYTE) * 2)
}

/// The bits of a heap block on its map page.
pub fn bits_of(page: &Page, block: BlockNo) -> u8 {
    if page.class() != Some(PageClass::Vm) {
        return 0;
    }
    let (at, shift) = place(block % BLOCKS_PER_VM_PAGE);
    (page.bytes()[at] >> shift) & 3
}

/// Sets a heap block's two bits to `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmOp {
    pub block: BlockNo,
    pub bits: u8,
}

impl VmOp {
    fn change(self, page: &mut Page) -> Result<(), BadPage> {
        if self.bits & !(VM_VISIBLE | VM_FROZEN) != 0 || self.bits == VM_FROZEN {
            return Err(bad("impossible visibility map bits", SlotNo::INVALID));
        }
        if page.class() != Some(PageClass::Vm) {
            page.init(PageClass::Vm, 0);
            page.set_lower(PAGE_SIZE as u16);
        }
        let (at, shift) = place(self.block % BLOCKS_PER_VM_PAGE);
        let byte = page.bytes()[at];
        page.bytes_mut()[at] = (byte & !(3 << shift)) | (self.bits << shift);
        Ok(())
    }
}

impl PageOp for VmOp {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.bits);
        put_varint(out, u64::from(self.block));
    }

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        self.change(page).map_err(|e| OpError::new(e.to_string()))
    }
}

/// Replays a block's part of a record on a page of the map.
pub fn redo(ops: &[u8], page: &mut Page) -> Result<(), BadPage> {
    const MALFORMED: BadPage = bad("malformed visibility map operation", SlotNo::INVALID);
    let mut r = Reader(ops);
    while !r.is_empty() {
        let bits = r.u8().ok_or(MALFORMED)?;
        let block = r.u32().ok_or(MALFORMED)?;
        VmOp { block, bits }.change(page)?;
    }
    Ok(())
}

/// Whether the map reaches a heap block. With the block's page latched, "no" is final: vacuum makes
/// the map page first, and sets the bit under that latch.
pub(super) fn reaches(pool: &BufferPool, rel: RelId, block: BlockNo) -> Result<bool> {
    Ok(pool.block_count(rel, Fork::Vm)? > map_page(rel, block).block)
}

/// The map page of a heap block, pinned; `None` when the map does not reach that far, and so has
/// no bit set.
pub fn pin(pool: &BufferPool, rel: RelId, block: BlockNo) -> Result<Option<PinGuard<'_>>> {
    let id = map_page(rel, block);
    if let Some(pin) = pool.read_resident(id) {
        return Ok(Some(pin));
    }
    if pool.block_count(rel, Fork::Vm)? <= id.block {
        return Ok(None);
    }
    pool.read(id).map(Some)
}

/// The map page of a heap block, pinned; the map is extended to reach it.
pub(super) fn pin_to_set(pool: &BufferPool, rel: RelId, block: BlockNo) -> Result<PinGuard<'_>> {
    let id = map_page(rel, block);
    while pool.block_count(rel, Fork::Vm)? <= id.block {
        drop(pool.extend(rel, Fork::Vm)?);
    }
    pool.read(id)
}

/// Takes a map page into a section, to be made by it if this is its first bit: replay may find no
/// page there.
pub(super) fn admit<'e>(cs: &mut CriticalSection<'e>, pin: PinGuard<'e>) -> usize {
    let guard = pin.exclusive();
    match guard.class() {
        Some(PageClass::Vm) => cs.add(guard),
        _ => cs.add_init(guard, PageClass::Vm),
    }
}

/// The bits of a heap block, for index-only scans (V5) and vacuum.
pub fn bits(pool: &BufferPool, rel: RelId, block: BlockNo) -> Result<u8> {
    Ok(pin(pool, rel, block)?.map_or(0, |pin| bits_of(&pin.share(), block)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_neighbours_are_apart_and_replay() {
        let mut page = Page::zeroed();
        let mut redone = Page::zeroed();
        let mut bytes = Vec::new();
        for (block, bits) in
            [(0, 1), (1, 3), (2, 0), (3, 1), (4, 3), (1, 0), (BLOCKS_PER_VM_PAGE - 1, 3)]
        {
            let op = VmOp { block, bits };
            op.apply(&mut page).expect("fits");
            op.encode(&mut bytes);
        }
        let seen: Vec<u8> = (0..5).map(|b| bits_of(&page, b)).collect();
        assert_eq!(seen, [1, 0, 0, 1, 3]);
        assert_eq!(bits_of(&page, BLOCKS_PER_VM_PAGE - 1), 3);
        redo(&bytes, &mut redone).expect("own bytes");
        assert!(page.bytes() == redone.bytes());
        assert!(VmOp { block: 0, bits: VM_FROZEN }.apply(&mut page).is_err());
        assert!(redo(&bytes[..1], &mut redone).is_err());
    }
}
