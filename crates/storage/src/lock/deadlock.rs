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
use super::mode::LockMode;
use super::owner::LockOwner;
use super::queue::{LockHead, Woken};
use super::tag::LockTag;
use super::wait::{WAITING, WaitNode};
use crate::ids::Xid;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, MutexGuard};
use hashbrown::{HashMap, HashSet};
use std::time::Duration;

/// Whether any of a set of waits can be part of a cycle: one look for all of them, with time and
/// memory in proportion to what waits, however many stand in one queue.
///
/// It needs no report, so it may leave edges out that lead nowhere new: behind a waiter ahead that
/// wants the same mode, which excludes itself, lies everybody else who is in the way.
struct QuickLook<'a> {
    /// Waiters by number of their owner: their edges.
    edges: HashMap<u32, Vec<u32>>,
    scene: &'a Scene<'a>,
}

impl<'a> QuickLook<'a> {
    fn new(scene: &'a Scene<'a>) -> Self {
        let mut look = QuickLook { edges: HashMap::new(), scene };
        for (tag, head) in scene.partitions.iter().flat_map(|p| p.iter()) {
            match tag {
                LockTag::Xid(xid) => look.add_ends(*xid, head),
                _ => look.add_queue(head),
            }
        }
        look
    }

    fn add_ends(&mut self, xid: Xid, head: &LockHead) {
        let Some(holder) = self.scene.holders.get(&xid) else { return };
        for node in head.queue.iter() {
            self.edges.insert(node.owner.id(), vec![holder.id()]);
        }
    }

    fn add_queue(&mut self, head: &LockHead) {
        // Positions of those ahead, by mode.
        let mut ahead: [Vec<usize>; 9] = Default::default();
        for (at, node) in head.queue.iter().enumerate() {
            let conflicts = node.mode.conflicts();
            let mut edges: Vec<u32> = head
                .grants
                .iter()
                .filter(|g| g.modes.meets(conflicts) && g.owner != node.owner)
                .map(|g| g.owner.id())
                .collect();
            let excludes_itself = |mode: LockMode| mode.conflicts().has(mode);
            let same = ahead[node.mode as usize].last().filter(|_| excludes_itself(node.mode));
            let from = same.copied().unwrap_or(0);
            for mode in LockMode::ALL.into_iter().filter(|mode| conflicts.has(*mode)) {
                let list = &ahead[mode as usize];
                let first = match excludes_itself(mode) {
                    true => list.len().saturating_sub(1),
                    false => list.partition_point(|position| *position < from),
                };
                edges.extend(list[first..].iter().map(|p| head.queue[*p].owner.id()));
            }
            self.edges.insert(node.owner.id(), edges);
            ahead[node.mode as usize].push(at);
        }
    }

    /// Depth first, each waiter once; a way back into the path is a cycle. No recursion.
    fn finds_cycle(&self) -> bool {
        // What is known of a waiter: on the path, or done with.
        let mut on_path: HashMap<u32, bool> = HashMap::new();
        for start in self.edges.keys() {
            if on_path.contains_key(start) {
                continue;
            }
            let mut path = vec![(*start, 0)];
            on_path.insert(*start, true);
            while let Some((owner, next)) = path.last_mut() {
                let edge = self.edges.get(owner).and_then(|edges| edges.get(*next)).copied();
                *next += 1;
                match edge {
                    None => {
                        on_path.insert(*owner, false);
                        path.pop();
                    }
                    Some(to) => match on_path.get(&to) {
                        Some(true) => return true,
                        Some(false) => {}
                        None => {
                            on_path.insert(to, true);
                            path.push((to, 0));
                        }
                    },
                }
            }
        }
        false
    }
}

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

/// What a look at one wait came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Examined {
    /// It is in no cycle.
    Clear,
    /// It was, until a queue was reordered.
    Reordered,
    Victim,
}

impl LockManager {
    fn scene(&self) -> Scene<'_> {
        let holders = self.xid_holders();
        let partitions = self.lock_everything();
        let mut waits = HashMap::new();
        for node in partitions.iter().flat_map(|p| p.values()).flat_map(|h| h.queue.iter()) {
            waits.insert(node.owner.id(), Arc::clone(node));
        }
        Scene { partitions, waits, holders }
    }

    /// Looks for a cycle through `node`, and breaks it.
    pub(crate) fn examine(&self, node: &Arc<WaitNode>) -> Examined {
        let mut scene = self.scene();
        if node.state() != WAITING {
            return Examined::Clear;
        }
        let mut reordered = false;
        let mut woken = Woken::new();
        let mut victim = false;
        // Each round resolves a cycle or ends; a queue of n waiters has at most n^2 soft edges.
        for _ in 0..1 + scene.waits.len() * scene.waits.len() {
            let Some(cycle) = scene.cycle(node) else { break };
            let freed = match scene.reorder(&cycle) {
                Some(moved) => {
                    reordered = true;
                    moved
                }
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
        match (victim, reordered) {
            (true, _) => Examined::Victim,
            (false, true) => Examined::Reordered,
            (false, false) => Examined::Clear,
        }
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
        if due.is_empty() {
            return 0;
        }
        // The oldest first, as their own timers would go off.
        due.sort_by_key(|node| node.number);
        due.iter().for_each(|node| node.examined.store(true, Ordering::Relaxed));
        let found = self.has_cycle();
        let mut victims = 0;
        for node in &due {
            let outcome = match found {
                true => self.examine(node),
                false => Examined::Clear,
            };
            victims += usize::from(outcome == Examined::Victim);
            self.tell_wait(node, outcome);
        }
        victims
    }

    /// Whether anybody waits in a circle.
    pub(super) fn has_cycle(&self) -> bool {
        let scene = self.scene();
        QuickLook::new(&scene).finds_cycle()
    }
}
