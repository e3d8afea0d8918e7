//! The host's file system under one root directory.
//!
//! `sync` is `fdatasync`; `allocate` is `fallocate`, or zeros written past the end where the file
//! system has no such call; early write-out is asked for as `write_back` says. Files are created
//! with mode 0600 and directories with 0700, as PostgreSQL does.

use super::{FileMap, OpenMode, Vfs, VfsFile, check_path, write_back};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zeros are written in pieces of this size where `fallocate` is missing.
const ZERO_CHUNK: usize = 256 * 1024;

/// A data directory on the host.
#[derive(Debug)]
pub struct RealVfs {
    root: PathBuf,
}

impl RealVfs {
    /// The directory need not exist yet: `create_dir_all("")` makes it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        RealVfs { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn file_path(&self, path: &str) -> io::Result<PathBuf> {
        check_path(path, false)?;
        Ok(self.root.join(path))
    }

    fn dir_path(&self, path: &str) -> io::Result<PathBuf> {
        check_path(path, true)?;
        Ok(self.root.join(path))
    }
}

impl Vfs for RealVfs {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        match mode {
            OpenMode::Open => &mut options,
            OpenMode::Create => options.create_new(true),
            OpenMode::OpenOrCreate => options.create(true),
        };
        let file = options.open(self.file_path(path)?)?;
        Ok(Arc::new(RealFile { file }))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.file_path(path)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.file_path(from)?, self.file_path(to)?)
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.dir_path(path)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.dir_path(dir)?)? {
            // A name that is not UTF-8 is none of ours and cannot be opened through here.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &str) -> bool {
        self.dir_path(path).is_ok_and(|p| p.exists())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        File::open(self.dir_path(dir)?)?.sync_all()
    }
}

struct RealFile {
    file: File,
}

impl RealFile {
    /// `allocate` where the kernel or the file system has no `fallocate`.
    fn extend_with_zeros(&self, end: u64) -> io::Result<()> {
        let zeros = vec![0; ZERO_CHUNK];
        let mut at = self.len()?;
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(ZERO_CHUNK).min(ZERO_CHUNK);
            self.file.write_all_at(&zeros[..piece], at)?;
            at += piece as u64;
        }
        Ok(())
    }
}

impl VfsFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        use rustix::io::Errno;
        if len == 0 {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return self.extend_with_zeros(offset + len);
                }
                other => return Ok(other?),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.extend_with_zeros(offset + len)
    }

    fn map(&self, len: usize) -> io::Result<FileMap> {
        FileMap::of_file(&self.file, len)
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        // A hint (rule 6): `sync` comes later.
        write_back::start(&self.file, offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_live_under_the_root_and_nowhere_else() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let vfs = RealVfs::new(dir.path().join("data"));
        vfs.create_dir_all("").expect("root");
        vfs.create_dir_all("pg_wal").expect("directory");
        assert!(vfs.open("../x", OpenMode::Create).is_err());
        assert!(vfs.open("/tmp/x", OpenMode::Create).is_err());
        assert!(vfs.open("pg_wal/a", OpenMode::Open).is_err());
        vfs.open("pg_wal/a", OpenMode::Create).expect("create");
        assert!(vfs.open("pg_wal/a", OpenMode::Create).is_err());
        vfs.open("pg_wal/b", OpenMode::OpenOrCreate).expect("create");
        vfs.rename("pg_wal/b", "pg_wal/c").expect("rename");
        assert_eq!(vfs.list("pg_wal").expect("list"), ["a", "c"]);
        assert!(vfs.exists("pg_wal/c") && !vfs.exists("pg_wal/b"));
        vfs.remove("pg_wal/c").expect("remove");
        vfs.sync_dir("pg_wal").expect("sync");
        vfs.sync_dir("").expect("sync root");
    }

    #[test]
    fn bytes_come_back_and_allocation_extends_with_zeros() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let vfs = RealVfs::new(dir.path());
        let file = vfs.open("f", OpenMode::Create).expect("create");
        file.write_at(b"hello", 3).expect("write");
        file.allocate(0, 100).expect("allocate");
        assert_eq!(file.len().expect("len"), 100);
        let mut buf = [9; 10];
        assert_eq!(file.read_at(&mut buf, 0).expect("read"), 10);
        assert_eq!(&buf, b"\0\0\0hello\0\0");
        assert_eq!(file.read_at(&mut buf, 95).expect("read at the end"), 5);
        assert!(file.read_exact_at(&mut buf, 95).is_err());
        file.start_write_back(0, 100);
        file.sync().expect("sync");
        file.set_len(4).expect("truncate");
        assert_eq!(file.len().expect("len"), 4);
    }

    #[test]
    fn zeros_stand_in_for_a_missing_fallocate() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join("f"))
            .expect("create");
        let file = RealFile { file };
        file.write_at(b"x", 0).expect("write");
        file.extend_with_zeros(2 * ZERO_CHUNK as u64 + 7).expect("extend");
        assert_eq!(file.len().expect("len"), 2 * ZERO_CHUNK as u64 + 7);
        let mut first = [0];
        file.read_at(&mut first, 0).expect("read");
        assert_eq!(&first, b"x");
    }
}
