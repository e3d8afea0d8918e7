//! `inkling check`: opens a directory that nobody uses (replaying its log first, if it was not
//! shut down), walks every structure, prints what is wrong.

use super::{Outcome, config, engine_log, must_be_data_directory};
use inkling::engine_options;
use inkling_sql::session::Database;
use inkling_storage::engine::{Engine, ShutdownMode};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub fn check(root: &Path) -> Outcome<ExitCode> {
    must_be_data_directory(root)?;
    let settings = config::load(root, &[])?;
    let mut options = engine_options(&settings);
    // Nothing but the check itself is to touch the directory.
    options.background_threads = false;
    options.log_sink = Arc::new(engine_log);
    options.log_checkpoints = false;
    // What is prepared stays so, however many a server would allow.
    options.max_prepared_transactions = usize::MAX;
    let (engine, _) = Engine::open_dir(root, options).map_err(|e| e.to_string())?;
    let database =
        Database::open(Arc::clone(&engine), settings).map_err(|e| e.message().to_owned())?;
    let report = inkling::check::check(&database).map_err(|e| e.message().to_owned())?;
    for problem in &report.problems {
        println!("{problem}");
    }
    for note in &report.notes {
        println!("note: {note}");
    }
    println!(
        "{} files, {} pages, {} tables, {} indexes, {} sequences: {}",
        report.files,
        report.pages,
        report.tables,
        report.indexes,
        report.sequences,
        match report.problems.len() {
            0 => "no problems".to_owned(),
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        }
    );
    engine.shutdown(ShutdownMode::Fast).map_err(|e| e.to_string())?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
