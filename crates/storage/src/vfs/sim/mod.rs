//! A disk in memory that loses power.
//!
//! It knows, for every file and every directory, what was asked to be made durable and what was
//! not. [`SimDisk::crash`] makes a new disk as a power failure might have left it; the old one
//! stays as it was, so that one moment can be crashed in many ways. Everything is decided by seeds.
//!
//! ```text
//!   write A ── sync ── write B ── write C ── crash(seed)
//!      durable           any of: neither, B, C, both, half of B's sectors, ...
//! ```
//!
//! # The legal faults
//!
//! At a crash, of what was **not** synced:
//!
//! 1. a write may be there, be missing, or be torn: any subset of the 512-byte sectors it touches;
//! 2. writes may arrive in any order: a later one without an earlier one, though never the earlier
//!    content of a sector over the later;
//! 3. the length may be any of those the file went through since its sync, independently of which
//!    bytes arrived: new length with zeros, or old length without the new bytes;
//! 4. a truncation may or may not have happened;
//! 5. a created name, a removed name, a rename and a new directory may each be there or not, in any
//!    combination; a rename is atomic (the file has exactly one of its names); what lies in a
//!    directory that did not survive is lost with it, synced or not.
//!
//! At a call, when a [`Fault`] or the capacity says so:
//!
//! 6. any call fails with the chosen error; opening, allocating, renaming and removing then have
//!    no effect;
//! 7. a failed write leaves any number of its leading sectors written;
//! 8. after a failed `sync` the unsynced bytes are in doubt for good: each sector may or may not
//!    reach the disk, and a later successful `sync` does not settle it, unless the sector is
//!    written anew (a kernel marks the pages clean after the error);
//! 9. growing a file beyond the capacity fails with "no space left";
//! 10. once powered off, every call fails and nothing changes any more.
//!
//! Never: a synced byte or a synced name that vanishes, a sector with a mixture of two versions, a
//! read that lies. Damage of that kind is made on purpose with [`SimDisk::corrupt`].

mod clock;
mod crash;
mod fault;
mod file;
#[cfg(test)]
mod tests;

pub use clock::SimClock;
pub use fault::{Fault, MAY_TAKE_SPACE, Op, TAKES_SPACE};

use super::random::{Random, SeededRandom};
use super::{OpenMode, Vfs, VfsFile, check_path, parent};
use fault::FaultPlan;
use file::{Inode, SimFile};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, OnceLock};

/// The unit that a power failure does not split.
pub const SECTOR: u64 = 512;

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    random: SeededRandom,
    watcher: OnceLock<Box<Watcher>>,
    sync_watcher: OnceLock<Box<SyncWatcher>>,
}

/// Gets path, position and bytes of every write, before it is done.
pub type Watcher = dyn Fn(&str, u64, &[u8]) + Send + Sync;

/// Gets the path of every file that is synced, before it is done.
pub type SyncWatcher = dyn Fn(&str) + Send + Sync;

/// File names to files.
type Names = BTreeMap<String, Arc<Inode>>;

struct State {
    names: Names,
    dirs: BTreeSet<String>,
    durable_names: Names,
    durable_dirs: BTreeSet<String>,
    /// Changes of names since the directory's last sync, oldest first.
    pending: Vec<NameOp>,
    faults: FaultPlan,
    capacity: Option<u64>,
}

/// An unsynced change of a directory.
#[derive(Clone)]
enum NameOp {
    Link { path: String, inode: Arc<Inode> },
    Unlink { path: String, inode: Arc<Inode> },
    Rename { from: String, to: String, inode: Arc<Inode> },
    Mkdir { path: String },
}

impl NameOp {
    fn touches(&self, dir: &str) -> bool {
        match self {
            NameOp::Link { path, .. } | NameOp::Unlink { path, .. } | NameOp::Mkdir { path } => {
                parent(path) == dir
            }
            NameOp::Rename { from, to, .. } => parent(from) == dir || parent(to) == dir,
        }
    }

    /// Does to the durable names what was done to the visible ones.
    fn apply(self, names: &mut Names, dirs: &mut BTreeSet<String>) {
        match self {
            NameOp::Link { path, inode } => place(names, path, inode),
            NameOp::Rename { to, inode, .. } => place(names, to, inode),
            NameOp::Unlink { path, inode } => {
                if names.get(&path).is_some_and(|there| Arc::ptr_eq(there, &inode)) {
                    names.remove(&path);
                }
            }
            NameOp::Mkdir { path } => {
                dirs.insert(path);
            }
        }
    }
}

/// Gives a file its one name.
fn place(names: &mut Names, path: String, inode: Arc<Inode>) {
    names.retain(|_, there| !Arc::ptr_eq(there, &inode));
    names.insert(path, inode);
}

impl State {
    fn new(names: Names, dirs: BTreeSet<String>, capacity: Option<u64>) -> Self {
        State {
            durable_names: names.clone(),
            durable_dirs: dirs.clone(),
            names,
            dirs,
            pending: Vec::new(),
            faults: FaultPlan::default(),
            capacity,
        }
    }

    /// Fails with "no space left" when `growth` more bytes do not fit.
    fn check_capacity(&self, growth: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        if growth > 0 && self.used() + growth > capacity {
            return Err(fault::no_space());
        }
        Ok(())
    }

    fn used(&self) -> u64 {
        self.names.values().map(|inode| inode.len()).sum()
    }

    fn check_dir(&self, dir: &str) -> io::Result<()> {
        if self.dirs.contains(dir) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn lookup(&self, path: &str) -> io::Result<Arc<Inode>> {
        self.names.get(path).map(Arc::clone).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDisk").field("files", &self.files()).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk. The seed decides what failed writes leave behind.
    pub fn new(seed: u64) -> Self {
        let root = BTreeSet::from([String::new()]);
        Self::with_state(State::new(Names::new(), root, None), seed)
    }

    fn with_state(state: State, seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let (watcher, sync_watcher) = (OnceLock::new(), OnceLock::new());
        let shared = Shared { state: Mutex::new(state), random, watcher, sync_watcher };
        SimDisk(Arc::new(shared))
    }

    /// The disk after a power failure at this moment, one of the many possible. Faults that were
    /// planned are gone; the capacity stays.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let state = crash::survivors(&self.0.state.lock(), seed);
        Self::with_state(state, seed)
    }

    /// The disk after a power failure in the middle of a write that has not begun yet: as
    /// [`Self::crash`], and of the write each sector arrives for which `arrives` says so.
    pub fn crash_tearing(
        &self,
        seed: u64,
        (path, offset, bytes): (&str, u64, &[u8]),
        arrives: impl Fn(u64) -> bool,
    ) -> SimDisk {
        let after = self.crash(seed);
        let inode = after.0.state.lock().names.get(path).map(Arc::clone);
        let Some(inode) = inode else { return after };
        let at = offset as usize;
        for (nth, sector) in file::sectors(at, bytes.len()).enumerate() {
            let range = file::sector_range(sector, at + bytes.len());
            let from = range.start.max(at);
            if arrives(nth as u64) {
                inode.arrive(from, &bytes[from - at..range.end - at]);
            }
        }
        after
    }

    /// Has `watcher` look at every write from now on. It may crash the disk to see what would be
    /// left if power failed just then. One watcher a disk; crashed copies have none.
    pub fn watch_writes(&self, watcher: Box<Watcher>) {
        assert!(self.0.watcher.set(watcher).is_ok(), "the disk is watched already");
    }

    /// Has `watcher` look at every sync of a file from now on. It may take time: move a clock, or
    /// hold the caller back as a slow device does. One watcher a disk; crashed copies have none.
    pub fn watch_syncs(&self, watcher: Box<SyncWatcher>) {
        assert!(self.0.sync_watcher.set(watcher).is_ok(), "the disk's syncs are watched already");
    }

    /// Plans a failure.
    pub fn inject(&self, fault: Fault) {
        self.0.state.lock().faults.add(fault);
    }

    /// Forgets all planned failures. A powered-off disk is on again.
    pub fn clear_faults(&self) {
        self.0.state.lock().faults.clear();
    }

    /// The sum of all file lengths may not exceed this.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.state.lock().capacity = bytes;
    }

    /// The sum of all file lengths.
    pub fn used(&self) -> u64 {
        self.0.state.lock().used()
    }

    /// Lets this many more changing calls (everything but reads) through, then fails every call.
    pub fn power_off_after(&self, changes: u64) {
        self.0.state.lock().faults.power_off_after(changes);
    }

    pub fn is_off(&self) -> bool {
        self.0.state.lock().faults.is_off()
    }

    /// How often an operation was called, failures included.
    pub fn calls(&self, op: Op) -> u64 {
        self.0.state.lock().faults.calls(op)
    }

    /// The calls that failed as planned, oldest first: kind and path.
    pub fn failures(&self) -> Vec<(Op, String)> {
        self.0.state.lock().faults.failures().to_vec()
    }

    /// Paths of all files, sorted.
    pub fn files(&self) -> Vec<String> {
        self.0.state.lock().names.keys().cloned().collect()
    }

    /// A file's bytes as a reader sees them.
    pub fn contents(&self, path: &str) -> Option<Vec<u8>> {
        self.0.state.lock().names.get(path).map(|inode| inode.bytes())
    }

    /// Flips bits of one byte, behind everybody's back. Panics when there is no such byte.
    pub fn corrupt(&self, path: &str, offset: u64, flip: u8) {
        let inode = self.0.state.lock().lookup(path).expect("the file to corrupt exists");
        inode.corrupt(offset, flip);
    }
}

impl Vfs for SimDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        check_path(path, false)?;
        let mut state = self.0.state.lock();
        state.faults.check(Op::Open, path)?;
        let inode = match (state.names.get(path), mode) {
            (Some(_), OpenMode::Create) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => Arc::clone(inode),
            (None, OpenMode::Open) => return Err(io::ErrorKind::NotFound.into()),
            (None, _) => {
                state.check_dir(parent(path))?;
                state.faults.check_as(Op::Create, path)?;
                let inode = Arc::new(Inode::default());
                state.names.insert(path.to_owned(), Arc::clone(&inode));
                let path = path.to_owned();
                state.pending.push(NameOp::Link { path, inode: Arc::clone(&inode) });
                inode
            }
        };
        Ok(Arc::new(SimFile { disk: self.clone(), path: path.to_owned(), inode }))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        check_path(path, false)?;
        let mut state = self.0.state.lock();
        state.faults.check(Op::Remove, path)?;
        let inode = state.lookup(path)?;
        state.names.remove(path);
        state.pending.push(NameOp::Unlink { path: path.to_owned(), inode });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_path(from, false)?;
        check_path(to, false)?;
        let mut state = self.0.state.lock();
        state.faults.check(Op::Rename, from)?;
        state.check_dir(parent(to))?;
        let inode = state.lookup(from)?;
        place(&mut state.names, to.to_owned(), Arc::clone(&inode));
        state.pending.push(NameOp::Rename { from: from.to_owned(), to: to.to_owned(), inode });
        Ok(())
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        check_path(path, true)?;
        let mut state = self.0.state.lock();
        state.faults.check(Op::CreateDir, path)?;
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let dir = &path[..end];
            if state.names.contains_key(dir) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if state.dirs.insert(dir.to_owned()) {
                state.pending.push(NameOp::Mkdir { path: dir.to_owned() });
            }
        }
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        check_path(dir, true)?;
        let mut state = self.0.state.lock();
        state.faults.check(Op::List, dir)?;
        state.check_dir(dir)?;
        let inside = |path: &&String| !path.is_empty() && parent(path) == dir;
        let start = if dir.is_empty() { 0 } else { dir.len() + 1 };
        let files = state.names.keys().filter(inside);
        let mut names: Vec<String> =
            files.chain(state.dirs.iter().filter(inside)).map(|p| p[start..].to_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &str) -> bool {
        let state = self.0.state.lock();
        state.names.contains_key(path) || state.dirs.contains(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        check_path(dir, true)?;
        let mut state = self.0.state.lock();
        state.faults.check(Op::SyncDir, dir)?;
        state.check_dir(dir)?;
        let state = &mut *state;
        let (settled, pending) =
            std::mem::take(&mut state.pending).into_iter().partition(|op| op.touches(dir));
        state.pending = pending;
        let settled: Vec<NameOp> = settled;
        for op in settled {
            op.apply(&mut state.durable_names, &mut state.durable_dirs);
        }
        Ok(())
    }
}

impl SimDisk {
    /// How many leading sectors of a failing write of `sectors` sectors get through (fault 7).
    fn torn_prefix(&self, sectors: u64) -> u64 {
        self.0.random.below(sectors + 1)
    }
}
