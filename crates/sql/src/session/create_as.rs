//! CREATE TABLE AS and SELECT INTO: a table made from a query, then filled as INSERT would fill it.
//!
//! ```text
//!   lock what the query reads ──> make the table ──> portal runs INSERT INTO it ──> SELECT n
//! ```
//!
//! The filling is a plan like any other: it waits, is cancelled and fails as a statement does, and
//! the table goes with the transaction then.

use super::Session;
use super::api::{CommandTag, Progress, RowSink};
use super::portal::{Execution, Portal};
use super::utility::Pause;
use crate::analyze::bound::Insert;
use crate::analyze::statement::{
    ColumnSpec, CreateTable, CreateTableAs, Statement, TargetSchema, Utility,
};
use crate::catalog::TableDef;
use crate::error::{Result, SqlError};
use crate::exec::run::Running;
use crate::types;
use inkling_storage::lock::LockMode;
use std::sync::Arc;

impl Session {
    pub(super) fn create_table_as(
        &mut self,
        portal: &mut Portal,
        c: &CreateTableAs,
        sink: &mut dyn RowSink,
    ) -> Result<Progress> {
        self.ensure_transaction()?;
        self.check_may_write(if c.into { "SELECT INTO" } else { "CREATE TABLE AS" })?;
        let reads = self.plan_query(&Statement::Select(c.query.clone()))?;
        for (table, usage) in &reads.tables {
            if let Some(wait) = self.acquire(table.oid, super::run::lock_mode(*usage), false)? {
                return Ok(portal.wait_for_lock(wait));
            }
        }
        if self.catalog_is_stale() {
            return self.begin_statement(portal, sink, 0);
        }
        match self.define(&Utility::CreateTable(Box::new(definition(c))))? {
            Some(Pause::Lock(wait)) => return Ok(portal.wait_for_lock(wait)),
            Some(Pause::Stale) => return self.begin_statement(portal, sink, 0),
            None => {}
        }
        if !c.with_data {
            let tag = CommandTag::Plain("CREATE TABLE AS");
            portal.execution = Execution::Done(tag);
            return Ok(Progress::Complete(tag));
        }
        self.fill(portal, c, sink)
    }

    /// Makes the portal run the query into the new table.
    fn fill(
        &mut self,
        portal: &mut Portal,
        c: &CreateTableAs,
        sink: &mut dyn RowSink,
    ) -> Result<Progress> {
        let table = self.new_table(c)?;
        let insert = Insert {
            columns: table.columns.iter().map(|c| c.attnum).collect(),
            table: Arc::clone(&table),
            source: c.query.clone(),
            defaults: Vec::new(),
            on_conflict: None,
            returning: None,
            checks: Vec::new(),
        };
        let plan = Arc::new(self.plan_query(&Statement::Insert(insert))?);
        // Its maker's alone until the transaction ends.
        if self.acquire(table.oid, LockMode::AccessExclusive, false)?.is_some() {
            return Err(SqlError::internal("a table that nobody can see is locked"));
        }
        let snapshot = self.take_statement_snapshot()?;
        let params = std::mem::take(&mut portal.params);
        let running = self.with_env(|env| {
            Running::start(Arc::clone(&plan), params, snapshot, env).map(Box::new)
        })?;
        portal.fills_table = true;
        portal.execution = Execution::Running { plan, running, pending: false, rows: 0 };
        self.step_portal(portal, sink, 0)
    }

    fn new_table(&self, c: &CreateTableAs) -> Result<Arc<TableDef>> {
        let schema = match c.schema {
            TargetSchema::Named(schema) => Some(schema),
            TargetSchema::Temporary => self.around.temp_schemas().map(|temp| temp.main),
        };
        let catalog = self.around.catalog();
        let oid = schema.and_then(|schema| catalog.find_in_schema(schema, &c.name));
        let table = oid.and_then(|oid| catalog.table(oid)).cloned();
        table.ok_or_else(|| SqlError::internal("the new table is not in the catalog"))
    }
}

/// The table to be made: the query's columns, and nothing that the query's tables say of theirs.
fn definition(c: &CreateTableAs) -> CreateTable {
    let column = |column: &crate::analyze::bound::RangeColumn| ColumnSpec {
        name: column.name.clone(),
        ty: column.ty,
        collation: types::info(column.ty.oid).map_or(types::Oid::INVALID, |t| t.collation),
        not_null: false,
        default: None,
        sequence: None,
    };
    CreateTable {
        schema: c.schema,
        name: c.name.clone(),
        if_not_exists: false,
        persistence: c.persistence,
        columns: c.columns.iter().map(column).collect(),
        constraints: Vec::new(),
        indexes: Vec::new(),
        options: c.options.clone(),
        on_commit: c.on_commit,
    }
}
