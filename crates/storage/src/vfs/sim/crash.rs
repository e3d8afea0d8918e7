//! What a power failure leaves: the choice among the legal faults 1 to 5.
//!
//! Every file and the list of name changes get a *style* first, because independent coin tosses
//! alone would almost never produce the extremes, where the bugs are: everything lost, everything
//! kept, a clean cut in time, whole writes out of order, single sectors out of order.

use super::file::{Change, Content, Inode, sector_range, sectors};
use super::{NameOp, Names, State};
use crate::vfs::parent;
use crate::vfs::random::{Random, SeededRandom};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How the unsynced changes of one file fare.
#[derive(Clone, Copy)]
enum Style {
    NothingKept,
    AllKept,
    /// Whole up to a moment; the change under way is torn; nothing later.
    CutAt(usize),
    /// Each change for itself: kept, dropped or torn.
    EachWrite,
    /// Each sector for itself.
    EachSector,
}

impl Style {
    fn choose(changes: usize, random: &SeededRandom) -> Self {
        match random.below(5) {
            0 => Style::NothingKept,
            1 => Style::AllKept,
            2 => Style::CutAt(random.below(changes as u64 + 1) as usize),
            3 => Style::EachWrite,
            _ => Style::EachSector,
        }
    }
}

/// The durable part of `state` and a random part of the rest.
pub(super) fn survivors(state: &State, seed: u64) -> State {
    let random = SeededRandom::new(seed);
    let (names, mut dirs) = surviving_names(state, &random);
    drop_orphaned_dirs(&mut dirs);
    let mut files = Names::new();
    for (path, inode) in names {
        // The image is drawn even for an unreachable file, so that a seed means the same choices.
        let image = surviving_bytes(&inode.0.lock(), &random);
        if dirs.contains(parent(&path)) {
            files.insert(path, Arc::new(Inode::settled(image)));
        }
    }
    State::new(files, dirs, state.capacity)
}

fn surviving_names(state: &State, random: &SeededRandom) -> (Names, BTreeSet<String>) {
    let (mut names, mut dirs) = (state.durable_names.clone(), state.durable_dirs.clone());
    let style = Style::choose(state.pending.len(), random);
    for (i, op) in state.pending.iter().enumerate() {
        let kept = match style {
            Style::NothingKept => false,
            Style::AllKept => true,
            Style::CutAt(cut) => i < cut,
            Style::EachWrite | Style::EachSector => random.one_in(2),
        };
        if kept {
            NameOp::clone(op).apply(&mut names, &mut dirs);
        }
    }
    (names, dirs)
}

/// Removes directories whose own parent did not survive.
fn drop_orphaned_dirs(dirs: &mut BTreeSet<String>) {
    let all = std::mem::take(dirs);
    // Parents sort before their children.
    for dir in all {
        if dir.is_empty() || dirs.contains(parent(&dir)) {
            dirs.insert(dir);
        }
    }
}

fn surviving_bytes(content: &Content, random: &SeededRandom) -> Vec<u8> {
    let mut out = content.durable.clone();
    if let Some(len) = content.doubtful_len
        && random.one_in(2)
    {
        out.resize(len, 0);
    }
    for (sector, image) in &content.doubtful {
        if random.one_in(2) {
            let range = sector_range(*sector, out.len());
            let n = range.len().min(image.len());
            out[range][..n].copy_from_slice(&image[..n]);
        }
    }
    if content.pending.is_empty() {
        return out;
    }
    let style = Style::choose(content.pending.len(), random);
    let versions = sector_versions(content, style, random);
    apply_versions(content, &versions, size_version(content, style, random), out)
}

/// For each sector the last change that reached it (fault 2: a later version of a sector brings
/// the earlier ones with it).
fn sector_versions(content: &Content, style: Style, random: &SeededRandom) -> BTreeMap<u64, usize> {
    let mut versions = BTreeMap::new();
    for (i, op) in content.pending.iter().enumerate() {
        let Change::Write { offset, bytes } = &op.change else { continue };
        // 0: dropped, 1: kept, 2: torn.
        let fate = match style {
            Style::NothingKept => 0,
            Style::AllKept => 1,
            Style::CutAt(cut) => match i.cmp(&cut) {
                std::cmp::Ordering::Less => 1,
                std::cmp::Ordering::Equal => 2,
                std::cmp::Ordering::Greater => 0,
            },
            Style::EachWrite => random.below(3),
            Style::EachSector => 2,
        };
        for sector in sectors(*offset, bytes.len()) {
            if fate == 1 || fate == 2 && random.one_in(2) {
                versions.insert(sector, i);
            }
        }
    }
    versions
}

/// How many of the changes the surviving length knows about (fault 3).
fn size_version(content: &Content, style: Style, random: &SeededRandom) -> usize {
    let all = content.pending.len();
    match style {
        Style::NothingKept => 0,
        Style::AllKept => all,
        Style::CutAt(cut) => (cut + random.below(2) as usize).min(all),
        Style::EachWrite | Style::EachSector => random.below(all as u64 + 1) as usize,
    }
}

fn apply_versions(
    content: &Content,
    versions: &BTreeMap<u64, usize>,
    size_version: usize,
    mut out: Vec<u8>,
) -> Vec<u8> {
    let mut final_len = out.len();
    for (i, op) in content.pending.iter().enumerate() {
        let counted = i < size_version;
        if counted {
            final_len = op.len_after;
        }
        match &op.change {
            Change::SetLen if counted => out.resize(op.len_after, 0),
            Change::SetLen => {}
            Change::Write { offset, bytes } => {
                let end = offset + bytes.len();
                for sector in sectors(*offset, bytes.len()) {
                    if versions.get(&sector).is_none_or(|version| *version < i) {
                        continue;
                    }
                    let range = sector_range(sector, end);
                    let range = range.start.max(*offset)..range.end;
                    if out.len() < range.end {
                        out.resize(range.end, 0);
                    }
                    out[range.clone()]
                        .copy_from_slice(&bytes[range.start - offset..range.end - offset]);
                }
            }
        }
    }
    out.resize(final_len, 0);
    out
}
