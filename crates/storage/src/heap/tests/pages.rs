//! Pages and operations without an engine: golden dumps, redo = apply, random bytes.

use crate::heap::dump::dump_page;
use crate::heap::ops::{
    self, Birth, CLEAR_XMAX, Death, FREEZE_XMIN, HeapOp, InsertMany, PruneLists,
};
use crate::heap::page::{self, LineState};
use crate::heap::{RowLock, TupleBody};
use crate::ids::{RowId, SlotNo, Xid};
use crate::page::{HEADER_SIZE, PAGE_SIZE, Page};
use proptest::prelude::*;

const fn slot(n: u16) -> SlotNo {
    SlotNo::new(n)
}

fn body(data: &[u8]) -> TupleBody<'_> {
    TupleBody { natts: 2, nulls: &[], data, has_external: false }
}

fn birth(xmin: u32) -> Birth {
    Birth { xmin, cid: 0, heap_only: false, updated: false }
}

fn death(xmax: u32) -> Death {
    Death { xmax, cid: 1, ..Death::default() }
}

/// A page and everything that was done to it, encoded.
struct Log {
    page: Page,
    ops: Vec<u8>,
}

impl Log {
    fn new(base: u64) -> Self {
        let mut log = Log { page: Page::zeroed(), ops: Vec::new() };
        log.run(&HeapOp::Init { base });
        log
    }

    fn run(&mut self, op: &HeapOp<'_>) {
        op.apply(&mut self.page).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        op.encode(&mut self.ops);
    }

    fn check_redo(&self) {
        let mut redone = Page::zeroed();
        ops::redo(&self.ops, &mut redone).expect("own operations");
        assert_eq!(dump_page(&redone), dump_page(&self.page));
        assert!(redone.bytes() == self.page.bytes(), "redo gives the same bytes");
    }
}

/// A row updated twice in place, one deleted, one locked, one with nulls.
fn sample() -> Log {
    let mut log = Log::new(1000);
    log.run(&HeapOp::Insert {
        slot: slot(1),
        birth: birth(10),
        body: body(b"alpha-one-two-three"),
    });
    let nulls = TupleBody { natts: 9, nulls: &[0b1010_0101, 1], data: b"xyz", has_external: true };
    log.run(&HeapOp::Insert { slot: slot(2), birth: birth(10), body: nulls });
    log.run(&HeapOp::Insert { slot: slot(3), birth: birth(10), body: body(b"gamma") });
    let next = Birth { xmin: 20, cid: 1, heap_only: true, updated: true };
    let op = HeapOp::insert_like(&log.page, slot(1), slot(4), next, body(b"alpha-one-2-three"));
    assert!(matches!(op, HeapOp::InsertLike { prefix: 10, suffix: 6, middle: b"2", .. }), "{op:?}");
    log.run(&op);
    log.run(&HeapOp::UpdateOld {
        slot: slot(1),
        death: death(20),
        next: RowId::new(7, slot(4)),
        hot: true,
    });
    log.run(&HeapOp::Delete { slot: slot(2), death: Death { keys: true, ..death(21) } });
    log.run(&HeapOp::Lock { slot: slot(3), xmax: 22, strength: RowLock::NoKeyUpdate });
    log
}

#[test]
fn golden_dump_of_a_page() {
    let log = sample();
    let expected = "\
heap page lsn 0/0 base 1000 flags - prune x1020 lower 56 upper 8024 free 7968
  1 normal 8144+43 xmin x1010 xmax x1020 cid 1 natts 2 hoff 24 next (7,4) [hot-updated] data 616c7068612d6f6e652d74776f2d7468726565
  2 normal 8104+35 xmin x1010 xmax x1021 cid 1 natts 9 hoff 32 keys [nulls external] nulls a501 data 78797a
  3 normal 8072+29 xmin x1010 xmax x1022 cid 0 natts 2 hoff 24 strength 2 [lock-only] data 67616d6d61
  4 normal 8024+41 xmin x1020 xmax x0 cid 1 natts 2 hoff 24 [heap-only updated] data 616c7068612d6f6e652d322d7468726565
";
    assert_eq!(dump_page(&log.page), expected);
    log.check_redo();
}

#[test]
fn the_bytes_of_a_tuple_header() {
    let log = sample();
    let at = 8144;
    let head: Vec<u8> = log.page.bytes()[at..at + 24].to_vec();
    assert_eq!(
        crate::heap::dump::hex(&head),
        "0a00000014000000010000000700000004000008020018\
         00"
    );
}

#[test]
fn pruning_redirects_the_root_and_frees_members() {
    let mut log = sample();
    let free = log.page.free_space();
    log.run(&HeapOp::Prune(PruneLists {
        redirects: vec![(slot(1), slot(4))],
        dead: vec![slot(2)],
        unused: vec![],
        hint: Xid::INVALID,
    }));
    let states: Vec<LineState> = page::slots(&log.page)
        .filter_map(|s| page::line(&log.page, s))
        .map(|l| l.state())
        .collect();
    use LineState::*;
    assert_eq!(states, [Redirect, Dead, Normal, Normal]);
    assert_eq!(log.page.free_space(), free + 48 + 40);
    assert_eq!(page::root_map(&log.page), [slot(1), slot(0), slot(3), slot(1)]);
    assert_eq!(page::tuple(&log.page, slot(4)).map(|t| t.data()), Some(&b"alpha-one-2-three"[..]));

    log.run(&HeapOp::FreeDead { slots: vec![slot(2)] });
    assert_eq!(page::free_slot(&log.page), slot(2), "the free pointer is found again");
    log.run(&HeapOp::Insert { slot: slot(2), birth: birth(30), body: body(b"delta") });
    assert_eq!(page::free_slot(&log.page), slot(5));
    log.check_redo();
}

#[test]
fn trailing_unused_line_pointers_go() {
    let mut log = Log::new(0);
    for n in 1..=3 {
        let heap_only = Birth { heap_only: n > 1, ..birth(5) };
        log.run(&HeapOp::Insert { slot: slot(n), birth: heap_only, body: body(b"v") });
    }
    log.run(&HeapOp::Prune(PruneLists { unused: vec![slot(2), slot(3)], ..PruneLists::default() }));
    assert_eq!(page::slot_count(&log.page), 1);
    assert_eq!(usize::from(log.page.lower()), HEADER_SIZE + 4);
    log.check_redo();
}

#[test]
fn freezing_and_rebasing_keep_who_did_what() {
    let mut log = sample();
    log.run(&HeapOp::Freeze {
        slots: vec![(slot(2), FREEZE_XMIN), (slot(3), FREEZE_XMIN | CLEAR_XMAX)],
    });
    let before = dump_page(&log.page);
    log.run(&HeapOp::Rebase { base: 500 });
    assert_eq!(dump_page(&log.page), before.replace("base 1000", "base 500"));
    let t = page::tuple(&log.page, slot(3)).expect("slot 3");
    assert_eq!((t.xmin(500), t.xmax(500)), (Xid::FROZEN, Xid::INVALID));
    assert!(!t.is_lock_only());
    log.check_redo();
    let too_high = HeapOp::Rebase { base: 1009 };
    assert!(too_high.apply(&mut log.page).is_err(), "x1010 is below the base's first");
    assert_eq!(log.page.base(), 500);
}

#[test]
fn insert_many_is_replayed_as_single_inserts() {
    let mut log = Log::new(0);
    let rows = [(slot(1), body(b"a")), (slot(2), body(b"bb")), (slot(3), body(b"ccc"))];
    let many = InsertMany { birth: birth(9), rows: &rows };
    many.apply(&mut log.page).expect("room");
    many.encode(&mut log.ops);
    log.check_redo();
    assert_eq!(page::slot_count(&log.page), 3);
    assert_eq!(
        ops::describe(&log.ops),
        "init base 0; insert 1 xmin +9 len 25; insert 2 xmin +9 len 26; insert 3 xmin +9 len 27"
    );
}

#[test]
fn a_page_holds_its_maximum_and_no_more() {
    let mut log = Log::new(0);
    let data = vec![7u8; page::MAX_TUPLE - page::TUPLE_HEADER];
    log.run(&HeapOp::Insert { slot: slot(1), birth: birth(9), body: body(&data) });
    assert_eq!(page::room(&log.page), 0);
    let more = HeapOp::Insert { slot: slot(2), birth: birth(9), body: body(b"") };
    assert!(more.apply(&mut log.page).is_err());

    let mut tiny = Log::new(0);
    while page::room(&tiny.page) >= page::TUPLE_HEADER {
        let at = page::free_slot(&tiny.page);
        let none = TupleBody { natts: 0, ..body(b"") };
        tiny.run(&HeapOp::Insert { slot: at, birth: birth(9), body: none });
    }
    assert_eq!(page::slot_count(&tiny.page), page::MAX_SLOTS);
    tiny.check_redo();
}

#[test]
fn xids_are_offsets_from_the_base() {
    assert_eq!(page::offset_of(0, Xid::new(3)), Some(3));
    assert_eq!(page::offset_of(100, Xid::new(101)), None, "offset 1 means frozen");
    assert_eq!(page::offset_of(100, Xid::FROZEN), Some(1));
    assert_eq!(page::offset_of(0, Xid::new(1 << 32)), None);
    let xid = Xid::new((5 << 32) + 77);
    let base = page::base_for(xid);
    let offset = page::offset_of(base, xid).expect("its own base");
    assert_eq!(page::xid_at(base, offset), xid);
    assert!(page::offset_of(base, Xid::new(xid.raw() + (1 << 31))).is_some());
    assert!(page::offset_of(base, Xid::new(xid.raw() - (1 << 30) + 2)).is_some());
}

/// Reads everything that there is to read.
fn look_at_everything(p: &Page) {
    let _ = dump_page(p);
    let _ = page::root_map(p);
    let _ = (page::free_slot(p), page::room(p), page::check_bounds(p));
    for n in 0..400 {
        if let Some(t) = page::tuple(p, slot(n)) {
            let _ = (t.body(), t.next(), t.xmin(p.base()), t.xmax(p.base()));
        }
    }
}

fn any_op() -> impl Strategy<Value = HeapOp<'static>> {
    let s = || (0u16..12).prop_map(SlotNo::new);
    let data: &'static [u8] = &[0x5A; 300];
    let insert = (s(), 0usize..300, any::<bool>()).prop_map(move |(slot, len, heap_only)| {
        let birth = Birth { xmin: 7, cid: 3, heap_only, updated: heap_only };
        HeapOp::Insert {
            slot,
            birth,
            body: TupleBody { natts: 3, data: &data[..len], ..TupleBody::default() },
        }
    });
    let like = (s(), s(), 0u16..80, 0u16..80, 0usize..50).prop_map(
        move |(slot, like, prefix, suffix, len)| HeapOp::InsertLike {
            slot,
            birth: Birth { xmin: 8, cid: 0, heap_only: true, updated: true },
            natts: 3,
            external: false,
            like,
            prefix,
            suffix,
            middle: &data[..len],
        },
    );
    let slots = || proptest::collection::vec((0u16..12).prop_map(SlotNo::new), 0..4);
    let prune = (proptest::collection::vec((s(), s()), 0..3), slots(), slots()).prop_map(
        |(redirects, dead, unused)| {
            HeapOp::Prune(PruneLists { redirects, dead, unused, hint: Xid::new(9) })
        },
    );
    prop_oneof![
        4 => insert,
        2 => like,
        1 => (s(), any::<bool>()).prop_map(|(slot, keys)| HeapOp::Delete {
            slot,
            death: Death { keys, ..death(9) },
        }),
        1 => (s(), s(), any::<bool>()).prop_map(|(slot, to, hot)| HeapOp::UpdateOld {
            slot,
            death: death(9),
            next: RowId::new(1, to),
            hot,
        }),
        1 => s().prop_map(|slot| HeapOp::Lock { slot, xmax: 11, strength: RowLock::Update }),
        1 => s().prop_map(|slot| HeapOp::Withdraw { slot }),
        2 => prune,
        1 => slots().prop_map(|slots| HeapOp::FreeDead { slots }),
        1 => (s(), 0u8..4).prop_map(|(slot, a)| HeapOp::Freeze { slots: vec![(slot, a)] }),
        1 => (0u64..12).prop_map(|base| HeapOp::Rebase { base }),
        1 => Just(HeapOp::SetAllVisible),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever applies is replayed to the same bytes.
    #[test]
    fn redo_equals_apply(all in proptest::collection::vec(any_op(), 1..60)) {
        let mut log = Log::new(0);
        for op in &all {
            let mut trial = log.page.clone();
            if op.apply(&mut trial).is_ok() {
                log.run(op);
                prop_assert!(page::check_bounds(&log.page).is_ok());
            }
        }
        look_at_everything(&log.page);
        log.check_redo();
    }

    /// Random bytes as a page: errors, never a panic.
    #[test]
    fn any_bytes_can_be_looked_at_and_changed(
        header in proptest::collection::vec(any::<u8>(), HEADER_SIZE + 64),
        tail in proptest::collection::vec(any::<u8>(), 512),
        sane in any::<bool>(),
        ops in proptest::collection::vec(any_op(), 1..10),
    ) {
        let mut p = Page::zeroed();
        p.bytes_mut()[..header.len()].copy_from_slice(&header);
        p.bytes_mut()[PAGE_SIZE - tail.len()..].copy_from_slice(&tail);
        if sane {
            p.set_lower((HEADER_SIZE + 48) as u16);
            p.set_upper(7600);
        }
        look_at_everything(&p);
        for op in &ops {
            let _ = op.apply(&mut p);
            look_at_everything(&p);
        }
        ops::mask_volatile(&mut p);
    }

    /// Random bytes as operations: errors, never a panic.
    #[test]
    fn any_bytes_can_be_replayed(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut p = sample().page;
        let _ = ops::redo(&bytes, &mut p);
        let _ = ops::describe(&bytes);
        look_at_everything(&p);
    }

    /// An operation survives its encoding, and no cut of it is taken for it.
    #[test]
    fn cut_operations_are_refused(op in any_op(), keep in 0usize..40) {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        prop_assert!(!ops::describe(&bytes).contains('<'), "{}", ops::describe(&bytes));
        if keep < bytes.len() && keep > 0 {
            prop_assert!(ops::redo(&bytes[..keep], &mut sample().page).is_err());
        }
    }
}
