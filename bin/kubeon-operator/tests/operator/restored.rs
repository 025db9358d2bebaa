//! Operations that ended and that tools write again: replaced, applied, restored from a backup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::OperationResult;
use serde_json::json;

use crate::lab::{Lab, shell};

/// An operation that ended and that the operator does not change any more.
async fn ended(lab: &Lab, name: &str) -> ClusterOperation {
    lab.create_shell_operation("sample", name).await;
    lab.finish(name).await;
    lab.wait_cluster("sample", |cluster| {
        let mut history = cluster.status.iter().flat_map(|status| &status.conditions);
        history.any(|entry| entry.cluster_ops == name && entry.end_time.is_some())
    })
    .await;
    lab.operations().get(name).await.unwrap()
}

/// Runs another operation: the operator has seen everything before it.
async fn another_runs(lab: &Lab, name: &str) {
    lab.create_shell_operation("sample", name).await;
    lab.finish(name).await;
}

#[tokio::test]
async fn an_operation_that_is_replaced_or_applied_again_does_not_run_again() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    let before = ended(&lab, "myops").await;
    // As `kubectl replace` of the object that `kubectl get` shows.
    let replaced = lab.operations().replace("myops", &PostParams::default(), &before).await.unwrap();
    assert_eq!(replaced.metadata.resource_version, before.metadata.resource_version);

    let manifest = json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": "myops"}, "spec": shell("sample")});
    for manager in ["git", "git", "other-git"] {
        let apply = PatchParams::apply(manager);
        lab.operations().patch("myops", &apply, &Patch::Apply(&manifest)).await.unwrap();
    }
    another_runs(&lab, "next").await;
    let after = lab.operations().get("myops").await.unwrap();
    assert_eq!((after.metadata.generation, after.status), (before.metadata.generation, before.status));
    assert_eq!(lab.jobs().list(&ListParams::default()).await.unwrap().items.len(), 2);
}

/// The backup has labels, and its status if `with_status`. There is no garbage collector; the test deletes the Job.
async fn restore(lab: &Lab, before: &ClusterOperation, with_status: bool) {
    let mut copy = ClusterOperation { status: None, ..before.clone() };
    copy.metadata = ObjectMeta {
        name: before.metadata.name.clone(),
        labels: before.metadata.labels.clone(),
        ..ObjectMeta::default()
    };
    lab.operations().delete("myops", &DeleteParams::default()).await.unwrap();
    lab.operations().create(&PostParams::default(), &copy).await.unwrap();
    if with_status {
        let status = Patch::Merge(json!({"status": before.status}));
        lab.operations().patch_status("myops", &PatchParams::default(), &status).await.unwrap();
    }
}

#[tokio::test]
async fn an_operation_that_is_restored_does_not_run_again() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    let before = ended(&lab, "myops").await;
    let job = before.status.as_ref().unwrap().job_ref.clone().unwrap().name;
    lab.terminate().await;
    lab.jobs().delete(&job, &DeleteParams::background()).await.unwrap();

    restore(&lab, &before, true).await;
    lab.start();
    another_runs(&lab, "next").await;
    assert_eq!(lab.operations().get("myops").await.unwrap().status, before.status);

    restore(&lab, &before, false).await;
    let after = lab.wait_result("myops", OperationResult::Failed).await;
    let reason = after.status.unwrap().reason.unwrap_or_default();
    assert!(reason.contains("hasCompleted=done"), "{reason}");
    another_runs(&lab, "last").await;
    assert!(lab.jobs().get_opt(&job).await.unwrap().is_none(), "it has no Job");
}
