//! Engines for tests: over a simulated disk, without threads, small.
//!
//! ```
//! use inkling_storage::engine::testing;
//! let sim = testing::Sim::new(1);
//! let engine = sim.open();
//! engine.checkpoint(inkling_storage::engine::CheckpointKind::Immediate).unwrap();
//! ```

use super::{Engine, EngineOptions, OpenOutcome};
use crate::error::Result;
use crate::ids::Xid;
use crate::page::PAGE_SIZE;
use crate::vfs::{Clock, SimClock, SimDisk, Vfs};
use crate::wal::{RecordKind, WalOptions};
use std::sync::Arc;

/// Few frames, small log files, nothing in the background, no messages.
pub fn options(frames: usize) -> EngineOptions {
    let wal = WalOptions {
        segment_size: 1 << 20,
        buffer_size: 1 << 20,
        background_writer: false,
        ..WalOptions::default()
    };
    EngineOptions {
        shared_buffers_bytes: frames * PAGE_SIZE,
        wal,
        background_threads: false,
        log_sink: Arc::new(|_, _| {}),
        ..EngineOptions::default()
    }
}

/// A simulated host: a disk that can lose power, and a clock.
pub struct Sim {
    pub disk: SimDisk,
    pub clock: Arc<SimClock>,
    pub options: EngineOptions,
}

impl Sim {
    /// A new host with an empty disk; everything random about it follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Sim { disk: SimDisk::new(seed), clock: Arc::new(SimClock::new()), options: options(256) }
    }

    /// The engine on this host, opened or made.
    pub fn try_open(&self) -> Result<(Arc<Engine>, OpenOutcome)> {
        let vfs: Arc<dyn Vfs> = Arc::new(self.disk.clone());
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        Engine::open(vfs, clock, self.options.clone())
    }

    /// As [`Self::try_open`], where it cannot fail.
    pub fn open(&self) -> Arc<Engine> {
        match self.try_open() {
            Ok((engine, _)) => engine,
            Err(e) => panic!("the engine did not open: {e}"),
        }
    }

    /// The host after a power failure, and a possible disk of it.
    pub fn crash(&self, seed: u64) -> Sim {
        Sim {
            disk: self.disk.crash(seed),
            clock: Arc::clone(&self.clock),
            options: self.options.clone(),
        }
    }
}

/// The next start, if this engine does not stop properly, hands out xids from `next` on: as if so
/// many transactions had run. For what happens once in a million of them.
pub fn restart_from_xid(engine: &Engine, next: Xid) -> Result<()> {
    let lsn = engine.log().insert(RecordKind::NextXid, Xid::INVALID, &next.raw().to_le_bytes())?;
    engine.wal.flush(lsn)
}

/// An engine on a simulated disk of its own, for tests that need just one.
pub fn open_for_test() -> Arc<Engine> {
    Sim::new(0).open()
}
