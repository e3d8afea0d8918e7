//! Tests of the whole: opening, critical sections, files, checkpoints, crashes.

mod basics;
mod crash;
mod faults;
mod toy;
