//! The simple query protocol: a string of statements, answered one after the other.

use super::{Connection, Flow};
use crate::wire::backend;
use crate::wire::frontend::Formats;
use inkling_sql::analyze::statement::ParamTypes;
use inkling_sql::error::SqlError;
use inkling_sql::session::{Activity, CommandTag, Prepared, Progress};
use inkling_sql::types::Datum;
use std::sync::Arc;
use std::time::Instant;

impl Connection {
    pub(super) async fn simple_query(&mut self, sql: &str) -> Flow {
        let started = Instant::now();
        self.run_string(sql).await?;
        self.log_duration(started, "statement", sql);
        self.ready().await
    }

    async fn run_string(&mut self, sql: &str) -> Flow {
        self.session.set_activity(Activity::Active, Some(sql));
        self.session.begin_message();
        self.session.close_portal("");
        if let Some((prepared, values)) = self.session.recall(sql) {
            let outcome = self.simple_statement(Ok(prepared), values).await?;
            self.answer(outcome, true).await?;
            return Ok(());
        }
        let statements = match self.session.parse_statements(sql) {
            Ok(statements) => statements,
            Err(e) => {
                self.fail(&e);
                return Ok(());
            }
        };
        if statements.is_empty() {
            backend::empty_query(&mut self.out);
            return Ok(());
        }
        let last = statements.len() - 1;
        for (at, statement) in statements.into_iter().enumerate() {
            let prepared = self.session.prepare_parsed(Some(statement), ParamTypes::none());
            let outcome = self.simple_statement(prepared, Vec::new()).await?;
            if !self.answer(outcome, at == last).await? {
                break;
            }
        }
        Ok(())
    }

    /// Tells how a statement ended; true: the string's next one may run.
    async fn answer(
        &mut self,
        outcome: Result<CommandTag, SqlError>,
        is_last: bool,
    ) -> Result<bool, super::End> {
        // The string's last statement has succeeded only when its transaction has.
        let outcome = match outcome {
            Ok(tag) if is_last => self.end_implicit().await?.map(|()| tag),
            other => other,
        };
        Ok(match outcome {
            Ok(tag) => {
                self.send_notices();
                match tag {
                    CommandTag::Empty => backend::empty_query(&mut self.out),
                    tag => backend::command_complete(&mut self.out, &tag),
                }
                true
            }
            Err(e) => {
                self.fail(&e);
                false
            }
        })
    }

    fn fail(&mut self, e: &SqlError) {
        self.session.statement_failed();
        self.send_notices();
        backend::error(&mut self.out, e);
    }

    async fn simple_statement(
        &mut self,
        prepared: Result<Arc<Prepared>, SqlError>,
        values: Vec<Datum>,
    ) -> Result<Result<CommandTag, SqlError>, super::End> {
        let formats = Formats::all_text();
        let bound = prepared.and_then(|prepared| self.session.bind("", prepared, values));
        if let Err(e) = bound {
            return Ok(Err(e));
        }
        if let Ok(portal) = self.session.portal("")
            && let Some(columns) = portal.columns().filter(|_| !portal.tells_columns())
        {
            backend::row_description(&mut self.out, columns, &formats);
        }
        let outcome = self.run_portal("", &formats, 0, true).await?;
        Ok(match outcome {
            Ok(Progress::Complete(tag)) => Ok(tag),
            Ok(other) => Err(SqlError::internal(format!("a simple query came to {other:?}"))),
            Err(e) => Err(e),
        })
    }
}
