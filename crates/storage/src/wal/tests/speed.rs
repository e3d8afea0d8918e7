//! How long an insertion takes. Not run by default: the figure depends on machine and build.

use super::*;
use crate::ids::{PageId, RelId};
use crate::page::PageClass;
use std::time::Instant;

const ROUNDS: u32 = 400_000;

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

#[test]
#[ignore = "a measurement"]
fn insertion() {
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
        insert_many(&wal, 1000);
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| insert_many(&wal, ROUNDS / threads));
            }
        });
        let each = started.elapsed() / ROUNDS;
        println!("{threads} threads: {each:?} an insertion of 136 bytes; {:?}", wal.stats());
    }
}
