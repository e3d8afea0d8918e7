//! Cutting the commit log: who says from where, and what has to be durable before files go.
//!
//! ```text
//!   vacuum resolves old xids ──> cut_clog(oldest, resolved_at) ──> noted
//!                                                                    │ late enough?
//!   checkpoint:  cut taken ─ redo point ─ lists ─ ... ─ record flushed ─ control file ─ files go
//! ```
//!
//! # Rules
//!
//! - K1. A checkpoint stands between the decision and the removal. Its redo point comes after every
//!   xid below the cut has ended, so no record that a later replay reads asks about one: not a
//!   commit, not the creator or the dropper of a file in the checkpoint's lists. (A dropper that
//!   had aborted and whose bits are gone would be taken for committed, and the file be removed.)
//!   It also writes every logged page that is dirty, so no writer is left with a copy from before
//!   the resolution, into which it could put a hint for an xid that nobody knows any more. (An
//!   unlogged page that is written like that is dirty still, and is not read from disk before it
//!   was written anew; after a crash it is gone.)
//! - K2. The log is flushed beyond `resolved_at` before anything goes, so a crash cannot bring back
//!   a page on which an xid below the cut is unresolved. The checkpoint's record lies behind it.
//! - K3. The control file names the new oldest xid, durably, before the first file goes. At start
//!   files below it are not read, and removed if a crash left some.
//! - K4. A cut that comes too early (rule C4 of `txn/`) stays noted; every checkpoint looks again.
//!   It is forgotten when the process ends: the next vacuum finds the same.

use super::checkpoint::checkpoint;
use crate::engine::{CheckpointKind, Engine, LogLevel};
use crate::error::Result;
use crate::ids::{Lsn, Xid};
use parking_lot::Mutex;

/// Everything below `oldest` was resolved when the log stood at `resolved_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub oldest: Xid,
    resolved_at: Lsn,
}

/// The cut that waits to be made.
#[derive(Default)]
pub(crate) struct PendingCut(Mutex<Option<Cut>>);

impl PendingCut {
    fn note(&self, cut: Cut) {
        let mut noted = self.0.lock();
        if noted.is_none_or(|before| before.oldest <= cut.oldest) {
            *noted = Some(cut);
        }
    }

    /// The cut that a checkpoint which begins now may make. Before its redo point (K1).
    pub(super) fn take(&self, engine: &Engine) -> Option<Cut> {
        let noted = (*self.0.lock())?;
        engine.txns.maintain(engine.wal.flushed());
        // What lies in the same file as a running transaction is kept anyway.
        let cut = Cut { oldest: noted.oldest.min(engine.txns.oldest_unsettled()), ..noted };
        let ready = engine.txns.clog().has_files_below(cut.oldest)
            && engine.txns.may_truncate_clog(cut.oldest, cut.resolved_at);
        ready.then_some(cut)
    }

    /// Makes the cut, when the checkpoint stands.
    pub(super) fn finish(&self, engine: &Engine, cut: Cut) {
        match engine.txns.truncate_clog(cut.oldest, cut.resolved_at) {
            Ok(_) => {
                let mut noted = self.0.lock();
                let rest = noted.filter(|n| engine.txns.clog().has_files_below(n.oldest));
                *noted = rest;
            }
            Err(e) => {
                // The control file says that they are not needed; the next start removes them.
                let message = format!("could not remove old commit log files: {e}");
                engine.options().log(LogLevel::Warning, &message);
            }
        }
    }
}

impl Engine {
    /// Every xid below `oldest` is resolved wherever it occurred, in every table of the directory;
    /// this was complete when the log stood at `resolved_at`. Gives up whole files of the commit
    /// log below, with a checkpoint. False: no whole file lies below, or a reader from before
    /// `resolved_at` is still there; then a later checkpoint does it.
    pub fn cut_clog(&self, oldest: Xid, resolved_at: Lsn) -> Result<bool> {
        if !self.txns.clog().has_files_below(oldest) {
            return Ok(false);
        }
        self.checkpoints.cut.note(Cut { oldest, resolved_at });
        if self.checkpoints.cut.take(self).is_none() {
            return Ok(false);
        }
        checkpoint(self, CheckpointKind::Immediate)?;
        Ok(!self.txns.clog().has_files_below(oldest))
    }
}
