//! Wakes sleepers: one thread a database, started by the first `pg_sleep`, asleep until the
//! earliest of them is due. A sleeping session costs an entry here and no thread.

use inkling_storage::wait::Event;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

#[derive(Default)]
struct State {
    /// Earliest first; the number tells apart those of one instant.
    due: BTreeMap<(Instant, u64), Event>,
    next: u64,
    /// Who sleeps, for the activity view.
    asleep: Vec<i32>,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

/// See the module's essay.
#[derive(Default)]
pub(super) struct Alarms(Arc<(Mutex<State>, Condvar)>);

/// A session that sleeps, until this is dropped.
pub(super) struct Asleep {
    alarms: Arc<(Mutex<State>, Condvar)>,
    pid: i32,
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.alarms.0.lock().asleep.retain(|pid| *pid != self.pid);
    }
}

impl Alarms {
    /// Shows session `pid` as sleeping.
    pub fn falls_asleep(&self, pid: i32) -> Asleep {
        self.0.0.lock().asleep.push(pid);
        Asleep { alarms: Arc::clone(&self.0), pid }
    }

    pub fn sleepers(&self) -> Vec<i32> {
        self.0.0.lock().asleep.clone()
    }

    /// Wakes `event` at `when`; at once if there is no thread to do it later, so that whoever
    /// sleeps looks at the time itself.
    pub fn set(&self, when: Instant, event: &Event) {
        let mut state = self.0.0.lock();
        if state.thread.is_none() {
            let shared = Arc::clone(&self.0);
            let named = thread::Builder::new().name("alarms".to_owned());
            state.thread = named.spawn(move || watch(&shared)).ok();
        }
        if state.thread.is_none() {
            event.wake();
            return;
        }
        let number = state.next;
        state.next += 1;
        state.due.insert((when, number), event.clone());
        self.0.1.notify_all();
    }
}

impl Drop for Alarms {
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
        match state.due.first_key_value().map(|(key, _)| key.0) {
            Some(due) if due <= now => {
                if let Some((_, event)) = state.due.pop_first() {
                    event.wake();
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
    use std::time::Duration;

    #[test]
    fn sleepers_are_woken_when_they_are_due_and_not_before() {
        let alarms = Alarms::default();
        let (soon, later) = (Event::new(), Event::new());
        let now = Instant::now();
        alarms.set(now + Duration::from_secs(600), &later);
        alarms.set(now + Duration::from_millis(20), &soon);
        assert!(soon.handle().block_for(Duration::from_secs(10)));
        assert!(now.elapsed() >= Duration::from_millis(20));
        assert!(!later.is_woken());
    }
}
