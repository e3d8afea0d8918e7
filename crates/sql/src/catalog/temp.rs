//! Temporary relations in the catalog: their schemas, and how they leave it.
//!
//! ```text
//!   session's number N ──> pg_temp_N, pg_toast_temp_N   made when first needed, kept for ever
//!                              └── the session's temporary relations, ordinary catalog rows
//!
//!   gone with: DROP, ON COMMIT DROP, DISCARD TEMP, the end of the session, the next start
//! ```
//!
//! - The rows are written and rolled back like all others, and are logged; what is in the
//!   relations is not. A commit that wrote nothing else than such rows and temporary data need
//!   not be flushed: a crash that takes the rows takes what the next start would remove.
//! - No two sessions have the same number at a time, so nobody else writes to these schemas. What a
//!   former owner could not remove goes when the number is used again.
//! - Others need not be told: a session sees the shared catalog with its own temporary relations
//!   laid over it ([`CatalogSnapshot::with_schemas_of`]), and the shared one may be behind in what
//!   it says of anybody's. See [`super::CatalogCache::tell_temporary`] for those who ask.

use super::bootstrap::namespace_row;
use super::rows::{CatalogRow, system_relation};
use super::{CatalogSnapshot, store};
use crate::error::Result;
use crate::types::Oid;
use hashbrown::HashSet;
use inkling_storage::engine::Engine;
use inkling_storage::ids::{RelId, RowId};
use inkling_storage::txn::{CommitMode, IsolationLevel, Transaction, TxnSession};

const PREFIX: &str = "pg_temp_";
const TOAST_PREFIX: &str = "pg_toast_temp_";

/// A session's temporary schemas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TempSchemas {
    pub main: Oid,
    pub toast: Oid,
}

impl TempSchemas {
    pub fn both(&self) -> [Oid; 2] {
        [self.main, self.toast]
    }
}

/// Whether a schema of this name is some session's for temporary relations.
pub fn is_temporary_name(name: &str) -> bool {
    name.starts_with(PREFIX) || name.starts_with(TOAST_PREFIX)
}

/// Whether a statement's text may name somebody's temporary schema.
pub fn is_mentioned(text: &str) -> bool {
    text.contains(PREFIX) || text.contains(TOAST_PREFIX)
}

impl CatalogSnapshot {
    /// Whether the schema is some session's for temporary relations.
    pub fn is_temporary_schema(&self, schema: Oid) -> bool {
        self.schemas.get(&schema).is_some_and(|s| is_temporary_name(&s.name))
    }

    /// This catalog, except that `schemas` are, and hold, what they do in `from`.
    pub fn with_schemas_of(
        &self,
        from: &CatalogSnapshot,
        schemas: &[Oid],
        version: u64,
    ) -> CatalogSnapshot {
        let inside = |schema: &Oid| schemas.contains(schema);
        let mut out = self.clone();
        out.version = version;
        out.tables.retain(|_, t| !inside(&t.schema));
        out.indexes.retain(|_, i| !inside(&i.schema));
        out.relations.retain(|(schema, _), _| !inside(schema));
        for (oid, table) in from.tables.iter().filter(|(_, t)| inside(&t.schema)) {
            out.levels.add(table);
            out.tables.insert(*oid, table.clone());
        }
        let indexes = from.indexes.iter().filter(|(_, i)| inside(&i.schema));
        out.indexes.extend(indexes.map(|(oid, i)| (*oid, i.clone())));
        let relations = from.relations.iter().filter(|((schema, _), _)| inside(schema));
        out.relations.extend(relations.map(|(name, oid)| (name.clone(), *oid)));
        for schema in schemas.iter().filter_map(|s| from.schemas.get(s)) {
            out.schema_names.insert(schema.name.clone(), schema.oid);
            out.schemas.insert(schema.oid, schema.clone());
        }
        out
    }

    /// Whether the schema holds no relation.
    pub fn is_schema_empty(&self, schema: Oid) -> bool {
        self.relations.keys().all(|(s, _)| *s != schema)
    }
}

/// The schemas of session number `number`, made if they are not there, emptied if they are: what
/// is in them then is a former owner's.
pub fn ensure_schemas(engine: &Engine, tx: &mut Transaction, number: u32) -> Result<TempSchemas> {
    let rows = store::scan(engine, tx, system_relation(Oid::PG_NAMESPACE))?;
    let mut new = Vec::new();
    let mut find = |name: String| -> Result<Oid> {
        let found = rows.iter().find(|(_, row)| row.get_text("nspname") == name);
        if let Some((_, row)) = found {
            return Ok(row.get_oid("oid"));
        }
        let oid = Oid(engine.next_rel_id()?.raw());
        new.push(namespace_row(oid, &name, Oid::BOOTSTRAP_ROLE));
        Ok(oid)
    };
    let main = find(format!("{PREFIX}{number}"))?;
    let toast = find(format!("{TOAST_PREFIX}{number}"))?;
    let schemas = TempSchemas { main, toast };
    if new.len() < 2 {
        remove_contents(engine, tx, &schemas.both(), Files::Drop)?;
    }
    store::insert(engine, tx, new)?;
    tx.next_command()?;
    Ok(schemas)
}

/// What becomes of the files of relations whose rows are removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// They go with the commit.
    Drop,
    /// The start of the engine has removed them.
    Gone,
}

/// Removes all relations of some schemas; their OIDs.
pub fn remove_contents(
    engine: &Engine,
    tx: &mut Transaction,
    schemas: &[Oid],
    files: Files,
) -> Result<HashSet<Oid>> {
    let mut classes = store::scan(engine, tx, system_relation(Oid::PG_CLASS))?;
    classes.retain(|(_, row)| schemas.contains(&row.get_oid("relnamespace")));
    remove_classes(engine, tx, classes, files)
}

/// Removes temporary tables with all that hangs on them: indexes, large values, views and owned
/// sequences; the OIDs of all.
pub fn remove_tables(
    engine: &Engine,
    tx: &mut Transaction,
    tables: &[Oid],
) -> Result<HashSet<Oid>> {
    let mut gone: HashSet<Oid> = tables.iter().copied().collect();
    let mut classes = store::scan(engine, tx, system_relation(Oid::PG_CLASS))?;
    let depends = store::scan(engine, tx, system_relation(Oid::PG_DEPEND))?;
    loop {
        let before = gone.len();
        for (_, row) in &depends {
            let between_relations = row.get_oid("classid") == Oid::PG_CLASS
                && row.get_oid("refclassid") == Oid::PG_CLASS;
            if between_relations && gone.contains(&row.get_oid("refobjid")) {
                gone.insert(row.get_oid("objid"));
            }
        }
        if gone.len() == before {
            break;
        }
    }
    for (_, row) in store::scan(engine, tx, system_relation(Oid::PG_INDEX))? {
        if gone.contains(&row.get_oid("indrelid")) {
            gone.insert(row.get_oid("indexrelid"));
        }
    }
    let toasts = classes.iter().filter(|(_, row)| gone.contains(&row.get_oid("oid")));
    let toasts: Vec<Oid> = toasts.map(|(_, row)| row.get_oid("reltoastrelid")).collect();
    gone.extend(toasts);
    classes.retain(|(_, row)| gone.contains(&row.get_oid("oid")));
    remove_classes(engine, tx, classes, Files::Drop)
}

/// Where a relation is spoken of besides pg_class: (system relation, column with its OID).
const MENTIONS: [(Oid, &str); 10] = [
    (Oid::PG_ATTRIBUTE, "attrelid"),
    (Oid::PG_ATTRDEF, "adrelid"),
    (Oid::PG_CONSTRAINT, "conrelid"),
    (Oid::PG_CONSTRAINT, "confrelid"),
    (Oid::PG_INDEX, "indexrelid"),
    (Oid::PG_SEQUENCE, "seqrelid"),
    (Oid::PG_REWRITE, "ev_class"),
    (Oid::PG_DEPEND, "objid"),
    (Oid::PG_DEPEND, "refobjid"),
    (Oid::PG_DESCRIPTION, "objoid"),
];

/// Removes relations by their rows in pg_class. One pass over each system relation, however many
/// relations go.
fn remove_classes(
    engine: &Engine,
    tx: &mut Transaction,
    classes: Vec<(RowId, CatalogRow)>,
    files: Files,
) -> Result<HashSet<Oid>> {
    let gone: HashSet<Oid> = classes.iter().map(|(_, row)| row.get_oid("oid")).collect();
    if gone.is_empty() {
        return Ok(gone);
    }
    let row_types: HashSet<Oid> = classes
        .iter()
        .map(|(_, row)| row.get_oid("reltype"))
        .filter(|oid| oid.is_valid())
        .collect();
    for (at, row) in classes {
        let file = row.get_oid("relfilenode");
        if file.is_valid() && files == Files::Drop {
            engine.drop_rel_at_commit(tx, RelId::new(file.0))?;
        }
        store::delete(engine, tx, system_relation(Oid::PG_CLASS), at)?;
    }
    let mut seen: HashSet<(Oid, RowId)> = HashSet::new();
    for (relation, column) in MENTIONS {
        for (at, row) in store::scan(engine, tx, system_relation(relation))? {
            if gone.contains(&row.get_oid(column)) && seen.insert((relation, at)) {
                store::delete(engine, tx, system_relation(relation), at)?;
            }
        }
    }
    for (at, row) in store::scan(engine, tx, system_relation(Oid::PG_TYPE))? {
        if row_types.contains(&row.get_oid("oid")) || row_types.contains(&row.get_oid("typelem")) {
            store::delete(engine, tx, system_relation(Oid::PG_TYPE), at)?;
        }
    }
    Ok(gone)
}

/// Removes what sessions of an earlier run left: a crash, or a stop that did not wait for them.
/// Their files went when the engine started.
pub fn remove_orphans(engine: &Engine) -> Result<usize> {
    let session = TxnSession::new(engine, 0);
    let mut tx = Transaction::begin(&session, IsolationLevel::ReadCommitted, false);
    let removed = remove_all_temporary(engine, &mut tx);
    match removed {
        Ok(n) if n > 0 => {
            // Lost in a crash, it is done again.
            let _visible = tx.commit(engine, CommitMode::NothingToLose)?;
        }
        _ => tx.abort(engine),
    }
    removed
}

fn remove_all_temporary(engine: &Engine, tx: &mut Transaction) -> Result<usize> {
    let schemas: Vec<Oid> = store::scan(engine, tx, system_relation(Oid::PG_NAMESPACE))?
        .iter()
        .filter(|(_, row)| is_temporary_name(row.get_text("nspname")))
        .map(|(_, row)| row.get_oid("oid"))
        .collect();
    match schemas.is_empty() {
        true => Ok(0),
        false => Ok(remove_contents(engine, tx, &schemas, Files::Gone)?.len()),
    }
}
