//! Sorting in memory, with a bound when only the first rows are wanted.

use super::expr::Ex;
use super::rows::{Order, RowStore, compare_rows};
use super::{ExecCx, Node, Reg, Step};
use crate::error::Result;
use crate::types::Datum;
use smallvec::SmallVec;

pub struct Sort {
    pub child: Box<dyn Node>,
    pub keys: Vec<Ex>,
    pub orders: Vec<Order>,
    /// Live registers, restored with each row.
    pub saved: Vec<Reg>,
    bound: Option<u64>,
    /// Keys, then saved registers.
    rows: RowStore,
    /// The order of `rows`, once sorted.
    sorted: Option<Vec<u32>>,
    position: usize,
}

impl Sort {
    pub fn new(child: Box<dyn Node>, keys: Vec<Ex>, orders: Vec<Order>, saved: Vec<Reg>) -> Self {
        let rows = RowStore::new(keys.len() + saved.len());
        Sort { child, keys, orders, saved, bound: None, rows, sorted: None, position: 0 }
    }

    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        if let Some(numbers) = self.integer_keys() {
            let descending = self.orders[0].descending;
            order.sort_by_key(|i| {
                let n = numbers[*i as usize];
                if descending { !n } else { n }
            });
        } else {
            let (rows, orders) = (&self.rows, &self.orders);
            order
                .sort_by(|a, b| compare_rows(orders, rows.row(*a as usize), rows.row(*b as usize)));
        }
        order
    }

    /// The keys as integers, when there is one key and all of it is.
    fn integer_keys(&self) -> Option<Vec<i64>> {
        if self.orders.len() != 1 {
            return None;
        }
        (0..self.rows.len())
            .map(|i| match &self.rows.row(i)[0] {
                Datum::Int2(v) => Some(i64::from(*v)),
                Datum::Int4(v) => Some(i64::from(*v)),
                Datum::Int8(v) | Datum::Timestamp(v) => Some(*v),
                _ => None,
            })
            .collect()
    }

    /// Forgets the rows beyond the bound when twice as many are kept.
    fn trim(&mut self) {
        let Some(bound) = self.bound else { return };
        let Ok(bound) = usize::try_from(bound) else { return };
        if self.rows.len() >= (bound * 2).max(1024) {
            let mut order = self.order();
            order.truncate(bound);
            self.rows.reorder(&order);
        }
    }

    fn fill(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Step>> {
        loop {
            match self.child.next(cx)? {
                Step::Row => {}
                Step::Done => break,
                wait => return Ok(Some(wait)),
            }
            let mut key: SmallVec<[Datum; 4]> = SmallVec::new();
            for ex in &self.keys {
                key.push(ex.eval(cx)?);
            }
            self.rows.push(key, &self.saved, cx)?;
            self.trim();
            cx.tick()?;
        }
        self.sorted = Some(self.order());
        Ok(None)
    }
}

impl Node for Sort {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        if self.sorted.is_none()
            && let Some(wait) = self.fill(cx)?
        {
            return Ok(wait);
        }
        let row = self.sorted.as_ref().and_then(|s| s.get(self.position)).copied();
        let Some(row) = row else { return Ok(Step::Done) };
        self.position += 1;
        self.rows.restore(row as usize, self.keys.len(), &self.saved, cx);
        Ok(Step::Row)
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.rows.clear();
        self.sorted = None;
        self.position = 0;
        self.child.rescan(cx)
    }

    fn set_bound(&mut self, rows: Option<u64>) {
        self.bound = rows;
    }
}
