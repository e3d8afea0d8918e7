//! Values too long for a row: compressed, and if need be kept in pieces in the TOAST table.
//!
//! A TOAST table is a heap without indexes. A value is cut into chunks, each a row; the
//! chunks' addresses fill *nodes*, again rows, level by level until one row is left. The pointer
//! kept in the main row names that one:
//!
//! ```text
//!   pointer ──> node ──> chunk 0        one chunk: the pointer names it directly (level 0)
//!                  ├───> chunk 1        up to 333: one node (level 1)
//!                  └───> chunk 2        1 GB: three levels
//! ```
//!
//! Chunks never change and never move, so their addresses stay good until they are dead to all;
//! then so is the row that points to them. Hence no index over (value, chunk): storing a value
//! costs one record a page, loading it one page visit a chunk. (PostgreSQL finds chunks through
//! an index on chunk_id, chunk_seq.) Each piece carries the value's tag and its own place, and
//! whoever reads checks both, so a wrong pointer is noticed.
//!
//! Visibility is the pointing row's: whoever sees the row may read its chunks without asking.

use super::page;
use super::tuple::TupleBody;
use super::update::{delete as delete_row, withdraw};
use super::write::{insert_many, pin_block};
use super::{HeapRel, InsertOpts, TupleResult};
use crate::engine::Engine;
use crate::error::{Result, StorageError};
use crate::ids::{PageId, RelId, RowId, SlotNo};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::txn::Transaction;

/// Rows longer than this get their longest values compressed or moved out.
pub const THRESHOLD: usize = 2032;
/// Bytes of a value per chunk: four chunks fill a page.
pub const CHUNK: usize = 2000;
/// Largest value, as in PostgreSQL.
pub const MAX_VALUE: usize = (1 << 30) - 1;

const HEAD: usize = 8;
const ID_BYTES: usize = 6;
const FANOUT: usize = CHUNK / ID_BYTES;
const LEVEL_SHIFT: u32 = 28;
const MAX_LEVEL: u8 = 3;

const _: () = assert!(4 * (page::TUPLE_HEADER + HEAD + CHUNK + page::LINE_SIZE) <= page::MAX_TUPLE);
const _: () = assert!((page::TUPLE_HEADER + HEAD + CHUNK).is_multiple_of(8));
const _: () = assert!(CHUNK * FANOUT * FANOUT * FANOUT > MAX_VALUE);
const _: () = assert!(MAX_VALUE / CHUNK < 1 << LEVEL_SHIFT);

/// Where an out-of-line value is. The SQL layer keeps its bytes in the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToastPointer {
    root: RowId,
    level: u8,
    compressed: bool,
    /// Told from other values by this.
    tag: u32,
    raw_len: u32,
    stored_len: u32,
}

impl ToastPointer {
    /// Bytes of an encoded pointer.
    pub const LEN: usize = 20;

    /// Length of the value itself.
    pub fn raw_len(&self) -> usize {
        self.raw_len as usize
    }

    /// Bytes that it takes in the TOAST table.
    pub fn stored_len(&self) -> usize {
        self.stored_len as usize
    }

    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0..4].copy_from_slice(&self.root.block.to_le_bytes());
        out[4..6].copy_from_slice(&self.root.slot.raw().to_le_bytes());
        out[6] = self.level;
        out[7] = u8::from(self.compressed);
        out[8..12].copy_from_slice(&self.tag.to_le_bytes());
        out[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        out[16..20].copy_from_slice(&self.stored_len.to_le_bytes());
        out
    }

    /// `None` when the bytes cannot be a pointer.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let slot = SlotNo::new(u16::from_le_bytes([bytes[4], bytes[5]]));
        let pointer = ToastPointer {
            root: RowId::new(u32_at(0), slot),
            level: bytes[6],
            compressed: bytes[7] == 1,
            tag: u32_at(8),
            raw_len: u32_at(12),
            stored_len: u32_at(16),
        };
        let sane = slot != SlotNo::INVALID
            && pointer.level <= MAX_LEVEL
            && bytes[7] <= 1
            && pointer.raw_len() <= MAX_VALUE
            && pointer.stored_len <= pointer.raw_len
            && (pointer.compressed || pointer.stored_len == pointer.raw_len);
        sane.then_some(pointer)
    }
}

/// Compresses with lz4; `None` when that saves less than an eighth.
pub fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < 64 {
        return None;
    }
    let packed = lz4_flex::block::compress(bytes);
    (packed.len() <= bytes.len() - bytes.len() / 8).then_some(packed)
}

/// Undoes [`compress`]; the length of the value must be known.
pub fn decompress(packed: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let wrong = || StorageError::corrupt("compressed data is corrupt");
    if raw_len > MAX_VALUE {
        return Err(wrong());
    }
    let raw = lz4_flex::block::decompress(packed, raw_len).map_err(|_| wrong())?;
    if raw.len() == raw_len { Ok(raw) } else { Err(wrong()) }
}

fn head(tag: u32, level: u8, seq: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&tag.to_le_bytes());
    let place = u32::from(level) << LEVEL_SHIFT | seq as u32;
    head[4..].copy_from_slice(&place.to_le_bytes());
    head
}

fn next_tag(xid: u64) -> u32 {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    (xid as u32).rotate_left(12) ^ COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// Stores a value out of line. With `try_compress` it is compressed first if that pays.
pub fn store(
    e: &Engine,
    tx: &mut Transaction,
    toast: RelId,
    bytes: &[u8],
    try_compress: bool,
) -> Result<ToastPointer> {
    if bytes.len() > MAX_VALUE {
        return Err(StorageError::Limit {
            what: format!("value of {} bytes exceeds the maximum of {MAX_VALUE}", bytes.len()),
        });
    }
    let packed = if try_compress { compress(bytes) } else { None };
    let stored = packed.as_deref().unwrap_or(bytes);
    let tag = next_tag(tx.xid(e)?.raw());
    let mut level = 0;
    let mut rows = store_level(e, tx, toast, tag, level, stored, CHUNK)?;
    while rows.len() > 1 {
        level += 1;
        let mut ids = Vec::with_capacity(rows.len() * ID_BYTES);
        for row in &rows {
            ids.extend_from_slice(&row.block.to_le_bytes());
            ids.extend_from_slice(&row.slot.raw().to_le_bytes());
        }
        rows = store_level(e, tx, toast, tag, level, &ids, FANOUT * ID_BYTES)?;
    }
    Ok(ToastPointer {
        root: rows[0],
        level,
        compressed: packed.is_some(),
        tag,
        raw_len: bytes.len() as u32,
        stored_len: stored.len() as u32,
    })
}

/// Stores one level's bytes in pieces of `piece`; returns where they went, at least one.
fn store_level(
    e: &Engine,
    tx: &mut Transaction,
    toast: RelId,
    tag: u32,
    level: u8,
    bytes: &[u8],
    piece: usize,
) -> Result<Vec<RowId>> {
    let h = HeapRel::new(toast);
    let count = bytes.len().div_ceil(piece).max(1);
    let mut rows = Vec::with_capacity(count);
    // A few pages' worth at a time, so that a gigabyte is not copied in one go.
    const BATCH: usize = 64;
    for first in (0..count).step_by(BATCH) {
        let last = (first + BATCH).min(count);
        let data: Vec<Vec<u8>> = (first..last)
            .map(|seq| {
                let part = &bytes[seq * piece..bytes.len().min((seq + 1) * piece)];
                let mut row = Vec::with_capacity(HEAD + part.len());
                row.extend_from_slice(&head(tag, level, seq));
                row.extend_from_slice(part);
                row
            })
            .collect();
        let bodies: Vec<TupleBody<'_>> = data
            .iter()
            .map(|d| TupleBody { natts: 1, nulls: &[], data: d, has_external: false })
            .collect();
        insert_many(e, tx, &h, &bodies, InsertOpts::default(), &mut rows)?;
    }
    Ok(rows)
}

/// Copies the payload of one piece to `out`, checking that it is the right one.
fn read_piece(
    e: &Engine,
    h: &HeapRel,
    pointer: &ToastPointer,
    row: RowId,
    level: u8,
    seq: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let id = PageId::main(h.rel, row.block);
    let missing = || {
        let what = format!("missing chunk {seq} of level {level} for toast value at {row}");
        StorageError::corrupt_page(id, what)
    };
    let page = pin_block(e, h, row.block)?.ok_or_else(missing)?.share();
    let t = page::tuple(&page, row.slot).ok_or_else(missing)?;
    let payload = t.data().strip_prefix(&head(pointer.tag, level, seq)).ok_or_else(missing)?;
    out.extend_from_slice(payload);
    Ok(())
}

fn row_ids(bytes: &[u8]) -> impl Iterator<Item = RowId> + '_ {
    bytes.chunks_exact(ID_BYTES).map(|id| {
        let block = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
        RowId::new(block, SlotNo::new(u16::from_le_bytes([id[4], id[5]])))
    })
}

/// All rows of a value, level by level from the root: `levels[0]` has the chunks.
fn all_rows(e: &Engine, h: &HeapRel, pointer: &ToastPointer) -> Result<Vec<Vec<RowId>>> {
    let chunks = (pointer.stored_len()).div_ceil(CHUNK).max(1);
    let mut levels = vec![vec![pointer.root]];
    for level in (1..=pointer.level).rev() {
        let nodes = levels.last().map_or(&[][..], Vec::as_slice);
        let mut ids = Vec::new();
        for (seq, row) in nodes.iter().enumerate() {
            read_piece(e, h, pointer, *row, level, seq, &mut ids)?;
        }
        let below: Vec<RowId> = row_ids(&ids).collect();
        if below.is_empty() || below.len() > chunks {
            return Err(StorageError::corrupt("toast value has a wrong number of chunks"));
        }
        levels.push(below);
    }
    levels.reverse();
    if levels[0].len() != chunks {
        return Err(StorageError::corrupt("toast value has a wrong number of chunks"));
    }
    Ok(levels)
}

/// Loads a value.
pub fn load(e: &Engine, toast: RelId, pointer: &ToastPointer) -> Result<Vec<u8>> {
    let stored = load_stored(e, toast, pointer, 0, pointer.stored_len())?;
    if pointer.compressed { decompress(&stored, pointer.raw_len()) } else { Ok(stored) }
}

/// Loads `len` bytes of a value from `from` on, fewer at its end. Of a value that is not
/// compressed only the chunks concerned are read.
pub fn load_slice(
    e: &Engine,
    toast: RelId,
    pointer: &ToastPointer,
    from: usize,
    len: usize,
) -> Result<Vec<u8>> {
    let from = from.min(pointer.raw_len());
    let len = len.min(pointer.raw_len() - from);
    if pointer.compressed {
        let all = load(e, toast, pointer)?;
        return Ok(all[from..from + len].to_vec());
    }
    load_stored(e, toast, pointer, from, len)
}

fn load_stored(
    e: &Engine,
    toast: RelId,
    pointer: &ToastPointer,
    from: usize,
    len: usize,
) -> Result<Vec<u8>> {
    let h = HeapRel::new(toast);
    let levels = all_rows(e, &h, pointer)?;
    let first = from / CHUNK;
    let last = (from + len).div_ceil(CHUNK).max(first + 1).min(levels[0].len());
    let mut out = Vec::with_capacity(len + 2 * CHUNK);
    for (seq, row) in levels[0].iter().enumerate().take(last).skip(first) {
        read_piece(e, &h, pointer, *row, 0, seq, &mut out)?;
    }
    let skip = from - first * CHUNK;
    if out.len() < skip + len {
        return Err(StorageError::corrupt("toast value is shorter than its pointer says"));
    }
    out.truncate(skip + len);
    out.drain(..skip);
    Ok(out)
}

/// Deletes a value: to be called when the row that points to it is deleted, or gets another value
/// in an update.
pub fn delete(
    e: &Engine,
    tx: &mut Transaction,
    toast: RelId,
    pointer: &ToastPointer,
) -> Result<()> {
    let h = HeapRel::new(toast);
    for row in all_rows(e, &h, pointer)?.into_iter().flatten() {
        match delete_row(e, tx, &h, row)? {
            TupleResult::Ok(()) | TupleResult::SelfModified => {}
            // Stored by this very command, which does not see it yet.
            TupleResult::Invisible => withdraw(e, tx, &h, row)?,
            _ => return Err(StorageError::corrupt("toast value was deleted by somebody else")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_survive_their_bytes_and_nonsense_is_refused() {
        let pointer = ToastPointer {
            root: RowId::new(70_000, SlotNo::new(3)),
            level: 2,
            compressed: true,
            tag: 99,
            raw_len: 10_000,
            stored_len: 4_000,
        };
        let bytes = pointer.encode();
        assert_eq!(ToastPointer::decode(&bytes), Some(pointer));
        assert_eq!(ToastPointer::decode(&bytes[1..]), None);
        for (at, value) in [(6, 9), (7, 2), (4, 0), (15, 0xFF), (19, 0x7F)] {
            let mut bad = bytes;
            bad[at] = value;
            assert_eq!(ToastPointer::decode(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn compression_is_undone_and_refused_when_useless() {
        let text = b"the quick brown fox ".repeat(50);
        let packed = compress(&text).expect("repeats compress");
        assert!(packed.len() < text.len() / 4);
        assert_eq!(decompress(&packed, text.len()).expect("own bytes"), text);
        assert!(decompress(&packed, text.len() + 1).is_err());
        assert!(decompress(&packed[1..], text.len()).is_err());
        let mut noise = 1u32;
        let random: Vec<u8> = (0..500)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        assert_eq!(compress(&random), None);
    }
}
