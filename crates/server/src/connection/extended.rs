//! The extended query protocol: Parse, Bind, Describe, Execute, Close.

use super::{Connection, End};
use crate::wire::backend;
use crate::wire::frontend::{Bind, Formats, Frontend};
use inkling_sql::error::SqlError;
use inkling_sql::session::{Activity, CommandTag, Progress};
use inkling_sql::types::Datum;
use std::time::Instant;

type Outcome = Result<Result<(), SqlError>, End>;

impl Connection {
    pub(super) async fn extended(&mut self, message: Frontend<'_>) -> Outcome {
        Ok(match message {
            Frontend::Parse { name, sql, types } => {
                self.session.begin_message();
                if name.is_empty() {
                    self.session.close_statement("");
                }
                self.session
                    .prepare(name, sql, &types)
                    .map(|()| backend::parse_complete(&mut self.out))
            }
            Frontend::Bind(bind) => self.bind(bind),
            Frontend::DescribeStatement(name) => self.describe_statement(name),
            Frontend::DescribePortal(name) => self.describe_portal(name),
            Frontend::Execute { portal, max_rows } => {
                return self.execute(portal, max_rows).await;
            }
            Frontend::CloseStatement(name) => {
                self.session.close_statement(name);
                backend::close_complete(&mut self.out);
                Ok(())
            }
            Frontend::ClosePortal(name) => {
                self.session.close_portal(name);
                self.formats.remove(name);
                backend::close_complete(&mut self.out);
                Ok(())
            }
            other => Err(SqlError::internal(format!("not an extended message: {other:?}"))),
        })
    }

    fn bind(&mut self, bind: Bind<'_>) -> Result<(), SqlError> {
        let prepared = self.session.statement(bind.statement)?;
        let types = prepared.params();
        let mut values = Vec::with_capacity(bind.values.len());
        for (i, value) in bind.values.iter().enumerate() {
            values.push(match (value, types.get(i)) {
                (Some(bytes), Some(ty)) => {
                    self.session.decode_param(*ty, bind.formats.is_binary(i), bytes)?
                }
                _ => Datum::Null,
            });
        }
        let columns = prepared.columns().map_or(0, <[_]>::len);
        bind.results.check(columns, "result column")?;
        self.session.bind(bind.portal, prepared, values)?;
        match self.formats.get_mut(bind.portal) {
            Some(place) => *place = bind.results,
            None => {
                self.formats.insert(bind.portal.to_owned(), bind.results);
            }
        }
        backend::bind_complete(&mut self.out);
        Ok(())
    }

    fn describe_statement(&mut self, name: &str) -> Result<(), SqlError> {
        let prepared = self.session.statement(name)?;
        backend::parameter_description(&mut self.out, prepared.params());
        match prepared.columns() {
            Some(columns) => {
                backend::row_description(&mut self.out, columns, &Formats::all_text());
            }
            None => backend::no_data(&mut self.out),
        }
        Ok(())
    }

    fn describe_portal(&mut self, name: &str) -> Result<(), SqlError> {
        let portal = self.session.portal(name)?;
        let text = Formats::all_text();
        let formats = self.formats.get(name).unwrap_or(&text);
        match portal.columns() {
            Some(columns) => backend::row_description(&mut self.out, columns, formats),
            None => backend::no_data(&mut self.out),
        }
        Ok(())
    }

    async fn execute(&mut self, portal: &str, max_rows: u32) -> Outcome {
        let text = match self.session.portal(portal) {
            Ok(p) => p.prepared().clone(),
            Err(e) => return Ok(Err(e)),
        };
        self.session.set_activity(Activity::Active, Some(text.text()));
        self.session.begin_message();
        let formats = self.formats.get(portal).cloned().unwrap_or_default();
        let started = Instant::now();
        let outcome = self.run_portal(portal, &formats, u64::from(max_rows), false).await?;
        self.log_duration(started, "execute", text.text());
        self.send_notices();
        match outcome {
            Ok(Progress::Complete(CommandTag::Empty)) => backend::empty_query(&mut self.out),
            Ok(Progress::Complete(tag)) => backend::command_complete(&mut self.out, &tag),
            Ok(Progress::Suspended) => backend::portal_suspended(&mut self.out),
            Ok(other) => {
                return Ok(Err(SqlError::internal(format!("Execute came to {other:?}"))));
            }
            Err(e) => return Ok(Err(e)),
        }
        Ok(Ok(()))
    }
}
