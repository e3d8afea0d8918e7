//! ALTER TABLE ... SET LOGGED and SET UNLOGGED.
//!
//! ```text
//!   files of the table, its large values, its indexes ──page by page──> new files
//!       SET LOGGED: every page's image is in the log
//!   pg_class: the new files, relpersistence
//!   old files go when the commit is durable
//! ```
//!
//! Pages are copied as they are: rows keep their places, so indexes and pointers to large values
//! stay right, and every version keeps its writer, so older snapshots see what they saw.
//! (PostgreSQL writes the rows anew, and older snapshots see them as of the rewrite.)
//!
//! SET LOGGED is durable like any change: its images come before the commit record in the log, and
//! a crash in the middle leaves the old files. SET UNLOGGED leaves the new files what an unlogged
//! relation restarts from, an empty table and empty indexes.

use super::DdlContext;
use crate::analyze::statement::{AlterAction, AlterTable};
use crate::catalog::{ConstraintDef, ConstraintKind, Persistence, TableDef};
use crate::error::{Result, SqlError, State};
use crate::types::{Datum, Oid};
use inkling_storage::StorageError;
use inkling_storage::btree::{self, BtreeRel};
use inkling_storage::ids::RelId;
use std::sync::Arc;

/// What a relation's files hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Rows,
    Index,
}

/// Refuses a statement that asks for two changes of persistence.
pub fn refuse_twice(statement: &AlterTable) -> Result<()> {
    let mut changed = false;
    for action in &statement.actions {
        let to = match action {
            AlterAction::SetLogged => Persistence::Permanent,
            AlterAction::SetUnlogged => Persistence::Unlogged,
            _ => continue,
        };
        if changed {
            return Err(SqlError::new(
                State::FEATURE_NOT_SUPPORTED,
                "cannot change persistence setting twice",
            ));
        }
        changed = statement.table.persistence != to;
    }
    Ok(())
}

/// Makes the table and what belongs to it logged or unlogged.
pub fn set_persistence(cx: &mut DdlContext<'_>, table: &TableDef, to: Persistence) -> Result<()> {
    if table.persistence == Persistence::Temporary {
        let text = format!(
            "cannot change logged status of table \"{}\" because it is temporary",
            table.name
        );
        return Err(SqlError::new(State::INVALID_TABLE_DEFINITION, text).object(|o| {
            o.schema = Some(table.schema_name.clone());
            o.table = Some(table.name.clone());
        }));
    }
    if table.persistence == to {
        return Ok(());
    }
    check_foreign_keys(cx, table, to)?;
    let new = change(cx, table.oid, table.rel, to, Contents::Rows)?;
    super::readers::carry_readers(cx, table, new);
    if let Some((toast, _)) = table.toast {
        let found = cx.find(Oid::PG_CLASS, |r| r.get_oid("relfilenode") == Oid(toast.raw()))?;
        if let Some((_, row)) = found.first() {
            change(cx, row.get_oid("oid"), toast, to, Contents::Rows)?;
        }
    }
    for index in &table.indexes {
        change(cx, index.oid, index.rel, to, Contents::Index)?;
    }
    for sequence in super::sequence::owned(&cx.catalog, table.oid) {
        super::sequence::set_persistence(cx, &sequence, to)?;
    }
    Ok(())
}

/// A permanent table refers to permanent ones only.
fn check_foreign_keys(cx: &DdlContext<'_>, table: &TableDef, to: Persistence) -> Result<()> {
    let becomes_logged = to == Persistence::Permanent;
    let others: Vec<(Oid, &str)> = match becomes_logged {
        true => {
            let of = |c: &Arc<ConstraintDef>| match c.kind {
                ConstraintKind::Foreign { referenced, .. } => Some(referenced),
                _ => None,
            };
            table.constraints.iter().filter_map(|c| Some((of(c)?, c.name.as_str()))).collect()
        }
        false => table.referenced_by.iter().map(|c| (c.table, c.name.as_str())).collect(),
    };
    for (oid, constraint) in others.into_iter().filter(|o| o.0 != table.oid) {
        let Some(other) = cx.catalog.table(oid) else { continue };
        if (other.persistence == Persistence::Permanent) == becomes_logged {
            continue;
        }
        let (to, it) = if becomes_logged { ("logged", "unlogged") } else { ("unlogged", "logged") };
        let text = format!(
            "could not change table \"{}\" to {to} because it references {it} table \"{}\"",
            table.name, other.name
        );
        return Err(SqlError::new(State::INVALID_TABLE_DEFINITION, text).object(|o| {
            o.schema = Some(table.schema_name.clone());
            o.table = Some(table.name.clone());
            o.constraint = Some(constraint.to_owned());
        }));
    }
    Ok(())
}

/// Gives a relation new files with the same pages and another persistence.
fn change(
    cx: &mut DdlContext<'_>,
    oid: Oid,
    old: RelId,
    to: Persistence,
    contents: Contents,
) -> Result<RelId> {
    let new = cx.engine.create_rel(cx.tx, super::storage_persistence(to))?;
    if contents == Contents::Index && to == Persistence::Unlogged {
        // What it restarts from; the copy goes over it.
        btree::create(cx.engine, cx.tx, &BtreeRel::new(new))?;
    }
    let mut interrupted = None;
    let copied = cx.engine.copy_rel(cx.tx, old, new, &mut || match cx.host.check_interrupt() {
        Ok(()) => Ok(()),
        Err(e) => {
            interrupted = Some(e);
            Err(StorageError::Canceled)
        }
    });
    match (interrupted, copied) {
        (Some(e), _) => return Err(e),
        (None, outcome) => outcome?,
    }
    cx.change(Oid::PG_CLASS, oid, |row| {
        row.put("relfilenode", Datum::Oid(new.raw()));
        row.put("relpersistence", Datum::Char(super::persistence_char(to) as u8));
    })?;
    cx.engine.drop_rel_at_commit(cx.tx, old)?;
    Ok(new)
}
