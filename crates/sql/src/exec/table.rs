//! Tables as the executor uses them: row codec, heap, indexes with their key makers.
//!
//! A [`TableExec`] is made once for each version of a table's definition and shared by all
//! sessions, so that what the index remembers of its top page serves everybody.

use super::expr::Ex;
use super::foreign::Watch;
use super::{ExecCx, Reg, long};
use crate::catalog::{IndexDef, Persistence, TableDef};
use crate::error::{Result, SqlError};
use crate::functions::FnContext;
use crate::keycode;
use crate::row::{RowCodec, RowView};
use crate::types::{Datum, Oid};
use hashbrown::HashMap;
use inkling_storage::btree::BtreeRel;
use inkling_storage::engine::Engine;
use inkling_storage::heap::HeapRel;
use parking_lot::RwLock;
use std::sync::Arc;

/// A table ready for use.
pub struct TableExec {
    pub def: Arc<TableDef>,
    pub heap: HeapRel,
    pub codec: RowCodec,
    pub indexes: Vec<IndexExec>,
    /// By column: whether some index uses it (key, INCLUDE, expression or condition).
    pub indexed: Vec<bool>,
    /// The foreign keys that its rows are part of.
    pub watch: Option<Box<Watch>>,
}

pub struct IndexExec {
    pub def: Arc<IndexDef>,
    pub btree: BtreeRel,
    pub columns: Vec<(Oid, bool, bool)>,
    pub sources: Vec<KeySource>,
    pub predicate: Option<Ex>,
    registers: usize,
    /// Columns of the table that an entry depends on, ascending.
    pub uses: Vec<usize>,
}

/// Where a key column's value comes from.
pub enum KeySource {
    Column(usize),
    /// Over the table's columns in registers 0, 1, ...
    Expr(Ex),
}

/// An index's expressions, compiled with column i in register i.
#[derive(Default)]
pub struct CompiledParts {
    pub exprs: Vec<Option<Ex>>,
    pub predicate: Option<Ex>,
    /// How many registers they need, the row's included.
    pub registers: usize,
}

impl TableExec {
    /// `parts` compiles the expressions of an index.
    pub fn new(
        def: &Arc<TableDef>,
        parts: &dyn Fn(&Arc<IndexDef>) -> Result<CompiledParts>,
    ) -> Result<TableExec> {
        let mut heap = HeapRel::new(def.rel).with_fillfactor(def.fillfactor);
        if let Some((rel, _)) = def.toast {
            heap = heap.with_toast(rel);
        }
        // Catalogs, temporary tables and long values are nobody's dependencies (rule R1 of `ssi`).
        let watched = def.persistence != Persistence::Temporary && !def.system;
        if watched {
            heap = heap.watched();
        }
        let mut indexed = vec![false; def.columns.len()];
        let mut indexes = Vec::with_capacity(def.indexes.len());
        for index in &def.indexes {
            let mut exec = IndexExec::new(index, parts(index)?);
            if watched {
                exec.btree = exec.btree.watched();
            }
            for c in &exec.uses {
                indexed[*c] = true;
            }
            indexes.push(exec);
        }
        let (codec, watch) = (RowCodec::of_table(def), Watch::of(def));
        Ok(TableExec { def: def.clone(), heap, codec, indexes, indexed, watch })
    }

    pub fn index(&self, oid: Oid) -> Result<usize> {
        self.indexes
            .iter()
            .position(|i| i.def.oid == oid)
            .ok_or_else(|| SqlError::internal(format!("index {oid} is not one of the table's")))
    }

    /// Loads the values of `wanted` columns into the block of registers at `base`.
    #[inline]
    pub fn load<'r>(
        &self,
        engine: &Engine,
        row: impl Into<RowView<'r>>,
        wanted: &[usize],
        regs: &mut [Datum],
        base: Reg,
    ) -> Result<()> {
        let base = base as usize;
        let out = &mut regs[base..base + self.def.columns.len()];
        let fetch = |pointer: &[u8]| self.fetch_long(engine, pointer);
        self.codec.decode_columns(row, wanted, &fetch, out)
    }

    /// All columns of a row.
    pub fn values<'r>(&self, engine: &Engine, row: impl Into<RowView<'r>>) -> Result<Vec<Datum>> {
        let mut values = vec![Datum::Null; self.def.columns.len()];
        let fetch = |pointer: &[u8]| self.fetch_long(engine, pointer);
        self.codec.decode_with(row, values.len(), &fetch, &mut values)?;
        Ok(values)
    }

    fn fetch_long(&self, engine: &Engine, packed: &[u8]) -> Result<Vec<u8>> {
        long::unpack(engine, self.heap.toast, packed)
    }
}

impl IndexExec {
    fn new(def: &Arc<IndexDef>, parts: CompiledParts) -> IndexExec {
        let mut uses = Vec::new();
        let mut sources = Vec::with_capacity(def.key_columns);
        let mut note = |ex: &Ex| {
            ex.visit(&mut |e| {
                if let Ex::Reg(r) = e {
                    uses.push(*r as usize);
                }
            });
        };
        let mut exprs = parts.exprs.into_iter();
        for column in def.columns.iter().take(def.key_columns) {
            match exprs.next().flatten() {
                Some(ex) => {
                    note(&ex);
                    sources.push(KeySource::Expr(ex));
                }
                None => sources.push(KeySource::Column(column.attnum.max(1) as usize - 1)),
            }
        }
        if let Some(ex) = &parts.predicate {
            note(ex);
        }
        uses.extend(def.columns.iter().filter(|c| c.attnum > 0).map(|c| c.attnum as usize - 1));
        uses.sort_unstable();
        uses.dedup();
        let keys = def.columns.iter().take(def.key_columns);
        IndexExec {
            btree: BtreeRel::with_fillfactor(def.rel, def.fillfactor),
            columns: keys.map(|c| (c.ty.oid, c.descending, c.nulls_first)).collect(),
            sources,
            predicate: parts.predicate,
            registers: parts.registers,
            uses,
            def: def.clone(),
        }
    }

    /// The key of a row whose columns are `row[i]`; false when the index leaves the row out.
    /// `null` tells whether a key column is NULL.
    pub fn key(
        &self,
        fx: &dyn FnContext,
        row: &[Datum],
        out: &mut Vec<u8>,
        null: &mut bool,
    ) -> Result<bool> {
        out.clear();
        *null = false;
        let plain = self.predicate.is_none()
            && self.sources.iter().all(|s| matches!(s, KeySource::Column(_)));
        if plain {
            for (source, (ty, desc, first)) in self.sources.iter().zip(&self.columns) {
                if let KeySource::Column(c) = source {
                    *null |= row[*c].is_null();
                    keycode::encode_column(&row[*c], *ty, *desc, *first, out)?;
                }
            }
            return Ok(true);
        }
        let mut cx = ExecCx::new(fx, &[]);
        cx.regs = row.to_vec();
        cx.regs.resize(self.registers.max(row.len()), Datum::Null);
        if let Some(p) = &self.predicate
            && !p.passes(&mut cx)?
        {
            return Ok(false);
        }
        for (source, (ty, desc, first)) in self.sources.iter().zip(&self.columns) {
            let value = match source {
                KeySource::Column(c) => row[*c].clone(),
                KeySource::Expr(ex) => ex.eval(&mut cx)?,
            };
            *null |= value.is_null();
            keycode::encode_column(&value, *ty, *desc, *first, out)?;
        }
        Ok(true)
    }
}

/// The tables in use, by OID. An entry serves as long as the definition is the same object.
#[derive(Default)]
pub struct TableCache {
    tables: RwLock<HashMap<Oid, Arc<TableExec>>>,
}

impl TableCache {
    pub fn get(
        &self,
        def: &Arc<TableDef>,
        parts: &dyn Fn(&Arc<IndexDef>) -> Result<CompiledParts>,
    ) -> Result<Arc<TableExec>> {
        if let Some(known) = self.tables.read().get(&def.oid)
            && Arc::ptr_eq(&known.def, def)
        {
            return Ok(known.clone());
        }
        let made = Arc::new(TableExec::new(def, parts)?);
        self.tables.write().insert(def.oid, made.clone());
        Ok(made)
    }

    /// Forgets tables that the catalog does not have any more.
    pub fn retain(&self, exists: impl Fn(Oid) -> bool) {
        self.tables.write().retain(|oid, _| exists(*oid));
    }
}
