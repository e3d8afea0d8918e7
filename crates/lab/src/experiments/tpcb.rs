//! What the experiments with pgbench share: its tables loaded once a subject, and runs of the
//! TPC-B-like script with the same beginning.
//!
//! Before each run the server is started anew, the small tables are vacuumed, the history is
//! emptied, the accounts are read once (so that they are in memory, and are all there), and a
//! checkpoint leaves nothing to write. All pages fit in the buffers: what is compared is work, not
//! disks.

use crate::client::Client;
use crate::pgbench::{Outcome, Pgbench, Script, Workload};
use crate::profile::processor_time;
use crate::report::Figure;
use crate::server::{Server, Settings};
use crate::subject::{self, Installed, Subject, common_settings};
use crate::workplace::Workplace;
use crate::{LabError, Params, Progress, Report};

pub const TPS: &str = "transactions";
pub const LATENCY: &str = "latency";
pub const REFUSED: &str = "hints refused";
pub const LOG: &str = "log a transaction";
pub const PROCESSOR: &str = "processor time a transaction";

const ACCOUNTS: &str = "select count(*) from pgbench_accounts";
const ACCOUNTS_A_SCALE: u64 = 100_000;
/// A unit of scale takes some 15 MB, and grows.
const BUFFERS_A_SCALE: u64 = 40 << 20;
const LEAST_BUFFERS: u64 = 128 << 20;

/// The size of a run with pgbench.
pub struct Bench {
    pub pgbench: Pgbench,
    pub scale: u64,
    pub clients: usize,
    pub seconds: u64,
    pub rounds: usize,
}

/// A subject with pgbench's tables.
pub struct Loaded {
    pub name: String,
    installed: Installed,
    settings: Settings,
}

impl Loaded {
    pub fn subject(&self) -> &Subject {
        self.installed.subject()
    }

    /// Starts its server as it is.
    pub fn start(&self) -> Result<Server, LabError> {
        self.installed.start(&self.settings)
    }
}

/// What one run gave.
pub struct Sample {
    pub outcome: Outcome,
    /// Hints that were asked for before their commit was durable; `None`: not counted.
    pub refused: Option<f64>,
    pub wal_bytes: f64,
    /// The server's, in microseconds, if it is one process.
    pub processor: Option<f64>,
    pub version: String,
}

impl Bench {
    /// What was asked for; where nothing was, 32 clients for 15 seconds, three times.
    pub fn new(params: &Params, scale: u64) -> Result<Bench, LabError> {
        Ok(Bench {
            pgbench: Pgbench::find(params.postgres.as_deref())?,
            scale: params.scale.unwrap_or(scale),
            clients: params.clients.unwrap_or(32),
            seconds: params.seconds.unwrap_or(15),
            rounds: params.rounds.unwrap_or(3),
        })
    }

    /// A report that tells what is run.
    pub fn report(&self, name: &str, title: &str, question: &str) -> Result<Report, LabError> {
        let mut report = Report::new(name, title, question);
        report.version("pgbench", &self.pgbench.version()?);
        report.parameter("scale", self.scale);
        report.parameter("clients", self.clients);
        report.parameter("seconds", self.seconds);
        report.parameter("rounds", self.rounds);
        report.parameter("shared_buffers", format!("{} MB", self.buffers() >> 20));
        subject::note_build(&mut report);
        Ok(report)
    }

    fn buffers(&self) -> u64 {
        self.scale.saturating_mul(BUFFERS_A_SCALE).max(LEAST_BUFFERS)
    }

    /// Installs the subjects and loads the tables into each, a step of progress each.
    pub fn load_all(
        &self,
        work: &Workplace,
        subjects: &[Subject],
        progress: &mut Progress,
    ) -> Result<Vec<Loaded>, LabError> {
        let load = |subject: &Subject| {
            progress.step(&format!("loading: {}", subject.name()))?;
            self.load(work, subject, subject.name(), false)
        };
        subjects.iter().map(load).collect()
    }

    /// Installs a subject and loads the tables; `name` is what the report calls it.
    pub fn load(
        &self,
        work: &Workplace,
        subject: &Subject,
        name: &str,
        unlogged: bool,
    ) -> Result<Loaded, LabError> {
        let installed = subject.install(work)?;
        let settings = common_settings(self.buffers(), self.clients);
        let server = installed.start(&settings)?;
        self.pgbench.load(work, &server, self.scale, unlogged)?;
        // Here it may take its time; a stop may not.
        server.connect()?.execute("checkpoint")?;
        server.stop()?;
        Ok(Loaded { name: name.to_owned(), installed, settings })
    }

    /// A started server, and everything in its place for a run; `settings` are added to the usual.
    pub fn prepare(
        &self,
        loaded: &Loaded,
        settings: &Settings,
    ) -> Result<(Server, Client), LabError> {
        let mut all = loaded.settings.clone();
        all.extend_from_slice(settings);
        let server = loaded.installed.start(&all)?;
        let mut client = server.connect()?;
        for sql in ["vacuum pgbench_branches", "vacuum pgbench_tellers"] {
            client.execute(sql)?;
        }
        client.execute("truncate pgbench_history")?;
        let accounts = client.integer(ACCOUNTS)?;
        if u64::try_from(accounts) != Ok(self.scale * ACCOUNTS_A_SCALE) {
            return Err(LabError::Answer {
                subject: loaded.name.clone(),
                sql: ACCOUNTS.to_owned(),
                got: accounts.to_string(),
                expected: "all the accounts that were loaded",
            });
        }
        client.execute("checkpoint")?;
        Ok((server, client))
    }

    /// One run.
    pub fn run(
        &self,
        work: &Workplace,
        loaded: &Loaded,
        synchronous_commit: &'static str,
    ) -> Result<Sample, LabError> {
        let (server, mut client) = self.prepare(loaded, &Settings::new())?;
        let ours = !loaded.installed.subject().is_postgresql();
        let refused_before = refused(&mut client, ours)?;
        let wal_before = client.wal_position()?;
        let (clients, seconds) = (self.clients, self.seconds);
        let load = Workload { script: Script::TpcB, clients, seconds, synchronous_commit };
        let used = || match ours {
            true => processor_time(server.process_id()).map(Some),
            false => Ok(None),
        };
        let used_before = used()?;
        let outcome = self.pgbench.run(work, &server, load)?;
        let used = used()?.zip(used_before).map(|(after, before)| after.saturating_sub(before));
        let wal_bytes = client.wal_position()?.saturating_sub(wal_before) as f64;
        let refused_after = refused(&mut client, ours)?;
        let version = client.version()?;
        client.execute("checkpoint")?;
        drop(client);
        server.stop()?;
        let refused = refused_before.zip(refused_after).map(|(b, a)| (a - b) as f64);
        let transactions = outcome.transactions.max(1) as f64;
        let processor = used.map(|used| used.as_secs_f64() * 1e6 / transactions);
        Ok(Sample { outcome, refused, wal_bytes, processor, version })
    }
}

/// Hints refused since the start; PostgreSQL does not count them.
fn refused(client: &mut Client, ours: bool) -> Result<Option<i64>, LabError> {
    if !ours {
        return Ok(None);
    }
    client.integer("select hints_refused from inkling_stat_visibility").map(Some)
}

/// Adds a run to the group of throughputs and to the table beside it.
pub fn record(report: &mut Report, title: &str, name: &str, sample: &Sample) {
    let Outcome { tps, latency_ms, transactions, failed } = sample.outcome;
    report.version(name, &sample.version);
    report.group(title, Figure::Bars).add(name, TPS, "a second", &[tps]);
    let group = report.group(&beside(title), Figure::None);
    group.add(name, LATENCY, "ms", &[latency_ms]);
    if transactions > 0 {
        group.add(name, LOG, "bytes", &[sample.wal_bytes / transactions as f64]);
    }
    if let Some(processor) = sample.processor {
        group.add(name, PROCESSOR, "us", &[processor]);
    }
    if let Some(refused) = sample.refused {
        group.add(name, REFUSED, "", &[refused]);
    }
    if failed > 0 {
        report.note(format!("{title}: {name} failed {failed} transactions in a run."));
    }
}

/// The table of what a run told beside its throughput.
pub fn beside(title: &str) -> String {
    format!("{title}: beside it")
}
