//! What the tests of sessions share: a session, and a sink that looks at rows only.
//! Not every file needs both.
#![allow(dead_code)]

use inkling_sql::error::{Result, SqlError};
use inkling_sql::functions::FnContext;
use inkling_sql::session::{ColumnDesc, CopyInfo, Database, RowSink, Session, SessionParams};
use inkling_sql::types::{Datum, TypeRef};
use std::sync::Arc;

/// A session of the superuser.
pub fn session(db: &Arc<Database>, pid: i32) -> Session {
    let (user, database) = ("postgres".to_owned(), "postgres".to_owned());
    let params = SessionParams { user, database, pid, ..SessionParams::default() };
    Session::new(db, params).expect("a session")
}

/// Shows each row to a function; everything else of an answer is passed over.
pub struct Each<F>(pub F);

impl<F: FnMut(&[Datum], &[TypeRef], &dyn FnContext)> RowSink for Each<F> {
    fn row(&mut self, values: &[Datum], tys: &[TypeRef], cx: &dyn FnContext) -> Result<()> {
        (self.0)(values, tys, cx);
        Ok(())
    }
    fn columns(&mut self, _: &[ColumnDesc]) -> Result<()> {
        Ok(())
    }
    fn copy_out_begin(&mut self, _: CopyInfo) -> Result<()> {
        Ok(())
    }
    fn copy_data(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn full(&self) -> bool {
        false
    }
    fn notice(&mut self, _: SqlError) {}
}
