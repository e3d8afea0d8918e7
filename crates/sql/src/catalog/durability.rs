//! A table's durability: the options `durability` and `max_loss`, and the levels by relation.
//!
//! ```text
//!   create table events (...) with (durability = async, max_loss = '250ms');
//!   pg_class.reloptions {durability=async,max_loss=250ms}
//!     ──level_of──> TableLevel::Async { 250,000 us } ──Levels──> found at commit by relation
//! ```
//!
//! Levels are part of a catalog snapshot: immutable, and as transactional as the rest of it.
//! Whoever wrote a table holds a lock on it until its commit is published, and ALTER TABLE needs
//! it alone; so the snapshot at commit has the level that the table had when it was written, or
//! the one that this very transaction gave it.

use super::{Persistence, TableDef};
use crate::error::{Result, SqlError, State};
use hashbrown::HashMap;
use inkling_storage::durability::{MAX_LOSS_MICROS, TableLevel};
use inkling_storage::ids::RelId;

pub const DURABILITY: &str = "durability";
pub const MAX_LOSS: &str = "max_loss";

/// The levels of the relations that have another one than "what the session says".
#[derive(Clone, Default, Debug)]
pub struct Levels(HashMap<RelId, TableLevel>);

impl Levels {
    /// Takes over a table; its long values share its level.
    pub fn add(&mut self, table: &TableDef) {
        let level = level_of(&table.options, table.persistence);
        if level != TableLevel::Inherit {
            self.0.insert(table.rel, level);
            self.0.extend(table.toast.map(|(toast, _)| (toast, level)));
        }
    }

    /// Gives a relation the level of another: a column's sequence that of the table, whose rows are
    /// all that its numbers are for.
    pub fn follow(&mut self, rel: RelId, other: RelId) {
        let level = self.of(other);
        if level != TableLevel::Inherit {
            self.0.insert(rel, level);
        }
    }

    /// A relation's level. One comparison where nothing but the default is in use.
    #[inline]
    pub fn of(&self, rel: RelId) -> TableLevel {
        if self.0.is_empty() {
            return TableLevel::Inherit;
        }
        self.0.get(&rel).copied().unwrap_or_default()
    }
}

fn option<'a>(options: &'a [(String, String)], name: &str) -> Option<&'a str> {
    options.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

/// The level that a table's options, which were checked when they were set, ask for.
pub fn level_of(options: &[(String, String)], persistence: Persistence) -> TableLevel {
    if persistence != Persistence::Permanent {
        return TableLevel::Volatile;
    }
    match option(options, DURABILITY) {
        Some("sync") => TableLevel::Sync,
        Some("async") => {
            let max_loss = option(options, MAX_LOSS).and_then(|text| parse_max_loss(text).ok());
            TableLevel::Async { max_loss_micros: max_loss }
        }
        _ => TableLevel::Inherit,
    }
}

/// Refuses options that would mean nothing together.
pub fn check(options: &[(String, String)], persistence: Persistence) -> Result<()> {
    let (level, max_loss) = (option(options, DURABILITY), option(options, MAX_LOSS));
    let invalid = |message: &str| SqlError::new(State::INVALID_PARAMETER_VALUE, message);
    if persistence != Persistence::Permanent {
        let name = match (level, max_loss) {
            (Some(_), _) => DURABILITY,
            (None, Some(_)) => MAX_LOSS,
            (None, None) => return Ok(()),
        };
        let message = format!("option \"{name}\" is for permanent tables only");
        let detail = "A crash empties unlogged tables, and temporary ones end with their session.";
        return Err(invalid(&message).detail(detail));
    }
    match (level, max_loss) {
        (Some("async"), _) | (_, None) => Ok(()),
        (_, Some(_)) => Err(invalid("option \"max_loss\" requires \"durability\" to be \"async\"")
            .hint("Set durability = async with it, or RESET (max_loss) first.")),
    }
}

/// Microseconds of a duration such as `250ms`, `1.5s`, `2 min`; a bare number counts milliseconds.
pub fn parse_max_loss(text: &str) -> Result<u64> {
    let invalid = |message: String| SqlError::new(State::INVALID_PARAMETER_VALUE, message);
    let trimmed = text.trim();
    let number = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = (number.trim(), &trimmed[number.len()..]);
    let bad = || invalid(format!("invalid value for option \"{MAX_LOSS}\": {text}"));
    let micros = match unit {
        "us" => 1.0,
        "" | "ms" => 1e3,
        "s" => 1e6,
        "min" => 60e6,
        "h" => 3_600e6,
        "d" => 86_400e6,
        _ => {
            let units = "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", \
                         and \"d\".";
            return Err(bad().hint(units));
        }
    };
    let value = number.parse::<f64>().map_err(|_| bad())? * micros;
    let out_of_bounds = || {
        invalid(format!("value {text} out of bounds for option \"{MAX_LOSS}\""))
            .detail("Valid values are between \"1ms\" and \"1h\".")
    };
    if !value.is_finite() || value < 0.0 || value > *MAX_LOSS_MICROS.end() as f64 {
        return Err(out_of_bounds());
    }
    let value = value.round() as u64;
    if MAX_LOSS_MICROS.contains(&value) { Ok(value) } else { Err(out_of_bounds()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn durations_are_read_as_settings_are() {
        for (text, micros) in [
            ("250ms", 250_000),
            ("250", 250_000),
            ("1.5s", 1_500_000),
            (" 2 min ", 120_000_000),
            ("1500us", 1_500),
            ("1ms", 1_000),
            ("1h", 3_600_000_000),
        ] {
            assert_eq!(parse_max_loss(text), Ok(micros), "{text}");
        }
        for text in ["", "ms", "soon", "1 parsec", "1e3x", "nanms"] {
            let e = parse_max_loss(text).expect_err(text);
            assert_eq!(e.message(), format!("invalid value for option \"max_loss\": {text}"));
        }
        for text in ["0", "999us", "-5ms", "3600001", "1d", "1e300h", "2h"] {
            let e = parse_max_loss(text).expect_err(text);
            assert_eq!(e.message(), format!("value {text} out of bounds for option \"max_loss\""));
        }
    }

    #[test]
    fn options_become_levels() {
        let level = |pairs: &[(&str, &str)]| level_of(&options(pairs), Persistence::Permanent);
        assert_eq!(level(&[]), TableLevel::Inherit);
        assert_eq!(level(&[("durability", "inherit")]), TableLevel::Inherit);
        assert_eq!(level(&[("fillfactor", "70"), ("durability", "sync")]), TableLevel::Sync);
        let unbounded = TableLevel::Async { max_loss_micros: None };
        assert_eq!(level(&[("durability", "async")]), unbounded);
        let bounded = TableLevel::Async { max_loss_micros: Some(2_000_000) };
        assert_eq!(level(&[("max_loss", "2s"), ("durability", "async")]), bounded);
        for persistence in [Persistence::Unlogged, Persistence::Temporary] {
            assert_eq!(level_of(&[], persistence), TableLevel::Volatile);
            let kept = options(&[("durability", "sync")]);
            assert_eq!(level_of(&kept, persistence), TableLevel::Volatile);
        }
    }

    #[test]
    fn what_would_mean_nothing_is_refused() {
        let refused = |pairs: &[(&str, &str)], persistence| {
            check(&options(pairs), persistence).err().map(|e| e.message().to_owned())
        };
        let permanent = Persistence::Permanent;
        assert_eq!(refused(&[("durability", "async"), ("max_loss", "1s")], permanent), None);
        assert_eq!(refused(&[("durability", "sync")], permanent), None);
        for pairs in [
            &[("max_loss", "1s")][..],
            &[("max_loss", "1s"), ("durability", "sync")],
            &[("durability", "inherit"), ("max_loss", "1s")],
        ] {
            let message = refused(pairs, permanent).expect("refused");
            assert!(message.contains("requires \"durability\" to be \"async\""), "{message}");
        }
        for persistence in [Persistence::Unlogged, Persistence::Temporary] {
            assert_eq!(refused(&[("fillfactor", "70")], persistence), None);
            let message = refused(&[("durability", "async")], persistence).expect("refused");
            assert_eq!(message, "option \"durability\" is for permanent tables only");
        }
    }
}
