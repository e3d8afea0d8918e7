//! Reading tables: whole, through an index, by row address.
//!
//! Sequential scans go page by page: one call of the heap gives a private copy of a page and the
//! list of its visible rows; conditions are tested on the columns that they need, the other live
//! columns are decoded only for rows that pass.

use super::expr::Ex;
use super::table::{IndexExec, TableExec};
use super::{Computed, ExecCx, Node, Reg, Step, Store};
use crate::analyze::bound::system_column as system;
use crate::error::{Result, SqlError};
use crate::keycode;
use crate::types::{Datum, Oid};
use inkling_storage::btree::{self, Cursor, Direction, IndexBatch};
use inkling_storage::error::StorageError;
use inkling_storage::heap::{self, PageScan, TupleBuf, TupleRef};
use inkling_storage::ids::{Fork, PageId, RowId};
use std::ops::Bound;
use std::sync::Arc;

/// What a scan loads into a table's registers.
pub struct Load {
    pub table: Arc<TableExec>,
    pub base: Reg,
    /// Columns that the filter reads, and the others that are live.
    pub first: Vec<usize>,
    pub rest: Vec<usize>,
    pub filter: Option<Ex>,
    /// A function in the filter may have to wait.
    pub waits: bool,
    /// System columns that are read, ctid apart.
    pub system: Vec<i16>,
    pub ctid: Option<Reg>,
}

impl Load {
    /// Loads a row; false when the filter drops it.
    #[inline]
    fn row(&self, cx: &mut ExecCx<'_>, t: TupleRef<'_>, at: RowId, base_xid: u64) -> Result<bool> {
        let engine = cx.store()?.engine;
        if let Some(ctid) = self.ctid {
            cx.regs[ctid as usize] = Datum::Tid(at);
        }
        if !self.system.is_empty() {
            self.system_columns(cx, &t, base_xid);
        }
        if let Some(filter) = &self.filter {
            if !self.first.is_empty() {
                self.table.load(engine, t, &self.first, &mut cx.regs, self.base)?;
            }
            if !filter.passes(cx)? {
                return Ok(false);
            }
        }
        if !self.rest.is_empty() {
            self.table.load(engine, t, &self.rest, &mut cx.regs, self.base)?;
        }
        Ok(true)
    }

    fn system_columns(&self, cx: &mut ExecCx<'_>, t: &TupleRef<'_>, base_xid: u64) {
        let first = self.base + self.table.def.columns.len() as u32;
        for col in &self.system {
            let value = match *col {
                system::XMIN => Datum::Oid(t.xmin(base_xid).raw() as u32),
                system::XMAX => Datum::Oid(t.xmax(base_xid).raw() as u32),
                system::CMIN | system::CMAX => Datum::Oid(t.cid().raw()),
                system::TABLEOID => Datum::Oid(self.table.def.oid.0),
                _ => continue,
            };
            cx.regs[(first + (-1 - i32::from(*col)) as u32) as usize] = value;
        }
    }

    /// Loads a newer version of the current row, whatever the filter says.
    pub fn reload(&self, cx: &mut ExecCx<'_>, buf: &TupleBuf) -> Result<()> {
        let Some(t) = buf.tuple() else { return Ok(()) };
        let engine = cx.store()?.engine;
        if let Some(ctid) = self.ctid {
            cx.regs[ctid as usize] = Datum::Tid(buf.row());
        }
        self.table.load(engine, t, &self.first, &mut cx.regs, self.base)?;
        self.table.load(engine, t, &self.rest, &mut cx.regs, self.base)
    }
}

pub struct SeqScan {
    pub load: Load,
    page: PageScan,
    item: usize,
    block: u32,
    blocks: Option<u32>,
}

impl SeqScan {
    pub fn new(load: Load) -> Self {
        SeqScan { load, page: PageScan::new(), item: 0, block: 0, blocks: None }
    }

    /// Brings the next page with visible rows; false at the end.
    fn next_page(&mut self, cx: &mut ExecCx<'_>) -> Result<bool> {
        let blocks = self.block_limit(cx)?;
        let store = cx.store()?;
        let tx = store.tx.borrow();
        let read = store.read(&tx);
        while self.block < blocks {
            heap::scan_page(
                store.engine,
                &read,
                &self.load.table.heap,
                self.block,
                &mut self.page,
            )?;
            self.block += 1;
            self.item = 0;
            if self.block & 31 == 0 {
                cx.fx.check_interrupt()?;
            }
            if !self.page.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl SeqScan {
    /// How many pages the scan has to visit, as it found them when it began.
    fn block_limit(&mut self, cx: &ExecCx<'_>) -> Result<u32> {
        if let Some(n) = self.blocks {
            return Ok(n);
        }
        // Before the end is looked up: whoever extends the table later meets the lock.
        cx.store()?.read_all(&self.load.table.heap)?;
        let pool = &cx.store()?.engine.pool;
        let n = pool.block_count(self.load.table.heap.rel, Fork::Main)?;
        self.page.set_ring(pool.ring_for(n));
        Ok(*self.blocks.insert(n))
    }

    /// A tuple that its page does not hold. A page that all see is listed without a look at each.
    #[cold]
    fn bad_tuple(&self, item: usize) -> SqlError {
        let row = self.page.row(item);
        let page = PageId::main(self.load.table.heap.rel, row.block);
        let what = format!("tuple exceeds the page (line pointer {})", row.slot.raw());
        StorageError::corrupt_page(page, what).into()
    }

    /// Counts the visible rows of the pages that are left. No page is copied.
    fn count_pages(&mut self, cx: &mut ExecCx<'_>) -> Result<u64> {
        let blocks = self.block_limit(cx)?;
        let store = cx.store()?;
        let tx = store.tx.borrow();
        let read = store.read(&tx);
        let mut count = 0;
        while self.block < blocks {
            let heap = &self.load.table.heap;
            let seen = heap::count_page(store.engine, &read, heap, self.block, &mut self.page)?;
            count += seen as u64;
            self.block += 1;
            if self.block & 31 == 0 {
                cx.fx.check_interrupt()?;
            }
        }
        Ok(count)
    }
}

impl Node for SeqScan {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            while self.item < self.page.len() {
                let i = self.item;
                self.item += 1;
                let Some(t) = self.page.tuple(i) else { return Err(self.bad_tuple(i)) };
                let (row, base) = (self.page.row(i), self.page.base());
                match cx.compute(self.load.waits, |cx| self.load.row(cx, t, row, base))? {
                    Computed::Value(true) => return Ok(Step::Row),
                    Computed::Value(false) => {}
                    Computed::Wait(handle) => {
                        self.item = i;
                        return Ok(Step::Wait(handle));
                    }
                }
            }
            if !self.next_page(cx)? {
                return Ok(Step::Done);
            }
        }
    }

    fn rescan(&mut self, _cx: &mut ExecCx<'_>) -> Result<()> {
        self.block = 0;
        self.blocks = None;
        self.item = usize::MAX;
        Ok(())
    }

    fn count_rest(&mut self, cx: &mut ExecCx<'_>) -> Option<Result<u64>> {
        if self.load.filter.is_some() {
            return None;
        }
        let current = self.page.len().saturating_sub(self.item) as u64;
        self.item = self.page.len();
        Some(self.count_pages(cx).map(|rest| current + rest))
    }
}

/// One column of an index scan's prefix.
pub enum Key {
    Equal(Ex),
    In(Vec<Ex>),
    AnyOf(Ex),
    IsNull,
}

pub struct Limit {
    pub value: Ex,
    pub inclusive: bool,
}

pub struct IndexScan {
    pub load: Load,
    pub index: usize,
    pub prefix: Vec<Key>,
    pub lower: Option<Limit>,
    pub upper: Option<Limit>,
    pub not_null: bool,
    pub backward: bool,
    /// The row's bytes are wanted by the operator that writes the table.
    pub keep: bool,
    /// Every key column has one value: one exact look-up.
    exact: bool,
    state: IndexState,
}

#[derive(Default)]
struct IndexState {
    started: bool,
    /// Key prefixes left to probe, last one first.
    probes: Vec<Vec<u8>>,
    key: Vec<u8>,
    cursor: Option<Cursor>,
    batch: IndexBatch,
    entry: usize,
    buf: TupleBuf,
}

impl IndexScan {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        load: Load,
        index: usize,
        prefix: Vec<Key>,
        lower: Option<Limit>,
        upper: Option<Limit>,
        not_null: bool,
        backward: bool,
        keep: bool,
    ) -> Self {
        let full = prefix.len() == load.table.indexes[index].columns.len();
        let exact = full && prefix.iter().all(|k| matches!(k, Key::Equal(_)));
        let state = IndexState::default();
        IndexScan { load, index, prefix, lower, upper, not_null, backward, keep, exact, state }
    }

    fn start(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.state.started = true;
        self.state.entry = 0;
        self.state.batch.clear();
        self.state.cursor = None;
        let index = &self.load.table.indexes[self.index];
        if self.exact {
            return start_exact(index, &self.prefix, &mut self.state, cx);
        }
        let mut keys = vec![Vec::new()];
        for (key, column) in self.prefix.iter().zip(&index.columns) {
            let values = key_values(key, column.0, cx)?;
            let mut longer = Vec::with_capacity(keys.len() * values.len());
            for k in &keys {
                for v in &values {
                    let mut k = k.clone();
                    keycode::encode_column(v, column.0, column.1, column.2, &mut k)?;
                    longer.push(k);
                }
            }
            keys = longer;
        }
        keys.sort();
        keys.dedup();
        if !self.backward {
            keys.reverse();
        }
        self.state.probes = keys;
        Ok(())
    }

    /// The range of the next probe.
    fn open(&mut self, cx: &mut ExecCx<'_>, prefix: Vec<u8>) -> Result<Option<Cursor>> {
        let index = &self.load.table.indexes[self.index];
        let direction = if self.backward { Direction::Backward } else { Direction::Forward };
        let mut low = Bound::Included(prefix.clone());
        let mut high = match after(&prefix) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        let bounded = self.lower.is_some() || self.upper.is_some() || self.not_null;
        if let Some(column) = index.columns.get(self.prefix.len())
            && bounded
        {
            // NULLs stand at one end; no comparison is true for them.
            let mut null = prefix.clone();
            keycode::encode_column(&Datum::Null, column.0, column.1, column.2, &mut null)?;
            match (column.2, after(&null)) {
                (true, Some(end)) => low = Bound::Included(end),
                (true, None) => return Ok(None),
                (false, _) => high = Bound::Excluded(null),
            }
            for (limit, is_lower) in [(&self.lower, true), (&self.upper, false)] {
                let Some(limit) = limit else { continue };
                let value = limit.value.eval(cx)?;
                let Some(bound) = fit_bound(value, column.0, is_lower, limit.inclusive) else {
                    return Ok(None);
                };
                let Some((value, inclusive)) = bound else { continue };
                let mut key = prefix.clone();
                keycode::encode_column(&value, column.0, column.1, column.2, &mut key)?;
                // A descending column turns the order of keys round.
                if is_lower != column.1 {
                    low = match (inclusive, after(&key)) {
                        (true, _) => Bound::Included(key),
                        (false, Some(end)) => Bound::Included(end),
                        (false, None) => return Ok(None),
                    };
                } else {
                    high = match (inclusive, after(&key)) {
                        (true, Some(end)) => Bound::Excluded(end),
                        (true, None) => Bound::Unbounded,
                        (false, _) => Bound::Excluded(key),
                    };
                }
            }
        }
        if let (Bound::Included(l), Bound::Excluded(h)) = (&low, &high)
            && l >= h
        {
            return Ok(None);
        }
        Ok(Some(Cursor::new(low, high, direction)))
    }

    /// Brings more entries; false at the end.
    fn more(&mut self, cx: &mut ExecCx<'_>) -> Result<bool> {
        let engine = cx.store()?.engine;
        self.state.entry = 0;
        loop {
            if let Some(cursor) = &mut self.state.cursor {
                let btree = &self.load.table.indexes[self.index].btree;
                let more = {
                    let tx = cx.store()?.tx.borrow();
                    cursor.next_batch_watched(engine, tx.watched(), btree, &mut self.state.batch)?
                };
                if more {
                    cx.fx.check_interrupt()?;
                    return Ok(true);
                }
                self.state.cursor = None;
            }
            self.state.batch.clear();
            let Some(prefix) = self.state.probes.pop() else { return Ok(false) };
            self.state.cursor = self.open(cx, prefix)?;
        }
    }
}

/// The look-up by a whole key: one descent, no range.
fn start_exact(
    index: &IndexExec,
    prefix: &[Key],
    state: &mut IndexState,
    cx: &mut ExecCx<'_>,
) -> Result<()> {
    state.probes.clear();
    state.key.clear();
    for (key, column) in prefix.iter().zip(&index.columns) {
        let Key::Equal(ex) = key else { continue };
        let value = match ex.peek(cx) {
            Some(value) => fit_key(value, column.0),
            None => fit_key(&ex.eval(cx)?, column.0),
        };
        let Some(value) = value else { return Ok(()) };
        keycode::encode_column(&value, column.0, column.1, column.2, &mut state.key)?;
    }
    let store = cx.store()?;
    let tx = store.tx.borrow();
    let (sx, btree) = (tx.watched(), &index.btree);
    btree::lookup_watched(store.engine, sx, btree, &state.key, &mut state.batch)?;
    Ok(())
}

/// The values that a prefix column may have, without NULLs unless NULL is asked for.
fn key_values(key: &Key, ty: Oid, cx: &mut ExecCx<'_>) -> Result<Vec<Datum>> {
    Ok(match key {
        Key::Equal(ex) => fit_key(&ex.eval(cx)?, ty).into_iter().collect(),
        Key::In(items) => {
            let mut values = Vec::with_capacity(items.len());
            for item in items {
                values.extend(fit_key(&item.eval(cx)?, ty));
            }
            values
        }
        Key::AnyOf(ex) => match ex.eval(cx)? {
            Datum::Array(a) => a.items.iter().filter_map(|v| fit_key(v, ty)).collect(),
            _ => vec![],
        },
        Key::IsNull => vec![Datum::Null],
    })
}

fn integer(d: &Datum) -> Option<i64> {
    match d {
        Datum::Int2(v) => Some(i64::from(*v)),
        Datum::Int4(v) => Some(i64::from(*v)),
        Datum::Int8(v) => Some(*v),
        _ => None,
    }
}

fn narrow(v: i64, ty: Oid) -> Option<Datum> {
    match ty {
        Oid::INT2 => i16::try_from(v).ok().map(Datum::Int2),
        Oid::INT4 => i32::try_from(v).ok().map(Datum::Int4),
        _ => Some(Datum::Int8(v)),
    }
}

/// A value as the index column's type has it; `None`: no row can have it.
#[inline]
fn fit_key(value: &Datum, ty: Oid) -> Option<Datum> {
    match (value, ty) {
        (Datum::Null, _) => None,
        (Datum::Int4(_), Oid::INT4) | (Datum::Int8(_), Oid::INT8) => Some(value.clone()),
        (_, Oid::INT2 | Oid::INT4 | Oid::INT8) => narrow(integer(value)?, ty),
        _ => Some(value.clone()),
    }
}

/// A bound's value in the index column's type. `None`: no row fits; `Some(None)`: all do.
#[allow(clippy::option_option)]
fn fit_bound(
    value: Datum,
    ty: Oid,
    is_lower: bool,
    inclusive: bool,
) -> Option<Option<(Datum, bool)>> {
    if value.is_null() {
        return None;
    }
    let Some(n) = integer(&value) else { return Some(Some((value, inclusive))) };
    match narrow(n, ty) {
        Some(fitting) => Some(Some((fitting, inclusive))),
        // Beyond the type's range: below everything or above everything.
        None if (n < 0) == is_lower => Some(None),
        None => None,
    }
}

/// The first key that is above every key with this prefix.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Some(end);
        }
        end.pop();
    }
    None
}

impl Node for IndexScan {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        if !self.state.started {
            self.start(cx)?;
        }
        loop {
            while self.state.entry < self.state.batch.len() {
                let root = self.state.batch.rows()[self.state.entry];
                self.state.entry += 1;
                match self.fetch(cx, root)? {
                    Computed::Value(true) => return Ok(Step::Row),
                    Computed::Value(false) => {}
                    Computed::Wait(handle) => {
                        self.state.entry -= 1;
                        return Ok(Step::Wait(handle));
                    }
                }
            }
            if !self.more(cx)? {
                return Ok(Step::Done);
            }
        }
    }

    fn rescan(&mut self, _cx: &mut ExecCx<'_>) -> Result<()> {
        self.state.started = false;
        Ok(())
    }
}

impl IndexScan {
    #[inline]
    fn fetch(&mut self, cx: &mut ExecCx<'_>, root: RowId) -> Result<Computed<bool>> {
        let store = cx.store()?;
        let found = {
            let tx = store.tx.borrow();
            let read = store.read(&tx);
            heap::fetch_hot(store.engine, &read, &self.load.table.heap, root, &mut self.state.buf)?
        };
        if !found {
            return Ok(Computed::Value(false));
        }
        let (row, base) = (self.state.buf.row(), self.state.buf.base());
        let Some(t) = self.state.buf.tuple() else { return Ok(Computed::Value(false)) };
        let passes = cx.compute(self.load.waits, |cx| self.load.row(cx, t, row, base))?;
        if matches!(passes, Computed::Value(true)) && self.keep {
            std::mem::swap(&mut cx.raw, &mut self.state.buf);
            cx.raw_of = self.load.table.def.oid;
        }
        Ok(passes)
    }
}

pub struct TidScan {
    pub load: Load,
    pub tids: Vec<Ex>,
    rows: Vec<RowId>,
    started: bool,
    buf: TupleBuf,
}

impl TidScan {
    pub fn new(load: Load, tids: Vec<Ex>) -> Self {
        TidScan { load, tids, rows: Vec::new(), started: false, buf: TupleBuf::new() }
    }
}

impl TidScan {
    fn fetch(&mut self, store: &Store<'_>, row: RowId) -> Result<bool> {
        let heap = &self.load.table.heap;
        let tx = store.tx.borrow();
        let read = store.read(&tx);
        if heap::fetch(store.engine, &read, heap, row, &mut self.buf)? {
            return Ok(true);
        }
        if read.watch.is_none() {
            return Ok(false);
        }
        // That nothing is there was read as well: only the table's lock speaks of that.
        store.read_all(heap)?;
        Ok(heap::fetch(store.engine, &read, heap, row, &mut self.buf)?)
    }
}

impl Node for TidScan {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        if !self.started {
            self.started = true;
            self.rows.clear();
            for ex in &self.tids {
                if let Datum::Tid(row) = ex.eval(cx)?
                    && !self.rows.contains(&row)
                {
                    self.rows.push(row);
                }
            }
            self.rows.reverse();
        }
        while let Some(row) = self.rows.pop() {
            let found = self.fetch(cx.store()?, row)?;
            let Some(t) = self.buf.tuple().filter(|_| found) else { continue };
            let base = self.buf.base();
            match cx.compute(self.load.waits, |cx| self.load.row(cx, t, row, base))? {
                Computed::Value(true) => return Ok(Step::Row),
                Computed::Value(false) => {}
                Computed::Wait(handle) => {
                    self.rows.push(row);
                    return Ok(Step::Wait(handle));
                }
            }
        }
        Ok(Step::Done)
    }

    fn rescan(&mut self, _cx: &mut ExecCx<'_>) -> Result<()> {
        self.started = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_after_a_prefix_is_above_all_that_start_with_it() {
        assert_eq!(after(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after(&[1, 255]), Some(vec![2]));
        assert_eq!(after(&[255, 255]), None);
    }

    #[test]
    fn bounds_beyond_the_column_type_take_all_or_nothing() {
        let big = Datum::Int8(1 << 40);
        assert_eq!(fit_bound(big.clone(), Oid::INT4, true, true), None);
        assert_eq!(fit_bound(big, Oid::INT4, false, true), Some(None));
        assert_eq!(fit_bound(Datum::Int8(-1 << 40), Oid::INT4, true, false), Some(None));
        assert_eq!(fit_bound(Datum::Null, Oid::INT4, true, false), None);
    }
}
