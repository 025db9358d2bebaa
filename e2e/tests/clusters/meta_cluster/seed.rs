//! The files of kube-on-kube's samples and kubeon's own example, as a person applies them: `examples/kube-on-kube` changed
//! in addresses and key, `examples/meta/operation.yaml` in addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::program::must;
use serde_json::{Value, json};

use super::ends::{self, job, log_says};
use super::environment::{MetaCluster, OPERATOR};
use super::{MINUTE, SEED, brought, foreign, no_bundle, print_time};

/// The kind, as no other is called.
pub(crate) const CLUSTERS: &str = "clusters.kubeonkube.clay.io";
/// The same of operations.
pub(crate) const OPERATIONS: &str = "clusteroperations.kubeonkube.clay.io";

/// The image that the samples name; the runner's image carries that name as well.
const IMAGE: &str = "wangzhichidocker/kubeonkube:v0.1";

/// A command, operations of all ends, a cluster by `cluster.yml`, a worker by `scale.yml` that leaves by `remove-node.yml`,
/// bare hosts by `reset.yml`; then the example of this project. Runners and operators are killed.
pub(crate) fn all(meta: &MetaCluster) -> Result<()> {
    let lock = meta.lock_operators();
    command(meta)?;
    no_bundle::begin(meta)?;
    ends::begin(meta)?;
    foreign::begin(meta)?;
    ends::no_image(meta)?;
    no_bundle::is_named(meta)?;
    drop(lock);
    brought::begin(meta)?;
    ends::as_expected(meta)?;
    foreign::as_expected(meta)?;
    brought::as_expected(meta)?;
    ends::outlives_its_operators(meta)?;
    cluster_and_worker(meta)?;
    example(meta)
}

/// A folder of files arrives in the order of their names: the operation first, which waits for its ConfigMaps.
fn command(meta: &MetaCluster) -> Result<()> {
    apply(meta, "kube-on-kube/Cluster.yml")?;
    apply(meta, "kube-on-kube/before/ClusterOperation-shell.yml")?;
    meta.eventually("it waits", MINUTE, || {
        let status = meta.get(&[OPERATIONS, "sample-shell"])?["status"].clone();
        ensure!(status["reason"] == "hostsConfRef kubeonkube,sample-hosts-conf not found", "{status:#}");
        Ok(())
    })?;
    for file in ["before/HostsConfCM.yml", "SSHAuthSec.yml", "VarsConfCM.yml"] {
        apply(meta, &format!("kube-on-kube/{file}"))?;
    }
    done(meta, "sample-shell")?;
    // The log is stored soon after the status reports the end.
    log_says(meta, "sample-shell", &["the hosts: "], &[])?;
    let pod = "job-name=kubeonkube-sample-shell-job";
    meta.kubectl(&["-n", OPERATOR, "delete", "pod", "-l", pod])?;
    log_says(meta, "sample-shell", &["the hosts: "], &[])
}

/// While the Jobs of `cluster.yml` and `scale.yml` work, first the runner's pod is killed: that is a failure with a reason.
/// The same file again goes on; then the operator that leads is killed.
fn cluster_and_worker(meta: &MetaCluster) -> Result<()> {
    let create = ("sample-create", "kube-on-kube/before/ClusterOperation-create.yml");
    runner_killed(meta, create, "h2")?;
    works_though_its_operator_is_killed(meta, create)?;
    // One that is to see a change of the inventory comes after it.
    apply(meta, "kube-on-kube/HostsConfCM.yml")?;
    let add = ("sample-node-add", "kube-on-kube/ClusterOperation.yml");
    runner_killed(meta, add, "h3")?;
    works_though_its_operator_is_killed(meta, add)?;
    nodes_are(meta, "master01=True worker01=True")?;
    worker_leaves(meta)?;
    let reset =
        json!({"actionType": "playbook", "action": "reset.yml", "extraArgs": "-e reset_confirmation=yes"});
    operate_on(meta, "sample", "sample-reset", &reset)?;
    done(meta, "sample-reset")?;
    meta.lab.is_bare("h2")?;
    meta.lab.is_bare("h3")?;
    history(meta, 7)?;
    meta.kubectl(&["delete", CLUSTERS, "sample", "--timeout=60s"]).map(drop)
}

/// Its node is gone and its host is bare; the cluster stays.
fn worker_leaves(meta: &MetaCluster) -> Result<()> {
    let leave =
        json!({"actionType": "playbook", "action": "remove-node.yml", "extraArgs": "-e node=worker01"});
    operate_on(meta, "sample", "sample-node-remove", &leave)?;
    done(meta, "sample-node-remove")?;
    nodes_are(meta, "master01=True")?;
    meta.lab.is_bare("h3")
}

/// Kills the pod as soon as this host is written to, and takes the operation that failed away.
fn runner_killed(meta: &MetaCluster, (operation, file): (&str, &str), host: &str) -> Result<()> {
    apply(meta, file)?;
    meta.works(OPERATOR, &job(operation))?;
    meta.eventually("hosts are written to", MINUTE, || {
        meta.lab.on(host, "test -e /var/lib/kubeon").map(drop)
    })?;
    meta.kill_pod(OPERATOR, &job(operation))?;
    let reason = ends::failed(meta, operation)?;
    ensure!(!reason.is_empty(), "a failure has a reason");
    meta.kubectl(&["delete", OPERATIONS, operation, "--timeout=60s"]).map(drop)
}

fn works_though_its_operator_is_killed(meta: &MetaCluster, (operation, file): (&str, &str)) -> Result<()> {
    let lock = meta.lock_operators();
    apply(meta, file)?;
    meta.works(OPERATOR, &job(operation))?;
    meta.kill_leader(&lock, OPERATOR, &job(operation))?;
    drop(lock);
    done(meta, operation)
}

/// Each node of the cluster with whether it is Ready.
fn nodes_are(meta: &MetaCluster, wanted: &str) -> Result<()> {
    let ready = r#"kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'"#;
    let nodes = meta.lab.on("h2", ready)?;
    ensure!(nodes.trim() == wanted, "{nodes}");
    Ok(())
}

/// kubeon's own example on the same hosts. The runner's pod is killed while `cluster.yml` works: that is a failure with a
/// reason, and the same operation under another name goes on.
fn example(meta: &MetaCluster) -> Result<()> {
    meta.eventually("what belonged to the Cluster of that name is gone", MINUTE, || {
        let maps = meta.kubectl(&["-n", SEED, "get", "configmaps", "-o", "name"])?;
        let secrets = meta.kubectl(&["-n", OPERATOR, "get", "secrets", "-o", "name"])?;
        let left = maps.contains("sample-") || secrets.contains("kubeonkube-sample-");
        ensure!(!left, "{maps}{secrets}");
        Ok(())
    })?;
    apply(meta, "meta/operation.yaml")?;
    let job = job("sample-create");
    meta.works(OPERATOR, &job)?;
    meta.eventually("hosts are written to", MINUTE, || {
        meta.lab.on("h2", "test -e /var/lib/kubeon").map(drop)
    })?;
    meta.kill_pod(OPERATOR, &job)?;
    let reason = ends::failed(meta, "sample-create")?;
    ensure!(!reason.is_empty(), "a failure has a reason");
    done(meta, "sample-ping")?;
    let again = json!({"actionType": "playbook", "action": "cluster.yml"});
    operate_on(meta, "sample", "sample-again", &again)?;
    done(meta, "sample-again")?;
    nodes_are(meta, "master01=True worker01=True")?;
    operate_on(meta, "sample", "sample-once-more", &again)?;
    done(meta, "sample-once-more")?;
    let told = "{.status.conditions[?(@.type==\"Complete\")].message}";
    let told = meta.kubectl(&["get", OPERATIONS, "sample-once-more", "-o", &format!("jsonpath={told}")])?;
    ensure!(told.starts_with("all ") && told.ends_with(" steps are up to date"), "{told}");
    Ok(())
}

/// Applies a file of `examples`, filled in as a person fills it in.
fn apply(meta: &MetaCluster, file: &str) -> Result<()> {
    let key = must("base64", &["--wrap=0", &meta.lab.key().to_string_lossy()], &[])?;
    let (master, worker) = (meta.address("h2")?, meta.address("h3")?);
    let text = filled(
        file,
        &[
            ("10.100.xx.11", master),
            ("10.100.xx.12", worker),
            ("172.30.0.12", master),
            ("172.30.0.13", worker),
            ("ssh-privatekey: xx", &format!("ssh-privatekey: {key}")),
        ],
    )?;
    let left = text.contains("10.100.xx") || text.contains("ssh-privatekey: xx");
    ensure!(!left, "something is left to be filled in: {text}");
    meta.apply_text(&text).with_context(|| file.to_owned())
}

/// A file of `examples` with other words in it.
pub(crate) fn filled(file: &str, words: &[(&str, &str)]) -> Result<String> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(words.iter().fold(text, |text, (from, to)| text.replace(from, to)))
}

/// A Cluster on the inventory of the samples.
pub(crate) fn cluster(meta: &MetaCluster, name: &str) -> Result<()> {
    meta.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": SEED, "labels": {"clusterName": name}},
        "spec": {"hostsConfRef": reference("sample-hosts-conf"), "varsConfRef": reference("sample-vars-conf"),
            "sshAuthRef": reference("sample-ssh-auth")}}))
}

/// A ConfigMap or Secret beside those of the samples.
pub(crate) fn reference(name: &str) -> Value {
    json!({"namespace": SEED, "name": name})
}

/// An operation with these fields in its spec, in the image of the samples unless they name another.
pub(crate) fn operate_on(meta: &MetaCluster, cluster: &str, name: &str, action: &Value) -> Result<()> {
    let mut spec = json!({"cluster": cluster, "image": IMAGE});
    for (field, value) in action.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    meta.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "namespace": SEED}, "spec": spec}))
}

/// Waits until it ended well.
pub(crate) fn done(meta: &MetaCluster, name: &str) -> Result<()> {
    let start = Instant::now();
    let succeeded = meta.eventually(&format!("{name} ends"), MINUTE * 5, || {
        let status = meta.get(&[OPERATIONS, name])?["status"].clone();
        let word = status["status"].as_str().unwrap_or_default();
        ensure!(word == "Succeeded" || word == "Failed", "{status:#}");
        Ok(word == "Succeeded")
    })?;
    ensure!(succeeded, "{name} failed\n{}", meta.diagnosis(OPERATIONS, name));
    print_time(name, start);
    Ok(())
}

/// Every operation of the cluster stands in its status with how it ended.
fn history(meta: &MetaCluster, count: usize) -> Result<()> {
    meta.eventually("the history", MINUTE, || {
        let cluster = meta.get(&[CLUSTERS, "sample"])?;
        let entries = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let succeeded = entries.iter().filter(|entry| entry["status"] == "Succeeded").count();
        ensure!((succeeded, entries.len()) == (count, count), "{entries:#?}");
        Ok(())
    })
}
