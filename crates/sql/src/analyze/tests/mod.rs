//! Binding as PostgreSQL 15 does it: golden files of statements with the columns or the error that
//! PostgreSQL answers.
//!
//! ```text
//!   > select a + 1 as x from t
//!   x integer
//!   > select nope from t
//!   42703@8 column "nope" does not exist
//! ```
//!
//! The expectations were taken from PostgreSQL 15 with the tables of [`fixture`].

use crate::error::SqlError;
use fixture::Fixture;

mod deparse;
mod fixture;
mod golden;
mod params;
mod statements;

/// What a statement is, in the golden files' form.
fn describe(f: &Fixture, sql: &str) -> String {
    match f.bind(sql) {
        Err(e) => describe_error(&e),
        Ok(statement) => match statement.columns() {
            None => statement.tag().to_owned(),
            Some(columns) => columns
                .iter()
                .map(|c| format!("{} {}", c.name, crate::types::format_type(c.ty.oid, c.ty.typmod)))
                .collect::<Vec<_>>()
                .join(", "),
        },
    }
}

fn describe_error(e: &SqlError) -> String {
    let at = e.get_position().map_or_else(String::new, |p| format!("@{p}"));
    let mut out = format!("{}{at} {}", e.state.code(), e.message());
    for (label, part) in [("DETAIL", e.get_detail()), ("HINT", e.get_hint())] {
        if let Some(text) = part {
            out.push_str(&format!("\n  {label}: {text}"));
        }
    }
    out
}
