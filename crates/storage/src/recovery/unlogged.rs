//! Relations that a crash empties.
//!
//! An unlogged relation is known by its init fork. After anything but a clean stop its other forks
//! may hold anything; they go, and the main fork starts again as a copy of the init fork. Doing so
//! twice is the same as once, and the control file says "in recovery" until it is done.
//!
//! A temporary relation belongs to a session that is gone: its files go at every start.

use super::progress::Progress;
use crate::buffer::{BufferPool, Persistence, copy_file};
use crate::error::{Result, StorageError};
use crate::ids::{Fork, RelId};
use crate::page::PAGE_SIZE;
use crate::vfs::{OpenMode, Vfs};
use std::io;

const BASE: &str = "base";

fn list(vfs: &dyn Vfs) -> Result<Vec<(String, RelId, Fork, bool)>> {
    let names = vfs.list(BASE).map_err(|e| StorageError::io("list", BASE, e))?;
    let parse = |name: String| {
        let (rel, fork, temporary) = BufferPool::parse_file_name(&name)?;
        Some((format!("{BASE}/{name}"), rel, fork, temporary))
    };
    Ok(names.into_iter().filter_map(parse).collect())
}

fn remove(vfs: &dyn Vfs, path: &str) -> Result<()> {
    match vfs.remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(StorageError::io("remove file", path, e))
        }
        _ => Ok(()),
    }
}

/// Removes what temporary relations left.
pub(super) fn remove_temporary(vfs: &dyn Vfs) -> Result<()> {
    for (path, ..) in list(vfs)?.into_iter().filter(|(_, _, _, temporary)| *temporary) {
        remove(vfs, &path)?;
    }
    Ok(())
}

/// Empties the unlogged relations; tells how many.
pub(super) fn reset(
    vfs: &dyn Vfs,
    pool: &BufferPool,
    fsync: bool,
    progress: &mut Progress<'_>,
) -> Result<u64> {
    let files = list(vfs)?;
    let unlogged: Vec<RelId> = files
        .iter()
        .filter(|(_, _, fork, _)| *fork == Fork::Init)
        .map(|(_, rel, ..)| *rel)
        .collect();
    for rel in &unlogged {
        pool.forget_rel(*rel);
        for (path, ..) in
            files.iter().filter(|(_, r, fork, t)| r == rel && *fork != Fork::Init && !t)
        {
            remove(vfs, path)?;
        }
        copy_init(vfs, *rel, fsync)?;
        progress.reset(&BufferPool::file_path(*rel, Fork::Init, Persistence::Unlogged));
    }
    if fsync && !unlogged.is_empty() {
        vfs.sync_dir(BASE).map_err(|e| StorageError::io("fsync directory", BASE, e))?;
    }
    Ok(unlogged.len() as u64)
}

fn copy_init(vfs: &dyn Vfs, rel: RelId, fsync: bool) -> Result<()> {
    let from_path = BufferPool::file_path(rel, Fork::Init, Persistence::Unlogged);
    let to_path = BufferPool::file_path(rel, Fork::Main, Persistence::Unlogged);
    let bytes = vfs
        .open(&from_path, OpenMode::Open)
        .and_then(|file| file.len())
        .map_err(|e| StorageError::io("open file", &from_path, e))?;
    copy_file(vfs, &from_path, &to_path, bytes / PAGE_SIZE as u64, fsync)
}
