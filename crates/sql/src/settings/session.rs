//! One session's settings, and what transactions do to them.
//!
//! Every change keeps what was there before in an undo list; a transaction or savepoint that
//! rolls back puts it back, a commit keeps it, and `SET LOCAL` is put back either way.
//!
//! ```text
//!   SET a = 1            undo: [a was 0, plain]
//!   SAVEPOINT s          mark at 1
//!   SET LOCAL b = 2      undo: [a was 0, plain] [b was 5, local]
//!   ROLLBACK TO s        b = 5          undo: [a was 0, plain]
//!   COMMIT               a stays 1
//! ```

use super::defs::{Context, SETTINGS, SettingDef, find};
use super::value::{format_value, parse_value};
use crate::error::{Result, SqlError, State};
use crate::types::style::{DateOrder, DateStyle, IntervalStyle, OutputStyle};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who asks for a change; decides what may change and what RESET goes back to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ChangeSource {
    Default,
    ConfigurationFile,
    CommandLine,
    /// ALTER ROLE ALL.
    Global,
    Database,
    Role,
    /// ALTER ROLE ... IN DATABASE.
    RoleInDatabase,
    /// The start-up packet.
    Client,
    Session,
}

impl ChangeSource {
    /// pg_settings.source.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChangeSource::Default => "default",
            ChangeSource::ConfigurationFile => "configuration file",
            ChangeSource::CommandLine => "command line",
            ChangeSource::Global => "global",
            ChangeSource::Database => "database",
            ChangeSource::Role => "user",
            ChangeSource::RoleInDatabase => "database user",
            ChangeSource::Client => "client",
            ChangeSource::Session => "session",
        }
    }
}

#[derive(Clone, Debug)]
struct Value {
    text: String,
    source: ChangeSource,
    /// What RESET restores.
    reset: String,
    reset_source: ChangeSource,
}

/// The values that the server was started with: what every session begins from.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    values: BTreeMap<String, (String, ChangeSource)>,
}

impl ServerSettings {
    /// Sets a value from the configuration file or the command line.
    pub fn set(&mut self, name: &str, text: &str, source: ChangeSource) -> Result<()> {
        let def = known(name)?;
        if def.context == Context::Internal {
            return Err(cannot_change(def));
        }
        let value = parse_value(def, text)?;
        Decoded::default().refresh(def.name, &value)?;
        self.values.insert(def.name.to_owned(), (value, source));
        Ok(())
    }

    /// States a fact, such as the data directory; bypasses the context check.
    pub fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        self.values.insert(name.to_owned(), (value.into(), ChangeSource::Default));
    }

    pub fn get(&self, name: &str) -> Option<String> {
        let def = find(name)?;
        Some(match self.values.get(def.name) {
            Some((text, _)) => text.clone(),
            None => def.default.to_owned(),
        })
    }

    /// A setting that is a number, in its own unit.
    pub fn int(&self, name: &str) -> i64 {
        self.get(name).and_then(|v| v.parse().ok()).unwrap_or_default()
    }

    pub fn real(&self, name: &str) -> f64 {
        self.get(name).and_then(|v| v.parse().ok()).unwrap_or_default()
    }

    pub fn bool(&self, name: &str) -> bool {
        self.get(name).as_deref() == Some("on")
    }
}

/// What is asked on hot paths, decoded once at each change.
#[derive(Clone, Debug)]
pub struct Decoded {
    pub style: OutputStyle,
    pub time_zone: jiff::tz::TimeZone,
    pub synchronous_commit: bool,
    /// Answers wait until what they can show is durable.
    pub read_durable: bool,
    pub search_path: Vec<String>,
    pub statement_timeout_ms: u64,
    pub lock_timeout_ms: u64,
    pub log_lock_waits: bool,
    pub idle_in_transaction_timeout_ms: u64,
    pub work_mem_bytes: usize,
    pub maintenance_work_mem_bytes: usize,
    /// Statements that take this long are logged; none when negative.
    pub log_min_duration_ms: i64,
    /// Statements kept by their text; 0: none.
    pub statement_cache_size: usize,
    pub default_isolation: String,
    pub default_read_only: bool,
    pub default_deferrable: bool,
    /// Messages below this level are not sent: 0 debug .. 2 notice, 3 warning, 4 error.
    pub min_message_level: u8,
}

impl Default for Decoded {
    fn default() -> Self {
        Decoded {
            style: OutputStyle::default(),
            time_zone: jiff::tz::TimeZone::UTC,
            synchronous_commit: true,
            read_durable: false,
            search_path: vec!["$user".into(), "public".into()],
            statement_timeout_ms: 0,
            lock_timeout_ms: 0,
            log_lock_waits: false,
            idle_in_transaction_timeout_ms: 0,
            work_mem_bytes: 4096 << 10,
            maintenance_work_mem_bytes: 65536 << 10,
            log_min_duration_ms: -1,
            statement_cache_size: 64,
            default_isolation: "read committed".into(),
            default_read_only: false,
            default_deferrable: false,
            min_message_level: 2,
        }
    }
}

impl Decoded {
    /// Takes over one changed value; tells the canonical text when it differs from what was given.
    fn refresh(&mut self, name: &str, value: &str) -> Result<Option<String>> {
        let millis = || value.parse::<u64>().unwrap_or(0);
        let kilobytes = || value.parse::<usize>().unwrap_or(0) << 10;
        match name {
            "DateStyle" => return self.set_date_style(value).map(Some),
            "IntervalStyle" => {
                self.style.interval = match value {
                    "postgres_verbose" => IntervalStyle::PostgresVerbose,
                    "sql_standard" => IntervalStyle::SqlStandard,
                    "iso_8601" => IntervalStyle::Iso8601,
                    _ => IntervalStyle::Postgres,
                }
            }
            "TimeZone" => {
                let (zone, canonical) = parse_time_zone(value)?;
                self.time_zone = zone;
                return Ok(Some(canonical));
            }
            "extra_float_digits" => self.style.extra_float_digits = value.parse().unwrap_or(1),
            "bytea_output" => self.style.bytea_hex = value == "hex",
            "client_encoding" => return Ok(Some("UTF8".to_owned())),
            "search_path" => self.search_path = split_identifiers(value)?,
            "synchronous_commit" => self.synchronous_commit = value != "off",
            "read_durable" => self.read_durable = value == "on",
            "statement_timeout" => self.statement_timeout_ms = millis(),
            "lock_timeout" => self.lock_timeout_ms = millis(),
            "log_lock_waits" => self.log_lock_waits = value == "on",
            "idle_in_transaction_session_timeout" => self.idle_in_transaction_timeout_ms = millis(),
            "log_min_duration_statement" => {
                self.log_min_duration_ms = value.parse().unwrap_or(-1);
            }
            "statement_cache_size" => self.statement_cache_size = value.parse().unwrap_or(0),
            "work_mem" => self.work_mem_bytes = kilobytes(),
            "maintenance_work_mem" => self.maintenance_work_mem_bytes = kilobytes(),
            "default_transaction_isolation" => self.default_isolation = value.to_owned(),
            "default_transaction_read_only" => self.default_read_only = value == "on",
            "default_transaction_deferrable" => self.default_deferrable = value == "on",
            "client_min_messages" => {
                self.min_message_level = match value {
                    "log" => 1,
                    "notice" => 2,
                    "warning" => 3,
                    "error" => 4,
                    _ => 0,
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn set_date_style(&mut self, value: &str) -> Result<String> {
        let bad = || {
            SqlError::new(
                State::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"DateStyle\": \"{value}\""),
            )
        };
        let (mut style, mut order) = (self.style.date, self.style.date_order);
        for word in value.split(',').map(|w| w.trim().to_ascii_lowercase()) {
            match word.as_str() {
                "iso" => style = DateStyle::Iso,
                "sql" => style = DateStyle::Sql,
                "postgres" => style = DateStyle::Postgres,
                "german" => style = DateStyle::German,
                "mdy" | "us" | "noneuro" | "noneuropean" => order = DateOrder::Mdy,
                "dmy" | "euro" | "european" => order = DateOrder::Dmy,
                "ymd" => order = DateOrder::Ymd,
                "default" => (style, order) = (DateStyle::Iso, DateOrder::Mdy),
                _ => return Err(bad()),
            }
        }
        (self.style.date, self.style.date_order) = (style, order);
        let style = match style {
            DateStyle::Iso => "ISO",
            DateStyle::Sql => "SQL",
            DateStyle::Postgres => "Postgres",
            DateStyle::German => "German",
        };
        let order = match order {
            DateOrder::Mdy => "MDY",
            DateOrder::Dmy => "DMY",
            DateOrder::Ymd => "YMD",
        };
        Ok(format!("{style}, {order}"))
    }
}

/// A time zone by IANA name, POSIX-style offset (`-05`, `UTC+3`) or number of hours east.
fn parse_time_zone(value: &str) -> Result<(jiff::tz::TimeZone, String)> {
    let text = value.trim();
    if text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("gmt") {
        return Ok((jiff::tz::TimeZone::UTC, text.to_ascii_uppercase()));
    }
    if text.eq_ignore_ascii_case("local") || text.eq_ignore_ascii_case("default") {
        return Ok((jiff::tz::TimeZone::UTC, "UTC".to_owned()));
    }
    if let Ok(hours) = text.parse::<f64>()
        && hours.abs() <= 24.0
    {
        let seconds = (hours * 3600.0).round() as i32;
        if let Ok(offset) = jiff::tz::Offset::from_seconds(seconds) {
            return Ok((jiff::tz::TimeZone::fixed(offset), text.to_owned()));
        }
    }
    if let Ok(zone) = jiff::tz::TimeZone::get(text) {
        let name = zone.iana_name().unwrap_or(text).to_owned();
        return Ok((zone, name));
    }
    jiff::tz::TimeZone::posix(text).map(|zone| (zone, text.to_owned())).map_err(|_| {
        SqlError::new(
            State::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"TimeZone\": \"{value}\""),
        )
    })
}

/// Splits a list of identifiers, quoted or not, as search_path is written.
fn split_identifiers(list: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_identifier(quoted).ok_or_else(|| {
                SqlError::new(State::INVALID_PARAMETER_VALUE, "invalid list syntax")
            })?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_ascii_lowercase(), &rest[end..])
            }
        };
        if !name.is_empty() {
            names.push(name);
        }
        rest = after.trim_start().strip_prefix(',').unwrap_or(after).trim_start();
    }
    Ok(names)
}

/// Reads up to the closing quote; doubled quotes stand for one.
fn quoted_identifier(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != '"' {
            name.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == '"') {
            name.push('"');
            chars.next();
        } else {
            let after = text[at + 1..].trim_start();
            return (after.is_empty() || after.starts_with(',')).then_some((name, after));
        }
    }
    None
}

#[derive(Debug)]
struct Undo {
    name: String,
    before: Option<Value>,
    local: bool,
}

/// One session's settings.
#[derive(Debug)]
pub struct SessionSettings {
    server: Arc<ServerSettings>,
    /// Values that differ from the server's, by registry name; custom settings by their own.
    values: BTreeMap<String, Value>,
    undo: Vec<Undo>,
    /// Undo list lengths at each open savepoint.
    marks: Vec<usize>,
    decoded: Decoded,
    /// Reported settings that changed since the client was last told.
    to_report: Vec<&'static str>,
    /// Counts the changes that could change what a statement means.
    version: u64,
}

impl SessionSettings {
    pub fn new(server: Arc<ServerSettings>) -> Self {
        let mut settings = SessionSettings {
            values: BTreeMap::new(),
            undo: Vec::new(),
            marks: Vec::new(),
            decoded: Decoded::default(),
            to_report: Vec::new(),
            version: 0,
            server,
        };
        let given: Vec<(String, String)> =
            settings.server.values.iter().map(|(n, (v, _))| (n.clone(), v.clone())).collect();
        for (name, value) in given {
            // The server checked its own values when it took them.
            let _checked = settings.decoded.refresh(&name, &value);
        }
        settings
    }

    /// Changes when a value does that could change what a statement means.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn decoded(&self) -> &Decoded {
        &self.decoded
    }

    /// `SET name = text` (or the start-up packet's). `local`: until the transaction's end.
    pub fn set(
        &mut self,
        name: &str,
        text: &str,
        source: ChangeSource,
        local: bool,
        in_transaction: bool,
    ) -> Result<()> {
        let (key, value) = match find(name) {
            Some(def) => {
                may_change(def, source)?;
                let value = parse_value(def, text)?;
                let canonical = self.decoded.refresh(def.name, &value)?;
                (def.name.to_owned(), canonical.unwrap_or(value))
            }
            None if is_custom(name) => (name.to_ascii_lowercase(), text.to_owned()),
            None => return Err(unknown(name)),
        };
        self.store(key, value, source, local, in_transaction);
        Ok(())
    }

    /// States a fact about the session (is_superuser, session_authorization).
    pub fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        self.store(name.to_owned(), value.into(), ChangeSource::Default, false, false);
    }

    fn store(
        &mut self,
        key: String,
        text: String,
        source: ChangeSource,
        local: bool,
        in_transaction: bool,
    ) {
        let before = self.values.get(&key).cloned();
        let (reset, reset_source) = if source < ChangeSource::Session {
            (text.clone(), source)
        } else {
            match &before {
                Some(v) => (v.reset.clone(), v.reset_source),
                None => self.server_value(&key),
            }
        };
        if in_transaction {
            self.undo.push(Undo { name: key.clone(), before, local });
        }
        self.changed(&key);
        self.values.insert(key, Value { text, source, reset, reset_source });
    }

    fn server_value(&self, key: &str) -> (String, ChangeSource) {
        match (self.server.values.get(key), find(key)) {
            (Some((v, s)), _) => (v.clone(), *s),
            (None, Some(def)) => (def.default.to_owned(), ChangeSource::Default),
            (None, None) => (String::new(), ChangeSource::Default),
        }
    }

    /// `RESET name`.
    pub fn reset(&mut self, name: &str, in_transaction: bool) -> Result<()> {
        let key = match find(name) {
            Some(def) => {
                may_change(def, ChangeSource::Session)?;
                def.name.to_owned()
            }
            None if is_custom(name) => name.to_ascii_lowercase(),
            None => return Err(unknown(name)),
        };
        let Some(before) = self.values.get(&key).cloned() else { return Ok(()) };
        if in_transaction {
            self.undo.push(Undo { name: key.clone(), before: Some(before.clone()), local: false });
        }
        let text = before.reset.clone();
        self.decoded.refresh(&key, &text)?;
        self.changed(&key);
        let source = before.reset_source;
        self.values.insert(key, Value { text, source, ..before });
        Ok(())
    }

    /// `RESET ALL`.
    pub fn reset_all(&mut self, in_transaction: bool) -> Result<()> {
        let names: Vec<String> = self
            .values
            .iter()
            .filter(|(n, v)| {
                v.source >= ChangeSource::Session
                    && !n.starts_with("transaction_")
                    && find(n).is_none_or(|d| d.context >= Context::Superuser)
            })
            .map(|(n, _)| n.clone())
            .collect();
        names.iter().try_for_each(|name| self.reset(name, in_transaction))
    }

    /// The canonical text of a setting, or `None` when there is no such setting.
    pub fn get(&self, name: &str) -> Option<String> {
        match find(name) {
            Some(def) => Some(match self.values.get(def.name) {
                Some(v) => v.text.clone(),
                None => self.server_value(def.name).0,
            }),
            None => self.values.get(&name.to_ascii_lowercase()).map(|v| v.text.clone()),
        }
    }

    /// What SHOW prints.
    pub fn show(&self, name: &str) -> Result<String> {
        let value = self.get(name).ok_or_else(|| unknown(name))?;
        Ok(find(name).map_or_else(|| value.clone(), |def| format_value(def, &value)))
    }

    /// Every setting in the registry: (definition, text, reset text, source).
    pub fn all(&self) -> Vec<(&'static SettingDef, String, String, ChangeSource)> {
        SETTINGS
            .iter()
            .map(|def| match self.values.get(def.name) {
                Some(v) => (def, v.text.clone(), v.reset.clone(), v.source),
                None => {
                    let (text, source) = self.server_value(def.name);
                    (def, text.clone(), text, source)
                }
            })
            .collect()
    }

    pub fn savepoint(&mut self) {
        self.marks.push(self.undo.len());
    }

    /// The savepoint's changes become the surrounding level's.
    pub fn release_savepoint(&mut self) {
        self.marks.pop();
    }

    /// Undoes what was set since the innermost savepoint, and forgets the savepoint.
    pub fn rollback_savepoint(&mut self) {
        let mark = self.marks.pop().unwrap_or(0);
        self.undo_to(mark, |_| true);
    }

    /// At commit: local values go, the others stay.
    pub fn commit(&mut self) {
        self.marks.clear();
        if self.undo.is_empty() {
            return;
        }
        // A local value hides what was there at its first change; later plain changes survive it.
        let mut last_plain: BTreeMap<String, Value> = BTreeMap::new();
        for at in 0..self.undo.len() {
            if !self.undo[at].local {
                let name = self.undo[at].name.clone();
                let after = self.undo[at + 1..].iter().find(|u| u.name == name);
                let value = match after {
                    Some(u) => u.before.clone(),
                    None => self.values.get(&name).cloned(),
                };
                if let Some(value) = value {
                    last_plain.insert(name, value);
                }
            }
        }
        self.undo_to(0, |u| u.local || last_plain.contains_key(&u.name));
        for (name, value) in last_plain {
            let _checked = self.decoded.refresh(&name, &value.text);
            self.changed(&name);
            self.values.insert(name, value);
        }
    }

    /// At rollback: everything set in the transaction goes.
    pub fn rollback(&mut self) {
        self.marks.clear();
        self.undo_to(0, |_| true);
    }

    fn undo_to(&mut self, mark: usize, wanted: impl Fn(&Undo) -> bool) {
        for u in self.undo.split_off(mark).into_iter().rev() {
            if !wanted(&u) {
                continue;
            }
            let text = match &u.before {
                Some(v) => v.text.clone(),
                None => self.server_value(&u.name).0,
            };
            // The value was in force before, so it is a legal one.
            let _checked = self.decoded.refresh(&u.name, &text);
            self.changed(&u.name);
            match u.before {
                Some(v) => self.values.insert(u.name, v),
                None => self.values.remove(&u.name),
            };
        }
    }

    fn changed(&mut self, key: &str) {
        let transient = key.starts_with("transaction_") || key == "application_name";
        self.version += u64::from(!transient);
        if let Some(def) = find(key)
            && def.report
            && !self.to_report.contains(&def.name)
        {
            self.to_report.push(def.name);
        }
    }

    /// Reported settings that changed since the last call: (name, value).
    pub fn take_reports(&mut self) -> Vec<(&'static str, String)> {
        let names = std::mem::take(&mut self.to_report);
        names.into_iter().map(|n| (n, self.get(n).unwrap_or_default())).collect()
    }

    /// All reported settings, for the start of a session.
    pub fn all_reports(&mut self) -> Vec<(&'static str, String)> {
        self.to_report.clear();
        let reported = SETTINGS.iter().filter(|d| d.report);
        reported.map(|d| (d.name, self.get(d.name).unwrap_or_default())).collect()
    }
}

/// Checks what is to be kept for the sessions of a role or a database; `None`: it is not to be
/// kept any more. Answers the name as the registry spells it.
pub fn check_stored(name: &str, text: Option<&str>) -> Result<String> {
    match find(name) {
        Some(def) => {
            may_change(def, ChangeSource::Role)?;
            if let Some(text) = text {
                let value = parse_value(def, text)?;
                Decoded::default().refresh(def.name, &value)?;
            }
            Ok(def.name.to_owned())
        }
        None if is_custom(name) => Ok(name.to_ascii_lowercase()),
        None => Err(unknown(name)),
    }
}

fn is_custom(name: &str) -> bool {
    match name.split_once('.') {
        Some((class, rest)) => [class, rest].iter().all(|part| {
            part.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.'))
        }),
        None => false,
    }
}

fn known(name: &str) -> Result<&'static SettingDef> {
    find(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(
        State::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    )
}

fn cannot_change(def: &SettingDef) -> SqlError {
    SqlError::new(
        State::CANT_CHANGE_RUNTIME_PARAM,
        format!("parameter \"{}\" cannot be changed", def.name),
    )
}

fn may_change(def: &SettingDef, source: ChangeSource) -> Result<()> {
    let error = |what: &str| {
        Err(SqlError::new(
            State::CANT_CHANGE_RUNTIME_PARAM,
            format!("parameter \"{}\" {what}", def.name),
        ))
    };
    match def.context {
        Context::Internal => Err(cannot_change(def)),
        Context::Postmaster => error("cannot be changed without restarting the server"),
        Context::Sighup => error("cannot be changed now"),
        Context::Backend if source == ChangeSource::Session => {
            error("cannot be set after connection start")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionSettings {
        SessionSettings::new(Arc::new(ServerSettings::default()))
    }

    fn set(s: &mut SessionSettings, name: &str, value: &str, local: bool) {
        s.set(name, value, ChangeSource::Session, local, true).expect("legal setting");
    }

    #[test]
    fn a_local_value_ends_with_its_transaction() {
        let mut s = session();
        set(&mut s, "work_mem", "8MB", false);
        set(&mut s, "work_mem", "16MB", true);
        assert_eq!(s.show("work_mem").as_deref(), Ok("16MB"));
        s.commit();
        assert_eq!(s.show("work_mem").as_deref(), Ok("8MB"));
        assert_eq!(s.decoded().work_mem_bytes, 8 << 20);
    }

    #[test]
    fn rollback_undoes_and_savepoints_nest() {
        let mut s = session();
        set(&mut s, "statement_timeout", "1s", false);
        s.savepoint();
        set(&mut s, "statement_timeout", "2s", false);
        s.rollback_savepoint();
        assert_eq!(s.decoded().statement_timeout_ms, 1000);
        s.rollback();
        assert_eq!(s.decoded().statement_timeout_ms, 0);
    }

    #[test]
    fn unknown_names_are_refused_and_custom_ones_kept() {
        let mut s = session();
        let e = s.set("no_such", "1", ChangeSource::Session, false, false).expect_err("unknown");
        assert_eq!(e.state, State::UNDEFINED_OBJECT);
        set(&mut s, "my.thing", "x", false);
        assert_eq!(s.get("my.thing").as_deref(), Some("x"));
        let e = s.set("port", "1", ChangeSource::Session, false, false).expect_err("postmaster");
        assert_eq!(e.state, State::CANT_CHANGE_RUNTIME_PARAM);
    }

    #[test]
    fn styles_are_decoded_and_reported() {
        let mut s = session();
        set(&mut s, "datestyle", "german", false);
        assert_eq!(s.decoded().style.date, DateStyle::German);
        assert_eq!(s.take_reports(), vec![("DateStyle", "German, MDY".to_owned())]);
        set(&mut s, "search_path", "\"My \"\"S\", Public", false);
        assert_eq!(s.decoded().search_path, vec!["My \"S".to_owned(), "public".to_owned()]);
        set(&mut s, "timezone", "europe/berlin", false);
        assert_eq!(s.get("timezone").as_deref(), Some("Europe/Berlin"));
    }
}
