//! The sessions of this server: who they are, and how to interrupt them.
//!
//! A session's process id is a number of ours, unique while it lives. A CancelRequest must name
//! it together with the secret that only its client was told.

use inkling_sql::session::{CancelFlag, CancelReason};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

struct Entry {
    secret: i32,
    cancel: Arc<CancelFlag>,
}

/// See the module's essay.
#[derive(Default)]
pub struct Registry {
    next: AtomicU32,
    count: AtomicI32,
    entries: Mutex<HashMap<i32, Entry>>,
}

/// A session's place in the registry, given back when dropped.
pub struct Registered {
    registry: Arc<Registry>,
    pub pid: i32,
    pub secret: i32,
    pub cancel: Arc<CancelFlag>,
}

impl Registry {
    /// Registers a session; `None` when `limit` of them are there already.
    pub fn register(self: &Arc<Self>, limit: usize) -> Option<Registered> {
        let mut entries = self.entries.lock();
        if entries.len() >= limit {
            return None;
        }
        let base = std::process::id() % 1_000_000;
        let pid = loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed) % 0x3000_0000;
            let pid = (base + 1 + n) as i32;
            if !entries.contains_key(&pid) {
                break pid;
            }
        };
        let registered = Registered {
            registry: Arc::clone(self),
            pid,
            secret: random_i32(),
            cancel: CancelFlag::new(),
        };
        let entry = Entry { secret: registered.secret, cancel: Arc::clone(&registered.cancel) };
        entries.insert(pid, entry);
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(registered)
    }

    /// A CancelRequest; one with a wrong secret is ignored.
    pub fn cancel(&self, pid: i32, secret: i32) {
        if let Some(entry) = self.entries.lock().get(&pid)
            && entry.secret == secret
        {
            entry.cancel.request(CancelReason::User);
        }
    }

    /// Ends every session.
    pub fn terminate_all(&self) {
        for entry in self.entries.lock().values() {
            entry.cancel.request(CancelReason::Terminate);
        }
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed).max(0) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.entries.lock().remove(&self.pid);
        self.registry.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Unpredictable enough to guard a cancel request: from the standard library's seeded hasher.
fn random_i32() -> i32 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u8(0);
    hasher.finish() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_needs_the_secret_and_places_are_given_back() {
        let registry = Arc::new(Registry::default());
        let a = registry.register(1).expect("a place");
        assert!(registry.register(1).is_none());
        registry.cancel(a.pid, a.secret.wrapping_add(1));
        assert!(!a.cancel.is_requested());
        registry.cancel(a.pid, a.secret);
        assert!(a.cancel.is_requested());
        drop(a);
        assert!(registry.register(1).is_some());
    }
}
