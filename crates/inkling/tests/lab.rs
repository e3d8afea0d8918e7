//! `inkling lab`: the list, the errors, and a whole experiment in small, down to the files that it
//! keeps. What the numbers say is for a release build on a quiet machine; here they must exist.

use std::path::Path;
use std::process::{Command, Output};

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
        assert!(shown.lines().any(|l| l.starts_with("  first-scan ")), "{shown}");
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
    // One subject a line, and every step told.
    assert!(text(&out.stderr).contains("round 1/1: Inkling"));

    let report = std::fs::read_to_string(&json).expect("the JSON");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["name"], "first-scan");
    let times = &report["groups"][0]["measurements"];
    assert_eq!(times[0]["metric"], "first");
    assert_eq!(times[0]["samples"].as_array().map(Vec::len), Some(1));
    assert_eq!(times[1]["samples"].as_array().map(Vec::len), Some(5));
    assert!(times[0]["summary"]["median"].as_f64().is_some_and(|ms| ms > 0.0));

    let page = std::fs::read_to_string(&html).expect("the page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<svg ") && page.contains("first / later"));
}
