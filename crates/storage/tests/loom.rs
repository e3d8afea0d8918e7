//! Model checks of the smallest kernels under weak memory: every execution that the language's
//! memory model allows, not only the interleavings.
//!
//! The kernels are included as source and see loom's atomics where the crate sees the real ones,
//! so what is checked is what runs. Their tests elsewhere (`models.rs`, shuttle) go through longer
//! histories, but in sequentially consistent ones.
//!
//! - Announcing a snapshot against computing the horizon (`txn/slots.rs`): the two fences.
//! - A frame summary against a writer (`buffer/extras.rs`): what a summary says is still so for
//!   whoever reads the page under the latch.
//! - The order of a commit's two stores (`txn/manager.rs`): status word, then published position.
#![allow(dead_code, unused_imports)]

mod sync {
    //! What `crate::sync` offers to the kernels.

    pub use std::sync::Arc;

    pub mod atomic {
        pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
    }

    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }
        pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no holder panics")
        }
    }

    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            RwLock(loom::sync::RwLock::new(value))
        }
        pub fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("no holder panics")
        }
        pub fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("no holder panics")
        }
    }
}

#[path = "../src/buffer/extras.rs"]
mod extras;
#[path = "../src/ids.rs"]
mod ids;
#[path = "../src/txn/slots.rs"]
mod slots;

use extras::FrameExtras;
use ids::Lsn;
use loom::thread;
use slots::SlotRegistry;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Arc, RwLock};

/// No horizon that was returned is ever beyond an accepted snapshot: what the horizon's user threw
/// away, the snapshot's holder does not need.
fn an_accepted_snapshot_is_at_or_after_every_horizon() {
    let registry = Arc::new(SlotRegistry::new(Lsn::new(8)));
    let published = Arc::new(AtomicU64::new(8));
    let slot = registry.register();
    let committer = {
        let (registry, published) = (Arc::clone(&registry), Arc::clone(&published));
        thread::spawn(move || {
            published.store(16, Ordering::Release);
            registry.compute(&published)
        })
    };
    let s = Lsn::new(published.load(Ordering::Acquire));
    let accepted = slot.announce(s);
    let horizon = committer.join().expect("committer");
    if accepted {
        assert!(horizon <= s, "horizon {horizon}, snapshot {s}");
        assert!(registry.compute(&published) <= s);
    }
}

/// The page is a number under a latch. The summary says "8 times the number plus 1".
fn a_summary_is_true_of_the_page_that_is_read_with_it() {
    let page = Arc::new((RwLock::new(0u64), FrameExtras::new()));
    let summarise = |page: &(RwLock<u64>, FrameExtras)| {
        let bytes = page.0.read();
        let seen = page.1.change_counter();
        let known = page.1.summary();
        assert!(!known.is_valid() || known.raw() == 8 * (*bytes + 1), "{known} of {}", *bytes);
        page.1.set_summary(Lsn::new(8 * (*bytes + 1)), seen);
    };
    let reader = {
        let page = Arc::clone(&page);
        thread::spawn(move || summarise(&page))
    };
    let writer = {
        let page = Arc::clone(&page);
        thread::spawn(move || {
            let mut bytes = page.0.write();
            page.1.note_change();
            *bytes += 1;
        })
    };
    summarise(&page);
    reader.join().expect("reader");
    writer.join().expect("writer");
    summarise(&page);
}

/// A snapshot that covers a commit finds its status words, the parent's and the child's.
fn what_is_published_has_its_words_stored() {
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let published = Arc::new(AtomicU64::new(8));
    let committer = {
        let (words, published) = (Arc::clone(&words), Arc::clone(&published));
        thread::spawn(move || {
            for word in words.iter() {
                word.store(16, Ordering::Release);
            }
            published.store(16, Ordering::Release);
        })
    };
    let s = published.load(Ordering::Acquire);
    for word in words.iter() {
        let found = word.load(Ordering::Acquire);
        assert!(s < 16 || found == 16, "the snapshot at {s} found {found}");
    }
    committer.join().expect("committer");
}

fn main() {
    let models: [(&str, fn()); 3] = [
        (
            "an accepted snapshot is at or after every horizon",
            an_accepted_snapshot_is_at_or_after_every_horizon,
        ),
        (
            "a summary is true of the page that is read with it",
            a_summary_is_true_of_the_page_that_is_read_with_it,
        ),
        ("what is published has its words stored", what_is_published_has_its_words_stored),
    ];
    for (name, model) in models {
        loom::model(model);
        println!("{name}: holds");
    }
}
