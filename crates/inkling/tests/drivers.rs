//! A real driver (tokio-postgres) against a server: the extended protocol as applications use it.

mod common;

use bytes::{BufMut, BytesMut};
use common::{Server, runtime};
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

/// A value's bytes on the wire, whatever its type.
#[derive(Debug, PartialEq, Clone)]
struct Wire(Vec<u8>, Sent);

#[derive(Debug, PartialEq, Clone, Copy)]
enum Sent {
    Text,
    Binary,
}

impl<'a> FromSql<'a> for Wire {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Wire(raw.to_vec(), Sent::Binary))
    }
    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Wire {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }
    fn accepts(_: &Type) -> bool {
        true
    }
    fn to_sql_checked(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(ty, out)
    }
    fn encode_format(&self, _: &Type) -> Format {
        match self.1 {
            Sent::Text => Format::Text,
            Sent::Binary => Format::Binary,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"))
        .collect()
}

/// The value of a one-row, one-column query in text format.
async fn simple(client: &Client, sql: &str) -> String {
    let answers = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let row = answers.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
        _ => None,
    });
    row.unwrap_or_else(|| panic!("{sql}: no row"))
}

/// One type, both formats, both directions; what PostgreSQL writes is in the golden file.
async fn check_type(client: &Client, line: &str) -> Result<(), String> {
    let parts: Vec<&str> = line.split('|').collect();
    let [ty, literal, text, binary] = parts[..] else { return Err("a malformed line".to_owned()) };
    let fail = |what: &str, e: tokio_postgres::Error| {
        format!("{line}: {what}: {}", e.as_db_error().map_or(e.to_string(), |d| d.to_string()))
    };
    let quoted = literal.replace('\'', "''");
    let sql = format!("select '{quoted}'::{ty} as v");
    let rows = client.simple_query(&sql).await.map_err(|e| fail("simple query", e))?;
    let shown = rows.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    if shown != Some(text) {
        return Err(format!("{line}: shown as {shown:?}"));
    }
    let row = client.query_one(&sql, &[]).await.map_err(|e| fail("binary out", e))?;
    let Wire(found, _) = row.get(0);
    if hex(&found) != binary {
        return Err(format!("{line}: in binary {}", hex(&found)));
    }
    let echo = format!("select $1::{ty}");
    for wire in [Wire(unhex(binary), Sent::Binary), Wire(literal.as_bytes().to_vec(), Sent::Text)] {
        let row = client.query_one(&echo, &[&wire]).await.map_err(|e| fail("parameter", e))?;
        let Wire(back, _) = row.get(0);
        if hex(&back) != binary {
            return Err(format!("{line}: {:?} parameter came back as {}", wire.1, hex(&back)));
        }
    }
    let null = client
        .query_one(&echo, &[&None::<Wire>])
        .await
        .map_err(|e| fail("null parameter", e))?
        .get::<_, Option<Wire>>(0);
    if null.is_some() {
        return Err(format!("{line}: null came back as {null:?}"));
    }
    Ok(())
}

#[test]
fn every_type_in_text_and_binary() {
    let server = Server::start();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/types.txt");
    let cases = std::fs::read_to_string(file).expect("the golden file");
    runtime().block_on(async {
        let client = server.connect().await;
        client.batch_execute("set timezone = 'UTC'").await.expect("set");
        let mut wrong = Vec::new();
        for line in cases.lines().filter(|l| !l.starts_with('#')) {
            if let Err(what) = check_type(&client, line).await {
                wrong.push(what);
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    });
}

#[test]
fn values_survive_a_table() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        client
            .batch_execute(
                "create table t (id int primary key, b bool, s smallint, i int, l bigint, \
                 f real, d double precision, x text, y bytea, a int[])",
            )
            .await
            .expect("create");
        let insert = client
            .prepare("insert into t values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
            .await
            .expect("prepare");
        for id in 0..50i32 {
            let text = "é".repeat(id as usize * 100);
            let bytes: Vec<u8> = (0..id * 400).map(|n| n as u8).collect();
            let made = client
                .execute(
                    &insert,
                    &[
                        &id,
                        &(id % 2 == 0),
                        &(id as i16),
                        &Some(id).filter(|i| i % 3 > 0),
                        &i64::MAX,
                        &1.5f32,
                        &(1.0 / f64::from(id + 1)),
                        &text,
                        &bytes,
                        &vec![Some(id), None],
                    ],
                )
                .await
                .expect("insert");
            assert_eq!(made, 1);
        }
        let rows = client.query("select * from t order by id", &[]).await.expect("select");
        assert_eq!(rows.len(), 50);
        for (id, row) in rows.iter().enumerate() {
            let n = id as i32;
            assert_eq!(row.get::<_, i32>("id"), n);
            assert_eq!(row.get::<_, bool>("b"), id % 2 == 0);
            assert_eq!(row.get::<_, i16>("s"), n as i16);
            assert_eq!(row.get::<_, Option<i32>>("i"), Some(n).filter(|i| i % 3 > 0));
            assert_eq!(row.get::<_, i64>("l"), i64::MAX);
            assert_eq!(row.get::<_, f32>("f"), 1.5);
            assert_eq!(row.get::<_, f64>("d"), 1.0 / f64::from(n + 1));
            assert_eq!(row.get::<_, String>("x"), "é".repeat(id * 100));
            assert_eq!(
                row.get::<_, Vec<u8>>("y"),
                (0..n * 400).map(|n| n as u8).collect::<Vec<_>>()
            );
            assert_eq!(row.get::<_, Vec<Option<i32>>>("a"), vec![Some(n), None]);
        }
    });
}

#[test]
fn named_statements_are_described_and_outlive_changes_of_the_schema() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        client.batch_execute("create table t (a int, b text)").await.expect("create");
        let statement = client
            .prepare("select a, b, a + $1 as c from t where b = $2 and a < $3::bigint")
            .await
            .expect("prepare");
        assert_eq!(statement.params(), [Type::INT4, Type::TEXT, Type::INT8]);
        let columns: Vec<(&str, &Type)> =
            statement.columns().iter().map(|c| (c.name(), c.type_())).collect();
        assert_eq!(columns, [("a", &Type::INT4), ("b", &Type::TEXT), ("c", &Type::INT4)]);
        client.execute("insert into t values (1, 'x'), (2, 'x')", &[]).await.expect("insert");
        let run = || client.query(&statement, &[&10i32, &"x", &2i64]);
        assert_eq!(run().await.expect("run")[0].get::<_, i32>("c"), 11);
        // The plan may change, the result may not.
        client.batch_execute("create index t_b on t (b); analyze t").await.expect("index");
        assert_eq!(run().await.expect("run").len(), 1);
        client
            .batch_execute("drop table t; create table t (a bigint, b text)")
            .await
            .expect("another table");
        let error = run().await.expect_err("another result type");
        assert_eq!(error.code().map(|c| c.code()), Some("0A000"), "{error}");
        let error = client.prepare("select $1 + nope").await.expect_err("no such column");
        assert_eq!(error.code().map(|c| c.code()), Some("42703"));
    });
}

#[test]
fn portals_give_rows_in_portions() {
    let server = Server::start();
    runtime().block_on(async {
        let mut client = server.connect().await;
        let tx = client.transaction().await.expect("begin");
        let statement = tx.prepare("select generate_series(1, 10)").await.expect("prepare");
        let portal = tx.bind(&statement, &[]).await.expect("bind");
        let mut got = Vec::new();
        for expected in [3, 3, 3, 1, 0] {
            let rows = tx.query_portal(&portal, 3).await.expect("rows");
            assert_eq!(rows.len(), expected);
            got.extend(rows.iter().map(|r| r.get::<_, i32>(0)));
        }
        assert_eq!(got, (1..=10).collect::<Vec<_>>());
        // Two portals at a time, interleaved.
        let a = tx.bind(&statement, &[]).await.expect("bind");
        let b = tx.bind(&statement, &[]).await.expect("bind");
        for n in 1..=3 {
            for portal in [&a, &b] {
                let rows = tx.query_portal(portal, 1).await.expect("a row");
                assert_eq!(rows[0].get::<_, i32>(0), n);
            }
        }
        tx.commit().await.expect("commit");
    });
}

#[test]
fn copy_both_ways() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        client.batch_execute("create table t (a int primary key, b text)").await.expect("create");
        let mut sink = Box::pin(client.copy_in("copy t from stdin").await.expect("copy"));
        for chunk in 0..100 {
            let lines: String =
                (0..1000).map(|n| format!("{}\tline {n}\n", chunk * 1000 + n)).collect();
            sink.send(bytes::Bytes::from(lines)).await.expect("data");
        }
        assert_eq!(sink.as_mut().finish().await.expect("finish"), 100_000);
        let sum = "select count(*), sum(a) from t";
        assert_eq!(client.query_one(sum, &[]).await.expect("sum").get::<_, i64>(0), 100_000);
        let stream = client.copy_out("copy t to stdout").await.expect("copy out");
        let bytes: Vec<bytes::Bytes> = stream.try_collect().await.expect("data");
        let lines: usize = bytes.iter().map(|b| b.iter().filter(|c| **c == b'\n').count()).sum();
        assert_eq!(lines, 100_000);
        // A copy that fails takes all its rows along, and the session goes on.
        let mut sink = Box::pin(client.copy_in("copy t from stdin").await.expect("copy"));
        sink.send(bytes::Bytes::from("200000\tnew\n1\tduplicate\n")).await.expect("data");
        let error = sink.as_mut().finish().await.expect_err("a duplicate");
        assert_eq!(error.code().map(|c| c.code()), Some("23505"), "{error}");
        // The client gives up.
        let mut sink = Box::pin(client.copy_in("copy t from stdin").await.expect("copy"));
        sink.send(bytes::Bytes::from("300000\tnew\n")).await.expect("data");
        drop(sink);
        let left = client.query_one("select count(*) from t", &[]).await.expect("count");
        assert_eq!(left.get::<_, i64>(0), 100_000);
    });
}

#[test]
fn a_cancel_request_ends_a_statement_and_not_the_session() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        let long = "select count(*) from generate_series(1, 100000000) a";
        for waiting in [
            long,
            "select sum(a.n) from generate_series(1, 100000) a (n), generate_series(1, 100000) b",
        ] {
            let token = client.cancel_token();
            let cancel = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                token.cancel_query(tokio_postgres::NoTls).await
            });
            let begun = std::time::Instant::now();
            let error = client.query(waiting, &[]).await.expect_err("canceled");
            assert_eq!(error.code().map(|c| c.code()), Some("57014"), "{waiting}: {error}");
            assert!(begun.elapsed() < Duration::from_secs(60), "{waiting}: {:?}", begun.elapsed());
            cancel.await.expect("the task").expect("the request");
            assert_eq!(simple(&client, "select 1").await, "1");
        }
        // Waiting for a lock, too.
        let other = server.connect().await;
        client.batch_execute("create table t (a int); insert into t values (1)").await.expect("t");
        client.batch_execute("begin; update t set a = 2").await.expect("update");
        let token = other.cancel_token();
        let cancel = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            token.cancel_query(tokio_postgres::NoTls).await
        });
        let error = other.execute("update t set a = 3", &[]).await.expect_err("canceled");
        assert_eq!(error.code().map(|c| c.code()), Some("57014"));
        cancel.await.expect("the task").expect("the request");
        client.batch_execute("rollback").await.expect("rollback");
        assert_eq!(other.execute("update t set a = 3", &[]).await.expect("free now"), 1);
    });
}

#[test]
fn timeouts_end_statements_and_waits() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        client.batch_execute("set statement_timeout = '200ms'").await.expect("set");
        let long = "select count(*) from generate_series(1, 1000000000)";
        let error = client.batch_execute(long).await.expect_err("too long");
        assert_eq!(error.code().map(|c| c.code()), Some("57014"));
        let message = error.as_db_error().expect("told by the server").message().to_owned();
        assert_eq!(message, "canceling statement due to statement timeout");
        client.batch_execute("set statement_timeout = 0").await.expect("set");
        client.batch_execute("create table t (a int)").await.expect("create");
        let other = server.connect().await;
        other.batch_execute("begin; lock table t").await.expect("lock");
        client.batch_execute("set lock_timeout = '200ms'").await.expect("set");
        let error = client.batch_execute("select * from t").await.expect_err("locked");
        assert_eq!(error.code().map(|c| c.code()), Some("55P03"), "{error}");
    });
}

#[test]
fn settings_of_roles_and_databases_hold_from_the_start_of_a_session() {
    let server = Server::start();
    runtime().block_on(async {
        let admin = server.connect().await;
        admin.batch_execute("create role app login").await.expect("a role");
        let source = "select setting || ', ' || source from pg_settings \
                      where name = 'synchronous_commit'";
        let connected = server.connect_as("app", "").await;
        for (sql, found) in [
            ("alter role all set synchronous_commit = remote_write", "remote_write, global"),
            ("alter database postgres set synchronous_commit = local", "local, database"),
            ("alter role app set synchronous_commit = off", "off, user"),
            (
                "alter role app in database postgres set synchronous_commit = remote_apply",
                "remote_apply, database user",
            ),
            ("alter role app in database postgres reset synchronous_commit", "off, user"),
        ] {
            admin.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
            let app = server.connect_as("app", "").await;
            assert_eq!(simple(&app, source).await, found, "after {sql}");
        }
        // Sessions that were there keep what they began with; others have their own.
        assert_eq!(simple(&connected, source).await, "on, default");
        assert_eq!(simple(&server.connect().await, source).await, "local, database");
        // The client's own word beats the role's; RESET goes back to where the session began.
        let app = server.connect_as("app", "-c synchronous_commit=local").await;
        assert_eq!(simple(&app, source).await, "local, client");
        let app = server.connect_as("app", "").await;
        app.batch_execute("set synchronous_commit = on").await.expect("set");
        assert_eq!(simple(&app, source).await, "on, session");
        app.batch_execute("reset synchronous_commit").await.expect("reset");
        assert_eq!(simple(&app, "show synchronous_commit").await, "off");
        // Every setting that may be SET, not only this one; what is reported is reported.
        admin.batch_execute("alter role app set timezone = 'Europe/Berlin'").await.expect("alter");
        admin.batch_execute("alter role app set app.colour = 'blue'").await.expect("alter");
        let app = server.connect_as("app", "").await;
        assert_eq!(simple(&app, "show timezone").await, "Europe/Berlin");
        assert_eq!(simple(&app, "select current_setting('app.colour')").await, "blue");
        admin.batch_execute("alter role app reset all").await.expect("reset");
        let app = server.connect_as("app", "").await;
        assert_eq!(simple(&app, source).await, "local, database");
        assert_eq!(simple(&app, "show timezone").await, "UTC");
    });
}

#[test]
fn errors_carry_their_fields() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        client.batch_execute("create table t (a int primary key check (a > 0))").await.expect("t");
        client.batch_execute("insert into t values (1)").await.expect("insert");
        let error = client.query("select a, nope from t", &[]).await.expect_err("no column");
        let db = error.as_db_error().expect("told by the server");
        assert_eq!(db.code().code(), "42703");
        assert_eq!(db.severity(), "ERROR");
        let position = tokio_postgres::error::ErrorPosition::Original(11);
        assert_eq!(db.position(), Some(&position));
        let error = client.execute("insert into t values (1)", &[]).await.expect_err("duplicate");
        let db = error.as_db_error().expect("told by the server");
        assert_eq!(db.code().code(), "23505");
        assert_eq!(db.detail(), Some("Key (a)=(1) already exists."));
        assert_eq!((db.schema(), db.table()), (Some("public"), Some("t")));
        assert_eq!(db.constraint(), Some("t_pkey"));
        let error = client.execute("insert into t values (-1)", &[]).await.expect_err("check");
        let db = error.as_db_error().expect("told by the server");
        assert_eq!((db.code().code(), db.constraint()), ("23514", Some("t_a_check")));
        let error = client.query("select no_such_function(1)", &[]).await.expect_err("function");
        let db = error.as_db_error().expect("told by the server");
        assert_eq!(db.code().code(), "42883");
        assert!(db.hint().is_some_and(|h| h.contains("No function matches")), "{db:?}");
        let wrong = client.query("select $1::int", &[&Wire(vec![1, 2], Sent::Binary)]).await;
        let code = wrong.expect_err("two bytes are no int4");
        assert_eq!(code.code().map(|c| c.code()), Some("22P03"), "{code}");
        assert_eq!(simple(&client, "select 42").await, "42");
    });
}

#[test]
fn transactions_commit_roll_back_and_nest() {
    let server = Server::start();
    runtime().block_on(async {
        let mut client = server.connect().await;
        let other = server.connect().await;
        client.batch_execute("create table t (a int)").await.expect("create");
        let count = "select count(*) from t";
        {
            let mut tx = client.transaction().await.expect("begin");
            tx.execute("insert into t values (1)", &[]).await.expect("insert");
            {
                let inner = tx.transaction().await.expect("savepoint");
                inner.execute("insert into t values (2)", &[]).await.expect("insert");
                inner.execute("insert into t values (1 / 0)", &[]).await.expect_err("fails");
                let e = inner.execute("insert into t values (3)", &[]).await.expect_err("failed");
                assert_eq!(e.code().map(|c| c.code()), Some("25P02"));
                inner.rollback().await.expect("rollback to");
            }
            let inner = tx.transaction().await.expect("savepoint");
            inner.execute("insert into t values (4)", &[]).await.expect("insert");
            inner.commit().await.expect("release");
            assert_eq!(simple(&other, count).await, "0");
            tx.commit().await.expect("commit");
        }
        assert_eq!(simple(&other, "select sum(a) from t").await, "5");
        let tx = client.transaction().await.expect("begin");
        tx.execute("delete from t", &[]).await.expect("delete");
        tx.rollback().await.expect("rollback");
        assert_eq!(simple(&other, count).await, "2");
        let tx = client
            .build_transaction()
            .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .await
            .expect("begin");
        assert_eq!(tx.query_one(count, &[]).await.expect("count").get::<_, i64>(0), 2);
        other.execute("insert into t values (9)", &[]).await.expect("insert");
        assert_eq!(tx.query_one(count, &[]).await.expect("count").get::<_, i64>(0), 2);
        let e = tx.execute("insert into t values (8)", &[]).await.expect_err("read only");
        assert_eq!(e.code().map(|c| c.code()), Some("25006"));
    });
}

#[test]
fn statements_can_be_pipelined() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        client.batch_execute("create table t (a int primary key)").await.expect("create");
        let insert = client.prepare("insert into t values ($1)").await.expect("prepare");
        // All are sent before the first answer is read; every third one fails.
        let sent = (0..300i32).map(|n| {
            let (client, insert) = (&client, &insert);
            async move {
                let key = if n % 3 == 2 { n - 1 } else { n };
                client.execute(insert, &[&key]).await
            }
        });
        let outcomes = futures_util::future::join_all(sent).await;
        for (n, outcome) in outcomes.iter().enumerate() {
            match (n % 3 == 2, outcome) {
                (false, Ok(1)) => {}
                (true, Err(e)) => assert_eq!(e.code().map(|c| c.code()), Some("23505")),
                (_, other) => panic!("{n}: {other:?}"),
            }
        }
        assert_eq!(simple(&client, "select count(*) from t").await, "200");
    });
}

#[test]
fn large_results_stream() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        let sql = "select n, repeat('x', 1000) from generate_series(1, 50000) n";
        let none: [&(dyn ToSql + Sync); 0] = [];
        let rows = client.query_raw(sql, none).await.expect("rows");
        let mut rows = Box::pin(rows);
        let mut count = 0;
        while let Some(row) = rows.next().await {
            let row = row.expect("a row");
            count += 1;
            assert_eq!(row.get::<_, i32>(0), count);
            assert_eq!(row.get::<_, &str>(1).len(), 1000);
        }
        assert_eq!(count, 50_000);
    });
}

#[test]
fn passwords_are_asked_for_once_they_are_set() {
    let server = Server::start();
    runtime().block_on(async {
        let client = server.connect().await;
        client.batch_execute("alter role postgres password 'se cret'").await.expect("alter");
        let refused = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
        assert!(refused.is_err(), "no password was given");
        let with = |password: &str| {
            let mut config: tokio_postgres::Config = server.url().parse().expect("a url");
            config.password(password);
            async move { config.connect(tokio_postgres::NoTls).await.map(|_| ()) }
        };
        let error = with("wrong").await.expect_err("a wrong password");
        assert_eq!(error.code().map(|c| c.code()), Some("28P01"), "{error}");
        with("se cret").await.expect("the right one");
    });
}
