//! The place that a cluster with a long history takes in etcd.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kubeon_api::{ClusterOperation, KubernetesCluster, Phase, StepRecord, labels};
use kubeon_operation_log::{StoredLog, compressed_steps};
use kubeon_operations::names;
use serde_json::{Value, json};

use crate::kubernetes_cluster::phase;
use crate::lab::{Lab, TIMEOUT};

/// The operations in the history, as many as are kept by default.
const OPERATIONS: usize = 30;
/// The most bytes in etcd of one cluster.
const BUDGET: usize = 150 * 1024;

/// Text that resembles what a runner writes: `lines` lines with a digest each, which cannot be compressed.
fn log(operation: usize, lines: usize) -> String {
    let line = |number: usize| {
        let digest = (operation * lines + number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            "2026-01-01T00:00:{:02}Z h{} etcd: write /etc/kubernetes/etcd.yaml ({digest:016x})\n",
            number % 60,
            number % 8
        )
    };
    (0..lines).map(line).collect()
}

fn steps(lines: usize) -> Vec<StepRecord> {
    let step = |number: usize| {
        let record = json!({"host": format!("10.0.0.{}", number % 8 + 1), "name": format!("h{}", number % 8),
            "stage": "etcd", "step": format!("write file {number}"), "why": "it differs",
            "started": "2026-01-01T00:00:00.000000Z", "ended": format!("2026-01-01T00:00:01.{number:06}Z"), "result": "Changed"});
        serde_json::from_value(record).unwrap()
    };
    (0..lines).map(step).collect()
}

fn config_maps(lab: &Lab) -> Api<ConfigMap> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// The metadata of an object that belongs to an operation.
fn owned(name: String, operation: &ClusterOperation) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: "kubeonkube.clay.io/v1alpha1".to_owned(),
        kind: "ClusterOperation".to_owned(),
        name: operation.metadata.name.clone().unwrap(),
        uid: operation.metadata.uid.clone().unwrap(),
        ..OwnerReference::default()
    };
    ObjectMeta { name: Some(name), owner_references: Some(vec![owner]), ..ObjectMeta::default() }
}

/// Stores a plan, as the runner does. It is larger than what a cluster may keep.
async fn store_plan(lab: &Lab, job: &str, operation: &ClusterOperation) {
    let plan = ByteString(vec![b'x'; BUDGET]);
    lab.put(ConfigMap {
        metadata: owned(names::plan(job), operation),
        immutable: Some(true),
        binary_data: Some([(labels::JOB_PLAN_KEY.to_owned(), plan)].into()),
        ..ConfigMap::default()
    })
    .await;
}

/// Stores as much as the runner of a cluster of 3 + 5 does: its keys and state, two kubeconfigs, the keys of its hosts.
async fn store_keys(lab: &Lab) {
    let (namespace, runner) = (lab.namespace.as_str(), PatchParams::apply(labels::RUNNER_MANAGER));
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), namespace);
    for (name, key, kib) in [
        (names::state(namespace, "shop"), names::STATE_KEY, 10),
        (names::kubeconfig(namespace, "shop"), "kubeconfig", 4),
        (names::observer(namespace, "shop"), "kubeconfig", 4),
    ] {
        let values = json!({"data": {key: ByteString(vec![b'x'; kib * 1024])}});
        secrets.patch(&name, &runner, &Patch::Merge(values)).await.unwrap();
    }
    let values = json!({"data": {"known_hosts": "x".repeat(6 * 1024)}});
    let name = names::known_hosts(namespace, "shop");
    config_maps(lab).patch(&name, &runner, &Patch::Merge(values)).await.unwrap();
}

/// Stores log and records, as the runner does.
async fn store_log(lab: &Lab, job: &str, operation: &ClusterOperation, content: StoredLog) {
    let (key, bytes) = content.annotation();
    let annotations = Some([(key.to_owned(), bytes)].into());
    lab.put(ConfigMap {
        metadata: ObjectMeta { annotations, ..owned(names::log(job), operation) },
        immutable: Some(true),
        data: Some(content.data),
        binary_data: Some(content.binary_data),
    })
    .await;
}

/// Runs the operation that the object asks for to its end. Kubernetes removes the Job after a day. Returns the names of the
/// operation and its Job.
async fn run_operation(lab: &Lab, number: usize) -> (String, String) {
    let operation_of =
        |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.operation.clone());
    let begun = |object: &KubernetesCluster| {
        operation_of(object).is_some()
            && object.status.as_ref().is_some_and(|status| status.job_name.is_some())
    };
    let object = lab.wait_kubernetes_cluster("shop", begun).await;
    let operation = lab.operations().get(&operation_of(&object).unwrap()).await.unwrap();
    let job = object.status.unwrap().job_name.unwrap();
    let steps = steps(150);
    let content = StoredLog::new(&log(number, 300), compressed_steps(&steps).unwrap()).unwrap();
    let content = content.with_shown_steps(&steps).unwrap();
    store_log(lab, &job, &operation, content).await;
    if operation.spec.plan {
        store_plan(lab, &job, &operation).await;
    }
    lab.end_job(&job, true).await;
    let idle =
        |object: &KubernetesCluster| phase(object) == Some(Phase::Running) && operation_of(object).is_none();
    lab.wait_kubernetes_cluster("shop", idle).await;
    lab.jobs().delete(&job, &DeleteParams::background()).await.unwrap();
    (operation.metadata.name.unwrap(), job)
}

async fn patch(lab: &Lab, change: Value) {
    lab.kubernetes_clusters().patch("shop", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Changes the cluster in two operations: the first plans, the second applies the plan, which is deleted then.
async fn run_approved(lab: &Lab, number: usize, workers: &[Value]) {
    // Operations are ordered by the second of their creation. Jobs on hosts take longer than that.
    let next_second = || tokio::time::sleep(Duration::from_secs(1));
    next_second().await;
    patch(lab, json!({"spec": {"plan": true, "cluster": {"nodeList": workers}}})).await;
    let (planned, job) = run_operation(lab, number).await;
    next_second().await;
    patch(lab, json!({"metadata": {"annotations": {labels::APPROVE: planned}}})).await;
    run_operation(lab, number + 1).await;
    let is_gone = |map: Option<&ConfigMap>| map.is_none();
    let plan = names::plan(&job);
    let deleted = await_condition(config_maps(lab), &plan, is_gone);
    tokio::time::timeout(TIMEOUT, deleted).await.expect("the plan is deleted").unwrap();
}

#[tokio::test]
async fn a_cluster_with_thirty_operations_takes_little_of_etcd() {
    let lab = Lab::open().await;
    lab.start();
    let nodes = |from: u8, to: u8| {
        (from..=to).map(|last| json!({"ip": format!("10.0.0.{last}")})).collect::<Vec<_>>()
    };
    let declared: KubernetesCluster = serde_json::from_value(json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "shop"},
        "spec": {"cluster": {"masterList": nodes(1, 3), "nodeList": nodes(4, 8), "authConfig": {"password": "hunter2"}}}}))
    .unwrap();
    lab.kubernetes_clusters().create(&PostParams::default(), &declared).await.unwrap();
    run_operation(&lab, 0).await;
    let workers = |number: usize| {
        let mut workers = nodes(4, 8);
        workers[0]["labels"] = json!({"example.org/round": number.to_string()});
        workers
    };
    for number in 1..OPERATIONS - 2 {
        patch(&lab, json!({"spec": {"cluster": {"nodeList": workers(number)}}})).await;
        run_operation(&lab, number).await;
    }
    run_approved(&lab, OPERATIONS - 2, &workers(OPERATIONS)).await;
    store_keys(&lab).await;
    let mut sizes = lab.stored_bytes().await;
    let operations = |key: &String| key.contains("/clusteroperations/");
    sizes.retain(|key, _| {
        key.contains(&format!("/{}/", lab.namespace)) && key.contains("shop") || operations(key)
    });
    sizes.retain(|key, _| !key.starts_with("/registry/events/"));
    let all: usize = sizes.values().sum();
    let history: Vec<usize> =
        sizes.iter().filter(|(key, _)| operations(key)).map(|(_, bytes)| *bytes).collect();
    println!("{all} bytes; operations: {} with {}", history.len(), history.iter().sum::<usize>());
    println!("{sizes:#?}");
    assert_eq!(history.len(), OPERATIONS);
    assert!(all < BUDGET, "{all} bytes: {sizes:#?}");
}
