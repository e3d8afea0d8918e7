//! What an experiment gives: samples in groups, ratios with goals, and what a reader must know.
//!
//! ```text
//! Report "first-scan"
//!   Group "Table in the buffers: time"          a table and a plot
//!     Measurement Inkling frame / first  ms     [141.2, 139.8, 143.0]
//!     Measurement Inkling frame / later  ms     [138.0, ...]
//!   Goal "first / later, Inkling frame"         1.02 <= 1.05: reached
//! ```
//!
//! Rules
//!
//! - A measurement keeps every sample, in the order in which they were taken. The summary in the
//!   JSON is derived: it is written, and not read back.
//! - A goal says what it divides; where a side has no samples, it has no value and is not reached.
//! - The report knows nothing of how it will be shown.

use crate::machine::Machine;
use crate::stats::{Summary, median};
use serde::{Deserialize, Serialize};

/// The answer of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub title: String,
    pub question: String,
    pub machine: Machine,
    /// When the experiment began, in UTC.
    pub measured_at: String,
    pub versions: Vec<Version>,
    pub parameters: Vec<Parameter>,
    pub groups: Vec<Group>,
    pub goals: Vec<Goal>,
    pub notes: Vec<String>,
}

impl Report {
    /// An empty report of an experiment on this machine.
    pub fn new(name: &str, title: &str, question: &str) -> Report {
        Report {
            name: name.to_owned(),
            title: title.to_owned(),
            question: question.to_owned(),
            machine: Machine::this(),
            measured_at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            versions: Vec::new(),
            parameters: Vec::new(),
            groups: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn parameter(&mut self, name: &str, value: impl ToString) {
        self.parameters.push(Parameter { name: name.to_owned(), value: value.to_string() });
    }

    /// Notes what a subject says of itself, once.
    pub fn version(&mut self, subject: &str, text: &str) {
        if !self.versions.iter().any(|v| v.subject == subject) {
            self.versions.push(Version { subject: subject.to_owned(), text: text.to_owned() });
        }
    }

    /// What was compared: those who say the same of themselves together.
    pub fn told_versions(&self) -> Vec<(String, &str)> {
        let mut told: Vec<(String, &str)> = Vec::new();
        for Version { subject, text } in &self.versions {
            match told.iter_mut().find(|(_, t)| t == text) {
                Some((subjects, _)) => *subjects = format!("{subjects}, {subject}"),
                None => told.push((subject.clone(), text)),
            }
        }
        told
    }

    /// Adds a note, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The group of that title, made at the first call.
    pub fn group(&mut self, title: &str, figure: Figure) -> &mut Group {
        let at = self.groups.iter().position(|g| g.title == title).unwrap_or_else(|| {
            self.groups.push(Group { title: title.to_owned(), figure, measurements: Vec::new() });
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }

    /// The median of a measurement, where it was taken.
    pub fn median(&self, group: &str, subject: &str, metric: &str) -> Option<f64> {
        let group = self.groups.iter().find(|g| g.title == group)?;
        median(&group.find(subject, metric)?.samples)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub subject: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    pub name: String,
    pub value: String,
}

/// How a group is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// A bar a measurement, with its spread.
    Bars,
    /// The parts of a whole: a bar a subject, its metrics one after another.
    Stacked,
    /// Only the table.
    None,
}

/// Measurements that are read together. Those of one unit share a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub title: String,
    pub figure: Figure,
    pub measurements: Vec<Measurement>,
}

impl Group {
    /// Adds samples to a measurement, which the first call makes.
    pub fn add(&mut self, subject: &str, metric: &str, unit: &str, samples: &[f64]) {
        match self.measurements.iter_mut().find(|m| m.subject == subject && m.metric == metric) {
            Some(found) => found.samples.extend_from_slice(samples),
            None => self.measurements.push(Measurement {
                subject: subject.to_owned(),
                metric: metric.to_owned(),
                unit: unit.to_owned(),
                samples: samples.to_vec(),
            }),
        }
    }

    pub fn find(&self, subject: &str, metric: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|m| m.subject == subject && m.metric == metric)
    }

    /// The subjects, in the order in which they came.
    pub fn subjects(&self) -> Vec<&str> {
        distinct(self.measurements.iter().map(|m| m.subject.as_str()))
    }

    /// The metrics and their units, in the order in which they came.
    pub fn metrics(&self) -> Vec<(&str, &str)> {
        distinct(self.measurements.iter().map(|m| (m.metric.as_str(), m.unit.as_str())))
    }
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}

/// One subject, one metric, and every sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", from = "Written")]
pub struct Measurement {
    pub subject: String,
    pub metric: String,
    pub unit: String,
    pub samples: Vec<f64>,
}

impl Measurement {
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}

/// A measurement as the JSON has it.
#[derive(Serialize, Deserialize)]
struct Written {
    subject: String,
    metric: String,
    unit: String,
    summary: Option<Summary>,
    samples: Vec<f64>,
}

impl From<Measurement> for Written {
    fn from(m: Measurement) -> Written {
        let summary = m.summary();
        let Measurement { subject, metric, unit, samples } = m;
        Written { subject, metric, unit, summary, samples }
    }
}

impl From<Written> for Measurement {
    fn from(w: Written) -> Measurement {
        let Written { subject, metric, unit, samples, .. } = w;
        Measurement { subject, metric, unit, samples }
    }
}

/// What a number must be held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }
}

/// A derived number, and whether it is where it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    pub what: String,
    /// `None`: it could not be derived.
    pub value: Option<f64>,
    pub bound: Bound,
    pub reached: bool,
}

impl Goal {
    pub fn new(what: impl Into<String>, value: Option<f64>, bound: Bound) -> Goal {
        let value = value.filter(|v| v.is_finite());
        Goal { what: what.into(), value, bound, reached: value.is_some_and(|v| bound.holds(v)) }
    }

    /// One number by another.
    pub fn ratio(
        what: impl Into<String>,
        over: Option<f64>,
        under: Option<f64>,
        bound: Bound,
    ) -> Goal {
        let value = over.zip(under).filter(|(_, u)| *u != 0.0).map(|(o, u)| o / u);
        Goal::new(what, value, bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;

    #[test]
    fn goals_are_reached_or_not() {
        let at_most = |v| Goal::new("x", v, Bound::AtMost(1.05)).reached;
        assert!(at_most(Some(1.05)) && at_most(Some(0.5)));
        assert!(!at_most(Some(1.06)) && !at_most(None) && !at_most(Some(f64::NAN)));
        let ratio = Goal::ratio("x", Some(8.0), Some(2.0), Bound::AtLeast(4.0));
        assert_eq!((ratio.value, ratio.reached), (Some(4.0), true));
        let nothing = Goal::ratio("x", Some(8.0), Some(0.0), Bound::AtLeast(4.0));
        assert_eq!((nothing.value, nothing.reached), (None, false));
    }

    #[test]
    fn samples_gather_in_their_measurement() {
        let mut report = Report::new("r", "t", "q");
        report.group("g", Figure::Bars).add("s", "m", "ms", &[1.0]);
        report.group("g", Figure::None).add("s", "m", "ms", &[3.0]);
        assert_eq!(report.groups.len(), 1);
        assert_eq!(report.groups[0].figure, Figure::Bars);
        assert_eq!(report.groups[0].find("s", "m").unwrap().samples, [1.0, 3.0]);
        assert_eq!(report.median("g", "s", "m"), Some(2.0));
        assert_eq!(report.median("g", "s", "other"), None);
    }

    #[test]
    fn versions_are_told_once() {
        let mut report = sample();
        assert_eq!(report.versions.len(), 1);
        report.version("PostgreSQL", "PostgreSQL 18");
        let text = report.versions[0].text.clone();
        report.version("Inkling off", &text);
        let told = report.told_versions();
        assert_eq!(told[0], ("Inkling frame, Inkling off".to_owned(), text.as_str()));
        assert_eq!(told[1], ("PostgreSQL".to_owned(), "PostgreSQL 18"));
    }
}
