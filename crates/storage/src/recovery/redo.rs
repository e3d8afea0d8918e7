//! Applying one record: pages by class, files, transaction ends, counters.

use super::records::{self, CheckpointData};
use super::{RecoveryStats, RedoTable};
use crate::buffer::{BufferPool, OpError, Persistence, replay_page};
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, Lsn, PageId, RelId, Xid};
use crate::page::Page;
use crate::twophase::PreparedState;
use crate::txn::{CommitLog, EndRecord};
use crate::wal::{BlockRef, BodyRef, RecordError, RecordKind, RecordRef};
use std::collections::{BTreeMap, HashMap};

/// Replay's memory of what it has seen.
pub(super) struct Replay<'a> {
    pub pool: &'a BufferPool,
    pub clog: &'a CommitLog,
    pub table: &'a RedoTable,
    pub next_xid: Xid,
    pub next_rel: RelId,
    /// Files whose creator's fate is not known yet.
    pub created: HashMap<RelId, Xid>,
    /// Files whose dropper's fate is not known yet.
    pub dropped: HashMap<RelId, Xid>,
    /// Pages that records speak of and that do not exist: of files dropped or cut later on.
    pub missing: BTreeMap<(RelId, u8, BlockNo), Lsn>,
    /// Transactions that were prepared and have not been ended.
    pub prepared: BTreeMap<Xid, PreparedState>,
    pub stats: RecoveryStats,
}

impl Replay<'_> {
    pub fn record(&mut self, record: RecordRef<'_>) -> Result<()> {
        let (xid, at) = (record.xid(), record.end());
        self.stats.records += 1;
        self.saw_xid(xid);
        let mut blocks = record.blocks();
        while let Some(block) = blocks.next_block().map_err(|e| malformed(&record, &e))? {
            self.block(&block, at)?;
        }
        let data = blocks.data();
        match record.kind() {
            RecordKind::Commit => {
                let end = self.end_record(xid, data)?;
                self.prepared.remove(&xid);
                self.clog.redo_commit(xid, &end, at)?;
                self.stats.commits += 1;
            }
            RecordKind::Abort => {
                let end = self.end_record(xid, data)?;
                self.prepared.remove(&xid);
                self.clog.redo_abort(xid, &end)?;
                self.stats.aborts += 1;
            }
            RecordKind::Prepare => {
                let state = PreparedState::decode(xid, data)?;
                state.children.iter().for_each(|child| self.saw_xid(*child));
                self.prepared.insert(xid, state);
            }
            RecordKind::RelCreate => {
                let (rel, persistence) = records::decode_create(data)?;
                self.saw_rel(rel);
                self.create(rel, persistence, xid)?;
            }
            RecordKind::RelUnlink => self.unlink(records::decode_rel("RelUnlink", data)?)?,
            RecordKind::RelTruncate => {
                let (rel, fork, blocks) = records::decode_truncate(data)?;
                self.truncate(rel, fork, blocks)?;
            }
            RecordKind::NextXid => {
                self.next_xid = self.next_xid.max(records::decode_xid(data)?);
            }
            RecordKind::NextRel => {
                self.next_rel = self.next_rel.max(records::decode_rel("NextRel", data)?);
            }
            RecordKind::Checkpoint => self.checkpoint(&CheckpointData::decode(data)?),
            RecordKind::PageChange | RecordKind::Noop => {}
        }
        Ok(())
    }

    fn saw_xid(&mut self, xid: Xid) {
        if xid.is_normal() {
            self.next_xid = self.next_xid.max(xid.next());
        }
    }

    fn saw_rel(&mut self, rel: RelId) {
        self.next_rel = self.next_rel.max(RelId::new(rel.raw().saturating_add(1)));
    }

    fn end_record(&mut self, xid: Xid, data: &[u8]) -> Result<EndRecord> {
        let end = crate::txn::decode_end_record(xid, data)?;
        for child in &end.children {
            self.saw_xid(*child);
        }
        for rel in &end.payload.unlinks {
            self.unlink(*rel)?;
        }
        Ok(end)
    }

    /// A checkpoint's lists speak of files whose own records may lie before the redo point. Later
    /// records about them follow, so nothing known is overwritten.
    fn checkpoint(&mut self, data: &CheckpointData) {
        self.next_xid = self.next_xid.max(data.next_xid);
        self.next_rel = self.next_rel.max(data.next_rel);
        for (rel, xid) in &data.created {
            self.created.entry(*rel).or_insert(*xid);
        }
        for (rel, xid) in &data.dropped {
            self.dropped.entry(*rel).or_insert(*xid);
        }
    }

    fn create(&mut self, rel: RelId, persistence: Persistence, xid: Xid) -> Result<()> {
        self.pool.replay_create_rel(rel, persistence)?;
        if xid.is_valid() {
            self.created.insert(rel, xid);
        }
        Ok(())
    }

    pub fn unlink(&mut self, rel: RelId) -> Result<()> {
        self.created.remove(&rel);
        self.dropped.remove(&rel);
        self.forget_missing(rel, None, 0);
        self.stats.files_removed += 1;
        self.pool.unlink_rel(rel)
    }

    fn truncate(&mut self, rel: RelId, fork: Fork, blocks: BlockNo) -> Result<()> {
        self.forget_missing(rel, Some(fork), blocks);
        self.pool.truncate(rel, fork, blocks)
    }

    fn forget_missing(&mut self, rel: RelId, fork: Option<Fork>, from: BlockNo) {
        self.missing.retain(|(r, f, block), _| {
            *r != rel || fork.is_some_and(|fork| fork as u8 != *f) || *block < from
        });
    }

    fn block(&mut self, block: &BlockRef<'_>, end: Lsn) -> Result<()> {
        let id = block.id;
        self.saw_rel(id.rel);
        match &block.body {
            BodyRef::Image(image) => {
                let mut guard = self.pool.overwrite(id)?;
                self.stats.images += 1;
                replay_page(&mut guard, end, |page| {
                    image.restore(page).map_err(|e| OpError::new(e.to_string()))
                })
            }
            BodyRef::Ops(ops) if block.init => {
                let mut guard = self.pool.overwrite(id)?;
                self.stats.changes += 1;
                replay_page(&mut guard, end, |page| {
                    page.bytes_mut().fill(0);
                    self.table.apply(block.class, ops, page)
                })
            }
            BodyRef::Ops(ops) => {
                if id.block >= self.pool.block_count(id.rel, id.fork)? {
                    self.missing.entry((id.rel, id.fork as u8, id.block)).or_insert(end);
                    return Ok(());
                }
                let mut guard = self.pool.exclusive(id)?;
                if guard.lsn() >= end {
                    self.stats.skipped += 1;
                    return Ok(());
                }
                self.stats.changes += 1;
                replay_page(&mut guard, end, |page| self.table.apply(block.class, ops, page))
            }
        }
        .map_err(|e| at_record(e, id, end))
    }

    /// Files that a transaction which did not commit (and is not prepared to) has left, and those
    /// that one which did commit has not got round to removing.
    pub fn remove_orphans(&mut self) -> Result<()> {
        let committed = |xid: &Xid| self.clog.settled_status(*xid).commit().is_some();
        let open = crate::twophase::xids_of(&self.prepared);
        let aborted = |xid: &Xid| !committed(xid) && !open.contains(xid);
        let mut doomed: Vec<RelId> =
            self.created.iter().filter(|(_, x)| aborted(x)).map(|(rel, _)| *rel).collect();
        doomed.extend(self.dropped.iter().filter(|(_, x)| committed(x)).map(|(rel, _)| *rel));
        doomed.sort();
        doomed.dedup();
        for rel in doomed {
            self.unlink(rel)?;
        }
        Ok(())
    }

    /// Every page that a record spoke of must exist by now, or its file be gone.
    pub fn check_missing(&self) -> Result<()> {
        let Some(((rel, fork, block), lsn)) = self.missing.first_key_value() else {
            return Ok(());
        };
        let fork = Fork::from_raw(*fork).unwrap_or(Fork::Main);
        let others = self.missing.len() - 1;
        Err(StorageError::corrupt_page(
            PageId::new(*rel, fork, *block),
            format!("the log changes it at {lsn}, but it does not exist ({others} more like it)"),
        ))
    }
}

fn malformed(record: &RecordRef<'_>, e: &RecordError) -> StorageError {
    let at = record.start();
    StorageError::corrupt(format!("log record at {at}: {e}"))
}

fn at_record(e: StorageError, id: PageId, end: Lsn) -> StorageError {
    match e {
        StorageError::Corrupt { page: None, what, .. } => {
            StorageError::corrupt_page(id, format!("could not replay the record at {end}: {what}"))
        }
        other => other,
    }
}

/// Applies a block's operations in replay; used with a page of the right class only.
pub(super) fn check_class(found: &Page, class: crate::page::PageClass) -> Result<(), String> {
    match found.class() {
        Some(have) if have == class || found.is_zeroed() => Ok(()),
        have => Err(format!("the page's class is {have:?}, the record's {class:?}")),
    }
}
