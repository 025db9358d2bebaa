//! The processes of a pod, found by their control groups.

use std::fs;

use crate::root::Root;

/// The process that holds the network of a pod.
const PAUSE: &[u8] = b"pause";
/// Ticks of the clock in a second, in which the kernel tells when a process was started.
const TICKS: u64 = 100;
/// The place of the start among the values of `/proc/PID/stat` after the name.
const START: usize = 19;

/// A process of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PodProcess {
    /// Its number.
    pub(super) pid: i32,
    /// When it was started, in microseconds since the boot.
    pub(super) started: u64,
}

/// The processes of the containers of the pod with this identity.
pub(super) fn of_pod(root: &Root, uid: &str) -> Vec<PodProcess> {
    let Ok(processes) = fs::read_dir(root.at("/proc")) else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| member(root, uid, pid)).collect()
}

/// The first process of a pod: the others are its children.
pub(super) fn main_of(root: &Root, uid: &str) -> Option<PodProcess> {
    of_pod(root, uid).into_iter().min_by_key(|process| (process.started, process.pid))
}

fn member(root: &Root, uid: &str, pid: i32) -> Option<PodProcess> {
    let file = |name: &str| root.at(&format!("/proc/{pid}/{name}"));
    let groups = fs::read_to_string(file("cgroup")).ok()?;
    if !groups.contains(uid) {
        return None;
    }
    let line = fs::read(file("cmdline")).ok()?;
    let program = line.split(|byte| *byte == 0).next()?.rsplit(|byte| *byte == b'/').next()?;
    // A process that ended has no command line.
    if program.is_empty() || program == PAUSE {
        return None;
    }
    let stat = fs::read_to_string(file("stat")).ok()?;
    let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(START)?.parse().ok()?;
    Some(PodProcess { pid, started: ticks.saturating_mul(1_000_000 / TICKS) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    fn process(bench: &Bench, pid: i32, group: &str, line: &str, ticks: u64) {
        bench.write(&format!("/proc/{pid}/cgroup"), &format!("0::/{group}\n"));
        bench.write(&format!("/proc/{pid}/cmdline"), line);
        let before = "0 ".repeat(START - 1);
        bench.write(&format!("/proc/{pid}/stat"), &format!("{pid} (a b) S {before}{ticks} 0\n"));
    }

    #[test]
    fn the_first_process_of_a_pod_is_its_program() {
        let bench = Bench::new();
        let group = "kubepods.slice/kubepods-burstable-podabc123.slice/cri-containerd-1.scope";
        process(&bench, 10, group, "/pause\0", 100);
        process(&bench, 12, group, "/usr/sbin/haproxy\0-W\0", 300);
        process(&bench, 11, group, "/usr/sbin/haproxy\0-W\0", 200);
        process(&bench, 13, group, "", 50);
        process(&bench, 14, "system.slice/haproxy.service", "/usr/sbin/haproxy\0", 10);
        let root = &bench.host.root;
        assert_eq!(main_of(root, "abc123"), Some(PodProcess { pid: 11, started: 2_000_000 }));
        assert_eq!(of_pod(root, "abc123").len(), 2);
        assert_eq!(main_of(root, "def456"), None);
    }
}
