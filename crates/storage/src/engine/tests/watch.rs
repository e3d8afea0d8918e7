//! A disk that watches what is written to relation files: nothing ahead of the log.

use super::crash::{History, Work};
use super::toy;
use crate::engine::Engine;
use crate::ids::Lsn;
use crate::vfs::{OpenMode, SimDisk, Vfs, VfsFile};
use crate::wal::Wal;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Looks at every page that goes to `base/`.
struct Watch {
    disk: SimDisk,
    wal: Arc<OnceLock<Weak<Wal>>>,
    seen: Arc<AtomicU64>,
}
struct WatchedFile(Arc<dyn VfsFile>, Arc<OnceLock<Weak<Wal>>>, Arc<AtomicU64>);
impl VfsFile for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Some(wal) = self.1.get().and_then(Weak::upgrade) {
            let lsn = u64::from_le_bytes(buf[..8].try_into().expect("eight bytes"));
            assert!(Lsn::new(lsn) <= wal.flushed(), "page at {offset} is ahead of the log");
            self.2.fetch_add(1, Ordering::Relaxed);
        }
        self.0.write_at(buf, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }
    fn start_write_back(&self, offset: u64, len: u64) {
        self.0.start_write_back(offset, len);
    }
}
impl Vfs for Watch {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.disk.open(path, mode)?;
        if path.starts_with("base/") {
            return Ok(Arc::new(WatchedFile(file, self.wal.clone(), self.seen.clone())));
        }
        Ok(file)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn exists(&self, path: &str) -> bool {
        self.disk.exists(path)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

#[test]
fn no_page_is_written_before_its_log() {
    let sim = toy::sim(5, 20);
    let (wal, seen) = (Arc::new(OnceLock::new()), Arc::new(AtomicU64::new(0)));
    let watch = Watch { disk: sim.disk.clone(), wal: wal.clone(), seen: seen.clone() };
    let (engine, _) =
        Engine::open(Arc::new(watch), sim.clock.clone(), sim.options.clone()).expect("open");
    assert!(wal.set(Arc::downgrade(&engine.wal)).is_ok());
    let mut work = Work::new(engine, 5, History::default(), Vec::new());
    assert!(work.run(400));
    assert!(seen.load(Ordering::Relaxed) > 100);
}
