//! Drains a node: cordons it and evicts its pods as their disruption budgets allow.
//!
//! ```text
//!   cordon ─► list pods ─► evict each ─► watch until a pod is deleted, or retry blocked pods ────┐
//!                 ▲                                                                              │
//!                 └──────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Pods of DaemonSets and static pods stay: they end with the host.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeon_api::HostName;
use kubeon_wire::{Category, StepFailure};
use serde_json::{Value, json};

use super::node::until_accepted;
use crate::api::{Api, message};
use crate::failure::failed;
use crate::job::{Job, StepEffect};

/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before an eviction that a disruption budget refused is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time of one watch for terminating pods.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// The number of pods that a failure names.
const NAMED_PODS: usize = 5;

/// Drains the node. A node that does not exist is already drained.
///
/// # Errors
/// At the deadline, a failure with the remaining pods and the reason of each. A user has to decide what to
/// do, so it is [`Category::Failed`], which is not retried automatically.
pub fn run(job: &Job<'_>, node: &HostName) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    if !cordon(job, &api, node)? {
        return Ok(StepEffect::default());
    }
    let (mut known, mut refusals) = (Vec::new(), BTreeMap::new());
    loop {
        // The deadline may interrupt the last list: the one before it then names the remaining pods.
        let left =
            evict(job, &api, node, &mut refusals).map_err(|failure| at_deadline(node, &known, failure))?;
        if left.is_empty() {
            return Ok(StepEffect { changed: true, ..StepEffect::default() });
        }
        if known.len() != left.len() {
            job.note(describe(&left));
        }
        known = left;
        let blocked = known.iter().any(|pod| pod.blocked);
        let round = if blocked { RETRY_INTERVAL } else { WATCH_TIMEOUT };
        // If the watch fails, the next round starts at once.
        let of_node = on_node(node);
        let _ = api.watch_until(job.stop, ("/api/v1/pods", &of_node), round.min(job.left()), &mut |event| {
            event.kind == "DELETED" || (!blocked && has_ended(&event.object))
        });
        job.pause(ROUND_PAUSE, || not_empty(node, &known))
            .map_err(|failure| at_deadline(node, &known, failure))?;
    }
}

/// At the deadline, the failure names the pods of the last complete list.
fn at_deadline(node: &HostName, left: &[RemainingPod], failure: StepFailure) -> StepFailure {
    match failure.category {
        Category::Timeout if !left.is_empty() => failed(not_empty(node, left)),
        _ => failure,
    }
}

fn not_empty(node: &HostName, left: &[RemainingPod]) -> String {
    format!("node {node} is not empty: {}", describe(left))
}

/// A pod that must leave the node.
struct RemainingPod {
    name: String,
    why: String,
    /// Whether its eviction was not accepted yet.
    blocked: bool,
}

/// The last reasons why the API server refused an eviction, by name of the pod.
type Refusals = BTreeMap<String, String>;

/// Makes a node schedulable again.
///
/// # Errors
/// If the node does not exist, or the API server does not accept the change in time.
pub fn uncordon(job: &Job<'_>, node: &HostName) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/api/v1/nodes/{node}");
    let mut changed = false;
    let answer = until_accepted(job, &format!("node {node} is still cordoned"), || {
        let current = api.get(&path, CALL_TIMEOUT.min(job.left()))?;
        let object = serde_json::from_str::<Value>(&current.body).unwrap_or_default();
        if current.status != 200 || object["spec"]["unschedulable"] != true {
            return Ok(current);
        }
        changed = true;
        api.merge(&path, &json!({"spec": {"unschedulable": null}}), CALL_TIMEOUT.min(job.left()))
    })?;
    match answer.status {
        404 => Err(failed(format!("node {node} does not exist"))),
        _ => Ok(StepEffect { changed, ..StepEffect::default() }),
    }
}

/// Makes the node unschedulable; `false` if the node does not exist.
fn cordon(job: &Job<'_>, api: &Api, node: &HostName) -> Result<bool, StepFailure> {
    let path = format!("/api/v1/nodes/{node}");
    let body = json!({"spec": {"unschedulable": true}});
    let answer = until_accepted(job, &format!("node {node} is not cordoned"), || {
        api.merge(&path, &body, CALL_TIMEOUT.min(job.left()))
    })?;
    Ok(answer.status != 404)
}

/// Requests the eviction of every pod that is not terminating. Returns the pods that remain.
fn evict(
    job: &Job<'_>,
    api: &Api,
    node: &HostName,
    refusals: &mut Refusals,
) -> Result<Vec<RemainingPod>, StepFailure> {
    let path = format!("/api/v1/pods?{}", on_node(node).trim_start_matches('&'));
    let answer = until_accepted(job, &format!("the pods of node {node} cannot be listed"), || {
        api.get(&path, CALL_TIMEOUT.min(job.left()))
    })?;
    let list: Value = serde_json::from_str(&answer.body)
        .map_err(|_| failed(format!("{path}: the answer of the API server is not JSON")))?;
    let pods = list["items"].as_array().into_iter().flatten().filter(|pod| must_be_evicted(pod));
    Ok(pods.filter_map(|pod| evict_one(job, api, pod, refusals)).collect())
}

/// Evicts a pod; `None` if it no longer exists.
fn evict_one(job: &Job<'_>, api: &Api, pod: &Value, refusals: &mut Refusals) -> Option<RemainingPod> {
    let metadata = &pod["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    let left = |why: &str, blocked| {
        Some(RemainingPod { name: format!("{namespace}/{name}"), why: why.to_owned(), blocked })
    };
    if !metadata["deletionTimestamp"].is_null() {
        return left("is still terminating", false);
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    });
    match api.post(&path, &body, CALL_TIMEOUT.min(job.left())) {
        Ok(answer) if matches!(answer.status, 200..=202) => left("is still terminating", false),
        Ok(answer) if answer.status == 404 => None,
        Ok(answer) => {
            let why = format!("is not evicted: {}", refusal(&answer.body));
            refusals.insert(name.to_owned(), why.clone());
            left(&why, true)
        }
        // The deadline interrupts calls: an earlier refusal is the better reason.
        Err(why) => {
            let no_answer = format!("is not evicted: the API server does not answer: {why}");
            left(refusals.get(name).unwrap_or(&no_answer), true)
        }
    }
}

/// The server's reason for a refusal, with the disruption budget that it names.
fn refusal(body: &str) -> String {
    let status = serde_json::from_str::<Value>(body).unwrap_or_default();
    let cause = status["details"]["causes"][0]["message"].as_str();
    cause.map_or_else(|| message(body), |cause| format!("{} {cause}", message(body)))
}

fn must_be_evicted(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let daemon = owners.is_some_and(|owners| {
        owners.iter().any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true)
    });
    let mirror = !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    !daemon && !mirror && !has_ended(pod)
}

/// Whether a pod has ended and is not being deleted. A pod that is being deleted still counts after its end:
/// only the kubelet removes the object, and without the kubelet it would remain until the pod garbage
/// collector deletes it.
fn has_ended(pod: &Value) -> bool {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    ended && pod["metadata"]["deletionTimestamp"].is_null()
}

fn on_node(node: &HostName) -> String {
    format!("&fieldSelector=spec.nodeName%3D{node}")
}

/// Describes the pods. Blocked pods come first, because they may need a user's action.
fn describe(left: &[RemainingPod]) -> String {
    let mut order: Vec<&RemainingPod> = left.iter().collect();
    order.sort_by_key(|pod| !pod.blocked);
    let named: Vec<_> =
        order.iter().take(NAMED_PODS).map(|pod| format!("pod {} {}", pod.name, pod.why)).collect();
    let more = left.len().saturating_sub(NAMED_PODS);
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{rest}", named.join("; "))
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
