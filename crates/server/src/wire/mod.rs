//! The PostgreSQL wire protocol, version 3: bytes to messages and back.
//!
//! [`frontend`] decodes what clients send, without copying and without trusting a single length;
//! [`backend`] appends what the server says to an output buffer.
//!
//! ```text
//!   message:  type u8 | length i32, itself included | body
//!   start-up: length i32 | code i32 (protocol version, or a request code) | body
//! ```
//!
//! The codec is our own because the rows of an answer go straight from the executor into the
//! output buffer and parameters are read in place, and because every body is checked against its
//! end: a truncated message is a protocol violation, never a panic.

pub mod backend;
pub mod frontend;
