//! Statements that clients send, and what only a closer look at the bound tree shows.

use super::fixture::Fixture;

/// Every query behind psql 15's backslash commands.
#[test]
fn psql_describe_queries_bind() {
    let f = Fixture::new();
    let mut failed = Vec::new();
    for sql in include_str!("psql15.sql").split("\n----\n") {
        if let Err(e) = f.bind(sql) {
            failed.push(format!("{}\n  {}", super::describe_error(&e), sql.replace('\n', " ")));
        }
    }
    assert!(failed.is_empty(), "{}:\n{}", failed.len(), failed.join("\n"));
}
