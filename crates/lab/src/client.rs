//! One connection, simple queries, and the answers that experiments want: one value, a time, a
//! position in the log.

use crate::LabError;
use postgres::types::ToSql;
use postgres::{Config, NoTls, SimpleQueryMessage, Statement};
use std::time::{Duration, Instant};

/// A statement that the server has planned.
pub struct Prepared {
    statement: Statement,
    sql: String,
}

/// A connection to a subject.
pub struct Client {
    subject: String,
    inner: postgres::Client,
}

impl Client {
    pub fn connect(subject: &str, port: u16) -> Result<Client, LabError> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user("postgres").dbname("postgres");
        config.application_name("inkling lab").connect_timeout(Duration::from_secs(10));
        let inner = config.connect(NoTls).map_err(|source| LabError::Connect {
            subject: subject.to_owned(),
            source: Box::new(source),
        })?;
        Ok(Client { subject: subject.to_owned(), inner })
    }

    /// Runs statements whose answers do not matter.
    pub fn execute(&mut self, sql: &str) -> Result<(), LabError> {
        self.query(sql).map(drop)
    }

    /// Has the server plan a statement that is sent often.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared, LabError> {
        let statement = self.inner.prepare(sql).map_err(|e| self.refused(sql, &e))?;
        Ok(Prepared { statement, sql: sql.to_owned() })
    }

    /// Runs a prepared statement whose parameters are whole numbers.
    pub fn run(&mut self, prepared: &Prepared, values: &[i64]) -> Result<u64, LabError> {
        let values: Vec<&(dyn ToSql + Sync)> =
            values.iter().map(|v| v as &(dyn ToSql + Sync)).collect();
        let rows = self.inner.execute(&prepared.statement, &values);
        rows.map_err(|e| self.refused(&prepared.sql, &e))
    }

    fn refused(&self, sql: &str, error: &postgres::Error) -> LabError {
        let told = error.as_db_error().map(|d| d.message().to_owned());
        let message = told.unwrap_or_else(|| error.to_string());
        LabError::Query { subject: self.subject.clone(), sql: sql.to_owned(), message }
    }

    /// The rows of the answer, as texts; NULL is an empty one.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, LabError> {
        let messages = self.inner.simple_query(sql).map_err(|e| self.refused(sql, &e))?;
        let mut rows = Vec::new();
        for message in &messages {
            if let SimpleQueryMessage::Row(row) = message {
                let cell = |at| row.get(at).unwrap_or_default().to_owned();
                rows.push((0..row.len()).map(cell).collect());
            }
        }
        Ok(rows)
    }

    /// The first column of the first row.
    pub fn value(&mut self, sql: &str) -> Result<String, LabError> {
        let first = self.query(sql)?.into_iter().next().and_then(|row| row.into_iter().next());
        first.ok_or_else(|| self.unexpected(sql, "no row".to_owned(), "one value"))
    }

    /// The same, a whole number.
    pub fn integer(&mut self, sql: &str) -> Result<i64, LabError> {
        let text = self.value(sql)?;
        text.parse().map_err(|_| self.unexpected(sql, format!("\"{text}\""), "a whole number"))
    }

    /// A query that gives one whole number, and how long its answer took.
    pub fn timed(&mut self, sql: &str) -> Result<(i64, Duration), LabError> {
        let begun = Instant::now();
        let value = self.integer(sql)?;
        Ok((value, begun.elapsed()))
    }

    /// Bytes of log that were ever written.
    pub fn wal_position(&mut self) -> Result<u64, LabError> {
        let sql = "select pg_current_wal_insert_lsn()";
        let text = self.value(sql)?;
        parse_lsn(&text)
            .ok_or_else(|| self.unexpected(sql, format!("\"{text}\""), "a log position"))
    }

    /// What the server calls itself.
    pub fn version(&mut self) -> Result<String, LabError> {
        self.value("select version()")
    }

    fn unexpected(&self, sql: &str, got: String, expected: &'static str) -> LabError {
        LabError::Answer { subject: self.subject.clone(), sql: sql.to_owned(), got, expected }
    }
}

/// `1/2A` as a number.
pub(crate) fn parse_lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let part = |t| u32::from_str_radix(t, 16).ok().map(u64::from);
    Some(part(high)? << 32 | part(low)?)
}

#[cfg(test)]
mod tests {
    use super::parse_lsn;

    #[test]
    fn positions_in_the_log() {
        assert_eq!(parse_lsn("0/0"), Some(0));
        assert_eq!(parse_lsn("1/2A"), Some((1 << 32) + 42));
        assert_eq!(parse_lsn("12"), None);
        assert_eq!(parse_lsn("1/x"), None);
        assert_eq!(parse_lsn("1/123456789"), None);
    }
}
