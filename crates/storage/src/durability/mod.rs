//! Durability levels: how much of a commit a crash may take, and whether that was kept.
//!
//! ```text
//!   tables written ──> decide() ──> CommitMode ──> record, deadline for the log's writer
//!                                        └──────> Ledger: what each table's last commits wait for
//!   a flush that ends after a deadline ─────────> Ledger: whose promise was missed, by how much
//! ```
//!
//! [`decide`] is pure and knows neither catalog nor log. [`Ledger`] only counts: nothing about
//! durability depends on it. Rules: `README.md` here.

mod ledger;
mod level;
#[cfg(all(test, not(shuttle)))]
mod level_tests;

pub use ledger::{FlushPositions, Ledger, TableDurability};
pub use level::{MAX_LOSS_MICROS, SessionLevel, TableLevel, decide};
