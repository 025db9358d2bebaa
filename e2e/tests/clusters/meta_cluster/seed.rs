//! The files of kube-on-kube's samples and kubeon's own example, as a person applies them: `examples/kube-on-kube` changed
//! in addresses and key, `examples/meta/operation.yaml` in addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::program::must;
use serde_json::{Value, json};

use super::ends::{self, job, log_says};
use super::ground::{Ground, OPERATOR};
use super::{MINUTE, SEED, brought, foreign, no_bundle, told};

/// The kind, as no other is called.
pub(crate) const CLUSTERS: &str = "clusters.kubeonkube.clay.io";
/// The same of operations.
pub(crate) const OPERATIONS: &str = "clusteroperations.kubeonkube.clay.io";

/// The image that the samples name; the runner's image carries that name as well.
const IMAGE: &str = "wangzhichidocker/kubeonkube:v0.1";

/// A command, operations of all ends, a cluster by `cluster.yml`, a worker by `scale.yml` that leaves by `remove-node.yml`,
/// bare hosts by `reset.yml`; then the example of this project. Runners and operators are killed.
pub(crate) fn all(ground: &Ground) -> Result<()> {
    let alone = ground.alone();
    command(ground)?;
    no_bundle::begin(ground)?;
    ends::begin(ground)?;
    foreign::begin(ground)?;
    ends::no_image(ground)?;
    no_bundle::is_named(ground)?;
    drop(alone);
    brought::begin(ground)?;
    ends::as_expected(ground)?;
    foreign::as_expected(ground)?;
    brought::as_expected(ground)?;
    ends::outlives_its_operators(ground)?;
    cluster_and_worker(ground)?;
    example(ground)
}

/// A folder of files arrives in the order of their names: the operation first, which waits for its ConfigMaps.
fn command(ground: &Ground) -> Result<()> {
    apply(ground, "kube-on-kube/Cluster.yml")?;
    apply(ground, "kube-on-kube/before/ClusterOperation-shell.yml")?;
    ground.eventually("it waits", MINUTE, || {
        let status = ground.get(&[OPERATIONS, "sample-shell"])?["status"].clone();
        ensure!(status["reason"] == "hostsConfRef kubeonkube,sample-hosts-conf not found", "{status:#}");
        Ok(())
    })?;
    for file in ["before/HostsConfCM.yml", "SSHAuthSec.yml", "VarsConfCM.yml"] {
        apply(ground, &format!("kube-on-kube/{file}"))?;
    }
    done(ground, "sample-shell")?;
    // The log is stored soon after the status reports the end.
    log_says(ground, "sample-shell", &["the hosts: "], &[])?;
    let pod = "job-name=kubeonkube-sample-shell-job";
    ground.kubectl(&["-n", OPERATOR, "delete", "pod", "-l", pod])?;
    log_says(ground, "sample-shell", &["the hosts: "], &[])
}

/// While the Jobs of `cluster.yml` and `scale.yml` work, first the runner's pod is killed: that is a failure with a reason.
/// The same file again goes on; then the operator that leads is killed.
fn cluster_and_worker(ground: &Ground) -> Result<()> {
    let create = ("sample-create", "kube-on-kube/before/ClusterOperation-create.yml");
    runner_killed(ground, create, "h2")?;
    works_though_its_operator_is_killed(ground, create)?;
    // One that is to see a change of the inventory comes after it.
    apply(ground, "kube-on-kube/HostsConfCM.yml")?;
    let add = ("sample-node-add", "kube-on-kube/ClusterOperation.yml");
    runner_killed(ground, add, "h3")?;
    works_though_its_operator_is_killed(ground, add)?;
    nodes_are(ground, "master01=True worker01=True")?;
    worker_leaves(ground)?;
    let reset =
        json!({"actionType": "playbook", "action": "reset.yml", "extraArgs": "-e reset_confirmation=yes"});
    operate_on(ground, "sample", "sample-reset", &reset)?;
    done(ground, "sample-reset")?;
    ground.lab.is_bare("h2")?;
    ground.lab.is_bare("h3")?;
    history(ground, 7)?;
    ground.kubectl(&["delete", CLUSTERS, "sample", "--timeout=60s"]).map(drop)
}

/// Its node is gone and its host is bare; the cluster stays.
fn worker_leaves(ground: &Ground) -> Result<()> {
    let leave =
        json!({"actionType": "playbook", "action": "remove-node.yml", "extraArgs": "-e node=worker01"});
    operate_on(ground, "sample", "sample-node-remove", &leave)?;
    done(ground, "sample-node-remove")?;
    nodes_are(ground, "master01=True")?;
    ground.lab.is_bare("h3")
}

/// Kills the pod as soon as this host is written to, and takes the operation that failed away.
fn runner_killed(ground: &Ground, (operation, file): (&str, &str), host: &str) -> Result<()> {
    apply(ground, file)?;
    ground.works(OPERATOR, &job(operation))?;
    ground.eventually("hosts are written to", MINUTE, || {
        ground.lab.on(host, "test -e /var/lib/kubeon").map(drop)
    })?;
    ground.kill_pod(OPERATOR, &job(operation))?;
    let reason = ends::failed(ground, operation)?;
    ensure!(!reason.is_empty(), "a failure has a reason");
    ground.kubectl(&["delete", OPERATIONS, operation, "--timeout=60s"]).map(drop)
}

fn works_though_its_operator_is_killed(ground: &Ground, (operation, file): (&str, &str)) -> Result<()> {
    let alone = ground.alone();
    apply(ground, file)?;
    ground.works(OPERATOR, &job(operation))?;
    ground.kill_leader(&alone, OPERATOR, &job(operation))?;
    drop(alone);
    done(ground, operation)
}

/// Each node of the cluster with whether it is Ready.
fn nodes_are(ground: &Ground, wanted: &str) -> Result<()> {
    let ready = r#"kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'"#;
    let nodes = ground.lab.on("h2", ready)?;
    ensure!(nodes.trim() == wanted, "{nodes}");
    Ok(())
}

/// kubeon's own example on the same hosts. The runner's pod is killed while `cluster.yml` works: that is a failure with a
/// reason, and the same operation under another name goes on.
fn example(ground: &Ground) -> Result<()> {
    ground.eventually("what belonged to the Cluster of that name is gone", MINUTE, || {
        let maps = ground.kubectl(&["-n", SEED, "get", "configmaps", "-o", "name"])?;
        let secrets = ground.kubectl(&["-n", OPERATOR, "get", "secrets", "-o", "name"])?;
        let left = maps.contains("sample-") || secrets.contains("kubeonkube-sample-");
        ensure!(!left, "{maps}{secrets}");
        Ok(())
    })?;
    apply(ground, "meta/operation.yaml")?;
    let job = job("sample-create");
    ground.works(OPERATOR, &job)?;
    ground.eventually("hosts are written to", MINUTE, || {
        ground.lab.on("h2", "test -e /var/lib/kubeon").map(drop)
    })?;
    ground.kill_pod(OPERATOR, &job)?;
    let reason = ends::failed(ground, "sample-create")?;
    ensure!(!reason.is_empty(), "a failure has a reason");
    done(ground, "sample-ping")?;
    let again = json!({"actionType": "playbook", "action": "cluster.yml"});
    operate_on(ground, "sample", "sample-again", &again)?;
    done(ground, "sample-again")?;
    nodes_are(ground, "master01=True worker01=True")?;
    operate_on(ground, "sample", "sample-once-more", &again)?;
    done(ground, "sample-once-more")?;
    let told = "{.status.conditions[?(@.type==\"Complete\")].message}";
    let told = ground.kubectl(&["get", OPERATIONS, "sample-once-more", "-o", &format!("jsonpath={told}")])?;
    ensure!(told.starts_with("all ") && told.ends_with(" steps are up to date"), "{told}");
    Ok(())
}

/// Applies a file of `examples`, filled in as a person fills it in.
fn apply(ground: &Ground, file: &str) -> Result<()> {
    let key = must("base64", &["--wrap=0", &ground.lab.key().to_string_lossy()], &[])?;
    let (master, worker) = (ground.address("h2")?, ground.address("h3")?);
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
    ground.apply_text(&text).with_context(|| file.to_owned())
}

/// A file of `examples` with other words in it.
pub(crate) fn filled(file: &str, words: &[(&str, &str)]) -> Result<String> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(words.iter().fold(text, |text, (from, to)| text.replace(from, to)))
}

/// A Cluster on the inventory of the samples.
pub(crate) fn cluster(ground: &Ground, name: &str) -> Result<()> {
    ground.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": SEED, "labels": {"clusterName": name}},
        "spec": {"hostsConfRef": reference("sample-hosts-conf"), "varsConfRef": reference("sample-vars-conf"),
            "sshAuthRef": reference("sample-ssh-auth")}}))
}

/// A ConfigMap or Secret beside those of the samples.
pub(crate) fn reference(name: &str) -> Value {
    json!({"namespace": SEED, "name": name})
}

/// An operation with these fields in its spec, in the image of the samples unless they name another.
pub(crate) fn operate_on(ground: &Ground, cluster: &str, name: &str, action: &Value) -> Result<()> {
    let mut spec = json!({"cluster": cluster, "image": IMAGE});
    for (field, value) in action.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    ground.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "namespace": SEED}, "spec": spec}))
}

/// Waits until it ended well.
pub(crate) fn done(ground: &Ground, name: &str) -> Result<()> {
    let start = Instant::now();
    let succeeded = ground.eventually(&format!("{name} ends"), MINUTE * 5, || {
        let status = ground.get(&[OPERATIONS, name])?["status"].clone();
        let word = status["status"].as_str().unwrap_or_default();
        ensure!(word == "Succeeded" || word == "Failed", "{status:#}");
        Ok(word == "Succeeded")
    })?;
    ensure!(succeeded, "{name} failed\n{}", ground.story(OPERATIONS, name));
    told(name, start);
    Ok(())
}

/// Every operation of the cluster stands in its status with how it ended.
fn history(ground: &Ground, count: usize) -> Result<()> {
    ground.eventually("the history", MINUTE, || {
        let cluster = ground.get(&[CLUSTERS, "sample"])?;
        let entries = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let succeeded = entries.iter().filter(|entry| entry["status"] == "Succeeded").count();
        ensure!((succeeded, entries.len()) == (count, count), "{entries:#?}");
        Ok(())
    })
}
