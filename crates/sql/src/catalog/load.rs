//! From catalog rows to a [`CatalogSnapshot`].
//!
//! Pure: it takes the rows of the relations in [`LOADED`] as one snapshot saw them and builds the
//! definitions that sessions work with. A row that contradicts another is an error that names
//! it, never a panic: the rows come from disk.

use super::rows::CatalogRow;
use super::{
    CatalogSnapshot, ColumnDef, ConstraintDef, ConstraintKind, Identity, IndexColumn, IndexDef,
    Persistence, RelationKind, RoleDef, SchemaDef, SequenceDef, SequenceOwner, TableDef,
};
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid, TypeRef};
use hashbrown::HashMap;
use inkling_storage::ids::RelId;
use std::sync::Arc;

/// The system relations that a snapshot is built from, in the order of [`CatalogRows`].
pub const LOADED: [Oid; 11] = [
    Oid::PG_CLASS,
    Oid::PG_ATTRIBUTE,
    Oid::PG_ATTRDEF,
    Oid::PG_INDEX,
    Oid::PG_CONSTRAINT,
    Oid::PG_NAMESPACE,
    Oid::PG_AUTHID,
    Oid::PG_REWRITE,
    Oid::PG_DB_ROLE_SETTING,
    Oid::PG_SEQUENCE,
    Oid::PG_DEPEND,
];

/// The rows of one system relation each, by the relation's OID.
pub type CatalogRows = HashMap<Oid, Vec<CatalogRow>>;

/// Builds the snapshot called `version`.
pub fn build(version: u64, mut rows: CatalogRows) -> Result<CatalogSnapshot> {
    let mut take = |oid: Oid| rows.remove(&oid).unwrap_or_default();
    let mut snapshot = CatalogSnapshot { version, ..CatalogSnapshot::default() };
    for row in take(Oid::PG_NAMESPACE) {
        let def = SchemaDef {
            oid: row.get_oid("oid"),
            name: row.get_text("nspname").to_owned(),
            owner: row.get_oid("nspowner"),
        };
        snapshot.schema_names.insert(def.name.clone(), def.oid);
        snapshot.schemas.insert(def.oid, Arc::new(def));
    }
    for row in take(Oid::PG_AUTHID) {
        let def = RoleDef {
            oid: row.get_oid("oid"),
            name: row.get_text("rolname").to_owned(),
            superuser: row.get_bool("rolsuper"),
            can_login: row.get_bool("rolcanlogin"),
            password: row.get_text_opt("rolpassword").map(str::to_owned),
        };
        snapshot.role_names.insert(def.name.clone(), def.oid);
        snapshot.roles.insert(def.oid, Arc::new(def));
    }
    for row in take(Oid::PG_DB_ROLE_SETTING) {
        snapshot.role_settings.add(&row);
    }
    let classes: HashMap<Oid, CatalogRow> =
        take(Oid::PG_CLASS).into_iter().map(|r| (r.get_oid("oid"), r)).collect();
    let owners = sequence_owners(&take(Oid::PG_DEPEND), &classes);
    let mut parts = Parts {
        columns: columns(take(Oid::PG_ATTRIBUTE), take(Oid::PG_ATTRDEF), &owners)?,
        indexes: HashMap::new(),
        constraints: HashMap::new(),
        referenced_by: HashMap::new(),
        views: take(Oid::PG_REWRITE)
            .into_iter()
            .map(|r| (r.get_oid("ev_class"), r.get_text("ev_action").to_owned()))
            .collect(),
        toast_indexes: HashMap::new(),
        sequences: take(Oid::PG_SEQUENCE).iter().map(|r| sequence(r, &owners)).collect(),
    };
    load_indexes(&mut snapshot, &classes, &mut parts, &take(Oid::PG_INDEX))?;
    for row in take(Oid::PG_CONSTRAINT) {
        let def = Arc::new(constraint(&row)?);
        if let ConstraintKind::Foreign { referenced, .. } = def.kind {
            parts.referenced_by.entry(referenced).or_default().push(Arc::clone(&def));
        }
        parts.constraints.entry(def.table).or_default().push(def);
    }
    parts.referenced_by.values_mut().for_each(|list| list.sort_by_key(|c| c.oid));
    for (oid, row) in &classes {
        let name = row.get_text("relname").to_owned();
        snapshot.relations.insert((row.get_oid("relnamespace"), name), *oid);
        if row.get_char("relkind") != 'i' {
            let def = table(&snapshot, &classes, &mut parts, row)?;
            snapshot.levels.add(&def);
            snapshot.tables.insert(*oid, Arc::new(def));
        }
    }
    for (sequence, owner) in &owners {
        let rel = |oid: &Oid| snapshot.tables.get(oid).map(|t| t.rel);
        if let (Some(sequence), Some(table)) = (rel(sequence), rel(&owner.table)) {
            snapshot.levels.follow(sequence, table);
        }
    }
    Ok(snapshot)
}

/// What belongs to tables, by table.
struct Parts {
    columns: HashMap<Oid, Vec<ColumnDef>>,
    indexes: HashMap<Oid, Vec<Arc<IndexDef>>>,
    constraints: HashMap<Oid, Vec<Arc<ConstraintDef>>>,
    referenced_by: HashMap<Oid, Vec<Arc<ConstraintDef>>>,
    views: HashMap<Oid, String>,
    toast_indexes: HashMap<Oid, RelId>,
    sequences: HashMap<Oid, SequenceDef>,
}

/// Which sequence belongs to which column: what pg_depend says of a sequence and a column.
fn sequence_owners(
    depends: &[CatalogRow],
    classes: &HashMap<Oid, CatalogRow>,
) -> HashMap<Oid, SequenceOwner> {
    let owner = |row: &CatalogRow| {
        let (oid, kind) = (row.get_oid("objid"), row.get_char("deptype"));
        let of_column = row.get_oid("classid") == Oid::PG_CLASS
            && row.get_oid("refclassid") == Oid::PG_CLASS
            && row.get_int("refobjsubid") > 0
            && matches!(kind, 'a' | 'i');
        let is_sequence = || classes.get(&oid).is_some_and(|c| c.get_char("relkind") == 'S');
        (of_column && is_sequence()).then(|| {
            let attnum = row.get_int("refobjsubid") as i16;
            let table = row.get_oid("refobjid");
            (oid, SequenceOwner { table, attnum, identity: kind == 'i' })
        })
    };
    depends.iter().filter_map(owner).collect()
}

fn sequence(row: &CatalogRow, owners: &HashMap<Oid, SequenceOwner>) -> (Oid, SequenceDef) {
    let oid = row.get_oid("seqrelid");
    let def = SequenceDef {
        ty: row.get_oid("seqtypid"),
        start: row.get_int("seqstart"),
        increment: row.get_int("seqincrement"),
        min: row.get_int("seqmin"),
        max: row.get_int("seqmax"),
        cache: row.get_int("seqcache"),
        cycle: row.get_bool("seqcycle"),
        owner: owners.get(&oid).copied(),
    };
    (oid, def)
}

/// The expression that takes a sequence's next value. By number: names may change.
pub fn nextval_text(sequence: Oid) -> String {
    format!("nextval('{sequence}'::regclass)")
}

fn broken(what: String) -> SqlError {
    SqlError::new(State::DATA_CORRUPTED, what)
}

fn columns(
    attributes: Vec<CatalogRow>,
    defaults: Vec<CatalogRow>,
    owners: &HashMap<Oid, SequenceOwner>,
) -> Result<HashMap<Oid, Vec<ColumnDef>>> {
    let mut default_text: HashMap<(Oid, i64), String> = defaults
        .into_iter()
        .map(|r| ((r.get_oid("adrelid"), r.get_int("adnum")), r.get_text("adbin").to_owned()))
        .collect();
    for (sequence, owner) in owners.iter().filter(|(_, owner)| owner.identity) {
        let column = (owner.table, i64::from(owner.attnum));
        default_text.insert(column, nextval_text(*sequence));
    }
    let mut columns: HashMap<Oid, Vec<ColumnDef>> = HashMap::new();
    for row in attributes {
        let (table, attnum) = (row.get_oid("attrelid"), row.get_int("attnum"));
        if attnum < 1 {
            continue;
        }
        let missing = row
            .get_bool("atthasmissing")
            .then(|| row.get_items("attmissingval").first().cloned().unwrap_or_default());
        columns.entry(table).or_default().push(ColumnDef {
            name: row.get_text("attname").to_owned(),
            attnum: attnum as i16,
            ty: TypeRef::new(row.get_oid("atttypid"), row.get_int("atttypmod") as i32),
            not_null: row.get_bool("attnotnull"),
            dropped: row.get_bool("attisdropped"),
            default: default_text.remove(&(table, attnum)),
            identity: Identity::of_code(row.get_char("attidentity")),
            missing,
            collation: row.get_oid("attcollation"),
        });
    }
    for (table, list) in &mut columns {
        list.sort_by_key(|c| c.attnum);
        if list.iter().enumerate().any(|(i, c)| usize::from(c.attnum as u16) != i + 1) {
            return Err(broken(format!(
                "pg_attribute has gaps in the columns of relation {table}"
            )));
        }
    }
    Ok(columns)
}

fn options(class: &CatalogRow) -> Vec<(String, String)> {
    let pair = |d: &Datum| match d {
        Datum::Text(t) => t.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())),
        _ => None,
    };
    class.get_items("reloptions").iter().filter_map(pair).collect()
}

fn fillfactor(options: &[(String, String)], default: u8) -> u8 {
    let given = options.iter().find(|(n, _)| n == "fillfactor");
    given.and_then(|(_, v)| v.parse().ok()).unwrap_or(default)
}

fn load_indexes(
    snapshot: &mut CatalogSnapshot,
    classes: &HashMap<Oid, CatalogRow>,
    parts: &mut Parts,
    rows: &[CatalogRow],
) -> Result<()> {
    for row in rows {
        let (oid, table) = (row.get_oid("indexrelid"), row.get_oid("indrelid"));
        let class = classes
            .get(&oid)
            .ok_or_else(|| broken(format!("index {oid} of pg_index is not in pg_class")))?;
        let rel = RelId::new(class.get_oid("relfilenode").0);
        if classes.get(&table).is_some_and(|t| t.get_char("relkind") == 't') {
            parts.toast_indexes.insert(table, rel);
        }
        let def = Arc::new(index(row, class, parts, rel)?);
        snapshot.indexes.insert(oid, Arc::clone(&def));
        parts.indexes.entry(table).or_default().push(def);
    }
    for list in parts.indexes.values_mut() {
        // The primary key first, then by age: the order in which psql and EXPLAIN list them.
        list.sort_by_key(|i| (!i.primary, i.oid));
    }
    Ok(())
}

fn index(row: &CatalogRow, class: &CatalogRow, parts: &Parts, rel: RelId) -> Result<IndexDef> {
    let oid = row.get_oid("indexrelid");
    let attributes = parts.columns.get(&oid).map_or(&[][..], Vec::as_slice);
    let attnums = row.get_int2_items("indkey");
    let flags = row.get_int2_items("indoption");
    if attributes.len() != attnums.len() {
        return Err(broken(format!(
            "index {oid} has {} columns, not {}",
            attributes.len(),
            attnums.len()
        )));
    }
    let mut expressions = split_expressions(row.get_text("indexprs")).into_iter();
    let columns = attnums
        .iter()
        .enumerate()
        .map(|(i, attnum)| {
            let option = flags.get(i).copied().unwrap_or(0);
            IndexColumn {
                attnum: *attnum,
                expr: if *attnum == 0 { expressions.next() } else { None },
                ty: attributes[i].ty,
                descending: option & 1 != 0,
                nulls_first: option & 2 != 0,
            }
        })
        .collect();
    Ok(IndexDef {
        oid,
        rel,
        name: class.get_text("relname").to_owned(),
        schema: class.get_oid("relnamespace"),
        table: row.get_oid("indrelid"),
        columns,
        key_columns: row.get_int("indnkeyatts") as usize,
        unique: row.get_bool("indisunique"),
        nulls_not_distinct: row.get_bool("indnullsnotdistinct"),
        primary: row.get_bool("indisprimary"),
        immediate: row.get_bool("indimmediate"),
        predicate: row.get_text_opt("indpred").map(str::to_owned),
        fillfactor: fillfactor(&options(class), 90),
        valid: row.get_bool("indisvalid"),
    })
}

/// Index expressions are kept in one text, a line each.
fn split_expressions(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The text in which index expressions are kept; a newline inside one becomes a space.
pub fn join_expressions<'a>(expressions: impl Iterator<Item = &'a str>) -> String {
    expressions.map(|e| e.replace('\n', " ")).collect::<Vec<_>>().join("\n")
}

fn constraint(row: &CatalogRow) -> Result<ConstraintDef> {
    let index = row.get_oid("conindid");
    let kind = match row.get_char("contype") {
        'p' => ConstraintKind::Primary { index },
        'u' => ConstraintKind::Unique { index },
        'c' => ConstraintKind::Check { expr: row.get_text("conbin").to_owned() },
        'f' => ConstraintKind::Foreign {
            referenced: row.get_oid("confrelid"),
            referenced_columns: row.get_int2_items("confkey"),
            on_update: row.get_char("confupdtype"),
            on_delete: row.get_char("confdeltype"),
            match_type: row.get_char("confmatchtype"),
            index,
            set_columns: row.get_int2_items("confdelsetcols"),
        },
        other => return Err(broken(format!("pg_constraint has a row of unknown kind {other:?}"))),
    };
    Ok(ConstraintDef {
        oid: row.get_oid("oid"),
        name: row.get_text("conname").to_owned(),
        table: row.get_oid("conrelid"),
        kind,
        columns: row.get_int2_items("conkey"),
        deferrable: row.get_bool("condeferrable"),
        deferred: row.get_bool("condeferred"),
        validated: row.get_bool("convalidated"),
    })
}

fn table(
    snapshot: &CatalogSnapshot,
    classes: &HashMap<Oid, CatalogRow>,
    parts: &mut Parts,
    row: &CatalogRow,
) -> Result<TableDef> {
    let oid = row.get_oid("oid");
    let name = row.get_text("relname").to_owned();
    let kind = match row.get_char("relkind") {
        'r' => RelationKind::Table,
        'S' => RelationKind::Sequence,
        'v' => RelationKind::View,
        't' => RelationKind::Toast,
        other => return Err(broken(format!("relation \"{name}\" is of unknown kind {other:?}"))),
    };
    let toast_oid = row.get_oid("reltoastrelid");
    let toast = match classes.get(&toast_oid) {
        Some(class) => {
            let rel = RelId::new(class.get_oid("relfilenode").0);
            let index = parts.toast_indexes.get(&toast_oid).copied().unwrap_or(RelId::INVALID);
            Some((rel, index))
        }
        None => None,
    };
    let options = options(row);
    let schema = row.get_oid("relnamespace");
    Ok(TableDef {
        oid,
        rel: RelId::new(row.get_oid("relfilenode").0),
        toast,
        name,
        schema,
        schema_name: snapshot.schemas.get(&schema).map_or_else(String::new, |s| s.name.clone()),
        kind,
        persistence: match row.get_char("relpersistence") {
            'u' => Persistence::Unlogged,
            't' => Persistence::Temporary,
            _ => Persistence::Permanent,
        },
        owner: row.get_oid("relowner"),
        row_type: row.get_oid("reltype"),
        columns: parts.columns.remove(&oid).unwrap_or_default(),
        indexes: parts.indexes.remove(&oid).unwrap_or_default(),
        constraints: parts.constraints.remove(&oid).unwrap_or_default(),
        referenced_by: parts.referenced_by.remove(&oid).unwrap_or_default(),
        fillfactor: fillfactor(&options, 100),
        options,
        view: parts.views.remove(&oid),
        sequence: match (kind, parts.sequences.remove(&oid)) {
            (RelationKind::Sequence, None) => {
                return Err(broken(format!("sequence {oid} is not in pg_sequence")));
            }
            (_, def) => def.filter(|_| kind == RelationKind::Sequence),
        },
        reltuples: match row.get("reltuples") {
            Datum::Float4(v) => *v,
            _ => -1.0,
        },
        relpages: row.get_int("relpages") as i32,
        system: oid < Oid::FIRST_USER,
    })
}
