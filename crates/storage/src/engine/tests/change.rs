//! Critical sections: what goes to the log, when an image, what happens to unlogged pages.

use super::toy::{self, ToyOp, add, add_page, begin, commit};
use crate::buffer::{CriticalSection, Persistence};
use crate::engine::testing::Sim;
use crate::engine::{CheckpointKind, Engine};
use crate::error::StorageError;
use crate::ids::{Lsn, PageId, RelId, SlotNo, Xid};
use crate::vfs::sim::Op;
use crate::vfs::{Fault, Vfs};
use crate::wal::{DecodedBody, WalReader};
use std::process::Command;
use std::sync::Arc;

fn two_pages() -> (Sim, Arc<Engine>, RelId, [PageId; 2]) {
    let sim = toy::sim(1, 64);
    let engine = sim.open();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let ids = [(); 2].map(|()| add_page(&engine, rel, xid).expect("page"));
    commit(&engine, tx).expect("commit");
    (sim, engine, rel, ids)
}

/// For each block of the record that ends at `lsn`: whether it is an image.
fn images(sim: &Sim, engine: &Engine, lsn: Lsn) -> Vec<bool> {
    engine.wal.flush(lsn).expect("flush");
    let vfs: Arc<dyn Vfs> = Arc::new(sim.disk.clone());
    let from = engine.control_data().redo;
    let mut reader = WalReader::with_segment_size(vfs, from, sim.options.wal.segment_size);
    while let Some((end, record)) = reader.next().expect("readable") {
        if end == lsn {
            let is_image = |b: &crate::wal::DecodedBlock| matches!(b.body, DecodedBody::Image(_));
            return record.blocks.iter().map(is_image).collect();
        }
    }
    panic!("no record ends at {lsn}");
}

#[test]
fn the_first_change_after_a_checkpoint_is_an_image() {
    let (sim, engine, _, ids) = two_pages();
    let lsn = add(&engine, Xid::INVALID, &ids, 0, 1).expect("add");
    assert_eq!(images(&sim, &engine, lsn), [false, false], "initialised since the redo point");
    toy::checkpoint(&engine);
    let lsn = add(&engine, Xid::INVALID, &ids[..1], 0, 1).expect("add");
    assert_eq!(images(&sim, &engine, lsn), [true]);
    let lsn = add(&engine, Xid::INVALID, &ids, 0, 1).expect("add");
    assert_eq!(images(&sim, &engine, lsn), [false, true]);
    assert_eq!(engine.pool.share(ids[0]).expect("share").lsn(), lsn);
}

#[test]
fn a_redo_point_that_moves_in_the_middle_makes_images_of_operations() {
    let (sim, engine, _, ids) = two_pages();
    let guard = engine.pool.exclusive(ids[0]).expect("exclusive");
    let mut cs = CriticalSection::begin(engine.log(), Xid::INVALID).expect("begin");
    let at = cs.add(guard);
    cs.apply(at, &ToyOp::Add { slot: 9, delta: 7 });
    // A checkpoint would wait for the latched page; its first step does not.
    engine.wal.advance_redo_point();
    let (lsn, guards) = cs.finish();
    drop(guards);
    assert_eq!(images(&sim, &engine, lsn), [true]);
    assert_eq!(toy::read(&engine, ids[0], 9), 7);
}

#[test]
fn without_full_page_writes_there_are_no_images() {
    let mut sim = toy::sim(2, 64);
    sim.options.full_page_writes = false;
    let engine = sim.open();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Permanent).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let id = add_page(&engine, rel, xid).expect("page");
    commit(&engine, tx).expect("commit");
    toy::checkpoint(&engine);
    let lsn = add(&engine, Xid::INVALID, &[id], 0, 1).expect("add");
    assert_eq!(images(&sim, &engine, lsn), [false]);
}

#[test]
fn logged_and_unlogged_pages_in_one_section() {
    let (sim, engine, _, ids) = two_pages();
    let mut tx = begin(&engine);
    let rel = engine.create_rel(&mut tx, Persistence::Unlogged).expect("create");
    let xid = tx.xid(&*engine).expect("xid");
    let unlogged = add_page(&engine, rel, xid).expect("page");
    commit(&engine, tx).expect("commit");
    let first = engine.pool.share(unlogged).expect("share").lsn();
    let lsn = add(&engine, Xid::INVALID, &[ids[0], unlogged], 4, 2).expect("add");
    assert_eq!(images(&sim, &engine, lsn), [false], "one block");
    let second = engine.pool.share(unlogged).expect("share").lsn();
    assert!(second > first && second != lsn, "a stand-in that moves on");
    assert_eq!(toy::read(&engine, unlogged, 4), 2);
    let before = engine.wal.inserted();
    let lsn = add(&engine, Xid::INVALID, &[unlogged], 4, 2).expect("add");
    assert_eq!((lsn, engine.wal.inserted()), (Lsn::INVALID, before));
}

#[test]
fn a_change_clears_what_memory_knew() {
    let (_, engine, _, ids) = two_pages();
    let slot = SlotNo::new(3);
    let seen = {
        let page = engine.pool.share(ids[0]).expect("share");
        page.frame().set_hint(slot, 5);
        let seen = page.frame().change_counter();
        assert!(page.frame().set_summary(Lsn::new(64), seen));
        seen
    };
    let mut cs = CriticalSection::begin(engine.log(), Xid::INVALID).expect("begin");
    let at = cs.add(engine.pool.exclusive(ids[0]).expect("exclusive"));
    assert_eq!(cs.frame(at).summary(), Lsn::INVALID);
    assert_eq!(cs.frame(at).hint(slot), 5, "hints go slot by slot");
    cs.clear_hints(at, slot);
    cs.apply(at, &ToyOp::Add { slot: 0, delta: 1 });
    cs.finish();
    let page = engine.pool.share(ids[0]).expect("share");
    assert_eq!((page.frame().hint(slot), page.frame().summary()), (0, Lsn::INVALID));
    assert!(!page.frame().set_summary(Lsn::new(64), seen), "seen before the change");
}

#[test]
fn a_section_without_changes_can_be_dropped_and_a_full_disk_shows_at_its_beginning() {
    let (sim, engine, _, ids) = two_pages();
    let mut cs = CriticalSection::begin(engine.log(), Xid::INVALID).expect("begin");
    cs.add(engine.pool.exclusive(ids[0]).expect("exclusive"));
    drop(cs);
    engine.wal.flush(engine.wal.inserted()).expect("flush");
    sim.disk.set_capacity(Some(sim.disk.used()));
    let mut err = None;
    for _ in 0..100_000 {
        if let Err(e) = add(&engine, Xid::INVALID, &ids, 0, 1) {
            err = Some(e);
            break;
        }
        if engine.wal.inserted().bytes_since(engine.wal.flushed()) > 1 << 18 {
            let _ = engine.wal.flush(engine.wal.inserted());
        }
    }
    let err = err.expect("the log cannot grow for ever");
    assert!(matches!(err, StorageError::DiskFull { .. }), "{err}");
    toy::read(&engine, ids[0], 0);
    // What a full log needs is a checkpoint (or space).
    sim.disk.set_capacity(None);
    engine.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    add(&engine, Xid::INVALID, &ids, 0, 1).expect("goes on");
}

#[test]
fn a_failed_log_refuses_changes_before_they_are_made() {
    let (sim, engine, _, ids) = two_pages();
    sim.disk.inject(Fault::eio(Op::Sync).on("pg_wal").forever());
    let lsn = add(&engine, Xid::INVALID, &ids, 0, 1).expect("in memory");
    engine.wal.flush(lsn).expect_err("the log's fsync fails");
    sim.disk.clear_faults();
    let err = add(&engine, Xid::INVALID, &ids, 0, 1).expect_err("latched");
    assert!(matches!(err, StorageError::Poisoned { .. }), "{err}");
    assert_eq!(toy::read(&engine, ids[0], 0), 1, "the refused change was not made");
    assert!(engine.checkpoint(CheckpointKind::Immediate).is_err());
    drop(engine);
    for seed in 0..5 {
        let (_, engine) = toy::reopened(&sim, seed);
        assert!(toy::read(&engine, ids[0], 0) <= 1);
    }
}

/// Run by the test below in a process of its own: it must not come back.
#[test]
fn child_drops_an_unfinished_section() {
    if std::env::var_os("INKLING_TEST_ABORT").is_none() {
        return;
    }
    let (_, engine, _, ids) = two_pages();
    let mut cs = CriticalSection::begin(engine.log(), Xid::INVALID).expect("begin");
    let at = cs.add(engine.pool.exclusive(ids[0]).expect("exclusive"));
    cs.apply(at, &ToyOp::Add { slot: 0, delta: 1 });
    drop(cs);
}

#[test]
fn an_unfinished_section_ends_the_process() {
    let program = std::env::current_exe().expect("this test program");
    let output = Command::new(program)
        .args(["--exact", "engine::tests::change::child_drops_an_unfinished_section"])
        .arg("--nocapture")
        .env("INKLING_TEST_ABORT", "1")
        .output()
        .expect("run");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("PANIC:  a page was changed and its record not inserted"), "{text}");
}
