//! The registry of settings: one row each.

use std::collections::HashMap;
use std::sync::OnceLock;

/// When a setting may change, PostgreSQL's contexts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Context {
    /// Never: it tells a fact.
    Internal,
    /// At server start.
    Postmaster,
    /// At a reload of the configuration file.
    Sighup,
    /// At the start of a session.
    Backend,
    /// By a superuser, at any time.
    Superuser,
    /// By anybody, at any time.
    User,
}

impl Context {
    pub const fn as_str(self) -> &'static str {
        match self {
            Context::Internal => "internal",
            Context::Postmaster => "postmaster",
            Context::Sighup => "sighup",
            Context::Backend => "backend",
            Context::Superuser => "superuser",
            Context::User => "user",
        }
    }
}

/// The unit that a number without one is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    None,
    /// Kilobytes.
    Kb,
    /// Megabytes.
    Mb,
    /// Pages of 8 kB.
    Blocks,
    Ms,
    Sec,
    Min,
}

impl Unit {
    /// pg_settings.unit.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Unit::None => None,
            Unit::Kb => Some("kB"),
            Unit::Mb => Some("MB"),
            Unit::Blocks => Some("8kB"),
            Unit::Ms => Some("ms"),
            Unit::Sec => Some("s"),
            Unit::Min => Some("min"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Bool,
    Int {
        min: i64,
        max: i64,
        unit: Unit,
    },
    Real {
        min: f64,
        max: f64,
    },
    /// Accepted words; the first is not special.
    Enum(&'static [&'static str]),
    Text,
}

#[derive(Debug)]
pub struct SettingDef {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub context: Context,
    /// Changes are told to the client in a ParameterStatus message.
    pub report: bool,
    pub group: &'static str,
    pub description: &'static str,
}

const fn def(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    context: Context,
    group: &'static str,
    description: &'static str,
) -> SettingDef {
    SettingDef { name, kind, default, context, report: false, group, description }
}

const fn reported(mut d: SettingDef) -> SettingDef {
    d.report = true;
    d
}

const fn int(min: i64, max: i64, unit: Unit) -> Kind {
    Kind::Int { min, max, unit }
}

const MS: Kind = int(0, i32::MAX as i64, Unit::Ms);
/// Without standbys all but `off` mean the same, as in PostgreSQL.
const COMMIT_LEVELS: Kind = Kind::Enum(&["local", "remote_write", "remote_apply", "on", "off"]);
const ONLY_ON: Kind = Kind::Enum(&["on"]);
const ONLY_OFF: Kind = Kind::Enum(&["off"]);
const LEVELS: Kind = Kind::Enum(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error",
]);
const ISOLATION: Kind =
    Kind::Enum(&["serializable", "repeatable read", "read committed", "read uncommitted"]);

use Context::{Internal, Postmaster, Sighup, Superuser, User};

const PRESET: &str = "Preset Options";
const MEMORY: &str = "Resource Usage / Memory";
const WAL: &str = "Write-Ahead Log / Settings";
const CHECKPOINTS: &str = "Write-Ahead Log / Checkpoints";
const CLIENT: &str = "Client Connection Defaults / Statement Behavior";
const LOCALE: &str = "Client Connection Defaults / Locale and Formatting";
const CONNECT: &str = "Connections and Authentication / Connection Settings";
const LOCKS: &str = "Lock Management";
const COMPAT: &str = "Version and Platform Compatibility / Previous PostgreSQL Versions";
const BGWRITER: &str = "Resource Usage / Background Writer";
const LOGGING: &str = "Reporting and Logging / What to Log";
const PLANNER: &str = "Query Tuning / Planner Method Configuration";
const VACUUM: &str = "Autovacuum";
const VISIBILITY: &str = "Transaction Status and Visibility";

/// What PostgreSQL release the server claims to be for its clients.
pub const SERVER_VERSION: &str = "15.0";
pub const SERVER_VERSION_NUM: &str = "150000";

pub static SETTINGS: &[SettingDef] = &[
    reported(def(
        "application_name",
        Kind::Text,
        "",
        User,
        LOGGING,
        "Sets the application name to be reported in statistics and logs.",
    )),
    def("autovacuum", ONLY_OFF, "off", Sighup, VACUUM, "Starts the autovacuum subprocess."),
    def(
        "bgwriter_delay",
        int(10, 10_000, Unit::Ms),
        "200",
        Sighup,
        BGWRITER,
        "Background writer sleep time between rounds.",
    ),
    def(
        "bgwriter_flush_after",
        int(0, 256, Unit::Blocks),
        "64",
        Sighup,
        BGWRITER,
        "Number of pages after which previously performed writes are flushed to disk.",
    ),
    def(
        "bgwriter_lru_maxpages",
        int(0, 1_073_741_823, Unit::None),
        "100",
        Sighup,
        BGWRITER,
        "Background writer maximum number of LRU pages to flush per round.",
    ),
    def(
        "bgwriter_lru_multiplier",
        Kind::Real { min: 0.0, max: 10.0 },
        "2",
        Sighup,
        BGWRITER,
        "Multiple of the average buffer usage to free per round.",
    ),
    def(
        "block_size",
        int(8192, 8192, Unit::None),
        "8192",
        Internal,
        PRESET,
        "Shows the size of a disk block.",
    ),
    def(
        "bytea_output",
        Kind::Enum(&["escape", "hex"]),
        "hex",
        User,
        CLIENT,
        "Sets the output format for bytea.",
    ),
    def(
        "checkpoint_completion_target",
        Kind::Real { min: 0.0, max: 1.0 },
        "0.9",
        Sighup,
        CHECKPOINTS,
        "Time spent flushing dirty buffers during checkpoint, as fraction of checkpoint interval.",
    ),
    def(
        "checkpoint_flush_after",
        int(0, 256, Unit::Blocks),
        "32",
        Sighup,
        CHECKPOINTS,
        "Number of pages after which previously performed writes are flushed to disk.",
    ),
    def(
        "checkpoint_timeout",
        int(30, 86_400, Unit::Sec),
        "300",
        Sighup,
        CHECKPOINTS,
        "Sets the maximum time between automatic WAL checkpoints.",
    ),
    def(
        "checkpoint_warning",
        int(0, i32::MAX as i64, Unit::Sec),
        "30",
        Sighup,
        CHECKPOINTS,
        "Sets the maximum time before warning if checkpoints triggered by WAL volume happen too \
         frequently.",
    ),
    reported(def(
        "client_encoding",
        Kind::Enum(&["UTF8", "UTF-8", "utf8", "utf-8", "unicode", "UNICODE"]),
        "UTF8",
        User,
        LOCALE,
        "Sets the client's character set encoding.",
    )),
    def(
        "client_min_messages",
        LEVELS,
        "notice",
        User,
        CLIENT,
        "Sets the message levels that are sent to the client.",
    ),
    def(
        "data_checksums",
        Kind::Bool,
        "on",
        Internal,
        PRESET,
        "Shows whether data checksums are turned on for this cluster.",
    ),
    def(
        "data_directory",
        Kind::Text,
        "",
        Postmaster,
        "File Locations",
        "Sets the server's data directory.",
    ),
    reported(def(
        "DateStyle",
        Kind::Text,
        "ISO, MDY",
        User,
        LOCALE,
        "Sets the display format for date and time values.",
    )),
    def(
        "deadlock_timeout",
        int(1, i32::MAX as i64, Unit::Ms),
        "1000",
        Superuser,
        LOCKS,
        "Sets the time to wait on a lock before checking for deadlock.",
    ),
    def(
        "default_table_access_method",
        Kind::Enum(&["heap"]),
        "heap",
        User,
        CLIENT,
        "Sets the default table access method for new tables.",
    ),
    def(
        "default_tablespace",
        Kind::Enum(&["", "pg_default"]),
        "",
        User,
        CLIENT,
        "Sets the default tablespace to create tables and indexes in.",
    ),
    def(
        "default_transaction_deferrable",
        Kind::Bool,
        "off",
        User,
        CLIENT,
        "Sets the default deferrable status of new transactions.",
    ),
    def(
        "default_transaction_isolation",
        ISOLATION,
        "read committed",
        User,
        CLIENT,
        "Sets the transaction isolation level of each new transaction.",
    ),
    reported(def(
        "default_transaction_read_only",
        Kind::Bool,
        "off",
        User,
        CLIENT,
        "Sets the default read-only status of new transactions.",
    )),
    def(
        "extra_float_digits",
        int(-15, 3, Unit::None),
        "1",
        User,
        LOCALE,
        "Sets the number of digits displayed for floating-point values.",
    ),
    def("fsync", Kind::Bool, "on", Sighup, WAL, "Forces synchronization of updates to disk."),
    def(
        "full_page_writes",
        Kind::Bool,
        "on",
        Sighup,
        WAL,
        "Writes full pages to WAL when first modified after a checkpoint.",
    ),
    def(
        "hint_policy",
        Kind::Enum(&["frame", "page_lsn", "flushed", "off", "unsafe_immediate"]),
        "frame",
        Postmaster,
        VISIBILITY,
        "Selects where readers keep what they learned about the fate of transactions.",
    ),
    def(
        "idle_in_transaction_session_timeout",
        MS,
        "0",
        User,
        CLIENT,
        "Sets the maximum allowed idle time between queries, when in a transaction.",
    ),
    reported(def(
        "in_hot_standby",
        Kind::Bool,
        "off",
        Internal,
        PRESET,
        "Shows whether hot standby is currently active.",
    )),
    reported(def(
        "inkling_version",
        Kind::Text,
        env!("CARGO_PKG_VERSION"),
        Internal,
        PRESET,
        "Shows Inkling's own version.",
    )),
    reported(def(
        "integer_datetimes",
        Kind::Bool,
        "on",
        Internal,
        PRESET,
        "Shows whether datetimes are integer based.",
    )),
    reported(def(
        "IntervalStyle",
        Kind::Enum(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]),
        "postgres",
        User,
        LOCALE,
        "Sets the display format for interval values.",
    )),
    reported(def(
        "is_superuser",
        Kind::Bool,
        "on",
        Internal,
        PRESET,
        "Shows whether the current user is a superuser.",
    )),
    def("jit", ONLY_OFF, "off", User, PLANNER, "Allow JIT compilation."),
    def("lc_collate", Kind::Text, "C", Internal, LOCALE, "Shows the collation order locale."),
    def(
        "lc_ctype",
        Kind::Text,
        "C",
        Internal,
        LOCALE,
        "Shows the character classification and case conversion locale.",
    ),
    def(
        "lc_messages",
        Kind::Enum(&["C", "", "en_US.UTF-8", "en_US.utf8", "C.UTF-8"]),
        "C",
        Superuser,
        LOCALE,
        "Sets the language in which messages are displayed.",
    ),
    def(
        "listen_addresses",
        Kind::Text,
        "localhost",
        Postmaster,
        CONNECT,
        "Sets the host name or IP address(es) to listen to.",
    ),
    def(
        "lock_timeout",
        MS,
        "0",
        User,
        CLIENT,
        "Sets the maximum allowed duration of any wait for a lock.",
    ),
    def("log_checkpoints", Kind::Bool, "on", Sighup, LOGGING, "Logs each checkpoint."),
    def("log_lock_waits", Kind::Bool, "off", Superuser, LOGGING, "Logs long lock waits."),
    def(
        "log_min_duration_statement",
        int(-1, i32::MAX as i64, Unit::Ms),
        "-1",
        Superuser,
        LOGGING,
        "Sets the minimum execution time above which all statements will be logged.",
    ),
    def(
        "log_startup_progress_interval",
        int(0, i32::MAX as i64, Unit::Ms),
        "10000",
        Sighup,
        LOGGING,
        "Time between progress updates for long-running startup operations.",
    ),
    def(
        "maintenance_work_mem",
        int(1024, i32::MAX as i64, Unit::Kb),
        "65536",
        User,
        MEMORY,
        "Sets the maximum memory to be used for maintenance operations.",
    ),
    def(
        "max_connections",
        int(1, 262_143, Unit::None),
        "10000",
        Postmaster,
        CONNECT,
        "Sets the maximum number of concurrent connections.",
    ),
    def(
        "max_identifier_length",
        int(63, 63, Unit::None),
        "63",
        Internal,
        PRESET,
        "Shows the maximum identifier length.",
    ),
    def(
        "max_index_keys",
        int(32, 32, Unit::None),
        "32",
        Internal,
        PRESET,
        "Shows the maximum number of index keys.",
    ),
    def(
        "max_pred_locks_per_page",
        int(0, i32::MAX as i64, Unit::None),
        "2",
        Sighup,
        LOCKS,
        "Sets the maximum number of predicate-locked tuples per page.",
    ),
    def(
        "max_pred_locks_per_relation",
        int(i32::MIN as i64, i32::MAX as i64, Unit::None),
        "-2",
        Sighup,
        LOCKS,
        "Sets the maximum number of predicate-locked pages and tuples per relation.",
    ),
    def(
        "max_pred_locks_per_transaction",
        int(10, i32::MAX as i64, Unit::None),
        "64",
        Postmaster,
        LOCKS,
        "Sets the maximum number of predicate locks per transaction.",
    ),
    def(
        "max_prepared_transactions",
        int(0, 262_143, Unit::None),
        "0",
        Postmaster,
        MEMORY,
        "Sets the maximum number of simultaneously prepared transactions.",
    ),
    def(
        "max_shared_row_locks",
        int(1_024, i32::MAX as i64, Unit::None),
        "1048576",
        Postmaster,
        LOCKS,
        "Sets the maximum number of shared row locks, of all sessions together.",
    ),
    def(
        "max_wal_size",
        int(2, i32::MAX as i64, Unit::Mb),
        "1024",
        Sighup,
        CHECKPOINTS,
        "Sets the WAL size that triggers a checkpoint.",
    ),
    def(
        "min_wal_size",
        int(2, i32::MAX as i64, Unit::Mb),
        "80",
        Sighup,
        CHECKPOINTS,
        "Sets the minimum size to shrink the WAL to.",
    ),
    def(
        "port",
        int(1, 65_535, Unit::None),
        "5432",
        Postmaster,
        CONNECT,
        "Sets the TCP port the server listens on.",
    ),
    def(
        "read_durable",
        Kind::Bool,
        "off",
        User,
        WAL,
        "Holds answers back until everything that they can show is durable.",
    ),
    def("row_security", Kind::Bool, "on", User, CLIENT, "Enable row security."),
    reported(def(
        "scram_iterations",
        int(1, i32::MAX as i64, Unit::None),
        "4096",
        User,
        "Connections and Authentication / Authentication",
        "Sets the iteration count for SCRAM secret generation.",
    )),
    def(
        "search_path",
        Kind::Text,
        "\"$user\", public",
        User,
        CLIENT,
        "Sets the schema search order for names that are not schema-qualified.",
    ),
    reported(def(
        "server_encoding",
        Kind::Text,
        "UTF8",
        Internal,
        PRESET,
        "Shows the server (database) character set encoding.",
    )),
    reported(def(
        "server_version",
        Kind::Text,
        SERVER_VERSION,
        Internal,
        PRESET,
        "Shows the server version.",
    )),
    def(
        "server_version_num",
        int(150_000, 150_000, Unit::None),
        SERVER_VERSION_NUM,
        Internal,
        PRESET,
        "Shows the server version as an integer.",
    ),
    reported(def(
        "session_authorization",
        Kind::Text,
        "",
        Internal,
        CLIENT,
        "Shows the session user name.",
    )),
    def(
        "shared_buffers",
        int(16, 1_073_741_823, Unit::Blocks),
        "16384",
        Postmaster,
        MEMORY,
        "Sets the number of shared memory buffers used by the server.",
    ),
    reported(def(
        "standard_conforming_strings",
        ONLY_ON,
        "on",
        User,
        COMPAT,
        "Causes '...' strings to treat backslashes literally.",
    )),
    def(
        "statement_cache_size",
        int(0, 10_000, Unit::None),
        "64",
        User,
        MEMORY,
        "Sets how many statements a session keeps planned without being asked to.",
    ),
    def(
        "statement_timeout",
        MS,
        "0",
        User,
        CLIENT,
        "Sets the maximum allowed duration of any statement.",
    ),
    def(
        "status_cache",
        Kind::Enum(&["none", "one", "few", "pages"]),
        "few",
        Postmaster,
        VISIBILITY,
        "Selects how a session remembers the fate of transactions.",
    ),
    def(
        "synchronize_seqscans",
        ONLY_OFF,
        "off",
        User,
        COMPAT,
        "Enable synchronized sequential scans.",
    ),
    def(
        "synchronous_commit",
        COMMIT_LEVELS,
        "on",
        User,
        WAL,
        "Sets the current transaction's synchronization level.",
    ),
    reported(def(
        "TimeZone",
        Kind::Text,
        "UTC",
        User,
        LOCALE,
        "Sets the time zone for displaying and interpreting time stamps.",
    )),
    def(
        "timezone_abbreviations",
        Kind::Enum(&["Default"]),
        "Default",
        User,
        LOCALE,
        "Selects a file of time zone abbreviations.",
    ),
    def(
        "transaction_deferrable",
        Kind::Bool,
        "off",
        User,
        CLIENT,
        "Whether to defer a read-only serializable transaction until it can be executed with no possible serialization failures.",
    ),
    def(
        "transaction_isolation",
        ISOLATION,
        "read committed",
        User,
        CLIENT,
        "Sets the current transaction's isolation level.",
    ),
    def(
        "transaction_read_only",
        Kind::Bool,
        "off",
        User,
        CLIENT,
        "Sets the current transaction's read-only status.",
    ),
    def(
        "unix_socket_directories",
        Kind::Enum(&[""]),
        "",
        Postmaster,
        CONNECT,
        "Sets the directories where Unix-domain sockets will be created.",
    ),
    def(
        "wal_block_size",
        int(8192, 8192, Unit::None),
        "8192",
        Internal,
        PRESET,
        "Shows the block size in the write ahead log.",
    ),
    def(
        "wal_buffers",
        int(-1, 262_143, Unit::Blocks),
        "2048",
        Postmaster,
        WAL,
        "Sets the number of disk-page buffers in shared memory for WAL.",
    ),
    def(
        "wal_compression",
        Kind::Enum(&["off", "on", "lz4"]),
        "off",
        Superuser,
        WAL,
        "Compresses full-page writes written in WAL file with specified method.",
    ),
    def(
        "wal_level",
        Kind::Enum(&["replica"]),
        "replica",
        Postmaster,
        WAL,
        "Sets the level of information written to the WAL.",
    ),
    def(
        "wal_segment_size",
        int(16_777_216, 16_777_216, Unit::None),
        "16777216",
        Internal,
        PRESET,
        "Shows the size of write ahead log segments.",
    ),
    def(
        "vacuum_freeze_min_age",
        int(0, 1_000_000_000, Unit::None),
        "50000000",
        User,
        CLIENT,
        "Minimum age at which VACUUM should freeze a table row.",
    ),
    def(
        "vacuum_freeze_table_age",
        int(0, 2_000_000_000, Unit::None),
        "150000000",
        User,
        CLIENT,
        "Age at which VACUUM should scan whole table to freeze tuples.",
    ),
    def(
        "wal_writer_delay",
        int(1, 10_000, Unit::Ms),
        "200",
        Sighup,
        WAL,
        "Time after which an asynchronous commit is durable unless its table says otherwise.",
    ),
    def(
        "wal_writer_flush_after",
        int(0, i32::MAX as i64, Unit::Blocks),
        "128",
        Sighup,
        WAL,
        "Amount of WAL written out by WAL writer that triggers a flush.",
    ),
    def(
        "work_mem",
        int(64, i32::MAX as i64, Unit::Kb),
        "4096",
        User,
        MEMORY,
        "Sets the maximum memory to be used for query workspaces.",
    ),
];

/// The setting called `name` (in any case).
pub fn find(name: &str) -> Option<&'static SettingDef> {
    static BY_NAME: OnceLock<HashMap<String, &'static SettingDef>> = OnceLock::new();
    let map =
        BY_NAME.get_or_init(|| SETTINGS.iter().map(|d| (d.name.to_ascii_lowercase(), d)).collect());
    match map.get(name) {
        Some(d) => Some(d),
        None => map.get(&name.to_ascii_lowercase()).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse_value;

    #[test]
    fn every_default_is_a_legal_value() {
        for d in SETTINGS {
            assert!(parse_value(d, d.default).is_ok(), "{}", d.name);
        }
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(find("datestyle").map(|d| d.name), Some("DateStyle"));
        assert_eq!(find("TIMEZONE").map(|d| d.name), Some("TimeZone"));
        assert!(find("no_such_setting").is_none());
    }
}
