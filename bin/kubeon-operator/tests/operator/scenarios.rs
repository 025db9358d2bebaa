//! Complete scenarios of operations and clusters. The tests act as the user and as the Job controller. Each
//! scenario ends after the last write of the operator.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Resource as _, ResourceExt as _};
use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::{ClusterOperation, KubernetesCluster, Phase};
use serde_json::json;
use tokio::time::timeout;

use crate::lab::{Lab, TIMEOUT};

fn has_completed(operation: &ClusterOperation) -> bool {
    operation.labels().get("hasCompleted").is_some_and(|done| done == "done")
}

/// Executes a shell operation on its own Cluster, both with this name. Its pod has a log.
pub(crate) async fn shell(lab: &Lab, name: &str) {
    lab.cluster(name).await;
    // The writes for the Cluster and for the operation need a fixed order.
    lab.wait_reported(name).await;
    lab.create_shell_operation(name, name).await;
    let running = lab.wait_result(name, OperationResult::Running).await;
    create_ended_pod(lab, &running).await;
    let job = lab.job_names(&running).await.remove(0);
    lab.end_job(&job, true).await;
    let ended = lab.wait_operation(name, has_completed).await;
    lab.wait_cluster(name, |cluster| {
        let history = cluster.status.iter().flat_map(|status| &status.conditions);
        history.map(|entry| entry.status.as_str()).eq(["Succeeded"])
    })
    .await;
    let log = format!("{job}-log");
    let exists = |map: Option<&ConfigMap>| map.is_some();
    timeout(TIMEOUT, await_condition(maps(lab), &log, exists)).await.expect("the log is stored").unwrap();
    let key = ended.status.iter().flat_map(|status| &status.inputs).last().unwrap().name.clone();
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let is_deleted = |secret: Option<&Secret>| secret.is_none();
    let deleted = await_condition(secrets.clone(), &key, is_deleted);
    timeout(TIMEOUT, deleted).await.expect("the copy of the key is deleted").unwrap();
    assert!(
        key != format!("{name}-key") && secrets.get(&format!("{name}-key")).await.is_ok(),
        "{name}: {key}"
    );
    assert_eq!(ended.status.as_ref().unwrap().status, Some(OperationResult::Succeeded), "{name}");
    assert_eq!(lab.job_names(&ended).await, [job], "{name}: one Job");
    assert_eq!(lab.config_map_count(&ended).await, 2, "{name}: the input of the Job, and its log");
}

fn maps(lab: &Lab) -> Api<ConfigMap> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// Creates the ended pod of an operation's Job.
async fn create_ended_pod(lab: &Lab, operation: &ClusterOperation) {
    let job = lab.job_of(operation).await;
    let template = job.spec.as_ref().and_then(|spec| spec.template.metadata.clone()).unwrap();
    let name = format!("{}-pod", operation.name_any());
    let pod = json!({
        "metadata": {"name": name, "labels": template.labels, "annotations": template.annotations,
            "ownerReferences": [job.controller_owner_ref(&()).unwrap()]},
        "spec": {"serviceAccountName": "kubeon-runner", "containers": [{"name": "c", "image": "i"}]},
    });
    lab.put::<Pod>(serde_json::from_value(pod).unwrap()).await;
    let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [{"name": "c", "image": "i",
        "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]}});
    let pods = Api::<Pod>::namespaced(lab.client.clone(), &lab.namespace);
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

fn job(object: &KubernetesCluster) -> Option<&str> {
    object.status.as_ref()?.job_name.as_deref()
}

/// Operations that were derived from an object.
async fn derived(lab: &Lab, object: &KubernetesCluster) -> Vec<ClusterOperation> {
    let label = format!("kubeon.io/cluster-uid={}", object.uid().unwrap());
    lab.operations().list(&ListParams::default().labels(&label)).await.unwrap().items
}

/// Ends the Job with this prefix, and waits until the operation annotation has the value `finished` and the object
/// is up to date.
async fn end_job_and_settle(lab: &Lab, name: &str, prefix: &str, finished: &str, operations: usize) {
    let has_job = |object: &KubernetesCluster| job(object).is_some_and(|job| job.starts_with(prefix));
    let object = lab.wait_kubernetes_cluster(name, has_job).await;
    lab.end_job(job(&object).unwrap(), true).await;
    let done = |object: &KubernetesCluster| {
        let status = object.status.as_ref();
        let annotation = object.annotations().get("app.kubernetes.io/operation");
        annotation.is_some_and(|value| value == finished)
            && status.is_some_and(|one| one.phase == Some(Phase::Running) && one.operation.is_none())
    };
    let settled = lab.wait_kubernetes_cluster(name, done).await;
    let all = derived(lab, &settled).await;
    assert_eq!(all.len(), operations, "{name}: one operation for each change");
    for operation in all {
        lab.wait_operation(&operation.name_any(), has_completed).await;
        assert_eq!(lab.job_names(&operation).await.len(), 1, "{name}: one Job for each operation");
        assert_eq!(lab.config_map_count(&operation).await, 1, "{name}: one ConfigMap for each Job");
    }
    assert_eq!(settled.finalizers().len(), 1, "{name}");
}

/// Creates a declared cluster.
pub(crate) async fn create(lab: &Lab, name: &str, master: &str) {
    lab.declare(name, master).await;
    complete_creation(lab, name).await;
}

/// Ends the Job that creates a declared cluster.
pub(crate) async fn complete_creation(lab: &Lab, name: &str) {
    end_job_and_settle(lab, name, "create-", "create-finished", 1).await;
}

/// Adds a worker.
pub(crate) async fn scale_up(lab: &Lab, name: &str, worker: &str) {
    let patch = Patch::Merge(json!({"spec": {"cluster": {"nodeList": [{"ip": worker}]}}}));
    lab.kubernetes_clusters().patch(name, &PatchParams::default(), &patch).await.unwrap();
    end_job_and_settle(lab, name, "scale-up-", "scale-up-finished", 2).await;
}

/// Deletes the cluster. Only its Jobs remain, which their TTL removes.
pub(crate) async fn delete(lab: &Lab, name: &str) {
    let object = lab.kubernetes_clusters().get(name).await.unwrap();
    lab.kubernetes_clusters().delete(name, &DeleteParams::default()).await.unwrap();
    let has_job = |object: &KubernetesCluster| job(object).is_some_and(|job| job.starts_with("delete-"));
    let terminating = lab.wait_kubernetes_cluster(name, has_job).await;
    lab.end_job(job(&terminating).unwrap(), true).await;
    let is_absent = |object: Option<&KubernetesCluster>| object.is_none();
    timeout(TIMEOUT, await_condition(lab.kubernetes_clusters(), name, is_absent))
        .await
        .expect("the cluster is deleted")
        .unwrap();
    let operations = async {
        while !derived(lab, &object).await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, operations).await.expect("its operations are deleted");
    let secrets = Api::<Secret>::namespaced(lab.client.clone(), &lab.namespace);
    for kind in ["state", "kubeconfig"] {
        let secret = format!("{}-{name}-{kind}", lab.namespace);
        assert!(secrets.get_opt(&secret).await.unwrap().is_none(), "{secret} is deleted with the cluster");
    }
    let known_hosts = format!("{}-{name}-known-hosts", lab.namespace);
    assert!(
        maps(lab).get_opt(&known_hosts).await.unwrap().is_none(),
        "{known_hosts} is deleted with the cluster"
    );
    // Other scenarios have left hundreds of Jobs.
    let jobs = lab.jobs().list_metadata(&ListParams::default()).await.unwrap();
    let count = jobs.iter().filter(|job| job.name_any().contains(&format!("-{name}-job-"))).count();
    assert_eq!(count, 3, "{name}: one Job for each change");
}
