//! A running server, and how Inkling is made one.
//!
//! Inkling is this very program: `serve` on a directory, on a port that the system chooses and the
//! log tells. A server is stopped by its signal when it is dropped ([`crate::process`]).

use crate::client::Client;
use crate::process::{PATIENCE, Process};
use crate::{LabError, process};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);
/// Lines of a log that are shown when a start fails.
const TAIL: usize = 20;
/// PostgreSQL and Inkling say this when they are ready.
const READY: &str = "ready to accept connections";
/// The policy that breaks the rules asks for this file in the directory.
const DISPOSABLE: &str = "inkling.disposable";

/// Settings as `name=value`, for `-c`.
pub type Settings = Vec<(&'static str, String)>;

/// A server that accepts connections.
pub struct Server {
    subject: String,
    port: u16,
    log: PathBuf,
    process: Process,
}

impl Server {
    /// Starts `command` with its output to `log` and waits until it is ready. `port`: where it was
    /// told to listen; otherwise the log says it.
    pub(crate) fn launch(
        subject: &str,
        mut command: Command,
        stop: Signal,
        log: &Path,
        port: Option<u16>,
    ) -> Result<Server, LabError> {
        let file = File::create(log).map_err(LabError::io("create", log))?;
        let second = file.try_clone().map_err(LabError::io("share", log))?;
        command.stdin(Stdio::null()).stdout(second).stderr(file);
        let process = Process::spawn(&mut command, stop, "is it installed?")?;
        let (subject, log) = (subject.to_owned(), log.to_owned());
        let mut server = Server { subject, port: port.unwrap_or(0), log, process };
        server.wait_until_ready()?;
        if port.is_none() {
            server.port = port_in(&server.log_text()).ok_or_else(|| server.not_started())?;
        }
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), LabError> {
        let begun = Instant::now();
        while !self.log_text().contains(READY) {
            let ended = self.process.poll().map_err(LabError::io("watch the writer of", &self.log));
            if ended?.is_some() || begun.elapsed() > PATIENCE {
                process::check_interrupted()?;
                return Err(self.not_started());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn not_started(&self) -> LabError {
        LabError::Start { subject: self.subject.clone(), log: tail(&self.log_text()) }
    }

    /// What it has logged since it was started.
    pub fn log_text(&self) -> String {
        fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The operating system's number of the server's first process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn connect(&self) -> Result<Client, LabError> {
        Client::connect(&self.subject, self.port)
    }

    /// Stops it at once, as a crash would, since nobody will want its directory: a last checkpoint
    /// would only take time.
    pub fn discard(mut self) -> Result<(), LabError> {
        let ended = self.process.end(Signal::QUIT);
        ended.map(drop).map_err(LabError::io("stop the writer of", &self.log))?;
        process::check_interrupted()
    }

    /// Kills it with all its processes, in the middle of whatever they do; the moment after which
    /// nothing of it ran.
    pub fn kill(mut self) -> Result<Instant, LabError> {
        let first = self.process.id();
        let processes = std::iter::once(first).chain(children(first));
        for pid in processes.filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // A child may have ended by itself meanwhile.
            let _sent = rustix::process::kill_process(pid, Signal::KILL);
        }
        let killed = Instant::now();
        self.process.wait().map_err(LabError::io("watch the writer of", &self.log))?;
        process::check_interrupted()?;
        Ok(killed)
    }

    /// Stops it in good order; an error when it did not end well.
    pub fn stop(mut self) -> Result<(), LabError> {
        let status = self.process.stop().map_err(LabError::io("stop the writer of", &self.log))?;
        process::check_interrupted()?;
        if status.success() {
            return Ok(());
        }
        let (status, said) = (status.to_string(), tail(&self.log_text()));
        Err(LabError::Program { program: self.subject.clone(), status, said })
    }
}

/// Inkling on `place`, which may be empty.
pub fn start_inkling(subject: &str, place: &Path, settings: &Settings) -> Result<Server, LabError> {
    let program = std::env::current_exe()
        .map_err(|source| LabError::Io { what: "find this program".to_owned(), source })?;
    let mut command = Command::new(program);
    command.arg("serve").arg("-D").arg(place.join("data")).args(["-h", "127.0.0.1", "-p", "0"]);
    for (name, value) in settings {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    command.env_remove("PGPORT").env_remove("PGDATA");
    Server::launch(subject, command, Signal::TERM, &place.join("log"), None)
}

/// Makes Inkling's directory and says that its contents do not matter.
pub fn make_disposable(subject: &str, place: &Path) -> Result<(), LabError> {
    start_inkling(subject, place, &Settings::new())?.stop()?;
    let marker = place.join("data").join(DISPOSABLE);
    File::create(&marker).map(drop).map_err(LabError::io("create", &marker))
}

/// The processes that a process started.
fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let stat = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    numbers.filter(|pid| parent_in(&stat(pid)) == Some(parent)).collect()
}

/// The parent in a line of /proc/PID/stat; the name before it may contain anything.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The port that the log tells.
fn port_in(log: &str) -> Option<u16> {
    let line = log.lines().rfind(|l| l.contains("listening on"))?;
    line.rsplit_once("port ")?.1.trim().parse().ok()
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_in_the_log() {
        let log = "LOG:  starting\nLOG:  listening on IPv4 address \"127.0.0.1\", port 40123\n\
                   LOG:  database system is ready to accept connections\n";
        assert_eq!(port_in(log), Some(40_123));
        assert_eq!(port_in("LOG:  starting on port 1"), None);
    }

    #[test]
    fn children_are_found_by_their_parent() {
        assert_eq!(parent_in("12 (a) b (c)) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("12 (a"), None);
        let mut sleep = Command::new("sleep");
        let process = Process::spawn(sleep.arg("1000"), Signal::TERM, "").unwrap();
        assert!(children(std::process::id()).contains(&process.id()));
    }

    #[test]
    fn only_the_end_of_a_log_is_shown() {
        let log: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let shown = tail(&log.join("\n"));
        assert!(shown.starts_with("10\n") && shown.ends_with("\n29"));
        assert_eq!(tail("one"), "one");
    }

    #[test]
    fn a_start_that_fails_shows_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo FATAL: no; exit 1"]);
        let log = dir.path().join("log");
        let error = Server::launch("It", command, Signal::TERM, &log, Some(1)).err().unwrap();
        assert_eq!(error.to_string(), "It did not start; its log ends:\nFATAL: no");
    }
}
