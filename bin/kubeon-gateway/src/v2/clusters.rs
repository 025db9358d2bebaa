//! Clusters: lists and reads from the gateway's watches, writes as the caller.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, GetParams};
use kube::core::Request;
use kubeon_api::{KubernetesCluster, Operation, Phase, labels};
use kubeon_rest::{ClusterDetail, ClusterView, HostView, Page, Problem};
use serde_json::{Value, json};

use super::declared::merge_patch;
use super::problem::ProblemError;
use super::query::{ClusterQuery, HostQuery, PageRequest, Parameters, PlaceRequest};
use super::view::{cluster_detail, cluster_summary, hosts as hosts_of};
use super::writes::{self, PatchTarget, created, patched};
use crate::access::ReadAccess;
use crate::caller::Caller;
use crate::fleet::key_of;
use crate::gateway::Gateway;
use crate::namespaces::is_dns_label;
use crate::request_error::RequestError;

/// All clusters.
#[utoipa::path(get, path = "/api/v2/clusters", tag = "clusters", operation_id = "listAllClusters", params(ClusterQuery),
    responses((status = 200, body = Page<ClusterView>), (status = "default", body = Problem)))]
pub(super) async fn list_all(
    State(gateway): State<Gateway>,
    caller: Caller,
    Parameters(query): Parameters<ClusterQuery>,
) -> Result<Json<Page<ClusterView>>, ProblemError> {
    Ok(Json(listed(&gateway, &caller, "", &query).await?))
}

/// The clusters in a namespace.
#[utoipa::path(get, path = "/api/v2/namespaces/{namespace}/clusters", tag = "clusters", operation_id = "listClusters",
    params(("namespace" = String, Path), ClusterQuery),
    responses((status = 200, body = Page<ClusterView>), (status = "default", body = Problem)))]
pub(super) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(namespace): Path<String>,
    Parameters(query): Parameters<ClusterQuery>,
) -> Result<Json<Page<ClusterView>>, ProblemError> {
    require_names(&[("namespace", &namespace)])?;
    Ok(Json(listed(&gateway, &caller, &namespace, &query).await?))
}

async fn listed(
    gateway: &Gateway,
    caller: &Caller,
    namespace: &str,
    query: &ClusterQuery,
) -> Result<Page<ClusterView>, RequestError> {
    gateway.access.require(&caller.identity, &ReadAccess::clusters("list", namespace, "")).await?;
    let page = PageRequest::new(query.limit, query.r#continue.as_ref())?;
    let found = gateway.fleet.clusters.select(page.after.as_ref(), |cluster| {
        let phase = cluster.status.as_ref().and_then(|status| status.phase).map(Phase::as_str);
        let region = cluster.spec.cluster.region.as_ref().map(ToString::to_string);
        (namespace.is_empty() || cluster.metadata.namespace.as_deref() == Some(namespace))
            && query.phase.as_deref().is_none_or(|wanted| phase == Some(wanted))
            && query.region.as_ref().is_none_or(|wanted| region.as_ref() == Some(wanted))
    });
    Ok(page.page(&found, |cluster| key_of(cluster.as_ref()), |cluster| cluster_summary(cluster)))
}

/// One cluster.
#[utoipa::path(get, path = "/api/v2/namespaces/{namespace}/clusters/{name}", tag = "clusters", operation_id = "getCluster",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ClusterDetail), (status = "default", body = Problem)))]
pub(super) async fn read(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
) -> Result<Json<ClusterDetail>, ProblemError> {
    let cluster = found(&gateway, &caller, &path).await?;
    Ok(Json(cluster_detail(&cluster)))
}

/// The hosts of a cluster: as they were observed, else as they are declared.
#[utoipa::path(get, path = "/api/v2/namespaces/{namespace}/clusters/{name}/hosts", tag = "clusters", operation_id = "listHosts",
    params(("namespace" = String, Path), ("name" = String, Path), HostQuery),
    responses((status = 200, body = Page<HostView>), (status = "default", body = Problem)))]
pub(super) async fn hosts(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
    Parameters(query): Parameters<HostQuery>,
) -> Result<Json<Page<HostView>>, ProblemError> {
    let cluster = found(&gateway, &caller, &path).await?;
    let page = PlaceRequest::new(query.limit, query.r#continue.as_ref())?;
    let has_role = |host: &HostView, wanted: &str| {
        host.role.as_ref().is_some_and(|roles| roles.split(',').any(|role| role == wanted))
    };
    let is_wanted = |host: &HostView| {
        query.role.as_ref().is_none_or(|role| has_role(host, role))
            && query.ready.is_none_or(|ready| host.ready == Some(ready))
    };
    Ok(Json(page.page(hosts_of(&cluster).into_iter(), is_wanted)))
}

async fn found(
    gateway: &Gateway,
    caller: &Caller,
    (namespace, name): &(String, String),
) -> Result<std::sync::Arc<KubernetesCluster>, RequestError> {
    require_names(&[("namespace", namespace), ("name", name)])?;
    gateway.access.require(&caller.identity, &ReadAccess::clusters("get", namespace, name)).await?;
    gateway.fleet.clusters.get(namespace, name).ok_or_else(|| {
        RequestError::absent(format!("there is no KubernetesCluster {name} in namespace {namespace}"))
    })
}

/// Declares a cluster: the body is a `KubernetesCluster`. Its apiVersion, kind and namespace may be left out.
#[utoipa::path(post, path = "/api/v2/namespaces/{namespace}/clusters", tag = "clusters", operation_id = "createCluster",
    request_body = ref("#/components/schemas/KubernetesCluster"), params(("namespace" = String, Path)),
    responses((status = 201, body = ClusterDetail), (status = "default", body = Problem)))]
pub(super) async fn create(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(namespace): Path<String>,
    body: Bytes,
) -> Result<Response, ProblemError> {
    require_names(&[("namespace", &namespace)])?;
    let list = format!("/api/v2/namespaces/{namespace}/clusters");
    Ok(created::<KubernetesCluster, _>((&gateway, &caller), (Some(&namespace), &list), &body, cluster_detail)
        .await?)
}

/// Changes a cluster with a JSON merge patch. Only labels, annotations and the spec can be changed.
#[utoipa::path(patch, path = "/api/v2/namespaces/{namespace}/clusters/{name}", tag = "clusters", operation_id = "patchCluster",
    request_body(content = ref("#/components/schemas/KubernetesClusterPatch"), content_type = "application/merge-patch+json"),
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ClusterDetail), (status = "default", body = Problem)))]
pub(super) async fn patch(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<ClusterDetail>, ProblemError> {
    require_names(&[("namespace", &namespace), ("name", &name)])?;
    let patch = merge_patch(&headers, &body)?;
    let changed = patched::<KubernetesCluster>((&gateway, &caller), target(&namespace, &name), patch).await?;
    Ok(Json(cluster_detail(&changed)))
}

/// Plans a change: the body is a JSON merge patch of the cluster. Nothing is changed on hosts before the operation with the plan
/// is approved.
#[utoipa::path(post, path = "/api/v2/namespaces/{namespace}/clusters/{name}/plan", tag = "clusters", operation_id = "planCluster",
    request_body(content = ref("#/components/schemas/KubernetesClusterPatch"), content_type = "application/merge-patch+json"),
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 202, body = ClusterDetail), (status = "default", body = Problem)))]
pub(super) async fn plan(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ProblemError> {
    require_names(&[("namespace", &namespace), ("name", &name)])?;
    let mut patch = merge_patch(&headers, &body)?;
    let spec = patch.as_object_mut().map(|fields| fields.entry("spec").or_insert_with(|| json!({})));
    let Some(Value::Object(spec)) = spec else {
        return Err(RequestError::bad("spec: it is not an object; send the fields that change").into());
    };
    spec.insert("plan".to_owned(), json!(true));
    let changed = patched::<KubernetesCluster>((&gateway, &caller), target(&namespace, &name), patch).await?;
    Ok((StatusCode::ACCEPTED, Json(cluster_detail(&changed))).into_response())
}

/// Deletes a cluster: the operator takes its hosts down first, unless `spec.deletionPolicy` is `Retain`.
#[utoipa::path(delete, path = "/api/v2/namespaces/{namespace}/clusters/{name}", tag = "clusters", operation_id = "deleteCluster",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 202, description = "the deletion began"), (status = "default", body = Problem)))]
pub(super) async fn delete(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<StatusCode, ProblemError> {
    require_names(&[("namespace", &namespace), ("name", &name)])?;
    let request = requests(&namespace).delete(&name, &DeleteParams::background());
    gateway.meta_api.send::<Value>(&caller, request.map_err(RequestError::from)?).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Repeats the operation that failed.
#[utoipa::path(post, path = "/api/v2/namespaces/{namespace}/clusters/{name}/retry", tag = "clusters", operation_id = "retryCluster",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 202, body = ClusterDetail), (status = "default", body = Problem)))]
pub(super) async fn retry(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, ProblemError> {
    require_names(&[("namespace", &namespace), ("name", &name)])?;
    let request = requests(&namespace).get(&name, &GetParams::default()).map_err(RequestError::from)?;
    let cluster: KubernetesCluster = gateway.meta_api.send(&caller, request).await?;
    let Some(operation) = failed_operation(&cluster) else {
        let phase = cluster.status.as_ref().and_then(|status| status.phase).map_or("empty", Phase::as_str);
        return Err(RequestError::conflict(format!("phase of {name} is {phase}: no operation failed")).into());
    };
    let patch = json!({"metadata": {
        "resourceVersion": cluster.resource_version(),
        "annotations": {labels::OPERATION: operation.as_str()},
    }});
    let changed = patched::<KubernetesCluster>((&gateway, &caller), target(&namespace, &name), patch).await?;
    Ok((StatusCode::ACCEPTED, Json(cluster_detail(&changed))).into_response())
}

/// The operation that failed, as the annotation requests it.
fn failed_operation(cluster: &KubernetesCluster) -> Option<Operation> {
    let failed = cluster.status.as_ref().and_then(|status| status.phase) == Some(Phase::Failed);
    let word = cluster.annotations().get(labels::OPERATION).and_then(|word| word.parse().ok());
    if !failed {
        return None;
    }
    Some(match word {
        _ if cluster.metadata.deletion_timestamp.is_some() => Operation::Terminating,
        Some(Operation::ScalingUp | Operation::ScaleUpFailed) => Operation::ScalingUp,
        Some(Operation::ScalingDown | Operation::ScaleDownFailed) => Operation::ScalingDown,
        Some(Operation::Updating | Operation::UpdateFailed) => Operation::Updating,
        Some(Operation::Rollbacking | Operation::RollbackFailed) => Operation::Rollbacking,
        Some(Operation::Renewing | Operation::RenewFailed) => Operation::Renewing,
        Some(Operation::Repairing | Operation::RepairFailed) => Operation::Repairing,
        _ => Operation::Creating,
    })
}

fn requests(namespace: &str) -> Request {
    writes::requests::<KubernetesCluster>(Some(namespace))
}

fn target<'a>(namespace: &'a str, name: &'a str) -> PatchTarget<'a> {
    PatchTarget { namespace: Some(namespace), name, uid: None }
}

fn require_names(names: &[(&str, &str)]) -> Result<(), RequestError> {
    match names.iter().find(|(_, name)| !is_dns_label(name)) {
        None => Ok(()),
        Some((what, name)) => Err(RequestError::bad(format!(
            "{what}: {name:?} is not a DNS label: use 1 to 63 of a-z, 0-9 and '-', a letter or digit first and last"
        ))),
    }
}
