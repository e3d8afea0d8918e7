//! `first-scan`: does the first reader of rows that one transaction made pay for it?
//!
//! PostgreSQL's first `count(*)` after a bulk load asks the commit log about every row, sets hint
//! bits on every page, dirties them, and with checksums writes each page to its log. Here a page
//! is settled in its frame, and reading writes nothing.
//!
//! ```text
//! for each size of buffers, each round, each subject (taking turns), on a new directory:
//!   create table t(x int); insert into t select generate_series(1, N); checkpoint
//!   select count(*) from t           first
//!   select count(*) from t, 5 times  later
//! ```
//!
//! Around each scan the log's position is read, and how many pages reading has dirtied. PostgreSQL
//! tells the latter only under EXPLAIN, whose instrumentation costs time; so it has one more table
//! a size of buffers for that, whose scan is not timed.

use crate::client::Client;
use crate::report::{Bound, Figure, Goal};
use crate::server::Settings;
use crate::subject::{self, POSTGRESQL, Subject, common_settings};
use crate::workplace::Workplace;
use crate::{Experiment, LabError, Params, Progress, Report, stats, turn};

const ROWS: u64 = 20_000_000;
const ROUNDS: usize = 3;
const LATER: usize = 5;
const COUNT: &str = "select count(*) from t";
/// PostgreSQL puts so many rows of one integer on a page.
const ROWS_PER_PAGE: u64 = 226;
const PAGE: u64 = 8192;
/// Servers want some buffers whatever the size of the table.
const LEAST_BUFFERS: u64 = 16 << 20;

const FIRST: &str = "first";
const THE_LATER: &str = "later";
const RATIO: &str = "first / later";
const WAL_FIRST: &str = "WAL of the first";
const WAL_LATER: &str = "WAL of a later one";
const DIRTIED_FIRST: &str = "dirtied by the first";
const DIRTIED_LATER: &str = "dirtied by a later one";

pub struct FirstScan;

/// How much of the table the buffers hold.
struct Size {
    title: &'static str,
    buffers: u64,
}

/// What one scan cost.
struct Scan {
    ms: f64,
    wal_bytes: f64,
    dirtied: Option<f64>,
}

impl Experiment for FirstScan {
    fn name(&self) -> &'static str {
        "first-scan"
    }

    fn summary(&self) -> &'static str {
        "the first count(*) of a table made in one transaction, against the later ones"
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError> {
        let rows = params.rows.unwrap_or(ROWS);
        let rounds = params.rounds.unwrap_or(ROUNDS);
        let work = Workplace::new()?;
        let subjects = Subject::every_policy(params)?;
        let sizes = sizes(rows);
        let mut report = Report::new(
            self.name(),
            "The first scan of new rows",
            "What does the first count(*) of a table that one transaction made cost, in time, in \
             log and in dirtied pages, against the ones that follow?",
        );
        report.parameter("rows", rows);
        report.parameter("rounds", rounds);
        report.parameter("later scans a round", LATER);
        subject::note_build(&mut report);
        if sizes[0].buffers == sizes[1].buffers {
            report.note("The table is so small that the smallest buffers hold it.");
        }
        let explained = subjects.iter().filter(|s| s.is_postgresql()).count();
        progress.plan(sizes.len() * (rounds * subjects.len() + explained));
        for size in &sizes {
            let name = format!("shared_buffers ({})", size.title.to_lowercase());
            report.parameter(&name, format!("{} MB", size.buffers >> 20));
            for round in 0..rounds {
                for at in turn(round, subjects.len()) {
                    let name = subjects[at].name();
                    let what = format!("{}, round {}/{rounds}: {name}", size.title, round + 1);
                    progress.step(&what)?;
                    measure(&mut report, &work, &subjects[at], size, rows)?;
                }
            }
            for subject in subjects.iter().filter(|s| s.is_postgresql()) {
                progress.step(&format!("{}, dirtied pages: {}", size.title, subject.name()))?;
                explain(&mut report, &work, subject, size, rows)?;
            }
        }
        for size in &sizes {
            goals(&mut report, size, subjects[0].name(), params.postgres.is_some());
        }
        Ok(report)
    }
}

/// Buffers three times as large as the table, and half as large.
fn sizes(rows: u64) -> [Size; 2] {
    let table = rows.div_ceil(ROWS_PER_PAGE).saturating_mul(PAGE);
    let whole = |bytes: u64| bytes.max(LEAST_BUFFERS).next_multiple_of(1 << 20);
    [
        Size { title: "Buffers hold the table", buffers: whole(table.saturating_mul(3)) },
        Size { title: "Buffers hold half of it", buffers: whole(table / 2) },
    ]
}

fn times(size: &Size) -> String {
    format!("{}: time of a scan", size.title)
}

fn ratios(size: &Size) -> String {
    format!("{}: first against later", size.title)
}

fn log(size: &Size) -> String {
    format!("{}: log written by a scan", size.title)
}

fn dirtied(size: &Size) -> String {
    format!("{}: pages dirtied by a scan", size.title)
}

fn settings(subject: &Subject, size: &Size) -> Settings {
    let mut settings = common_settings(size.buffers, 1);
    // It would read the table first.
    settings.push(("autovacuum", "off".to_owned()));
    if subject.is_postgresql() {
        settings.push(("max_parallel_workers_per_gather", "0".to_owned()));
    }
    settings
}

/// Makes the table; afterwards nothing of it waits to be written.
fn load(client: &mut Client, rows: u64) -> Result<(), LabError> {
    client.execute("create table t (x int)")?;
    client.execute(&format!("insert into t select generate_series(1, {rows})"))?;
    client.execute("checkpoint")
}

/// One subject's part of a round.
fn measure(
    report: &mut Report,
    work: &Workplace,
    subject: &Subject,
    size: &Size,
    rows: u64,
) -> Result<(), LabError> {
    let installed = subject.install(work)?;
    let server = installed.start(&settings(subject, size))?;
    let mut client = server.connect()?;
    report.version(subject.name(), &client.version()?);
    load(&mut client, rows)?;
    let first = scan(&mut client, subject, rows)?;
    let mut later = Vec::new();
    for _ in 0..LATER {
        later.push(scan(&mut client, subject, rows)?);
    }
    drop(client);
    server.discard()?;
    let name = subject.name();
    let ms: Vec<f64> = later.iter().map(|s| s.ms).collect();
    let wal: Vec<f64> = later.iter().map(|s| s.wal_bytes).collect();
    let pages: Vec<f64> = later.iter().filter_map(|s| s.dirtied).collect();
    let group = report.group(&times(size), Figure::Bars);
    group.add(name, FIRST, "ms", &[first.ms]);
    group.add(name, THE_LATER, "ms", &ms);
    if let Some(median) = stats::median(&ms).filter(|m| *m > 0.0) {
        report.group(&ratios(size), Figure::Bars).add(name, RATIO, "", &[first.ms / median]);
    }
    let group = report.group(&log(size), Figure::Bars);
    group.add(name, WAL_FIRST, "bytes", &[first.wal_bytes]);
    group.add(name, WAL_LATER, "bytes", &wal);
    if let Some(count) = first.dirtied {
        let group = report.group(&dirtied(size), Figure::Bars);
        group.add(name, DIRTIED_FIRST, "pages", &[count]);
        group.add(name, DIRTIED_LATER, "pages", &pages);
    }
    Ok(())
}

fn scan(client: &mut Client, subject: &Subject, rows: u64) -> Result<Scan, LabError> {
    let pages = |client: &mut Client| {
        // PostgreSQL's are counted apart.
        let sql = "select pages_dirtied_by_hints from inkling_stat_visibility";
        if subject.is_postgresql() { Ok(None) } else { client.integer(sql).map(Some) }
    };
    let dirty_before = pages(client)?;
    let wal_before = client.wal_position()?;
    let (count, time) = client.timed(COUNT)?;
    let wal_bytes = client.wal_position()?.saturating_sub(wal_before) as f64;
    let dirty_after = pages(client)?;
    if u64::try_from(count) != Ok(rows) {
        return Err(LabError::Answer {
            subject: subject.name().to_owned(),
            sql: COUNT.to_owned(),
            got: count.to_string(),
            expected: "the number of rows that were inserted",
        });
    }
    let dirtied = dirty_before.zip(dirty_after).map(|(before, after)| (after - before) as f64);
    Ok(Scan { ms: time.as_secs_f64() * 1000.0, wal_bytes, dirtied })
}

/// PostgreSQL's dirtied pages, by EXPLAIN, on a table of their own.
fn explain(
    report: &mut Report,
    work: &Workplace,
    subject: &Subject,
    size: &Size,
    rows: u64,
) -> Result<(), LabError> {
    let installed = subject.install(work)?;
    let server = installed.start(&settings(subject, size))?;
    let mut client = server.connect()?;
    load(&mut client, rows)?;
    for metric in [DIRTIED_FIRST, DIRTIED_LATER] {
        let sql = format!("explain (analyze, buffers, timing off, format json) {COUNT}");
        let lines = client.query(&sql)?.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let pages = dirtied_blocks(&lines).ok_or_else(|| LabError::Answer {
            subject: subject.name().to_owned(),
            sql,
            got: lines.clone(),
            expected: "a plan with \"Shared Dirtied Blocks\"",
        })?;
        report.group(&dirtied(size), Figure::Bars).add(subject.name(), metric, "pages", &[pages]);
    }
    drop(client);
    server.discard()
}

/// The whole plan's dirtied blocks: those of its top node.
fn dirtied_blocks(plan: &str) -> Option<f64> {
    let plan: serde_json::Value = serde_json::from_str(plan).ok()?;
    plan.get(0)?.get("Plan")?.get("Shared Dirtied Blocks")?.as_f64()
}

/// What the default policy must reach.
fn goals(report: &mut Report, size: &Size, ours: &str, against_postgresql: bool) {
    let highest = |group: String, metric: &str| {
        let group = report.groups.iter().find(|g| g.title == group)?;
        group.find(ours, metric)?.summary().map(|s| s.highest)
    };
    let says = |what: &str| format!("{}: {what}", size.title);
    let zero = Bound::AtMost(0.0);
    let mut goals = vec![
        Goal::new(
            says("first / later"),
            report.median(&ratios(size), ours, RATIO),
            Bound::AtMost(1.05),
        ),
        Goal::new(says("WAL of the first, bytes"), highest(log(size), WAL_FIRST), zero),
        Goal::new(says("pages dirtied by the first"), highest(dirtied(size), DIRTIED_FIRST), zero),
    ];
    if against_postgresql {
        let pair = |metric: &str| {
            let of = |subject: &str| report.median(&times(size), subject, metric);
            (of(POSTGRESQL), of(ours))
        };
        for (metric, least) in [(THE_LATER, 4.0), (FIRST, 12.0)] {
            let (theirs, mine) = pair(metric);
            let what = says(&format!("{metric}, times faster than PostgreSQL's"));
            goals.push(Goal::ratio(what, theirs, mine, Bound::AtLeast(least)));
        }
    }
    report.goals.extend(goals);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_buffers() {
        let [all, half] = sizes(20_000_000);
        assert_eq!((all.buffers >> 20, half.buffers >> 20), (2075, 346));
        let [all, half] = sizes(1);
        assert_eq!((all.buffers, half.buffers), (LEAST_BUFFERS, LEAST_BUFFERS));
    }

    #[test]
    fn dirtied_blocks_of_a_plan() {
        let plan = r#"[{"Plan": {"Node Type": "Aggregate", "Shared Dirtied Blocks": 88496,
            "Plans": [{"Shared Dirtied Blocks": 5}]}, "Triggers": []}]"#;
        assert_eq!(dirtied_blocks(plan), Some(88_496.0));
        assert_eq!(dirtied_blocks("[]"), None);
        assert_eq!(dirtied_blocks("Aggregate"), None);
    }
}
