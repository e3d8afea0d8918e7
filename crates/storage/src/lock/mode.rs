//! The eight lock modes and which of them exclude each other.

use std::fmt;

/// PostgreSQL's table-level lock modes, weakest first. Every kind of lock uses the same eight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LockMode {
    /// SELECT.
    AccessShare = 1,
    /// SELECT FOR UPDATE and its kin.
    RowShare = 2,
    /// INSERT, UPDATE, DELETE, MERGE.
    RowExclusive = 3,
    /// VACUUM, ANALYZE, CREATE INDEX CONCURRENTLY.
    ShareUpdateExclusive = 4,
    /// CREATE INDEX.
    Share = 5,
    /// CREATE TRIGGER, some forms of ALTER TABLE.
    ShareRowExclusive = 6,
    /// REFRESH MATERIALIZED VIEW CONCURRENTLY.
    Exclusive = 7,
    /// DROP, TRUNCATE, most forms of ALTER TABLE, plain LOCK TABLE.
    AccessExclusive = 8,
}

/// A set of lock modes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ModeSet(u16);

impl ModeSet {
    pub(crate) const EMPTY: ModeSet = ModeSet(0);

    pub(crate) const fn of(mode: LockMode) -> Self {
        ModeSet(1 << mode as u16)
    }
    pub(crate) const fn with(self, mode: LockMode) -> Self {
        ModeSet(self.0 | Self::of(mode).0)
    }
    pub(crate) const fn without(self, mode: LockMode) -> Self {
        ModeSet(self.0 & !Self::of(mode).0)
    }
    pub(crate) const fn meets(self, other: ModeSet) -> bool {
        self.0 & other.0 != 0
    }
    pub(crate) const fn has(self, mode: LockMode) -> bool {
        self.meets(Self::of(mode))
    }
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

const fn set(modes: &[LockMode]) -> ModeSet {
    let mut all = ModeSet::EMPTY;
    let mut at = 0;
    while at < modes.len() {
        all = all.with(modes[at]);
        at += 1;
    }
    all
}

impl LockMode {
    pub const ALL: [LockMode; 8] = [
        LockMode::AccessShare,
        LockMode::RowShare,
        LockMode::RowExclusive,
        LockMode::ShareUpdateExclusive,
        LockMode::Share,
        LockMode::ShareRowExclusive,
        LockMode::Exclusive,
        LockMode::AccessExclusive,
    ];

    /// The modes that nobody else may hold together with this one.
    pub(crate) const fn conflicts(self) -> ModeSet {
        use LockMode::*;
        const ROWS: [ModeSet; 8] = [
            set(&[AccessExclusive]),
            set(&[Exclusive, AccessExclusive]),
            set(&[Share, ShareRowExclusive, Exclusive, AccessExclusive]),
            set(&[ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive]),
            set(&[
                RowExclusive,
                ShareUpdateExclusive,
                ShareRowExclusive,
                Exclusive,
                AccessExclusive,
            ]),
            set(&[
                RowExclusive,
                ShareUpdateExclusive,
                Share,
                ShareRowExclusive,
                Exclusive,
                AccessExclusive,
            ]),
            set(&[
                RowShare,
                RowExclusive,
                ShareUpdateExclusive,
                Share,
                ShareRowExclusive,
                Exclusive,
                AccessExclusive,
            ]),
            set(&LockMode::ALL),
        ];
        ROWS[self as usize - 1]
    }

    /// Whether two sessions may not hold these two on one object.
    pub const fn conflicts_with(self, other: LockMode) -> bool {
        self.conflicts().has(other)
    }

    /// Conflicts with no other mode of its kind: can be held on the fast path.
    pub(crate) const fn is_weak(self) -> bool {
        matches!(self, LockMode::AccessShare | LockMode::RowShare | LockMode::RowExclusive)
    }

    /// Conflicts with some weak mode, so must look at the fast paths.
    pub(crate) const fn is_strong(self) -> bool {
        self as u8 > LockMode::ShareUpdateExclusive as u8
    }

    /// PostgreSQL's name, as in `pg_locks.mode` and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            LockMode::AccessShare => "AccessShareLock",
            LockMode::RowShare => "RowShareLock",
            LockMode::RowExclusive => "RowExclusiveLock",
            LockMode::ShareUpdateExclusive => "ShareUpdateExclusiveLock",
            LockMode::Share => "ShareLock",
            LockMode::ShareRowExclusive => "ShareRowExclusiveLock",
            LockMode::Exclusive => "ExclusiveLock",
            LockMode::AccessExclusive => "AccessExclusiveLock",
        }
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix of the manual's chapter on explicit locking; # where two modes conflict.
    const MATRIX: [&str; 8] = [
        ".......#", // ACCESS SHARE
        "......##", // ROW SHARE
        "....####", // ROW EXCLUSIVE
        "...#####", // SHARE UPDATE EXCLUSIVE
        "..##.###", // SHARE
        "..######", // SHARE ROW EXCLUSIVE
        ".#######", // EXCLUSIVE
        "########", // ACCESS EXCLUSIVE
    ];

    #[test]
    fn conflicts_are_the_documented_ones() {
        for (row, a) in MATRIX.iter().zip(LockMode::ALL) {
            for (cell, b) in row.chars().zip(LockMode::ALL) {
                assert_eq!(a.conflicts_with(b), cell == '#', "{a} against {b}");
                assert_eq!(a.conflicts_with(b), b.conflicts_with(a), "symmetric");
            }
        }
    }

    #[test]
    fn weak_modes_conflict_only_with_strong_ones() {
        for a in LockMode::ALL.into_iter().filter(|m| m.is_weak()) {
            for b in LockMode::ALL {
                assert!(!a.conflicts_with(b) || b.is_strong(), "{a} against {b}");
            }
        }
    }
}
