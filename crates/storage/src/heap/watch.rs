//! Serializable writers: who has read what is about to change (rule R3 of `ssi`).
//!
//! Called with the page latched exclusively under which the change is made, before the first byte
//! changes: on an error nothing has happened.

use super::HeapRel;
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::RowId;
use crate::ssi::Tag;
use crate::txn::Transaction;

/// A new row: only who has read the whole table can have missed it here. Who looked for its keys
/// is met in the indexes.
#[inline]
pub(super) fn check_insert(e: &Engine, tx: &Transaction, h: &HeapRel) -> Result<()> {
    match tx.watched() {
        Some(sx) if h.watched => e.txns.ssi().write(&e.txns, sx, &[Tag::Relation(h.rel)], None),
        _ => Ok(()),
    }
}

/// A row version that is replaced or deleted.
#[inline]
pub(super) fn check_change(e: &Engine, tx: &Transaction, h: &HeapRel, row: RowId) -> Result<()> {
    match tx.watched() {
        Some(sx) if h.watched => {
            let tags = [Tag::Tuple(h.rel, row), Tag::Page(h.rel, row.block), Tag::Relation(h.rel)];
            // Inside a savepoint the write may be undone, and the read would be forgotten.
            let own = (tx.depth() == 1).then_some((h.rel, row));
            e.txns.ssi().write(&e.txns, sx, &tags, own)
        }
        _ => Ok(()),
    }
}
