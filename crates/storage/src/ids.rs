//! The engine's identifiers.
//!
//! Every id is a newtype, so that a block number cannot be passed where a slot number is
//! meant. Fields are private; the text forms are PostgreSQL's (`0/16B3748` for a log
//! position, `(3,7)` for a row).
//!
//! | type        | shape | meaning                                                       |
//! |-------------|-------|---------------------------------------------------------------|
//! | [`Xid`]     | u64   | transaction or subtransaction; never wraps; 0 is invalid       |
//! | [`CommandId`] | u32 | statement number inside a transaction                          |
//! | [`Lsn`]     | u64   | byte position in the log, 8-byte aligned; 0 is invalid         |
//! | [`RelId`]   | u32   | a relation's files (PostgreSQL's relfilenode)                  |
//! | [`PageId`]  | 12 B  | relation, fork, block                                          |
//! | [`SlotNo`]  | u16   | line pointer on a page, counted from 1; 0 is invalid           |
//! | [`RowId`]   | 6+2 B | block and slot: PostgreSQL's ctid                              |

use std::fmt;

/// A transaction id. Never reused, never wraps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Xid(u64);

impl Xid {
    /// "No transaction".
    pub const INVALID: Xid = Xid(0);
    /// Whatever carries this id is committed and visible to everybody, for ever.
    pub const FROZEN: Xid = Xid(2);
    /// The first id handed out to a transaction.
    pub const FIRST_NORMAL: Xid = Xid(3);

    #[inline]
    pub const fn new(raw: u64) -> Self {
        Xid(raw)
    }

    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub const fn is_valid(self) -> bool {
        self.0 != 0
    }

    /// An id that a transaction can have (neither invalid nor frozen).
    #[inline]
    pub const fn is_normal(self) -> bool {
        self.0 >= Self::FIRST_NORMAL.0
    }

    /// The id after this one.
    #[inline]
    pub const fn next(self) -> Self {
        Xid(self.0 + 1)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", self.0)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of a command inside its transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommandId(u32);

impl CommandId {
    pub const FIRST: CommandId = CommandId(0);

    #[inline]
    pub const fn new(raw: u32) -> Self {
        CommandId(raw)
    }

    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The next command's id, or `None` after 2^32 - 2 commands in one transaction.
    pub const fn next(self) -> Option<Self> {
        if self.0 >= u32::MAX - 1 { None } else { Some(CommandId(self.0 + 1)) }
    }
}

impl fmt::Debug for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// A position in the write-ahead log, in bytes; always a multiple of [`Lsn::ALIGN`].
///
/// A record's `Lsn` is the position *after* its last byte, so "durable" is one comparison:
/// the log is flushed up to at least that position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    pub const INVALID: Lsn = Lsn(0);
    pub const MAX: Lsn = Lsn(!(Self::ALIGN - 1));
    /// Positions are multiples of this many bytes; the low bits are free for flags.
    pub const ALIGN: u64 = 8;

    #[inline]
    pub const fn new(raw: u64) -> Self {
        Lsn(raw)
    }

    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub const fn is_valid(self) -> bool {
        self.0 != 0
    }

    /// The position `bytes` further on, rounded up to the alignment.
    #[inline]
    pub const fn advance(self, bytes: u64) -> Self {
        Lsn((self.0 + bytes).next_multiple_of(Self::ALIGN))
    }

    /// How many bytes `self` is beyond `earlier`; 0 when it is not.
    #[inline]
    pub const fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads PostgreSQL's text form, as in `16/B374D848`: two halves of at most eight hexadecimal
    /// digits.
    pub fn parse(text: &str) -> Option<Self> {
        let half = |digits: &str| {
            let sound = digits.len() <= 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            sound.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        let (high, low) = text.split_once('/')?;
        Some(Lsn((u64::from(half(high)?) << 32) | u64::from(half(low)?)))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The files of one relation (table, index, TOAST table, sequence).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelId(u32);

impl RelId {
    pub const INVALID: RelId = RelId(0);

    #[inline]
    pub const fn new(raw: u32) -> Self {
        RelId(raw)
    }

    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for RelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rel{}", self.0)
    }
}

impl fmt::Display for RelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Which of a relation's files a page lives in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Fork {
    /// The data.
    Main = 0,
    /// Free-space map.
    Fsm = 1,
    /// Visibility map.
    Vm = 2,
    /// What an unlogged relation starts from after a crash.
    Init = 3,
}

impl Fork {
    pub const ALL: [Fork; 4] = [Fork::Main, Fork::Fsm, Fork::Vm, Fork::Init];

    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Fork::Main),
            1 => Some(Fork::Fsm),
            2 => Some(Fork::Vm),
            3 => Some(Fork::Init),
            _ => None,
        }
    }

    /// The file name's ending, as PostgreSQL has it.
    pub const fn suffix(self) -> &'static str {
        match self {
            Fork::Main => "",
            Fork::Fsm => "_fsm",
            Fork::Vm => "_vm",
            Fork::Init => "_init",
        }
    }
}

/// The number of a page in its file, counted from 0.
pub type BlockNo = u32;

/// Names one 8 KiB page of the data directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    pub rel: RelId,
    pub fork: Fork,
    pub block: BlockNo,
}

impl PageId {
    #[inline]
    pub const fn new(rel: RelId, fork: Fork, block: BlockNo) -> Self {
        PageId { rel, fork, block }
    }

    /// A page of the main fork.
    #[inline]
    pub const fn main(rel: RelId, block: BlockNo) -> Self {
        PageId { rel, fork: Fork::Main, block }
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}:{}", self.rel, self.fork.suffix(), self.block)
    }
}

/// A line pointer's number on its page, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SlotNo(u16);

impl SlotNo {
    pub const INVALID: SlotNo = SlotNo(0);
    pub const FIRST: SlotNo = SlotNo(1);

    #[inline]
    pub const fn new(raw: u16) -> Self {
        SlotNo(raw)
    }

    #[inline]
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Position in an array that starts with slot 1. Panics on the invalid slot.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    #[inline]
    pub const fn from_index(index: usize) -> Self {
        SlotNo(index as u16 + 1)
    }
}

impl fmt::Debug for SlotNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where a row version lives: PostgreSQL's ctid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RowId {
    pub block: BlockNo,
    pub slot: SlotNo,
}

impl RowId {
    pub const INVALID: RowId = RowId { block: u32::MAX, slot: SlotNo::INVALID };

    #[inline]
    pub const fn new(block: BlockNo, slot: SlotNo) -> Self {
        RowId { block, slot }
    }

    #[inline]
    pub fn is_valid(self) -> bool {
        self.slot != SlotNo::INVALID
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.block, self.slot.raw())
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_text_round_trips() {
        let lsn = Lsn::new(0x0000_0001_16B3_7480);
        assert_eq!(lsn.to_string(), "1/16B37480");
        assert_eq!(Lsn::parse("1/16B37480"), Some(lsn));
        for wrong in ["1-16", "/1", "1/", "+1/2", "1/-2", "1/123456789", "g/1"] {
            assert_eq!(Lsn::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lsn_advance_keeps_alignment() {
        assert_eq!(Lsn::new(16).advance(1), Lsn::new(24));
        assert_eq!(Lsn::new(16).advance(8), Lsn::new(24));
    }

    #[test]
    fn slots_count_from_one() {
        assert_eq!(SlotNo::FIRST.index(), 0);
        assert_eq!(SlotNo::from_index(4).raw(), 5);
    }
}
