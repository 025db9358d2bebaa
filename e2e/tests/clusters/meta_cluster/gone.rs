//! Deletion of a declared cluster: within a time limit its hosts are bare, or the status names the blocker.
//! The times are those of the objects.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::declared_cluster::{
    FIRST, MASTER, NAME, NAMESPACE, SECOND, declare, nodes, runner_killed, running_job, settled,
};
use super::environment::{MetaCluster, condition, time, within};
use super::{MINUTE, print_time};

/// The time limit for the end of a deletion or the report of its blocker, in seconds.
const ENDS_WITHIN: i64 = 60;
/// The annotation by which a deletion goes on without a host that is gone for good.
const WITHOUT: &str = "kubeon.io/without";

/// A deleted object.
pub(crate) struct Deleted {
    name: String,
    uid: String,
    at: Timestamp,
}

impl Deleted {
    /// Deletes it.
    pub(crate) fn begin(meta: &MetaCluster, name: &str) -> Result<Self> {
        let uid = meta.get(&["ecs", name])?["metadata"]["uid"].as_str().context("a UID")?.to_owned();
        let before = Timestamp::now();
        meta.kubectl(&["delete", "ecs", name, "--wait=false"])?;
        // It may be gone by now. Objects tell whole seconds.
        let left = meta.kubectl(&["get", "ecs", name, "--ignore-not-found", "-o", "json"])?;
        let at = match serde_json::from_str::<Value>(&left) {
            Ok(object) => time(&object["metadata"]["deletionTimestamp"])?,
            Err(_) => before,
        };
        Ok(Self { name: name.to_owned(), uid, at })
    }

    /// Waits for an event of this reason, which comes a little after the status that it tells of: when it was told last, and
    /// its words.
    fn event(&self, meta: &MetaCluster, reason: &str) -> Result<(Timestamp, String)> {
        let of_it = format!("reason={reason},involvedObject.uid={}", self.uid);
        let last = meta.eventually(&format!("an event {reason} tells of it"), MINUTE, || {
            let events = meta.get(&["-n", NAMESPACE, "events", "--field-selector", &of_it])?;
            let last = events["items"].as_array().and_then(|events| events.last());
            last.cloned().context("no such event")
        })?;
        Ok((time(&last["eventTime"])?, last["message"].as_str().unwrap_or_default().to_owned()))
    }

    /// Waits until it is gone, in time, and nothing is left of what was kept for it; the words of the event.
    pub(crate) fn is_gone(&self, meta: &MetaCluster) -> Result<String> {
        let name = &self.name;
        let gone = meta.eventually("the object goes", MINUTE * 3, || {
            let left = meta.kubectl(&["get", "ecs", name, "--ignore-not-found", "-o", "name"])?;
            ensure!(left.trim().is_empty(), "{left} is there");
            Ok(())
        });
        gone.map_err(|error| error.context(meta.diagnosis("ecs", name)))?;
        let (ended, said) = self.event(meta, "DeleteKubeJobSuccess")?;
        let took = within(&format!("{name} deleted"), self.at, ended, ENDS_WITHIN)?;
        note(&format!("{name} deleted, after {took:#}"));
        Ok(said)
    }
}

#[allow(clippy::print_stderr, reason = "prints measured times")]
fn note(text: &str) {
    eprintln!("{text}");
}

/// The existing Secrets and ConfigMaps of a cluster.
fn kept(meta: &MetaCluster, name: &str) -> Result<Vec<String>> {
    let things = meta.kubectl(&["-n", NAMESPACE, "get", "secrets,configmaps", "-o", "name"])?;
    let ours = ["state", "kubeconfig", "known-hosts"].map(|what| format!("/{NAMESPACE}-{name}-{what}"));
    Ok(things
        .lines()
        .filter(|thing| ours.iter().any(|ours| thing.ends_with(ours)))
        .map(str::to_owned)
        .collect())
}

/// Checks that a cluster has no operations, Secrets or ConfigMaps left, and that its hosts are bare.
pub(crate) fn nothing_is_left(meta: &MetaCluster, name: &str, hosts: &[&str]) -> Result<()> {
    meta.eventually("its operations go with it", MINUTE, || {
        let label = format!("clusterName={name}");
        let left = meta.kubectl(&["get", super::seed::OPERATIONS, "-l", &label, "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left} are there");
        Ok(())
    })?;
    let left = kept(meta, name)?;
    ensure!(left.is_empty(), "{left:?} are there");
    hosts.iter().try_for_each(|host| meta.lab.is_bare(host))
}

/// With `Retain` the object goes at once, its hosts and what is kept stay. Declared again, it is found as it was.
pub(crate) fn retained_and_declared_again(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    let since =
        || meta.lab.on(MASTER, "systemctl show --property=ActiveEnterTimestamp kubelet kube-apiserver");
    let before = since()?;
    meta.patch(&["ecs", NAME], &json!({"spec": {"deletionPolicy": "Retain"}}))?;
    let said = Deleted::begin(meta, NAME)?.is_gone(meta)?;
    ensure!(said == "spec.deletionPolicy is Retain: the hosts stay as they are", "{said}");
    nodes(meta, kubeconfig, 2)?;
    let left = kept(meta, NAME)?;
    ensure!(left.len() == 3, "of three things that are kept there are {left:?}");
    declare(meta, &[SECOND])?;
    settled(meta, "create-finished")?;
    nodes(meta, kubeconfig, 2)?;
    let after = since()?;
    ensure!(before == after, "its programs ran on: {before} {after}");
    Ok(())
}

/// All hosts live. The runner's pod is killed at work: that is named in time, and asking again goes on. While that works, the
/// operator that leads is killed.
pub(crate) fn deleted_though_runner_and_operator_are_killed(meta: &MetaCluster) -> Result<()> {
    let lock = meta.lock_operators();
    let deleted = Deleted::begin(meta, NAME)?;
    runner_killed(meta, "delete-", MASTER)?;
    let (named, _) = deleted.event(meta, "DeleteKubeJobFailed")?;
    within("named by an event", deleted.at, named, ENDS_WITHIN)?;
    meta.ask(NAME, "terminating")?;
    let deleted = Deleted { at: Timestamp::now(), ..deleted };
    let job = running_job(meta, NAME, "delete-")?;
    meta.kill_leader(&lock, NAMESPACE, &job)?;
    drop(lock);
    deleted.is_gone(meta)?;
    nothing_is_left(meta, NAME, &[MASTER, FIRST, SECOND])
}

/// A worker has no power: it is named in time, in the status and by an event. When it is back, asking again goes on.
pub(crate) fn with_a_dead_host(meta: &MetaCluster) -> Result<()> {
    meta.lab.host("kill", FIRST)?;
    let lock = meta.lock_operators();
    let deleted = Deleted::begin(meta, NAME)?;
    let way_out = blocker(meta, &deleted, meta.address(FIRST)?)?;
    drop(lock);
    if way_out.contains(WITHOUT) {
        return without_the_dead_host(meta, &deleted);
    }
    meta.lab.host("start", FIRST)?;
    meta.ask(NAME, "terminating")?;
    meta.eventually("the object goes", MINUTE * 3, || {
        let left = meta.kubectl(&["get", "ecs", NAME, "--ignore-not-found", "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left} is there");
        Ok(())
    })?;
    nothing_is_left(meta, NAME, &[MASTER, FIRST, SECOND])
}

/// Who is in the way is named in time; what the deletion waits for, in words.
fn blocker(meta: &MetaCluster, deleted: &Deleted, address: &str) -> Result<String> {
    let start = std::time::Instant::now();
    let named = meta.eventually("what is in the way is named", MINUTE * 3, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        let reason = status["reason"].as_str().unwrap_or_default();
        ensure!(status["phase"] == "Failed" && reason.contains(address), "{status:#}");
        let waits = condition(&status, "Deleting").context("no condition Deleting")?.clone();
        ensure!(waits["status"] == "True" && waits["reason"] == "TeardownFailed", "{status:#}");
        Ok((status, waits))
    });
    let (status, waits) = named.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    print_time("deleted with a dead host, named", start);
    let since =
        time(&condition(&status, "Degraded").context("no condition Degraded")?["lastTransitionTime"])?;
    within("named in the status", deleted.at, since, ENDS_WITHIN)?;
    let (at, said) = deleted.event(meta, "DeleteKubeJobFailed")?;
    within("named by an event", deleted.at, at, ENDS_WITHIN)?;
    ensure!(said.contains(address), "{said}");
    let message = waits["message"].as_str().unwrap_or_default().to_owned();
    ensure!(message.contains(address), "{message}");
    Ok(message)
}

/// A person says that the host is gone for good: everything else is taken down, and an event names what was left out.
fn without_the_dead_host(meta: &MetaCluster, deleted: &Deleted) -> Result<()> {
    let address = meta.address(FIRST)?;
    meta.patch(
        &["ecs", NAME],
        &json!({"metadata": {"annotations": {
        WITHOUT: address, "app.kubernetes.io/operation": "terminating"}}}),
    )?;
    meta.eventually("the object goes without its dead host", MINUTE * 3, || {
        let left = meta.kubectl(&["get", "ecs", NAME, "--ignore-not-found", "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left} is there");
        Ok(())
    })?;
    let (_, said) = deleted.event(meta, "DeleteKubeJobSuccess")?;
    ensure!(said.contains(address), "it names the host that was left out: {said}");
    nothing_is_left(meta, NAME, &[MASTER, SECOND])
}
