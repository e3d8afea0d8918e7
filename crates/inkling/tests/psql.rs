//! psql against a server: scripts whose whole output, psql's own included, is known.
//!
//! The scripts are `golden/psql/*.sql`, their outputs `*.out`. Where Inkling means to answer as
//! PostgreSQL does, the output is PostgreSQL 15's own. `INKLING_BLESS=1` rewrites the outputs.

mod common;

use common::{Server, golden, inkling, run, text};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/psql")
}

/// What psql shows of a script, errors in their places.
fn transcript(server: &Server, script: &Path) -> String {
    let out = script.with_extension("found");
    let file = tempfile::tempfile().expect("a temporary file");
    let status = server
        .client("psql")
        .args(["-X", "-a", "-q", "-d", "postgres"])
        .stdout(file.try_clone().expect("a second handle"))
        .stderr(file.try_clone().expect("a third handle"))
        .stdin(Stdio::from(File::open(script).expect("the script")))
        .status()
        .expect("psql runs (make deps installs it)");
    assert!(status.code().is_some_and(|c| c == 0 || c == 3), "{}: {status}", out.display());
    let mut file = file;
    std::io::Seek::rewind(&mut file).expect("rewind");
    let shown = std::io::read_to_string(file).expect("UTF-8");
    // Where in a server's source an error was raised is its own affair.
    let lines = shown.lines().filter(|line| !line.starts_with("LOCATION:"));
    let shown: String = lines.flat_map(|line| [line, "\n"]).collect();
    shown.replace(&format!("port \"{}\"", server.port), "port \"PORT\"")
}

fn check_script(name: &str) {
    check_script_with(name, &[]);
}

fn check_script_with(name: &str, settings: &[&str]) {
    let server = Server::start_with(settings);
    let script = scripts().join(name).with_extension("sql");
    golden(&script.with_extension("out"), &transcript(&server, &script));
}

#[test]
fn basics() {
    check_script("basics");
}

#[test]
fn errors() {
    check_script("errors");
}

#[test]
fn copy() {
    check_script("copy");
}

#[test]
fn foreign_keys() {
    check_script("foreign_keys");
}

#[test]
fn objects() {
    check_script("objects");
}

#[test]
fn cluster() {
    check_script("cluster");
}

#[test]
fn sequences() {
    check_script("sequences");
}

#[test]
fn durability() {
    check_script("durability");
}

#[test]
fn persistence() {
    check_script("persistence");
}

#[test]
fn two_phase() {
    check_script_with("two_phase", &["max_prepared_transactions=4"]);
}

#[test]
fn refusals() {
    check_script("refusals");
}

#[test]
fn every_script_has_a_test() {
    let tested = [
        "basics",
        "cluster",
        "copy",
        "durability",
        "errors",
        "foreign_keys",
        "objects",
        "persistence",
        "refusals",
        "sequences",
        "two_phase",
    ];
    let mut found: Vec<String> = fs::read_dir(scripts())
        .expect("the scripts")
        .flatten()
        .filter(|e| e.path().extension().is_some_and(|e| e == "sql"))
        .map(|e| e.path().with_extension("").file_name().expect("a name").to_string_lossy().into())
        .collect();
    found.sort();
    assert_eq!(found, tested);
}

#[test]
fn client_side_copy_to_and_from_files() {
    let server = Server::start();
    let dir = common::temporary();
    let (a, b) = (dir.path().join("a.csv"), dir.path().join("b.csv"));
    fs::write(&a, "1,one\n2,\"two, or more\"\n3,\n").expect("write");
    server.psql("create table t (n int, w text)");
    let copy = |sql: String| {
        let mut psql = server.client("psql");
        let out =
            run(psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", &sql]));
        assert!(out.status.success(), "{}", text(&out));
    };
    copy(format!("\\copy t from '{}' with (format csv)", a.display()));
    assert_eq!(server.psql("select count(*), count(w), sum(n) from t"), "3|2|6\n");
    copy(format!("\\copy (select * from t order by n) to '{}' with (format csv)", b.display()));
    assert_eq!(fs::read(&a).expect("read"), fs::read(&b).expect("read"));
}

#[test]
fn the_program_tells_its_version_and_what_it_takes() {
    let out = inkling(&["--version"]);
    assert!(text(&out).starts_with("inkling 0."), "{}", text(&out));
    let out = inkling(&["serve", "--help"]);
    assert!(out.status.success() && text(&out).contains("-h, --host"), "{}", text(&out));
}

#[test]
fn the_log_can_be_read_while_the_server_runs() {
    let server = Server::start();
    server.psql("create table t (a int); insert into t select generate_series(1, 100)");
    let root = server.root().to_str().expect("a path");
    let out = inkling(&["waldump", "-D", root]);
    assert!(out.status.success(), "{}", text(&out));
    let dump = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(dump.contains("rmgr: Heap") && dump.contains("COMMIT"), "{dump}");
    assert!(dump.contains("the log ends at"), "{dump}");
    let rel = server.psql("select relfilenode from pg_class where relname = 't'");
    let of_t = inkling(&["waldump", "-D", root, "--relation", rel.trim()]);
    let of_t = String::from_utf8_lossy(&of_t.stdout).into_owned();
    assert!(of_t.contains(&format!("rel {} blk 0", rel.trim())), "{of_t}");
    assert!(of_t.contains("insert 1 xmin"), "{of_t}");
    let few = inkling(&["waldump", "-D", root, "--limit", "2"]);
    assert_eq!(String::from_utf8_lossy(&few.stdout).lines().count(), 2);
    let nowhere = inkling(&["waldump", "-D", "/no/such/directory"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere).contains("is not a data directory"), "{}", text(&nowhere));
}

#[test]
fn slow_statements_are_logged_and_settings_that_would_do_nothing_refused() {
    let server = Server::start();
    server.psql("select 'quick'");
    server.psql("set log_min_duration_statement = 0; select 'slow'");
    let log = server.log();
    assert!(log.contains(" ms  statement: ") && log.contains("select 'slow'"), "{log}");
    assert!(!log.contains("select 'quick'"), "{log}");
    for name in ["autovacuum_naptime", "cluster_name"] {
        let out = server.try_psql(&format!("set {name} = 5"));
        let unknown = format!("unrecognized configuration parameter \"{name}\"");
        assert!(text(&out).contains(&unknown), "{}", text(&out));
    }
    assert_eq!(server.psql("show autovacuum").trim(), "off");
}

/// Sessions that insert rows with serial numbers, read what they were given, and are cut off by a
/// kill: what one of them printed is a number that nobody gets again.
#[test]
fn numbers_of_serial_columns_are_given_once_whatever_happens() {
    const SESSIONS: usize = 6;
    let mut server = Server::start();
    server.psql(
        "create table t (id bigserial primary key, s smallserial,
         i int generated always as identity, who int); create sequence told;
         insert into t (who) values (0)",
    );
    let script = |who: usize| {
        let insert = format!("insert into t (who) values ({who}) returning id, s, i;\n");
        let more = "insert into t (who) select 0 from generate_series(1, 3);\n";
        format!("{insert}{more}select 'told', nextval('told');\n").repeat(400)
    };
    let mut seen: BTreeSet<i64> = BTreeSet::new();
    let mut told: BTreeSet<i64> = BTreeSet::new();
    for life in 0..3 {
        let mut sessions: Vec<_> = (1..=SESSIONS)
            .map(|who| {
                let mut psql = server.client("psql");
                psql.args(["-X", "-A", "-t", "-q", "-d", "postgres"]);
                let file = tempfile::tempfile().expect("a temporary file");
                std::io::Write::write_all(&mut &file, script(who).as_bytes()).expect("written");
                std::io::Seek::rewind(&mut &file).expect("rewind");
                psql.stdin(Stdio::from(file)).stdout(Stdio::piped()).stderr(Stdio::null());
                psql.spawn().expect("psql runs")
            })
            .collect();
        if life < 2 {
            std::thread::sleep(std::time::Duration::from_millis(150 + 100 * life));
            server.kill();
        }
        for session in &mut sessions {
            let mut out = String::new();
            let stdout = session.stdout.as_mut().expect("piped");
            std::io::Read::read_to_string(stdout, &mut out).expect("UTF-8");
            session.wait().expect("psql ends");
            for line in out.lines() {
                let number = |text: &str| text.parse::<i64>().expect("a number");
                let (set, value) = match line.split('|').collect::<Vec<_>>().as_slice() {
                    ["told", value] => (&mut told, number(value)),
                    [id, ..] => (&mut seen, number(id)),
                    [] => continue,
                };
                assert!(set.insert(value), "{line} was given twice");
            }
        }
        if life < 2 {
            server.must_be_sound();
            server.restart();
        }
        let found = server.psql(
            "select count(*) - count(distinct id), count(*) - count(distinct s),
             count(*) - count(distinct i), min(id) from t",
        );
        assert_eq!(found, "0|0|0|1\n");
    }
    assert!(seen.len() > 400 && told.len() > 400, "{} and {}", seen.len(), told.len());
    let ids = server.psql("select id from t where who > 0");
    let there: BTreeSet<i64> = ids.lines().map(|l| l.parse().expect("a number")).collect();
    assert!(seen.is_subset(&there), "rows whose numbers were told are there");
    let root = server.root().to_str().expect("a path").to_owned();
    let dump = inkling(&["waldump", "-D", &root]);
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let logged = dump.lines().find(|l| l.contains("rmgr: Sequence")).expect("a batch in the log");
    assert!(logged.contains("last_value") && logged.contains("is_called t"), "{logged}");
    server.stop();
    server.must_be_sound();
}
