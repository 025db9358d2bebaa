//! A setting of every kubelet changes: the nodes restart one after another, each after the one before works again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};

const MINUTE: Duration = Duration::from_secs(60);
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

#[test]
fn kubelets_restart_one_after_another() -> Result<()> {
    let lab = TestLab::up("e2e-rolling", 3)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let declared = ["-m", &hosts[0], "-w", &hosts[1], "-w", &hosts[2]];
    let create = |more: &[&str]| lab.must(&[&["create", cluster, VERSION], &declared[..], more].concat());
    create(&[])?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let before = starts(&lab)?;

    create(&["--max-pods", "100"])?;
    let (after, registered) = (starts(&lab)?, registrations(&lab)?);
    for (index, host) in HOSTS.iter().enumerate() {
        ensure!(after[index] > before[index], "the kubelet of {host} was not restarted");
        let pods = lab.kubectl(cluster, &["get", "node", host, "-o", "jsonpath={.status.capacity.pods}"])?;
        ensure!(pods == "100", "{host}: {pods}");
    }
    for index in 1..HOSTS.len() {
        let (node, next) = (HOSTS[index - 1], HOSTS[index]);
        ensure!(
            after[index] > registered[index - 1],
            "{next} restarted at {} before {node} was registered at {}",
            after[index],
            registered[index - 1]
        );
    }
    lab.wait_up_to_date(cluster, MINUTE)?;
    stops_at_the_first_broken_node(&lab)?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// A kubelet that cannot start stops the nodes after it.
fn stops_at_the_first_broken_node(lab: &TestLab) -> Result<()> {
    let before = starts(lab)?;
    let cluster = lab.name();
    let broken = "mkdir -p /run/systemd/system/kubelet.service.d && \
                  printf '[Service]\\nExecStartPre=/bin/false\\n' > /run/systemd/system/kubelet.service.d/broken.conf && \
                  systemctl daemon-reload";
    lab.on("h2", broken)?;
    let hosts = &lab.addresses;
    let change =
        ["create", cluster, VERSION, "-m", &hosts[0], "-w", &hosts[1], "-w", &hosts[2], "--max-pods", "90"];
    let failed = lab.kubeon(&change)?;
    ensure!(failed.code == 1, "{failed:?}");
    let after = starts(lab)?;
    ensure!(after[0] > before[0] && after[2] == before[2], "h3 was restarted: {before:?} {after:?}");
    lab.on("h2", "rm -r /run/systemd/system/kubelet.service.d && systemctl daemon-reload")?;
    lab.must(&["create", cluster])?;
    ensure!(starts(lab)?[2] > before[2], "the next run continues");
    lab.wait_up_to_date(cluster, MINUTE)
}

/// When the kubelet of each host was started, in microseconds since 1970. The hosts share the clock of this machine.
fn starts(lab: &TestLab) -> Result<Vec<i64>> {
    let command = "started=$(systemctl show -P ExecMainStartTimestampMonotonic kubelet); \
                   python3 -c \"import time; print(int((time.time() - time.monotonic()) * 1e6) + $started)\"";
    HOSTS.iter().map(|host| number(&lab.on(host, command)?)).collect()
}

/// When each kubelet registered its node after its last start, in microseconds since 1970.
fn registrations(lab: &TestLab) -> Result<Vec<i64>> {
    let command = "id=$(systemctl show -P InvocationID kubelet); \
                   journalctl _SYSTEMD_INVOCATION_ID=$id -o json -g 'Successfully registered node' -n 1 | \
                   grep -o '\"__REALTIME_TIMESTAMP\":\"[0-9]*' | grep -o '[0-9]*$'";
    HOSTS.iter().map(|host| number(&lab.on(host, command)?)).collect()
}

fn number(text: &str) -> Result<i64> {
    text.trim().parse().with_context(|| format!("{text:?} is no time"))
}
