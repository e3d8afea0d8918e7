//! VACUUM and ANALYZE of one table: the heap and its indexes, then what the planner is told.
//!
//! ANALYZE measures rows and pages; it keeps no column statistics, and the planner guesses the
//! rest.

use super::rows::system_relation;
use super::{TableDef, heap_rel, store};
use crate::analyze::statement::Vacuum;
use crate::error::Result;
use crate::types::{Datum, Oid};
use inkling_storage::btree::{self, BtreeRel};
use inkling_storage::engine::Engine;
use inkling_storage::heap::{self, PageScan, ReadCx, VacuumOpts, VisState};
use inkling_storage::ids::{Fork, Xid};
use inkling_storage::txn::Transaction;

/// Pages that ANALYZE looks at, at most.
const SAMPLE_PAGES: u32 = 3000;

/// Carries out the statement on one table whose lock is held.
pub fn maintain(
    engine: &Engine,
    tx: &mut Transaction,
    table: &TableDef,
    statement: &Vacuum,
    check_interrupt: &dyn Fn() -> Result<()>,
) -> Result<()> {
    if statement.is_vacuum {
        vacuum(engine, table, statement.freeze, check_interrupt)?;
    }
    let rows = count_rows(engine, tx, table)?;
    let pages = engine.pool.block_count(table.rel, Fork::Main)?;
    remember(engine, tx, table, rows, pages)
}

fn vacuum(
    engine: &Engine,
    table: &TableDef,
    freeze: bool,
    check_interrupt: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let opts = VacuumOpts {
        freeze_below: if freeze { engine.txns.floor() } else { Xid::INVALID },
        aggressive: freeze,
        ..VacuumOpts::default()
    };
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
    match (interrupted, outcome) {
        (Some(e), _) => return Err(e),
        (None, outcome) => outcome?,
    };
    if let Some((toast, _)) = table.toast {
        let toast = heap::HeapRel::new(toast);
        heap::vacuum(engine, &toast, opts, &mut |_| Ok(()), &mut |_| Ok(()))?;
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
