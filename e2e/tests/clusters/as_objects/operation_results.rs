//! Operations with a failure or intervention, in parallel on separate Clusters: the image is missing, a user
//! cancels, the deadline passes, the command fails, the pod is killed, the operation is paused, memory is
//! exhausted. One more operation ends while no operator runs.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::environment::{MetaCluster, OPERATOR, condition, time, within};
use super::samples::{self, operate_on};
use super::{MINUTE, print_time};

/// No registry listens on this port, so that a pull fails at once on every machine.
const NO_IMAGE: &str = "127.0.0.1:9/kubeon/none:1";
/// The deadline of an operation that never ends, in seconds.
const DEADLINE: i64 = 15;
/// The time limit for reporting a missing image, in seconds.
const IMAGE_FAILURE_LIMIT: i64 = 30;

/// A hook that runs a command if all earlier ones succeeded.
pub(crate) fn shell(text: &str) -> Value {
    json!({"actionType": "shell", "action": text})
}

/// A hook that always runs a command.
pub(crate) fn always(text: &str) -> Value {
    json!({"actionType": "shell", "action": text, "when": "Always"})
}

/// Starts all operations.
pub(crate) fn start(meta: &MetaCluster) -> Result<()> {
    let never = shell("echo never");
    let cleanup = json!([always("echo cleanup done"), never]);
    let ping = json!({"actionType": "playbook", "action": "ping.yml", "when": "Always"});
    for (name, mut spec) in [
        ("pull", json!({"action": "true", "image": NO_IMAGE})),
        ("unlisted", json!({"action": "true", "image": "docker.io/another/image:1"})),
        (
            "cancel",
            json!({"action": "echo work started; sleep 600", "postHook": [always("echo cleanup done"), ping, never]}),
        ),
        ("timeout", json!({"action": "echo work started; sleep 600", "postHook": cleanup})),
        ("fail", json!({"action": "echo broken; exit 3", "postHook": cleanup})),
        ("pause", json!({"action": "echo work resumed", "paused": true})),
        ("killed", json!({"action": "echo work started; sleep 600"})),
        ("large", json!({"action": "tail /dev/zero", "resources": {"limits": {"memory": "96Mi"}}})),
    ] {
        samples::cluster(meta, name)?;
        spec["actionType"] = json!("shell");
        operate_on(meta, name, &format!("run-{name}"), &spec)?;
    }
    Ok(())
}

/// Checks the results.
pub(crate) fn check(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    // Hooks with `when: Always` run, including a playbook, and the log remains after the pod.
    cancel(meta, "run-cancel", &["work started", "cleanup done", "PLAY RECAP"], &["never"])?;
    fail_and_repeat(meta)?;
    kill_runner(meta)?;
    let reason = wait_failed(meta, "run-unlisted")?;
    ensure!(reason.starts_with("image \"docker.io/another/image:1\" is not allowed"), "{reason}");
    let reason = wait_failed(meta, "run-large")?;
    // With control groups of version 1 the kernel may end only the command.
    ensure!(reason.contains("OOMKilled") || reason.contains("exit code 137"), "{reason}");
    pass_deadline(meta, "run-timeout")?;
    pause_and_resume(meta)?;
    for name in ["pull", "unlisted", "cancel", "timeout", "fail", "pause", "killed", "large"] {
        meta.kubectl(&["delete", samples::CLUSTERS, name, "--wait=false"])?;
    }
    print_time("cancelled, failed, paused", start);
    Ok(())
}

/// Cancels an operation after its log contains `work started`. Then checks that the stored log contains `texts` and
/// does not contain `absent`.
pub(crate) fn cancel(meta: &MetaCluster, operation: &str, texts: &[&str], absent: &[&str]) -> Result<()> {
    wait_started(meta, operation)?;
    change(meta, operation, &json!({"cancelled": true}))?;
    let reason = wait_failed(meta, operation)?;
    ensure!(reason == "cancelled", "{reason}");
    let of_job = format!("job-name={}", job_name(operation));
    meta.eventually("the pod is deleted", MINUTE, || {
        let left = meta.kubectl(&["-n", OPERATOR, "get", "pods", "-l", &of_job, "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })?;
    log_contains(meta, operation, texts, absent)
}

/// Sets a deadline after the log contains `work started`. Then checks that hooks with `when: Always` run, and that their
/// output is in the stored log. Returns the time at which the Job passed its deadline.
pub(crate) fn pass_deadline(meta: &MetaCluster, operation: &str) -> Result<Timestamp> {
    wait_started(meta, operation)?;
    let set = Timestamp::now();
    change(meta, operation, &json!({"activeDeadlineSeconds": DEADLINE}))?;
    let reason = wait_failed(meta, operation)?;
    ensure!(reason == format!("its Job ran longer than {DEADLINE} s"), "{reason}");
    log_contains(meta, operation, &["work started", "cleanup done"], &["never"])?;
    let started = time(&meta.get(&[samples::OPERATIONS, operation])?["status"]["startTime"])?;
    Ok(set.max(started + SignedDuration::from_secs(DEADLINE)))
}

/// Waits until the log of the pod contains `work started`.
fn wait_started(meta: &MetaCluster, operation: &str) -> Result<()> {
    let pod = format!("job/{}", job_name(operation));
    meta.eventually("the command runs", MINUTE, || {
        let log = meta.kubectl(&["-n", OPERATOR, "logs", &pod])?;
        ensure!(log.contains("work started"), "{log}");
        Ok(())
    })
}

fn fail_and_repeat(meta: &MetaCluster) -> Result<()> {
    let reason = wait_failed(meta, "run-fail")?;
    ensure!(reason.contains("exit code 3"), "{reason}");
    log_contains(meta, "run-fail", &["broken", "cleanup done"], &["never"])?;
    operate_on(meta, "fail", "run-fail-again", &json!({"actionType": "shell", "action": "echo repaired"}))?;
    samples::wait_succeeded(meta, "run-fail-again")
}

/// Deletes the pod, as after the loss of its machine: the operation fails with a reason. The same action in
/// another operation succeeds.
fn kill_runner(meta: &MetaCluster) -> Result<()> {
    meta.wait_pod_running(OPERATOR, &job_name("run-killed"))?;
    meta.kill_pod(OPERATOR, &job_name("run-killed"))?;
    let reason = wait_failed(meta, "run-killed")?;
    ensure!(!reason.is_empty(), "the failure has no reason");
    operate_on(
        meta,
        "killed",
        "run-killed-again",
        &json!({"actionType": "shell", "action": "echo repaired"}),
    )?;
    samples::wait_succeeded(meta, "run-killed-again")
}

/// Contract B, case 32, with the times in the objects.
pub(crate) fn check_missing_image(meta: &MetaCluster) -> Result<()> {
    let reason = wait_failed(meta, "run-pull")?;
    ensure!(reason.contains(NO_IMAGE), "{reason}");
    check_reported_in_time(&meta.get(&[samples::OPERATIONS, "run-pull"])?)
}

/// Checks the time from the creation of the operation until it was stopped because of a missing image.
pub(crate) fn check_reported_in_time(operation: &Value) -> Result<()> {
    let stopping = condition(&operation["status"], "Stopping").context("no condition Stopping")?;
    let (from, to) =
        (time(&operation["metadata"]["creationTimestamp"])?, time(&stopping["lastTransitionTime"])?);
    within("the missing image is reported", from, to, IMAGE_FAILURE_LIMIT).map(drop)
}

fn pause_and_resume(meta: &MetaCluster) -> Result<()> {
    let status = meta.get(&[samples::OPERATIONS, "run-pause"])?["status"].clone();
    ensure!(status["reason"] == "paused: spec.paused is true" && status["jobRef"].is_null(), "{status:#}");
    change(meta, "run-pause", &json!({"paused": false}))?;
    samples::wait_succeeded(meta, "run-pause")?;
    log_contains(meta, "run-pause", &["work resumed"], &[])
}

/// Kills all operators while the Job of a command runs. The Job ends before an operator leads again. The
/// operation has the times of the Job, and no step is repeated.
pub(crate) fn end_without_operators(meta: &MetaCluster) -> Result<()> {
    let lock = meta.lock_operators();
    let action = json!({"actionType": "shell", "action": "echo work started; sleep 8; echo work ended"});
    operate_on(meta, "sample", "sample-no-operator", &action)?;
    let job = job_name("sample-no-operator");
    meta.wait_pod_running(OPERATOR, &job)?;
    meta.kill_operators(&lock, OPERATOR, &job)?;
    samples::wait_succeeded(meta, "sample-no-operator")?;
    log_contains(meta, "sample-no-operator", &["work started", "work ended"], &[])?;
    let pods = meta.get(&["-n", OPERATOR, "pods", "-l", &format!("job-name={job}")])?;
    let pods = pods["items"].as_array().map_or(0, Vec::len);
    ensure!(pods == 1, "{job} has {pods} pods");
    let (status, lease) = (
        meta.get(&[samples::OPERATIONS, "sample-no-operator"])?["status"].clone(),
        meta.get(&["-n", OPERATOR, "lease", "kubeon-operator"])?["spec"].clone(),
    );
    let (ended, acquired) = (time(&status["endTime"])?, time(&lease["acquireTime"])?);
    ensure!(ended < acquired, "the operation ended at {ended}, the lease was acquired at {acquired}");
    Ok(())
}

fn change(meta: &MetaCluster, name: &str, spec: &Value) -> Result<()> {
    meta.patch(&[samples::OPERATIONS, name], &json!({"spec": spec}))
}

/// Waits until the operation has failed, and returns the reason.
pub(crate) fn wait_failed(meta: &MetaCluster, name: &str) -> Result<String> {
    let ended = meta.eventually(&format!("{name} ends"), MINUTE * 2, || {
        let status = meta.get(&[samples::OPERATIONS, name])?["status"].clone();
        ensure!(["Failed", "Succeeded"].iter().any(|result| status["status"] == *result), "{status:#}");
        Ok(status)
    });
    let status = ended.map_err(|error| error.context(meta.diagnosis(samples::OPERATIONS, name)))?;
    ensure!(status["status"] == "Failed", "{status:#}");
    Ok(status["reason"].as_str().unwrap_or_default().to_owned())
}

/// The Job of an operation written by a user.
pub(crate) fn job_name(operation: &str) -> String {
    format!("kubeonkube-{operation}-job")
}

/// The whole log in a ConfigMap.
pub(crate) fn stored_log(meta: &MetaCluster, namespace: &str, map: &str) -> Result<String> {
    let map = meta.get(&["-n", namespace, "configmap", map])?;
    Ok(kubeon_operation_log::whole_log(&serde_json::from_value(map)?)?)
}

/// Waits until the stored log of an operation contains `texts` and does not contain `absent`.
pub(crate) fn log_contains(
    meta: &MetaCluster,
    operation: &str,
    texts: &[&str],
    absent: &[&str],
) -> Result<()> {
    let map = format!("{}-log", job_name(operation));
    let matches = |log: &str| {
        texts.iter().all(|text| log.contains(text)) && !absent.iter().any(|text| log.contains(text))
    };
    meta.eventually(&format!("the log of {operation}"), MINUTE / 2, || {
        let log = stored_log(meta, OPERATOR, &map)?;
        ensure!(matches(&log), "the log is {log}");
        Ok(())
    })
    .map_err(|error| error.context(meta.diagnosis(samples::OPERATIONS, operation)))
}
