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
    /// An `Open` that makes a file; counted as both.
    Create,
    /// A `Write` that makes its file longer; counted as both.
    Extend,
}

const OPS: usize = Op::Extend as usize + 1;

/// What needs space on a file system that overwrites in place.
pub const TAKES_SPACE: [Op; 5] = [Op::Create, Op::Extend, Op::Allocate, Op::Rename, Op::CreateDir];
/// What needs space on one that does not: every write as well.
pub const MAY_TAKE_SPACE: [Op; 5] =
    [Op::Create, Op::Write, Op::Allocate, Op::Rename, Op::CreateDir];

const fn mask(ops: &[Op]) -> u32 {
    let (mut mask, mut at) = (0, 0);
    while at < ops.len() {
        mask |= 1 << ops[at] as u32;
        at += 1;
    }
    mask
}

/// One planned failure: `Fault::eio(Op::Sync).on("pg_wal/").nth(3)`.
#[derive(Clone, Debug)]
pub struct Fault {
    /// One bit for each kind of call.
    ops: u32,
    path_part: Option<String>,
    nth: u64,
    times: u64,
    errno: i32,
}

impl Fault {
    /// The next such call fails with "input/output error".
    pub fn eio(op: Op) -> Self {
        Fault::of(&[op], libc::EIO)
    }

    /// The next such call fails with "no space left on device".
    pub fn enospc(op: Op) -> Self {
        Fault::of(&[op], libc::ENOSPC)
    }

    /// The next call of any of these kinds fails with "no space left on device".
    pub fn full(ops: &[Op]) -> Self {
        Fault::of(ops, libc::ENOSPC)
    }

    fn of(ops: &[Op], errno: i32) -> Self {
        Fault { ops: mask(ops), path_part: None, nth: 1, times: 1, errno }
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
    /// Calls that failed because it was planned.
    failures: Vec<(Op, String)>,
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

    pub fn failures(&self) -> &[(Op, String)] {
        &self.failures
    }

    /// Counts a call; `Err` when it is to fail.
    pub fn check(&mut self, op: Op, path: &str) -> io::Result<()> {
        if self.is_off() {
            self.calls[op as usize] += 1;
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if !matches!(op, Op::Read | Op::List | Op::Map)
            && let Some(left) = &mut self.left
        {
            *left -= 1;
        }
        self.check_as(op, path)
    }

    /// Counts a call under a further kind; it is one call all the same.
    pub fn check_as(&mut self, op: Op, path: &str) -> io::Result<()> {
        self.calls[op as usize] += 1;
        let mut failure = Ok(());
        for (fault, seen) in &mut self.faults {
            let matches = fault.ops & mask(&[op]) != 0
                && fault.path_part.as_ref().is_none_or(|part| path.contains(part.as_str()));
            if matches {
                *seen += 1;
                if *seen >= fault.nth && *seen - fault.nth < fault.times {
                    failure = Err(io::Error::from_raw_os_error(fault.errno));
                }
            }
        }
        if failure.is_err() {
            self.failures.push((op, path.to_owned()));
        }
        failure
    }
}

pub(super) fn no_space() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}
