//! A report for the tests of everything that shows reports.

use crate::Report;
use crate::report::{Bound, Figure, Goal};

/// A report with everything in it, and with text that markup must not be taken in by.
pub(crate) fn sample() -> Report {
    let mut report = Report::new("sample", "A <sample> & more", "Is 1 < 2?");
    report.parameter("rows", 1000);
    report.version("Inkling frame", "PostgreSQL 15.0 (Inkling \"0.1\")");
    report.version("Inkling frame", "said twice");
    let times = report.group("Time", Figure::Bars);
    times.add("Inkling frame", "first", "ms", &[141.0, 139.5, 143.25]);
    times.add("Inkling frame", "later", "ms", &[138.0, 140.0]);
    times.add("PostgreSQL", "first", "ms", &[2083.0]);
    times.add("PostgreSQL", "later", "ms", &[]);
    report.group("Parts", Figure::Stacked).add("a", "visibility", "%", &[1.9]);
    report.group("Parts", Figure::Stacked).add("a", "the rest", "%", &[98.1]);
    report.group("Writes", Figure::None).add("a", "WAL", "bytes", &[0.0]);
    let (first, later) = (
        report.median("Time", "Inkling frame", "first"),
        report.median("Time", "Inkling frame", "later"),
    );
    report.goals.push(Goal::ratio("first / later", first, later, Bound::AtMost(1.05)));
    report.goals.push(Goal::new("nothing", None, Bound::AtLeast(1.0)));
    report.note("A note with <b>markup</b>.");
    report
}
