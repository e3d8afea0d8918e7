//! What can have been read.

use crate::ids::{BlockNo, RelId, RowId};

/// What a SIREAD lock is on. Relations are named by their files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tag {
    /// All of a table or an index.
    Relation(RelId),
    /// A page of a table, or the range of keys of a leaf.
    Page(RelId, BlockNo),
    /// One row version.
    Tuple(RelId, RowId),
    /// One key of an index, by its hash: two keys with one hash conflict once too often.
    Key(RelId, u64),
}

impl Tag {
    pub const fn rel(self) -> RelId {
        match self {
            Tag::Relation(rel) | Tag::Page(rel, _) | Tag::Tuple(rel, _) | Tag::Key(rel, _) => rel,
        }
    }

    /// The lock on an index key.
    pub fn key(rel: RelId, key: &[u8]) -> Tag {
        // FNV-1a over words, then mixed: keys are short, and the table hashes it again.
        let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ key.len() as u64;
        let mut chunks = key.chunks_exact(8);
        for chunk in &mut chunks {
            let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        for byte in chunks.remainder() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        hash ^= hash >> 32;
        Tag::Key(rel, hash.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}
