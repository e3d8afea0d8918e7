//! Inkling's PostgreSQL wire server.

pub mod wire;
