//! `async-commit`: what does it cost to keep the rules about hints, when commits are asynchronous?
//!
//! With `synchronous_commit = off` a transaction is over before its commit record is durable. A
//! hint on the page that got to disk before the record would be a lie after a crash, so the old
//! rule is to refuse it, and every later reader asks the commit log again. The rule was once
//! measured to cost 15% of pgbench. `unsafe_immediate` keeps no rule, so it is what any policy can
//! hope for; the default is to stay within 1% of it, and be safe.
//!
//! Single runs of pgbench differ by more than 1%. So the two are compared again in pairs of runs
//! that follow each other directly, first the one first, then the other; and by the processor time
//! that the server takes for a transaction, which depends less on what else the machine does.

use super::tpcb::{Bench, Loaded, PROCESSOR, record};
use crate::report::{Bound, Figure, Goal};
use crate::subject::{POLICIES, Subject, UNSAFE, policy_name};
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, turn};

const SCALE: u64 = 50;
const TITLE: &str = "TPC-B, prepared, synchronous_commit = off";
const RATIO: &str = "default / unsafe_immediate";
const THROUGHPUT: &str = "transactions a second";
const PAIRS_TITLE: &str = "The default against no rule, in pairs";
/// Pairs of runs for each round that was asked for.
const PAIRS_A_ROUND: usize = 4;

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
        let mut report = bench.report(
            self.name(),
            "Hints and asynchronous commits",
            "How much throughput does each rule about hints cost while commits are not yet \
             durable, against setting every hint at once, which is unsafe?",
        )?;
        let pairs = bench.rounds * PAIRS_A_ROUND;
        progress.plan(subjects.len() * (1 + bench.rounds) + pairs);
        let loaded = bench.load_all(&work, &subjects, progress)?;
        for round in 0..bench.rounds {
            for at in turn(round, loaded.len()) {
                let name = &loaded[at].name;
                progress.step(&format!("round {}/{}: {name}", round + 1, bench.rounds))?;
                let sample = bench.run(&work, &loaded[at], "off")?;
                record(&mut report, TITLE, name, &sample);
            }
        }
        for pair in 0..pairs {
            progress.step(&format!("pair {}/{pairs}", pair + 1))?;
            compare(&mut report, &bench, &work, &loaded, pair)?;
        }
        goals(&mut report);
        Ok(report)
    }
}

/// A run of the default and one without rules, one after the other.
fn compare(
    report: &mut Report,
    bench: &Bench,
    work: &Workplace,
    loaded: &[Loaded],
    pair: usize,
) -> Result<(), LabError> {
    let mut both = [(0.0, 0.0); 2];
    for at in turn(pair, both.len()) {
        let name = policy_name([POLICIES[0], UNSAFE][at]);
        let Some(loaded) = loaded.iter().find(|loaded| loaded.name == name) else { return Ok(()) };
        let sample = bench.run(work, loaded, "off")?;
        both[at] = (sample.outcome.tps, sample.processor.unwrap_or(0.0));
    }
    let [(tps, processor), (unsafe_tps, unsafe_processor)] = both;
    if unsafe_tps > 0.0 && unsafe_processor > 0.0 {
        let group = report.group(PAIRS_TITLE, Figure::Bars);
        group.add(THROUGHPUT, RATIO, "", &[tps / unsafe_tps]);
        group.add(PROCESSOR, RATIO, "", &[processor / unsafe_processor]);
    }
    Ok(())
}

/// The default against no rule at all; the others are told for comparison.
fn goals(report: &mut Report) {
    let ratio = |of| report.median(PAIRS_TITLE, of, RATIO);
    let (tps, processor) = (ratio(THROUGHPUT), ratio(PROCESSOR));
    let what = |of| format!("{of}, {} / {UNSAFE}", POLICIES[0]);
    report.goals.push(Goal::new(what(THROUGHPUT), tps, Bound::AtLeast(0.99)));
    report.goals.push(Goal::new(what(PROCESSOR), processor, Bound::AtMost(1.01)));
}
