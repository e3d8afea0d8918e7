//! Finding and breaking deadlocks.
//!
//! ```text
//!   A ──waits for──> B: B holds what A wants          hard edge
//!   A ──waits for──> B: B is ahead of A in a queue,   soft edge
//!                       wanting what excludes A's wish
//! ```
//!
//! A cycle of these edges never resolves by itself. Waits are examined once they have lasted for
//! `deadlock_timeout`, each once: a cycle is closed by its youngest wait, whose examination comes
//! last and finds it. If a soft edge of the cycle can be turned around (the waiter may pass the
//! one ahead of it without a new cycle), the queue is reordered and nobody dies; otherwise the
//! examined wait is the victim.
//!
//! The examination holds all partitions, so it sees one moment. Which owner runs which xid is
//! collected before: a transaction that a wait of the cycle waits for was running before the
//! examination began.
//!
//! Waits for rows are waits for a `Tuple` queue or an `Xid`, so they need no case of their own.

use super::manager::{Heads, LockManager, settle_queue, wake};
use super::owner::LockOwner;
use super::queue::Woken;
use super::tag::LockTag;
use super::wait::{WAITING, WaitNode};
use crate::ids::Xid;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, MutexGuard};
use hashbrown::{HashMap, HashSet};
use std::time::Duration;

/// One step of a cycle: who waits, for what, and who is in the way.
#[derive(Clone)]
struct Step {
    node: Arc<WaitNode>,
    blocker: LockOwner,
    /// The blocker only waits ahead of the node.
    soft: bool,
}

/// All waits of one moment.
struct Scene<'a> {
    partitions: Vec<MutexGuard<'a, Heads>>,
    /// What each waiting owner waits for.
    waits: HashMap<u32, Arc<WaitNode>>,
    holders: HashMap<Xid, LockOwner>,
}

impl Scene<'_> {
    fn partition_of(&mut self, node: &Arc<WaitNode>) -> Option<&mut Heads> {
        let at = self.partitions.iter().position(|heads| {
            heads.get(&node.tag).is_some_and(|head| head.position(node).is_some())
        })?;
        Some(&mut self.partitions[at])
    }

    /// Everybody who keeps `node` waiting.
    fn blockers(&self, node: &Arc<WaitNode>) -> Vec<(LockOwner, bool)> {
        if let LockTag::Xid(xid) = node.tag {
            return self.holders.get(&xid).map(|o| (o.clone(), false)).into_iter().collect();
        }
        for heads in &self.partitions {
            if let Some(head) = heads.get(&node.tag)
                && let Some(at) = head.position(node)
            {
                return head.blockers(at).map(|(o, soft)| (o.clone(), soft)).collect();
            }
        }
        Vec::new()
    }

    /// A cycle through `start`, if there is one. Iterative, so depth costs no stack.
    fn cycle(&self, start: &Arc<WaitNode>) -> Option<Vec<Step>> {
        let mut seen = HashSet::new();
        let mut path: Vec<Step> = Vec::new();
        let mut pending = vec![(start.clone(), self.blockers(start))];
        seen.insert(start.owner.id());
        while let Some((node, blockers)) = pending.last_mut() {
            let Some((blocker, soft)) = blockers.pop() else {
                pending.pop();
                path.pop();
                continue;
            };
            let step = Step { node: node.clone(), blocker: blocker.clone(), soft };
            if blocker == start.owner {
                path.push(step);
                return Some(path);
            }
            let Some(next) = self.waits.get(&blocker.id()) else { continue };
            if seen.insert(blocker.id()) {
                path.push(step);
                pending.push((next.clone(), self.blockers(next)));
            }
        }
        None
    }

    /// Moves the node in front of the one that it only queues behind. Returns its old position.
    fn overtake(&mut self, step: &Step) -> Option<usize> {
        let (node, blocker) = (&step.node, &step.blocker);
        let head = self.partition_of(node)?.get_mut(&node.tag)?;
        let from = head.position(node)?;
        let to = head.queue.iter().position(|n| n.owner == *blocker)?;
        if to >= from {
            return None;
        }
        let moved = head.queue.remove(from)?;
        head.queue.insert(to, moved);
        Some(from)
    }

    fn put_back(&mut self, node: &Arc<WaitNode>, at: usize) {
        let Some(heads) = self.partition_of(node) else { return };
        let Some(head) = heads.get_mut(&node.tag) else { return };
        if let Some(now) = head.position(node)
            && let Some(moved) = head.queue.remove(now)
        {
            head.queue.insert(at, moved);
        }
    }

    /// Tries to resolve the cycle by letting one waiter overtake another, without making a cycle
    /// for anybody in that queue. Returns the waiter that moved.
    fn reorder(&mut self, cycle: &[Step]) -> Option<Arc<WaitNode>> {
        for step in cycle.iter().filter(|step| step.soft) {
            let Some(from) = self.overtake(step) else { continue };
            let queue: Vec<_> = self
                .partition_of(&step.node)
                .and_then(|heads| heads.get(&step.node.tag))
                .map(|head| head.queue.iter().cloned().collect())
                .unwrap_or_default();
            let start = &cycle[0].node;
            if self.cycle(start).is_none() && queue.iter().all(|n| self.cycle(n).is_none()) {
                return Some(step.node.clone());
            }
            self.put_back(&step.node, from);
        }
        None
    }
}

fn report(cycle: &[Step], database: u32) -> String {
    let lines: Vec<String> = cycle
        .iter()
        .map(|step| {
            format!(
                "Process {} waits for {} on {}; blocked by process {}.",
                step.node.owner.pid(),
                step.node.mode,
                step.node.tag.describe(database),
                step.blocker.pid()
            )
        })
        .collect();
    lines.join("\n")
}

impl LockManager {
    fn scene(&self) -> Scene<'_> {
        let holders = self.xid_holders();
        let partitions = self.lock_everything();
        let mut waits = HashMap::new();
        for node in partitions.iter().flat_map(|p| p.values()).flat_map(|h| &h.queue) {
            waits.insert(node.owner.id(), Arc::clone(node));
        }
        Scene { partitions, waits, holders }
    }

    /// Looks for a cycle through `node`, and breaks it. True when `node` became the victim.
    pub(crate) fn examine(&self, node: &Arc<WaitNode>) -> bool {
        let mut scene = self.scene();
        if node.state() != WAITING {
            return false;
        }
        let mut woken = Woken::new();
        let mut victim = false;
        // Each round resolves a cycle or ends; a queue of n waiters has at most n^2 soft edges.
        for _ in 0..1 + scene.waits.len() * scene.waits.len() {
            let Some(cycle) = scene.cycle(node) else { break };
            let freed = match scene.reorder(&cycle) {
                Some(moved) => moved,
                None => {
                    victim = true;
                    node.make_victim(report(&cycle, self.0.database.load(Ordering::Relaxed)));
                    self.0.deadlocks.fetch_add(1, Ordering::Relaxed);
                    node.clone()
                }
            };
            if let Some(heads) = scene.partition_of(&freed)
                && let Some(head) = heads.get_mut(&freed.tag)
            {
                if victim {
                    self.unqueue(head, node);
                }
                settle_queue(head, &mut woken);
                if head.is_unused() {
                    heads.remove(&freed.tag);
                }
            }
            for granted in &woken {
                scene.waits.remove(&granted.owner.id());
            }
            if victim || node.state() != WAITING {
                break;
            }
        }
        drop(scene);
        wake(woken);
        if victim {
            node.event.wake();
        }
        victim
    }

    /// Examines every wait that has lasted for `timeout` and was not examined yet. For the
    /// detector's thread. Returns the number of victims.
    pub fn run_deadlock_check(&self, timeout: Duration) -> usize {
        let mut due = Vec::new();
        for partition in &self.0.partitions {
            for head in partition.heads.lock().values() {
                let old = head.queue.iter().filter(|n| n.since.elapsed() >= timeout);
                due.extend(old.filter(|n| !n.examined.load(Ordering::Relaxed)).cloned());
            }
        }
        // The oldest first, as their own timers would go off.
        due.sort_by_key(|node| node.number);
        due.iter()
            .filter(|node| {
                node.examined.store(true, Ordering::Relaxed);
                self.examine(node)
            })
            .count()
    }
}
