//! Answers: SQL statements of one or more sessions and what they answer, one file a topic.
//!
//! ```text
//!   select 1 as one;            a statement, up to its semicolon at the end of a line
//!   ----
//!   one                         the answer, up to an empty line
//!   1
//!   SELECT 1
//!
//!   b: update t set x = 1;      the same in session b (without a name: session a)
//!   ----
//!   (waits)                     the session is blocked; statements of others follow ...
//!
//!   b: ...                      ... and this goes on with it
//!   ----
//!   UPDATE 1
//!
//!   @sleep;                     gives the deadlock detector its time
//! ```
//!
//! `REWRITE=1 cargo test -p inkling-sql --test answers` writes what came out; the diff is reviewed.

mod common;

use inkling_sql::error::{Result, SqlError};
use inkling_sql::functions::FnContext;
use inkling_sql::session::{ColumnDesc, CopyInfo, Database, Prepared, Progress, RowSink, Session};
use inkling_sql::settings::ServerSettings;
use inkling_sql::types::{self, Datum, TypeRef};
use inkling_storage::engine::{Engine, EngineOptions};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Writes rows as lines, columns separated by a bar.
#[derive(Default)]
struct Lines {
    out: String,
}

impl RowSink for Lines {
    fn row(&mut self, values: &[Datum], tys: &[TypeRef], cx: &dyn FnContext) -> Result<()> {
        let mut line = Vec::new();
        for (i, (value, ty)) in values.iter().zip(tys).enumerate() {
            if i > 0 {
                line.extend_from_slice(b" | ");
            }
            match value {
                Datum::Null => line.extend_from_slice(b"NULL"),
                value => types::output(value, ty.oid, cx, &mut line),
            }
        }
        self.out.push_str(String::from_utf8_lossy(&line).trim_end());
        self.out.push('\n');
        Ok(())
    }
    fn columns(&mut self, columns: &[ColumnDesc]) -> Result<()> {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let _ = writeln!(self.out, "{}", names.join(" | "));
        Ok(())
    }
    fn copy_out_begin(&mut self, _info: CopyInfo) -> Result<()> {
        Ok(())
    }
    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        self.out.push_str(&String::from_utf8_lossy(data));
        Ok(())
    }
    fn full(&self) -> bool {
        false
    }
    fn notice(&mut self, notice: SqlError) {
        let _ = writeln!(self.out, "{notice}");
    }
}

/// How long a statement may take before it counts as blocked.
const PATIENCE: Duration = Duration::from_millis(300);

struct Client {
    session: Session,
    blocked: bool,
    sink: Lines,
}

impl Client {
    fn new(db: &Arc<Database>, pid: i32) -> Client {
        let session = common::session(db, pid);
        Client { session, blocked: false, sink: Lines::default() }
    }

    fn run(&mut self, sql: &str, copy: Option<&str>) -> String {
        if !self.blocked {
            self.session.begin_message();
            if let Err(e) = self.start(sql) {
                return self.failed(&e);
            }
        }
        self.blocked = false;
        match self.drive(copy) {
            Ok(true) => std::mem::take(&mut self.sink.out),
            Ok(false) => {
                self.blocked = true;
                "(waits)\n".to_owned()
            }
            Err(e) => self.failed(&e),
        }
    }

    /// Runs a query that came before as the statement that is kept for its text, if one is.
    fn run_again(&mut self, sql: &str) -> Option<String> {
        let (prepared, values) = self.session.recall(sql)?;
        self.session.begin_message();
        let outcome = self.start_prepared(prepared, values).and_then(|()| self.drive(None));
        Some(match outcome {
            Ok(true) => std::mem::take(&mut self.sink.out),
            Ok(false) => "(waits)\n".to_owned(),
            Err(e) => self.failed(&e),
        })
    }

    fn start(&mut self, sql: &str) -> Result<()> {
        let mut parsed = self.session.parse_statements(sql)?;
        assert_eq!(parsed.len(), 1, "one statement at a time: {sql}");
        let params = inkling_sql::analyze::ParamTypes::none();
        let prepared = self.session.prepare_parsed(parsed.pop(), params)?;
        self.start_prepared(prepared, Vec::new())
    }

    fn start_prepared(&mut self, prepared: Arc<Prepared>, values: Vec<Datum>) -> Result<()> {
        let columns = prepared.columns().map(<[ColumnDesc]>::to_vec);
        self.session.bind("", prepared, values)?;
        if let (Some(columns), false) = (columns, self.session.portal("")?.tells_columns()) {
            self.sink.columns(&columns)?;
        }
        Ok(())
    }

    /// False: blocked.
    fn drive(&mut self, copy: Option<&str>) -> Result<bool> {
        loop {
            match self.session.step("", &mut self.sink, 0)? {
                Progress::Wait(handle) => {
                    if !handle.block_for(PATIENCE) {
                        return Ok(false);
                    }
                }
                Progress::CopyIn(_) => {
                    let data = copy.unwrap_or_default().as_bytes();
                    self.session.copy_data("", std::iter::once(data))?;
                    self.session.copy_done("")?;
                }
                Progress::FlushRows | Progress::Suspended => {}
                Progress::Complete(tag) => {
                    self.session.finish_implicit()?;
                    while let Some(handle) = self.session.answer_barrier()? {
                        handle.block();
                    }
                    self.notices();
                    let _ = writeln!(self.sink.out, "{tag}");
                    return Ok(true);
                }
            }
        }
    }

    fn notices(&mut self) {
        for n in self.session.take_notices() {
            let _ = writeln!(self.sink.out, "{n}");
        }
    }

    fn failed(&mut self, e: &SqlError) -> String {
        self.session.statement_failed();
        self.notices();
        let out = &mut self.sink.out;
        let _ = writeln!(out, "{e} ({})", e.state.code());
        if let Some(detail) = e.get_detail().filter(|_| e.state.code() != "40P01") {
            let _ = writeln!(out, "DETAIL:  {detail}");
        }
        if let Some(hint) = e.get_hint() {
            let _ = writeln!(out, "HINT:  {hint}");
        }
        if let Some(context) = e.get_context() {
            let _ = writeln!(out, "CONTEXT:  {context}");
        }
        std::mem::take(&mut self.sink.out)
    }
}

/// One statement with the answer that the file has.
struct Piece {
    /// Comments and empty lines before it.
    before: String,
    client: String,
    sql: String,
    copy: Option<String>,
    text: String,
}

fn pieces(file: &str) -> Vec<Piece> {
    let mut out = Vec::new();
    let (mut before, mut text) = (String::new(), String::new());
    let mut lines = file.lines();
    while let Some(line) = lines.next() {
        if text.is_empty() && (line.is_empty() || line.starts_with('#')) {
            before.push_str(line);
            before.push('\n');
            continue;
        }
        if line != "----" {
            text.push_str(line);
            text.push('\n');
            continue;
        }
        for answer in lines.by_ref() {
            if answer.is_empty() {
                break;
            }
        }
        let (sql, copy) = match text.split_once(";\n") {
            Some((sql, data)) if !data.is_empty() => (sql.to_owned(), Some(data.to_owned())),
            _ => (text.trim_end().trim_end_matches(';').to_owned(), None),
        };
        let (client, sql) = match sql.split_once(": ") {
            Some((name, rest)) if name.len() == 1 => (name.to_owned(), rest.to_owned()),
            _ => ("a".to_owned(), sql),
        };
        let before = std::mem::take(&mut before);
        out.push(Piece { before, client, sql, copy, text: std::mem::take(&mut text) });
    }
    out
}

/// Whether a statement answers the same when it is run again.
fn repeatable(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    let query = ["select", "values", "with"].iter().any(|w| sql.starts_with(w));
    let changes = ["insert", "update", "delete", "nextval", "random", "now(", "clock", "uuid"];
    query && !changes.iter().any(|w| sql.contains(w))
}

fn run_script(path: &Path) -> (String, String) {
    let file = std::fs::read_to_string(path).expect("a script");
    let dir = tempfile::tempdir().expect("a directory");
    let options = EngineOptions { fsync: false, ..EngineOptions::default() };
    let (engine, _) = Engine::open_dir(dir.path(), options).expect("an engine");
    let db = Database::open(engine, ServerSettings::default()).expect("a database");
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    let mut out = String::new();
    for p in pieces(&file) {
        if p.sql == "@sleep" {
            // Longer than deadlock_timeout.
            std::thread::sleep(Duration::from_millis(1500));
            let _ = writeln!(out, "{}{}----\n", p.before, p.text);
            continue;
        }
        let pid = clients.len() as i32 + 1;
        let client = clients.entry(p.client).or_insert_with(|| Client::new(&db, pid));
        let answer = client.run(&p.sql, p.copy.as_deref());
        if repeatable(&p.sql) && !client.blocked {
            // Comes for the first, the second, the third time: the last two may be recalled.
            for _ in 0..3 {
                let again = client.run_again(&p.sql);
                assert_eq!(again.as_ref().unwrap_or(&answer), &answer, "recalled: {}", p.sql);
            }
        }
        let _ = writeln!(out, "{}{}----\n{answer}", p.before, p.text);
    }
    drop(clients);
    (file, out)
}

#[test]
fn scripts_answer_what_they_say() {
    let dir: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers");
    let rewrite = std::env::var_os("REWRITE").is_some();
    let only = std::env::var("SCRIPT").ok();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("scripts").map(|f| f.expect("a file").path()).collect();
    files.sort();
    let mut failed = Vec::new();
    for path in files {
        if only.as_ref().is_some_and(|o| !path.to_string_lossy().contains(o.as_str())) {
            continue;
        }
        let (file, out) = run_script(&path);
        if rewrite {
            std::fs::write(&path, &out).expect("written");
        } else if file.trim_end() != out.trim_end() {
            for (i, (a, b)) in file.lines().zip(out.lines()).enumerate() {
                if a != b {
                    failed.push(format!("{}:{}: {a:?} is {b:?}", path.display(), i + 1));
                    break;
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn statements_that_differ_in_literals_are_one_prepared_statement() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = EngineOptions { fsync: false, ..EngineOptions::default() };
    let (engine, _) = Engine::open_dir(dir.path(), options).expect("an engine");
    let db = Database::open(engine, ServerSettings::default()).expect("a database");
    let mut client = Client::new(&db, 1);
    for sql in [
        "create table t (a int primary key, s varchar(3))",
        "create table partial (a int, b int)",
        "create index on partial (a) where b = 1",
        "insert into t select i, i::text from generate_series(1, 9) i",
    ] {
        client.run(sql, None);
    }
    let found = |text: &str| Some(text.to_owned());
    let mut again = |sql: &str| client.run_again(sql);
    // The first time is only remembered.
    assert_eq!(again("select s from t where a = 5 - -1"), None);
    assert_eq!(again("select s from t where a = 7 - -2"), found("s\n9\nSELECT 1\n"));
    assert_eq!(again("select s from t where a = 1 - -2"), found("s\n3\nSELECT 1\n"));
    // Another statement: with another type the comparison is another.
    assert_eq!(again("select s from t where a = 1.0 - -2"), None);
    assert_eq!(again("update t set s = 'x' where a = 1"), None);
    assert_eq!(again("update t set s = 'it''' where a = 2"), found("UPDATE 1\n"));
    assert_eq!(again("select s from t where a = 0 - -2"), found("s\nit'\nSELECT 1\n"));
    // What its type does not take is for the ordinary path to say, where the position is known.
    assert_eq!(again("update t set s = 's' where a = '1'"), None);
    assert_eq!(again("update t set s = 's' where a = '1'"), found("UPDATE 1\n"));
    assert_eq!(again("update t set s = 's' where a = 'one'"), None);
    // An interval's fields, an index's condition: the values matter.
    for sql in ["select '5'::interval minute", "select a from partial where a = 2 and b = 1"] {
        (0..3).for_each(|_| assert_eq!(again(sql), None, "{sql}"));
    }
    // What else a plan depends on makes it anew.
    client.run("alter table t alter column s set default 'd'", None);
    assert_eq!(client.run_again("select s from t where a = 1 - -2"), found("s\n3\nSELECT 1\n"));
    let date = "select '2024-05-06'::date::text || 'x' from t where a = 1";
    client.run("set datestyle = 'German'", None);
    (0..3).for_each(|_| {
        let out = client.run_again(date);
        assert!(out.is_none_or(|out| out.contains("06.05.2024x")));
    });
    client.run("set datestyle = 'ISO'", None);
    assert!(client.run_again(date).is_none_or(|out| out.contains("2024-05-06x")));
    client.run("set statement_cache_size = 0", None);
    assert_eq!(client.run_again("select s from t where a = 1 - -2"), None);
}
