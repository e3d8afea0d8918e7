//! Which level a commit gets: a function of what was written and of what the session says.
//!
//! ```text
//!   sync table            ─┐
//!   inherit, session sync ─┴─> Sync
//!   async table(s)        ─┐
//!   inherit, session async ┴─> Async, the smallest bound among them
//!   unlogged, temporary   ───> count for nothing
//! ```
//!
//! - The strictest table decides (D1); a transaction has one record, so its parts cannot differ.
//! - Dropping files is synchronous whatever the tables say: a removed file cannot be rolled back.
//! - What wrote nothing that a crash leaves behind is waited for by nobody.

use crate::txn::CommitMode;
use std::ops::RangeInclusive;

/// What `max_loss` may be: a millisecond to an hour.
pub const MAX_LOSS_MICROS: RangeInclusive<u64> = 1_000..=3_600_000_000;

/// What a table asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableLevel {
    /// What the session says.
    #[default]
    Inherit,
    /// A crash takes nothing.
    Sync,
    /// A crash takes at most the last moments; without a bound of its own, the default one's.
    Async { max_loss_micros: Option<u64> },
    /// Unlogged or temporary: a crash takes everything.
    Volatile,
}

impl TableLevel {
    /// The name that `durability` has for it.
    pub const fn name(self) -> &'static str {
        match self {
            TableLevel::Inherit => "inherit",
            TableLevel::Sync => "sync",
            TableLevel::Async { .. } => "async",
            TableLevel::Volatile => "volatile",
        }
    }

    /// How long one of its commits may stay undurable when nobody waits for it. `None`: there is
    /// no such promise, because somebody waits, or because nothing is promised at all.
    #[inline]
    pub const fn bound(self, session: SessionLevel) -> Option<u64> {
        match self {
            TableLevel::Async { max_loss_micros: Some(bound) } => Some(bound),
            TableLevel::Async { max_loss_micros: None } => Some(session.default_loss_micros),
            TableLevel::Inherit if !session.sync => Some(session.default_loss_micros),
            TableLevel::Inherit | TableLevel::Sync | TableLevel::Volatile => None,
        }
    }
}

/// What the session says at commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLevel {
    /// `synchronous_commit` is anything but `off`.
    pub sync: bool,
    /// The bound of what is asynchronous and names none (`wal_writer_delay`).
    pub default_loss_micros: u64,
}

/// The level of a transaction that wrote relations of these levels.
#[inline]
pub fn decide(
    session: SessionLevel,
    drops_files: bool,
    written: impl IntoIterator<Item = TableLevel>,
) -> CommitMode {
    if drops_files {
        return CommitMode::Sync;
    }
    let mut smallest = None;
    for level in written {
        if level == TableLevel::Volatile {
            continue;
        }
        let Some(bound) = level.bound(session) else { return CommitMode::Sync };
        smallest = Some(smallest.map_or(bound, |least: u64| least.min(bound)));
    }
    match smallest {
        Some(max_loss_micros) => CommitMode::Async { max_loss_micros },
        None => CommitMode::NothingToLose,
    }
}
