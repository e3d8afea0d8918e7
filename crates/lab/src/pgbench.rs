//! pgbench: finding it, loading its tables, running it, and reading what it says.
//!
//! ```text
//! latency average = 4.812 ms
//! number of failed transactions: 0 (0.000%)
//! tps = 6644.123456 (without initial connection time)
//! ```

use crate::LabError;
use crate::process::Process;
use crate::server::Server;
use crate::workplace::Workplace;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HINT: &str = "it comes with PostgreSQL (on Debian, postgresql-contrib or postgresql); \
                    put it on the path";
/// Where Debian keeps it, off the path.
const DEBIAN: &str = "/usr/lib/postgresql";
const LOG_PREFIX: &str = "log";

/// The program.
#[derive(Clone, Debug)]
pub struct Pgbench {
    program: PathBuf,
}

/// Which of the built-in scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Three updates, a select and an insert.
    TpcB,
    /// One select by primary key.
    SelectOnly,
}

/// A measured run of a built-in script.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub script: Script,
    pub clients: usize,
    pub seconds: u64,
    pub synchronous_commit: &'static str,
}

/// What a run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub tps: f64,
    pub latency_ms: f64,
    pub transactions: u64,
    pub failed: u64,
}

/// One transaction of a run, as pgbench's own log has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logged {
    /// When it ended, in seconds since 1970.
    pub ended: f64,
    pub latency_ms: f64,
}

impl Pgbench {
    /// Beside PostgreSQL's programs if they are given, on the path, or where Debian keeps it.
    pub fn find(postgres: Option<&Path>) -> Result<Pgbench, LabError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut debian: Vec<PathBuf> = fs::read_dir(DEBIAN)
            .into_iter()
            .flatten()
            .flatten()
            .map(|version| version.path().join("bin"))
            .collect();
        debian.sort();
        let places = postgres.map(Path::to_owned).into_iter();
        let places = places.chain(std::env::split_paths(&path)).chain(debian.into_iter().rev());
        Pgbench::find_in(places)
    }

    fn find_in(mut places: impl Iterator<Item = PathBuf>) -> Result<Pgbench, LabError> {
        let program = places.find_map(|dir| Some(dir.join("pgbench")).filter(|p| p.is_file()));
        let missing = LabError::ProgramMissing { program: "pgbench".to_owned(), hint: HINT };
        program.map(|program| Pgbench { program }).ok_or(missing)
    }

    /// `pgbench (PostgreSQL) 15.8`.
    pub fn version(&self) -> Result<String, LabError> {
        let mut command = Command::new(&self.program);
        let out = command.arg("--version").output().map_err(|source| LabError::Io {
            what: format!("run \"{}\"", self.program.display()),
            source,
        })?;
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    }

    /// Makes and fills the tables.
    pub fn load(
        &self,
        work: &Workplace,
        server: &Server,
        scale: u64,
        unlogged: bool,
    ) -> Result<(), LabError> {
        let mut command = self.command(server);
        command.args(["-i", "-q", "-s", &scale.to_string()]);
        if unlogged {
            command.arg("--unlogged-tables");
        }
        run(work, command).map(drop)
    }

    /// A script with prepared statements.
    pub fn run(
        &self,
        work: &Workplace,
        server: &Server,
        load: Workload,
    ) -> Result<Outcome, LabError> {
        parse(&run(work, self.script(server, load))?)
    }

    /// The same; besides, what each transaction took, of a part of them (0 to 1), in no order.
    /// Writing the log costs pgbench time too.
    pub fn run_logged(
        &self,
        work: &Workplace,
        server: &Server,
        load: Workload,
        part: f64,
    ) -> Result<(Outcome, Vec<Logged>), LabError> {
        let place = work.place()?;
        let mut command = self.script(server, load);
        command.arg("--log").arg(format!("--sampling-rate={part}"));
        command.arg(format!("--log-prefix={}", place.path().join(LOG_PREFIX).display()));
        let outcome = parse(&run(work, command)?)?;
        let mut logged = Vec::new();
        for entry in fs::read_dir(place.path()).map_err(LabError::io("list", place.path()))? {
            let path = entry.map_err(LabError::io("list", place.path()))?.path();
            let text = fs::read_to_string(&path).map_err(LabError::io("read", &path))?;
            logged.extend(text.lines().filter_map(parse_logged));
        }
        Ok((outcome, logged))
    }

    fn script(&self, server: &Server, load: Workload) -> Command {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = self.command(server);
        command.args(["-n", "-M", "prepared", "-c", &load.clients.to_string()]);
        command.args(["-j", &cores.min(load.clients).to_string()]);
        command.args(["-T", &load.seconds.to_string()]);
        if load.script == Script::SelectOnly {
            command.arg("-S");
        }
        command.env("PGOPTIONS", format!("-c synchronous_commit={}", load.synchronous_commit));
        command
    }

    fn command(&self, server: &Server) -> Command {
        let mut command = Command::new(&self.program);
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|n| n.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        command.env("PGHOST", "127.0.0.1").env("PGPORT", server.port().to_string());
        command.env("PGUSER", "postgres").env("PGDATABASE", "postgres").env("LC_ALL", "C");
        command
    }
}

/// Runs to the end; what it said on standard output.
fn run(work: &Workplace, mut command: Command) -> Result<String, LabError> {
    let place = work.place()?;
    let (out, err) = (place.path().join("out"), place.path().join("err"));
    command.stdin(Stdio::null());
    command.stdout(File::create(&out).map_err(LabError::io("create", &out))?);
    command.stderr(File::create(&err).map_err(LabError::io("create", &err))?);
    let mut process = Process::spawn(&mut command, Signal::TERM, HINT)?;
    let status = process.wait().map_err(LabError::io("watch the writer of", &out))?;
    crate::process::check_interrupted()?;
    let said = fs::read_to_string(&out).map_err(LabError::io("read", &out))?;
    if status.success() {
        return Ok(said);
    }
    let errors = fs::read_to_string(&err).map_err(LabError::io("read", &err))?;
    let program = command.get_program().to_string_lossy().into_owned();
    Err(LabError::Program { program, status: status.to_string(), said: said + &errors })
}

/// Reads a line of the log: client, number, microseconds, script, end in seconds and microseconds.
/// A transaction that failed has no time.
fn parse_logged(line: &str) -> Option<Logged> {
    let mut fields = line.split_ascii_whitespace().skip(2);
    let latency: f64 = fields.next()?.parse().ok()?;
    let _script = fields.next()?;
    let (seconds, micros): (f64, f64) =
        (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Logged { ended: seconds + micros / 1e6, latency_ms: latency / 1e3 })
}

/// Reads pgbench's summary.
pub fn parse(said: &str) -> Result<Outcome, LabError> {
    let missing = |what| LabError::PgbenchOutput { what, said: said.to_owned() };
    let after = |prefix: &str| said.lines().find_map(|line| line.strip_prefix(prefix));
    let word = |text: &str| {
        let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].to_owned()
    };
    let real = |prefix: &str| after(prefix).and_then(|t| word(t).parse::<f64>().ok());
    let whole = |prefix: &str| after(prefix).and_then(|t| word(t).parse::<u64>().ok());
    Ok(Outcome {
        tps: real("tps = ").ok_or_else(|| missing("its tps"))?,
        latency_ms: real("latency average = ").ok_or_else(|| missing("its latency"))?,
        transactions: whole("number of transactions actually processed: ")
            .ok_or_else(|| missing("the number of transactions"))?,
        // Before version 15 a failure ended the client, and the run failed.
        failed: whole("number of failed transactions: ").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "pgbench (18.1)\ntransaction type: <builtin: TPC-B (sort of)>\n\
        scaling factor: 50\nquery mode: prepared\nnumber of clients: 32\n\
        number of threads: 2\nmaximum number of tries: 1\nduration: 15 s\n\
        number of transactions actually processed: 99670\n\
        number of failed transactions: 3 (0.003%)\nlatency average = 4.812 ms\n\
        initial connection time = 41.5 ms\n\
        tps = 6644.123456 (without initial connection time)\n";

    #[test]
    fn the_summary_is_read() {
        let expected =
            Outcome { tps: 6644.123456, latency_ms: 4.812, transactions: 99_670, failed: 3 };
        assert_eq!(parse(SAID).unwrap(), expected);
    }

    #[test]
    fn the_log_of_transactions_is_read() {
        let expected = Logged { ended: 1_700_000_000.25, latency_ms: 2.5 };
        assert_eq!(parse_logged("0 199 2500 0 1700000000 250000"), Some(expected));
        assert_eq!(parse_logged("0 199 2500 0 1700000000 250000 17 0"), Some(expected));
        assert_eq!(parse_logged("0 199 failed 0 1700000000 250000"), None);
        assert_eq!(parse_logged("0 199 25"), None);
    }

    #[test]
    fn other_forms_of_the_summary() {
        let exact = SAID.replace("99670\n", "320/320\n");
        assert_eq!(parse(&exact).unwrap().transactions, 320);
        let old: String =
            SAID.lines().filter(|l| !l.contains("failed")).map(|l| l.to_owned() + "\n").collect();
        assert_eq!(parse(&old).unwrap().failed, 0);
    }

    #[test]
    fn the_first_place_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, full) = (dir.path().join("empty"), dir.path().join("full"));
        for place in [&empty, &full] {
            fs::create_dir(place).unwrap();
        }
        fs::write(full.join("pgbench"), "").unwrap();
        let found = Pgbench::find_in([empty.clone(), full.clone()].into_iter()).unwrap();
        assert_eq!(found.program, full.join("pgbench"));
        let error = Pgbench::find_in([empty].into_iter()).unwrap_err().to_string();
        assert!(error.starts_with("the program \"pgbench\" was not found: it comes"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let cut = SAID.replace("tps = 6644", "tps = oops");
        let error = parse(&cut).unwrap_err().to_string();
        assert!(error.starts_with("pgbench's output lacks its tps"), "{error}");
        assert!(parse("").is_err());
    }
}
