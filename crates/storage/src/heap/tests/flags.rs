//! What pages say of themselves, on disk and in memory, and who relies on it: the all-visible flag
//! that write-back sets, the map's bit, line pointers that pruning freed.

use super::ops::{Birth, HeapOp};
use super::visibility::Horizon;
use super::write::latch_with;
use super::*;
use crate::buffer::CriticalSection;
use crate::engine::CheckpointKind;
use crate::ids::{Lsn, PageId, Xid};
use crate::page::PageClass;
use crate::txn::CommitPayload;

/// A row's page, flagged on disk and read back from there.
fn flagged_from_disk(db: &Db, data: &[&[u8]]) -> Vec<RowId> {
    let mut a = db.begin();
    let rows = data.iter().map(|d| a.insert(d)).collect();
    a.commit();
    settle(db);
    reread(db);
    assert!(db.flagged(0), "write-back found that everybody sees the page");
    rows
}

/// Everything is durable, and the horizon is up to date.
fn settle(db: &Db) {
    db.e.wal.flush(db.e.wal.inserted()).expect("flush");
    db.e.txns.maintain(db.e.wal.flushed());
}

/// Pages go to disk and come back.
fn reread(db: &Db) {
    db.e.pool.flush_rel(db.h.rel).expect("write back");
    db.e.pool.drop_rel_buffers(db.h.rel);
}

impl Db {
    fn flagged(&self, block: BlockNo) -> bool {
        let page = self.e.pool.share(PageId::main(self.h.rel, block)).expect("page");
        page.flags() & page::ALL_VISIBLE != 0
    }

    fn map_bits(&self, block: BlockNo) -> u8 {
        vmap::bits(&self.e.pool, self.h.rel, block).expect("map")
    }
}

/// A commit that is promised to its client and that nobody has flushed yet.
fn commit_promised(db: &Db, tx: Tx<'_>) -> Lsn {
    let top = tx.tx.top_xid().expect("xid");
    let payload = CommitPayload { sync: true, time_micros: 0, unlinks: Vec::new() };
    let lsn = db.e.txns.commit(&*db.e.wal, top, &[], &payload).expect("commit");
    std::mem::forget(tx);
    assert!(db.e.wal.flushed() < lsn, "nobody flushed yet");
    lsn
}

/// The flag that write-back sets is not in the log. Vacuum, finding it on the page, must put it
/// there together with the map's bit: replay would bring back the bit alone, and who changes such
/// a page leaves the bit standing.
#[test]
fn replay_never_has_the_maps_bit_without_the_pages_flag() {
    let sim = testing::Sim::new(5);
    let db = Db::on(sim.open());
    db.e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    flagged_from_disk(&db, &[b"one"]);
    assert_eq!(db.vacuum().pages_all_visible, 1);
    assert_ne!(db.map_bits(0), 0);
    db.e.wal.flush(db.e.wal.inserted()).expect("flush");
    for seed in 0..4 {
        let after = Db { e: sim.crash(seed).open(), h: db.h };
        after.check();
        let mut b = after.begin();
        b.insert(b"two");
        assert_eq!(after.map_bits(0), 0, "an index-only scan must look at the page");
        after.check();
    }
}

/// As above, but the row's page has an image in the log, not its beginning.
#[test]
fn an_image_brings_back_no_more_than_the_log_says() {
    let sim = testing::Sim::new(6);
    let db = Db::on(sim.open());
    let mut a = db.begin();
    a.insert(b"one");
    a.commit();
    db.e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    flagged_from_disk(&db, &[b"two"]);
    db.vacuum();
    db.e.wal.flush(db.e.wal.inserted()).expect("flush");
    Db { e: sim.crash(1).open(), h: db.h }.check();
}

/// A writer met the flag of a page that the map does not reach, and let the page go to pin the map;
/// meanwhile vacuum made the map and set the bit.
#[test]
fn a_writer_clears_the_bit_that_vacuum_set_while_it_looked_for_the_map() {
    let db = Db::new();
    flagged_from_disk(&db, &[b"one"]);
    let id = PageId::main(db.h.rel, 0);
    let pin = db.e.pool.read(id).expect("pin");
    let mut vacuumed = false;
    let at = latch_with(&db.e, pin, || {
        if !std::mem::replace(&mut vacuumed, true) {
            db.vacuum();
        }
    })
    .expect("latch");
    assert!(at.vm.is_some() || db.map_bits(0) == 0, "the bit is set, and its page not pinned");
}

#[test]
fn a_line_pointer_that_waits_for_vacuum_does_not_contradict_the_flag() {
    let db = Db::new();
    let rows = flagged_from_disk(&db, &[b"one", b"two", b"three"]);
    let mut a = db.begin();
    assert!(a.delete(rows[1]).is_ok());
    a.commit();
    settle(&db);
    let guard = db.e.pool.exclusive(PageId::main(db.h.rel, 0)).expect("page");
    let lists = prune::plan(&db.e.txns, &guard, Horizon::of(&db.e));
    assert_eq!(lists.dead, [rows[1].slot]);
    drop(prune::prune_as_planned(&db.e, guard, lists).expect("prune"));
    reread(&db);
    db.check();
    assert_eq!(db.begin().scan().len(), 2);
}

/// A row whose deletion is promised and could still be lost: as long as that is so, somebody who
/// does not find the row must learn why, and wait.
#[test]
fn a_deletion_that_may_be_lost_is_not_swept_away() {
    let db = Db::new();
    let mut a = db.begin();
    let row = a.insert(b"one");
    a.insert(b"two");
    a.commit();
    settle(&db);
    let mut b = db.begin();
    assert!(b.delete(row).is_ok());
    let lsn = commit_promised(&db, b);
    // The horizon has passed it: nobody's snapshot is older.
    assert!(db.e.txns.horizon() >= lsn);
    assert_eq!(db.vacuum().removed, 0);
    let reader = db.begin();
    let verdict = unique_verdict(&db.e, &reader.tx, &db.h, row).expect("verdict");
    assert_eq!(verdict, UniqueVerdict::Dead, "the index entry is evidence, too");
    let mut reader = db.begin();
    assert_eq!(texts(&reader.scan()), ["two"]);
    assert_eq!(reader.tx.undurable_seen().get(), lsn);
    settle(&db);
    assert_eq!(db.vacuum().removed, 1);
    let verdict = unique_verdict(&db.e, &reader.tx, &db.h, row).expect("verdict");
    assert_eq!(verdict, UniqueVerdict::Dead, "nothing is there");
}

/// Of an update whose new version is on the page the old one can go: the new one tells.
#[test]
fn an_update_that_may_be_lost_is_told_by_its_new_version() {
    let db = Db::new();
    let mut a = db.begin();
    let row = a.insert(b"one");
    a.commit();
    settle(&db);
    let mut b = db.begin();
    assert!(b.update(row, b"two", true).is_ok());
    let lsn = commit_promised(&db, b);
    assert_eq!(db.vacuum().removed, 1);
    let mut reader = db.begin();
    assert_eq!(reader.fetch_hot(row).expect("there").1, b"two");
    assert_eq!(reader.tx.undurable_seen().get(), lsn);
}

/// Frozen rows cannot be taken back one by one: only the file can, and it goes with the level that
/// made it.
#[test]
fn rows_are_born_frozen_only_in_a_file_of_the_same_savepoint() {
    let db = Db::new();
    let session = TxnSession::new(&*db.e, 3);
    let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
    let rel = db.e.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let h = HeapRel::new(rel);
    let frozen = InsertOpts { freeze: true };
    tx.savepoint("s");
    let refused = insert(&db.e, &mut tx, &h, &row_body(b"x"), frozen);
    assert!(refused.is_err(), "rolling back to the savepoint would leave it");
    let own = db.e.create_rel(&mut tx, Persistence::Permanent).expect("create");
    insert(&db.e, &mut tx, &HeapRel::new(own), &row_body(b"x"), frozen).expect("its own file");
    assert!(tx.release("s"));
    insert(&db.e, &mut tx, &h, &row_body(b"x"), frozen).expect("the same level again");
    insert(&db.e, &mut tx, &HeapRel::new(own), &row_body(b"x"), frozen).expect("merged");
    tx.abort(&*db.e);
}

/// The map's first page is in the log from its beginning: without page images, too, replay can make
/// it when the crash has taken the file.
#[test]
fn the_map_comes_back_without_page_images() {
    let mut sim = testing::Sim::new(7);
    sim.options.full_page_writes = false;
    let db = Db::on(sim.open());
    let mut a = db.begin();
    a.insert(b"one");
    a.commit();
    settle(&db);
    assert_eq!(db.vacuum().pages_all_visible, 1);
    db.e.wal.flush(db.e.wal.inserted()).expect("flush");
    let bits = db.map_bits(0);
    let (again, _) = sim.crash(1).try_open().expect("replay");
    let after = Db { e: again, h: db.h };
    assert_eq!(after.map_bits(0), bits);
    after.check();
}

/// A page that passes its checksum and is wrong all the same: its base leaves no room for xids.
#[test]
fn a_base_beyond_all_xids_is_no_panic_and_shows_nothing() {
    let db = Db::new();
    db.begin().insert(b"one");
    let guard = db.e.pool.exclusive(PageId::main(db.h.rel, 0)).expect("page");
    let mut cs = CriticalSection::begin(db.e.log(), Xid::INVALID).expect("section");
    let at = cs.add_init(guard, PageClass::Heap);
    cs.apply(at, &HeapOp::Init { base: u64::MAX - 5 });
    for (slot, xmin) in [(1, 3), (2, 10)] {
        let birth = Birth { xmin, cid: 0, heap_only: false, updated: false };
        let slot = crate::ids::SlotNo::new(slot);
        cs.apply(at, &HeapOp::Insert { slot, birth, body: row_body(b"x") });
    }
    cs.finish();
    for policy in HintPolicy::ALL {
        db.e.heap.set_hint_policy(policy);
        assert!(db.begin().scan().is_empty(), "{policy:?}");
    }
    assert!(!check(&db.e, &db.h).expect("check").is_empty());
}
