//! The background threads: started with the engine, stopped before it goes.
//!
//! A thread holds the engine weakly between rounds, so an engine that its owner drops goes away,
//! and takes the threads with it.

use super::checkpoint::checkpoint;
use super::cleaner::background_round;
use crate::engine::{Engine, LogLevel};
use crate::error::StorageError;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the checkpointer looks whether a checkpoint is due.
const CHECKPOINT_LOOK: Duration = Duration::from_millis(250);
/// How often waits are looked through for ones that have lasted for `deadlock_timeout`.
const DEADLOCK_LOOK: Duration = Duration::from_millis(50);
/// Looks to skip after a failed checkpoint.
const CHECKPOINT_PAUSE: u32 = 20;

#[derive(Default)]
struct Signal {
    stop: Mutex<bool>,
    changed: Condvar,
    abandon: AtomicBool,
}

/// The threads of one engine.
pub(crate) struct Threads {
    enabled: bool,
    signal: Arc<Signal>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    pub fn new(enabled: bool) -> Self {
        Threads { enabled, signal: Arc::default(), handles: Mutex::new(Vec::new()) }
    }

    pub fn start(&self, engine: &Arc<Engine>) {
        if !self.enabled {
            return;
        }
        let delay = engine.options().bgwriter_delay;
        self.spawn(engine, "checkpointer", CHECKPOINT_LOOK, checkpointer());
        self.spawn(engine, "background writer", delay, background_writer());
        self.spawn(engine, "deadlock detector", DEADLOCK_LOOK, |engine| {
            engine.locks.detect_deadlocks();
        });
    }

    fn spawn(
        &self,
        engine: &Arc<Engine>,
        name: &str,
        every: Duration,
        mut round: impl FnMut(&Engine) + Send + 'static,
    ) {
        let weak = Arc::downgrade(engine);
        let signal = Arc::clone(&self.signal);
        let body = move || {
            while !signal.wait(every) {
                let Some(engine) = Weak::upgrade(&weak) else { return };
                round(&engine);
            }
        };
        match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
            Ok(handle) => self.handles.lock().push(handle),
            Err(e) => {
                let message = format!("could not start the {name} thread: {e}");
                engine.options().log(LogLevel::Error, &message);
            }
        }
    }

    /// Waits for `time` or until the threads are to stop; tells which.
    pub fn wait(&self, time: Duration) -> bool {
        self.enabled && self.signal.wait(time)
    }

    /// Whether background threads run (so that a pause means something).
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// A checkpoint that is under way shall not be finished.
    pub fn abandoned(&self) -> bool {
        self.signal.abandon.load(Ordering::Relaxed)
    }

    /// Stops the threads and waits for them. `abandon`: without finishing what they do.
    pub fn stop(&self, abandon: bool) {
        self.signal.abandon.store(abandon, Ordering::Relaxed);
        *self.signal.stop.lock() = true;
        self.signal.changed.notify_all();
        let handles = std::mem::take(&mut *self.handles.lock());
        for handle in handles {
            // The last owner of the engine may be one of the threads, in the middle of a round.
            if handle.thread().id() != std::thread::current().id() {
                let _ = handle.join();
            }
        }
        self.signal.abandon.store(false, Ordering::Relaxed);
    }
}

impl Signal {
    fn wait(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.changed.wait_for(&mut stop, time);
        }
        *stop
    }
}

fn checkpointer() -> impl FnMut(&Engine) + Send + 'static {
    let mut pause = 0;
    move |engine| {
        if pause > 0 {
            pause -= 1;
            return;
        }
        let Some(kind) = engine.checkpoints.due(engine) else { return };
        match checkpoint(engine, kind) {
            Ok(_) | Err(StorageError::Canceled) => {}
            // That was told when it happened, and does not pass.
            Err(StorageError::Poisoned { .. }) => pause = CHECKPOINT_PAUSE,
            Err(e) => {
                let message = format!("checkpoint failed, will be tried again: {e}");
                engine.options().log(LogLevel::Error, &message);
                pause = CHECKPOINT_PAUSE;
            }
        }
    }
}

fn background_writer() -> impl FnMut(&Engine) + Send + 'static {
    let mut failing = false;
    move |engine| match background_round(engine) {
        Ok(_) => failing = false,
        Err(e) => {
            // Once, not five times a second.
            if !failing {
                let message = format!("background writer: {e}");
                engine.options().log(LogLevel::Error, &message);
            }
            failing = true;
        }
    }
}
