//! `inkling lab NAME`: the project's experiments, each with one command.
//!
//! The report goes to standard output; `--json` and `--html` keep it. Files are opened before the
//! measurements begin, since a path that does not exist should be heard of in the first second.

use super::Outcome;
use clap::Args;
use inkling_lab::process::Signals;
use inkling_lab::{Experiment, LabError, Params, Progress, Report, html, json, table};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct LabArgs {
    /// The experiment; without one, they are listed.
    #[arg(value_name = "NAME", default_value = "list")]
    name: String,
    /// The directory of PostgreSQL's programs, to compare with it.
    #[arg(long, value_name = "BINDIR")]
    postgres: Option<PathBuf>,
    /// Rows of the tables that the experiment makes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=2_147_483_647))]
    rows: Option<u64>,
    /// How long each run takes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// How often each subject has its turn.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// Connections of pgbench, or writers of each table.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    clients: Option<u64>,
    /// The scale of pgbench's tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    scale: Option<u64>,
    /// Keep the report, with every sample, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the report as one page of HTML, with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn lab(args: &LabArgs) -> Outcome<ExitCode> {
    if args.name == "list" {
        print!("{}", list(inkling_lab::all()));
        return Ok(ExitCode::SUCCESS);
    }
    let experiment = inkling_lab::find(&args.name).map_err(|e| e.to_string())?;
    let json_file = args.json.as_deref().map(Kept::new).transpose()?;
    let html_file = args.html.as_deref().map(Kept::new).transpose()?;
    let report = run(experiment, &params(args))?;
    print!("{}", table::text(&report));
    if let Some(kept) = json_file {
        kept.write(json::write(&report))?;
    }
    if let Some(kept) = html_file {
        kept.write(html::page(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run(experiment: &dyn Experiment, params: &Params) -> Outcome<Report> {
    let _signals = Signals::watch().map_err(|e| e.to_string())?;
    let mut progress = Progress::on_stderr();
    let report = experiment.run(params, &mut progress);
    progress.finish();
    // After a signal, what failed first is only its echo.
    inkling_lab::process::check_interrupted().and(report).map_err(|e| e.to_string())
}

fn params(args: &LabArgs) -> Params {
    // Limited by the command line's ranges.
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Params {
        postgres: args.postgres.clone(),
        rows: args.rows,
        seconds: args.seconds,
        rounds: args.rounds.map(size),
        clients: args.clients.map(size),
        scale: args.scale,
    }
}

fn list(all: &[&dyn Experiment]) -> String {
    let width = all.iter().map(|e| e.name().len()).max().unwrap_or(0);
    let mut out = "Experiments (inkling lab NAME):\n".to_owned();
    for experiment in all {
        out.push_str(&format!("  {:<width$}  {}\n", experiment.name(), experiment.summary()));
    }
    out
}

/// A file that can be written, and is not touched before there is something to write.
struct Kept<'a> {
    path: &'a Path,
    /// It was not there before.
    made: bool,
}

impl<'a> Kept<'a> {
    fn new(path: &'a Path) -> Outcome<Kept<'a>> {
        let made = !path.exists();
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        open.map_err(|e| cannot_write(path, &e))?;
        Ok(Kept { path, made })
    }

    fn write(mut self, text: Result<String, LabError>) -> Outcome<()> {
        let text = text.map_err(|e| e.to_string())?;
        self.made = false;
        fs::write(self.path, text).map_err(|e| cannot_write(self.path, &e))
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.made {
            // An empty file is all that could stay.
            let _removed = fs::remove_file(self.path);
        }
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("could not write \"{}\": {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_does_not_come_leaves_the_files_as_they_were() {
        let name = format!("inkling-lab-kept-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(Kept::new(&path).expect("it can be made"));
        assert!(!path.exists());
        Kept::new(&path).expect("it can be made").write(Ok("old".to_owned())).expect("written");
        drop(Kept::new(&path).expect("it is there"));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
        Kept::new(&path).expect("it is there").write(Ok("n".to_owned())).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "n");
        fs::remove_file(&path).expect("it is there");
        assert!(Kept::new(Path::new("/nowhere/file")).is_err());
    }

    #[test]
    fn the_list_has_a_line_each() {
        let list = list(inkling_lab::all());
        assert_eq!(list.lines().count(), inkling_lab::all().len() + 1);
        assert!(list.contains("\n  first-scan "), "{list}");
    }
}
