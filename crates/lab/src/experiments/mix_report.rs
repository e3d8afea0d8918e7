//! What `durability-mix` tells: rates and latencies by phase, losses against promises, goals.

use super::durability_mix::{KINDS, Kind, Loss, MAX_LOSS_MS, Phase};
use crate::Report;
use crate::report::{Bound, Figure, Goal};
use crate::stats::percentile;
use crate::subject::Subject;
use crate::writers::Written;

const LATENCY: &str = "Latency of a commit, p99";
const MIDDLE: &str = "Latency of a commit, p50";
const LOSS: &str = "After a kill";
const AGE: &str = "age of the oldest row lost";

/// PostgreSQL promises three times wal_writer_delay.
const POSTGRESQL_MS: f64 = 600.0;

fn title(phase: Phase) -> &'static str {
    match phase {
        Phase::Alone => "Rows a second, each kind alone",
        Phase::Together => "Rows a second, all kinds at once",
        Phase::PacedAlone => "Rows a second at a pace, each kind alone",
        Phase::PacedTogether => "Rows a second at a pace, beside orders at full speed",
    }
}

fn short(phase: Phase) -> &'static str {
    match phase {
        Phase::Alone => "alone",
        Phase::Together => "together",
        Phase::PacedAlone => "paced, alone",
        Phase::PacedTogether => "paced, beside orders",
    }
}

fn metric(kind: Kind) -> String {
    format!("{} ({})", kind.table(), kind.level())
}

/// Adds what a group of writers did.
pub fn record(report: &mut Report, subject: &str, phase: Phase, kind: Kind, written: &Written) {
    let metric = metric(kind);
    let group = report.group(title(phase), Figure::Bars);
    group.add(subject, &metric, "a second", &[written.rate()]);
    let times = written.latencies_ms();
    for (title, part) in [(MIDDLE, 0.5), (LATENCY, 0.99)] {
        if let Some(ms) = percentile(&times, part) {
            let figure = if part > 0.9 { Figure::Bars } else { Figure::None };
            let who = format!("{subject}, {}", short(phase));
            report.group(title, figure).add(&who, &metric, "ms", &[ms]);
        }
    }
}

/// Adds what a kill left of a table.
pub fn promise(report: &mut Report, subject: &str, kind: Kind, loss: &Loss) {
    let who = format!("{subject}, {}", metric(kind));
    let group = report.group(LOSS, Figure::None);
    group.add(&who, "rows told", "", &[loss.told as f64]);
    group.add(&who, "rows lost", "", &[loss.lost as f64]);
    group.add(&who, "rows left", "", &[loss.left as f64]);
    group.add(&who, AGE, "ms", &[loss.age_ms]);
    group.add(&who, "writers with holes", "", &[f64::from(u8::from(loss.holes))]);
}

/// The worst of all rounds: a promise holds always.
fn worst(report: &Report, who: &str, what: &str) -> Option<f64> {
    let group = report.groups.iter().find(|g| g.title == LOSS)?;
    group.find(who, what)?.summary().map(|s| s.highest)
}

/// The goals are Inkling's; PostgreSQL's promise is looked at too.
pub fn goals(report: &mut Report, subjects: &[Subject]) {
    for subject in subjects {
        let name = subject.name();
        if !subject.is_postgresql() {
            for kind in &KINDS[1..] {
                let of = |phase| report.median(title(phase), name, &metric(*kind));
                let what = format!("rate of {} beside orders / alone, at a pace", metric(*kind));
                let (beside, alone) = (of(Phase::PacedTogether), of(Phase::PacedAlone));
                report.goals.push(Goal::ratio(what, beside, alone, Bound::AtLeast(0.95)));
            }
        }
        let loss = |kind: Kind| format!("{name}, {}", metric(kind));
        let told = [
            (Kind::Orders, "rows lost", 0.0),
            (Kind::Orders, "writers with holes", 0.0),
            (Kind::Events, AGE, bound_ms(subject)),
            (Kind::Events, "writers with holes", 0.0),
            (Kind::Metrics, "rows left", 0.0),
        ];
        for (kind, what, most) in told {
            let who = loss(kind);
            let unit = if what == AGE { ", ms" } else { "" };
            let value = worst(report, &who, what);
            let what = format!("after a kill, {who}: {what}{unit}");
            report.goals.push(Goal::new(what, value, Bound::AtMost(most)));
        }
    }
}

fn bound_ms(subject: &Subject) -> f64 {
    if subject.is_postgresql() { POSTGRESQL_MS } else { MAX_LOSS_MS as f64 }
}
