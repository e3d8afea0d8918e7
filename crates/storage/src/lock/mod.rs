//! Heavyweight locks: relations, transactions, rows' queues, advisory keys.
//!
//! Rules and crash argument: `README.md` in this directory.
//!
//! No call here blocks. A request that must wait returns a [`LockWait`] whose handle the driver
//! of the statement waits on; dropping it cancels the request.

mod deadlock;
mod manager;
mod mode;
mod owner;
mod queue;
mod tag;
mod tell;
mod view;
mod wait;

#[cfg(all(test, shuttle))]
mod models;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use manager::{LockManager, OwnerHandle};
pub use mode::LockMode;
pub use owner::{LockOwner, LockScope};
pub use tag::{AdvisoryKey, LockTag};
pub use tell::WaitLog;
pub use view::LockView;
pub use wait::{LockCheck, LockResult, LockWait};
