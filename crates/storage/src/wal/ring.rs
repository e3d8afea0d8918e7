//! The ring of bytes between insertion and the disk: one producer, one consumer, no lock.
//!
//! ```text
//!        tail (written)                 head (inserted)            tail + capacity
//!          |  the consumer's: reads      |  the producer's: writes   |
//!   ... ---+-----------------------------+---------------------------+--- ...   log positions
//!          position p lives at index p mod capacity
//! ```
//!
//! # Invariants
//!
//! - `tail <= head <= tail + capacity`, and both only grow.
//! - Only the one [`Producer`] writes memory, only at positions in `head .. tail + capacity`, and
//!   only it moves `head`.
//! - Only the one [`Consumer`] reads memory, only at positions in `tail .. head`, and only it moves
//!   `tail`.
//! - So at every moment the two touch disjoint indices. `head` is stored with release after the
//!   bytes were copied in and loaded with acquire before they are read; `tail` is stored with
//!   release after the bytes were used and loaded with acquire before they are overwritten.
//!
//! There is one of each because neither can be cloned and [`ring`] is the only maker; that both
//! take `&mut self` makes the compiler keep two threads from using the same one. In the log the
//! producer lives in the insertion mutex and the consumer in the device mutex.
//!
//! This file holds the only unsafe code of the log.
#![allow(unsafe_code)]

use super::padded::Padded;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Memory and positions. Shared by both ends and by whoever only asks for positions.
pub(super) struct Ring {
    /// A boxed slice of `capacity` bytes, taken apart so that two threads may hold the pointer.
    base: *mut u8,
    capacity: usize,
    head: Padded<AtomicU64>,
    tail: Padded<AtomicU64>,
}

// SAFETY: the memory belongs to the ring and is freed once, in `drop`, when nobody holds it any
// more. Access goes through the producer and the consumer only, whose regions are disjoint and
// handed over with release and acquire (see the invariants above).
unsafe impl Send for Ring {}
// SAFETY: as above; through `&Ring` alone only the positions can be read, which are atomic.
unsafe impl Sync for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.base, self.capacity);
        // SAFETY: `base` and `capacity` come from `Box::into_raw` of a boxed slice of this length
        // in `ring`, and this is the only place that turns them back.
        drop(unsafe { Box::from_raw(memory) });
    }
}

impl Ring {
    /// The end of what was appended.
    #[inline]
    pub fn inserted(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// The end of what was taken out.
    #[inline]
    pub fn written(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    #[inline]
    fn index(&self, position: u64) -> usize {
        // The capacity is a power of two, so this is the position modulo the capacity.
        position as usize & (self.capacity - 1)
    }
}

/// An empty ring whose next byte is at `start`, and its two ends. `capacity` is a power of two.
pub(super) fn ring(start: u64, capacity: usize) -> (Arc<Ring>, Producer, Consumer) {
    assert!(capacity.is_power_of_two(), "the ring's capacity is a power of two");
    let memory = Box::into_raw(vec![0u8; capacity].into_boxed_slice());
    let ring = Arc::new(Ring {
        base: memory.cast(),
        capacity,
        head: Padded(AtomicU64::new(start)),
        tail: Padded(AtomicU64::new(start)),
    });
    let producer = Producer { ring: Arc::clone(&ring) };
    let consumer = Consumer { ring: Arc::clone(&ring) };
    (ring, producer, consumer)
}

/// The end that appends.
pub(super) struct Producer {
    ring: Arc<Ring>,
}

impl Producer {
    /// Where the next byte goes.
    #[inline]
    pub fn position(&self) -> u64 {
        self.ring.head.load(Ordering::Relaxed)
    }

    /// Appends the parts one after the other and publishes them together. Panics when they do not
    /// fit: the caller has claimed the room beforehand.
    #[inline]
    pub fn append(&mut self, parts: [&[u8]; 4]) -> u64 {
        let head = self.position();
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let end = head + len as u64;
        assert!(
            end <= self.ring.written() + self.ring.capacity(),
            "append of {len} bytes at {head} overruns the ring"
        );
        let mut at = head;
        for part in parts {
            self.copy_in(at, part);
            at += part.len() as u64;
        }
        self.ring.head.store(end, Ordering::Release);
        end
    }

    /// Copies bytes to positions that `append` found free.
    #[inline]
    fn copy_in(&mut self, at: u64, bytes: &[u8]) {
        let ring = &*self.ring;
        let index = ring.index(at);
        let first = bytes.len().min(ring.capacity - index);
        // SAFETY: `index + first <= capacity` and `bytes.len() - first <= index` (the whole part
        // is at most `capacity` long, which `append` checked), so both copies stay inside the
        // memory. The positions lie in `head .. tail + capacity`, where nobody else reads or
        // writes: the consumer stays below `head`, and `&mut self` is the only producer. The
        // acquire load of `tail` in `append` orders these stores after the consumer's last reads.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), ring.base.add(index), first);
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr().add(first),
                ring.base,
                bytes.len() - first,
            );
        }
    }
}

/// The end that takes out.
pub(super) struct Consumer {
    ring: Arc<Ring>,
}

impl Consumer {
    /// Where the next byte comes from.
    #[inline]
    pub fn position(&self) -> u64 {
        self.ring.tail.load(Ordering::Relaxed)
    }

    /// The next bytes below `up_to` that lie together in memory, at most `max`. Panics when
    /// `up_to` is beyond what was appended.
    pub fn readable(&mut self, up_to: u64, max: usize) -> &[u8] {
        let ring = &*self.ring;
        let tail = self.position();
        assert!(up_to <= ring.inserted(), "reading beyond the end of the ring");
        let index = ring.index(tail);
        let ready = up_to.saturating_sub(tail) as usize;
        let len = ready.min(max).min(ring.capacity - index);
        // SAFETY: `index + len <= capacity`. The positions lie in `tail .. head`: the producer
        // does not touch them before `tail` moves past, which takes `&mut self` and so the end of
        // this borrow. The acquire load of `head` orders the read after the producer's stores.
        unsafe { std::slice::from_raw_parts(ring.base.add(index), len) }
    }

    /// Gives `len` bytes back to the producer.
    pub fn consume(&mut self, len: usize) {
        let tail = self.position() + len as u64;
        assert!(tail <= self.ring.inserted(), "consuming beyond the end of the ring");
        self.ring.tail.store(tail, Ordering::Release);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_across_the_seam() {
        let (ring, mut producer, mut consumer) = ring(1000, 16);
        let mut next_in = 0u8;
        let mut next_out = 0u8;
        for round in 0..200 {
            let len = 1 + round % 11;
            let bytes: Vec<u8> = (0..len).map(|i| next_in.wrapping_add(i)).collect();
            next_in = next_in.wrapping_add(len);
            let (a, b) = bytes.split_at(bytes.len() / 2);
            producer.append([a, b, &[], &[]]);
            while ring.written() < ring.inserted() {
                let got = consumer.readable(ring.inserted(), 5).to_vec();
                for byte in &got {
                    assert_eq!(*byte, next_out);
                    next_out = next_out.wrapping_add(1);
                }
                consumer.consume(got.len());
            }
        }
        assert_eq!(next_in, next_out);
    }

    #[test]
    #[should_panic(expected = "overruns the ring")]
    fn unread_bytes_are_never_overwritten() {
        let (_ring, mut producer, _consumer) = ring(0, 16);
        producer.append([&[1; 10], &[], &[], &[]]);
        producer.append([&[2; 7], &[], &[], &[]]);
    }

    #[test]
    fn two_threads_pass_a_stream() {
        let (ring, mut producer, mut consumer) = ring(0, 64);
        const TOTAL: u64 = 200_000;
        let shared = Arc::clone(&ring);
        let writer = std::thread::spawn(move || {
            let mut at = 0;
            while at < TOTAL {
                let room = shared.written() + 64 - at;
                let len = room.min(7).min(TOTAL - at);
                let bytes: Vec<u8> = (at..at + len).map(|p| (p % 251) as u8).collect();
                at = producer.append([&bytes, &[], &[], &[]]);
            }
        });
        let mut at = 0;
        while at < TOTAL {
            let got = consumer.readable(ring.inserted(), 13);
            for (i, byte) in got.iter().enumerate() {
                assert_eq!(u64::from(*byte), (at + i as u64) % 251);
            }
            let len = got.len();
            consumer.consume(len);
            at += len as u64;
        }
        writer.join().expect("writer");
    }
}
