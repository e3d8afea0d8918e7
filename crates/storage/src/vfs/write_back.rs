//! Asks the kernel to begin writing dirty pages: Linux's `sync_file_range(SYNC_FILE_RANGE_WRITE)`.
//!
//! It starts write-out and returns; nothing is durable for it (`sync` comes later), and the pages
//! stay cached. `posix_fadvise(DONTNEED)`, which also starts write-out, drops the clean pages of
//! its range: after a checkpoint, the next start would read its whole data set from the device.
//! Elsewhere than on Linux this does nothing.

#![allow(unsafe_code)]

use std::fs::File;

/// Bytes `[offset, offset + len)` of `file`. A hint: what it answers does not matter.
pub(super) fn start(file: &File, offset: u64, len: u64) {
    #[cfg(target_os = "linux")]
    if let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) {
        use std::os::fd::AsRawFd;
        // SAFETY: the call takes a descriptor, which `file` keeps open, and three integers; it
        // reads and writes no memory of this process.
        let _ = unsafe {
            libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
        };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}
