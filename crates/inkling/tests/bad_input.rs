//! Clients that misbehave: garbage, truncated and oversized messages at every stage, statements
//! that are too deep or too large, clients that vanish, too many of them.
//!
//! While each of them does, a witness goes on inserting rows in a session of its own; at the end
//! every row that it was told of is there, and the server answers.

mod common;

use common::{PATIENCE, Server, runtime};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A small generator: the same bytes in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// A connection without a driver's manners.
struct Raw(TcpStream);

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn startup(body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as i32 + 8).to_be_bytes().to_vec();
    out.extend_from_slice(&196_608i32.to_be_bytes());
    out.extend_from_slice(body);
    out
}

const WHO: &[u8] = b"user\0postgres\0database\0postgres\0\0";

impl Raw {
    fn open(server: &Server) -> Raw {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Raw(stream)
    }

    /// A session, ready for a query.
    fn session(server: &Server) -> Raw {
        let mut raw = Raw::open(server);
        raw.send(&startup(WHO));
        raw.until(b'Z').expect("a session");
        raw
    }

    /// Sends what the server takes; it may hang up meanwhile.
    fn send(&mut self, bytes: &[u8]) {
        let _hung_up = self.0.write_all(bytes);
    }

    fn query(&mut self, sql: &str) {
        let mut body = sql.as_bytes().to_vec();
        body.push(0);
        self.send(&message(b'Q', &body));
    }

    /// The next message; `None` when the server has hung up.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        if let Err(e) = self.0.read_exact(&mut head) {
            let gone = matches!(
                e.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            );
            assert!(gone, "the server neither answers nor hangs up: {e}");
            return None;
        }
        let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        self.0.read_exact(&mut body).ok()?;
        Some((head[0], body))
    }

    /// Reads up to a message of this kind; all bodies on the way. `None`: hung up before.
    fn until(&mut self, kind: u8) -> Option<Vec<(u8, Vec<u8>)>> {
        let mut got = Vec::new();
        loop {
            let m = self.receive()?;
            let found = m.0 == kind;
            got.push(m);
            if found {
                return Some(got);
            }
        }
    }

    /// Closes the sending side and reads until the server has hung up.
    fn finish(mut self) {
        let _closed = self.0.shutdown(std::net::Shutdown::Write);
        while self.receive().is_some() {}
    }
}

/// The SQLSTATE of the first error among messages.
fn state(messages: &[(u8, Vec<u8>)]) -> Option<String> {
    let body = &messages.iter().find(|(kind, _)| *kind == b'E')?.1;
    let field = body.split(|b| *b == 0).find(|f| f.first() == Some(&b'C'))?;
    Some(String::from_utf8_lossy(&field[1..]).into_owned())
}

/// Goes on working while others misbehave.
struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Witness {
    /// Comes back when it is connected: a misbehaving client can't take its place.
    fn start(server: &Server) -> Witness {
        server.psql("create table witness (n bigint primary key)");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, url) = (Arc::clone(&stop), server.url());
        let (connected, is_connected) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            runtime().block_on(async {
                let (client, connection) =
                    tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connect");
                tokio::spawn(connection);
                connected.send(()).expect("awaited");
                let mut told = 0u64;
                while !stopped.load(Ordering::Relaxed) || told == 0 {
                    let next = told + 1;
                    let number = next as i64;
                    let key: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&number];
                    let insert = client.execute("insert into witness values ($1)", &key);
                    let made = tokio::time::timeout(PATIENCE, insert).await;
                    assert_eq!(made.expect("in time").expect("the witness is not disturbed"), 1);
                    told = next;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                told
            })
        });
        is_connected.recv().expect("a witness that is connected");
        Witness { stop, thread }
    }

    /// Ends it; everything it was told is there.
    fn finish(self, server: &Server) {
        self.stop.store(true, Ordering::Relaxed);
        let told = self.thread.join().expect("the witness");
        let there = server.psql("select count(*), max(n) from witness");
        assert_eq!(there, format!("{told}|{told}\n"));
    }
}

fn with_witness(settings: &[&str], misbehave: impl FnOnce(&Server)) {
    let mut server = Server::start_with(settings);
    let witness = Witness::start(&server);
    misbehave(&server);
    witness.finish(&server);
    assert!(server.is_running());
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn garbage_instead_of_a_start_up_packet() {
    with_witness(&[], |server| {
        let mut noise = Noise(1);
        let mut openings: Vec<Vec<u8>> = vec![
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
            vec![0; 8],
            vec![0xff; 64],
            i32::MAX.to_be_bytes().to_vec(),
            i32::MIN.to_be_bytes().to_vec(),
            8i32.to_be_bytes().to_vec(),
            startup(b""),
            startup(b"user"),
            startup(b"user\0"),
            startup(b"\0"),
            startup(b"user\0postgres\0database\0no such database\0\0"),
            startup(b"user\0nobody\0\0"),
            startup(b"user\0postgres\0database\0postgres\0no_such_setting\0x\0\0"),
            startup(b"user\0postgres\0database\0postgres\0options\0-c work_mem=lots\0\0"),
            startup(b"user\0postgres\0replication\0true\0\0"),
            startup(&[&b"user\0"[..], &[b'x'; 9000], b"\0\0"].concat()),
            startup(&[0xc3; 100]),
        ];
        for protocol in [0i32, 131_072, 196_608 + 99, 262_144, 80_877_105] {
            let mut packet = (WHO.len() as i32 + 8).to_be_bytes().to_vec();
            packet.extend_from_slice(&protocol.to_be_bytes());
            packet.extend_from_slice(WHO);
            openings.push(packet);
        }
        for n in 1..80 {
            openings.push(noise.bytes(n * 3));
            openings.push(startup(&noise.bytes(n)));
        }
        for opening in openings {
            let mut raw = Raw::open(server);
            raw.send(&opening);
            raw.finish();
        }
        // A good packet in pieces, and one that never ends.
        let mut slow = Raw::open(server);
        for byte in startup(WHO) {
            slow.send(&[byte]);
        }
        assert!(slow.until(b'Z').is_some());
        let mut never = Raw::open(server);
        never.send(&startup(WHO)[..20]);
        drop(never);
        // Encryption is declined, then the session begins in the clear.
        let mut plain = Raw::open(server);
        plain.send(&[8i32.to_be_bytes(), 80_877_103i32.to_be_bytes()].concat());
        let mut answer = [0];
        plain.0.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"N");
        plain.send(&startup(WHO));
        assert!(plain.until(b'Z').is_some());
        // A cancel request for nobody.
        let mut cancel = Raw::open(server);
        let words = [16i32, 80_877_102, 12345, 678];
        cancel.send(&words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>());
        cancel.finish();
    });
}

#[test]
fn garbage_instead_of_a_password() {
    with_witness(&[], |server| {
        server.psql("alter role postgres password 'secret'");
        let mut noise = Noise(2);
        let first = |body: &[u8]| {
            let mut m = b"SCRAM-SHA-256\0".to_vec();
            m.extend_from_slice(&(body.len() as i32).to_be_bytes());
            m.extend_from_slice(body);
            message(b'p', &m)
        };
        let mut answers = vec![
            message(b'Q', b"select 1\0"),
            message(b'p', b""),
            message(b'p', b"secret\0"),
            message(b'p', b"SCRAM-SHA-256-PLUS\0\0\0\0\0"),
            first(b""),
            first(b"n,,n=,r=abc"),
            [first(b"n,,n=,r=abc"), message(b'p', b"c=biws,r=abc,p=AAAA")].concat(),
            [message(b'p', b"")[..1].to_vec(), i32::MAX.to_be_bytes().to_vec()].concat(),
        ];
        for n in 0..40 {
            answers.push(message(b'p', &noise.bytes(n)));
            answers.push(first(&noise.bytes(n)));
        }
        for answer in answers {
            let mut raw = Raw::open(server);
            raw.send(&startup(WHO));
            raw.send(&answer);
            let _closed = raw.0.shutdown(std::net::Shutdown::Write);
            let got = raw.until(b'Z');
            assert!(got.is_none(), "let in without a password: {answer:?}");
        }
        // So that the witness's end can be checked.
        let out = server
            .client("psql")
            .env("PGPASSWORD", "secret")
            .args(["-X", "-d", "postgres", "-c", "alter role postgres password null"])
            .output()
            .expect("psql");
        assert!(out.status.success(), "{}", common::text(&out));
    });
}

/// Every kind of message, with bodies that are too short, too long, or noise.
fn malformed_messages(noise: &mut Noise) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in *b"QPBDECSHdcfpFX" {
        all.push(message(kind, b""));
        all.push(message(kind, b"\0"));
        all.push(message(kind, &[0xff; 7]));
        all.push(message(kind, b"no terminator"));
        all.push(message(kind, b"two\0strings\0and more"));
        for n in [1, 2, 3, 5, 8, 13, 40, 300] {
            all.push(message(kind, &noise.bytes(n)));
        }
        for length in [0, 3, -1, i32::MIN, i32::MAX, 0x4000_0000] {
            let mut m = vec![kind];
            m.extend_from_slice(&i32::to_be_bytes(length));
            m.extend_from_slice(&noise.bytes(20));
            all.push(m);
        }
    }
    for kind in (0..=255).filter(|k| !b"QPBDECSHdcfpFX".contains(k)) {
        all.push(message(kind, b"what?"));
    }
    // Counts that promise more than the message holds.
    all.push(message(b'P', b"s\0select $1\0\xff\xff"));
    all.push(message(b'B', b"p\0s\0\x7f\xff\0\0"));
    all.push(message(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"));
    all.push(message(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\x80\0\0"));
    all.push(message(b'E', b"\0\xff\xff\xff\xff"));
    all
}

#[test]
fn garbage_in_a_session() {
    with_witness(&[], |server| {
        let mut noise = Noise(3);
        for bad in malformed_messages(&mut noise) {
            let mut raw = Raw::session(server);
            raw.send(&bad);
            // If the session is still there it answers; the rest of the noise may swallow this.
            raw.send(&message(b'S', b""));
            raw.query("select 1");
            raw.finish();
        }
        // After an error in an ordinary message the session goes on.
        let mut raw = Raw::session(server);
        raw.send(&message(b'P', b"\0select 1\0"));
        raw.send(&message(b'D', b"Xnope\0"));
        raw.send(&message(b'S', b""));
        let got = raw.until(b'Z').expect("still there");
        assert_eq!(state(&got).as_deref(), Some("08P01"));
        raw.query("select 1");
        assert_eq!(state(&raw.until(b'Z').expect("still there")), None);
    });
}

#[test]
fn garbage_in_a_copy() {
    with_witness(&[], |server| {
        server.psql("create table t (a int, b text)");
        let mut noise = Noise(4);
        let mut bad = malformed_messages(&mut noise);
        for n in 1..60 {
            bad.push(message(b'd', &noise.bytes(n * 7)));
        }
        bad.push(message(b'd', b"1\tone\n2\ttwo\n\xc3\x28\n"));
        bad.push(message(b'd', b"\\.\nafter the end\n"));
        for bad in bad {
            let mut raw = Raw::session(server);
            raw.query("copy t from stdin");
            assert!(raw.until(b'G').is_some());
            raw.send(&bad);
            raw.send(&message(b'f', b"enough\0"));
            raw.query("select 1");
            raw.finish();
        }
        assert_eq!(server.psql("select count(*) from t where a is null and b is null"), "0\n");
    });
}

/// Runs a statement in a session of its own; its SQLSTATE, `None` for success.
fn run(server: &Server, sql: &str) -> Option<String> {
    let mut raw = Raw::session(server);
    raw.query(sql);
    let got = raw.until(b'Z');
    let got = got.unwrap_or_else(|| panic!("hung up on {}...", &sql[..sql.len().min(60)]));
    let found = state(&got);
    raw.query("select 1");
    assert_eq!(state(&raw.until(b'Z').expect("the session is there")), None);
    found
}

#[test]
fn statements_that_are_too_deep() {
    with_witness(&[], |server| {
        let deep = |open: &str, inner: &str, close: &str, n: usize| {
            format!("select {}{inner}{}", open.repeat(n), close.repeat(n))
        };
        for n in [100, 1000, 10_000, 100_000] {
            let nests = [
                deep("(", "1", ")", n),
                deep("1 + ", "1", "", n),
                deep("not ", "true", "", n),
                deep("- ", "1", "", n),
                deep("abs(", "1", ")", n),
                deep("case when true then ", "1", " end", n),
                deep("(select ", "1", ")", n),
                deep("array[", "1", "]", n),
                format!(
                    "select 1 from {}(select 1) x{}",
                    "(select * from ".repeat(n),
                    ") x".repeat(n)
                ),
                format!("select 1 {}", "union all select 1 ".repeat(n)),
                format!("select '1'{}", "::text".repeat(n)),
                format!("select * from pg_class where true {}", "and oid <> 1 ".repeat(n)),
            ];
            for sql in nests {
                let outcome = run(server, &sql);
                let shown = &sql[..sql.len().min(40)];
                // Deep ones may be refused as too complex, nothing else.
                let fine = match outcome.as_deref() {
                    None => true,
                    // The grammar's own stack: "memory exhausted", as PostgreSQL says.
                    Some("42601") => n >= 10_000,
                    Some("54001" | "54000" | "54011" | "53200") => n > 100,
                    // Arrays have at most six dimensions; - - 1 begins a comment.
                    Some(_) => shown.contains("array["),
                };
                assert!(fine, "{n} x {shown}: {outcome:?}");
            }
        }
    });
}

#[test]
fn statements_that_are_too_large() {
    with_witness(&[], |server| {
        let big = "x".repeat(10 << 20);
        assert_eq!(run(server, &format!("select length('{big}')")), None);
        server.psql("create table t (a int, b text)");
        assert_eq!(run(server, &format!("insert into t values (1, '{big}')")), None);
        assert_eq!(server.psql("select length(b) from t"), format!("{}\n", big.len()));
        let list = (0..100_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(run(server, &format!("select count(*) from t where a in ({list})")), None);
        let columns = vec!["1"; 5000].join(",");
        assert_eq!(run(server, &format!("select {columns}")).as_deref(), Some("54011"));
        let rows = vec!["(1,'y')"; 20_000].join(",");
        assert_eq!(run(server, &format!("insert into t values {rows}")), None);
        let many = "select 1;".repeat(20_000);
        assert_eq!(run(server, &many), None);
        let name = "n".repeat(1 << 20);
        assert_eq!(run(server, &format!("select {name}")).as_deref(), Some("42703"));
        let comment = format!("/* {} */ select 1", "/* nested ".repeat(50_000));
        assert_eq!(run(server, &comment).as_deref(), Some("42601"));
    });
}

/// Waits until a query answers what is expected.
fn eventually(server: &Server, sql: &str, expected: &str) {
    let begun = Instant::now();
    loop {
        let found = server.psql(sql);
        if found.trim() == expected {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{sql}: still {found}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn clients_that_vanish() {
    with_witness(&[], |server| {
        server.psql("create table t (a int primary key, b text); insert into t values (1, 'x')");
        // In the middle of a COPY.
        let mut raw = Raw::session(server);
        raw.query("copy t from stdin");
        assert!(raw.until(b'G').is_some());
        for n in 2..2000 {
            raw.send(&message(b'd', format!("{n}\t{}\n", "y".repeat(100)).as_bytes()));
        }
        raw.send(&message(b'd', b"2000\tno end")[..8]);
        drop(raw);
        // In an open transaction with a lock on the row.
        let mut raw = Raw::session(server);
        raw.query("begin; update t set b = 'gone' where a = 1");
        assert!(raw.until(b'Z').is_some());
        drop(raw);
        // Waiting for a lock.
        let mut holder = Raw::session(server);
        holder.query("begin; lock table t");
        assert!(holder.until(b'Z').is_some());
        let mut waiter = Raw::session(server);
        waiter.query("select * from t");
        thread::sleep(Duration::from_millis(200));
        drop(waiter);
        drop(holder);
        // In the middle of a long answer.
        let mut raw = Raw::session(server);
        raw.query("select repeat('x', 1000) from generate_series(1, 2000000)");
        assert!(raw.until(b'D').is_some());
        drop(raw);
        // Between Parse and Sync.
        let mut raw = Raw::session(server);
        raw.send(&message(b'P', b"s\0update t set b = 'z'\0\0\0"));
        raw.send(&message(b'B', b"\0s\0\0\0\0\0\0\0"));
        raw.send(&message(b'E', b"\0\0\0\0\0"));
        drop(raw);
        // Only the witness and this psql are left, and nothing of the others.
        eventually(server, "select count(*) from pg_stat_activity where pid is not null", "2");
        assert_eq!(server.psql("select * from t"), "1|x\n");
        server.psql("drop table t");
    });
}

#[test]
fn hundreds_of_idle_connections() {
    with_witness(&[], |server| {
        let mut sessions: Vec<Raw> = (0..500).map(|_| Raw::session(server)).collect();
        for (n, raw) in sessions.iter_mut().enumerate() {
            raw.query(&format!("select {n}"));
            let got = raw.until(b'Z').expect("still there");
            let row = &got.iter().find(|(kind, _)| *kind == b'D').expect("a row").1;
            assert!(row.ends_with(n.to_string().as_bytes()));
        }
        drop(sessions);
        eventually(server, "select count(*) from pg_stat_activity where pid is not null", "2");
    });
}

#[test]
fn too_many_connections() {
    with_witness(&["max_connections=20"], |server| {
        eventually(server, "select count(*) from pg_stat_activity where pid is not null", "2");
        for _ in 0..3 {
            let mut sessions = Vec::new();
            let refused = loop {
                let mut raw = Raw::open(server);
                raw.send(&startup(WHO));
                match raw.receive() {
                    Some((b'E', body)) => break state(&[(b'E', body)]),
                    Some(_) => assert!(raw.until(b'Z').is_some()),
                    None => panic!("hung up without a word"),
                }
                sessions.push(raw);
                assert!(sessions.len() <= 20, "more sessions than allowed");
            };
            assert_eq!(refused.as_deref(), Some("53300"));
            assert_eq!(sessions.len(), 19, "the witness has the twentieth place");
            drop(sessions);
            // Their places are given back.
            let begun = Instant::now();
            while !server.try_psql("select 1").status.success() {
                assert!(begun.elapsed() < Duration::from_secs(60), "no place is given back");
            }
            eventually(server, "select count(*) from pg_stat_activity where pid is not null", "2");
        }
    });
}
