//! Deletion of a declared cluster: within a time limit its hosts are bare, or the status names the cause that
//! blocks it. The times are those of the objects.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::declared_cluster::{
    FIRST_WORKER, MASTER, NAME, NAMESPACE, SECOND_WORKER, declare, kill_runner, wait_job_running,
    wait_nodes_ready, wait_up_to_date,
};
use super::environment::{MetaCluster, condition, time, within};
use super::{MINUTE, print_time};

/// The time limit for the end of a deletion or the report of its failure, in seconds.
const DELETION_LIMIT: i64 = 60;
/// The annotation with hosts that a deletion skips.
const WITHOUT: &str = "kubeon.io/without";

/// The deletion of an object.
pub(crate) struct Deletion {
    name: String,
    uid: String,
    started: Timestamp,
}

impl Deletion {
    /// Deletes the object.
    pub(crate) fn start(meta: &MetaCluster, name: &str) -> Result<Self> {
        let uid = meta.get(&["ecs", name])?["metadata"]["uid"].as_str().context("no UID")?.to_owned();
        let before = Timestamp::now();
        meta.kubectl(&["delete", "ecs", name, "--wait=false"])?;
        // The object may already be deleted. Times in objects have whole seconds.
        let left = meta.kubectl(&["get", "ecs", name, "--ignore-not-found", "-o", "json"])?;
        let started = match serde_json::from_str::<Value>(&left) {
            Ok(object) => time(&object["metadata"]["deletionTimestamp"])?,
            Err(_) => before,
        };
        Ok(Self { name: name.to_owned(), uid, started })
    }

    /// Waits for an event with this reason, because events are recorded after the status. Returns the time and the
    /// message of the last one.
    fn wait_event(&self, meta: &MetaCluster, reason: &str) -> Result<(Timestamp, String)> {
        let selector = format!("reason={reason},involvedObject.uid={}", self.uid);
        let last = meta.eventually(&format!("an event {reason} is recorded"), MINUTE, || {
            let events = meta.get(&["-n", NAMESPACE, "events", "--field-selector", &selector])?;
            let last = events["items"].as_array().and_then(|events| events.last());
            last.cloned().context("no such event")
        })?;
        Ok((time(&last["eventTime"])?, last["message"].as_str().unwrap_or_default().to_owned()))
    }

    /// Waits until the object is absent, and checks that the deletion ended within the time limit. Returns the
    /// message of the event.
    pub(crate) fn finish(&self, meta: &MetaCluster) -> Result<String> {
        let name = &self.name;
        wait_absent(meta, name).map_err(|error| error.context(meta.diagnosis("ecs", name)))?;
        let (ended, message) = self.wait_event(meta, "DeleteKubeJobSuccess")?;
        let duration = within(&format!("{name} is deleted"), self.started, ended, DELETION_LIMIT)?;
        print(&format!("{name} deleted after {duration:#}"));
        Ok(message)
    }
}

fn wait_absent(meta: &MetaCluster, name: &str) -> Result<()> {
    meta.eventually("the object is deleted", MINUTE * 3, || {
        let left = meta.kubectl(&["get", "ecs", name, "--ignore-not-found", "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left} still exists");
        Ok(())
    })
}

#[allow(clippy::print_stderr, reason = "prints measured times")]
fn print(text: &str) {
    eprintln!("{text}");
}

/// The existing Secrets and ConfigMaps of a cluster.
fn stored_objects(meta: &MetaCluster, name: &str) -> Result<Vec<String>> {
    let objects = meta.kubectl(&["-n", NAMESPACE, "get", "secrets,configmaps", "-o", "name"])?;
    let suffixes =
        ["state", "kubeconfig", "observer", "known-hosts"].map(|what| format!("/{NAMESPACE}-{name}-{what}"));
    Ok(objects
        .lines()
        .filter(|object| suffixes.iter().any(|suffix| object.ends_with(suffix)))
        .map(str::to_owned)
        .collect())
}

/// Checks that a cluster has no operations, Secrets or ConfigMaps left, and that its hosts are bare.
pub(crate) fn check_nothing_left(meta: &MetaCluster, name: &str, hosts: &[&str]) -> Result<()> {
    meta.eventually("the operations are deleted with the cluster", MINUTE, || {
        let label = format!("clusterName={name}");
        let left = meta.kubectl(&["get", super::samples::OPERATIONS, "-l", &label, "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left} still exist");
        Ok(())
    })?;
    let left = stored_objects(meta, name)?;
    ensure!(left.is_empty(), "{left:?} still exist");
    hosts.iter().try_for_each(|host| meta.lab.is_bare(host))
}

/// With `Retain` the object is deleted at once; its hosts, Secrets and ConfigMap remain. When the cluster is
/// declared again, its services are not restarted.
pub(crate) fn retain_and_declare_again(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    let start_times =
        || meta.lab.on(MASTER, "systemctl show --property=ActiveEnterTimestamp kubelet kube-apiserver");
    let before = start_times()?;
    meta.patch(&["ecs", NAME], &json!({"spec": {"deletionPolicy": "Retain"}}))?;
    let message = Deletion::start(meta, NAME)?.finish(meta)?;
    ensure!(message == "spec.deletionPolicy is Retain: the hosts stay as they are", "{message}");
    wait_nodes_ready(meta, kubeconfig, 2)?;
    let left = stored_objects(meta, NAME)?;
    ensure!(left.len() == 4, "only these of four objects remain: {left:?}");
    declare(meta, &[SECOND_WORKER])?;
    wait_up_to_date(meta, "create-finished")?;
    wait_nodes_ready(meta, kubeconfig, 2)?;
    let after = start_times()?;
    ensure!(before == after, "a service was restarted: {before} {after}");
    Ok(())
}

/// All hosts run. Kills the runner's pod: the failure is reported within the time limit, and a new request
/// continues. Then kills the leading operator while that Job runs.
pub(crate) fn delete_with_killed_runner_and_operator(meta: &MetaCluster) -> Result<()> {
    let lock = meta.lock_operators();
    let deletion = Deletion::start(meta, NAME)?;
    kill_runner(meta, "delete-", MASTER)?;
    let (reported, _) = deletion.wait_event(meta, "DeleteKubeJobFailed")?;
    within("an event reports the failure", deletion.started, reported, DELETION_LIMIT)?;
    meta.request_operation(NAME, "terminating")?;
    let deletion = Deletion { started: Timestamp::now(), ..deletion };
    let job = wait_job_running(meta, NAME, "delete-")?;
    meta.kill_leader(&lock, NAMESPACE, &job)?;
    drop(lock);
    deletion.finish(meta)?;
    check_nothing_left(meta, NAME, &[MASTER, FIRST_WORKER, SECOND_WORKER])
}

/// A worker has no power: the status and an event name it within the time limit. If the status offers the
/// annotation, the deletion skips the worker; otherwise a new request continues after the worker has power again.
pub(crate) fn delete_with_dead_host(meta: &MetaCluster) -> Result<()> {
    meta.lab.host("kill", FIRST_WORKER)?;
    let lock = meta.lock_operators();
    let deletion = Deletion::start(meta, NAME)?;
    let message = wait_blocked(meta, &deletion, meta.address(FIRST_WORKER)?)?;
    drop(lock);
    if message.contains(WITHOUT) {
        return skip_dead_host(meta, &deletion);
    }
    meta.lab.host("start", FIRST_WORKER)?;
    meta.request_operation(NAME, "terminating")?;
    wait_absent(meta, NAME)?;
    check_nothing_left(meta, NAME, &[MASTER, FIRST_WORKER, SECOND_WORKER])
}

/// Waits until the status and an event name the address that blocks the deletion. Returns the message of the
/// condition `Deleting`.
fn wait_blocked(meta: &MetaCluster, deletion: &Deletion, address: &str) -> Result<String> {
    let start = std::time::Instant::now();
    let reported = meta.eventually("the status names the host that blocks the deletion", MINUTE * 3, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        let reason = status["reason"].as_str().unwrap_or_default();
        ensure!(status["phase"] == "Failed" && reason.contains(address), "{status:#}");
        let deleting = condition(&status, "Deleting").context("no condition Deleting")?.clone();
        ensure!(deleting["status"] == "True" && deleting["reason"] == "TeardownFailed", "{status:#}");
        Ok((status, deleting))
    });
    let (status, deleting) = reported.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    print_time("deletion with a dead host, reported", start);
    let degraded = condition(&status, "Degraded").context("no condition Degraded")?;
    let reported = time(&degraded["lastTransitionTime"])?;
    within("the status reports the failure", deletion.started, reported, DELETION_LIMIT)?;
    let (recorded, message) = deletion.wait_event(meta, "DeleteKubeJobFailed")?;
    within("an event reports the failure", deletion.started, recorded, DELETION_LIMIT)?;
    ensure!(message.contains(address), "{message}");
    let message = deleting["message"].as_str().unwrap_or_default().to_owned();
    ensure!(message.contains(address), "{message}");
    Ok(message)
}

/// A user annotates the object to skip the host: the other hosts are reset, and an event names the skipped host.
fn skip_dead_host(meta: &MetaCluster, deletion: &Deletion) -> Result<()> {
    let address = meta.address(FIRST_WORKER)?;
    meta.patch(
        &["ecs", NAME],
        &json!({"metadata": {"annotations": {
        WITHOUT: address, "app.kubernetes.io/operation": "terminating"}}}),
    )?;
    wait_absent(meta, NAME)?;
    let (_, message) = deletion.wait_event(meta, "DeleteKubeJobSuccess")?;
    ensure!(message.contains(address), "the event does not name the skipped host: {message}");
    check_nothing_left(meta, NAME, &[MASTER, SECOND_WORKER])
}
