//! The one API server on which all candidates are measured, one after the other. What one leaves is taken away before the
//! next one comes.

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

/// The account that the operator works as. It may do everything: what it may not is not measured here.
pub(super) const ACCOUNT: &str = "bench-operator";
/// For all that a candidate left to be gone.
const GONE: Duration = Duration::from_secs(600);

/// The API server.
pub(super) struct BenchServer {
    pub(super) server: TestApiServer,
    files: TempDir,
}

/// A folder in memory, where there is one.
pub(super) fn folder() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    Ok(tempfile::Builder::new().prefix("kubeon-bench-").tempdir_in(parent)?)
}

impl BenchServer {
    /// Starts it. The requests of every candidate's account are written down.
    pub(super) async fn start(candidates: &[Arc<Candidate>], fsync: bool) -> Result<Self> {
        let files = folder()?;
        let account = |it: &Arc<Candidate>| format!("system:serviceaccount:{}:{ACCOUNT}", it.namespace);
        let mut users: Vec<String> = candidates.iter().map(account).collect();
        users.dedup();
        let policy = files.path().join("audit.yaml");
        fs::write(&policy, audit::policy(&users))?;
        let arguments = vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log(&files).display()),
            // Each line is there before the answer, and the file is not replaced while it is read.
            "--audit-log-mode=blocking".into(),
            "--audit-log-maxsize=100000".into(),
        ];
        let server =
            TestApiServer::start(ApiServerOptions { fsync, arguments, ..ApiServerOptions::default() })
                .await?;
        Ok(Self { server, files })
    }

    /// Where requests are written down.
    pub(super) fn log(&self) -> PathBuf {
        log(&self.files)
    }

    /// Takes away what there is of a candidate: its kinds with their objects, and what is in its namespace.
    pub(super) async fn clear(&self, candidate: &Candidate) -> Result<()> {
        let client = self.server.client().await?;
        let clearing = async {
            definitions(&client).await?;
            let namespace = candidate.namespace.as_str();
            empty::<Job>(&client, namespace).await?;
            empty::<Pod>(&client, namespace).await?;
            empty::<ConfigMap>(&client, namespace).await?;
            empty::<Secret>(&client, namespace).await?;
            empty::<Service>(&client, namespace).await?;
            empty::<Lease>(&client, namespace).await?;
            empty::<Event>(&client, namespace).await?;
            empty::<Event>(&client, "default").await
        };
        let cleared = tokio::time::timeout(GONE, clearing).await;
        cleared
            .context("not all was gone in time")
            .flatten()
            .with_context(|| format!("removing {}", candidate.name))
    }
}

fn log(files: &TempDir) -> PathBuf {
    files.path().join("audit.log")
}

/// Removes every kind that an API server does not have by itself. Their objects go with them.
async fn definitions(client: &Client) -> Result<()> {
    let all = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in all.list(&ListParams::default()).await? {
        let name = definition.name_any();
        all.delete(&name, &DeleteParams::default()).await?;
        await_condition(all.clone(), &name, is_deleted(&definition.uid().unwrap_or_default())).await?;
    }
    Ok(())
}

/// Removes all objects of a kind in a namespace.
async fn empty<K>(client: &Client, namespace: &str) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let all = Api::<K>::namespaced(client.clone(), namespace);
    let any = ListParams::default();
    // At once, as `kubectl delete --force` does: there is no kubelet that could say that a pod ended.
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

    /// Our own operator's folder under another name. Its program does nothing.
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
    async fn a_candidate_finds_nothing_of_the_one_before() {
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
            run.leave().await.unwrap();
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
