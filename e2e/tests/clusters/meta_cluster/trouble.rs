//! A declared cluster with failures: paused, a host that fails the precheck, cancelled, a host that hangs
//! until the timeout, deleted during its creation.

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::MINUTE;
use super::declared_cluster::{NAMESPACE, declared, running_job};
use super::environment::{MetaCluster, condition};
use super::gone::{Deleted, nothing_is_left};
use super::seed::OPERATIONS;

const NAME: &str = "brief";
const HOST: &str = "h7";

/// One after the other, on one host.
pub(crate) fn all(meta: &MetaCluster) -> Result<()> {
    paused(meta)?;
    unfit(meta)?;
    cancelled(meta)?;
    too_late(meta)?;
    deleted_while_it_is_made(meta)
}

fn status(meta: &MetaCluster) -> Result<Value> {
    Ok(meta.get(&["ecs", NAME])?["status"].clone())
}

/// Waits until the last operation has failed, and returns the reason.
fn failed(meta: &MetaCluster) -> Result<String> {
    let status = meta.eventually("the failure is told", MINUTE * 2, || {
        let status = status(meta)?;
        ensure!(status["phase"] == "Failed", "{status:#}");
        Ok(status)
    });
    let status = status.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    let degraded = condition(&status, "Degraded").context("no condition Degraded")?;
    ensure!(degraded["status"] == "True" && degraded["message"] == status["reason"], "{status:#}");
    Ok(status["reason"].as_str().unwrap_or_default().to_owned())
}

/// The operation that was made last.
fn operation(meta: &MetaCluster) -> Result<Value> {
    let all = meta.get(&[OPERATIONS, "-l", &format!("clusterName={NAME}")])?;
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let last = all.into_iter().max_by_key(|one| one["metadata"]["creationTimestamp"].to_string());
    last.context("no operation was made")
}

/// Waits until events of this reason about an object have these words. They come a little after the status.
fn told(meta: &MetaCluster, about: &Value, reason: &str, words: &[&str]) -> Result<()> {
    let uid = about["metadata"]["uid"].as_str().context("a UID")?;
    let of_it = format!("reason={reason},involvedObject.uid={uid}");
    let path = "jsonpath={.items[*].message}";
    meta.eventually(&format!("an event {reason} tells of it"), MINUTE, || {
        let said = meta.kubectl(&["get", "events", "-A", "--field-selector", &of_it, "-o", path])?;
        ensure!(words.iter().all(|words| said.contains(words)), "{said:?}");
        Ok(())
    })
}

/// Nothing begins while `spec.paused` holds.
fn paused(meta: &MetaCluster) -> Result<()> {
    let mut object = declared(NAME, VERSION, meta.address(HOST)?, &[]);
    object["spec"]["paused"] = json!(true);
    object["spec"]["cluster"]["timeout_mins"] = json!("1");
    meta.apply(&object)?;
    let status = meta.eventually("it is paused", MINUTE, || {
        let status = status(meta)?;
        ensure!(status["reason"] == "spec.paused is true: nothing is changed", "{status:#}");
        Ok(status)
    })?;
    let progress = condition(&status, "Progressing").context("no condition Progressing")?;
    ensure!(progress["status"] == "False" && progress["reason"] == "Paused", "{status:#}");
    let made = meta.kubectl(&["get", OPERATIONS, "-l", &format!("clusterName={NAME}"), "-o", "name"])?;
    ensure!(made.trim().is_empty() && status["phase"].is_null(), "{made} {status:#}");
    Ok(())
}

/// Somebody listens where the kubelet will, and another program's cluster was here: both are named, on the object, on the
/// operation and by events, and nothing is written to the host.
fn unfit(meta: &MetaCluster) -> Result<()> {
    let squat = "mkdir /etc/kubeedge && systemd-run --quiet --unit=squatter /usr/sbin/sshd -D -p 10250";
    meta.lab.on(HOST, squat)?;
    meta.eventually("the port is taken", MINUTE, || {
        meta.lab.on(HOST, "grep -q ':280A .* 0A' /proc/net/tcp /proc/net/tcp6").map(drop)
    })?;
    meta.patch(&["ecs", NAME], &json!({"spec": {"paused": false}}))?;
    let reason = failed(meta)?;
    let address = meta.address(HOST)?;
    let begins = format!("[precheck] failed with:\n {address} : ");
    let words = ["another program listens on port 10250", "contains another cluster (found /etc/kubeedge)"];
    let named = |text: &str| words.iter().all(|words| text.contains(words));
    ensure!(reason.starts_with(&begins) && named(&reason), "{reason}");
    let operation = operation(meta)?;
    let fit = condition(&operation["status"], "Prechecked").context("no condition Prechecked")?;
    ensure!(fit["status"] == "False" && named(fit["message"].as_str().unwrap_or_default()), "{fit:#}");
    ensure!(found(&operation, address)? == [("leftover", false), ("ports", false)], "{operation:#}");
    let object = meta.get(&["ecs", NAME])?;
    for (about, word) in [
        (&operation, "Failed"),
        (&operation, "PrecheckFailed"),
        (&object, "CreateKubeJobFailed"),
        (&object, "PrecheckFailed"),
    ] {
        told(meta, about, word, &[words[0], words[1], address])?;
    }
    meta.lab.is_bare(HOST)
}

/// What stands in the way on a host: the checks by name, and whether they are ignored.
fn found<'o>(operation: &'o Value, address: &str) -> Result<Vec<(&'o str, bool)>> {
    let findings = operation["status"]["findings"].as_array().context("no findings")?;
    let errors = findings.iter().filter(|one| one["host"] == address && one["severity"] == "error");
    let mut found: Vec<_> = errors
        .filter_map(|one| Some((one["check"].as_str()?, one["ignored"].as_bool().unwrap_or_default())))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Ignored by name, the same findings let it run: to name them is to ask again. Then a person cancels the operation.
fn cancelled(meta: &MetaCluster) -> Result<()> {
    meta.annotate(NAME, "kubeon.io/ignore-checks", "ports,leftover")?;
    running_job(meta, NAME, "create-")?;
    let operation = meta.eventually("its host is fit", MINUTE, || {
        let operation = operation(meta)?;
        let fit = condition(&operation["status"], "Prechecked").context("no condition Prechecked")?;
        ensure!(fit["status"] == "True" && fit["reason"] == "Passed", "{fit:#}");
        Ok(operation)
    })?;
    let ignored = [("leftover", true), ("ports", true)];
    ensure!(found(&operation, meta.address(HOST)?)? == ignored, "{operation:#}");
    meta.eventually("its host is written to", MINUTE, || {
        meta.lab.on(HOST, "test -e /var/lib/kubeon").map(drop)
    })?;
    let name = operation["metadata"]["name"].as_str().unwrap_or_default();
    meta.patch(&[OPERATIONS, name], &json!({"spec": {"cancelled": true}}))?;
    let reason = failed(meta)?;
    ensure!(reason == "cancelled", "{reason}");
    let ended = meta.get(&[OPERATIONS, name])?["status"].clone();
    ensure!(ended["status"] == "Failed" && ended["reason"] == "cancelled", "{ended:#}");
    let free = "systemctl stop squatter; systemctl reset-failed squatter 2>/dev/null; rmdir /etc/kubeedge";
    meta.lab.on(HOST, free).map(drop)
}

/// Its host hangs: what was begun does not end until the time that `timeout_mins` leaves is up. Contract B, case 29.
fn too_late(meta: &MetaCluster) -> Result<()> {
    meta.ask(NAME, "creating")?;
    let job = running_job(meta, NAME, "create-")?;
    meta.hang(HOST)?;
    meta.eventually("its time is up", MINUTE * 2, || job_is_told_to_end(meta, &job))?;
    meta.wake(HOST)?;
    let reason = failed(meta)?;
    ensure!(reason == "the [creating] job running timeout(>60s)", "{reason}");
    let (operation, object) = (operation(meta)?, meta.get(&["ecs", NAME])?);
    ensure!(operation["status"]["reason"] == reason.as_str(), "{operation:#}");
    told(meta, &object, "CreateKubeJobFailed", &[&reason])
}

/// The Job controller ends a Job that failed, was suspended or had no time left.
fn job_is_told_to_end(meta: &MetaCluster, job: &str) -> Result<()> {
    let path = r#"jsonpath={.status.conditions[?(@.status=="True")].type}"#;
    let words = meta.kubectl(&["-n", NAMESPACE, "get", "job", job, "-o", path])?;
    ensure!(!words.trim().is_empty(), "{job} works");
    Ok(())
}

/// Asked for again (contract B, case 30), and deleted while that works: the operation is ended, the host is bare.
fn deleted_while_it_is_made(meta: &MetaCluster) -> Result<()> {
    // It is made within seconds, and must not be whole before it is deleted.
    let lock = meta.lock_operators();
    let before = status(meta)?["jobName"].clone();
    meta.ask(NAME, "creating")?;
    let again = meta.eventually("a new Job, and no old reason", MINUTE, || {
        let status = status(meta)?;
        let fresh = status["jobName"].is_string() && status["jobName"] != before;
        ensure!(fresh && status["reason"].is_null(), "{status:#}");
        Ok(status)
    })?;
    let creating = operation(meta)?;
    running_job(meta, NAME, "create-")?;
    meta.eventually("its host is worked on", MINUTE, || meta.lab.on(HOST, "pgrep '^kubeon-node'").map(drop))?;
    ensure!(status(meta)?["jobName"] == again["jobName"], "it works still");
    let said = Deleted::begin(meta, NAME)?.is_gone(meta)?;
    drop(lock);
    ensure!(said == "the cluster was taken down", "{said}");
    told(meta, &creating, "Stopping", &["the KubernetesCluster is being deleted"])?;
    nothing_is_left(meta, NAME, &[HOST])
}
