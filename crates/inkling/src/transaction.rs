//! A transaction as a guard: what is not committed is rolled back.

use crate::Result;
use crate::session::Session;
use inkling_sql::error::{SqlError, State};
use inkling_sql::session::CommandTag;
use std::ops::{Deref, DerefMut};

/// A transaction block, or a savepoint inside one. Dereferences to its [`Session`].
///
/// ```no_run
/// # fn f(session: &mut inkling::Session) -> Result<(), inkling::Error> {
/// let mut tx = session.transaction()?;
/// tx.execute("delete from t where id = 1", &[])?;
/// {
///     let mut inner = tx.transaction()?; // a savepoint
///     inner.execute("delete from t where id = 2", &[])?;
/// } // rolled back to it
/// tx.commit()
/// # }
/// ```
pub struct Transaction<'s> {
    session: &'s mut Session,
    /// The savepoint's name; `None` for the whole block.
    savepoint: Option<String>,
    ended: bool,
}

impl<'s> Transaction<'s> {
    pub(crate) fn begin(session: &'s mut Session, modes: &str) -> Result<Self> {
        let savepoint = match session.in_transaction() {
            true => {
                let name = session.new_savepoint_name();
                session.run_plain(&format!("savepoint {name}"))?;
                Some(name)
            }
            false => {
                session.run_plain(&format!("begin {modes}"))?;
                None
            }
        };
        Ok(Transaction { session, savepoint, ended: false })
    }

    /// Commits. An error when a statement had failed: then it was rolled back.
    pub fn commit(mut self) -> Result<()> {
        self.ended = true;
        match &self.savepoint {
            Some(name) => {
                let statement = format!("release savepoint {name}");
                self.session.run_plain(&statement).map(|_| ())
            }
            None => match self.session.run_plain("commit")? {
                CommandTag::Plain("COMMIT") => Ok(()),
                _ => Err(SqlError::new(
                    State::IN_FAILED_SQL_TRANSACTION,
                    "the transaction had failed and was rolled back",
                )),
            },
        }
    }

    /// Rolls back, and says so if that fails.
    pub fn rollback(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.ended = true;
        match &self.savepoint {
            Some(name) => {
                self.session.run_plain(&format!("rollback to savepoint {name}"))?;
                self.session.run_plain(&format!("release savepoint {name}"))?;
            }
            None => {
                self.session.run_plain("rollback")?;
            }
        }
        Ok(())
    }
}

impl Deref for Transaction<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // The block may have been ended by a statement of the caller's already.
        if !self.ended && self.session.in_transaction() {
            let _rolled_back = self.end();
        }
    }
}
