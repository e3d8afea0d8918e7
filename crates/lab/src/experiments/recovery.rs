//! `recovery`: how fast is the log replayed after a crash?
//!
//! ```text
//!   TPC-B, asynchronous commits ──> stop at once ──> start: redo starts at A ... redo done at B
//!                                                    log replayed: B - A    time: until ready
//! ```
//!
//! A checkpoint before the run leaves all of its log to the next start: page images first, then
//! more and more plain changes, as after any checkpoint. The same directory is then crashed again
//! while it replays nothing new, so each round has its own log. What is measured is what a user
//! waits for, from the start of the program to the first connection; and what the server says that
//! its replay took.

use super::tpcb::Bench;
use crate::client::parse_lsn;
use crate::pgbench::{Script, Workload};
use crate::report::{Bound, Figure, Goal};
use crate::subject::Subject;
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, turn};
use std::time::Instant;

const SCALE: u64 = 10;
const RATES: &str = "Log replayed";
const TIMES: &str = "Log replayed: beside it";
const RATE: &str = "rate";
const GOAL_MB_A_SECOND: f64 = 200.0;

pub struct Recovery;

/// What a start said of its replay.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Redo {
    bytes: u64,
    seconds: f64,
}

impl Experiment for Recovery {
    fn name(&self) -> &'static str {
        "recovery"
    }

    fn summary(&self) -> &'static str {
        "how fast the log is replayed after a crash under TPC-B"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let bench = Bench::new(params, SCALE)?;
        let subjects = Subject::both(params)?;
        let work = Workplace::new()?;
        let mut report = bench.report(
            self.name(),
            "Recovery",
            "How much log does a start replay in a second after a crash?",
        )?;
        progress.plan(subjects.len() * (1 + bench.rounds));
        let loaded = bench.load_all(&work, &subjects, progress)?;
        for round in 0..bench.rounds {
            for at in turn(round, loaded.len()) {
                let loaded = &loaded[at];
                progress.step(&format!("round {}: {}", round + 1, loaded.name))?;
                let server = loaded.start()?;
                report.version(&loaded.name, &server.connect()?.version()?);
                server.connect()?.execute("checkpoint")?;
                let (clients, seconds) = (bench.clients, bench.seconds);
                let load =
                    Workload { script: Script::TpcB, clients, seconds, synchronous_commit: "off" };
                bench.pgbench.run(&work, &server, load)?;
                server.discard()?;
                let begun = Instant::now();
                let server = loaded.start()?;
                let ready = begun.elapsed().as_secs_f64();
                let redo = redo_in(&server.log_text());
                server.stop()?;
                let redo = redo.ok_or_else(|| LabError::Answer {
                    subject: loaded.name.clone(),
                    sql: "the log of a start after a crash".to_owned(),
                    got: String::new(),
                    expected: "where redo starts, where it is done, and what it took",
                })?;
                record(&mut report, &loaded.name, redo, ready);
            }
        }
        let rate = report.median(RATES, subjects[0].name(), RATE);
        report.goals.push(Goal::new("MB of log a second", rate, Bound::AtLeast(GOAL_MB_A_SECOND)));
        Ok(report)
    }
}

fn record(report: &mut Report, name: &str, redo: Redo, ready: f64) {
    let megabytes = redo.bytes as f64 / f64::from(1 << 20);
    // A clock that shows hundredths cannot divide by nothing.
    let rate = megabytes / redo.seconds.max(0.01);
    report.group(RATES, Figure::Bars).add(name, RATE, "MB/s", &[rate]);
    let group = report.group(TIMES, Figure::None);
    group.add(name, "log", "MB", &[megabytes]);
    group.add(name, "redo", "s", &[redo.seconds]);
    group.add(name, "start until ready", "s", &[ready]);
}

/// Reads `redo starts at A`, `redo done at B ... elapsed: N s`: PostgreSQL's words, and ours.
fn redo_in(log: &str) -> Option<Redo> {
    let after = |words: &str| log.lines().find_map(|line| Some(line.split_once(words)?.1));
    let word = |text: &str| {
        text.split_whitespace().next().unwrap_or_default().trim_end_matches(':').to_owned()
    };
    let from = parse_lsn(&word(after("redo starts at ")?))?;
    let done = after("redo done at ")?;
    let to = parse_lsn(&word(done))?;
    let seconds = word(done.split_once("elapsed: ")?.1).parse().ok()?;
    Some(Redo { bytes: to.checked_sub(from)?, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_words_are_read() {
        let postgresql = "LOG:  redo starts at 0/1000028\nLOG:  redo done at 0/3000028 system \
                          usage: CPU: user: 0.10 s, system: 0.01 s, elapsed: 0.25 s\n";
        let expected = Some(Redo { bytes: 0x200_0000, seconds: 0.25 });
        assert_eq!(redo_in(postgresql), expected);
        let ours = "LOG:  redo starts at 0/1000028\nLOG:  redo done at 0/3000028 (nothing was \
                    written beyond), elapsed: 0.25 s: 32.0 MB of log, 128 MB/s; 9 records\n";
        assert_eq!(redo_in(ours), expected);
        assert_eq!(redo_in("LOG:  database system was shut down cleanly"), None);
    }
}
