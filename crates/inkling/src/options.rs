//! From settings by name to what the engine wants.
//!
//! The names and units are the server's (PostgreSQL's); every setting that the engine has a knob
//! for is handed on here and nowhere else.

use inkling_sql::settings::ServerSettings;
use inkling_storage::engine::{Engine, EngineOptions};
use inkling_storage::heap::HintPolicy;
use inkling_storage::page::PAGE_SIZE;
use inkling_storage::ssi::Limits;
use inkling_storage::txn::StatusCacheKind;
use inkling_storage::wal::{WalCompression, WalOptions};
use std::time::Duration;

fn count(settings: &ServerSettings, name: &str) -> u64 {
    u64::try_from(settings.int(name)).unwrap_or(0)
}

/// A choice among names that the settings know too.
fn named<T: Default>(
    settings: &ServerSettings,
    name: &str,
    choice: impl Fn(&str) -> Option<T>,
) -> T {
    settings.get(name).as_deref().and_then(choice).unwrap_or_default()
}

/// The engine's options for these settings.
pub fn engine_options(settings: &ServerSettings) -> EngineOptions {
    let number = |name| count(settings, name);
    let pages = |name| number(name) * PAGE_SIZE as u64;
    let mut wal = WalOptions {
        writer_delay_micros: number("wal_writer_delay") * 1000,
        flush_after: pages("wal_writer_flush_after"),
        compression: match settings.get("wal_compression").as_deref() {
            Some("on" | "lz4") => WalCompression::Lz4,
            _ => WalCompression::Off,
        },
        ..WalOptions::default()
    };
    // -1 leaves the size to the engine.
    if settings.int("wal_buffers") > 0 {
        wal.buffer_size = pages("wal_buffers") as usize;
    }
    EngineOptions {
        shared_buffers_bytes: pages("shared_buffers") as usize,
        fsync: settings.bool("fsync"),
        full_page_writes: settings.bool("full_page_writes"),
        wal,
        checkpoint_timeout: Duration::from_secs(number("checkpoint_timeout")),
        checkpoint_completion_target: settings.real("checkpoint_completion_target"),
        max_wal_size: number("max_wal_size") << 20,
        min_wal_size: number("min_wal_size") << 20,
        log_checkpoints: settings.bool("log_checkpoints"),
        checkpoint_warning: Duration::from_secs(number("checkpoint_warning")),
        checkpoint_flush_after: number("checkpoint_flush_after") as u32,
        bgwriter_delay: Duration::from_millis(number("bgwriter_delay")),
        bgwriter_max_pages: number("bgwriter_lru_maxpages") as usize,
        bgwriter_multiplier: settings.real("bgwriter_lru_multiplier"),
        bgwriter_flush_after: number("bgwriter_flush_after") as u32,
        hint_policy: named(settings, "hint_policy", HintPolicy::from_name),
        startup_progress_interval: Duration::from_millis(number("log_startup_progress_interval")),
        max_prepared_transactions: number("max_prepared_transactions") as usize,
        status_cache: named(settings, "status_cache", StatusCacheKind::from_name),
        ..EngineOptions::default()
    }
}

/// What an engine is told after it was opened.
pub fn apply_to(engine: &Engine, settings: &ServerSettings) {
    engine.locks.set_deadlock_timeout(Duration::from_millis(count(settings, "deadlock_timeout")));
    engine.heap.row_locks.set_limit(count(settings, "max_shared_row_locks") as usize);
    engine.txns.ssi().configure(Limits::of(
        settings.int("max_pred_locks_per_transaction"),
        settings.int("max_pred_locks_per_relation"),
        settings.int("max_pred_locks_per_page"),
        settings.int("max_connections"),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkling_sql::settings::ChangeSource;

    #[test]
    fn units_are_those_of_the_settings() {
        let mut settings = ServerSettings::default();
        for (name, value) in [
            ("shared_buffers", "16MB"),
            ("wal_writer_delay", "10ms"),
            ("max_wal_size", "64MB"),
            ("fsync", "off"),
            ("checkpoint_timeout", "1min"),
            ("checkpoint_warning", "1min"),
            ("min_wal_size", "1GB"),
            ("log_checkpoints", "off"),
            ("bgwriter_lru_multiplier", "0.5"),
            ("bgwriter_flush_after", "256kB"),
            ("hint_policy", "page_lsn"),
            ("status_cache", "pages"),
        ] {
            settings.set(name, value, ChangeSource::CommandLine).expect("a setting");
        }
        let options = engine_options(&settings);
        assert_eq!(options.shared_buffers_bytes, 16 << 20);
        assert_eq!(options.wal.writer_delay_micros, 10_000);
        assert_eq!(options.max_wal_size, 64 << 20);
        assert!(!options.fsync);
        assert_eq!(options.hint_policy, HintPolicy::PageLsn);
        assert_eq!(options.status_cache, StatusCacheKind::Pages);
        assert_eq!(options.checkpoint_timeout, Duration::from_secs(60));
        assert_eq!(options.checkpoint_warning, Duration::from_secs(60));
        assert_eq!(options.min_wal_size, 1 << 30);
        assert!(!options.log_checkpoints);
        assert_eq!((options.bgwriter_multiplier, options.bgwriter_flush_after), (0.5, 32));
    }
}
