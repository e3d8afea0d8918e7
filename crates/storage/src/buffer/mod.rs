//! Pages in memory and the protocol for changing them. Rules and crash argument: `README.md` here.
//!
//! ```text
//!   pool.share(id)     ──> ShareGuard ──deref──> &Page
//!   pool.exclusive(id) ──> ExclusiveGuard ──> CriticalSection: add, apply ops, finish ──> Lsn
//!                                                  │               │          │
//!                                               dirty           redo's     record in the log,
//!                                               first         own code      LSNs stamped
//! ```

mod change;
mod extras;
mod frames;
mod growth;
mod guards;
mod pool;
mod relfiles;
mod ring;
mod stats;
mod table;
mod writeback;

pub(crate) use change::replay_page;
pub use change::{ChangeLog, CriticalSection, OpError, PageOp, install_page, set_bits_unlogged};
pub use extras::FrameExtras;
pub(crate) use growth::copy_file;
pub use guards::{CleanupGuard, ExclusiveGuard, PinGuard, ShareGuard};
pub use pool::{BufferPool, FRAMES_MIN, LogFlush, PoolOptions, WriteBackHook};
pub use relfiles::Persistence;
pub use ring::ScanRing;
pub use stats::{PoolStats, PoolUsage};
pub(crate) use writeback::DirtyPages;

#[cfg(all(test, shuttle))]
mod models;
#[cfg(all(test, not(shuttle)))]
mod tests;
