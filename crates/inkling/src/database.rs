//! Opening a data directory, options, closing.

use crate::Result;
use crate::options::{apply_to, engine_options};
use crate::session::Session;
use inkling_sql::error::{SqlError, State};
use inkling_sql::session as sql;
use inkling_sql::settings::{ChangeSource, ServerSettings};
use inkling_storage::engine::{Engine, LogLevel, ShutdownMode};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// How to open a database: settings by their PostgreSQL names, and who sessions act for.
///
/// ```
/// let options = inkling::Options::new()
///     .set("shared_buffers", "32MB")?
///     .set("synchronous_commit", "off")?;
/// # let _ = options;
/// # Ok::<(), inkling::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    settings: ServerSettings,
    user: String,
}

impl Default for Options {
    fn default() -> Self {
        Options { settings: ServerSettings::default(), user: "postgres".to_owned() }
    }
}

impl Options {
    pub fn new() -> Self {
        Self::default()
    }

    /// A server setting, as in `postgresql.conf`; unknown names and values are errors.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self> {
        self.settings.set(name, value, ChangeSource::CommandLine)?;
        Ok(self)
    }

    /// The role that sessions act for; `postgres` unless told otherwise.
    pub fn user(mut self, name: &str) -> Self {
        name.clone_into(&mut self.user);
        self
    }
}

/// An open database. Clones are the same database; it closes with the last clone and session.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub db: Arc<sql::Database>,
    user: String,
    next_pid: AtomicI32,
    closed: AtomicBool,
}

impl Inner {
    fn shut_down(&self) -> Result<()> {
        match self.closed.swap(true, Ordering::AcqRel) {
            true => Ok(()),
            false => Ok(self.db.engine.shutdown(ShutdownMode::Fast)?),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(e) = self.shut_down() {
            let text = format!("the database was not closed cleanly: {}", e.message());
            (self.db.engine.options().log_sink)(LogLevel::Warning, &text);
        }
    }
}

impl Database {
    /// Opens the data directory, or makes it. After a crash the log is replayed first.
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Self::open_with(path, Options::default())
    }

    /// As [`Self::open`], with settings.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        let path = path.as_ref();
        let mut engine_options = engine_options(&options.settings);
        // A library does not write to its host's standard error unless something is wrong.
        let tell = engine_options.log_sink;
        engine_options.log_sink = Arc::new(move |level, message| {
            if level >= LogLevel::Warning {
                tell(level, message);
            }
        });
        let (engine, _) = Engine::open_dir(path, engine_options)?;
        let mut options = options;
        options.settings.fact("data_directory", path.display().to_string());
        Self::over(engine, options)
    }

    /// Over an engine that is open already: on another kind of disk, or with other options than
    /// settings can say.
    pub fn over(engine: Arc<Engine>, options: Options) -> Result<Database> {
        apply_to(&engine, &options.settings);
        let db = sql::Database::open(engine, options.settings)?;
        let inner = Inner {
            db,
            user: options.user,
            next_pid: AtomicI32::new(1),
            closed: AtomicBool::new(false),
        };
        Ok(Database { inner: Arc::new(inner) })
    }

    /// A new session, as the options' user.
    pub fn session(&self) -> Result<Session> {
        let params = sql::SessionParams {
            user: self.inner.user.clone(),
            database: "postgres".to_owned(),
            pid: self.inner.next_pid.fetch_add(1, Ordering::Relaxed),
            ..sql::SessionParams::default()
        };
        let session = sql::Session::new(&self.inner.db, params)?;
        Ok(Session::new(session, Arc::clone(&self.inner)))
    }

    /// The same as [`Self::session`], by the name that other databases' libraries use.
    pub fn connect(&self) -> Result<Session> {
        self.session()
    }

    /// Closes the database with a checkpoint, so that the next start has nothing to replay.
    /// Refused while sessions or clones are left; it then closes with the last of them.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner.shut_down(),
            Err(inner) => Err(SqlError::new(
                State::from_code("55006"),
                format!(
                    "the database is still used by {} sessions or handles",
                    Arc::strong_count(&inner) - 1
                ),
            )),
        }
    }

    /// The engine underneath, for tools and tests.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.inner.db.engine
    }

    /// The SQL layer underneath, for tools and tests.
    pub fn sql(&self) -> &Arc<sql::Database> {
        &self.inner.db
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("engine", self.engine()).finish()
    }
}
