//! Serializable transactions in an index: what they look up, where they insert, and what becomes
//! of that when pages split or go (rules R2, R3, R5 and G3 of `ssi`).
//!
//! ```text
//!   exact look-up   the key, before the first latch        a split leaves it as it is
//!   range scan      each leaf visited, under its latch      a split copies it to the right page
//!   insertion       key, leaf, index, under the exclusive latch of the leaf that takes the entry
//! ```
//!
//! An entry's leaf is looked at before it is split for that entry, so the halves need no look.

use super::descend::Tree;
use super::node::Node;
use crate::error::Result;
use crate::ids::BlockNo;
use crate::ssi::{Sx, Tag};
use crate::txn::TxnManager;

/// Who is told.
#[derive(Clone, Copy)]
pub(super) struct Watch<'e> {
    pub txns: &'e TxnManager,
    /// A serializable transaction at work in an index that is watched.
    pub sx: Option<&'e Sx>,
}

impl<'e> Tree<'e> {
    #[inline]
    fn watched(&self) -> Option<(&'e TxnManager, &'e Sx)> {
        let watch = self.watch?;
        Some((watch.txns, watch.sx?))
    }

    /// All entries with this key, and that there are no others.
    #[inline]
    pub fn watch_key(&self, key: &[u8]) -> Result<()> {
        match self.watched() {
            Some((txns, sx)) => txns.ssi().read_key(sx, self.rel.rel, key),
            None => Ok(()),
        }
    }

    /// The range of a latched leaf.
    #[inline]
    pub fn watch_leaf(&self, block: BlockNo) -> Result<()> {
        match self.watched() {
            Some((txns, sx)) => txns.ssi().read(sx, Tag::Page(self.rel.rel, block)),
            None => Ok(()),
        }
    }

    /// An entry is about to be put on a latched leaf.
    #[inline]
    pub fn watch_insert(&self, leaf: BlockNo, key: &[u8]) -> Result<()> {
        let Some((txns, sx)) = self.watched() else { return Ok(()) };
        let rel = self.rel.rel;
        let tags = [Tag::key(rel, key), Tag::Page(rel, leaf), Tag::Relation(rel)];
        txns.ssi().write(txns, sx, &tags, None)
    }

    /// The upper part of a latched page goes to `right`, which nobody knows yet.
    #[inline]
    pub fn carry_split(&self, left: &Node<'_>, block: BlockNo, right: BlockNo) {
        if let Some(watch) = self.watch
            && left.is_leaf()
        {
            watch.txns.ssi().page_split(self.rel.rel, block, right);
        }
    }

    /// A latched, empty leaf leaves its range to its right sibling, latched as well.
    #[inline]
    pub fn carry_unlinked(&self, leaf: BlockNo, right: BlockNo) {
        if let Some(watch) = self.watch {
            watch.txns.ssi().page_unlinked(self.rel.rel, leaf, right);
        }
    }
}
