//! Row locks that a prepared transaction has in memory: the ones to write down, and their return.
//!
//! ```text
//!   at PREPARE      (0,3)  locked          S announced: what replaces (0,3) now is newer than S
//!   meanwhile       (0,3) -> (0,7) -> (5,1)     updates that the lock allows; all three locked
//!   after a crash   (0,3)  from the record, then along the chain: (0,7), (5,1)
//! ```
//!
//! See rule 2P7. A version that was replaced by a commit at or before S is left out: its successor
//! is in the list as well, and its own address may be another row's one day. So is one whose
//! inserter has not committed: its predecessor is in the list, and the chain leads to it if that
//! matters then.

use super::state::HeldRow;
use crate::engine::Engine;
use crate::error::Result;
use crate::heap::page;
use crate::ids::{Fork, PageId, RelId, RowId, Xid};
use crate::txn::{TxnSession, XidStatus};
use std::collections::BTreeSet;

/// What a version says about its place in the chain.
struct Version {
    xmin: Xid,
    /// Who replaced or deleted it; invalid when nobody did.
    xmax: Xid,
    next: Option<RowId>,
}

fn version(e: &Engine, rel: RelId, row: RowId) -> Result<Option<Version>> {
    if row.block >= e.pool.block_count(rel, Fork::Main)? {
        return Ok(None);
    }
    let page = e.pool.share(PageId::main(rel, row.block))?;
    let Some(t) = page::tuple(&page, row.slot) else { return Ok(None) };
    let base = page.base();
    let xmax = if t.is_lock_only() { Xid::INVALID } else { t.xmax(base) };
    Ok(Some(Version { xmin: t.xmin(base), xmax, next: t.next() }))
}

/// The row locks in memory of these xids, by addresses that stay right as long as `heir` lives.
/// Announces a snapshot in its name if there are any.
pub(super) fn to_write_down(
    e: &Engine,
    heir: &TxnSession,
    xids: &BTreeSet<Xid>,
) -> Result<Vec<HeldRow>> {
    if e.heap.row_locks.is_empty() {
        return Ok(Vec::new());
    }
    let snapshot = e.txns.snapshot(heir.slot());
    let mut rows = e.heap.row_locks.of(xids);
    let mut failed = None;
    rows.retain(|(rel, row, ..)| match is_anchor(e, *rel, *row, xids, snapshot.s) {
        Ok(keep) => keep,
        Err(error) => {
            failed.get_or_insert(error);
            false
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if rows.is_empty() {
        heir.slot().advance(None);
    }
    rows.sort_unstable_by_key(|(rel, row, xid, _)| (*rel, row.block, row.slot.raw(), *xid));
    Ok(rows)
}

/// Whether the chain is to be followed from this version.
fn is_anchor(
    e: &Engine,
    rel: RelId,
    row: RowId,
    xids: &BTreeSet<Xid>,
    s: crate::ids::Lsn,
) -> Result<bool> {
    let Some(v) = version(e, rel, row)? else { return Ok(false) };
    let here = !v.xmin.is_normal()
        || xids.contains(&v.xmin)
        || matches!(e.txns.status(v.xmin), XidStatus::Committed(_));
    let replaced =
        v.xmax.is_normal() && e.txns.status(v.xmax).commit().is_some_and(|stamp| stamp.lsn() <= s);
    Ok(here && !replaced)
}

/// Takes the row locks again, along the chains.
pub(super) fn take_again(e: &Engine, rows: &[HeldRow]) -> Result<()> {
    for (rel, first, xid, strength) in rows {
        let mut row = *first;
        let mut seen = BTreeSet::new();
        // A chain has no circle; a damaged one must not keep the start from ending.
        while seen.insert((row.block, row.slot.raw())) {
            let Some(v) = version(e, *rel, row)? else { break };
            e.heap.row_locks.restore(*rel, row, *xid, *strength);
            let replaced = v.xmax.is_normal() && e.txns.status(v.xmax) != XidStatus::Aborted;
            let Some(next) = v.next.filter(|_| replaced) else { break };
            match version(e, *rel, next)? {
                Some(successor) if successor.xmin == v.xmax => row = next,
                _ => break,
            }
        }
    }
    Ok(())
}
