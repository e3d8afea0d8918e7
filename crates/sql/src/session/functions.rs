//! The built-in functions that ask the session or the catalog, by name.
//!
//! What is not answered here is refused by name (0A000): pg_proc lists PostgreSQL's functions, so
//! that clients find what they look for, and a call says plainly what is not there yet.

use super::around::Around;
use super::{Activity, CancelReason};
use crate::catalog::info;
use crate::error::{Result, SqlError, State};
use crate::functions::FnContext;
use crate::settings::{self, Kind};
use crate::types::{Datum, Oid};
use inkling_storage::lock::LockTag;

fn text_arg(args: &[Datum], at: usize) -> Option<&str> {
    match args.get(at) {
        Some(Datum::Text(t)) => Some(t),
        _ => None,
    }
}

fn int_arg(args: &[Datum], at: usize) -> i64 {
    match args.get(at) {
        Some(Datum::Int2(v)) => i64::from(*v),
        Some(Datum::Int4(v)) => i64::from(*v),
        Some(Datum::Int8(v)) => *v,
        _ => 0,
    }
}

fn oid_arg(args: &[Datum], at: usize) -> Oid {
    match args.get(at) {
        Some(Datum::Oid(v)) => Oid(*v),
        _ => Oid::INVALID,
    }
}

fn optional(text: Option<impl Into<compact_str::CompactString>>) -> Datum {
    text.map_or(Datum::Null, Datum::text)
}

/// Answers a scalar function.
pub(super) fn call(around: &Around, name: &str, args: &[Datum]) -> Result<Datum> {
    super::waiting::once(around, name, || call_once(around, name, args))
}

fn call_once(around: &Around, name: &str, args: &[Datum]) -> Result<Datum> {
    if let Some(answer) = super::sequences::call(around, name, args)? {
        return Ok(answer);
    }
    if let Some(answer) = super::waiting::call(around, name, args)? {
        return Ok(answer);
    }
    if let Some(answer) = session_call(around, name, args)? {
        return Ok(answer);
    }
    let view = info::View {
        catalog: around.catalog(),
        path: &around.search_path(),
        temp: around.temp_schemas().map(|temp| temp.main),
        engine: &around.db.engine,
    };
    match info::call(&view, name, args)? {
        Some(answer) => Ok(answer),
        None => Err(SqlError::unsupported(format!("function {name}"))),
    }
}

/// What only the session knows.
fn session_call(around: &Around, name: &str, args: &[Datum]) -> Result<Option<Datum>> {
    let answer = match name {
        "version" => Datum::text(version()),
        "current_user" | "session_user" | "getpgusername" => Datum::text(around.user_name.as_str()),
        "current_database" => Datum::text(around.database.as_str()),
        "current_schema" => {
            let catalog = around.catalog();
            let first =
                around.named_schemas().first().and_then(|s| catalog.schemas.get(s).cloned());
            optional(first.map(|s| s.name.clone()))
        }
        "current_schemas" => current_schemas(around, args),
        "current_setting" => current_setting(around, args)?,
        "set_config" => set_config(around, args)?,
        "pg_backend_pid" => Datum::Int4(around.pid),
        "pg_postmaster_start_time" | "pg_conf_load_time" => Datum::Timestamp(around.db.started),
        "pg_is_in_recovery" | "pg_jit_available" => Datum::Bool(false),
        "pg_cancel_backend" => interrupt(around, args, CancelReason::User),
        "pg_terminate_backend" => interrupt(around, args, CancelReason::Terminate),
        "pg_blocking_pids" => {
            let pids = around.db.engine.locks.blocking_pids(int_arg(args, 0) as i32);
            let items = pids.into_iter().map(Datum::Int4).collect();
            crate::catalog::rows::array(Oid::INT4, items)
        }
        "pg_safe_snapshot_blocking_pids" => {
            let ssi = around.db.engine.txns.ssi();
            let pids = ssi.safe_snapshot_blockers(int_arg(args, 0) as i32);
            let items = pids.into_iter().map(Datum::Int4).collect();
            crate::catalog::rows::array(Oid::INT4, items)
        }
        "pg_current_wal_lsn" => Datum::Int8(around.db.engine.wal.written().raw() as i64),
        "pg_current_wal_insert_lsn" => Datum::Int8(around.db.engine.wal.inserted().raw() as i64),
        "pg_current_wal_flush_lsn" => Datum::Int8(around.db.engine.wal.flushed().raw() as i64),
        "inet_client_port" | "inet_server_port" => Datum::Null,
        "pg_my_temp_schema" => {
            Datum::Oid(around.temp_schemas().map_or(Oid::INVALID, |temp| temp.main).0)
        }
        "pg_is_other_temp_schema" => is_other_temp_schema(around, args),
        "row_security_active" => Datum::Bool(false),
        "pg_trigger_depth" => Datum::Int4(0),
        "pg_notification_queue_usage" => Datum::Float8(0.0),
        "pg_stat_get_numscans" => Datum::Int8(0),
        "age" => xid_age(around, args),
        _ if name.starts_with("pg_stat_") => return super::stats::call(around, name, args),
        _ if name.starts_with("has_") && name.ends_with("_privilege") => Datum::Bool(true),
        "pg_has_role" => Datum::Bool(true),
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn is_other_temp_schema(around: &Around, args: &[Datum]) -> Datum {
    let Some(Datum::Oid(schema)) = args.first() else { return Datum::Null };
    let schema = Oid(*schema);
    let own = around.temp_schemas().is_some_and(|temp| temp.both().contains(&schema));
    Datum::Bool(!own && around.catalog().is_temporary_schema(schema))
}

fn version() -> String {
    format!(
        "PostgreSQL {} (Inkling {}) on {}-linux, 64-bit",
        settings::defs::SERVER_VERSION,
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

fn current_schemas(around: &Around, args: &[Datum]) -> Datum {
    let implicit = matches!(args.first(), Some(Datum::Bool(true)));
    let schemas = if implicit { around.search_path() } else { around.named_schemas() };
    let catalog = around.catalog();
    let names = schemas.iter().filter_map(|s| catalog.schemas.get(s));
    let items = names.map(|s| Datum::text(s.name.as_str())).collect();
    crate::catalog::rows::array(Oid::NAME, items)
}

fn current_setting(around: &Around, args: &[Datum]) -> Result<Datum> {
    let name = text_arg(args, 0).unwrap_or_default();
    let missing_ok = matches!(args.get(1), Some(Datum::Bool(true)));
    match around.settings().show(name) {
        Ok(value) => Ok(Datum::text(value)),
        Err(_) if missing_ok => Ok(Datum::Null),
        Err(e) => Err(e),
    }
}

fn set_config(around: &Around, args: &[Datum]) -> Result<Datum> {
    let Some(name) = text_arg(args, 0) else {
        return Err(SqlError::new(State::NULL_VALUE_NOT_ALLOWED, "SET requires parameter name"));
    };
    let local = matches!(args.get(2), Some(Datum::Bool(true)));
    around.set_from_function(name, text_arg(args, 1).unwrap_or_default(), local)?;
    around.settings().show(name).map(Datum::text)
}

fn interrupt(around: &Around, args: &[Datum], reason: CancelReason) -> Datum {
    Datum::Bool(around.db.interrupt(int_arg(args, 0) as i32, reason))
}

/// Answers a set-returning function.
pub(super) fn call_set(around: &Around, name: &str, args: &[Datum]) -> Result<Vec<Vec<Datum>>> {
    if let Some(answer) = super::inspect::call_set(around, name, args)? {
        return Ok(answer);
    }
    if let Some(row) = super::stats::call_set(around, name) {
        return Ok(vec![row]);
    }
    match name {
        "pg_show_all_settings" => Ok(all_settings(around)),
        "pg_stat_get_activity" => Ok(activity(around)),
        "pg_lock_status" => Ok(locks(around)),
        "pg_prepared_xact" => Ok(super::two_phase::rows(around)),
        "inkling_stat_get_durability" => Ok(super::durability::tables(around)),
        "pg_partition_ancestors"
        | "pg_get_publication_tables"
        | "pg_get_replication_slots"
        | "pg_stat_get_wal_senders"
        | "pg_hba_file_rules"
        | "pg_show_all_file_settings"
        | "pg_stat_get_progress_info"
        | "pg_cursor"
        | "pg_tablespace_databases" => Ok(Vec::new()),
        "pg_timezone_names" => Ok(time_zones(around)),
        "inkling_sequence" => Ok(vec![super::sequences::row(around, oid_arg(args, 0))?]),
        _ => Err(SqlError::unsupported(format!("function {name}"))),
    }
}

fn all_settings(around: &Around) -> Vec<Vec<Datum>> {
    let settings = around.settings();
    settings
        .all()
        .into_iter()
        .map(|(def, value, reset, source)| {
            let (kind, unit, min, max, words) = match def.kind {
                Kind::Bool => ("bool", None, None, None, None),
                Kind::Int { min, max, unit } => {
                    ("integer", unit.as_str(), Some(min.to_string()), Some(max.to_string()), None)
                }
                Kind::Real { min, max } => {
                    ("real", None, Some(min.to_string()), Some(max.to_string()), None)
                }
                Kind::Enum(words) => ("enum", None, None, None, Some(words)),
                Kind::Text => ("string", None, None, None, None),
            };
            let words = words.map_or(Datum::Null, |w| {
                let items = w.iter().map(|w| Datum::text(*w)).collect();
                crate::catalog::rows::array(Oid::TEXT, items)
            });
            vec![
                Datum::text(def.name),
                Datum::text(value),
                optional(unit),
                Datum::text(def.group),
                Datum::text(def.description),
                Datum::Null,
                Datum::text(def.context.as_str()),
                Datum::text(kind),
                Datum::text(source.as_str()),
                optional(min),
                optional(max),
                words,
                Datum::text(def.default),
                Datum::text(reset),
                Datum::Null,
                Datum::Null,
                Datum::Bool(false),
            ]
        })
        .collect()
}

fn activity(around: &Around) -> Vec<Vec<Datum>> {
    let catalog = around.catalog();
    let waits = Waits::now(around);
    around
        .db
        .sessions()
        .into_iter()
        .map(|s| {
            let role = catalog.role_names.get(&s.user).copied().unwrap_or(Oid::INVALID);
            let address = s.client.rsplit_once(':');
            let port = address.and_then(|(_, p)| p.parse().ok());
            let (wait_type, wait_event) = waits.of(s.pid, s.activity);
            let xid = waits.xids.get(&s.pid);
            vec![
                Datum::Oid(Oid::POSTGRES_DATABASE.0),
                Datum::text(around.database.as_str()),
                Datum::Int4(s.pid),
                Datum::Null,
                Datum::Oid(role.0),
                Datum::text(s.user),
                Datum::text(""),
                optional(address.map(|(host, _)| host)),
                Datum::Null,
                port.map_or(Datum::Null, Datum::Int4),
                Datum::Timestamp(s.started),
                s.transaction_start.map_or(Datum::Null, Datum::Timestamp),
                s.query_start.map_or(Datum::Null, Datum::Timestamp),
                Datum::Timestamp(s.changed),
                optional(wait_type),
                optional(wait_event),
                Datum::text(s.activity.as_str()),
                xid.map_or(Datum::Null, |xid| Datum::Oid(*xid)),
                s.xmin.map_or(Datum::Null, |xid| Datum::Oid(xid.raw() as u32)),
                Datum::Null,
                Datum::text(s.query),
                Datum::text("client backend"),
            ]
        })
        .collect()
}

/// What sessions wait for, by process id.
struct Waits {
    locks: hashbrown::HashMap<i32, &'static str>,
    asleep: Vec<i32>,
    /// DEFERRABLE transactions before their first read.
    deferred: Vec<i32>,
    /// Not a wait, but seen in the same look at the locks: who runs which transaction.
    xids: hashbrown::HashMap<i32, u32>,
}

impl Waits {
    fn now(around: &Around) -> Waits {
        let asleep = around.db.sleepers.pids();
        let deferred = around.db.engine.txns.ssi().deferred();
        let (locks, xids) = Default::default();
        let mut waits = Waits { locks, asleep, deferred, xids };
        for lock in around.db.engine.locks.list() {
            match lock.tag {
                _ if !lock.granted => {
                    waits.locks.insert(lock.pid, lock.tag.kind());
                }
                LockTag::Xid(xid) => {
                    // Subtransactions come after their parents.
                    waits.xids.entry(lock.pid).or_insert(xid.raw() as u32);
                }
                _ => {}
            }
        }
        waits
    }

    /// wait_event_type and wait_event, by PostgreSQL's names.
    fn of(&self, pid: i32, activity: Activity) -> (Option<&'static str>, Option<&'static str>) {
        if let Some(kind) = self.locks.get(&pid) {
            return (Some("Lock"), Some(kind));
        }
        if self.asleep.contains(&pid) {
            return (Some("Timeout"), Some("PgSleep"));
        }
        if self.deferred.contains(&pid) {
            return (Some("IPC"), Some("SafeSnapshot"));
        }
        match activity {
            Activity::Active => (None, None),
            _ => (Some("Client"), Some("ClientRead")),
        }
    }
}

fn locks(around: &Around) -> Vec<Vec<Datum>> {
    let mut rows = heavy_locks(around);
    rows.extend(super::siread::locks(around));
    rows
}

fn heavy_locks(around: &Around) -> Vec<Vec<Datum>> {
    let now = around.clock_timestamp();
    let database = Oid::POSTGRES_DATABASE.0;
    around
        .db
        .engine
        .locks
        .list()
        .into_iter()
        .map(|l| {
            let mut row = vec![Datum::Null; 16];
            row[0] = Datum::text(l.tag.kind());
            match l.tag {
                LockTag::Relation(oid) => {
                    row[1] = Datum::Oid(database);
                    row[2] = Datum::Oid(oid);
                }
                LockTag::Tuple(rel, at) => {
                    row[1] = Datum::Oid(database);
                    row[2] = Datum::Oid(rel.raw());
                    row[3] = Datum::Int4(at.block as i32);
                    row[4] = Datum::Int2(at.slot.raw() as i16);
                }
                LockTag::Xid(xid) => row[6] = Datum::Oid(xid.raw() as u32),
                LockTag::Virtual(owner, number) => {
                    row[5] = Datum::text(format!("{owner}/{number}"));
                }
                LockTag::Object(class, object) => {
                    row[1] = Datum::Oid(database);
                    row[7] = Datum::Oid(class);
                    row[8] = Datum::Oid(object);
                    row[9] = Datum::Int2(0);
                }
                LockTag::Advisory(key) => {
                    let (class, object, sub) = key.parts();
                    row[1] = Datum::Oid(database);
                    row[7] = Datum::Oid(class);
                    row[8] = Datum::Oid(object);
                    row[9] = Datum::Int2(sub as i16);
                }
                _ => {}
            }
            let (owner, number) = l.virtual_id;
            row[10] = Datum::text(format!("{owner}/{number}"));
            // Nobody's process: a prepared transaction's.
            row[11] = if l.pid == 0 { Datum::Null } else { Datum::Int4(l.pid) };
            row[12] = Datum::text(l.mode.to_string());
            row[13] = Datum::Bool(l.granted);
            row[14] = Datum::Bool(l.fast_path);
            row[15] = l.waiting_since.map_or(Datum::Null, |since| {
                Datum::Timestamp(now - since.elapsed().as_micros() as i64)
            });
            row
        })
        .collect()
}

/// Microseconds from 1970 to 2000.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// How many xids ago; the permanent ones are infinitely old.
fn xid_age(around: &Around, args: &[Datum]) -> Datum {
    let next = around.db.engine.txns.next_xid().raw() as u32;
    match args.first() {
        Some(Datum::Oid(xid)) if *xid < 3 => Datum::Int4(i32::MAX),
        Some(Datum::Oid(xid)) => Datum::Int4(next.wrapping_sub(*xid) as i32),
        _ => Datum::Null,
    }
}

fn time_zones(around: &Around) -> Vec<Vec<Datum>> {
    let now = around.clock_timestamp() + EPOCH_MICROS;
    let Ok(now) = jiff::Timestamp::from_microsecond(now) else { return Vec::new() };
    let zone_row = |name: jiff::tz::TimeZoneName| {
        let zone = jiff::tz::TimeZone::get(name.as_str()).ok()?;
        let at = zone.to_offset_info(now);
        let offset = crate::types::Interval {
            months: 0,
            days: 0,
            micros: i64::from(at.offset().seconds()) * 1_000_000,
        };
        Some(vec![
            Datum::text(name.as_str()),
            Datum::text(at.abbreviation()),
            Datum::Interval(offset),
            Datum::Bool(at.dst().is_dst()),
        ])
    };
    jiff::tz::db().available().filter_map(zone_row).collect()
}
