//! Several threads on one table: money moves between accounts, never appears or vanishes.
//!
//! Writers move amounts under row locks as READ COMMITTED clients would (wait, follow the row, try
//! again); readers add up all accounts in one snapshot; a maintainer vacuums and checkpoints.

use super::model::Rng;
use super::*;
use crate::ids::Xid;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::txn::XidStatus;

const ACCOUNTS: u32 = 40;
const START: i64 = 1000;

fn encode(account: u32, amount: i64, pad: usize) -> Vec<u8> {
    let mut data = account.to_be_bytes().to_vec();
    data.extend_from_slice(&amount.to_be_bytes());
    data.resize(12 + pad, 0);
    data
}

fn decode(data: &[u8]) -> (u32, i64) {
    let account = u32::from_be_bytes(data[..4].try_into().expect("4 bytes"));
    (account, i64::from_be_bytes(data[4..12].try_into().expect("8 bytes")))
}

fn wait_for(db: &Db, xid: Xid) {
    while db.e.txns.status(xid) == XidStatus::InProgress {
        std::thread::yield_now();
    }
}

/// Adds `delta` to an account found at `row`; follows it as READ COMMITTED does.
fn add(tx: &mut Tx<'_>, row: RowId, account: u32, delta: i64, pad: usize) -> bool {
    let (db, mut row) = (tx.db, row);
    let mut buf = TupleBuf::new();
    let snapshot = tx.tx.statement_snapshot();
    let cx = ReadCx::new(&db.e, &tx.tx, snapshot, &tx.state);
    if !fetch(&db.e, &cx, &db.h, row, &mut buf).expect("fetch") {
        return false;
    }
    loop {
        let (found, amount) = decode(buf.tuple().expect("fetched").data());
        assert_eq!(found, account, "the row id still names the account's row");
        let data = encode(account, amount + delta, pad);
        match tx.update(row, &data, true) {
            TupleResult::Ok(_) => return true,
            TupleResult::BeingModified(xid) => wait_for(db, xid),
            TupleResult::Updated { next, xmax } => loop {
                let wanted = RowLock::NoKeyUpdate;
                let e = &db.e;
                match follow_update_chain(e, &tx.tx, &db.h, next, xmax, wanted, &mut buf) {
                    Ok(Newest::Row(newest)) => {
                        row = newest;
                        break;
                    }
                    Ok(Newest::Busy(xid)) => wait_for(db, xid),
                    other => panic!("account {account}: {other:?}"),
                }
            },
            other => panic!("account {account}: {other:?}"),
        }
    }
}

fn writer(db: &Db, seed: u64, moves: usize) {
    let mut rng = Rng::new(seed);
    for _ in 0..moves {
        let mut tx = db.begin();
        tx.tx.set_isolation(IsolationLevel::ReadCommitted);
        let rows = tx.scan();
        assert_eq!(rows.len(), ACCOUNTS as usize);
        let (a, b) = (rng.below(rows.len()), rng.below(rows.len()));
        let amount = rng.below(50) as i64;
        // In the order of accounts, so that no two wait for each other.
        let mut steps = [(decode(&rows[a].1).0, a, -amount), (decode(&rows[b].1).0, b, amount)];
        steps.sort();
        let done = steps.iter().all(|(account, at, delta)| {
            tx.tx.next_command().expect("command");
            // A statement of its own: a new snapshot, a new look for the row.
            let row = tx.scan().iter().find(|(_, d)| decode(d).0 == *account).map(|r| r.0);
            let _ = at;
            let pad = rng.below(300);
            row.is_some_and(|row| add(&mut tx, row, *account, *delta, pad))
        });
        if done && rng.below(5) > 0 { tx.commit() } else { tx.abort() }
    }
}

fn reader(db: &Db, stop: &AtomicBool, policy: HintPolicy, sums: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let mut tx = db.begin();
        let snapshot = tx.snapshot();
        let mut cx = ReadCx::new(&db.e, &tx.tx, snapshot, &tx.state);
        cx.policy = policy;
        for _ in 0..2 {
            let rows = scan_all(db, &cx);
            assert_eq!(rows.len(), ACCOUNTS as usize, "each account once");
            let sum: i64 = rows.iter().map(|(_, d)| decode(d).1).sum();
            assert_eq!(sum, START * i64::from(ACCOUNTS));
        }
        sums.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn money_is_neither_made_nor_lost() {
    let mut sim = testing::Sim::new(7);
    sim.options = testing::options(64);
    let db = Db::on(sim.open());
    let mut tx = db.begin();
    for account in 0..ACCOUNTS {
        tx.insert(&encode(account, START, 100));
    }
    tx.commit();
    let (stop, sums) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..3)
            .map(|n| {
                s.spawn({
                    let db = &db;
                    move || writer(db, 100 + n, 250)
                })
            })
            .collect();
        for policy in [HintPolicy::Frame, HintPolicy::Off] {
            s.spawn({
                let (db, stop, sums) = (&db, &stop, &sums);
                move || reader(db, stop, policy, sums)
            });
        }
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                db.vacuum_with(VacuumOpts::default());
                db.e.background_round().expect("round");
                db.e.txns.maintain(db.e.wal.flushed());
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|end| end.expect("writer"));
    });
    assert!(sums.load(Ordering::Relaxed) > 0);
    let counters = &db.e.heap.counters;
    assert!(counters.hot_updates.load(Ordering::Relaxed) > 50);
    assert!(counters.pages_pruned.load(Ordering::Relaxed) > 0);
    db.check();
}
