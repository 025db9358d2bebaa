//! Operations with a failure or intervention, in parallel on separate Clusters: a missing image, cancelled,
//! too slow, failed and repeated, killed, paused, too large. And an operation that ends while no operator
//! runs.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::environment::{MetaCluster, OPERATOR, condition, time, within};
use super::seed::{self, operate_on};
use super::{MINUTE, print_time};

/// No registry listens on this port, so that a pull fails at once on every machine.
const NO_IMAGE: &str = "127.0.0.1:9/kubeon/none:1";
/// The time limit for reporting the failure, in seconds.
const NAMED_WITHIN: i64 = 30;

/// A hook that runs a command if all earlier ones succeeded.
pub(crate) fn shell(text: &str) -> Value {
    json!({"actionType": "shell", "action": text})
}

/// A hook that always runs a command.
pub(crate) fn always(text: &str) -> Value {
    json!({"actionType": "shell", "action": text, "when": "Always"})
}

/// Starts all operations.
pub(crate) fn begin(meta: &MetaCluster) -> Result<()> {
    let never = shell("echo never");
    let swept = json!([always("echo swept"), never]);
    let ping = json!({"actionType": "playbook", "action": "ping.yml", "when": "Always"});
    for (name, mut spec) in [
        ("pull", json!({"action": "true", "image": NO_IMAGE})),
        (
            "cancel",
            json!({"action": "echo at work; sleep 600", "postHook": [always("echo swept"), ping, never]}),
        ),
        ("late", json!({"action": "sleep 600", "activeDeadlineSeconds": 15, "postHook": swept})),
        ("fail", json!({"action": "echo broken; exit 3", "postHook": swept})),
        ("pause", json!({"action": "echo at last", "paused": true})),
        ("struck", json!({"action": "echo at work; sleep 600"})),
        ("large", json!({"action": "tail /dev/zero", "resources": {"limits": {"memory": "96Mi"}}})),
    ] {
        seed::cluster(meta, name)?;
        spec["actionType"] = json!("shell");
        operate_on(meta, name, &format!("does-{name}"), &spec)?;
    }
    Ok(())
}

/// Checks the results.
pub(crate) fn as_expected(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    // Hooks with `when: Always` run, including a playbook, and the log remains after the pod.
    cancelled(meta, "does-cancel", &["at work", "swept", "PLAY RECAP"], &["never"])?;
    failed_and_repeated(meta)?;
    its_runner_is_killed(meta)?;
    let reason = failed(meta, "does-large")?;
    // With control groups of version 1 the kernel may end only the command.
    ensure!(reason.contains("OOMKilled") || reason.contains("exit code 137"), "{reason}");
    let reason = failed(meta, "does-late")?;
    ensure!(reason == "its Job ran longer than 15 s", "{reason}");
    log_says(meta, "does-late", &["swept"], &["never"])?;
    paused(meta)?;
    for name in ["pull", "cancel", "late", "fail", "pause", "struck", "large"] {
        meta.kubectl(&["delete", seed::CLUSTERS, name, "--wait=false"])?;
    }
    print_time("stopped, failed, paused", start);
    Ok(())
}

/// Cancels an operation that says that it is at work; its log holds these words and not those. No operator is killed
/// meanwhile: a log whose pod is deleted while no operator lives cannot be read.
pub(crate) fn cancelled(meta: &MetaCluster, operation: &str, words: &[&str], not: &[&str]) -> Result<()> {
    let _lock = meta.lock_operators();
    let pod = format!("job/{}", job(operation));
    meta.eventually("it works", MINUTE, || {
        let said = meta.kubectl(&["-n", OPERATOR, "logs", &pod])?;
        ensure!(said.contains("at work"), "{said}");
        Ok(())
    })?;
    change(meta, operation, &json!({"cancelled": true}))?;
    let reason = failed(meta, operation)?;
    ensure!(reason == "cancelled", "{reason}");
    let of_job = format!("job-name={}", job(operation));
    meta.eventually("its pod is gone", MINUTE, || {
        let left = meta.kubectl(&["-n", OPERATOR, "get", "pods", "-l", &of_job, "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })?;
    log_says(meta, operation, words, not)
}

fn failed_and_repeated(meta: &MetaCluster) -> Result<()> {
    let reason = failed(meta, "does-fail")?;
    ensure!(reason.contains("exit code 3"), "{reason}");
    log_says(meta, "does-fail", &["broken", "swept"], &["never"])?;
    operate_on(meta, "fail", "does-fail-again", &json!({"actionType": "shell", "action": "echo mended"}))?;
    seed::done(meta, "does-fail-again")
}

/// The pod is gone as if its machine were: a failure with a reason. The same action in another operation goes on.
fn its_runner_is_killed(meta: &MetaCluster) -> Result<()> {
    meta.works(OPERATOR, &job("does-struck"))?;
    meta.kill_pod(OPERATOR, &job("does-struck"))?;
    let reason = failed(meta, "does-struck")?;
    ensure!(!reason.is_empty(), "a failure has a reason");
    operate_on(
        meta,
        "struck",
        "does-struck-again",
        &json!({"actionType": "shell", "action": "echo mended"}),
    )?;
    seed::done(meta, "does-struck-again")
}

/// Contract B, case 32, with the times in the objects.
pub(crate) fn no_image(meta: &MetaCluster) -> Result<()> {
    let reason = failed(meta, "does-pull")?;
    ensure!(reason.contains(NO_IMAGE), "{reason}");
    named_in_time(&meta.get(&[seed::OPERATIONS, "does-pull"])?)
}

/// From when the operation was made until it was ended because an image is not there.
pub(crate) fn named_in_time(operation: &Value) -> Result<()> {
    let named = condition(&operation["status"], "Stopping").context("it was ended")?;
    let (from, to) =
        (time(&operation["metadata"]["creationTimestamp"])?, time(&named["lastTransitionTime"])?);
    within("an image that is not there is named", from, to, NAMED_WITHIN).map(drop)
}

fn paused(meta: &MetaCluster) -> Result<()> {
    let status = meta.get(&[seed::OPERATIONS, "does-pause"])?["status"].clone();
    ensure!(status["reason"] == "paused: spec.paused is true" && status["jobRef"].is_null(), "{status:#}");
    change(meta, "does-pause", &json!({"paused": false}))?;
    seed::done(meta, "does-pause")?;
    log_says(meta, "does-pause", &["at last"], &[])
}

/// All operators are killed while the Job of a command works; it ends before one leads again. It is told with its own times,
/// and nothing is done twice.
pub(crate) fn outlives_its_operators(meta: &MetaCluster) -> Result<()> {
    let lock = meta.lock_operators();
    let begun = json!({"actionType": "shell", "action": "echo begun; sleep 8; echo over"});
    operate_on(meta, "sample", "sample-outlives", &begun)?;
    let job = job("sample-outlives");
    meta.works(OPERATOR, &job)?;
    meta.kill_operators(&lock, OPERATOR, &job)?;
    seed::done(meta, "sample-outlives")?;
    log_says(meta, "sample-outlives", &["begun", "over"], &[])?;
    let pods = meta.get(&["-n", OPERATOR, "pods", "-l", &format!("job-name={job}")])?;
    let pods = pods["items"].as_array().map_or(0, Vec::len);
    ensure!(pods == 1, "{pods} pods worked for it");
    let (status, lease) = (
        meta.get(&[seed::OPERATIONS, "sample-outlives"])?["status"].clone(),
        meta.get(&["-n", OPERATOR, "lease", "kubeon-operator"])?["spec"].clone(),
    );
    let (ended, led) = (time(&status["endTime"])?, time(&lease["acquireTime"])?);
    ensure!(ended < led, "it ended at {ended}, while nobody led before {led}");
    Ok(())
}

fn change(meta: &MetaCluster, name: &str, spec: &Value) -> Result<()> {
    meta.patch(&[seed::OPERATIONS, name], &json!({"spec": spec}))
}

/// Waits until the operation has failed, and returns the reason.
pub(crate) fn failed(meta: &MetaCluster, name: &str) -> Result<String> {
    let ended = meta.eventually(&format!("{name} ends"), MINUTE * 2, || {
        let status = meta.get(&[seed::OPERATIONS, name])?["status"].clone();
        ensure!(["Failed", "Succeeded"].iter().any(|word| status["status"] == *word), "{status:#}");
        Ok(status)
    });
    let status = ended.map_err(|error| error.context(meta.diagnosis(seed::OPERATIONS, name)))?;
    ensure!(status["status"] == "Failed", "{status:#}");
    Ok(status["reason"].as_str().unwrap_or_default().to_owned())
}

/// The Job of an operation written by a user.
pub(crate) fn job(operation: &str) -> String {
    format!("kubeonkube-{operation}-job")
}

/// Checks that the stored log of an operation contains `words` and does not contain `not`.
pub(crate) fn log_says(meta: &MetaCluster, operation: &str, words: &[&str], not: &[&str]) -> Result<()> {
    let map = format!("{}-log", job(operation));
    let words_of =
        |log: &str| words.iter().all(|word| log.contains(word)) && !not.iter().any(|word| log.contains(word));
    meta.eventually(&format!("the log of {operation}"), MINUTE / 2, || {
        let kept = ["-n", OPERATOR, "get", "configmap", &map, "-o", "go-template={{.data.log}}"];
        let log = meta.kubectl(&kept)?;
        ensure!(words_of(&log), "it says {log}");
        Ok(())
    })
    .map_err(|error| error.context(meta.diagnosis(seed::OPERATIONS, operation)))
}
