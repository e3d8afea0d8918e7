//! VACUUM and ANALYZE of one table: the heap and its indexes, then what the planner is told.
//!
//! VACUUM resolves xids that are older than `vacuum_freeze_min_age` (FREEZE: all that it can), and
//! looks at all-visible pages too when the table's oldest is older than `vacuum_freeze_table_age`
//! or page skipping is disabled. What it left is noted in [`FrozenXids`].
//!
//! ANALYZE measures rows and pages; it keeps no column statistics, and the planner guesses the
//! rest.

use super::frozen::{self, FrozenXids};
use super::rows::system_relation;
use super::{TableDef, heap_rel, store};
use crate::analyze::statement::Vacuum;
use crate::error::Result;
use crate::types::{Datum, Oid};
use inkling_storage::btree::{self, BtreeRel};
use inkling_storage::engine::Engine;
use inkling_storage::heap::{self, PageScan, ReadCx, VacuumOpts, VacuumStats, VisState};
use inkling_storage::ids::{Fork, Xid};
use inkling_storage::txn::Transaction;

/// Pages that ANALYZE looks at, at most.
const SAMPLE_PAGES: u32 = 3000;

/// One VACUUM or ANALYZE.
pub struct Maintenance<'a> {
    pub statement: &'a Vacuum,
    /// The setting vacuum_freeze_min_age.
    pub freeze_min_age: u64,
    /// The setting vacuum_freeze_table_age.
    pub freeze_table_age: u64,
    pub frozen: FrozenXids,
    pub check_interrupt: &'a dyn Fn() -> Result<()>,
}

/// Carries out the statement on one table whose lock is held.
pub fn maintain(
    engine: &Engine,
    tx: &mut Transaction,
    table: &TableDef,
    how: &mut Maintenance<'_>,
) -> Result<()> {
    if how.statement.is_vacuum {
        vacuum(engine, table, how)?;
    }
    let rows = count_rows(engine, tx, table)?;
    let pages = engine.pool.block_count(table.rel, Fork::Main)?;
    remember(engine, tx, table, rows, pages)
}

fn vacuum(engine: &Engine, table: &TableDef, how: &mut Maintenance<'_>) -> Result<()> {
    // Before the first page is read.
    let bound = frozen::bound(engine);
    let min_age = if how.statement.freeze { 0 } else { how.freeze_min_age };
    let opts = VacuumOpts {
        freeze_below: Xid::new(engine.txns.floor().raw().saturating_sub(min_age)),
        aggressive: how.statement.freeze
            || how.statement.disable_page_skipping
            || how.frozen.age(engine, table.oid) >= how.freeze_table_age,
        ..VacuumOpts::default()
    };
    let left = |stats: &VacuumStats| match stats.oldest_left.is_valid() {
        true => stats.oldest_left.min(bound),
        false => bound,
    };
    let check_interrupt = how.check_interrupt;
    // The heap's callbacks have the storage layer's errors; an interrupt is remembered.
    let mut interrupted = None;
    let outcome = heap::vacuum(
        engine,
        &heap_rel(table),
        opts,
        &mut |dead| {
            for index in &table.indexes {
                let rel = BtreeRel::new(index.rel);
                btree::bulk_delete(engine, &rel, &|row| dead.contains(row))?;
            }
            Ok(())
        },
        &mut |_| match check_interrupt() {
            Ok(()) => Ok(()),
            Err(e) => {
                interrupted = Some(e);
                Err(inkling_storage::StorageError::Canceled)
            }
        },
    );
    let stats = match (interrupted, outcome) {
        (Some(e), _) => return Err(e),
        (None, outcome) => outcome?,
    };
    if stats.complete {
        how.frozen.note(table.oid, left(&stats));
    }
    if let Some((toast, _)) = table.toast {
        let rel = heap::HeapRel::new(toast);
        let stats = heap::vacuum(engine, &rel, opts, &mut |_| Ok(()), &mut |_| Ok(()))?;
        if stats.complete {
            how.frozen.note(Oid(toast.raw()), left(&stats));
        }
    }
    Ok(())
}

/// Rows that the transaction sees, from a sample of evenly spaced pages when there are many.
fn count_rows(engine: &Engine, tx: &mut Transaction, table: &TableDef) -> Result<f64> {
    let snapshot = tx.latest_snapshot();
    let state = VisState::passing();
    let cx = ReadCx::new(engine, tx, snapshot, &state);
    let rel = heap_rel(table);
    let blocks = engine.pool.block_count(table.rel, Fork::Main)?;
    let step = blocks.div_ceil(SAMPLE_PAGES).max(1);
    let (mut seen, mut rows) = (0u64, 0u64);
    let mut page = PageScan::new();
    for block in (0..blocks).step_by(step as usize) {
        heap::scan_page(engine, &cx, &rel, block, &mut page)?;
        rows += page.len() as u64;
        seen += 1;
    }
    if seen == 0 {
        return Ok(0.0);
    }
    Ok((rows as f64 / seen as f64 * f64::from(blocks)).round())
}

/// Writes the table's and its indexes' sizes to pg_class.
fn remember(
    engine: &Engine,
    tx: &mut Transaction,
    table: &TableDef,
    rows: f64,
    pages: u32,
) -> Result<()> {
    if table.system {
        return Ok(());
    }
    for (at, mut row) in store::scan(engine, tx, system_relation(Oid::PG_CLASS))? {
        let oid = row.get_oid("oid");
        let pages = if oid == table.oid {
            pages
        } else if let Some(index) = table.indexes.iter().find(|i| i.oid == oid) {
            engine.pool.block_count(index.rel, Fork::Main)?
        } else {
            continue;
        };
        let (new_pages, new_rows) = (Datum::Int4(pages as i32), Datum::Float4(rows as f32));
        if *row.get("relpages") != new_pages || *row.get("reltuples") != new_rows {
            row.put("relpages", new_pages);
            row.put("reltuples", new_rows);
            store::update(engine, tx, at, row)?;
        }
    }
    Ok(())
}
