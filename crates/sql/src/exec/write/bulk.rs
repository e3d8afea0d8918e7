//! Bulk insertion for COPY: rows gathered into batches, one log record a page.
//!
//! ```text
//!   push ─ checks, encoding ─> batch ... full? ─> heap::insert_many ─> index entries of each row
//! ```
//!
//! A wait for a unique key's other writer blocks the calling thread, by way of the caller's
//! [`Block`]: whoever drives a COPY gives it a thread for that, and decides what interrupts it.

use super::{Entries, IndexWork, Target, duplicate, encode};
use crate::analyze::bound::Expr;
use crate::catalog::TableDef;
use crate::error::Result;
use crate::exec::ExecCx;
use crate::exec::after::{AfterQueue, Event};
use crate::exec::build::BuildEnv;
use crate::exec::expr::Ex;
use crate::exec::key_check::KeyCheck;
use crate::exec::references::{self, Checked};
use crate::exec::run::ExecEnv;
use crate::exec::table::TableExec;
use crate::plan::{self, PlanEnv};
use crate::row::EncodedRow;
use crate::types::Datum;
use inkling_storage::heap::{self, InsertOpts};
use inkling_storage::ids::RowId;
use inkling_storage::wait::WaitHandle;
use std::sync::Arc;

/// A batch is written when it has this many bytes ...
const BATCH_BYTES: usize = 64 << 10;
/// ... or this many rows.
const BATCH_ROWS: usize = 1000;

/// Rows on their way into one table.
pub struct BulkInsert {
    table: Arc<TableDef>,
    checks: Vec<(String, Ex)>,
    registers: usize,
    freeze: bool,
    target: Option<Target>,
    /// Encoded rows; those beyond `filled` are buffers.
    rows: Vec<EncodedRow>,
    filled: usize,
    bytes: usize,
    /// The rows' values, when indexes need them.
    values: Vec<Datum>,
    spare: EncodedRow,
}

/// Waits in the calling thread; an error ends the insertion.
pub type Block<'a> = &'a dyn Fn(&WaitHandle) -> Result<()>;

impl BulkInsert {
    /// `checks` are the table's CHECK conditions by name. `freeze`: COPY ... FREEZE.
    pub fn new(
        table: &Arc<TableDef>,
        checks: &[(String, Expr)],
        freeze: bool,
        env: &dyn PlanEnv,
    ) -> Result<Self> {
        let mut registers = table.columns.len();
        let mut compile = |(name, e): &(String, Expr)| {
            let (ex, needs) = plan::compile_row_expr(env, e)?;
            registers = registers.max(needs);
            Ok((name.clone(), ex))
        };
        let checks = checks.iter().map(&mut compile).collect::<Result<Vec<_>>>()?;
        Ok(BulkInsert {
            table: Arc::clone(table),
            checks,
            registers,
            freeze,
            target: None,
            rows: Vec::new(),
            filled: 0,
            bytes: 0,
            values: Vec::new(),
            spare: EncodedRow::default(),
        })
    }

    /// Takes a row; `values` has one for each column and is left as it was. `cx` is one of
    /// [`BulkInsert::context`], for any number of rows.
    pub fn push(
        &mut self,
        env: &ExecEnv<'_>,
        cx: &mut ExecCx<'_>,
        values: &mut Vec<Datum>,
        block: Block<'_>,
    ) -> Result<()> {
        if self.target.is_none() {
            let exec = env.table(&self.table)?;
            self.target = Some(Target::new(exec, 0, Vec::new(), None));
        }
        let Some(target) = &self.target else { return Ok(()) };
        let width = values.len();
        cx.regs = std::mem::take(values);
        cx.regs.resize(self.registers.max(width), Datum::Null);
        if self.rows.len() == self.filled {
            self.rows.push(EncodedRow::default());
        }
        let row = &mut self.rows[self.filled];
        let checked = check(target, &self.checks, cx, width).and_then(|()| {
            encode(cx.store()?, &target.table, &cx.regs[..width], row, &mut self.spare)
        });
        *values = std::mem::take(&mut cx.regs);
        values.truncate(width);
        checked?;
        if !target.table.indexes.is_empty() || target.table.watch.is_some() {
            self.values.extend_from_slice(values);
        }
        self.bytes += self.rows[self.filled].body().stored_len();
        self.filled += 1;
        if self.bytes >= BATCH_BYTES || self.filled >= BATCH_ROWS {
            self.write(env, cx, block)?;
        }
        Ok(())
    }

    /// Writes what is left.
    pub fn finish(&mut self, env: &ExecEnv<'_>, block: Block<'_>) -> Result<()> {
        let cx = Self::context(env)?;
        self.write(env, &cx, block)
    }

    /// What evaluating a row's checks and encoding it needs.
    pub fn context<'c>(env: &'c ExecEnv<'_>) -> Result<ExecCx<'c>> {
        let (snapshot, command) = {
            let mut tx = env.tx.borrow_mut();
            let snapshot = match tx.snapshot() {
                Some(snapshot) => snapshot,
                None => tx.statement_snapshot(),
            };
            (snapshot, tx.command_id())
        };
        Ok(ExecCx::new(env.fx, &[]).with_store(env.store(snapshot, command)))
    }

    fn write(&mut self, env: &ExecEnv<'_>, cx: &ExecCx<'_>, block: Block<'_>) -> Result<()> {
        let Some(target) = &mut self.target else { return Ok(()) };
        let table = Arc::clone(&target.table);
        let mut addresses = Vec::with_capacity(self.filled);
        {
            let bodies: Vec<_> = self.rows[..self.filled].iter().map(EncodedRow::body).collect();
            let opts = InsertOpts { freeze: self.freeze };
            let mut tx = env.tx.borrow_mut();
            heap::insert_many(env.engine, &mut tx, &table.heap, &bodies, opts, &mut addresses)?;
        }
        if !table.indexes.is_empty() {
            let store = *cx.store()?;
            let width = self.table.columns.len();
            let mut work = IndexWork::default();
            for (row, values) in addresses.iter().zip(self.values.chunks_exact(width)) {
                work.start(*row);
                loop {
                    match work.go_on(&store, cx, &table, values, &|_| true, &mut target.key)? {
                        Entries::Done => break,
                        Entries::Wait(handle) => block(&handle)?,
                        Entries::Duplicate(index) => {
                            return Err(duplicate(cx, &table, index, values));
                        }
                    }
                }
            }
        }
        self.check_keys(env, &table, &addresses, block)?;
        self.filled = 0;
        self.bytes = 0;
        self.values.clear();
        Ok(())
    }

    /// The foreign keys of a batch: checked now, so that a long COPY keeps no list of its rows,
    /// unless a later row may be what an earlier one refers to, or the check is put off.
    fn check_keys(
        &mut self,
        env: &ExecEnv<'_>,
        table: &TableExec,
        addresses: &[RowId],
        block: Block<'_>,
    ) -> Result<()> {
        let Some(watch) = &table.watch else { return Ok(()) };
        let width = self.table.columns.len();
        let mut queue = AfterQueue::default();
        for (row, values) in addresses.iter().zip(self.values.chunks_exact(width)) {
            watch.inserted(&mut queue, *row, values)?;
        }
        while let Some(event) = queue.take() {
            match &event {
                Event::Reference { key, values, .. }
                    if !key.refers_to_itself() && !env.after.borrow().puts_off(key) =>
                {
                    let mut check = KeyCheck::default();
                    while let Checked::Wait(handle) =
                        references::referenced_row(env, &mut check, key, values)?
                    {
                        block(&handle)?;
                    }
                }
                _ => env.after.borrow_mut().push(event)?,
            }
        }
        Ok(())
    }
}

fn check(
    target: &Target,
    checks: &[(String, Ex)],
    cx: &mut ExecCx<'_>,
    width: usize,
) -> Result<()> {
    {
        let shown = &*cx;
        target.check_nulls(shown, 0..width, &|| Ok(shown.regs[..width].to_vec()))?;
    }
    if checks.is_empty() {
        return Ok(());
    }
    let row = cx.regs[..width].to_vec();
    target.check_conditions(cx, checks, &|| Ok(row.clone()))
}
