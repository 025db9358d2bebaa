//! A cluster whose control plane and haproxy are static pods that the bundle's kubeadm makes: it grows from 1 + 1 to three masters
//! and two workers, changes a setting, loses a master, and is destroyed, by the commands of every other cluster.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::eventually;
use kubeon_e2e::writer;
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);
/// The static pods of a master.
pub(crate) const OF_MASTER: [&str; 4] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

#[test]
fn container_mode_grows_to_three_masters_and_is_destroyed() -> Result<()> {
    let lab = TestLab::up("e2e-container", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let refused = lab.kubeon(&["create", cluster, VERSION, "--deploy-mode", "pods", "-m", &hosts[0]])?;
    ensure!(refused.code == 2 && refused.err.contains("Input deploy mode[pods] not support"), "{refused:?}");

    let create = ["create", cluster, VERSION, "--deploy-mode", "container", "-m", &hosts[0], "-w", &hosts[1]];
    timed("create 1 + 1", || lab.must(&create))?;
    lab.must(&["use", cluster])?;
    runs_static_pods(&lab, &["h1"], &["h2"])?;
    // The node program reports its own state, too.
    lab.wait_up_to_date(cluster, MINUTE)?;
    ensure!(lab.plan(cluster)?.is_empty(), "the plan of a new cluster has no steps");

    timed("a worker is added", || lab.must(&["addon", cluster, "-w", &hosts[2]]))?;
    runs_static_pods(&lab, &["h1"], &["h2", "h3"])?;
    writer::start(&lab, "container", 90)?;
    timed("two masters are added", || lab.must(&["addon", cluster, "-m", &hosts[3..5].join(",")]))?;
    ensure!(members(&lab)? == names(["h1", "h4", "h5"]), "{:?}", members(&lab)?);
    runs_static_pods(&lab, &["h1", "h4", "h5"], &["h2", "h3"])?;
    for worker in ["h2", "h3"] {
        let known = lab.on(worker, "grep -c '^  server ' /etc/kubernetes/haproxy.cfg")?;
        ensure!(known.trim() == "3", "haproxy on {worker} knows {known} masters");
    }

    let before = starts(&lab, "h4")?;
    timed("a setting of every API server", || {
        lab.must(&["config", "set", cluster, "extraArgs.kubeApiserver.event-ttl=2h"])
    })?;
    let manifest = lab.on("h4", "cat /etc/kubernetes/manifests/kube-apiserver.yaml")?;
    ensure!(manifest.contains("- --event-ttl=2h\n"), "{manifest}");
    ensure!(starts(&lab, "h4")? != before, "the API server of h4 was started again");
    println!("  {}", writer::report(&lab)?);
    a_deleted_pod_comes_back(&lab)?;

    timed("the first master leaves", || lab.must(&["delon", cluster, "h1", "--yes"]))?;
    ensure!(members(&lab)? == names(["h4", "h5"]), "{:?}", members(&lab)?);
    lab.is_bare("h1")?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    ensure!(lab.plan(cluster)?.is_empty(), "the plan has no steps");
    timed("destroy", || lab.must(&["destroy", cluster, "--yes"]))?;
    for host in ["h2", "h3", "h4", "h5"] {
        lab.is_bare(host)?;
    }
    Ok(())
}

pub(crate) fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work()?;
    println!("  {what}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}

/// Every program of the control plane and every haproxy is a static pod of a Ready node, and no service of systemd.
pub(crate) fn runs_static_pods(lab: &TestLab, masters: &[&str], workers: &[&str]) -> Result<()> {
    let of_masters = masters.iter().flat_map(|host| OF_MASTER.map(|program| format!("{program}-{host}")));
    let of_workers = workers.iter().map(|host| format!("haproxy-{host}"));
    let wanted: BTreeSet<String> = of_masters.chain(of_workers).collect();
    eventually("all static pods are Ready", 2 * MINUTE, || {
        let pods = lab.kubectl(lab.name(), &["get", "pods", "-n", "kube-system", "-o", "json"])?;
        let pods: Value = serde_json::from_str(&pods)?;
        let pods = pods["items"].as_array().context("no pods")?;
        let is_static =
            |pod: &&Value| pod["metadata"]["annotations"]["kubernetes.io/config.source"] == "file";
        let is_ready = |pod: &&Value| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        let ready = pods.iter().filter(is_static).filter(is_ready);
        let found: BTreeSet<String> =
            ready.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect();
        ensure!(found == wanted, "{found:?} are Ready, not {wanted:?}");
        Ok(())
    })?;
    let nodes = lab.kubectl(lab.name(), &["get", "nodes", "--no-headers"])?;
    let ready = nodes.lines().filter(|line| line.contains(" Ready ")).count();
    ensure!(ready == masters.len() + workers.len(), "{nodes}");
    for host in masters {
        lab.on(
            host,
            "systemctl is-active kubelet containerd && ! systemctl cat etcd kube-apiserver 2>/dev/null",
        )?;
        let manifest = lab.on(host, "cat /etc/kubernetes/manifests/kube-controller-manager.yaml")?;
        ensure!(manifest.contains("tier: control-plane"), "kubeadm made it: {manifest}");
    }
    for host in workers {
        lab.on(host, "systemctl is-active kubelet containerd && ! systemctl cat haproxy 2>/dev/null")?;
    }
    Ok(())
}

/// When the API server of a host was started.
fn starts(lab: &TestLab, host: &str) -> Result<String> {
    lab.on(host, "ps -o lstart= -C kube-apiserver")
}

/// A program that is killed is started again by the kubelet, and a manifest that somebody removed by the next `create`.
fn a_deleted_pod_comes_back(lab: &TestLab) -> Result<()> {
    lab.on("h5", "pkill -9 -x kube-scheduler")?;
    eventually("the kubelet starts the scheduler of h5", 2 * MINUTE, || {
        lab.on("h5", "pgrep -x kube-scheduler").map(drop)
    })?;
    lab.on("h5", "rm /etc/kubernetes/manifests/kube-scheduler.yaml")?;
    let steps = lab.plan(lab.name())?;
    let ids: Vec<&str> = steps.iter().filter_map(|step| step["id"].as_str()).collect();
    ensure!(ids.contains(&"control/scheduler@h5"), "{ids:?}");
    lab.must(&["create", lab.name()])?;
    runs_static_pods(lab, &["h1", "h4", "h5"], &["h2", "h3"])
}

/// The names of the members of etcd.
fn members(lab: &TestLab) -> Result<BTreeSet<String>> {
    let list = lab.must(&["etcd", lab.name(), "member", "list", "--write-out=json"])?;
    let list: Value = serde_json::from_str(&list)?;
    let members = list["members"].as_array().context("no members")?;
    Ok(members.iter().filter_map(|member| member["name"].as_str().map(str::to_owned)).collect())
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}
