//! `log_lock_waits`: what the server's log says of waits that last.
//!
//! ```text
//!   LOG:  process 7 still waiting for ShareLock on transaction 801 after 1000.123 ms
//!   DETAIL:  Process holding the lock: 5. Wait queue: 7.
//!   LOG:  process 7 acquired ShareLock on transaction 801 after 2500.456 ms
//! ```
//!
//! Said by the detector when it looks at a wait, that is after `deadlock_timeout`, for owners whose
//! session has the setting on. A wait that was cancelled after that is not spoken of again; the
//! statement's own error is.

use super::deadlock::Examined;
use super::manager::LockManager;
use super::tag::LockTag;
use super::wait::{GRANTED, WAITING, WaitNode};
use crate::sync::Arc;
use std::sync::atomic::Ordering;

/// Takes a line for the log and one of detail.
pub type WaitLog = dyn Fn(&str, Option<&str>) + Send + Sync;

fn list(pids: &[i32]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl LockManager {
    /// Where lines about waits go. Once.
    pub fn set_wait_log(&self, log: Box<WaitLog>) {
        // A second one would be for the same engine, and say the same.
        let _first_stays = self.0.wait_log.set(log);
    }

    fn line(&self, node: &WaitNode, what: &str, end: &str) -> String {
        let after = node.since.elapsed();
        let database = self.0.database.load(Ordering::Relaxed);
        format!(
            "process {} {what} {} on {}{end} after {}.{:03} ms",
            node.owner.pid(),
            node.mode,
            node.tag.describe(database),
            after.as_millis(),
            after.as_micros() % 1000
        )
    }

    /// The detector has looked at a wait that lasts.
    pub(super) fn tell_wait(&self, node: &Arc<WaitNode>, outcome: Examined) {
        if !node.owner.tells_waits() {
            return;
        }
        let Some(log) = self.0.wait_log.get() else { return };
        let detail = self.detail(node);
        let tell = |what, end| log(&self.line(node, what, end), Some(&detail));
        match outcome {
            Examined::Victim => return tell("detected deadlock while waiting for", ""),
            Examined::Reordered => {
                tell("avoided deadlock for", " by rearranging queue order");
            }
            Examined::Clear => {}
        }
        if node.state() == WAITING {
            node.told.store(true, Ordering::Release);
            tell("still waiting for", "");
        }
    }

    /// A wait is over, and its driver has noticed.
    pub(super) fn tell_granted(&self, node: &WaitNode) {
        if node.told.load(Ordering::Acquire)
            && node.state() == GRANTED
            && let Some(log) = self.0.wait_log.get()
        {
            log(&self.line(node, "acquired", ""), None);
        }
    }

    fn detail(&self, node: &Arc<WaitNode>) -> String {
        let mut holders: Vec<i32> = match node.tag {
            LockTag::Xid(xid) => {
                self.xid_holders().get(&xid).map(|o| o.pid()).into_iter().collect()
            }
            _ => Vec::new(),
        };
        let mut waiters = Vec::new();
        self.with_head(&node.tag, |head| {
            holders.extend(head.grants.iter().map(|grant| grant.owner.pid()));
            waiters.extend(head.queue.iter().map(|node| node.owner.pid()));
        });
        let process = if holders.len() == 1 { "Process" } else { "Processes" };
        let (holders, waiters) = (list(&holders), list(&waiters));
        format!("{process} holding the lock: {holders}. Wait queue: {waiters}.")
    }
}
