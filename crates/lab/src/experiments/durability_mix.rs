//! `durability-mix`: tables of three levels in one server, each paying for its own level only.
//!
//! ```text
//!   orders    sync        a client is told when a crash can no longer take it
//!   events    async       a crash may take what was told in the last max_loss
//!   metrics   unlogged    a crash takes everything
//! ```
//!
//! Writers of all three at once, over the wire, a row a transaction. First each kind alone, as
//! fast as it goes; then the two that need not wait, at a pace that leaves the processors free,
//! alone and beside orders that come as fast as they can: who writes events or metrics should not
//! feel that somebody else's orders wait for the disk. At last the server is killed in the middle,
//! and what it has after its restart is compared with what it had promised, row by row.
//!
//! PostgreSQL has no level of tables: there the writers of events turn synchronous_commit off for
//! their sessions, and what may be lost is three times wal_writer_delay.

use super::mix_report::{goals, promise, record};
use crate::client::Client;
use crate::server::Settings;
use crate::subject::{self, Installed, Subject, common_settings};
use crate::workplace::Workplace;
use crate::writers::{Team, Told, Writers, Written};
use crate::{Experiment, LabError, Params, Progress, Report, turn};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const SECONDS: u64 = 5;
const ROUNDS: usize = 3;
/// Writers of each kind.
const WRITERS: usize = 4;
const BUFFERS: u64 = 256 << 20;
/// The pace of events and metrics, of what each reaches alone.
const PACE: f64 = 0.2;
/// A restart has to wait until the system has taken back what the killed processes had.
const RESTART: Duration = Duration::from_secs(20);

/// How long a told event may be at risk.
pub const MAX_LOSS_MS: u64 = 250;

/// A table and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Orders,
    Events,
    Metrics,
}

pub const KINDS: [Kind; 3] = [Kind::Orders, Kind::Events, Kind::Metrics];

impl Kind {
    pub fn table(self) -> &'static str {
        match self {
            Kind::Orders => "orders",
            Kind::Events => "events",
            Kind::Metrics => "metrics",
        }
    }

    pub fn level(self) -> &'static str {
        match self {
            Kind::Orders => "sync",
            Kind::Events => "async",
            Kind::Metrics => "unlogged",
        }
    }

    fn create(self, ours: bool) -> String {
        let unlogged = if self == Kind::Metrics { "unlogged " } else { "" };
        let with = match self {
            Kind::Orders if ours => " with (durability = 'sync')".to_owned(),
            Kind::Events if ours => {
                format!(" with (durability = 'async', max_loss = '{MAX_LOSS_MS}ms')")
            }
            _ => String::new(),
        };
        format!("create {unlogged}table {} (writer bigint, n bigint){with}", self.table())
    }

    /// As fast as it goes.
    fn writers(self, ours: bool, connections: usize) -> Writers<'static> {
        let session = match self {
            Kind::Events if !ours => "set synchronous_commit = off",
            _ => "",
        };
        Writers { table: self.table(), session, connections, pause: None }
    }

    /// So many rows a second, all writers together.
    fn paced(self, ours: bool, connections: usize, rate: f64) -> Writers<'static> {
        let pause = Duration::from_secs_f64(connections as f64 / rate.max(1.0));
        Writers { pause: Some(pause), ..self.writers(ours, connections) }
    }
}

/// How the writers of a phase go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Alone,
    /// All three as fast as they go.
    Together,
    /// At a pace, the kind alone.
    PacedAlone,
    /// At the same pace, beside orders that go as fast as they can.
    PacedTogether,
}

/// What a kill left.
pub struct Loss {
    /// Rows that were acknowledged.
    pub told: usize,
    /// Of those, the ones that are gone.
    pub lost: usize,
    /// The age of the oldest one that is gone, when the server was killed.
    pub age_ms: f64,
    /// Rows that are there.
    pub left: usize,
    /// Whether rows are gone before ones that are there, of the same writer.
    pub holes: bool,
}

pub struct DurabilityMix;

/// The size of a run.
struct Size {
    writers: usize,
    time: Duration,
}

impl Experiment for DurabilityMix {
    fn name(&self) -> &'static str {
        "durability-mix"
    }

    fn summary(&self) -> &'static str {
        "sync, async and unlogged tables written at once; what a kill takes, against the promise"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let rounds = params.rounds.unwrap_or(ROUNDS);
        let size = Size {
            writers: params.clients.unwrap_or(WRITERS),
            time: Duration::from_secs(params.seconds.unwrap_or(SECONDS)),
        };
        let subjects = Subject::both(params)?;
        let work = Workplace::new()?;
        let mut report = Report::new(
            self.name(),
            "Durability by table",
            "Do tables that need not wait for the disk run at their own speed beside one that \
             does, and does a crash take no more than each level says?",
        );
        report.parameter("writers of each kind", size.writers);
        report.parameter("seconds", size.time.as_secs());
        report.parameter("rounds", rounds);
        report.parameter("max_loss", format!("{MAX_LOSS_MS} ms"));
        subject::note_build(&mut report);
        report.note(
            "A kill takes what the server had in its memory, not what the kernel has; what a loss \
             of power takes is tested on simulated disks.",
        );
        progress.plan(rounds * subjects.len() * 2);
        for round in 0..rounds {
            for at in turn(round, subjects.len()) {
                let subject = &subjects[at];
                let who = format!("round {}/{rounds}: {}", round + 1, subject.name());
                progress.step(&format!("{who}, rates"))?;
                let installed = install(&work, subject, &size)?;
                rates(&mut report, &installed, &size)?;
                progress.step(&format!("{who}, kill"))?;
                for (kind, loss) in KINDS.into_iter().zip(crash(&installed, &size)?) {
                    promise(&mut report, subject.name(), kind, &loss);
                }
            }
        }
        goals(&mut report, &subjects);
        Ok(report)
    }
}

fn settings(size: &Size) -> Settings {
    let mut settings = common_settings(BUFFERS, size.writers * KINDS.len());
    // Where PostgreSQL's promise comes from, and what both have by default.
    settings.push(("wal_writer_delay", "200ms".to_owned()));
    settings
}

fn install(work: &Workplace, subject: &Subject, size: &Size) -> Result<Installed, LabError> {
    let installed = subject.install(work)?;
    let server = installed.start(&settings(size))?;
    let mut client = server.connect()?;
    for kind in KINDS {
        client.execute(&kind.create(!subject.is_postgresql()))?;
    }
    drop(client);
    server.stop()?;
    Ok(installed)
}

/// Each alone, all together, and at a pace.
fn rates(report: &mut Report, installed: &Installed, size: &Size) -> Result<(), LabError> {
    let (subject, ours) = (installed.subject().name(), !installed.subject().is_postgresql());
    let server = installed.start(&settings(size))?;
    report.version(subject, &server.connect()?.version()?);
    let mut write = |phase, kinds: &[Kind], groups: &[Writers<'static>]| {
        let written = Team::connect(&server, groups)?.write(size.time)?;
        for (kind, written) in kinds.iter().zip(&written) {
            record(report, subject, phase, *kind, written);
        }
        Ok::<Vec<Written>, LabError>(written)
    };
    let mut alone = Vec::new();
    for kind in KINDS {
        let group = kind.writers(ours, size.writers);
        alone.extend(write(Phase::Alone, &[kind], &[group])?.iter().map(Written::rate));
    }
    let all = KINDS.map(|kind| kind.writers(ours, size.writers));
    write(Phase::Together, &KINDS, &all)?;
    let mut mixed = vec![Kind::Orders.writers(ours, size.writers)];
    for (kind, rate) in KINDS.into_iter().zip(alone).skip(1) {
        let group = kind.paced(ours, size.writers, rate * PACE);
        write(Phase::PacedAlone, &[kind], std::slice::from_ref(&group))?;
        mixed.push(group);
    }
    write(Phase::PacedTogether, &KINDS, &mixed)?;
    server.stop()
}

/// Kills the server while all write, starts it again, and looks what is there.
fn crash(installed: &Installed, size: &Size) -> Result<Vec<Loss>, LabError> {
    let ours = !installed.subject().is_postgresql();
    let server = installed.start(&settings(size))?;
    let mut client = server.connect()?;
    for kind in KINDS {
        client.execute(&format!("truncate {}", kind.table()))?;
    }
    client.execute("checkpoint")?;
    drop(client);
    let groups = KINDS.map(|kind| kind.writers(ours, size.writers));
    let team = Team::connect(&server, &groups)?;
    let (written, killed) = team.write_until(size.time, || server.kill())?;
    let server = restart(installed, size)?;
    let mut client = server.connect()?;
    let losses = KINDS.into_iter().zip(&written);
    let losses: Result<Vec<Loss>, LabError> =
        losses.map(|(kind, written)| loss(&mut client, kind, written, killed)).collect();
    drop(client);
    server.stop()?;
    losses
}

fn restart(installed: &Installed, size: &Size) -> Result<crate::server::Server, LabError> {
    let begun = Instant::now();
    loop {
        match installed.start(&settings(size)) {
            Err(LabError::Start { .. }) if begun.elapsed() < RESTART => {
                std::thread::sleep(Duration::from_millis(200));
            }
            outcome => return outcome,
        }
    }
}

/// Compares a table with what its writers were told.
fn loss(
    client: &mut Client,
    kind: Kind,
    written: &Written,
    killed: Instant,
) -> Result<Loss, LabError> {
    let sql = format!("select writer, count(*), max(n) from {} group by writer", kind.table());
    let rows = client.query(&sql)?;
    let number = |row: &[String], at: usize| row.get(at).and_then(|t| t.parse::<usize>().ok());
    let found: HashMap<usize, (usize, usize)> = rows
        .iter()
        .filter_map(|row| Some((number(row, 0)?, (number(row, 1)?, number(row, 2)?))))
        .collect();
    let here = |number: usize| found.get(&number).copied().unwrap_or_default();
    Ok(compare(&written.writers, here, killed))
}

/// `here`: of a writer's number, the rows that are there, and the last of them.
fn compare(writers: &[Told], here: impl Fn(usize) -> (usize, usize), killed: Instant) -> Loss {
    let mut loss = Loss { told: 0, lost: 0, age_ms: 0.0, left: 0, holes: false };
    for (number, told) in writers.iter().enumerate() {
        let (count, last) = here(number);
        loss.told += told.acknowledged.len();
        loss.left += count;
        loss.holes |= count != last;
        let gone = told.acknowledged.get(count..).unwrap_or_default();
        loss.lost += gone.len();
        if let Some(oldest) = gone.first() {
            let age = killed.saturating_duration_since(*oldest).as_secs_f64() * 1e3;
            loss.age_ms = loss.age_ms.max(age);
        }
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ages_ms: &[u64], killed: Instant) -> Told {
        let at = |ms: &u64| killed - Duration::from_millis(*ms);
        Told { acknowledged: ages_ms.iter().map(at).collect(), ..Told::default() }
    }

    #[test]
    fn losses_are_counted_and_dated() {
        let killed = Instant::now() + Duration::from_secs(10);
        let writers = [told(&[900, 300, 20], killed), told(&[500, 100], killed)];
        let nothing = compare(&writers, |number| [(4, 4), (2, 2)][number], killed);
        assert_eq!((nothing.told, nothing.lost, nothing.left), (5, 0, 6));
        assert!(nothing.age_ms == 0.0 && !nothing.holes);
        let some = compare(&writers, |number| [(1, 1), (2, 2)][number], killed);
        assert_eq!((some.lost, some.left), (2, 3));
        assert!((some.age_ms - 300.0).abs() < 1e-6, "{}", some.age_ms);
        let hole = compare(&writers, |number| [(2, 3), (2, 2)][number], killed);
        assert!(hole.holes);
        let all = compare(&writers, |_| (0, 0), killed);
        assert_eq!((all.lost, all.left), (5, 0));
        assert!((all.age_ms - 900.0).abs() < 1e-6);
    }

    #[test]
    fn each_subject_is_asked_in_its_own_words() {
        assert!(Kind::Events.create(true).ends_with("(durability = 'async', max_loss = '250ms')"));
        assert!(!Kind::Events.create(false).contains("durability"));
        assert!(Kind::Metrics.create(false).starts_with("create unlogged table metrics"));
        assert_eq!(Kind::Events.writers(true, 1).session, "");
        assert_eq!(Kind::Events.writers(false, 1).session, "set synchronous_commit = off");
        let paced = Kind::Metrics.paced(true, 4, 1000.0);
        assert_eq!(paced.pause, Some(Duration::from_millis(4)));
    }
}
