//! Asking the kernel to begin writing, so that an fsync later finds little to do.

use crate::buffer::BufferPool;
use crate::ids::{Fork, PageId, RelId};

/// Pages between two that were written that do not end a run: the kernel passes over clean ones.
const GAP: u32 = 16;

/// Collects neighbouring writes to one file, and has the kernel begin with them.
pub(super) struct WriteBackHints {
    after: u32,
    file: (RelId, Fork),
    first: u32,
    end: u32,
    count: u32,
}

impl WriteBackHints {
    /// Asks every `after` pages; 0 never asks.
    pub fn new(after: u32) -> Self {
        WriteBackHints { after, file: (RelId::INVALID, Fork::Main), first: 0, end: 0, count: 0 }
    }

    /// A page was written. Pages of a file come in order.
    pub fn note(&mut self, pool: &BufferPool, id: PageId) {
        if self.after == 0 {
            return;
        }
        let file = (id.rel, id.fork);
        if file != self.file || self.count >= self.after || id.block > self.end + GAP {
            self.flush(pool);
            (self.file, self.first) = (file, id.block);
        }
        self.end = id.block + 1;
        self.count += 1;
    }

    /// Asks for what was noted and not asked for.
    pub fn flush(&mut self, pool: &BufferPool) {
        if self.count > 0 {
            pool.start_write_back(self.file.0, self.file.1, self.first, self.end - self.first);
        }
        self.count = 0;
    }
}
