//! Kills containers and their shims that still run after containerd has stopped.

use std::fs;
use std::thread;
use std::time::Duration;

use kubeon_wire::StepFailure;
use rustix::process::{Pid, Signal, kill_process};

use super::failures::ResetFailures;
use crate::failure::failed;
use crate::job::Job;

/// The number of rounds: a process may start another one while it is being killed.
const ROUNDS: u32 = 50;
const INTERVAL: Duration = Duration::from_millis(100);

/// Kills every process and every shim of pods, on a real host only.
pub(super) fn kill(job: &Job<'_>, failures: &mut ResetFailures) {
    if job.host.root.is_live() {
        failures.record(kill_all());
    }
}

fn kill_all() -> Result<(), StepFailure> {
    let mut alive = Vec::new();
    for _ in 0..ROUNDS {
        alive = pod_processes();
        if alive.is_empty() {
            return Ok(());
        }
        for pid in alive.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            // The process may have ended; the next round checks.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(INTERVAL);
    }
    Err(failed(format!("{} processes of pods cannot be killed, such as {:?}", alive.len(), &alive[..1])))
}

fn pod_processes() -> Vec<i32> {
    let base = cgroups("1");
    let own = std::process::id().cast_signed();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != 1 && *pid != own)
        .filter(|pid| {
            let name = pid.to_string();
            in_pod(&cgroups(&name), &base) && !is_zombie(&name) || is_shim(&name)
        })
        .collect()
}

fn cgroups(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// Whether a control group belongs to a pod. Only groups below the group of process 1 count, because this
/// host may itself be a pod.
fn in_pod(groups: &str, base: &str) -> bool {
    let path_of = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned).unwrap_or_default();
    let key = |line: &str| line.rsplit_once(':').map(|(key, _)| key.to_owned()).unwrap_or_default();
    groups.lines().any(|line| {
        let first = base.lines().find(|other| key(other) == key(line)).map(path_of).unwrap_or_default();
        let first = first.trim_end_matches("/init.scope").trim_end_matches('/').to_owned();
        let path = path_of(line);
        let below = path.strip_prefix(&first).unwrap_or_default();
        below.split('/').any(|part| part.starts_with("kubepods") || part == "k8s.io")
    })
}

fn is_zombie(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Whether it is the shim of a Kubernetes container; other users of containerd have other namespaces.
fn is_shim(pid: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let program = words[0].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let is_kubernetes = words.windows(2).any(|pair| pair[0] == b"-namespace" && pair[1] == b"k8s.io");
    program.starts_with(b"containerd-shim") && is_kubernetes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_pods_by_their_control_groups() {
        let base = "4:memory:/\n0::/init.scope\n";
        assert!(in_pod("4:memory:/kubepods/besteffort/pod1/abc\n0::/x\n", base));
        assert!(in_pod("0::/kubepods.slice/kubepods-pod1.slice/cri-1.scope\n", base));
        assert!(in_pod("0::/system.slice/k8s.io/abc\n", base));
        assert!(!in_pod("0::/system.slice/ssh.service\n4:memory:/\n", base));
    }

    #[test]
    fn processes_of_a_host_that_is_a_pod_are_not_pods_of_the_host() {
        let base = "0::/kubepods/burstable/pod7/host\n";
        assert!(!in_pod("0::/kubepods/burstable/pod7/host/system.slice/ssh.service\n", base));
        assert!(!in_pod("0::/kubepods/burstable/pod7/host\n", base));
        assert!(in_pod("0::/kubepods/burstable/pod7/host/kubepods/pod1/x\n", base));
    }
}
