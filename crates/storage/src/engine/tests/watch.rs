//! A watch over what is written to relation files: nothing ahead of the log.

use super::crash::{History, Work};
use super::toy;
use crate::ids::Lsn;
use crate::wal::Wal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

#[test]
fn no_page_is_written_before_its_log() {
    let sim = toy::sim(5, 20);
    let wal: Arc<OnceLock<Weak<Wal>>> = Arc::default();
    let seen: Arc<AtomicU64> = Arc::default();
    let (log, count) = (Arc::clone(&wal), Arc::clone(&seen));
    sim.disk.watch_writes(Box::new(move |path, offset, bytes| {
        let Some(wal) = log.get().and_then(Weak::upgrade) else { return };
        if path.starts_with("base/") {
            let lsn = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            assert!(Lsn::new(lsn) <= wal.flushed(), "{path}: page at {offset} is ahead of the log");
            count.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let engine = sim.open();
    assert!(wal.set(Arc::downgrade(&engine.wal)).is_ok());
    let mut work = Work::new(engine, 5, History::default(), Vec::new());
    assert!(work.run(400));
    assert!(seen.load(Ordering::Relaxed) > 100);
}
