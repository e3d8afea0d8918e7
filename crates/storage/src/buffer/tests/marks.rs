//! Checkpoints beside other writers of the same page.

use super::*;
use crate::sync::Mutex;

/// A page changes while a writer has its copy, and then a checkpoint begins: the copy lacks a
/// change from before the redo point, so the checkpoint has to write the page itself.
#[test]
fn a_checkpoint_writes_what_another_writers_copy_lacks() {
    let f = fixture(16);
    grow(&f.pool, 1);
    let id = PageId::main(REL, 0);
    let marked = Arc::new(Mutex::new(None));
    let (pool, found) = (Arc::downgrade(&f.pool), Arc::clone(&marked));
    f.pool.set_write_back_hook(Box::new(move |_, id| {
        let mut found = found.lock();
        if let Some(pool) = pool.upgrade().filter(|_| found.is_none()) {
            fill(&pool, pool.exclusive(id).expect("page"), 1);
            *found = Some(pool.mark_dirty_pages(DirtyPages::All));
        }
        Lsn::INVALID
    }));
    assert!(f.pool.flush_page(id).expect("write"), "the other writer");
    let marked = marked.lock().clone().expect("the checkpoint has begun");
    assert_eq!(marked.len(), 1);
    assert!(f.pool.write_marked(marked[0]).expect("write"), "what changed since is written");
    let again = pool_over(&f.vfs, 16);
    assert_eq!(again.share(id).expect("page").u64_at(4000), 1);
    assert!(!f.pool.write_marked(marked[0]).expect("write"), "once");
}
