//! The experiments, one a file, and the list of them.

mod async_commit;
mod checkpoint_cost;
mod durability_mix;
mod first_scan;
mod mix_report;
mod recovery;
mod status_path;
mod tpcb;
mod unlogged;
mod visibility_share;
mod wal_flush;

use crate::{Experiment, LabError};

/// Every experiment there is.
static ALL: &[&dyn Experiment] = &[
    &first_scan::FirstScan,
    &async_commit::AsyncCommit,
    &unlogged::Unlogged,
    &status_path::StatusPath,
    &visibility_share::VisibilityShare,
    &wal_flush::WalFlush,
    &durability_mix::DurabilityMix,
    &checkpoint_cost::CheckpointCost,
    &recovery::Recovery,
];

/// Every experiment, in the order in which they are told.
pub fn all() -> &'static [&'static dyn Experiment] {
    ALL
}

/// The experiment of that name.
pub fn find(name: &str) -> Result<&'static dyn Experiment, LabError> {
    all().iter().copied().find(|e| e.name() == name).ok_or_else(|| {
        let known: Vec<_> = all().iter().map(|e| e.name()).collect();
        LabError::UnknownExperiment { name: name.to_owned(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_distinct() {
        for experiment in all() {
            assert_eq!(find(experiment.name()).unwrap().name(), experiment.name());
            assert!(!experiment.summary().contains('\n'));
            assert_eq!(all().iter().filter(|e| e.name() == experiment.name()).count(), 1);
        }
        let error = find("nothing").err().unwrap().to_string();
        assert!(error.contains("no experiment \"nothing\"") && error.contains("first-scan"));
    }
}
