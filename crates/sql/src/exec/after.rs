//! What is left to do after a statement: an explicit queue of events, and what was put off.
//!
//! ```text
//!   statement writes rows ──push──> fresh: e1 e2 e3      (rows are all there: the drain begins)
//!                                     │ next_due
//!              put off? ──> deferred: e2      no? ──> run e1 (may push e4), e3, e4 ...
//!                                │
//!        COMMIT, SET CONSTRAINTS ... IMMEDIATE ──next_due──> run
//! ```
//!
//! The queue belongs to a session's transaction and knows nothing of catalogs or plans; the
//! session runs the events (`session/after.rs`). What a cascade writes goes to the end of the same
//! queue, so depth costs memory in the queue and no stack. Rules A5 to A11 of the README.

use super::foreign::ForeignKey;
use crate::analyze::statement::ForeignAction;
use crate::catalog::ConstraintDef;
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid};
use hashbrown::HashMap;
use inkling_storage::ids::RowId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Memory that waiting events may take.
const MAX_BYTES: usize = 1 << 30;

/// One row's business with one constraint.
#[derive(Clone, Debug)]
pub enum Event {
    /// The row at `row` refers to `values`.
    Reference { key: Arc<ForeignKey>, row: RowId, values: Box<[Datum]> },
    /// A referenced row with the key `old` went, or has the key `new` now.
    Removed { key: Arc<ForeignKey>, old: Box<[Datum]>, new: Option<Box<[Datum]>> },
    /// The row that an entry `row` of a unique index leads to may have an equal.
    Unique { constraint: Arc<ConstraintDef>, index: Oid, row: RowId, values: Box<[Datum]> },
}

impl Event {
    /// The constraint, if SET CONSTRAINTS may put the event off.
    fn deferrable(&self) -> Option<&ConstraintDef> {
        let def = match self {
            Event::Reference { key, .. } => &key.def,
            Event::Unique { constraint, .. } => constraint,
            Event::Removed { key, new, .. } => {
                // What changes rows is not put off, and neither is RESTRICT.
                if key.action(new.is_none()) != ForeignAction::NoAction {
                    return None;
                }
                &key.def
            }
        };
        def.deferrable.then_some(def)
    }

    /// The table whose row it is about.
    fn table(&self) -> Oid {
        match self {
            Event::Reference { key, .. } => key.def.table,
            Event::Unique { constraint, .. } => constraint.table,
            Event::Removed { key, .. } => key.referenced,
        }
    }

    fn bytes(&self) -> usize {
        let of = |values: &[Datum]| {
            let long = |v: &Datum| match v {
                Datum::Text(t) => t.len(),
                Datum::Bytea(b) => b.len(),
                _ => 0,
            };
            size_of_val(values) + values.iter().map(long).sum::<usize>()
        };
        let values = match self {
            Event::Reference { values, .. } | Event::Unique { values, .. } => of(values),
            Event::Removed { old, new, .. } => of(old) + new.as_deref().map_or(0, of),
        };
        size_of::<Put>() + values
    }
}

/// An event that waits for the end of the transaction.
#[derive(Debug)]
struct Put {
    event: Event,
    /// The drain that ran it; a rollback to before that drain makes it wait again.
    ran: Option<u32>,
    /// Not put off: its statement was left unfinished. Due at the next opportunity.
    overdue: bool,
}

/// What SET CONSTRAINTS has said.
#[derive(Clone, Default, Debug)]
struct Modes {
    all: Option<bool>,
    each: HashMap<Oid, bool>,
}

impl Modes {
    fn puts_off(&self, def: &ConstraintDef) -> bool {
        let said = self.each.get(&def.oid).copied().or(self.all);
        def.deferrable && said.unwrap_or(def.deferred)
    }

    fn is_put_off(&self, event: &Event) -> bool {
        event.deferrable().is_some_and(|def| self.puts_off(def))
    }
}

/// How things stood when a savepoint was set.
#[derive(Debug)]
struct Mark {
    deferred: usize,
    drain: u32,
    modes: Modes,
}

/// The events of a transaction. See the module's essay.
#[derive(Default, Debug)]
pub struct AfterQueue {
    fresh: VecDeque<Event>,
    deferred: Vec<Put>,
    /// Before this all deferred events have run.
    first_waiting: usize,
    marks: Vec<Mark>,
    modes: Modes,
    drain: u32,
    bytes: usize,
}

impl AfterQueue {
    /// A row of the running statement has business with a constraint.
    pub fn push(&mut self, event: Event) -> Result<()> {
        self.bytes += event.bytes();
        if self.bytes > MAX_BYTES {
            let message = "too many rows wait for the checks of their constraints";
            return Err(SqlError::new(State::OUT_OF_MEMORY, message)
                .hint("Write fewer rows in one statement, or defer fewer constraints."));
        }
        self.fresh.push_back(event);
        Ok(())
    }

    /// The first event of the statement, whatever the modes say.
    pub fn take(&mut self) -> Option<Event> {
        self.fresh.pop_front().inspect(|e| self.bytes = self.bytes.saturating_sub(e.bytes()))
    }

    /// Whether checks of this constraint wait for the end of the transaction.
    pub fn puts_off(&self, key: &ForeignKey) -> bool {
        self.modes.puts_off(&key.def)
    }

    /// Whether the statement left anything to do.
    #[inline]
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether an end of the transaction would have anything to do.
    pub fn has_any(&self) -> bool {
        self.has_fresh() || self.first_waiting < self.deferred.len()
    }

    /// Whether a table's rows have events that have not run.
    pub fn concerns(&self, table: Oid) -> bool {
        let waiting = self.deferred.iter().filter(|p| p.ran.is_none()).map(|p| &p.event);
        self.fresh.iter().chain(waiting).any(|e| e.table() == table)
    }

    /// A series of [`Self::next_due`] begins.
    pub fn begin_drain(&mut self) {
        self.drain += 1;
    }

    /// The next event to run. Those of the statement first, in order; they are put off on the way
    /// as the modes say. With `all` what was put off comes too, and without what the modes do not
    /// put off any more.
    pub fn next_due(&mut self, all: bool) -> Option<Event> {
        while let Some(event) = self.fresh.pop_front() {
            if !self.modes.is_put_off(&event) {
                self.bytes = self.bytes.saturating_sub(event.bytes());
                return Some(event);
            }
            self.deferred.push(Put { event, ran: None, overdue: false });
        }
        for at in self.first_waiting..self.deferred.len() {
            let put = &mut self.deferred[at];
            let waits = put.ran.is_none();
            if waits && (all || put.overdue || !self.modes.is_put_off(&put.event)) {
                put.ran = Some(self.drain);
                let event = put.event.clone();
                self.skip_ran();
                return Some(event);
            }
        }
        None
    }

    fn skip_ran(&mut self) {
        let waiting = self.deferred[self.first_waiting..].iter().position(|p| p.ran.is_none());
        self.first_waiting = waiting.map_or(self.deferred.len(), |n| self.first_waiting + n);
        if self.marks.is_empty() && self.first_waiting == self.deferred.len() {
            // No rollback can bring them back.
            self.truncate(0);
        }
    }

    fn truncate(&mut self, len: usize) {
        for put in self.deferred.drain(len..) {
            self.bytes = self.bytes.saturating_sub(put.event.bytes());
        }
        self.first_waiting = self.first_waiting.min(len);
    }

    /// SET CONSTRAINTS; no constraints: ALL. Whoever calls drains what is due now.
    pub fn set_modes(&mut self, constraints: &[Oid], deferred: bool) {
        if constraints.is_empty() {
            self.modes = Modes { all: Some(deferred), each: HashMap::new() };
        }
        for oid in constraints {
            self.modes.each.insert(*oid, deferred);
        }
    }

    pub fn savepoint(&mut self) {
        // Left by a statement whose portal was never finished.
        let left = self.fresh.drain(..);
        self.deferred.extend(left.map(|event| Put { event, ran: None, overdue: true }));
        let (deferred, modes) = (self.deferred.len(), self.modes.clone());
        self.marks.push(Mark { deferred, drain: self.drain, modes });
    }

    /// The innermost `levels` savepoints are released.
    pub fn release(&mut self, levels: usize) {
        self.marks.truncate(self.marks.len().saturating_sub(levels));
    }

    /// Everything since the outermost of the innermost `levels` savepoints is undone; it stays.
    pub fn rollback_to(&mut self, levels: usize) {
        self.forget_fresh();
        self.marks.truncate((self.marks.len() + 1).saturating_sub(levels));
        let Some(mark) = self.marks.last() else { return };
        let (len, drain) = (mark.deferred, mark.drain);
        self.modes = mark.modes.clone();
        self.truncate(len);
        for put in &mut self.deferred {
            put.ran = put.ran.filter(|ran| *ran <= drain);
        }
        self.first_waiting = 0;
    }

    fn forget_fresh(&mut self) {
        for event in self.fresh.drain(..) {
            self.bytes = self.bytes.saturating_sub(event.bytes());
        }
    }

    /// The transaction is over.
    pub fn clear(&mut self) {
        self.fresh.clear();
        self.deferred.clear();
        self.marks.clear();
        self.modes.each.clear();
        self.modes.all = None;
        (self.first_waiting, self.drain, self.bytes) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ConstraintKind;

    fn event(oid: u32, deferrable: bool, deferred: bool) -> Event {
        let constraint = Arc::new(ConstraintDef {
            oid: Oid(oid),
            name: String::new(),
            table: Oid(1),
            kind: ConstraintKind::Unique { index: Oid(2) },
            columns: vec![1],
            deferrable,
            deferred,
            validated: true,
        });
        let values = vec![Datum::Int4(oid as i32)].into();
        Event::Unique { constraint, index: Oid(2), row: RowId::INVALID, values }
    }

    fn number(event: Option<Event>) -> Option<u32> {
        event.map(|e| match e {
            Event::Unique { constraint, .. } => constraint.oid.0,
            _ => 0,
        })
    }

    fn drained(queue: &mut AfterQueue, all: bool) -> Vec<u32> {
        queue.begin_drain();
        std::iter::from_fn(|| number(queue.next_due(all))).collect()
    }

    #[test]
    fn what_is_put_off_waits_for_the_end() {
        let mut queue = AfterQueue::default();
        for (oid, deferred) in [(1, true), (2, false), (3, true)] {
            queue.push(event(oid, true, deferred)).expect("room");
        }
        assert_eq!(drained(&mut queue, false), [2]);
        assert!(queue.concerns(Oid(1)));
        assert_eq!(drained(&mut queue, true), [1, 3]);
        assert!(!queue.has_any() && !queue.concerns(Oid(1)));
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn modes_decide_for_deferrable_constraints_only() {
        let mut queue = AfterQueue::default();
        queue.set_modes(&[], true);
        queue.push(event(1, false, false)).expect("room");
        queue.push(event(2, true, false)).expect("room");
        assert_eq!(drained(&mut queue, false), [1]);
        queue.set_modes(&[Oid(2)], false);
        assert_eq!(drained(&mut queue, false), [2]);
    }

    #[test]
    fn a_rollback_forgets_what_came_since_and_revives_what_ran() {
        let mut queue = AfterQueue::default();
        queue.push(event(1, true, true)).expect("room");
        assert_eq!(drained(&mut queue, false), [0u32; 0]);
        queue.savepoint();
        queue.set_modes(&[], false);
        queue.push(event(2, true, true)).expect("room");
        assert_eq!(drained(&mut queue, false), [2, 1]);
        queue.rollback_to(1);
        queue.push(event(3, true, true)).expect("room");
        assert_eq!(drained(&mut queue, false), [0u32; 0], "the mode was undone as well");
        assert_eq!(drained(&mut queue, true), [1, 3]);
    }

    #[test]
    fn nested_savepoints_go_together() {
        let mut queue = AfterQueue::default();
        queue.savepoint();
        queue.push(event(1, true, true)).expect("room");
        drained(&mut queue, false);
        queue.savepoint();
        queue.push(event(2, true, true)).expect("room");
        drained(&mut queue, false);
        queue.release(1);
        queue.rollback_to(1);
        assert!(!queue.has_any());
        queue.push(event(4, true, true)).expect("room");
        drained(&mut queue, false);
        queue.release(1);
        assert_eq!(drained(&mut queue, true), [4]);
    }
}
