//! What tools that install from Git see in objects of every state: kstatus (Flux, `helm --wait`) and Argo CD, by their own code.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster, Phase};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::lab::{Lab, TIMEOUT};

/// The health script of each kind, from the ConfigMap for Argo CD.
struct HealthScripts {
    folder: tempfile::TempDir,
}

impl HealthScripts {
    fn read() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/gitops/argocd-cm.yaml");
        let settings: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (key, script) in settings["data"].as_object().unwrap() {
            let (_, kind) = key.rsplit_once('_').unwrap();
            std::fs::write(folder.path().join(kind), script.as_str().unwrap()).unwrap();
        }
        Self { folder }
    }

    fn of(&self, kind: &str) -> PathBuf {
        self.folder.path().join(kind)
    }
}

/// Runs the program with an object on standard input. Returns the first word that it prints.
fn first_word(arguments: &[&str], object: &DynamicObject) -> String {
    let mut program = Command::new(kubeon_envtest::gitops_program().unwrap());
    program.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = program.spawn().unwrap();
    let text = json!([object]).to_string();
    running.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?} on {object:#?}");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap_or_default().to_owned()
}

/// An API server with objects, and what tools see in them.
struct Seen {
    lab: Lab,
    scripts: HealthScripts,
}

impl Seen {
    async fn object(&self, kind: &str, name: &str) -> DynamicObject {
        let client = self.lab.client.clone();
        let api: Api<DynamicObject> = match kind {
            "Cluster" => Api::all_with(client, &ApiResource::erase::<Cluster>(&())),
            "ClusterOperation" => Api::all_with(client, &ApiResource::erase::<ClusterOperation>(&())),
            _ => {
                let kind = ApiResource::erase::<KubernetesCluster>(&());
                Api::namespaced_with(client, &self.lab.namespace, &kind)
            }
        };
        api.get(name).await.unwrap()
    }

    /// Checks what kstatus and Argo CD see.
    async fn check(&self, kind: &str, name: &str, kstatus: &str, argo: &str) {
        let object = self.object(kind, name).await;
        let script = self.scripts.of(kind);
        let found =
            (first_word(&["status"], &object), first_word(&["health", script.to_str().unwrap()], &object));
        assert_eq!((found.0.as_str(), found.1.as_str()), (kstatus, argo), "{kind} {name}: {object:#?}");
    }

    async fn end_job_of(&self, name: &str, succeeded: bool) {
        let job = |object: &KubernetesCluster| object.status.as_ref()?.job_name.clone();
        let object = self.lab.wait_kubernetes_cluster(name, |object| job(object).is_some()).await;
        self.lab.end_job(&job(&object).unwrap(), succeeded).await;
    }

    async fn wait_phase(&self, name: &str, phase: Phase) {
        let reached =
            |object: &KubernetesCluster| object.status.as_ref().is_some_and(|one| one.phase == Some(phase));
        self.lab.wait_kubernetes_cluster(name, reached).await;
    }

    async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.lab.kubernetes_clusters().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

#[tokio::test]
async fn tools_that_install_from_git_see_operations_as_they_are() {
    let seen = Seen { lab: Lab::open().await, scripts: HealthScripts::read() };
    let lab = &seen.lab;
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "good").await;
    // No operator has seen them.
    for (kind, name) in [("Cluster", "sample"), ("ClusterOperation", "good")] {
        seen.check(kind, name, "InProgress", "Progressing").await;
    }
    lab.start();
    lab.wait_result("good", OperationResult::Running).await;
    seen.check("ClusterOperation", "good", "InProgress", "Progressing").await;
    lab.finish("good").await;
    seen.check("ClusterOperation", "good", "Current", "Healthy").await;
    seen.check("Cluster", "sample", "Current", "Healthy").await;
    lab.create_shell_operation("sample", "bad").await;
    let running = lab.wait_result("bad", OperationResult::Running).await;
    lab.end_job(&running.status.unwrap().job_ref.unwrap().name, false).await;
    lab.wait_result("bad", OperationResult::Failed).await;
    seen.check("ClusterOperation", "bad", "Failed", "Degraded").await;
}

#[tokio::test]
async fn tools_that_install_from_git_see_clusters_as_they_are() {
    const KIND: &str = "KubernetesCluster";
    let seen = Seen { lab: Lab::open().await, scripts: HealthScripts::read() };
    let lab = &seen.lab;
    lab.declare("shop", "10.0.0.1").await;
    seen.check(KIND, "shop", "InProgress", "Progressing").await;
    lab.start();
    seen.end_job_of("shop", true).await;
    seen.wait_phase("shop", Phase::Running).await;
    seen.check(KIND, "shop", "Current", "Healthy").await;
    let script = seen.scripts.of(KIND);
    for (status, reason) in [("False", "APIUnreachable"), ("Unknown", "ObserverRefused")] {
        let mut unobserved = seen.object(KIND, "shop").await;
        for condition in unobserved.data["status"]["conditions"].as_array_mut().unwrap() {
            if condition["type"] == "Ready" {
                condition["status"] = json!(status);
                condition["reason"] = json!(reason);
            }
        }
        assert_eq!(first_word(&["status"], &unobserved), "InProgress", "{reason}");
        assert_eq!(first_word(&["health", script.to_str().unwrap()], &unobserved), "Degraded", "{reason}");
    }

    seen.change("shop", json!({"cluster": {"nodeList": [{"ip": "10.0.0.2"}]}})).await;
    seen.wait_phase("shop", Phase::Prechecking).await;
    seen.check(KIND, "shop", "InProgress", "Progressing").await;
    seen.end_job_of("shop", false).await;
    seen.wait_phase("shop", Phase::Failed).await;
    seen.check(KIND, "shop", "Failed", "Degraded").await;

    seen.change("shop", json!({"paused": true})).await;
    seen.check(KIND, "shop", "InProgress", "Suspended").await;
    lab.kubernetes_clusters().delete("shop", &DeleteParams::default()).await.unwrap();
    let terminates = |object: Option<&KubernetesCluster>| {
        object.is_some_and(|object| object.metadata.deletion_timestamp.is_some())
    };
    let waits = await_condition(lab.kubernetes_clusters(), "shop", terminates);
    timeout(TIMEOUT, waits).await.expect("the finalizer holds it").unwrap();
    assert_eq!(first_word(&["status"], &seen.object(KIND, "shop").await), "Terminating");
}
