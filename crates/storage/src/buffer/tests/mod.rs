//! Tests of the pool over a real directory: hits, misses, eviction, growth, latches.

mod marks;

use super::frames::{DIRTY, JUST_DIRTIED};
use super::*;
use crate::error::StorageError;
use crate::ids::{Fork, Lsn, PageId, RelId};
use crate::page::{PAGE_SIZE, Page, PageClass};
use crate::vfs::{OpenMode, RealVfs, Vfs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const REL: RelId = RelId::new(16400);

struct Fixture {
    pool: Arc<BufferPool>,
    vfs: Arc<dyn Vfs>,
    _dir: tempfile::TempDir,
}

fn fixture(frames: usize) -> Fixture {
    let dir = tempfile::tempdir().expect("temporary directory");
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs::new(dir.path()));
    vfs.create_dir_all("base").expect("base");
    let pool = Arc::new(pool_over(&vfs, frames));
    pool.create_rel(REL, Persistence::Permanent).expect("create");
    Fixture { pool, vfs, _dir: dir }
}

fn pool_over(vfs: &Arc<dyn Vfs>, frames: usize) -> BufferPool {
    let options = PoolOptions { frames, fsync: false, ..PoolOptions::default() };
    BufferPool::new(Arc::clone(vfs), &options)
}

/// Fills a page with its number, the way the change protocol would: dirty first.
fn fill(pool: &BufferPool, mut guard: ExclusiveGuard<'_>, value: u64) {
    let desc = pool.frames().desc(guard.pin().frame_no());
    desc.set(DIRTY | JUST_DIRTIED);
    desc.extras.note_change();
    guard.page_mut().init(PageClass::Heap, 0);
    guard.page_mut().put_u64(4000, value);
}

fn grow(pool: &BufferPool, blocks: u32) {
    for block in 0..blocks {
        let guard = pool.extend(REL, Fork::Main).expect("extend");
        assert_eq!(guard.id(), PageId::main(REL, block));
        assert!(guard.is_zeroed());
        fill(pool, guard, u64::from(block) * 7);
    }
}

#[test]
fn a_relation_larger_than_the_pool_keeps_every_page() {
    let f = fixture(16);
    grow(&f.pool, 200);
    assert_eq!(f.pool.block_count(REL, Fork::Main).expect("count"), 200);
    for round in 0..3 {
        for block in (0..200).rev() {
            let page = f.pool.share(PageId::main(REL, block)).expect("share");
            assert_eq!(page.u64_at(4000), u64::from(block) * 7, "round {round}");
        }
    }
    let stats = f.pool.stats();
    assert!(stats.evictions > 500 && stats.evict_writes >= 180, "{stats:?}");
    // A second pool sees what reached the files.
    f.pool.flush_rel(REL).expect("flush");
    let again = pool_over(&f.vfs, 16);
    assert_eq!(again.block_count(REL, Fork::Main).expect("count"), 200);
    let page = again.share(PageId::main(REL, 199)).expect("share");
    assert_eq!(page.u64_at(4000), 199 * 7);
}

#[test]
fn a_large_scan_reads_everything_and_pushes_out_little() {
    let f = fixture(200);
    grow(&f.pool, 900);
    f.pool.flush_rel(REL).expect("flush");
    assert!(f.pool.ring_for(50).is_none(), "small tables are worth keeping");
    let hot: Vec<u32> = (0..100).collect();
    for block in hot.iter().cycle().take(600) {
        drop(f.pool.share(PageId::main(REL, *block)).expect("share"));
    }
    let mut ring = f.pool.ring_for(900).expect("a ring");
    for round in 0..2 {
        for block in 0..900 {
            let pin = f.pool.read_through(PageId::main(REL, block), &mut ring).expect("read");
            assert_eq!(pin.share().u64_at(4000), u64::from(block) * 7, "round {round}");
        }
    }
    let kept = |block: &&u32| f.pool.read_resident(PageId::main(REL, **block)).is_some();
    let left = hot.iter().filter(kept).count();
    assert!(left >= 60, "{left} of the pages in use are left");
    // A frame of the ring whose page somebody changes is not the ring's any more.
    let last = PageId::main(REL, 899);
    fill(&f.pool, f.pool.exclusive(last).expect("exclusive"), 1);
    for block in 100..800 {
        drop(f.pool.read_through(PageId::main(REL, block), &mut ring).expect("read"));
    }
    assert_eq!(f.pool.share(last).expect("share").u64_at(4000), 1);
    assert!(f.pool.read_through(PageId::main(REL, 900), &mut ring).is_err(), "beyond the end");
}

#[test]
fn when_everything_is_pinned_the_error_says_so_and_passes() {
    let f = fixture(16);
    grow(&f.pool, 40);
    let pins: Vec<_> = (0..16).map(|b| f.pool.read(PageId::main(REL, b)).expect("pin")).collect();
    let refused = f.pool.read(PageId::main(REL, 20)).map(drop).expect_err("no frame is free");
    assert_eq!(refused.to_string(), "no unpinned buffers available");
    assert!(matches!(refused, StorageError::Resource { .. }));
    assert!(f.pool.extend(REL, Fork::Main).is_err());
    assert_eq!(f.pool.block_count(REL, Fork::Main).expect("count"), 40);
    drop(pins);
    f.pool.read(PageId::main(REL, 20)).map(drop).expect("a frame is free again");
}

#[test]
fn a_flipped_bit_on_disk_is_an_error_that_names_the_block() {
    let f = fixture(16);
    grow(&f.pool, 4);
    f.pool.flush_rel(REL).expect("flush");
    let file = f.vfs.open("base/16400", OpenMode::Open).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 2 * PAGE_SIZE as u64 + 4003).expect("read");
    byte[0] ^= 1;
    file.write_at(&byte, 2 * PAGE_SIZE as u64 + 4003).expect("write");
    let again = pool_over(&f.vfs, 16);
    for _ in 0..2 {
        let err = again.share(PageId::main(REL, 2)).map(drop).expect_err("damaged");
        let text = err.to_string();
        assert!(text.starts_with("invalid page in block 2 of relation base/16400: "), "{text}");
        assert!(text.contains("checksum"), "{text}");
    }
    again.share(PageId::main(REL, 3)).map(drop).expect("its neighbour is well");
    // All frames are still usable: the failed ones were given back.
    let all: Vec<_> = (0..16).map(|_| again.claim().expect("a frame")).collect();
    drop(all);
    // Replay with a full image does not look at the damaged page.
    let guard = again.overwrite(PageId::main(REL, 2)).expect("overwrite");
    assert!(guard.is_zeroed());
}

#[test]
fn a_block_beyond_the_end_does_not_exist() {
    let f = fixture(16);
    grow(&f.pool, 3);
    let err = f.pool.share(PageId::main(REL, 3)).map(drop).expect_err("beyond the end");
    assert!(err.to_string().contains("the file has 3"), "{err}");
    let err = f.pool.share(PageId::main(RelId::new(9), 0)).map(drop).expect_err("no such file");
    assert!(err.to_string().contains("base/9"), "{err}");
    assert_eq!(f.pool.block_count(REL, Fork::Fsm).expect("count"), 0);
    drop(f.pool.extend(REL, Fork::Fsm).expect("other forks come into being"));
    assert_eq!(f.pool.block_count(REL, Fork::Fsm).expect("count"), 1);
}

#[test]
fn truncation_forgets_pages_and_gives_space_back() {
    let f = fixture(32);
    grow(&f.pool, 30);
    f.pool.truncate(REL, Fork::Main, 10).expect("truncate");
    assert_eq!(f.pool.block_count(REL, Fork::Main).expect("count"), 10);
    let len = f.vfs.open("base/16400", OpenMode::Open).and_then(|h| h.len()).expect("len");
    assert_eq!(len, 10 * PAGE_SIZE as u64);
    assert!(f.pool.share(PageId::main(REL, 10)).is_err());
    let guard = f.pool.extend(REL, Fork::Main).expect("extend");
    assert_eq!(guard.id().block, 10);
    assert!(guard.is_zeroed(), "the old page 10 does not come back");
}

#[test]
fn reserved_space_is_not_taken_for_pages() {
    let f = fixture(300);
    grow(&f.pool, 100);
    f.pool.flush_rel(REL).expect("flush");
    let len = f.vfs.open("base/16400", OpenMode::Open).and_then(|h| h.len()).expect("len");
    assert!(len > 100 * PAGE_SIZE as u64, "space is reserved ahead, in chunks");
    let again = pool_over(&f.vfs, 16);
    assert_eq!(again.block_count(REL, Fork::Main).expect("count"), 100);
}

#[test]
fn removal_leaves_no_file_and_no_page() {
    let f = fixture(16);
    grow(&f.pool, 5);
    drop(f.pool.extend(REL, Fork::Vm).expect("vm"));
    f.pool.unlink_rel(REL).expect("unlink");
    assert_eq!(f.vfs.list("base").expect("list"), Vec::<String>::new());
    assert!(f.pool.share(PageId::main(REL, 0)).is_err());
    f.pool.unlink_rel(REL).expect("twice is once");
}

#[test]
fn many_readers_of_a_missing_page_read_it_once() {
    let f = fixture(64);
    grow(&f.pool, 32);
    f.pool.flush_rel(REL).expect("flush");
    let pool = Arc::new(pool_over(&f.vfs, 64));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || {
                for block in 0..32 {
                    let page = pool.share(PageId::main(REL, block)).expect("share");
                    assert_eq!(page.u64_at(4000), u64::from(block) * 7);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("reader"));
    assert_eq!(pool.stats().reads, 32);
}

#[test]
fn cleanup_waits_for_the_last_pin() {
    let f = fixture(16);
    grow(&f.pool, 1);
    let id = PageId::main(REL, 0);
    let reader = f.pool.read(id).expect("pin");
    let mine = f.pool.read(id).expect("pin");
    let Err(mine) = mine.try_cleanup() else { panic!("the reader's pin is in the way") };
    drop(mine);
    let gone = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (pool, gone) = (Arc::clone(&f.pool), Arc::clone(&gone));
        std::thread::spawn(move || {
            let guard = pool.read(id).expect("pin").cleanup();
            assert!(gone.load(Ordering::SeqCst), "cleanup before the reader's pin was gone");
            assert_eq!(guard.u64_at(4000), 0);
        })
    };
    std::thread::sleep(Duration::from_millis(20));
    gone.store(true, Ordering::SeqCst);
    drop(reader);
    waiter.join().expect("waiter");
    assert!(f.pool.read(id).expect("pin").try_cleanup().is_ok());
}

#[test]
fn a_page_changed_during_its_write_stays_dirty() {
    let f = fixture(16);
    grow(&f.pool, 1);
    let (pool, id) = (Arc::clone(&f.pool), PageId::main(REL, 0));
    let inner = Arc::downgrade(&f.pool);
    let calls = AtomicU64::new(0);
    f.pool.set_write_back_hook(Box::new(move |copy, id| {
        assert_eq!(copy.u64_at(4000), calls.fetch_add(1, Ordering::SeqCst));
        // In the middle of the write: the latch is free, the page may change.
        let pool = inner.upgrade().expect("pool");
        let guard = pool.exclusive(id).expect("exclusive");
        fill(&pool, guard, 1);
        Lsn::new(64)
    }));
    assert!(pool.flush_page(id).expect("flush"));
    assert_eq!(pool.share(id).expect("share").u64_at(4000), 1);
    let summary = || pool.share(id).expect("share").frame().summary();
    assert_eq!(summary(), Lsn::INVALID, "what the hook found is not so any more");
    assert!(pool.flush_page(id).expect("flush"), "the change was not written yet");
}

#[test]
fn what_a_writer_learned_stays_with_an_unchanged_page() {
    let f = fixture(16);
    grow(&f.pool, 1);
    let id = PageId::main(REL, 0);
    f.pool.set_write_back_hook(Box::new(|_, _| Lsn::new(64)));
    assert!(f.pool.flush_page(id).expect("flush"));
    assert_eq!(f.pool.share(id).expect("share").frame().summary(), Lsn::new(64));
}

#[test]
fn the_log_goes_first_and_unlogged_pages_do_not_ask() {
    struct Log(AtomicU64);
    impl LogFlush for Log {
        fn flush_to(&self, lsn: Lsn) -> crate::Result<()> {
            self.0.store(lsn.raw(), Ordering::SeqCst);
            if lsn.raw() > 1000 {
                return Err(StorageError::Poisoned { at: lsn, what: "no".to_owned() });
            }
            Ok(())
        }

        fn fail(&self, _: StorageError) {}
    }
    let f = fixture(16);
    let log = Arc::new(Log(AtomicU64::new(0)));
    f.pool.set_log(Arc::clone(&log) as Arc<dyn LogFlush>);
    let stamp = |rel: RelId, lsn: u64| {
        let mut guard = f.pool.extend(rel, Fork::Main).expect("extend");
        guard.page_mut().set_lsn(Lsn::new(lsn));
        let id = guard.id();
        f.pool.frames().desc(guard.pin().frame_no()).set(DIRTY | JUST_DIRTIED);
        guard.page_mut().put_u64(4000, 5);
        id
    };
    let id = stamp(REL, 800);
    f.pool.flush_page(id).expect("flush");
    assert_eq!(log.0.load(Ordering::SeqCst), 800);
    let id = stamp(REL, 1008);
    f.pool.flush_page(id).expect_err("the log could not be flushed");
    let written = pool_over(&f.vfs, 16).block_count(REL, Fork::Main).expect("count");
    assert_eq!(written, 1, "the page did not reach its file");
    let unlogged = RelId::new(16401);
    f.pool.create_rel(unlogged, Persistence::Unlogged).expect("create");
    let id = stamp(unlogged, 5000);
    f.pool.flush_page(id).expect("an unlogged page's LSN means nothing");
}

#[test]
fn concurrent_readers_and_writers_under_constant_eviction() {
    let f = fixture(24);
    grow(&f.pool, 100);
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let pool = Arc::clone(&f.pool);
            std::thread::spawn(move || {
                let mut seed = t * 77 + 1;
                for _ in 0..4000 {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let block = (seed >> 33) as u32 % 100;
                    let id = PageId::main(REL, block);
                    if seed >> 20 & 3 == 0 {
                        let guard = pool.exclusive(id).expect("exclusive");
                        let old = guard.u64_at(4000);
                        assert_eq!(old % 1000, u64::from(block) * 7 % 1000);
                        fill(&pool, guard, old + 1000);
                    } else {
                        let guard = pool.share(id).expect("share");
                        assert_eq!(guard.u64_at(4000) % 1000, u64::from(block) * 7 % 1000);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("worker"));
}

#[test]
fn the_cleaner_leaves_clean_frames_ahead_of_the_hand() {
    let f = fixture(64);
    grow(&f.pool, 200);
    // One turn takes the usage counts off; nothing is pinned.
    let mut pages = Vec::new();
    let mut found = f.pool.clean_ahead(64, 64, &mut pages).expect("clean");
    for block in 0..64 {
        drop(f.pool.read(PageId::main(REL, block)).expect("read"));
        let more = f.pool.clean_ahead(64, 64, &mut pages).expect("clean");
        found.written += more.written;
    }
    assert!(found.written > 0, "{found:?}");
    assert_eq!(f.pool.stats().cleaner_writes, found.written as u64);
    assert_eq!(pages.len(), found.written);
}

/// Not a check of speed (machines differ) but a figure to look at, with `--release --nocapture`.
#[test]
fn cost_of_a_resident_share() {
    let f = fixture(4096);
    grow(&f.pool, 2000);
    let rounds = 300_000u32;
    let mut sum = 0u64;
    let start = Instant::now();
    for n in 0..rounds {
        let block = n.wrapping_mul(2654435761) % 2000;
        let page: &Page = &f.pool.share(PageId::main(REL, block)).expect("share");
        sum = sum.wrapping_add(page.u64_at(0));
    }
    let each = start.elapsed().as_nanos() as f64 / f64::from(rounds);
    println!("pin + share latch + unlatch + unpin: {each:.1} ns ({sum})");
}
