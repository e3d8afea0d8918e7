//! Parsing and printing setting values: booleans, numbers with units, words.
//!
//! Values are kept in canonical text: `on`/`off`, a number in the setting's own unit, a word as
//! the registry spells it. `16MB` for a setting in 8 kB pages is kept as `2048` and shown as
//! `16MB`, as PostgreSQL does.

use super::defs::{Kind, SettingDef, Unit};
use crate::error::{Result, SqlError, State};

/// The canonical text of `text` as a value of `def`, or PostgreSQL's error about it.
pub fn parse_value(def: &SettingDef, text: &str) -> Result<String> {
    match def.kind {
        Kind::Bool => parse_bool(text)
            .map(|b| on_off(b).to_owned())
            .ok_or_else(|| invalid(format!("parameter \"{}\" requires a Boolean value", def.name))),
        Kind::Int { min, max, unit } => parse_int(def, text, min, max, unit),
        Kind::Real { min, max } => parse_real(def, text, min, max),
        Kind::Enum(words) => parse_word(def, text, words),
        Kind::Text => Ok(text.to_owned()),
    }
}

/// The text that SHOW prints for a canonical value.
pub fn format_value(def: &SettingDef, value: &str) -> String {
    let Kind::Int { unit, .. } = def.kind else { return value.to_owned() };
    let Ok(number) = value.parse::<i64>() else { return value.to_owned() };
    if number <= 0 || unit == Unit::None {
        return value.to_owned();
    }
    let steps: &[(i64, &str)] = match unit {
        Unit::Kb | Unit::Mb | Unit::Blocks => {
            &[(1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")]
        }
        _ => &[(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")],
    };
    let base = number.saturating_mul(unit_size(unit));
    for (size, name) in steps {
        if base % size == 0 {
            return format!("{}{name}", base / size);
        }
    }
    value.to_owned()
}

/// PostgreSQL's spellings of a truth value: unique prefixes of true, false, yes, no, on, off, 1, 0.
pub fn parse_bool(text: &str) -> Option<bool> {
    let t = text.trim().to_ascii_lowercase();
    let is_prefix = |word: &str, min: usize| t.len() >= min && word.starts_with(&t);
    if t == "1" || is_prefix("true", 1) || is_prefix("yes", 1) || t == "on" {
        Some(true)
    } else if t == "0" || is_prefix("false", 1) || is_prefix("no", 1) || is_prefix("off", 2) {
        Some(false)
    } else {
        None
    }
}

pub(super) fn on_off(b: bool) -> &'static str {
    if b { "on" } else { "off" }
}

fn invalid(message: String) -> SqlError {
    SqlError::new(State::INVALID_PARAMETER_VALUE, message)
}

/// Bytes, milliseconds or plain counts in one unit.
const fn unit_size(unit: Unit) -> i64 {
    match unit {
        Unit::None | Unit::Ms => 1,
        Unit::Kb => 1 << 10,
        Unit::Mb => 1 << 20,
        Unit::Blocks => 8192,
        Unit::Sec => 1000,
        Unit::Min => 60_000,
    }
}

fn suffix_size(suffix: &str, unit: Unit) -> Option<f64> {
    let memory = matches!(unit, Unit::Kb | Unit::Mb | Unit::Blocks);
    let time = matches!(unit, Unit::Ms | Unit::Sec | Unit::Min);
    Some(match suffix {
        "" => unit_size(unit) as f64,
        "B" if memory => 1.0,
        "kB" if memory => 1024.0,
        "MB" if memory => 1048576.0,
        "GB" if memory => 1073741824.0,
        "TB" if memory => 1099511627776.0,
        "us" if time => 0.001,
        "ms" if time => 1.0,
        "s" if time => 1000.0,
        "min" if time => 60_000.0,
        "h" if time => 3_600_000.0,
        "d" if time => 86_400_000.0,
        _ => return None,
    })
}

fn parse_int(def: &SettingDef, text: &str, min: i64, max: i64, unit: Unit) -> Result<String> {
    let t = text.trim();
    let split = t.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(t.len());
    let bad = || invalid(format!("invalid value for parameter \"{}\": \"{text}\"", def.name));
    let number: f64 = t[..split].trim().parse().map_err(|_| bad())?;
    let size = suffix_size(t[split..].trim(), unit).ok_or_else(|| match unit {
        Unit::Kb | Unit::Mb | Unit::Blocks => bad()
            .hint("Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\"."),
        Unit::Ms | Unit::Sec | Unit::Min => bad().hint(
            "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".",
        ),
        Unit::None => bad(),
    })?;
    let value = (number * size / unit_size(unit) as f64).round();
    if !value.is_finite() || value.abs() > i64::MAX as f64 / 2.0 {
        return Err(bad());
    }
    let value = value as i64;
    if value < min || value > max {
        let suffix = unit.as_str().map(|u| format!(" {u}")).unwrap_or_default();
        return Err(invalid(format!(
            "{value}{suffix} is outside the valid range for parameter \"{}\" ({min} .. {max})",
            def.name
        )));
    }
    Ok(value.to_string())
}

fn parse_real(def: &SettingDef, text: &str, min: f64, max: f64) -> Result<String> {
    let value: f64 = text.trim().parse().map_err(|_| {
        invalid(format!("invalid value for parameter \"{}\": \"{text}\"", def.name))
    })?;
    if !(min..=max).contains(&value) {
        return Err(invalid(format!(
            "{value} is outside the valid range for parameter \"{}\" ({min} .. {max})",
            def.name
        )));
    }
    Ok(value.to_string())
}

fn parse_word(def: &SettingDef, text: &str, words: &[&str]) -> Result<String> {
    if let Some(word) = words.iter().find(|w| w.eq_ignore_ascii_case(text.trim())) {
        return Ok((*word).to_owned());
    }
    // Words that are really truth values take every spelling of them.
    if let Some(b) = parse_bool(text)
        && words.contains(&on_off(b))
    {
        return Ok(on_off(b).to_owned());
    }
    Err(invalid(format!("invalid value for parameter \"{}\": \"{text}\"", def.name))
        .hint(format!("Available values: {}.", words.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::find;

    fn parse(name: &str, text: &str) -> Result<String> {
        parse_value(find(name).expect("known setting"), text)
    }

    #[test]
    fn units_convert_to_the_setting_s_own() {
        assert_eq!(parse("shared_buffers", "16MB").as_deref(), Ok("2048"));
        assert_eq!(parse("checkpoint_timeout", "5min").as_deref(), Ok("300"));
        assert_eq!(parse("statement_timeout", "1.5s").as_deref(), Ok("1500"));
        let def = find("shared_buffers").expect("known");
        assert_eq!(format_value(def, "2048"), "16MB");
        assert_eq!(format_value(find("checkpoint_timeout").expect("known"), "300"), "5min");
    }

    #[test]
    fn errors_are_postgresql_s() {
        let e = parse("checkpoint_timeout", "1").expect_err("too small");
        assert_eq!(
            e.message(),
            "1 s is outside the valid range for parameter \"checkpoint_timeout\" (30 .. 86400)"
        );
        assert!(parse("fsync", "maybe").is_err());
        assert!(parse("work_mem", "12 parsecs").is_err());
        assert_eq!(parse("synchronous_commit", "true").as_deref(), Ok("on"));
        assert_eq!(parse("synchronous_commit", "remote_apply").as_deref(), Ok("remote_apply"));
        let e = parse("synchronous_commit", "standby").expect_err("no such level");
        assert_eq!(
            e.get_hint(),
            Some("Available values: local, remote_write, remote_apply, on, off.")
        );
    }
}
