//! A server killed under clients that commit in two phases, and what it had told them.
//!
//! Each client works as a coordinator's resource would: BEGIN, two rows that belong together,
//! PREPARE TRANSACTION; then, later, COMMIT PREPARED or ROLLBACK PREPARED. It keeps a book of what
//! was acknowledged. After each kill the books must hold: what was prepared is prepared, what was
//! ended has ended that way, and what was asked for and never answered is one of the two.

mod common;

use common::{PATIENCE, Server, from_env, runtime};
use std::collections::BTreeMap;
use std::process::Output;
use std::time::Duration;

const CLIENTS: i64 = 4;

/// How far a transaction is known to have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// PREPARE was sent, and not answered.
    Asked,
    Prepared,
    /// An end was sent, and not answered.
    Ending(bool),
    Ended(bool),
}

type Book = BTreeMap<String, Known>;

/// Works until the server is gone.
async fn client(client: tokio_postgres::Client, who: i64, round: u64) -> Book {
    let mut book = Book::new();
    for n in 0.. {
        let name = format!("c{who}-{round}-{n}");
        let id = (round as i64 * 1_000_000 + n) * CLIENTS + who;
        let work = format!(
            "begin; insert into a values ({id}, '{name}'); savepoint s; \
             insert into b values ({id}, '{name}'); release s; \
             update total set n = n + 1 where who = {who}"
        );
        if client.batch_execute(&work).await.is_err() {
            break;
        }
        book.insert(name.clone(), Known::Asked);
        let prepare = format!("prepare transaction '{name}'");
        if client.batch_execute(&prepare).await.is_err() {
            break;
        }
        book.insert(name.clone(), Known::Prepared);
        // Some wait for a later round; but the client's own counter is locked until then.
        let commits = n % 3 != 0;
        book.insert(name.clone(), Known::Ending(commits));
        let end = if commits { "commit" } else { "rollback" };
        if client.batch_execute(&format!("{end} prepared '{name}'")).await.is_err() {
            break;
        }
        book.insert(name, Known::Ended(commits));
    }
    book
}

fn lines(server: &Server, sql: &str) -> Vec<String> {
    server.psql(sql).lines().map(str::to_owned).collect()
}

/// Holds the books against the server; how many transactions were found prepared.
fn check(server: &Server, books: &[Book]) -> usize {
    let prepared = lines(server, "select gid from pg_prepared_xacts order by 1");
    let rows = |table: &str| lines(server, &format!("select name from {table} order by 1"));
    let (a, b) = (rows("a"), rows("b"));
    assert_eq!(a, b, "rows that belong together");
    for (name, known) in books.iter().flatten() {
        let (waits, there) = (prepared.contains(name), a.contains(name));
        let fits = match known {
            Known::Asked => !there,
            Known::Prepared => waits && !there,
            Known::Ending(commits) => (waits && !there) || (!waits && there == *commits),
            Known::Ended(commits) => !waits && there == *commits,
        };
        assert!(fits, "{name}: {known:?}, but prepared: {waits}, rows there: {there}");
    }
    // Nobody else's rows, and the counters agree with them.
    let sum = server.psql("select sum(n) = (select count(*) from a) from total");
    assert_eq!(sum, "t\n");
    for name in &prepared {
        // Still locked: by nobody that could be asked to let go.
        let who = name[1..].split('-').next().expect("c1-..");
        let locked: Output =
            server.try_psql(&format!("select 1 from total where who = {who} for update nowait"));
        assert!(!locked.status.success(), "{name} lost its lock");
    }
    prepared.len()
}

#[test]
fn what_was_prepared_survives_a_kill() {
    let settings = ["max_prepared_transactions=16", "shared_buffers=16MB"];
    let mut server = Server::start_with(&settings);
    server.psql(
        "create table a (id bigint primary key, name text); \
         create table b (id bigint primary key, name text); \
         create table total (who bigint primary key, n bigint)",
    );
    server.psql(&format!("insert into total select w, 0 from generate_series(0, {CLIENTS}) w"));
    let mut found = 0;
    for round in 0..from_env("INKLING_KILLS", 4) {
        let books = runtime().block_on(async {
            let mut clients = Vec::new();
            for who in 0..CLIENTS {
                let connected = server.connect().await;
                clients.push(tokio::spawn(client(connected, who, round)));
            }
            tokio::time::sleep(Duration::from_millis(200 + 90 * round)).await;
            server.kill();
            let mut books = Vec::new();
            for client in clients {
                let book = tokio::time::timeout(PATIENCE, client).await.expect("in time");
                books.push(book.expect("a client's book"));
            }
            books
        });
        assert!(books.iter().all(|book| !book.is_empty()), "somebody did nothing");
        server.restart();
        let waiting = check(&server, &books);
        // Once more, with nothing but recovery in between, and once after a clean stop.
        server.kill();
        server.restart();
        assert_eq!(check(&server, &books), waiting);
        assert!(server.stop().success());
        server.must_be_sound();
        server.restart();
        assert_eq!(check(&server, &books), waiting);
        for name in lines(&server, "select gid from pg_prepared_xacts") {
            server.psql(&format!("commit prepared '{name}'"));
        }
        assert_eq!(check(&server, &[]), 0);
        found += waiting;
    }
    // Which moment a kill meets is chance; that it never meets one of the two phases is not.
    println!("{found} transactions were found prepared after the kills");
}
