//! What the runner writes in the meta cluster: the status of one operation, its Secrets and its ConfigMap.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ObjectMeta, TypeMeta};
use kube::{Client, Config, Resource, ResourceExt as _};
use kubeon_api::ClusterOperation;
use kubeon_api::labels::NO_JOB_YET;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::backoff::Backoff;

/// The field manager of the runner's writes.
const MANAGER: &str = "kubeon-runner";
/// The timeout of one request.
const REQUEST: Duration = Duration::from_secs(10);
/// The most bytes in a Secret: the limit is 1 MiB with the metadata, base64 does not count.
pub(crate) const LARGEST_SECRET: u64 = 1_000_000;
/// The path of the service account token in a pod.
pub(crate) const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetaError {
    /// The configuration does not allow a connection.
    #[error("cannot reach the meta cluster: {0}")]
    Config(String),
    /// It did not answer in time.
    #[error("no response within {REQUEST:?}")]
    Late,
    /// It answered with an error, or not at all.
    #[error("{0}")]
    Request(#[source] Box<kube::Error>),
}

/// What to do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The error may disappear.
    Later,
    /// Permission denied: a server that has just started may not know the roles yet.
    AFewTimes,
    /// The operator has not recorded this Job in the operation yet. Another replica will do so if it stopped.
    WhenAdopted,
    /// The error is permanent.
    Never,
}

impl MetaError {
    /// Whether to try again.
    #[must_use]
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Config(_) => Retry::Never,
            Self::Late => Retry::Later,
            Self::Request(error) => match **error {
                kube::Error::Api(ref status) => match status.code {
                    403 if status.message.contains(NO_JOB_YET) => Retry::WhenAdopted,
                    401 | 403 => Retry::AFewTimes,
                    400 | 404 | 405 | 413 | 415 | 422 => Retry::Never,
                    _ => Retry::Later,
                },
                _ => Retry::Later,
            },
        }
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
}

impl MetaCluster {
    /// Connects with a kubeconfig, else with the pod's service account. None when there is neither.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Option<Self>, MetaError> {
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
        Ok(Some(Self { client }))
    }

    /// Applies the runner's fields of an operation's status; the fields of others stay. Returns the generation of the
    /// operation that the Job was made from.
    ///
    /// # Errors
    /// When the request fails.
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
        let ours = PatchParams::apply(MANAGER).force();
        let answer = with_timeout(api.patch_status(operation, &ours, &Patch::Apply(&object))).await?;
        Ok(job_generation(&answer))
    }

    /// Writes keys of a Secret, as [`Self::save`] does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn save_secret(
        &self,
        place: &WrittenObject,
        data: BTreeMap<&str, Vec<u8>>,
    ) -> Result<(), MetaError> {
        let data = data.into_iter().map(|(key, bytes)| (key.to_owned(), ByteString(bytes))).collect();
        self.save(place, Secret { data: Some(data), ..Secret::default() }).await
    }

    /// Writes a key of a ConfigMap, as [`Self::save`] does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn save_text(
        &self,
        place: &WrittenObject,
        key: &str,
        text: String,
    ) -> Result<(), MetaError> {
        let data = BTreeMap::from([(key.to_owned(), text)]);
        self.save(place, ConfigMap { data: Some(data), ..ConfigMap::default() }).await
    }

    /// Applies the runner's fields of an object, and retries temporary errors without a limit: the caller sets the
    /// timeout.
    async fn save<K>(&self, place: &WrittenObject, mut object: K) -> Result<(), MetaError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        object.meta_mut().name = Some(place.name.clone());
        object.meta_mut().namespace = Some(place.namespace.clone());
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        let mut refusals = 0;
        loop {
            let Err(error) = self.write(&object).await else { return Ok(()) };
            refusals += u32::from(error.retry() == Retry::AFewTimes);
            if error.retry() == Retry::Never || refusals >= REFUSALS {
                return Err(error);
            }
            backoff.wait().await;
        }
    }

    /// One attempt.
    async fn write<K>(&self, object: &K) -> Result<(), MetaError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default());
        let ours = PatchParams::apply(MANAGER).force();
        with_timeout(api.patch(&object.name_any(), &ours, &Patch::Apply(object))).await.map(|_| ())
    }
}

/// The generation that the operator observed when it made the Job, else that of the object. The spec may have changed
/// since.
fn job_generation(operation: &DynamicObject) -> Option<i64> {
    let observed = operation.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    observed.or(operation.metadata.generation)
}

/// The attempts when permission is denied: about ten seconds with the pauses.
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

async fn with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, MetaError> {
    let answer = timeout(REQUEST, request).await.map_err(|_| MetaError::Late)?;
    answer.map_err(|error| MetaError::Request(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_that_ends_when_the_operator_returns_is_retried() {
        let refused = |message: &str| {
            let status = Status::failure(message, "Forbidden").with_code(403);
            MetaError::Request(Box::new(kube::Error::Api(Box::new(status)))).retry()
        };
        assert_eq!(refused(&format!("status: an operation's status … {NO_JOB_YET}; …")), Retry::WhenAdopted);
        assert_eq!(refused("status: … is written by its own Job, other-job"), Retry::AFewTimes);
    }

    #[test]
    fn conditions_have_the_generation_that_the_job_was_made_from() {
        let answer = |status: Value| {
            let object = json!({"metadata": {"name": "o", "generation": 3}, "status": status});
            job_generation(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(answer(json!({"status": "Running", "observedGeneration": 2})), Some(2));
        assert_eq!(answer(json!({})), Some(3));
    }
}
