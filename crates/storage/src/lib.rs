//! Inkling's engine below SQL.
//!
//! See `ARCHITECTURE.md` for the picture and the README of each directory for its rules.

pub mod btree;
pub mod buffer;
pub mod durability;
pub mod engine;
pub mod error;
pub mod heap;
pub mod ids;
pub mod lock;
pub mod maint;
pub mod page;
pub mod recovery;
pub mod seq;
pub mod ssi;
pub mod sync;
pub mod twophase;
pub mod txn;
pub mod vfs;
pub mod wait;
pub mod wal;

pub use error::{Result, StorageError};
