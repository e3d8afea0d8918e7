//! `inkling lab`: the list, the errors, and a whole experiment in small, down to the files that it
//! keeps. What the numbers say is for a release build on a quiet machine; here they must exist.

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkling"));
    command.arg("lab").args(args).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The directories that runs make below `parent`.
fn left_in(parent: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(parent).expect("the directory").flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with("inkling-lab-")).collect()
}

#[test]
fn the_experiments_are_listed() {
    for args in [&[][..], &["list"]] {
        let out = lab(args);
        assert!(out.status.success());
        let shown = text(&out.stdout);
        for name in ["first-scan", "async-commit", "unlogged", "wal-flush", "durability-mix"] {
            let line = format!("  {name} ");
            assert!(shown.lines().any(|l| l.starts_with(&line)), "{name}: {shown}");
        }
    }
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let unknown = lab(&["nothing"]);
    assert_eq!(unknown.status.code(), Some(1));
    let said = text(&unknown.stderr);
    assert!(said.contains("there is no experiment \"nothing\"; there are: first-scan"), "{said}");
    let nowhere = lab(&["first-scan", "--json", "/nowhere/report.json"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("could not write \"/nowhere/report.json\""));
    let no_postgres = lab(&["first-scan", "--postgres", "/nowhere"]);
    assert_eq!(no_postgres.status.code(), Some(1));
    assert!(text(&no_postgres.stderr).contains("\"/nowhere/initdb\" was not found"));
    assert_eq!(lab(&["first-scan", "--rows", "0"]).status.code(), Some(2));
}

#[test]
fn a_whole_experiment_in_small() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (json, html) = (dir.path().join("report.json"), dir.path().join("report.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkling"));
    command.args(["lab", "first-scan", "--rows", "1000", "--rounds", "1", "--json"]);
    let out = command.arg(&json).arg("--html").arg(&html).env("TMPDIR", dir.path()).output();
    let out = out.expect("the program runs");
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    assert_eq!(left_in(dir.path()), Vec::<String>::new());

    let table = text(&out.stdout);
    assert!(table.contains("Buffers hold the table: time of a scan"), "{table}");
    assert!(table.contains("Goals"), "{table}");
    for policy in ["frame", "page_lsn", "flushed", "off", "unsafe_immediate"] {
        let step = format!("round 1/1: Inkling {policy}");
        assert!(text(&out.stderr).contains(&step), "{step}");
    }

    let report = std::fs::read_to_string(&json).expect("the JSON");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["name"], "first-scan");
    let times = &report["groups"][0]["measurements"];
    assert_eq!(times[0]["metric"], "first");
    assert_eq!(times[0]["samples"].as_array().map(Vec::len), Some(1));
    assert_eq!(times[1]["samples"].as_array().map(Vec::len), Some(5));
    assert!(times[0]["summary"]["median"].as_f64().is_some_and(|ms| ms > 0.0));
    // Not a matter of speed: the default policy's reads write nothing.
    let goals = report["goals"].as_array().expect("goals");
    for what in ["WAL of the first, bytes", "pages dirtied by the first"] {
        let of_this = |g: &&serde_json::Value| g["what"].as_str().is_some_and(|w| w.contains(what));
        let mut found = goals.iter().filter(of_this).peekable();
        assert!(found.peek().is_some(), "{what}");
        assert!(found.all(|g| g["reached"] == true), "{what}: {goals:?}");
    }

    let page = std::fs::read_to_string(&html).expect("the page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<svg ") && page.contains("first / later"));
}

#[test]
fn pgbench_is_run_and_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let json = dir.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkling"));
    command.args(["lab", "unlogged", "--scale", "1", "--clients", "2", "--seconds", "1"]);
    command.args(["--rounds", "1", "--json"]).arg(&json).env("TMPDIR", dir.path());
    let out = command.output().expect("the program runs");
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    assert_eq!(left_in(dir.path()), Vec::<String>::new());
    let report = std::fs::read_to_string(&json).expect("the JSON");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let speeds = report["groups"][0]["measurements"].as_array().expect("measurements");
    let subjects: Vec<_> = speeds.iter().map(|m| m["subject"].as_str()).collect();
    assert_eq!(subjects, [Some("Inkling logged"), Some("Inkling unlogged")]);
    assert!(speeds.iter().all(|m| m["samples"][0].as_f64().is_some_and(|tps| tps > 0.0)));
    assert_eq!(report["goals"].as_array().map(Vec::len), Some(2));
}

/// A run in small, without PostgreSQL; its report.
fn report_of(name: &str, arguments: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (json, html) = (dir.path().join("report.json"), dir.path().join("report.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkling"));
    command.args(["lab", name, "--rounds", "1"]).args(arguments).env("TMPDIR", dir.path());
    let out = command.arg("--json").arg(&json).arg("--html").arg(&html).output();
    let out = out.expect("the program runs");
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    assert_eq!(left_in(dir.path()), Vec::<String>::new());
    let page = std::fs::read_to_string(&html).expect("the page");
    assert!(page.contains("<svg "), "no plot");
    let report = std::fs::read_to_string(&json).expect("the JSON");
    serde_json::from_str(&report).expect("JSON")
}

fn group<'r>(report: &'r serde_json::Value, title: &str) -> &'r Vec<serde_json::Value> {
    let groups = report["groups"].as_array().expect("groups");
    let found = groups.iter().find(|g| g["title"] == title);
    let found = found.unwrap_or_else(|| panic!("no group \"{title}\": {groups:?}"));
    found["measurements"].as_array().expect("measurements")
}

fn positive(measurements: &[serde_json::Value], metric: &str) -> usize {
    let of = measurements.iter().filter(|m| m["metric"] == metric);
    of.filter(|m| m["samples"][0].as_f64().is_some_and(|value| value > 0.0)).count()
}

#[test]
fn policies_of_flushing_are_compared() {
    let report = report_of("wal-flush", &["--scale", "1", "--clients", "1", "--seconds", "1"]);
    for level in ["on", "off"] {
        let title = format!("synchronous_commit = {level}, 1 client");
        assert_eq!(positive(group(&report, &title), "transactions"), 5);
        let latency = group(&report, &format!("{title}: latency"));
        assert_eq!((positive(latency, "p50"), positive(latency, "p99")), (5, 5));
    }
    let flushes = group(&report, "synchronous_commit = on, 1 client: flushes of the log");
    for metric in ["flushes", "flushes a transaction", "log a flush", "time in writes and flushes"]
    {
        assert_eq!(positive(flushes, metric), 5, "{metric}");
    }
    // Not a matter of speed: one client's commit is one flush.
    let goals = report["goals"].as_array().expect("goals");
    let one = goals.iter().find(|g| g["what"].as_str().is_some_and(|w| w.contains("flushes a")));
    assert_eq!(one.expect("the goal")["reached"], true, "{goals:?}");
}

#[test]
fn a_kill_takes_no_more_than_was_promised() {
    let report = report_of("durability-mix", &["--clients", "2", "--seconds", "1"]);
    for title in ["Rows a second, each kind alone", "Rows a second, all kinds at once"] {
        let rates = group(&report, title);
        for kind in ["orders (sync)", "events (async)", "metrics (unlogged)"] {
            assert_eq!(positive(rates, kind), 1, "{title}: {kind}");
        }
    }
    assert_eq!(positive(group(&report, "After a kill"), "rows told"), 3);
    let goals = report["goals"].as_array().expect("goals");
    let told = |g: &&serde_json::Value| g["what"].as_str().is_some_and(|w| w.contains("a kill"));
    let after: Vec<_> = goals.iter().filter(told).collect();
    assert_eq!(after.len(), 5);
    assert!(after.iter().all(|g| g["reached"] == true), "{after:?}");
}

#[test]
fn a_checkpoint_is_found_in_the_middle_of_a_run() {
    let arguments = ["--scale", "1", "--clients", "2", "--seconds", "3"];
    let report = report_of("checkpoint-cost", &arguments);
    for script in ["select-only", "TPC-B"] {
        let cost = group(&report, &format!("{script}, CHECKPOINT: what it costs"));
        assert_eq!(positive(cost, "the checkpoint took"), 1, "{script}");
        assert_eq!(positive(cost, "with / without: throughput"), 1, "{script}");
    }
    let note = report["notes"].to_string();
    assert!(note.contains("A timed checkpoint needs runs of 60 seconds"), "{note}");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkling"));
    command.args(["lab", "first-scan", "--rows", "50000000"]).env("TMPDIR", dir.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let begun = Instant::now();
    // Its server runs, and has millions of rows before it.
    let loading = || {
        let work = left_in(dir.path()).pop()?;
        let log = std::fs::read_to_string(dir.path().join(work).join("0/log")).ok()?;
        log.contains("ready to accept connections").then_some(())
    };
    while loading().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no server");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it takes a signal");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("interrupted"), "{}", text(&out.stderr));
    assert_eq!(left_in(dir.path()), Vec::<String>::new());
}
