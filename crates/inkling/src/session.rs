//! Sessions: statements, and waiting for what they wait for.
//!
//! ```text
//!   execute / query ──> prepare (kept by text) ──> bind ──> step ──Wait──> block this thread
//!                                                            '──Complete──> implicit commit
//!                                     barrier: block until nothing told can be lost ──> caller
//! ```
//!
//! - Statements are prepared once a text and kept ([`STATEMENTS_KEPT`] of them).
//! - A statement outside a [`Transaction`] commits by itself, durably at its level, before the
//!   call returns.
//! - `statement_timeout` and `lock_timeout` hold; [`CancelHandle::cancel`] works from any thread.
//!   `idle_in_transaction_session_timeout` is looked at when the session is used again.

use crate::database::Inner;
use crate::rows::{Row, Rows, Shape};
use crate::transaction::Transaction;
use crate::value::ToSql;
use crate::{Error, Result};
use hashbrown::HashMap;
use inkling_sql::alarms::Alarm;
use inkling_sql::analyze::statement::ParamTypes;
use inkling_sql::error::State;
use inkling_sql::functions::FnContext;
use inkling_sql::session::{
    self as sql, Activity, CancelFlag, CancelReason, ColumnDesc, CommandTag, CopyInfo, Prepared,
    Progress, RowSink,
};
use inkling_sql::types::{Datum, TypeRef};
use inkling_storage::wait::WaitHandle;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prepared statements that a session keeps; beyond that it begins anew.
const STATEMENTS_KEPT: usize = 256;
/// Rows held back at a time by [`Session::query_each`].
const ROWS_AT_A_TIME: usize = 1000;
/// Bytes of COPY data handed over at a time.
const COPY_CHUNK: usize = 64 << 10;
/// Statements run in the unnamed portal.
const PORTAL: &str = "";

/// A session: what a connection is to a server. See the module's essay.
pub struct Session {
    // Before the database, so that it ends while that is still open.
    sql: sql::Session,
    statements: HashMap<Box<str>, Arc<Prepared>>,
    database: Arc<Inner>,
    idle_since: Instant,
    savepoints: u64,
}

/// Cancels a session's running statement, from any thread.
#[derive(Clone)]
pub struct CancelHandle(Arc<CancelFlag>);

impl CancelHandle {
    /// The running statement, if there is one, ends with error 57014.
    pub fn cancel(&self) {
        self.0.request(CancelReason::User);
    }
}

impl Session {
    pub(crate) fn new(sql: sql::Session, database: Arc<Inner>) -> Self {
        let idle_since = Instant::now();
        Session { sql, statements: HashMap::new(), database, idle_since, savepoints: 0 }
    }

    /// Runs one statement; how many rows it inserted, updated, deleted, or returned.
    pub fn execute(&mut self, statement: &str, params: &[&dyn ToSql]) -> Result<u64> {
        let mut sink = Collect::new(false);
        let tag = self.statement(statement, params, &mut sink, &mut |_, _| Ok(()))?;
        Ok(affected(tag))
    }

    /// Runs one statement and returns its rows.
    pub fn query(&mut self, statement: &str, params: &[&dyn ToSql]) -> Result<Rows> {
        let mut sink = Collect::new(true);
        self.statement(statement, params, &mut sink, &mut |_, _| Ok(()))?;
        let shape = self.shape_of(&sink);
        Ok(Rows::new(shape, sink.rows))
    }

    /// The first row of a statement, if there is one.
    pub fn query_opt(&mut self, statement: &str, params: &[&dyn ToSql]) -> Result<Option<Row>> {
        Ok(self.query(statement, params)?.into_iter().next())
    }

    /// The only row of a statement; another number of rows is an error.
    pub fn query_one(&mut self, statement: &str, params: &[&dyn ToSql]) -> Result<Row> {
        let mut rows = self.query(statement, params)?.into_iter();
        match (rows.next(), rows.next()) {
            (Some(row), None) => Ok(row),
            (None, _) => Err(Error::new(State::from_code("02000"), "the query returned no row")),
            _ => Err(Error::new(
                State::CARDINALITY_VIOLATION,
                "the query returned more than one row",
            )),
        }
    }

    /// Runs one statement and calls `each` with its rows as they come, for results that should
    /// not be in memory as a whole. An error of `each` ends the statement and is returned.
    pub fn query_each(
        &mut self,
        statement: &str,
        params: &[&dyn ToSql],
        mut each: impl FnMut(Row) -> Result<()>,
    ) -> Result<u64> {
        let mut sink = Collect::new(true);
        sink.limit = ROWS_AT_A_TIME;
        let mut shape: Option<Arc<Shape>> = None;
        let mut hand_over = |session: &mut Session, sink: &mut Collect| {
            let shape = shape.get_or_insert_with(|| session.shape_of(sink));
            sink.rows.drain(..).try_for_each(|values| each(Row::new(shape, values)))
        };
        let tag = self.statement(statement, params, &mut sink, &mut hand_over)?;
        Ok(affected(tag))
    }

    /// Runs a string of statements without parameters, as one transaction unless it contains
    /// transaction commands. Rows are dropped.
    pub fn batch(&mut self, statements: &str) -> Result<()> {
        self.begin_call(statements)?;
        let outcome = self.run_batch(statements);
        self.end_call(outcome)
    }

    /// Begins a transaction; inside one, a savepoint. What is not committed is rolled back.
    pub fn transaction(&mut self) -> Result<Transaction<'_>> {
        Transaction::begin(self, "")
    }

    /// As [`Self::transaction`], with modes: `"isolation level repeatable read, read only"`.
    pub fn transaction_with(&mut self, modes: &str) -> Result<Transaction<'_>> {
        Transaction::begin(self, modes)
    }

    /// `COPY ... FROM STDIN`: reads the data from `source`; how many rows there were.
    pub fn copy_in(&mut self, statement: &str, source: &mut dyn Read) -> Result<u64> {
        self.begin_call(statement)?;
        let outcome = self.run_copy_in(statement, source);
        self.end_call(outcome).map(affected)
    }

    /// `COPY ... TO STDOUT`: writes the data to `target`; how many rows there were.
    pub fn copy_out(&mut self, statement: &str, target: &mut dyn Write) -> Result<u64> {
        self.begin_call(statement)?;
        let outcome = self.run_copy_out(statement, target);
        self.end_call(outcome).map(affected)
    }

    /// A transaction block is open (it may have failed).
    pub fn in_transaction(&self) -> bool {
        self.sql.transaction_status() != b'I'
    }

    /// Notices and warnings since the last call, in order.
    pub fn take_notices(&mut self) -> Vec<Error> {
        self.sql.take_notices()
    }

    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(Arc::clone(self.sql.cancel_flag()))
    }

    pub(crate) fn new_savepoint_name(&mut self) -> String {
        self.savepoints += 1;
        format!("inkling_{}", self.savepoints)
    }

    /// A statement without parameters and rows, not kept.
    pub(crate) fn run_plain(&mut self, statement: &str) -> Result<CommandTag> {
        let mut sink = Collect::new(false);
        self.begin_call(statement)?;
        let outcome = self.bind_text(statement).and_then(|()| {
            self.drive(&mut sink, &mut |_, _: &mut Collect| Ok(())).and_then(|tag| {
                self.sql.finish_implicit()?;
                Ok(tag)
            })
        });
        self.end_call(outcome)
    }

    fn shape_of(&self, sink: &Collect) -> Arc<Shape> {
        Arc::new(Shape::new(&sink.columns, self.sql.context()))
    }

    fn begin_call(&mut self, text: &str) -> Result<()> {
        if let Some(limit) = self.sql.idle_timeout()
            && self.idle_since.elapsed() > limit
        {
            self.sql.cancel_flag().request(CancelReason::IdleInTransaction);
            self.sql.statement_failed();
        }
        self.sql.begin_message();
        self.sql.cancel_flag().check()?;
        self.sql.set_activity(Activity::Active, Some(text));
        Ok(())
    }

    /// After every call, successful or not: nothing is told that a crash could take back.
    fn end_call<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.sql.statement_failed();
        }
        let durable = self.barrier();
        let activity = match self.sql.transaction_status() {
            b'T' => Activity::IdleInTransaction,
            b'E' => Activity::IdleInFailedTransaction,
            _ => Activity::Idle,
        };
        self.sql.set_activity(activity, None);
        self.idle_since = Instant::now();
        durable.and(outcome)
    }

    fn barrier(&mut self) -> Result<()> {
        while let Some(flush) = self.sql.answer_barrier()? {
            flush.block();
        }
        Ok(())
    }

    // ---- one statement -----------------------------------------------------------------------

    fn statement<S>(
        &mut self,
        text: &str,
        params: &[&dyn ToSql],
        sink: &mut S,
        full: &mut dyn FnMut(&mut Session, &mut S) -> Result<()>,
    ) -> Result<CommandTag>
    where
        S: RowSink + Described,
    {
        self.begin_call(text)?;
        let mut outcome = self.bind(text, params, sink).and_then(|()| self.drive(sink, full));
        if outcome.as_ref().is_err_and(is_stale) {
            // Kept for the caller's convenience, so its ageing is not the caller's affair.
            self.statements.remove(text);
            outcome = self.bind(text, params, sink).and_then(|()| self.drive(sink, full));
        }
        let outcome = outcome.and_then(|tag| {
            self.sql.finish_implicit()?;
            Ok(tag)
        });
        let outcome = self.end_call(outcome)?;
        full(self, sink)?;
        Ok(outcome)
    }

    fn bind(&mut self, text: &str, params: &[&dyn ToSql], sink: &mut impl Described) -> Result<()> {
        let prepared = self.prepared(text)?;
        let types = prepared.params();
        if types.len() != params.len() {
            return Err(Error::new(
                State::PROTOCOL_VIOLATION,
                format!("{} parameters were given, {} are wanted", params.len(), types.len()),
            ));
        }
        let text_in = |ty, text: &str| self.sql.decode_param(ty, false, text.as_bytes());
        let mut values = Vec::with_capacity(params.len());
        for (at, (value, ty)) in params.iter().zip(types).enumerate() {
            let datum = value.to_sql().into_datum(*ty, &text_in);
            values.push(datum.map_err(|e| e.context(format!("parameter ${}", at + 1)))?);
        }
        sink.describe(prepared.columns().unwrap_or_default());
        self.sql.close_portal(PORTAL);
        self.sql.bind(PORTAL, prepared, values)
    }

    /// The statement, prepared now or earlier.
    fn prepared(&mut self, text: &str) -> Result<Arc<Prepared>> {
        if let Some(prepared) = self.statements.get(text) {
            return Ok(Arc::clone(prepared));
        }
        let mut parsed = self.sql.parse_statements(text)?;
        if parsed.len() > 1 {
            return Err(Error::new(
                State::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            )
            .hint("Use batch() for a string of several statements."));
        }
        let params = ParamTypes::variable(Vec::new());
        let prepared = self.sql.prepare_parsed(parsed.pop(), params)?;
        if self.statements.len() >= STATEMENTS_KEPT {
            self.statements.clear();
        }
        self.statements.insert(text.into(), Arc::clone(&prepared));
        Ok(prepared)
    }

    /// Prepares and binds a statement without parameters that is not kept.
    fn bind_text(&mut self, text: &str) -> Result<()> {
        let mut parsed = self.sql.parse_statements(text)?;
        self.bind_parsed(parsed.pop())
    }

    fn bind_parsed(&mut self, parsed: Option<inkling_sql::analyze::ParsedStatement>) -> Result<()> {
        let prepared = self.sql.prepare_parsed(parsed, ParamTypes::none())?;
        self.sql.close_portal(PORTAL);
        self.sql.bind(PORTAL, prepared, Vec::new())
    }

    fn run_batch(&mut self, text: &str) -> Result<()> {
        let mut sink = Collect::new(false);
        for statement in self.sql.parse_statements(text)? {
            self.bind_parsed(Some(statement))?;
            self.drive(&mut sink, &mut |_, _| Ok(()))?;
        }
        self.sql.finish_implicit()
    }

    /// `statement_timeout`, until the alarm is dropped. Without a thread for it the statement runs
    /// without a limit.
    fn cancel_after(&self, limit: Duration) -> Option<Alarm> {
        let flag = Arc::clone(self.sql.cancel_flag());
        let strike = move || flag.request(CancelReason::StatementTimeout);
        self.database.db.alarms.set(Instant::now() + limit, strike)
    }

    /// Steps the portal to its end. Rows that the sink is full of are released first.
    fn drive<S: RowSink>(
        &mut self,
        sink: &mut S,
        full: &mut dyn FnMut(&mut Session, &mut S) -> Result<()>,
    ) -> Result<CommandTag> {
        let limit = self.sql.statement_timeout();
        let _limit = limit.map(|limit| self.cancel_after(limit));
        loop {
            match self.sql.step(PORTAL, sink, 0)? {
                Progress::Wait(handle) => self.wait(&handle)?,
                Progress::FlushRows => {
                    self.barrier()?;
                    full(self, sink)?;
                }
                Progress::Complete(tag) => return Ok(tag),
                Progress::CopyIn(_) => {
                    return Err(Error::new(
                        State::FEATURE_NOT_SUPPORTED,
                        "COPY FROM STDIN needs data; use copy_in()",
                    ));
                }
                Progress::Suspended => {
                    return Err(Error::internal("a statement without a limit was suspended"));
                }
            }
        }
    }

    /// Waits for what the statement waits for: another transaction, a lock, a flush.
    fn wait(&self, handle: &WaitHandle) -> Result<()> {
        if handle.is_ready() {
            return Ok(());
        }
        let cancel = self.sql.cancel_flag();
        let watch = cancel.watch(handle.event());
        match self.sql.lock_timeout() {
            None => handle.block(),
            Some(limit) => {
                if !handle.block_for(limit) {
                    cancel.request(CancelReason::LockTimeout);
                }
            }
        }
        drop(watch);
        cancel.check()
    }

    // ---- COPY --------------------------------------------------------------------------------

    fn run_copy_in(&mut self, statement: &str, source: &mut dyn Read) -> Result<CommandTag> {
        self.bind_text(statement)?;
        let mut sink = Collect::new(false);
        loop {
            match self.sql.step(PORTAL, &mut sink, 0)? {
                Progress::Wait(handle) => self.wait(&handle)?,
                Progress::CopyIn(_) => self.feed(source)?,
                Progress::Complete(tag @ CommandTag::Copy(_)) => {
                    self.sql.finish_implicit()?;
                    return Ok(tag);
                }
                _ => return Err(Error::new(State::SYNTAX_ERROR, "not a COPY FROM STDIN")),
            }
        }
    }

    fn feed(&mut self, source: &mut dyn Read) -> Result<()> {
        let mut chunk = vec![0; COPY_CHUNK];
        loop {
            match source.read(&mut chunk) {
                Ok(0) => return self.sql.copy_done(PORTAL),
                Ok(n) => self.sql.copy_data(PORTAL, std::iter::once(&chunk[..n]))?,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.sql.copy_fail(&e.to_string())),
            }
        }
    }

    fn run_copy_out(&mut self, statement: &str, target: &mut dyn Write) -> Result<CommandTag> {
        self.bind_text(statement)?;
        let mut sink = CopyOut::default();
        let mut write = |_: &mut Session, sink: &mut CopyOut| {
            target.write_all(&sink.bytes).map_err(|e| {
                Error::new(State::IO_ERROR, format!("could not write COPY data: {e}"))
            })?;
            sink.bytes.clear();
            Ok(())
        };
        let tag = self.drive(&mut sink, &mut write)?;
        if !sink.begun {
            return Err(Error::new(State::SYNTAX_ERROR, "not a COPY TO STDOUT"));
        }
        self.sql.finish_implicit()?;
        self.barrier()?;
        write(self, &mut sink)?;
        Ok(tag)
    }
}

fn affected(tag: CommandTag) -> u64 {
    match tag {
        CommandTag::Select(n)
        | CommandTag::Insert(n)
        | CommandTag::Update(n)
        | CommandTag::Delete(n)
        | CommandTag::Copy(n)
        | CommandTag::Fetch(n)
        | CommandTag::Move(n) => n,
        CommandTag::Plain(_) | CommandTag::Empty => 0,
    }
}

/// A kept statement's result has another shape now (`select *` after ALTER TABLE).
fn is_stale(e: &Error) -> bool {
    e.state == State::FEATURE_NOT_SUPPORTED
        && e.message() == "cached plan must not change result type"
}

/// A sink that is told the columns beforehand.
trait Described {
    fn describe(&mut self, columns: &[ColumnDesc]);
}

/// Keeps rows, or drops them.
struct Collect {
    keep: bool,
    /// Rows to hold at most; 0: all.
    limit: usize,
    columns: Vec<ColumnDesc>,
    rows: Vec<Vec<Datum>>,
}

impl Collect {
    fn new(keep: bool) -> Self {
        Collect { keep, limit: 0, columns: Vec::new(), rows: Vec::new() }
    }
}

impl Described for Collect {
    fn describe(&mut self, columns: &[ColumnDesc]) {
        self.columns = columns.to_vec();
        self.rows.clear();
    }
}

impl RowSink for Collect {
    fn row(&mut self, values: &[Datum], _types: &[TypeRef], _cx: &dyn FnContext) -> Result<()> {
        if self.keep {
            self.rows.push(values.to_vec());
        }
        Ok(())
    }

    fn copy_out_begin(&mut self, _info: CopyInfo) -> Result<()> {
        Err(Error::new(State::FEATURE_NOT_SUPPORTED, "COPY TO STDOUT needs copy_out()"))
    }

    fn copy_data(&mut self, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn full(&self) -> bool {
        self.limit > 0 && self.rows.len() >= self.limit
    }

    fn columns(&mut self, columns: &[ColumnDesc]) -> Result<()> {
        self.describe(columns);
        Ok(())
    }

    fn notice(&mut self, _notice: Error) {}
}

/// Collects COPY data.
#[derive(Default)]
struct CopyOut {
    begun: bool,
    bytes: Vec<u8>,
}

impl RowSink for CopyOut {
    fn row(&mut self, _values: &[Datum], _types: &[TypeRef], _cx: &dyn FnContext) -> Result<()> {
        Err(Error::new(State::SYNTAX_ERROR, "not a COPY TO STDOUT"))
    }

    fn copy_out_begin(&mut self, _info: CopyInfo) -> Result<()> {
        self.begun = true;
        Ok(())
    }

    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    fn full(&self) -> bool {
        self.bytes.len() >= COPY_CHUNK
    }

    fn notice(&mut self, _notice: Error) {}
}
