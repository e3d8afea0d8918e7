//! What serializable transactions have read of a table whose files change (rule G4 of `ssi`).
//!
//! Nobody else uses the table meanwhile: those who read it have ended, and only what outlives a
//! transaction's end is of interest here.

use super::DdlContext;
use crate::catalog::{Persistence, TableDef};
use crate::error::Result;
use inkling_storage::ids::RelId;

/// The table is about to lose all its rows: whoever has read it comes before this transaction.
pub(super) fn check_readers(cx: &DdlContext<'_>, table: &TableDef) -> Result<()> {
    let Some(sx) = cx.tx.watched() else { return Ok(()) };
    if table.persistence == Persistence::Temporary || table.rel == RelId::INVALID {
        return Ok(());
    }
    let txns = &cx.engine.txns;
    txns.ssi().write_all(txns, sx, table.rel)?;
    for index in &table.indexes {
        txns.ssi().write_all(txns, sx, index.rel)?;
    }
    Ok(())
}

/// The table has new files: who has read anything of it or by its indexes has read all of it.
pub(super) fn carry_readers(cx: &DdlContext<'_>, table: &TableDef, new: RelId) {
    let ssi = cx.engine.txns.ssi();
    ssi.carry_relation(table.rel, new);
    for index in &table.indexes {
        ssi.carry_relation(index.rel, new);
    }
}
