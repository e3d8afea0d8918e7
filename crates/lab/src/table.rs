//! The report as text, for a terminal: aligned columns, the median and (lowest - highest).

use crate::Report;
use crate::format::number;
use crate::report::{Bound, Goal, Group, Measurement};
use std::fmt::Write;

/// What stands where nothing was measured.
pub const NOTHING: &str = "-";

/// The whole report.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let put = |out: &mut String, line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    put(&mut out, &format!("{}\n{}\n", report.title, report.question));
    put(&mut out, &report.machine.line());
    put(&mut out, &report.measured_at);
    for (subjects, text) in report.told_versions() {
        put(&mut out, &format!("{subjects}: {text}"));
    }
    let parameters = report.parameters.iter().map(|p| format!("{} = {}", p.name, p.value));
    put(&mut out, &parameters.collect::<Vec<_>>().join("; "));
    for group in &report.groups {
        put(&mut out, &format!("\n{}", group.title));
        out.push_str(&aligned(&rows(group)));
    }
    if !report.goals.is_empty() {
        put(&mut out, "\nGoals");
        out.push_str(&aligned(&goal_rows(&report.goals)));
    }
    for note in &report.notes {
        put(&mut out, &format!("\nNote: {note}"));
    }
    out
}

/// The group as cells: a row a subject, a column a metric, the heads first.
pub fn rows(group: &Group) -> Vec<Vec<String>> {
    let metrics = group.metrics();
    let mut head = vec![String::new()];
    head.extend(metrics.iter().map(|(metric, unit)| match *unit {
        "" => (*metric).to_owned(),
        unit => format!("{metric}, {unit}"),
    }));
    let mut out = vec![head];
    for subject in group.subjects() {
        let cells = metrics.iter().map(|(metric, _)| spread(group.find(subject, metric)));
        out.push(std::iter::once(subject.to_owned()).chain(cells).collect());
    }
    out
}

/// `median (lowest - highest)`; the median alone where they are one.
pub fn spread(measurement: Option<&Measurement>) -> String {
    let Some(s) = measurement.and_then(Measurement::summary) else { return NOTHING.to_owned() };
    if s.lowest == s.highest {
        return number(s.median);
    }
    format!("{} ({} - {})", number(s.median), number(s.lowest), number(s.highest))
}

/// The goals as cells.
pub fn goal_rows(goals: &[Goal]) -> Vec<Vec<String>> {
    let head = ["", "value", "goal", ""].map(str::to_owned).to_vec();
    let row = |g: &Goal| {
        let value = g.value.map_or_else(|| NOTHING.to_owned(), number);
        let outcome = match (g.value, g.reached) {
            (None, _) => "not measured",
            (_, true) => "reached",
            (_, false) => "missed",
        };
        vec![g.what.clone(), value, bound(g.bound), outcome.to_owned()]
    };
    std::iter::once(head).chain(goals.iter().map(row)).collect()
}

fn bound(bound: Bound) -> String {
    match bound {
        Bound::AtMost(most) => format!("<= {}", number(most)),
        Bound::AtLeast(least) => format!(">= {}", number(least)),
    }
}

/// Columns as wide as their widest cell: the first to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        let cells = rows.iter().filter_map(|r| r.get(c));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let width = widths[c];
            let put = match c {
                0 => write!(line, "  {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
            put.expect("a string takes everything");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;

    #[test]
    fn columns_are_aligned() {
        let cells = [["", "first, ms"], ["Inkling", "1 (0 - 2)"], ["PostgreSQL 18", "2,083"]]
            .map(|r| r.map(str::to_owned).to_vec());
        let expected = "                 first, ms\n  Inkling        1 (0 - 2)\n  \
                        PostgreSQL 18      2,083\n";
        assert_eq!(aligned(&cells), expected);
    }

    #[test]
    fn the_report_tells_everything() {
        let text = text(&sample());
        let times = "\nTime\n                       first, ms        later, ms\n  \
                     Inkling frame  141 (140 - 143)  139 (138 - 140)\n  \
                     PostgreSQL               2,083                -\n";
        assert!(text.contains(times), "{text}");
        let wanted = ["Is 1 < 2?", "rows = 1000", "1.01  <= 1.05       reached", "not measured"];
        for part in wanted.iter().chain(&["Note: A note with <b>markup</b>."]) {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
