//! Model checks: no wake-up is lost, no two conflicting locks are held.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p inkling-storage --lib lock::models`. A waiter
//! polls its handle and yields; a lost wake-up shows as a run that never ends.

use super::*;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::thread;
use crate::txn::TxnManager;
use crate::txn::testing::{START, TestLog, check};

const REL: LockTag = LockTag::Relation(1);

fn take(locks: &LockManager, owner: &LockOwner, tag: LockTag, mode: LockMode) {
    if let LockResult::Wait(mut wait) = locks.acquire(owner, tag, mode) {
        finish(&mut wait);
    }
}

fn finish(wait: &mut LockWait) {
    while !wait.handle().is_ready() {
        thread::yield_now();
    }
    assert_eq!(wait.check(), LockCheck::Granted);
}

/// Weak holders and a strong one, on the fast path and off it.
#[test]
fn a_strong_lock_excludes_weak_ones() {
    check(|| {
        let locks = LockManager::new();
        let inside = Arc::new(AtomicU32::new(0));
        let worker = |mode: LockMode| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            thread::spawn(move || {
                let owner = locks.register(mode as i32);
                for _ in 0..2 {
                    take(&locks, &owner, REL, mode);
                    let mine = if mode.is_strong() { 100 } else { 1 };
                    let others = inside.fetch_add(mine, Ordering::SeqCst);
                    assert!(others < 100 && (mine == 1 || others == 0), "excluded");
                    thread::yield_now();
                    inside.fetch_sub(mine, Ordering::SeqCst);
                    locks.release_all(&owner);
                }
            })
        };
        let modes = [LockMode::RowExclusive, LockMode::AccessExclusive, LockMode::RowExclusive];
        let workers = modes.map(worker);
        workers.into_iter().for_each(|w| w.join().expect("worker"));
        assert_eq!(locks.table_size(), 0);
    });
}

/// Some waiters give up at a random moment; the others must still get their turn.
#[test]
fn a_canceled_wait_loses_nobody_elses_wake_up() {
    check(|| {
        let locks = LockManager::new();
        let tag = LockTag::Advisory(AdvisoryKey::One(1));
        let worker = |patient: bool| {
            let locks = locks.clone();
            thread::spawn(move || {
                let owner = locks.register(1);
                match locks.acquire(&owner, tag, LockMode::Exclusive) {
                    LockResult::Wait(mut wait) if patient => finish(&mut wait),
                    LockResult::Wait(wait) => {
                        thread::yield_now();
                        drop(wait);
                    }
                    LockResult::Granted => {}
                }
                thread::yield_now();
                locks.release_all(&owner);
            })
        };
        let workers = [true, false, true].map(worker);
        workers.into_iter().for_each(|w| w.join().expect("worker"));
        assert_eq!((locks.table_size(), locks.waiting()), (0, 0));
    });
}

/// The ending and the waiter look for each other without a common lock.
#[test]
fn the_end_of_a_transaction_wakes_whoever_waits_for_it() {
    check(|| {
        let txns = TxnManager::in_memory(START).expect("a new manager");
        let locks = LockManager::new();
        let xid = txns.assign_xid(None).expect("xid");
        let waiter = || {
            let (txns, locks) = (txns.clone(), locks.clone());
            thread::spawn(move || {
                let owner = locks.register(2);
                if let LockResult::Wait(mut wait) = locks.wait_for_xid(&txns, &owner, xid) {
                    finish(&mut wait);
                }
                assert!(!txns.is_running(xid));
            })
        };
        let waiters = [waiter(), waiter()];
        let log = TestLog::new();
        txns.commit(&log, xid, &[], &Default::default()).expect("room");
        locks.xids_ended([xid]);
        waiters.into_iter().for_each(|w| w.join().expect("waiter"));
        assert_eq!((locks.table_size(), locks.waiting()), (0, 0));
    });
}
