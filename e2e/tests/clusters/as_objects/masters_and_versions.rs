//! The masters, the version and the settings of a declared cluster change: masters are added, a dead one is replaced, the cluster is
//! upgraded, and its kubelets and the way of its worker to the masters change. Runners are killed on the way.

use std::time::Instant;

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{NEXT, VERSION};
use kubeon_e2e::program::{folder, must};
use serde_json::{Value, json};

use super::declared_cluster::{
    NAME, NAMESPACE, declared, kill_runner, kubeconfig, wait_job_running, wait_nodes_ready, wait_up_to_date,
};
use super::environment::{MetaCluster, condition};
use super::{MINUTE, print_time};
use crate::scale::balancer::{SERVICE, leads_to};

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_masters_and_the_version_of_a_declared_cluster_change() -> Result<()> {
    let meta = MetaCluster::create_in("e2e-meta-masters", 6)?;
    load_next_bundle(&meta)?;
    let address = |host: &str| meta.address(host);
    meta.apply(&declared(NAME, VERSION, address("h2")?, &[address("h3")?]))?;
    wait_up_to_date(&meta, "create-finished")?;

    refuses_other_masters(&meta)?;
    masters(&meta, &["h2", "h4", "h5"])?;
    wait_up_to_date(&meta, "scale-up-finished")?;
    wait_nodes_ready(&meta, &kubeconfig(&meta)?, 4)?;

    stopped_member(&meta)?;
    meta.lab.host("kill", "h2")?;
    meta.kubectl(&["wait", "--for=condition=Degraded", &format!("ecs/{NAME}"), "--timeout=120s"])?;
    masters(&meta, &["h4", "h5", "h6"])?;
    meta.eventually("the status names the dead host", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        let reason = status["reason"].as_str().unwrap_or_default();
        ensure!(status["phase"] == "Failed" && reason.contains("kubeon.io/without"), "{status:#}");
        Ok(())
    })?;
    meta.annotate(NAME, "kubeon.io/without", address("h2")?)?;
    kill_runner(&meta, "scale-up-", "h6")?;
    meta.request_operation(NAME, "scaling-up")?;
    wait_up_to_date(&meta, "scale-up-finished")?;
    wait_nodes_ready(&meta, &kubeconfig(&meta)?, 4)?;

    taken_back(&meta)?;
    let start = Instant::now();
    declare(&meta, &json!({"kubeVersion": NEXT}))?;
    kill_runner(&meta, "update-", "h5")?;
    meta.request_operation(NAME, "updating")?;
    paused_and_resumed(&meta)?;
    wait_up_to_date(&meta, "update-finished")?;
    print_time("an upgrade of 3 + 1 with a killed runner and a pause", start);
    upgraded(&meta)?;
    settings(&meta)
}

/// A setting of every kubelet and the way of the worker to the API servers change in one operation.
fn settings(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    declare(meta, &json!({"network": {"maxPods": 100}, "loadBalancer": {"mode": "updater"}}))?;
    let kubeconfig = kubeconfig(meta)?;
    let capacity = ["get", "nodes", "-o", "jsonpath={.items[*].status.capacity.pods}"];
    // The upgrade before has the same word, so its end is no sign.
    meta.eventually("the nodes report their new capacity", MINUTE * 5, || {
        let found = meta.kubectl_with(&kubeconfig, &capacity)?;
        ensure!(found.split(' ').count() == 4 && found.split(' ').all(|pods| pods == "100"), "{found}");
        Ok(())
    })?;
    wait_up_to_date(meta, "update-finished")?;
    print_time("two settings of 3 + 1", start);
    leads_to(&meta.lab, "h3", SERVICE)?;
    meta.lab.on("h3", "! systemctl cat haproxy 2>/dev/null")?;
    for master in ["h4", "h5", "h6"] {
        meta.lab.on(master, "systemctl is-active -q apiserver-updater")?;
    }
    wait_nodes_ready(meta, &kubeconfig, 4)?;
    let declared = meta.get(&["ecs", NAME])?["spec"]["cluster"].clone();
    ensure!(declared["loadBalancer"]["mode"] == "updater", "{declared:#}");
    Ok(())
}

/// One member of etcd is stopped: another master reports it, until it serves again. Without the command that happens within ten
/// minutes.
fn stopped_member(meta: &MetaCluster) -> Result<()> {
    meta.lab.on("h5", "systemctl stop etcd")?;
    meta.lab.on("h4", "systemctl start kubeon-renew")?;
    meta.eventually("the status names the member", MINUTE, || {
        let conditions = meta.get(&["ecs", NAME])?["status"]["conditions"].clone();
        let degraded = conditions.as_array().into_iter().flatten().find(|one| one["type"] == "Degraded");
        let is_named = degraded.is_some_and(|degraded| {
            let message = degraded["message"].as_str().unwrap_or_default();
            degraded["status"] == "True" && message.contains("members of etcd do not serve: ")
        });
        ensure!(is_named, "{conditions:#}");
        Ok(())
    })?;
    meta.lab.on("h5", "systemctl start etcd")?;
    for master in ["h2", "h4", "h5"] {
        meta.lab.on(master, "systemctl start kubeon-renew")?;
    }
    meta.kubectl(&["wait", "--for=condition=Degraded=False", &format!("ecs/{NAME}"), "--timeout=120s"])
        .map(drop)
}

/// Puts the image of another bundle into the meta cluster.
pub(super) fn load_next_bundle(meta: &MetaCluster) -> Result<()> {
    meta.lab.must(&["bundle", "build", NEXT])?;
    let images = meta.lab.file("images");
    let out = images.to_string_lossy();
    let only =
        ["images", "--only", "bundle", "--version", NEXT, "--profile", "dev", "--no-build", "--out", &out];
    let own = meta.lab.environment();
    let environment: Vec<(&str, &str)> = own.iter().map(|(name, text)| (*name, text.as_str())).collect();
    must(folder().join("xtask"), &only, &environment)?;
    let archive = images.join("kubeon-bundle.tar");
    meta.lab.must(&["image", "load", &archive.to_string_lossy(), "meta"]).map(drop)
}

pub(super) fn declare(meta: &MetaCluster, cluster: &Value) -> Result<()> {
    meta.patch(&["ecs", NAME], &json!({"spec": {"cluster": cluster}}))
}

fn masters(meta: &MetaCluster, hosts: &[&str]) -> Result<()> {
    let nodes =
        hosts.iter().map(|host| Ok(json!({"ip": meta.address(host)?}))).collect::<Result<Vec<Value>>>()?;
    declare(meta, &json!({"masterList": nodes}))
}

fn refuses_other_masters(meta: &MetaCluster) -> Result<()> {
    for (change, reason) in [
        (json!({"masterList": [{"ip": meta.address("h6")?}]}), "would keep no master"),
        (json!({"kubeVersion": "v1.35.4"}), "a downgrade is not possible"),
    ] {
        let error = declare(meta, &change).err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(error.contains(reason), "{error}");
    }
    Ok(())
}

/// An upgrade whose runner is killed while masters try the version goes back when the old version is declared again.
fn taken_back(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    declare(meta, &json!({"kubeVersion": NEXT}))?;
    kill_runner(meta, "update-", "h6")?;
    declare(meta, &json!({"kubeVersion": VERSION}))?;
    meta.eventually("a Job repairs the cluster", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        let job = status["jobName"].as_str().unwrap_or_default();
        ensure!(job.starts_with("repair-") && status["phase"] != "Failed", "{status:#}");
        Ok(())
    })?;
    wait_up_to_date(meta, "repair-finished")?;
    for host in ["h4", "h5", "h6"] {
        let running = "pid=$(systemctl show -p MainPID --value kube-apiserver); tr '\\0' ' ' </proc/$pid/cmdline; /proc/$pid/exe --version";
        let text = meta.lab.on(host, running)?;
        ensure!(text.contains(VERSION) && !text.contains("--emulated-version"), "{host}: {text}");
    }
    print_time("an upgrade with a killed runner that is taken back", start);
    Ok(())
}

/// The upgrade is paused: its pod ends, nothing works on the hosts, and the cluster serves. Then it continues.
fn paused_and_resumed(meta: &MetaCluster) -> Result<()> {
    let set_paused = |paused: bool| meta.patch(&["ecs", NAME], &json!({"spec": {"paused": paused}}));
    let status = || -> Result<Value> { Ok(meta.get(&["ecs", NAME])?["status"].clone()) };
    let reason = |status: &Value| condition(status, "Progressing").map(|progress| progress["reason"].clone());
    let job = wait_job_running(meta, NAME, "update-")?;
    meta.eventually("the upgrade changes hosts", MINUTE * 2, || {
        let status = status()?;
        ensure!(status["step"].as_str().is_some_and(|step| step.contains('/')), "{status:#}");
        Ok(())
    })?;
    set_paused(true)?;
    let label = format!("job-name={job}");
    meta.eventually("the pod of the paused upgrade has ended", MINUTE * 3, || {
        let left = meta.kubectl(&["-n", NAMESPACE, "get", "pods", "-l", &label, "-o", "name"])?;
        ensure!(left.is_empty(), "{left}");
        let status = status()?;
        ensure!(reason(&status) == Some(json!("Paused")) && status["phase"] == "Updating", "{status:#}");
        Ok(())
    })?;
    for host in ["h3", "h4", "h5", "h6"] {
        meta.eventually("nothing works on the host", MINUTE, || {
            meta.lab.on(host, "! pgrep '^kubeon-node'").map(drop)
        })?;
    }
    meta.kubectl_with(&kubeconfig(meta)?, &["get", "nodes"])?;
    set_paused(false)?;
    meta.eventually("the upgrade continues", MINUTE * 2, || {
        let status = status()?;
        ensure!(reason(&status) != Some(json!("Paused")), "{status:#}");
        Ok(())
    })
}

/// Every node has the new version and no node is cordoned; the master that took the snapshot has it.
fn upgraded(meta: &MetaCluster) -> Result<()> {
    let kubeconfig = kubeconfig(meta)?;
    let of_nodes = |path: &str| {
        meta.kubectl_with(&kubeconfig, &["get", "nodes", "-o", &format!("jsonpath={{.items[*]{path}}}")])
    };
    let versions = of_nodes(".status.nodeInfo.kubeletVersion")?;
    ensure!(versions.split(' ').count() == 4 && versions.split(' ').all(|one| one == NEXT), "{versions}");
    let cordoned = of_nodes(".spec.unschedulable")?;
    ensure!(cordoned.is_empty(), "{cordoned}");
    let status = meta.get(&["ecs", NAME])?["status"].clone();
    ensure!(status["version"] == NEXT, "{status:#}");
    let files =
        ["h4", "h5", "h6"].map(|host| meta.lab.on(host, "ls /var/lib/kubeon/snapshots 2>/dev/null; true"));
    let files: Vec<String> = files.into_iter().collect::<Result<_>>()?;
    ensure!(files.concat().contains(&format!("before-{NEXT}.db")), "{files:?}");
    Ok(())
}
