//! The status window: one atomic word per recent transaction, read without a lock.
//!
//! ```text
//!   xid ──> chunk number ──> root[..] ──> leaf[..] ──> chunk ──> word
//!                            (grows, never moves)      (recycled)
//! ```
//!
//! A chunk comes into being when its first xid is handed out and is *dropped* when it is settled
//! (rule W4 of the README); from then on the commit log answers for its xids. Directory entries
//! go through three states and never back: absent, a chunk, dropped.
//!
//! # Reclamation without readers' marks
//!
//! A reader may be about to load a word of a chunk that is just being dropped. Chunks are
//! therefore never given back while the table lives; they go to a free list and serve another
//! number later. Each carries the number that it serves. A reader loads the word first and the
//! number second; when the number is not the one it wanted, the chunk has been recycled, which
//! says that the wanted one is dropped. The recycler clears the number, fences, and only then
//! zeroes the words, so a reader that met a word of the new life also sees the changed number.
//! A number is served at most once, so there is no ABA.
//!
//! This is the only file of `txn/` with `unsafe` in it: following a directory entry.

#![allow(unsafe_code)]

use super::status::XidStatus;
use crate::ids::{Lsn, Xid};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::collections::BTreeSet;
use std::ptr;
use std::sync::OnceLock;

#[cfg(not(shuttle))]
mod size {
    /// Xids per chunk: 32 KiB of words.
    pub const CHUNK_BITS: u32 = 12;
    /// Directory entries per leaf: 256 KiB of pointers, made on demand.
    pub const LEAF_BITS: u32 = 15;
    /// Leaves: with the two above, 2^43 xids (28 years at ten thousand a second).
    pub const ROOT_BITS: u32 = 16;
}
#[cfg(shuttle)]
mod size {
    pub const CHUNK_BITS: u32 = 1;
    pub const LEAF_BITS: u32 = 3;
    pub const ROOT_BITS: u32 = 2;
}
use size::{CHUNK_BITS, LEAF_BITS, ROOT_BITS};

const LEAF_ENTRIES: usize = 1 << LEAF_BITS;

/// Xids per chunk.
pub(crate) const CHUNK_XIDS: usize = 1 << CHUNK_BITS;
/// The first xid that the directory cannot hold.
pub(crate) const XID_LIMIT: u64 = 1 << (CHUNK_BITS + LEAF_BITS + ROOT_BITS);

/// The number of a chunk that serves nobody.
const UNUSED: u64 = u64::MAX;

/// `N` atomic words and what their owner keeps beside them.
pub(crate) struct Chunk<const N: usize, M> {
    number: AtomicU64,
    pub(crate) meta: M,
    words: [AtomicU64; N],
}

impl<const N: usize, M> Chunk<N, M> {
    #[inline]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }
}

/// What a look-up found.
pub(crate) enum Found<T> {
    Here(T),
    /// Once here, and dropped for ever.
    Dropped,
    /// Not here yet.
    Absent,
}

type Entry<const N: usize, M> = AtomicPtr<Chunk<N, M>>;
type Leaf<const N: usize, M> = Box<[Entry<N, M>; LEAF_ENTRIES]>;

struct Pool<const N: usize, M> {
    /// Every chunk ever made; freed when the table goes.
    all: Vec<*mut Chunk<N, M>>,
    free: Vec<*mut Chunk<N, M>>,
}

/// A sparse array of words in recyclable chunks: lock-free to read, grown under a mutex.
pub(crate) struct WordTable<const N: usize, M> {
    root: Box<[OnceLock<Leaf<N, M>>]>,
    /// Chunks below this number were dropped before the table was made.
    first: u64,
    pool: Mutex<Pool<N, M>>,
}

// SAFETY: the raw pointers are owned by the table and point to chunks that are only ever shared
// (`&Chunk`) until the table is dropped; chunks are `Sync` when their metadata is.
unsafe impl<const N: usize, M: Send + Sync> Send for WordTable<N, M> {}
// SAFETY: as above; the pool is behind a mutex, the directory is atomic.
unsafe impl<const N: usize, M: Send + Sync> Sync for WordTable<N, M> {}

impl<const N: usize, M: Default> WordTable<N, M> {
    pub(crate) fn new(first: u64) -> Self {
        WordTable {
            root: (0..1usize << ROOT_BITS).map(|_| OnceLock::new()).collect(),
            first,
            pool: Mutex::new(Pool { all: Vec::new(), free: Vec::new() }),
        }
    }

    /// The mark of a dropped chunk in the directory. Never followed.
    fn dropped_mark() -> *mut Chunk<N, M> {
        ptr::without_provenance_mut(usize::MAX)
    }

    #[inline]
    fn entry(&self, number: u64) -> Option<&Entry<N, M>> {
        let leaf = self.root.get((number >> LEAF_BITS) as usize)?.get()?;
        Some(&leaf[number as usize & (LEAF_ENTRIES - 1)])
    }

    /// The chunk that serves `number`. What is read from it counts only if [`Self::still`] says
    /// so afterwards, unless the caller keeps the chunk from being dropped.
    #[inline]
    pub(crate) fn chunk(&self, number: u64) -> Found<&Chunk<N, M>> {
        let pointer = match self.entry(number) {
            Some(entry) => entry.load(Ordering::Acquire),
            None => ptr::null_mut(),
        };
        if pointer.is_null() {
            return if number < self.first { Found::Dropped } else { Found::Absent };
        }
        if pointer == Self::dropped_mark() {
            return Found::Dropped;
        }
        // SAFETY: a non-null, non-mark entry was made from a live `Box` by `create`, and chunks
        // are freed only in `drop(&mut self)`, when no `&self` exists.
        Found::Here(unsafe { &*pointer })
    }

    /// Whether `chunk` still served `number` when the words read before this call were loaded
    /// (with `Acquire`).
    #[inline]
    pub(crate) fn still(chunk: &Chunk<N, M>, number: u64) -> bool {
        chunk.number.load(Ordering::Relaxed) == number
    }

    /// One word, or why there is none.
    #[inline]
    pub(crate) fn load(&self, number: u64, index: usize) -> Found<u64> {
        match self.chunk(number) {
            Found::Here(chunk) => {
                let word = chunk.words[index].load(Ordering::Acquire);
                if Self::still(chunk, number) { Found::Here(word) } else { Found::Dropped }
            }
            Found::Dropped => Found::Dropped,
            Found::Absent => Found::Absent,
        }
    }

    /// Makes the chunk for `number` with all words zero, unless it is there. `prepare` runs on
    /// it before anybody can see it. `Err` when the number is beyond the directory.
    pub(crate) fn create(&self, number: u64, prepare: impl FnOnce(&Chunk<N, M>)) -> Result<(), ()>
    where
        M: Default,
    {
        let mut pool = self.pool.lock();
        let cell = self.root.get((number >> LEAF_BITS) as usize).ok_or(())?;
        let leaf = cell.get_or_init(|| {
            let entries: Vec<Entry<N, M>> =
                (0..LEAF_ENTRIES).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
            entries.try_into().unwrap_or_else(|_| unreachable!("as many as asked for"))
        });
        let entry = &leaf[number as usize & (LEAF_ENTRIES - 1)];
        if !entry.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let pointer = match pool.free.pop() {
            Some(pointer) => {
                // SAFETY: pool pointers come from `Box::into_raw` and live as long as `self`.
                let chunk = unsafe { &*pointer };
                for word in &chunk.words {
                    word.store(0, Ordering::Relaxed);
                }
                pointer
            }
            None => {
                let made = Box::into_raw(Box::new(Chunk {
                    number: AtomicU64::new(UNUSED),
                    meta: M::default(),
                    words: std::array::from_fn(|_| AtomicU64::new(0)),
                }));
                pool.all.push(made);
                made
            }
        };
        // SAFETY: as above.
        let chunk = unsafe { &*pointer };
        prepare(chunk);
        chunk.number.store(number, Ordering::Release);
        entry.store(pointer, Ordering::Release);
        Ok(())
    }

    /// Drops the chunk of `number`: look-ups find it gone from now on. Its memory is reused.
    pub(crate) fn drop_chunk(&self, number: u64) {
        let mut pool = self.pool.lock();
        let Found::Here(chunk) = self.chunk(number) else { return };
        if let Some(entry) = self.entry(number) {
            entry.store(Self::dropped_mark(), Ordering::Release);
        }
        chunk.number.store(UNUSED, Ordering::Release);
        // Orders the number before every word of the chunk's next life, see the module's essay.
        fence(Ordering::Release);
        pool.free.push(ptr::from_ref(chunk).cast_mut());
    }

    /// Chunks in memory, used or waiting to be.
    pub(crate) fn chunks(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.all.len() - pool.free.len(), pool.free.len())
    }
}

impl<const N: usize, M> Drop for WordTable<N, M> {
    fn drop(&mut self) {
        for pointer in std::mem::take(&mut self.pool.lock().all) {
            // SAFETY: made by `Box::into_raw` in `create`, listed once, and nobody can hold a
            // reference: those borrow from `self`.
            drop(unsafe { Box::from_raw(pointer) });
        }
    }
}

/// What a chunk of the status window knows about itself.
#[derive(Default)]
pub(crate) struct Ends {
    /// How many of its transactions have ended.
    ended: AtomicU32,
    /// The newest of their commits.
    newest: AtomicU64,
}

/// Chunks that are not settled yet.
#[derive(Default)]
struct Unsettled {
    /// Some transaction of the chunk runs, or is not assigned yet. Ascending.
    open: BTreeSet<u64>,
    /// All have ended; ordered by the newest commit, which decides when the chunk settles.
    full: BTreeSet<(Lsn, u64)>,
}

/// Status words by xid. See the module's essay.
pub(crate) struct StatusWindow {
    table: WordTable<CHUNK_XIDS, Ends>,
    unsettled: Mutex<Unsettled>,
}

#[inline]
fn place(xid: Xid) -> (u64, usize) {
    (xid.raw() >> CHUNK_BITS, xid.raw() as usize & (CHUNK_XIDS - 1))
}

/// A chunk of the status window.
pub(crate) type WindowChunk = Chunk<CHUNK_XIDS, Ends>;

impl WindowChunk {
    /// The status word of an xid whose chunk this was when it was found; `None` when it settled
    /// since.
    #[inline]
    pub(crate) fn word_of(&self, xid: Xid) -> Option<u64> {
        let (number, index) = place(xid);
        let word = self.words[index].load(Ordering::Acquire);
        WordTable::still(self, number).then_some(word)
    }
}

impl StatusWindow {
    /// The chunk that an xid's word is in.
    pub(crate) fn chunk(&self, xid: Xid) -> Found<&WindowChunk> {
        self.table.chunk(place(xid).0)
    }

    /// A window for xids from `next` on. The ones before have ended, except those in `running`;
    /// `settled` knows their fate.
    pub(crate) fn new(
        next: Xid,
        running: &BTreeSet<Xid>,
        settled: impl Fn(Xid) -> XidStatus,
    ) -> Self {
        let (newest, used) = place(next);
        let window = StatusWindow { table: WordTable::new(newest), unsettled: Mutex::default() };
        let old = running.iter().map(|xid| (place(*xid).0, CHUNK_XIDS));
        let old = old.filter(|(number, _)| *number < newest);
        for (number, used) in old.chain([(newest, used)]) {
            let made = window.table.create(number, |chunk| {
                let mut ended = 0;
                for (index, word) in chunk.words.iter().enumerate().take(used) {
                    let xid = Xid::new((number << CHUNK_BITS) + index as u64);
                    if !running.contains(&xid) {
                        word.store(settled(xid).word(), Ordering::Relaxed);
                        ended += 1;
                    }
                }
                chunk.meta.ended.store(ended, Ordering::Relaxed);
            });
            // Beyond the directory: `ensure` reports it when an xid is asked for.
            if made.is_ok() {
                window.unsettled.lock().open.insert(number);
            }
        }
        window
    }

    /// The status of an xid, unless the commit log is to be asked (`Dropped`) or no such xid was
    /// handed out (`Absent`).
    #[inline]
    pub(crate) fn load(&self, xid: Xid) -> Found<u64> {
        let (number, index) = place(xid);
        self.table.load(number, index)
    }

    /// Makes room for `xid` before it is handed out. Tells whether a chunk was begun.
    pub(crate) fn ensure(&self, xid: Xid) -> Result<bool, ()> {
        let (number, _) = place(xid);
        if let Found::Here(_) = self.table.chunk(number) {
            return Ok(false);
        }
        self.unsettled.lock().open.insert(number);
        self.table.create(number, |chunk| {
            chunk.meta.ended.store(0, Ordering::Relaxed);
            chunk.meta.newest.store(0, Ordering::Relaxed);
        })?;
        Ok(true)
    }

    /// Stores the fate of a running transaction. Its chunk cannot be dropped before that.
    pub(crate) fn end(&self, xid: Xid, fate: XidStatus) {
        debug_assert!(fate.is_final(), "an end is final");
        let (number, index) = place(xid);
        let Found::Here(chunk) = self.table.chunk(number) else {
            debug_assert!(false, "{xid:?} ended twice, or was never handed out");
            return;
        };
        if let XidStatus::Committed(stamp) = fate {
            chunk.meta.newest.fetch_max(stamp.lsn().raw(), Ordering::Relaxed);
        }
        let before = chunk.words[index].swap(fate.word(), Ordering::Release);
        debug_assert!(before == 0, "{xid:?} ended twice");
        if before == 0 {
            chunk.meta.ended.fetch_add(1, Ordering::Release);
        }
    }

    /// Drops the chunks whose transactions have all ended, with every commit at or before
    /// `covered`: the smaller of the horizon and the flushed position. Returns how many.
    pub(crate) fn settle(&self, covered: Lsn) -> usize {
        let mut unsettled = self.unsettled.lock();
        let Unsettled { open, full } = &mut *unsettled;
        open.retain(|&number| {
            let Found::Here(chunk) = self.table.chunk(number) else { return true };
            if (chunk.meta.ended.load(Ordering::Acquire) as usize) < CHUNK_XIDS {
                return true;
            }
            full.insert((Lsn::new(chunk.meta.newest.load(Ordering::Relaxed)), number));
            false
        });
        let mut settled = 0;
        while let Some(&(newest, number)) = full.first() {
            if newest > covered {
                break;
            }
            full.pop_first();
            self.table.drop_chunk(number);
            settled += 1;
        }
        settled
    }

    /// The first xid of the oldest chunk that is not settled.
    pub(crate) fn oldest_unsettled(&self) -> Xid {
        let unsettled = self.unsettled.lock();
        let open = unsettled.open.first().copied().unwrap_or(u64::MAX >> CHUNK_BITS);
        let full = unsettled.full.iter().map(|&(_, number)| number).min().unwrap_or(open);
        Xid::new(open.min(full) << CHUNK_BITS)
    }

    /// The first xid of the chunk after the one that `xid` is in.
    pub(crate) fn next_chunk(xid: Xid) -> Xid {
        Xid::new(((xid.raw() >> CHUNK_BITS) + 1) << CHUNK_BITS)
    }

    /// Chunks in use and free ones.
    pub(crate) fn chunks(&self) -> (usize, usize) {
        self.table.chunks()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::txn::status::CommitStamp;

    fn committed(at: u64) -> XidStatus {
        XidStatus::Committed(CommitStamp::new(Lsn::new(at), false))
    }

    fn word(window: &StatusWindow, xid: u64) -> Option<u64> {
        match window.load(Xid::new(xid)) {
            Found::Here(word) => Some(word),
            _ => None,
        }
    }

    #[test]
    fn a_chunk_settles_only_when_all_ended_and_covered() {
        let window = StatusWindow::new(Xid::new(3), &BTreeSet::new(), |_| XidStatus::Aborted);
        let n = CHUNK_XIDS as u64;
        for xid in 3..n {
            assert_eq!(window.ensure(Xid::new(xid)), Ok(false));
            window.end(Xid::new(xid), committed(800 + xid * 8));
        }
        let newest = Lsn::new(800 + (n - 1) * 8);
        assert_eq!(window.settle(Lsn::new(newest.raw() - 8)), 0, "one commit is not covered");
        assert_eq!(window.settle(newest), 1);
        assert!(matches!(window.load(Xid::new(3)), Found::Dropped));
        assert!(matches!(window.load(Xid::new(n)), Found::Absent));
    }

    #[test]
    fn one_old_transaction_keeps_only_its_own_chunk() {
        let window = StatusWindow::new(Xid::new(3), &BTreeSet::new(), |_| XidStatus::Aborted);
        let n = CHUNK_XIDS as u64;
        for xid in 3..4 * n {
            window.ensure(Xid::new(xid)).expect("room");
            if xid != 5 {
                window.end(Xid::new(xid), XidStatus::Aborted);
            }
        }
        assert_eq!(window.settle(Lsn::MAX), 3);
        assert_eq!(window.oldest_unsettled(), Xid::new(0));
        assert_eq!(word(&window, 5), Some(0));
        assert_eq!(window.chunks(), (1, 3));
        // Recycled memory starts from zero and serves only its new number.
        window.ensure(Xid::new(4 * n)).expect("room");
        assert_eq!(word(&window, 4 * n), Some(0));
        assert!(matches!(window.load(Xid::new(n)), Found::Dropped));
        assert_eq!(window.chunks(), (2, 2));
    }

    #[test]
    fn a_window_begun_in_mid_chunk_knows_the_fates_before() {
        let window = StatusWindow::new(Xid::new(10), &BTreeSet::new(), |xid| {
            if xid.raw() % 2 == 0 {
                XidStatus::Committed(CommitStamp::SETTLED)
            } else {
                XidStatus::Aborted
            }
        });
        assert_eq!(word(&window, 4), Some(XidStatus::Committed(CommitStamp::SETTLED).word()));
        assert_eq!(word(&window, 9), Some(XidStatus::Aborted.word()));
        assert_eq!(word(&window, 10), Some(0));
    }

    #[test]
    fn transactions_that_outlived_the_last_run_keep_their_chunks_and_no_other() {
        let n = CHUNK_XIDS as u64;
        let running = BTreeSet::from([Xid::new(7), Xid::new(3 * n + 1)]);
        let window = StatusWindow::new(Xid::new(3 * n + 9), &running, |_| XidStatus::Aborted);
        assert_eq!(word(&window, 7), Some(0));
        assert_eq!(word(&window, 8), Some(XidStatus::Aborted.word()));
        assert_eq!(word(&window, 3 * n + 1), Some(0));
        assert_eq!(word(&window, 3 * n + 2), Some(XidStatus::Aborted.word()));
        assert!(matches!(window.load(Xid::new(n)), Found::Dropped));
        assert_eq!(window.oldest_unsettled(), Xid::new(0));
        window.end(Xid::new(7), committed(800));
        assert_eq!(window.settle(Lsn::new(792)), 0, "its commit is not covered");
        assert_eq!(window.settle(Lsn::new(800)), 1);
        assert_eq!(window.oldest_unsettled(), Xid::new(3 * n));
    }

    #[test]
    fn the_directory_has_an_end() {
        let window =
            StatusWindow::new(Xid::new(XID_LIMIT - 1), &BTreeSet::new(), |_| XidStatus::Aborted);
        assert_eq!(window.ensure(Xid::new(XID_LIMIT - 1)), Ok(false));
        assert!(window.ensure(Xid::new(XID_LIMIT)).is_err());
    }
}
