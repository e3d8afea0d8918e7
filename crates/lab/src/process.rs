//! Children that never outlive the run.
//!
//! Every child is in one list from its start until it is reaped. A [`Process`] that is dropped asks
//! its child to stop, waits, and kills it when it does not ([`PATIENCE`]). A signal to the lab
//! ([`Signals`]) is passed on to all of them: what the run waits for then fails, the run unwinds
//! with an error, and its directories go as they always do. A second signal kills.
//!
//! Invariant: a process id in the list belongs to a child that has not been reaped, since both
//! starting and reaping happen under the list's lock; so no stranger is ever signalled.

use crate::LabError;
use crate::error::missing_or_io;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a child may take to stop.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

static RUNNING: Mutex<Vec<(Pid, Signal)>> = Mutex::new(Vec::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn running() -> MutexGuard<'static, Vec<(Pid, Signal)>> {
    // A list of numbers is whole whoever panicked beside it.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails once the run was interrupted.
pub fn check_interrupted() -> Result<(), LabError> {
    if INTERRUPTED.load(Ordering::SeqCst) { Err(LabError::Interrupted) } else { Ok(()) }
}

/// A child.
pub struct Process {
    child: Child,
    pid: Pid,
    stop: Signal,
    reaped: bool,
}

impl Process {
    /// Starts `command`. `stop` is the signal that asks it to end; `hint` says where the program
    /// comes from.
    pub fn spawn(
        command: &mut Command,
        stop: Signal,
        hint: &'static str,
    ) -> Result<Process, LabError> {
        let mut running = running();
        check_interrupted()?;
        let program = Path::new(command.get_program()).to_owned();
        let child = command.spawn().map_err(missing_or_io(&program, hint))?;
        let pid = Pid::from_child(&child);
        running.push((pid, stop));
        Ok(Process { child, pid, stop, reaped: false })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut running = running();
        let status = self.child.try_wait()?;
        if status.is_some() && !self.reaped {
            self.reaped = true;
            running.retain(|(pid, _)| *pid != self.pid);
        }
        Ok(status)
    }

    /// Waits for its end, however long that takes.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.poll()? {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }

    /// Asks it to stop and waits; kills it when it takes longer than [`PATIENCE`].
    pub fn stop(&mut self) -> io::Result<ExitStatus> {
        self.end(self.stop)
    }

    /// The same, with another signal.
    pub fn end(&mut self, signal: Signal) -> io::Result<ExitStatus> {
        let begun = Instant::now();
        let mut asked = false;
        loop {
            if let Some(status) = self.poll()? {
                return Ok(status);
            }
            // Not reaped, so the id is still the child's.
            if !asked {
                kill_process(self.pid, signal)?;
                asked = true;
            } else if begun.elapsed() > PATIENCE {
                self.child.kill()?;
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            // Nobody is left to hear of a failure, and the kernel knows of no other way.
            let _gone = self.stop();
        }
    }
}

/// While it lives, SIGINT, SIGTERM and SIGHUP end the run in good order.
pub struct Signals {
    handle: signal_hook::iterator::Handle,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    pub fn watch() -> Result<Signals, LabError> {
        let failed = |source| LabError::Io { what: "install signal handlers".to_owned(), source };
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let handle = signals.handle();
        let pass_on = move || {
            for _signal in signals.forever() {
                let again = INTERRUPTED.swap(true, Ordering::SeqCst);
                for (pid, stop) in running().iter() {
                    // It may have ended by itself a moment ago.
                    let _sent = kill_process(*pid, if again { Signal::KILL } else { *stop });
                }
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(pass_on);
        Ok(Signals { handle, thread: Some(thread.map_err(failed)?) })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked; and if it has, there is nothing more to pass on.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_is_gone() {
        let mut sleep = Command::new("sleep");
        let process = Process::spawn(sleep.arg("1000"), Signal::TERM, "").unwrap();
        let pid = process.pid;
        assert!(running().iter().any(|(p, _)| *p == pid));
        drop(process);
        assert!(!running().iter().any(|(p, _)| *p == pid));
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn the_end_is_told() {
        let mut command = Command::new("sh");
        let mut process = Process::spawn(command.args(["-c", "exit 3"]), Signal::TERM, "").unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn a_missing_program_is_named() {
        let mut command = Command::new("/nowhere/program");
        let error = Process::spawn(&mut command, Signal::TERM, "install it").err().unwrap();
        assert_eq!(error.to_string(), "the program \"/nowhere/program\" was not found: install it");
    }
}
