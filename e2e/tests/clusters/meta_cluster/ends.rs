//! Operations that do not reach their end by themselves, side by side on Clusters of their own: no image, cancelled, too
//! slow, failed and asked for again, killed, paused, too large. And one that does while no operator lives.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::ground::{Ground, OPERATOR, condition, time, within};
use super::seed::{self, operate_on};
use super::{MINUTE, told};

/// Nobody listens there, so that a pull fails at once on every machine.
const NO_IMAGE: &str = "127.0.0.1:9/kubeon/none:1";
/// How soon a person must know.
const NAMED_WITHIN: i64 = 30;

/// A hook that runs a command when all went well so far.
pub(crate) fn shell(text: &str) -> Value {
    json!({"actionType": "shell", "action": text})
}

/// A hook that runs a command whatever happens.
pub(crate) fn always(text: &str) -> Value {
    json!({"actionType": "shell", "action": text, "when": "Always"})
}

/// Begins all of them.
pub(crate) fn begin(ground: &Ground) -> Result<()> {
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
        seed::cluster(ground, name)?;
        spec["actionType"] = json!("shell");
        operate_on(ground, name, &format!("does-{name}"), &spec)?;
    }
    Ok(())
}

/// What came of them.
pub(crate) fn as_expected(ground: &Ground) -> Result<()> {
    let start = Instant::now();
    // Hooks that always run do, a playbook among them, and what was said outlives the pod.
    cancelled(ground, "does-cancel", &["at work", "swept", "PLAY RECAP"], &["never"])?;
    failed_and_asked_for_again(ground)?;
    its_runner_is_killed(ground)?;
    let reason = failed(ground, "does-large")?;
    // With control groups of version 1 the kernel may end the command alone.
    ensure!(reason.contains("OOMKilled") || reason.contains("exit code 137"), "{reason}");
    let reason = failed(ground, "does-late")?;
    ensure!(reason == "its Job ran longer than 15 s", "{reason}");
    log_says(ground, "does-late", &["swept"], &["never"])?;
    paused(ground)?;
    for name in ["pull", "cancel", "late", "fail", "pause", "struck", "large"] {
        ground.kubectl(&["delete", seed::CLUSTERS, name, "--wait=false"])?;
    }
    told("stopped, failed, paused", start);
    Ok(())
}

/// Cancels an operation that says that it is at work; its log holds these words and not those. No operator is killed
/// meanwhile: a log whose pod is deleted while no operator lives cannot be read.
pub(crate) fn cancelled(ground: &Ground, operation: &str, words: &[&str], not: &[&str]) -> Result<()> {
    let _alone = ground.alone();
    let pod = format!("job/{}", job(operation));
    ground.eventually("it works", MINUTE, || {
        let said = ground.kubectl(&["-n", OPERATOR, "logs", &pod])?;
        ensure!(said.contains("at work"), "{said}");
        Ok(())
    })?;
    change(ground, operation, &json!({"cancelled": true}))?;
    let reason = failed(ground, operation)?;
    ensure!(reason == "cancelled", "{reason}");
    let of_job = format!("job-name={}", job(operation));
    ground.eventually("its pod is gone", MINUTE, || {
        let left = ground.kubectl(&["-n", OPERATOR, "get", "pods", "-l", &of_job, "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })?;
    log_says(ground, operation, words, not)
}

fn failed_and_asked_for_again(ground: &Ground) -> Result<()> {
    let reason = failed(ground, "does-fail")?;
    ensure!(reason.contains("exit code 3"), "{reason}");
    log_says(ground, "does-fail", &["broken", "swept"], &["never"])?;
    operate_on(ground, "fail", "does-fail-again", &json!({"actionType": "shell", "action": "echo mended"}))?;
    seed::done(ground, "does-fail-again")
}

/// The pod is gone as if its machine were: a failure with a reason. The same action in another operation goes on.
fn its_runner_is_killed(ground: &Ground) -> Result<()> {
    ground.works(OPERATOR, &job("does-struck"))?;
    ground.kill_pod(OPERATOR, &job("does-struck"))?;
    let reason = failed(ground, "does-struck")?;
    ensure!(!reason.is_empty(), "a failure has a reason");
    operate_on(
        ground,
        "struck",
        "does-struck-again",
        &json!({"actionType": "shell", "action": "echo mended"}),
    )?;
    seed::done(ground, "does-struck-again")
}

/// Contract B, case 32, by the times that the objects tell.
pub(crate) fn no_image(ground: &Ground) -> Result<()> {
    let reason = failed(ground, "does-pull")?;
    ensure!(reason.contains(NO_IMAGE), "{reason}");
    named_in_time(&ground.get(&[seed::OPERATIONS, "does-pull"])?)
}

/// From when the operation was made until it was ended because an image is not there.
pub(crate) fn named_in_time(operation: &Value) -> Result<()> {
    let named = condition(&operation["status"], "Stopping").context("it was ended")?;
    let (from, to) =
        (time(&operation["metadata"]["creationTimestamp"])?, time(&named["lastTransitionTime"])?);
    within("an image that is not there is named", from, to, NAMED_WITHIN).map(drop)
}

fn paused(ground: &Ground) -> Result<()> {
    let status = ground.get(&[seed::OPERATIONS, "does-pause"])?["status"].clone();
    ensure!(status["reason"] == "paused: spec.paused is true" && status["jobRef"].is_null(), "{status:#}");
    change(ground, "does-pause", &json!({"paused": false}))?;
    seed::done(ground, "does-pause")?;
    log_says(ground, "does-pause", &["at last"], &[])
}

/// All operators are killed while the Job of a command works; it ends before one leads again. It is told with its own times,
/// and nothing is done twice.
pub(crate) fn outlives_its_operators(ground: &Ground) -> Result<()> {
    let alone = ground.alone();
    let begun = json!({"actionType": "shell", "action": "echo begun; sleep 8; echo over"});
    operate_on(ground, "sample", "sample-outlives", &begun)?;
    let job = job("sample-outlives");
    ground.works(OPERATOR, &job)?;
    ground.kill_operators(&alone, OPERATOR, &job)?;
    seed::done(ground, "sample-outlives")?;
    log_says(ground, "sample-outlives", &["begun", "over"], &[])?;
    let pods = ground.get(&["-n", OPERATOR, "pods", "-l", &format!("job-name={job}")])?;
    let pods = pods["items"].as_array().map_or(0, Vec::len);
    ensure!(pods == 1, "{pods} pods worked for it");
    let (status, lease) = (
        ground.get(&[seed::OPERATIONS, "sample-outlives"])?["status"].clone(),
        ground.get(&["-n", OPERATOR, "lease", "kubeon-operator"])?["spec"].clone(),
    );
    let (ended, led) = (time(&status["endTime"])?, time(&lease["acquireTime"])?);
    ensure!(ended < led, "it ended at {ended}, while nobody led before {led}");
    Ok(())
}

fn change(ground: &Ground, name: &str, spec: &Value) -> Result<()> {
    ground.patch(&[seed::OPERATIONS, name], &json!({"spec": spec}))
}

/// Waits until the operation failed; the reason.
pub(crate) fn failed(ground: &Ground, name: &str) -> Result<String> {
    let ended = ground.eventually(&format!("{name} ends"), MINUTE * 2, || {
        let status = ground.get(&[seed::OPERATIONS, name])?["status"].clone();
        ensure!(["Failed", "Succeeded"].iter().any(|word| status["status"] == *word), "{status:#}");
        Ok(status)
    });
    let status = ended.map_err(|error| error.context(ground.story(seed::OPERATIONS, name)))?;
    ensure!(status["status"] == "Failed", "{status:#}");
    Ok(status["reason"].as_str().unwrap_or_default().to_owned())
}

/// The Job of an operation that a person wrote.
pub(crate) fn job(operation: &str) -> String {
    format!("kubeonkube-{operation}-job")
}

/// What is kept of an operation's log holds these words and not those.
pub(crate) fn log_says(ground: &Ground, operation: &str, words: &[&str], not: &[&str]) -> Result<()> {
    let map = format!("{}-log", job(operation));
    let words_of =
        |log: &str| words.iter().all(|word| log.contains(word)) && !not.iter().any(|word| log.contains(word));
    ground
        .eventually(&format!("the log of {operation}"), MINUTE / 2, || {
            let kept = ["-n", OPERATOR, "get", "configmap", &map, "-o", "go-template={{.data.log}}"];
            let log = ground.kubectl(&kept)?;
            ensure!(words_of(&log), "it says {log}");
            Ok(())
        })
        .map_err(|error| error.context(ground.story(seed::OPERATIONS, operation)))
}
