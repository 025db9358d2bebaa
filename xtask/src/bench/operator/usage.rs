//! CPU time and memory of processes, as reported by the kernel.

use std::fs;

use anyhow::{Context as _, Result};

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS: f64 = 100.0;

/// CPU seconds so far, and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessUsage {
    pub(super) cpu: f64,
    /// Peak of resident memory since [`reset_peak`], MiB.
    pub(super) peak: f64,
    /// Resident memory now, MiB.
    pub(super) resident: f64,
}

impl ProcessUsage {
    pub(super) fn of(process: u32) -> Result<Self> {
        let read = |name: &str| {
            fs::read_to_string(format!("/proc/{process}/{name}")).context("the process does not exist")
        };
        parse(&read("stat")?, &read("status")?).context("cannot parse the files in /proc")
    }

    /// CPU seconds since `before`, and the current memory.
    fn since(self, before: Self) -> Self {
        // After a restart the counter begins at 0.
        Self { cpu: if self.cpu < before.cpu { self.cpu } else { self.cpu - before.cpu }, ..self }
    }
}

/// CPU seconds of the servers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Servers {
    pub(super) api: f64,
    pub(super) etcd: f64,
}

impl Servers {
    /// CPU seconds since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self { api: self.api - before.api, etcd: self.etcd - before.etcd }
    }

    /// `API server 1.2, etcd 0.4`.
    pub(super) fn text(self) -> String {
        format!("API server {:.1}, etcd {:.1}", self.api, self.etcd)
    }
}

/// The usage of all processes of a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) operator: ProcessUsage,
    pub(super) servers: Servers,
    /// CPU seconds of the harness.
    pub(super) harness: f64,
}

impl Used {
    /// CPU seconds since `before`, and the current memory.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            operator: self.operator.since(before.operator),
            servers: self.servers.since(before.servers),
            harness: self.harness - before.harness,
        }
    }
}

/// Resets the peak. If the kernel does not allow it, the peak is that of the whole run.
pub(super) fn reset_peak(process: u32) {
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
}

fn parse(stat: &str, status: &str) -> Option<ProcessUsage> {
    // The name of the program, in parentheses, may contain any characters.
    let fields: Vec<_> = stat.get(stat.rfind(')')? + 2..)?.split(' ').collect();
    let ticks: f64 = fields.get(11..13)?.iter().map(|field| field.parse::<f64>().unwrap_or(0.0)).sum();
    let mebibytes = |key: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
    };
    Some(ProcessUsage { cpu: ticks / TICKS, peak: mebibytes("VmHWM:")?, resident: mebibytes("VmRSS:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_files_in_proc() {
        let stat = "42 (a) b)) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 8 0 1 1 1";
        let usage = parse(stat, "Name:\ta\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\n").unwrap();
        assert_eq!(usage, ProcessUsage { cpu: 2.0, peak: 20.0, resident: 10.0 });
        assert!(ProcessUsage::of(std::process::id()).unwrap().resident > 0.0);
    }
}
