//! The meta cluster, as far as the runner may reach: the status of one operation, Secrets and the ConfigMap made for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource, ResourceExt as _};
use kubeon_api::ClusterOperation;
use kubeon_api::labels::NO_JOB_YET;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::backoff::Backoff;

/// Under this name the runner owns what it writes.
const MANAGER: &str = "kubeon-runner";
/// One request.
const REQUEST: Duration = Duration::from_secs(10);
/// What a Secret may hold is 1 MiB; base64 and names do not count, the object around it does.
pub const LARGEST_SECRET: u64 = 1_000_000;
/// Where a pod finds the token of its service account.
pub const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// There is no way to it.
    #[error("cannot reach the meta cluster: {0}")]
    Config(String),
    /// It did not answer in time.
    #[error("no answer within {REQUEST:?}")]
    Late,
    /// It answered with an error, or not at all.
    #[error("{0}")]
    Request(#[source] Box<kube::Error>),
}

/// What to do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It may go away by itself.
    Later,
    /// Permission: a server that has just started refuses those whom it does not know yet.
    AFewTimes,
    /// The operator has not written down yet whose Job this is. It may have ended just then, and others take over.
    WhenAdopted,
    /// It stays as it is.
    Never,
}

impl MetaError {
    /// Whether to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
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

/// A way to the meta cluster.
#[derive(Clone)]
pub struct Meta {
    client: Client,
}

impl Meta {
    /// By a kubeconfig, else by the pod's service account. None when neither is there.
    ///
    /// # Errors
    /// When one is there and cannot be used.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Option<Self>, MetaError> {
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

    /// Writes what the runner says of an operation into its status; what others say there stays. Gives the generation
    /// of the operation that the work is about, as the answer tells it.
    ///
    /// # Errors
    /// When the server did not take it.
    pub async fn write_status(&self, operation: &str, status: &Value) -> Result<Option<i64>, MetaError> {
        let kind = ApiResource::erase::<ClusterOperation>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let object = json!({
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": operation},
            "status": status,
        });
        let ours = PatchParams::apply(MANAGER).force();
        let answer = answered(api.patch_status(operation, &ours, &Patch::Apply(&object))).await?;
        Ok(worked_on(&answer))
    }

    /// Writes keys of a Secret, as [`Self::save`] does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn save_secret(&self, place: &Place, data: BTreeMap<&str, Vec<u8>>) -> Result<(), MetaError> {
        let data = data.into_iter().map(|(key, bytes)| (key.to_owned(), ByteString(bytes))).collect();
        self.save(place, Secret { data: Some(data), ..Secret::default() }).await
    }

    /// Writes a key of a ConfigMap, as [`Self::save`] does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn save_text(&self, place: &Place, key: &str, text: String) -> Result<(), MetaError> {
        let data = BTreeMap::from([(key.to_owned(), text)]);
        self.save(place, ConfigMap { data: Some(data), ..ConfigMap::default() }).await
    }

    /// Writes what of an object is the runner's, and tries again while that may help. Does not end by itself while the
    /// server cannot be reached: the caller says when to give up.
    async fn save<K>(&self, place: &Place, mut object: K) -> Result<(), MetaError>
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

    /// Tries it once.
    async fn write<K>(&self, object: &K) -> Result<(), MetaError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default());
        let ours = PatchParams::apply(MANAGER).force();
        answered(api.patch(&object.name_any(), &ours, &Patch::Apply(object))).await.map(|_| ())
    }
}

/// The generation that the operator says it acted on, when it made the Job; the object's own where it says nothing. The
/// spec may have been changed since.
fn worked_on(operation: &DynamicObject) -> Option<i64> {
    let said = operation.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    said.or(operation.metadata.generation)
}

/// How often permission is asked for: with the waits between, about ten seconds.
pub const REFUSALS: u32 = 6;

/// Which Secret or ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What it is, in one word.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, MetaError> {
    let answer = timeout(REQUEST, request).await.map_err(|_| MetaError::Late)?;
    answer.map_err(|error| MetaError::Request(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_that_ends_when_the_operator_comes_back_is_waited_out() {
        let refused = |message: &str| {
            let status = Status::failure(message, "Forbidden").with_code(403);
            MetaError::Request(Box::new(kube::Error::Api(Box::new(status)))).retry()
        };
        assert_eq!(refused(&format!("status: an operation's status … {NO_JOB_YET}; …")), Retry::WhenAdopted);
        assert_eq!(refused("status: … is written by its own Job, other-job"), Retry::AFewTimes);
    }

    #[test]
    fn the_work_is_about_the_generation_that_its_job_was_made_from() {
        let answer = |status: Value| {
            let object = json!({"metadata": {"name": "o", "generation": 3}, "status": status});
            worked_on(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(answer(json!({"status": "Running", "observedGeneration": 2})), Some(2));
        assert_eq!(answer(json!({})), Some(3));
    }
}
