//! What the operator tells of an operation's trace: its turns, the operation itself when it ended, and where its Job goes on.

use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_api::ClusterOperation;
use kubeon_operations::{Change, ClusterChanges, NewObject, ObjectKind, QueueKey, Write, names};
use kubeon_traces::{Span, TraceParent, Traces};

/// Where a Job's trace goes on, for people and for other runners.
const ANNOTATION: &str = "kubeon.io/traceparent";

/// Tells spans of operations.
pub(crate) struct OperatorSpans {
    traces: Traces,
    /// The collector's address, for the Jobs.
    collector: String,
}

/// A turn that is being carried out.
pub(crate) struct Begun {
    operation: Arc<ClusterOperation>,
    place: TraceParent,
    begun: SystemTime,
    writes: String,
    /// How the operation ends with this turn: the word and the reason.
    end: Option<(String, Option<String>)>,
}

impl OperatorSpans {
    pub(crate) fn new(traces: Traces, collector: String) -> Self {
        Self { traces, collector }
    }

    /// The turn begins: its Job, if it makes one, learns where the trace goes on. Nothing when it is about no operation.
    pub(crate) fn begin(
        &self,
        changes: &mut ClusterChanges,
        operations: &[Arc<ClusterOperation>],
    ) -> Option<Begun> {
        let writes: Vec<&Write> = changes.stages.iter().flatten().collect();
        let about = |operation: &&Arc<ClusterOperation>| {
            let name = operation.metadata.name.as_deref();
            writes.iter().any(|write| {
                (write.target.kind == ObjectKind::Operation && Some(write.target.name.as_str()) == name)
                    || (write.operation.is_some() && write.operation.as_deref() == name)
            })
        };
        let operation = Arc::clone(operations.iter().find(about)?);
        let place = root(operation.metadata.uid.as_deref()?)?;
        let end = writes.iter().find_map(|write| end(write, &operation));
        let writes = writes.iter().map(|write| write.why.as_str()).collect::<Vec<_>>().join("; ");
        for write in changes.stages.iter_mut().flatten() {
            if let Change::Create(NewObject::Job(job)) = &mut write.change {
                mark(job, &place, &self.collector);
            }
        }
        Some(Begun { operation, place, begun: SystemTime::now(), writes, end })
    }

    /// The turn ended, with the error if it failed.
    pub(crate) fn ended(&self, queue_key: &QueueKey, changes: Begun, failure: Option<String>) {
        let Begun { operation, place, begun, writes, end } = changes;
        let now = SystemTime::now();
        let name = operation.metadata.name.clone().unwrap_or_default();
        let about = vec![("kubeon.lane", queue_key.to_string()), ("kubeon.operation", name)];
        let failed = failure.is_some();
        self.traces.tell(Span {
            place: place.child(),
            parent: Some(place),
            name: "turn",
            begun,
            ended: now,
            about: about.iter().cloned().chain([("kubeon.writes", writes)]).collect(),
            failure,
        });
        let Some((word, reason)) = end.filter(|_| !failed) else { return };
        let made = operation.metadata.creation_timestamp.as_ref().map(|time| SystemTime::from(time.0));
        let action = operation.spec.main.action_type.to_string();
        let more = [("kubeon.action_type", action), ("kubeon.result", word)];
        self.traces.tell(Span {
            place,
            parent: None,
            name: "operation",
            begun: made.unwrap_or(begun),
            ended: now,
            about: about.into_iter().chain(more).collect(),
            failure: reason,
        });
    }

    /// Sends what is left.
    pub(crate) async fn end(&self) {
        let traces = self.traces.clone();
        match tokio::task::spawn_blocking(move || traces.end()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "traces"),
            Err(error) => tracing::warn!(%error, "traces"),
        }
    }
}

/// The place of an operation, which anybody can find who knows its UID.
fn root(uid: &str) -> Option<TraceParent> {
    let trace: String = uid.chars().filter(|letter| *letter != '-').collect();
    format!("00-{trace}-{}-01", names::hash(&[uid.as_bytes()], 16)).parse().ok()
}

/// How the operation ends by this write, if it does.
fn end(write: &Write, operation: &ClusterOperation) -> Option<(String, Option<String>)> {
    let Change::Status(patch) = &write.change else { return None };
    let own = write.target.kind == ObjectKind::Operation
        && Some(&write.target.name) == operation.metadata.name.as_ref();
    let word = patch.text("status").filter(|word| own && ["Succeeded", "Failed"].contains(word))?;
    let reason = patch.text("reason").map(str::to_owned);
    let failed = (word == "Failed").then(|| reason.unwrap_or_else(|| "failed".to_owned()));
    Some((word.to_owned(), failed))
}

fn mark(job: &mut Job, place: &TraceParent, collector: &str) {
    let text = place.to_string();
    annotate(&mut job.metadata, &text);
    let Some(template) = job.spec.as_mut().map(|spec| &mut spec.template) else { return };
    annotate(template.metadata.get_or_insert_default(), &text);
    // An address with credentials stays with the operator.
    let collector = Some(collector).filter(|collector| !collector.contains('@'));
    let variable = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    };
    for container in template.spec.iter_mut().flat_map(|pod| &mut pod.containers) {
        let env = container.env.get_or_insert_default();
        env.push(variable("TRACEPARENT", &text));
        env.extend(collector.map(|url| variable("OTEL_EXPORTER_OTLP_ENDPOINT", url)));
    }
}

fn annotate(meta: &mut ObjectMeta, place: &str) {
    meta.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), place.to_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operation_is_found_by_its_uid_and_its_job_goes_on_there() {
        let uid = "0af76519-16cd-43dd-8448-eb211c80319c";
        let place = root(uid).unwrap();
        assert_eq!(root(uid), Some(place));
        assert!(place.to_string().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
        assert_eq!(root("no uid"), None);
        let job = json!({"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
        let mut job: Job = serde_json::from_value(job).unwrap();
        mark(&mut job, &place, "http://collector:4318");
        let job = json!(job);
        let env = &job["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!((&env[0]["name"], &env[0]["value"]), (&json!("TRACEPARENT"), &json!(place.to_string())));
        assert_eq!(job["spec"]["template"]["metadata"]["annotations"][ANNOTATION], json!(place.to_string()));
    }
}
