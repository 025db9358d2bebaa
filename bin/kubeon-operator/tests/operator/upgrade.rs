//! An installation of an earlier commit is upgraded: its manifest by today's, and its operator by this one, and back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use kubeon_api::kubeonkube::{ClusterOperationSpec, OperationResult};
use kubeon_api::{Cluster, ClusterOperation, DataRef, KubernetesCluster};
use kubeon_envtest::{ApiServerOptions, TestApiServer, previous_commit};
use serde_json::{Value, json};

use crate::lab::{Lab, shell};
use crate::scenarios;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The kinds of kubeon, and whether their objects have a namespace.
fn kinds() -> [(ApiResource, bool); 3] {
    [
        (ApiResource::erase::<Cluster>(&()), false),
        (ApiResource::erase::<ClusterOperation>(&()), false),
        (ApiResource::erase::<KubernetesCluster>(&()), true),
    ]
}

fn api(client: &Client, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
        None => Api::all_with(client.clone(), kind),
    }
}

/// Creates the objects of every phase, with their status. Their names begin with the phase.
async fn restore_fixtures(client: &Client) {
    for fixture in std::fs::read_dir(file("../../crates/operations/src/tests/previous")).unwrap() {
        let path = fixture.unwrap().path();
        let phase = path.file_stem().unwrap().to_str().unwrap();
        let fixture: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for entry in fixture["objects"].as_array().unwrap() {
            let known = kinds().into_iter().find(|(kind, _)| entry["kind"] == kind.kind.as_str());
            let Some((kind, namespaced)) = known else { continue };
            restore(&api(client, &kind, namespaced.then_some("default")), phase, entry["object"].clone())
                .await;
        }
    }
}

async fn restore(api: &Api<DynamicObject>, phase: &str, mut object: Value) {
    let metadata = &object["metadata"];
    let name = format!("{phase}-{}", metadata["name"].as_str().unwrap());
    object["metadata"] = json!({
        "name": name, "labels": metadata["labels"], "annotations": metadata["annotations"],
        "finalizers": metadata["finalizers"], "ownerReferences": metadata["ownerReferences"],
    });
    let status = object["status"].take();
    let created = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
    created.unwrap_or_else(|error| panic!("{name}: {error}"));
    if !status.is_null() {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// The objects of kubeon's kinds, without what the API server alone writes.
async fn objects(client: &Client) -> Vec<Value> {
    let mut all = Vec::new();
    for (kind, namespaced) in kinds() {
        let found = api(client, &kind, namespaced.then_some("default")).list(&ListParams::default()).await;
        for mut object in found.unwrap() {
            object.managed_fields_mut().clear();
            object.metadata.resource_version = None;
            all.push(serde_json::to_value(object).unwrap());
        }
    }
    all
}

/// Fields that cannot change would refuse the manifest, and a definition that forgot a field would lose it.
#[tokio::test]
async fn the_manifest_of_an_earlier_commit_is_replaced_and_its_objects_stay() {
    let server = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
    let client = server.client().await.unwrap();
    let previous = file("tests/operator/previous/kubeon.yaml");
    server.apply_crds(&previous).await.unwrap();
    restore_fixtures(&client).await;
    server.apply(&previous).await.unwrap();
    let before = objects(&client).await;
    assert!(before.len() > 10, "{}", before.len());

    server.apply(&file("../../deploy/kubeon.yaml")).await.unwrap();
    let after = objects(&client).await;
    assert_eq!(after.len(), before.len());
    for (after, before) in after.iter().zip(&before) {
        assert_eq!(after, before);
    }
}

/// The previous commit: its sources and its operator.
struct PreviousCommit {
    source: PathBuf,
    operator: PathBuf,
}

impl PreviousCommit {
    /// Compiles it in a folder of its own.
    fn compile() -> Self {
        let root = file("../..").canonicalize().unwrap();
        let (source, target) =
            (root.join("target/previous-operator/source"), root.join("target/previous-operator/target"));
        let git = |arguments: &[&str]| {
            let ended = Command::new("git").arg("-C").arg(&root).args(arguments).status().unwrap();
            assert!(ended.success(), "git {arguments:?}");
        };
        let folder = source.to_str().unwrap();
        if source.exists() {
            git(&["worktree", "remove", "--force", folder]);
        }
        git(&["worktree", "add", "--detach", folder, &previous_commit().unwrap()]);
        let built = Command::new("cargo")
            .args(["build", "--locked", "-p", "kubeon-operator", "--target-dir"])
            .arg(&target)
            .current_dir(&source)
            .status()
            .unwrap();
        assert!(built.success(), "the previous commit does not compile");
        Self { source, operator: target.join("x86_64-unknown-linux-gnu/debug/kubeon-operator") }
    }

    /// Its definitions.
    fn definitions(&self) -> PathBuf {
        self.source.join("deploy/crds")
    }
}

/// The versions of all objects that the operator may write.
async fn versions(lab: &Lab) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let core = ["ConfigMap", "Secret"]
        .map(|kind| (ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind)), true));
    let jobs = [(ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job")), true)];
    for (kind, namespaced) in kinds().into_iter().chain(core).chain(jobs) {
        let api = api(&lab.client, &kind, namespaced.then_some(lab.namespace.as_str()));
        for object in api.list(&ListParams::default()).await.unwrap() {
            let name = format!("{} {}", kind.kind, object.name_any());
            all.insert(name, object.resource_version().unwrap());
        }
    }
    all
}

/// What is left of the objects is as it was.
fn assert_unchanged(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
    let changed: Vec<&String> = before
        .iter()
        .filter(|(name, version)| after.get(*name) != Some(*version))
        .map(|(name, _)| name)
        .collect();
    assert!(changed.is_empty(), "written again: {changed:?}");
}

fn job(object: &KubernetesCluster) -> Option<&str> {
    object.status.as_ref()?.job_name.as_deref()
}

#[tokio::test]
#[ignore = "minutes: compiles the previous commit"]
async fn soak_the_previous_operator_hands_over_and_takes_back() {
    let previous = tokio::task::spawn_blocking(PreviousCommit::compile).await.unwrap();
    let lab = Lab::open().await;
    let today = file("../../deploy/crds");

    lab.apply_definitions(&previous.definitions()).await;
    lab.start_program(&previous.operator);
    scenarios::create(&lab, "made", "10.9.0.1").await;
    scenarios::shell(&lab, "ended").await;
    lab.declare("begun", "10.9.1.1").await;
    lab.wait_kubernetes_cluster("begun", |object| job(object).is_some()).await;
    for name in ["runs", "waits"] {
        lab.cluster(name).await;
    }
    lab.create_shell_operation("runs", "runs").await;
    lab.wait_result("runs", OperationResult::Running).await;
    let later = Some(DataRef::new(&lab.namespace, "later"));
    lab.create_operation("waits", ClusterOperationSpec { hosts_conf_ref: later, ..shell("waits") }).await;
    lab.wait_reason("waits", "later").await;
    assert!(lab.terminate().await.1);

    // This operator writes nothing again, and completes what was begun.
    let before = versions(&lab).await;
    lab.apply_definitions(&today).await;
    lab.start();
    scenarios::shell(&lab, "after-the-upgrade").await;
    assert_unchanged(&before, &versions(&lab).await);
    scenarios::complete_creation(&lab, "begun").await;
    lab.finish("runs").await;
    lab.config_map("later", json!({"hosts.yml": "all: {}\n"})).await;
    lab.finish("waits").await;
    assert!(lab.terminate().await.1);

    // The previous operator goes on, and this one again.
    lab.apply_definitions(&previous.definitions()).await;
    lab.start_program(&previous.operator);
    scenarios::shell(&lab, "after-the-return").await;
    for name in ["ended", "runs", "waits"] {
        let operation = lab.operations().get(name).await.unwrap();
        assert_eq!(lab.job_names(&operation).await.len(), 1, "{name} runs once");
    }
    scenarios::scale_up(&lab, "made", "10.9.0.2").await;
    assert!(lab.terminate().await.1);
    lab.apply_definitions(&today).await;
    lab.start();
    scenarios::delete(&lab, "made").await;
    lab.kill().await;
}
