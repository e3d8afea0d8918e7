//! A server for one test: its own process, its own directory, a port that was free, and an end
//! whatever happens.
//!
//! ```no_run
//! let server = Server::start();
//! assert_eq!(server.psql("select 1"), "1\n");
//! ```
//!
//! Every wait has a bound ([`PATIENCE`]); a test that runs into it says what the server logged.
#![allow(dead_code)]

pub mod client;
pub mod workload;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take: generous, because the machine may be busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(120);
const PROGRAM: &str = env!("CARGO_BIN_EXE_inkling");

/// A server process. Killed when dropped.
pub struct Server {
    child: Option<Child>,
    pub port: u16,
    root: PathBuf,
    log: PathBuf,
    settings: Vec<String>,
    /// Removed with the server, unless it is the caller's.
    _temporary: Option<tempfile::TempDir>,
}

/// What a server that did not start said.
#[derive(Debug)]
pub struct Refusal {
    pub code: Option<i32>,
    pub text: String,
}

pub fn temporary() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("inkling-test-").tempdir().expect("a temporary directory")
}

impl Server {
    /// A server on a new directory.
    pub fn start() -> Server {
        Self::start_with(&[])
    }

    /// The same, with settings (`name=value`).
    pub fn start_with(settings: &[&str]) -> Server {
        let dir = temporary();
        let mut server = Self::start_in(&dir.path().join("data"), settings);
        server._temporary = Some(dir);
        server
    }

    /// A server on a directory of the caller's.
    pub fn start_in(root: &Path, settings: &[&str]) -> Server {
        match Self::try_start_in(root, settings) {
            Ok(server) => server,
            Err(refusal) => panic!("the server did not start: {refusal:?}"),
        }
    }

    /// A server, or why there is none.
    pub fn try_start_in(root: &Path, settings: &[&str]) -> Result<Server, Refusal> {
        let log = PathBuf::from(format!("{}.log", root.display()));
        let mut server = Server {
            child: None,
            port: 0,
            root: root.to_owned(),
            log,
            settings: settings.iter().map(|s| (*s).to_owned()).collect(),
            _temporary: None,
        };
        server.launch(&[])?;
        Ok(server)
    }

    /// Starts the process (again) and waits until it accepts connections.
    pub fn launch(&mut self, limits: &[(&str, &str)]) -> Result<(), Refusal> {
        let log = File::create(&self.log).expect("the server's log");
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg("-D").arg(&self.root).args(["-p", "0", "-h", "127.0.0.1"]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.env_remove("PGPORT").env_remove("PGDATA").envs(limits.iter().copied());
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        self.child = Some(child);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), Refusal> {
        let begun = Instant::now();
        loop {
            let text = self.log();
            if text.contains("ready to accept connections") {
                let port = text.rsplit("port ").next().and_then(|t| t.lines().next());
                self.port =
                    port.and_then(|p| p.trim().parse().ok()).expect("the log tells the port");
                return Ok(());
            }
            let child = self.child.as_mut().expect("a child");
            if let Some(status) = child.try_wait().expect("the child's status") {
                self.child = None;
                return Err(Refusal { code: status.code(), text: self.log() });
            }
            assert!(begun.elapsed() < PATIENCE, "the server is not ready: {}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the server has logged since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("a running server");
        let pid = Pid::from_child(child);
        kill_process(pid, signal).expect("the server takes a signal");
    }

    /// SIGKILL: what a crash of the process leaves.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub fn interrupt_with(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }

    pub fn send(&self, signal: Signal) {
        self.signal(signal);
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a running server");
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("the child's status") {
                return status;
            }
            if begun.elapsed() > PATIENCE {
                let _killed = child.kill();
                panic!("the server does not end: {}", self.log());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_running(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|c| c.try_wait().expect("the child's status").is_none())
    }

    /// Starts the process again on the same directory.
    pub fn restart(&mut self) {
        if let Err(refusal) = self.launch(&[]) {
            panic!("the server did not start again: {refusal:?}");
        }
    }

    /// A client program pointed at this server.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres"])
            .env("PGCONNECT_TIMEOUT", "30")
            .env("LC_ALL", "C")
            .env_remove("PGOPTIONS")
            .stdin(Stdio::null());
        command
    }

    /// psql's answer to some SQL, unaligned, tuples only; panics on an error.
    pub fn psql(&self, sql: &str) -> String {
        let out = self.try_psql(sql);
        assert!(out.status.success(), "{sql}\n{}", text(&out));
        String::from_utf8(out.stdout).expect("UTF-8")
    }

    pub fn try_psql(&self, sql: &str) -> Output {
        let mut command = self.client("psql");
        command.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "postgres",
            "-c",
            sql,
        ]);
        run(&mut command)
    }

    /// `inkling check` on the directory, which nobody may be using.
    pub fn check(&self) -> Output {
        run(Command::new(PROGRAM).arg("check").arg("-D").arg(&self.root))
    }

    /// The same, expected to find nothing.
    pub fn must_be_sound(&self) {
        let out = self.check();
        assert!(out.status.success(), "inkling check:\n{}", text(&out));
    }

    pub fn url(&self) -> String {
        format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres connect_timeout=30",
            self.port
        )
    }

    /// A tokio-postgres client; its connection is driven by a task.
    pub async fn connect(&self) -> tokio_postgres::Client {
        self.connect_as("postgres", "").await
    }

    /// As [`Self::connect`], for another role and with options of the start-up packet.
    pub async fn connect_as(&self, user: &str, options: &str) -> tokio_postgres::Client {
        let mut config: tokio_postgres::Config = self.url().parse().expect("a configuration");
        config.user(user).options(options);
        let connected = config.connect(tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("a connection");
        tokio::spawn(async move {
            // It ends with an error when a test kills the server; the client then tells.
            let _ended = connection.await;
        });
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _killed = child.kill();
            let _reaped = child.wait();
        }
        if thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4000);
            eprintln!("--- the server's log ---\n{}", log.get(from..).unwrap_or(&log));
        }
    }
}

/// The program itself, with arguments.
pub fn inkling(arguments: &[&str]) -> Output {
    run(Command::new(PROGRAM).args(arguments).env_remove("PGDATA").env_remove("PGPORT"))
}

/// Runs a program to its end, within bounds.
pub fn run(command: &mut Command) -> Output {
    let what = format!("{command:?}");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|e| panic!("{what}: {e} (make deps installs it)"));
    let pid = Pid::from_child(&child);
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(PATIENCE * 2) {
        Ok(output) => output.expect("the program's output"),
        Err(_) => {
            let _killed = kill_process(pid, Signal::KILL);
            panic!("{what} does not end");
        }
    }
}

/// Both outputs of a program, for messages.
pub fn text(out: &Output) -> String {
    format!(
        "{}{}[{}]",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
        out.status
    )
}

/// A runtime for tests of drivers.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// One half (1 or 2, so that two processors are busy) of a crash loop: runs chains by their seeds
/// until there were half of the crashes asked for, and says which seed failed. `INKLING_CRASH_SEED`
/// replays that one, in the first half. `run` answers how many crashes its chain had.
pub fn run_chains(half: u64, usual_crashes: u64, run: impl Fn(u64) -> u64) {
    if std::env::var_os("INKLING_CRASH_SEED").is_some() {
        if half == 1 {
            run(from_env("INKLING_CRASH_SEED", 0));
        }
        return;
    }
    let crashes = from_env("INKLING_CRASHES", usual_crashes) / 2;
    let (mut done, mut seed) = (0, half);
    while done < crashes {
        let chain = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        done += chain.unwrap_or_else(|panic| {
            eprintln!("replay with INKLING_CRASH_SEED={seed}");
            std::panic::resume_unwind(panic)
        });
        seed += 2;
    }
}

/// A number from the environment, for runs longer than the usual.
pub fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Compares with a golden file; `INKLING_BLESS=1` writes it instead.
pub fn golden(file: &Path, found: &str) {
    if std::env::var_os("INKLING_BLESS").is_some() {
        fs::write(file, found).expect("the golden file is written");
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    if expected == found {
        return;
    }
    let mut diff = String::new();
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    for line in a.iter().skip(same).take(15) {
        diff.push_str(&format!("- {line}\n"));
    }
    for line in b.iter().skip(same).take(15) {
        diff.push_str(&format!("+ {line}\n"));
    }
    panic!("{} differs from line {} on:\n{diff}", file.display(), same + 1);
}
