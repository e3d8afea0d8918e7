//! How an engine behaves; fixed when it is opened. Names in parentheses are the server's settings.

use crate::buffer::{FRAMES_MIN, PoolOptions};
use crate::heap::HintPolicy;
use crate::page::PAGE_SIZE;
use crate::recovery::RedoTable;
use crate::txn::StatusCacheKind;
use crate::wal::WalOptions;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How bad a message is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    Debug,
    Log,
    /// More about the message before.
    Detail,
    /// What to do about the message before.
    Hint,
    Warning,
    Error,
}

/// Where the engine's own messages go (checkpoints, recovery, failures in background threads).
pub type LogSink = dyn Fn(LogLevel, &str) + Send + Sync;

/// Settings of an engine.
#[derive(Clone)]
pub struct EngineOptions {
    /// Memory for pages (`shared_buffers`).
    pub shared_buffers_bytes: usize,
    /// Whether anything is ever fsynced (`fsync`). Covers the log too.
    pub fsync: bool,
    /// Page images after each checkpoint (`full_page_writes`).
    pub full_page_writes: bool,
    /// Checksums on pages. Decided when the directory is made; later openings follow it.
    pub checksums: bool,
    pub wal: WalOptions,
    /// `checkpoint_timeout`.
    pub checkpoint_timeout: Duration,
    /// Part of the interval that a timed checkpoint spreads its writes over
    /// (`checkpoint_completion_target`).
    pub checkpoint_completion_target: f64,
    /// Log bytes that trigger a checkpoint, roughly (`max_wal_size`).
    pub max_wal_size: u64,
    /// Log files to keep ready, as bytes together with those in use (`min_wal_size`).
    pub min_wal_size: u64,
    /// Whether each checkpoint is told at its beginning and at its end (`log_checkpoints`).
    pub log_checkpoints: bool,
    /// Checkpoints forced by the log's size that come quicker than this are told
    /// (`checkpoint_warning`); nothing: never.
    pub checkpoint_warning: Duration,
    /// Pages after which a checkpoint asks the kernel to begin writing
    /// (`checkpoint_flush_after`); 0 never asks.
    pub checkpoint_flush_after: u32,
    /// `bgwriter_delay`.
    pub bgwriter_delay: Duration,
    /// Most pages that one round of the background writer writes (`bgwriter_lru_maxpages`); 0
    /// turns it off.
    pub bgwriter_max_pages: usize,
    /// Frames to keep clean, as a multiple of the recent need (`bgwriter_lru_multiplier`).
    pub bgwriter_multiplier: f64,
    /// Pages after which the background writer asks the kernel to begin writing
    /// (`bgwriter_flush_after`); 0 never asks.
    pub bgwriter_flush_after: u32,
    /// Whether checkpointer, background writer and the log's writer run. Without them everything
    /// happens in the callers' threads, in their order.
    pub background_threads: bool,
    /// What readers keep of what they learn about fates (`hint_policy`).
    pub hint_policy: HintPolicy,
    /// How a session remembers fates (`status_cache`).
    pub status_cache: StatusCacheKind,
    /// How often a start that takes long says how far it is (`log_startup_progress_interval`);
    /// zero: never.
    pub startup_progress_interval: Duration,
    /// Transactions that may be prepared at a time (`max_prepared_transactions`).
    pub max_prepared_transactions: usize,
    /// Relation files kept open (`max_files_per_process`).
    pub open_files: usize,
    /// Who replays what; replaced in tests only.
    pub redo: RedoTable,
    /// Where messages go; standard error by default.
    pub log_sink: Arc<LogSink>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            shared_buffers_bytes: 128 << 20,
            fsync: true,
            full_page_writes: true,
            checksums: true,
            wal: WalOptions::default(),
            checkpoint_timeout: Duration::from_secs(300),
            checkpoint_completion_target: 0.9,
            max_wal_size: 1 << 30,
            min_wal_size: 80 << 20,
            log_checkpoints: false,
            checkpoint_warning: Duration::from_secs(30),
            checkpoint_flush_after: 32,
            bgwriter_delay: Duration::from_millis(200),
            bgwriter_max_pages: 100,
            bgwriter_multiplier: 2.0,
            bgwriter_flush_after: 64,
            background_threads: true,
            hint_policy: HintPolicy::default(),
            status_cache: StatusCacheKind::default(),
            startup_progress_interval: Duration::from_secs(10),
            max_prepared_transactions: 0,
            open_files: 800,
            redo: RedoTable::default(),
            log_sink: Arc::new(|level, message| {
                if level >= LogLevel::Log {
                    eprintln!("{}:  {message}", format!("{level:?}").to_uppercase());
                }
            }),
        }
    }
}

impl EngineOptions {
    pub(crate) fn pool(&self, checksums: bool) -> PoolOptions {
        PoolOptions {
            frames: (self.shared_buffers_bytes / PAGE_SIZE).max(FRAMES_MIN),
            checksums,
            fsync: self.fsync,
            open_files: self.open_files,
        }
    }

    pub(crate) fn wal(&self) -> WalOptions {
        let mut wal = self.wal.clone();
        wal.fsync &= self.fsync;
        wal.background_writer &= self.background_threads;
        wal
    }

    pub fn log(&self, level: LogLevel, message: &str) {
        (self.log_sink)(level, message);
    }
}

impl fmt::Debug for EngineOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineOptions")
            .field("shared_buffers_bytes", &self.shared_buffers_bytes)
            .field("fsync", &self.fsync)
            .field("full_page_writes", &self.full_page_writes)
            .field("background_threads", &self.background_threads)
            .finish_non_exhaustive()
    }
}
