//! The pool under the model checker: a few frames, a few pages, many schedules.
//!
//! Checked: a page read is the page asked for, whatever was evicted meanwhile; a change is never
//! lost between eviction and reading again; one reader reads, the others wait and are not
//! forgotten; a frame summary never outlives the change that falsifies it; a waiter for the sole
//! pin is woken.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p inkling-storage --lib buffer::models`. The
//! checker explores sequentially consistent schedules; what weaker memory needs (F1, F2 of
//! `frames.rs`: the tag is stored before `TAGGED` is set with release, and read after a pin that
//! acquires it) is argued there.

use super::frames::{DIRTY, JUST_DIRTIED};
use super::{BufferPool, ExclusiveGuard, Persistence, PoolOptions};
use crate::ids::{Fork, Lsn, PageId, RelId};
use crate::page::PageClass;
use crate::sync::{Arc, thread};
use crate::vfs::{SimDisk, Vfs};

const REL: RelId = RelId::new(1);
const VALUE_AT: usize = 4000;
const SCHEDULES: usize = 3000;

fn pool(frames: usize) -> Arc<BufferPool> {
    let disk = SimDisk::new(1);
    disk.create_dir_all("base").expect("base");
    let options = PoolOptions { frames, ..PoolOptions::default() };
    let pool = BufferPool::new(std::sync::Arc::new(disk), &options);
    pool.create_rel(REL, Persistence::Permanent).expect("create");
    Arc::new(pool)
}

fn set(pool: &BufferPool, mut guard: ExclusiveGuard<'_>, value: u64) {
    let desc = pool.frames().desc(guard.pin().frame_no());
    desc.set(DIRTY | JUST_DIRTIED);
    desc.extras.note_change();
    guard.page_mut().put_u64(VALUE_AT, value);
}

/// Pages that hold their own number times 1000.
fn grow(pool: &BufferPool, pages: u32) {
    for block in 0..pages {
        let mut guard = pool.extend(REL, Fork::Main).expect("extend");
        guard.page_mut().init(PageClass::Fsm, 0);
        set(pool, guard, u64::from(block) * 1000);
    }
}

fn spawn_all(bodies: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = bodies.into_iter().map(|body| thread::spawn(body)).collect();
    threads.into_iter().for_each(|t| t.join().expect("thread"));
}

#[test]
fn shuttle_no_change_is_lost_to_eviction() {
    shuttle::check_random(
        || {
            // Fewer frames than pages, more than threads.
            let pool = pool(4);
            grow(&pool, 6);
            let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
            for worker in 0..3u32 {
                let pool = Arc::clone(&pool);
                bodies.push(Box::new(move || {
                    for step in 0..3u32 {
                        let block = (worker * 2 + step * 5) % 6;
                        let guard = pool.exclusive(PageId::main(REL, block)).expect("exclusive");
                        let old = guard.u64_at(VALUE_AT);
                        assert_eq!(old / 1000, u64::from(block));
                        set(&pool, guard, old + 1);
                        let other = (block + 1) % 6;
                        let guard = pool.share(PageId::main(REL, other)).expect("share");
                        assert_eq!(guard.u64_at(VALUE_AT) / 1000, u64::from(other));
                    }
                }));
            }
            spawn_all(bodies);
            let total: u64 = (0..6)
                .map(|b| pool.share(PageId::main(REL, b)).expect("share").u64_at(VALUE_AT) % 1000)
                .sum();
            assert_eq!(total, 9);
        },
        SCHEDULES,
    );
}

#[test]
fn shuttle_writers_of_pages_and_files_agree() {
    shuttle::check_random(
        || {
            let pool = pool(4);
            grow(&pool, 5);
            let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
            let changer = Arc::clone(&pool);
            bodies.push(Box::new(move || {
                for step in 0..4 {
                    let guard = changer.exclusive(PageId::main(REL, step % 2)).expect("exclusive");
                    let old = guard.u64_at(VALUE_AT);
                    set(&changer, guard, old + 1);
                }
            }));
            let cleaner = Arc::clone(&pool);
            bodies.push(Box::new(move || {
                cleaner.clean_ahead(4, 4, &mut Vec::new()).expect("clean");
                for page in cleaner.mark_dirty_pages(super::DirtyPages::All) {
                    cleaner.write_marked(page).expect("write");
                }
            }));
            let reader = Arc::clone(&pool);
            bodies.push(Box::new(move || {
                for block in [4, 3, 2] {
                    drop(reader.share(PageId::main(REL, block)).expect("share"));
                }
            }));
            spawn_all(bodies);
            pool.flush_rel(REL).expect("flush");
            pool.drop_rel_buffers(REL);
            for block in 0..2 {
                let page = pool.share(PageId::main(REL, block)).expect("share");
                assert_eq!(page.u64_at(VALUE_AT) % 1000, 2, "what reached the file is the newest");
            }
        },
        SCHEDULES,
    );
}

#[test]
fn shuttle_a_summary_never_outlives_the_change_that_falsifies_it() {
    shuttle::check_random(
        || {
            let pool = pool(2);
            grow(&pool, 1);
            let id = PageId::main(REL, 0);
            let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
            for _ in 0..2 {
                let pool = Arc::clone(&pool);
                bodies.push(Box::new(move || {
                    for _ in 0..2 {
                        let page = pool.share(id).expect("share");
                        let seen = page.frame().change_counter();
                        let value = page.u64_at(VALUE_AT);
                        let known = page.frame().summary();
                        // The summary says "the value is this" (plus one: 0 means not known).
                        assert!(!known.is_valid() || known.raw() == 8 * (value + 1));
                        page.frame().set_summary(Lsn::new(8 * (value + 1)), seen);
                    }
                }));
            }
            let writer = Arc::clone(&pool);
            bodies.push(Box::new(move || {
                for value in 1..3 {
                    let guard = writer.exclusive(id).expect("exclusive");
                    set(&writer, guard, value);
                }
            }));
            spawn_all(bodies);
        },
        SCHEDULES,
    );
}

#[test]
fn shuttle_a_waiter_for_the_sole_pin_is_woken() {
    shuttle::check_random(
        || {
            let pool = pool(2);
            grow(&pool, 1);
            let id = PageId::main(REL, 0);
            let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
            for _ in 0..2 {
                let pool = Arc::clone(&pool);
                bodies.push(Box::new(move || {
                    let pin = pool.read(id).expect("pin");
                    let second = pin.clone();
                    drop(pin.share());
                    drop(second);
                }));
            }
            let cleaner = Arc::clone(&pool);
            bodies.push(Box::new(move || {
                let guard = cleaner.read(id).expect("pin").cleanup();
                assert_eq!(guard.u64_at(VALUE_AT), 0);
            }));
            spawn_all(bodies);
        },
        SCHEDULES,
    );
}
