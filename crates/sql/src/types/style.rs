//! How values are written as text: the session's DateStyle, IntervalStyle and friends.

/// Decoded output settings; the defaults are PostgreSQL's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputStyle {
    pub date: DateStyle,
    pub date_order: DateOrder,
    pub interval: IntervalStyle,
    pub extra_float_digits: i32,
    pub bytea_hex: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DateStyle {
    Iso,
    Sql,
    Postgres,
    German,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DateOrder {
    Mdy,
    Dmy,
    Ymd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntervalStyle {
    Postgres,
    PostgresVerbose,
    SqlStandard,
    Iso8601,
}

impl Default for OutputStyle {
    fn default() -> Self {
        OutputStyle {
            date: DateStyle::Iso,
            date_order: DateOrder::Mdy,
            interval: IntervalStyle::Postgres,
            extra_float_digits: 1,
            bytea_hex: true,
        }
    }
}
