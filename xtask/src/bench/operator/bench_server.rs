//! The API server on which all candidates are measured, one after the other. The objects of a candidate are
//! removed before the next one starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource, ResourceExt as _};
use kubeon_envtest::{ApiServerOptions, TestApiServer};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::audit;
use super::candidate::Candidate;

/// The account of the operator. It has all permissions, because permissions are not measured.
pub(super) const ACCOUNT: &str = "bench-operator";
/// The time limit for removing the objects of a candidate.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(600);

/// The API server.
pub(super) struct BenchServer {
    pub(super) server: TestApiServer,
    files: TempDir,
}

/// A temporary folder, in memory if possible.
pub(super) fn folder() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    Ok(tempfile::Builder::new().prefix("kubeon-bench-").tempdir_in(parent)?)
}

impl BenchServer {
    /// Starts the server. It logs the requests of every candidate's account.
    pub(super) async fn start(candidates: &[Arc<Candidate>], fsync: bool) -> Result<Self> {
        let files = folder()?;
        let account =
            |candidate: &Arc<Candidate>| format!("system:serviceaccount:{}:{ACCOUNT}", candidate.namespace);
        let mut users: Vec<String> = candidates.iter().map(account).collect();
        users.dedup();
        let policy = files.path().join("audit.yaml");
        fs::write(&policy, audit::policy(&users))?;
        let arguments = vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log(&files).display()),
            // Each line is written before the answer, and the file is not rotated while it is read.
            "--audit-log-mode=blocking".into(),
            "--audit-log-maxsize=100000".into(),
        ];
        let server =
            TestApiServer::start(ApiServerOptions { fsync, arguments, ..ApiServerOptions::default() })
                .await?;
        Ok(Self { server, files })
    }

    /// The path of the audit log.
    pub(super) fn log(&self) -> PathBuf {
        log(&self.files)
    }

    /// Removes the kinds of a candidate with their objects, and the objects in its namespace.
    pub(super) async fn clear(&self, candidate: &Candidate) -> Result<()> {
        let client = self.server.client().await?;
        let clearing = async {
            remove_definitions(&client).await?;
            let namespace = candidate.namespace.as_str();
            remove_all::<Job>(&client, namespace).await?;
            remove_all::<Pod>(&client, namespace).await?;
            remove_all::<ConfigMap>(&client, namespace).await?;
            remove_all::<Secret>(&client, namespace).await?;
            remove_all::<Service>(&client, namespace).await?;
            remove_all::<Lease>(&client, namespace).await?;
            remove_all::<Event>(&client, namespace).await?;
            remove_all::<Event>(&client, "default").await
        };
        let cleared = tokio::time::timeout(CLEAR_TIMEOUT, clearing).await;
        cleared
            .context("the objects were not removed in time")
            .flatten()
            .with_context(|| format!("removing {}", candidate.name))
    }
}

fn log(files: &TempDir) -> PathBuf {
    files.path().join("audit.log")
}

/// Removes all custom resource definitions, and with them their objects.
async fn remove_definitions(client: &Client) -> Result<()> {
    let all = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in all.list(&ListParams::default()).await? {
        let name = definition.name_any();
        all.delete(&name, &DeleteParams::default()).await?;
        await_condition(all.clone(), &name, is_deleted(&definition.uid().unwrap_or_default())).await?;
    }
    Ok(())
}

/// Removes all objects of a kind in a namespace.
async fn remove_all<K>(client: &Client, namespace: &str) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let all = Api::<K>::namespaced(client.clone(), namespace);
    let any = ListParams::default();
    // Without a grace period, like `kubectl delete --force`: no kubelet reports the end of a pod.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() };
    while !all.list(&any.clone().limit(1)).await?.items.is_empty() {
        all.delete_collection(&now, &any).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::super::candidate_run::CandidateRun;
    use super::super::objects;
    use super::*;

    /// The folder of kubeon's operator with another name and a program that does nothing.
    fn peer(name: &str) -> Arc<Candidate> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = tempfile::tempdir().unwrap();
        let crds = root.join("../deploy/crds");
        let text = format!(
            "name = '{name}'\noperator = '/bin/true'\ncrds = '{}'\nnamespace = 'kubeon-system'\n\
             job = 'kubeonkube-{{{{name}}}}-job'\nreconciled = '/status/observedGeneration'\n",
            crds.display()
        );
        fs::write(folder.path().join("peer.toml"), text).unwrap();
        let templates = root.join("bench/operator/kubeon/templates");
        std::os::unix::fs::symlink(templates, folder.path().join("templates")).unwrap();
        Arc::new(Candidate::load(folder.path()).unwrap())
    }

    #[tokio::test]
    async fn a_candidate_finds_no_objects_of_the_previous_one() {
        let candidates = ["kubeon", "kubeon under another name"].map(peer);
        let bench_server = Arc::new(BenchServer::start(&candidates, false).await.unwrap());
        for candidate in &candidates {
            let run = CandidateRun::new(&bench_server, candidate).await.unwrap();
            let all = Api::<kube::api::DynamicObject>::all_with(run.client.clone(), &run.kinds.cluster);
            assert!(all.list(&ListParams::default()).await.unwrap().items.is_empty(), "{}", candidate.name);
            let (cluster, client) = ("bench-0000".to_owned(), &run.client);
            objects::clusters(client, candidate, &run.kinds, from_ref(&cluster)).await.unwrap();
            let pair = ("op-00000".to_owned(), cluster.clone());
            objects::operations(client, candidate, &run.kinds, &[pair]).await.unwrap();
            assert_eq!(all.list(&ListParams::default()).await.unwrap().items.len(), 1);
            run.finish().await.unwrap();
        }
        let client = bench_server.server.client().await.unwrap();
        let any = ListParams::default();
        assert!(
            Api::<CustomResourceDefinition>::all(client.clone()).list(&any).await.unwrap().items.is_empty()
        );
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "kubeon-system");
        assert!(maps.list(&any).await.unwrap().items.is_empty());
        let secrets = Api::<Secret>::namespaced(client, "kubeon-system");
        assert!(secrets.list(&any).await.unwrap().items.is_empty());
    }
}
