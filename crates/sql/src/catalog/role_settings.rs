//! Settings of roles and databases: pg_db_role_setting.
//!
//! ```text
//!   ALTER ROLE ALL SET            (0, 0)          weakest
//!   ALTER DATABASE d SET          (d, 0)
//!   ALTER ROLE r SET              (0, r)
//!   ALTER ROLE r IN DATABASE d    (d, r)          strongest; the start-up packet beats it
//! ```
//!
//! A row holds `{name=value,...}`, as psql's `\drds` shows it. What is stored was checked as SET
//! would check it; it takes effect when a session starts. A value that has become illegal since
//! (by an older or newer program) is passed over with a warning, so that nobody is locked out.

use super::ddl::DdlContext;
use super::rows::{CatalogRow, array, system_relation};
use crate::analyze::statement::AlterRoleSet;
use crate::catalog::bootstrap::POSTGRES;
use crate::error::{Result, SqlError, State};
use crate::settings::{self, ChangeSource};
use crate::types::{Datum, Oid};
use hashbrown::HashMap;

/// The rows, by (database, role); 0 stands for all.
#[derive(Clone, Default, Debug)]
pub struct RoleSettings(HashMap<(Oid, Oid), Vec<(String, String)>>);

impl RoleSettings {
    pub fn add(&mut self, row: &CatalogRow) {
        let key = (row.get_oid("setdatabase"), row.get_oid("setrole"));
        self.0.insert(key, pairs(row));
    }

    /// What a role's session in a database begins with, weakest first: (source, name, value).
    pub fn of_session(
        &self,
        database: Oid,
        role: Oid,
    ) -> impl Iterator<Item = (ChangeSource, &str, &str)> {
        let all = Oid::INVALID;
        let rows = [
            ((all, all), ChangeSource::Global),
            ((database, all), ChangeSource::Database),
            ((all, role), ChangeSource::Role),
            ((database, role), ChangeSource::RoleInDatabase),
        ];
        rows.into_iter().flat_map(|(key, source)| {
            let list = self.0.get(&key).map_or(&[][..], Vec::as_slice);
            list.iter().map(move |(name, value)| (source, name.as_str(), value.as_str()))
        })
    }
}

fn pairs(row: &CatalogRow) -> Vec<(String, String)> {
    let pair = |d: &Datum| match d {
        Datum::Text(t) => t.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())),
        _ => None,
    };
    row.get_items("setconfig").iter().filter_map(pair).collect()
}

fn config(pairs: &[(String, String)]) -> Datum {
    let items = pairs.iter().map(|(n, v)| Datum::text(format!("{n}={v}"))).collect();
    array(Oid::TEXT, items)
}

/// ALTER ROLE / DATABASE ... SET, RESET, RESET ALL.
pub fn alter(cx: &mut DdlContext<'_>, a: &AlterRoleSet) -> Result<()> {
    let database = match a.database.as_deref() {
        None => Oid::INVALID,
        Some(POSTGRES) => Oid::POSTGRES_DATABASE,
        Some(name) => {
            let text = format!("database \"{name}\" does not exist");
            return Err(SqlError::new(State::INVALID_CATALOG_NAME, text));
        }
    };
    let role = a.role.unwrap_or(Oid::INVALID);
    let is_its =
        |row: &CatalogRow| row.get_oid("setdatabase") == database && row.get_oid("setrole") == role;
    let found = cx.find(Oid::PG_DB_ROLE_SETTING, is_its)?.into_iter().next();
    let mut list = match (&a.set, &found) {
        (Some(_), Some((_, row))) => pairs(row),
        // RESET ALL forgets them.
        (None, _) | (Some(_), None) => Vec::new(),
    };
    if let Some(set) = &a.set {
        let value = set.value();
        let name = settings::check_stored(&set.name, value.as_deref())?;
        match (value, list.iter_mut().find(|(n, _)| *n == name)) {
            (Some(value), Some(entry)) => entry.1 = value,
            (Some(value), None) => list.push((name, value)),
            (None, _) => list.retain(|(n, _)| *n != name),
        }
    }
    match (found, list.is_empty()) {
        (None, true) => Ok(()),
        (Some((at, _)), true) => cx.delete(Oid::PG_DB_ROLE_SETTING, at),
        (Some((at, mut row)), false) => {
            row.put("setconfig", config(&list));
            cx.update(at, row)
        }
        (None, false) => {
            let row = CatalogRow::new(system_relation(Oid::PG_DB_ROLE_SETTING))
                .oid("setdatabase", database)
                .oid("setrole", role)
                .set("setconfig", config(&list));
            cx.insert(vec![row])
        }
    }
}

/// A role that goes takes its settings along.
pub fn drop_role(cx: &mut DdlContext<'_>, role: Oid) -> Result<()> {
    cx.delete_where(Oid::PG_DB_ROLE_SETTING, |row| row.get_oid("setrole") == role).map(|_| ())
}
