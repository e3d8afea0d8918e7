//! One step of a portal: begin it, take relation locks, pull rows, complete.

use super::api::{CommandTag, Progress, RowSink};
use super::portal::{Execution, Portal};
use super::prepared::{Bound, Prepared};
use super::{Session, no_transaction};
use crate::analyze::statement::Utility;
use crate::catalog::Persistence;
use crate::error::{Result, SqlError, State};
use crate::exec::Step;
use crate::exec::run::Running;
use crate::plan::{StatementKind, StatementPlan, TableUse};
use inkling_storage::lock::{LockMode, LockResult, LockTag, LockWait};
use inkling_storage::wait::WaitHandle;
use std::sync::Arc;

/// What beginning a statement came to.
pub(super) enum Begun {
    Go,
    Wait(LockWait),
}

impl Session {
    /// Runs the portal until something is for the driver to do. After an error the driver calls
    /// [`Session::statement_failed`].
    pub fn step(&mut self, name: &str, sink: &mut dyn RowSink, max_rows: u64) -> Result<Progress> {
        let mut portal = self.portals.remove(name).ok_or_else(|| {
            SqlError::new(State::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
        })?;
        let progress = self.step_portal(&mut portal, sink, max_rows);
        if progress.is_ok() && self.keeps_portal(&portal, &progress) {
            self.portals.insert(name.to_owned(), portal);
        }
        progress
    }

    /// A completed portal stays until the transaction ends, so that executing it again says
    /// "0 rows" as PostgreSQL does; but the statement that ended the transaction took it along.
    fn keeps_portal(&self, _portal: &Portal, progress: &Result<Progress>) -> bool {
        !matches!(progress, Ok(Progress::Complete(_))) || self.tx.is_some()
    }

    pub(super) fn step_portal(
        &mut self,
        portal: &mut Portal,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        self.around.cancel.check()?;
        match &mut portal.execution {
            Execution::Ready => self.begin_statement(portal, sink, max_rows),
            Execution::Locking(wait) => match wait.check().into_result()? {
                true => {
                    portal.execution = Execution::Ready;
                    self.step_portal(portal, sink, max_rows)
                }
                false => Ok(Progress::Wait(wait.handle())),
            },
            Execution::Running { .. } => self.pull(portal, sink, max_rows),
            Execution::Finishing { .. } => self.complete_plan(portal),
            Execution::Rows { .. } => send_rows(&self.around, portal, sink, max_rows),
            Execution::CopyIn(copy) => self.copy_in_step(copy),
            Execution::CopyOut(_) => self.copy_out_step(portal, sink),
            Execution::Nested(inner) => self.step_portal(inner, sink, max_rows),
            Execution::Done(tag) => Ok(Progress::Complete(*tag)),
        }
    }

    pub(super) fn begin_statement(
        &mut self,
        portal: &mut Portal,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        let now = self.around.db.now();
        self.around.statement_start.set(now);
        self.around.waiting.reset();
        if self.block == super::block::Block::Failed && !portal.prepared.ends_transaction() {
            self.check_not_failed()?;
        }
        self.revalidate(&portal.prepared)?;
        if let Some(handle) = self.await_safe_snapshot(&portal.prepared.bound())? {
            return Ok(Progress::Wait(handle));
        }
        match portal.prepared.bound() {
            Bound::Empty => {
                portal.execution = Execution::Done(CommandTag::Empty);
                Ok(Progress::Complete(CommandTag::Empty))
            }
            Bound::Utility(utility) => self.utility(portal, &utility, sink, max_rows),
            Bound::Planned(plan) => {
                self.ensure_transaction()?;
                match self.lock_tables(&portal.prepared, &plan)? {
                    Begun::Wait(wait) => {
                        let handle = wait.handle();
                        portal.execution = Execution::Locking(wait);
                        Ok(Progress::Wait(handle))
                    }
                    Begun::Go => self.start_plan(portal, sink, max_rows),
                }
            }
        }
    }

    /// What a READ ONLY DEFERRABLE transaction waits for before the first statement that reads; the
    /// statement begins again after that.
    fn await_safe_snapshot(&mut self, bound: &Bound) -> Result<Option<WaitHandle>> {
        let reads = match bound {
            Bound::Planned(_) => true,
            Bound::Utility(utility) => matches!(
                **utility,
                Utility::Copy(_)
                    | Utility::DeclareCursor(_)
                    | Utility::Explain(_)
                    | Utility::CreateTableAs(_)
            ),
            Bound::Empty => false,
        };
        if !reads {
            return Ok(None);
        }
        self.ensure_transaction()?;
        Ok(self.tx_mut()?.await_safe_snapshot())
    }

    /// Takes the locks on the plan's tables; plans anew when the catalog changed before they
    /// were granted.
    pub(super) fn lock_tables(
        &mut self,
        prepared: &Prepared,
        plan: &StatementPlan,
    ) -> Result<Begun> {
        let tx = self.tx.as_ref().ok_or_else(no_transaction)?.borrow();
        let locks = &self.around.db.engine.locks;
        for (table, usage) in &plan.tables {
            let writes = matches!(usage, TableUse::LockRows | TableUse::Write);
            let temporary = table.persistence == Persistence::Temporary;
            if writes && tx.is_read_only() && !temporary {
                return Err(read_only(plan.kind));
            }
            let tag = LockTag::Relation(table.oid.0);
            match locks.acquire(tx.lock_owner(), tag, lock_mode(*usage)) {
                LockResult::Granted => {}
                LockResult::Wait(wait) => return Ok(Begun::Wait(wait)),
            }
        }
        drop(tx);
        if self.catalog_is_stale() {
            self.revalidate(prepared)?;
            if let Bound::Planned(plan) = prepared.bound() {
                // Usually the same tables, whose locks are held already.
                return self.lock_tables(prepared, &plan);
            }
        }
        Ok(Begun::Go)
    }

    fn start_plan(
        &mut self,
        portal: &mut Portal,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        let Bound::Planned(plan) = portal.prepared.bound() else {
            return Err(SqlError::internal("the statement changed its kind"));
        };
        let snapshot = self.take_statement_snapshot()?;
        let params = std::mem::take(&mut portal.params);
        let running = match portal.prepared.take_idle() {
            Some(mut running) => {
                self.with_env(|env| running.restart(params, snapshot, env))?;
                running
            }
            None => self.with_env(|env| {
                Running::start(Arc::clone(&plan), params, snapshot, env).map(Box::new)
            })?,
        };
        portal.execution = Execution::Running { plan, running, pending: false, rows: 0 };
        self.pull(portal, sink, max_rows)
    }

    fn pull(
        &mut self,
        portal: &mut Portal,
        sink: &mut dyn RowSink,
        max_rows: u64,
    ) -> Result<Progress> {
        let mut sent = 0;
        loop {
            let Execution::Running { running, pending, rows, .. } = &mut portal.execution else {
                return Err(SqlError::internal("the portal is not running"));
            };
            if max_rows > 0 && sent == max_rows {
                let snapshot = running.snapshot();
                if portal.held.is_none() && !portal.is_cursor {
                    portal.held = Some(self.tx_mut()?.hold_snapshot(snapshot));
                }
                return Ok(Progress::Suspended);
            }
            if sink.full() {
                return Ok(Progress::FlushRows);
            }
            if !std::mem::take(pending) {
                match self.with_env(|env| running.next(env))? {
                    Step::Row => {}
                    Step::Wait(handle) => return Ok(Progress::Wait(handle)),
                    Step::Done => break,
                }
            }
            if !portal.types.is_empty() || portal.prepared.columns().is_some() {
                sink.row(running.row(), &portal.types, &self.around)?;
                *rows += 1;
                sent += 1;
            }
        }
        let done = Execution::Done(CommandTag::Empty);
        if let Execution::Running { plan, running, rows, .. } =
            std::mem::replace(&mut portal.execution, done)
        {
            portal.execution = Execution::Finishing { plan, running, rows };
        }
        self.complete_plan(portal)
    }

    /// The plan has made its last row: what it leaves to be checked comes now, then the end.
    fn complete_plan(&mut self, portal: &mut Portal) -> Result<Progress> {
        if let Some(handle) = self.run_due()? {
            return Ok(Progress::Wait(handle));
        }
        let done = Execution::Done(CommandTag::Empty);
        let Execution::Finishing { plan, running, rows } =
            std::mem::replace(&mut portal.execution, done)
        else {
            return Err(SqlError::internal("the portal has not run"));
        };
        let count = running.processed();
        let tag = match plan.kind {
            StatementKind::Select => CommandTag::Select(rows),
            StatementKind::Insert if portal.fills_table => CommandTag::Select(count),
            StatementKind::Insert => CommandTag::Insert(count),
            StatementKind::Update => CommandTag::Update(count),
            StatementKind::Delete => CommandTag::Delete(count),
        };
        if !portal.is_cursor {
            portal.prepared.keep_idle(&plan, running);
        }
        if let Some(hold) = portal.held.take() {
            self.tx_mut()?.release_snapshot(hold);
        }
        self.end_statement(plan.kind != StatementKind::Select)?;
        // Executed again it has no more rows.
        let again = match tag {
            CommandTag::Select(_) => CommandTag::Select(0),
            other => other,
        };
        portal.execution = Execution::Done(again);
        Ok(Progress::Complete(tag))
    }

    /// Makes a statement's writes visible to the next one and gives back its snapshot.
    pub(super) fn end_statement(&mut self, wrote: bool) -> Result<()> {
        self.around.refresh();
        let has_cursors = self.portals.values().any(|p| p.is_cursor);
        let tx = self.tx_mut()?;
        if wrote {
            tx.next_command()?;
        }
        if !has_cursors {
            tx.end_statement();
        }
        Ok(())
    }
}

/// The lock that a statement takes on a table that it uses so.
pub(super) fn lock_mode(usage: TableUse) -> LockMode {
    match usage {
        TableUse::Read => LockMode::AccessShare,
        TableUse::LockRows => LockMode::RowShare,
        TableUse::Write | TableUse::Sequence => LockMode::RowExclusive,
    }
}

fn read_only(kind: StatementKind) -> SqlError {
    let verb = match kind {
        // A plain SELECT only reads: this one locks rows.
        StatementKind::Select => "SELECT FOR UPDATE",
        StatementKind::Insert => "INSERT",
        StatementKind::Update => "UPDATE",
        StatementKind::Delete => "DELETE",
    };
    read_only_error(verb)
}

pub(super) fn read_only_error(what: &str) -> SqlError {
    SqlError::new(
        State::READ_ONLY_SQL_TRANSACTION,
        format!("cannot execute {what} in a read-only transaction"),
    )
}

/// Sends rows that are there already.
fn send_rows(
    fx: &dyn crate::functions::FnContext,
    portal: &mut Portal,
    sink: &mut dyn RowSink,
    max_rows: u64,
) -> Result<Progress> {
    let Execution::Rows { rows, types, tag, sent } = &mut portal.execution else {
        return Err(SqlError::internal("the portal has no rows"));
    };
    let mut now = 0;
    loop {
        if max_rows > 0 && now == max_rows {
            return Ok(Progress::Suspended);
        }
        if sink.full() {
            return Ok(Progress::FlushRows);
        }
        let Some(row) = rows.next() else { break };
        sink.row(&row, types, fx)?;
        *sent += 1;
        now += 1;
    }
    let tag = tag.unwrap_or(CommandTag::Select(*sent));
    portal.execution = Execution::Done(tag);
    Ok(Progress::Complete(tag))
}
