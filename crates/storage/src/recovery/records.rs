//! Main data of the records that this layer writes: checkpoints, relation files, id counters.
//!
//! | kind        | data                                                                        |
//! |-------------|-----------------------------------------------------------------------------|
//! | RelCreate   | rel u32, persistence u8                                                      |
//! | RelUnlink   | rel u32                                                                      |
//! | RelTruncate | rel u32, fork u8, blocks u32                                                 |
//! | NextXid     | xid u64: ids below may have been handed out                                  |
//! | NextRel     | rel u32: ids below may have been handed out                                  |
//! | Checkpoint  | redo u64, next xid u64, oldest xid u64, next rel u32, flags u8, time i64,    |
//! |             | n u32, n x (rel u32, xid u64) created; m u32, m x (rel u32, xid u64) dropped |
//!
//! A checkpoint's lists name the relation files whose fate hung on a transaction that was running:
//! their own records may lie before the redo point.

use crate::buffer::Persistence;
use crate::error::{Result, StorageError};
use crate::ids::{BlockNo, Fork, Lsn, RelId, Xid};

/// Flag of a checkpoint: the server stopped here.
const SHUTDOWN: u8 = 1;

/// A relation's file and the transaction that decides about it.
pub(crate) type PendingFile = (RelId, Xid);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointData {
    pub redo: Lsn,
    pub next_xid: Xid,
    pub oldest_xid: Xid,
    pub next_rel: RelId,
    pub shutdown: bool,
    pub time_micros: i64,
    /// Created by a transaction that had not ended: removed unless it committed.
    pub created: Vec<PendingFile>,
    /// Dropped by one that had not ended, or not removed yet: removed if it committed.
    pub dropped: Vec<PendingFile>,
}

/// Reads little-endian fields off a record's data.
struct Fields<'a> {
    rest: &'a [u8],
    kind: &'static str,
}

impl<'a> Fields<'a> {
    fn new(kind: &'static str, data: &'a [u8]) -> Self {
        Fields { rest: data, kind }
    }

    fn malformed(&self) -> StorageError {
        StorageError::corrupt(format!("malformed {} record in the log", self.kind))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk().ok_or_else(|| self.malformed())?;
        self.rest = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn files(&mut self) -> Result<Vec<PendingFile>> {
        let count = self.u32()?;
        (0..count).map(|_| Ok((RelId::new(self.u32()?), Xid::new(self.u64()?)))).collect()
    }

    fn end<T>(self, value: T) -> Result<T> {
        if self.rest.is_empty() { Ok(value) } else { Err(self.malformed()) }
    }
}

impl CheckpointData {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + 12 * (self.created.len() + self.dropped.len()));
        out.extend_from_slice(&self.redo.raw().to_le_bytes());
        out.extend_from_slice(&self.next_xid.raw().to_le_bytes());
        out.extend_from_slice(&self.oldest_xid.raw().to_le_bytes());
        out.extend_from_slice(&self.next_rel.raw().to_le_bytes());
        out.push(if self.shutdown { SHUTDOWN } else { 0 });
        out.extend_from_slice(&self.time_micros.to_le_bytes());
        for list in [&self.created, &self.dropped] {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
            for (rel, xid) in list {
                out.extend_from_slice(&rel.raw().to_le_bytes());
                out.extend_from_slice(&xid.raw().to_le_bytes());
            }
        }
        out
    }

    pub fn decode(data: &[u8]) -> Result<Self> {
        let mut fields = Fields::new("Checkpoint", data);
        let data = CheckpointData {
            redo: Lsn::new(fields.u64()?),
            next_xid: Xid::new(fields.u64()?),
            oldest_xid: Xid::new(fields.u64()?),
            next_rel: RelId::new(fields.u32()?),
            shutdown: fields.u8()? & SHUTDOWN != 0,
            time_micros: fields.u64()? as i64,
            created: fields.files()?,
            dropped: fields.files()?,
        };
        fields.end(data)
    }
}

pub(crate) fn encode_create(rel: RelId, persistence: Persistence) -> [u8; 5] {
    let rel = rel.raw().to_le_bytes();
    [rel[0], rel[1], rel[2], rel[3], persistence as u8]
}

pub(crate) fn decode_create(data: &[u8]) -> Result<(RelId, Persistence)> {
    let mut fields = Fields::new("RelCreate", data);
    let rel = RelId::new(fields.u32()?);
    let raw = fields.u8()?;
    let persistence = Persistence::from_raw(raw).ok_or_else(|| fields.malformed())?;
    fields.end((rel, persistence))
}

pub(crate) fn encode_rel(rel: RelId) -> [u8; 4] {
    rel.raw().to_le_bytes()
}

pub(crate) fn decode_rel(kind: &'static str, data: &[u8]) -> Result<RelId> {
    let mut fields = Fields::new(kind, data);
    let rel = RelId::new(fields.u32()?);
    fields.end(rel)
}

pub(crate) fn encode_truncate(rel: RelId, fork: Fork, blocks: BlockNo) -> [u8; 9] {
    let mut out = [0; 9];
    out[..4].copy_from_slice(&rel.raw().to_le_bytes());
    out[4] = fork as u8;
    out[5..].copy_from_slice(&blocks.to_le_bytes());
    out
}

pub(crate) fn decode_truncate(data: &[u8]) -> Result<(RelId, Fork, BlockNo)> {
    let mut fields = Fields::new("RelTruncate", data);
    let rel = RelId::new(fields.u32()?);
    let fork = Fork::from_raw(fields.u8()?).ok_or_else(|| fields.malformed())?;
    let blocks = fields.u32()?;
    fields.end((rel, fork, blocks))
}

#[cfg(test)]
fn encode_xid(xid: Xid) -> [u8; 8] {
    xid.raw().to_le_bytes()
}

pub(crate) fn decode_xid(data: &[u8]) -> Result<Xid> {
    let mut fields = Fields::new("NextXid", data);
    let xid = Xid::new(fields.u64()?);
    fields.end(xid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_round_trips_and_refuses_cuts() {
        let checkpoint = CheckpointData {
            redo: Lsn::new(0x100_0008),
            next_xid: Xid::new(77),
            oldest_xid: Xid::new(3),
            next_rel: RelId::new(16390),
            shutdown: true,
            time_micros: -1,
            created: vec![(RelId::new(5), Xid::new(70)), (RelId::new(6), Xid::new(71))],
            dropped: vec![(RelId::new(9), Xid::new(72))],
        };
        let bytes = checkpoint.encode();
        assert_eq!(CheckpointData::decode(&bytes).expect("whole"), checkpoint);
        for cut in 0..bytes.len() {
            assert!(CheckpointData::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let rel = RelId::new(400);
        for p in [Persistence::Permanent, Persistence::Unlogged, Persistence::Temporary] {
            assert_eq!(decode_create(&encode_create(rel, p)).expect("whole"), (rel, p));
        }
        assert!(decode_create(&[0, 0, 0, 0, 9]).is_err());
        let truncate = encode_truncate(rel, Fork::Vm, 12);
        assert_eq!(decode_truncate(&truncate).expect("whole"), (rel, Fork::Vm, 12));
        assert!(decode_truncate(&truncate[..8]).is_err());
        assert_eq!(decode_xid(&encode_xid(Xid::new(8))).expect("whole"), Xid::new(8));
        assert_eq!(decode_rel("NextRel", &encode_rel(rel)).expect("whole"), rel);
    }
}
