//! Statements that clients send, and what only a closer look at the bound tree shows.

use super::fixture::Fixture;

/// Relations of features that do not exist here.
const ABSENT: [&str; 4] =
    ["pg_subscription", "pg_ts_config", "pg_user_mappings", "pg_event_trigger"];

/// Every query behind psql 15's backslash commands.
#[test]
fn psql_describe_queries_bind() {
    let f = Fixture::new();
    let mut failed = Vec::new();
    for sql in include_str!("psql15.sql").split("\n----\n") {
        if let Err(e) = f.bind(sql) {
            if ABSENT.iter().any(|name| e.message().contains(name)) {
                continue;
            }
            failed.push(format!("{}\n  {}", super::describe_error(&e), sql.replace('\n', " ")));
        }
    }
    assert!(failed.is_empty(), "{}:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn system_views_bind() {
    let f = Fixture::new();
    assert!(f.broken_views.is_empty(), "{}", f.broken_views.join("\n"));
}

/// What drivers and tools ask at connection time or for reflection.
#[test]
fn client_queries_bind() {
    let f = Fixture::new();
    let mut failed = Vec::new();
    for sql in include_str!("clients.sql").split("\n----\n") {
        let mut params = crate::analyze::ParamTypes::variable(Vec::new());
        if let Err(e) = f.bind_with(sql, &mut params) {
            failed.push(format!("{}\n  {}", super::describe_error(&e), sql.replace('\n', " ")));
        }
    }
    assert!(failed.is_empty(), "{}:\n{}", failed.len(), failed.join("\n"));
}

/// Statements that do not exist here are refused by name.
#[test]
fn refused_by_name() {
    let f = Fixture::new();
    for (sql, what) in [
        ("merge into t using u on t.a = u.id when matched then delete", "MERGE"),
        ("create function f() returns int language sql as 'select 1'", "CREATE FUNCTION"),
        ("listen x", "LISTEN"),
        ("notify x", "NOTIFY"),
        ("do 'begin end'", "DO"),
        ("grant select on t to public", "GRANT"),
        ("create type x as enum ('a')", "CREATE TYPE"),
        ("create table z (a int) partition by range (a)", "PARTITION BY"),
        ("create table z () inherits (t)", "INHERITS"),
        ("create table z (a int generated always as (1) stored)", "a generated column"),
        ("create materialized view z as select 1", "CREATE MATERIALIZED VIEW"),
        ("create trigger x before insert on t execute function f()", "CREATE TRIGGER"),
        ("alter table t enable row level security", "ALTER TABLE ... ENABLE ROW SECURITY"),
        ("create database x", "CREATE DATABASE"),
        ("select * from t tablesample system (10)", "TABLESAMPLE"),
        ("select a, grouping(a) from t group by rollup (a)", "GROUPING"),
        (
            "select percentile_cont(0.5) within group (order by a) from t",
            "WITHIN GROUP (aggregate percentile_cont)",
        ),
        (
            "with x as (delete from t returning *) select * from x",
            "a data-modifying statement in WITH",
        ),
        (
            "create table z (a int) with (autovacuum_enabled = off)",
            "storage parameter \"autovacuum_enabled\"",
        ),
        ("insert into v values (1)", "writing to views (\"v\")"),
        ("update t set g[1] = 1", "assignment to an array element or a field"),
        ("select a from t order by a fetch first 1 row with ties", "FETCH FIRST ... WITH TIES"),
    ] {
        let e = f.bind(sql).expect_err(sql);
        assert_eq!(e.state.code(), "0A000", "{sql}: {e}");
        assert_eq!(e.message(), format!("{what} is not supported"), "{sql}");
    }
}

#[test]
fn system_catalogs_are_not_for_writing() {
    let f = Fixture::new();
    for sql in [
        "insert into pg_class (relname) values ('x')",
        "update pg_class set relname = 'x'",
        "delete from pg_class",
        "truncate pg_class",
        "create index on pg_class (relname)",
    ] {
        let e = f.bind(sql).expect_err(sql);
        assert_eq!(e.state.code(), "42501", "{sql}");
        assert_eq!(e.message(), "permission denied: \"pg_class\" is a system catalog");
    }
}
