//! Where a process spends its time: its processor time from the kernel, and its functions from
//! perf, where that is installed and allowed.

use crate::LabError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What the kernel counts processor time in: its unit for user space.
const TICKS_A_SECOND: f64 = 100.0;

/// Processor time that a process has used so far, all its threads together.
pub fn processor_time(pid: u32) -> Result<Duration, LabError> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(LabError::io("read", Path::new(&path)))?;
    ticks(&text).map(|ticks| Duration::from_secs_f64(ticks / TICKS_A_SECOND)).ok_or_else(|| {
        LabError::Engine(format!("{path} does not say how much processor time was used"))
    })
}

/// User and system time, fields 14 and 15; the name in field 2 may contain anything.
fn ticks(stat: &str) -> Option<f64> {
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// A recording of a process by perf.
pub struct Recording {
    perf: Child,
    file: tempfile::NamedTempFile,
}

impl Recording {
    /// Begins one; `None` where perf is not to be had.
    pub fn begin(pid: u32) -> Option<Recording> {
        let file = tempfile::NamedTempFile::new().ok()?;
        let perf = Command::new("perf")
            .args(["record", "-F", "997", "-p", &pid.to_string(), "-o"])
            .arg(file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Recording { perf, file })
    }

    /// Ends it. Functions and their shares in percent, the greatest first; nothing when perf was
    /// not allowed to look.
    pub fn end(mut self) -> Vec<(String, f64)> {
        let pid = rustix::process::Pid::from_child(&self.perf);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        if asked.is_err() || self.perf.wait().is_err() {
            return Vec::new();
        }
        let report = Command::new("perf")
            .args(["report", "--stdio", "--no-children", "-g", "none", "-F", "overhead,symbol"])
            .arg("-i")
            .arg(self.file.path())
            .stdin(Stdio::null())
            .output();
        let Ok(report) = report else { return Vec::new() };
        functions(&String::from_utf8_lossy(&report.stdout))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Ended already, or to be ended: nobody waits for its result.
        let _gone = self.perf.kill();
        let _reaped = self.perf.wait();
    }
}

/// Lines such as `    12.34%  [.] name::of::function`; the same function counts once.
fn functions(report: &str) -> Vec<(String, f64)> {
    let mut found = BTreeMap::<String, f64>::new();
    for line in report.lines() {
        let Some((share, rest)) = line.trim_start().split_once('%') else { continue };
        let Ok(share) = share.parse::<f64>() else { continue };
        let Some((place, name)) = rest.trim_start().split_once("] ") else { continue };
        let name = if place.ends_with('k') { "the kernel" } else { name.trim() };
        *found.entry(name.to_owned()).or_default() += share;
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_found_behind_any_name() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194304 100 0 0 0 70 30 0 0 20 0 9 0 1 2 3";
        assert_eq!(ticks(stat), Some(100.0));
        assert_eq!(ticks("nonsense"), None);
        assert!(processor_time(std::process::id()).is_ok());
    }

    #[test]
    fn functions_are_read_from_a_report() {
        let report = "# Overhead  Symbol\n#\n    40.00%  [.] heap::count_page\n    \
                      10.50%  [k] _copy_to_iter\n     9.50%  [k] vfs_read\n\n";
        let found = functions(report);
        assert_eq!(found, [("heap::count_page".to_owned(), 40.0), ("the kernel".to_owned(), 20.0)]);
    }
}
