//! `status-path`: what does it cost to learn a transaction's fate, level by level?
//!
//! ```text
//!   line pointers     walk them and count: what no visibility at all would cost
//!   frame summary     the page is known to be visible to all: the quiet page
//!   sole inserter     ... to be one transaction's: the first scan after a load
//!   one inserter      ... found to be one transaction's: a page of which nothing was known
//!   many inserters    ... found to be of many that all committed: one question about a range
//!   page hints        each tuple by its own bits                     (policy flushed)
//!   frame hints       each tuple by their volatile twins             (policy frame)
//!   session cache     each of its designs, four transactions' rows in turn
//!   status window     no hint, no cache, recent transactions
//!   commit log        no hint, no cache, old transactions
//! ```
//!
//! Each level is made to answer by taking away those above it, and the counters of
//! `inkling_stat_visibility` are asked whether it did. Time is that of whole passes over a table
//! that lies in memory; what it costs to find and latch the pages is in all of them alike, and the
//! difference to the line pointers is the level's price.
//!
//! Instructions are counted by callgrind, where valgrind is installed: the program runs itself
//! under it, once a level, and only the measured pass is counted.

use crate::kernel::{Forget, Reader, Table, Writers};
use crate::report::{Bound, Figure, Goal};
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, subject, turn};
use inkling_storage::heap::{HintPolicy, VisStats};
use inkling_storage::txn::StatusCacheKind;
use std::process::{Command, Stdio};
use std::time::Instant;

const ROWS: u64 = 1_000_000;
const ROUNDS: usize = 7;
/// Rows for callgrind, which takes fifty times as long.
const COUNTED_ROWS: u64 = 22_600;
/// Says which level a run under callgrind is about.
const LEVEL_VARIABLE: &str = "INKLING_LAB_LEVEL";

const TIMES: &str = "Time a tuple";
const PRICES: &str = "Over the line pointers";
const INSTRUCTIONS: &str = "Instructions a tuple";
const NS: &str = "ns a tuple";
const EXTRA: &str = "extra ns a tuple";
const IR: &str = "instructions a tuple";
const LINES: &str = "line pointers";
const QUIET: &str = "frame summary";

pub struct StatusPath;

/// One level, and how it is made to answer.
struct Level {
    name: &'static str,
    writers: Writers,
    policy: HintPolicy,
    cache: StatusCacheKind,
    /// Before every pass.
    forget: Forget,
    prepare: Prepare,
    /// Which counter must have moved, in a pass over so many tuples.
    answered: fn(&VisStats) -> u64,
}

/// What is done to a table after it was loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prepare {
    /// Its transactions stay in the status window.
    Recent,
    /// The commit log has them.
    Settled,
    /// As `Settled`, and no page is all visible.
    WithDeletions,
}

const fn level(name: &'static str, answered: fn(&VisStats) -> u64) -> Level {
    Level {
        name,
        writers: Writers::One,
        policy: HintPolicy::Frame,
        cache: StatusCacheKind::Few,
        forget: Forget::Nothing,
        prepare: Prepare::Settled,
        answered,
    }
}

/// All levels, cheapest first.
fn levels() -> Vec<Level> {
    use HintPolicy::{Flushed, Off};
    use StatusCacheKind::{Few, None, One, Pages};
    let cached = |name, cache, answered| Level {
        writers: Writers::InTurn(4),
        policy: Off,
        cache,
        ..level(name, answered)
    };
    vec![
        level(QUIET, |s| s.by_frame_summary),
        Level { forget: Forget::Summaries, ..level("sole inserter", |s| s.by_session_cache) },
        Level { forget: Forget::AllButHints, ..level("one inserter", |s| s.by_session_cache) },
        Level {
            forget: Forget::AllButHints,
            writers: Writers::Each,
            prepare: Prepare::Recent,
            ..level("many inserters, status window", |s| s.by_status_window)
        },
        Level {
            forget: Forget::AllButHints,
            writers: Writers::Each,
            ..level("many inserters, commit log", |s| s.by_commit_log)
        },
        Level {
            policy: Flushed,
            writers: Writers::Each,
            ..level("page hints", |s| s.by_tuple_hint)
        },
        Level {
            writers: Writers::Each,
            prepare: Prepare::WithDeletions,
            ..level("frame hints", |s| s.by_frame_hint)
        },
        cached("session cache: one xid (misses)", One, |s| s.by_commit_log),
        cached("session cache: few xids", Few, |s| s.by_session_cache),
        cached("session cache: log pages", Pages, |s| s.by_session_cache),
        Level {
            policy: Off,
            cache: None,
            writers: Writers::Each,
            prepare: Prepare::Recent,
            ..level("status window", |s| s.by_status_window)
        },
        Level {
            policy: Off,
            cache: None,
            writers: Writers::Each,
            ..level("commit log", |s| s.by_commit_log)
        },
    ]
}

/// The two tables that the goal about many writers compares, under the default policy: scanned
/// before, written back since the rows were made, or with frames that know nothing.
fn distinct(forget: Forget) -> [Level; 2] {
    let (one, each) = match forget {
        Forget::Nothing => ("one writer, later scans", "a writer a row, later scans"),
        Forget::WriteBack => {
            ("one writer, first scan after a checkpoint", "a writer a row, first scan after one")
        }
        _ => ("one writer, nothing known", "a writer a row, nothing known"),
    };
    let any = |s: &VisStats| s.tuples_checked;
    [
        Level { forget, ..level(one, any) },
        Level { forget, writers: Writers::Each, ..level(each, any) },
    ]
}

/// A table that is ready for its level.
fn ready(work: &Workplace, level: &Level, rows: u64) -> Result<Table, LabError> {
    let recent = level.prepare == Prepare::Recent;
    let table = Table::load(work.place()?, rows, level.writers, recent)?;
    if level.prepare == Prepare::WithDeletions {
        table.delete_one_a_page()?;
    }
    if !recent {
        table.settle()?;
    }
    Ok(table)
}

/// The pass that is measured, under a name that callgrind finds.
#[inline(never)]
fn measured_pass(reader: &mut Reader<'_>) -> Result<u64, LabError> {
    reader.count()
}

/// The same for the line pointers alone.
#[inline(never)]
fn measured_lines(table: &Table) -> Result<u64, LabError> {
    table.lines()
}

impl Experiment for StatusPath {
    fn name(&self) -> &'static str {
        "status-path"
    }

    fn summary(&self) -> &'static str {
        "what learning a transaction's fate costs at each level, in nanoseconds and instructions"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let work = Workplace::new()?;
        if let Ok(name) = std::env::var(LEVEL_VARIABLE) {
            return under_callgrind(&work, &name);
        }
        let rows = params.rows.unwrap_or(ROWS);
        let rounds = params.rounds.unwrap_or(ROUNDS);
        let mut report = Report::new(
            self.name(),
            "The price of a transaction's fate",
            "What does it cost to learn whether a tuple's transaction committed, at each level of \
             the hierarchy that may know it?",
        );
        report.parameter("rows", rows);
        report.parameter("passes a level", rounds);
        subject::note_build(&mut report);
        let levels = levels();
        progress.plan(2 * levels.len() + SITUATIONS.len());
        for level in &levels {
            progress.step(&format!("time: {}", level.name))?;
            time(&mut report, &work, level, rows, rounds)?;
        }
        for forget in SITUATIONS {
            progress.step("one writer against a writer a row")?;
            many_writers(&mut report, &work, forget, rows, rounds)?;
        }
        for level in &levels {
            progress.step(&format!("instructions: {}", level.name))?;
            if !instructions(&mut report, level)? {
                break;
            }
        }
        goals(&mut report);
        Ok(report)
    }
}

/// A pass: what it took, a tuple.
fn pass(table: &Table, reader: &mut Reader<'_>, level: &Level) -> Result<f64, LabError> {
    table.forget(level.forget)?;
    let begun = Instant::now();
    let count = measured_pass(reader)?;
    let ns = begun.elapsed().as_nanos() as f64;
    let rows = table.rows();
    if count + u64::from(table.blocks()) < rows {
        return Err(LabError::Engine(format!("{}: {count} of {rows} rows", level.name)));
    }
    Ok(ns / rows as f64)
}

fn time(
    report: &mut Report,
    work: &Workplace,
    level: &Level,
    rows: u64,
    rounds: usize,
) -> Result<(), LabError> {
    let table = ready(work, level, rows)?;
    let mut reader = table.reader(level.policy, level.cache);
    pass(&table, &mut reader, level)?;
    let before = (level.answered)(&table.counted());
    let (mut times, mut prices) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begun = Instant::now();
        measured_lines(&table)?;
        let lines = begun.elapsed().as_nanos() as f64 / rows as f64;
        let ns = pass(&table, &mut reader, level)?;
        report.group(TIMES, Figure::Bars).add(LINES, NS, "ns", &[lines]);
        times.push(ns);
        prices.push(ns - lines);
    }
    let answered = (level.answered)(&table.counted()) - before;
    let share = answered as f64 / (rows * rounds as u64) as f64;
    if share < 0.95 {
        report.note(format!("{}: this level answered for {:.0}% only.", level.name, share * 100.0));
    }
    report.group(TIMES, Figure::Bars).add(level.name, NS, "ns", &times);
    report.group(PRICES, Figure::Bars).add(level.name, EXTRA, "ns", &prices);
    Ok(())
}

fn many_writers(
    report: &mut Report,
    work: &Workplace,
    forget: Forget,
    rows: u64,
    rounds: usize,
) -> Result<(), LabError> {
    let levels = distinct(forget);
    let tables = [ready(work, &levels[0], rows)?, ready(work, &levels[1], rows)?];
    for round in 0..=rounds {
        for at in turn(round, 2) {
            let level = &levels[at];
            let mut reader = tables[at].reader(level.policy, level.cache);
            let ns = pass(&tables[at], &mut reader, level)?;
            if round > 0 {
                report.group(WRITERS, Figure::Bars).add(level.name, NS, "ns", &[ns]);
            }
        }
    }
    Ok(())
}

const WRITERS: &str = "Many writers, default policy";
const SITUATIONS: [Forget; 3] = [Forget::Nothing, Forget::WriteBack, Forget::AllButHints];

fn goals(report: &mut Report) {
    let price = report.median(PRICES, QUIET, EXTRA);
    let what = "a quiet page, over its line pointers, ns a tuple";
    report.goals.push(Goal::new(what, price, Bound::AtMost(2.0)));
    for (what, forget) in [
        ("a writer a row / one writer, later scans", Forget::Nothing),
        ("a writer a row / one writer, first scan after a checkpoint", Forget::WriteBack),
        ("a writer a row / one writer, nothing known", Forget::AllButHints),
    ] {
        let [one, each] = distinct(forget).map(|l| report.median(WRITERS, l.name, NS));
        report.goals.push(Goal::ratio(what, each, one, Bound::AtMost(1.5)));
    }
}

// ---- Instructions ------------------------------------------------------------------------------

/// The other side of [`instructions`]: one pass to warm up, one to be counted.
fn under_callgrind(work: &Workplace, name: &str) -> Result<Report, LabError> {
    let known = levels();
    let Some(level) = known.iter().find(|l| l.name == name) else {
        return Err(LabError::Engine(format!("there is no level \"{name}\"")));
    };
    let table = ready(work, level, COUNTED_ROWS)?;
    let mut reader = table.reader(level.policy, level.cache);
    // Not the measured function: this one is not to be counted.
    reader.count()?;
    pass(&table, &mut reader, level)?;
    measured_lines(&table)?;
    Ok(Report::new("status-path", name, "one pass, for callgrind"))
}

/// Counts a level's instructions, and those of the line pointers. False: there is no valgrind.
fn instructions(report: &mut Report, level: &Level) -> Result<bool, LabError> {
    let counted = |function: &str| -> Result<Option<f64>, LabError> {
        let Some(said) = run_under_callgrind(level, function)? else { return Ok(None) };
        Ok(collected(&said).map(|n| n / COUNTED_ROWS as f64))
    };
    let Some(all) = counted("measured_pass")? else {
        report.note("Instructions were not counted: valgrind was not found, or did not run.");
        return Ok(false);
    };
    report.group(INSTRUCTIONS, Figure::Bars).add(level.name, IR, "", &[all]);
    if level.name == QUIET
        && let Some(lines) = counted("measured_lines")?
    {
        report.group(INSTRUCTIONS, Figure::Bars).add(LINES, IR, "", &[lines]);
    }
    Ok(true)
}

fn run_under_callgrind(level: &Level, function: &str) -> Result<Option<String>, LabError> {
    let program = std::env::current_exe().map_err(|source| LabError::Io {
        what: "find this program's own file".to_owned(),
        source,
    })?;
    let ran = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg("--callgrind-out-file=/dev/null")
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(program)
        .args(["lab", "status-path"])
        .env(LEVEL_VARIABLE, level.name)
        .stdin(Stdio::null())
        .output();
    match ran {
        Ok(output) => Ok(Some(String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(_) => Ok(None),
    }
}

/// The number in callgrind's line "Collected : N".
fn collected(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_instructions_is_found() {
        let said = "==12== Events    : Ir\n==12== Collected : 1234567\n==12==\n";
        assert_eq!(collected(said), Some(1_234_567.0));
        assert_eq!(collected("valgrind: no such tool"), None);
    }

    /// Small, but through every level: the counters say whether the level under test answered.
    #[test]
    fn every_level_answers_when_it_is_its_turn() {
        let work = Workplace::new().unwrap();
        let mut report = Report::new("status-path", "", "");
        for level in levels() {
            time(&mut report, &work, &level, 6000, 2).unwrap();
        }
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        for forget in SITUATIONS {
            many_writers(&mut report, &work, forget, 3000, 1).unwrap();
        }
        goals(&mut report);
        assert!(report.goals.iter().all(|goal| goal.value.is_some()), "{:?}", report.goals);
    }
}
