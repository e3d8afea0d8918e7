//! The view `inkling_durability`: what each permanent table promises, and how that is kept.
//!
//! ```text
//!   relname | level | max_loss | last_commit_lsn | bytes_behind | ms_behind | missed | worst_late
//!   events  | async | 250 ms   | 0/1A2B3C8       |         4096 |      12.5 |      0 |          0
//! ```
//!
//! The figures come from the engine's ledger (`durability/` of the storage crate) and count since
//! the server was started and the table got its present files (TRUNCATE gives it new ones).

use super::around::Around;
use crate::catalog::{Persistence, RelationKind, TableDef};
use crate::types::{Datum, Interval};
use inkling_storage::durability::TableLevel;

fn millis(micros: u64) -> Datum {
    Datum::Float8(micros as f64 / 1000.0)
}

/// A row for every permanent table of users.
pub(super) fn tables(around: &Around) -> Vec<Vec<Datum>> {
    let permanent = |t: &&std::sync::Arc<TableDef>| {
        t.kind == RelationKind::Table && t.persistence == Persistence::Permanent && !t.system
    };
    around.catalog().tables.values().filter(permanent).map(|t| row(around, t)).collect()
}

fn row(around: &Around, table: &TableDef) -> Vec<Datum> {
    let db = &around.db;
    let level = around.catalog().levels.of(table.rel);
    let max_loss = match level {
        TableLevel::Async { max_loss_micros } => {
            let micros = max_loss_micros.unwrap_or(db.default_loss_micros) as i64;
            Datum::Interval(Interval { months: 0, days: 0, micros })
        }
        _ => Datum::Null,
    };
    let now = db.engine.clock().monotonic_micros();
    let known = db.engine.durability.look(table.rel, db.engine.wal.flushed(), now);
    vec![
        Datum::text(table.schema_name.as_str()),
        Datum::text(table.name.as_str()),
        Datum::Oid(table.oid.0),
        Datum::text(level.name()),
        max_loss,
        known.last_commit.map_or(Datum::Null, |lsn| Datum::Int8(lsn.raw() as i64)),
        Datum::Int8(known.bytes_behind as i64),
        millis(known.micros_behind),
        Datum::Int8(known.misses as i64),
        millis(known.worst_late_micros),
    ]
}
