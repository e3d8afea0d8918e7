//! The server killed under clients that write at every level, and what it had told them.
//!
//! Clients keep books: a synchronous writer of every number that was acknowledged, an asynchronous
//! one also of the moment, one that writes both kinds in a transaction, a reader of what it read.
//! After SIGKILL and a restart:
//!
//! - every number that was acknowledged synchronously is there;
//! - of the asynchronous ones those that are older than `max_loss` (and the time that a busy machine
//!   may take to write) are there, and the numbers that are there have no gap;
//! - a transaction over both kinds of table is whole or absent;
//! - whatever the reader was told of is there;
//! - the unlogged table is empty; after a proper stop it holds what it held.
//!
//! `INKLING_KILLS`: how many times the server is killed (3).

mod common;

use common::{Server, from_env, runtime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Error};

/// What the asynchronous table's commits may lose at most.
const MAX_LOSS: Duration = Duration::from_millis(200);
/// The writer's thread may have to wait for a processor, and the device be busy with others.
const BUSY: Duration = Duration::from_secs(2);
const ROUND: Duration = Duration::from_millis(3500);

/// What one client knows.
#[derive(Default)]
struct Book {
    /// Numbers acknowledged, in order, and when.
    told: Vec<(i64, Instant)>,
    /// Numbers that a reader was shown, by writer.
    shown: BTreeMap<String, i64>,
}

async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(async move {
        // It ends with an error when the server is killed; the client then tells.
        let _ended = connection.await;
    });
    Ok(client)
}

/// Writes numbers from `first` on until the server is gone.
async fn write(url: String, level: &'static str, sql: &'static str, first: i64) -> Book {
    let mut book = Book::default();
    let Ok(client) = connect(&url).await else { return book };
    if client.batch_execute(&format!("set synchronous_commit = {level}")).await.is_err() {
        return book;
    }
    for n in first.. {
        let text = sql.replace("$n", &n.to_string());
        if client.batch_execute(&text).await.is_err() {
            break;
        }
        book.told.push((n, Instant::now()));
    }
    book
}

async fn read(url: String) -> Book {
    let mut book = Book::default();
    let Ok(client) = connect(&url).await else { return book };
    let sql = "select who, max(n) from orders group by who";
    while let Ok(rows) = client.query(sql, &[]).await {
        for row in rows {
            book.shown.insert(row.get(0), row.get(1));
        }
    }
    book
}

/// The numbers of a writer in a table.
fn numbers(server: &Server, table: &str, who: &str) -> BTreeSet<i64> {
    let rows = server.psql(&format!("select n from {table} where who = '{who}'"));
    rows.lines().map(|line| line.parse().expect("a number")).collect()
}

/// From the beginning without a gap; the highest.
fn without_gap(numbers: &BTreeSet<i64>, what: &str) -> i64 {
    let last = numbers.last().copied().unwrap_or(0);
    assert_eq!(numbers.len() as i64, last, "{what} has a gap");
    last
}

const SYNC: &str = "insert into orders values ('sync', $n)";
const ASYNC: &str = "insert into events values ('async', $n)";
const BOTH: &str = "begin; insert into orders values ('both', $n); \
                    insert into events values ('both', $n); commit";
const UNLOGGED: &str = "insert into metrics values ('unlogged', $n)";

/// The writers: table, name, what the session says, statement, whether acknowledging promises all.
/// The tables decide, against what the sessions say.
const WRITERS: [(&str, &str, &str, &str, bool); 4] = [
    ("orders", "sync", "off", SYNC, true),
    ("events", "async", "on", ASYNC, false),
    ("orders", "both", "off", BOTH, true),
    ("metrics", "unlogged", "on", UNLOGGED, true),
];

/// A round of work that ends with SIGKILL: the writers' books, the reader's, and when it ended.
fn round(server: &mut Server, next: &[i64]) -> (Vec<Book>, Book, Instant) {
    let runtime = runtime();
    let url = server.url();
    let writers: Vec<_> = WRITERS
        .iter()
        .zip(next)
        .map(|((_, _, level, sql, _), first)| runtime.spawn(write(url.clone(), level, sql, *first)))
        .collect();
    let reader = runtime.spawn(read(url));
    std::thread::sleep(ROUND);
    let end = Instant::now();
    server.kill();
    runtime.block_on(async {
        let mut books = Vec::new();
        for writer in writers {
            books.push(writer.await.expect("a writer's book"));
        }
        (books, reader.await.expect("the reader's book"), end)
    })
}

fn check_books(server: &Server, books: &[Book], reader: &Book, end: Instant) -> Vec<i64> {
    let mut next = Vec::new();
    for ((table, who, _, _, all), book) in WRITERS.iter().zip(books) {
        let there = numbers(server, table, who);
        assert!(!book.told.is_empty(), "{who} wrote nothing");
        if *table == "metrics" {
            assert!(there.is_empty(), "{} unlogged rows survived", there.len());
            next.push(1);
            continue;
        }
        let last = without_gap(&there, who);
        let bound = |at: &Instant| *all || *at + MAX_LOSS + BUSY < end;
        let promised = book.told.iter().filter(|(_, at)| bound(at)).map(|(n, _)| *n).max();
        assert!(promised.is_some(), "{who}: the round was too short to promise anything");
        assert!(last >= promised.unwrap_or(0), "{who}: {promised:?} was promised, {last} is there");
        next.push(last + 1);
    }
    assert_eq!(numbers(server, "orders", "both"), numbers(server, "events", "both"));
    for (who, shown) in &reader.shown {
        let there = numbers(server, "orders", who);
        assert!(there.contains(shown), "{who} {shown} was shown and is gone");
    }
    assert!(!reader.shown.is_empty(), "the reader was shown nothing");
    next
}

#[test]
fn what_was_told_survives_a_kill() {
    // The delay of those who name no bound is not what is measured here.
    let mut server = Server::start_with(&["wal_writer_delay=10s", "shared_buffers=16MB"]);
    server.psql(
        "create table orders (who text, n bigint, primary key (who, n)) \
            with (durability = sync); \
         create table events (who text, n bigint) \
            with (durability = async, max_loss = '200ms'); \
         create unlogged table metrics (who text, n bigint); \
         create index on metrics (n)",
    );
    let mut next = vec![1; WRITERS.len()];
    for _ in 0..from_env("INKLING_KILLS", 3) {
        let (books, reader, end) = round(&mut server, &next);
        server.restart();
        assert!(server.log().contains("redo done"), "{}", server.log());
        next = check_books(&server, &books, &reader, end);
    }
    server.psql("insert into metrics select 'kept', n from generate_series(1, 500) n");
    assert!(server.stop().success());
    server.must_be_sound();
    server.restart();
    assert_eq!(server.psql("select count(*) from metrics where n > 0"), "500\n");
}

/// A server that is killed while it replays says how far it is, and begins anew.
#[test]
fn a_start_says_how_far_it_is() {
    let settings = ["log_startup_progress_interval=1ms", "max_wal_size=4GB"];
    let mut server = Server::start_with(&settings);
    server.psql("create table t (id int primary key, w text)");
    for part in 0..6 {
        server.psql(&format!(
            "insert into t select n, repeat('x', 200) \
             from generate_series({part} * 10000, {part} * 10000 + 9999) n"
        ));
    }
    server.kill();
    server.restart();
    let log = server.log();
    for words in [
        "redo starts at 0/",
        "redo in progress, elapsed time: 0.",
        " s, current LSN: 0/",
        "redo done at 0/",
        " MB/s; ",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(server.psql("select count(*), min(length(w)) from t"), "60000|200\n");
}
