//! One process owns a data directory at a time.
//!
//! The lock is an advisory lock on `inkling.lock`, which the kernel drops when the process ends,
//! however it ends: there is no stale lock to remove by hand. The file stays. `postmaster.pid` is
//! for people and tools: process id, directory, start time.

use crate::error::{Result, StorageError};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub const LOCK_FILE: &str = "inkling.lock";
pub const PID_FILE: &str = "postmaster.pid";

/// Held as long as the directory is in use.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
    pid_path: PathBuf,
}

fn refuse(root: &Path, what: &str, source: &io::Error) -> StorageError {
    StorageError::DataDirectory {
        what: format!("could not {what} in data directory \"{}\": {source}", root.display()),
    }
}

impl DirLock {
    /// Takes the directory (making it if need be) or says who has it.
    pub fn acquire(root: &Path) -> Result<DirLock> {
        make_private_dir(root)?;
        let path = root.join(LOCK_FILE);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| refuse(root, "create the lock file", &e))?;
        let pid_path = root.join(PID_FILE);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(root, &pid_path)),
            Err(TryLockError::Error(e)) => return Err(refuse(root, "take the lock", &e)),
        }
        let started =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut pid_file =
            File::create(&pid_path).map_err(|e| refuse(root, "create the PID file", &e))?;
        writeln!(pid_file, "{}\n{}\n{started}", std::process::id(), root.display())
            .map_err(|e| refuse(root, "write the PID file", &e))?;
        Ok(DirLock { _file: file, pid_path })
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Before the lock goes, so that a successor's file is not the one removed.
        let _ = fs::remove_file(&self.pid_path);
    }
}

fn in_use(root: &Path, pid_path: &Path) -> StorageError {
    let holder = fs::read_to_string(pid_path)
        .ok()
        .and_then(|text| text.lines().next()?.parse::<u32>().ok())
        .map_or(String::new(), |pid| format!(" (PID {pid})"));
    StorageError::DataDirectory {
        what: format!("data directory \"{}\" is in use by another process{holder}", root.display()),
    }
}

fn make_private_dir(root: &Path) -> Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(root).map_err(|e| StorageError::DataDirectory {
        what: format!("could not create data directory \"{}\": {e}", root.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opener_is_told_who_has_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().join("made/on/demand");
        let lock = DirLock::acquire(&root).expect("free");
        let err = DirLock::acquire(&root).expect_err("taken");
        let text = err.to_string();
        assert!(text.contains("is in use by another process"), "{text}");
        assert!(text.contains(&format!("(PID {})", std::process::id())), "{text}");
        drop(lock);
        assert!(!root.join(PID_FILE).exists());
        DirLock::acquire(&root).expect("free again");
    }

    #[test]
    fn a_file_in_the_way_is_a_clear_error() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().join("file");
        fs::write(&root, b"x").expect("write");
        let err = DirLock::acquire(&root).expect_err("not a directory");
        assert!(err.to_string().contains("could not create data directory"), "{err}");
    }
}
