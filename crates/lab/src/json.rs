//! The report for programs: everything that was measured, sample by sample.

use crate::{LabError, Report};

/// Indented, ended by a newline.
pub fn write(report: &Report) -> Result<String, LabError> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// What [`write`] wrote.
pub fn read(text: &str) -> Result<Report, LabError> {
    Ok(serde_json::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;

    #[test]
    fn there_and_back() {
        let report = sample();
        let text = write(&report).unwrap();
        assert_eq!(read(&text).unwrap(), report);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let first = &value["groups"][0]["measurements"][0];
        assert_eq!(first["summary"]["median"], 141.0);
        assert_eq!(first["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["goals"][0]["bound"]["at_most"], 1.05);
    }

    #[test]
    fn what_is_no_report_is_refused() {
        assert!(read("{}").is_err());
        assert!(read("").is_err());
    }
}
