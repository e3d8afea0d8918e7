//! Behaviour of the whole lock manager.

use super::*;
use crate::error::StorageError;
use std::time::Duration;

const REL: LockTag = LockTag::Relation(16_384);

fn key(n: i64) -> LockTag {
    LockTag::Advisory(AdvisoryKey::One(n))
}

fn wait(result: LockResult) -> LockWait {
    match result {
        LockResult::Wait(wait) => wait,
        LockResult::Granted => panic!("granted, though it should wait"),
    }
}

fn ready(wait: &mut LockWait) -> bool {
    assert_eq!(wait.handle().is_ready(), wait.check() != LockCheck::StillWaiting);
    wait.check() == LockCheck::Granted
}

#[test]
fn every_pair_of_modes_behaves_as_the_matrix_says() {
    for held in LockMode::ALL {
        for asked in LockMode::ALL {
            for tag in [REL, key(1), LockTag::Object(1, 2)] {
                let locks = LockManager::new();
                let (a, b) = (locks.register(1), locks.register(2));
                assert!(locks.try_acquire(&a, tag, held));
                let granted = locks.try_acquire(&b, tag, asked);
                assert_eq!(granted, !held.conflicts_with(asked), "{held} then {asked} on {tag}");
                locks.release_all(&b);
                assert!(locks.try_acquire(&a, tag, asked), "never in one's own way");
                locks.release_all(&a);
                assert_eq!(locks.table_size(), 0);
                assert!(locks.try_acquire(&b, tag, LockMode::AccessExclusive));
            }
        }
    }
}

#[test]
fn waiters_go_in_order_and_a_strong_one_is_not_starved() {
    let locks = LockManager::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|pid| locks.register(pid));
    assert!(locks.acquire(&a, REL, LockMode::RowExclusive).is_granted());
    let mut share = wait(locks.acquire(&b, REL, LockMode::Share));
    let mut behind = wait(locks.acquire(&c, REL, LockMode::RowExclusive));
    assert!(locks.acquire(&d, REL, LockMode::AccessShare).is_granted(), "conflicts with nobody");
    assert_eq!(locks.blocking_pids(3), [2]);
    assert_eq!(locks.blocking_pids(2), [1]);
    locks.release_all(&a);
    assert!(ready(&mut share));
    assert!(!ready(&mut behind));
    locks.release_all(&b);
    assert!(ready(&mut behind));
    assert!(locks.holds(&c, &REL, LockMode::RowExclusive));
}

#[test]
fn equals_are_granted_together() {
    let locks = LockManager::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|pid| locks.register(pid));
    assert!(locks.try_acquire(&a, key(1), LockMode::Exclusive));
    let mut shares = [&b, &c].map(|o| wait(locks.acquire(o, key(1), LockMode::Share)));
    let mut last = wait(locks.acquire(&d, key(1), LockMode::Exclusive));
    locks.release_all(&a);
    assert!(shares.iter_mut().all(ready));
    assert!(!ready(&mut last));
    locks.release_all(&b);
    assert!(!ready(&mut last));
    locks.release_all(&c);
    assert!(ready(&mut last));
}

#[test]
fn a_holder_that_asks_for_more_skips_those_who_wait_for_it() {
    let locks = LockManager::new();
    let [a, b, c] = [1, 2, 3].map(|pid| locks.register(pid));
    assert!(locks.try_acquire(&a, key(1), LockMode::Share));
    let mut exclusive = wait(locks.acquire(&b, key(1), LockMode::Exclusive));
    // Nobody holds anything against it: at once, though B queues.
    assert!(locks.acquire(&a, key(1), LockMode::RowShare).is_granted());
    // C shares with A: then A's upgrade waits for C, in front of B.
    locks.release_all(&a);
    assert!(ready(&mut exclusive));
    locks.release_all(&b);
    assert!(locks.try_acquire(&a, key(1), LockMode::Share));
    assert!(locks.try_acquire(&c, key(1), LockMode::Share));
    let mut b_waits = wait(locks.acquire(&b, key(1), LockMode::Exclusive));
    let mut upgrade = wait(locks.acquire(&a, key(1), LockMode::Exclusive));
    locks.release_all(&c);
    assert!(ready(&mut upgrade));
    assert!(!ready(&mut b_waits));
    locks.release_all(&a);
    assert!(ready(&mut b_waits));
}

#[test]
fn dropping_a_wait_cancels_it_and_lets_others_on() {
    let locks = LockManager::new();
    let [a, b, c] = [1, 2, 3].map(|pid| locks.register(pid));
    assert!(locks.try_acquire(&a, REL, LockMode::RowExclusive));
    let canceled = wait(locks.acquire(&b, REL, LockMode::AccessExclusive));
    let mut behind = wait(locks.acquire(&c, REL, LockMode::RowExclusive));
    assert!(!ready(&mut behind));
    drop(canceled);
    assert!(ready(&mut behind));
    // Granted just before the drop: given back.
    let granted = wait(locks.acquire(&b, REL, LockMode::AccessExclusive));
    locks.release_all(&a);
    locks.release_all(&c);
    assert!(granted.handle().is_ready());
    drop(granted);
    assert_eq!(locks.table_size(), 0);
    assert!(locks.try_acquire(&a, REL, LockMode::RowExclusive));
    assert!(locks.list().iter().all(|l| l.fast_path), "no strong lock is counted any more");
}

#[test]
fn the_fast_path_gives_way_to_strong_locks() {
    let locks = LockManager::new();
    let [a, b] = [1, 2].map(|pid| locks.register(pid));
    assert!(locks.try_acquire(&a, REL, LockMode::AccessShare));
    assert_eq!(locks.table_size(), 0, "only in the owner's list");
    assert!(locks.try_acquire(&b, REL, LockMode::Share), "conflicts with writers only");
    assert!(locks.list().iter().all(|l| !l.fast_path), "moved");
    assert!(!locks.try_acquire(&a, REL, LockMode::RowExclusive));
    assert!(!locks.try_acquire(&b, REL, LockMode::AccessExclusive), "A reads");
    locks.release_all(&a);
    assert!(locks.try_acquire(&b, REL, LockMode::AccessExclusive));
    locks.release_all(&b);
    assert!(locks.try_acquire(&a, REL, LockMode::RowExclusive));
    assert!(locks.list().iter().all(|l| l.fast_path));
}

#[test]
fn counted_locks_are_released_one_by_one() {
    let locks = LockManager::new();
    let [a, b] = [1, 2].map(|pid| locks.register(pid));
    let session = LockScope::Session;
    for _ in 0..2 {
        assert!(locks.try_acquire_for(&a, key(5), LockMode::Exclusive, session));
    }
    locks.release_all(&a);
    assert!(!locks.try_acquire(&b, key(5), LockMode::Exclusive), "outlives the transaction");
    assert!(locks.release_for(&a, key(5), LockMode::Exclusive, session));
    assert!(!locks.try_acquire(&b, key(5), LockMode::Exclusive));
    assert!(locks.release_for(&a, key(5), LockMode::Exclusive, session));
    assert!(!locks.release_for(&a, key(5), LockMode::Exclusive, session), "not held");
    assert!(locks.try_acquire(&b, key(5), LockMode::Exclusive));
    assert!(locks.try_acquire_for(&a, key(6), LockMode::Exclusive, session));
    drop(a);
    assert!(locks.try_acquire(&b, key(6), LockMode::Exclusive), "gone with the session");
}

#[test]
fn a_rolled_back_savepoint_wakes_waiters() {
    let locks = LockManager::new();
    let [a, b] = [1, 2].map(|pid| locks.register(pid));
    assert!(locks.try_acquire(&a, key(1), LockMode::Exclusive));
    locks.begin_level(&a);
    assert!(locks.try_acquire(&a, key(2), LockMode::Exclusive));
    let mut two = wait(locks.acquire(&b, key(2), LockMode::Exclusive));
    locks.rollback_levels(&a, 1);
    assert!(ready(&mut two));
    assert!(locks.holds(&a, &key(1), LockMode::Exclusive));
}

fn deadlock_of(cycle: i32) {
    let locks = LockManager::new();
    locks.set_database(5);
    let owners: Vec<_> = (1..=cycle).map(|pid| locks.register(pid)).collect();
    for (n, owner) in owners.iter().enumerate() {
        assert!(locks.try_acquire(owner, key(n as i64), LockMode::Exclusive));
    }
    let mut waits = Vec::new();
    for (n, owner) in owners.iter().enumerate() {
        let next = key((n as i64 + 1) % i64::from(cycle));
        waits.push(wait(locks.acquire(owner, next, LockMode::Exclusive)));
        let closed = n + 1 == owners.len();
        assert_eq!(locks.run_deadlock_check(Duration::ZERO), usize::from(closed));
    }
    let mut victim = waits.pop().expect("the youngest");
    let LockCheck::Deadlock(detail) = victim.check() else { panic!("not the victim") };
    let lines: Vec<&str> = detail.lines().collect();
    assert_eq!(lines.len(), cycle as usize);
    let first = format!(
        "Process {cycle} waits for ExclusiveLock on advisory lock [5,0,0,1]; blocked by process 1."
    );
    assert_eq!(lines[0], first);
    assert!(matches!(victim.check().into_result(), Err(StorageError::Deadlock { .. })));
    drop(victim);
    assert_eq!(locks.deadlocks(), 1);
    // The victim's transaction ends, and the one before it goes on.
    locks.release_all(&owners[cycle as usize - 1]);
    assert!(ready(waits.last_mut().expect("another")));
}

#[test]
fn deadlocks_of_two_and_three_and_more_are_found() {
    for cycle in [2, 3, 7] {
        deadlock_of(cycle);
    }
}

#[test]
fn two_upgrades_are_a_deadlock() {
    let locks = LockManager::new();
    let [a, b] = [1, 2].map(|pid| locks.register(pid));
    assert!(locks.try_acquire(&a, REL, LockMode::Share));
    assert!(locks.try_acquire(&b, REL, LockMode::Share));
    let first = wait(locks.acquire(&a, REL, LockMode::AccessExclusive));
    assert!(!first.check_deadlock());
    let mut second = wait(locks.acquire(&b, REL, LockMode::AccessExclusive));
    assert!(second.check_deadlock());
    assert!(matches!(second.check(), LockCheck::Deadlock(_)));
    drop(second);
    drop(first);
    locks.release_all(&a);
    locks.release_all(&b);
    assert_eq!(locks.table_size(), 0);
}

/// A waits for B, which is only queued behind C, which waits for A. B may pass C.
#[test]
fn a_cycle_through_a_queue_is_resolved_by_reordering() {
    let locks = LockManager::new();
    let [a, b, c] = [1, 2, 3].map(|pid| locks.register(pid));
    // A reads 1. C wants to write it; B wants to read it, and stands behind C.
    assert!(locks.try_acquire(&a, key(1), LockMode::Share));
    assert!(locks.try_acquire(&b, key(2), LockMode::Exclusive));
    let mut c_waits = wait(locks.acquire(&c, key(1), LockMode::Exclusive));
    let mut b_waits = wait(locks.acquire(&b, key(1), LockMode::Share));
    // A waits for B, B for C (soft), C for A.
    let mut a_waits = wait(locks.acquire(&a, key(2), LockMode::Exclusive));
    assert!(!a_waits.check_deadlock(), "nobody has to die");
    assert!(ready(&mut b_waits), "B passed C");
    assert!(!ready(&mut c_waits) && !ready(&mut a_waits));
    locks.release_all(&b);
    assert!(ready(&mut a_waits));
    locks.release_all(&a);
    assert!(ready(&mut c_waits));
    assert_eq!(locks.deadlocks(), 0);
}

#[test]
fn views_show_holders_waiters_and_transactions() {
    let locks = LockManager::new();
    let [a, b] = [1, 2].map(|pid| locks.register(pid));
    a.hold_xid(crate::ids::Xid::new(700), true);
    assert!(locks.try_acquire(&a, key(1), LockMode::Exclusive));
    let waiting = wait(locks.acquire(&b, key(1), LockMode::Share));
    let rows = locks.list();
    let find = |pid, granted| rows.iter().filter(move |r| r.pid == pid && r.granted == granted);
    assert_eq!(find(1, true).count(), 2);
    assert!(find(1, true).any(|r| r.tag == LockTag::Xid(crate::ids::Xid::new(700))));
    let row = find(2, false).next().expect("the waiter");
    assert_eq!((row.tag, row.mode), (key(1), LockMode::Share));
    assert!(row.waiting_since.is_some());
    assert_eq!(waiting.blockers(), [1]);
    assert_eq!((locks.waiting(), locks.blocking_pids(1)), (1, Vec::new()));
}

#[test]
fn passed_on_locks_are_never_free_and_never_the_old_owners() {
    let locks = LockManager::new();
    let (from, to, other) = (locks.register(1), locks.register(0), locks.register(3));
    assert!(locks.try_acquire(&from, REL, LockMode::RowExclusive));
    assert!(locks.try_acquire(&from, key(1), LockMode::Exclusive));
    assert!(locks.try_acquire_for(&from, key(2), LockMode::Share, LockScope::Session));
    locks.begin_level(&from);
    assert!(locks.try_acquire(&from, key(3), LockMode::Share));
    assert!(!locks.holds_in_both_scopes(&from));
    let mut waiting = wait(locks.acquire(&other, key(1), LockMode::Share));
    locks.pass_on(&from, &to);
    assert!(!ready(&mut waiting), "nobody let go of it");
    assert_eq!(locks.blocking_pids(3), [0]);
    assert!(locks.transaction_locks(&from).is_empty());
    assert_eq!(locks.transaction_locks(&to).len(), 3);
    // The old owner's end gives up what is its own, and nothing else.
    locks.release_all(&from);
    assert!(!ready(&mut waiting));
    assert!(
        !locks.try_acquire(&from, REL, LockMode::AccessExclusive),
        "a fast-path lock went over"
    );
    assert!(!locks.try_acquire(&from, key(3), LockMode::Exclusive));
    drop(from);
    locks.release_all(&to);
    assert!(ready(&mut waiting));
}

#[test]
fn a_lock_held_in_both_scopes_is_known() {
    let locks = LockManager::new();
    let owner = locks.register(1);
    assert!(locks.try_acquire_for(&owner, key(1), LockMode::Share, LockScope::Session));
    assert!(locks.try_acquire(&owner, key(1), LockMode::Share));
    assert!(locks.holds_in_both_scopes(&owner));
}

/// A strong request looks for weak locks while they move from one owner to the other.
#[test]
fn a_strong_request_meets_a_weak_lock_that_moves() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for round in 0..4000 {
        let (started, pause) = (AtomicBool::new(false), round % 50);
        let locks = LockManager::new();
        // Who looks through the owners in order has seen the new one before the old one gives.
        let (to, from, strong) = (locks.register(0), locks.register(1), locks.register(3));
        assert!(locks.try_acquire(&from, REL, LockMode::RowExclusive));
        let free = std::thread::scope(|scope| {
            let request = scope.spawn(|| {
                started.store(true, Ordering::Release);
                locks.try_acquire(&strong, REL, LockMode::AccessExclusive)
            });
            while !started.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            (0..pause).for_each(|_| std::hint::spin_loop());
            locks.pass_on(&from, &to);
            request.join().expect("the request")
        });
        assert!(!free, "it was found free");
    }
}

#[test]
fn long_waits_are_told_once_with_their_end() {
    use crate::sync::Arc;
    let locks = LockManager::new();
    let lines = Arc::new(crate::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    locks.set_wait_log(Box::new(move |line, detail| {
        sink.lock().push((line.to_owned(), detail.map(str::to_owned)));
    }));
    let [a, b, c, quiet] = [1, 2, 3, 4].map(|pid| locks.register(pid));
    b.set_tells_waits(true);
    c.set_tells_waits(true);
    assert!(locks.try_acquire(&a, key(7), LockMode::Exclusive));
    let mut first = wait(locks.acquire(&b, key(7), LockMode::Share));
    let mut last = wait(locks.acquire(&c, key(7), LockMode::Exclusive));
    let _untold = wait(locks.acquire(&quiet, key(7), LockMode::Share));
    assert_eq!(locks.run_deadlock_check(Duration::ZERO), 0);
    assert_eq!(locks.run_deadlock_check(Duration::ZERO), 0);
    locks.release_all(&a);
    assert!(ready(&mut first));
    locks.release_all(&b);
    assert!(ready(&mut last));
    let lines = lines.lock();
    let start = |at: usize| lines[at].0.split(" after ").next().expect("a line").to_owned();
    let on = "on advisory lock [0,0,7,1]";
    assert_eq!(start(0), format!("process 2 still waiting for ShareLock {on}"));
    assert_eq!(lines[0].1.as_deref(), Some("Process holding the lock: 1. Wait queue: 2, 3, 4."));
    assert_eq!(start(1), format!("process 3 still waiting for ExclusiveLock {on}"));
    assert_eq!(start(2), format!("process 2 acquired ShareLock {on}"));
    assert_eq!(start(3), format!("process 3 acquired ExclusiveLock {on}"));
    assert_eq!(lines.len(), 4);
    assert!(lines[0].0.ends_with(" ms"), "{}", lines[0].0);
}

/// The quick look that lets the detector skip a thousand waits at once must see every cycle that the
/// careful one finds, and no other.
#[test]
fn the_quick_look_agrees_with_the_careful_one() {
    let mut seed = 1u64;
    let mut dice = move |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    let (mut cycles, mut clear) = (0, 0);
    for _ in 0..400 {
        let locks = LockManager::new();
        let owners: Vec<_> = (0..6).map(|pid| locks.register(pid)).collect();
        let mut waits = Vec::new();
        let mut waiting = [false; 6];
        for _ in 0..24 {
            let who = dice(6) as usize;
            if waiting[who] {
                continue;
            }
            let mode = LockMode::ALL[dice(8) as usize];
            if let LockResult::Wait(wait) = locks.acquire(&owners[who], key(dice(3) as i64), mode) {
                waiting[who] = true;
                waits.push(wait);
            }
        }
        let quick = locks.has_cycle();
        // Reordering a queue may resolve one without a victim: count the deadlocks and the moves.
        let before = locks.list().iter().filter(|row| !row.granted).count();
        let victims = waits.iter().filter(|wait| wait.check_deadlock()).count();
        let after = locks.list().iter().filter(|row| !row.granted).count();
        let careful = victims > 0 || after < before;
        if quick {
            cycles += 1
        } else {
            clear += 1
        }
        assert!(quick || !careful, "the quick look missed a cycle");
        assert!(!locks.has_cycle(), "cycles are left");
    }
    assert!(cycles > 20 && clear > 20, "{cycles} {clear}");
}

/// Processor time of this thread: what other programs do meanwhile does not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// One by one, in order, and the five thousandth like the first.
#[test]
fn a_long_queue_is_worked_off_in_order_and_in_proportion() {
    let time = |n: i32| {
        let locks = LockManager::new();
        let owners: Vec<_> = (0..n).map(|pid| locks.register(pid)).collect();
        let began = processor_time();
        assert!(locks.try_acquire(&owners[0], key(1), LockMode::Exclusive));
        let mut waits: Vec<LockWait> = owners[1..]
            .iter()
            .map(|owner| wait(locks.acquire(owner, key(1), LockMode::Exclusive)))
            .collect();
        assert_eq!(locks.run_deadlock_check(Duration::ZERO), 0);
        for (at, waiting) in waits.iter_mut().enumerate() {
            locks.release_all(&owners[at]);
            assert!(ready(waiting), "{at} is next");
        }
        processor_time() - began
    };
    // Looking through the queue for each would take a hundred times as long, not ten.
    let few = (0..3).map(|_| time(500)).min().expect("three times");
    let many = (0..3).map(|_| time(5000)).min().expect("three times");
    println!("500 waiters: {few:?}; 5,000: {many:?}");
    assert!(many < few * 40, "500: {few:?}, 5,000: {many:?}");
}
