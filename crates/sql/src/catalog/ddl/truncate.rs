//! TRUNCATE: new, empty files in place of the old ones, which go at commit.

use super::{DdlContext, foreign};
use crate::analyze::statement::Truncate;
use crate::catalog::{Persistence, TableDef};
use crate::error::{Result, Severity, SqlError, State};
use crate::types::{Datum, Oid};
use inkling_storage::btree::{self, BtreeRel};
use inkling_storage::ids::RelId;
use std::sync::Arc;

pub fn truncate(cx: &mut DdlContext<'_>, statement: &Truncate) -> Result<()> {
    let mut done: Vec<Oid> = Vec::new();
    let tables = foreign::truncated(&cx.catalog, &statement.tables, statement.cascade);
    for table in tables.iter().skip(statement.tables.len()) {
        let text = format!("truncate cascades to table \"{}\"", table.name);
        let notice = SqlError::new(State::SUCCESSFUL_COMPLETION, text);
        cx.notices.push(notice.severity(Severity::Notice));
    }
    foreign::check_truncated(&cx.catalog, &tables)?;
    for table in &tables {
        if table.system {
            return Err(SqlError::new(
                State::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: \"{}\" is a system catalog", table.name),
            ));
        }
        if !done.contains(&table.oid) {
            truncate_table(cx, table)?;
            if statement.restart_identity {
                for sequence in super::sequence::owned(&cx.catalog, table.oid) {
                    super::sequence::restart(cx, &sequence)?;
                }
            }
            done.push(table.oid);
        }
    }
    cx.next_command()
}

fn truncate_table(cx: &mut DdlContext<'_>, table: &Arc<TableDef>) -> Result<()> {
    super::readers::check_readers(cx, table)?;
    let new = replace_files(cx, table.persistence, table.oid, table.rel)?;
    super::readers::carry_readers(cx, table, new);
    if let Some((toast, _)) = table.toast {
        let found = cx.find(Oid::PG_CLASS, |r| r.get_oid("relfilenode") == Oid(toast.raw()))?;
        if let Some((_, row)) = found.first() {
            replace_files(cx, table.persistence, row.get_oid("oid"), toast)?;
        }
    }
    for index in &table.indexes {
        let rel = replace_files(cx, table.persistence, index.oid, index.rel)?;
        btree::create(cx.engine, cx.tx, &BtreeRel::new(rel))?;
    }
    Ok(())
}

fn replace_files(
    cx: &mut DdlContext<'_>,
    persistence: Persistence,
    oid: Oid,
    old: RelId,
) -> Result<RelId> {
    let rel = cx.engine.create_rel(cx.tx, super::storage_persistence(persistence))?;
    cx.change(Oid::PG_CLASS, oid, |row| {
        row.put("relfilenode", Datum::Oid(rel.raw()));
        row.put("relpages", Datum::Int4(0));
        row.put("reltuples", Datum::Float4(-1.0));
    })?;
    cx.engine.drop_rel_at_commit(cx.tx, old)?;
    Ok(rel)
}
