//! Handing a prepared transaction over a restart.
//!
//! PREPARE TRANSACTION: call [`Ssi::prepare`] (it may fail with 40001; afterwards the transaction
//! is no victim), write [`Ssi::persist`]'s bytes into the transaction's state file, and keep the
//! [`Sx`] with whatever owns the prepared transaction. COMMIT PREPARED calls [`Ssi::commit`] after
//! publication, ROLLBACK PREPARED [`Ssi::abort`]. The owner announces the transaction's snapshot
//! until then, as a session does.
//!
//! After a restart [`Ssi::restore`] brings it back, before the first session connects. Its locks
//! are as they were. Its edges are not written, because others go on adding to them without
//! passing by the state file; instead the restored transaction counts as having an edge to the
//! earliest commit there is and one from the last: whoever meets its writes or overwrites its
//! reads gives way. That is conservative, and over with COMMIT or ROLLBACK PREPARED.

use super::tag::Tag;
use super::xact::Stage;
use super::{Ssi, Sx};
use crate::error::{Result, StorageError};
use crate::ids::{Lsn, RelId, RowId, SlotNo, Xid};

/// What a restart needs of a prepared serializable transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Persisted {
    pub snapshot: Lsn,
    /// The top one first.
    pub xids: Vec<Xid>,
    pub locks: Vec<Tag>,
}

impl Persisted {
    /// ```text
    ///   | snapshot 8 | n 4 | xid 8 .. | m 4 | (kind 1, relation 4, what 8) .. |
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.snapshot.raw().to_le_bytes());
        out.extend_from_slice(&(self.xids.len() as u32).to_le_bytes());
        for xid in &self.xids {
            out.extend_from_slice(&xid.raw().to_le_bytes());
        }
        out.extend_from_slice(&(self.locks.len() as u32).to_le_bytes());
        for tag in &self.locks {
            let (kind, what) = match *tag {
                Tag::Relation(_) => (0u8, 0),
                Tag::Page(_, block) => (1, u64::from(block)),
                Tag::Tuple(_, row) => (2, u64::from(row.block) << 16 | u64::from(row.slot.raw())),
                Tag::Key(_, key) => (3, key),
            };
            out.push(kind);
            out.extend_from_slice(&tag.rel().raw().to_le_bytes());
            out.extend_from_slice(&what.to_le_bytes());
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Persisted> {
        Self::read(bytes)
            .ok_or_else(|| StorageError::corrupt("a prepared transaction's reads are cut short"))
    }

    fn read(mut from: &[u8]) -> Option<Persisted> {
        let snapshot = Lsn::new(u64::from_le_bytes(take(&mut from)?));
        let xids = u32::from_le_bytes(take(&mut from)?);
        let xids = (0..xids).map(|_| Some(Xid::new(u64::from_le_bytes(take(&mut from)?))));
        let xids = xids.collect::<Option<Vec<_>>>()?;
        let locks = u32::from_le_bytes(take(&mut from)?);
        let locks = (0..locks).map(|_| read_tag(&mut from)).collect::<Option<Vec<_>>>()?;
        from.is_empty().then_some(Persisted { snapshot, xids, locks })
    }
}

fn read_tag(from: &mut &[u8]) -> Option<Tag> {
    let [kind] = take(from)?;
    let rel = RelId::new(u32::from_le_bytes(take(from)?));
    let what = u64::from_le_bytes(take(from)?);
    Some(match kind {
        0 => Tag::Relation(rel),
        1 => Tag::Page(rel, u32::try_from(what).ok()?),
        2 => Tag::Tuple(rel, RowId::new(u32::try_from(what >> 16).ok()?, SlotNo::new(what as u16))),
        3 => Tag::Key(rel, what),
        _ => return None,
    })
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (part, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*part)
}

impl Ssi {
    /// What to write of a prepared transaction; `None`: it is watched no more.
    pub fn persist(&self, sx: &Sx) -> Option<Persisted> {
        let state = self.state.lock();
        let xact = state.xacts.get(&sx.0.id)?;
        let mut locks: Vec<Tag> = xact.held.tags().map(|(tag, _)| tag).collect();
        locks.sort_unstable();
        Some(Persisted { snapshot: xact.snapshot, xids: xact.xids.to_vec(), locks })
    }

    /// Watches a prepared transaction again after a restart.
    pub fn restore(&self, persisted: &Persisted) -> Sx {
        self.with(|state| {
            let order = &Nobody;
            let sx = state
                .begin(persisted.snapshot, 0, false, &persisted.xids, order)
                .map(Sx)
                .expect("only a read-only transaction is safe at once");
            for tag in &persisted.locks {
                state.lock(sx.0.id, *tag);
            }
            if let Some(xact) = state.xacts.get_mut(&sx.0.id) {
                xact.stage = Stage::Prepared;
                xact.earliest_out = Lsn::new(8);
                xact.summary_in = Lsn::MAX;
            }
            sx
        })
    }
}

/// No commit is known.
struct Nobody;

impl super::Order for Nobody {
    fn committed_at(&self, _xid: Xid) -> Option<Lsn> {
        None
    }
}
