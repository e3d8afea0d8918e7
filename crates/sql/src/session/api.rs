//! What a driver (the server, the embedded API) and a session say to each other.
//!
//! A driver prepares, binds and then calls `Session::step` until it answers
//! [`Progress::Complete`] (or an error); every other answer says what the driver must do before
//! it calls again:
//!
//! | answer      | the driver                                                               |
//! |-------------|--------------------------------------------------------------------------|
//! | `Wait(h)`   | waits for `h` (another transaction, a lock, a flush), calls again         |
//! | `FlushRows` | the sink said it is full: sends what it holds, calls again                |
//! | `Suspended` | `max_rows` rows were sent; calls again when the client asks for more      |
//! | `CopyIn`    | feeds `copy_data`, then `copy_done` or `copy_fail`, and steps again       |
//! | `Complete`  | sends the tag                                                            |

use crate::error::{Result, SqlError};
use crate::functions::FnContext;
use crate::types::{Datum, Oid, TypeRef};
use inkling_storage::wait::{Event, WaitHandle};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Waker};

/// One column of a result, as RowDescription tells it.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnDesc {
    pub name: String,
    pub ty: TypeRef,
    /// The table column that it is: (table OID, attnum), or (0, 0).
    pub table: Oid,
    pub attnum: i16,
}

/// The text of CommandComplete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandTag {
    Select(u64),
    Insert(u64),
    Update(u64),
    Delete(u64),
    Copy(u64),
    Fetch(u64),
    Move(u64),
    /// A statement without a count: `BEGIN`, `CREATE TABLE`, ...
    Plain(&'static str),
    /// An empty query string: EmptyQueryResponse instead of a tag.
    Empty,
}

impl fmt::Display for CommandTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandTag::Select(n) => write!(f, "SELECT {n}"),
            CommandTag::Insert(n) => write!(f, "INSERT 0 {n}"),
            CommandTag::Update(n) => write!(f, "UPDATE {n}"),
            CommandTag::Delete(n) => write!(f, "DELETE {n}"),
            CommandTag::Copy(n) => write!(f, "COPY {n}"),
            CommandTag::Fetch(n) => write!(f, "FETCH {n}"),
            CommandTag::Move(n) => write!(f, "MOVE {n}"),
            CommandTag::Plain(text) => f.write_str(text),
            CommandTag::Empty => Ok(()),
        }
    }
}

/// How COPY's bytes are laid out: `columns` many, all text (0) or all binary (1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyInfo {
    pub columns: usize,
    pub binary: bool,
}

/// What a step came to. See the module's table.
#[derive(Clone, Debug)]
pub enum Progress {
    Wait(WaitHandle),
    Suspended,
    Complete(CommandTag),
    CopyIn(CopyInfo),
    FlushRows,
}

/// Where rows go. A sink writes text or binary as the client asked; it must not block.
pub trait RowSink {
    fn row(&mut self, values: &[Datum], types: &[TypeRef], cx: &dyn FnContext) -> Result<()>;
    /// COPY TO STDOUT starts: then `copy_data` (one call a row) until the statement completes.
    fn copy_out_begin(&mut self, info: CopyInfo) -> Result<()>;
    fn copy_data(&mut self, data: &[u8]) -> Result<()>;
    /// Asked after each row: true makes the step return [`Progress::FlushRows`].
    fn full(&self) -> bool;
    /// A statement whose columns are known only when it runs (FETCH, EXECUTE, EXPLAIN, SHOW in
    /// the simple protocol) tells them before its first row.
    fn columns(&mut self, _columns: &[ColumnDesc]) -> Result<()> {
        Ok(())
    }
    fn notice(&mut self, notice: SqlError);
}

/// Why a statement is told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CancelReason {
    /// CancelRequest or pg_cancel_backend.
    User = 1,
    StatementTimeout = 2,
    LockTimeout = 3,
    /// pg_terminate_backend or shutdown: ends the session.
    Terminate = 4,
    IdleInTransaction = 5,
    IdleSession = 6,
}

/// Asks a session's running statement to stop; shared with whoever may ask.
///
/// The request is a byte that loops look at; a session that waits is woken, finds the byte and
/// gives up. A request that meets no running statement is forgotten when the next one starts,
/// except those that end the session.
#[derive(Default)]
pub struct CancelFlag {
    reason: AtomicU8,
    /// The event that a statement waits for at the moment.
    waiting: Mutex<Option<Event>>,
    /// Whom the end of the session has to wake: it waits for its client.
    idle: Mutex<Option<Waker>>,
}

/// A wait that a request may wake; dropped when the wait is over.
pub struct Watch<'a>(&'a CancelFlag);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        *self.0.waiting.lock() = None;
    }
}

impl CancelFlag {
    pub fn new() -> Arc<CancelFlag> {
        Arc::default()
    }

    /// Asks for a stop. The first reason stays, unless the new one ends the session.
    pub fn request(&self, reason: CancelReason) {
        let ends = reason as u8 >= CancelReason::Terminate as u8;
        let _ = self.reason.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (old == 0 || ends).then_some(reason as u8)
        });
        let waiting = self.waiting.lock();
        if let Some(event) = &*waiting {
            event.wake();
        }
        drop(waiting);
        if ends && let Some(waker) = self.idle.lock().take() {
            waker.wake();
        }
    }

    #[inline]
    pub fn is_requested(&self) -> bool {
        self.reason.load(Ordering::Relaxed) != 0
    }

    pub fn reason(&self) -> Option<CancelReason> {
        Some(match self.reason.load(Ordering::Acquire) {
            1 => CancelReason::User,
            2 => CancelReason::StatementTimeout,
            3 => CancelReason::LockTimeout,
            4 => CancelReason::Terminate,
            5 => CancelReason::IdleInTransaction,
            6 => CancelReason::IdleSession,
            _ => return None,
        })
    }

    /// A statement starts: requests that came too late for the last one are forgotten.
    pub(crate) fn reset(&self) {
        if self.is_requested() {
            let _ = self.reason.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old < CancelReason::Terminate as u8).then_some(0)
            });
        }
    }

    /// Lets a request wake `event`, which a statement waits for; one that is there already wakes
    /// it at once.
    pub fn watch(&self, event: &Event) -> Watch<'_> {
        *self.waiting.lock() = Some(event.clone());
        if self.is_requested() {
            event.wake();
        }
        Watch(self)
    }

    /// Whether the session is to end; if not, a request to end it will wake the task. For a
    /// session that waits for its client.
    pub fn poll_end(&self, cx: &Context<'_>) -> bool {
        {
            let mut idle = self.idle.lock();
            if !idle.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *idle = Some(cx.waker().clone());
            }
        }
        self.reason.load(Ordering::Acquire) >= CancelReason::Terminate as u8
    }

    /// The error that a pending request means.
    pub fn check(&self) -> Result<()> {
        match self.is_requested() {
            false => Ok(()),
            true => self.reason().map_or(Ok(()), |r| Err(cancel_error(r))),
        }
    }
}

fn cancel_error(reason: CancelReason) -> SqlError {
    use crate::error::{Severity, State};
    let (state, text) = match reason {
        CancelReason::User => (State::QUERY_CANCELED, "canceling statement due to user request"),
        CancelReason::StatementTimeout => {
            (State::QUERY_CANCELED, "canceling statement due to statement timeout")
        }
        CancelReason::LockTimeout => {
            (State::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
        }
        CancelReason::Terminate => {
            (State::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
        }
        CancelReason::IdleInTransaction => (
            State::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            "terminating connection due to idle-in-transaction timeout",
        ),
        CancelReason::IdleSession => {
            (State::from_code("57P05"), "terminating connection due to idle-session timeout")
        }
    };
    let error = SqlError::new(state, text);
    match reason as u8 >= CancelReason::Terminate as u8 {
        true => error.severity(Severity::Fatal),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_wakes_the_wait_and_is_forgotten_by_the_next_statement() {
        let flag = CancelFlag::new();
        let event = Event::new();
        let _watch = flag.watch(&event);
        flag.request(CancelReason::User);
        assert!(event.is_woken());
        assert_eq!(flag.check().expect_err("canceled").state.code(), "57014");
        flag.reset();
        assert!(flag.check().is_ok());
        flag.request(CancelReason::Terminate);
        flag.request(CancelReason::User);
        flag.reset();
        assert_eq!(flag.reason(), Some(CancelReason::Terminate));
    }

    #[test]
    fn tags_read_as_postgresql_writes_them() {
        assert_eq!(CommandTag::Insert(3).to_string(), "INSERT 0 3");
        assert_eq!(CommandTag::Plain("BEGIN").to_string(), "BEGIN");
    }
}
