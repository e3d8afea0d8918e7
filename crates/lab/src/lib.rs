//! The project's experiments: Inkling under each of its hint policies, and PostgreSQL beside it,
//! on the same machine in the same run.
//!
//! An [`Experiment`] asks one question, measures, and answers with a [`Report`]: samples, ratios
//! with the goals that they are held against, and what a reader must know to believe them. A
//! report is printed as text ([`table`]), kept as JSON ([`json`]) and read as one page of HTML
//! ([`html`]). [`all`] is the registry.
//!
//! ```text
//! Params ──> Experiment::run ──> Report ──> table  (standard output)
//!               │                      ├──> json   (every sample)
//!               └─ Progress            └──> html   (plots, tables)
//! ```
//!
//! What it guarantees
//!
//! - Subjects take turns inside each round, and the order turns with the round: a machine whose
//!   speed drifts is unfair to none of them.
//! - Whatever a run makes, servers and directories, goes with it, also when it fails or is
//!   interrupted.
//! - Nothing is hidden in a mean: medians, the lowest and the highest are shown, and every sample
//!   is in the JSON.
//!
//! | module         | what it is about                                           |
//! |----------------|------------------------------------------------------------|
//! | [`report`]     | the data that an experiment gives                          |
//! | [`stats`]      | median, lowest, highest                                    |
//! | [`table`]      | the report as aligned text                                 |
//! | [`json`]       | the report for programs                                    |
//! | [`html`]       | the report as a page; `plot` draws its figures             |
//! | [`progress`]   | what is being done now, for whoever waits                  |
//! | [`workplace`]  | the temporary directory, and signals that end the run      |
//! | [`process`]    | children that never outlive the run                        |
//! | [`server`]     | an Inkling server                                          |
//! | [`postgresql`] | a PostgreSQL server                                        |
//! | [`client`]     | one connection                                             |
//! | [`pgbench`]    | pgbench, and what it says                                  |
//! | [`subject`]    | who is compared                                            |
//! | [`profile`]    | processor time, and perf                                   |
//! | [`writers`]    | concurrent writers, and what they were told                |
//! | [`kernel`]     | a table inside this process, without SQL and wire          |

pub mod client;
mod error;
pub mod experiments;
mod format;
pub mod html;
pub mod json;
pub mod kernel;
pub mod machine;
pub mod pgbench;
mod plot;
pub mod postgresql;
pub mod process;
pub mod profile;
pub mod progress;
pub mod report;
#[cfg(test)]
mod sample;
pub mod server;
pub mod stats;
pub mod subject;
pub mod table;
pub mod workplace;
pub mod writers;

pub use error::LabError;
pub use experiments::{all, find};
pub use progress::Progress;
pub use report::Report;

use std::path::PathBuf;

/// One question, and the way to its answer.
pub trait Experiment: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// One line for the list.
    fn summary(&self) -> &'static str;

    /// Measures. Takes as long as it takes; `progress` hears of every step.
    fn run(&self, params: &Params, progress: &mut Progress) -> Result<Report, LabError>;
}

/// What may be chosen. An experiment has its own default for each, and ignores what does not
/// concern it.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// PostgreSQL's programs; without them, Inkling is compared with itself only.
    pub postgres: Option<PathBuf>,
    pub rows: Option<u64>,
    pub seconds: Option<u64>,
    pub rounds: Option<usize>,
    pub clients: Option<usize>,
    pub scale: Option<u64>,
}

/// The subjects' places in a round: another one begins each time.
pub fn turn(round: usize, subjects: usize) -> impl Iterator<Item = usize> {
    (0..subjects).map(move |i| (i + round) % subjects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_has_a_turn_and_nobody_always_begins() {
        let rounds: Vec<Vec<usize>> = (0..3).map(|r| turn(r, 3).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(turn(5, 0).count(), 0);
    }
}
