//! Bringing the data directory to where the log ends. Rules and crash argument: `README.md` here.
//!
//! ```text
//!   control file ──redo point──> | record | record | ... | checkpoint | ... | torn tail
//!                                    │ pages by class, files, transaction ends
//!                                    v
//!         pool + commit log ──> orphans removed, unlogged reset ──> checkpoint ──> running
//! ```
//!
//! Replay knows nothing of heaps or trees: a block is an image, or operations that the page class's
//! own code applies, the same code that made the change. It is idempotent: a page that is as new as
//! the record is left alone.

mod progress;
mod records;
mod redo;
mod unlogged;
mod words;

pub(crate) use records::{CheckpointData, PendingFile, encode_create, encode_rel, encode_truncate};
pub use words::RecordWords;

use crate::buffer::{BufferPool, OpError};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, RelId, Xid};
use crate::page::{Page, PageClass};
use crate::twophase::PreparedState;
use crate::txn::CommitLog;
use crate::vfs::{Clock, OpenMode, Vfs};
use crate::wal::{LogBatch, WAL_DIR, WalReader, parse_segment_name, segment_of};
use progress::Progress;
use redo::Replay;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};

/// Applies a block's operations to its page: a class's own code.
pub type RedoFn = fn(&[u8], &mut Page) -> Result<(), OpError>;

const CLASSES: usize = 6;

/// Who replays the operations of which page class.
#[derive(Clone)]
pub struct RedoTable {
    by_class: [Option<RedoFn>; CLASSES],
}

impl Default for RedoTable {
    fn default() -> Self {
        RedoTable { by_class: [None; CLASSES] }
            .with(PageClass::BTree, crate::btree::redo)
            .with(PageClass::Heap, crate::heap::redo)
            .with(PageClass::Fsm, crate::heap::redo_fsm)
            .with(PageClass::Vm, crate::heap::redo_vm)
            .with(PageClass::Sequence, crate::seq::redo)
    }
}

impl RedoTable {
    /// The table with one class's function replaced.
    pub fn with(mut self, class: PageClass, redo: RedoFn) -> Self {
        self.by_class[class as usize] = Some(redo);
        self
    }

    /// Decodes and applies a block's operations. Errors mean a damaged log or page.
    pub fn apply(&self, class: PageClass, ops: &[u8], page: &mut Page) -> Result<(), OpError> {
        redo::check_class(page, class)?;
        match self.by_class[class as usize] {
            Some(redo) => redo(ops, page),
            None => Err(OpError::new(format!("pages of class {class:?} are not logged"))),
        }
    }
}

/// What replay has done, for the log and for tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryStats {
    /// Replay started here ...
    pub from: Lsn,
    /// ... and ended here: the end of the valid log.
    pub to: Lsn,
    /// Why the log ends there.
    pub end_reason: &'static str,
    pub records: u64,
    pub commits: u64,
    pub aborts: u64,
    /// Pages restored from images.
    pub images: u64,
    /// Block changes applied.
    pub changes: u64,
    /// Block changes that the page had already.
    pub skipped: u64,
    /// Relations removed: dropped ones and those of unfinished transactions.
    pub files_removed: u64,
    /// Unlogged relations emptied.
    pub unlogged_reset: u64,
    /// What reading and applying took.
    pub redo_micros: u64,
    /// The whole, with making the log durable before and emptying unlogged relations after.
    pub micros: u64,
}

impl RecoveryStats {
    /// Bytes of log that were read.
    pub fn bytes(&self) -> u64 {
        self.to.bytes_since(self.from)
    }
}

/// Where the engine goes on from.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    pub next_xid: Xid,
    pub next_rel: RelId,
    /// Transactions that go on.
    pub prepared: BTreeMap<Xid, PreparedState>,
    /// Only the shutdown checkpoint was found.
    pub clean: bool,
    pub stats: RecoveryStats,
}

/// What replay starts from.
pub(crate) struct Start<'a> {
    pub vfs: &'a Arc<dyn Vfs>,
    pub clock: &'a dyn Clock,
    pub pool: &'a BufferPool,
    pub clog: &'a CommitLog,
    pub table: &'a RedoTable,
    pub redo: Lsn,
    /// End of the checkpoint record that must be found on the way.
    pub checkpoint: Lsn,
    pub next_xid: Xid,
    pub next_rel: RelId,
    pub segment_size: u64,
    /// The last run ended with a shutdown checkpoint.
    pub shut_down: bool,
    pub fsync: bool,
    /// Whether the log is read and checked in a thread of its own.
    pub threads: bool,
    /// Microseconds between reports of progress; 0: none.
    pub progress_micros: u64,
    pub tell: &'a dyn Fn(&str),
}

/// Pieces of the log that lie ready to be applied.
const BATCHES_AHEAD: usize = 3;
/// Records applied between looks at the clock.
const LOOK_EVERY: u64 = 64;

/// Replays the log from the redo point to its end, then settles what the end decides.
pub(crate) fn recover(start: &Start<'_>) -> Result<Recovered> {
    let mut progress = Progress::new(start.clock, start.progress_micros, start.tell);
    if start.fsync {
        sync_log(&**start.vfs, start.redo, start.segment_size)?;
    }
    let mut replay = Replay {
        pool: start.pool,
        clog: start.clog,
        table: start.table,
        next_xid: start.next_xid,
        next_rel: start.next_rel,
        created: HashMap::new(),
        dropped: HashMap::new(),
        missing: BTreeMap::new(),
        prepared: BTreeMap::new(),
        stats: RecoveryStats { from: start.redo, ..RecoveryStats::default() },
    };
    let redo_began = progress.elapsed_micros();
    let reader =
        WalReader::with_segment_size(Arc::clone(start.vfs), start.redo, start.segment_size);
    let mut met_checkpoint = false;
    let reader = read_ahead(reader, start.threads, |batch| {
        for record in batch.records() {
            met_checkpoint |= record.end() == start.checkpoint;
            replay.record(record)?;
            if replay.stats.records.is_multiple_of(LOOK_EVERY) {
                progress.redo(record.end());
            }
        }
        Ok(())
    })?;
    replay.stats.redo_micros = progress.elapsed_micros() - redo_began;
    if !met_checkpoint {
        let what = format!(
            "could not find the checkpoint at {} in the log, which ends at {}: {}",
            start.checkpoint,
            reader.position(),
            reader.end_of_log().map_or("end of the log", |e| e.reason())
        );
        return Err(StorageError::corrupt(what));
    }
    replay.stats.to = reader.position();
    replay.stats.end_reason = reader.end_of_log().map_or("", |e| e.reason());
    replay.remove_orphans()?;
    replay.check_missing()?;
    let clean = start.shut_down && replay.stats.to == start.checkpoint;
    let mut stats = replay.stats;
    unlogged::remove_temporary(&**start.vfs)?;
    if !clean {
        stats.unlogged_reset =
            unlogged::reset(&**start.vfs, start.pool, start.fsync, &mut progress)?;
    }
    stats.micros = progress.elapsed_micros();
    let Replay { next_xid, next_rel, prepared, .. } = replay;
    Ok(Recovered { next_xid, next_rel, prepared, clean, stats })
}

/// Hands the log on piece by piece; comes back with the reader at the end of the log. With a thread
/// one piece is applied while the next ones are read and checked.
fn read_ahead(
    mut reader: WalReader,
    threads: bool,
    mut apply: impl FnMut(&LogBatch) -> Result<()>,
) -> Result<WalReader> {
    if !threads {
        let mut batch = LogBatch::default();
        while reader.next_batch(&mut batch)? {
            apply(&batch)?;
        }
        return Ok(reader);
    }
    let (full, ready) = sync_channel::<LogBatch>(BATCHES_AHEAD);
    let (used, empty) = channel::<LogBatch>();
    std::thread::scope(|scope| {
        let read = move || -> Result<WalReader> {
            loop {
                let mut batch = empty.try_recv().unwrap_or_default();
                // Nobody listens any more when applying has failed.
                if !reader.next_batch(&mut batch)? || full.send(batch).is_err() {
                    return Ok(reader);
                }
            }
        };
        let builder = std::thread::Builder::new().name("log reader".to_owned());
        let thread = builder.spawn_scoped(scope, read).map_err(|e| StorageError::Resource {
            what: format!("could not start the thread that reads the log: {e}"),
            hint: "raise the limit on threads",
        })?;
        let mut outcome = Ok(());
        for batch in &ready {
            outcome = apply(&batch);
            if outcome.is_err() {
                break;
            }
            // A reader that is done needs no more memory.
            let _unused = used.send(batch);
        }
        drop(ready);
        let reader = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcome?;
        reader
    })
}

/// Makes the log durable before anything of it reaches a data file. What replay reads may be in
/// the kernel's memory only, when the process was killed and the machine lives on.
fn sync_log(vfs: &dyn Vfs, from: Lsn, segment_size: u64) -> Result<()> {
    let list = vfs.list(WAL_DIR).map_err(|e| StorageError::io("list", WAL_DIR, e))?;
    let first = segment_of(from, segment_size);
    for name in list {
        if parse_segment_name(&name, segment_size).is_none_or(|number| number < first) {
            continue;
        }
        let path = format!("{WAL_DIR}/{name}");
        vfs.open(&path, OpenMode::Open)
            .and_then(|file| file.sync())
            .map_err(|e| StorageError::io("fsync file", &path, e))?;
    }
    vfs.sync_dir(WAL_DIR).map_err(|e| StorageError::io("fsync directory", WAL_DIR, e))
}
