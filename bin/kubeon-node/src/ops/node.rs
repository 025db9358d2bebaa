//! Changes Node objects through this host's API server.

use std::time::Duration;

use kubeon_api::HostName;
use kubeon_wire::{Category, StepFailure};
use serde_json::{Value, json};

use crate::api::{Api, message};
use crate::backoff::pauses;
use crate::failure::{failed, of};
use crate::https::HttpResponse;
use crate::job::{Job, StepEffect};
use crate::journal::Mark;

/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The taint that keeps ordinary pods off masters.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Removes the node, and the steps that it records, from the cluster, and then the pods that it still had, without waiting for
/// their end: a drained node has only pods of DaemonSets, and a lost one runs none. The cluster would remove them too, but a
/// minute later, and until then their Deployments make no others.
///
/// # Errors
/// If the API server does not accept the removal in time.
pub fn remove(job: &Job<'_>, node: &HostName) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/api/v1/nodes/{node}");
    let answer = until_accepted(job, &format!("node {node} is not removed"), || {
        api.delete(&path, CALL_TIMEOUT.min(job.left()))
    })?;
    let pods = remove_pods(job, &api, node)?;
    Ok(StepEffect { changed: answer.status != 404 || pods > 0, ..StepEffect::default() })
}

/// Removes the pods of a node that does not exist any more. Returns how many there were.
fn remove_pods(job: &Job<'_>, api: &Api, node: &HostName) -> Result<usize, StepFailure> {
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let problem = format!("the pods of node {node} are not removed");
    let listed = until_accepted(job, &problem, || api.get(&path, CALL_TIMEOUT.min(job.left())))?;
    let list: Value = serde_json::from_str(&listed.body).unwrap_or_default();
    let of_pod = |pod: &Value| {
        let (namespace, name) = (pod["metadata"]["namespace"].as_str()?, pod["metadata"]["name"].as_str()?);
        Some(format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0"))
    };
    let pods: Vec<String> = list["items"].as_array().into_iter().flatten().filter_map(of_pod).collect();
    for pod in &pods {
        until_accepted(job, &problem, || api.delete(pod, CALL_TIMEOUT.min(job.left())))?;
    }
    Ok(pods.len())
}

/// Adds or removes the taint that keeps ordinary pods off a master; other taints stay.
///
/// # Errors
/// If the node does not exist, or the API server does not accept the change in time.
pub fn taint(job: &Job<'_>, node: &HostName, present: bool) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/api/v1/nodes/{node}");
    let marks = vec![Mark::Object { path: path.clone() }];
    let problem = format!("the taint of node {node} is not changed");
    match merge_observed(job, (&api, &path), &problem, |object| tainted(object, present))? {
        Merged { exists: false, .. } => Err(failed(format!("node {node} does not exist"))),
        Merged { changed, .. } => Ok(StepEffect { changed, marks }),
    }
}

/// The patch for the taint; `None` if no change is needed.
fn tainted(node: &Value, present: bool) -> Option<Value> {
    let is_control_plane = |taint: &Value| taint["key"] == CONTROL_PLANE && taint["effect"] == "NoSchedule";
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    if taints.iter().any(is_control_plane) == present {
        return None;
    }
    taints.retain(|taint| !is_control_plane(taint));
    if present {
        taints.push(json!({"key": CONTROL_PLANE, "effect": "NoSchedule"}));
    }
    Some(json!({"spec": {"taints": taints}}))
}

/// What [`merge_observed`] did.
pub struct Merged {
    /// Whether the object exists.
    pub exists: bool,
    /// Whether it was written.
    pub changed: bool,
}

/// Reads an object and merges into it what `patch` makes of it, if that is something. A change that somebody else makes in between
/// begins this again.
///
/// # Errors
/// As for [`until_accepted`].
pub fn merge_observed(
    job: &Job<'_>,
    (api, path): (&Api, &str),
    problem: &str,
    patch: impl Fn(&Value) -> Option<Value>,
) -> Result<Merged, StepFailure> {
    let mut changed = false;
    let answer = until_accepted(job, problem, || {
        let current = api.get(path, CALL_TIMEOUT.min(job.left()))?;
        let object = serde_json::from_str::<Value>(&current.body).unwrap_or_default();
        let Some(mut body) = patch(&object).filter(|_| current.status == 200) else {
            return Ok(current);
        };
        body["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
        changed = true;
        api.merge(path, &body, CALL_TIMEOUT.min(job.left()))
    })?;
    Ok(Merged { exists: answer.status != 404, changed })
}

/// Repeats a call until the server accepts it or answers 404.
///
/// # Errors
/// [`Category::Timeout`] with the last answer; at once for an answer that a retry does not change.
pub fn until_accepted(
    job: &Job<'_>,
    problem: &str,
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
                    "{problem}: refused ({}): {}",
                    answer.status,
                    message(&answer.body)
                )));
            }
            Err(why) => format!("the API server on this host does not answer: {why}"),
        };
        let describe = || format!("{problem}: {seen}");
        if job.left().is_zero() {
            return Err(of(Category::Timeout, describe()));
        }
        job.pause(pauses.next().unwrap_or_default(), describe)?;
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
