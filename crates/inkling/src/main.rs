//! The `inkling` program: `serve`, `check`, `waldump`.
//!
//! ```text
//!   inkling serve -D DIR [-h HOST] [-p PORT] [-c name=value]...
//!   inkling check -D DIR
//!   inkling waldump -D DIR [--start LSN] [--limit N]
//! ```
//!
//! Exit status: 0 when all went well, 1 when something did not (one line on standard error says
//! what), 2 for a command line that cannot be read.

mod cli;

use std::process::ExitCode;

/// Sessions allocate and free in many sizes on many threads: measurably better than the default.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::run()
}
