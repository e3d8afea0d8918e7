//! The segment files as the kernel's device: cuts the stream into files, syncs what was written.
//!
//! Segments below the kernel's `disk_end` exist, have their full length and a durable name
//! ([`Segments`](super::segment::Segments) saw to that), so writing only opens them and a sync has
//! only contents to make durable. When a write crosses into the next file, the finished one stays
//! on the list of files to sync; the list is synced oldest first, and the flush position moves
//! only after all of them.

use super::kernel::LogDevice;
use super::segment::segment_path;
use crate::error::{Result, StorageError};
use crate::vfs::{Clock, OpenMode, Vfs, VfsFile};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the device did; read without its lock.
#[derive(Default)]
pub(super) struct DeviceStats {
    pub writes: AtomicU64,
    pub write_micros: AtomicU64,
    pub syncs: AtomicU64,
    pub sync_micros: AtomicU64,
}

pub(super) struct SegmentDevice {
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    stats: Arc<DeviceStats>,
    segment_size: u64,
    fsync: bool,
    current: Option<Segment>,
    /// Finished segments with unsynced bytes, oldest first.
    finished: Vec<Segment>,
}

struct Segment {
    segno: u64,
    file: Arc<dyn VfsFile>,
    /// Offsets of bytes written since the last hint to the kernel.
    unhinted: Option<(u64, u64)>,
    /// Whether there are unsynced bytes.
    dirty: bool,
}

impl SegmentDevice {
    pub fn new(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        stats: Arc<DeviceStats>,
        segment_size: u64,
        fsync: bool,
    ) -> Self {
        let finished = Vec::new();
        SegmentDevice { vfs, clock, stats, segment_size, fsync, current: None, finished }
    }

    /// The open segment that holds `at`.
    fn segment(&mut self, at: u64) -> Result<&mut Segment> {
        let segno = at / self.segment_size;
        if self.current.as_ref().is_none_or(|open| open.segno != segno) {
            let path = segment_path(segno, self.segment_size);
            let file = self.vfs.open(&path, OpenMode::Open);
            let file = file.map_err(|e| StorageError::io("open file", path, e))?;
            let next = Segment { segno, file, unhinted: None, dirty: false };
            let finished = self.current.replace(next);
            self.finished.extend(finished.filter(|segment| segment.dirty));
        }
        Ok(self.current.as_mut().expect("the segment was opened above"))
    }

    fn write_piece(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let size = self.segment_size;
        let segment = self.segment(at)?;
        let offset = at % size;
        let written = segment.file.write_at(bytes, offset);
        written
            .map_err(|e| StorageError::io("write to file", segment_path(segment.segno, size), e))?;
        let end = offset + bytes.len() as u64;
        segment.unhinted = Some((segment.unhinted.map_or(offset, |(from, _)| from), end));
        segment.dirty = true;
        Ok(())
    }
}

impl LogDevice for SegmentDevice {
    fn write(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        let started = self.clock.monotonic_micros();
        while !bytes.is_empty() {
            let left = self.segment_size - at % self.segment_size;
            let piece = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.write_piece(at, &bytes[..piece])?;
            self.stats.writes.fetch_add(1, Ordering::Relaxed);
            at += piece as u64;
            bytes = &bytes[piece..];
        }
        let micros = self.clock.monotonic_micros().saturating_sub(started);
        self.stats.write_micros.fetch_add(micros, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let started = self.clock.monotonic_micros();
        let size = self.segment_size;
        for segment in self.finished.iter().chain(&self.current) {
            if segment.dirty && self.fsync {
                let synced = segment.file.sync();
                synced.map_err(|e| {
                    StorageError::io("fsync file", segment_path(segment.segno, size), e)
                })?;
                self.stats.syncs.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.finished.clear();
        if let Some(current) = &mut self.current {
            current.dirty = false;
            current.unhinted = None;
        }
        let micros = self.clock.monotonic_micros().saturating_sub(started);
        self.stats.sync_micros.fetch_add(micros, Ordering::Relaxed);
        Ok(())
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    fn hint_write_back(&mut self) {
        for segment in self.finished.iter_mut().chain(&mut self.current) {
            if let Some((from, to)) = segment.unhinted.take() {
                segment.file.start_write_back(from, to - from);
            }
        }
    }
}
