//! Edges, dangerous structures, victims (rules D1-D7).
//!
//! ```text
//!   Tin ──rw──> Tpivot ──rw──> Tout        Tout prepared or committed first: dangerous
//!
//!   new edge r -> w      w as the pivot: r -> w -> (first of w's outs)
//!                        r as the pivot: (each of r's ins) -> r -> w
//!   Tout prepares        (each in of each in) -> in -> Tout
//! ```

use super::xact::{Place, SxId, Xact, join};
use super::{Failure, Order, State};
use crate::ids::{Lsn, Xid};
use smallvec::SmallVec;

/// Why a transaction fails; the detail of its error.
const WRITE_PIVOT: &str = "Canceled on identification as a pivot, during write.";
const READ_PIVOT: &str = "Canceled on identification as a pivot, during read.";
const OUT_TO_PIVOT: &str = "Canceled on conflict out to a pivot, during read.";
const PREPARED_PIVOT: &str = "Canceled on commit attempt with conflict in from a prepared pivot.";
const OLD_PIVOT: &str = "Canceled on conflict out to an old pivot.";
const OLD_OUT: &str = "Canceled as a pivot, with conflict out to an old transaction.";
const OLD_IN: &str = "Canceled as a pivot, with conflict in from an old transaction.";

/// The part that Tin plays in a dangerous structure.
#[derive(Clone, Copy)]
struct Tin {
    place: Place,
    /// Its snapshot, if it is read-only.
    read_only_at: Option<Lsn>,
}

impl Tin {
    fn of(xact: &Xact, order: &impl Order) -> Tin {
        let read_only_at = xact.read_only.then_some(xact.snapshot);
        Tin { place: xact.place(order), read_only_at }
    }

    /// Summarised ones, the newest of which committed at `newest`.
    fn summarised(newest: Lsn) -> Tin {
        Tin { place: Place::At(newest), read_only_at: None }
    }
}

/// Rule D1.
fn is_dangerous(tin: Tin, pivot: Place, out: Place) -> bool {
    if !out.may_precede(tin.place) || !out.may_precede(pivot) {
        return false;
    }
    match (tin.read_only_at, out) {
        (None, _) => true,
        (Some(snapshot), Place::At(lsn)) => lsn <= snapshot,
        // Not published, so beyond every snapshot there is.
        (Some(_), _) => false,
    }
}

impl State {
    /// The first in the commit order of those that a transaction has an edge to.
    pub(super) fn first_out(&self, xact: &Xact, order: &impl Order) -> Place {
        let known = match xact.earliest_out {
            Lsn::MAX => Place::Running,
            lsn => Place::At(lsn),
        };
        let outs = xact.outs.iter().filter_map(|id| self.xacts.get(id));
        outs.filter(|out| !out.is_doomed())
            .fold(known, |first, out| first.earlier(out.place(order)))
    }

    /// Whether some Tin makes `pivot -> out` dangerous. Tout's place is looked up last: what is
    /// not published then comes after all that was found published before.
    fn has_tin(&self, pivot: &Xact, out: impl FnOnce() -> Place, order: &impl Order) -> bool {
        let at = pivot.place(order);
        let old = pivot.summary_in.is_valid().then(|| Tin::summarised(pivot.summary_in));
        let live = pivot.ins.iter().filter_map(|id| self.xacts.get(id));
        let live = live.filter(|tin| !tin.is_doomed()).map(|tin| Tin::of(tin, order));
        let tins: SmallVec<[Tin; 8]> = live.chain(old).collect();
        let out = if tins.is_empty() { Place::Running } else { out() };
        tins.into_iter().any(|tin| is_dangerous(tin, at, out))
    }

    /// A new edge. `actor` is whoever found it, one of the two and running.
    pub(super) fn edge(
        &mut self,
        reader: SxId,
        writer: SxId,
        actor: SxId,
        order: &impl Order,
    ) -> Result<(), Failure> {
        let (Some(r), Some(w)) = (self.xacts.get(&reader), self.xacts.get(&writer)) else {
            return Ok(());
        };
        let needless = r.read_only && w.snapshot >= r.snapshot;
        if reader == writer || r.is_doomed() || w.is_doomed() || needless {
            return Ok(());
        }
        let place = w.place(order);
        let Some(r) = self.xacts.get_mut(&reader) else { return Ok(()) };
        if !join(&mut r.outs, writer) {
            return Ok(());
        }
        if let Place::At(lsn) = place {
            r.earliest_out = r.earliest_out.min(lsn);
        }
        if let Some(w) = self.xacts.get_mut(&writer) {
            join(&mut w.ins, reader);
        }
        let (r, w) = (&self.xacts[&reader], &self.xacts[&writer]);
        if is_dangerous(Tin::of(r, order), place, self.first_out(w, order)) {
            return match place {
                Place::Running if writer != actor => {
                    self.doom(writer);
                    Ok(())
                }
                Place::Running => self.fail(actor, WRITE_PIVOT),
                _ => self.fail(actor, OUT_TO_PIVOT),
            };
        }
        if self.has_tin(r, || w.place(order), order) {
            return self.fail(actor, READ_PIVOT);
        }
        Ok(())
    }

    /// `reader` did not see the work of `xid`, which runs or committed beyond its snapshot.
    pub(super) fn conflict_out(
        &mut self,
        reader: SxId,
        xid: Xid,
        order: &impl Order,
    ) -> Result<(), Failure> {
        if let Some(writer) = self.by_xid.get(&xid).copied() {
            return self.edge(reader, writer, reader, order);
        }
        let Some(old) = self.summary.find(xid) else { return Ok(()) };
        let Some(at) = order.committed_at(xid) else { return Ok(()) };
        let Some(r) = self.xacts.get_mut(&reader) else { return Ok(()) };
        r.earliest_out = r.earliest_out.min(at);
        let r = &self.xacts[&reader];
        let out = match old.earliest_out {
            Lsn::MAX => Place::Running,
            lsn => Place::At(lsn),
        };
        if is_dangerous(Tin::of(r, order), Place::At(at), out) {
            return self.fail(reader, OLD_PIVOT);
        }
        if self.has_tin(r, || Place::At(at), order) {
            return self.fail(reader, OLD_OUT);
        }
        Ok(())
    }

    /// `writer` is about to change what summarised transactions, up to `newest`, have read.
    pub(super) fn conflict_in_old(
        &mut self,
        writer: SxId,
        newest: Lsn,
        order: &impl Order,
    ) -> Result<(), Failure> {
        let Some(w) = self.xacts.get_mut(&writer) else { return Ok(()) };
        if newest <= w.snapshot {
            return Ok(());
        }
        w.summary_in = w.summary_in.max(newest);
        let w = &self.xacts[&writer];
        let first = self.first_out(w, order);
        if is_dangerous(Tin::summarised(newest), w.place(order), first) {
            return self.fail(writer, OLD_IN);
        }
        Ok(())
    }

    /// `writer` changes what `reader` has read, if the two overlap.
    pub(super) fn conflict_in(
        &mut self,
        writer: SxId,
        reader: SxId,
        order: &impl Order,
    ) -> Result<(), Failure> {
        let (Some(r), Some(w)) = (self.xacts.get(&reader), self.xacts.get(&writer)) else {
            return Ok(());
        };
        match r.place(order) {
            Place::At(lsn) if lsn <= w.snapshot => Ok(()),
            _ => self.edge(reader, writer, writer, order),
        }
    }

    /// The last look at `out` before it commits: pivots that it would be the first to leave.
    pub(super) fn check_as_out(&mut self, out: SxId, order: &impl Order) -> Result<(), Failure> {
        let Some(xact) = self.xacts.get(&out) else { return Ok(()) };
        for pivot in xact.ins.clone() {
            let Some(p) = self.xacts.get(&pivot) else { continue };
            let place = p.place(order);
            if p.is_doomed() || matches!(place, Place::At(_)) {
                continue;
            }
            let tins = p.ins.iter().filter_map(|id| self.xacts.get(id).map(|x| (*id, x)));
            let mut tins = tins.filter(|(_, tin)| !tin.is_doomed());
            // As Tin the one that prepares counts as being where it will be: last.
            let found = tins.any(|(id, tin)| {
                id == out || is_dangerous(Tin::of(tin, order), place, Place::Prepared)
            });
            match (found, place) {
                (false, _) => {}
                (true, Place::Running) => self.doom(pivot),
                (true, _) => {
                    return self.fail(out, PREPARED_PIVOT);
                }
            }
        }
        Ok(())
    }

    /// Makes a running transaction a victim.
    pub(super) fn doom(&mut self, id: SxId) {
        let Some(xact) = self.xacts.get(&id) else { return };
        if !xact.is_doomed() {
            xact.marks.doom();
            self.dooms += 1;
            // It will not commit: no snapshot is unsafe because of it.
            self.leave_watchers(id);
        }
    }

    fn fail(&mut self, id: SxId, reason: &'static str) -> Result<(), Failure> {
        self.doom(id);
        Err(Failure(reason))
    }
}
