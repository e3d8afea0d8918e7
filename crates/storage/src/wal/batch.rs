//! The log in large pieces, for replay: records are checked once and read where they lie.
//!
//! ```text
//!   bytes     | record | record | record | rec...      the cut one begins the next piece
//!   records     (at,len) (at,len) (at,len)
//! ```
//!
//! Nothing is copied or allocated for a record; a piece's memory is used again. What ends the log
//! is what ends it for [`WalReader::next`].

use super::reader::{EndOfLog, WalReader};
use super::record::{
    MAX_RECORD_LEN, RECORD_HEADER_SIZE, RecordError, RecordRef, claimed_len, padded,
};
use crate::error::{Result, StorageError};
use crate::ids::Lsn;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// Whole, checked records that follow each other.
#[derive(Debug, Default)]
pub struct LogBatch {
    bytes: Vec<u8>,
    /// Where in the log the bytes begin.
    start: u64,
    /// Offset and length of each record, without padding.
    records: Vec<(u32, u32)>,
}

/// Why a piece's records end where they do.
enum Stop {
    /// The next one needs this many bytes, and may be whole.
    Cut(usize),
    End(EndOfLog),
}

impl LogBatch {
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        self.records.iter().map(|(at, len)| {
            let (at, len) = (*at as usize, *len as usize);
            RecordRef::checked(&self.bytes[at..at + len], Lsn::new(self.start + at as u64))
        })
    }

    /// Finds the whole records. `short`: the log's files have no more bytes.
    fn scan(&mut self, short: bool) -> Result<Stop> {
        let mut at = 0;
        loop {
            let rest = &self.bytes[at..];
            let cut = |needed| if short { Stop::End(EndOfLog::Missing) } else { Stop::Cut(needed) };
            let Some(header) = rest.first_chunk() else { return Ok(cut(RECORD_HEADER_SIZE)) };
            let len = match claimed_len(header) {
                0 => return Ok(Stop::End(EndOfLog::Unused)),
                len if !(RECORD_HEADER_SIZE..=MAX_RECORD_LEN).contains(&len) => {
                    return Ok(Stop::End(EndOfLog::BadLength));
                }
                len => len,
            };
            // The padding belongs to the record: it was written with it.
            if padded(len) > rest.len() {
                return Ok(cut(padded(len)));
            }
            let start = Lsn::new(self.start + at as u64);
            match RecordRef::check(&rest[..len], start) {
                Ok(_) => {}
                Err(RecordError::Length) => return Ok(Stop::End(EndOfLog::BadLength)),
                Err(RecordError::Checksum) => return Ok(Stop::End(EndOfLog::BadChecksum)),
                Err(RecordError::Malformed(what)) => {
                    let what = format!("log record at {start} is malformed: {what}");
                    return Err(StorageError::corrupt(what));
                }
            }
            self.records.push((at as u32, len as u32));
            at += padded(len);
        }
    }
}

impl WalReader {
    /// The next records, at least one and about a megabyte of them; false at the end of the log.
    pub fn next_batch(&mut self, batch: &mut LogBatch) -> Result<bool> {
        let mut want = PIECE;
        loop {
            batch.records.clear();
            batch.start = self.position().raw();
            self.read_log(&mut batch.bytes, batch.start, want)?;
            let stop = batch.scan(batch.bytes.len() < want)?;
            if let Some((at, len)) = batch.records.last() {
                let end = *at as usize + padded(*len as usize);
                self.advance_to(Lsn::new(batch.start + end as u64));
                return Ok(true);
            }
            match stop {
                Stop::Cut(needed) => want = needed.max(PIECE),
                Stop::End(end) => {
                    self.ended(end);
                    return Ok(false);
                }
            }
        }
    }
}
