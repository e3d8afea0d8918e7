//! Prepared transactions over restarts: what replay has found goes on, and what a checkpoint writes
//! so that replay finds it.

use super::{Entry, PreparedState, Stage, TwoPhaseError, rows};
use crate::engine::{Engine, LogLevel};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, Xid};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::txn::TxnSession;
use std::collections::{BTreeMap, BTreeSet};

/// The xids that run on after a restart.
pub(crate) fn xids_of(prepared: &BTreeMap<Xid, PreparedState>) -> BTreeSet<Xid> {
    let all = prepared.iter();
    all.flat_map(|(top, state)| state.children.iter().copied().chain([*top])).collect()
}

/// Brings back what replay has found, before anybody else can use the engine. Tells whether a
/// checkpoint has to write it down anew first (rule 2P7).
pub(crate) fn restore(engine: &Engine, prepared: BTreeMap<Xid, PreparedState>) -> Result<bool> {
    let mut restored = Vec::new();
    for (xid, state) in prepared {
        engine.options.log(LogLevel::Log, &format!("recovering prepared transaction {xid}"));
        let heir = TxnSession::with(&engine.txns, &engine.locks, 0);
        heir.owner().hold_xid(xid, true);
        state.children.iter().for_each(|child| heir.owner().hold_xid(*child, false));
        for (tag, mode) in &state.locks {
            if !engine.locks.try_acquire(heir.owner(), *tag, *mode) {
                let what = format!("prepared transactions hold conflicting locks on {tag}");
                return Err(StorageError::corrupt(what));
            }
        }
        engine.pending.restore(xid, &state.created, &state.dropped);
        rows::take_again(engine, &state.rows)?;
        restored.push((xid, state, heir));
    }
    // Only now: chains lead over rows that others of them have locked or changed.
    let mut moved = false;
    for (xid, mut state, heir) in restored {
        if !state.rows.is_empty() {
            let xids = state.children.iter().copied().chain([xid]).collect();
            state.rows = rows::to_write_down(engine, &heir, &xids)?;
            moved = true;
        }
        let entry = Entry::new(xid, state, heir, Stage::Waiting);
        entry.logged.store(true, Ordering::Release);
        engine.prepared.add(Arc::new(entry)).map_err(|e| match e {
            TwoPhaseError::Storage(error) => error,
            TwoPhaseError::Full(_) => StorageError::Resource {
                what: "maximum number of prepared transactions reached".to_owned(),
                hint: "Increase max_prepared_transactions.",
            },
            other => StorageError::corrupt(format!("prepared transaction {xid}: {other}")),
        })?;
    }
    Ok(moved)
}

/// Writes the records of what is prepared anew, behind a checkpoint's redo point (rule 2P4).
pub(crate) fn log_again(engine: &Engine) -> Result<()> {
    for entry in engine.prepared.all() {
        if !entry.logged.load(Ordering::Acquire) {
            // Its record will lie behind the redo point (rule 2P5).
            continue;
        }
        let record = entry.record();
        let room = engine.wal.reserve_essential(record.encoded_len())?;
        engine.txns.with_commit_mutex(|| {
            if !entry.ended.load(Ordering::Acquire)
                && engine.wal.insert(&record, room, Lsn::INVALID).is_err()
            {
                unreachable!("the redo point concerns records with pages only");
            }
        });
    }
    Ok(())
}
