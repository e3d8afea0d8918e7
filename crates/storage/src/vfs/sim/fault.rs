//! Planned failures: which call fails, and how.

use std::io;

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Op {
    Open,
    Read,
    Write,
    Sync,
    Allocate,
    SetLen,
    Rename,
    Remove,
    SyncDir,
    CreateDir,
    List,
    Map,
}

const OPS: usize = Op::Map as usize + 1;

/// One planned failure: `Fault::eio(Op::Sync).on("pg_wal/").nth(3)`.
#[derive(Clone, Debug)]
pub struct Fault {
    op: Op,
    path_part: Option<String>,
    nth: u64,
    times: u64,
    errno: i32,
}

impl Fault {
    /// The next such call fails with "input/output error".
    pub fn eio(op: Op) -> Self {
        Fault { op, path_part: None, nth: 1, times: 1, errno: libc::EIO }
    }

    /// The next such call fails with "no space left on device".
    pub fn enospc(op: Op) -> Self {
        Fault { errno: libc::ENOSPC, ..Fault::eio(op) }
    }

    /// Only calls on paths that contain this count and fail.
    pub fn on(mut self, path_part: &str) -> Self {
        self.path_part = Some(path_part.to_owned());
        self
    }

    /// The `n`th such call from now on fails, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        assert!(n > 0, "calls are counted from 1");
        self.nth = n;
        self
    }

    /// This many calls in a row fail.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Every call from the `nth` on fails.
    pub fn forever(self) -> Self {
        self.times(u64::MAX)
    }
}

/// All planned failures of a disk, and how often each call was made.
#[derive(Debug, Default)]
pub(super) struct FaultPlan {
    /// Each with the number of matching calls seen.
    faults: Vec<(Fault, u64)>,
    calls: [u64; OPS],
    /// Changing calls left before the power goes.
    left: Option<u64>,
}

impl FaultPlan {
    pub fn add(&mut self, fault: Fault) {
        self.faults.push((fault, 0));
    }

    pub fn clear(&mut self) {
        self.faults.clear();
        self.left = None;
    }

    pub fn power_off_after(&mut self, changes: u64) {
        self.left = Some(changes);
    }

    pub fn is_off(&self) -> bool {
        self.left == Some(0)
    }

    pub fn calls(&self, op: Op) -> u64 {
        self.calls[op as usize]
    }

    /// Counts a call; `Err` when it is to fail.
    pub fn check(&mut self, op: Op, path: &str) -> io::Result<()> {
        self.calls[op as usize] += 1;
        if self.is_off() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if !matches!(op, Op::Read | Op::List | Op::Map)
            && let Some(left) = &mut self.left
        {
            *left -= 1;
        }
        let mut failure = Ok(());
        for (fault, seen) in &mut self.faults {
            let matches = fault.op == op
                && fault.path_part.as_ref().is_none_or(|part| path.contains(part.as_str()));
            if matches {
                *seen += 1;
                if *seen >= fault.nth && *seen - fault.nth < fault.times {
                    failure = Err(io::Error::from_raw_os_error(fault.errno));
                }
            }
        }
        failure
    }
}

pub(super) fn no_space() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}
