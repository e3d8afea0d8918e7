//! A request that has to wait, as its driver sees it.
//!
//! ```text
//!              grant                    check()
//!   Waiting ──────────> Granted ──────────────────> recorded with the owner
//!      |  \
//!      |   \ detector        check()
//!      |    ──────────> Deadlock ──> error 40P01
//!      | drop
//!      └──────────> Canceled, out of the queue
//! ```
//!
//! The state changes under the mutex of the object's partition. Dropping a [`LockWait`] is how a
//! wait is cancelled, timed out or abandoned: if it still waits it leaves the queue (and whoever
//! it held up goes on), and if it had just been granted, the lock is given back.

use super::deadlock::Examined;
use super::manager::LockManager;
use super::mode::LockMode;
use super::owner::{LockOwner, LockScope};
use super::tag::LockTag;
use crate::StorageError;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Arc, Mutex};
use crate::wait::{Event, WaitHandle};
use std::time::Instant;

pub(crate) const WAITING: u8 = 0;
pub(crate) const GRANTED: u8 = 1;
pub(crate) const DEADLOCK: u8 = 2;
pub(crate) const CANCELED: u8 = 3;

/// A request in a queue.
pub(crate) struct WaitNode {
    pub(crate) owner: LockOwner,
    pub(crate) tag: LockTag,
    pub(crate) mode: LockMode,
    /// Waits have an order: the later one closed the cycle.
    pub(crate) number: u64,
    pub(crate) since: Instant,
    state: AtomicU8,
    pub(crate) event: Event,
    /// The deadlock report, for the victim.
    detail: Mutex<String>,
    /// The detector has looked at this wait.
    pub(crate) examined: std::sync::atomic::AtomicBool,
    /// The log says that it waits: its end is told as well.
    pub(crate) told: std::sync::atomic::AtomicBool,
}

impl WaitNode {
    pub(crate) fn new(owner: &LockOwner, tag: LockTag, mode: LockMode, number: u64) -> Arc<Self> {
        Arc::new(WaitNode {
            owner: owner.clone(),
            tag,
            mode,
            number,
            since: Instant::now(),
            state: AtomicU8::new(WAITING),
            event: Event::new(),
            detail: Mutex::new(String::new()),
            examined: std::sync::atomic::AtomicBool::new(false),
            told: std::sync::atomic::AtomicBool::new(false),
        })
    }

    pub(crate) fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// With the partition held.
    pub(crate) fn set_state(&self, state: u8) {
        self.state.store(state, Ordering::Release);
    }

    /// With the partition held, and the node out of the queue.
    pub(crate) fn make_victim(&self, detail: String) {
        *self.detail.lock() = detail;
        self.set_state(DEADLOCK);
    }
}

/// How a wait stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockCheck {
    /// The lock is held (or the transaction waited for has ended).
    Granted,
    StillWaiting,
    /// Chosen to break a deadlock; the report names the cycle as PostgreSQL does.
    Deadlock(String),
}

impl LockCheck {
    /// `Ok(true)` when granted, `Ok(false)` when still waiting.
    pub fn into_result(self) -> crate::Result<bool> {
        match self {
            LockCheck::Granted => Ok(true),
            LockCheck::StillWaiting => Ok(false),
            LockCheck::Deadlock(detail) => Err(StorageError::Deadlock { detail }),
        }
    }
}

/// What became of a request.
#[must_use]
#[derive(Debug)]
pub enum LockResult {
    Granted,
    /// Wait for the handle, then ask [`LockWait::check`].
    Wait(LockWait),
}

impl LockResult {
    pub fn is_granted(&self) -> bool {
        matches!(self, LockResult::Granted)
    }

    /// Blocks the thread until the lock is held or the wait is a deadlock's victim. For the
    /// embedded driver and for tests; the server awaits the handle.
    pub fn block(self) -> crate::Result<()> {
        let LockResult::Wait(mut wait) = self else { return Ok(()) };
        loop {
            wait.handle().block();
            if wait.check().into_result()? {
                return Ok(());
            }
        }
    }
}

/// A pending request. Dropping it cancels the request.
#[must_use]
pub struct LockWait {
    manager: LockManager,
    node: Arc<WaitNode>,
    scope: LockScope,
    settled: bool,
}

impl LockWait {
    pub(crate) fn new(manager: LockManager, node: Arc<WaitNode>, scope: LockScope) -> Self {
        LockWait { manager, node, scope, settled: false }
    }

    /// Completes when [`Self::check`] has something new to say.
    pub fn handle(&self) -> WaitHandle {
        self.node.event.handle()
    }

    pub fn tag(&self) -> LockTag {
        self.node.tag
    }

    pub fn mode(&self) -> LockMode {
        self.node.mode
    }

    pub fn since(&self) -> Instant {
        self.node.since
    }

    /// Where the wait stands; a grant is taken over by this call.
    pub fn check(&mut self) -> LockCheck {
        match self.node.state() {
            WAITING => LockCheck::StillWaiting,
            GRANTED => {
                if !self.settled {
                    self.settled = true;
                    self.manager.tell_granted(&self.node);
                    self.manager.take_over(&self.node, self.scope);
                }
                LockCheck::Granted
            }
            _ => LockCheck::Deadlock(self.node.detail.lock().clone()),
        }
    }

    /// Looks for a deadlock that this wait is part of; if there is one that no reordering of a
    /// queue resolves, this wait becomes its victim. For drivers that keep their own
    /// `deadlock_timeout`. Returns whether it became a victim.
    pub fn check_deadlock(&self) -> bool {
        self.manager.examine(&self.node) == Examined::Victim
    }

    /// The processes that this one waits for.
    pub fn blockers(&self) -> Vec<i32> {
        self.manager.blocking_pids(self.node.owner.pid())
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        if !self.settled {
            self.manager.abandon(&self.node);
        }
    }
}

impl std::fmt::Debug for LockWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let node = &self.node;
        write!(f, "{:?} waits for {} on {}", node.owner, node.mode, node.tag)
    }
}
