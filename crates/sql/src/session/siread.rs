//! What serializable transactions have read, as rows of `pg_locks`.
//!
//! A lock on an index key has no page or tuple: it shows as one of type `page` without a number.
//! Those of transactions that were summarised have no process.

use super::around::Around;
use crate::types::{Datum, Oid};
use hashbrown::HashMap;
use inkling_storage::ids::RelId;
use inkling_storage::ssi::{SireadView, Tag};

pub(super) fn locks(around: &Around) -> Vec<Vec<Datum>> {
    let views = around.db.engine.txns.ssi().list();
    if views.is_empty() {
        return Vec::new();
    }
    let catalog = around.catalog();
    let tables = catalog.tables.values().map(|table| (table.rel, table.oid));
    let indexes = catalog.indexes.values().map(|index| (index.rel, index.oid));
    let oids: HashMap<RelId, Oid> = tables.chain(indexes).collect();
    views.iter().map(|view| row(view, &oids)).collect()
}

fn row(view: &SireadView, oids: &HashMap<RelId, Oid>) -> Vec<Datum> {
    let rel = view.tag.rel();
    let mut row = vec![Datum::Null; 16];
    row[0] = Datum::text(match view.tag {
        Tag::Relation(_) => "relation",
        Tag::Page(..) | Tag::Key(..) => "page",
        Tag::Tuple(..) => "tuple",
    });
    row[1] = Datum::Oid(Oid::POSTGRES_DATABASE.0);
    // Files that a transaction has given up and not yet lost go by their number.
    row[2] = Datum::Oid(oids.get(&rel).map_or(rel.raw(), |oid| oid.0));
    if let Some(block) = view.block {
        row[3] = Datum::Int4(block as i32);
    }
    if let Tag::Tuple(_, at) = view.tag {
        row[4] = Datum::Int2(at.slot.raw() as i16);
    }
    row[11] = view.pid.map_or(Datum::Null, Datum::Int4);
    row[12] = Datum::text("SIReadLock");
    row[13] = Datum::Bool(true);
    row[14] = Datum::Bool(false);
    row
}
