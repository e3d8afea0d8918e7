//! `statement_timeout` for sessions that no server watches over: one thread a database, started
//! when the first limit is set, asleep until the earliest deadline.

use inkling_sql::session::{CancelFlag, CancelReason};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Deadlines, earliest first; the number tells apart those of one instant.
type Deadlines = BTreeMap<(Instant, u64), Arc<CancelFlag>>;

#[derive(Default)]
struct State {
    deadlines: Deadlines,
    next: u64,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

/// See the module's essay.
#[derive(Default)]
pub(crate) struct Timer(Arc<(Mutex<State>, Condvar)>);

/// A running limit; dropped when the statement is over.
pub(crate) struct Limit {
    timer: Arc<(Mutex<State>, Condvar)>,
    key: (Instant, u64),
}

impl Timer {
    /// Cancels by `flag` after `limit`, unless the result is dropped before.
    pub fn start(&self, limit: Duration, flag: &Arc<CancelFlag>) -> Limit {
        let mut state = self.0.0.lock();
        let key = (Instant::now() + limit, state.next);
        state.next += 1;
        state.deadlines.insert(key, Arc::clone(flag));
        if state.thread.is_none() {
            let shared = Arc::clone(&self.0);
            let named = thread::Builder::new().name("statement timer".to_owned());
            // Without a thread the limit is looked at by nobody; the statement still works.
            state.thread = named.spawn(move || watch(&shared)).ok();
        }
        self.0.1.notify_all();
        Limit { timer: Arc::clone(&self.0), key }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.timer.0.lock().deadlines.remove(&self.key);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let thread = {
            let mut state = self.0.0.lock();
            state.stop = true;
            self.0.1.notify_all();
            state.thread.take()
        };
        if let Some(thread) = thread {
            // It only sleeps and wakes others; a panic of it has nobody to tell.
            let _ended = thread.join();
        }
    }
}

fn watch(shared: &(Mutex<State>, Condvar)) {
    let mut state = shared.0.lock();
    while !state.stop {
        let now = Instant::now();
        match state.deadlines.first_key_value().map(|(key, _)| key.0) {
            Some(due) if due <= now => {
                if let Some((_, flag)) = state.deadlines.pop_first() {
                    flag.request(CancelReason::StatementTimeout);
                }
            }
            Some(due) => {
                shared.1.wait_until(&mut state, due);
            }
            None => shared.1.wait(&mut state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_strikes_unless_it_is_dropped_in_time() {
        let timer = Timer::default();
        let (quick, slow) = (CancelFlag::new(), CancelFlag::new());
        drop(timer.start(Duration::from_millis(1), &slow));
        let _limit = timer.start(Duration::from_millis(5), &quick);
        let begun = Instant::now();
        while !quick.is_requested() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the limit never struck");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!slow.is_requested());
    }
}
