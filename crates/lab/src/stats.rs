//! What is told of a handful of samples: the median, the lowest and the highest.
//!
//! Not a mean and not a deviation: with three or five runs on a shared machine one bad run would
//! carry the mean away, and nothing says that the runs are distributed in any particular way. The
//! extremes are samples, so everything shown was really measured.

use serde::{Deserialize, Serialize};

/// The samples in short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Summary {
    /// `None` without samples, or with one that is no number.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        if samples.iter().any(|s| s.is_nan()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (lowest, highest) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[half - 1], sorted[half])
        } else {
            sorted[half]
        };
        Some(Summary { median, lowest, highest })
    }
}

/// The least sample that so much of all (0 to 1) does not exceed: a sample again.
pub fn percentile(samples: &[f64], part: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied()
}

/// The median, where there is one.
pub fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|s| s.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_numbers_of_samples() {
        let odd = Summary::of(&[3.0, 1.0, 10.0]).unwrap();
        assert_eq!(odd, Summary { median: 3.0, lowest: 1.0, highest: 10.0 });
        let even = Summary::of(&[4.0, 1.0, 2.0, 100.0]).unwrap();
        assert_eq!(even, Summary { median: 3.0, lowest: 1.0, highest: 100.0 });
        let one = Summary::of(&[-2.5]).unwrap();
        assert_eq!(one, Summary { median: -2.5, lowest: -2.5, highest: -2.5 });
    }

    #[test]
    fn percentiles_are_samples() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&hundred, 0.99), Some(99.0));
        assert_eq!(percentile(&hundred, 0.5), Some(50.0));
        assert_eq!(percentile(&hundred, 0.0), Some(1.0));
        assert_eq!(percentile(&hundred, 1.0), Some(100.0));
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.99), None);
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(median(&[2.0, 4.0]), Some(3.0));
    }
}
