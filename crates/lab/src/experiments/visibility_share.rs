//! `visibility-share`: how much of a scan's processor time goes into visibility?
//!
//! ```text
//!   select count(*) from t          processor time of the server, a statement
//!     |- finding and latching pages    |
//!     |- walking line pointers         |  the same work inside this process, each part alone,
//!     `- visibility                    |  under every policy, on pages that nobody changes
//! ```
//!
//! The rows are old and the table lies in memory: pages are quiet, which is what pages mostly are.
//! Under the default policy each is then decided by one comparison; under the older ones every
//! tuple is looked at; with `off` every tuple's transaction is looked up.
//!
//! Where perf is to be had, it tells besides which functions the server spent its time in.

use crate::kernel::{Table, Writers};
use crate::profile::{Recording, processor_time};
use crate::report::{Bound, Figure, Goal};
use crate::stats::median;
use crate::subject::{self, POLICIES, Subject, common_settings, policy_name};
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, turn};
use inkling_storage::heap::HintPolicy;
use inkling_storage::txn::StatusCacheKind;
use std::time::{Duration, Instant};

const ROWS: u64 = 100_000;
const ROUNDS: usize = 3;
const SECONDS: u64 = 2;
/// Functions that are told.
const FUNCTIONS: usize = 10;

const PARTS: &str = "Parts of a scan, in this process";
const STATEMENT: &str = "Processor time of select count(*)";
const SHARE: &str = "Share of visibility";
const US: &str = "us a statement";
const PAGES: &str = "finding and latching pages";
const LINES: &str = "walking line pointers";
const VISIBILITY: &str = "visibility";
const PERCENT: &str = "visibility, of the statement";

pub struct VisibilityShare;

impl Experiment for VisibilityShare {
    fn name(&self) -> &'static str {
        "visibility-share"
    }

    fn summary(&self) -> &'static str {
        "how much of a scan's processor time goes into visibility, by policy and by function"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let rows = params.rows.unwrap_or(ROWS);
        let rounds = params.rounds.unwrap_or(ROUNDS);
        let time = Duration::from_secs(params.seconds.unwrap_or(SECONDS));
        let work = Workplace::new()?;
        let subjects = Subject::every_policy(params)?;
        let mut report = Report::new(
            self.name(),
            "Visibility's share of a scan",
            "How much of the processor time of counting a quiet table goes into deciding which \
             rows are visible?",
        );
        report.parameter("rows", rows);
        report.parameter("rounds", rounds);
        report.parameter("seconds each", time.as_secs());
        subject::note_build(&mut report);
        progress.plan(1 + rounds * subjects.len());
        progress.step("parts of a scan")?;
        parts(&mut report, &work, rows, rounds, time)?;
        for round in 0..rounds {
            for at in turn(round, subjects.len()) {
                let name = subjects[at].name();
                progress.step(&format!("statements, round {}/{rounds}: {name}", round + 1))?;
                statements(&mut report, &work, &subjects[at], rows, time, round == 0)?;
            }
        }
        shares(&mut report);
        Ok(report)
    }
}

/// The parts, each alone, in microseconds a scan.
fn parts(
    report: &mut Report,
    work: &Workplace,
    rows: u64,
    rounds: usize,
    time: Duration,
) -> Result<(), LabError> {
    let table = Table::load(work.place()?, rows, Writers::One, false)?;
    table.settle()?;
    for _ in 0..rounds {
        for policy in HintPolicy::ALL {
            let mut reader = table.reader(policy, StatusCacheKind::default());
            reader.count()?;
            let [pages, lines, all] = in_turn(
                time,
                &mut [&mut || table.visit(), &mut || table.lines(), &mut || reader.count()],
            )?;
            let name = policy_name(policy.name());
            let group = report.group(PARTS, Figure::Stacked);
            group.add(&name, PAGES, "us", &[pages]);
            group.add(&name, LINES, "us", &[(lines - pages).max(0.0)]);
            group.add(&name, VISIBILITY, "us", &[(all - lines).max(0.0)]);
        }
    }
    Ok(())
}

/// A part of a scan, told by what it counted.
type Part<'a> = &'a mut dyn FnMut() -> Result<u64, LabError>;

/// Does the parts in turn for this long; the median of each, in microseconds. In turn, so that what
/// slows the machine slows all of them, and their differences mean something.
fn in_turn<const N: usize>(
    time: Duration,
    parts: &mut [Part<'_>; N],
) -> Result<[f64; N], LabError> {
    let mut samples = [const { Vec::new() }; N];
    let begun = Instant::now();
    while begun.elapsed() < time || samples[0].is_empty() {
        for (part, samples) in parts.iter_mut().zip(&mut samples) {
            let from = Instant::now();
            part()?;
            samples.push(from.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(samples.map(|samples| median(&samples).unwrap_or(0.0)))
}

/// The statement, through the wire.
fn statements(
    report: &mut Report,
    work: &Workplace,
    subject: &Subject,
    rows: u64,
    time: Duration,
    profile: bool,
) -> Result<(), LabError> {
    let installed = subject.install(work)?;
    let mut settings = common_settings(256 << 20, 1);
    settings.push(("autovacuum", "off".to_owned()));
    if subject.is_postgresql() {
        settings.push(("max_parallel_workers_per_gather", "0".to_owned()));
    }
    let server = installed.start(&settings)?;
    let mut client = server.connect()?;
    report.version(subject.name(), &client.version()?);
    client.execute("create table t (x int)")?;
    client.execute(&format!("insert into t select generate_series(1, {rows})"))?;
    client.execute("checkpoint")?;
    let count = "select count(*) from t";
    (0..3).try_for_each(|_| client.integer(count).map(drop))?;
    // PostgreSQL has a process a connection.
    let pid = match subject.is_postgresql() {
        true => client.integer("select pg_backend_pid()")? as u32,
        false => server.process_id(),
    };
    let recording = profile.then(|| Recording::begin(pid)).flatten();
    let before = processor_time(pid)?;
    let begun = Instant::now();
    let mut times = 0u32;
    while begun.elapsed() < time {
        client.integer(count)?;
        times += 1;
    }
    let used = processor_time(pid)?.saturating_sub(before).as_secs_f64() * 1e6 / f64::from(times);
    let name = subject.name();
    report.group(STATEMENT, Figure::Bars).add(name, US, "us", &[used]);
    for (function, share) in recording.map(Recording::end).unwrap_or_default() {
        let title = format!("Functions of {name}");
        let group = report.group(&title, Figure::None);
        if group.measurements.len() < FUNCTIONS {
            group.add(&function, "share", "%", &[share]);
        }
    }
    drop(client);
    server.discard()
}

/// Visibility's part of the whole statement, and the goal.
fn shares(report: &mut Report) {
    for policy in POLICIES {
        let name = policy_name(policy);
        let visibility = report.median(PARTS, &name, VISIBILITY);
        let whole = report.median(STATEMENT, &name, US);
        let Some((visibility, whole)) = visibility.zip(whole).filter(|(_, w)| *w > 0.0) else {
            continue;
        };
        let percent = visibility / whole * 100.0;
        report.group(SHARE, Figure::Bars).add(&name, PERCENT, "%", &[percent]);
    }
    let ours = report.median(SHARE, &policy_name(POLICIES[0]), PERCENT);
    let what = "visibility's share of count(*) on quiet pages, %";
    report.goals.push(Goal::new(what, ours, Bound::AtMost(2.0)));
}
