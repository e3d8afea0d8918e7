//! Statements without a plan: transaction control, settings, data definition, maintenance,
//! EXPLAIN, PREPARE and EXECUTE, cursors.

use super::api::{CommandTag, Progress, RowSink};
use super::block::Block;
use super::portal::{Execution, Portal};
use super::prepared::{Bound, SessionPlanEnv};
use super::run::read_only_error;
use super::{Session, copy, no_transaction, unknown_statement};
use crate::analyze::statement::{
    AlterTable, DeclareCursor, Discard, Execute, Explain, ExplainFormat, Fetch, FetchDirection,
    Lock, ParamTypes, Prepare, ResetTarget, SetVariable, ShowTarget, Statement, TransactionModes,
    Utility, Vacuum,
};
use crate::analyze::{self, bound::Expr};
use crate::catalog::TableDef;
use crate::catalog::ddl::{self, DdlContext, DdlHost, RowFn};
use crate::catalog::frozen::FrozenXids;
use crate::catalog::maintain::{self, Maintenance};
use crate::error::{Result, Severity, SqlError, State};
use crate::exec::Step;
use crate::exec::run::Running;
use crate::plan::{ExplainOptions, Summary};
use crate::settings::ChangeSource;
use crate::types::{Datum, Oid, TypeRef};
use inkling_storage::engine::CheckpointKind;
use inkling_storage::lock::{LockMode, LockResult, LockTag, LockWait};
use inkling_storage::wait::WaitHandle;
use std::sync::Arc;

/// Why a statement has to begin anew.
pub(super) enum Pause {
    /// When the lock is there.
    Lock(LockWait),
    /// At once: it has its locks, but was bound to an older catalog.
    Stale,
}

impl Session {
    pub(super) fn utility(
        &mut self,
        portal: &mut Portal,
        utility: &Arc<Utility>,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        if let Some(handle) = self.before_control(utility)? {
            return Ok(Progress::Wait(handle));
        }
        if let Some(done) = self.transaction_control(utility)? {
            return Ok(complete(portal, done));
        }
        match &**utility {
            Utility::Nothing { tag, notice } => {
                self.ensure_transaction()?;
                self.notice(notice.clone());
                Ok(complete(portal, tag))
            }
            Utility::Show(target) => {
                let (rows, types) = self.show(target)?;
                self.start_rows(
                    portal,
                    rows,
                    types,
                    Some(CommandTag::Plain("SHOW")),
                    sink,
                    max_rows,
                )
            }
            Utility::Explain(e) => {
                self.ensure_transaction()?;
                self.explain(portal, e, sink, max_rows)
            }
            Utility::Execute(e) => self.execute(portal, e, sink, max_rows),
            Utility::Fetch(f) => self.fetch(portal, f, sink),
            Utility::Copy(c) => {
                self.ensure_transaction()?;
                self.start_copy(portal, c, sink)
            }
            Utility::CreateTableAs(c) => self.create_table_as(portal, c, sink),
            other => match self.simple_utility(other)? {
                Some(Pause::Lock(wait)) => Ok(portal.wait_for_lock(wait)),
                Some(Pause::Stale) => self.begin_statement(portal, sink, max_rows),
                None => Ok(complete(portal, other.tag())),
            },
        }
    }

    /// What is due before the transaction commits, or because SET CONSTRAINTS says so; `Some`:
    /// wait, then the statement begins anew.
    fn before_control(&mut self, utility: &Utility) -> Result<Option<WaitHandle>> {
        match utility {
            Utility::Commit { .. } | Utility::PrepareTransaction(_)
                if matches!(self.block, Block::Open | Block::Implicit) =>
            {
                self.after.committing = true;
                let due = self.run_all_due();
                // Waiting, it may still be cancelled, and fails then.
                self.after.committing = matches!(due, Ok(Some(_)));
                if due.is_err() {
                    self.abort_transaction();
                }
                due
            }
            Utility::SetConstraints(s) => self.set_constraints(s),
            _ => Ok(None),
        }
    }

    /// BEGIN and its kin; the tag when it was one of them.
    fn transaction_control(&mut self, utility: &Utility) -> Result<Option<&'static str>> {
        match utility {
            Utility::Begin { modes, .. } => self.begin(*modes)?,
            Utility::Commit { chain } => {
                if !self.commit(*chain)? {
                    return Ok(Some("ROLLBACK"));
                }
            }
            Utility::Rollback { chain } => self.rollback(*chain)?,
            Utility::Savepoint(name) => self.savepoint(name)?,
            Utility::Release(name) => self.release_savepoint(name)?,
            Utility::RollbackTo(name) => self.rollback_to_savepoint(name)?,
            Utility::SetTransaction(modes) => {
                if self.block == Block::Idle {
                    self.ensure_transaction()?;
                }
                self.set_transaction(*modes)?;
            }
            Utility::SetSessionCharacteristics(modes) => self.set_characteristics(*modes)?,
            Utility::PrepareTransaction(name) => {
                if !self.prepare_transaction(name)? {
                    return Ok(Some("ROLLBACK"));
                }
            }
            Utility::CommitPrepared(name) => self.end_prepared(name, true)?,
            Utility::RollbackPrepared(name) => self.end_prepared(name, false)?,
            Utility::SetTransactionSnapshot(_) => {
                return Err(SqlError::unsupported(utility.tag()));
            }
            _ => return Ok(None),
        }
        Ok(Some(utility.tag()))
    }

    fn set_characteristics(&mut self, modes: TransactionModes) -> Result<()> {
        use crate::analyze::statement::IsolationLevel as Level;
        if let Some(level) = modes.isolation {
            let name = match level {
                Level::ReadUncommitted => "read uncommitted",
                Level::ReadCommitted => "read committed",
                Level::RepeatableRead => "repeatable read",
                Level::Serializable => "serializable",
            };
            self.set_plain("default_transaction_isolation", name, false)?;
        }
        if let Some(read_only) = modes.read_only {
            let value = if read_only { "on" } else { "off" };
            self.set_plain("default_transaction_read_only", value, false)?;
        }
        if let Some(deferrable) = modes.deferrable {
            let value = if deferrable { "on" } else { "off" };
            self.set_plain("default_transaction_deferrable", value, false)?;
        }
        Ok(())
    }

    fn set_plain(&mut self, name: &str, value: &str, local: bool) -> Result<()> {
        let in_transaction = self.tx.is_some();
        self.around.set(name, value, ChangeSource::Session, local, in_transaction)
    }

    /// Statements that give no rows. After a pause the statement begins anew.
    fn simple_utility(&mut self, utility: &Utility) -> Result<Option<Pause>> {
        match utility {
            // Carried out before.
            Utility::SetConstraints(_) => {}
            Utility::Set(v) => self.set_variable(v)?,
            Utility::Reset(target) => self.reset(target)?,
            Utility::Prepare(p) => self.prepare_sql(p)?,
            Utility::Deallocate(name) => self.deallocate(name.as_deref())?,
            Utility::DeclareCursor(c) => return self.declare(c),
            Utility::Close(name) => self.close_cursor(name.as_deref())?,
            Utility::Discard(what) => self.discard(*what)?,
            Utility::UnlistenAll => {}
            Utility::Lock(l) => return self.lock_table(l),
            Utility::Checkpoint => {
                self.around.db.engine.checkpoint(CheckpointKind::Immediate)?;
            }
            Utility::Vacuum(v) => return self.vacuum(v),
            _ => return self.define(utility),
        }
        Ok(None)
    }

    fn set_variable(&mut self, v: &SetVariable) -> Result<()> {
        self.ensure_transaction()?;
        if v.local && !self.in_longer_transaction() {
            self.notice(
                SqlError::new(
                    State::NO_ACTIVE_SQL_TRANSACTION,
                    "SET LOCAL can only be used in transaction blocks",
                )
                .severity(Severity::Warning),
            );
        }
        match (v.value(), v.name.as_str()) {
            (Some(value), "transaction_isolation") => self.set_isolation_by_name(&value),
            (Some(value), "transaction_read_only") => {
                let on = matches!(value.as_str(), "on" | "true" | "1" | "yes");
                self.set_transaction(TransactionModes {
                    read_only: Some(on),
                    ..TransactionModes::default()
                })
            }
            (Some(value), "transaction_deferrable") => {
                let on = matches!(value.as_str(), "on" | "true" | "1" | "yes");
                self.set_transaction(TransactionModes {
                    deferrable: Some(on),
                    ..TransactionModes::default()
                })
            }
            (Some(value), name) => self.set_plain(name, &value, v.local),
            (None, name) => {
                self.around.settings_mut().reset(name, true)?;
                self.around.refresh();
                Ok(())
            }
        }
    }

    fn set_isolation_by_name(&mut self, value: &str) -> Result<()> {
        use crate::analyze::statement::IsolationLevel as Level;
        let level = match value.to_ascii_lowercase().as_str() {
            "read uncommitted" => Level::ReadUncommitted,
            "read committed" => Level::ReadCommitted,
            "repeatable read" => Level::RepeatableRead,
            "serializable" => Level::Serializable,
            _ => {
                return Err(SqlError::new(
                    State::INVALID_PARAMETER_VALUE,
                    format!("invalid value for parameter \"transaction_isolation\": \"{value}\""),
                ));
            }
        };
        self.set_transaction(TransactionModes {
            isolation: Some(level),
            ..TransactionModes::default()
        })
    }

    fn reset(&mut self, target: &ResetTarget) -> Result<()> {
        self.ensure_transaction()?;
        match target {
            ResetTarget::Name(name) => self.around.settings_mut().reset(name, true)?,
            ResetTarget::All => self.around.settings_mut().reset_all(true)?,
        }
        self.around.refresh();
        Ok(())
    }

    fn show(&mut self, target: &ShowTarget) -> Result<(Vec<Vec<Datum>>, Vec<TypeRef>)> {
        let text = TypeRef::plain(Oid::TEXT);
        match target {
            ShowTarget::Name(name) => {
                let value = match (name.as_str(), self.tx.as_ref().map(|tx| tx.borrow())) {
                    ("transaction_isolation", Some(tx)) => {
                        super::block::isolation_name(tx.isolation()).to_owned()
                    }
                    ("transaction_isolation", None) => {
                        self.around.with_decoded(|d| d.default_isolation.clone())
                    }
                    ("transaction_deferrable", Some(tx)) => {
                        if tx.is_deferrable() { "on" } else { "off" }.to_owned()
                    }
                    ("transaction_read_only", Some(tx)) => {
                        if tx.is_read_only() { "on" } else { "off" }.to_owned()
                    }
                    _ => self.around.settings().show(name)?,
                };
                Ok((vec![vec![Datum::text(value)]], vec![text]))
            }
            ShowTarget::All => {
                let settings = self.around.settings();
                let rows = settings
                    .all()
                    .into_iter()
                    .map(|(def, value, ..)| {
                        let shown = crate::settings::format_value(def, &value);
                        vec![def.name, &shown, def.description]
                            .into_iter()
                            .map(Datum::text)
                            .collect()
                    })
                    .collect();
                Ok((rows, vec![text; 3]))
            }
        }
    }

    /// Makes `rows` the portal's result and begins to send them.
    pub(super) fn start_rows(
        &mut self,
        portal: &mut Portal,
        rows: Vec<Vec<Datum>>,
        types: Vec<TypeRef>,
        tag: Option<CommandTag>,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        portal.execution = Execution::Rows { rows: rows.into_iter(), types, tag, sent: 0 };
        self.step_portal(portal, sink, max_rows)
    }

    // --- prepared statements ---

    fn prepare_sql(&mut self, p: &Prepare) -> Result<()> {
        self.ensure_transaction()?;
        if self.statements.contains_key(&p.name) {
            return Err(SqlError::new(
                State::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{}\" already exists", p.name),
            ));
        }
        let params = ParamTypes::variable(p.types.clone());
        let prepared = self.prepare_parsed(Some(p.statement.clone()), params)?;
        self.statements.insert(p.name.clone(), prepared);
        Ok(())
    }

    fn deallocate(&mut self, name: Option<&str>) -> Result<()> {
        self.ensure_transaction()?;
        match name {
            None => self.statements.clear(),
            Some(name) if self.statements.remove(name).is_some() => {}
            Some(name) => return Err(unknown_statement(name)),
        }
        Ok(())
    }

    fn execute(
        &mut self,
        portal: &mut Portal,
        e: &Execute,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        let prepared = self.statement(&e.name)?;
        let args = self.around.with_bind_context(self.around.catalog(), |cx| {
            analyze::coerce_arguments(cx, e, prepared.params())
        })?;
        let catalog = self.around.catalog();
        let env = SessionPlanEnv::new(&self.around, catalog);
        let params = args
            .iter()
            .map(|a| crate::exec::eval_const(&env, a, &self.around, &portal.params))
            .collect::<Result<Vec<_>>>()?;
        let inner = Portal::new(prepared, params);
        if let Some(columns) = inner.columns() {
            sink.columns(columns)?;
        }
        portal.execution = Execution::Nested(Box::new(inner));
        self.step_portal(portal, sink, max_rows)
    }

    // --- cursors ---

    fn declare(&mut self, c: &DeclareCursor) -> Result<Option<Pause>> {
        if !self.in_longer_transaction() {
            return Err(SqlError::new(
                State::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        self.ensure_transaction()?;
        if c.hold {
            return Err(SqlError::unsupported("DECLARE CURSOR ... WITH HOLD"));
        }
        if c.binary {
            return Err(SqlError::unsupported("DECLARE ... BINARY CURSOR"));
        }
        if c.scroll == Some(true) {
            return Err(SqlError::unsupported("DECLARE ... SCROLL CURSOR"));
        }
        if self.portals.contains_key(&c.name) {
            return Err(SqlError::new(
                State::DUPLICATE_CURSOR,
                format!("cursor \"{}\" already exists", c.name),
            ));
        }
        let prepared = self.prepare_query(Statement::Select(c.query.clone()))?;
        let mut portal = Portal::new(Arc::new(prepared), Vec::new());
        portal.is_cursor = true;
        let Bound::Planned(plan) = portal.prepared.bound() else {
            return Err(SqlError::internal("a cursor's query has a plan"));
        };
        for (table, _) in &plan.tables {
            if let Some(wait) = self.acquire(table.oid, LockMode::AccessShare, false)? {
                return Ok(Some(Pause::Lock(wait)));
            }
        }
        let snapshot = self.take_statement_snapshot()?;
        let tx = self.tx_mut()?;
        // Held until the transaction ends, so that later statements cannot let it go.
        let _until_the_end = tx.hold_snapshot(snapshot);
        let running = self.with_env(|env| {
            Running::start(Arc::clone(&plan), Vec::new(), snapshot, env).map(Box::new)
        })?;
        portal.execution = Execution::Running { plan, running, pending: false, rows: 0 };
        self.portals.insert(c.name.clone(), portal);
        Ok(None)
    }

    fn fetch(
        &mut self,
        portal: &mut Portal,
        f: &Fetch,
        sink: &mut dyn RowSink,
    ) -> Result<Progress> {
        let count = match f.direction {
            FetchDirection::Forward(n) if n >= 0 => n as u64,
            FetchDirection::Relative(1) => 1,
            _ => {
                return Err(SqlError::new(
                    State::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    "cursor can only scan forward",
                )
                .hint("Declare it with SCROLL option to enable backward scan."));
            }
        };
        let mut cursor = self.portals.remove(&f.cursor).ok_or_else(|| {
            SqlError::new(
                State::INVALID_CURSOR_NAME,
                format!("cursor \"{}\" does not exist", f.cursor),
            )
        })?;
        if !f.is_move
            && let Some(columns) = cursor.columns()
        {
            sink.columns(columns)?;
        }
        let outcome = self.fetch_rows(&mut cursor, count, f.is_move, sink);
        self.portals.insert(f.cursor.clone(), cursor);
        let tag = match outcome? {
            Fetched::Rows(n) if f.is_move => CommandTag::Move(n),
            Fetched::Rows(n) => CommandTag::Fetch(n),
            Fetched::Wait(handle) => return Ok(Progress::Wait(handle)),
        };
        portal.execution = Execution::Done(tag);
        Ok(Progress::Complete(tag))
    }

    fn fetch_rows(
        &mut self,
        cursor: &mut Portal,
        count: u64,
        is_move: bool,
        sink: &mut dyn RowSink,
    ) -> Result<Fetched> {
        let mut sent = 0;
        while sent < count {
            let Execution::Running { running, .. } = &mut cursor.execution else { break };
            match self.with_env(|env| running.next(env))? {
                Step::Row => {}
                // Only a cursor over locked rows waits, and only before its first row.
                Step::Wait(handle) if sent == 0 => return Ok(Fetched::Wait(handle)),
                Step::Wait(handle) => {
                    handle.block();
                    continue;
                }
                Step::Done => {
                    cursor.execution = Execution::Done(CommandTag::Select(0));
                    break;
                }
            }
            if !is_move {
                sink.row(running.row(), &cursor.types, &self.around)?;
            }
            sent += 1;
        }
        Ok(Fetched::Rows(sent))
    }

    fn close_cursor(&mut self, name: Option<&str>) -> Result<()> {
        self.ensure_transaction()?;
        match name {
            None => self.portals.retain(|_, p| !p.is_cursor),
            Some(name) if self.portals.remove(name).is_some() => {}
            Some(name) => {
                return Err(SqlError::new(
                    State::INVALID_CURSOR_NAME,
                    format!("cursor \"{name}\" does not exist"),
                ));
            }
        }
        Ok(())
    }

    fn discard(&mut self, what: Discard) -> Result<()> {
        match what {
            Discard::All => {
                if self.block == Block::Open {
                    return Err(not_in_block("DISCARD ALL"));
                }
                self.portals.clear();
                self.statements.clear();
                self.cache.clear();
                self.around.sequences.discard();
                self.around.settings_mut().reset_all(false)?;
                self.around.refresh();
                let locks = &self.around.db.engine.locks;
                locks.release_session_locks(self.txn_session.owner());
                self.discard_temporary()?;
            }
            Discard::Plans => self.cache.clear(),
            Discard::Sequences => self.around.sequences.discard(),
            Discard::Temp => self.discard_temporary()?,
        }
        Ok(())
    }

    // --- locks, maintenance, data definition ---

    pub(super) fn acquire(
        &mut self,
        table: Oid,
        mode: LockMode,
        nowait: bool,
    ) -> Result<Option<LockWait>> {
        let tx = self.tx.as_ref().ok_or_else(no_transaction)?.borrow();
        let locks = &self.around.db.engine.locks;
        let tag = LockTag::Relation(table.0);
        if nowait {
            return match locks.try_acquire(tx.lock_owner(), tag, mode) {
                true => Ok(None),
                false => {
                    let catalog = self.around.catalog();
                    let name = catalog.table(table).map_or("?", |t| t.name.as_str());
                    Err(SqlError::new(
                        State::LOCK_NOT_AVAILABLE,
                        format!("could not obtain lock on relation \"{name}\""),
                    ))
                }
            };
        }
        match locks.acquire(tx.lock_owner(), tag, mode) {
            LockResult::Granted => Ok(None),
            LockResult::Wait(wait) => Ok(Some(wait)),
        }
    }

    fn lock_table(&mut self, l: &Lock) -> Result<Option<Pause>> {
        if !self.in_longer_transaction() {
            return Err(SqlError::new(
                State::NO_ACTIVE_SQL_TRANSACTION,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        self.ensure_transaction()?;
        use crate::analyze::statement::TableLockMode as T;
        let mode = match l.mode {
            T::AccessShare => LockMode::AccessShare,
            T::RowShare => LockMode::RowShare,
            T::RowExclusive => LockMode::RowExclusive,
            T::ShareUpdateExclusive => LockMode::ShareUpdateExclusive,
            T::Share => LockMode::Share,
            T::ShareRowExclusive => LockMode::ShareRowExclusive,
            T::Exclusive => LockMode::Exclusive,
            T::AccessExclusive => LockMode::AccessExclusive,
        };
        for table in &l.tables {
            if let Some(wait) = self.acquire(table.oid, mode, l.nowait)? {
                return Ok(Some(Pause::Lock(wait)));
            }
        }
        Ok(None)
    }

    fn vacuum(&mut self, v: &Vacuum) -> Result<Option<Pause>> {
        if v.is_vacuum && self.block == Block::Open {
            return Err(not_in_block("VACUUM"));
        }
        if v.full {
            return Err(SqlError::unsupported("VACUUM FULL"));
        }
        self.ensure_transaction()?;
        let catalog = self.catalog()?;
        let engine = Arc::clone(&self.around.db.engine);
        let age = |name: &str| {
            let value = self.around.settings().get(name);
            value.and_then(|v| v.parse::<u64>().ok()).unwrap_or_default()
        };
        let (min_age, table_age) = (age("vacuum_freeze_min_age"), age("vacuum_freeze_table_age"));
        let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
        let mut frozen = FrozenXids::load(&engine, tx)?;
        let targets: Vec<Arc<TableDef>> = match v.targets.is_empty() {
            false => v.targets.iter().map(|t| Arc::clone(&t.table)).collect(),
            true => {
                let plain = |t: &&Arc<TableDef>| {
                    t.kind == crate::catalog::RelationKind::Table && self.around.may_read_pages(t)
                };
                catalog.tables.values().filter(plain).cloned().collect()
            }
        };
        for table in targets {
            if let Some(wait) = self.acquire(table.oid, LockMode::ShareUpdateExclusive, false)? {
                return Ok(Some(Pause::Lock(wait)));
            }
            // As it is now that it is locked: an index made since must be vacuumed as well.
            let Some(table) = self.catalog()?.table(table.oid).cloned() else { continue };
            let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
            let around = &self.around;
            let mut how = Maintenance {
                statement: v,
                freeze_min_age: min_age,
                freeze_table_age: table_age,
                frozen,
                check_interrupt: &|| around.cancel.check(),
            };
            maintain::maintain(&engine, tx, &table, &mut how)?;
            frozen = how.frozen;
            tx.next_command()?;
        }
        if v.is_vacuum {
            let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
            let oldest = frozen.record(&engine, tx)?;
            // Before the commit's record: who has a snapshot from there on met no unresolved xid.
            self.clog_cut = oldest.map(|oldest| (oldest, engine.wal.inserted()));
        }
        self.finish_definition()?;
        Ok(None)
    }

    pub(super) fn define(&mut self, utility: &Utility) -> Result<Option<Pause>> {
        self.ensure_transaction()?;
        if self.tx.as_ref().is_some_and(|tx| tx.borrow().is_read_only()) {
            return Err(read_only_error(utility.tag()));
        }
        self.check_nothing_pends(utility)?;
        if !self.concerns_temporary(utility) {
            // Anybody's temporary views may stand in the way.
            self.around.db.catalog.tell_temporary();
        }
        let catalog = self.catalog()?;
        let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
        let engine = Arc::clone(&self.around.db.engine);
        if let Some(wait) = ddl::lock(&engine, tx, &catalog, utility)? {
            return Ok(Some(Pause::Lock(wait)));
        }
        if self.catalog_is_stale() {
            return Ok(Some(Pause::Stale));
        }
        match utility {
            Utility::AlterTable(a) if a.actions.iter().any(|x| ddl::fills(x).is_some()) => {
                self.alter_and_fill(a)?;
            }
            _ => self.carry_out(utility)?,
        }
        Ok(None)
    }

    /// ALTER TABLE with new columns whose values differ from row to row: they are filled as soon as
    /// they are there, since what follows (a primary key) may need them.
    fn alter_and_fill(&mut self, a: &AlterTable) -> Result<()> {
        let mut notices = a.notices.clone();
        let mut rest = a.actions.as_slice();
        while !rest.is_empty() {
            let filled = rest.iter().position(|x| ddl::fills(x).is_some());
            let (now, later) = rest.split_at(filled.map_or(rest.len(), |at| at + 1));
            let catalog = self.catalog()?;
            let table = catalog.table(a.table.oid).cloned();
            let table = table.ok_or_else(|| SqlError::internal("the altered table is gone"))?;
            let part = AlterTable {
                table: Arc::clone(&table),
                actions: now.to_vec(),
                notices: std::mem::take(&mut notices),
            };
            self.carry_out(&Utility::AlterTable(Box::new(part)))?;
            if let Some(column) = now.last().and_then(ddl::fills) {
                self.fill_column(&table, &column.name)?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Gives every row its own default of a new column.
    fn fill_column(&mut self, table: &TableDef, column: &str) -> Result<()> {
        let name = |text: &str| analyze::quote::quote_ident(text).into_owned();
        let sql = format!(
            "UPDATE {}.{} SET {} = DEFAULT",
            name(&table.schema_name),
            name(&table.name),
            name(column)
        );
        let mut parsed = self.parse_statements(&sql)?;
        let parsed = parsed.pop().ok_or_else(|| SqlError::internal("no statement"))?;
        let catalog = self.catalog()?;
        let mut params = ParamTypes::none();
        let statement = self
            .around
            .with_bind_context(&catalog, |cx| analyze::bind(cx, &parsed, &mut params))?;
        let plan = Arc::new(self.plan_query(&statement)?);
        let snapshot = self.take_statement_snapshot()?;
        let mut running = self.with_env(|env| Running::start(plan, Vec::new(), snapshot, env))?;
        loop {
            match self.with_env(|env| running.next(env))? {
                Step::Row => {}
                // Nobody else has the table.
                Step::Wait(handle) => handle.block(),
                Step::Done => break,
            }
        }
        self.settle_here(false)?;
        match table.persistence == crate::catalog::Persistence::Temporary {
            true => self.finish_temporary_definition(),
            false => self.finish_definition(),
        }
    }

    fn carry_out(&mut self, utility: &Utility) -> Result<()> {
        let temporary = self.concerns_temporary(utility);
        self.prepare_definition(utility)?;
        let catalog = Arc::clone(self.around.catalog());
        let engine = Arc::clone(&self.around.db.engine);
        let tx = self.tx.as_mut().ok_or_else(no_transaction)?.get_mut();
        let host = SessionDdlHost { around: &self.around };
        let mut cx = DdlContext {
            engine: &engine,
            tx,
            catalog,
            user: self.around.user,
            temp: self.around.temp_schemas(),
            host: &host,
            notices: Vec::new(),
        };
        let outcome = ddl::execute(&mut cx, utility);
        self.notices.append(&mut cx.notices);
        outcome?;
        match temporary {
            true => self.finish_temporary_definition()?,
            false => self.finish_definition()?,
        }
        self.note_definition(utility);
        Ok(())
    }

    /// The catalog has changed: this transaction reads its own version from now on.
    pub(super) fn finish_definition(&mut self) -> Result<()> {
        self.permanent_definition = true;
        self.finish_temporary_definition()
    }

    /// The same, when nothing but the session's temporary relations has changed.
    pub(super) fn finish_temporary_definition(&mut self) -> Result<()> {
        self.end_statement(true)?;
        self.reload_own_catalog()
    }

    // --- EXPLAIN ---

    fn explain(
        &mut self,
        portal: &mut Portal,
        e: &Explain,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        let started = std::time::Instant::now();
        let plan = Arc::new(self.plan_for_explain(&e.statement)?);
        let planning_ms = started.elapsed().as_secs_f64() * 1000.0;
        let options = ExplainOptions {
            analyze: e.analyze,
            costs: e.costs,
            timing: e.timing,
            summary: e.summary,
            buffers: false,
            json: e.format == ExplainFormat::Json,
        };
        refuse_explain(e)?;
        let mut summary = Summary { planning_ms, ..Summary::default() };
        let lines = if e.analyze {
            let started = std::time::Instant::now();
            let running = self.run_measured(&plan)?;
            summary.execution_ms = Some(started.elapsed().as_secs_f64() * 1000.0);
            crate::plan::explain(&plan, Some(running.execution()), options, summary)
        } else {
            crate::plan::explain(&plan, None, options, summary)
        };
        let rows = lines.into_iter().map(|l| vec![Datum::text(l)]).collect();
        let types = portal.types.to_vec();
        let tag = Some(CommandTag::Plain("EXPLAIN"));
        self.start_rows(portal, rows, types, tag, sink, max_rows)
    }
}

impl Session {
    /// Runs a plan to its end for EXPLAIN ANALYZE; its rows go nowhere.
    fn run_measured(&mut self, plan: &Arc<crate::plan::StatementPlan>) -> Result<Running> {
        for (table, usage) in &plan.tables {
            let mode = super::run::lock_mode(*usage);
            if self.acquire(table.oid, mode, false)?.is_some() {
                return Err(SqlError::new(
                    State::LOCK_NOT_AVAILABLE,
                    format!("could not obtain lock on relation \"{}\"", table.name),
                ));
            }
        }
        if self.catalog_is_stale() {
            let text = "a relation was changed while the statement was being explained";
            return Err(SqlError::new(State::LOCK_NOT_AVAILABLE, text).hint("Try again."));
        }
        let snapshot = self.take_statement_snapshot()?;
        let mut running =
            self.with_env(|env| Running::start_measured(Arc::clone(plan), snapshot, env))?;
        loop {
            match self.with_env(|env| running.next(env))? {
                Step::Row => {}
                Step::Wait(handle) => handle.block(),
                Step::Done => break,
            }
        }
        self.settle_here(false)?;
        self.end_statement(plan.kind != crate::plan::StatementKind::Select)?;
        Ok(running)
    }
}

/// Options of EXPLAIN whose output is not there.
fn refuse_explain(e: &Explain) -> Result<()> {
    let what = match e {
        Explain { verbose: true, .. } => "EXPLAIN option VERBOSE",
        Explain { buffers: true, .. } => "EXPLAIN option BUFFERS",
        Explain { wal: true, .. } => "EXPLAIN option WAL",
        Explain { settings: true, .. } => "EXPLAIN option SETTINGS",
        Explain { format: ExplainFormat::Xml | ExplainFormat::Yaml, .. } => {
            "EXPLAIN format XML or YAML"
        }
        _ => return Ok(()),
    };
    Err(SqlError::unsupported(what))
}

enum Fetched {
    Rows(u64),
    Wait(inkling_storage::wait::WaitHandle),
}

fn complete(portal: &mut Portal, tag: &'static str) -> Progress {
    let tag = CommandTag::Plain(tag);
    portal.execution = Execution::Done(tag);
    Progress::Complete(tag)
}

pub(super) fn not_in_block(what: &str) -> SqlError {
    SqlError::new(
        State::ACTIVE_SQL_TRANSACTION,
        format!("{what} cannot run inside a transaction block"),
    )
}

/// What data definition asks of the session.
pub(super) struct SessionDdlHost<'a> {
    pub around: &'a super::around::Around,
}

impl DdlHost for SessionDdlHost<'_> {
    fn compile(&self, expr: &Expr) -> Result<RowFn<'_>> {
        let catalog = self.around.catalog();
        let env = SessionPlanEnv::new(self.around, catalog);
        let compiled = crate::exec::compile_row_expr(&env, expr)?;
        Ok(Box::new(move |row: &[Datum]| compiled.eval(row, self.around)))
    }

    fn show(&self, value: &Datum, ty: Oid) -> String {
        crate::types::io::to_text(value, ty, self.around).to_string()
    }

    fn check_interrupt(&self) -> Result<()> {
        self.around.cancel.check()
    }

    fn functions(&self) -> &dyn crate::functions::FnContext {
        self.around
    }
}

impl Session {
    pub(super) fn start_copy(
        &mut self,
        portal: &mut Portal,
        c: &crate::analyze::statement::CopyTable,
        sink: &mut dyn RowSink,
    ) -> Result<Progress> {
        copy::start(self, portal, c, sink)
    }
}
