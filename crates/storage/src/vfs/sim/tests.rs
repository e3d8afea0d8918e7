//! Each legal fault happens for some seed, and nothing else ever does.

use super::*;

const SEEDS: u64 = 400;

fn file(disk: &SimDisk, path: &str) -> Arc<dyn VfsFile> {
    disk.open(path, OpenMode::OpenOrCreate).expect("open")
}

/// A disk with a durable file "f" of `sectors` sectors full of `fill`.
fn disk_with(sectors: usize, fill: u8) -> (SimDisk, Arc<dyn VfsFile>) {
    let disk = SimDisk::new(1);
    let f = file(&disk, "f");
    f.write_at(&vec![fill; sectors * SECTOR as usize], 0).expect("write");
    f.sync().expect("sync");
    disk.sync_dir("").expect("sync directory");
    (disk, f)
}

/// The first byte of each sector of "f", over many crashes.
fn outcomes(disk: &SimDisk) -> BTreeSet<Option<Vec<u8>>> {
    let firsts = |bytes: Vec<u8>| bytes.chunks(SECTOR as usize).map(|s| s[0]).collect();
    (0..SEEDS).map(|seed| disk.crash(seed).contents("f").map(firsts)).collect()
}

fn some(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.to_vec())
}

#[test]
fn synced_bytes_and_names_never_vanish() {
    let (disk, f) = disk_with(3, b'a');
    f.write_at(&[b'b'; 512], 512).expect("write");
    file(&disk, "other").write_at(b"x", 0).expect("write");
    for outcome in outcomes(&disk) {
        let bytes = outcome.expect("the name is durable");
        assert_eq!((bytes[0], bytes[2]), (b'a', b'a'));
    }
    f.sync().expect("sync");
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"aba")]));
}

#[test]
fn an_unsynced_write_is_kept_dropped_or_torn() {
    let (disk, f) = disk_with(2, b'a');
    f.write_at(&[b'b'; 1024], 0).expect("write");
    let all = [some(b"aa"), some(b"ab"), some(b"ba"), some(b"bb")];
    assert_eq!(outcomes(&disk), BTreeSet::from(all));
}

#[test]
fn writes_are_reordered_but_a_sector_never_goes_back() {
    let (disk, f) = disk_with(2, b'a');
    f.write_at(&[b'b'; 512], 0).expect("write");
    f.write_at(&[b'c'; 512], 512).expect("write");
    assert!(outcomes(&disk).contains(&some(b"ac")), "the later without the earlier");
    // Both halves of one sector, written one after the other.
    let (disk, f) = disk_with(1, b'a');
    f.write_at(&[b'b'; 256], 0).expect("write");
    f.write_at(&[b'c'; 256], 256).expect("write");
    for seed in 0..SEEDS {
        let bytes = disk.crash(seed).contents("f").expect("durable name");
        assert!(matches!((bytes[0], bytes[256]), (b'a', b'a') | (b'b', b'a') | (b'b', b'c')));
    }
}

#[test]
fn length_and_bytes_arrive_independently() {
    let (disk, f) = disk_with(1, b'a');
    f.write_at(&[b'b'; 512], 512).expect("write");
    let all = [some(b"a"), some(b"a\0"), some(b"ab")];
    assert_eq!(outcomes(&disk), BTreeSet::from(all));
}

#[test]
fn a_truncation_may_or_may_not_happen() {
    let (disk, f) = disk_with(3, b'a');
    f.set_len(512).expect("truncate");
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"aaa"), some(b"a")]));
    f.allocate(0, 1024).expect("allocate");
    assert_eq!(f.len().expect("len"), 1024);
    let grown = outcomes(&disk);
    assert!(grown.contains(&some(b"a\0")));
    assert!(grown.is_subset(&BTreeSet::from([some(b"aaa"), some(b"a"), some(b"a\0")])));
    f.sync().expect("sync");
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"a\0")]));
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let disk = SimDisk::new(1);
    let f = file(&disk, "f");
    f.write_at(&[b'a'; 512], 0).expect("write");
    f.sync().expect("sync");
    assert_eq!(outcomes(&disk), BTreeSet::from([None, some(b"a")]));
    disk.sync_dir("").expect("sync directory");
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"a")]));
    disk.remove("f").expect("remove");
    assert_eq!(outcomes(&disk), BTreeSet::from([None, some(b"a")]));
    disk.sync_dir("").expect("sync directory");
    assert_eq!(outcomes(&disk), BTreeSet::from([None]));
    let mut byte = [0];
    f.read_exact_at(&mut byte, 0).expect("an open handle outlives the name");
}

#[test]
fn a_rename_is_atomic_but_not_durable() {
    let (disk, _) = disk_with(1, b'a');
    let g = file(&disk, "g");
    g.write_at(&[b'g'; 512], 0).expect("write");
    g.sync().expect("sync");
    disk.sync_dir("").expect("sync directory");
    disk.rename("g", "f").expect("rename");
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let after = disk.crash(seed);
        let first = |path| after.contents(path).map(|bytes| bytes[0]);
        seen.insert((first("f"), first("g")));
    }
    assert_eq!(seen, BTreeSet::from([(Some(b'g'), None), (Some(b'a'), Some(b'g'))]));
    disk.rename("f", "h").expect("rename");
    for seed in 0..SEEDS {
        let after = disk.crash(seed);
        let named = ["f", "g", "h"].map(|p| after.contents(p).is_some_and(|b| b[0] == b'g'));
        assert_eq!(named.iter().filter(|n| **n).count(), 1, "one file, one name: {named:?}");
    }
}

#[test]
fn a_lost_directory_takes_its_files_along() {
    let disk = SimDisk::new(1);
    disk.create_dir_all("a/b").expect("directories");
    file(&disk, "a/b/f").sync().expect("sync");
    disk.sync_dir("a/b").expect("sync");
    let alive = |disk: &SimDisk| -> BTreeSet<bool> {
        (0..SEEDS).map(|seed| disk.crash(seed).exists("a/b/f")).collect()
    };
    assert_eq!(alive(&disk), BTreeSet::from([false, true]));
    disk.sync_dir("a").expect("sync");
    disk.sync_dir("").expect("sync");
    assert_eq!(alive(&disk), BTreeSet::from([true]));
    assert_eq!(disk.list("").expect("list"), ["a"]);
    assert_eq!(disk.list("a").expect("list"), ["b"]);
    assert!(disk.open("nowhere/f", OpenMode::Create).is_err());
}

#[test]
fn the_nth_call_fails() {
    let (disk, f) = disk_with(1, b'a');
    disk.inject(Fault::eio(Op::Read).nth(2));
    let mut byte = [0];
    f.read_at(&mut byte, 0).expect("first");
    assert_eq!(f.read_at(&mut byte, 0).expect_err("second").raw_os_error(), Some(libc::EIO));
    f.read_at(&mut byte, 0).expect("third");
    disk.inject(Fault::enospc(Op::Allocate).on("f").forever());
    for _ in 0..3 {
        let error = f.allocate(0, 4096).expect_err("full");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
    assert_eq!(f.len().expect("len"), 512);
    disk.clear_faults();
    f.allocate(0, 4096).expect("space again");
    disk.inject(Fault::eio(Op::Open).on("g"));
    file(&disk, "h");
    assert!(disk.open("g", OpenMode::Create).is_err());
    assert!(!disk.exists("g"));
    assert_eq!(disk.calls(Op::Read), 3);
}

#[test]
fn a_failed_write_leaves_leading_sectors() {
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let disk = SimDisk::new(seed);
        let f = file(&disk, "f");
        f.write_at(&[b'a'; 1536], 0).expect("write");
        disk.inject(Fault::eio(Op::Write));
        f.write_at(&[b'b'; 1536], 0).expect_err("fails");
        let bytes = disk.contents("f").expect("exists");
        seen.insert([bytes[0], bytes[512], bytes[1024]]);
    }
    assert_eq!(seen, BTreeSet::from([*b"aaa", *b"baa", *b"bba", *b"bbb"]));
}

#[test]
fn a_failed_sync_is_not_healed_by_a_later_one() {
    let (disk, f) = disk_with(2, b'a');
    f.write_at(&[b'b'; 512], 0).expect("write");
    disk.inject(Fault::eio(Op::Sync));
    f.sync().expect_err("fails");
    f.write_at(&[b'c'; 512], 512).expect("write");
    f.sync().expect("a success that says nothing about the first write");
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"ac"), some(b"bc")]));
    f.write_at(&[b'd'; 512], 0).expect("write anew");
    f.sync().expect("sync");
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"dc")]));
}

#[test]
fn a_failed_sync_leaves_the_length_in_doubt() {
    let (disk, f) = disk_with(1, b'a');
    f.write_at(&[b'b'; 512], 512).expect("write");
    disk.inject(Fault::eio(Op::Sync));
    f.sync().expect_err("fails");
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"a"), some(b"a\0"), some(b"ab")]));
}

#[test]
fn a_full_disk_refuses_growth_only() {
    let (disk, f) = disk_with(2, b'a');
    disk.set_capacity(Some(1024));
    f.write_at(&[b'b'; 1024], 0).expect("overwriting needs no space");
    assert!(f.write_at(&[b'c'; 512], 768).is_err());
    assert_eq!(f.len().expect("len"), 1024);
    assert!(f.allocate(0, 1025).is_err());
    assert_eq!(disk.used(), 1024);
    file(&disk, "g");
    disk.remove("f").expect("remove");
    file(&disk, "g").write_at(&[1; 1024], 0).expect("space returned");
}

#[test]
fn without_power_nothing_changes() {
    let (disk, f) = disk_with(1, b'a');
    disk.power_off_after(1);
    f.write_at(&[b'b'; 512], 0).expect("the last change");
    assert!(disk.is_off());
    assert!(f.sync().is_err() && f.write_at(b"c", 0).is_err() && f.read_at(&mut [0], 0).is_err());
    assert!(disk.open("f", OpenMode::Open).is_err());
    assert_eq!(outcomes(&disk), BTreeSet::from([some(b"a"), some(b"b")]));
    assert!(!disk.crash(3).is_off());
}

#[test]
fn a_seed_decides_the_crash() {
    let (disk, f) = disk_with(8, b'a');
    for i in 0..8 {
        f.write_at(&[b'b' + i; 512], u64::from(i) * 512).expect("write");
    }
    for seed in 0..50 {
        assert_eq!(disk.crash(seed).contents("f"), disk.crash(seed).contents("f"));
    }
    assert!(outcomes(&disk).len() > 20, "many different crashes");
}

#[test]
fn the_simulated_clock_stands_still_until_moved() {
    use crate::vfs::Clock;
    let clock = SimClock::new();
    let before = clock.now_unix_micros();
    clock.advance(5);
    assert_eq!((clock.monotonic_micros(), clock.now_unix_micros() - before), (5, 5));
}
