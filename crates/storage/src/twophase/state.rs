//! What is remembered of a prepared transaction: the body of its Prepare record.
//!
//! ```text
//!   | flags u8 | time i64 | role | name | children, each a step from the one before
//!   | created | dropped | written | locks: kind u8, fields, mode u8
//!   | row locks: rel, block, slot, xid, strength u8 |      numbers and counts are varints
//! ```
//!
//! The record's header has the top xid. Nothing here refers to memory that only the writing process
//! has: the record is all that a restart, a replica or a reader of the log needs (rule 2P1).

use crate::error::{Result, StorageError};
use crate::heap::RowLock;
use crate::ids::{RelId, RowId, SlotNo, Xid};
use crate::lock::{AdvisoryKey, LockMode, LockTag};
use crate::txn::{put_varint, take_varint};
use std::fmt;

const DEFINES: u8 = 1;

/// A row lock that is kept in memory.
pub(crate) type HeldRow = (RelId, RowId, Xid, RowLock);

/// See the module's essay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedState {
    /// The name that ends it.
    pub name: String,
    /// The role that prepared it.
    pub role: u32,
    /// When, by the wall clock, in microseconds since 1970.
    pub time_micros: i64,
    /// It changed the catalog: who keeps copies is told when it commits.
    pub defines: bool,
    /// Live subtransactions, ascending.
    pub children: Vec<Xid>,
    /// Relations whose files go if it is rolled back.
    pub created: Vec<RelId>,
    /// Relations whose files go if it commits.
    pub dropped: Vec<RelId>,
    /// Relations whose rows it wrote.
    pub written: Vec<RelId>,
    pub(crate) locks: Vec<(LockTag, LockMode)>,
    pub(crate) rows: Vec<HeldRow>,
}

const RELATION: u8 = 1;
const OBJECT: u8 = 2;
const ADVISORY_ONE: u8 = 3;
const ADVISORY_TWO: u8 = 4;

/// Whether a lock survives a restart. The others belong to waiting.
pub(crate) fn is_kept(tag: &LockTag) -> bool {
    matches!(tag, LockTag::Relation(_) | LockTag::Object(..) | LockTag::Advisory(_))
}

fn put_tag(out: &mut Vec<u8>, tag: &LockTag) {
    let (kind, fields): (u8, [u64; 2]) = match *tag {
        LockTag::Relation(oid) => (RELATION, [u64::from(oid), 0]),
        LockTag::Object(class, id) => (OBJECT, [u64::from(class), u64::from(id)]),
        LockTag::Advisory(AdvisoryKey::One(key)) => (ADVISORY_ONE, [key as u64, 0]),
        LockTag::Advisory(AdvisoryKey::Two(high, low)) => {
            (ADVISORY_TWO, [u64::from(high as u32), u64::from(low as u32)])
        }
        _ => unreachable!("only kept locks are written down"),
    };
    out.push(kind);
    fields.iter().for_each(|field| put_varint(out, *field));
}

/// Reads what `encode` wrote. Every answer is `None` when the bytes end too early or mean nothing.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        take_varint(&mut self.0)
    }

    fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn i64(&mut self) -> Option<i64> {
        let (bytes, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(bytes.to_vec()).ok()
    }

    /// A count and as many items. Memory grows with what is there, not with what is claimed.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(item(self)?);
        }
        Some(all)
    }

    fn rels(&mut self) -> Option<Vec<RelId>> {
        self.list(|fields| fields.u32().map(RelId::new))
    }

    fn lock(&mut self) -> Option<(LockTag, LockMode)> {
        let (kind, first, second) = (self.byte()?, self.number()?, self.number()?);
        let small = |field: u64| u32::try_from(field).ok();
        let tag = match kind {
            RELATION => LockTag::Relation(small(first)?),
            OBJECT => LockTag::Object(small(first)?, small(second)?),
            ADVISORY_ONE => LockTag::Advisory(AdvisoryKey::One(first as i64)),
            ADVISORY_TWO => {
                let key = AdvisoryKey::Two(small(first)? as i32, small(second)? as i32);
                LockTag::Advisory(key)
            }
            _ => return None,
        };
        let mode = usize::from(self.byte()?).checked_sub(1)?;
        Some((tag, *LockMode::ALL.get(mode)?))
    }

    fn row(&mut self) -> Option<HeldRow> {
        let rel = RelId::new(self.u32()?);
        let block = self.u32()?;
        let slot = SlotNo::new(u16::try_from(self.number()?).ok()?);
        let xid = Xid::new(self.number()?);
        let strength = match self.byte()? {
            0 => RowLock::KeyShare,
            1 => RowLock::Share,
            2 => RowLock::NoKeyUpdate,
            3 => RowLock::Update,
            _ => return None,
        };
        Some((rel, RowId::new(block, slot), xid, strength))
    }
}

fn decode_body(top: Xid, body: &[u8]) -> Option<PreparedState> {
    let mut fields = Fields(body);
    let flags = fields.byte()?;
    let time_micros = fields.i64()?;
    let role = fields.u32()?;
    let name = fields.text()?;
    let mut last = top.raw();
    let children = fields.list(|fields| {
        let step = fields.number()?;
        last = last.checked_add(step)?;
        (step > 0).then_some(Xid::new(last))
    })?;
    let state = PreparedState {
        name,
        role,
        time_micros,
        defines: flags & DEFINES != 0,
        children,
        created: fields.rels()?,
        dropped: fields.rels()?,
        written: fields.rels()?,
        locks: fields.list(Fields::lock)?,
        rows: fields.list(Fields::row)?,
    };
    (flags & !DEFINES == 0 && fields.0.is_empty() && top.is_normal()).then_some(state)
}

impl PreparedState {
    /// The body of the Prepare record of `top`.
    pub(crate) fn encode(&self, top: Xid) -> Vec<u8> {
        let mut out = vec![if self.defines { DEFINES } else { 0 }];
        out.extend_from_slice(&self.time_micros.to_le_bytes());
        put_varint(&mut out, u64::from(self.role));
        put_varint(&mut out, self.name.len() as u64);
        out.extend_from_slice(self.name.as_bytes());
        put_varint(&mut out, self.children.len() as u64);
        let mut last = top.raw();
        for child in &self.children {
            assert!(child.raw() > last, "children ascend from their parent");
            put_varint(&mut out, child.raw() - last);
            last = child.raw();
        }
        for rels in [&self.created, &self.dropped, &self.written] {
            put_varint(&mut out, rels.len() as u64);
            rels.iter().for_each(|rel| put_varint(&mut out, u64::from(rel.raw())));
        }
        put_varint(&mut out, self.locks.len() as u64);
        for (tag, mode) in &self.locks {
            put_tag(&mut out, tag);
            out.push(*mode as u8);
        }
        put_varint(&mut out, self.rows.len() as u64);
        for (rel, row, xid, strength) in &self.rows {
            put_varint(&mut out, u64::from(rel.raw()));
            put_varint(&mut out, u64::from(row.block));
            put_varint(&mut out, u64::from(row.slot.raw()));
            put_varint(&mut out, xid.raw());
            out.push(*strength as u8);
        }
        out
    }

    /// Reads the body of the Prepare record of `top`.
    pub(crate) fn decode(top: Xid, body: &[u8]) -> Result<Self> {
        decode_body(top, body).ok_or_else(|| {
            StorageError::corrupt(format!("malformed Prepare record of transaction {top}"))
        })
    }
}

impl fmt::Display for PreparedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" of role {}", self.name.escape_default(), self.role)?;
        if !self.children.is_empty() {
            write!(f, "; children")?;
            self.children.iter().try_for_each(|xid| write!(f, " {xid}"))?;
        }
        for (what, rels) in [("created", &self.created), ("dropped", &self.dropped)] {
            if !rels.is_empty() {
                write!(f, "; {what}")?;
                rels.iter().try_for_each(|rel| write!(f, " {rel}"))?;
            }
        }
        write!(f, "; {} locks, {} row locks", self.locks.len(), self.rows.len())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn locks() -> impl Strategy<Value = Vec<(LockTag, LockMode)>> {
        let tag = prop_oneof![
            any::<u32>().prop_map(LockTag::Relation),
            any::<(u32, u32)>().prop_map(|(class, id)| LockTag::Object(class, id)),
            any::<i64>().prop_map(|key| LockTag::Advisory(AdvisoryKey::One(key))),
            any::<(i32, i32)>().prop_map(|(a, b)| LockTag::Advisory(AdvisoryKey::Two(a, b))),
        ];
        prop::collection::vec((tag, (0usize..8).prop_map(|at| LockMode::ALL[at])), 0..6)
    }

    fn rows() -> impl Strategy<Value = Vec<HeldRow>> {
        let strength = prop::sample::select(vec![
            RowLock::KeyShare,
            RowLock::Share,
            RowLock::NoKeyUpdate,
            RowLock::Update,
        ]);
        let row = (any::<u32>(), any::<u32>(), any::<u16>(), 3u64..1 << 40, strength);
        let held = row.prop_map(|(rel, block, slot, xid, strength)| {
            let at = RowId::new(block, SlotNo::new(slot));
            (RelId::new(rel), at, Xid::new(xid), strength)
        });
        prop::collection::vec(held, 0..6)
    }

    proptest! {
        #[test]
        fn a_record_round_trips_and_no_part_of_it_does(
            top in 3u64..1 << 40,
            steps in prop::collection::vec(1u64..1 << 20, 0..8),
            rels in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..4), 3),
            name in "\\PC{0,40}",
            role: u32,
            defines: bool,
            time_micros: i64,
            locks in locks(),
            rows in rows(),
        ) {
            let top = Xid::new(top);
            let children = steps
                .iter()
                .scan(top.raw(), |at, step| { *at += step; Some(Xid::new(*at)) })
                .collect();
            let list = |at: usize| rels[at].iter().copied().map(RelId::new).collect();
            let (created, dropped, written) = (list(0), list(1), list(2));
            let state = PreparedState {
                name, role, time_micros, defines, children, created, dropped, written, locks, rows,
            };
            let body = state.encode(top);
            prop_assert_eq!(PreparedState::decode(top, &body).expect("well formed"), state);
            for cut in 0..body.len() {
                prop_assert!(PreparedState::decode(top, &body[..cut]).is_err());
            }
        }
    }

    #[test]
    fn a_count_beyond_the_record_costs_no_memory() {
        let mut body = PreparedState::default().encode(Xid::new(9));
        let at = body.len() - 1;
        body[at] = 0xFF;
        body.extend([0xFF; 8]);
        body.push(1);
        assert!(PreparedState::decode(Xid::new(9), &body).is_err());
    }
}
