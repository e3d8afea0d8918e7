//! md5 and the SHA-2 family, by RFC 1321 and FIPS 180-4.

use super::args::fns;
use crate::types::scalar::write_hex;
use num_bigint::BigUint;
use std::sync::LazyLock;

/// A message in blocks, padded with 0x80, zeros and its bit length.
fn blocks(data: &[u8], size: usize, big_endian: bool) -> Vec<u8> {
    let length_bytes = size / 8;
    let mut padded = data.to_vec();
    padded.push(0x80);
    while padded.len() % size != size - length_bytes {
        padded.push(0);
    }
    let bits = (data.len() as u128) * 8;
    if big_endian {
        padded.extend_from_slice(&bits.to_be_bytes()[16 - length_bytes..]);
    } else {
        padded.extend_from_slice(&bits.to_le_bytes()[..length_bytes]);
    }
    padded
}

const MD5_SHIFTS: [[u32; 4]; 4] =
    [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

pub fn md5(data: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    static CONSTANTS: LazyLock<[u32; 64]> = LazyLock::new(|| {
        std::array::from_fn(|i| ((i as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32)
    });
    let constants = &*CONSTANTS;
    for block in blocks(data, 64, false).chunks_exact(64) {
        let word = |i: usize| {
            u32::from_le_bytes([block[4 * i], block[4 * i + 1], block[4 * i + 2], block[4 * i + 3]])
        };
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (f, k) = match i / 16 {
                0 => (b & c | !b & d, i),
                1 => (d & b | !d & c, (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), 7 * i % 16),
            };
            let sum = a.wrapping_add(f).wrapping_add(constants[i]).wrapping_add(word(k));
            let rotated = sum.rotate_left(MD5_SHIFTS[i / 16][i % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(rotated));
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d]) {
            *s = s.wrapping_add(v);
        }
    }
    let mut out = [0; 16];
    for (slot, word) in out.chunks_exact_mut(4).zip(state) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    out
}

/// The first primes, from whose roots the SHA-2 constants come.
fn primes(count: usize) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::with_capacity(count);
    let mut candidate = 2;
    while found.len() < count {
        if found.iter().all(|p| candidate % p != 0) {
            found.push(candidate);
        }
        candidate += 1;
    }
    found
}

/// The first 64 bits of the fraction of a prime's cube root.
fn cube_root_fraction(p: u64) -> u64 {
    low_64(&(BigUint::from(p) << 192u32).cbrt())
}

fn low_64(v: &BigUint) -> u64 {
    v.iter_u64_digits().next().unwrap_or(0)
}

fn square_root_fraction(p: u64) -> u64 {
    low_64(&(BigUint::from(p) << 128u32).sqrt())
}

/// Word size and rotations tell SHA-256 and SHA-512 apart.
macro_rules! sha2 {
    ($name:ident, $word:ty, $rounds:literal, $block:literal, $narrow:expr,
     [$a0:literal $a1:literal $a2:literal] [$b0:literal $b1:literal $b2:literal]
     [$s0:literal $s1:literal $s2:literal] [$t0:literal $t1:literal $t2:literal]) => {
        fn $name(data: &[u8], mut state: [$word; 8]) -> Vec<u8> {
            static CONSTANTS: LazyLock<Vec<$word>> = LazyLock::new(|| {
                primes($rounds).into_iter().map(|p| $narrow(cube_root_fraction(p))).collect()
            });
            let constants = &*CONSTANTS;
            const SIZE: usize = size_of::<$word>();
            for block in blocks(data, $block, true).chunks_exact($block) {
                let mut w: Vec<$word> = block
                    .chunks_exact(SIZE)
                    .map(|c| c.iter().fold(0, |v, b| v << 8 | <$word>::from(*b)))
                    .collect();
                for i in 16..$rounds {
                    let (x, y) = (w[i - 15], w[i - 2]);
                    let s0 = x.rotate_right($s0) ^ x.rotate_right($s1) ^ (x >> $s2);
                    let s1 = y.rotate_right($t0) ^ y.rotate_right($t1) ^ (y >> $t2);
                    w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
                }
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
                for i in 0..$rounds {
                    let s1 = e.rotate_right($b0) ^ e.rotate_right($b1) ^ e.rotate_right($b2);
                    let t1 = h
                        .wrapping_add(s1)
                        .wrapping_add(e & f ^ !e & g)
                        .wrapping_add(constants[i])
                        .wrapping_add(w[i]);
                    let s0 = a.rotate_right($a0) ^ a.rotate_right($a1) ^ a.rotate_right($a2);
                    let t2 = s0.wrapping_add(a & b ^ a & c ^ b & c);
                    (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
                    (d, c, b, a) = (c, b, a, t1.wrapping_add(t2));
                }
                for (s, v) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                    *s = s.wrapping_add(v);
                }
            }
            state.iter().flat_map(|v| v.to_be_bytes()).collect()
        }
    };
}

sha2!(sha2_32, u32, 64, 64, |v: u64| (v >> 32) as u32,
    [2 13 22] [6 11 25] [7 18 3] [17 19 10]);
sha2!(sha2_64, u64, 80, 128, |v: u64| v,
    [28 34 39] [14 18 41] [1 8 7] [19 61 6]);

/// Initial states: fractions of the square roots of the first eight primes, or of the ninth to
/// sixteenth for the shorter digests.
fn initial(short: bool) -> [u64; 8] {
    let all = primes(16);
    std::array::from_fn(|i| square_root_fraction(all[i + if short { 8 } else { 0 }]))
}

pub fn sha256(data: &[u8]) -> Vec<u8> {
    sha2_32(data, initial(false).map(|v| (v >> 32) as u32))
}

pub fn sha224(data: &[u8]) -> Vec<u8> {
    let mut out = sha2_32(data, initial(true).map(|v| v as u32));
    out.truncate(28);
    out
}

pub fn sha512(data: &[u8]) -> Vec<u8> {
    sha2_64(data, initial(false))
}

pub fn sha384(data: &[u8]) -> Vec<u8> {
    let mut out = sha2_64(data, initial(true));
    out.truncate(48);
    out
}

fn hex(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    write_hex(bytes, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fns! {
    fn md5_text(_cx; s: &str) -> String { hex(&md5(s.as_bytes())) }
    fn md5_bytes(_cx; s: &[u8]) -> String { hex(&md5(s)) }
    fn sha224_bytes(_cx; s: &[u8]) -> Vec<u8> { sha224(s) }
    fn sha256_bytes(_cx; s: &[u8]) -> Vec<u8> { sha256(s) }
    fn sha384_bytes(_cx; s: &[u8]) -> Vec<u8> { sha384(s) }
    fn sha512_bytes(_cx; s: &[u8]) -> Vec<u8> { sha512(s) }
}
