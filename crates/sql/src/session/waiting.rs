//! Functions that wait: pg_sleep and its kin, advisory locks.
//!
//! No function blocks its thread. One that has to wait leaves what it waits for here and returns
//! an error that only means "wait" ([`MUST_WAIT`]); the operator whose row is being computed turns
//! it into `Step::Wait`, and when the driver comes back it computes *the same row again*.
//!
//! ```text
//!   select pg_advisory_lock(1), pg_advisory_lock(2)     (2 is held by somebody)
//!
//!   begin_row   lock(1) granted, noted     lock(2) waits: MUST_WAIT     -> Step::Wait
//!   begin_row   lock(1) read from notes    lock(2) still: MUST_WAIT     -> Step::Wait
//!   begin_row   lock(1) read from notes    lock(2) granted   end_row    -> Step::Row
//! ```
//!
//! - **Effects once.** Between `begin_row` and `end_row` every call with an effect is noted with
//!   its answer. When the row is computed again the notes answer, in order: a call made is made,
//!   also when its arguments would be others now (the time, a random number). A computation that
//!   takes another path, so that the names do not agree, drops the rest of the notes.
//! - **Only in a row.** A call outside (the argument of an aggregate, a sort key, a join condition)
//!   takes a lock that is free; one that would have to wait is refused (0A000), because its
//!   operator could not come back to the same place.
//! - **Nested rows**, of a sub-select in the expression, belong to the outermost one: the
//!   sub-select starts anew and the notes answer for what it had done.
//! - A statement that fails drops what it waits for, which takes it out of the queue.
//!
//! [`MUST_WAIT`]: crate::exec::MUST_WAIT

use super::around::Around;
use crate::alarms::Alarm;
use crate::error::{Result, Severity, SqlError, State};
use crate::exec::MUST_WAIT;
use crate::functions::FnContext;
use crate::types::{Datum, Oid};
use inkling_storage::lock::{AdvisoryKey, LockMode, LockResult, LockScope, LockTag, LockWait};
use inkling_storage::wait::{Event, WaitHandle};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the current call waits for.
enum Pending {
    Lock(LockWait),
    Sleep(Sleep),
}

/// A call that sleeps.
struct Sleep {
    until: Instant,
    event: Event,
    _alarm: Option<Alarm>,
    _shown: Asleep,
}

/// Who sleeps, for the activity view.
#[derive(Default)]
pub(super) struct Sleepers(Arc<Mutex<Vec<i32>>>);

/// A session that sleeps, until this is dropped.
struct Asleep {
    sleepers: Arc<Mutex<Vec<i32>>>,
    pid: i32,
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.sleepers.lock().retain(|pid| *pid != self.pid);
    }
}

impl Sleepers {
    fn falls_asleep(&self, pid: i32) -> Asleep {
        self.0.lock().push(pid);
        Asleep { sleepers: Arc::clone(&self.0), pid }
    }

    pub fn pids(&self) -> Vec<i32> {
        self.0.lock().clone()
    }
}

struct Note {
    name: &'static str,
    answer: Datum,
}

/// See the module's essay.
#[derive(Default)]
pub(super) struct Waiting {
    /// Rows being computed, one within the other.
    depth: Cell<u32>,
    /// The outermost row was left because a call has to wait.
    suspended: Cell<bool>,
    notes: RefCell<Vec<Note>>,
    /// The next note to answer with.
    at: Cell<usize>,
    pending: RefCell<Option<(&'static str, Pending)>>,
}

impl Waiting {
    /// A row is computed, for the first time or again; true for the outermost.
    pub fn begin_row(&self) -> bool {
        self.depth.set(self.depth.get() + 1);
        if self.depth.get() > 1 {
            return false;
        }
        if !self.suspended.replace(false) {
            self.forget();
        }
        self.at.set(0);
        true
    }

    /// The row is computed, or failed; `None` unless it has to wait.
    pub fn end_row(&self, waits: bool) -> Option<WaitHandle> {
        self.depth.set(self.depth.get().saturating_sub(1));
        if self.depth.get() > 0 {
            return None;
        }
        if waits {
            let pending = self.pending.borrow();
            let handle = pending.as_ref().map(|(_, p)| match p {
                Pending::Lock(wait) => wait.handle(),
                Pending::Sleep(sleep) => sleep.event.handle(),
            });
            self.suspended.set(handle.is_some());
            return handle;
        }
        self.forget();
        None
    }

    fn forget(&self) {
        if !self.notes.borrow().is_empty() {
            self.notes.borrow_mut().clear();
        }
        if self.pending.borrow().is_some() {
            *self.pending.borrow_mut() = None;
        }
    }

    /// The statement is over, one way or the other.
    pub fn reset(&self) {
        self.depth.set(0);
        self.suspended.set(false);
        self.forget();
    }

    /// Whether the session sleeps of its own will: no lock time-out counts then.
    pub fn sleeps(&self) -> bool {
        matches!(&*self.pending.borrow(), Some((_, Pending::Sleep { .. })))
    }

    fn in_row(&self) -> bool {
        self.depth.get() > 0
    }

    fn noted(&self, name: &str) -> Option<Datum> {
        let mut notes = self.notes.borrow_mut();
        let at = self.at.get();
        let note = notes.get(at)?;
        if note.name == name {
            self.at.set(at + 1);
            return Some(note.answer.clone());
        }
        notes.truncate(at);
        None
    }

    fn note(&self, name: &'static str, answer: &Datum) {
        let mut notes = self.notes.borrow_mut();
        notes.push(Note { name, answer: answer.clone() });
        self.at.set(notes.len());
    }

    fn take_pending(&self, name: &str) -> Option<Pending> {
        let (pending_name, pending) = self.pending.borrow_mut().take()?;
        (pending_name == name).then_some(pending)
    }

    /// Leaves `pending` for the driver.
    fn must_wait(&self, name: &'static str, pending: Pending) -> SqlError {
        if !self.in_row() {
            return SqlError::unsupported(format!("{name}() that has to wait in this place"))
                .hint("Call it in the select list, in WHERE, or in FROM.");
        }
        *self.pending.borrow_mut() = Some((name, pending));
        SqlError::new(MUST_WAIT, "must wait")
    }
}

/// The functions whose calls are noted: all that do something that a second call would do again.
const EFFECTS: &[&str] = &[
    "nextval",
    "setval",
    "set_config",
    "pg_cancel_backend",
    "pg_terminate_backend",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
];

/// Whether a session function may have to wait.
pub(crate) fn may_wait(name: &str) -> bool {
    name.starts_with("pg_sleep") || parse_advisory(name).is_some_and(|a| a.waits)
}

/// Calls `really`, or answers from the notes of the row.
pub(super) fn once(
    around: &Around,
    name: &str,
    really: impl FnOnce() -> Result<Datum>,
) -> Result<Datum> {
    let waiting = &around.waiting;
    if !waiting.in_row() {
        return really();
    }
    let listed = EFFECTS.iter().find(|n| **n == name).copied();
    let Some(name) = listed.or_else(|| parse_advisory(name).map(|a| a.name)) else {
        return really();
    };
    if let Some(answer) = waiting.noted(name) {
        return Ok(answer);
    }
    let answer = really()?;
    waiting.note(name, &answer);
    Ok(answer)
}

/// A void function's answer.
fn void() -> Datum {
    Datum::text("")
}

/// Answers one of the functions; `None`: it is none of them.
pub(super) fn call(around: &Around, name: &str, args: &[Datum]) -> Result<Option<Datum>> {
    if let Some(advisory) = parse_advisory(name) {
        return advisory_call(around, &advisory, args).map(Some);
    }
    match name {
        "pg_sleep" => {
            let Some(Datum::Float8(seconds)) = args.first() else { return Ok(Some(void())) };
            // Longer than anybody lives is long enough, and has an Instant.
            let seconds = if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, 3e9) };
            sleep(around, "pg_sleep", |_| Ok(Duration::from_secs_f64(seconds))).map(Some)
        }
        "pg_sleep_for" => sleep(around, "pg_sleep_for", |around| {
            let Some(Datum::Interval(interval)) = args.first() else { return Ok(Duration::ZERO) };
            let now = around.clock_timestamp();
            let then = crate::functions::datetime::add_zoned(now, interval, around.time_zone())?;
            Ok(micros_between(now, then))
        })
        .map(Some),
        "pg_sleep_until" => sleep(around, "pg_sleep_until", |around| {
            let Some(Datum::Timestamp(then)) = args.first() else { return Ok(Duration::ZERO) };
            Ok(micros_between(around.clock_timestamp(), *then))
        })
        .map(Some),
        "pg_advisory_unlock_all" => {
            let locks = &around.db.engine.locks;
            locks.release_session_locks(around.txn_session.owner());
            Ok(Some(void()))
        }
        "pg_isolation_test_session_is_blocked" => is_blocked(around, args).map(Some),
        _ => Ok(None),
    }
}

fn micros_between(now: i64, then: i64) -> Duration {
    Duration::from_micros(u64::try_from(then.saturating_sub(now)).unwrap_or(0).min(1 << 51))
}

fn sleep(
    around: &Around,
    name: &'static str,
    how_long: impl FnOnce(&Around) -> Result<Duration>,
) -> Result<Datum> {
    let waiting = &around.waiting;
    let sleep = match waiting.take_pending(name) {
        Some(Pending::Sleep(sleep)) => sleep,
        _ => fall_asleep(around, Instant::now() + how_long(around)?),
    };
    if Instant::now() >= sleep.until {
        return Ok(void());
    }
    Err(waiting.must_wait(name, Pending::Sleep(sleep)))
}

fn fall_asleep(around: &Around, until: Instant) -> Sleep {
    let event = Event::new();
    let bell = event.clone();
    let alarm = around.db.alarms.set(until, move || bell.wake());
    if alarm.is_none() {
        // Without a thread for it the call looks at the time itself, again and again.
        event.wake();
    }
    Sleep { until, event, _alarm: alarm, _shown: around.db.sleepers.falls_asleep(around.pid) }
}

/// Which of the advisory functions a name means.
struct Advisory {
    name: &'static str,
    mode: LockMode,
    scope: LockScope,
    what: What,
    waits: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Lock,
    Try,
    Unlock,
}

fn parse_advisory(name: &str) -> Option<Advisory> {
    use LockScope::{Session, Transaction};
    use What::{Lock, Try, Unlock};
    let (name, what, scope) = match name {
        "pg_advisory_lock" => ("pg_advisory_lock", Lock, Session),
        "pg_advisory_lock_shared" => ("pg_advisory_lock_shared", Lock, Session),
        "pg_advisory_xact_lock" => ("pg_advisory_xact_lock", Lock, Transaction),
        "pg_advisory_xact_lock_shared" => ("pg_advisory_xact_lock_shared", Lock, Transaction),
        "pg_try_advisory_lock" => ("pg_try_advisory_lock", Try, Session),
        "pg_try_advisory_lock_shared" => ("pg_try_advisory_lock_shared", Try, Session),
        "pg_try_advisory_xact_lock" => ("pg_try_advisory_xact_lock", Try, Transaction),
        "pg_try_advisory_xact_lock_shared" => {
            ("pg_try_advisory_xact_lock_shared", Try, Transaction)
        }
        "pg_advisory_unlock" => ("pg_advisory_unlock", Unlock, Session),
        "pg_advisory_unlock_shared" => ("pg_advisory_unlock_shared", Unlock, Session),
        _ => return None,
    };
    let mode = if name.ends_with("_shared") { LockMode::Share } else { LockMode::Exclusive };
    Some(Advisory { name, mode, scope, what, waits: what == Lock })
}

fn advisory_call(around: &Around, advisory: &Advisory, args: &[Datum]) -> Result<Datum> {
    let key = match args {
        [Datum::Int8(key)] => AdvisoryKey::One(*key),
        [Datum::Int4(high), Datum::Int4(low)] => AdvisoryKey::Two(*high, *low),
        _ => return Err(SqlError::internal("not a key of an advisory lock")),
    };
    let (locks, owner) = (&around.db.engine.locks, around.txn_session.owner());
    let (tag, mode, scope) = (LockTag::Advisory(key), advisory.mode, advisory.scope);
    match advisory.what {
        What::Try => Ok(Datum::Bool(locks.try_acquire_for(owner, tag, mode, scope))),
        What::Unlock => {
            let held = locks.release_for(owner, tag, mode, scope);
            if !held {
                around.warn(not_owned(mode));
            }
            Ok(Datum::Bool(held))
        }
        What::Lock => {
            let waiting = &around.waiting;
            let mut wait = match waiting.take_pending(advisory.name) {
                Some(Pending::Lock(wait)) => wait,
                _ => match locks.acquire_for(owner, tag, mode, scope) {
                    LockResult::Granted => return Ok(void()),
                    LockResult::Wait(wait) => wait,
                },
            };
            match wait.check().into_result()? {
                true => Ok(void()),
                false => Err(waiting.must_wait(advisory.name, Pending::Lock(wait))),
            }
        }
    }
}

fn not_owned(mode: LockMode) -> SqlError {
    let text = format!("you don't own a lock of type {mode}");
    SqlError::new(State::WARNING, text).severity(Severity::Warning)
}

/// What PostgreSQL's isolation tester asks: does one of these keep that session waiting?
fn is_blocked(around: &Around, args: &[Datum]) -> Result<Datum> {
    let (Some(Datum::Int4(pid)), Some(Datum::Array(those))) = (args.first(), args.get(1)) else {
        return Ok(Datum::Bool(false));
    };
    if those.element != Oid::INT4 || those.items.iter().any(Datum::is_null) {
        return Err(SqlError::new(State::NULL_VALUE_NOT_ALLOWED, "array must not contain nulls"));
    }
    let engine = &around.db.engine;
    let mut blocking = engine.locks.blocking_pids(*pid);
    blocking.extend(engine.txns.ssi().safe_snapshot_blockers(*pid));
    Ok(Datum::Bool(blocking.into_iter().any(|b| those.items.contains(&Datum::Int4(b)))))
}
