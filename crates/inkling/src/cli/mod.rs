//! The command line: what can be asked, and who answers.

mod check;
mod config;
mod lab;
mod serve;
mod waldump;

use clap::{Args, Parser, Subcommand};
use inkling_server::log::{self, Level};
use inkling_storage::engine::LogLevel;
use std::path::PathBuf;
use std::process::ExitCode;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (compatible with PostgreSQL 15)");

/// A PostgreSQL-compatible transactional database.
#[derive(Parser)]
#[command(name = "inkling", version = VERSION, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a data directory to PostgreSQL clients; make it first if it is empty or missing.
    Serve(serve::ServeArgs),
    /// Check every structure of a data directory that nobody uses, after recovery.
    Check(Directory),
    /// Print the write-ahead log, one line a record.
    Waldump(waldump::WaldumpArgs),
    /// Run one of the project's experiments, beside PostgreSQL if it is given; or list them.
    Lab(lab::LabArgs),
}

#[derive(Args)]
pub struct Directory {
    /// The data directory.
    #[arg(short = 'D', long = "data", value_name = "DIR", env = "PGDATA")]
    data: PathBuf,
}

/// A command's failure: what the one line on standard error says.
pub type Outcome<T> = Result<T, String>;

pub fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::serve(&args),
        Command::Check(directory) => check::check(&directory.data),
        Command::Waldump(args) => waldump::waldump(&args),
        Command::Lab(args) => lab::lab(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(what) => {
            log::write(Level::Fatal, &what);
            ExitCode::FAILURE
        }
    }
}

/// The engine's messages go to the server's log.
fn engine_log(level: LogLevel, message: &str) {
    let level = match level {
        LogLevel::Debug => return,
        LogLevel::Log => Level::Log,
        LogLevel::Detail => Level::Detail,
        LogLevel::Hint => Level::Hint,
        LogLevel::Warning => Level::Warning,
        LogLevel::Error => Level::Error,
    };
    log::write(level, message);
}

/// For tools that read a directory: it must be one already.
fn must_be_data_directory(path: &std::path::Path) -> Outcome<()> {
    let marker = path.join(inkling_storage::engine::VERSION_PATH);
    match std::fs::metadata(&marker) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("\"{}\" is not a data directory", path.display()))
        }
        Err(e) => Err(format!("could not read \"{}\": {e}", marker.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn h_is_the_host() {
        let cli = Cli::try_parse_from(["inkling", "serve", "-D", "d", "-h", "::1", "-c", "a=b"]);
        let Ok(Cli { command: Command::Serve(args) }) = cli else { panic!("serve") };
        assert_eq!(args.host.as_deref(), Some("::1"));
        assert_eq!(args.settings, ["a=b"]);
    }
}
