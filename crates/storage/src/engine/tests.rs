//! Tests of the whole: opening, critical sections, files, checkpoints, crashes.

mod basics;
mod change;
mod clog;
mod crash;
mod faults;
mod threads;
pub(crate) mod toy;
mod watch;
