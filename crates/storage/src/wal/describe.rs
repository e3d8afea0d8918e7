//! One readable line for a record, in the manner of `pg_waldump`.
//!
//! ```text
//! rmgr: Heap        len (rec/tot):     43/    43, tx:        740, lsn: 0/01000028, \
//!     desc: PAGE_CHANGE, blkref #0: rel 16385 blk 4 ops 3
//! ```
//!
//! The log does not know what operations and data mean; whoever does implements [`Describe`].

use super::record::{DecodedBlock, DecodedBody, DecodedRecord, RecordKind};
use crate::ids::{Fork, Lsn};
use crate::page::{PAGE_SIZE, PageClass};
use std::fmt::Write;

/// Puts words to what only other modules understand. `None`: say how long it is.
pub trait Describe {
    /// The operations on one page.
    fn ops(&self, class: PageClass, ops: &[u8]) -> Option<String> {
        let _ = (class, ops);
        None
    }

    /// A record's main data.
    fn data(&self, record: &DecodedRecord) -> Option<String> {
        let _ = record;
        None
    }
}

/// Knows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDetails;

impl Describe for NoDetails {}

/// The record in one line.
pub fn describe(record: &DecodedRecord) -> String {
    describe_with(record, &NoDetails)
}

/// The record in one line, with details from `details`.
pub fn describe_with(record: &DecodedRecord, details: &dyn Describe) -> String {
    let images: u32 = record.blocks.iter().filter(|b| is_image(b)).map(|b| b.stored_len).sum();
    let mut line = format!(
        "rmgr: {:<11} len (rec/tot): {:>6}/{:>6}, tx: {:>10}, lsn: {}, desc: {}",
        manager(record),
        record.total_len - images,
        record.total_len,
        record.xid,
        padded_lsn(record.start),
        operation(record.kind),
    );
    if record.flags != 0 {
        put(&mut line, format_args!(" flags {:#04x}", record.flags));
    }
    match details.data(record) {
        Some(words) => put(&mut line, format_args!(" {words}")),
        None if record.data.is_empty() => {}
        None => put(&mut line, format_args!(" data {}", record.data.len())),
    }
    for (i, block) in record.blocks.iter().enumerate() {
        put(&mut line, format_args!(", blkref #{i}: "));
        describe_block(&mut line, block, details);
    }
    line
}

fn put(line: &mut String, words: std::fmt::Arguments<'_>) {
    line.write_fmt(words).expect("a string takes every write");
}

fn describe_block(line: &mut String, block: &DecodedBlock, details: &dyn Describe) {
    let id = block.id;
    put(line, format_args!("rel {}", id.rel));
    if id.fork != Fork::Main {
        put(line, format_args!(" fork {}", &id.fork.suffix()[1..]));
    }
    put(line, format_args!(" blk {}", id.block));
    if block.init {
        put(line, format_args!(" init"));
    }
    match &block.body {
        DecodedBody::Image(_) => {
            let saved = (PAGE_SIZE as u32).saturating_sub(block.stored_len);
            put(line, format_args!(" FPW {} (saved {saved})", block.stored_len));
        }
        DecodedBody::Ops(ops) => match details.ops(block.class, ops) {
            Some(words) => put(line, format_args!(" {words}")),
            None => put(line, format_args!(" ops {}", ops.len())),
        },
    }
}

fn is_image(block: &DecodedBlock) -> bool {
    matches!(block.body, DecodedBody::Image(_))
}

/// Who replays the record, under the name that a reader of `pg_waldump` expects.
fn manager(record: &DecodedRecord) -> &'static str {
    match record.kind {
        RecordKind::PageChange => match record.blocks.first().map(|block| block.class) {
            Some(PageClass::Heap) => "Heap",
            Some(PageClass::BTree) => "Btree",
            Some(PageClass::Fsm) => "FreeSpace",
            Some(PageClass::Vm) => "Visibility",
            Some(PageClass::Sequence) => "Sequence",
            Some(PageClass::Free) | None => "Page",
        },
        RecordKind::Commit | RecordKind::Abort | RecordKind::Prepare => "Transaction",
        RecordKind::Checkpoint | RecordKind::NextXid | RecordKind::NextRel | RecordKind::Noop => {
            "XLOG"
        }
        RecordKind::RelCreate | RecordKind::RelUnlink | RecordKind::RelTruncate => "Storage",
    }
}

/// The record's kind as `pg_waldump` writes operations.
fn operation(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::PageChange => "PAGE_CHANGE",
        RecordKind::Commit => "COMMIT",
        RecordKind::Abort => "ABORT",
        RecordKind::Checkpoint => "CHECKPOINT",
        RecordKind::RelCreate => "CREATE",
        RecordKind::RelUnlink => "UNLINK",
        RecordKind::NextXid => "NEXTXID",
        RecordKind::NextRel => "NEXTREL",
        RecordKind::RelTruncate => "TRUNCATE",
        RecordKind::Noop => "NOOP",
        RecordKind::Prepare => "PREPARE",
    }
}

/// Positions line up in a dump.
fn padded_lsn(lsn: Lsn) -> String {
    format!("{:X}/{:08X}", lsn.raw() >> 32, lsn.raw() & 0xFFFF_FFFF)
}
