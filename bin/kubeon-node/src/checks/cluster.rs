//! Waits for objects of the API server with a watch, which reports every change at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use kubeon_api::{HostName, clip};
use kubeon_wire::{Category, StepFailure, lacks_only_network};
use serde_json::Value;

use super::progress::SeenStates;
use crate::api::{Api, WatchEvent};
use crate::job::Job;

/// The pause before an ended watch is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// The longest time of one watch. Between two watches the wait checks for cancellation.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for reading the pods of a Deployment after the deadline.
const PODS_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits until the nodes exist and are Ready. With `may_lack_network`, they need no network of pods.
///
/// # Errors
/// [`kubeon_wire::Category::Timeout`] with the nodes that are not Ready and the kubelet's messages.
pub(super) fn nodes_ready(
    job: &Job<'_>,
    nodes: &[HostName],
    may_lack_network: bool,
) -> Result<(), StepFailure> {
    let api = Api::local(job.host)?;
    let mut awaited = Nodes::new(nodes, may_lack_network);
    // A cluster may have thousands of nodes, each of which would be an event of the watch.
    let query = match nodes {
        [node] => format!("&fieldSelector=metadata.name%3D{node}"),
        _ => String::new(),
    };
    watch(job, &api, "/api/v1/nodes", &query, &mut awaited)
}

/// Waits until the Deployment has all its replicas, updated and available.
///
/// # Errors
/// [`kubeon_wire::Category::Timeout`] with the number of available replicas and the reason why a pod waits.
pub(super) fn deployment_available(job: &Job<'_>, namespace: &str, name: &str) -> Result<(), StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    crate::api::check_path(&format!("{path}/{name}"))?;
    let mut awaited = Deployment { name: name.to_owned(), status: None, selector: None };
    let query = format!("&fieldSelector=metadata.name%3D{name}");
    watch(job, &api, &path, &query, &mut awaited).map_err(|failure| {
        let pods = awaited.selector.as_ref().and_then(|selector| pods(&api, namespace, selector));
        let cause = pods.map_or(failure.cause.clone(), |pods| format!("{}: {pods}", failure.cause));
        StepFailure { cause, ..failure }
    })
}

/// A condition on objects, with the state observed so far.
pub(super) trait Awaited {
    /// Starts a new watch: objects observed before may no longer exist.
    fn begin(&mut self);
    /// Processes an event and returns whether the condition is met.
    fn observe(&mut self, event: &WatchEvent) -> bool;
    /// The unmet part of the condition, for messages.
    fn missing(&self) -> String;
}

pub(super) fn watch(
    job: &Job<'_>,
    api: &Api,
    path: &str,
    query: &str,
    awaited: &mut dyn Awaited,
) -> Result<(), StepFailure> {
    let (mut watched, mut progress) = (false, SeenStates::default());
    loop {
        let time = job.left().min(WATCH_TIMEOUT);
        let mut last = None;
        if !time.is_zero() {
            awaited.begin();
            let mut observe = |event: &WatchEvent| {
                let met = awaited.observe(event);
                progress.observe(job, &awaited.missing());
                met
            };
            match api.watch_until(job.stop, (path, query), time, &mut observe) {
                Ok(true) => return Ok(()),
                Ok(false) => watched = true,
                Err(why) => last = Some(why),
            }
        }
        let seen = || match &last {
            Some(why) if !watched => format!("the API server on this host does not answer: {why}"),
            Some(why) => format!("{}; the last error of the API server: {why}", awaited.missing()),
            None => awaited.missing(),
        };
        if job.left().is_zero() {
            return Err(crate::failure::of(Category::Timeout, seen()));
        }
        job.pause(RESTART_PAUSE, seen)?;
    }
}

/// Nodes by name; `None` for a Ready node, otherwise the reason.
pub(super) struct Nodes {
    wanted: BTreeMap<String, Option<String>>,
    /// Whether a node that lacks nothing but a network of pods is ready enough.
    may_lack_network: bool,
}

impl Nodes {
    pub(super) fn new(nodes: &[HostName], may_lack_network: bool) -> Self {
        let unseen = |node: &HostName| (node.to_string(), Some(String::new()));
        Self { wanted: nodes.iter().map(unseen).collect(), may_lack_network }
    }
}

impl Awaited for Nodes {
    fn begin(&mut self) {
        for why in self.wanted.values_mut().filter(|why| why.is_none()) {
            *why = Some(String::new());
        }
    }

    fn observe(&mut self, event: &WatchEvent) -> bool {
        let name = event.object["metadata"]["name"].as_str().unwrap_or_default();
        if let Some(why) = self.wanted.get_mut(name) {
            *why = match event.kind.as_str() {
                "DELETED" => Some(String::new()),
                _ => not_up(&event.object, self.may_lack_network),
            };
        }
        self.wanted.values().all(Option::is_none)
    }

    fn missing(&self) -> String {
        let mut text = String::new();
        for (name, why) in self.wanted.iter().filter_map(|(name, why)| Some((name, why.as_ref()?))).take(5) {
            let gap = if text.is_empty() { "" } else { "; " };
            let written = match why.as_str() {
                "" => write!(text, "{gap}node {name} has not joined"),
                why => write!(text, "{gap}node {name} is not Ready: {why}"),
            };
            // Writing to a string cannot fail.
            let _ = written;
        }
        text
    }
}

/// Why the node is not Ready. With `may_lack_network`, one that lacks nothing but a network of pods is ready enough.
pub(super) fn not_up(node: &Value, may_lack_network: bool) -> Option<String> {
    not_ready(node).filter(|why| !(may_lack_network && lacks_only_network(why)))
}

pub(super) fn not_ready(node: &Value) -> Option<String> {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.and_then(|list| list.iter().find(|condition| condition["type"] == "Ready"));
    match ready {
        Some(ready) if ready["status"] == "True" => None,
        Some(ready) => Some(clip(ready["message"].as_str().unwrap_or("no reason given"), 300).to_owned()),
        None => Some("its kubelet has not reported".to_owned()),
    }
}

pub(super) struct Deployment {
    name: String,
    status: Option<String>,
    selector: Option<String>,
}

impl Deployment {
    #[cfg(test)]
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), status: None, selector: None }
    }
}

impl Awaited for Deployment {
    fn begin(&mut self) {}

    fn observe(&mut self, event: &WatchEvent) -> bool {
        let (spec, status) = (&event.object["spec"], &event.object["status"]);
        let count = |value: &Value| value.as_i64().unwrap_or(0);
        let wanted = spec["replicas"].as_i64().unwrap_or(1);
        let labels = spec["selector"]["matchLabels"].as_object();
        self.selector = labels.map(|labels| {
            let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
            pairs.collect::<Vec<_>>().join(",")
        });
        let current = count(&status["observedGeneration"]) >= count(&event.object["metadata"]["generation"]);
        let counts = ["updatedReplicas", "availableReplicas", "replicas"].map(|key| count(&status[key]));
        if event.kind != "DELETED" && current && counts.iter().all(|count| *count == wanted) {
            return true;
        }
        let [updated, available, all] = counts;
        let name = &self.name;
        self.status = Some(match event.kind.as_str() {
            "DELETED" => format!("Deployment {name} was deleted"),
            _ if all > updated => format!("Deployment {name} still has {} old replicas", all - updated),
            _ => format!("Deployment {name} has {available} of {wanted} replicas available"),
        });
        false
    }

    fn missing(&self) -> String {
        self.status.clone().unwrap_or_else(|| format!("Deployment {} does not exist", self.name))
    }
}

/// The first reason why a pod waits, as reported by the kubelet or the scheduler.
fn pods(api: &Api, namespace: &str, selector: &str) -> Option<String> {
    let selector = selector.replace('=', "%3D").replace(',', "%2C").replace('/', "%2F");
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
    let pods: Value = serde_json::from_str(&api.get(&path, PODS_TIMEOUT).ok()?.body).ok()?;
    pods["items"].as_array()?.iter().find_map(|pod| {
        let reason = waiting(&pod["status"])?;
        Some(format!("pod {} {reason}", pod["metadata"]["name"].as_str().unwrap_or_default()))
    })
}

fn waiting(status: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().map(|text| clip(text, 200).to_owned());
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    let held = containers.filter_map(|container| {
        let waiting = &container["state"]["waiting"];
        let reason = text(&waiting["reason"])?;
        Some(text(&waiting["message"]).map_or(reason.clone(), |message| format!("{reason}: {message}")))
    });
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unmet = conditions
        .filter(|condition| condition["status"] == "False")
        .filter_map(|condition| text(&condition["message"]));
    held.chain(unmet).next()
}
