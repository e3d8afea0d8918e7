//! Joins: nested loop and hash.
//!
//! ```text
//!   nested loop   for each outer row: rescan the inner side, which reads the outer registers
//!                 (an index probe), or goes through rows kept by Materialize
//!   hash join     keep the inner side's rows by key; for each outer row look its key up
//! ```
//!
//! - `filter` is the rest of the join condition: a pair that fails it does not match.
//! - Left and anti joins of both kinds, and right and full hash joins, set the missing side's
//!   registers to NULL.
//! - A key with a NULL matches nothing.

use super::expr::Ex;
use super::rows::{KeyHasher, RowStore, same_keys};
use super::{ExecCx, Node, Reg, Step};
use crate::error::Result;
use crate::types::{Datum, Oid};
use smallvec::SmallVec;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinType {
    Inner,
    Left,
    /// Hash join only.
    Right,
    Full,
    /// Outer rows that have a match; the inner side's columns are not seen above.
    Semi,
    /// Outer rows that have none.
    Anti,
}

pub struct NestedLoop {
    pub kind: JoinType,
    pub outer: Box<dyn Node>,
    pub inner: Box<dyn Node>,
    pub filter: Option<Ex>,
    /// The inner side's registers, for NULLs of a left join.
    pub inner_regs: Vec<Reg>,
    have_outer: bool,
    matched: bool,
}

impl NestedLoop {
    pub fn new(
        kind: JoinType,
        outer: Box<dyn Node>,
        inner: Box<dyn Node>,
        filter: Option<Ex>,
        inner_regs: Vec<Reg>,
    ) -> Self {
        NestedLoop { kind, outer, inner, filter, inner_regs, have_outer: false, matched: false }
    }
}

impl Node for NestedLoop {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            if !self.have_outer {
                match self.outer.next(cx)? {
                    Step::Row => {}
                    other => return Ok(other),
                }
                self.inner.rescan(cx)?;
                self.have_outer = true;
                self.matched = false;
            }
            match self.inner.next(cx)? {
                Step::Wait(h) => return Ok(Step::Wait(h)),
                Step::Row => {
                    if let Some(filter) = &self.filter
                        && !filter.passes(cx)?
                    {
                        cx.tick()?;
                        continue;
                    }
                    self.matched = true;
                    match self.kind {
                        JoinType::Semi => {
                            self.have_outer = false;
                            return Ok(Step::Row);
                        }
                        JoinType::Anti => self.have_outer = false,
                        _ => return Ok(Step::Row),
                    }
                }
                Step::Done => {
                    self.have_outer = false;
                    if !self.matched && matches!(self.kind, JoinType::Left | JoinType::Anti) {
                        cx.set_null(&self.inner_regs);
                        return Ok(Step::Row);
                    }
                    cx.tick()?;
                }
            }
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.have_outer = false;
        self.outer.rescan(cx)
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Build,
    Probe,
    /// In the chain of the current outer row; the next candidate.
    Chain(u32),
    /// Inner rows that matched nothing.
    Unmatched(u32),
}

pub struct HashJoin {
    pub kind: JoinType,
    pub outer: Box<dyn Node>,
    pub inner: Box<dyn Node>,
    pub outer_keys: Vec<Ex>,
    pub inner_keys: Vec<Ex>,
    pub key_types: Vec<Oid>,
    pub filter: Option<Ex>,
    /// The inner side's live registers.
    pub saved: Vec<Reg>,
    /// The outer side's live registers, for NULLs of right and full joins.
    pub outer_regs: Vec<Reg>,
    /// The inner side reads nothing that changes during a statement.
    pub fixed: bool,
    state: HashState,
}

#[derive(Default)]
struct HashState {
    phase: Option<Phase>,
    hasher: KeyHasher,
    /// Keys, then saved registers.
    rows: RowStore,
    hashes: Vec<u64>,
    next: Vec<u32>,
    heads: Vec<u32>,
    matched: Vec<bool>,
    key: SmallVec<[Datum; 4]>,
    hash: u64,
    found: bool,
    run: u64,
}

/// What a hash join is made of.
pub struct HashJoinParts {
    pub kind: JoinType,
    pub outer: Box<dyn Node>,
    pub inner: Box<dyn Node>,
    pub outer_keys: Vec<Ex>,
    pub inner_keys: Vec<Ex>,
    pub key_types: Vec<Oid>,
    pub filter: Option<Ex>,
    pub saved: Vec<Reg>,
    pub outer_regs: Vec<Reg>,
    pub fixed: bool,
}

impl HashJoin {
    pub fn new(p: HashJoinParts) -> Self {
        let rows = RowStore::new(p.key_types.len() + p.saved.len());
        HashJoin {
            kind: p.kind,
            outer: p.outer,
            inner: p.inner,
            outer_keys: p.outer_keys,
            inner_keys: p.inner_keys,
            key_types: p.key_types,
            filter: p.filter,
            saved: p.saved,
            outer_regs: p.outer_regs,
            fixed: p.fixed,
            state: HashState { rows, ..HashState::default() },
        }
    }

    fn keeps_unmatched(&self) -> bool {
        matches!(self.kind, JoinType::Right | JoinType::Full)
    }

    /// Reads the inner side; `Some` is a wait.
    fn build(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Step>> {
        loop {
            match self.inner.next(cx)? {
                Step::Row => {}
                Step::Done => break,
                wait => return Ok(Some(wait)),
            }
            let mut key: SmallVec<[Datum; 4]> = SmallVec::new();
            for ex in &self.inner_keys {
                key.push(ex.eval(cx)?);
            }
            if key.iter().any(Datum::is_null) && !self.keeps_unmatched() {
                continue;
            }
            self.state.hashes.push(self.state.hasher.hash(&self.key_types, &key));
            self.state.rows.push(key, &self.saved, cx)?;
            cx.tick()?;
        }
        self.link();
        Ok(None)
    }

    fn link(&mut self) {
        let state = &mut self.state;
        let count = state.hashes.len();
        let buckets = (count * 2).next_power_of_two().max(16);
        state.heads = vec![NONE; buckets];
        state.next = vec![NONE; count];
        state.matched = vec![false; count];
        for i in (0..count).rev() {
            if state.rows.row(i)[..self.key_types.len()].iter().any(Datum::is_null) {
                continue;
            }
            let bucket = state.hashes[i] as usize & (buckets - 1);
            state.next[i] = state.heads[bucket];
            state.heads[bucket] = i as u32;
        }
        state.phase = Some(Phase::Probe);
    }

    /// Takes the next outer row and finds its chain.
    fn probe(&mut self, cx: &mut ExecCx<'_>) -> Result<Option<Step>> {
        match self.outer.next(cx)? {
            Step::Row => {}
            Step::Done => {
                if !self.keeps_unmatched() {
                    return Ok(Some(Step::Done));
                }
                cx.set_null(&self.outer_regs);
                self.state.phase = Some(Phase::Unmatched(0));
                return Ok(None);
            }
            wait => return Ok(Some(wait)),
        }
        self.state.key.clear();
        for ex in &self.outer_keys {
            let value = ex.eval(cx)?;
            self.state.key.push(value);
        }
        self.state.found = false;
        let mut first = NONE;
        if !self.state.key.iter().any(Datum::is_null) {
            self.state.hash = self.state.hasher.hash(&self.key_types, &self.state.key);
            first = self.state.heads[self.state.hash as usize & (self.state.heads.len() - 1)];
        }
        self.state.phase = Some(Phase::Chain(first));
        Ok(None)
    }

    /// Goes on in the chain from candidate `at`: true when a row is current.
    fn chain(&mut self, cx: &mut ExecCx<'_>, mut at: u32) -> Result<bool> {
        let keys = self.key_types.len();
        while at != NONE {
            let i = at as usize;
            at = self.state.next[i];
            let same = self.state.hashes[i] == self.state.hash
                && same_keys(&self.key_types, self.state.rows.row(i), &self.state.key);
            if !same {
                continue;
            }
            self.state.rows.restore(i, keys, &self.saved, cx);
            if let Some(filter) = &self.filter
                && !filter.passes(cx)?
            {
                cx.tick()?;
                continue;
            }
            self.state.found = true;
            self.state.matched[i] = true;
            match self.kind {
                JoinType::Semi => {
                    self.state.phase = Some(Phase::Probe);
                    return Ok(true);
                }
                JoinType::Anti => {
                    self.state.phase = Some(Phase::Probe);
                    return Ok(false);
                }
                _ => {
                    self.state.phase = Some(Phase::Chain(at));
                    return Ok(true);
                }
            }
        }
        self.state.phase = Some(Phase::Probe);
        let alone = matches!(self.kind, JoinType::Left | JoinType::Full | JoinType::Anti);
        if alone && !self.state.found {
            cx.set_null(&self.saved);
            return Ok(true);
        }
        Ok(false)
    }

    fn unmatched(&mut self, cx: &mut ExecCx<'_>, mut i: u32) -> Step {
        while (i as usize) < self.state.rows.len() {
            let row = i as usize;
            i += 1;
            if !self.state.matched[row] {
                self.state.rows.restore(row, self.key_types.len(), &self.saved, cx);
                cx.set_null(&self.outer_regs);
                self.state.phase = Some(Phase::Unmatched(i));
                return Step::Row;
            }
        }
        self.state.phase = Some(Phase::Unmatched(i));
        Step::Done
    }
}

impl Node for HashJoin {
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step> {
        loop {
            match self.state.phase.unwrap_or(Phase::Build) {
                Phase::Build => {
                    if let Some(wait) = self.build(cx)? {
                        return Ok(wait);
                    }
                }
                Phase::Probe => {
                    if let Some(step) = self.probe(cx)? {
                        return Ok(step);
                    }
                }
                Phase::Chain(at) => {
                    if self.chain(cx, at)? {
                        return Ok(Step::Row);
                    }
                    cx.tick()?;
                }
                Phase::Unmatched(i) => return Ok(self.unmatched(cx, i)),
            }
        }
    }

    fn rescan(&mut self, cx: &mut ExecCx<'_>) -> Result<()> {
        self.outer.rescan(cx)?;
        let state = &mut self.state;
        let built = state.phase.is_some_and(|p| p != Phase::Build);
        if built && self.fixed && state.run == cx.run {
            state.phase = Some(Phase::Probe);
            state.matched.fill(false);
            return Ok(());
        }
        state.run = cx.run;
        state.rows.clear();
        state.hashes.clear();
        state.phase = Some(Phase::Build);
        self.inner.rescan(cx)
    }
}
