//! The record format: a golden dump, round trips, damage.

use super::super::record::RECORD_HEADER_SIZE;
use super::*;
use crate::ids::{Fork, PageId, RelId};
use crate::page::{PAGE_SIZE, Page, PageClass};
use proptest::prelude::*;

fn hex_dump(bytes: &[u8]) -> String {
    let line = |(i, row): (usize, &[u8])| {
        let hex: Vec<String> = row.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:04x}  {}\n", i * 16, hex.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

fn sample() -> RecordBuilder {
    let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::new(0x0102_0304_0506));
    let heap = PageId::main(RelId::new(16385), 7);
    record.block(heap, PageClass::Heap, false, BlockBody::Ops(&[0xAA, 0xBB, 0xCC]));
    let map = PageId::new(RelId::new(16385), Fork::Vm, 0);
    record.block(map, PageClass::Vm, true, BlockBody::Ops(&[0xDD]));
    record.data(b"data");
    record.set_flags(0x80);
    record
}

/// A change of this dump is a change of the format on disk.
#[test]
fn golden_record() {
    let expected = "\
0000  3c 00 00 00 7c 85 b7 7e 06 05 04 03 02 01 00 00
0010  01 80 02 00 01 40 00 00 07 00 00 00 00 01 00 00
0020  03 00 00 00 aa bb cc 01 40 00 00 00 00 00 00 02
0030  04 02 00 01 00 00 00 dd 64 61 74 61 00 00 00 00
";
    assert_eq!(hex_dump(&sample().encode_at(FIRST_LSN)), expected);
}

fn sample_page() -> Page {
    let mut page = Page::zeroed();
    page.init(PageClass::Heap, 16);
    page.set_lower(48);
    page.set_upper(8160);
    page.bytes_mut()[8160..].fill(0x5A);
    page
}

/// An image keeps header, line pointers and data; the hole in between costs nothing.
#[test]
fn golden_image() {
    let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::INVALID);
    let page = sample_page();
    record.block(PageId::main(RelId::new(2), 3), PageClass::Heap, false, BlockBody::Image(&page));
    assert_eq!((record.image_count(), record.image_bytes()), (1, 4 + 48 + 32));
    let bytes = record.encode_at(FIRST_LSN);
    let expected = "\
0000  02 00 00 00 03 00 00 00 00 01 01 00 54 00 00 00
0010  30 00 b0 1f 00 00 00 00 00 00 00 00 00 00 00 00
0020  00 00 01 01 30 00 e0 1f f0 1f 00 00 00 00 00 00
0030  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
0040  00 00 00 00 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a
0050  5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a 5a
0060  5a 5a 5a 5a
";
    assert_eq!(hex_dump(&bytes[RECORD_HEADER_SIZE..]), expected);
    let back = DecodedRecord::decode(&bytes, FIRST_LSN).expect("decodes");
    let DecodedBody::Image(image) = &back.blocks[0].body else { panic!("an image") };
    assert_eq!(image.bytes(), page.bytes());
}

#[test]
fn compression_only_where_it_helps() {
    let id = PageId::main(RelId::new(2), 3);
    let mut noisy = Page::zeroed();
    noisy.init(PageClass::BTree, 0);
    noisy.set_lower(noisy.upper());
    let random = crate::vfs::SeededRandom::new(3);
    let from = crate::page::HEADER_SIZE;
    noisy.bytes_mut()[from..].fill_with(|| crate::vfs::Random::next_u64(&random).to_le_bytes()[0]);
    let mut plain = noisy.clone();
    plain.bytes_mut()[from..].fill(b'x');
    for (page, compressible) in [(&noisy, false), (&plain, true)] {
        let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::INVALID);
        record.set_compression(WalCompression::Lz4);
        record.block(id, PageClass::BTree, false, BlockBody::Image(page));
        assert_eq!(record.image_bytes() < 1000, compressible);
        let bytes = record.encode_at(FIRST_LSN);
        let back = DecodedRecord::decode(&bytes[..record.encoded_len()], FIRST_LSN);
        let back = back.expect("decodes");
        let DecodedBody::Image(image) = &back.blocks[0].body else { panic!("an image") };
        assert_eq!(image.bytes(), page.bytes());
    }
}

#[test]
fn a_builder_can_be_used_again() {
    let mut record = sample();
    record.reset(RecordKind::Noop, Xid::new(5));
    record.data(b"x");
    assert_eq!(record.encode_at(FIRST_LSN), noop(5, b"x").encode_at(FIRST_LSN));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let record = sample();
    let good = &record.encode_at(FIRST_LSN)[..record.encoded_len()];
    DecodedRecord::decode(good, FIRST_LSN).expect("undamaged");
    for bit in 0..good.len() * 8 {
        let mut bad = good.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = DecodedRecord::decode(&bad, FIRST_LSN).expect_err("damaged");
        assert!(matches!(error, RecordError::Length | RecordError::Checksum), "bit {bit}: {error}");
    }
}

#[test]
fn a_record_is_valid_at_its_own_position_only() {
    let record = sample();
    let bytes = &record.encode_at(FIRST_LSN)[..record.encoded_len()];
    for other in [Lsn::new(8), FIRST_LSN.advance(8), FIRST_LSN.advance(16 << 20)] {
        let error = DecodedRecord::decode(bytes, other).expect_err("another position");
        assert_eq!(error, RecordError::Checksum);
    }
}

#[test]
fn nonsense_with_a_right_checksum_is_malformed() {
    // What the sum protects is changed first, then summed: as a foreign program might write it.
    for (at, value) in [(16, 0), (16, 99), (18, 3), (19, 1), (28, 9), (29, 77), (30, 8), (32, 250)]
    {
        let record = sample();
        let mut bytes = record.encode_at(FIRST_LSN)[..record.encoded_len()].to_vec();
        bytes[at] = value;
        let body = crc32c::crc32c(&bytes[RECORD_HEADER_SIZE..]);
        let mut head = bytes[..4].to_vec();
        head.extend_from_slice(&bytes[8..RECORD_HEADER_SIZE]);
        head.extend_from_slice(&FIRST_LSN.raw().to_le_bytes());
        let crc = crc32c::crc32c_append(body, &head);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        let error = DecodedRecord::decode(&bytes, FIRST_LSN).expect_err("nonsense");
        assert!(matches!(error, RecordError::Malformed(_)), "byte {at} = {value}: {error}");
    }
}

#[test]
fn described_in_one_line() {
    struct Words;
    impl Describe for Words {
        fn ops(&self, class: PageClass, ops: &[u8]) -> Option<String> {
            (class == PageClass::Heap).then(|| format!("INSERT {ops:02x?}"))
        }
        fn data(&self, record: &DecodedRecord) -> Option<String> {
            String::from_utf8(record.data.clone()).ok()
        }
    }
    let mut record = sample();
    let page = sample_page();
    record.block(PageId::main(RelId::new(9), 1), PageClass::Heap, false, BlockBody::Image(&page));
    let bytes = record.encode_at(FIRST_LSN);
    let back = DecodedRecord::decode(&bytes[..record.encoded_len()], FIRST_LSN).expect("decodes");
    assert_eq!(
        describe(&back),
        "rmgr: Heap        len (rec/tot):     76/   160, tx: 1108152157446, lsn: 0/01000000, \
         desc: PAGE_CHANGE flags 0x80 data 4, blkref #0: rel 16385 blk 7 ops 3, \
         blkref #1: rel 16385 fork vm blk 0 init ops 1, blkref #2: rel 9 blk 1 FPW 84 (saved 8108)"
    );
    let line = describe_with(&back, &Words);
    assert!(line.contains("flags 0x80 data, blkref #0: rel 16385 blk 7 INSERT [aa, bb, cc]"));
    assert!(line.contains("fork vm blk 0 init ops 1"));
}

#[derive(Clone, Debug)]
enum Body {
    Ops(Vec<u8>),
    Image { lower: u16, upper: u16, fill: u8, compress: bool },
}

fn bodies() -> impl Strategy<Value = Body> {
    let ops = proptest::collection::vec(any::<u8>(), 0..200).prop_map(Body::Ops);
    let image = (40u16..=8176, 40u16..=8176, any::<u8>(), any::<bool>()).prop_map(
        |(a, b, fill, compress)| Body::Image { lower: a.min(b), upper: a.max(b), fill, compress },
    );
    prop_oneof![3 => ops, 1 => image]
}

fn build_page(lower: u16, upper: u16, fill: u8) -> Page {
    let mut page = Page::zeroed();
    page.init(PageClass::Heap, 16);
    page.set_lower(lower);
    page.set_upper(upper);
    for at in (40..usize::from(lower)).chain(usize::from(upper)..PAGE_SIZE) {
        page.bytes_mut()[at] = fill.wrapping_mul(at as u8);
    }
    page
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_built_comes_back(
        blocks in proptest::collection::vec(
            (any::<u32>(), 0u8..4, any::<u32>(), any::<bool>(), bodies()),
            0..6,
        ),
        data in proptest::collection::vec(any::<u8>(), 0..300),
        (xid, flags, at) in (any::<u64>(), any::<u8>(), 1u64..1 << 40),
    ) {
        let mut record = RecordBuilder::new(RecordKind::PageChange, Xid::new(xid));
        record.set_flags(flags);
        let mut pages = Vec::new();
        for (rel, fork, block, init, body) in &blocks {
            let fork = Fork::from_raw(*fork).expect("four forks");
            let id = PageId::new(RelId::new(*rel), fork, *block);
            match body {
                Body::Ops(ops) => record.block(id, PageClass::BTree, *init, BlockBody::Ops(ops)),
                Body::Image { lower, upper, fill, compress } => {
                    let packing = if *compress { WalCompression::Lz4 } else { WalCompression::Off };
                    record.set_compression(packing);
                    let page = build_page(*lower, *upper, *fill);
                    record.block(id, PageClass::Heap, *init, BlockBody::Image(&page));
                    pages.push(page);
                }
            }
        }
        record.data(&data);
        let start = Lsn::new(at * 8);
        let bytes = record.encode_at(start);
        prop_assert_eq!(bytes.len() % 8, 0);
        let back = DecodedRecord::decode(&bytes[..record.encoded_len()], start).expect("decodes");
        prop_assert_eq!(back.end.raw(), start.raw() + bytes.len() as u64);
        prop_assert_eq!((back.xid.raw(), back.flags), (xid, flags));
        prop_assert_eq!(back.blocks.len(), blocks.len());
        prop_assert_eq!(&back.data, &data);
        let mut pages = pages.iter();
        for ((rel, fork, block, init, body), read) in blocks.iter().zip(&back.blocks) {
            prop_assert_eq!((read.id.rel.raw(), read.id.fork as u8), (*rel, *fork));
            prop_assert_eq!((read.id.block, read.init), (*block, *init));
            match (body, &read.body) {
                (Body::Ops(ops), DecodedBody::Ops(found)) => prop_assert_eq!(ops, found),
                (Body::Image { .. }, DecodedBody::Image(image)) => {
                    let page = pages.next().expect("one page an image");
                    prop_assert!(image.bytes() == page.bytes());
                }
                _ => prop_assert!(false, "ops and images are told apart"),
            }
        }
    }

    /// Decoding never panics, whatever the bytes.
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = DecodedRecord::decode(&bytes, FIRST_LSN);
    }
}
