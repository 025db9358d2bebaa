//! Results that Jobs report. They never change anything: an answer only says whether the status of the operation agrees.
//!
//! A runner calls while its Job still runs, so its own condition has the result before the operator has decided it. Its token ends
//! with its pod; each replica remembers for itself which tokens were used, and none accepts a callback after the operation has ended.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use http::HeaderMap;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::Api;
use kubeon_api::kubeonkube::{ClusterOperationStatus, OperationResult};
use kubeon_api::{ClusterOperation, ConditionStatus, Operation, labels};
use kubeon_operations::condition::{self, NOTHING_TO_DO, PROGRESSING};
use kubeon_operations::names;
use kubeon_rest::v1::{CallbackBody, Envelope};

use super::cluster::phase_of;
use super::envelope::{EnvelopeError, EnvelopeReply, read_body};
use crate::caller::bearer_token;
use crate::gateway::Gateway;
use crate::request_error::RequestError;

/// The namespace of a callback that names none.
const DEFAULT_NAMESPACE: &str = "default";
/// How long after the end of its operation a callback may arrive.
const LATE_AFTER: SignedDuration = SignedDuration::from_secs(60);

type Reply = Result<EnvelopeReply, EnvelopeError>;

/// A kind of callback: the operation that it is about, and what is expected to go on.
#[derive(Clone, Copy)]
struct CallbackKind {
    operation: Operation,
    phase: &'static str,
}

macro_rules! callback {
    ($name:ident, $id:literal, $path:literal, $operation:ident, $phase:literal, $doc:literal) => {
        #[doc = $doc]
        #[utoipa::path(post, path = $path, tag = "v1", operation_id = $id, request_body = CallbackBody,
            params(("region" = String, Path), ("name" = String, Path)),
            responses((status = 200, body = Envelope), (status = 400, body = Envelope), (status = 401, body = Envelope),
                (status = 409, body = Envelope)))]
        pub(super) async fn $name(
            State(gateway): State<Gateway>,
            Path(path): Path<(String, String)>,
            headers: HeaderMap,
            body: Bytes,
        ) -> Reply {
            let kind = CallbackKind { operation: Operation::$operation, phase: $phase };
            answer(&gateway, kind, path.1, &headers, &body).await
        }
    };
}

callback!(
    create,
    "v1CreateCallback",
    "/api/v1/region/{region}/cluster/{name}/create/callback",
    Creating,
    "creating",
    "The result of a creation."
);
callback!(
    scale_up,
    "v1ScaleUpCallback",
    "/api/v1/region/{region}/cluster/{name}/scaleup/callback",
    ScalingUp,
    "scaling",
    "The result of adding workers."
);
callback!(
    scale_down,
    "v1ScaleDownCallback",
    "/api/v1/region/{region}/cluster/{name}/scaledown/callback",
    ScalingDown,
    "scaling",
    "The result of removing workers."
);
callback!(
    delete,
    "v1DeleteCallback",
    "/api/v1/region/{region}/cluster/{name}/delete/callback",
    Terminating,
    "terminating",
    "The result of a deletion."
);

async fn answer(
    gateway: &Gateway,
    kind: CallbackKind,
    name: String,
    headers: &HeaderMap,
    body: &Bytes,
) -> Reply {
    let token = bearer_token(headers)?
        .ok_or_else(|| RequestError::unauthorized("a callback needs the token of its operation"))?;
    let body: CallbackBody = read_body(body)?;
    if !body.name.is_empty() && body.name != name {
        return Err(
            RequestError::bad(format!("name: the body says {:?}, the path {name:?}", body.name)).into()
        );
    }
    let namespace = if body.namespace.is_empty() { DEFAULT_NAMESPACE } else { &body.namespace };
    let operations = operations_of(gateway, namespace, &name);
    let audiences = operations.iter().map(|operation| audience(operation)).collect();
    let found = gateway.tokens.audiences(&token, audiences).await?;
    let Some(operation) = operations.iter().find(|operation| found.contains(&audience(operation))) else {
        return Err(RequestError::unauthorized("the token belongs to no operation of this cluster").into());
    };
    let is_latest = operations.first().is_some_and(|latest| latest.uid() == operation.uid());
    let requested = operation.spec.main.action == kind.operation.as_str();
    if !is_latest || !requested {
        return Err(EnvelopeError::conflict(format!(
            "the token belongs to operation {} ({}), which this callback is not about",
            operation.name_any(),
            operation.spec.main.action
        )));
    }
    // The runner writes the status before it calls, so the status is read from the API server, not from a watch.
    let api: Api<ClusterOperation> = Api::all(gateway.meta_api.own.clone());
    let found = api.get(&operation.name_any()).await.map_err(RequestError::from)?;
    let status = found.status.unwrap_or_default();
    if gateway.tokens.was_used(&token) || is_over(&status, Timestamp::now()) {
        let phase = gateway.fleet.clusters.get(namespace, &name).map_or("", |cluster| phase_of(&cluster));
        let text =
            format!("job timeout or callback is already done.Current phase({phase}) not is {}", kind.phase);
        return Err(RequestError::bad(text).into());
    }
    require_result(operation, &status, body.success)?;
    gateway.tokens.use_once(&token).await;
    Ok(EnvelopeReply::success())
}

/// The newest operations of a cluster, the newest first.
fn operations_of(gateway: &Gateway, namespace: &str, cluster: &str) -> Vec<Arc<ClusterOperation>> {
    /// The operator keeps fewer in its history.
    const MOST: usize = 100;
    let mut operations = gateway.fleet.operations.select(None, |operation| {
        operation.labels().get(labels::DERIVED_NAMESPACE).is_some_and(|of| of == namespace)
            && operation.spec.cluster == cluster
    });
    operations.sort_by_key(|operation| std::cmp::Reverse(operation.creation_timestamp()));
    operations.truncate(MOST);
    operations
}

fn audience(operation: &ClusterOperation) -> String {
    names::callback_audience(operation.metadata.uid.as_deref().unwrap_or_default())
}

/// Whether the operation ended so long ago that no runner can be about to call.
fn is_over(status: &ClusterOperationStatus, now: Timestamp) -> bool {
    status.end_time.as_ref().is_some_and(|end| now.duration_since(end.0) > LATE_AFTER)
}

/// The result in the status: what the operator decided, else what the runner wrote before its Job ended.
fn result_in(status: &ClusterOperationStatus) -> Option<OperationResult> {
    let decided = status.status.filter(|result| *result != OperationResult::Running);
    let ended = condition::find(&status.conditions, PROGRESSING)
        .filter(|progressing| progressing.status == ConditionStatus::False);
    let by_runner = ended.map(|progressing| {
        let good = [OperationResult::Succeeded.as_str(), NOTHING_TO_DO];
        if good.contains(&progressing.reason.as_str()) {
            OperationResult::Succeeded
        } else {
            OperationResult::Failed
        }
    });
    decided.or(by_runner).or(status.status)
}

fn require_result(
    operation: &ClusterOperation,
    status: &ClusterOperationStatus,
    success: bool,
) -> Result<(), EnvelopeError> {
    let result = result_in(status);
    let reported = if success { OperationResult::Succeeded } else { OperationResult::Failed };
    if result == Some(reported) {
        return Ok(());
    }
    let is = result.map_or("Waiting", OperationResult::as_str);
    Err(EnvelopeError::conflict(format!(
        "the status of operation {} is {is}, the callback says {}",
        operation.name_any(),
        reported.as_str()
    )))
}
