//! Operations: lists, reads and logs of what the caller may see, and cancelling.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use http::{HeaderMap, StatusCode, header};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Preconditions};
use kubeon_api::{ClusterOperation, DataRef, KubernetesCluster, labels};
use kubeon_rest::{OperationDetail, OperationView, Page, Problem, StepList, StepView};
use serde_json::{Value, json};

use super::declared::merge_patch;
use super::problem::ProblemError;
use super::query::{LogQuery, OperationQuery, PageRequest, Parameters, PlaceRequest, StepQuery};
use super::view::{operation_detail, operation_summary, status_word, step};
use super::writes::{PatchTarget, created, patched, requests};
use crate::access::ReadAccess;
use crate::caller::Caller;
use crate::fleet::key_of;
use crate::gateway::Gateway;
use crate::job_log::{JobLog, LogRange, StoredSteps, step_records};
use crate::log_lines::LogPart;
use crate::request_error::RequestError;

/// Operations. Who may list clusters in a namespace may list their operations with the parameter `namespace`.
#[utoipa::path(get, path = "/api/v2/operations", tag = "operations", operation_id = "listOperations", params(OperationQuery),
    responses((status = 200, body = Page<OperationView>), (status = "default", body = Problem)))]
pub(super) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Parameters(query): Parameters<OperationQuery>,
) -> Result<Json<Page<OperationView>>, ProblemError> {
    require_operations(&gateway, &caller, "list", query.namespace.as_deref()).await?;
    let page = PageRequest::new(query.limit, query.r#continue.as_ref())?;
    let found = gateway.fleet.operations.select(page.after.as_ref(), |operation| {
        is_of_namespace(operation, query.namespace.as_deref())
            && query.cluster.as_ref().is_none_or(|wanted| operation.spec.cluster == *wanted)
            && query.status.as_ref().is_none_or(|wanted| status_word(operation) == *wanted)
    });
    let page =
        page.page(&found, |operation| key_of(operation.as_ref()), |operation| operation_summary(operation));
    Ok(Json(page))
}

/// An error unless the caller may see operations of clusters in this namespace, or of all clusters.
pub(super) async fn require_operations(
    gateway: &Gateway,
    caller: &Caller,
    verb: &'static str,
    namespace: Option<&str>,
) -> Result<(), RequestError> {
    let all = ReadAccess::operations(verb, "");
    match namespace {
        None => gateway.access.require(&caller.identity, &all).await,
        Some(_) if gateway.access.allows(&caller.identity, &all).await? => Ok(()),
        Some(namespace) => {
            gateway.access.require(&caller.identity, &ReadAccess::clusters(verb, namespace, "")).await
        }
    }
}

/// Whether the operation was derived from a cluster in this namespace. Only the operator writes the label.
pub(super) fn is_of_namespace(operation: &ClusterOperation, namespace: Option<&str>) -> bool {
    namespace
        .is_none_or(|wanted| operation.labels().get(labels::DERIVED_NAMESPACE).is_some_and(|of| of == wanted))
}

/// One operation.
#[utoipa::path(get, path = "/api/v2/operations/{name}", tag = "operations", operation_id = "getOperation", params(("name" = String, Path)),
    responses((status = 200, body = OperationDetail), (status = "default", body = Problem)))]
pub(super) async fn read(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<OperationDetail>, ProblemError> {
    Ok(Json(operation_detail(&*found(&gateway, &caller, &name).await?)))
}

/// An operation that the caller may see: with a right on operations, or with a right on its cluster.
async fn found(
    gateway: &Gateway,
    caller: &Caller,
    name: &str,
) -> Result<Arc<ClusterOperation>, RequestError> {
    let operation = gateway.fleet.operations.get("", name);
    let all = ReadAccess::operations("get", name);
    let of_cluster = operation.as_ref().and_then(|operation| {
        let namespace = operation.labels().get(labels::DERIVED_NAMESPACE)?;
        Some(ReadAccess::clusters("get", namespace, &operation.spec.cluster))
    });
    if let Some(of_cluster) = of_cluster
        && gateway.access.allows(&caller.identity, &of_cluster).await?
    {
        // The caller may see the cluster, and with it its operations.
    } else {
        // The same answer for a foreign operation and for one that does not exist.
        gateway.access.require(&caller.identity, &all).await?;
    }
    operation.ok_or_else(|| RequestError::absent(format!("there is no ClusterOperation {name}")))
}

/// Creates an operation of a `Cluster`: the body is a `ClusterOperation`. Its apiVersion and kind may be left out.
#[utoipa::path(post, path = "/api/v2/operations", tag = "operations", operation_id = "createOperation",
    request_body = ref("#/components/schemas/ClusterOperation"),
    responses((status = 201, body = OperationDetail), (status = "default", body = Problem)))]
pub(super) async fn create(
    State(gateway): State<Gateway>,
    caller: Caller,
    body: Bytes,
) -> Result<Response, ProblemError> {
    Ok(created::<ClusterOperation, _>(
        (&gateway, &caller),
        (None, "/api/v2/operations"),
        &body,
        operation_detail,
    )
    .await?)
}

/// Changes an operation with a JSON merge patch. An operation that has not started can be paused and continued.
#[utoipa::path(patch, path = "/api/v2/operations/{name}", tag = "operations", operation_id = "patchOperation",
    request_body(content = ref("#/components/schemas/ClusterOperationPatch"), content_type = "application/merge-patch+json"),
    params(("name" = String, Path)),
    responses((status = 200, body = OperationDetail), (status = "default", body = Problem)))]
pub(super) async fn patch(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<OperationDetail>, ProblemError> {
    let patch = merge_patch(&headers, &body)?;
    let operation = found(&gateway, &caller, &name).await?;
    let changed = patched::<ClusterOperation>((&gateway, &caller), target(&operation), patch).await?;
    Ok(Json(operation_detail(&changed)))
}

/// Deletes an operation with its Job and log. One that runs is ended first.
#[utoipa::path(delete, path = "/api/v2/operations/{name}", tag = "operations", operation_id = "deleteOperation", params(("name" = String, Path)),
    responses((status = 202, description = "the deletion began"), (status = "default", body = Problem)))]
pub(super) async fn delete(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ProblemError> {
    let operation = found(&gateway, &caller, &name).await?;
    let preconditions = Preconditions { uid: operation.uid(), resource_version: None };
    let parameters = DeleteParams::background().preconditions(preconditions);
    let request =
        requests::<ClusterOperation>(None).delete(&name, &parameters).map_err(RequestError::from)?;
    gateway.meta_api.send::<Value>(&caller, request).await?;
    Ok(StatusCode::ACCEPTED)
}

fn target(operation: &ClusterOperation) -> PatchTarget<'_> {
    let metadata = &operation.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    PatchTarget { namespace: None, name, uid: metadata.uid.as_deref() }
}

/// Ends an operation. Its hooks that always run still run.
#[utoipa::path(post, path = "/api/v2/operations/{name}/cancel", tag = "operations", operation_id = "cancelOperation", params(("name" = String, Path)),
    responses((status = 202, body = OperationDetail), (status = "default", body = Problem)))]
pub(super) async fn cancel(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ProblemError> {
    let operation = found(&gateway, &caller, &name).await?;
    let status = status_word(&operation);
    if ["Succeeded", "Failed"].contains(&status.as_str()) {
        return Err(RequestError::conflict(format!("operation {name} has already ended: {status}")).into());
    }
    let patch = json!({"spec": {"cancelled": true}});
    let changed = patched::<ClusterOperation>((&gateway, &caller), target(&operation), patch).await?;
    Ok((StatusCode::ACCEPTED, Json(operation_detail(&changed))).into_response())
}

/// Approves the plan of an operation: another operation applies it.
#[utoipa::path(post, path = "/api/v2/operations/{name}/approve", tag = "operations", operation_id = "approveOperation", params(("name" = String, Path)),
    responses((status = 202, body = OperationDetail), (status = "default", body = Problem)))]
pub(super) async fn approve(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ProblemError> {
    let operation = found(&gateway, &caller, &name).await?;
    let of_cluster = operation.labels().get(labels::DERIVED_NAMESPACE).filter(|_| operation.spec.plan);
    let status = status_word(&operation);
    let Some(namespace) = of_cluster.filter(|_| status == "Succeeded") else {
        let what = if operation.spec.plan { "its plan is not made" } else { "it makes no plan" };
        return Err(RequestError::conflict(format!("operation {name} is {status}: {what}")).into());
    };
    let cluster = PatchTarget {
        namespace: Some(namespace),
        name: &operation.spec.cluster,
        uid: operation.labels().get(labels::DERIVED_UID).map(String::as_str),
    };
    let patch = json!({"metadata": {"annotations": {labels::APPROVE: name}}});
    patched::<KubernetesCluster>((&gateway, &caller), cluster, patch).await?;
    Ok((StatusCode::ACCEPTED, Json(operation_detail(&operation))).into_response())
}

/// The log of an operation: plain text, or one event `line` for each line with the header `Accept: text/event-stream`.
///
/// A line that is longer than 64 KiB is cut and says so. One request reads 16 MiB; if more follow, the event `end`, or a last line of
/// the text, says so and how to read on with `since`. A user who reads too many logs gets 429.
#[utoipa::path(get, path = "/api/v2/operations/{name}/logs", tag = "operations", operation_id = "getOperationLogs",
    params(("name" = String, Path), LogQuery),
    responses((status = 200, body = String, content_type = "text/plain"), (status = 429, body = Problem),
        (status = "default", body = Problem)))]
pub(super) async fn logs(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(name): Path<String>,
    Parameters(query): Parameters<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, ProblemError> {
    let operation = found(&gateway, &caller, &name).await?;
    let job = job_of(&operation).ok_or_else(|| {
        RequestError::absent(format!("operation {name} has no log: its Job was not created yet"))
    })?;
    let range = LogRange {
        follow: query.follow,
        tail: query.tail.map(i64::from),
        since_seconds: query.since.map(i64::from),
    };
    let parts = JobLog::find((&gateway, &caller), &job.namespace, &job.name).await?.parts(&range).await?;
    if accepts_events(&headers) {
        let events = parts.map(|part| {
            Ok::<_, Infallible>(match part {
                Ok(LogPart::Line(line)) => Event::default().event("line").data(line),
                Ok(LogPart::End(why)) => Event::default().event("end").data(why),
                Err(error) => Event::default().event("error").data(error.detail),
            })
        });
        return Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response());
    }
    let text =
        parts.map(|part| part.map(LogPart::into_text).map_err(|error| std::io::Error::other(error.detail)));
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, Body::from_stream(text)).into_response())
}

fn job_of(operation: &ClusterOperation) -> Option<DataRef> {
    operation.status.as_ref()?.job_ref.clone()
}

/// The steps of an operation with their hosts, times, results and causes. They are recorded when its Job ends; until then
/// the operation has their number and the current one.
#[utoipa::path(get, path = "/api/v2/operations/{name}/steps", tag = "operations", operation_id = "getOperationSteps", params(("name" = String, Path), StepQuery),
    responses((status = 200, body = StepList), (status = "default", body = Problem)))]
pub(super) async fn steps(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(name): Path<String>,
    Parameters(query): Parameters<StepQuery>,
) -> Result<Json<StepList>, ProblemError> {
    let operation = found(&gateway, &caller, &name).await?;
    let page = PlaceRequest::new(query.limit, query.r#continue.as_ref())?;
    let stored = match job_of(&operation) {
        Some(job) => step_records((&gateway, &caller), &job.namespace, &job.name).await?,
        None => StoredSteps::default(),
    };
    let is_wanted = |step: &StepView| {
        let of_host = |host: &String| step.host == *host || step.name == *host;
        query.host.as_ref().is_none_or(of_host)
            && query.result.as_ref().is_none_or(|word| step.result == *word)
    };
    let complete = ["Succeeded", "Failed"].contains(&status_word(&operation).as_str());
    let Page { items, next, remaining } = page.page(stored.records.iter().map(step), is_wanted);
    Ok(Json(StepList { complete, items, next, remaining }))
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream"))
}
