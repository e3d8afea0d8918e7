//! `wal-flush`: how often is the log flushed, what does it cost, and is the usual policy the best?
//!
//! ```text
//!   synchronous_commit = on     every commit waits for a flush; those that wait together share it
//!   synchronous_commit = off    nobody waits; the log's writer flushes
//!     wal_writer_delay            at the latest after this time
//!     wal_writer_flush_after      and after so much log
//! ```
//!
//! pgbench's TPC-B-like script, prepared, with one client and with many, under each policy. Beside
//! the throughput stands what it was bought with: flushes of the log a second, bytes each, and the
//! part of the time in which the log's device was writing or syncing, as the server counted it.
//! Latencies are those of whole transactions, from pgbench's own log.

use super::tpcb::{Bench, Loaded};
use crate::client::Client;
use crate::pgbench::{Outcome, Script, Workload};
use crate::report::{Bound, Figure, Goal};
use crate::server::Settings;
use crate::stats::percentile;
use crate::subject::{POSTGRESQL, Subject};
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, turn};
use std::thread;
use std::time::Duration;

const SCALE: u64 = 50;
const INKLING: &str = "Inkling";
const DEFAULT: &str = "default";
/// The part of many clients' transactions whose times are kept: keeping them costs pgbench time.
const KEPT: f64 = 0.2;
/// PostgreSQL's sessions tell what they did when they end, a moment after their clients.
const SETTLE: Duration = Duration::from_millis(300);

const TPS: &str = "transactions";
const SYNCS: &str = "flushes";
const PER_COMMIT: &str = "flushes a transaction";
const BYTES: &str = "log a flush";
const DEVICE: &str = "time in writes and flushes";
const P50: &str = "p50";
const P99: &str = "p99";

/// When the log is flushed.
struct Policy {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const POLICIES: [Policy; 5] = [
    Policy { name: DEFAULT, settings: &[] },
    Policy { name: "delay 10ms", settings: &[("wal_writer_delay", "10ms")] },
    Policy {
        name: "delay 2s, after 64MB",
        settings: &[("wal_writer_delay", "2s"), ("wal_writer_flush_after", "64MB")],
    },
    Policy { name: "after 64kB", settings: &[("wal_writer_flush_after", "64kB")] },
    Policy { name: "after 16MB", settings: &[("wal_writer_flush_after", "16MB")] },
];
const LEVELS: [&str; 2] = ["on", "off"];

pub struct WalFlush;

/// What is the same for all who are compared.
#[derive(Clone, Copy)]
struct Case {
    level: &'static str,
    clients: usize,
}

impl Case {
    fn title(&self) -> String {
        title(self.level, self.clients)
    }
}

fn title(level: &str, clients: usize) -> String {
    let unit = if clients == 1 { "client" } else { "clients" };
    format!("synchronous_commit = {level}, {clients} {unit}")
}

fn flushing(title: &str) -> String {
    format!("{title}: flushes of the log")
}

fn latency(title: &str) -> String {
    format!("{title}: latency")
}

fn name(subject: &str, policy: &str) -> String {
    format!("{subject}, {policy}")
}

impl Experiment for WalFlush {
    fn name(&self) -> &'static str {
        "wal-flush"
    }

    fn summary(&self) -> &'static str {
        "pgbench under each policy of flushing the log: throughput, flushes, latency"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let bench = Bench::new(params, SCALE)?;
        let subjects = Subject::both(params)?;
        let work = Workplace::new()?;
        let mut report = bench.report(
            self.name(),
            "Flushing the log",
            "What does each policy of flushing the log give in throughput and latency, and how \
             often and how long does it use the device?",
        )?;
        report.note(
            "Latencies are of whole transactions. Flushes, and the time in writes and flushes, are \
             what the servers count (pg_stat_wal; from PostgreSQL 18 on pg_stat_io).",
        );
        let cases = cases(bench.clients);
        let runs = cases.len() * POLICIES.len() * bench.rounds;
        progress.plan(subjects.len() * (1 + runs));
        let loaded = bench.load_all(&work, &subjects, progress)?;
        for round in 0..bench.rounds {
            for case in &cases {
                for policy in turn(round, POLICIES.len()).map(|at| &POLICIES[at]) {
                    for at in turn(round, loaded.len()) {
                        let who = name(&loaded[at].name, policy.name);
                        progress.step(&format!("{}, round {}: {who}", case.title(), round + 1))?;
                        let run = Run { work: &work, bench: &bench, loaded: &loaded[at], policy };
                        run.measure(&mut report, case)?;
                    }
                }
            }
        }
        goals(&mut report, bench.clients);
        Ok(report)
    }
}

/// Every level, with many clients and with one.
fn cases(clients: usize) -> Vec<Case> {
    let mut counts = vec![clients];
    if clients > 1 {
        counts.push(1);
    }
    let level = |level| counts.iter().map(move |&clients| Case { level, clients });
    LEVELS.into_iter().flat_map(level).collect()
}

/// One run of one subject under one policy.
struct Run<'a> {
    work: &'a Workplace,
    bench: &'a Bench,
    loaded: &'a Loaded,
    policy: &'static Policy,
}

impl Run<'_> {
    /// Runs, and adds what it gave and what it used the log's device for.
    fn measure(&self, report: &mut Report, case: &Case) -> Result<(), LabError> {
        let ours = !self.loaded.subject().is_postgresql();
        let own = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        let mut settings: Settings = self.policy.settings.iter().map(own).collect();
        if !ours {
            settings.push(("track_wal_io_timing", "on".to_owned()));
        }
        let (server, mut client) = self.bench.prepare(self.loaded, &settings)?;
        report.version(&self.loaded.name, &client.version()?);
        let load = Workload {
            script: Script::TpcB,
            clients: case.clients,
            seconds: self.bench.seconds,
            synchronous_commit: case.level,
        };
        let kept = if case.clients == 1 { 1.0 } else { KEPT };
        let before = Flushed::read(&mut client, ours)?;
        let (outcome, logged) = self.bench.pgbench.run_logged(self.work, &server, load, kept)?;
        thread::sleep(SETTLE);
        let flushed = Flushed::read(&mut client, ours)?.since(&before);
        drop(client);
        server.stop()?;
        let who = name(&self.loaded.name, self.policy.name);
        report.group(&case.title(), Figure::Bars).add(&who, TPS, "a second", &[outcome.tps]);
        flushed.record(report, case, &who, &outcome);
        let times: Vec<f64> = logged.iter().map(|l| l.latency_ms).collect();
        let group = report.group(&latency(&case.title()), Figure::Bars);
        for (metric, part) in [(P50, 0.5), (P99, 0.99)] {
            let value: Vec<f64> = percentile(&times, part).into_iter().collect();
            group.add(&who, metric, "ms", &value);
        }
        if outcome.failed > 0 {
            report.note(format!("{}: {who} failed {} transactions.", case.title(), outcome.failed));
        }
        Ok(())
    }
}

/// What a server counts of its log's device.
struct Flushed {
    syncs: f64,
    busy_ms: f64,
    log: u64,
}

impl Flushed {
    fn read(client: &mut Client, ours: bool) -> Result<Flushed, LabError> {
        let version = client.integer("select current_setting('server_version_num')::int4")?;
        // Since version 18 PostgreSQL counts this with all other input and output.
        let sql = if !ours && version >= 180_000 {
            "select sum(fsyncs)::float8, sum(fsync_time + write_time)::float8 from pg_stat_io \
             where object = 'wal' and context = 'normal'"
        } else {
            "select wal_sync::float8, wal_sync_time + wal_write_time from pg_stat_wal"
        };
        let row = client.query(sql)?.into_iter().next().unwrap_or_default();
        let number = |at: usize| row.get(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
        Ok(Flushed { syncs: number(0), busy_ms: number(1), log: client.wal_position()? })
    }

    fn since(self, before: &Flushed) -> Flushed {
        Flushed {
            syncs: self.syncs - before.syncs,
            busy_ms: self.busy_ms - before.busy_ms,
            log: self.log.saturating_sub(before.log),
        }
    }

    fn record(&self, report: &mut Report, case: &Case, who: &str, outcome: &Outcome) {
        if outcome.transactions == 0 || outcome.tps <= 0.0 {
            return;
        }
        let transactions = outcome.transactions as f64;
        let seconds = transactions / outcome.tps;
        let group = report.group(&flushing(&case.title()), Figure::Bars);
        group.add(who, SYNCS, "a second", &[self.syncs / seconds]);
        group.add(who, PER_COMMIT, "", &[self.syncs / transactions]);
        group.add(who, DEVICE, "%", &[self.busy_ms / 10.0 / seconds]);
        if self.syncs > 0.0 {
            group.add(who, BYTES, "kB", &[self.log as f64 / 1024.0 / self.syncs]);
        }
    }
}

fn goals(report: &mut Report, clients: usize) {
    let ours = name(INKLING, DEFAULT);
    let theirs = name(POSTGRESQL, DEFAULT);
    let tps = |report: &Report, level, clients, who: &str| {
        report.median(&title(level, clients), who, TPS)
    };
    let mut counts = vec![(clients, 2.0)];
    if clients > 1 {
        counts.push((1, 1.0));
    }
    if report.groups.iter().any(|g| g.find(&theirs, TPS).is_some()) {
        for &(clients, least) in &counts {
            let of = |who| tps(report, "on", clients, who);
            let what = format!("tps, {ours} / {theirs}, {}", title("on", clients));
            let goal = Goal::ratio(what, of(&ours), of(&theirs), Bound::AtLeast(least));
            report.goals.push(goal);
        }
    }
    let one = flushing(&title("on", 1));
    // A checkpoint's record, and the segment that ends within a commit, are flushed besides.
    let goal = Goal::new(
        format!("flushes a transaction, {ours}, {}", title("on", 1)),
        report.median(&one, &ours, PER_COMMIT),
        Bound::AtMost(1.01),
    );
    report.goals.push(goal);
    for level in LEVELS {
        for &(clients, _) in &counts {
            let of = |policy: &Policy| tps(report, level, clients, &name(INKLING, policy.name));
            let best = POLICIES.iter().filter_map(of).fold(0.0, f64::max);
            let what = format!("tps, {ours} / the best policy, {}", title(level, clients));
            let goal = Goal::ratio(what, of(&POLICIES[0]), Some(best), Bound::AtLeast(0.98));
            report.goals.push(goal);
        }
    }
}
