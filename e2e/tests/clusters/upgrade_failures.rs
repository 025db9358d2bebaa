//! A program of every stage of an upgrade fails to start on one host: the failure names it, nothing is interrupted, and the
//! upgrade goes back or goes on.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use kubeon_e2e::probe;
use serde_json::json;

/// The programs that both versions share.
const SAME: [&str; 2] = ["containerd", "flanneld"];
const MINUTE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_a_failure_in_every_stage_of_an_upgrade_is_named_and_overcome() -> Result<()> {
    let lab = TestLab::up("e2e-upgrade-fails", 4)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["bundle", "build", NEXT])?;
    let masters = hosts[..3].join(",");
    lab.must(&["create", cluster, VERSION, "-m", &masters, "-w", &hosts[3]])?;
    lab.must(&["use", cluster])?;
    lab.load_client(cluster)?;
    waits_for_a_dead_master(&lab)?;
    probe::start(&lab, "h4")?;
    snapshot_fails(&lab)?;
    for unit in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        goes_back(&lab, unit)?;
    }
    // The kubelet of h3 fails after its node was drained: nothing has to leave it while containerd is stopped.
    for (host, unit) in [("h2", "etcd"), ("h3", "kubelet"), ("h3", "containerd")] {
        goes_on(&lab, host, unit)?;
    }
    drain_fails(&lab)?;
    for unit in ["flanneld", "kube-proxy"] {
        goes_on(&lab, "h4", unit)?;
    }
    lab.must(&["upgrade", cluster, NEXT])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    ensure!(versions(&lab)?.iter().all(|version| version == NEXT), "{:?}", versions(&lab)?);
    println!("  {}", probe::none_failed(&lab, "h4")?);
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// The snapshot before the upgrade cannot be written: nothing has changed.
fn snapshot_fails(lab: &TestLab) -> Result<()> {
    let (cluster, folder) = (lab.name(), lab.file("snapshots"));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(cluster), "no folder")?;
    let failed = lab.kubeon(&["upgrade", cluster, NEXT])?;
    ensure!(failed.code == 1 && failed.err.contains(&format!("snapshots/{cluster}")), "{failed:?}");
    std::fs::remove_file(folder.join(cluster))?;
    ensure!(lab.plan(cluster)?.is_empty(), "the upgrade changed something without a snapshot");
    ensure!(versions(lab)?.iter().all(|version| version == VERSION), "{:?}", versions(lab)?);
    Ok(())
}

/// A disruption budget never lets a pod go. The upgrade stops at its node with the name of the pod, and goes on without the budget.
fn drain_fails(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    let labels = json!({ "app": "stuck" });
    lab.apply(cluster, &json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "stuck" }, "spec": { "replicas": 1,
          "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": { "containers": [
            { "name": "stuck", "image": kubeon_e2e::image::NAME, "imagePullPolicy": "IfNotPresent", "args": ["sleep"] }] } } } },
        { "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "stuck" },
          "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } } },
    ] }))?;
    lab.kubectl(cluster, &["wait", "--for=condition=Available", "deployment/stuck", "--timeout=90s"])?;
    let failed = lab.kubeon(&["upgrade", cluster, NEXT, "--wait-time", "5"])?;
    ensure!(failed.code == 1 && failed.err.contains("drain node h4"), "{failed:?}");
    ensure!(failed.err.contains("default/stuck-"), "the pod that stays is named: {failed:?}");
    lab.kubectl(cluster, &["delete", "poddisruptionbudget,deployment", "stuck"])?;
    println!("  the drain of h4 failed: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// A master dies while the others try the version: the version is not taken, and the upgrade is aborted when the master is back. No
/// upgrade begins without it.
fn waits_for_a_dead_master(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    upgrade_fails(lab, "h2", "kube-scheduler")?;
    lab.host("kill", "h3")?;
    for command in [&["resume", cluster][..], &["upgrade", cluster, NEXT]] {
        let waits = lab.kubeon(command)?;
        for words in ["waits for h3", "kubeon replace", "kubeon abort", "kubeon resume"] {
            ensure!(waits.code == 1 && waits.err.contains(words), "{words} is missing in {waits:?}");
        }
    }
    ensure!(lab.must(&["ls"])?.contains("Upgrading"), "{}", lab.must(&["ls"])?);
    back(lab, "h3")?;
    lab.must(&["abort", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    is_old(lab, &["h1", "h2", "h3"], "kube-apiserver")?;
    lab.host("kill", "h3")?;
    let refused = lab.kubeon(&["upgrade", cluster, NEXT])?;
    ensure!(refused.code == 2 && refused.err.contains("does not begin without h3"), "{refused:?}");
    back(lab, "h3")?;
    println!("  a master died in an upgrade, and back: {:.0} s", begin.elapsed().as_secs_f64());
    lab.wait_up_to_date(cluster, MINUTE)
}

/// The host has power again, and accepts logins.
fn back(lab: &TestLab, host: &str) -> Result<()> {
    lab.host("start", host)?;
    let node = format!("{}@{host}", lab.name());
    for _ in 0..60 {
        if lab.kubeon(&["exec", &node, "true"])?.code == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    anyhow::bail!("{host} accepts no login")
}

/// While masters try the version, a program fails on the second one. The upgrade is aborted.
fn goes_back(lab: &TestLab, unit: &str) -> Result<()> {
    let begin = Instant::now();
    upgrade_fails(lab, "h2", unit)?;
    lab.must(&["abort", lab.name()])?;
    lab.wait_up_to_date(lab.name(), MINUTE)?;
    is_old(lab, &["h1", "h2", "h3"], unit)?;
    println!("  {unit} failed, and back: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// The program of the unit runs in the old version on these hosts.
pub(crate) fn is_old(lab: &TestLab, hosts: &[&str], unit: &str) -> Result<()> {
    for host in hosts {
        let program = format!("/proc/$(systemctl show -p MainPID --value {unit})/exe --version");
        let version = lab.on(host, &program)?;
        ensure!(version.contains(VERSION), "{unit} on {host} is {version}");
    }
    Ok(())
}

/// When all masters run the version, a program fails. The next command goes on.
fn goes_on(lab: &TestLab, host: &str, unit: &str) -> Result<()> {
    let begin = Instant::now();
    upgrade_fails(lab, host, unit)?;
    let late = lab.kubeon(&["abort", lab.name()])?;
    ensure!(late.code == 2 && late.err.contains("cannot go back to v1.36.3 any more"), "{late:?}");
    println!("  {unit} failed on {host}: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Lets a unit fail to start on a host, and checks that the upgrade stops there with its name.
pub(crate) fn upgrade_fails(lab: &TestLab, host: &str, unit: &str) -> Result<()> {
    let folder = format!("/etc/systemd/system/{unit}.service.d");
    let fail =
        format!("mkdir -p {folder} && printf '[Service]\\nExecStartPre=/bin/false\\n' >{folder}/fail.conf");
    // Both versions have the same program: only a unit that does not run is started.
    let stop = if SAME.contains(&unit) { format!(" && systemctl stop {unit}") } else { String::new() };
    lab.on(host, &format!("{fail} && systemctl daemon-reload{stop}"))?;
    let failed = lab.kubeon(&["upgrade", lab.name(), NEXT])?;
    ensure!(failed.code == 1, "{failed:?}");
    for word in [host, unit] {
        ensure!(failed.err.contains(word), "{word} is missing in\n{}", failed.err);
    }
    let repair = format!(
        "rm -r {folder} && systemctl daemon-reload && systemctl reset-failed {unit} 2>/dev/null || :"
    );
    lab.on(host, &repair).map(drop)
}

/// The version of every kubelet.
pub(crate) fn versions(lab: &TestLab) -> Result<Vec<String>> {
    let path = "jsonpath={.items[*].status.nodeInfo.kubeletVersion}";
    let versions = lab.kubectl(lab.name(), &["get", "nodes", "-o", path])?;
    Ok(versions.split_whitespace().map(str::to_owned).collect())
}
