//! Complete runs of operations and clusters. The tests act as the user and as the Job controller. Each run
//! ends after the last write of the operator.

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

/// A shell operation on its own Cluster, both with this name. Its pod has a log.
pub(crate) async fn shell(lab: &Lab, name: &str) {
    lab.cluster(name).await;
    // Otherwise the writes for the Cluster and for the operation would come in another order each time.
    lab.until_cluster(name, |cluster| cluster.status.is_some()).await;
    lab.ask(name, name).await;
    let running = lab.until_is(name, OperationResult::Running).await;
    pod_ends(lab, &running).await;
    let job = lab.job_names(&running).await.remove(0);
    lab.job_ends(&job, true).await;
    let ended = lab.until(name, has_completed).await;
    lab.until_cluster(name, |cluster| {
        let shown = cluster.status.iter().flat_map(|status| &status.conditions);
        shown.map(|entry| entry.status.as_str()).eq(["Succeeded"])
    })
    .await;
    let log = format!("{job}-log");
    let there = |map: Option<&ConfigMap>| map.is_some();
    timeout(TIMEOUT, await_condition(maps(lab), &log, there)).await.expect("its log is stored").unwrap();
    assert_eq!(ended.status.as_ref().unwrap().status, Some(OperationResult::Succeeded), "{name}");
    assert_eq!(lab.job_names(&ended).await, [job], "{name}: one Job");
    assert_eq!(lab.inputs_of(&ended).await, 2, "{name}: what its Job reads, and its log");
}

fn maps(lab: &Lab) -> Api<ConfigMap> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// Creates the ended pod of an operation's Job.
async fn pod_ends(lab: &Lab, operation: &ClusterOperation) {
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

/// Ends the Job with this prefix, and waits until nothing is left to do for the object.
async fn settles(lab: &Lab, name: &str, begins: &str, word: &str, operations: usize) {
    let works = |object: &KubernetesCluster| job(object).is_some_and(|job| job.starts_with(begins));
    let object = lab.until_business(name, works).await;
    lab.job_ends(job(&object).unwrap(), true).await;
    let done = |object: &KubernetesCluster| {
        let status = object.status.as_ref();
        let answered = object.annotations().get("app.kubernetes.io/operation").is_some_and(|one| one == word);
        answered && status.is_some_and(|one| one.phase == Some(Phase::Running) && one.operation.is_none())
    };
    let made = lab.until_business(name, done).await;
    let all = derived(lab, &made).await;
    assert_eq!(all.len(), operations, "{name}: one operation for each change");
    for operation in all {
        lab.until(&operation.name_any(), has_completed).await;
        assert_eq!(lab.job_names(&operation).await.len(), 1, "{name}: one Job for each operation");
        assert_eq!(lab.inputs_of(&operation).await, 1, "{name}: one ConfigMap for each Job");
    }
    assert_eq!(made.finalizers().len(), 1, "{name}");
}

/// Creates a declared cluster.
pub(crate) async fn create(lab: &Lab, name: &str, master: &str) {
    lab.declare(name, master).await;
    settles(lab, name, "create-", "create-finished", 1).await;
}

/// Adds a worker.
pub(crate) async fn grow(lab: &Lab, name: &str, worker: &str) {
    let patch = Patch::Merge(json!({"spec": {"cluster": {"nodeList": [{"ip": worker}]}}}));
    lab.businesses().patch(name, &PatchParams::default(), &patch).await.unwrap();
    settles(lab, name, "scale-up-", "scale-up-finished", 2).await;
}

/// Deletes the cluster. Only its Jobs remain, which their TTL removes.
pub(crate) async fn delete(lab: &Lab, name: &str) {
    let object = lab.businesses().get(name).await.unwrap();
    lab.businesses().delete(name, &DeleteParams::default()).await.unwrap();
    let works = |object: &KubernetesCluster| job(object).is_some_and(|job| job.starts_with("delete-"));
    let leaving = lab.until_business(name, works).await;
    lab.job_ends(job(&leaving).unwrap(), true).await;
    let gone = |object: Option<&KubernetesCluster>| object.is_none();
    timeout(TIMEOUT, await_condition(lab.businesses(), name, gone))
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
    for kept in ["state", "kubeconfig"] {
        let kept = format!("{}-{name}-{kept}", lab.namespace);
        assert!(secrets.get_opt(&kept).await.unwrap().is_none(), "{kept} is deleted with the cluster");
    }
    let known_hosts = format!("{}-{name}-known-hosts", lab.namespace);
    assert!(
        maps(lab).get_opt(&known_hosts).await.unwrap().is_none(),
        "{known_hosts} is deleted with the cluster"
    );
    let jobs = lab.jobs().list(&ListParams::default()).await.unwrap();
    let made = jobs.iter().filter(|job| job.name_any().contains(&format!("-{name}-job-"))).count();
    assert_eq!(made, 3, "{name}: one Job for each change");
}
