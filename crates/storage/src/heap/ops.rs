//! Every way in which a heap page changes.
//!
//! An operation is a value. The same [`HeapOp::apply`] changes the page when it happens and
//! when the log is replayed, so what redo does cannot differ from what was done. An operation
//! says everything it needs: it reads the page it is applied to and nothing else (no
//! commit log, no clock, no other page).
//!
//! ```text
//!   HOT update of (0,1) by x500:  Insert(slot 3 like 1, 4 bytes differ)  UpdateOld(1 -> (0,3))
//!                                 `- one record, one block, about 25 bytes
//! ```
//!
//! Encoding: a tag byte, then integers of variable length (`codec`) and raw bytes. A block's
//! part of a record is a sequence of operations, applied in order ([`redo`]).
//!
//! Rules:
//! - every change of which tuples are visible clears the page's [`ALL_VISIBLE`] flag; locking
//!   does not change visibility and leaves it;
//! - a change of xmin or xmax clears the persistent hints about it, because the page on
//!   disk may carry hints that the page in memory never had;
//! - `apply` refuses what does not fit the page, before it changes a byte of line pointers or
//!   tuples, except where the page itself is corrupt.

use super::codec::{Reader, put_varint};
use super::page::{
    self, ALL_VISIBLE, BadPage, FREE_LINES, HeaderMut, Line, LineState, NewHeader, bad,
    check_bounds, expect_tuple, line, set_line,
};
use super::tuple::TupleBody;
use super::{RowLock, page::offset_of};
use crate::ids::{RowId, SlotNo, Xid};
use crate::page::{Page, PageClass};

mod tag {
    pub const INIT: u8 = 1;
    pub const INSERT: u8 = 2;
    pub const INSERT_MANY: u8 = 3;
    pub const INSERT_LIKE: u8 = 4;
    pub const DELETE: u8 = 5;
    pub const UPDATE_OLD: u8 = 6;
    pub const LOCK: u8 = 7;
    pub const WITHDRAW: u8 = 8;
    pub const PRUNE: u8 = 9;
    pub const FREE_DEAD: u8 = 10;
    pub const FREEZE: u8 = 11;
    pub const REBASE: u8 = 12;
    pub const SET_ALL_VISIBLE: u8 = 13;
}

/// Freeze action: xmin becomes "frozen".
pub const FREEZE_XMIN: u8 = 1;
/// Freeze action: xmax is taken away (aborted, or a lock of a transaction that ended).
pub const CLEAR_XMAX: u8 = 2;

/// What an insert says about its tuple besides the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Inserter, as an offset from the page's base.
    pub xmin: u32,
    pub cid: u32,
    pub heap_only: bool,
    /// Inserted by an update.
    pub updated: bool,
}

impl Birth {
    const HEAP_ONLY: u8 = 1;
    const UPDATED: u8 = 2;
    const EXTERNAL: u8 = 4;
    const NULLS: u8 = 8;

    fn flags(&self, body: &TupleBody<'_>) -> u8 {
        let mut flags = 0;
        for (set, bit) in [
            (self.heap_only, Self::HEAP_ONLY),
            (self.updated, Self::UPDATED),
            (body.has_external, Self::EXTERNAL),
            (!body.nulls.is_empty(), Self::NULLS),
        ] {
            if set {
                flags |= bit;
            }
        }
        flags
    }

    fn header(&self, natts: u16, nulls: bool, external: bool) -> NewHeader {
        let mut mask = 0;
        for (set, bit) in [
            (nulls, page::HAS_NULLS),
            (external, page::HAS_EXTERNAL),
            (self.heap_only, page::HEAP_ONLY),
            (self.updated, page::UPDATED),
        ] {
            if set {
                mask |= bit;
            }
        }
        NewHeader { xmin: self.xmin, cid: self.cid, mask, mask2: natts & page::NATTS_MASK }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.xmin));
        put_varint(out, u64::from(self.cid));
    }

    fn decode(r: &mut Reader<'_>, flags: u8) -> Option<Self> {
        Some(Birth {
            xmin: r.u32()?,
            cid: r.u32()?,
            heap_only: flags & Self::HEAP_ONLY != 0,
            updated: flags & Self::UPDATED != 0,
        })
    }
}

/// How a tuple's end is recorded in it, besides who did it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Death {
    /// Deleter, as an offset from the page's base.
    pub xmax: u32,
    pub cid: u32,
    /// `cid` is a combined id.
    pub combo: bool,
    /// A key column changed, or the row is gone.
    pub keys: bool,
    /// The row went to another partition.
    pub moved: bool,
}

impl Death {
    fn encode(&self, out: &mut Vec<u8>, more: u8) {
        out.push(
            u8::from(self.combo) | u8::from(self.keys) << 1 | u8::from(self.moved) << 2 | more << 3,
        );
        put_varint(out, u64::from(self.xmax));
        put_varint(out, u64::from(self.cid));
    }

    fn decode(r: &mut Reader<'_>) -> Option<(Self, u8)> {
        let flags = r.u8()?;
        let death = Death {
            xmax: r.u32()?,
            cid: r.u32()?,
            combo: flags & 1 != 0,
            keys: flags & 2 != 0,
            moved: flags & 4 != 0,
        };
        Some((death, flags >> 3))
    }

    fn apply(
        &self,
        page: &mut Page,
        slot: SlotNo,
        next: Option<RowId>,
        hot: bool,
    ) -> Result<(), BadPage> {
        let base = page.base();
        let mut head = HeaderMut::new(page, slot)?;
        head.set_xmax(self.xmax);
        head.set_cid(self.cid);
        head.set_next(next);
        let mut mask = head.mask()
            & !(page::XMAX_HINTS
                | page::XMAX_LOCK_ONLY
                | page::HOT_UPDATED
                | page::COMBO_CID
                | page::MOVED);
        for (set, bit) in
            [(self.combo, page::COMBO_CID), (self.moved, page::MOVED), (hot, page::HOT_UPDATED)]
        {
            if set {
                mask |= bit;
            }
        }
        head.set_mask(mask);
        let mask2 = head.mask2() & !(page::STRENGTH_MASK | page::KEYS_UPDATED);
        head.set_mask2(if self.keys { mask2 | page::KEYS_UPDATED } else { mask2 });
        page.set_flags(page.flags() & !ALL_VISIBLE);
        lower_prune_hint(page, page::xid_at(base, self.xmax));
        Ok(())
    }
}

/// Remembers that the end of `xid` may make something on this page removable.
fn lower_prune_hint(page: &mut Page, xid: Xid) {
    if page.hint() == 0 || xid.raw() < page.hint() {
        page.set_hint(xid.raw());
    }
}

/// Which line pointers a prune changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneLists {
    /// Roots that from now on point at a later member of their chain.
    pub redirects: Vec<(SlotNo, SlotNo)>,
    /// Roots of which nothing is left; index entries may still name them.
    pub dead: Vec<SlotNo>,
    /// Members that no index entry names.
    pub unused: Vec<SlotNo>,
    /// The new prune hint of the page; invalid = nothing left to wait for.
    pub hint: Xid,
}

impl PruneLists {
    pub fn is_empty(&self) -> bool {
        self.redirects.is_empty() && self.dead.is_empty() && self.unused.is_empty()
    }
}

/// One change of one heap page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeapOp<'a> {
    /// Makes it an empty heap page.
    Init {
        base: u64,
    },
    /// A new tuple.
    Insert {
        slot: SlotNo,
        birth: Birth,
        body: TupleBody<'a>,
    },
    /// A new tuple whose column values are those of the tuple at `like` with bytes between
    /// `prefix` and `suffix` replaced by `middle`; null bitmap as there.
    InsertLike {
        slot: SlotNo,
        birth: Birth,
        natts: u16,
        external: bool,
        like: SlotNo,
        prefix: u16,
        suffix: u16,
        middle: &'a [u8],
    },
    Delete {
        slot: SlotNo,
        death: Death,
    },
    /// The old half of an update.
    UpdateOld {
        slot: SlotNo,
        death: Death,
        next: RowId,
        hot: bool,
    },
    Lock {
        slot: SlotNo,
        xmax: u32,
        strength: RowLock,
    },
    /// A tuple that its inserter takes back at once: invalid for everybody.
    Withdraw {
        slot: SlotNo,
    },
    Prune(PruneLists),
    /// Dead line pointers become unused: no index entry names them any more.
    FreeDead {
        slots: Vec<SlotNo>,
    },
    /// Resolves old xids; actions are [`FREEZE_XMIN`] and [`CLEAR_XMAX`].
    Freeze {
        slots: Vec<(SlotNo, u8)>,
    },
    /// Expresses all xids relative to another base.
    Rebase {
        base: u64,
    },
    SetAllVisible,
}

/// Many new tuples of one command: the common part is said once.
#[derive(Clone, Copy, Debug)]
pub struct InsertMany<'a> {
    pub birth: Birth,
    pub rows: &'a [(SlotNo, TupleBody<'a>)],
}

fn put_slot(out: &mut Vec<u8>, slot: SlotNo) {
    put_varint(out, u64::from(slot.raw()));
}

fn get_slot(r: &mut Reader<'_>) -> Option<SlotNo> {
    r.u16().map(SlotNo::new)
}

fn put_slots(out: &mut Vec<u8>, slots: &[SlotNo]) {
    put_varint(out, slots.len() as u64);
    for slot in slots {
        put_slot(out, *slot);
    }
}

fn get_slots(r: &mut Reader<'_>) -> Option<Vec<SlotNo>> {
    let count = usize::from(r.u16()?);
    if count > page::MAX_SLOTS {
        return None;
    }
    (0..count).map(|_| get_slot(r)).collect()
}

fn put_body(out: &mut Vec<u8>, body: &TupleBody<'_>) {
    put_varint(out, u64::from(body.natts));
    put_varint(out, body.data.len() as u64);
    out.extend_from_slice(body.nulls);
    out.extend_from_slice(body.data);
}

fn get_body<'a>(r: &mut Reader<'a>, flags: u8) -> Option<TupleBody<'a>> {
    let natts = r.u16()?;
    let len = usize::from(r.u16()?);
    let nulls_len = if flags & Birth::NULLS != 0 { usize::from(natts).div_ceil(8) } else { 0 };
    if natts > page::NATTS_MASK {
        return None;
    }
    let nulls = r.bytes(nulls_len)?;
    let data = r.bytes(len)?;
    Some(TupleBody { natts, nulls, data, has_external: flags & Birth::EXTERNAL != 0 })
}

impl InsertMany<'_> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(tag::INSERT_MANY);
        self.birth.encode(out);
        put_varint(out, self.rows.len() as u64);
        for (slot, body) in self.rows {
            put_slot(out, *slot);
            out.push(self.birth.flags(body));
            put_body(out, body);
        }
    }

    pub fn apply(&self, page: &mut Page) -> Result<(), BadPage> {
        check_bounds(page)?;
        for (slot, body) in self.rows {
            insert(page, *slot, &self.birth, body)?;
        }
        Ok(())
    }
}

fn insert(
    page: &mut Page,
    slot: SlotNo,
    birth: &Birth,
    body: &TupleBody<'_>,
) -> Result<(), BadPage> {
    let head = birth.header(body.natts, !body.nulls.is_empty(), body.has_external);
    page::insert(page, slot, &head, body)?;
    page.set_flags(page.flags() & !ALL_VISIBLE);
    if birth.heap_only {
        // Should the update abort, this tuple can go at once.
        let xid = page::xid_at(page.base(), birth.xmin);
        lower_prune_hint(page, xid);
    }
    Ok(())
}

impl<'a> HeapOp<'a> {
    /// The insert of an updated version, as a difference to the tuple at `like` on the same
    /// page when that is shorter.
    pub fn insert_like(
        page: &Page,
        like: SlotNo,
        slot: SlotNo,
        birth: Birth,
        body: TupleBody<'a>,
    ) -> Self {
        let plain = HeapOp::Insert { slot, birth, body };
        let Some(old) = page::tuple(page, like) else { return plain };
        if old.nulls().unwrap_or(&[]) != body.nulls {
            return plain;
        }
        let (was, now) = (old.data(), body.data);
        let prefix = was.iter().zip(now).take_while(|(a, b)| a == b).count();
        let rest = was.len().min(now.len()) - prefix;
        let suffix =
            was.iter().rev().zip(now.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
        if prefix + suffix < 16 {
            return plain;
        }
        HeapOp::InsertLike {
            slot,
            birth,
            natts: body.natts,
            external: body.has_external,
            like,
            prefix: prefix as u16,
            suffix: suffix as u16,
            middle: &now[prefix..now.len() - suffix],
        }
    }

    /// The slots whose xmin or xmax this changes: their volatile hints must go.
    pub fn for_each_touched(&self, mut f: impl FnMut(SlotNo)) {
        match self {
            HeapOp::Insert { slot, .. }
            | HeapOp::InsertLike { slot, .. }
            | HeapOp::Delete { slot, .. }
            | HeapOp::UpdateOld { slot, .. }
            | HeapOp::Lock { slot, .. }
            | HeapOp::Withdraw { slot } => f(*slot),
            HeapOp::Freeze { slots } => slots.iter().for_each(|(slot, _)| f(*slot)),
            HeapOp::Prune(lists) => {
                lists.dead.iter().chain(&lists.unused).for_each(|slot| f(*slot));
                lists.redirects.iter().for_each(|(from, _)| f(*from));
            }
            HeapOp::FreeDead { slots } => slots.iter().for_each(|slot| f(*slot)),
            HeapOp::Init { .. } | HeapOp::Rebase { .. } | HeapOp::SetAllVisible => {}
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            HeapOp::Init { base } => {
                out.push(tag::INIT);
                put_varint(out, *base);
            }
            HeapOp::Insert { slot, birth, body } => {
                out.push(tag::INSERT);
                put_slot(out, *slot);
                out.push(birth.flags(body));
                birth.encode(out);
                put_body(out, body);
            }
            HeapOp::InsertLike { .. } => self.encode_like(out),
            HeapOp::Delete { slot, death } => {
                out.push(tag::DELETE);
                put_slot(out, *slot);
                death.encode(out, 0);
            }
            HeapOp::UpdateOld { slot, death, next, hot } => {
                out.push(tag::UPDATE_OLD);
                put_slot(out, *slot);
                death.encode(out, u8::from(*hot));
                put_varint(out, u64::from(next.block));
                put_slot(out, next.slot);
            }
            HeapOp::Lock { slot, xmax, strength } => {
                out.push(tag::LOCK);
                put_slot(out, *slot);
                put_varint(out, u64::from(*xmax));
                out.push(*strength as u8);
            }
            HeapOp::Withdraw { slot } => {
                out.push(tag::WITHDRAW);
                put_slot(out, *slot);
            }
            HeapOp::Prune(_) | HeapOp::FreeDead { .. } | HeapOp::Freeze { .. } => {
                self.encode_lists(out);
            }
            HeapOp::Rebase { base } => {
                out.push(tag::REBASE);
                put_varint(out, *base);
            }
            HeapOp::SetAllVisible => out.push(tag::SET_ALL_VISIBLE),
        }
    }

    fn encode_like(&self, out: &mut Vec<u8>) {
        if let HeapOp::InsertLike { slot, birth, natts, external, like, prefix, suffix, middle } =
            self
        {
            out.push(tag::INSERT_LIKE);
            put_slot(out, *slot);
            let shape = TupleBody { has_external: *external, ..TupleBody::default() };
            out.push(birth.flags(&shape));
            birth.encode(out);
            for n in [*natts, like.raw(), *prefix, *suffix] {
                put_varint(out, u64::from(n));
            }
            put_varint(out, middle.len() as u64);
            out.extend_from_slice(middle);
        }
    }

    fn encode_lists(&self, out: &mut Vec<u8>) {
        match self {
            HeapOp::Prune(lists) => {
                out.push(tag::PRUNE);
                put_varint(out, lists.hint.raw());
                put_varint(out, lists.redirects.len() as u64);
                for (from, to) in &lists.redirects {
                    put_slot(out, *from);
                    put_slot(out, *to);
                }
                put_slots(out, &lists.dead);
                put_slots(out, &lists.unused);
            }
            HeapOp::FreeDead { slots } => {
                out.push(tag::FREE_DEAD);
                put_slots(out, slots);
            }
            HeapOp::Freeze { slots } => {
                out.push(tag::FREEZE);
                put_varint(out, slots.len() as u64);
                for (slot, actions) in slots {
                    put_slot(out, *slot);
                    out.push(*actions);
                }
            }
            _ => {}
        }
    }

    fn decode(tag: u8, r: &mut Reader<'a>) -> Option<Self> {
        Some(match tag {
            tag::INIT => HeapOp::Init { base: r.varint()? },
            tag::INSERT => {
                let slot = get_slot(r)?;
                let flags = r.u8()?;
                let birth = Birth::decode(r, flags)?;
                HeapOp::Insert { slot, birth, body: get_body(r, flags)? }
            }
            tag::INSERT_LIKE => Self::decode_like(r)?,
            tag::DELETE => HeapOp::Delete { slot: get_slot(r)?, death: Death::decode(r)?.0 },
            tag::UPDATE_OLD => {
                let slot = get_slot(r)?;
                let (death, hot) = Death::decode(r)?;
                let next = RowId::new(r.u32()?, get_slot(r)?);
                HeapOp::UpdateOld { slot, death, next, hot: hot != 0 }
            }
            tag::LOCK => {
                let (slot, xmax) = (get_slot(r)?, r.u32()?);
                HeapOp::Lock { slot, xmax, strength: RowLock::from_bits(u16::from(r.u8()?)) }
            }
            tag::WITHDRAW => HeapOp::Withdraw { slot: get_slot(r)? },
            tag::PRUNE | tag::FREE_DEAD | tag::FREEZE => Self::decode_lists(tag, r)?,
            tag::REBASE => HeapOp::Rebase { base: r.varint()? },
            tag::SET_ALL_VISIBLE => HeapOp::SetAllVisible,
            _ => return None,
        })
    }

    fn decode_like(r: &mut Reader<'a>) -> Option<Self> {
        let slot = get_slot(r)?;
        let flags = r.u8()?;
        let birth = Birth::decode(r, flags)?;
        let natts = r.u16()?;
        let like = get_slot(r)?;
        let (prefix, suffix) = (r.u16()?, r.u16()?);
        let len = usize::from(r.u16()?);
        let external = flags & Birth::EXTERNAL != 0;
        let middle = r.bytes(len)?;
        Some(HeapOp::InsertLike { slot, birth, natts, external, like, prefix, suffix, middle })
    }

    fn decode_lists(tag: u8, r: &mut Reader<'a>) -> Option<Self> {
        match tag {
            tag::PRUNE => {
                let hint = Xid::new(r.varint()?);
                let count = usize::from(r.u16()?);
                if count > page::MAX_SLOTS {
                    return None;
                }
                let redirects = (0..count)
                    .map(|_| Some((get_slot(r)?, get_slot(r)?)))
                    .collect::<Option<Vec<_>>>()?;
                let (dead, unused) = (get_slots(r)?, get_slots(r)?);
                Some(HeapOp::Prune(PruneLists { redirects, dead, unused, hint }))
            }
            tag::FREE_DEAD => Some(HeapOp::FreeDead { slots: get_slots(r)? }),
            _ => {
                let count = usize::from(r.u16()?);
                if count > page::MAX_SLOTS {
                    return None;
                }
                let slots = (0..count)
                    .map(|_| Some((get_slot(r)?, r.u8()?)))
                    .collect::<Option<Vec<_>>>()?;
                Some(HeapOp::Freeze { slots })
            }
        }
    }

    /// Changes the page.
    pub fn apply(&self, page: &mut Page) -> Result<(), BadPage> {
        if let HeapOp::Init { base } = self {
            page.init(PageClass::Heap, 0);
            page.set_base(*base);
            return Ok(());
        }
        check_bounds(page)?;
        match self {
            HeapOp::Init { .. } => Ok(()),
            HeapOp::Insert { slot, birth, body } => insert(page, *slot, birth, body),
            HeapOp::InsertLike { .. } => self.apply_like(page),
            HeapOp::Delete { slot, death } => death.apply(page, *slot, None, false),
            HeapOp::UpdateOld { slot, death, next, hot } => {
                death.apply(page, *slot, Some(*next), *hot)
            }
            HeapOp::Lock { slot, xmax, strength } => apply_lock(page, *slot, *xmax, *strength),
            HeapOp::Withdraw { slot } => apply_withdraw(page, *slot),
            HeapOp::Prune(lists) => apply_prune(page, lists),
            HeapOp::FreeDead { slots } => {
                for slot in slots {
                    if line(page, *slot) != Some(Line::DEAD) {
                        return Err(bad("line pointer to free is not dead", *slot));
                    }
                    set_line(page, *slot, Line::UNUSED);
                }
                page::compact(page)
            }
            HeapOp::Freeze { slots } => {
                slots.iter().try_for_each(|(slot, actions)| apply_freeze(page, *slot, *actions))
            }
            HeapOp::Rebase { base } => apply_rebase(page, *base),
            HeapOp::SetAllVisible => {
                page.set_flags(page.flags() | ALL_VISIBLE);
                Ok(())
            }
        }
    }

    fn apply_like(&self, page: &mut Page) -> Result<(), BadPage> {
        let HeapOp::InsertLike { slot, birth, natts, external, like, prefix, suffix, middle } =
            self
        else {
            return Ok(());
        };
        let old = expect_tuple(page, *like)?;
        let (prefix, suffix) = (usize::from(*prefix), usize::from(*suffix));
        let (hoff, nulls) = (old.data_offset(), old.nulls().is_some());
        let (old_len, old_bytes) = (old.data().len(), old.bytes().len());
        let bitmap = old.nulls().map_or(0, <[u8]>::len);
        if prefix + suffix > old_len || (nulls && bitmap != usize::from(*natts).div_ceil(8)) {
            return Err(bad("difference does not fit the old version", *like));
        }
        let old_at = line(page, *like).map_or(0, |l| usize::from(l.offset()));
        let at = page::place(page, *slot, hoff + prefix + middle.len() + suffix)?;
        page::write_header(page, at, &birth.header(*natts, nulls, *external), hoff);
        let bytes = page.bytes_mut();
        bytes.copy_within(old_at + page::BITMAP_AT..old_at + hoff + prefix, at + page::BITMAP_AT);
        let mid = at + hoff + prefix;
        bytes[mid..mid + middle.len()].copy_from_slice(middle);
        let old_end = old_at + old_bytes;
        bytes.copy_within(old_end - suffix..old_end, mid + middle.len());
        page.set_flags(page.flags() & !ALL_VISIBLE);
        if birth.heap_only {
            let xid = page::xid_at(page.base(), birth.xmin);
            lower_prune_hint(page, xid);
        }
        Ok(())
    }
}

fn apply_lock(page: &mut Page, slot: SlotNo, xmax: u32, strength: RowLock) -> Result<(), BadPage> {
    let mut head = HeaderMut::new(page, slot)?;
    head.set_xmax(xmax);
    head.set_next(None);
    let mask = head.mask() & !(page::XMAX_HINTS | page::HOT_UPDATED | page::MOVED);
    head.set_mask(mask | page::XMAX_LOCK_ONLY);
    let mask2 = head.mask2() & !(page::STRENGTH_MASK | page::KEYS_UPDATED);
    head.set_mask2(mask2 | (strength as u16) << page::STRENGTH_SHIFT);
    Ok(())
}

fn apply_withdraw(page: &mut Page, slot: SlotNo) -> Result<(), BadPage> {
    let mut head = HeaderMut::new(page, slot)?;
    head.set_xmin(page::OFFSET_INVALID);
    head.set_mask(head.mask() & !page::HINTS);
    page.set_flags(page.flags() & !ALL_VISIBLE);
    lower_prune_hint(page, Xid::FIRST_NORMAL);
    Ok(())
}

fn apply_prune(page: &mut Page, lists: &PruneLists) -> Result<(), BadPage> {
    for (from, to) in &lists.redirects {
        let state = line(page, *from).map(Line::state);
        let target = expect_tuple(page, *to)?;
        let root = matches!(state, Some(LineState::Normal | LineState::Redirect));
        if !root || from == to || !target.is_heap_only() {
            return Err(bad("line pointer cannot be redirected", *from));
        }
        set_line(page, *from, Line::redirect(*to));
    }
    for slot in &lists.dead {
        match line(page, *slot).map(Line::state) {
            Some(LineState::Normal | LineState::Redirect) => set_line(page, *slot, Line::DEAD),
            _ => return Err(bad("line pointer cannot be made dead", *slot)),
        }
    }
    for slot in &lists.unused {
        match line(page, *slot).map(Line::state) {
            Some(LineState::Normal) => set_line(page, *slot, Line::UNUSED),
            _ => return Err(bad("line pointer cannot be made unused", *slot)),
        }
    }
    page.set_hint(lists.hint.raw());
    page::compact(page)
}

fn apply_freeze(page: &mut Page, slot: SlotNo, actions: u8) -> Result<(), BadPage> {
    let mut head = HeaderMut::new(page, slot)?;
    if actions & FREEZE_XMIN != 0 {
        head.set_xmin(page::OFFSET_FROZEN);
        head.set_mask(head.mask() & !page::XMIN_HINTS);
    }
    if actions & CLEAR_XMAX != 0 {
        head.set_xmax(page::OFFSET_INVALID);
        head.set_next(None);
        let gone = page::XMAX_HINTS | page::XMAX_LOCK_ONLY | page::HOT_UPDATED | page::MOVED;
        head.set_mask(head.mask() & !gone);
        head.set_mask2(head.mask2() & !(page::STRENGTH_MASK | page::KEYS_UPDATED));
    }
    Ok(())
}

fn apply_rebase(page: &mut Page, base: u64) -> Result<(), BadPage> {
    let old = page.base();
    let shifted = |offset: u32| match page::xid_at(old, offset) {
        xid if xid.is_normal() => offset_of(base, xid),
        _ => Some(offset),
    };
    let cannot = |slot| bad("xid does not fit the new base", slot);
    for slot in page::slots(page) {
        if let Some(t) = page::tuple(page, slot) {
            shifted(t.xmin_offset()).ok_or(cannot(slot))?;
            shifted(t.xmax_offset()).ok_or(cannot(slot))?;
        }
    }
    for slot in page::slots(page) {
        if let Ok(mut head) = HeaderMut::new(page, slot) {
            head.set_xmin(shifted(head.xmin()).ok_or(cannot(slot))?);
            head.set_xmax(shifted(head.xmax()).ok_or(cannot(slot))?);
        }
    }
    page.set_base(base);
    Ok(())
}

const MALFORMED: BadPage = bad("malformed heap operation", SlotNo::INVALID);

/// Calls `f` with each operation of a block's part of a record, in order.
fn for_each<'a>(
    ops: &'a [u8],
    mut f: impl FnMut(&HeapOp<'a>) -> Result<(), BadPage>,
) -> Result<(), BadPage> {
    let mut r = Reader(ops);
    while !r.is_empty() {
        let tag = r.u8().ok_or(MALFORMED)?;
        if tag != tag::INSERT_MANY {
            f(&HeapOp::decode(tag, &mut r).ok_or(MALFORMED)?)?;
            continue;
        }
        let birth = Birth::decode(&mut r, 0).ok_or(MALFORMED)?;
        for _ in 0..r.u16().ok_or(MALFORMED)? {
            let slot = get_slot(&mut r).ok_or(MALFORMED)?;
            let flags = r.u8().ok_or(MALFORMED)?;
            let updated = flags & Birth::UPDATED != 0;
            let heap_only = flags & Birth::HEAP_ONLY != 0;
            let body = get_body(&mut r, flags).ok_or(MALFORMED)?;
            f(&HeapOp::Insert { slot, birth: Birth { updated, heap_only, ..birth }, body })?;
        }
    }
    Ok(())
}

/// Replays a block's part of a record.
pub fn redo(ops: &[u8], page: &mut Page) -> Result<(), BadPage> {
    for_each(ops, |op| op.apply(page))
}

/// Says in words what a block's part of a record does.
pub fn describe(ops: &[u8]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let end = for_each(ops, |op| {
        parts.push(describe_one(op));
        Ok(())
    });
    if let Err(e) = end {
        parts.push(format!("<{e}>"));
    }
    parts.join("; ")
}

fn describe_one(op: &HeapOp<'_>) -> String {
    match op {
        HeapOp::Init { base } => format!("init base {base}"),
        HeapOp::Insert { slot, birth, body } => format!(
            "insert {slot:?} xmin +{} len {}{}",
            birth.xmin,
            body.stored_len(),
            if birth.heap_only { " heap-only" } else { "" }
        ),
        HeapOp::InsertLike { slot, birth, like, prefix, suffix, middle, .. } => format!(
            "insert {slot:?} xmin +{} like {like:?} keep {prefix} and {suffix} new {}",
            birth.xmin,
            middle.len()
        ),
        HeapOp::Delete { slot, death } => format!("delete {slot:?} xmax +{}", death.xmax),
        HeapOp::UpdateOld { slot, death, next, hot } => format!(
            "{} {slot:?} xmax +{} next {next}",
            if *hot { "hot-update" } else { "update" },
            death.xmax
        ),
        HeapOp::Lock { slot, xmax, strength } => {
            format!("lock {slot:?} xmax +{xmax} {strength:?}")
        }
        HeapOp::Withdraw { slot } => format!("withdraw {slot:?}"),
        HeapOp::Prune(l) => {
            format!("prune redirect {:?} dead {:?} unused {:?}", l.redirects, l.dead, l.unused)
        }
        HeapOp::FreeDead { slots } => format!("free {slots:?}"),
        HeapOp::Freeze { slots } => format!("freeze {slots:?}"),
        HeapOp::Rebase { base } => format!("rebase to {base}"),
        HeapOp::SetAllVisible => "set all-visible".to_owned(),
    }
}

/// Blanks what two pages with the same history may differ in: hints, the all-visible flag,
/// the line hint, checksum. For comparing a redone page with an image.
pub fn mask_volatile(page: &mut Page) {
    page.set_flags(page.flags() & !(ALL_VISIBLE | FREE_LINES));
    for slot in page::slots(page) {
        if let Ok(mut head) = HeaderMut::new(page, slot) {
            head.set_mask(head.mask() & !page::HINTS);
        }
    }
}
