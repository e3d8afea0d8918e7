//! pgbench against a server: its built-in scripts in every protocol mode, and the server killed
//! under it again and again.
//!
//! The first oracle is pgbench's own: every transaction moves one amount through accounts,
//! tellers, branches and the history, so the four sums agree at any moment. The second is what
//! pgbench was told: each transaction marks its row of the history with client and number, and
//! pgbench's log says which ones were acknowledged; every one of those must be there after a crash.
//! The third is `inkling check`.
//!
//! `INKLING_KILLS` sets how many times the server is killed (5).

mod common;

use common::{Server, from_env, run, temporary, text};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn pgbench(server: &Server) -> Command {
    // Debian keeps pgbench beside the server, off the path.
    let mut places: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("bin/pgbench"))
        .filter(|p| p.exists())
        .collect();
    places.sort();
    let program = places.pop().unwrap_or_else(|| "pgbench".into());
    server.client(program.to_str().expect("a path"))
}

fn load(server: &Server, scale: u32) {
    let out = run(pgbench(server).args(["-i", "-q", "-s", &scale.to_string(), "postgres"]));
    assert!(out.status.success(), "{}", text(&out));
    let counts = "select (select count(*) from pgbench_accounts), \
                  (select count(*) from pgbench_tellers), (select count(*) from pgbench_branches)";
    let expected = format!("{}|{}|{scale}\n", scale * 100_000, scale * 10);
    assert_eq!(server.psql(counts), expected);
}

/// The four sums, which must be one number.
fn sums_agree(server: &Server) {
    let sums = server.psql(
        "select coalesce((select sum(abalance) from pgbench_accounts), 0), \
         coalesce((select sum(tbalance) from pgbench_tellers), 0), \
         coalesce((select sum(bbalance) from pgbench_branches), 0), \
         coalesce((select sum(delta) from pgbench_history), 0)",
    );
    let mut numbers = sums.trim().split('|');
    let first = numbers.next().expect("a sum");
    assert!(numbers.all(|n| n == first), "accounts, tellers, branches, history: {sums}");
}

/// Transactions that pgbench says it made.
fn processed(out: &std::process::Output) -> u64 {
    let shown = text(out);
    let line = shown.lines().find(|l| l.starts_with("number of transactions actually processed"));
    let number = line.and_then(|l| l.rsplit(": ").next()).and_then(|n| n.split('/').next());
    number.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{shown}"))
}

fn bench(server: &Server, script: &str, mode: &str, clients: &str, seconds: &str) -> u64 {
    let out = run(pgbench(server).args([
        "-n", "-b", script, "-M", mode, "-c", clients, "-j", "2", "-T", seconds, "postgres",
    ]));
    let shown = text(&out);
    assert!(out.status.success(), "{script} {mode}: {shown}");
    assert!(!shown.contains("ERROR") && !shown.contains("aborted"), "{script} {mode}: {shown}");
    processed(&out)
}

#[test]
fn built_in_scripts_in_every_mode() {
    let server = Server::start();
    load(&server, 2);
    let mut written = 0;
    for (mode, clients) in [("simple", "8"), ("extended", "12"), ("prepared", "16")] {
        for script in ["tpcb-like", "simple-update", "select-only"] {
            let made = bench(&server, script, mode, clients, "3");
            assert!(made > 0, "{script} {mode} made nothing");
            // simple-update leaves tellers and branches alone, so the sums would differ.
            if script == "tpcb-like" {
                sums_agree(&server);
            }
            if script == "simple-update" {
                let lost = "update pgbench_tellers set tbalance = 0; \
                            update pgbench_branches set bbalance = 0; \
                            update pgbench_accounts set abalance = 0 where abalance <> 0";
                server.psql(lost);
                let rows = server.psql("select count(*) from pgbench_history");
                written += made;
                assert!(rows.trim().parse::<u64>().expect("a count") >= written, "{rows}");
                server.psql("truncate pgbench_history");
                written = 0;
            }
        }
    }
    let mut server = server;
    assert!(server.stop().success());
    server.must_be_sound();
}

/// The tables with their foreign keys: loaded, run, loaded again over the old ones.
#[test]
fn foreign_keys_hold_under_the_load() {
    let server = Server::start();
    let out = run(pgbench(&server).args(["-i", "-q", "--foreign-keys", "-s", "1", "postgres"]));
    assert!(out.status.success(), "{}", text(&out));
    let keys = "select count(*) from pg_constraint where contype = 'f' and convalidated";
    assert_eq!(server.psql(keys), "5\n");
    for mode in ["simple", "prepared"] {
        assert!(bench(&server, "tpcb-like", mode, "8", "2") > 0, "{mode}");
        sums_agree(&server);
    }
    let orphans = "select count(*) from pgbench_history h left join pgbench_accounts a using (aid) \
                   where a.aid is null";
    assert_eq!(server.psql(orphans), "0\n");
    let out = run(pgbench(&server).args(["-i", "-q", "--foreign-keys", "-s", "1", "postgres"]));
    assert!(out.status.success(), "{}", text(&out));
    let mut server = server;
    assert!(server.stop().success());
    server.must_be_sound();
}

#[test]
fn vacuum_goes_on_beside_the_load() {
    let server = Server::start();
    load(&server, 1);
    let child = pgbench(&server)
        .args(["-n", "-M", "prepared", "-c", "8", "-j", "2", "-T", "6", "postgres"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pgbench");
    for _ in 0..4 {
        server.psql("vacuum pgbench_accounts");
        server.psql("vacuum pgbench_tellers");
        server.psql("vacuum pgbench_branches");
        server.psql("checkpoint");
    }
    let out = child.wait_with_output().expect("pgbench's output");
    assert!(out.status.success(), "{}", text(&out));
    sums_agree(&server);
    let mut server = server;
    assert!(server.stop().success());
    server.must_be_sound();
}

/// The TPC-B transaction, its history row marked with who made it and which one it is.
const MARKED: &str = r"
\set seq :seq + 1
\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
\set mark (:round * 1000 + :client_id) * 10000000 + :seq
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, mark)
  VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP, :mark);
END;
";

fn mark(round: u64, client: u64, number: u64) -> u64 {
    (round * 1000 + client) * 10_000_000 + number
}

/// Runs the marked script until the server is killed; the marks that were acknowledged.
fn killed_round(server: &mut Server, dir: &Path, round: u64, mode: &str) -> HashSet<u64> {
    let script = dir.join("marked.sql");
    fs::write(&script, MARKED).expect("the script");
    let prefix = format!("round{round}");
    let child = pgbench(server)
        .current_dir(dir)
        .args(["-n", "-M", mode, "-c", "12", "-j", "2", "-T", "60", "-l"])
        .args(["--log-prefix", &prefix, "-s", "1"])
        .args(["-D", "seq=0", "-D", &format!("round={round}"), "-f"])
        .arg(&script)
        .arg("postgres")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pgbench");
    // Another moment each time, inside checkpoints too.
    if round.is_multiple_of(2) {
        std::thread::sleep(Duration::from_millis(400));
        let _beside = server.try_psql("checkpoint");
    }
    std::thread::sleep(Duration::from_millis(700 + round * 517 % 1900));
    server.kill();
    let out = child.wait_with_output().expect("pgbench's output");
    let mut acknowledged = HashSet::new();
    for entry in fs::read_dir(dir).expect("the logs").flatten() {
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        for line in fs::read_to_string(entry.path()).expect("a log").lines() {
            let mut words = line.split(' ').map(|w| w.parse::<u64>().expect("a number"));
            let (client, number) = (words.next().expect("client"), words.next().expect("number"));
            acknowledged.insert(mark(round, client, number));
        }
        fs::remove_file(entry.path()).expect("the log goes");
    }
    assert!(!acknowledged.is_empty(), "nothing was done before the kill: {}", text(&out));
    acknowledged
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let dir = temporary();
    let mut server = Server::start_with(&["synchronous_commit=on", "max_wal_size=32MB"]);
    load(&server, 1);
    server.psql("alter table pgbench_history add column mark bigint");
    let mut acknowledged = HashSet::new();
    for round in 1..=from_env("INKLING_KILLS", 5) {
        let mode = ["prepared", "simple", "extended"][round as usize % 3];
        acknowledged.extend(killed_round(&mut server, dir.path(), round, mode));
        if round % 2 == 1 {
            // The check replays the log itself.
            server.must_be_sound();
        }
        server.restart();
        sums_agree(&server);
        let marks = server.psql("select mark from pgbench_history where mark is not null");
        let there: Vec<u64> = marks.lines().map(|l| l.parse().expect("a mark")).collect();
        let distinct: HashSet<u64> = there.iter().copied().collect();
        assert_eq!(distinct.len(), there.len(), "round {round}: a transaction is there twice");
        let lost: Vec<&u64> = acknowledged.iter().filter(|m| !distinct.contains(*m)).collect();
        assert!(
            lost.is_empty(),
            "round {round}: {} acknowledged commits are lost, such as {:?}",
            lost.len(),
            &lost[..lost.len().min(5)]
        );
    }
    assert!(server.stop().success());
    server.must_be_sound();
}
