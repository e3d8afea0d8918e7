//! Insertion, flushing, failures, housekeeping.

use super::*;
use crate::ids::{PageId, RelId};
use crate::page::PageClass;
use crate::vfs::{Fault, Op, OpenMode, RealVfs, SystemClock};
use std::time::Duration;

#[test]
fn records_come_back_in_order_across_segments() {
    let (disk, wal) = fresh(&small_options());
    let mut ends = Vec::new();
    for xid in 0..300u64 {
        // One record is longer than two segments.
        let len = if xid == 100 { 20_000 } else { (xid * 37 % 500) as usize };
        ends.push(append(&wal, xid, &vec![xid as u8; len]));
    }
    assert_eq!(wal.flushed(), FIRST_LSN);
    wal.flush(wal.inserted()).expect("flush");
    assert_eq!((wal.written(), wal.flushed()), (wal.inserted(), wal.inserted()));
    let records = read_all(&disk, FIRST_LSN);
    assert_eq!(records.iter().map(|r| r.end).collect::<Vec<_>>(), ends);
    assert!(records.iter().zip(0..).all(|(r, xid)| r.xid == Xid::new(xid)));
    // From the middle too.
    assert_eq!(read_all(&disk, ends[150]).len(), 149);
    let stats = wal.stats();
    assert_eq!(stats.records, 300);
    assert_eq!(stats.bytes, wal.inserted().bytes_since(FIRST_LSN));
}

#[test]
fn a_torn_tail_ends_the_log_wherever_it_tears() {
    let (disk, wal) = fresh(&small_options());
    append(&wal, 1, b"first");
    let start = append(&wal, 2, b"second");
    let end = append(&wal, 3, b"the last one, which is torn");
    wal.flush(end).expect("flush");
    let path = segment_path(segment_of(start, 8192), 8192);
    let whole = disk.contents(&path).expect("segment");
    let (from, to) = ((start.raw() % 8192) as usize, (end.raw() % 8192) as usize);
    assert_eq!(read_all(&disk, FIRST_LSN).len(), 3);
    // Padding is not part of the record's sum, so a tear inside it leaves a whole record.
    let unpadded = from + noop(3, b"the last one, which is torn").encoded_len();
    for cut in from..to {
        // What lies behind the tear: nothing, or bytes of a recycled segment.
        for rest in [0u8, 0xA5] {
            let file = disk.open(&path, OpenMode::Open).expect("open");
            let mut torn = whole.clone();
            torn[cut..].fill(rest);
            file.write_at(&torn, 0).expect("write");
            let expected = if cut >= unpadded { 3 } else { 2 };
            let mut reader = reader(&disk, FIRST_LSN);
            let mut found = 0;
            while reader.next().expect("a clean end").is_some() {
                found += 1;
            }
            assert!(found == expected || rest == 0 && found == 3, "cut at {cut}, rest {rest}");
            if found == 3 && expected == 2 {
                // Only where the lost bytes were zeros anyway.
                assert!(whole[cut..unpadded].iter().all(|b| *b == 0));
            }
            if found == 2 {
                assert_eq!(reader.position(), start);
            }
        }
    }
}

#[test]
fn flipped_bits_and_missing_or_swapped_segments_end_the_log() {
    let (disk, wal) = fresh(&small_options());
    for xid in 0..100 {
        append(&wal, xid, &[xid as u8; 300]);
    }
    wal.flush(wal.inserted()).expect("flush");
    let first = segment_of(FIRST_LSN, 8192);
    let path = |n: u64| segment_path(first + n, 8192);
    let count = |disk: &SimDisk| read_all(disk, FIRST_LSN).len() as u64;
    // A record takes 20 + 300 bytes.
    let whole_in = |segments: u64| segments * 8192 / 320;
    assert_eq!(count(&disk), 100);

    let copy = disk.crash(1);
    copy.corrupt(&path(1), 5000, 0x40);
    assert_eq!(count(&copy), (8192 + 5000) / 320);

    let copy = disk.crash(1);
    copy.remove(&path(2)).expect("remove");
    assert_eq!(count(&copy), whole_in(2));

    let copy = disk.crash(1);
    copy.rename(&path(1), "pg_wal/tmp").expect("rename");
    copy.rename(&path(2), &path(1)).expect("rename");
    copy.rename("pg_wal/tmp", &path(2)).expect("rename");
    assert_eq!(count(&copy), whole_in(1));

    let copy = disk.crash(1);
    copy.open(&path(1), OpenMode::Open).expect("open").set_len(1000).expect("cut");
    assert_eq!(count(&copy), (8192 + 1000) / 320);

    let mut end = reader(&disk, FIRST_LSN);
    while end.next().expect("read").is_some() {}
    assert_eq!(end.position(), wal.flushed());
    assert_eq!(end.end_of_log(), Some(EndOfLog::Unused));
}

#[test]
fn a_failing_read_is_an_error_not_an_end() {
    let (disk, wal) = fresh(&small_options());
    wal.flush(append(&wal, 1, b"x")).expect("flush");
    disk.inject(Fault::eio(Op::Read).on("pg_wal/0"));
    assert!(reader(&disk, FIRST_LSN).next().is_err());
    assert_eq!(read_all(&disk, FIRST_LSN).len(), 1);
}

#[test]
fn a_full_disk_is_told_before_anything_happens_and_passes() {
    let (disk, wal) = fresh(&small_options());
    // Room for the current segment and one more.
    disk.set_capacity(Some(2 * 8192));
    let error = loop {
        let before = wal.inserted();
        match try_append(&wal, 1, &[1; 200]) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(wal.inserted(), before);
                break error;
            }
        }
        assert!(wal.inserted().bytes_since(FIRST_LSN) < 3 * 8192, "the disk is never full");
    };
    assert!(matches!(error, StorageError::DiskFull { .. }), "{error}");
    // The margin is left for what must get through.
    let used = wal.inserted().bytes_since(FIRST_LSN);
    assert!(used <= 2 * 8192 - 2048 && used > 2 * 8192 - 2048 - 300, "{used}");
    for _ in 0..5 {
        let record = noop(2, &[2; 100]);
        let room = wal.reserve_essential(record.encoded_len()).expect("the margin");
        wal.insert(&record, room, Lsn::INVALID).expect("no blocks");
    }
    wal.flush(wal.inserted()).expect("flushing needs no space");
    wal.check_poisoned().expect("a full disk is no failure");
    // Space comes back, by old segments going or otherwise.
    disk.set_capacity(None);
    let end = append(&wal, 3, &[3; 3000]);
    wal.flush(end).expect("flush");
    assert_eq!(read_all(&disk, FIRST_LSN).last().map(|r| r.xid), Some(Xid::new(3)));
}

#[test]
fn recycling_ends_a_shortage_of_space() {
    let (disk, wal) = fresh(&small_options());
    disk.set_capacity(Some(3 * 8192));
    while try_append(&wal, 1, &[1; 200]).is_ok() {}
    wal.flush(wal.inserted()).expect("flush");
    wal.remove_segments_before(wal.flushed(), 3 * 8192).expect("recycle");
    assert_eq!(wal.stats().segments_recycled, 2);
    let from = wal.inserted();
    wal.flush(append(&wal, 2, &[2; 4000])).expect("flush");
    assert_eq!(read_all(&disk, from).len(), 1);
}

#[test]
fn a_failed_sync_poisons_until_reopened() {
    let (disk, wal) = fresh(&small_options());
    let first = append(&wal, 1, b"one");
    wal.flush(first).expect("flush");
    disk.inject(Fault::eio(Op::Sync).on("pg_wal/0"));
    let second = append(&wal, 2, b"two");
    let waiting = wal.request_flush(second).expect("not flushed");
    // Without a writer the request itself met the failure.
    assert!(waiting.is_ready());
    for _ in 0..3 {
        // The device works again, but nobody may believe it.
        let error = wal.flush(second).expect_err("poisoned");
        assert!(matches!(error, StorageError::Poisoned { at, .. } if at == first), "{error}");
    }
    assert_eq!(wal.flushed(), first);
    assert!(matches!(wal.reserve(100), Err(StorageError::Poisoned { .. })));
    assert!(wal.check_poisoned().is_err());
    let late = wal.request_flush(second).expect("not flushed");
    assert!(late.is_ready(), "nobody waits for a log that has failed");
    wal.flush(first).expect("what was flushed before stays flushed");
    assert!(wal.shutdown().is_err());
    drop(wal);
    let wal = open_at(&disk, &small_options(), first).expect("reopen");
    let second = append(&wal, 22, b"two again");
    wal.flush(second).expect("flush");
    let xids: Vec<u64> = read_all(&disk, FIRST_LSN).iter().map(|r| r.xid.raw()).collect();
    assert_eq!(xids, [1, 22]);
}

#[test]
fn a_failed_write_poisons_and_wakes_all_who_wait() {
    let options = WalOptions { background_writer: true, ..small_options() };
    let (disk, wal) = fresh(&options);
    disk.inject(Fault::eio(Op::Write).on("pg_wal/0").forever());
    let ends: Vec<Lsn> = (0..8).map(|xid| append(&wal, xid, b"x")).collect();
    let handles: Vec<_> = ends.iter().filter_map(|end| wal.request_flush(*end)).collect();
    assert_eq!(handles.len(), 8);
    for handle in &handles {
        assert!(handle.block_for(Duration::from_secs(20)), "woken by the failure");
    }
    assert!(wal.check_poisoned().is_err());
    assert_eq!(wal.flushed(), FIRST_LSN);
    assert!(wal.flush(wal.inserted()).is_err());
}

#[test]
fn a_moved_redo_point_sends_the_record_back() {
    let (_disk, wal) = fresh(&small_options());
    append(&wal, 1, b"x");
    let seen = wal.redo_point();
    let moved = wal.advance_redo_point();
    assert_eq!(moved, wal.inserted());
    let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::new(2));
    let id = PageId::main(RelId::new(1), 0);
    record.block(id, PageClass::Heap, false, BlockBody::Ops(b"op"));
    let room = wal.reserve(200).expect("room");
    let back = wal.insert(&record, room, seen).expect_err("the redo point moved");
    assert_eq!(back.redo_point, moved);
    assert_eq!(wal.inserted(), moved);
    wal.insert(&record, back.reservation, back.redo_point).expect("now it fits");
    // Records without blocks do not care.
    let room = wal.reserve(200).expect("room");
    wal.insert(&noop(3, b""), room, Lsn::INVALID).expect("no blocks");
}

#[test]
fn reservations_are_given_back() {
    let (_disk, wal) = fresh(&small_options());
    let all = 64 << 10;
    for _ in 0..3 {
        let room = wal.reserve(all).expect("the whole ring");
        assert_eq!(room.bytes(), all);
        drop(room);
    }
    let room = wal.reserve(all).expect("the whole ring");
    wal.insert(&noop(1, b"small"), room, Lsn::INVALID).expect("insert");
    wal.flush(wal.inserted()).expect("flush");
    drop(wal.reserve(all).expect("the whole ring again"));
    let error = wal.reserve(all + 8).expect_err("longer than the ring");
    assert!(matches!(error, StorageError::Limit { .. }), "{error}");
}

#[test]
fn a_full_ring_is_emptied_by_whoever_needs_room() {
    let (disk, wal) = fresh(&small_options());
    for xid in 0..1000 {
        append(&wal, xid, &[xid as u8; 400]);
    }
    assert!(wal.written() > FIRST_LSN && wal.flushed() == FIRST_LSN);
    wal.flush(wal.inserted()).expect("flush");
    assert_eq!(read_all(&disk, FIRST_LSN).len(), 1000);
}

#[test]
fn positions_beyond_the_log_are_damage() {
    let (_disk, wal) = fresh(&small_options());
    let beyond = wal.inserted().advance(8);
    assert!(matches!(wal.flush(beyond), Err(StorageError::Corrupt { .. })));
    assert!(matches!(wal.try_flush_inline(beyond), Err(StorageError::Corrupt { .. })));
    assert!(wal.request_flush(wal.inserted()).is_none());
    let bad = WalOptions { segment_size: 10_000, ..small_options() };
    assert!(open_at(&SimDisk::new(1), &bad, FIRST_LSN).is_err());
    assert!(open_at(&SimDisk::new(1), &small_options(), Lsn::new(3)).is_err());
}

#[test]
fn the_writer_flushes_in_time_for_the_earliest_deadline() {
    let disk = SimDisk::new(1);
    let clock = Arc::new(SimClock::new());
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let wal = Wal::open(vfs, clock.clone(), small_options(), FIRST_LSN).expect("open");
    while wal.run_writer_once().expect("prepares a segment") {}
    let first = append(&wal, 1, b"x");
    wal.note_async_commit(first, 900_000);
    let second = append(&wal, 2, b"y");
    wal.note_async_commit(second, 100_000);
    // No sooner than a flush may take, as far as is known.
    let begin = 100_000 - wal.flush_lead_micros();
    assert!(begin > 80_000);
    clock.advance(begin - 1);
    assert!(!wal.run_writer_once().expect("nothing due"));
    assert_eq!(wal.flushed(), FIRST_LSN);
    clock.advance(1);
    assert!(wal.run_writer_once().expect("flush"));
    assert_eq!(wal.flushed(), second);
    // The other deadline went with it.
    clock.advance(900_000);
    assert!(!wal.run_writer_once().expect("nothing due"));
    assert_eq!(wal.stats().syncs, 1);
}

/// A log on a disk whose syncs of the log take a time that the test sets.
fn slow_log(options: WalOptions) -> (Arc<Wal>, Arc<SimClock>, Arc<AtomicU64>) {
    let disk = SimDisk::new(1);
    let clock = Arc::new(SimClock::new());
    let takes = Arc::new(AtomicU64::new(0));
    let (passing, time) = (Arc::clone(&clock), Arc::clone(&takes));
    disk.watch_syncs(Box::new(move |path| {
        if parse_segment_name(&path[WAL_DIR.len() + 1..], 8192).is_some() {
            passing.advance(time.load(Ordering::Relaxed));
        }
    }));
    let wal = Wal::open(Arc::new(disk), clock.clone(), options, FIRST_LSN).expect("open");
    while wal.run_writer_once().expect("prepares a segment") {}
    (wal, clock, takes)
}

#[test]
fn a_flush_ends_by_its_deadline_and_is_told_of_when_it_does_not() {
    let (wal, clock, takes) = slow_log(small_options());
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    wal.on_late_flush(Box::new(move |late| listener.lock().push(late)));
    takes.store(30_000, Ordering::Relaxed);
    for xid in 0..50 {
        wal.flush(append(&wal, xid, b"learning")).expect("flush");
    }
    assert!((30_000..40_000).contains(&wal.flush_lead_micros()));
    let promise = || {
        let end = append(&wal, 100, b"promised");
        let deadline = clock.monotonic_micros() + 100_000;
        wal.note_async_commit(end, deadline);
        while wal.flushed() < end {
            clock.advance(500);
            wal.run_writer_once().expect("flush");
        }
        (end, deadline, clock.monotonic_micros())
    };
    let (_, deadline, ended) = promise();
    assert!(ended <= deadline && ended + 10_000 > deadline, "{ended} for {deadline}");
    assert!(told.lock().is_empty());
    // The device becomes slower than it ever was.
    takes.store(80_000, Ordering::Relaxed);
    let before = wal.flushed();
    let (end, deadline, ended) = promise();
    assert!(ended > deadline);
    assert_eq!(*told.lock(), [LateFlush { from: before, to: end, deadline, ended }]);
    // Now that it is known to be slow, deadlines are kept again.
    let (_, deadline, ended) = promise();
    assert!(ended <= deadline);
    assert_eq!(told.lock().len(), 1);
}

#[test]
fn preparing_a_segment_gives_way_to_a_near_deadline() {
    let (wal, clock, _) = slow_log(WalOptions { init_zero: true, ..small_options() });
    // Into the next segment: another one is wanted.
    wal.flush(append(&wal, 1, &[0; 8000])).expect("flush");
    let end = append(&wal, 2, &[0; 1000]);
    let created = wal.stats().segments_created;
    wal.note_async_commit(end, clock.monotonic_micros() + wal.flush_lead_micros() + 10_000);
    assert!(!wal.run_writer_once().expect("sleeps until the flush"));
    clock.advance(10_000);
    assert!(wal.run_writer_once().expect("flush"));
    assert_eq!((wal.flushed(), wal.stats().segments_created), (end, created));
    while wal.run_writer_once().expect("prepares") {}
    assert_eq!(wal.stats().segments_created, created + 1);
    // With little room left it does not: others would have to make the segment themselves.
    let end = append(&wal, 3, &[0; 5000]);
    assert!(wal.shared.kernel.disk_end() - end.raw() > 8192, "one is ready");
    let last = append(&wal, 4, &[0; 8192 - 1000]);
    assert!(wal.shared.kernel.disk_end() - last.raw() < 4096);
    wal.note_async_commit(last, clock.monotonic_micros() + wal.flush_lead_micros() + 10_000);
    assert!(wal.run_writer_once().expect("prepares"));
    assert!(wal.flushed() < last);
}

#[test]
fn the_writer_writes_ahead_and_flushes_after_enough_bytes() {
    let options = WalOptions { write_after: 1000, flush_after: 4000, ..small_options() };
    let disk = SimDisk::new(1);
    let clock = Arc::new(SimClock::new());
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let wal = Wal::open(vfs, clock.clone(), options, FIRST_LSN).expect("open");
    while wal.run_writer_once().expect("prepares a segment") {}
    append(&wal, 1, &[0; 500]);
    assert!(!wal.run_writer_once().expect("too little"));
    clock.advance(200_000);
    assert!(wal.run_writer_once().expect("writer_delay has passed"));
    assert_eq!((wal.written(), wal.flushed()), (wal.inserted(), FIRST_LSN));
    append(&wal, 2, &[0; 1000]);
    assert!(wal.run_writer_once().expect("enough to write"));
    assert_eq!((wal.written(), wal.flushed()), (wal.inserted(), FIRST_LSN));
    append(&wal, 3, &[0; 3000]);
    assert!(wal.run_writer_once().expect("enough to flush"));
    assert_eq!(wal.flushed(), wal.inserted());
}

#[test]
fn the_next_segment_is_ready_before_it_is_needed() {
    let (disk, wal) = fresh(&small_options());
    let first = segment_of(FIRST_LSN, 8192);
    while wal.run_writer_once().expect("prepares a segment") {}
    assert!(disk.exists(&segment_path(first + 1, 8192)));
    assert!(!disk.exists(&segment_path(first + 2, 8192)));
    wal.flush(append(&wal, 1, &[0; 8000])).expect("flush");
    wal.flush(append(&wal, 1, &[0; 1000])).expect("flush");
    while wal.run_writer_once().expect("prepares a segment") {}
    assert!(disk.exists(&segment_path(first + 2, 8192)));
}

#[test]
fn old_segments_go_only_when_flushed() {
    let (disk, wal) = fresh(&small_options());
    let end = (0..100).fold(FIRST_LSN, |_, xid| append(&wal, xid, &[1; 400]));
    wal.remove_segments_before(end, 3 * 8192).expect("nothing is flushed");
    assert_eq!(wal.stats().segments_removed, 0);
    wal.flush(end).expect("flush");
    let keep = append(&wal, 100, b"keep");
    wal.flush(keep).expect("flush");
    wal.remove_segments_before(keep, 3 * 8192).expect("remove");
    let stats = wal.stats();
    assert!(stats.segments_removed > 0 && stats.segments_recycled > 0, "{stats:?}");
    assert_eq!(read_all(&disk, end).len(), 1);
    assert!(read_all(&disk, FIRST_LSN).is_empty());
    // The recycled ones hold old records; new ones are told from them.
    for xid in 200..300 {
        append(&wal, xid, &[1; 400]);
    }
    wal.flush(wal.inserted()).expect("flush");
    assert_eq!(read_all(&disk, keep).len(), 100);
}

#[test]
fn reopening_goes_on_where_the_log_ended() {
    let options = small_options();
    let (disk, wal) = fresh(&options);
    let end = (0..50).fold(FIRST_LSN, |_, xid| append(&wal, xid, &[1; 300]));
    wal.shutdown().expect("shutdown");
    append(&wal, 50, b"never flushed");
    drop(wal);
    let wal = open_at(&disk, &options, end).expect("reopen");
    assert_eq!((wal.inserted(), wal.flushed(), wal.redo_point()), (end, end, end));
    wal.flush(append(&wal, 51, b"after")).expect("flush");
    let xids: Vec<u64> = read_all(&disk, FIRST_LSN).iter().map(|r| r.xid.raw()).collect();
    assert_eq!(xids, (0..50).chain([51]).collect::<Vec<_>>());
}

/// A log with its thread on the host's disk.
fn real_log(options: WalOptions) -> (tempfile::TempDir, Arc<Wal>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let vfs = Arc::new(RealVfs::new(dir.path()));
    let wal = Wal::open(vfs, Arc::new(SystemClock::new()), options, FIRST_LSN).expect("open");
    (dir, wal)
}

fn threaded_options() -> WalOptions {
    WalOptions { background_writer: true, segment_size: 64 << 10, ..small_options() }
}

#[test]
fn a_single_committer_syncs_once_a_commit() {
    let (_dir, wal) = real_log(threaded_options());
    for xid in 0..40 {
        let end = append(&wal, xid, b"commit");
        wal.flush(end).expect("flush");
        assert!(wal.flushed() >= end);
    }
    assert_eq!(wal.stats().syncs, 40);
}

#[test]
fn committers_share_syncs_and_none_is_forgotten() {
    let (dir, wal) = real_log(threaded_options());
    let threads: Vec<_> = (0..8)
        .map(|t| {
            let wal = Arc::clone(&wal);
            std::thread::spawn(move || {
                for i in 0..60 {
                    let end = append(&wal, t * 1000 + i, &[t as u8; 200]);
                    if i % 3 == 0 {
                        wal.flush(end).expect("flush");
                    } else if let Some(handle) = wal.request_flush(end) {
                        assert!(handle.block_for(Duration::from_secs(60)), "forgotten");
                    }
                    assert!(wal.flushed() >= end);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("committer");
    }
    let stats = wal.stats();
    assert_eq!(stats.records, 480);
    assert!(stats.syncs < 480, "{stats:?}");
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs::new(dir.path()));
    let mut reader = WalReader::with_segment_size(vfs, FIRST_LSN, 64 << 10);
    let mut next = [0u64; 8];
    while let Some((_, record)) = reader.next().expect("read") {
        let (t, i) = (record.xid.raw() / 1000, record.xid.raw() % 1000);
        assert_eq!(next[t as usize], i, "each session's records are in its order");
        next[t as usize] += 1;
    }
    assert_eq!(next, [60; 8]);
}

#[test]
fn the_thread_keeps_an_asynchronous_commits_deadline() {
    let (_dir, wal) = real_log(threaded_options());
    let clock = SystemClock::new();
    for _ in 0..3 {
        let end = append(&wal, 1, b"async");
        // The log's clock started a little earlier than this one: the deadline is never late.
        wal.note_async_commit(end, clock.monotonic_micros() + 5_000);
        let give_up = std::time::Instant::now() + Duration::from_secs(20);
        while wal.flushed() < end {
            assert!(std::time::Instant::now() < give_up, "the deadline was forgotten");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn the_thread_writes_ahead_and_prepares_segments() {
    let options = WalOptions { write_after: 4096, flush_after: 16 << 10, ..threaded_options() };
    let (_dir, wal) = real_log(options);
    for xid in 0..200 {
        append(&wal, xid, &[1; 1000]);
    }
    let give_up = std::time::Instant::now() + Duration::from_secs(20);
    while wal.inserted().bytes_since(wal.flushed()) >= 16 << 10 {
        assert!(std::time::Instant::now() < give_up, "nobody flushed");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(wal.stats().segments_created > 0);
}

#[test]
fn after_shutdown_the_log_works_inline() {
    let (_dir, wal) = real_log(threaded_options());
    let end = append(&wal, 1, b"x");
    wal.shutdown().expect("shutdown");
    assert_eq!(wal.flushed(), end);
    let end = append(&wal, 2, b"y");
    let handle = wal.request_flush(end).expect("not flushed");
    assert!(handle.is_ready() && wal.flushed() == end);
    wal.flush(append(&wal, 3, b"z")).expect("flush");
}

#[test]
fn without_fsync_nothing_is_synced() {
    let options = WalOptions { fsync: false, ..small_options() };
    let (disk, wal) = fresh(&options);
    wal.flush(append(&wal, 1, &[1; 20_000])).expect("flush");
    assert_eq!((disk.calls(Op::Sync), disk.calls(Op::SyncDir)), (0, 0));
    assert_eq!(wal.flushed(), wal.inserted());
}
