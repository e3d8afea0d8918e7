//! Where new relations go, how long they live, and whose temporary ones are whose.
//!
//! ```text
//!   create table t           first schema of the path, or temporary if that is pg_temp
//!   create temp table t      the session's temporary schema
//!   create table pg_temp.t   the same
//!   create table s.t         schema s
//! ```
//!
//! Everything in a temporary schema is temporary and nothing elsewhere is; a view over something
//! temporary becomes temporary. Other sessions' temporary relations are in the catalog, and may be
//! named, but not used: their pages are nobody else's business.

use super::ddl::notice;
use super::scope::Binder;
use super::statement::TargetSchema;
use crate::catalog::{Persistence, TableDef};
use crate::error::{Result, SqlError, State};
use crate::types::Oid;
use pg_query::protobuf::RangeVar;
use std::sync::Arc;

/// Another session's temporary relation was named by a statement that would `verb` it.
pub(crate) fn other_sessions(verb: &str) -> SqlError {
    let message = format!("cannot {verb} temporary tables of other sessions");
    SqlError::new(State::FEATURE_NOT_SUPPORTED, message)
}

impl Binder<'_> {
    /// Where a new relation goes, and how it lives.
    pub(crate) fn creation_target(&self, r: &RangeVar) -> Result<(TargetSchema, Persistence)> {
        self.check_database(r)?;
        let asked = match r.relpersistence.as_str() {
            "u" => Persistence::Unlogged,
            "t" => Persistence::Temporary,
            _ => Persistence::Permanent,
        };
        let target = self.target_schema(r, asked)?;
        let persistence = self.persistence_in(target, asked, r.location)?;
        let TargetSchema::Named(schema) = target else { return Ok((target, persistence)) };
        if self.is_system_schema(schema) && !self.stored {
            // The bootstrap itself creates there.
            let bootstrapping = self.cx.creation_schema == Some(schema);
            if !bootstrapping {
                let name = self.cx.catalog.schemas.get(&schema).map_or("?", |s| s.name.as_str());
                let message = format!("permission denied to create \"{name}.{}\"", r.relname);
                return Err(self
                    .error(State::INSUFFICIENT_PRIVILEGE, message, -1)
                    .detail("System catalog modifications are currently disallowed."));
            }
        }
        Ok((target, persistence))
    }

    fn target_schema(&self, r: &RangeVar, asked: Persistence) -> Result<TargetSchema> {
        if r.schemaname.is_empty() {
            if asked == Persistence::Temporary || self.cx.create_temporary {
                return Ok(TargetSchema::Temporary);
            }
            let schema = self.cx.creation_schema.ok_or_else(|| {
                let message = "no schema has been selected to create in";
                self.error(State::INVALID_SCHEMA_NAME, message, r.location)
            })?;
            return Ok(TargetSchema::Named(schema));
        }
        if r.schemaname == "pg_temp" {
            return Ok(TargetSchema::Temporary);
        }
        let schema = self.need_schema(&r.schemaname, r.location)?;
        Ok(match self.cx.temp_schema == Some(schema) {
            true => TargetSchema::Temporary,
            false => TargetSchema::Named(schema),
        })
    }

    /// How a new relation lives that was asked for with `asked`: in a temporary schema everything
    /// is temporary, and nothing elsewhere.
    fn persistence_in(
        &self,
        target: TargetSchema,
        asked: Persistence,
        location: i32,
    ) -> Result<Persistence> {
        let others = match target {
            TargetSchema::Named(schema) => self.cx.catalog.is_temporary_schema(schema),
            TargetSchema::Temporary => false,
        };
        let message = match (asked, target) {
            (Persistence::Unlogged, TargetSchema::Temporary) => {
                "only temporary relations may be created in temporary schemas"
            }
            (Persistence::Unlogged, _) if others => {
                "only temporary relations may be created in temporary schemas"
            }
            (_, TargetSchema::Temporary) => return Ok(Persistence::Temporary),
            _ if others => "cannot create relations in temporary schemas of other sessions",
            (Persistence::Temporary, _) => {
                "cannot create temporary relation in non-temporary schema"
            }
            _ => return Ok(asked),
        };
        Err(self.error(State::INVALID_TABLE_DEFINITION, message, location))
    }

    /// A view over a temporary relation is temporary, whether or not it was asked to be.
    pub(crate) fn view_name(&self, name: &RangeVar, reads: &[Oid]) -> (RangeVar, Vec<SqlError>) {
        let mut name = RangeVar { location: -1, ..name.clone() };
        let tables = &self.cx.catalog.tables;
        let over_temporary = reads
            .iter()
            .filter_map(|oid| tables.get(oid))
            .any(|t| t.persistence == Persistence::Temporary);
        if name.relpersistence != "p" || !over_temporary {
            return (name, Vec::new());
        }
        name.relpersistence = "t".to_owned();
        let message = format!("view \"{}\" will be a temporary view", name.relname);
        (name, vec![notice(State::SUCCESSFUL_COMPLETION, message)])
    }

    /// Refuses to `verb` another session's temporary relation.
    pub(crate) fn refuse_others_temporary(&self, r: &RangeVar, verb: &str) -> Result<()> {
        let schema = (!r.schemaname.is_empty()).then_some(r.schemaname.as_str());
        let found = self.find_relation(schema, &r.relname, r.location)?;
        match found.and_then(|oid| self.table_behind(oid)) {
            Some(table) if self.is_other_temporary(table) => Err(other_sessions(verb)),
            _ => Ok(()),
        }
    }

    /// The table itself, or the table of an index.
    pub(crate) fn table_behind(&self, oid: Oid) -> Option<&Arc<TableDef>> {
        let catalog = self.cx.catalog;
        let of_index = || catalog.indexes.get(&oid).and_then(|i| catalog.tables.get(&i.table));
        catalog.tables.get(&oid).or_else(of_index)
    }

    /// Whether a relation is another session's temporary one. What is stored was looked at when it
    /// was stored; binding it again for its text reads nothing.
    pub(crate) fn is_other_temporary(&self, table: &TableDef) -> bool {
        table.persistence == Persistence::Temporary
            && Some(table.schema) != self.cx.temp_schema
            && !self.stored
    }
}
