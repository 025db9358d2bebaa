//! Objects that a test creates before it starts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _, discovery};
use serde_json::json;

use crate::{EnvtestError, TestApiServer};

const DEFINITION: &str = "CustomResourceDefinition";
/// Time limit for a definition to be served.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(30);
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(50);
/// Lifetime of a service account's token in seconds.
const TOKEN_LIFETIME: i64 = 24 * 3600;

impl TestApiServer {
    /// Creates a namespace for a test and returns its name.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn namespace(&self) -> Result<String, EnvtestError> {
        let namespaces = Api::<Namespace>::all(self.client().await?);
        let mut namespace = Namespace::default();
        namespace.metadata.generate_name = Some("test-".into());
        let created = namespaces.create(&PostParams::default(), &namespace).await;
        Ok(created.map_err(EnvtestError::api("creating a namespace"))?.name_any())
    }

    /// Creates a service account unless it exists, and returns a token for it that is valid for a day.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<String, EnvtestError> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client().await?, namespace);
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        let created = accounts.patch(name, &PatchParams::apply("envtest"), &Patch::Apply(account)).await;
        created.map_err(EnvtestError::api("creating a service account"))?;
        let spec =
            TokenRequestSpec { expiration_seconds: Some(TOKEN_LIFETIME), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.map_err(EnvtestError::api("requesting a token of a service account"))?;
        let token = answer.status.and_then(|status| status.token);
        token.ok_or_else(|| EnvtestError::NoToken(name.to_owned()))
    }

    /// Applies the custom resource definitions in a folder's YAML files and waits until their kinds are served.
    ///
    /// # Errors
    /// A file cannot be parsed, or a definition is refused or not served within 30 s.
    pub async fn apply_crds(&self, folder: &Path) -> Result<(), EnvtestError> {
        self.apply_filtered(folder, |kind| kind == DEFINITION).await
    }

    /// Applies every object in a YAML file, or in a folder's YAML files in order of their names, except for the
    /// files of kustomize. After a definition it waits until the kind is served.
    ///
    /// # Errors
    /// A file cannot be parsed, or an object is refused.
    pub async fn apply(&self, path: &Path) -> Result<(), EnvtestError> {
        self.apply_filtered(path, |kind| !matches!(kind, "Kustomization" | "Component")).await
    }

    async fn apply_filtered(&self, path: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), EnvtestError> {
        let client = self.client().await?;
        for file in files(path).map_err(EnvtestError::file(path))? {
            let text = fs::read_to_string(&file).map_err(EnvtestError::file(&file))?;
            let invalid = |why: String| EnvtestError::Manifest { path: file.clone(), why };
            let documents: Vec<Option<DynamicObject>> =
                serde_saphyr::from_multiple(&text).map_err(|error| invalid(error.to_string()))?;
            let kind = |object: &DynamicObject| {
                object.types.as_ref().map_or(String::new(), |types| types.kind.clone())
            };
            for object in documents.into_iter().flatten().filter(|object| wanted(&kind(object))) {
                apply_one(&client, object, &invalid).await?;
            }
        }
        Ok(())
    }
}

async fn apply_one(
    client: &Client,
    object: DynamicObject,
    invalid: &impl Fn(String) -> EnvtestError,
) -> Result<(), EnvtestError> {
    let types =
        object.types.clone().ok_or_else(|| invalid("an object without apiVersion and kind".into()))?;
    let kind = GroupVersionKind::try_from(&types).map_err(|error| invalid(error.to_string()))?;
    let what = format!("applying {} {}", types.kind, object.name_any());
    let (resource, _) = discovery::pinned_kind(client, &kind).await.map_err(EnvtestError::api(&what))?;
    let api = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::<DynamicObject>::all_with(client.clone(), &resource),
    };
    let name = object.name_any();
    let params = PatchParams::apply("envtest").force();
    api.patch(&name, &params, &Patch::Apply(&object)).await.map_err(EnvtestError::api(&what))?;
    if types.kind == DEFINITION {
        wait_until_established(client, &name).await?;
    }
    Ok(())
}

async fn wait_until_established(client: &Client, name: &str) -> Result<(), EnvtestError> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let served = await_condition(definitions, name, conditions::is_crd_established());
    match tokio::time::timeout(ESTABLISHED_TIMEOUT, served).await {
        Ok(Ok(definition)) => wait_until_discovered(client, name, definition.unwrap_or_default()).await,
        Ok(Err(error)) => Err(timed_out(name, error.to_string())),
        Err(_) => Err(timed_out(name, String::new())),
    }
}

/// Discovery lists a kind some time after the definition is established, and cannot be watched.
async fn wait_until_discovered(
    client: &Client,
    name: &str,
    definition: CustomResourceDefinition,
) -> Result<(), EnvtestError> {
    let spec = definition.spec;
    let version = spec.versions.iter().find(|version| version.served).map_or("", |version| &version.name);
    let kind = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
    let start = Instant::now();
    while let Err(error) = discovery::pinned_kind(client, &kind).await {
        if start.elapsed() > ESTABLISHED_TIMEOUT {
            return Err(timed_out(name, error.to_string()));
        }
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
    }
    Ok(())
}

fn timed_out(name: &str, log: String) -> EnvtestError {
    EnvtestError::TooLate { what: format!("establishment of {name}"), limit: ESTABLISHED_TIMEOUT, log }
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
