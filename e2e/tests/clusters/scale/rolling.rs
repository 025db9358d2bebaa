//! A setting of every kubelet changes: the nodes restart one after another, each after the one before works again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;

const MINUTE: Duration = Duration::from_secs(60);
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

/// On a cluster of these hosts with one master.
pub(super) fn kubelets_restart_one_after_another(lab: &TestLab, cluster: &str) -> Result<()> {
    lab.wait_up_to_date(cluster, MINUTE)?;
    let before = starts(lab)?;
    let set = ["config", "set", cluster, "network.maxPods=100"];
    let planned = lab.must(&[&set[..], &["--dry-run"]].concat())?;
    let control: Vec<&str> =
        planned.lines().map(str::trim).filter(|line| line.starts_with("control ")).collect();
    let is_declaration = |line: &&str| line.contains("store the declaration of the cluster");
    ensure!(planned.contains("join     3 hosts") && control.iter().all(is_declaration), "{planned}");
    lab.must(&set)?;
    let pods = lab.must(&["config", "get", cluster, "network.maxPods"])?;
    ensure!(pods.trim() == "100", "{pods}");
    for host in HOSTS {
        let pods = lab.kubectl(cluster, &["get", "node", host, "-o", "jsonpath={.status.capacity.pods}"])?;
        ensure!(pods == "100", "{host}: {pods}");
    }
    restarted_in_order(lab, &before)?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    stops_at_the_first_broken_node(lab, cluster)
}

/// Since these starts the kubelet of each host restarted, each after the one before had registered its node.
pub(crate) fn restarted_in_order(lab: &TestLab, before: &[i64]) -> Result<()> {
    let (after, worked) = (starts(lab)?, first_requests(lab)?);
    for (index, host) in HOSTS.iter().enumerate() {
        ensure!(restarted(before[index], after[index]), "the kubelet of {host} was not restarted");
    }
    for index in 1..HOSTS.len() {
        let (node, next) = (HOSTS[index - 1], HOSTS[index]);
        ensure!(
            after[index] > worked[index - 1],
            "{next} restarted at {} before the kubelet of {node} was registered at {}",
            after[index],
            worked[index - 1]
        );
    }
    Ok(())
}

/// A kubelet that cannot start stops the nodes after it.
fn stops_at_the_first_broken_node(lab: &TestLab, cluster: &str) -> Result<()> {
    let before = starts(lab)?;
    let broken = "mkdir -p /run/systemd/system/kubelet.service.d && \
                  printf '[Service]\\nExecStartPre=/bin/false\\n' > /run/systemd/system/kubelet.service.d/broken.conf && \
                  systemctl daemon-reload";
    lab.on("h2", broken)?;
    let failed = lab.kubeon(&["config", "set", cluster, "network.maxPods=90"])?;
    ensure!(failed.code == 1, "{failed:?}");
    let after = starts(lab)?;
    ensure!(
        restarted(before[0], after[0]) && !restarted(before[2], after[2]),
        "h3 was restarted: {before:?} {after:?}"
    );
    lab.on("h2", "rm -r /run/systemd/system/kubelet.service.d && systemctl daemon-reload")?;
    lab.must(&["create", cluster])?;
    ensure!(restarted(before[2], starts(lab)?[2]), "the next run continues");
    lab.wait_up_to_date(cluster, MINUTE)
}

/// The times are computed from two clocks, so one start differs by some microseconds each time.
fn restarted(before: i64, after: i64) -> bool {
    after > before + 100_000
}

/// When the kubelet of each host was started, in microseconds since 1970. The hosts share the clock of this machine.
pub(crate) fn starts(lab: &TestLab) -> Result<Vec<i64>> {
    let command = "started=$(systemctl show -P ExecMainStartTimestampMonotonic kubelet); \
                   python3 -c \"import time; print(int((time.time() - time.monotonic()) * 1e6) + $started)\"";
    HOSTS.iter().map(|host| number(&lab.on(host, command)?)).collect()
}

/// When each kubelet registered its node after its last start, in microseconds since 1970.
fn first_requests(lab: &TestLab) -> Result<Vec<i64>> {
    let command = "id=$(systemctl show -P InvocationID kubelet); \
                   journalctl _SYSTEMD_INVOCATION_ID=$id -o json -g 'Successfully registered node' -n 1 | \
                   grep -o '\"__REALTIME_TIMESTAMP\":\"[0-9]*' | grep -o '[0-9]*$'";
    HOSTS.iter().map(|host| number(&lab.on(host, command)?)).collect()
}

fn number(text: &str) -> Result<i64> {
    text.trim().parse().with_context(|| format!("{text:?} is no time"))
}
