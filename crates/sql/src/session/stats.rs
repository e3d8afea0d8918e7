//! What the server has counted: the log, checkpoints, the background writer, the commit log; and
//! having the counters begin anew.
//!
//! ```text
//!   select num_timed, num_requested, buffers_written from pg_stat_checkpointer;
//!   select pg_stat_reset_shared('checkpointer');
//! ```
//!
//! Counters live in memory: they begin with the server, or with their last reset.

use super::around::Around;
use crate::error::{Result, SqlError, State};
use crate::types::Datum;
use crate::types::numeric::Numeric;
use inkling_storage::engine::StatsTarget;
use std::sync::Arc;

/// Microseconds from 1970 to 2000.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

fn count(n: u64) -> Datum {
    Datum::Int8(n as i64)
}

fn millis(micros: u64) -> Datum {
    Datum::Float8(micros as f64 / 1000.0)
}

/// When counting began; `reset_micros` are since 1970.
fn since(around: &Around, reset_micros: Option<i64>) -> Datum {
    Datum::Timestamp(reset_micros.map_or(around.db.started, |at| at - EPOCH_MICROS))
}

/// Answers a scalar function; `None`: it is none of these.
pub(super) fn call(around: &Around, name: &str, args: &[Datum]) -> Result<Option<Datum>> {
    let engine = &around.db.engine;
    let checkpoints = || engine.checkpoint_totals();
    let writer = || engine.background_writer_stats();
    Ok(Some(match name {
        "pg_stat_get_bgwriter_timed_checkpoints" => count(checkpoints().timed),
        "pg_stat_get_bgwriter_requested_checkpoints" => count(checkpoints().requested),
        "pg_stat_get_bgwriter_buf_written_checkpoints" => count(checkpoints().pages_written),
        "pg_stat_get_checkpoint_write_time" => millis(checkpoints().write_micros),
        "pg_stat_get_checkpoint_sync_time" => millis(checkpoints().sync_micros),
        "pg_stat_get_bgwriter_buf_written_clean" => count(writer().counters.buffers_clean),
        "pg_stat_get_bgwriter_maxwritten_clean" => count(writer().counters.maxwritten_clean),
        "pg_stat_get_buf_alloc" => count(writer().counters.buffers_alloc),
        "pg_stat_get_bgwriter_stat_reset_time" => since(around, writer().reset_micros),
        "pg_stat_reset_slru" => reset_slru(around, args),
        "pg_stat_reset_shared" => reset_shared(around, args)?,
        _ => return Ok(None),
    }))
}

/// Answers a set-returning function, with its one row; `None`: it is none of these.
pub(super) fn call_set(around: &Around, name: &str) -> Option<Vec<Datum>> {
    Some(match name {
        "pg_stat_get_wal" => wal(around),
        "pg_stat_get_slru" => slru(around),
        "inkling_stat_get_checkpointer" => checkpointer(around),
        _ => return None,
    })
}

fn wal(around: &Around) -> Vec<Datum> {
    let stats = around.db.engine.wal_stats();
    let s = stats.counters;
    vec![
        count(s.records),
        count(s.page_images),
        Datum::Numeric(Arc::new(Numeric::from(s.bytes as i64))),
        count(s.buffers_full),
        count(s.writes),
        count(s.syncs),
        millis(s.write_micros),
        millis(s.sync_micros),
        since(around, stats.reset_micros),
    ]
}

/// The columns of PostgreSQL 18's view. There are no restartpoints: they belong to standbys.
fn checkpointer(around: &Around) -> Vec<Datum> {
    let t = around.db.engine.checkpoint_totals();
    vec![
        count(t.timed),
        count(t.requested),
        count(t.done),
        count(0),
        count(0),
        count(0),
        millis(t.write_micros),
        millis(t.sync_micros),
        count(t.pages_written),
        count(t.clog_pages_written),
        since(around, t.reset_micros),
    ]
}

/// The commit log is the one structure of its kind.
fn slru(around: &Around) -> Vec<Datum> {
    let s = around.db.engine.txns.clog().stats();
    vec![
        Datum::text("transaction"),
        count(s.zeroed),
        count(s.hit),
        count(s.read),
        count(s.written),
        count(s.exists),
        count(s.flushes),
        count(s.truncates),
        since(around, s.reset_micros),
    ]
}

/// NULL means all; of the other names that PostgreSQL knows there is nothing to reset.
fn reset_slru(around: &Around, args: &[Datum]) -> Datum {
    let all = !matches!(args.first(), Some(Datum::Text(name)) if name != "transaction");
    if all {
        let engine = &around.db.engine;
        engine.txns.clog().reset_stats(engine.clock().now_unix_micros());
    }
    Datum::text("")
}

/// NULL means all that is counted here.
fn reset_shared(around: &Around, args: &[Datum]) -> Result<Datum> {
    use StatsTarget::{BackgroundWriter, Checkpointer, Wal};
    let engine = &around.db.engine;
    let Some(Datum::Text(target)) = args.first() else {
        for target in [BackgroundWriter, Checkpointer, Wal] {
            engine.reset_stats(target);
        }
        return Ok(reset_slru(around, &[]));
    };
    match &target[..] {
        "bgwriter" => engine.reset_stats(BackgroundWriter),
        "checkpointer" => engine.reset_stats(Checkpointer),
        "wal" => engine.reset_stats(Wal),
        "slru" => return Ok(reset_slru(around, &[])),
        "archiver" | "io" | "recovery_prefetch" => {
            return Err(SqlError::unsupported(format!("statistics about \"{target}\"")));
        }
        _ => {
            let what = format!("unrecognized reset target: \"{target}\"");
            let hint = "Target must be \"bgwriter\", \"checkpointer\", \"slru\", or \"wal\".";
            return Err(SqlError::new(State::INVALID_PARAMETER_VALUE, what).hint(hint));
        }
    }
    Ok(Datum::text(""))
}
