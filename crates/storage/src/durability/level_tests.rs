//! The decision against a model that knows one number: what a crash may take, in microseconds.

use super::{MAX_LOSS_MICROS, SessionLevel, TableLevel, decide};
use crate::txn::CommitMode;
use proptest::prelude::*;

/// Nothing to lose.
const EVERYTHING: f64 = f64::INFINITY;

/// What each relation allows to lose; a transaction may lose the least of that.
fn allowed(level: TableLevel, session: SessionLevel) -> f64 {
    let session_allows = if session.sync { 0.0 } else { session.default_loss_micros as f64 };
    match level {
        TableLevel::Sync => 0.0,
        TableLevel::Inherit => session_allows,
        TableLevel::Async { max_loss_micros: Some(bound) } => bound as f64,
        TableLevel::Async { max_loss_micros: None } => session.default_loss_micros as f64,
        TableLevel::Volatile => EVERYTHING,
    }
}

fn levels() -> impl Strategy<Value = TableLevel> {
    prop_oneof![
        Just(TableLevel::Inherit),
        Just(TableLevel::Sync),
        Just(TableLevel::Volatile),
        proptest::option::of(MAX_LOSS_MICROS)
            .prop_map(|max_loss_micros| TableLevel::Async { max_loss_micros }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_least_that_any_table_allows_to_lose(
        sync in any::<bool>(),
        default_loss_micros in 1_000u64..10_000_000,
        drops in proptest::bool::weighted(0.1),
        written in proptest::collection::vec(levels(), 0..6),
    ) {
        let session = SessionLevel { sync, default_loss_micros };
        let files = if drops { 0.0 } else { EVERYTHING };
        let least = written.iter().map(|level| allowed(*level, session)).fold(files, f64::min);
        match decide(session, drops, written) {
            CommitMode::Sync => prop_assert_eq!(least, 0.0),
            CommitMode::NothingToLose => prop_assert_eq!(least, EVERYTHING),
            CommitMode::Async { max_loss_micros } => {
                prop_assert_eq!(max_loss_micros as f64, least);
            }
        }
    }

    #[test]
    fn neither_order_nor_repetition_matters(
        sync in any::<bool>(),
        mut written in proptest::collection::vec(levels(), 1..5),
    ) {
        let session = SessionLevel { sync, default_loss_micros: 200_000 };
        let first = decide(session, false, written.iter().copied());
        written.reverse();
        let twice = written.iter().chain(&written).copied();
        prop_assert_eq!(decide(session, false, twice), first);
    }
}
