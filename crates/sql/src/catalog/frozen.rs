//! How far the xids in each table are resolved, and what of the commit log that lets go.
//!
//! ```text
//!   vacuum of a table ──> pg_class.relfrozenxid     no unresolved xid below it is in the table
//!   smallest of all   ──> pg_database.datfrozenxid  ──after the commit──> Engine::cut_clog
//! ```
//!
//! # Rules
//!
//! - A table's xid is the smallest that vacuum left in it and in its TOAST table, each on its own
//!   row, and not above [`bound`] as it was before the first page was read: whoever writes to the
//!   table later, or did so on pages read already, has an xid from there on. It is known only when
//!   no page was skipped that may hold an unresolved xid.
//! - A new table starts with the bound of its creation. System, unlogged and temporary tables count
//!   like all others; one that nobody vacuums holds the commit log back.
//! - Tables whose creation is not committed are not seen and need not be: the creator runs, or ran
//!   when the smallest was looked for, so its xid and the table's are not below any bound.
//!
//! # Width
//!
//! Clients know xids of 32 bits, and so do the two columns; xids have 64. The upper half is put
//! back from the oldest xid of the commit log, below which no table has anything: of the xids
//! with the same lower half the smallest is taken that is not far below it. That is the true one
//! or an older one, never a newer one. The true one is missed when a table lies more than two
//! thousand million xids behind the oldest; what a statement itself found counts in full width.

use super::rows::{CatalogRow, system_relation};
use super::store;
use crate::error::Result;
use crate::types::{Datum, Oid};
use hashbrown::HashMap;
use inkling_storage::engine::Engine;
use inkling_storage::ids::{RowId, Xid};
use inkling_storage::lock::{LockMode, LockTag};
use inkling_storage::txn::Transaction;

const WRAP: u64 = 1 << 32;
/// How far below the oldest xid a row's may be: noted by a creator who has committed since.
const SLACK: u64 = 1 << 31;

/// Every xid below has ended, and nothing that is written from now on has one.
pub fn bound(engine: &Engine) -> Xid {
    engine.txns.floor().max(engine.txns.clog().oldest())
}

/// As the columns have it.
pub fn stored(xid: Xid) -> Datum {
    // The lowest numbers mean something else; a somewhat older xid is as true.
    let normal = if (xid.raw() % WRAP) < Xid::FIRST_NORMAL.raw() && xid.raw() >= WRAP {
        xid.raw() - Xid::FIRST_NORMAL.raw()
    } else {
        xid.raw()
    };
    Datum::Oid(normal as u32)
}

/// The xid that a column's value stands for, given the oldest in the commit log. `None`: none.
fn widened(value: &Datum, oldest: Xid) -> Option<Xid> {
    let Datum::Oid(low) = *value else { return None };
    if u64::from(low) < Xid::FIRST_NORMAL.raw() {
        return None;
    }
    let from = oldest.raw().saturating_sub(SLACK);
    let xid = from + u64::from(low.wrapping_sub(from as u32));
    Some(Xid::new(xid).max(oldest))
}

/// What the catalog says of all tables, and what a VACUUM finds out.
#[derive(Debug, Default)]
pub struct FrozenXids {
    tables: HashMap<Oid, Xid>,
    /// Found by this statement.
    found: HashMap<Oid, Xid>,
}

impl FrozenXids {
    /// As the current command of `tx` sees them.
    pub fn load(engine: &Engine, tx: &mut Transaction) -> Result<Self> {
        let oldest = engine.txns.clog().oldest();
        let rows = store::scan(engine, tx, system_relation(Oid::PG_CLASS))?;
        let tables = rows
            .iter()
            .filter(|(_, row)| has_rows(row))
            .filter_map(|(_, row)| {
                Some((row.get_oid("oid"), widened(row.get("relfrozenxid"), oldest)?))
            })
            .collect();
        Ok(FrozenXids { tables, found: HashMap::new() })
    }

    /// How many xids were handed out since those in the table were resolved.
    pub fn age(&self, engine: &Engine, table: Oid) -> u64 {
        let frozen = self.tables.get(&table).copied().unwrap_or(Xid::FIRST_NORMAL);
        engine.txns.next_xid().raw().saturating_sub(frozen.raw())
    }

    /// A vacuum left no unresolved xid below `frozen` in the table.
    pub fn note(&mut self, table: Oid, frozen: Xid) {
        self.found.insert(table, frozen);
    }

    /// Writes what was found to the catalog. Returns the smallest of all tables.
    pub fn record(&self, engine: &Engine, tx: &mut Transaction) -> Result<Option<Xid>> {
        let oldest = engine.txns.clog().oldest();
        let mut smallest: Option<Xid> = None;
        for (at, row) in store::scan(engine, tx, system_relation(Oid::PG_CLASS))? {
            if !has_rows(&row) {
                continue;
            }
            let oid = row.get_oid("oid");
            let before = widened(row.get("relfrozenxid"), oldest).unwrap_or(oldest);
            let mut frozen = before;
            // Other tables' rows are not ours to write: this statement has no lock on them.
            if let Some(found) = self.found.get(&oid) {
                // Where the column is too narrow, `before` is older than what was found.
                frozen = before.max(*found);
                advance(engine, tx, (at, row), "relfrozenxid", frozen)?;
            }
            smallest = Some(smallest.map_or(frozen, |s| s.min(frozen)));
        }
        if let Some(smallest) = smallest {
            record_database(engine, tx, smallest)?;
        }
        Ok(smallest)
    }
}

/// Whether a row of pg_class describes something with tuples in it.
fn has_rows(row: &CatalogRow) -> bool {
    matches!(row.get_char("relkind"), 'r' | 't' | 'm')
}

fn advance(
    engine: &Engine,
    tx: &mut Transaction,
    (at, mut row): (RowId, CatalogRow),
    column: &str,
    frozen: Xid,
) -> Result<()> {
    let new = stored(frozen);
    if *row.get(column) != new {
        row.put(column, new);
        store::update(engine, tx, at, row)?;
    }
    Ok(())
}

/// The database's own row, which all vacuums share: one that finds another at work on it leaves it
/// alone, and a later one catches up.
fn record_database(engine: &Engine, tx: &mut Transaction, smallest: Xid) -> Result<()> {
    let tag = LockTag::Object(Oid::PG_DATABASE.0, Oid::POSTGRES_DATABASE.0);
    let mode = LockMode::ShareUpdateExclusive;
    if !engine.locks.try_acquire(tx.lock_owner(), tag, mode) {
        return Ok(());
    }
    for row in store::scan(engine, tx, system_relation(Oid::PG_DATABASE))? {
        advance(engine, tx, row, "datfrozenxid", smallest)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(xid: u64, oldest: u64) -> u64 {
        widened(&stored(Xid::new(xid)), Xid::new(oldest)).expect("an xid").raw()
    }

    #[test]
    fn the_upper_half_comes_back() {
        for (xid, oldest) in [(3, 3), (77, 3), (WRAP - 1, WRAP - 9), (WRAP + 7, WRAP - 9)] {
            assert_eq!(there_and_back(xid, oldest), xid, "{xid}");
        }
        assert_eq!(there_and_back(5 * WRAP + 70, 5 * WRAP - 1_000_000), 5 * WRAP + 70);
        // The numbers that mean something else: a little older.
        assert_eq!(there_and_back(WRAP + 1, WRAP - 9), WRAP - 2);
    }

    #[test]
    fn what_cannot_be_told_apart_is_taken_as_the_older() {
        // Noted before the oldest moved on.
        assert_eq!(there_and_back(1_000, 5_000_000), 5_000_000);
        let far = 3 + WRAP - 5;
        assert!(there_and_back(far, 3) <= far);
        assert_eq!(there_and_back(2 * WRAP + 100, WRAP), WRAP + 100);
        assert_eq!(widened(&Datum::Oid(0), Xid::new(3)), None);
    }
}
