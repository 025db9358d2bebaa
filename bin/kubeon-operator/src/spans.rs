//! The operator's part of an operation's trace: its reconciles, and the operation itself when it ended. The
//! Job continues the trace.

use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_operations::{Change, ClusterChanges, NewObject, ObjectKind, QueueKey, Write, names};
use kubeon_traces::{Span, TraceParent, Traces};

/// The annotation of a Job with the parent of its trace, for users and other runners.
const ANNOTATION: &str = "kubeon.io/traceparent";

/// Records spans of operations.
pub(crate) struct OperatorSpans {
    traces: Traces,
    /// The collector's address, for the Jobs.
    collector: String,
}

/// A reconcile whose writes are being sent.
pub(crate) struct ReconcileSpan {
    operation: Arc<ClusterOperation>,
    ids: TraceParent,
    started: SystemTime,
    writes: String,
    /// The result and reason of the operation, if it ends with this reconcile.
    end: Option<(OperationResult, Option<String>)>,
}

impl OperatorSpans {
    pub(crate) fn new(traces: Traces, collector: String) -> Self {
        Self { traces, collector }
    }

    /// Starts the span of a reconcile, and adds the trace to a Job that is created. `None` when the writes
    /// belong to no operation.
    pub(crate) fn start(
        &self,
        changes: &mut ClusterChanges,
        operations: &[Arc<ClusterOperation>],
    ) -> Option<ReconcileSpan> {
        let writes: Vec<&Write> = changes.stages.iter().flatten().collect();
        let is_affected = |operation: &&Arc<ClusterOperation>| {
            let name = operation.metadata.name.as_deref();
            writes.iter().any(|write| {
                (write.target.kind == ObjectKind::Operation && Some(write.target.name.as_str()) == name)
                    || (write.operation.is_some() && write.operation.as_deref() == name)
            })
        };
        let operation = Arc::clone(operations.iter().find(is_affected)?);
        let ids = root_span(operation.metadata.uid.as_deref()?)?;
        let end = writes.iter().find_map(|write| end(write, &operation));
        let writes = writes.iter().map(|write| write.why.as_str()).collect::<Vec<_>>().join("; ");
        for write in changes.stages.iter_mut().flatten() {
            if let Change::Create(NewObject::Job(job)) = &mut write.change {
                add_trace(job, &ids, &self.collector);
            }
        }
        Some(ReconcileSpan { operation, ids, started: SystemTime::now(), writes, end })
    }

    /// Ends the span of a reconcile, with the error if it failed.
    pub(crate) fn ended(&self, queue_key: &QueueKey, changes: ReconcileSpan, failure: Option<String>) {
        let ReconcileSpan { operation, ids, started, writes, end } = changes;
        let now = SystemTime::now();
        let name = operation.metadata.name.clone().unwrap_or_default();
        let attributes = vec![("kubeon.queue_key", queue_key.to_string()), ("kubeon.operation", name)];
        let failed = failure.is_some();
        self.traces.send(Span {
            ids: ids.child(),
            parent: Some(ids),
            name: "reconcile",
            started,
            ended: now,
            attributes: attributes.iter().cloned().chain([("kubeon.writes", writes)]).collect(),
            failure,
        });
        let Some((result, reason)) = end.filter(|_| !failed) else { return };
        let created = operation.metadata.creation_timestamp.as_ref().map(|time| SystemTime::from(time.0));
        let action = operation.spec.main.action_type.to_string();
        let more = [("kubeon.action_type", action), ("kubeon.result", result.to_string())];
        self.traces.send(Span {
            ids,
            parent: None,
            name: "operation",
            started: created.unwrap_or(started),
            ended: now,
            attributes: attributes.into_iter().chain(more).collect(),
            failure: reason,
        });
    }

    /// Sends the remaining spans.
    pub(crate) async fn end(&self) {
        let traces = self.traces.clone();
        match tokio::task::spawn_blocking(move || traces.end()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "traces"),
            Err(error) => tracing::warn!(%error, "traces"),
        }
    }
}

/// The root span of an operation, computed from its UID.
fn root_span(uid: &str) -> Option<TraceParent> {
    let trace: String = uid.chars().filter(|letter| *letter != '-').collect();
    format!("00-{trace}-{}-01", names::hash(&[uid.as_bytes()], 16)).parse().ok()
}

/// The result and reason of the operation, if this write ends it.
fn end(write: &Write, operation: &ClusterOperation) -> Option<(OperationResult, Option<String>)> {
    let Change::Status(patch) = &write.change else { return None };
    let own = write.target.kind == ObjectKind::Operation
        && Some(&write.target.name) == operation.metadata.name.as_ref();
    let result = patch.end().filter(|_| own)?;
    let reason = patch.text("reason").map(str::to_owned);
    let failed = (result == OperationResult::Failed).then(|| reason.unwrap_or_else(|| "failed".to_owned()));
    Some((result, failed))
}

fn add_trace(job: &mut Job, ids: &TraceParent, collector: &str) {
    let text = ids.to_string();
    annotate(&mut job.metadata, &text);
    let Some(template) = job.spec.as_mut().map(|spec| &mut spec.template) else { return };
    annotate(template.metadata.get_or_insert_default(), &text);
    // An address with credentials is not given to Jobs.
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

fn annotate(meta: &mut ObjectMeta, ids: &str) {
    meta.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), ids.to_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_trace_of_an_operation_is_computed_from_its_uid_and_continued_by_its_job() {
        let uid = "0af76519-16cd-43dd-8448-eb211c80319c";
        let ids = root_span(uid).unwrap();
        assert_eq!(root_span(uid), Some(ids));
        assert!(ids.to_string().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
        assert_eq!(root_span("no uid"), None);
        let job = json!({"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
        let mut job: Job = serde_json::from_value(job).unwrap();
        add_trace(&mut job, &ids, "http://collector:4318");
        let job = json!(job);
        let env = &job["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!((&env[0]["name"], &env[0]["value"]), (&json!("TRACEPARENT"), &json!(ids.to_string())));
        assert_eq!(job["spec"]["template"]["metadata"]["annotations"][ANNOTATION], json!(ids.to_string()));
    }
}
