//! CREATE, ALTER and restart of sequences, and what ties them to columns.
//!
//! ```text
//!   serial:    column default nextval(seq)   seq --auto-----> column     gone with the column
//!   identity:  pg_attribute.attidentity      seq --internal-> column     ... and never alone
//!              default's pg_attrdef --normal-> seq                       keeps seq from going
//! ```
//!
//! A sequence's definition is a row of pg_sequence, its position a page of its own file. What
//! changes the position and must vanish in a rollback gives it a new file (ALTER SEQUENCE, RESTART
//! IDENTITY); the relation's lock keeps takers of values away until the transaction ends.

use super::DdlContext;
use crate::analyze::statement::{
    AlterSequence, CreateSequence, OwnedBy, OwnedSequence, OwnedSequenceKind, SequenceOptions,
};
use crate::catalog::describe::{NewColumn, NewRelation, attribute_row, system_attribute_rows};
use crate::catalog::rows::{CatalogRow, system_relation};
use crate::catalog::{
    CatalogSnapshot, Identity, Persistence, RelationKind, SequenceDef, SequenceOwner, TableDef,
};
use crate::error::{Result, Severity, SqlError, State};
use crate::types::{self, Datum, Oid, TypeRef};
use inkling_storage::ids::Xid;
use inkling_storage::seq::{self, SeqState};
use std::sync::Arc;

/// A sequence to be made.
pub struct NewSequence<'a> {
    pub schema: Oid,
    pub name: &'a str,
    pub persistence: Persistence,
    pub owner: Oid,
    pub options: &'a SequenceOptions,
}

pub fn create_sequence(cx: &mut DdlContext<'_>, c: &CreateSequence) -> Result<()> {
    let schema = cx.place(c.schema)?;
    if c.if_not_exists && cx.catalog.find_in_schema(schema, &c.name).is_some() {
        let text = format!("relation \"{}\" already exists, skipping", c.name);
        cx.notices.push(SqlError::new(State::DUPLICATE_TABLE, text).severity(Severity::Notice));
        return Ok(());
    }
    let new = NewSequence {
        schema,
        name: &c.name,
        persistence: c.persistence,
        owner: cx.user,
        options: &c.options,
    };
    let oid = make(cx, &new)?;
    if let Some(OwnedBy::Column { table, attnum }) = c.owned_by {
        check_owner(cx, table, schema, cx.user)?;
        own(cx, oid, SequenceOwner { table, attnum, identity: false })?;
    }
    cx.next_command()
}

/// Makes a sequence that nothing owns yet; its OID.
pub fn make(cx: &mut DdlContext<'_>, new: &NewSequence<'_>) -> Result<Oid> {
    cx.check_name_free(new.schema, new.name)?;
    let (def, state) = resolve(None, new.options)?;
    let rel = cx.engine.create_rel(cx.tx, super::storage_persistence(new.persistence))?;
    seq::create(cx.engine, cx.tx, rel, state)?;
    let oid = Oid(rel.raw());
    let relation = NewRelation {
        oid,
        rel,
        name: new.name,
        schema: new.schema,
        owner: new.owner,
        row_type: Oid::INVALID,
        kind: 'S',
        persistence: super::persistence_char(new.persistence),
        toast: Oid::INVALID,
        shared: false,
        has_index: false,
        checks: 0,
        options: &[],
        frozen: Xid::INVALID,
    };
    let columns = [("last_value", Oid::INT8), ("log_cnt", Oid::INT8), ("is_called", Oid::BOOL)];
    let class = relation
        .class_row(columns.len())
        .int4("relpages", 1)
        .set("reltuples", Datum::Float4(1.0))
        .char("relreplident", 'n')
        .set("relminmxid", Datum::Oid(0));
    let mut rows = vec![class];
    for (at, (name, ty)) in columns.into_iter().enumerate() {
        let column = NewColumn {
            name,
            ty: TypeRef::plain(ty),
            collation: Oid::INVALID,
            not_null: true,
            has_default: false,
        };
        rows.push(attribute_row(oid, at as i16 + 1, &column));
    }
    rows.extend(system_attribute_rows(oid));
    rows.push(definition_row(oid, &def));
    cx.insert(rows)?;
    Ok(oid)
}

fn definition_row(oid: Oid, def: &SequenceDef) -> CatalogRow {
    CatalogRow::new(system_relation(Oid::PG_SEQUENCE))
        .oid("seqrelid", oid)
        .oid("seqtypid", def.ty)
        .set("seqstart", Datum::Int8(def.start))
        .set("seqincrement", Datum::Int8(def.increment))
        .set("seqmax", Datum::Int8(def.max))
        .set("seqmin", Datum::Int8(def.min))
        .set("seqcache", Datum::Int8(def.cache))
        .bool("seqcycle", def.cycle)
}

// ----- Options.

/// The least and the greatest value of a sequence's type.
fn bounds(ty: Oid) -> (i64, i64) {
    match ty {
        Oid::INT2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Oid::INT4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

fn invalid(text: String) -> SqlError {
    SqlError::new(State::INVALID_PARAMETER_VALUE, text)
}

/// What a sequence becomes by these options, and where it goes on; `old`: what it was.
fn resolve(
    old: Option<(SequenceDef, SeqState)>,
    o: &SequenceOptions,
) -> Result<(SequenceDef, SeqState)> {
    let (mut def, mut state) = old.unwrap_or((
        SequenceDef {
            ty: o.ty.unwrap_or(Oid::INT8),
            start: 0,
            increment: 1,
            min: 0,
            max: 0,
            cache: 1,
            cycle: false,
            owner: None,
        },
        SeqState { last: 0, called: false },
    ));
    let (old_least, old_greatest) = bounds(def.ty);
    let new_type = o.ty.filter(|ty| *ty != def.ty);
    // Limits that were the old type's become the new one's.
    let reset_max = new_type.is_some() && def.max == old_greatest;
    let reset_min = new_type.is_some() && def.min == old_least;
    def.ty = new_type.unwrap_or(def.ty);
    let (least, greatest) = bounds(def.ty);
    def.increment = o.increment.unwrap_or(def.increment);
    def.cycle = o.cycle.unwrap_or(def.cycle);
    def.cache = o.cache.unwrap_or(def.cache);
    let ascends = def.increment > 0;
    match o.max {
        Some(Some(max)) => def.max = max,
        None if old.is_some() && !reset_max => {}
        _ => def.max = if ascends || reset_max { greatest } else { -1 },
    }
    match o.min {
        Some(Some(min)) => def.min = min,
        None if old.is_some() && !reset_min => {}
        _ => def.min = if !ascends || reset_min { least } else { 1 },
    }
    let type_name = types::format_type(def.ty, -1);
    for (word, value) in [("MAXVALUE", def.max), ("MINVALUE", def.min)] {
        if value < least || value > greatest {
            let text = format!("{word} ({value}) is out of range for sequence data type");
            return Err(invalid(format!("{text} {type_name}")));
        }
    }
    if def.min >= def.max {
        let (min, max) = (def.min, def.max);
        return Err(invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
    }
    match o.start {
        Some(start) => def.start = start,
        None if old.is_some() => {}
        None => def.start = if ascends { def.min } else { def.max },
    }
    check_within(&def, "START", def.start)?;
    match (o.restart, old) {
        (Some(at), _) => state = SeqState { last: at.unwrap_or(def.start), called: false },
        (None, None) => state = SeqState { last: def.start, called: false },
        (None, Some(_)) => {}
    }
    check_within(&def, "RESTART", state.last)?;
    Ok((def, state))
}

fn check_within(def: &SequenceDef, word: &str, value: i64) -> Result<()> {
    let (min, max) = (def.min, def.max);
    if value < min {
        return Err(invalid(format!(
            "{word} value ({value}) cannot be less than MINVALUE ({min})"
        )));
    }
    if value > max {
        let text = format!("{word} value ({value}) cannot be greater than MAXVALUE ({max})");
        return Err(invalid(text));
    }
    Ok(())
}

// ----- ALTER, RESTART.

pub fn alter_sequence(cx: &mut DdlContext<'_>, a: &AlterSequence) -> Result<()> {
    let table = find(cx, a.sequence)?;
    alter_options(cx, &table, &a.options)?;
    if let Some(owned_by) = a.owned_by {
        change_owner(cx, &table, owned_by)?;
    }
    cx.next_command()
}

fn find(cx: &DdlContext<'_>, oid: Oid) -> Result<Arc<TableDef>> {
    cx.catalog.table(oid).cloned().ok_or_else(|| super::gone(Oid::PG_CLASS, oid))
}

fn definition(table: &TableDef) -> Result<SequenceDef> {
    table.sequence.ok_or_else(|| SqlError::internal(format!("{} is no sequence", table.name)))
}

/// Carries out the options of ALTER SEQUENCE, if there are any.
pub fn alter_options(
    cx: &mut DdlContext<'_>,
    table: &TableDef,
    options: &SequenceOptions,
) -> Result<()> {
    if *options == SequenceOptions::default() {
        return Ok(());
    }
    let before = seq::read(cx.engine, table.rel)?.state;
    let (def, state) = resolve(Some((definition(table)?, before)), options)?;
    let oid = table.oid;
    for (at, _) in cx.find(Oid::PG_SEQUENCE, |row| row.get_oid("seqrelid") == oid)? {
        cx.update(at, definition_row(oid, &def))?;
    }
    replace_file(cx, table, table.persistence, state)
}

/// TRUNCATE ... RESTART IDENTITY: back to the start value.
pub fn restart(cx: &mut DdlContext<'_>, table: &TableDef) -> Result<()> {
    let start = definition(table)?.start;
    replace_file(cx, table, table.persistence, SeqState { last: start, called: false })
}

/// Makes a table's sequence as durable as the table.
pub fn set_persistence(cx: &mut DdlContext<'_>, table: &TableDef, to: Persistence) -> Result<()> {
    let state = seq::read(cx.engine, table.rel)?.state;
    replace_file(cx, table, to, state)
}

/// Gives the sequence a new file, which says `state`.
fn replace_file(
    cx: &mut DdlContext<'_>,
    table: &TableDef,
    persistence: Persistence,
    state: SeqState,
) -> Result<()> {
    let rel = cx.engine.create_rel(cx.tx, super::storage_persistence(persistence))?;
    seq::create(cx.engine, cx.tx, rel, state)?;
    cx.change(Oid::PG_CLASS, table.oid, |row| {
        row.put("relfilenode", Datum::Oid(rel.raw()));
        row.put("relpersistence", Datum::Char(super::persistence_char(persistence) as u8));
    })?;
    cx.engine.drop_rel_at_commit(cx.tx, table.rel)?;
    Ok(())
}

// ----- Owners.

fn depend_row(class: Oid, object: Oid, on: (Oid, i16), kind: char) -> CatalogRow {
    CatalogRow::new(system_relation(Oid::PG_DEPEND))
        .oid("classid", class)
        .oid("objid", object)
        .oid("refclassid", Oid::PG_CLASS)
        .oid("refobjid", on.0)
        .int4("refobjsubid", i32::from(on.1))
        .char("deptype", kind)
}

/// The pg_depend rows of a default that names relations.
pub fn default_depends(default: Oid, text: &str) -> Vec<CatalogRow> {
    let relations = crate::catalog::stored_names::relations(text).into_iter();
    relations.map(|oid| depend_row(Oid::PG_ATTRDEF, default, (oid, 0), 'n')).collect()
}

/// Makes the sequence go with a column.
pub fn own(cx: &mut DdlContext<'_>, sequence: Oid, owner: SequenceOwner) -> Result<()> {
    let kind = if owner.identity { 'i' } else { 'a' };
    cx.insert(vec![depend_row(Oid::PG_CLASS, sequence, (owner.table, owner.attnum), kind)])
}

fn check_owner(cx: &DdlContext<'_>, table: Oid, schema: Oid, owner: Oid) -> Result<()> {
    let table = find(cx, table)?;
    if table.kind != RelationKind::Table || table.system {
        let detail = match table.kind {
            RelationKind::View => "This operation is not supported for views.",
            RelationKind::Sequence => "This operation is not supported for sequences.",
            _ => "This operation is not supported for system catalogs.",
        };
        let text = format!("sequence cannot be owned by relation \"{}\"", table.name);
        return Err(SqlError::new(State::WRONG_OBJECT_TYPE, text).detail(detail));
    }
    let same = |what: &str| {
        let text = format!("sequence must {what} as table it is linked to");
        Err(SqlError::new(State::OBJECT_NOT_IN_PREREQUISITE_STATE, text))
    };
    if table.owner != owner {
        return same("have same owner");
    }
    if table.schema != schema {
        return same("be in same schema");
    }
    Ok(())
}

fn change_owner(cx: &mut DdlContext<'_>, table: &TableDef, owned_by: OwnedBy) -> Result<()> {
    if let Some(owner) = definition(table)?.owner.filter(|o| o.identity) {
        let linked = cx.catalog.table(owner.table).map_or("?", |t| t.name.as_str());
        return Err(SqlError::new(
            State::FEATURE_NOT_SUPPORTED,
            "cannot change ownership of identity sequence",
        )
        .detail(format!("Sequence \"{}\" is linked to table \"{linked}\".", table.name)));
    }
    if let OwnedBy::Column { table: owner, .. } = owned_by {
        check_owner(cx, owner, table.schema, table.owner)?;
    }
    let oid = table.oid;
    cx.delete_where(Oid::PG_DEPEND, |row| {
        row.get_oid("classid") == Oid::PG_CLASS
            && row.get_oid("objid") == oid
            && row.get_char("deptype") == 'a'
    })?;
    match owned_by {
        OwnedBy::Column { table, attnum } => {
            own(cx, oid, SequenceOwner { table, attnum, identity: false })
        }
        OwnedBy::None => Ok(()),
    }
}

/// The sequences that go with a table's columns, in the order in which they were made.
pub fn owned(catalog: &CatalogSnapshot, table: Oid) -> Vec<Arc<TableDef>> {
    let of_table = |s: &&Arc<TableDef>| {
        s.sequence.and_then(|def| def.owner).is_some_and(|owner| owner.table == table)
    };
    let mut found: Vec<_> = catalog.tables.values().filter(of_table).cloned().collect();
    found.sort_by_key(|s| s.oid);
    found
}

/// Those of one column.
pub fn owned_by_column(catalog: &CatalogSnapshot, table: Oid, attnum: i16) -> Vec<Arc<TableDef>> {
    let mut found = owned(catalog, table);
    found.retain(|s| {
        s.sequence.and_then(|def| def.owner).is_some_and(|owner| owner.attnum == attnum)
    });
    found
}

// ----- serial and identity columns.

impl OwnedSequenceKind {
    /// What it makes of the column, if an identity column.
    pub fn identity(self) -> Option<Identity> {
        match self {
            OwnedSequenceKind::Serial => None,
            OwnedSequenceKind::IdentityAlways => Some(Identity::Always),
            OwnedSequenceKind::IdentityByDefault => Some(Identity::ByDefault),
        }
    }
}

/// Makes a column's sequence. The column may not be there yet: [`own`] ties them afterwards.
pub fn make_for_column(
    cx: &mut DdlContext<'_>,
    schema: Oid,
    persistence: Persistence,
    owner: Oid,
    wanted: &OwnedSequence,
) -> Result<Oid> {
    let OwnedSequence { name, options, .. } = wanted;
    make(cx, &NewSequence { schema, name, persistence, owner, options })
}

/// The identity sequence of a column; without it the catalog contradicts itself.
pub fn of_identity(
    catalog: &CatalogSnapshot,
    table: &TableDef,
    attnum: i16,
) -> Result<Arc<TableDef>> {
    let mut list = owned_by_column(catalog, table.oid, attnum);
    list.retain(|s| s.sequence.and_then(|d| d.owner).is_some_and(|owner| owner.identity));
    list.pop().ok_or_else(|| SqlError::internal("no owned sequence found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SequenceOptions {
        SequenceOptions::default()
    }

    fn made(o: &SequenceOptions) -> (SequenceDef, SeqState) {
        resolve(None, o).expect("valid options")
    }

    fn words(old: Option<(SequenceDef, SeqState)>, o: &SequenceOptions) -> String {
        resolve(old, o).map_or_else(|e| e.message().to_owned(), |_| "fine".to_owned())
    }

    #[test]
    fn defaults_depend_on_type_and_direction() {
        let (up, state) = made(&options());
        assert_eq!((up.ty, up.min, up.max, up.start), (Oid::INT8, 1, i64::MAX, 1));
        assert_eq!(state, SeqState { last: 1, called: false });
        let (down, state) =
            made(&SequenceOptions { ty: Some(Oid::INT2), increment: Some(-1), ..options() });
        assert_eq!((down.min, down.max, down.start), (-32768, -1, -1));
        assert_eq!(state.last, -1);
    }

    #[test]
    fn another_type_takes_its_limits_along() {
        let old = made(&SequenceOptions { ty: Some(Oid::INT4), ..options() });
        let (new, _) =
            resolve(Some(old), &SequenceOptions { ty: Some(Oid::INT8), ..options() }).unwrap();
        assert_eq!((new.min, new.max), (1, i64::MAX));
        let small = SequenceOptions { ty: Some(Oid::INT2), max: Some(Some(40000)), ..options() };
        assert_eq!(
            words(Some(old), &small),
            "MAXVALUE (40000) is out of range for sequence data type smallint"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_in_postgresqls_words() {
        let with = |min, max, start| SequenceOptions { min, max, start, ..options() };
        assert_eq!(
            words(None, &with(Some(Some(5)), Some(Some(5)), None)),
            "MINVALUE (5) must be less than MAXVALUE (5)"
        );
        assert_eq!(
            words(None, &with(Some(Some(5)), None, Some(4))),
            "START value (4) cannot be less than MINVALUE (5)"
        );
        assert_eq!(
            words(None, &with(None, Some(Some(9)), Some(10))),
            "START value (10) cannot be greater than MAXVALUE (9)"
        );
        let (def, _) = made(&options());
        let at = SeqState { last: 100, called: true };
        assert_eq!(
            words(Some((def, at)), &SequenceOptions { max: Some(Some(50)), ..options() }),
            "RESTART value (100) cannot be greater than MAXVALUE (50)"
        );
    }
}
