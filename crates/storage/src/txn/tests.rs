//! Transactions from begin to end, against a log that is a counter.

use super::testing::{START, TestHost};
use super::*;
use crate::ids::{CommandId, Lsn, RelId, Xid};
use crate::lock::{LockMode, LockTag};

const SYNC: CommitMode = CommitMode::Sync;
const ASYNC: CommitMode = CommitMode::Async { max_loss_micros: 200_000 };

fn done(outcome: CommitOutcome) -> Option<Lsn> {
    outcome.lsn
}

#[test]
fn a_reader_costs_nothing_and_waits_for_nothing() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    let snapshot = tx.statement_snapshot();
    assert_eq!(snapshot.s, START);
    let outcome = tx.commit(&host, SYNC).expect("commit");
    assert!(outcome.lsn.is_none() && outcome.wait.is_none());
    assert!(host.log.records().is_empty());
    assert_eq!(host.txns.next_xid(), Xid::FIRST_NORMAL);
}

#[test]
fn a_commit_is_visible_at_once_and_told_after_the_flush() {
    let host = TestHost::new();
    let mut before = host.begin(1);
    let mut writer = host.begin(2);
    let old = before.statement_snapshot();
    let xid = writer.xid(&host).expect("xid");
    assert_eq!(host.txns.status(xid), XidStatus::InProgress);
    let outcome = writer.commit(&host, SYNC).expect("commit");
    let wait = outcome.wait.expect("not flushed yet");
    assert!(!wait.is_ready());
    let new = before.statement_snapshot();
    assert!(new.sees(&host.txns, xid) && !old.sees(&host.txns, xid));
    let stamp = host.txns.status(xid).commit().expect("committed");
    assert_eq!(Some(stamp.lsn()), outcome.lsn);
    assert!(stamp.is_sync());
    host.log.flush_all();
    assert!(wait.is_ready());
}

#[test]
fn an_asynchronous_commit_names_its_deadline() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    let xid = tx.xid(&host).expect("xid");
    let outcome = tx.commit(&host, ASYNC).expect("commit");
    assert!(outcome.wait.is_none());
    let lsn = outcome.lsn.expect("written");
    assert_eq!(host.log.async_flushes(), [(lsn, 1_200_000)]);
    assert!(!host.txns.status(xid).commit().expect("committed").is_sync());
}

#[test]
fn dropping_files_forces_a_synchronous_commit() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    tx.xid(&host).expect("xid");
    tx.note_dropped(RelId::new(77));
    let outcome = tx.commit(&host, ASYNC).expect("commit");
    assert!(outcome.wait.is_some());
    assert_eq!(outcome.unlinks, [RelId::new(77)]);
    let record = &host.log.records()[0];
    let end = decode_end_record(record.xid, &record.data).expect("decode");
    assert!(end.payload.sync);
    assert_eq!(end.payload.unlinks, [RelId::new(77)]);
}

#[test]
fn an_answer_waits_for_the_undurable_commits_it_shows() {
    let host = TestHost::new();
    let mut writer = host.begin(1);
    writer.xid(&host).expect("xid");
    let lsn = done(writer.commit(&host, SYNC).expect("commit")).expect("written");
    let reader = host.begin(2);
    assert!(reader.answer_wait(&host.log).is_none());
    reader.undurable_seen().set(lsn);
    let wait = reader.commit(&host, SYNC).expect("commit").wait.expect("undurable");
    host.log.flush_all();
    assert!(wait.is_ready());
}

#[test]
fn children_share_the_fate_and_the_position() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    tx.savepoint("a");
    let a = tx.xid(&host).expect("xid");
    let top = tx.top_xid().expect("assigned with the child");
    assert!(top < a, "parents first");
    tx.savepoint("b");
    let b = tx.xid(&host).expect("xid");
    assert!(tx.rollback_to(&host, "b"));
    assert_eq!(host.txns.status(b), XidStatus::Aborted);
    assert_eq!((tx.is_own(a), tx.is_own(b)), (OwnXid::Live, OwnXid::RolledBack));
    let again = tx.xid(&host).expect("xid");
    assert!(tx.release("a"));
    assert!(!tx.release("b"), "released with the one outside");
    assert_eq!(tx.is_own(again), OwnXid::Live);
    assert_eq!(tx.is_own(again.next()), OwnXid::NotOwn);
    assert_eq!(host.txns.status(a), XidStatus::InProgress, "released is still running");
    let lsn = done(tx.commit(&host, SYNC).expect("commit")).expect("written");
    for xid in [top, a, again] {
        assert_eq!(host.txns.status(xid).commit().expect("committed").lsn(), lsn);
    }
    assert_eq!(host.txns.status(b), XidStatus::Aborted);
}

#[test]
fn rolling_back_removes_released_children_too() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    tx.savepoint("a");
    tx.savepoint("b");
    let b = tx.xid(&host).expect("xid");
    assert!(tx.release("b"));
    let a = tx.current_xid().expect("taken before the child's");
    assert!(tx.rollback_to(&host, "a"));
    assert_eq!(host.txns.status(a), XidStatus::Aborted);
    assert_eq!(host.txns.status(b), XidStatus::Aborted);
    assert_eq!(tx.depth(), 2, "the savepoint stays");
    assert_eq!(host.txns.status(tx.top_xid().expect("kept")), XidStatus::InProgress);
    tx.abort(&host);
}

#[test]
fn the_innermost_savepoint_of_a_name_is_meant() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    tx.savepoint("s");
    let outer = tx.xid(&host).expect("xid");
    tx.savepoint("s");
    let inner = tx.xid(&host).expect("xid");
    assert!(tx.rollback_to(&host, "s"));
    assert_eq!(tx.is_own(inner), OwnXid::RolledBack);
    assert_eq!(tx.is_own(outer), OwnXid::Live);
    assert!(tx.release("s") && tx.release("s") && !tx.release("s"));
    assert!(!tx.rollback_to(&host, "nosuch"));
    tx.abort(&host);
}

#[test]
fn relations_go_with_the_level_that_made_or_dropped_them() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    tx.xid(&host).expect("xid");
    tx.note_created(RelId::new(1));
    tx.savepoint("a");
    tx.xid(&host).expect("xid");
    tx.note_created(RelId::new(2));
    tx.note_dropped(RelId::new(1));
    tx.savepoint("b");
    tx.note_created(RelId::new(3));
    assert!(tx.release("b"));
    assert!(tx.rollback_to(&host, "a"));
    assert_eq!(*host.unlinked.lock(), [RelId::new(2), RelId::new(3)]);
    assert!(!tx.created_here(RelId::new(1)) && !tx.created_here(RelId::new(2)));
    assert!(tx.release("a"));
    assert!(tx.created_here(RelId::new(1)), "at this level");
    let outcome = tx.commit(&host, SYNC).expect("commit");
    assert!(outcome.unlinks.is_empty(), "the drop was rolled back");

    let mut tx = host.begin(1);
    tx.xid(&host).expect("xid");
    tx.note_created(RelId::new(4));
    tx.abort(&host);
    assert_eq!(host.unlinked.lock().last(), Some(&RelId::new(4)));
    let record = host.log.records().pop().expect("an abort record");
    assert_eq!(record.kind, EndKind::Abort);
    let end = decode_end_record(record.xid, &record.data).expect("decode");
    assert_eq!(end.payload.unlinks, [RelId::new(4)]);
}

#[test]
fn a_commit_without_room_aborts() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    let xid = tx.xid(&host).expect("xid");
    tx.note_created(RelId::new(9));
    host.log.fill_up();
    assert!(tx.commit(&host, SYNC).is_err());
    assert_eq!(host.txns.status(xid), XidStatus::Aborted);
    assert_eq!(*host.unlinked.lock(), [RelId::new(9)]);
}

#[test]
fn a_dropped_transaction_is_aborted_and_unlocked() {
    let host = TestHost::new();
    let other = host.begin(2);
    let tag = LockTag::Relation(5);
    let xid = {
        let mut tx = host.begin(1);
        assert!(host.locks.try_acquire(tx.lock_owner(), tag, LockMode::AccessExclusive));
        assert!(!host.locks.try_acquire(other.lock_owner(), tag, LockMode::AccessShare));
        tx.statement_snapshot();
        tx.xid(&host).expect("xid")
    };
    assert_eq!(host.txns.status(xid), XidStatus::Aborted);
    assert!(host.locks.try_acquire(other.lock_owner(), tag, LockMode::AccessShare));
    assert_eq!(host.txns.horizon(), host.txns.published());
    other.abort(&host);
}

#[test]
fn commands_and_combined_ids() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    let first = tx.command_id();
    tx.next_command().expect("room");
    assert!(first < tx.command_id());
    let combo = tx.combo(first, tx.command_id()).expect("room");
    assert_eq!(tx.cmin_cmax(combo), Some((first, tx.command_id())));
    assert_eq!(tx.cmin_cmax(CommandId::new(9)), None);
    tx.abort(&host);
}

#[test]
fn read_committed_looks_anew_and_repeatable_read_does_not() {
    let host = TestHost::new();
    let session = host.session(1);
    let mut rr = Transaction::begin(&session, IsolationLevel::RepeatableRead, false);
    let mut rc = host.begin(2);
    let (first_rr, first_rc) = (rr.statement_snapshot(), rc.statement_snapshot());
    let mut writer = host.begin(3);
    writer.xid(&host).expect("xid");
    let lsn = done(writer.commit(&host, ASYNC).expect("commit")).expect("written");
    rr.end_statement();
    rc.end_statement();
    assert_eq!(rr.statement_snapshot(), first_rr);
    assert_eq!(rc.statement_snapshot().s, lsn);
    assert!(first_rc.s < lsn);
    assert_eq!(rr.latest_snapshot().s, lsn);
    assert_eq!(host.txns.horizon(), first_rr.s);
    let _ = rr.commit(&host, SYNC);
    assert_eq!(host.txns.horizon(), lsn);
    rc.abort(&host);
}

#[test]
fn the_oldest_held_snapshot_is_the_announced_one() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    let commit = || {
        let mut writer = host.begin(9);
        writer.xid(&host).expect("xid");
        done(writer.commit(&host, ASYNC).expect("commit")).expect("written")
    };
    let first = tx.statement_snapshot();
    let cursor = tx.hold_snapshot(first);
    tx.end_statement();
    commit();
    let second = tx.statement_snapshot();
    let other = tx.hold_snapshot(second);
    tx.end_statement();
    let newest = commit();
    assert_eq!(host.txns.horizon(), first.s);
    tx.release_snapshot(cursor);
    assert_eq!(host.txns.horizon(), second.s);
    tx.release_snapshot(other);
    assert_eq!(host.txns.horizon(), newest);
    tx.abort(&host);
}

#[test]
fn a_snapshot_taken_before_the_statements_stays_usable_until_its_end() {
    let host = TestHost::new();
    let mut tx = host.begin(1);
    let early = tx.latest_snapshot();
    let mut writer = host.begin(9);
    writer.xid(&host).expect("xid");
    let newest = done(writer.commit(&host, ASYNC).expect("commit"));
    assert_eq!(Some(tx.statement_snapshot().s), newest);
    assert_eq!(host.txns.horizon(), early.s);
    tx.end_statement();
    assert_eq!(Some(host.txns.horizon()), newest);
    tx.abort(&host);
}

#[test]
fn an_exported_snapshot_can_be_taken_over_while_its_source_lives() {
    let host = TestHost::new();
    let (one, two) = (host.session(1), host.session(2));
    let mut source = Transaction::begin(&one, IsolationLevel::RepeatableRead, true);
    let exported = source.statement_snapshot();
    let mut writer = host.begin(3);
    let xid = writer.xid(&host).expect("xid");
    let _ = writer.commit(&host, ASYNC).expect("commit");
    host.txns.horizon();
    let mut sink = Transaction::begin(&two, IsolationLevel::RepeatableRead, true);
    assert!(sink.import_snapshot(exported));
    source.abort(&host);
    assert!(host.txns.horizon() <= exported.s);
    assert!(!sink.statement_snapshot().sees(&host.txns, xid));
    sink.abort(&host);
    host.txns.horizon();
    let mut late = Transaction::begin(&one, IsolationLevel::RepeatableRead, true);
    assert!(!late.import_snapshot(exported));
    late.abort(&host);
}

#[test]
fn the_floor_waits_for_synchronous_commits_to_be_durable() {
    let host = TestHost::new();
    let commit = |mode| {
        let mut tx = host.begin(1);
        let xid = tx.xid(&host).expect("xid");
        let _ = tx.commit(&host, mode).expect("commit");
        xid
    };
    let first = commit(ASYNC);
    assert_eq!(host.txns.floor(), first.next());
    let second = commit(SYNC);
    assert_eq!(host.txns.floor(), second, "not durable yet");
    host.log.flush_all();
    host.txns.maintain(host.log.inserted());
    assert_eq!(host.txns.floor(), second.next());
}

#[test]
fn settled_chunks_answer_from_the_commit_log() {
    let host = TestHost::new();
    let mut holder = host.begin(1);
    let old = holder.statement_snapshot();
    let mut xids = Vec::new();
    let session = host.session(2);
    for n in 0..3 * window::CHUNK_XIDS {
        let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
        xids.push(tx.xid(&host).expect("xid"));
        if n % 3 == 0 {
            tx.abort(&host);
        } else {
            let _ = tx.commit(&host, ASYNC).expect("commit");
        }
    }
    let check = |snapshot: Snapshot| {
        for (n, xid) in xids.iter().enumerate() {
            let expected = n % 3 != 0 && snapshot.s > old.s;
            assert_eq!(snapshot.sees(&host.txns, *xid), expected, "{xid:?} at {}", snapshot.s);
        }
    };
    host.log.flush_all();
    host.txns.maintain(host.log.inserted());
    assert_eq!(host.txns.stats().window_chunks, 4, "the old snapshot holds them");
    check(old);
    holder.abort(&host);
    host.txns.maintain(host.log.inserted());
    assert_eq!(host.txns.stats().window_chunks, 1);
    assert!(host.txns.status(xids[1]).commit().expect("committed").is_settled());
    let mut reader = host.begin(3);
    check(reader.statement_snapshot());
    reader.abort(&host);
    assert!(!host.txns.truncate_clog(host.txns.next_xid(), START).expect("no I/O"));
    assert!(host.txns.truncate_clog(host.txns.oldest_unsettled(), START).expect("no I/O"));
}

#[test]
fn waiting_for_a_transaction_ends_with_it() {
    let host = TestHost::new();
    let (mut one, two) = (host.begin(1), host.begin(2));
    one.savepoint("s");
    let sub = one.xid(&host).expect("xid");
    let top = one.top_xid().expect("top");
    let wait_for = |xid| host.locks.wait_for_xid(&host.txns, two.lock_owner(), xid);
    let waits = [wait_for(sub), wait_for(top)];
    assert!(waits.iter().all(|w| !w.is_granted()));
    assert_eq!(host.locks.blocking_pids(2), [1]);
    assert!(one.rollback_to(&host, "s"));
    let [sub_wait, top_wait] = waits;
    sub_wait.block().expect("ended");
    assert!(wait_for(sub).is_granted());
    assert_eq!(host.locks.waiting(), 1);
    let _ = one.commit(&host, SYNC).expect("commit");
    top_wait.block().expect("ended");
    assert_eq!(host.locks.table_size(), 0);
    two.abort(&host);
}

fn time(what: &str, mut work: impl FnMut()) {
    const ROUNDS: u32 = 20_000;
    let start = std::time::Instant::now();
    (0..ROUNDS).for_each(|_| work());
    println!("{what}: {} ns", start.elapsed().as_nanos() / u128::from(ROUNDS));
}

/// Prints what locks cost: `cargo test --lib txn::tests::costs -- --nocapture`.
#[test]
fn costs_of_locks() {
    let host = TestHost::new();
    let session = host.session(1);
    let owner = session.owner();
    let weak = |oid| host.locks.try_acquire(owner, LockTag::Relation(oid), LockMode::RowExclusive);
    time("one weak lock and its release", || {
        assert!(weak(7));
        host.locks.release_all(owner);
    });
    time("four weak locks, each taken twice, and their release", || {
        assert!((0..8).all(|n| weak(n % 4)));
        host.locks.release_all(owner);
    });
    time("one advisory lock and its release", || {
        let tag = LockTag::Advisory(crate::lock::AdvisoryKey::One(9));
        assert!(host.locks.try_acquire(owner, tag, LockMode::Exclusive));
        host.locks.release_all(owner);
    });
}

/// As above, for transactions.
#[test]
fn costs_of_transactions() {
    let host = TestHost::new();
    let session = host.session(1);
    time("a snapshot", || {
        std::hint::black_box(host.txns.snapshot(session.slot()));
    });
    session.slot().advance(None);
    time("a reading transaction", || {
        let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, true);
        std::hint::black_box(tx.statement_snapshot());
        let _ = tx.commit(&host, SYNC);
    });
    time("a writing transaction, with the test's log", || {
        let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
        tx.xid(&host).expect("xid");
        let _ = tx.commit(&host, ASYNC);
    });
    let recent = Xid::new(host.txns.next_xid().raw() - 1);
    time("status of a recent transaction", || {
        assert!(host.txns.status(std::hint::black_box(recent)).is_final());
    });
    host.log.flush_all();
    host.txns.maintain(host.log.inserted());
    time("status of a settled transaction", || {
        assert!(host.txns.status(std::hint::black_box(Xid::new(50))).is_final());
    });
    time("the horizon", || {
        std::hint::black_box(host.txns.horizon());
    });
}
