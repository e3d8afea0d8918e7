//! Rows that operators keep: flat storage, hash keys, and the memory they may take.

use super::{ExecCx, Reg};
use crate::error::{Result, SqlError, State};
use crate::types::compare::compare_as;
use crate::types::{self, Datum, Oid};
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};

/// How much one operator may keep before the statement is refused.
pub const MEMORY_LIMIT: usize = 2 << 30;

/// Rows of one width, one after the other.
#[derive(Default)]
pub struct RowStore {
    width: usize,
    data: Vec<Datum>,
    rows: usize,
    /// Bytes behind the values, estimated.
    bytes: usize,
}

impl RowStore {
    pub fn new(width: usize) -> Self {
        RowStore { width, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn clear(&mut self) {
        self.data.clear();
        self.rows = 0;
        self.bytes = 0;
    }

    pub fn row(&self, i: usize) -> &[Datum] {
        &self.data[i * self.width..(i + 1) * self.width]
    }

    /// Appends the values of registers after `head`.
    pub fn push(
        &mut self,
        head: impl IntoIterator<Item = Datum>,
        regs: &[Reg],
        cx: &ExecCx<'_>,
    ) -> Result<()> {
        let before = self.data.len();
        self.data.extend(head);
        self.data.extend(regs.iter().map(|r| cx.reg(*r).clone()));
        self.seal(before)
    }

    /// Appends one row of values.
    pub fn push_values(&mut self, values: impl IntoIterator<Item = Datum>) -> Result<()> {
        let before = self.data.len();
        self.data.extend(values);
        self.seal(before)
    }

    fn seal(&mut self, before: usize) -> Result<()> {
        debug_assert_eq!(self.data.len() - before, self.width, "rows of one width");
        self.rows += 1;
        self.bytes += self.data[before..].iter().map(behind).sum::<usize>();
        if self.bytes + self.data.len() * size_of::<Datum>() > MEMORY_LIMIT {
            return Err(too_much_memory());
        }
        Ok(())
    }

    /// Puts columns `skip..` of row `i` back into the registers.
    pub fn restore(&self, i: usize, skip: usize, regs: &[Reg], cx: &mut ExecCx<'_>) {
        let row = &self.data[i * self.width + skip..(i + 1) * self.width];
        for (reg, value) in regs.iter().zip(row) {
            cx.regs[*reg as usize].clone_from(value);
        }
    }

    /// Keeps the rows named in `order`, in that order.
    pub fn reorder(&mut self, order: &[u32]) {
        let mut data = Vec::with_capacity(order.len() * self.width);
        for i in order {
            let start = *i as usize * self.width;
            data.extend(self.data[start..start + self.width].iter_mut().map(std::mem::take));
        }
        self.data = data;
        self.rows = order.len();
        self.bytes = self.data.iter().map(behind).sum();
    }
}

/// Heap bytes behind a value.
fn behind(d: &Datum) -> usize {
    match d {
        Datum::Text(t) if t.len() > 24 => t.len(),
        Datum::Bytea(b) => b.len(),
        Datum::Array(a) => a.items.len() * size_of::<Datum>() + 64,
        Datum::Record(r) => r.len() * size_of::<Datum>(),
        Datum::Numeric(_) => 48,
        _ => 0,
    }
}

pub fn too_much_memory() -> SqlError {
    SqlError::new(State::OUT_OF_MEMORY, "out of memory")
        .detail(format!("A sort or hash would keep more than {} MB in memory.", MEMORY_LIMIT >> 20))
        .hint("Select fewer rows or columns, or add an index that gives the order.")
}

/// One column of a sort order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    pub ty: Oid,
    pub descending: bool,
    pub nulls_first: bool,
}

impl Order {
    #[inline]
    pub fn compare(&self, a: &Datum, b: &Datum) -> Ordering {
        match (a.is_null(), b.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if self.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if self.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let order = compare_as(self.ty, a, b);
                if self.descending { order.reverse() } else { order }
            }
        }
    }
}

pub fn compare_rows(orders: &[Order], a: &[Datum], b: &[Datum]) -> Ordering {
    for (i, order) in orders.iter().enumerate() {
        let o = order.compare(&a[i], &b[i]);
        if o.is_ne() {
            return o;
        }
    }
    Ordering::Equal
}

/// Whether keys are equal in the sense of GROUP BY: NULLs are equal to each other.
pub fn same_keys(tys: &[Oid], a: &[Datum], b: &[Datum]) -> bool {
    tys.iter().enumerate().all(|(i, ty)| compare_as(*ty, &a[i], &b[i]).is_eq())
}

/// Hashes key values so that equal keys (see [`same_keys`]) hash alike.
#[derive(Clone, Default)]
pub struct KeyHasher(foldhash::fast::RandomState);

impl KeyHasher {
    pub fn hash(&self, tys: &[Oid], key: &[Datum]) -> u64 {
        let mut h = self.0.build_hasher();
        for (i, ty) in tys.iter().enumerate() {
            match (&key[i], *ty) {
                (Datum::Text(t), Oid::BPCHAR) => h.write(t.trim_end_matches(' ').as_bytes()),
                (d, _) => types::hash(d, &mut h),
            }
        }
        h.finish()
    }
}

/// A set of keys, each with its number in order of arrival.
#[derive(Default)]
pub struct KeyTable {
    tys: Vec<Oid>,
    hasher: KeyHasher,
    table: hashbrown::HashTable<u32>,
    keys: RowStore,
    hashes: Vec<u64>,
}

impl KeyTable {
    pub fn new(tys: Vec<Oid>) -> Self {
        let keys = RowStore::new(tys.len());
        KeyTable { tys, keys, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    pub fn clear(&mut self) {
        self.table.clear();
        self.keys.clear();
        self.hashes.clear();
    }

    pub fn key(&self, i: usize) -> &[Datum] {
        self.keys.row(i)
    }

    pub fn find(&self, key: &[Datum]) -> Option<usize> {
        let hash = self.hasher.hash(&self.tys, key);
        let same = |i: &u32| {
            let i = *i as usize;
            self.hashes[i] == hash && same_keys(&self.tys, self.keys.row(i), key)
        };
        self.table.find(hash, same).map(|i| *i as usize)
    }

    /// The number of `key`, and whether it is new. The key's values are taken when it is.
    pub fn insert(&mut self, key: &mut [Datum]) -> Result<(usize, bool)> {
        let hash = self.hasher.hash(&self.tys, key);
        let same = |i: &u32| {
            let i = *i as usize;
            self.hashes[i] == hash && same_keys(&self.tys, self.keys.row(i), key)
        };
        if let Some(i) = self.table.find(hash, same) {
            return Ok((*i as usize, false));
        }
        let number = self.hashes.len();
        let hashes = &mut self.hashes;
        hashes.push(hash);
        self.table.insert_unique(hash, number as u32, |i| hashes[*i as usize]);
        self.keys.push_values(key.iter_mut().map(std::mem::take))?;
        Ok((number, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbered_by_first_arrival_and_nulls_are_equal() {
        let mut table = KeyTable::new(vec![Oid::INT4]);
        let mut add = |v: Datum| table.insert(&mut [v]).expect("small");
        assert_eq!(add(Datum::Int4(5)), (0, true));
        assert_eq!(add(Datum::Null), (1, true));
        assert_eq!(add(Datum::Int4(5)), (0, false));
        assert_eq!(add(Datum::Null), (1, false));
    }

    #[test]
    fn nulls_go_where_the_order_says() {
        let order = Order { ty: Oid::INT4, descending: true, nulls_first: true };
        assert_eq!(order.compare(&Datum::Null, &Datum::Int4(1)), Ordering::Less);
        assert_eq!(order.compare(&Datum::Int4(2), &Datum::Int4(1)), Ordering::Less);
    }
}
