//! A session for tests: fixed clock, settable styles and zone, no catalog.

use super::{FnContext, SessionFunctions};
use crate::error::{Result, SqlError};
use crate::types::datetime::tz;
use crate::types::style::{DateOrder, DateStyle, IntervalStyle};
use crate::types::{Datum, OutputStyle};
use jiff::tz::TimeZone;
use std::cell::Cell;

pub struct TestContext {
    pub style: OutputStyle,
    pub zone: TimeZone,
    /// 2024-02-29 12:34:56.789 UTC unless changed.
    pub now: i64,
    pub random: Cell<[u64; 2]>,
}

impl Default for TestContext {
    fn default() -> Self {
        TestContext {
            style: OutputStyle::default(),
            zone: TimeZone::UTC,
            now: 762_525_296_789_000,
            random: Cell::new([0; 2]),
        }
    }
}

impl TestContext {
    /// Applies a setting as a golden table writes it.
    pub fn set(&mut self, name: &str, value: &str) {
        match (name, value) {
            ("timezone", zone) => self.zone = tz::from_setting(zone).expect("a zone"),
            ("datestyle", style) => {
                for word in style.split(',').map(str::trim) {
                    match word {
                        "iso" => self.style.date = DateStyle::Iso,
                        "sql" => self.style.date = DateStyle::Sql,
                        "postgres" => self.style.date = DateStyle::Postgres,
                        "german" => self.style.date = DateStyle::German,
                        "mdy" => self.style.date_order = DateOrder::Mdy,
                        "dmy" => self.style.date_order = DateOrder::Dmy,
                        "ymd" => self.style.date_order = DateOrder::Ymd,
                        other => panic!("datestyle {other}"),
                    }
                }
            }
            ("intervalstyle", style) => {
                self.style.interval = match style {
                    "postgres" => IntervalStyle::Postgres,
                    "postgres_verbose" => IntervalStyle::PostgresVerbose,
                    "sql_standard" => IntervalStyle::SqlStandard,
                    "iso_8601" => IntervalStyle::Iso8601,
                    other => panic!("intervalstyle {other}"),
                }
            }
            ("extra_float_digits", n) => {
                self.style.extra_float_digits = n.parse().expect("a number");
            }
            ("bytea_output", v) => self.style.bytea_hex = v == "hex",
            other => panic!("setting {other:?}"),
        }
    }
}

impl FnContext for TestContext {
    fn transaction_timestamp(&self) -> i64 {
        self.now
    }
    fn statement_timestamp(&self) -> i64 {
        self.now
    }
    fn clock_timestamp(&self) -> i64 {
        self.now
    }
    fn time_zone(&self) -> &TimeZone {
        &self.zone
    }
    fn setting(&self, _name: &str) -> Option<String> {
        None
    }
    fn style(&self) -> &OutputStyle {
        &self.style
    }
    fn session(&self) -> &dyn SessionFunctions {
        self
    }
    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }
    fn random_state(&self) -> Option<&Cell<[u64; 2]>> {
        Some(&self.random)
    }
}

impl SessionFunctions for TestContext {
    fn call(&self, name: &str, _args: &[Datum]) -> Result<Datum> {
        Err(SqlError::unsupported(name))
    }
    fn call_set(&self, name: &str, _args: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        Err(SqlError::unsupported(name))
    }
}
