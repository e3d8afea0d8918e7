//! How the log behaves: one value, fixed when it is opened.

use super::record::WalCompression;
use crate::error::{Result, StorageError};

/// Settings of the log. Names in parentheses are the server's settings.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Bytes of one file; a power of two, at least 4 KiB (`wal_segment_size`).
    pub segment_size: u64,
    /// Bytes of the ring that records wait in (`wal_buffers`); rounded up to a power of two, at
    /// least 64 KiB. No record can be longer.
    pub buffer_size: usize,
    /// The writer looks after unwritten bytes at least this often (`wal_writer_delay`).
    pub writer_delay_micros: u64,
    /// Bytes after which the writer flushes though nobody waits (`wal_writer_flush_after`);
    /// 0 leaves flushing to waiters and deadlines.
    pub flush_after: u64,
    /// Bytes after which the writer hands records to the kernel, ahead of any flush.
    pub write_after: u64,
    /// Whether to call `sync` at all (`fsync`). Without it a crash of the host loses data.
    pub fsync: bool,
    /// Fills new segments with zeros instead of only reserving their space (`wal_init_zero`), so
    /// that a flush changes nothing but contents.
    pub init_zero: bool,
    /// Bytes of log that only essential records may use when the disk is full; at most a quarter
    /// of a segment is taken.
    pub safety_margin: u64,
    /// What is done to page images (`wal_compression`).
    pub compression: WalCompression,
    /// Whether `open` starts the writer thread. Without it `flush` does all the work, inline, and
    /// a simulation calls `run_writer_once`.
    pub background_writer: bool,
    /// Without that thread: whoever waits for a flush waits until the caller has run the writer
    /// (`run_writer_once`), as he would for the thread. Blocking flushes work inline all the same.
    pub driven_writer: bool,
}

/// The smallest and the largest segment.
const SEGMENT_SIZES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;
/// The smallest and the largest ring.
const BUFFER_SIZES: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 30;

impl WalOptions {
    /// The options as they are used, or what is wrong with them.
    pub(super) fn checked(mut self) -> Result<Self> {
        let size = self.segment_size;
        if !size.is_power_of_two() || !SEGMENT_SIZES.contains(&size) {
            let what = format!("WAL segment size {size} is not a power of two from 4 kB to 1 GB");
            return Err(StorageError::Limit { what });
        }
        let buffer = self.buffer_size.clamp(*BUFFER_SIZES.start(), *BUFFER_SIZES.end());
        self.buffer_size = buffer.next_power_of_two();
        // Writing has to start long before the ring is full.
        self.write_after = self.write_after.min(self.buffer_size as u64 / 4);
        self.safety_margin = self.safety_margin.min(size / 4);
        Ok(self)
    }
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            segment_size: 16 << 20,
            buffer_size: 16 << 20,
            writer_delay_micros: 200_000,
            flush_after: 1 << 20,
            write_after: 256 << 10,
            fsync: true,
            init_zero: true,
            safety_margin: 1 << 20,
            compression: WalCompression::Off,
            background_writer: true,
            driven_writer: false,
        }
    }
}
