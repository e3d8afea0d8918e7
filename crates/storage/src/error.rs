//! Storage errors, grouped by what the caller can do about them.
//!
//! | variant      | remedy                                                   | SQLSTATE class |
//! |--------------|----------------------------------------------------------|----------------|
//! | `DiskFull`   | free space, try again; nothing was lost                   | 53100          |
//! | `Resource`   | use less, or raise the named setting                      | 53200          |
//! | `Io`         | the device said no; this statement fails                  | 58030          |
//! | `Corrupt`    | restore: bytes on disk are not what was written           | XX001          |
//! | `Poisoned`   | restart: a write failed, or an fsync                      | 58030          |
//! | `Deadlock`   | run the transaction again                                 | 40P01          |
//! | `LockTimeout`| run the statement again                                   | 55P03          |
//! | `Canceled`   | the client or the administrator asked for it              | 57014          |
//! | `Serialization` | run the transaction again                              | 40001          |
//! | `ReadWriteDependencies` | run the transaction again                        | 40001          |
//! | `DataDirectory` | fix the directory (in use, wrong version, permissions) | F0000 / exit 1 |
//! | `Limit`      | the data does not fit a fixed limit of the format         | 54000          |
//! | `Prerequisite` | do first what the message asks for                      | 55000          |
//!
//! The table that maps these to SQLSTATEs lives in `inkling-sql` (`error.rs`), once.

use crate::ids::{Lsn, PageId};
use std::io;
use std::path::PathBuf;

/// What can go wrong below SQL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    #[error("could not {action} \"{}\": No space left on device", path.display())]
    DiskFull { action: &'static str, path: PathBuf },
    #[error("{what}")]
    Resource { what: String, hint: &'static str },
    #[error("could not {action} \"{}\": {}", path.display(), os_message(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{}", corrupt_message(page, what))]
    Corrupt { page: Option<PageId>, path: Option<PathBuf>, what: String },
    /// Final: nothing is written any more until a restart. `what` is the first failure, `at` how
    /// far the log was durable then (invalid where that is not known).
    #[error("{what}")]
    Poisoned { at: Lsn, what: String },
    #[error("deadlock detected")]
    Deadlock { detail: String },
    #[error("canceling statement due to lock timeout")]
    LockTimeout,
    #[error("canceling statement due to user request")]
    Canceled,
    #[error("{what}")]
    Serialization { what: &'static str },
    /// `reason` is the detail.
    #[error("could not serialize access due to read/write dependencies among transactions")]
    ReadWriteDependencies { reason: &'static str },
    #[error("{what}")]
    DataDirectory { what: String },
    #[error("{what}")]
    Limit { what: String },
    #[error("{what}")]
    Prerequisite { what: &'static str },
}

/// The system's words without the number that Rust adds.
fn os_message(source: &io::Error) -> String {
    let text = source.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn corrupt_message(page: &Option<PageId>, what: &str) -> String {
    match page {
        Some(p) => format!(
            "invalid page in block {} of relation base/{}{}: {what}",
            p.block,
            p.rel,
            p.fork.suffix()
        ),
        None => what.to_owned(),
    }
}

impl StorageError {
    /// Wraps an I/O error, telling a full disk from the rest.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.raw_os_error() {
            Some(code) if code == libc::ENOSPC || code == libc::EDQUOT => {
                StorageError::DiskFull { action, path }
            }
            _ => StorageError::Io { action, path, source },
        }
    }

    /// A write that failed. A full disk is waited for; after anything else nobody knows what the
    /// device holds, and only a restart reads it back.
    pub fn failed_write(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        match Self::io(action, path, source) {
            full @ StorageError::DiskFull { .. } => full,
            other => StorageError::Poisoned { at: Lsn::INVALID, what: other.to_string() },
        }
    }

    /// An fsync that failed, for whatever reason: the kernel may have dropped what it could not
    /// write, and a later success would say nothing about that.
    pub fn failed_sync(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let what = Self::io(action, path, source).to_string();
        StorageError::Poisoned { at: Lsn::INVALID, what }
    }

    /// A page that fails its checks.
    pub fn corrupt_page(page: PageId, what: impl Into<String>) -> Self {
        StorageError::Corrupt { page: Some(page), path: None, what: what.into() }
    }

    /// A file other than a relation's that fails its checks.
    pub fn corrupt(what: impl Into<String>) -> Self {
        StorageError::Corrupt { page: None, path: None, what: what.into() }
    }
}

pub type Result<T, E = StorageError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_told_from_other_errors() {
        let full = StorageError::io("extend file", "base/1", io::Error::from_raw_os_error(28));
        assert!(matches!(full, StorageError::DiskFull { .. }));
        let eio = StorageError::io("read file", "base/1", io::Error::from_raw_os_error(5));
        assert!(matches!(eio, StorageError::Io { .. }));
        assert_eq!(eio.to_string(), "could not read file \"base/1\": Input/output error");
    }

    #[test]
    fn a_full_disk_ends_a_write_for_now_and_a_sync_for_good() {
        let full = || io::Error::from_raw_os_error(28);
        let write = StorageError::failed_write("write to file", "f", full());
        assert!(matches!(write, StorageError::DiskFull { .. }));
        let sync = StorageError::failed_sync("fsync file", "f", full());
        assert!(matches!(sync, StorageError::Poisoned { .. }));
        assert_eq!(sync.to_string(), "could not fsync file \"f\": No space left on device");
        let eio = io::Error::from_raw_os_error(5);
        let write = StorageError::failed_write("write to file", "f", eio);
        assert!(matches!(write, StorageError::Poisoned { .. }));
    }
}
