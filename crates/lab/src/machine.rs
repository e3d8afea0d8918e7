//! What the measurements were made on.

use serde::{Deserialize, Serialize};
use std::fs;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
}

impl Machine {
    /// This machine. What the system does not tell stays "unknown" or 0.
    pub fn this() -> Machine {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = kernel.trim();
        Machine {
            processor: field(&cpu, "model name").unwrap_or("unknown processor").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: field(&memory, "MemTotal").and_then(kilobytes).unwrap_or(0),
            kernel: if kernel.is_empty() { "unknown kernel" } else { kernel }.to_owned(),
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        format!("{} x {}, {gib:.1} GiB, Linux {}", self.cores, self.processor, self.kernel)
    }
}

/// The value of the first `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "model"), None);
        assert_eq!(kilobytes("16 kB"), Some(16_384));
        assert_eq!(kilobytes("16"), None);
    }

    #[test]
    fn this_machine_has_cores() {
        assert!(Machine::this().cores >= 1);
        assert!(Machine::this().line().contains(" x "));
    }
}
