//! Model checks: the counter that lets others pass, the carrying of locks on splits, the window
//! between a commit's publication and its note, and the wake-up of whoever waits for a safe
//! snapshot.
//!
//! Run with `make models`. A page's latch is a mutex here; what is on it, a few flags.

use super::*;
use crate::sync::thread;
use crate::txn::testing::check;

const INDEX: RelId = RelId::new(11);
const TABLE: RelId = RelId::new(10);

#[derive(Default)]
struct Commits(Mutex<(u64, HashMap<Xid, Lsn>)>);

impl Order for Commits {
    fn committed_at(&self, xid: Xid) -> Option<Lsn> {
        self.0.lock().1.get(&xid).copied()
    }
}

impl Commits {
    fn now(&self) -> Lsn {
        Lsn::new(8 * (1 + self.0.lock().0))
    }

    fn publish(&self, xid: Xid) -> Lsn {
        let mut state = self.0.lock();
        state.0 += 1;
        let at = Lsn::new(8 * (1 + state.0));
        state.1.insert(xid, at);
        at
    }
}

#[derive(Default)]
struct World {
    ssi: Ssi,
    order: Commits,
}

impl World {
    /// A transaction that writes under `xid`, and its snapshot.
    fn begin(&self, xid: u64) -> (Sx, Lsn) {
        let mut snapshot = Lsn::INVALID;
        let sx = self.ssi.begin(&self.order, xid as i32, false, &[Xid::new(xid)], || {
            snapshot = self.order.now();
            snapshot
        });
        (sx.expect("a writer is watched"), snapshot)
    }

    fn commit(&self, sx: &Sx, xid: u64) -> Option<Lsn> {
        if self.ssi.prepare(&self.order, sx).is_err() {
            self.ssi.abort(&self.order, sx);
            return None;
        }
        let lsn = self.order.publish(Xid::new(xid));
        thread::yield_now();
        self.ssi.commit(&self.order, sx, lsn);
        Some(lsn)
    }
}

/// Where the key is, and whether it is there.
#[derive(Default)]
struct Leaf {
    split: bool,
    gone: bool,
    present: bool,
}

impl Leaf {
    /// The page that the key belongs to.
    fn page(&self) -> u32 {
        match (self.split, self.gone) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 3,
        }
    }
}

/// A reader of a gap commits while others split the leaf and take the half out again; whoever
/// inserts there must meet the reader, unless the reader saw the key or ended before.
#[test]
fn a_reader_is_met_on_whatever_page_its_range_has_gone_to() {
    check(|| {
        let w = Arc::new(World::default());
        let leaf = Arc::new(Mutex::new(Leaf::default()));
        let spawn = |f: fn(&World, &Mutex<Leaf>) -> (Lsn, bool)| {
            let (w, leaf) = (Arc::clone(&w), Arc::clone(&leaf));
            thread::spawn(move || f(&w, &leaf))
        };
        let reader = spawn(|w, leaf| {
            let (sx, _) = w.begin(1);
            let saw = {
                let leaf = leaf.lock();
                w.ssi.read(&sx, Tag::Page(INDEX, leaf.page())).expect("no victim");
                leaf.present
            };
            (w.commit(&sx, 1).expect("at most one edge"), saw)
        });
        let splitter = spawn(|w, leaf| {
            {
                let mut leaf = leaf.lock();
                leaf.split = true;
                w.ssi.page_split(INDEX, 1, 2);
            }
            let mut leaf = leaf.lock();
            leaf.gone = true;
            w.ssi.page_unlinked(INDEX, 2, 3);
            (Lsn::INVALID, false)
        });
        let (writer, snapshot) = w.begin(2);
        {
            let mut leaf = leaf.lock();
            let tags = [Tag::Page(INDEX, leaf.page())];
            w.ssi.write(&w.order, &writer, &tags, None).expect("no victim");
            leaf.present = true;
        }
        let met = || !w.ssi.state.lock().xacts[&writer.0.id].ins.is_empty();
        let met_at_once = met();
        let (ended, saw) = reader.join().expect("reader");
        splitter.join().expect("splitter");
        assert!(saw || met_at_once || met() || ended <= snapshot, "a read is lost");
        w.ssi.abort(&w.order, &writer);
        assert!(w.ssi.is_idle());
    });
}

/// Structural changes ask the counter only. While somebody's locks outlive its commit, and while
/// it is summarised, the answer may at no moment be "nobody".
#[test]
fn the_counter_is_never_zero_in_between() {
    check(|| {
        let w = Arc::new(World::default());
        w.ssi.configure(Limits { ended: 0, ..Limits::default() });
        let (overlapping, _) = w.begin(9);
        let (reader, _) = w.begin(1);
        w.ssi.read(&reader, Tag::Page(INDEX, 1)).expect("read");
        let ender = {
            let w = Arc::clone(&w);
            thread::spawn(move || {
                w.commit(&reader, 1).expect("no edge");
            })
        };
        for _ in 0..3 {
            assert!(!w.ssi.is_idle(), "there is something to carry");
            thread::yield_now();
        }
        ender.join().expect("ender");
        w.ssi.page_split(INDEX, 1, 2);
        w.ssi.write(&w.order, &overlapping, &[Tag::Page(INDEX, 2)], None).expect("one edge");
        let summary_in = w.ssi.state.lock().xacts[&overlapping.0.id].summary_in;
        assert!(summary_in.is_valid(), "the summarised reader was met on the new page");
        w.ssi.abort(&w.order, &overlapping);
        assert!(w.ssi.is_idle());
    });
}

/// Write skew in every schedule, publication apart from its note: never both, unless one saw the
/// other's write.
#[test]
fn of_two_that_skew_one_commits() {
    check(|| {
        let w = Arc::new(World::default());
        let rows = Arc::new([Mutex::new(None::<u64>), Mutex::new(None::<u64>)]);
        let skew = |me: u64| {
            let (w, rows) = (Arc::clone(&w), Arc::clone(&rows));
            thread::spawn(move || {
                let (sx, snapshot) = w.begin(me);
                let other = usize::from(me == 1);
                let mut saw = false;
                let read = {
                    let written = rows[other].lock();
                    let beyond = written.map(Xid::new).filter(|xid| {
                        let covered = w.order.committed_at(*xid).is_some_and(|l| l <= snapshot);
                        saw = covered;
                        !covered
                    });
                    let row = RowId::new(other as u32, crate::ids::SlotNo::FIRST);
                    w.ssi.read_versions(&w.order, &sx, Some((TABLE, row)), beyond.as_slice())
                };
                let written = read.and_then(|()| {
                    let mine = 1 - other;
                    let row = RowId::new(mine as u32, crate::ids::SlotNo::FIRST);
                    let mut guard = rows[mine].lock();
                    w.ssi.write(&w.order, &sx, &[Tag::Tuple(TABLE, row)], None)?;
                    *guard = Some(me);
                    Ok(())
                });
                if written.is_err() {
                    w.ssi.abort(&w.order, &sx);
                    return (false, saw);
                }
                (w.commit(&sx, me).is_some(), saw)
            })
        };
        let (a, b) = (skew(1), skew(2));
        let ((a, a_saw), (b, b_saw)) = (a.join().expect("a"), b.join().expect("b"));
        assert!(a || b, "one gets through");
        assert!(!(a && b) || a_saw || b_saw, "neither saw the other");
        assert!(w.ssi.is_idle());
    });
}

/// A DEFERRABLE transaction asks, then waits, while the writer ends.
#[test]
fn the_wake_up_of_a_safe_snapshot_is_not_lost() {
    check(|| {
        let w = Arc::new(World::default());
        let (writer, _) = w.begin(1);
        let ender = {
            let w = Arc::clone(&w);
            thread::spawn(move || {
                w.commit(&writer, 1).expect("no edge");
            })
        };
        let reader = w.ssi.begin(&w.order, 7, true, &[], || w.order.now());
        if let Some(reader) = &reader {
            loop {
                match w.ssi.safety(reader) {
                    Safety::Safe => break,
                    Safety::Unsafe => panic!("nothing committed before its snapshot"),
                    Safety::Wait(handle) => {
                        while !handle.is_ready() {
                            thread::yield_now();
                        }
                    }
                }
            }
        }
        ender.join().expect("ender");
        assert!(w.ssi.is_idle());
    });
}
