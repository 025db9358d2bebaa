//! The output of `kubectl` for a cluster that was created, scaled up and scaled down: its events in order, the
//! steps of every operation, the conditions with their reasons.

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::Value;

use super::MINUTE;
use super::declared_cluster::{FIRST_WORKER, MASTER, NAME, NAMESPACE, SECOND_WORKER};
use super::environment::{MetaCluster, condition};
use super::samples::OPERATIONS;

/// The reason and the message of an event.
#[derive(Debug)]
struct ShownEvent {
    reason: String,
    message: String,
}

/// Checks everything after the cluster was scaled up and down.
pub(crate) fn check_description(meta: &MetaCluster) -> Result<()> {
    meta.eventually("all events are recorded", MINUTE, || {
        events_in_order(meta, &events(&meta.kubectl(&["describe", "ecs", NAME])?)?)
    })?;
    conditions(&meta.get(&["ecs", NAME])?["status"])?;
    for (action, count) in [("creating", 1), ("scaling-up", 2), ("scaling-down", 2)] {
        operations(meta, action, count)?;
    }
    columns(meta)
}

/// The events of a description, in its order.
fn events(described: &str) -> Result<Vec<ShownEvent>> {
    let (_, table) = described.split_once("\nEvents:").context("the description has no events")?;
    let lines = table
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("Normal ") || line.starts_with("Warning "));
    let event = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let reason = words.next().unwrap_or_default().to_owned();
        // The age and the source are between them.
        let message = line.split_once("kubeon-operator").map_or(line, |(_, text)| text).trim().to_owned();
        ShownEvent { reason, message }
    };
    Ok(lines.map(event).collect())
}

/// Every change has its events in order, each with its subject: hosts, operation, Job, result.
fn events_in_order(meta: &MetaCluster, events: &[ShownEvent]) -> Result<()> {
    let [master, first, second] = [MASTER, FIRST_WORKER, SECOND_WORKER].map(|host| meta.address(host));
    let (master, first, second) = (master?, first?, second?);
    let (up, down) = (format!("nodeList: +{second}"), format!("nodeList: -{first}"));
    // A killed operator loses the events that it has not sent yet, such as `Prechecked` and `Scaling`.
    let wanted: [(&str, &[&str]); 22] = [
        ("SetFinalizersSuccess", &["takes the cluster down first"]),
        ("Creating", &["it was declared: 1 master(s), 1 worker(s): "]),
        ("JobMade", &["Job create-default-shop-job-"]),
        ("Prechecked", &[]),
        ("Creating", &["Creating by Job create-default-shop-job-"]),
        ("HostKeysPinned", &["2 new: ", master, first]),
        ("CreateKubeJobSuccess", &["up to date"]),
        ("ScalingUp", &[&up]),
        ("JobMade", &["Job scale-up-default-shop-job-"]),
        ("Prechecked", &[]),
        ("Scaling", &["Scaling by Job scale-up-default-shop-job-"]),
        ("HostKeysPinned", &["1 new: ", second]),
        // The pod of its runner was killed, and the change was requested again.
        // The message depends on whether the pod still existed when its container ended.
        ("CreateScaleUpJobFailed", &[]),
        ("ScalingUp", &[&up]),
        ("JobMade", &["Job scale-up-default-shop-job-"]),
        ("CreateScaleUpJobSuccess", &["up to date"]),
        ("ScalingDown", &[&down]),
        ("JobMade", &["Job scale-down-default-shop-job-"]),
        ("CreateScaleDownJobFailed", &[]),
        ("ScalingDown", &[&down]),
        ("JobMade", &["Job scale-down-default-shop-job-"]),
        ("CreateScaleDownJobSuccess", &["up to date"]),
    ];
    let mut rest = events.iter();
    for (reason, texts) in &wanted {
        let found = rest
            .any(|event| event.reason == *reason && texts.iter().all(|text| event.message.contains(text)));
        ensure!(found, "{reason} with {texts:?} is missing or out of order in {events:#?}");
    }
    ensure!(rest.next().is_none(), "there are events after the last result: {events:#?}");
    Ok(())
}

/// The conditions have a status and a reason.
fn conditions(status: &Value) -> Result<()> {
    for (type_, wanted) in [("Ready", "True"), ("Progressing", "False"), ("Degraded", "False")] {
        let found =
            condition(status, type_).with_context(|| format!("condition {type_} is missing: {status:#}"))?;
        let set = |field: &str| found[field].as_str().is_some_and(|text| !text.is_empty());
        let complete = set("reason") && set("message") && set("lastTransitionTime");
        ensure!(
            found["status"] == wanted && complete && found["observedGeneration"].is_number(),
            "{found:#}"
        );
    }
    Ok(())
}

/// The operations of this action: their number, and the steps, conditions and events of the last one.
fn operations(meta: &MetaCluster, action: &str, count: usize) -> Result<()> {
    let all = meta.get(&[OPERATIONS, "-l", &format!("clusterName={NAME}")])?;
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let ours: Vec<&Value> = all.iter().filter(|one| one["spec"]["action"] == action).collect();
    ensure!(ours.len() == count, "{} operations with action {action}", ours.len());
    let last = ours.into_iter().max_by_key(|one| one["metadata"]["creationTimestamp"].to_string());
    let last = last.context("there is no operation")?;
    let (name, status) = (last["metadata"]["name"].as_str().unwrap_or_default(), &last["status"]);
    let (done, total) = (status["steps"]["done"].as_i64(), status["steps"]["total"].as_i64());
    ensure!(done == total && total > Some(1), "{action}: {status:#}");
    let passed = condition(status, "Prechecked").with_context(|| format!("{action}: {status:#}"))?;
    ensure!(passed["status"] == "True" && passed["reason"] == "Passed", "{passed:#}");
    let described = meta.kubectl(&["describe", OPERATIONS, name])?;
    let count = format!("{}/{}", done.unwrap_or_default(), total.unwrap_or_default());
    ensure!(described.contains(&count), "{described} does not show {count} steps");
    let events = events(&described)?;
    let reasons: Vec<&str> = events.iter().map(|one| one.reason.as_str()).collect();
    let job = format!("runs as Job {NAMESPACE},{}", status["jobRef"]["name"].as_str().unwrap_or_default());
    // Events of the same second have no order.
    let started = events.first().is_some_and(|one| one.reason == "Started" && one.message.contains(&job));
    // During the other operations an operator was killed, and events that it had not sent were lost.
    let passed = action != "creating" || reasons.contains(&"Prechecked");
    ensure!(started && passed && reasons.contains(&"Succeeded"), "{events:#?}");
    Ok(())
}

/// The columns show the state.
fn columns(meta: &MetaCluster) -> Result<()> {
    let columns = meta.kubectl(&["get", "ecs", NAME])?;
    let wanted = ["NAME", "STATUS", "OPERATION", "STEP", "READY", "VERSION", "AGE"];
    ensure!(columns.split_whitespace().take(wanted.len()).eq(wanted), "{columns}");
    let row = meta.kubectl(&["get", "ecs", NAME, "--no-headers"])?;
    ensure!(row.contains("Running") && row.contains(VERSION) && row.contains("2/2"), "{row}");
    Ok(())
}
