//! Single operations on a table, one or two sessions, through the engine.

use super::*;
use crate::txn::CommitPayload;

#[test]
fn rows_become_visible_at_commit_and_stay_so() {
    let db = Db::new();
    let mut a = db.begin();
    a.insert(b"one");
    assert_eq!(texts(&a.scan()), ["one"], "one's own earlier commands are seen");
    let mut b = db.begin();
    assert!(b.scan().is_empty());
    a.commit();
    assert!(b.scan().is_empty(), "a snapshot does not change");
    let mut c = db.begin();
    assert_eq!(texts(&c.scan()), ["one"]);
    assert_eq!(texts(&c.scan()), ["one"], "and again, by the summary");
    assert_eq!(c.stats().by_frame_summary, 1);
    assert!(b.scan().is_empty(), "the summary is not for older snapshots");
    db.check();
}

#[test]
fn an_aborted_insert_is_never_seen_and_is_pruned() {
    let db = Db::new();
    let mut a = db.begin();
    a.insert(b"gone");
    a.abort();
    assert!(db.begin().scan().is_empty());
    let stats = db.vacuum();
    assert_eq!((stats.removed, stats.freed, stats.pages_truncated), (1, 1, 1));
    assert_eq!(db.blocks(), 0);
    db.check();
}

#[test]
fn a_command_does_not_see_its_own_effects() {
    let db = Db::new();
    let mut a = db.begin();
    let row = insert(&db.e, &mut a.tx, &db.h, &row_body(b"x"), InsertOpts::default()).expect("in");
    assert!(a.scan().is_empty());
    assert_eq!(a.delete(row), TupleResult::Invisible);
    assert_eq!(texts(&a.scan()), ["x"]);
    assert_eq!(delete(&db.e, &mut a.tx, &db.h, row).expect("delete"), TupleResult::Ok(()));
    assert_eq!(texts(&a.scan()), ["x"], "deleted by this very command");
    assert_eq!(delete(&db.e, &mut a.tx, &db.h, row).expect("delete"), TupleResult::SelfModified);
    a.tx.next_command().expect("command");
    assert!(a.scan().is_empty(), "a combined command id has both cmin and cmax");
    assert_eq!(a.delete(row), TupleResult::Invisible);
    a.commit();
    db.check();
}

#[test]
fn hot_updates_are_found_from_the_root() {
    let db = Db::new();
    let mut a = db.begin();
    let root = a.insert(b"v1");
    a.commit();
    let mut old = db.begin();
    assert_eq!(old.fetch_hot(root).map(|r| r.1), Some(b"v1".to_vec()));
    let mut row = root;
    for version in ["v2", "v3", "v4"] {
        let mut t = db.begin();
        let TupleResult::Ok((next, hot)) = t.update(row, version.as_bytes(), true) else {
            panic!()
        };
        assert!(hot && next.block == root.block);
        row = next;
        t.commit();
    }
    assert_eq!(old.fetch_hot(root).map(|r| r.1), Some(b"v1".to_vec()));
    let mut new = db.begin();
    assert_eq!(new.fetch_hot(root), Some((row, b"v4".to_vec())));
    assert_eq!(new.fetch_hot(row), None, "a heap-only tuple is found from its root only");
    drop(old);
    drop(new);
    db.vacuum();
    let dump = db.dump(0);
    assert!(dump.contains("1 redirect -> 4"), "{dump}");
    assert_eq!(db.begin().fetch_hot(root), Some((row, b"v4".to_vec())));
    db.check();
}

#[test]
fn a_write_conflict_names_whom_to_wait_for_and_where_to_go_on() {
    let db = Db::new();
    let mut a = db.begin();
    let row = a.insert(b"v1");
    a.commit();
    let mut b = db.begin();
    let mut c = db.begin();
    assert!(b.update(row, b"v2", true).is_ok());
    let xid = b.tx.top_xid().expect("xid");
    assert_eq!(c.update(row, b"w2", true), TupleResult::BeingModified(xid));
    assert_eq!(c.lock(row, RowLock::NoKeyUpdate), TupleResult::BeingModified(xid));
    assert_eq!(c.lock(row, RowLock::KeyShare), TupleResult::Ok(()), "the key does not change");
    b.commit();
    let TupleResult::Updated { next, xmax } = c.update(row, b"w2", true) else { panic!() };
    assert_eq!(xmax, xid);
    let mut buf = TupleBuf::new();
    let newest =
        follow_update_chain(&db.e, &c.tx, &db.h, next, xmax, RowLock::NoKeyUpdate, &mut buf);
    assert_eq!(newest.expect("follow"), Newest::Row(next));
    assert_eq!(buf.tuple().expect("copied").data(), b"v2");
    let mut d = db.begin();
    assert_eq!(
        d.delete(next),
        TupleResult::BeingModified(c.tx.top_xid().expect("xid")),
        "the key-share lock went along with the update"
    );
    assert!(d.update(next, b"v3", true).is_ok(), "which leaves the key alone");
    c.commit();
    d.abort();
    assert!(db.begin().delete(next).is_ok());
    db.check();
}

#[test]
fn row_locks_conflict_as_in_the_table() {
    use RowLock::*;
    let db = Db::new();
    let mut a = db.begin();
    let row = a.insert(b"r");
    a.commit();
    for held in [KeyShare, Share, NoKeyUpdate, Update] {
        for wanted in [KeyShare, Share, NoKeyUpdate, Update] {
            let (mut b, mut c) = (db.begin(), db.begin());
            assert!(b.lock(row, held).is_ok());
            assert!(b.lock(row, held).is_ok(), "again");
            assert_eq!(c.lock(row, wanted).is_ok(), !held.conflicts(wanted), "{held:?} {wanted:?}");
            let mut d = db.begin();
            assert_eq!(texts(&d.scan()), ["r"], "a lock hides nothing");
            b.commit();
            c.abort();
            assert!(d.lock(row, Update).is_ok(), "locks go with their transactions");
            d.abort();
        }
    }
    db.check();
}

#[test]
fn shared_row_locks_beyond_the_limit_are_refused_and_no_lock_is_lost() {
    let db = Db::new();
    db.e.heap.row_locks.set_limit(2);
    let mut a = db.begin();
    let rows: Vec<RowId> = (0..3).map(|n| a.insert(&[n])).collect();
    a.commit();
    let lock = |tx: &mut crate::txn::Transaction, row| {
        crate::heap::lock_row(&db.e, tx, &db.h, row, RowLock::Share)
    };
    let (mut b, mut c) = (db.begin(), db.begin());
    assert!(lock(&mut b.tx, rows[0]).expect("room").is_ok());
    assert!(lock(&mut b.tx, rows[1]).expect("room").is_ok());
    assert!(matches!(lock(&mut c.tx, rows[2]), Err(crate::error::StorageError::Resource { .. })));
    let holder = b.tx.top_xid().expect("xid");
    assert_eq!(c.delete(rows[0]), TupleResult::BeingModified(holder), "still locked");
    b.commit();
    assert!(lock(&mut c.tx, rows[2]).expect("room again").is_ok());
    c.commit();
    db.check();
}

#[test]
fn a_rolled_back_savepoint_gives_back_what_it_took() {
    let db = Db::new();
    let mut a = db.begin();
    let row = a.insert(b"v1");
    a.commit();
    let mut b = db.begin();
    assert!(b.lock(row, RowLock::Update).is_ok());
    b.tx.savepoint("s");
    assert!(b.update(row, b"v2", true).is_ok());
    assert_eq!(texts(&b.scan()), ["v2"]);
    assert!(b.tx.rollback_to(&*db.e, "s"));
    assert_eq!(texts(&b.scan()), ["v1"]);
    let mut c = db.begin();
    let xid = b.tx.top_xid().expect("xid");
    assert_eq!(c.update(row, b"w2", true), TupleResult::BeingModified(xid), "still locked");
    assert!(b.delete(row).is_ok());
    b.commit();
    assert_eq!(c.update(row, b"w2", true), TupleResult::Deleted);
    db.check();
}

#[test]
fn updates_go_elsewhere_when_the_page_is_full() {
    let db = Db::new();
    let mut a = db.begin();
    let rows: Vec<RowId> = (0..4).map(|n| a.insert(&[n; 1900])).collect();
    a.commit();
    assert_eq!(db.blocks(), 1);
    let mut b = db.begin();
    let TupleResult::Ok((moved, hot)) = b.update(rows[2], &[9; 1901], true) else { panic!() };
    assert!(!hot && moved.block == 1);
    b.commit();
    let mut c = db.begin();
    // The dead version is pruned for room.
    let TupleResult::Ok((next, hot)) = c.update(rows[0], &[8; 1800], true) else { panic!() };
    assert!(hot && next.block == 0, "{}", db.dump(0));
    let sizes: Vec<u8> = c.scan().iter().map(|(_, d)| d[0]).collect();
    assert_eq!(sizes, [1, 3, 8, 9]);
    c.commit();
    db.check();
}

#[test]
fn many_rows_go_in_page_by_page() {
    let db = Db::new();
    let data: Vec<Vec<u8>> = (0..1000u32).map(|n| n.to_be_bytes().repeat(20)).collect();
    let bodies: Vec<TupleBody<'_>> = data.iter().map(|d| row_body(d)).collect();
    let mut a = db.begin();
    let mut rows = Vec::new();
    let before = db.e.wal.inserted();
    insert_many(&db.e, &mut a.tx, &db.h, &bodies, InsertOpts::default(), &mut rows).expect("copy");
    let logged = db.e.wal.inserted().bytes_since(before);
    assert!(logged < 1000 * 90, "{logged} bytes of log");
    a.commit();
    let mut b = db.begin();
    let seen = b.scan();
    assert_eq!(seen.iter().map(|r| r.0).collect::<Vec<_>>(), rows);
    assert!(seen.iter().zip(&data).all(|(s, d)| s.1 == *d));
    db.check();
}

#[test]
fn fillfactor_leaves_room_for_updates() {
    let mut db = Db::new();
    db.h = db.h.with_fillfactor(50);
    let mut a = db.begin();
    let rows: Vec<RowId> = (0..30).map(|n| a.insert(&[n; 400])).collect();
    a.commit();
    assert!(rows.iter().filter(|r| r.block == 0).count() <= 10);
    let mut b = db.begin();
    for row in rows.iter().filter(|r| r.block == 0).take(8) {
        assert!(matches!(b.update(*row, &[7; 400], true), TupleResult::Ok((_, true))));
    }
    b.commit();
    db.check();
}

#[test]
fn vacuum_marks_pages_and_changes_take_the_mark_back() {
    let db = Db::new();
    let mut a = db.begin();
    let rows: Vec<RowId> = (0..10).map(|n| a.insert(&[n; 100])).collect();
    a.commit();
    db.e.wal.flush(db.e.wal.inserted()).expect("flush");
    let stats = db.vacuum();
    assert_eq!((stats.pages_all_visible, stats.pages_all_frozen, stats.frozen), (1, 1, 10));
    assert_eq!(vmap::bits(&db.e.pool, db.h.rel, 0).expect("bits"), 3);
    let mut b = db.begin();
    assert_eq!(b.scan().len(), 10);
    assert_eq!(b.stats().by_frame_summary, 10);
    assert!(b.lock(rows[0], RowLock::Update).is_ok());
    assert_eq!(vmap::bits(&db.e.pool, db.h.rel, 0).expect("bits"), 1, "a lock is no deletion");
    assert!(b.delete(rows[1]).is_ok());
    assert_eq!(vmap::bits(&db.e.pool, db.h.rel, 0).expect("bits"), 0);
    assert_eq!(b.scan().len(), 9);
    b.commit();
    db.check();
    assert_eq!(db.vacuum().removed, 1);
    db.check();
}

#[test]
fn vacuum_hands_dead_rows_to_the_indexes_before_it_frees_them() {
    let db = Db::new();
    let mut a = db.begin();
    let rows: Vec<RowId> = (0..300u32).map(|n| a.insert(&n.to_be_bytes().repeat(30))).collect();
    for row in rows.iter().step_by(3) {
        assert!(a.delete(*row).is_ok());
    }
    a.commit();
    let mut told = Vec::new();
    let opts = VacuumOpts { max_dead: 40, ..VacuumOpts::default() };
    let mut indexes = |dead: &DeadRows| {
        for row in dead.rows() {
            assert!(dead.contains(*row));
            let page = db.e.pool.share(crate::ids::PageId::main(db.h.rel, row.block))?;
            assert_eq!(page::line(&page, row.slot), Some(page::Line::DEAD));
        }
        told.extend_from_slice(dead.rows());
        Ok(())
    };
    let stats = vacuum(&db.e, &db.h, opts, &mut indexes, &mut |_| Ok(())).expect("vacuum");
    assert!(stats.index_passes > 1);
    assert_eq!(told, rows.iter().step_by(3).copied().collect::<Vec<_>>());
    assert_eq!(stats.freed, 100);
    db.check();
    let before = db.blocks();
    let mut b = db.begin();
    for n in 0..90u32 {
        b.insert(&n.to_be_bytes().repeat(30));
    }
    b.commit();
    assert_eq!(db.blocks(), before, "the space is used again");
    db.check();
}

#[test]
fn toast_values_come_back_and_go() {
    let mut db = Db::new();
    let toast = Db::on(Arc::clone(&db.e)).h.rel;
    db.h = db.h.with_toast(toast);
    let mut noise = 7u32;
    let mut random = |len: usize| -> Vec<u8> {
        (0..len)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect()
    };
    let values = [random(10), random(2000), random(2001), random(900_000), b"abc".repeat(50_000)];
    let mut a = db.begin();
    for value in &values {
        let pointer = toast::store(&db.e, &mut a.tx, toast, value, true).expect("store");
        assert_eq!(pointer.raw_len(), value.len());
        assert_eq!(&toast::load(&db.e, toast, &pointer).expect("load"), value);
        let (from, len) = (value.len() / 3, value.len() / 2);
        let part = toast::load_slice(&db.e, toast, &pointer, from, len).expect("slice");
        assert_eq!(part, value[from..from + len]);
        a.tx.next_command().expect("command");
        toast::delete(&db.e, &mut a.tx, toast, &pointer).expect("delete");
    }
    a.commit();
    let th = HeapRel::new(toast);
    let opts = VacuumOpts { truncate: true, ..VacuumOpts::default() };
    let stats = vacuum(&db.e, &th, opts, &mut |_| Ok(()), &mut |_| Ok(())).expect("vacuum");
    assert_eq!(stats.live_rows + stats.recently_dead_rows, 0);
    assert_eq!(stats.pages, stats.pages_truncated);
}

#[test]
fn a_wrong_toast_pointer_is_noticed() {
    let db = Db::new();
    let mut a = db.begin();
    let one = toast::store(&db.e, &mut a.tx, db.h.rel, &[1; 5000], false).expect("store");
    let two = toast::store(&db.e, &mut a.tx, db.h.rel, &[2; 5000], false).expect("store");
    let (mut mixed, other) = (one.encode(), two.encode());
    mixed[..6].copy_from_slice(&other[..6]);
    let mixed = toast::ToastPointer::decode(&mixed).expect("well-formed");
    assert!(toast::load(&db.e, db.h.rel, &mixed).is_err());
}

#[test]
fn copy_freeze_needs_a_table_of_ones_own() {
    let db = Db::new();
    let mut a = db.begin();
    let freeze = InsertOpts { freeze: true };
    assert!(insert(&db.e, &mut a.tx, &db.h, &row_body(b"x"), freeze).is_err());
    let rel = db.e.create_rel(&mut a.tx, Persistence::Permanent).expect("create");
    let own = HeapRel::new(rel);
    assert!(insert(&db.e, &mut a.tx, &own, &row_body(b"x"), freeze).is_ok());
}

#[test]
fn a_withdrawn_row_is_nobodys() {
    let db = Db::new();
    let mut a = db.begin();
    let row = insert(&db.e, &mut a.tx, &db.h, &row_body(b"x"), InsertOpts::default()).expect("in");
    assert_eq!(unique_verdict(&db.e, &a.tx, &db.h, row).expect("look"), UniqueVerdict::Conflict);
    let b = db.begin();
    let xid = a.tx.top_xid().expect("xid");
    assert_eq!(
        unique_verdict(&db.e, &b.tx, &db.h, row).expect("look"),
        UniqueVerdict::WaitFor(xid)
    );
    withdraw(&db.e, &mut a.tx, &db.h, row).expect("withdraw");
    assert_eq!(unique_verdict(&db.e, &b.tx, &db.h, row).expect("look"), UniqueVerdict::DeadToAll);
    a.tx.next_command().expect("command");
    assert!(a.scan().is_empty());
    a.commit();
    db.check();
}

#[test]
fn a_reader_of_an_unflushed_synchronous_commit_remembers_it() {
    let db = Db::new();
    let mut a = db.begin();
    a.insert(b"sync");
    let top = a.tx.top_xid().expect("xid");
    let payload = CommitPayload { sync: true, time_micros: 0, unlinks: Vec::new() };
    let lsn = db.e.txns.commit(&*db.e.wal, top, &[], &payload).expect("commit");
    std::mem::forget(a);
    assert!(db.e.wal.flushed() < lsn, "nobody flushed yet");
    for _ in 0..2 {
        let mut b = db.begin();
        assert_eq!(b.scan().len(), 1);
        assert_eq!(b.tx.undurable_seen().get(), lsn);
    }
    db.e.wal.flush(lsn).expect("flush");
    let mut c = db.begin();
    assert_eq!(c.scan().len(), 1);
    assert!(!c.tx.undurable_seen().get().is_valid());
}

#[test]
fn an_old_page_is_rebased_when_a_young_transaction_comes() {
    let db = Db::new();
    let mut a = db.begin();
    let row = a.insert(b"old");
    a.commit();
    // As if 2^33 transactions had gone by: the page's base is moved down by hand.
    let id = crate::ids::PageId::main(db.h.rel, 0);
    let guard = db.e.pool.exclusive(id).expect("page");
    let xmin = page::tuple(&guard, row.slot).expect("row").xmin(guard.base());
    assert!(xmin.is_normal());
    let far = Xid::new((1 << 33) + 5);
    let guard = prune::make_expressible_for_test(&db.e, guard, far).expect("rebase");
    let t = page::tuple(&guard, row.slot).expect("row");
    assert_eq!(t.xmin(guard.base()), Xid::FROZEN);
    assert!(page::offset_of(guard.base(), far).is_some());
    drop(guard);
    assert_eq!(texts(&db.begin().scan()), ["old"]);
    db.check();
}
