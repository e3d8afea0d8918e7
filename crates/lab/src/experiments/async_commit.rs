//! `async-commit`: what does it cost to keep the rules about hints, when commits are asynchronous?
//!
//! With `synchronous_commit = off` a transaction is over before its commit record is durable. A
//! hint on the page that got to disk before the record would be a lie after a crash, so the old
//! rule is to refuse it, and every later reader asks the commit log again. The rule was once
//! measured to cost 15% of pgbench. `unsafe_immediate` keeps no rule, so it is what any policy can
//! hope for; the default is to stay within 1% of it, and be safe.

use super::tpcb::{Bench, TPS, record};
use crate::report::{Bound, Goal};
use crate::subject::{self, POLICIES, Subject, UNSAFE, policy_name};
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, turn};

const SCALE: u64 = 50;
const TITLE: &str = "TPC-B, prepared, synchronous_commit = off";

pub struct AsyncCommit;

impl Experiment for AsyncCommit {
    fn name(&self) -> &'static str {
        "async-commit"
    }

    fn summary(&self) -> &'static str {
        "pgbench with asynchronous commits under each hint policy, and with hints always set at once"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let bench = Bench::new(params, SCALE)?;
        let subjects = Subject::every_policy(params)?;
        let work = Workplace::new()?;
        let mut report = Report::new(
            self.name(),
            "Hints and asynchronous commits",
            "How much throughput does each rule about hints cost while commits are not yet \
             durable, against setting every hint at once, which is unsafe?",
        );
        bench.describe(&mut report)?;
        subject::note_build(&mut report);
        progress.plan(subjects.len() * (1 + bench.rounds));
        let mut loaded = Vec::new();
        for subject in &subjects {
            progress.step(&format!("loading: {}", subject.name()))?;
            loaded.push(bench.load(&work, subject, subject.name(), false)?);
        }
        for round in 0..bench.rounds {
            for at in turn(round, loaded.len()) {
                let name = &loaded[at].name;
                progress.step(&format!("round {}/{}: {name}", round + 1, bench.rounds))?;
                let sample = bench.run(&work, &loaded[at], "off")?;
                record(&mut report, TITLE, name, &sample);
            }
        }
        goals(&mut report);
        Ok(report)
    }
}

/// The default against no rule at all; the others are told for comparison.
fn goals(report: &mut Report) {
    let tps = |policy: &str| report.median(TITLE, &policy_name(policy), TPS);
    let what = format!("tps, {} / {UNSAFE}", POLICIES[0]);
    let goal = Goal::ratio(what, tps(POLICIES[0]), tps(UNSAFE), Bound::AtLeast(0.99));
    report.goals.push(goal);
}
