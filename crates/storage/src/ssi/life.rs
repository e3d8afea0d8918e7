//! Begin, prepare, end, forget (rules L1-L5, S1, S2).

use super::xact::{Edges, Marks, Place, Stage, SxId, Xact, join, leave};
use super::{Failure, Order, State};
use crate::ids::{Lsn, Xid};
use crate::sync::Arc;
use crate::wait::{Event, WaitHandle};

impl State {
    /// A transaction with its first snapshot. `None`: its snapshot is safe, nothing is to be
    /// watched.
    pub(super) fn begin(
        &mut self,
        snapshot: Lsn,
        pid: i32,
        read_only: bool,
        xids: &[Xid],
        order: &impl Order,
    ) -> Option<Arc<Marks>> {
        let mut unsafe_with = Edges::new();
        if read_only {
            for (_, id) in &self.writers {
                let Some(w) = self.xacts.get(id) else { continue };
                let covered = matches!(w.place(order), Place::At(lsn) if lsn <= snapshot);
                if !w.is_doomed() && !covered {
                    join(&mut unsafe_with, *id);
                }
            }
            if unsafe_with.is_empty() {
                return None;
            }
        }
        let id = SxId(self.next);
        self.next += 1;
        let marks = Marks::new(id);
        let mut xact = Xact::new(Arc::clone(&marks), pid, snapshot, read_only);
        for writer in &unsafe_with {
            if let Some(w) = self.xacts.get_mut(writer) {
                join(&mut w.watchers, id);
            }
        }
        xact.unsafe_with = unsafe_with;
        xact.xids.extend_from_slice(xids);
        self.by_xid.extend(xids.iter().map(|xid| (*xid, id)));
        self.active.insert((snapshot, id));
        if !read_only {
            self.writers.insert((snapshot, id));
        }
        self.xacts.insert(id, xact);
        Some(marks)
    }

    pub(super) fn note_xid(&mut self, id: SxId, xid: Xid) {
        if let Some(xact) = self.xacts.get_mut(&id) {
            xact.xids.push(xid);
            self.by_xid.insert(xid, id);
        }
    }

    /// The handle of a DEFERRABLE transaction that is neither safe nor unsafe yet.
    pub(super) fn await_safe(&mut self, id: SxId) -> Option<WaitHandle> {
        let xact = self.xacts.get_mut(&id)?;
        Some(xact.waits.get_or_insert_with(Event::new).handle())
    }

    /// Whether a read-only transaction's snapshot has become unsafe: somebody wrote it off.
    pub(super) fn is_unsafe(&self, id: SxId) -> bool {
        self.xacts.get(&id).is_some_and(|x| x.read_only && x.unsafe_with.is_empty())
    }

    pub(super) fn prepare(&mut self, id: SxId, order: &impl Order) -> Result<(), Failure> {
        let Some(xact) = self.xacts.get(&id) else { return Ok(()) };
        if xact.is_doomed() {
            return Err(Failure("Canceled on commit attempt."));
        }
        self.check_as_out(id, order)?;
        if let Some(xact) = self.xacts.get_mut(&id) {
            xact.stage = Stage::Prepared;
        }
        Ok(())
    }

    /// It is published at `lsn`, or has written nothing.
    pub(super) fn commit(&mut self, id: SxId, lsn: Lsn, order: &impl Order) {
        let Some(xact) = self.xacts.get_mut(&id) else { return };
        let snapshot = xact.snapshot;
        let wrote = !xact.xids.is_empty();
        let at = if wrote { lsn } else { snapshot };
        xact.stage = Stage::Committed(at);
        xact.read_only |= !wrote;
        self.active.remove(&(snapshot, id));
        self.writers.remove(&(snapshot, id));
        let xact = &self.xacts[&id];
        let first = self.first_out(xact, order);
        if wrote {
            for reader in xact.ins.clone() {
                if let Some(r) = self.xacts.get_mut(&reader) {
                    r.earliest_out = r.earliest_out.min(at);
                }
            }
            if let Place::At(out) = first {
                self.make_unsafe(id, out);
            }
        }
        self.leave_watchers(id);
        self.forget_watching(id);
        self.committed.insert((at, id));
        self.locking.insert((at, id));
        self.clean(order);
    }

    pub(super) fn abort(&mut self, id: SxId, order: &impl Order) {
        let Some(xact) = self.xacts.get(&id) else { return };
        let snapshot = xact.snapshot;
        self.active.remove(&(snapshot, id));
        self.writers.remove(&(snapshot, id));
        self.leave_watchers(id);
        self.forget(id);
        self.clean(order);
    }

    /// `writer` has committed with an edge to a commit at `out`: snapshots from there on that were
    /// taken while it ran are unsafe.
    fn make_unsafe(&mut self, writer: SxId, out: Lsn) {
        let Some(w) = self.xacts.get(&writer) else { return };
        for reader in w.watchers.clone() {
            if self.xacts.get(&reader).is_some_and(|r| out <= r.snapshot) {
                self.forget_watching(reader);
                if let Some(r) = self.xacts.get_mut(&reader) {
                    self.wakes.extend(r.waits.take());
                }
            }
        }
    }

    /// `writer` is nobody's concern any more; the snapshots that waited only for it are safe.
    pub(super) fn leave_watchers(&mut self, writer: SxId) {
        let Some(w) = self.xacts.get_mut(&writer) else { return };
        for reader in std::mem::take(&mut w.watchers) {
            let Some(r) = self.xacts.get_mut(&reader) else { continue };
            leave(&mut r.unsafe_with, writer);
            if r.unsafe_with.is_empty() && r.stage == Stage::Running {
                self.become_safe(reader);
            }
        }
    }

    /// A read-only transaction does not look at the writers on its list any more.
    fn forget_watching(&mut self, reader: SxId) {
        let Some(r) = self.xacts.get_mut(&reader) else { return };
        for writer in std::mem::take(&mut r.unsafe_with) {
            if let Some(w) = self.xacts.get_mut(&writer) {
                leave(&mut w.watchers, reader);
            }
        }
    }

    fn become_safe(&mut self, id: SxId) {
        let Some(xact) = self.xacts.get_mut(&id) else { return };
        if xact.is_doomed() {
            return;
        }
        xact.marks.make_safe();
        let snapshot = xact.snapshot;
        self.wakes.extend(xact.waits.take());
        self.active.remove(&(snapshot, id));
        self.forget(id);
    }

    /// Takes a transaction out of everything.
    fn forget(&mut self, id: SxId) {
        self.release_locks(id);
        self.forget_watching(id);
        let Some(xact) = self.xacts.remove(&id) else { return };
        self.wakes.extend(xact.waits);
        for xid in &xact.xids {
            self.by_xid.remove(xid);
        }
        for reader in xact.ins {
            if let Some(r) = self.xacts.get_mut(&reader) {
                leave(&mut r.outs, id);
            }
        }
        for writer in xact.outs {
            if let Some(w) = self.xacts.get_mut(&writer) {
                leave(&mut w.ins, id);
            }
        }
    }

    /// Forgets what nobody running overlaps, and summarises what is too much.
    fn clean(&mut self, order: &impl Order) {
        let oldest = |set: &std::collections::BTreeSet<(Lsn, SxId)>| {
            set.first().map_or(Lsn::MAX, |(snapshot, _)| *snapshot)
        };
        let (any, writer) = (oldest(&self.active), oldest(&self.writers));
        while let Some(first) = self.committed.first().copied().filter(|(lsn, _)| *lsn <= any) {
            self.committed.remove(&first);
            self.locking.remove(&first);
            self.forget(first.1);
        }
        while let Some(first) = self.locking.first().copied().filter(|(lsn, _)| *lsn <= writer) {
            self.locking.remove(&first);
            self.release_locks(first.1);
        }
        while self.committed.len() > self.limits.ended {
            let Some(first) = self.committed.pop_first() else { break };
            self.locking.remove(&first);
            self.summarise(first.1, first.0, order);
        }
        self.targets.trim_old(writer, self.limits.total);
        self.summary.trim(any);
    }

    /// Keeps of an ended transaction only what `summary` and the targets have room for.
    fn summarise(&mut self, id: SxId, lsn: Lsn, order: &impl Order) {
        let Some(xact) = self.xacts.get(&id) else { return };
        let tags: Vec<_> = xact.held.tags().map(|(tag, _)| tag).collect();
        for tag in tags {
            self.targets.add_old(tag, lsn);
        }
        // What is not published yet comes after it, and so is no danger with it as the pivot.
        let earliest = match self.first_out(xact, order) {
            Place::At(first) => first,
            _ => Lsn::MAX,
        };
        for xid in &xact.xids {
            self.summary.add(*xid, earliest, lsn);
        }
        for writer in xact.outs.clone() {
            if let Some(w) = self.xacts.get_mut(&writer) {
                w.summary_in = w.summary_in.max(lsn);
            }
        }
        self.summarised += 1;
        self.forget(id);
    }
}
