//! Relation files and the transactions that they belong to.
//!
//! ```text
//!   create:  id ─> noted as pending ─> RelCreate record ─> file      abort: file removed
//!   drop:    noted as pending ─────────────────────> commit record ─> durable ─> file removed
//! ```
//!
//! Files cannot be rolled back by the log, so their fate is tied to a transaction: a created file
//! goes unless its creator commits, a dropped one only when the dropper's commit is durable. Both
//! kinds stay on a list, from before their record until the file is settled; a checkpoint carries
//! the list, so replay from its redo point knows files whose own records lie before it.
//!
//! A temporary relation's files are on no list and in no record: every start removes what there is
//! of them, so the session that made them may remove them without waiting for the log.

use super::Engine;
use super::options::LogLevel;
use crate::buffer::{Persistence, install_page};
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, Lsn, PageId, RelId, Xid};
use crate::page::Page;
use crate::recovery::{PendingFile, encode_create, encode_rel, encode_truncate};
use crate::txn::{Transaction, TxnManager, XidStatus};
use crate::wal::RecordKind;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The first id for relations that users make: PostgreSQL's first normal OID.
pub(crate) const FIRST_REL: RelId = RelId::new(16384);
/// Ids that one NextRel record covers.
const PREFETCH: u32 = 8192;

/// Hands out relation ids (and, for the layer above, every other object's).
pub(crate) struct RelIds(Mutex<Ids>);

struct Ids {
    next: u32,
    /// Ids below are covered by a record in the log.
    logged: u32,
}

impl RelIds {
    pub fn new(next: RelId) -> Self {
        let next = next.max(FIRST_REL).raw();
        RelIds(Mutex::new(Ids { next, logged: next }))
    }

    /// An upper bound of the ids handed out, for a checkpoint.
    pub fn bound(&self) -> RelId {
        let ids = self.0.lock();
        RelId::new(ids.next.max(ids.logged))
    }
}

/// Files whose fate a transaction decides.
#[derive(Default)]
pub(crate) struct PendingFiles {
    created: Mutex<HashMap<RelId, Xid>>,
    dropped: Mutex<HashMap<RelId, Xid>>,
}

impl PendingFiles {
    /// The lists as a checkpoint records them; what has been decided meanwhile leaves them.
    pub fn lists(&self, txns: &TxnManager) -> (Vec<PendingFile>, Vec<PendingFile>) {
        let mut created = self.created.lock();
        created.retain(|_, xid| txns.status(*xid).commit().is_none());
        let mut dropped = self.dropped.lock();
        dropped.retain(|_, xid| txns.status(*xid) != XidStatus::Aborted);
        let list = |map: &HashMap<RelId, Xid>| {
            let mut list: Vec<PendingFile> = map.iter().map(|(rel, xid)| (*rel, *xid)).collect();
            list.sort_unstable();
            list
        };
        (list(&created), list(&dropped))
    }

    /// Files whose fate is that of a transaction which has outlived a restart.
    pub fn restore(&self, xid: Xid, created: &[RelId], dropped: &[RelId]) {
        self.created.lock().extend(created.iter().map(|rel| (*rel, xid)));
        self.dropped.lock().extend(dropped.iter().map(|rel| (*rel, xid)));
    }

    fn settle(&self, rel: RelId) {
        self.created.lock().remove(&rel);
        self.dropped.lock().remove(&rel);
    }
}

impl Engine {
    /// An id that no relation file has, nor any other object that asked here.
    pub fn next_rel_id(&self) -> Result<RelId> {
        let mut ids = self.rel_ids.0.lock();
        loop {
            if ids.next == u32::MAX {
                let what = "relation ids are used up".to_owned();
                return Err(StorageError::Limit { what });
            }
            if ids.next >= ids.logged {
                let bound = ids.next.saturating_add(PREFETCH);
                let data = encode_rel(RelId::new(bound));
                self.log().insert(RecordKind::NextRel, Xid::INVALID, &data)?;
                ids.logged = bound;
            }
            let rel = RelId::new(ids.next);
            ids.next += 1;
            // A file that a crash left behind may bear an id whose NextRel record was lost.
            if !self.pool.rel_exists(rel) {
                return Ok(rel);
            }
        }
    }

    /// Makes an empty relation. Its files go if the transaction (or the savepoint) is rolled back.
    pub fn create_rel(&self, tx: &mut Transaction, persistence: Persistence) -> Result<RelId> {
        let rel = self.next_rel_id()?;
        self.create_rel_as(tx, rel, persistence)?;
        Ok(rel)
    }

    /// As [`Self::create_rel`], under an id that the caller has chosen (from
    /// [`Self::next_rel_id`], or below the first one that it hands out).
    pub fn create_rel_as(
        &self,
        tx: &mut Transaction,
        rel: RelId,
        persistence: Persistence,
    ) -> Result<()> {
        let xid = tx.xid(self)?;
        if persistence != Persistence::Temporary {
            self.pending.created.lock().insert(rel, xid);
        }
        let made = self.make_files(rel, persistence, xid);
        match made {
            Ok(()) => tx.note_created(rel),
            Err(_) => {
                // The record may be in the log; replay then makes the file and removes it again.
                if self.pool.unlink_rel(rel).is_ok() {
                    self.pending.created.lock().remove(&rel);
                }
            }
        }
        made
    }

    fn make_files(&self, rel: RelId, persistence: Persistence, xid: Xid) -> Result<()> {
        if self.pool.rel_exists(rel) {
            let what = format!("relation file \"base/{rel}\" exists already");
            return Err(StorageError::DataDirectory { what });
        }
        // The redo point does not pass between the record and the file: replay makes the file, or
        // the checkpoint makes its name durable.
        let _gate = self.redo_gate.read();
        if persistence != Persistence::Temporary {
            let data = encode_create(rel, persistence);
            let lsn = self.log().insert(RecordKind::RelCreate, xid, &data)?;
            if persistence == Persistence::Unlogged {
                // Its pages reach the disk without asking the log. A crash must not leave them in
                // files that replay has never heard of.
                self.wal.flush(lsn)?;
            }
        }
        self.pool.create_rel(rel, persistence)
    }

    /// An unlogged relation restarts after a crash from what it holds now (an empty index has its
    /// first pages). Before the creating transaction commits.
    pub fn keep_as_initial(&self, rel: RelId) -> Result<()> {
        let kept = self
            .pool
            .flush_rel(rel)
            .and_then(|()| self.pool.copy_main_to_init(rel, self.options.fsync));
        kept.inspect_err(|e| self.note_failure(e))
    }

    /// A copy of `from`'s pages in an empty relation, which may be of another persistence; a
    /// logged one's go to the log whole, so what a crash leaves of it follows the transaction like
    /// any other change. The caller has `from` locked against everybody, and calls `pause` to be
    /// interrupted.
    pub fn copy_rel(
        &self,
        tx: &mut Transaction,
        from: RelId,
        to: RelId,
        pause: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let xid = tx.xid(self)?;
        for fork in [Fork::Main, Fork::Fsm, Fork::Vm] {
            for block in 0..self.pool.block_count(from, fork)? {
                pause()?;
                let source = Page::clone(&*self.pool.share(PageId::new(from, fork, block))?);
                let target = match block < self.pool.block_count(to, fork)? {
                    true => self.pool.exclusive(PageId::new(to, fork, block))?,
                    false => self.pool.extend(to, fork)?,
                };
                // A page of zeros was never used. Nothing need say so: that is what files grow by.
                if !source.is_zeroed() {
                    install_page(self.log(), xid, target, &source)?;
                }
            }
        }
        Ok(())
    }

    /// Takes everything out of a temporary relation, at once and for good. Its session, which alone
    /// uses it, is not in the middle of anything.
    pub fn empty_temporary(&self, rel: RelId) -> Result<()> {
        debug_assert_eq!(self.pool.persistence(rel), Persistence::Temporary);
        self.heap.forget(rel);
        self.pool.empty_rel(rel)
    }

    /// The relation's files go when the transaction's commit is durable; a temporary one's at the
    /// commit, because a crash takes them too.
    pub fn drop_rel_at_commit(&self, tx: &mut Transaction, rel: RelId) -> Result<()> {
        let xid = tx.xid(self)?;
        if self.pool.persistence(rel) == Persistence::Temporary {
            tx.note_dropped_temporary(rel);
            return Ok(());
        }
        self.pending.dropped.lock().insert(rel, xid);
        tx.note_dropped(rel);
        Ok(())
    }

    /// Removes the files of relations that a durable commit dropped, or a rollback un-made. An
    /// error is reported, not returned: the transaction has ended. The next start tries again.
    pub fn remove_rels(&self, rels: &[RelId]) {
        for rel in rels {
            self.heap.forget(*rel);
            self.seqs.forget(*rel);
            match self.pool.unlink_rel(*rel) {
                Ok(()) => self.pending.settle(*rel),
                Err(e) => {
                    let message = format!("could not remove the files of relation {rel}: {e}");
                    self.options.log(LogLevel::Warning, &message);
                }
            }
        }
    }

    /// Gives the end of a fork back to the file system. The caller has the relation locked against
    /// everybody, and knows that nothing beyond `blocks` is needed by anyone.
    pub fn truncate_rel(&self, rel: RelId, fork: Fork, blocks: BlockNo) -> Result<()> {
        let _gate = self.redo_gate.read();
        if self.pool.persistence(rel).is_logged() {
            let data = encode_truncate(rel, fork, blocks);
            let lsn = self.log().insert(RecordKind::RelTruncate, Xid::INVALID, &data)?;
            // Cutting cannot be undone, so what says it comes first.
            self.wal.flush_patiently(lsn)?;
        }
        let cut = self.pool.truncate(rel, fork, blocks);
        if let Err(e) = &cut
            && self.pool.persistence(rel).is_logged()
        {
            // Replay will cut what is still long here: changes of its end, later in the log, would
            // speak of pages that are gone. There must not be any.
            self.wal.fail(StorageError::Poisoned { at: Lsn::INVALID, what: e.to_string() });
        }
        cut
    }
}
