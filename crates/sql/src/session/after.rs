//! Running what statements leave to be done: checks of foreign and unique keys, cascades, at the
//! end of the statement, at COMMIT, and when SET CONSTRAINTS says so.
//!
//! ```text
//!   pull ... Done ──> run_due(statement) ──Wait──> the driver waits, steps again ──> run_due ...
//!                        │ None                                                        │
//!                        '──> the statement completes                                  v
//!   COMMIT ──> run_due(all) ──> commit                                     the same event goes on
//! ```
//!
//! One event at a time, in the order of the queue. Looking for a referenced row needs no plan
//! (`exec/references.rs`). Looking for referencing rows, and changing them, is an ordinary
//! statement: its plan is made once a session and constraint and kept, its operators too. It runs
//! with a snapshot of its own, and what it writes is queued behind what is queued already. Rules
//! A5 to A16 in `exec/README.md`.

use super::Session;
use super::prepared::{Bound, Prepared};
use super::run::Begun;
use crate::analyze::quote::quote_always;
use crate::analyze::statement::{ForeignAction, SetConstraints, Utility};
use crate::catalog::TableDef;
use crate::catalog::ddl::foreign;
use crate::error::{Result, Severity, SqlError, State};
use crate::exec::Step;
use crate::exec::after::Event;
use crate::exec::foreign::ForeignKey;
use crate::exec::key_check::{Found, KeyCheck};
use crate::exec::references::{self, Checked};
use crate::exec::run::Running;
use crate::exec::wait::Waiting;
use crate::plan::StatementPlan;
use crate::types::{Datum, Oid};
use hashbrown::HashMap;
use inkling_storage::ids::RowId;
use inkling_storage::lock::{LockMode, LockWait};
use inkling_storage::txn::IsolationLevel;
use inkling_storage::wait::WaitHandle;
use std::cell::RefCell;
use std::sync::Arc;

/// Statements kept; a session that meets more begins anew.
const KEPT: usize = 1000;

/// What is done to the rows that refer to a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Act {
    /// Is there one?
    Search,
    Delete,
    /// They follow to the new key.
    Follow,
    SetNull {
        deleted: bool,
    },
    SetDefault {
        deleted: bool,
    },
}

/// What the event in hand waits for, or runs.
enum Stage {
    Start,
    Locking(LockWait),
    Reference(Box<KeyCheck>),
    /// Is there another row with the old key?
    Replacement(Box<KeyCheck>),
    Acting(Act, Option<LockWait>),
    Running(Act, Box<Action>),
    Unique(Waiting),
}

struct Action {
    prepared: Arc<Prepared>,
    plan: Arc<StatementPlan>,
    running: Box<Running>,
}

/// An event being run.
struct Due {
    event: Event,
    stage: Stage,
}

struct Kept {
    prepared: Arc<Prepared>,
    /// The drain in which it was last found to be valid.
    valid_in: u64,
}

/// A session's part in what comes after statements.
#[derive(Default)]
pub(super) struct After {
    pub queue: RefCell<crate::exec::after::AfterQueue>,
    due: Option<Due>,
    kept: HashMap<(Oid, Act), Kept>,
    /// Counts drains.
    drain: u64,
    draining: bool,
    /// COMMIT has begun: should it fail, the transaction is over.
    pub committing: bool,
}

impl After {
    /// The transaction is over.
    pub fn clear(&mut self) {
        self.stop();
        self.queue.get_mut().clear();
        self.committing = false;
    }

    /// The statement failed, or is over.
    fn stop(&mut self) {
        self.due = None;
        self.draining = false;
    }

    /// Everything since the outermost of the innermost `levels` savepoints is undone.
    pub fn rollback_to(&mut self, levels: usize) {
        self.stop();
        self.queue.get_mut().rollback_to(levels);
    }
}

/// What going on with an event came to.
enum Gone {
    Done,
    /// On to this.
    Next(Stage),
    /// The same again after a wait.
    Wait(Stage, WaitHandle),
}

impl Session {
    /// Runs what is due at the end of a statement.
    pub(super) fn run_due(&mut self) -> Result<Option<WaitHandle>> {
        if !self.after.draining && !self.after.queue.get_mut().has_fresh() {
            return Ok(None);
        }
        self.drain(false)
    }

    /// Runs everything, put off or not: the transaction is to commit.
    pub(super) fn run_all_due(&mut self) -> Result<Option<WaitHandle>> {
        if !self.after.draining && !self.after.queue.get_mut().has_any() {
            return Ok(None);
        }
        self.drain(true)
    }

    /// The same, waiting in this thread.
    pub(super) fn settle_here(&mut self, all: bool) -> Result<()> {
        loop {
            let wait = if all { self.run_all_due()? } else { self.run_due()? };
            match wait {
                Some(handle) => self.block_on(&handle)?,
                None => return Ok(()),
            }
        }
    }

    /// What the end of a query string, or Sync, has to wait for before
    /// [`Session::finish_implicit`], which otherwise waits in the calling thread.
    pub fn settle(&mut self) -> Result<Option<WaitHandle>> {
        match self.block {
            super::block::Block::Implicit => self.run_all_due(),
            _ => Ok(None),
        }
    }

    fn drain(&mut self, all: bool) -> Result<Option<WaitHandle>> {
        if !self.after.draining {
            // What the statement wrote is there for what comes now.
            self.tx_mut()?.next_command()?;
            self.after.draining = true;
            self.after.drain += 1;
            self.after.queue.get_mut().begin_drain();
        }
        loop {
            self.around.cancel.check()?;
            let mut due = match self.after.due.take() {
                Some(due) => due,
                None => match self.after.queue.get_mut().next_due(all) {
                    Some(event) => Due { event, stage: Stage::Start },
                    None => break,
                },
            };
            loop {
                match self.go_on(&due.event, due.stage)? {
                    Gone::Done => break,
                    Gone::Next(stage) => due.stage = stage,
                    Gone::Wait(stage, handle) => {
                        due.stage = stage;
                        self.after.due = Some(due);
                        return Ok(Some(handle));
                    }
                }
            }
        }
        self.after.draining = false;
        Ok(None)
    }

    fn go_on(&mut self, event: &Event, stage: Stage) -> Result<Gone> {
        if let Stage::Locking(mut wait) = stage {
            return match wait.check().into_result()? {
                true => Ok(Gone::Next(Stage::Start)),
                false => {
                    let handle = wait.handle();
                    Ok(Gone::Wait(Stage::Locking(wait), handle))
                }
            };
        }
        match event {
            Event::Reference { key, row, values } => self.reference(key, *row, values, stage),
            Event::Removed { key, old, new } => self.removed(key, old, new.as_deref(), stage),
            Event::Unique { constraint, index, row, values } => {
                let mut waiting = match stage {
                    Stage::Unique(waiting) => waiting,
                    _ => Waiting::default(),
                };
                let of = (constraint.table, *index);
                let checked =
                    self.with_env(|env| references::only_one(env, &mut waiting, of, *row, values))?;
                Ok(match checked {
                    Checked::Fine => Gone::Done,
                    Checked::Wait(handle) => Gone::Wait(Stage::Unique(waiting), handle),
                })
            }
        }
    }

    /// A row refers to a key: the row that has it must be there, and stay.
    fn reference(
        &mut self,
        key: &ForeignKey,
        row: RowId,
        values: &[Datum],
        stage: Stage,
    ) -> Result<Gone> {
        let mut check = match stage {
            Stage::Reference(check) => check,
            _ => {
                if let Some(wait) = self.acquire(key.referenced, LockMode::RowShare, false)? {
                    let handle = wait.handle();
                    return Ok(Gone::Wait(Stage::Locking(wait), handle));
                }
                self.refresh_catalog()?;
                // Deleted or changed since: that left an event of its own, or none is needed.
                if !self.with_env(|env| references::is_live(env, key.def.table, row))? {
                    return Ok(Gone::Done);
                }
                Box::default()
            }
        };
        let checked =
            self.with_env(|env| references::referenced_row(env, &mut check, key, values))?;
        Ok(match checked {
            Checked::Fine => Gone::Done,
            Checked::Wait(handle) => Gone::Wait(Stage::Reference(check), handle),
        })
    }

    /// A key went from the referenced table.
    fn removed(
        &mut self,
        key: &ForeignKey,
        old: &[Datum],
        new: Option<&[Datum]>,
        stage: Stage,
    ) -> Result<Gone> {
        let deleted = new.is_none();
        match stage {
            Stage::Replacement(mut check) => {
                let found = self.with_env(|env| references::replacement(env, &mut check, key, old));
                Ok(match found? {
                    Found::Yes => Gone::Done,
                    Found::No => Gone::Next(Stage::Acting(Act::Search, None)),
                    Found::Wait(handle) => Gone::Wait(Stage::Replacement(check), handle),
                })
            }
            Stage::Acting(act, wait) => self.act(key, act, wait, (old, new)),
            Stage::Running(act, action) => self.acting(key, act, action, old),
            _ => Ok(Gone::Next(match key.action(deleted) {
                ForeignAction::NoAction => Stage::Replacement(Box::default()),
                ForeignAction::Restrict => Stage::Acting(Act::Search, None),
                ForeignAction::Cascade if deleted => Stage::Acting(Act::Delete, None),
                ForeignAction::Cascade => Stage::Acting(Act::Follow, None),
                ForeignAction::SetNull => Stage::Acting(Act::SetNull { deleted }, None),
                ForeignAction::SetDefault => Stage::Acting(Act::SetDefault { deleted }, None),
            })),
        }
    }

    /// Makes the statement ready that looks for the referencing rows or changes them.
    fn act(
        &mut self,
        key: &ForeignKey,
        act: Act,
        wait: Option<LockWait>,
        (old, new): (&[Datum], Option<&[Datum]>),
    ) -> Result<Gone> {
        if let Some(mut wait) = wait
            && !wait.check().into_result()?
        {
            let handle = wait.handle();
            return Ok(Gone::Wait(Stage::Acting(act, Some(wait)), handle));
        }
        let prepared = self.kept_statement(key, act)?;
        let Bound::Planned(plan) = prepared.bound() else {
            return Err(SqlError::internal("a cascade without a plan"));
        };
        if let Begun::Wait(wait) = self.lock_tables(&prepared, &plan)? {
            let handle = wait.handle();
            return Ok(Gone::Wait(Stage::Acting(act, Some(wait)), handle));
        }
        // Planned anew, perhaps, once the locks were there.
        let Bound::Planned(plan) = prepared.bound() else {
            return Err(SqlError::internal("a cascade without a plan"));
        };
        let first = new.filter(|_| act == Act::Follow).unwrap_or_default();
        let params = [first, old].concat();
        let tx = self.tx_mut()?;
        let kept = tx.isolation() != IsolationLevel::ReadCommitted;
        let crosscheck = tx.snapshot().filter(|_| kept);
        let snapshot = tx.latest_snapshot();
        let mut running = match prepared.take_idle() {
            Some(mut running) => {
                self.with_env(|env| running.restart(params, snapshot, env))?;
                running
            }
            None => self.with_env(|env| {
                Running::start(Arc::clone(&plan), params, snapshot, env).map(Box::new)
            })?,
        };
        running.set_crosscheck(crosscheck);
        let action = Box::new(Action { prepared, plan, running });
        Ok(Gone::Next(Stage::Running(act, action)))
    }

    fn acting(
        &mut self,
        key: &ForeignKey,
        act: Act,
        mut action: Box<Action>,
        old: &[Datum],
    ) -> Result<Gone> {
        let step = self.with_env(|env| action.running.next(env)).map_err(|e| {
            match e.get_context().is_none() {
                true => e.context(format!("SQL statement \"{}\"", action.prepared.text())),
                false => e,
            }
        })?;
        match step {
            Step::Wait(handle) => return Ok(Gone::Wait(Stage::Running(act, action), handle)),
            Step::Row => {
                return Err(self.with_env(|env| Ok(references::still_referenced(env, key, old)))?);
            }
            Step::Done => {}
        }
        let Action { prepared, plan, running } = *action;
        prepared.keep_idle(&plan, running);
        if act != Act::Search {
            self.tx_mut()?.next_command()?;
        }
        Ok(match act {
            // The default may be the key that went.
            Act::SetDefault { .. } => Gone::Next(Stage::Replacement(Box::default())),
            _ => Gone::Done,
        })
    }

    /// The statement for an action: prepared when it is first needed, found valid once a drain.
    fn kept_statement(&mut self, key: &ForeignKey, act: Act) -> Result<Arc<Prepared>> {
        let drain = self.after.drain;
        let id = (key.def.oid, act);
        if let Some(kept) = self.after.kept.get_mut(&id) {
            let prepared = Arc::clone(&kept.prepared);
            if std::mem::replace(&mut kept.valid_in, drain) != drain {
                self.revalidate(&prepared)?;
            }
            return Ok(prepared);
        }
        let catalog = self.catalog()?;
        let tables = (catalog.table(key.def.table), catalog.table(key.referenced));
        let (Some(own), Some(parent)) = tables else {
            return Err(SqlError::internal("a table of the foreign key is gone"));
        };
        let sql = statement_text(key, act, own);
        let types: Vec<Oid> =
            key.referenced_columns.iter().map(|c| parent.columns[*c].ty.oid).collect();
        let types = if act == Act::Follow { [&types[..], &types[..]].concat() } else { types };
        let prepared = self.prepare_text(&sql, &types)?;
        if self.after.kept.len() >= KEPT {
            self.after.kept.clear();
        }
        let kept = Kept { prepared: Arc::clone(&prepared), valid_in: drain };
        self.after.kept.insert(id, kept);
        Ok(prepared)
    }

    /// SET CONSTRAINTS: what is not put off any more runs now.
    pub(super) fn set_constraints(&mut self, s: &SetConstraints) -> Result<Option<WaitHandle>> {
        self.ensure_transaction()?;
        if self.after.draining {
            return self.drain_modes();
        }
        if !self.in_longer_transaction() {
            let text = "SET CONSTRAINTS can only be used in transaction blocks";
            let warning = SqlError::new(State::NO_ACTIVE_SQL_TRANSACTION, text);
            self.notice(warning.severity(Severity::Warning));
        }
        let queue = self.after.queue.get_mut();
        queue.set_modes(&s.constraints, s.deferred);
        match !s.deferred && queue.has_any() {
            true => self.drain_modes(),
            false => Ok(None),
        }
    }

    fn drain_modes(&mut self) -> Result<Option<WaitHandle>> {
        let wait = self.drain(false)?;
        if wait.is_none() {
            self.end_statement(true)?;
        }
        Ok(wait)
    }

    /// A definition must not pull the table from under checks that are still to come.
    pub(super) fn check_nothing_pends(&self, utility: &Utility) -> Result<()> {
        let queue = self.after.queue.borrow();
        if !queue.has_any() {
            return Ok(());
        }
        let catalog = self.around.catalog();
        let refuse = |table: &TableDef| match queue.concerns(table.oid) {
            false => Ok(()),
            true => {
                let verb = match utility {
                    Utility::Truncate(_) => "TRUNCATE",
                    other => other.tag(),
                };
                let name = &table.name;
                let text =
                    format!("cannot {verb} \"{name}\" because it has pending trigger events");
                Err(SqlError::new(State::OBJECT_IN_USE, text))
            }
        };
        // A foreign key that goes takes what hangs on it from both of its tables.
        let refuse_tied = |table: Oid| {
            let mut tied = foreign::tied_to(catalog, table).into_iter();
            match tied.find(|oid| queue.concerns(*oid)).and_then(|oid| catalog.table(oid)) {
                None => Ok(()),
                Some(other) => {
                    let what = format!("cannot DROP TRIGGER \"{}\"", other.name);
                    let text = format!("{what} because it has pending trigger events");
                    Err(SqlError::new(State::OBJECT_IN_USE, text))
                }
            }
        };
        match utility {
            Utility::AlterTable(a) => refuse(&a.table),
            Utility::Truncate(t) => t.tables.iter().try_for_each(|t| refuse(t)),
            Utility::Drop(d) => {
                let mut tables = d.objects.iter().filter_map(|oid| catalog.table(*oid));
                tables.try_for_each(|t| refuse(t).and_then(|()| refuse_tied(t.oid)))
            }
            _ => Ok(()),
        }
    }
}

/// The text of an action, as PostgreSQL writes it: errors show it.
fn statement_text(key: &ForeignKey, act: Act, own: &TableDef) -> String {
    let name = |at: &usize| quote_always(&own.columns[*at].name);
    let table = format!("{}.{}", quote_always(&own.schema_name), quote_always(&own.name));
    let width = key.columns.len();
    let first = if act == Act::Follow { width } else { 0 };
    let each = |values: &dyn Fn(usize, &usize) -> String, columns: &[usize]| {
        let list: Vec<String> = columns.iter().enumerate().map(|(i, c)| values(i, c)).collect();
        list.join(", ")
    };
    let set = |value: &str, deleted: bool| {
        let some = deleted && !key.set_columns.is_empty();
        let columns = if some { &key.set_columns } else { &key.columns };
        each(&|_, c| format!("{} = {value}", name(c)), columns)
    };
    let conditions: Vec<String> = key
        .columns
        .iter()
        .enumerate()
        .map(|(i, c)| format!("${} OPERATOR(pg_catalog.=) {}", first + i + 1, name(c)))
        .collect();
    let conditions = conditions.join(" AND ");
    match act {
        Act::Search => {
            format!("SELECT 1 FROM ONLY {table} x WHERE {conditions} FOR KEY SHARE OF x")
        }
        Act::Delete => format!("DELETE FROM ONLY {table} WHERE {conditions}"),
        Act::Follow => {
            let list = each(&|i, c| format!("{} = ${}", name(c), i + 1), &key.columns);
            format!("UPDATE ONLY {table} SET {list} WHERE {conditions}")
        }
        Act::SetNull { deleted } => {
            format!("UPDATE ONLY {table} SET {} WHERE {conditions}", set("NULL", deleted))
        }
        Act::SetDefault { deleted } => {
            format!("UPDATE ONLY {table} SET {} WHERE {conditions}", set("DEFAULT", deleted))
        }
    }
}
