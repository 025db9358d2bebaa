//! Waits by watching the API server: it tells of every change at once and is not asked in between.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use kubeon_api::HostName;
use kubeon_wire::{Category, StepFailure};
use serde_json::Value;

use crate::api::{Api, WatchEvent};
use crate::job::Job;

/// The pause before a watch that ended is started again.
const AGAIN: Duration = Duration::from_millis(200);
/// The longest time of one watch; between two watches the check sees a request to stop.
const ROUND: Duration = Duration::from_secs(30);
/// How long a look at the pods of a Deployment may take once time is up.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Waits until the nodes exist and are ready.
///
/// # Errors
/// [`kubeon_wire::Category::Timeout`] names the nodes that are not, with the kubelet's words.
pub(super) fn nodes_ready(job: &Job<'_>, nodes: &[HostName]) -> Result<(), StepFailure> {
    let api = Api::local(job.host)?;
    let mut seen = Nodes::new(nodes);
    watch(job, &api, "/api/v1/nodes", "", &mut seen)
}

/// Waits until the Deployment has all its replicas, updated and available.
///
/// # Errors
/// [`kubeon_wire::Category::Timeout`] says how many it has and what holds its pods up.
pub(super) fn deployment_available(job: &Job<'_>, namespace: &str, name: &str) -> Result<(), StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    crate::api::check_path(&format!("{path}/{name}"))?;
    let mut seen = Deployment { name: name.to_owned(), seen: None, selector: None };
    let query = format!("&fieldSelector=metadata.name%3D{name}");
    watch(job, &api, &path, &query, &mut seen).map_err(|failure| {
        let pods = seen.selector.as_ref().and_then(|selector| pods(&api, namespace, selector));
        let cause = pods.map_or(failure.cause.clone(), |pods| format!("{}: {pods}", failure.cause));
        StepFailure { cause, ..failure }
    })
}

/// What is awaited, as far as it was seen.
pub(super) trait Awaited {
    /// A watch begins: what was seen before may be gone.
    fn begin(&mut self);
    /// Takes an event; tells whether all is well.
    fn see(&mut self, event: &WatchEvent) -> bool;
    /// What is missing.
    fn missing(&self) -> String;
}

pub(super) fn watch(
    job: &Job<'_>,
    api: &Api,
    path: &str,
    query: &str,
    awaited: &mut dyn Awaited,
) -> Result<(), StepFailure> {
    let mut watched = false;
    loop {
        let time = job.left().min(ROUND);
        let mut last = None;
        if !time.is_zero() {
            awaited.begin();
            match api.watch(path, query, time, &mut |event| awaited.see(event)) {
                Ok(true) => return Ok(()),
                Ok(false) => watched = true,
                Err(why) => last = Some(why),
            }
        }
        let seen = || match &last {
            Some(why) if !watched => format!("the API server on this host does not answer: {why}"),
            Some(why) => format!("{}; the API server last said: {why}", awaited.missing()),
            None => awaited.missing(),
        };
        if job.left().is_zero() {
            return Err(crate::failure::of(Category::Timeout, seen()));
        }
        job.pause(AGAIN, seen)?;
    }
}

/// Nodes by name; `None` once ready, else why not.
pub(super) struct Nodes {
    wanted: BTreeMap<String, Option<String>>,
}

impl Nodes {
    pub(super) fn new(nodes: &[HostName]) -> Self {
        let unseen = |node: &HostName| (node.to_string(), Some(String::new()));
        Self { wanted: nodes.iter().map(unseen).collect() }
    }
}

impl Awaited for Nodes {
    fn begin(&mut self) {
        for why in self.wanted.values_mut().filter(|why| why.is_none()) {
            *why = Some(String::new());
        }
    }

    fn see(&mut self, event: &WatchEvent) -> bool {
        let name = event.object["metadata"]["name"].as_str().unwrap_or_default();
        if let Some(why) = self.wanted.get_mut(name) {
            *why = match event.kind.as_str() {
                "DELETED" => Some(String::new()),
                _ => not_ready(&event.object),
            };
        }
        self.wanted.values().all(Option::is_none)
    }

    fn missing(&self) -> String {
        let mut text = String::new();
        for (name, why) in self.wanted.iter().filter_map(|(name, why)| Some((name, why.as_ref()?))).take(5) {
            let gap = if text.is_empty() { "" } else { "; " };
            let said = match why.as_str() {
                "" => write!(text, "{gap}node {name} has not joined"),
                why => write!(text, "{gap}node {name} is not Ready: {why}"),
            };
            // Writing to a text cannot fail.
            let _ = said;
        }
        text
    }
}

fn not_ready(node: &Value) -> Option<String> {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.and_then(|list| list.iter().find(|condition| condition["type"] == "Ready"));
    match ready {
        Some(ready) if ready["status"] == "True" => None,
        Some(ready) => {
            Some(ready["message"].as_str().unwrap_or("no reason given").chars().take(300).collect())
        }
        None => Some("its kubelet has not reported".to_owned()),
    }
}

pub(super) struct Deployment {
    name: String,
    seen: Option<String>,
    selector: Option<String>,
}

impl Deployment {
    #[cfg(test)]
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), seen: None, selector: None }
    }
}

impl Awaited for Deployment {
    fn begin(&mut self) {}

    fn see(&mut self, event: &WatchEvent) -> bool {
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
        let of = &self.name;
        self.seen = Some(match event.kind.as_str() {
            "DELETED" => format!("Deployment {of} was deleted"),
            _ if all > updated => format!("Deployment {of} still has {} old replicas", all - updated),
            _ => format!("Deployment {of} has {available} of {wanted} replicas available"),
        });
        false
    }

    fn missing(&self) -> String {
        self.seen.clone().unwrap_or_else(|| format!("Deployment {} does not exist", self.name))
    }
}

/// What holds the pods up, in the kubelet's or the scheduler's words.
fn pods(api: &Api, namespace: &str, selector: &str) -> Option<String> {
    let selector = selector.replace('=', "%3D").replace(',', "%2C").replace('/', "%2F");
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
    let pods: Value = serde_json::from_str(&api.get(&path, LAST_LOOK).ok()?.body).ok()?;
    pods["items"].as_array()?.iter().find_map(|pod| {
        let why = waiting(&pod["status"])?;
        Some(format!("pod {} {why}", pod["metadata"]["name"].as_str().unwrap_or_default()))
    })
}

fn waiting(status: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().map(|text| text.chars().take(200).collect::<String>());
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
