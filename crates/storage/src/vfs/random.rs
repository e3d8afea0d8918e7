//! Randomness behind a trait, so that a seed decides everything in a simulation.
//!
//! The generator is SplitMix64: a counter advanced by a fixed odd constant and mixed. It needs one
//! atomic addition a number and no lock. It is for back-off, sampling and fault injection, **not
//! for secrets**: whoever needs those asks a cryptographic library.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where random numbers come from.
pub trait Random: Send + Sync + 'static {
    fn next_u64(&self) -> u64;

    /// A number in `0..bound`. Panics when `bound` is 0. (The bias for bounds far below 2^64 is
    /// far below anything that its users could notice.)
    fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no random member");
        self.next_u64() % bound
    }

    /// True once in `n` times on average.
    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The same numbers for the same seed.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        // Mixed, so that neighbouring seeds give unrelated streams.
        SeededRandom(AtomicU64::new(mix(seed ^ GOLDEN)))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        mix(self.0.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN))
    }
}

/// Different numbers in every process.
#[derive(Debug)]
pub struct SystemRandom(SeededRandom);

impl SystemRandom {
    pub fn new() -> Self {
        // The standard library keys its hash maps from the kernel's entropy.
        SystemRandom(SeededRandom::new(RandomState::new().build_hasher().finish()))
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_stream() {
        let draw = |seed| {
            let random = SeededRandom::new(seed);
            (0..8).map(|_| random.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(SystemRandom::new().next_u64(), SystemRandom::new().next_u64());
    }

    #[test]
    fn below_reaches_every_member() {
        let random = SeededRandom::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
