//! Creating, scaling and deleting a cluster. Each is one change of its `KubernetesCluster`, written as the caller.

use axum::body::Bytes;
use axum::extract::{Path, State};
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Resource as _, ResourceExt as _};
use kubeon_api::{KubernetesCluster, LabelValue, Operation, Phase, labels};
use kubeon_rest::v1::{ClusterBody, Envelope};
use serde_json::{Map, Value, json};

use super::envelope::{EnvelopeError, EnvelopeReply, read_body};
use super::nodes::{ScaleDirection, nodes_after, unchanged_lists};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::meta_api::MANAGER;
use crate::namespaces::is_dns_label;
use crate::request_error::RequestError;

type Reply = Result<EnvelopeReply, EnvelopeError>;

/// A cluster of the caller, by the path and the body of a request.
pub(super) struct CallersCluster<'a> {
    gateway: &'a Gateway,
    caller: &'a Caller,
    region: String,
    namespace: String,
    name: String,
}

impl<'a> CallersCluster<'a> {
    /// The cluster in the caller's namespace.
    ///
    /// # Errors
    /// When a name is invalid, or the body names another cluster, region or namespace.
    pub(super) fn new(
        (gateway, caller): (&'a Gateway, &'a Caller),
        (region, name): (String, String),
        body: &ClusterBody,
    ) -> Result<Self, RequestError> {
        if !is_dns_label(&name) {
            return Err(RequestError::bad(format!(
                "{name:?} is not the name of a cluster: use 1 to 63 of a-z, 0-9 and '-', a letter or digit first and last"
            )));
        }
        region.parse::<LabelValue>().map_err(|error| RequestError::bad(format!("region: {error}")))?;
        let namespace = gateway.namespaces.of(&caller.identity).to_owned();
        let differs = |field: &str, given: &str, own: &str| {
            let other = !given.is_empty() && given != own;
            other.then(|| {
                RequestError::bad(format!("{field}: the body says {given:?}, but it must be {own:?}"))
            })
        };
        let different = differs("namespace", &body.namespace, &namespace)
            .or_else(|| differs("name", &body.name, &name))
            .or_else(|| differs("region", &body.region, &region));
        match different {
            Some(error) => Err(error),
            None => Ok(Self { gateway, caller, region, namespace, name }),
        }
    }

    /// The namespace and the name.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn requests(&self) -> Request {
        Request::new(KubernetesCluster::url_path(&(), Some(&self.namespace)))
    }

    /// The object, as it is and as it is understood.
    pub(super) async fn read(&self) -> Result<(Value, KubernetesCluster), RequestError> {
        let request = self.requests().get(&self.name, &GetParams::default())?;
        let value: Value = self.gateway.meta_api.send(self.caller, request).await?;
        let object = serde_json::from_value(value.clone()).map_err(|error| {
            RequestError::bad(format!("KubernetesCluster {} cannot be read: {error}", self.name))
        })?;
        Ok((value, object))
    }

    async fn create(&self, object: &Value) -> Result<(), RequestError> {
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let body = serde_json::to_vec(object).map_err(|error| RequestError::bad(error.to_string()))?;
        let request = self.requests().create(&parameters, body)?;
        self.gateway.meta_api.send::<Value>(self.caller, request).await?;
        Ok(())
    }

    async fn patch(&self, patch: &Value) -> Result<(), RequestError> {
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let request = self.requests().patch(&self.name, &parameters, &Patch::Merge(patch))?;
        self.gateway.meta_api.send::<Value>(self.caller, request).await?;
        Ok(())
    }

    /// Requests an operation by the annotation.
    async fn request(&self, object: &KubernetesCluster, operation: Operation) -> Result<(), RequestError> {
        self.patch(&json!({"metadata": {
            "resourceVersion": object.resource_version(),
            "annotations": {labels::OPERATION: operation.as_str()},
        }}))
        .await
    }
}

/// Creates a cluster, or creates it again after a failure.
#[utoipa::path(post, path = "/api/v1/region/{region}/cluster/{name}", tag = "v1", operation_id = "v1Create", request_body = ClusterBody,
    params(("region" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Envelope), (status = 400, body = Envelope), (status = 401, body = Envelope)))]
pub(super) async fn create(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
    body: Bytes,
) -> Reply {
    let body: ClusterBody = read_body(&body)?;
    let cluster = CallersCluster::new((&gateway, &caller), path, &body)?;
    if body.retry {
        let (_, object) = cluster.read().await?;
        require_phase(&object, &[Phase::Failed], "only in failed can be created again")?;
        cluster.request(&object, Operation::Creating).await?;
    } else {
        cluster.create(&object_of(&cluster, body)).await?;
    }
    Ok(EnvelopeReply::success())
}

/// The object that a request declares. The API server validates it.
fn object_of(cluster: &CallersCluster<'_>, body: ClusterBody) -> Value {
    let mut fields: Map<String, Value> =
        body.cluster.into_iter().filter(|(_, value)| !value.is_null()).collect();
    fields.insert("region".to_owned(), json!(cluster.region));
    if let Some(key) = body.private_ssh_key.filter(|key| !key.is_empty()) {
        let auth = fields.entry("authConfig").or_insert_with(|| json!({}));
        if let Value::Object(auth) = auth {
            auth.insert("privateSSHKey".to_owned(), json!(key));
        }
    }
    json!({
        "apiVersion": KubernetesCluster::api_version(&()),
        "kind": KubernetesCluster::kind(&()),
        "metadata": {
            "namespace": cluster.namespace,
            "name": cluster.name,
            "annotations": {labels::OPERATION: Operation::Creating.as_str(), labels::APPLIED_SPEC: ""},
        },
        "spec": {"cluster": fields},
    })
}

/// Adds workers: the body has the whole new list.
#[utoipa::path(post, path = "/api/v1/region/{region}/cluster/{name}/scaleup", tag = "v1", operation_id = "v1ScaleUp", request_body = ClusterBody,
    params(("region" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Envelope), (status = 400, body = Envelope), (status = 401, body = Envelope)))]
pub(super) async fn scale_up(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
    body: Bytes,
) -> Reply {
    scale((&gateway, &caller), path, &body, ScaleDirection::Up).await
}

/// Removes workers: the body has the whole new list.
#[utoipa::path(post, path = "/api/v1/region/{region}/cluster/{name}/scaledown", tag = "v1", operation_id = "v1ScaleDown", request_body = ClusterBody,
    params(("region" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Envelope), (status = 400, body = Envelope), (status = 401, body = Envelope)))]
pub(super) async fn scale_down(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
    body: Bytes,
) -> Reply {
    scale((&gateway, &caller), path, &body, ScaleDirection::Down).await
}

async fn scale(
    of: (&Gateway, &Caller),
    path: (String, String),
    body: &Bytes,
    direction: ScaleDirection,
) -> Reply {
    let body: ClusterBody = read_body(body)?;
    let cluster = CallersCluster::new(of, path, &body)?;
    let (value, object) = cluster.read().await?;
    require_phase(
        &object,
        &[Phase::Running, Phase::Failed],
        "only in running,failed can be start next task",
    )?;
    if body.retry {
        cluster.request(&object, direction.operation()).await?;
        return Ok(EnvelopeReply::success());
    }
    unchanged_lists(&object.spec.cluster, &body.cluster)?;
    let Some(nodes) = nodes_after(&object.spec.cluster, &body.cluster, direction)? else {
        return Ok(EnvelopeReply::success());
    };
    let list = json!({"nodeList": nodes});
    let is_nested = value.pointer("/spec/cluster").is_some();
    cluster
        .patch(&json!({
            "metadata": {
                "resourceVersion": object.resource_version(),
                "annotations": {labels::OPERATION: direction.operation().as_str()},
            },
            "spec": if is_nested { json!({"cluster": list}) } else { list },
        }))
        .await?;
    Ok(EnvelopeReply::success())
}

/// Deletes a cluster: the operator takes its hosts down first. Or tries again after a failure.
#[utoipa::path(delete, path = "/api/v1/region/{region}/cluster/{name}", tag = "v1", operation_id = "v1Delete", request_body = ClusterBody,
    params(("region" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Envelope), (status = 400, body = Envelope), (status = 401, body = Envelope)))]
pub(super) async fn delete(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
    body: Bytes,
) -> Reply {
    let body: ClusterBody = read_body(&body)?;
    let cluster = CallersCluster::new((&gateway, &caller), path, &body)?;
    let (_, object) = cluster.read().await?;
    require_phase(&object, &[Phase::Running, Phase::Failed], "only in running,failed can be delete cluster")?;
    if object.metadata.deletion_timestamp.is_none() {
        let mut how = DeleteParams::background();
        how.preconditions = Some(Preconditions { uid: object.uid(), resource_version: None });
        let request = cluster.requests().delete(&cluster.name, &how).map_err(RequestError::from)?;
        gateway.meta_api.send::<Value>(&caller, request).await?;
    }
    let annotation = json!({"metadata": {
        "uid": object.uid(),
        "annotations": {labels::OPERATION: Operation::Terminating.as_str()},
    }});
    match cluster.patch(&annotation).await {
        // The operator had nothing to take down.
        Err(error) if matches!(error.status.as_u16(), 404 | 409) && !body.retry => {
            Ok(EnvelopeReply::success())
        }
        done => Ok(done.map(|()| EnvelopeReply::success())?),
    }
}

/// The phase of a cluster as text.
pub(super) fn phase_of(object: &KubernetesCluster) -> &'static str {
    object.status.as_ref().and_then(|status| status.phase).map_or("", Phase::as_str)
}

fn require_phase(object: &KubernetesCluster, phases: &[Phase], otherwise: &str) -> Result<(), RequestError> {
    let phase = object.status.as_ref().and_then(|status| status.phase);
    if phase.is_some_and(|phase| phases.contains(&phase)) {
        return Ok(());
    }
    Err(RequestError::bad(format!("current operation is [{}],{otherwise}", phase_of(object))))
}
