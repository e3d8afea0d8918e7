//! Opening: a new data directory, or one that was used before.
//!
//! A new directory is complete when `PG_VERSION` is there: it is written last. Without it, and
//! without relation files, whatever lies in our subdirectories is an attempt that was interrupted,
//! and is made anew.

use super::control::{ControlData, ControlFile, ControlState};
use super::dirlock::{DirLock, LOCK_FILE, PID_FILE};
use super::options::{EngineOptions, LogLevel};
use super::rels::{FIRST_REL, PendingFiles, RelIds};
use super::{CheckpointKind, Engine};
use crate::buffer::{BufferPool, ChangeLog};
use crate::durability::Ledger;
use crate::error::{Result, StorageError};
use crate::heap::{DISPOSABLE_PATH, HeapState, HintPolicy};
use crate::ids::{Lsn, Xid};
use crate::lock::LockManager;
use crate::maint::{Baselines, Checkpoints, Cleaner, Threads};
use crate::recovery::{self, CheckpointData, Recovered, RecoveryStats};
use crate::txn::{CommitLog, TxnManager};
use crate::vfs::{Clock, OpenMode, RealVfs, SystemClock, Vfs};
use crate::wal::{FIRST_LSN, RecordBuilder, RecordKind, WAL_DIR, Wal};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::Path;
use std::sync::Arc;

pub const VERSION_PATH: &str = "PG_VERSION";
/// What `PG_VERSION` says: the PostgreSQL that clients see, and that this is not it.
pub const VERSION_TEXT: &str = "15-inkling\n";

const DIRS: [&str; 4] = ["base", "global", "pg_xact", WAL_DIR];
/// What may lie in a directory that is to become a data directory.
const HARMLESS: [&str; 4] = ["lost+found", LOCK_FILE, PID_FILE, DISPOSABLE_PATH];
const HARMLESS_ENDINGS: [&str; 5] = [".conf", ".crt", ".key", ".pem", ".log"];

/// How an engine came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// A new data directory.
    Created,
    /// The last run had stopped properly.
    CleanStart,
    /// The log was replayed.
    Recovered(RecoveryStats),
}

impl Engine {
    /// Opens the data directory behind `vfs`, or makes one there. Nobody else may have it open;
    /// [`Self::open_dir`] sees to that.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        options: EngineOptions,
    ) -> Result<(Arc<Engine>, OpenOutcome)> {
        Self::open_locked(vfs, clock, options, None)
    }

    /// Opens (or makes) a data directory of this host, locked against other processes.
    pub fn open_dir(root: &Path, options: EngineOptions) -> Result<(Arc<Engine>, OpenOutcome)> {
        let lock = DirLock::acquire(root)?;
        let vfs = Arc::new(RealVfs::new(root));
        Self::open_locked(vfs, Arc::new(SystemClock::new()), options, Some(lock))
    }

    fn open_locked(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        mut options: EngineOptions,
        lock: Option<DirLock>,
    ) -> Result<(Arc<Engine>, OpenOutcome)> {
        let host = Host { vfs, clock };
        if options.hint_policy == HintPolicy::UnsafeImmediate && !host.vfs.exists(DISPOSABLE_PATH) {
            return Err(StorageError::Prerequisite {
                what: "hint_policy = unsafe_immediate can lose committed work in a crash and needs \
                       a data directory that holds a file named \"inkling.disposable\"",
            });
        }
        if has_version(&*host.vfs)? {
            let control = ControlFile::open(&*host.vfs, options.fsync)?;
            options.checksums = control.data().checksums;
            options.wal.segment_size = control.data().wal_segment_size;
            let (parts, recovered) = start(&host, &options, control)?;
            let clean = recovered.clean;
            let engine = assemble(host, options, lock, parts, &recovered)?;
            // A checkpoint writes their records anew: what they hold may have moved.
            let moved = crate::twophase::restore(&engine, recovered.prepared)?;
            if clean && !moved {
                engine.set_state(ControlState::InProduction)?;
            } else {
                engine.checkpoint(CheckpointKind::EndOfRecovery)?;
                if !clean {
                    report(&engine, &recovered.stats);
                }
            }
            let outcome = if clean {
                OpenOutcome::CleanStart
            } else {
                OpenOutcome::Recovered(recovered.stats)
            };
            engine.threads.start(&engine);
            return Ok((engine, outcome));
        }
        prepare_directory(&*host.vfs)?;
        let (parts, fresh) = create(&host, &options)?;
        let engine = assemble(host, options, lock, parts, &fresh)?;
        write_version(&*engine.vfs, engine.options.fsync)?;
        engine.threads.start(&engine);
        Ok((engine, OpenOutcome::Created))
    }

    fn set_state(&self, state: ControlState) -> Result<()> {
        let mut control = self.control.lock();
        let data = ControlData { state, ..*control.data() };
        control.update(data)
    }
}

struct Host {
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
}

/// What differs between a new directory and an old one.
struct Parts {
    pool: Arc<BufferPool>,
    clog: CommitLog,
    wal: Arc<Wal>,
    control: ControlFile,
}

fn report(engine: &Engine, stats: &RecoveryStats) {
    let megabytes = stats.bytes() as f64 / f64::from(1 << 20);
    let seconds = stats.redo_micros as f64 / 1e6;
    let message = format!(
        "redo done at {} ({}), elapsed: {seconds:.2} s: {megabytes:.1} MB of log, {:.0} MB/s; {} records, {} commits, {} page images, {} changes, {} relations removed",
        stats.to,
        stats.end_reason,
        if seconds > 0.0 { megabytes / seconds } else { 0.0 },
        stats.records,
        stats.commits,
        stats.images,
        stats.changes,
        stats.files_removed,
    );
    engine.options.log(LogLevel::Log, &message);
}

fn tell_failure(options: &EngineOptions, what: &str) {
    options.log(LogLevel::Error, what);
    let message = "nothing is written and no commit is accepted until the server is restarted; \
                   it then recovers everything that was acknowledged";
    options.log(LogLevel::Error, message);
}

fn tell_shortage(options: &EngineOptions, full: Option<&StorageError>) {
    match full {
        Some(e) => {
            options.log(LogLevel::Error, &format!("{e}; commits wait until there is space"));
        }
        None => options.log(LogLevel::Log, "the write-ahead log can be written again"),
    }
}

fn assemble(
    host: Host,
    options: EngineOptions,
    lock: Option<DirLock>,
    parts: Parts,
    from: &Recovered,
) -> Result<Arc<Engine>> {
    let Parts { pool, clog, wal, control } = parts;
    pool.set_log(Arc::clone(&wal) as _);
    let running = crate::twophase::xids_of(&from.prepared);
    let txns = TxnManager::recover_with(clog, from.next_xid, wal.inserted(), &running)?;
    let heap = Arc::new(HeapState::new(options.hint_policy));
    let (fates, durable, kept) = (txns.clone(), Arc::clone(&wal), Arc::clone(&heap));
    pool.set_write_back_hook(Box::new(move |copy, _| {
        let (policy, totals) = (kept.hint_policy(), &kept.visibility);
        crate::heap::prepare_copy(copy, &fates, durable.flushed(), policy, totals)
    }));
    let durability = Arc::new(Ledger::default());
    super::late::listen(&wal, &durability, &options);
    let (told, also) = (options.clone(), options.clone());
    wal.tell(
        Box::new(move |what| tell_failure(&told, what)),
        Box::new(move |full| tell_shortage(&also, full)),
    );
    let log = ChangeLog::new(Arc::clone(&wal), options.full_page_writes);
    let locks = LockManager::new();
    let told = options.clone();
    locks.set_wait_log(Box::new(move |line, detail| {
        told.log(LogLevel::Log, line);
        if let Some(detail) = detail {
            told.log(LogLevel::Detail, detail);
        }
    }));
    let data = *control.data();
    let threads = Threads::new(options.background_threads);
    Ok(Arc::new(Engine {
        pool,
        wal,
        txns,
        locks,
        durability,
        heap,
        seqs: crate::seq::Sequences::default(),
        checkpoints: Checkpoints::new(data.redo, host.clock.monotonic_micros()),
        cleaner: Cleaner::default(),
        baselines: Baselines::default(),
        prepared: crate::twophase::Registry::new(options.max_prepared_transactions),
        rel_ids: RelIds::new(from.next_rel),
        pending: PendingFiles::default(),
        redo_gate: RwLock::new(()),
        control: Mutex::new(control),
        vfs: host.vfs,
        clock: host.clock,
        options,
        log,
        threads,
        _dir_lock: lock,
    }))
}

// ---- A new directory -------------------------------------------------------------------------

fn has_version(vfs: &dyn Vfs) -> Result<bool> {
    let file = match vfs.open(VERSION_PATH, OpenMode::Open) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(StorageError::io("open file", VERSION_PATH, e)),
    };
    let mut text = [0; 64];
    let len =
        file.read_at(&mut text, 0).map_err(|e| StorageError::io("read file", VERSION_PATH, e))?;
    let text = String::from_utf8_lossy(&text[..len]);
    let found = text.trim();
    if found == VERSION_TEXT.trim() {
        return Ok(true);
    }
    if found.is_empty() {
        return Ok(false);
    }
    let what = if found.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        format!("this is a data directory of PostgreSQL {found}, not of Inkling")
    } else {
        format!(
            "data directory has version \"{found}\", this program needs \"{}\"",
            VERSION_TEXT.trim()
        )
    };
    Err(StorageError::DataDirectory { what })
}

/// Makes sure that nothing of value is there, and clears what an interrupted attempt left.
fn prepare_directory(vfs: &dyn Vfs) -> Result<()> {
    let names = match vfs.list("") {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(StorageError::io("list", ".", e)),
    };
    for name in &names {
        let ours = DIRS.contains(&&name[..]) || name == VERSION_PATH;
        let harmless = HARMLESS.contains(&&name[..])
            || HARMLESS_ENDINGS.iter().any(|ending| name.ends_with(ending));
        if !ours && !harmless {
            return Err(StorageError::DataDirectory {
                what: format!(
                    "the directory is not empty and not a data directory (it contains \"{name}\")"
                ),
            });
        }
    }
    let inside = |dir: &str| match vfs.list(dir) {
        Ok(names) => Ok(names),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(StorageError::io("list", dir, e)),
    };
    if !inside("base")?.is_empty() {
        let what = format!("\"{VERSION_PATH}\" is missing, but \"base\" has relation files");
        return Err(StorageError::DataDirectory { what });
    }
    for dir in ["global", "pg_xact", WAL_DIR] {
        for name in inside(dir)? {
            let path = format!("{dir}/{name}");
            vfs.remove(&path).map_err(|e| StorageError::io("remove file", &path, e))?;
        }
    }
    Ok(())
}

fn create(host: &Host, options: &EngineOptions) -> Result<(Parts, Recovered)> {
    let vfs = &host.vfs;
    for dir in DIRS {
        vfs.create_dir_all(dir).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let what = format!("could not create \"{dir}\" in the data directory: {e}");
                StorageError::DataDirectory { what }
            }
            _ => StorageError::io("create directory", dir, e),
        })?;
    }
    let wal = Wal::open(Arc::clone(vfs), Arc::clone(&host.clock), options.wal(), FIRST_LSN)?;
    let clog = CommitLog::open(Arc::clone(vfs))?;
    let now = host.clock.now_unix_micros();
    let first = CheckpointData {
        redo: FIRST_LSN,
        next_xid: Xid::FIRST_NORMAL,
        oldest_xid: Xid::FIRST_NORMAL,
        next_rel: FIRST_REL,
        shutdown: false,
        time_micros: now,
        created: Vec::new(),
        dropped: Vec::new(),
    };
    let checkpoint = insert_checkpoint(&wal, &first)?;
    wal.flush(checkpoint)?;
    let data = ControlData {
        system_id: system_id(now),
        state: ControlState::InProduction,
        checksums: options.checksums,
        wal_segment_size: options.wal.segment_size,
        redo: FIRST_LSN,
        checkpoint,
        next_xid: Xid::FIRST_NORMAL,
        oldest_xid: Xid::FIRST_NORMAL,
        next_rel: FIRST_REL,
        time_micros: now,
    };
    let control = ControlFile::create(&**vfs, data, options.fsync)?;
    if options.fsync {
        // All names before PG_VERSION's: it promises that the rest is there.
        for dir in ["global", ""] {
            vfs.sync_dir(dir).map_err(|e| StorageError::io("fsync directory", dir, e))?;
        }
    }
    let pool = Arc::new(BufferPool::new(Arc::clone(vfs), &options.pool(options.checksums)));
    let fresh = Recovered {
        next_xid: Xid::FIRST_NORMAL,
        next_rel: FIRST_REL,
        prepared: Default::default(),
        clean: true,
        stats: RecoveryStats::default(),
    };
    Ok((Parts { pool, clog, wal, control }, fresh))
}

/// Time, process and address space: different for every directory ever made, in practice.
fn system_id(now_micros: i64) -> u64 {
    let seconds = (now_micros / 1_000_000) as u64;
    let micros = (now_micros % 1_000_000) as u64;
    (seconds << 32) | (micros << 12) | u64::from(std::process::id() & 0xFFF)
}

fn write_version(vfs: &dyn Vfs, fsync: bool) -> Result<()> {
    let write = || {
        let file = vfs.open(VERSION_PATH, OpenMode::OpenOrCreate)?;
        file.write_at(VERSION_TEXT.as_bytes(), 0)?;
        if fsync {
            file.sync()?;
            vfs.sync_dir("")?;
        }
        Ok(())
    };
    write().map_err(|e| StorageError::io("write file", VERSION_PATH, e))
}

/// Inserts a checkpoint record; it must get through even when the disk is nearly full.
pub(crate) fn insert_checkpoint(wal: &Wal, data: &CheckpointData) -> Result<Lsn> {
    let mut record = RecordBuilder::new(RecordKind::Checkpoint, Xid::INVALID);
    record.data(&data.encode());
    let room = wal.reserve_essential(record.encoded_len())?;
    match wal.insert(&record, room, Lsn::INVALID) {
        Ok(lsn) => Ok(lsn),
        Err(_) => unreachable!("the redo point concerns records with pages only"),
    }
}

// ---- One that was used before ----------------------------------------------------------------

fn start(
    host: &Host,
    options: &EngineOptions,
    mut control: ControlFile,
) -> Result<(Parts, Recovered)> {
    let vfs = &host.vfs;
    let data = *control.data();
    for dir in DIRS {
        // Names of directories are made durable with PG_VERSION; a missing one is damage.
        vfs.list(dir).map_err(|e| StorageError::DataDirectory {
            what: format!("could not read \"{dir}\" in the data directory: {e}"),
        })?;
    }
    let pool = Arc::new(BufferPool::new(Arc::clone(vfs), &options.pool(data.checksums)));
    let clog = CommitLog::open_from(Arc::clone(vfs), data.oldest_xid)?;
    let shut_down = data.state == ControlState::ShutDown;
    if !shut_down {
        let message = "database system was not properly shut down; automatic recovery in progress";
        options.log(LogLevel::Log, message);
        control.update(ControlData { state: ControlState::InRecovery, ..data })?;
    }
    let tell = |message: &str| options.log(LogLevel::Log, message);
    if !shut_down {
        tell(&format!("redo starts at {}", data.redo));
    }
    let recovered = recovery::recover(&recovery::Start {
        vfs,
        clock: &*host.clock,
        pool: &pool,
        clog: &clog,
        table: &options.redo,
        redo: data.redo,
        checkpoint: data.checkpoint,
        next_xid: data.next_xid,
        next_rel: data.next_rel,
        segment_size: data.wal_segment_size,
        shut_down,
        fsync: options.fsync,
        threads: options.background_threads,
        progress_micros: options.startup_progress_interval.as_micros() as u64,
        tell: &tell,
    })?;
    if let Err(e) = clog.remove_old_files() {
        let message = format!("could not remove old commit log files: {e}");
        options.log(LogLevel::Warning, &message);
    }
    let end = recovered.stats.to;
    let wal = Wal::open(Arc::clone(vfs), Arc::clone(&host.clock), options.wal(), end)?;
    Ok((Parts { pool, clog, wal, control }, recovered))
}
