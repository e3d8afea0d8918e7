//! A session in this thread whose answers can be held back, as a server's output buffer holds
//! them: what was executed, and what the client was told, are two moments.
//!
//! ```text
//!   run(sql) ──> rows, or an error         the commit is visible; nobody has been told
//!   told()   ──> the answer barrier        from here on the client knows
//! ```
#![allow(dead_code)]

use inkling_sql::analyze::statement::ParamTypes;
use inkling_sql::error::{Result, SqlError, State};
use inkling_sql::functions::FnContext;
use inkling_sql::session::{CopyInfo, Database, Progress, RowSink, Session, SessionParams};
use inkling_sql::types::{Datum, TypeRef};
use std::sync::Arc;

/// Values of a row: numbers and texts; anything else by its debug form.
pub type Values = Vec<Datum>;

#[derive(Default)]
struct Rows(Vec<Values>);

impl RowSink for Rows {
    fn row(&mut self, values: &[Datum], _: &[TypeRef], _: &dyn FnContext) -> Result<()> {
        self.0.push(values.to_vec());
        Ok(())
    }

    fn copy_out_begin(&mut self, _: CopyInfo) -> Result<()> {
        Err(SqlError::unsupported("COPY here"))
    }

    fn copy_data(&mut self, _: &[u8]) -> Result<()> {
        Err(SqlError::unsupported("COPY here"))
    }

    fn full(&self) -> bool {
        false
    }

    fn notice(&mut self, _: SqlError) {}
}

pub struct Client {
    session: Session,
}

impl Client {
    pub fn new(db: &Arc<Database>) -> Result<Client> {
        let params = SessionParams {
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            ..SessionParams::default()
        };
        Ok(Client { session: Session::new(db, params)? })
    }

    /// Executes one statement; commits it if it stands alone. Nobody has been told.
    pub fn run(&mut self, sql: &str) -> Result<Vec<Values>> {
        self.session.begin_message();
        let outcome = self.execute(sql);
        if outcome.is_err() {
            self.session.statement_failed();
        }
        outcome
    }

    fn execute(&mut self, sql: &str) -> Result<Vec<Values>> {
        let parsed = self.session.parse_statements(sql)?.pop();
        let prepared = self.session.prepare_parsed(parsed, ParamTypes::none())?;
        self.session.close_portal("");
        self.session.bind("", prepared, Vec::new())?;
        let mut rows = Rows::default();
        loop {
            match self.session.step("", &mut rows, 0)? {
                // Whoever could end the wait runs in this very thread.
                Progress::Wait(handle) if !handle.is_ready() => {
                    return Err(SqlError::new(State::LOCK_NOT_AVAILABLE, "would wait"));
                }
                Progress::Complete(_) => break,
                _ => {}
            }
        }
        self.session.finish_implicit()?;
        Ok(rows.0)
    }

    /// The answer barrier: on success the client knows everything that was executed so far.
    /// `writer` does what the log's writer does next.
    pub fn told(&mut self, mut writer: impl FnMut()) -> Result<()> {
        while let Some(flush) = self.session.answer_barrier()? {
            while !flush.is_ready() {
                writer();
            }
        }
        Ok(())
    }

    pub fn in_block(&self) -> bool {
        self.session.transaction_status() != b'I'
    }
}

/// A number in a row.
pub fn int(value: &Datum) -> i64 {
    match value {
        Datum::Int4(n) => i64::from(*n),
        Datum::Int8(n) => *n,
        other => panic!("not a number: {other:?}"),
    }
}

/// A text in a row; empty for a null.
pub fn string(value: &Datum) -> String {
    match value {
        Datum::Text(text) => text.to_string(),
        Datum::Null => String::new(),
        other => panic!("not a text: {other:?}"),
    }
}
