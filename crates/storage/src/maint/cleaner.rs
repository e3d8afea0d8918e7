//! The background writer's round: clean frames ahead of the clock hand.
//!
//! How many frames were taken since the last round says how many will be: a moving average that
//! rises at once and falls slowly. The round makes that many frames (times a factor) ahead of the
//! hand clean and free to take, so that a session in need of a frame does not write first; and,
//! on the hand's first way round, mapped, so that it does not wait for the kernel's zeros either.

use crate::engine::Engine;
use crate::error::Result;
use parking_lot::Mutex;

/// Rounds over which the average falls.
const SMOOTHING: f64 = 16.0;

#[derive(Default)]
struct State {
    hand: usize,
    need: f64,
    /// Frames below this one have been asked of the kernel.
    mapped: usize,
}

/// What the rounds remember.
#[derive(Default)]
pub(crate) struct Cleaner(Mutex<State>);

/// One round; tells how many pages were written.
pub(crate) fn background_round(engine: &Engine) -> Result<usize> {
    engine.txns.maintain(engine.wal.flushed());
    let options = engine.options();
    if options.bgwriter_max_pages == 0 {
        return Ok(0);
    }
    let mut state = engine.cleaner.0.lock();
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
    Ok(engine.pool.clean_ahead(look, options.bgwriter_max_pages)?.written)
}
