//! Statements that a session sent before without preparing them: kept bound and planned, found
//! again by their text.
//!
//! ```text
//!   simple query --lift literals--> text with $n --.
//!   Parse (any name) ------------------------------+--> seen once? remember | kept? use it
//! ```
//!
//! A client that builds its SQL by pasting values in (psycopg2, pgbench's simple mode) pays for
//! grammar, analysis and planning once a shape, not once a statement; PostgreSQL pays each time.
//!
//! Rules:
//! 1. A text is prepared when it comes for the second time; what comes once costs a hash.
//! 2. What is kept was made under one catalog version, search path and state of the settings, and
//!    is used under no other.
//! 3. A lifted text stands for the original only if it prepares, returns the same columns, every
//!    parameter got a type, and the choice of plan could not have used the values: no partial or
//!    expression index, no long plan.
//! 4. Whatever goes wrong on the way (a value that its type does not take, say) is left to the
//!    ordinary path, whose errors have the right positions.
//!
//! The size is `statement_cache_size`; a full cache gives up what was not used since it was full
//! the last time.

use super::Session;
use super::block::Block;
use super::prepared::{Bound, Prepared};
use crate::analyze::literals::{Lifted, LiteralKind};
use crate::analyze::statement::ParamTypes;
use crate::catalog::CatalogSnapshot;
use crate::error::Result;
use crate::plan::StatementPlan;
use crate::types::{Datum, Oid};
use hashbrown::HashMap;
use std::sync::Arc;

/// Texts longer than this are not looked at.
const MAX_TEXT: usize = 8 << 10;

#[derive(Default)]
pub(super) struct StatementCache {
    entries: HashMap<Box<str>, Entry>,
    /// Buffers of the last lookup.
    lifted: Lifted,
    key: String,
}

struct Entry {
    state: State,
    made_under: Circumstances,
    used: bool,
}

enum State {
    /// Came once.
    Seen,
    /// Cannot be kept.
    Refused,
    Kept(Arc<Prepared>),
}

/// What a plan depends on besides the text (rule 2).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Circumstances {
    catalog: u64,
    settings: u64,
}

enum Found {
    Kept(Arc<Prepared>),
    Make,
    Nothing,
}

impl StatementCache {
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn find(&mut self, now: Circumstances, capacity: usize) -> Found {
        match self.entries.get_mut(self.key.as_str()) {
            Some(entry) => {
                entry.used = true;
                match &entry.state {
                    _ if entry.made_under != now => Found::Make,
                    State::Seen => Found::Make,
                    State::Refused => Found::Nothing,
                    State::Kept(prepared) => Found::Kept(Arc::clone(prepared)),
                }
            }
            None => {
                self.put(State::Seen, now, capacity);
                Found::Nothing
            }
        }
    }

    fn put(&mut self, state: State, now: Circumstances, capacity: usize) {
        if self.entries.len() >= capacity && !self.entries.contains_key(self.key.as_str()) {
            self.entries.retain(|_, e| std::mem::take(&mut e.used));
            if self.entries.len() >= capacity {
                self.entries.clear();
            }
        }
        let entry = Entry { state, made_under: now, used: true };
        self.entries.insert(self.key.as_str().into(), entry);
    }
}

impl Session {
    /// The prepared statement and parameters that stand for `sql`, if such a statement came
    /// before; None: prepare it.
    pub fn recall(&mut self, sql: &str) -> Option<(Arc<Prepared>, Vec<Datum>)> {
        let capacity = self.cache_capacity(sql)?;
        if !self.cache.lifted.lift(sql) {
            return None;
        }
        let now = self.circumstances()?;
        let cache = &mut self.cache;
        cache.key.clear();
        cache.key.push('q');
        cache.key.push_str(&cache.lifted.text);
        cache.key.push('\0');
        cache.key.extend(cache.lifted.literals.iter().map(|l| match l.kind {
            LiteralKind::Integer => 'i',
            LiteralKind::Numeric => 'n',
            LiteralKind::Text => 't',
        }));
        let prepared = match self.cache.find(now, capacity) {
            Found::Kept(prepared) => prepared,
            Found::Nothing => return None,
            Found::Make => {
                let made = self.prepare_lifted(sql);
                let state = made.clone().map_or(State::Refused, State::Kept);
                self.cache.put(state, now, capacity);
                made?
            }
        };
        let mut values = Vec::with_capacity(prepared.params().len());
        for (literal, ty) in self.cache.lifted.literals.iter().zip(prepared.params()) {
            values.push(literal.value(sql, *ty, &self.around)?);
        }
        Some((prepared, values))
    }

    /// Prepares one statement of the extended protocol, or finds it prepared.
    pub(super) fn recall_or_prepare(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        let lookup = self.cache_capacity(sql).zip(self.circumstances());
        let Some((capacity, now)) = lookup else { return self.prepare_text(sql, types) };
        let cache = &mut self.cache;
        cache.key.clear();
        cache.key.push('p');
        cache.key.push_str(sql);
        for ty in types {
            let mut digits = itoa::Buffer::new();
            cache.key.push('\0');
            cache.key.push_str(digits.format(ty.0));
        }
        match self.cache.find(now, capacity) {
            Found::Kept(prepared) => Ok(prepared),
            Found::Nothing => self.prepare_text(sql, types),
            Found::Make => {
                let prepared = self.prepare_text(sql, types)?;
                let state = match prepared.bound() {
                    Bound::Planned(_) => State::Kept(Arc::clone(&prepared)),
                    Bound::Utility(_) | Bound::Empty => State::Refused,
                };
                self.cache.put(state, now, capacity);
                Ok(prepared)
            }
        }
    }

    /// How many statements may be kept; None: this one is not looked for.
    fn cache_capacity(&self, sql: &str) -> Option<usize> {
        let capacity = self.around.with_decoded(|d| d.statement_cache_size);
        let looked_for = capacity > 0 && sql.len() <= MAX_TEXT && self.block != Block::Failed;
        looked_for.then_some(capacity)
    }

    /// None: nothing that is made now can be kept.
    fn circumstances(&mut self) -> Option<Circumstances> {
        let catalog = self.catalog().ok()?.version;
        let settings = self.around.settings().version();
        (catalog != CatalogSnapshot::OWN).then_some(Circumstances { catalog, settings })
    }

    /// Prepares the lifted text; None: it cannot stand for `sql` (rule 3).
    fn prepare_lifted(&mut self, sql: &str) -> Option<Arc<Prepared>> {
        let mut original = self.parse_statements(sql).ok()?;
        let original = self
            .prepare_parsed(original.pop(), ParamTypes::none())
            .ok()
            .filter(|_| original.is_empty())?;
        let kinds: Vec<LiteralKind> = self.cache.lifted.literals.iter().map(|l| l.kind).collect();
        if kinds.is_empty() {
            return (!original.is_long()).then_some(original);
        }
        let declared = kinds.iter().map(|k| k.declared()).collect();
        let mut parsed = self.parse_statements(&self.cache.lifted.text).ok()?;
        let lifted = self.prepare_parsed(parsed.pop(), ParamTypes::variable(declared)).ok()?;
        let Bound::Planned(plan) = lifted.bound() else { return None };
        let stands = parsed.is_empty()
            && lifted.columns() == original.columns()
            && lifted.params().len() == kinds.len()
            && lifted.params().iter().zip(&kinds).all(|(ty, kind)| keeps_meaning(*ty, *kind))
            && !original.is_long()
            && !lifted.is_long()
            && !values_matter(&plan);
        stands.then_some(lifted)
    }
}

/// Whether a parameter of type `ty` means what the literal did. An interval's fields decide how
/// the literal's text is read; a parameter would not know them. A relation's name decides what the
/// statement locks.
fn keeps_meaning(ty: Oid, kind: LiteralKind) -> bool {
    match kind {
        LiteralKind::Integer | LiteralKind::Numeric => ty == kind.declared(),
        LiteralKind::Text => {
            ty.is_valid() && !matches!(ty, Oid::UNKNOWN | Oid::INTERVAL | Oid::REGCLASS)
        }
    }
}

/// Whether the planner may have compared the statement's constants with an index's own.
fn values_matter(plan: &StatementPlan) -> bool {
    plan.tables.iter().flat_map(|(table, _)| &table.indexes).any(|index| {
        index.predicate.is_some() || index.columns.iter().any(|column| column.expr.is_some())
    })
}
