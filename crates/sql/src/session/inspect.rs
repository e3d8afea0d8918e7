//! Looking at pages: the functions of `functions/tables/inspect.rs`.
//!
//! ```text
//!   select lp, t_xmin, t_infomask & 256 > 0 as hinted, frame_infomask & 256 > 0 as in_memory
//!   from heap_page_items('t', 0)
//! ```
//!
//! Flag bits are shown where PostgreSQL has them, so that what people know by heart, and queries
//! written for pageinspect, hold here too; what is on the page is laid out otherwise
//! (`storage/heap/page.rs`). A look changes nothing and leaves no hint behind.
//!
//! As in PostgreSQL, raw pages are for superusers: they show rows that no permission covers.

use super::around::Around;
use crate::catalog::RelationKind;
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid};
use inkling_storage::buffer::ShareGuard;
use inkling_storage::heap::page::{self, LineState};
use inkling_storage::heap::{RowLock, TupleRef, vmap};
use inkling_storage::ids::{BlockNo, Fork, PageId, RelId, SlotNo};
use inkling_storage::page::{PAGE_SIZE, PageClass};

/// PostgreSQL's bits of t_infomask and t_infomask2, with their names.
mod bits {
    pub const HASNULL: i32 = 0x0001;
    pub const HASEXTERNAL: i32 = 0x0004;
    pub const XMAX_KEYSHR_LOCK: i32 = 0x0010;
    pub const COMBOCID: i32 = 0x0020;
    pub const XMAX_EXCL_LOCK: i32 = 0x0040;
    pub const XMAX_LOCK_ONLY: i32 = 0x0080;
    pub const XMIN_COMMITTED: i32 = 0x0100;
    pub const XMIN_INVALID: i32 = 0x0200;
    pub const XMIN_FROZEN: i32 = XMIN_COMMITTED | XMIN_INVALID;
    pub const XMAX_COMMITTED: i32 = 0x0400;
    pub const XMAX_INVALID: i32 = 0x0800;
    pub const UPDATED: i32 = 0x2000;
    pub const KEYS_UPDATED: i32 = 0x2000;
    pub const HOT_UPDATED: i32 = 0x4000;
    pub const HEAP_ONLY: i32 = 0x8000;

    pub const MASK: [(i32, &str); 12] = [
        (HASNULL, "HEAP_HASNULL"),
        (HASEXTERNAL, "HEAP_HASEXTERNAL"),
        (XMAX_KEYSHR_LOCK, "HEAP_XMAX_KEYSHR_LOCK"),
        (COMBOCID, "HEAP_COMBOCID"),
        (XMAX_EXCL_LOCK, "HEAP_XMAX_EXCL_LOCK"),
        (XMAX_LOCK_ONLY, "HEAP_XMAX_LOCK_ONLY"),
        (XMIN_COMMITTED, "HEAP_XMIN_COMMITTED"),
        (XMIN_INVALID, "HEAP_XMIN_INVALID"),
        (XMAX_COMMITTED, "HEAP_XMAX_COMMITTED"),
        (XMAX_INVALID, "HEAP_XMAX_INVALID"),
        (UPDATED, "HEAP_UPDATED"),
        (0x4000, "HEAP_MOVED_OFF"),
    ];
    pub const MASK2: [(i32, &str); 3] = [
        (KEYS_UPDATED, "HEAP_KEYS_UPDATED"),
        (HOT_UPDATED, "HEAP_HOT_UPDATED"),
        (HEAP_ONLY, "HEAP_ONLY_TUPLE"),
    ];
}

const PD_HAS_FREE_LINES: i16 = 1;
const PD_ALL_VISIBLE: i16 = 4;

/// A row of an answer.
type Row = Vec<Datum>;

/// Answers one of the functions; `None`: it is none of them.
pub(super) fn call_set(around: &Around, name: &str, args: &[Datum]) -> Result<Option<Vec<Row>>> {
    Ok(Some(match name {
        "inkling_stat_get_visibility" => vec![visibility_stats(around)],
        "pg_buffercache_summary" => vec![buffers(around)],
        "heap_tuple_infomask_flags" => vec![flag_names(args)],
        "page_header" => vec![page_header(&raw_page(around, args)?)],
        "heap_page_items" => heap_page_items(&raw_page(around, args)?)?,
        "pg_visibility_map" => visibility(around, args, false)?,
        "pg_visibility" => visibility(around, args, true)?,
        "pg_visibility_map_summary" => vec![map_summary(around, args)?],
        _ => return Ok(None),
    }))
}

fn count(n: u64) -> Datum {
    Datum::Int8(n as i64)
}

fn visibility_stats(around: &Around) -> Row {
    let s = around.db.engine.heap.visibility.read();
    let mut row: Row = [
        s.tuples_checked,
        s.by_frame_summary,
        s.by_frame_hint,
        s.by_tuple_hint,
        s.by_session_cache,
        s.by_status_window,
        s.by_commit_log,
        s.hints_refused,
        s.hints_set_on_write_back,
        s.pages_dirtied_by_hints,
    ]
    .map(count)
    .into();
    row.push(Datum::Timestamp(around.db.started));
    row
}

fn buffers(around: &Around) -> Row {
    let usage = around.db.engine.pool.usage();
    [usage.used, usage.frames - usage.used, usage.dirty, usage.pinned]
        .map(|n| Datum::Int4(n as i32))
        .into()
}

fn must_be_superuser(around: &Around) -> Result<()> {
    if around.settings().show("is_superuser").is_ok_and(|on| on == "on") {
        return Ok(());
    }
    Err(SqlError::new(State::INSUFFICIENT_PRIVILEGE, "must be superuser to use raw page functions"))
}

/// The files of a table that has rows of its own.
fn table_rel(around: &Around, args: &[Datum]) -> Result<RelId> {
    let Some(Datum::Oid(oid)) = args.first() else {
        return Err(SqlError::new(State::UNDEFINED_TABLE, "relation does not exist"));
    };
    let catalog = around.catalog();
    if let Some(table) = catalog.tables.get(&Oid(*oid)) {
        if table.kind != RelationKind::View {
            return Ok(table.rel);
        }
        return Err(wrong_object(&table.name));
    }
    match catalog.indexes.get(&Oid(*oid)) {
        Some(index) => Err(wrong_object(&index.name)),
        None => Err(SqlError::new(
            State::UNDEFINED_TABLE,
            format!("relation with OID {oid} does not exist"),
        )),
    }
}

fn wrong_object(name: &str) -> SqlError {
    let what = format!("relation \"{name}\" is of wrong relation kind");
    SqlError::new(State::WRONG_OBJECT_TYPE, what)
}

fn block_arg(around: &Around, rel: RelId, args: &[Datum]) -> Result<BlockNo> {
    let blocks = around.db.engine.pool.block_count(rel, Fork::Main)?;
    let asked = match args.get(1) {
        Some(Datum::Int8(n)) => *n,
        _ => -1,
    };
    BlockNo::try_from(asked).ok().filter(|block| *block < blocks).ok_or_else(|| {
        SqlError::new(
            State::INVALID_PARAMETER_VALUE,
            format!("block number {asked} is out of range for relation"),
        )
    })
}

fn raw_page<'a>(around: &'a Around, args: &[Datum]) -> Result<ShareGuard<'a>> {
    must_be_superuser(around)?;
    let rel = table_rel(around, args)?;
    let block = block_arg(around, rel, args)?;
    Ok(around.db.engine.pool.share(PageId::main(rel, block))?)
}

fn page_header(page: &ShareGuard<'_>) -> Row {
    let mut flags = 0;
    if page.flags() & page::FREE_LINES != 0 {
        flags |= PD_HAS_FREE_LINES;
    }
    if page.flags() & page::ALL_VISIBLE != 0 {
        flags |= PD_ALL_VISIBLE;
    }
    vec![
        Datum::Int8(page.lsn().raw() as i64),
        Datum::Int4(page.checksum() as i32),
        Datum::Int2(flags),
        Datum::Int4(i32::from(page.lower())),
        Datum::Int4(i32::from(page.upper())),
        Datum::Int4(i32::from(page.special())),
        Datum::Int4(PAGE_SIZE as i32),
        Datum::Int2(1),
        Datum::Oid(page.hint() as u32),
        Datum::Int8(page.base() as i64),
        Datum::Int8(page.frame().summary().raw() as i64),
        Datum::Int8(page.frame().sole_inserter().raw() as i64),
    ]
}

fn heap_page_items(page: &ShareGuard<'_>) -> Result<Vec<Row>> {
    match page.class() {
        Some(PageClass::Heap) => {}
        Some(PageClass::Free) => return Ok(Vec::new()),
        _ => {
            return Err(SqlError::new(State::DATA_CORRUPTED, "page is not a page of a table"));
        }
    }
    Ok(page::lines(page).map(|(slot, line)| item(page, slot, line)).collect())
}

fn item(page: &ShareGuard<'_>, slot: SlotNo, line: page::Line) -> Row {
    let flags = match line.state() {
        LineState::Unused => 0,
        LineState::Normal => 1,
        LineState::Redirect => 2,
        LineState::Dead => 3,
    };
    let mut row = vec![
        Datum::Int2(slot.raw() as i16),
        Datum::Int2(line.offset() as i16),
        Datum::Int2(flags),
        Datum::Int2(line.len() as i16),
    ];
    row.resize(15, Datum::Null);
    if let Some(t) = page::tuple(page, slot) {
        tuple_columns(page, slot, &t, &mut row);
    }
    row
}

fn tuple_columns(page: &ShareGuard<'_>, slot: SlotNo, t: &TupleRef<'_>, row: &mut Row) {
    let base = page.base();
    let own = inkling_storage::ids::RowId::new(page.id().block, slot);
    let frame = page.frame().hint(slot);
    row[4] = Datum::Oid(t.xmin(base).raw() as u32);
    row[5] = Datum::Oid(t.xmax(base).raw() as u32);
    row[6] = Datum::Int4(t.cid().raw() as i32);
    row[7] = Datum::Tid(t.next().unwrap_or(own));
    row[8] = Datum::Int4(infomask2(t));
    row[9] = Datum::Int4(infomask(t));
    row[10] = Datum::Int2(t.data_offset() as i16);
    row[11] = t.nulls().map_or(Datum::Null, |nulls| null_bits(nulls, t.natts()));
    row[13] = Datum::Bytea(t.data().into());
    row[14] = Datum::Int4(hints(u16::from(frame) << page::HINT_SHIFT));
}

/// PostgreSQL prints a 1 for each column that is not null, in whole bytes.
fn null_bits(nulls: &[u8], natts: u16) -> Datum {
    let columns = usize::from(natts).div_ceil(8) * 8;
    let digit = |column: usize| match nulls.get(column / 8) {
        Some(byte) if column < usize::from(natts) && byte >> (column % 8) & 1 == 1 => '1',
        _ => '0',
    };
    Datum::text((0..columns).map(digit).collect::<String>())
}

/// Hint bits of a mask, where PostgreSQL has them.
fn hints(mask: u16) -> i32 {
    [
        (page::XMIN_COMMITTED, bits::XMIN_COMMITTED),
        (page::XMIN_ABORTED, bits::XMIN_INVALID),
        (page::XMAX_COMMITTED, bits::XMAX_COMMITTED),
        (page::XMAX_ABORTED, bits::XMAX_INVALID),
    ]
    .into_iter()
    .filter(|(ours, _)| mask & ours != 0)
    .fold(0, |all, (_, theirs)| all | theirs)
}

fn infomask(t: &TupleRef<'_>) -> i32 {
    let mask = t.mask();
    let mut all = hints(mask);
    for (ours, theirs) in [
        (page::HAS_NULLS, bits::HASNULL),
        (page::HAS_EXTERNAL, bits::HASEXTERNAL),
        (page::COMBO_CID, bits::COMBOCID),
        (page::XMAX_LOCK_ONLY, bits::XMAX_LOCK_ONLY),
        (page::UPDATED, bits::UPDATED),
    ] {
        if mask & ours != 0 {
            all |= theirs;
        }
    }
    if t.xmin_offset() == page::OFFSET_FROZEN {
        all |= bits::XMIN_FROZEN;
    }
    if t.xmax_offset() == page::OFFSET_INVALID {
        all |= bits::XMAX_INVALID;
    } else if t.is_lock_only() {
        all |= match t.lock_strength() {
            RowLock::KeyShare => bits::XMAX_KEYSHR_LOCK,
            RowLock::Share => bits::XMAX_KEYSHR_LOCK | bits::XMAX_EXCL_LOCK,
            RowLock::NoKeyUpdate | RowLock::Update => bits::XMAX_EXCL_LOCK,
        };
    }
    all
}

fn infomask2(t: &TupleRef<'_>) -> i32 {
    let mut all = i32::from(t.natts());
    if t.mask2() & page::KEYS_UPDATED != 0 {
        all |= bits::KEYS_UPDATED;
    }
    if t.is_hot_updated() {
        all |= bits::HOT_UPDATED;
    }
    if t.is_heap_only() {
        all |= bits::HEAP_ONLY;
    }
    all
}

/// The names of the bits of an infomask and an infomask2, single and combined.
fn flag_names(args: &[Datum]) -> Row {
    let int = |at: usize| if let Some(Datum::Int4(v)) = args.get(at) { *v } else { 0 };
    let (mask, mask2) = (int(0), int(1));
    let named = |table: &[(i32, &'static str)], mask: i32| -> Vec<Datum> {
        table.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, n)| Datum::text(*n)).collect()
    };
    let mut raw = named(&bits::MASK, mask);
    raw.extend(named(&bits::MASK2, mask2));
    let shared = bits::XMAX_KEYSHR_LOCK | bits::XMAX_EXCL_LOCK;
    let mut combined = Vec::new();
    if mask & shared == shared {
        combined.push(Datum::text("HEAP_XMAX_SHR_LOCK"));
    }
    if mask & bits::XMIN_FROZEN == bits::XMIN_FROZEN {
        combined.push(Datum::text("HEAP_XMIN_FROZEN"));
    }
    let array = |items| crate::catalog::rows::array(Oid::TEXT, items);
    vec![array(raw), array(combined)]
}

/// The map's two bits of a block and, if asked, the page's own flag.
fn visible(around: &Around, rel: RelId, block: BlockNo, with_page: bool) -> Result<Row> {
    let pool = &around.db.engine.pool;
    let map = vmap::bits(pool, rel, block)?;
    let mut row =
        vec![Datum::Bool(map & vmap::VM_VISIBLE != 0), Datum::Bool(map & vmap::VM_FROZEN != 0)];
    if with_page {
        let page = pool.share(PageId::main(rel, block))?;
        row.push(Datum::Bool(page.flags() & page::ALL_VISIBLE != 0));
    }
    Ok(row)
}

/// One block, or all of them with their numbers.
fn visibility(around: &Around, args: &[Datum], with_page: bool) -> Result<Vec<Row>> {
    must_be_superuser(around)?;
    let rel = table_rel(around, args)?;
    if args.len() > 1 {
        let block = block_arg(around, rel, args)?;
        return Ok(vec![visible(around, rel, block, with_page)?]);
    }
    let blocks = around.db.engine.pool.block_count(rel, Fork::Main)?;
    (0..blocks)
        .map(|block| {
            let mut row = vec![Datum::Int8(i64::from(block))];
            row.extend(visible(around, rel, block, with_page)?);
            Ok(row)
        })
        .collect()
}

fn map_summary(around: &Around, args: &[Datum]) -> Result<Row> {
    must_be_superuser(around)?;
    let rel = table_rel(around, args)?;
    let pool = &around.db.engine.pool;
    let (mut all_visible, mut all_frozen) = (0, 0);
    for block in 0..pool.block_count(rel, Fork::Main)? {
        let map = vmap::bits(pool, rel, block)?;
        all_visible += u64::from(map & vmap::VM_VISIBLE != 0);
        all_frozen += u64::from(map & vmap::VM_FROZEN != 0);
    }
    Ok(vec![count(all_visible), count(all_frozen)])
}
