//! `unlogged`: do tables that write no log pay anything that logged ones do not?
//!
//! An unlogged table's contents go after a crash, so no hint on it can ever lie, and waiting for a
//! commit to be durable before setting it would be waiting for nothing. Where that was done all the
//! same, unlogged tables under asynchronous commits ran at half their speed. An unlogged table
//! should never be the slower one, whether commits wait for the disk or not.

use super::tpcb::{Bench, Loaded, TPS, record};
use crate::report::{Bound, Figure, Goal};
use crate::subject::Subject;
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, turn};

const SCALE: u64 = 15;
/// Asynchronous first: there a hint could be refused.
const LEVELS: [&str; 2] = ["off", "on"];
const RATIOS: &str = "Unlogged against logged";

pub struct Unlogged;

impl Experiment for Unlogged {
    fn name(&self) -> &'static str {
        "unlogged"
    }

    fn summary(&self) -> &'static str {
        "pgbench on unlogged tables against logged ones"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let bench = Bench::new(params, SCALE)?;
        let subjects = Subject::both(params)?;
        let work = Workplace::new()?;
        let mut report = bench.report(
            self.name(),
            "Unlogged tables",
            "Is a transaction on unlogged tables ever slower than the same one on logged tables?",
        )?;
        progress.plan(subjects.len() * 2 * (1 + LEVELS.len() * bench.rounds));
        let mut loaded: Vec<Loaded> = Vec::new();
        for subject in &subjects {
            for unlogged in [false, true] {
                let name = name(subject, unlogged);
                progress.step(&format!("loading: {name}"))?;
                loaded.push(bench.load(&work, subject, &name, unlogged)?);
            }
        }
        for level in LEVELS {
            for round in 0..bench.rounds {
                for at in turn(round, loaded.len()) {
                    let (name, title) = (&loaded[at].name, title(level));
                    progress.step(&format!("{title}, round {}: {name}", round + 1))?;
                    let sample = bench.run(&work, &loaded[at], level)?;
                    record(&mut report, &title, name, &sample);
                }
            }
        }
        ratios(&mut report, &subjects);
        Ok(report)
    }
}

fn name(subject: &Subject, unlogged: bool) -> String {
    format!("{} {}", subject.name(), if unlogged { "unlogged" } else { "logged" })
}

fn title(level: &str) -> String {
    format!("TPC-B, prepared, synchronous_commit = {level}")
}

/// The ratios of all; the goals are Inkling's.
fn ratios(report: &mut Report, subjects: &[Subject]) {
    for subject in subjects {
        for level in LEVELS {
            let tps = |unlogged| report.median(&title(level), &name(subject, unlogged), TPS);
            let (unlogged, logged) = (tps(true), tps(false));
            let what = format!("synchronous_commit = {level}");
            let goal = Goal::ratio(
                format!("tps, unlogged / logged, {what}"),
                unlogged,
                logged,
                Bound::AtLeast(1.0),
            );
            if let Some(value) = goal.value {
                let group = report.group(RATIOS, Figure::Bars);
                group.add(subject.name(), &what, "", &[value]);
            }
            if !subject.is_postgresql() {
                report.goals.push(goal);
            }
        }
    }
}
