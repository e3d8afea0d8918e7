//! Background work on the data directory: checkpoints, and pages cleaned ahead of need. Rules:
//! `README.md` here.
//!
//! ```text
//!   checkpointer        every checkpoint_timeout, or after max_wal_size of log
//!   background writer   every bgwriter_delay: clean frames ahead of the clock hand, and the
//!                       transactions' own housekeeping (floor, settled chunks)
//!   deadlock detector   every 50 ms: examine the waits that have lasted for deadlock_timeout
//! ```
//!
//! What they did is in the log (`log_checkpoints`) and in the counters of `stats.rs`.
//!
//! Everything they do can be called inline instead ([`checkpoint`], [`background_round`]), which is
//! what simulations do. A failure in the background is reported and tried again; it ends nothing.

mod checkpoint;
mod cleaner;
mod pace;
mod report;
mod stats;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod threads;
mod truncate;
mod write_back;

pub use checkpoint::{CheckpointKind, CheckpointStats, CheckpointTotals};
pub(crate) use checkpoint::{Checkpoints, checkpoint};
pub(crate) use cleaner::{Cleaner, background_round};
pub(crate) use stats::Baselines;
pub use stats::{BackgroundWriterStats, Baseline, StatsTarget};
pub(crate) use threads::Threads;
