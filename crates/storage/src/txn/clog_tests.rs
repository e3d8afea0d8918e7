//! The commit log in all its forms: in memory, mapped, mapped at start, brought back, truncated.
//! The same answers from each, on a simulated disk and on a real one, and after crashes.

use super::clog::{CommitLog, FILE_XIDS, PAGE_XIDS};
use super::clog_file::CLOG_DIR;
use super::record::{CommitPayload, EndRecord};
use super::testing::TestLog;
use crate::ids::{Lsn, Xid};
use crate::vfs::{Fault, Op, RealVfs, SimDisk, Vfs};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether each xid committed.
type Fates = BTreeMap<u64, bool>;

fn open(vfs: &Arc<dyn Vfs>) -> CommitLog {
    CommitLog::open(Arc::clone(vfs)).expect("open")
}

fn sim(seed: u64) -> (SimDisk, Arc<dyn Vfs>) {
    let disk = SimDisk::new(seed);
    (disk.clone(), Arc::new(disk))
}

fn apply(clog: &CommitLog, fates: &Fates) {
    let last = fates.last_key_value().map_or(3, |(xid, _)| *xid);
    clog.ensure(Xid::new(last)).expect("room");
    for (&xid, &commit) in fates {
        match commit {
            true => clog.set_committed(Xid::new(xid), Lsn::new(64)),
            false => clog.set_aborted(Xid::new(xid)),
        }
    }
}

#[track_caller]
fn check(clog: &CommitLog, fates: &Fates) {
    for (&xid, &commit) in fates {
        let status = clog.settled_status(Xid::new(xid));
        assert_eq!(status.commit().is_some(), commit, "x{xid}: {status:?}");
    }
}

/// Some at every border, in four files and a bit.
fn fates() -> Fates {
    let mut fates = Fates::new();
    for border in (0..5).map(|file| file * FILE_XIDS) {
        for at in [0, 1, 31, 32, 2015, 2016, PAGE_XIDS - 1, PAGE_XIDS, FILE_XIDS - 1] {
            fates.insert(border + at, at % 3 != 0);
        }
    }
    fates.retain(|xid, _| *xid >= 3 && *xid < 4 * FILE_XIDS + 50);
    fates
}

fn write(clog: &CommitLog) {
    clog.write_dirty(&TestLog::new()).expect("write");
}

const SETTLED: Xid = Xid::new(3 * FILE_XIDS + 5);

fn redo(clog: &CommitLog, xid: u64) {
    let record = EndRecord { payload: CommitPayload::default(), children: Vec::new() };
    clog.redo_commit(Xid::new(xid), &record, Lsn::new(72)).expect("redo");
}

#[test]
fn mappings_take_over_from_what_is_settled_and_written() {
    let (disk, vfs) = sim(1);
    let clog = open(&vfs);
    apply(&clog, &fates());
    assert!(clog.map_settled(SETTLED).is_ok_and(|n| n == 0), "nothing was written yet");
    write(&clog);
    assert_eq!(clog.map_settled(Xid::new(FILE_XIDS - 1)).expect("map"), 0, "not settled");
    clog.set_committed(Xid::new(FILE_XIDS + 77), Lsn::new(64));
    assert_eq!(clog.map_settled(SETTLED).expect("map"), 2, "one has a page to be written");
    check(&clog, &fates());
    write(&clog);
    assert_eq!(clog.map_settled(SETTLED).expect("map"), 1);
    assert_eq!(clog.map_settled(SETTLED).expect("map"), 0);
    assert_eq!(clog.mapped_files(), 3);
    check(&clog, &fates());
    assert!(clog.settled_status(Xid::new(FILE_XIDS + 77)).commit().is_some());
    // The pages serve later xids; the old answers stay.
    let later: Fates = (0..90).map(|n| (4 * FILE_XIDS + 1000 + n * PAGE_XIDS, true)).collect();
    apply(&clog, &later);
    check(&clog, &later);
    check(&clog, &fates());
    write(&clog);
    let disk: Arc<dyn Vfs> = Arc::new(disk.crash(5));
    let clog = open(&disk);
    assert_eq!(clog.mapped_files(), 6, "every full file, at start");
    check(&clog, &later);
    check(&clog, &fates());
    let stats = clog.stats();
    assert!(stats.read >= 6 * 32 && stats.hit > 90 && stats.zeroed == 0, "{stats:?}");
}

#[test]
fn a_mapping_that_fails_leaves_the_memory_in_charge() {
    let (disk, vfs) = sim(2);
    let clog = open(&vfs);
    apply(&clog, &fates());
    write(&clog);
    disk.inject(Fault::eio(Op::Map).on("0001"));
    assert!(clog.map_settled(SETTLED).is_err());
    assert_eq!(clog.mapped_files(), 1);
    check(&clog, &fates());
    // Damage between writing and mapping is noticed, and made good from memory.
    disk.corrupt("pg_xact/0002", 3000, 1);
    assert!(clog.map_settled(SETTLED).is_err());
    check(&clog, &fates());
    assert_eq!(clog.write_dirty(&TestLog::new()).expect("write"), 1);
    assert_eq!(clog.map_settled(SETTLED).expect("map"), 1);
    check(&clog, &fates());
    // At start a file whose mapping fails is loaded; damage is an error.
    disk.inject(Fault::eio(Op::Map).on("0001"));
    let again = open(&vfs);
    assert_eq!(again.mapped_files(), 3);
    check(&again, &fates());
    disk.corrupt("pg_xact/0001", 70, 4);
    assert!(CommitLog::open(vfs).is_err());
}

/// A bit may be in a file that nobody synced, or whose sync failed: redo must not trust it.
#[test]
fn what_redo_meets_in_a_mapping_is_written_again() {
    let xid = 2 * FILE_XIDS + 9;
    for seed in 0..20 {
        let (disk, vfs) = sim(seed);
        let clog = open(&vfs);
        apply(&clog, &fates());
        write(&clog);
        clog.set_committed(Xid::new(xid), Lsn::new(72));
        disk.inject(Fault::eio(Op::Sync).on("0002"));
        assert!(clog.write_dirty(&TestLog::new()).is_err());
        // The process dies, the machine lives on: the file reads as it was written.
        let clog = open(&vfs);
        assert_eq!(clog.mapped_files(), 4);
        assert!(clog.settled_status(Xid::new(xid)).commit().is_some());
        redo(&clog, xid);
        redo(&clog, xid + PAGE_XIDS);
        assert_eq!(clog.mapped_files(), 3, "back in memory");
        check(&clog, &fates());
        assert_eq!(clog.write_dirty(&TestLog::new()).expect("write"), 2);
        assert_eq!(clog.map_settled(SETTLED).expect("map"), 1, "a second time");
        check(&clog, &fates());
        let clog = open(&(Arc::new(disk.crash(seed)) as Arc<dyn Vfs>));
        check(&clog, &fates());
        for xid in [xid, xid + PAGE_XIDS] {
            assert!(clog.settled_status(Xid::new(xid)).commit().is_some());
        }
    }
}

#[test]
fn what_lies_beyond_the_next_xid_comes_back_and_is_wiped() {
    let (_, vfs) = sim(3);
    let clog = open(&vfs);
    apply(&clog, &fates());
    write(&clog);
    let clog = open(&vfs);
    let next = 2 * FILE_XIDS + PAGE_XIDS;
    clog.forget_from(Xid::new(next));
    assert_eq!(clog.mapped_files(), 2);
    let mut expected = fates();
    expected.iter_mut().filter(|(xid, _)| **xid >= next).for_each(|(_, commit)| *commit = false);
    check(&clog, &expected);
    clog.set_committed(Xid::new(next), Lsn::new(64));
    assert!(clog.settled_status(Xid::new(next)).commit().is_some(), "handed out again");
}

#[test]
fn truncated_files_answer_committed_whichever_form_they_had() {
    let (disk, vfs) = sim(4);
    let clog = open(&vfs);
    apply(&clog, &fates());
    write(&clog);
    assert_eq!(clog.map_settled(Xid::new(2 * FILE_XIDS)).expect("map"), 2);
    clog.truncate(SETTLED).expect("truncate");
    assert_eq!(disk.list(CLOG_DIR).expect("list"), ["0003", "0004"]);
    assert_eq!(clog.mapped_files(), 0);
    for xid in fates().into_keys().filter(|xid| *xid < 3 * FILE_XIDS) {
        assert!(clog.settled_status(Xid::new(xid)).commit().is_some(), "x{xid}");
    }
    let rest: Fates = fates().into_iter().filter(|(xid, _)| *xid >= 3 * FILE_XIDS).collect();
    check(&clog, &rest);
    redo(&clog, 77);
    assert_eq!(clog.stats().truncates, 1);
    let clog = CommitLog::open_from(vfs, SETTLED).expect("open");
    check(&clog, &rest);
}

/// Power fails after every number of changes to the disk; every time the answers stand that the
/// control file allows for.
#[test]
fn a_crash_at_any_step_of_writing_mapping_and_cutting_loses_nothing() {
    let (disk, vfs) = sim(5);
    let clog = open(&vfs);
    apply(&clog, &fates());
    write(&clog);
    let mut steps = 0;
    loop {
        let base = disk.crash(steps);
        let vfs: Arc<dyn Vfs> = Arc::new(base.clone());
        let clog = open(&vfs);
        redo(&clog, FILE_XIDS + 2);
        base.power_off_after(steps);
        let log = TestLog::new();
        let done = clog.write_dirty(&log).is_ok()
            && clog.map_settled(SETTLED).is_ok()
            && clog.truncate(SETTLED).is_ok();
        for seed in 0..8 {
            let after: Arc<dyn Vfs> = Arc::new(base.crash(seed));
            // As redo from the checkpoint before would have it, if the control file is the old one.
            let cut = disk_list(&after).first().is_none_or(|first| first != "0000");
            let oldest = if cut { SETTLED } else { Xid::FIRST_NORMAL };
            let clog = CommitLog::open_from(Arc::clone(&after), oldest).expect("open");
            redo(&clog, FILE_XIDS + 2);
            let first = if cut { 3 * FILE_XIDS } else { 0 };
            let mut expected = fates();
            expected.insert(FILE_XIDS + 2, true);
            expected.retain(|xid, _| *xid >= first);
            check(&clog, &expected);
            clog.remove_old_files().expect("leftovers");
            assert_eq!(
                disk_list(&after).first().map(String::as_str),
                Some(["0000", "0003"][usize::from(cut)])
            );
        }
        if done {
            break;
        }
        steps += 1;
    }
    assert!(steps > 8, "only {steps} steps");
}

fn disk_list(vfs: &Arc<dyn Vfs>) -> Vec<String> {
    vfs.list(CLOG_DIR).expect("list")
}

/// What happens to the log between two looks at all answers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    /// Up to this file.
    Map(u64),
    Reopen,
    /// Redo of the n-th xid that committed.
    Redo(usize),
    /// More xids.
    Grow(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Write),
        4 => (0u64..6).prop_map(Step::Map),
        2 => Just(Step::Reopen),
        2 => any::<usize>().prop_map(Step::Redo),
        1 => (1u64..3 * PAGE_XIDS).prop_map(Step::Grow),
    ]
}

fn same_answers(vfs: Arc<dyn Vfs>, mut fates: Fates, steps: &[Step]) {
    let mut clog = open(&vfs);
    let mut started = true;
    apply(&clog, &fates);
    for step in steps {
        match *step {
            Step::Write => write(&clog),
            Step::Map(file) => {
                let last = fates.last_key_value().map_or(0, |(xid, _)| *xid);
                let settled = (file * FILE_XIDS + 1).min(last);
                clog.map_settled(Xid::new(settled)).expect("map");
                started = false;
            }
            Step::Reopen => {
                write(&clog);
                clog = open(&vfs);
                // As recovery does: the file of the next xid is in memory again.
                let next = Xid::new(fates.last_key_value().map_or(3, |(xid, _)| *xid + 1));
                clog.ensure(next).expect("room");
                clog.forget_from(next);
                started = true;
            }
            Step::Redo(n) if started => {
                let committed: Vec<u64> =
                    fates.iter().filter(|(_, c)| **c).map(|(xid, _)| *xid).collect();
                if !committed.is_empty() {
                    redo(&clog, committed[n % committed.len()]);
                }
            }
            Step::Redo(_) => {}
            Step::Grow(by) => {
                let next = fates.last_key_value().map_or(3, |(xid, _)| *xid) + by;
                let more = Fates::from([(next, by % 2 == 0), (next + 1, true)]);
                apply(&clog, &more);
                fates.extend(more);
            }
        }
        check(&clog, &fates);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_form_gives_the_same_answers(
        xids in prop::collection::btree_map(3..4 * FILE_XIDS, any::<bool>(), 1..200),
        steps in prop::collection::vec(step(), 1..12),
    ) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let fates: Fates = xids;
        same_answers(sim(9).1, fates.clone(), &steps);
        same_answers(Arc::new(RealVfs::new(dir.path())), fates, &steps);
    }
}

/// Readers go on while files are mapped and cut: real memory, real threads.
#[test]
fn readers_race_with_mapping_and_cutting_on_a_real_disk() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let clog = open(&(Arc::new(RealVfs::new(dir.path())) as Arc<dyn Vfs>));
    apply(&clog, &fates());
    write(&clog);
    let aborted: Vec<u64> = fates().into_iter().filter(|(_, c)| !c).map(|(xid, _)| xid).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(relaxed) {
                    for (xid, commit) in fates() {
                        // What committed did so in every form; the rest until it is cut.
                        let found = clog.settled_status(Xid::new(xid)).commit().is_some();
                        assert!(found || !commit, "x{xid} is lost");
                    }
                    let kept = aborted.iter().filter(|xid| **xid >= 3 * FILE_XIDS);
                    for xid in kept {
                        assert!(clog.settled_status(Xid::new(*xid)).commit().is_none());
                    }
                }
            });
        }
        for file in 1..=3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(clog.map_settled(Xid::new(file * FILE_XIDS)).expect("map"), 1);
        }
        for file in 1..=3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            clog.truncate(Xid::new(file * FILE_XIDS)).expect("truncate");
        }
        done.store(true, relaxed);
    });
    assert_eq!(std::fs::read_dir(dir.path().join(CLOG_DIR)).expect("list").count(), 2);
}

/// Prints what a look-up costs: `cargo test --lib txn::clog_tests::costs -- --nocapture`.
#[test]
fn costs_of_look_ups() {
    const ROUNDS: u64 = 200_000;
    let dir = tempfile::tempdir().expect("temporary directory");
    let clog = open(&(Arc::new(RealVfs::new(dir.path())) as Arc<dyn Vfs>));
    apply(&clog, &fates());
    let time = |what: &str| {
        let start = std::time::Instant::now();
        for n in 0..ROUNDS {
            let xid = Xid::new(std::hint::black_box(3 + n * 7));
            std::hint::black_box(clog.settled_status(xid));
        }
        println!("{what}: {} ns", start.elapsed().as_nanos() / u128::from(ROUNDS));
    };
    time("a look-up in memory");
    write(&clog);
    assert_eq!(clog.map_settled(SETTLED).expect("map"), 3);
    time("a look-up in a mapping");
}
