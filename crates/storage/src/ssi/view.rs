//! What people look at.

use super::Ssi;
use super::tag::Tag;
use super::xact::Stage;
use crate::ids::BlockNo;

/// One row of `pg_locks` with mode `SIReadLock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SireadView {
    pub tag: Tag,
    /// The page that it was taken on, if it is not on a whole relation.
    pub block: Option<BlockNo>,
    /// `None`: its transactions are summarised.
    pub pid: Option<i32>,
}

/// Figures.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SsiStats {
    /// Running and prepared transactions that are watched.
    pub active: usize,
    /// Ended ones that somebody running overlaps.
    pub ended: usize,
    pub locks: usize,
    /// Victims since the start.
    pub dooms: u64,
    /// Transactions summarised since the start.
    pub summarised: u64,
}

impl Ssi {
    /// All SIREAD locks.
    pub fn list(&self) -> Vec<SireadView> {
        let state = self.state.lock();
        let held = state.xacts.values().flat_map(|x| {
            x.held.tags().map(|(tag, block)| SireadView { tag, block, pid: Some(x.pid) })
        });
        let old = state.targets.old.iter().map(|tag| {
            let block = match tag {
                Tag::Page(_, block) => Some(*block),
                Tag::Tuple(_, row) => Some(row.block),
                Tag::Relation(_) | Tag::Key(..) => None,
            };
            SireadView { tag: *tag, block, pid: None }
        });
        let mut all: Vec<SireadView> = held.chain(old).collect();
        all.sort_by_key(|view| (view.pid, view.tag));
        all
    }

    /// The processes that wait for a safe snapshot.
    pub fn deferred(&self) -> Vec<i32> {
        if self.is_idle() {
            return Vec::new();
        }
        let state = self.state.lock();
        let waiting = state.xacts.values().filter(|x| x.waits.is_some());
        waiting.map(|x| x.pid).collect()
    }

    /// The processes whose end a process waits for with a DEFERRABLE transaction.
    pub fn safe_snapshot_blockers(&self, pid: i32) -> Vec<i32> {
        let state = self.state.lock();
        let mut waiting = state.xacts.values().filter(|x| x.pid == pid);
        let waiting = waiting.find(|x| x.stage == Stage::Running && x.waits.is_some());
        let blockers = waiting.iter().flat_map(|x| &x.unsafe_with);
        blockers.filter_map(|id| state.xacts.get(id)).map(|x| x.pid).collect()
    }

    pub fn stats(&self) -> SsiStats {
        let state = self.state.lock();
        SsiStats {
            active: state.active.len(),
            ended: state.committed.len(),
            locks: state.targets.held + state.targets.old.len(),
            dooms: state.dooms,
            summarised: state.summarised,
        }
    }
}
