//! Which files of the commit log are read through a mapping, and who takes over from whom.
//!
//! ```text
//!   file number ──> root[..] ──> leaf[..] ──> state: memory │ mapped (1st, 2nd time) │ truncated
//!                   (grows, never moves)      maps:  made once each, kept until the log goes
//!
//!   memory ──settled, written, synced──> mapped ──resolved everywhere──> truncated
//!      └──< at start: every full file is mapped, and comes back when redo writes to it >──┘
//! ```
//!
//! # The protocol
//!
//! A reader loads the state; if it says "mapped", it loads the word and then the state again. The
//! same state means that the word counts. Whoever changes the state does it before he touches the
//! mapping, and touches it in a way that a racing load survives ([`FileMap::retire`] and its
//! ordering), so no reader leaves a mark and no mapping has to outlive "the last reader": address
//! space is kept instead, which costs nothing.
//!
//! If the state says "memory", the reader asks the page table. A page that is gone from there has
//! been taken over by a mapping, or truncated, since the state was loaded: the state was stored
//! first, and the reader, having met what was stored second, sees it when it looks again.
//!
//! A file is mapped at most twice in a life of the process: at start, and once more after redo has
//! brought it back to memory. The two mappings are different states, so there is no ABA.
//!
//! No `unsafe` here: a mapping is reached through a cell that is filled once.

use super::window::XID_LIMIT;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use crate::vfs::FileMap;
use std::sync::OnceLock;

#[cfg(not(shuttle))]
mod size {
    pub const LEAF_BITS: u32 = 11;
    pub const ROOT_BITS: u32 = 13;
}
#[cfg(shuttle)]
mod size {
    pub const LEAF_BITS: u32 = 2;
    pub const ROOT_BITS: u32 = 1;
}
use size::{LEAF_BITS, ROOT_BITS};

const LEAF_SLOTS: usize = 1 << LEAF_BITS;

/// Mappings in use at one time: the kernel counts them (65,530 on an ordinary Linux) and other
/// parts of the process need some. Files beyond stay in memory, which is 8 thousand million xids
/// that nobody has resolved.
const MAX_MAPS: u32 = 8192;

const _: () = assert!(
    cfg!(shuttle) || (1u64 << (LEAF_BITS + ROOT_BITS)) * super::clog::FILE_XIDS >= XID_LIMIT
);

const IN_MEMORY: u8 = 0;
/// 1 and 2: mapped for the first and the second time.
const TIMES: u8 = 2;
const TRUNCATED: u8 = TIMES + 1;

/// One file of the commit log.
#[derive(Default)]
pub(crate) struct FileSlot {
    state: AtomicU8,
    maps: [OnceLock<Box<FileMap>>; TIMES as usize],
}

/// Where the bits of a file are.
pub(crate) enum Held<'a> {
    /// In the page table, if anywhere.
    Memory,
    /// Here, as long as [`FileSlot::still`] says so after the load.
    Mapped(&'a FileMap, u8),
    /// Nowhere: nobody has a reason to ask.
    Truncated,
}

impl FileSlot {
    #[inline]
    pub(crate) fn held(&self) -> Held<'_> {
        match self.state.load(Ordering::Acquire) {
            IN_MEMORY => Held::Memory,
            TRUNCATED => Held::Truncated,
            // The cell was filled before the state was stored.
            time => match self.maps[usize::from(time - 1)].get() {
                Some(map) => Held::Mapped(map, time),
                None => unreachable!("a mapped file has its mapping"),
            },
        }
    }

    /// Whether the file was still held in this mapping when the words read before this call were
    /// loaded.
    #[inline]
    pub(crate) fn still(&self, time: u8) -> bool {
        self.state.load(Ordering::Acquire) == time
    }
}

/// The files by number: lock-free to read, changed by one thread at a time.
pub(crate) struct FileTable {
    root: Box<[OnceLock<Box<[FileSlot]>>]>,
    mapped: AtomicU32,
}

impl FileTable {
    pub(crate) fn new() -> Self {
        FileTable {
            root: (0..1usize << ROOT_BITS).map(|_| OnceLock::new()).collect(),
            mapped: AtomicU32::new(0),
        }
    }

    /// The slot of a file. `None`: nothing was ever said of it, so it is in memory.
    #[inline]
    pub(crate) fn slot(&self, file: u64) -> Option<&FileSlot> {
        let leaf = self.root.get((file >> LEAF_BITS) as usize)?.get()?;
        Some(&leaf[file as usize & (LEAF_SLOTS - 1)])
    }

    #[inline]
    pub(crate) fn held(&self, file: u64) -> Held<'_> {
        self.slot(file).map_or(Held::Memory, FileSlot::held)
    }

    fn slot_to_change(&self, file: u64) -> Option<&FileSlot> {
        let cell = self.root.get((file >> LEAF_BITS) as usize)?;
        let leaf = cell.get_or_init(|| (0..LEAF_SLOTS).map(|_| FileSlot::default()).collect());
        Some(&leaf[file as usize & (LEAF_SLOTS - 1)])
    }

    /// Whether a mapping of `file` could take over: it is in memory, and not for the third time.
    pub(crate) fn can_map(&self, file: u64) -> bool {
        self.mapped.load(Ordering::Relaxed) < MAX_MAPS
            && matches!(self.held(file), Held::Memory)
            && self.slot(file).is_none_or(|slot| slot.maps.iter().any(|map| map.get().is_none()))
    }

    /// From now on readers ask the mapping. False: [`Self::can_map`] says no.
    pub(crate) fn map(&self, file: u64, map: FileMap) -> bool {
        if !self.can_map(file) {
            return false;
        }
        let Some(slot) = self.slot_to_change(file) else { return false };
        let mut map = Box::new(map);
        for (cell, time) in slot.maps.iter().zip(1..) {
            match cell.set(map) {
                Ok(()) => {
                    slot.state.store(time, Ordering::Release);
                    self.mapped.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                Err(back) => map = back,
            }
        }
        false
    }

    /// From now on readers ask the page table, which has the file's pages by now.
    pub(crate) fn back_to_memory(&self, file: u64) {
        self.leave(file, IN_MEMORY);
    }

    /// From now on nobody asks.
    pub(crate) fn truncated(&self, file: u64) {
        self.leave(file, TRUNCATED);
    }

    fn leave(&self, file: u64, state: u8) {
        let Some(slot) = self.slot_to_change(file) else { return };
        let held = slot.held();
        slot.state.store(state, Ordering::Release);
        if let Held::Mapped(map, _) = held {
            self.mapped.fetch_sub(1, Ordering::Relaxed);
            // If the kernel refuses, the file's blocks are kept until the process ends; the words
            // stay what they were, which no reader takes for anything else.
            let _ = map.retire();
        }
    }

    /// How many files are mapped now.
    pub(crate) fn mapped(&self) -> u32 {
        self.mapped.load(Ordering::Relaxed)
    }
}
