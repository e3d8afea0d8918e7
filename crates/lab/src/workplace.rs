//! The temporary directory of a run, and the places in it, one a server. All of it goes when the
//! run is over. `TMPDIR` chooses the disk.

use crate::LabError;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A run's directory.
pub struct Workplace {
    root: TempDir,
    made: AtomicUsize,
}

impl Workplace {
    pub fn new() -> Result<Workplace, LabError> {
        let parent = std::env::temp_dir();
        let root = tempfile::Builder::new()
            .prefix("inkling-lab-")
            .tempdir_in(&parent)
            .map_err(LabError::io("make a directory in", &parent))?;
        // PostgreSQL may run as somebody else, who must find the way to its own place.
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(root.path(), open)
            .map_err(LabError::io("set the permissions of", root.path()))?;
        Ok(Workplace { root, made: AtomicUsize::new(0) })
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// A new, empty place.
    pub fn place(&self) -> Result<Place, LabError> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.root.path().join(number.to_string());
        fs::create_dir(&path).map_err(LabError::io("make the directory", &path))?;
        Ok(Place { path })
    }
}

/// A directory that goes when it is dropped, so that a long run needs room for one at a time.
pub struct Place {
    path: PathBuf,
}

impl Place {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What stays goes with the run's directory.
        let _removed = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_one_by_one_and_then_all() {
        let work = Workplace::new().unwrap();
        let root = work.path().to_owned();
        let (a, b) = (work.place().unwrap(), work.place().unwrap());
        assert_ne!(a.path(), b.path());
        fs::write(a.path().join("file"), "x").unwrap();
        let gone = a.path().to_owned();
        drop(a);
        assert!(!gone.exists() && b.path().exists());
        drop(b);
        drop(work);
        assert!(!root.exists());
    }
}
