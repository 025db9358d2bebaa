//! What is done to a Node object through this host's API server.

use std::time::Duration;

use kubeon_api::HostName;
use kubeon_wire::{Category, StepFailure};
use serde_json::{Value, json};

use crate::api::{Api, message};
use crate::backoff::pauses;
use crate::failure::{failed, of};
use crate::https::HttpResponse;
use crate::job::{Job, StepEffect};
use crate::journal::{self, Mark};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);
/// Keeps ordinary pods off masters.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Takes the node out of the cluster. What this host's journal holds about it is forgotten first: a node of
/// the same name is another one.
///
/// # Errors
/// When the journal cannot be changed, or the API server does not take it in time.
pub fn remove(job: &Job<'_>, node: &HostName, forget: &[String]) -> Result<StepEffect, StepFailure> {
    for id in forget {
        journal::forget(&job.host.root, id)?;
    }
    let api = Api::local(job.host)?;
    let path = format!("/api/v1/nodes/{node}");
    let answer =
        until_taken(job, &format!("node {node} is not removed"), || api.delete(&path, CALL.min(job.left())))?;
    Ok(StepEffect { changed: answer.status != 404, ..StepEffect::default() })
}

/// Sets or takes away the taint that keeps ordinary pods off a master; other taints stay.
///
/// # Errors
/// When there is no such node, or the API server does not take it in time.
pub fn taint(job: &Job<'_>, node: &HostName, present: bool) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/api/v1/nodes/{node}");
    let marks = vec![Mark::Object { path: path.clone() }];
    let mut changed = false;
    let answer = until_taken(job, &format!("the taint of node {node} is not changed"), || {
        let seen = api.get(&path, CALL.min(job.left()))?;
        let object = serde_json::from_str::<Value>(&seen.body).unwrap_or_default();
        let Some(body) = tainted(&object, present).filter(|_| seen.status == 200) else { return Ok(seen) };
        changed = true;
        api.merge(&path, &body, CALL.min(job.left()))
    })?;
    match answer.status {
        404 => Err(failed(format!("there is no node {node}"))),
        _ => Ok(StepEffect { changed, marks }),
    }
}

/// The patch that leads there, bound to the revision that was seen; `None` where nothing is to do.
fn tainted(node: &Value, present: bool) -> Option<Value> {
    let is_ours = |taint: &Value| taint["key"] == CONTROL_PLANE && taint["effect"] == "NoSchedule";
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    if taints.iter().any(is_ours) == present {
        return None;
    }
    taints.retain(|taint| !is_ours(taint));
    if present {
        taints.push(json!({"key": CONTROL_PLANE, "effect": "NoSchedule"}));
    }
    let revision = &node["metadata"]["resourceVersion"];
    Some(json!({"metadata": {"resourceVersion": revision}, "spec": {"taints": taints}}))
}

/// Calls until the server takes it or says that there is no such thing.
///
/// # Errors
/// [`Category::Timeout`] with what was seen last; at once what no later call changes.
pub fn until_taken(
    job: &Job<'_>,
    what: &str,
    mut call: impl FnMut() -> Result<HttpResponse, String>,
) -> Result<HttpResponse, StepFailure> {
    let mut pauses = pauses();
    loop {
        let seen = match call() {
            Ok(answer) if matches!(answer.status, 200..=202 | 404) => return Ok(answer),
            Ok(answer) if matches!(answer.status, 409 | 429 | 500..) => {
                format!("the API server answers {}: {}", answer.status, message(&answer.body))
            }
            Ok(answer) => {
                return Err(failed(format!(
                    "{what}: refused ({}): {}",
                    answer.status,
                    message(&answer.body)
                )));
            }
            Err(why) => format!("the API server on this host does not answer: {why}"),
        };
        let tell = || format!("{what}: {seen}");
        if job.left().is_zero() {
            return Err(of(Category::Timeout, tell()));
        }
        job.pause(pauses.next().unwrap_or_default(), tell)?;
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
