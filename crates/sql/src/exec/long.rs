//! Long values: compressed in the row, or moved to the TOAST table.
//!
//! A row of more than [`LIMIT`] bytes is made smaller: its long values are compressed, longest
//! first, until it fits; then they are moved out, longest first, until it fits. Values that an
//! update does not touch keep their place in the TOAST table; those that it replaces, and those
//! of deleted rows, are deleted there.

use super::table::TableExec;
use crate::error::{Result, SqlError, State};
use crate::row::{EncodedRow, PACKED_LZ4, PACKED_TOAST, RowView};
use inkling_storage::engine::Engine;
use inkling_storage::heap::toast::{self, ToastPointer};
use inkling_storage::ids::RelId;
use inkling_storage::txn::Transaction;

/// Rows are brought below this, so that four fit a page.
const LIMIT: usize = 2000;
/// Shorter values stay as they are.
const WORTH: usize = 128;

fn corrupt() -> SqlError {
    SqlError::new(State::DATA_CORRUPTED, "a long value is stored in an unknown way")
}

/// The bytes of a packed value.
pub fn unpack(engine: &Engine, place: Option<RelId>, packed: &[u8]) -> Result<Vec<u8>> {
    match packed.split_first() {
        Some((&PACKED_TOAST, pointer)) => {
            let pointer = ToastPointer::decode(pointer).ok_or_else(corrupt)?;
            Ok(toast::load(engine, place.ok_or_else(corrupt)?, &pointer)?)
        }
        Some((&PACKED_LZ4, rest)) => {
            let (len, bytes) = rest.split_first_chunk::<4>().ok_or_else(corrupt)?;
            Ok(toast::decompress(bytes, u32::from_le_bytes(*len) as usize)?)
        }
        _ => Err(corrupt()),
    }
}

/// Makes a row small enough, if it can be. `spare` is a buffer.
pub fn shorten(
    engine: &Engine,
    tx: &mut Transaction,
    table: &TableExec,
    row: &mut EncodedRow,
    spare: &mut EncodedRow,
) -> Result<()> {
    if row.body().stored_len() <= LIMIT {
        return Ok(());
    }
    let mut values: Vec<(usize, Vec<u8>)> = table
        .codec
        .long_values(row.view())?
        .into_iter()
        .filter(|v| !v.packed && v.bytes.len() >= WORTH)
        .map(|v| (v.column, v.bytes.to_vec()))
        .collect();
    values.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
    let mut length = row.body().stored_len();
    let mut packed: Vec<(usize, Vec<u8>)> = Vec::new();
    for (column, bytes) in &values {
        if length <= LIMIT {
            break;
        }
        if let Some(small) = toast::compress(bytes) {
            length -= bytes.len() - small.len();
            let mut value = vec![PACKED_LZ4];
            value.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            value.extend_from_slice(&small);
            packed.push((*column, value));
        }
    }
    if let Some(place) = table.heap.toast {
        // What takes most room now, compressed or not.
        let size = |column: usize, bytes: &[u8]| {
            packed.iter().find(|p| p.0 == column).map_or(bytes.len(), |p| p.1.len())
        };
        values.sort_by_key(|(c, bytes)| std::cmp::Reverse(size(*c, bytes)));
        for (column, bytes) in &values {
            if length <= LIMIT {
                break;
            }
            let before = packed.iter().find(|p| p.0 == *column).map_or(bytes.len(), |p| p.1.len());
            let pointer = toast::store(engine, tx, place, bytes, true)?;
            let mut value = vec![PACKED_TOAST];
            value.extend_from_slice(&pointer.encode());
            length -= before.saturating_sub(value.len());
            packed.retain(|p| p.0 != *column);
            packed.push((*column, value));
        }
    }
    if packed.is_empty() {
        return Ok(());
    }
    packed.sort_by_key(|p| p.0);
    table.codec.repack(row.view(), &packed, spare)?;
    std::mem::swap(row, spare);
    Ok(())
}

/// Deletes from the TOAST table what `old` has there and, if given, `new` has not.
pub fn forget(
    engine: &Engine,
    tx: &mut Transaction,
    table: &TableExec,
    old: RowView<'_>,
    new: Option<RowView<'_>>,
) -> Result<()> {
    let Some(place) = table.heap.toast else { return Ok(()) };
    let kept = match new {
        Some(new) => table.codec.long_values(new)?,
        None => Vec::new(),
    };
    for value in table.codec.long_values(old)? {
        let Some((&PACKED_TOAST, pointer)) = value.bytes.split_first() else { continue };
        let same = |k: &crate::row::LongValue<'_>| k.packed && k.bytes == value.bytes;
        if !value.packed || kept.iter().any(same) {
            continue;
        }
        let pointer = ToastPointer::decode(pointer).ok_or_else(corrupt)?;
        toast::delete(engine, tx, place, &pointer)?;
    }
    Ok(())
}
