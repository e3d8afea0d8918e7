//! The logged changes of index pages.
//!
//! A block's part of a log record is a sequence of these, each a tag byte and its fields,
//! little-endian. [`Op::apply_to`] is the one way from the old page to the new, forward and in
//! redo ([`redo`]).
//!
//! | tag | change         | fields                                                        |
//! |-----|----------------|---------------------------------------------------------------|
//! | 1   | meta page      | root, level, fast root, level, free head, free count           |
//! | 2   | initialise     | level, flags, generation, left, right                          |
//! | 3   | load           | length, items (empty page)                                     |
//! | 4   | insert entry   | index, row, key                                                |
//! | 5   | insert pivot   | index, row, child, key                                         |
//! | 6   | remove         | count, indexes                                                 |
//! | 7   | truncate       | from, right, high row, high key (left half of a split)          |
//! | 8   | high key       | row, key                                                       |
//! | 9   | left link      | block                                                          |
//! | 10  | right link     | link                                                           |
//! | 11  | clear flags    | flags                                                          |
//! | 12  | downlink       | index, child                                                   |
//! | 13  | delete page    | next free page                                                 |

use super::edit::{self, NodeInit};
use super::node::*;
use crate::buffer::{OpError, PageOp};
use crate::ids::BlockNo;
use crate::page::Page;

/// One change of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    Meta(Meta),
    Init(NodeInit),
    /// Items as [`edit::ItemList`] encodes them.
    Load(&'a [u8]),
    Insert {
        at: u16,
        row: u64,
        key: &'a [u8],
    },
    InsertPivot {
        at: u16,
        row: u64,
        child: Link,
        key: &'a [u8],
    },
    /// Indexes, ascending, two bytes each.
    Remove(&'a [u8]),
    Truncate {
        from: u16,
        right: Link,
        row: u64,
        key: &'a [u8],
    },
    High {
        row: u64,
        key: &'a [u8],
    },
    Left(BlockNo),
    Right(Link),
    ClearFlags(u16),
    Child {
        at: u16,
        child: Link,
    },
    Delete {
        next: BlockNo,
    },
}

/// The indexes of a `Remove`, as it wants them.
pub fn encode_indexes(indexes: &[usize]) -> Vec<u8> {
    indexes.iter().flat_map(|&i| (i as u16).to_le_bytes()).collect()
}

impl Op<'_> {
    pub fn truncate(from: usize, right: Link, high: Pos<'_>) -> Op<'_> {
        Op::Truncate { from: from as u16, right, row: high.row, key: high.key }
    }

    pub fn high(high: Pos<'_>) -> Op<'_> {
        Op::High { row: high.row, key: high.key }
    }

    pub fn insert(at: usize, item: Item<'_>) -> Op<'_> {
        let (at, Item { key, row, child }) = (at as u16, item);
        if child.is_none() {
            Op::Insert { at, row, key }
        } else {
            Op::InsertPivot { at, row, child, key }
        }
    }

    fn encode_to(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        match *self {
            Op::Meta(m) => {
                w.tag(1).link(m.root).u32(m.root_level).link(m.fast).u32(m.fast_level);
                w.u32(m.free_head).u32(m.free_count)
            }
            Op::Init(i) => {
                w.tag(2).u16(i.level).u16(i.flags).u32(i.generation).u32(i.left).link(i.right)
            }
            Op::Load(items) => w.tag(3).bytes(items),
            Op::Insert { at, row, key } => w.tag(4).u16(at).row(row).bytes(key),
            Op::InsertPivot { at, row, child, key } => {
                w.tag(5).u16(at).row(row).link(child).bytes(key)
            }
            Op::Remove(indexes) => w.tag(6).bytes(indexes),
            Op::Truncate { from, right, row, key } => {
                w.tag(7).u16(from).link(right).row(row).bytes(key)
            }
            Op::High { row, key } => w.tag(8).row(row).bytes(key),
            Op::Left(block) => w.tag(9).u32(block),
            Op::Right(link) => w.tag(10).link(link),
            Op::ClearFlags(flags) => w.tag(11).u16(flags),
            Op::Child { at, child } => w.tag(12).u16(at).link(child),
            Op::Delete { next } => w.tag(13).u32(next),
        };
    }

    pub fn apply_to(&self, page: &mut Page) -> Read<()> {
        match *self {
            Op::Meta(meta) => {
                meta.write(page);
                Ok(())
            }
            Op::Init(with) => edit::init(page, with),
            Op::Load(items) => edit::load(page, edit::ItemList::decode(items)),
            Op::Insert { at, row, key } => {
                edit::insert(page, usize::from(at), Item { key, row, child: Link::NONE })
            }
            Op::InsertPivot { at, row, child, key } => {
                edit::insert(page, usize::from(at), Item { key, row, child })
            }
            Op::Remove(indexes) => {
                let (pairs, rest) = indexes.as_chunks::<2>();
                if !rest.is_empty() {
                    return Err(Damage("a logged removal is cut short"));
                }
                let indexes: Vec<u16> = pairs.iter().map(|p| u16::from_le_bytes(*p)).collect();
                edit::remove(page, &indexes)
            }
            Op::Truncate { from, right, row, key } => {
                edit::truncate(page, usize::from(from), right, Pos { key, row })
            }
            Op::High { row, key } => edit::set_high(page, Pos { key, row }),
            Op::Left(block) => edit::set_left(page, block),
            Op::Right(link) => edit::set_right(page, link),
            Op::ClearFlags(flags) => edit::clear_flags(page, flags),
            Op::Child { at, child } => edit::set_child(page, usize::from(at), child),
            Op::Delete { next } => edit::delete_page(page, next),
        }
    }
}

struct Writer<'o>(&'o mut Vec<u8>);

impl Writer<'_> {
    fn tag(&mut self, tag: u8) -> &mut Self {
        self.0.push(tag);
        self
    }
    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn row(&mut self, row: u64) -> &mut Self {
        self.0.extend_from_slice(&row_bytes(row));
        self
    }
    fn link(&mut self, link: Link) -> &mut Self {
        self.u32(link.block).u32(link.generation)
    }
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= usize::from(u16::MAX), "a logged change beyond 64 KiB");
        self.u16(bytes.len() as u16);
        self.0.extend_from_slice(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(len).ok_or(Damage("a logged index change is cut short"))?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut raw = [0; N];
        raw.copy_from_slice(self.take(N)?);
        Ok(raw)
    }
    fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn row(&mut self) -> Read<u64> {
        Ok(row_at(self.take(ROW_SIZE)?).unwrap_or(0))
    }
    fn link(&mut self) -> Read<Link> {
        Ok(Link::new(self.u32()?, self.u32()?))
    }
    fn bytes(&mut self) -> Read<&'a [u8]> {
        let len = usize::from(self.u16()?);
        self.take(len)
    }
}

fn decode<'a>(r: &mut Reader<'a>) -> Read<Op<'a>> {
    Ok(match r.take(1)?[0] {
        1 => Op::Meta(Meta {
            root: r.link()?,
            root_level: r.u32()?,
            fast: r.link()?,
            fast_level: r.u32()?,
            free_head: r.u32()?,
            free_count: r.u32()?,
        }),
        2 => Op::Init(NodeInit {
            level: r.u16()?,
            flags: r.u16()?,
            generation: r.u32()?,
            left: r.u32()?,
            right: r.link()?,
        }),
        3 => Op::Load(r.bytes()?),
        4 => Op::Insert { at: r.u16()?, row: r.row()?, key: r.bytes()? },
        5 => Op::InsertPivot { at: r.u16()?, row: r.row()?, child: r.link()?, key: r.bytes()? },
        6 => Op::Remove(r.bytes()?),
        7 => Op::Truncate { from: r.u16()?, right: r.link()?, row: r.row()?, key: r.bytes()? },
        8 => Op::High { row: r.row()?, key: r.bytes()? },
        9 => Op::Left(r.u32()?),
        10 => Op::Right(r.link()?),
        11 => Op::ClearFlags(r.u16()?),
        12 => Op::Child { at: r.u16()?, child: r.link()? },
        13 => Op::Delete { next: r.u32()? },
        _ => return Err(Damage("an unknown logged index change")),
    })
}

/// The changes that a block's part of a log record holds.
pub fn decode_all(ops: &[u8]) -> impl Iterator<Item = Read<Op<'_>>> {
    let mut reader = Reader(ops);
    std::iter::from_fn(move || {
        if reader.0.is_empty() {
            return None;
        }
        let op = decode(&mut reader);
        if op.is_err() {
            reader.0 = &[];
        }
        Some(op)
    })
}

/// Says in words what a block's part of a record does.
pub fn describe(ops: &[u8]) -> String {
    let words = |op: Read<Op<'_>>| op.map_or_else(|damage| format!("<{}>", damage.0), describe_one);
    decode_all(ops).map(words).collect::<Vec<_>>().join("; ")
}

fn describe_one(op: Op<'_>) -> String {
    match op {
        Op::Meta(m) => format!("meta root {:?} level {}", m.root, m.root_level),
        Op::Init(i) => format!("init level {} left {} right {:?}", i.level, i.left, i.right),
        Op::Load(items) => format!("load {} bytes", items.len()),
        Op::Insert { at, row, key } => {
            format!("insert {at} row {} key {}", row_id(row), hex(key))
        }
        Op::InsertPivot { at, child, key, .. } => {
            format!("insert pivot {at} child {child:?} key {}", hex(key))
        }
        Op::Remove(at) => format!("remove {} entries", at.len() / 2),
        Op::Truncate { from, right, key, .. } => {
            format!("split off from {from} right {right:?} high key {}", hex(key))
        }
        Op::High { key, .. } => format!("high key {}", hex(key)),
        Op::Left(block) => format!("left link {block}"),
        Op::Right(link) => format!("right link {link:?}"),
        Op::ClearFlags(flags) => format!("clear flags {flags:#x}"),
        Op::Child { at, child } => format!("downlink {at} child {child:?}"),
        Op::Delete { next } => format!("delete page, next free {next}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

impl PageOp for Op<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_to(out);
    }

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        self.apply_to(page).map_err(|damage| OpError::from(damage.0))
    }
}

/// Applies a block's part of a log record.
pub fn redo(ops: &[u8], page: &mut Page) -> Result<(), OpError> {
    decode_all(ops).try_for_each(|op| op?.apply_to(page)).map_err(|damage| OpError::from(damage.0))
}
