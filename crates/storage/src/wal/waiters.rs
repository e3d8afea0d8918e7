//! Who waits for the log: for a flush up to a position, for room, or (the writer) for work.
//!
//! - [`FlushQueue`]: sorted by position; a flush wakes exactly the waiters it covers, after the
//!   lock is released.
//! - [`SpaceQueue`]: everybody is woken when room appears, since who fits now is not known here.
//! - [`Sleeper`]: one thread that sleeps and is woken only when it really sleeps.
//!
//! All three follow one rule against lost wake-ups: *announce, then check again, then sleep*; the
//! other side *changes the condition first, then looks for who announced*.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::thread::{self, Thread};
use crate::wait::{Event, WaitHandle};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;

/// Woken together after a lock is released: as many as usually wait at once.
type Wakes = SmallVec<[Event; 32]>;

/// Waiters for a flush, sorted by the position they wait for.
#[derive(Default)]
pub(super) struct FlushQueue {
    waiting: Mutex<VecDeque<(u64, Event)>>,
    /// How many were ever enlisted.
    enlisted: AtomicU64,
}

impl FlushQueue {
    /// Enlists a waiter for `position` unless `settled` says, under the queue's lock, that there
    /// is nothing to wait for.
    ///
    /// A flush stores its result before it takes the lock to wake; so either it finds this
    /// waiter, or `settled` finds the result.
    pub fn enlist(&self, position: u64, settled: impl FnOnce() -> bool) -> Option<WaitHandle> {
        let event = Event::new();
        let handle = event.handle();
        let mut waiting = self.waiting.lock();
        if settled() {
            return None;
        }
        // Commits ask in nearly the order of their positions: the place is at or near the end.
        let at = waiting.iter().rposition(|(other, _)| *other <= position).map_or(0, |i| i + 1);
        waiting.insert(at, (position, event));
        self.enlisted.fetch_add(1, Ordering::Relaxed);
        Some(handle)
    }

    /// Wakes everybody who waits for a position up to `flushed`.
    pub fn wake_covered(&self, flushed: u64) {
        let mut wakes = Wakes::new();
        {
            let mut waiting = self.waiting.lock();
            while waiting.front().is_some_and(|(position, _)| *position <= flushed) {
                wakes.extend(waiting.pop_front().map(|(_, event)| event));
            }
        }
        wakes.iter().for_each(Event::wake);
    }

    /// Wakes everybody: the log has failed.
    pub fn wake_all(&self) {
        let all = std::mem::take(&mut *self.waiting.lock());
        all.iter().for_each(|(_, event)| event.wake());
    }

    pub fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    pub fn enlisted(&self) -> u64 {
        self.enlisted.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Waiters for room in the ring.
#[derive(Default)]
pub(super) struct SpaceQueue {
    count: AtomicUsize,
    waiting: Mutex<Vec<Event>>,
}

impl SpaceQueue {
    /// Announces a waiter, who must try once more before blocking on the handle.
    pub fn enlist(&self) -> WaitHandle {
        let event = Event::new();
        let handle = event.handle();
        let mut waiting = self.waiting.lock();
        waiting.push(event);
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        fence(Ordering::SeqCst);
        handle
    }

    /// Wakes everybody; called after room appeared, by a sequentially consistent change or one
    /// followed by such a fence (`enlist` has its counterpart). One load when nobody waits.
    #[inline]
    pub fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.wake_slow();
        }
    }

    #[cold]
    fn wake_slow(&self) {
        let woken = {
            let mut waiting = self.waiting.lock();
            self.count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        woken.iter().for_each(Event::wake);
    }
}

/// The writer thread's bed.
#[derive(Default)]
pub(super) struct Sleeper {
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Sleeper {
    /// Makes the calling thread the one that sleeps here.
    pub fn adopt(&self) {
        *self.thread.lock() = Some(thread::current());
    }

    /// Wakes the sleeper if it sleeps or is about to. One load when it does not.
    #[inline]
    pub fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.wake_slow();
        }
    }

    #[cold]
    fn wake_slow(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            let thread = self.thread.lock().clone();
            thread.iter().for_each(Thread::unpark);
        }
    }

    /// Announces sleep. Afterwards the caller looks for work once more, then `sleep`s or `stay`s.
    pub fn announce(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Takes the announcement back.
    pub fn stay(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Sleeps until woken; for at most `micros` if given.
    pub fn sleep(&self, micros: Option<u64>) {
        match micros {
            Some(micros) => thread::park_timeout(Duration::from_micros(micros)),
            None => thread::park(),
        }
        self.stay();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_flush_wakes_exactly_the_covered() {
        let queue = FlushQueue::default();
        let mut handles = Vec::new();
        for position in [40, 10, 30, 20, 30] {
            handles.push((position, queue.enlist(position, || false).expect("waits")));
        }
        assert!(queue.enlist(5, || true).is_none());
        queue.wake_covered(30);
        for (position, handle) in &handles {
            assert_eq!(handle.is_ready(), *position <= 30);
        }
        assert!(!queue.is_empty());
        queue.wake_all();
        assert!(queue.is_empty() && handles.iter().all(|(_, handle)| handle.is_ready()));
    }

    #[test]
    fn room_wakes_everybody() {
        let queue = SpaceQueue::default();
        let handles = [queue.enlist(), queue.enlist()];
        queue.wake();
        assert!(handles.iter().all(WaitHandle::is_ready));
    }
}
