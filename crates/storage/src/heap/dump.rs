//! Readable dumps of heap pages, for golden tests and `inkling inspect`.
//!
//! ```text
//! heap page lsn 0/0 base 0 flags - prune x0 lower 52 upper 8128 free 8076
//!   1 normal 8160+32 xmin x5 xmax x0 cid 0 natts 2 hoff 24 [] data 0100000061626364
//!   2 redirect -> 3
//! ```

use super::page::{self, Line, LineState};
use super::tuple::TupleRef;
use crate::ids::SlotNo;
use crate::page::Page;
use std::fmt::Write;

const MASK_NAMES: [(u16, &str); 13] = [
    (page::HAS_NULLS, "nulls"),
    (page::HAS_EXTERNAL, "external"),
    (page::XMIN_COMMITTED, "xmin-committed"),
    (page::XMIN_ABORTED, "xmin-aborted"),
    (page::XMAX_COMMITTED, "xmax-committed"),
    (page::XMAX_ABORTED, "xmax-aborted"),
    (page::XMAX_LOCK_ONLY, "lock-only"),
    (page::HOT_UPDATED, "hot-updated"),
    (page::HEAP_ONLY, "heap-only"),
    (page::UPDATED, "updated"),
    (page::COMBO_CID, "combo"),
    (page::MOVED, "moved"),
    (0, ""),
];

/// The flags of a tuple's mask by name, joined by spaces.
pub fn mask_names(mask: u16) -> String {
    let names: Vec<&str> =
        MASK_NAMES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name).collect();
    names.join(" ")
}

/// Bytes in hex; long ones are cut in the middle.
pub fn hex(bytes: &[u8]) -> String {
    let digits = |part: &[u8]| part.iter().map(|b| format!("{b:02x}")).collect::<String>();
    if bytes.len() <= 24 {
        digits(bytes)
    } else {
        format!(
            "{}..{} ({} bytes)",
            digits(&bytes[..8]),
            digits(&bytes[bytes.len() - 4..]),
            bytes.len()
        )
    }
}

fn dump_tuple(out: &mut String, base: u64, t: &TupleRef<'_>) {
    let _ = write!(
        out,
        " xmin {:?} xmax {:?} cid {} natts {} hoff {}",
        t.xmin(base),
        t.xmax(base),
        t.cid().raw(),
        t.natts(),
        t.data_offset()
    );
    if let Some(next) = t.next() {
        let _ = write!(out, " next {next}");
    }
    if t.is_lock_only() {
        let strength = (t.mask2() & page::STRENGTH_MASK) >> page::STRENGTH_SHIFT;
        let _ = write!(out, " strength {strength}");
    }
    if t.mask2() & page::KEYS_UPDATED != 0 {
        out.push_str(" keys");
    }
    let _ = write!(out, " [{}]", mask_names(t.mask()));
    if let Some(nulls) = t.nulls() {
        let _ = write!(out, " nulls {}", hex(nulls));
    }
    let _ = write!(out, " data {}", hex(t.data()));
}

fn dump_line(out: &mut String, page: &Page, slot: SlotNo, l: Line) {
    let _ = write!(out, "  {} ", slot.raw());
    match l.state() {
        LineState::Unused => out.push_str("unused"),
        LineState::Dead => out.push_str("dead"),
        LineState::Redirect => {
            let _ = write!(out, "redirect -> {}", l.target().raw());
        }
        LineState::Normal => {
            let _ = write!(out, "normal {}+{}", l.offset(), l.len());
            match page::tuple_at(page, l) {
                Some(t) => dump_tuple(out, page.base(), &t),
                None => out.push_str(" CORRUPT"),
            }
        }
    }
    out.push('\n');
}

/// The whole page, one line a line pointer.
pub fn dump_page(page: &Page) -> String {
    let mut flags = Vec::new();
    if page.flags() & page::ALL_VISIBLE != 0 {
        flags.push("all-visible");
    }
    if page.flags() & page::FREE_LINES != 0 {
        flags.push("free-lines");
    }
    let flags = if flags.is_empty() { "-".to_owned() } else { flags.join("+") };
    let mut out = format!(
        "heap page lsn {} base {} flags {flags} prune x{} lower {} upper {} free {}\n",
        page.lsn(),
        page.base(),
        page.hint(),
        page.lower(),
        page.upper(),
        page.free_space()
    );
    for slot in page::slots(page) {
        if let Some(l) = page::line(page, slot) {
            dump_line(&mut out, page, slot, l);
        }
    }
    out
}
