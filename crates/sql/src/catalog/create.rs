//! Making the catalog of a new data directory.
//!
//! One transaction writes the files and rows of the system relations, a second one the system
//! views, which are bound against the first one's result. A crash before the second has committed
//! leaves a directory that [`ensure`] completes at the next start.

use super::bootstrap;
use super::ddl::{DdlContext, DdlHost};
use super::relations::SYSTEM_RELATIONS;
use super::rows::system_relation;
use super::store;
use super::views::SYSTEM_VIEWS;
use crate::analyze::statement::Utility;
use crate::error::{Result, SqlError};
use crate::types::Oid;
use inkling_storage::buffer::Persistence;
use inkling_storage::engine::Engine;
use inkling_storage::ids::RelId;
use inkling_storage::txn::{CommitMode, IsolationLevel, Transaction, TxnSession};
use std::sync::Arc;

/// Writes the system relations when the directory has none yet; tells whether it did.
pub fn ensure_relations(engine: &Arc<Engine>) -> Result<bool> {
    let session = TxnSession::new(engine.as_ref(), 0);
    let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
    // One transaction writes all rows: if one is there, all are. A file proves nothing.
    let namespaces = store::scan(engine, &mut tx, system_relation(Oid::PG_NAMESPACE));
    if !matches!(&namespaces, Ok(rows) if rows.is_empty()) {
        tx.abort(engine.as_ref());
        return namespaces.map(|_| false);
    }
    let written = write_relations(engine, &mut tx);
    finish(engine, tx, written)?;
    Ok(true)
}

fn write_relations(engine: &Arc<Engine>, tx: &mut Transaction) -> Result<()> {
    for relation in SYSTEM_RELATIONS {
        let rel = RelId::new(relation.oid.0);
        // An attempt that a crash cut short may have left files.
        engine.pool.unlink_rel(rel)?;
        engine.create_rel_as(tx, rel, Persistence::Permanent)?;
    }
    let mut rows = bootstrap::rows();
    rows.sort_by_key(|row| row.relation().oid);
    store::insert(engine, tx, rows)
}

/// Commits what was written, or takes it back.
fn finish(engine: &Arc<Engine>, tx: Transaction, written: Result<()>) -> Result<()> {
    match written {
        Ok(()) => {
            // Nobody waits: a crash before the log's next flush makes the catalog anew.
            let _durable_soon =
                tx.commit(engine.as_ref(), CommitMode::Async { max_loss_micros: 0 })?;
            Ok(())
        }
        Err(e) => {
            tx.abort(engine.as_ref());
            Err(e)
        }
    }
}

/// What the session layer does for view creation: text to a bound CREATE VIEW, and the host.
pub trait ViewBinder {
    fn bind_view(
        &self,
        catalog: &super::CatalogSnapshot,
        schema: Oid,
        name: &str,
        query: &str,
    ) -> Result<Utility>;
    fn host(&self) -> &dyn DdlHost;
}

/// Writes the system views that are not there yet.
pub fn ensure_views(engine: &Arc<Engine>, binder: &dyn ViewBinder) -> Result<bool> {
    let session = TxnSession::new(engine.as_ref(), 0);
    let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
    let written = write_views(engine, &mut tx, binder);
    let any = matches!(written, Ok(true));
    finish(engine, tx, written.map(|_| ()))?;
    Ok(any)
}

fn write_views(
    engine: &Arc<Engine>,
    tx: &mut Transaction,
    binder: &dyn ViewBinder,
) -> Result<bool> {
    // The views read relations only, never each other, so one snapshot serves them all.
    let catalog = Arc::new(store::load_snapshot(engine, tx, 0)?);
    let mut any = false;
    for (schema_name, name, query) in SYSTEM_VIEWS {
        let schema = *catalog
            .schema_names
            .get(*schema_name)
            .ok_or_else(|| SqlError::internal(format!("schema {schema_name} is missing")))?;
        if catalog.find_in_schema(schema, name).is_some() {
            continue;
        }
        let statement = binder
            .bind_view(&catalog, schema, name, query)
            .map_err(|e| SqlError::internal(format!("system view {name}: {}", e.message())))?;
        let mut cx = DdlContext {
            engine,
            tx,
            catalog: Arc::clone(&catalog),
            user: Oid::BOOTSTRAP_ROLE,
            temp: None,
            host: binder.host(),
            notices: Vec::new(),
        };
        super::ddl::execute(&mut cx, &statement)?;
        any = true;
    }
    Ok(any)
}
