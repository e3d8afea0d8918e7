//! The catalog: real relations, read through versioned immutable snapshots.

use crate::types::Oid;
use hashbrown::HashMap;
use inkling_storage::ids::Lsn;
use std::sync::Arc;

pub mod bootstrap;
pub mod cache;
pub mod create;
pub mod ddl;
pub mod describe;
pub mod durability;
pub mod frozen;
pub mod info;
pub mod load;
pub mod maintain;
pub mod relations;
pub mod role_settings;
pub mod rows;
pub mod schema;
pub mod scram;
pub mod store;
pub(crate) mod stored_names;
pub mod temp;
pub mod views;

pub use cache::CatalogCache;
pub use schema::*;

/// A table as the heap knows it.
pub fn heap_rel(table: &TableDef) -> inkling_storage::heap::HeapRel {
    let rel = inkling_storage::heap::HeapRel::new(table.rel).with_fillfactor(table.fillfactor);
    match table.toast {
        Some((toast, _)) => rel.with_toast(toast),
        None => rel,
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct SchemaDef {
    pub oid: Oid,
    pub name: String,
    pub owner: Oid,
}

#[derive(Clone, PartialEq, Debug)]
pub struct RoleDef {
    pub oid: Oid,
    pub name: String,
    pub superuser: bool,
    pub can_login: bool,
    /// SCRAM verifier, as pg_authid.rolpassword holds it.
    pub password: Option<String>,
}

/// One version of the catalog, immutable and shared.
#[derive(Clone, Default, Debug)]
pub struct CatalogSnapshot {
    pub version: u64,
    /// The newest synchronous commit that this shows and that was not durable when it was read:
    /// nothing is told of it before that is flushed. Invalid: there was none.
    pub undurable: Lsn,
    pub tables: HashMap<Oid, Arc<TableDef>>,
    /// (schema, relation name), for tables, views, sequences and indexes.
    pub relations: HashMap<(Oid, String), Oid>,
    pub indexes: HashMap<Oid, Arc<IndexDef>>,
    pub schemas: HashMap<Oid, Arc<SchemaDef>>,
    pub schema_names: HashMap<String, Oid>,
    pub roles: HashMap<Oid, Arc<RoleDef>>,
    pub role_names: HashMap<String, Oid>,
    pub role_settings: role_settings::RoleSettings,
    /// What tables say about the durability of commits that wrote them.
    pub levels: durability::Levels,
}

impl CatalogSnapshot {
    /// The version of a catalog that only the transaction that changed it sees.
    pub const OWN: u64 = u64::MAX;

    pub fn table(&self, oid: Oid) -> Option<&Arc<TableDef>> {
        self.tables.get(&oid)
    }

    /// The relation that `name` means under a search path (schemas in order).
    pub fn find_relation(&self, path: &[Oid], name: &str) -> Option<Oid> {
        path.iter().find_map(|schema| self.find_in_schema(*schema, name))
    }

    pub fn find_in_schema(&self, schema: Oid, name: &str) -> Option<Oid> {
        // A borrowed pair cannot be looked up by a derived key; hashbrown's Equivalent can.
        self.relations.get(&RelationKey(schema, name)).copied()
    }
}

#[derive(Hash)]
struct RelationKey<'a>(Oid, &'a str);

impl hashbrown::Equivalent<(Oid, String)> for RelationKey<'_> {
    fn equivalent(&self, key: &(Oid, String)) -> bool {
        self.0 == key.0 && self.1 == key.1
    }
}
