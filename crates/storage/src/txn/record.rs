//! What a Commit or Abort record says beside its transaction's id.
//!
//! ```text
//!   | flags u8 | time i64 | n varint | n children, each a varint step from the one before
//!                                    | m varint | m relations to unlink, each a varint |
//! ```
//!
//! Children are sorted and greater than the top level's id (rule T3), so the steps are small.
//! The record is all that redo, a replica or a log reader needs: no parent map exists elsewhere.

use crate::error::{Result, StorageError};
use crate::ids::{RelId, Xid};

const SYNC: u8 = 1;

/// What the committing or aborting session wants in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitPayload {
    /// The client is told only after the flush (kept in the status word, semantics 29).
    pub sync: bool,
    /// Wall clock, microseconds since 1970.
    pub time_micros: i64,
    /// Relations whose files go once the record is durable.
    pub unlinks: Vec<RelId>,
}

/// The decoded body of a Commit or Abort record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndRecord {
    pub payload: CommitPayload,
    /// Subtransactions that share the fate, ascending.
    pub children: Vec<Xid>,
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let bits = u64::from(byte & 0x7F);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The body for `top` and its `children` (ascending, all greater than `top`).
pub(crate) fn encode(top: Xid, children: &[Xid], payload: &CommitPayload) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 + 3 * children.len() + 5 * payload.unlinks.len());
    out.push(if payload.sync { SYNC } else { 0 });
    out.extend_from_slice(&payload.time_micros.to_le_bytes());
    put_varint(&mut out, children.len() as u64);
    let mut last = top.raw();
    for child in children {
        assert!(child.raw() > last, "children ascend from their parent");
        put_varint(&mut out, child.raw() - last);
        last = child.raw();
    }
    put_varint(&mut out, payload.unlinks.len() as u64);
    for rel in &payload.unlinks {
        put_varint(&mut out, u64::from(rel.raw()));
    }
    out
}

fn decode_body(top: Xid, body: &[u8]) -> Option<EndRecord> {
    let (&flags, mut rest) = body.split_first()?;
    let (time, tail) = rest.split_first_chunk::<8>()?;
    rest = tail;
    let count = take_varint(&mut rest)?;
    let mut children = Vec::new();
    let mut last = top.raw();
    for _ in 0..count {
        last = last.checked_add(take_varint(&mut rest)?)?;
        children.push(Xid::new(last));
    }
    let count = take_varint(&mut rest)?;
    let mut unlinks = Vec::new();
    for _ in 0..count {
        unlinks.push(RelId::new(u32::try_from(take_varint(&mut rest)?).ok()?));
    }
    let payload =
        CommitPayload { sync: flags & SYNC != 0, time_micros: i64::from_le_bytes(*time), unlinks };
    (flags & !SYNC == 0 && rest.is_empty()).then_some(EndRecord { payload, children })
}

/// Reads the body of a Commit or Abort record of `top`.
pub fn decode(top: Xid, body: &[u8]) -> Result<EndRecord> {
    decode_body(top, body).ok_or_else(|| {
        StorageError::corrupt(format!("malformed end record of transaction {top} in the log"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_round_trip(
            top in 3u64..1 << 40,
            steps in prop::collection::vec(1u64..1 << 20, 0..20),
            unlinks in prop::collection::vec(any::<u32>(), 0..5),
            sync: bool,
            time_micros: i64,
        ) {
            let top = Xid::new(top);
            let children: Vec<Xid> = steps
                .iter()
                .scan(top.raw(), |at, step| { *at += step; Some(Xid::new(*at)) })
                .collect();
            let unlinks = unlinks.into_iter().map(RelId::new).collect();
            let payload = CommitPayload { sync, time_micros, unlinks };
            let body = encode(top, &children, &payload);
            let expected = EndRecord { payload, children };
            prop_assert_eq!(decode(top, &body).expect("well formed"), expected);
            for cut in 0..body.len() {
                prop_assert!(decode(top, &body[..cut]).is_err());
            }
        }
    }

    #[test]
    fn a_record_without_children_is_small() {
        assert_eq!(encode(Xid::new(9), &[], &CommitPayload::default()).len(), 11);
    }
}
