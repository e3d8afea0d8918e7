//! The first bytes of a file as words in memory, for reading without a call and without a lock.
//!
//! ```text
//!   file ──map(len)──> FileMap ── word(byte offset) ──> u64, little-endian
//!                         └── retire(): the same addresses, zeros from now on
//! ```
//!
//! A host's file is mapped (`PROT_READ`, `MAP_SHARED`): the kernel brings its pages in when they
//! are read and may take them away again when memory is short. A simulated file is copied.
//!
//! # Invariants
//!
//! - The addresses stay readable as long as the map lives. `retire` puts zero pages in the place
//!   of the file's in one system call, so a load that races with it finds an old word or a zero
//!   and never a hole; from then on the map holds neither the file's disk space nor memory.
//! - A load is atomic and ordered before the loads that follow it, so that a caller may check
//!   afterwards whether what it read still counts. Whoever retires says so first: the system call
//!   interrupts every processor that may still use the old pages, which orders what was stored
//!   before it; for a copy, a release fence does.
//! - A map never covers bytes beyond the file's length, and nobody shortens a mapped file.
//!
//! Not here: what the words mean, checksums. A device that fails under a page that was taken away
//! in between ends the process by `SIGBUS`: there is no call that could return the error.

#![allow(unsafe_code)]

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Words of a file, read-only. See the module's essay.
pub struct FileMap(Form);

enum Form {
    Mapped(Mapping),
    Copy(Box<[AtomicU64]>),
}

/// Addresses that this value owns: `len` bytes from `base`, readable.
struct Mapping {
    base: NonNull<std::sync::atomic::AtomicU64>,
    len: usize,
}

// SAFETY: the memory is only read, through atomics, until the value is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl FileMap {
    /// Maps the first `len` bytes, a multiple of 8 and not more than the file has.
    pub(super) fn of_file(file: &File, len: usize) -> io::Result<Self> {
        if len == 0 || !len.is_multiple_of(8) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if file.metadata()?.len() < len as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing of ours;
        // `file` keeps the descriptor open during the call, which is all that the call needs.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, read, shared, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(FileMap(Form::Mapped(Mapping { base, len })))
    }

    /// The same of bytes that are in memory.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            AtomicU64::new(u64::from_le_bytes(raw))
        };
        FileMap(Form::Copy(bytes.chunks(8).map(word).collect()))
    }

    /// The little-endian word at a byte offset, which is a multiple of 8 inside the map.
    #[inline]
    pub fn word(&self, offset: usize) -> u64 {
        debug_assert!(offset.is_multiple_of(8), "words are aligned");
        match &self.0 {
            Form::Mapped(mapping) => {
                assert!(offset < mapping.len, "inside the map");
                // SAFETY: `offset` is below `len`, which is a multiple of 8 as the offset is, and
                // the range is readable until `self` is dropped. A relaxed load is the one kind
                // of atomic access that memory without write permission allows.
                let word = unsafe { mapping.base.add(offset / 8).as_ref() }
                    .load(std::sync::atomic::Ordering::Relaxed);
                std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
                u64::from_le(word)
            }
            Form::Copy(words) => words[offset / 8].load(Ordering::Acquire),
        }
    }

    /// Lets the file go. The addresses read as zeros from now on.
    pub fn retire(&self) -> io::Result<()> {
        match &self.0 {
            Form::Mapped(mapping) => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                // SAFETY: exactly the range that `mapping` owns is replaced, by pages that are
                // readable as well; readers hold no reference beyond one atomic load.
                let base = unsafe {
                    libc::mmap(
                        mapping.base.as_ptr().cast(),
                        mapping.len,
                        libc::PROT_READ,
                        flags,
                        -1,
                        0,
                    )
                };
                if base == libc::MAP_FAILED {
                    return Err(io::Error::last_os_error());
                }
            }
            Form::Copy(words) => {
                fence(Ordering::Release);
                for word in words {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and no `&self` exists any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::vfs::{Fault, Op, OpenMode, RealVfs, SimDisk, Vfs};

    fn both(check: impl Fn(&dyn Vfs)) {
        let dir = tempfile::tempdir().expect("temporary directory");
        check(&RealVfs::new(dir.path()));
        check(&SimDisk::new(1));
    }

    #[test]
    fn words_are_the_files_until_it_is_retired() {
        both(|vfs| {
            let file = vfs.open("f", OpenMode::Create).expect("create");
            let bytes: Vec<u8> = (0..=255).cycle().take(3 * 4096).collect();
            file.write_at(&bytes, 0).expect("write");
            let map = file.map(2 * 4096).expect("map");
            assert_eq!(map.word(0), 0x0706_0504_0302_0100);
            assert_eq!(map.word(2 * 4096 - 8), 0xFFFE_FDFC_FBFA_F9F8);
            vfs.remove("f").expect("remove");
            assert_eq!(map.word(8), 0x0F0E_0D0C_0B0A_0908, "a name is not the file");
            map.retire().expect("retire");
            assert_eq!((map.word(0), map.word(2 * 4096 - 8)), (0, 0));
        });
    }

    #[test]
    fn nothing_beyond_the_end_is_mapped() {
        both(|vfs| {
            let file = vfs.open("f", OpenMode::Create).expect("create");
            file.write_at(&[7; 100], 0).expect("write");
            assert!(file.map(104).is_err());
            assert!(file.map(0).is_err() && file.map(12).is_err());
            assert_eq!(file.map(96).expect("map").word(88), 0x0707_0707_0707_0707);
        });
    }

    #[test]
    fn a_simulated_mapping_can_fail() {
        let disk = SimDisk::new(2);
        let file = disk.open("f", OpenMode::Create).expect("create");
        file.write_at(&[7; 64], 0).expect("write");
        disk.inject(Fault::eio(Op::Map).on("f"));
        assert!(file.map(64).is_err());
        assert!(file.map(64).is_ok());
    }
}
