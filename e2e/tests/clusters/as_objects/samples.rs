//! The files of kube-on-kube's samples and kubeon's own example, as a user applies them: `examples/kube-on-kube`
//! with other addresses and another key, `examples/meta/operation.yaml` with other addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::program::must;
use serde_json::{Value, json};

use super::environment::{MetaCluster, OPERATOR};
use super::operation_results::{self, job_name, log_contains};
use super::{MINUTE, SAMPLES_NAMESPACE, foreign_image, missing_bundle, print_time, user_files};

/// The full name of the resource, which no other resource has.
pub(crate) const CLUSTERS: &str = "clusters.kubeonkube.clay.io";
/// The full name of the resource of operations.
pub(crate) const OPERATIONS: &str = "clusteroperations.kubeonkube.clay.io";

/// The image that the samples name. The runner's image has this name, too.
const IMAGE: &str = "wangzhichidocker/kubeonkube:v0.1";

/// Runs operations with all results, `cluster.yml` for a cluster, `scale.yml` for a worker,
/// `remove-node.yml` for its removal, and `reset.yml` for bare hosts. Then applies the example of this project.
/// Meanwhile runners and operators are killed.
pub(crate) fn run(meta: &MetaCluster) -> Result<()> {
    let lock = meta.lock_operators();
    missing_bundle::start(meta)?;
    operation_results::start(meta)?;
    foreign_image::start(meta)?;
    operation_results::check_missing_image(meta)?;
    missing_bundle::check(meta)?;
    drop(lock);
    user_files::start(meta)?;
    operation_results::check(meta)?;
    foreign_image::check(meta)?;
    user_files::check(meta)?;
    operation_results::end_without_operators(meta)?;
    cluster_and_worker(meta)?;
    example(meta)
}

/// Applies the files in the order of their names, as kubectl does for a folder: the operation comes first and waits
/// for its ConfigMaps.
pub(crate) fn command(meta: &MetaCluster) -> Result<()> {
    apply(meta, "kube-on-kube/Cluster.yml")?;
    apply(meta, "kube-on-kube/before/ClusterOperation-shell.yml")?;
    meta.eventually("the operation waits", MINUTE, || {
        let status = meta.get(&[OPERATIONS, "sample-shell"])?["status"].clone();
        ensure!(status["reason"] == "hostsConfRef kubeonkube,sample-hosts-conf not found", "{status:#}");
        Ok(())
    })?;
    for file in ["before/HostsConfCM.yml", "SSHAuthSec.yml", "VarsConfCM.yml"] {
        apply(meta, &format!("kube-on-kube/{file}"))?;
    }
    wait_succeeded(meta, "sample-shell")?;
    // The log is stored soon after the status reports the end.
    log_contains(meta, "sample-shell", &["the hosts: "], &[])?;
    let pod = "job-name=kubeonkube-sample-shell-job";
    meta.kubectl(&["-n", OPERATOR, "delete", "pod", "-l", pod])?;
    log_contains(meta, "sample-shell", &["the hosts: "], &[])
}

/// Kills the runner's pods while the Jobs of `cluster.yml` and `scale.yml` run: the operations fail with a reason.
/// Then applies the same files again and kills the leading operator while the Jobs run.
fn cluster_and_worker(meta: &MetaCluster) -> Result<()> {
    let create = ("sample-create", "kube-on-kube/before/ClusterOperation-create.yml");
    kill_runner(meta, create, "h2")?;
    succeed_with_killed_leader(meta, create)?;
    // An operation reads the inventory when it starts: the changed inventory is applied first.
    apply(meta, "kube-on-kube/HostsConfCM.yml")?;
    let add = ("sample-node-add", "kube-on-kube/ClusterOperation.yml");
    kill_runner(meta, add, "h3")?;
    succeed_with_killed_leader(meta, add)?;
    check_nodes(meta, "master01=True worker01=True")?;
    remove_worker(meta)?;
    let reset =
        json!({"actionType": "playbook", "action": "reset.yml", "extraArgs": "-e reset_confirmation=yes"});
    operate_on(meta, "sample", "sample-reset", &reset)?;
    wait_succeeded(meta, "sample-reset")?;
    meta.lab.is_bare("h2")?;
    meta.lab.is_bare("h3")?;
    wait_history(meta, 7)?;
    meta.kubectl(&["delete", CLUSTERS, "sample", "--timeout=60s"]).map(drop)
}

/// Removes the worker's node and resets its host. The cluster remains.
fn remove_worker(meta: &MetaCluster) -> Result<()> {
    let remove =
        json!({"actionType": "playbook", "action": "remove-node.yml", "extraArgs": "-e node=worker01"});
    operate_on(meta, "sample", "sample-node-remove", &remove)?;
    wait_succeeded(meta, "sample-node-remove")?;
    check_nodes(meta, "master01=True")?;
    meta.lab.is_bare("h3")
}

/// Kills the pod as soon as this host was changed, and deletes the failed operation.
fn kill_runner(meta: &MetaCluster, (operation, file): (&str, &str), host: &str) -> Result<()> {
    apply(meta, file)?;
    meta.wait_pod_running(OPERATOR, &job_name(operation))?;
    meta.eventually("the host was changed", MINUTE, || {
        meta.lab.on(host, "test -e /var/lib/kubeon").map(drop)
    })?;
    meta.kill_pod(OPERATOR, &job_name(operation))?;
    let reason = operation_results::wait_failed(meta, operation)?;
    ensure!(!reason.is_empty(), "the failure has no reason");
    meta.kubectl(&["delete", OPERATIONS, operation, "--timeout=60s"]).map(drop)
}

fn succeed_with_killed_leader(meta: &MetaCluster, (operation, file): (&str, &str)) -> Result<()> {
    let lock = meta.lock_operators();
    apply(meta, file)?;
    meta.wait_pod_running(OPERATOR, &job_name(operation))?;
    meta.kill_leader(&lock, OPERATOR, &job_name(operation))?;
    drop(lock);
    wait_succeeded(meta, operation)
}

/// Checks the nodes of the cluster and whether they are Ready, as `NAME=True`.
fn check_nodes(meta: &MetaCluster, wanted: &str) -> Result<()> {
    let ready = r#"kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'"#;
    let nodes = meta.lab.on("h2", ready)?;
    ensure!(nodes.trim() == wanted, "{nodes}");
    Ok(())
}

/// Applies kubeon's own example on the same hosts. Kills the runner's pod while `cluster.yml` runs: the operation
/// fails with a reason, and the same operation with another name continues.
fn example(meta: &MetaCluster) -> Result<()> {
    meta.eventually("what belongs to the deleted Cluster with the same name is deleted", MINUTE, || {
        let operations = meta.kubectl(&["get", OPERATIONS, "-l", "clusterName=sample", "-o", "name"])?;
        ensure!(operations.is_empty(), "{operations}");
        let jobs = meta.kubectl(&["-n", OPERATOR, "get", "jobs", "-o", "name"])?;
        ensure!(!jobs.contains("/kubeonkube-sample-"), "{jobs}");
        let secrets = meta.kubectl(&["-n", OPERATOR, "get", "secrets", "-o", "name"])?;
        ensure!(!secrets.contains("kubeonkube-sample-kubeconfig"), "{secrets}");
        ensure!(secrets.contains("kubeonkube-sample-state"), "the state stays: {secrets}");
        Ok(())
    })?;
    // What a user wrote stays.
    meta.kubectl(&["-n", SAMPLES_NAMESPACE, "get", "configmaps", "sample-hosts-conf", "sample-vars-conf"])?;
    meta.kubectl(&["-n", SAMPLES_NAMESPACE, "get", "secret", "sample-ssh-auth"])?;
    apply(meta, "meta/operation.yaml")?;
    let job = job_name("sample-create");
    meta.wait_pod_running(OPERATOR, &job)?;
    meta.eventually("the host was changed", MINUTE, || {
        meta.lab.on("h2", "test -e /var/lib/kubeon").map(drop)
    })?;
    meta.kill_pod(OPERATOR, &job)?;
    let reason = operation_results::wait_failed(meta, "sample-create")?;
    ensure!(!reason.is_empty(), "the failure has no reason");
    wait_succeeded(meta, "sample-ping")?;
    let again = json!({"actionType": "playbook", "action": "cluster.yml"});
    operate_on(meta, "sample", "sample-again", &again)?;
    wait_succeeded(meta, "sample-again")?;
    check_nodes(meta, "master01=True worker01=True")?;
    operate_on(meta, "sample", "sample-third", &again)?;
    wait_succeeded(meta, "sample-third")?;
    let path = "jsonpath={.status.conditions[?(@.type==\"Complete\")].message}";
    let message = meta.kubectl(&["get", OPERATIONS, "sample-third", "-o", path])?;
    ensure!(message.starts_with("all ") && message.ends_with(" steps are up to date"), "{message}");
    is_replaced(meta, "sample-third")
}

/// `kubectl replace` of an operation that ended changes nothing: it does not run again.
fn is_replaced(meta: &MetaCluster, name: &str) -> Result<()> {
    let file = meta.lab.file("replaced.json");
    meta.eventually("the operation is replaced", MINUTE, || {
        let before = meta.get(&[OPERATIONS, name])?;
        fs::write(&file, before.to_string())?;
        meta.kubectl(&["replace", "-f", &file.to_string_lossy()])?;
        let after = meta.get(&[OPERATIONS, name])?;
        let generations = [&before, &after].map(|operation| &operation["metadata"]["generation"]);
        ensure!(generations[0] == generations[1] && after["status"] == before["status"], "{after:#}");
        Ok(())
    })
}

/// Applies a file of `examples` with the addresses and the key of the lab.
fn apply(meta: &MetaCluster, file: &str) -> Result<()> {
    let key = must("base64", &["--wrap=0", &meta.lab.key().to_string_lossy()], &[])?;
    let (master, worker) = (meta.address("h2")?, meta.address("h3")?);
    let text = with_replacements(
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
    ensure!(!left, "a placeholder was not replaced: {text}");
    meta.apply_text(&text).with_context(|| file.to_owned())
}

/// The text of a file of `examples` with these replacements.
pub(crate) fn with_replacements(file: &str, replacements: &[(&str, &str)]) -> Result<String> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(replacements.iter().fold(text, |text, (from, to)| text.replace(from, to)))
}

/// Creates a Cluster with the inventory of the samples.
pub(crate) fn cluster(meta: &MetaCluster, name: &str) -> Result<()> {
    meta.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": SAMPLES_NAMESPACE, "labels": {"clusterName": name}},
        "spec": {"hostsConfRef": reference("sample-hosts-conf"), "varsConfRef": reference("sample-vars-conf"),
            "sshAuthRef": reference("sample-ssh-auth")}}))
}

/// A reference to a ConfigMap or Secret in the namespace of the samples.
pub(crate) fn reference(name: &str) -> Value {
    json!({"namespace": SAMPLES_NAMESPACE, "name": name})
}

/// Creates an operation with these fields in its spec. The default image is that of the samples.
pub(crate) fn operate_on(meta: &MetaCluster, cluster: &str, name: &str, action: &Value) -> Result<()> {
    let mut spec = json!({"cluster": cluster, "image": IMAGE});
    for (field, value) in action.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    meta.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "namespace": SAMPLES_NAMESPACE}, "spec": spec}))
}

/// Waits until the operation has succeeded.
pub(crate) fn wait_succeeded(meta: &MetaCluster, name: &str) -> Result<()> {
    let start = Instant::now();
    let succeeded = meta.eventually(&format!("{name} ends"), MINUTE * 5, || {
        let status = meta.get(&[OPERATIONS, name])?["status"].clone();
        let result = status["status"].as_str().unwrap_or_default();
        ensure!(result == "Succeeded" || result == "Failed", "{status:#}");
        Ok(result == "Succeeded")
    })?;
    ensure!(succeeded, "{name} failed\n{}", meta.diagnosis(OPERATIONS, name));
    print_time(name, start);
    Ok(())
}

/// Waits until the status of the cluster lists this number of operations, and all have succeeded.
fn wait_history(meta: &MetaCluster, count: usize) -> Result<()> {
    meta.eventually("the history", MINUTE, || {
        let cluster = meta.get(&[CLUSTERS, "sample"])?;
        let entries = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let succeeded = entries.iter().filter(|entry| entry["status"] == "Succeeded").count();
        ensure!((succeeded, entries.len()) == (count, count), "{entries:#?}");
        Ok(())
    })
}
