//! One handle for every kind of waiting.
//!
//! No engine call blocks a thread on another transaction. A call that cannot go on returns a
//! [`WaitHandle`]; whoever drives the statement waits and calls again. The server awaits the
//! handle (it is a future), the embedded driver parks its thread ([`WaitHandle::block`]).
//!
//! ```text
//!   executor step ──Wait(h)──> driver ──h.await / h.block()──> executor step again
//!                                          ^
//!   lock release, commit, flush ──wake()───┘
//! ```
//!
//! A handle is a one-shot event: woken once, it stays woken, so a wake-up that comes before
//! the wait is not lost. What the event *means* is for the caller to look up again: a woken
//! waiter re-checks its condition and may wait anew.

use parking_lot::{Condvar, Mutex};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[derive(Default)]
struct State {
    woken: bool,
    wakers: Vec<Waker>,
}

/// The waking side of a one-shot event. Cheap to clone; all clones are the same event.
#[derive(Clone, Default)]
pub struct Event(Arc<(Mutex<State>, Condvar)>);

impl Event {
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes everybody who waits, now and later. Idempotent.
    pub fn wake(&self) {
        let wakers = {
            let mut state = self.0.0.lock();
            state.woken = true;
            std::mem::take(&mut state.wakers)
        };
        self.0.1.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    pub fn is_woken(&self) -> bool {
        self.0.0.lock().woken
    }

    /// A handle that completes when this event is woken.
    pub fn handle(&self) -> WaitHandle {
        WaitHandle(self.clone())
    }

    /// Whether two clones name the same event.
    pub fn same(&self, other: &Event) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event(woken: {})", self.is_woken())
    }
}

/// The waiting side: a future, or something to block a thread on.
#[derive(Clone, Debug)]
pub struct WaitHandle(Event);

impl WaitHandle {
    pub fn is_ready(&self) -> bool {
        self.0.is_woken()
    }

    /// Blocks the calling thread until the event is woken.
    pub fn block(&self) {
        let mut state = self.0.0.0.lock();
        while !state.woken {
            self.0.0.1.wait(&mut state);
        }
    }

    /// Blocks for at most `timeout`; tells whether the event was woken.
    pub fn block_for(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.0.0.0.lock();
        while !state.woken {
            if self.0.0.1.wait_until(&mut state, deadline).timed_out() {
                return state.woken;
            }
        }
        true
    }

    /// The event behind the handle, for a cancel request to wake.
    pub fn event(&self) -> &Event {
        &self.0
    }
}

impl Future for WaitHandle {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.0.0.lock();
        if state.woken {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_wait_is_kept() {
        let event = Event::new();
        let handle = event.handle();
        event.wake();
        handle.block();
        assert!(handle.is_ready());
    }

    #[test]
    fn a_wait_with_a_bound_gives_up() {
        let event = Event::new();
        assert!(!event.handle().block_for(Duration::from_millis(5)));
        let other = event.clone();
        let waker = std::thread::spawn(move || other.wake());
        event.handle().block();
        waker.join().expect("waker thread");
    }
}
