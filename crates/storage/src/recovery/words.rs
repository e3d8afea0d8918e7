//! Records in words, for people: the operations of each page class, and the data of the records
//! that this layer writes.

use super::records::{CheckpointData, decode_create, decode_rel, decode_truncate};
use crate::page::PageClass;
use crate::twophase::PreparedState;
use crate::wal::{DecodedRecord, Describe, RecordKind};
use crate::{btree, heap, seq};

/// What replay understands, for [`crate::wal::describe_with`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordWords;

impl Describe for RecordWords {
    fn ops(&self, class: PageClass, ops: &[u8]) -> Option<String> {
        match class {
            PageClass::Heap => Some(heap::ops::describe(ops)),
            PageClass::BTree => Some(btree::describe_ops(ops)),
            PageClass::Sequence => Some(seq::describe(ops)),
            _ => None,
        }
    }

    fn data(&self, record: &DecodedRecord) -> Option<String> {
        let data = &record.data;
        match record.kind {
            RecordKind::RelCreate => {
                decode_create(data).ok().map(|(rel, kind)| format!("rel {rel} {kind:?}"))
            }
            RecordKind::RelUnlink => {
                decode_rel("RelUnlink", data).ok().map(|rel| format!("rel {rel}"))
            }
            RecordKind::RelTruncate => decode_truncate(data)
                .ok()
                .map(|(rel, fork, blocks)| format!("rel {rel} {fork:?} to {blocks} blocks")),
            RecordKind::Prepare => {
                PreparedState::decode(record.xid, data).ok().map(|state| state.to_string())
            }
            RecordKind::Checkpoint => CheckpointData::decode(data).ok().map(|c| {
                format!(
                    "redo {}; next xid {}; oldest xid {}; next rel {}; {}",
                    c.redo,
                    c.next_xid,
                    c.oldest_xid,
                    c.next_rel,
                    if c.shutdown { "shutdown" } else { "online" }
                )
            }),
            _ => None,
        }
    }
}
