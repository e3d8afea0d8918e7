//! The background writer's round: clean frames ahead of the clock hand.
//!
//! How many frames were taken since the last round says how many will be: a moving average that
//! rises at once and falls slowly. The round makes that many frames (times a factor) ahead of the
//! hand clean and free to take, so that a session in need of a frame does not write first; and,
//! on the hand's first way round, mapped, so that it does not wait for the kernel's zeros either.
//!
//! Pages are written in the order of frames, which is none in the files: what was written is put
//! into the files' order before the kernel is asked to begin with it.

use super::write_back::WriteBackHints;
use crate::engine::Engine;
use crate::error::Result;
use crate::ids::PageId;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rounds over which the average falls.
const SMOOTHING: f64 = 16.0;

#[derive(Default)]
struct State {
    hand: usize,
    need: f64,
    /// Frames below this one have been asked of the kernel.
    mapped: usize,
    /// Pages written that the kernel has not been asked to begin with.
    unhinted: Vec<PageId>,
}

/// What the rounds remember.
#[derive(Default)]
pub(crate) struct Cleaner {
    state: Mutex<State>,
    /// Rounds that ended because they had written as much as one may.
    cut_short: AtomicU64,
}

impl Cleaner {
    pub fn cut_short(&self) -> u64 {
        self.cut_short.load(Ordering::Relaxed)
    }
}

/// One round; tells how many pages were written.
pub(crate) fn background_round(engine: &Engine) -> Result<usize> {
    engine.txns.maintain(engine.wal.flushed());
    let options = engine.options();
    if options.bgwriter_max_pages == 0 {
        return Ok(0);
    }
    let mut state = engine.cleaner.state.lock();
    let hand = engine.pool.hand_position();
    let taken = hand.wrapping_sub(state.hand) as f64;
    state.hand = hand;
    state.need =
        if taken > state.need { taken } else { state.need + (taken - state.need) / SMOOTHING };
    let look = (state.need * options.bgwriter_multiplier).ceil() as usize;
    // Nobody asks for frames, nobody's memory is taken.
    let ahead = if taken > 0.0 { look } else { 0 };
    let from = state.mapped.max(hand);
    state.mapped = from.max(hand + ahead);
    let to = state.mapped;
    drop(state);
    engine.pool.map_frames(from, to);
    let mut written = Vec::new();
    let cleaned = engine.pool.clean_ahead(look, options.bgwriter_max_pages, &mut written);
    hint(engine, written);
    let cleaned = cleaned?;
    if cleaned.cut_short {
        engine.cleaner.cut_short.fetch_add(1, Ordering::Relaxed);
    }
    Ok(cleaned.written)
}

/// Has the kernel begin with what was written, when it is enough.
fn hint(engine: &Engine, mut written: Vec<PageId>) {
    let after = engine.options().bgwriter_flush_after;
    if after == 0 {
        return;
    }
    let mut state = engine.cleaner.state.lock();
    state.unhinted.append(&mut written);
    if state.unhinted.len() < after as usize {
        return;
    }
    let mut pages = std::mem::take(&mut state.unhinted);
    drop(state);
    pages.sort_unstable_by_key(|id| (id.rel, id.fork as u8, id.block));
    let mut hints = WriteBackHints::new(after);
    pages.iter().for_each(|id| hints.note(&engine.pool, *id));
    hints.flush(&engine.pool);
}
