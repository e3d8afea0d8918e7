//! A page class for tests: 64 counters, and a log of who added what that must add up.
//!
//! ```text
//!   byte 48: 64 counters, u64 each       byte 1024: number of additions, u64
//! ```
//!
//! It takes the place of free-space maps in the redo table of an engine under test.

use crate::buffer::{CriticalSection, OpError, PageOp};
use crate::engine::testing::Sim;
use crate::engine::{CheckpointKind, Engine};
use crate::error::Result;
use crate::ids::{Fork, Lsn, PageId, RelId, Xid};
use crate::page::{Page, PageClass};
use crate::txn::{CommitMode, IsolationLevel, Transaction, TxnHost, TxnSession};
use std::sync::Arc;

pub const SLOTS: usize = 64;
const COUNTERS_AT: usize = 48;
const TOTAL_AT: usize = 1024;

pub enum ToyOp {
    Init,
    Add { slot: u8, delta: u64 },
}

impl PageOp for ToyOp {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ToyOp::Init => out.push(0),
            ToyOp::Add { slot, delta } => {
                out.extend_from_slice(&[1, *slot]);
                out.extend_from_slice(&delta.to_le_bytes());
            }
        }
    }

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        match self {
            ToyOp::Init => {
                if !page.is_zeroed() {
                    return Err("init of a page that is not zero".into());
                }
                page.init(PageClass::Fsm, 16);
                // Nothing of this class is between lower and upper.
                page.set_lower(page.upper());
            }
            ToyOp::Add { slot, delta } => {
                if page.class() != Some(PageClass::Fsm) || usize::from(*slot) >= SLOTS {
                    return Err("no such counter".into());
                }
                let at = COUNTERS_AT + 8 * usize::from(*slot);
                page.put_u64(at, page.u64_at(at).wrapping_add(*delta));
                page.put_u64(TOTAL_AT, page.u64_at(TOTAL_AT).wrapping_add(*delta));
            }
        }
        Ok(())
    }
}

pub fn redo(mut ops: &[u8], page: &mut Page) -> Result<(), OpError> {
    while let Some((kind, rest)) = ops.split_first() {
        let op = match kind {
            0 => {
                ops = rest;
                ToyOp::Init
            }
            1 => {
                let (body, rest) = rest.split_first_chunk::<9>().ok_or("cut short")?;
                ops = rest;
                let mut delta = [0; 8];
                delta.copy_from_slice(&body[1..]);
                ToyOp::Add { slot: body[0], delta: u64::from_le_bytes(delta) }
            }
            _ => return Err("unknown operation".into()),
        };
        op.apply(page)?;
    }
    Ok(())
}

/// A host whose engine replays toy pages.
pub fn sim(seed: u64, frames: usize) -> Sim {
    let mut sim = Sim::new(seed);
    sim.options = crate::engine::testing::options(frames);
    sim.options.redo = sim.options.redo.clone().with(PageClass::Fsm, redo);
    sim
}

pub fn counter(page: &Page, slot: u8) -> u64 {
    page.u64_at(COUNTERS_AT + 8 * usize::from(slot))
}

/// What a page's counters must satisfy whatever happened.
pub fn check(page: &Page) {
    let sum = (0..SLOTS as u8).fold(0u64, |sum, slot| sum.wrapping_add(counter(page, slot)));
    assert_eq!(sum, page.u64_at(TOTAL_AT), "counters and total of a page disagree");
}

/// Adds a page to the relation.
pub fn add_page(engine: &Engine, rel: RelId, xid: Xid) -> Result<PageId> {
    let guard = engine.pool.extend(rel, Fork::Main)?;
    let id = guard.id();
    let mut cs = CriticalSection::begin(engine.log(), xid)?;
    let at = cs.add_init(guard, PageClass::Fsm);
    cs.apply(at, &ToyOp::Init);
    cs.finish();
    Ok(id)
}

/// Adds to one counter on each of some pages, in one record.
pub fn add(engine: &Engine, xid: Xid, pages: &[PageId], slot: u8, delta: u64) -> Result<Lsn> {
    let mut sorted = pages.to_vec();
    sorted.sort_by_key(|id| (id.rel, id.block));
    sorted.dedup();
    let guards = sorted.iter().map(|id| engine.pool.exclusive(*id)).collect::<Result<Vec<_>>>()?;
    let mut cs = CriticalSection::begin(engine.log(), xid)?;
    for guard in guards {
        let at = cs.add(guard);
        cs.apply(at, &ToyOp::Add { slot, delta });
    }
    Ok(cs.finish().0)
}

pub fn read(engine: &Engine, id: PageId, slot: u8) -> u64 {
    let page = engine.pool.share(id).expect("the page is readable");
    check(&page);
    counter(&page, slot)
}

pub fn begin(engine: &Engine) -> Transaction {
    let session = TxnSession::new(engine, 1);
    Transaction::begin(&session, IsolationLevel::ReadCommitted, false)
}

/// Commits, waits for durability, removes what was dropped.
pub fn commit(engine: &Engine, tx: Transaction) -> Result<Option<Lsn>> {
    let outcome = tx.commit(engine, CommitMode::Sync)?;
    if let Some(lsn) = outcome.lsn {
        engine.wal.flush(lsn)?;
    }
    engine.unlink_rels(&outcome.unlinks);
    Ok(outcome.lsn)
}

pub fn checkpoint(engine: &Engine) {
    engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
}

/// The engine after a power failure of the given kind.
pub fn reopened(sim: &Sim, seed: u64) -> (Sim, Arc<Engine>) {
    let next = sim.crash(seed);
    let engine = next.open();
    (next, engine)
}
