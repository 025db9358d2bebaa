//! Empties a node: no new pods, and those that are there are evicted as their disruption budgets allow.
//!
//! ```text
//!   cordon ─► list pods ─► evict each ─► watch until one is gone, or try the blocked ones again ─┐
//!                 ▲                                                                              │
//!                 └──────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Pods of DaemonSets and those that a kubelet runs by itself stay: they go with the host.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeon_api::HostName;
use kubeon_wire::{Category, StepFailure};
use serde_json::{Value, json};

use super::node::until_taken;
use crate::api::{Api, message};
use crate::failure::failed;
use crate::job::{Job, StepEffect};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);
/// The pause before an eviction that a disruption budget refused is tried again.
const BLOCKED: Duration = Duration::from_secs(1);
/// The longest time of one watch for terminating pods.
const ROUND: Duration = Duration::from_secs(10);
/// Between two rounds at least.
const BREATH: Duration = Duration::from_millis(50);
/// How many pods a failure names.
const NAMED: usize = 5;

/// Empties the node; a node that is not there is empty.
///
/// # Errors
/// Names the pods that are left when time is up, and what holds them. That is for a person to decide on, so it
/// counts as [`Category::Failed`], which nobody tries again by himself.
pub fn run(job: &Job<'_>, node: &HostName) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    if !cordon(job, &api, node)? {
        return Ok(StepEffect::default());
    }
    let (mut known, mut said) = (Vec::new(), BTreeMap::new());
    loop {
        // The last list may be cut short by the deadline: the one before it tells what is left.
        let left = evict(job, &api, node, &mut said).map_err(|failure| in_vain(node, &known, failure))?;
        if left.is_empty() {
            return Ok(StepEffect { changed: true, ..StepEffect::default() });
        }
        if known.len() != left.len() {
            job.note(words(&left));
        }
        known = left;
        let blocked = known.iter().any(|pod| pod.blocked);
        let round = if blocked { BLOCKED } else { ROUND };
        // A watch that breaks only means that the next round comes at once.
        let _ = api.watch("/api/v1/pods", &on_node(node), round.min(job.left()), &mut |event| {
            event.kind == "DELETED" || (!blocked && stays_ended(&event.object))
        });
        job.pause(BREATH, || not_empty(node, &known)).map_err(|failure| in_vain(node, &known, failure))?;
    }
}

/// Once time is up, the pods that were left when it was last asked are the cause.
fn in_vain(node: &HostName, left: &[Left], failure: StepFailure) -> StepFailure {
    match failure.category {
        Category::Timeout if !left.is_empty() => failed(not_empty(node, left)),
        _ => failure,
    }
}

fn not_empty(node: &HostName, left: &[Left]) -> String {
    format!("node {node} is not empty: {}", words(left))
}

/// A pod that has to go.
struct Left {
    name: String,
    why: String,
    /// Whether it was not evicted yet.
    blocked: bool,
}

/// What the API server said last against the eviction of pods, by name.
type Said = BTreeMap<String, String>;

/// Lets new pods onto a node again.
///
/// # Errors
/// When there is no such node, or the API server does not take it in time.
pub fn uncordon(job: &Job<'_>, node: &HostName) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/api/v1/nodes/{node}");
    let mut changed = false;
    let answer = until_taken(job, &format!("node {node} is still cordoned"), || {
        let seen = api.get(&path, CALL.min(job.left()))?;
        let object = serde_json::from_str::<Value>(&seen.body).unwrap_or_default();
        if seen.status != 200 || object["spec"]["unschedulable"] != true {
            return Ok(seen);
        }
        changed = true;
        api.merge(&path, &json!({"spec": {"unschedulable": null}}), CALL.min(job.left()))
    })?;
    match answer.status {
        404 => Err(failed(format!("there is no node {node}"))),
        _ => Ok(StepEffect { changed, ..StepEffect::default() }),
    }
}

/// Keeps new pods away; `false` where there is no such node.
fn cordon(job: &Job<'_>, api: &Api, node: &HostName) -> Result<bool, StepFailure> {
    let path = format!("/api/v1/nodes/{node}");
    let body = json!({"spec": {"unschedulable": true}});
    let answer = until_taken(job, &format!("node {node} is not cordoned"), || {
        api.merge(&path, &body, CALL.min(job.left()))
    })?;
    Ok(answer.status != 404)
}

/// Asks for the eviction of every pod that is not going yet; what is left then.
fn evict(job: &Job<'_>, api: &Api, node: &HostName, said: &mut Said) -> Result<Vec<Left>, StepFailure> {
    let path = format!("/api/v1/pods?{}", on_node(node).trim_start_matches('&'));
    let answer = until_taken(job, &format!("the pods of node {node} cannot be listed"), || {
        api.get(&path, CALL.min(job.left()))
    })?;
    let list: Value = serde_json::from_str(&answer.body)
        .map_err(|_| failed(format!("{path}: the API server answers no JSON")))?;
    let pods = list["items"].as_array().into_iter().flatten().filter(|pod| must_go(pod));
    Ok(pods.filter_map(|pod| evict_one(job, api, pod, said)).collect())
}

/// `None` once it is gone.
fn evict_one(job: &Job<'_>, api: &Api, pod: &Value, said: &mut Said) -> Option<Left> {
    let metadata = &pod["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    let left =
        |why: &str, blocked| Some(Left { name: format!("{namespace}/{name}"), why: why.to_owned(), blocked });
    if !metadata["deletionTimestamp"].is_null() {
        return left("is still ending", false);
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    });
    match api.post(&path, &body, CALL.min(job.left())) {
        Ok(answer) if matches!(answer.status, 200..=202) => left("is still ending", false),
        Ok(answer) if answer.status == 404 => None,
        Ok(answer) => {
            let why = format!("is not evicted: {}", refusal(&answer.body));
            said.insert(name.to_owned(), why.clone());
            left(&why, true)
        }
        // Once time is up calls are cut short: what was said before tells more.
        Err(why) => {
            let silent = format!("is not evicted: the API server does not answer: {why}");
            left(said.get(name).unwrap_or(&silent), true)
        }
    }
}

/// What the server says against it, with the budget that it names.
fn refusal(body: &str) -> String {
    let status = serde_json::from_str::<Value>(body).unwrap_or_default();
    let cause = status["details"]["causes"][0]["message"].as_str();
    cause.map_or_else(|| message(body), |cause| format!("{} {cause}", message(body)))
}

fn must_go(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let daemon = owners.is_some_and(|owners| {
        owners.iter().any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true)
    });
    let mirror = !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    !daemon && !mirror && !stays_ended(pod)
}

/// Ran to its end and is kept to be looked at. One that was evicted ends too, but only its kubelet takes it away:
/// without it the pod would be shown for as long as the collector of lost pods waits.
fn stays_ended(pod: &Value) -> bool {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    ended && pod["metadata"]["deletionTimestamp"].is_null()
}

fn on_node(node: &HostName) -> String {
    format!("&fieldSelector=spec.nodeName%3D{node}")
}

/// Those that are held first, since they need somebody's hand.
fn words(left: &[Left]) -> String {
    let mut order: Vec<&Left> = left.iter().collect();
    order.sort_by_key(|pod| !pod.blocked);
    let named: Vec<_> = order.iter().take(NAMED).map(|pod| format!("pod {} {}", pod.name, pod.why)).collect();
    let more = left.len().saturating_sub(NAMED);
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{rest}", named.join("; "))
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
