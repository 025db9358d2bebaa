//! Writes to the meta cluster: the status of one operation, its Secrets and its ConfigMap.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ObjectMeta, TypeMeta};
use kube::{Client, Config, Resource, ResourceExt as _};
use kubeon_api::{ClusterOperation, labels};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::log::RunnerLog;

/// The field manager of the runner's writes.
const MANAGER: &str = labels::RUNNER_MANAGER;
/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes in a Secret: the limit is 1 MiB with the metadata, base64 does not count.
pub(crate) const LARGEST_SECRET: u64 = 1_000_000;
/// The part of a user's description that has the UID of the pod, if its token is bound to one.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// The path of the service account token in a pod.
pub(crate) const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The reason why a write failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetaError {
    /// The configuration does not allow a connection.
    #[error("cannot reach the meta cluster: {0}")]
    Config(String),
    /// It did not answer in time.
    #[error("no response within {REQUEST_TIMEOUT:?}")]
    Late,
    /// It answered with an error, or not at all.
    #[error("{0}")]
    Request(#[source] Box<kube::Error>),
}

/// The action after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The error may disappear.
    Later,
    /// Permission denied: a server that has just started may not know the roles yet.
    AFewTimes,
    /// The operator has not recorded this Job or this pod in the operation yet. Another replica will do so if it stopped.
    WhenAdopted,
    /// The error is permanent.
    Never,
}

impl MetaError {
    /// Whether and how to retry.
    #[must_use]
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Config(_) => Retry::Never,
            Self::Late => Retry::Later,
            Self::Request(error) => match **error {
                kube::Error::Api(ref status) => match status.code {
                    401 | 403 => Retry::AFewTimes,
                    400 | 404 | 405 | 413 | 415 | 422 => Retry::Never,
                    _ => Retry::Later,
                },
                _ => Retry::Later,
            },
        }
    }

    /// Whether another manager has written a field with another value.
    fn is_conflict(&self) -> bool {
        let Self::Request(error) = self else { return false };
        matches!(**error, kube::Error::Api(ref status) if status.is_conflict())
    }
}

/// An object of which only the status is applied.
#[derive(Debug, Serialize)]
struct AppliedStatus<'s> {
    #[serde(flatten)]
    types: TypeMeta,
    metadata: ObjectMeta,
    status: &'s Value,
}

/// A client of the meta cluster.
#[derive(Clone)]
pub(crate) struct MetaCluster {
    client: Client,
    log: RunnerLog,
}

impl MetaCluster {
    /// Connects with a kubeconfig, else with the pod's service account. None when there is neither.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub(crate) async fn connect(
        kubeconfig: Option<&Path>,
        log: &RunnerLog,
    ) -> Result<Option<Self>, MetaError> {
        let wrong = |error: &dyn std::error::Error| MetaError::Config(error.to_string());
        let config = match kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(file).map_err(|error| wrong(&error))?;
                let options = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(read, &options).await.map_err(|error| wrong(&error))?
            }
            None if !Path::new(TOKEN).exists() => return Ok(None),
            None => Config::incluster().map_err(|error| wrong(&error))?,
        };
        let client = Client::try_from(config).map_err(|error| wrong(&error))?;
        Ok(Some(Self { client, log: log.clone() }))
    }

    /// Applies the runner's fields of an operation's status and keeps the fields of other managers. Returns
    /// the generation of the operation from which the Job was created.
    ///
    /// # Errors
    /// When the request fails, or another manager has written one of the fields with another value.
    pub(crate) async fn write_status(
        &self,
        operation: &str,
        status: &Value,
    ) -> Result<Option<i64>, MetaError> {
        let kind = ApiResource::erase::<ClusterOperation>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let object = AppliedStatus {
            types: TypeMeta::resource::<ClusterOperation>(),
            metadata: ObjectMeta { name: Some(operation.to_owned()), ..ObjectMeta::default() },
            status,
        };
        let (params, patch) = (PatchParams::apply(MANAGER), Patch::Apply(&object));
        let answer = with_timeout(api.patch_status(operation, &params, &patch)).await?;
        Ok(job_generation(&answer))
    }

    /// Whether and how to retry a failed write of the status. A denied permission may mean that the operator has
    /// not recorded this Job in the operation yet, or still has the pod that this one replaces. A field that somebody else took
    /// stays theirs.
    pub(crate) async fn retry_of_status(&self, operation: &str, error: &MetaError) -> Retry {
        match error.retry() {
            Retry::AFewTimes if self.is_unrecorded(operation).await => Retry::WhenAdopted,
            _ if error.is_conflict() => Retry::AFewTimes,
            retry => retry,
        }
    }

    /// Whether the operation is known to have no Job in its status, or another pod than this one.
    async fn is_unrecorded(&self, operation: &str) -> bool {
        let api: Api<ClusterOperation> = Api::all(self.client.clone());
        let Ok(found) = with_timeout(api.get_status(operation)).await else { return false };
        let Some(status) = found.status.filter(|status| status.job_ref.is_some()) else { return true };
        match status.runner_pod {
            Some(recorded) => self.pod_uid().await.is_some_and(|own| own != recorded),
            None => false,
        }
    }

    /// The UID of this pod, by which the policies of the API server know it; `None` when it is not known.
    async fn pod_uid(&self) -> Option<String> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let (params, review) = (PostParams::default(), SelfSubjectReview::default());
        let answer = with_timeout(reviews.create(&params, &review)).await.ok()?;
        answer.status?.user_info?.extra?.remove(POD_UID)?.into_iter().next()
    }

    /// Writes keys of a Secret, as [`Self::save`] does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn save_secret(
        &self,
        target: &WrittenObject,
        data: BTreeMap<&str, Vec<u8>>,
    ) -> Result<(), MetaError> {
        let data = data.into_iter().map(|(key, bytes)| (key.to_owned(), ByteString(bytes))).collect();
        self.save(target, Secret { data: Some(data), ..Secret::default() }).await
    }

    /// Writes a key of a ConfigMap, as [`Self::save`] does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn save_text(
        &self,
        target: &WrittenObject,
        key: &str,
        text: String,
    ) -> Result<(), MetaError> {
        let data = BTreeMap::from([(key.to_owned(), text)]);
        self.save(target, ConfigMap { data: Some(data), ..ConfigMap::default() }).await
    }

    /// Applies the runner's fields of an object, and retries temporary errors without a limit: the caller sets the
    /// timeout.
    async fn save<K>(&self, target: &WrittenObject, mut object: K) -> Result<(), MetaError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        object.meta_mut().name = Some(target.name.clone());
        object.meta_mut().namespace = Some(target.namespace.clone());
        retried(|| self.write(&object)).await
    }

    /// Creates a ConfigMap in the namespace of this pod, unless it exists. Retries as [`Self::save`] does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn create_config_map(&self, map: &ConfigMap) -> Result<(), MetaError> {
        let api: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let create = || async {
            match with_timeout(api.create(&params, map)).await {
                Err(MetaError::Request(error)) if matches!(*error, kube::Error::Api(ref status) if status.is_already_exists()) => {
                    Ok(())
                }
                created => created.map(drop),
            }
        };
        retried(create).await
    }

    /// One attempt. The object was made for this Job. When another manager has written a field with another value, the log names
    /// manager and field, and the field is taken: what is true of the hosts must not be lost.
    async fn write<K>(&self, object: &K) -> Result<(), MetaError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default());
        let (name, params, patch) = (object.name_any(), PatchParams::apply(MANAGER), Patch::Apply(object));
        match with_timeout(api.patch(&name, &params, &patch)).await {
            Err(error) if error.is_conflict() => {
                self.log.line(&format!("{name} was changed by somebody else, and is written again: {error}"));
                with_timeout(api.patch(&name, &params.force(), &patch)).await.map(drop)
            }
            written => written.map(drop),
        }
    }
}

/// The generation that the operator observed when it created the Job, else that of the object. The spec may
/// have changed since then.
fn job_generation(operation: &DynamicObject) -> Option<i64> {
    let observed = operation.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    // The value of an object without a status is -1.
    observed.filter(|generation| *generation > 0).or(operation.metadata.generation)
}

/// The number of attempts after a denied permission: about ten seconds with the pauses.
pub(crate) const REFUSALS: u32 = 6;

/// A Secret or ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenObject {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for WrittenObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Retries a write while its error may disappear, without a limit: the caller sets the timeout.
async fn retried<F>(mut write: impl FnMut() -> F) -> Result<(), MetaError>
where
    F: Future<Output = Result<(), MetaError>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
    let mut refusals = 0;
    loop {
        let Err(error) = write().await else { return Ok(()) };
        refusals += u32::from(error.retry() == Retry::AFewTimes);
        if error.retry() == Retry::Never || refusals >= REFUSALS {
            return Err(error);
        }
        backoff.wait().await;
    }
}

async fn with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, MetaError> {
    let answer = timeout(REQUEST_TIMEOUT, request).await.map_err(|_| MetaError::Late)?;
    answer.map_err(|error| MetaError::Request(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::redactor::Redactor;

    fn meta_cluster(client: Client) -> MetaCluster {
        MetaCluster { client, log: RunnerLog::new(std::sync::Arc::new(Redactor::default())) }
    }

    /// A server on which somebody else has written the fields of the runner. It accepts a forced write.
    fn contested() -> MetaCluster {
        let api = tower::service_fn(|request: http::Request<Body>| async move {
            let forced = request.uri().query().is_some_and(|query| query.contains("force=true"));
            let conflict = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
                "message": "conflict with \"kubectl-edit\" using v1: .data.state"});
            let written = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
            let (code, body) = if forced { (200, written) } else { (409, conflict) };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        });
        meta_cluster(Client::new(api, "default"))
    }

    #[tokio::test]
    async fn a_field_of_the_status_that_somebody_else_wrote_is_not_taken() {
        let meta = contested();
        let error = meta.write_status("o", &json!({"steps": {"done": 1}})).await.unwrap_err();
        assert!(error.to_string().contains("kubectl-edit"), "{error}");
        assert_eq!(meta.retry_of_status("o", &error).await, Retry::AFewTimes);
    }

    /// A field of a Secret that somebody else wrote is named in the log and written again.
    #[tokio::test]
    async fn a_conflict_of_the_state_is_logged_and_overruled() {
        let meta = contested();
        let target = WrittenObject { kind: "Secret", namespace: "ns".into(), name: "s".into() };
        meta.save_secret(&target, BTreeMap::from([("state", b"x".to_vec())])).await.unwrap();
        let log = meta.log.recorded.last_lines();
        assert!(log.contains("s was changed by somebody else") && log.contains("kubectl-edit"), "{log}");
    }

    /// The retry of a refused write of the status by the pod with the UID `own`. Reads of the operation get this answer.
    async fn retry_after_refusal(code: u16, answer: Value) -> Retry {
        let api = tower::service_fn(move |request: http::Request<Body>| {
            let is_review = request.uri().path().ends_with("/selfsubjectreviews");
            let (code, answer) = if is_review { (201, review("own")) } else { (code, answer.clone()) };
            let body = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap()) }
        });
        let meta = meta_cluster(Client::new(api, "default"));
        let refused = kube::Error::Api(Box::new(Status::failure("no", "Forbidden").with_code(403)));
        meta.retry_of_status("o", &MetaError::Request(Box::new(refused))).await
    }

    /// What the API server knows of a pod with this UID.
    fn review(uid: &str) -> Value {
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
            "status": {"userInfo": {"username": "runner", "extra": {POD_UID: [uid]}}},
        })
    }

    #[tokio::test]
    async fn a_refusal_is_retried_until_the_operator_has_recorded_the_job_and_the_pod() {
        let operation = |status: Value| {
            json!({
                "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
                "metadata": {"name": "o"},
                "spec": {"cluster": "c", "actionType": "shell", "action": "true", "image": "i"},
                "status": status,
            })
        };
        let recorded = json!({"jobRef": {"namespace": "ns", "name": "another-job"}});
        assert_eq!(retry_after_refusal(200, operation(json!({}))).await, Retry::WhenAdopted);
        assert_eq!(retry_after_refusal(200, operation(recorded)).await, Retry::AFewTimes);
        let pod = |uid: &str| json!({"jobRef": {"namespace": "ns", "name": "job"}, "runnerPod": uid});
        assert_eq!(retry_after_refusal(200, operation(pod("lost"))).await, Retry::WhenAdopted);
        assert_eq!(retry_after_refusal(200, operation(pod("own"))).await, Retry::AFewTimes);
        let forbidden = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403});
        assert_eq!(retry_after_refusal(403, forbidden).await, Retry::AFewTimes, "the answer is unknown");
    }

    #[test]
    fn conditions_have_the_generation_from_which_the_job_was_created() {
        let answer = |status: Value| {
            let object = json!({"metadata": {"name": "o", "generation": 3}, "status": status});
            job_generation(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(answer(json!({"status": "Running", "observedGeneration": 2})), Some(2));
        assert_eq!(answer(json!({})), Some(3));
    }
}
