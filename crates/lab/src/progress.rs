//! What is being done now, on standard error: a bar with the time that has gone where somebody
//! watches a terminal, a line a step where the output goes to a file.
//!
//! [`Progress::step`] is also where a run notices that it was interrupted.

use crate::{LabError, process};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often the elapsed time on the bar moves.
const TICK: Duration = Duration::from_millis(250);

/// The steps of a run.
pub struct Progress {
    shown: Shown,
    begun: usize,
    planned: usize,
}

enum Shown {
    Bar(ProgressBar),
    Lines,
    Nowhere,
}

impl Progress {
    /// For the command line.
    pub fn on_stderr() -> Progress {
        let shown = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) =
                ProgressStyle::with_template("{elapsed} {wide_bar} {pos}/{len}\n{msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            Shown::Bar(bar)
        } else {
            Shown::Lines
        };
        Progress { shown, begun: 0, planned: 0 }
    }

    /// Says nothing.
    pub fn silent() -> Progress {
        Progress { shown: Shown::Nowhere, begun: 0, planned: 0 }
    }

    /// So many steps (more) are to come.
    pub fn plan(&mut self, steps: usize) {
        self.planned += steps;
        if let Shown::Bar(bar) = &self.shown {
            bar.set_length(self.planned as u64);
        }
    }

    /// Another step begins.
    pub fn step(&mut self, what: &str) -> Result<(), LabError> {
        process::check_interrupted()?;
        match &self.shown {
            Shown::Bar(bar) => {
                bar.set_position(self.begun as u64);
                bar.set_message(what.to_owned());
            }
            Shown::Lines => eprintln!("[{}/{}] {what}", self.begun + 1, self.planned),
            Shown::Nowhere => {}
        }
        self.begun += 1;
        Ok(())
    }

    /// The run is over, well or not.
    pub fn finish(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
