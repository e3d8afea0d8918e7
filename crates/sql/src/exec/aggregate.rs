//! Aggregation by hashing: one running state for each aggregate and group.
//!
//! Without grouping columns there is exactly one group, also over no rows. Groups come out in the
//! order of their first rows. DISTINCT and ORDER BY inside an aggregate collect the arguments and
//! feed them sorted when the group is finished.

use super::expr::Ex;
use super::rows::{KeyTable, Order, RowStore, compare_rows};
use super::{ExecCx, Node, Reg, Step};
use crate::error::Result;
use crate::functions::{AggFn, AggState};
use crate::types::{Datum, Oid};
use smallvec::SmallVec;

/// One aggregate call.
pub struct Aggregate {
    pub make: AggFn,
    pub arg_types: Vec<Oid>,
    pub args: Vec<Ex>,
    pub filter: Option<Ex>,
    pub distinct: bool,
    pub order: Vec<(Ex, Order)>,
    /// `count(*)`: no arguments to look at.
    pub counts_rows: bool,
    pub out: Reg,
}

impl Aggregate {
    fn start(&self) -> Slot {
        if self.counts_rows && !self.distinct && self.order.is_empty() {
            return Slot::Rows(0);
        }
        if self.distinct {
            return Slot::Distinct(Box::new(KeyTable::new(self.arg_types.clone())));
        }
        match self.order.is_empty() {
            true => Slot::State((self.make)(&self.arg_types)),
            false => {
                let width = self.order.len() + self.args.len();
                Slot::Sorted(Box::new(RowStore::new(width)))
            }
        }
    }

    fn update(&self, slot: &mut Slot, cx: &mut ExecCx<'_>) -> Result<()> {
        if let Some(filter) = &self.filter
            && !filter.passes(cx)?
        {
            return Ok(());
        }
        match slot {
            Slot::Rows(n) => {
                *n += 1;
                Ok(())
            }
            Slot::State(state) => match self.args.as_slice() {
                [arg] => match arg.peek(cx) {
                    Some(value) => state.update(std::slice::from_ref(value)),
                    None => state.update(&[arg.eval(cx)?]),
                },
                args => state.update(&values(args, cx)?),
            },
            Slot::Distinct(keys) => {
                keys.insert(&mut values(&self.args, cx)?)?;
                Ok(())
            }
            Slot::Sorted(rows) => {
                let mut row: SmallVec<[Datum; 4]> = SmallVec::new();
                for (key, _) in &self.order {
                    row.push(key.eval(cx)?);
                }
                row.extend(values(&self.args, cx)?);
                rows.push_values(row)
            }
        }
    }

    fn finish(&self, slot: &mut Slot) -> Result<Datum> {
        match slot {
            Slot::Rows(n) => Ok(Datum::Int8(*n)),
            Slot::State(state) => state.finish(),
            Slot::Distinct(keys) => {
                let mut state = (self.make)(&self.arg_types);
                let mut order: Vec<usize> = (0..keys.len()).collect();
                let orders = self.distinct_order();
                order.sort_by(|a, b| compare_rows(&orders, keys.key(*a), keys.key(*b)));
                for i in order {
                    state.update(keys.key(i))?;
                }
                state.finish()
            }
            Slot::Sorted(rows) => {
                let mut state = (self.make)(&self.arg_types);
                let orders: Vec<Order> = self.order.iter().map(|o| o.1).collect();
                let mut order: Vec<usize> = (0..rows.len()).collect();
                order.sort_by(|a, b| compare_rows(&orders, rows.row(*a), rows.row(*b)));
                for i in order {
                    state.update(&rows.row(i)[orders.len()..])?;
                }
                state.finish()
            }
        }
    }

    /// With DISTINCT the ORDER BY expressions are arguments; PostgreSQL insists, and so does the
    /// analyser. Only the direction of the first argument's order matters here.
    fn distinct_order(&self) -> Vec<Order> {
        let ascending = |ty: &Oid| Order { ty: *ty, descending: false, nulls_first: false };
        let mut orders: Vec<Order> = self.arg_types.iter().map(ascending).collect();
        if let (Some(first), Some((_, wanted))) = (orders.first_mut(), self.order.first()) {
            *first = *wanted;
        }
        orders
    }
}

fn values(args: &[Ex], cx: &mut ExecCx<'_>) -> Result<SmallVec<[Datum; 3]>> {
    let mut values = SmallVec::with_capacity(args.len());
    for arg in args {
        values.push(arg.eval(cx)?);
    }
    Ok(values)
}

enum Slot {
    Rows(i64),
    State(Box<dyn AggState>),
    Distinct(Box<KeyTable>),
    Sorted(Box<RowStore>),
}

pub struct HashAggregate {
    pub child: Box<dyn Node>,
    /// Grouping expressions and the registers that receive their values.
    pub keys: Vec<(Ex, Reg)>,
    pub aggregates: Vec<Aggregate>,
    /// Registers of the first row of a group that are read above (functionally dependent ones).
    pub carried: Vec<Reg>,
    groups: KeyTable,
    slots: Vec<Slot>,
    carry: RowStore,
    filled: bool,
    position: usize,
}

impl HashAggregate {
    pub fn new(
        child: Box<dyn Node>,
        keys: Vec<(Ex, Reg)>,
        key_types: Vec<Oid>,
        aggregates: Vec<Aggregate>,
        carried: Vec<Reg>,
    ) -> Self {
        let carry = RowStore::new(carried.len());
        HashAggregate {
            child,
            keys,
            aggregates,
            carried,
            groups: KeyTable::new(key_types),
            slots: Vec::new(),
            carry,
            filled: false,
            position: 0,
        }
    }

    fn add_group(&mut self) {
        self.slots.extend(self.aggregates.iter().map(Aggregate::start));
    }

    fn only_counts_rows(&self) -> bool {
        self.keys.is_empty()
            && self.carried.is_empty()
            && self.aggregates.iter().all(|a| a.counts_rows && a.filter.is_none() && !a.distinct)
    }

    fn fill(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Step>> {
        if self.keys.is_empty() && self.slots.is_empty() {
            self.add_group();
        }
        if self.only_counts_rows()
            && let Some(count) = self.child.count_rest(cx)
        {
            let count = count? as i64;
            for slot in &mut self.slots {
                if let Slot::Rows(n) = slot {
                    *n += count;
                }
            }
            return Ok(None);
        }
        loop {
            match self.child.next(cx)? {
                Step::Row => {}
                Step::Done => return Ok(None),
                wait => return Ok(Some(wait)),
            }
            let group = self.group(cx)?;
            let width = self.aggregates.len();
            let slots = &mut self.slots[group * width..(group + 1) * width];
            for (aggregate, slot) in self.aggregates.iter().zip(slots) {
                aggregate.update(slot, cx)?;
            }
            cx.tick()?;
        }
    }

    /// The current row's group.
    fn group(&mut self, cx: &mut ExecCx<'_>) -> Result<usize> {
        if self.keys.is_empty() {
            if self.carry.is_empty() && !self.carried.is_empty() {
                self.carry.push(None, &self.carried, cx)?;
            }
            return Ok(0);
        }
        let mut key: SmallVec<[Datum; 4]> = SmallVec::new();
        for (ex, _) in &self.keys {
            key.push(ex.eval(cx)?);
        }
        let (group, new) = self.groups.insert(&mut key)?;
        if new {
            self.add_group();
            self.carry.push(None, &self.carried, cx)?;
        }
        Ok(group)
    }
}

impl Node for HashAggregate {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        if !self.filled {
            if let Some(wait) = self.fill(cx)? {
                return Ok(wait);
            }
            self.filled = true;
        }
        let groups = if self.keys.is_empty() { 1 } else { self.groups.len() };
        let i = self.position;
        if i >= groups {
            return Ok(Step::Done);
        }
        self.position += 1;
        if i < self.carry.len() {
            self.carry.restore(i, 0, &self.carried, cx);
        } else {
            cx.set_null(&self.carried);
        }
        for (k, (_, reg)) in self.keys.iter().enumerate() {
            cx.set(*reg, self.groups.key(i)[k].clone());
        }
        let width = self.aggregates.len();
        for (k, aggregate) in self.aggregates.iter().enumerate() {
            let value = aggregate.finish(&mut self.slots[i * width + k])?;
            cx.set(aggregate.out, value);
        }
        Ok(Step::Row)
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.groups.clear();
        self.slots.clear();
        self.carry.clear();
        self.filled = false;
        self.position = 0;
        self.child.rescan(cx)
    }
}
