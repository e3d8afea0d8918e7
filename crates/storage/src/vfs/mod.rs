//! Files, time and randomness behind traits. Rules and crash argument: `README.md` here.
//!
//! ```text
//!     engine ──> dyn Vfs ──> RealVfs   (a directory of the host)
//!                       └──> SimDisk   (memory; crash(seed) => what a power failure leaves)
//! ```
//!
//! Guarantees are the numbered rules of the README; in short: paths stay inside the data
//! directory, a write is whole or an error, nothing is durable before `sync` (contents) or
//! `sync_dir` (names).
//!
//! Not here: buffering, checksums, retries, locking of the data directory.

mod clock;
mod map;
mod random;
mod real;
pub mod sim;
mod write_back;

pub use clock::{Clock, SystemClock};
pub use map::FileMap;
pub use random::{Random, SeededRandom, SystemRandom};
pub use real::RealVfs;
pub use sim::{Fault, MAY_TAKE_SPACE, Op, SimClock, SimDisk, TAKES_SPACE};

use std::io;
use std::sync::Arc;

/// What `open` does about a file that is, or is not, there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Must exist.
    Open,
    /// Must not exist.
    Create,
    /// Either way; an existing file keeps its contents.
    OpenOrCreate,
}

/// A tree of files under one root: the data directory. Paths are relative to it.
pub trait Vfs: Send + Sync + 'static {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>>;
    /// Removes a file's name. Open handles go on working.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Renames a file, replacing the target atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn create_dir_all(&self, path: &str) -> io::Result<()>;
    /// The names (not paths) in a directory, sorted.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    fn exists(&self, path: &str) -> bool;
    /// Makes the names in `dir` durable. The empty string is the root.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
}

/// An open file. Positions are absolute; there is no cursor.
pub trait VfsFile: Send + Sync {
    /// Reads at most `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` or fails.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Makes contents and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;

    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space for a range; the file grows, with zeros, to cover it. A full disk shows here.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// The first `len` bytes as words in memory, for reading: a positive multiple of 8 that the
    /// file has. They are the file's when this returns; whether later writes show is left open.
    fn map(&self, len: usize) -> io::Result<FileMap>;

    /// Asks for early write-out of a range, so that a later `sync` finds less to do.
    fn start_write_back(&self, offset: u64, len: u64);

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` or fails with `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }
}

/// Checks rule 1. `allow_root` admits the empty path, which names the root directory.
fn check_path(path: &str, allow_root: bool) -> io::Result<()> {
    if path.is_empty() && allow_root {
        return Ok(());
    }
    let fine = !path.contains('\0') && path.split('/').all(|p| !matches!(p, "" | "." | ".."));
    if fine {
        Ok(())
    } else {
        let what = format!("path \"{}\" is not inside the data directory", path.escape_debug());
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

/// The directory part of a checked path; empty for the root.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_directory_are_refused() {
        for bad in ["", "/etc/passwd", "a/../b", "..", "a//b", "a/.", "a/", "a\0b"] {
            assert!(check_path(bad, false).is_err(), "{bad:?}");
        }
        for good in ["a", "pg_wal/000000010000000000000001", "base/1_fsm", "a/b/c..d"] {
            assert!(check_path(good, false).is_ok(), "{good:?}");
        }
        assert!(check_path("", true).is_ok());
        assert_eq!(parent("a/b/c"), "a/b");
        assert_eq!(parent("a"), "");
    }
}
