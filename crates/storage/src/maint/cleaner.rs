//! The background writer's round: clean frames ahead of the clock hand.
//!
//! How many frames were taken since the last round says how many will be: a moving average that
//! rises at once and falls slowly. The round makes that many frames (times a factor) ahead of the
//! hand clean and free to take, so that a session in need of a frame does not write first.

use crate::engine::Engine;
use crate::error::Result;
use parking_lot::Mutex;

/// Rounds over which the average falls.
const SMOOTHING: f64 = 16.0;

#[derive(Default)]
struct State {
    hand: usize,
    need: f64,
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
    drop(state);
    Ok(engine.pool.clean_ahead(look, options.bgwriter_max_pages)?.written)
}
