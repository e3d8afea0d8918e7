//! COPY: rows from the client into a table, and rows of a table or query to the client.
//!
//! ```text
//!   FROM STDIN:  CopyData bytes -> input.rs: lines and fields -> values -> bulk insert
//!   TO STDOUT:   plan's rows -> output.rs: one line a row -> CopyData
//! ```
//!
//! Text and CSV with PostgreSQL's options. Server-side files, programs and the binary format are
//! refused by name. Errors carry PostgreSQL's context, `COPY t, line 3, column b: "x"`.

mod input;
mod output;

pub(super) use input::CopyFrom;
pub(super) use output::CopyTo;

use super::Session;
use super::api::{CopyInfo, Progress, RowSink};
use super::portal::{Execution, Portal};
use crate::analyze::bound::{Expr, FromItem};
use crate::analyze::bound::{Query, RangeColumn, RangeEntry, RangeSource, Target, Var};
use crate::analyze::statement::{CopyEndpoint, CopyFormat, CopySource, CopyTable, Statement};
use crate::catalog::{ConstraintKind, Persistence};
use crate::error::{Result, SqlError};
use crate::exec::run::Running;
use inkling_storage::lock::LockMode;
use std::sync::Arc;

/// Begins a COPY.
pub(super) fn start(
    session: &mut Session,
    portal: &mut Portal,
    c: &CopyTable,
    sink: &mut dyn RowSink,
) -> Result<Progress> {
    match &c.endpoint {
        CopyEndpoint::Client => {}
        CopyEndpoint::File(_) => return Err(SqlError::unsupported("COPY with a server-side file")),
        CopyEndpoint::Program(_) => return Err(SqlError::unsupported("COPY ... PROGRAM")),
    }
    if c.format == CopyFormat::Binary {
        return Err(SqlError::unsupported("COPY format \"binary\""));
    }
    match c.from {
        true => start_from(session, portal, c, sink),
        false => start_to(session, portal, c, sink),
    }
}

fn start_from(
    session: &mut Session,
    portal: &mut Portal,
    c: &CopyTable,
    sink: &mut dyn RowSink,
) -> Result<Progress> {
    let CopySource::Table { table, columns } = &c.source else {
        return Err(SqlError::internal("COPY FROM needs a table"));
    };
    if table.persistence != Persistence::Temporary {
        session.check_may_write("COPY FROM")?;
    }
    if let Some(wait) = session.acquire(table.oid, LockMode::RowExclusive, false)? {
        let handle = wait.handle();
        portal.execution = Execution::Locking(wait);
        return Ok(Progress::Wait(handle));
    }
    let foreign = table.constraints.iter().filter_map(|k| match k.kind {
        ConstraintKind::Foreign { referenced, .. } => Some(referenced),
        _ => None,
    });
    for referenced in foreign {
        if let Some(wait) = session.acquire(referenced, LockMode::RowShare, false)? {
            let handle = wait.handle();
            portal.execution = Execution::Locking(wait);
            return Ok(Progress::Wait(handle));
        }
    }
    for (_, default) in &c.defaults {
        for sequence in crate::plan::walk::named_sequences(default) {
            if let Some(wait) = session.acquire(sequence, LockMode::RowExclusive, false)? {
                let handle = wait.handle();
                portal.execution = Execution::Locking(wait);
                return Ok(Progress::Wait(handle));
            }
        }
    }
    if session.catalog_is_stale() {
        return session.begin_statement(portal, sink, 0);
    }
    let info = CopyInfo { columns: columns.len(), binary: false };
    session.take_statement_snapshot()?;
    portal.execution = Execution::CopyIn(Box::new(
        session.with_plan_env(|env| CopyFrom::new(c, table, columns, env))?,
    ));
    Ok(Progress::CopyIn(info))
}

fn start_to(
    session: &mut Session,
    portal: &mut Portal,
    c: &CopyTable,
    sink: &mut dyn RowSink,
) -> Result<Progress> {
    let query = match &c.source {
        CopySource::Query(query) => query.clone(),
        CopySource::Table { table, columns } => table_query(table, columns),
    };
    let names: Vec<String> = query.targets.iter().map(|t| t.name.clone()).collect();
    let plan = Arc::new(session.plan_query(&Statement::Select(query))?);
    for (table, _) in &plan.tables {
        if let Some(wait) = session.acquire(table.oid, LockMode::AccessShare, false)? {
            let handle = wait.handle();
            portal.execution = Execution::Locking(wait);
            return Ok(Progress::Wait(handle));
        }
    }
    let snapshot = session.take_statement_snapshot()?;
    let types = plan.output.as_ref().map_or_else(Vec::new, |(_, types)| types.clone());
    sink.copy_out_begin(CopyInfo { columns: types.len(), binary: false })?;
    let running =
        session.with_env(|env| Running::start(plan, Vec::new(), snapshot, env).map(Box::new))?;
    portal.execution = Execution::CopyOut(Box::new(CopyTo::new(c, running, types, names)));
    session.step_portal(portal, sink, 0)
}

/// `select columns from table`.
fn table_query(table: &Arc<crate::catalog::TableDef>, columns: &[i16]) -> Query {
    let entry = RangeEntry {
        name: table.name.clone(),
        columns: table
            .columns
            .iter()
            .map(|c| RangeColumn { name: c.name.clone(), ty: c.ty, dropped: c.dropped })
            .collect(),
        source: RangeSource::Table(Arc::clone(table)),
    };
    let target = |attnum: &i16| {
        let c = &table.columns[*attnum as usize - 1];
        let var = Var { level: 0, rte: 0, col: attnum - 1, ty: c.ty };
        Target { expr: Expr::Var(var), name: c.name.clone(), origin: None }
    };
    Query {
        rtes: vec![entry],
        from: vec![FromItem::Rte(0)],
        targets: columns.iter().map(target).collect(),
        ..Query::default()
    }
}
