//! Tests of layout, search, changes and split choice on bare pages.

#![allow(clippy::unwrap_used)]

use super::edit::{self, ItemList, NodeInit};
use super::node::*;
use super::ops::{self, Op};
use super::split::{Overflow, separator};
use crate::buffer::PageOp;
use crate::ids::{RowId, SlotNo};
use crate::page::{PAGE_SIZE, Page};
use proptest::prelude::*;

fn leaf() -> Page {
    let mut page = Page::zeroed();
    Op::Init(NodeInit { level: 0, flags: 0, generation: 1, left: 0, right: Link::NONE })
        .apply(&mut page)
        .unwrap();
    page
}

fn entry(key: &[u8], row: u64) -> Item<'_> {
    Item { key, row, child: Link::NONE }
}

/// What a page holds, compared with a sorted vector.
fn contents(page: &Page) -> Vec<(Vec<u8>, u64)> {
    let node = Node::new(page).unwrap();
    (0..node.len()).map(|i| node.item(i).unwrap()).map(|i| (i.key.to_vec(), i.row)).collect()
}

fn insert_sorted(page: &mut Page, key: &[u8], row: u64) -> bool {
    let node = Node::new(page).unwrap();
    let at = node.lower_bound(Pos { key, row }).unwrap();
    let op = Op::insert(at, entry(key, row));
    if entry(key, row).size() > node.room() {
        return false;
    }
    op.apply(page).unwrap();
    true
}

#[test]
fn links_use_the_field_that_the_common_header_leaves_free() {
    let mut page = leaf();
    edit::set_left(&mut page, 0x1122_3344).unwrap();
    edit::set_right(&mut page, Link::new(0x5566_7788, 9)).unwrap();
    assert_eq!(page.base(), 0x5566_7788_1122_3344);
    let node = Node::new(&page).unwrap();
    assert_eq!((node.left(), node.right()), (0x1122_3344, Link::new(0x5566_7788, 9)));
}

#[test]
fn a_small_page_reads_as_expected() {
    let mut page = leaf();
    for (key, slot) in [("pear", 3), ("peach", 1), ("pea", 2), ("peach", 9)] {
        assert!(insert_sorted(&mut page, key.as_bytes(), slot));
    }
    edit::set_high(&mut page, Pos::before(b"q")).unwrap();
    let expected = "\
level 0 [leaf] gen 1 left 0 right 0.0 skip 3 garbage 0 high Ok(Some(\"q\"))
0: \"pea\"@(0,2)
1: \"peach\"@(0,1)
2: \"peach\"@(0,9)
3: \"pear\"@(0,3)
";
    assert_eq!(dump(&page), expected);
    let node = Node::new(&page).unwrap();
    assert_eq!(node.lower_bound(Pos::before(b"peach")), Ok(1));
    assert_eq!(node.lower_bound(Pos::after(b"peach")), Ok(3));
    assert_eq!(node.lower_bound(Pos::before(b"pe")), Ok(0));
    assert_eq!(node.lower_bound(Pos::before(b"z")), Ok(4));
    assert_eq!(node.is_beyond(Pos::before(b"q")), Ok(true));
    assert_eq!(node.is_beyond(Pos::after(b"pzzz")), Ok(false));
}

#[test]
fn an_internal_page_leads_to_the_right_child() {
    let mut page = Page::zeroed();
    let init = NodeInit { level: 1, flags: ROOT, generation: 1, left: 0, right: Link::NONE };
    Op::Init(init).apply(&mut page).unwrap();
    let mut list = ItemList::default();
    for (key, row, child) in [("", 0, 2), ("g", 0, 3), ("g", 77, 4), ("p", 0, 5)] {
        list.push(&Item { key: key.as_bytes(), row, child: Link::new(child, 1) });
    }
    Op::Load(list.bytes()).apply(&mut page).unwrap();
    let node = Node::new(&page).unwrap();
    let child = |p| node.item(node.child_for(p).unwrap()).unwrap().child.block;
    assert_eq!(child(Pos::before(b"a")), 2);
    assert_eq!(child(Pos::before(b"")), 2);
    assert_eq!(child(Pos::before(b"g")), 3);
    assert_eq!(child(Pos { key: b"g", row: 77 }), 4);
    assert_eq!(child(Pos::after(b"g")), 4);
    assert_eq!(child(Pos::before(b"zz")), 5);
    let before = |p| node.item(node.child_before(p).unwrap()).unwrap().child.block;
    assert_eq!(before(Pos::before(b"g")), 2);
    assert_eq!(before(Pos { key: b"g", row: 77 }), 3);
    assert_eq!(before(Pos::before(b"")), 2);
    assert_eq!(before(Pos::after(b"zz")), 5);
}

#[test]
fn separators_are_short_and_lie_between() {
    let sep = |l: &str, lr, r: &'static str, rr| {
        let s = separator(Pos { key: l.as_bytes(), row: lr }, Pos { key: r.as_bytes(), row: rr });
        (std::str::from_utf8(s.key).unwrap(), s.row)
    };
    assert_eq!(sep("apple", 1, "banana", 1), ("b", 0));
    assert_eq!(sep("app", 1, "apple", 1), ("appl", 0));
    assert_eq!(sep("same", 1, "same", 2), ("same", 2));
    assert_eq!(sep("", 5, "x", 1), ("x", 0));
}

#[test]
fn ascending_keys_leave_full_pages_and_random_ones_halves() {
    let mut page = leaf();
    let mut n = 0u64;
    while insert_sorted(&mut page, &n.to_be_bytes(), n + 1) {
        n += 1;
    }
    let node = Node::new(&page).unwrap();
    let key = n.to_be_bytes();
    let over = Overflow { node, at: node.len(), new: entry(&key, n + 1) };
    let cut = over.choose(90).unwrap();
    let share = cut.left_count as f64 / over.len() as f64;
    assert!((0.84..0.95).contains(&share), "{share}");
    assert!(!cut.new_goes_left);
    let key = [0, 0, 0, 0, 0, 0, 0, 40, 1];
    let over = Overflow { node, at: 41, new: entry(&key, 1) };
    let share = over.choose(90).unwrap().left_count as f64 / over.len() as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn skip_follows_the_keys() {
    let mut page = leaf();
    for i in 0..200u64 {
        insert_sorted(&mut page, &i.to_be_bytes(), 1);
    }
    assert_eq!(Node::new(&page).unwrap().skip(), 7);
    insert_sorted(&mut page, &(1u64 << 32).to_be_bytes(), 1);
    assert_eq!(Node::new(&page).unwrap().skip(), 3);
    insert_sorted(&mut page, b"", 1);
    assert_eq!(Node::new(&page).unwrap().skip(), 0);
    edit::truncate(&mut page, 100, Link::new(9, 1), Pos::before(&100u64.to_be_bytes())).unwrap();
    assert_eq!(Node::new(&page).unwrap().skip(), 0, "the empty key is still there");
    edit::remove(&mut page, &[0]).unwrap();
    edit::truncate(&mut page, 50, Link::new(8, 1), Pos::before(&50u64.to_be_bytes())).unwrap();
    assert_eq!(Node::new(&page).unwrap().skip(), 7);
}

#[test]
fn a_free_page_keeps_its_generation() {
    let mut page = leaf();
    insert_sorted(&mut page, b"k", 1);
    Op::Delete { next: 17 }.apply(&mut page).unwrap();
    let node = Node::new(&page).unwrap();
    assert_eq!((node.generation(), node.left(), node.len()), (1, 17, 0));
    assert!(node.has(DELETED));
    let mut zero = Page::zeroed();
    Op::Delete { next: 0 }.apply(&mut zero).unwrap();
    assert!(Node::new(&zero).unwrap().has(DELETED));
}

#[test]
fn rows_order_as_their_numbers() {
    let rows = [
        RowId::new(0, SlotNo::new(1)),
        RowId::new(0, SlotNo::new(9)),
        RowId::new(7, SlotNo::new(1)),
    ];
    assert!(rows.windows(2).all(|w| row_number(w[0]) < row_number(w[1])));
    assert!(rows.iter().all(|r| row_id(row_number(*r)) == *r));
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..8),
        3 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(Just(7u8), 0..=2700),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, u64),
    Remove(prop::sample::Index),
    Compact,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any_key(), 1u64..4).prop_map(|(k, r)| Step::Insert(k, r)),
        3 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::Compact),
    ]
}

proptest! {
    #![proptest_config(super::testing::cases(200))]

    #[test]
    fn a_page_is_a_sorted_set(
        steps in prop::collection::vec(any_step(), 1..200),
        probe in any_key(),
    ) {
        let mut page = leaf();
        let mut redone = leaf();
        let mut log = Vec::new();
        let mut model: Vec<(Vec<u8>, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(key, row) => {
                    let node = Node::new(&page).unwrap();
                    let at = model.partition_point(|m| *m < (key.clone(), row));
                    prop_assert_eq!(node.lower_bound(Pos { key: &key, row }), Ok(at));
                    let known = model.get(at) == Some(&(key.clone(), row));
                    if known || entry(&key, row).size() > node.room() {
                        continue;
                    }
                    let op = Op::insert(at, entry(&key, row));
                    op.apply(&mut page).unwrap();
                    op.encode(&mut log);
                    model.insert(at, (key, row));
                }
                Step::Remove(which) if !model.is_empty() => {
                    let at = which.index(model.len());
                    let indexes = ops::encode_indexes(&[at]);
                    Op::Remove(&indexes).apply(&mut page).unwrap();
                    Op::Remove(&indexes).encode(&mut log);
                    model.remove(at);
                }
                Step::Remove(_) => {}
                Step::Compact => {
                    let bytes = page.clone();
                    edit::compact(&mut page).unwrap();
                    prop_assert_eq!(contents(&bytes), contents(&page));
                    page = bytes;
                }
            }
            prop_assert_eq!(&contents(&page), &model);
        }
        ops::redo(&log, &mut redone).unwrap();
        prop_assert_eq!(&redone.bytes()[..], &page.bytes()[..]);
        let node = Node::new(&page).unwrap();
        let below = model.partition_point(|m| m.0 < probe);
        let upto = model.partition_point(|m| m.0 <= probe);
        prop_assert_eq!(node.lower_bound(Pos::before(&probe)), Ok(below));
        prop_assert_eq!(node.lower_bound(Pos::after(&probe)), Ok(upto));
    }

    #[test]
    fn every_overflow_can_be_cut(
        keys in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..10),
                (2600usize..=2700, any::<u8>()).prop_map(|(n, b)| vec![b; n]),
            ],
            1..400,
        ),
        high in prop_oneof![Just(None), (2600usize..=2700).prop_map(Some)],
        fillfactor in 50u8..=100,
    ) {
        let mut page = leaf();
        if let Some(len) = high {
            edit::set_high(&mut page, Pos::before(&vec![255; len])).unwrap();
        }
        for (row, key) in keys.iter().enumerate() {
            let row = row as u64 + 1;
            if insert_sorted(&mut page, key, row) {
                continue;
            }
            let node = Node::new(&page).unwrap();
            let at = node.lower_bound(Pos { key, row }).unwrap();
            let over = Overflow { node, at, new: entry(key, row) };
            let cut = over.choose(fillfactor).unwrap();
            let sep = over.separator(cut.left_count).unwrap();
            let left = over.item(cut.left_count - 1).unwrap().pos();
            let right = over.item(cut.left_count).unwrap().pos();
            prop_assert!(left < sep && sep <= right);
            let item_size = |i| over.item(i).unwrap().size();
            let size = |r: std::ops::Range<usize>| r.map(item_size).sum::<usize>();
            prop_assert!(size(0..cut.left_count) + sep.key.len() <= USABLE);
            prop_assert!(size(cut.left_count..over.len()) + high.unwrap_or(0) <= USABLE);
            return Ok(());
        }
    }

    #[test]
    fn random_bytes_never_panic(
        seed in prop::collection::vec(any::<u8>(), 256),
        bounds in any::<[u16; 2]>(),
        flips in prop::collection::vec((0..PAGE_SIZE, any::<u8>()), 0..40),
        key in any_key(),
        at in any::<u16>(),
        whole in any::<bool>(),
    ) {
        let mut page = leaf();
        for i in 0..40u64 {
            insert_sorted(&mut page, &i.to_be_bytes(), i + 1);
        }
        if whole {
            for (i, byte) in page.bytes_mut().iter_mut().enumerate().skip(40) {
                *byte = seed[i % 256].wrapping_add((i / 256) as u8);
            }
            page.set_lower(40 + bounds[0] % 1000 / 8 * 8);
            page.set_upper(1100 + bounds[1] % 7000);
        }
        for (at, byte) in flips {
            page.bytes_mut()[at] = byte;
        }
        let _ = dump(&page);
        if let Ok(node) = Node::new(&page) {
            let _ = node.lower_bound(Pos::before(&key));
            let _ = node.upper_bound(Pos::after(&key));
            let _ = node.high();
            let _ = Overflow { node, at: 1, new: entry(&key, 1) }.choose(90);
        }
        let link = Link::new(5, 5);
        let indexes = ops::encode_indexes(&[0, usize::from(at)]);
        let changes = [
            Op::Insert { at, row: 4, key: &key },
            Op::Insert { at: at % 50, row: 4, key: &key },
            Op::InsertPivot { at: at % 50, row: 0, child: link, key: &key },
            Op::Remove(&indexes),
            Op::Truncate { from: at % 50, right: link, row: 0, key: &key },
            Op::High { row: 0, key: &key },
            Op::Child { at: at % 50, child: link },
            Op::ClearFlags(at),
            Op::Load(&seed),
            Op::Delete { next: 3 },
        ];
        for op in changes {
            let mut copy = page.clone();
            let _ = op.apply(&mut copy);
            let _ = edit::compact(&mut copy);
        }
        let _ = ops::redo(&seed, &mut page);
        let _ = Meta::read(&page);
    }
}
