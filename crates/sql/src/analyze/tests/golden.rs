//! Runs the golden files.

use super::fixture::Fixture;
use crate::analyze::{Statement, Utility};

/// A statement's answer, with the notices that definitions give.
fn answer(f: &Fixture, sql: &str) -> String {
    let mut out = super::describe(f, sql);
    if let Ok(Statement::Utility(u)) = f.bind(sql) {
        let notices = match &u {
            Utility::Nothing { notice, .. } => std::slice::from_ref(notice),
            Utility::Drop(d) => &d.notices,
            Utility::DropRole(d) => &d.notices,
            Utility::AlterTable(a) => &a.notices,
            _ => &[],
        };
        for n in notices {
            out.push_str(&format!("\n  NOTICE: {}", n.message()));
        }
    }
    out
}

fn run(name: &str, text: &str) {
    let f = Fixture::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in text.split("\n> ") {
        let case = case.trim_start_matches("> ").trim_end();
        let Some((sql, expected)) = case.split_once('\n') else { continue };
        count += 1;
        let found = answer(&f, sql);
        if found != expected {
            wrong.push(format!("> {sql}\n  expected: {expected}\n  found:    {found}"));
        }
    }
    assert!(count > 10, "{name} has cases");
    assert!(wrong.is_empty(), "{} of {count} in {name}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn queries() {
    run("select.golden", include_str!("select.golden"));
}

#[test]
fn writes() {
    run("dml.golden", include_str!("dml.golden"));
}

#[test]
fn definitions() {
    run("ddl.golden", include_str!("ddl.golden"));
}
