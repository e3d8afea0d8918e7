//! How long an insertion takes, for people to read:
//! `BENCH=1 cargo test --release -p inkling-storage --lib wal::tests::speed -- --nocapture`.
//! Without `BENCH` a short run keeps it from rotting.

use super::*;
use crate::ids::{PageId, RelId};
use crate::page::PageClass;
use std::time::{Duration, Instant};

/// The best batch is what the code costs; the rest is what else the machine does.
const BATCH: u32 = 1_000;

fn insert_many(wal: &Wal, rounds: u32) {
    let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::new(1));
    for block in 0..rounds {
        record.reset(RecordKind::PageChange, Xid::new(u64::from(block)));
        let id = PageId::main(RelId::new(16385), block);
        record.block(id, PageClass::Heap, false, BlockBody::Ops(&[7; 100]));
        let room = wal.reserve(8400).expect("room");
        wal.insert(&record, room, wal.redo_point()).expect("a resting redo point");
    }
}

fn timed_batch(wal: &Wal) -> Duration {
    let started = Instant::now();
    insert_many(wal, BATCH);
    started.elapsed()
}

#[test]
fn insertion() {
    let rounds = if std::env::var_os("BENCH").is_some() { 400_000 } else { 8_000 };
    let options = WalOptions {
        segment_size: 16 << 20,
        buffer_size: 16 << 20,
        fsync: false,
        background_writer: true,
        ..small_options()
    };
    for threads in [1, 2, 4] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let vfs = Arc::new(crate::vfs::RealVfs::new(dir.path()));
        let clock = Arc::new(crate::vfs::SystemClock::new());
        let wal = Wal::open(vfs, clock, options.clone(), FIRST_LSN).expect("open");
        let started = Instant::now();
        let best = std::thread::scope(|scope| {
            let run = || (0..rounds / threads / BATCH).map(|_| timed_batch(&wal)).min();
            let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            runs.into_iter().filter_map(|run| run.join().expect("inserter")).min()
        });
        let (best, mean) = (best.expect("batches") / BATCH, started.elapsed() / rounds);
        println!("{threads} threads: 136 bytes a record, best {best:?}, wall {mean:?}");
    }
}
