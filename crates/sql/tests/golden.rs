//! Golden scripts: SQL in `scripts/NAME.sql`, what it answers in `scripts/NAME.out`.
//!
//! Each script runs in a new data directory on the simulated disk, statement by statement, as
//! psql would send it; rows are printed with `|` between columns, errors with their SQLSTATE,
//! position, detail and hint. `UPDATE_GOLDEN=1 cargo test -p inkling-sql --test golden` rewrites
//! the expected files; the diff is for review. A line `-- session NAME` switches to another session
//! (made when first named).

use inkling_sql::analyze::statement::ParamTypes;
use inkling_sql::error::{Result, SqlError};
use inkling_sql::functions::FnContext;
use inkling_sql::session::{
    ColumnDesc, CopyInfo, Database, Progress, RowSink, Session, SessionParams,
};
use inkling_sql::settings::ServerSettings;
use inkling_sql::types::{self, Datum, TypeRef};
use inkling_storage::engine::testing::open_for_test;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

#[derive(Default)]
struct Text(String);

impl RowSink for Text {
    fn row(&mut self, values: &[Datum], tys: &[TypeRef], cx: &dyn FnContext) -> Result<()> {
        let mut cells = Vec::new();
        for (value, ty) in values.iter().zip(tys) {
            let mut out = Vec::new();
            if value.is_null() {
                out.extend_from_slice("∅".as_bytes());
            } else {
                types::output(value, ty.oid, cx, &mut out);
            }
            cells.push(String::from_utf8_lossy(&out).into_owned());
        }
        self.0.push_str(&cells.join("|"));
        self.0.push('\n');
        Ok(())
    }
    fn copy_out_begin(&mut self, _info: CopyInfo) -> Result<()> {
        Ok(())
    }
    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        self.0.push_str(&String::from_utf8_lossy(data));
        Ok(())
    }
    fn full(&self) -> bool {
        false
    }
    fn columns(&mut self, columns: &[ColumnDesc]) -> Result<()> {
        header(&mut self.0, columns);
        Ok(())
    }
    fn notice(&mut self, notice: SqlError) {
        show_error(&mut self.0, &notice);
    }
}

fn header(out: &mut String, columns: &[ColumnDesc]) {
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    out.push_str(&names.join("|"));
    out.push('\n');
}

fn show_error(out: &mut String, e: &SqlError) {
    let _ = write!(out, "{}: {} [{}]", e.severity.as_str(), e.message(), e.state.code());
    if let Some(position) = e.get_position() {
        let _ = write!(out, " at {position}");
    }
    out.push('\n');
    for (what, text) in
        [("DETAIL", e.get_detail()), ("HINT", e.get_hint()), ("CONTEXT", e.get_context())]
    {
        if let Some(text) = text {
            let _ = writeln!(out, "{what}: {text}");
        }
    }
}

fn step_to_end(session: &mut Session, sink: &mut Text, copy: &str) -> Result<String> {
    loop {
        match session.step("", sink, 0)? {
            Progress::Wait(handle) => {
                if !handle.block_for(std::time::Duration::from_secs(5)) {
                    return Err(SqlError::internal("the script waits for ever"));
                }
            }
            Progress::FlushRows | Progress::Suspended => {}
            Progress::CopyIn(_) => {
                session.copy_data("", copy.as_bytes())?;
                session.copy_done("")?;
            }
            Progress::Complete(tag) => return Ok(tag.to_string()),
        }
    }
}

/// Runs one query string; what follows a COPY FROM STDIN up to `\.` is its data.
fn run(session: &mut Session, sql: &str, copy: &str, out: &mut String) {
    session.begin_message();
    let mut sink = Text::default();
    let result = (|| -> Result<()> {
        for statement in session.parse_statements(sql)? {
            let prepared = session.prepare_parsed(Some(statement), ParamTypes::none(), false)?;
            session.close_portal("");
            session.bind("", prepared, Vec::new())?;
            let portal = session.portal("")?;
            if let Some(columns) = portal.columns().filter(|_| !portal.tells_columns()) {
                header(&mut sink.0, columns);
            }
            let tag = step_to_end(session, &mut sink, copy)?;
            session.finish_implicit()?;
            let _ = writeln!(sink.0, "{tag}");
        }
        Ok(())
    })();
    if let Err(e) = result {
        session.statement_failed();
        show_error(&mut sink.0, &e);
    }
    for notice in session.take_notices() {
        show_error(out, &notice);
    }
    out.push_str(&sink.0);
}

/// Splits a script into query strings (ended by a semicolon at a line's end) with COPY data.
fn pieces(script: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut sql, mut copying) = (String::new(), false);
    for line in script.lines() {
        if copying {
            if line == "\\." {
                copying = false;
            } else if let Some(last) = found.last_mut() {
                last.1.push_str(line);
                last.1.push('\n');
            }
            continue;
        }
        if sql.is_empty() && (line.trim().is_empty() || line.starts_with("--")) {
            if line.starts_with("-- session") {
                found.push((line.to_owned(), String::new()));
            }
            continue;
        }
        sql.push_str(line);
        sql.push('\n');
        if line.trim_end().ends_with(';') {
            copying = sql.to_lowercase().contains("from stdin");
            found.push((std::mem::take(&mut sql), String::new()));
        }
    }
    found
}

fn run_script(script: &str) -> String {
    let engine = open_for_test();
    let db = Database::open(engine, ServerSettings::default()).expect("a database");
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let mut current = "main".to_owned();
    let mut out = String::new();
    for (sql, copy) in pieces(script) {
        if let Some(name) = sql.strip_prefix("-- session ") {
            current = name.trim().to_owned();
            let _ = writeln!(out, "-- session {current}");
            continue;
        }
        let pid = sessions.len() as i32 + 100;
        let session = sessions.entry(current.clone()).or_insert_with(|| new_session(&db, pid));
        out.push_str(&sql);
        run(session, &sql, &copy, &mut out);
        out.push('\n');
    }
    out
}

fn new_session(db: &Arc<Database>, pid: i32) -> Session {
    let params = SessionParams {
        user: "postgres".into(),
        database: "postgres".into(),
        pid,
        ..SessionParams::default()
    };
    Session::new(db, params).expect("a session")
}

#[test]
fn scripts_answer_as_recorded() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(dir).expect("the scripts").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "sql") {
            continue;
        }
        count += 1;
        let script = std::fs::read_to_string(&path).expect("UTF-8 SQL");
        let got = run_script(&script);
        let expected_path = path.with_extension("out");
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if update {
            std::fs::write(&expected_path, &got).expect("the expected file");
        } else if got != expected {
            let differs = got.lines().zip(expected.lines()).position(|(a, b)| a != b);
            let at = differs.unwrap_or(expected.lines().count().min(got.lines().count()));
            let line = |t: &str| t.lines().nth(at).unwrap_or("(nothing)").to_owned();
            wrong.push(format!(
                "{}:{}:\n  expected {}\n  got      {}",
                expected_path.display(),
                at + 1,
                line(&expected),
                line(&got)
            ));
        }
    }
    assert!(count > 0, "there are scripts");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
