//! What `kubectl` tells of a cluster that was made, grown and shrunk: the whole life in order, the steps of every operation,
//! what holds now and why.

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::Value;

use super::MINUTE;
use super::declared_cluster::{FIRST, MASTER, NAME, NAMESPACE, SECOND};
use super::environment::{MetaCluster, condition};
use super::seed::OPERATIONS;

/// An event, as far as a person looks at it.
#[derive(Debug)]
struct Told {
    reason: String,
    text: String,
}

/// Looks at everything, once the cluster has grown and shrunk.
pub(crate) fn of_a_life(meta: &MetaCluster) -> Result<()> {
    meta.eventually("its whole life is told", MINUTE, || {
        life(meta, &events(&meta.kubectl(&["describe", "ecs", NAME])?)?)
    })?;
    conditions(&meta.get(&["ecs", NAME])?["status"])?;
    for (action, count) in [("creating", 1), ("scaling-up", 2), ("scaling-down", 2)] {
        operations(meta, action, count)?;
    }
    columns(meta)
}

/// The events of a description, in its order.
fn events(described: &str) -> Result<Vec<Told>> {
    let (_, table) = described.split_once("\nEvents:").context("it ends with its events")?;
    let lines = table
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("Normal ") || line.starts_with("Warning "));
    let told = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let reason = words.next().unwrap_or_default().to_owned();
        // Between them stand its age and who said it.
        let text = line.split_once("kubeon-operator").map_or(line, |(_, text)| text).trim().to_owned();
        Told { reason, text }
    };
    Ok(lines.map(told).collect())
}

/// Every step of the way, each with what it is about: hosts, operation, Job, result.
fn life(meta: &MetaCluster, told: &[Told]) -> Result<()> {
    let [master, first, second] = [MASTER, FIRST, SECOND].map(|host| meta.address(host));
    let (master, first, second) = (master?, first?, second?);
    let (up, down) = (format!("nodeList: +{second}"), format!("nodeList: -{first}"));
    // Where the operator that leads was killed, what it was about to tell is lost: that hosts were fit and work began.
    let wanted: [(&str, &[&str]); 22] = [
        ("SetFinalizersSuccess", &["take the cluster down first"]),
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
        // The pod of its runner was killed; somebody asked again.
        // What it says depends on whether the pod was still there when its container ended.
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
    let mut rest = told.iter();
    for (reason, words) in &wanted {
        let found = rest.any(|one| one.reason == *reason && words.iter().all(|word| one.text.contains(word)));
        ensure!(found, "{reason} with {words:?} does not come in its turn in {told:#?}");
    }
    ensure!(rest.next().is_none(), "nothing comes after the last result: {told:#?}");
    Ok(())
}

/// What holds, and why.
fn conditions(status: &Value) -> Result<()> {
    for (type_, holds) in [("Ready", "True"), ("Progressing", "False"), ("Degraded", "False")] {
        let found = condition(status, type_).with_context(|| format!("{type_} is not told: {status:#}"))?;
        let said = |field: &str| found[field].as_str().is_some_and(|text| !text.is_empty());
        let whole = said("reason") && said("message") && said("lastTransitionTime");
        ensure!(found["status"] == holds && whole && found["observedGeneration"].is_number(), "{found:#}");
    }
    Ok(())
}

/// The operations of this kind: what each was asked for, its steps, and how it ended.
fn operations(meta: &MetaCluster, action: &str, count: usize) -> Result<()> {
    let all = meta.get(&[OPERATIONS, "-l", &format!("clusterName={NAME}")])?;
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let ours: Vec<&Value> = all.iter().filter(|one| one["spec"]["action"] == action).collect();
    ensure!(ours.len() == count, "{} operations of kind {action}", ours.len());
    let last = ours.into_iter().max_by_key(|one| one["metadata"]["creationTimestamp"].to_string());
    let last = last.context("one of them is the last")?;
    let (name, status) = (last["metadata"]["name"].as_str().unwrap_or_default(), &last["status"]);
    let (done, total) = (status["steps"]["done"].as_i64(), status["steps"]["total"].as_i64());
    ensure!(done == total && total > Some(1), "{action}: {status:#}");
    let fit = condition(status, "Prechecked").with_context(|| format!("{action}: {status:#}"))?;
    ensure!(fit["status"] == "True" && fit["reason"] == "Passed", "{fit:#}");
    let described = meta.kubectl(&["describe", OPERATIONS, name])?;
    let count = format!("{}/{}", done.unwrap_or_default(), total.unwrap_or_default());
    ensure!(described.contains(&count), "{count} steps are not told in {described}");
    let told = events(&described)?;
    let reasons: Vec<&str> = told.iter().map(|one| one.reason.as_str()).collect();
    let job = format!("runs as Job {NAMESPACE},{}", status["jobRef"]["name"].as_str().unwrap_or_default());
    // What is told in one second stands in any order.
    let started = told.first().is_some_and(|one| one.reason == "Started" && one.text.contains(&job));
    // The others lost an operator on their way, and with it what it was about to tell.
    let fit = action != "creating" || reasons.contains(&"Prechecked");
    ensure!(started && fit && reasons.contains(&"Succeeded"), "{told:#?}");
    Ok(())
}

/// The columns tell where it stands.
fn columns(meta: &MetaCluster) -> Result<()> {
    let columns = meta.kubectl(&["get", "ecs", NAME])?;
    let wanted = ["NAME", "STATUS", "OPERATION", "STEP", "READY", "VERSION", "AGE"];
    ensure!(columns.split_whitespace().take(wanted.len()).eq(wanted), "{columns}");
    let row = meta.kubectl(&["get", "ecs", NAME, "--no-headers"])?;
    ensure!(row.contains("Running") && row.contains(VERSION) && row.contains("2/2"), "{row}");
    Ok(())
}
