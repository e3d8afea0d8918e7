//! The control file: where replay starts, and whether it has to.
//!
//! ```text
//!   global/pg_control    byte 0: copy A, 512 bytes      byte 4096: copy B, 512 bytes
//!
//!   0       8         12    16         24          32      33          34  40          48
//!   | magic | version | crc | sequence | system id | state | checksums | 0 | page size |
//!   48            56     64           72         80           88               96         104
//!   | wal segment | redo | checkpoint | next xid | oldest xid | next rel u32, 0 | time i64 | 0 ..
//! ```
//!
//! An update writes the copy that is *not* the newest, with the next sequence number, and syncs. A
//! torn or lost update leaves the other copy; the reader takes the newest that is valid.

use crate::error::{Result, StorageError};
use crate::ids::{Lsn, RelId, Xid};
use crate::page::PAGE_SIZE;
use crate::vfs::{OpenMode, Vfs, VfsFile};
use std::io;
use std::sync::Arc;

pub const CONTROL_PATH: &str = "global/pg_control";
const MAGIC: [u8; 8] = *b"INKLCTRL";
/// Version of everything in the data directory: pages, log, this file.
pub const FORMAT_VERSION: u32 = 1;
const COPY_BYTES: usize = 512;
const COPY_B_AT: u64 = 4096;
const CRC_AT: usize = 12;
const TIME_AT: usize = 96;

/// How the last run ended, or that it has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ControlState {
    /// Everything is on disk; the log ends with the checkpoint.
    ShutDown = 1,
    /// Running, or stopped without a word.
    InProduction = 2,
    /// Replaying, or stopped while it was.
    InRecovery = 3,
}

/// What the control file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlData {
    pub system_id: u64,
    pub state: ControlState,
    pub checksums: bool,
    pub wal_segment_size: u64,
    /// Replay starts here.
    pub redo: Lsn,
    /// End of the newest checkpoint's record.
    pub checkpoint: Lsn,
    pub next_xid: Xid,
    /// Oldest xid whose status the commit log still has.
    pub oldest_xid: Xid,
    pub next_rel: RelId,
    /// Wall clock of the checkpoint, microseconds since 1970.
    pub time_micros: i64,
}

/// The open control file.
pub struct ControlFile {
    file: Arc<dyn VfsFile>,
    sequence: u64,
    data: ControlData,
    fsync: bool,
}

fn put(out: &mut [u8; COPY_BYTES], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u64_at(raw: &[u8; COPY_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&raw[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn crc_of(raw: &[u8; COPY_BYTES]) -> u32 {
    let head = crc32c::crc32c(&raw[..CRC_AT]);
    crc32c::crc32c_append(head, &raw[CRC_AT + 4..])
}

fn encode(data: &ControlData, sequence: u64) -> [u8; COPY_BYTES] {
    let mut out = [0; COPY_BYTES];
    put(&mut out, 0, &MAGIC);
    put(&mut out, 8, &FORMAT_VERSION.to_le_bytes());
    put(&mut out, 16, &sequence.to_le_bytes());
    put(&mut out, 24, &data.system_id.to_le_bytes());
    out[32] = data.state as u8;
    out[33] = u8::from(data.checksums);
    put(&mut out, 40, &(PAGE_SIZE as u64).to_le_bytes());
    put(&mut out, 48, &data.wal_segment_size.to_le_bytes());
    put(&mut out, 56, &data.redo.raw().to_le_bytes());
    put(&mut out, 64, &data.checkpoint.raw().to_le_bytes());
    put(&mut out, 72, &data.next_xid.raw().to_le_bytes());
    put(&mut out, 80, &data.oldest_xid.raw().to_le_bytes());
    put(&mut out, 88, &data.next_rel.raw().to_le_bytes());
    put(&mut out, TIME_AT, &data.time_micros.to_le_bytes());
    let crc = crc_of(&out);
    put(&mut out, CRC_AT, &crc.to_le_bytes());
    out
}

/// Why a copy cannot be used.
enum Unusable {
    NotOurs,
    Damaged,
    Version(u32),
    Shape(String),
}

fn decode(raw: &[u8; COPY_BYTES]) -> Result<(u64, ControlData), Unusable> {
    if raw[..8] != MAGIC {
        return Err(Unusable::NotOurs);
    }
    let word = |at: usize| u64_at(raw, at) as u32;
    if word(CRC_AT) != crc_of(raw) {
        return Err(Unusable::Damaged);
    }
    if word(8) != FORMAT_VERSION {
        return Err(Unusable::Version(word(8)));
    }
    if u64_at(raw, 40) != PAGE_SIZE as u64 {
        return Err(Unusable::Shape(format!("pages of {} bytes", u64_at(raw, 40))));
    }
    let state = match raw[32] {
        1 => ControlState::ShutDown,
        2 => ControlState::InProduction,
        3 => ControlState::InRecovery,
        other => return Err(Unusable::Shape(format!("unknown state {other}"))),
    };
    let data = ControlData {
        system_id: u64_at(raw, 24),
        state,
        checksums: raw[33] != 0,
        wal_segment_size: u64_at(raw, 48),
        redo: Lsn::new(u64_at(raw, 56)),
        checkpoint: Lsn::new(u64_at(raw, 64)),
        next_xid: Xid::new(u64_at(raw, 72)),
        oldest_xid: Xid::new(u64_at(raw, 80)),
        next_rel: RelId::new(word(88)),
        time_micros: u64_at(raw, TIME_AT) as i64,
    };
    Ok((u64_at(raw, 16), data))
}

fn refuse(newer: &Unusable) -> StorageError {
    let what = match newer {
        Unusable::NotOurs => {
            format!("\"{CONTROL_PATH}\" is not an Inkling control file")
        }
        Unusable::Damaged => {
            format!("both copies of \"{CONTROL_PATH}\" are damaged (checksum mismatch)")
        }
        Unusable::Version(found) if *found > FORMAT_VERSION => format!(
            "the data directory was written by a newer version: its format is {found}, this program reads {FORMAT_VERSION}"
        ),
        Unusable::Version(found) => format!(
            "the data directory has format {found}, this program reads {FORMAT_VERSION}; dump and restore it"
        ),
        Unusable::Shape(what) => format!("\"{CONTROL_PATH}\": {what}"),
    };
    StorageError::DataDirectory { what }
}

impl ControlFile {
    /// Writes the control file of a new data directory, both copies, durably.
    pub fn create(vfs: &dyn Vfs, data: ControlData, fsync: bool) -> Result<ControlFile> {
        let io = |e| StorageError::io("write file", CONTROL_PATH, e);
        let file = vfs.open(CONTROL_PATH, OpenMode::OpenOrCreate).map_err(io)?;
        file.write_at(&encode(&data, 1), COPY_B_AT).map_err(io)?;
        file.write_at(&encode(&data, 0), 0).map_err(io)?;
        if fsync {
            file.sync().map_err(|e| StorageError::io("fsync file", CONTROL_PATH, e))?;
        }
        Ok(ControlFile { file, sequence: 1, data, fsync })
    }

    /// Opens and checks the control file.
    pub fn open(vfs: &dyn Vfs, fsync: bool) -> Result<ControlFile> {
        let io = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => StorageError::DataDirectory {
                what: format!("could not find the control file \"{CONTROL_PATH}\""),
            },
            _ => StorageError::io("read file", CONTROL_PATH, e),
        };
        let file = vfs.open(CONTROL_PATH, OpenMode::Open).map_err(io)?;
        let mut best: Option<(u64, ControlData)> = None;
        let mut reason = None;
        for at in [0, COPY_B_AT] {
            let mut raw = [0; COPY_BYTES];
            let outcome = match file.read_exact_at(&mut raw, at) {
                Ok(()) => decode(&raw),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(Unusable::Damaged),
                Err(e) => return Err(io(e)),
            };
            match outcome {
                Ok(found) if best.is_none_or(|b| b.0 < found.0) => best = Some(found),
                Ok(_) => {}
                // A copy that is intact and of another version says more than a torn one.
                Err(Unusable::Damaged) if reason.is_some() => {}
                Err(why) => reason = Some(why),
            }
        }
        if let Some(why @ (Unusable::Version(_) | Unusable::Shape(_))) = &reason {
            return Err(refuse(why));
        }
        match best {
            Some((sequence, data)) => Ok(ControlFile { file, sequence, data, fsync }),
            None => Err(refuse(&reason.unwrap_or(Unusable::Damaged))),
        }
    }

    pub fn data(&self) -> &ControlData {
        &self.data
    }

    /// Replaces what the file says, durably. On an error the old contents still stand on disk
    /// (or the new ones do: both are true).
    pub fn update(&mut self, data: ControlData) -> Result<()> {
        let sequence = self.sequence + 1;
        let at = if sequence.is_multiple_of(2) { 0 } else { COPY_B_AT };
        self.file
            .write_at(&encode(&data, sequence), at)
            .map_err(|e| StorageError::failed_write("write to file", CONTROL_PATH, e))?;
        if self.fsync {
            let synced = self.file.sync();
            synced.map_err(|e| StorageError::failed_sync("fsync file", CONTROL_PATH, e))?;
        }
        self.sequence = sequence;
        self.data = data;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::RealVfs;

    fn sample() -> ControlData {
        ControlData {
            system_id: 42,
            state: ControlState::InProduction,
            checksums: true,
            wal_segment_size: 16 << 20,
            redo: Lsn::new(0x100_0000),
            checkpoint: Lsn::new(0x100_0080),
            next_xid: Xid::new(3),
            oldest_xid: Xid::new(3),
            next_rel: RelId::new(16384),
            time_micros: -5,
        }
    }

    fn make() -> (tempfile::TempDir, RealVfs) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let vfs = RealVfs::new(dir.path());
        vfs.create_dir_all("global").expect("global");
        ControlFile::create(&vfs, sample(), false).expect("create");
        (dir, vfs)
    }

    fn damage(vfs: &RealVfs, at: u64, bytes: &[u8]) {
        let file = vfs.open(CONTROL_PATH, OpenMode::Open).expect("open");
        file.write_at(bytes, at).expect("write");
    }

    #[test]
    fn the_newest_valid_copy_counts() {
        let (_dir, vfs) = make();
        let mut file = ControlFile::open(&vfs, false).expect("open");
        assert_eq!(*file.data(), sample());
        for n in 4..8 {
            file.update(ControlData { next_xid: Xid::new(n), ..sample() }).expect("update");
            let again = ControlFile::open(&vfs, false).expect("open");
            assert_eq!(again.data().next_xid, Xid::new(n));
        }
        // Sequence 5 is in copy B, 4 in copy A.
        damage(&vfs, COPY_B_AT + 300, &[0xFF]);
        let again = ControlFile::open(&vfs, false).expect("open");
        assert_eq!(again.data().next_xid, Xid::new(6));
        damage(&vfs, 300, &[0xFF]);
        let err = ControlFile::open(&vfs, false).map(drop).expect_err("both are damaged");
        assert!(err.to_string().contains("damaged"), "{err}");
    }

    #[test]
    fn strangers_and_newer_versions_are_refused_by_name() {
        let (_dir, vfs) = make();
        let mut raw = encode(&sample(), 9);
        put(&mut raw, 8, &99u32.to_le_bytes());
        let crc = crc_of(&raw);
        put(&mut raw, CRC_AT, &crc.to_le_bytes());
        damage(&vfs, 0, &raw);
        let err = ControlFile::open(&vfs, false).map(drop).expect_err("newer");
        assert!(err.to_string().contains("newer version"), "{err}");
        damage(&vfs, 0, &[7; COPY_BYTES]);
        damage(&vfs, COPY_B_AT, &[7; COPY_BYTES]);
        let err = ControlFile::open(&vfs, false).map(drop).expect_err("foreign");
        assert!(err.to_string().contains("not an Inkling control file"), "{err}");
        vfs.remove(CONTROL_PATH).expect("remove");
        let err = ControlFile::open(&vfs, false).map(drop).expect_err("missing");
        assert!(err.to_string().contains("could not find"), "{err}");
    }
}
