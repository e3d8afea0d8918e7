//! Model checks of the lock-free protocols, under randomly chosen schedules.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p inkling-storage --lib txn::models`. Chunks
//! have two xids here, so that settling and recycling happen within a few transactions.

use super::testing::{START, TestLog, check};
use super::*;
use crate::ids::{Lsn, Xid};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread;

struct World {
    txns: TxnManager,
    log: TestLog,
}

fn world() -> Arc<World> {
    Arc::new(World {
        txns: TxnManager::in_memory(START).expect("a new manager"),
        log: TestLog::new(),
    })
}

impl World {
    fn assign(&self) -> Xid {
        self.txns.assign_xid(None).expect("xid")
    }

    fn commit(&self, top: Xid, children: &[Xid], sync: bool) -> Lsn {
        let payload = CommitPayload { sync, ..CommitPayload::default() };
        self.txns.commit(&self.log, top, children, &payload).expect("room")
    }

    fn commit_new(&self) -> Xid {
        let xid = self.assign();
        self.commit(xid, &[], false);
        xid
    }
}

#[test]
fn a_parent_and_its_child_become_visible_together() {
    check(|| {
        let world = world();
        let (top, child) = (world.assign(), world.assign());
        let committer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.commit(top, &[child], false))
        };
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let slot = world.txns.session_slot();
                for _ in 0..2 {
                    let snapshot = world.txns.snapshot(&slot);
                    let sees = |xid| snapshot.sees(&world.txns, xid);
                    let (first, second) = (sees(child), sees(top));
                    assert_eq!(first, second, "one instant for both");
                    assert_eq!(sees(child), first, "a verdict never changes");
                }
            })
        };
        let lsn = committer.join().expect("committer");
        reader.join().expect("reader");
        assert_eq!(world.txns.published(), lsn);
    });
}

#[test]
fn what_is_committed_now_is_in_the_next_snapshot() {
    check(|| {
        let world = world();
        let xid = world.assign();
        let committer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.commit(xid, &[], false);
            })
        };
        let slot = world.txns.session_slot();
        let now = world.txns.status(xid);
        let snapshot = world.txns.snapshot(&slot);
        if now.is_final() {
            assert!(snapshot.sees(&world.txns, xid));
        }
        committer.join().expect("committer");
    });
}

#[test]
fn no_accepted_snapshot_is_below_a_horizon() {
    check(|| {
        let world = world();
        let accepted = Arc::new(AtomicU64::new(0));
        let committer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.commit_new();
                world.commit_new();
            })
        };
        let reader = {
            let (world, accepted) = (Arc::clone(&world), Arc::clone(&accepted));
            thread::spawn(move || {
                let slot = world.txns.session_slot();
                for _ in 0..2 {
                    let snapshot = world.txns.snapshot(&slot);
                    assert!(world.txns.stats().horizon <= snapshot.s);
                    accepted.store(snapshot.s.raw(), Ordering::SeqCst);
                    thread::yield_now();
                    assert!(world.txns.stats().horizon <= snapshot.s);
                    accepted.store(0, Ordering::SeqCst);
                    slot.advance(None);
                }
            })
        };
        let mut last = Lsn::INVALID;
        for _ in 0..3 {
            let horizon = world.txns.horizon();
            let held = accepted.load(Ordering::SeqCst);
            assert!(held == 0 || horizon.raw() <= held, "{horizon} beyond {held:#x}");
            assert!(horizon >= last, "a horizon only grows");
            last = horizon;
        }
        committer.join().expect("committer");
        reader.join().expect("reader");
    });
}

/// Commits are between their words and their publication while another thread moves the floor.
#[test]
fn everything_below_a_floor_has_ended_and_is_covered() {
    check(|| {
        let world = world();
        let committer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.commit_new();
                let aborted = world.assign();
                world.txns.abort(&world.log, aborted, &[], &CommitPayload::default());
                world.commit_new();
            })
        };
        let mover = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..3 {
                    world.txns.maintain(world.log.flushed_to());
                }
            })
        };
        let slot = world.txns.session_slot();
        for _ in 0..4 {
            let snapshot = world.txns.snapshot(&slot);
            for raw in Xid::FIRST_NORMAL.raw()..snapshot.floor.raw() {
                match world.txns.status(Xid::new(raw)) {
                    XidStatus::InProgress => panic!("x{raw} runs below {:?}", snapshot.floor),
                    XidStatus::Aborted => {}
                    XidStatus::Committed(stamp) => {
                        assert!(snapshot.covers(stamp), "x{raw} at {stamp:?}, {snapshot:?}");
                    }
                }
            }
        }
        committer.join().expect("committer");
        mover.join().expect("mover");
    });
}

/// F3: what is not flushed is not below a floor, unless nobody was promised anything.
#[test]
fn no_floor_passes_an_undurable_promise() {
    check(|| {
        let world = world();
        let promised = world.assign();
        let committer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.commit(promised, &[], true);
                world.commit_new();
                let durable_before = world.log.flushed_to();
                world.txns.maintain(durable_before);
            })
        };
        for _ in 0..3 {
            assert!(world.txns.floor() <= promised);
        }
        committer.join().expect("committer");
        assert_eq!(world.txns.floor(), promised);
        world.log.flush_all();
        world.txns.maintain(world.log.flushed_to());
        assert!(world.txns.floor() > promised);
    });
}

/// One thread ends transactions and drops their chunks, which are recycled for later ones; the
/// other goes on asking about the early ones.
#[test]
fn settling_and_recycling_change_no_answer() {
    check(|| {
        let world = world();
        // x3 shares its chunk with x2; x4 and x5 fill one.
        let (a, b, c) = (world.assign(), world.assign(), world.assign());
        world.commit(a, &[], false);
        let slot = world.txns.session_slot();
        let old = world.txns.snapshot(&slot);
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.commit(b, &[], false);
                world.txns.abort(&world.log, c, &[], &CommitPayload::default());
                world.log.flush_all();
                for _ in 0..4 {
                    world.commit_new();
                    world.log.flush_all();
                    world.txns.maintain(world.log.flushed_to());
                }
            })
        };
        while world.txns.next_xid().raw() < b.raw() + 4 {
            assert!(old.sees(&world.txns, a));
            assert!(!old.sees(&world.txns, b), "committed later than the snapshot");
            thread::yield_now();
        }
        let new = world.txns.snapshot(&slot);
        let seen = new.sees(&world.txns, b);
        for _ in 0..2 {
            assert!(new.sees(&world.txns, a));
            assert!(!new.sees(&world.txns, c), "aborted");
            assert_eq!(new.sees(&world.txns, b), seen, "a verdict never changes");
        }
        slot.advance(None);
        writer.join().expect("writer");
        assert!(world.txns.status(b).commit().is_some());
        assert_eq!(world.txns.status(c), XidStatus::Aborted);
    });
}

/// The raw table: a reader must never take a word of a chunk's next life for one of its last.
#[test]
fn a_recycled_chunk_is_never_mistaken() {
    check(|| {
        let table = Arc::new(window::WordTable::<2, ()>::new(0));
        table.create(0, |_| ()).expect("room");
        if let window::Found::Here(chunk) = table.chunk(0) {
            chunk.word(0).store(7, Ordering::Release);
        }
        let recycler = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                for number in 0..3 {
                    table.drop_chunk(number);
                    table.create(number + 1, |_| ()).expect("room");
                    if let window::Found::Here(chunk) = table.chunk(number + 1) {
                        chunk.word(0).store(100 + number, Ordering::Release);
                    }
                }
            })
        };
        for _ in 0..3 {
            match table.load(0, 0) {
                window::Found::Here(word) => assert_eq!(word, 7),
                window::Found::Dropped => {}
                window::Found::Absent => panic!("it was there"),
            }
        }
        recycler.join().expect("recycler");
    });
}

/// A commit log of two full files on a disk: in each xid 5 and xid 70 of the file have committed.
fn two_files() -> Arc<clog::CommitLog> {
    let disk = std::sync::Arc::new(crate::vfs::SimDisk::new(1));
    let clog = clog::CommitLog::open(disk).expect("open");
    clog.grow_to(2 * clog::FILE_PAGES - 1);
    for file in 0..2 {
        for at in [5, 70] {
            clog.set_committed(Xid::new(file * clog::FILE_XIDS + at), START);
        }
    }
    clog.write_dirty(&TestLog::new()).expect("write");
    Arc::new(clog)
}

fn committed(clog: &clog::CommitLog, xid: u64) -> bool {
    clog.settled_status(Xid::new(xid)).commit().is_some()
}

/// A mapping takes over from pages that are at once given to later xids.
#[test]
fn no_reader_notices_that_a_mapping_takes_over() {
    check(|| {
        let clog = two_files();
        let mapper = {
            let clog = Arc::clone(&clog);
            thread::spawn(move || {
                assert_eq!(clog.map_settled(Xid::new(clog::FILE_XIDS)).expect("map"), 1);
                let next = 2 * clog::FILE_PAGES;
                clog.grow_to(next);
                // The same places of the next life, with the opposite answers.
                for at in [6, 71] {
                    clog.set_committed(Xid::new(next * clog::PAGE_XIDS + at), START);
                }
            })
        };
        // The mapping is verified for long before it takes over.
        loop {
            let mapped = clog.mapped_files() == 1;
            assert!(committed(&clog, 5) && committed(&clog, 70));
            assert!(!committed(&clog, 6) && !committed(&clog, 71));
            if mapped {
                break;
            }
        }
        mapper.join().expect("mapper");
        assert_eq!(clog.mapped_files(), 1);
        assert!(committed(&clog, 5) && !committed(&clog, 6));
    });
}

/// A file goes, from memory or from under its mapping, while somebody still asks about it.
#[test]
fn a_reader_of_a_truncated_file_is_told_committed_from_then_on() {
    for mapped in [false, true] {
        check(move || {
            let clog = two_files();
            if mapped {
                assert_eq!(clog.map_settled(Xid::new(clog::FILE_XIDS)).expect("map"), 1);
            }
            let cutter = {
                let clog = Arc::clone(&clog);
                thread::spawn(move || {
                    clog.truncate(Xid::new(clog::FILE_XIDS + 1)).expect("truncate");
                    clog.grow_to(2 * clog::FILE_PAGES);
                })
            };
            let mut gone = false;
            for round in 0.. {
                if gone && round > 3 {
                    break;
                }
                assert!(committed(&clog, 5) && committed(&clog, 70), "in every form");
                let now = committed(&clog, 6);
                assert!(now || !gone, "it does not come back");
                gone = now;
                let kept = clog::FILE_XIDS;
                assert!(committed(&clog, kept + 5) && !committed(&clog, kept + 6));
            }
            cutter.join().expect("cutter");
            assert!(committed(&clog, 6));
        });
    }
}
