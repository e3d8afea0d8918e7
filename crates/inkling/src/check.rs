//! Walks every structure of an open database and names what breaks a rule.
//!
//! ```text
//!   control file ── positions in order
//!   commit log ──── every sector's checksum, read anew from the files
//!   base/ ───────── every page of every file: checksum, header
//!   tables ──────── heap::check: lines, tuples, update chains, visibility map
//!   indexes ─────── btree::check: order, links, levels; then against the table, both ways:
//!                   every entry names a line pointer that is in use, every live row of the
//!                   table has its entry under its own key
//!   sequences ───── seq::check: one page, within the limits, not behind what was handed out
//! ```
//!
//! The caller keeps writers away. Nothing is changed, except that a checkpoint brings the files
//! up to date first. It is the second oracle of the crash tests, and `inkling check`.

use crate::Result;
use inkling_sql::catalog::{CatalogSnapshot, IndexDef, RelationKind, TableDef, heap_rel};
use inkling_sql::exec::long;
use inkling_sql::keycode;
use inkling_sql::row::RowCodec;
use inkling_sql::session::Database;
use inkling_sql::types::{Datum, Oid};
use inkling_storage::btree::{self, BtreeRel};
use inkling_storage::engine::{CONTROL_PATH, CheckpointKind, Engine};
use inkling_storage::heap::page::{self, Line, LineState};
use inkling_storage::heap::{self, BuildItem, HeapRel, PageScan};
use inkling_storage::ids::{Fork, PageId, RelId, RowId};
use inkling_storage::page::{PAGE_SIZE, Page};
use inkling_storage::seq;
use inkling_storage::txn::CommitLog;
use inkling_storage::vfs::OpenMode;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Pages of a file read at a time.
const PAGES_AT_A_TIME: usize = 64;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, and the block where that is known: `base/16384 block 3`.
    pub place: String,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// What a check found and how much it looked at.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub problems: Vec<Problem>,
    /// Worth knowing, and not wrong: files that a crash left and that nothing refers to.
    pub notes: Vec<String>,
    pub files: u64,
    pub pages: u64,
    pub tables: u64,
    pub indexes: u64,
    pub sequences: u64,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, place: impl Into<String>, what: impl fmt::Display) {
        self.problems.push(Problem { place: place.into(), what: what.to_string() });
    }
}

/// Checks a database. An error means that the check could not be carried out.
pub fn check(db: &Database) -> Result<Report> {
    let engine = &db.engine;
    engine.checkpoint(CheckpointKind::Immediate)?;
    let mut report = Report::default();
    control_file(engine, &mut report);
    let oldest = engine.control_data().oldest_xid;
    if let Err(e) = CommitLog::open_from(Arc::clone(engine.vfs()), oldest) {
        report.problem("pg_xact", e);
    }
    let catalog = db.catalog.current()?;
    files(engine, &catalog, &mut report)?;
    let mut tables: Vec<&Arc<TableDef>> = catalog.tables.values().collect();
    tables.sort_by_key(|t| t.oid);
    for table in tables {
        if matches!(table.kind, RelationKind::Table | RelationKind::Toast) {
            TableCheck::new(engine, table).run(&mut report);
        }
        if let Some(def) = &table.sequence {
            report.sequences += 1;
            match seq::check(engine, table.rel, &def.params()) {
                Ok(problems) => problems.iter().for_each(|p| report.problem(place(table.rel), p)),
                Err(e) => report.problem(place(table.rel), e),
            }
        }
    }
    Ok(report)
}

fn control_file(engine: &Engine, report: &mut Report) {
    let control = engine.control_data();
    let (flushed, next) = (engine.wal.flushed(), engine.txns.next_xid());
    let rules = [
        (control.redo > control.checkpoint, "the redo point lies after the checkpoint"),
        (control.checkpoint > flushed, "the checkpoint lies beyond the end of the log"),
        (control.next_xid > next, "the next xid is below the checkpoint's"),
        (control.oldest_xid > control.next_xid, "the oldest xid is above the next one"),
    ];
    for (broken, what) in rules {
        if broken {
            report.problem(CONTROL_PATH, what);
        }
    }
}

// ---- Files -----------------------------------------------------------------------------------

/// The relations that the catalog speaks of: their files may be there.
fn known_relations(catalog: &CatalogSnapshot) -> BTreeSet<RelId> {
    let mut known = BTreeSet::new();
    for table in catalog.tables.values() {
        known.insert(table.rel);
        known.extend(table.toast.iter().flat_map(|(heap, index)| [*heap, *index]));
        known.extend(table.indexes.iter().map(|i| i.rel));
    }
    known
}

/// The fork that a file name in `base/` stands for, and whether a session's own.
fn parse_name(name: &str) -> Option<(RelId, Fork, bool)> {
    let (temporary, rest) = match name.strip_prefix('t') {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let (number, suffix) = rest.split_once('_').map_or((rest, ""), |(n, s)| (n, s));
    let fork = match suffix {
        "" => Fork::Main,
        "fsm" => Fork::Fsm,
        "vm" => Fork::Vm,
        "init" => Fork::Init,
        _ => return None,
    };
    Some((RelId::new(number.parse().ok()?), fork, temporary))
}

fn files(engine: &Engine, catalog: &CatalogSnapshot, report: &mut Report) -> Result<()> {
    let known = known_relations(catalog);
    let names = engine.vfs().list("base").map_err(|e| failed("list", "base", e))?;
    for name in names {
        let path = format!("base/{name}");
        let Some((rel, fork, temporary)) = parse_name(&name) else {
            report.notes.push(format!("{path}: not a relation's file"));
            continue;
        };
        if !known.contains(&rel) && !temporary {
            report.notes.push(format!("{path}: the catalog knows no such relation"));
        }
        file_pages(engine, &path, rel, fork, report)?;
        report.files += 1;
    }
    Ok(())
}

fn failed(action: &'static str, path: &str, e: std::io::Error) -> crate::Error {
    inkling_storage::StorageError::io(action, path, e).into()
}

/// Every page of a file, as it is on disk.
fn file_pages(
    engine: &Engine,
    path: &str,
    rel: RelId,
    fork: Fork,
    report: &mut Report,
) -> Result<()> {
    let file = engine.vfs().open(path, OpenMode::Open).map_err(|e| failed("open", path, e))?;
    let length = file.len().map_err(|e| failed("stat", path, e))?;
    if length % PAGE_SIZE as u64 != 0 {
        report.problem(path, format!("its length, {length}, is not a multiple of a page's"));
    }
    let checksums = engine.control_data().checksums;
    let mut bytes = vec![0; PAGES_AT_A_TIME * PAGE_SIZE];
    let mut page = Page::zeroed();
    for first in (0..length / PAGE_SIZE as u64).step_by(PAGES_AT_A_TIME) {
        let got = file
            .read_at(&mut bytes, first * PAGE_SIZE as u64)
            .map_err(|e| failed("read", path, e))?;
        for (at, chunk) in bytes[..got].chunks_exact(PAGE_SIZE).enumerate() {
            page.bytes_mut().copy_from_slice(chunk);
            let block = first as u32 + at as u32;
            if let Err(what) = page.verify(PageId::new(rel, fork, block), checksums) {
                report.problem(format!("{path} block {block}"), what);
            }
            report.pages += 1;
        }
    }
    Ok(())
}

// ---- Tables and their indexes ----------------------------------------------------------------

fn place(rel: RelId) -> String {
    format!("base/{rel}")
}

struct TableCheck<'a> {
    engine: &'a Engine,
    table: &'a TableDef,
    heap: HeapRel,
    /// Line pointers in use, in order.
    lines: Vec<RowId>,
}

/// An index's entries as hashes of (key, row), and their rows.
#[derive(Default)]
struct Entries {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl Entries {
    fn hash(&self, key: &[u8], row: RowId) -> u64 {
        self.hasher.hash_one((key, row.block, row.slot.raw()))
    }
}

impl<'a> TableCheck<'a> {
    fn new(engine: &'a Engine, table: &'a TableDef) -> Self {
        TableCheck { engine, table, heap: heap_rel(table), lines: Vec::new() }
    }

    fn run(mut self, report: &mut Report) {
        report.tables += 1;
        self.heap_structure(self.heap, report);
        if let Some((toast, _)) = self.table.toast {
            self.heap_structure(HeapRel::new(toast), report);
        }
        if self.table.indexes.is_empty() {
            return;
        }
        if let Err(e) = self.collect_lines() {
            report.problem(place(self.heap.rel), e);
            return;
        }
        for index in &self.table.indexes {
            report.indexes += 1;
            self.index(index, report);
        }
    }

    fn heap_structure(&self, heap: HeapRel, report: &mut Report) {
        match heap::check(self.engine, &heap) {
            Ok(problems) => {
                for p in problems {
                    let at = format!(
                        "{}{} block {}",
                        place(p.page.rel),
                        p.page.fork.suffix(),
                        p.page.block
                    );
                    report.problem(at, p);
                }
            }
            Err(e) => report.problem(place(heap.rel), e),
        }
    }

    fn collect_lines(&mut self) -> Result<()> {
        let pool = &self.engine.pool;
        for block in 0..pool.block_count(self.heap.rel, Fork::Main)? {
            let page = pool.share(PageId::main(self.heap.rel, block))?;
            let in_use = page::slots(&page).filter(|slot| {
                page::line(&page, *slot).map(Line::state).is_some_and(|s| s != LineState::Unused)
            });
            self.lines.extend(in_use.map(|slot| RowId::new(block, slot)));
        }
        Ok(())
    }

    fn index(&self, index: &IndexDef, report: &mut Report) {
        let mut entries = Entries::default();
        let mut stray = Vec::new();
        let visit = &mut |key: &[u8], row: RowId| {
            entries.hashes.insert(entries.hash(key, row));
            if self.lines.binary_search(&row).is_err() {
                stray.push(row);
            }
        };
        for p in btree::check_entries(self.engine, &BtreeRel::new(index.rel), visit) {
            report.problem(format!("{} block {}", place(index.rel), p.block), p.what);
        }
        for row in stray {
            let what =
                format!("an entry of index {} names row {row}, which is not there", index.name);
            report.problem(place(index.rel), what);
        }
        // Keys of expressions and conditions would need the executor.
        let plain = index.predicate.is_none()
            && index.columns[..index.key_columns].iter().all(|c| c.attnum > 0);
        if plain && let Err(e) = self.rows_have_entries(index, &entries, report) {
            report.problem(place(self.heap.rel), e);
        }
    }

    /// Every row that new snapshots see has its entry under the key that its columns make.
    fn rows_have_entries(
        &self,
        index: &IndexDef,
        entries: &Entries,
        report: &mut Report,
    ) -> Result<()> {
        let key_columns = &index.columns[..index.key_columns];
        let order: Vec<(Oid, bool, bool)> =
            key_columns.iter().map(|c| (c.ty.oid, c.descending, c.nulls_first)).collect();
        let upto = key_columns.iter().map(|c| c.attnum as usize).max().unwrap_or(0);
        let codec = RowCodec::of_table(self.table);
        let toast = self.heap.toast;
        let fetch = |packed: &[u8]| long::unpack(self.engine, toast, packed);
        let (mut page, mut items) = (PageScan::new(), Vec::<BuildItem>::new());
        let mut row = vec![Datum::Null; self.table.columns.len()];
        let mut key = Vec::new();
        for block in 0..self.engine.pool.block_count(self.heap.rel, Fork::Main)? {
            heap::scan_for_build(self.engine, &self.heap, block, &mut page, &mut items)?;
            for (at, item) in items.iter().enumerate().filter(|(_, item)| item.alive) {
                let Some(tuple) = page.tuple(at) else { continue };
                codec.decode_with(tuple, upto, &fetch, &mut row)?;
                let values: Vec<Datum> =
                    key_columns.iter().map(|c| row[c.attnum as usize - 1].clone()).collect();
                key.clear();
                keycode::encode_key(&values, &order, &mut key)?;
                let root = RowId::new(block, item.root);
                if !entries.hashes.contains(&entries.hash(&key, root)) {
                    let what = format!("row {root} has no entry in index {}", index.name);
                    report.problem(format!("{} block {block}", place(self.heap.rel)), what);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_read_as_the_engine_writes_them() {
        assert_eq!(parse_name("16384"), Some((RelId::new(16384), Fork::Main, false)));
        assert_eq!(parse_name("16384_vm"), Some((RelId::new(16384), Fork::Vm, false)));
        assert_eq!(parse_name("t7_init"), Some((RelId::new(7), Fork::Init, true)));
        assert_eq!(parse_name("16384_x"), None);
        assert_eq!(parse_name("core"), None);
    }
}
