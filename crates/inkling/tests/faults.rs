//! What goes wrong underneath: directories that cannot be used, a torn or damaged log, damaged
//! pages, a full disk, signals. The server says what it is in one line, keeps what can be kept,
//! and loses nothing that it acknowledged.

mod common;

use common::{Refusal, Server, inkling, run, temporary, text};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn refused(root: &Path, settings: &[&str]) -> Refusal {
    match Server::try_start_in(root, settings) {
        Ok(_) => panic!("the server started"),
        Err(refusal) => refusal,
    }
}

/// Exit status 1 and one FATAL line that says this.
fn refused_because(refusal: &Refusal, what: &str) {
    assert_eq!(refusal.code, Some(1), "{refusal:?}");
    let fatal: Vec<&str> = refusal.text.lines().filter(|l| l.contains("FATAL:")).collect();
    assert_eq!(fatal.len(), 1, "{refusal:?}");
    assert!(fatal[0].contains(what), "{refusal:?}");
}

#[test]
fn a_directory_serves_one_server_at_a_time() {
    let server = Server::start();
    let pid = fs::read_to_string(server.root().join("postmaster.pid")).expect("the pid file");
    let pid = pid.lines().next().expect("a pid");
    let refusal = refused(server.root(), &[]);
    refused_because(&refusal, &format!("is in use by another process (PID {pid})"));
    let check = server.check();
    assert_eq!(check.status.code(), Some(1));
    assert!(text(&check).contains("is in use"), "{}", text(&check));
    assert_eq!(server.psql("select 1"), "1\n");
}

#[test]
fn starts_that_cannot_be() {
    let dir = temporary();
    let root = |name: &str| dir.path().join(name);
    // Somebody else's directories.
    fs::create_dir(root("photos")).expect("a directory");
    fs::write(root("photos").join("cat.jpg"), "meow").expect("a file");
    refused_because(&refused(&root("photos"), &[]), "is not empty and not a data directory");
    fs::create_dir(root("pg")).expect("a directory");
    fs::write(root("pg").join("PG_VERSION"), "15\n").expect("a file");
    refused_because(&refused(&root("pg"), &[]), "data directory of PostgreSQL 15");
    fs::write(root("file"), "").expect("a file");
    refused_because(&refused(&root("file"), &[]), "Not a directory");
    // Settings.
    refused_because(&refused(&root("a"), &["no_such=1"]), "unrecognized configuration parameter");
    refused_because(&refused(&root("b"), &["work_mem=lots"]), "invalid value for parameter");
    fs::create_dir(root("c")).expect("a directory");
    fs::write(root("c").join("postgresql.conf"), "port = 1\nfsync = perhaps\n").expect("a file");
    refused_because(&refused(&root("c"), &[]), "postgresql.conf\" line 2");
    // Addresses.
    let open =
        inkling(&["serve", "-D", root("d").to_str().expect("a path"), "-h", "0.0.0.0", "-p", "0"]);
    assert_eq!(open.status.code(), Some(1));
    assert!(text(&open).contains("no role has a password"), "{}", text(&open));
    let server = Server::start();
    let port = server.port.to_string();
    let taken = inkling(&["serve", "-D", root("e").to_str().expect("a path"), "-p", &port]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(text(&taken).contains("could not bind"), "{}", text(&taken));
    // What was made on the way is a sound directory.
    drop(Server::start_in(&root("e"), &[]));
    let check = inkling(&["check", "-D", root("photos").to_str().expect("a path")]);
    assert!(text(&check).contains("is not a data directory"), "{}", text(&check));
}

/// Runs a command as somebody whom permissions bind.
fn as_nobody(command: &[&str]) -> std::process::Output {
    match rustix::process::geteuid().is_root() {
        false => run(Command::new(command[0]).args(&command[1..])),
        true => run(Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(command)),
    }
}

#[test]
fn directories_that_may_not_be_written() {
    // Readable by nobody's account, the program included.
    let dir = temporary();
    let program = dir.path().join("inkling");
    fs::copy(env!("CARGO_BIN_EXE_inkling"), &program).expect("a copy of the program");
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    };
    mode(dir.path(), 0o755);
    mode(&program, 0o755);
    let data = dir.path().join("data");
    fs::create_dir(&data).expect("a directory");
    let serve = |root: &Path| {
        let root = root.to_str().expect("a path").to_owned();
        let out = as_nobody(&[program.to_str().expect("a path"), "serve", "-D", &root, "-p", "0"]);
        Refusal { code: out.status.code(), text: text(&out) }
    };
    // Empty, and read-only.
    mode(&data, 0o555);
    refused_because(&serve(&data), "Permission denied");
    // Not there, below a directory that is read-only.
    refused_because(&serve(&data.join("below")), "Permission denied");
    // Unreadable.
    mode(&data, 0o000);
    refused_because(&serve(&data), "Permission denied");
    mode(&data, 0o755);
    // In use before, read-only now: files too.
    drop(Server::start_in(&data, &[]));
    let everything = run(Command::new("chmod").args(["-R", "a-w,a+rX"]).arg(&data));
    assert!(everything.status.success());
    refused_because(&serve(&data), "Permission denied");
    assert!(run(Command::new("chmod").args(["-R", "u+w"]).arg(&data)).status.success());
    let mut server = Server::start_in(&data, &[]);
    assert!(server.stop().success());
    server.must_be_sound();
}

#[test]
fn signals() {
    let mut server = Server::start();
    server.psql("create table t (a int); insert into t select generate_series(1, 1000)");
    server.send(Signal::HUP);
    assert_eq!(server.psql("select count(*) from t"), "1000\n");
    assert!(server.log().contains("received SIGHUP"), "{}", server.log());
    // Fast, with a session in a transaction: it is told, and rolled back.
    let idle = server
        .client("psql")
        .args(["-X", "-d", "postgres"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut idle = idle.expect("psql");
    let mut input = idle.stdin.take().expect("its input");
    input.write_all(b"begin; delete from t; \\echo deleted\n").expect("write");
    wait_for_idle_in_transaction(&server);
    assert!(server.interrupt_with(Signal::TERM).success());
    drop(input);
    let told = text(&idle.wait_with_output().expect("psql's output"));
    assert!(told.contains("deleted"), "{told}");
    assert!(server.log().contains("database system is shut down"), "{}", server.log());
    assert!(!server.root().join("postmaster.pid").exists());
    server.restart();
    assert!(server.log().contains("shut down cleanly"), "{}", server.log());
    assert_eq!(server.psql("select count(*) from t"), "1000\n");
    assert!(server.interrupt_with(Signal::INT).success());
    server.restart();
    server.psql("insert into t values (1001)");
    // Immediate: the next start replays.
    assert!(server.interrupt_with(Signal::QUIT).success());
    server.restart();
    assert!(server.log().contains("redo done"), "{}", server.log());
    assert_eq!(server.psql("select count(*) from t"), "1001\n");
}

/// Until a session is idle in a transaction.
fn wait_for_idle_in_transaction(server: &Server) {
    let sql = "select count(*) from pg_stat_activity where state = 'idle in transaction'";
    for _ in 0..600 {
        if server.psql(sql) == "1\n" {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("no session is idle in a transaction");
}

const SEGMENT: u64 = 16 << 20;

/// The file and offset of a log position.
fn wal_place(root: &Path, lsn: u64) -> (PathBuf, u64) {
    let segment = lsn / SEGMENT;
    let name = format!("{:08X}{:08X}{:08X}", 1, segment / 256, segment % 256);
    (root.join("pg_wal").join(name), lsn % SEGMENT)
}

fn parse_lsn(text: &str) -> u64 {
    let (high, low) = text.trim_end_matches([',', ':']).split_once('/').expect("X/Y");
    let hex = |t: &str| u64::from_str_radix(t, 16).expect("hex");
    hex(high) << 32 | hex(low)
}

/// Positions of the log's records, and of its end.
fn wal_records(root: &Path) -> (Vec<u64>, u64) {
    let out = inkling(&["waldump", "-D", root.to_str().expect("a path")]);
    assert!(out.status.success(), "{}", text(&out));
    let dump = String::from_utf8(out.stdout).expect("UTF-8");
    let after = |line: &str, word: &str| {
        line.split(word).nth(1).map(|rest| parse_lsn(rest.split_whitespace().next().expect("lsn")))
    };
    let records = dump.lines().filter_map(|l| after(l, " lsn: ")).collect();
    let end = dump.lines().find_map(|l| after(l, "the log ends at ")).expect("an end");
    (records, end)
}

/// A killed server with rows 1, 2, 3, ... each committed on its own.
fn killed_with_rows() -> Server {
    let mut server = Server::start();
    server.psql("create table t (n int primary key, w text)");
    let inserts: String =
        (1..=300).map(|n| format!("insert into t values ({n}, repeat('x', {n}));")).collect();
    // Each statement of a -f file is its own transaction.
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), inserts).expect("write");
    let out = run(server
        .client("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-f"])
        .arg(file.path()));
    assert!(out.status.success(), "{}", text(&out));
    server.kill();
    server
}

/// What is there is a prefix of what was committed; how long.
fn is_prefix(server: &Server) -> u64 {
    let found =
        server.psql("select count(*), coalesce(max(n), 0), coalesce(sum(length(w)), 0) from t");
    let numbers: Vec<u64> = found.trim().split('|').map(|n| n.parse().expect("a number")).collect();
    let n = numbers[0];
    assert_eq!(numbers, [n, n, n * (n + 1) / 2], "not a prefix");
    n
}

#[test]
fn a_damaged_end_of_the_log_costs_only_the_end() {
    for (nth, flip) in [(1, true), (5, true), (40, true), (1, false), (25, false)] {
        let mut server = killed_with_rows();
        let (records, end) = wal_records(server.root());
        let at = records[records.len() - nth];
        let (path, offset) = wal_place(server.root(), at);
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("the segment");
        if flip {
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset + 10).expect("read");
            file.write_all_at(&[byte[0] ^ 0x40], offset + 10).expect("write");
        } else {
            file.set_len(offset + (end - at).min(12)).expect("truncate");
        }
        drop(file);
        server.restart();
        let left = is_prefix(&server);
        let most = if nth == 1 { 300 } else { 299 };
        assert!((200..=most).contains(&left), "{nth} {flip}: {left} rows");
        server.psql("insert into t select max(n) + 1, repeat('x', max(n) + 1) from t");
        assert!(server.stop().success());
        server.must_be_sound();
        server.restart();
        assert_eq!(is_prefix(&server), left + 1);
    }
}

#[test]
fn garbage_behind_the_end_of_the_log_is_not_taken_for_it() {
    let mut server = killed_with_rows();
    let (_, end) = wal_records(server.root());
    let (path, offset) = wal_place(server.root(), end);
    let mut file = OpenOptions::new().write(true).open(&path).expect("the segment");
    file.seek(SeekFrom::Start(offset)).expect("seek");
    let noise: Vec<u8> =
        (0..5000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    file.write_all(&noise).expect("write");
    drop(file);
    server.restart();
    assert_eq!(is_prefix(&server), 300);
    assert!(server.stop().success());
    server.must_be_sound();
}

/// The file of a relation.
fn relation_file(server: &Server, name: &str) -> (PathBuf, String) {
    let node = server.psql(&format!("select relfilenode from pg_class where relname = '{name}'"));
    let name = format!("base/{}", node.trim());
    (server.root().join(&name), name)
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("write");
}

/// A statement fails with this SQLSTATE and a message that contains `what`.
fn fails(server: &Server, sql: &str, state: &str, what: &str) {
    let out = run(server.client("psql").args([
        "-X",
        "-d",
        "postgres",
        "-v",
        "VERBOSITY=verbose",
        "-c",
        sql,
    ]));
    let shown = text(&out);
    assert!(shown.contains(&format!("ERROR:  {state}:")), "{sql}: {shown}");
    assert!(shown.contains(what), "{sql}: {shown}");
}

#[test]
fn a_damaged_page_is_an_error_that_names_it() {
    let mut server = Server::start();
    for table in ["good", "bad", "worse"] {
        server.psql(&format!(
            "create table {table} (n int primary key, w text); \
             insert into {table} select n, repeat('y', 100) from generate_series(1, 5000) n"
        ));
    }
    let (heap, heap_name) = relation_file(&server, "bad");
    let (index, index_name) = relation_file(&server, "worse_pkey");
    assert!(server.stop().success());
    server.must_be_sound();
    flip(&heap, 3 * 8192 + 5000);
    flip(&index, 8192 + 4321);
    let check = server.check();
    assert_eq!(check.status.code(), Some(1));
    let shown = text(&check);
    assert!(shown.contains(&format!("{heap_name} block 3: page verification failed")), "{shown}");
    assert!(shown.contains(&format!("{index_name} block 1: page verification failed")), "{shown}");
    server.restart();
    fails(
        &server,
        "select count(*), max(w) from bad",
        "XX001",
        &format!("block 3 of relation {heap_name}"),
    );
    fails(
        &server,
        "select w from worse where n = 17",
        "XX001",
        &format!("block 1 of relation {index_name}"),
    );
    // Everything else is there, in the same session too.
    let mixed = "select count(*), max(w) = 'x' from good; \
                 select w = repeat('y', 100) from bad where n = 5; \
                 select count(w) from worse";
    assert_eq!(server.psql(mixed), "5000|f\nt\n5000\n");
    // A damaged index is replaced.
    server.psql("alter table worse drop constraint worse_pkey");
    server.psql("alter table worse add primary key (n)");
    assert_eq!(server.psql("select length(w) from worse where n = 17"), "100\n");
    assert!(server.is_running());
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn a_damaged_commit_log_or_control_file_refuses_the_start() {
    let mut server = Server::start();
    server.psql("create table t (a int); insert into t values (1)");
    assert!(server.stop().success());
    let clog = server.root().join("pg_xact/0000");
    flip(&clog, 100);
    let refusal = refused(server.root(), &[]);
    refused_because(&refusal, "fails its checksum");
    flip(&clog, 100);
    let control = server.root().join("global/pg_control");
    flip(&control, 60);
    // One copy of two: nothing is lost.
    drop(Server::start_in(server.root(), &[]));
    flip(&control, 70);
    flip(&control, 4096 + 70);
    refused_because(&refused(server.root(), &[]), "pg_control");
}

/// A small file system; unmounted when dropped.
struct SmallDisk {
    dir: tempfile::TempDir,
    mount: &'static [&'static str],
}

impl SmallDisk {
    /// `None`: this account may not mount anything.
    fn new(megabytes: u32) -> Option<SmallDisk> {
        let dir = temporary();
        let owner = rustix::process::geteuid().as_raw();
        let options = format!("size={megabytes}m,mode=0700,uid={owner}");
        for mount in [&["mount"][..], &["sudo", "-n", "mount"]] {
            let out = Command::new(mount[0])
                .args(&mount[1..])
                .args(["-t", "tmpfs", "-o", &options, "inkling-test"])
                .arg(dir.path())
                .output();
            if out.is_ok_and(|o| o.status.success()) {
                return Some(SmallDisk { dir, mount });
            }
        }
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut words: Vec<&str> = self.mount.to_vec();
        *words.last_mut().expect("a word") = "umount";
        let _unmounted =
            Command::new(words[0]).args(&words[1..]).arg("-l").arg(self.dir.path()).status();
    }
}

/// Inserts until something fails; the rows that were acknowledged and the SQLSTATE.
fn fill(url: &str) -> (i64, String) {
    common::runtime().block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connect");
        tokio::spawn(connection);
        let start = client.query_one("select coalesce(max(n), 0) from big", &[]).await.expect("max");
        let mut n: i64 = start.get(0);
        loop {
            // Neither compressed nor moved out of the row.
            let sql = "insert into big select $1::bigint + k, (select string_agg(md5(($1::bigint * 100 + i)::text), '') \
                       from generate_series(1, 50) i) from generate_series(1, 20) k";
            match client.execute(sql, &[&n]).await {
                Ok(_) => n += 20,
                Err(e) => {
                    let code = e.code().map(|c| c.code().to_owned());
                    // The session goes on.
                    client.query("select 1", &[]).await.expect("the session is there");
                    return (n, code.unwrap_or_else(|| panic!("{e}")));
                }
            }
            assert!(n < 1_000_000, "the disk is never full");
        }
    })
}

fn disk_full_test(root: &Path, filler: &Path, settings: &[&str]) {
    let mut server = Server::start_in(root, settings);
    server.psql(
        "create table big (n bigint, w text); \
         create table small (n int primary key, v int); \
         insert into small select n, 0 from generate_series(1, 100) n",
    );
    let (told, state) = fill(&server.url());
    assert_eq!(state, "53100", "after {told} rows");
    // Readers go on; nothing that was acknowledged is gone.
    assert_eq!(server.psql("select count(*), max(n) from big"), format!("{told}|{told}\n"));
    assert_eq!(server.psql("select count(*) from small"), "100\n");
    // Writers are told the truth: done, or no space.
    let mut changed = 0;
    for n in 1..=20 {
        let out = server.try_psql(&format!("update small set v = v + 1 where n = {n}"));
        match out.status.success() {
            true => changed += 1,
            false => assert!(text(&out).contains("No space left on device"), "{}", text(&out)),
        }
    }
    assert_eq!(server.psql("select sum(v) from small"), format!("{changed}\n"));
    assert!(server.is_running());
    // Space comes back, and with it everything else.
    fs::remove_file(filler).expect("the filler goes");
    server.psql("update small set v = v + 1");
    server.psql("checkpoint");
    let more =
        "insert into big select 1000000 + n, repeat('z', 3000) from generate_series(1, 500) n";
    server.psql(more);
    let total = format!("{}\n", told + 500);
    assert_eq!(server.psql("select count(*) from big"), total);
    server.kill();
    server.restart();
    assert_eq!(server.psql("select count(*) from big"), total);
    assert_eq!(server.psql("select sum(v) from small"), format!("{}\n", changed + 100));
    assert!(server.stop().success());
    server.must_be_sound();
}

#[test]
fn a_full_disk_is_an_error_and_passes() {
    // The log takes its segments of 16 MB, some of them ahead.
    let settings = ["max_wal_size=32MB", "shared_buffers=4MB"];
    let Some(disk) = SmallDisk::new(220) else {
        return full_disk_without_mounting();
    };
    let filler = disk.dir.path().join("filler");
    fs::write(&filler, vec![1; 60 << 20]).expect("the filler");
    disk_full_test(&disk.dir.path().join("data"), &filler, &settings);
}

/// Without the right to mount, a limit on the size of files stands in for the full disk: every
/// write beyond it fails. It cannot be lifted while the server runs, so that part is left out.
fn full_disk_without_mounting() {
    let dir = temporary();
    let root = dir.path().join("data");
    let mut server = Server::start_in(&root, &["shared_buffers=4MB"]);
    server.psql("create table big (n bigint, w text); create table small (n int)");
    assert!(server.stop().success());
    let script = format!(
        "trap '' XFSZ; ulimit -f 40960; exec '{}' serve -D '{}' -p {} -c shared_buffers=4MB",
        env!("CARGO_BIN_EXE_inkling"),
        root.display(),
        server.port
    );
    let mut limited = Command::new("bash").args(["-c", &script]).spawn().expect("bash");
    while !server.try_psql("select 1").status.success() {
        assert!(limited.try_wait().expect("its status").is_none(), "the server did not start");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (told, state) = fill(&server.url());
    assert!(["53100", "58030"].contains(&state.as_str()), "{state}");
    assert_eq!(server.psql("select count(*) from big"), format!("{told}\n"));
    server.psql("insert into small values (1)");
    limited.kill().expect("the server is killed");
    limited.wait().expect("its status");
    server.restart();
    assert_eq!(server.psql("select count(*) from big"), format!("{told}\n"));
    assert_eq!(server.psql("select count(*) from small"), "1\n");
}
