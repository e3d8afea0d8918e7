//! A simulated file: what readers see, what is durable, and what lies between.

use super::fault::Op;
use super::{SECTOR, SimDisk};
use crate::vfs::{FileMap, VfsFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A file without its name.
#[derive(Default)]
pub(super) struct Inode(pub(super) Mutex<Content>);

/// The states of a file's bytes.
#[derive(Default)]
pub(super) struct Content {
    /// What readers see.
    pub data: Vec<u8>,
    /// What certainly survives, as far as nothing below changes it.
    pub durable: Vec<u8>,
    /// Changes since the last sync, oldest first.
    pub pending: Vec<DataOp>,
    /// Sectors that a failed sync left in doubt.
    pub doubtful: BTreeMap<u64, Vec<u8>>,
    /// A length that a failed sync left in doubt.
    pub doubtful_len: Option<usize>,
}

/// An unsynced change, with the length that the file had after it.
pub(super) struct DataOp {
    pub change: Change,
    pub len_after: usize,
}

pub(super) enum Change {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    /// The new length is `len_after`.
    SetLen,
}

/// The numbers of the sectors that a range of bytes touches.
pub(super) fn sectors(offset: usize, len: usize) -> std::ops::Range<u64> {
    if len == 0 {
        return 0..0;
    }
    offset as u64 / SECTOR..((offset + len) as u64).div_ceil(SECTOR)
}

/// The bytes of a sector, as far as they lie below `len`.
pub(super) fn sector_range(sector: u64, len: usize) -> std::ops::Range<usize> {
    let start = (sector * SECTOR) as usize;
    start.min(len)..(start + SECTOR as usize).min(len)
}

impl Inode {
    /// A file all of whose bytes are durable.
    pub fn settled(bytes: Vec<u8>) -> Self {
        Inode(Mutex::new(Content { durable: bytes.clone(), data: bytes, ..Content::default() }))
    }

    pub fn len(&self) -> u64 {
        self.0.lock().data.len() as u64
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().data.clone()
    }

    /// Bytes of a write that power cut short, durable as they are.
    pub fn arrive(&self, offset: usize, bytes: &[u8]) {
        let mut content = self.0.lock();
        let end = offset + bytes.len();
        let content = &mut *content;
        for image in [&mut content.data, &mut content.durable] {
            if image.len() < end {
                image.resize(end, 0);
            }
            image[offset..end].copy_from_slice(bytes);
        }
    }

    pub fn corrupt(&self, offset: u64, flip: u8) {
        let mut content = self.0.lock();
        let at = offset as usize;
        content.data[at] ^= flip;
        if let Some(byte) = content.durable.get_mut(at) {
            *byte ^= flip;
        }
    }
}

impl Content {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if end > self.data.len() {
            self.data.resize(end, 0);
        }
        self.data[offset..end].copy_from_slice(bytes);
        let change = Change::Write { offset, bytes: bytes.to_vec() };
        self.pending.push(DataOp { change, len_after: self.data.len() });
    }

    fn set_len(&mut self, len: usize) {
        if len != self.data.len() {
            self.data.resize(len, 0);
            self.pending.push(DataOp { change: Change::SetLen, len_after: len });
        }
    }

    /// The sectors that unsynced writes touch. A sync writes each as it reads now.
    fn dirty_sectors(&self) -> Vec<u64> {
        let mut dirty: Vec<u64> = Vec::new();
        for op in &self.pending {
            if let Change::Write { offset, bytes } = &op.change {
                dirty.extend(sectors(*offset, bytes.len()));
            }
        }
        dirty.sort_unstable();
        dirty.dedup();
        dirty
    }

    fn sync(&mut self) {
        let dirty = self.dirty_sectors();
        for op in std::mem::take(&mut self.pending) {
            if matches!(op.change, Change::SetLen) {
                // Cutting here and growing below leaves zeros between, as the file has.
                self.durable.resize(op.len_after, 0);
                self.doubtful.retain(|sector, _| sector * SECTOR < op.len_after as u64);
            }
        }
        self.durable.resize(self.data.len(), 0);
        self.doubtful_len = None;
        for sector in dirty {
            let range = sector_range(sector, self.data.len());
            self.durable[range.clone()].copy_from_slice(&self.data[range]);
            self.doubtful.remove(&sector);
        }
    }

    /// Fault 8: what was to be synced is in doubt from now on.
    fn fail_sync(&mut self) {
        for sector in self.dirty_sectors() {
            let image = self.data[sector_range(sector, self.data.len())].to_vec();
            self.doubtful.insert(sector, image);
        }
        if self.data.len() != self.durable.len() {
            self.doubtful_len = Some(self.data.len());
        }
        self.pending.clear();
    }
}

/// An open simulated file.
pub(super) struct SimFile {
    pub disk: SimDisk,
    pub path: String,
    pub inode: Arc<Inode>,
}

impl SimFile {
    /// Counts the call, then checks that growing to `end` fits the disk.
    fn check(&self, op: Op, end: u64) -> io::Result<()> {
        let mut state = self.disk.0.state.lock();
        state.faults.check(op, &self.path)?;
        if op == Op::Write && end > self.inode.len() {
            state.faults.check_as(Op::Extend, &self.path)?;
        }
        state.check_capacity(end.saturating_sub(self.inode.len()))
    }
}

fn index(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl VfsFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check(Op::Read, 0)?;
        let content = self.inode.0.lock();
        let from = index(offset)?.min(content.data.len());
        let n = buf.len().min(content.data.len() - from);
        buf[..n].copy_from_slice(&content.data[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let at = index(offset)?;
        if let Some(watcher) = self.disk.0.watcher.get() {
            watcher(&self.path, offset, buf);
        }
        let checked = self.check(Op::Write, offset + buf.len() as u64);
        if let Err(error) = checked {
            if !self.disk.is_off() {
                // Fault 7, within the length that the file has: a full disk grows nothing.
                let touched = sectors(at, buf.len());
                let through = touched.start + self.disk.torn_prefix(touched.end - touched.start);
                let mut content = self.inode.0.lock();
                let end = ((through * SECTOR) as usize).min(at + buf.len());
                let end = end.min(content.data.len()).max(at);
                content.write(at, &buf[..end - at]);
            }
            return Err(error);
        }
        self.inode.0.lock().write(at, buf);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if let Some(watcher) = self.disk.0.sync_watcher.get() {
            watcher(&self.path);
        }
        let checked = self.check(Op::Sync, 0);
        let mut content = self.inode.0.lock();
        match checked {
            Ok(()) => content.sync(),
            Err(_) if self.disk.is_off() => {}
            Err(_) => content.fail_sync(),
        }
        checked
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check(Op::SetLen, len)?;
        self.inode.0.lock().set_len(index(len)?);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset + len;
        self.check(Op::Allocate, end)?;
        let mut content = self.inode.0.lock();
        let longer = index(end)?.max(content.data.len());
        content.set_len(longer);
        Ok(())
    }

    fn map(&self, len: usize) -> io::Result<FileMap> {
        if len == 0 || !len.is_multiple_of(8) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.check(Op::Map, 0)?;
        let bytes = {
            let content = self.inode.0.lock();
            content.data.get(..len).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec()
        };
        Ok(FileMap::of_bytes(&bytes))
    }

    /// Changes nothing: whatever is unsynced may already reach the disk at any time.
    fn start_write_back(&self, _offset: u64, _len: u64) {}
}
