//! CREATE INDEX, and the indexes behind constraints.
//!
//! An index is built from every row version that some snapshot may still see, keys sorted in
//! memory, written bottom-up. The table is locked against writers meanwhile. Two versions that
//! are both live with equal keys make a unique index fail, with PostgreSQL's message.

use super::alter::contains_nulls;
use super::{DdlContext, RowFn};
use crate::analyze::statement::{
    ConstraintSpec, ConstraintSpecKind, CreateIndex, IndexColumnSpec, IndexSpec,
};
use crate::catalog::describe::{NewColumn, NewRelation, attribute_row};
use crate::catalog::load::join_expressions;
use crate::catalog::rows::{CatalogRow, system_relation, vector};
use crate::catalog::{TableDef, bootstrap, heap_rel};
use crate::error::{Result, Severity, SqlError, State};
use crate::exec::long;
use crate::keycode;
use crate::row::RowCodec;
use crate::types::{self, Datum, Oid};
use inkling_storage::btree::{self, BtreeRel};
use inkling_storage::engine::Engine;
use inkling_storage::heap::{self, BuildItem, PageScan};
use inkling_storage::ids::{BlockNo, Fork, RelId, RowId, Xid};
use std::sync::Arc;

/// An index to be made, alone or for a constraint.
#[derive(Clone, Debug)]
pub struct NewIndex {
    spec: IndexSpec,
    primary: bool,
    /// Of a deferrable constraint: keys may be there twice until they are checked.
    deferrable: bool,
}

impl NewIndex {
    pub fn plain(spec: IndexSpec) -> Self {
        NewIndex { spec, primary: false, deferrable: false }
    }

    /// The index that a constraint needs, if it needs one.
    pub fn of_constraint(table: &TableDef, constraint: &ConstraintSpec) -> Option<Self> {
        let (columns, include, options, nulls_not_distinct, primary) = match &constraint.kind {
            ConstraintSpecKind::Primary { columns, include, options } => {
                (columns, include, options, false, true)
            }
            ConstraintSpecKind::Unique { columns, include, nulls_not_distinct, options } => {
                (columns, include, options, *nulls_not_distinct, false)
            }
            _ => return None,
        };
        let column = |at: &usize| {
            let c = &table.columns[*at];
            IndexColumnSpec {
                attnum: Some(c.attnum),
                expr: None,
                ty: c.ty,
                collation: c.collation,
                descending: false,
                nulls_first: false,
                name: c.name.clone(),
            }
        };
        let spec = IndexSpec {
            name: constraint.name.clone(),
            unique: true,
            nulls_not_distinct,
            columns: columns.iter().map(column).collect(),
            include: include.iter().map(|at| *at as i16 + 1).collect(),
            predicate: None,
            options: options.clone(),
        };
        Some(NewIndex { spec, primary, deferrable: constraint.deferrable })
    }
}

pub fn create_index(cx: &mut DdlContext<'_>, c: &CreateIndex) -> Result<()> {
    if c.concurrently {
        return Err(SqlError::unsupported("CREATE INDEX CONCURRENTLY"));
    }
    if c.if_not_exists && cx.catalog.find_in_schema(c.table.schema, &c.index.name).is_some() {
        let text = format!("relation \"{}\" already exists, skipping", c.index.name);
        cx.notices.push(SqlError::new(State::DUPLICATE_TABLE, text).severity(Severity::Notice));
        return Ok(());
    }
    make_index(cx, &c.table, &NewIndex::plain(c.index.clone()))?;
    // Others may be making another index at this moment, under the same lock: the table's row is
    // left alone when it says so already.
    if c.table.indexes.is_empty() {
        let table = c.table.oid;
        cx.change(Oid::PG_CLASS, table, |row| row.put("relhasindex", Datum::Bool(true)))?;
    }
    cx.next_command()
}

/// Makes and fills an index; its OID.
pub fn make_index(cx: &mut DdlContext<'_>, table: &Arc<TableDef>, new: &NewIndex) -> Result<Oid> {
    let spec = &new.spec;
    cx.check_name_free(table.schema, &spec.name)?;
    if let Some(column) = spec.columns.iter().find(|c| !can_be_key(c.ty.oid)) {
        let ty = types::format_type(column.ty.oid, -1);
        return Err(SqlError::new(
            State::UNDEFINED_OBJECT,
            format!("data type {ty} has no default operator class for access method \"btree\""),
        )
        .hint("You must specify an operator class for the index or define a default operator class for the data type."));
    }
    let rel = cx.engine.create_rel(cx.tx, super::storage_persistence(table.persistence))?;
    btree::create(cx.engine, cx.tx, &BtreeRel::new(rel))?;
    write_rows(cx, table, new, rel)?;
    let keys = IndexKeys::new(cx, table, spec)?;
    fill(cx, table, rel, new, &keys)?;
    Ok(Oid(rel.raw()))
}

fn can_be_key(ty: Oid) -> bool {
    bootstrap::operator_class(ty).is_valid()
}

fn write_rows(cx: &mut DdlContext<'_>, table: &TableDef, new: &NewIndex, rel: RelId) -> Result<()> {
    let spec = &new.spec;
    let oid = Oid(rel.raw());
    let relation = NewRelation {
        oid,
        rel,
        name: &spec.name,
        schema: table.schema,
        owner: table.owner,
        row_type: Oid::INVALID,
        kind: 'i',
        persistence: super::persistence_char(table.persistence),
        toast: Oid::INVALID,
        shared: false,
        has_index: false,
        checks: 0,
        options: &spec.options,
        frozen: Xid::INVALID,
    };
    let mut rows = vec![relation.class_row(spec.columns.len() + spec.include.len())];
    let included = spec.include.iter().filter_map(|n| table.columns.get(*n as usize - 1));
    let columns = spec
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.ty, c.collation))
        .chain(included.map(|c| (c.name.as_str(), c.ty, c.collation)));
    for (at, (name, ty, collation)) in columns.enumerate() {
        let column = NewColumn { name, ty, collation, not_null: false, has_default: false };
        rows.push(attribute_row(oid, at as i16 + 1, &column));
    }
    rows.push(index_row(oid, table, new));
    cx.insert(rows)
}

fn index_row(oid: Oid, table: &TableDef, new: &NewIndex) -> CatalogRow {
    let spec = &new.spec;
    let keys = spec.columns.iter().map(|c| c.attnum.unwrap_or(0));
    let attnums = keys.chain(spec.include.iter().copied()).map(Datum::Int2).collect();
    let per_key = |f: &dyn Fn(&IndexColumnSpec) -> Datum| spec.columns.iter().map(f).collect();
    let option = |c: &IndexColumnSpec| {
        Datum::Int2(i16::from(c.descending) | (i16::from(c.nulls_first) << 1))
    };
    let mut row = CatalogRow::new(system_relation(Oid::PG_INDEX))
        .oid("indexrelid", oid)
        .oid("indrelid", table.oid)
        .int2("indnatts", (spec.columns.len() + spec.include.len()) as i16)
        .int2("indnkeyatts", spec.columns.len() as i16)
        .bool("indisunique", spec.unique)
        .bool("indnullsnotdistinct", spec.nulls_not_distinct)
        .bool("indisprimary", new.primary)
        .bool("indimmediate", !new.deferrable)
        .bool("indisvalid", true)
        .bool("indisready", true)
        .bool("indislive", true)
        .set("indkey", vector(Oid::INT2, attnums))
        .set("indcollation", vector(Oid::OID, per_key(&|c| Datum::Oid(c.collation.0))))
        .set(
            "indclass",
            vector(Oid::OID, per_key(&|c| Datum::Oid(bootstrap::operator_class(c.ty.oid).0))),
        )
        .set("indoption", vector(Oid::INT2, per_key(&option)));
    let expressions: Vec<&str> =
        spec.columns.iter().filter_map(|c| c.expr.as_ref()).map(|e| e.text.as_str()).collect();
    if !expressions.is_empty() {
        row = row.name("indexprs", &join_expressions(expressions.into_iter()));
    }
    if let Some(predicate) = &spec.predicate {
        row = row.name("indpred", &predicate.text);
    }
    row
}

/// Turns a table's row into an index key.
pub struct IndexKeys<'a> {
    /// Per key column: the row's column, or an expression over the row.
    columns: Vec<KeySource<'a>>,
    order: Vec<(Oid, bool, bool)>,
    predicate: Option<RowFn<'a>>,
    /// How many leading columns of the row have to be decoded.
    upto: usize,
}

enum KeySource<'a> {
    Column(usize),
    Expr(RowFn<'a>),
}

impl<'a> IndexKeys<'a> {
    fn new(cx: &DdlContext<'a>, table: &TableDef, spec: &IndexSpec) -> Result<Self> {
        let host = cx.host;
        let mut upto = 0;
        let mut columns = Vec::with_capacity(spec.columns.len());
        for column in &spec.columns {
            columns.push(match (&column.attnum, &column.expr) {
                (Some(attnum), _) => {
                    upto = upto.max(*attnum as usize);
                    KeySource::Column(*attnum as usize - 1)
                }
                (None, Some(e)) => {
                    upto = table.columns.len();
                    KeySource::Expr(host.compile(&e.expr)?)
                }
                (None, None) => return Err(SqlError::internal("index column without a source")),
            });
        }
        let predicate = match &spec.predicate {
            Some(p) => {
                upto = table.columns.len();
                Some(host.compile(&p.expr)?)
            }
            None => None,
        };
        let order = spec.columns.iter().map(|c| (c.ty.oid, c.descending, c.nulls_first)).collect();
        Ok(IndexKeys { columns, order, predicate, upto })
    }

    /// Puts the key's values into `out`; false when the index's condition leaves the row out.
    fn values(&self, row: &[Datum], out: &mut Vec<Datum>) -> Result<bool> {
        if let Some(predicate) = &self.predicate
            && predicate(row)? != Datum::Bool(true)
        {
            return Ok(false);
        }
        let value = |source: &KeySource<'_>| match source {
            KeySource::Column(at) => Ok(row[*at].clone()),
            KeySource::Expr(f) => f(row),
        };
        out.clear();
        self.columns.iter().try_for_each(|source| value(source).map(|v| out.push(v)))?;
        Ok(true)
    }
}

/// Keys waiting to be sorted: bytes in one arena, eight of them inline so that most comparisons
/// touch nothing else.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    entries: Vec<KeyEntry>,
}

struct KeyEntry {
    prefix: u64,
    start: usize,
    len: u32,
    row: RowId,
    /// Seen by new snapshots: counts for uniqueness.
    live: bool,
    has_null: bool,
}

impl Keys {
    fn push(&mut self, key: &[u8], row: RowId, live: bool, has_null: bool) {
        let mut head = [0; 8];
        let n = key.len().min(8);
        head[..n].copy_from_slice(&key[..n]);
        let (prefix, start) = (u64::from_be_bytes(head), self.bytes.len());
        self.bytes.extend_from_slice(key);
        self.entries.push(KeyEntry { prefix, start, len: key.len() as u32, row, live, has_null });
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| {
            a.prefix
                .cmp(&b.prefix)
                .then_with(|| a.key(bytes).cmp(b.key(bytes)))
                .then_with(|| a.row.cmp(&b.row))
        });
    }
}

impl KeyEntry {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.start..self.start + self.len as usize]
    }
}

/// Reads the table and writes the index's pages.
fn fill(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    rel: RelId,
    new: &NewIndex,
    keys: &IndexKeys<'_>,
) -> Result<()> {
    let sorted = collect_keys(cx, table, keys, new.primary.then_some(&new.spec))?;
    if new.spec.unique {
        check_unique(cx, table, keys, &new.spec, &sorted)?;
    }
    let entries = sorted.entries.iter().map(|e| (e.key(&sorted.bytes), e.row));
    let target = BtreeRel::new(rel);
    btree::build(cx.engine, cx.tx, &target, entries)?;
    Ok(())
}

/// Rows of a table, read for an index build or a constraint check.
pub(super) struct TableRows<'a> {
    engine: &'a Engine,
    table: &'a TableDef,
    codec: RowCodec,
    page: PageScan,
    items: Vec<BuildItem>,
    row: Vec<Datum>,
}

impl<'a> TableRows<'a> {
    pub fn new(engine: &'a Engine, table: &'a TableDef) -> Self {
        TableRows {
            engine,
            table,
            codec: RowCodec::of_table(table),
            page: PageScan::new(),
            items: Vec::new(),
            row: vec![Datum::Null; table.columns.len()],
        }
    }

    /// Calls `visit` with each row of a page that some snapshot may see: its columns (decoded up
    /// to `upto`), the address an index entry names, and whether new snapshots see it.
    pub fn visit_page(
        &mut self,
        block: BlockNo,
        upto: usize,
        visit: &mut dyn FnMut(&[Datum], RowId, bool) -> Result<()>,
    ) -> Result<()> {
        let heap_rel = heap_rel(self.table);
        heap::scan_for_build(self.engine, &heap_rel, block, &mut self.page, &mut self.items)?;
        let toast = heap_rel.toast;
        let engine = self.engine;
        let fetch = |packed: &[u8]| long::unpack(engine, toast, packed);
        for (at, item) in self.items.iter().enumerate() {
            let Some(tuple) = self.page.tuple(at) else { continue };
            self.codec.decode_with(tuple, upto, &fetch, &mut self.row)?;
            visit(&self.row, RowId::new(block, item.root), item.alive)?;
        }
        Ok(())
    }

    /// All pages.
    pub fn visit(
        &mut self,
        upto: usize,
        check_interrupt: &dyn Fn() -> Result<()>,
        visit: &mut dyn FnMut(&[Datum], RowId, bool) -> Result<()>,
    ) -> Result<()> {
        for block in 0..self.engine.pool.block_count(self.table.rel, Fork::Main)? {
            if block % 64 == 0 {
                check_interrupt()?;
            }
            self.visit_page(block, upto, visit)?;
        }
        Ok(())
    }
}

/// Room that is made in advance for this many keys at most.
const EXPECTED_ROWS: f32 = 1e8;

/// The keys of all rows, in order. `primary`: of a primary key, which takes no nulls.
fn collect_keys(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    keys: &IndexKeys<'_>,
    primary: Option<&IndexSpec>,
) -> Result<Keys> {
    let mut found = Keys::default();
    found.entries.reserve(table.reltuples.clamp(0.0, EXPECTED_ROWS) as usize);
    let (mut buffer, mut values) = (Vec::new(), Vec::new());
    let host = cx.host;
    TableRows::new(cx.engine, table).visit(
        keys.upto,
        &|| host.check_interrupt(),
        &mut |row, root, live| {
            if !keys.values(row, &mut values)? {
                return Ok(());
            }
            buffer.clear();
            keycode::encode_key(&values, &keys.order, &mut buffer)?;
            let null = values.iter().position(Datum::is_null);
            if let (Some(at), Some(spec), true) = (null, primary, live) {
                return Err(contains_nulls(table, &spec.columns[at].name));
            }
            let has_null = null.is_some();
            found.push(&buffer, root, live, has_null);
            Ok(())
        },
    )?;
    found.sort();
    Ok(found)
}

fn check_unique(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    keys: &IndexKeys<'_>,
    spec: &IndexSpec,
    sorted: &Keys,
) -> Result<()> {
    let mut last: Option<&KeyEntry> = None;
    for entry in sorted.entries.iter().filter(|e| e.live) {
        if entry.has_null && !spec.nulls_not_distinct {
            continue;
        }
        if let Some(previous) = last
            && previous.key(&sorted.bytes) == entry.key(&sorted.bytes)
        {
            return Err(duplicate(cx, table, keys, spec, entry.row));
        }
        last = Some(entry);
    }
    Ok(())
}

fn duplicate(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDef>,
    keys: &IndexKeys<'_>,
    spec: &IndexSpec,
    at: RowId,
) -> SqlError {
    let names: Vec<&str> = spec.columns.iter().map(|c| c.name.as_str()).collect();
    let error = SqlError::new(
        State::UNIQUE_VIOLATION,
        format!("could not create unique index \"{}\"", spec.name),
    )
    .object(|o| {
        o.schema = Some(table.schema_name.clone());
        o.table = Some(table.name.clone());
        o.constraint = Some(spec.name.clone());
    });
    let mut shown: Option<String> = None;
    let mut values = Vec::new();
    let mut show = |row: &[Datum], root: RowId, live: bool| {
        if root == at && live && keys.values(row, &mut values)? {
            let texts: Vec<String> =
                values.iter().zip(&spec.columns).map(|(v, c)| cx.host.show(v, c.ty.oid)).collect();
            shown = Some(texts.join(", "));
        }
        Ok(())
    };
    let read = TableRows::new(cx.engine, table).visit_page(at.block, keys.upto, &mut show);
    match (read, shown) {
        (Ok(()), Some(shown)) => {
            error.detail(format!("Key ({})=({shown}) is duplicated.", names.join(", ")))
        }
        _ => error,
    }
}
