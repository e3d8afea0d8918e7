//! `checkpoint-cost`: what does a checkpoint take from those who go on working?
//!
//! ```text
//!   quiet   |------------------- no checkpoint -------------------------|
//!   timed   |------- 30 s -------|======= spread over 27 s =======|-----|
//!   forced  |---- a third ----|== CHECKPOINT ==|------------------------|
//!                             compared: the same stretch of the quiet run
//! ```
//!
//! pgbench's TPC-B-like script and its select, prepared. While only reads go on there would be
//! nothing to write, so every page of the accounts is changed before, after the last checkpoint.
//! Throughput and latency come from pgbench's own log, in the stretch in which the server's log
//! says that a checkpoint was going on, and in the same stretch of a run without one. After a
//! checkpoint pages are logged whole once more; what of that falls into the stretch is in it.

use super::tpcb::{Bench, Loaded};
use crate::pgbench::{Logged, Script, Workload};
use crate::report::{Bound, Figure, Goal};
use crate::server::{Server, Settings};
use crate::stats::percentile;
use crate::subject::Subject;
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, turn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SCALE: u64 = 50;
/// Long enough for a timed checkpoint, from its beginning to its end.
const SECONDS: u64 = 62;
/// PostgreSQL's least `checkpoint_timeout`, in seconds.
const TIMEOUT: u64 = 30;
/// The timed checkpoint needs the rest of the run.
const TIMED_NEEDS: u64 = 2 * TIMEOUT;
const POLL: Duration = Duration::from_millis(20);
/// Transactions of which pgbench keeps a time: selects are many.
const SELECTS_KEPT: f64 = 0.1;
/// A row of each page of the accounts.
const TOUCH: &str = "update pgbench_accounts set abalance = abalance where aid % 61 = 0";

const STARTING: &str = "checkpoint starting";
const COMPLETE: &str = "checkpoint complete";
const TPS: &str = "transactions";
const P99: &str = "p99";
const SPEED: &str = "with / without: throughput";
const TAIL: &str = "with / without: p99";

/// How the checkpoint comes about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Quiet,
    Timed,
    Forced,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Quiet => "no checkpoint",
            Cause::Timed => "timed checkpoint",
            Cause::Forced => "CHECKPOINT",
        }
    }
}

const SCRIPTS: [Script; 2] = [Script::SelectOnly, Script::TpcB];

fn script_name(script: Script) -> &'static str {
    match script {
        Script::TpcB => "TPC-B",
        Script::SelectOnly => "select-only",
    }
}

pub struct CheckpointCost;

impl Experiment for CheckpointCost {
    fn name(&self) -> &'static str {
        "checkpoint-cost"
    }

    fn summary(&self) -> &'static str {
        "what a checkpoint takes from reads and from updates that go on meanwhile"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let mut bench = Bench::new(params, SCALE)?;
        bench.seconds = params.seconds.unwrap_or(SECONDS);
        let mut causes = vec![Cause::Forced];
        if bench.seconds >= TIMED_NEEDS {
            causes.insert(0, Cause::Timed);
        }
        let subjects = Subject::both(params)?;
        let work = Workplace::new()?;
        let mut report = bench.report(
            self.name(),
            "The cost of a checkpoint",
            "How much throughput and how much latency does a checkpoint cost those who go on \
             reading and writing?",
        )?;
        if bench.seconds < TIMED_NEEDS {
            report.note(format!(
                "A timed checkpoint needs runs of {TIMED_NEEDS} seconds; these are shorter."
            ));
        }
        let runs = bench.rounds * SCRIPTS.len() * (1 + causes.len());
        progress.plan(subjects.len() * (1 + runs));
        let loaded = bench.load_all(&work, &subjects, progress)?;
        for round in 0..bench.rounds {
            for script in SCRIPTS {
                for at in turn(round, loaded.len()) {
                    let runs = Runs { bench: &bench, work: &work, loaded: &loaded[at], script };
                    let who = format!("{}, round {}", script_name(script), round + 1);
                    runs.compare(&mut report, progress, &causes, &who)?;
                }
            }
        }
        goals(&mut report, &causes);
        Ok(report)
    }
}

/// Runs of one script against one subject.
struct Runs<'a> {
    bench: &'a Bench,
    work: &'a Workplace,
    loaded: &'a Loaded,
    script: Script,
}

/// One run: its transactions, and when a checkpoint went on; in seconds since its beginning.
struct Ran {
    logged: Vec<Logged>,
    stretch: Option<(f64, f64)>,
}

impl Runs<'_> {
    /// A run without a checkpoint, and one of each cause, held against it.
    fn compare(
        &self,
        report: &mut Report,
        progress: &mut Progress,
        causes: &[Cause],
        who: &str,
    ) -> Result<(), LabError> {
        let name = &self.loaded.name;
        progress.step(&format!("{who}: {name}, {}", Cause::Quiet.name()))?;
        let quiet = self.run(report, Cause::Quiet)?;
        for cause in causes {
            progress.step(&format!("{who}: {name}, {}", cause.name()))?;
            let ran = self.run(report, *cause)?;
            let Some(stretch) = ran.stretch else {
                report.note(format!("{who}: {name} made no {}.", cause.name()));
                continue;
            };
            let (with, without) = (self.within(&ran, stretch), self.within(&quiet, stretch));
            self.record(report, *cause, stretch, &[(*cause, &with), (Cause::Quiet, &without)]);
        }
        Ok(())
    }

    fn part(&self) -> f64 {
        if self.script == Script::SelectOnly { SELECTS_KEPT } else { 1.0 }
    }

    /// Throughput and p99 of a stretch of a run.
    fn within(&self, ran: &Ran, (from, to): (f64, f64)) -> (f64, Option<f64>) {
        let inside = ran.logged.iter().filter(|l| l.ended >= from && l.ended < to);
        let times: Vec<f64> = inside.map(|l| l.latency_ms).collect();
        (times.len() as f64 / self.part() / (to - from), percentile(&times, 0.99))
    }

    fn record(
        &self,
        report: &mut Report,
        cause: Cause,
        (from, to): (f64, f64),
        pair: &[(Cause, &(f64, Option<f64>)); 2],
    ) {
        let (name, title) = (&self.loaded.name, title(self.script, cause));
        for (which, (tps, p99)) in pair {
            let group = report.group(&title, Figure::Bars);
            let p99: Vec<f64> = p99.iter().copied().collect();
            group.add(name, &format!("{TPS}, {}", which.name()), "a second", &[*tps]);
            group.add(name, &format!("{P99}, {}", which.name()), "ms", &p99);
        }
        let [(_, with), (_, without)] = pair;
        let group = report.group(&ratios(self.script, cause), Figure::Bars);
        if without.0 > 0.0 {
            group.add(name, SPEED, "", &[with.0 / without.0]);
        }
        if let (Some(with), Some(without)) = (with.1, without.1.filter(|ms| *ms > 0.0)) {
            group.add(name, TAIL, "", &[with / without]);
        }
        group.add(name, "the checkpoint took", "s", &[to - from]);
    }

    fn run(&self, report: &mut Report, cause: Cause) -> Result<Ran, LabError> {
        let timeout = if cause == Cause::Timed { TIMEOUT } else { 3600 };
        let settings: Settings = vec![
            ("checkpoint_timeout", format!("{timeout}s")),
            // Off by default before PostgreSQL 15.
            ("log_checkpoints", "on".to_owned()),
        ];
        let (server, mut client) = self.bench.prepare(self.loaded, &settings)?;
        report.version(&self.loaded.name, &client.version()?);
        if self.script == Script::SelectOnly {
            client.execute(TOUCH)?;
        }
        let seen = Seen::count(&server);
        let load = Workload {
            script: self.script,
            clients: self.bench.clients,
            seconds: self.bench.seconds,
            synchronous_commit: "on",
        };
        let over = AtomicBool::new(false);
        let (logged, stretch) = thread::scope(|scope| {
            let watch = scope.spawn(|| watch(&server, seen, cause, self.bench.seconds, &over));
            let ran = self.bench.pgbench.run_logged(self.work, &server, load, self.part());
            over.store(true, Ordering::Relaxed);
            let watched = watch.join();
            let watched = watched.map_err(|_| LabError::Engine("a watcher panicked".to_owned()))?;
            Ok::<_, LabError>((ran?.1, watched?))
        })?;
        // Here it may take its time; a stop may not.
        client.execute("checkpoint")?;
        drop(client);
        server.stop()?;
        // By the first transaction that ended: connections take their time before.
        let begun = logged.iter().map(|l| l.ended).fold(f64::INFINITY, f64::min);
        let last = logged.iter().map(|l| l.ended).fold(begun, f64::max);
        let logged = logged.iter().map(|l| Logged { ended: l.ended - begun, ..*l }).collect();
        let stretch = stretch.map(|(from, to)| (from.max(begun) - begun, to.min(last) - begun));
        Ok(Ran { logged, stretch: stretch.filter(|(from, to)| from < to) })
    }
}

/// How often the log has told of checkpoints.
#[derive(Clone, Copy)]
struct Seen {
    starting: usize,
    complete: usize,
}

impl Seen {
    fn count(server: &Server) -> Seen {
        let log = server.log_text();
        Seen { starting: log.matches(STARTING).count(), complete: log.matches(COMPLETE).count() }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Asks for a checkpoint where one is to be forced; when one went on, in seconds since 1970. One
/// that is not over with the run ends with it.
fn watch(
    server: &Server,
    before: Seen,
    cause: Cause,
    seconds: u64,
    over: &AtomicBool,
) -> Result<Option<(f64, f64)>, LabError> {
    let begun = now();
    let mut from = None;
    while !over.load(Ordering::Relaxed) {
        if cause == Cause::Forced && now() - begun > seconds as f64 / 3.0 {
            let mut client = server.connect()?;
            let start = now();
            client.execute("checkpoint")?;
            return Ok(Some((start, now())));
        }
        let seen = Seen::count(server);
        if from.is_none() && seen.starting > before.starting {
            from = Some(now());
        }
        if from.is_some() && seen.complete > before.complete {
            return Ok(from.map(|from| (from, now())));
        }
        thread::sleep(POLL);
    }
    Ok(from.map(|from| (from, now())))
}

fn title(script: Script, cause: Cause) -> String {
    format!("{}, {}", script_name(script), cause.name())
}

fn ratios(script: Script, cause: Cause) -> String {
    format!("{}: what it costs", title(script, cause))
}

/// The goals are Inkling's, of the checkpoints that servers make by themselves; those that somebody
/// forces are told too, and have goals where there is nothing else.
fn goals(report: &mut Report, causes: &[Cause]) {
    let name = Subject::inkling().name().to_owned();
    let cause = causes.first().copied().unwrap_or(Cause::Forced);
    for script in SCRIPTS {
        let group = ratios(script, cause);
        let what = title(script, cause);
        let speed = report.median(&group, &name, SPEED);
        let goal = format!("{what}: throughput with / without");
        report.goals.push(Goal::new(goal, speed, Bound::AtLeast(0.9)));
        let tail = report.median(&group, &name, TAIL);
        let goal = format!("{what}: p99 with / without");
        report.goals.push(Goal::new(goal, tail, Bound::AtMost(2.0)));
    }
}
