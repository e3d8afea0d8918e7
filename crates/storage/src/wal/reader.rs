//! Reads records in order and finds the end of the log.
//!
//! The log ends at the first position that does not hold a whole record sealed for exactly that
//! position: a length of zero, an impossible length, bytes that are not there (the next file is
//! missing or short), a checksum that does not match. All of these are what a crash leaves, so
//! they are a clean end, not an error. Damage in the middle looks the same and ends the log too:
//! telling the two apart would need a second copy of the truth.
//!
//! An error comes back when the device fails to read, and when a record with a right checksum
//! makes no sense: that was written so, by something that is not this version of the program.
//!
//! Reading does not change anything and needs no [`Wal`](super::Wal); it may go on while the log
//! is being written. After the end was met, `next` looks again.

use super::options::WalOptions;
use super::record::{
    DecodedRecord, MAX_RECORD_LEN, RECORD_HEADER_SIZE, RecordError, claimed_len, padded,
};
use super::segment::segment_path;
use crate::error::{Result, StorageError};
use crate::ids::Lsn;
use crate::vfs::{OpenMode, Vfs, VfsFile};
use std::io;
use std::sync::Arc;

/// Bytes read at a time.
const WINDOW: usize = 256 * 1024;

/// Why the log ends where it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndOfLog {
    /// Zeros: never written.
    Unused,
    /// The file that would go on does not exist or is too short.
    Missing,
    /// A length that no record has: old or foreign bytes.
    BadLength,
    /// A torn record, or old bytes of a recycled file.
    BadChecksum,
}

impl EndOfLog {
    /// For messages: "the log ends at X/Y: ...".
    pub const fn reason(self) -> &'static str {
        match self {
            EndOfLog::Unused => "nothing was written beyond",
            EndOfLog::Missing => "the next segment is missing or short",
            EndOfLog::BadLength => "invalid record length",
            EndOfLog::BadChecksum => "incorrect checksum in record",
        }
    }
}

/// An iterator over the log, from a position that starts a record.
pub struct WalReader {
    vfs: Arc<dyn Vfs>,
    segment_size: u64,
    at: Lsn,
    file: Option<(u64, Arc<dyn VfsFile>)>,
    window: Vec<u8>,
    window_start: u64,
    end: Option<EndOfLog>,
}

impl std::fmt::Debug for WalReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WalReader")
            .field("at", &self.at)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl WalReader {
    /// Reads segments of the ordinary size.
    pub fn new(vfs: Arc<dyn Vfs>, from: Lsn) -> Self {
        Self::with_segment_size(vfs, from, WalOptions::default().segment_size)
    }

    pub fn with_segment_size(vfs: Arc<dyn Vfs>, from: Lsn, segment_size: u64) -> Self {
        WalReader {
            vfs,
            segment_size,
            at: from,
            file: None,
            window: Vec::new(),
            window_start: 0,
            end: None,
        }
    }

    /// Where the next record starts; after the end was met, the end of the valid log.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Why the last `next` answered `None`.
    pub fn end_of_log(&self) -> Option<EndOfLog> {
        self.end
    }

    /// The next record and its LSN; `None` at the end of the log.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Lsn, DecodedRecord)>> {
        let record = match self.read_record()? {
            Ok(record) => record,
            Err(end) => {
                self.ended(end);
                return Ok(None);
            }
        };
        self.at = record.end;
        Ok(Some((record.end, record)))
    }

    fn read_record(&mut self) -> Result<std::result::Result<DecodedRecord, EndOfLog>> {
        let start = self.at;
        let Some(header) = self.bytes_at(start.raw(), RECORD_HEADER_SIZE)? else {
            return Ok(Err(EndOfLog::Missing));
        };
        let header = header.first_chunk().expect("the header's length was asked for");
        let len = match claimed_len(header) {
            0 => return Ok(Err(EndOfLog::Unused)),
            len if !(RECORD_HEADER_SIZE..=MAX_RECORD_LEN).contains(&len) => {
                return Ok(Err(EndOfLog::BadLength));
            }
            len => len,
        };
        // The padding belongs to the record: it was written with it.
        let Some(bytes) = self.bytes_at(start.raw(), padded(len))? else {
            return Ok(Err(EndOfLog::Missing));
        };
        match DecodedRecord::decode(&bytes[..len], start) {
            Ok(record) => Ok(Ok(record)),
            Err(RecordError::Length) => Ok(Err(EndOfLog::BadLength)),
            Err(RecordError::Checksum) => Ok(Err(EndOfLog::BadChecksum)),
            Err(RecordError::Malformed(what)) => {
                Err(StorageError::corrupt(format!("log record at {start} is malformed: {what}")))
            }
        }
    }

    /// The bytes of the log at a position, or `None` when not all of them exist.
    fn bytes_at(&mut self, at: u64, len: usize) -> Result<Option<&[u8]>> {
        let window_end = self.window_start + self.window.len() as u64;
        if at < self.window_start || at + len as u64 > window_end {
            self.fill_window(at, len.max(WINDOW))?;
        }
        let from = (at - self.window_start) as usize;
        Ok(self.window.get(from..from + len))
    }

    fn fill_window(&mut self, at: u64, len: usize) -> Result<()> {
        let mut window = std::mem::take(&mut self.window);
        let outcome = self.read_log(&mut window, at, len);
        (self.window, self.window_start) = (window, at);
        outcome
    }

    /// Reads up to `len` bytes of the log from `at` on: fewer where they end.
    pub(super) fn read_log(&mut self, into: &mut Vec<u8>, at: u64, len: usize) -> Result<()> {
        into.resize(len, 0);
        let mut filled = 0;
        while filled < len {
            let pos = at + filled as u64;
            let (segno, offset) = (pos / self.segment_size, pos % self.segment_size);
            let Some(file) = self.segment(segno)? else { break };
            let left = usize::try_from(self.segment_size - offset).unwrap_or(usize::MAX);
            let want = left.min(len - filled);
            let got = file.read_at(&mut into[filled..filled + want], offset);
            let got = got
                .map_err(|e| StorageError::io("read", segment_path(segno, self.segment_size), e))?;
            filled += got;
            if got < want {
                break;
            }
        }
        into.truncate(filled);
        Ok(())
    }

    /// Everything before `at` was read by somebody.
    pub(super) fn advance_to(&mut self, at: Lsn) {
        self.at = at;
    }

    /// The log ends where the reader is.
    pub(super) fn ended(&mut self, why: EndOfLog) {
        self.end = Some(why);
        self.file = None;
        self.window.clear();
    }

    fn segment(&mut self, segno: u64) -> Result<Option<Arc<dyn VfsFile>>> {
        if let Some((open, file)) = &self.file
            && *open == segno
        {
            return Ok(Some(Arc::clone(file)));
        }
        let path = segment_path(segno, self.segment_size);
        match self.vfs.open(&path, OpenMode::Open) {
            Ok(file) => {
                self.file = Some((segno, Arc::clone(&file)));
                Ok(Some(file))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StorageError::io("open", path, e)),
        }
    }
}
