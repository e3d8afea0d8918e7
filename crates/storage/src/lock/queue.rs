//! One lockable object: who holds it, who waits for it, and who is next.
//!
//! ```text
//!   holders   A: RowExclusive   B: RowExclusive
//!   queue     C: Share  ->  D: RowExclusive  ->  E: AccessShare
//! ```
//!
//! C waits for A and B. D conflicts with no holder but with C, who was first, so it waits too
//! (otherwise a stream of writers would starve C). E conflicts with nobody and is not in the
//! queue at all. When A and B have gone, C is granted; D when C has gone.
//!
//! A holder that asks for more goes in front of the first waiter that waits for *it*: behind that
//! waiter it would wait for itself.

use super::mode::{LockMode, ModeSet};
use super::owner::LockOwner;
use super::wait::WaitNode;
use crate::sync::Arc;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// One owner's share of an object.
pub(crate) struct Grant {
    pub(crate) owner: LockOwner,
    pub(crate) modes: ModeSet,
}

/// Where a request goes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Now,
    /// Into the queue, before the waiter that is at this position now.
    Queue(usize),
}

/// Waiters in their order, with a count for each mode: who stands behind a thousand others that all
/// want the same need not ask each of them.
#[derive(Default)]
pub(crate) struct WaitQueue {
    nodes: VecDeque<Arc<WaitNode>>,
    modes: [u32; LockMode::ALL.len() + 1],
}

impl std::ops::Deref for WaitQueue {
    type Target = VecDeque<Arc<WaitNode>>;
    fn deref(&self) -> &Self::Target {
        &self.nodes
    }
}

impl WaitQueue {
    /// Before the waiter that is at this position now.
    pub(crate) fn insert(&mut self, at: usize, node: Arc<WaitNode>) {
        self.modes[node.mode as usize] += 1;
        self.nodes.insert(at, node);
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<Arc<WaitNode>> {
        let node = self.nodes.remove(at)?;
        self.modes[node.mode as usize] -= 1;
        Some(node)
    }

    pub(crate) fn into_nodes(self) -> VecDeque<Arc<WaitNode>> {
        self.nodes
    }

    /// The modes that somebody waits for.
    fn wanted(&self) -> impl Iterator<Item = LockMode> {
        LockMode::ALL.into_iter().filter(|mode| self.modes[*mode as usize] > 0)
    }

    fn wanted_set(&self) -> ModeSet {
        self.wanted().fold(ModeSet::EMPTY, ModeSet::with)
    }

    /// Whether nobody in the queue can go on behind waiters for these modes.
    fn is_stopped_by(&self, ahead: ModeSet) -> bool {
        self.wanted().all(|mode| mode.conflicts().meets(ahead))
    }
}

/// The state of one object in the shared table.
#[derive(Default)]
pub(crate) struct LockHead {
    pub(crate) grants: SmallVec<[Grant; 2]>,
    pub(crate) queue: WaitQueue,
}

/// Waiters that were granted; to be woken when the partition is free.
pub(crate) type Woken = SmallVec<[Arc<WaitNode>; 4]>;

impl LockHead {
    pub(crate) fn is_unused(&self) -> bool {
        self.grants.is_empty() && self.queue.is_empty()
    }

    fn modes_of(&self, owner: &LockOwner) -> ModeSet {
        self.grants.iter().find(|g| g.owner == *owner).map_or(ModeSet::EMPTY, |g| g.modes)
    }

    /// Whether somebody else holds what excludes `mode`.
    pub(crate) fn is_held_against(&self, owner: &LockOwner, mode: LockMode) -> bool {
        let conflicts = mode.conflicts();
        self.grants.iter().any(|g| g.modes.meets(conflicts) && g.owner != *owner)
    }

    /// Where a request of `owner` belongs.
    pub(crate) fn place(&self, owner: &LockOwner, mode: LockMode) -> Place {
        let held_against = self.is_held_against(owner, mode);
        let own = self.modes_of(owner);
        if own.is_empty() {
            let free = !held_against && !mode.conflicts().meets(self.queue.wanted_set());
            return if free { Place::Now } else { Place::Queue(self.queue.len()) };
        }
        let mut ahead = ModeSet::EMPTY;
        for (at, waiter) in self.queue.iter().enumerate() {
            if waiter.mode.conflicts().meets(own) {
                let free = !held_against && !mode.conflicts().meets(ahead);
                return if free { Place::Now } else { Place::Queue(at) };
            }
            ahead = ahead.with(waiter.mode);
        }
        if held_against || mode.conflicts().meets(ahead) {
            Place::Queue(self.queue.len())
        } else {
            Place::Now
        }
    }

    pub(crate) fn grant(&mut self, owner: &LockOwner, mode: LockMode) {
        match self.grants.iter_mut().find(|g| g.owner == *owner) {
            Some(grant) => grant.modes = grant.modes.with(mode),
            None => {
                let modes = ModeSet::EMPTY.with(mode);
                self.grants.push(Grant { owner: owner.clone(), modes });
            }
        }
    }

    pub(crate) fn ungrant(&mut self, owner: &LockOwner, mode: LockMode) {
        let Some(at) = self.grants.iter().position(|g| g.owner == *owner) else { return };
        let grant = &mut self.grants[at];
        grant.modes = grant.modes.without(mode);
        if grant.modes.is_empty() {
            self.grants.swap_remove(at);
        }
    }

    /// What `from` holds in this mode is `to`'s from now on.
    pub(crate) fn pass_on(&mut self, from: &LockOwner, to: &LockOwner, mode: LockMode) {
        self.ungrant(from, mode);
        self.grant(to, mode);
    }

    /// Grants whoever can go on now, in order. The caller wakes them.
    pub(crate) fn advance(&mut self, woken: &mut Woken) {
        let mut ahead = ModeSet::EMPTY;
        let mut at = 0;
        while at < self.queue.len() {
            let node = &self.queue[at];
            let blocked =
                node.mode.conflicts().meets(ahead) || self.is_held_against(&node.owner, node.mode);
            if blocked {
                ahead = ahead.with(node.mode);
                at += 1;
                if self.queue.is_stopped_by(ahead) {
                    break;
                }
                continue;
            }
            let Some(node) = self.queue.remove(at) else { break };
            self.grant(&node.owner, node.mode);
            woken.push(node);
        }
    }

    pub(crate) fn position(&self, node: &Arc<WaitNode>) -> Option<usize> {
        self.queue.iter().position(|n| Arc::ptr_eq(n, node))
    }

    /// Whoever keeps the waiter at `at` from going on: holders first, then those ahead of it.
    /// `true` beside an owner says that it is only ahead in the queue.
    pub(crate) fn blockers(&self, at: usize) -> impl Iterator<Item = (&LockOwner, bool)> {
        let node = &self.queue[at];
        let conflicts = node.mode.conflicts();
        let holders = self
            .grants
            .iter()
            .filter(move |g| g.modes.meets(conflicts) && g.owner != node.owner)
            .map(|g| (&g.owner, false));
        let ahead = self
            .queue
            .iter()
            .take(at)
            .filter(move |n| conflicts.has(n.mode) && n.owner != node.owner)
            .map(|n| (&n.owner, true));
        holders.chain(ahead)
    }
}
