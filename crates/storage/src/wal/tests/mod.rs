//! Tests of the log as a whole; those of single parts stand beside them.

mod crash;
mod log;
mod records;
mod speed;

use super::*;
use crate::vfs::{SimClock, SimDisk};

/// Segments of 8 KiB and no thread: everything happens when the test says so.
fn small_options() -> WalOptions {
    WalOptions {
        segment_size: 8192,
        buffer_size: 64 << 10,
        flush_after: 0,
        init_zero: false,
        background_writer: false,
        ..WalOptions::default()
    }
}

fn open_at(disk: &SimDisk, options: &WalOptions, start: Lsn) -> Result<Arc<Wal>> {
    Wal::open(Arc::new(disk.clone()), Arc::new(SimClock::new()), options.clone(), start)
}

/// A log on a fresh simulated disk.
fn fresh(options: &WalOptions) -> (SimDisk, Arc<Wal>) {
    let disk = SimDisk::new(1);
    let wal = open_at(&disk, options, FIRST_LSN).expect("open");
    (disk, wal)
}

fn reader(disk: &SimDisk, from: Lsn) -> WalReader {
    WalReader::with_segment_size(Arc::new(disk.clone()), from, small_options().segment_size)
}

/// All records from `from` to the end of the log.
fn read_all(disk: &SimDisk, from: Lsn) -> Vec<DecodedRecord> {
    let mut reader = reader(disk, from);
    let mut records = Vec::new();
    while let Some((end, record)) = reader.next().expect("the log is readable") {
        assert_eq!(end, record.end);
        records.push(record);
    }
    records
}

fn noop(xid: u64, data: &[u8]) -> RecordBuilder {
    let mut record = RecordBuilder::new(RecordKind::Noop, Xid::new(xid));
    record.data(data);
    record
}

fn try_append(wal: &Wal, xid: u64, data: &[u8]) -> Result<Lsn> {
    let record = noop(xid, data);
    let room = wal.reserve(record.encoded_len())?;
    Ok(wal.insert(&record, room, wal.redo_point()).expect("a record without blocks"))
}

fn append(wal: &Wal, xid: u64, data: &[u8]) -> Lsn {
    try_append(wal, xid, data).expect("room")
}
