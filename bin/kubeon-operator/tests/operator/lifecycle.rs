//! Operations of a Cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Resource, ResourceExt as _};
use kubeon_api::Cluster;
use kubeon_api::kubeonkube::OperationResult;
use serde_json::json;
use tokio::time::timeout;

use crate::events::wait_once;
use crate::lab::{Lab, TIMEOUT};

fn history(cluster: &kubeon_api::Cluster) -> Vec<(String, String)> {
    let status = cluster.status.clone().unwrap_or_default();
    status.conditions.into_iter().map(|entry| (entry.cluster_ops, entry.status.to_string())).collect()
}

#[tokio::test]
async fn a_shell_operation_needs_one_job_and_at_most_ten_writes() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.wait_reported("sample").await;
    lab.proxy.clear_requests();
    lab.create_shell_operation("sample", "myops").await;
    let running = lab.wait_result("myops", OperationResult::Running).await;
    assert_eq!(lab.job_names(&running).await, ["kubeonkube-myops-job"]);
    let job = lab.job_of(&running).await;
    let pod = job.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.containers[0].command.as_deref(), Some(&["/bin/entrypoint.sh".to_owned()][..]));
    let ended = lab.finish("myops").await;
    let status = ended.status.unwrap();
    assert_eq!((status.status, status.inputs.len()), (Some(OperationResult::Succeeded), 2));
    let owners = ended.metadata.owner_references.unwrap();
    assert_eq!((owners.len(), owners[0].kind.as_str()), (1, "Cluster"));
    let cluster = lab
        .wait_cluster("sample", |cluster| history(cluster) == [("myops".into(), "Succeeded".into())])
        .await;
    assert_eq!(cluster.status.unwrap().latest.as_deref(), Some("myops"));
    let writes = lab.proxy.writes();
    assert!(writes.len() <= 10, "{} writes: {writes:#?}", writes.len());
    let is_about_other = |name: &str| {
        ["before", "other"].iter().any(|other| name == *other || name.starts_with(&format!("{other}-")))
    };
    // Each event with the version of its object, which grows when the event is repeated.
    let events = || async {
        let events: Api<Event> = Api::namespaced(lab.client.clone(), "default");
        let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let named = events.map(|event| {
            (
                event.involved_object.name.unwrap_or_default(),
                event.metadata.resource_version.unwrap_or_default(),
            )
        });
        named.filter(|(name, _)| !is_about_other(name)).collect::<BTreeSet<_>>()
    };
    wait_once(&lab, "default", "myops", &["Started", "Succeeded"]).await;
    // What was due is sent before the first other cluster is reported. From then on, the operator sends requests only
    // about the other ones. The request of an event does not name its object.
    lab.cluster("before").await;
    lab.wait_reported("before").await;
    lab.proxy.clear_requests();
    let recorded = events().await;
    lab.cluster("other").await;
    lab.wait_reported("other").await;
    let requests = lab.proxy.requests().into_iter();
    let unexpected: Vec<_> = requests
        .filter(|request| request.verb != "watch" && request.resource != "events")
        .filter(|request| !is_about_other(&request.name))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert_eq!(events().await, recorded, "events about an idle cluster");
}

#[tokio::test]
async fn the_second_operation_of_a_cluster_waits_for_the_first() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "one").await;
    lab.wait_result("one", OperationResult::Running).await;
    lab.create_shell_operation("sample", "two").await;
    let waits = |operation: &kubeon_api::ClusterOperation| {
        operation.status.as_ref().and_then(|status| status.waits_for.as_deref()) == Some("one")
    };
    lab.wait_operation("two", waits).await;
    lab.finish("one").await;
    lab.wait_result("two", OperationResult::Running).await;
    lab.finish("two").await;
    assert_eq!(lab.jobs().list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn a_missing_configmap_is_reported_and_its_creation_starts_the_operation() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    let maps: Api<ConfigMap> = Api::namespaced(lab.client.clone(), &lab.namespace);
    maps.delete("sample-hosts", &DeleteParams::default()).await.unwrap();
    lab.wait_cluster("sample", |cluster| {
        cluster
            .status
            .as_ref()
            .and_then(|status| status.reason.as_deref())
            .is_some_and(|reason| reason.contains("sample-hosts"))
    })
    .await;
    lab.create_shell_operation("sample", "myops").await;
    let wanted = format!("hostsConfRef {},sample-hosts not found", lab.namespace);
    lab.wait_operation("myops", |operation| {
        operation.status.as_ref().and_then(|status| status.reason.as_ref()) == Some(&wanted)
    })
    .await;
    lab.config_map("sample-hosts", json!({"hosts.yml": "all: {}\n"})).await;
    lab.wait_result("myops", OperationResult::Running).await;
    lab.finish("myops").await;
}

/// Whether only the owner with the UID `other` is left.
fn has_other_owner<K: Resource>(object: Option<&K>) -> bool {
    let owners = object.map(|object| object.meta().owner_references.clone().unwrap_or_default());
    owners.is_some_and(|owners| owners.iter().map(|owner| owner.uid.as_str()).eq(["other"]))
}

/// An earlier operator wrote the owner, with which Kubernetes deletes them together with the Cluster.
#[tokio::test]
async fn a_cluster_no_longer_owns_what_it_refers_to() {
    let lab = Lab::open().await;
    lab.cluster("sample").await;
    let cluster = Api::<Cluster>::all(lab.client.clone()).get("sample").await.unwrap();
    let owner = |kind: &str, version: &str, uid: &str| json!({"apiVersion": version, "kind": kind, "name": "sample", "uid": uid});
    let own = owner("Cluster", "kubeonkube.clay.io/v1alpha1", &cluster.uid().unwrap());
    let owned =
        Patch::Merge(json!({"metadata": {"ownerReferences": [own, owner("ConfigMap", "v1", "other")]}}));
    let maps: Api<ConfigMap> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), &lab.namespace);
    maps.patch("sample-hosts", &PatchParams::default(), &owned).await.unwrap();
    secrets.patch("sample-key", &PatchParams::default(), &owned).await.unwrap();
    lab.start();
    let map = await_condition(maps, "sample-hosts", has_other_owner);
    let map = timeout(TIMEOUT, map).await.expect("the ConfigMap is not owned").unwrap().unwrap();
    let key = await_condition(secrets, "sample-key", has_other_owner);
    let key = timeout(TIMEOUT, key).await.expect("the Secret is not owned").unwrap().unwrap();
    assert!(map.data.is_some() && key.data.is_some());
}

#[tokio::test]
async fn the_history_limit_of_the_configmap_holds() {
    let lab = Lab::open().await;
    lab.config_map("kubeonkube-config", json!({"CLUSTER_OPERATIONS_BACKEND_LIMIT": "2"})).await;
    lab.start();
    lab.cluster("sample").await;
    for name in ["o1", "o2", "o3", "o4"] {
        lab.create_shell_operation("sample", name).await;
        lab.finish(name).await;
    }
    let names = |cluster: &kubeon_api::Cluster| {
        history(cluster).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    lab.wait_cluster("sample", |cluster| names(cluster) == ["o4", "o3"]).await;
    assert_eq!(lab.operations().list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn a_cancelled_operation_is_stopped_and_has_the_reason_cancelled() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "myops").await;
    let running = lab.wait_result("myops", OperationResult::Running).await;
    let cancel = Patch::Merge(json!({"spec": {"cancelled": true}}));
    lab.operations().patch("myops", &PatchParams::default(), &cancel).await.unwrap();
    lab.wait_operation("myops", |operation| {
        operation.status.as_ref().is_some_and(|status| status.reason.as_deref() == Some("cancelled"))
    })
    .await;
    let name = lab.job_names(&running).await.remove(0);
    let suspended = |job: Option<&k8s_openapi::api::batch::v1::Job>| {
        job.and_then(|job| job.spec.as_ref()).and_then(|spec| spec.suspend) == Some(true)
    };
    kube::runtime::wait::await_condition(lab.jobs(), &name, suspended).await.unwrap();
    let status = json!({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}});
    lab.jobs().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    lab.wait_result("myops", OperationResult::Failed).await;
}

/// The Job controller suspended it two hours ago, and the operator has the rights that are installed.
#[tokio::test]
async fn the_suspended_job_of_a_cancelled_operation_is_deleted() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "myops").await;
    let running = lab.wait_result("myops", OperationResult::Running).await;
    let job = lab.job_of(&running).await;
    assert_eq!(job.spec.unwrap().ttl_seconds_after_finished, Some(604_800));
    let (name, uid) = (job.metadata.name.unwrap(), job.metadata.uid.unwrap());
    let cancel = Patch::Merge(json!({"spec": {"cancelled": true}}));
    lab.operations().patch("myops", &PatchParams::default(), &cancel).await.unwrap();
    let suspended = |job: Option<&k8s_openapi::api::batch::v1::Job>| {
        job.and_then(|job| job.spec.as_ref()).and_then(|spec| spec.suspend) == Some(true)
    };
    kube::runtime::wait::await_condition(lab.jobs(), &name, suspended).await.unwrap();
    let since = Timestamp::from_second(Timestamp::now().as_second() - 7200).unwrap().to_string();
    let status = json!({"status": {"conditions": [
        {"type": "Suspended", "status": "True", "lastTransitionTime": since}]}});
    lab.jobs().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let is_deleted = kube::runtime::wait::conditions::is_deleted(&uid);
    let deletion = kube::runtime::wait::await_condition(lab.jobs(), &name, is_deleted);
    tokio::time::timeout(crate::lab::TIMEOUT, deletion).await.expect("the Job is deleted in time").unwrap();
    let ended = lab.wait_result("myops", OperationResult::Failed).await;
    assert_eq!(ended.status.unwrap().reason.as_deref(), Some("cancelled"));
    assert_eq!(lab.job_names(&running).await, [""; 0], "no second Job");
}

/// Contract A, case 32.
#[tokio::test]
async fn an_operation_that_ended_without_an_operator_has_the_end_time_of_its_job() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "myops").await;
    let running = lab.wait_result("myops", OperationResult::Running).await;
    lab.kill().await;
    lab.end_job(&lab.job_names(&running).await[0], true).await;
    let ended = lab.job_of(&running).await.status.unwrap().completion_time;
    // Times have whole seconds: from the next second on, the operator's own time would differ.
    while ended.as_ref().is_some_and(|ended| Timestamp::now().as_second() <= ended.0.as_second()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lab.start();
    let operation = lab.wait_result("myops", OperationResult::Succeeded).await;
    assert!(ended.is_some() && operation.status.unwrap().end_time == ended);
}

/// As after `kubectl replace --force`. There is no garbage collector; the test deletes the objects.
#[tokio::test]
async fn a_recreated_operation_runs_after_the_job_of_the_deleted_one_is_deleted() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "myops").await;
    let first = lab.finish("myops").await;
    lab.operations().delete("myops", &DeleteParams::default()).await.unwrap();
    lab.create_shell_operation("sample", "myops").await;
    lab.wait_reason("myops", "of a deleted operation with the same name still exists").await;
    let job = lab.job_names(&first).await.remove(0);
    lab.jobs().delete(&job, &DeleteParams::background()).await.unwrap();
    let second = lab.finish("myops").await;
    assert_eq!(second.status.as_ref().unwrap().status, Some(OperationResult::Succeeded));
    assert_eq!(lab.job_names(&second).await, [job]);
    assert_eq!(lab.config_map_count(&second).await, 1, "its own copy");
}
