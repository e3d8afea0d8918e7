//! Why an experiment gave no report. Each message says what to do about it, where that is known.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    #[error("there is no experiment \"{name}\"; there are: {known}")]
    UnknownExperiment { name: String, known: String },
    #[error("could not {what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("the program \"{program}\" was not found: {hint}")]
    ProgramMissing { program: String, hint: &'static str },
    #[error("{program} failed ({status}):\n{said}")]
    Program { program: String, status: String, said: String },
    #[error("{subject} did not start; its log ends:\n{log}")]
    Start { subject: String, log: String },
    #[error("PostgreSQL cannot run as root, and there is no user \"postgres\" to run it as")]
    NobodyToRunAs,
    #[error("{subject} could not be connected to: {source}")]
    Connect { subject: String, source: Box<postgres::Error> },
    #[error("{subject} refused \"{sql}\": {message}")]
    Query { subject: String, sql: String, message: String },
    #[error("{subject} answered \"{sql}\" with {got}, where {expected} was expected")]
    Answer { subject: String, sql: String, got: String, expected: &'static str },
    #[error("pgbench's output lacks {what}:\n{said}")]
    PgbenchOutput { what: &'static str, said: String },
    #[error("interrupted")]
    Interrupted,
    #[error("could not draw the figure \"{figure}\": {what}")]
    Plot { figure: String, what: String },
    #[error("could not write the report as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// An experiment that runs inside this process.
    #[error("{0}")]
    Engine(String),
}

impl LabError {
    /// For `map_err`: what was attempted, and on which path.
    pub fn io(attempt: &str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
        let what = format!("{attempt} \"{}\"", path.display());
        move |source| LabError::Io { what, source }
    }
}

/// A program that may not be there.
pub fn missing_or_io(program: &Path, hint: &'static str) -> impl FnOnce(io::Error) -> LabError {
    let program = PathBuf::from(program);
    move |source| match source.kind() {
        io::ErrorKind::NotFound => {
            LabError::ProgramMissing { program: program.display().to_string(), hint }
        }
        _ => LabError::Io { what: format!("run \"{}\"", program.display()), source },
    }
}
