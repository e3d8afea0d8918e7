//! No hint on disk claims a commit that a crash could still take back (semantics 17).
//!
//! A watch over a simulated disk looks at every page image that is ever written to a table. For
//! each transaction that a page says has committed, by a hint or by the all-visible flag, the power
//! fails on the spot, in several ways, and the engine that recovers must agree.
//!
//! The same watch finds what is wrong with the unsafe policy, so it is known to see.

use super::model::World;
use super::*;
use crate::engine::CheckpointKind;
use crate::ids::Xid;
use crate::page::{PAGE_SIZE, Page, PageClass};
use crate::sync::{Arc, Mutex};
use crate::txn::XidStatus;
use crate::vfs::{Fault, Op};
use std::collections::BTreeSet;

/// Power failures tried for each new claim.
const CRASHES: u64 = 3;

#[derive(Default)]
struct Findings {
    images: u64,
    /// Claims that were tried.
    claims: BTreeSet<Xid>,
    /// Those that a crash took back, with the crash's seed.
    refuted: Vec<(Xid, u64)>,
}

/// The transactions that a page says have committed.
fn claims(page: &Page) -> Vec<Xid> {
    let base = page.base();
    let all_visible = page.flags() & page::ALL_VISIBLE != 0;
    let mut found = Vec::new();
    for slot in page::slots(page) {
        let Some(t) = page::tuple(page, slot) else { continue };
        if all_visible || t.mask() & page::XMIN_COMMITTED != 0 {
            found.push(t.xmin(base));
        }
        if t.mask() & page::XMAX_COMMITTED != 0 {
            found.push(t.xmax(base));
        }
    }
    found.retain(|xid| xid.is_normal());
    found
}

/// Watches the disk of `sim`; what was found so far is in the result.
fn watch(sim: &testing::Sim) -> Arc<Mutex<Findings>> {
    let findings = Arc::<Mutex<Findings>>::default();
    let (host, found) = (sim.crash(0), Arc::clone(&findings));
    let disk = sim.disk.clone();
    sim.disk.watch_writes(Box::new(move |path, _, bytes| {
        if !path.starts_with("base/") || bytes.len() != PAGE_SIZE {
            return;
        }
        let mut page = Page::zeroed();
        page.bytes_mut().copy_from_slice(bytes);
        if page.class() != Some(PageClass::Heap) {
            return;
        }
        let mut findings = found.lock();
        findings.images += 1;
        let new: Vec<Xid> =
            claims(&page).into_iter().filter(|xid| findings.claims.insert(*xid)).collect();
        for seed in 0..CRASHES {
            if new.is_empty() {
                break;
            }
            let crashed = testing::Sim {
                disk: disk.crash(seed),
                clock: Arc::clone(&host.clock),
                options: host.options.clone(),
            };
            let e = crashed.open();
            let lost =
                new.iter().filter(|xid| !matches!(e.txns.status(**xid), XidStatus::Committed(_)));
            let lost: Vec<_> = lost.map(|xid| (*xid, seed)).collect();
            findings.refuted.extend(lost);
        }
    }));
    findings
}

/// A history of asynchronous commits, small in memory, so that pages go out all the time.
fn run(seed: u64, policy: HintPolicy) -> Findings {
    let mut sim = testing::Sim::new(seed);
    sim.options = testing::options(20);
    let findings = watch(&sim);
    let db = Db::on(sim.open());
    db.e.heap.set_hint_policy(policy);
    let mut world = World::new(&db, seed);
    world.run_with(policy, 250);
    drop(world);
    drop(db);
    std::mem::take(&mut *findings.lock())
}

#[test]
fn a_hint_on_disk_survives_every_crash() {
    for policy in HintPolicy::SAFE {
        let (mut images, mut tried) = (0, 0);
        for seed in 1..=6 {
            let found = run(seed, policy);
            assert_eq!(found.refuted, [], "seed {seed}, {policy:?}");
            images += found.images;
            tried += found.claims.len();
        }
        assert!(images > 100, "{policy:?}: {images} page images");
        assert_eq!(tried > 50, policy != HintPolicy::Off, "{policy:?}: {tried} claims");
    }
}

#[test]
fn the_unsafe_policy_is_caught() {
    let caught = (1..=20).any(|seed| !run(seed, HintPolicy::UnsafeImmediate).refuted.is_empty());
    assert!(caught, "a hint ahead of the log reached the disk, and was seen");
}

/// Under the older policies a hint may need an image of its page in the log. A log that takes
/// nothing any more keeps readers from leaving hints, and from nothing else.
#[test]
fn a_hint_that_the_log_has_no_room_for_fails_no_reader() {
    let sim = testing::Sim::new(1);
    let db = Db::on(sim.open());
    db.e.heap.set_hint_policy(HintPolicy::Flushed);
    let mut writer = db.begin();
    writer.insert(b"here");
    writer.commit();
    db.e.checkpoint(CheckpointKind::Immediate).expect("checkpoint");
    sim.disk.inject(Fault::eio(Op::Sync).on("pg_wal").forever());
    let mut writer = db.begin();
    writer.insert(b"never durable");
    writer.commit();
    assert!(db.e.wal.flush(db.e.wal.inserted()).is_err(), "the log has failed");
    assert_eq!(texts(&db.begin().scan()), ["here", "never durable"]);
}
