//! Inkling's PostgreSQL wire server.
//!
//! ```text
//!   Server::bind ── listener ── accept ──> connection::serve, one task a client
//!                                             startup   who is it, may it
//!                                             simple    Query
//!                                             extended  Parse, Bind, Describe, Execute
//!                                             sink      rows into the output buffer
//! ```
//!
//! The engine is synchronous: a statement runs inside its connection's task, and what it has to
//! wait for comes out as a handle that the task awaits. tokio runs as many workers as there are
//! cores; long maintenance statements tell it so.

pub mod auth;
mod connection;
pub mod log;
pub mod registry;
pub mod server;
pub mod wire;

pub use server::{Server, resolve};
