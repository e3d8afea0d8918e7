//! Something to be done at a time, by one thread a database.
//!
//! The thread is started by the first alarm and sleeps until the earliest is due; whoever waits
//! costs an entry here and no thread. `pg_sleep` wakes itself by an alarm, and sessions without a
//! server cancel their statement by one (`statement_timeout`).
//!
//! ```text
//!   set(when, ring) ──> Alarm ── dropped before ──> never rings
//!                         '───── due ─────────────> ring(), once, with no lock held
//! ```
//!
//! An alarm that is dropped at the very moment when it is due may still ring.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Earliest first; the number tells apart those of one instant.
type Key = (Instant, u64);
type Ring = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    due: BTreeMap<Key, Ring>,
    next: u64,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// See the module's essay.
#[derive(Default)]
pub struct Alarms(Arc<Shared>);

/// An alarm that is set, until this is dropped.
pub struct Alarm {
    shared: Arc<Shared>,
    key: Key,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let _unrung = self.shared.state.lock().due.remove(&self.key);
    }
}

impl Alarms {
    /// Calls `ring` at `when`, unless the result is dropped before. `None`: there is no thread to
    /// do it.
    pub fn set(&self, when: Instant, ring: impl FnOnce() + Send + 'static) -> Option<Alarm> {
        let mut state = self.0.state.lock();
        if state.thread.is_none() {
            let shared = Arc::clone(&self.0);
            let named = thread::Builder::new().name("alarms".to_owned());
            state.thread = Some(named.spawn(move || watch(&shared)).ok()?);
        }
        let key = (when, state.next);
        state.next += 1;
        state.due.insert(key, Box::new(ring));
        self.0.changed.notify_all();
        Some(Alarm { shared: Arc::clone(&self.0), key })
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        let thread = {
            let mut state = self.0.state.lock();
            state.stop = true;
            self.0.changed.notify_all();
            state.thread.take()
        };
        // A ring may have held the last reference: then the thread ends by itself.
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            // It only sleeps and rings; a panic of it has nobody to tell.
            let _ended = thread.join();
        }
    }
}

fn watch(shared: &Shared) {
    let mut state = shared.state.lock();
    while !state.stop {
        match state.due.first_key_value().map(|(key, _)| key.0) {
            Some(due) if due <= Instant::now() => {
                if let Some((_, ring)) = state.due.pop_first() {
                    MutexGuard::unlocked(&mut state, ring);
                }
            }
            Some(due) => {
                shared.changed.wait_until(&mut state, due);
            }
            None => shared.changed.wait(&mut state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn alarms_ring_when_they_are_due_and_not_before() {
        let alarms = Alarms::default();
        let (rung, heard) = mpsc::channel();
        let now = Instant::now();
        let set = |millis, name: &'static str| {
            let rung = rung.clone();
            let when = now + Duration::from_millis(millis);
            alarms.set(when, move || rung.send(name).expect("heard")).expect("a thread")
        };
        let _kept = [set(600_000, "later"), set(40, "second"), set(20, "first")];
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok("first"));
        assert!(now.elapsed() >= Duration::from_millis(20));
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok("second"));
        assert!(now.elapsed() >= Duration::from_millis(40));
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn a_dropped_alarm_does_not_ring_and_leaves_nothing() {
        let alarms = Alarms::default();
        let (rung, heard) = mpsc::channel();
        let when = Instant::now() + Duration::from_millis(10);
        let set = |name: &'static str| {
            let rung = rung.clone();
            alarms.set(when, move || rung.send(name).expect("heard")).expect("a thread")
        };
        let (dropped, _kept) = (set("dropped"), set("kept"));
        drop(dropped);
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok("kept"));
        assert!(heard.try_recv().is_err());
        drop(alarms.set(Instant::now() + Duration::from_secs(600), || ()));
        assert!(alarms.0.state.lock().due.is_empty());
    }

    #[test]
    fn ringing_may_set_another() {
        let alarms = Arc::new(Alarms::default());
        let (rung, heard) = mpsc::channel();
        let again = Arc::clone(&alarms);
        let _first = alarms.set(Instant::now(), move || {
            let second = again.set(Instant::now(), move || rung.send(()).expect("heard"));
            std::mem::forget(second);
        });
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(()));
    }
}
