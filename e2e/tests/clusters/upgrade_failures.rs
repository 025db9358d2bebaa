//! Every stage of an upgrade fails on one host: a disk that is full, a program that does not start, objects that the API server
//! refuses, a node that cannot be drained. The failure is named, nothing is interrupted, and the upgrade goes back or goes on.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use kubeon_e2e::probe;
use kubeon_e2e::program::Answer;
use serde_json::{Value, json};

/// The programs that both versions share.
const SAME: [&str; 3] = ["containerd", "flanneld", "haproxy"];
const MINUTE: Duration = Duration::from_secs(60);
/// The parts of a host in a file system with 4 MiB of free space: what was there stays readable.
const FILL: &str = "mkdir -p /run/full && mount -t tmpfs -o size=4m tmpfs /run/full && mkdir /run/full/upper /run/full/work && \
    mount -t overlay -o lowerdir=/var/lib/kubeon/parts,upperdir=/run/full/upper,workdir=/run/full/work overlay /var/lib/kubeon/parts";
const EMPTY: &str = "umount -l /var/lib/kubeon/parts && umount -l /run/full && rmdir /run/full";

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_a_failure_in_every_stage_of_an_upgrade_is_named_and_overcome() -> Result<()> {
    let lab = TestLab::up("e2e-upgrade-fails", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["bundle", "build", NEXT])?;
    let (masters, workers) = (hosts[..3].join(","), hosts[3..].join(","));
    lab.must(&["create", cluster, VERSION, "-m", &masters, "-w", &workers])?;
    lab.must(&["use", cluster])?;
    lab.load_client(cluster)?;
    snapshot_fails(&lab)?;
    // Later no part of the new version is missing.
    disk_is_full(&lab)?;
    waits_for_a_dead_master(&lab)?;
    probe::start(&lab, "h4")?;
    for unit in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        goes_back(&lab, unit)?;
    }
    haproxy_fails(&lab)?;
    lab.apply(cluster, &keep_coredns())?;
    goes_on(&lab, "h2", "etcd")?;
    // The kubelet of h3 fails after its node was drained: nothing has to leave it while containerd is stopped.
    for (host, unit) in [("h3", "kubelet"), ("h3", "containerd")] {
        goes_on(&lab, host, unit)?;
    }
    drain_fails(&lab)?;
    for unit in ["flanneld", "kube-proxy"] {
        goes_on(&lab, "h4", unit)?;
    }
    coredns_fails(&lab)?;
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

/// A host has no space for the parts of the new version. Its programs are not changed, and the upgrade is aborted.
fn disk_is_full(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    lab.on("h3", FILL)?;
    let failed = lab.kubeon(&["upgrade", cluster, NEXT]);
    lab.on("h3", EMPTY)?;
    let failed = failed?;
    for words in ["h3", "no space left on /var/lib/kubeon", "MiB needed", "continue with"] {
        ensure!(failed.code == 1 && failed.err.contains(words), "{words:?} is missing in {failed:?}");
    }
    is_old(lab, &["h3"], "kube-apiserver")?;
    lab.must(&["abort", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    is_old(lab, &["h1", "h2", "h3"], "kube-apiserver")?;
    println!("  the disk of h3 was full, and back: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// While masters try the version, haproxy of a worker does not start. The upgrade is aborted.
fn haproxy_fails(lab: &TestLab) -> Result<()> {
    let begin = Instant::now();
    upgrade_fails(lab, "h5", "haproxy")?;
    lab.must(&["abort", lab.name()])?;
    lab.wait_up_to_date(lab.name(), MINUTE)?;
    is_old(lab, &["h1", "h2", "h3"], "kube-apiserver")?;
    lab.on("h5", "systemctl is-active -q haproxy")?;
    println!("  haproxy failed, and back: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// The API server refuses another image of CoreDNS by a rule. The upgrade goes on without it.
fn coredns_fails(lab: &TestLab) -> Result<()> {
    let failed = lab.kubeon(&["upgrade", lab.name(), NEXT])?;
    ensure!(failed.code == 1, "{failed:?}");
    for words in ["apply CoreDNS", "CoreDNS keeps its image"] {
        ensure!(failed.err.contains(words), "{words:?} is missing in\n{}", failed.err);
    }
    let kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding";
    lab.kubectl(lab.name(), &["delete", kinds, "keep-coredns"]).map(drop)
}

/// A rule that refuses another image of CoreDNS.
fn keep_coredns() -> Value {
    let same =
        "object.spec.template.spec.containers[0].image == oldObject.spec.template.spec.containers[0].image";
    let group = "admissionregistration.k8s.io/v1";
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "keep-coredns" }, "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["apps"], "apiVersions": ["v1"],
                "operations": ["UPDATE"], "resources": ["deployments"], "resourceNames": ["coredns"] }] },
            "validations": [{ "expression": same, "message": "CoreDNS keeps its image" }] } },
        { "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "keep-coredns" },
          "spec": { "policyName": "keep-coredns", "validationActions": ["Deny"] } },
    ] })
}

/// A disruption budget never lets a pod go. The upgrade stops at its node with the name of the pod, and goes on without the budget.
fn drain_fails(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    let labels = json!({ "app": "stuck" });
    lab.apply(cluster, &json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "stuck" }, "spec": { "replicas": 1,
          "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": {
            "nodeSelector": { "kubernetes.io/hostname": "h4" }, "containers": [
            { "name": "stuck", "image": kubeon_e2e::image::NAME, "imagePullPolicy": "IfNotPresent", "args": ["sleep"] }] } } } },
        { "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "stuck" },
          "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } } },
    ] }))?;
    lab.kubectl(cluster, &["wait", "--for=condition=Available", "deployment/stuck", "--timeout=240s"])?;
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
    for options in [&[][..], &["--ignore", "health"], &["--dry-run"]] {
        let refused = lab.kubeon(&[&["upgrade", cluster, NEXT], options].concat())?;
        for words in ["does not begin without h3", "kubeon replace"] {
            ensure!(refused.code == 2 && refused.err.contains(words), "{words:?} is missing in {refused:?}");
        }
    }
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

/// When all masters run the version, a program fails. The next command goes on. Returns what the failed one said.
fn goes_on(lab: &TestLab, host: &str, unit: &str) -> Result<Answer> {
    let begin = Instant::now();
    let failed = upgrade_fails(lab, host, unit)?;
    let late = lab.kubeon(&["abort", lab.name()])?;
    ensure!(late.code == 2 && late.err.contains("cannot go back to v1.36.3 any more"), "{late:?}");
    println!("  {unit} failed on {host}: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(failed)
}

/// Lets a unit fail to start on a host, and checks that the upgrade stops there with its name.
pub(crate) fn upgrade_fails(lab: &TestLab, host: &str, unit: &str) -> Result<Answer> {
    breaks(lab, host, unit)?;
    let failed = lab.kubeon(&["upgrade", lab.name(), NEXT])?;
    ensure!(failed.code == 1, "{failed:?}");
    for word in [host, unit] {
        ensure!(failed.err.contains(word), "{word} is missing in\n{}", failed.err);
    }
    repaired(lab, host, unit)?;
    Ok(failed)
}

/// The unit does not start on the host any more.
fn breaks(lab: &TestLab, host: &str, unit: &str) -> Result<()> {
    let folder = drop_in(unit);
    let fail =
        format!("mkdir -p {folder} && printf '[Service]\\nExecStartPre=/bin/false\\n' >{folder}/fail.conf");
    // Both versions have the same program: only a unit that does not run is started.
    let stop = if SAME.contains(&unit) { format!(" && systemctl stop {unit}") } else { String::new() };
    lab.on(host, &format!("{fail} && systemctl daemon-reload{stop}")).map(drop)
}

/// It starts again.
fn repaired(lab: &TestLab, host: &str, unit: &str) -> Result<()> {
    let folder = drop_in(unit);
    let repair = format!(
        "rm -r {folder} && systemctl daemon-reload && systemctl reset-failed {unit} 2>/dev/null || :"
    );
    lab.on(host, &repair).map(drop)
}

fn drop_in(unit: &str) -> String {
    format!("/etc/systemd/system/{unit}.service.d")
}

/// The version of every kubelet.
pub(crate) fn versions(lab: &TestLab) -> Result<Vec<String>> {
    let path = "jsonpath={.items[*].status.nodeInfo.kubeletVersion}";
    let versions = lab.kubectl(lab.name(), &["get", "nodes", "-o", path])?;
    Ok(versions.split_whitespace().map(str::to_owned).collect())
}
