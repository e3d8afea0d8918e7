//! Waits over the wire, with a real driver: how they are shown, told, limited and ended.
//!
//! Each kind of wait (a row, a table, an advisory lock, a unique key, a prepared transaction) must be
//! seen by others while it lasts, and end by a grant, a time limit, a cancel request or the end of
//! the session, leaving nothing behind for those who come after.

mod common;

use common::{PATIENCE, Server, runtime};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

const SETTINGS: [&str; 3] =
    ["deadlock_timeout=50ms", "log_lock_waits=on", "max_prepared_transactions=2"];

async fn text(client: &Client, sql: &str) -> String {
    let answers = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let row = answers.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
        _ => None,
    });
    row.unwrap_or_else(|| panic!("{sql}: no row"))
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

fn code(e: &tokio_postgres::Error) -> String {
    e.as_db_error().map_or_else(|| e.to_string(), |e| e.code().code().to_owned())
}

/// Asks until the answer is `wanted`.
async fn until(client: &Client, sql: &str, wanted: &str) {
    let begun = Instant::now();
    loop {
        let answer = text(client, sql).await;
        if answer == wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{sql}: {answer}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn pid(client: &Client) -> String {
    text(client, "select pg_backend_pid()").await
}

/// What holds, and what waits for it; the holder is in a transaction block.
struct Wait {
    name: &'static str,
    hold: &'static str,
    want: &'static str,
    /// `pg_locks.locktype` of the request.
    kind: &'static str,
}

const WAITS: [Wait; 4] = [
    Wait {
        name: "a row",
        hold: "update t set v = 1 where id = 1",
        want: "update t set v = 2 where id = 1",
        kind: "transactionid",
    },
    Wait {
        name: "a table",
        hold: "lock table t in exclusive mode",
        want: "insert into t values (7, 0)",
        kind: "relation",
    },
    Wait {
        name: "an advisory lock",
        hold: "select pg_advisory_xact_lock(5)",
        want: "select pg_advisory_xact_lock(5)",
        kind: "advisory",
    },
    Wait {
        name: "a unique key",
        hold: "insert into t values (9, 0)",
        want: "insert into t values (9, 1)",
        kind: "transactionid",
    },
];

/// Ways to end a wait from outside, and what the waiter is told.
const ENDS: [(&str, &str); 4] = [
    ("cancel request", "57014"),
    ("pg_cancel_backend", "57014"),
    ("lock_timeout", "55P03"),
    ("statement_timeout", "57014"),
];

async fn bench(server: &Server) -> (Client, Client, Client) {
    let (a, b, c) = (server.connect().await, server.connect().await, server.connect().await);
    run(&c, "drop table if exists t; create table t (id int primary key, v int)").await;
    run(&c, "insert into t values (1, 0), (2, 0)").await;
    (a, b, c)
}

#[test]
fn waits_are_shown_and_end_when_they_are_told_to() {
    let server = Server::start_with(&SETTINGS);
    runtime().block_on(async {
        let (holder, waiter, watcher) = bench(&server).await;
        let (h, w) = (pid(&holder).await, pid(&waiter).await);
        for wait in &WAITS {
            for (end, expected) in ENDS {
                let what = format!("{}, {end}", wait.name);
                run(&holder, "begin").await;
                run(&holder, wait.hold).await;
                if end.ends_with("timeout") {
                    run(&waiter, &format!("set {end} = '300ms'")).await;
                }
                let outside = async {
                    shown(&watcher, wait, &h, &w).await;
                    match end {
                        "cancel request" => {
                            waiter.cancel_token().cancel_query(NoTls).await.expect("a request");
                        }
                        "pg_cancel_backend" => run(&watcher, &format!("select {end}({w})")).await,
                        _ => {}
                    }
                };
                let (ended, ()) = tokio::join!(waiter.batch_execute(wait.want), outside);
                assert_eq!(code(&ended.expect_err(&what)), expected, "{what}");
                let left = format!("select count(*) from pg_locks where pid = {w}");
                assert_eq!(text(&watcher, &left).await, "0", "{what}");
                run(&waiter, "set lock_timeout = 0; set statement_timeout = 0").await;
                run(&holder, "rollback").await;
                // The way is free, for the waiter too.
                run(&waiter, "begin").await;
                run(&waiter, wait.want).await;
                run(&waiter, "rollback").await;
            }
        }
    });
}

/// What others see of a wait while it lasts.
async fn shown(watcher: &Client, wait: &Wait, h: &str, w: &str) {
    let request = format!("from pg_locks where pid = {w} and not granted");
    until(watcher, &format!("select coalesce(min(locktype), '-') {request}"), wait.kind).await;
    let seen = [
        ("select pg_blocking_pids(W)::text", format!("{{{h}}}")),
        ("select pg_isolation_test_session_is_blocked(W, '{H}')::text", "true".to_owned()),
        (
            "select wait_event_type || ' ' || wait_event from pg_stat_activity where pid = W",
            format!("Lock {}", wait.kind),
        ),
        (
            "select (waitstart <= now())::text from pg_locks where pid = W and not granted",
            "true".to_owned(),
        ),
        ("select state from pg_stat_activity where pid = W", "active".to_owned()),
        ("select state from pg_stat_activity where pid = H", "idle in transaction".to_owned()),
        // Both run a transaction, under a name that all their rows share.
        ("select count(distinct virtualtransaction) from pg_locks where pid = W", "1".to_owned()),
        (
            "select count(*) from pg_locks where pid = H and locktype = 'virtualxid' \
          and virtualxid = virtualtransaction and mode = 'ExclusiveLock' and granted and fastpath",
            "1".to_owned(),
        ),
    ];
    for (sql, expected) in seen {
        let sql = sql.replace('W', w).replace('H', h);
        assert_eq!(text(watcher, &sql).await, expected, "{}: {sql}", wait.name);
    }
}

#[test]
fn the_end_of_a_session_ends_its_wait() {
    let server = Server::start_with(&SETTINGS);
    runtime().block_on(async {
        let (holder, _, watcher) = bench(&server).await;
        for wait in &WAITS {
            let waiter = server.connect().await;
            let w = pid(&waiter).await;
            run(&holder, "begin").await;
            run(&holder, wait.hold).await;
            let outside = async {
                let waits =
                    format!("select count(*) from pg_locks where pid = {w} and not granted");
                until(&watcher, &waits, "1").await;
                run(&watcher, &format!("select pg_terminate_backend({w})")).await;
            };
            let (ended, ()) = tokio::join!(waiter.batch_execute(wait.want), outside);
            assert_eq!(code(&ended.expect_err(wait.name)), "57P01", "{}", wait.name);
            let left = format!(
                "select (select count(*) from pg_locks where pid = {w}) \
                 + (select count(*) from pg_stat_activity where pid = {w})"
            );
            until(&watcher, &left, "0").await;
            run(&holder, "rollback").await;
        }
        // A client that goes without a word while it waits.
        run(&holder, "begin; update t set v = 1 where id = 1").await;
        let mut psql = server.client("psql");
        psql.args(["-X", "-q", "-d", "postgres", "-c", "update t set v = 2 where id = 1"]);
        let mut child = psql.spawn().expect("psql runs");
        let waits = "select count(*) from pg_locks where not granted";
        until(&watcher, waits, "1").await;
        child.kill().expect("killed");
        child.wait().expect("gone");
        until(&watcher, waits, "0").await;
        run(&holder, "rollback").await;
    });
}

async fn told_of(server: &Server, words: &str) {
    let begun = Instant::now();
    while !server.log().contains(words) {
        assert!(begun.elapsed() < PATIENCE, "{words} is not told: {}", server.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn first_line(log: &str, part: &str) -> String {
    log.lines().find(|line| line.contains(part)).unwrap_or_default().to_owned()
}

#[test]
fn long_waits_are_in_the_log() {
    let server = Server::start_with(&SETTINGS);
    runtime().block_on(async {
        let (a, b, c) = bench(&server).await;
        let (pa, pb) = (pid(&a).await, pid(&b).await);
        run(&a, "begin; update t set v = 1 where id = 1").await;
        let xid = format!("select backend_xid from pg_stat_activity where pid = {pa}");
        let xid = text(&c, &xid).await;
        let outside = async {
            told_of(&server, "DETAIL:").await;
            run(&a, "commit").await;
        };
        let (done, ()) = tokio::join!(b.batch_execute("update t set v = 2 where id = 1"), outside);
        done.expect("updated");
        let log = server.log();
        let on = format!("ShareLock on transaction {xid} after ");
        assert!(
            first_line(&log, "LOG:  process")
                .contains(&format!("process {pb} still waiting for {on}")),
            "{log}"
        );
        let detail = format!("DETAIL:  Process holding the lock: {pa}. Wait queue: {pb}.");
        assert!(log.contains(&detail), "{log}");
        assert!(log.contains(&format!("process {pb} acquired {on}")), "{log}");
        // A deadlock is told as such; who has the setting off is not spoken of.
        run(&a, "begin; update t set v = 1 where id = 1").await;
        run(&b, "begin; update t set v = 1 where id = 2").await;
        let (one, two) = tokio::join!(
            a.batch_execute("update t set v = 3 where id = 2"),
            b.batch_execute("update t set v = 3 where id = 1"),
        );
        let failed: Vec<_> = [one, two].into_iter().filter_map(|r| r.err()).collect();
        assert_eq!(failed.iter().map(code).collect::<Vec<_>>(), ["40P01"]);
        told_of(&server, "detected deadlock while waiting for ShareLock").await;
        run(&a, "rollback").await;
        run(&b, "rollback; set log_lock_waits = off").await;
        let told = server.log().matches("still waiting").count();
        run(&a, "begin; update t set v = 1 where id = 1").await;
        run(&b, "set lock_timeout = '400ms'").await;
        assert_eq!(code(&b.batch_execute("delete from t").await.expect_err("held")), "55P03");
        assert_eq!(server.log().matches("still waiting").count(), told);
    });
}

#[test]
fn transactions_show_when_they_began_and_what_they_hold() {
    let server = Server::start_with(&SETTINGS);
    runtime().block_on(async {
        let (a, b, c) = bench(&server).await;
        let pa = pid(&a).await;
        let row = |what: &str| format!("select {what} from pg_stat_activity where pid = {pa}");
        assert_eq!(text(&c, &row("xact_start")).await, "NULL");
        run(&a, "begin").await;
        let order = "(backend_start <= xact_start and xact_start <= query_start \
                     and query_start <= state_change)::text";
        assert_eq!(text(&c, &row(order)).await, "true");
        assert_eq!(text(&c, &row("backend_xid is null and backend_xmin is null")).await, "t");
        run(&a, "insert into t values (3, 0)").await;
        assert_eq!(
            text(
                &c,
                &row("backend_xid::text = (select transactionid::text from pg_locks \
            where locktype = 'transactionid' and pid = pg_stat_activity.pid)")
            )
            .await,
            "t"
        );
        // READ COMMITTED holds nothing between statements, REPEATABLE READ its snapshot.
        assert_eq!(text(&c, &row("backend_xmin")).await, "NULL");
        run(&b, "begin isolation level repeatable read").await;
        assert_eq!(text(&b, "select count(*) from t").await, "2");
        let pb = pid(&b).await;
        let held = format!(
            "select (b.backend_xmin::text::bigint <= a.backend_xid::text::bigint)::text \
             from pg_stat_activity a, pg_stat_activity b where a.pid = {pa} and b.pid = {pb}"
        );
        assert_eq!(text(&c, &held).await, "true");
        assert_eq!(
            text(
                &c,
                "select (backend_xmin is not null)::text from pg_stat_activity \
            where pid = pg_backend_pid()"
            )
            .await,
            "true",
            "one's own query has a snapshot"
        );
        run(&a, "commit").await;
        assert_eq!(text(&c, &row("xact_start is null and backend_xid is null")).await, "t");
        run(&b, "commit").await;
        // A prepared transaction has no process: a number of its own, and 0 where one is asked.
        run(&a, "begin; update t set v = 5 where id = 1; prepare transaction 'x'").await;
        let nobody = "select string_agg(locktype, ' ' order by locktype) from pg_locks \
                      where pid is null and virtualtransaction like '-1/%'";
        assert_eq!(text(&c, nobody).await, "relation transactionid");
        let outside = async {
            let blockers = format!("select pg_blocking_pids({pb})::text");
            until(&c, &blockers, "{0}").await;
            run(&c, "commit prepared 'x'").await;
        };
        let (done, ()) = tokio::join!(b.batch_execute("update t set v = 6 where id = 1"), outside);
        done.expect("updated");
    });
}

#[test]
fn lock_table_belongs_into_a_longer_transaction() {
    let server = Server::start_with(&SETTINGS);
    runtime().block_on(async {
        let (a, b, _) = bench(&server).await;
        let alone = a.batch_execute("lock table t").await.expect_err("alone");
        assert_eq!(code(&alone), "25P01");
        let prepared = a.execute("lock table t", &[]).await.expect_err("by itself");
        assert_eq!(code(&prepared), "25P01");
        // Several statements of one message are one transaction; the lock goes with it.
        run(&a, "lock table t; insert into t values (3, 0)").await;
        run(&a, "insert into t values (4, 0); lock table t in share mode").await;
        run(&b, "lock table t nowait; select 1").await;
        run(&a, "begin; lock table t").await;
        let held = b.batch_execute("lock table t nowait; select 1").await.expect_err("held");
        assert_eq!(code(&held), "55P03");
        run(&a, "commit").await;
        run(&a, "declare c cursor for select id from t; fetch c").await;
    });
}
