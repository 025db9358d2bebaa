//! A declared cluster: created, scaled up and down; retained and declared again; deleted; created again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::environment::MetaCluster;
use super::{MINUTE, gone, print_time, seed, shown_events};

/// Its name in the example.
pub(crate) const NAME: &str = "shop";
/// The namespace of declared clusters.
pub(crate) const NAMESPACE: &str = "default";
/// Its hosts: the master, the first worker, and a later worker.
pub(crate) const MASTER: &str = "h4";
pub(crate) const FIRST: &str = "h5";
pub(crate) const SECOND: &str = "h6";

/// The whole life cycle, twice.
pub(crate) fn all(meta: &MetaCluster) -> Result<()> {
    let kubeconfig = created(meta)?;
    scaled_up_though_runner_and_operator_are_killed(meta, &kubeconfig)?;
    scaled_down_though_runner_and_operator_are_killed(meta, &kubeconfig)?;
    shown_events::check_description(meta)?;
    gone::retained_and_declared_again(meta, &kubeconfig)?;
    gone::deleted_though_runner_and_operator_are_killed(meta)?;
    created_again_though_runner_and_operator_are_killed(meta)?;
    gone::with_a_dead_host(meta)
}

/// The object of a declared cluster.
pub(crate) fn declared(name: &str, version: &str, master: &str, workers: &[&str]) -> Value {
    let nodes: Vec<Value> = workers.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"cluster": {"kubeVersion": version, "masterList": [{"ip": master}], "nodeList": nodes,
            "authConfig": {"credentialsRef": {"name": "lab-login"}}}}})
}

/// Applies the object with these workers.
pub(crate) fn declare(meta: &MetaCluster, workers: &[&str]) -> Result<()> {
    let workers = workers.iter().map(|host| meta.address(host)).collect::<Result<Vec<_>>>()?;
    meta.apply(&declared(NAME, VERSION, meta.address(MASTER)?, &workers))
}

/// Creates the cluster from the example with changed addresses.
fn created(meta: &MetaCluster) -> Result<PathBuf> {
    let replacements = [("172.30.0.12", meta.address(MASTER)?), ("172.30.0.13", meta.address(FIRST)?)];
    meta.apply_text(&seed::filled("meta/kubernetes-cluster.yaml", &replacements)?)?;
    settled(meta, "create-finished")?;
    meta.kubectl(&["wait", "--for=condition=Ready", "ecs/shop", "--timeout=10s"])?;
    let kubeconfig = kubeconfig(meta)?;
    nodes(meta, &kubeconfig, 2)?;
    pinned(meta, &[MASTER, FIRST], &[MASTER, FIRST])?;
    Ok(kubeconfig)
}

/// Kills the runner's pod while it runs: the operation fails with a reason, and a new request continues. Then
/// kills the leading operator while that Job runs.
fn scaled_up_though_runner_and_operator_are_killed(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    declare(meta, &[FIRST, SECOND])?;
    runner_killed(meta, "scale-up-", SECOND)?;
    with_killed_leader(meta, "scale-up-", "scale-up-finished", || meta.ask(NAME, "scaling-up"))?;
    nodes(meta, kubeconfig, 3)?;
    pinned(meta, &[MASTER, FIRST, SECOND], &[SECOND])
}

fn scaled_down_though_runner_and_operator_are_killed(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    declare(meta, &[SECOND])?;
    runner_killed(meta, "scale-down-", FIRST)?;
    with_killed_leader(meta, "scale-down-", "scale-down-finished", || meta.ask(NAME, "scaling-down"))?;
    nodes(meta, kubeconfig, 2)?;
    meta.lab.is_bare(FIRST)
}

fn created_again_though_runner_and_operator_are_killed(meta: &MetaCluster) -> Result<()> {
    declare(meta, &[FIRST])?;
    runner_killed(meta, "create-", MASTER)?;
    with_killed_leader(meta, "create-", "create-finished", || meta.ask(NAME, "creating"))?;
    nodes(meta, &kubeconfig(meta)?, 2)
}

/// Kills the running pod of the Job while it changes a host.
pub(crate) fn runner_killed(meta: &MetaCluster, begins: &str, host: &str) -> Result<()> {
    let job = running_job(meta, NAME, begins)?;
    meta.hang(host)?;
    meta.eventually("the status reports steps", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["step"].as_str().is_some_and(|step| step.contains('/')), "{status:#}");
        Ok(())
    })?;
    meta.kill_pod(NAMESPACE, &job)?;
    meta.eventually("the status reports the failure", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed" && !status["reason"].is_null(), "{status:#}");
        Ok(())
    })?;
    meta.wake(host)
}

/// Makes a change, and kills the leading operator while the Job for it runs.
fn with_killed_leader(
    meta: &MetaCluster,
    begins: &str,
    word: &str,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let lock = meta.lock_operators();
    change()?;
    let job = running_job(meta, NAME, begins)?;
    meta.kill_leader(&lock, NAMESPACE, &job)?;
    drop(lock);
    settled(meta, word)
}

/// Waits until the container of a cluster's Job runs, and returns the Job's name.
pub(crate) fn running_job(meta: &MetaCluster, name: &str, begins: &str) -> Result<String> {
    let job = meta.eventually(&format!("a Job {begins}… runs"), MINUTE * 2, || {
        let status = meta.get(&["ecs", name])?["status"].clone();
        let job = status["jobName"].as_str().unwrap_or_default().to_owned();
        ensure!(job.starts_with(begins), "{status:#}");
        meta.pod_is_running(NAMESPACE, &job)?;
        Ok(job)
    });
    job.map_err(|error| error.context(meta.diagnosis("ecs", name)))
}

/// Waits until the operation has succeeded and the cluster is up to date.
pub(crate) fn settled(meta: &MetaCluster, word: &str) -> Result<()> {
    let start = Instant::now();
    let result = meta.eventually(word, MINUTE * 5, || {
        let object = meta.get(&["ecs", NAME])?;
        let operation = object["metadata"]["annotations"]["app.kubernetes.io/operation"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let over = (phase == "Running" && operation == word) || phase == "Failed";
        ensure!(over, "{phase} {operation} {:#}", object["status"]);
        Ok((phase, operation))
    });
    match result {
        Ok((phase, _)) if phase == "Running" => {
            print_time(word, start);
            Ok(())
        }
        Ok(other) => bail!("{other:?}\n{}", meta.diagnosis("ecs", NAME)),
        Err(error) => Err(error.context(meta.diagnosis("ecs", NAME))),
    }
}

/// The kubeconfig in the Secret for users.
fn kubeconfig(meta: &MetaCluster) -> Result<PathBuf> {
    let template = r"go-template={{.data.kubeconfig | base64decode}}";
    let text = meta.kubectl(&["get", "secret", "default-shop-kubeconfig", "-o", template])?;
    let file = meta.lab.file("shop.kubeconfig");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// Waits until the cluster has this number of nodes and all are Ready.
pub(crate) fn nodes(meta: &MetaCluster, kubeconfig: &Path, count: usize) -> Result<()> {
    let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    meta.eventually("its nodes are Ready", MINUTE, || {
        let text = meta.kubectl_of(kubeconfig, &["get", "nodes", "-o", ready])?;
        let states: Vec<&str> = text.lines().collect();
        ensure!(states.len() == count && states.iter().all(|state| *state == "True"), "{states:?}");
        Ok(())
    })
}

/// The ConfigMap contains the keys of all hosts. One event of the object and one of the operation list the
/// new keys.
fn pinned(meta: &MetaCluster, all: &[&str], new: &[&str]) -> Result<()> {
    let addresses = |hosts: &[&str]| hosts.iter().map(|host| meta.address(host)).collect::<Result<Vec<_>>>();
    let (all, new) = (addresses(all)?, addresses(new)?);
    let text = meta.get(&["configmap", "default-shop-known-hosts"])?["data"]["known_hosts"].clone();
    let text = text.as_str().context("the ConfigMap has no keys")?;
    let known: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(known.len() == all.len() && all.iter().all(|host| known.contains(host)), "{text}");
    let begins = format!("{} new: ", new.len());
    meta.eventually("events list the keys", MINUTE, || {
        let events = meta.get(&["events", "-A", "--field-selector", "reason=HostKeysPinned"])?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let count_of = |kind: &str| {
            let messages = events.iter().filter(|event| event["involvedObject"]["kind"] == kind);
            let messages = messages.filter_map(|event| event["message"].as_str());
            messages
                .filter(|message| {
                    message.starts_with(&begins) && new.iter().all(|host| message.contains(host))
                })
                .count()
        };
        let count = (count_of("KubernetesCluster"), count_of("ClusterOperation"));
        ensure!(count == (1, 1), "{begins:?}: {count:?} in {events:#?}");
        Ok(())
    })
}
