//! Reading and writing the catalog relations: ordinary heap tuples, ordinary transactions.
//!
//! System relations have no indexes; they are small and read whole. What sessions need at every
//! statement comes from the snapshots of `cache.rs`, so nothing here is on a hot path.

use super::relations::SystemRelation;
use super::rows::CatalogRow;
use super::{CatalogSnapshot, load};
use crate::error::{Result, SqlError, State};
use crate::row::{EncodedRow, RowCodec};
use crate::types::{Datum, Oid, TypeRef};
use hashbrown::HashMap;
use inkling_storage::engine::Engine;
use inkling_storage::heap::{
    self, HeapRel, InsertOpts, PageScan, ReadCx, TupleResult, UpdateOpts, VisState,
};
use inkling_storage::ids::{Fork, RelId, RowId};
use inkling_storage::txn::{Snapshot, Transaction};
use std::sync::LazyLock;

/// The files of a system relation carry its OID as their number.
fn heap_rel(relation: &SystemRelation) -> HeapRel {
    HeapRel::new(RelId::new(relation.oid.0))
}

fn codec(relation: &'static SystemRelation) -> &'static RowCodec {
    static CODECS: LazyLock<HashMap<Oid, RowCodec>> = LazyLock::new(|| {
        let of = |r: &SystemRelation| {
            let columns: Vec<(TypeRef, bool)> =
                r.columns.iter().map(|c| (TypeRef::plain(c.ty), false)).collect();
            RowCodec::new(&columns)
        };
        super::relations::SYSTEM_RELATIONS.iter().map(|r| (r.oid, of(r))).collect()
    });
    CODECS.get(&relation.oid).expect("every system relation has a codec")
}

/// All rows of a system relation as the current command of `tx` sees them.
pub fn scan(
    engine: &Engine,
    tx: &mut Transaction,
    relation: &'static SystemRelation,
) -> Result<Vec<(RowId, CatalogRow)>> {
    let snapshot = tx.latest_snapshot();
    scan_as_of(engine, tx, snapshot, relation)
}

fn scan_as_of(
    engine: &Engine,
    tx: &Transaction,
    snapshot: Snapshot,
    relation: &'static SystemRelation,
) -> Result<Vec<(RowId, CatalogRow)>> {
    let state = VisState::passing();
    let cx = ReadCx::new(engine, tx, snapshot, &state);
    let rel = heap_rel(relation);
    let (codec, width) = (codec(relation), relation.columns.len());
    let mut page = PageScan::new();
    let mut rows = Vec::new();
    for block in 0..engine.pool.block_count(rel.rel, Fork::Main)? {
        heap::scan_page(engine, &cx, &rel, block, &mut page)?;
        for at in 0..page.len() {
            let Some(tuple) = page.tuple(at) else { continue };
            let mut values = vec![Datum::Null; width];
            codec.decode(tuple, width, &mut values)?;
            rows.push((page.row(at), CatalogRow::from_values(relation, values)));
        }
    }
    Ok(rows)
}

/// Inserts rows, each into its own relation.
pub fn insert(engine: &Engine, tx: &mut Transaction, rows: Vec<CatalogRow>) -> Result<()> {
    let mut rest = rows.as_slice();
    let mut at = Vec::new();
    while let Some(first) = rest.first() {
        let relation = first.relation();
        let run = rest.iter().take_while(|r| r.relation().oid == relation.oid).count();
        let encoded = rest[..run]
            .iter()
            .map(|row| EncodedRow::new(codec(relation), row.values()))
            .collect::<Result<Vec<_>>>()?;
        let bodies: Vec<_> = encoded.iter().map(EncodedRow::body).collect();
        at.clear();
        let opts = InsertOpts::default();
        heap::insert_many(engine, tx, &heap_rel(relation), &bodies, opts, &mut at)?;
        rest = &rest[run..];
    }
    Ok(())
}

/// Replaces the row at `at`.
pub fn update(engine: &Engine, tx: &mut Transaction, at: RowId, row: CatalogRow) -> Result<()> {
    let relation = row.relation();
    let encoded = EncodedRow::new(codec(relation), row.values())?;
    let opts = UpdateOpts { hot_ok: true, key_change: false };
    let result = heap::update(engine, tx, &heap_rel(relation), at, &encoded.body(), opts)?;
    written(result)
}

/// Deletes the row at `at`.
pub fn delete(
    engine: &Engine,
    tx: &mut Transaction,
    relation: &'static SystemRelation,
    at: RowId,
) -> Result<()> {
    written(heap::delete(engine, tx, &heap_rel(relation), at)?)
}

/// Locks on objects keep two transactions off one catalog row; should they meet all the same, the
/// later one fails, with PostgreSQL's words.
fn written<T>(result: TupleResult<T>) -> Result<()> {
    match result {
        TupleResult::Ok(_) => Ok(()),
        TupleResult::Deleted => {
            Err(SqlError::new(State::INTERNAL_ERROR, "tuple concurrently deleted"))
        }
        _ => Err(SqlError::new(State::INTERNAL_ERROR, "tuple concurrently updated")),
    }
}

/// Reads the catalog as the current command of `tx` sees it.
pub fn load_snapshot(
    engine: &Engine,
    tx: &mut Transaction,
    version: u64,
) -> Result<CatalogSnapshot> {
    let snapshot = tx.latest_snapshot();
    let mut rows = load::CatalogRows::default();
    for oid in load::LOADED {
        let relation = super::rows::system_relation(oid);
        let scanned = scan_as_of(engine, tx, snapshot, relation)?;
        rows.insert(oid, scanned.into_iter().map(|(_, row)| row).collect());
    }
    load::build(version, rows)
}
